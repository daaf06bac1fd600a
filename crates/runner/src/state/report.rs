//! The report: gathers what a run has left, in files and in git.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use jiff::Timestamp;
use runner_core::by_hand;
use runner_core::journal::JournalRecord;
use runner_core::meta::IterationMeta;
use runner_core::paths;
use runner_core::report::{
    self, EndedLoop, InvalidTree, LandForecast, ReportInputs, ReportIteration, RunReport,
    RunningLoop,
};
use runner_core::run_state::RunState;
use runner_core::value_mask::ValueMask;

use crate::base_trial::evidence::BaseEvidence;
use crate::error::Result;
use crate::git::Git;
use crate::lock::ProjectLock;
use crate::notes;
use crate::project::Project;
use crate::run::refs::{RunRefs, run_ref};
use crate::state;
use crate::state::activity::activity;
use crate::state::branch_record::BranchRecord;
use crate::state::land_forecast::LandCandidate;
use crate::state::log::Journal;
use crate::state::node_history;
use crate::state::runs;
use crate::state::validate;
use crate::state::view;
use crate::step::masked_sink::passed_values;
use crate::step::{self, branch_of};

/// Puts the page together. Works while a loop runs, with an invalid tree, and
/// without logs: what cannot be had is named.
pub fn report(project: &Project) -> Result<RunReport> {
    project.need_state()?;
    let run_state =
        state::load_run_state(project).map_err(|problem| state::into_error(&[problem]))?;
    let title = state::load_goal(project).map_or_else(|_| String::new(), |goal| goal.title());
    let bytes = state::tree_bytes(project);
    let checked = match &bytes {
        Ok(bytes) => state::check_tree(bytes),
        Err(error) => Err(step::unreadable(error)),
    };
    let mut missing = Vec::new();
    let run_id = run_state.run_id.clone();
    let run = run_id.as_deref().unwrap_or_default();
    let branch = read_branch(project, run_id.as_deref(), &mut missing);
    let (record, git) = match &branch {
        Some((record, git)) => (Some(record), Some(git)),
        None => (None, None),
    };
    let iterations = iterations(project, run_id.as_deref(), record, &run_state, &mut missing);
    let metas: Vec<&IterationMeta> = iterations
        .iter()
        .filter_map(|it| it.meta.as_ref())
        .collect();
    let tree = checked.as_ref().map_err(|findings| InvalidTree {
        findings: findings.iter().map(ToString::to_string).collect(),
        repair: validate::repair_is_pending(project),
    });
    let histories: HashMap<_, _> = tree
        .as_ref()
        .map(|root| by_hand::stuck_leaves(root))
        .into_iter()
        .flatten()
        .map(|leaf| {
            let history = node_history::of(project, &leaf.id, &metas, &run_state);
            (leaf.id.to_string(), history)
        })
        .collect();
    if let (Some(git), Some((_, base))) = (git, record.and_then(|it| it.base.as_ref())) {
        missing.extend(no_evidence(project, git, base));
    }
    let start = record.and_then(|record| record.start.as_deref());
    let passed = state::load_config(project)
        .map_or_else(|_| ValueMask::default(), |config| passed_values(&config));
    let added = |path: &str| -> Vec<String> {
        let lines = added_lines(project, git, start, path).into_iter();
        lines.map(|line| passed.hide_in_text(&line)).collect()
    };
    let wall_ms = wall_ms(&metas);
    let landed = git.zip(run_id.as_deref()).and_then(|(git, run)| {
        let landing = runs::landing_of(git, run).ok()??;
        Some((landing.branch, landing.commit))
    });
    let landing = match (git, record, &landed) {
        (Some(git), Some(record), None) => forecasts(project, git, (run, record), &metas),
        _ => Vec::new(),
    };
    Ok(report::assemble(ReportInputs {
        branch: run_id.as_deref().map(branch_of),
        tip: git
            .zip(run_id.as_deref())
            .map(|(git, run)| tip_of(git, run)),
        landed,
        landing,
        base: record.and_then(|record| record.base.clone()),
        title,
        tree,
        by_hand: record.map_or_else(Vec::new, |record| {
            let list = record.by_hand.iter();
            list.map(|(iter, what, _)| (*iter, what.clone())).collect()
        }),
        running: running(project, run),
        ended: last_end(project),
        cut_off: cut_off(project),
        histories,
        assumptions: added(paths::ASSUMPTIONS),
        questions: added(paths::QUESTIONS),
        wall_ms,
        iterations,
        missing,
        run_id,
    }))
}

/// What `land` makes of tests and settings that the run changed; nothing where that cannot be told.
fn forecasts(
    project: &Project,
    git: &Git,
    (run_id, record): (&str, &BranchRecord),
    metas: &[&IterationMeta],
) -> Vec<LandForecast> {
    let look = || -> Option<Vec<LandForecast>> {
        let (branch, base) = record.base.as_ref()?;
        let config = state::load_config(project).ok()?;
        let refs = RunRefs::read(git, run_id).ok()?;
        let candidate = LandCandidate {
            project,
            git,
            run_id,
            config: &config,
            base: (branch, base),
            tip: refs.tip()?,
        };
        candidate.forecasts(metas).ok()
    };
    look().unwrap_or_default()
}

/// Says so where nothing is known of the tests that a guard ran: what it printed on the base is not
/// understood.
fn no_evidence(project: &Project, git: &Git, base: &str) -> Option<String> {
    let config = state::load_config(project).ok()?;
    let known = BaseEvidence::at(git, &config, base).ok()?.read()?;
    known.is_empty().then(|| {
        "evidence of tests: the guard's report is not understood, and its exit code alone says that they ran"
            .to_owned()
    })
}

/// The reference that leads to the last commit of a run, for people to type.
fn tip_of(git: &Git, run_id: &str) -> String {
    match RunRefs::read(git, run_id) {
        Ok(refs) if refs.run.is_some() && refs.run != refs.branch => run_ref(run_id),
        _ => branch_of(run_id),
    }
}

fn read_branch(
    project: &Project,
    run_id: Option<&str>,
    missing: &mut Vec<String>,
) -> Option<(BranchRecord, Git)> {
    let run_id = run_id?;
    let read = || -> Result<_> {
        let git = Git::open(project.root())?;
        let branch = branch_of(run_id);
        if RunRefs::read(&git, run_id)?.tip().is_none() {
            return Err(step::identity_error(&format!(
                "there is no branch {branch} in this clone"
            )));
        }
        Ok((BranchRecord::read(&git, run_id)?, git))
    };
    match read() {
        Ok(found) => Some(found),
        Err(error) => {
            let why = error.message.lines().next().unwrap_or_default();
            missing.push(format!("the commits of the run: {why}"));
            None
        }
    }
}

/// The records of this clone and what the branch has, side by side.
fn iterations(
    project: &Project,
    run_id: Option<&str>,
    record: Option<&BranchRecord>,
    run_state: &RunState,
    missing: &mut Vec<String>,
) -> Vec<ReportIteration> {
    let Some(run_id) = run_id else {
        return Vec::new();
    };
    let mut metas: BTreeMap<u32, IterationMeta> = BTreeMap::new();
    for iter in project.iteration_numbers(run_id) {
        if let Some(meta) = view::meta_of(project, run_id, iter) {
            metas.insert(iter, meta);
        }
    }
    let mut numbers: BTreeSet<u32> = metas.keys().copied().collect();
    numbers.extend(record.into_iter().flat_map(|it| it.iterations.keys()));
    let done = run_state.next_iter.saturating_sub(1);
    let without = (1..=done).filter(|iter| !metas.contains_key(iter)).count();
    if without > 0 {
        missing.push(format!(
            "the logs of {without} of {done} iterations: without them summaries, guard output, \
             plan changes, touched files, time, tokens and cost are not known (logs stay where the run was made)"
        ));
    }
    numbers
        .into_iter()
        .map(|iter| ReportIteration {
            iter,
            meta: metas.remove(&iter),
            commit: record.and_then(|record| record.committed(iter)),
        })
        .collect()
}

/// Who works, and on what.
fn running(project: &Project, run_id: &str) -> Option<RunningLoop> {
    let pid = ProjectLock::holder(project)?;
    let newest = project.iteration_numbers(run_id).last().copied();
    let started = newest.and_then(|iter| {
        let records = Journal::read(&project.iteration(run_id, iter));
        match records.first() {
            Some(JournalRecord::Started(started)) if !records.iter().any(JournalRecord::is_end) => {
                Some(started.clone())
            }
            _ => None,
        }
    });
    Some(RunningLoop {
        pid,
        iter: started.as_ref().map(|it| it.iter),
        node_id: started.map(|it| it.node_id),
    })
}

/// The iteration that a runner was cut off in, and its node.
fn cut_off(project: &Project) -> Option<(u32, String)> {
    let now = activity(project);
    let iter = now.iter.filter(|_| now.pid.is_none() && now.cut_off)?;
    Some((iter, now.node_id.unwrap_or_default()))
}

/// How the last loop ended, unless something has begun since.
fn last_end(project: &Project) -> Option<EndedLoop> {
    let now = activity(project);
    let end = now.last_end.filter(|_| now.pid.is_none() && !now.cut_off)?;
    Some(EndedLoop {
        status: end.status,
        reason: end.message,
    })
}

/// The lines that a file of notes has gained since the run began.
fn added_lines(
    project: &Project,
    git: Option<&Git>,
    start: Option<&str>,
    path: &str,
) -> Vec<String> {
    let now = state::optional_text(project, path)
        .ok()
        .flatten()
        .unwrap_or_default();
    let then = git
        .zip(start)
        .and_then(|(git, start)| git.file_at(start, path).ok().flatten())
        .unwrap_or_default();
    // An agent that asks in each session asks one thing.
    let mut seen = HashSet::new();
    notes::added(&String::from_utf8_lossy(&then), &now)
        .into_iter()
        .filter(|line| !line.trim().is_empty() && seen.insert(*line))
        .map(str::to_owned)
        .collect()
}

/// From the beginning of the first iteration to the end of the last.
fn wall_ms(metas: &[&IterationMeta]) -> Option<u64> {
    let begun: Timestamp = metas.first()?.started_at.parse().ok()?;
    let ended: Timestamp = metas.last()?.ended_at.parse().ok()?;
    u64::try_from(ended.as_millisecond() - begun.as_millisecond()).ok()
}
