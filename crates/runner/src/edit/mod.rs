//! Changes that people make through the runner, between two steps: `retry` and
//! `edit`. Locked, settled, checked, and one commit each.

mod text;

use runner_core::by_hand::{self, RetriedLeaf, RetryError};
use runner_core::digest::sha256_hex;
use runner_core::message;
use runner_core::paths;
use runner_core::tree;

use crate::checkout::workspace::RunPlaces;
use crate::error::{Error, ErrorCode, Result};
use crate::git::{Git, GitIdentity, GitStatus};
use crate::lock::ProjectLock;
use crate::project::Project;
use crate::run::{current, follow_branch, recover, refs};
use crate::run_context::{RunContext, RunProgress};
use crate::state::log::{EventLog, RUN_EDITED};
use crate::state::validate;
use crate::state::{self, ProjectState};
use crate::step::containment::ContainmentChoice;
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
    let project = &locked.project;
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
        next: validate::select_next(&project.at_commit(&locked.git, &commit)?)?,
        commit,
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

/// The project as its run has it, held so that no step runs meanwhile.
pub(crate) struct LockedProject {
    /// What `.runner/` says in the run's last commit; before the first start what lies there.
    project: Project,
    git: Git,
    /// The run and its last commit, if one has begun.
    run: Option<(String, String)>,
    _lock: ProjectLock,
}

impl LockedProject {
    /// Takes the lock and settles what an earlier runner left unfinished.
    fn open(project: &Project, context: &mut RunContext<'_>) -> Result<Self> {
        let git = Git::open(project.root())?;
        let lock = ProjectLock::take(project)?;
        let places = RunPlaces::default();
        let mut context = StepContext {
            project,
            git: &git,
            run: context,
            containment: &ContainmentChoice::default(),
            places: &places,
        };
        recover::recover(&mut context)?;
        let run = match current::to_look_at(project, &git)? {
            Some(run_id) => {
                let tip = follow_branch::settle(&mut context, &run_id)?;
                Some((run_id, tip))
            }
            None => None,
        };
        let project = match &run {
            Some((_, tip)) => project.at_commit(&git, tip)?,
            None => project.clone(),
        };
        project.need_state()?;
        Ok(LockedProject {
            project,
            git,
            run,
            _lock: lock,
        })
    }

    /// Branch and commit that are worked on, as a step sees them.
    fn status(&self) -> Result<GitStatus> {
        match &self.run {
            None => self.git.status(),
            Some((run_id, tip)) => Ok(GitStatus {
                head: Some(tip.clone()),
                branch: Some(step::branch_of(run_id)),
                ..GitStatus::default()
            }),
        }
    }

    /// Goal and bookkeeping belong to the run.
    fn check_run(&self, state: &ProjectState) -> Result<String> {
        step::check_identity(&state.goal, &state.run_state, &self.status()?)
    }

    /// Commits one file to the run, and lets the checkout follow.
    fn commit(
        &self,
        path: &str,
        bytes: &[u8],
        message: &str,
        context: &mut RunContext<'_>,
    ) -> Result<String> {
        let Some((run_id, tip)) = &self.run else {
            return Err(step::identity_error("no run has been started here"));
        };
        let _held = self.git.hold_new_objects_for_now()?;
        let tree = self.git.tree_with_files(tip, &[(path, Some(bytes))])?;
        let (identity, commit) = self.git.commit_tree(&tree, &[tip], message)?;
        if identity == GitIdentity::Runner {
            context
                .observer
                .progress(&RunProgress::Note(crate::git::NAMELESS));
        }
        if let Err(error) = refs::advance(&self.git, run_id, Some(tip), &commit, None)
            && self.git.commit_of(&refs::run_ref(run_id))?.as_ref() != Some(&commit)
        {
            return Err(error);
        }
        EventLog::of(&self.project.run_folder(run_id)).note_commit(
            &context.clock.stamp(),
            RUN_EDITED,
            &commit,
        );
        let mut context = StepContext {
            project: &self.project,
            git: &self.git,
            run: context,
            containment: &ContainmentChoice::default(),
            places: &RunPlaces::default(),
        };
        // It is done, whether or not the checkout comes along.
        if let Err(error) = follow_branch::follow(&mut context, run_id, &commit) {
            let words = error.message;
            context.run.observer.progress(&RunProgress::Note(&words));
        }
        Ok(commit)
    }
}
