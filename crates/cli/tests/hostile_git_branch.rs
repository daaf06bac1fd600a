//! Sessions that leave, rewrite or misuse the run's branch: everything they did is
//! kept somewhere, and the branch is back.
#![allow(clippy::unwrap_used)] // a helper that fails is a test that fails

mod hostile_support;

use hostile_support::{
    BIN, Case, case, check, find_content, finish, play, play_one, repo, started, step,
};
use runner_testkit::TestRepo;

/// What a session wrote must be in this commit.
#[track_caller]
fn assert_in_commit(repo: &TestRepo, commit: &str, path: &str, text: &str) {
    let found = repo.git_try(&["show", &format!("{commit}:{path}")]);
    assert_eq!(found.as_deref(), Ok(text), "{path} in {commit}");
}

#[track_caller]
fn assert_committed(repo: &TestRepo, names: &[&str]) {
    for name in names {
        let found = repo.git_try(&["cat-file", "-e", &format!("HEAD:{name}")]);
        assert!(found.is_ok(), "{name} is not in HEAD");
    }
}

fn lost(repo: &TestRepo, iter: u64) -> String {
    format!("refs/runner/lost/{}/{iter}", repo.run_id())
}

#[test]
fn allowed_ways_of_committing() {
    let repo = repo();
    let cases = [
        case(
            "detached at the tip",
            "ok",
            "attached again",
            "git checkout -q --detach; echo a > a.txt; out retry x",
        ),
        case(
            "detached at its own commit on the branch",
            "ok",
            "attached again",
            "echo b > b.txt; git add -A; git commit -qm mine; git checkout -q --detach; out retry x",
        ),
        case(
            "committed all",
            "ok",
            "",
            "echo c > c.txt; git add -A; git commit -qm mine; out retry x",
        ),
        case(
            "committed a part",
            "ok",
            "",
            "echo d > d.txt; git add -A; git commit -qm mine; echo e > d2.txt; git rm -q --cached b.txt; out retry x",
        ),
        case(
            "merged a branch of its own",
            "ok",
            "",
            "git checkout -q -b side; echo f > f.txt; git add -A; git commit -qm side; \
             git checkout -q -; git merge -q --no-ff -m merge side; git branch -qD side; out retry x",
        ),
        case(
            "other references",
            "ok",
            "",
            "git branch other; git tag t; echo g > g.txt; git stash -q -u; out retry x",
        ),
    ];
    play(&repo, &cases);
    assert_committed(
        &repo,
        &["a.txt", "b.txt", "c.txt", "d.txt", "d2.txt", "f.txt"],
    );
    let log = repo.git(&["log", "--format=%s"]);
    assert_eq!(log.matches("mine").count(), 3, "{log}");
}

#[test]
fn leaving_the_branch_is_undone_and_kept() {
    let cases: &[(Case, &str)] = &[
        (
            case(
                "detached elsewhere",
                "runner_error",
                "all is kept in refs/runner/lost/",
                "git checkout -q --detach HEAD~1; echo a > kept.txt",
            ),
            "a",
        ),
        (
            case(
                "detached with a commit of its own",
                "runner_error",
                "refs/runner/lost/",
                "git checkout -q --detach; echo b > kept.txt; git add -A; git commit -qm x",
            ),
            "b",
        ),
        (
            case(
                "switched to main",
                "runner_error",
                "was left",
                "git checkout -q main; echo c > kept.txt",
            ),
            "c",
        ),
        (
            case(
                "switched to a new branch",
                "runner_error",
                "was left",
                "git checkout -q -b fresh; echo d > kept.txt; git add -A; git commit -qm x",
            ),
            "d",
        ),
        (
            case(
                "an orphan branch",
                "runner_error",
                "was left",
                "git checkout -q --orphan o; echo e > kept.txt",
            ),
            "e",
        ),
        (
            case(
                "an orphan branch with a commit",
                "runner_error",
                "was left",
                "git checkout -q --orphan p; echo f > kept.txt; git add -A; git commit -qm x",
            ),
            "f",
        ),
        (
            case(
                "an orphan branch, emptied",
                "runner_error",
                "was left",
                "git checkout -q --orphan q; git rm -rqf . ; echo g > kept.txt",
            ),
            "g",
        ),
        (
            case(
                "the branch deleted",
                "runner_error",
                "was left",
                "git checkout -q --detach; git branch -qD runner/$RUNNER_RUN_ID; echo k > kept.txt",
            ),
            "k",
        ),
        (
            case(
                "the branch renamed",
                "runner_error",
                "was left",
                "git branch -qm elsewhere; echo l > kept.txt",
            ),
            "l",
        ),
        (
            case(
                "a branch below the deleted one",
                "runner_error",
                "was left",
                "git checkout -q --detach; git branch -qD runner/$RUNNER_RUN_ID; \
                 git branch runner/$RUNNER_RUN_ID/sub; echo m > kept.txt",
            ),
            "m",
        ),
        (
            case(
                "a branch above the deleted one",
                "runner_error",
                "was left",
                "git checkout -q --detach; git branch -qD runner/$RUNNER_RUN_ID; \
                 git branch runner; echo n > kept.txt",
            ),
            "n",
        ),
        (
            case(
                "a reference where the rescue goes",
                "runner_error",
                "was left",
                "git update-ref refs/runner/lost/$RUNNER_RUN_ID/$RUNNER_ITER/x HEAD; \
                 git checkout -q main; echo o > kept.txt",
            ),
            "o",
        ),
        (
            case(
                "with a repository that has no commit",
                "runner_error",
                "was left",
                "git checkout -q main; git init -q nested; echo p > kept.txt",
            ),
            "p",
        ),
    ];
    undone_and_kept(cases);
}

#[test]
fn rewriting_the_branch_is_undone_and_kept() {
    let cases: &[(Case, &str)] = &[
        (
            case(
                "reset to an older commit",
                "runner_error",
                "reset or rewritten",
                "git reset -q --hard HEAD~1; echo h > kept.txt",
            ),
            "h",
        ),
        (
            case(
                "amended",
                "runner_error",
                "reset or rewritten",
                "echo i > kept.txt; git add -A; git commit -q --amend -m x",
            ),
            "i",
        ),
        (
            case(
                "every commit rewritten",
                "runner_error",
                "reset or rewritten",
                "echo j > kept.txt; git add -A; git commit -qm x; \
                 git reset -q $(git commit-tree -m y HEAD^{tree})",
            ),
            "j",
        ),
        (
            case(
                "in the middle of a rebase",
                "runner_error",
                "refs/runner/lost/",
                "git commit -q --allow-empty -m x; \
                 GIT_SEQUENCE_EDITOR='sed -i s/^pick/edit/' git rebase -q -i --keep-empty HEAD~2 2>/dev/null; \
                 git reset -q --hard HEAD~1; echo o > kept.txt",
            ),
            "o",
        ),
    ];
    undone_and_kept(cases);
}

/// Plays the cases; `kept.txt` with that text must be in the saved tree.
fn undone_and_kept(cases: &[(Case, &str)]) {
    let repo = repo();
    let main = repo.git(&["rev-parse", "main"]);
    for (case, kept) in cases {
        let head = repo.head();
        let json = play_one(&repo, case);
        let name = case.name;
        assert_eq!(json["error"]["code"], "branch", "{name}: {json}");
        let message = json["error"]["message"].as_str().unwrap();
        let reference = message.split(' ').next_back().unwrap();
        assert!(
            reference.starts_with(&lost(&repo, json["iter"].as_u64().unwrap())),
            "{name}: {message}"
        );
        assert_in_commit(&repo, reference, "kept.txt", kept);
        let parent = repo.git(&["rev-parse", "HEAD~1"]);
        assert_eq!(parent, head, "{name}: the branch goes on where it was");
        assert!(!repo.exists("kept.txt"), "{name}");
        let now = repo.git(&["rev-parse", "main"]);
        assert_eq!(now, main, "{name}: main never moves");
    }
    finish(&repo);
}

#[test]
fn what_an_ignore_rule_hid_is_kept_too() {
    let repo = started(TestRepo::new(BIN), |repo| {
        repo.write(".gitignore", "*.log\n");
        repo.commit_all("rules");
    });
    play_one(
        &repo,
        &case(
            "on main, ignoring everything",
            "runner_error",
            "was left",
            "git checkout -q main; mkdir new; echo hidden > new/kept.txt; echo '*' > .gitignore",
        ),
    );
    let found = find_content(&repo.iteration(1).join("quarantine"), b"hidden\n");
    assert_eq!(found.len(), 1, "{found:?}");
    finish(&repo);
}

#[test]
fn a_branch_that_is_a_link_to_main_never_moves_main() {
    let repo = repo();
    let main = repo.git(&["rev-parse", "main"]);
    play_one(
        &repo,
        &case(
            "the branch made a link",
            "agent_error",
            ".git/refs/heads/runner/",
            "git symbolic-ref refs/heads/runner/$RUNNER_RUN_ID refs/heads/main; echo n > kept.txt",
        ),
    );
    assert_committed(&repo, &["kept.txt"]);
    finish(&repo);
    assert_eq!(repo.git(&["rev-parse", "main"]), main);
}

#[test]
fn a_rescue_never_overwrites_an_earlier_one() {
    let repo = repo();
    repo.agent_at(1, "git checkout -q main; echo first > kept.txt; out done x");
    step(&repo);
    let name = lost(&repo, 1);
    assert_in_commit(&repo, &name, "kept.txt", "first");
    // The user goes back by hand: the number comes again.
    repo.git(&["reset", "-q", "--hard", "HEAD~1"]);
    repo.agent_at(
        1,
        "git checkout -q main; echo second > kept.txt; out done x",
    );
    let (run, json) = step(&repo);
    assert_eq!(json["class"], "runner_error", "{}", run.describe());
    assert_in_commit(&repo, &name, "kept.txt", "first");
    assert_in_commit(&repo, &format!("{name}-2"), "kept.txt", "second");
    finish(&repo);
}

#[test]
fn tracked_files_that_are_ignored_are_rescued_too() {
    let repo = started(TestRepo::new(BIN), |repo| {
        repo.write(".gitignore", "dist/\n");
        repo.write("dist/out.txt", "old\n");
        repo.git(&["add", "-f", ".gitignore", "dist/out.txt"]);
        repo.git(&["commit", "-qm", "dist"]);
    });
    repo.agent_at(
        1,
        "git checkout -q --detach HEAD~1; echo new > dist/out.txt; out done x",
    );
    step(&repo);
    check(&repo, "rescued");
    assert_in_commit(&repo, &lost(&repo, 1), "dist/out.txt", "new");
    assert_eq!(repo.read("dist/out.txt"), "old\n");
    finish(&repo);
}

#[test]
fn secrets_never_stay_in_the_history() {
    let repo = repo();
    let cases = [
        case(
            "committed",
            "agent_error",
            ".env must not go into a commit",
            "echo SECRET1 > .env; echo a > a.txt; git add -A; git commit -qm mine",
        ),
        case(
            "committed and taken out again",
            "agent_error",
            ".env must not go into a commit",
            "echo SECRET2 > .env; git add -A; git commit -qm mine; \
             git rm -q .env; echo b > b.txt; git add -A; git commit -qm undo",
        ),
        case(
            "in the history of a merge",
            "agent_error",
            "sub/id_rsa must not go into a commit",
            "git checkout -q -b side; mkdir sub; echo SECRET3 > sub/id_rsa; git add -A; git commit -qm side; \
             git rm -q sub/id_rsa; echo c > c.txt; git add -A; git commit -qm undo; \
             git checkout -q -; git merge -q --no-ff -m merge side; git branch -qD side",
        ),
        case(
            "too large, committed and taken out again",
            "agent_error",
            "big.dat (11000000 bytes)",
            "head -c 11000000 /dev/zero > big.dat; git add -A; git commit -qm mine; \
             git rm -q big.dat; git commit -qm undo",
        ),
        case(
            "not committed",
            "agent_error",
            "keys/server.pem must not go into a commit",
            "mkdir keys; echo SECRET4 > keys/server.pem; echo d > d.txt",
        ),
        case(
            "in the runner's own folder",
            "agent_error",
            ".runner/nodes/root/artifacts/.env must not",
            "mkdir -p .runner/nodes/root/artifacts; echo SECRET5 > .runner/nodes/root/artifacts/.env",
        ),
        case(
            "a merge that was not finished",
            "ok",
            "an operation of git that was under way has been ended",
            "git checkout -q -b side2; echo SECRET6 > .env; git add -A; git commit -qm side; git rm -q .env; \
             echo e > e.txt; git add -A; git commit -qm undo; git checkout -q -; \
             git merge -q --no-commit --no-ff side2; git branch -qD side2; out retry x",
        ),
    ];
    play(&repo, &cases);
    for object in repo.git(&["rev-list", "--objects", "HEAD"]).lines() {
        let path = object.split_once(' ').map_or("", |(_, path)| path);
        let secret = ["env", "id_rsa", "pem", "big.dat"]
            .iter()
            .any(|end| path.ends_with(end));
        assert!(!secret, "{path} is in the history");
    }
    // What went with them is kept, and so are they.
    assert_committed(&repo, &["a.txt", "b.txt", "c.txt", "d.txt", "e.txt"]);
    for (iter, secret) in [
        (1, "SECRET1\n"),
        (2, "SECRET2\n"),
        (3, "SECRET3\n"),
        (5, "SECRET4\n"),
        (6, "SECRET5\n"),
    ] {
        let found = find_content(&repo.iteration(iter).join("quarantine"), secret.as_bytes());
        assert!(!found.is_empty(), "{secret} is in no quarantine");
    }
}

#[test]
fn an_unfinished_operation_does_not_leak_into_the_commit() {
    let repo = repo();
    let cases = [
        case(
            "a cherry-pick under way",
            "ok",
            "CHERRY_PICK_HEAD",
            "git checkout -q -b side; echo a > a.txt; git add -A; \
             git commit -qm side --author 'Mallory <m@example.test>'; git checkout -q -; git cherry-pick -n side; \
             git rev-parse side > .git/CHERRY_PICK_HEAD; out retry x",
        ),
        case(
            "a merge with conflicts",
            "ok",
            "MERGE_HEAD",
            "git checkout -q -b s2; echo b > src/main.txt; git commit -qam s2; git checkout -q -; \
             echo c > src/main.txt; git commit -qam here; git merge -q s2 >/dev/null; out retry x",
        ),
        case(
            "a revert under way",
            "ok",
            "REVERT_HEAD",
            "echo d > d.txt; git add d.txt; git commit -qm d; git revert -n HEAD; out retry x",
        ),
    ];
    play(&repo, &cases);
    let log = repo.git(&["log", "--first-parent", "--format=%an|%P|%s"]);
    for line in log.lines().filter(|line| line.contains("chore(loop): run")) {
        let fields: Vec<&str> = line.split('|').collect();
        assert_eq!(fields[0], "Test Author", "{line}");
        assert_eq!(fields[1].split(' ').count(), 1, "{line}");
    }
    let status = repo.git(&["status"]);
    assert_eq!(status.lines().count(), 2, "nothing is under way: {status}");
}
