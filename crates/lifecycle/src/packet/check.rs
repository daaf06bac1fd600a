//! What a packet must say beyond its shape, held against the row of its task.

use super::{
    Assignment, CheckStatus, MAX_NOTES, PacketExtra, ResultPacket, ResultStatus, SCHEMA_VERSION,
};
use crate::decide::Refusal;
use crate::lock::Resource;
use crate::row::Task;
use crate::words::{CriterionCheck, RefusalCode};

/// Refuses another major version, and what is no version at all.
pub(super) fn version(text: &str) -> Result<(), Refusal> {
    let numbers: Vec<Option<u32>> = text.split('.').map(number).collect();
    match numbers[..] {
        [Some(1), Some(_), Some(_)] => Ok(()),
        [Some(major), Some(_), Some(_)] => Err(Refusal::new(
            RefusalCode::UnknownSchemaVersion,
            format!("schema_version {text}: major version {major} is unknown, 1 is known"),
        )),
        _ => Err(Refusal::new(
            RefusalCode::SchemaInvalid,
            format!("schema_version {text:?} is no version such as {SCHEMA_VERSION}"),
        )),
    }
}

/// A number without sign or leading zeros, of at most nine digits.
fn number(text: &str) -> Option<u32> {
    let plain = text.len() <= 9 && text.bytes().all(|b| b.is_ascii_digit());
    (plain && (text == "0" || !text.starts_with('0')))
        .then(|| text.parse().ok())
        .flatten()
}

/// The rules of shape that the types do not hold by themselves.
pub(super) fn assignment_shape(packet: &Assignment) -> Result<(), Refusal> {
    version(&packet.schema_version)?;
    let task = &packet.task;
    let extras = [&packet.extra, &task.extra].into_iter();
    only_x(
        extras
            .chain(task.acceptance_criteria.iter().map(|c| &c.extra))
            .chain(packet.active_locks.iter().map(|lock| &lock.extra))
            .chain(packet.context_package.iter().map(|item| &item.extra)),
    )?;
    not_empty("run_id", &packet.run_id)?;
    not_empty("task_id", &task.task_id)?;
    not_empty("worklog_path", &task.worklog_path)?;
    for criterion in &task.acceptance_criteria {
        not_empty("the id of a criterion", &criterion.id)?;
    }
    for lock in &packet.active_locks {
        not_empty("task_id", &lock.task_id)?;
        not_empty("resource", &lock.resource)?;
    }
    require(packet.packet_type == "assignment", || {
        format!(
            "packet_type is {:?}, not \"assignment\"",
            packet.packet_type
        )
    })?;
    require(!task.lock_scope.is_empty(), || {
        "lock_scope is empty: name at least one path".to_owned()
    })?;
    require(!task.acceptance_criteria.is_empty(), || {
        "acceptance_criteria is empty: name at least one".to_owned()
    })?;
    require(task.timeout_seconds >= 30, || {
        format!(
            "timeout_seconds is {}, 30 is the least",
            task.timeout_seconds
        )
    })?;
    require(task.heartbeat_interval_seconds >= 5, || {
        let interval = task.heartbeat_interval_seconds;
        format!("heartbeat_interval_seconds is {interval}, 5 is the least")
    })
}

/// Whether an assignment may be handed out: its shape, and what JSON Schema cannot say.
pub fn check_assignment(packet: &Assignment) -> Result<(), Refusal> {
    assignment_shape(packet)?;
    let task = &packet.task;
    require(
        task.heartbeat_interval_seconds < task.timeout_seconds,
        || "heartbeat_interval_seconds is not less than timeout_seconds".to_owned(),
    )?;
    for text in task.lock_scope.iter().chain(&task.forbidden_scope) {
        Resource::parse(text)
            .map_err(|error| Refusal::new(RefusalCode::SchemaInvalid, error.to_string()))?;
    }
    Ok(())
}

/// The rules of shape that the types do not hold by themselves.
pub(super) fn result_shape(packet: &ResultPacket) -> Result<(), Refusal> {
    version(&packet.schema_version)?;
    only_x(
        std::iter::once(&packet.extra)
            .chain(packet.changes.iter().map(|change| &change.extra))
            .chain(packet.acceptance_check.iter().map(|answer| &answer.extra)),
    )?;
    not_empty("run_id", &packet.run_id)?;
    not_empty("task_id", &packet.task_id)?;
    not_empty("worklog_path", &packet.worklog_path)?;
    for change in &packet.changes {
        not_empty("resource", &change.resource)?;
    }
    for answer in &packet.acceptance_check {
        not_empty("criterion", &answer.criterion)?;
    }
    let notes = packet.notes_for_orchestrator.len();
    require(notes <= MAX_NOTES, || {
        format!("{notes} notes_for_orchestrator, {MAX_NOTES} at most")
    })
}

/// Whether a result belongs to this run of this task and stays inside its scope.
pub fn check_result(packet: &ResultPacket, task: &Task, run_id: &str) -> Result<(), Refusal> {
    result_shape(packet)?;
    if packet.task_id != task.id.as_str() || packet.run_id != run_id {
        return Err(Refusal::new(
            RefusalCode::NonCompliant,
            format!(
                "the packet is of run {} of task {}, not of run {run_id} of task {}",
                packet.run_id, packet.task_id, task.id
            ),
        ));
    }
    for change in &packet.changes {
        let resource = change.resource.as_str();
        let allowed = covered(&task.lock_scope, resource)?;
        let forbidden = covered(&task.forbidden_scope, resource)?;
        if !allowed || forbidden {
            let why = if forbidden {
                "is forbidden"
            } else {
                "is outside the scope"
            };
            return Err(
                Refusal::new(RefusalCode::ScopeViolation, format!("{resource} {why}"))
                    .detail("resource", resource),
            );
        }
    }
    Ok(())
}

fn covered(scope: &[Resource], file: &str) -> Result<bool, Refusal> {
    for one in scope {
        let inside = one.covers_file(file);
        if inside.map_err(|error| Refusal::new(RefusalCode::SchemaInvalid, error.to_string()))? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Whether the packet says `done` and answers every criterion that `answers` selects
/// with a pass and evidence, and no criterion with anything else.
pub fn evidence(
    packet: &ResultPacket,
    task: &Task,
    answers: impl Fn(CriterionCheck) -> bool,
) -> Result<(), Refusal> {
    let refuse = |id: &str, why: &str| {
        Err(Refusal::new(
            RefusalCode::AcceptanceFailed,
            format!("criterion {id} {why}"),
        )
        .detail("criterion", id))
    };
    if packet.status != ResultStatus::Done {
        return Err(Refusal::new(
            RefusalCode::AcceptanceFailed,
            format!("the packet says {}", packet.status),
        ));
    }
    for answer in &packet.acceptance_check {
        let id = answer.criterion.as_str();
        if !task.acceptance.iter().any(|known| known.id == id) {
            return refuse(id, "is none of this task");
        }
        if answer.status != CheckStatus::Pass {
            return refuse(id, "does not hold");
        }
        if answer.evidence.trim().is_empty() {
            return refuse(id, "has no evidence");
        }
    }
    for criterion in task.acceptance.iter().filter(|c| answers(c.check)) {
        let answered = packet
            .acceptance_check
            .iter()
            .any(|answer| answer.criterion == criterion.id);
        if !answered {
            return refuse(&criterion.id, "is not answered");
        }
    }
    Ok(())
}

fn only_x<'e>(extras: impl Iterator<Item = &'e PacketExtra>) -> Result<(), Refusal> {
    for name in extras.flat_map(PacketExtra::keys) {
        if !name.starts_with("x_") {
            return Err(Refusal::new(
                RefusalCode::SchemaInvalid,
                format!("unknown field {name:?}; a field of your own begins with x_"),
            )
            .detail("field", name.as_str()));
        }
    }
    Ok(())
}

fn not_empty(field: &str, text: &str) -> Result<(), Refusal> {
    require(!text.is_empty(), || format!("{field} is empty"))
}

fn require(holds: bool, words: impl FnOnce() -> String) -> Result<(), Refusal> {
    if holds {
        Ok(())
    } else {
        Err(Refusal::new(RefusalCode::SchemaInvalid, words()))
    }
}
