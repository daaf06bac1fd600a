//! Git, always called in the same way.
//!
//! Every call goes through [`Git::run`]: a fixed locale, no stdin, nothing of
//! the caller's `GIT_*` environment, no hooks, no monitors, no signing, and the
//! git folder and work tree named explicitly, so that nothing planted in the
//! repository decides where git works. Git children die with this process.

mod around;
mod own_files;
mod places;
mod rescue;
mod stall;
mod status;

use std::cell::RefCell;
use std::ffi::{OsStr, OsString};
use std::io::{Read as _, Write as _};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use sha1::{Digest as _, Sha1};
use sha2::Sha256;

pub(crate) use own_files::OwnFiles;
pub(crate) use places::Run;
pub(crate) use rescue::rescue;
pub(crate) use stall::Patience;
pub(crate) use status::{Entry, Status};

use crate::error::{Code, Error, Result};
use crate::fault;
use crate::files;

/// The oldest git that has everything used here (`--sparse` of `git add`).
const MIN_VERSION: (u32, u32) = (2, 34);

/// A repository and its work tree.
#[derive(Clone, Debug)]
pub struct Git {
    root: PathBuf,
    git_dir: PathBuf,
    common_dir: PathBuf,
    /// The submodules of the commit that was last looked through.
    submodules: RefCell<Option<Vec<PathBuf>>>,
}

/// See [`Git::index_signature`].
pub(crate) type IndexSignature = (u64, u64, i64, i64);

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

/// Whether a call may change the repository.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Access {
    Read,
    Write,
}

impl Git {
    /// The repository whose work tree begins at this very folder.
    pub fn open(root: &Path) -> Result<Self> {
        let no_repo = |what: String| {
            Error::new(Code::Git, what).hint("make it a git repository with `git init`")
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
            submodules: RefCell::new(None),
        })
    }

    /// Makes a repository with the branch `main` in a folder.
    pub fn init(folder: &Path) -> Result<()> {
        let mut command = base_command();
        command
            .args(["init", "--quiet", "--initial-branch=main"])
            .current_dir(folder);
        finish(command, None).map(drop)
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

    fn command(&self, access: Access) -> Command {
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
                if access == Access::Read { "0" } else { "1" },
            );
        command
    }

    /// Runs a call that only reads; its stdout.
    pub(crate) fn read<S: AsRef<OsStr>>(&self, args: &[S]) -> Result<Vec<u8>> {
        let mut command = self.command(Access::Read);
        command.args(args);
        finish(command, None)
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
        let mut command = self.command(Access::Read);
        command.args(args);
        let described = describe(&command);
        let output = spawn(command, input)?;
        match output.status.code() {
            Some(0) => Ok(Some(output.stdout)),
            Some(1) => Ok(None),
            _ => Err(failed(&described, &output)),
        }
    }

    /// Runs a call that changes the repository.
    pub(crate) fn write<S: AsRef<OsStr>>(&self, args: &[S]) -> Result<Vec<u8>> {
        self.write_with(args, None, &[])
    }

    /// The same with text on stdin and more environment.
    pub(crate) fn write_with<S: AsRef<OsStr>>(
        &self,
        args: &[S],
        input: Option<&[u8]>,
        env: &[(&str, &OsStr)],
    ) -> Result<Vec<u8>> {
        let mut command = self.command(Access::Write);
        command.args(args).envs(env.iter().copied());
        fault::point("git")?;
        let result = finish(command, input);
        fault::point("git-done")?;
        result
    }

    /// Text of a call that only reads, without the newline at its end.
    pub(crate) fn line<S: AsRef<OsStr>>(&self, args: &[S]) -> Result<String> {
        let bytes = self.read(args)?;
        Ok(String::from_utf8_lossy(bytes.trim_ascii_end()).into_owned())
    }

    /// The commit that a name stands for, if there is one.
    pub(crate) fn commit_of(&self, name: &str) -> Result<Option<String>> {
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
    pub(crate) fn file_at(&self, commit: &str, path: &str) -> Result<Option<Vec<u8>>> {
        let listing = self.read(&["ls-tree", "-z", commit, "--", path])?;
        let Some(entry) = parse_tree_listing(&listing).pop() else {
            return Ok(None);
        };
        if entry.mode == SUBMODULE {
            return Ok(None);
        }
        self.read(&["cat-file", "blob", &entry.oid]).map(Some)
    }

    /// Every file of a commit.
    pub(crate) fn files_of(&self, commit: &str) -> Result<Vec<TreeEntry>> {
        Ok(parse_tree_listing(&self.read(&[
            "ls-tree",
            "-r",
            "-z",
            "--full-tree",
            commit,
        ])?))
    }

    /// Whether one commit is among the ancestors of another.
    pub(crate) fn is_ancestor(&self, older: &str, newer: &str) -> Result<bool> {
        Ok(self
            .ask(&["merge-base", "--is-ancestor", older, newer])?
            .is_some())
    }

    /// The state of branch, index and work tree.
    pub(crate) fn status(&self) -> Result<Status> {
        Ok(Status::parse(&self.read(STATUS)?))
    }

    /// The same where a session may have left traps: see [`Patience`].
    pub(crate) fn status_unless_stalled(&self) -> Result<Patience<Status>> {
        let mut command = self.command(Access::Read);
        command.args(STATUS);
        let described = describe(&command);
        Ok(match stall::run(command)? {
            Patience::Ended(output) if output.status.success() => {
                let text = String::from_utf8_lossy(&output.stderr);
                if text.contains("could not open directory") {
                    return Ok(Patience::Blind);
                }
                Patience::Ended(Status::parse(&output.stdout))
            }
            Patience::Ended(output) => return Err(failed(&described, &output)),
            Patience::Stalled => Patience::Stalled,
            Patience::Blind => Patience::Blind,
        })
    }

    /// The paths that differ between two commits.
    pub(crate) fn changed_between(&self, from: &str, to: &str) -> Result<Vec<PathBuf>> {
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

    /// Puts everything that is not ignored into the index.
    pub(crate) fn add_all(&self) -> Result<()> {
        self.add_all_to(&[], &[])
    }

    /// The same with more environment (another index) and without some paths.
    fn add_all_to(&self, env: &[(&str, &OsStr)], without: &[&Path]) -> Result<()> {
        let submodules = self.submodules()?;
        let mut args: Vec<OsString> = vec!["add".into(), "--all".into()];
        if self.is_sparse() {
            // .runner/ may lie outside the cone; what is not checked out stays.
            args.push("--sparse".into());
        }
        args.extend(["--".into(), ".".into()]);
        // `git add` would run `git status` inside submodules, under their own
        // config; `update-index` looks at their HEAD and at nothing else.
        let paths = submodules.iter().map(PathBuf::as_path);
        for path in paths.chain(without.iter().copied()) {
            let mut exclude = OsString::from(":(exclude,top,literal)");
            exclude.push(path);
            args.push(exclude);
        }
        self.write_with(&args, None, env)?;
        if submodules.is_empty() {
            return Ok(());
        }
        let mut list = Vec::new();
        for path in &submodules {
            list.extend_from_slice(path.as_os_str().as_bytes());
            list.push(0);
        }
        let args = [
            "update-index",
            "--add",
            "--remove",
            "--replace",
            "-z",
            "--stdin",
        ];
        self.write_with(&args, Some(&list), env).map(drop)
    }

    /// Whether only a part of the files is checked out.
    pub(crate) fn is_sparse(&self) -> bool {
        self.git_dir.join("info/sparse-checkout").exists()
            && self
                .ask(&["config", "--type=bool", "--get", "core.sparseCheckout"])
                .is_ok_and(|value| value.is_some_and(|text| text.trim_ascii_end() == b"true"))
    }

    /// Keeps the submodules of a commit in mind.
    pub(crate) fn remember_submodules(&self, files: &[TreeEntry]) {
        let found = files.iter().filter(|entry| entry.mode == SUBMODULE);
        let found = found.map(|entry| entry.path.clone()).collect();
        *self.submodules.borrow_mut() = Some(found);
    }

    /// The submodules in the index, or those that were kept in mind.
    pub(crate) fn submodules(&self) -> Result<Vec<PathBuf>> {
        if let Some(known) = &*self.submodules.borrow() {
            return Ok(known.clone());
        }
        let found: Vec<PathBuf> = self
            .index_entries()?
            .into_iter()
            .filter(|entry| entry.mode == SUBMODULE)
            .map(|entry| entry.path)
            .collect();
        *self.submodules.borrow_mut() = Some(found.clone());
        Ok(found)
    }

    /// Everything in the index.
    pub(crate) fn index_entries(&self) -> Result<Vec<IndexEntry>> {
        let listing = self.read(&["ls-files", "-v", "--stage", "-z"])?;
        Ok(split_nul(&listing)
            .filter_map(|record| {
                // "H 100644 0123… 0\tpath"
                let tab = record.iter().position(|byte| *byte == b'\t')?;
                let mut words = record[..tab].split(|byte| *byte == b' ');
                let tag = *words.next()?.first()?;
                let mode = String::from_utf8_lossy(words.next()?).into_owned();
                Some(IndexEntry {
                    mode,
                    assumed: tag.is_ascii_lowercase(),
                    skipped: tag.eq_ignore_ascii_case(&b'S'),
                    path: to_path(&record[tab + 1..]),
                })
            })
            .collect())
    }

    /// Commits the index; says who was named as author.
    pub(crate) fn commit(&self, message: &str) -> Result<Identity> {
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
    #[allow(clippy::unused_self)] // Reads as what it is: this repository's matter.
    pub(crate) fn as_someone<T>(
        &self,
        act: impl Fn(&[(&str, &OsStr)]) -> Result<T>,
    ) -> Result<(Identity, T)> {
        match act(&[]) {
            Ok(value) => Ok((Identity::User, value)),
            Err(error) if is_nameless(&error) => {
                let env: Vec<(&str, &OsStr)> = RUNNER_IDENTITY
                    .iter()
                    .map(|(k, v)| (*k, OsStr::new(*v)))
                    .collect();
                act(&env).map(|value| (Identity::Runner, value))
            }
            Err(error) => Err(error),
        }
    }

    /// Refuses a git that is too old, with words.
    pub fn check_version() -> Result<String> {
        let mut command = base_command();
        command.arg("--version");
        // Not through `finish`, which asks here why a call failed.
        let output = spawn(command, None)?;
        let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        if !output.status.success() {
            return Err(Error::new(
                Code::Git,
                format!("`git --version` failed ({})", output.status),
            )
            .hint("install git 2.34 or newer"));
        }
        match parse_version(&text) {
            Some(version) if version >= MIN_VERSION => Ok(text),
            _ => Err(too_old(&text)),
        }
    }

    /// Something that changes whenever the index file does (the time of change
    /// of its inode cannot be forged).
    pub(crate) fn index_signature(&self) -> Option<IndexSignature> {
        use std::os::unix::fs::MetadataExt as _;
        let meta = self.git_dir.join("index").symlink_metadata().ok()?;
        Some((meta.ino(), meta.size(), meta.ctime(), meta.ctime_nsec()))
    }

    /// Whether the index file ends with the checksum of what is before it (or
    /// with zeros, where git is told to do without). `name_len`: how long names
    /// of objects are here.
    pub(crate) fn index_is_whole(&self, name_len: usize) -> bool {
        let whole = || -> std::io::Result<bool> {
            let mut file = std::fs::File::open(self.git_dir.join("index"))?;
            let sum_len = name_len / 2;
            let Some(mut left) = file.metadata()?.len().checked_sub(sum_len as u64) else {
                return Ok(false);
            };
            let (mut sha1, mut sha256) = (Sha1::new(), Sha256::new());
            let mut buffer = vec![0; 1 << 16];
            while left > 0 {
                let part =
                    usize::try_from(left).map_or(buffer.len(), |left| left.min(buffer.len()));
                file.read_exact(&mut buffer[..part])?;
                if name_len == 64 {
                    sha256.update(&buffer[..part]);
                } else {
                    sha1.update(&buffer[..part]);
                }
                left -= part as u64;
            }
            let mut sum = vec![0; sum_len];
            file.read_exact(&mut sum)?;
            let expected = if name_len == 64 {
                sha256.finalize().to_vec()
            } else {
                sha1.finalize().to_vec()
            };
            Ok(sum == expected || sum.iter().all(|byte| *byte == 0))
        };
        let plain = self.git_dir.join("index").symlink_metadata();
        plain.is_ok_and(|meta| meta.is_file()) && whole().unwrap_or(false)
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
pub(crate) enum Identity {
    /// Whoever git's config names.
    User,
    /// `runner <runner@localhost>`.
    Runner,
}

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

/// A file in the index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct IndexEntry {
    /// As in [`TreeEntry`].
    pub(crate) mode: String,
    /// Marked `assume-unchanged`.
    pub(crate) assumed: bool,
    /// Marked `skip-worktree`.
    pub(crate) skipped: bool,
    /// From the root of the repository.
    pub(crate) path: PathBuf,
}

/// A file in a commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TreeEntry {
    /// `100644`, `100755`, `120000` or `160000`.
    pub(crate) mode: String,
    /// The object's name.
    pub(crate) oid: String,
    /// From the root of the repository.
    pub(crate) path: PathBuf,
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

/// The name that stands for "there is none", as long as this one.
fn zeros(like: &str) -> String {
    "0".repeat(like.len())
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

#[allow(clippy::disallowed_methods)] // This is the one place that starts git.
fn base_command() -> Command {
    let mut command = Command::new("git");
    for (name, _) in std::env::vars_os() {
        if name.as_bytes().starts_with(b"GIT_") {
            command.env_remove(name);
        }
    }
    command
        .args([
            // Neither the user's hooks nor planted ones may stop or enter a run.
            "-c",
            "core.hooksPath=/dev/null",
            "-c",
            "core.fsmonitor=false",
            "-c",
            "commit.gpgSign=false",
            // A guessed name is no identity: see `as_someone`.
            "-c",
            "user.useConfigOnly=true",
            // No background process may outlive the call.
            "-c",
            "gc.auto=0",
            "-c",
            "maintenance.auto=false",
            "-c",
            "core.untrackedCache=false",
            "-c",
            "core.quotePath=false",
            "-c",
            "core.safecrlf=false",
            "-c",
            "advice.addEmbeddedRepo=false",
            // What is read here must not depend on how people like to see it.
            "-c",
            "log.showSignature=false",
            "-c",
            "i18n.commitEncoding=UTF-8",
            "-c",
            "i18n.logOutputEncoding=UTF-8",
            "-c",
            "diff.ignoreSubmodules=dirty",
            "-c",
            "submodule.recurse=false",
        ])
        .env("LC_ALL", "C")
        .env("GIT_TERMINAL_PROMPT", "0")
        // A planted replacement must not change what a commit says.
        .env("GIT_NO_REPLACE_OBJECTS", "1")
        .stdin(Stdio::null())
        // A Ctrl-C in the terminal is the runner's to handle, not git's.
        .process_group(0);
    runner_exec::os::die_with_parent(&mut command);
    command
}

fn spawn(mut command: Command, input: Option<&[u8]>) -> Result<Output> {
    if input.is_some() {
        command.stdin(Stdio::piped());
    }
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|error| cannot_start(&error))?;
    if let (Some(input), Some(mut stdin)) = (input, child.stdin.take()) {
        std::thread::scope(|scope| {
            // A thread, because git may print more than a pipe holds before it
            // has read everything.
            scope.spawn(move || {
                let _ = stdin.write_all(input);
            });
            child.wait_with_output().map_err(Error::from)
        })
    } else {
        Ok(child.wait_with_output()?)
    }
}

fn cannot_start(error: &std::io::Error) -> Error {
    if error.kind() == std::io::ErrorKind::NotFound {
        return Error::new(Code::Git, "git is not installed (not found on PATH)")
            .hint("install git 2.34 or newer");
    }
    Error::new(Code::Git, format!("cannot start git: {error}"))
}

fn finish(command: Command, input: Option<&[u8]>) -> Result<Vec<u8>> {
    let described = describe(&command);
    let output = spawn(command, input)?;
    if output.status.success() {
        Ok(output.stdout)
    } else {
        Err(failed(&described, &output))
    }
}

/// The call without the options that every call has.
fn describe(command: &Command) -> String {
    let words: Vec<String> = command
        .get_args()
        .map(|arg| arg.to_string_lossy().into_owned())
        .skip_while(|arg| arg == "-c" || arg.contains('=') && !arg.starts_with("--"))
        .filter(|arg| !arg.starts_with("--git-dir=") && !arg.starts_with("--work-tree="))
        .take(6)
        .collect();
    format!("git {}", words.join(" "))
}

fn failed(described: &str, output: &Output) -> Error {
    let text = String::from_utf8_lossy(&output.stderr);
    let text = runner_core::text::cut_end(text.trim(), 2000).into_owned();
    let error = Error::new(Code::Git, format!("`{described}` failed: {text}"));
    if text.contains("No space left on device") {
        return error.hint("free some space, then run the same command again: nothing is lost");
    }
    if text.contains("Read-only file system") {
        return error.hint("make the file system writable, then run the same command again");
    }
    // An old git fails in many ways; the true reason is worth one more call.
    match Git::check_version() {
        Err(old) if old.message.contains("too old") => old,
        _ => error,
    }
}

fn too_old(text: &str) -> Error {
    Error::new(
        Code::Git,
        format!(
            "this git is too old: {text:?}, version {}.{} or newer is needed",
            MIN_VERSION.0, MIN_VERSION.1
        ),
    )
    .hint("install a newer git")
}

fn parse_version(text: &str) -> Option<(u32, u32)> {
    let mut numbers = text.strip_prefix("git version ")?.split('.');
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions() {
        assert_eq!(parse_version("git version 2.47.3"), Some((2, 47)));
        assert_eq!(parse_version("git version 2.39.5 (Apple)"), Some((2, 39)));
        assert_eq!(parse_version("gut"), None);
    }

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
