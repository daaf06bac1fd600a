//! What the roles of a fleet keep: agents, role leases, spendings, and what is looked at without
//! a scan.

use runner_ledger::{NewFleetAgent, RoleLeaseAttempt, RunSpending, SpendingTotals};
use runner_lifecycle::request::{NewTask, WorkEnding};
use runner_lifecycle::{
    BlockReason, FailureCategory, Lane, LeasePurpose, Request, TaskState, Timestamp,
};

use crate::support::*;

fn agent(name: &str, role: &str) -> NewFleetAgent {
    NewFleetAgent {
        name: name.to_owned(),
        role: role.to_owned(),
        host: "here".to_owned(),
        account: "acct".to_owned(),
        interval_seconds: 60,
    }
}

pub(crate) async fn agents_are_offline_after_three_intervals(world: World) {
    let ledger = world.open().await;
    ledger.register(&agent("w1", "worker")).await.unwrap();
    ledger.register(&agent("w2", "worker")).await.unwrap();
    made(&ledger, new_task("a", "src")).await;
    let a = work(&ledger, "w1", "k").await.unwrap();
    world.clock.advance_secs(100);
    ledger.call(&heartbeat(&a, "w1")).await.unwrap();
    world.clock.advance_secs(80);
    let now = ledger.now().await.unwrap();
    let agents = ledger.agents().await.unwrap();
    let view: Vec<_> = agents
        .iter()
        .map(|one| (one.name.as_str(), one.is_offline(now)))
        .collect();
    // The heartbeat of a lease is one of its owner.
    assert_eq!(view, [("w1", false), ("w2", true)]);
    assert_eq!(agents[0].works_on, Some(id("a")));
    assert!(ledger.seen("w2").await.unwrap());
    assert!(!ledger.seen("nobody").await.unwrap());
    assert!(ledger.leave("w1").await.unwrap());
    let agents = ledger.agents().await.unwrap();
    assert!(agents[0].is_offline(now) && !agents[1].is_offline(now));
    ledger.register(&agent("w1", "tester")).await.unwrap();
    let agents = ledger.agents().await.unwrap();
    assert_eq!(
        (agents[0].role.as_str(), agents[0].left_at),
        ("tester", None)
    );
}

pub(crate) async fn what_an_agent_was_given(world: World) {
    let ledger = world.open().await;
    made(&ledger, new_task("a", "src")).await;
    assert!(ledger.assigned("w1").await.unwrap().is_none());
    let a = work(&ledger, "w1", "k").await.unwrap();
    let given = ledger.assigned("w1").await.unwrap().unwrap();
    assert_eq!((given.task.id, given.lease.token), (id("a"), a.token));
    assert_eq!(given.run.unwrap().id, a.run_id);
    assert_eq!(given.earlier, None);
    ledger.call(&succeed(&a, "w1")).await.unwrap();
    assert!(ledger.assigned("w1").await.unwrap().is_none());
    claim(&ledger, "a", "j", LeasePurpose::Judge).await.unwrap();
    let given = ledger.assigned("j").await.unwrap().unwrap();
    assert_eq!(given.lease.purpose, LeasePurpose::Judge);
    assert_eq!(given.earlier.as_deref(), Some("c0ffee"));
}

pub(crate) async fn a_role_lease_has_one_holder(world: World) {
    let ledger = world.open().await;
    let take_role = |who: &'static str| ledger.take_role_lease("dispatcher", who, 180);
    assert_eq!(take_role("d1").await.unwrap(), RoleLeaseAttempt::Yours(1));
    let until = Timestamp(START + 180_000);
    let taken = RoleLeaseAttempt::Taken {
        holder: "d1".to_owned(),
        until,
    };
    assert_eq!(take_role("d2").await.unwrap(), taken);
    world.clock.advance_secs(60);
    assert!(ledger.renew_role_lease("dispatcher", 1, 180).await.unwrap());
    world.clock.advance_secs(179);
    assert!(matches!(
        take_role("d2").await.unwrap(),
        RoleLeaseAttempt::Taken { .. }
    ));
    world.clock.advance_secs(1);
    assert_eq!(take_role("d2").await.unwrap(), RoleLeaseAttempt::Yours(2));
    assert!(
        !ledger.renew_role_lease("dispatcher", 1, 180).await.unwrap(),
        "it is gone"
    );
    // Whoever comes back with the same name need not wait, and the old token is void.
    assert_eq!(take_role("d2").await.unwrap(), RoleLeaseAttempt::Yours(3));
    assert!(!ledger.renew_role_lease("dispatcher", 2, 180).await.unwrap());
    ledger.release_role_lease("dispatcher", 3).await.unwrap();
    assert_eq!(take_role("d1").await.unwrap(), RoleLeaseAttempt::Yours(4));
    let role_leases = ledger.role_leases().await.unwrap();
    assert_eq!(
        (role_leases.len(), role_leases[0].holder.as_str()),
        (1, "d1")
    );
}

pub(crate) async fn a_run_is_charged_once(world: World) {
    let ledger = world.open().await;
    let spent = RunSpending {
        run_id: "a-1".to_owned(),
        task_id: id("a"),
        agent: "w".to_owned(),
        account: "acct".to_owned(),
        spending: SpendingTotals {
            input_tokens: 10,
            output_tokens: 2,
            cost_micros: 7,
        },
    };
    assert!(ledger.record_spending(&spent).await.unwrap());
    assert!(!ledger.record_spending(&spent).await.unwrap());
    let mut other = spent.clone();
    (other.run_id, other.task_id) = ("b-1".to_owned(), id("b"));
    assert!(ledger.record_spending(&other).await.unwrap());
    assert_eq!(ledger.spent(Some(&id("a"))).await.unwrap(), spent.spending);
    assert_eq!(ledger.spent(None).await.unwrap().input_tokens, 20);
    assert_eq!(
        ledger.spent(Some(&id("c"))).await.unwrap(),
        SpendingTotals::default()
    );
}

pub(crate) async fn the_view_is_what_a_dispatcher_needs(world: World) {
    let ledger = world.open().await;
    assert!(
        ledger
            .dispatch_view(&["worker"])
            .await
            .unwrap()
            .ready
            .is_empty()
    );
    ledger.register(&agent("w1", "worker")).await.unwrap();
    made(&ledger, new_task("a", "a")).await;
    world.clock.advance_millis(1);
    made(&ledger, new_task("b", "b")).await;
    let lane = Lane::ConflictRecovery;
    world.clock.advance_millis(1);
    made(
        &ledger,
        NewTask {
            lane,
            ..new_task("c", "c")
        },
    )
    .await;
    let role = "tester".to_owned();
    made(
        &ledger,
        NewTask {
            role,
            ..new_task("d", "d")
        },
    )
    .await;
    let dispatch_view = ledger.dispatch_view(&["worker", "tester"]).await.unwrap();
    let ready: Vec<_> = dispatch_view
        .ready
        .iter()
        .map(|(role, one)| (role.as_str(), one.lane, one.task.id.as_str()))
        .collect();
    assert_eq!(
        ready,
        [
            ("worker", Lane::Feature, "a"),
            ("worker", lane, "c"),
            ("tester", Lane::Feature, "d"),
        ]
    );
    assert_eq!(
        (dispatch_view.agents.len(), dispatch_view.busy.len()),
        (1, 0)
    );
    assert!(dispatch_view.accounts.is_empty() && !dispatch_view.paused);
    let a = work(&ledger, "w1", "k").await.unwrap();
    let dispatch_view = ledger.dispatch_view(&["worker"]).await.unwrap();
    assert_eq!(dispatch_view.busy[0].owner, "w1");
    assert_eq!(dispatch_view.agents[0].works_on, Some(id("a")));
    let ending = WorkEnding::Quota {
        reset_at: Some(Timestamp(START + 900_000)),
        account: "acct".to_owned(),
    };
    let waits = ledger.call(&finish(&a, "w1", ending)).await.unwrap();
    let reset_at = waits.task.retry_at().unwrap();
    ledger.quota_met("acct", reset_at).await.unwrap();
    ledger.quota_met("other", reset_at).await.unwrap();
    ledger.set_paused(true).await.unwrap();
    let dispatch_view = ledger.dispatch_view(&["worker"]).await.unwrap();
    assert!(dispatch_view.paused);
    assert_eq!(
        dispatch_view.accounts.len(),
        1,
        "nothing waits for the other one"
    );
    let view = &dispatch_view.accounts["acct"];
    assert_eq!((view.waiting, view.reset_at), (1, Some(reset_at)));
}

pub(crate) async fn what_is_dead_and_what_is_to_recover(world: World) {
    let ledger = world.open().await;
    made(&ledger, new_task("a", "a")).await;
    let mut b = new_task("b", "b");
    b.dependencies = vec![id("a")];
    made(&ledger, b).await;
    let zero = Timestamp(0);
    assert!(ledger.waits_for_dead(zero, 10).await.unwrap().is_empty());
    let a = work(&ledger, "w", "k").await.unwrap();
    let ending = WorkEnding::Failed {
        category: FailureCategory::Permission,
        signature: None,
        note: "not allowed".to_owned(),
    };
    ledger.call(&finish(&a, "w", ending)).await.unwrap();
    let dead = ledger.waits_for_dead(zero, 10).await.unwrap();
    assert_eq!(dead, [(id("b"), id("a"))]);
    let later = Timestamp(START + 1);
    assert!(ledger.waits_for_dead(later, 10).await.unwrap().is_empty());
    let block = Request::Block {
        code: runner_lifecycle::RefusalCode::DependencyNotMet,
        reason: "a is dead".to_owned(),
        waits_for: Some("a".to_owned()),
    };
    let block = runner_ledger::LedgerCall::new(id("b"), "d", block);
    ledger.call(&block).await.unwrap();
    assert!(ledger.waits_for_dead(zero, 10).await.unwrap().is_empty());
    let blocked = ledger.to_recover(zero, 10).await.unwrap();
    assert_eq!(blocked[0].id, id("b"));
    assert!(ledger.to_recover(later, 10).await.unwrap().is_empty());
}

pub(crate) async fn counts_and_the_oldest(world: World) {
    let ledger = world.open().await;
    assert_eq!(ledger.oldest_ready().await.unwrap(), None);
    made(&ledger, new_task("a", "a")).await;
    world.clock.advance_secs(5);
    made(&ledger, new_task("b", "b")).await;
    assert_eq!(ledger.oldest_ready().await.unwrap(), Some(Timestamp(START)));
    let a = work(&ledger, "w", "k").await.unwrap();
    assert_eq!(ledger.leases().await.unwrap().len(), 1);
    ledger.call(&succeed(&a, "w")).await.unwrap();
    let counts = ledger.counts().await.unwrap();
    let counts: Vec<_> = counts
        .iter()
        .map(|one| (one.state, one.blocked_on, one.tasks))
        .collect();
    assert_eq!(
        counts,
        [
            (TaskState::Blocked, Some(BlockReason::AwaitingJudge), 1),
            (TaskState::Todo, None, 1)
        ]
    );
    assert_eq!(
        ledger.oldest_ready().await.unwrap(),
        Some(Timestamp(START + 5000))
    );
}

pub(crate) async fn what_mends_the_base_does_not_queue(world: World) {
    let ledger = world.open().await;
    let mut mend = new_task("mend", ".");
    mend.source = Some("base:c0".to_owned());
    for new in [new_task("a", "src"), mend] {
        let task = new.id.to_string();
        world.clock.advance_millis(1);
        made(&ledger, new).await;
        let one = work(&ledger, "w", &task).await.unwrap();
        ledger.call(&succeed(&one, "w")).await.unwrap();
        let judged = claim(&ledger, &task, "j", LeasePurpose::Judge)
            .await
            .unwrap();
        let ending = runner_lifecycle::request::JudgeEnding::Approve {
            packet: packet(&task, &one.run_id),
        };
        let token = judged.task.token;
        let approve = Request::Judge { token, ending };
        let approve = runner_ledger::LedgerCall::new(one.task.id, "j", approve);
        ledger.call(&approve).await.unwrap();
    }
    assert_eq!(ledger.red_base().await.unwrap(), None);
    let red = runner_ledger::RedBase {
        commit: "c0".to_owned(),
        task: id("mend"),
    };
    ledger.set_red_base(Some(&red)).await.unwrap();
    assert_eq!(ledger.red_base().await.unwrap(), Some(red));
    claim(&ledger, "mend", "j", LeasePurpose::Merge)
        .await
        .unwrap();
    let refused = claim(&ledger, "a", "k", LeasePurpose::Merge)
        .await
        .unwrap_err();
    assert_eq!(
        refused.code(),
        Some(runner_lifecycle::RefusalCode::LockConflict)
    );
    ledger.set_red_base(None).await.unwrap();
    assert_eq!(ledger.red_base().await.unwrap(), None);
}
