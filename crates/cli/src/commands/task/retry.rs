//! `runner task retry`: a person goes on with a task, or begins it anew.

use runner_fleet::rules::role::{self, RoleProfile};
use runner_ledger::{Ledger, LedgerCall};
use runner_lifecycle::lock::Resource;
use runner_lifecycle::request::{IssueFacts, IssueWork, NewPacket};
use runner_lifecycle::row::Blocker;
use runner_lifecycle::{
    BlockReason, Facts, Refusal, RefusalCode, Request, ReworkCause, Task, TaskId, TaskOrigin,
};

use super::{TaskEnd, ask_knowing, resources, show, task_id};
use crate::commands::ledger::LedgerCommandError;
use crate::ledger_args::{RetryArgs, TaskArgs};
use crate::out::OutputGate;

pub(super) async fn retry(
    ledger: &Ledger,
    args: &TaskArgs,
    retry: &RetryArgs,
    out: &mut OutputGate,
) -> TaskEnd {
    let id = &task_id(&retry.id)?;
    let Some(task) = ledger.task(id).await? else {
        return Err(show::unknown(id));
    };
    let mut packet = packet(&task, retry)?;
    if let Some(packet) = packet.take_if(|_| is_refused(&task)) {
        // A person may correct a packet as often as it takes; it is not counted.
        let mut replan = LedgerCall::new(id.clone(), &args.actor, Request::Replan(packet));
        replan.request_id = args
            .request_id
            .as_ref()
            .map(|name| format!("{name}/packet"));
        ledger.call(&replan).await?;
    }
    let outside = Facts {
        issue: retry.role.clone().map(|role| IssueFacts {
            work: role::by_name(&role).map(|role| work_of(&task, role)),
            role: Some(role),
            closed: false,
        }),
        // Whoever names another scope says that there is one.
        safe_path: packet.is_some(),
        ..Facts::default()
    };
    let request = if begins_anew(ledger, args, &task).await? {
        Request::Retry {
            successor: successor(&task, retry)?,
        }
    } else {
        Request::Recover {
            packet,
            successor: Some(successor(&task, retry)?),
        }
    };
    ask_knowing(ledger, args, id, None, request, outside, out).await
}

/// What a task does in a role that a person gives it: within its own scope where it has one, else
/// within the role's.
fn work_of(task: &Task, role: &RoleProfile) -> IssueWork {
    let is_whole = task.lock_scope == [Resource::whole_repo()];
    let of_role = role.default_scope.iter();
    let of_role = of_role.filter_map(|path| Resource::parse(path).ok());
    IssueWork {
        lock_scope: if is_whole {
            of_role.collect()
        } else {
            task.lock_scope.clone()
        },
        forbidden_scope: task.forbidden_scope.clone(),
        lane: role.lane,
        expects_change: role.expects_change,
    }
}

/// Whether the task has ended and another one shall be made. A repeat of a named request
/// is the same request, whatever it has led to.
async fn begins_anew(
    ledger: &Ledger,
    args: &TaskArgs,
    task: &Task,
) -> std::result::Result<bool, LedgerCommandError> {
    let Some(next) = &task.superseded_by else {
        return Ok(task.state.is_terminal());
    };
    if args.request_id.is_none() {
        let words = format!("task {} has its one successor: {next}", task.id);
        return Err(Refusal::new(RefusalCode::InvalidTransition, words).into());
    }
    let made = ledger.task(next).await?;
    Ok(made.is_some_and(|made| made.origin == TaskOrigin::Retry))
}

/// The id of the successor. It does not change while the task does, so that a repeat is
/// the same request.
fn successor(task: &Task, retry: &RetryArgs) -> std::result::Result<TaskId, LedgerCommandError> {
    if let Some(name) = &retry.successor {
        return task_id(name);
    }
    let name = format!("{}-r{}", task.lineage.root, task.lineage.tasks + 1);
    TaskId::parse(&name).map_err(|_| {
        let words = format!("{name} would be too long for a successor: name it with --as ID");
        Refusal::new(RefusalCode::MissingRequiredInput, words).into()
    })
}

/// Whether a code says that the packet itself was wrong.
fn is_refused(task: &Task) -> bool {
    let code = task.blocker.as_ref().and_then(Blocker::refusal_code);
    code.is_some_and(RefusalCode::needs_new_packet)
}

/// The corrected packet, if a scope was given.
fn packet(
    task: &Task,
    retry: &RetryArgs,
) -> std::result::Result<Option<NewPacket>, LedgerCommandError> {
    if retry.scope.is_empty() {
        return Ok(None);
    }
    let reworked = task.blocked_on() == Some(BlockReason::NeedsRework)
        && matches!(
            task.rework_cause,
            Some(ReworkCause::Setup | ReworkCause::Policy)
        );
    if !is_refused(task) && !reworked {
        let words = format!("task {} does not wait for another scope", task.id);
        return Err(Refusal::new(RefusalCode::InvalidTransition, words).into());
    }
    let forbidden = resources(&retry.forbid)?;
    Ok(Some(NewPacket {
        lock_scope: resources(&retry.scope)?,
        forbidden_scope: if forbidden.is_empty() {
            task.forbidden_scope.clone()
        } else {
            forbidden
        },
        context: task.context.clone(),
        commands: Vec::new(),
    }))
}
