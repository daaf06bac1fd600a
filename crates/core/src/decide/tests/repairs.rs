//! Repairs, and what the bookkeeping says after each class.

use super::*;

#[test]
fn repairs_that_are_accepted() {
    for (left, after, changed) in [
        (BEFORE, BEFORE, [""; 3]),
        // As strict and as lenient as after any session.
        ("root(z s*1 p+(a+))", BEFORE, [""; 3]),
        ("root+(p(a) s+*3/9 z+*1)", BEFORE, [""; 3]),
        (
            "root(p+(a+) y+/9(z) s@2(n))",
            "root(p+(a+) y(z) s*1@2(n))",
            ["y n", "s", "z"],
        ),
    ] {
        for refused in [0, 2, 99] {
            let expected = format!("Repaired retry/skipped repair - - {after}");
            let outcome = repair(refused).leaves(left).comes_to(&expected, &[]);
            let changes = outcome.changes;
            let lists = [changes.added, changes.edited, changes.moved];
            assert_eq!(lists.map(|ids| ids.join(" ")), changed, "{left}");
            assert_eq!((&*outcome.feedback, outcome.passed.len()), ("words", 0));
        }
    }
}

#[test]
fn repairs_that_are_refused() {
    let cases: [(Spoil, &[&str]); 9] = [
        (
            |repair| repair.leaves_bytes("{"),
            &["line 1 column 1: EOF while parsing an object"],
        ),
        (
            |repair| repair.facts(|facts| facts.tree_unusable = Some("it is gone".into())),
            &["tree.json: it is gone"],
        ),
        (
            |repair| repair.leaves("root(p+(a+) s*1 z z)"),
            &["root/z: this id is used by another node too"],
        ),
        (
            |repair| repair.leaves("root(p+(a+ n) s*1 z)"),
            &["node p: a passed node must not gain children (n)"],
        ),
        (
            |repair| repair.leaves("root(s*1)"),
            &[
                "node p: a passed node must not vanish",
                "node a: a passed node must not vanish",
                "node z: an open node must not vanish",
            ],
        ),
        (
            |repair| repair.edits("a", |node| node.title = "new".into()),
            &["node a: a passed node must not change (title)"],
        ),
        (
            |repair| repair.facts(|facts| facts.owned_changed.push("GOAL.md".into())),
            &["GOAL.md belongs to the runner: it was changed and has been restored"],
        ),
        (
            |repair| repair.facts(|facts| facts.protected_changed.push("justfile".into())),
            &["justfile is protected: what the session did to it has been undone"],
        ),
        // Misdeeds come before the tree here too.
        (
            |repair| {
                repair
                    .leaves_bytes("{")
                    .facts(|facts| facts.denied_files.push(".env".into()))
            },
            &[".env must not go into a commit ([commit] in the config): it has been taken away"],
        ),
    ];
    for (spoil, findings) in cases {
        for (refused, expected) in [
            (0, "RepairRefused retry/skipped repair - - restored"),
            (1, "RepairRefused retry/skipped repair - - restored"),
            (2, "RepairRestored retry/skipped repair - - last valid"),
            (3, "RepairRestored retry/skipped repair - - last valid"),
            (
                u32::MAX,
                "RepairRestored retry/skipped repair - - last valid",
            ),
        ] {
            let outcome = spoil(repair(refused)).comes_to(expected, findings);
            let expected = heard("The repair was refused:", &outcome.findings);
            assert_eq!(outcome.feedback, expected);
            assert!(outcome.changes.is_empty());
        }
    }
    let repair = repair(0);
    let same = decide(
        repair.task(),
        AgentTree::Same,
        repair.output.as_ref(),
        &repair.facts,
    );
    assert_eq!(
        line(&same),
        "RepairRefused retry/skipped repair - - restored"
    );
    assert_eq!(same.findings, ["tree.json was not changed"]);
}

#[test]
fn runner_errors_in_a_repair_refuse_nothing() {
    for refused in [0, 2] {
        let expected = "RunnerError retry/skipped repair - - restored";
        repair(refused)
            .facts(|facts| {
                facts.runner_error = Some(boom(IterationErrorKind::Idle));
                facts.owned_changed.push("GOAL.md".into());
            })
            .comes_to(expected, &["boom"]);
        let mut silent = repair(refused);
        silent.output = None;
        silent.comes_to(expected, &["the session left no output"]);
    }
}

#[test]
fn run_state_after_each_class() {
    let begun = RunState {
        last_status: Some(Done),
        last_summary: Some("earlier".to_owned()),
        last_guard: Some(GuardResult::Fail),
        last_node_id: Some("s".to_owned()),
        ..RunState::new(Some("run".to_owned()))
    };
    let errors =
        session(Done).facts(|facts| facts.runner_error = Some(boom(IterationErrorKind::Git)));
    for (session, class, status, guard) in [
        (
            session(Done).guard_exit(0),
            OutcomeClass::Ok,
            Done,
            GuardResult::Pass,
        ),
        (
            session(Done).guard_exit(1),
            OutcomeClass::Ok,
            Done,
            GuardResult::Fail,
        ),
        (
            session(Retry),
            OutcomeClass::Ok,
            Retry,
            GuardResult::Skipped,
        ),
        (
            session(Decomposed),
            OutcomeClass::AgentError,
            Retry,
            GuardResult::Skipped,
        ),
        (
            session(Done).leaves_bytes(""),
            OutcomeClass::InvalidTree,
            Retry,
            GuardResult::Skipped,
        ),
        (errors, OutcomeClass::RunnerError, Done, GuardResult::Fail),
        (
            repair(0),
            OutcomeClass::Repaired,
            Retry,
            GuardResult::Skipped,
        ),
        (
            repair(0).leaves_bytes(""),
            OutcomeClass::RepairRefused,
            Retry,
            GuardResult::Skipped,
        ),
        (
            repair(2).leaves_bytes(""),
            OutcomeClass::RepairRestored,
            Retry,
            GuardResult::Skipped,
        ),
    ] {
        let outcome = session.outcome();
        assert_eq!(outcome.class, class);
        let node = recorded_node(&session.task());
        let state = begun.after(node, &outcome);
        let mut expected = RunState {
            next_iter: 2,
            ..begun.clone()
        };
        if class != OutcomeClass::RunnerError {
            expected.last_status = Some(status);
            expected.last_summary = Some(outcome.feedback.clone());
            expected.last_guard = Some(guard);
            expected.last_node_id = Some(node.to_owned());
        }
        assert_eq!(state, expected, "{class:?}");
        assert_eq!(
            state.failed_for("s"),
            guard == GuardResult::Fail,
            "{class:?}"
        );
    }
    let last = RunState {
        next_iter: u32::MAX,
        ..begun
    };
    assert_eq!(
        last.after("s", &session(Retry).outcome()).next_iter,
        u32::MAX
    );
}

#[test]
fn no_session_makes_the_run_state_unreadable() {
    let mut crowd = session(Retry);
    let others = (0..60_000).map(|i| Node::leaf(format!("{i:0>64}"), "", "", 3));
    crowd.before.children.extend(others);
    let long = format!("{{\"order\":{:?}}}", "\n".repeat(5_000_000));
    let many = session(Done).facts(|facts| {
        facts.denied_files = vec!["x".repeat(4_000); 2_000];
    });
    for mut session in [
        crowd,
        session(Retry).leaves_bytes(long),
        many,
        repair(0).leaves_bytes(""),
    ] {
        let summary = "\u{1}".repeat(crate::output::MAX_SUMMARY_CHARS);
        session.output.as_mut().unwrap().summary = summary;
        let state = RunState::new(None).after("s", &session.outcome());
        let bytes = state.to_bytes();
        assert!(bytes.len() < run_state::MAX_BYTES / 4, "{}", bytes.len());
        assert_eq!(RunState::parse(&bytes), Ok(state));
    }
}
