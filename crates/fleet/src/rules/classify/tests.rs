//! Every row of the table of endings.

use runner_lifecycle::packet::{ChangeAction, check_result, evidence};
use runner_lifecycle::{CriterionCheck, Timestamp};

use super::super::fixtures::{change, checked, task, worked};
use super::super::policy::{PathRules, findings};
use super::*;
use crate::workspaces::WorkResult;

/// `failed test`, `blocked SCOPE_VIOLATION`, `success c1`, …
fn words(ending: &WorkEnding) -> String {
    match ending {
        WorkEnding::Success { result, .. } => {
            format!("success {}", result.as_deref().unwrap_or("-"))
        }
        WorkEnding::Failed { category, .. } => format!("failed {category}"),
        WorkEnding::Blocked { code, .. } => format!("blocked {code}"),
        WorkEnding::Quota { account, .. } => format!("quota {account}"),
        WorkEnding::Postponed { .. } => "postponed".to_owned(),
        WorkEnding::GivenBack => "given back".to_owned(),
        WorkEnding::Lost => "lost".to_owned(),
    }
}

fn end(task: &Task, worked: &WorkOutcome) -> WorkEnding {
    let rules = PathRules::new(&["Makefile".to_owned()], &["*.pem".to_owned()], 3, 0).unwrap();
    let found = worked
        .result
        .as_ref()
        .map(|result| findings(task, &rules, &result.changes, 10))
        .unwrap_or_default();
    ending(task, "t-1", worked, &found)
}

#[test]
fn loops_that_end_early() {
    for (ending, why, expected) in [
        (LoopEnding::Interrupted, "", "lost"),
        (LoopEnding::Quota, "", "quota codex"),
        (LoopEnding::Stuck, "error: permission denied", "failed test"),
        (LoopEnding::IterationLimit, "still red", "failed model"),
        (
            LoopEnding::IterationLimit,
            "the agent goes in circles",
            "failed model_loop",
        ),
        (LoopEnding::Budget, "", "failed budget"),
        (LoopEnding::Timeout, "", "failed flaky"),
        (LoopEnding::RunnerError, "disk is full", "failed env"),
        (
            LoopEnding::RunnerError,
            "cannot write .git/index: Permission denied",
            "failed permission",
        ),
    ] {
        let worked = WorkOutcome {
            ending,
            why: why.to_owned(),
            ..worked()
        };
        assert_eq!(words(&end(&task(), &worked)), expected, "{ending} {why}");
    }
}

#[test]
fn complete_loops() {
    use ChangeAction::{Created, Modified};
    use CheckEnd::{Green, Red, Unable};
    let green = || worked().checks;
    let guard_only = |end, tail| vec![checked("guard", end, tail), checked("parses", Green, "")];
    for (name, changes, checks, expected) in [
        ("good", vec![("src/a.rs", Modified)], green(), "success c1"),
        ("no change", vec![], green(), "failed no_change"),
        (
            "red guard",
            vec![("src/a.rs", Modified)],
            guard_only(Red, "boom"),
            "failed test",
        ),
        (
            "red and no change",
            vec![],
            guard_only(Red, "boom"),
            "failed test",
        ),
        (
            "missing script",
            vec![("src/a.rs", Modified)],
            guard_only(Unable, "sh: just: not found"),
            "failed setup",
        ),
        (
            "script without x bit",
            vec![("src/a.rs", Modified)],
            guard_only(Unable, "./ci.sh: Permission denied"),
            "failed permission",
        ),
        (
            "unable wins over red",
            vec![("src/a.rs", Modified)],
            vec![
                checked("guard", Red, ""),
                checked("parses", Unable, "not found"),
            ],
            "failed setup",
        ),
        (
            "unchecked criterion",
            vec![("src/a.rs", Modified)],
            vec![checked("guard", Green, "")],
            "failed env",
        ),
        (
            "outside the scope",
            vec![("src/a.rs", Modified), ("docs/x.md", Created)],
            green(),
            "blocked SCOPE_VIOLATION",
        ),
        (
            "forbidden",
            vec![("src/secret/x.rs", Created)],
            green(),
            "blocked SCOPE_VIOLATION",
        ),
        (
            "denied",
            vec![("src/key.pem", Created)],
            green(),
            "failed policy",
        ),
        (
            "too many",
            vec![
                ("src/a", Created),
                ("src/b", Created),
                ("src/c", Created),
                ("src/d", Created),
            ],
            green(),
            "failed policy",
        ),
    ] {
        let mut task = task();
        task.forbidden_scope = super::super::fixtures::scope(&["src/secret"]);
        let changes: Vec<_> = changes
            .into_iter()
            .map(|(path, action)| change(path, action))
            .collect();
        let worked = WorkOutcome {
            result: (!changes.is_empty()).then(|| WorkResult {
                start: "s0".to_owned(),
                commit: "c1".to_owned(),
                changes,
            }),
            checks,
            ..worked()
        };
        assert_eq!(words(&end(&task, &worked)), expected, "{name}");
    }
}

#[test]
fn a_success_holds_before_the_law() {
    let WorkEnding::Success { packet, .. } = end(&task(), &worked()) else {
        panic!("it is a success");
    };
    check_result(&packet, &task(), "t-1").unwrap();
    evidence(&packet, &task(), |check| check == CriterionCheck::Command).unwrap();
    assert_eq!(packet.worklog_path, ".runner/fleet/worklogs/t-1.md");
}

#[test]
fn a_tester_may_change_nothing() {
    let tester = Task {
        expects_change: false,
        ..task()
    };
    let quiet = WorkOutcome {
        result: None,
        ..worked()
    };
    assert_eq!(words(&end(&tester, &quiet)), "success -");
    // What it changed all the same is said, and goes nowhere.
    let WorkEnding::Success { result, packet } = end(&tester, &worked()) else {
        panic!("it is a success");
    };
    assert_eq!(result, None);
    assert!(packet.changes.is_empty());
    assert!(packet.notes_for_orchestrator[0].contains("not merged"));
}

#[test]
fn silence_has_no_signature() {
    for (why, known) in [("", false), ("...\n12", false), ("error: x", true)] {
        let WorkEnding::Failed { signature, .. } = failed(FailureCategory::Flaky, "note", why)
        else {
            panic!("it failed");
        };
        assert_eq!(signature.is_some(), known, "{why:?}");
    }
}

#[test]
fn the_same_end_twice_is_a_circle() {
    let limit = WorkOutcome {
        ending: LoopEnding::IterationLimit,
        why: "error: no parser in step 3".to_owned(),
        ..worked()
    };
    let WorkEnding::Failed { signature, .. } = end(&task(), &limit) else {
        panic!("it failed");
    };
    let mut again = task();
    again.counters.signature = signature;
    let later = WorkOutcome {
        why: "error: no parser in step 17".to_owned(),
        ..limit.clone()
    };
    assert_eq!(words(&end(&again, &later)), "failed model_loop");
    let other = WorkOutcome {
        why: "error: no lexer".to_owned(),
        ..limit
    };
    assert_eq!(words(&end(&again, &other)), "failed model");
}

#[test]
fn what_is_said_about_it() {
    let reset = Some(Timestamp(7));
    let quota = WorkOutcome {
        ending: LoopEnding::Quota,
        quota_until: reset,
        ..worked()
    };
    assert!(matches!(
        end(&task(), &quota),
        WorkEnding::Quota { reset_at, .. } if reset_at == reset
    ));
    let mut red = worked();
    red.checks[1] = checked("parses", CheckEnd::Red, "error: left 1 right 2");
    let WorkEnding::Failed { note, .. } = end(&task(), &red) else {
        panic!("it failed");
    };
    assert_eq!(note, "`cargo test parser` is red: error: left 1 right 2");
    red.checks[1] = checked("parses", CheckEnd::Red, "\n");
    let WorkEnding::Failed { note, .. } = end(&task(), &red) else {
        panic!("it failed");
    };
    assert_eq!(note, "`cargo test parser` is red: evidence of parses");
    let mut unable = worked();
    unable.checks[1] = checked("parses", CheckEnd::Unable, "");
    let WorkEnding::Failed { note, .. } = end(&task(), &unable) else {
        panic!("it failed");
    };
    assert_eq!(
        note,
        "`cargo test parser` could not run: evidence of parses"
    );
    let mut outside = worked();
    if let Some(result) = &mut outside.result {
        result
            .changes
            .push(change("docs/a.md", ChangeAction::Created));
        result
            .changes
            .push(change("docs/b.md", ChangeAction::Created));
    }
    let WorkEnding::Blocked {
        reason, waits_for, ..
    } = end(&task(), &outside)
    else {
        panic!("it is blocked");
    };
    assert!(reason.starts_with("docs/a.md is outside the scope of the task; docs/b.md"));
    assert_eq!(waits_for.as_deref(), Some("docs/a.md, docs/b.md"));
}
