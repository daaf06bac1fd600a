//! Whether a result also passes with the tests and settings of the branch that it lands on.

use std::fmt::Write as _;
use std::path::PathBuf;

use runner_core::text::cut_front;

use super::{ChangedJudge, LandOptions, Lander, SHOWN_BYTES, note, work_tree};
use crate::base_trial::evidence::BaseEvidence;
use crate::error::{Error, ErrorCode, Result};
use crate::inversion::{self, Inversion, InvertedResult, TestsTaken};
use crate::original_tests;
use crate::run_context::RunContext;
use crate::state::branch_record::BranchRecord;

/// A verdict with the tests of the run's start.
pub(super) struct OldTestsVerdict {
    /// What was judged.
    pub(super) tree: String,
    pub(super) failure: Option<String>,
    /// Where its output is kept.
    pub(super) log: PathBuf,
}

/// A judge that a run changed, and a person who took the result all the same.
pub(super) struct AcceptedJudge {
    /// Why it does not pass before the judge of the branch.
    pub(super) why: String,
    /// What the run changed about it.
    pub(super) left_out: Vec<String>,
}

impl Lander<'_> {
    /// Judges the product alone, with everything else as the branch has it. Red there: not without a
    /// person.
    pub(super) fn judge_by_inversion(
        &self,
        result: &str,
        by_old_tests: Option<OldTestsVerdict>,
        options: &LandOptions,
        context: &mut RunContext<'_>,
    ) -> Result<Option<AcceptedJudge>> {
        let config = &self.work.config;
        let branch = &self.target.branch;
        let tests = TestsTaken::of(config);
        let inverted = match inversion::invert(self.git, config, &self.target.tip, result, tests)? {
            Inversion::Same => return Ok(None),
            Inversion::NoProduct => {
                note(
                    context,
                    "nobody can say which files are the product ([guard] product is empty): only the result as a \
                     whole was judged",
                );
                return Ok(None);
            }
            Inversion::Differs(inverted) => inverted,
        };
        if !inversion::has_judge(self.git, config, &self.target.tip)? {
            note(
                context,
                &format!(
                    "{branch} has no tests and no settings of its own yet: the result was judged by those of the \
                     run alone; read them before you trust what passed"
                ),
            );
            return Ok(None);
        }
        let verdict = match by_old_tests {
            Some(verdict) if verdict.tree == self.git.tree_of(&inverted.commit)? => verdict,
            _ => self.try_inverted(&inverted, context)?,
        };
        let why = match (&verdict.failure, inverted.replaced.is_empty()) {
            (None, true) => {
                note(
                    context,
                    &format!("the guard also passes with the tests and settings of {branch}"),
                );
                return Ok(None);
            }
            (Some(why), true) => why.clone(),
            (_, false) => inverted.packages_words(),
        };
        if options.changed_judge == ChangedJudge::Accept {
            note(
                context,
                &format!(
                    "accepted: with the tests and settings of {branch} it does not pass: {why}"
                ),
            );
            return Ok(Some(AcceptedJudge {
                why,
                left_out: inverted.left_out,
            }));
        }
        Err(self.changed_judge(&why, &inverted, &verdict))
    }

    fn try_inverted(
        &self,
        inverted: &InvertedResult,
        context: &mut RunContext<'_>,
    ) -> Result<OldTestsVerdict> {
        let (trial, log) = self.try_at(&inverted.commit, "land-inversion.log", context)?;
        let base = BranchRecord::read(self.git, &self.run.run_id)?.base;
        let base = base
            .map(|(_, base)| BaseEvidence::at(self.git, &self.work.config, &base))
            .transpose()?;
        let has_released = !self.work.config.guard.released_tests.is_empty();
        Ok(OldTestsVerdict {
            tree: self.git.tree_of(&inverted.commit)?,
            failure: original_tests::failure(&trial, base.as_ref(), has_released),
            log,
        })
    }

    fn changed_judge(
        &self,
        why: &str,
        inverted: &InvertedResult,
        verdict: &OldTestsVerdict,
    ) -> Error {
        let branch = &self.target.branch;
        let mut message = format!(
            "the result passes only with tests or settings that the run changed: with those of {branch}, {why}; \
             nothing was changed\nwhat the run changed about them:\n{}",
            work_tree::list(&inverted.left_out)
        );
        let log = std::fs::read(&verdict.log).unwrap_or_default();
        let text = String::from_utf8_lossy(&log);
        if verdict.failure.is_some() && !text.trim().is_empty() {
            let shown = cut_front(text.trim_end(), SHOWN_BYTES);
            // Writing to a String cannot fail.
            let _ = write!(message, "\n{shown}");
        }
        let run_branch = self.run.branch();
        Error::new(ErrorCode::GuardFailed, message).hint(format!(
            "read them (`git diff {branch}...{run_branch} -- FILE`); where they are right, `{} \
             --accept-changed-judge` lands the result and records that; all of its output is in {}",
            self.again,
            verdict.log.display()
        ))
    }
}
