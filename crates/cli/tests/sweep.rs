//! The runner is killed at every write, rename, fsync and spawn of a small run
//! (fault points, debug builds only), and at moments spread over a long step.
//! After each, `runner loop` alone must finish the goal. The same for `start`,
//! `land` and `abandon`: the same command again must finish what was asked for.
//!
//! Ignored by default because it takes minutes: `cargo xtask sweep` runs all of
//! it, `cargo xtask ci` a seeded sample.

#![allow(clippy::unwrap_used)] // A test that cannot go on has failed.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use runner_testkit::{TestRepo, TestRun, assert_processes_end};

const BIN: &str = env!("CARGO_BIN_EXE_runner");

/// Plans, fails the guard once, mends it, commits by itself on the second leaf.
const AGENT: &str = r#"
echo "session of $RUNNER_NODE_ID" >> sessions.txt
case $RUNNER_NODE_ID in
root) add_child root a 1 "First"; add_child root b 2 "Second"; out decomposed "two parts" ;;
a)  if [ -e .runner/context/failure.md ]; then echo good > a.txt; else echo bad > a.txt; fi
    out done "wrote a.txt" ;;
b)  echo good > b.txt
    echo "- b is fine" >> .runner/state/assumptions.md
    git add -A && git commit --quiet -m "agent: b" || true
    out done "wrote b.txt" ;;
esac
"#;

const GUARD: &[&str] = &["sh", "-c", "! cat a.txt b.txt 2>/dev/null | grep bad"];
const GOAL: &str = "# Two files\n\nBoth good.\n";

/// A goal that takes four iterations when nothing gets in the way.
fn repo(agent: &str) -> TestRepo {
    let mut repo = TestRepo::new(BIN);
    repo.agent(agent);
    repo.start_run(GOAL, GUARD).success();
    repo
}

/// Everything that must hold once the goal is reached, whatever happened before.
fn check_finished(repo: &TestRepo, finish: &TestRun, label: &str) {
    let context = || format!("{label}\n{}", finish.describe());
    assert_eq!(finish.code, Some(0), "{}", context());
    repo.assert_clean();
    repo.runner(&["validate"]).success();
    assert_eq!(repo.tree()["passes"], true, "{}", context());
    for (id, attempts) in [("root", 0), ("a", 1), ("b", 0)] {
        assert_eq!(
            repo.node(id)["attempts"],
            attempts,
            "attempts of {id}: {}",
            context()
        );
    }
    let mut last = 0;
    let mut passes: BTreeMap<String, u32> = BTreeMap::new();
    for subject in repo.subjects() {
        let Some(subject) = runner_core::message::parse_subject(&subject) else {
            continue;
        };
        assert!(
            subject.iter > last,
            "iteration numbers must rise: {}",
            context()
        );
        last = subject.iter;
        if subject.guard == runner_core::meta::GuardResult::Pass {
            *passes.entry(subject.node_id).or_default() += 1;
        }
    }
    let expected = BTreeMap::from([("a".to_owned(), 1), ("b".to_owned(), 1)]);
    assert_eq!(passes, expected, "each leaf passes once: {}", context());
    let sessions = repo.git(&["show", "HEAD:sessions.txt"]).lines().count();
    assert!(
        sessions >= 4,
        "the agent's edits are in history: {}",
        context()
    );
    assert_eq!(repo.git(&["show", "HEAD:a.txt"]), "good");
    assert_eq!(repo.git(&["show", "HEAD:b.txt"]), "good");
    let replay = repo.runner(&["replay"]);
    assert_eq!(replay.code, Some(0), "{}\n{}", context(), replay.describe());
    assert_processes_end(&repo.root().display().to_string(), Duration::from_secs(10));
}

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name)
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(default)
}

/// A small generator of numbers: the same seed gives the same sample.
struct Lcg(u64);

impl Lcg {
    fn next(&mut self, below: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % below.max(1)
    }
}

/// All numbers from 1 to `count`, or as many as the sample allows.
fn chosen(count: usize) -> Vec<usize> {
    let sample = usize::try_from(number("RUNNER_SWEEP_SAMPLE", 0)).unwrap_or(0);
    let mut all: Vec<usize> = (1..=count).collect();
    if sample == 0 || sample >= count {
        return all;
    }
    let mut lcg = Lcg(number("RUNNER_SWEEP_SEED", 1));
    for i in 0..sample {
        let j = i + usize::try_from(lcg.next((count - i) as u64)).unwrap_or(0);
        all.swap(i, j);
    }
    all.truncate(sample);
    all
}

/// Runs the trials on both cores; the first failure is the test's.
fn in_parallel(trials: &[usize], trial: impl Fn(usize) + Sync) {
    let next = AtomicUsize::new(0);
    let failure: Mutex<Option<String>> = Mutex::new(None);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while let Some(n) = trials.get(next.fetch_add(1, Ordering::SeqCst)) {
                    let result =
                        std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| trial(*n)));
                    if let Err(panic) = result {
                        let text = panic.downcast_ref::<String>().cloned().unwrap_or_default();
                        failure
                            .lock()
                            .unwrap()
                            .get_or_insert(format!("trial {n}: {text}"));
                        next.store(trials.len(), Ordering::SeqCst);
                    }
                }
            });
        }
    });
    if let Some(text) = failure.into_inner().unwrap() {
        panic!("{text}");
    }
}

/// The fault points that a command passes, by name.
fn points(repo: &TestRepo, args: &[&str]) -> Vec<String> {
    let trace = repo.root().join("trace");
    let run = with_fault(repo, args, &format!("trace:{}", trace.display()));
    assert_eq!(run.code, Some(0), "{}", run.describe());
    let text = std::fs::read_to_string(trace).unwrap();
    text.lines().map(str::to_owned).collect()
}

fn with_fault(repo: &TestRepo, args: &[&str], fault: &str) -> TestRun {
    let mut command = repo.runner_cmd(args);
    command.env("RUNNER_FAULT", fault);
    repo.spawn(command).wait()
}

#[test]
#[ignore = "minutes: run by `cargo xtask sweep` and sampled by `cargo xtask ci`"]
fn sweep_loop_killed_at_every_point() {
    let whole = repo(AGENT);
    let names = points(&whole, &["loop"]);
    check_finished(&whole, &whole.runner(&["loop", "--json"]), "no fault");
    let trials = chosen(names.len());
    println!(
        "{} fault points in the loop, {} of them tried",
        names.len(),
        trials.len()
    );
    in_parallel(&trials, |n| {
        let repo = repo(AGENT);
        let killed = with_fault(&repo, &["loop"], &format!("kill@{n}"));
        assert_eq!(
            killed.code,
            None,
            "not killed at {n}: {}",
            killed.describe()
        );
        let finish = repo.runner(&["loop", "--json"]);
        check_finished(
            &repo,
            &finish,
            &format!("killed at point {n} ({})", names[n - 1]),
        );
    });
}

#[test]
#[ignore = "minutes: run by `cargo xtask sweep` and sampled by `cargo xtask ci`"]
fn sweep_recovery_killed_at_every_point() {
    // A first kill in the middle of an iteration, before and after the decision;
    // then recovery itself is killed at each of its points.
    let names = points(&repo(AGENT), &["loop"]);
    let middles: Vec<usize> = ["spawn-done", "journal-fsync", "git"]
        .iter()
        .filter_map(|name| names.iter().position(|it| it == name))
        .map(|at| at + 1)
        .collect();
    assert_eq!(middles.len(), 3, "the named points exist");
    let trials = chosen(middles.len() * 30);
    println!("{} second kills during recovery tried", trials.len());
    in_parallel(&trials, |n| {
        let (first, second) = (middles[(n - 1) / 30], (n - 1) % 30 + 1);
        let repo = repo(AGENT);
        assert_eq!(
            with_fault(&repo, &["loop"], &format!("kill@{first}")).code,
            None
        );
        // May also end by itself, if recovery has fewer points than that.
        with_fault(&repo, &["step"], &format!("kill@{second}"));
        let finish = repo.runner(&["loop", "--json"]);
        check_finished(
            &repo,
            &finish,
            &format!("killed at {first}, then recovery at {second}"),
        );
    });
}

#[test]
#[ignore = "minutes: run by `cargo xtask sweep` and sampled by `cargo xtask ci`"]
fn sweep_start_killed_at_every_point() {
    let fresh = || {
        let mut repo = TestRepo::new(BIN);
        repo.agent(AGENT);
        repo.init_run(GOAL, GUARD);
        repo
    };
    let names = points(&fresh(), &["start"]);
    let trials = chosen(names.len());
    println!(
        "{} fault points in start, {} of them tried",
        names.len(),
        trials.len()
    );
    in_parallel(&trials, |n| {
        let repo = fresh();
        let label = format!("start killed at point {n} ({})", names[n - 1]);
        assert_eq!(
            with_fault(&repo, &["start"], &format!("kill@{n}")).code,
            None,
            "{label}"
        );
        let again = repo.runner(&["start"]);
        assert_eq!(again.code, Some(0), "{label}\n{}", again.describe());
        let starts = repo
            .subjects()
            .iter()
            .filter(|it| it.contains("start run"))
            .count();
        assert_eq!(starts, 1, "{label}: {:?}", repo.subjects());
        let finish = repo.runner(&["loop", "--json"]);
        check_finished(&repo, &finish, &label);
    });
}

/// A finished run; with a second work tree for its base, or with a base that moved.
fn finished(second: bool) -> TestRepo {
    let repo = repo(AGENT);
    repo.runner(&["loop"]).success();
    let place = repo.root().join("second").display().to_string();
    repo.git(&["worktree", "add", "--quiet", &place, "main"]);
    if !second {
        repo.git(&[
            "-C",
            &place,
            "commit",
            "-q",
            "--allow-empty",
            "-m",
            "Theirs",
        ]);
        repo.git(&["worktree", "remove", &place]);
    }
    repo
}

/// All of a landing is there, once, and nothing lies around.
fn check_landed(repo: &TestRepo, second: bool, label: &str) {
    let landed = repo.git(&["log", "--format=%s", "main", "--grep=Runner-Run: "]);
    assert_eq!(landed, "Two files", "{label}");
    let files = repo.git(&["ls-tree", "-r", "--name-only", "main"]);
    assert_eq!(files, "README.md\na.txt\nb.txt\nsessions.txt", "{label}");
    let status = |place: &str| repo.git(&["-C", place, "status", "--porcelain", "-uall"]);
    assert_eq!(status("."), "", "{label}");
    let branch = repo.git(&["branch", "--show-current"]);
    if second {
        assert_eq!(status("../second"), "", "{label}");
        assert!(repo.root().join("second/b.txt").exists(), "{label}");
        assert!(branch.starts_with("runner/"), "{label}");
    } else {
        assert_eq!(branch, "main", "{label}");
    }
    let trees = repo.git(&["worktree", "list"]).lines().count();
    assert_eq!(trees, 1 + usize::from(second), "{label}");
    assert_processes_end(&repo.root().display().to_string(), Duration::from_secs(10));
}

/// Kills `land` at its points; how many there are, and how many were tried.
fn sweep_land(second: bool) -> (usize, usize) {
    let whole = finished(second);
    let names = points(&whole, &["land"]);
    check_landed(&whole, second, "no fault");
    let trials = chosen(names.len());
    in_parallel(&trials, |n| {
        let repo = finished(second);
        let before = repo.git(&["rev-parse", "main"]);
        let run_tip = repo.head();
        let label = format!("land killed at point {n} ({})", names[n - 1]);
        assert_eq!(
            with_fault(&repo, &["land"], &format!("kill@{n}")).code,
            None,
            "{label}"
        );
        // Nothing or everything.
        let main = repo.git(&["rev-parse", "main"]);
        if main != before {
            assert_eq!(repo.git(&["rev-parse", "main^"]), before, "{label}");
            let files = repo.git(&["ls-tree", "--name-only", "main"]);
            assert!(files.contains("b.txt"), "{label}: {files}");
        }
        let again = repo.runner(&["land"]);
        assert_eq!(again.code, Some(0), "{label}\n{}", again.describe());
        check_landed(&repo, second, &label);
        let branch = repo.git(&[
            "for-each-ref",
            "--format=%(objectname)",
            "refs/heads/runner/",
        ]);
        assert_eq!(branch, run_tip, "{label}");
    });
    (names.len(), trials.len())
}

#[test]
#[ignore = "minutes: run by `cargo xtask sweep` and sampled by `cargo xtask ci`"]
fn sweep_land_killed_at_every_point() {
    let (all, tried) = sweep_land(false);
    println!("{all} fault points in land, {tried} of them tried");
}

#[test]
#[ignore = "minutes: run by `cargo xtask sweep` and sampled by `cargo xtask ci`"]
fn sweep_land_with_a_second_work_tree() {
    let (all, tried) = sweep_land(true);
    println!("{all} fault points in land beside a checkout, {tried} of them tried");
}

#[test]
#[ignore = "minutes: run by `cargo xtask sweep` and sampled by `cargo xtask ci`"]
fn sweep_abandon_killed_at_every_point() {
    let whole = finished(false);
    let run = whole.run_id();
    let args = ["abandon", "--delete", &run];
    let names = points(&whole, &args);
    let trials = chosen(names.len());
    println!(
        "{} fault points in abandon, {} of them tried",
        names.len(),
        trials.len()
    );
    in_parallel(&trials, |n| {
        let repo = finished(false);
        let tip = repo.head();
        let label = format!("abandon killed at point {n} ({})", names[n - 1]);
        assert_eq!(
            with_fault(&repo, &args, &format!("kill@{n}")).code,
            None,
            "{label}"
        );
        let again = repo.runner(&args);
        assert_eq!(again.code, Some(0), "{label}\n{}", again.describe());
        let refs = repo.git(&[
            "for-each-ref",
            "--format=%(refname) %(objectname)",
            "refs/runner/",
        ]);
        assert_eq!(
            refs,
            format!("refs/runner/abandoned/{run} {tip}"),
            "{label}"
        );
        assert_eq!(repo.git(&["branch", "--show-current"]), "main", "{label}");
        repo.assert_clean();
    });
}

#[test]
#[ignore = "minutes: run by `cargo xtask sweep` and sampled by `cargo xtask ci`"]
fn sweep_moments_of_a_long_step() {
    let slow = AGENT.replace(
        "case $RUNNER_NODE_ID in",
        "sleep 0.2\necho late >> sessions.txt\ncase $RUNNER_NODE_ID in",
    );
    let trials = chosen(60);
    println!("{} moments of a long step tried", trials.len());
    in_parallel(&trials, |n| {
        let repo = repo(&slow);
        let mut lcg = Lcg(number("RUNNER_SWEEP_SEED", 1) ^ (n as u64) << 20);
        for _ in 0..3 {
            let running = repo.spawn_runner(&["loop"]);
            // Not to wait for anything: the moment of the kill is the point.
            std::thread::sleep(Duration::from_millis(lcg.next(700)));
            running.kill();
        }
        let finish = repo.runner(&["loop", "--json"]);
        check_finished(&repo, &finish, &format!("long step, trial {n}"));
    });
}
