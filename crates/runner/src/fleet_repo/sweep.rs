//! The names of runs in folders and refs, and the removal of what nobody needs any more.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::time::Duration;

use runner_core::landing::run_of;
use runner_exec::Cancel;
use serde::{Deserialize, Serialize};

use super::{FleetRepo, OLD_TASK_RUNS, safe_name};
use crate::checkout::{LOCK, ORPHANS, beside};
use crate::error::Result;
use crate::files;

/// The largest file that says whose a checkout is.
const MAX_OWNER: u64 = 64 * 1024;

/// A run, and who owns it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct TaskRunName {
    /// The task.
    pub task: String,
    /// The attempt.
    pub run_id: String,
    /// The fencing token of its owner.
    pub token: u64,
}

impl TaskRunName {
    /// The name of its folder.
    pub(crate) fn folder(&self) -> String {
        format!("{}-{}", safe_name(&self.run_id), self.token)
    }

    /// The run of the loop that works on it.
    pub(crate) fn loop_run(&self) -> String {
        safe_name(&self.run_id)
    }

    /// Its part of the name of the ref that keeps its result.
    pub(crate) fn ref_part(&self) -> String {
        format!("{}/{}", safe_name(&self.task), self.folder())
    }

    /// The run that such a part names. Names that git could not have stay as they were made:
    /// they mean the same ref.
    fn of_ref(part: &str) -> Option<Self> {
        let (task, folder) = part.split_once('/')?;
        let (run_id, token) = folder.rsplit_once('-')?;
        Some(TaskRunName {
            task: task.to_owned(),
            run_id: run_id.to_owned(),
            token: token.parse().ok()?,
        })
    }

    /// The ref that keeps the loop's own branch.
    pub(crate) fn proof_ref(&self) -> String {
        format!(
            "refs/runner/{}/{}",
            safe_name(&self.task),
            safe_name(&self.run_id)
        )
    }
}

/// The token in the name of a folder or ref of a run.
pub(crate) fn token_of(name: &str, run_id: &str) -> Option<u64> {
    let rest = name.strip_prefix(&safe_name(run_id))?;
    rest.strip_prefix('-')?.parse().ok()
}

impl FleetRepo {
    /// The runs whose folders or refs are there, proof of merged ones left out. What is left
    /// of checks that were killed is removed on the way.
    pub fn leftover_runs(&self) -> Result<Vec<TaskRunName>> {
        let (private, old) = (self.private_home()?, self.old_home());
        private.sweep_checkouts(&Cancel::new()?, Duration::ZERO)?;
        // Where they were before they were private.
        old.sweep_checkouts(&Cancel::new()?, Duration::ZERO)?;
        let limit = self.config().unwrap_or_default().sandbox.cache_limit;
        private.caches().shrink(limit, false)?;
        let mut found = BTreeSet::new();
        let mut named = BTreeSet::new();
        for (home, kind) in [
            (&private, self.task_runs()),
            (&old, OLD_TASK_RUNS.to_owned()),
        ] {
            for name in home.names_in(&kind) {
                let path = beside(&home.checkout_folder(&kind, &name), LOCK);
                let owner = files::read_regular(&path, MAX_OWNER).unwrap_or_default();
                match serde_json::from_slice::<TaskRunName>(&owner) {
                    Ok(owner) if owner.folder() == name => {
                        named.insert(owner.ref_part());
                        found.insert(owner);
                    }
                    // Cut off before it had said whose it is: nobody's.
                    _ => {
                        home.remove_checkout((&kind, &name), &Cancel::new()?, Duration::ZERO)?;
                    }
                }
            }
        }
        for (part, _) in self.kept_refs()? {
            if !named.contains(&part) {
                found.extend(TaskRunName::of_ref(&part));
            }
        }
        Ok(found.into_iter().collect())
    }

    /// Removes the folders and refs of these runs, unless somebody is at work there. The
    /// proof of runs that were merged stays.
    pub fn sweep(&self, gone: &[TaskRunName], cancel: &Cancel) -> Result<()> {
        self.private_home()?.sweep_checkouts(cancel, ORPHANS)?;
        self.old_home().sweep_checkouts(cancel, ORPHANS)?;
        let kept = self.kept_refs()?;
        let parts: BTreeSet<String> = gone.iter().map(TaskRunName::ref_part).collect();
        let mut orders = String::new();
        for run in gone {
            if !self.remove_task_run(run, cancel)? {
                continue;
            }
            self.remove_places(run, cancel)?;
            let merge = self.merge_ref(&run.run_id);
            if let Some(commit) = self.git.commit_of(&merge)? {
                // Writing to a String cannot fail.
                let _ = writeln!(orders, "delete {merge} {commit}");
            }
            let Some(result) = kept.get(&run.ref_part()) else {
                continue;
            };
            let _ = writeln!(orders, "delete {}{} {result}", self.refs(), run.ref_part());
            // Another owner of the same run may need it.
            let shared = kept.keys().any(|part| {
                !parts.contains(part)
                    && TaskRunName::of_ref(part).is_some_and(|it| it.proof_ref() == run.proof_ref())
            });
            let proof = self.git.commit_of(&run.proof_ref())?;
            if let Some(tip) = proof.filter(|_| !shared)
                && !self.is_merged(result)?
            {
                let line = format!("delete {} {tip}\n", run.proof_ref());
                if !orders.contains(&line) {
                    orders.push_str(&line);
                }
            }
        }
        if orders.is_empty() {
            return Ok(());
        }
        let _lock = self.lock()?;
        self.git.update_refs("runner: sweep", &orders)
    }

    /// Removes the repository of a task run unless somebody is at work there. Whether it is gone.
    fn remove_task_run(&self, run: &TaskRunName, cancel: &Cancel) -> Result<bool> {
        let (name, kind) = (run.folder(), self.task_runs());
        let private = self.private_home()?;
        if !private.remove_checkout((&kind, &name), cancel, ORPHANS)? {
            return Ok(false);
        }
        let old = self.old_home();
        if !old.names_in(OLD_TASK_RUNS).contains(&name) {
            return Ok(true);
        }
        let is_gone = old.remove_checkout((OLD_TASK_RUNS, &name), cancel, ORPHANS)?;
        // Nothing is put there any more; one that is not empty stays.
        let _ = std::fs::remove_dir(self.fleet_folder().join(OLD_TASK_RUNS));
        Ok(is_gone)
    }

    /// The results that refs keep, by the part of the ref that names their run.
    fn kept_refs(&self) -> Result<BTreeMap<String, String>> {
        let prefix = self.refs();
        let format = "--format=%(objectname) %(refname)";
        let listed = self.git.line(&["for-each-ref", format, &prefix])?;
        let parts = listed.lines().filter_map(|line| {
            let (commit, name) = line.split_once(' ')?;
            Some((name.strip_prefix(&prefix)?.to_owned(), commit.to_owned()))
        });
        Ok(parts.collect())
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
        let name = TaskRunName {
            task: "a".to_owned(),
            run_id: "a-2".to_owned(),
            token: 7,
        };
        assert_eq!(name.folder(), "a-2-7");
        assert_eq!(name.ref_part(), "a/a-2-7");
        assert_eq!(name.proof_ref(), "refs/runner/a/a-2");
        assert_eq!(TaskRunName::of_ref("a/a-2-7").as_ref(), Some(&name));
        let odd = TaskRunName {
            task: "a..b".to_owned(),
            ..name
        };
        let back = TaskRunName::of_ref(&odd.ref_part()).unwrap();
        assert_ne!(back, odd);
        assert_eq!(back.ref_part(), odd.ref_part());
        assert_eq!(token_of("a-2-7", "a-2"), Some(7));
        assert_eq!(token_of("a-2-7", "a"), None);
        assert_eq!(token_of("a-2-7.lock", "a-2"), None);
        assert_eq!(token_of("a-22-7", "a-2"), None);
    }
}
