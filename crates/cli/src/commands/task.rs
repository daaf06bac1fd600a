//! `runner task`: the protocol of a task, by hand.

mod show;

use std::io::Read as _;
use std::path::Path;

use runner::Result;
use runner_ledger::{Ask, Claimed, Filter, Keeper, Ledger, Outcome, Wanted};
use runner_lifecycle::decide::Answer;
use runner_lifecycle::lock::Resource;
use runner_lifecycle::packet::ResultPacket;
use runner_lifecycle::request::{Claim, Ending, JudgeEnding, NewTask};
use runner_lifecycle::row::{Criterion, Intent};
use runner_lifecycle::{
    BasePosition, Category, Check, Code, Priority, Purpose, Refusal, Request, ReworkCause, Risk,
    State, TaskId,
};
use serde_json::{Value, json};

use super::Exit;
use super::ledger::{Trouble, io, store, with_ledger};
use crate::ledger_args::{AddArgs, FinishArgs, StartArgs, StoreArgs, TaskArgs, TaskCommand};
use crate::out::Out;

type Ended = std::result::Result<Exit, Trouble>;

/// `runner task …`.
pub(crate) fn run(dir: &Path, args: &TaskArgs, out: &mut Out) -> Result<Exit> {
    let store = store(dir, &args.store)?;
    with_ledger(&store, out, async |ledger, out| {
        dispatch(ledger, args, out).await
    })
}

async fn dispatch(ledger: &Ledger, args: &TaskArgs, out: &mut Out) -> Ended {
    match &args.command {
        TaskCommand::Add(new) => {
            let new = new_task(new)?;
            let id = new.id.clone();
            ask(ledger, args, &id, None, Request::Create(new), out).await
        }
        TaskCommand::List {
            state,
            role,
            after,
            limit,
        } => {
            let state = state
                .as_deref()
                .map(|word| word_of("state", State::parse, word));
            let filter = Filter {
                state: state.transpose()?,
                role: role.clone(),
                after: after.as_deref().map(task_id).transpose()?,
                limit: (*limit).max(1),
            };
            show::list(ledger, &filter, out).await
        }
        TaskCommand::Show { id } => show::show(ledger, &task_id(id)?, out).await,
        TaskCommand::Start(start) => claim(ledger, args, start, out).await,
        TaskCommand::Heartbeat { id, lease } => {
            let request = Request::Heartbeat { token: lease.token };
            ask(
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
            let request = ending(ledger, &id, finish).await?;
            ask(ledger, args, &id, Some(&finish.lease.owner), request, out).await
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
            let code = word_of("code", Code::parse, code)?;
            let (reason, waits_for) = (reason.clone(), waits_for.clone());
            let request = match token {
                None => Request::Block {
                    code,
                    reason,
                    waits_for,
                },
                Some(token) => Request::Finish {
                    token: *token,
                    run_id: run_id(ledger, &id).await?,
                    ending: Ending::Blocked {
                        code,
                        reason,
                        waits_for,
                    },
                },
            };
            ask(ledger, args, &id, owner.as_deref(), request, out).await
        }
        TaskCommand::Cancel { id, reason } => {
            let reason = reason.clone();
            ask(
                ledger,
                args,
                &task_id(id)?,
                None,
                Request::Cancel { reason },
                out,
            )
            .await
        }
        TaskCommand::Retry { id, successor } => {
            retry(ledger, args, &task_id(id)?, successor.as_deref(), out).await
        }
        TaskCommand::Events { id } => show::events(ledger, &task_id(id)?, out).await,
        TaskCommand::Why { id } => show::why(ledger, &task_id(id)?, out).await,
    }
}

/// `runner why`: a node of the tree, or a task of the project's fleet.
pub(crate) fn why_node_or_task(dir: &Path, name: Option<&str>, out: &mut Out) -> Result<Exit> {
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
    if !there || error.code == runner::Code::Interrupted {
        return of_tree;
    }
    with_ledger(&store(dir, &args)?, out, async |ledger, out| {
        if ledger.task(&id).await?.is_none() {
            return of_tree.map_err(Trouble::Usage);
        }
        show::why(ledger, &id, out).await
    })
}

fn usage(words: String) -> Trouble {
    Refusal::new(Code::SchemaInvalid, words).into()
}

fn task_id(text: &str) -> std::result::Result<TaskId, Trouble> {
    TaskId::parse(text).map_err(|error| usage(error.to_string()))
}

fn word_of<T>(
    what: &str,
    parse: impl Fn(&str) -> Option<T>,
    word: &str,
) -> std::result::Result<T, Trouble> {
    parse(word).ok_or_else(|| usage(format!("{word:?} is no {what}; see --help")))
}

fn new_task(args: &AddArgs) -> std::result::Result<NewTask, Trouble> {
    let resources = |texts: &[String]| {
        let parse = |text: &String| Resource::from_allowed_path(text);
        let all: std::result::Result<Vec<Resource>, _> = texts.iter().map(parse).collect();
        all.map_err(|error| usage(error.to_string()))
    };
    let mut acceptance = Vec::new();
    for (texts, check) in [
        (&args.accept, Check::Command),
        (&args.review, Check::Review),
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
    let dependencies: std::result::Result<Vec<TaskId>, Trouble> =
        args.depends.iter().map(|id| task_id(id)).collect();
    Ok(NewTask {
        title: args.title.clone(),
        goal: args.goal.clone(),
        role: args.role.clone(),
        priority: word_of("priority", Priority::parse, &args.priority)?,
        risk: word_of("risk", Risk::parse, &args.risk)?,
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
async fn ask(
    ledger: &Ledger,
    args: &TaskArgs,
    id: &TaskId,
    owner: Option<&str>,
    request: Request,
    out: &mut Out,
) -> Ended {
    let mut ask = Ask::new(id.clone(), owner.unwrap_or(&args.actor), request);
    ask.request_id.clone_from(&args.request_id);
    let outcome = ledger.call(&ask).await?;
    print(&outcome, out);
    Ok(Exit::Success)
}

fn print(outcome: &Outcome, out: &mut Out) {
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
        Answer::Unchanged => format!("{}: nothing to do", outcome.task.id),
    };
    out.data(&line);
    if outcome.replayed {
        out.say("this was asked before: the same answer again");
    }
    if let Some(created) = &outcome.created {
        out.data(&show::line(created, out));
    }
}

async fn claim(ledger: &Ledger, args: &TaskArgs, start: &StartArgs, out: &mut Out) -> Ended {
    let purpose = word_of("purpose", Purpose::parse, &start.purpose)?;
    let now = ledger.now().await?;
    let key = start.key.clone();
    let key = key.unwrap_or_else(|| format!("{}-{}-{}", start.owner, std::process::id(), now.0));
    // By hand nobody watches the clock meanwhile: whatever is due is done first.
    Keeper::new(ledger.clone(), &args.actor)
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
        let ask = Ask::new(task_id(id)?, &start.owner, request);
        let outcome = ledger.call(&ask).await?;
        claimed_of(outcome)
    } else {
        let wanted = Wanted {
            purpose,
            base: start.base.clone(),
            ..Wanted::work(&start.owner, &start.role, &key)
        };
        ledger.claim_next(&wanted).await?
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
    Ok(Exit::Success)
}

fn claimed_of(outcome: Outcome) -> Option<Claimed> {
    match outcome.answer {
        Answer::Claimed {
            token,
            run_id,
            expires_at,
        } => Some(Claimed {
            task: outcome.task,
            token,
            run_id,
            expires_at,
            replayed: outcome.replayed,
        }),
        _ => None,
    }
}

async fn claimed_value(ledger: &Ledger, claimed: &Claimed) -> std::result::Result<Value, Trouble> {
    let locks = ledger.locks().await?;
    Ok(json!({
        "task": claimed.task, "token": claimed.token, "run_id": claimed.run_id,
        "expires_at": claimed.expires_at, "replayed": claimed.replayed,
        "assignment": claimed.assignment("", &locks),
    }))
}

async fn run_id(ledger: &Ledger, id: &TaskId) -> std::result::Result<String, Trouble> {
    let runs = ledger.runs(id).await?;
    runs.last().map(|run| run.id.clone()).ok_or_else(|| {
        Refusal::new(Code::InvalidTransition, format!("task {id} has no run")).into()
    })
}

fn read_packet(path: Option<&Path>) -> std::result::Result<ResultPacket, Trouble> {
    let path = path.unwrap_or(Path::new("-"));
    let mut bytes = Vec::new();
    let read = if path == Path::new("-") {
        std::io::stdin().read_to_end(&mut bytes)
    } else {
        std::fs::File::open(path).and_then(|mut file| file.read_to_end(&mut bytes))
    };
    read.map_err(|error| io(path, &error))?;
    Ok(ResultPacket::parse(&bytes)?)
}

async fn ending(
    ledger: &Ledger,
    id: &TaskId,
    args: &FinishArgs,
) -> std::result::Result<Request, Trouble> {
    let token = args.lease.token;
    let packet = || read_packet(args.packet.as_deref());
    let reason = || args.note.clone();
    let judged = |ending| Request::Judge { token, ending };
    if args.approve {
        return Ok(judged(JudgeEnding::Approve { packet: packet()? }));
    }
    if let Some(cause) = &args.reject {
        return Ok(judged(JudgeEnding::Reject {
            cause: word_of("cause", ReworkCause::parse, cause)?,
            remarks: Vec::new(),
            reason: reason(),
        }));
    }
    if args.unable {
        return Ok(judged(JudgeEnding::Unable { reason: reason() }));
    }
    if args.step_back {
        return Ok(judged(JudgeEnding::StepBack { reason: reason() }));
    }
    if let Some([old, new]) = args.intent.as_deref() {
        let intent = Intent {
            old_base: old.clone(),
            merge_commit: new.clone(),
        };
        return Ok(Request::RecordIntent {
            token,
            intent,
            packet: packet()?,
        });
    }
    if let Some(base) = &args.settle {
        let open = ledger.task(id).await?.and_then(|task| task.intent);
        let intent = open.ok_or_else(|| {
            Refusal::new(
                Code::InvalidTransition,
                format!("task {id} has no open intent: record one with --intent OLD NEW"),
            )
        })?;
        return Ok(Request::SettleIntent {
            token,
            intent,
            base: word_of("place of a base", BasePosition::parse, base)?,
        });
    }
    let ending = if args.success {
        Ending::Success {
            result: args.result.clone(),
            packet: packet()?,
        }
    } else if let Some(category) = &args.failed {
        Ending::Failed {
            category: word_of("category", Category::parse, category)?,
            signature: args.signature.clone(),
            note: reason(),
        }
    } else {
        Ending::Lost
    };
    Ok(Request::Finish {
        token,
        run_id: run_id(ledger, id).await?,
        ending,
    })
}

async fn retry(
    ledger: &Ledger,
    args: &TaskArgs,
    id: &TaskId,
    successor: Option<&str>,
    out: &mut Out,
) -> Ended {
    let Some(task) = ledger.task(id).await? else {
        return Err(show::unknown(id));
    };
    if let Some(next) = &task.superseded_by {
        let words = format!("task {id} has its one successor: {next}");
        return Err(Refusal::new(Code::InvalidTransition, words).into());
    }
    let name = successor.map_or_else(|| format!("{id}-r{}", task.version), str::to_owned);
    let successor = task_id(&name)?;
    let request = if task.state.is_terminal() {
        Request::Retry { successor }
    } else {
        Request::Recover {
            packet: None,
            successor: Some(successor),
        }
    };
    ask(ledger, args, id, None, request, out).await
}
