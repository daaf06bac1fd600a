//! One scenario for each thing that can happen to a result, over the roles themselves.

use runner_lifecycle::lock::Resource;
use runner_lifecycle::request::NewTask;
use runner_lifecycle::retry::LoopEnding;

use super::super::script::{HEALTH, PersonAction, SimBehaviour, SimOdds, id};
use super::*;

pub(super) fn task(at: usize) -> NewTask {
    let scope = ["a", "b", "c"][at % 3];
    NewTask {
        title: format!("task {at}"),
        ..NewTask::new(id(at), Resource::parse(scope).unwrap())
    }
}

pub(super) fn one_task(behaviour: SimBehaviour) -> SimScript {
    let mut script = SimScript::calm(vec![task(0)]);
    script.behaviours.insert(id(0), behaviour);
    script
}

pub(super) fn calm(script: SimScript) -> SimOptions {
    SimOptions {
        script: Some(script),
        crashes: Some(0),
        losses: Some(0),
        ..SimOptions::default()
    }
}

#[track_caller]
pub(super) fn play(script: SimScript) -> SimReport {
    let report = simulate(1, &calm(script));
    assert!(
        report.is_clean(),
        "{:#?} {:#?}",
        report.faults,
        report.tasks
    );
    report
}

#[track_caller]
pub(super) fn ends(script: SimScript, expected: &[&str]) -> SimReport {
    let report = play(script);
    assert_eq!(report.tasks, expected, "{:#?}", report.history);
    report
}

pub(super) fn happened(report: &SimReport, event: &str) -> usize {
    let events = report.history.iter();
    events.filter(|one| one.as_str() == event).count()
}

#[test]
fn a_result_that_changed_its_own_judge_waits_for_a_person() {
    let own_judge = SimBehaviour {
        own_judge: true,
        ..SimBehaviour::default()
    };
    ends(
        one_task(own_judge.clone()),
        &["t0 blocked changed_judge: task 0"],
    );
    let mut script = one_task(own_judge);
    script.actions.push((3000, PersonAction::Accept(id(0))));
    let report = ends(script, &["t0 done -: task 0"]);
    assert_eq!(
        happened(&report, "t0 judge_accepted"),
        2,
        "{:?}",
        report.history
    );
    assert_eq!(report.model_calls, 1, "the same result");
}

#[test]
fn a_good_result_is_merged() {
    let report = ends(one_task(SimBehaviour::default()), &["t0 done -: task 0"]);
    assert_eq!(report.model_calls, 1);
}

#[test]
fn an_empty_diff_is_never_approved() {
    let behaviour = SimBehaviour {
        empty: 1,
        ..SimBehaviour::default()
    };
    let expected = ["t0 failed -: task 0", "t0.2 done -: [AutoFix] task 0"];
    let report = ends(one_task(behaviour), &expected);
    assert_eq!(happened(&report, "t0 rejected"), 1);
    assert_eq!(happened(&report, "t0 approved"), 0);
}

#[test]
fn a_missing_commit_is_no_pass() {
    let behaviour = SimBehaviour {
        missing: 1,
        ..SimBehaviour::default()
    };
    let expected = ["t0 failed -: task 0", "t0.2 done -: [Rework] task 0"];
    let report = ends(one_task(behaviour), &expected);
    assert_eq!(happened(&report, "t0 judge_retry"), 5);
    assert_eq!(happened(&report, "t0 approved"), 0);
}

#[test]
fn a_guard_that_does_not_start_is_no_pass() {
    let mut script = one_task(SimBehaviour::default());
    script.odds = SimOdds {
        unable: 1,
        ..SimOdds::default()
    };
    let report = play(script);
    assert!(report.tasks.iter().all(|task| !task.contains(" done ")));
    assert_eq!(happened(&report, "t0 merge_intent"), 0);
    assert_eq!(happened(&report, "t0 judge_exhausted"), 1);
}

#[test]
fn a_reviewer_that_says_nothing_or_nonsense_is_no_pass() {
    for (silent, malformed) in [(1, 0), (0, 1)] {
        let mut script = one_task(SimBehaviour::default());
        script.review = true;
        script.odds = SimOdds {
            silent,
            malformed,
            ..SimOdds::default()
        };
        let report = play(script);
        assert_eq!(happened(&report, "t0 judge_retry"), 5);
        assert_eq!(happened(&report, "t0 approved"), 0);
        assert!(report.tasks.iter().all(|task| !task.contains(" done ")));
    }
}

#[test]
fn a_reviewer_that_rejects_gets_a_fix() {
    let mut script = one_task(SimBehaviour {
        rejections: 2,
        ..SimBehaviour::default()
    });
    script.review = true;
    let expected = [
        "t0 failed -: task 0",
        "t0.2 failed -: [AutoFix] task 0",
        "t0.3 done -: [AutoFix] task 0",
    ];
    ends(script, &expected);
}

#[test]
fn a_base_that_moves_under_the_guard_is_tested_anew() {
    let mut script = one_task(SimBehaviour::default());
    script.actions = (0..400)
        .map(|at| {
            let push = PersonAction::Push {
                path: "elsewhere".to_owned(),
                content: at.to_string(),
            };
            (at * 3, push)
        })
        .collect();
    let report = ends(script, &["t0 done -: task 0"]);
    assert!(happened(&report, "t0 merge_intent_void") > 0);
}

#[test]
fn a_conflict_gets_a_task_of_its_own() {
    let mut script = one_task(SimBehaviour::default());
    script.actions = (1..200)
        .map(|at| {
            let push = PersonAction::Push {
                path: "a/file".to_owned(),
                content: at.to_string(),
            };
            (at, push)
        })
        .collect();
    let report = play(script);
    assert!(report.tasks[0].starts_with("t0 failed"), "{report:#?}");
    assert!(report.tasks[1].contains("[AutoFix-Conflict]"));
    assert!(report.tasks.last().unwrap().contains(" done "));
}

#[test]
fn an_old_owner_that_wakes_up_writes_nothing() {
    let mut script = one_task(SimBehaviour::default());
    // It begins at once, and its machine sleeps for longer than its lease.
    script.workers = 1;
    script.sleepers = vec![("worker-1".to_owned(), 1, 500)];
    let report = ends(script, &["t0 done -: task 0"]);
    assert_eq!(happened(&report, "t0 task_timeout"), 1);
    assert_eq!(happened(&report, "t0 run_succeeded"), 1);
    assert_eq!(report.model_calls, 2, "what it had made was refused");
}

#[test]
fn a_red_base_is_mended_first() {
    let mut script = one_task(SimBehaviour::default());
    script.actions = vec![(
        0,
        PersonAction::Push {
            path: HEALTH.to_owned(),
            content: "bad".to_owned(),
        },
    )];
    let expected = [
        "fix-base-c0001 done -: [Fix-Base] make the guard green on the base",
        "t0 done -: task 0",
    ];
    let report = ends(script, &expected);
    assert_eq!(happened(&report, "t0 stepped_back"), 1);
    assert_eq!(happened(&report, "t0 rejected"), 0, "not its fault");
}

#[test]
fn nothing_else_begins_while_the_base_is_red() {
    // Each could begin at any time: no two overlap.
    let apart = |at: usize| NewTask {
        lock_scope: vec![Resource::parse(&format!("d{at}")).unwrap()],
        ..task(at)
    };
    let mut script = SimScript::calm((0..6).map(apart).collect());
    script.workers = 2;
    script.actions = vec![(
        0,
        PersonAction::Push {
            path: HEALTH.to_owned(),
            content: "bad".to_owned(),
        },
    )];
    let options = SimOptions {
        log: true,
        ..calm(script)
    };
    let report = simulate(1, &options);
    assert!(report.is_clean(), "{:#?}", report.faults);
    assert_eq!(report.tasks.len(), 7);
    assert!(report.tasks.iter().all(|task| task.contains(" done ")));
    let lines = || report.log.iter();
    let red = lines().position(|line| line.ends_with("after set_red_base"));
    let merged = lines().position(|line| line.ends_with("before settle"));
    let while_red = &report.log[red.unwrap()..merged.unwrap()];
    let began = while_red
        .iter()
        .filter(|line| line.ends_with("before work"));
    assert_eq!(began.count(), 1, "only what fixes it: {while_red:#?}");
    assert_eq!(happened(&report, "fix-base-c0001 merged"), 1);
}

#[test]
fn a_base_that_a_person_fixes_is_tried_and_work_goes_on() {
    let push = |content: &str| PersonAction::Push {
        path: HEALTH.to_owned(),
        content: content.to_owned(),
    };
    let mut script = SimScript::calm((0..4).map(task).collect());
    script.actions = vec![(0, push("bad")), (900, push("good"))];
    // Whatever is made of the fix is thrown away.
    let behaviour = SimBehaviour {
        fails: Some((u32::MAX, LoopEnding::Stuck)),
        ..SimBehaviour::default()
    };
    let fix = runner_lifecycle::TaskId::parse("fix-base-c0001").unwrap();
    script.behaviours.insert(fix, behaviour);
    let report = simulate(1, &calm(script));
    assert!(report.is_clean(), "{:#?}", report.faults);
    for at in 0..4 {
        let done = format!("t{at} done -: task {at}");
        assert!(report.tasks.contains(&done), "{:#?}", report.tasks);
    }
}

#[test]
fn crashes_around_intent_base_and_done_lose_and_double_nothing() {
    for call in ["intent", "move_base", "settle"] {
        for after in [false, true] {
            for all in [false, true] {
                let crash_at = Some(CrashAt {
                    call,
                    after,
                    arrival: 1,
                    all,
                });
                let options = SimOptions {
                    crash_at,
                    ..calm(one_task(SimBehaviour::default()))
                };
                let report = simulate(1, &options);
                let words = format!("{crash_at:?} {:#?}", report.faults);
                assert!(report.is_clean(), "{words}");
                assert_eq!(report.crashes, 1, "{words}");
                assert_eq!(report.tasks, ["t0 done -: task 0"], "{words}");
                assert_eq!(report.model_calls, 1, "good work is not redone: {words}");
            }
        }
    }
}

#[test]
fn a_crash_at_any_point_loses_and_doubles_nothing() {
    let plain = simulate(1, &calm(one_task(SimBehaviour::default())));
    for call in plain.calls.keys().copied() {
        for after in [false, true] {
            let crash_at = Some(CrashAt {
                call,
                after,
                arrival: 1,
                all: true,
            });
            let options = SimOptions {
                crash_at,
                ..calm(one_task(SimBehaviour::default()))
            };
            let report = simulate(1, &options);
            let words = format!("{crash_at:?} {:#?}", report.faults);
            assert!(report.is_clean(), "{words}");
            assert_eq!(report.tasks, ["t0 done -: task 0"], "{words}");
        }
    }
}

#[test]
fn a_quota_is_waited_for() {
    let mut script = one_task(SimBehaviour::default());
    script.storms = vec![(0, 1000)];
    let report = ends(script, &["t0 done -: task 0"]);
    assert!(happened(&report, "t0 quota_wait") > 0);
    assert!(report.seconds >= 1000);
}

#[test]
fn a_task_that_kills_its_workers_comes_to_an_end() {
    let behaviour = SimBehaviour {
        poison: 100,
        ..SimBehaviour::default()
    };
    let report = ends(one_task(behaviour), &["t0 failed -: task 0"]);
    assert_eq!(report.model_calls, 6);
}

#[test]
fn whatever_depends_on_a_dead_task_ends_too() {
    let mut script = one_task(SimBehaviour {
        no_change: 100,
        ..SimBehaviour::default()
    });
    script.tasks.push(NewTask {
        dependencies: vec![id(0)],
        ..task(1)
    });
    let expected = ["t0 failed -: task 0", "t1 failed -: task 1"];
    let report = ends(script, &expected);
    assert_eq!(happened(&report, "t1 dependency_dead"), 1);
}

#[test]
fn a_scope_is_widened_once_where_that_is_safe() {
    let behaviour = SimBehaviour {
        outside: 1,
        ..SimBehaviour::default()
    };
    let report = ends(one_task(behaviour), &["t0 done -: task 0"]);
    assert_eq!(happened(&report, "t0 run_blocked"), 1);
    assert_eq!(happened(&report, "t0 replan"), 1);
}

#[test]
fn results_that_do_not_go_together_are_not_both_merged() {
    let mut script = SimScript::calm(vec![task(0), task(1)]);
    for (at, letter) in [(0, 'a'), (1, 'b')] {
        let clash = SimBehaviour {
            clash: Some(letter),
            ..SimBehaviour::default()
        };
        script.behaviours.insert(id(at), clash);
    }
    let report = play(script);
    let done = report.tasks.iter().filter(|task| task.contains(" done "));
    assert_eq!(done.count(), 2, "{:#?}", report.tasks);
    assert!(report.tasks.iter().any(|task| task.contains("[AutoFix]")));
}

#[test]
fn a_failure_is_tried_again() {
    let behaviour = SimBehaviour {
        fails: Some((2, LoopEnding::Stuck)),
        ..SimBehaviour::default()
    };
    let report = ends(one_task(behaviour), &["t0 done -: task 0"]);
    assert_eq!(happened(&report, "t0 run_failed_test"), 2);
}

#[test]
fn a_requirement_becomes_tasks_once() {
    let mut script = SimScript::calm(Vec::new());
    script.requirement = "make it better".to_owned();
    for arrival in 0..3 {
        let options = SimOptions {
            crash_at: Some(CrashAt {
                call: "create_all",
                after: arrival == 1,
                arrival: u32::from(arrival > 0),
                all: false,
            })
            .filter(|_| arrival > 0),
            ..calm(script.clone())
        };
        let report = simulate(1, &options);
        assert!(report.is_clean(), "{:#?}", report.faults);
        assert_eq!(report.tasks.len(), 2, "{:#?}", report.tasks);
        assert!(report.tasks.iter().all(|task| task.contains(" done ")));
    }
}

/// An hour with nothing to do: heartbeats once a minute, a look every five, no model.
#[test]
fn an_idle_fleet_costs_nothing() {
    let options = SimOptions {
        for_secs: Some(3600),
        ..calm(SimScript::calm(Vec::new()))
    };
    let report = simulate(1, &options);
    assert!(report.is_clean(), "{:#?}", report.faults);
    assert_eq!(report.model_calls, 0);
    let (agents, looks) = (5, 13);
    let allowed = [
        ("listen", 7),
        ("register", agents),
        // Once a minute for each agent and each role lease.
        ("seen", 60 * agents),
        ("sit", 2),
        ("stay", 60 * 2),
        // Every five minutes, and what the registrations at the start were heard of.
        ("assigned", 4 * (looks + agents)),
        ("bench", looks + agents),
        ("floor", looks + agents),
        ("waits_for_dead", looks + agents),
        ("head", looks + agents),
        ("to_recover", looks + agents),
        ("keep", looks + agents),
        ("counts", looks),
        ("sync", looks),
        ("kept", 1),
    ];
    for (call, count) in &report.calls {
        let limit = allowed.iter().find(|(name, _)| name == call);
        let limit = limit.unwrap_or_else(|| panic!("{call} was called {count} times"));
        assert!(*count <= limit.1, "{call}: {count} of {} allowed", limit.1);
    }
    // A heartbeat is three statements (begin, update, commit), a look a few.
    assert!(
        report.statements < 3 * 60 * 7 + 400,
        "{}",
        report.statements
    );
}
