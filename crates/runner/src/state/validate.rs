//! Looking at a project without changing it: is it in order, what is next, why.

use runner_core::by_hand;
use runner_core::explain::{self, NodeReasons};
use runner_core::meta::IterationMeta;
use runner_core::paths;
use runner_core::report::{self, NextCommand, NodeHistory};
use runner_core::run_state::RunState;
use runner_core::select::{Selection, select};
use runner_core::tree::{self, TreeFinding};

use crate::error::{Error, ErrorCode, Result};
use crate::git::Git;
use crate::project::Project;
use crate::run::current;
use crate::state::node_history;
use crate::state::repair;
use crate::state::view;
use crate::state::{self, ProjectProblem};
use crate::step::{self, StepLeaf};

/// Everything that is wrong with a project: layout, config, tree, identity.
pub fn validate(project: &Project) -> Vec<ProjectProblem> {
    let seen = checked_out_elsewhere(project);
    let project = seen.as_ref().unwrap_or(project);
    if let Err(error) = project.need_state() {
        return vec![ProjectProblem {
            code: error.code,
            place: paths::ROOT.to_owned(),
            message: error.message,
            hint: error.hint,
        }];
    }
    let mut problems = state::load_all(project).err().unwrap_or_default();
    match state::tree_bytes(project) {
        Ok(bytes) => {
            if let Err(findings) = state::check_tree(&bytes) {
                problems.extend(state::tree_problems(&findings));
            }
        }
        Err(error) => problems.extend(state::tree_problems(&step::unreadable(&error))),
    }
    for path in [paths::GITIGNORE, paths::GITATTRIBUTES] {
        if project.read(path, state::MAX_TEXT).is_err() {
            problems.push(ProjectProblem {
                code: ErrorCode::Layout,
                place: path.to_owned(),
                message: "the file is missing".to_owned(),
                hint: Some("run 'runner init --upgrade'".to_owned()),
            });
        }
    }
    problems.extend(tool_problems(project));
    problems.extend(identity_problem(project));
    problems
}

/// The project as its run has it, where the run's branch is checked out without `.runner/`, as in
/// a sparse checkout.
fn checked_out_elsewhere(project: &Project) -> Option<Project> {
    if project.has_state() {
        return None;
    }
    let git = Git::open(project.root()).ok()?;
    current::on_branch(&git).ok()??;
    current::view(project.clone()).ok()
}

/// `tools.json` beside a node must be an object.
fn tool_problems(project: &Project) -> Vec<ProjectProblem> {
    let nodes = project.root().join(paths::NODES_DIR);
    let mut folders: Vec<_> = std::fs::read_dir(nodes)
        .into_iter()
        .flatten()
        .flatten()
        .collect();
    folders.sort_by_key(std::fs::DirEntry::file_name);
    folders
        .iter()
        .map(|entry| entry.path().join("tools.json"))
        .filter(|path| path.symlink_metadata().is_ok())
        .filter(|path| !crate::step::environment::is_object(path))
        .map(|path| ProjectProblem {
            code: ErrorCode::Layout,
            place: path
                .strip_prefix(project.root())
                .unwrap_or(&path)
                .display()
                .to_string(),
            message: "it must be a JSON object".to_owned(),
            hint: None,
        })
        .collect()
}

/// A project that has been started must be on its branch; one that has not is
/// fine. Whatever else is wrong does not hide this.
fn identity_problem(project: &Project) -> Option<ProjectProblem> {
    let problem = |error: Error, place: &str| ProjectProblem {
        code: error.code,
        place: place.to_owned(),
        message: error.message,
        hint: error.hint,
    };
    let git = match Git::open(project.root()) {
        Ok(git) => git,
        Err(error) => return Some(problem(error, "git")),
    };
    let goal = state::load_goal(project).ok()?;
    let run_state = state::load_run_state(project).ok()?;
    let status = match git.status() {
        Ok(status) => status,
        Err(error) => return Some(problem(error, "git")),
    };
    let on_run_branch = goal
        .id()
        .is_some_and(|id| status.branch.as_deref() == Some(&step::branch_of(id)));
    if run_state.run_id.is_none() && !on_run_branch {
        return None;
    }
    step::check_identity(&goal, &run_state, &status)
        .err()
        .map(|error| problem(error, "run identity"))
}

/// What the next step would take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SelectResult {
    /// This leaf.
    Open(StepLeaf),
    /// This leaf, but its attempts are used up.
    Stuck(StepLeaf),
    /// Nothing is left.
    Complete,
    /// The tree waits to be repaired.
    Repair(Vec<String>),
}

/// Selects as a step would, without looking at git (unless the tree is invalid).
pub fn select_next(project: &Project) -> Result<SelectResult> {
    project.need_state()?;
    let bytes = state::tree_bytes(project);
    let checked = match &bytes {
        Ok(bytes) => state::check_tree(bytes),
        Err(error) => Err(step::unreadable(error)),
    };
    match checked {
        Ok(root) => Ok(match select(&root) {
            Selection::Complete => SelectResult::Complete,
            Selection::Open(target) => SelectResult::Open(selected(&target)),
            Selection::Stuck(target) => SelectResult::Stuck(selected(&target)),
        }),
        Err(findings) => {
            if repair_is_pending(project) {
                let findings = findings.iter().map(ToString::to_string).collect();
                return Ok(SelectResult::Repair(findings));
            }
            Err(step::invalid_tree(&findings))
        }
    }
}

pub(crate) fn repair_is_pending(project: &Project) -> bool {
    let look = || -> Result<bool> {
        let git = Git::open(project.root())?;
        let run_id = state::load(project)?.run_state.run_id.unwrap_or_default();
        let head = git.commit_of("HEAD")?.unwrap_or_default();
        Ok(repair::pending(&git, &head, &run_id)?.is_some())
    };
    look().unwrap_or(false)
}

fn selected(target: &runner_core::select::SelectedLeaf<'_, '_>) -> StepLeaf {
    StepLeaf {
        id: target.node.id.to_string(),
        path: target.path(),
        attempts: target.node.attempts,
        max_attempts: target.node.max_attempts,
    }
}

/// Why a node is, or is not, next, and what can be done about it.
#[derive(Clone, Debug)]
pub struct NodeExplanation {
    /// The reason.
    pub why: NodeReasons,
    /// What went before, if its attempts are used up.
    pub history: Option<NodeHistory>,
    /// What helps then.
    pub next: Vec<NextCommand>,
}

/// Why a node is, or is not, next.
pub fn why(project: &Project, node: Option<&str>) -> Result<NodeExplanation> {
    project.need_state()?;
    let bytes =
        state::tree_bytes(project).map_err(|error| no_tree(project, &step::unreadable(&error)))?;
    let root = state::check_tree(&bytes).map_err(|findings| no_tree(project, &findings))?;
    let id = node.unwrap_or_default();
    let why = explain::why(&root, node)
        .ok_or_else(|| unknown_node(id, by_hand::nearest_id(&root, id).as_deref()))?;
    let id = why.path.rsplit('/').next().unwrap_or_default();
    if !root.find(id).is_some_and(tree::Node::is_stuck) {
        return Ok(NodeExplanation {
            why,
            history: None,
            next: Vec::new(),
        });
    }
    let run_state = state::load_run_state(project).unwrap_or_else(|_| RunState::new(None));
    let run = run_state.run_id.as_deref().unwrap_or_default();
    let metas: Vec<IterationMeta> = project
        .iteration_numbers(run)
        .into_iter()
        .filter_map(|iter| view::meta_of(project, run, iter))
        .collect();
    let history = node_history::of(project, id, &metas.iter().collect::<Vec<_>>(), &run_state);
    let last = history.tries.last().and_then(|it| it.iter);
    Ok(NodeExplanation {
        next: report::unstick(id, last),
        history: Some(history),
        why,
    })
}

/// Refuses an id that no node of the tree has.
pub fn find_node(project: &Project, id: &str) -> Result<()> {
    view::load_tree(project, |root| match root.find(id) {
        Some(_) => Ok(()),
        None => Err(unknown_node(id, by_hand::nearest_id(root, id).as_deref())),
    })?
}

/// The tree cannot be shown: whose turn is it to repair it?
pub(crate) fn no_tree(project: &Project, findings: &[TreeFinding]) -> Error {
    let error = step::invalid_tree(findings);
    if repair_is_pending(project) {
        error.hint("a session left it so: the next step will have it repaired")
    } else {
        error
    }
}

/// There is no such node.
pub(crate) fn unknown_node(id: &str, nearest: Option<&str>) -> Error {
    Error::new(
        ErrorCode::NotFound,
        format!("there is no node {id:?} in the tree"),
    )
    .hint(match nearest {
        Some(nearest) => format!("did you mean {nearest}? `runner tree` shows the ids"),
        None => "`runner tree` shows the ids".to_owned(),
    })
}
