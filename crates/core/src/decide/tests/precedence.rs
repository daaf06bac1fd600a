//! Which row decides where several apply, and the mode of an iteration.

use super::*;

/// Every row of the table in order of precedence, as a fault of a `done`.
type Fault = (fn(&mut Session), OutcomeClass, &'static str);

const FAULTS: [Fault; 8] = [
    (
        |session| session.facts.runner_error = Some(boom(IterationErrorKind::Timeout)),
        OutcomeClass::RunnerError,
        "boom",
    ),
    (
        |session| session.facts.owned_changed.push("GOAL.md".into()),
        OutcomeClass::AgentError,
        "GOAL.md belongs to the runner",
    ),
    (
        |session| session.facts.protected_changed.push("justfile".into()),
        OutcomeClass::AgentError,
        "justfile is protected",
    ),
    (
        |session| session.facts.tree_unusable = Some("it is a link".into()),
        OutcomeClass::InvalidTree,
        "tree.json: it is a link",
    ),
    (
        |session| session.raw = Some(b"{".into()),
        OutcomeClass::InvalidTree,
        "line 1 column 1: EOF while parsing an object",
    ),
    (
        |session| session.after.children.push(plan("p")),
        OutcomeClass::InvalidTree,
        "root/p: this id is used by another node too",
    ),
    (
        |session| drop(take(&mut session.after, "z")),
        OutcomeClass::AgentError,
        "node z: an open node must not vanish",
    ),
    (
        |session| {
            session.after.children[1] = plan("s*1(n)");
        },
        OutcomeClass::AgentError,
        "status done does not allow children",
    ),
];

#[test]
fn the_first_row_that_applies_decides() {
    for (i, (fault, class, finding)) in FAULTS.iter().enumerate() {
        // With any later fault, with all later faults, and whatever the guard says.
        let later = &FAULTS[i + 1..];
        let mut combinations: Vec<&[Fault]> = later.chunks(1).collect();
        combinations.extend([later, &[]]);
        for combination in combinations {
            for exit in [0, 1] {
                let mut session = session(Done).guard_exit(exit);
                for (more, ..) in combination {
                    more(&mut session);
                }
                fault(&mut session);
                let outcome = session.outcome();
                assert_eq!(outcome.class, *class, "{finding}");
                let first = &outcome.findings[0];
                assert!(first.starts_with(finding), "{first}");
                assert_eq!(
                    (outcome.status, outcome.guard),
                    (Retry, GuardResult::Skipped)
                );
                assert_eq!(outcome.passes, Some(false));
                let attempts = 1 + u32::from(*class == OutcomeClass::AgentError);
                assert_eq!(outcome.attempts, Some(attempts));
            }
        }
    }
}

#[test]
fn only_a_consistent_done_asks_the_guard() {
    let asks = |session: &Session| {
        let (task, tree) = (session.task(), session.agent_tree());
        let assessment = assess(task, tree, session.output.as_ref(), &session.facts);
        matches!(assessment, Assessment::AskGuard(_))
    };
    assert!(asks(&session(Done)));
    assert!(asks(&session(Done).leaves("root(p+(a+) s*1 y z)")));
    assert!(!asks(&session(Retry)));
    assert!(!asks(&session(Decomposed).leaves("root(p+(a+) s*1(n) z)")));
    for (fault, class, finding) in FAULTS {
        let mut session = session(Done);
        fault(&mut session);
        assert!(!asks(&session), "{class:?} {finding}");
    }
    let mut repair = repair(0);
    repair.output.as_mut().unwrap().status = Done;
    assert!(!asks(&repair));
}

#[test]
fn modes() {
    let grown = "root(p+(a+) s*1 y z)";
    for (left, outside, expected) in [
        (BEFORE, false, IterationMode::Execute),
        (BEFORE, true, IterationMode::Execute),
        (grown, false, IterationMode::Decompose),
        (grown, true, IterationMode::Execute),
    ] {
        for exit in [0, 1] {
            let session = session(Done)
                .guard_exit(exit)
                .leaves(left)
                .facts(|facts| facts.changed_outside = outside);
            assert_eq!(session.outcome().mode, expected, "{left} {outside}");
        }
        let repair = repair(0)
            .leaves(left)
            .facts(|facts| facts.changed_outside = outside);
        assert_eq!(repair.outcome().mode, IterationMode::Repair);
        assert_eq!(recorded_node(&repair.task()), "repair-tree");
    }
    assert_eq!(recorded_node(&session(Done).task()), "s");
}
