//! Packages of the npm registry and the Python index in folders of their own, where nothing else
//! sees them.

use std::fs;
use std::path::{Path, PathBuf};

use crate::cmd::{ToolCommand, find_program, tools_dir};
use crate::failure::{FailureContext as _, TaskFailure, TaskResult};
use crate::out;

/// The folder of the tools for one purpose.
pub(crate) fn folder(purpose: &str) -> PathBuf {
    tools_dir().join(purpose)
}

/// Installs a package, such as `name@1.2.3`, into `node_modules` of a folder. None of its scripts run.
pub(crate) fn install_with_npm(folder: &Path, package: &str) -> TaskResult<()> {
    if find_program("npm").is_none() {
        let failure = TaskFailure::new(format!("there is no npm to install {package} with"));
        return Err(failure.hint(
            "install Node.js with npm (the packages nodejs and npm, or nodejs.org), then go on",
        ));
    }
    // Npm takes the nearest folder with a manifest; let that be this one.
    fs::create_dir_all(folder).context(folder.display())?;
    let npm = ToolCommand::new("npm")
        .words("install --ignore-scripts --prefer-offline --no-audit --no-fund --prefix")
        .arg(folder)
        .arg(package)
        .hint("it takes a connection to the npm registry, once");
    out::step(&format!("npm install {package}"), || npm.stdout())?;
    Ok(())
}

/// Installs a package, such as `name==1.2.3`, into a folder of modules.
pub(crate) fn install_with_pip(folder: &Path, package: &str) -> TaskResult<()> {
    // --target keeps pip away from the system's packages, so that it works where
    // those are managed by the distribution, and without a virtual environment.
    let pip = pip("install --quiet --upgrade --target")
        .arg(folder)
        .arg(package);
    out::step(&format!("pip install {package}"), || pip.stdout())?;
    Ok(())
}

/// A command of pip, with arguments that hold no spaces.
pub(crate) fn pip(words: &str) -> ToolCommand {
    ToolCommand::new("python3")
        .words("-m pip")
        .words(words)
        .hint("it takes pip, and a connection to the Python index, once")
}

/// The program of this name in a folder, however deep a package puts it this time.
pub(crate) fn program_below(folder: &Path, name: &str, depth: usize) -> Option<PathBuf> {
    let program = folder.join(name);
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
        .find_map(|folder| program_below(folder, name, depth - 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_is_found_wherever_the_package_has_it() {
        let temp = tempfile::tempdir().unwrap();
        assert_eq!(program_below(temp.path(), "codex", 3), None);
        let deep = temp.path().join("some-triple/bin");
        fs::create_dir_all(deep.join("codex")).unwrap();
        assert_eq!(program_below(temp.path(), "codex", 3), None);
        fs::remove_dir(deep.join("codex")).unwrap();
        fs::write(deep.join("codex"), "").unwrap();
        assert_eq!(
            program_below(temp.path(), "codex", 3),
            Some(deep.join("codex"))
        );
        assert_eq!(program_below(temp.path(), "codex", 1), None);
    }
}
