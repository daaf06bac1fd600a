//! The names of runs in folders and refs, and the removal of what nobody needs any more.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use runner_core::landing::run_of;
use runner_exec::Cancel;

use super::{CHECKOUTS, WORKTREES, Workshop, safe_name};
use crate::error::Result;

/// A run, and who owns it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RunName {
    /// The task.
    pub task: String,
    /// The attempt.
    pub run_id: String,
    /// The fencing token of its owner.
    pub token: u64,
}

impl RunName {
    /// The name of its folder.
    pub(super) fn folder(&self) -> String {
        format!("{}-{}", safe_name(&self.run_id), self.token)
    }

    /// Its part of the name of the ref that keeps its result.
    pub(super) fn ref_part(&self) -> String {
        format!("{}/{}", safe_name(&self.task), self.folder())
    }

    /// The ref that keeps the loop's own branch.
    pub(super) fn proof_ref(&self) -> String {
        proof_ref(&safe_name(&self.task), &safe_name(&self.run_id))
    }
}

fn proof_ref(task: &str, run: &str) -> String {
    format!("refs/runner/{task}/{run}")
}

/// The token in the name of a folder or ref of a run.
pub(super) fn token_of(name: &str, run_id: &str) -> Option<u64> {
    let rest = name.strip_prefix(&safe_name(run_id))?;
    rest.strip_prefix('-')?.parse().ok()
}

impl Workshop {
    /// Removes the folders and refs of all runs but these, of checks too, unless somebody is
    /// at work there. The proof of runs that were merged stays. What comes into being while
    /// this goes on is not looked at.
    pub fn sweep(&self, in_use: &[RunName], cancel: &Cancel) -> Result<()> {
        let used: BTreeSet<String> = in_use.iter().map(RunName::ref_part).collect();
        let used_folders: BTreeSet<String> = in_use.iter().map(RunName::folder).collect();
        let refs = self.git.line(&[
            "for-each-ref",
            "--format=%(refname) %(objectname)",
            &self.refs(),
        ])?;
        let worktrees = self.names_in(WORKTREES);
        let checkouts = self.names_in(CHECKOUTS);
        let mut busy = BTreeSet::new();
        for name in worktrees.difference(&used_folders) {
            if !self.remove_place(WORKTREES, name, cancel)? {
                busy.insert(name.clone());
            }
        }
        for name in &checkouts {
            self.remove_place(CHECKOUTS, name, cancel)?;
        }
        let mut orders = String::new();
        for line in refs.lines() {
            let Some((name, commit)) = line.split_once(' ') else {
                continue;
            };
            let part = name.strip_prefix(&self.refs()).unwrap_or(name);
            let Some((task, folder)) = part.split_once('/') else {
                continue;
            };
            if used.contains(part) || busy.contains(folder) {
                continue;
            }
            // Writing to a String cannot fail.
            let _ = writeln!(orders, "delete {name} {commit}");
            let run = folder.rsplit_once('-').map_or(folder, |(run, _)| run);
            let kept = in_use
                .iter()
                .any(|it| safe_name(&it.task) == task && safe_name(&it.run_id) == run);
            if !kept && !self.is_merged(commit)? {
                let proof = proof_ref(task, run);
                if let Some(tip) = self.git.commit_of(&proof)? {
                    let _ = writeln!(orders, "delete {proof} {tip}");
                }
            }
        }
        if orders.is_empty() {
            return Ok(());
        }
        self.git
            .write_with(&["update-ref", "--stdin"], Some(orders.as_bytes()), &[])
            .map(drop)
    }

    /// The runs, or checks, that have a folder or a lock.
    pub(super) fn names_in(&self, kind: &str) -> BTreeSet<String> {
        let entries = std::fs::read_dir(self.fleet_folder().join(kind));
        entries
            .into_iter()
            .flatten()
            .flatten()
            .filter_map(|entry| entry.file_name().into_string().ok())
            .map(|name| {
                let beside = name.strip_suffix(".lock");
                let beside = beside.or_else(|| name.strip_suffix(".session"));
                beside.map_or(name.clone(), str::to_owned)
            })
            .collect()
    }

    /// Whether it is gone.
    fn remove_place(&self, kind: &str, name: &str, cancel: &Cancel) -> Result<bool> {
        let Some(seat) = self.take_seat(&self.place(kind, name))? else {
            return Ok(false);
        };
        if !seat.is_quiet(cancel)? {
            return Ok(false);
        }
        self.clear(&seat)?;
        Ok(true)
    }

    /// Whether a commit of the base says that it merged the run of this result.
    fn is_merged(&self, result: &str) -> Result<bool> {
        let message = self.git.line(&["log", "-1", "--format=%B", result, "--"])?;
        let Some(run_id) = run_of(&message) else {
            return Ok(false);
        };
        let range = format!("{result}^..{}", self.base()?);
        let mark = format!("--grep=Runner-Run: {run_id}");
        let found = self.git.read(&[
            "log",
            "-z",
            "--format=%B",
            "--fixed-strings",
            &mark,
            &range,
            "--",
        ])?;
        Ok(crate::git::split_nul(&found)
            .any(|message| run_of(&String::from_utf8_lossy(message)) == Some(run_id)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        let name = RunName {
            task: "a".to_owned(),
            run_id: "a-2".to_owned(),
            token: 7,
        };
        assert_eq!(name.folder(), "a-2-7");
        assert_eq!(name.ref_part(), "a/a-2-7");
        assert_eq!(name.proof_ref(), "refs/runner/a/a-2");
        assert_eq!(token_of("a-2-7", "a-2"), Some(7));
        assert_eq!(token_of("a-2-7", "a"), None);
        assert_eq!(token_of("a-2-7.lock", "a-2"), None);
        assert_eq!(token_of("a-22-7", "a-2"), None);
    }
}
