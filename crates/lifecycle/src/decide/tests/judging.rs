//! Verdicts, the merge queue and open intents.

use super::*;
use crate::words::{BasePosition, JudgeVerdict, TaskPhase};

#[test]
fn from_a_result_to_done() {
    let mut desk = Desk::new();
    desk.work();
    assert_eq!(desk.task.phase, TaskPhase::Judge);
    assert!(desk.locks.is_empty());
    let token = desk.claim("j", LeasePurpose::Judge);
    assert_eq!(desk.locks, [resource("@judge/t")]);
    let run = desk.facts.run.clone().unwrap();
    assert_eq!((run.judged_at, run.judgement_version), (Some(NOW), 1));
    let ending = JudgeEnding::Approve {
        packet: desk.packet(),
    };
    desk.ask("j", Request::Judge { token, ending });
    assert_eq!(desk.stands(), "blocked(awaiting_judge)");

    // Not the head of the queue.
    desk.facts.is_merge_head = false;
    let early = claim("j", LeasePurpose::Merge, "k");
    assert_eq!(desk.refused("j", early), RefusalCode::LockConflict);
    // It is judged: no second judge.
    let again = claim("j", LeasePurpose::Judge, "k");
    assert_eq!(desk.refused("j", again), RefusalCode::InvalidTransition);

    let token = desk.claim("j", LeasePurpose::Merge);
    assert_eq!(desk.locks, [resource("@judge/t"), resource("@merge/main")]);
    let request = desk.intent(token);
    let recorded = desk.ask("j", request.clone());
    let again = desk.ask("j", request.clone());
    assert!(again.is_empty() && again.replayed, "the same intent again");
    assert_eq!(again.answer, recorded.answer);
    let Request::RecordIntent { intent, packet, .. } = request else {
        unreachable!();
    };
    let packet = ResultPacket {
        worklog_path: "other.md".to_owned(),
        ..packet
    };
    let other = Request::RecordIntent {
        token,
        intent,
        packet,
    };
    assert_eq!(desk.refused("j", other), RefusalCode::ConcurrencyConflict);
    let mut other = super::intent();
    other.merge_commit = "n".to_owned();
    let base = BasePosition::Merged;
    let other = Request::SettleIntent {
        token,
        intent: other,
        base,
    };
    assert_eq!(
        desk.refused("j", other),
        RefusalCode::ConcurrencyConflict,
        "another intent"
    );
    assert_eq!(
        desk.refused("j", settle(token, BasePosition::Old)),
        RefusalCode::ConcurrencyConflict
    );
    desk.ask("j", settle(token, BasePosition::Merged));
    assert_eq!(desk.stands(), "done");
    assert_eq!(desk.task.intent, None);
    // The same again is a replay that changes nothing but the version.
    let before = desk.task.clone();
    let replay = desk.ask("j", settle(token, BasePosition::Merged));
    assert!(replay.replayed && replay.runs.is_empty());
    assert_eq!(
        (&replay.locks, &replay.lease),
        (&LockChange::Keep, &LeaseChange::Keep)
    );
    assert_eq!(replay.events.len(), 1);
    assert_eq!(replay.events[0].reason, "replayed");
    assert_eq!(
        desk.task,
        Task {
            version: before.version + 1,
            ..before
        }
    );
}

#[test]
fn an_approval_answers_every_criterion() {
    let mut desk = Desk::new();
    desk.work();
    let token = desk.claim("j", LeasePurpose::Judge);
    let mut packet = desk.packet();
    packet.acceptance_check.truncate(1);
    let ending = JudgeEnding::Approve { packet };
    let refused = desk.refused("j", Request::Judge { token, ending });
    assert_eq!(
        refused,
        RefusalCode::AcceptanceFailed,
        "the review is not answered"
    );
}

#[test]
fn an_inconsistent_ledger_keeps_a_task_from_being_done() {
    let mut desk = Desk::new();
    desk.approve();
    let token = desk.claim("j", LeasePurpose::Merge);
    desk.facts.inconsistencies = vec![crate::reconcile::Inconsistency {
        kind: crate::reconcile::InconsistencyKind::OverlappingLocks,
        task_id: id("t"),
        other: None,
        words: "src and src/x".to_owned(),
    }];
    let request = desk.intent(token);
    assert_eq!(desk.refused("j", request), RefusalCode::LedgerInconsistent);
}

#[test]
fn an_open_intent_stops_everything_else() {
    let mut desk = Desk::new();
    let token = desk.intend();
    let unable = JudgeEnding::Unable {
        reason: "x".to_owned(),
    };
    for request in [
        Request::Cancel {
            reason: "x".to_owned(),
        },
        Request::Pause { paused: true },
        Request::Judge {
            token,
            ending: rejection(ReworkCause::Verdict),
        },
        Request::Judge {
            token,
            ending: unable,
        },
        Request::Block {
            code: RefusalCode::LedgerInconsistent,
            reason: "x".to_owned(),
            waits_for: None,
        },
        Request::Replan(crate::request::NewPacket {
            lock_scope: vec![resource("src")],
            forbidden_scope: Vec::new(),
            context: Vec::new(),
            commands: Vec::new(),
        }),
    ] {
        assert_eq!(
            desk.refused("j", request.clone()),
            RefusalCode::ConcurrencyConflict,
            "{request:?}"
        );
    }
}

#[test]
fn an_intent_is_rolled_forward_by_whoever_claims_next() {
    for (base, stands) in [
        (BasePosition::Merged, "done"),
        (BasePosition::Elsewhere, "in_progress"),
    ] {
        let mut desk = Desk::new();
        desk.intend();
        desk.later(90);
        let lost = desk.ask("watchdog", Request::Expire { not_before: None });
        assert_eq!(desk.stands(), "blocked(awaiting_judge)");
        let states: Vec<TaskState> = lost.events.iter().map(|event| event.to_state).collect();
        assert_eq!(
            states,
            [TaskState::Blocked, TaskState::Todo, TaskState::Blocked]
        );
        assert_eq!(
            desk.task.counters.lost_judge, 0,
            "a place in the queue costs nothing"
        );
        // Only to be rolled forward.
        let judge = claim("k", LeasePurpose::Judge, "x");
        assert_eq!(desk.refused("k", judge), RefusalCode::InvalidTransition);
        let token = desk.claim("k", LeasePurpose::Merge);
        desk.ask("k", settle(token, base));
        assert_eq!(desk.stands(), stands);
        assert_eq!(desk.task.intent, None);
    }
}

#[test]
fn whatever_interrupts_a_judge_leads_back_to_a_judge() {
    type Interrupt = fn(&mut Desk, u64);
    let unable = |desk: &mut Desk, token| {
        let ending = JudgeEnding::Unable {
            reason: "no reviewer".to_owned(),
        };
        desk.ask("j", Request::Judge { token, ending });
    };
    let rows: [(Interrupt, u32, u32); 4] = [
        (
            |desk, _| {
                desk.later(90);
                desk.ask("watchdog", Request::Expire { not_before: None });
            },
            1,
            0,
        ),
        (unable, 0, 1),
        (
            |desk, token| {
                let account = "a".to_owned();
                let ending = JudgeEnding::Quota {
                    reset_at: None,
                    account,
                };
                desk.ask("j", Request::Judge { token, ending });
            },
            0,
            0,
        ),
        (
            |desk, token| {
                let ending = JudgeEnding::StepBack {
                    reason: "the base is red".to_owned(),
                };
                desk.ask("j", Request::Judge { token, ending });
            },
            0,
            0,
        ),
    ];
    for (at, (interrupt, lost, tries)) in rows.into_iter().enumerate() {
        let mut desk = Desk::new();
        desk.work();
        let token = desk.claim("j", LeasePurpose::Judge);
        interrupt(&mut desk, token);
        assert_eq!(desk.stands(), "blocked(awaiting_judge)", "row {at}");
        assert_eq!(desk.task.phase, TaskPhase::Judge);
        let run = desk.facts.run.clone().unwrap();
        assert!(run.is_unjudged_success(), "row {at}");
        assert_eq!(run.judgement_version, 1);
        assert_eq!(
            (desk.task.counters.lost_judge, desk.task.counters.judge),
            (lost, tries)
        );
        desk.later(3600);
        desk.claim("k", LeasePurpose::Judge);
    }
}

#[test]
fn five_judgements_that_cannot_be_made_and_then_rework() {
    let mut desk = Desk::new();
    desk.work();
    for tries in 1..=6 {
        desk.later(3600);
        let token = desk.claim("j", LeasePurpose::Judge);
        let ending = JudgeEnding::Unable {
            reason: "no reviewer".to_owned(),
        };
        desk.ask("j", Request::Judge { token, ending });
        if tries <= 5 {
            assert_eq!(desk.stands(), "blocked(awaiting_judge)");
            assert!(desk.task.retry_at().unwrap() > desk.now);
            let early = claim("j", LeasePurpose::Judge, "early");
            assert_eq!(desk.refused("j", early), RefusalCode::InvalidTransition);
        }
    }
    assert_eq!(desk.stands(), "blocked(needs_rework)");
    assert_eq!(desk.task.rework_cause, Some(ReworkCause::Unjudged));
    assert_eq!(desk.task.phase, TaskPhase::Work);
}

#[test]
fn a_rejection_gets_one_successor() {
    for (cause, prefix, start) in [
        (ReworkCause::Verdict, "[AutoFix]", Some("c1")),
        (ReworkCause::Conflict, "[AutoFix-Conflict]", None),
        (ReworkCause::Exhausted, "[Rework]", None),
    ] {
        let mut desk = Desk::new();
        desk.reject(cause);
        assert_eq!(
            desk.facts.run.as_ref().unwrap().verdict,
            Some(JudgeVerdict::Reject)
        );
        let without_id = Request::Recover {
            packet: None,
            successor: None,
        };
        assert_eq!(
            desk.refused("cycle", without_id),
            RefusalCode::MissingRequiredInput
        );
        desk.recover();
        assert_eq!(desk.stands(), "failed");
        assert_eq!(desk.task.superseded_by, Some(id("next")));
        let made = desk.created.clone().unwrap();
        assert!(made.task.title.starts_with(prefix), "{}", made.task.title);
        assert_eq!(made.task.start_from.as_deref(), start);
        assert_eq!(made.task.remarks.len(), 1);
        assert_eq!(crate::event::fold(&made.events).unwrap(), made.task);
        assert_eq!(
            desk.refused("cycle", recovery(&desk.task.clone())),
            RefusalCode::InvalidTransition
        );
    }
}

#[test]
fn policy_without_a_safe_path_is_tried_three_times() {
    let mut desk = Desk::new();
    for tries in 1..=3 {
        desk.reject(ReworkCause::Policy);
        desk.recover();
        let expected = if tries < 3 { "todo" } else { "canceled" };
        assert_eq!(desk.stands(), expected, "{tries}");
    }
}

#[test]
fn a_review_of_a_pull_request() {
    let mut new = new_task();
    new.kind = crate::words::TaskKind::Review;
    new.head = Some("h1".to_owned());
    let mut desk = Desk::with(new);
    assert_eq!(desk.stands(), "blocked(awaiting_judge)");
    assert_eq!(desk.events.len(), 2);
    assert_eq!(desk.events[0].from_state, None);
    assert_eq!(
        desk.facts.run.as_ref().unwrap().result.as_deref(),
        Some("h1")
    );
    assert_eq!(
        desk.refused("w", claim("w", LeasePurpose::Work, "k")),
        RefusalCode::InvalidTransition
    );
    let token = desk.claim("j", LeasePurpose::Judge);
    desk.ask(
        "j",
        Request::Judge {
            token,
            ending: rejection(ReworkCause::Verdict),
        },
    );
    // A new head is judged anew; without one, a worker gets a successor.
    let mut pushed = desk.clone();
    pushed.facts.pull_request = Some(crate::request::PullRequest {
        head: "h2".to_owned(),
        closed: false,
    });
    pushed.recover();
    assert_eq!(pushed.stands(), "blocked(awaiting_judge)");
    assert_eq!(
        pushed.facts.run.as_ref().unwrap().result.as_deref(),
        Some("h2")
    );
    desk.recover();
    let made = desk.created.unwrap().task;
    assert_eq!(
        (made.kind, made.state),
        (crate::words::TaskKind::Code, TaskState::Todo)
    );
}
