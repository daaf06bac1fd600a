//! Where a run is: the refs that say so, and the person's branch that follows them.
//!
//! `refs/runner/run/<id>` is the truth, and `refs/runner/keep/<id>` moves with it; `runner/<id>` is
//! the branch that people see, and `refs/runner/branch/<id>` says where the runner last put that
//! branch: whoever moved it since was a person.

use std::fmt::Write as _;

use crate::error::Result;
use crate::git::Git;
use crate::state::runs::full_name;
use crate::step::branch_of;

/// The truth about runs.
pub(crate) const RUNS: &str = "refs/runner/run/";
const KEEP: &str = "refs/runner/keep/";
pub(crate) const MARKS: &str = "refs/runner/branch/";
/// Runs that a person has left, whose branches stay.
pub(crate) const LEFT: &str = "refs/runner/left/";

/// Where the refs of a run stand.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RunRefs {
    /// The run's last commit.
    pub(crate) run: Option<String>,
    /// Where the runner last put the branch.
    pub(crate) mark: Option<String>,
    /// The branch.
    pub(crate) branch: Option<String>,
}

/// What a person did to the branch of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum BranchFinding {
    /// Nothing, or it is gone, which the runner does not mind.
    Untouched,
    /// There are commits on top of the run's last one.
    Ahead(String),
    /// There are commits on top of an earlier one: to be merged.
    Beside(String),
    /// It was moved back or rewritten: the run goes on there.
    Rewritten(String),
}

impl RunRefs {
    /// Looks.
    pub(crate) fn read(git: &Git, run_id: &str) -> Result<Self> {
        let names = [
            run_ref(run_id),
            mark_ref(run_id),
            full_name(&branch_of(run_id)),
        ];
        // All three are files of their own but where somebody has just collected garbage.
        if let Some([run, mark, branch]) = git.loose_refs(names.each_ref().map(String::as_str)) {
            return Ok(RunRefs {
                run: Some(run),
                mark: Some(mark),
                branch: Some(branch),
            });
        }
        let mut args = vec!["for-each-ref", "--format=%(objectname) %(refname)"];
        args.extend(names.iter().map(String::as_str));
        let listed = git.line(&args)?;
        let find = |name: &str| {
            let mut pairs = listed.lines().filter_map(|line| line.split_once(' '));
            pairs
                .find(|(_, it)| *it == name)
                .map(|(commit, _)| commit.to_owned())
        };
        Ok(RunRefs {
            run: find(&names[0]),
            mark: find(&names[1]),
            branch: find(&names[2]),
        })
    }

    /// The last commit of the run: its branch's where only a person has moved that since. A run of
    /// an earlier version has only its branch.
    pub(crate) fn tip(&self) -> Option<&str> {
        let by_a_person = self.run == self.mark && self.branch != self.mark;
        let branch = self.branch.as_deref();
        match &self.run {
            Some(run) if branch.is_none() || !by_a_person => Some(run),
            _ => branch,
        }
    }

    /// What a person did to the branch since the runner put it where it did.
    pub(crate) fn finding(&self, git: &Git) -> Result<BranchFinding> {
        let (Some(run), Some(branch)) = (&self.run, &self.branch) else {
            return Ok(BranchFinding::Untouched);
        };
        let mark = self.mark.as_ref().unwrap_or(run);
        if branch == mark || branch == run {
            return Ok(BranchFinding::Untouched);
        }
        let is_on_top = git.commit_of(mark)?.is_some() && git.is_ancestor(mark, branch)?;
        Ok(match (is_on_top, mark == run) {
            (true, true) => BranchFinding::Ahead(branch.clone()),
            (true, false) if git.is_ancestor(run, branch)? => BranchFinding::Ahead(branch.clone()),
            (true, false) => BranchFinding::Beside(branch.clone()),
            (false, _) => BranchFinding::Rewritten(branch.clone()),
        })
    }
}

/// The runs that have taken a step and not ended.
pub(crate) fn under_way(git: &Git) -> Result<Vec<String>> {
    if let Some(ids) = git.loose_names_in(RUNS) {
        return Ok(ids);
    }
    let listed = git.line(&["for-each-ref", "--format=%(refname)", RUNS])?;
    let ids = listed.lines().filter_map(|name| name.strip_prefix(RUNS));
    Ok(ids.map(str::to_owned).collect())
}

/// `refs/runner/run/<id>`.
pub(crate) fn run_ref(run_id: &str) -> String {
    format!("{RUNS}{run_id}")
}

/// `refs/runner/keep/<id>`.
pub(crate) fn keep_ref(run_id: &str) -> String {
    format!("{KEEP}{run_id}")
}

/// `refs/runner/branch/<id>`.
pub(crate) fn mark_ref(run_id: &str) -> String {
    format!("{MARKS}{run_id}")
}

/// Moves the truth about a run, if it is still what it was (`None`: there was none). `branch`:
/// where a person has put the branch, which is taken note of.
pub(crate) fn advance(
    git: &Git,
    run_id: &str,
    from: Option<&str>,
    to: &str,
    branch: Option<&str>,
) -> Result<()> {
    let run = run_ref(run_id);
    let mut orders = match from {
        Some(from) => format!("update {run} {to} {from}\n"),
        None => format!("create {run} {to}\n"),
    };
    // Writing to a String cannot fail.
    let _ = writeln!(orders, "update {} {to}", keep_ref(run_id));
    if let Some(branch) = branch {
        let _ = writeln!(orders, "update {} {branch}", mark_ref(run_id));
    }
    git.update_refs("runner: iteration", &orders)
}

/// Takes note that a person has left a run.
pub(crate) fn leave(git: &Git, run_id: &str, tip: &str) -> Result<()> {
    git.update_refs("runner: abandon", &format!("update {LEFT}{run_id} {tip}\n"))
}

/// A person goes on with a run, or has landed it.
pub(crate) fn return_to(git: &Git, run_id: &str) -> Result<()> {
    let name = format!("{LEFT}{run_id}");
    if git.commit_of(&name)?.is_none() {
        return Ok(());
    }
    git.update_refs("runner: return", &format!("delete {name}\n"))
}

/// Whether a person has left a run, and nothing has gone on since.
pub(crate) fn is_left(git: &Git, run_id: &str) -> Result<bool> {
    let left = git.commit_of(&format!("{LEFT}{run_id}"))?;
    Ok(left.is_some() && git.commit_of(&run_ref(run_id))?.is_none())
}

/// Forgets everything about a run but its branch.
pub(crate) fn forget(git: &Git, run_id: &str) -> Result<()> {
    let orders = format!(
        "delete {}\ndelete {}\ndelete {}\n",
        run_ref(run_id),
        keep_ref(run_id),
        mark_ref(run_id)
    );
    git.update_refs("runner: end", &orders)
}
