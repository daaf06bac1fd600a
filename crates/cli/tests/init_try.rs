//! `runner init` on projects of several kinds: the setup that it proposes, tried with the real
//! tools in a clean checkout.

#![allow(clippy::unwrap_used)] // A test that cannot go on has failed.

mod agent_support;
mod init_support;
mod scenario;

use std::fs;
use std::path::Path;
use std::time::Duration;

use init_support::{
    NPM, PACKAGE, StoryBox, WHEEL, expect, expect_proposed, from_init_to_land, init, node, project,
    python, run,
};
use runner_testkit::{TestRepo, assert_no_process, eventually};
use scenario::bare;
use serde_json::{Value, json};

#[test]
fn packages_without_a_lock_file_are_copied() {
    let repo = node("");
    let without_lock = [NPM, &["--no-package-lock", "--install-links"]].concat();
    run(&repo, "", &without_lock);
    let value = init(&repo, &[]);
    assert_eq!(value["setup"], Value::Null);
    assert_eq!(value["include"], json!(["node_modules"]));
    expect(&value, "green");
    assert!(
        repo.read(".runner/state/config.toml")
            .contains("include = [\"node_modules\"]")
    );
}

/// What setup makes would count as made by every session.
#[test]
fn packages_that_git_would_see_are_not_protected() {
    let repo = node("");
    run(&repo, "", NPM);
    repo.commit_all("Lock the packages");
    let glob = json!("**/node_modules/**");
    for (ignored, expected) in [("node_modules/\n", true), ("\n", false)] {
        repo.write(".gitignore", ignored);
        let value = init(&repo, &["--no-try", "--force"]);
        let protected = value["protected"].as_array().unwrap();
        assert_eq!(protected.contains(&glob), expected, "{value}");
    }
}

#[test]
fn a_package_in_a_subfolder() {
    let repo = node("web/");
    run(&repo, "web", NPM);
    repo.commit_all("Lock the packages");
    let setup = json!(["sh", "-c", "cd web && npm ci"]);
    let guard = json!(["sh", "-c", "cd web && npm test"]);
    let value = init(&repo, &[]);
    assert_eq!(
        (&value["setup"]["command"], &value["guard"]["command"]),
        (&setup, &guard)
    );
    let values = value["protected_values"].as_array().unwrap();
    assert!(
        values.contains(&json!("web/**/package.json:/scripts")),
        "{value}"
    );
    expect(&value, "green");
    // The same from inside of it, where there is another one.
    repo.write("other/package.json", PACKAGE);
    repo.commit_all("Add another");
    let web = repo.path("web").display().to_string();
    let again = repo
        .runner(&["-C", &web, "init", "--json", "--force"])
        .success()
        .json();
    assert_eq!(
        (&again["setup"]["command"], &again["guard"]["command"]),
        (&setup, &guard)
    );
    expect(&again, "green");
}

/// A project with a list of packages.
fn listed(ignored: &str) -> TestRepo {
    let list = format!("./{WHEEL}\n");
    python(&[(".gitignore", ignored), ("requirements.txt", &list)])
}

#[test]
fn an_environment_that_git_would_see_is_not_proposed() {
    let repo = listed("__pycache__/\n");
    let run = repo.runner(&["init"]).success();
    assert!(
        run.stderr.contains("add .venv/ to .gitignore"),
        "{}",
        run.describe()
    );
    let words = "tried:     the guard is red in a clean checkout: exit 1";
    assert!(run.stderr.contains(words), "{}", run.describe());
    assert!(
        run.stderr.contains("No module named 'thing'"),
        "{}",
        run.describe()
    );
}

/// A session can write it, so nobody is told to fix anything: `start` says the same.
#[test]
fn a_guard_whose_file_is_missing_is_not_there_yet() {
    for guard in ["sh ci.sh", "make ci", "./ci.sh"] {
        let repo = project(&[("README.md", "x\n")]);
        let run = repo.runner(&["init", "--guard", guard]).success();
        let file = if guard == "make ci" {
            "Makefile"
        } else {
            "ci.sh"
        };
        let words =
            format!("the guard is not there yet: `{guard}` needs {file}, and no leaf passes");
        assert!(!run.stderr.contains("fix it"), "{}", run.describe());
        run.says(&format!("tried:     {words}"));
        repo.runner(&["start"]).success().says(&words);
    }
}

#[test]
fn a_file_with_secrets_is_proposed_only_where_it_makes_the_difference() {
    let check = "#!/bin/sh\ngrep -q SERVICE .env\n";
    let repo = project(&[(".gitignore", ".env*\n"), ("ci.sh", check)]);
    repo.write(".env", "SERVICE=here\n");
    repo.write(".env.local", "OTHER=1\n");
    let value = init(&repo, &["--guard", "sh ci.sh"]);
    expect(&value, "green");
    assert_eq!(value["trial"]["included"], json!([".env"]));
    let text = repo.read(".runner/state/config.toml");
    assert!(text.contains("\ninclude = [\".env\"]\n"), "{text}");
    // A guard that is green without it does not get it.
    let value = init(&repo, &["--guard", "true", "--force"]);
    expect(&value, "green");
    assert_eq!(value["trial"]["included"], json!([]));
    assert!(
        repo.read(".runner/state/config.toml")
            .contains("\ninclude = []\n")
    );
    // One that is named for production is never tried.
    fs::rename(repo.path(".env"), repo.path(".env.production")).unwrap();
    let script = "cat .env* > /dev/null && grep -q SERVICE .env.production";
    let value = init(&repo, &["--guard", &format!("sh -c '{script}'"), "--force"]);
    expect(&value, "red");
    assert_eq!(value["trial"]["included"], json!([]));
}

#[test]
fn what_it_finds_is_told_and_no_error() {
    let mut repo = project(&[(
        "ci.sh",
        "echo \"$SERVICE_URL is needed\"; : \"${SERVICE_URL:?not set}\"\n",
    )]);
    repo.env("SERVICE_URL", "here");
    let run = repo.runner(&["init", "--guard", "sh ci.sh"]).success();
    for words in [
        "tried:     the guard cannot run in a clean checkout: `sh ci.sh` is red in a clean checkout and \
         green with variables of your shell: SERVICE_URL\n",
        "SERVICE_URL: not set",
        "hint: pass SERVICE_URL on with [guard] env = [\"SERVICE_URL\"]",
    ] {
        assert!(run.stderr.contains(words), "{words:?}: {}", run.describe());
    }
    let value = init(&repo, &["--force", "--guard", "no-such-program-here"]);
    expect(&value, "cannot_run");
    assert!(
        value["trial"]["hint"].as_str().unwrap().contains("install"),
        "{value}"
    );
    let value = init(
        &repo,
        &["--force", "--guard", "sh -c 'no-such-program-here'"],
    );
    expect(&value, "cannot_run");
    let value = init(&repo, &["--force", "--guard", "sh ci.sh", "--no-try"]);
    assert_eq!(value["trial"], Value::Null);

    // A setup that fails is named, with its words.
    repo.write("package.json", "{}");
    repo.write("package-lock.json", "not json");
    repo.commit_all("Break the lock file");
    let run = repo
        .runner(&["init", "--force", "--guard", "true"])
        .success();
    let words = "the guard cannot run in a clean checkout: setup `npm ci` gave exit 1";
    assert!(run.stderr.contains(words), "{}", run.describe());
    assert!(
        run.stderr.contains("correct [workspace] setup"),
        "{}",
        run.describe()
    );
}

/// What `start` would refuse is told here, with what makes the difference.
#[test]
fn what_only_the_own_checkout_has_is_named() {
    let mut repo = project(&[
        (".gitignore", "gen/\n"),
        (
            "ci.sh",
            "test -e gen/x && git rev-parse -q --verify origin/main\n",
        ),
    ]);
    repo.write("gen/x", "made by hand\n");
    let value = init(&repo, &["--guard", "sh ci.sh"]);
    expect(&value, "red");
    let head = repo.head();
    repo.git(&["update-ref", "refs/remotes/origin/main", &head]);
    let guard = "sh -c 'sh ci.sh || { echo no origin/main; false; }'";
    let value = init(&repo, &["--force", "--guard", guard]);
    expect(&value, "cannot_run");
    let why = value["trial"]["why"].as_str().unwrap();
    let words = "green with the ignored files of yours beside it: gen/, and remote-tracking branches of yours: origin/main";
    assert!(why.contains(words), "{why}");
    let hint = value["trial"]["hint"].as_str().unwrap();
    assert!(
        hint.contains("let the guard do without origin/main"),
        "{hint}"
    );

    // Red with everything is red.
    let value = init(&repo, &["--force", "--guard", "sh -c 'sh ci.sh; exit 3'"]);
    expect(&value, "red");
    // What looks like a secret is not tried with its value.
    repo.env("SERVICE_TOKEN", "yes");
    let guard = "sh -c ': ${SERVICE_TOKEN:?must be set}; test $SERVICE_TOKEN = yes'";
    let value = init(&repo, &["--force", "--guard", guard]);
    expect(&value, "cannot_run");
    let hint = value["trial"]["hint"].as_str().unwrap();
    assert!(hint.contains("[guard] env = [\"SERVICE_TOKEN\"]"), "{hint}");
}

#[test]
fn a_repository_without_a_commit_has_nothing_to_try() {
    let repo = TestRepo::empty(scenario::BIN);
    let value = init(&repo, &["--guard", "false"]);
    expect(&value, "skipped");
    assert!(
        value["trial"]["why"]
            .as_str()
            .unwrap()
            .contains("no commit yet")
    );
    assert!(Path::new(value["root"].as_str().unwrap()).is_dir());
}

#[test]
fn a_guard_that_cannot_fail_is_told_at_once() {
    let repo = bare();
    repo.write("src/main.py", "print(1)\n");
    repo.commit_all("Sources");
    let value = init(&repo, &["--guard", "true"]);
    expect(&value, "green");
    let words = value["trial"]["cannot_fail"].as_str().unwrap_or_default();
    let says = "it cannot fail: it stays green with a syntax error in src/main.py (Python)";
    assert!(words.contains(says), "{value:#}");
    let again = repo
        .runner(&["init", "--force", "--guard", "true"])
        .success();
    let says = "warning:   the guard proves nothing: it cannot fail";
    assert!(again.stderr.contains(says), "{}", again.describe());
}

#[test]
fn an_interrupt_ends_the_try_and_keeps_the_files() {
    let repo = bare();
    let guard = "sh -c 'sleep 600'";
    let running = repo.spawn_runner(&["init", "--guard", guard]);
    eventually("the guard", Duration::from_secs(30), || {
        !repo.private_checkouts().is_empty()
    });
    eventually("the files", Duration::from_secs(30), || {
        repo.exists(".runner/state/config.toml")
    });
    running.signal("INT");
    let run = running.wait().code(130);
    assert!(
        run.stderr.contains("the files of .runner/ are written"),
        "{}",
        run.describe()
    );
    assert!(repo.private_checkouts().is_empty());
    assert_no_process(&repo.root().display().to_string());
}

#[test]
fn build_outputs_that_stay() {
    let repo = project(&[
        (".gitignore", "/target\n"),
        (
            "Cargo.toml",
            "[package]\nname = \"a\"\nversion = \"0.1.0\"\nedition = \"2021\"\n",
        ),
    ]);
    let value = init(&repo, &["--no-try"]);
    assert_eq!(
        (&value["keep"], &value["setup"]),
        (&json!(["target"]), &Value::Null)
    );
    assert!(
        repo.read(".runner/state/config.toml")
            .contains("\nkeep = [\"target\"]\n")
    );
}

#[test]
fn npm_from_init_to_land() {
    let repo = node("");
    run(&repo, "", NPM);
    repo.commit_all("Lock the packages");
    let value = from_init_to_land(repo, StoryBox::Bubblewrap, &[]);
    expect_proposed(&value, "npm ci", "npm test");
}

#[test]
fn copied_packages_from_init_to_land() {
    let repo = node("");
    run(
        &repo,
        "",
        &[NPM, &["--no-package-lock", "--install-links"]].concat(),
    );
    from_init_to_land(repo, StoryBox::Off, &[]);
}

#[test]
fn a_package_in_a_subfolder_from_init_to_land() {
    let repo = node("packages/web/");
    run(&repo, "packages/web", NPM);
    repo.commit_all("Lock the packages");
    from_init_to_land(repo, StoryBox::Landlock, &[]);
}

#[test]
fn pip_from_init_to_land() {
    let repo = listed(".venv/\n__pycache__/\n");
    let setup = "python3 -m venv .venv && .venv/bin/pip install -r requirements.txt";
    run(&repo, "", &["sh", "-c", setup]);
    let value = from_init_to_land(repo, StoryBox::Bubblewrap, &[]);
    assert_eq!(value["setup"]["command"], json!(["sh", "-c", setup]));
    assert_eq!(value["guard"]["command"][0], ".venv/bin/python", "{value}");
}

#[test]
fn cargo_from_init_to_land() {
    let mut repo = project(&[
        (".gitignore", "/target\n"),
        (
            "Cargo.toml",
            "[package]\nname = \"a\"\nversion = \"0.1.0\"\nedition = \"2021\"\n",
        ),
        (
            "Cargo.lock",
            "version = 3\n\n[[package]]\nname = \"a\"\nversion = \"0.1.0\"\n",
        ),
        ("src/lib.rs", "#[test]\nfn works() {}\n"),
    ]);
    repo.machine_toolchains();
    from_init_to_land(repo, StoryBox::Bubblewrap, &[]);
}
