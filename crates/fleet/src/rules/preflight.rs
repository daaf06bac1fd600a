//! What begins at once when a fleet comes up, and whether there may be a new plan.
//!
//! R: there is a requirement; I: issues wait; P: pull requests or results wait for a
//! judge; L: tasks of ours wait. A backlog always comes before a new plan.

use std::fmt::Write as _;

use runner_core::config::FleetConfig;
use serde::{Deserialize, Serialize};

/// What the caller counted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PreflightInputs {
    /// Whether the requirement says anything (R).
    pub has_requirement: bool,
    /// Open issues that are no tasks yet (I).
    pub issue_backlog: u64,
    /// Open pull requests (P).
    pub open_pull_requests: u64,
    /// Tasks that wait for a judge (P).
    pub awaiting_judge: u64,
    /// Tasks that are todo, in progress or blocked, parked ones not counted (L).
    pub local_backlog: u64,
    /// Blocked tasks, parked ones included.
    pub blocked: u64,
    /// Whether the guard fails on the base alone.
    pub red_base: bool,
    /// Backlog sources that failed, with why.
    pub failed_sources: Vec<FailedSource>,
}

/// A backlog source that could not be read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FailedSource {
    /// Which.
    pub source: String,
    /// Why.
    pub reason: String,
}

impl PreflightInputs {
    /// Whether a requirement says anything.
    pub fn says_something(requirement: &str) -> bool {
        !requirement.trim().is_empty()
    }

    /// Whether there is something to plan, and nothing that comes before it.
    pub fn starts_planner(&self) -> bool {
        self.has_requirement && !self.issues() && !self.judgements() && !self.tasks()
    }

    /// Whether a planner may start by hand, `running` of them being at work.
    pub fn may_start_planner(&self, running: u32) -> Result<(), PlannerRefused> {
        if running > 0 {
            return Err(PlannerRefused(
                "a planner is running already, and there is one at most".to_owned(),
            ));
        }
        if self.starts_planner() {
            return Ok(());
        }
        Err(PlannerRefused(if self.has_requirement {
            format!("the backlog comes first: {}", self.backlog())
        } else {
            "there is no requirement to plan".to_owned()
        }))
    }

    /// Whether a planner that runs may plan now. A source that could not be read may hide
    /// a backlog, so it keeps the gate closed; why, otherwise.
    pub fn may_plan(&self) -> Result<(), String> {
        if let Some(failed) = self.failed_sources.first() {
            return Err(format!(
                "backlog source {} failed: {}",
                failed.source, failed.reason
            ));
        }
        self.may_start_planner(0).map_err(|refused| refused.0)?;
        if self.red_base {
            return Err("the guard is red on the base, and that is fixed first".to_owned());
        }
        Ok(())
    }

    fn backlog(&self) -> String {
        [
            (self.issue_backlog, "open issue", ""),
            (self.open_pull_requests, "open pull request", ""),
            (self.awaiting_judge, "task", " waiting for a judge"),
            (self.local_backlog, "open task", ""),
        ]
        .iter()
        .filter(|(count, ..)| *count > 0)
        .map(|(count, what, more)| {
            let plural = if *count == 1 { "" } else { "s" };
            format!("{count} {what}{plural}{more}")
        })
        .collect::<Vec<String>>()
        .join(", ")
    }

    pub(super) fn issues(&self) -> bool {
        self.issue_backlog > 0
    }

    pub(super) fn judgements(&self) -> bool {
        self.open_pull_requests > 0 || self.awaiting_judge > 0
    }

    fn tasks(&self) -> bool {
        self.local_backlog > 0
    }
}

/// The answer of `POST /system/preflight`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PreflightReport {
    /// What it is based on.
    pub inputs: PreflightInputs,
    /// What begins at once; any other role begins when its first work appears.
    pub recommendations: PreflightRecommendations,
    /// What a person should know.
    pub warnings: Vec<String>,
}

/// What begins at once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(clippy::struct_excessive_bools)] // each follows a formula of its own
pub struct PreflightRecommendations {
    /// Whether the planner begins.
    pub start_planner: bool,
    /// Whether dispatcher, workers, testers and docsers begin.
    pub start_execution: bool,
    /// Whether judges begin.
    pub start_judge: bool,
    /// Whether the cycle manager begins.
    pub start_cycle_manager: bool,
    /// How many there are of each.
    pub counts: RoleCounts,
}

/// How many processes of each role begin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RoleCounts {
    /// One at most.
    pub planner: u32,
    /// One at most.
    pub dispatcher: u32,
    /// As configured.
    pub worker: u32,
    /// As configured.
    pub tester: u32,
    /// As configured.
    pub docser: u32,
    /// As configured.
    pub judge: u32,
    /// One at most.
    pub cycle_manager: u32,
}

impl From<&FleetConfig> for RoleCounts {
    /// How many of each role the project wants.
    fn from(config: &FleetConfig) -> RoleCounts {
        RoleCounts {
            planner: 1,
            dispatcher: 1,
            worker: config.workers,
            tester: config.testers,
            docser: config.docsers,
            judge: config.judges,
            cycle_manager: 1,
        }
    }
}

/// There is nothing at all to do, in words with what would give some.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct NothingToDo(pub String);

/// The planner may not start: an answer 409.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct PlannerRefused(pub String);

/// The formulas. Counts are those of the config.
pub fn preflight(inputs: PreflightInputs, config: &FleetConfig) -> PreflightReport {
    let (issues, judgements) = (inputs.issues(), inputs.judgements());
    let start_planner = inputs.starts_planner();
    let start_execution = start_planner || issues || inputs.tasks();
    let start_judge = judgements || start_execution;
    let start_cycle_manager = start_execution || judgements || inputs.blocked > 0;
    let some = |start: bool, count: u32| if start { count } else { 0 };
    let recommendations = PreflightRecommendations {
        start_planner,
        start_execution,
        start_judge,
        start_cycle_manager,
        counts: RoleCounts {
            planner: some(start_planner, 1),
            dispatcher: some(start_execution, 1),
            worker: some(start_execution, config.workers),
            tester: some(start_execution, config.testers),
            docser: some(start_execution, config.docsers),
            judge: some(start_judge, config.judges),
            cycle_manager: some(start_cycle_manager, 1),
        },
    };
    let warnings = warnings(&inputs, start_planner);
    PreflightReport {
        inputs,
        recommendations,
        warnings,
    }
}

fn warnings(inputs: &PreflightInputs, start_planner: bool) -> Vec<String> {
    let mut warnings = Vec::new();
    if inputs.issues() {
        let count = inputs.issue_backlog;
        warnings.push(format!("Issue backlog detected ({count})"));
    }
    if inputs.judgements() {
        let count = inputs.open_pull_requests + inputs.awaiting_judge;
        warnings.push(format!("Judge backlog detected ({count})"));
    }
    if inputs.tasks() {
        let count = inputs.local_backlog;
        warnings.push(format!("Task backlog detected ({count})"));
    }
    if inputs.has_requirement && !start_planner {
        warnings.push("Planner is skipped for this launch".to_owned());
    }
    if inputs.red_base {
        warnings.push(
            "The guard is red on the base: nothing is merged before that is fixed".to_owned(),
        );
    }
    for FailedSource { source, reason } in &inputs.failed_sources {
        warnings.push(format!("Backlog source {source} failed: {reason}"));
    }
    warnings
}

impl PreflightReport {
    /// Refuses a launch in which no role would begin.
    pub fn check(&self) -> Result<(), NothingToDo> {
        let begins = &self.recommendations;
        if begins.start_execution || begins.start_judge || begins.start_cycle_manager {
            return Ok(());
        }
        let mut words = "there is nothing to do: no requirement, no issue, no pull request and no \
                         task; write a requirement, add an issue or create a task"
            .to_owned();
        for FailedSource { source, reason } in &self.inputs.failed_sources {
            // Writing to a String cannot fail.
            let _ = write!(words, "; backlog source {source} failed: {reason}");
        }
        Err(NothingToDo(words))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inputs(requirement: bool, issues: u64, judgements: u64, tasks: u64) -> PreflightInputs {
        PreflightInputs {
            has_requirement: requirement,
            issue_backlog: issues,
            awaiting_judge: judgements,
            local_backlog: tasks,
            blocked: judgements,
            ..PreflightInputs::default()
        }
    }

    fn run(inputs: PreflightInputs) -> PreflightReport {
        preflight(inputs, &FleetConfig::default())
    }

    /// R I P L, then planner, execution, judge, cycle manager.
    const ROWS: [(&str, &str); 16] = [
        ("....", "...."),
        ("...L", ".EJC"),
        ("..P.", "..JC"),
        ("..PL", ".EJC"),
        (".I..", ".EJC"),
        (".I.L", ".EJC"),
        (".IP.", ".EJC"),
        (".IPL", ".EJC"),
        ("R...", "PEJC"),
        ("R..L", ".EJC"),
        ("R.P.", "..JC"),
        ("R.PL", ".EJC"),
        ("RI..", ".EJC"),
        ("RI.L", ".EJC"),
        ("RIP.", ".EJC"),
        ("RIPL", ".EJC"),
    ];

    #[test]
    fn all_sixteen_combinations() {
        for (given, expected) in ROWS {
            let has = |letter| given.contains(letter);
            let two = |letter| if has(letter) { 2 } else { 0 };
            let answer = run(inputs(has('R'), two('I'), two('P'), two('L')));
            let begins = answer.recommendations;
            let letters: String = [
                (begins.start_planner, 'P'),
                (begins.start_execution, 'E'),
                (begins.start_judge, 'J'),
                (begins.start_cycle_manager, 'C'),
            ]
            .into_iter()
            .map(|(start, letter)| if start { letter } else { '.' })
            .collect();
            assert_eq!(letters, expected, "{given}");

            let counts = begins.counts;
            let config = FleetConfig::default();
            assert_eq!(counts.planner, u32::from(begins.start_planner));
            assert_eq!(counts.dispatcher, u32::from(begins.start_execution));
            let execution = [counts.worker, counts.tester, counts.docser];
            let all = [config.workers, config.testers, config.docsers];
            assert_eq!(execution, if begins.start_execution { all } else { [0; 3] });
            assert_eq!(counts.judge > 0, begins.start_judge);
            assert_eq!(counts.cycle_manager, u32::from(begins.start_cycle_manager));

            let warns = |text: &str| answer.warnings.iter().any(|warning| warning == text);
            assert_eq!(warns("Issue backlog detected (2)"), has('I'), "{given}");
            assert_eq!(warns("Judge backlog detected (2)"), has('P'), "{given}");
            assert_eq!(warns("Task backlog detected (2)"), has('L'), "{given}");
            let backlog = has('I') || has('P') || has('L');
            let skipped = warns("Planner is skipped for this launch");
            assert_eq!(skipped, has('R') && backlog, "{given}");

            assert_eq!(answer.check().is_err(), given == "....", "{given}");
            let planner = answer.inputs.may_start_planner(0);
            assert_eq!(planner.is_ok(), given == "R...", "{given}");
            assert_eq!(answer.inputs.may_plan().is_ok(), planner.is_ok(), "{given}");
            assert!(answer.inputs.may_start_planner(1).is_err(), "{given}");
        }
        let distinct: std::collections::BTreeSet<&str> = ROWS.iter().map(|row| row.0).collect();
        assert_eq!(distinct.len(), ROWS.len());
    }

    #[test]
    fn pull_requests_and_results_are_the_same_backlog() {
        for (pulls, judgements) in [(1, 0), (0, 1), (3, 4)] {
            let answer = run(PreflightInputs {
                open_pull_requests: pulls,
                awaiting_judge: judgements,
                has_requirement: true,
                ..PreflightInputs::default()
            });
            assert!(!answer.recommendations.start_planner);
            assert!(answer.recommendations.start_judge);
            let count = pulls + judgements;
            assert_eq!(
                answer.warnings[0],
                format!("Judge backlog detected ({count})")
            );
        }
    }

    #[test]
    fn parked_tasks_start_the_cycle_manager_alone() {
        let answer = run(PreflightInputs {
            blocked: 1,
            ..PreflightInputs::default()
        });
        let begins = answer.recommendations;
        assert!(begins.start_cycle_manager && !begins.start_execution && !begins.start_judge);
        assert_eq!(answer.check(), Ok(()));
    }

    #[test]
    fn words() {
        let failed = FailedSource {
            source: "local".to_owned(),
            reason: "3.md line 1: no title".to_owned(),
        };
        let broken = run(PreflightInputs {
            has_requirement: true,
            red_base: true,
            failed_sources: vec![failed.clone()],
            ..PreflightInputs::default()
        });
        assert_eq!(
            broken.warnings,
            [
                "The guard is red on the base: nothing is merged before that is fixed",
                "Backlog source local failed: 3.md line 1: no title",
            ]
        );
        // A warning at preflight, a closed gate at run time.
        assert!(broken.recommendations.start_planner);
        assert_eq!(
            broken.inputs.may_plan(),
            Err("backlog source local failed: 3.md line 1: no title".to_owned())
        );
        let red = PreflightInputs {
            failed_sources: Vec::new(),
            ..broken.inputs.clone()
        };
        assert_eq!(
            red.may_plan(),
            Err("the guard is red on the base, and that is fixed first".to_owned())
        );
        let nothing = run(PreflightInputs {
            failed_sources: vec![failed],
            ..PreflightInputs::default()
        });
        let words = nothing.check().unwrap_err().to_string();
        assert!(words.starts_with("there is nothing to do"), "{words}");
        assert!(words.ends_with("failed: 3.md line 1: no title"), "{words}");
        let backlog = run(inputs(true, 2, 1, 3)).inputs.may_start_planner(0);
        assert_eq!(
            backlog.unwrap_err().to_string(),
            "the backlog comes first: 2 open issues, 1 task waiting for a judge, 3 open tasks"
        );
        let without = run(inputs(false, 0, 0, 0)).inputs.may_start_planner(0);
        assert_eq!(
            without.unwrap_err().to_string(),
            "there is no requirement to plan"
        );
        for (text, says) in [("", false), (" \n\t", false), ("x", true)] {
            assert_eq!(PreflightInputs::says_something(text), says);
        }
    }

    #[test]
    fn the_answer_as_json() {
        let answer = run(inputs(true, 2, 0, 0));
        let json = serde_json::to_value(&answer).unwrap();
        assert_eq!(json["inputs"]["issue_backlog"], 2);
        assert_eq!(json["recommendations"]["counts"]["planner"], 0);
        assert_eq!(json["warnings"][0], "Issue backlog detected (2)");
        assert_eq!(
            serde_json::from_value::<PreflightReport>(json).unwrap(),
            answer
        );
    }
}
