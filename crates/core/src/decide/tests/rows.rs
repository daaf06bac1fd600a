//! Every row of the table of outcomes.

use super::*;

#[test]
fn runner_errors() {
    use IterationErrorKind as E;
    for kind in [
        E::Spawn,
        E::Timeout,
        E::Idle,
        E::NoOutput,
        E::MalformedOutput,
        E::GuardSpawn,
        E::GuardTimeout,
        E::Branch,
        E::Git,
        E::Io,
        E::Disk,
        E::Interrupted,
    ] {
        for status in AgentStatus::ALL {
            for exit in [None, Some(0), Some(1)] {
                let session = session(status).facts(|facts| {
                    facts.runner_error = Some(boom(kind));
                    facts.guard_exit = exit;
                });
                let expected = "RunnerError retry/skipped execute 1 false restored";
                session.comes_to(expected, &["boom"]);
            }
        }
    }
    let mut silent = session(Done).guard_exit(0);
    silent.output = None;
    silent.comes_to(
        "RunnerError retry/skipped execute 1 false restored",
        &["the session left no output"],
    );
    // Done, but nobody knows what the guard said.
    session(Done).comes_to(
        "RunnerError retry/skipped execute 1 false restored",
        &["the guard left no exit code"],
    );
}

#[test]
fn touched_files() {
    let all = session(Done)
        .guard_exit(0)
        .leaves("root(p+(a+) s*1 z y)")
        .facts(|facts| {
            facts.owned_changed = vec!["GOAL.md".into(), ".git/config".into()];
            facts.protected_changed = vec!["justfile".into()];
            facts.nested_repositories = vec!["vendor/x".into()];
            facts.denied_files = vec![".env".into()];
            facts.changed_outside = true;
        });
    let outcome = all.comes_to(
        "AgentError retry/skipped execute 2 false root(p+(a+) s*2 z)",
        &[
            "GOAL.md belongs to the runner: it was changed and has been restored",
            ".git/config belongs to the runner: it was changed and has been restored",
            "justfile is protected: what the session did to it has been undone",
            "vendor/x is a git repository of its own now: its .git has been taken away, its files stay",
            ".env must not go into a commit ([commit] in the config): it has been taken away",
        ],
    );
    let expected = heard("The session was not accepted:", &outcome.findings);
    assert_eq!(outcome.feedback, expected);
    assert!(outcome.changes.is_empty() && outcome.passed.is_empty());

    let lists: [List; 4] = [
        |facts| &mut facts.owned_changed,
        |facts| &mut facts.protected_changed,
        |facts| &mut facts.nested_repositories,
        |facts| &mut facts.denied_files,
    ];
    for list in lists {
        for status in AgentStatus::ALL {
            let outcome = session(status)
                .guard_exit(0)
                .facts(|facts| list(facts).push("it".into()))
                .outcome();
            let expected = "AgentError retry/skipped execute 2 false root(p+(a+) s*2 z)";
            assert_eq!(line(&outcome), expected);
            assert!(outcome.findings.len() == 1 && outcome.findings[0].starts_with("it "));
        }
    }
}

#[test]
fn invalid_trees() {
    let deep = format!("{}x{}", "n(".repeat(64), ")".repeat(64));
    for (sketch, finding) in [
        (
            "root(p+(a+) s*1 z z)",
            "root/z: this id is used by another node too",
        ),
        (
            "root(p+(a+) s*1(p) z)",
            "root/s/p: this id is used by another node too",
        ),
        (
            "root(p+(a+) s*1 z repair-tree)",
            "root/repair-tree: this id is reserved for the runner",
        ),
        (
            "root(p+(a+) s*1 z/0)",
            "node \"z\": max_attempts must be at least 1",
        ),
        (
            &deep,
            "line 769 column 256: the tree is deeper than 64 levels",
        ),
    ] {
        for status in AgentStatus::ALL {
            let session = session(status).guard_exit(0).leaves(sketch);
            let expected = "InvalidTree retry/skipped decompose 1 false as left";
            let outcome = session.comes_to(expected, &[finding]);
            let expected = heard("The session left an invalid tree:", &outcome.findings);
            assert_eq!(outcome.feedback, expected);
            assert!(outcome.changes.is_empty() && outcome.passed.is_empty());
        }
    }
    for bytes in ["", "{}", "[", "\u{feff}"] {
        let outcome = session(Done).guard_exit(0).leaves_bytes(bytes).outcome();
        let expected = "InvalidTree retry/skipped decompose 1 false as left";
        assert_eq!(line(&outcome), expected);
    }
    for (why, finding) in [
        ("it is a folder", "tree.json: it is a folder"),
        ("", "tree.json: "),
    ] {
        session(Done)
            .facts(|facts| facts.tree_unusable = Some(why.to_owned()))
            .comes_to(
                "InvalidTree retry/skipped decompose 1 false as left",
                &[finding],
            );
    }
    // Every finding is told.
    let outcome = session(Retry).leaves("root(p+(a+ n) s s z z)").outcome();
    assert_eq!(outcome.findings.len(), 2, "{:?}", outcome.findings);
}

#[test]
fn what_must_stay() {
    for (left, findings) in [
        (
            "root(p+(a+) s*1)",
            &["node z: an open node must not vanish"][..],
        ),
        (
            "root(s*1 z)",
            &[
                "node p: a passed node must not vanish",
                "node a: a passed node must not vanish",
            ],
        ),
        ("root(p+(a+) z)", &["node s: an open node must not vanish"]),
        ("root(p+ s*1 z)", &["node a: a passed node must not vanish"]),
        (
            "root(p+(a+ n) s*1 z)",
            &["node p: a passed node must not gain children (n)"],
        ),
        (
            "root(p+(a+ z) s*1)",
            &["node p: a passed node must not gain children (z)"],
        ),
        (
            "root(s*1(p+(a+)) z)",
            &["node p: a passed node must keep its parent"],
        ),
        (
            "root(a+ p+ s*1 z)",
            &["node a: a passed node must keep its parent"],
        ),
        (
            "root(p+(a+@1) s*1 z)",
            &["node a: a passed node must not change (order)"],
        ),
        (
            "top(p+(a+) s*1 z)",
            &[
                "node root: the root must stay the root",
                "node root: an open node must not vanish",
                "node p: a passed node must keep its parent",
            ],
        ),
    ] {
        for status in AgentStatus::ALL {
            let session = session(status).guard_exit(0).leaves(left);
            let expected = "AgentError retry/skipped decompose 2 false root(p+(a+) s*2 z)";
            let outcome = session.comes_to(expected, findings);
            let expected = heard("The session was not accepted:", &outcome.findings);
            assert_eq!(outcome.feedback, expected);
            assert!(outcome.changes.is_empty(), "the tree was restored: {left}");
        }
    }
    session(Done)
        .guard_exit(0)
        .edits("a", |node| node.goal = "less".into())
        .comes_to(
            "AgentError retry/skipped decompose 2 false root(p+(a+) s*2 z)",
            &["node a: a passed node must not change (goal)"],
        );
}

#[test]
fn words_and_deeds() {
    let no_children = "status decomposed needs children under the selected node s, but it has none";
    let children = |status| {
        format!(
            "status {status} does not allow children under the selected node s; \
             with children the status is decomposed"
        )
    };
    let goal = "status done does not allow another goal or acceptance for the selected node s";
    let error = "AgentError retry/skipped decompose 2 false root(p+(a+) s*2 z)";
    for (status, left, finding) in [
        (Done, "root(p+(a+) s*1(n) z)", children(Done)),
        (Done, "root(p+(a+) s*1(z))", children(Done)),
        (Retry, "root(p+(a+) s*1(n m) z)", children(Retry)),
        (Decomposed, "root(p+(a+) s*1 z(n))", no_children.to_owned()),
    ] {
        let outcome = session(status)
            .guard_exit(0)
            .leaves(left)
            .comes_to(error, &[&finding]);
        let expected = heard("The session was not accepted:", &outcome.findings);
        assert_eq!(outcome.feedback, expected);
        assert!(outcome.changes.is_empty());
    }
    session(Decomposed).comes_to(
        "AgentError retry/skipped execute 2 false root(p+(a+) s*2 z)",
        &[no_children],
    );

    let edits: [(Edit, bool); 6] = [
        (|node| node.goal = "less".into(), false),
        (|node| node.acceptance.clear(), false),
        (|node| node.acceptance.push("and tea".into()), false),
        (|node| node.acceptance[0] = "".into(), false),
        (|node| node.title = "better".into(), true),
        (|node| node.order = -3, true),
    ];
    for (edit, allowed) in edits {
        let done = session(Done).guard_exit(0).edits("s", edit);
        if allowed {
            let outcome = done.outcome();
            assert_eq!(
                (outcome.class, outcome.passes),
                (OutcomeClass::Ok, Some(true))
            );
            assert_eq!(outcome.changes.edited, ["s"]);
        } else {
            done.comes_to(error, &[goal]);
        }
        // Other leaves may be planned anew, and with another word this one too.
        let other = session(Done).guard_exit(0).edits("z", edit).outcome();
        assert_eq!((other.class, other.passes), (OutcomeClass::Ok, Some(true)));
        let retry = session(Retry).edits("s", edit).outcome();
        assert_eq!((retry.class, retry.attempts), (OutcomeClass::Ok, Some(2)));
        assert_eq!(retry.changes.edited, ["s"]);
    }
    session(Done)
        .guard_exit(0)
        .leaves("root(p+(a+) s*1(n) z)")
        .edits("s", |node| node.goal = "less".into())
        .comes_to(error, &[&children(Done), goal]);
}

#[test]
fn consistent_sessions() {
    for (status, exit, left, expected, passed) in [
        (
            Done,
            0,
            BEFORE,
            "Ok done/pass execute 1 true root(p+(a+) s+*1 z)",
            "s",
        ),
        (
            Done,
            1,
            BEFORE,
            "Ok done/fail execute 2 false root(p+(a+) s*2 z)",
            "",
        ),
        (
            Done,
            137,
            BEFORE,
            "Ok done/fail execute 2 false root(p+(a+) s*2 z)",
            "",
        ),
        (
            Done,
            -1,
            BEFORE,
            "Ok done/fail execute 2 false root(p+(a+) s*2 z)",
            "",
        ),
        (
            Retry,
            0,
            BEFORE,
            "Ok retry/skipped execute 2 false root(p+(a+) s*2 z)",
            "",
        ),
        (
            Decomposed,
            0,
            "root(p+(a+) s*1(m n@-1) z)",
            "Ok decomposed/skipped decompose 1 false root(p+(a+) s*1(n@-1 m) z)",
            "",
        ),
        (
            Decomposed,
            0,
            "root(p+(a+) s*1(z))",
            "Ok decomposed/skipped decompose 1 false root(p+(a+) s*1(z))",
            "",
        ),
        // Unsorted children are no finding, and the plan may grow elsewhere.
        (
            Done,
            0,
            "root(z(y x) s*1 p+(a+))",
            "Ok done/pass decompose 1 true root(p+(a+) s+*1 z(x y))",
            "s",
        ),
        (
            Retry,
            0,
            "root(z q@1 p+(a+) s*1)",
            "Ok retry/skipped decompose 2 false root(p+(a+) s*2 z q@1)",
            "",
        ),
        // The selected leaf may itself be moved; parents are derived.
        (
            Done,
            0,
            "root(p+(a+) q(s*1) z)",
            "Ok done/pass decompose 1 true root(p+(a+) q+(s+*1) z)",
            "s q",
        ),
        (
            Done,
            1,
            "root(p+(a+) q(s*1) z)",
            "Ok done/fail decompose 2 false root(p+(a+) q(s*2) z)",
            "",
        ),
    ] {
        let outcome = session(status)
            .guard_exit(exit)
            .leaves(left)
            .comes_to(expected, &[]);
        assert_eq!(outcome.passed.join(" "), passed, "{left}");
        assert_eq!(outcome.feedback, "words");
    }
    let outcome = session(Decomposed)
        .leaves("root(p+(a+) x s*1(m z@7(n)))")
        .outcome();
    assert_eq!(outcome.changes.added, ["m", "n", "x"]);
    assert_eq!(outcome.changes.edited, ["z"]);
    assert_eq!(outcome.changes.moved, ["z"]);

    // The last open leaf completes the tree; the last attempt is the last.
    for (exit, left, expected, passed) in [
        (0, "s*2", "Ok done/pass execute 2 true s+*2", "s"),
        (1, "s*2", "Ok done/fail execute 3 false s*3", ""),
        (1, "s*3", "Ok done/fail execute 3 false s*3", ""),
        (
            0,
            "root(p(s))",
            "Ok done/pass execute 0 true root+(p+(s+))",
            "s p root",
        ),
    ] {
        let mut session = session(Done).guard_exit(exit).leaves(left);
        session.before = plan(left);
        assert_eq!(session.comes_to(expected, &[]).passed.join(" "), passed);
    }
}

#[test]
fn forged_fields_gain_nothing_and_break_nothing() {
    for forged in [
        "root+(p+(a+) s+*1 z+)",
        "root(p(a) s*1 z)",
        "root*9/9(p+*2(a+*2) s*0 z*1)",
        "root(p+(a+) s*1/99 z/1)",
        "root(p+/9(a+/9) s*9/1 z*4/2)",
    ] {
        for (status, exit, expected) in [
            (Done, 0, "Ok done/pass decompose 1 true root(p+(a+) s+*1 z)"),
            (Done, 1, "Ok done/fail decompose 2 false root(p+(a+) s*2 z)"),
            (
                Retry,
                0,
                "Ok retry/skipped decompose 2 false root(p+(a+) s*2 z)",
            ),
        ] {
            let session = session(status).guard_exit(exit).leaves(forged);
            let outcome = session.comes_to(expected, &[]);
            assert!(outcome.changes.is_empty(), "{forged}");
        }
    }
    session(Decomposed)
        .facts(|facts| facts.max_attempts_default = 2)
        .leaves("root(p+(a+) s+*1(m+*2/9(k+) n/1) z)")
        .comes_to(
            "Ok decomposed/skipped decompose 1 false root(p+(a+) s*1(m/2(k/2) n/1) z)",
            &[],
        );
}

#[test]
fn files_changed_by_the_guard() {
    for exit in [0, 1] {
        let outcome = session(Done)
            .guard_exit(exit)
            .leaves("root(p+(a+) s*1 y z)")
            .facts(|facts| facts.changed_by_guard = vec!["justfile".into(), "tree.json".into()])
            .outcome();
        // What it judged is not what would be committed, whatever it says.
        assert_eq!(outcome.class, OutcomeClass::Ok);
        assert_eq!((outcome.status, outcome.guard), (Done, GuardResult::Fail));
        assert_eq!(outcome.passes, Some(false));
        assert!(outcome.passed.is_empty());
    }
}
