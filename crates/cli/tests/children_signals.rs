//! Signals to the runner, and runners that meet: children are ended, nothing is
//! lost, the next call settles it.
#![allow(clippy::unwrap_used)] // a helper that fails is a test that fails

mod hostile_support;

use std::fs;
use std::time::{Duration, Instant};

use hostile_support::{GOOD, check, finish, repo};
use runner_testkit::{TestChild, TestRepo, assert_no_process, assert_processes_end, eventually};

/// The agent works, starts what does not want to end, and waits.
const BUSY: &str = r#"
echo "iteration $RUNNER_ITER" >> work.txt
setsid env -i PATH="$PATH" sh -c 'trap "" TERM HUP INT; while :; do sleep 1; done' "$AGENT_DIR/daemon" </dev/null >/dev/null 2>&1 &
: > "$AGENT_DIR/up-$RUNNER_ITER"
while :; do sleep 100; done
"#;

fn marker(repo: &TestRepo) -> String {
    repo.root().display().to_string()
}

/// Starts a command and waits until its session is at work.
fn busy(repo: &TestRepo, args: &[&str], script: &str) -> TestChild {
    let iter = repo.run_state()["next_iter"].as_u64().unwrap();
    repo.agent_at(iter, script);
    let up = repo.agent_dir().join(format!("up-{iter}"));
    let _ = fs::remove_file(&up);
    let running = repo.spawn_runner(args);
    eventually("the session", Duration::from_secs(30), || up.exists());
    running
}

/// The next step settles what was cut off, and takes a step of its own.
fn settled(repo: &TestRepo, label: &str, cut_off: u64) {
    repo.agent("out retry 'nothing done'");
    let before = repo.node("root")["attempts"].as_u64().unwrap();
    let run = repo.runner(&["step"]).success();
    assert!(
        run.stderr.contains(&format!("{cut_off}")),
        "{label}: {}",
        run.describe()
    );
    check(repo, label);
    let work = repo.git(&["show", "HEAD:work.txt"]);
    assert!(
        work.contains(&format!("iteration {cut_off}")),
        "{label}: {work}"
    );
    let meta = repo.meta(cut_off);
    assert_eq!(
        (&meta["status"], &meta["guard"]),
        (&"retry".into(), &"skipped".into()),
        "{label}"
    );
    assert_eq!(meta["error"]["kind"], "interrupted", "{label}");
    assert_eq!(meta["class"], "runner_error", "{label}");
    assert_eq!(
        repo.node("root")["attempts"],
        before + 1,
        "{label}: only the new step counts"
    );
    assert_eq!(repo.run_state()["next_iter"], cut_off + 2, "{label}");
    assert_no_process(&marker(repo));
}

#[test]
fn a_signal_ends_everything_and_loses_nothing() {
    let repo = repo();
    for (iter, (signal, command)) in (1..).step_by(2).zip([
        ("INT", &["step"][..]),
        ("TERM", &["loop"]),
        ("HUP", &["step", "--json"]),
    ]) {
        // Waiting out the grace once is enough.
        let script = if signal == "INT" {
            BUSY.to_owned()
        } else {
            BUSY.replace("trap \"\" TERM HUP INT;", "")
        };
        let running = busy(&repo, command, &script);
        running.signal(signal);
        let run = running.wait_within(Duration::from_secs(30)).code(130);
        assert_no_process(&marker(&repo));
        assert!(
            run.stdout.contains("interrupted") || run.stderr.contains("interrupted"),
            "{}",
            run.describe()
        );
        settled(&repo, signal, iter);
    }
    finish(&repo);
}

#[test]
fn a_second_signal_does_not_wait() {
    let repo = repo();
    let running = busy(&repo, &["step"], &format!("trap '' TERM\n{BUSY}"));
    let begun = Instant::now();
    // Another one: two of the same kind may reach a busy runner as one.
    running.signal("INT");
    running.signal("TERM");
    let run = running.wait_within(Duration::from_secs(30)).code(130);
    // The grace is 5 seconds.
    assert!(
        begun.elapsed() < Duration::from_secs(5),
        "no grace: {}",
        run.describe()
    );
    assert_no_process(&marker(&repo));
    settled(&repo, "second signal", 1);
    finish(&repo);
}

#[test]
fn a_killed_runner_takes_its_children_with_it() {
    let repo = repo();
    for (iter, command) in (1..).step_by(2).zip([&["step"][..], &["loop"]]) {
        busy(&repo, command, BUSY).kill();
        assert_processes_end(&marker(&repo), Duration::from_secs(15));
        settled(&repo, "killed", iter);
    }
    // Killed by its own agent, which is as good.
    let own = "setsid sh -c 'trap \"\" TERM; sleep 1000' \"$AGENT_DIR/daemon\" & \
               echo \"iteration $RUNNER_ITER\" >> work.txt; kill -9 $(cut -d' ' -f4 /proc/$PPID/stat); sleep 1000";
    repo.agent_at(5, own);
    let run = repo.runner(&["step"]);
    assert_eq!(run.signal, Some(9), "{}", run.describe());
    // Not waited for: the next one does that itself.
    settled(&repo, "killed by its agent", 5);
    finish(&repo);
}

#[test]
fn a_signal_while_the_guard_runs() {
    let repo = repo();
    let up = repo.agent_dir().join("guard-up").display().to_string();
    let guard = format!(
        "[\"sh\",\"-c\",\"[ -e good.txt ] && exit 0; : > '{up}'; trap '' TERM; sleep 1000 & wait\"]"
    );
    let config = repo.read(".runner/state/config.toml");
    repo.write(
        ".runner/state/config.toml",
        config.replace("[\"sh\",\"-c\",\"true\"]", &guard),
    );
    repo.commit_all("a guard that waits");
    repo.agent_at(1, "echo 'iteration 1' > work.txt; out done x");
    let running = repo.spawn_runner(&["step"]);
    eventually("the guard", Duration::from_secs(30), || {
        fs::exists(&up).unwrap()
    });
    running.signal("TERM");
    running.wait_within(Duration::from_secs(30)).code(130);
    assert_no_process(&marker(&repo));
    settled(&repo, "guard", 1);
    finish(&repo);
}

#[test]
fn a_signal_between_two_tries() {
    let mut repo = repo();
    repo.env("RUNNER_RETRY_DELAYS_SECS", "600,600,600");
    repo.agent("echo nothing");
    let running = repo.spawn_runner(&["--json", "loop"]);
    eventually("the first try", Duration::from_secs(30), || {
        running.stdout_so_far().contains("no_output")
    });
    running.signal("INT");
    let run = running.wait_within(Duration::from_secs(10)).code(130);
    let last = run.json_lines().pop().unwrap();
    assert_eq!(
        (&last["event"], &last["status"]),
        (&"finished".into(), &"interrupted".into())
    );
    check(&repo, "between");
    repo.agent(GOOD);
    finish(&repo);
}

#[test]
fn two_runners_at_once() {
    let repo = repo();
    let mut first = busy(&repo, &["loop"], BUSY);
    let pid = format!("pid {}", first.pid());
    let refused = |label: &str| {
        for command in [&["step"][..], &["loop"], &["start"]] {
            let run = repo.runner(command).code(1).says(&pid);
            assert!(
                run.elapsed < Duration::from_secs(5),
                "{label}: {}",
                run.describe()
            );
        }
    };
    refused("the lock");
    // Those who only look may look.
    for command in [&["status"][..], &["tree"], &["log"], &["validate"]] {
        repo.runner(command).success();
    }
    // Whatever the session does to the lock file.
    let lock = repo.path(".runner/iterations/lock");
    fs::remove_file(&lock).unwrap();
    refused("no lock file");
    fs::write(&lock, "1\n").unwrap();
    refused("a forged one");
    assert!(first.is_running());
    first.signal("INT");
    first.wait_within(Duration::from_secs(30)).code(130);
    fs::write(&lock, "99999999\n").unwrap();
    settled(&repo, "a stale lock needs no hand", 1);
    finish(&repo);
}
