//! Files that the guard changes on the commit that began the run, too: they say nothing about a
//! candidate. Found out when a guard first changes anything, and kept for the run.

use std::path::PathBuf;
use std::time::Duration;

use runner_core::config::Config;
use runner_core::paths::is_state_path;
use serde::{Deserialize, Serialize};

use super::{Iteration, StepContext};
use crate::checkout::trial::{self, TrialEnd};
use crate::checkout::{Checkout, MADE, beside};
use crate::error::Result;
use crate::files;
use crate::state::branch_record::BranchRecord;
use crate::step::containment::Containment;

/// The file that keeps them, beside the run's clean checkout.
const FILE: &str = "changed-on-base.json";

/// The largest such file.
const MAX_BYTES: u64 = 1 << 20;

/// What a guard changes on a commit.
#[derive(Debug, Serialize, Deserialize)]
struct BaseChanges {
    command: Vec<String>,
    commit: String,
    changed: Vec<String>,
}

/// Those of the changed files that the guard leaves alone where the run began.
pub(super) fn without_those_of_base(
    context: &mut StepContext<'_, '_>,
    it: &mut Iteration,
    config: &Config,
    containment: &Containment,
    changed: Vec<String>,
) -> Result<Vec<String>> {
    if changed.is_empty() {
        return Ok(changed);
    }
    let run_id = it.started.run_id.clone();
    let Some(start) = BranchRecord::read(context.git, &run_id)?.start else {
        return Ok(changed);
    };
    let kept = context
        .places
        .verdicts(context.git, &run_id, &it.started.head)?;
    let known =
        read(&kept).filter(|known| known.command == config.guard.command && known.commit == start);
    let known = if let Some(known) = known {
        known
    } else {
        let found = find(context, &run_id, &start, config, containment)?;
        write(&kept, &found)?;
        found
    };
    let (exempt, rest): (Vec<_>, Vec<_>) = changed
        .into_iter()
        .partition(|name| known.changed.contains(name) && !is_state_path(name.as_bytes()));
    if !exempt.is_empty() {
        it.notes.push(format!(
            "the guard changes files of the commit that it changed where the run began, too: {}",
            trial::some_of(&exempt)
        ));
    }
    Ok(rest)
}

fn find(
    context: &mut StepContext<'_, '_>,
    run_id: &str,
    start: &str,
    config: &Config,
    containment: &Containment,
) -> Result<BaseChanges> {
    let clean = context.places.clean_checkout(context.git, run_id, start)?;
    let limit = Duration::from_secs(config.iteration_timeout_secs);
    let contained = containment.is_on().then_some(containment);
    let command = &config.guard.command;
    let trial = trial::run(&clean, command, config, contained, limit, context.run)?;
    let changed = match trial.end {
        TrialEnd::Exited(_) => clean.checkout.tree.changed_files()?,
        TrialEnd::TimedOut | TrialEnd::NotStarted(_) => Vec::new(),
    };
    Ok(BaseChanges {
        command: command.clone(),
        commit: start.to_owned(),
        changed,
    })
}

fn path(checkout: &Checkout) -> PathBuf {
    beside(checkout.path(), MADE).join(FILE)
}

fn read(checkout: &Checkout) -> Option<BaseChanges> {
    let bytes = files::read_regular(&path(checkout), MAX_BYTES).ok()?;
    serde_json::from_slice(&bytes).ok()
}

fn write(checkout: &Checkout, found: &BaseChanges) -> Result<()> {
    files::make_folder(&beside(checkout.path(), MADE))?;
    // Strings alone: there is nothing that could fail.
    let bytes = serde_json::to_vec(found).unwrap_or_default();
    Ok(files::write_whole(&path(checkout), &bytes)?)
}
