//! Whether the guard is green before any work: tried once, told, not recorded.

use std::time::Duration;

use runner_core::config::Config;

use crate::checkout::CleanCheckout;
use crate::checkout::trial;
use crate::checkout::trial::TrialEnd;
use crate::error::{Error, ErrorCode, Result};
use crate::git::Git;
use crate::run_context::{RunContext, RunProgress};
use crate::state::runs::full_name;
use crate::step::containment::Containment;

/// No start shall be held up for longer than this.
const LIMIT_SECS: u64 = 60;

/// What the guard said where the run begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GuardAtBase {
    /// It is green.
    Pass,
    /// It is red.
    Fail,
    /// It could not be run, or not to its end.
    Unknown,
    /// It was not asked.
    Skipped,
}

impl GuardAtBase {
    /// The word in `--json`.
    pub fn as_str(self) -> &'static str {
        match self {
            GuardAtBase::Pass => "pass",
            GuardAtBase::Fail => "fail",
            GuardAtBase::Unknown => "unknown",
            GuardAtBase::Skipped => "skipped",
        }
    }
}

/// Runs the guard once at the run's first commit. The run has begun, whatever
/// comes out: only an interrupt is an error.
pub(crate) fn try_guard(
    git: &Git,
    config: &Config,
    containment: &Containment,
    branch: &str,
    context: &mut RunContext<'_>,
) -> Result<GuardAtBase> {
    let limit_secs = config.iteration_timeout_secs.min(LIMIT_SECS);
    let tried = once(git, config, containment, branch, limit_secs, context);
    let end = match tried {
        Err(error) if error.code == ErrorCode::Interrupted => {
            return Err(Error::new(
                ErrorCode::Interrupted,
                format!("interrupted while the guard was tried; the run has begun on {branch}"),
            )
            .hint("`runner step` or `runner loop` goes on with it"));
        }
        other => other.map_err(|error| error.message),
    };
    let lacking = if end == Ok(TrialEnd::Exited(0)) {
        Vec::new()
    } else {
        trial::lacking(git)
    };
    let (verdict, note) = judge(&end, &config.guard.command, limit_secs, &lacking);
    if let Some(note) = note {
        context.observer.progress(&RunProgress::Note(&note));
    }
    Ok(verdict)
}

fn once(
    git: &Git,
    config: &Config,
    containment: &Containment,
    branch: &str,
    limit_secs: u64,
    context: &mut RunContext<'_>,
) -> Result<TrialEnd> {
    let commit = git.commit_of(&full_name(branch))?.unwrap_or_default();
    let checkout = CleanCheckout::of(git, config, &commit)?;
    let limit = Duration::from_secs(limit_secs);
    let command = &config.guard.command;
    let trial = trial::run(
        &checkout,
        command,
        config,
        Some(containment),
        limit,
        context,
    )?;
    Ok(trial.end)
}

/// What it came to, and what a person should know of it.
fn judge(
    end: &Result<TrialEnd, String>,
    command: &[String],
    limit_secs: u64,
    lacking: &[String],
) -> (GuardAtBase, Option<String>) {
    let shown = command.join(" ");
    let unknown = |why: String| {
        let note = format!("whether the guard is green at the start is not known: {why}");
        (GuardAtBase::Unknown, Some(note))
    };
    match end {
        Ok(TrialEnd::Exited(0)) => (GuardAtBase::Pass, None),
        Ok(TrialEnd::Exited(code)) => {
            let fresh = if lacking.is_empty() {
                String::new()
            } else {
                let names = trial::some_of(lacking);
                format!(" (it was run in a fresh checkout, without {names})")
            };
            let note = format!(
                "the guard is red at the start: `{shown}` gave exit {code} before any work, and no leaf passes until it is green; \
                 `runner doctor --run-guard` shows what it says{fresh}"
            );
            (GuardAtBase::Fail, Some(note))
        }
        Ok(TrialEnd::TimedOut) => unknown(format!("`{shown}` did not end within {limit_secs} s")),
        Ok(TrialEnd::NotStarted(message)) => unknown(format!("it {message}")),
        Err(message) => unknown(message.clone()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_told() {
        let command = ["just".to_owned(), "ci".to_owned()];
        let ignored = ["node_modules/".to_owned()];
        for (end, lacking, expected, words) in [
            (Ok(TrialEnd::Exited(0)), &ignored[..], "pass", ""),
            (
                Ok(TrialEnd::Exited(2)),
                &[],
                "fail",
                "`just ci` gave exit 2 before any work",
            ),
            (
                Ok(TrialEnd::Exited(1)),
                &ignored,
                "fail",
                "(it was run in a fresh checkout, without node_modules/)",
            ),
            (
                Ok(TrialEnd::TimedOut),
                &ignored,
                "unknown",
                "not known: `just ci` did not end within 7 s",
            ),
            (
                Ok(TrialEnd::NotStarted("cannot start `just`: gone".to_owned())),
                &[],
                "unknown",
                "not known: it cannot start `just`: gone",
            ),
            (
                Err("git failed".to_owned()),
                &[],
                "unknown",
                "not known: git failed",
            ),
        ] {
            let (verdict, note) = judge(&end, &command, 7, lacking);
            assert_eq!(verdict.as_str(), expected, "{end:?}");
            assert_eq!(note.is_none(), words.is_empty(), "{end:?}");
            let note = note.unwrap_or_default();
            assert!(note.contains(words), "{note}");
        }
    }
}
