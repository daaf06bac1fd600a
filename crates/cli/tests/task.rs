//! `runner task` and `runner ledger`: the whole protocol, by hand.

#![allow(clippy::unwrap_used)] // A test that cannot go on has failed.

use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::os::unix::process::CommandExt as _;

use runner_testkit::{TestPostgres, TestRepo, TestRun};
use serde_json::{Value, json};

fn project() -> TestRepo {
    let mut repo = TestRepo::new(env!("CARGO_BIN_EXE_runner"));
    repo.init_run("# Ship it\n\nAll.\n", &["true"]);
    repo
}

#[track_caller]
fn json_of(repo: &TestRepo, args: &[&str]) -> Value {
    let value = repo.runner(&[args, &["--json"]].concat()).success().json();
    assert_eq!(value["schema_version"], 1, "{value}");
    value
}

/// The code of a refusal, which `--json` and people see alike.
#[track_caller]
fn refused(repo: &TestRepo, args: &[&str], code: &str) -> TestRun {
    let error = repo.runner(&[args, &["--json"]].concat()).code(1).json();
    assert_eq!(error["error"]["code"], code, "{error}");
    assert!(error["error"]["details"].is_object(), "{error}");
    repo.runner(args).code(1).says(&format!("error: {code}: "))
}

fn packet(repo: &TestRepo, task: &str) -> String {
    let text = json!({
        "schema_version": "1.0.0", "run_id": format!("{task}-1"), "task_id": task,
        "status": "done", "changes": [], "worklog_path": "worklog.md",
        "notes_for_orchestrator": ["the key was ghp_0123456789abcdefghij0123"],
        "acceptance_check": [{"criterion": "guard", "status": "pass", "evidence": "exit 0"}],
    });
    let name = format!("{task}.json");
    repo.write(&name, text.to_string());
    name
}

/// From `add` to `done`, with judge and merge, every step a command.
fn whole_protocol(repo: &TestRepo) {
    repo.runner(&["task", "add", "a", "--scope", "src/**", "--title", "Do it"])
        .success();
    repo.runner(&["task", "add", "b", "--scope", "docs", "--depends", "a"])
        .success();
    let why = json_of(repo, &["why", "b"]);
    assert_eq!(
        (&why["why"], &why["state"]),
        (&json!("dependency"), &json!("todo"))
    );

    let start = ["task", "start", "--owner", "w", "--key", "k1"];
    let claimed = json_of(repo, &start)["claimed"].clone();
    assert_eq!(claimed["assignment"]["task"]["lock_scope"], json!(["src"]));
    assert_eq!(json_of(repo, &start)["claimed"]["token"], claimed["token"]);
    repo.runner(&["task", "start", "--owner", "w2"])
        .code(2)
        .says("nothing can start now");
    let lease = ["--owner", "w", "--token", "1"];
    let with = |args: &[&'static str]| [args, &lease[..]].concat();
    repo.runner(&with(&["task", "heartbeat", "a"])).success();
    let stale = ["task", "heartbeat", "a", "--owner", "w", "--token", "9"];
    refused(repo, &stale, "CONCURRENCY_CONFLICT");

    let packet = packet(repo, "a");
    let result = ["--success", "--result", "c0ffee", "--packet", &packet];
    let finish = [&with(&["task", "finish", "a"])[..], &result].concat();
    let finished = json_of(repo, &finish);
    assert_eq!(finished["blockers"][0]["code"], "awaiting_judge");
    assert_eq!(json_of(repo, &finish)["replayed"], true);

    let start = ["task", "start", "--owner", "j", "--purpose"];
    repo.runner(&[&start[..], &["judge"]].concat()).success();
    let judge = ["task", "finish", "a", "--owner", "j", "--token"];
    let approve = [&judge[..], &["2", "--approve", "--packet", &packet]].concat();
    repo.runner(&approve).success();
    let merge = [&start[..], &["merge", "--base", "main"]].concat();
    repo.runner(&merge).success();
    let intent = ["3", "--intent", "old", "new", "--packet", &packet];
    repo.runner(&[&judge[..], &intent].concat()).success();
    let cancel = ["task", "cancel", "a", "--reason", "too late"];
    refused(repo, &cancel, "CONCURRENCY_CONFLICT");
    repo.runner(&[&judge[..], &["3", "--settle", "merged"]].concat())
        .success();

    let shown = repo.runner(&["task", "show", "a"]).success().stdout;
    assert!(shown.starts_with("a: done  Do it\n"), "{shown}");
    for word in [
        "created by person",
        "claimed by w",
        "approved by j",
        "merged by j",
    ] {
        assert!(shown.contains(word), "{word} in {shown}");
    }
    refused(
        repo,
        &["task", "start", "a", "--owner", "w"],
        "INVALID_TRANSITION",
    );
    let b = json_of(repo, &["task", "start", "--owner", "w"]);
    assert_eq!(b["claimed"]["task"]["id"], "b");
    assert_eq!(json_of(repo, &["ledger", "check"])["clean"], true);
}

#[test]
fn the_whole_protocol_on_the_file_of_the_project() {
    let repo = project();
    whole_protocol(&repo);
    assert!(repo.exists(".runner/fleet/ledger.db"));
    let status = repo.git(&["status", "--porcelain", ".runner/fleet"]);
    assert_eq!(status.trim(), "", "the ledger is no part of the project");
}

#[test]
fn the_whole_protocol_on_a_server() {
    let server = TestPostgres::start(false);
    server.create_database("fleet", None);
    let mut repo = project();
    repo.env("RUNNER_STORE", server.url("fleet"));
    whole_protocol(&repo);
    assert!(!repo.exists(".runner/fleet/ledger.db"));
}

#[test]
fn a_failure_cools_down_and_a_retry_makes_one_successor() {
    let repo = project();
    repo.runner(&["task", "add", "a", "--scope", "src"])
        .success();
    repo.runner(&["task", "start", "a", "--owner", "w"])
        .success();
    let failed = ["--failed", "env", "--note", "no network"];
    let finish = ["task", "finish", "a", "--owner", "w", "--token", "1"];
    let task = json_of(&repo, &[&finish[..], &failed].concat())["task"].clone();
    assert_eq!(
        (&task["state"], &task["blocker"]["code"]),
        (&json!("blocked"), &json!("cooldown"))
    );
    let waits = json_of(&repo, &["task", "retry", "a"]);
    assert_eq!(waits["answer"], "unchanged", "its time has not come");
    assert_eq!(json_of(&repo, &["why", "a"])["why"], "cooldown");
    repo.runner(&["task", "cancel", "a", "--reason", "no"])
        .success();
    let retried = json_of(&repo, &["task", "retry", "a", "--as", "a2"]);
    assert_eq!(retried["created"]["rework_of"], "a");
    refused(&repo, &["task", "retry", "a"], "INVALID_TRANSITION").says("a2");
    let events = json_of(&repo, &["task", "events", "a"]);
    assert_eq!(events["events"].as_array().unwrap().len(), 5);
}

/// A folder that everybody may read and nobody may write, root aside.
struct Shelf {
    folder: tempfile::TempDir,
}

impl Shelf {
    fn new() -> Shelf {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("shelf")).unwrap();
        // Another user may not get to where this one was built.
        let bin = env!("CARGO_BIN_EXE_runner");
        std::fs::copy(bin, folder.path().join("runner")).unwrap();
        Shelf { folder }
    }

    fn path(&self, name: &str) -> String {
        let path = self.folder.path().join("shelf").join(name);
        path.to_str().unwrap().to_owned()
    }

    fn lock(&self, locked: bool) {
        let (folder, file) = if locked {
            (0o555, 0o444)
        } else {
            (0o755, 0o644)
        };
        let shelf = self.folder.path().join("shelf");
        let mode = |path: &std::path::Path, mode: u32| {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
        };
        mode(self.folder.path(), 0o755);
        for entry in std::fs::read_dir(&shelf).unwrap() {
            mode(&entry.unwrap().path(), file);
        }
        mode(&shelf, folder);
    }

    /// The command as somebody who is not root.
    fn runner(&self, repo: &TestRepo, args: &[&str]) -> TestRun {
        let mut cmd = repo.hermetic(self.folder.path().join("runner"));
        cmd.args(args).args(["--store", &self.path("ledger.db")]);
        cmd.current_dir("/");
        if std::fs::metadata("/proc/self").unwrap().uid() == 0 {
            cmd.uid(65_534).gid(65_534);
        }
        repo.spawn(cmd).wait()
    }
}

#[test]
fn a_ledger_that_cannot_be_written_can_be_read() {
    let repo = project();
    let shelf = Shelf::new();
    let store = shelf.path("ledger.db");
    repo.runner(&["task", "add", "a", "--scope", "src", "--store", &store])
        .success();
    let exported = repo.runner(&["ledger", "export", "--store", &store]);
    shelf.lock(true);
    for (args, says) in [
        (&["task", "list"][..], "todo"),
        (&["task", "show", "a"], "created"),
        (&["task", "events", "a"], "created"),
        (&["task", "why", "a"], "a"),
        (&["ledger", "check"], "everything fits"),
        (&["ledger", "rebuild", "--check"], "1 tasks"),
    ] {
        shelf.runner(&repo, args).success().says(says);
    }
    let read = shelf.runner(&repo, &["ledger", "export"]).success();
    assert_eq!(read.stdout, exported.success().stdout);
    shelf
        .runner(&repo, &["task", "cancel", "a", "--reason", "no"])
        .code(1)
        .says("STORE_READ_ONLY")
        .says("only read");

    // Changes that are still in the log are not left out: that is said.
    shelf.lock(false);
    std::fs::write(shelf.path("ledger.db-wal"), "changes").unwrap();
    shelf.lock(true);
    shelf
        .runner(&repo, &["task", "list"])
        .code(1)
        .says("STORE_READ_ONLY")
        .says("copy both files");
    shelf.lock(false);
}

#[test]
fn an_export_comes_back_the_same() {
    let repo = project();
    whole_protocol(&repo);
    repo.runner(&["ledger", "export", "all.jsonl"]).success();
    let exported = repo.read("all.jsonl");
    assert!(!exported.contains("ghp_"), "a secret was stored");
    refused(
        &repo,
        &["ledger", "import", "all.jsonl"],
        "LEDGER_INCONSISTENT",
    );
    repo.runner(&["ledger", "import", "all.jsonl", "--store", "copy.db"])
        .success();
    let again = repo.runner(&["ledger", "export", "--store", "copy.db"]);
    assert_eq!(again.success().stdout, exported);
    let rebuilt = json_of(&repo, &["ledger", "rebuild", "--store", "copy.db"]);
    assert_eq!(
        (&rebuilt["tasks"], &rebuilt["repaired"]),
        (&json!(2), &json!(0))
    );
    repo.runner(&["ledger", "rebuild", "--check"]).success();
}

#[test]
fn what_was_typed_wrongly_is_said() {
    let repo = project();
    refused(
        &repo,
        &["task", "add", "a b", "--scope", "src"],
        "SCHEMA_INVALID",
    );
    refused(
        &repo,
        &["task", "add", "a", "--scope", "../x"],
        "SCHEMA_INVALID",
    );
    let unknown = ["task", "add", "a", "--scope", "src", "--depends", "nobody"];
    refused(&repo, &unknown, "MISSING_REQUIRED_INPUT");
    refused(&repo, &["task", "show", "nobody"], "MISSING_REQUIRED_INPUT");
    refused(
        &repo,
        &["task", "list", "--state", "sleeping"],
        "SCHEMA_INVALID",
    );
    let nowhere = "postgres://u:hush@127.0.0.1:1/db";
    let run = refused(
        &repo,
        &["task", "list", "--store", nowhere],
        "STORE_UNAVAILABLE",
    );
    assert!(!run.stderr.contains("hush"), "{}", run.stderr);
    repo.runner(&["task", "list", "--store", "mysql://u:hush@h/db"])
        .code(1)
        .says("names no store");
    repo.write(
        "broken.db",
        "this is no database, and long enough to be sure of that",
    );
    refused(
        &repo,
        &["task", "list", "--store", "broken.db"],
        "STORE_DAMAGED",
    );
    repo.runner(&["why", "nobody"]).code(1);
    let empty = TestRepo::empty(env!("CARGO_BIN_EXE_runner"));
    empty
        .runner(&["task", "list"])
        .code(1)
        .says("name a ledger with --store");
}

fn add(repo: &TestRepo, id: &str, more: &[&str]) {
    let scope = format!("src/{id}");
    repo.runner(&[&["task", "add", id, "--scope", &scope], more].concat())
        .success();
}

fn start(repo: &TestRepo, id: &str, owner: &str) {
    repo.runner(&["task", "start", id, "--owner", owner])
        .success();
}

/// Whoever lost an answer asks again, and meanwhile the task went on.
#[test]
fn a_lost_answer_is_given_again_whatever_happened_since() {
    let repo = project();
    add(&repo, "a", &[]);
    start(&repo, "a", "w");
    let lost = [
        "task", "finish", "a", "--owner", "w", "--token", "1", "--lost",
    ];
    repo.runner(&lost).success();
    start(&repo, "a", "v");
    assert_eq!(json_of(&repo, &lost)["replayed"], true);
    repo.runner(&["task", "events", "a"])
        .success()
        .says("interrupted by w: the session was cut off");

    let packet = packet(&repo, "a");
    let text = repo.read(&packet).replace("a-1", "a-2");
    repo.write(&packet, text);
    let finish = ["task", "finish", "a", "--owner", "v", "--token"];
    let success = ["2", "--success", "--result", "c", "--packet", &packet];
    repo.runner(&[&finish[..], &success].concat()).success();
    let judge = ["task", "start", "a", "--owner", "v", "--purpose"];
    repo.runner(&[&judge[..], &["judge"]].concat()).success();
    let approve = ["3", "--approve", "--packet", &packet];
    repo.runner(&[&finish[..], &approve].concat()).success();
    let merge = [&judge[..], &["merge"]].concat();
    refused(&repo, &merge, "MISSING_REQUIRED_INPUT").says("--base");
    repo.runner(&[&merge[..], &["--base", "main"]].concat())
        .success();
    let intent = ["4", "--intent", "old", "new", "--packet", &packet];
    repo.runner(&[&finish[..], &intent].concat()).success();
    let settle = [&finish[..], &["4", "--settle", "merged"]].concat();
    repo.runner(&settle).success();
    let again = json_of(&repo, &settle);
    assert_eq!(
        (&again["replayed"], &again["task"]["state"]),
        (&json!(true), &json!("done"))
    );
}

#[test]
fn a_named_retry_is_answered_again() {
    let repo = project();
    add(&repo, "a", &[]);
    repo.runner(&["task", "cancel", "a", "--reason", "not now"])
        .success();
    let shown = repo.runner(&["task", "show", "a"]).success().stdout;
    assert!(shown.contains("canceled by person: not now"), "{shown}");
    let retry = ["task", "retry", "a", "--request-id", "again"];
    let first = json_of(&repo, &retry);
    let again = json_of(&repo, &retry);
    assert_eq!(again["replayed"], true);
    assert_eq!(again["created"]["id"], first["created"]["id"]);
    assert_eq!(first["created"]["id"], "a-r2");
    repo.runner(&["why", "a"]).success().says("a-r2 goes on");

    // One that only goes on: there is nothing left to do the second time, and yet.
    add(&repo, "b", &["--role", ""]);
    let parked = repo.runner(&["task", "retry", "b"]).success();
    assert!(parked.stdout.contains("the issue says no role"));
    let retry = [
        "task",
        "retry",
        "b",
        "--role",
        "worker",
        "--request-id",
        "b1",
    ];
    assert_eq!(json_of(&repo, &retry)["task"]["state"], "todo");
    assert_eq!(json_of(&repo, &retry)["replayed"], true);
    let long = "x".repeat(64);
    add(&repo, &long, &[]);
    repo.runner(&["task", "cancel", &long, "--reason", "no"])
        .success();
    refused(&repo, &["task", "retry", &long], "MISSING_REQUIRED_INPUT").says("--as ID");
}

#[test]
fn a_person_corrects_a_packet_and_waits_for_a_quota() {
    let repo = project();
    add(&repo, "a", &[]);
    let wrong = ["task", "block", "a", "--code", "SCOPE_VIOLATION"];
    let wrong = [&wrong[..], &["--reason", "it needs docs too"]].concat();
    let retry = ["task", "retry", "a"];
    let wider = [&retry[..], &["--scope", "src/a", "--scope", "docs/**"]].concat();
    refused(&repo, &wider, "INVALID_TRANSITION");
    for _ in 0..2 {
        repo.runner(&wrong).success();
        refused(&repo, &retry, "MISSING_REQUIRED_INPUT").says("name its scope");
        let task = json_of(&repo, &wider)["task"].clone();
        assert_eq!(
            (&task["state"], &task["lock_scope"]),
            (&json!("todo"), &json!(["docs", "src/a"]))
        );
    }
    start(&repo, "a", "w");
    let quota = ["task", "finish", "a", "--owner", "w", "--token", "1"];
    let quota = [&quota[..], &["--quota", "team", "--until"]].concat();
    refused(&repo, &[&quota[..], &["soon"]].concat(), "SCHEMA_INVALID");
    let until = [&quota[..], &["2100-01-31T18:00:00Z"]].concat();
    let blocker = json_of(&repo, &until)["task"]["blocker"].clone();
    assert_eq!(
        (&blocker["code"], &blocker["retry_at"]),
        (&json!("quota_wait"), &json!(4_105_101_600_000_u64))
    );
    assert_eq!(json_of(&repo, &until)["replayed"], true);
}

#[test]
fn a_name_that_is_wrong_is_not_an_empty_ledger() {
    let repo = project();
    for args in [
        &["task", "list"][..],
        &["ledger", "check"],
        &["ledger", "export"],
    ] {
        repo.runner(&[args, &["--store", "no/such.db"]].concat())
            .code(1)
            .says("there is no ledger no/such.db");
    }
    assert!(!repo.exists("no"));
    repo.runner(&["task", "list"]).success().says("no tasks");
    add(&repo, "a", &[]);
    repo.runner(&["task", "list", "--state", "done"])
        .success()
        .says("no such tasks");
    repo.runner(&["task", "list", "--limit", "0"]).code(2);
    refused(&repo, &["task", "list", "--state", "x"], "SCHEMA_INVALID").says("use todo, ");
    repo.runner(&["why", "nobody"]).code(1).says("task list");
    let finish = ["task", "finish", "nobody", "--owner", "w", "--token", "1"];
    let finish = [&finish[..], &["--lost"]].concat();
    refused(&repo, &finish, "MISSING_REQUIRED_INPUT").says("nobody");
    let cancel = ["task", "cancel", "nobody", "--reason", "x"];
    refused(&repo, &cancel, "MISSING_REQUIRED_INPUT").says("nobody");
    repo.runner(&["ledger", "export", "all.jsonl"]).success();
    repo.runner(&["ledger", "export", "all.jsonl"])
        .code(1)
        .says("name a new file");
}
