//! `runner task`: the protocol of a task, by hand.

mod endings;
mod retry;
pub(crate) mod show;

use std::path::Path;

use runner::Result;
use runner_ledger::{
    CallOutcome, ClaimRequest, ClaimedTask, Ledger, LedgerCall, TaskFilter, Watchdog,
};
use runner_lifecycle::decide::Answer;
use runner_lifecycle::lock::Resource;
use runner_lifecycle::request::{Claim, NewTask, WorkEnding};
use runner_lifecycle::row::Criterion;
use runner_lifecycle::{
    CriterionCheck, Facts, LeasePurpose, Refusal, RefusalCode, Request, TaskId, TaskPriority,
    TaskRisk, TaskState,
};
use serde_json::{Value, json};

use super::Exit;
use super::ledger::{LedgerCommandError, store, store_to_read, with_ledger};
use crate::ledger_args::{AddArgs, StartArgs, StoreArgs, TaskArgs, TaskCommand};
use crate::out::OutputGate;
use crate::style;

/// Reads one of the words of a type, or says which there are.
macro_rules! word {
    ($type:ty, $what:literal, $text:expr) => {{
        let text: &str = $text;
        <$type>::parse(text).ok_or_else(|| {
            let known: Vec<&str> = <$type>::ALL.iter().map(|one| one.as_str()).collect();
            $crate::commands::task::usage(format!(
                "{text:?} is no {}: use {}",
                $what,
                known.join(", ")
            ))
        })
    }};
}
use word;

pub(crate) type TaskEnd = std::result::Result<Exit, LedgerCommandError>;

/// `runner task …`.
pub(crate) fn run(dir: &Path, args: &TaskArgs, out: &mut OutputGate) -> Result<Exit> {
    let store = match args.command {
        TaskCommand::Add(_) => store(dir, &args.store)?,
        _ => store_to_read(dir, &args.store)?,
    };
    let reads = matches!(
        args.command,
        TaskCommand::List { .. }
            | TaskCommand::Show { .. }
            | TaskCommand::Events { .. }
            | TaskCommand::Why { .. }
    );
    with_ledger(&store, reads, out, async |ledger, out| {
        dispatch(ledger, args, out).await
    })
}

pub(crate) async fn dispatch(ledger: &Ledger, args: &TaskArgs, out: &mut OutputGate) -> TaskEnd {
    match &args.command {
        TaskCommand::Add(new) => {
            let new = new_task(new)?;
            let id = new.id.clone();
            call(ledger, args, &id, None, Request::Create(new), out).await
        }
        TaskCommand::List {
            state,
            role,
            after,
            limit,
        } => {
            let state = state.as_deref().map(|text| word!(TaskState, "state", text));
            let filter = TaskFilter {
                state: state.transpose()?,
                role: role.clone(),
                after: after.as_deref().map(task_id).transpose()?,
                limit: *limit,
            };
            show::list(ledger, &filter, out).await
        }
        TaskCommand::Show { id } => show::show(ledger, &task_id(id)?, out).await,
        TaskCommand::Start(start) => claim(ledger, args, start, out).await,
        TaskCommand::Heartbeat { id, lease } => {
            let request = Request::Heartbeat { token: lease.token };
            call(
                ledger,
                args,
                &task_id(id)?,
                Some(&lease.owner),
                request,
                out,
            )
            .await
        }
        TaskCommand::Finish(finish) => {
            let id = task_id(&finish.id)?;
            let request = endings::request(ledger, &id, finish).await?;
            call(ledger, args, &id, Some(&finish.lease.owner), request, out).await
        }
        TaskCommand::Block {
            id,
            code,
            reason,
            waits_for,
            token,
            owner,
        } => {
            let id = task_id(id)?;
            let code = word!(RefusalCode, "code", code)?;
            let (reason, waits_for) = (reason.clone(), waits_for.clone());
            let request = match token {
                None => Request::Block {
                    code,
                    reason,
                    waits_for,
                },
                Some(token) => Request::Finish {
                    token: *token,
                    run_id: endings::run_id(ledger, &id, *token).await?,
                    ending: WorkEnding::Blocked {
                        code,
                        reason,
                        waits_for,
                    },
                },
            };
            call(ledger, args, &id, owner.as_deref(), request, out).await
        }
        TaskCommand::Cancel { id, reason } => {
            let reason = reason.clone();
            call(
                ledger,
                args,
                &task_id(id)?,
                None,
                Request::Cancel { reason },
                out,
            )
            .await
        }
        TaskCommand::Accept { id, reason } => {
            let reason = reason.clone();
            let request = Request::AcceptJudge { reason };
            call(ledger, args, &task_id(id)?, None, request, out).await
        }
        TaskCommand::Retry(retry) => retry::retry(ledger, args, retry, out).await,
        TaskCommand::Events { id } => show::events(ledger, &task_id(id)?, out).await,
        TaskCommand::Why { id } => show::why(ledger, &task_id(id)?, out).await,
    }
}

/// `runner why`: a node of the tree, or a task of the project's fleet.
pub(crate) fn why_node_or_task(
    dir: &Path,
    name: Option<&str>,
    out: &mut OutputGate,
) -> Result<Exit> {
    let of_tree = super::look::why(dir, name, out);
    let (Err(error), Some(id)) = (&of_tree, name.and_then(|name| TaskId::parse(name).ok())) else {
        return of_tree;
    };
    let args = StoreArgs { store: None };
    let there = match store(dir, &args) {
        Ok(runner_ledger::Store::Sqlite(path)) => path.is_file(),
        Ok(runner_ledger::Store::Postgres(_) | runner_ledger::Store::Memory) => true,
        Err(_) => false,
    };
    if !there || error.code == runner::ErrorCode::Interrupted {
        return of_tree;
    }
    with_ledger(&store(dir, &args)?, true, out, async |ledger, out| {
        if ledger.task(&id).await?.is_none() {
            return of_tree.map_err(|error| {
                let hint = error.hint.clone().unwrap_or_default();
                LedgerCommandError::Usage(error.hint(format!(
                    "there is no task {id} either: {hint}, `runner task list` those of tasks"
                )))
            });
        }
        show::why(ledger, &id, out).await
    })
}

fn usage(words: String) -> LedgerCommandError {
    Refusal::new(RefusalCode::SchemaInvalid, words).into()
}

pub(crate) fn task_id(text: &str) -> std::result::Result<TaskId, LedgerCommandError> {
    TaskId::parse(text).map_err(|error| usage(error.to_string()))
}

/// The scope that these paths lock.
fn resources(texts: &[String]) -> std::result::Result<Vec<Resource>, LedgerCommandError> {
    let parse = |text: &String| Resource::from_allowed_path(text);
    let all: std::result::Result<Vec<Resource>, _> = texts.iter().map(parse).collect();
    all.map_err(|error| usage(error.to_string()))
}

fn new_task(args: &AddArgs) -> std::result::Result<NewTask, LedgerCommandError> {
    let mut acceptance = Vec::new();
    for (texts, check) in [
        (&args.accept, CriterionCheck::Command),
        (&args.review, CriterionCheck::Review),
    ] {
        for text in texts {
            let (id, text) = text
                .split_once('=')
                .ok_or_else(|| usage(format!("criterion {text:?} is not ID=TEXT")))?;
            acceptance.push(Criterion {
                id: id.to_owned(),
                text: text.to_owned(),
                check,
            });
        }
    }
    let plain = NewTask::new(task_id(&args.id)?, Resource::whole_repo());
    if acceptance.is_empty() {
        acceptance = plain.acceptance;
    }
    let dependencies: std::result::Result<Vec<TaskId>, LedgerCommandError> =
        args.depends.iter().map(|id| task_id(id)).collect();
    Ok(NewTask {
        title: args.title.clone(),
        goal: args.goal.clone(),
        role: args.role.clone(),
        priority: word!(TaskPriority, "priority", &args.priority)?,
        risk: word!(TaskRisk, "risk", &args.risk)?,
        dependencies: dependencies?,
        lock_scope: resources(&args.scope)?,
        forbidden_scope: resources(&args.forbid)?,
        acceptance,
        expects_change: !args.no_change,
        timeout_seconds: args.timeout,
        heartbeat_interval_seconds: args.heartbeat,
        timebox_seconds: args.timebox,
        ..NewTask::new(plain.id, Resource::whole_repo())
    })
}

/// Asks, and prints the answer.
async fn call(
    ledger: &Ledger,
    args: &TaskArgs,
    id: &TaskId,
    owner: Option<&str>,
    request: Request,
    out: &mut OutputGate,
) -> TaskEnd {
    ask_knowing(ledger, args, id, owner, request, Facts::default(), out).await
}

/// Asks with what the caller knows besides, and prints the answer.
async fn ask_knowing(
    ledger: &Ledger,
    args: &TaskArgs,
    id: &TaskId,
    owner: Option<&str>,
    request: Request,
    outside: Facts,
    out: &mut OutputGate,
) -> TaskEnd {
    let mut call = LedgerCall::new(id.clone(), owner.unwrap_or(&args.actor), request);
    call.request_id.clone_from(&args.request_id);
    call.outside = outside;
    let outcome = ledger.call(&call).await?;
    print(&outcome, out);
    Ok(Exit::Success)
}

pub(crate) fn print(outcome: &CallOutcome, out: &mut OutputGate) {
    if out.json {
        out.object(json!({
            "answer": outcome.answer, "task": outcome.task, "created": outcome.created,
            "replayed": outcome.replayed, "events": outcome.events,
            "blockers": show::blockers(std::slice::from_ref(&outcome.task)),
        }));
        return;
    }
    let line = match &outcome.answer {
        Answer::Claimed {
            token,
            run_id,
            expires_at,
        } => format!(
            "{}: token {token}, run {run_id}, until {}",
            outcome.task.id,
            show::time(*expires_at)
        ),
        Answer::Heard { expires_at } => {
            format!(
                "{}: heard, until {}",
                outcome.task.id,
                show::time(*expires_at)
            )
        }
        Answer::Moved { .. } => show::line(&outcome.task, out),
        Answer::Unchanged => format!("{}  nothing to do", show::line(&outcome.task, out)),
    };
    out.data(&line);
    if let (Answer::Unchanged, Some(blocker)) = (&outcome.answer, &outcome.task.blocker) {
        out.data(&format!("  waits: {}", style::harmless(&blocker.reason)));
    }
    say_if_replayed(outcome.replayed, out);
    if let Some(created) = &outcome.created {
        out.data(&show::line(created, out));
    }
}

fn say_if_replayed(replayed: bool, out: &mut OutputGate) {
    if replayed {
        out.say("this was asked before: the same answer again");
    }
}

async fn claim(
    ledger: &Ledger,
    args: &TaskArgs,
    start: &StartArgs,
    out: &mut OutputGate,
) -> TaskEnd {
    let purpose = word!(LeasePurpose, "purpose", &start.purpose)?;
    if purpose == LeasePurpose::Merge && start.base.is_none() {
        let words = "a merge names its base: --base BRANCH";
        return Err(Refusal::new(RefusalCode::MissingRequiredInput, words).into());
    }
    let now = ledger.now().await?;
    let key = start.key.clone().or_else(|| args.request_id.clone());
    let key = key.unwrap_or_else(|| format!("{}-{}-{}", start.owner, std::process::id(), now.0));
    // By hand nobody watches the clock meanwhile: whatever is due is done first.
    Watchdog::new(ledger.clone(), &args.actor)
        .await?
        .look()
        .await?;
    let claimed = if let Some(id) = &start.id {
        let request = Request::Claim(Claim {
            owner: start.owner.clone(),
            purpose,
            key,
            base: start.base.clone(),
        });
        let call = LedgerCall::new(task_id(id)?, &start.owner, request);
        let outcome = ledger.call(&call).await?;
        claimed_of(outcome)
    } else {
        let claim_request = ClaimRequest {
            purpose,
            base: start.base.clone(),
            ..ClaimRequest::work(&start.owner, &start.role, &key)
        };
        ledger.claim_next(&claim_request).await?
    };
    let Some(claimed) = claimed else {
        if out.json {
            out.object(json!({"claimed": null}));
        } else {
            out.say("nothing can start now; `runner task why ID` says why");
        }
        return Ok(Exit::NothingToDo);
    };
    if out.json {
        out.object(json!({"claimed": claimed_value(ledger, &claimed).await?}));
        return Ok(Exit::Success);
    }
    out.data(&format!(
        "{}: token {}, run {}, until {}",
        claimed.task.id,
        claimed.token,
        claimed.run_id,
        show::time(claimed.expires_at)
    ));
    say_if_replayed(claimed.replayed, out);
    Ok(Exit::Success)
}

fn claimed_of(outcome: CallOutcome) -> Option<ClaimedTask> {
    match outcome.answer {
        Answer::Claimed {
            token,
            run_id,
            expires_at,
        } => Some(ClaimedTask {
            task: outcome.task,
            token,
            run_id,
            expires_at,
            replayed: outcome.replayed,
        }),
        _ => None,
    }
}

async fn claimed_value(
    ledger: &Ledger,
    claimed: &ClaimedTask,
) -> std::result::Result<Value, LedgerCommandError> {
    let locks = ledger.locks().await?;
    Ok(json!({
        "task": claimed.task, "token": claimed.token, "run_id": claimed.run_id,
        "expires_at": claimed.expires_at, "replayed": claimed.replayed,
        "assignment": claimed.assignment("", &locks),
    }))
}
