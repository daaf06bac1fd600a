//! `runner runs` and `runner abandon`, and the second goal after the first.

#![allow(clippy::unwrap_used)] // A test that cannot go on has failed.

mod landing_support;
mod scenario;

use landing_support::{
    AGENT, GUARD, assert_tidy, branch, complete, files, git_in, half, second_tree,
};
use runner_testkit::TestRepo;
use scenario::{GOAL, bare, error_code, human_error, planned, sh, started};
use serde_json::{Value, json};

/// What `runs --json` says of one run.
#[track_caller]
fn run_of(repo: &TestRepo, run_id: &str) -> Value {
    let all = repo.runner(&["runs", "--json"]).success().json();
    let list = all["runs"].as_array().unwrap().clone();
    let found = list.iter().find(|run| run["run_id"] == run_id);
    found
        .unwrap_or_else(|| panic!("no {run_id} in {all}"))
        .clone()
}

#[test]
fn each_run_with_its_state() {
    let repo = bare();
    repo.runner(&["runs"]).success().says("no run");
    assert_eq!(repo.runner(&["runs", "--json"]).json()["runs"], json!([]));
    assert!(!repo.exists(".runner"), "looking makes nothing");

    let repo = half();
    let run = run_of(&repo, "demo");
    for (key, value) in [
        ("branch", json!("runner/demo")),
        ("title", json!("Ship it")),
        ("state", json!("idle")),
        ("passed", json!(1)),
        ("leaves", json!(2)),
        ("base", json!("main")),
        ("landed", json!(null)),
        ("worktree", json!(repo.path(""))),
    ] {
        let there = &run[key];
        let same = match there.as_str() {
            Some(text) if key == "worktree" => repo.path("") == std::path::Path::new(text),
            _ => *there == value,
        };
        assert!(same, "{key}: {run}");
    }
    assert!(
        run["last_activity"].as_str().unwrap().ends_with('Z'),
        "{run}"
    );

    // The same from a branch, and from a clone, that have nothing of a run.
    repo.git(&["switch", "-q", "main"]);
    assert_eq!(run_of(&repo, "demo")["worktree"], json!(null));
    assert_eq!(run_of(&repo, "demo")["state"], "idle");
    std::fs::remove_dir_all(repo.path(".runner")).unwrap();
    let text = repo.runner(&["runs"]).success().stdout;
    assert!(
        text.contains("demo  idle") && text.contains("1/2"),
        "{text}"
    );
    assert!(text.contains("runner/demo, not checked out"), "{text}");
    assert!(!repo.exists(".runner"), "looking makes nothing");
}

#[test]
fn states_that_need_a_person() {
    let mut repo = planned(&["a"], "out retry 'no'", &["true"]);
    repo.config(|config| {
        config.set("max_attempts_default", 1);
    });
    repo.runner(&["loop"]).code(3);
    assert_eq!(run_of(&repo, "demo")["state"], "stuck");

    let repo = started("exit 1", &["true"]);
    repo.runner(&["loop"]).code(1);
    assert_eq!(run_of(&repo, "demo")["state"], "error");

    let repo = started("echo '{' > .runner/state/tree.json; out done x", &["true"]);
    repo.runner(&["step"]).success();
    assert_eq!(run_of(&repo, "demo")["state"], "repair");
    repo.write(".runner/state/tree.json", "[]");
    repo.commit_all("Broken by hand");
    assert_eq!(run_of(&repo, "demo")["state"], "invalid");
}

#[test]
fn a_run_at_work_in_anrepo_work_tree_is_running() {
    let repo = complete();
    let second = second_tree(&repo, "main");
    let place = second.display().to_string();
    let init = [
        "-C",
        &place,
        "init",
        "--backend",
        "command",
        "--guard",
        "true",
    ];
    repo.runner(&init).success();
    let config = repo.read(".runner/state/config.toml");
    std::fs::write(second.join(".runner/state/config.toml"), config).unwrap();
    std::fs::write(second.join(".runner/GOAL.md"), "---\nid: two\n---\n# Two\n").unwrap();
    repo.runner(&["-C", &place, "start", "--no-guard-check"])
        .success();
    repo.agent_at(1, &format!("{}out done x", scenario::WAIT_FOR_GO));
    let running = repo.spawn_runner(&["-C", &place, "step"]);
    runner_testkit::eventually("the session", std::time::Duration::from_secs(30), || {
        repo.agent_calls().iter().any(|call| call == "1 root") && repo.agent_calls().len() > 3
    });
    let run = run_of(&repo, "two");
    assert_eq!(
        (&run["state"], &run["worktree"]),
        (&json!("running"), &json!(place))
    );
    assert_eq!(run_of(&repo, "demo")["state"], "complete");
    scenario::go(&repo);
    running.wait().success();
}

#[test]
fn leaving_a_run_loses_nothing() {
    let repo = half();
    let tip = repo.head();
    repo.write("mine.txt", "not committed");
    human_error(&repo.runner(&["abandon"]), "mine.txt", "commit");
    std::fs::remove_file(repo.path("mine.txt")).unwrap();

    let run = repo.runner(&["abandon"]).success();
    run.says("you are on main").says("runner/demo stays");
    assert_eq!(branch(&repo), "main");
    assert_eq!(files(&repo, "HEAD"), ["README.md"]);
    assert_tidy(&repo);
    assert_eq!(repo.git(&["rev-parse", "runner/demo"]), tip);
    assert!(
        repo.exists(".runner/iterations/demo/2/meta.json"),
        "logs stay"
    );

    let value = repo
        .runner(&["abandon", "--delete", "--json"])
        .success()
        .json();
    let kept = "refs/runner/abandoned/demo";
    let expected = json!({"schema_version": 1, "run_id": "demo", "branch": "runner/demo",
                          "tip": tip, "kept_as": kept, "here": "main"});
    assert_eq!(value, expected);
    assert!(
        repo.git_try(&["rev-parse", "--verify", "runner/demo"])
            .is_err()
    );
    assert_eq!(run_of(&repo, "demo")["state"], "abandoned");
    repo.runner(&["abandon", "demo", "--delete"])
        .success()
        .says("to have it back");
    human_error(
        &repo.runner(&["land", "demo"]),
        "was abandoned",
        "runner start demo",
    );

    // The words that it says bring it back.
    repo.runner(&["start", "demo"]).success();
    assert_eq!(repo.head(), tip);
    assert_eq!(branch(&repo), "runner/demo");
    repo.runner(&["loop"]).success();
    // A second time, with anrepo last commit: both are kept.
    repo.runner(&["abandon", "--delete"])
        .success()
        .says("abandoned/demo-2");
    assert_eq!(repo.git(&["rev-parse", kept]), tip);
    assert_eq!(branch(&repo), "main");
    // The later one comes back as what it was, and makes no room for the earlier.
    let later = repo.git(&["rev-parse", &format!("{kept}-2")]);
    repo.runner(&["start", "demo-2"])
        .success()
        .says("you are on run demo,");
    assert_eq!(
        (branch(&repo), repo.head()),
        ("runner/demo".to_owned(), later)
    );
    repo.runner(&["step"]).code(2);
}

/// Without a word of git: from one goal to another that was only begun, and back.
#[test]
fn from_anywhere_to_a_run_by_its_name() {
    let repo = half();
    let tip = repo.head();
    repo.runner(&["abandon"])
        .success()
        .says("`runner start demo` goes back to it");
    repo.runner(&["init", "--goal", "Another one"]).success();
    let tree = repo.read(".runner/state/tree.json");
    repo.runner(&["start", "demo"])
        .success()
        .says("is kept in .runner/iterations/replaced-1");
    assert_eq!(
        (branch(&repo), repo.head()),
        ("runner/demo".to_owned(), tip)
    );
    assert_tidy(&repo);
    let kept = repo.read(".runner/iterations/replaced-1/GOAL.md");
    assert!(kept.contains("Another one"), "{kept}");
    assert_eq!(
        repo.read(".runner/iterations/replaced-1/state/tree.json"),
        tree
    );
    repo.runner(&["loop"]).success();

    // What would be lost is not gone past.
    repo.git(&["switch", "-q", "main"]);
    repo.write("README.md", "mine");
    human_error(
        &repo.runner(&["start", "demo"]),
        "README.md",
        "commit, stash",
    );
    assert_eq!(repo.read("README.md"), "mine");
    repo.git(&["checkout", "-q", "--", "README.md"]);
    human_error(
        &repo.runner(&["start", "nosuch"]),
        "no run \"nosuch\"",
        "runner runs",
    );
    let second = second_tree(&repo, "runner/demo");
    let place = second.display().to_string();
    human_error(&repo.runner(&["start", "demo"]), &place, &place);
}

#[test]
fn what_landed_in_part_is_not_home() {
    let repo = planned(&["a", "b"], AGENT, GUARD);
    repo.runner(&["loop", "--steps", "1"]).success();
    // Its last commit is the one that landed, and yet there is something to do.
    repo.runner(&["land", "--partial"]).success();
    let run = run_of(&repo, "demo");
    assert_eq!(
        (&run["state"], &run["landed"]["in_part"]),
        (&json!("idle"), &json!(true))
    );
    repo.git(&["switch", "-q", "main"]);
    repo.runner(&["start"]).success();
    assert_eq!(branch(&repo), "runner/demo");
    repo.runner(&["loop"]).success();
    repo.runner(&["land"]).success();
    assert_eq!(run_of(&repo, "demo")["state"], "landed");
}

#[test]
fn the_id_of_an_abandoned_run_is_not_made_again() {
    let mut repo = bare();
    repo.agent(AGENT);
    repo.start_run("# One\n", GUARD);
    let first = repo.run_id();
    repo.runner(&["abandon", "--delete"]).success();
    repo.start_run("# Two\n", GUARD);
    assert_eq!(repo.run_id(), format!("{first}-2"));
}

#[test]
fn where_the_base_is_gone_or_taken() {
    let repo = half();
    repo.git(&["branch", "-m", "main", "trunk"]);
    human_error(
        &repo.runner(&["abandon"]),
        "main that the run began from is gone",
        "git branch main",
    );
    assert_eq!(branch(&repo), "runner/demo");

    let repo = half();
    let second = second_tree(&repo, "main");
    repo.runner(&["abandon", "--delete"])
        .success()
        .says(&format!("checked out in {}", second.display()));
    assert_eq!(repo.head(), repo.git(&["rev-parse", "main"]));
    assert_eq!(
        git_in(&repo, &second, &["branch", "--show-current"]),
        "main"
    );
    assert_tidy(&repo);
}

#[test]
fn which_run_is_meant() {
    let mut repo = complete();
    repo.agent_at(1, AGENT);
    repo.git(&["switch", "-q", "main"]);
    repo.start_run("---\nid: two\n---\n# Two\n", GUARD);
    repo.runner(&["loop"]).success();
    repo.git(&["switch", "-q", "main"]);
    for command in ["land", "abandon"] {
        let run = repo.runner(&[command, "--json"]).code(1);
        assert_eq!(error_code(&run), "identity");
        run.says("demo")
            .says("two")
            .says(&format!("runner {command}"));
    }
    human_error(
        &repo.runner(&["land", "none"]),
        "there is no run \"none\"",
        "runner runs",
    );
    repo.runner(&["land", "runner/two"]).success();
    // One has landed: the repo is meant.
    repo.runner(&["land"]).success().says("run demo has landed");
    assert_eq!(
        files(&repo, "main"),
        ["README.md", "a.txt", "b.txt", "root.txt"]
    );
    // Both have: the newer is meant, and nothing happens.
    repo.runner(&["land"]).success().says("already");
}

#[test]
fn a_second_goal_begins_with_the_config_of_the_first() {
    let mut repo = bare();
    repo.agent("touch $RUNNER_RUN_ID.txt; out done x");
    repo.config(|config| {
        config.set("max_iterations", 17);
    });
    repo.start_run(GOAL, GUARD);
    repo.write(".runner/INSTRUCTIONS.md", "Be brief.\n");
    repo.runner(&["start"]).success();
    repo.runner(&["loop"]).success();
    let config = repo.read(".runner/state/config.toml");
    repo.runner(&["land"]).success();
    assert_tidy(&repo);

    // Nothing to take up: `start` says what to type instead.
    human_error(
        &repo.runner(&["start"]),
        "every run has landed: demo",
        "runner init",
    );
    let run = repo.runner(&["init"]).success();
    run.says("those of run demo").says("(as in run demo)");
    assert_eq!(repo.read(".runner/state/config.toml"), config);
    assert_eq!(repo.read(".runner/INSTRUCTIONS.md"), "Be brief.\n");
    assert!(
        repo.read(".runner/GOAL.md")
            .contains("# Describe the goal here")
    );
    repo.write(".runner/GOAL.md", "---\nid: second\n---\n# Anrepo\n");
    repo.runner(&["start", "--no-guard-check"]).success();
    repo.runner(&["loop"]).success();
    repo.runner(&["land"]).success();
    let landed = repo.git(&["log", "--format=%s", "main"]);
    assert_eq!(landed, "Anrepo\nShip it\nBegin");
}

#[test]
fn a_later_edit_of_a_person_counts() {
    let edit = |repo: &TestRepo, to: u32| {
        let mut cmd = repo.runner_cmd(&["edit", "config"]);
        let editor = format!("sed -i 's/max_iterations = .*/max_iterations = {to}/'");
        cmd.env("EDITOR", editor);
        repo.spawn(cmd).wait().success();
    };
    let taken = |repo: &TestRepo| {
        repo.runner(&["init", "--json"]).success();
        repo.read(".runner/state/config.toml")
    };
    // After the last iteration, and landed since.
    let repo = complete();
    edit(&repo, 55);
    repo.runner(&["land"]).success();
    let config = taken(&repo);
    assert!(config.contains("max_iterations = 55"), "{config}");
    // Committed by hand on the run's branch, and landed since.
    let repo = complete();
    sh(
        &repo,
        "sed -i 's/max_iterations = .*/max_iterations = 56/' .runner/state/config.toml; git commit -qam mine",
    );
    repo.runner(&["land"]).success();
    let config = taken(&repo);
    assert!(config.contains("max_iterations = 56"), "{config}");
    // Neither landed nor followed by an iteration.
    let repo = complete();
    edit(&repo, 57);
    repo.git(&["switch", "-q", "main"]);
    let config = taken(&repo);
    assert!(config.contains("max_iterations = 57"), "{config}");
}

#[test]
fn a_landed_run_stays_landed_without_its_branch() {
    let repo = complete();
    repo.runner(&["land"]).success();
    repo.runner(&["abandon", "--delete", "demo"]).success();
    let value = repo.runner(&["runs", "--json"]).success().json();
    assert_eq!(value["runs"][0]["state"], "landed", "{value:#}");
    let run = repo.runner(&["runs"]).success();
    run.says("landed on main as").says("its branch was deleted");
}

#[test]
fn whose_config_is_taken() {
    // What was said, or asked for anew, counts.
    let repo = complete();
    repo.runner(&["land"]).success();
    for args in [&["init", "--guard", "make ci"][..], &["init", "--force"]] {
        let value = repo.runner(&[args, &["--json"]].concat()).success().json();
        assert_eq!(value["config_from"], json!(null), "{args:?}");
        sh(
            &repo,
            "rm -r .runner/state .runner/GOAL.md .runner/.gitignore .runner/.gitattributes",
        );
    }
    // A branch that a session made up has no logs, and its config does not count.
    sh(
        &repo,
        "git switch -q -c runner/evil runner/demo; \
         sed -i 's/max_iterations = .*/max_iterations = 66/' .runner/state/config.toml; \
         GIT_COMMITTER_DATE=2098-01-01T00:00:00Z git commit -qam evil; git switch -q main",
    );
    let value = repo.runner(&["init", "--json"]).success().json();
    assert_eq!(value["config_from"], "demo");
    assert!(!repo.read(".runner/state/config.toml").contains("66"));
    // Nor does a branch with logs count that a session has moved.
    sh(
        &repo,
        "rm -r .runner/state .runner/GOAL.md; git branch -qf runner/demo runner/evil",
    );
    let value = repo.runner(&["init", "--json"]).success().json();
    assert_eq!(value["config_from"], "demo");
    assert!(!repo.read(".runner/state/config.toml").contains("66"));
}

#[test]
fn the_config_of_a_run_without_an_iteration_is_taken_too() {
    let repo = planned(&["a"], "out done x", &["true"]);
    let config = repo.read(".runner/state/config.toml");
    repo.git(&["switch", "-q", "main"]);
    sh(&repo, "rm -rf .runner/iterations/demo/1");
    let value = repo.runner(&["init", "--json"]).success().json();
    assert_eq!(value["config_from"], "demo");
    assert_eq!(repo.read(".runner/state/config.toml"), config);
}

#[test]
fn local_files_are_no_noise_on_any_branch() {
    let repo = complete();
    repo.git(&["switch", "-q", "main"]);
    assert!(repo.exists(".runner/iterations/demo"));
    repo.assert_clean();
    // `git clean` leaves the logs alone, too.
    repo.git(&["clean", "-qfd"]);
    assert!(repo.exists(".runner/iterations/demo/2/meta.json"));
}
