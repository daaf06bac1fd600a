//! Whether a candidate that passed also passes with the tests of the run's start.

use std::path::Path;
use std::time::Instant;

use runner_core::config::{Config, OriginalTests};
use runner_core::meta::StepFacts;

use super::{Iteration, StepContext};
use crate::base_trial::evidence::BaseEvidence;
use crate::checkout::trial;
use crate::error::Result;
use crate::original_tests::{self, TestFiles};
use crate::run::beginning::RunBeginning;
use crate::step::containment::Containment;

/// What was found about the tests of a candidate.
#[derive(Debug, Default)]
pub(super) struct OriginalTestsFinding {
    /// Files that are not as they were when the run began.
    changed: Vec<String>,
    /// Why the candidate does not pass with those.
    pub(super) failed: Option<String>,
    /// What the guard printed about that.
    pub(super) log: Vec<u8>,
}

impl OriginalTestsFinding {
    /// Looks, and judges once more where the config wants that and a test has changed.
    pub(super) fn of(
        context: &mut StepContext<'_, '_>,
        it: &mut Iteration,
        (workspace, commit): (&Path, &str),
        config: &Config,
        containment: &Containment,
        (shortfall, deadline): (Option<String>, Instant),
    ) -> Result<Self> {
        let guard = &config.guard;
        let is_asked = match guard.original_tests {
            OriginalTests::Off => false,
            OriginalTests::Report => !guard.tests.is_empty(),
            OriginalTests::Require => true,
        };
        if !is_asked {
            return Ok(Self::default());
        }
        let run_id = it.started.run_id.clone();
        let begun = RunBeginning::of(context.git, &run_id, workspace)?;
        let Some(start) = context.places.base_of_tests().or(begun.start) else {
            return Ok(Self::default());
        };
        let project = context.places.user_project(context.git);
        let files = TestFiles::of(config)?.seen_at(project.root());
        let changes = files.changes(context.git, &start, commit)?;
        if !changes.told.is_empty() {
            it.notes.push(format!(
                "tests are not as they were when the run began: {}",
                trial::some_of(&changes.told)
            ));
        }
        let mut finding = OriginalTestsFinding {
            changed: changes.told,
            ..Self::default()
        };
        if guard.original_tests != OriginalTests::Require {
            return Ok(finding);
        }
        finding.failed = shortfall.filter(|_| !changes.has_released);
        if let Some(why) = &finding.failed {
            finding.log = format!("\nrunner: {why}\n").into_bytes();
        }
        if !changes.counts || finding.failed.is_some() {
            return Ok(finding);
        }
        let restored = files.restored(context.git, &start, commit)?;
        let places = context.places;
        let clean = places.clean_checkout(context.git, &run_id, &restored)?;
        let limit = deadline.saturating_duration_since(Instant::now());
        let contained = containment.is_on().then_some(containment);
        let command = &guard.command;
        let trial = trial::run(&clean, command, config, contained, limit, context.run)?;
        let base = begun
            .base
            .map(|base| BaseEvidence::at(&project, config, &base))
            .transpose()?;
        finding.failed = original_tests::failure(&trial, base.as_ref(), changes.has_released);
        finding.log = original_tests::log_with_title(&trial, finding.failed.as_deref());
        if finding.failed.is_some() {
            finding.log.extend_from_slice(
                b"runner: make it pass with the old tests, too; a person may release single test files \
                  ([guard] released_tests), or in a fleet let the issue say `Tests: may change`\n",
            );
        }
        Ok(finding)
    }

    /// Writes it down.
    pub(super) fn into_facts(self, facts: &mut StepFacts) {
        facts.test_files_changed = self.changed;
        facts.original_tests_failed = self.failed;
    }
}
