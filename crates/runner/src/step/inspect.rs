//! What a session or a guard run left behind: looked at with distrust, put in
//! order, and written down as facts.

mod commits;
mod compiled;
mod foreign;
mod long_paths;
mod nested;
mod special;
mod too_many;
mod traps;

use std::collections::BTreeSet;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use runner_core::config::Config;
use runner_core::meta::StepFacts;
use runner_core::paths::{self, GlobList};
use runner_core::text::escape_path;
use runner_core::tree;

use super::Iteration;
use super::iteration::has_content;
use super::replaced_packages;
use crate::checkout::workspace::RunWorkspace;
use crate::checkout::{prepare, quarantine};
use crate::error::{Error, ErrorCode, Result};
use crate::files::{self, ReadError};
use crate::git::{Git, GitStatus, GitStatusEntry, PendingStatus};
use crate::mounts;
use crate::notes;
use crate::step::file_image;
use crate::step::file_image::FileImage;
use crate::step::masked_sink::passed_values;
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
    /// What git ignores: files, and folders as a whole.
    pub(crate) ignored: Vec<PathBuf>,
}

/// A pipe, a socket or a device that was taken away: its path, and how it is called.
type SpecialFile = (PathBuf, String);

/// What putting things in order brought to light.
struct CleanupFindings {
    /// Folders that were repositories of their own.
    nested: Vec<String>,
    /// Files that must not go into a commit.
    denied: Vec<String>,
    /// Submodules in which something changed.
    submodules: Vec<String>,
    /// Files that git cannot take.
    not_committable: Vec<String>,
    /// Pipes and the like that were taken away, by path.
    special: Vec<SpecialFile>,
    /// Everything that differs from the commit at which the iteration began.
    changed: BTreeSet<PathBuf>,
    status: GitStatus,
}

/// Looks at everything after the agent's session (or after a crash), puts back what must not
/// change, and takes the rest into the index. `user`: the project whose clones of submodules count.
///
/// Where a session left what this user may not move, the workspace is made anew of what can be taken
/// back, and looked at once more.
pub(crate) fn after_session(
    workspace: &RunWorkspace,
    user: &Git,
    it: &mut Iteration,
    config: &Config,
    protected: &ProtectedFiles<'_>,
    facts: &mut StepFacts,
) -> Result<InspectFindings> {
    let root = workspace.path();
    let (facts_before, notes_before) = (facts.clone(), it.notes.len());
    workspace.checkout.tree.mend_index(protected.head())?;
    if root.symlink_metadata().is_ok_and(|meta| meta.is_dir())
        && mounts::take_away(root).is_empty()
        // What is decided is written there later.
        && !quarantine::holds_foreign(&root.join(".runner/state"))
    {
        let error = match look_through(workspace, user, it, config, protected, facts) {
            Ok(found) => return Ok(found),
            Err(error) => error,
        };
        if !quarantine::holds_foreign(root) {
            return Err(error);
        }
    }
    *facts = facts_before;
    it.notes.truncate(notes_before);
    foreign::take_back(&workspace.checkout.tree, protected, facts)?;
    look_through(workspace, user, it, config, protected, facts)
}

fn look_through(
    workspace: &RunWorkspace,
    user: &Git,
    it: &mut Iteration,
    config: &Config,
    protected: &ProtectedFiles<'_>,
    facts: &mut StepFacts,
) -> Result<InspectFindings> {
    let (root, tree) = (workspace.path(), &workspace.checkout.tree);
    let (rules, traps) = make_safe(root, it, protected)?;
    facts.owned_changed.extend(rules);
    let tree_bytes = take_tree(root, it, facts)?;
    let submodules =
        prepare::settle_submodules(&workspace.checkout, user, config, protected.links())?;
    let mut order = put_in_order(&tree.git, it, config, protected)?;
    compiled::take(root, it, protected, &mut order.changed)?;
    order.special.extend(traps);
    order.submodules.extend(submodules.undone);
    order.submodules.sort();
    order.submodules.dedup();
    facts.nested_repositories.extend_from_slice(&order.nested);
    let (forbidden, allowed) = restore_protected(&tree.git, it, config, protected, &order)?;
    let written = allowed.iter().filter(|change| {
        let path = root.join(&change.path);
        path.symlink_metadata().is_ok()
    });
    facts.guard_written.extend(written.map(FileChange::name));
    if forbidden.iter().any(|change| change.protected) {
        it.notes.push(ABOUT_PROTECTED.to_owned());
    }
    for change in forbidden {
        let list = if change.protected {
            &mut facts.protected_changed
        } else {
            &mut facts.owned_changed
        };
        list.push(change.name());
    }
    let quarantine = it.quarantine();
    let replaced =
        replaced_packages::restore(&tree.git, config, protected, &order.changed, &quarantine)?;
    facts.protected_changed.extend(replaced);
    grow_notes(it, root, protected, config)?;
    for path in prepare::included_files(&workspace.checkout) {
        order.changed.remove(&path);
    }
    commits::undo_special(tree, it, &mut order)?;
    commits::undo_grown(tree, it, config, &mut order)?;
    commits::take_submodule_list(tree, it, &mut order)?;
    commits::undo_attributes(tree, it, (config, protected, user.root()), &mut order)?;
    commits::take_collisions(root, it, protected, &mut order)?;
    commits::take(tree, it, &mut order)?;
    for moved in submodules.moved {
        tree.move_submodule(&moved.path, &moved.commit)?;
        order.changed.insert(moved.path);
    }
    facts.denied_files.append(&mut order.denied);
    facts.not_committable.append(&mut order.not_committable);
    facts.submodules_changed.append(&mut order.submodules);
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
        ignored: order.status.ignored,
    })
}

/// Plain file I/O comes first: what would trap git is taken away, and the rules that keep git out
/// of the logs are what they were. Returns which of those were not, and what was taken away.
fn make_safe(
    root: &Path,
    it: &Iteration,
    protected: &ProtectedFiles<'_>,
) -> Result<(Vec<String>, Vec<SpecialFile>)> {
    let quarantine = it.quarantine();
    traps::make_state_folders(root, &quarantine)?;
    let taken = traps::remove(root, protected, &quarantine)?;
    let rules = protected.restore_rules(root, &quarantine)?;
    let rules = rules.iter().map(FileChange::name).collect();
    Ok((rules, traps_taken(taken)))
}

/// Pipes in the place of git's rules, as they are told.
fn traps_taken(paths: Vec<PathBuf>) -> Vec<SpecialFile> {
    let outside = |path: &PathBuf| !paths::is_state_path(path.as_os_str().as_bytes());
    let taken = paths.into_iter().filter(outside);
    taken
        .map(|path| {
            let shown = format!("{} (a pipe or the like)", name(&path));
            (path, shown)
        })
        .collect()
}

/// What git can put in order.
fn put_in_order(
    git: &Git,
    it: &mut Iteration,
    config: &Config,
    protected: &ProtectedFiles<'_>,
) -> Result<CleanupFindings> {
    let root = git.root();
    let quarantine = it.quarantine();
    let asked = git.ask_status()?;
    let deny = commits::CommitRules::new(config, protected)?;
    let (mut status, was_blind, traps) = status_of(git, it, asked)?;
    let mut refused = long_paths::take(git, protected, &status, was_blind, &quarantine)?;
    refused.extend(too_many::take(root, protected, &status, &quarantine)?);
    if !refused.is_empty() {
        status = git.status()?;
    }
    if take_hidden_attributes(root, &status, &quarantine)? {
        status = git.status()?;
    }
    let mut nested = nested::take(root, protected, &mut status, git, &quarantine)?;
    nested.sort();
    nested.dedup();
    let mut special = special::take(git, protected, &status, &quarantine)?;
    special.extend(traps_taken(traps));
    traps::make_addable(root, &status, &quarantine)?;
    let mut changed: BTreeSet<PathBuf> = status
        .entries
        .iter()
        .map(|entry| entry.path.clone())
        .collect();
    let mut denied = deny.take(root, &changed, &quarantine)?;
    let mut submodules = Vec::new();
    for path in protected.submodules() {
        if changed.remove(path) {
            submodules.push(name(path));
        }
    }
    denied.sort();
    denied.dedup();
    Ok(CleanupFindings {
        nested,
        denied,
        submodules,
        not_committable: refused,
        special,
        changed,
        status,
    })
}

/// Attributes that are in no commit must not decide what is: those that git ignores are taken away.
/// Whether there were any.
fn take_hidden_attributes(root: &Path, status: &GitStatus, quarantine: &Path) -> Result<bool> {
    let is_one = |path: &&PathBuf| path.file_name().is_some_and(|it| it == ".gitattributes");
    let mut any = false;
    for path in status.ignored.iter().filter(is_one) {
        file_image::move_to(root, path, quarantine)?;
        any = true;
    }
    Ok(any)
}

/// Git's view; what keeps git from looking is cleared away. Also whether git could not look
/// everywhere at first, and what was in the way.
fn status_of(
    git: &Git,
    it: &Iteration,
    asked: PendingStatus,
) -> Result<(GitStatus, bool, Vec<PathBuf>)> {
    use crate::git::StallOutcome;
    let was_blind = match asked.answer_unless_stalled()? {
        StallOutcome::Ended(status) => return Ok((status, false, Vec::new())),
        StallOutcome::Blind => true,
        StallOutcome::Stalled => false,
    };
    let taken = traps::clear_the_way(git.root(), &it.quarantine())?;
    Ok((git.status()?, was_blind, taken))
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

/// What a person can do where a session was right to change a protected file.
const ABOUT_PROTECTED: &str = "if the work needs another version of a protected file, change it on the run's branch, \
     or take it off [guard] protected or protected_values (`runner edit config`)";

/// Puts back what must stay; what that was, and what may stay although it is protected.
fn restore_protected(
    git: &Git,
    it: &Iteration,
    config: &Config,
    protected: &ProtectedFiles<'_>,
    order: &CleanupFindings,
) -> Result<(Vec<FileChange>, Vec<FileChange>)> {
    let changes = protected.changes(git, &order.changed, &order.status.ignored)?;
    let command = &config.guard.command;
    let (forbidden, allowed) = protected.forbidden(git, &it.started.run_id, command, changes)?;
    protected.restore(git.root(), &forbidden, &it.quarantine())?;
    Ok((forbidden, allowed))
}

/// assumptions.md and questions.md only grow, and show no value that was passed through: they are
/// committed.
fn grow_notes(
    it: &mut Iteration,
    root: &Path,
    protected: &ProtectedFiles<'_>,
    config: &Config,
) -> Result<()> {
    let passed = passed_values(config);
    for (path, before) in protected.notes() {
        let before = before.map(String::from_utf8_lossy);
        let now = if file_image::parents_are_folders(root, path) {
            files::read_regular(&root.join(path), MAX_NOTES)
        } else {
            Err(ReadError::Absent)
        };
        let regrown = match (&before, now) {
            (before, Ok(bytes)) => {
                let before = before.as_deref().unwrap_or_default();
                let after = String::from_utf8_lossy(&bytes);
                let hide = |text: &str| passed.hide_in_text(text);
                let Some(text) = notes::kept(before, &after, hide) else {
                    continue;
                };
                Some(text)
            }
            (None, Err(ReadError::Absent)) => continue,
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
