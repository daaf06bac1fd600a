//! The verdicts about a result before it lands.

use std::path::PathBuf;

use runner_core::config::OriginalTests;
use runner_core::digest::sha256_hex;
use runner_core::text::{OUTPUT_TAIL_PERCENT, cut_middle};

use super::inversion::InversionOutcome;
use super::{GreenGuard, Lander, SHOWN_BYTES, note, pending};
use crate::base_trial::evidence::BaseEvidence;
use crate::checkout::missing_variable;
use crate::checkout::trial::{self, GuardTrial, TrialEnd};
use crate::error::{Error, ErrorCode, Result};
use crate::files;
use crate::original_tests::{self, TestFiles};
use crate::run_context::RunContext;
use crate::state::branch_record::BranchRecord;

/// The command by which a person accepts tests that a run changed, and what is to be done there.
pub(crate) const RELEASE_TESTS: (&str, &str) = (
    "runner edit config",
    "a person releases tests in [guard] released_tests",
);

impl Lander<'_> {
    /// Runs the guard at a commit, and keeps what it prints in a file of the run.
    pub(super) fn try_at(
        &self,
        commit: &str,
        log: &str,
        context: &mut RunContext<'_>,
    ) -> Result<(GuardTrial, PathBuf)> {
        let config = &self.work.config;
        let command = &config.guard.command;
        let ran = trial::run_at_commit(self.git, commit, command, config, context);
        let trial = ran.map_err(|error| match error.code {
            ErrorCode::Interrupted => Error::new(
                ErrorCode::Interrupted,
                "interrupted while the guard ran; nothing was changed",
            ),
            _ => error,
        })?;
        let folder = pending::make_run_folder(self.project, &self.run.run_id)?;
        let path = folder.join(log);
        files::remove_if_there(&path)?;
        files::write_whole(&path, &trial.log)?;
        Ok((trial, path))
    }

    /// Runs the guard on the result.
    pub(super) fn guard(&self, commit: &str, context: &mut RunContext<'_>) -> Result<GreenGuard> {
        let config = &self.work.config;
        let command = &config.guard.command;
        let (trial, path) = self.try_at(commit, "land-guard.log", context)?;
        let what = match &trial.end {
            TrialEnd::Exited(0) => {
                self.check_changed(trial.changed, context)?;
                self.check_evidence(&trial.tests, context)?;
                return Ok(GreenGuard {
                    command: command.clone(),
                    log: path,
                    log_sha256: sha256_hex(&trial.log),
                });
            }
            TrialEnd::Exited(code) => format!("gave exit {code}"),
            TrialEnd::TimedOut => {
                format!("did not end within {} s", config.iteration_timeout_secs)
            }
            TrialEnd::NotStarted(message) => message.clone(),
        };
        let mut message = format!(
            "the guard does not pass on the result: `{}` {what}; nothing was changed",
            command.join(" ")
        );
        let text = String::from_utf8_lossy(&trial.log);
        if !text.trim().is_empty() {
            message.push('\n');
            message
                .push_str(cut_middle(text.trim_end(), SHOWN_BYTES, OUTPUT_TAIL_PERCENT).as_ref());
        }
        let lacking = trial::lacking_under(self.git, config);
        let fresh = if lacking.is_empty() {
            String::new()
        } else {
            let names = trial::some_of(&lacking);
            format!(" (it ran in a fresh checkout, without {names})")
        };
        if let Some(remedy) = missing_variable::remedy_for(&trial.log, config) {
            return Err(Error::new(ErrorCode::GuardFailed, message).hint(remedy));
        }
        Err(Error::new(ErrorCode::GuardFailed, message).hint(format!(
            "all of its output is in {}{fresh}; {}",
            path.display(),
            self.how_to_fix()?
        )))
    }

    /// The same with the tests of the run's start, where sessions changed any: told, and refused
    /// where the config wants both.
    pub(super) fn judge_by_original_tests(
        &self,
        commit: &str,
        inverted: &InversionOutcome,
        context: &mut RunContext<'_>,
    ) -> Result<()> {
        let config = &self.work.config;
        let mode = config.guard.original_tests;
        let run_id = &self.run.run_id;
        if mode == OriginalTests::Off || config.guard.tests.is_empty() {
            return Ok(());
        }
        let record = BranchRecord::read(self.git, run_id)?;
        let Some(start) = record.start else {
            return Ok(());
        };
        let files = TestFiles::of(config)?;
        // What others changed on the branch meanwhile is none of the run's.
        let changes = files.changes(self.git, &start, &self.work.commit)?;
        if !changes.told.is_empty() {
            let names = trial::some_of(&changes.told);
            note(
                context,
                &format!("tests are not as they were when the run began: {names}"),
            );
        }
        // What passes with the tests and the settings of the branch has passed the harder test.
        if !changes.counts || matches!(inverted, InversionOutcome::Green) {
            return Ok(());
        }
        let restored = files.restored(self.git, &start, commit)?;
        let tree = self.git.tree_of(&restored)?;
        let known = inverted.verdict().filter(|verdict| verdict.tree == tree);
        let (failure, path) = if let Some(verdict) = known {
            (verdict.failure.clone(), verdict.log.clone())
        } else {
            let (trial, path) = self.try_at(&restored, "land-original-tests.log", context)?;
            let base = record
                .base
                .map(|(_, base)| BaseEvidence::at(self.git, config, &base))
                .transpose()?;
            let failure = original_tests::failure(&trial, base.as_ref(), changes.has_released);
            (failure, path)
        };
        let Some(why) = failure else {
            note(
                context,
                "the guard also passes with the tests as they were when the run began",
            );
            return Ok(());
        };
        let place = path.display();
        if mode == OriginalTests::Report {
            let words = format!(
                "with the tests as they were when the run began it would not pass: {why}; all of its output is in {place}"
            );
            note(context, &words);
            return Ok(());
        }
        let (command, how) = RELEASE_TESTS;
        let with_theirs = format!("with the tests as they were when the run began, {why}; {how}");
        self.keep_refusal(with_theirs, &changes.told, command)?;
        Err(Error::new(
            ErrorCode::GuardFailed,
            format!(
                "the result does not pass with the tests as they were when the run began: {why}; nothing was \
                 changed"
            ),
        )
        .hint(format!(
            "all of its output is in {place}; where a test was rightly changed, name it in [guard] released_tests \
             (`runner edit config`), then `{}`",
            self.again
        )))
    }
}
