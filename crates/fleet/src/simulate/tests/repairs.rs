//! The ledger contradicts itself about a task: who says so, and who goes on.

use runner_ledger::ClaimRequest;
use runner_lifecycle::request::{Claim, WorkEnding};
use runner_lifecycle::{BlockReason, LeasePurpose, Refusal, RefusalCode};

use super::super::script::{PersonAction, SimBehaviour, id};
use super::scenarios::{calm, one_task};
use super::*;

/// Whenever it is said, the cycle manager looks, repairs what there is, and the task goes on
/// where it was: no work is done twice.
#[test]
fn a_task_goes_on_after_its_repair() {
    // While the fleet is paused, the result waits, and there is time to say it.
    let paused = |at| {
        let pause = (1, PersonAction::Pause(true));
        let go_on = (4000, PersonAction::Pause(false));
        vec![pause, (at, PersonAction::Distrust(id(0))), go_on]
    };
    let mut judged = 0;
    let before = (0..5).map(|at| vec![(at, PersonAction::Distrust(id(0)))]);
    for actions in before.chain([2000, 3000].map(paused)) {
        let mut script = one_task(SimBehaviour::default());
        script.actions = actions.clone();
        let report = simulate(1, &calm(script));
        assert!(report.is_clean(), "{actions:?}: {:#?}", report.faults);
        assert_eq!(report.tasks, ["t0 done -: task 0"], "{actions:?}");
        assert_eq!(report.model_calls, 1, "{actions:?}");
        let at = |event: &str| report.history.iter().position(|one| one == event);
        let repaired = at("t0 ledger_repaired_retry");
        judged += u32::from(repaired.is_some() && repaired > at("t0 run_succeeded"));
        assert!(
            repaired.is_some() || actions.len() == 1,
            "never said in time"
        );
    }
    assert_eq!(judged, 2);
}

/// A judge that is told so has not failed, and leaves the task to the cycle manager.
#[test]
fn a_judge_leaves_a_contradiction_to_the_cycle_manager() {
    let options = calm(one_task(SimBehaviour::default()));
    let script = options.script.clone().unwrap();
    let simulation = Simulation::new(SimWorld::new(1, None, false), script, &options).unwrap();
    let context = RoleContext {
        ledger: LedgerPort::new(simulation.ledger.clone()),
        ..simulation.context(0, &options)
    };
    let judge = JudgeRole {
        context,
        name: "judge-1".to_owned(),
        account: ACCOUNT.to_owned(),
    };
    let ledger = &simulation.ledger;
    let (_stopper, mut stop) = StopHandle::new();
    simulation.runtime.block_on(async {
        let claim_request = ClaimRequest::work("w", "worker", "k");
        let claimed = ledger.claim_next(&claim_request).await.unwrap().unwrap();
        let packet = serde_json::json!({
            "schema_version": "1.0.0", "run_id": claimed.run_id, "task_id": "t0",
            "status": "done", "changes": [], "worklog_path": "worklog.md",
            "notes_for_orchestrator": [],
            "acceptance_check": [{"criterion": "guard", "status": "pass", "evidence": "exit 0"}],
        });
        let packet = packet.to_string();
        let packet = runner_lifecycle::packet::ResultPacket::parse(packet.as_bytes()).unwrap();
        let finish = Request::Finish {
            token: claimed.token,
            run_id: claimed.run_id,
            ending: WorkEnding::Success {
                result: Some("c0ffee".to_owned()),
                packet,
            },
        };
        ledger
            .call(&LedgerCall::new(id(0), "w", finish))
            .await
            .unwrap();
        let claim = Request::Claim(Claim {
            owner: "judge-1".to_owned(),
            purpose: LeasePurpose::Judge,
            key: "j".to_owned(),
            base: None,
        });
        ledger
            .call(&LedgerCall::new(id(0), "judge-1", claim))
            .await
            .unwrap();
        let lease = ledger.leases().await.unwrap().remove(0);
        let refusal = Refusal::new(
            RefusalCode::LedgerInconsistent,
            "overlapping_locks: a and b",
        );
        let left = judge.leave_to_repair(&lease, &refusal, &mut stop).await;
        let task = left.unwrap().unwrap();
        assert_eq!(task.blocked_on(), Some(BlockReason::LedgerInconsistent));
        assert_eq!(task.counters.judge, 0);
        assert!(ledger.leases().await.unwrap().is_empty());
    });
}
