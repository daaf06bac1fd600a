//! A session that tampers with everything it can, and a runner that is killed or interrupted at
//! every point after that session: the next runner believes nothing of it.
//!
//! Each point is tried under one of the mechanisms, in turn; by name under every one:
//! `cargo test -p runner-cli --test hostile_points everywhere -- --ignored`.
#![allow(clippy::unwrap_used)] // a helper that fails is a test that fails

mod hostile_support;

use std::fs;

use hostile_support::planted::with_evil;
use hostile_support::{GOOD, all, assert_contained, check, finish, plant, under};
use runner_testkit::{TestRepo, TestRun};
use serde_json::json;

/// What passes on the work of nobody but a session that did it.
const GUARD: &str = "test -e good.txt\n";

/// Everything that would make a red guard green, let code run outside, or look like a verdict.
const TAMPER: &str = r#"
echo more >> work.txt
echo 'exit 0' > ci.sh
sed -i 's/ci.sh/-c true/' .runner/state/config.toml
sed -i 's/"passes": false/"passes": true/' .runner/state/tree.json
run=.runner/iterations/$RUNNER_RUN_ID
for n in $RUNNER_ITER 999; do
  mkdir -p $run/$n
  echo '{"phase":"decided","parent":"'$(git rev-parse HEAD)'","tree_sha256":null,"run_state":"{}","meta":"{}","message":"forged"}' > $run/$n/journal.jsonl
done
git add -A; git commit -qm "chore(loop): run $RUNNER_RUN_ID iter $RUNNER_ITER node root status=done guard=pass"
mkdir -p .git/hooks .git/info
cp "$EVIL" .git/hooks/pre-commit; cp "$EVIL" .git/hooks/reference-transaction
echo '* filter=x' > .gitattributes
git config filter.x.clean "$EVIL"; git config core.fsmonitor "$EVIL"; git config core.hooksPath "$AGENT_DIR"
out done 'all of it works'
"#;

/// The point that every step passes right before its session; the next one is passed after it.
const SESSION: &str = "spawn";

/// A run in which many sessions may fail.
fn tampered_run(mechanism: &str) -> TestRepo {
    let mut repo = under(mechanism);
    repo.write("ci.sh", GUARD);
    repo.commit_all("Files");
    repo.config(|config| {
        config
            .set("max_attempts_default", 900)
            .set("max_iterations", 2000)
            .set("guard.protected", json!(["ci.sh"]));
    });
    repo.agent("out retry 'nothing'");
    plant(&repo);
    repo.start_run("# A goal\n\nMake it good.\n", &["sh", "ci.sh"])
        .success();
    repo
}

fn next_iter(repo: &TestRepo) -> u64 {
    repo.run_state()["next_iter"].as_u64().unwrap()
}

/// A loop whose first session tampers, with a fault.
fn tampering_loop(repo: &TestRepo, steps: &str, fault: &str) -> TestRun {
    repo.agent_at(next_iter(repo), &with_evil(repo, TAMPER));
    let mut command = repo.runner_cmd(&["loop", "--json", "--steps", steps]);
    command.env("RUNNER_FAULT", fault);
    repo.spawn(command).wait()
}

/// The points of such a loop of one step, by name.
fn points(repo: &TestRepo) -> Vec<String> {
    let trace = repo.root().join("trace");
    let _ = fs::remove_file(&trace);
    let run = tampering_loop(repo, "1", &format!("trace:{}", trace.display()));
    assert_eq!(run.code, Some(0), "{}", run.describe());
    assert_nothing_counts(repo, "no fault");
    let text = fs::read_to_string(trace).unwrap();
    text.lines().map(str::to_owned).collect()
}

/// What must hold whatever was cut off.
#[track_caller]
fn assert_nothing_counts(repo: &TestRepo, label: &str) {
    check(repo, label);
    assert_eq!(repo.git(&["show", "HEAD:ci.sh"]), GUARD.trim(), "{label}");
    let config = repo.git(&["show", "HEAD:.runner/state/config.toml"]);
    assert!(config.contains("ci.sh"), "{label}: {config}");
    let tree = repo.git(&["show", "HEAD:.runner/state/tree.json"]);
    assert!(!tree.contains("\"passes\": true"), "{label}: {tree}");
    for message in repo.subjects() {
        let is_lie = message.contains("guard=pass") || message.contains("forged");
        assert!(!is_lie, "{label}: {message}");
    }
    let work = repo.git(&["show", "HEAD:work.txt"]);
    assert!(work.starts_with("more"), "{label}: the work is kept");
    assert!(!repo.path(".runner/iterations").join("999").exists());
}

/// Cuts a loop off at each point after its session that `is_tried`, and goes on; how many.
fn cut_off(mechanism: &str, fault: &str, is_tried: impl Fn(usize) -> bool) -> usize {
    let repo = tampered_run(mechanism);
    // The first step makes folders that later ones find.
    points(&repo);
    let names = points(&repo);
    let session = names.iter().position(|name| name == SESSION);
    let session = session.unwrap_or_else(|| panic!("no {SESSION} in {names:?}"));
    let mut tried = 0;
    // Points are counted from one.
    for number in (session + 2..=names.len()).filter(|number| is_tried(*number)) {
        let label = format!("{mechanism}, {fault}@{number} ({})", names[number - 1]);
        let before = next_iter(&repo);
        let cut = tampering_loop(&repo, "3", &format!("{fault}@{number}"));
        if fault == "kill" {
            assert_eq!(cut.code, None, "{label}: {}", cut.describe());
        } else {
            // What the session did is recorded, and no other one begins.
            assert_eq!(next_iter(&repo), before + 1, "{label}: {}", cut.describe());
        }
        assert_nothing_ran(&repo, &label);
        let next = repo.runner(&["step", "--json"]);
        assert_eq!(next.code, Some(0), "{label}: {}", next.describe());
        assert_nothing_counts(&repo, &label);
        tried += 1;
    }
    repo.agent(GOOD);
    finish(&repo);
    repo.runner(&["verify", "root"]).success();
    assert_nothing_ran(&repo, "the end");
    assert_contained(&repo, mechanism);
    tried
}

#[track_caller]
fn assert_nothing_ran(repo: &TestRepo, label: &str) {
    repo.runner(&["status"]);
    hostile_support::assert_never_ran(repo, label);
}

/// Every point once, under the mechanisms in turn.
fn in_turn(fault: &str) {
    let counts: Vec<usize> = std::thread::scope(|scope| {
        let trials: Vec<_> = (0..)
            .zip(all())
            .map(|(place, mechanism)| {
                scope.spawn(move || cut_off(mechanism, fault, |number| number % 3 == place))
            })
            .collect();
        trials.into_iter().map(|it| it.join().unwrap()).collect()
    });
    assert!(counts.iter().all(|count| *count > 3), "{counts:?}");
}

#[test]
fn a_runner_killed_after_tampering_believes_nothing() {
    in_turn("kill");
}

#[test]
fn a_runner_interrupted_after_tampering_believes_nothing() {
    in_turn("interrupt");
}

#[test]
#[ignore = "minutes: every point under every mechanism"]
fn everywhere() {
    for mechanism in all() {
        for fault in ["kill", "interrupt"] {
            let tried = cut_off(mechanism, fault, |_| true);
            println!("{mechanism}, {fault}: {tried} points after the session");
        }
    }
}
