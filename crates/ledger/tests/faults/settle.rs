//! After the faults: roles run fairly, and everything ends.

use runner_ledger::{ClaimRequest, ClaimedTask, Ledger, LedgerCall, TaskFilter, Watchdog};
use runner_lifecycle::request::JudgeEnding;
use runner_lifecycle::row::Intent;
use runner_lifecycle::{BasePosition, LeasePurpose, Request, Task, TaskState};

use super::client::FastClock;
use crate::support::{self, id, packet};

/// How many steps every open task may take on the whole, and some for what they make.
const STEPS_EACH: usize = 4;
const STEPS_MORE: usize = 500;

/// Lets workers, judges, watchdog and manager take turns until every task has ended.
pub(crate) async fn settle(ledger: &Ledger, clock: &FastClock) -> usize {
    clock.freeze();
    let mut watchdog = Watchdog::new(ledger.clone(), "keeper").await.unwrap();
    let mut key = 0;
    let steps = open_tasks(ledger).await.len() * STEPS_EACH + STEPS_MORE;
    for step in 0..steps {
        let mut busy = false;
        for purpose in [LeasePurpose::Merge, LeasePurpose::Judge, LeasePurpose::Work] {
            key += 1;
            let claim_request = ClaimRequest {
                purpose,
                base: (purpose == LeasePurpose::Merge).then(|| "main".to_owned()),
                ..ClaimRequest::work("settler", "worker", &format!("settle-{key}"))
            };
            if let Some(claimed) = ledger.claim_next(&claim_request).await.unwrap() {
                end(ledger, &claimed, purpose).await;
                busy = true;
            }
        }
        if busy {
            continue;
        }
        let open = open_tasks(ledger).await;
        if open.is_empty() {
            return step;
        }
        for task in &open {
            nudge(ledger, task, step).await;
        }
        // To the next deadline exactly: whoever comes late gives grace.
        let left = watchdog.armed().millis_since(ledger.now().await.unwrap());
        clock.jump(i64::try_from(left).unwrap());
        watchdog.look().await.unwrap();
    }
    let open = open_tasks(ledger).await;
    panic!("not settled in {steps} steps: {open:#?}");
}

async fn open_tasks(ledger: &Ledger) -> Vec<Task> {
    let mut open = Vec::new();
    for state in [TaskState::Todo, TaskState::InProgress, TaskState::Blocked] {
        let filter = TaskFilter {
            state: Some(state),
            limit: 100_000,
            ..TaskFilter::default()
        };
        open.extend(ledger.tasks(&filter).await.unwrap());
    }
    open
}

async fn end(ledger: &Ledger, claimed: &ClaimedTask, purpose: LeasePurpose) {
    let (task, token) = (claimed.task.id.clone(), claimed.token);
    let packet = packet(task.as_str(), &claimed.run_id);
    let calls = match purpose {
        LeasePurpose::Work => vec![support::succeed(claimed, "settler")],
        LeasePurpose::Judge => {
            let ending = JudgeEnding::Approve { packet };
            vec![LedgerCall::new(
                task,
                "settler",
                Request::Judge { token, ending },
            )]
        }
        LeasePurpose::Merge => {
            let fresh = Intent {
                old_base: "old".to_owned(),
                merge_commit: format!("m-{task}"),
            };
            let intent = claimed.task.intent.clone().unwrap_or(fresh);
            let record = Request::RecordIntent {
                token,
                intent: intent.clone(),
                packet,
            };
            let settle = Request::SettleIntent {
                token,
                intent,
                base: BasePosition::Merged,
            };
            [record, settle]
                .map(|request| LedgerCall::new(task.clone(), "settler", request))
                .into()
        }
    };
    for call in calls {
        ledger.call(&call).await.unwrap();
    }
}

/// What the manager, the dispatcher and a patient person do.
async fn nudge(ledger: &Ledger, task: &Task, step: usize) {
    let request = match task.state {
        _ if task.paused => Request::Pause { paused: false },
        TaskState::Blocked => Request::Recover {
            packet: None,
            successor: Some(id(&format!("settle-{step}-{}", task.version))),
        },
        TaskState::Todo => {
            // Waits for what others hold, or for a dependency: a dead one ends it.
            let why = ledger.why(&task.id).await.unwrap();
            match why.map(|why| why.word()) {
                Some("dead_dependency") => Request::Cancel {
                    reason: "its dependency is dead".to_owned(),
                },
                _ => return,
            }
        }
        _ => return,
    };
    // Refused where somebody was faster, as by a successor with the same name.
    let _ = ledger
        .call(&LedgerCall::new(task.id.clone(), "manager", request))
        .await;
}
