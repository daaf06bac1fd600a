//! Whatever is asked, in whatever order: the events add up to the row, an end stays an
//! end, tokens only grow.

use proptest::prelude::*;

use super::*;
use crate::request::{Dependency, DependencyChain, PullRequest};
use crate::words::{BasePosition, FailureCategory, TaskKind};

/// A request that may or may not fit, made from a few numbers.
fn request(store: &OneTaskStore, kind: usize, n: usize) -> (&'static str, Request) {
    let token = store
        .task
        .token
        .saturating_sub(u64::from(n.is_multiple_of(7)));
    let run_id = store
        .facts
        .run
        .as_ref()
        .map_or("t-1".to_owned(), |run| run.id.clone());
    let packet = packet(&store.task, &run_id, "exit 0");
    let owner = ["w", "j"][n % 2];
    let category = FailureCategory::ALL[n % FailureCategory::ALL.len()];
    let cause = ReworkCause::ALL[n % ReworkCause::ALL.len()];
    let code = RefusalCode::ALL[n % RefusalCode::ALL.len()];
    let reason = "because".to_owned();
    let waits_for = None;
    let purpose = LeasePurpose::ALL[n % 3];
    let finish = |ending| Request::Finish {
        token,
        run_id: run_id.clone(),
        ending,
    };
    let judge = |ending| Request::Judge { token, ending };
    let holder = if store.task.owner.as_deref() == Some("j") {
        "j"
    } else {
        "w"
    };
    match kind {
        0..=5 => (owner, claim(owner, purpose, &format!("{n}"))),
        6 => (holder, Request::Heartbeat { token }),
        7..=9 => (
            holder,
            finish(WorkEnding::Success {
                result: Some("c".to_owned()),
                packet,
            }),
        ),
        10 => (
            holder,
            finish(WorkEnding::Failed {
                category,
                signature: Some(format!("{}", n % 3)),
                note: reason,
            }),
        ),
        11 => (
            holder,
            finish(WorkEnding::Blocked {
                code,
                reason,
                waits_for,
            }),
        ),
        12 => (
            holder,
            finish(WorkEnding::Quota {
                reset_at: None,
                account: reason,
            }),
        ),
        13 if n.is_multiple_of(2) => (holder, finish(WorkEnding::Lost)),
        13 => (holder, finish(WorkEnding::GivenBack)),
        14..=16 => (holder, judge(JudgeEnding::Approve { packet })),
        17 => (holder, judge(rejection(cause))),
        18 => (holder, judge(JudgeEnding::Unable { reason })),
        19 if n.is_multiple_of(3) => (holder, judge(JudgeEnding::ChangedJudge { reason })),
        19 => (holder, judge(JudgeEnding::StepBack { reason })),
        20..=22 => (holder, store_intent(store, token)),
        23 | 24 => {
            let base = BasePosition::ALL[n % 3];
            (holder, settle(token, base))
        }
        25 => ("watchdog", Request::Expire { not_before: None }),
        26 => ("dispatcher", Request::TakeBack),
        27 => ("watchdog", Request::EndTimebox),
        28 => (
            "check",
            Request::Block {
                code,
                reason,
                waits_for,
            },
        ),
        29 if n.is_multiple_of(5) => ("person", Request::Cancel { reason }),
        29 => ("person", Request::AcceptJudge { reason }),
        30 if n.is_multiple_of(5) => (
            "person",
            Request::Retry {
                successor: id("again"),
            },
        ),
        31 => {
            let state = TaskState::ALL[n % TaskState::ALL.len()];
            ("person", Request::Reassert { state, reason })
        }
        _ => ("cycle", recovery(&store.task)),
    }
}

fn store_intent(store: &OneTaskStore, token: u64) -> Request {
    if store.facts.run.is_some() {
        store.intent(token)
    } else {
        Request::Heartbeat { token }
    }
}

fn shake_facts(store: &mut OneTaskStore, n: usize) {
    store.facts.safe_path = n.is_multiple_of(2);
    store.facts.repaired = [None, Some(true), Some(false)][n % 3];
    store.facts.is_merge_head = !n.is_multiple_of(4);
    store.facts.other_worker = n.is_multiple_of(5);
    store.facts.models = 2;
    store.facts.locks = if n.is_multiple_of(11) {
        vec![lock("o", "src/x")]
    } else {
        Vec::new()
    };
    let chain = [
        DependencyChain::Done(NOW),
        DependencyChain::Dead,
        DependencyChain::Alive,
    ][n % 3];
    store.facts.dependencies = vec![Dependency { id: id("d"), chain }];
    store.facts.pull_request = Some(PullRequest {
        head: format!("h{}", n % 3),
        closed: n.is_multiple_of(13),
    });
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn any_sequence_of_requests(
        review: bool,
        steps in prop::collection::vec((0..40usize, 0..1000usize, 0..200u64), 1..80),
    ) {
        let mut new = new_task();
        if review {
            new.kind = TaskKind::Review;
            new.head = Some("h0".to_owned());
        }
        let mut store = OneTaskStore::with(new);
        for (kind, n, secs) in steps {
            store.later(secs * 10);
            shake_facts(&mut store, n);
            let (actor, request) = request(&store, kind, n);
            let before = store.clone();
            // `OneTaskStore::check` looks at events, lease, locks and run after each write.
            match store.try_ask(actor, request) {
                Err(_) => prop_assert_eq!(&store.task, &before.task),
                Ok(decision) => {
                    prop_assert!(store.task.token >= before.task.token);
                    for event in &decision.events {
                        let text = serde_json::to_string(event).unwrap();
                        let read: TaskEvent = serde_json::from_str(&text).unwrap();
                        prop_assert_eq!(&read, event);
                    }
                    if before.task.state.is_terminal() {
                        prop_assert_eq!(store.task.state, before.task.state);
                        prop_assert_eq!(&store.task.owner, &before.task.owner);
                        prop_assert_eq!(decision.events.len(), 1);
                        prop_assert!(decision.runs.is_empty());
                    }
                    let text = serde_json::to_string(&store.task).unwrap();
                    let read: Task = serde_json::from_str(&text).unwrap();
                    prop_assert_eq!(&read, &store.task);
                }
            }
        }
    }

    #[test]
    fn a_missing_or_doubled_event_is_noticed(at in 1..7usize, double: bool) {
        let mut store = OneTaskStore::new();
        store.reject(ReworkCause::Verdict);
        store.recover();
        let mut events = store.events.clone();
        prop_assert_eq!(crate::event::fold(&events), Ok(store.task.clone()));
        let at = at.min(events.len() - 1);
        if double {
            events.insert(at, events[at].clone());
        } else {
            events.remove(at);
        }
        let folded = crate::event::fold(&events);
        prop_assert!(folded.is_err() || folded != Ok(store.task.clone()));
    }
}
