//! What a workspace and a clean checkout need before anything runs in them.

use runner_core::config::Config;
use runner_core::meta::IterationErrorKind;
use runner_core::text::cut_front;

use super::guard::VerdictCheckout;
use super::{Iteration, StepContext};
use crate::checkout::indexed_tree::KeptFiles;
use crate::checkout::prepare::{CheckoutPreparer, WarmStart};
use crate::checkout::trial::{GuardTrial, TrialEnd};
use crate::checkout::workspace::RunWorkspace;
use crate::error::{Error, ErrorCode, Result};
use crate::files;
use crate::git::Git;
use crate::step::containment::Containment;

/// How much of a failed setup's output is told.
const TAIL_BYTES: usize = 4000;

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
    }
}

/// Makes what a workspace lacks.
pub(super) fn workspace(
    context: &mut StepContext<'_, '_>,
    it: &Iteration,
    workspace: &RunWorkspace,
    config: &Config,
    containment: &Containment,
) -> Result<()> {
    let user = context.places.user_project(context.git);
    let mut preparer = preparer(context, &user, config, containment);
    match preparer.workspace(&workspace.checkout, &it.started.head)? {
        None => Ok(()),
        Some(ended) => Err(failed(it, &ended)?),
    }
}

/// Brings a clean checkout to a candidate; one that is kept with what was begun for it. What is returned is the log of a setup that failed
/// because of what the candidate changed; any other failure is an error of the iteration.
pub(super) fn verdict(
    context: &mut StepContext<'_, '_>,
    it: &Iteration,
    (verdict, begun): (&VerdictCheckout, Option<WarmStart>),
    commit: &str,
    config: &Config,
    containment: &Containment,
) -> Result<Option<Vec<u8>>> {
    let user = context.places.user_project(context.git);
    let mut preparer = preparer(context, &user, config, containment);
    let checkout = verdict.checkout();
    let ended = match begun {
        Some(begun) => preparer.warm(checkout, commit, begun)?,
        None => preparer.cold(checkout, commit)?,
    };
    let Some(ended) = ended else { return Ok(None) };
    let head = it.started.head.as_str();
    // Where setup works without the candidate's changes, they are the reason.
    let is_theirs = preparer.has_other_inputs(head, commit)? && {
        checkout.tree.bring_to(head, KeptFiles::NONE)?;
        preparer.cold(checkout, head)?.is_none()
    };
    if !is_theirs {
        return Err(failed(it, &ended)?);
    }
    files::write_whole(&it.folder.join("setup.log"), &ended.log)?;
    let mut log = ended.log;
    if let TrialEnd::NotStarted(why) = &ended.end {
        log.extend(format!("\nrunner: the guard {why}\n").into_bytes());
    }
    Ok(Some(log))
}

/// A setup that failed, as the error of the iteration.
fn failed(it: &Iteration, ended: &GuardTrial) -> Result<Error> {
    files::write_whole(&it.folder.join("setup.log"), &ended.log)?;
    let why = match &ended.end {
        TrialEnd::NotStarted(why) => why.clone(),
        TrialEnd::Exited(_) | TrialEnd::TimedOut => "cannot run".to_owned(),
    };
    let log = String::from_utf8_lossy(&ended.log);
    let tail = cut_front(log.trim_end(), TAIL_BYTES);
    Ok(Error::new(
        ErrorCode::Step(IterationErrorKind::Setup),
        format!("a session {why}\n{tail}"),
    )
    .hint("run [workspace] setup by hand in a fresh clone: it must work there"))
}
