//! Commands of the developer tasks, and where things lie.

use std::env;
use std::ffi::{OsStr, OsString};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::OnceLock;

use crate::failure::{FailureContext as _, TaskFailure, TaskResult};

/// Folders of [`tools_dir`] with programs; they come first on the PATH of every command.
const TOOL_DIRS: [&str; 2] = ["bin", "python/bin"];

/// Names another folder for the tools.
const TOOLS_VARIABLE: &str = "RUNNER_TOOLS_DIR";

/// A command in the workspace root, with the tools that `setup` installed.
pub(crate) struct ToolCommand {
    inner: Command,
    hint: Option<String>,
}

impl ToolCommand {
    #[allow(clippy::disallowed_methods)] // developer tools outlive nobody: they are waited for
    pub(crate) fn new(program: impl AsRef<OsStr>) -> Self {
        let mut inner = Command::new(program);
        inner.current_dir(workspace_root());
        inner.env("PATH", tool_path()).stdin(Stdio::null());
        Self { inner, hint: None }
    }

    /// The cargo that runs this task.
    pub(crate) fn cargo(words: &str) -> Self {
        let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        Self::new(cargo).words(words)
    }

    pub(crate) fn arg(mut self, arg: impl AsRef<OsStr>) -> Self {
        self.inner.arg(arg);
        self
    }

    pub(crate) fn args<S: AsRef<OsStr>>(mut self, args: impl IntoIterator<Item = S>) -> Self {
        self.inner.args(args);
        self
    }

    /// Adds arguments that hold no spaces.
    pub(crate) fn words(mut self, words: &str) -> Self {
        self.inner.args(words.split_whitespace());
        self
    }

    pub(crate) fn env(mut self, key: &str, value: impl AsRef<OsStr>) -> Self {
        self.inner.env(key, value);
        self
    }

    /// Starts from an empty environment but for the PATH.
    pub(crate) fn clear_env(mut self) -> Self {
        self.inner.env_clear().env("PATH", tool_path());
        self
    }

    pub(crate) fn dir(mut self, dir: impl AsRef<Path>) -> Self {
        self.inner.current_dir(dir);
        self
    }

    /// What to do when it fails.
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Runs it with its output shown; fails unless it succeeds.
    pub(crate) fn run(mut self) -> TaskResult<()> {
        let label = self.label();
        let status = self
            .inner
            .status()
            .context(format!("cannot start `{label}`"))?;
        if status.success() {
            return Ok(());
        }
        let failure = TaskFailure::new(format!("`{label}` failed with {status}"));
        Err(self.with_hint(failure))
    }

    /// Runs it and returns its stdout; fails, with what it said, unless it
    /// succeeds.
    pub(crate) fn stdout(mut self) -> TaskResult<Vec<u8>> {
        let label = self.label();
        let output = self
            .inner
            .output()
            .context(format!("cannot start `{label}`"))?;
        if output.status.success() {
            return Ok(output.stdout);
        }
        let Output {
            status,
            stdout,
            stderr,
        } = output;
        let said = [stdout, stderr].concat();
        let said = String::from_utf8_lossy(&said);
        let failure = TaskFailure::new(format!("`{label}` failed with {status}\n{}", said.trim()));
        Err(self.with_hint(failure))
    }

    /// The same with something to read on stdin, which must fit into a pipe.
    pub(crate) fn stdout_with(mut self, input: &[u8]) -> TaskResult<Vec<u8>> {
        if input.is_empty() {
            return self.stdout();
        }
        let (reader, mut writer) = std::io::pipe().context("a pipe")?;
        writer.write_all(input).context("a pipe")?;
        drop(writer);
        self.inner.stdin(reader);
        self.stdout()
    }

    /// Starts it with its stdout going there.
    pub(crate) fn spawn(mut self, stdout: Stdio) -> TaskResult<Child> {
        let label = self.label();
        self.inner
            .stdout(stdout)
            .spawn()
            .context(format!("cannot start `{label}`"))
    }

    /// The command as one would type it.
    pub(crate) fn label(&self) -> String {
        let program = Path::new(self.inner.get_program());
        let program = program.file_name().unwrap_or(program.as_os_str());
        let words = std::iter::once(program).chain(self.inner.get_args());
        let words: Vec<_> = words.map(OsStr::to_string_lossy).collect();
        words.join(" ")
    }

    fn with_hint(self, failure: TaskFailure) -> TaskFailure {
        match self.hint {
            Some(hint) => failure.hint(hint),
            None => failure,
        }
    }
}

/// The folder of the workspace's Cargo.toml.
pub(crate) fn workspace_root() -> &'static Path {
    static ROOT: OnceLock<PathBuf> = OnceLock::new();
    ROOT.get_or_init(|| {
        // Cargo's word of now before that of the build: the checkout may have moved.
        let xtask = env::var_os("CARGO_MANIFEST_DIR")
            .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
        xtask.parent().map(Path::to_path_buf).unwrap_or(xtask)
    })
}

/// The folder that cargo builds into, told from where this program lies: so it
/// holds however the folder was configured.
pub(crate) fn target_dir() -> PathBuf {
    let built = env::current_exe().ok().and_then(|program| {
        let is_profile = |dir: &&Path| dir.ends_with("debug") || dir.ends_with("release");
        let profile = program.ancestors().find(is_profile)?;
        profile.parent().map(Path::to_path_buf)
    });
    built.unwrap_or_else(|| workspace_root().join("target"))
}

/// Where `setup` puts tools: one folder for all checkouts of this user, so that a second one
/// installs nothing again. Root's is open to the users that tests become.
pub(crate) fn tools_dir() -> PathBuf {
    let named = env::var_os(TOOLS_VARIABLE).map(PathBuf::from);
    if let Some(named) = named.filter(|path| path.is_absolute()) {
        return named;
    }
    let cache = if crate::setup::is_root() {
        Some(PathBuf::from("/var/cache"))
    } else {
        let own = env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
        own.filter(|path| path.is_absolute())
            .or_else(|| Some(PathBuf::from(env::var_os("HOME")?).join(".cache")))
    };
    cache.map_or_else(
        || target_dir().join("tools"),
        |cache| cache.join("runner-xtask"),
    )
}

/// The built release binary of that name.
pub(crate) fn release_bin(name: &str) -> PathBuf {
    target_dir().join("release").join(name)
}

/// Where a program lies on the PATH of our commands.
pub(crate) fn find_program(name: &str) -> Option<PathBuf> {
    use std::os::unix::fs::PermissionsExt as _;
    env::split_paths(&tool_path())
        .map(|dir| dir.join(name))
        .find(|path| {
            path.metadata()
                .is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
        })
}

/// PATH with the folders of our own tools in front.
fn tool_path() -> OsString {
    let path = env::var_os("PATH").unwrap_or_default();
    let own = TOOL_DIRS.map(|dir| tools_dir().join(dir));
    let all: Vec<PathBuf> = own.into_iter().chain(env::split_paths(&path)).collect();
    // A folder with a colon in its name cannot be on a PATH.
    env::join_paths(all).unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_carries_output_and_hint() {
        let failure = ToolCommand::new("sh")
            .args(["-c", "echo oh no >&2; exit 4"])
            .hint("be brave")
            .stdout()
            .unwrap_err();
        assert!(failure.to_string().contains("oh no"), "{failure}");
        assert!(failure.to_string().contains('4'), "{failure}");
        assert_eq!(failure.remedy(), Some("be brave"));
    }

    #[test]
    fn finds_programs_and_the_workspace() {
        assert!(find_program("sh").is_some());
        assert!(find_program("no-such-program-here").is_none());
        assert!(workspace_root().join("xtask/Cargo.toml").is_file());
    }
}
