//! A disk that is full or read-only in mid-step: planned at every write (fault
//! points, debug builds only), and for real on a small file system. Afterwards the
//! same command finishes the goal, and nothing is lost.
#![allow(clippy::unwrap_used)] // a helper that fails is a test that fails
#![allow(clippy::print_stderr)] // what is skipped is said

mod hostile_support;

use std::collections::BTreeMap;
use std::fs;

use hostile_support::{BIN, check, repo};
use runner_testkit::{TestRepo, TestRun};

/// Each session leaves a line, on a work tree that the guard does not like yet.
const AGENT: &str = "echo \"session $RUNNER_ITER\" >> work.txt; echo note >> .runner/state/assumptions.md; out done 'worked'";

/// A run whose guard fails until `good.txt` is there.
fn failing_repo() -> TestRepo {
    let repo = repo();
    let config = repo.read(".runner/state/config.toml");
    let guard = "[\"sh\",\"-c\",\"test -f good.txt\"]";
    let config = config
        .replace("[\"sh\",\"-c\",\"true\"]", guard)
        .replace("max_attempts_default = 90", "max_attempts_default = 900")
        .replace("max_iterations = 100", "max_iterations = 2000");
    repo.write(".runner/state/config.toml", config);
    let tree = repo
        .read(".runner/state/tree.json")
        .replace(": 90", ": 900");
    repo.write(".runner/state/tree.json", tree);
    repo.commit_all("room for many attempts");
    repo.agent(AGENT);
    repo
}

/// How many points a step passes.
fn points(repo: &mut TestRepo) -> Vec<String> {
    let trace = repo.root().join("trace");
    repo.env("RUNNER_FAULT", format!("trace:{}", trace.display()));
    repo.runner(&["step"]).success();
    repo.env_remove("RUNNER_FAULT");
    let text = fs::read_to_string(trace).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

/// The iterations in the history, each with what its commit says.
fn iterations(repo: &TestRepo) -> BTreeMap<u32, String> {
    let mut found = BTreeMap::new();
    for subject in repo.subjects() {
        if let Some(parsed) = runner_core::message::parse_subject(&subject) {
            let before = found.insert(parsed.iter, subject.clone());
            assert_eq!(before, None, "iteration {} is there twice", parsed.iter);
        }
    }
    found
}

/// A step with a fault, then the same step without: all that must hold.
fn one_fault(repo: &mut TestRepo, fault: &str, point: &str) {
    let calls = repo.agent_calls().len();
    repo.env("RUNNER_FAULT", fault);
    let faulty = repo.runner(&["step"]);
    repo.env_remove("RUNNER_FAULT");
    let label = format!("{fault} ({point})\n{}", faulty.describe());
    assert!(matches!(faulty.code, Some(0 | 1)), "{label}");
    assert!(
        faulty.code == Some(0) || faulty.stderr.contains("error:"),
        "{label}"
    );
    let clean = repo.runner(&["step"]);
    let label = format!("{label}\nand then {}", clean.describe());
    assert_eq!(clean.code, Some(0), "{label}");
    check(repo, &label);

    let history = iterations(repo);
    let next = repo.run_state()["next_iter"].as_u64().unwrap();
    assert_eq!(
        history.keys().next_back().map(|last| u64::from(last + 1)),
        Some(next),
        "{label}"
    );
    let fails = history
        .values()
        .filter(|subject| subject.contains("guard=fail"))
        .count();
    assert_eq!(
        repo.node("root")["attempts"],
        fails,
        "attempts are the sessions that count: {label}"
    );
    let work = repo.git(&["show", "HEAD:work.txt"]);
    for call in &repo.agent_calls()[calls..] {
        let iter = call.split(' ').next().unwrap();
        assert!(
            work.contains(&format!("session {iter}")),
            "session {iter} is lost: {label}"
        );
    }
}

fn every_point(kind: &str, stride: usize) {
    let mut repo = failing_repo();
    let points = points(&mut repo);
    if points.is_empty() {
        eprintln!("skipped: this is a release build");
        return;
    }
    assert!(points.len() > 20, "{points:?}");
    for (number, point) in (1..).zip(&points).step_by(stride) {
        one_fault(&mut repo, &format!("{kind}@{number}"), point);
    }
    repo.agent("echo good > good.txt; out done x");
    repo.runner(&["loop"]).success();
    assert_eq!(repo.node("root")["passes"], true);
    repo.assert_clean();
    repo.runner(&["validate"]).success();
    repo.runner(&["replay"]).success();
}

#[test]
fn full_at_every_point() {
    every_point("enospc", 1);
}

#[test]
fn read_only_from_every_point_on() {
    // From every second one on, for it is the same from the next one on.
    every_point("erofs", 2);
}

/// Runs a shell script as root of a mount namespace of its own, with `$MNT` an
/// empty folder and `$RUNNER` the binary. `None` where that cannot be had.
fn in_namespace(repo: &TestRepo, script: &str) -> Option<TestRun> {
    let mount = repo.root().join("mnt");
    fs::create_dir_all(&mount).unwrap();
    let file = repo.root().join("script.sh");
    fs::write(
        &file,
        format!("set -u\nmount -t tmpfs -o size=24m tmpfs \"$MNT\" || exit 77\n{script}"),
    )
    .unwrap();
    for flags in ["-m", "-rm"] {
        let mut command = repo.hermetic("unshare");
        command
            .arg(flags)
            .arg("sh")
            .arg(&file)
            .env("MNT", &mount)
            .env("RUNNER", BIN)
            .current_dir(repo.root());
        let run = repo.spawn(command).wait();
        if !matches!(run.code, Some(1 | 77)) {
            return Some(run);
        }
    }
    eprintln!("skipped: no mount namespaces here");
    None
}

/// What is checked in the shell, because outside nobody sees that file system.
const CHECKS: &str = r#"
export XDG_STATE_HOME="$MNT/state"
cp -a repo "$MNT/repo"; cd "$MNT/repo" || exit 78
fail() { echo "FAILED: $*"; cat "$MNT/../log"; exit 90; }
says() { grep -q -- "$1" "$MNT/../log" || fail "should say: $1"; }
clean() { test -z "$(git status --porcelain -uall)" || fail "not clean: $(git status --porcelain)"; }
step() { "$RUNNER" step > "$MNT/../log" 2>&1; }
"#;

#[test]
fn a_disk_that_is_really_full() {
    let repo = repo();
    // Fills the disk to the last byte, from inside the session.
    repo.agent_at(
        1,
        "echo work > work.txt; cat /dev/zero > \"$XDG_STATE_HOME/../fill\" 2>/dev/null; out done x 2>/dev/null",
    );
    // The same in the guard.
    repo.agent_at(2, "echo more > more.txt; out done x");
    let script = format!(
        "{CHECKS}
step; test $? = 1 || fail 'the first step'
says 'No space left'
rm ../fill
step; code=$?
test $code = 0 || fail \"the step after: $code\"
clean
git show HEAD:work.txt >/dev/null || fail 'the work is lost'
git log --format=%s | grep -c 'iter 1 ' | grep -qx 1 || fail 'iteration 1'
\"$RUNNER\" validate >/dev/null || fail 'validate'
echo ALL GOOD"
    );
    let Some(run) = in_namespace(&repo, &script) else {
        return;
    };
    assert!(run.stdout.contains("ALL GOOD"), "{}", run.describe());
}

#[test]
fn a_disk_that_fills_up_while_the_guard_runs() {
    let repo = repo();
    let config = repo.read(".runner/state/config.toml");
    let guard = "[\"sh\",\"-c\",\"f=$XDG_STATE_HOME/../fill; test -e $f && exit 0; cat /dev/zero > $f 2>/dev/null; echo said; exit 0\"]";
    repo.write(
        ".runner/state/config.toml",
        config.replace("[\"sh\",\"-c\",\"true\"]", guard),
    );
    repo.commit_all("a guard that fills");
    repo.agent("echo work > work.txt; out done x");
    let script = format!(
        "{CHECKS}
step; test $? = 1 || fail 'the first step'
says 'No space left'
step; test $? = 1 || fail 'still full'
: > ../fill
step; code=$?
test $code = 0 || fail \"the step after: $code\"
clean
git show HEAD:work.txt >/dev/null || fail 'the work is lost'
grep -q '\"passes\": true' .runner/state/tree.json || fail 'passed'
grep -q '\"attempts\": 0' .runner/state/tree.json || fail 'attempts'
\"$RUNNER\" validate >/dev/null || fail 'validate'
echo ALL GOOD"
    );
    let Some(run) = in_namespace(&repo, &script) else {
        return;
    };
    assert!(run.stdout.contains("ALL GOOD"), "{}", run.describe());
}

#[test]
fn a_file_system_that_becomes_read_only() {
    let repo = repo();
    repo.agent_at(
        1,
        "echo work > work.txt; out done x; cd \"$XDG_STATE_HOME/..\"; mount --bind repo repo; mount -o remount,bind,ro repo repo",
    );
    let script = format!(
        "{CHECKS}
cd .. && \"$RUNNER\" -C repo step > \"$MNT/../log\" 2>&1; test $? = 1 || fail 'the first step'
grep -qi 'read-only file system' \"$MNT/../log\" || fail 'should say why'
says 'hint:'
\"$RUNNER\" -C repo step > \"$MNT/../log\" 2>&1; test $? = 1 || fail 'still read-only'
grep -qi 'read-only' \"$MNT/../log\" || fail 'should say why'
\"$RUNNER\" -C repo status > \"$MNT/../log\" 2>&1 || fail 'looking is possible'
umount repo || fail 'umount'
cd repo
step; code=$?
test $code = 0 || fail \"the step after: $code\"
clean
git show HEAD:work.txt >/dev/null || fail 'the work is lost'
grep -q '\"passes\": true' .runner/state/tree.json || fail 'passed'
grep -q '\"attempts\": 0' .runner/state/tree.json || fail 'attempts'
echo ALL GOOD"
    );
    let Some(run) = in_namespace(&repo, &script) else {
        return;
    };
    assert!(run.stdout.contains("ALL GOOD"), "{}", run.describe());
}
