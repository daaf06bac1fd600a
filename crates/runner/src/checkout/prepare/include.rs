//! Ignored files of the user's checkout, copied: `[workspace] include` and `.worktreeinclude`.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs::{self, Metadata, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

use runner_core::config::Config;
use runner_core::paths::{FolderGlobs, is_state_path};

use super::ignored_before::IgnoredBefore;
use super::pinned_path::{self, MAX_BYTES};
use super::start_rules::{PATTERN_FILE, StartRules};
use crate::error::{Error, ErrorCode, Result};
use crate::git::{Git, split_nul, to_path};
use crate::{fault, files};

/// Copies what the config and `.worktreeinclude` name of the files that git ignores in the
/// project's checkout. What is there already stays. The paths that were copied, from the root.
/// `has_mounts`: programs will see the folder at the project's own path.
pub(crate) fn copy_included(
    project: &Git,
    config: &Config,
    has_mounts: bool,
    to: &Path,
) -> Result<Vec<PathBuf>> {
    let named = included(project, config)?;
    if named.is_empty() {
        return Ok(Vec::new());
    }
    if !has_mounts {
        refuse_pinned(project.root(), &named)?;
    }
    let mut copy = FolderCopy {
        from: project.root(),
        to,
        folders: BTreeMap::new(),
    };
    let mut copied = Vec::new();
    for path in named {
        if copy.copy(&path)? {
            copied.push(path);
        }
    }
    Ok(copied)
}

/// The ignored files that are to be copied, sorted.
fn included(project: &Git, config: &Config) -> Result<BTreeSet<PathBuf>> {
    let mut found = BTreeSet::new();
    let before = IgnoredBefore::read(project);
    let globs = FolderGlobs::new(&config.workspace.include)
        .map_err(|error| Error::new(ErrorCode::Config, format!("[workspace] include: {error}")))?;
    let list = ["ls-files", "--others", "--ignored", "-z"].map(OsString::from);
    if !globs.is_empty() {
        let mut args = list.to_vec();
        args.push("--exclude-standard".into());
        let all = project.read(&args)?;
        let meant = split_nul(&all).filter(|path| globs.is_match(trimmed(path)));
        found.extend(meant.map(|path| to_path(trimmed(path))));
        let lost = before.files(project)?;
        let meant = split_nul(&lost).filter(|path| globs.is_match(trimmed(path)));
        found.extend(meant.map(|path| to_path(trimmed(path))));
    }
    let rules = StartRules::of(project)?;
    let patterns = rules.pattern_options(project)?;
    if !patterns.is_empty() {
        let mut args = list.to_vec();
        args.extend(patterns);
        let meant = project.read(&args)?;
        let asked = ["check-ignore", "-z", "--stdin"];
        let ignored = match meant.as_slice() {
            [] => None,
            meant => project.ask_with(&asked, meant)?,
        };
        found.extend(split_nul(&ignored.unwrap_or_default()).map(|path| to_path(trimmed(path))));
        let lost = split_nul(&meant).map(|path| to_path(trimmed(path)));
        found.extend(lost.filter(|path| before.has(path)));
    }
    let new = rules.ignored_since(project, &found)?;
    found.retain(|path| !new.contains(path) || before.has(path));
    found.retain(|path| {
        let is_gits = path.components().any(|part| part.as_os_str() == ".git");
        !is_gits && !is_state_path(path.as_os_str().as_bytes())
    });
    before.update(project, &found)?;
    Ok(found)
}

/// A repository of its own is listed as a folder.
fn trimmed(path: &[u8]) -> &[u8] {
    path.strip_suffix(b"/").unwrap_or(path)
}

/// Refuses files that would lead a program in the copy to the user's own checkout: the verdict
/// would be about other code.
fn refuse_pinned(root: &Path, named: &BTreeSet<PathBuf>) -> Result<()> {
    let mut folders = vec![root.to_owned()];
    folders.extend(root.canonicalize().ok().filter(|path| path != root));
    for path in named {
        if is_pinned(&root.join(path), &folders)? {
            let whole = path.iter().next().map_or(path.as_path(), Path::new);
            return Err(Error::new(
                ErrorCode::Config,
                format!(
                    "cannot copy {} into a checkout: {} names {}, so programs of the copy would use \
                     your own checkout",
                    whole.display(),
                    path.display(),
                    root.display()
                ),
            )
            .hint(format!(
                "let [workspace] setup make {} in each checkout, and take it out of [workspace] \
                 include and {PATTERN_FILE}",
                whole.display()
            )));
        }
    }
    Ok(())
}

fn is_pinned(path: &Path, folders: &[PathBuf]) -> Result<bool> {
    let Ok(meta) = path.symlink_metadata() else {
        return Ok(false);
    };
    if meta.is_symlink() {
        let to = fs::read_link(path).map_err(|error| files::at(path, error))?;
        return Ok(folders.iter().any(|folder| to.starts_with(folder)));
    }
    if meta.is_dir() {
        for entry in fs::read_dir(path).map_err(|error| files::at(path, error))? {
            let entry = entry?;
            if entry.file_name() != ".git" && is_pinned(&entry.path(), folders)? {
                return Ok(true);
            }
        }
        return Ok(false);
    }
    let is_executable = meta.permissions().mode() & 0o111 != 0;
    let Some(place) = pinned_path::place_in(path, is_executable).filter(|_| meta.is_file()) else {
        return Ok(false);
    };
    let mut bytes = Vec::new();
    let file = files::open_no_trap(path).map_err(|error| files::at(path, error))?;
    let most = match place {
        pinned_path::PinnedPlace::Text => MAX_BYTES,
        pinned_path::PinnedPlace::FirstLine => 1024,
    };
    file.take(most as u64)
        .read_to_end(&mut bytes)
        .map_err(|error| files::at(path, error))?;
    Ok(pinned_path::names_folder(place, &bytes, folders))
}

/// Files on their way from one folder into another.
struct FolderCopy<'a> {
    from: &'a Path,
    to: &'a Path,
    /// Folders of the target that were looked at: whether something can be put there.
    folders: BTreeMap<PathBuf, bool>,
}

impl FolderCopy<'_> {
    /// Copies a file, a link or a repository without its `.git`; whether there was anything to
    /// copy and nothing in its place.
    fn copy(&mut self, path: &Path) -> Result<bool> {
        let source = self.from.join(path);
        let meta = match source.symlink_metadata() {
            Ok(meta) => meta,
            Err(error) if files::is_absent(&error) => return Ok(false),
            Err(error) => return Err(files::at(&source, error).into()),
        };
        if meta.is_dir() {
            let mut copied = false;
            for entry in fs::read_dir(&source).map_err(|error| files::at(&source, error))? {
                let name = entry?.file_name();
                copied |= name != ".git" && self.copy(&path.join(name))?;
            }
            return Ok(copied);
        }
        let parent = path.parent().unwrap_or(Path::new(""));
        let target = self.to.join(path);
        // What the commit has there is what counts.
        if !self.make_folder(parent)? || target.symlink_metadata().is_ok() {
            return Ok(false);
        }
        fault::point("copy")?;
        if meta.is_symlink() {
            let to = fs::read_link(&source).map_err(|error| files::at(&source, error))?;
            symlink(to, &target).map_err(|error| files::at(&target, error))?;
            return Ok(true);
        }
        if !meta.is_file() {
            return Ok(false);
        }
        copy_file(&source, &meta, &target).map_err(|error| files::at(&source, error))?;
        Ok(true)
    }

    /// Whether a folder of the target is a real one, after it was made if need be. A link in its
    /// place would lead elsewhere.
    fn make_folder(&mut self, folder: &Path) -> Result<bool> {
        if folder.as_os_str().is_empty() {
            return Ok(true);
        }
        if let Some(known) = self.folders.get(folder) {
            return Ok(*known);
        }
        let parent = folder.parent().unwrap_or(Path::new(""));
        let full = self.to.join(folder);
        let is_real = self.make_folder(parent)?
            && if let Ok(meta) = full.symlink_metadata() {
                meta.is_dir()
            } else {
                fs::create_dir(&full).map_err(|error| files::at(&full, error))?;
                true
            };
        self.folders.insert(folder.to_owned(), is_real);
        Ok(is_real)
    }
}

/// Copies a regular file with its mode and time: by sharing its blocks where the file system can
/// do that, never as a hard link, through which a guard would write to the user's file.
pub(super) fn copy_file(source: &Path, meta: &Metadata, target: &Path) -> io::Result<()> {
    let mut from = files::open_no_trap(source)?;
    let mut to = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(target)?;
    if rustix::fs::ioctl_ficlone(&to, &from).is_err() {
        io::copy(&mut from, &mut to)?;
    }
    // Tools compare times: a compiled file is older than its source only once.
    if let Ok(time) = meta.modified() {
        to.set_modified(time)?;
    }
    let mode = meta.permissions().mode() & 0o777;
    to.set_permissions(fs::Permissions::from_mode(mode))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt as _;

    use super::*;

    /// A repository with these files, none of them tracked, and a folder to copy to.
    fn project(files: &[(&str, &str)]) -> (tempfile::TempDir, Git) {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("project");
        fs::create_dir(&root).unwrap();
        Git::init(&root).unwrap();
        for (name, text) in files {
            let path = root.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        fs::create_dir(folder.path().join("checkout")).unwrap();
        let git = Git::open(&root).unwrap();
        (folder, git)
    }

    fn config(include: &str) -> Config {
        Config::parse(&format!("[workspace]\ninclude = [{include}]\n")).unwrap()
    }

    #[test]
    fn ignored_files_that_are_named_and_nothing_else() {
        let (folder, git) = project(&[
            (".gitignore", ".env*\nnode_modules/\n*.log\n.runner/\n"),
            (".env", "A=1"),
            (".env.local", "B=1"),
            ("node_modules/a/index.js", "a"),
            ("packages/b/node_modules/c/index.js", "c"),
            ("notes.txt", "not ignored"),
            ("x.log", "ignored, not named"),
            (".runner/iterations/1", "ours"),
            ("forced.log", "tracked"),
        ]);
        git.write(&["add", "-f", "forced.log"]).unwrap();
        symlink("a/index.js", git.root().join("node_modules/link")).unwrap();
        let to = folder.path().join("checkout");
        let include = config(r#"".env", "**/node_modules/", "notes.txt", "forced.log", "*runner""#);
        let copied = copy_included(&git, &include, false, &to).unwrap();
        let expected = [
            ".env",
            "node_modules/a/index.js",
            "node_modules/link",
            "packages/b/node_modules/c/index.js",
        ];
        assert_eq!(copied, expected.map(PathBuf::from));
        assert_eq!(fs::read_to_string(to.join(".env")).unwrap(), "A=1");
        let link = fs::read_link(to.join("node_modules/link")).unwrap();
        assert_eq!(link, Path::new("a/index.js"));
        assert_eq!(to.join(".env").metadata().unwrap().nlink(), 1);
        assert!(!to.join(".runner").exists());
    }

    /// A session may take a rule off `.gitignore`, and the user's checkout follows it.
    #[test]
    fn what_was_ignored_once_is_copied_when_a_session_says_otherwise() {
        let (folder, git) = project(&[
            (".gitignore", ".venv/\n*.local\n"),
            (".worktreeinclude", "*.local\n"),
            (".venv/pyvenv.cfg", "home = /usr\n"),
            ("a.local", ""),
        ]);
        let include = config(r#"".venv", "*.txt""#);
        let expected = [".venv/pyvenv.cfg", "a.local"].map(PathBuf::from);
        let rules = git.root().join(".gitignore");
        for (round, text) in [".venv/\n*.local\n", "", "*.txt\n"].iter().enumerate() {
            fs::write(&rules, text).unwrap();
            fs::write(git.root().join("new.local"), "").unwrap();
            if round == 0 {
                fs::remove_file(git.root().join("new.local")).unwrap();
            }
            let to = folder.path().join(round.to_string());
            fs::create_dir(&to).unwrap();
            let copied = copy_included(&git, &include, false, &to).unwrap();
            assert_eq!(copied, expected, "{text}");
        }
        // What is tracked, or gone, is not.
        git.write(&["add", "-f", "a.local"]).unwrap();
        fs::remove_dir_all(git.root().join(".venv")).unwrap();
        let to = folder.path().join("checkout");
        let copied = copy_included(&git, &include, false, &to).unwrap();
        assert_eq!(copied, [] as [PathBuf; 0]);
        fs::create_dir(git.root().join(".venv")).unwrap();
        fs::write(git.root().join(".venv/x"), "").unwrap();
        let copied = copy_included(&git, &include, false, &to).unwrap();
        assert_eq!(copied, [] as [PathBuf; 0], "it is another one");
    }

    #[test]
    fn patterns_of_the_file_mean_ignored_files_only() {
        let (folder, git) = project(&[
            (".gitignore", "*.local\nsecrets/\n"),
            (
                ".worktreeinclude",
                "# ours\n*.local\n!no.local\nsecrets/\nfree.txt\n",
            ),
            ("a.local", ""),
            ("no.local", ""),
            ("deep/b.local", ""),
            ("secrets/key", ""),
            ("free.txt", "untracked, but not ignored"),
        ]);
        let to = folder.path().join("checkout");
        let copied = copy_included(&git, &Config::default(), false, &to).unwrap();
        let expected = ["a.local", "deep/b.local", "secrets/key"];
        assert_eq!(copied, expected.map(PathBuf::from));
    }

    #[test]
    fn a_repository_in_an_ignored_folder_comes_without_its_git() {
        let (folder, git) = project(&[(".gitignore", "deps/\n")]);
        let inner = git.root().join("deps/lib");
        fs::create_dir_all(&inner).unwrap();
        Git::init(&inner).unwrap();
        fs::write(inner.join("lib.txt"), "x").unwrap();
        let hook = inner.join(".git/hooks/tool");
        fs::create_dir_all(hook.parent().unwrap()).unwrap();
        symlink(git.root(), &hook).unwrap();
        let to = folder.path().join("checkout");
        copy_included(&git, &config(r#""deps""#), false, &to).unwrap();
        assert!(to.join("deps/lib/lib.txt").is_file());
        assert!(!to.join("deps/lib/.git").exists());
    }

    #[test]
    fn modes_and_times_are_copied_and_what_is_there_stays() {
        let (folder, git) = project(&[
            (".gitignore", "*\n"),
            ("tool", "#!/bin/sh\n"),
            ("x", "mine"),
        ]);
        let tool = git.root().join("tool");
        fs::set_permissions(&tool, fs::Permissions::from_mode(0o755)).unwrap();
        let old = std::time::SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000);
        fs::File::open(&tool).unwrap().set_modified(old).unwrap();
        let to = folder.path().join("checkout");
        fs::write(to.join("x"), "of the commit").unwrap();
        let copied = copy_included(&git, &config(r#""tool", "x""#), false, &to).unwrap();
        assert_eq!(copied, [PathBuf::from("tool")]);
        let meta = to.join("tool").metadata().unwrap();
        assert_eq!(meta.permissions().mode() & 0o777, 0o755);
        assert_eq!(meta.modified().unwrap(), old);
        assert_eq!(fs::read_to_string(to.join("x")).unwrap(), "of the commit");
    }

    #[test]
    fn nothing_is_written_through_a_link_of_the_commit() {
        let (folder, git) = project(&[(".gitignore", "data/\n"), ("data/key", "secret")]);
        let to = folder.path().join("checkout");
        let outside = folder.path().join("outside");
        fs::create_dir(&outside).unwrap();
        symlink(&outside, to.join("data")).unwrap();
        let copied = copy_included(&git, &config(r#""data""#), false, &to).unwrap();
        assert_eq!(copied, [] as [PathBuf; 0]);
        assert_eq!(fs::read_dir(&outside).unwrap().count(), 0);
    }

    #[test]
    fn an_environment_that_names_the_project_needs_mounts() {
        let (folder, git) = project(&[(".gitignore", ".venv/\n")]);
        let text = format!("command = python3 -m venv {}/.venv\n", git.root().display());
        fs::create_dir(git.root().join(".venv")).unwrap();
        fs::write(git.root().join(".venv/pyvenv.cfg"), text).unwrap();
        let to = folder.path().join("checkout");
        let error = copy_included(&git, &config(r#"".venv""#), false, &to).unwrap_err();
        assert!(error.message.contains(".venv/pyvenv.cfg names"), "{error}");
        assert!(error.hint.unwrap().contains("[workspace] setup"));
        assert_eq!(fs::read_dir(&to).unwrap().count(), 0);
        let copied = copy_included(&git, &config(r#"".venv""#), true, &to).unwrap();
        assert_eq!(copied, [PathBuf::from(".venv/pyvenv.cfg")]);

        let link = git.root().join(".venv/lib");
        symlink(git.root().join("src"), &link).unwrap();
        fs::remove_file(git.root().join(".venv/pyvenv.cfg")).unwrap();
        let error = copy_included(&git, &config(r#"".venv""#), false, &to).unwrap_err();
        assert!(error.message.contains(".venv/lib names"), "{error}");
    }
}
