//! The body of `POST /tasks`, checked before the ledger sees it.

use runner_lifecycle::lock::Resource;
use runner_lifecycle::request::NewTask;
use runner_lifecycle::{TaskId, row};
use serde::Deserialize;
use utoipa::ToSchema;

use super::input::actor;
use super::refusal::{FleetFailure, FleetResult};
use super::words::{
    ContextKindView, CriterionCheckView, LaneView, TaskPriorityView, TaskRiskView, TaskTypeView,
};
use crate::serve::random_hex;

/// A task to make.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({
    "title": "Parse dates", "goal": "Dates with a zone are read.", "lock_scope": ["src/dates/**"],
    "acceptance": [{"id": "guard", "text": "the guard is green", "check": "command"}],
    "priority": "high"
}))]
pub(crate) struct NewTaskBody {
    /// Its id; made up if not said.
    #[schema(pattern = "^[A-Za-z0-9_-][A-Za-z0-9._-]{0,63}$")]
    id: Option<String>,
    /// A few words.
    #[schema(min_length = 1, max_length = 200)]
    title: String,
    /// What shall be so.
    #[serde(default)]
    goal: String,
    /// Which agents get it: `worker` if not said.
    #[schema(pattern = "^[a-z][a-z0-9_-]{0,31}$")]
    role: Option<String>,
    /// Which slots it competes for: `feature` if not said.
    lane: Option<LaneView>,
    /// `normal` if not said.
    priority: Option<TaskPriorityView>,
    /// `medium` if not said.
    risk: Option<TaskRiskView>,
    /// `parallelizable` if not said.
    #[serde(rename = "type")]
    task_type: Option<TaskTypeView>,
    /// Tasks that must be done first.
    #[serde(default)]
    #[schema(max_items = 100)]
    dependencies: Vec<String>,
    /// What it may change: paths of the repo; `x/**` is `x`, `**` is `.`.
    #[schema(min_items = 1, max_items = 100)]
    lock_scope: Vec<String>,
    /// What it may not, though it lies inside.
    #[serde(default)]
    #[schema(max_items = 100)]
    forbidden_scope: Vec<String>,
    /// The conditions of `done`; that the guard is green if there are none.
    #[serde(default)]
    #[schema(max_items = 50)]
    acceptance: Vec<CriterionBody>,
    /// The commands that check it.
    #[serde(default)]
    #[schema(max_items = 50)]
    commands: Vec<String>,
    /// Whether a result without a change is none; true if not said.
    expects_change: Option<bool>,
    /// What a session is told.
    #[serde(default)]
    #[schema(max_items = 100)]
    context: Vec<ContextBody>,
    /// How long nothing may be heard of its owner; 90 if not said.
    #[schema(minimum = 30, maximum = 86400)]
    timeout_seconds: Option<u32>,
    /// How often its owner says that it lives; 15 if not said; less than the timeout.
    #[schema(minimum = 5, maximum = 86400)]
    heartbeat_interval_seconds: Option<u32>,
    /// How long a run may take; 3600 if not said.
    #[schema(minimum = 1, maximum = 604_800)]
    timebox_seconds: Option<u32>,
    /// The issue that it is for.
    #[schema(max_length = 200)]
    source: Option<String>,
    /// Who asks; `http` if not said.
    #[schema(pattern = "^[!-~]{1,64}$")]
    actor: Option<String>,
}

/// One condition of `done`.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct CriterionBody {
    #[schema(min_length = 1, max_length = 64)]
    id: String,
    #[schema(max_length = 2000)]
    text: String,
    check: CriterionCheckView,
}

/// Something a session is told.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ContextBody {
    kind: ContextKindView,
    value: String,
}

/// An id that follows from a name, the same each time.
pub(crate) fn id_from(name: &str) -> String {
    let digest = runner_core::digest::sha256_hex(name.as_bytes());
    format!("t-{}", &digest[..16])
}

/// Roles are words of the config, and of file names.
pub(crate) fn check_role(role: &str) -> FleetResult<()> {
    let mut bytes = role.bytes();
    let first = bytes.next().is_some_and(|byte| byte.is_ascii_lowercase());
    let plain = |byte: u8| {
        byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'_' | b'-')
    };
    if first && role.len() <= 32 && bytes.all(plain) {
        return Ok(());
    }
    Err(FleetFailure::input(
        "a role is 1 to 32 lowercase letters, digits, `_` and `-`, the first a letter",
    ))
}

impl NewTaskBody {
    /// The task for the ledger, and who asks for it.
    pub(crate) fn into_new_task(self, name: Option<&str>) -> FleetResult<(NewTask, String)> {
        let id = match (self.id, name) {
            (Some(id), _) => id,
            (None, Some(name)) => id_from(name),
            (None, None) => {
                let random = random_hex(8).map_err(|_| FleetFailure::input("say an id"))?;
                format!("t-{random}")
            }
        };
        let id = TaskId::parse(&id).map_err(|error| FleetFailure::input(error.to_string()))?;
        let title = self.title.trim();
        if title.is_empty() || title.chars().count() > 200 || title.chars().any(char::is_control) {
            return Err(FleetFailure::input(
                "title has 1 to 200 characters, all of them on one line",
            ));
        }
        let lock_scope = resources("lock_scope", &self.lock_scope)?;
        let forbidden_scope = resources("forbidden_scope", &self.forbidden_scope)?;
        few("dependencies", self.dependencies.len(), 100)?;
        few("acceptance", self.acceptance.len(), 50)?;
        few("commands", self.commands.len(), 50)?;
        few("context", self.context.len(), 100)?;
        let plain = NewTask::new(id.clone(), Resource::whole_repo());
        let role = self.role.unwrap_or(plain.role);
        check_role(&role)?;
        let dependencies: FleetResult<Vec<TaskId>> = self
            .dependencies
            .iter()
            .map(|id| TaskId::parse(id).map_err(|error| FleetFailure::input(error.to_string())))
            .collect();
        let acceptance: FleetResult<Vec<row::Criterion>> =
            self.acceptance.into_iter().map(criterion).collect();
        let acceptance = acceptance?;
        let timebox = self.timebox_seconds.unwrap_or(plain.timebox_seconds);
        let timeout = self.timeout_seconds.unwrap_or(plain.timeout_seconds);
        if !(1..=604_800).contains(&timebox) || timeout > 86_400 {
            return Err(FleetFailure::input(
                "timebox_seconds is 1 to 604800, timeout_seconds at most 86400",
            ));
        }
        if self
            .source
            .as_ref()
            .is_some_and(|text| text.chars().count() > 200)
        {
            return Err(FleetFailure::input("source has at most 200 characters"));
        }
        let new = NewTask {
            title: title.to_owned(),
            goal: self.goal,
            role,
            lane: self.lane.map_or(plain.lane, |word| word.0),
            source: self.source,
            priority: self.priority.map_or(plain.priority, |word| word.0),
            risk: self.risk.map_or(plain.risk, |word| word.0),
            task_type: self.task_type.map_or(plain.task_type, |word| word.0),
            dependencies: dependencies?,
            lock_scope,
            forbidden_scope,
            acceptance: if acceptance.is_empty() {
                plain.acceptance
            } else {
                acceptance
            },
            commands: self.commands,
            expects_change: self.expects_change.unwrap_or(plain.expects_change),
            context: self.context.into_iter().map(context).collect(),
            timeout_seconds: timeout,
            heartbeat_interval_seconds: self
                .heartbeat_interval_seconds
                .unwrap_or(plain.heartbeat_interval_seconds),
            timebox_seconds: timebox,
            ..NewTask::new(id, Resource::whole_repo())
        };
        Ok((new, actor(self.actor)?))
    }
}

fn few(what: &str, count: usize, most: usize) -> FleetResult<()> {
    if count <= most {
        return Ok(());
    }
    Err(FleetFailure::input(format!(
        "{what} has at most {most} items"
    )))
}

fn resources(what: &str, texts: &[String]) -> FleetResult<Vec<Resource>> {
    few(what, texts.len(), 100)?;
    let one = |(at, text): (usize, &String)| {
        let resource = Resource::from_allowed_path(text).ok();
        let path = resource.filter(|resource| resource.is_path() && text.len() <= 1024);
        path.ok_or_else(|| {
            FleetFailure::input(format!(
                "{what} has paths of the repo, without `.` and `..`, of at most 1024 bytes"
            ))
            .detail("item", at)
        })
    };
    texts.iter().enumerate().map(one).collect()
}

fn criterion(body: CriterionBody) -> FleetResult<row::Criterion> {
    if body.id.chars().count() > 64 || body.text.chars().count() > 2000 {
        return Err(FleetFailure::input(
            "a criterion has an id of at most 64 and a text of at most 2000 characters",
        ));
    }
    Ok(row::Criterion {
        id: body.id,
        text: body.text,
        check: body.check.0,
    })
}

fn context(body: ContextBody) -> row::ContextItem {
    row::ContextItem {
        kind: body.kind.0,
        value: body.value,
    }
}
