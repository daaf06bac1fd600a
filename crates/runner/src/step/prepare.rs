//! What a workspace and a clean checkout need before anything runs in them.

use runner_core::config::Config;
use runner_core::context::setup_failure_md;
use runner_core::meta::IterationErrorKind;
use runner_core::text::{OUTPUT_TAIL_PERCENT, cut_middle};

use super::guard::VerdictCheckout;
use super::setup_fault::SetupSearch;
use super::{Iteration, StepContext};
use crate::checkout::indexed_tree::KeptFiles;
use crate::checkout::prepare::{CheckoutPreparer, WarmStart, last_set_up};
use crate::checkout::trial::{GuardTrial, TrialEnd};
use crate::checkout::workspace::RunWorkspace;
use crate::error::{Error, ErrorCode, Result};
use crate::files;
use crate::git::Git;
use crate::limits::room::DiskRoom;
use crate::run::beginning::RunBeginning;
use crate::step::containment::Containment;

/// How much of a failed setup's output is told.
const TAIL_BYTES: usize = 4000;

/// The largest `setup.log` that is added to.
const MAX_LOG: u64 = 64 * 1024 * 1024;

/// So much of a commit's name is shown.
const SHORT: usize = 12;

/// Setup fails with the files that are committed, and works with those of an earlier commit.
pub(super) struct SetupFailure {
    /// What it printed.
    log: String,
    /// The earlier commit, shortened.
    commit: String,
}

impl SetupFailure {
    /// For the session that shall mend it.
    pub(super) fn words(&self, config: &Config) -> String {
        setup_failure_md(&config.workspace.setup, &self.commit, &self.log)
    }
}

fn preparer<'a, 'h>(
    context: &'a mut StepContext<'_, 'h>,
    user: &'a Git,
    config: &'a Config,
    containment: &'a Containment,
) -> CheckoutPreparer<'a, 'h> {
    CheckoutPreparer {
        user,
        git: context.git,
        config,
        containment,
        context: context.run,
        setup_log: Vec::new(),
    }
}

/// Makes what a workspace lacks. Where setup fails with what sessions have committed, the workspace
/// is set up as it last worked, and the session hears it; any other failure is an error.
pub(super) fn workspace(
    context: &mut StepContext<'_, '_>,
    it: &mut Iteration,
    workspace: &RunWorkspace,
    config: &Config,
    containment: &Containment,
) -> Result<Option<SetupFailure>> {
    let user = context.places.user_project(context.git);
    let head = it.started.head.clone();
    let checkout = &workspace.checkout;
    let mut run = preparer(context, &user, config, containment);
    let ended = run.workspace(checkout, &head)?;
    let log = std::mem::take(&mut run.setup_log);
    append_log(it, "in the workspace", &log)?;
    let Some(ended) = ended else { return Ok(None) };
    // What sessions left there, and git ignores, may be what is in the way.
    let mut run = preparer(context, &user, config, containment);
    let again = run.workspace_anew(checkout, &head)?;
    let log = std::mem::take(&mut run.setup_log);
    append_log(it, "in the workspace, made anew", &log)?;
    if again.is_none() {
        it.notes.push(
            "setup failed with what sessions had left beside the commit: the workspace was made anew"
                .to_owned(),
        );
        return Ok(None);
    }
    let working = working_commit(context, it, workspace)?;
    let mut run = preparer(context, &user, config, containment);
    if working == head {
        return Err(failed(&ended));
    }
    workspace.bring_to(&working)?;
    let again = run.set_up_again(checkout, &working)?;
    let log = std::mem::take(&mut run.setup_log);
    let commit: String = working.chars().take(SHORT).collect();
    append_log(it, &format!("in the workspace, at {commit}"), &log)?;
    if again.is_some() {
        return Err(failed(&ended));
    }
    workspace.bring_to(&head)?;
    let commits = (head.as_str(), working.as_str(), None);
    if let Some(commit) = person_commit(context, it, commits, config, containment)? {
        return Err(failed_by_person(&ended, &commit));
    }
    it.notes.push(format!(
        "setup fails with the files of this commit; the workspace is as setup made it at {commit}"
    ));
    Ok(Some(SetupFailure {
        log: told(&ended),
        commit,
    }))
}

/// Brings a clean checkout to a candidate; one that is kept with what was begun for it. What is
/// returned is the log of a setup that failed because of what sessions changed; any other failure
/// is an error of the iteration.
pub(super) fn verdict(
    context: &mut StepContext<'_, '_>,
    it: &mut Iteration,
    (verdict, begun): (&VerdictCheckout, Option<WarmStart>),
    (workspace, commit): (&RunWorkspace, &str),
    config: &Config,
    containment: &Containment,
) -> Result<Option<Vec<u8>>> {
    let user = context.places.user_project(context.git);
    let mut run = preparer(context, &user, config, containment);
    let checkout = verdict.checkout();
    let ended = match begun {
        Some(begun) => run.warm(checkout, commit, begun)?,
        None => run.cold(checkout, commit)?,
    };
    let log = std::mem::take(&mut run.setup_log);
    append_log(it, "in the clean checkout", &log)?;
    let Some(ended) = ended else { return Ok(None) };
    let working = working_commit(context, it, workspace)?;
    let mut run = preparer(context, &user, config, containment);
    // Where setup works without the sessions' changes, and still not with them, they are the reason.
    let is_theirs = run.git.tree_of(&working)? != run.git.tree_of(commit)?
        && {
            checkout.tree.bring_to(&working, KeptFiles::NONE)?;
            run.cold(checkout, &working)?.is_none()
        }
        && {
            checkout.tree.bring_to(commit, KeptFiles::NONE)?;
            run.cold(checkout, commit)?.is_some()
        };
    if !is_theirs {
        return Err(failed(&ended));
    }
    let head = it.started.head.clone();
    let commits = (head.as_str(), working.as_str(), Some(commit));
    if let Some(commit) = person_commit(context, it, commits, config, containment)? {
        return Err(failed_by_person(&ended, &commit));
    }
    let mut log = ended.log;
    if let TrialEnd::NotStarted(why) = &ended.end {
        log.extend(format!("\nrunner: the guard {why}\n").into_bytes());
    }
    Ok(Some(log))
}

/// The commit of a person's since which setup fails; `None`: sessions broke it. `commits`: the run's
/// last one, one with which setup works, and what a session made since.
fn person_commit(
    context: &mut StepContext<'_, '_>,
    it: &Iteration,
    (head, working, candidate): (&str, &str, Option<&str>),
    config: &Config,
    containment: &Containment,
) -> Result<Option<String>> {
    let (git, places, run_id) = (context.git, context.places, &it.started.run_id);
    let user = places.user_project(git);
    let search = SetupSearch {
        git,
        run_id,
        head,
        working,
        candidate,
    };
    search.person_commit(&mut |commit| {
        let clean = places.clean_checkout(git, run_id, commit)?;
        let mut run = preparer(context, &user, config, containment);
        Ok(run.cold(&clean.checkout, commit)?.is_none())
    })
}

/// The last commit with whose files setup worked; before any, the one that began the run.
fn working_commit(
    context: &StepContext<'_, '_>,
    it: &Iteration,
    workspace: &RunWorkspace,
) -> Result<String> {
    if let Some(commit) = last_set_up(&workspace.checkout)
        && context.git.commit_of(&commit)?.is_some()
    {
        return Ok(commit);
    }
    let begun = RunBeginning::of(context.git, &it.started.run_id, workspace.path())?;
    let start = begun.start;
    Ok(start.unwrap_or_else(|| it.started.head.clone()))
}

/// Takes away what a run's folders hold beside its last commit, after a child has filled a disk:
/// the next iteration makes again what it needs. Where that is not enough, what sessions have cached
/// goes, too. What cannot be removed now stays.
pub(super) fn sweep(
    context: &StepContext<'_, '_>,
    it: &Iteration,
    workspace: &RunWorkspace,
    config: &Config,
) {
    let (run_id, head) = (&it.started.run_id, &it.started.head);
    let kept = context.places.verdicts_if_made(context.git, run_id, head);
    let checkouts = [Some(&workspace.checkout), kept.as_deref()];
    for checkout in checkouts.into_iter().flatten() {
        if let Some(commit) = checkout.tree.head() {
            let _ = crate::checkout::prepare::empty(checkout, &commit);
        }
    }
    let folder = workspace.checkout.path();
    if DiskRoom::of(folder, &config.sandbox.limits).is_some_and(DiskRoom::is_full) {
        let _ = workspace.checkout.caches.forget_sessions();
    }
}

/// Adds what a setup printed to the iteration's `setup.log`.
fn append_log(it: &Iteration, place: &str, log: &[u8]) -> Result<()> {
    if log.is_empty() {
        return Ok(());
    }
    let path = it.folder.join("setup.log");
    let mut text = files::read_regular(&path, MAX_LOG).unwrap_or_default();
    text.extend(format!("runner: setup {place}:\n").into_bytes());
    text.extend(log);
    if !text.ends_with(b"\n") {
        text.push(b'\n');
    }
    Ok(files::write_whole(&path, &text)?)
}

/// The same where a person broke it: no session is asked to repair that, or blamed for it.
fn failed_by_person(ended: &GuardTrial, commit: &str) -> Error {
    let why = format!("it fails since {commit}, which a person committed on the run's branch");
    let mut error = failed(ended);
    error.message = match error.message.split_once('\n') {
        Some((first, tail)) => format!("{first}; {why}\n{tail}"),
        None => format!("{}; {why}", error.message),
    };
    error.hint("commit what setup needs on the run's branch, or revert that commit")
}

/// A setup that failed, as the error of the iteration.
fn failed(ended: &GuardTrial) -> Error {
    let why = match &ended.end {
        TrialEnd::NotStarted(why) => why.clone(),
        TrialEnd::Exited(_) | TrialEnd::TimedOut => "cannot run".to_owned(),
    };
    let log = String::from_utf8_lossy(&ended.log);
    let tail = cut_middle(log.trim_end(), TAIL_BYTES, OUTPUT_TAIL_PERCENT);
    let kind = if ended.is_over_limit {
        IterationErrorKind::Resources
    } else {
        IterationErrorKind::Setup
    };
    Error::new(ErrorCode::Step(kind), format!("a session {why}\n{tail}"))
        .hint("run [workspace] setup by hand in a fresh clone: it must work there")
}

/// What a setup that failed printed, and why it does not count where it printed nothing wrong.
fn told(ended: &GuardTrial) -> String {
    let log = String::from_utf8_lossy(&ended.log);
    let mut text = cut_middle(log.trim_end(), TAIL_BYTES, OUTPUT_TAIL_PERCENT).into_owned();
    if let TrialEnd::NotStarted(why) = &ended.end {
        text.push_str("\nrunner: the guard ");
        text.push_str(why);
    }
    text
}
