//! Packets: what a session is given, and what it gives back.
//!
//! Strict: an unknown field is refused unless it begins with `x_`. The typed parser is
//! what the ledger uses; the schemas under `schemas/` are generated from the same types
//! for everyone else, and a test holds both to accept the same documents.

mod check;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use check::{check_assignment, check_result, evidence};

use crate::decide::Refusal;
use crate::row::ContextItem;
use crate::words::{CriterionCheck, RefusalCode, TaskPriority, TaskType};

/// The version that is written.
pub const SCHEMA_VERSION: &str = "1.0.0";

/// The most notes a result may carry.
pub const MAX_NOTES: usize = 5;

/// The published schema of an assignment.
pub const ASSIGNMENT_SCHEMA: &str = include_str!("../../../schemas/assignment.schema.json");

/// The published schema of a result.
pub const RESULT_SCHEMA: &str = include_str!("../../../schemas/result.schema.json");

/// The schemas of this crate with their names.
pub const SCHEMAS: &[(&str, &str)] =
    &[("assignment", ASSIGNMENT_SCHEMA), ("result", RESULT_SCHEMA)];

/// The `$id` of the schema of a result, as assignments name it.
pub const RESULT_SCHEMA_ID: &str = "runner:result:1";

/// Fields that only their writer knows; their names begin with `x_`.
pub type PacketExtra = BTreeMap<String, Value>;

/// What a claim gives its owner.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Assignment {
    /// "1.0.0"; another major version is refused.
    #[cfg_attr(
        test,
        schemars(regex(pattern = r"^1\.(0|[1-9][0-9]{0,8})\.(0|[1-9][0-9]{0,8})$"))
    )]
    pub schema_version: String,
    /// The run that this claim is about.
    #[cfg_attr(test, schemars(length(min = 1)))]
    pub run_id: String,
    /// Always "assignment".
    #[cfg_attr(test, schemars(regex(pattern = "^assignment$")))]
    pub packet_type: String,
    /// What the whole is for.
    pub global_objective: String,
    /// The task.
    pub task: AssignedTask,
    /// What others hold.
    pub active_locks: Vec<ActiveLock>,
    /// What to know.
    pub context_package: Vec<ContextEntry>,
    /// The schema that the result must follow.
    pub required_output_schema: Value,
    /// Fields that begin with `x_`.
    #[serde(flatten)]
    pub extra: PacketExtra,
}

/// The task of an assignment.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct AssignedTask {
    /// Its id.
    #[cfg_attr(test, schemars(length(min = 1)))]
    pub task_id: String,
    /// A few words.
    pub title: String,
    /// Whether it runs beside others.
    #[serde(rename = "type")]
    pub task_type: TaskType,
    /// What was done before.
    pub dependencies: Vec<String>,
    /// What may be changed.
    #[cfg_attr(test, schemars(length(min = 1)))]
    pub lock_scope: Vec<String>,
    /// What may not, though it lies inside.
    pub forbidden_scope: Vec<String>,
    /// What must hold at the end.
    #[cfg_attr(test, schemars(length(min = 1)))]
    pub acceptance_criteria: Vec<AcceptanceCriterion>,
    /// Where to write down what was done.
    #[cfg_attr(test, schemars(length(min = 1)))]
    pub worklog_path: String,
    /// How long nothing may be heard.
    #[cfg_attr(test, schemars(range(min = 30, max = 4_294_967_295_u32)))]
    pub timeout_seconds: u32,
    /// How often a heartbeat is due; less than the timeout.
    #[cfg_attr(test, schemars(range(min = 5, max = 4_294_967_295_u32)))]
    pub heartbeat_interval_seconds: u32,
    /// How much it matters.
    pub priority: TaskPriority,
    /// Fields that begin with `x_`.
    #[serde(flatten)]
    pub extra: PacketExtra,
}

/// One condition of `done`, as packets name it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct AcceptanceCriterion {
    /// Its name.
    #[cfg_attr(test, schemars(length(min = 1)))]
    pub id: String,
    /// What must hold.
    pub text: String,
    /// Who checks it.
    pub check: CriterionCheck,
    /// Fields that begin with `x_`.
    #[serde(flatten)]
    pub extra: PacketExtra,
}

/// A lock that somebody else holds.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ActiveLock {
    /// Whose it is.
    #[cfg_attr(test, schemars(length(min = 1)))]
    pub task_id: String,
    /// What it covers.
    #[cfg_attr(test, schemars(length(min = 1)))]
    pub resource: String,
    /// Whether it is held now.
    pub active: bool,
    /// Fields that begin with `x_`.
    #[serde(flatten)]
    pub extra: PacketExtra,
}

/// Something to know.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ContextEntry {
    /// What it is.
    pub kind: crate::words::ContextKind,
    /// The path, text or command.
    pub value: String,
    /// Fields that begin with `x_`.
    #[serde(flatten)]
    pub extra: PacketExtra,
}

impl From<&ContextItem> for ContextEntry {
    fn from(item: &ContextItem) -> ContextEntry {
        ContextEntry {
            kind: item.kind,
            value: item.value.clone(),
            extra: PacketExtra::new(),
        }
    }
}

words! {
    /// What a result says of itself.
    ResultStatus {
        /// Everything holds.
        Done = "done",
        /// Something is in the way.
        Blocked = "blocked",
        /// It did not work.
        Failed = "failed",
    }
}

words! {
    /// What was done to a resource.
    ChangeAction {
        /// It is new.
        Created = "created",
        /// It is another.
        Modified = "modified",
        /// It is gone.
        Deleted = "deleted",
        /// It has another name.
        Renamed = "renamed",
    }
}

words! {
    /// The answer to a criterion.
    CheckStatus {
        /// It holds.
        Pass = "pass",
        /// It does not.
        Fail = "fail",
    }
}

/// What a session gives back.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ResultPacket {
    /// "1.0.0"; another major version is refused.
    #[cfg_attr(
        test,
        schemars(regex(pattern = r"^1\.(0|[1-9][0-9]{0,8})\.(0|[1-9][0-9]{0,8})$"))
    )]
    pub schema_version: String,
    /// The run that it is about.
    #[cfg_attr(test, schemars(length(min = 1)))]
    pub run_id: String,
    /// The task.
    #[cfg_attr(test, schemars(length(min = 1)))]
    pub task_id: String,
    /// What it says of itself.
    pub status: ResultStatus,
    /// What is different now.
    pub changes: Vec<ResourceChange>,
    /// The answers to the criteria.
    pub acceptance_check: Vec<AcceptanceAnswer>,
    /// Where it is written down.
    #[cfg_attr(test, schemars(length(min = 1)))]
    pub worklog_path: String,
    /// Words for whoever goes on.
    #[cfg_attr(test, schemars(length(max = 5)))]
    pub notes_for_orchestrator: Vec<String>,
    /// Fields that begin with `x_`.
    #[serde(flatten)]
    pub extra: PacketExtra,
}

/// A changed resource.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ResourceChange {
    /// Which.
    #[cfg_attr(test, schemars(length(min = 1)))]
    pub resource: String,
    /// What was done to it.
    pub action: ChangeAction,
    /// How one can see that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub evidence: Option<String>,
    /// Fields that begin with `x_`.
    #[serde(flatten)]
    pub extra: PacketExtra,
}

/// The answer to one criterion.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct AcceptanceAnswer {
    /// The id of the criterion.
    #[cfg_attr(test, schemars(length(min = 1)))]
    pub criterion: String,
    /// The answer.
    pub status: CheckStatus,
    /// How one can see that: for a command its exit code and the hash of its log.
    pub evidence: String,
    /// Fields that begin with `x_`.
    #[serde(flatten)]
    pub extra: PacketExtra,
}

impl Assignment {
    /// Reads an assignment, strictly.
    pub fn parse(bytes: &[u8]) -> Result<Assignment, Refusal> {
        let packet: Assignment = parse(bytes)?;
        check_assignment(&packet)?;
        Ok(packet)
    }
}

impl ResultPacket {
    /// Reads a result, strictly.
    pub fn parse(bytes: &[u8]) -> Result<ResultPacket, Refusal> {
        let packet: ResultPacket = parse(bytes)?;
        check::result_shape(&packet)?;
        Ok(packet)
    }
}

/// The version comes first: of a version that we do not know, no field means anything.
fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Refusal> {
    let value: Value = serde_json::from_slice(bytes).map_err(|error| {
        Refusal::new(
            RefusalCode::SchemaInvalid,
            format!("the packet is no JSON: {error}"),
        )
    })?;
    let Some(object) = value.as_object() else {
        return Err(Refusal::new(
            RefusalCode::SchemaInvalid,
            "the packet is no JSON object",
        ));
    };
    match object.get("schema_version") {
        Some(Value::String(version)) => check::version(version)?,
        Some(_) => {
            return Err(Refusal::new(
                RefusalCode::SchemaInvalid,
                "schema_version is no text",
            ));
        }
        None => {
            return Err(Refusal::new(
                RefusalCode::MissingRequiredInput,
                "the packet says no schema_version",
            ));
        }
    }
    // From the text and not from the value: of a key that is there twice the value has
    // only the last.
    serde_json::from_slice(bytes).map_err(|error| {
        let words = error.to_string();
        let code = if words.starts_with("missing field") {
            RefusalCode::MissingRequiredInput
        } else {
            RefusalCode::SchemaInvalid
        };
        Refusal::new(code, words)
    })
}
