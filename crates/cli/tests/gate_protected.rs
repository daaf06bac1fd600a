//! Files that redefine a guard, for each kind of guard and against the real tool: with nothing
//! protected the deed makes a red guard green, with what `init` writes it is refused, does not
//! count, or is told. Honest changes beside them go through.

#![allow(clippy::unwrap_used)] // A test that cannot go on has failed.

mod agent_support;
mod gate_support;
mod init_support;
mod scenario;

use std::collections::BTreeMap;
use std::path::Path;

use gate_support::{GuardedProject, go, javascript, python, recipes, rust};
use runner_testkit::TestRepo;
use scenario::{GOAL, bare};
use serde_json::{Value, json};

/// All of them, as docs/guards.md counts them.
const PROJECTS: [&GuardedProject; 16] = [
    &recipes::MAKE,
    &recipes::JUST,
    &recipes::SCRIPTS,
    &python::UNITTEST,
    &python::PYTEST,
    &python::PYTEST_OF_A_FOLDER,
    &rust::CARGO,
    &rust::CARGO_WORKSPACE,
    &rust::NEXTEST,
    &javascript::NPM,
    &javascript::JEST,
    &javascript::JEST_WITH_SETUP,
    &javascript::VITEST,
    &javascript::NODE,
    &go::GO,
    &go::GO_PACKAGES,
];

#[test]
fn make() {
    recipes::MAKE.check();
}

#[test]
fn just() {
    recipes::JUST.check();
}

#[test]
fn several_programs() {
    recipes::SCRIPTS.check();
}

#[test]
fn unittest() {
    python::UNITTEST.check();
}

#[test]
fn pytest() {
    python::PYTEST.check();
}

#[test]
fn pytest_of_a_folder() {
    python::PYTEST_OF_A_FOLDER.check();
}

#[test]
fn cargo() {
    rust::CARGO.check();
}

#[test]
fn cargo_workspace() {
    rust::CARGO_WORKSPACE.check();
}

#[test]
fn npm() {
    javascript::NPM.check();
}

#[test]
fn jest() {
    javascript::JEST.check();
}

#[test]
fn jest_with_setup() {
    javascript::JEST_WITH_SETUP.check();
}

#[test]
fn vitest() {
    javascript::VITEST.check();
}

#[test]
fn node_test() {
    javascript::NODE.check();
}

#[test]
fn go() {
    go::GO.check();
}

#[test]
fn go_packages() {
    go::GO_PACKAGES.check();
}

/// Building it takes minutes, so it is used where the machine has it.
#[test]
fn nextest() {
    if has_program("cargo-nextest") {
        rust::NEXTEST.check();
    } else {
        eprintln!("skipped: there is no cargo-nextest on the PATH");
    }
}

fn has_program(name: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(name).is_file())
}

/// The table in the docs says what is tried here.
#[test]
fn the_docs_count_the_same() {
    let mut counts: BTreeMap<&str, [usize; 4]> = BTreeMap::new();
    for project in PROJECTS {
        let row = counts.entry(project.kind).or_default();
        row[0] += project.redefined.len();
        row[1] += project.unproven.len();
        row[2] += project.told.len();
        row[3] += project.honest.len();
    }
    let cheats: usize = PROJECTS.iter().map(|project| project.cheats()).sum();
    assert!(cheats >= 40, "{cheats}");
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/guards.md");
    let page = std::fs::read_to_string(page).unwrap();
    let mut all = [0; 4];
    for (kind, row) in counts {
        let line = format!(
            "| {kind} | {} | {} | {} | {} |",
            row[0], row[1], row[2], row[3]
        );
        assert!(page.contains(&line), "docs/guards.md lacks the row\n{line}");
        for (sum, number) in all.iter_mut().zip(row) {
            *sum += number;
        }
    }
    let line = format!(
        "| all | {} | {} | {} | {} |",
        all[0], all[1], all[2], all[3]
    );
    assert!(page.contains(&line), "docs/guards.md lacks the row\n{line}");
}

fn step(repo: &TestRepo, script: &str) -> Value {
    repo.agent(&format!("{script}\nout done 'did it'"));
    repo.runner(&["step", "--json"]).success().json()
}

/// All of it is put back at once, whatever the file has become.
#[test]
fn several_values_of_one_file() {
    let mut repo = bare();
    repo.write(
        "package.json",
        "{\"scripts\": {\"test\": \"x\"}, \"overrides\": {}}\n",
    );
    repo.commit_all("Add the project");
    repo.config(|config| {
        config
            .set(
                "guard.protected_values",
                json!(["package.json:/scripts", "package.json:/overrides"]),
            )
            .set("max_attempts_default", 50);
    });
    repo.start_run(GOAL, &["false"]);
    for text in [
        "{\"scripts\": {}, \"overrides\": {\"a\": \"b\"}}",
        "{broken",
        "\\357\\273\\277{}",
    ] {
        let report = step(&repo, &format!("printf '{text}' > package.json"));
        assert_eq!(report["class"], "agent_error", "{report}");
        assert_eq!(
            repo.git(&["show", "HEAD:package.json"]),
            "{\"scripts\": {\"test\": \"x\"}, \"overrides\": {}}"
        );
    }
}

/// A guard that is not defined yet may be written once, and everybody is told.
#[test]
fn an_agent_that_writes_its_own_guard() {
    let mut repo = bare();
    repo.config(|config| {
        config
            .set(
                "guard.protected",
                json!(["Makefile", "makefile", "GNUmakefile", "pytest.ini"]),
            )
            .set("max_attempts_default", 50);
    });
    repo.start_run(GOAL, &["make", "-s", "test"]);
    // A file that defines something else is no exception.
    let report = step(&repo, "echo x > pytest.ini");
    assert_eq!(report["class"], "agent_error", "{report}");
    // Until a guard has passed with it, it may change.
    let report = step(&repo, "printf 'test:\\n\\tfalse\\n' > Makefile");
    assert_eq!(
        (&report["class"], &report["guard"]),
        (&json!("ok"), &json!("fail")),
        "{report}"
    );
    repo.agent("add_child root a 1 A; add_child root b 2 B; out decomposed 'in two'");
    repo.runner(&["step"]).success();
    let report = step(&repo, "printf 'test:\\n\\ttrue\\n' > Makefile");
    assert_eq!(report["guard"], "pass", "{report}");
    let report = step(&repo, "printf 'test:\\n' > Makefile");
    assert_eq!(report["class"], "agent_error", "{report}");
    let report = step(&repo, "printf 'test:\\n' > GNUmakefile");
    assert_eq!(report["class"], "agent_error", "{report}");
    let report = step(&repo, "echo work > work.txt");
    assert_eq!(report["guard"], "pass", "{report}");

    let words = "the agent wrote its own guard";
    let log = repo.runner(&["log"]).success();
    assert!(log.stdout.contains(words), "{}", log.describe());
    let report = repo.runner(&["report", "--json"]).success().json();
    let touched = report["touched"].to_string();
    assert!(touched.contains("guard_written"), "{report:#}");
    repo.runner(&["land"]).success().says(words);
}
