//! When a session left the run's branch: keep everything, go back.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use runner_core::paths;

use super::{Git, zeros};
use crate::error::Result;
use crate::files;
use crate::step::file_image;

/// Saves the work tree (through an index of its own) and the commits that HEAD
/// and the branch point at under `refs/runner/lost/RUN/ITER`, then puts the
/// branch back at `head` and checks it out. What could not be saved, because an
/// ignore rule of the session hid it, goes to `quarantine`. May be done again
/// after a crash.
pub(crate) fn rescue(
    git: &Git,
    run_id: &str,
    iter: u32,
    branch: &str,
    head: &str,
    quarantine: &Path,
) -> Result<String> {
    let branch = format!("refs/heads/{branch}");
    let lost = format!("refs/runner/lost/{run_id}/{iter}");
    let tree = work_tree(git, head)?;
    let lost = save(git, &lost, &tree, run_id, iter, &branch, head)?;
    free_name(git, &branch, &lost)?;
    git.write(&["update-ref", "--no-deref", &branch, head])?;
    git.write(&["symbolic-ref", "HEAD", &branch])?;
    if git.write(&["reset", "--quiet", "--hard", head]).is_err() {
        file_image::open_folders(git.root());
        git.write(&["reset", "--quiet", "--hard", head])?;
    }
    take_away(git, &tree, quarantine)?;
    Ok(lost)
}

/// The whole work tree as a tree object.
fn work_tree(git: &Git, head: &str) -> Result<String> {
    let index = git.git_dir().join("runner-rescue-index");
    let _ = files::remove_if_there(&index);
    let env = [("GIT_INDEX_FILE", index.as_os_str())];
    let here = git.commit_of("HEAD")?;
    let made = (|| {
        // From what was checked out, so that tracked files count although they
        // are ignored.
        git.write_with(&["read-tree", here.as_deref().unwrap_or(head)], None, &env)?;
        let mut local = Vec::new();
        for folder in [paths::ITERATIONS_DIR, paths::CONTEXT_DIR, paths::FLEET_DIR] {
            // Another branch may not have the file that ignores them; and git
            // complains about a path that is both ignored and named.
            let inside = format!("{folder}/x");
            if git.ask(&["check-ignore", "--quiet", &inside])?.is_none() {
                local.push(Path::new(folder));
            }
        }
        git.add_all_to(&env, &local)?;
        let tree = git.write_with(&["write-tree"], None, &env)?;
        Ok(String::from_utf8_lossy(tree.trim_ascii_end()).into_owned())
    })();
    let _ = files::remove_if_there(&index);
    made
}

/// Makes the commit and the reference; an earlier one with other content stays.
fn save(
    git: &Git,
    name: &str,
    tree: &str,
    run_id: &str,
    iter: u32,
    branch: &str,
    head: &str,
) -> Result<String> {
    let mut lost = name.to_owned();
    let mut number = 1;
    while let Some(there) = git.commit_of(&lost)? {
        let same = git.line(&["rev-parse", &format!("{there}^{{tree}}")])? == tree;
        if same {
            return Ok(lost);
        }
        number += 1;
        lost = format!("{name}-{number}");
    }
    let mut parents = Vec::new();
    for name in ["HEAD", branch, head] {
        if let Some(commit) = git.commit_of(name)?
            && !parents.contains(&commit)
        {
            parents.push(commit);
        }
    }
    let message = format!("runner: work tree of run {run_id} iter {iter}, found off its branch\n");
    let mut args = vec!["commit-tree".to_owned(), tree.to_owned()];
    for parent in parents {
        args.extend(["-p".to_owned(), parent]);
    }
    let (_, commit) = git.as_someone(|env: &[(&str, &OsStr)]| {
        git.write_with(&args, Some(message.as_bytes()), env)
    })?;
    let commit = String::from_utf8_lossy(commit.trim_ascii_end()).into_owned();
    free_name(
        git,
        &lost,
        &format!("refs/runner/displaced/{run_id}-{iter}"),
    )?;
    git.write(&["update-ref", "--no-deref", &lost, &commit, &zeros(&commit)])?;
    Ok(lost)
}

/// A reference `a/b` cannot be where `a` or `a/b/c` is: those are given names
/// that begin with `instead`.
fn free_name(git: &Git, name: &str, instead: &str) -> Result<()> {
    let mut args = vec!["for-each-ref", "--format=%(refname) %(objectname)"];
    args.extend(
        Path::new(name)
            .ancestors()
            .filter_map(Path::to_str)
            .filter(|path| !["refs/heads", "refs", ""].contains(path)),
    );
    let listing = git.line(&args)?;
    let mut number = 0;
    for (other, commit) in listing.lines().filter_map(|line| line.split_once(' ')) {
        let below = other
            .strip_prefix(name)
            .is_some_and(|rest| rest.starts_with('/'));
        let over = name
            .strip_prefix(other)
            .is_some_and(|rest| rest.starts_with('/'));
        if !below && !over {
            continue;
        }
        number += 1;
        git.write(&["update-ref", "--no-deref", "-d", other])?;
        git.write(&[
            "update-ref",
            "--no-deref",
            &format!("{instead}-ref-{number}"),
            commit,
        ])?;
    }
    Ok(())
}

/// What is not of the branch goes: it is in the saved tree, or else it is kept
/// in the quarantine.
fn take_away(git: &Git, tree: &str, quarantine: &Path) -> Result<()> {
    let saved: HashSet<PathBuf> = git
        .files_of(tree)?
        .into_iter()
        .map(|file| file.path)
        .collect();
    for entry in git.status()?.entries.iter().filter(|entry| entry.untracked) {
        let full = git.root().join(&entry.path);
        if saved.contains(&entry.path) && !full.is_dir() {
            if files::remove_if_there(&full).is_err() {
                file_image::open_folders(git.root());
                files::remove_if_there(&full)?;
            }
        } else {
            file_image::move_to(git.root(), &entry.path, quarantine)?;
        }
        for folder in entry.path.ancestors().skip(1) {
            if folder.as_os_str().is_empty()
                || std::fs::remove_dir(git.root().join(folder)).is_err()
            {
                break;
            }
        }
    }
    Ok(())
}
