//! `runner edit`: a person's new text for one of the files, checked before it counts.

use std::path::{Path, PathBuf};

use runner_core::by_hand as rules;
use runner_core::digest::sha256_hex;
use runner_core::goal::Goal;
use runner_core::message;
use runner_core::paths;
use runner_core::run_state::RunState;
use runner_core::tree::{self, Node, TreeChanges, TreeOrder};

use super::LockedProject;
use crate::error::{Error, ErrorCode, Result};
use crate::files::{self, ReadError};
use crate::git::GitHistory;
use crate::project::Project;
use crate::run_context::RunContext;
use crate::state::{self, ProjectProblem};
use crate::step::{self, branch_of};

/// Which file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EditTarget {
    /// GOAL.md.
    Goal,
    /// config.toml.
    Config,
    /// tree.json.
    Tree,
    /// questions.md.
    Questions,
}

impl EditTarget {
    /// The word on the command line and in the commit.
    pub fn as_str(self) -> &'static str {
        match self {
            EditTarget::Goal => "goal",
            EditTarget::Config => "config",
            EditTarget::Tree => "tree",
            EditTarget::Questions => "questions",
        }
    }

    /// The file, from the project's root.
    pub fn path(self) -> &'static str {
        match self {
            EditTarget::Goal => paths::GOAL,
            EditTarget::Config => paths::CONFIG,
            EditTarget::Tree => paths::TREE,
            EditTarget::Questions => paths::QUESTIONS,
        }
    }

    /// The largest text that is taken.
    pub fn max_bytes(self) -> u64 {
        match self {
            EditTarget::Tree => tree::MAX_BYTES,
            _ => state::MAX_TEXT,
        }
    }
}

/// Where the new text comes from.
pub enum EditText<'e> {
    /// A person changes a copy at this path.
    Editor(&'e mut dyn FnMut(&Path) -> Result<()>),
    /// From a file that stays where it is.
    File(Vec<u8>),
    /// From a stream that is gone afterwards.
    Stream(Vec<u8>),
}

/// What `edit` did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EditReport {
    /// Which file.
    pub target: EditTarget,
    /// The run; `None` before the first start.
    pub run_id: Option<String>,
    /// Whether anything is different now.
    pub changed: bool,
    /// The commit; `None` where nothing changed or no run has begun.
    pub commit: Option<String>,
    /// What happened to the plan, if the tree was edited.
    pub plan: Option<PlanEdit>,
    /// What a person should know.
    pub notes: Vec<String>,
}

/// What a person did to the plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanEdit {
    /// Added, edited and moved.
    pub changes: TreeChanges,
    /// Open nodes that are gone.
    pub removed: Vec<String>,
    /// Nodes with another number of attempts.
    pub limits: Vec<String>,
    /// Parents of which nothing open is left.
    pub passed: Vec<String>,
}

/// A text that was found in order.
struct AcceptedEdit {
    bytes: Vec<u8>,
    plan: Option<PlanEdit>,
    notes: Vec<String>,
}

/// Takes a new text for a file, checks it and commits it.
pub fn edit(
    project: &Project,
    target: EditTarget,
    text: EditText<'_>,
    context: &mut RunContext<'_>,
) -> Result<EditReport> {
    let locked = LockedProject::open(project, context)?;
    let project = &locked.project;
    let run_state =
        state::load_run_state(project).map_err(|problem| state::into_error(&[problem]))?;
    check_place(&locked, target, &run_state)?;
    let path = project.root().join(target.path());
    let current = match project.read(target.path(), target.max_bytes()) {
        Ok(bytes) => Some(bytes),
        Err(ReadError::Io(error)) => return Err(files::at(&path, error).into()),
        Err(_) => None,
    };
    let base = match target {
        EditTarget::Tree => valid_tree(&locked, current.as_deref(), &run_state)?,
        _ => None,
    };
    let shown = current.as_deref().or(base.as_deref()).unwrap_or_default();
    let mut draft = EditDraft::new(target, text, shown)?;
    let mut report = EditReport {
        target,
        run_id: run_state.run_id.clone(),
        changed: false,
        commit: None,
        plan: None,
        notes: Vec::new(),
    };
    if Some(draft.bytes.as_slice()) == current.as_deref() {
        return Ok(report);
    }
    let accepted = check(project, target, &draft.bytes, base.as_deref(), &run_state)
        .map_err(|error| draft.keep(error))?;
    report.notes = accepted.notes;
    if Some(accepted.bytes.as_slice()) == current.as_deref() {
        return Ok(report);
    }
    report.changed = true;
    report.plan = accepted.plan;
    if run_state.run_id.is_none() {
        // Nothing of .runner/ is in git before the first start.
        files::write_whole(&path, &accepted.bytes).map_err(|error| draft.keep(error.into()))?;
        return Ok(report);
    }
    let sha256 = (target == EditTarget::Tree).then(|| sha256_hex(&accepted.bytes));
    let message = message::edit_message(target.as_str(), sha256.as_deref());
    let commit = locked
        .commit(target.path(), &accepted.bytes, &message, context)
        .map_err(|error| draft.keep(error))?;
    report.commit = Some(commit);
    Ok(report)
}

/// A run that has begun is the one whose files these are.
fn check_place(locked: &LockedProject, target: EditTarget, run_state: &RunState) -> Result<()> {
    let Some(run_id) = &run_state.run_id else {
        return Ok(());
    };
    let status = locked.status()?;
    if target == EditTarget::Goal {
        // The goal may be what has to be fixed: the branch alone must fit.
        let wanted = branch_of(run_id);
        if status.branch.as_deref() != Some(&wanted) {
            return Err(step::identity_error(&format!(
                "run {run_id} lives on branch {wanted}, which is not checked out"
            )));
        }
    } else {
        let goal =
            state::load_goal(&locked.project).map_err(|problem| state::into_error(&[problem]))?;
        step::check_identity(&goal, run_state, &status)?;
    }
    Ok(())
}

/// The tree that an edit is judged by: the one on disk, or the last valid one that
/// the branch has. `None` before the first start.
fn valid_tree(
    locked: &LockedProject,
    current: Option<&[u8]>,
    run_state: &RunState,
) -> Result<Option<Vec<u8>>> {
    if let Some(bytes) = current.filter(|bytes| state::check_tree(bytes).is_ok()) {
        return Ok(Some(bytes.to_vec()));
    }
    if run_state.run_id.is_none() {
        return Ok(None);
    }
    let tip = locked.run.as_ref().map_or("HEAD", |(_, tip)| tip);
    for commit in GitHistory::from(&locked.git, tip) {
        if let Some(bytes) = locked.git.file_at(&commit?.id, paths::TREE)?
            && state::check_tree(&bytes).is_ok()
        {
            return Ok(Some(bytes));
        }
    }
    Err(Error::new(
        ErrorCode::Tree,
        "no commit of this run has a valid tree: there is nothing to judge an edit by",
    )
    .hint("mend .runner/state/tree.json by hand and commit it"))
}

fn check(
    project: &Project,
    target: EditTarget,
    bytes: &[u8],
    base: Option<&[u8]>,
    run_state: &RunState,
) -> Result<AcceptedEdit> {
    if target == EditTarget::Tree {
        return check_tree(bytes, base);
    }
    let text = std::str::from_utf8(bytes).map_err(|_| {
        state::into_error(&[ProjectProblem::new(
            ErrorCode::Layout,
            target.path(),
            "it is not UTF-8 text",
        )])
    })?;
    let mut accepted = AcceptedEdit {
        bytes: bytes.to_vec(),
        plan: None,
        notes: Vec::new(),
    };
    match target {
        EditTarget::Config => {
            state::check_config(project, text).map_err(|problems| state::into_error(&problems))?;
        }
        EditTarget::Goal => check_goal(project, text, run_state, &mut accepted)?,
        EditTarget::Tree | EditTarget::Questions => {}
    }
    Ok(accepted)
}

/// The id names the run: it may be left out, and comes back, but not be another.
fn check_goal(
    project: &Project,
    text: &str,
    run_state: &RunState,
    accepted: &mut AcceptedEdit,
) -> Result<()> {
    let goal = state::check_goal(text).map_err(|problem| state::into_error(&[problem]))?;
    let Some(run_id) = &run_state.run_id else {
        return Ok(());
    };
    match goal.id() {
        Some(id) if id == run_id => {}
        Some(id) => {
            return Err(Error::new(
                ErrorCode::Identity,
                format!("the id in the front matter must stay {run_id}, not {id}: it names the run"),
            )
            .hint("for another run, write the other id into .runner/GOAL.md by hand and run 'runner start'"));
        }
        None => {
            accepted.bytes = goal.with_id(run_id).into_bytes();
            let note = format!("the id {run_id} is in the front matter again");
            accepted.notes.push(note);
        }
    }
    if root_has_words_of(project) {
        accepted.notes.push(
            "the tree keeps its own words: `runner edit tree` changes the goal of its root"
                .to_owned(),
        );
    }
    Ok(())
}

/// Whether the root's goal is the text of the goal as it was until now.
fn root_has_words_of(project: &Project) -> bool {
    let old: Option<Goal> = state::load_goal(project).ok();
    let bytes = state::tree_bytes(project).unwrap_or_default();
    let root = state::check_tree(&bytes).ok();
    let (Some(old), Some(root)) = (old, root) else {
        return false;
    };
    root.goal == old.body().trim() && !root.passes
}

fn check_tree(bytes: &[u8], base: Option<&[u8]>) -> Result<AcceptedEdit> {
    let refused = |findings: &[tree::TreeFinding]| {
        let mut error = state::into_error(&state::tree_problems(findings));
        error.code = ErrorCode::Tree;
        error
    };
    let after = tree::parse_and_check(bytes, TreeOrder::Any).map_err(|found| refused(&found))?;
    let fresh = Node::leaf(after.id.clone(), "", "", 1);
    let before = match base {
        Some(bytes) => tree::parse(bytes).map_err(|found| refused(&found))?,
        None => fresh,
    };
    let edit = rules::edit(&before, after).map_err(|found| refused(&found))?;
    let mut notes = Vec::new();
    if !edit.passed.is_empty() {
        notes.push(format!(
            "nothing open is left below {}: passed",
            edit.passed.join(", ")
        ));
    }
    Ok(AcceptedEdit {
        bytes: tree::to_bytes(&edit.tree),
        plan: Some(PlanEdit {
            changes: edit.changes,
            removed: edit.removed,
            limits: edit.limits,
            passed: edit.passed,
        }),
        notes,
    })
}

/// A text that may turn out wrong: it is not lost then.
struct EditDraft {
    target: EditTarget,
    bytes: Vec<u8>,
    /// Where the text came from, if it is a file of its own.
    is_file: bool,
    folder: Option<tempfile::TempDir>,
}

impl EditDraft {
    fn new(target: EditTarget, text: EditText<'_>, shown: &[u8]) -> Result<Self> {
        let mut draft = EditDraft {
            target,
            bytes: Vec::new(),
            is_file: false,
            folder: None,
        };
        match text {
            EditText::File(bytes) => {
                draft.is_file = true;
                draft.bytes = bytes;
            }
            EditText::Stream(bytes) => draft.bytes = bytes,
            EditText::Editor(change) => {
                let copy = draft.make_copy(shown)?;
                let edited = change(&copy);
                let read = files::read_regular(&copy, target.max_bytes());
                draft.bytes = match read {
                    Ok(bytes) => bytes,
                    Err(error) => {
                        return Err(Error::new(
                            ErrorCode::Io,
                            format!("the text cannot be read after the editor: {error}"),
                        )
                        .hint("nothing has changed; try again"));
                    }
                };
                if let Err(error) = edited {
                    let untouched = draft.bytes == shown;
                    return Err(if untouched { error } else { draft.keep(error) });
                }
            }
        }
        Ok(draft)
    }

    /// A copy in a folder that only this person can read.
    fn make_copy(&mut self, bytes: &[u8]) -> Result<PathBuf> {
        let folder = tempfile::Builder::new().prefix("runner-edit-").tempdir()?;
        let name = Path::new(self.target.path());
        let path = folder.path().join(name.file_name().unwrap_or_default());
        files::write_whole(&path, bytes)?;
        self.folder = Some(folder);
        Ok(path)
    }

    /// The error with the words on where the text is and how to try again.
    fn keep(&mut self, error: Error) -> Error {
        if self.is_file {
            return error;
        }
        let bytes = std::mem::take(&mut self.bytes);
        if self.folder.is_none() && self.make_copy(&bytes).is_err() {
            return error;
        }
        let Some(folder) = self.folder.take() else {
            return error;
        };
        let name = Path::new(self.target.path());
        let path = folder.keep().join(name.file_name().unwrap_or_default());
        let advice = format!(
            "your text is kept: mend it, then `runner edit {} --file {}`",
            self.target.as_str(),
            path.display()
        );
        let hint = match &error.hint {
            Some(hint) => format!("{hint}\n{advice}"),
            None => advice,
        };
        error.hint(hint)
    }
}
