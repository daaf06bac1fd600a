//! Files that the guard changes on the commit that the run began from, too: they say nothing about
//! a candidate.

use std::path::Path;
use std::time::Duration;

use runner_core::config::Config;
use runner_core::paths::is_state_path;

use super::{Iteration, StepContext};
use crate::base_trial::evidence::BaseEvidence;
use crate::checkout::made_files::changed_by_guard;
use crate::checkout::trial::{self, TrialEnd};
use crate::error::Result;
use crate::run::beginning::RunBeginning;
use crate::step::containment::Containment;

/// Those of the changed files that the guard leaves alone where the run began.
pub(super) fn without_those_of_base(
    context: &mut StepContext<'_, '_>,
    it: &mut Iteration,
    workspace: &Path,
    config: &Config,
    containment: &Containment,
    changed: Vec<String>,
) -> Result<Vec<String>> {
    if changed.is_empty() {
        return Ok(changed);
    }
    let run_id = it.started.run_id.clone();
    let begun = RunBeginning::of(context.git, &run_id, workspace)?;
    let (Some(start), Some(base)) = (begun.start, begun.base) else {
        return Ok(changed);
    };
    let project = context.places.user_project(context.git);
    let evidence = BaseEvidence::at(&project, config, &base)?;
    let known = if let Some(known) = evidence.changed() {
        known
    } else {
        // The base was not tried, or with another guard.
        measure(context, (&run_id, &start), &evidence, config, containment)?
    };
    let (exempt, rest): (Vec<_>, Vec<_>) = changed
        .into_iter()
        .partition(|name| known.contains(name) && !is_state_path(name.as_bytes()));
    if !exempt.is_empty() {
        it.notes.push(format!(
            "the guard changes files of the commit that it changed where the run began, too: {}",
            trial::some_of(&exempt)
        ));
    }
    Ok(rest)
}

/// Runs the guard where the run began, and keeps what that shows: the files that it changes, which
/// are returned, and where an earlier guard was tried there what it reports of tests.
pub(super) fn measure(
    context: &mut StepContext<'_, '_>,
    (run_id, start): (&str, &str),
    evidence: &BaseEvidence,
    config: &Config,
    containment: &Containment,
) -> Result<Vec<String>> {
    let clean = context.places.clean_checkout(context.git, run_id, start)?;
    let limit = Duration::from_secs(config.iteration_timeout_secs);
    let contained = containment.is_on().then_some(containment);
    let command = &config.guard.command;
    let trial = trial::run(&clean, command, config, contained, limit, context.run)?;
    let changed = match trial.end {
        TrialEnd::Exited(_) => changed_by_guard(&clean.checkout, config)?,
        TrialEnd::TimedOut | TrialEnd::NotStarted(_) => Vec::new(),
    };
    if evidence.is_outdated() {
        evidence.write(&trial.tests)?;
    }
    evidence.write_changed(&changed)?;
    Ok(changed)
}
