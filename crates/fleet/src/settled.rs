//! Whether a fleet has come to rest: nothing goes on, nothing could begin, and all else has
//! ended or waits for a person or the outside.

use runner_ledger::LedgerError;
use runner_lifecycle::{Reason, State, Timestamp};

use crate::book::Booked;
use crate::roles::dispatcher::WORKING_ROLES;
use crate::roles::{Crew, planner};

/// A clock that runs out sooner is waited for; a person may take longer.
const SOON_SECS: u64 = 60;

/// Whether nothing is left that a fleet could do: with the tasks that it has, with issues, or
/// with a plan, unless the planner gave up. Several looks are one only if nobody wrote
/// meanwhile: a task that moves from one place to another must not be missed at both.
pub(crate) async fn is_at_rest(crew: &Crew, gave_up: bool) -> Booked<bool> {
    let ledger = crew.book.ledger();
    let head = ledger.event_head().await?;
    if !is_settled(crew).await? {
        return Ok(false);
    }
    let has_requirement = planner::has_requirement(crew).await && !gave_up;
    let inputs = planner::inputs(crew, has_requirement).await?;
    let rests = inputs.issue_backlog == 0 && inputs.may_plan().is_err();
    Ok(rests && ledger.event_head().await?.seq() == head.seq())
}

/// Whether nothing is left that a fleet could do with the tasks that it has.
async fn is_settled(crew: &Crew) -> Booked<bool> {
    let book = &crew.book;
    let counts = book.counts().await?;
    let led_on = |reason: Option<Reason>| {
        !matches!(reason, Some(Reason::AwaitingJudge)) && !is_parked(State::Blocked, reason)
    };
    let moving = counts.iter().any(|count| match count.state {
        State::InProgress => true,
        State::Blocked => led_on(count.blocked_on),
        _ => false,
    });
    if moving {
        return Ok(false);
    }
    let floor = book.floor(&WORKING_ROLES).await?;
    if !floor.ready.is_empty() && !floor.paused {
        return Ok(false);
    }
    let bench = book.bench().await?;
    let merges = bench.to_merge && bench.red_base.is_none();
    if bench.to_judge || merges || bench.next_at.is_some() {
        return Ok(false);
    }
    if let Some(red) = &bench.red_base
        && let Some(mending) = book.end_of_chain(&red.task).await?
        && !mending.state.is_terminal()
    {
        return Ok(false);
    }
    // A grace that is about to end is something to wait for.
    let now = book.now().await?;
    let due = book.ledger().next_deadline(now).await;
    let due = due.map_err(LedgerError::from)?;
    if due.is_some_and(|at| at <= now.plus_secs(SOON_SECS)) {
        return Ok(false);
    }
    Ok(book.waits_for_dead(Timestamp(0), 1).await?.is_empty())
}

/// Whether a task with that blocker waits for a person or the outside, as far as a count
/// can tell.
pub(crate) fn is_parked(state: State, blocked_on: Option<Reason>) -> bool {
    state == State::Blocked
        && matches!(
            blocked_on,
            Some(
                Reason::IssueLinking
                    | Reason::DependencyNotMet
                    | Reason::LedgerInconsistent
                    | Reason::InvalidTransition
            )
        )
}
