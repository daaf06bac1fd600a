//! Small spaces for what the larger ones do not ask: people and their wishes, endings
//! that are not counted, lengths of time, and a store that was damaged.

use std::collections::BTreeSet;

use super::checks::{a_quiet_task, holds, is_noticed, one_task, small_policy, task};
use super::person::Wish;
use super::{Fleet, kinds};
use crate::policy::{Policy, PolicyRule};
use crate::row::Task;
use crate::words::{CriterionCheck, RefusalCode};

/// One worker and one judge, and nothing that goes wrong.
fn a_couple() -> Fleet {
    Fleet {
        workers: 1,
        judges: 1,
        faults: 0,
        wishes: Vec::new(),
        ..a_quiet_task()
    }
}

/// A task that its worker ends.
fn simple(name: &str, scope: &str) -> Task {
    let mut task = task(name, scope);
    task.expects_change = false;
    task.acceptance
        .retain(|criterion| criterion.check == CriterionCheck::Command);
    task
}

/// Owners that do not begin, or take too long, and calls that come late.
fn slow_workers() -> Fleet {
    Fleet {
        tasks: vec![simple("a", "src")],
        workers: 2,
        judges: 0,
        faults: 2,
        lengths: true,
        ..a_couple()
    }
}

/// Judgements and merges that take too long.
fn slow_judges() -> Fleet {
    let policy = Policy {
        max_judge_attempts: 0,
        max_lineage: 1,
        ..small_policy()
    };
    Fleet {
        policy,
        faults: 1,
        lengths: true,
        ..a_couple()
    }
}

/// Rules under which a lineage ends with its first task.
fn without_successors() -> Policy {
    Policy {
        max_lineage: 1,
        ..small_policy()
    }
}

/// A person who holds a task back, and corrects its packet.
fn pause_and_replan() -> Fleet {
    Fleet {
        policy: without_successors(),
        faults: 1,
        wishes: vec![Wish::Pause, Wish::Replan],
        ..a_couple()
    }
}

/// A person who wants it done after all, and says twice what is said.
fn retry() -> Fleet {
    Fleet {
        policy: without_successors(),
        wishes: vec![Wish::Cancel, Wish::Retry, Wish::Retry, Wish::Reassert],
        ..a_couple()
    }
}

/// Somebody makes a task that needs the one that is there, which may be called off.
fn creation() -> Fleet {
    Fleet {
        faults: 1,
        wishes: vec![Wish::Create, Wish::Create, Wish::Cancel],
        ..a_couple()
    }
}

/// Runs and judgements that end in ways that are not counted.
fn detours() -> Fleet {
    Fleet {
        policy: without_successors(),
        faults: 1,
        detours: 2,
        ..a_couple()
    }
}

/// A result that changed its own judge, and a person who takes it.
fn changed_judge() -> Fleet {
    Fleet {
        policy: without_successors(),
        detours: 2,
        wishes: vec![Wish::AcceptJudge, Wish::Cancel],
        ..a_couple()
    }
}

/// An orchestrator that says what is in the way.
fn blocks() -> Fleet {
    Fleet {
        wishes: vec![
            Wish::Block(RefusalCode::LedgerInconsistent),
            Wish::Block(RefusalCode::ConcurrencyConflict),
            Wish::Block(RefusalCode::LockConflict),
            Wish::Block(RefusalCode::MissingRequiredInput),
        ],
        ..a_couple()
    }
}

/// A store that is damaged once, with two tasks in the same place.
fn a_damaged_store() -> Fleet {
    Fleet {
        tasks: vec![simple("a", "src"), simple("b", "src/x")],
        workers: 2,
        judges: 0,
        faults: 1,
        harms: 1,
        ..a_couple()
    }
}

/// The same while a result is judged and merged.
fn a_damaged_result() -> Fleet {
    Fleet {
        policy: without_successors(),
        faults: 1,
        harms: 1,
        ..a_couple()
    }
}

fn spaces() -> [(&'static str, Fleet); 10] {
    [
        ("slow workers", slow_workers()),
        ("slow judges", slow_judges()),
        ("pause and replan", pause_and_replan()),
        ("retry", retry()),
        ("creation", creation()),
        ("detours", detours()),
        ("changed judge", changed_judge()),
        ("blocks", blocks()),
        ("a damaged store", a_damaged_store()),
        ("a damaged result", a_damaged_result()),
    ]
}

#[test]
fn every_request_is_asked_and_everything_holds() {
    let no_faults = Fleet {
        faults: 0,
        ..one_task()
    };
    let mut followed = holds("no faults", no_faults, 1_000);
    for (name, fleet) in spaces() {
        followed.extend(holds(name, fleet, 250));
    }
    let all: BTreeSet<&str> = kinds::ALL.iter().copied().collect();
    assert_eq!(followed, all, "a request is never asked, or never followed");
}

#[test]
#[ignore = "minutes: `cargo xtask model --all`"]
fn the_same_with_more_faults() {
    for (name, fleet) in spaces() {
        let faults = fleet.faults + 1;
        holds(name, Fleet { faults, ..fleet }, 1_000);
    }
}

/// Rules that nothing else in the model would miss.
#[test]
fn each_rule_about_these_requests_is_missed() {
    let end = "everything ends or is parked";
    is_noticed(
        PolicyRule::NeverBegan,
        slow_workers(),
        "who has begun is not taken back",
    );
    is_noticed(PolicyRule::TimeboxKeepsIntent, slow_judges(), end);
    is_noticed(
        PolicyRule::ReplanIdle,
        pause_and_replan(),
        "work holds its scope",
    );
    is_noticed(
        PolicyRule::Pause,
        pause_and_replan(),
        "nothing starts while it is paused",
    );
    is_noticed(PolicyRule::OneSuccessor, retry(), "one successor");
    is_noticed(PolicyRule::RepairOfWork, a_damaged_store(), end);
}
