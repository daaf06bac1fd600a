//! That the recovery table leaves no gap, and no task without an end.

use super::*;

/// Facts that make a difference to some row.
fn many_facts() -> Vec<Facts> {
    let mut all = vec![Facts::default()];
    let edits: [Edit; 10] = [
        |_, f| has_run(f, |_| ()),
        |_, f| has_run(f, |run| run.judged_at = Some(NOW)),
        |_, f| has_run(f, |run| run.verdict = Some(JudgeVerdict::Reject)),
        |_, f| f.run = Some(run(TaskRunStatus::Failed)),
        |_, f| f.safe_path = true,
        |_, f| f.pull_request = pull_request("c2", false),
        |_, f| f.issue = issue(None, true),
        |_, f| chain(f, DependencyChain::Dead),
        |_, f| held(f, "src"),
        |_, f| f.repaired = Some(false),
    ];
    for edit in edits {
        let mut more = all.clone();
        for facts in &mut more {
            edit(&mut task(BlockReason::Cooldown, TaskPhase::Work), facts);
        }
        all.extend(more);
    }
    all
}

#[test]
fn exactly_one_row_applies_to_every_reason_and_phase() {
    let policy = Policy::default();
    let all_facts = many_facts();
    let mut used = std::collections::BTreeSet::new();
    for reason in BlockReason::ALL {
        for phase in TaskPhase::ALL {
            for kind in TaskKind::ALL {
                for cause in std::iter::once(None).chain(ReworkCause::ALL.iter().map(Some)) {
                    for (packets, runs) in [(0, 0), (3, 0), (0, 10)] {
                        let mut task = task(*reason, *phase);
                        task.kind = *kind;
                        task.rework_cause = cause.copied();
                        task.counters.setup_packets = packets;
                        task.counters.policy_packets = packets;
                        task.counters.runs = runs;
                        for facts in &all_facts {
                            let case = RecoveryCase {
                                policy: &policy,
                                task: &task,
                                facts,
                                now: NOW,
                            };
                            let rows: Vec<&RecoveryRow> =
                                TABLE.iter().filter(|row| row.matches(&case)).collect();
                            let names: Vec<&str> = rows.iter().map(|row| row.name).collect();
                            assert_eq!(rows.len(), 1, "{reason} {phase} {cause:?}: {names:?}");
                            used.insert(rows[0].name);
                            check_bound(rows[0], &(rows[0].action)(&case), *reason);
                        }
                    }
                }
            }
        }
    }
    // Every row is of use; the first one needs an open intent.
    let unused: Vec<&str> = TABLE
        .iter()
        .map(|row| row.name)
        .filter(|n| !used.contains(n))
        .collect();
    assert_eq!(unused, ["open_intent_retry"]);
}

/// Each row has a bound, a clock, or waits for somebody else.
fn check_bound(row: &RecoveryRow, action: &RecoveryAction, reason: BlockReason) {
    let waits = matches!(
        action,
        RecoveryAction::Stay
            | RecoveryAction::Park(_)
            | RecoveryAction::Wait(_)
            | RecoveryAction::Repair
    );
    match row.bound {
        RecoveryBound::Counted | RecoveryBound::Clock => {}
        // It goes on only once what it waits for has happened, and to another reason.
        RecoveryBound::Waits => assert!(
            waits
                || matches!(
                    action,
                    RecoveryAction::Resume
                        | RecoveryAction::Unjudge
                        | RecoveryAction::Cancel(_)
                        | RecoveryAction::Requeue(_)
                ),
            "{reason} {}: {action:?}",
            row.name
        ),
    }
}

#[test]
fn judged_work_never_goes_back_to_a_worker_by_an_interruption() {
    for reason in [
        BlockReason::TaskTimeout,
        BlockReason::Cooldown,
        BlockReason::QuotaWait,
        BlockReason::ConcurrencyConflict,
        BlockReason::LockConflict,
        BlockReason::DependencyNotMet,
        BlockReason::LedgerInconsistent,
    ] {
        let task = task(reason, TaskPhase::Judge);
        let mut facts = Facts {
            repaired: Some(true),
            ..Facts::default()
        };
        has_run(&mut facts, |_| ());
        let (_, action) = plan(&Policy::default(), &task, &facts, NOW).unwrap();
        assert_eq!(action, RecoveryAction::Resume, "{reason}");
    }
}

#[test]
fn parked_tasks() {
    for (reason, parked) in [
        (BlockReason::IssueLinking, true),
        (BlockReason::InvalidTransition, true),
        (BlockReason::Cooldown, false),
        (BlockReason::NeedsRework, false),
        (BlockReason::AwaitingJudge, false),
    ] {
        let task = task(reason, TaskPhase::Work);
        let got = is_parked(&Policy::default(), &task, &Facts::default(), NOW);
        assert_eq!(got, parked, "{reason}");
    }
    let todo = Task::blank(id("t"));
    assert!(plan(&Policy::default(), &todo, &Facts::default(), NOW).is_none());
}
