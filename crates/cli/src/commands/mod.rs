//! One module a command (or a few that belong together).

pub(crate) mod by_hand;
pub(crate) mod catch_up;
pub(crate) mod clean;
pub(crate) mod detach;
pub(crate) mod doctor;
pub(crate) mod eval;
pub(crate) mod fleet;
pub(crate) mod follow;
pub(crate) mod init;
pub(crate) mod land;
pub(crate) mod ledger;
pub(crate) mod log;
pub(crate) mod look;
pub(crate) mod proof;
pub(crate) mod report;
pub(crate) mod rescue;
pub(crate) mod runs;
pub(crate) mod start;
pub(crate) mod status;
pub(crate) mod step;
pub(crate) mod stop;
pub(crate) mod task;
pub(crate) mod tree;
pub(crate) mod ui;
pub(crate) mod watch;

use std::cell::RefCell;

use clap::CommandFactory as _;
use runner::{Error, ErrorCode, Result, RunContext, SystemWallClock};
use runner_exec::{Cancel, HangUp, Supervisor};
use serde_json::{Value, json};

use crate::args::Args;
use crate::out::OutputGate;
use crate::progress::ProgressScreen;

/// How a command ends; the numbers are listed in `--help`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    Success,
    Error,
    NothingToDo,
    Stuck,
    Interrupted,
}

impl Exit {
    /// The process's exit code.
    pub(crate) fn code(self) -> u8 {
        match self {
            Exit::Success => 0,
            Exit::Error => 1,
            Exit::NothingToDo => 2,
            Exit::Stuck => 3,
            Exit::Interrupted => 130,
        }
    }

    /// The same from a code; one that is none of ours is an error.
    pub(crate) fn of_code(code: i32) -> Self {
        [
            Exit::Success,
            Exit::NothingToDo,
            Exit::Stuck,
            Exit::Interrupted,
        ]
        .into_iter()
        .find(|exit| i32::from(exit.code()) == code)
        .unwrap_or(Exit::Error)
    }

    /// The exit for an error.
    pub(crate) fn of_error(error: &Error) -> Self {
        match error.code {
            ErrorCode::Interrupted => Exit::Interrupted,
            _ => Exit::Error,
        }
    }
}

/// Runs something that needs the world around it: signals, clock, children.
pub(crate) fn with_context<'o, T>(
    out: &'o RefCell<&'o mut OutputGate>,
    events: bool,
    act: impl FnOnce(&mut RunContext<'_>) -> Result<T>,
) -> Result<T> {
    with_screen(ProgressScreen::new(out, events), HangUp::Ends, act)
}

/// The same with a screen of the caller's.
pub(crate) fn with_screen<T>(
    mut screen: ProgressScreen<'_>,
    hang_up: HangUp,
    act: impl FnOnce(&mut RunContext<'_>) -> Result<T>,
) -> Result<T> {
    let cancel = Cancel::on_signals(hang_up)?;
    let mut context = RunContext {
        clock: &SystemWallClock,
        cancel: &cancel,
        supervisor: &Supervisor::this_binary(),
        observer: &mut screen,
    };
    act(&mut context)
}

/// `runner schema NAME`.
pub(crate) fn schema(name: &str, out: &mut OutputGate) -> Result<Exit> {
    let all = [runner_core::schema::ALL, runner_lifecycle::packet::SCHEMAS].concat();
    let Some((_, text)) = all.iter().find(|(known, _)| *known == name) else {
        let names: Vec<&str> = all.iter().map(|(known, _)| *known).collect();
        return Err(
            Error::new(ErrorCode::NotFound, format!("there is no schema {name:?}"))
                .hint(format!("one of {}", names.join(", "))),
        );
    };
    if out.json {
        let schema: Value = serde_json::from_str(text).map_err(std::io::Error::from)?;
        out.object(json!({"name": name, "schema": schema}));
    } else {
        out.data(text.trim_end());
    }
    Ok(Exit::Success)
}

/// `runner completions SHELL`.
pub(crate) fn completions(shell: clap_complete::Shell, out: &mut OutputGate) -> Exit {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Args::command(), "runner", &mut script);
    let script = String::from_utf8_lossy(&script);
    if out.json {
        out.object(json!({"shell": shell.to_string(), "script": script}));
    } else {
        out.data(script.trim_end());
    }
    Exit::Success
}
