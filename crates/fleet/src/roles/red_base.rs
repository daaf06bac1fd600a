//! A red base: the one task that fixes it, and that nothing else begins before it is green.
//!
//! Whatever is built on a red base fails its guard, so each session spent on it is lost.

use std::collections::BTreeMap;

use runner_ledger::{LedgerError, RedBase};
use runner_lifecycle::lock::Resource;
use runner_lifecycle::request::NewTask;
use runner_lifecycle::row::RED_BASE;
use runner_lifecycle::{
    Facts, Task, TaskId, TaskOrigin, TaskPriority, TaskRisk, TaskState, Timestamp,
};

use super::{RoleContext, insist};
use crate::ledger_port::{LedgerPort, LedgerResult};
use crate::rules::role::WORKER;
use crate::workspaces::{CheckEnd, StopSign, WorkspaceError};

/// How long a red base that nobody fixes is left alone before it is tried again: perhaps the
/// guard is not always red.
pub(super) const RED_RETRY_SECS: u64 = 3600;

/// How long a base that could not be tried is left alone.
const UNSURE_SECS: u64 = 60;

/// What a fleet does while its base is red.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RedBaseRule {
    /// Only what fixes it begins.
    #[default]
    Fix,
    /// Everything goes on; a person said so.
    Work,
}

/// What a role knows of bases; all of it may be forgotten.
#[derive(Debug, Default)]
pub(super) struct BaseMemory {
    /// Bases that the guard ran on alone, and whether it was red.
    bases: BTreeMap<String, bool>,
}

impl BaseMemory {
    /// Whether the guard is red on the base alone. None: it could not be told.
    pub(super) async fn is_red(
        &mut self,
        context: &RoleContext,
        base: &str,
        sign: &StopSign,
    ) -> Result<Option<bool>, WorkspaceError> {
        if let Some(red) = self.bases.get(base) {
            return Ok(Some(*red));
        }
        let checks = context
            .workspaces
            .check(base.to_owned(), None, sign.clone())
            .await?;
        let certain = checks.iter().all(|check| check.end != CheckEnd::Unable);
        if sign.is_raised() || !certain {
            return Ok(None);
        }
        let red = checks.iter().any(|check| check.end == CheckEnd::Red);
        self.bases.insert(base.to_owned(), red);
        Ok(Some(red))
    }

    pub(super) fn clear(&mut self) {
        self.bases.clear();
    }
}

/// What may begin.
#[derive(Clone, Debug)]
pub(super) enum BaseHold {
    /// Everything.
    Free,
    /// Only the task that fixes the base, if anybody still does.
    Only(Option<Box<Task>>),
}

/// The one who watches over a red base: tries it again when it has moved, and now and then where
/// nobody fixes it.
#[derive(Debug, Default)]
pub(super) struct BaseWatch {
    memory: BaseMemory,
    /// When a base that nobody fixes is tried again.
    retry_at: Option<Timestamp>,
    /// Until when a base is left alone that could not be tried.
    unsure_until: Option<Timestamp>,
}

impl BaseWatch {
    /// What may begin now.
    pub(super) async fn hold(
        &mut self,
        context: &RoleContext,
        name: &str,
        red: Option<&RedBase>,
        stop: &mut StopSign,
    ) -> LedgerResult<BaseHold> {
        if context.settings.on_red_base == RedBaseRule::Work {
            return Ok(BaseHold::Free);
        }
        let Some(red) = red else {
            self.retry_at = None;
            return Ok(BaseHold::Free);
        };
        let base_fix = context.ledger.end_of_chain(&red.task).await?;
        let held = BaseHold::Only(base_fix.map(Box::new));
        let Ok(base) = context.workspaces.base().await else {
            return Ok(held);
        };
        let now = context.clock.now();
        if base == red.commit && !self.is_time_to_retry(now, &held)
            || self.unsure_until.is_some_and(|at| now < at)
        {
            return Ok(held);
        }
        match self.memory.is_red(context, &base, stop).await {
            // Somebody may have written another one meanwhile.
            Ok(Some(false)) if context.ledger.red_base().await?.as_ref() == Some(red) => {
                context.ledger.set_red_base(None).await?;
                Ok(BaseHold::Free)
            }
            Ok(Some(true)) if base != red.commit => {
                make_base_fix(context, name, &base, stop).await?;
                let red = context.ledger.red_base().await?;
                let base_fix = match red {
                    Some(red) => context.ledger.end_of_chain(&red.task).await?,
                    None => None,
                };
                Ok(BaseHold::Only(base_fix.map(Box::new)))
            }
            Ok(None) | Err(_) => {
                self.unsure_until = Some(context.clock.now().plus_secs(UNSURE_SECS));
                Ok(held)
            }
            _ => Ok(held),
        }
    }

    /// Whether a base that nobody fixes is due.
    fn is_time_to_retry(&mut self, now: Timestamp, held: &BaseHold) -> bool {
        if matches!(held, BaseHold::Only(Some(task)) if !task.state.is_terminal()) {
            self.retry_at = None;
            return false;
        }
        let due = self.retry_at.is_some_and(|at| now >= at);
        if due || self.retry_at.is_none() {
            self.retry_at = Some(now.plus_secs(RED_RETRY_SECS));
        }
        if due {
            self.memory.clear();
        }
        due
    }
}

/// Whether a fleet with a red base waits for a person: nobody fixes it any longer. A base that
/// was fixed is about to be tried.
pub(crate) async fn waits_for_a_person(port: &LedgerPort, red: &RedBase) -> LedgerResult<bool> {
    let base_fix = port.end_of_chain(&red.task).await?;
    Ok(base_fix.is_none_or(|task| {
        matches!(task.state, TaskState::Failed | TaskState::Canceled)
            || super::planner::is_parked(task.state, task.blocked_on())
    }))
}

/// Notes that the base is red and makes the one task that fixes it, unless one is open.
pub(crate) async fn make_base_fix(
    context: &RoleContext,
    name: &str,
    base: &str,
    stop: &mut StopSign,
) -> LedgerResult<()> {
    let mut red = RedBase {
        commit: base.to_owned(),
        task: base_fix_id(base),
    };
    if let Some(known) = context.ledger.red_base().await?
        && let Some(base_fix) = context.ledger.end_of_chain(&known.task).await?
        && !base_fix.state.is_terminal()
    {
        // Somebody is at it already; the base has only moved on.
        red.task = known.task;
    } else {
        let defaults = &context.settings.defaults;
        let new = base_fix(base, defaults.task(red.task.clone(), Some(&WORKER)));
        let create = || context.ledger.create(name, new.clone(), Facts::default());
        match insist(context, stop, create).await {
            // Somebody was faster.
            None | Some(Ok(_) | Err(LedgerError::Refused(_))) => {}
            Some(Err(error)) => return Err(error),
        }
    }
    let note = insist(context, stop, || context.ledger.set_red_base(Some(&red))).await;
    note.unwrap_or(Ok(()))
}

/// The id of the task that fixes a base: the same for everybody who finds it red.
fn base_fix_id(base: &str) -> TaskId {
    let short: String = base
        .chars()
        .filter(char::is_ascii_alphanumeric)
        .take(12)
        .collect();
    // Letters and digits only, so this is an id.
    TaskId::parse(&format!("fix-base-{short}")).unwrap_or_else(|_| unreachable_id())
}

fn unreachable_id() -> TaskId {
    unreachable!("letters, digits and dashes are an id")
}

fn base_fix(base: &str, plain: NewTask) -> NewTask {
    NewTask {
        title: "[Fix-Base] make the guard green on the base".to_owned(),
        goal: format!(
            "The project's guard is red on commit {base} of the base branch, without any \
             unmerged work. Find out why and fix it, so that the guard is green again."
        ),
        origin: TaskOrigin::FixBase,
        source: Some(format!("{RED_BASE}{base}")),
        priority: TaskPriority::Critical,
        risk: TaskRisk::Low,
        lock_scope: vec![Resource::whole_repo()],
        ..plain
    }
}
