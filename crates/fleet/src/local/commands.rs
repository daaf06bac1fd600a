//! Guard and commands, run on a commit.

use runner::fleet_repo::InvertedVerdict;
use runner::{BaseVerdict, SystemWallClock};
use runner_core::config::Config;
use runner_lifecycle::Task;

use super::threads::ThreadCall;
use super::{LocalWorkspaces, check_outcomes, error};
use crate::rules::answers::{GUARD, planned_checks};
use crate::rules::goal::tests_may_change;
use crate::workspaces::{CheckEnd, CheckOutcome, InvertedCheck, WorkspaceError};

impl LocalWorkspaces {
    /// The guard of the base's config, then the task's commands, in one checkout.
    pub(super) fn check_at(
        &self,
        commit: &str,
        task: Option<&Task>,
        call: &ThreadCall,
    ) -> Result<Vec<CheckOutcome>, WorkspaceError> {
        let Some(task) = task else {
            let verdict = self.try_commit(commit, call)?;
            return Ok(vec![check_outcomes::of_base(verdict)]);
        };
        let repo = self.repo()?;
        let config = repo.config().map_err(error)?;
        let guard = vec![(GUARD.to_owned(), config.guard.command.clone())];
        let commands: Vec<_> = guard.into_iter().chain(argvs(task)).collect();
        let checks = self.run_commands(commit, &commands, &config, task.id.as_str(), call)?;
        let is_green = |check: &CheckOutcome| check.id == GUARD && check.end == CheckEnd::Green;
        if checks.iter().any(is_green) {
            // It may become the base. What is not kept is tried once more then.
            let _ = repo.note_green(commit, &config, &SystemWallClock);
        }
        Ok(checks)
    }

    /// The guard on the base with only the product of a merge.
    pub(super) fn check_inverted_at(
        &self,
        base: &str,
        merge: &str,
        task: &Task,
        call: &ThreadCall,
    ) -> Result<InvertedCheck, WorkspaceError> {
        let repo = self.repo()?;
        let config = repo.config().map_err(error)?;
        let may_change = tests_may_change(task);
        let verdict = self
            .with_context(task.id.as_str(), &call.cancel, |context| {
                repo.check_inverted((base, merge), may_change, &config, context)
            })
            .map_err(error)?;
        Ok(match verdict {
            InvertedVerdict::Same | InvertedVerdict::Green => InvertedCheck::Same,
            InvertedVerdict::Red { left_out, why } => InvertedCheck::Changed {
                files: left_out,
                why,
            },
            InvertedVerdict::Unable(why) => InvertedCheck::Unable(why),
        })
    }

    /// Tries setup and guard on a commit of the base, unless the answer is known.
    pub(super) fn try_commit(
        &self,
        commit: &str,
        call: &ThreadCall,
    ) -> Result<BaseVerdict, WorkspaceError> {
        let repo = self.repo()?;
        let config = repo.config().map_err(error)?;
        self.with_context(GUARD, &call.cancel, |context| {
            repo.try_base(commit, &config, context)
        })
        .map_err(error)
    }

    /// The task's commands alone.
    pub(super) fn check_commands(
        &self,
        commit: &str,
        task: &Task,
        config: &Config,
        call: &ThreadCall,
    ) -> Result<Vec<CheckOutcome>, WorkspaceError> {
        let commands: Vec<_> = argvs(task).collect();
        self.run_commands(commit, &commands, config, task.id.as_str(), call)
    }

    fn run_commands(
        &self,
        commit: &str,
        commands: &[(String, Vec<String>)],
        config: &Config,
        about: &str,
        call: &ThreadCall,
    ) -> Result<Vec<CheckOutcome>, WorkspaceError> {
        let argvs: Vec<Vec<String>> = commands.iter().map(|(_, argv)| argv.clone()).collect();
        let repo = self.repo()?;
        let runs = self
            .with_context(about, &call.cancel, |context| {
                repo.check(commit, &argvs, config, context)
            })
            .map_err(error)?;
        let Some(runs) = runs else {
            return Ok(commands.iter().map(|(id, _)| missing(id, commit)).collect());
        };
        let checks = commands.iter().zip(&runs);
        Ok(checks
            .map(|((id, _), run)| check_outcomes::checked(id, run, id != GUARD))
            .collect())
    }
}

/// The commands of a task, each a line for a shell.
fn argvs(task: &Task) -> impl Iterator<Item = (String, Vec<String>)> {
    planned_checks(task).into_iter().map(|planned| {
        let argv = vec!["sh".to_owned(), "-c".to_owned(), planned.command];
        (planned.id, argv)
    })
}

fn missing(id: &str, commit: &str) -> CheckOutcome {
    CheckOutcome {
        id: id.to_owned(),
        end: CheckEnd::Unable,
        evidence: format!("commit {commit} is not there"),
        tail: String::new(),
    }
}
