//! The folders that hold private folders of projects: the usual ones, and every one that a config or
//! `XDG_STATE_HOME` has ever named. No child sees any of them, whichever of them its project uses:
//! the keys lie in the usual one, and the workspaces of other projects in theirs.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};

use super::root::{self, STATE_FOLDER};
use crate::error::Result;
use crate::files;
use crate::fleet_repo::keys::fleet_folders;
use crate::step::file_image;

/// The file that lists those which were named.
const REGISTRY: &str = "roots.json";

/// Names more that no child may look into, as a list like `PATH`: whoever starts the runner sets it,
/// and no config can.
pub const CLOSED_PATHS: &str = "RUNNER_CLOSED_PATHS";

/// The largest such file.
const MAX_REGISTRY: u64 = 1 << 20;

/// One that was named.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
struct NamedRoot {
    #[serde(with = "file_image::path_bytes")]
    path: PathBuf,
}

/// Where the runner's own folders are by the environment alone, the one that never moves first.
fn usual_roots(var: &dyn Fn(&str) -> Option<OsString>) -> Vec<PathBuf> {
    let folder = |name: &str, below: &str| {
        let path = PathBuf::from(var(name)?);
        path.is_absolute()
            .then(|| path.join(below).join(STATE_FOLDER))
    };
    let mut roots = Vec::new();
    roots.extend(folder("HOME", ".local/state"));
    roots.extend(folder("XDG_STATE_HOME", ""));
    roots
}

/// Remembers a root that is used, for the children of other projects and for those that begin with
/// another environment. That it could not be remembered stops nobody: the usual roots are known.
pub(super) fn remember(used: &Path) {
    let usual = usual_roots(&|name| std::env::var_os(name));
    let Some((home, moved)) = usual.split_first() else {
        return;
    };
    let named = moved.iter().map(PathBuf::as_path).chain([used]);
    let named: Vec<PathBuf> = named
        .map(|path| path.canonicalize().unwrap_or_else(|_| path.to_owned()))
        .filter(|path| path.is_dir() && !is_same(path, home))
        .collect();
    let registry = home.join(REGISTRY);
    let is_known = |known: &[PathBuf]| named.iter().all(|path| known.contains(path));
    if !is_known(&read(&registry)) {
        let _ = add(home, &registry, named);
    }
}

fn is_same(path: &Path, other: &Path) -> bool {
    other.canonicalize().is_ok_and(|other| other == path)
}

fn add(folder: &Path, registry: &Path, named: Vec<PathBuf>) -> Result<()> {
    files::make_folder(folder)?;
    // Runners of several projects begin together.
    let lock: File = super::open_lock(&registry.with_extension("lock"))?;
    flock(&lock, FlockOperation::LockExclusive).map_err(io::Error::from)?;
    let known = read(registry).into_iter().chain(named);
    let all: BTreeSet<NamedRoot> = known.map(|path| NamedRoot { path }).collect();
    // Paths as bytes: there is nothing that could fail.
    let text = serde_json::to_vec(&all).unwrap_or_default();
    Ok(files::write_whole_mode(registry, &text, 0o600)?)
}

/// Those that a registry lists; none where it is missing or broken.
fn read(registry: &Path) -> Vec<PathBuf> {
    let bytes = files::read_regular(registry, MAX_REGISTRY).unwrap_or_default();
    let named: Vec<NamedRoot> = serde_json::from_slice(&bytes).unwrap_or_default();
    let paths = named.into_iter().map(|named| named.path);
    paths.filter(|path| path.is_absolute()).collect()
}

/// What no child may look into, wherever it works: private folders of projects, keys, what belongs
/// to the fleets of all projects that are known, and what the caller of the runner names.
pub(crate) fn closed_to_children(used: Option<&Path>, project: &Path) -> Vec<PathBuf> {
    let roots = known_roots(used);
    let git_folders = roots.iter().flat_map(|it| root::known_git_folders(it));
    let git_folders: Vec<PathBuf> = git_folders.collect();
    let home = std::env::var_os("HOME").map(PathBuf::from);
    let temp = std::env::temp_dir();
    let kept = [Some(project), home.as_deref(), Some(&temp)];
    let kept: Vec<&Path> = kept.into_iter().flatten().collect();
    let mut closed = hidden_in(&roots, &kept);
    closed.extend(fleet_folders(&git_folders));
    let more = std::env::var_os(CLOSED_PATHS).unwrap_or_default();
    closed.extend(std::env::split_paths(&more).filter(|path| path.is_absolute()));
    closed
}

/// All roots that are known here, that of the caller first.
fn known_roots(used: Option<&Path>) -> Vec<PathBuf> {
    let usual = usual_roots(&|name| std::env::var_os(name));
    let listed = usual.first().map(|home| read(&home.join(REGISTRY)));
    let mut roots: Vec<PathBuf> = Vec::new();
    let all = used.map(Path::to_owned).into_iter().chain(usual);
    for root in all.chain(listed.unwrap_or_default()) {
        let root = root.canonicalize().unwrap_or(root);
        if !roots.contains(&root) {
            roots.push(root);
        }
    }
    roots
}

/// What no child may look into of all these roots. `kept`: folders that are not the runner's, which
/// somebody's root may lie around.
fn hidden_in(roots: &[PathBuf], kept: &[&Path]) -> Vec<PathBuf> {
    let mut hidden = Vec::new();
    for root in roots {
        if is_runners_own(root, kept) {
            hidden.push(root.clone());
        } else {
            hidden.extend(root::project_folders(root));
        }
    }
    hidden
}

/// Whether nothing in a root is anybody else's: one that a config names may be a folder of data with
/// private folders in it, and tests may read that data.
fn is_runners_own(root: &Path, kept: &[&Path]) -> bool {
    if kept.iter().any(|it| it.starts_with(root)) {
        return false;
    }
    if root.file_name() == Some(STATE_FOLDER.as_ref()) {
        return true;
    }
    let entries = std::fs::read_dir(root).into_iter().flatten().flatten();
    let mut names = entries.map(|entry| entry.file_name());
    names.all(|name| name.to_str().is_some_and(root::is_id))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn usual_roots_wherever_the_environment_puts_them() {
        for (home, state, expected) in [
            (Some("/h"), None, vec!["/h/.local/state/runner"]),
            (
                Some("/h"),
                Some("/s"),
                vec!["/h/.local/state/runner", "/s/runner"],
            ),
            (Some("/h"), Some("s"), vec!["/h/.local/state/runner"]),
            (None, Some("/s"), vec!["/s/runner"]),
            (None, None, vec![]),
        ] {
            let var = |name: &str| {
                let value = if name == "HOME" { home } else { state };
                value.map(OsString::from)
            };
            let found = usual_roots(&var);
            let expected: Vec<PathBuf> = expected.into_iter().map(PathBuf::from).collect();
            assert_eq!(found, expected, "{home:?} {state:?}");
        }
    }

    #[test]
    fn a_registry_keeps_what_was_added_and_a_broken_one_knows_nothing() {
        let temp = tempfile::tempdir().unwrap();
        let registry = temp.path().join(REGISTRY);
        assert!(read(&registry).is_empty());
        add(temp.path(), &registry, vec!["/a".into()]).unwrap();
        add(temp.path(), &registry, vec!["/b".into(), "/a".into()]).unwrap();
        assert_eq!(read(&registry), [Path::new("/a"), Path::new("/b")]);
        for broken in ["", "{", "[3]", "[{\"path\": {\"text\": \"relative\"}}]"] {
            fs::write(&registry, broken).unwrap();
            assert!(read(&registry).is_empty(), "{broken}");
        }
    }

    #[test]
    fn what_is_hidden_of_a_root_that_is_also_something_else() {
        let temp = tempfile::tempdir().unwrap();
        let root = temp.path().canonicalize().unwrap();
        let id = "0123456789abcdef0123456789abcdef";
        fs::create_dir(root.join(id)).unwrap();
        let roots = std::slice::from_ref(&root);
        assert_eq!(hidden_in(roots, &[]), roots);
        // A project or a home folder in it stays in sight.
        assert_eq!(hidden_in(roots, &[&root.join("p")]), [] as [&Path; 0]);
        let identity = format!("{{\"id\": \"{id}\", \"path\": {{\"text\": \"/p/.git\"}}}}");
        fs::write(root.join(id).join("project.json"), identity).unwrap();
        fs::create_dir(root.join("data")).unwrap();
        assert_eq!(hidden_in(roots, &[]), [root.join(id)]);
        let named = root.join("runner");
        fs::create_dir_all(named.join("data")).unwrap();
        assert_eq!(hidden_in(std::slice::from_ref(&named), &[]), [named]);
    }
}
