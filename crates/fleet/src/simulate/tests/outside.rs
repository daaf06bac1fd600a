//! Issues, pull requests and plans while a fleet runs, roles that are told to stop, and the
//! rules for all that left out on purpose.

use runner_lifecycle::TaskId;

use super::super::script::{SimBehaviour, id, pull_id};
use super::mutations::{is_found, without};
use super::scenarios::{calm, ends, happened, one_task, play};
use super::*;
use crate::roles::RoleRule;

fn issue(number: u64, text: &str) -> PersonAction {
    let text = format!("# Issue {number}\n\nAllowed paths: i{number}/**\n{text}\n");
    PersonAction::Issue { number, text }
}

fn pull(content: &str) -> PersonAction {
    PersonAction::Pull {
        number: 1,
        path: "pull/file".to_owned(),
        content: content.to_owned(),
    }
}

fn script(actions: &[(u64, PersonAction)]) -> SimScript {
    SimScript {
        actions: actions.to_vec(),
        ..SimScript::calm(Vec::new())
    }
}

/// An issue appears and is written again without a change of meaning; another one needs it.
fn issues() -> SimScript {
    script(&[
        (100, issue(1, "Agent: worker")),
        (150, issue(2, "Agent: worker\nDepends on: #1")),
        (400, issue(1, "Agent: worker\n\nMore words.")),
        (500, issue(3, "Agent: worker\nDepends on: #3")),
        (500, issue(4, "Agent: worker\nDepends on: #99")),
    ])
}

#[test]
fn issues_become_tasks_once_while_it_runs() {
    let expected = ["issue-1 done -: Issue 1", "issue-2 done -: Issue 2"];
    let report = ends(issues(), &expected);
    assert_eq!(happened(&report, "issue-1 created"), 1);
}

#[test]
fn issues_that_nobody_brings_in() {
    let options = without(RoleRule::Import, calm(issues()));
    is_found(&options, "waits outside and is no task");
}

fn without_a_role() -> SimScript {
    script(&[
        (10, issue(1, "")),
        (20, issue(2, "")),
        (1000, issue(1, "Agent: worker")),
    ])
}

#[test]
fn an_issue_waits_until_it_says_who_does_it() {
    let expected = [
        "issue-1 done -: Issue 1",
        "issue-2 blocked issue_linking: Issue 2",
    ];
    ends(without_a_role(), &expected);
}

#[test]
fn an_issue_that_says_who_does_it_and_is_not_heard() {
    let options = without(RoleRule::IssueFacts, calm(without_a_role()));
    is_found(&options, "says how to go on, and nobody does");
}

#[test]
fn an_issue_that_is_closed_while_it_waits_is_called_off() {
    let closed = PersonAction::Issue {
        number: 1,
        text: "---\nstate: closed\n---\n# Issue 1\n".to_owned(),
    };
    let script = script(&[(10, issue(1, "")), (1000, closed)]);
    ends(script, &["issue-1 canceled -: Issue 1"]);
}

#[test]
fn a_source_that_fails_for_a_while_loses_nothing() {
    let mut script = issues();
    script.outages = vec![(0, 2000)];
    let report = play(script);
    assert!(report.seconds > 2000, "{}", report.seconds);
    assert_eq!(
        happened(&report, "issue-2 merged"),
        1,
        "{:#?}",
        report.history
    );
}

#[test]
fn a_pull_request_is_judged_and_merged() {
    let report = ends(script(&[(10, pull("x"))]), &["local-pr-1 done -: pull 1"]);
    assert_eq!(report.model_calls, 0, "nobody works on it");
}

/// Rejected, with another head before that was said.
fn new_head() -> SimScript {
    let mut script = script(&[(10, pull("x")), (12, pull("y"))]);
    script.review = true;
    let behaviour = SimBehaviour {
        rejections: 1,
        ..SimBehaviour::default()
    };
    script.behaviours.insert(pull_id(1), behaviour);
    script
}

#[test]
fn another_head_is_judged_in_place_of_the_one_that_was_rejected() {
    let report = ends(new_head(), &["local-pr-1 done -: pull 1"]);
    let again = "local-pr-1 pr_review_needs_rework_missing_run_retry";
    // Out of the old reason and into the new one: two events of one change.
    assert_eq!(happened(&report, again), 2, "{:#?}", report.history);
}

#[test]
fn a_rejected_pull_request_without_another_head_is_mended_by_a_worker() {
    let mut script = new_head();
    script.actions.truncate(1);
    let expected = [
        "local-pr-1 failed -: pull 1",
        "local-pr-1.2 done -: [AutoFix] pull 1",
    ];
    ends(script, &expected);
}

#[test]
fn another_head_that_nobody_sees() {
    let options = without(RoleRule::NewHead, calm(new_head()));
    is_found(&options, "was given to a worker, and has another head");
}

fn doubted() -> SimScript {
    let mut script = one_task(SimBehaviour::default());
    script.actions = vec![
        (0, PersonAction::Pause(true)),
        (5, PersonAction::Distrust(id(0))),
    ];
    script.actions.push((600, PersonAction::Pause(false)));
    script
}

#[test]
fn what_was_doubted_and_nobody_repairs() {
    let options = without(RoleRule::Repair, calm(doubted()));
    is_found(
        &options,
        "is blocked(LEDGER_INCONSISTENT) and waits for nobody",
    );
}

/// Everybody is told to stop, twice.
fn stops() -> SimScript {
    let mut script = one_task(SimBehaviour::default());
    let names = ["worker-1", "worker-2", "judge-1", "dispatcher-1", "cycle-1"];
    script.actions = (0..10)
        .map(|at| {
            let name = names[usize::try_from(at).unwrap() % names.len()].to_owned();
            (at * 13, PersonAction::Stop { name, secs: 3 })
        })
        .collect();
    script
}

#[test]
fn who_is_told_to_stop_gives_back_and_comes_back() {
    for seed in 1..=20 {
        let report = simulate(seed, &calm(stops()));
        assert!(report.is_clean(), "{:#?}", report.faults);
        assert_eq!(report.tasks, ["t0 done -: task 0"]);
    }
}

#[test]
fn who_stops_and_keeps_what_it_held() {
    let options = without(RoleRule::GiveBack, calm(stops()));
    is_found(&options, "has stopped and holds t0");
}

/// A requirement, and a planner that looks again while a task is worked on.
fn plan_and_task() -> SimScript {
    let mut script = one_task(SimBehaviour::default());
    "make it better".clone_into(&mut script.requirement);
    let name = "planner".to_owned();
    script.actions = vec![(3, PersonAction::Stop { name, secs: 1 })];
    script
}

#[test]
fn a_plan_comes_after_the_backlog() {
    let report = play(plan_and_task());
    let planned = report.tasks.iter().filter(|task| task.starts_with('p'));
    assert_eq!(planned.count(), 2, "{:#?}", report.tasks);
}

#[test]
fn a_plan_that_does_not_wait_for_the_backlog() {
    let options = without(RoleRule::BacklogFirst, calm(plan_and_task()));
    is_found(&options, "a plan was asked for while t0 was open");
}

#[test]
fn ids_of_pull_requests_are_those_that_tasks_get() {
    assert_eq!(pull_id(3), TaskId::parse("local-pr-3").unwrap());
}
