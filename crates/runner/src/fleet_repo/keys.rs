//! The keys of a fleet: where they lie, and who cannot reach what they open.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use runner_core::config::{ChildKind, Config, NetworkRule};
use runner_core::paths;

use super::FleetRepo;
use crate::checkout::make_real_folder;
use crate::checkout::root::WorkspaceRoot;
use crate::error::Result;
use crate::files;
use crate::step::containment::Containment;

/// How the folder of the keys of one fleet begins, among the private folders of its project.
const KEYS: &str = "keys-";

/// The longest file that says where a linked work tree is.
const MAX_LINK: u64 = 8 << 10;

impl FleetRepo {
    /// The folder with the keys of this fleet, made where there is none: outside the project, where
    /// nothing that runs in a checkout may look.
    pub fn key_folder(&self) -> Result<PathBuf> {
        let config = self.config().unwrap_or_default();
        let root = WorkspaceRoot::of(&self.git, &config)?;
        let folder = root.folder().join(format!("{KEYS}{}", self.number()));
        make_real_folder(&folder)?;
        let closed = std::fs::Permissions::from_mode(0o700);
        std::fs::set_permissions(&folder, closed).map_err(|error| files::at(&folder, error))?;
        Ok(folder)
    }
}

/// Whether nothing that sessions and guards of this config run reaches the loopback of this machine,
/// because they have one of their own.
pub fn children_are_apart(config: &Config) -> bool {
    let mut kinds = vec![ChildKind::Session, ChildKind::Guard];
    if !config.workspace.setup.is_empty() {
        // It runs what a candidate made.
        kinds.push(ChildKind::Setup);
    }
    let network = &config.sandbox.network;
    let is_apart = |kind: &ChildKind| *network.rule(*kind) != NetworkRule::Open;
    kinds.iter().all(is_apart) && Containment::choose(config).is_ok_and(|it| it.has_mounts())
}

/// The folders of fleets in the work trees of repositories, by their common git folders: ledgers,
/// notes and logs, which are no business of any child.
pub(crate) fn fleet_folders(common_dirs: &[PathBuf]) -> BTreeSet<PathBuf> {
    let roots = common_dirs.iter().flat_map(|it| work_tree_roots(it));
    let folders = roots.map(|root| root.join(paths::FLEET_DIR));
    folders
        .filter(|it| it.symlink_metadata().is_ok_and(|meta| meta.is_dir()))
        .collect()
}

/// The roots of all work trees, read without git: this is asked before each child.
pub(crate) fn work_tree_roots(common_dir: &Path) -> Vec<PathBuf> {
    let main = common_dir.parent().filter(|_| common_dir.ends_with(".git"));
    let linked = std::fs::read_dir(common_dir.join("worktrees"));
    let linked = linked.into_iter().flatten().flatten().filter_map(|entry| {
        let bytes = files::read_regular(&entry.path().join("gitdir"), MAX_LINK).ok()?;
        let path = Path::new(OsStr::from_bytes(bytes.trim_ascii_end()));
        // It may be relative to the folder that it lies in.
        Some(entry.path().join(path).parent()?.to_owned())
    });
    main.map(Path::to_owned).into_iter().chain(linked).collect()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn fleets_of_all_work_trees() {
        let temp = tempfile::tempdir().unwrap();
        let at = |path: &str| temp.path().join(path);
        for path in ["main/.runner/fleet", "linked/.runner/fleet", "none/.git"] {
            fs::create_dir_all(at(path)).unwrap();
        }
        for (name, gitdir) in [
            ("a", at("linked/.git").display().to_string()),
            ("b", "../../../../near/.git\n".to_owned()),
            ("c", String::new()),
        ] {
            let folder = at("main/.git/worktrees").join(name);
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join("gitdir"), format!("{gitdir}\n")).unwrap();
        }
        let found = fleet_folders(&[at("main/.git"), at("none/.git"), at("gone/.git")]);
        let expected = ["linked/.runner/fleet", "main/.runner/fleet"].map(at);
        assert_eq!(found.into_iter().collect::<Vec<_>>(), expected);
        fs::create_dir_all(at("near/.runner/fleet")).unwrap();
        assert_eq!(fleet_folders(&[at("main/.git")]).len(), 3);
    }
}
