//! The page of `runner ui`: its packages, its build and its tests.
//!
//! The binary carries the page if that was built before it. Building it takes Node.js; a
//! runner without the page works all the same and says how to have it.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use crate::cmd::{ToolCommand, find_program, release_bin, workspace_root};
use crate::failure::{TaskFailure, TaskResult};
use crate::out;

/// The oldest Node.js that the build tools run on.
const OLDEST_NODE: u32 = 20;

/// How the tests find the binary.
const BINARY_VARIABLE: &str = "RUNNER_BIN";

/// Checks, tests and builds the page; what needs a browser is [`test_in_browser`].
pub(crate) fn check_and_build() -> TaskResult<()> {
    node()?;
    ensure_packages()?;
    for (script, hint) in [
        ("check", "fix what svelte-check says"),
        ("test", "run one alone: `npm --prefix ui test -- NAME`"),
        ("build", "see what vite says above"),
    ] {
        let npm = npm(&["run", script]).hint(hint);
        out::step(&format!("npm run {script}"), || npm.run())?;
    }
    Ok(())
}

/// Plays the page in Chromium: with a stand-in server, and with the release binary and
/// real runs.
pub(crate) fn test_in_browser() -> TaskResult<()> {
    node()?;
    ensure_packages()?;
    if !dist().join("index.html").is_file() {
        build()?;
    }
    let cargo = ToolCommand::cargo("build --release --locked --package runner-cli");
    out::step(&cargo.label(), || cargo.run())?;
    let npm = npm(&["run", "test:browser"])
        .env(BINARY_VARIABLE, release_bin("runner"))
        .hint("one alone: `RUNNER_BIN=… npm --prefix ui run test:browser -- -t NAME`; pictures are in ui/screenshots");
    out::step("npm run test:browser", || npm.run())
}

/// Builds the page for a binary that will carry it. Without Node.js, or when it fails,
/// that is said and the binary is built without.
pub(crate) fn build_if_possible() {
    let built = node()
        .and_then(|()| ensure_packages())
        .and_then(|()| build());
    if let Err(failure) = built {
        out::note(&format!("the page of `runner ui` is not built: {failure}"));
        if let Some(remedy) = failure.remedy() {
            out::note(remedy);
        }
        out::note("going on without it: everything but the page is the same");
    }
}

/// Whether the packages are there, as the lock file wants them.
pub(crate) fn has_packages() -> bool {
    // Npm writes this one last, so a broken installation has none.
    let installed = modified(&folder().join("node_modules/.package-lock.json"));
    let wanted = modified(&folder().join("package-lock.json"));
    installed.is_some() && installed >= wanted
}

/// Installs them from the npm registry, exactly as locked. None of their scripts run.
pub(crate) fn install_packages() -> TaskResult<()> {
    node()?;
    let npm = npm(&[
        "ci",
        "--ignore-scripts",
        "--prefer-offline",
        "--no-audit",
        "--no-fund",
    ])
    .hint("it takes a connection to the npm registry, once");
    out::step("npm ci in ui/", || npm.stdout())?;
    Ok(())
}

fn ensure_packages() -> TaskResult<()> {
    if has_packages() {
        return Ok(());
    }
    install_packages()
}

fn build() -> TaskResult<()> {
    let npm = npm(&["run", "build"]).hint("see what vite says");
    out::step("npm run build in ui/", || npm.stdout())?;
    Ok(())
}

/// Fails unless there is a Node.js that is new enough.
fn node() -> TaskResult<()> {
    let hint = format!(
        "install Node.js {OLDEST_NODE} or newer with npm (nodejs.org, or your system's packages)"
    );
    if find_program("node").is_none() || find_program("npm").is_none() {
        return Err(TaskFailure::new("there is no Node.js with npm").hint(hint));
    }
    let version = ToolCommand::new("node").arg("--version").stdout()?;
    let version = String::from_utf8_lossy(&version);
    match major(&version) {
        Some(major) if major >= OLDEST_NODE => Ok(()),
        _ => Err(TaskFailure::new(format!("Node.js {} is too old", version.trim())).hint(hint)),
    }
}

/// `v20.20.2` is 20.
fn major(version: &str) -> Option<u32> {
    version
        .trim()
        .strip_prefix('v')?
        .split('.')
        .next()?
        .parse()
        .ok()
}

fn npm(words: &[&str]) -> ToolCommand {
    ToolCommand::new("npm")
        .args(words)
        .dir(folder())
        .env("CI", "1")
}

fn modified(path: &Path) -> Option<SystemTime> {
    fs::metadata(path).and_then(|meta| meta.modified()).ok()
}

fn folder() -> PathBuf {
    workspace_root().join("ui")
}

fn dist() -> PathBuf {
    folder().join("dist")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_of_node_is_read() {
        let cases = [
            ("v20.20.2\n", Some(20)),
            ("v8.1.0", Some(8)),
            ("20.1", None),
            ("", None),
        ];
        for (version, expected) in cases {
            assert_eq!(major(version), expected, "{version}");
        }
    }
}
