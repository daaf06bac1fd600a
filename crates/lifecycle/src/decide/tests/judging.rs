//! Verdicts, the merge queue and open intents.

use super::*;
use crate::words::{BasePosition, JudgeVerdict, TaskPhase};

#[test]
fn from_a_result_to_done() {
    let mut store = OneTaskStore::new();
    store.work();
    assert_eq!(store.task.phase, TaskPhase::Judge);
    assert!(store.locks.is_empty());
    let token = store.claim("j", LeasePurpose::Judge);
    assert_eq!(store.locks, [resource("@judge/t")]);
    let run = store.facts.run.clone().unwrap();
    assert_eq!((run.judged_at, run.judgement_version), (Some(NOW), 1));
    let ending = JudgeEnding::Approve {
        packet: store.packet(),
    };
    store.ask("j", Request::Judge { token, ending });
    assert_eq!(store.stands(), "blocked(awaiting_judge)");

    // Not the head of the queue.
    store.facts.is_merge_head = false;
    let early = claim("j", LeasePurpose::Merge, "k");
    assert_eq!(store.refused("j", early), RefusalCode::LockConflict);
    // It is judged: no second judge.
    let again = claim("j", LeasePurpose::Judge, "k");
    assert_eq!(store.refused("j", again), RefusalCode::InvalidTransition);

    let token = store.claim("j", LeasePurpose::Merge);
    assert_eq!(store.locks, [resource("@judge/t"), resource("@merge/main")]);
    let request = store.intent(token);
    let recorded = store.ask("j", request.clone());
    let again = store.ask("j", request.clone());
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
    assert_eq!(store.refused("j", other), RefusalCode::ConcurrencyConflict);
    let mut other = super::intent();
    other.merge_commit = "n".to_owned();
    let base = BasePosition::Merged;
    let other = Request::SettleIntent {
        token,
        intent: other,
        base,
    };
    assert_eq!(
        store.refused("j", other),
        RefusalCode::ConcurrencyConflict,
        "another intent"
    );
    assert_eq!(
        store.refused("j", settle(token, BasePosition::Old)),
        RefusalCode::ConcurrencyConflict
    );
    store.ask("j", settle(token, BasePosition::Merged));
    assert_eq!(store.stands(), "done");
    assert_eq!(store.task.intent, None);
    // The same again is a replay that changes nothing but the version.
    let before = store.task.clone();
    let replay = store.ask("j", settle(token, BasePosition::Merged));
    assert!(replay.replayed && replay.runs.is_empty());
    assert_eq!(
        (&replay.locks, &replay.lease),
        (&LockChange::Keep, &LeaseChange::Keep)
    );
    assert_eq!(replay.events.len(), 1);
    assert_eq!(replay.events[0].reason, "replayed");
    assert_eq!(
        store.task,
        Task {
            version: before.version + 1,
            ..before
        }
    );
}

#[test]
fn an_approval_answers_every_criterion() {
    let mut store = OneTaskStore::new();
    store.work();
    let token = store.claim("j", LeasePurpose::Judge);
    let mut packet = store.packet();
    packet.acceptance_check.truncate(1);
    let ending = JudgeEnding::Approve { packet };
    let refused = store.refused("j", Request::Judge { token, ending });
    assert_eq!(
        refused,
        RefusalCode::AcceptanceFailed,
        "the review is not answered"
    );
}

#[test]
fn an_inconsistent_ledger_keeps_a_task_from_being_done() {
    let mut store = OneTaskStore::new();
    store.approve();
    let token = store.claim("j", LeasePurpose::Merge);
    store.facts.inconsistencies = vec![crate::reconcile::Inconsistency {
        kind: crate::reconcile::InconsistencyKind::OverlappingLocks,
        task_id: id("t"),
        other: None,
        words: "src and src/x".to_owned(),
    }];
    let request = store.intent(token);
    assert_eq!(store.refused("j", request), RefusalCode::LedgerInconsistent);
}

#[test]
fn a_result_that_changed_its_own_judge_waits_for_a_person() {
    let accept = || Request::AcceptJudge {
        reason: "read and right".to_owned(),
    };
    let changed = |token| Request::Judge {
        token,
        ending: JudgeEnding::ChangedJudge {
            reason: "tests/a.py".to_owned(),
        },
    };
    let mut store = OneTaskStore::new();
    store.work();
    let token = store.claim("j", LeasePurpose::Judge);
    let early = store.refused("j", changed(token));
    assert_eq!(early, RefusalCode::InvalidTransition, "only at its merge");

    let mut store = OneTaskStore::new();
    store.approve();
    assert_eq!(
        store.refused("person", accept()),
        RefusalCode::InvalidTransition
    );
    let token = store.claim("j", LeasePurpose::Merge);
    store.ask("j", changed(token));
    assert_eq!(store.stands(), "blocked(changed_judge)");
    assert!(
        store.locks.is_empty() && store.recover().is_empty(),
        "parked"
    );
    let merge = claim("j", LeasePurpose::Merge, "k");
    assert_eq!(store.refused("j", merge), RefusalCode::InvalidTransition);
    let accepted = store.ask("person", accept());
    let last = accepted.events.last().unwrap();
    assert_eq!(
        (last.reason.as_str(), last.actor.as_str()),
        ("judge_accepted", "person")
    );
    assert_eq!(store.stands(), "blocked(awaiting_judge)");
    assert_eq!(
        store.task.accepted_judge,
        store.facts.run.as_ref().map(|run| run.id.clone())
    );
    store.claim("j", LeasePurpose::Merge);
}

#[test]
fn an_open_intent_stops_everything_else() {
    let mut store = OneTaskStore::new();
    let token = store.intend();
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
            store.refused("j", request.clone()),
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
        let mut store = OneTaskStore::new();
        store.intend();
        store.later(90);
        let lost = store.ask("watchdog", Request::Expire { not_before: None });
        assert_eq!(store.stands(), "blocked(awaiting_judge)");
        let states: Vec<TaskState> = lost.events.iter().map(|event| event.to_state).collect();
        assert_eq!(
            states,
            [TaskState::Blocked, TaskState::Todo, TaskState::Blocked]
        );
        assert_eq!(
            store.task.counters.lost_judge, 0,
            "a place in the queue costs nothing"
        );
        // Only to be rolled forward.
        let judge = claim("k", LeasePurpose::Judge, "x");
        assert_eq!(store.refused("k", judge), RefusalCode::InvalidTransition);
        let token = store.claim("k", LeasePurpose::Merge);
        store.ask("k", settle(token, base));
        assert_eq!(store.stands(), stands);
        assert_eq!(store.task.intent, None);
    }
}

#[test]
fn whatever_interrupts_a_judge_leads_back_to_a_judge() {
    type Interrupt = fn(&mut OneTaskStore, u64);
    let unable = |store: &mut OneTaskStore, token| {
        let ending = JudgeEnding::Unable {
            reason: "no reviewer".to_owned(),
        };
        store.ask("j", Request::Judge { token, ending });
    };
    let rows: [(Interrupt, u32, u32); 4] = [
        (
            |store, _| {
                store.later(90);
                store.ask("watchdog", Request::Expire { not_before: None });
            },
            1,
            0,
        ),
        (unable, 0, 1),
        (
            |store, token| {
                let account = "a".to_owned();
                let ending = JudgeEnding::Quota {
                    reset_at: None,
                    account,
                };
                store.ask("j", Request::Judge { token, ending });
            },
            0,
            0,
        ),
        (
            |store, token| {
                let ending = JudgeEnding::StepBack {
                    reason: "the base is red".to_owned(),
                };
                store.ask("j", Request::Judge { token, ending });
            },
            0,
            0,
        ),
    ];
    for (at, (interrupt, lost, tries)) in rows.into_iter().enumerate() {
        let mut store = OneTaskStore::new();
        store.work();
        let token = store.claim("j", LeasePurpose::Judge);
        interrupt(&mut store, token);
        assert_eq!(store.stands(), "blocked(awaiting_judge)", "row {at}");
        assert_eq!(store.task.phase, TaskPhase::Judge);
        let run = store.facts.run.clone().unwrap();
        assert!(run.is_unjudged_success(), "row {at}");
        assert_eq!(run.judgement_version, 1);
        assert_eq!(
            (store.task.counters.lost_judge, store.task.counters.judge),
            (lost, tries)
        );
        store.later(3600);
        store.claim("k", LeasePurpose::Judge);
    }
}

#[test]
fn five_judgements_that_cannot_be_made_and_then_rework() {
    let mut store = OneTaskStore::new();
    store.work();
    for tries in 1..=6 {
        store.later(3600);
        let token = store.claim("j", LeasePurpose::Judge);
        let ending = JudgeEnding::Unable {
            reason: "no reviewer".to_owned(),
        };
        store.ask("j", Request::Judge { token, ending });
        if tries <= 5 {
            assert_eq!(store.stands(), "blocked(awaiting_judge)");
            assert!(store.task.retry_at().unwrap() > store.now);
            let early = claim("j", LeasePurpose::Judge, "early");
            assert_eq!(store.refused("j", early), RefusalCode::InvalidTransition);
        }
    }
    assert_eq!(store.stands(), "blocked(needs_rework)");
    assert_eq!(store.task.rework_cause, Some(ReworkCause::Unjudged));
    assert_eq!(store.task.phase, TaskPhase::Work);
}

#[test]
fn a_rejection_gets_one_successor() {
    for (cause, prefix, start) in [
        (ReworkCause::Verdict, "[AutoFix]", Some("c1")),
        (ReworkCause::Conflict, "[AutoFix-Conflict]", None),
        (ReworkCause::Exhausted, "[Rework]", None),
    ] {
        let mut store = OneTaskStore::new();
        store.reject(cause);
        assert_eq!(
            store.facts.run.as_ref().unwrap().verdict,
            Some(JudgeVerdict::Reject)
        );
        let without_id = Request::Recover {
            packet: None,
            successor: None,
        };
        assert_eq!(
            store.refused("cycle", without_id),
            RefusalCode::MissingRequiredInput
        );
        store.recover();
        assert_eq!(store.stands(), "failed");
        assert_eq!(store.task.superseded_by, Some(id("next")));
        let made = store.created.clone().unwrap();
        assert!(made.task.title.starts_with(prefix), "{}", made.task.title);
        assert_eq!(made.task.start_from.as_deref(), start);
        assert_eq!(made.task.remarks.len(), 1);
        assert_eq!(crate::event::fold(&made.events).unwrap(), made.task);
        assert_eq!(
            store.refused("cycle", recovery(&store.task.clone())),
            RefusalCode::InvalidTransition
        );
    }
}

#[test]
fn policy_without_a_safe_path_is_tried_three_times() {
    let mut store = OneTaskStore::new();
    for tries in 1..=3 {
        store.reject(ReworkCause::Policy);
        store.recover();
        let expected = if tries < 3 { "todo" } else { "canceled" };
        assert_eq!(store.stands(), expected, "{tries}");
    }
}

#[test]
fn a_review_of_a_pull_request() {
    let mut new = new_task();
    new.kind = crate::words::TaskKind::Review;
    new.head = Some("h1".to_owned());
    let mut store = OneTaskStore::with(new);
    assert_eq!(store.stands(), "blocked(awaiting_judge)");
    assert_eq!(store.events.len(), 2);
    assert_eq!(store.events[0].from_state, None);
    assert_eq!(
        store.facts.run.as_ref().unwrap().result.as_deref(),
        Some("h1")
    );
    assert_eq!(
        store.refused("w", claim("w", LeasePurpose::Work, "k")),
        RefusalCode::InvalidTransition
    );
    let token = store.claim("j", LeasePurpose::Judge);
    store.ask(
        "j",
        Request::Judge {
            token,
            ending: rejection(ReworkCause::Verdict),
        },
    );
    // A new head is judged anew; without one, a worker gets a successor.
    let mut pushed = store.clone();
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
    store.recover();
    let made = store.created.unwrap().task;
    assert_eq!(
        (made.kind, made.state),
        (crate::words::TaskKind::Code, TaskState::Todo)
    );
}
