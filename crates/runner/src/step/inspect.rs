//! What a session or a guard run left behind: looked at with distrust, put in
//! order, and written down as facts.

use std::collections::BTreeSet;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use runner_core::config::Config;
use runner_core::journal::Record;
use runner_core::meta::{ErrorKind, Facts, RunnerError};
use runner_core::paths::{self, DenyList, GlobList};
use runner_core::text::escape_path;
use runner_core::tree;

use super::{Iteration, Workplace};
use crate::belongings::{Belongings, Change};
use crate::error::{Code, Error, Result};
use crate::files::{self, ReadError};
use crate::git::{self, Entry, Git, Status};
use crate::image::{self, Image};
use crate::notes;

/// What was found.
pub(crate) struct Found {
    /// The bytes of tree.json, if it is a readable file.
    pub(crate) tree: Option<Vec<u8>>,
    /// Watched files that the session changed.
    pub(crate) watched: Vec<String>,
    /// Git's view after everything was put in order.
    pub(crate) status: Status,
}

/// Looks at everything after the agent's session (or after a crash) and puts
/// back what must not change. Plain file I/O comes first: no git call is safe
/// before git's own files are what they were.
pub(crate) fn after_session(
    place: &mut Workplace<'_, '_>,
    it: &mut Iteration,
    config: &Config,
    belongings: &Belongings,
    facts: &mut Facts,
) -> Result<Found> {
    let quarantine = it.quarantine();
    let root = place.project.root();
    facts
        .owned_changed
        .extend(it.restore_git_files(place.project)?);
    make_state_folders(root, &quarantine)?;
    remove_traps(root, belongings, &quarantine)?;
    place.git.remove_stale_locks(&it.started.branch);

    let mut status = status_of(place.git, it)?;
    if let Some(error) = put_branch_back(place.git, it, &mut status)? {
        facts.runner_error.get_or_insert(error);
    }
    clear_new_flags(place.git, it)?;

    take_nested_repositories(root, belongings, &mut status, place.git, &quarantine, facts)?;
    let mut changed: BTreeSet<PathBuf> = status
        .entries
        .iter()
        .map(|entry| entry.path.clone())
        .collect();
    let head = status.head.clone().unwrap_or_default();
    if head != it.started.head {
        changed.extend(place.git.changed_between(&it.started.head, &head)?);
    }
    forget_local_only(place.git, &changed)?;

    let untracked: Vec<PathBuf> = changed.iter().cloned().collect();
    let tree_bytes = take_tree(root, it, facts)?;
    restore_belongings(place.git, it, root, belongings, &untracked, facts)?;
    grow_notes(it, root, belongings)?;
    take_denied_files(root, belongings, &changed, config, &quarantine, facts)?;
    if !facts.denied_files.is_empty() && head != it.started.head {
        drop_commits_with_secrets(place.git, it, facts)?;
    } else {
        it.parent = head;
    }

    facts.changed_outside = changed
        .iter()
        .any(|path| !paths::is_state_path(path.as_os_str().as_bytes()));
    let watched = GlobList::new(&config.guard.watched)
        .map_err(|error| Error::new(Code::Config, format!("[guard] watched: {error}")))?;
    let watched = changed
        .iter()
        .filter(|path| watched.is_match(path.as_os_str().as_bytes()))
        .map(|path| name(path))
        .collect();
    Ok(Found {
        tree: tree_bytes,
        watched,
        status,
    })
}

/// Looks again after the guard, which ran the agent's code: whatever it changed
/// of what must stay makes its word worthless.
pub(crate) fn after_guard(
    place: &mut Workplace<'_, '_>,
    it: &mut Iteration,
    belongings: &Belongings,
    tree_before: Option<&[u8]>,
    status_before: &Status,
    facts: &mut Facts,
) -> Result<()> {
    let root = place.project.root();
    let quarantine = it.quarantine();
    facts
        .changed_by_guard
        .extend(it.restore_git_files(place.project)?);
    make_state_folders(root, &quarantine)?;
    remove_traps(root, belongings, &quarantine)?;
    place.git.remove_stale_locks(&it.started.branch);
    let mut status = status_of(place.git, it)?;
    let head = it.parent.clone();
    if status.branch.as_deref() != Some(&it.started.branch) || status.head.as_deref() != Some(&head)
    {
        it.journal.promise(&Record::Rescuing)?;
        let lost = git::rescue(
            place.git,
            &it.started.run_id,
            it.started.iter,
            &it.started.branch,
            &head,
        )?;
        facts.runner_error.get_or_insert(RunnerError {
            kind: ErrorKind::Branch,
            message: format!(
                "the guard moved the branch {}; all is kept in {lost}",
                it.started.branch
            ),
        });
        status = place.git.status()?;
    }
    clear_new_flags(place.git, it)?;
    let new: Vec<PathBuf> = status
        .entries
        .iter()
        .filter(|entry| entry.untracked && !status_before.entries.contains(entry))
        .map(|entry| entry.path.clone())
        .collect();
    let changes = belongings.changes(root, &new)?;
    // What an unfilled protected entry gained in the session stays allowed.
    let changes = belongings.forbidden(place.git, &it.started.run_id, &it.started.head, changes)?;
    for change in &changes {
        facts.changed_by_guard.push(change.name());
        belongings.restore(root, change, &quarantine)?;
    }
    let now = read_tree(root);
    if now.as_ref().ok().map(Vec::as_slice) != tree_before {
        facts.changed_by_guard.push(paths::TREE.to_owned());
        put_tree(root, tree_before, &quarantine)?;
    }
    grow_notes(it, root, belongings)?;
    it.guard_untracked = new.iter().map(|path| name(path)).collect();
    Ok(())
}

/// `.runner/` and its folders must be folders, whatever a session made of them.
fn make_state_folders(root: &Path, quarantine: &Path) -> io::Result<()> {
    for folder in [".runner/state", paths::CONTEXT_DIR, paths::ITERATIONS_DIR] {
        image::make_parents(root, &Path::new(folder).join("x"), quarantine)?;
    }
    std::fs::create_dir_all(quarantine.parent().unwrap_or(quarantine))
}

/// Pipes in the place of files that git reads would make it wait for ever.
fn remove_traps(root: &Path, belongings: &Belongings, quarantine: &Path) -> io::Result<()> {
    let mut folders: BTreeSet<&Path> = BTreeSet::from([Path::new("")]);
    for entry in &belongings.tracked {
        folders.extend(entry.path.ancestors().skip(1));
    }
    for folder in folders {
        for file in [".gitignore", ".gitattributes", ".gitmodules", ".mailmap"] {
            let path = folder.join(file);
            let trap = root
                .join(&path)
                .symlink_metadata()
                .is_ok_and(|meta| !meta.is_file() && !meta.is_dir() && !meta.is_symlink());
            if trap {
                image::move_to(root, &path, quarantine)?;
            }
        }
    }
    Ok(())
}

/// Git's view; an index that a session broke is built anew from HEAD.
fn status_of(git: &Git, it: &mut Iteration) -> Result<Status> {
    match git.status() {
        Err(error) if error.message.contains("index file") => {
            let index = git.git_dir().join("index");
            std::fs::create_dir_all(it.quarantine())?;
            let _ = std::fs::rename(&index, it.quarantine().join("index"));
            git.write(&["read-tree", &it.started.head])?;
            it.notes
                .push("the session broke git's index; it was built anew".to_owned());
            git.status()
        }
        other => other,
    }
}

/// The run's branch must still be checked out and contain the recorded HEAD.
fn put_branch_back(
    git: &Git,
    it: &mut Iteration,
    status: &mut Status,
) -> Result<Option<RunnerError>> {
    let (branch, head) = (it.started.branch.clone(), it.started.head.clone());
    let full = format!("refs/heads/{branch}");
    if status.branch.as_deref() != Some(&branch) {
        let tip = git.commit_of(&full)?;
        let detached_at_tip =
            status.branch.is_none() && status.head.is_some() && status.head == tip;
        if detached_at_tip {
            git.write(&["symbolic-ref", "HEAD", &full])?;
            it.notes
                .push("HEAD was detached at the branch's tip; it is attached again".to_owned());
            status.branch = Some(branch.clone());
        }
    }
    let on_branch = status.branch.as_deref() == Some(&branch);
    let kept = match &status.head {
        Some(now) if *now == head => true,
        Some(now) => git.is_ancestor(&head, now)?,
        None => false,
    };
    if on_branch && kept {
        return Ok(None);
    }
    it.journal.promise(&Record::Rescuing)?;
    let lost = git::rescue(git, &it.started.run_id, it.started.iter, &branch, &head)?;
    *status = git.status()?;
    let what = if on_branch {
        "was reset or rewritten"
    } else {
        "was left"
    };
    Ok(Some(RunnerError {
        kind: ErrorKind::Branch,
        message: format!("the branch {branch} {what} during the session; all is kept in {lost}"),
    }))
}

/// Flags in the index (`assume-unchanged`, `skip-worktree`) hide changes from
/// git: those that a session set are taken away again.
fn clear_new_flags(git: &Git, it: &mut Iteration) -> Result<()> {
    let signature = git.index_signature();
    if it.index_signature.is_some() && it.index_signature == signature {
        return Ok(());
    }
    it.index_signature = signature;
    let listing = git.read(&["ls-files", "-v", "-z"])?;
    let sparse = git.git_dir().join("info/sparse-checkout").exists();
    let mut hidden = Vec::new();
    for record in git::split_nul(&listing) {
        let (Some(tag), Some(path)) = (record.first(), record.get(2..)) else {
            continue;
        };
        let skipped = *tag == b'S' || *tag == b's';
        if (tag.is_ascii_lowercase() && !(skipped && sparse)) || (skipped && !sparse) {
            hidden.extend_from_slice(path);
            hidden.push(0);
        }
    }
    if hidden.is_empty() {
        return Ok(());
    }
    for flag in ["--no-assume-unchanged", "--no-skip-worktree"] {
        git.write_with(&["update-index", flag, "-z", "--stdin"], Some(&hidden), &[])?;
    }
    it.notes
        .push("flags that hide changes from git were removed from the index".to_owned());
    Ok(())
}

/// A nested repository's `.git` is taken away; its files stay.
fn take_nested_repositories(
    root: &Path,
    belongings: &Belongings,
    status: &mut Status,
    git: &Git,
    quarantine: &Path,
    facts: &mut Facts,
) -> Result<()> {
    let mut folders: BTreeSet<PathBuf> = BTreeSet::new();
    let submodules: BTreeSet<&Path> = belongings
        .tracked
        .iter()
        .filter(|entry| entry.mode == "160000")
        .map(|entry| entry.path.as_path())
        .collect();
    for entry in &belongings.tracked {
        folders.extend(entry.path.ancestors().skip(1).map(Path::to_owned));
    }
    loop {
        for entry in &status.entries {
            if entry.repository {
                folders.insert(entry.path.clone());
            }
            folders.extend(entry.path.ancestors().skip(1).map(Path::to_owned));
        }
        let mut found = false;
        for folder in &folders {
            if folder.as_os_str().is_empty() || submodules.contains(folder.as_path()) {
                continue;
            }
            let dot_git = folder.join(".git");
            if root.join(&dot_git).symlink_metadata().is_ok()
                && image::parents_are_folders(root, &dot_git)
            {
                image::move_to(root, &dot_git, quarantine)?;
                facts.nested_repositories.push(name(folder));
                found = true;
            }
        }
        if !found {
            return Ok(());
        }
        // Its files are visible now, and so may be repositories inside it.
        *status = git.status()?;
    }
}

/// Logs and context are local: a session may have put them into the index.
fn forget_local_only(git: &Git, changed: &BTreeSet<PathBuf>) -> Result<()> {
    let any = changed
        .iter()
        .any(|path| paths::is_local_only(path.as_os_str().as_bytes()));
    if any {
        git.write(&[
            "rm",
            "-r",
            "--quiet",
            "--cached",
            "--ignore-unmatch",
            "--",
            paths::ITERATIONS_DIR,
            paths::CONTEXT_DIR,
            paths::FLEET_DIR,
        ])?;
    }
    Ok(())
}

fn read_tree(root: &Path) -> Result<Vec<u8>, ReadError> {
    files::read_regular(&root.join(paths::TREE), tree::MAX_BYTES)
}

/// The tree as the agent left it. What is not a readable file is taken away:
/// a link must not lead a later session elsewhere.
fn take_tree(root: &Path, it: &Iteration, facts: &mut Facts) -> Result<Option<Vec<u8>>> {
    match read_tree(root) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(ReadError::Absent) if it.before.bytes().is_none() => Ok(None),
        Err(error) => {
            facts.tree_unusable = Some(error.to_string());
            if root.join(paths::TREE).symlink_metadata().is_ok() {
                image::move_to(root, Path::new(paths::TREE), &it.quarantine())?;
            }
            Ok(None)
        }
    }
}

/// Makes tree.json these bytes (or nothing).
fn put_tree(root: &Path, bytes: Option<&[u8]>, quarantine: &Path) -> Result<()> {
    let image = match bytes {
        Some(bytes) => Image::File {
            bytes: bytes.to_vec(),
            executable: false,
        },
        None => Image::Absent,
    };
    Ok(image.restore(root, Path::new(paths::TREE), quarantine)?)
}

fn restore_belongings(
    git: &Git,
    it: &Iteration,
    root: &Path,
    belongings: &Belongings,
    untracked: &[PathBuf],
    facts: &mut Facts,
) -> Result<()> {
    let changes = belongings.changes(root, untracked)?;
    let forbidden: Vec<Change> =
        belongings.forbidden(git, &it.started.run_id, &it.started.head, changes)?;
    for change in &forbidden {
        belongings.restore(root, change, &it.quarantine())?;
        let list = if change.protected {
            &mut facts.protected_changed
        } else {
            &mut facts.owned_changed
        };
        list.push(change.name());
    }
    Ok(())
}

/// assumptions.md and questions.md only grow.
fn grow_notes(it: &Iteration, root: &Path, belongings: &Belongings) -> Result<()> {
    for (path, before) in belongings.notes() {
        let before = String::from_utf8_lossy(before);
        let mended = match Image::of(root, path)? {
            Image::File { bytes, .. } => notes::regrow(&before, &String::from_utf8_lossy(&bytes)),
            _ => Some(before.into_owned()),
        };
        if let Some(text) = mended {
            let image = Image::File {
                bytes: text.into_bytes(),
                executable: false,
            };
            image.restore(root, path, &it.quarantine())?;
        }
    }
    Ok(())
}

/// New files that must not go into a commit.
fn take_denied_files(
    root: &Path,
    belongings: &Belongings,
    changed: &BTreeSet<PathBuf>,
    config: &Config,
    quarantine: &Path,
    facts: &mut Facts,
) -> Result<()> {
    let deny = DenyList::new(&config.commit.deny)
        .map_err(|error| Error::new(Code::Config, format!("[commit] deny: {error}")))?;
    let tracked: BTreeSet<&Path> = belongings
        .tracked
        .iter()
        .map(|entry| entry.path.as_path())
        .collect();
    for path in changed {
        let bytes = path.as_os_str().as_bytes();
        if tracked.contains(path.as_path()) || paths::is_state_path(bytes) {
            continue;
        }
        let Ok(meta) = root.join(path).symlink_metadata() else {
            continue;
        };
        let denied = if deny.denied_by(bytes).is_some() {
            Some(name(path))
        } else if meta.is_file() && meta.len() > config.commit.max_file_bytes {
            Some(format!("{} ({} bytes)", name(path), meta.len()))
        } else {
            None
        };
        if let Some(name) = denied {
            image::move_to(root, path, quarantine)?;
            facts.denied_files.push(name);
        }
    }
    Ok(())
}

/// Commits of the session that contain what must not be committed: the branch
/// goes back, the files stay and become part of the iteration's commit.
fn drop_commits_with_secrets(git: &Git, it: &mut Iteration, facts: &mut Facts) -> Result<()> {
    let full = format!("refs/heads/{}", it.started.branch);
    git.write(&["update-ref", &full, &it.started.head])?;
    it.parent = it.started.head.clone();
    it.notes.push(
        "the session had committed files that must not go into a commit: its commits were folded into this one"
            .to_owned(),
    );
    facts.changed_outside = true;
    Ok(())
}

fn name(path: &Path) -> String {
    escape_path(path.as_os_str().as_bytes())
}

impl Entry {
    /// The path for people.
    pub(crate) fn name(&self) -> String {
        name(&self.path)
    }
}
