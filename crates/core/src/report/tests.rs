//! The page, from records alone.

use super::*;
use crate::meta::tests::meta;
use crate::meta::{GuardResult, GuardRun, OutcomeClass, RunnerError};
use crate::output::AgentStatus;

fn inputs<'a>(tree: Result<&'a Node<'a>, InvalidTree>) -> ReportInputs<'a> {
    ReportInputs {
        run_id: Some("demo".to_owned()),
        branch: Some("runner/demo".to_owned()),
        tip: Some("runner/demo".to_owned()),
        landed: None,
        base: Some(("main".to_owned(), "ba5e".to_owned())),
        title: "Ship it".to_owned(),
        tree,
        iterations: Vec::new(),
        by_hand: Vec::new(),
        running: None,
        ended: None,
        cut_off: None,
        histories: HashMap::new(),
        assumptions: Vec::new(),
        questions: Vec::new(),
        landing: Vec::new(),
        wall_ms: None,
        missing: Vec::new(),
    }
}

#[test]
fn what_went_wrong_last_is_told() {
    let plan = tree(false, 0, false);
    let failed = |iter: u32, kind, message: &str| {
        let mut meta = meta(iter, "a");
        meta.class = OutcomeClass::RunnerError;
        meta.error = Some(RunnerError::new(kind, message));
        ReportIteration {
            iter,
            meta: Some(meta),
            commit: None,
        }
    };
    let missing = "cannot start the agent `x`: no such file or directory";
    for (iterations, expected, outcomes) in [
        (vec![], None, ""),
        (
            vec![
                failed(1, IterationErrorKind::NoOutput, "no report"),
                failed(2, IterationErrorKind::Spawn, missing),
            ],
            Some((2, missing, true)),
            "runner error",
        ),
        (
            vec![failed(1, IterationErrorKind::Io, "no space")],
            Some((1, "no space", false)),
            "runner error",
        ),
        (
            vec![failed(1, IterationErrorKind::Interrupted, "killed")],
            None,
            "cut off",
        ),
    ] {
        let mut it = inputs(Ok(&plan));
        it.iterations = iterations;
        let report = assemble(it);
        let told = report.errors.first();
        let told = told.map(|it| (it.iter, it.message.as_str(), it.hint.is_some()));
        assert_eq!(told, expected);
        let words = report.outcomes.first().map_or("", |it| it.outcome.words());
        assert_eq!(words, outcomes);
    }
    let mut it = inputs(Ok(&plan));
    it.cut_off = Some((3, "a".to_owned()));
    let report = assemble(it);
    assert_eq!(
        (report.state, report.verdict.as_str()),
        (
            "interrupted",
            "cut off in iteration 3 (a); `runner loop` settles it and goes on; 0 of 2 leaves passed"
        )
    );
}

fn tree(a_passes: bool, b_attempts: u32, b_passes: bool) -> Node<'static> {
    let mut root = Node::leaf("root", "t", "", 3);
    let mut a = Node::leaf("a", "First", "", 3);
    a.passes = a_passes;
    let mut b = Node::leaf("b", "Second", "", 3);
    (b.attempts, b.passes) = (b_attempts, b_passes);
    root.children = vec![a, b];
    root.passes = a_passes && b_passes;
    root
}

fn ended(status: &str, reason: &str) -> EndedLoop {
    EndedLoop {
        status: status.to_owned(),
        reason: (!reason.is_empty()).then(|| reason.to_owned()),
    }
}

fn check(inputs: ReportInputs<'_>, state: &str, verdict: &str, commands: &[&str]) {
    let report = assemble(inputs);
    assert_eq!(report.state, state);
    assert_eq!(report.verdict, verdict);
    let next: Vec<&str> = report.next.iter().map(|it| it.command.as_str()).collect();
    assert_eq!(next, commands, "{state}");
}

#[test]
fn the_verdict_and_what_to_type() {
    let complete = tree(true, 0, true);
    check(
        inputs(Ok(&complete)),
        "complete",
        "complete: all 2 leaves have passed",
        &[
            "runner land",
            "git diff --stat main...runner/demo -- . ':(exclude).runner'",
        ],
    );
    let mut it = inputs(Ok(&complete));
    it.base = Some(("HEAD".to_owned(), "abc".to_owned()));
    check(
        it,
        "complete",
        "complete: all 2 leaves have passed",
        &[
            "runner land --into BRANCH",
            "git diff --stat abc...runner/demo -- . ':(exclude).runner'",
        ],
    );
    let mut it = inputs(Ok(&complete));
    it.landing = vec![LandForecast {
        expect: LandExpectation::Refused,
        why: "the guard gave exit 1".to_owned(),
        changed: vec!["check.config.json".to_owned()],
        added: Vec::new(),
        accept: Some("runner land --accept-changed-judge".to_owned()),
    }];
    check(
        it,
        "complete",
        "complete: all 2 leaves have passed",
        &[
            "git diff --stat main...runner/demo -- . ':(exclude).runner'",
            "runner land --accept-changed-judge",
        ],
    );
    let mut it = inputs(Ok(&complete));
    it.landed = Some(("main".to_owned(), "0123456789abcdef".to_owned()));
    check(
        it,
        "complete",
        "complete: all 2 leaves have passed; landed on main (0123456789ab)",
        &["git show --stat 0123456789abcdef", "runner init"],
    );
    let stuck = tree(true, 3, false);
    let mut it = inputs(Ok(&stuck));
    // How the loop ended says less than what the tree says.
    it.ended = Some(ended("stuck", ""));
    check(
        it,
        "stuck",
        "stuck at root/b: all 3 of its attempts are used up; 1 of 2 leaves passed",
        &["runner retry b", "runner edit tree"],
    );
    let open = tree(true, 1, false);
    let mut it = inputs(Ok(&open));
    it.running = Some(RunningLoop {
        pid: 7,
        iter: Some(4),
        node_id: Some("b".to_owned()),
    });
    check(
        it,
        "running",
        "running (pid 7), iteration 4 at b; 1 of 2 leaves passed",
        &["runner status"],
    );
    for (end, state, verdict, commands) in [
        (
            None,
            "open",
            "not running, root/b is next; 1 of 2 leaves passed",
            &["runner loop"][..],
        ),
        (
            Some(ended("stopped", "2 steps were taken, as asked")),
            "stopped",
            "stopped: 2 steps were taken, as asked; 1 of 2 leaves passed",
            &["runner loop"],
        ),
        (
            Some(ended("limit", "the run has had its 9 iterations")),
            "limit",
            "stopped by a limit: the run has had its 9 iterations; 1 of 2 leaves passed",
            &["runner edit config", "runner loop"],
        ),
        (
            Some(ended("error", "no key")),
            "error",
            "stopped by an error: no key; 1 of 2 leaves passed",
            &["runner doctor", "runner loop"],
        ),
        (
            Some(ended("interrupted", "")),
            "interrupted",
            "stopped by a signal; nothing is lost; 1 of 2 leaves passed",
            &["runner loop"],
        ),
    ] {
        let mut it = inputs(Ok(&open));
        let mut last = meta(1, "b");
        last.error = Some(RunnerError::new(IterationErrorKind::Auth, "no key"));
        it.iterations = vec![ReportIteration {
            iter: 1,
            meta: Some(last),
            commit: None,
        }];
        it.ended = end;
        check(it, state, verdict, commands);
    }
    let invalid = |repair| InvalidTree {
        findings: vec!["root: broken".to_owned()],
        repair,
    };
    check(
        inputs(Err(invalid(true))),
        "repair",
        "the tree is invalid: the next step will have it repaired",
        &["runner loop"],
    );
    check(
        inputs(Err(invalid(false))),
        "invalid",
        "the tree is invalid: root: broken",
        &["runner edit tree", "runner validate"],
    );
    let mut it = inputs(Ok(&open));
    it.run_id = None;
    check(
        it,
        "not_started",
        "no run has been started here",
        &["runner start"],
    );
}

fn passed_at(iter: u32, node: &str) -> IterationMeta {
    let mut it = meta(iter, node);
    (it.status, it.guard) = (AgentStatus::Done, GuardResult::Pass);
    it.guard_run = Some(GuardRun {
        command: vec!["ci".to_owned()],
        exit_code: Some(0),
        duration_ms: 1,
        log_sha256: "from-meta".to_owned(),
        checkout: None,
        setup_sha256: None,
    });
    it
}

fn committed(iter: u32, node: &str, verdict: IterationVerdict) -> ReportCommit {
    ReportCommit {
        id: format!("c{iter}"),
        node_id: node.to_owned(),
        verdict,
        guard_exit: Some(0),
        log_sha256: Some("from-commit".to_owned()),
    }
}

#[test]
fn proofs_come_from_commits_else_from_records_else_are_missing() {
    let root = tree(true, 0, true);
    for (meta, commit, expected) in [
        (true, true, (Some(5), Some("c5"), Some("from-commit"))),
        (false, true, (Some(5), Some("c5"), Some("from-commit"))),
        (true, false, (Some(5), None, Some("from-meta"))),
        (false, false, (None, None, None)),
    ] {
        let mut it = inputs(Ok(&root));
        it.iterations = vec![ReportIteration {
            iter: 5,
            meta: meta.then(|| passed_at(5, "b")),
            commit: commit.then(|| committed(5, "b", IterationVerdict::Passed)),
        }];
        let report = assemble(it);
        // Those without a proof come first, and none is left out.
        assert_eq!(report.passed.len(), 2);
        assert_eq!(report.passed[0].iter, None);
        let b = report.passed.iter().find(|it| it.node_id == "b").unwrap();
        assert_eq!(
            (b.iter, b.commit.as_deref(), b.log_sha256.as_deref()),
            expected
        );
    }
}

#[test]
fn an_invalid_tree_still_shows_what_passed() {
    let mut it = inputs(Err(InvalidTree {
        findings: vec!["x".to_owned()],
        repair: true,
    }));
    it.iterations = vec![ReportIteration {
        iter: 2,
        meta: Some(passed_at(2, "a")),
        commit: None,
    }];
    let report = assemble(it);
    assert_eq!(report.passed[0].node_id, "a");
    assert_eq!((report.leaves, report.stuck.len()), (None, 0));
}

#[test]
fn changes_touches_and_counts() {
    let root = tree(false, 0, false);
    let mut split = meta(1, "root");
    split.status = AgentStatus::Decomposed;
    split.tree_changes.added = vec!["a".to_owned(), "b".to_owned()];
    let mut bad = meta(2, "a");
    bad.class = OutcomeClass::AgentError;
    bad.facts.protected_changed = vec!["ci.sh".to_owned()];
    bad.watched_changed = vec!["tests/a".to_owned()];
    bad.facts.guard_written = vec!["justfile".to_owned()];
    let mut it = inputs(Ok(&root));
    it.iterations = [split, bad, meta(3, "a"), meta(4, "a")]
        .into_iter()
        .map(|meta| ReportIteration {
            iter: meta.iter,
            meta: Some(meta),
            commit: None,
        })
        .collect();
    it.by_hand = vec![
        (2, ByHand::parse("chore(loop): edit goal").unwrap()),
        (2, ByHand::parse("chore(loop): edit tree").unwrap()),
    ];
    let report = assemble(it);
    let changes: Vec<_> = report
        .plan_changes
        .iter()
        .map(|it| (it.iter, it.by, it.decomposed, it.added.len()))
        .collect();
    assert_eq!(changes, [(1, "agent", true, 2), (2, "person", false, 0)]);
    let touched: Vec<_> = report
        .touched
        .iter()
        .map(|it| (it.iter, it.kind, it.words()))
        .collect();
    assert_eq!(
        touched,
        [
            (2, "watched", "watched, the change is committed"),
            (2, "protected", "protected, put back"),
            (
                2,
                "guard_written",
                "the agent wrote its own guard: read it before you trust what passed"
            )
        ]
    );
    let counts: Vec<_> = report
        .outcomes
        .iter()
        .map(|it| (it.outcome, it.count))
        .collect();
    assert_eq!(
        counts,
        [
            (IterationVerdict::Retry, 2),
            (IterationVerdict::Decomposed, 1),
            (IterationVerdict::NotAccepted, 1)
        ]
    );
    assert_eq!(report.usage.iterations, 4);
    assert_eq!(report.nodes.len(), 2);
}
