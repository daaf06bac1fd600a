//! A worker's order as a run of the loop, and what the loop came to.

use runner::fleet_repo::{TaskRunName, TaskRunOrder, TaskRunReport, TaskRunUsage};
use runner::{ErrorCode, LoopOutcome, LoopStatus};
use runner_core::config::{BudgetConfig, Config};
use runner_core::meta::IterationErrorKind;
use runner_lifecycle::Timestamp;
use runner_lifecycle::retry::LoopEnding;

use super::threads::ThreadCall;
use super::{LocalWorkspaces, check_outcomes, config, error};
use crate::rules::answers::GUARD;
use crate::rules::goal::{goal_text, tests_may_change};
use crate::workspaces::{
    CheckEnd, CheckOutcome, LoopUsage, WorkOrder, WorkOutcome, WorkResult, WorkspaceError,
};

impl LocalWorkspaces {
    pub(super) fn work_on(
        &self,
        order: &WorkOrder,
        call: &ThreadCall,
    ) -> Result<WorkOutcome, WorkspaceError> {
        let repo = self.repo()?;
        let (text, config) = self.config_of(order)?;
        let name = TaskRunName {
            task: order.task.id.to_string(),
            run_id: order.run_id.clone(),
            token: order.token,
        };
        let goal = goal_text(&order.task, &order.run_id, &order.context);
        let run = TaskRunOrder {
            name: &name,
            title: &order.task.title,
            goal: &goal,
            config: &text,
            earlier: order
                .earlier
                .as_deref()
                .or(order.task.start_from.as_deref()),
        };
        self.with_context(&order.run_id, &call.cancel, |context| {
            repo.wait_for_room(&order.run_id, context)
        })
        .map_err(error)?;
        let report = self
            .with_context(&order.run_id, &call.cancel, |context| {
                repo.run(run, &|| call.is_time_up(), context)
            })
            .map_err(error)?;
        let result = report
            .result
            .as_ref()
            .map(|commit| -> Result<_, WorkspaceError> {
                let changes = repo.changes(&report.start, commit).map_err(error)?;
                Ok(WorkResult {
                    start: report.start.clone(),
                    commit: commit.clone(),
                    changes: check_outcomes::resource_changes(changes.unwrap_or_default()),
                })
            });
        let mut worked = WorkOutcome {
            ending: ending(&report, &config.budget, call.is_time_up()),
            result: result.transpose()?,
            checks: Vec::new(),
            why: report.why.clone(),
            quota_until: report.quota_until.map(Timestamp),
            account: config.executor.backend.as_str().to_owned(),
            spent: spent(&report.used),
        };
        if worked.ending == LoopEnding::Complete {
            self.add_checks(order, &report, &config, call, &mut worked)?;
        }
        Ok(worked)
    }

    /// The project's config as this run has it.
    fn config_of(&self, order: &WorkOrder) -> Result<(String, Config), WorkspaceError> {
        let project = self.repo()?.config_text().map_err(error)?;
        let model = order.model.as_deref();
        let timebox = order.task.timebox_seconds;
        let text = config::of_run(&project, model, timebox, tests_may_change(&order.task))
            .map_err(|error| {
                WorkspaceError(format!("the config is no TOML: {}", error.message()))
            })?;
        let config = Config::parse(&text).map_err(|findings| {
            let findings: Vec<String> = findings.iter().map(ToString::to_string).collect();
            WorkspaceError(format!("the config is wrong: {}", findings.join("; ")))
        })?;
        Ok((text, config))
    }

    /// The guard as the loop ran it last, and the task's commands on what came of the run.
    fn add_checks(
        &self,
        order: &WorkOrder,
        report: &TaskRunReport,
        config: &Config,
        call: &ThreadCall,
        worked: &mut WorkOutcome,
    ) -> Result<(), WorkspaceError> {
        worked
            .checks
            .extend(report.guard.as_ref().map(|run| CheckOutcome {
                id: GUARD.to_owned(),
                end: CheckEnd::Green,
                evidence: check_outcomes::evidence(0, &run.log_sha256),
                tail: String::new(),
            }));
        let commit = report.result.as_ref().unwrap_or(&report.start);
        match self.check_commands(commit, &order.task, config, call) {
            Ok(checks) => worked.checks.extend(checks),
            Err(_) if call.is_time_up() => {
                worked.ending = LoopEnding::Timeout;
                "the time was up while the commands ran".clone_into(&mut worked.why);
            }
            Err(_) if call.cancel.is_cancelled() => worked.ending = LoopEnding::Interrupted,
            Err(error) => return Err(error),
        }
        Ok(())
    }
}

/// What the end of a loop is to a fleet.
fn ending(report: &TaskRunReport, budget: &BudgetConfig, time_up: bool) -> LoopEnding {
    match loop_ending(&report.end, time_up) {
        // The loop itself does not tell the two limits apart.
        LoopEnding::IterationLimit if is_spent(budget, &report.used) => LoopEnding::Budget,
        other => other,
    }
}

fn loop_ending(end: &LoopOutcome, time_up: bool) -> LoopEnding {
    let code = end.error.as_ref().map(|error| error.code);
    match (end.status, code) {
        (LoopStatus::Complete, _) => LoopEnding::Complete,
        (LoopStatus::Stuck, _) => LoopEnding::Stuck,
        (LoopStatus::Interrupted, _) if time_up => LoopEnding::Timeout,
        (LoopStatus::Interrupted | LoopStatus::Stopped, _) => LoopEnding::Interrupted,
        (_, Some(ErrorCode::Step(IterationErrorKind::Budget))) => LoopEnding::Budget,
        (_, Some(ErrorCode::Step(IterationErrorKind::Quota))) => LoopEnding::Quota,
        (
            _,
            Some(ErrorCode::Step(
                IterationErrorKind::Timeout
                | IterationErrorKind::Idle
                | IterationErrorKind::GuardTimeout,
            )),
        ) => LoopEnding::Timeout,
        (_, Some(ErrorCode::Interrupted | ErrorCode::Step(IterationErrorKind::Interrupted))) => {
            LoopEnding::Interrupted
        }
        (LoopStatus::Limit, _) => LoopEnding::IterationLimit,
        (LoopStatus::Error, _) => LoopEnding::RunnerError,
    }
}

fn is_spent(budget: &BudgetConfig, used: &TaskRunUsage) -> bool {
    let tokens = used.input_tokens.saturating_add(used.output_tokens);
    (budget.max_tokens > 0 && tokens >= budget.max_tokens)
        || (budget.max_cost_usd > 0.0 && used.cost_usd >= budget.max_cost_usd)
}

fn spent(used: &TaskRunUsage) -> LoopUsage {
    LoopUsage {
        input_tokens: used.input_tokens,
        output_tokens: used.output_tokens,
        cost_micros: micros(used.cost_usd),
    }
}

/// Millionths, by way of text: that rounds, and knows neither too large nor negative.
fn micros(usd: f64) -> u64 {
    format!("{:.0}", usd * 1e6).parse().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endings() {
        let step = |kind| Some(ErrorCode::Step(kind));
        for (status, code, time_up, expected) in [
            (LoopStatus::Complete, None, false, LoopEnding::Complete),
            (LoopStatus::Complete, None, true, LoopEnding::Complete),
            (LoopStatus::Stuck, None, false, LoopEnding::Stuck),
            (
                LoopStatus::Limit,
                Some(ErrorCode::Limit),
                false,
                LoopEnding::IterationLimit,
            ),
            (
                LoopStatus::Limit,
                step(IterationErrorKind::Budget),
                false,
                LoopEnding::Budget,
            ),
            (
                LoopStatus::Error,
                step(IterationErrorKind::Quota),
                false,
                LoopEnding::Quota,
            ),
            (
                LoopStatus::Error,
                step(IterationErrorKind::Timeout),
                false,
                LoopEnding::Timeout,
            ),
            (
                LoopStatus::Error,
                step(IterationErrorKind::Idle),
                false,
                LoopEnding::Timeout,
            ),
            (
                LoopStatus::Error,
                step(IterationErrorKind::GuardTimeout),
                false,
                LoopEnding::Timeout,
            ),
            (
                LoopStatus::Error,
                step(IterationErrorKind::GuardSpawn),
                false,
                LoopEnding::RunnerError,
            ),
            (
                LoopStatus::Error,
                Some(ErrorCode::Git),
                false,
                LoopEnding::RunnerError,
            ),
            (LoopStatus::Error, None, false, LoopEnding::RunnerError),
            (
                LoopStatus::Interrupted,
                None,
                false,
                LoopEnding::Interrupted,
            ),
            (
                LoopStatus::Interrupted,
                Some(ErrorCode::Interrupted),
                true,
                LoopEnding::Timeout,
            ),
            (LoopStatus::Stopped, None, false, LoopEnding::Interrupted),
        ] {
            let end = LoopOutcome {
                status,
                steps: 1,
                stuck: None,
                error: code.map(|code| runner::Error::new(code, "x")),
                reason: None,
            };
            assert_eq!(loop_ending(&end, time_up), expected, "{status:?} {code:?}");
        }
    }

    #[test]
    fn limits_that_are_reached() {
        let used = TaskRunUsage {
            input_tokens: 60,
            output_tokens: 40,
            cost_usd: 0.5,
        };
        for (max_tokens, max_cost_usd, expected) in [
            (0, 0.0, false),
            (100, 0.0, true),
            (101, 0.0, false),
            (0, 0.5, true),
            (0, 0.51, false),
        ] {
            let budget = BudgetConfig {
                max_tokens,
                max_cost_usd,
            };
            assert_eq!(is_spent(&budget, &used), expected, "{budget:?}");
        }
        assert_eq!(
            [micros(0.5), micros(0.000_001), micros(-1.0)],
            [500_000, 1, 0]
        );
    }
}
