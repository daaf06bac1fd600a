//! Whether a green guard reported the tests that ran where the run began.

use std::path::Path;

use runner_core::config::Config;
use runner_core::evidence::{EvidenceGap, TestEvidence, silence};
use runner_core::meta::StepFacts;
use runner_exec::{Flow, Stream};

use super::base_changes::measure;
use super::captured_child::WholeOutput;
use super::child::OutputListener;
use super::{Iteration, StepContext};
use crate::base_trial::evidence::BaseEvidence;
use crate::checkout::trial;
use crate::error::Result;
use crate::original_tests;
use crate::run::beginning::RunBeginning;
use crate::run_context::ProgressObserver;
use crate::step::containment::Containment;

/// What a report of tests lacks.
#[derive(Debug, Default)]
pub(super) struct EvidenceFindings {
    /// Why the exit code does not count.
    pub(super) gaps: Vec<String>,
    missing: Vec<String>,
    skipped: Vec<String>,
    /// What of the tests of the base did not pass now, in words.
    pub(super) shortfall: Option<String>,
}

impl EvidenceFindings {
    /// An exit code that does not count, whatever was reported.
    pub(super) fn gap(why: String) -> Self {
        EvidenceFindings {
            gaps: vec![why],
            ..EvidenceFindings::default()
        }
    }

    /// Compares the report of a verdict with that of the base.
    pub(super) fn of(
        context: &mut StepContext<'_, '_>,
        it: &mut Iteration,
        workspace: &Path,
        (config, containment): (&Config, &Containment),
        tests: &TestEvidence,
    ) -> Result<Self> {
        let run_id = &it.started.run_id;
        let begun = RunBeginning::of(context.git, run_id, workspace)?;
        let silent = silence(&config.guard.command, tests);
        let (Some(base), Some(start)) = (begun.base, begun.start) else {
            return Ok(EvidenceFindings {
                gaps: silent.iter().map(EvidenceGap::words).collect(),
                ..EvidenceFindings::default()
            });
        };
        let project = context.places.user_project(context.git);
        let known = BaseEvidence::at(&project, config, &base)?;
        if known.is_outdated() {
            // A person has changed the guard since.
            measure(context, (run_id, &start), &known, config, containment)?;
        }
        let (mut gaps, difference) = known.compare(tests);
        if gaps.is_empty() {
            gaps.extend(silent);
        }
        for (names, what) in [
            (&difference.missing, "not reported any more"),
            (&difference.skipped, "skipped now"),
        ] {
            if !names.is_empty() {
                it.notes.push(format!(
                    "{} that ran where the run began {} {what}: {}",
                    if names.len() == 1 { "a test" } else { "tests" },
                    if names.len() == 1 { "is" } else { "are" },
                    trial::some_of(names)
                ));
            }
        }
        if difference.fewer > 0 {
            it.notes.push(format!(
                "{} fewer {} ran than where the run began",
                difference.fewer,
                if difference.fewer == 1 {
                    "test"
                } else {
                    "tests"
                }
            ));
        }
        Ok(EvidenceFindings {
            shortfall: original_tests::shortfall(&difference),
            gaps: gaps.iter().map(EvidenceGap::words).collect(),
            missing: difference.missing,
            skipped: difference.skipped,
        })
    }

    /// For the end of the guard's log, where the next session looks.
    pub(super) fn words(&self) -> String {
        let lines = self.gaps.iter().map(|gap| format!("runner: {gap}\n"));
        format!("\n{}", lines.collect::<String>())
    }

    /// Writes it down.
    pub(super) fn into_facts(self, facts: &mut StepFacts) {
        facts.evidence_gaps = self.gaps;
        facts.tests_missing = self.missing;
        facts.tests_skipped = self.skipped;
    }
}

impl OutputListener for WholeOutput {
    fn output(&mut self, _: Stream, bytes: &[u8], _: &mut dyn ProgressObserver) -> Flow {
        self.push(bytes);
        Flow::Go
    }
}
