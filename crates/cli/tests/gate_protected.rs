//! Files that redefine a guard, for each kind of guard and against the real tool: with nothing
//! protected the deed makes a red guard green, with what `init` writes it is refused, does not
//! count, or is told. Honest changes beside them go through.

#![allow(clippy::unwrap_used)] // A test that cannot go on has failed.

mod agent_support;
mod gate_support;
mod init_support;
mod scenario;

use std::fmt::Write as _;
use std::path::Path;

use gate_support::{GuardedProject, go, javascript, packages, python, recipes, rust};
use runner_testkit::TestRepo;
use scenario::{GOAL, bare};
use serde_json::{Value, json};

/// All of them, as docs/guards.md counts them.
const PROJECTS: [&GuardedProject; 27] = [
    &recipes::MAKE,
    &recipes::JUST,
    &recipes::SCRIPTS,
    &recipes::PROGRAMS,
    &recipes::LOOPS,
    &recipes::MODULES,
    &python::UNITTEST,
    &python::UNITTEST_ON_A_PATH,
    &python::PYTEST,
    &python::PYTEST_OF_A_FOLDER,
    &rust::CARGO,
    &rust::CARGO_WORKSPACE,
    &rust::NEXTEST,
    &javascript::NPM,
    &javascript::NPM_WITH_FOLDER,
    &javascript::JEST,
    &javascript::JEST_WITH_SETUP,
    &javascript::VITEST,
    &javascript::NODE,
    &packages::MOCHA,
    &packages::AVA,
    &packages::TYPESCRIPT,
    &packages::PNPM,
    &packages::YARN_CLASSIC,
    &packages::BUN,
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
fn programs() {
    recipes::PROGRAMS.check();
}

#[test]
fn loops() {
    recipes::LOOPS.check();
}

#[test]
fn modules() {
    recipes::MODULES.check();
}

#[test]
fn unittest_on_a_path() {
    python::UNITTEST_ON_A_PATH.check();
}

#[test]
fn npm_with_folder() {
    javascript::NPM_WITH_FOLDER.check();
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
fn mocha() {
    packages::MOCHA.check();
}

#[test]
fn ava() {
    packages::AVA.check();
}

#[test]
fn typescript() {
    packages::TYPESCRIPT.check();
}

#[test]
fn pnpm() {
    packages::PNPM.check();
}

#[test]
fn first_yarn() {
    packages::YARN_CLASSIC.check();
}

#[test]
fn bun() {
    packages::BUN.check();
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
    let mut rows: Vec<(&str, [usize; 4])> = Vec::new();
    for project in PROJECTS {
        if rows.last().is_none_or(|(kind, _)| *kind != project.kind) {
            rows.push((project.kind, [0; 4]));
        }
        let lists = [
            project.redefined,
            project.unproven,
            project.told,
            project.honest,
        ];
        let (_, counts) = rows.last_mut().unwrap();
        for (count, list) in counts.iter_mut().zip(lists) {
            *count += list.len();
        }
    }
    let all: Vec<usize> = (0..4)
        .map(|column| rows.iter().map(|(_, counts)| counts[column]).sum())
        .collect();
    let cheats: usize = PROJECTS.iter().map(|project| project.cheats()).sum();
    assert!(cheats >= 40 && all[3] >= cheats, "{all:?}");
    rows.push(("all", [all[0], all[1], all[2], all[3]]));
    let mut table = String::from(
        "| guard | redefined | unproven | told | honest changes |\n|---|---|---|---|---|\n",
    );
    for (kind, [redefined, unproven, told, honest]) in rows {
        let _ = writeln!(
            table,
            "| {kind} | {redefined} | {unproven} | {told} | {honest} |"
        );
    }
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/guards.md");
    let page = std::fs::read_to_string(page).unwrap();
    assert!(page.contains(&table), "docs/guards.md should have\n{table}");
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
    // One file, and no second spelling of it.
    let report = step(&repo, "printf 'test:\\n\\ttrue\\n' > GNUmakefile");
    assert_eq!(report["class"], "agent_error", "{report}");
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
