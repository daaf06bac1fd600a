//! One call of git: how every one is started, and what is said when it fails.

use std::io::Write as _;
use std::os::unix::ffi::OsStrExt as _;
use std::process::{Command, Output};

use runner_exec::{Helper, Input};

use super::Git;
use crate::error::{Error, ErrorCode, Result};
use crate::search_path::own_search_path;

/// The oldest git that has everything used here (`--sparse` of `git add`).
const MIN_VERSION: (u32, u32) = (2, 34);

/// So much can be written into any pipe before anybody reads it (a page, where the user has so many
/// pipes that the kernel gives no more).
const PIPE_HOLDS: usize = 4096;

impl Git {
    /// Refuses a git that is too old, with words.
    pub fn check_version() -> Result<String> {
        let mut command = base_command();
        command.arg("--version");
        // Not through `finish`, which asks here why a call failed.
        let output = spawn(&command, None)?;
        let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        if !output.status.success() {
            return Err(Error::new(
                ErrorCode::Git,
                format!("`git --version` failed ({})", output.status),
            )
            .hint("install git 2.34 or newer"));
        }
        match parse_version(&text) {
            Some(version) if version >= MIN_VERSION => Ok(text),
            _ => Err(too_old(&text)),
        }
    }
}

#[allow(clippy::disallowed_methods)] // This is the one place that starts git.
pub(super) fn base_command() -> Command {
    let mut command = Command::new("git");
    for (name, _) in std::env::vars_os() {
        if name.as_bytes().starts_with(b"GIT_") {
            command.env_remove(name);
        }
    }
    command
        // A session may have put a program of this name into the project.
        .env("PATH", own_search_path())
        // Nothing that git starts has any business with the ledger.
        .env_remove("PGPASSWORD")
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
            // Git LFS takes from what is here: a commit's own .lfsconfig may name any server. What is
            // not here stays a pointer.
            "-c",
            "lfs.url=file:///dev/null/nowhere",
            "-c",
            "lfs.skipDownloadErrors=true",
        ])
        .env("LC_ALL", "C")
        .env("GIT_TERMINAL_PROMPT", "0")
        // A planted replacement must not change what a commit says.
        .env("GIT_NO_REPLACE_OBJECTS", "1");
    command
}

pub(super) fn spawn(command: &Command, input: Option<&[u8]>) -> Result<Output> {
    let Some(input) = input else {
        return Ok(begin(command, Input::Nothing)?.output()?);
    };
    let mut child = begin(command, Input::Pipe)?;
    let Some(mut stdin) = child.stdin.take() else {
        return Ok(child.output()?);
    };
    if input.len() <= PIPE_HOLDS {
        let _ = stdin.write_all(input);
        drop(stdin);
        return Ok(child.output()?);
    }
    std::thread::scope(|scope| {
        // A thread, because git may print more than a pipe holds before it
        // has read everything.
        scope.spawn(move || {
            let _ = stdin.write_all(input);
        });
        child.output().map_err(Error::from)
    })
}

/// Starts git, for whoever has something else to do meanwhile.
pub(super) fn begin(command: &Command, input: Input) -> Result<Helper> {
    Helper::spawn(command, input).map_err(|error| cannot_start(&error))
}

pub(super) fn cannot_start(error: &std::io::Error) -> Error {
    if error.kind() == std::io::ErrorKind::NotFound {
        return Error::new(ErrorCode::Git, "git is not installed (not found on PATH)")
            .hint("install git 2.34 or newer");
    }
    Error::new(ErrorCode::Git, format!("cannot start git: {error}"))
}

pub(super) fn finish(command: &Command, input: Option<&[u8]>) -> Result<Vec<u8>> {
    let output = spawn(command, input)?;
    if output.status.success() {
        Ok(output.stdout)
    } else {
        Err(failed(&describe(command), &output))
    }
}

/// The same with at most `max` bytes of stdout, and whether there was more: a call
/// that prints more than anybody wants to see is ended.
pub(super) fn finish_up_to(command: &Command, max: u64) -> Result<(Vec<u8>, bool)> {
    let mut child = begin(command, Input::Nothing)?;
    let (bytes, more) = child.read_up_to(usize::try_from(max).unwrap_or(usize::MAX))?;
    if more {
        child.kill();
    }
    let status = child.wait()?;
    if more || status.success() {
        return Ok((bytes, more));
    }
    Err(Error::new(
        ErrorCode::Git,
        format!("`{}` failed ({status})", describe(command)),
    ))
}

/// The call without the options that every call has.
pub(super) fn describe(command: &Command) -> String {
    let words: Vec<String> = command
        .get_args()
        .map(|arg| arg.to_string_lossy().into_owned())
        .skip_while(|arg| arg == "-c" || arg.contains('=') && !arg.starts_with("--"))
        .filter(|arg| !arg.starts_with("--git-dir=") && !arg.starts_with("--work-tree="))
        .take(6)
        .collect();
    format!("git {}", words.join(" "))
}

pub(super) fn failed(described: &str, output: &Output) -> Error {
    let text = String::from_utf8_lossy(&output.stderr);
    let text = runner_core::text::cut_end(text.trim(), 2000).into_owned();
    let error = Error::new(ErrorCode::Git, format!("`{described}` failed: {text}"));
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
    let (major, minor) = MIN_VERSION;
    Error::new(
        ErrorCode::Git,
        format!("this git is too old: {text:?}, version {major}.{minor} or newer is needed"),
    )
    .hint("install a newer git")
}

/// Refuses a git that can do everything but this.
pub(super) fn require_version(wanted: (u32, u32), for_what: &str) -> Result<()> {
    let text = Git::check_version()?;
    if parse_version(&text).is_some_and(|version| version >= wanted) {
        return Ok(());
    }
    let (major, minor) = wanted;
    Err(Error::new(
        ErrorCode::Git,
        format!("{for_what} needs git {major}.{minor} or newer, this is {text:?}"),
    )
    .hint("install a newer git"))
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
}
