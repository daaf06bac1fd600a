//! What the hostile tests share: sessions that misbehave one after the other in
//! one run, planted code that must never run, and what must hold after each.
#![allow(dead_code)] // each test file uses its own part

#[path = "../agent_support/mod.rs"]
pub(crate) mod agent_support;
pub(crate) mod planted;

use std::fs;
use std::path::{Path, PathBuf};

use runner_testkit::{TestRepo, TestRun, write_program};
use serde_json::{Value, json};

use agent_support::contained::{ALL, with_mechanism};

pub(crate) const BIN: &str = env!("CARGO_BIN_EXE_runner");

/// A session that does what was asked of it.
pub(crate) const GOOD: &str = "echo good > good.txt; out done 'made good.txt'";

/// One session that misbehaves, and what the runner must make of it.
pub(crate) struct Case {
    pub(crate) name: &'static str,
    /// Played by the agent, with `out done` after it unless it writes the output itself.
    pub(crate) script: &'static str,
    /// The class in the step's JSON.
    pub(crate) class: &'static str,
    /// Something that findings, notes or the error must say.
    pub(crate) says: &'static str,
}

/// A case.
pub(crate) const fn case(
    name: &'static str,
    class: &'static str,
    says: &'static str,
    script: &'static str,
) -> Case {
    Case {
        name,
        script,
        class,
        says,
    }
}

/// A work tree of another repository, in the place where a repository was.
pub(crate) fn linked_to(mechanism: &str, main: &TestRepo) -> TestRepo {
    let repo = under(mechanism);
    fs::remove_dir_all(repo.path("")).unwrap();
    let place = repo.path("").display().to_string();
    main.git(&["worktree", "add", "-q", "-b", "work", &place]);
    repo
}

/// Adds a repository of this machine as a submodule.
pub(crate) fn add_submodule(repo: &TestRepo, inner: &TestRepo, at: &str) {
    let from = inner.path("").display().to_string();
    let allow = "protocol.file.allow=always";
    repo.git(&["-c", allow, "submodule", "--quiet", "add", &from, at]);
}

/// A run whose guard plays `guard.sh` of the home folder once that is there.
pub(crate) fn with_guard_at_home(
    mechanism: &str,
    prepare: impl FnOnce(&mut TestRepo),
) -> (TestRepo, PathBuf) {
    let repo = started(under(mechanism), |repo| {
        prepare(repo);
        let script = "[ -f \"$HOME/guard.sh\" ] || exit 0\n. \"$HOME/guard.sh\"\nexit 0\n";
        repo.write("guard.sh", script);
        repo.commit_all("guard");
    });
    let config = repo.read(".runner/state/config.toml");
    let config = config.replace("\"true\"", "\". ./guard.sh\"");
    repo.write(".runner/state/config.toml", config);
    repo.commit_all("use it");
    let script = repo.root().join("home/guard.sh");
    (repo, script)
}

/// What every hostile session is tried under, one after the other.
pub(crate) fn all() -> [&'static str; 3] {
    ALL
}

/// A repository whose sessions run under a mechanism. The agent's own folder can be written by
/// each, so that a script can do the same under all.
pub(crate) fn under(mechanism: &str) -> TestRepo {
    let mut repo = with_mechanism(mechanism);
    let writable = json!([repo.agent_dir()]);
    repo.config(|config| {
        config.set("sandbox.writable", writable);
    });
    repo
}

/// A repository with a few files and a run that has room for many attempts, without a sandbox.
pub(crate) fn repo() -> TestRepo {
    repo_under("none")
}

/// The same, whose sessions run under a mechanism.
pub(crate) fn repo_under(mechanism: &str) -> TestRepo {
    started(under(mechanism), |_| {})
}

/// Fails unless every session of the run was contained by this mechanism. What contained one that
/// was killed with its runner is not known afterwards.
#[track_caller]
pub(crate) fn assert_contained(repo: &TestRepo, mechanism: &str) {
    let next = repo.run_state()["next_iter"].as_u64().unwrap();
    let metas = (1..next).map(|iter| repo.meta(iter));
    let recorded: Vec<Value> = metas
        .filter(|meta| meta["class"] != "runner_error")
        .collect();
    assert!(!recorded.is_empty(), "{mechanism}: no session ran");
    for meta in recorded {
        assert_eq!(meta["sandbox"], mechanism, "{meta:#}");
    }
}

/// The same in this repository, with more done before the run starts.
pub(crate) fn started(mut repo: TestRepo, prepare: impl FnOnce(&mut TestRepo)) -> TestRepo {
    repo.write("src/main.txt", "one\ntwo\n");
    repo.write("src/deep/er/file.txt", "deep\n");
    repo.write("ci.sh", "exit 0\n");
    repo.write("data.bin", b"\x00\xff\r\n\n".as_slice());
    repo.commit_all("Files");
    repo.config(|config| {
        config.set("max_attempts_default", 90).set(
            "guard.protected",
            serde_json::json!(["ci.sh", "checks/**", "*.lock"]),
        );
    });
    prepare(&mut repo);
    repo.agent(GOOD);
    plant(&repo);
    repo.start_run("# A goal\n\nMake it good.\n", &["sh", "-c", "true"])
        .success();
    repo
}

/// Writes `evil.sh` to the agent's folder: it leaves a mark wherever it runs, and
/// passes stdin on, so that git does not even notice.
pub(crate) fn plant(repo: &TestRepo) {
    let script = format!(
        "#!/bin/sh\necho \"$0 $* in $(pwd)\" >> '{}'\ncat\nexit 0\n",
        mark(repo).display()
    );
    for name in [
        "evil.sh",
        "pre-commit",
        "post-index-change",
        "reference-transaction",
        "post-checkout",
    ] {
        let path = repo.agent_dir().join(name);
        write_program(&path, &script);
    }
}

/// Where planted code leaves its mark.
pub(crate) fn mark(repo: &TestRepo) -> PathBuf {
    repo.root().join("planted-code-ran")
}

/// Fails if planted code has run.
#[track_caller]
pub(crate) fn assert_never_ran(repo: &TestRepo, label: &str) {
    if let Ok(text) = fs::read_to_string(mark(repo)) {
        panic!("{label}: planted code ran:\n{text}");
    }
}

/// Takes a step and returns what it printed as JSON, whatever the exit code.
#[track_caller]
pub(crate) fn step(repo: &TestRepo) -> (TestRun, Value) {
    let run = repo.runner(&["step", "--json"]);
    let json = run.json();
    (run, json)
}

/// Plays the cases one after the other in one run, then a good session.
#[track_caller]
pub(crate) fn play(repo: &TestRepo, cases: &[Case]) {
    for case in cases {
        play_one(repo, case);
    }
    finish(repo);
}

/// Plays one case and checks all that must hold afterwards.
#[track_caller]
pub(crate) fn play_one(repo: &TestRepo, case: &Case) -> Value {
    let iter = repo.run_state()["next_iter"].as_u64().unwrap();
    let before = attempts(repo);
    let script = if ["out done", "out retry"]
        .iter()
        .any(|word| case.script.contains(word))
    {
        case.script.to_owned()
    } else {
        format!("{}\nout done 'did it'", case.script)
    };
    repo.agent_at(iter, &script);
    let (run, json) = step(repo);
    let context = || format!("case {:?}: {}", case.name, run.describe());
    assert_eq!(json["class"], case.class, "{}", context());
    assert_eq!(json["iter"], iter, "{}", context());
    let wanted = i32::from(case.class == "runner_error");
    assert_eq!(run.code, Some(wanted), "{}", context());
    assert!(
        run.stdout.contains(case.says),
        "should say {:?}, {}",
        case.says,
        context()
    );
    let used =
        u64::from(case.class == "agent_error" || case.class == "ok" && json["status"] == "retry");
    assert_eq!(attempts(repo), before + used, "attempts: {}", context());
    check(repo, case.name);
    json
}

/// What must hold after every step.
#[track_caller]
pub(crate) fn check(repo: &TestRepo, label: &str) {
    assert_never_ran(repo, label);
    let branch = repo.git(&["symbolic-ref", "--short", "HEAD"]);
    assert_eq!(branch, format!("runner/{}", repo.run_id()), "{label}");
    let status = repo.git(&["--no-optional-locks", "status", "--porcelain", "-uall"]);
    assert!(
        status.is_empty(),
        "{label}: the work tree is not clean:\n{status}"
    );
    let files = repo.git(&["-c", "core.quotePath=false", "ls-files"]);
    for local in [".runner/iterations/", ".runner/context/"] {
        assert!(
            !files.contains(local),
            "{label}: {local} is in the index:\n{files}"
        );
    }
}

/// A good session at the end: it passes, everything is valid and can be replayed.
#[track_caller]
pub(crate) fn finish(repo: &TestRepo) {
    let iter = repo.run_state()["next_iter"].as_u64().unwrap();
    repo.agent_at(iter, GOOD);
    let (run, json) = step(repo);
    assert_eq!(run.code, Some(0), "the step after: {}", run.describe());
    assert_eq!(json["guard"], "pass", "{}", run.describe());
    check(repo, "the step after");
    repo.assert_clean();
    assert_eq!(repo.node("root")["passes"], true);
    repo.runner(&["validate"]).success();
    repo.runner(&["replay"]).success();
    repo.runner(&["select"]).code(2);
}

/// Attempts of the root; those of a tree that cannot be read are the same as before.
fn attempts(repo: &TestRepo) -> u64 {
    repo.node("root")["attempts"].as_u64().unwrap()
}

/// Every file below a folder, for "nothing lost": it must be somewhere.
pub(crate) fn find_content(folder: &Path, wanted: &[u8]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(&next).into_iter().flatten().flatten() {
            let kind = entry.file_type().unwrap();
            if kind.is_dir() {
                folders.push(entry.path());
            } else if kind.is_file()
                && entry
                    .metadata()
                    .is_ok_and(|meta| meta.len() == wanted.len() as u64)
                && fs::read(entry.path()).is_ok_and(|bytes| bytes == wanted)
            {
                found.push(entry.path());
            }
        }
    }
    found
}
