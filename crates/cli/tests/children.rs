//! The agent and the guard as processes, seen from outside: deadlines, floods of
//! output, pipes that stay open, a supervisor that is killed.
#![allow(clippy::unwrap_used)] // a helper that fails is a test that fails

mod hostile_support;

use std::fs;
use std::process::Command;
use std::time::Duration;

use hostile_support::{BIN, GOOD, check, finish, started, step};
use runner_testkit::{TestRepo, assert_no_process};

/// A run with these settings and this guard.
fn repo_with(guard: &str, change: impl FnOnce(&mut runner_testkit::TestConfig)) -> TestRepo {
    let repo = started(TestRepo::new(BIN), |repo| {
        repo.config(change);
        repo.write("guard.sh", guard);
        repo.commit_all("guard");
    });
    let config = repo.read(".runner/state/config.toml");
    let config = config.replace("[\"sh\",\"-c\",\"true\"]", "[\"sh\",\"guard.sh\"]");
    repo.write(".runner/state/config.toml", config);
    repo.commit_all("use it");
    repo
}

fn marker(repo: &TestRepo) -> String {
    repo.root().display().to_string()
}

/// Starts a daemon: its own session, no open files, no environment, an orphan.
/// The test's folder is among its arguments.
const DAEMON: &str = r#"
daemon() {
    setsid env -i PATH="$PATH" sh -c 'trap "" TERM HUP INT; (sh -c "while :; do sleep 1; done" "$0" &) ; sleep 1000' \
        "$AGENT_DIR/daemon" >/dev/null 2>&1 </dev/null &
}
"#;

#[test]
fn agent_and_guard_share_the_time() {
    let repo = repo_with("echo guarding; exec sleep 100\n", |config| {
        config.set("iteration_timeout_secs", 3);
    });
    repo.agent_at(1, "echo work > work.txt; sleep 2; out done x");
    let (run, json) = step(&repo);
    assert_eq!(json["error"]["code"], "guard_timeout", "{}", run.describe());
    assert!(run.elapsed < Duration::from_secs(8), "{}", run.describe());
    assert_eq!(
        (&json["attempts"], &json["guard"]),
        (&0.into(), &"skipped".into())
    );
    assert_eq!(repo.git(&["show", "HEAD:work.txt"]), "work");
    check(&repo, "guard timeout");
    assert_no_process(&marker(&repo));
    let log = fs::read_to_string(repo.iteration(1).join("guard.log")).unwrap();
    assert_eq!(log, "guarding\n");

    repo.agent_at(2, "echo more > more.txt; exec sleep 100");
    let (run, json) = step(&repo);
    assert_eq!(json["error"]["code"], "timeout", "{}", run.describe());
    check(&repo, "timeout");
    assert_eq!(repo.git(&["show", "HEAD:more.txt"]), "more");
    assert_eq!(repo.node("root")["attempts"], 0);
}

/// A machine that is suspended and wakes up: the wall clock jumps, and no deadline with it.
#[test]
fn hours_in_which_the_machine_slept_do_not_count() {
    let mut repo = repo_with("exec sleep 1\n", |config| {
        config.set("iteration_timeout_secs", 60);
        config.set("executor.idle_timeout_secs", 30);
    });
    repo.env("RUNNER_FAULT", "suspend@28800");
    repo.agent_at(1, "echo work > work.txt; sleep 1; out done x");
    let (run, json) = step(&repo);
    assert_eq!(json["guard"], "pass", "{}", run.describe());
    let meta = repo.meta(1);
    let hours = |key: &str| meta[key].as_str().unwrap()[..13].to_owned();
    assert_ne!(hours("started_at"), hours("ended_at"), "{meta}");
    let took = meta["duration_ms"].as_u64().unwrap();
    assert!(took < 60_000, "{meta}");
}

#[test]
fn what_does_not_want_to_end_is_ended() {
    let repo = repo_with("exit 0\n", |config| {
        config.set("iteration_timeout_secs", 1);
    });
    repo.agent_at(
        1,
        &format!("{DAEMON}\ndaemon; trap '' TERM; echo x > x.txt; while :; do sleep 100; done"),
    );
    let (run, json) = step(&repo);
    assert_no_process(&marker(&repo));
    assert_eq!(json["error"]["code"], "timeout", "{}", run.describe());
    assert!(run.elapsed < Duration::from_secs(20), "{}", run.describe());
    check(&repo, "ignores SIGTERM");
    assert_eq!(repo.git(&["show", "HEAD:x.txt"]), "x");
    finish(&repo);
}

#[test]
fn nothing_outlives_a_session_or_a_guard_that_ended_by_itself() {
    let guard = "setsid sh -c 'sleep 1000; :' \"$HOME/../agent/daemon\" >/dev/null 2>&1 &\nsleep 1000 &\nexit 0\n";
    let repo = repo_with(guard, |_| {});
    // One that holds the pipe open, one that fled.
    repo.agent_at(
        1,
        &format!("{DAEMON}\ndaemon; sleep 1000 & sleep 1001 & echo said; out done x"),
    );
    let (run, json) = step(&repo);
    assert_no_process(&marker(&repo));
    assert_eq!(json["guard"], "pass", "{}", run.describe());
    assert!(
        run.stdout.contains("process(es) running; they were ended"),
        "{}",
        run.describe()
    );
    assert!(run.elapsed < Duration::from_secs(20), "{}", run.describe());
    let log = fs::read_to_string(repo.iteration(1).join("executor.log")).unwrap();
    assert_eq!(log, "said\n");
    check(&repo, "left behind");
}

#[test]
fn an_agent_that_never_reads_its_prompt() {
    let repo = started(TestRepo::new(BIN), |repo| {
        repo.config(|config| {
            config.set("prompt_budget_bytes", 8_000_000);
        });
    });
    let goal = repo.read(".runner/GOAL.md");
    repo.write(
        ".runner/GOAL.md",
        format!("{goal}{}", "All of it. ".repeat(500_000)),
    );
    repo.runner(&["start"]).success();
    repo.agent_at(1, "exec 0</dev/null; echo a > a.txt; out retry x");
    repo.agent_at(2, "head -c 10 >/dev/null; out retry x");
    repo.agent_at(3, "wc -c > size.txt; out retry x");
    for iter in 1..4 {
        let (run, json) = step(&repo);
        assert_eq!(json["class"], "ok", "{iter}: {}", run.describe());
    }
    let size: usize = repo.read("size.txt").trim().parse().unwrap();
    let prompt = fs::metadata(repo.iteration(3).join("prompt.md"))
        .unwrap()
        .len();
    assert_eq!(size as u64, prompt);
    assert!((1_000_000..=8_000_000).contains(&size), "{size}");
    finish(&repo);
}

/// The memory that the process has for its data, in KiB: not what the kernel keeps of the binary,
/// which grows with every feature.
fn data_kib(pid: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find(|line| line.starts_with("RssAnon:"))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

#[test]
fn two_hundred_mebibytes_of_output() {
    let flood = "echo the very beginning; head -c 209715200 /dev/zero | tr '\\0' 'x'; printf 'the \\303\\244\\377 end\\n'";
    let repo = repo_with(&format!("{flood}; exit 1\n"), |config| {
        config
            .set("executor_output_limit_bytes", 100_000)
            .set("guard_output_limit_bytes", 50_000);
    });
    repo.agent_at(1, &format!("{flood}; {flood} >&2; out done x"));
    let mut running = repo.spawn_runner(&["step", "--json"]);
    let mut peak = 0;
    while running.is_running() {
        peak = peak.max(data_kib(running.pid()).unwrap_or(0));
        std::thread::sleep(Duration::from_millis(5));
    }
    let run = running.wait().success();
    assert_eq!(run.json()["guard"], "fail", "{}", run.describe());
    assert!(peak > 500 && peak < 40_000, "peak memory: {peak} KiB");
    for (name, cap) in [("executor.log", 100_000), ("guard.log", 50_000)] {
        let log = fs::read(repo.iteration(1).join(name)).unwrap();
        assert!(log.len() <= cap + 500, "{name} has {} bytes", log.len());
        let text = String::from_utf8_lossy(&log);
        assert!(text.starts_with("the very beginning\n"), "{name}");
        assert!(log.ends_with(b"the \xc3\xa4\xff end\n"), "{name}");
        let marker = text.lines().find(|line| line.contains("bytes"));
        assert!(marker.is_some(), "{name} says how much is missing");
    }
    let meta = repo.meta(1);
    let guard = repo
        .hermetic("sha256sum")
        .arg(repo.iteration(1).join("guard.log"))
        .output()
        .unwrap();
    let sum = String::from_utf8(guard.stdout).unwrap();
    assert_eq!(meta["guard_run"]["log_sha256"], sum[..64]);
    check(&repo, "flood");
    // What the next session hears of it is text, and not too much.
    repo.agent_at(
        2,
        "cp .runner/context/failure.md \"$AGENT_DIR/failure.md\"; out retry x",
    );
    step(&repo);
    let failure = fs::read_to_string(repo.agent_dir().join("failure.md")).unwrap();
    assert!(failure.contains("end"), "{failure}");
    repo.runner(&["log", "1"]).success();
}

#[test]
fn the_logs_say_what_came_out_of_the_pipes() {
    let repo = repo_with(
        "echo true words; for f in $HOME/../repo/.runner/iterations/*/*/guard.log; do [ -s $HOME/forge ] && { rm -f $f; mkfifo $f; } || echo forged > $f; done\n",
        |_| {},
    );
    for forge in ["", "x"] {
        fs::write(repo.root().join("home/forge"), forge).unwrap();
        let iter = repo.run_state()["next_iter"].as_u64().unwrap();
        let log = "$AGENT_DIR/../repo/.runner/iterations/$RUNNER_RUN_ID/$RUNNER_ITER/executor.log";
        repo.agent(&format!(
            "echo said; echo forged > \"{log}\"; add_child root x$RUNNER_ITER 1 X; out decomposed x"
        ));
        if repo.tree()["children"][0].is_object() {
            repo.agent(&format!("echo said; rm \"{log}\"; out done x"));
        }
        let (run, json) = step(&repo);
        assert_eq!(json["class"], "ok", "{}", run.describe());
        let said = fs::read_to_string(repo.iteration(iter).join("executor.log")).unwrap();
        assert_eq!(said, "said\n");
        if json["guard"] == "pass" {
            let words = fs::read_to_string(repo.iteration(iter).join("guard.log")).unwrap();
            assert_eq!(words, "true words\n");
        }
    }
    fs::write(repo.root().join("home/forge"), "").unwrap();
    repo.runner(&["replay"]).success();
}

#[test]
fn a_killed_supervisor_takes_everything_with_it() {
    let repo = repo_with("exit 0\n", |_| {});
    repo.agent_at(
        1,
        &format!("{DAEMON}\ndaemon; sleep 1000 & echo x > x.txt; kill -9 $PPID; sleep 1000"),
    );
    let (run, json) = step(&repo);
    assert_no_process(&marker(&repo));
    assert_eq!(json["class"], "runner_error", "{}", run.describe());
    assert!(
        run.stdout.contains("supervisor was killed"),
        "{}",
        run.describe()
    );
    check(&repo, "no supervisor");
    assert_eq!(repo.git(&["show", "HEAD:x.txt"]), "x");
    // A supervisor that is only stopped is woken when the time is up.
    repo.agent_at(2, "echo y > y.txt; kill -STOP $PPID; out retry x");
    let config = repo.read(".runner/state/config.toml");
    let short = config.replace("iteration_timeout_secs = 60", "iteration_timeout_secs = 2");
    repo.write(".runner/state/config.toml", short);
    repo.commit_all("short");
    let (run, _) = step(&repo);
    assert!(run.elapsed < Duration::from_secs(30), "{}", run.describe());
    check(&repo, "stopped supervisor");
    assert_no_process(&marker(&repo));
    repo.agent(GOOD);
    finish(&repo);
}

#[test]
fn an_agent_that_floods_and_sleeps_is_not_silent() {
    let repo = repo_with("exit 0\n", |config| {
        config.set("executor.idle_timeout_secs", 1);
    });
    repo.agent_at(1, "echo x > x.txt; exec sleep 100");
    let (run, json) = step(&repo);
    assert_eq!(json["error"]["code"], "idle", "{}", run.describe());
    assert_eq!(repo.git(&["show", "HEAD:x.txt"]), "x");
    repo.agent_at(
        2,
        "for i in 1 2 3 4 5 6; do echo alive; sleep 0.4; done; out done x",
    );
    let (run, json) = step(&repo);
    assert_eq!(json["guard"], "pass", "{}", run.describe());
}

/// In a container whose first process began no session, everything of ours is in session 0, whose
/// leader nobody inside can see.
#[test]
#[allow(clippy::disallowed_methods)] // the test calls itself, inside a namespace
fn the_same_where_the_leader_of_the_session_is_outside() {
    // One of these works for root, the other for everybody where namespaces are allowed at all.
    let namespaces: [&[&str]; 2] = [
        &["--pid", "--fork", "--mount-proc", "--"],
        &["--map-root-user", "--pid", "--fork", "--mount-proc", "--"],
    ];
    let unshare = |options: &[&str]| {
        let mut cmd = Command::new("unshare");
        cmd.args(options);
        cmd
    };
    let Some(options) = namespaces.into_iter().find(|options| {
        let tried = unshare(options).arg("true").output().unwrap();
        tried.status.success()
    }) else {
        println!("not tried: no PID namespace can be made here");
        return;
    };
    let inside = unshare(options)
        .arg(std::env::current_exe().unwrap())
        .args(["outlives", "does_not_want", "killed_supervisor"])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&inside.stdout);
    assert!(
        inside.status.success() && said.contains("3 passed"),
        "{said}{}",
        String::from_utf8_lossy(&inside.stderr)
    );
}
