//! `runner start` in a repository without a commit or without a name to commit
//! with, starts that fail, and runs side by side in linked work trees.

#![allow(clippy::unwrap_used)] // A test that cannot go on has failed.

mod scenario;

use runner_core::digest::sha256_hex;
use runner_testkit::{TestRepo, TestRun, write_program};
use scenario::{
    BIN, GOAL, WAIT_FOR_GO, assert_same, bare, go, human_error, message, picture, started, step,
    subject,
};
use serde_json::json;

const DONE: &str = "echo work >> work.txt; out done 'did it'";
const RUNNER: &str = "runner <runner@localhost>";

/// A repository without a commit and without an identity, ready to start.
fn empty(goal: &str) -> TestRepo {
    let mut repo = TestRepo::empty(BIN);
    repo.agent(DONE);
    repo.write("src/a.txt", "a");
    repo.write("b.txt", "b");
    repo.write(".gitignore", "*.o\n");
    repo.write("c.o", "object");
    repo.init_run(goal, &["true"]);
    repo
}

fn author(repo: &TestRepo, revision: &str) -> String {
    repo.git(&["log", "-1", "--format=%an <%ae>, %cn <%ce>", revision])
}

#[test]
fn without_a_commit_every_file_that_is_not_ignored_comes_first() {
    let repo = empty("# Ship it\n");
    let body = sha256_hex(b"# Ship it\n");
    let value = repo.runner(&["start", "--json"]).success().json();
    assert_eq!(
        value["run_id"],
        format!("run-{}", &body[..8]),
        "of the goal's text"
    );
    assert_eq!(value["base"], "main");
    repo.assert_clean();
    let run = repo.run_id();
    assert_eq!(
        repo.subjects(),
        [
            "chore: first commit",
            &format!("chore(loop): start run {run}")
        ]
    );
    let first = repo.git(&["rev-parse", "HEAD~1"]);
    assert_eq!(repo.git(&["rev-parse", "main"]), first);
    let files = repo.git(&["ls-tree", "-r", "--name-only", "HEAD~1"]);
    assert_eq!(files, ".gitignore\nb.txt\nsrc/a.txt");
    assert!(message(&repo, "HEAD").contains(&format!("Runner-Base: main {first}")));
    assert!(repo.exists("c.o"));
    step(&repo);
    assert_eq!(repo.tree()["passes"], true);
}

#[test]
fn a_repository_with_nothing_at_all() {
    let mut repo = TestRepo::empty(BIN);
    repo.agent(DONE);
    repo.init_run(GOAL, &["true"]);
    repo.runner(&["start"]).success();
    assert_eq!(
        repo.subjects(),
        ["chore: first commit", "chore(loop): start run demo"]
    );
    repo.assert_clean();
    step(&repo);
}

#[test]
fn secrets_and_large_files_do_not_go_into_the_first_commit() {
    let mut repo = TestRepo::empty(BIN);
    repo.config(|config| {
        config.set("commit.max_file_bytes", 1000);
    });
    repo.write(".env", "SECRET=1");
    repo.write("deploy/.env.production", "SECRET=1");
    repo.write("key.pem", "k");
    repo.write("huge.bin", vec![0; 1001]);
    repo.write(".env.example", "SECRET=");
    repo.write("small.bin", vec![0; 1000]);
    repo.init_run(GOAL, &["true"]);
    let before = picture(&repo);
    let run = repo.runner(&["start"]);
    human_error(&run, "must not go into the first one", ".gitignore");
    for name in [".env\n", "deploy/.env.production", "key.pem", "huge.bin"] {
        assert!(run.stderr.contains(name), "{name}: {}", run.describe());
    }
    for name in [".env.example", "small.bin"] {
        assert!(!run.stderr.contains(name), "{name}: {}", run.describe());
    }
    assert_same(&repo, &before, "a failed command");
    assert!(
        repo.git_try(&["rev-parse", "--verify", "HEAD"]).is_err(),
        "nothing is half done"
    );

    // Also when the user had staged it already.
    repo.git(&["add", "-f", ".env"]);
    let before = picture(&repo);
    human_error(&repo.runner(&["start"]), ".env", ".gitignore");
    assert_same(&repo, &before, "a failed command");
    repo.git(&["rm", "-q", "--cached", ".env"]);

    repo.write(".gitignore", ".env\n.env.production\n*.pem\nhuge.bin\n");
    repo.runner(&["start"]).success();
    repo.assert_clean();
    let files = repo.git(&["ls-files"]);
    assert!(
        files.contains("small.bin") && files.contains(".env.example"),
        "{files}"
    );
    assert!(
        !files.contains("huge.bin") && !files.contains("key.pem"),
        "{files}"
    );
}

#[test]
fn without_a_name_the_runner_commits_and_says_so() {
    let repo = empty(GOAL);
    let run = repo.runner(&["start"]).success();
    assert_eq!(
        run.stderr.matches(RUNNER).count(),
        1,
        "said once: {}",
        run.describe()
    );
    for revision in ["HEAD", "HEAD~1"] {
        assert_eq!(author(&repo, revision), format!("{RUNNER}, {RUNNER}"));
    }
    let run = repo.runner(&["step"]).success();
    assert!(run.stderr.contains(RUNNER), "{}", run.describe());
    assert_eq!(author(&repo, "HEAD"), format!("{RUNNER}, {RUNNER}"));

    // Also in a repository that has commits of someone who is known no more.
    let mut repo = bare();
    repo.init_run(GOAL, &["true"]);
    std::fs::write(repo.root().join("home/.gitconfig"), "").unwrap();
    let run = repo.runner(&["start"]).success();
    assert!(run.stderr.contains(RUNNER), "{}", run.describe());
    assert_eq!(author(&repo, "HEAD"), format!("{RUNNER}, {RUNNER}"));
}

#[test]
fn with_a_name_the_user_commits() {
    let repo = started(DONE, &["true"]);
    let run = repo.runner(&["step"]).success();
    assert!(
        !run.stderr.contains("runner@localhost"),
        "{}",
        run.describe()
    );
    let user = "Test Author <author@example.test>";
    for revision in ["HEAD", "HEAD~1"] {
        assert_eq!(author(&repo, revision), format!("{user}, {user}"));
    }
}

#[test]
fn a_branch_called_runner_is_in_the_way() {
    for mut repo in [bare(), TestRepo::empty(BIN)] {
        repo.write("x", "x");
        repo.init_run(GOAL, &["true"]);
        if repo.git_try(&["rev-parse", "--verify", "HEAD"]).is_ok() {
            repo.git(&["branch", "runner"]);
            std::fs::remove_file(repo.path("x")).unwrap();
        } else {
            // An unborn branch is known by no name: only making the ref shows it.
            repo.write(".git/refs/heads/runner", "");
        }
        let before = picture(&repo);
        let run = repo.runner(&["start"]).code(1);
        assert!(run.stderr.contains("refs/heads/runner") || run.stderr.contains("branch `runner`"));
        assert_same(&repo, &before, &run.describe());
    }
}

/// A git that refuses one subcommand: for failures that root cannot have.
fn refuse(repo: &mut TestRepo, subcommand: &str) {
    let real = std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default())
        .map(|folder| folder.join("git"))
        .find(|path| path.is_file())
        .expect("git is installed");
    let bin = repo.root().join("bin");
    std::fs::create_dir_all(&bin).expect("a folder");
    let script = format!(
        "#!/bin/sh\nfor word in \"$@\"; do if [ \"$word\" = {subcommand} ]; then\n\
         echo 'fatal: no space, says the test' >&2; exit 128; fi; done\nexec {} \"$@\"\n",
        real.display()
    );
    write_program(&bin.join("git"), &script);
    let rest = std::env::var("PATH").unwrap_or_default();
    repo.env("PATH", format!("{}:{rest}", bin.display()));
}

/// Lets git work again.
fn allow(repo: &mut TestRepo) {
    repo.env("PATH", std::env::var_os("PATH").unwrap_or_default());
}

#[test]
fn a_start_that_fails_leaves_everything_as_it_was() {
    for subcommand in [
        "write-tree",
        "commit-tree",
        "update-ref",
        "symbolic-ref",
        "reset",
    ] {
        // A new run, in a repository with and without a commit.
        for with_commit in [true, false] {
            let mut repo = if with_commit { bare() } else { empty(GOAL) };
            if with_commit {
                repo.agent(DONE);
                repo.init_run("# No id yet\n", &["true"]);
                repo.git(&["add", ".runner/GOAL.md"]);
            }
            let before = picture(&repo);
            refuse(&mut repo, subcommand);
            human_error(&repo.runner(&["start"]), "no space, says the test", "");
            allow(&mut repo);
            assert_same(
                &repo,
                &before,
                &format!("{subcommand}, commit: {with_commit}"),
            );
            repo.runner(&["start"]).success();
            repo.assert_clean();
            step(&repo);
        }
        // A second start on the run's branch.
        if subcommand == "symbolic-ref" {
            continue;
        }
        let mut repo = started(DONE, &["true"]);
        repo.write(".runner/INSTRUCTIONS.md", "Be brief.\n");
        let before = picture(&repo);
        refuse(&mut repo, subcommand);
        human_error(&repo.runner(&["start"]), "no space, says the test", "");
        allow(&mut repo);
        assert_same(&repo, &before, &format!("{subcommand} on the branch"));
        repo.runner(&["start"]).success();
        repo.assert_clean();
    }
}

/// `start` with a fault at its n-th write, git call or rename; `None` when it
/// has not so many.
fn start_with_fault(repo: &TestRepo, kind: &str, n: u32) -> Option<TestRun> {
    let mut cmd = repo.runner_cmd(&["start"]);
    cmd.env("RUNNER_FAULT", format!("{kind}@{n}"));
    let run = repo.spawn(cmd).wait();
    (run.code != Some(0)).then_some(run)
}

/// Tries a fault at the points of a start, until one is beyond its last: at
/// every fourth, or with `RUNNER_SWEEP_ALL` set at each.
fn at_every_point(
    kind: &str,
    make: impl Fn() -> TestRepo,
    check: impl Fn(&TestRepo, &str, &TestRun),
) {
    let stride = if std::env::var_os("RUNNER_SWEEP_ALL").is_some() {
        1
    } else {
        4
    };
    for n in (2..).step_by(stride) {
        let repo = make();
        let before = picture(&repo);
        let Some(run) = start_with_fault(&repo, kind, n) else {
            assert!(n > 10, "only {n} points?");
            return;
        };
        check(&repo, &before, &run);
        repo.runner(&["start"]).success();
        repo.assert_clean();
        repo.runner(&["validate"]).success();
        let run = repo.run_id();
        assert_eq!(
            subject(&repo),
            format!("chore(loop): start run {run}"),
            "{kind}@{n}"
        );
        assert_eq!(
            repo.git(&["branch", "--show-current"]),
            format!("runner/{run}")
        );
    }
}

fn ready() -> TestRepo {
    let mut repo = bare();
    repo.init_run(GOAL, &["true"]);
    repo
}

/// A run in which a person changed something: the second start commits it.
fn changed() -> TestRepo {
    let repo = started(DONE, &["true"]);
    repo.write(".runner/INSTRUCTIONS.md", "Be brief.\n");
    repo
}

#[test]
fn a_full_disk_at_any_point_leaves_everything_as_it_was() {
    let check = |repo: &TestRepo, before: &str, run: &TestRun| {
        assert_eq!(run.code, Some(1), "{}", run.describe());
        assert_same(repo, before, &run.describe());
    };
    at_every_point("enospc", ready, check);
    at_every_point("enospc", || empty(GOAL), check);
    at_every_point("enospc", changed, check);
}

#[test]
fn a_start_that_is_killed_at_any_point_is_just_started_again() {
    let check = |_: &TestRepo, _: &str, run: &TestRun| {
        assert_eq!(run.signal, Some(9), "{}", run.describe());
    };
    at_every_point("kill", ready, check);
    at_every_point("kill", || empty(GOAL), check);
    at_every_point("kill", changed, check);
}

#[test]
fn runs_side_by_side_in_linked_work_trees() {
    let repo = started(&format!("{WAIT_FOR_GO}{DONE}"), &["test", "-e", "work.txt"]);
    repo.git(&["worktree", "add", "-q", "--detach", "../linked", "main"]);
    let linked = repo.root().join("linked");
    let there = linked.display().to_string();
    let other = |args: &[&str]| {
        let args = [&["-C", &there], args].concat();
        let mut cmd = repo.runner_cmd(&args);
        cmd.current_dir("/");
        repo.spawn(cmd)
    };
    other(&["init", "--backend", "command", "--guard", "true"])
        .wait()
        .success();
    let config = repo.read(".runner/state/config.toml");
    std::fs::write(linked.join(".runner/state/config.toml"), config).unwrap();

    // The id of a run that is checked out elsewhere is refused with its words.
    std::fs::write(linked.join(".runner/GOAL.md"), GOAL).unwrap();
    let run = other(&["start"]).wait();
    human_error(
        &run,
        "run demo exists already on branch runner/demo",
        "remove the id",
    );

    std::fs::write(
        linked.join(".runner/GOAL.md"),
        GOAL.replace("demo", "second"),
    )
    .unwrap();
    other(&["start"]).wait().success();
    let (one, two) = (
        repo.spawn_runner(&["loop", "--json"]),
        other(&["loop", "--json"]),
    );
    runner_testkit::eventually("both sessions", std::time::Duration::from_secs(20), || {
        repo.agent_calls().len() == 2
    });
    go(&repo);
    for (running, run_id) in [(one, "demo"), (two, "second")] {
        let lines = running.wait().success().json_lines();
        assert_eq!(lines[0]["run_id"], run_id);
        assert_eq!(lines[1]["status"], "complete");
    }
    repo.assert_clean();
    assert_eq!(
        repo.git(&["log", "-1", "--format=%s", "runner/second"]),
        "chore(loop): run second iter 1 node root status=done guard=pass"
    );
    assert_eq!(
        subject(&repo),
        "chore(loop): run demo iter 1 node root status=done guard=pass"
    );
    assert_eq!(repo.git(&["-C", &there, "status", "--porcelain"]), "");
    assert_eq!(
        other(&["validate", "--json"]).wait().success().json()["valid"],
        json!(true)
    );
}

#[test]
fn two_starts_at_once_in_two_work_trees_get_two_ids() {
    let mut repo = bare();
    repo.init_run("# One goal\n", &["true"]);
    let mut folders = vec![repo.path("")];
    for name in ["second", "third"] {
        let folder = repo.root().join(name);
        repo.git(&[
            "worktree",
            "add",
            "-q",
            "--detach",
            &folder.display().to_string(),
            "main",
        ]);
        let copied = repo
            .hermetic("cp")
            .args(["-r", ".runner"])
            .arg(folder.join(".runner"))
            .status()
            .unwrap();
        assert!(copied.success());
        folders.push(folder);
    }
    let running: Vec<_> = folders
        .iter()
        .map(|folder| {
            let mut cmd = repo.runner_cmd(&["start", "--json"]);
            cmd.current_dir(folder);
            repo.spawn(cmd)
        })
        .collect();
    let mut ids: Vec<String> = running
        .into_iter()
        .map(|it| {
            it.wait().success().json()["run_id"]
                .as_str()
                .unwrap()
                .to_owned()
        })
        .collect();
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), 3, "{ids:?}");
    for id in &ids {
        repo.git(&["rev-parse", "--verify", &format!("refs/heads/runner/{id}")]);
    }
}
