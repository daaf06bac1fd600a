//! Changes that people make through the runner, between two steps: `retry` and
//! `edit`. Locked, settled, checked, and one commit each.

mod text;

use runner_core::by_hand::{self, RetriedLeaf, RetryError};
use runner_core::digest::sha256_hex;
use runner_core::message;
use runner_core::paths;
use runner_core::tree;

use crate::error::{Error, ErrorCode, Result};
use crate::files;
use crate::git::{Git, GitIdentity};
use crate::lock::ProjectLock;
use crate::project::Project;
use crate::run::recover;
use crate::run::start::StartUndo;
use crate::run_context::{RunContext, RunProgress};
use crate::state::validate;
use crate::state::{self, ProjectState};
use crate::step::containment::ContainmentChoice;
use crate::step::disarm;
use crate::step::{self, StepContext};

pub use text::{EditReport, EditTarget, EditText, PlanEdit, edit};

/// What `retry` did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RetryReport {
    /// The run.
    pub run_id: String,
    /// The leaf.
    pub node_id: String,
    /// Its attempts now.
    pub granted: RetriedLeaf,
    /// The commit.
    pub commit: String,
    /// What the next step takes.
    pub next: validate::SelectResult,
}

/// Gives a leaf more attempts: `attempts`, or as many as a new leaf gets.
pub fn retry(
    project: &Project,
    node_id: &str,
    attempts: Option<u32>,
    context: &mut RunContext<'_>,
) -> Result<RetryReport> {
    let locked = LockedProject::open(project, context)?;
    let state = state::load(project)?;
    let run_id = locked.check_run(&state)?;
    let bytes = state::tree_bytes(project)
        .map_err(|error| validate::no_tree(project, &step::unreadable(&error)))?;
    let mut root =
        state::check_tree(&bytes).map_err(|findings| validate::no_tree(project, &findings))?;
    let granted = by_hand::retry(
        &mut root,
        node_id,
        attempts,
        state.config.max_attempts_default,
    )
    .map_err(|error| refusal(node_id, &error))?;
    let bytes = tree::to_bytes(&root);
    let message = message::retry_message(
        node_id,
        granted.added,
        granted.attempts,
        granted.max_attempts,
        &sha256_hex(&bytes),
    );
    let commit = locked.commit(paths::TREE, &bytes, &message, context)?;
    Ok(RetryReport {
        run_id,
        node_id: node_id.to_owned(),
        granted,
        commit,
        next: validate::select_next(project)?,
    })
}

fn refusal(id: &str, error: &RetryError) -> Error {
    match error {
        RetryError::Unknown { nearest } => validate::unknown_node(id, nearest.as_deref()),
        RetryError::Passed => Error::new(
            ErrorCode::Refused,
            format!("node {id} has passed: there is nothing to try again"),
        )
        .hint("`runner tree` shows what is open"),
        RetryError::NotALeaf { stuck } => {
            let error = Error::new(
                ErrorCode::Refused,
                format!("node {id} has children: attempts belong to its leaves"),
            );
            match stuck.as_slice() {
                [] => error.hint("none of its leaves is stuck; `runner tree` shows them"),
                [leaf, ..] => error.hint(format!(
                    "stuck below it: {}; `runner retry {leaf}`",
                    stuck.join(", ")
                )),
            }
        }
        RetryError::NotStuck { left, max_attempts } => Error::new(
            ErrorCode::Refused,
            format!("node {id} is not stuck: {left} of its {max_attempts} attempts are left"),
        )
        .hint(format!(
            "`runner loop` goes on; to give it more all the same, say how many: `runner retry {id} --attempts {max_attempts}`"
        )),
        RetryError::TooMany => Error::new(ErrorCode::Refused, "so many attempts cannot be counted")
            .hint("name a smaller number with --attempts"),
    }
}

/// The project, held so that no step runs meanwhile.
pub(crate) struct LockedProject<'p> {
    project: &'p Project,
    git: Git,
    _lock: ProjectLock,
}

impl<'p> LockedProject<'p> {
    /// Takes the lock and settles what an earlier runner left unfinished.
    fn open(project: &'p Project, context: &mut RunContext<'_>) -> Result<Self> {
        Git::open(project.root())?;
        let lock = ProjectLock::take(project)?;
        let git = disarm::open(project, context)?;
        recover::recover(&mut StepContext {
            project,
            git: &git,
            run: context,
            containment: &ContainmentChoice::default(),
        })?;
        project.need_state()?;
        Ok(LockedProject {
            project,
            git,
            _lock: lock,
        })
    }

    /// Goal, bookkeeping and branch belong to one run, and nothing is uncommitted.
    fn check_run(&self, state: &ProjectState) -> Result<String> {
        let status = self.git.status()?;
        let run_id = step::check_identity(&state.goal, &state.run_state, &status)?;
        step::check_clean(&status)?;
        Ok(run_id)
    }

    /// Writes one file and commits it; on the way out of an error everything is as
    /// it was.
    fn commit(
        &self,
        path: &str,
        bytes: &[u8],
        message: &str,
        context: &mut RunContext<'_>,
    ) -> Result<String> {
        let before = self.git.commit_of("HEAD")?;
        let mut undo = StartUndo::take(&self.git)?;
        undo.keep_file(self.project, path)?;
        let made = self.try_commit(path, bytes, message);
        let after = self.git.commit_of("HEAD")?.unwrap_or_default();
        match made {
            // Whatever went wrong then: the commit is there.
            Err(_) if before.is_none_or(|before| before != after) => {}
            Err(error) => {
                undo.undo(self.project, &self.git);
                return Err(error);
            }
            Ok(GitIdentity::Runner) => context
                .observer
                .progress(&RunProgress::Note(crate::git::NAMELESS)),
            Ok(GitIdentity::User) => {}
        }
        Ok(after)
    }

    fn try_commit(&self, path: &str, bytes: &[u8], message: &str) -> Result<GitIdentity> {
        files::write_whole(&self.project.root().join(path), bytes)?;
        // Forced: the project's own rules may ignore .runner/.
        let add = ["add", "--force", "--sparse", "--", path];
        self.git.write(&add)?;
        self.git.commit(message)
    }
}
