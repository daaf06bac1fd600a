//! What a session or a guard run left behind: looked at with distrust, put in
//! order, and written down as facts.

mod branch;
mod commits;
mod nested;
mod traps;

use std::collections::{BTreeSet, HashSet};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use runner_core::config::Config;
use runner_core::meta::{RunnerError, StepFacts};
use runner_core::paths::{self, GlobList};
use runner_core::text::escape_path;
use runner_core::tree;

use super::iteration::has_content;
use super::{Iteration, StepContext};
use crate::error::{Error, ErrorCode, Result};
use crate::files::{self, ReadError};
use crate::git::{Git, GitStatus, GitStatusEntry, PendingStatus};
use crate::notes;
use crate::step::file_image;
use crate::step::file_image::FileImage;
use crate::step::protected_files::{FileChange, ProtectedFiles};

/// More than this of assumptions or questions helps nobody, and too much of it
/// would keep the next prompt from being written.
const MAX_NOTES: u64 = 4 << 20;

/// What was found.
pub(crate) struct InspectFindings {
    /// The bytes of tree.json, if it is a readable file.
    pub(crate) tree: Option<Arc<Vec<u8>>>,
    /// Watched files that the session changed.
    pub(crate) watched: Vec<String>,
    /// Git's view after everything was put in order.
    pub(crate) status: GitStatus,
}

/// Who was at work.
#[derive(Clone, Copy, PartialEq, Eq)]
enum StepActor {
    Session,
    Guard,
}

/// What putting things in order brought to light.
struct CleanupFindings {
    /// Folders that were repositories of their own.
    nested: Vec<String>,
    /// Files that must not go into a commit.
    denied: Vec<String>,
    /// The branch had to be put back.
    branch: Option<RunnerError>,
    /// Everything that differs from the commit at which the iteration began.
    changed: BTreeSet<PathBuf>,
    status: GitStatus,
}

/// Looks at everything after the agent's session (or after a crash) and puts
/// back what must not change.
pub(crate) fn after_session(
    context: &mut StepContext<'_, '_>,
    it: &mut Iteration,
    config: &Config,
    protected: &ProtectedFiles<'_>,
    facts: &mut StepFacts,
) -> Result<InspectFindings> {
    let root = context.project.root();
    let base = it.started.head.clone();
    facts
        .owned_changed
        .extend(make_safe(context, it, protected)?);
    let tree_bytes = take_tree(root, it, facts)?;
    let order = put_in_order(context, it, config, protected, &base, StepActor::Session)?;
    facts.nested_repositories.extend_from_slice(&order.nested);
    facts.denied_files.extend_from_slice(&order.denied);
    if let Some(error) = &order.branch {
        facts.runner_error.get_or_insert_with(|| error.clone());
    }
    for change in restore_protected(context.git, it, protected, &order)? {
        let list = if change.protected {
            &mut facts.protected_changed
        } else {
            &mut facts.owned_changed
        };
        list.push(change.name());
    }
    grow_notes(it, root, protected)?;
    facts.changed_outside = order
        .changed
        .iter()
        .any(|path| !paths::is_state_path(path.as_os_str().as_bytes()));
    let watched = GlobList::new(&config.guard.watched)
        .map_err(|error| Error::new(ErrorCode::Config, format!("[guard] watched: {error}")))?;
    let watched = order
        .changed
        .iter()
        .filter(|path| watched.is_match(path.as_os_str().as_bytes()))
        .map(|path| name(path))
        .collect();
    Ok(InspectFindings {
        tree: tree_bytes,
        watched,
        status: order.status,
    })
}

/// Looks again after the guard, which ran the agent's code: whatever it changed
/// of what must stay makes its word worthless.
pub(crate) fn after_guard(
    context: &mut StepContext<'_, '_>,
    it: &mut Iteration,
    config: &Config,
    protected: &ProtectedFiles<'_>,
    tree_before_guard: Option<&[u8]>,
    status_before: &GitStatus,
    facts: &mut StepFacts,
) -> Result<()> {
    let root = context.project.root();
    let base = it.parent.clone();
    let git_files = make_safe(context, it, protected)?;
    facts.changed_by_guard.extend(git_files);
    let order = put_in_order(context, it, config, protected, &base, StepActor::Guard)?;
    if let Some(error) = &order.branch {
        facts.runner_error.get_or_insert_with(|| error.clone());
    }
    // No fault of the session: many a guard makes an .env or a repository to
    // test with. It is only not committed.
    for (list, what) in [
        (&order.denied, "must not go into a commit"),
        (&order.nested, "is a git repository of its own"),
    ] {
        if !list.is_empty() {
            it.notes.push(format!(
                "the guard left what {what}, and it was taken away ({}): add it to .gitignore",
                list.join(", ")
            ));
        }
    }
    for change in restore_protected(context.git, it, protected, &order)? {
        facts.changed_by_guard.push(change.name());
    }
    let tree_path = root.join(paths::TREE);
    let unchanged = match tree_before_guard {
        Some(bytes) => has_content(&tree_path, bytes),
        None => tree_path.symlink_metadata().is_err(),
    };
    if !unchanged {
        facts.changed_by_guard.push(paths::TREE.to_owned());
        put_tree(root, tree_before_guard, &it.quarantine())?;
    }
    grow_notes(it, root, protected)?;
    let before: HashSet<&Path> = untracked(status_before).collect();
    let local = |path: &&Path| !paths::is_local_only(path.as_os_str().as_bytes());
    it.guard_untracked = untracked(&order.status)
        .filter(|path| !before.contains(path) && root.join(path).symlink_metadata().is_ok())
        .filter(local)
        .map(name)
        .collect();
    Ok(())
}

fn untracked(status: &GitStatus) -> impl Iterator<Item = &Path> {
    let entries = status.entries.iter().filter(|entry| entry.untracked);
    entries.map(|entry| entry.path.as_path())
}

/// Plain file I/O comes first: no git call is safe before git's own files are
/// what they were. Returns which of them were not.
fn make_safe(
    context: &StepContext<'_, '_>,
    it: &mut Iteration,
    protected: &ProtectedFiles<'_>,
) -> Result<Vec<String>> {
    let root = context.project.root();
    let mut git_files = it.restore_git_files(context.project)?;
    it.repair_logs(context.project)?;
    let quarantine = it.quarantine();
    traps::make_state_folders(root, &quarantine)?;
    traps::remove(root, protected, &quarantine)?;
    let rules = protected.restore_rules(root, &quarantine)?;
    git_files.extend(rules.iter().map(FileChange::name));
    context.git.remove_stale_locks(&it.started.branch);
    Ok(git_files)
}

/// What git can put in order, once it is safe to call. `base`: the commit that
/// the branch must still contain.
fn put_in_order(
    context: &StepContext<'_, '_>,
    it: &mut Iteration,
    config: &Config,
    protected: &ProtectedFiles<'_>,
    base: &str,
    who: StepActor,
) -> Result<CleanupFindings> {
    let (root, git) = (context.project.root(), context.git);
    let quarantine = it.quarantine();
    let asked = ask_status(git, it)?;
    let deny = commits::CommitRules::new(config, protected)?;
    let mut status = status_of(git, it, asked)?;
    let mut nested = nested::take(root, protected, &mut status, git, &quarantine)?;
    traps::make_addable(root, &status, &quarantine)?;
    let found: BTreeSet<PathBuf> = untracked(&status).map(Path::to_owned).collect();
    let mut denied = deny.take(root, &found, &quarantine)?;

    let branch = branch::put_back(git, it, base, who, &mut status)?;
    if repair_index(git, it, protected, &mut nested)? {
        status = git.status()?;
        nested.extend(nested::take(
            root,
            protected,
            &mut status,
            git,
            &quarantine,
        )?);
        nested.sort();
        nested.dedup();
        traps::make_addable(root, &status, &quarantine)?;
    }
    let mut changed: BTreeSet<PathBuf> = status
        .entries
        .iter()
        .map(|entry| entry.path.clone())
        .collect();
    let head = status.head.clone().unwrap_or_default();
    if head != it.started.head {
        changed.extend(git.changed_between(&it.started.head, &head)?);
    }
    forget_local_only(git, &changed)?;
    denied.extend(deny.take(root, &changed, &quarantine)?);
    it.parent.clone_from(&head);
    if head != base {
        let in_commits = deny.in_commits(git, base, &head, &quarantine)?;
        if !in_commits.is_empty() || !denied.is_empty() {
            branch::fold_commits(git, it, base, who)?;
        }
        denied.extend(in_commits);
    }
    denied.sort();
    denied.dedup();
    Ok(CleanupFindings {
        nested,
        denied,
        branch,
        changed,
        status,
    })
}

/// Lets git begin to look.
fn ask_status(git: &Git, it: &mut Iteration) -> Result<PendingStatus> {
    // Git itself does not look at the checksum, and takes a torn index for a
    // strange one.
    let same = it.index_signature.is_some() && it.index_signature == git.index_signature();
    if !same && !git.index_is_whole(it.started.head.len()) {
        build_index_anew(git, it)?;
    }
    git.ask_status()
}

/// Git's view; what keeps git from looking is cleared away.
fn status_of(git: &Git, it: &mut Iteration, asked: PendingStatus) -> Result<GitStatus> {
    use crate::git::StallOutcome;
    match asked.answer_unless_stalled() {
        Ok(StallOutcome::Ended(status)) => Ok(status),
        Ok(StallOutcome::Stalled | StallOutcome::Blind) => {
            traps::clear_the_way(git.root(), &it.quarantine())?;
            git.status()
        }
        Err(error) if error.message.contains("index") => {
            build_index_anew(git, it)?;
            git.status()
        }
        Err(error) => Err(error),
    }
}

/// The index of what is checked out.
fn build_index_anew(git: &Git, it: &mut Iteration) -> Result<()> {
    let index = Path::new("index");
    if git.git_dir().join(index).symlink_metadata().is_ok() {
        file_image::move_to(git.git_dir(), index, &it.quarantine().join("git"))?;
    }
    branch::check_there(git, &it.started.head)?;
    let here = git.commit_of("HEAD")?;
    git.write(&["read-tree", here.as_deref().unwrap_or(&it.started.head)])?;
    it.notes
        .push("git's index was broken or gone; it was built anew".to_owned());
    Ok(())
}

/// Flags that hide changes from git, and entries that make a folder somebody
/// else's business, are taken out of the index again. Whether there were any.
fn repair_index(
    git: &Git,
    it: &mut Iteration,
    protected: &ProtectedFiles<'_>,
    nested: &mut Vec<String>,
) -> Result<bool> {
    let signature = git.index_signature();
    if it.index_signature.is_some() && it.index_signature == signature {
        return Ok(false);
    }
    let sparse = git.is_sparse();
    let (mut hidden, mut gone, mut foreign) = (Vec::new(), Vec::new(), Vec::new());
    let push = |list: &mut Vec<u8>, path: &Path| {
        list.extend_from_slice(path.as_os_str().as_bytes());
        list.push(0);
    };
    let known: HashSet<&Path> = protected.submodules().collect();
    for entry in git.index_entries()? {
        if entry.mode == crate::git::SUBMODULE && !known.contains(entry.path.as_path()) {
            push(&mut foreign, &entry.path);
            let name = name(&entry.path);
            if !nested.contains(&name) {
                nested.push(name);
            }
        } else if entry.assumed || (entry.skipped && !sparse) {
            push(&mut hidden, &entry.path);
            let absent = git.root().join(&entry.path).symlink_metadata().is_err();
            if entry.skipped && absent {
                push(&mut gone, &entry.path);
            }
        }
    }
    if !foreign.is_empty() {
        let args = ["update-index", "--force-remove", "-z", "--stdin"];
        git.write_with(&args, Some(&foreign), &[])?;
    }
    if !hidden.is_empty() {
        for flag in ["--no-assume-unchanged", "--no-skip-worktree"] {
            git.write_with(&["update-index", flag, "-z", "--stdin"], Some(&hidden), &[])?;
        }
        it.notes
            .push("flags that hide changes from git were removed from the index".to_owned());
    }
    if !gone.is_empty() {
        // Not deleted but only not checked out (`git sparse-checkout`).
        git.write_with(&["checkout-index", "-z", "--stdin"], Some(&gone), &[])?;
    }
    it.index_signature = git.index_signature();
    Ok(!foreign.is_empty() || !hidden.is_empty())
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
            "-f",
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
fn take_tree(root: &Path, it: &Iteration, facts: &mut StepFacts) -> Result<Option<Arc<Vec<u8>>>> {
    let path = root.join(paths::TREE);
    // The usual case, and a large tree need not be held twice.
    let same = it.before.shared().filter(|bytes| has_content(&path, bytes));
    match same.map_or_else(|| read_tree(root).map(Arc::new), Ok) {
        Ok(bytes) => {
            if path.metadata()?.permissions().mode() & 0o111 != 0 {
                std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644))?;
            }
            Ok(Some(bytes))
        }
        Err(ReadError::Absent) if it.before.bytes().is_none() => Ok(None),
        Err(error) => {
            facts.tree_unusable = Some(error.to_string());
            if root.join(paths::TREE).symlink_metadata().is_ok() {
                file_image::move_to(root, Path::new(paths::TREE), &it.quarantine())?;
            }
            Ok(None)
        }
    }
}

/// Makes tree.json these bytes (or nothing).
fn put_tree(root: &Path, bytes: Option<&[u8]>, quarantine: &Path) -> Result<()> {
    let image = match bytes {
        Some(bytes) => FileImage::File {
            bytes: bytes.to_vec(),
            executable: false,
        },
        None => FileImage::Absent,
    };
    Ok(image.restore(root, Path::new(paths::TREE), quarantine)?)
}

/// Puts back what must stay; what that was.
fn restore_protected(
    git: &Git,
    it: &Iteration,
    protected: &ProtectedFiles<'_>,
    order: &CleanupFindings,
) -> Result<Vec<FileChange>> {
    let changes = protected.changes(git, &order.changed, &order.status.ignored)?;
    let forbidden = protected.forbidden(git, &it.started.run_id, changes)?;
    protected.restore(git.root(), &forbidden, &it.quarantine())?;
    Ok(forbidden)
}

/// assumptions.md and questions.md only grow.
fn grow_notes(it: &mut Iteration, root: &Path, protected: &ProtectedFiles<'_>) -> Result<()> {
    for (path, before) in protected.notes() {
        let before = before.map(String::from_utf8_lossy);
        let now = if file_image::parents_are_folders(root, path) {
            files::read_regular(&root.join(path), MAX_NOTES)
        } else {
            Err(ReadError::Absent)
        };
        let regrown = match (&before, now) {
            (Some(before), Ok(bytes)) => {
                let Some(text) = notes::regrow(before, &String::from_utf8_lossy(&bytes)) else {
                    continue;
                };
                Some(text)
            }
            (None, Ok(_) | Err(ReadError::Absent)) => continue,
            (before, Err(error)) => {
                if !matches!(error, ReadError::Absent) {
                    it.notes.push(format!("{}: {error}", name(path)));
                }
                before.as_ref().map(ToString::to_string)
            }
        };
        let image = regrown.map_or(FileImage::Absent, |text| FileImage::File {
            bytes: text.into_bytes(),
            executable: false,
        });
        image.restore(root, path, &it.quarantine())?;
    }
    Ok(())
}

fn name(path: &Path) -> String {
    escape_path(path.as_os_str().as_bytes())
}

impl GitStatusEntry {
    /// The path for people.
    pub(crate) fn name(&self) -> String {
        name(&self.path)
    }
}
