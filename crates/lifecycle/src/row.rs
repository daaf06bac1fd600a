//! The row of a task, and a change of each of its fields.
//!
//! The fields are listed once, in `task_row!`: the row, the changes that events
//! carry, the difference of two rows and its application all come from that list, so
//! no field can be forgotten in one of them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::lock::{Resource, WHOLE_REPO, normalise};
use crate::time::Timestamp;
use crate::words::{
    BlockReason, ContextKind, CriterionCheck, FailureCategory, Lane, RefusalCode, ReworkCause,
    TaskKind, TaskOrigin, TaskPhase, TaskPriority, TaskRisk, TaskState, TaskType,
};

/// The name of a task: letters, digits, `.`, `_` and `-`, 64 at most, and nothing that
/// cannot be a folder or a part of a git ref, since it goes into paths, refs and lock
/// names.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct TaskId(String);

/// A text that cannot be the id of a task.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is no task id: use letters, digits, `.`, `_` and `-`, 64 at most; it begins with no \
     `.` or `-`, ends with no `.` or `.lock` and has no `..` in it, as git refs demand"
)]
pub struct TaskIdError(pub String);

impl TaskId {
    /// Checks the form of an id.
    pub fn parse(text: &str) -> Result<TaskId, TaskIdError> {
        let fits_a_ref = !text.starts_with(['.', '-'])
            && !text.ends_with('.')
            && text.strip_suffix(".lock").is_none()
            && !text.contains("..");
        if fits_a_ref && runner_core::ids::is_well_formed(text) {
            Ok(TaskId(text.to_owned()))
        } else {
            Err(TaskIdError(text.to_owned()))
        }
    }

    /// The text of the id.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Display for TaskId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(&self.0)
    }
}

impl TryFrom<String> for TaskId {
    type Error = TaskIdError;

    fn try_from(text: String) -> Result<TaskId, TaskIdError> {
        TaskId::parse(&text)
    }
}

impl From<TaskId> for String {
    fn from(id: TaskId) -> String {
        id.0
    }
}

/// What the source of a task begins with that fixes the base; the commit follows. Its
/// successors inherit it.
pub const RED_BASE: &str = "base:";

/// What a blocked task waits for; `blockers[]` of every orchestrator answer.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Blocker {
    /// The task that is blocked.
    pub task_id: TaskId,
    /// The word the recovery table knows.
    pub code: BlockReason,
    /// The same for people.
    pub reason: String,
    /// Since when.
    pub since: Timestamp,
    /// When it is tried again, if a clock decides that.
    pub retry_at: Option<Timestamp>,
    /// What it waits for: a task, a resource, an account.
    pub waits_for: Option<String>,
}

/// One condition of `done`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Criterion {
    /// Its name in packets.
    pub id: String,
    /// What must hold.
    pub text: String,
    /// Who checks it.
    pub check: CriterionCheck,
}

/// Something a session is told.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ContextItem {
    /// What it is.
    pub kind: ContextKind,
    /// The path, text or command.
    pub value: String,
}

/// What a judge found. One that was settled is not raised again.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReviewRemark {
    /// Its name.
    pub id: String,
    /// What is wrong.
    pub text: String,
}

/// The intent to move a base, recorded before it moves.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Intent {
    /// Where the base stood.
    pub old_base: String,
    /// Where it goes.
    pub merge_commit: String,
}

/// How often each thing happened. Nothing here is ever reset.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TaskCounters {
    /// Failed runs for each category.
    pub failures: BTreeMap<FailureCategory, u32>,
    /// Failed runs for each owner.
    pub failures_by_owner: BTreeMap<String, u32>,
    /// Runs that count: all but lost, taken back and quota ones.
    pub runs: u32,
    /// Runs ever opened; the number of the newest.
    pub attempts: u32,
    /// Times a quota was met.
    pub quota_waits: u32,
    /// Runs whose worker was lost.
    pub lost_work: u32,
    /// Judgements whose judge was lost.
    pub lost_judge: u32,
    /// Judgements that an evaluator could not make.
    pub judge: u32,
    /// New packets after structural codes.
    pub replans: u32,
    /// New packets after setup failures.
    pub setup_packets: u32,
    /// New packets after policy failures.
    pub policy_packets: u32,
    /// Repairs of the ledger that failed.
    pub repairs: u32,
    /// Runs made anew from a pull request.
    pub restores: u32,
    /// The last failure in its normal form.
    pub signature: Option<String>,
    /// How often it came in a row.
    pub signature_streak: u32,
}

impl TaskCounters {
    /// How many runs failed with that category.
    pub fn failed(&self, category: FailureCategory) -> u32 {
        self.failures.get(&category).copied().unwrap_or(0)
    }
}

/// The chain of successors a task belongs to. A parent has one successor at most, so
/// the counts of a chain are those of its last task.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Lineage {
    /// The first task.
    pub root: TaskId,
    /// How many tasks so far, this one included.
    pub tasks: u32,
    /// How many of them are `[AutoFix]`.
    pub auto_fixes: u32,
    /// How many are `[AutoFix-Conflict]`.
    pub conflict_fixes: u32,
    /// How many are `[Recreate]`.
    pub recreations: u32,
}

impl Lineage {
    /// A chain of one.
    pub fn begin(root: TaskId) -> Lineage {
        Lineage {
            root,
            tasks: 1,
            auto_fixes: 0,
            conflict_fixes: 0,
            recreations: 0,
        }
    }
}

/// Defines the row, the enum of its changes, and what turns one into the other.
macro_rules! task_row {
    ( $( $(#[$meta:meta])* $field:ident : $type:ty = $blank:expr ; )+ ) => {
        /// The row of a task.
        #[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
        #[serde(deny_unknown_fields)]
        pub struct Task {
            /// Its name, for good.
            pub id: TaskId,
            /// Counts the events of the row.
            pub version: u64,
            $( $(#[$meta])* pub $field: $type, )+
        }

        /// The new value of one field; named as the field is.
        #[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
        #[allow(non_camel_case_types)] // named as the fields are
        pub enum FieldChange {
            $( $(#[$meta])* $field($type), )+
        }

        impl FieldChange {
            /// The fields, in the order of the row.
            const FIELDS: &'static [&'static str] = &[$( stringify!($field) ),+];

            /// The field that changed.
            pub fn field(&self) -> &'static str {
                match self {
                    $( FieldChange::$field(_) => stringify!($field), )+
                }
            }

            /// Its place in the row.
            pub(crate) fn place(&self) -> Option<usize> {
                FieldChange::FIELDS.iter().position(|name| *name == self.field())
            }
        }

        impl Task {
            /// The row before its first event.
            pub fn blank(id: TaskId) -> Task {
                $( let $field: $type = { let blank: fn(&TaskId) -> $type = $blank; blank(&id) }; )+
                Task { id, version: 0, $( $field, )+ }
            }

            /// The fields in which the later row differs, in the order of the row.
            pub fn changes_to(&self, later: &Task) -> Vec<FieldChange> {
                let mut changes = Vec::new();
                $( if self.$field != later.$field {
                    changes.push(FieldChange::$field(later.$field.clone()));
                } )+
                changes
            }

            /// Sets one field.
            pub fn apply(&mut self, change: &FieldChange) {
                match change {
                    $( FieldChange::$field(value) => self.$field.clone_from(value), )+
                }
            }
        }
    };
}

task_row! {
    /// A few words.
    title: String = |_| String::new();
    /// What shall be so.
    goal: String = |_| String::new();
    /// What kind of work it is.
    kind: TaskKind = |_| TaskKind::Code;
    /// Which agents get it; empty while nobody knows.
    role: String = |_| String::new();
    /// Which slots it competes for.
    lane: Lane = |_| Lane::Feature;
    /// Where it comes from.
    origin: TaskOrigin = |_| TaskOrigin::Planned;
    /// The issue or pull request it was made for.
    source: Option<String> = |_| None;
    /// Whether a worker or a judge is next.
    phase: TaskPhase = |_| TaskPhase::Work;
    /// Where it stands.
    state: TaskState = |_| TaskState::Todo;
    /// What it waits for; there while `state` is `blocked`.
    blocker: Option<Blocker> = |_| None;
    /// Who holds the lease; the last one who did, once terminal.
    owner: Option<String> = |_| None;
    /// The newest fencing token; it only grows.
    token: u64 = |_| 0;
    /// How much it matters.
    priority: TaskPriority = |_| TaskPriority::Normal;
    /// How likely it breaks something.
    risk: TaskRisk = |_| TaskRisk::Medium;
    /// Whether it runs beside others.
    #[serde(rename = "type")]
    task_type: TaskType = |_| TaskType::Parallelizable;
    /// What must be done first.
    dependencies: Vec<TaskId> = |_| Vec::new();
    /// What it may change.
    lock_scope: Vec<Resource> = |_| Vec::new();
    /// What it may not, though it lies inside.
    forbidden_scope: Vec<Resource> = |_| Vec::new();
    /// The conditions of `done`.
    acceptance: Vec<Criterion> = |_| Vec::new();
    /// The commands that check it.
    commands: Vec<String> = |_| Vec::new();
    /// Whether a result without a change is none.
    expects_change: bool = |_| true;
    /// What a session is told.
    context: Vec<ContextItem> = |_| Vec::new();
    /// What judges found and nobody settled yet.
    remarks: Vec<ReviewRemark> = |_| Vec::new();
    /// Counts corrections of the packet.
    packet_revision: u32 = |_| 1;
    /// The revision that a structural code was about.
    refused_revision: Option<u32> = |_| None;
    /// How long nothing may be heard of the owner.
    timeout_seconds: u32 = |_| 90;
    /// How often it says that it lives.
    heartbeat_interval_seconds: u32 = |_| 15;
    /// How long a run may take.
    #[serde(rename = "timebox")]
    timebox_seconds: u32 = |_| 3600;
    /// Which entry of the configured models is used.
    model_index: u32 = |_| 0;
    /// Whether nothing new may start.
    paused: bool = |_| false;
    /// How often each thing happened.
    counters: TaskCounters = |_| TaskCounters::default();
    /// Why it needs rework, while it does.
    rework_cause: Option<ReworkCause> = |_| None;
    /// The merge that is under way.
    intent: Option<Intent> = |_| None;
    /// The run whose changes to its own judge a person has accepted.
    accepted_judge: Option<String> = |_| None;
    /// The commit that work starts from, if it is not the base.
    start_from: Option<String> = |_| None;
    /// The chain of successors.
    lineage: Lineage = |id| Lineage::begin(id.clone());
    /// Whose successor it is.
    rework_of: Option<TaskId> = |_| None;
    /// Its own successor.
    superseded_by: Option<TaskId> = |_| None;
    /// How many `[Rework]` the chain has so far.
    rework_depth: u32 = |_| 0;
    /// When it was made.
    created_at: Timestamp = |_| Timestamp(0);
    /// When it last changed; once terminal, when it ended.
    updated_at: Timestamp = |_| Timestamp(0);
}

impl Task {
    /// The word a blocked task waits with.
    pub fn blocked_on(&self) -> Option<BlockReason> {
        self.blocker.as_ref().map(|blocker| blocker.code)
    }

    /// The time before which nothing is tried again.
    pub fn retry_at(&self) -> Option<Timestamp> {
        self.blocker.as_ref().and_then(|blocker| blocker.retry_at)
    }

    /// Whether `done` takes a merge: there is git, and a change is expected.
    pub fn needs_merge(&self) -> bool {
        match self.kind {
            TaskKind::Code => self.expects_change,
            TaskKind::Review => true,
            TaskKind::Research => false,
        }
    }

    /// Whether a result of the task waits for its merge, and what changes the same paths waits behind
    /// it. One that waits for a person holds back nobody.
    pub fn has_unmerged_result(&self) -> bool {
        self.phase == TaskPhase::Judge
            && !self.state.is_terminal()
            && self.needs_merge()
            && self.blocked_on() != Some(BlockReason::ChangedJudge)
    }

    /// Whether a judge must see it before it is done.
    pub fn needs_judge(&self) -> bool {
        let reviewed = self
            .acceptance
            .iter()
            .any(|c| c.check == CriterionCheck::Review);
        self.needs_merge() || reviewed
    }

    /// Whether it, or the task whose lineage it is of, was made because the base is red:
    /// everything waits for it, so it waits behind nobody.
    pub fn fixes_base(&self) -> bool {
        let source = self.source.as_deref();
        self.origin == TaskOrigin::FixBase || source.is_some_and(|text| text.starts_with(RED_BASE))
    }

    /// What a worker of it locks: its scope, and the whole repo if it runs alone.
    pub fn work_scope(&self) -> Vec<Resource> {
        let mut scope = self.lock_scope.clone();
        if self.task_type == TaskType::Serial {
            scope.extend(Resource::parse(WHOLE_REPO));
        }
        normalise(scope)
    }

    /// Whether the packet was corrected since a structural code refused it.
    pub fn has_newer_packet(&self) -> bool {
        self.refused_revision
            .is_some_and(|refused| self.packet_revision > refused)
    }

    /// A blocker of this task.
    pub fn blocker_of(
        &self,
        code: BlockReason,
        reason: impl Into<String>,
        since: Timestamp,
    ) -> Blocker {
        Blocker {
            task_id: self.id.clone(),
            code,
            reason: reason.into(),
            since,
            retry_at: None,
            waits_for: None,
        }
    }
}

impl Blocker {
    /// The code, if the reason is one.
    pub fn refusal_code(&self) -> Option<RefusalCode> {
        self.code.code()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_can_be_folders_and_refs() {
        for (id, good) in [
            ("parse", true),
            ("a.b_c-1", true),
            ("v1.2.3-r2", true),
            ("", false),
            (".git", false),
            ("..", false),
            ("a..b", false),
            ("a.", false),
            ("a.lock", false),
            ("a.LOCK", true),
            ("-a", false),
            ("a/b", false),
        ] {
            assert_eq!(TaskId::parse(id).is_ok(), good, "{id:?}");
        }
    }
}
