//! `runner start`: which id and branch a run gets, what is committed, what a
//! second start does, and the way back to a run.

#![allow(clippy::unwrap_used)] // A test that cannot go on has failed.

mod scenario;

use runner_testkit::TestRepo;
use scenario::{
    GOAL, assert_same, bare, changed_files, error_code, human_error, message, picture, planned, sh,
    started, step, subject,
};
use serde_json::{Value, json};

const DONE: &str = "echo work >> work.txt; out done 'did it'";

#[track_caller]
fn start(repo: &TestRepo) -> Value {
    let value = repo.runner(&["start", "--json"]).success().json();
    assert_eq!(value["schema_version"], 1, "{value}");
    repo.assert_clean();
    value
}

fn branch(repo: &TestRepo) -> String {
    repo.git(&["branch", "--show-current"])
}

#[test]
fn takes_the_id_from_the_goal() {
    let mut repo = bare();
    let base = repo.head();
    repo.init_run(GOAL, &["true"]);
    assert_eq!(
        start(&repo),
        json!({"schema_version": 1, "run_id": "demo", "branch": "runner/demo", "base": "main",
               "committed": true, "new_run": true, "guard_at_base": "pass"})
    );
    assert_eq!(branch(&repo), "runner/demo");
    assert_eq!(repo.subjects(), ["Begin", "chore(loop): start run demo"]);
    let text = message(&repo, "HEAD");
    let (words, key) = text.split_once("\nRunner-Key: ed25519 ").unwrap();
    assert_eq!(
        words,
        format!("chore(loop): start run demo\n\nRunner-Base: main {base}")
    );
    assert_eq!(
        key.trim().split(' ').count(),
        2,
        "its id and its public half"
    );
    assert_eq!(
        repo.git(&["rev-parse", "main"]),
        base,
        "the base stays where it is"
    );
    assert!(
        changed_files(&repo)
            .iter()
            .all(|file| file.starts_with(".runner/"))
    );
    assert!(
        !changed_files(&repo)
            .iter()
            .any(|file| file.contains("iterations"))
    );
    assert_eq!(
        repo.read(".runner/GOAL.md"),
        GOAL,
        "an id that is there is not touched"
    );
    assert_eq!(repo.run_id(), "demo");
    let root = repo.node("root");
    assert_eq!(root["title"], "Ship it");
    assert!(
        root["goal"].as_str().unwrap().contains("All of it."),
        "{root}"
    );
    assert_eq!(repo.events().len(), 1);
    let event = &repo.events()[0];
    assert_eq!(
        (&event["event"], &event["run_id"]),
        (&json!("run_started"), &json!("demo"))
    );
}

#[test]
fn makes_an_id_where_there_is_none() {
    let mut repo = bare();
    let sha8 = repo.head()[..8].to_owned();
    repo.init_run("# Ship it\n\nAll.\n", &["true"]);
    assert_eq!(start(&repo)["run_id"], format!("run-{sha8}"));
    let goal = repo.read(".runner/GOAL.md");
    assert_eq!(
        goal,
        format!("---\nid: run-{sha8}\n---\n# Ship it\n\nAll.\n")
    );
    assert_eq!(repo.node("root")["title"], "Ship it");

    // The same commit again: the next number.
    for number in 2..4 {
        repo.git(&["switch", "-q", "main"]);
        repo.init_run("# Ship it\n\nAll.\n", &["true"]);
        assert_eq!(start(&repo)["run_id"], format!("run-{sha8}-{number}"));
        assert_eq!(branch(&repo), format!("runner/run-{sha8}-{number}"));
    }
}

#[test]
fn begins_from_another_branch_and_from_a_detached_head() {
    let mut repo = bare();
    repo.git(&["switch", "-q", "-c", "feature/x"]);
    repo.write("x", "x");
    let base = repo.commit_all("more");
    repo.init_run(GOAL, &["true"]);
    assert_eq!(start(&repo)["base"], "feature/x");
    assert!(message(&repo, "HEAD").contains(&format!("Runner-Base: feature/x {base}")));

    repo.git(&["switch", "-q", "--detach", "main"]);
    repo.init_run("---\nid: loose\n---\n# Y\n", &["true"]);
    assert_eq!(start(&repo)["branch"], "runner/loose");
    let base = repo.git(&["rev-parse", "main"]);
    assert!(message(&repo, "HEAD").contains(&format!("Runner-Base: HEAD {base}")));
}

#[test]
fn a_second_start_commits_only_what_a_person_changed() {
    let repo = started(DONE, &["true"]);
    let (head, base) = (repo.head(), repo.git(&["rev-parse", "main"]));
    let again = start(&repo);
    assert_eq!(
        (&again["committed"], &again["new_run"]),
        (&json!(false), &json!(false))
    );
    assert_eq!(again["base"], "main");
    repo.runner(&["start"]).success().says("nothing to do");
    assert_eq!(repo.head(), head);

    repo.write(".runner/INSTRUCTIONS.md", "Be brief.\n");
    let again = start(&repo);
    assert_eq!(
        (&again["committed"], &again["new_run"]),
        (&json!(true), &json!(false))
    );
    assert_eq!(subject(&repo), "chore(loop): start run demo");
    assert!(message(&repo, "HEAD").contains(&format!("Runner-Base: main {base}")));
    assert_eq!(changed_files(&repo), [".runner/INSTRUCTIONS.md"]);

    // In the middle of the run it changes neither the tree nor the counting.
    step(&repo);
    let (tree, state) = (repo.tree(), repo.run_state());
    repo.write(".runner/nodes/root/context.md", "A note.\n");
    start(&repo);
    assert_eq!((repo.tree(), repo.run_state()), (tree, state));
    let started = repo
        .events()
        .iter()
        .filter(|it| it["event"] == "run_started")
        .count();
    assert_eq!(started, 1);
    repo.runner(&["validate"]).success();
    repo.runner(&["replay"]).success();
}

#[test]
fn changes_outside_the_runners_folder_are_refused() {
    let mut repo = bare();
    repo.init_run(GOAL, &["true"]);
    for (name, change) in [
        ("new file.txt", "touch 'new file.txt'"),
        ("README.md", "echo other > README.md"),
        ("README.md", "rm README.md"),
        ("staged.txt", "touch staged.txt; git add staged.txt"),
    ] {
        sh(&repo, change);
        let before = picture(&repo);
        human_error(&repo.runner(&["start"]), name, "commit, stash or ignore");
        assert_eq!(
            error_code(&repo.runner(&["start", "--json"]).code(1)),
            "dirty"
        );
        assert_same(&repo, &before, name);
        repo.git(&["reset", "-q", "--hard"]);
        repo.git(&["clean", "-qfd", "-e", ".runner"]);
    }
    // What is ignored is nobody's business.
    repo.write(".git/info/exclude", "build/\n");
    repo.write("build/out", "");
    start(&repo);
}

#[test]
fn a_staged_folder_of_the_runner_is_fine() {
    let mut repo = bare();
    repo.init_run(GOAL, &["true"]);
    repo.git(&["add", ".runner"]);
    start(&repo);
    assert_eq!(repo.subjects(), ["Begin", "chore(loop): start run demo"]);
    // And one that the project ignores is committed all the same.
    let mut repo = bare();
    repo.write(".gitignore", ".runner/\n");
    repo.commit_all("ignore it");
    repo.agent(DONE);
    repo.init_run(GOAL, &["true"]);
    start(&repo);
    assert_eq!(step(&repo)["passes"], true);
    assert!(
        repo.git(&["ls-files", ".runner/state"])
            .contains("tree.json")
    );
}

#[test]
fn a_new_id_on_an_old_run_begins_afresh() {
    let repo = planned(&["a", "b"], DONE, &["true"]);
    step(&repo);
    let (old_tip, old_tree) = (repo.head(), repo.tree());
    repo.write(
        ".runner/GOAL.md",
        "---\nid: next\n---\n# The next thing\n\nMore.\n",
    );
    let value = start(&repo);
    assert_eq!(
        (&value["run_id"], &value["new_run"]),
        (&json!("next"), &json!(true))
    );
    assert_eq!(value["base"], "runner/demo");
    let root = repo.tree();
    assert_eq!(
        (&root["title"], &root["children"]),
        (&json!("The next thing"), &json!([]))
    );
    assert_eq!(
        (&root["passes"], &root["attempts"]),
        (&json!(false), &json!(0))
    );
    assert_eq!(
        repo.run_state(),
        json!({"run_id": "next", "next_iter": 1, "last_status": null, "last_summary": null,
               "last_guard": null, "last_node_id": null})
    );
    assert!(message(&repo, "HEAD").contains(&format!("Runner-Base: runner/demo {old_tip}")));
    assert_eq!(step(&repo)["iter"], 1);

    // The old run is where it was, and can be taken up again.
    let old = repo.git(&["show", "runner/demo:.runner/state/tree.json"]);
    assert_eq!(serde_json::from_str::<Value>(&old).unwrap(), old_tree);
    repo.git(&["switch", "-q", "runner/demo"]);
    assert_eq!(start(&repo)["run_id"], "demo");
    assert_eq!(step(&repo)["node_id"], "b");

    // Without an id the old run's goal gets a new one.
    repo.write(".runner/GOAL.md", "# No id any more\n");
    let sha8 = repo.head()[..8].to_owned();
    assert_eq!(start(&repo)["run_id"], format!("run-{sha8}"));
    assert_eq!(repo.node("root")["title"], "No id any more");
}

#[test]
fn a_plan_that_was_written_before_the_first_start_is_kept() {
    let mut repo = bare();
    repo.agent(DONE);
    repo.init_run(GOAL, &["true"]);
    let mut tree = repo.tree();
    let mut leaf = tree.clone();
    leaf["id"] = json!("mine");
    tree["children"] = json!([leaf]);
    repo.write(".runner/state/tree.json", tree.to_string());
    start(&repo);
    assert_eq!(step(&repo)["node_id"], "mine");
}

#[test]
fn an_invalid_plan_is_not_thrown_away() {
    let mut repo = bare();
    repo.init_run(GOAL, &["true"]);
    let mut tree = repo.tree();
    let mut leaf = tree.clone();
    leaf["id"] = json!("root");
    tree["children"] = json!([leaf]);
    repo.write(".runner/state/tree.json", tree.to_string());
    let before = picture(&repo);
    human_error(&repo.runner(&["start"]), "used by another node", "mend");
    assert_same(&repo, &before, "an invalid plan");
}

#[test]
fn instructions_that_cannot_be_shown_are_refused_before_anything_happens() {
    let repo = started(DONE, &["true"]);
    std::os::unix::fs::symlink("../README.md", repo.path(".runner/INSTRUCTIONS.md")).unwrap();
    repo.commit_all("a link");
    let head = repo.head();
    for command in ["step", "loop", "validate", "start"] {
        human_error(
            &repo.runner(&[command]),
            ".runner/INSTRUCTIONS.md: it is a symbolic link",
            "",
        );
    }
    assert_eq!(repo.head(), head);
    assert!(repo.agent_calls().is_empty());
}

#[test]
fn goes_back_to_a_run_that_exists() {
    // The folder lives on the run's branch alone: on main there is nothing of it.
    let repo = planned(&["a", "b"], DONE, &["true"]);
    let tip = repo.head();
    repo.git(&["switch", "-q", "main"]);
    for command in ["step", "loop"] {
        let run = repo.runner(&[command]);
        human_error(&run, "runner/demo", "");
        assert!(
            run.stderr.trim_end().ends_with("(run 'runner start')"),
            "{}",
            run.describe()
        );
    }
    for command in ["status", "tree", "select", "why", "log"] {
        repo.runner(&[command]).success();
    }
    let run = repo.runner(&["validate"]);
    human_error(&run, "has nothing of a run", "`runner start RUN` goes back");
    repo.runner(&["status"])
        .success()
        .says("your checkout is on main");
    let value = start(&repo);
    assert_eq!(
        (&value["run_id"], &value["base"]),
        (&json!("demo"), &json!("main"))
    );
    assert_eq!(
        (branch(&repo), repo.head()),
        ("runner/demo".to_owned(), tip)
    );
    assert_eq!(step(&repo)["node_id"], "a");

    // With two runs it is for the user to say which.
    repo.write(".runner/GOAL.md", GOAL.replace("demo", "other"));
    start(&repo);
    repo.git(&["switch", "-q", "main"]);
    let run = repo.runner(&["start"]);
    human_error(&run, "runner/demo, runner/other", "runner start ");
    assert_eq!(branch(&repo), "main");
}

#[test]
fn goes_back_to_a_run_whose_goal_is_on_main_too() {
    let mut repo = bare();
    repo.agent(DONE);
    repo.init_run(GOAL, &["true"]);
    repo.commit_all("the goal");
    start(&repo);
    step(&repo);
    let tip = repo.head();
    repo.git(&["switch", "-q", "main"]);
    human_error(&repo.runner(&["step"]), "main (run 'runner start')", "");
    // Changes here would be lost on the way.
    repo.write(".runner/INSTRUCTIONS.md", "Be brief.\n");
    let before = picture(&repo);
    human_error(
        &repo.runner(&["start"]),
        "run demo exists already",
        "runner start demo",
    );
    assert_same(&repo, &before, "a failed command");
    std::fs::remove_file(repo.path(".runner/INSTRUCTIONS.md")).unwrap();
    let value = start(&repo);
    assert_eq!(
        (&value["committed"], &value["new_run"]),
        (&json!(false), &json!(false))
    );
    assert_eq!(
        (branch(&repo), repo.head()),
        ("runner/demo".to_owned(), tip)
    );
}

#[test]
fn the_three_places_of_an_identity_must_agree() {
    let repo = started(DONE, &["true"]);
    let head = repo.head();
    for (words, breakage) in [
        ("GOAL.md has no id", "echo '# Ship it' > .runner/GOAL.md"),
        ("says run other", "sed -i s/demo/other/ .runner/GOAL.md"),
        (
            "says run other",
            "sed -i s/demo/other/ .runner/state/run_state.json",
        ),
        (
            "has not been started",
            "sed -i 's/\"demo\"/null/' .runner/state/run_state.json",
        ),
        ("this is branch elsewhere", "git switch -q -c elsewhere"),
        ("a detached HEAD", "git switch -q --detach"),
        (
            "ever taken on main",
            "git branch -m main old; git switch -q -c main",
        ),
        ("ever taken on master", "git switch -q -c master"),
    ] {
        sh(&repo, breakage);
        if !repo.git(&["status", "--porcelain"]).is_empty() {
            repo.commit_all("by hand");
        }
        for command in ["step", "loop", "validate"] {
            let run = repo.runner(&[command]);
            human_error(&run, words, "");
            assert!(
                run.stderr.trim_end().ends_with("(run 'runner start')"),
                "{}",
                run.describe()
            );
        }
        let run = repo.runner(&["step", "--json"]).code(1);
        assert_eq!(error_code(&run), "identity");
        let told = run.json()["error"]["message"].as_str().unwrap().to_owned();
        assert!(told.ends_with("(run 'runner start')"), "{told}");
        repo.git(&["checkout", "-q", "-f", "runner/demo"]);
        repo.git(&["reset", "-q", "--hard", &head]);
    }
    assert!(repo.agent_calls().is_empty());
    assert_eq!(step(&repo)["guard"], "pass");
}

#[test]
fn what_a_person_changed_in_the_state_is_told_before_the_next_step() {
    let repo = planned(&["a", "b"], DONE, &["true"]);
    // Anything else is the user's business.
    repo.write("left over.txt", "mine");
    repo.runner(&["step"]).success();
    assert_eq!(repo.read("left over.txt"), "mine");
    std::fs::remove_file(repo.path("left over.txt")).unwrap();
    // What a person changed in .runner/ is committed by another start.
    repo.write(".runner/state/questions.md", "What for?\n");
    let calls = repo.agent_calls();
    for command in ["step", "loop"] {
        human_error(
            &repo.runner(&[command]),
            "questions.md",
            "`runner start` commits",
        );
    }
    assert_eq!(
        error_code(&repo.runner(&["step", "--json"]).code(1)),
        "dirty"
    );
    assert_eq!(repo.agent_calls(), calls);
    start(&repo);
    step(&repo);
    assert_eq!(
        repo.git(&["show", "HEAD:.runner/state/questions.md"]),
        "What for?"
    );
}

#[test]
fn a_goal_that_says_nothing_yet() {
    let mut repo = bare();
    repo.init_run("", &["true"]);
    human_error(
        &repo.runner(&["start"]),
        "GOAL.md: it says nothing",
        "write down",
    );
    repo.write(".runner/GOAL.md", "---\nid: a b\n---\n# X\n");
    human_error(
        &repo.runner(&["start"]),
        "GOAL.md: line 2: the id `a b`",
        "choose another id",
    );
    repo.write(".runner/GOAL.md", "---\nid: lock\n---\n# X\n");
    human_error(&repo.runner(&["start"]), "reserved", "choose another id");
    repo.write(".runner/GOAL.md", "---\nid: x\n# X\n");
    human_error(&repo.runner(&["start"]), "no closing", "add a `---` line");

    let repo = bare();
    repo.runner(&["init", "--backend", "command", "--guard", "true"])
        .success();
    repo.write_config();
    let run = repo.runner(&["start"]).success();
    assert!(
        run.stderr.contains("GOAL.md is still the template"),
        "{}",
        run.describe()
    );
    repo.assert_clean();
}

#[test]
fn a_sandbox_that_is_not_wanted_is_not_spoken_of() {
    let mut repo = bare();
    repo.config(|config| {
        config.set("sandbox.mode", "off");
    });
    repo.init_run(GOAL, &["true"]);
    let run = repo.runner(&["start"]).success();
    assert!(!run.stderr.contains("sandbox"), "{}", run.describe());
}

#[test]
fn files_that_are_meant_for_a_filter_are_listed() {
    let mut repo = bare();
    repo.write(
        ".gitattributes",
        "secrets/** filter=git-crypt\n*.bin filter=lfs\n",
    );
    for number in 1..=7 {
        repo.write(format!("secrets/{number}"), "x\n");
    }
    repo.write("a.bin", "x\n");
    // An old file: git would look into one of this very moment again, through a Git LFS that is
    // not here.
    let file = std::fs::File::options()
        .write(true)
        .open(repo.path("a.bin"));
    let long_ago = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000_000);
    file.unwrap().set_modified(long_ago).unwrap();
    repo.commit_all("Secrets");
    repo.init_run(GOAL, &["true"]);
    let told = |repo: &TestRepo| {
        let run = repo.runner(&["start"]).success();
        repo.git(&["switch", "--quiet", "main"]);
        repo.git(&["branch", "--quiet", "-D", "runner/demo"]);
        let lines = run.stderr.lines().map(str::to_owned);
        lines
            .filter(|line| line.contains("cannot change"))
            .collect::<Vec<_>>()
    };
    repo.commit_all("The state");
    // Attributes alone make no filter.
    assert_eq!(told(&repo), Vec::<String>::new());
    repo.git(&["config", "filter.git-crypt.clean", "cat"]);
    repo.git(&["config", "filter.git-crypt.smudge", "cat"]);
    for (name, value) in [
        ("clean", "git-lfs clean -- %f"),
        ("smudge", "git-lfs smudge -- %f"),
        ("process", "git-lfs filter-process"),
    ] {
        repo.git(&["config", &format!("filter.lfs.{name}"), value]);
    }
    let files = "secrets/1, secrets/2, secrets/3, secrets/4, secrets/5 and 2 more";
    let words = format!("note: sessions cannot change these files: {files} (attributes mean them");
    let told = told(&repo);
    assert!(told.len() == 1 && told[0].starts_with(&words), "{told:?}");
}
