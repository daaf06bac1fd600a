//! What happens in a simulation: which tasks there are, and what sessions make of them.

use std::collections::BTreeMap;

use runner_lifecycle::lock::Resource;
use runner_lifecycle::request::NewTask;
use runner_lifecycle::retry::LoopEnding;
use runner_lifecycle::row::Criterion;
use runner_lifecycle::{CriterionCheck, Lane, TaskId, TaskPriority, TaskRisk};

use super::chance::SimChance;
use crate::roles::LOOK_EVERY_SECS;

/// The file that says whether the base is healthy.
pub(super) const HEALTH: &str = "health";

/// What a result says that changed its own judge.
pub(super) const OWN_JUDGE: &str = "own-judge";

/// What sessions make of the tasks of one lineage, attempt by attempt.
#[derive(Clone, Debug, Default)]
pub struct SimBehaviour {
    /// So many attempts end like that first.
    pub fails: Option<(u32, LoopEnding)>,
    /// So many attempts kill their worker first.
    pub poison: u32,
    /// So many attempts change nothing first.
    pub no_change: u32,
    /// So many attempts name a result that is the same as its start.
    pub empty: u32,
    /// So many attempts change a path outside the scope first.
    pub outside: u32,
    /// So many attempts name a commit that is not there.
    pub missing: u32,
    /// The first result does not go together with that of a task with the other letter.
    pub clash: Option<char>,
    /// So often the reviewer rejects first.
    pub rejections: u32,
    /// Results pass only with what they changed about their own judge.
    pub own_judge: bool,
}

/// How often things go wrong by chance: once in so many times; 0 is never.
#[derive(Clone, Copy, Debug, Default)]
pub struct SimOdds {
    /// A guard that is red for no reason.
    pub flaky: u64,
    /// A guard that does not start.
    pub unable: u64,
    /// Workspaces that cannot do what was asked.
    pub error: u64,
    /// A guard that takes most of an hour.
    pub slow: u64,
    /// A reviewer that says nothing.
    pub silent: u64,
    /// A reviewer that says nonsense.
    pub malformed: u64,
    /// A reviewer whose quota is used up.
    pub review_quota: u64,
}

/// What a person does, and when, in seconds from the start.
#[derive(Clone, Debug)]
pub enum PersonAction {
    /// Pushes to the base.
    Push {
        /// Which path.
        path: String,
        /// What is in it then.
        content: String,
    },
    /// Calls a task off.
    Cancel(TaskId),
    /// Accepts a result that changed its own judge, if the task waits for that.
    Accept(TaskId),
    /// Lets nothing new start, or lets it start again.
    Pause(bool),
    /// Says that the ledger contradicts itself about a task.
    Distrust(TaskId),
    /// Writes an issue, or another text of it.
    Issue {
        /// Its number.
        number: u64,
        /// Its text.
        text: String,
    },
    /// Opens a pull request, or pushes another head of it.
    Pull {
        /// Its number.
        number: u64,
        /// The path that it changes.
        path: String,
        /// What is in it then.
        content: String,
    },
    /// Closes a pull request.
    ClosePull(u64),
    /// Tells a role to stop; it comes back after so many seconds.
    Stop {
        /// Its name.
        name: String,
        /// How long it is away.
        secs: u64,
    },
}

/// Everything that is given before a simulation begins.
#[derive(Clone, Debug, Default)]
pub struct SimScript {
    /// The tasks.
    pub tasks: Vec<NewTask>,
    /// What sessions make of them; all goes well with the others.
    pub behaviours: BTreeMap<TaskId, SimBehaviour>,
    /// What goes wrong by chance.
    pub odds: SimOdds,
    /// When the quota of the account is used up, in seconds from the start.
    pub storms: Vec<(u64, u64)>,
    /// When the source of issues cannot be read, in seconds from the start.
    pub outages: Vec<(u64, u64)>,
    /// What a person does, and when.
    pub actions: Vec<(u64, PersonAction)>,
    /// Whether reviewers are asked.
    pub review: bool,
    /// How many workers there are.
    pub workers: u32,
    /// How many judges.
    pub judges: u32,
    /// How many dispatchers and cycle managers; all but one stand by.
    pub role_leases: u32,
    /// How long a task with a dead dependency waits for a person.
    pub dependency_grace_secs: u64,
    /// The requirement to plan.
    pub requirement: String,
    /// Roles that stand still from a second to another and then go on.
    pub sleepers: Vec<(String, u64, u64)>,
}

/// The id of the n-th task.
pub fn id(at: usize) -> TaskId {
    // Letters and digits are an id.
    TaskId::parse(&format!("t{at}")).unwrap_or_else(|_| unreachable!("an id"))
}

impl SimScript {
    /// Quiet: these tasks, and nothing goes wrong.
    pub fn calm(tasks: Vec<NewTask>) -> SimScript {
        SimScript {
            tasks,
            workers: 2,
            judges: 1,
            role_leases: 1,
            ..SimScript::default()
        }
    }

    /// When nothing happens any more that the fleet cannot know before it looks, in seconds.
    pub(super) fn last_action(&self) -> u64 {
        let actions = self.actions.iter().map(|(at, _)| *at);
        let last = actions.chain(self.outages.iter().map(|(_, to)| *to)).max();
        let outside = self.actions.iter().any(|(_, action)| {
            matches!(
                action,
                PersonAction::Issue { .. } | PersonAction::Pull { .. } | PersonAction::ClosePull(_)
            )
        });
        // Somebody who heard nothing, or crashed, looks again in a while.
        last.unwrap_or(0) + if outside { 3 * LOOK_EVERY_SECS } else { 0 }
    }

    /// A script by chance.
    pub(super) fn random(chance: &mut SimChance) -> SimScript {
        let count = usize::try_from(chance.between(2, 6)).unwrap_or(2);
        let mut script = SimScript {
            odds: odds(chance),
            review: chance.one_in(2),
            workers: u32::try_from(chance.between(1, 3)).unwrap_or(1),
            judges: u32::try_from(chance.between(1, 2)).unwrap_or(1),
            role_leases: u32::try_from(chance.between(1, 2)).unwrap_or(1),
            dependency_grace_secs: if chance.one_in(4) { 1800 } else { 0 },
            ..SimScript::default()
        };
        for at in 0..count {
            let new = task(at, script.review, chance);
            if chance.one_in(2) {
                script.behaviours.insert(new.id.clone(), behaviour(chance));
            }
            script.tasks.push(new);
        }
        if chance.one_in(3) {
            let from = chance.below(400);
            script.storms.push((from, from + chance.between(60, 900)));
        }
        for _ in 0..chance.below(4) {
            let action = action(count, chance);
            if let PersonAction::Pause(true) = action {
                let again = chance.between(300, 1200);
                script.actions.push((again, PersonAction::Pause(false)));
                script.actions.push((chance.below(300), action));
            } else {
                script.actions.push((chance.below(900), action));
            }
        }
        if chance.one_in(3) {
            let names = ["worker-1", "judge-1", "dispatcher-1", "keeper", "cycle-1"];
            let name = chance.of(&names).copied().unwrap_or("worker-1");
            let from = chance.below(600);
            let to = from + chance.between(20, 400);
            script.sleepers.push((name.to_owned(), from, to));
        }
        if chance.one_in(4) {
            "make it better".clone_into(&mut script.requirement);
        }
        script.outside(chance);
        script
    }

    /// What comes from outside, and roles that are told to stop.
    fn outside(&mut self, chance: &mut SimChance) {
        if chance.one_in(3) {
            for number in 1..=chance.between(1, 4) {
                self.actions
                    .push((chance.below(900), issue(number, chance)));
                if chance.one_in(2) {
                    let later = chance.between(900, 1500);
                    self.actions.push((later, issue(number, chance)));
                }
            }
            if chance.one_in(3) {
                let from = chance.below(600);
                self.outages.push((from, from + chance.between(60, 900)));
            }
        }
        if chance.one_in(4) {
            let number = 1;
            for at in 0..chance.between(1, 3) {
                let when = chance.between(at * 300, at * 300 + 300);
                self.actions.push((when, pull(number, chance)));
            }
            if chance.one_in(4) {
                self.actions
                    .push((chance.between(900, 1200), PersonAction::ClosePull(number)));
            }
            if chance.one_in(2) {
                self.behaviours.insert(pull_id(number), behaviour(chance));
            }
        }
        if chance.one_in(4) {
            let count = u64::try_from(self.tasks.len()).unwrap_or(1);
            let at = usize::try_from(chance.below(count)).unwrap_or(0);
            self.actions
                .push((chance.below(600), PersonAction::Distrust(id(at))));
        }
        if chance.one_in(4) {
            let count = u64::try_from(self.tasks.len()).unwrap_or(1);
            let at = usize::try_from(chance.below(count)).unwrap_or(0);
            let behaviour = self.behaviours.entry(id(at)).or_default();
            behaviour.own_judge = true;
            for _ in 0..chance.below(4) {
                let when = chance.between(100, 3000);
                self.actions.push((when, PersonAction::Accept(id(at))));
            }
        }
        if chance.one_in(3) {
            for _ in 0..chance.between(1, 3) {
                let names = ["worker-1", "judge-1", "dispatcher-1", "cycle-1", "keeper"];
                let name = chance.of(&names).copied().unwrap_or("worker-1").to_owned();
                let secs = chance.between(1, 300);
                self.actions
                    .push((chance.below(900), PersonAction::Stop { name, secs }));
            }
        }
    }
}

/// The id of the task that judges a pull request.
pub(super) fn pull_id(number: u64) -> TaskId {
    TaskId::parse(&format!("local-pr-{number}")).unwrap_or_else(|_| id(0))
}

/// An issue that may name a role, its paths, what it needs, and whether it is closed.
fn issue(number: u64, chance: &mut SimChance) -> PersonAction {
    let closed = chance.one_in(8);
    let mut text = String::from(if closed {
        "---\nstate: closed\n---\n"
    } else {
        ""
    });
    let mut lines = vec![format!("# Issue {number}\n")];
    if chance.below(3) > 0 {
        lines.push("Agent: worker".to_owned());
    }
    let path = chance
        .of(&["a/**", "b/**", "i/**"])
        .copied()
        .unwrap_or("a/**");
    lines.push(format!("Allowed paths: {path}"));
    if chance.one_in(3) {
        // Perhaps one that is not there, or itself.
        let needs = chance.between(1, 5);
        lines.push(format!("Depends on: #{needs}"));
    }
    text.push_str(&lines.join("\n"));
    PersonAction::Issue { number, text }
}

fn pull(number: u64, chance: &mut SimChance) -> PersonAction {
    let path = chance.of(&["a/file", "pull/file"]).copied();
    PersonAction::Pull {
        number,
        path: path.unwrap_or("pull/file").to_owned(),
        content: format!("pulled {}", chance.below(1000)),
    }
}

fn odds(chance: &mut SimChance) -> SimOdds {
    if chance.one_in(3) {
        return SimOdds::default();
    }
    SimOdds {
        flaky: 15,
        unable: 20,
        error: 30,
        slow: 10,
        silent: 8,
        malformed: 8,
        review_quota: 20,
    }
}

fn task(at: usize, review: bool, chance: &mut SimChance) -> NewTask {
    let scopes = ["a", "b", "c", "a/x", "docs"];
    let scope = chance.of(&scopes).copied().unwrap_or("a");
    let scope = Resource::parse(scope).unwrap_or_else(|_| Resource::whole_repo());
    let mut new = NewTask {
        title: format!("task {at}"),
        goal: "something is so".to_owned(),
        ..NewTask::new(id(at), scope)
    };
    new.priority = *chance
        .of(TaskPriority::ALL)
        .unwrap_or(&TaskPriority::Normal);
    new.risk = *chance.of(TaskRisk::ALL).unwrap_or(&TaskRisk::Medium);
    match chance.below(6) {
        0 => {
            "tester".clone_into(&mut new.role);
            new.expects_change = false;
        }
        1 => {
            "docser".clone_into(&mut new.role);
            new.lane = Lane::Docser;
        }
        _ => {}
    }
    if review && chance.one_in(2) {
        new.acceptance.push(Criterion {
            id: "good".to_owned(),
            text: "it is good".to_owned(),
            check: CriterionCheck::Review,
        });
    }
    for other in 0..at {
        if chance.one_in(4) {
            new.dependencies.push(id(other));
        }
    }
    if chance.one_in(6) {
        new.timebox_seconds = 600;
    }
    new
}

fn behaviour(chance: &mut SimChance) -> SimBehaviour {
    let mut behaviour = SimBehaviour::default();
    let few = u32::try_from(chance.between(1, 2)).unwrap_or(1);
    match chance.below(10) {
        0 => behaviour.poison = if chance.one_in(3) { 100 } else { few },
        1 => behaviour.no_change = 1,
        2 => behaviour.empty = few,
        3 => behaviour.outside = if chance.one_in(3) { 100 } else { 1 },
        4 => behaviour.missing = 1,
        5 => behaviour.clash = chance.of(&['a', 'b']).copied(),
        6 => behaviour.rejections = few,
        _ => {
            let endings = [
                LoopEnding::Stuck,
                LoopEnding::IterationLimit,
                LoopEnding::Timeout,
                LoopEnding::RunnerError,
                LoopEnding::Budget,
            ];
            let ending = chance.of(&endings).copied().unwrap_or(LoopEnding::Stuck);
            let often = if chance.one_in(5) { 100 } else { few };
            behaviour.fails = Some((often, ending));
        }
    }
    behaviour
}

fn action(tasks: usize, chance: &mut SimChance) -> PersonAction {
    match chance.below(6) {
        0 => PersonAction::Cancel(id(usize::try_from(
            chance.below(u64::try_from(tasks).unwrap_or(1)),
        )
        .unwrap_or(0))),
        1 => PersonAction::Pause(true),
        2 => PersonAction::Push {
            path: HEALTH.to_owned(),
            content: "bad".to_owned(),
        },
        3 | 4 => PersonAction::Push {
            path: "a/file".to_owned(),
            content: format!("pushed {}", chance.below(1000)),
        },
        _ => PersonAction::Push {
            path: "elsewhere".to_owned(),
            content: format!("pushed {}", chance.below(1000)),
        },
    }
}
