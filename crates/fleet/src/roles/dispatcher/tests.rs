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

fn dispatch_view() -> DispatchView {
    DispatchView {
        now: NOW,
        agents: vec![agent("w1"), agent("w2")],
        ready: vec![ready("t", Lane::Feature)],
        ..DispatchView::default()
    }
}

fn busy(dispatch_view: &mut DispatchView, at: usize, lane: Lane) {
    dispatch_view.agents[at].works_on = Some(id("other"));
    dispatch_view.busy.push(OngoingWork {
        task_id: id("other"),
        owner: dispatch_view.agents[at].name.clone(),
        purpose: LeasePurpose::Work,
        lane,
    });
}

fn waiting(dispatch_view: &mut DispatchView, reset_at: i64) {
    let view = AccountView {
        waiting: 1,
        reset_at: Some(Timestamp(reset_at)),
    };
    dispatch_view.accounts.insert("acct".to_owned(), view);
}

type Edit = fn(&mut DispatchView, &mut SilentAgents);

#[test]
fn who_starts_what() {
    type Case<'c> = (&'c str, Edit, Option<(&'c str, &'c str)>);
    let rows: &[Case<'_>] = &[
        ("the first who is free", |_, _| (), Some(("w1", "t"))),
        (
            "a pause",
            |dispatch_view, _| dispatch_view.paused = true,
            None,
        ),
        (
            "nobody",
            |dispatch_view, _| dispatch_view.agents.clear(),
            None,
        ),
        (
            "another role",
            |dispatch_view, _| {
                for agent in &mut dispatch_view.agents {
                    agent.role = "tester".to_owned();
                }
            },
            None,
        ),
        (
            "one is busy",
            |dispatch_view, _| busy(dispatch_view, 0, Lane::Feature),
            Some(("w2", "t")),
        ),
        (
            "one is offline",
            |dispatch_view, _| dispatch_view.agents[0].last_seen_at = Timestamp(NOW.0 - 180_000),
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
            |dispatch_view, _| {
                let failures = &mut dispatch_view.ready[0].1.task.counters.failures_by_owner;
                failures.insert("w1".to_owned(), 2);
            },
            Some(("w2", "t")),
        ),
        (
            "all failed twice: that orders, it does not ban",
            |dispatch_view, _| {
                let failures = &mut dispatch_view.ready[0].1.task.counters.failures_by_owner;
                failures.extend([("w1".to_owned(), 2), ("w2".to_owned(), 3)]);
            },
            Some(("w1", "t")),
        ),
        (
            "the account waits for its reset",
            |dispatch_view, _| waiting(dispatch_view, NOW.0 + 1),
            None,
        ),
        (
            "the reset is over: one at a time",
            |dispatch_view, _| waiting(dispatch_view, NOW.0),
            Some(("w1", "t")),
        ),
        (
            "one of the account is at it",
            |dispatch_view, _| {
                waiting(dispatch_view, NOW.0);
                busy(dispatch_view, 0, Lane::Feature);
            },
            None,
        ),
        (
            "another account",
            |dispatch_view, _| {
                waiting(dispatch_view, NOW.0 + 1);
                dispatch_view.agents[1].account = "other".to_owned();
            },
            Some(("w2", "t")),
        ),
        (
            "the last slot is kept for a feature",
            |dispatch_view, _| {
                busy(dispatch_view, 0, Lane::ConflictRecovery);
                let feature = dispatch_view.ready.remove(0);
                dispatch_view.ready = vec![ready("c", Lane::ConflictRecovery), feature];
            },
            Some(("w2", "t")),
        ),
    ];
    for (what, edit, expected) in rows {
        let (mut dispatch_view, mut silent) = (dispatch_view(), SilentAgents::new());
        edit(&mut dispatch_view, &mut silent);
        let choice = choose(&dispatch_view, &silent);
        let got = choice
            .as_ref()
            .map(|choice| (choice.agent.as_str(), choice.task.as_str()));
        assert_eq!(got, *expected, "{what}");
    }
}
