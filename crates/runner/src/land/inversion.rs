//! Whether a result also passes with the tests and settings of the branch that it lands on.

use std::fmt::Write as _;
use std::path::PathBuf;

use runner_core::text::{OUTPUT_TAIL_PERCENT, cut_middle};

use super::{ChangedJudge, LandOptions, Lander, RefusedLanding, SHOWN_BYTES, note, work_tree};
use crate::base_trial::evidence::BaseEvidence;
use crate::error::{Error, ErrorCode, Result};
use crate::inversion::{self, InvertedBase, InvertedResult, TestsTaken};
use crate::original_tests;
use crate::run_context::RunContext;
use crate::state::branch_record::BranchRecord;

/// What the guard said of a tree that is not the result itself.
pub(super) struct OtherVerdict {
    /// What was judged.
    pub(super) tree: String,
    pub(super) failure: Option<String>,
    /// Where its output is kept.
    pub(super) log: PathBuf,
}

/// What came of the product alone, with everything else as the branch has it.
pub(super) enum InversionOutcome {
    /// There was nothing to try.
    NotTried,
    /// It passes.
    Green,
    /// It does not.
    Red(ChangedJudgeFinding),
}

/// A result that passes only with what the run changed about its judge.
pub(super) struct ChangedJudgeFinding {
    why: String,
    inverted: InvertedResult,
    pub(super) verdict: OtherVerdict,
}

/// A judge that a run changed, and a person who took the result all the same.
pub(super) struct AcceptedJudge {
    /// Why it does not pass before the judge of the branch.
    pub(super) why: String,
    /// What the run changed about it.
    pub(super) left_out: Vec<String>,
}

impl InversionOutcome {
    /// What the guard said, where it was asked and was red.
    pub(super) fn verdict(&self) -> Option<&OtherVerdict> {
        match self {
            InversionOutcome::Red(finding) => Some(&finding.verdict),
            InversionOutcome::NotTried | InversionOutcome::Green => None,
        }
    }
}

impl Lander<'_> {
    /// Judges the product alone, with everything else as the branch has it.
    pub(super) fn judge_by_inversion(
        &self,
        result: &str,
        context: &mut RunContext<'_>,
    ) -> Result<InversionOutcome> {
        let config = &self.work.config;
        let branch = &self.target.branch;
        let tests = TestsTaken::of(config);
        let inverted = match inversion::invert(self.git, config, &self.target.tip, result, tests)? {
            InvertedBase::Same => return Ok(InversionOutcome::NotTried),
            InvertedBase::NoProduct => {
                note(
                    context,
                    "no file counts as product ([guard] product is empty): only the result as a whole was judged",
                );
                return Ok(InversionOutcome::NotTried);
            }
            InvertedBase::Differs(inverted) => inverted,
        };
        if !inversion::has_judge(self.git, config, (&self.target.tip, result))? {
            note(
                context,
                &format!(
                    "{branch} has no tests and no settings of its own yet: the result was judged by those of the \
                     run alone; read them before you trust what passed"
                ),
            );
            return Ok(InversionOutcome::NotTried);
        }
        let verdict = self.try_inverted(&inverted, context)?;
        let why = match (&verdict.failure, inverted.replaced.is_empty()) {
            (None, true) => {
                note(
                    context,
                    &format!("the guard also passes with the tests and settings of {branch}"),
                );
                return Ok(InversionOutcome::Green);
            }
            (Some(why), true) => why.clone(),
            (_, false) => inverted.packages_words(),
        };
        Ok(InversionOutcome::Red(ChangedJudgeFinding {
            why,
            inverted,
            verdict,
        }))
    }

    /// What a person says to a changed judge; without a word of theirs nothing lands.
    pub(super) fn accepted(
        &self,
        outcome: InversionOutcome,
        options: &LandOptions,
        context: &mut RunContext<'_>,
    ) -> Result<Option<AcceptedJudge>> {
        let InversionOutcome::Red(finding) = outcome else {
            return Ok(None);
        };
        let (branch, why) = (&self.target.branch, finding.why.clone());
        if options.changed_judge == ChangedJudge::Refuse {
            let with_theirs = format!("with the tests and settings of {branch}, {why}");
            let accept = format!("{} --accept-changed-judge", self.again);
            self.keep_refusal(with_theirs, &finding.inverted.left_out, &accept)?;
            return Err(self.changed_judge(&why, &finding.inverted, &finding.verdict)?);
        }
        note(
            context,
            &format!("accepted: with the tests and settings of {branch} it does not pass: {why}"),
        );
        Ok(Some(AcceptedJudge {
            why,
            left_out: finding.inverted.left_out,
        }))
    }

    /// Keeps what was refused for the report of the run.
    pub(super) fn keep_refusal(&self, why: String, changed: &[String], accept: &str) -> Result<()> {
        let refused = RefusedLanding {
            tip: self.work.commit.clone(),
            branch: self.target.branch.clone(),
            branch_tip: self.target.tip.clone(),
            why,
            changed: changed.to_vec(),
            accept: accept.to_owned(),
        };
        refused.save(self.project, &self.run.run_id)
    }

    fn try_inverted(
        &self,
        inverted: &InvertedResult,
        context: &mut RunContext<'_>,
    ) -> Result<OtherVerdict> {
        let (trial, log) = self.try_at(&inverted.commit, "land-inversion.log", context)?;
        let base = BranchRecord::read(self.git, &self.run.run_id)?.base;
        let base = base
            .map(|(_, base)| BaseEvidence::at(self.git, &self.work.config, &base))
            .transpose()?;
        let has_released = !self.work.config.guard.released_tests.is_empty();
        Ok(OtherVerdict {
            tree: self.git.tree_of(&inverted.commit)?,
            failure: original_tests::failure(&trial, base.as_ref(), has_released),
            log,
        })
    }

    fn changed_judge(
        &self,
        why: &str,
        inverted: &InvertedResult,
        verdict: &OtherVerdict,
    ) -> Result<Error> {
        let branch = &self.target.branch;
        let mut message = format!(
            "the result passes only with tests or settings that the run changed: with those of {branch}, {why}; \
             nothing was changed\nwhat the run changed about them:\n{}",
            work_tree::list(&inverted.left_out)
        );
        let log = std::fs::read(&verdict.log).unwrap_or_default();
        let text = String::from_utf8_lossy(&log);
        if verdict.failure.is_some() && !text.trim().is_empty() {
            let shown = cut_middle(text.trim_end(), SHOWN_BYTES, OUTPUT_TAIL_PERCENT);
            // Writing to a String cannot fail.
            let _ = write!(message, "\n{shown}");
        }
        let run_branch = self.run.branch();
        Ok(Error::new(ErrorCode::GuardFailed, message).hint(format!(
            "read them (`git diff {branch}...{run_branch} -- FILE`). If they are right, `{} \
             --accept-changed-judge` lands the result and records that. If they are wrong: {}. All of the guard's \
             output is in {}",
            self.again,
            self.how_to_fix()?,
            verdict.log.display()
        )))
    }
}
