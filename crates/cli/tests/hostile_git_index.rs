//! Sessions that break git's index and references, leave locks and traps behind or
//! hide changes from git.
#![allow(clippy::unwrap_used)] // a helper that fails is a test that fails

mod hostile_support;

use std::fs;

use hostile_support::{case, finish, play, play_one, repo, step};

#[test]
fn a_broken_index_is_built_anew() {
    let repo = repo();
    let cases = [
        case(
            "deleted",
            "ok",
            "built anew",
            "rm .git/index; echo a > a.txt; out retry x",
        ),
        case(
            "garbage",
            "ok",
            "built anew",
            "echo garbage > .git/index; echo b > b.txt; out retry x",
        ),
        case(
            "empty",
            "ok",
            "built anew",
            ": > .git/index; echo c > c.txt; out retry x",
        ),
        case(
            "cut off",
            "ok",
            "built anew",
            "truncate -s 100 .git/index; echo d > d.txt; out retry x",
        ),
        case(
            "a flipped byte",
            "ok",
            "built anew",
            "printf 'XX' | dd of=.git/index bs=1 seek=60 conv=notrunc 2>/dev/null; out retry x",
        ),
        case(
            "a pipe",
            "agent_error",
            ".git/index",
            "rm .git/index; mkfifo .git/index; echo e > e.txt",
        ),
        case(
            "a folder",
            "agent_error",
            ".git/index",
            "rm .git/index; mkdir -p .git/index/x",
        ),
        case(
            "a link",
            "agent_error",
            ".git/index",
            "mv .git/index \"$AGENT_DIR/elsewhere\"; ln -s \"$AGENT_DIR/elsewhere\" .git/index",
        ),
        case(
            "everything staged away",
            "ok",
            "",
            "git rm -rq --cached .; out retry x",
        ),
        case(
            "a staged lie",
            "ok",
            "",
            "echo one > src/main.txt; git add -A; git checkout -q HEAD -- . ; out retry x",
        ),
    ];
    play(&repo, &cases);
    for name in [
        "a.txt",
        "b.txt",
        "c.txt",
        "d.txt",
        "e.txt",
        "src/main.txt",
        "data.bin",
    ] {
        assert!(
            repo.git_try(&["cat-file", "-e", &format!("HEAD:{name}")])
                .is_ok(),
            "{name}"
        );
    }
}

#[test]
fn locks_are_no_obstacle() {
    let repo = repo();
    let cases = [
        case(
            "index.lock left",
            "ok",
            "",
            ": > .git/index.lock; echo a > a.txt; out retry x",
        ),
        case(
            "HEAD.lock left",
            "ok",
            "",
            ": > .git/HEAD.lock; out retry x",
        ),
        case(
            "the branch's lock left",
            "ok",
            "",
            ": > .git/refs/heads/runner/$RUNNER_RUN_ID.lock; out retry x",
        ),
        case(
            "packed-refs.lock left",
            "ok",
            "",
            ": > .git/packed-refs.lock; out retry x",
        ),
        case(
            "a lock that is a folder",
            "ok",
            "",
            "mkdir -p .git/index.lock/x; out retry x",
        ),
        case(
            "a lock that is a pipe",
            "agent_error",
            ".git/HEAD.lock",
            "mkfifo .git/HEAD.lock",
        ),
        case(
            "references packed",
            "ok",
            "",
            "git pack-refs --all; git gc -q; out retry x",
        ),
    ];
    play(&repo, &cases);
}

#[test]
fn references_that_git_cannot_read() {
    let repo = repo();
    let cases = [
        case(
            "HEAD is garbage",
            "agent_error",
            ".git/HEAD",
            "echo garbage > .git/HEAD; echo a > a.txt",
        ),
        case(
            "HEAD is gone",
            "agent_error",
            ".git/HEAD",
            "rm .git/HEAD; echo b > b.txt",
        ),
        case(
            "HEAD is a pipe",
            "agent_error",
            ".git/HEAD",
            "rm .git/HEAD; mkfifo .git/HEAD",
        ),
        case(
            "HEAD is a folder",
            "agent_error",
            ".git/HEAD",
            "rm .git/HEAD; mkdir .git/HEAD",
        ),
        case(
            "HEAD leads elsewhere",
            "runner_error",
            "was left",
            "echo 'ref: refs/heads/nowhere' > .git/HEAD",
        ),
        case(
            "the branch is garbage",
            "agent_error",
            ".git/refs/heads/runner/",
            "git commit -q --allow-empty -m x; echo garbage > .git/refs/heads/runner/$RUNNER_RUN_ID; echo c > c.txt",
        ),
        case(
            "the branch is empty",
            "agent_error",
            ".git/refs/heads/runner/",
            "git commit -q --allow-empty -m x; : > .git/refs/heads/runner/$RUNNER_RUN_ID",
        ),
        case(
            "the branch is a pipe",
            "runner_error",
            "refs/runner/lost/",
            "git commit -q --allow-empty -m x; rm .git/refs/heads/runner/$RUNNER_RUN_ID; \
             mkfifo .git/refs/heads/runner/$RUNNER_RUN_ID",
        ),
        case(
            "all loose references gone",
            "agent_error",
            ".git/refs",
            "git pack-refs --all; rm -rf .git/refs",
        ),
        case(
            "packed-refs is a pipe",
            "agent_error",
            ".git/packed-refs",
            "rm -f .git/packed-refs; mkfifo .git/packed-refs",
        ),
    ];
    for case in &cases {
        // Whatever they do to references, the history must not depend on it.
        repo.git(&["update-ref", "refs/keep/main", "main"]);
        play_one(&repo, case);
        if repo.git_try(&["rev-parse", "--verify", "main"]).is_err() {
            repo.git(&["update-ref", "refs/heads/main", "HEAD~1"]);
        }
    }
    finish(&repo);
}

#[test]
fn traps_in_the_git_folder() {
    let repo = repo();
    let victim = repo.agent_dir().join("victim");
    fs::write(&victim, "untouched").unwrap();
    let cases = [
        case(
            "a pipe for messages",
            "agent_error",
            ".git/COMMIT_EDITMSG",
            "rm -f .git/COMMIT_EDITMSG; mkfifo .git/COMMIT_EDITMSG",
        ),
        case(
            "a link for messages",
            "agent_error",
            ".git/COMMIT_EDITMSG",
            "rm -f .git/COMMIT_EDITMSG; ln -s \"$AGENT_DIR/victim\" .git/COMMIT_EDITMSG",
        ),
        case(
            "a link for the log",
            "agent_error",
            ".git/logs/HEAD",
            "rm -f .git/logs/HEAD; ln -s \"$AGENT_DIR/victim\" .git/logs/HEAD",
        ),
        case(
            "a pipe for the log",
            "agent_error",
            ".git/logs/HEAD",
            "rm -f .git/logs/HEAD; mkfifo .git/logs/HEAD",
        ),
        case(
            "a file for the logs",
            "agent_error",
            ".git/logs",
            "rm -rf .git/logs; : > .git/logs",
        ),
        case(
            "a pipe for alternates",
            "agent_error",
            ".git/objects/info/alternates",
            "mkdir -p .git/objects/info; mkfifo .git/objects/info/alternates",
        ),
        case(
            "a pipe for shallow",
            "agent_error",
            ".git/shallow",
            "mkfifo .git/shallow",
        ),
        case(
            "a pipe among references",
            "agent_error",
            ".git/refs/tags/t",
            "mkfifo .git/refs/tags/t",
        ),
        case(
            "a pipe for the config",
            "agent_error",
            ".git/config",
            "rm .git/config; mkfifo .git/config",
        ),
        case(
            "a pipe for exclude",
            "agent_error",
            ".git/info/exclude",
            "rm -f .git/info/exclude; mkfifo .git/info/exclude",
        ),
        case(
            "hooks is a pipe",
            "agent_error",
            ".git/hooks",
            "rm -rf .git/hooks; mkfifo .git/hooks",
        ),
        case(
            "a huge config",
            "agent_error",
            ".git/config",
            "truncate -s 900M .git/config",
        ),
    ];
    play(&repo, &cases);
    assert_eq!(fs::read_to_string(victim).unwrap(), "untouched");
}

#[test]
fn the_git_folder_itself() {
    let repo = repo();
    let cases = [
        case(
            "moved, a pointer left",
            "agent_error",
            ".git belongs to the runner",
            "git init -q --separate-git-dir=\"$AGENT_DIR/moved\"; echo a > a.txt",
        ),
        case(
            "moved, a link left",
            "agent_error",
            ".git belongs to the runner",
            "mv .git \"$AGENT_DIR/moved\"; ln -s \"$AGENT_DIR/moved\" .git; echo b > b.txt",
        ),
    ];
    play(&repo, &cases);
    assert!(repo.path(".git").symlink_metadata().unwrap().is_dir());
}

#[test]
fn a_removed_or_replaced_repository_is_said_and_waits_to_be_brought_back() {
    for (script, says) in [
        (
            "mv .git \"$AGENT_DIR/kept\"",
            "a session removed or replaced the repository",
        ),
        (
            "mv .git \"$AGENT_DIR/kept\"; git init -q",
            "a session removed or replaced it",
        ),
        (
            "mv .git \"$AGENT_DIR/kept\"; cp -r \"$AGENT_DIR/kept\" .git; rm -rf .git/objects",
            "and with them its history",
        ),
    ] {
        let repo = repo();
        repo.agent_at(1, &format!("echo work > work.txt; {script}; out done x"));
        repo.runner(&["step"]).code(1).says(says);
        assert!(repo.exists("work.txt"), "{script}");
        let _ = fs::remove_dir_all(repo.path(".git"));
        fs::rename(repo.agent_dir().join("kept"), repo.path(".git")).unwrap();
        // The next step settles it, keeps the work and goes on.
        let (run, json) = step(&repo);
        assert_eq!(
            (run.code, &json["iter"]),
            (Some(0), &2.into()),
            "{script}: {}",
            run.describe()
        );
        assert_eq!(repo.git(&["show", "HEAD:work.txt"]), "work");
        assert_eq!(repo.node("root")["attempts"], 0);
        repo.assert_clean();
    }
}

#[test]
fn flags_in_the_index_hide_nothing() {
    let repo = repo();
    let cases = [
        case(
            "a source file assumed unchanged",
            "ok",
            "flags that hide changes",
            "git update-index --assume-unchanged src/main.txt; echo new1 > src/main.txt; out retry x",
        ),
        case(
            "a source file skipped",
            "ok",
            "flags that hide changes",
            "git update-index --skip-worktree src/main.txt; echo new2 > src/main.txt; out retry x",
        ),
        case(
            "a protected file assumed unchanged",
            "agent_error",
            "ci.sh is protected",
            "git update-index --assume-unchanged ci.sh; echo 'exit 0 # mine' > ci.sh",
        ),
        case(
            "a protected file skipped",
            "agent_error",
            "ci.sh is protected",
            "git update-index --skip-worktree ci.sh; echo 'exit 0 # mine' > ci.sh",
        ),
        case(
            "an owned file skipped and changed",
            "agent_error",
            ".runner/state/config.toml belongs to the runner",
            "git update-index --skip-worktree .runner/state/config.toml; echo '# mine' >> .runner/state/config.toml",
        ),
    ];
    for (case, content) in cases.iter().zip(["new1", "new2"]) {
        play_one(&repo, case);
        assert_eq!(
            repo.git(&["show", "HEAD:src/main.txt"]),
            content,
            "{}",
            case.name
        );
    }
    play(&repo, &cases[2..]);
    assert_eq!(repo.read("ci.sh"), "exit 0\n");
    let flags = repo.git(&["ls-files", "-v"]);
    assert!(flags.lines().all(|line| line.starts_with("H ")), "{flags}");
}

#[test]
fn a_sparse_checkout_by_the_session_deletes_nothing() {
    let repo = repo();
    // It takes the ignored logs with it: the agent has to make its folder again.
    repo.agent_at(
        1,
        "git sparse-checkout set --cone docs; mkdir -p \"${RUNNER_OUTPUT_PATH%/*}\"; out done x",
    );
    let (run, json) = step(&repo);
    assert_eq!(json["class"], "agent_error", "{}", run.describe());
    assert!(
        run.stdout.contains(".git/info/sparse-checkout"),
        "{}",
        run.describe()
    );
    hostile_support::check(&repo, "sparse checkout");
    assert_eq!(repo.read("src/deep/er/file.txt"), "deep\n");
    finish(&repo);
}

#[test]
fn logs_and_context_never_get_into_a_commit() {
    let repo = repo();
    let cases = [
        case(
            "committed by force",
            "ok",
            "",
            "echo a > a.txt; git add -f .runner/iterations .runner/context a.txt; git commit -qm logs; out retry x",
        ),
        case(
            "staged by force",
            "ok",
            "",
            "git add -f .runner/iterations .runner/context; out retry x",
        ),
        case(
            "un-ignored",
            "agent_error",
            ".runner/.gitignore belongs to the runner",
            ": > .runner/.gitignore; git add -A; git commit -qm logs",
        ),
        case(
            "un-ignored from above",
            "ok",
            "",
            "printf '!.runner/iterations/\\n!.runner/context/**\\n' > .gitignore; out retry x",
        ),
        case(
            "everything ignored",
            "ok",
            "",
            "echo '*' > .gitignore; echo b > hidden.txt; echo c > a.txt; out retry x",
        ),
    ];
    play(&repo, &cases);
    assert_eq!(repo.git(&["show", "HEAD:a.txt"]), "c");
    assert!(
        repo.exists("hidden.txt"),
        "what is ignored stays where it is"
    );
}
