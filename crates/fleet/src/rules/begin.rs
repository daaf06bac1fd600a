//! Which roles of a fleet that comes up begin at once, and which of the others when their
//! first work appears.

use std::collections::BTreeSet;

use super::preflight::{PreflightInputs, RoleCounts};

/// What a role does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum FleetRole {
    /// Gives ready tasks to agents.
    Dispatcher,
    /// Leads on what is blocked.
    Cycle,
    /// Makes tasks of the requirement.
    Planner,
    /// Changes code.
    Worker,
    /// Finds out.
    Tester,
    /// Writes documentation.
    Docser,
    /// Judges and merges.
    Judge,
    /// Ends what nobody renewed.
    Watchdog,
}

impl FleetRole {
    /// Its name; agents and role leases are called after it.
    pub const fn word(self) -> &'static str {
        match self {
            FleetRole::Dispatcher => "dispatcher",
            FleetRole::Cycle => "cycle",
            FleetRole::Planner => "planner",
            FleetRole::Worker => "worker",
            FleetRole::Tester => "tester",
            FleetRole::Docser => "docser",
            FleetRole::Judge => "judge",
            FleetRole::Watchdog => "keeper",
        }
    }
}

/// So many of each, in the order in which they begin; the watchdog is always there.
pub fn fleet_roles(counts: &RoleCounts) -> [(FleetRole, u32); 8] {
    [
        (FleetRole::Watchdog, 1),
        (FleetRole::Dispatcher, counts.dispatcher),
        (FleetRole::Cycle, counts.cycle_manager),
        (FleetRole::Planner, counts.planner),
        (FleetRole::Worker, counts.worker),
        (FleetRole::Tester, counts.tester),
        (FleetRole::Docser, counts.docser),
        (FleetRole::Judge, counts.judge),
    ]
}

/// Those that wait for their first work: the project wants some, and none begins at once.
pub fn waiting(wanted: &RoleCounts, at_once: &RoleCounts) -> BTreeSet<FleetRole> {
    let wanted = fleet_roles(wanted).into_iter();
    wanted
        .zip(fleet_roles(at_once))
        .filter(|((_, wanted), (_, begin))| *wanted > 0 && *begin == 0)
        .map(|((fleet_role, _), _)| fleet_role)
        .collect()
}

/// The work that is there.
#[derive(Clone, Debug, Default)]
pub struct AvailableWork {
    /// What preflight goes by, as it is now.
    pub inputs: PreflightInputs,
    /// Tasks that are todo.
    pub todo: u64,
    /// The roles for which a task is ready.
    pub ready: BTreeSet<String>,
}

/// Which of those that wait begin now, each with why.
pub fn due(waiting: &BTreeSet<FleetRole>, work: &AvailableWork) -> Vec<(FleetRole, String)> {
    let all = waiting.iter();
    all.filter_map(|fleet_role| Some((*fleet_role, first_work(*fleet_role, work)?)))
        .collect()
}

/// Why a role has something to do, if it has.
fn first_work(fleet_role: FleetRole, work: &AvailableWork) -> Option<String> {
    let inputs = &work.inputs;
    let some = |count: u64, one: &str, many: &str| {
        (count > 0).then(|| match count {
            1 => format!("1 {one}"),
            _ => format!("{count} {many}"),
        })
    };
    match fleet_role {
        FleetRole::Watchdog => Some("somebody watches over leases".to_owned()),
        // It also says which tasks wait for a dead one, so a task need not be ready.
        FleetRole::Dispatcher => some(work.todo, "task waits to start", "tasks wait to start"),
        FleetRole::Worker | FleetRole::Tester | FleetRole::Docser => work
            .ready
            .contains(fleet_role.word())
            .then(|| format!("a task for a {} is ready", fleet_role.word())),
        FleetRole::Judge => {
            let count = inputs.open_pull_requests + inputs.awaiting_judge;
            some(
                count,
                "result waits for a judge",
                "results wait for a judge",
            )
        }
        FleetRole::Cycle => {
            let count = inputs.issue_backlog + inputs.open_pull_requests;
            some(count, "issue waits", "issues wait")
                .or_else(|| some(inputs.blocked, "task is blocked", "tasks are blocked"))
        }
        FleetRole::Planner => inputs
            .may_plan()
            .is_ok()
            .then(|| "the requirement can be planned, nothing else is open".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use runner_core::config::FleetConfig;

    use super::super::preflight::{FailedSource, preflight};
    use super::*;

    fn wanted() -> RoleCounts {
        RoleCounts::from(&FleetConfig::default())
    }

    fn words(fleet_roles: impl IntoIterator<Item = FleetRole>) -> String {
        let words: Vec<&str> = fleet_roles.into_iter().map(FleetRole::word).collect();
        words.join(" ")
    }

    #[test]
    fn who_waits_is_who_does_not_begin_at_once() {
        let check = |inputs: PreflightInputs, expected: &str| {
            let said = preflight(inputs, &FleetConfig::default());
            let waiting = waiting(&wanted(), &said.recommendations.counts);
            assert_eq!(words(waiting), expected, "{:?}", said.inputs);
        };
        let none = PreflightInputs::default;
        let requirement = PreflightInputs {
            has_requirement: true,
            ..none()
        };
        check(requirement, "");
        let tasks = PreflightInputs {
            local_backlog: 1,
            ..none()
        };
        check(tasks, "planner");
        let pulls = PreflightInputs {
            open_pull_requests: 1,
            ..none()
        };
        check(pulls, "dispatcher planner worker tester docser");
        let parked = PreflightInputs {
            blocked: 1,
            ..none()
        };
        check(parked, "dispatcher planner worker tester docser judge");
    }

    #[test]
    fn nobody_waits_for_a_role_that_the_project_does_not_want() {
        let mut wanted = wanted();
        wanted.tester = 0;
        let waiting = waiting(&wanted, &RoleCounts::default());
        assert!(!waiting.contains(&FleetRole::Tester));
        assert!(
            !waiting.contains(&FleetRole::Watchdog),
            "it is always there"
        );
        assert_eq!(waiting.len(), 6);
    }

    #[test]
    fn first_work_of_each() {
        let everybody: BTreeSet<FleetRole> = waiting(&wanted(), &RoleCounts::default());
        let check = |work: &AvailableWork, expected: &[&str]| {
            let due = due(&everybody, work);
            let said: Vec<String> = due
                .iter()
                .map(|(fleet_role, why)| format!("{} begins: {why}", fleet_role.word()))
                .collect();
            assert_eq!(said, expected, "{work:?}");
        };
        check(&AvailableWork::default(), &[]);
        let waits = AvailableWork {
            inputs: PreflightInputs {
                local_backlog: 1,
                has_requirement: true,
                ..PreflightInputs::default()
            },
            todo: 1,
            ..AvailableWork::default()
        };
        check(&waits, &["dispatcher begins: 1 task waits to start"]);
        let ready = AvailableWork {
            ready: ["docser".to_owned()].into(),
            todo: 2,
            ..waits
        };
        check(
            &ready,
            &[
                "dispatcher begins: 2 tasks wait to start",
                "docser begins: a task for a docser is ready",
            ],
        );
        let result = AvailableWork {
            inputs: PreflightInputs {
                awaiting_judge: 1,
                local_backlog: 1,
                blocked: 1,
                has_requirement: true,
                ..PreflightInputs::default()
            },
            ..AvailableWork::default()
        };
        check(
            &result,
            &[
                "cycle begins: 1 task is blocked",
                "judge begins: 1 result waits for a judge",
            ],
        );
        let outside = AvailableWork {
            inputs: PreflightInputs {
                open_pull_requests: 1,
                issue_backlog: 1,
                has_requirement: true,
                ..PreflightInputs::default()
            },
            ..AvailableWork::default()
        };
        check(
            &outside,
            &[
                "cycle begins: 2 issues wait",
                "judge begins: 1 result waits for a judge",
            ],
        );
        let mut plan = AvailableWork {
            inputs: PreflightInputs {
                has_requirement: true,
                ..PreflightInputs::default()
            },
            ..AvailableWork::default()
        };
        check(
            &plan,
            &["planner begins: the requirement can be planned, nothing else is open"],
        );
        plan.inputs.failed_sources.push(FailedSource {
            source: "local".to_owned(),
            reason: "x".to_owned(),
        });
        check(&plan, &[]);
        assert_eq!(due(&BTreeSet::new(), &ready), []);
    }
}
