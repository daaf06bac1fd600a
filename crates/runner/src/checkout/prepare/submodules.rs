//! The files of submodules, from the project's own clones of them: nothing is fetched, and no
//! repository is left in the checkout.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Component, Path, PathBuf};

use runner_core::config::Config;

use super::FreshCheckout;
use crate::error::{Error, ErrorCode, Result};
use crate::files;
use crate::git::{FilterUse, Git, SUBMODULE, TreeEntry, split_nul};

/// Where git keeps the names and paths of submodules.
const MODULES_FILE: &str = ".gitmodules";

/// So many submodules may lie in each other.
const MAX_DEPTH: usize = 16;

/// Fills the submodules of a commit that was checked out in a folder, those that the project
/// itself has initialised. Their paths, from the root.
pub(crate) fn fill_submodules(
    project: &Git,
    config: &Config,
    fresh: FreshCheckout<'_>,
) -> Result<Vec<PathBuf>> {
    let mut filled = Vec::new();
    if config.workspace.submodules {
        let tree = SubmoduleTree {
            folder: fresh.folder,
            below: Path::new(""),
            depth: 0,
        };
        fill(project, fresh.git, fresh.commit, &tree, &mut filled)?;
    }
    Ok(filled)
}

/// A checkout, or a submodule in one, whose submodules are filled.
struct SubmoduleTree<'a> {
    /// The checkout.
    folder: &'a Path,
    /// From there.
    below: &'a Path,
    depth: usize,
}

fn fill(
    project: &Git,
    git: &Git,
    commit: &str,
    tree: &SubmoduleTree<'_>,
    filled: &mut Vec<PathBuf>,
) -> Result<()> {
    let (folder, below) = (tree.folder, tree.below);
    // A submodule without an entry there is one that nobody can have initialised.
    let listed = folder.join(below).join(MODULES_FILE);
    if !listed.symlink_metadata().is_ok_and(|meta| meta.is_file()) || tree.depth > MAX_DEPTH {
        return Ok(());
    }
    let entries = git.files_of(commit)?;
    let links: Vec<&TreeEntry> = entries.iter().filter(|it| it.mode == SUBMODULE).collect();
    if links.is_empty() {
        return Ok(());
    }
    let names = names_by_path(project, &listed)?;
    for link in links {
        let path = below.join(&link.path);
        let name = names.get(link.path.as_os_str().as_bytes());
        let Some(clone) = clone_of(project, &link.path, name.map(PathBuf::as_path)) else {
            continue;
        };
        let target = folder.join(&path);
        refuse_links(folder, &path)?;
        files::remove_if_there(&target)?;
        files::make_folder(&target)?;
        write_files(&clone, link, &target, &path)?;
        filled.push(path.clone());
        // What lies in it is known where the project has it checked out.
        if let Ok(inner) = Git::open(&project.root().join(&link.path)) {
            let tree = SubmoduleTree {
                folder,
                below: &path,
                depth: tree.depth + 1,
            };
            fill(&inner, &inner, &link.oid, &tree, filled)?;
        }
    }
    Ok(())
}

/// The names of submodules by their paths.
pub(super) fn names_by_path(project: &Git, listed: &Path) -> Result<BTreeMap<Vec<u8>, PathBuf>> {
    let args: [&OsStr; 7] = [
        "config".as_ref(),
        "--no-includes".as_ref(),
        "-z".as_ref(),
        "--file".as_ref(),
        listed.as_os_str(),
        "--get-regexp".as_ref(),
        r"^submodule\..*\.path$".as_ref(),
    ];
    let text = project.ask(&args)?.unwrap_or_default();
    let pairs = split_nul(&text).filter_map(|record| {
        let end = record.iter().position(|byte| *byte == b'\n')?;
        let key = record[..end].strip_prefix(b"submodule.")?;
        let name = key.strip_suffix(b".path")?;
        let path = record[end + 1..]
            .strip_suffix(b"/")
            .unwrap_or(&record[end + 1..]);
        Some((
            path.to_vec(),
            PathBuf::from(OsString::from_vec(name.to_vec())),
        ))
    });
    Ok(pairs.collect())
}

/// The git folder of the project's own clone of a submodule, if it has one.
pub(super) fn clone_of(project: &Git, path: &Path, name: Option<&Path>) -> Option<PathBuf> {
    // Git::open says where the `.git` of a checked out submodule leads.
    if let Ok(checked_out) = Git::open(&project.root().join(path)) {
        return is_git_folder(checked_out.git_dir()).then(|| checked_out.git_dir().to_owned());
    }
    let name = name?;
    // A name that leads elsewhere is not one that git would use.
    let is_plain = |part: Component<'_>| matches!(part, Component::Normal(_));
    if !name.components().all(is_plain) || name.as_os_str().is_empty() {
        return None;
    }
    let homes = [project.git_dir(), project.common_dir()];
    let mut clones = homes.iter().map(|home| home.join("modules").join(name));
    clones.find(|clone| is_git_folder(clone))
}

fn is_git_folder(folder: &Path) -> bool {
    folder.join("HEAD").is_file() && folder.join("objects").is_dir()
}

/// Refuses a path in a checkout that a link leads out of it.
fn refuse_links(folder: &Path, path: &Path) -> Result<()> {
    let mut at = folder.to_owned();
    for part in path.parent().into_iter().flat_map(Path::components) {
        at.push(part);
        if at.symlink_metadata().is_ok_and(|meta| !meta.is_dir()) {
            return Err(Error::new(
                ErrorCode::Layout,
                format!(
                    "cannot fill submodule {}: {} is not a folder",
                    path.display(),
                    at.display()
                ),
            ));
        }
    }
    Ok(())
}

/// Writes the files of a submodule's commit into an empty folder, in the way in which the commit
/// around it was checked out: every object compared with its name, no hook, no filter of the user's.
pub(super) fn write_files(
    clone: &Path,
    link: &TreeEntry,
    target: &Path,
    path: &Path,
) -> Result<()> {
    let git = open_clone(clone, target)?;
    if !has_commit(&git, &link.oid) {
        return Err(Error::new(
            ErrorCode::Git,
            format!(
                "cannot fill submodule {}: your clone of it does not have commit {}",
                path.display(),
                link.oid
            ),
        )
        .hint(format!(
            "run `git submodule update --init --recursive -- {}`, or set [workspace] submodules = false",
            path.display()
        )));
    }
    git.borrow_into(target, &link.oid, FilterUse::Off)
        .map_err(|error| Error {
            message: format!(
                "cannot fill submodule {}: {}",
                path.display(),
                error.message
            ),
            ..error
        })?;
    // A repository in a submodule would be one more that a session could plant settings in.
    Ok(files::remove_if_there(&target.join(".git"))?)
}

/// A clone, with a folder that has no repository of its own as its work tree.
pub(super) fn open_clone(clone: &Path, folder: &Path) -> Result<Git> {
    let own = folder.join(".git");
    // A clone is opened by the folder that leads to it.
    let text = [b"gitdir: ", clone.as_os_str().as_bytes()].concat();
    fs::write(&own, text).map_err(|error| files::at(&own, error))?;
    let git = Git::open(folder);
    files::remove_if_there(&own)?;
    git
}

/// Whether a clone has a commit. What a partial clone has left out is not fetched.
pub(super) fn has_commit(clone: &Git, commit: &str) -> bool {
    let spec = format!("{commit}^{{commit}}");
    let env = [("GIT_NO_LAZY_FETCH", OsStr::new("1"))];
    let asked = clone.write_with(&["cat-file", "-e", &spec], None, &env);
    asked.is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn repository(root: &Path, files: &[(&str, &str)]) -> Git {
        fs::create_dir_all(root).unwrap();
        Git::init(root).unwrap();
        let git = Git::open(root).unwrap();
        write(root, files);
        commit(&git);
        git
    }

    fn write(root: &Path, files: &[(&str, &str)]) {
        for (name, text) in files {
            let path = root.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
    }

    fn commit(git: &Git) -> String {
        git.write(&["add", "--all"]).unwrap();
        git.commit("x").unwrap();
        git.commit_of("HEAD").unwrap().unwrap()
    }

    /// A project with a submodule `libs/b`, and in it one `c`; and the commit.
    fn project(folder: &Path) -> (Git, String) {
        let inner = repository(&folder.join("c"), &[("c.txt", "inner")]);
        let middle = repository(
            &folder.join("b"),
            &[("b.txt", "one"), (".gitattributes", "*.txt filter=x\n")],
        );
        add_submodule(&middle, inner.root(), "c");
        commit(&middle);
        let git = repository(&folder.join("project"), &[("a.txt", "a")]);
        add_submodule(&git, middle.root(), "libs/b");
        let args = [
            "-c",
            "protocol.file.allow=always",
            "submodule",
            "update",
            "--init",
            "--recursive",
            "--quiet",
        ];
        git.write(&args).unwrap();
        let head = commit(&git);
        (git, head)
    }

    fn add_submodule(git: &Git, from: &Path, path: &str) {
        let url = from.to_str().unwrap();
        let args = [
            "-c",
            "protocol.file.allow=always",
            "submodule",
            "add",
            "--quiet",
            url,
            path,
        ];
        git.write(&args).unwrap();
    }

    fn fresh<'a>(git: &'a Git, commit: &'a str, folder: &'a Path) -> FreshCheckout<'a> {
        FreshCheckout {
            git,
            commit,
            folder,
        }
    }

    fn checkout(git: &Git, commit: &str, folder: &Path) {
        fs::create_dir(folder).unwrap();
        git.borrow_into(folder, commit, FilterUse::Off).unwrap();
    }

    #[test]
    fn files_of_the_recorded_commits_are_written_and_nothing_runs() {
        let folder = tempfile::tempdir().unwrap();
        let (git, head) = project(folder.path());
        let ran = folder.path().join("ran");
        let smudge = format!("sh -c 'touch {}; cat'", ran.display());
        let clone = Git::open(&git.root().join("libs/b")).unwrap();
        // The user is at another commit, and has changed something.
        write(clone.root(), &[("b.txt", "two"), ("d.txt", "new")]);
        commit(&clone);
        write(clone.root(), &[("b.txt", "three")]);
        clone
            .write(&["config", "filter.x.smudge", &smudge])
            .unwrap();
        clone
            .write(&["config", "filter.x.required", "true"])
            .unwrap();
        let to = folder.path().join("checkout");
        checkout(&git, &head, &to);
        let filled = fill_submodules(&git, &Config::default(), fresh(&git, &head, &to)).unwrap();
        assert_eq!(filled, ["libs/b", "libs/b/c"].map(PathBuf::from));
        assert_eq!(fs::read_to_string(to.join("libs/b/b.txt")).unwrap(), "one");
        assert_eq!(
            fs::read_to_string(to.join("libs/b/c/c.txt")).unwrap(),
            "inner"
        );
        assert!(!to.join("libs/b/d.txt").exists());
        assert!(!to.join("libs/b/.git").exists() && !to.join("libs/b/c/.git").exists());
        assert!(!ran.exists(), "no filter of the clone ran");
        assert_eq!(
            fs::read_to_string(clone.root().join("b.txt")).unwrap(),
            "three"
        );
        let status = Git::open(&to).unwrap().status().unwrap();
        assert!(status.is_clean(), "{status:?}");
        // Again, over what a guard left.
        write(&to, &[("libs/b/left", ""), ("libs/b/b.txt", "changed")]);
        fill_submodules(&git, &Config::default(), fresh(&git, &head, &to)).unwrap();
        assert!(!to.join("libs/b/left").exists());
        assert_eq!(fs::read_to_string(to.join("libs/b/b.txt")).unwrap(), "one");
    }

    #[test]
    fn a_clone_that_is_not_checked_out_does_and_none_is_fine() {
        let folder = tempfile::tempdir().unwrap();
        let (git, head) = project(folder.path());
        fs::remove_dir_all(git.root().join("libs/b")).unwrap();
        let to = folder.path().join("checkout");
        checkout(&git, &head, &to);
        let filled = fill_submodules(&git, &Config::default(), fresh(&git, &head, &to)).unwrap();
        assert_eq!(filled, [PathBuf::from("libs/b")]);
        fs::remove_dir_all(git.git_dir().join("modules")).unwrap();
        let again = folder.path().join("again");
        checkout(&git, &head, &again);
        let filled = fill_submodules(&git, &Config::default(), fresh(&git, &head, &again)).unwrap();
        assert_eq!(filled, [] as [PathBuf; 0]);
        let off = Config::parse("[workspace]\nsubmodules = false\n").unwrap();
        assert!(
            fill_submodules(&git, &off, fresh(&git, &head, &to))
                .unwrap()
                .is_empty()
        );
    }

    #[test]
    fn an_object_that_is_not_what_its_name_says_is_no_file() {
        let folder = tempfile::tempdir().unwrap();
        let (git, head) = project(folder.path());
        let clone = Git::open(&git.root().join("libs/b")).unwrap();
        let at = |spec: &str| {
            let id = clone.line(&["rev-parse", spec]).unwrap();
            clone
                .git_dir()
                .join("objects")
                .join(&id[..2])
                .join(&id[2..])
        };
        let (file, other) = (at("HEAD:b.txt"), at("HEAD:.gitattributes"));
        fs::remove_file(&file).unwrap();
        fs::copy(&other, &file).unwrap();
        let to = folder.path().join("checkout");
        checkout(&git, &head, &to);
        let error = fill_submodules(&git, &Config::default(), fresh(&git, &head, &to)).unwrap_err();
        assert!(
            error.message.contains("not what their names say"),
            "{error}"
        );
    }

    #[test]
    fn a_commit_that_the_clone_lacks_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let (git, _) = project(folder.path());
        let absent = "1".repeat(40);
        let info = format!("160000,{absent},libs/b");
        git.write(&["update-index", "--cacheinfo", &info]).unwrap();
        git.commit("moved").unwrap();
        let head = git.commit_of("HEAD").unwrap().unwrap();
        let to = folder.path().join("checkout");
        checkout(&git, &head, &to);
        let error = fill_submodules(&git, &Config::default(), fresh(&git, &head, &to)).unwrap_err();
        assert!(
            error
                .message
                .starts_with("cannot fill submodule libs/b: your clone"),
            "{error}"
        );
        assert!(error.hint.unwrap().contains("git submodule update --init"));
    }
}
