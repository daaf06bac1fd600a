//! Which start is chosen.

use runner_ledger::{AccountView, OngoingWork};

use super::*;

const NOW: Timestamp = Timestamp(1_000_000);

fn agent(name: &str) -> FleetAgent {
    FleetAgent {
        name: name.to_owned(),
        role: "worker".to_owned(),
        host: "here".to_owned(),
        account: "acct".to_owned(),
        interval_seconds: 60,
        registered_at: NOW,
        last_seen_at: NOW,
        left_at: None,
        works_on: None,
    }
}

fn id(text: &str) -> TaskId {
    TaskId::parse(text).unwrap()
}

fn ready(name: &str, lane: Lane) -> (String, ReadyTask) {
    let task = Task {
        role: "worker".to_owned(),
        lane,
        ..Task::blank(id(name))
    };
    ("worker".to_owned(), ReadyTask { lane, task })
}

fn floor() -> DispatchView {
    DispatchView {
        now: NOW,
        agents: vec![agent("w1"), agent("w2")],
        ready: vec![ready("t", Lane::Feature)],
        ..DispatchView::default()
    }
}

fn busy(floor: &mut DispatchView, at: usize, lane: Lane) {
    floor.agents[at].works_on = Some(id("other"));
    floor.busy.push(OngoingWork {
        task_id: id("other"),
        owner: floor.agents[at].name.clone(),
        purpose: LeasePurpose::Work,
        lane,
    });
}

fn waiting(floor: &mut DispatchView, reset_at: i64) {
    let view = AccountView {
        waiting: 1,
        reset_at: Some(Timestamp(reset_at)),
    };
    floor.accounts.insert("acct".to_owned(), view);
}

type Edit = fn(&mut DispatchView, &mut SilentAgents);

#[test]
fn who_starts_what() {
    type Case<'c> = (&'c str, Edit, Option<(&'c str, &'c str)>);
    let rows: &[Case<'_>] = &[
        ("the first who is free", |_, _| (), Some(("w1", "t"))),
        ("a pause", |floor, _| floor.paused = true, None),
        ("nobody", |floor, _| floor.agents.clear(), None),
        (
            "another role",
            |floor, _| {
                for agent in &mut floor.agents {
                    agent.role = "tester".to_owned();
                }
            },
            None,
        ),
        (
            "one is busy",
            |floor, _| busy(floor, 0, Lane::Feature),
            Some(("w2", "t")),
        ),
        (
            "one is offline",
            |floor, _| floor.agents[0].last_seen_at = Timestamp(NOW.0 - 180_000),
            Some(("w2", "t")),
        ),
        (
            "one was given something and said nothing",
            |_, silent| {
                silent.insert("w1".to_owned(), NOW);
            },
            Some(("w2", "t")),
        ),
        (
            "one failed twice",
            |floor, _| {
                let failures = &mut floor.ready[0].1.task.counters.failures_by_owner;
                failures.insert("w1".to_owned(), 2);
            },
            Some(("w2", "t")),
        ),
        (
            "all failed twice: that orders, it does not ban",
            |floor, _| {
                let failures = &mut floor.ready[0].1.task.counters.failures_by_owner;
                failures.extend([("w1".to_owned(), 2), ("w2".to_owned(), 3)]);
            },
            Some(("w1", "t")),
        ),
        (
            "the account waits for its reset",
            |floor, _| waiting(floor, NOW.0 + 1),
            None,
        ),
        (
            "the reset is over: one at a time",
            |floor, _| waiting(floor, NOW.0),
            Some(("w1", "t")),
        ),
        (
            "one of the account is at it",
            |floor, _| {
                waiting(floor, NOW.0);
                busy(floor, 0, Lane::Feature);
            },
            None,
        ),
        (
            "another account",
            |floor, _| {
                waiting(floor, NOW.0 + 1);
                floor.agents[1].account = "other".to_owned();
            },
            Some(("w2", "t")),
        ),
        (
            "the last slot is kept for a feature",
            |floor, _| {
                busy(floor, 0, Lane::ConflictRecovery);
                let feature = floor.ready.remove(0);
                floor.ready = vec![ready("c", Lane::ConflictRecovery), feature];
            },
            Some(("w2", "t")),
        ),
    ];
    for (what, edit, expected) in rows {
        let (mut floor, mut silent) = (floor(), SilentAgents::new());
        edit(&mut floor, &mut silent);
        let choice = choose(&floor, &silent);
        let got = choice
            .as_ref()
            .map(|choice| (choice.agent.as_str(), choice.task.as_str()));
        assert_eq!(got, *expected, "{what}");
    }
}
