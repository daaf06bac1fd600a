//! Rules left out on purpose: the checkers find each.

use super::super::script::{SimBehaviour, id};
use super::super::shared::SimFlaw;
use super::scenarios::{calm, one_task};
use super::*;
use crate::roles::RoleRule;

/// Whether a run of these options shows a fault with such words.
#[track_caller]
pub(super) fn is_found(options: &SimOptions, words: &str) {
    let mut seen = Vec::new();
    for seed in 1..=60 {
        let report = simulate(seed, options);
        if report.faults.iter().any(|fault| fault.contains(words)) {
            return;
        }
        seen.extend(report.faults);
    }
    panic!("nothing with {words:?} was found: {seen:#?}");
}

fn crash(call: &'static str, after: bool, options: SimOptions) -> SimOptions {
    SimOptions {
        crash_at: Some(CrashAt {
            call,
            after,
            arrival: 1,
            all: false,
        }),
        ..options
    }
}

pub(super) fn without(rule: RoleRule, options: SimOptions) -> SimOptions {
    SimOptions {
        without: Some(rule),
        ..options
    }
}

fn plain() -> SimOptions {
    calm(one_task(SimBehaviour::default()))
}

#[test]
fn a_base_that_moves_before_its_intent() {
    let options = without(RoleRule::IntentBeforeBase, plain());
    is_found(&crash("move_base", true, options), "in the base 1 times");
}

#[test]
fn an_intent_that_is_not_rolled_forward() {
    let options = without(RoleRule::RollForward, plain());
    is_found(&crash("move_base", true, options), "in the base 1 times");
}

#[test]
fn work_without_heartbeats() {
    is_found(&without(RoleRule::Heartbeats, plain()), "ran beside");
}

#[test]
fn writes_without_fencing() {
    let mut script = one_task(SimBehaviour::default());
    script.workers = 3;
    script.sleepers = ["worker-1", "worker-2"]
        .map(|name| (name.to_owned(), 1, 150))
        .into();
    let options = without(RoleRule::Fencing, calm(script));
    is_found(&options, "whose result it is not");
}

#[test]
fn a_guard_on_something_else_than_what_is_merged() {
    is_found(&without(RoleRule::GuardOnMerge, plain()), "never green");
}

#[test]
fn results_that_are_judged_by_themselves() {
    let script = one_task(SimBehaviour {
        own_judge: true,
        ..SimBehaviour::default()
    });
    let options = without(RoleRule::Inversion, calm(script));
    is_found(&options, "changed its own judge, is merged");
}

#[test]
fn dead_dependencies_that_nobody_notices() {
    let mut script = one_task(SimBehaviour {
        no_change: 100,
        ..SimBehaviour::default()
    });
    let mut second = script.tasks[0].clone();
    second.id = id(1);
    second.dependencies = vec![id(0)];
    script.tasks.push(second);
    is_found(
        &without(RoleRule::DeadDependency, calm(script)),
        "nothing moves any longer",
    );
}

#[test]
fn rework_that_nobody_makes() {
    let script = one_task(SimBehaviour {
        empty: 1,
        ..SimBehaviour::default()
    });
    is_found(
        &without(RoleRule::Recovery, calm(script)),
        "nothing moves any longer",
    );
}

#[test]
fn a_base_that_moves_wherever_it_stands() {
    let mut script = one_task(SimBehaviour::default());
    script.actions = (0..100)
        .map(|at| {
            let push = PersonAction::Push {
                path: "elsewhere".to_owned(),
                content: at.to_string(),
            };
            (at * 20, push)
        })
        .collect();
    // Between the look at the base and its move somebody may push.
    let options = SimOptions {
        flaw: Some(SimFlaw::NoCompareAndSet),
        ..calm(script)
    };
    is_found(&options, "pushed and is not in the base");
}

#[test]
fn workspaces_that_lie_about_the_base() {
    let options = SimOptions {
        flaw: Some(SimFlaw::LiesAboutPosition),
        ..plain()
    };
    is_found(&options, "in the base 1 times");
}
