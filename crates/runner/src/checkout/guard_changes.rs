//! Files of a commit that its guard changes: then the guard has judged something else. What it
//! changes where the work began, too, says nothing about a result.

use runner_core::config::Config;

use super::trial;
use crate::base_trial::evidence::BaseEvidence;
use crate::error::Result;
use crate::git::Git;
use crate::run_context::RunContext;

/// How many names a log lists.
const LISTED: usize = 20;

/// Those of the changed files that the guard leaves alone at a base. A base whose guard is not known is
/// tried.
pub(crate) fn beyond_base(
    git: &Git,
    base: &str,
    config: &Config,
    changed: Vec<String>,
    context: &mut RunContext<'_>,
) -> Result<Vec<String>> {
    if changed.is_empty() {
        return Ok(changed);
    }
    let evidence = BaseEvidence::at(git, config, base)?;
    let known = if let Some(known) = evidence.changed() {
        known
    } else {
        let command = &config.guard.command;
        let trial = trial::run_at_commit(git, base, command, config, context)?;
        evidence.write_changed(&trial.changed)?;
        trial.changed
    };
    Ok(changed
        .into_iter()
        .filter(|name| !known.contains(name))
        .collect())
}

/// What such a guard has done, as a lowercase fragment.
pub(crate) fn words(changed: &[String]) -> String {
    format!(
        "the guard changed files of the commit that it judges: {}",
        trial::some_of(changed)
    )
}

/// What is added to its log.
pub(crate) fn about_changes(changed: &[String]) -> String {
    let mut text =
        String::from("\nrunner: the guard changed files of the commit that it judges:\n");
    for name in changed.iter().take(LISTED) {
        text.push_str("  ");
        text.push_str(name);
        text.push('\n');
    }
    if changed.len() > LISTED {
        text.push_str("  and more\n");
    }
    text.push_str(
        "runner: commit them as the guard leaves them, and let the check only check (no --fix, no --write)\n",
    );
    text
}
