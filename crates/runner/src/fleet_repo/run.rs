//! One attempt at a task: a checkout, a goal, the loop, and what is left of it as commits.

use std::fmt::Write as _;

use runner_core::landing::TaskMessage;
use runner_core::message::GuardProof;
use runner_core::meta::{GuardResult, GuardRun, IterationErrorKind, IterationMeta};
use runner_core::paths;
use runner_core::text::cut_front;
use runner_exec::Cancel;

use super::sweep::{TaskRunName, token_of};
use super::{FleetRepo, ResultMerge, ResultMergeOutcome, safe_name};
use crate::checkout::workspace::{GivenPlace, RunPlaces};
use crate::checkout::{ORPHANS, TaskRunFolder, VERDICTS, WORKSPACES};
use crate::error::{Error, ErrorCode, Result};
use crate::files;
use crate::git::Git;
use crate::init;
use crate::lock::ProjectLock;
use crate::run::recover;
use crate::run::refs::RunRefs;
use crate::run::run_loop::{LoopOptions, LoopOutcome, LoopStatus, run_loop_in};
use crate::run::start::{StartOptions, start};
use crate::run_context::RunContext;
use crate::state::node_history;
use crate::step::containment::ContainmentChoice;
use crate::step::{StepContext, read_meta};

/// How much of a red guard's output is told.
const TAIL_BYTES: usize = 4000;

/// The largest log that is read for its end.
const MAX_LOG: u64 = 64 << 20;

/// What is to be done.
#[derive(Clone, Copy, Debug)]
pub struct TaskRunOrder<'a> {
    /// Whose run it is.
    pub name: &'a TaskRunName,
    /// The title of the task, for the commits.
    pub title: &'a str,
    /// GOAL.md; its id is set here.
    pub goal: &'a str,
    /// The config of the loop.
    pub config: &'a str,
    /// A result of an earlier attempt, to go on from where it fits the base.
    pub earlier: Option<&'a str>,
}

/// What came of it.
#[derive(Debug)]
pub struct TaskRunReport {
    /// How the loop ended.
    pub end: LoopOutcome,
    /// The commit of the base that it began from.
    pub start: String,
    /// All that it changes, without `.runner/`, as one commit on that, if it is anything.
    pub result: Option<String>,
    /// Why it did not complete, with the end of the guard's log.
    pub why: String,
    /// When a used-up quota is there again, in milliseconds since 1970.
    pub quota_until: Option<i64>,
    /// What its sessions used.
    pub used: TaskRunUsage,
    /// The guard's last run, if that was green.
    pub guard: Option<GuardRun>,
}

/// What sessions used, as far as they said so.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct TaskRunUsage {
    /// Tokens that went in, cached ones too.
    pub input_tokens: u64,
    /// Tokens that came out.
    pub output_tokens: u64,
    /// US dollars.
    pub cost_usd: f64,
}

impl FleetRepo {
    /// Works on a task until the loop ends. The base is what the result is a commit on,
    /// also where work goes on from an earlier result: what is judged is all that would be
    /// merged. `timed_out` says whether a cancel meant that the time was up; another one
    /// leaves no result.
    pub fn run(
        &self,
        order: TaskRunOrder<'_>,
        timed_out: &dyn Fn() -> bool,
        context: &mut RunContext<'_>,
    ) -> Result<TaskRunReport> {
        let base = self.base()?;
        let begin = self.beginning(&base, &order)?;
        self.refuse_if_replaced(order.name)?;
        let checkout = self.private_home()?.task_run_folder(
            &self.git,
            (&self.task_runs(), &order.name.folder()),
            order.name,
            &begin,
        )?;
        let run_id = safe_name(&order.name.run_id);
        let instructions = self.project_file(paths::INSTRUCTIONS)?;
        let goal = with_id(order.goal, &run_id)?;
        init::lay_down(&checkout.project, order.config, &goal, instructions)?;
        let options = StartOptions {
            check_guard: false,
            stay: false,
        };
        start(&checkout.project, options, context)?;
        let mut quota_until = None;
        let end = run_loop_in(
            &checkout.project,
            self.places(order.name, Some(&base))?,
            context,
            &LoopOptions {
                ends_on_resources: true,
                ..LoopOptions::default()
            },
            &mut |step| {
                let quota = step
                    .error
                    .as_ref()
                    .filter(|it| it.kind == IterationErrorKind::Quota);
                quota_until = quota.and_then(|it| it.retry_at.as_deref()?.parse().ok());
            },
        );
        let metas = metas(&checkout, &run_id);
        let mut report = TaskRunReport {
            start: base.clone(),
            result: None,
            why: why(&end, &checkout, metas.last()),
            end,
            quota_until: quota_until.map(jiff::Timestamp::as_millisecond),
            used: used(&metas),
            guard: green(&metas).cloned(),
        };
        if report.end.status != LoopStatus::Interrupted || timed_out() {
            let complete = report.end.status == LoopStatus::Complete;
            let guard = report.guard.as_ref().filter(|_| complete);
            let _held = self.git.hold_new_objects_for_now()?;
            let taken = self
                .recovered_tip(&checkout, order.name, &run_id, context)
                .and_then(|(git, tip)| self.git.take_over(&git, &tip, &begin).map(|()| tip));
            match taken {
                Ok(tip) => report.result = self.publish(&order, &base, &tip, guard)?,
                // What a session made of its repository is no error of anything else.
                Err(error) => {
                    report.end.status = LoopStatus::Error;
                    report.why.clone_from(&error.message);
                    report.end.error = Some(error);
                }
            }
            self.remove_places(order.name, context.cancel)?;
        }
        Ok(report)
    }

    /// Whether a task run has been given the commit that it begins from.
    pub fn has_begun(&self, run_id: &str) -> bool {
        let folders = self.task_run_names().unwrap_or_default();
        folders.iter().any(|it| token_of(it, run_id).is_some())
    }

    /// The folders of a task run that has ended.
    pub(crate) fn remove_places(&self, name: &TaskRunName, cancel: &Cancel) -> Result<()> {
        let home = self.private_home()?;
        for kind in [WORKSPACES, VERDICTS] {
            home.remove_checkout((kind, &name.folder()), cancel, ORPHANS)?;
        }
        Ok(())
    }

    /// Where the sessions of a task run work: in folders of the fleet's project, seen at its path.
    fn places(&self, name: &TaskRunName, base: Option<&str>) -> Result<RunPlaces> {
        Ok(RunPlaces::given(GivenPlace {
            home: self.private_home()?,
            name: name.folder(),
            project: self.git.clone(),
            base: base.map(str::to_owned),
        }))
    }

    /// Where work begins: the earlier result on top of the base, or the base.
    fn beginning(&self, base: &str, order: &TaskRunOrder<'_>) -> Result<String> {
        let Some(result) = order.earlier else {
            return Ok(base.to_owned());
        };
        let message = format!("Go on from {result}\n");
        let merged = self.merge(ResultMerge {
            base,
            result,
            message: &message,
            run_id: &order.name.run_id,
        })?;
        Ok(match merged {
            ResultMergeOutcome::Commit(commit) => commit,
            ResultMergeOutcome::Conflicts(_)
            | ResultMergeOutcome::Empty
            | ResultMergeOutcome::Missing => base.to_owned(),
        })
    }

    /// The repository of a checkout after its loop, with nothing planted in it, and the last
    /// commit of the run.
    fn recovered_tip(
        &self,
        checkout: &TaskRunFolder,
        name: &TaskRunName,
        run_id: &str,
        context: &mut RunContext<'_>,
    ) -> Result<(Git, String)> {
        let _lock = ProjectLock::take(&checkout.project)?;
        let git = Git::open(checkout.project.root())?;
        let mut context = StepContext {
            project: &checkout.project,
            git: &git,
            run: context,
            containment: &ContainmentChoice::default(),
            places: &self.places(name, None)?,
        };
        recover::recover(&mut context)?;
        let refs = RunRefs::read(&git, run_id)?;
        let tip = refs.tip().map(str::to_owned).ok_or_else(|| {
            Error::new(
                ErrorCode::Identity,
                format!("the branch of run {run_id} is gone"),
            )
        })?;
        Ok((git, tip))
    }

    /// Makes the result and lets refs keep it: the result under a name with the token, the
    /// loop's own branch for proof.
    fn publish(
        &self,
        order: &TaskRunOrder<'_>,
        base: &str,
        tip: &str,
        guard: Option<&GuardRun>,
    ) -> Result<Option<String>> {
        let TaskRunOrder { name, title, .. } = *order;
        let message = TaskMessage {
            title,
            task_id: &name.task,
            run_id: &name.run_id,
            result: None,
            guard: guard.map(|run| GuardProof {
                command: &run.command,
                exit: 0,
                log_sha256: &run.log_sha256,
                checkout: run.checkout,
                setup_sha256: run.setup_sha256.as_deref(),
            }),
            accepted: false,
        };
        let commit = self.squash(base, tip, &message.text())?;
        let _lock = self.lock()?;
        self.refuse_if_replaced(name)?;
        let kept = commit.as_deref().unwrap_or(tip);
        let mut orders = String::new();
        // Writing to a String cannot fail.
        let _ = writeln!(orders, "update {} {tip}", name.proof_ref());
        let _ = writeln!(orders, "update {}{} {kept}", self.refs(), name.ref_part());
        self.git.update_refs("runner: result", &orders)?;
        Ok(commit)
    }

    /// An owner who was replaced writes nothing any more.
    fn refuse_if_replaced(&self, name: &TaskRunName) -> Result<()> {
        let folders = self.task_run_names()?;
        let prefix = format!("{}{}/", self.refs(), safe_name(&name.task));
        let listed = self
            .git
            .line(&["for-each-ref", "--format=%(refname)", &prefix])?;
        let refs = listed.lines().filter_map(|it| it.strip_prefix(&prefix));
        let newer = folders
            .iter()
            .map(String::as_str)
            .chain(refs)
            .filter_map(|it| token_of(it, &name.run_id))
            .find(|token| *token > name.token);
        match newer {
            None => Ok(()),
            Some(token) => Err(Error::new(
                ErrorCode::Refused,
                format!(
                    "run {} belongs to the owner with token {token}, not to the one with {}",
                    name.run_id, name.token
                ),
            )),
        }
    }
}

fn with_id(goal: &str, run_id: &str) -> Result<String> {
    let goal =
        crate::state::check_goal(goal).map_err(|problem| crate::state::into_error(&[problem]))?;
    Ok(goal.with_id(run_id))
}

/// The records of all iterations.
fn metas(checkout: &TaskRunFolder, run_id: &str) -> Vec<IterationMeta> {
    let project = &checkout.project;
    let numbers = project.iteration_numbers(run_id).into_iter();
    numbers
        .filter_map(|iter| read_meta(&project.iteration(run_id, iter)))
        .collect()
}

fn used(metas: &[IterationMeta]) -> TaskRunUsage {
    let mut used = TaskRunUsage::default();
    for run in metas.iter().filter_map(|meta| meta.executor.as_ref()) {
        used.input_tokens += run.input_tokens.unwrap_or(0);
        used.output_tokens += run.output_tokens.unwrap_or(0);
        used.cost_usd += run.cost_usd.unwrap_or(0.0);
    }
    used
}

/// The last guard run, if it was green.
fn green(metas: &[IterationMeta]) -> Option<&GuardRun> {
    let mut asked = metas.iter().rev().filter(|it| it.guard_run.is_some());
    let last = asked.next()?;
    last.guard_run
        .as_ref()
        .filter(|_| last.guard == GuardResult::Pass)
}

fn why(end: &LoopOutcome, checkout: &TaskRunFolder, last: Option<&IterationMeta>) -> String {
    if end.status == LoopStatus::Complete {
        return String::new();
    }
    let general = match (&end.error, &end.stuck, &end.reason) {
        (Some(error), ..) => error.message.clone(),
        (None, Some(leaf), _) => format!(
            "leaf {} used up its {} attempts",
            leaf.path, leaf.max_attempts
        ),
        (None, None, Some(reason)) => reason.clone(),
        (None, None, None) => format!("the loop ended: {}", end.status.as_str()),
    };
    let told = last.and_then(|meta| last_words(checkout, meta));
    // That attempts or iterations are used up is known from the status; why is not.
    let used_up = end
        .error
        .as_ref()
        .is_none_or(|it| it.code == ErrorCode::Limit);
    match told {
        None => general,
        Some(told) if used_up => told,
        Some(told) => format!("{general}\n{told}"),
    }
}

/// Why the last iteration was none that helped: the guard's words, what was not accepted,
/// or what the session said.
fn last_words(checkout: &TaskRunFolder, meta: &IterationMeta) -> Option<String> {
    let words = if meta.guard == GuardResult::Fail {
        let folder = checkout.project.iteration(&meta.run_id, meta.iter);
        let log = files::read_regular(&folder.join("guard.log"), MAX_LOG).unwrap_or_default();
        let log = String::from_utf8_lossy(&log);
        cut_front(log.trim_end(), TAIL_BYTES).into_owned()
    } else {
        node_history::words(&checkout.project, meta)?
    };
    (!words.is_empty()).then_some(words)
}
