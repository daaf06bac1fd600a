//! Claims, heartbeats, results, failures and losses.

use super::*;
use crate::request::{Dependency, DependencyChain};
use crate::words::{FailureCategory, TaskRunStatus, TaskType};

fn failed(category: FailureCategory) -> WorkEnding {
    WorkEnding::Failed {
        category,
        signature: Some("same".to_owned()),
        note: "red".to_owned(),
    }
}

#[test]
fn what_in_progress_takes() {
    type Edit = fn(&mut OneTaskStore);
    let rows: &[(Edit, Option<RefusalCode>)] = &[
        (|_| (), None),
        (
            |d| {
                d.task.dependencies = vec![id("d")];
                d.facts.dependencies = vec![Dependency {
                    id: id("d"),
                    chain: DependencyChain::Alive,
                }];
            },
            Some(RefusalCode::DependencyNotMet),
        ),
        (
            |d| d.facts.locks = vec![lock("o", "src/x")],
            Some(RefusalCode::LockConflict),
        ),
        (|d| d.facts.locks = vec![lock("o", "docs")], None),
        (
            |d| d.task.acceptance.clear(),
            Some(RefusalCode::SchemaInvalid),
        ),
        (
            |d| d.task.heartbeat_interval_seconds = 90,
            Some(RefusalCode::SchemaInvalid),
        ),
        (
            |d| d.task.state = TaskState::Blocked,
            Some(RefusalCode::InvalidTransition),
        ),
        (
            |d| d.facts.fleet_paused = true,
            Some(RefusalCode::InvalidTransition),
        ),
    ];
    for (at, (edit, expected)) in rows.iter().enumerate() {
        let mut store = OneTaskStore::new();
        edit(&mut store);
        let request = claim("w", LeasePurpose::Work, "k");
        let got = decide(
            &store.policy,
            Some(&store.task),
            &call("w", request),
            &store.facts,
            NOW,
        );
        assert_eq!(got.err().map(|refusal| refusal.code), *expected, "row {at}");
    }
    let refused = OneTaskStore::new().refused("w", claim("", LeasePurpose::Work, "k"));
    assert_eq!(refused, RefusalCode::MissingRequiredInput);
    let refused = OneTaskStore::new().refused("j", claim("j", LeasePurpose::Judge, "k"));
    assert_eq!(refused, RefusalCode::InvalidTransition, "nothing to judge");
}

#[test]
fn a_claim_gives_lease_lock_run_and_token() {
    let mut store = OneTaskStore::new();
    let token = store.claim("w", LeasePurpose::Work);
    assert_eq!(token, 1);
    assert_eq!(store.locks, [resource("src")]);
    assert_eq!(store.task.owner.as_deref(), Some("w"));
    let run = store.facts.run.clone().unwrap();
    assert_eq!(
        (run.id.as_str(), run.status),
        ("t-1", TaskRunStatus::Running)
    );
    let lease = store.facts.lease.clone().unwrap();
    assert_eq!(lease.expires_at(), NOW.plus_secs(90));
    assert_eq!(lease.ends_at, NOW.plus_secs(3600));
    // A repeat of the same claim gets the same answer; another one is refused.
    let repeat = store.ask("w", claim("w", LeasePurpose::Work, &lease.key));
    assert!(repeat.replayed && repeat.is_empty());
    assert_eq!(
        store.refused("v", claim("v", LeasePurpose::Work, "k")),
        RefusalCode::InvalidTransition
    );
}

#[test]
fn a_serial_task_locks_everything() {
    let mut new = new_task();
    new.task_type = TaskType::Serial;
    let mut store = OneTaskStore::with(new);
    store.claim("w", LeasePurpose::Work);
    assert_eq!(store.locks, [Resource::whole_repo()]);
}

#[test]
fn heartbeats_change_the_lease_and_nothing_else() {
    let mut store = OneTaskStore::new();
    let token = store.claim("w", LeasePurpose::Work);
    let events = store.events.len();
    store.later(60);
    let heard = store.ask("w", Request::Heartbeat { token });
    assert_eq!(
        heard.answer,
        Answer::Heard {
            expires_at: NOW.plus_secs(150)
        }
    );
    assert_eq!(store.events.len(), events);
    assert_eq!(
        store.refused("w", Request::Heartbeat { token: 7 }),
        RefusalCode::ConcurrencyConflict
    );
    assert_eq!(
        store.refused("v", Request::Heartbeat { token }),
        RefusalCode::ConcurrencyConflict
    );
}

#[test]
fn a_stale_version_is_refused() {
    let mut store = OneTaskStore::new();
    let mut stale = call("cycle", Request::Pause { paused: true });
    stale.expected_version = Some(7);
    let refusal = store.try_call(&stale).unwrap_err();
    assert_eq!(refusal.code, RefusalCode::ConcurrencyConflict);
    assert_eq!(refusal.details["version"], 1);
}

#[test]
fn how_a_run_ends() {
    use FailureCategory as C;
    let blocked = |code| WorkEnding::Blocked {
        code,
        reason: "in the way".to_owned(),
        waits_for: None,
    };
    let rows: Vec<(WorkEnding, &str, TaskRunStatus)> = vec![
        (failed(C::Test), "blocked(cooldown)", TaskRunStatus::Failed),
        (failed(C::Permission), "failed", TaskRunStatus::Failed),
        (failed(C::NoChange), "failed", TaskRunStatus::Failed),
        (failed(C::Budget), "failed", TaskRunStatus::Failed),
        (
            blocked(RefusalCode::ScopeViolation),
            "blocked(SCOPE_VIOLATION)",
            TaskRunStatus::Failed,
        ),
        (
            WorkEnding::Quota {
                reset_at: None,
                account: "a".to_owned(),
            },
            "blocked(quota_wait)",
            TaskRunStatus::Failed,
        ),
        (
            WorkEnding::Postponed {
                until: NOW.plus_secs(9),
                reason: "the day's budget".to_owned(),
            },
            "blocked(cooldown)",
            TaskRunStatus::Failed,
        ),
        (WorkEnding::Lost, "todo", TaskRunStatus::Failed),
        (WorkEnding::GivenBack, "todo", TaskRunStatus::Canceled),
    ];
    for (ending, stands, status) in rows {
        let mut store = OneTaskStore::new();
        let token = store.claim("w", LeasePurpose::Work);
        let request = store.finish(token, ending.clone());
        store.ask("w", request.clone());
        assert_eq!(store.stands(), stands, "{ending:?}");
        assert_eq!(store.facts.run.as_ref().unwrap().status, status);
        // The same again gets the same answer; something else is refused.
        let before = store.task.clone();
        let repeat = store.ask("w", request);
        assert!(repeat.replayed, "{ending:?}");
        assert_eq!(repeat.answer, store.receipts[0].answer);
        let version = before.version + u64::from(before.state.is_terminal());
        assert_eq!(store.task, Task { version, ..before });
        let other = store.finish(token, failed(C::Env));
        assert_eq!(store.refused("w", other), RefusalCode::ConcurrencyConflict);
    }
}

#[test]
fn a_result_must_fit() {
    type Edit = fn(&mut ResultPacket);
    let rows: &[(Edit, Option<RefusalCode>)] = &[
        (|_| (), None),
        (
            |p| p.status = ResultStatus::Failed,
            Some(RefusalCode::AcceptanceFailed),
        ),
        (
            |p| p.acceptance_check.clear(),
            Some(RefusalCode::AcceptanceFailed),
        ),
        (
            |p| p.acceptance_check[0].status = CheckStatus::Fail,
            Some(RefusalCode::AcceptanceFailed),
        ),
        (
            |p| p.acceptance_check[0].evidence = " ".to_owned(),
            Some(RefusalCode::AcceptanceFailed),
        ),
        (
            |p| p.acceptance_check[0].criterion = "x".to_owned(),
            Some(RefusalCode::AcceptanceFailed),
        ),
        // The review is the judge's to answer.
        (|p| p.acceptance_check.truncate(1), None),
        (
            |p| p.changes[0].resource = "docs/a".to_owned(),
            Some(RefusalCode::ScopeViolation),
        ),
        (
            |p| p.changes[0].resource = "src/secret/a".to_owned(),
            Some(RefusalCode::ScopeViolation),
        ),
        (
            |p| p.changes[0].resource = "src/../a".to_owned(),
            Some(RefusalCode::SchemaInvalid),
        ),
        // The name of a file is taken as it is, whatever it would mean in a scope.
        (
            |p| p.changes[0].resource = "src/[id]/{a}*.ts".to_owned(),
            None,
        ),
        (
            |p| p.changes[0].resource = "src/secret/[id].ts".to_owned(),
            Some(RefusalCode::ScopeViolation),
        ),
        (
            |p| p.changes[0].resource = "src/a\nb".to_owned(),
            Some(RefusalCode::SchemaInvalid),
        ),
        (
            |p| p.run_id = "t-2".to_owned(),
            Some(RefusalCode::NonCompliant),
        ),
        (
            |p| p.task_id = "u".to_owned(),
            Some(RefusalCode::NonCompliant),
        ),
        (
            |p| p.notes_for_orchestrator = vec![String::new(); 6],
            Some(RefusalCode::SchemaInvalid),
        ),
        (
            |p| p.schema_version = "2.0.0".to_owned(),
            Some(RefusalCode::UnknownSchemaVersion),
        ),
    ];
    for (at, (edit, expected)) in rows.iter().enumerate() {
        let mut new = new_task();
        new.forbidden_scope = vec![resource("src/secret")];
        let mut store = OneTaskStore::with(new);
        let token = store.claim("w", LeasePurpose::Work);
        let mut packet = store.packet();
        edit(&mut packet);
        let ending = WorkEnding::Success {
            result: Some("c".to_owned()),
            packet,
        };
        let request = store.finish(token, ending);
        let got = store
            .try_ask("w", request)
            .err()
            .map(|refusal| refusal.code);
        assert_eq!(got, *expected, "row {at}");
    }
    let mut store = OneTaskStore::new();
    let token = store.claim("w", LeasePurpose::Work);
    let ending = WorkEnding::Success {
        result: None,
        packet: store.packet(),
    };
    let request = store.finish(token, ending);
    assert_eq!(
        store.refused("w", request),
        RefusalCode::MissingRequiredInput
    );
}

#[test]
fn work_without_a_change_is_done_by_its_worker_unless_a_review_is_asked_for() {
    for (reviewed, stands) in [(false, "done"), (true, "blocked(awaiting_judge)")] {
        let mut new = new_task();
        new.expects_change = false;
        if !reviewed {
            new.acceptance.truncate(1);
        }
        let mut store = OneTaskStore::with(new);
        let token = store.claim("w", LeasePurpose::Work);
        let request = store.success(token);
        store.ask("w", request);
        assert_eq!(store.stands(), stands);
    }
}

#[test]
fn retries_end() {
    let mut store = OneTaskStore::new();
    let mut failures = 0;
    while store.task.state != TaskState::Blocked
        || store.task.blocked_on() == Some(BlockReason::Cooldown)
    {
        if store.task.state == TaskState::Blocked {
            store.later(3600);
            store.recover();
        }
        let token = store.claim("w", LeasePurpose::Work);
        let request = store.finish(token, failed(FailureCategory::Flaky));
        store.ask("w", request);
        failures += 1;
    }
    // The fourth equal signature, before the seventh failure of the category.
    assert_eq!(
        (failures, store.stands().as_str()),
        (4, "blocked(needs_rework)")
    );
    assert_eq!(store.task.rework_cause, Some(ReworkCause::Exhausted));
    // Two failures of one owner and nobody else to ask: alone.
    assert_eq!(store.task.task_type, TaskType::Serial);
}

#[test]
fn a_cooldown_waits_for_its_time() {
    let mut store = OneTaskStore::new();
    let token = store.claim("w", LeasePurpose::Work);
    let request = store.finish(token, failed(FailureCategory::Env));
    store.ask("w", request);
    assert!(store.recover().is_empty());
    store.later(29);
    assert!(store.recover().is_empty());
    store.later(7);
    store.recover();
    assert_eq!(store.stands(), "todo");
}

#[test]
fn a_silent_owner_loses_its_lease() {
    let mut store = OneTaskStore::new();
    let token = store.claim("w", LeasePurpose::Work);
    store.later(89);
    let expire = Request::Expire { not_before: None };
    assert_eq!(
        store.refused("watchdog", expire.clone()),
        RefusalCode::InvalidTransition
    );
    store.later(1);
    let grace = Request::Expire {
        not_before: Some(store.now.plus_secs(15)),
    };
    assert_eq!(
        store.refused("watchdog", grace),
        RefusalCode::InvalidTransition
    );
    let version = store.task.version;
    let decision = store.ask("watchdog", expire);
    assert_eq!(store.stands(), "todo");
    assert_eq!(store.task.counters.lost_work, 1);
    let [timeout, retry] = &decision.events[..] else {
        panic!("{:?}", decision.events)
    };
    assert_eq!(
        (timeout.to_state, retry.to_state),
        (TaskState::Blocked, TaskState::Todo)
    );
    assert_eq!((timeout.version, retry.version), (version + 1, version + 2));
    assert_eq!(timeout.details["task_id"], "t");
    assert_eq!(timeout.details["timeout_seconds"], 90);
    assert_eq!(timeout.details["last_heartbeat_at"], NOW.0);
    // What the old owner says now changes nothing.
    let request = store.success(token);
    assert_eq!(
        store.refused("w", request),
        RefusalCode::ConcurrencyConflict
    );
    assert_eq!(
        store.refused("w", Request::Heartbeat { token }),
        RefusalCode::ConcurrencyConflict
    );
}

#[test]
fn five_losses_are_tried_again() {
    let mut store = OneTaskStore::new();
    for lost in 1..=6 {
        store.claim("w", LeasePurpose::Work);
        store.later(90);
        store.ask("watchdog", Request::Expire { not_before: None });
        let expected = if lost <= 5 { "todo" } else { "failed" };
        assert_eq!(store.stands(), expected, "{lost}");
    }
    assert_eq!(store.task.counters.runs, 0, "lost runs do not count");
}

#[test]
fn a_worker_that_is_stopped_costs_nothing() {
    let mut store = OneTaskStore::new();
    for _ in 0..20 {
        let token = store.claim("w", LeasePurpose::Work);
        store.ask("w", Request::Heartbeat { token });
        let request = store.finish(token, WorkEnding::GivenBack);
        let decision = store.ask("w", request);
        let states: Vec<TaskState> = decision.events.iter().map(|event| event.to_state).collect();
        assert_eq!(states, [TaskState::Blocked, TaskState::Todo]);
        assert_eq!(store.stands(), "todo");
    }
    assert_eq!(
        (store.task.counters.lost_work, store.task.counters.runs),
        (0, 0)
    );
    // One that was lost still counts.
    let token = store.claim("w", LeasePurpose::Work);
    let request = store.finish(token, WorkEnding::Lost);
    store.ask("w", request);
    assert_eq!(store.task.counters.lost_work, 1);
}

#[test]
fn an_owner_that_never_began_costs_nothing() {
    let mut store = OneTaskStore::new();
    let token = store.claim("w", LeasePurpose::Work);
    store.later(14);
    assert_eq!(
        store.refused("dispatcher", Request::TakeBack),
        RefusalCode::InvalidTransition
    );
    store.later(1);
    let mut heard = store.clone();
    heard.ask("w", Request::Heartbeat { token });
    heard.later(15);
    assert_eq!(
        heard.refused("dispatcher", Request::TakeBack),
        RefusalCode::InvalidTransition
    );
    store.ask("dispatcher", Request::TakeBack);
    assert_eq!(store.stands(), "todo");
    assert_eq!(store.task.counters.lost_work, 0);
    assert_eq!(
        store.facts.run.as_ref().unwrap().status,
        TaskRunStatus::Canceled
    );
}

#[test]
fn the_length_of_a_run_ends_it() {
    let mut store = OneTaskStore::new();
    let token = store.claim("w", LeasePurpose::Work);
    store.later(3599);
    store.ask("w", Request::Heartbeat { token });
    assert_eq!(
        store.refused("watchdog", Request::EndTimebox),
        RefusalCode::InvalidTransition
    );
    store.later(1);
    store.ask("watchdog", Request::EndTimebox);
    assert_eq!(store.stands(), "blocked(cooldown)");
    assert_eq!(
        store.facts.run.as_ref().unwrap().category,
        Some(FailureCategory::Flaky)
    );
}

#[test]
fn blocks_of_a_worker_are_resolved_by_the_table() {
    let blocked = |code| WorkEnding::Blocked {
        code,
        reason: "in the way".to_owned(),
        waits_for: None,
    };
    for (code, stands) in [
        (RefusalCode::ScopeViolation, "todo"),
        (RefusalCode::MissingRequiredInput, "todo"),
        (RefusalCode::ConcurrencyConflict, "todo"),
        (RefusalCode::LockConflict, "todo"),
        (RefusalCode::AcceptanceFailed, "blocked(cooldown)"),
    ] {
        let mut store = OneTaskStore::new();
        let token = store.claim("w", LeasePurpose::Work);
        let request = store.finish(token, blocked(code));
        store.ask("w", request);
        let revision = store.task.packet_revision;
        store.recover();
        assert_eq!(store.stands(), stands, "{code}");
        let renewed = store.task.packet_revision > revision;
        assert_eq!(renewed, code.needs_new_packet(), "{code}");
        let serial = store.task.task_type == TaskType::Serial;
        assert_eq!(serial, code == RefusalCode::ConcurrencyConflict, "{code}");
    }
    // One replan, then the end.
    let mut store = OneTaskStore::new();
    for stands in ["todo", "failed"] {
        let token = store.claim("w", LeasePurpose::Work);
        let request = store.finish(token, blocked(RefusalCode::SchemaInvalid));
        store.ask("w", request);
        store.recover();
        assert_eq!(store.stands(), stands);
    }
}
