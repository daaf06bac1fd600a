//! Events: one for each version of a row, and the row they add up to.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value};

use crate::row::{FieldChange, Task, TaskId};
use crate::time::Timestamp;
use crate::words::TaskState;

/// One change of one row. Appended, never changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TaskEvent {
    /// Whose row it is.
    pub task_id: TaskId,
    /// The version that the row has after it. `(task_id, version)` is unique.
    pub version: u64,
    /// The state before; none for the creation.
    pub from_state: Option<TaskState>,
    /// The state after.
    pub to_state: TaskState,
    /// Who did it.
    pub actor: String,
    /// A word for what happened.
    pub reason: String,
    /// When.
    pub created_at: Timestamp,
    /// What else is known: for a timeout, the last heartbeat and the limit.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub details: Map<String, Value>,
    /// The fields that changed, with their new values.
    #[serde(
        serialize_with = "changes_as_object",
        deserialize_with = "changes_from_object"
    )]
    pub changes: Vec<FieldChange>,
}

/// Changes are written as one object: `{"state": "todo", "blocker": null}`.
fn changes_as_object<S: Serializer>(
    changes: &[FieldChange],
    serializer: S,
) -> Result<S::Ok, S::Error> {
    use serde::ser::Error as _;
    let mut object = Map::new();
    for change in changes {
        let Ok(Value::Object(one)) = serde_json::to_value(change) else {
            return Err(S::Error::custom("a change is an object"));
        };
        object.extend(one);
    }
    object.serialize(serializer)
}

fn changes_from_object<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Vec<FieldChange>, D::Error> {
    let object = Map::deserialize(deserializer)?;
    let changes: Result<Vec<FieldChange>, D::Error> = object
        .into_iter()
        .map(|(field, value)| {
            let one = Value::Object(Map::from_iter([(field, value)]));
            serde_json::from_value(one).map_err(serde::de::Error::custom)
        })
        .collect();
    // An object has its own order of keys; an event has that of the row.
    let mut changes = changes?;
    changes.sort_by_key(FieldChange::place);
    Ok(changes)
}

/// Why events do not add up to a row.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FoldError {
    /// There is no event at all.
    #[error("there is no event")]
    Empty,
    /// An event of another task.
    #[error("event {version} is of task {found}, not of {expected}")]
    OtherTask {
        /// Whose events these are.
        expected: TaskId,
        /// Whose event it is.
        found: TaskId,
        /// Its version.
        version: u64,
    },
    /// An event is missing, doubled or out of order.
    #[error("event {expected} is expected, event {found} follows")]
    Gap {
        /// The version that should follow.
        expected: u64,
        /// The version that follows.
        found: u64,
    },
    /// An event does not begin where the one before ended.
    #[error("event {version} begins in another state than the row has")]
    WrongFrom {
        /// Its version.
        version: u64,
    },
    /// An event says another state than its changes lead to.
    #[error("event {version} ends in another state than its changes lead to")]
    WrongTo {
        /// Its version.
        version: u64,
    },
    /// An event that no task may go through.
    #[error("event {version} goes from {from} to {to}, which is not legal")]
    Illegal {
        /// Its version.
        version: u64,
        /// The state before.
        from: TaskState,
        /// The state after.
        to: TaskState,
    },
}

/// Rebuilds a row from all its events.
pub fn fold(events: &[TaskEvent]) -> Result<Task, FoldError> {
    let first = events.first().ok_or(FoldError::Empty)?;
    let mut row = Task::blank(first.task_id.clone());
    for event in events {
        extend(&mut row, event)?;
    }
    Ok(row)
}

/// Applies the next event to a row.
pub fn extend(row: &mut Task, event: &TaskEvent) -> Result<(), FoldError> {
    let version = event.version;
    if event.task_id != row.id {
        return Err(FoldError::OtherTask {
            expected: row.id.clone(),
            found: event.task_id.clone(),
            version,
        });
    }
    if version != row.version + 1 {
        return Err(FoldError::Gap {
            expected: row.version + 1,
            found: version,
        });
    }
    let before = (row.version > 0).then_some(row.state);
    if event.from_state != before {
        return Err(FoldError::WrongFrom { version });
    }
    if let Some(from) = before {
        // A change that is no transition leaves the state as it is.
        if from != event.to_state && !from.may_become(event.to_state) {
            return Err(FoldError::Illegal {
                version,
                from,
                to: event.to_state,
            });
        }
    }
    for change in &event.changes {
        row.apply(change);
    }
    row.version = version;
    if row.state != event.to_state {
        return Err(FoldError::WrongTo { version });
    }
    Ok(())
}
