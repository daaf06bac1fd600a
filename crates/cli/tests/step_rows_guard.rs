//! What protects the guard, what its run may leave behind, and the files that
//! only grow.

#![allow(clippy::unwrap_used)] // A test that cannot go on has failed.

mod scenario;

use runner_testkit::TestRepo;
use scenario::record::check;
use scenario::{GOAL, bare, changed_files, started, step};
use serde_json::json;

const WORK: &str = "echo work >> work.txt; out done 'did it'";

/// A run with these protected globs, whose guard is `sh ci.sh` where there is one.
fn protected(globs: &[&str], guard: &[&str], files: &[(&str, &str)]) -> TestRepo {
    let mut repo = bare();
    for (path, text) in files {
        repo.write(path, text);
    }
    repo.commit_all("files");
    repo.config(|config| {
        config.set("guard.protected", json!(globs));
        config.set("max_attempts_default", 20);
    });
    repo.start_run(GOAL, guard);
    repo
}

/// A step that is refused because of this file.
#[track_caller]
fn expect_refusal(repo: &TestRepo, file: &str) {
    let told = step(repo);
    assert_eq!(told["class"], "agent_error", "{told:#}");
    let meta = check(repo, "agent_error", "retry", "skipped");
    assert!(
        told["findings"].to_string().contains(file),
        "{file} in {told:#}"
    );
    let facts = &meta["facts"];
    let named = [
        &facts["protected_changed"],
        &facts["changed_by_guard"],
        &facts["owned_changed"],
    ];
    assert!(
        named.iter().any(|list| list.to_string().contains(file)),
        "{facts:#}"
    );
}

#[test]
fn protected_files_may_not_change() {
    let files = [
        ("ci.sh", "exit 0\n"),
        ("tests/a.txt", "a"),
        ("tests/deep/b.txt", "b"),
    ];
    let repo = protected(&["ci.sh", "tests/**"], &["sh", "ci.sh"], &files);
    for (deed, file) in [
        ("echo 'exit 0' > ci.sh; echo >> ci.sh", "ci.sh"),
        ("rm ci.sh", "ci.sh"),
        ("chmod +x ci.sh", "ci.sh"),
        ("mv ci.sh ci2.sh", "ci.sh"),
        ("ln -sf /bin/true ci.sh", "ci.sh"),
        ("echo x > tests/a.txt", "tests/a.txt"),
        ("rm -r tests", "tests/deep/b.txt"),
        ("echo x > tests/new.txt", "tests/new.txt"),
        ("echo x > tests/deep/new.txt", "tests/deep/new.txt"),
    ] {
        repo.agent(&format!("{deed}; {WORK}"));
        expect_refusal(&repo, file);
        for (path, text) in files {
            assert_eq!(repo.read(path), text, "{deed}");
        }
        assert!(
            !repo.exists("tests/new.txt") && !repo.exists("tests/deep/new.txt"),
            "{deed}"
        );
    }
    // Hidden from git, it is still seen: contents are compared.
    repo.agent(&format!(
        "echo 'tests/' >> .gitignore; echo x > tests/ignored.txt; echo y > tests/a.txt; {WORK}"
    ));
    expect_refusal(&repo, "tests/a.txt");
    repo.agent(&format!(
        "git update-index --assume-unchanged ci.sh; echo >> ci.sh; {WORK}"
    ));
    expect_refusal(&repo, "ci.sh");
    repo.agent(WORK);
    assert_eq!(step(&repo)["guard"], "pass");
}

#[test]
fn watched_files_may_change_and_are_pointed_out() {
    let mut repo = bare();
    repo.write("tests/a.txt", "a");
    repo.commit_all("a test");
    repo.config(|config| {
        config.set("guard.watched", json!(["tests/**"]));
    });
    repo.agent(&format!(
        "echo b >> tests/a.txt; echo c > tests/new.txt; {WORK}"
    ));
    repo.start_run(GOAL, &["true"]);
    assert_eq!(step(&repo)["guard"], "pass");
    assert_eq!(
        repo.meta(1)["watched_changed"],
        json!(["tests/a.txt", "tests/new.txt"])
    );
    repo.runner(&["log"])
        .success()
        .says("watched files changed");
    repo.runner(&["log", "1"])
        .success()
        .says("watched file changed: tests/new.txt");
}

#[test]
fn what_is_protected_may_not_be_made_but_for_the_guard_itself() {
    let repo = protected(&["ci.sh", "tests/*.t"], &["sh", "ci.sh"], &[]);
    // Made, but the guard fails: it stays open, and may be changed again.
    repo.agent(&format!("echo 'exit 1' > ci.sh; {WORK}"));
    assert_eq!(step(&repo)["guard"], "fail");
    assert!(repo.git(&["ls-files"]).contains("ci.sh"));
    let grow = "add_child root a 1 A; add_child root b 2 B; add_child root c 3 C
        add_child root d 4 D; out decomposed x";
    repo.agent(grow);
    assert_eq!(step(&repo)["status"], "decomposed");
    repo.agent(&format!("echo 'exit 0' > ci.sh; {WORK}"));
    assert_eq!(step(&repo)["guard"], "pass");
    // From then on it is protected.
    repo.agent(&format!("echo 'exit 0 # mine' > ci.sh; {WORK}"));
    expect_refusal(&repo, "ci.sh");
    assert_eq!(repo.read("ci.sh"), "exit 0\n");
    // The other entry was never open.
    repo.agent(&format!("mkdir -p tests; echo 1 > tests/one.t; {WORK}"));
    expect_refusal(&repo, "tests/one.t");
    assert!(!repo.exists("tests/one.t"));
    repo.agent(&format!("mkdir -p tests; echo 3 > tests/three.txt; {WORK}"));
    assert_eq!(step(&repo)["guard"], "pass");
}

#[test]
fn a_guard_run_that_changes_what_must_stay_is_no_pass() {
    for (deed, file) in [
        (
            "echo x >> .runner/state/config.toml",
            ".runner/state/config.toml",
        ),
        ("echo x >> .runner/GOAL.md", ".runner/GOAL.md"),
        ("echo x > README.md", "README.md"),
        ("rm README.md", "README.md"),
        (
            "sed -i 's/false/true/' .runner/state/tree.json",
            ".runner/state/tree.json",
        ),
        ("rm .runner/state/tree.json", ".runner/state/tree.json"),
    ] {
        let files = [("ci.sh", "true\n")];
        let repo = protected(&["README.md"], &["sh", "-c", ". ./ci.sh; exit 0"], &files);
        repo.agent(&format!("echo \"{deed}\" > ci.sh; {WORK}"));
        assert_eq!(step(&repo)["guard"], "fail", "{deed}");
        let log = std::fs::read_to_string(repo.iteration(1).join("guard.log")).unwrap();
        assert!(log.contains(file), "{deed}: {log}");
        assert_eq!(repo.node("root")["attempts"], 1, "{deed}");
        assert_eq!(repo.node("root")["passes"], false, "{deed}");
        assert_eq!(repo.read("README.md"), "# A project\n");
        assert_eq!(repo.read(".runner/GOAL.md"), GOAL);
        repo.runner(&["validate"]).success();
        repo.agent("echo true > ci.sh; out done x");
        assert_eq!(step(&repo)["guard"], "pass", "{deed}");
    }
}

#[test]
fn what_the_guard_leaves_is_not_committed() {
    let script =
        "mkdir -p build; echo 1 > build/report.txt; echo 2 > 'a b.log'; echo SECRET > .env";
    let repo = started(WORK, &["sh", "-c", script]);
    repo.runner(&["step"]).success();
    check(&repo, "ok", "done", "pass");
    assert_eq!(
        changed_files(&repo),
        [
            ".runner/state/run_state.json",
            ".runner/state/tree.json",
            "work.txt"
        ]
    );
    repo.assert_clean();
    for left in ["build", "a b.log", ".env"] {
        assert!(!repo.exists(left), "{left}");
        assert!(!repo.workspace(left).exists(), "{left}");
    }
}

#[test]
fn a_guard_judges_the_commit_and_nothing_else() {
    // What the session left and git ignores is not in the commit, nor is what it said to ignore.
    let mut repo = bare();
    repo.write(".gitignore", "*.o\n");
    repo.commit_all("ignore it");
    repo.agent("echo x > made.o; echo x > kept.txt; out done x");
    repo.start_run(GOAL, &["sh", "-c", "test ! -e made.o && test -e kept.txt"]);
    assert_eq!(step(&repo)["guard"], "pass");
}

#[test]
fn a_guard_that_changes_what_it_judges_is_no_pass() {
    // A formatter, for example: what it judged is not what would be committed.
    let repo = started(
        "printf 'b\\na\\n' > list.txt; out done x",
        &["sh", "-c", "sort -o list.txt list.txt"],
    );
    assert_eq!(step(&repo)["guard"], "fail");
    assert_eq!(repo.git(&["show", "HEAD:list.txt"]), "b\na");
    repo.agent("sort -o list.txt list.txt; out done x");
    assert_eq!(step(&repo)["guard"], "pass");
}

#[test]
fn assumptions_and_questions_only_grow() {
    let repo = started("", &["true"]);
    for (script, assumptions, questions) in [
        (
            "echo one >> .runner/state/assumptions.md; echo why >> .runner/state/questions.md",
            "one\n",
            "why\n",
        ),
        (
            "echo two >> .runner/state/assumptions.md",
            "one\ntwo\n",
            "why\n",
        ),
        // Lines that were there come back, new ones follow at the end.
        (
            "printf 'three\\n' > .runner/state/assumptions.md",
            "one\ntwo\nthree\n",
            "why\n",
        ),
        (
            "printf 'one\\nchanged\\nthree\\nfour\\n' > .runner/state/assumptions.md",
            "one\ntwo\nthree\nchanged\nfour\n",
            "why\n",
        ),
        (
            "rm .runner/state/questions.md; : > .runner/state/assumptions.md",
            "one\ntwo\nthree\nchanged\nfour\n",
            "why\n",
        ),
    ] {
        let mut tree = repo.tree();
        tree["attempts"] = json!(0);
        repo.write(".runner/state/tree.json", format!("{tree:#}\n"));
        repo.commit_all("again");
        repo.agent(&format!("{script}; out retry x"));
        step(&repo);
        check(&repo, "ok", "retry", "skipped");
        assert_eq!(
            repo.read(".runner/state/assumptions.md"),
            assumptions,
            "{script}"
        );
        assert_eq!(
            repo.read(".runner/state/questions.md"),
            questions,
            "{script}"
        );
    }
    // They are part of every later prompt.
    repo.agent(WORK);
    step(&repo);
    let prompt = std::fs::read_to_string(repo.iteration(6).join("prompt.md")).unwrap();
    assert!(
        prompt.contains("changed\nfour") && prompt.contains("why"),
        "{prompt}"
    );
}

#[test]
fn a_guard_does_not_see_the_agents_environment() {
    let mut repo = bare();
    repo.config(|config| {
        config.set("executor.env.AGENT_KEY", "secret");
    });
    repo.agent(WORK);
    repo.start_run(GOAL, &["sh", "-c", "env | sort"]);
    step(&repo);
    let log = std::fs::read_to_string(repo.iteration(1).join("guard.log")).unwrap();
    assert!(
        !log.contains("AGENT_KEY") && !log.contains("RUNNER_OUTPUT_PATH"),
        "{log}"
    );
    for line in ["RUNNER_RUN_ID=demo", "RUNNER_ITER=1", "RUNNER_NODE_ID=root"] {
        assert!(log.lines().any(|it| it == line), "{line} in {log}");
    }
}

#[test]
fn a_red_verdict_names_files_that_git_ignores() {
    let guard = "test -e dist/schema.json && test -e kept/out && test -e made/by-setup || exit 1";
    let mut repo = bare();
    repo.write(".gitignore", "# outputs\nkept/\nmade/\nold/\n*.log\n");
    repo.write("sub/.gitignore", "gen\n");
    repo.commit_all("rules");
    repo.config(|config| {
        config
            .set("guard.keep", json!(["kept"]))
            .set("workspace.setup", "mkdir -p made && touch made/by-setup")
            .set("max_attempts_default", 2);
    });
    repo.start_run(GOAL, &["sh", "-c", guard]);
    repo.agent(
        "mkdir -p dist kept sub/gen __pycache__ old; echo dist/ >> .gitignore; echo x > dist/schema.json\n\
         echo x > kept/out; echo x > sub/gen/a; echo x > sub/gen/b; echo __pycache__ >> .gitignore; \
         echo x > __pycache__/c; touch made/by-setup; test -e old/file || echo x > old/file; out done x",
    );
    let told = step(&repo);
    let words =
        "the judged commit does not have dist/schema.json (ignored by .gitignore:6) and 2 more";
    assert!(told["notes"].to_string().contains(words), "{told:#}");
    let told = |iter: u64| {
        let log = repo.iteration(iter).join("guard.log");
        let log = std::fs::read_to_string(log).unwrap();
        let (_, told) = log.split_once("does not have them:\n").unwrap();
        told.split_once("runner:").unwrap().0.to_owned()
    };
    assert_eq!(
        told(1),
        "  dist/schema.json (ignored by .gitignore:6)\n  old/file (ignored by .gitignore:4)\n  \
         sub/gen/ (2 files, ignored by sub/.gitignore:1)\n"
    );
    // The next session hears of it; what it left alone is still not in the commit.
    step(&repo);
    let prompt = std::fs::read_to_string(repo.iteration(2).join("prompt.md")).unwrap();
    assert!(prompt.contains("dist/schema.json (ignored by"), "{prompt}");
    assert!(
        told(2).ends_with("  old/file (ignored by .gitignore:4, left by an earlier session)\n"),
        "{}",
        told(2)
    );
    let why = repo.runner(&["why", "root"]);
    assert!(
        why.stdout.contains("dist/schema.json (ignored by"),
        "{}",
        why.describe()
    );
}

#[test]
fn a_red_verdict_that_misses_nothing_says_nothing_of_ignored_files() {
    let mut repo = bare();
    repo.write(".gitignore", "*.log\n");
    repo.commit_all("rules");
    repo.start_run(GOAL, &["sh", "-c", "echo made > guard.log; exit 1"]);
    repo.agent("echo x > guard.log; echo work > work.txt; out done x");
    let told = step(&repo);
    assert_eq!(told["guard"], "fail", "{told:#}");
    assert!(!told.to_string().contains("ignore"), "{told:#}");
}
