//! `runner fleet`: many tasks at once, each in a repository of its own.

mod api;
mod ask;
mod base;
mod board;
mod context;
mod demo;
mod reporter;
mod role_starter;
mod roles;
mod simulate;
mod status;
mod token;
mod up;

use std::path::Path;

use runner::Result;
use runner_ledger::{Ledger, LedgerCall};
use runner_lifecycle::Request;
use serde_json::json;

use super::Exit;
use super::ledger::{store_to_read, with_ledger};
use super::task::{self, TaskEnd};
use crate::fleet_args::{FleetArgs, FleetCommand};
use crate::ledger_args::{TaskArgs, TaskCommand};
use crate::out::OutputGate;

pub(crate) use demo::agent::main as demo_agent;

/// Who changes things here, as events name it.
const PERSON: &str = "person";

/// `runner fleet …`.
pub(crate) fn run(dir: &Path, args: &FleetArgs, out: &mut OutputGate) -> Result<Exit> {
    match &args.command {
        FleetCommand::Up(options) => return up::run(dir, &args.store, options, out),
        FleetCommand::Demo { dir } => return demo::run(dir.as_deref(), out),
        FleetCommand::Api(options) => return ask::run(dir, options, out),
        FleetCommand::Token(options) => return token::run(dir, options, out),
        FleetCommand::Simulate { seed, seeds, log } => {
            return Ok(simulate::run(*seed, *seeds, *log, out));
        }
        FleetCommand::Serve { .. }
        | FleetCommand::Dispatcher { .. }
        | FleetCommand::Worker { .. }
        | FleetCommand::Judge { .. }
        | FleetCommand::Cycle
        | FleetCommand::Planner { .. } => return roles::run(dir, args, out),
        _ => {}
    }
    let store = store_to_read(dir, &args.store)?;
    let reads = matches!(args.command, FleetCommand::Status { .. });
    with_ledger(&store, reads, out, async |ledger, out| {
        match &args.command {
            FleetCommand::Status { all } => status::run(ledger, *all, out).await,
            FleetCommand::Pause { id } => pause(ledger, id.as_deref(), true, out).await,
            FleetCommand::Resume { id } => pause(ledger, id.as_deref(), false, out).await,
            FleetCommand::Cancel { id, reason } => {
                let command = TaskCommand::Cancel {
                    id: id.clone(),
                    reason: reason.clone(),
                };
                task::dispatch(ledger, &by_hand(args, command), out).await
            }
            FleetCommand::Accept { id, reason } => {
                let command = TaskCommand::Accept {
                    id: id.clone(),
                    reason: reason.clone(),
                };
                task::dispatch(ledger, &by_hand(args, command), out).await
            }
            FleetCommand::Retry(retry) => {
                let command = TaskCommand::Retry(retry.clone());
                task::dispatch(ledger, &by_hand(args, command), out).await
            }
            // Handled above: they open the ledger themselves.
            _ => Ok(Exit::Success),
        }
    })
}

async fn pause(ledger: &Ledger, id: Option<&str>, paused: bool, out: &mut OutputGate) -> TaskEnd {
    if let Some(id) = id {
        let request = Request::Pause { paused };
        let asked = LedgerCall::new(task::task_id(id)?, PERSON, request);
        task::print(&ledger.call(&asked).await?, out);
        return Ok(Exit::Success);
    }
    ledger.set_paused(paused).await?;
    if out.json {
        out.object(json!({"paused": paused}));
    } else if paused {
        out.say("the fleet is paused: what runs goes on, nothing new starts");
        out.say("next: `runner fleet resume`");
    } else {
        out.say("the fleet goes on");
    }
    Ok(Exit::Success)
}

/// The same as `runner task` does it.
fn by_hand(args: &FleetArgs, command: TaskCommand) -> TaskArgs {
    TaskArgs {
        store: args.store.clone(),
        actor: PERSON.to_owned(),
        request_id: None,
        command,
    }
}
