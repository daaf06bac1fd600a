//! Whether the guard can run, and is green, where a run begins: tried before anything is written.

use runner_core::paths::is_state_path;

use super::{Begin, StartUndo, check_outside};
use crate::base_trial::{BaseTrial, BaseVerdict, not_there_yet};
use crate::checkout::trial::some_of;
use crate::error::{Error, ErrorCode, Result};
use crate::run_context::{RunContext, RunProgress};

/// What the guard said where the run begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GuardAtBase {
    /// It is green.
    Pass,
    /// It is red.
    Fail,
    /// The file that defines it is not there yet.
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

impl Begin<'_, '_> {
    /// Tries setup and guard where the run begins, with `.runner/` as it lies there: a guard may
    /// be a script in it. Nothing is written before that but objects of git.
    pub(super) fn try_base(&mut self, base: &str) -> Result<()> {
        let Some(containment) = self.tried else {
            return Ok(());
        };
        let with_state = self.commit_state(base, "chore: a base to try\n")?;
        let unchanged = self.git.tree_of(&with_state)? == self.git.tree_of(base)?;
        let trial = BaseTrial {
            git: self.git,
            config: &self.state.config,
            containment,
            commit: if unchanged { base } else { &with_state },
            history: base,
            // A person begins with it.
            fill: crate::checkout::caches::CacheFill::All,
        };
        self.is_refused = true;
        self.guard_at_base = try_guard(&trial, self.context)?;
        let now = self.git.status()?;
        if (&now.head, &now.branch) != (&self.status.head, &self.status.branch) {
            return Err(Error::new(
                ErrorCode::Dirty,
                "cannot begin a run: another commit was checked out while the guard was tried",
            )
            .hint("run the same command again"));
        }
        check_outside(&now).or_else(|error| match self.status.head {
            Some(_) => Err(error),
            // Everything goes into the first commit.
            None => Ok(()),
        })?;
        self.undo = StartUndo::take(self.git)?;
        self.is_refused = false;
        Ok(())
    }
}

/// Tries a base. Where setup or guard cannot run there, no run begins.
fn try_guard(trial: &BaseTrial<'_>, context: &mut RunContext<'_>) -> Result<GuardAtBase> {
    let verdict = trial.run(context).map_err(|error| match error.code {
        ErrorCode::Interrupted => Error::new(
            ErrorCode::Interrupted,
            "interrupted while the guard was tried: no run has begun",
        )
        .hint(format!("begin with `runner start`; {SKIP}")),
        code => Error {
            code,
            message: format!("cannot try the guard on the base: {}", error.message),
            hint: error.hint.or_else(|| Some(SKIP.to_owned())),
        },
    })?;
    let (answer, note) = decide(verdict, &trial.config.guard.command)?;
    let changed = trial.evidence()?.changed().unwrap_or_default();
    for note in note.into_iter().chain(about_changed(&changed)) {
        context.observer.progress(&RunProgress::Note(&note));
    }
    Ok(answer)
}

/// What a person should know of a guard that changes what it judges.
fn about_changed(changed: &[String]) -> Option<String> {
    let outside = |name: &&String| !is_state_path(name.as_bytes());
    let names: Vec<String> = changed.iter().filter(outside).cloned().collect();
    (!names.is_empty()).then(|| {
        format!(
            "the guard changes files of the commit that it judges: {}; in these, where it does so already, it is \
             not held against a session",
            some_of(&names)
        )
    })
}

const SKIP: &str = "`runner start --no-guard-check` does not ask the guard";

/// What a verdict means for a run, and what a person should know of it.
fn decide(verdict: BaseVerdict, command: &[String]) -> Result<(GuardAtBase, Option<String>)> {
    match verdict {
        BaseVerdict::Green => Ok((GuardAtBase::Pass, None)),
        BaseVerdict::Red(why) => {
            let note = format!(
                "the guard is red at the start: {why} before any work, and no leaf passes until it is green; \
                 `runner doctor --run-guard` shows what it says"
            );
            Ok((GuardAtBase::Fail, Some(note)))
        }
        BaseVerdict::Undefined(file) => {
            Ok((GuardAtBase::Unknown, Some(not_there_yet(command, &file))))
        }
        BaseVerdict::Unable(problem) => {
            let message = format!(
                "cannot begin a run: the guard cannot run on the base: {}",
                problem.why
            );
            Err(Error::new(ErrorCode::Config, message).hint(format!("{}; {SKIP}", problem.hint)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base_trial::BaseProblem;

    #[test]
    fn what_a_verdict_means_for_a_run() {
        let command = ["just".to_owned(), "ci".to_owned()];
        let told = |verdict| match decide(verdict, &command) {
            Ok((answer, note)) => format!("{} {}", answer.as_str(), note.unwrap_or_default()),
            Err(error) => format!("{}; {}", error.message, error.hint.unwrap_or_default()),
        };
        assert_eq!(told(BaseVerdict::Green), "pass ");
        let red = BaseVerdict::Red("`just ci` gave exit 2".to_owned());
        assert_eq!(
            told(red),
            "fail the guard is red at the start: `just ci` gave exit 2 before any work, and no \
             leaf passes until it is green; `runner doctor --run-guard` shows what it says"
        );
        assert_eq!(
            told(BaseVerdict::Undefined("justfile".to_owned())),
            "unknown the guard is not there yet: `just ci` needs justfile, and no leaf passes \
             until a session has written it"
        );
        let problem = BaseProblem {
            why: "cannot start `just`".to_owned(),
            hint: "install it".to_owned(),
        };
        assert_eq!(
            told(BaseVerdict::Unable(problem)),
            "cannot begin a run: the guard cannot run on the base: cannot start `just`; install \
             it; `runner start --no-guard-check` does not ask the guard"
        );
    }
}
