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

/// Without a makefile make has rules of its own, by which other files are green.
#[test]
fn make_without_a_makefile_is_never_green() {
    let repo = bare();
    repo.write("ci.sh", "true\n");
    repo.write("product", "wrong\n");
    repo.commit_all("files");
    let repo = started(repo, &["Makefile"], &["make", "ci"]);
    for script in ["true", "echo > ci"] {
        let told = step(&repo, script);
        let iter = told["iter"].as_u64().unwrap();
        let facts = &repo.meta(iter)["facts"];
        assert_eq!(told["guard"], "fail", "{script}: {told:#}");
        assert_eq!(facts["guard_exit"], 0, "{script}: {told:#}");
        let words = "there is no Makefile, so the exit code 0 of `make ci` says nothing";
        let gaps = facts["evidence_gaps"].to_string();
        assert!(gaps.contains(words), "{facts:#}");
    }
    // The remedy is what the words say.
    let script =
        "printf 'ci:\\n\\tgrep -q right product\\n.PHONY: ci\\n' > Makefile; echo right > product";
    assert_eq!(step(&repo, script)["guard"], "pass");
    repo.runner(&["land"]).success();

    // A base is tried in the same way.
    let mut repo = bare();
    repo.write("ci.sh", "true\n");
    repo.commit_all("files");
    repo.init_run(GOAL, &["make", "ci"]);
    let begun = repo.runner(&["start"]).success();
    assert!(begun.stderr.contains("Makefile"), "{}", begun.describe());
}

/// What setup or the guard makes says nothing of the commit.
#[test]
fn a_protected_file_that_is_made_is_no_pass() {
    let mut repo = bare();
    repo.write("Makefile", "ci:\n\t@grep -q right product\n.PHONY: ci\n");
    repo.write("product", "wrong\n");
    repo.write("steps", "mkdir -p made\n");
    repo.write("more", ":\n");
    repo.write(".gitignore", "made/\n");
    repo.commit_all("files");
    repo.config(|config| {
        config.set("workspace.setup", "sh steps; sh ./more");
    });
    let protected = ["Makefile", "GNUmakefile", "makefile"];
    let repo = started(repo, &protected, &["make", "ci"]);
    let made = "printf 'ci:\\n\\t@true\\n' > GNUmakefile";
    for file in ["steps", "more"] {
        let told = step(&repo, &format!("echo \"{made}\" > {file}"));
        assert_eq!(told["class"], "agent_error", "{told:#}");
        let words = format!("{file} is protected");
        assert!(told["findings"].to_string().contains(&words), "{told:#}");
    }
    let told = step(&repo, "echo right > product; mkdir lib; echo : > lib/steps");
    assert_eq!(told["guard"], "pass", "{told:#}");

    // By a script that only the product's own code calls.
    let mut repo = bare();
    repo.write("Makefile", "ci:\n\t@grep -q right product\n.PHONY: ci\n");
    repo.write("product", "wrong\n");
    repo.write("steps", "cat tools/more | sh\n");
    repo.write("tools/more", "mkdir -p made\n");
    repo.write(".gitignore", "made/\n");
    repo.commit_all("files");
    repo.config(|config| {
        config.set("workspace.setup", "sh steps");
    });
    let repo = started(repo, &protected, &["make", "ci"]);
    let told = step(&repo, &format!("echo \"{made}\" > tools/more"));
    assert_eq!(told["guard"], "fail", "{told:#}");
    let folder = repo.iteration(told["iter"].as_u64().unwrap());
    let log = std::fs::read_to_string(folder.join("guard.log")).unwrap();
    let words = "GNUmakefile (made by setup or by the guard, and protected)";
    assert!(log.contains(words), "{log}");
}

/// Python loads them without a look at their source.
#[test]
fn compiled_files_are_left_out() {
    let repo = bare();
    repo.write("check.py", "import rules, sys\nsys.exit(not rules.ok())\n");
    repo.write(
        "rules.py",
        "def ok():\n    return 'right' in open('product').read()\n",
    );
    repo.write("product", "wrong\n");
    repo.write(".gitignore", "__pycache__/\n");
    repo.commit_all("files");
    let mut repo = repo;
    repo.machine_toolchains();
    let repo = started(repo, &["check.py", "rules.py"], &["python3", "check.py"]);
    let compile = "printf 'def ok():\\n    return True\\n' > e.py; : > .gitignore
python3 -c 'import py_compile as p, importlib.util as u; p.compile(\"e.py\", cfile=u.cache_from_source(\"rules.py\"), invalidation_mode=p.PycInvalidationMode.UNCHECKED_HASH)'
rm e.py";
    let told = step(&repo, compile);
    assert_eq!(told["guard"], "fail", "{told:#}");
    let words = "compiled files of Python are left out of commits";
    assert!(told["notes"].to_string().contains(words), "{told:#}");
    let told = step(&repo, &format!("{compile}; echo right > product"));
    assert_eq!(told["guard"], "pass", "{told:#}");
    let files = repo.git(&["ls-tree", "-r", "--name-only", "refs/runner/run/demo"]);
    assert!(!files.contains("__pycache__"), "{files}");
}
