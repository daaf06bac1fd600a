//! `runner land` where the base has moved, moves meanwhile, or is checked out in a
//! work tree of its own.

#![allow(clippy::unwrap_used)] // A test that cannot go on has failed.

mod landing_support;
mod scenario;

use std::path::Path;
use std::time::Duration;

use landing_support::{
    AGENT, GUARD, assert_tidy, branch, commit_on, complete, complete_with, files, git_in, half,
    refused, second_tree,
};
use runner_testkit::{TestRepo, eventually, write_program};
use scenario::{error_code, human_error, planned, sh};
use serde_json::json;

/// No wait for a condition is longer.
const PATIENCE: Duration = Duration::from_secs(30);

/// A guard that says that it runs and waits for a file in a fresh checkout; in the
/// project itself it is green at once.
fn waiting_guard(repo_root: &str) -> Vec<String> {
    let script = format!(
        "if [ -e {repo_root}/wait ]; then touch {repo_root}/tmp/waits; \
         while [ ! -e {repo_root}/tmp/go ]; do sleep 0.02; done; fi"
    );
    vec!["sh".to_owned(), "-c".to_owned(), script]
}

/// A complete run whose guard, from now on, waits for [`let_go`].
fn complete_and_waiting() -> TestRepo {
    let repo = complete();
    let root = repo.root().display().to_string();
    let argv = serde_json::to_string(&waiting_guard(&root)).unwrap();
    let old = serde_json::to_string(GUARD).unwrap();
    let config = repo.read(".runner/state/config.toml");
    assert!(config.contains(&old), "{config}");
    repo.write(".runner/state/config.toml", config.replace(&old, &argv));
    repo.commit_all("Another guard");
    std::fs::write(repo.root().join("wait"), "").unwrap();
    repo
}

fn let_go(repo: &TestRepo) {
    std::fs::write(repo.root().join("tmp/go"), "").unwrap();
}

/// Status of a second work tree, one line a file.
fn status_in(repo: &TestRepo, place: &Path) -> String {
    git_in(
        repo,
        place,
        &["--no-optional-locks", "status", "--porcelain", "-uall"],
    )
}

#[test]
fn both_changes_are_put_together() {
    for args in [&["land"][..], &["land", "--merge"]] {
        let repo = complete();
        let theirs = commit_on(&repo, "main", "theirs.txt", "good\n");
        repo.runner(args).success();
        assert_eq!(
            files(&repo, "main"),
            ["README.md", "a.txt", "b.txt", "theirs.txt"]
        );
        assert_eq!(repo.git(&["rev-parse", "main^"]), theirs);
        assert_eq!(branch(&repo), "main");
        assert_tidy(&repo);
    }
}

#[test]
fn conflicts_are_listed_and_can_be_mended_on_the_runs_branch() {
    let repo = complete();
    commit_on(&repo, "main", "a.txt", "something else\n");
    let theirs = commit_on(&repo, "main", "b.txt", "also else\n");
    let run = refused(&repo, &[]);
    human_error(
        &run,
        "nothing was changed:\n  a.txt\n  b.txt",
        "git switch runner/demo && git merge main",
    );
    assert_eq!(error_code(&refused(&repo, &["--json"])), "conflict");
    // What was asked for is asked for again.
    let run = refused(&repo, &["--merge", "--into", "main"]);
    human_error(&run, "", "then `runner land --into main --merge`");

    sh(
        &repo,
        "git merge -q main || true; echo both > a.txt; echo both > b.txt; git add -A; git commit -qm mended",
    );
    repo.runner(&["land"]).success();
    assert_eq!(repo.git(&["show", "main:a.txt"]), "both");
    assert_eq!(repo.git(&["rev-parse", "main^"]), theirs);
    assert_eq!(files(&repo, "main"), ["README.md", "a.txt", "b.txt"]);
}

/// A part that came home as a merge has the run's commits in it, but not its `.runner/`:
/// for git that was deleted.
#[test]
fn the_runs_own_state_survives_what_the_hint_says() {
    let repo = half();
    repo.runner(&["land", "--partial", "--merge"]).success();
    repo.runner(&["loop"]).success();
    commit_on(&repo, "main", "b.txt", "something else\n");
    human_error(
        &refused(&repo, &[]),
        "b.txt",
        "`git switch runner/demo && git merge --no-commit main`, then `git checkout runner/demo -- .runner`",
    );
    sh(
        &repo,
        "git merge -q --no-commit main || true; git checkout -q runner/demo -- .runner; \
         echo both > b.txt; git add -A; git commit -qm mended",
    );
    repo.runner(&["validate"]).success();
    repo.runner(&["land"]).success();
    assert_eq!(repo.git(&["show", "main:b.txt"]), "both");
    assert!(!files(&repo, "main").contains(&".runner/GOAL.md".to_owned()));
}

#[test]
fn protected_files_that_changed_on_the_branch_are_told() {
    let mut repo = planned(&["a"], AGENT, GUARD);
    repo.config(|config| {
        config.set("guard.protected", json!(["ci/*"]));
    });
    repo.write_config();
    repo.runner(&["start"]).success();
    repo.runner(&["loop"]).success();
    commit_on(&repo, "main", "ci/check.sh", "exit 0\n");
    repo.runner(&["land"])
        .success()
        .says("protected files are different on main since the run began: ci/check.sh");
}

#[test]
fn a_state_folder_on_the_base_is_never_a_conflict() {
    let repo = complete();
    commit_on(&repo, "main", ".runner/GOAL.md", "# Of another run\n");
    repo.runner(&["land"]).success();
    assert_eq!(
        files(&repo, "main"),
        [".runner/GOAL.md", "README.md", "a.txt", "b.txt"]
    );
    assert_eq!(
        repo.git(&["show", "main:.runner/GOAL.md"]),
        "# Of another run"
    );
}

#[test]
fn histories_without_a_common_commit_do_not_fit() {
    let repo = complete();
    let tree = repo.git(&["rev-parse", "main^{tree}"]);
    let alien = repo.git(&["commit-tree", &tree, "-m", "Another beginning"]);
    repo.git(&["branch", "alien", &alien]);
    human_error(
        &refused(&repo, &["--into", "alien"]),
        "no commit in common",
        "--into",
    );
}

#[test]
fn a_guard_that_is_red_on_the_result_keeps_it_out() {
    let repo = complete();
    commit_on(&repo, "main", "theirs.txt", "bad\n");
    let run = refused(&repo, &[]);
    human_error(
        &run,
        "gave exit 1; nothing was changed\nguarding\ntheirs.txt",
        "land-guard.log",
    );
    assert_eq!(
        repo.read(".runner/iterations/demo/land-guard.log"),
        "guarding\ntheirs.txt\n"
    );
    assert_eq!(error_code(&refused(&repo, &["--json"])), "guard_failed");
    assert_tidy(&repo);
}

#[test]
fn a_guard_that_lacks_what_git_ignores_says_so() {
    // A guard that is more careful outside of iterations.
    let guard = ["sh", "-c", "test -e built || test -n \"$RUNNER_ITER\""];
    let repo = planned(&["a", "b"], AGENT, &guard);
    repo.write(".git/info/exclude", "built\n");
    repo.write("built", "");
    repo.runner(&["loop"]).success();
    human_error(&refused(&repo, &[]), "gave exit 1", "without built");
}

#[test]
fn a_guard_has_no_way_to_the_projects_git() {
    let plant =
        r#"[ -n "$RUNNER_ITER" ] || echo '[x]' >> "$(git rev-parse --git-common-dir)/config""#;
    let repo = complete_with(AGENT, &["sh", "-c", &format!("{{ {plant}; }} || true")]);
    let config = repo.read(".git/config");
    repo.runner(&["land"]).success();
    assert_eq!(repo.read(".git/config"), config);
}

#[test]
fn a_base_that_moves_while_the_guard_runs_wins() {
    let repo = complete_and_waiting();
    let running = repo.spawn_runner(&["land"]);
    eventually("the guard", PATIENCE, || {
        repo.root().join("tmp/waits").exists()
    });
    let theirs = commit_on(&repo, "main", "theirs.txt", "good\n");
    let_go(&repo);
    let run = running.wait();
    human_error(
        &run,
        "main moved while the guard ran; nothing was changed",
        "runner land",
    );
    assert_eq!(repo.git(&["rev-parse", "main"]), theirs);
    assert_eq!(branch(&repo), "runner/demo");
    assert_tidy(&repo);
    repo.runner(&["land"]).success();
    assert_eq!(repo.git(&["rev-parse", "main^"]), theirs);
}

#[test]
fn an_interrupt_changes_nothing() {
    let repo = complete_and_waiting();
    let main = repo.git(&["rev-parse", "main"]);
    let running = repo.spawn_runner(&["land"]);
    eventually("the guard", PATIENCE, || {
        repo.root().join("tmp/waits").exists()
    });
    running.signal("INT");
    running.wait().code(130).says("nothing was changed");
    assert_eq!(repo.git(&["rev-parse", "main"]), main);
    assert_tidy(&repo);
}

#[test]
fn a_clean_checkout_of_the_base_is_brought_along() {
    let repo = complete();
    let second = second_tree(&repo, "main");
    // What is in nobody's way may stay.
    std::fs::write(second.join("scratch.md"), "mine").unwrap();
    let value = repo.runner(&["land", "--json"]).success().json();
    assert_eq!(value["followed"], json!([second]));
    assert_eq!(value["here"], "runner/demo", "main is taken");
    assert_eq!(status_in(&repo, &second), "?? scratch.md");
    assert!(second.join("b.txt").exists());
    assert_tidy(&repo);
}

#[test]
fn a_dirty_checkout_of_the_base_is_never_touched() {
    type Dirt = (&'static str, &'static str);
    let dirt: [Dirt; 4] = [
        ("echo mine >> README.md", "README.md"),
        ("echo mine > staged; git add staged", "staged"),
        ("echo mine > a.txt", "a.txt"),
        // Ignored files would be overwritten without a word.
        (
            "mkdir b.txt; echo mine > b.txt/x; echo b.txt/ >> \"$(git rev-parse --git-common-dir)/info/exclude\"",
            "b.txt",
        ),
    ];
    for (script, name) in dirt {
        let repo = complete();
        let second = second_tree(&repo, "main");
        sh(
            &repo,
            &format!(
                "cd {}; mkdir -p \"$(git rev-parse --git-common-dir)/info\"; {script}",
                second.display()
            ),
        );
        let before = status_in(&repo, &second);
        let run = refused(&repo, &[]);
        human_error(
            &run,
            &format!("main is checked out in {}", second.display()),
            "there",
        );
        assert!(
            run.stderr.contains(&format!("\n  {name}")),
            "{}",
            run.describe()
        );
        assert_eq!(status_in(&repo, &second), before);
    }
}

#[test]
fn ignored_files_are_not_overwritten_on_the_way_home() {
    let repo = complete();
    repo.write(".git/info/exclude", "secret.txt\n");
    repo.write("secret.txt", "mine\n");
    commit_on(&repo, "main", "secret.txt", "theirs\n");
    let run = repo.runner(&["land"]).success();
    let note = "this work tree stays on runner/demo: on main these ignored files would be overwritten: secret.txt";
    assert_eq!(run.stderr.matches(note).count(), 1, "{}", run.describe());
    assert_eq!(repo.read("secret.txt"), "mine\n");
    assert_eq!(branch(&repo), "runner/demo");
    assert_eq!(
        files(&repo, "main"),
        ["README.md", "a.txt", "b.txt", "secret.txt"]
    );
    human_error(&repo.runner(&["abandon"]), "  secret.txt", "move them away");
    assert_eq!(repo.read("secret.txt"), "mine\n");
}

#[test]
fn edits_that_begin_while_the_guard_runs_are_seen() {
    let repo = complete_and_waiting();
    let second = second_tree(&repo, "main");
    let running = repo.spawn_runner(&["land"]);
    eventually("the guard", PATIENCE, || {
        repo.root().join("tmp/waits").exists()
    });
    std::fs::write(second.join("README.md"), "mine\n").unwrap();
    let_go(&repo);
    human_error(&running.wait(), "README.md", "there");
    assert_eq!(
        std::fs::read_to_string(second.join("README.md")).unwrap(),
        "mine\n"
    );
    assert_eq!(files(&repo, "main"), ["README.md"]);
}

#[test]
fn from_the_base_itself() {
    let repo = complete();
    repo.git(&["switch", "-q", "main"]);
    repo.assert_clean();
    repo.runner(&["land"]).success();
    assert_eq!(branch(&repo), "main");
    assert_eq!(files(&repo, "HEAD"), ["README.md", "a.txt", "b.txt"]);
    assert!(repo.exists("b.txt"));
    assert_tidy(&repo);
}

#[test]
fn a_run_that_is_checked_out_elsewhere_lands_from_there() {
    let repo = complete();
    repo.git(&["switch", "-q", "main"]);
    let second = second_tree(&repo, "runner/demo");
    let words = format!("run demo is checked out in {}", second.display());
    human_error(
        &refused(&repo, &[]),
        &words,
        &format!("-C {}", second.display()),
    );
    human_error(&repo.runner(&["abandon"]), &words, "-C");
    // From there, main follows here.
    let place = second.display().to_string();
    repo.runner(&["-C", &place, "land"])
        .success()
        .says("was brought along");
    assert!(repo.exists("b.txt"));
    repo.assert_clean();
}

#[test]
fn invented_work_trees_are_not_written_to() {
    // A session can tell git of a work tree anywhere; only real ones lead back.
    let repo = complete();
    let victim = repo.root().join("victim");
    sh(
        &repo,
        &format!(
            "git init -q {0}; mkdir -p .git/worktrees/x; echo {0}/.git > .git/worktrees/x/gitdir; \
         echo ../.. > .git/worktrees/x/commondir; echo 'ref: refs/heads/main' > .git/worktrees/x/HEAD",
            victim.display()
        ),
    );
    let run = repo.runner(&["land"]);
    assert_eq!(
        std::fs::read_dir(&victim).unwrap().count(),
        1,
        "{}",
        run.describe()
    );
}

#[test]
fn a_checkout_that_was_left_behind_is_finished_by_the_next_command() {
    // As a kill between the move of the branch and the move of its files leaves it;
    // one file has come along already, one only half.
    let (repo, second) = left_behind();
    repo.runner(&["land"]).success().says("already");
    assert_eq!(status_in(&repo, &second), "");
    assert!(second.join("b.txt").exists());
    assert_tidy(&repo);

    // What a person has changed since stops it, with words.
    let (repo, second) = left_behind();
    std::fs::write(second.join("a.txt"), "mine\n").unwrap();
    human_error(
        &repo.runner(&["land"]),
        "changes in it:\n  a.txt",
        "save those files",
    );
    assert_eq!(
        std::fs::read_to_string(second.join("a.txt")).unwrap(),
        "mine\n"
    );
    std::fs::remove_file(second.join("a.txt")).unwrap();
    repo.runner(&["step"]).code(2);
    assert_eq!(status_in(&repo, &second), "");
}

#[test]
fn a_switch_that_was_cut_off_is_finished() {
    // Git was killed on its way from the run's branch to main: some files are gone,
    // one is new, its locks are left.
    let repo = complete();
    let tip = repo.head();
    commit_on(&repo, "main", "theirs.txt", "theirs\n");
    repo.runner(&["land"]).success();
    let home = repo.head();
    repo.git(&["switch", "-q", "runner/demo"]);
    std::fs::remove_file(repo.path(".runner/GOAL.md")).unwrap();
    repo.write("theirs.txt", "thei");
    repo.write(".git/index.lock", "");
    repo.write(".git/refs/heads/main.lock", "");
    let pending = json!({
        "target": "main", "commit": home,
        "moves": [{
            "root": {"text": repo.path(".").canonicalize().unwrap()},
            "from_branch": "runner/demo", "from": tip, "to_branch": "main", "to": home,
        }],
    });
    repo.write(".runner/iterations/demo/land.json", pending.to_string());
    repo.runner(&["land"]).success().says("already");
    assert_eq!((branch(&repo), repo.head()), ("main".to_owned(), home));
    assert_tidy(&repo);
}

#[test]
fn a_made_up_list_of_what_is_left_does_nothing() {
    // Names that git would take for options, or that lead out of the repository.
    let repo = complete();
    let tip = repo.head();
    let victim = repo.root().join("victim");
    std::fs::write(repo.root().join("victim.lock"), "").unwrap();
    let output = format!("--output={}", victim.display());
    let outside = "../../../../victim";
    for (target, from) in [("main", output.as_str()), (outside, &tip)] {
        let pending = json!({
            "target": target, "commit": repo.git(&["rev-parse", "main"]),
            "moves": [{
                "root": {"text": repo.path(".").canonicalize().unwrap()},
                "from_branch": "runner/demo", "from": from, "to_branch": target, "to": tip,
            }],
        });
        repo.write(".runner/iterations/demo/land.json", pending.to_string());
        repo.runner(&["step"]).code(2);
        assert!(!victim.exists() && repo.root().join("victim.lock").exists());
        assert!(!repo.exists(".runner/iterations/demo/land.json"));
        assert_eq!(branch(&repo), "runner/demo");
    }
}

#[test]
fn a_git_folder_elsewhere_is_one_checkout_too() {
    let repo = complete();
    let git_dir = repo.root().join("moved.git").display().to_string();
    repo.git(&["init", "-q", "--separate-git-dir", &git_dir]);
    repo.git(&["switch", "-q", "main"]);
    repo.runner(&["land"]).success();
    repo.assert_clean();
    assert!(repo.exists("b.txt"));
}

#[test]
fn an_older_git_lands_where_nothing_has_moved() {
    let old_git = |repo: &mut TestRepo| {
        let folder = repo.root().join("old");
        std::fs::create_dir(&folder).unwrap();
        let path = std::env::var("PATH").unwrap();
        let real = path.split(':').map(|it| Path::new(it).join("git"));
        let real = real.into_iter().find(|it| it.exists()).unwrap();
        let script = format!(
            "#!/bin/sh\ncase \" $* \" in *' --version '*) echo git version 2.37.1;; \
             *) exec {} \"$@\";; esac\n",
            real.display()
        );
        write_program(&folder.join("git"), &script);
        repo.env("PATH", format!("{}:{path}", folder.display()));
    };
    let mut repo = complete();
    old_git(&mut repo);
    repo.runner(&["land"]).success();

    let mut repo = complete();
    commit_on(&repo, "main", "theirs.txt", "theirs\n");
    old_git(&mut repo);
    human_error(
        &refused(&repo, &[]),
        "needs git 2.38 or newer",
        "install a newer git",
    );
}

/// A landing whose second work tree is half way.
fn left_behind() -> (TestRepo, std::path::PathBuf) {
    let repo = complete();
    let second = second_tree(&repo, "main");
    let old = repo.git(&["rev-parse", "main"]);
    repo.runner(&["land"]).success();
    let new = repo.git(&["rev-parse", "main"]);
    git_in(&repo, &second, &["read-tree", "-u", "--reset", &old]);
    std::fs::write(second.join("a.txt"), "a\n").unwrap();
    std::fs::write(second.join("b.txt"), "").unwrap();
    let pending = json!({
        "target": "main", "commit": new,
        "moves": [{
            "root": {"text": second}, "from_branch": "main", "from": old,
            "to_branch": "main", "to": new,
        }],
    });
    repo.write(".runner/iterations/demo/land.json", pending.to_string());
    (repo, second)
}
