//! `runner eval from-git` on a small history.

mod eval_support;

use std::fs;

use eval_support::{BIN, records, run_json};
use runner_testkit::TestRepo;

/// A project whose tests are shell scripts, with commits of every kind.
struct History {
    repo: TestRepo,
    first: String,
    fix: String,
}

fn history() -> History {
    let repo = TestRepo::new(BIN);
    repo.write(
        "run-tests.sh",
        "for t in tests/*.sh; do sh \"$t\" || exit 1; done\n",
    );
    repo.write("add.sh", "echo $(($1 * $2))\n");
    repo.write("tests/begin.sh", "test -f add.sh\n");
    let first = repo.commit_all("A calculator");
    repo.write("README.md", "# More words\n");
    repo.commit_all("Words alone");
    repo.write("tests/begin.sh", "test -f add.sh && true\n");
    repo.commit_all("Tests alone");
    repo.write("add.sh", "echo $(($1 + $2))\n");
    repo.write("tests/add.sh", "[ \"$(sh add.sh 2 3)\" = 5 ]\n");
    let fix = repo.commit_all("Add instead of multiplying\n\nadd.sh printed the product.\n\nSigned-off-by: A <a@example.test>");
    repo.write("add.sh", "# sums\necho $(($1 + $2))\n");
    repo.write("tests/more.sh", "test -s add.sh\n");
    repo.commit_all("A comment, and a test that passes anyway");
    repo.write("sub.sh", "echo $(($1 - $2))\n");
    repo.write("tests/sub.sh", "[ \"$(sh sub.sh 5 3)\" = 3 ]\n");
    repo.commit_all("A test that is wrong");
    History { repo, first, fix }
}

#[test]
fn commits_whose_tests_fail_before_and_pass_after_become_cases() {
    let History { repo, first, fix } = history();
    let range = format!("{first}..HEAD");
    let args = ["eval", "from-git", &range, "--check", "sh run-tests.sh"];
    let dry = repo
        .runner(&[&args[..], &["--dry-run"]].concat())
        .success()
        .says("would write add-instead-of-multiplying-")
        .says("1 left out: changes no test")
        .says("1 left out: changes tests alone")
        .says("1 left out: its tests pass without it")
        .says("1 left out: its tests do not pass with it")
        .says("5 commits: 1 case, none written");
    assert!(!repo.exists("eval/cases"), "{}", dry.describe());

    repo.runner(&args).success().says("5 commits: 1 case");
    let id = format!("add-instead-of-multiplying-{}", &fix[..8]);
    let case = repo.read(format!("eval/cases/{id}.toml"));
    assert!(case.contains("add.sh printed the product."), "{case}");
    assert!(!case.contains("Signed-off-by"), "{case}");
    assert!(case.contains("protected = [\"tests/add.sh\"]"), "{case}");
    repo.runner(&["eval", "list"])
        .success()
        .says("Add instead of multiplying");
    let again = repo
        .runner(&[&args[..], &["--json"]].concat())
        .success()
        .json();
    assert_eq!(again["cases"], 0);
    assert!(
        again["left_out"]
            .to_string()
            .contains("there is a case file for it already")
    );

    // An honest agent passes.
    let script = repo.root().join("solve.sh");
    let done = "echo '{\"status\": \"done\", \"summary\": \"x\"}' >\"$RUNNER_OUTPUT_PATH\"\n";
    fs::write(&script, format!("echo 'echo $(($1 + $2))' >add.sh\n{done}")).unwrap();
    let solve = format!("command:sh {}", script.display());
    let run = run_json(&repo, &[&id, "--executor", &solve]).success();
    assert_eq!(records(&run)[0]["outcome"], "success");
    let workspace = repo.path(format!("eval/workspaces/{id}_latest"));
    let git = |args: &[&str]| {
        let mut cmd = repo.hermetic("git");
        cmd.current_dir(&workspace).args(args);
        repo.spawn(cmd).wait()
    };
    // Neither the commit itself nor any other of the repository is there to be looked up.
    for commit in [&fix, &first] {
        git(&["cat-file", "-e", commit]).code(1);
    }
    let log = git(&["log", "--all", "--format=%s"]).success().stdout;
    assert!(
        !log.contains("Add instead") && log.contains("Workspace of the case"),
        "{log}"
    );
    assert!(workspace.join("tests/add.sh").is_file());

    // One that weakens the tests does not: they are protected, and laid down afresh.
    fs::write(&script, format!("echo true >tests/add.sh\n{done}")).unwrap();
    let run = run_json(&repo, &[&id, "--executor", &solve]).code(1);
    assert_eq!(records(&run)[0]["outcome"], "stuck");
}

#[test]
fn tests_are_laid_down_afresh_before_the_check() {
    let History { repo, first, .. } = history();
    let range = format!("{first}..HEAD");
    repo.runner(&["eval", "from-git", &range, "--check", "sh run-tests.sh"])
        .success();
    let name = fs::read_dir(repo.path("eval/cases"))
        .unwrap()
        .flatten()
        .map(|it| it.file_name().into_string().unwrap())
        .next()
        .unwrap();
    let path = format!("eval/cases/{name}");
    let text = repo.read(&path);
    // With nothing protected and a guard that asks for nothing the session's edits stay.
    let weak = text
        .replace("protected = [\"tests/add.sh\"]", "protected = []")
        .replacen("\"run-tests.sh\"", "\"-c\", \"true\"", 1);
    assert_ne!(text, weak);
    repo.write(&path, weak);
    let script = repo.root().join("cheat.sh");
    let elsewhere = repo.root().join("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    let link = format!("rm -r tests && ln -s '{}' tests\n", elsewhere.display());
    let done = "echo '{\"status\": \"done\", \"summary\": \"x\"}' >\"$RUNNER_OUTPUT_PATH\"\n";
    fs::write(&script, link + done).unwrap();
    let cheat = format!("command:sh {}", script.display());
    let id = name.trim_end_matches(".toml");
    let run = run_json(&repo, &[id, "--executor", &cheat]).code(1);
    assert_eq!(records(&run)[0]["outcome"], "fail", "{}", run.describe());
    assert_eq!(fs::read_dir(&elsewhere).unwrap().count(), 0);
}

#[test]
fn ranges_and_checks_that_cannot_be_are_told() {
    let History { repo, first, .. } = history();
    repo.runner(&["eval", "from-git", "HEAD"])
        .code(1)
        .says("\"HEAD\" is not a range of commits");
    repo.runner(&["eval", "from-git", "nowhere..HEAD"])
        .code(1)
        .says("there is no commit \"nowhere\"");
    let range = format!("{first}..HEAD");
    repo.runner(&["eval", "from-git", &range, "--dry-run"])
        .success()
        .says("3 left out: no way to run its tests was found (name one with --check)");
    repo.runner(&[
        "eval",
        "from-git",
        &range,
        "--dry-run",
        "--check",
        "sh run-tests.sh",
        "--setup",
        "false",
    ])
    .success()
    .says("its tests could not be run: setup: exit 1");
    repo.runner(&["eval", "from-git", &range, "--tests", "./x"])
        .code(1)
        .says("--tests:");
}
