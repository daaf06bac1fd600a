//! The real codex binary for the tests: which one, and where `setup` put it.

use std::fs;
use std::path::PathBuf;

use crate::cmd::ToolCommand;
use crate::failure::{TaskFailure, TaskResult};
use crate::pinned;

/// The package, and the one version that the tests know the words of.
const PACKAGE: &str = "@openai/codex";
const VERSION: &str = "0.166.0";

/// Names the binary to the tests.
pub(crate) const VARIABLE: &str = "RUNNER_CODEX";

/// The binary, if the wanted version is there.
pub(crate) fn binary() -> Option<PathBuf> {
    let modules = folder().join("node_modules");
    let manifest = fs::read(modules.join(PACKAGE).join("package.json")).ok()?;
    let manifest: serde_json::Value = serde_json::from_slice(&manifest).ok()?;
    if manifest["version"] != VERSION {
        return None;
    }
    // The platform's own package lies beside it, as an optional dependency.
    let scope = fs::read_dir(modules.join(PACKAGE).parent()?).ok()?;
    let mut found: Vec<PathBuf> = scope
        .flatten()
        .filter_map(|entry| pinned::program_below(&entry.path().join("vendor"), "codex", 3))
        .collect();
    found.sort();
    found.into_iter().next()
}

/// Installs it into the build's folder.
pub(crate) fn install() -> TaskResult<()> {
    pinned::install_with_npm(&folder(), &format!("{PACKAGE}@{VERSION}"))?;
    match binary() {
        Some(_) => Ok(()),
        None => Err(TaskFailure::new(format!(
            "{PACKAGE} {VERSION} was installed, but it brought no program for this machine"
        ))
        .hint("it has them for x86-64 and arm64")),
    }
}

/// The command with the binary named to it.
pub(crate) fn named_to(cmd: ToolCommand) -> TaskResult<ToolCommand> {
    match binary() {
        Some(path) => Ok(cmd.env(VARIABLE, path)),
        None => Err(
            TaskFailure::new("the codex binary that the tests need is not there")
                .hint("run `cargo xtask setup`"),
        ),
    }
}

fn folder() -> PathBuf {
    pinned::folder("npm")
}
