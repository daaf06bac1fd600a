//! Git, always called in the same way.
//!
//! Every call goes through [`Git::run`]: a fixed locale, no stdin, nothing of
//! the caller's `GIT_*` environment, no hooks, no monitors, no signing, and the
//! git folder and work tree named explicitly, so that nothing planted in the
//! repository decides where git works. Git children die with this process.

mod borrow;
mod call;
mod drivers;
mod export;
mod folder;
mod history;
mod index;
mod isolate;
mod loose_refs;
mod merge;
mod new_objects;
mod overlay;
mod pending;
mod proven;
mod refs;
mod settings;
mod stall;
mod status;
mod worktrees;

use std::cell::RefCell;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

pub(crate) use borrow::FilterUse;
pub(crate) use history::{GitCommit, GitHistory};
pub(crate) use isolate::BorrowedRepo;
pub(crate) use merge::GitMergeOutcome;
pub(crate) use pending::{PendingFiles, PendingProof, PendingStatus, PendingWrite};
pub(crate) use proven::{CommittedFile, next_blob};
pub(crate) use stall::StallOutcome;
pub(crate) use status::{GitStatus, GitStatusEntry};
pub(crate) use worktrees::WorkTree;

use crate::error::{Error, ErrorCode, Result};
use crate::fault;
use crate::files;

use call::{base_command, describe, failed, finish, spawn};

/// A repository and its work tree.
#[allow(clippy::struct_field_names)] // what git itself calls it
#[derive(Clone, Debug)]
pub struct Git {
    root: PathBuf,
    git_dir: PathBuf,
    common_dir: PathBuf,
    /// Where objects are, if not in the git folder: then nothing but the config there counts
    /// (see [`isolate`]).
    objects: Option<PathBuf>,
    /// Settings that keep programs of the user's from running (see [`drivers`]).
    drivers_off: Option<Arc<Vec<(OsString, OsString)>>>,
    /// The submodules of the commit that was last looked through.
    submodules: RefCell<Option<Vec<PathBuf>>>,
    /// What git's config said a moment ago (see [`drivers`]).
    listed: drivers::ListedSettings,
    /// Whoever changes references for now (see [`refs`]).
    ref_session: refs::RefSessionSlot,
    /// Where objects are written to that nothing leads to yet (see [`new_objects`]).
    new_objects: new_objects::NewObjectsSlot,
}

/// How the state of everything is asked for.
const STATUS: &[&str] = &[
    "status",
    "--porcelain=v2",
    "--branch",
    "--untracked-files=all",
    // Whole folders stay one path.
    "--ignored=matching",
    // Looking into submodules would run git under their own config, which a
    // session may have written.
    "--ignore-submodules=dirty",
    "--no-renames",
    "-z",
];

/// How the files of a commit are asked for.
const LS_TREE: &[&str] = &["ls-tree", "-r", "-z", "--full-tree"];

/// Whether a call may change the repository.
#[derive(Clone, Copy, PartialEq, Eq)]
enum GitAccess {
    Read,
    Write,
}

impl Git {
    /// The repository whose work tree begins at this very folder.
    pub fn open(root: &Path) -> Result<Self> {
        let no_repo = |what: String| {
            Error::new(ErrorCode::Git, what).hint("make it a git repository with `git init`")
        };
        let dot_git = root.join(".git");
        let meta = std::fs::symlink_metadata(&dot_git).map_err(|_| {
            no_repo(format!(
                "{} is not the root of a git repository",
                root.display()
            ))
        })?;
        let git_dir = if meta.is_file() {
            let text = std::fs::read(&dot_git)?;
            let target = text
                .strip_prefix(b"gitdir: ")
                .map(<[u8]>::trim_ascii_end)
                .ok_or_else(|| no_repo(format!("{} is not a git link", dot_git.display())))?;
            root.join(OsStr::from_bytes(target))
        } else {
            dot_git
        };
        let common_dir = match std::fs::read(git_dir.join("commondir")) {
            Ok(text) => git_dir.join(OsStr::from_bytes(text.trim_ascii_end())),
            Err(_) => git_dir.clone(),
        };
        let canonical = |path: PathBuf| path.canonicalize().unwrap_or(path);
        Ok(Git {
            root: root.to_owned(),
            git_dir: canonical(git_dir),
            common_dir: canonical(common_dir),
            objects: None,
            drivers_off: None,
            submodules: RefCell::new(None),
            listed: drivers::ListedSettings::default(),
            ref_session: refs::RefSessionSlot::default(),
            new_objects: new_objects::NewObjectsSlot::default(),
        })
    }

    /// Makes a repository with the branch `main` in a folder.
    pub fn init(folder: &Path) -> Result<()> {
        let mut command = base_command();
        command
            .args(["init", "--quiet", "--initial-branch=main"])
            .current_dir(folder);
        finish(&command, None).map(drop)
    }

    /// The git folder of this work tree.
    pub fn git_dir(&self) -> &Path {
        &self.git_dir
    }

    /// The git folder that all work trees of the repository share.
    pub fn common_dir(&self) -> &Path {
        &self.common_dir
    }

    /// The work tree's root.
    pub fn root(&self) -> &Path {
        &self.root
    }

    fn command(&self, access: GitAccess) -> Command {
        let mut command = base_command();
        let mut git_dir = OsString::from("--git-dir=");
        git_dir.push(&self.git_dir);
        let mut work_tree = OsString::from("--work-tree=");
        work_tree.push(&self.root);
        command
            .arg(git_dir)
            .arg(work_tree)
            .current_dir(&self.root)
            .env(
                "GIT_OPTIONAL_LOCKS",
                if access == GitAccess::Read { "0" } else { "1" },
            );
        if let Some(settings) = self.drivers_off.as_ref().filter(|it| !it.is_empty()) {
            command.env("GIT_CONFIG_COUNT", settings.len().to_string());
            for (number, (key, value)) in settings.iter().enumerate() {
                command
                    .env(format!("GIT_CONFIG_KEY_{number}"), key)
                    .env(format!("GIT_CONFIG_VALUE_{number}"), value);
            }
        }
        if let Some(objects) = &self.objects {
            command
                .env("GIT_OBJECT_DIRECTORY", objects)
                .env("GIT_CONFIG_GLOBAL", "/dev/null")
                .env("GIT_CONFIG_NOSYSTEM", "1")
                .env("GIT_ATTR_NOSYSTEM", "1");
        } else if let Some(folder) = self.new_objects.folder() {
            command.env("GIT_OBJECT_DIRECTORY", folder);
        }
        command
    }

    /// The command of a call. Where files of the work tree are read or written, no filter driver
    /// runs that is a script of the repository: sessions may have written it.
    fn command_of<S: AsRef<OsStr>>(&self, access: GitAccess, args: &[S]) -> Result<Command> {
        let name = args.first().map(AsRef::as_ref).unwrap_or_default();
        let is_open = self.objects.is_none() && self.drivers_off.is_none();
        let mut command = if is_open && drivers::USED_BY.iter().any(|it| name == *it) {
            self.without_scripts()?.command(access)
        } else {
            self.command(access)
        };
        command.args(args);
        Ok(command)
    }

    /// Runs a call that only reads; its stdout.
    pub fn read<S: AsRef<OsStr>>(&self, args: &[S]) -> Result<Vec<u8>> {
        let command = self.command_of(GitAccess::Read, args)?;
        finish(&command, None)
    }

    /// The same with at most `max` bytes, and whether there was more.
    pub(crate) fn read_up_to<S: AsRef<OsStr>>(
        &self,
        args: &[S],
        max: u64,
    ) -> Result<(Vec<u8>, bool)> {
        let command = self.command_of(GitAccess::Read, args)?;
        call::finish_up_to(&command, max)
    }

    /// Runs a call that only reads and may answer no: `None` on exit code 1.
    pub(crate) fn ask<S: AsRef<OsStr>>(&self, args: &[S]) -> Result<Option<Vec<u8>>> {
        self.ask_about(args, None)
    }

    /// The same about what is given on stdin.
    pub(crate) fn ask_with<S: AsRef<OsStr>>(
        &self,
        args: &[S],
        input: &[u8],
    ) -> Result<Option<Vec<u8>>> {
        self.ask_about(args, Some(input))
    }

    fn ask_about<S: AsRef<OsStr>>(
        &self,
        args: &[S],
        input: Option<&[u8]>,
    ) -> Result<Option<Vec<u8>>> {
        let command = self.command_of(GitAccess::Read, args)?;
        let described = describe(&command);
        let output = spawn(&command, input)?;
        match output.status.code() {
            Some(0) => Ok(Some(output.stdout)),
            Some(1) => Ok(None),
            _ => Err(failed(&described, &output)),
        }
    }

    /// Runs a call that changes the repository.
    pub fn write<S: AsRef<OsStr>>(&self, args: &[S]) -> Result<Vec<u8>> {
        self.write_with(args, None, &[])
    }

    /// The same with text on stdin and more environment.
    pub(crate) fn write_with<S: AsRef<OsStr>>(
        &self,
        args: &[S],
        input: Option<&[u8]>,
        env: &[(&str, &OsStr)],
    ) -> Result<Vec<u8>> {
        let mut command = self.command_of(GitAccess::Write, args)?;
        command.envs(env.iter().copied());
        fault::point("git")?;
        let result = finish(&command, input);
        fault::point("git-done")?;
        result
    }

    /// The same where a warning is an error: git leaves a path such as `.GIT/config` out and says
    /// no more than that.
    pub(crate) fn write_quietly<S: AsRef<OsStr>>(&self, args: &[S], input: &[u8]) -> Result<()> {
        let command = self.command_of(GitAccess::Write, args)?;
        fault::point("git")?;
        let output = spawn(&command, Some(input))?;
        fault::point("git-done")?;
        let mut said = output.stderr.split(|byte| *byte == b'\n');
        if output.status.success() && said.all(is_no_complaint) {
            return Ok(());
        }
        Err(failed(&describe(&command), &output))
    }

    /// Whether a file can be read as a config by git.
    pub(crate) fn reads_config(&self, file: &Path) -> Result<bool> {
        let args: [&OsStr; 5] = [
            "config".as_ref(),
            "--no-includes".as_ref(),
            "--file".as_ref(),
            file.as_os_str(),
            "--list".as_ref(),
        ];
        let command = self.command_of(GitAccess::Read, &args)?;
        Ok(spawn(&command, None)?.status.success())
    }

    /// Text of a call that only reads, without the newline at its end.
    pub(crate) fn line<S: AsRef<OsStr>>(&self, args: &[S]) -> Result<String> {
        let bytes = self.read(args)?;
        Ok(String::from_utf8_lossy(bytes.trim_ascii_end()).into_owned())
    }

    /// The commit that a name stands for, if there is one.
    pub fn commit_of(&self, name: &str) -> Result<Option<String>> {
        let spec = format!("{name}^{{commit}}");
        let found = self.ask(&[
            "rev-parse",
            "--quiet",
            "--verify",
            "--end-of-options",
            &spec,
        ])?;
        Ok(found.map(|bytes| String::from_utf8_lossy(bytes.trim_ascii_end()).into_owned()))
    }

    /// The bytes of a file in a commit, if it is there.
    pub fn file_at(&self, commit: &str, path: &str) -> Result<Option<Vec<u8>>> {
        Ok(self.blob_at(commit, path)?.map(|(_, bytes)| bytes))
    }

    /// The same with the name of its object.
    fn blob_at(&self, commit: &str, path: &str) -> Result<Option<(String, Vec<u8>)>> {
        if path.contains('\n') {
            // Questions end where lines do.
            let listing = self.read(&["ls-tree", "-z", commit, "--", path])?;
            let entry = parse_tree_listing(&listing).pop();
            let Some(entry) = entry.filter(|entry| entry.mode != SUBMODULE) else {
                return Ok(None);
            };
            let bytes = self.read(&["cat-file", "blob", &entry.oid])?;
            return Ok(Some((entry.oid, bytes)));
        }
        let question = format!("{commit}:{path}\n");
        let answer = self.ask_with(&["cat-file", "--batch"], question.as_bytes())?;
        match next_blob(&mut answer.as_deref().unwrap_or_default()) {
            Some((oid, bytes)) => Ok(Some((oid.to_owned(), bytes.to_vec()))),
            // Without the commit there is nothing to be told of it.
            None if self.commit_of(commit)?.is_none() => Err(Error::new(
                ErrorCode::Git,
                format!("there is no commit {commit}"),
            )),
            None => Ok(None),
        }
    }

    /// Every file of a commit.
    pub fn files_of(&self, commit: &str) -> Result<Vec<TreeEntry>> {
        let args: Vec<&str> = LS_TREE.iter().copied().chain([commit]).collect();
        Ok(parse_tree_listing(&self.read(&args)?))
    }

    /// The full name of the branch that HEAD is on, unless it is detached.
    pub(crate) fn head_ref(&self) -> Result<Option<String>> {
        // Git itself reads no more than this file, where references are files.
        if let Ok(bytes) = files::read_regular(&self.git_dir.join("HEAD"), 4096)
            && let Some(name) = bytes.trim_ascii_end().strip_prefix(b"ref: ")
            && name.starts_with(b"refs/heads/")
            && name != b"refs/heads/.invalid"
            && let Ok(name) = std::str::from_utf8(name)
        {
            return Ok(Some(name.to_owned()));
        }
        let name = self.ask(&["symbolic-ref", "--quiet", "HEAD"])?;
        Ok(name.map(|bytes| String::from_utf8_lossy(bytes.trim_ascii_end()).into_owned()))
    }

    /// Whether one commit is among the ancestors of another.
    pub(crate) fn is_ancestor(&self, older: &str, newer: &str) -> Result<bool> {
        Ok(self
            .ask(&["merge-base", "--is-ancestor", older, newer])?
            .is_some())
    }

    /// The state of branch, index and work tree.
    pub(crate) fn status(&self) -> Result<GitStatus> {
        self.ask_status()?.answer()
    }

    /// The paths that differ between two commits.
    pub fn changed_between(&self, from: &str, to: &str) -> Result<Vec<PathBuf>> {
        let output = self.read(&[
            "diff",
            "--no-ext-diff",
            "--no-textconv",
            "--no-renames",
            "--name-only",
            "-z",
            from,
            to,
            "--",
        ])?;
        Ok(split_nul(&output).map(to_path).collect())
    }

    /// The files of a commit that the work tree does not have as they are there. What it has
    /// beside them is not looked for.
    pub(crate) fn changed_since(&self, commit: &str) -> Result<Vec<PathBuf>> {
        let output = self.read(&[
            "diff",
            "--no-ext-diff",
            "--no-textconv",
            "--no-renames",
            "--ignore-submodules=dirty",
            "--name-only",
            "-z",
            commit,
            "--",
        ])?;
        Ok(split_nul(&output).map(to_path).collect())
    }

    /// Commits the index; says who was named as author.
    pub fn commit(&self, message: &str) -> Result<GitIdentity> {
        let args = [
            "commit",
            "--quiet",
            "--allow-empty",
            "--no-verify",
            "--cleanup=verbatim",
            "--file=-",
        ];
        self.as_someone(|env| self.write_with(&args, Some(message.as_bytes()), env))
            .map(|(identity, _)| identity)
    }

    /// Does something that needs an author: the user, or `runner` where git
    /// knows no name (a first try is cheaper than asking).
    #[allow(clippy::unused_self)] // it is this repository that somebody does something to
    pub(crate) fn as_someone<T>(
        &self,
        act: impl Fn(&[(&str, &OsStr)]) -> Result<T>,
    ) -> Result<(GitIdentity, T)> {
        match act(&[]) {
            Ok(value) => Ok((GitIdentity::User, value)),
            Err(error) if is_nameless(&error) => {
                let env: Vec<(&str, &OsStr)> = RUNNER_IDENTITY
                    .iter()
                    .map(|(k, v)| (*k, OsStr::new(*v)))
                    .collect();
                act(&env).map(|value| (GitIdentity::Runner, value))
            }
            Err(error) => Err(error),
        }
    }

    /// Removes lock files that a dead git left behind. Only for whoever holds
    /// the run's lock and knows that no git of this run is alive.
    pub(crate) fn remove_stale_locks(&self, branch: &str) {
        let names = [
            self.git_dir.join("index.lock"),
            self.git_dir.join("HEAD.lock"),
            self.common_dir.join(format!("refs/heads/{branch}.lock")),
            self.common_dir.join("packed-refs.lock"),
        ];
        for lock in names {
            // Best effort: git itself will say it if the file stays.
            let _ = files::remove_if_there(&lock);
        }
    }
}

/// Who is named as author and committer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GitIdentity {
    /// Whoever git's config names.
    User,
    /// `runner <runner@localhost>`.
    Runner,
}

/// What is said where nobody is named.
pub(crate) const NAMELESS: &str =
    "git knows no name and email here: committed as runner <runner@localhost>";

const RUNNER_IDENTITY: [(&str, &str); 4] = [
    ("GIT_AUTHOR_NAME", "runner"),
    ("GIT_AUTHOR_EMAIL", "runner@localhost"),
    ("GIT_COMMITTER_NAME", "runner"),
    ("GIT_COMMITTER_EMAIL", "runner@localhost"),
];

fn is_nameless(error: &Error) -> bool {
    error.message.contains("auto-detection is disabled")
        || error.message.contains("tell me who you are")
        || error.message.contains("empty ident name")
}

/// The mode of a submodule in commits and in the index.
pub(crate) const SUBMODULE: &str = "160000";

/// The mode of a symbolic link in a tree.
pub(crate) const LINK: &str = "120000";

/// A file in a commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TreeEntry {
    /// `100644`, `100755`, `120000` or `160000`.
    pub mode: String,
    /// The object's name.
    pub oid: String,
    /// From the root of the repository.
    pub path: PathBuf,
}

/// Git follows no link to attributes, and says so for each file: then there are none.
fn is_no_complaint(line: &[u8]) -> bool {
    line.is_empty()
        || line.starts_with(b"warning: unable to access '")
            && line.ends_with(b".gitattributes': Too many levels of symbolic links")
}

fn parse_tree_listing(bytes: &[u8]) -> Vec<TreeEntry> {
    split_nul(bytes)
        .filter_map(|record| {
            let tab = record.iter().position(|byte| *byte == b'\t')?;
            let head = std::str::from_utf8(&record[..tab]).ok()?;
            let mut words = head.split(' ');
            let mode = words.next()?.to_owned();
            let oid = words.nth(1)?.to_owned();
            Some(TreeEntry {
                mode,
                oid,
                path: to_path(&record[tab + 1..]),
            })
        })
        .collect()
}

/// The name of an object, if that is what these bytes are.
pub(crate) fn object_name(bytes: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(bytes.trim_ascii_end()).ok()?;
    let is_name = matches!(text.len(), 40 | 64) && text.bytes().all(|it| it.is_ascii_hexdigit());
    is_name.then(|| text.to_owned())
}

/// Paths as git reads them with `-z --stdin`.
pub(crate) fn join_nul<'p>(paths: impl IntoIterator<Item = &'p PathBuf>) -> Vec<u8> {
    let mut input = Vec::new();
    for path in paths {
        input.extend_from_slice(path.as_os_str().as_bytes());
        input.push(0);
    }
    input
}

/// The records of `-z` output.
pub(crate) fn split_nul(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    bytes
        .split(|byte| *byte == 0)
        .filter(|part| !part.is_empty())
}

/// Bytes that git printed as a path.
pub(crate) fn to_path(bytes: &[u8]) -> PathBuf {
    PathBuf::from(OsString::from_vec(bytes.to_vec()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tree_listings() {
        let entries = parse_tree_listing(b"100644 blob abc\ta b\n\xff\x00120000 blob def\tl\x00");
        assert_eq!(entries.len(), 2);
        assert_eq!(entries[0].path.as_os_str().as_bytes(), b"a b\n\xff");
        assert_eq!(
            (entries[1].mode.as_str(), entries[1].oid.as_str()),
            ("120000", "def")
        );
    }
}
