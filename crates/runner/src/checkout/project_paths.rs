//! Where the project lies that a checkout was made of. None of it is for what runs in the checkout to
//! read: the config of git may hold logins, and the work trees have files that git ignores.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use crate::files;
use crate::fleet_repo::keys::work_tree_roots;

/// The longest file that says where a git folder is.
const MAX_LINK: u64 = 8 << 10;

/// Submodules may have submodules; so deep, and no deeper, their objects are looked for.
const MAX_DEPTH: usize = 6;

/// The folders of a project.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ProjectPaths {
    /// Its work trees and its git folder.
    folders: Vec<PathBuf>,
    /// The objects in it: checkouts borrow them.
    objects: Vec<PathBuf>,
}

impl ProjectPaths {
    /// The folders of repositories with these common git folders, and a work tree that git may not
    /// know.
    pub(crate) fn of(root: &Path, common_dirs: &[PathBuf]) -> Self {
        let mut found = ProjectPaths {
            folders: vec![root.to_owned()],
            objects: Vec::new(),
        };
        for common_dir in common_dirs {
            let roots = work_tree_roots(common_dir).into_iter();
            found
                .folders
                .extend(roots.filter(|root| leads_back(root, common_dir)));
            found.folders.push(common_dir.clone());
            found.objects.push(common_dir.join("objects"));
            objects_below(&common_dir.join("modules"), MAX_DEPTH, &mut found.objects);
        }
        found.folders.sort();
        found.folders.dedup();
        found
    }

    /// What is hidden. A home folder that lies in the project stays, and so does what was opened.
    pub(crate) fn hidden(&self, home: Option<&Path>, opened: &[PathBuf]) -> Vec<PathBuf> {
        let is_hidden = |folder: &&PathBuf| {
            home.is_none_or(|home| !home.starts_with(folder))
                && !opened.iter().any(|it| folder.starts_with(it))
        };
        self.folders.iter().filter(is_hidden).cloned().collect()
    }

    /// What can be read there all the same: objects, and what the environment names, such as the
    /// programs of an environment that somebody has activated; with a folder of programs comes what
    /// lies around it.
    pub(crate) fn in_sight(&self, env: &[(OsString, OsString)]) -> Vec<PathBuf> {
        let named = env.iter().flat_map(|(name, value)| {
            let paths = std::env::split_paths(value);
            paths.filter_map(move |path| {
                let around = self.folders.iter().filter(|it| path.starts_with(it));
                let around = around.max_by_key(|it| it.as_os_str().len())?;
                let first = path.strip_prefix(around).ok()?.components().next()?;
                let is_git = first.as_os_str() == ".git" || self.is_git_folder(around);
                let is_list = name == "PATH";
                (!is_git).then(|| {
                    if is_list {
                        around.join(first)
                    } else {
                        path.clone()
                    }
                })
            })
        });
        self.objects.iter().cloned().chain(named).collect()
    }

    fn is_git_folder(&self, folder: &Path) -> bool {
        self.objects.contains(&folder.join("objects"))
    }
}

/// Whether a work tree says that it is one of this repository: what git notes of it may be made up,
/// and would hide any folder.
fn leads_back(root: &Path, common_dir: &Path) -> bool {
    let own = root.join(".git");
    let Ok(common_dir) = common_dir.canonicalize() else {
        return false;
    };
    if let Ok(bytes) = files::read_regular(&own, MAX_LINK) {
        let named = bytes.trim_ascii_end().strip_prefix(b"gitdir: ");
        let named = named.map(|it| root.join(OsStr::from_bytes(it)).canonicalize());
        return matches!(named, Some(Ok(path)) if path.starts_with(common_dir));
    }
    own.canonicalize().is_ok_and(|own| own == common_dir)
}

/// The folders with objects of repositories below a folder.
fn objects_below(folder: &Path, depth: usize, found: &mut Vec<PathBuf>) {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let folders = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    for folder in folders.map(|entry| entry.path()) {
        let is_repository = folder.join("HEAD").is_file();
        if is_repository {
            found.push(folder.join("objects"));
        }
        let below = if is_repository {
            folder.join("modules")
        } else {
            folder
        };
        if depth > 0 {
            objects_below(&below, depth - 1, found);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn folders_of_a_project() {
        let temp = tempfile::tempdir().unwrap();
        let at = |path: &str| temp.path().canonicalize().unwrap().join(path);
        for folder in [
            "main/.git/objects",
            "main/.git/modules/libs/a/objects",
            "main/.git/modules/libs/a/modules/b/objects",
            "main/.git/worktrees/x",
            "main/.git/worktrees/y",
            "linked",
            "precious",
        ] {
            fs::create_dir_all(at(folder)).unwrap();
        }
        for name in ["libs/a", "libs/a/modules/b"] {
            fs::write(at("main/.git/modules").join(name).join("HEAD"), "").unwrap();
        }
        // One that leads back, and one that somebody made up.
        for (name, folder) in [("x", "linked"), ("y", "precious")] {
            let link = format!("{}/.git\n", at(folder).display());
            fs::write(at("main/.git/worktrees").join(name).join("gitdir"), link).unwrap();
        }
        let link = format!("gitdir: {}\n", at("main/.git/worktrees/x").display());
        fs::write(at("linked/.git"), link).unwrap();

        let found = ProjectPaths::of(&at("linked"), &[at("main/.git")]);
        assert_eq!(found.folders, ["linked", "main", "main/.git"].map(at));
        let mut objects = found.objects.clone();
        objects.sort();
        let expected = [
            "main/.git/modules/libs/a/modules/b/objects",
            "main/.git/modules/libs/a/objects",
            "main/.git/objects",
        ];
        assert_eq!(objects, expected.map(at));

        assert_eq!(found.hidden(None, &[]), found.folders);
        let home = at("main/home");
        assert_eq!(
            found.hidden(Some(&home), &[]),
            ["linked", "main/.git"].map(at)
        );
        assert_eq!(found.hidden(None, &[at("main")]), [at("linked")]);
        assert_eq!(found.hidden(None, &[at("main/.env")]), found.folders);

        let env = |name: &str, value: &str| (name.into(), at(value).into_os_string());
        for (name, value, expected) in [
            ("PATH", "main/.venv/bin", Some("main/.venv")),
            ("VIRTUAL_ENV", "main/.venv", Some("main/.venv")),
            (
                "PATH",
                "linked/node_modules/.bin",
                Some("linked/node_modules"),
            ),
            ("PATH", "main/.git/hooks", None),
            ("PATH", "main", None),
            ("X", "elsewhere", None),
        ] {
            let found = found.in_sight(&[env(name, value)]);
            let named: Vec<PathBuf> = found.into_iter().skip(3).collect();
            assert_eq!(
                named,
                expected.map(at).into_iter().collect::<Vec<_>>(),
                "{value}"
            );
        }
    }
}
