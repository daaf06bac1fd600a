//! One role alone: the same code as in `fleet up`, over the same store.

use std::path::Path;

use runner::{Error, ErrorCode, Result};
use runner_fleet::backlog::project::BacklogState;
use runner_fleet::names::AgentName;
use runner_fleet::roles::planner::PlanOutcome;
use runner_fleet::rules::preflight::PreflightInputs;
use runner_fleet::up::{FleetNews, FleetRole};
use serde_json::json;

use super::api::FleetApi;
use super::base::{self, BaseStart};
use super::context;
use super::context::CommandContext;
use super::up::{FleetUpError, SignalCounter, finish, runtime, said, say_planned};
use crate::commands::Exit;
use crate::fleet_args::{FleetArgs, FleetCommand};
use crate::out::OutputGate;
use crate::style;

/// What one process does.
struct RoleCommand<'a> {
    roles: Vec<(FleetRole, Option<&'a str>)>,
    requirement: Option<&'a str>,
    serves: bool,
}

fn role_command(command: &FleetCommand) -> RoleCommand<'_> {
    let alone = |roles| RoleCommand {
        roles,
        requirement: None,
        serves: false,
    };
    match command {
        FleetCommand::Dispatcher { .. } => alone(vec![
            (FleetRole::Dispatcher, None),
            (FleetRole::Watchdog, None),
        ]),
        FleetCommand::Cycle => alone(vec![(FleetRole::Cycle, None), (FleetRole::Watchdog, None)]),
        FleetCommand::Judge { name, .. } => alone(vec![(FleetRole::Judge, name.as_deref())]),
        FleetCommand::Worker { role, name, .. } => {
            let role = match role.as_str() {
                "tester" => FleetRole::Tester,
                "docser" => FleetRole::Docser,
                _ => FleetRole::Worker,
            };
            alone(vec![(role, name.as_deref())])
        }
        FleetCommand::Planner { requirement } => RoleCommand {
            requirement: requirement.as_deref(),
            ..alone(vec![(FleetRole::Planner, None)])
        },
        _ => RoleCommand {
            serves: true,
            ..alone(Vec::new())
        },
    }
}

/// `runner fleet dispatcher|worker|judge|cycle|planner|serve`.
pub(super) fn run(dir: &Path, args: &FleetArgs, out: &mut OutputGate) -> Result<Exit> {
    let role_command = role_command(&args.command);
    let requirement = context::requirement(role_command.requirement)?;
    let mut context = CommandContext::find(dir, &args.store)?;
    if let FleetCommand::Serve { at } = &args.command {
        context.serve_at(at);
    }
    if let FleetCommand::Dispatcher { red_base }
    | FleetCommand::Worker { red_base, .. }
    | FleetCommand::Judge { red_base, .. } = &args.command
    {
        context.on_red_base = base::rule(&red_base.on_red_base);
    }
    for (role, _) in &role_command.roles {
        let (agent, guard) = needs(*role, context.settings().review);
        context.check_programs(agent, guard)?;
    }
    let mut names = Vec::new();
    for (role, wanted) in &role_command.roles {
        names.push((*role, name(&context, *role, *wanted)?));
    }
    let signals = SignalCounter::listen()?;
    let ended = runtime()?.block_on(stay(
        &context,
        requirement,
        names,
        role_command.serves,
        signals,
        out,
    ));
    finish(ended, &context, out)
}

/// Whether a role starts the agent, and whether it starts the guard.
fn needs(role: FleetRole, review: bool) -> (bool, bool) {
    match role {
        FleetRole::Worker | FleetRole::Tester | FleetRole::Docser => (true, true),
        FleetRole::Planner => (true, false),
        FleetRole::Judge => (review, true),
        FleetRole::Dispatcher | FleetRole::Cycle | FleetRole::Watchdog => (false, false),
    }
}

fn name(context: &CommandContext, role: FleetRole, wanted: Option<&str>) -> Result<AgentName> {
    let Some(wanted) = wanted else {
        return Ok(context.names.next(role.word())?);
    };
    let usable = !wanted.is_empty()
        && wanted.len() <= 64
        && wanted
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_'));
    if !usable {
        return Err(
            Error::new(ErrorCode::Config, format!("{wanted:?} is no name"))
                .hint("letters, digits, `-` and `_`, 64 at most"),
        );
    }
    context.names.take(wanted)?.ok_or_else(|| {
        Error::new(
            ErrorCode::Locked,
            format!("somebody is at work here as {wanted}"),
        )
        .hint("leave --name away: the first free name is taken")
    })
}

async fn stay(
    context: &CommandContext,
    requirement: Option<String>,
    names: Vec<(FleetRole, AgentName)>,
    serves: bool,
    mut signals: SignalCounter,
    out: &mut OutputGate,
) -> std::result::Result<Exit, FleetUpError> {
    let ledger = context.open().await?;
    let mut roles = context.roles(ledger.clone(), requirement).map_err(said)?;
    if names.iter().any(|(role, _)| *role == FleetRole::Planner) {
        let (seen, inputs) = roles.backlog.inputs().await?;
        // Whoever plans already is stood by for.
        if let Err(refused) = inputs.may_start_planner(0) {
            ledger.close().await?;
            return Ok(refuse_to_plan(&seen, &refused.0, out));
        }
    }
    let runs_guard = |role: FleetRole| needs(role, context.settings().review).1;
    if names.iter().any(|(role, _)| runs_guard(*role)) {
        let base = base::try_first(context, &roles.fleet, &mut signals, out).await?;
        if matches!(base, BaseStart::Interrupted) {
            return Ok(Exit::Interrupted);
        }
        base.tell(context, out);
    }
    let api = if serves {
        Some(FleetApi::start(context, &ledger, &roles).map_err(said)?)
    } else {
        None
    };
    context.tell_guess(out);
    if let Some(api) = &api {
        if out.json {
            out.object(json!({"event": "started", "api": api.url, "token_file": api.token_file}));
        } else {
            out.data(&api.url);
            api.say(out);
            out.say("Ctrl-C ends it");
        }
    }
    for (role, name) in names {
        if role != FleetRole::Watchdog {
            if out.json {
                out.object(json!({
                    "event": "started", "role": role.word(), "name": name.as_str(),
                    "pid": std::process::id(),
                }));
            } else {
                out.say(&format!("{} is at work; Ctrl-C ends it", name.as_str()));
            }
        }
        roles.fleet.begin(role, name);
    }
    let broken = loop {
        let news = tokio::select! {
            biased;
            () = signals.reached(1) => break None,
            news = roles.fleet.news() => news,
        };
        match news {
            FleetNews::RoleEnded(words) => break Some(words),
            FleetNews::Planner(PlanOutcome::Tasks(count)) => say_planned_tasks(count, out),
            FleetNews::Planner(planned) => say_planned(&planned, out),
        }
    };
    let errors = tokio::select! {
        errors = roles.fleet.end() => errors,
        () = signals.reached(2) => return Ok(Exit::Interrupted),
    };
    if let Some(api) = api {
        api.end().await;
    }
    ledger.close().await?;
    if let Some(words) = broken {
        return Err(said(Error::new(ErrorCode::Io, words)));
    }
    match errors.into_iter().next() {
        Some(error) => Err(error.into()),
        None => Ok(Exit::Interrupted),
    }
}

fn say_planned_tasks(count: usize, out: &mut OutputGate) {
    if out.json {
        out.object(json!({"event": "planned", "tasks": count}));
    } else {
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        out.say(&format!("planned: {}", style::counted(count, "task")));
    }
}

/// A backlog comes before a new plan, and without a requirement there is none.
fn refuse_to_plan(seen: &BacklogState, words: &str, out: &mut OutputGate) -> Exit {
    let (words, hint) = if seen.planned {
        let words = "the requirement was planned before";
        (words, "say another one with --requirement")
    } else if PreflightInputs::says_something(&seen.requirement) {
        let hint = "start it again once that is done; `runner fleet up` does so by itself";
        (words, hint)
    } else {
        let hint = "for example: --requirement 'What shall be true in the end'";
        (words, hint)
    };
    if out.json {
        out.object(json!({"error": {
            "code": "PLANNER_REFUSED", "message": words, "hint": hint,
        }}));
    } else {
        out.problem(words, Some(hint));
    }
    Exit::NothingToDo
}
