//! What a planner answers: read strictly, checked as a whole, and made into tasks.
//!
//! Ids come from the requirement, the head of the repo and the plan's own ids, so the
//! same plan saved twice is saved once.

use std::collections::{BTreeMap, BTreeSet};

use runner_core::digest::sha256_hex;
use runner_core::text::{ALIKE, nearest};
use runner_lifecycle::decide::dependency_cycle;
use runner_lifecycle::lock::{Resource, overlap};
use runner_lifecycle::request::NewTask;
use runner_lifecycle::row::{Criterion, TaskId};
use runner_lifecycle::{CriterionCheck, TaskPriority, TaskRisk};
use serde::Deserialize;

use super::draft::{TaskDefaults, check_text, scope_of, shown};
use super::role;

/// The published schema of a plan; the planner is given it.
pub const SCHEMA: &str = include_str!("../../../../schemas/plan.schema.json");

/// How often a plan is asked for before it is given up.
pub const MAX_TRIES: u32 = 3;

/// The longest answer that is read.
const MAX_BYTES: usize = 400_000;

/// The most tasks of one plan.
pub const MAX_TASKS: usize = 60;

/// The most entries of a list inside a task.
const MAX_ENTRIES: usize = 30;

const MAX_TITLE_CHARS: usize = 200;
const MAX_GOAL_CHARS: usize = 8000;
const MAX_LINE_CHARS: usize = 1000;

/// The most findings that are told at once.
const MAX_FINDINGS: usize = 30;

/// A plan: what to do, in tasks.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(rename = "Plan"))]
pub struct TaskPlan {
    /// The tasks, in any order.
    #[cfg_attr(test, schemars(length(min = 1, max = 60)))]
    pub tasks: Vec<PlannedTask>,
}

/// One task of a plan.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(inline))]
pub struct PlannedTask {
    /// A name inside this plan, for `depends_on`.
    #[cfg_attr(test, schemars(regex(pattern = "^[A-Za-z0-9][A-Za-z0-9_-]{0,39}$")))]
    pub id: String,
    /// A few words.
    #[cfg_attr(test, schemars(length(min = 1, max = 200)))]
    pub title: String,
    /// What shall be true in the end, with all that a session must know.
    #[cfg_attr(test, schemars(length(min = 1, max = 8000)))]
    pub goal: String,
    /// Who does it: a worker changes code, a tester finds out, a docser writes documentation.
    #[cfg_attr(test, schemars(extend("enum" = ["worker", "tester", "docser"])))]
    pub role: String,
    /// Paths or globs from the root of the repo that it may change. Tasks that do not depend
    /// on each other may not overlap.
    #[cfg_attr(test, schemars(length(min = 1, max = 30)))]
    pub allowed_paths: Vec<String>,
    /// Paths inside of them that it may not.
    #[cfg_attr(test, schemars(length(max = 30)))]
    pub forbidden_paths: Vec<String>,
    /// The ids of tasks that must be merged before.
    #[cfg_attr(test, schemars(length(max = 30)))]
    pub depends_on: Vec<String>,
    /// The conditions of done. The n-th one for a command is checked by the n-th command.
    #[cfg_attr(test, schemars(length(min = 1, max = 30)))]
    pub acceptance: Vec<PlannedCriterion>,
    /// Commands that must succeed, each one line for a shell; the guard runs anyway.
    #[cfg_attr(test, schemars(length(max = 30)))]
    pub commands: Vec<String>,
    /// How much it matters.
    #[cfg_attr(test, schemars(with = "String", extend("enum" = ["low", "normal", "high", "critical"])))]
    pub priority: TaskPriority,
    /// How likely it breaks something.
    #[cfg_attr(test, schemars(with = "String", extend("enum" = ["low", "medium", "high"])))]
    pub risk: TaskRisk,
    /// Whether files change; false for a task that only finds something out.
    pub expects_change: bool,
}

/// One condition of done.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(inline))]
pub struct PlannedCriterion {
    /// Its name; `guard` is the project's own guard.
    #[cfg_attr(test, schemars(regex(pattern = "^[A-Za-z0-9][A-Za-z0-9_-]{0,39}$")))]
    pub id: String,
    /// What must hold.
    #[cfg_attr(test, schemars(length(min = 1, max = 1000)))]
    pub text: String,
    /// A command, or a reviewer.
    #[cfg_attr(test, schemars(with = "String", extend("enum" = ["command", "review"])))]
    pub check: CriterionCheck,
}

/// Something wrong with a plan; the planner is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanFinding {
    /// The task, if it is about one.
    pub task: Option<String>,
    /// What is wrong, as a lowercase fragment.
    pub message: String,
}

impl std::fmt::Display for PlanFinding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.task {
            Some(task) => write!(f, "task {}: {}", shown(task), self.message),
            None => f.write_str(&self.message),
        }
    }
}

/// The name of a plan: of its requirement and the repo that it was made for.
pub fn plan_signature(requirement: &str, head: &str) -> String {
    let words: Vec<&str> = requirement.split_whitespace().collect();
    sha256_hex(format!("{}\n{head}", words.join(" ")).as_bytes())[..16].to_owned()
}

/// What tasks of a plan name as their source.
pub fn source_of(signature: &str) -> String {
    format!("plan:{signature}")
}

/// Reads an answer and makes tasks of it, dependencies first. Otherwise everything that
/// is wrong with it.
pub fn read(
    answer: &str,
    signature: &str,
    defaults: &TaskDefaults,
) -> Result<Vec<NewTask>, Vec<PlanFinding>> {
    let plan = parse(answer).map_err(|finding| vec![finding])?;
    let mut findings = PlanFindings::default();
    check_ids(&plan, &mut findings);
    let tasks: Vec<NewTask> = plan
        .tasks
        .iter()
        .filter_map(|task| new_task(task, &plan, signature, defaults, &mut findings))
        .collect();
    if findings.0.is_empty() {
        check_edges(&plan, &tasks, &mut findings);
    }
    if !findings.0.is_empty() {
        findings.0.truncate(MAX_FINDINGS);
        return Err(findings.0);
    }
    Ok(in_order(tasks))
}

#[derive(Default)]
struct PlanFindings(Vec<PlanFinding>);

impl PlanFindings {
    fn about(&mut self, task: &PlannedTask, message: impl Into<String>) {
        self.0.push(PlanFinding {
            task: Some(task.id.clone()),
            message: message.into(),
        });
    }
}

fn parse(answer: &str) -> Result<TaskPlan, PlanFinding> {
    let whole = |message: String| PlanFinding {
        task: None,
        message,
    };
    if answer.len() > MAX_BYTES {
        let bytes = answer.len();
        return Err(whole(format!(
            "the plan has {bytes} bytes, {MAX_BYTES} at most"
        )));
    }
    let plan: TaskPlan = serde_json::from_str(super::json_of(answer))
        .map_err(|error| whole(format!("the plan is not as the schema says: {error}")))?;
    match plan.tasks.len() {
        0 => Err(whole("the plan is empty: it has no task".to_owned())),
        count if count > MAX_TASKS => Err(whole(format!(
            "the plan has {count} tasks, {MAX_TASKS} at most: make larger ones"
        ))),
        _ => Ok(plan),
    }
}

/// Names that are usable, and each once.
fn check_ids(plan: &TaskPlan, findings: &mut PlanFindings) {
    let mut seen = BTreeSet::new();
    for task in &plan.tasks {
        if !is_local_id(&task.id) {
            findings.about(
                task,
                "its id needs 1 to 40 letters, digits, `_` or `-`, beginning with a letter or digit",
            );
        } else if !seen.insert(task.id.to_ascii_lowercase()) {
            findings.about(task, "another task has the same id");
        }
    }
}

fn is_local_id(text: &str) -> bool {
    (1..=40).contains(&text.len())
        && text.starts_with(|c: char| c.is_ascii_alphanumeric())
        && text
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-'))
}

/// A task by itself.
fn new_task(
    task: &PlannedTask,
    plan: &TaskPlan,
    signature: &str,
    defaults: &TaskDefaults,
    findings: &mut PlanFindings,
) -> Option<NewTask> {
    let role = role::by_name(&task.role);
    if role.is_none() {
        let (name, names) = (shown(&task.role), role::names());
        findings.about(task, format!("role {name} is unknown: {names}"));
    }
    check_texts(task, findings);
    let mut scope_or_none = |paths: &[String]| {
        scope_of(paths).unwrap_or_else(|why| {
            findings.about(task, why);
            Vec::new()
        })
    };
    let lock_scope = scope_or_none(&task.allowed_paths);
    let forbidden_scope = scope_or_none(&task.forbidden_paths);
    check_scopes(task, &lock_scope, &forbidden_scope, findings);
    let acceptance = criteria(task, defaults, findings);
    let dependencies = dependencies(task, plan, signature, findings);
    // An id that cannot be one has its finding already.
    let id = task_id(signature, &task.id)?;
    Some(NewTask {
        title: task.title.trim().to_owned(),
        goal: task.goal.trim().to_owned(),
        source: Some(source_of(signature)),
        priority: task.priority,
        risk: task.risk,
        dependencies,
        lock_scope,
        forbidden_scope,
        acceptance,
        commands: task.commands.clone(),
        expects_change: task.expects_change,
        ..defaults.task(id, role)
    })
}

/// The id of a task in the ledger.
fn task_id(signature: &str, local: &str) -> Option<TaskId> {
    let name = signature.get(..8).unwrap_or(signature);
    TaskId::parse(&format!("p{name}-{local}")).ok()
}

fn check_texts(task: &PlannedTask, findings: &mut PlanFindings) {
    let mut check = |what: &str, text: &str, max: usize| {
        if let Err(why) = check_text(text, max) {
            findings.about(task, format!("{what} {why}"));
        }
    };
    check("its title", &task.title, MAX_TITLE_CHARS);
    check("its goal", &task.goal, MAX_GOAL_CHARS);
    for command in &task.commands {
        check("a command", command, MAX_LINE_CHARS);
        if command.contains('\n') {
            findings.about(task, "a command is one line");
            break;
        }
    }
    for (what, count) in [
        ("allowed_paths", task.allowed_paths.len()),
        ("forbidden_paths", task.forbidden_paths.len()),
        ("depends_on", task.depends_on.len()),
        ("acceptance", task.acceptance.len()),
        ("commands", task.commands.len()),
    ] {
        if count > MAX_ENTRIES {
            findings.about(
                task,
                format!("{what} has {count} entries, {MAX_ENTRIES} at most"),
            );
        }
    }
}

fn check_scopes(
    task: &PlannedTask,
    lock_scope: &[Resource],
    forbidden: &[Resource],
    findings: &mut PlanFindings,
) {
    if task.allowed_paths.is_empty() {
        findings.about(task, "allowed_paths is empty: name what it may change");
    }
    let all_forbidden = !lock_scope.is_empty()
        && lock_scope
            .iter()
            .all(|path| forbidden.iter().any(|one| one.covers(path)));
    if all_forbidden {
        findings.about(task, "everything that it may change is forbidden to it");
    }
}

fn criteria(
    task: &PlannedTask,
    defaults: &TaskDefaults,
    findings: &mut PlanFindings,
) -> Vec<Criterion> {
    if task.acceptance.is_empty() {
        findings.about(
            task,
            "acceptance is empty: say how one can see that it is done",
        );
    }
    let mut seen = BTreeSet::new();
    for criterion in &task.acceptance {
        let id = &criterion.id;
        if !is_local_id(id) || !seen.insert(id) {
            let name = shown(id);
            findings.about(task, format!("criterion {name} needs an id of its own"));
        }
        if let Err(why) = check_text(&criterion.text, MAX_LINE_CHARS) {
            findings.about(task, format!("the text of criterion {} {why}", shown(id)));
        }
        if criterion.check == CriterionCheck::Review && !defaults.review {
            let name = shown(id);
            findings.about(
                task,
                format!("criterion {name} asks for a review, and reviews are off: use a command"),
            );
        }
    }
    let made = task.acceptance.iter().map(|criterion| Criterion {
        id: criterion.id.clone(),
        text: criterion.text.trim().to_owned(),
        check: criterion.check,
    });
    made.collect()
}

fn dependencies(
    task: &PlannedTask,
    plan: &TaskPlan,
    signature: &str,
    findings: &mut PlanFindings,
) -> Vec<TaskId> {
    let known: Vec<&str> = plan.tasks.iter().map(|one| one.id.as_str()).collect();
    let mut ids: Vec<TaskId> = Vec::new();
    for name in &task.depends_on {
        if *name == task.id {
            findings.about(task, "it depends on itself");
        } else if !known.contains(&name.as_str()) {
            let (likeness, meant) = nearest(name, &known);
            let hint = if likeness >= ALIKE && meant != task.id {
                format!(" (did you mean {}?)", shown(meant))
            } else {
                String::new()
            };
            findings.about(
                task,
                format!(
                    "it depends on {}, which is no task of this plan{hint}",
                    shown(name)
                ),
            );
        } else if let Some(id) = task_id(signature, name) {
            if ids.contains(&id) {
                findings.about(task, format!("dependency {} is named twice", shown(name)));
            } else {
                ids.push(id);
            }
        }
    }
    ids
}

/// What only the plan as a whole shows: circles, and scopes that overlap between tasks of
/// which none waits for the other.
fn check_edges(plan: &TaskPlan, tasks: &[NewTask], findings: &mut PlanFindings) {
    let edges: BTreeMap<TaskId, Vec<TaskId>> = tasks
        .iter()
        .map(|task| (task.id.clone(), task.dependencies.clone()))
        .collect();
    let local = |id: &TaskId| {
        let place = tasks.iter().position(|task| task.id == *id);
        place.map_or_else(|| shown(id.as_str()), |at| shown(&plan.tasks[at].id))
    };
    if let Some(cycle) = dependency_cycle(&edges) {
        let names: Vec<String> = cycle.iter().chain(cycle.first()).map(local).collect();
        findings.0.push(PlanFinding {
            task: None,
            message: format!(
                "the tasks depend on each other in a circle: {}",
                names.join(" -> ")
            ),
        });
        return;
    }
    let before = all_before(&edges);
    let waits = |one: &NewTask, other: &NewTask| {
        before
            .get(&one.id)
            .is_some_and(|all| all.contains(&other.id))
    };
    for (at, task) in tasks.iter().enumerate() {
        for other in &tasks[at + 1..] {
            let ordered = waits(task, other) || waits(other, task);
            if !ordered && overlap(&task.lock_scope, &other.lock_scope) {
                findings.about(
                    &plan.tasks[at],
                    format!(
                        "its allowed paths overlap those of {}: let one depend on the other, or \
                         give them different paths",
                        local(&other.id)
                    ),
                );
            }
        }
    }
}

/// Everything that must be done before each task, for edges without a circle.
fn all_before(edges: &BTreeMap<TaskId, Vec<TaskId>>) -> BTreeMap<TaskId, BTreeSet<TaskId>> {
    let mut before: BTreeMap<TaskId, BTreeSet<TaskId>> = BTreeMap::new();
    while before.len() < edges.len() {
        for (task, needs) in edges {
            if before.contains_key(task) || !needs.iter().all(|need| before.contains_key(need)) {
                continue;
            }
            let mut all: BTreeSet<TaskId> = needs.iter().cloned().collect();
            for need in needs {
                all.extend(before[need].iter().cloned());
            }
            before.insert(task.clone(), all);
        }
    }
    before
}

/// Dependencies first, otherwise as the plan has them: whoever saves them one by one
/// never names a task that is not there.
fn in_order(mut left: Vec<NewTask>) -> Vec<NewTask> {
    let mut ordered: Vec<NewTask> = Vec::new();
    while !left.is_empty() {
        let free = |task: &NewTask| {
            task.dependencies
                .iter()
                .all(|need| ordered.iter().any(|done| done.id == *need))
        };
        // There is no circle, so one of them is always free.
        let at = left.iter().position(free).unwrap_or(0);
        ordered.push(left.remove(at));
    }
    ordered
}

#[cfg(test)]
mod tests;
