//! Whether the merge of a result also passes with the tests and settings of its base.

use runner_core::config::Config;

use super::FleetRepo;
use crate::base_trial::evidence::BaseEvidence;
use crate::checkout::trial::{self, TrialEnd};
use crate::error::Result;
use crate::inversion::{self, InvertedBase, TestsTaken};
use crate::original_tests;
use crate::run_context::RunContext;

/// What a merge comes to before the judge of its base.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InvertedVerdict {
    /// There is nothing to try: only product files differ, or the base has no judge.
    Same,
    /// It passes.
    Green,
    /// It does not.
    Red {
        /// What of the merge was left out.
        left_out: Vec<String>,
        /// Why it does not pass.
        why: String,
    },
    /// It could not be tried; a lowercase fragment says why.
    Unable(String),
}

impl FleetRepo {
    /// Runs the guard on the base with only the product files of a merge.
    pub fn check_inverted(
        &self,
        (base, merge): (&str, &str),
        tests_may_change: bool,
        config: &Config,
        context: &mut RunContext<'_>,
    ) -> Result<InvertedVerdict> {
        let tests = if tests_may_change {
            TestsTaken::All
        } else {
            TestsTaken::of(config)
        };
        let inverted = match inversion::invert(&self.git, config, base, merge, tests)? {
            InvertedBase::Same | InvertedBase::NoProduct => return Ok(InvertedVerdict::Same),
            InvertedBase::Differs(inverted) => inverted,
        };
        if !inversion::has_judge(&self.git, config, (base, merge))? {
            return Ok(InvertedVerdict::Same);
        }
        let command = &config.guard.command;
        let trial = trial::run_at_commit(&self.git, &inverted.commit, command, config, context)?;
        if let TrialEnd::NotStarted(why) = &trial.end
            && inverted.left_out.is_empty()
        {
            return Ok(InvertedVerdict::Unable(why.clone()));
        }
        let known = BaseEvidence::at(&self.git, config, base)?;
        let has_released = tests_may_change || !config.guard.released_tests.is_empty();
        let failure = original_tests::failure(&trial, Some(&known), has_released);
        let why = if inverted.replaced.is_empty() {
            failure
        } else {
            Some(inverted.packages_words())
        };
        Ok(
            why.map_or(InvertedVerdict::Green, |why| InvertedVerdict::Red {
                left_out: inverted.left_out,
                why,
            }),
        )
    }
}
