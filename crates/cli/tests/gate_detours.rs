//! Ways to a protected file that are not its path: links that lead to it, attributes that rewrite it.

#![allow(clippy::unwrap_used)] // A test that cannot go on has failed.

mod scenario;

use std::os::unix::fs::symlink;

use runner_testkit::TestRepo;
use scenario::{GOAL, bare};
use serde_json::{Value, json};

fn step(repo: &TestRepo, script: &str) -> Value {
    repo.agent(&format!("{script}\nout done 'did it'"));
    repo.runner(&["step", "--json"]).success().json()
}

fn started(mut repo: TestRepo, protected: &[&str], guard: &[&str]) -> TestRepo {
    repo.config(|config| {
        config
            .set("guard.protected", json!(protected))
            .set("max_attempts_default", 50);
    });
    repo.start_run(GOAL, guard);
    repo
}

#[test]
fn what_a_protected_link_leads_to_is_protected() {
    let repo = bare();
    repo.write("tools/real/check.sh", "grep -q right product\n");
    repo.write("tools/real/more/lib.sh", "\n");
    repo.write("product", "wrong\n");
    symlink("tools/real/check.sh", repo.path("ci.sh")).unwrap();
    symlink("tools/real", repo.path("ci")).unwrap();
    repo.commit_all("files");
    let repo = started(repo, &["ci.sh", "ci/more/**"], &["sh", "ci.sh"]);
    for (script, file) in [
        ("echo true > tools/real/check.sh", "tools/real/check.sh"),
        ("rm tools/real/check.sh", "tools/real/check.sh"),
        ("ln -sf product ci.sh", "ci.sh"),
        ("echo x >> tools/real/more/lib.sh", "tools/real/more/lib.sh"),
        ("echo x > tools/real/more/new.sh", "tools/real/more/new.sh"),
    ] {
        let told = step(&repo, script);
        assert_eq!(told["class"], "agent_error", "{script}: {told:#}");
        let words = format!("{file} is protected");
        assert!(told["findings"].to_string().contains(&words), "{told:#}");
    }
    // Beside it there is nothing to protect.
    let told = step(&repo, "echo x > tools/real/other; echo right > product");
    assert_eq!(told["guard"], "pass", "{told:#}");
}

#[test]
fn attributes_that_rewrite_a_protected_file() {
    let guard = "test \"$(wc -c < expected)\" -gt 8 || grep -q right product";
    let repo = bare();
    repo.write("expected", "a\nb\nc\nd\n");
    repo.write("product", "wrong\n");
    repo.commit_all("files");
    let repo = started(repo, &["expected"], &["sh", "-c", guard]);
    for attributes in [
        "expected text eol=crlf",
        "expected working-tree-encoding=UTF-16",
    ] {
        let told = step(&repo, &format!("echo '{attributes}' > .gitattributes"));
        assert_eq!(told["class"], "agent_error", "{attributes}: {told:#}");
        let words = ".gitattributes (it changes how files are checked out that are protected, tests, or meant for a filter: expected)";
        assert!(told["findings"].to_string().contains(words), "{told:#}");
        assert!(!repo.workspace(".gitattributes").exists());
    }
    let told = step(
        &repo,
        "echo '*.png binary' > .gitattributes; echo right > product",
    );
    assert_eq!(told["guard"], "pass", "{told:#}");
    repo.runner(&["replay"]).success();
}

#[test]
fn a_file_that_is_meant_for_a_filter_stays_so() {
    let repo = bare();
    repo.git(&["config", "filter.crypt.clean", "tr a-z A-Z"]);
    repo.git(&["config", "filter.crypt.smudge", "tr A-Z a-z"]);
    repo.write(".gitattributes", "secret.txt filter=crypt\n");
    repo.write("secret.txt", "word\n");
    repo.commit_all("files");
    let repo = started(repo, &[], &["true"]);
    for script in [
        "echo > .gitattributes; echo plain > secret.txt",
        "echo plain > secret.txt",
        "echo '*.png binary' >> .gitattributes; echo '* -filter' >> .gitattributes",
        "rm .gitattributes; echo plain > secret.txt",
    ] {
        let told = step(&repo, script);
        assert_eq!(told["class"], "agent_error", "{script}: {told:#}");
        let content = repo.git(&["show", "refs/runner/run/demo:secret.txt"]);
        assert_eq!(content, "WORD", "{script}");
    }
    let told = step(&repo, "echo '*.png binary' >> .gitattributes");
    assert_eq!(told["guard"], "pass", "{told:#}");
}

#[test]
fn tests_may_not_be_written_in_another_way_either() {
    let mut repo = bare();
    repo.write("tests/check.sh", "test -f good || exit 1\n");
    repo.commit_all("files");
    repo.config(|config| {
        config
            .set("guard.tests", json!(["tests/**"]))
            .set("guard.original_tests", "require");
    });
    let repo = started(repo, &[], &["sh", "tests/check.sh"]);
    let script =
        "echo 'tests/*.sh working-tree-encoding=UTF-7' > .gitattributes; echo : > tests/new.sh";
    let told = step(&repo, script);
    assert_eq!(told["class"], "agent_error", "{told:#}");
    assert_eq!(step(&repo, "touch good")["guard"], "pass");
}

#[test]
fn what_git_does_not_clean_up_reaches_no_later_verdict() {
    let repo = bare();
    repo.write("src/t", "x\n");
    repo.write("code.sh", "exit 1\n");
    repo.commit_all("files");
    let mut repo = repo;
    repo.config(|config| {
        config
            .set("guard.protected", json!([]))
            .set("max_attempts_default", 50);
    });
    repo.start_run(GOAL, &["sh", "code.sh"]);
    scenario::plan(&repo, &["a", "b", "c"]);
    let plant = "printf 'mkdir -p src/.git; echo ok > src/.git/planted; mkfifo src/pipe src/.gitattributes; exit 0\\n' > code.sh";
    assert_eq!(step(&repo, plant)["guard"], "pass");
    for wanted in [
        "-f src/.git/planted",
        "-e src/pipe",
        "-e src/.gitattributes",
    ] {
        let told = step(&repo, &format!("echo 'test {wanted}' > code.sh"));
        assert_eq!(told["guard"], "fail", "{wanted}: {told:#}");
    }
}
