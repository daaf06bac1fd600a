//! The base is tried before any task begins: a guard that cannot run there costs no session, and
//! a red base is fixed before anything else.

use runner::{BaseVerdict, Error, ErrorCode};
use runner_fleet::roles::red_base::RedBaseRule;
use runner_fleet::up::Fleet;
use runner_fleet::workspaces::StopHandle;
use runner_lifecycle::Task;

use super::context::{CommandContext, in_words};
use super::up::{FleetUpError, SignalCounter, said};
use crate::out::OutputGate;
use crate::style;

/// How a fleet may begin.
pub(super) enum BaseStart {
    /// The base is green.
    Green,
    /// It is red; why, and the task that fixes it where nothing else begins before.
    Red { why: String, fix: Option<Box<Task>> },
    /// A signal came before that was known.
    Interrupted,
}

/// Tries setup and guard on the base, and notes a red one in the ledger. Where they cannot run,
/// that is an error, and nothing begins.
pub(super) async fn try_first(
    context: &CommandContext,
    fleet: &Fleet,
    signals: &mut SignalCounter,
    out: &mut OutputGate,
) -> Result<BaseStart, FleetUpError> {
    let base = context.base();
    if !out.json {
        out.say(&format!(
            "the guard is tried on {base} first, in a clean checkout"
        ));
    }
    let (stop_handle, stop) = StopHandle::new();
    let mut trial = context.workspaces().try_base(stop);
    let tried = tokio::select! {
        biased;
        tried = &mut trial => tried,
        () = signals.reached(1) => {
            stop_handle.stop();
            drop(trial.await);
            return Ok(BaseStart::Interrupted);
        }
    };
    let tried = tried.map_err(|error| said(in_words(&error)))?;
    let why = match tried.verdict {
        BaseVerdict::Green => {
            fleet.note_base(&tried.commit, false).await?;
            return Ok(BaseStart::Green);
        }
        BaseVerdict::Red(why) => why,
        BaseVerdict::Undefined(file) => format!("{file}, which defines it, is not there yet"),
        BaseVerdict::Unable(problem) => {
            let message = format!(
                "cannot begin: the guard cannot run on {base}: {}",
                problem.why
            );
            return Err(said(
                Error::new(ErrorCode::Config, message).hint(problem.hint),
            ));
        }
    };
    let fix = fleet.note_base(&tried.commit, true).await?;
    Ok(BaseStart::Red {
        why,
        fix: fix.map(Box::new),
    })
}

impl BaseStart {
    /// Says that the base is red and what that means.
    pub(super) fn tell(&self, context: &CommandContext, out: &mut OutputGate) {
        let BaseStart::Red { why, fix } = self else {
            return;
        };
        if out.json {
            return;
        }
        let base = context.base();
        let then = match fix {
            Some(fix) if fix.state.is_terminal() => format!(
                "nothing begins before it is green, and {id} has ended: fix it, or \
                 `runner fleet retry {id}`, or say `--on-red-base work`",
                id = fix.id
            ),
            Some(fix) => format!(
                "nothing but {} begins before it is green (`--on-red-base work` does not wait)",
                fix.id
            ),
            None => "work begins all the same".to_owned(),
        };
        super::up::warn(
            &format!(
                "the guard is red on {base}: {}; {then}",
                style::one_line(why, 400)
            ),
            out,
        );
    }
}

/// What `--on-red-base` says.
pub(super) fn rule(word: &str) -> RedBaseRule {
    match word {
        "work" => RedBaseRule::Work,
        _ => RedBaseRule::Fix,
    }
}
