//! The one protected file that a session may make: the one that defines the guard, where a run
//! began without it.

use std::collections::BTreeSet;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use runner_core::message;
use runner_core::meta::GuardResult;

use crate::base_trial::guard_file;
use crate::error::Result;
use crate::git::Git;

/// Of some protected files that changed, those that define the guard, where the run began with none
/// of its kind and no guard has passed with one. A session may have committed anything, also what
/// looks like the runner's own commits: those can only take away from this.
pub(super) fn open_files<'p>(
    git: &Git,
    (head, run_id): (&str, &str),
    command: &[String],
    changed: impl Iterator<Item = &'p Path>,
) -> Result<BTreeSet<&'p Path>> {
    let candidates = guard_file::candidates(command);
    let is_one = |path: &Path| {
        let bytes = path.as_os_str().as_bytes();
        candidates.iter().any(|it| it.as_bytes() == bytes)
    };
    let concerned: BTreeSet<&Path> = changed.filter(|path| is_one(path)).collect();
    if concerned.is_empty() {
        return Ok(concerned);
    }
    let args = ["log", "-z", "--format=%H %s", "--grep=^chore(loop): ", head];
    let log = git.read(&args)?;
    let log = String::from_utf8_lossy(&log);
    let (mut starts, mut greens) = (Vec::new(), Vec::new());
    let start_subject = message::start_subject(run_id);
    for (commit, subject) in log.split('\0').filter_map(|line| line.split_once(' ')) {
        if subject == start_subject {
            starts.push(commit);
        } else if message::parse_subject(subject)
            .is_some_and(|it| it.run_id == run_id && it.guard == GuardResult::Pass)
        {
            greens.push(commit);
        }
    }
    // A later start of the same run is no beginning: the oldest counts. Where it cannot be seen,
    // nothing is open.
    let Some(start) = starts.into_iter().last() else {
        return Ok(BTreeSet::new());
    };
    for commit in std::iter::once(start).chain(greens) {
        let files = git.files_of(commit)?;
        if files.iter().any(|entry| is_one(&entry.path)) {
            return Ok(BTreeSet::new());
        }
    }
    // One file, once: where an earlier session made one, it is that.
    let made = git.files_of(head)?;
    let made: Vec<&Path> = made
        .iter()
        .map(|entry| entry.path.as_path())
        .filter(|path| is_one(path))
        .collect();
    let mut open = concerned;
    if made.is_empty() {
        let usual = candidates.iter().rev().map(Path::new);
        let first = usual.into_iter().find(|path| open.contains(path));
        open.retain(|path| Some(*path) == first);
    } else {
        open.retain(|path| made.contains(path));
    }
    Ok(open)
}
