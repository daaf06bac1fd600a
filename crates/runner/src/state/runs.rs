//! The runs of a repository: which there are, where each began, where it has
//! landed. Read from git alone, so from any branch.

mod summary;

use runner_core::goal::{Goal, check_run_id};
use runner_core::landing;
use runner_core::message;
use runner_core::paths;
use runner_core::select::{Selection, select};

use crate::error::{Error, ErrorCode, Result};
use crate::git::{Git, GitHistory};
use crate::run::refs::{LEFT, MARKS, RUNS};
use crate::state;
use crate::step::branch_of;

pub use summary::{LandedAt, RunStanding, RunSummary, runs};

/// Where the branches of runs are.
const BRANCHES: &str = "refs/heads/runner/";
/// Where the last commit of a run is kept whose branch was deleted.
const ABANDONED: &str = "refs/runner/abandoned/";

/// A run that has a branch, or had one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KnownRun {
    pub(crate) run_id: String,
    /// The last commit.
    pub(crate) tip: String,
    /// When that was made, in seconds since 1970.
    pub(crate) tip_secs: i64,
    /// Its branch was deleted by `abandon`.
    pub(crate) abandoned: bool,
    /// It was left by `abandon`, and its branch stays.
    pub(crate) left: bool,
}

impl KnownRun {
    pub(crate) fn branch(&self) -> String {
        branch_of(&self.run_id)
    }
}

/// Every run, the one with the newest commit first.
pub(crate) fn known(git: &Git) -> Result<Vec<KnownRun>> {
    let format = "--format=%(refname) %(objectname) %(committerdate:unix)";
    let list = git.read(&[
        "for-each-ref",
        format,
        BRANCHES,
        ABANDONED,
        RUNS,
        MARKS,
        LEFT,
    ])?;
    let list = String::from_utf8_lossy(&list);
    let mut found: Vec<KnownRun> = list.lines().filter_map(parse_known).collect();
    // A run that is under way may be further than its branch, which people see.
    let ahead = |line: &str| {
        let run = line.strip_prefix(RUNS)?;
        parse_known(&format!("{BRANCHES}{run}"))
    };
    for run in list.lines().filter_map(ahead) {
        let mark = format!("{MARKS}{} {} ", run.run_id, run.tip);
        let is_up_to_date = list.lines().any(|line| line.starts_with(&mark));
        let same = |it: &&mut KnownRun| !it.abandoned && it.run_id == run.run_id;
        match found.iter_mut().find(same) {
            // Whoever moved the branch since was a person.
            Some(_) if is_up_to_date => {}
            Some(known) => *known = run,
            None => found.push(run),
        }
    }
    for run in &mut found {
        let has = |place: &str| {
            let name = format!("{place}{} ", run.run_id);
            list.lines().any(|line| line.starts_with(&name))
        };
        run.left = !run.abandoned && has(LEFT) && !has(RUNS);
    }
    found.sort_by(|a, b| (b.tip_secs, &a.run_id).cmp(&(a.tip_secs, &b.run_id)));
    Ok(found)
}

fn parse_known(line: &str) -> Option<KnownRun> {
    let mut words = line.split(' ');
    let name = words.next()?;
    let (run_id, abandoned) = match name.strip_prefix(BRANCHES) {
        Some(run_id) => (run_id, false),
        None => (name.strip_prefix(ABANDONED)?, true),
    };
    check_run_id(run_id).ok()?;
    Some(KnownRun {
        run_id: run_id.to_owned(),
        tip: words.next()?.to_owned(),
        tip_secs: words.next()?.parse().ok()?,
        abandoned,
        left: false,
    })
}

/// `refs/heads/BRANCH`.
pub(crate) fn full_name(branch: &str) -> String {
    format!("refs/heads/{branch}")
}

/// The reference under which an abandoned run is kept.
pub(crate) fn abandoned_name(run_id: &str) -> String {
    format!("{ABANDONED}{run_id}")
}

/// The title of the goal in a commit; empty where there is none.
pub(crate) fn title_of(git: &Git, commit: &str) -> Result<String> {
    let bytes = git.file_at(commit, paths::GOAL)?.unwrap_or_default();
    let goal = Goal::parse(&String::from_utf8_lossy(&bytes)).ok();
    Ok(goal.map(|goal| goal.title()).unwrap_or_default())
}

/// Where a run began.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RunBase {
    /// Without `refs/heads/`; `HEAD` where none was checked out.
    pub(crate) branch: String,
    pub(crate) commit: String,
}

/// Branch and commit that a run began from, by its first commit. What a session
/// committed itself says nothing about it.
pub(crate) fn base_of(git: &Git, run_id: &str, tip: &str) -> Result<Option<RunBase>> {
    let subject = message::start_subject(run_id);
    for commit in GitHistory::from(git, tip) {
        let commit = commit?;
        let base = (commit.subject() == subject)
            .then(|| message::trailer(&commit.message, "Runner-Base"))
            .flatten()
            .and_then(|value| value.rsplit_once(' '));
        if let Some((branch, commit)) = base {
            return Ok(Some(RunBase {
                branch: branch.to_owned(),
                commit: commit.to_owned(),
            }));
        }
    }
    Ok(None)
}

/// A commit that landed a run, or a part of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LandingCommit {
    pub(crate) commit: String,
    /// The branch on which it was found.
    pub(crate) branch: String,
    /// The commit of the run up to which it did.
    pub(crate) tip: String,
}

/// The landings of a run, newest first: on one branch, or on all that are not runs'.
pub(crate) fn landings(
    git: &Git,
    run_id: &str,
    base: Option<&RunBase>,
    target: Option<&str>,
) -> Result<Vec<LandingCommit>> {
    let mark = format!("--grep={}", landing::landed_mark(run_id));
    // Not what a merge brought along: a session may have written that.
    let mut args = vec![
        "log".to_owned(),
        "-z".to_owned(),
        "--first-parent".to_owned(),
        "--format=%H %S%n%B".to_owned(),
        "--fixed-strings".to_owned(),
        mark,
    ];
    match target {
        Some(branch) => args.push(full_name(branch)),
        None => args.extend(["--exclude=runner/*".to_owned(), "--branches".to_owned()]),
    }
    if let Some(base) = base
        && git.commit_of(&base.commit)?.is_some()
    {
        args.push(format!("^{}", base.commit));
    }
    args.push("--".to_owned());
    let log = git.read(&args)?;
    let found = String::from_utf8_lossy(&log)
        .split('\0')
        .filter_map(|record| {
            let (head, message) = record.split_once('\n')?;
            let (commit, source) = head.split_once(' ')?;
            Some(LandingCommit {
                commit: commit.to_owned(),
                branch: source
                    .strip_prefix("refs/heads/")
                    .unwrap_or(source)
                    .to_owned(),
                tip: landing::landed_tip(message, run_id)?.to_owned(),
            })
        })
        .collect();
    Ok(found)
}

/// Whether every leaf has passed by the tree of a run's last commit.
pub(crate) fn is_complete(git: &Git, run: &KnownRun) -> Result<bool> {
    let bytes = git.file_at(&run.tip, paths::TREE)?.unwrap_or_default();
    let root = state::check_tree(&bytes).ok();
    Ok(root.is_some_and(|root| select(&root) == Selection::Complete))
}

/// Whether everything of a run is on some other branch. One that has something to
/// do goes on, even if all that it has so far is home.
pub(crate) fn has_landed(git: &Git, run: &KnownRun) -> Result<bool> {
    if !is_complete(git, run)? {
        return Ok(false);
    }
    let base = base_of(git, &run.run_id, &run.tip)?;
    let landings = landings(git, &run.run_id, base.as_ref(), None)?;
    let landed = landings.iter().any(|landing| landing.tip == run.tip);
    Ok(landed || merged_by_hand(git, run, base.as_ref())?)
}

/// Where all of a run has landed.
pub(crate) fn landed_as(git: &Git, run: &KnownRun) -> Result<Option<LandingCommit>> {
    if !is_complete(git, run)? {
        return Ok(None);
    }
    let base = base_of(git, &run.run_id, &run.tip)?;
    landed_at(git, &run.run_id, base.as_ref(), &run.tip)
}

/// Where a run has landed up to a commit: on the branch that it began from, if it is there, and not
/// on one that was made from that since.
pub(crate) fn landed_at(
    git: &Git,
    run_id: &str,
    base: Option<&RunBase>,
    tip: &str,
) -> Result<Option<LandingCommit>> {
    let find = |target: Option<&str>| -> Result<Option<LandingCommit>> {
        let landings = landings(git, run_id, base, target)?;
        Ok(landings.into_iter().find(|landing| landing.tip == tip))
    };
    if let Some(base) = base
        && git.commit_of(&full_name(&base.branch))?.is_some()
        && let Some(landing) = find(Some(&base.branch))?
    {
        return Ok(Some(landing));
    }
    find(None)
}

/// The commit that a run landed as, all of it.
pub(crate) fn landing_of(git: &Git, run_id: &str) -> Result<Option<LandingCommit>> {
    let known = known(git)?;
    let run = known.iter().find(|run| run.run_id == run_id);
    run.map_or(Ok(None), |run| landed_as(git, run))
}

/// Whether a person has merged the whole branch into the one that it began from.
pub(crate) fn merged_by_hand(git: &Git, run: &KnownRun, base: Option<&RunBase>) -> Result<bool> {
    let Some(base) = base else { return Ok(false) };
    match git.commit_of(&full_name(&base.branch))? {
        Some(tip) => git.is_ancestor(&run.tip, &tip),
        None => Ok(false),
    }
}

/// The run that is meant: the one that was named, the one whose branch is checked
/// out, or the only one that has not landed.
pub(crate) fn choose(
    git: &Git,
    named: Option<&str>,
    here: Option<&str>,
    command: &str,
) -> Result<KnownRun> {
    let mut all = known(git)?;
    if let Some(name) = named {
        let wanted = name.strip_prefix("runner/").unwrap_or(name);
        // A branch counts before what is left of one.
        all.sort_by_key(|run| run.abandoned);
        let found = all.into_iter().find(|run| run.run_id == wanted);
        return found.ok_or_else(|| {
            Error::new(
                ErrorCode::NotFound,
                format!("there is no run {wanted:?} here"),
            )
            .hint("`runner runs` lists them")
        });
    }
    all.retain(|run| !run.abandoned);
    if let Some(found) = all.iter().find(|run| Some(run.branch().as_str()) == here) {
        return Ok(found.clone());
    }
    let mut open = Vec::new();
    for run in &all {
        if !has_landed(git, run)? {
            open.push(run);
        }
    }
    match (open.as_slice(), all.first()) {
        ([only], _) => Ok((*only).clone()),
        // All are home: the newest is the one that was just meant.
        ([], Some(newest)) => Ok(newest.clone()),
        ([], None) => Err(
            Error::new(ErrorCode::NotFound, "this repository has no run")
                .hint("`runner init`, then `runner start` begins one"),
        ),
        ([first, ..], _) => {
            let ids: Vec<&str> = open.iter().map(|run| run.run_id.as_str()).collect();
            Err(Error::new(
                ErrorCode::Identity,
                format!(
                    "which run? No run's branch is checked out here, and there are {}: {}",
                    ids.len(),
                    ids.join(", ")
                ),
            )
            .hint(format!("name it: `runner {command} {}`", first.run_id)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn which_references_are_runs() {
        let run = |line: &str| parse_known(line).map(|run| (run.run_id, run.abandoned));
        for (line, expected) in [
            ("refs/heads/runner/a abc 12", Some(("a", false))),
            ("refs/runner/abandoned/a-2 abc 12", Some(("a-2", true))),
            ("refs/heads/runner/a/b abc 12", None),
            ("refs/heads/runner/-x abc 12", None),
            ("refs/heads/main abc 12", None),
            ("refs/heads/runner/a abc", None),
        ] {
            let expected = expected.map(|(id, abandoned)| (id.to_owned(), abandoned));
            assert_eq!(run(line), expected, "{line}");
        }
    }
}
