//! The real codex binary for the tests: which one, and where `setup` put it.

use std::fs;
use std::path::{Path, PathBuf};

use crate::cmd::{ToolCommand, find_program, target_dir};
use crate::failure::{TaskFailure, TaskResult};
use crate::out;

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
        .filter_map(|entry| program_below(&entry.path().join("vendor"), 3))
        .collect();
    found.sort();
    found.into_iter().next()
}

/// The program in a folder, however deep the package puts it this time.
fn program_below(folder: &Path, depth: usize) -> Option<PathBuf> {
    let program = folder.join("codex");
    if program.is_file() {
        return Some(program);
    }
    if depth == 0 {
        return None;
    }
    let mut folders: Vec<PathBuf> = fs::read_dir(folder)
        .ok()?
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.is_dir())
        .collect();
    folders.sort();
    folders
        .iter()
        .find_map(|folder| program_below(folder, depth - 1))
}

/// Installs it into the build's folder. None of the package's scripts run.
pub(crate) fn install() -> TaskResult<()> {
    if find_program("npm").is_none() {
        return Err(TaskFailure::new(format!(
            "there is no npm to install {PACKAGE} {VERSION} with"
        ))
        .hint(
            "install Node.js with npm (the packages nodejs and npm, or nodejs.org), then go on",
        ));
    }
    let folder = folder();
    let npm = ToolCommand::new("npm")
        .words("install --ignore-scripts --no-audit --no-fund --prefix")
        .arg(&folder)
        .arg(format!("{PACKAGE}@{VERSION}"))
        .hint("it takes a connection to the npm registry, once");
    // Npm takes the nearest folder with a manifest; let that be this one.
    fs::create_dir_all(&folder)
        .map_err(|error| TaskFailure::new(format!("{}: {error}", folder.display())))?;
    out::step(&format!("npm install {PACKAGE}@{VERSION}"), || npm.stdout())?;
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
    target_dir().join("tools/npm")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_is_found_wherever_the_package_has_it() {
        let temp = tempfile::tempdir().unwrap();
        assert_eq!(program_below(temp.path(), 3), None);
        let deep = temp.path().join("some-triple/bin");
        fs::create_dir_all(deep.join("codex")).unwrap();
        assert_eq!(program_below(temp.path(), 3), None);
        fs::remove_dir(deep.join("codex")).unwrap();
        fs::write(deep.join("codex"), "").unwrap();
        assert_eq!(program_below(temp.path(), 3), Some(deep.join("codex")));
        assert_eq!(program_below(temp.path(), 1), None);
    }
}
