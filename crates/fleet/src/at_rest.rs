//! Whether a fleet has come to rest: nothing goes on, nothing could begin, and all else has
//! ended or waits for a person or the outside.

use runner_ledger::{JudgeQueue, LedgerError};
use runner_lifecycle::{BlockReason, TaskState, Timestamp};

use crate::ledger_port::{LedgerPort, LedgerResult};
use crate::roles::dispatcher::WORKING_ROLES;
use crate::roles::planner::is_parked;
use crate::roles::red_base::{RedBaseRule, waits_for_a_person};

/// A clock that runs out sooner is waited for; a person may take longer.
const SOON_SECS: u64 = 60;

/// Whether nothing is left that a fleet could do with the tasks that it has.
pub(crate) async fn is_settled(
    port: &LedgerPort,
    staffed: &[String],
    on_red_base: RedBaseRule,
) -> LedgerResult<bool> {
    // Several looks make one answer only if nothing moves between them: a result that a
    // judge takes after the first look and before the last is in neither.
    let ledger = port.ledger();
    let mut head = ledger.event_head().await.map_err(LedgerError::from)?;
    if !tasks_are_at_rest(port, staffed, on_red_base).await? {
        return Ok(false);
    }
    let moved = ledger.follow(&mut head).await.map_err(LedgerError::from)?;
    Ok(!moved && !head.is_behind())
}

async fn tasks_are_at_rest(
    port: &LedgerPort,
    staffed: &[String],
    on_red_base: RedBaseRule,
) -> LedgerResult<bool> {
    let counts = port.counts().await?;
    let led_on = |reason: Option<BlockReason>| {
        !matches!(reason, Some(BlockReason::AwaitingJudge))
            && !is_parked(TaskState::Blocked, reason)
    };
    let moving = counts.iter().any(|count| match count.state {
        TaskState::InProgress => true,
        TaskState::Blocked => led_on(count.blocked_on),
        _ => false,
    });
    if moving {
        return Ok(false);
    }
    let judge_queue = port.judge_queue().await?;
    let rests = match &judge_queue.red_base {
        // Nothing else could begin, whatever is ready.
        Some(red) if on_red_base == RedBaseRule::Fix => waits_for_a_person(port, red).await?,
        _ => nothing_could_begin(port, staffed, &judge_queue).await?,
    };
    if !rests {
        return Ok(false);
    }
    // A grace that is about to end is something to wait for.
    let now = port.now().await?;
    let due = port.ledger().next_deadline(now).await;
    let due = due.map_err(LedgerError::from)?;
    if due.is_some_and(|at| at <= now.plus_secs(SOON_SECS)) {
        return Ok(false);
    }
    Ok(port.waits_for_dead(Timestamp(0), 1).await?.is_empty())
}

/// Whether nobody could start, judge or merge anything.
async fn nothing_could_begin(
    port: &LedgerPort,
    staffed: &[String],
    judge_queue: &JudgeQueue,
) -> LedgerResult<bool> {
    let dispatch_view = port.dispatch_view(&WORKING_ROLES).await?;
    // What nobody is there for, and nobody will be, waits for a person.
    let somebody = |role: &String| {
        staffed.contains(role) || dispatch_view.agents.iter().any(|agent| agent.role == *role)
    };
    if !dispatch_view.paused && dispatch_view.ready.iter().any(|(role, _)| somebody(role)) {
        return Ok(false);
    }
    let merges = judge_queue.to_merge && judge_queue.red_base.is_none();
    if judge_queue.to_judge || merges || judge_queue.next_at.is_some() {
        return Ok(false);
    }
    match &judge_queue.red_base {
        Some(red) => waits_for_a_person(port, red).await,
        None => Ok(true),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use runner_ledger::{ClaimRequest, Ledger, LedgerOptions, Store};
    use runner_lifecycle::lock::Resource;
    use runner_lifecycle::request::NewTask;
    use runner_lifecycle::{Facts, LeasePurpose, TaskId, TaskKind};

    use super::*;
    use crate::ledger_port::CallPoints;
    use crate::workspaces::BoxFuture;

    /// Before one call of whoever looks, a judge claims a result.
    struct JudgeComes {
        ledger: Ledger,
        before: &'static str,
    }

    impl CallPoints for JudgeComes {
        fn reach<'a>(&'a self, call: &'static str, after: bool) -> BoxFuture<'a, ()> {
            Box::pin(async move {
                if call == self.before && !after {
                    let mut claim_request = ClaimRequest::work("judge-1", "", "judge-1/1");
                    claim_request.purpose = LeasePurpose::Judge;
                    let port = LedgerPort::new(self.ledger.clone());
                    assert!(port.claim_next(&claim_request).await.unwrap().is_some());
                    // One that was heard of is not due for a while.
                    let lease = port.leases().await.unwrap().remove(0);
                    port.heartbeat(&lease).await.unwrap();
                }
            })
        }

        fn carry<'a>(&'a self, call: BoxFuture<'a, ()>) -> BoxFuture<'a, ()> {
            call
        }

        fn loses(&self, _call: &'static str) -> bool {
            false
        }
    }

    fn look_while_a_judge_comes(before: &'static str) -> bool {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            let ledger = Ledger::open(&Store::Memory, LedgerOptions::default());
            let ledger = ledger.await.unwrap();
            let id = TaskId::parse("pr-1").unwrap();
            let new = NewTask {
                kind: TaskKind::Review,
                head: Some("c1".to_owned()),
                ..NewTask::new(id, Resource::parse("src").unwrap())
            };
            let made = LedgerPort::new(ledger.clone());
            made.create("test", new, Facts::default()).await.unwrap();
            let points = JudgeComes {
                ledger: ledger.clone(),
                before,
            };
            let port = LedgerPort::with_points(ledger, Arc::new(points));
            is_settled(&port, &[], RedBaseRule::Fix).await.unwrap()
        })
    }

    #[test]
    fn what_is_taken_up_during_the_look_is_not_settled() {
        for before in ["counts", "floor", "bench"] {
            assert!(!look_while_a_judge_comes(before), "{before}");
        }
    }
}
