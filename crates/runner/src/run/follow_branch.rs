//! The user's side of a run: the branch that follows it, the checkout that follows the branch,
//! and what people commit there.
//!
//! Neither is ever used: a run goes on whatever is done to them. They are moved together, only
//! where nothing of the user's is in the way, and what is to be done is written down before.

use std::path::PathBuf;

use super::refs::{self, BranchFinding, RunRefs};
use crate::checkout::workspace::RunPlaces;
use crate::error::{Error, ErrorCode, Result};
use crate::git::{Git, GitMergeOutcome, PendingStatus, WorkTree};
use crate::land::{PendingLanding, WorkTreeMove, finish_at};
use crate::project::Project;
use crate::run_context::RunProgress;
use crate::state::runs::full_name;
use crate::step::{StepContext, branch_of};

/// The file that says what is under way.
const PENDING: &str = "follow.json";

/// Where the user's side of a run stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum FollowOutcome {
    /// Branch and checkout are where the run is.
    UpToDate,
    /// They stay where they are; what is in the way, as names for people.
    Behind(Vec<String>),
}

/// Takes in what people did to the branch of a run since the runner last moved it. The run's last
/// commit.
pub(crate) fn settle(context: &mut StepContext<'_, '_>, run_id: &str) -> Result<String> {
    let git = context.git;
    let refs = RunRefs::read(git, run_id)?;
    let Some(tip) = refs.run.as_deref().or(refs.branch.as_deref()) else {
        return Err(Error::new(
            ErrorCode::Identity,
            format!("the branch {} is gone", branch_of(run_id)),
        )
        .hint("`runner runs` lists the runs that there are"));
    };
    let Some(run) = refs.run.clone() else {
        // The first time that it is seen: its branch is the truth.
        refs::advance(git, run_id, None, tip, Some(tip))?;
        return Ok(tip.to_owned());
    };
    match refs.finding(git)? {
        BranchFinding::Untouched => {
            context.places.note_refs(run_id, refs);
            Ok(run)
        }
        BranchFinding::Ahead(branch) => {
            refs::advance(git, run_id, Some(&run), &branch, Some(&branch))?;
            Ok(branch)
        }
        BranchFinding::Beside(branch) => merge(context, run_id, &run, &branch),
        BranchFinding::Rewritten(branch) => {
            let kept = keep_lost(git, run_id, &run)?;
            refs::advance(git, run_id, Some(&run), &branch, Some(&branch))?;
            let words = format!(
                "{} was moved by hand: the run goes on there; where it was is kept in {kept}",
                branch_of(run_id)
            );
            context.run.observer.progress(&RunProgress::Note(&words));
            Ok(branch)
        }
    }
}

/// A commit of a person's beside the run: merged, or kept where that does not fit.
fn merge(
    context: &mut StepContext<'_, '_>,
    run_id: &str,
    run: &str,
    branch: &str,
) -> Result<String> {
    let git = context.git;
    let _held = git.hold_new_objects_for_now()?;
    match git.merge_commits(run, branch)? {
        GitMergeOutcome::Clean(tree) => {
            let message = format!("Merge what was committed on {}\n", branch_of(run_id));
            let (_, merged) = git.commit_tree(&tree, &[run, branch], &message)?;
            refs::advance(git, run_id, Some(run), &merged, Some(branch))?;
            Ok(merged)
        }
        GitMergeOutcome::Conflicts(paths) => {
            let kept = keep_lost(git, run_id, branch)?;
            let orders = format!("update {} {branch}\n", refs::mark_ref(run_id));
            git.update_refs("runner: taken note of", &orders)?;
            let names: Vec<String> = paths.iter().map(|it| it.display().to_string()).collect();
            let words = format!(
                "what was committed on {} does not fit what the run has done since ({}): it is kept in {kept}",
                branch_of(run_id),
                crate::checkout::trial::some_of(&names)
            );
            context.run.observer.progress(&RunProgress::Note(&words));
            Ok(run.to_owned())
        }
    }
}

/// Keeps a commit that nothing else may lead to any more.
fn keep_lost(git: &Git, run_id: &str, commit: &str) -> Result<String> {
    let short = commit.get(..12).unwrap_or(commit);
    let name = format!("refs/runner/lost/{run_id}/{short}");
    git.update_refs("runner: kept", &format!("update {name} {commit}\n"))?;
    Ok(name)
}

/// Lets branch and checkout follow a run, and says so where they cannot.
pub(crate) fn follow(context: &mut StepContext<'_, '_>, run_id: &str, tip: &str) -> Result<()> {
    // The iteration is recorded, whatever happens here.
    let (git, places) = (context.git, context.places);
    let quiet = places.quiet_git(git)?;
    let refs = match places.take_refs(run_id) {
        // Where anybody has moved them since, git says no below.
        Some(refs) => RunRefs {
            run: Some(tip.to_owned()),
            ..refs
        },
        None => RunRefs::read(git, run_id)?,
    };
    let user = UserSide {
        quiet: &quiet,
        looked: places.take_look(),
    };
    let outcome = match follow_from(context.project, git, user, run_id, &refs) {
        Err(error) if error.code == ErrorCode::Git => FollowOutcome::Behind(vec![error.message]),
        other => other?,
    };
    let is_behind = outcome != FollowOutcome::UpToDate;
    if let FollowOutcome::Behind(names) = outcome
        && !context.places.was_behind()
    {
        let words = format!(
            "your checkout of {} stays as it is, because of {}; `runner follow` brings it along later",
            branch_of(run_id),
            crate::checkout::trial::some_of(&names)
        );
        context.run.observer.progress(&RunProgress::Note(&words));
    }
    context.places.note_behind(is_behind);
    Ok(())
}

/// Lets branch and checkout follow a run.
pub(crate) fn try_follow(project: &Project, git: &Git, run_id: &str) -> Result<FollowOutcome> {
    let refs = RunRefs::read(git, run_id)?;
    let user = UserSide {
        quiet: &git.without_filters()?,
        looked: None,
    };
    follow_from(project, git, user, run_id, &refs)
}

/// Begins to look at the user's checkout, while the commit that it is to follow is still made:
/// git takes long for that in a large project. If anything changes until then, git itself refuses
/// to go over it.
pub(crate) fn begin_look(context: &StepContext<'_, '_>, run_id: &str) {
    let branch = full_name(&branch_of(run_id));
    if context
        .git
        .head_ref()
        .is_ok_and(|head| head == Some(branch))
    {
        context.places.begin_look(context.git);
    }
}

/// The user's checkout.
struct UserSide<'a> {
    /// Its repository, without filters.
    quiet: &'a Git,
    /// A look at it that was begun a moment ago.
    looked: Option<PendingStatus>,
}

/// The same, with what is known already.
fn follow_from(
    project: &Project,
    git: &Git,
    user: UserSide<'_>,
    run_id: &str,
    refs: &RunRefs,
) -> Result<FollowOutcome> {
    let UserSide { quiet, mut looked } = user;
    // First what was begun: until then the checkout does not show what its branch has.
    match finish_at(&pending_path(project, run_id), git) {
        Err(error) if error.code == ErrorCode::Dirty => {
            return Ok(FollowOutcome::Behind(vec![error.message]));
        }
        other => other?,
    }
    let (Some(to), Some(from)) = (refs.run.as_deref(), refs.branch.as_deref()) else {
        return put_branch(git, run_id, refs);
    };
    if from == to {
        return Ok(FollowOutcome::UpToDate);
    }
    if refs.mark.as_deref() != Some(from) {
        // A person has been here: first that is taken in.
        return Ok(FollowOutcome::Behind(vec!["new commits on it".to_owned()]));
    }
    let branch = branch_of(run_id);
    if git.is_rebasing(&full_name(&branch)) {
        return Ok(FollowOutcome::Behind(vec!["a rebase".to_owned()]));
    }
    let mut moves = Vec::new();
    let holders = holders(quiet, &branch)?;
    for tree in &holders {
        let step = WorkTreeMove::follow(&tree.git, &branch, from, to);
        let mut blockers = tree.git.operations();
        if tree
            .git
            .git_dir()
            .join("index.lock")
            .symlink_metadata()
            .is_ok()
        {
            blockers.push("another git at work".to_owned());
        }
        let looked = looked.take().filter(|_| tree.git.root() == quiet.root());
        let status = match looked {
            Some(looked) => looked.answer()?,
            None => tree.git.status()?,
        };
        blockers.extend(step.blockers_in(&tree.git, &status)?);
        if !blockers.is_empty() {
            return Ok(FollowOutcome::Behind(blockers));
        }
        moves.push(step);
    }
    let orders = format!(
        "update {} {to} {from}\nupdate {} {to}\n",
        full_name(&branch),
        refs::mark_ref(run_id)
    );
    if moves.is_empty() {
        return move_refs(git, &branch, (from, to), &orders);
    }
    let pending = pending_path(project, run_id);
    let landing = PendingLanding {
        target: branch,
        commit: to.to_owned(),
        moves,
    };
    landing.save_as(&pending)?;
    let moved = move_refs(git, &landing.target, (from, to), &orders)?;
    if moved != FollowOutcome::UpToDate {
        crate::files::remove_if_there(&pending)?;
        return Ok(moved);
    }
    for (step, tree) in landing.moves.iter().zip(&holders) {
        if let Err(error) = step.go_in(&tree.git) {
            let looked = ["not uptodate", "would be overwritten", "Cannot merge"];
            if !looked.iter().any(|words| error.message.contains(words)) {
                return Err(error);
            }
            // Git looks before it writes: something is in the way that could not be seen, such as
            // a change that flags hide.
            let orders = format!(
                "update {} {from} {to}\nupdate {} {from}\n",
                full_name(&landing.target),
                refs::mark_ref(run_id)
            );
            git.update_refs("runner: not followed", &orders)?;
            crate::files::remove_if_there(&pending)?;
            return Ok(FollowOutcome::Behind(vec![error.message]));
        }
    }
    crate::files::remove_if_there(&pending)?;
    Ok(FollowOutcome::UpToDate)
}

/// Moves the branch, unless a person has done so a moment ago: first that is taken in.
fn move_refs(
    git: &Git,
    branch: &str,
    (from, to): (&str, &str),
    orders: &str,
) -> Result<FollowOutcome> {
    match git.update_refs("runner: follow", orders) {
        Ok(()) => Ok(FollowOutcome::UpToDate),
        Err(error) => match git.commit_of(&full_name(branch))? {
            Some(now) if now == from => Err(error),
            Some(now) if now == to => Ok(FollowOutcome::UpToDate),
            _ => Ok(FollowOutcome::Behind(vec!["new commits on it".to_owned()])),
        },
    }
}

/// Forgets a run that has ended: its folders go, and its branch is all that says where it was. A
/// checkout that could not follow keeps it.
pub(crate) fn end_run(project: &Project, git: &Git, run_id: &str) -> Result<()> {
    let refs = RunRefs::read(git, run_id)?;
    let Some(tip) = refs.run.clone() else {
        return Ok(());
    };
    if refs.branch.is_some() && try_follow(project, git, run_id)? != FollowOutcome::UpToDate {
        return Ok(());
    }
    RunPlaces::default().remove(git, run_id, &tip)?;
    refs::forget(git, run_id)
}

/// Where the branch is gone it is made again: it is how people see the run.
fn put_branch(git: &Git, run_id: &str, refs: &RunRefs) -> Result<FollowOutcome> {
    let Some(run) = refs.run.as_deref() else {
        return Ok(FollowOutcome::UpToDate);
    };
    let branch = full_name(&branch_of(run_id));
    let orders = format!(
        "create {branch} {run}\nupdate {} {run}\n",
        refs::mark_ref(run_id)
    );
    git.update_refs("runner: follow", &orders)?;
    Ok(FollowOutcome::UpToDate)
}

fn pending_path(project: &Project, run_id: &str) -> PathBuf {
    project.run_folder(run_id).join(PENDING)
}

/// Finishes what a runner that was killed had begun to move.
pub(crate) fn finish(context: &mut StepContext<'_, '_>) -> Result<()> {
    for run_id in context.project.run_folders() {
        let path = pending_path(context.project, &run_id);
        match finish_at(&path, context.git) {
            // Something of the user's came in between: the run goes on without.
            Err(error) if error.code == ErrorCode::Dirty => {
                let words = error.message;
                context.run.observer.progress(&RunProgress::Note(&words));
            }
            other => other?,
        }
    }
    Ok(())
}

/// The work trees that have a branch checked out. Most often there is one, and no other could have
/// it.
fn holders(git: &Git, branch: &str) -> Result<Vec<WorkTree>> {
    let head = git.head_ref()?;
    if head.as_deref() == Some(&full_name(branch)) {
        return Ok(vec![WorkTree {
            git: git.clone(),
            branch: Some(branch.to_owned()),
        }]);
    }
    if !git.common_dir().join("worktrees").is_dir() && git.common_dir() == git.git_dir() {
        return Ok(Vec::new());
    }
    let mut trees = git.work_trees()?;
    trees.retain(|tree| tree.branch.as_deref() == Some(branch));
    Ok(trees)
}
