//! One module a command (or a few that belong together).

pub(crate) mod doctor;
pub(crate) mod init;
pub(crate) mod ledger;
pub(crate) mod log;
pub(crate) mod look;
pub(crate) mod proof;
pub(crate) mod start;
pub(crate) mod status;
pub(crate) mod step;
pub(crate) mod task;
pub(crate) mod tree;

use std::cell::RefCell;

use clap::CommandFactory as _;
use runner::{Code, Error, Host, Result, SystemClock};
use runner_exec::{Cancel, Supervisor};

use crate::args::Args;
use crate::out::Out;
use crate::progress::Screen;

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

    /// The exit for an error.
    pub(crate) fn of_error(error: &Error) -> Self {
        match error.code {
            Code::Interrupted => Exit::Interrupted,
            _ => Exit::Error,
        }
    }
}

/// Runs something that needs the world around it: signals, clock, children.
pub(crate) fn with_host<'o, T>(
    out: &'o RefCell<&'o mut Out>,
    events: bool,
    act: impl FnOnce(&mut Host<'_>) -> Result<T>,
) -> Result<T> {
    let cancel = Cancel::on_signals()?;
    let mut screen = Screen::new(out, events);
    let mut host = Host {
        clock: &SystemClock,
        cancel: &cancel,
        supervisor: &Supervisor::this_binary(),
        observer: &mut screen,
    };
    act(&mut host)
}

/// `runner schema NAME`.
pub(crate) fn schema(name: &str, out: &mut Out) -> Result<Exit> {
    let Some(text) = runner_core::schema::by_name(name) else {
        return Err(
            Error::new(Code::NotFound, format!("there is no schema {name:?}")).hint(format!(
                "one of {}",
                runner_core::schema::names().join(", ")
            )),
        );
    };
    out.data(text.trim_end());
    Ok(Exit::Success)
}

/// `runner completions SHELL`.
pub(crate) fn completions(shell: clap_complete::Shell, out: &mut Out) -> Exit {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Args::command(), "runner", &mut script);
    out.data(String::from_utf8_lossy(&script).trim_end());
    Exit::Success
}
