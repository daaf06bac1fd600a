//! `runner loop --detach`: begun or an error, a log, and a life of its own.

#![allow(clippy::unwrap_used)] // A test that cannot go on has failed.

mod running_support;
mod scenario;

use std::fs;
use std::os::unix::fs::symlink;

use runner_testkit::{eventually, processes_with_env, signal};
use running_support::{Detached, HOLD, LONG, activity, go, wait_for_phase, wait_for_session};
use scenario::{GOAL, bare, human_error, planned, started};
use serde_json::json;

const WORK: &str = "echo work >> work.txt; out done 'did it'";
const LOG: &str = ".runner/iterations/demo/loop.log";

#[test]
fn it_returns_when_the_loop_has_begun_and_the_loop_goes_on() {
    let repo = started(HOLD, &["true"]);
    let run = repo.runner(&["loop", "--detach"]).success();
    wait_for_session(&repo, 1);
    let log = repo.path(LOG);
    let now = activity(&repo);
    let pid = now["pid"].as_i64().unwrap();
    assert!(
        run.stdout
            .contains(&format!("pid {pid}, log {}", log.display())),
        "{}",
        run.describe()
    );
    for command in ["status", "watch", "log --follow", "stop"] {
        assert!(
            run.stderr.contains(&format!("runner {command}")),
            "{}",
            run.describe()
        );
    }
    // A session of its own, without a terminal, and nothing of the caller's open.
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let fields: Vec<&str> = stat.rsplit_once(") ").unwrap().1.split(' ').collect();
    assert_eq!((fields[3], fields[4]), (&*pid.to_string(), "0"), "{stat}");
    let stdin = fs::read_link(format!("/proc/{pid}/fd/0")).unwrap();
    assert_eq!(stdin.to_str(), Some("/dev/null"));

    assert_eq!(now["phase"], "agent", "{now}");
    assert_eq!(now["log"], log.to_str().unwrap());
    assert_eq!((&now["iter"], &now["node_id"]), (&1.into(), &"root".into()));
    assert!(now["since"].is_string() && now["phase_started_at"].is_string());
    let status = repo.runner(&["status"]).success();
    for words in ["running (pid ", "iteration 1 (root): the agent works", LOG] {
        assert!(status.stdout.contains(words), "{}", status.describe());
    }
    // Another one is refused, and leaves the log alone.
    let before = fs::read_to_string(&log).unwrap();
    let second = repo.runner(&["loop", "--detach"]);
    human_error(&second, &format!("pid {pid}"), "runner stop");
    assert_eq!(fs::read_to_string(&log).unwrap(), before);

    go(&repo);
    let now = wait_for_phase(&repo, "idle");
    assert_eq!(now["last_end"]["status"], "complete", "{now}");
    assert!(now["pid"].is_null() && now["log"].is_null());
    let text = fs::read_to_string(&log).unwrap();
    for words in [
        &format!("loop, pid {pid}, "),
        "✓   1  root  done",
        "complete: every leaf has passed",
    ] {
        assert!(text.contains(words), "{text}");
    }
    repo.assert_clean();
}

#[test]
fn it_survives_the_end_of_its_terminal() {
    let repo = started(HOLD, &["true"]);
    // A session whose leader starts the loop and stays; then all of it is hung up. Its
    // files are outside of the work tree, which must stay clean.
    let leader_file = repo.agent_dir().join("leader");
    let script = format!(
        "'{}' loop --detach; echo $$ > '{}'; while :; do sleep 1; done",
        scenario::BIN,
        leader_file.display()
    );
    let mut cmd = repo.hermetic("setsid");
    cmd.args(["--wait", "sh", "-c", &script]);
    let session = repo.spawn(cmd);
    wait_for_session(&repo, 1);
    eventually("the leader", LONG, || {
        fs::read_to_string(&leader_file).is_ok_and(|text| text.ends_with('\n'))
    });
    let leader: i64 = fs::read_to_string(&leader_file)
        .unwrap()
        .trim()
        .parse()
        .unwrap();
    let pid = activity(&repo)["pid"].as_i64().unwrap();
    // To the group of the terminal, and, for good measure, to the loop itself.
    assert!(signal("HUP", -leader));
    assert!(signal("HUP", pid));
    session.wait_within(LONG);
    assert!(!signal("0", leader), "the terminal's session is over");

    let now = activity(&repo);
    assert_eq!((&now["pid"], &now["phase"]), (&pid.into(), &"agent".into()));
    go(&repo);
    let now = wait_for_phase(&repo, "idle");
    assert_eq!(now["last_end"]["status"], "complete", "{now}");
    repo.assert_clean();
}

#[test]
fn one_that_cannot_begin_says_why() {
    let repo = planned(&["a"], WORK, &["true"]);
    repo.write(".runner/state/questions.md", "not committed\n");
    let run = repo.runner(&["loop", "--detach"]);
    human_error(&run, "uncommitted changes", "");
    assert!(run.stdout.is_empty(), "{}", run.describe());
    let run = repo.runner(&["loop", "--detach", "--json"]).code(1);
    let last = run.json_lines().pop().unwrap();
    assert_eq!(
        (&last["event"], &last["error"]["code"]),
        (&"finished".into(), &"dirty".into())
    );
    repo.git(&["checkout", "--", ".runner/state/questions.md"]);
    // Nothing to do is said, too.
    repo.runner(&["loop"]).success();
    repo.runner(&["loop", "--detach"])
        .success()
        .says("complete: every leaf has passed (0 steps)")
        .says("nothing runs in the background");
    assert!(activity(&repo)["pid"].is_null());
    let nobody = processes_with_env(&repo.root().display().to_string());
    assert!(nobody.is_empty(), "{nobody:?}");
}

#[test]
fn an_agent_that_cannot_be_started_is_told_at_once() {
    let mut repo = bare();
    repo.config(|config| {
        config.set("executor.command", json!(["no-such-agent"]));
    });
    let words = "cannot start the agent `no-such-agent`: no such file or directory";
    let hint =
        "install it, or name another agent with `runner edit config`; `runner doctor` checks";
    let run = repo.start_run(GOAL, &["true"]);
    run.says(words).says(hint);
    let run = repo.runner(&["loop", "--detach"]);
    human_error(&run, words, hint);
    run.says("no attempt was used")
        .says("nothing runs in the background");
    // By itself the loop says the same.
    repo.runner(&["loop"]).code(1).says(words).says(hint);
    // And whoever looks later is told.
    let last = format!("last error: iteration 2: {words}");
    repo.runner(&["status"]).success().says(&last);
    let status = repo.runner(&["status", "--json"]).success().json();
    assert_eq!(status["last_error"]["iter"], 2);
    let report = repo.runner(&["report", "--json"]).success().json();
    assert_eq!(report["errors"][0]["message"], words, "{report:#}");
    assert_eq!(report["errors"][0]["hint"], hint);
    for page in [&["report"][..], &["report", "--md"]] {
        repo.runner(page).success().says(words).says(hint);
    }
}

#[test]
fn stuck_keeps_its_code_and_no_run_is_an_error() {
    let mut repo = bare();
    repo.agent("out retry 'no'");
    repo.config(|config| {
        config.set("max_attempts_default", 1);
    });
    repo.init_run(GOAL, &["true"]);
    let run = repo.runner(&["loop", "--detach"]);
    human_error(&run, "runner start", "");
    repo.runner(&["start", "--no-guard-check"]).success();
    repo.runner(&["loop"]).code(3);
    repo.runner(&["loop", "--detach"]).code(3).says("stuck");
}

#[test]
fn bounds_and_json_pass_through() {
    let repo = planned(&["a", "b", "c"], WORK, &["true"]);
    let loop_ = Detached::start(
        &repo,
        &[
            "--steps",
            "2",
            "--for",
            "1h",
            "--until",
            "00:00",
            "--wait-quota",
        ],
    );
    assert_eq!(loop_.said.json()["event"], "detached");
    let now = wait_for_phase(&repo, "idle");
    assert_eq!(now["last_end"]["status"], "stopped", "{now}");
    assert_eq!(now["last_end"]["message"], "2 steps were taken, as asked");
    let log = repo.read(LOG);
    let events: Vec<serde_json::Value> = log
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let names: Vec<&str> = events
        .iter()
        .filter_map(|it| it["event"].as_str())
        .collect();
    assert_eq!(names, ["step", "step", "finished"], "{log}");
}

#[test]
fn the_log_grows_makes_way_and_cannot_be_a_trap() {
    let repo = planned(&["a", "b", "c"], WORK, &["true"]);
    let one = |repo: &_| {
        let loop_ = Detached::start(repo, &["--steps", "1"]);
        let end = wait_for_phase(repo, "idle");
        assert_eq!(end["last_end"]["status"], "stopped", "{end}");
        drop(loop_);
    };
    one(&repo);
    let first = repo.read(LOG);
    one(&repo);
    assert!(repo.read(LOG).starts_with(&first), "appended");
    fs::write(repo.path(LOG), vec![b'\n'; 2_000_000]).unwrap();
    let victim = repo.agent_dir().join("victim");
    fs::write(&victim, "untouched").unwrap();
    let older = repo.path(format!("{LOG}.1"));
    symlink(&victim, &older).unwrap();
    repo.runner(&["loop", "--detach"]).success();
    wait_for_phase(&repo, "idle");
    assert_eq!(fs::metadata(&older).unwrap().len(), 2_000_000);
    assert!(fs::metadata(repo.path(LOG)).unwrap().len() < 10_000);
    fs::remove_file(repo.path(LOG)).unwrap();
    symlink(&victim, repo.path(LOG)).unwrap();
    repo.runner(&["loop", "--detach"]).success();
    assert_eq!(fs::read_to_string(&victim).unwrap(), "untouched");
}

#[test]
fn a_killed_one_needs_no_hand() {
    let repo = started(HOLD, &["true"]);
    let loop_ = Detached::start(&repo, &[]);
    wait_for_session(&repo, 1);
    assert!(signal("KILL", loop_.pid));
    eventually("the end", LONG, || activity(&repo)["pid"].is_null());
    let now = activity(&repo);
    assert_eq!(
        (&now["cut_off"], &now["phase"]),
        (&true.into(), &"idle".into())
    );
    repo.runner(&["status"])
        .success()
        .says("cut off:    iteration 1 (root); `runner loop` settles it");
    go(&repo);
    repo.runner(&["loop", "--detach"]).success();
    let now = wait_for_phase(&repo, "idle");
    assert_eq!(now["last_end"]["status"], "complete", "{now}");
    assert!(repo.read(LOG).contains("recovered: iteration 1"));
}
