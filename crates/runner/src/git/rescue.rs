//! When a session left the run's branch: keep everything, go back.

use std::ffi::OsStr;

use super::Git;
use crate::error::Result;

/// Saves the work tree (through an index of its own) and the commits that HEAD
/// and the branch point at under `refs/runner/lost/RUN/ITER`, then puts the
/// branch back at `head` and checks it out. May be done again after a crash.
pub(crate) fn rescue(
    git: &Git,
    run_id: &str,
    iter: u32,
    branch: &str,
    head: &str,
) -> Result<String> {
    let lost = format!("refs/runner/lost/{run_id}/{iter}");
    let full_branch = format!("refs/heads/{branch}");
    if git.commit_of(&lost)?.is_none() {
        let index = git.git_dir().join("runner-rescue-index");
        let _ = std::fs::remove_file(&index);
        let env = [("GIT_INDEX_FILE", index.as_os_str())];
        git.write_with(
            &[
                "add",
                "--all",
                "--",
                ".",
                ":(exclude).runner/iterations",
                ":(exclude).runner/context",
            ],
            None,
            &env,
        )?;
        let tree = git.write_with(&["write-tree"], None, &env)?;
        let tree = String::from_utf8_lossy(tree.trim_ascii_end()).into_owned();
        let _ = std::fs::remove_file(&index);

        let mut parents = Vec::new();
        for name in ["HEAD", &full_branch, head] {
            if let Some(commit) = git.commit_of(name)?
                && !parents.contains(&commit)
            {
                parents.push(commit);
            }
        }
        let message =
            format!("runner: work tree of run {run_id} iter {iter}, found off its branch\n");
        let mut args = vec!["commit-tree".to_owned(), tree];
        for parent in parents {
            args.extend(["-p".to_owned(), parent]);
        }
        let (_, commit) = git.as_someone(|env: &[(&str, &OsStr)]| {
            git.write_with(&args, Some(message.as_bytes()), env)
        })?;
        let commit = String::from_utf8_lossy(commit.trim_ascii_end()).into_owned();
        git.write(&["update-ref", &lost, &commit])?;
    }
    git.write(&["update-ref", &full_branch, head])?;
    git.write(&["symbolic-ref", "HEAD", &full_branch])?;
    git.write(&["reset", "--quiet", "--hard", head])?;
    // One -f: a nested repository is left for the step to deal with.
    git.write(&["clean", "--quiet", "-f", "-d"])?;
    Ok(lost)
}
