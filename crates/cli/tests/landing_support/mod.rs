//! What the tests of landing share: a finished run, and a look at what is home.
#![allow(dead_code)] // Each test file uses what it needs.

use std::path::PathBuf;

use runner_testkit::{TestRepo, TestRun};

use crate::scenario::planned;

/// Writes one file for each leaf.
pub(crate) const AGENT: &str =
    "echo \"$RUNNER_NODE_ID\" > \"$RUNNER_NODE_ID.txt\"; out done 'wrote it'";

/// Red as soon as any text file says `bad`.
pub(crate) const GUARD: &[&str] = &["sh", "-c", "echo guarding; ! grep -l bad *.txt"];

/// The run `demo` with the leaves `a` and `b`, both passed; its branch is checked out.
pub(crate) fn complete() -> TestRepo {
    complete_with(AGENT, GUARD)
}

/// The same with another agent or guard.
pub(crate) fn complete_with(agent: &str, guard: &[&str]) -> TestRepo {
    let repo = planned(&["a", "b"], agent, guard);
    repo.runner(&["loop"]).success();
    assert_eq!(repo.tree()["passes"], true);
    repo
}

/// The run `demo` in which `a` has passed and one try at `b` has not.
pub(crate) fn half() -> TestRepo {
    let repo = planned(&["a", "b"], AGENT, GUARD);
    repo.agent_at(3, "echo later > later.txt; out retry 'not yet'");
    repo.runner(&["loop", "--steps", "2"]).success();
    repo
}

/// A commit on a branch that is not checked out, made without a work tree.
#[track_caller]
pub(crate) fn commit_on(repo: &TestRepo, branch: &str, path: &str, text: &str) -> String {
    let tip = repo.git(&["rev-parse", branch]);
    let file = repo.root().join("tmp/blob");
    std::fs::write(&file, text).expect("a file can be written");
    let blob = repo.git(&["hash-object", "-w", &file.display().to_string()]);
    let index = repo.root().join("tmp/index").display().to_string();
    let git = |args: &[&str]| {
        let mut cmd = repo.hermetic("git");
        cmd.args(args).env("GIT_INDEX_FILE", &index);
        let run = repo.spawn(cmd).wait().success();
        run.stdout.trim().to_owned()
    };
    git(&["read-tree", branch]);
    git(&[
        "update-index",
        "--add",
        "--cacheinfo",
        &format!("100644,{blob},{path}"),
    ]);
    let tree = git(&["write-tree"]);
    let commit = git(&["commit-tree", &tree, "-p", &tip, "-m", "Somebody else's"]);
    repo.git(&["update-ref", &format!("refs/heads/{branch}"), &commit, &tip]);
    commit
}

/// The files of a commit, sorted.
#[track_caller]
pub(crate) fn files(repo: &TestRepo, commit: &str) -> Vec<String> {
    let list = repo.git(&["ls-tree", "-r", "--name-only", commit]);
    list.lines().map(str::to_owned).collect()
}

/// The branch that is checked out.
#[track_caller]
pub(crate) fn branch(repo: &TestRepo) -> String {
    repo.git(&["branch", "--show-current"])
}

/// Fails unless `main` has the whole run as one commit on top of `base`, `main` is
/// checked out and clean, and nothing is left lying around.
#[track_caller]
pub(crate) fn assert_home(repo: &TestRepo, base: &str) {
    assert_eq!(branch(repo), "main");
    assert_eq!(repo.git(&["rev-parse", "main^"]), base);
    assert_eq!(files(repo, "main"), ["README.md", "a.txt", "b.txt"]);
    assert_tidy(repo);
}

/// Fails if the work tree is not clean or a landing left something behind.
#[track_caller]
pub(crate) fn assert_tidy(repo: &TestRepo) {
    repo.assert_clean();
    assert_eq!(repo.private_checkouts(), Vec::<PathBuf>::new());
    let tmp = std::fs::read_dir(repo.root().join("tmp")).expect("the folder is there");
    let left: Vec<_> = tmp
        .flatten()
        .map(|entry| entry.file_name())
        .filter(|name| name.to_string_lossy().starts_with("runner-"))
        .collect();
    assert!(left.is_empty(), "left in the temp folder: {left:?}");
    let pending = repo.path(".runner/iterations/demo/land.json");
    assert!(!pending.exists(), "{} is left", pending.display());
}

/// A second work tree with a branch checked out.
#[track_caller]
pub(crate) fn second_tree(repo: &TestRepo, branch: &str) -> PathBuf {
    let place = repo.root().join("second");
    repo.git(&[
        "worktree",
        "add",
        "--quiet",
        &place.display().to_string(),
        branch,
    ]);
    place
}

/// Git in another work tree.
#[track_caller]
pub(crate) fn git_in(repo: &TestRepo, place: &std::path::Path, args: &[&str]) -> String {
    let mut all = vec!["-C".to_owned(), place.display().to_string()];
    all.extend(args.iter().map(|arg| (*arg).to_owned()));
    repo.git(&all)
}

/// `land` that must not change anything.
#[track_caller]
pub(crate) fn refused(repo: &TestRepo, args: &[&str]) -> TestRun {
    let before = crate::scenario::picture(repo);
    let mut words = vec!["land"];
    words.extend(args);
    let run = repo.runner(&words).code(1);
    crate::scenario::assert_same(repo, &before, "a refused landing changed something");
    run
}
