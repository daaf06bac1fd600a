//! Submodules that a session let be at another commit. What it says is read as data, from a
//! repository in the submodule's folder; whether it counts is decided by the project's own clone.

use std::ffi::OsStr;
use std::path::{Component, Path, PathBuf};

use runner_core::config::Config;
use runner_core::paths::GlobList;
use runner_core::text::escape_path;

use super::prepared::{filled_submodules, restore_submodules};
use super::submodules::{clone_of, has_commit, names_by_path, open_clone, write_files};
use crate::checkout::{Checkout, MADE, beside};
use crate::error::Result;
use crate::files;
use crate::git::{Git, SUBMODULE, TreeEntry, object_name};
use crate::step::file_image::{self, FileImage};

/// The largest file of a session's repository that is read.
const MAX_BYTES: u64 = 1 << 20;

/// A submodule that is to be at another commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MovedSubmodule {
    /// From the root.
    pub(crate) path: PathBuf,
    pub(crate) commit: String,
}

/// What a session did to submodules.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SubmoduleFindings {
    /// Where it counts.
    pub(crate) moved: Vec<MovedSubmodule>,
    /// What was undone, as words for people.
    pub(crate) undone: Vec<String>,
}

/// Makes the submodules of a workspace what they were, and says which of them are to be at
/// another commit from now on. `links`: those of the commit.
pub(crate) fn settle_submodules<'l>(
    checkout: &Checkout,
    user: &Git,
    config: &Config,
    links: impl Iterator<Item = &'l TreeEntry>,
) -> Result<SubmoduleFindings> {
    let root = checkout.path();
    let filled = filled_submodules(checkout);
    let mut found = SubmoduleFindings::default();
    let mut refused: Vec<(&Path, String)> = Vec::new();
    for link in links {
        let Some(commit) = commit_of_session(root, &link.path).filter(|it| *it != link.oid) else {
            continue;
        };
        let moved = MovedSubmodule {
            path: link.path.clone(),
            commit,
        };
        match refusal(checkout, user, config, &moved)? {
            Some(why) => refused.push((&link.path, why)),
            None => found.moved.push(moved),
        }
        if !filled.contains(&link.path) {
            // There is nothing that it could be made again.
            file_image::remove_closed(&root.join(&link.path))?;
            files::make_folder(&root.join(&link.path))?;
        }
    }
    let is_below = |name: &str, path: &Path| Path::new(name).starts_with(path);
    found.undone = restore_submodules(checkout)?;
    let told = found.moved.iter().map(|moved| moved.path.as_path());
    let told: Vec<&Path> = told.chain(refused.iter().map(|(path, _)| *path)).collect();
    found
        .undone
        .retain(|name| !told.iter().any(|path| is_below(name, path)));
    for (path, why) in refused {
        let name = escape_path(path.as_os_str().as_encoded_bytes());
        found.undone.push(format!("{name} ({why})"));
    }
    Ok(found)
}

/// Whether a protected entry means a submodule, or something in it.
fn is_protected(config: &Config, path: &Path) -> bool {
    let Some(name) = path.to_str() else {
        return true;
    };
    let globs = GlobList::new(&config.guard.protected);
    globs.is_ok_and(|globs| {
        globs.is_match(name) || globs.leads_into(name) || globs.is_match(&format!("{name}/x"))
    })
}

/// Why a submodule may not be at that commit; `None`: it may.
fn refusal(
    checkout: &Checkout,
    user: &Git,
    config: &Config,
    moved: &MovedSubmodule,
) -> Result<Option<String>> {
    let MovedSubmodule { path, commit } = moved;
    if is_protected(config, path) {
        return Ok(Some("[guard] protected names it".to_owned()));
    }
    let may_move = config.workspace.submodules_may_move;
    // The names as the user has them, not as the session left them.
    let names = names_by_path(user, &user.root().join(".gitmodules")).unwrap_or_default();
    let name = names.get(path.as_os_str().as_encoded_bytes());
    let Some(clone) = clone_of(user, path, name.map(PathBuf::as_path)) else {
        let why = "your project has no clone of it that could tell what its remote has";
        return Ok((!may_move).then(|| why.to_owned()));
    };
    let scratch = beside(checkout.path(), MADE).join("moved");
    file_image::remove_closed(&scratch)?;
    files::make_folder(&scratch)?;
    let git = open_clone(&clone, &scratch)?;
    if !has_commit(&git, commit) {
        return Ok(Some(format!(
            "your clone of it does not have commit {commit}"
        )));
    }
    if !may_move && !is_on_remote(&git, commit)? {
        return Ok(Some(format!(
            "commit {commit} is on no branch of its remote, as far as your clone knows; \
             [workspace] submodules_may_move would allow it"
        )));
    }
    let link = TreeEntry {
        mode: SUBMODULE.to_owned(),
        oid: commit.clone(),
        path: path.clone(),
    };
    write_files(&clone, &link, &scratch, path)?;
    let inner: Vec<PathBuf> = git
        .files_of(commit)?
        .into_iter()
        .filter(|entry| entry.mode == SUBMODULE)
        .map(|entry| entry.path)
        .collect();
    // What cannot be read is not what it should be.
    let same = same_files(&checkout.path().join(path), &scratch, &inner).unwrap_or(false);
    file_image::remove_closed(&scratch)?;
    Ok((!same).then(|| format!("its files are not those of commit {commit}")))
}

/// Whether a branch of a remote has a commit, as far as a clone knows.
fn is_on_remote(clone: &Git, commit: &str) -> Result<bool> {
    let args = [
        "for-each-ref",
        "--count=1",
        "--contains",
        commit,
        "refs/remotes/",
    ];
    let env = [("GIT_NO_LAZY_FETCH", OsStr::new("1"))];
    Ok(!clone.write_with(&args, None, &env)?.is_empty())
}

/// Whether two folders have the same files, but for repositories and what lies in the submodules
/// of a submodule.
fn same_files(one: &Path, other: &Path, inner: &[PathBuf]) -> Result<bool> {
    let listed = |root: &Path| -> Result<Vec<PathBuf>> {
        let mut found = file_image::list(root, Path::new(""))?;
        found.retain(|path| {
            !path.starts_with(".git") && !inner.iter().any(|it| path.starts_with(it))
        });
        Ok(found)
    };
    let files = listed(one)?;
    if files != listed(other)? {
        return Ok(false);
    }
    for path in &files {
        if FileImage::of(one, path)? != FileImage::of(other, path)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The commit that a repository in a folder of the workspace has checked out, by plain files that
/// all lie in the workspace.
fn commit_of_session(root: &Path, folder: &Path) -> Option<String> {
    let own = folder.join(".git");
    let git_dir = match read(root, &own) {
        None => own,
        Some(text) => {
            let text = text.trim_ascii_end().strip_prefix(b"gitdir: ")?;
            plain_path(&folder.join(crate::git::to_path(text)))?
        }
    };
    let head = read(root, &git_dir.join("HEAD"))?;
    let Some(name) = head.trim_ascii_end().strip_prefix(b"ref: ") else {
        return object_name(&head);
    };
    let path = plain_path(&git_dir.join(crate::git::to_path(name)))?;
    if let Some(text) = read(root, &path) {
        return object_name(&text);
    }
    let packed = read(root, &git_dir.join("packed-refs"))?;
    packed.split(|byte| *byte == b'\n').find_map(|line| {
        let space = line.iter().position(|byte| *byte == b' ')?;
        (&line[space + 1..] == name).then(|| object_name(&line[..space]))?
    })
}

/// The content of a file, if no link leads to it.
fn read(root: &Path, path: &Path) -> Option<Vec<u8>> {
    file_image::parents_are_folders(root, path).then_some(())?;
    files::read_regular(&root.join(path), MAX_BYTES).ok()
}

/// A path from the root without `.` and `..`; `None`: it leads out.
fn plain_path(path: &Path) -> Option<PathBuf> {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::Normal(name) => plain.push(name),
            Component::CurDir => {}
            Component::ParentDir => plain.pop().then_some(())?,
            Component::RootDir | Component::Prefix(_) => return None,
        }
    }
    Some(plain)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn what_a_session_checked_out_is_read_from_the_workspace_alone() {
        let (one, two) = ("1".repeat(40), "2".repeat(40));
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("work");
        let write = |path: &str, text: &str| {
            let path = root.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("a/.git/HEAD", &format!("{one}\n"));
        write("b/.git/HEAD", "ref: refs/heads/main\n");
        write("b/.git/refs/heads/main", &format!("{two}\n"));
        write("libs/c/.git", "gitdir: ../../.git/modules/c\n");
        write(".git/modules/c/HEAD", "ref: refs/heads/x\n");
        write(
            ".git/modules/c/packed-refs",
            &format!("# pack\n{one} refs/heads/x\n"),
        );
        write("out/.git", "gitdir: ../../elsewhere\n");
        write("absolute/.git", "gitdir: /elsewhere\n");
        write("none/file", "");
        write("odd/.git/HEAD", "ref: ../../../elsewhere/HEAD\n");
        fs::create_dir(folder.path().join("elsewhere")).unwrap();
        fs::write(folder.path().join("elsewhere/HEAD"), &one).unwrap();
        fs::create_dir(root.join("link")).unwrap();
        symlink("../../elsewhere", root.join("link/.git")).unwrap();
        for (path, expected) in [
            ("a", Some(&one)),
            ("b", Some(&two)),
            ("libs/c", Some(&one)),
            ("out", None),
            ("absolute", None),
            ("none", None),
            ("odd", None),
            ("link", None),
        ] {
            let found = commit_of_session(&root, Path::new(path));
            assert_eq!(found.as_ref(), expected, "{path}");
        }
    }
}
