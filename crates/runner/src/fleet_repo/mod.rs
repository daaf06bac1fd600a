//! What a fleet needs of git, guards and sessions, each piece by itself: a base that moves
//! by compare-and-set, a work tree for every run, results as commits, commands and
//! questions in checkouts of their own. It decides nothing about tasks.
//!
//! Every run and every check works in a repository of its own that borrows the project's
//! objects: a session there can move no branch, tag or stash of the project, and with a
//! sandbox not even reach them.

mod ask;
mod base;
mod inverted;
pub(crate) mod keys;
mod results;
mod room;
mod run;
mod sweep;
mod taken_back;

use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use runner_core::config::Config;
use runner_core::digest::sha256_hex;
use runner_core::goal::check_run_id;
use runner_core::paths;
use rustix::fs::{FlockOperation, flock};

use crate::checkout::{self, CheckoutHome, TASK_RUNS};
use crate::error::{Error, ErrorCode, Result};
use crate::files;
use crate::git::Git;
use crate::project::Project;
use crate::run::current;
use crate::state;
use crate::state::runs::{self, full_name};

pub use crate::checkout::check::{CommandEnd, CommandRun};
pub use ask::{SessionAnswer, SessionQuestion};
pub use base::{BaseAt, BranchUpdate};
pub use inverted::InvertedVerdict;
pub use keys::children_are_apart;
pub use results::{ResultChange, ResultChangeKind, ResultMerge, ResultMergeOutcome};
pub use run::{TaskRunOrder, TaskRunReport, TaskRunUsage};
pub use sweep::TaskRunName;

/// The folder below `.runner/fleet/` where earlier versions kept the repositories of task runs.
pub(crate) const OLD_TASK_RUNS: &str = "worktrees";

/// Components of refs and folders that mean something else already.
const RESERVED: &[&str] = &[
    "abandoned",
    "left",
    "branch",
    "displaced",
    "keep",
    "lost",
    "merge",
    "run",
    "seen",
];

/// A project whose results are merged into one base.
#[derive(Debug)]
pub struct FleetRepo {
    project: Project,
    pub(crate) git: Git,
    base: String,
}

impl FleetRepo {
    /// Opens the project that a folder belongs to. Without a name the base is the branch
    /// that is checked out there.
    pub fn open(root: &Path, base: Option<&str>) -> Result<Self> {
        let project = Project::of_work_tree(root)?;
        let git = Git::open(project.root())?;
        let base = match base {
            Some(name) => name.strip_prefix("refs/heads/").unwrap_or(name).to_owned(),
            None => checked_out(&git)?,
        };
        let full = full_name(&base);
        let valid = git.ask(&["check-ref-format", &full])?.is_some();
        if !valid || git.commit_of(&full)?.is_none() {
            return Err(Error::new(
                ErrorCode::NotFound,
                format!("there is no branch {base:?} with a commit to merge results into"),
            )
            .hint("commit something first, or name another branch in [fleet] base"));
        }
        files::make_local_folder(&project.root().join(paths::FLEET_DIR))?;
        Ok(FleetRepo { project, git, base })
    }

    /// The same again, with the root and the branch that the first opening gave.
    pub fn reopen(root: &Path, base: &str) -> Result<Self> {
        let project = Project::at(root.to_owned());
        let git = Git::open(project.root())?;
        let base = base.to_owned();
        Ok(FleetRepo { project, git, base })
    }

    /// The branch of the user's that everything is for.
    pub fn base_branch(&self) -> &str {
        &self.base
    }

    /// Refuses the branch of a run: what a fleet merges is no part of that run, and `land` would take
    /// it along.
    pub fn refuse_branch_of_run(&self) -> Result<()> {
        let full = full_name(&self.base);
        let Some(run_id) = current::run_of(Some(&full)) else {
            return Ok(());
        };
        let Some(begun) = runs::base_of(&self.git, &run_id, &full)? else {
            return Ok(());
        };
        let elsewhere = match begun.branch.as_str() {
            "HEAD" => "check out another branch".to_owned(),
            branch => format!("`git switch {branch}`"),
        };
        let message = format!(
            "cannot merge results into {}: it is the branch of run {run_id}",
            self.base
        );
        Err(Error::new(ErrorCode::Identity, message)
            .hint(format!("{elsewhere}, or name the branch in [fleet] base")))
    }

    /// The root of the project's work tree.
    pub fn root(&self) -> &Path {
        self.project.root()
    }

    /// The text of the config: the base's, or where that has none, the one that lies in
    /// the work tree, or the fleet's own, which no commit ever holds.
    pub fn config_text(&self) -> Result<String> {
        let text = match self.project_file(paths::CONFIG)? {
            None => self.project_file(paths::FLEET_CONFIG)?,
            text => text,
        };
        let text = text.ok_or_else(|| {
            Error::new(
                ErrorCode::Layout,
                format!("there is no {} for the fleet to go by", paths::CONFIG),
            )
            .hint("make one with `runner init`")
        })?;
        Ok(String::from_utf8_lossy(&text).into_owned())
    }

    /// What that text says.
    pub fn config(&self) -> Result<Config> {
        let text = self.config_text()?;
        state::check_config(&self.project, &text).map_err(|problems| state::into_error(&problems))
    }

    /// A file of `.runner/`, from the base or from the work tree.
    fn project_file(&self, path: &str) -> Result<Option<Vec<u8>>> {
        let full = full_name(&self.base);
        if let Some(bytes) = self.git.file_at(&full, path)? {
            return Ok(Some(bytes));
        }
        let path = self.project.root().join(path);
        Ok(files::read_regular(&path, state::MAX_TEXT).ok())
    }

    fn fleet_folder(&self) -> PathBuf {
        self.project.root().join(paths::FLEET_DIR)
    }

    /// Held for moments in which folders, refs or the user's base change hands, by
    /// whichever process.
    fn lock(&self) -> Result<File> {
        let file = checkout::open_lock(&self.lock_path())?;
        flock(&file, FlockOperation::LockExclusive).map_err(io::Error::from)?;
        Ok(file)
    }

    fn lock_path(&self) -> PathBuf {
        self.fleet_folder().join("yard.lock")
    }

    /// Where earlier versions kept the repositories of task runs: inside the project.
    fn old_home(&self) -> CheckoutHome {
        CheckoutHome::new(self.fleet_folder(), self.lock_path())
    }

    /// The kind of the repositories of this fleet's task runs, among the private folders.
    fn task_runs(&self) -> String {
        format!("{TASK_RUNS}{}", self.number())
    }

    /// The names of the folders of all task runs, those of earlier versions too.
    fn task_run_names(&self) -> Result<BTreeSet<String>> {
        let mut names = self.private_home()?.names_in(&self.task_runs());
        names.extend(self.old_home().names_in(OLD_TASK_RUNS));
        Ok(names)
    }

    /// Where task runs, checks and questions work.
    fn private_home(&self) -> Result<CheckoutHome> {
        CheckoutHome::of_project(&self.git, &self.config().unwrap_or_default())
    }

    /// Where the refs of this project's runs are.
    fn refs(&self) -> String {
        format!("refs/fleet/{}/", self.number())
    }

    /// The ref that keeps what merging the result of a run came to, until it is the base.
    fn merge_ref(&self, run_id: &str) -> String {
        format!("refs/runner/merge/{}/{}", self.number(), safe_name(run_id))
    }

    /// Tells the fleets of several work trees of one repository apart.
    fn number(&self) -> String {
        let root = self.project.root().as_os_str().as_encoded_bytes();
        sha256_hex(root)[..12].to_owned()
    }
}

fn checked_out(git: &Git) -> Result<String> {
    let head = git.head_ref()?;
    let name = head
        .as_deref()
        .and_then(|it| it.strip_prefix("refs/heads/"));
    name.map(str::to_owned).ok_or_else(|| {
        Error::new(
            ErrorCode::Git,
            "no branch is checked out, so there is none to merge into",
        )
        .hint("check one out, or name one in [fleet] base")
    })
}

/// The name as it is where git can have it in a ref and the loop as the id of a run, else
/// one that no other name is turned into.
fn safe_name(name: &str) -> String {
    if check_run_id(name).is_ok() && !RESERVED.contains(&name) {
        return name.to_owned();
    }
    let kept: String = name
        .chars()
        .filter(char::is_ascii_alphanumeric)
        .take(40)
        .collect();
    format!("{kept}_{}", &sha256_hex(name.as_bytes())[..12])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_for_refs_and_runs() {
        for (name, expected) in [
            ("a-1", "a-1"),
            ("fix.parser_2-13", "fix.parser_2-13"),
            ("a..b", "ab_"),
            (".hidden", "hidden_"),
            ("x.lock", "xlock_"),
            ("lost", "lost_"),
            ("abandoned", "abandoned_"),
        ] {
            let safe = safe_name(name);
            assert!(safe.starts_with(expected), "{safe}");
            assert!(check_run_id(&safe).is_ok(), "{safe}");
        }
        let long = format!("{}-1", "x".repeat(64));
        assert!(check_run_id(&safe_name(&long)).is_ok());
        assert_ne!(
            safe_name(&long),
            safe_name(&format!("{}-2", "x".repeat(64)))
        );
    }
}
