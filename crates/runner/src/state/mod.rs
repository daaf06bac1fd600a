//! `.runner/` as it lies on disk: read, checked, all findings at once.

pub(crate) mod activity;
pub(crate) mod branch_record;
pub(crate) mod follow;
mod land_forecast;
pub(crate) mod log;
pub(crate) mod node_history;
pub(crate) mod recorded_files;
pub(crate) mod repair;
pub(crate) mod report;
pub(crate) mod runs;
pub(crate) mod tail;
pub(crate) mod validate;
pub(crate) mod view;

use runner_core::config::Config;
use runner_core::goal::Goal;
use runner_core::paths;
use runner_core::run_state::{self, RunState};
use runner_core::schema;
use runner_core::tree::{self, Node, TreeFinding, TreeOrder};

use crate::error::{Error, ErrorCode, Result};
use crate::files::ReadError;
use crate::project::Project;

/// The largest text file of `.runner/` that is read.
pub(crate) const MAX_TEXT: u64 = 8 * 1024 * 1024;

/// One thing that is wrong with the project.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProjectProblem {
    /// What kind.
    pub code: ErrorCode,
    /// The file, or the node's path in the tree.
    pub place: String,
    /// What is wrong there.
    pub message: String,
    /// What to do about it.
    pub hint: Option<String>,
}

impl ProjectProblem {
    pub(crate) fn new(code: ErrorCode, place: &str, message: impl Into<String>) -> Self {
        ProjectProblem {
            code,
            place: place.to_owned(),
            message: message.into(),
            hint: None,
        }
    }

    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

/// The parts that every step needs, besides the tree.
#[derive(Clone, Debug)]
#[allow(clippy::struct_field_names)] // It is what its file is called.
pub(crate) struct ProjectState {
    pub(crate) config: Config,
    pub(crate) goal: Goal,
    pub(crate) run_state: RunState,
}

/// Reads config, goal, bookkeeping and schemas, or says all that is wrong.
pub(crate) fn load(project: &Project) -> Result<ProjectState> {
    load_all(project).map_err(|problems| into_error(&problems))
}

/// The same with the findings as data.
pub(crate) fn load_all(project: &Project) -> Result<ProjectState, Vec<ProjectProblem>> {
    let mut problems = Vec::new();
    let config = load_config(project).unwrap_or_else(|found| {
        problems.extend(found);
        Config::default()
    });
    problems.extend(schema_drift(project));
    problems.extend(unreadable_texts(project));
    let goal = load_goal(project)
        .map_err(|problem| problems.push(problem))
        .ok();
    let run_state = load_run_state(project)
        .map_err(|problem| problems.push(problem))
        .ok();
    match (goal, run_state) {
        (Some(goal), Some(run_state)) if problems.is_empty() => Ok(ProjectState {
            config,
            goal,
            run_state,
        }),
        _ => Err(problems),
    }
}

/// The config alone.
pub(crate) fn load_config(project: &Project) -> Result<Config, Vec<ProjectProblem>> {
    let text = text(project, paths::CONFIG).map_err(|problem| vec![problem])?;
    check_config(project, &text)
}

/// The text of a config: can it be read, and can it be honoured?
pub(crate) fn check_config(project: &Project, text: &str) -> Result<Config, Vec<ProjectProblem>> {
    let config = Config::parse(text).map_err(|findings| {
        findings
            .into_iter()
            .map(|finding| {
                let place = match finding.line {
                    Some(line) => format!("{} line {line}", paths::CONFIG),
                    None => paths::CONFIG.to_owned(),
                };
                let message = if finding.key.is_empty() {
                    finding.message
                } else {
                    format!("`{}`: {}", finding.key, finding.message)
                };
                ProjectProblem {
                    code: ErrorCode::Config,
                    place,
                    message,
                    hint: finding.hint,
                }
            })
            .collect::<Vec<_>>()
    })?;
    let refused = crate::abilities::refusals(project, &config);
    if refused.is_empty() {
        Ok(config)
    } else {
        Err(refused)
    }
}

/// The goal alone.
pub(crate) fn load_goal(project: &Project) -> Result<Goal, ProjectProblem> {
    check_goal(&text(project, paths::GOAL)?)
}

/// The text of a goal.
pub(crate) fn check_goal(text: &str) -> Result<Goal, ProjectProblem> {
    let goal = Goal::parse(text).map_err(|error| {
        // The error itself names the line.
        ProjectProblem::new(ErrorCode::Layout, paths::GOAL, error.to_string()).hint(error.hint())
    })?;
    if goal.is_blank() {
        return Err(
            ProjectProblem::new(ErrorCode::Layout, paths::GOAL, "it says nothing")
                .hint("write down what shall be true in the end"),
        );
    }
    Ok(goal)
}

/// The bookkeeping alone.
pub(crate) fn load_run_state(project: &Project) -> Result<RunState, ProjectProblem> {
    let bytes = bytes(project, paths::RUN_STATE, run_state::MAX_BYTES as u64)?;
    RunState::parse(&bytes).map_err(|error| {
        ProjectProblem::new(ErrorCode::Layout, paths::RUN_STATE, error)
            .hint("bring it back with `git checkout -- .runner/state/run_state.json`")
    })
}

fn schema_drift(project: &Project) -> Vec<ProjectProblem> {
    let known = [
        (paths::TREE_SCHEMA, schema::TREE),
        (paths::AGENT_OUTPUT_SCHEMA, schema::AGENT_OUTPUT),
    ];
    known
        .into_iter()
        .filter_map(|(path, expected)| match text(project, path) {
            Ok(text) if text == expected => None,
            Ok(_) => Some(
                ProjectProblem::new(
                    ErrorCode::Layout,
                    path,
                    "it is not the schema that this runner knows",
                )
                .hint("run 'runner init --upgrade'"),
            ),
            Err(problem) => Some(problem),
        })
        .collect()
}

/// Texts that may be missing, but must be files that can be shown to an agent.
fn unreadable_texts(project: &Project) -> impl Iterator<Item = ProjectProblem> {
    [paths::INSTRUCTIONS, paths::ASSUMPTIONS, paths::QUESTIONS]
        .into_iter()
        .filter_map(|path| {
            optional_text(project, path)
                .err()
                .map(|error| (path, error))
        })
        .map(|(path, error)| ProjectProblem::new(ErrorCode::Layout, path, error))
}

/// The bytes of tree.json, or why they cannot be had.
pub fn tree_bytes(project: &Project) -> Result<Vec<u8>, ReadError> {
    project.read(paths::TREE, tree::MAX_BYTES)
}

/// Parses and checks a tree as it lies on disk.
pub(crate) fn check_tree(bytes: &[u8]) -> Result<Node<'_>, Vec<TreeFinding>> {
    tree::parse_and_check(bytes, TreeOrder::Sorted)
}

/// Findings about the tree as problems.
pub(crate) fn tree_problems(findings: &[TreeFinding]) -> Vec<ProjectProblem> {
    findings
        .iter()
        .map(|finding| {
            ProjectProblem::new(
                ErrorCode::Tree,
                &format!("{} {}", paths::TREE, finding.place),
                finding.message.clone(),
            )
        })
        .collect()
}

/// An optional text file of the project.
pub(crate) fn optional_text(project: &Project, path: &str) -> Result<Option<String>, String> {
    match project.read(path, MAX_TEXT) {
        Ok(bytes) => Ok(Some(String::from_utf8_lossy(&bytes).into_owned())),
        Err(ReadError::Absent) => Ok(None),
        Err(error) => Err(error.to_string()),
    }
}

fn text(project: &Project, path: &str) -> Result<String, ProjectProblem> {
    let bytes = bytes(project, path, MAX_TEXT)?;
    String::from_utf8(bytes)
        .map_err(|_| ProjectProblem::new(ErrorCode::Layout, path, "it is not UTF-8 text"))
}

fn bytes(project: &Project, path: &str, max: u64) -> Result<Vec<u8>, ProjectProblem> {
    project.read(path, max).map_err(|error| {
        let problem = ProjectProblem::new(ErrorCode::Layout, path, error.to_string());
        match error {
            ReadError::Absent => {
                problem.hint("run 'runner init --upgrade' (it keeps what is there)")
            }
            _ => problem,
        }
    })
}

/// All problems as one error; the first decides the code and the hint.
pub(crate) fn into_error(problems: &[ProjectProblem]) -> Error {
    let Some(first) = problems.first() else {
        return Error::new(ErrorCode::Layout, "unknown problem");
    };
    let lines: Vec<String> = problems
        .iter()
        .map(|problem| format!("{}: {}", problem.place, problem.message))
        .collect();
    Error {
        code: first.code,
        message: lines.join("\n"),
        hint: problems.iter().find_map(|problem| problem.hint.clone()),
    }
}
