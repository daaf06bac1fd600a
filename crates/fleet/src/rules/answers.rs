//! Which command answers which criterion, and the packets that are made of the answers.
//!
//! A criterion says who checks it, not how. So there is one rule: the n-th criterion for
//! a command, the one named `guard` left out, is answered by the n-th command of the
//! task; where there is none, by the project's guard. Commands beyond the criteria must
//! be green all the same.

use runner_core::text::{cut_chars, escape_path};
use runner_lifecycle::lock::Resource;
use runner_lifecycle::packet::{
    AcceptanceAnswer, CheckStatus, MAX_NOTES, PacketExtra, ResourceChange, ResultPacket,
    ResultStatus, SCHEMA_VERSION,
};
use runner_lifecycle::{CriterionCheck, Task};

use super::policy::resource_of;
use crate::workspaces::CheckOutcome;

/// The check that is the project's own guard.
pub const GUARD: &str = "guard";

/// The longest evidence that is recorded, in characters.
const EVIDENCE_CHARS: usize = 400;

/// A command to run beside the guard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedCheck {
    /// What its [`CheckOutcome`] is named: the criterion, or `command-<n>`.
    pub id: String,
    /// The command, as one line for a shell.
    pub command: String,
}

/// The commands of a task with the names of their checks, in their order. The guard is
/// not among them.
pub fn planned_checks(task: &Task) -> Vec<PlannedCheck> {
    let mut criteria = own_criteria(task);
    task.commands
        .iter()
        .enumerate()
        .map(|(at, command)| PlannedCheck {
            id: criteria
                .next()
                .map_or_else(|| format!("command-{}", at + 1), str::to_owned),
            command: command.clone(),
        })
        .collect()
}

/// The criteria that want a command of their own.
fn own_criteria(task: &Task) -> impl Iterator<Item = &str> {
    task.acceptance
        .iter()
        .filter(|criterion| criterion.check == CriterionCheck::Command && criterion.id != GUARD)
        .map(|criterion| criterion.id.as_str())
}

/// The name of the check that answers a criterion.
fn check_of<'t>(task: &'t Task, criterion: &'t str) -> &'t str {
    let place = own_criteria(task).position(|id| id == criterion);
    match place {
        Some(place) if place < task.commands.len() => criterion,
        _ => GUARD,
    }
}

/// What was found out about the criteria that commands check; the criterion that nothing
/// answers, otherwise.
pub fn command_answers(
    task: &Task,
    checks: &[CheckOutcome],
) -> Result<Vec<AcceptanceAnswer>, String> {
    let mut answers = Vec::new();
    for criterion in &task.acceptance {
        if criterion.check != CriterionCheck::Command {
            continue;
        }
        let name = check_of(task, &criterion.id);
        let check = checks
            .iter()
            .find(|check| check.id == name)
            .filter(|check| !check.evidence.trim().is_empty())
            .ok_or_else(|| criterion.id.clone())?;
        answers.push(pass(&criterion.id, &check.evidence));
    }
    Ok(answers)
}

/// The answers to criteria of one kind that an earlier packet gave.
pub fn recorded_answers(
    task: &Task,
    packet: Option<&ResultPacket>,
    kind: CriterionCheck,
) -> Result<Vec<AcceptanceAnswer>, String> {
    let given = packet.map_or(&[][..], |packet| &packet.acceptance_check);
    task.acceptance
        .iter()
        .filter(|criterion| criterion.check == kind)
        .map(|criterion| {
            given
                .iter()
                .find(|answer| {
                    answer.criterion == criterion.id && answer.status == CheckStatus::Pass
                })
                .cloned()
                .ok_or_else(|| criterion.id.clone())
        })
        .collect()
}

/// A criterion that holds.
pub fn pass(criterion: &str, evidence: &str) -> AcceptanceAnswer {
    AcceptanceAnswer {
        criterion: criterion.to_owned(),
        status: CheckStatus::Pass,
        evidence: cut_chars(evidence, EVIDENCE_CHARS).into_owned(),
        extra: PacketExtra::new(),
    }
}

/// A packet that says `done`.
pub fn done_packet(
    task: &Task,
    run_id: &str,
    changes: &[ResourceChange],
    answers: Vec<AcceptanceAnswer>,
    mut notes: Vec<String>,
) -> ResultPacket {
    notes.truncate(MAX_NOTES);
    ResultPacket {
        schema_version: SCHEMA_VERSION.to_owned(),
        run_id: run_id.to_owned(),
        task_id: task.id.to_string(),
        status: ResultStatus::Done,
        changes: changes.iter().map(in_packet).collect(),
        acceptance_check: answers,
        worklog_path: worklog_path(run_id),
        notes_for_orchestrator: notes,
        extra: PacketExtra::new(),
    }
}

/// What the head of a merge queue answers: the commands as they ended on the merge commit
/// itself, the review as the judge gave it. Otherwise the criterion that nothing answers.
pub fn merge_packet(
    task: &Task,
    run_id: &str,
    changes: &[ResourceChange],
    checks: &[CheckOutcome],
    judge_packet: Option<&ResultPacket>,
) -> Result<ResultPacket, String> {
    let mut answers = command_answers(task, checks)?;
    answers.extend(recorded_answers(
        task,
        judge_packet,
        CriterionCheck::Review,
    )?);
    Ok(done_packet(task, run_id, changes, answers, Vec::new()))
}

/// Where what was done is written down; the assignment names the same.
pub fn worklog_path(run_id: &str) -> String {
    format!(".runner/fleet/worklogs/{run_id}.md")
}

/// A change as a packet can name it. A name that none can carry, such as one with a line
/// break, goes into the evidence, and its folder takes its place.
fn in_packet(change: &ResourceChange) -> ResourceChange {
    if Resource::whole_repo().covers_file(&change.resource).is_ok() {
        return change.clone();
    }
    let resource = resource_of(&change.resource);
    let name = escape_path(change.resource.as_bytes());
    let mut change = change.clone();
    change.resource = resource.to_string();
    change.evidence = Some(match change.evidence {
        Some(evidence) => format!("file {name}; {evidence}"),
        None => format!("file {name}"),
    });
    change
}

#[cfg(test)]
mod tests {
    use runner_lifecycle::packet::{ChangeAction, check_result, evidence};

    use super::super::fixtures::{change, checked, criterion, task, worked};
    use super::*;
    use crate::workspaces::CheckEnd;

    #[test]
    fn which_command_answers_what() {
        use CriterionCheck::{Command, Review};
        let criteria = |list: &[(&str, CriterionCheck)]| {
            list.iter()
                .map(|(id, check)| criterion(id, *check))
                .collect()
        };
        for (acceptance, commands, planned, answered_by) in [
            (
                criteria(&[("guard", Command)]),
                vec![],
                vec![],
                vec!["guard"],
            ),
            (
                criteria(&[
                    ("guard", Command),
                    ("a", Command),
                    ("r", Review),
                    ("b", Command),
                ]),
                vec!["x", "y", "z"],
                vec!["a", "b", "command-3"],
                vec!["guard", "a", "b"],
            ),
            (
                criteria(&[("a", Command), ("b", Command)]),
                vec!["x"],
                vec!["a"],
                vec!["a", "guard"],
            ),
            (
                criteria(&[("r", Review)]),
                vec!["x"],
                vec!["command-1"],
                vec![],
            ),
        ] {
            let task = Task {
                acceptance,
                commands: commands.into_iter().map(str::to_owned).collect(),
                ..task()
            };
            let names: Vec<String> = planned_checks(&task).into_iter().map(|c| c.id).collect();
            assert_eq!(names, planned);
            let all: Vec<CheckOutcome> = names
                .iter()
                .map(String::as_str)
                .chain(["guard"])
                .map(|id| checked(id, CheckEnd::Green, ""))
                .collect();
            let evidences: Vec<String> = command_answers(&task, &all)
                .unwrap()
                .into_iter()
                .map(|answer| answer.evidence)
                .collect();
            let expected: Vec<String> = answered_by
                .iter()
                .map(|id| format!("evidence of {id}"))
                .collect();
            assert_eq!(evidences, expected);
        }
    }

    #[test]
    fn what_nothing_answers_is_named() {
        let mut checks = worked().checks;
        checks[1].evidence = " ".to_owned();
        assert_eq!(command_answers(&task(), &checks), Err("parses".to_owned()));
        assert_eq!(command_answers(&task(), &[]), Err("guard".to_owned()));
        let reviewed = Task {
            acceptance: vec![criterion("clear", CriterionCheck::Review)],
            ..task()
        };
        assert_eq!(
            merge_packet(&reviewed, "t-1", &[], &[], None),
            Err("clear".to_owned())
        );
    }

    #[test]
    fn packets_are_accepted_by_the_law() {
        let mut reviewed = task();
        reviewed
            .acceptance
            .push(criterion("clear", CriterionCheck::Review));
        let judge = done_packet(
            &reviewed,
            "t-1",
            &[],
            vec![pass("clear", "read it")],
            vec!["note".to_owned(); 9],
        );
        assert_eq!(judge.notes_for_orchestrator.len(), MAX_NOTES);
        let changes = [
            change("src/a.rs", ChangeAction::Modified),
            change("src/[id]/page.tsx", ChangeAction::Created),
            change("src/odd/a\nb", ChangeAction::Created),
        ];
        let checks = worked().checks;
        let packet = merge_packet(&reviewed, "t-1", &changes, &checks, Some(&judge)).unwrap();
        check_result(&packet, &reviewed, "t-1").unwrap();
        evidence(&packet, &reviewed, |_| true).unwrap();
        assert_eq!(packet.changes[1], changes[1]);
        assert_eq!(packet.changes[2].resource, "src/odd");
        assert_eq!(
            packet.changes[2].evidence.as_deref(),
            Some("file src/odd/a\\nb")
        );
    }
}
