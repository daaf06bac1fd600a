//! What must hold in every state, the runs of the checker, and ten rules left out.

use std::collections::BTreeSet;
use std::sync::Mutex;

use stateright::{Checker, Expectation, HasDiscoveries, Model};

use super::person::Wish;
use super::{Fleet, Slot, World, id, store};
use crate::lock::{Resource, overlap};
use crate::packet::CheckStatus;
use crate::policy::{Policy, PolicyRule};
use crate::row::{Criterion, Task};
use crate::words::{CriterionCheck, FailureCategory, LeasePurpose, TaskRunStatus, TaskState};

pub(super) fn no_overlapping_locks(world: &World) -> bool {
    let slots = &world.slots;
    (0..slots.len()).all(|at| {
        slots[at + 1..]
            .iter()
            .all(|other| !overlap(&slots[at].locks, &other.locks))
    })
}

/// A task in progress has one owner, who holds its lease; any other has none.
pub(super) fn one_owner(world: &World) -> bool {
    world.slots.iter().all(|slot| match &slot.lease {
        Some(lease) => {
            slot.task.state == TaskState::InProgress
                && slot.task.owner.as_ref() == Some(&lease.owner)
                && slot.task.token == lease.token
        }
        None => slot.task.state != TaskState::InProgress,
    })
}

/// Looks at the packets themselves, not at what the rules made of them.
pub(super) fn done_has_evidence(world: &World) -> bool {
    let done = world
        .slots
        .iter()
        .filter(|slot| slot.task.state == TaskState::Done);
    done.into_iter().all(|slot| {
        let Some(run) = slot
            .run
            .as_ref()
            .filter(|run| run.status == TaskRunStatus::Success)
        else {
            return false;
        };
        let judged = slot.task.needs_judge();
        let packet = if judged {
            &run.judge_packet
        } else {
            &run.packet
        };
        let answered = |criterion: &Criterion| {
            packet.as_ref().is_some_and(|packet| {
                packet.acceptance_check.iter().any(|answer| {
                    answer.criterion == criterion.id
                        && answer.status == CheckStatus::Pass
                        && !answer.evidence.is_empty()
                })
            })
        };
        slot.task.acceptance.iter().all(answered)
    })
}

/// What is in the base is done, or its intent is still open; what is done is in the base.
pub(super) fn merged_is_done(world: &World) -> bool {
    world.slots.iter().all(|slot| {
        let root = &slot.task.lineage.root;
        let mine = || world.slots.iter().filter(|s| s.task.lineage.root == *root);
        let done = mine().any(|slot| slot.task.state == TaskState::Done && slot.task.needs_merge());
        let merging = mine().any(|slot| slot.task.intent.is_some() && slot.landed);
        let merged = world.merged.get(root).is_some_and(|times| *times > 0);
        merged == (done || merging)
    })
}

/// A worker has locked what its task may change now.
pub(super) fn work_holds_its_scope(world: &World) -> bool {
    world.slots.iter().all(|slot| match &slot.lease {
        Some(lease) if lease.purpose == LeasePurpose::Work => slot.locks == slot.task.work_scope(),
        _ => true,
    })
}

/// A task is succeeded once, by the one that it names.
pub(super) fn one_successor(world: &World) -> bool {
    world.slots.iter().all(|slot| {
        let of = |other: &&Slot| other.task.rework_of.as_ref() == Some(&slot.task.id);
        let mut successors = world.slots.iter().filter(of).map(|other| &other.task.id);
        successors.all(|successor| slot.task.superseded_by.as_ref() == Some(successor))
    })
}

pub(super) fn agree(world: &World) -> bool {
    world.broken.is_some() || store::inconsistencies(world, &world.slots, true).is_empty()
}

/// Limits of two where the defaults have ten: the same rules, fewer repetitions.
pub(super) fn small_policy() -> Policy {
    Policy {
        max_runs: 2,
        retries: FailureCategory::ALL.iter().map(|one| (*one, 1)).collect(),
        signature_streak: 9,
        max_lost: 1,
        max_judge_attempts: 1,
        max_replans: 1,
        max_auto_fixes: 1,
        max_conflict_fixes: 1,
        max_recreations: 0,
        max_rework_depth: 1,
        max_lineage: 2,
        owner_failures: 99,
        dependency_grace_secs: 0,
        ..Policy::default()
    }
}

pub(super) fn task(name: &str, scope: &str) -> Task {
    let criterion = |name: &str, check| Criterion {
        id: name.to_owned(),
        text: String::new(),
        check,
    };
    Task {
        version: 1,
        role: "worker".to_owned(),
        lock_scope: Resource::parse(scope).into_iter().collect(),
        acceptance: vec![
            criterion("guard", CriterionCheck::Command),
            criterion("review", CriterionCheck::Review),
        ],
        created_at: super::NOW,
        updated_at: super::NOW,
        ..Task::blank(id(name))
    }
}

/// One task, everything that can happen to it.
pub(super) fn one_task() -> Fleet {
    Fleet {
        policy: small_policy(),
        tasks: vec![task("a", "src")],
        workers: 2,
        judges: 2,
        faults: 1,
        failures: true,
        wishes: Vec::new(),
        detours: 0,
        lengths: false,
        harms: 0,
        deadly: false,
        races: true,
        depths: Mutex::default(),
        followed: Mutex::default(),
    }
}

/// Two tasks that want the same place.
fn two_tasks() -> Fleet {
    let policy = Policy {
        max_lineage: 1,
        ..small_policy()
    };
    Fleet {
        policy,
        tasks: vec![task("a", "src"), task("b", "src/x")],
        failures: false,
        faults: 1,
        ..one_task()
    }
}

/// Two tasks, the second of which needs the first, or its successor.
fn a_chain() -> Fleet {
    let mut second = task("b", "docs");
    second.dependencies = vec![id("a")];
    Fleet {
        policy: small_policy(),
        tasks: vec![task("a", "src"), second],
        ..two_tasks()
    }
}

/// A task that kills everybody who touches it.
fn a_deadly_task() -> Fleet {
    Fleet {
        faults: 0,
        deadly: true,
        ..one_task()
    }
}

/// One task that ends well, but for faults and a person who cancels.
pub(super) fn a_quiet_task() -> Fleet {
    Fleet {
        failures: false,
        wishes: vec![Wish::Cancel],
        ..one_task()
    }
}

/// One task that everybody approves of, and two faults.
fn two_faults_in_the_queue() -> Fleet {
    Fleet {
        faults: 2,
        wishes: Vec::new(),
        ..a_quiet_task()
    }
}

/// What the checker came to.
pub(super) struct Found {
    /// The properties that do not hold, each with the steps that lead there.
    broken: Vec<(&'static str, String)>,
    states: usize,
    /// The requests that were followed.
    followed: BTreeSet<&'static str>,
}

fn explore(name: &str, fleet: Fleet, until: HasDiscoveries) -> Found {
    let checker = fleet
        .checker()
        .finish_when(until)
        .threads(2)
        .spawn_bfs()
        .join();
    let found = checker.discoveries();
    let model = checker.model();
    println!(
        "{name}: {} states, {} distinct, at most {} steps to the end",
        checker.state_count(),
        checker.unique_state_count(),
        model.longest(),
    );
    let mut broken = Vec::new();
    for property in model.properties() {
        let wanted = property.expectation == Expectation::Sometimes;
        let path = found.get(property.name);
        if path.is_some() != wanted {
            let steps = path.map(|path| format!("{:?}", path.clone().into_actions()));
            broken.push((property.name, steps.unwrap_or_default()));
        }
    }
    let followed = model.followed.lock();
    Found {
        broken,
        states: checker.unique_state_count(),
        followed: followed.map_or_else(|_| BTreeSet::new(), |followed| followed.clone()),
    }
}

/// Every reachable state is visited, and everything holds in each. What was asked and
/// followed there.
pub(super) fn holds(name: &str, fleet: Fleet, at_least: usize) -> BTreeSet<&'static str> {
    let found = explore(name, fleet, HasDiscoveries::All);
    assert_eq!(found.broken, [], "{name}");
    assert!(
        found.states >= at_least,
        "{name}: only {} states",
        found.states
    );
    found.followed
}

/// Leaves the rule out, and the checker finds that this does not hold then.
pub(super) fn is_noticed(rule: PolicyRule, mut fleet: Fleet, expected: &'static str) {
    fleet.policy.without = Some(rule);
    let name = format!("without {rule:?}");
    let found = explore(&name, fleet, HasDiscoveries::AnyOf([expected].into()));
    let noticed: Vec<&str> = found.broken.iter().map(|(name, _)| *name).collect();
    println!("{name}: {:?}", found.broken.first());
    assert!(noticed.contains(&expected), "{name}: {noticed:?}");
}

#[test]
fn one_task_with_everything_that_can_happen() {
    holds("one task", one_task(), 10_000);
}

#[test]
fn one_task_and_two_faults() {
    let fleet = Fleet {
        faults: 2,
        ..a_quiet_task()
    };
    holds("one task, two faults", fleet, 10_000);
}

#[test]
fn two_tasks_in_the_same_place() {
    holds("two tasks", two_tasks(), 1_000);
}

#[test]
fn a_task_that_needs_another() {
    holds("a chain", a_chain(), 1_000);
}

#[test]
fn a_task_that_kills_its_owners() {
    holds("a deadly task", a_deadly_task(), 50);
}

/// More faults and more tasks than there is time for in every run.
#[test]
#[ignore = "minutes: `cargo xtask model --all`"]
fn larger_spaces() {
    let faults = |faults, fleet| Fleet { faults, ..fleet };
    holds("a chain, two faults", faults(2, a_chain()), 5_000);
    holds("two tasks, two faults", faults(2, two_tasks()), 50_000);
    holds("one task, three faults", faults(3, a_quiet_task()), 100_000);
    holds(
        "one task, failures, two faults",
        faults(2, one_task()),
        100_000,
    );
}

/// Without the rule, the checker finds what the rule is there for.
#[test]
fn each_rule_that_is_left_out_is_noticed() {
    // The rule, where it is left out, and the property that does not hold then.
    type Row = (PolicyRule, fn() -> Fleet, &'static str);
    let end = "everything ends or is parked";
    let rows: [Row; 14] = [
        (PolicyRule::Fencing, a_quiet_task, "only the owner writes"),
        (
            PolicyRule::CompareAndSet,
            a_quiet_task,
            "no event is lost or doubled",
        ),
        (
            PolicyRule::Receipts,
            a_quiet_task,
            "a repeat gets its answer",
        ),
        (PolicyRule::LockConflicts, two_tasks, "no overlapping locks"),
        (
            PolicyRule::LockRelease,
            two_tasks,
            "rows, locks, leases and runs agree",
        ),
        (PolicyRule::Evidence, a_quiet_task, "done has evidence"),
        (
            PolicyRule::TerminalStates,
            a_quiet_task,
            "no way out of a terminal state",
        ),
        (
            PolicyRule::IntentFirst,
            a_quiet_task,
            "rows, locks, leases and runs agree",
        ),
        (
            PolicyRule::IntentRollForward,
            a_quiet_task,
            "merged is done",
        ),
        (
            PolicyRule::IntentNamed,
            two_faults_in_the_queue,
            "merged is done",
        ),
        (PolicyRule::LostCount, a_deadly_task, end),
        (PolicyRule::Unjudge, a_quiet_task, end),
        (PolicyRule::LineageLimit, one_task, end),
        (PolicyRule::DeadDependency, a_chain, end),
    ];
    for (rule, fleet, expected) in rows {
        is_noticed(rule, fleet(), expected);
    }
}
