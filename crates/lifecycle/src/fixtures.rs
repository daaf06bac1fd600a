//! What several tests make in the same way.

use crate::packet::{
    AcceptanceAnswer, ChangeAction, CheckStatus, PacketExtra, ResourceChange, ResultPacket,
    ResultStatus, SCHEMA_VERSION,
};
use crate::row::{Criterion, Task};

/// A packet that answers every criterion of the task with that evidence.
pub(crate) fn packet(task: &Task, run_id: &str, evidence: &str) -> ResultPacket {
    let answer = |criterion: &Criterion| AcceptanceAnswer {
        criterion: criterion.id.clone(),
        status: CheckStatus::Pass,
        evidence: evidence.to_owned(),
        extra: PacketExtra::new(),
    };
    ResultPacket {
        schema_version: SCHEMA_VERSION.to_owned(),
        run_id: run_id.to_owned(),
        task_id: task.id.to_string(),
        status: ResultStatus::Done,
        changes: vec![ResourceChange {
            resource: task.lock_scope[0].to_string(),
            action: ChangeAction::Modified,
            evidence: None,
            extra: PacketExtra::new(),
        }],
        acceptance_check: task.acceptance.iter().map(answer).collect(),
        worklog_path: "log.md".to_owned(),
        notes_for_orchestrator: Vec::new(),
        extra: PacketExtra::new(),
    }
}
