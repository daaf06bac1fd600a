//! The real agent CLIs for the tests: which versions, and where `setup` put them.

use std::fs;
use std::path::{Path, PathBuf};

use crate::cmd::ToolCommand;
use crate::failure::{TaskFailure, TaskResult};
use crate::pinned;

/// A CLI in the one version that the tests know the words of.
#[derive(Clone, Copy)]
pub(crate) struct AgentCli {
    /// The program.
    pub(crate) command: &'static str,
    /// The package, whose platforms have packages beside it.
    package: &'static str,
    version: &'static str,
    /// The folder below the build's tools.
    folder: &'static str,
    /// How a platform's package begins with its name.
    platform: &'static str,
    /// Names the binary to the tests.
    pub(crate) variable: &'static str,
}

pub(crate) const CODEX: AgentCli = AgentCli {
    command: "codex",
    package: "@openai/codex",
    version: "0.166.0",
    folder: "npm",
    platform: "codex-",
    variable: "RUNNER_CODEX",
};

pub(crate) const CLAUDE: AgentCli = AgentCli {
    command: "claude",
    package: "@anthropic-ai/claude-code",
    version: "2.1.325",
    folder: "claude",
    platform: "claude-code-",
    variable: "RUNNER_CLAUDE",
};

pub(crate) const OPENCODE: AgentCli = AgentCli {
    command: "opencode",
    package: "opencode-ai",
    version: "1.18.33",
    folder: "opencode",
    platform: "opencode-",
    variable: "RUNNER_OPENCODE",
};

/// Each of them.
pub(crate) const ALL: [AgentCli; 3] = [CODEX, CLAUDE, OPENCODE];

impl AgentCli {
    /// The binary, if the wanted version is there.
    pub(crate) fn binary(&self) -> Option<PathBuf> {
        let package = self.folder().join("node_modules").join(self.package);
        let manifest = fs::read(package.join("package.json")).ok()?;
        let manifest: serde_json::Value = serde_json::from_slice(&manifest).ok()?;
        if manifest["version"] != self.version {
            return None;
        }
        self.binary_beside(package.parent()?)
    }

    /// The platform's own package lies beside it, as an optional dependency. Of several the one with
    /// the shortest name: others are for older processors.
    fn binary_beside(&self, scope: &Path) -> Option<PathBuf> {
        let entries = fs::read_dir(scope).ok()?.flatten();
        let mut platforms: Vec<String> = entries
            .filter_map(|entry| entry.file_name().into_string().ok())
            .filter(|name| {
                name.starts_with(self.platform) && !self.package.ends_with(name.as_str())
            })
            .collect();
        platforms.sort_by_key(|name| (name.len(), name.clone()));
        platforms
            .iter()
            .find_map(|name| pinned::program_below(&scope.join(name), self.command, 4))
    }

    /// Installs it into the build's folder.
    pub(crate) fn install(&self) -> TaskResult<()> {
        let wanted = format!("{}@{}", self.package, self.version);
        pinned::install_with_npm(&self.folder(), &wanted)?;
        match self.binary() {
            Some(_) => Ok(()),
            None => Err(TaskFailure::new(format!(
                "{wanted} was installed, but it brought no program for this machine"
            ))
            .hint("it has them for x86-64 and arm64")),
        }
    }

    fn folder(&self) -> PathBuf {
        pinned::folder(self.folder)
    }
}

/// The command with the binaries named to it.
pub(crate) fn named_to(mut cmd: ToolCommand) -> TaskResult<ToolCommand> {
    for cli in ALL {
        let Some(path) = cli.binary() else {
            let message = format!(
                "the {} binary that the tests need is not there",
                cli.command
            );
            return Err(TaskFailure::new(message).hint("run `cargo xtask setup`"));
        };
        cmd = cmd.env(cli.variable, path);
    }
    Ok(cmd)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_platforms_package_is_found() {
        let temp = tempfile::tempdir().unwrap();
        let place = |path: &str| {
            let path = temp.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "").unwrap();
        };
        assert_eq!(OPENCODE.binary_beside(temp.path()), None);
        place("opencode-ai/bin/opencode");
        assert_eq!(OPENCODE.binary_beside(temp.path()), None);
        place("opencode-linux-x64-baseline/bin/opencode");
        place("opencode-linux-x64/bin/opencode");
        let found = temp.path().join("opencode-linux-x64/bin/opencode");
        assert_eq!(OPENCODE.binary_beside(temp.path()), Some(found));
        place("codex-linux-x64/vendor/triple/bin/codex");
        let found = temp.path().join("codex-linux-x64/vendor/triple/bin/codex");
        assert_eq!(CODEX.binary_beside(temp.path()), Some(found));
    }
}
