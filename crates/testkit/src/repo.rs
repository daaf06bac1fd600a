//! The temporary repository that a test works in.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::json;
use tempfile::TempDir;

use crate::agent::TestAgent;
use crate::config::TestConfig;
use crate::run::{TestChild, TestRun, command};

/// Author and committer date of the test's own commits, so that their ids, and
/// the run id made from one, are the same in every run.
const COMMIT_DATE: &str = "2001-02-03T04:05:06Z";

/// A temporary folder with a home, a git repository and a scripted agent.
///
/// All of it vanishes when this is dropped; set `TESTKIT_KEEP` to look at it.
#[derive(Debug)]
pub struct TestRepo {
    /// Removes the folder when dropped.
    _temp: TempDir,
    repo: PathBuf,
    runner_bin: PathBuf,
    env: BTreeMap<OsString, OsString>,
    agent: TestAgent,
    config: TestConfig,
    calls: AtomicU32,
}

impl TestRepo {
    /// A repository on `main` with a git identity and one commit, a README.
    pub fn new(runner_bin: impl Into<PathBuf>) -> Self {
        let identity = "[user]\n\tname = Test Author\n\temail = author@example.test\n[init]\n\tdefaultBranch = main\n";
        let repo = Self::with_home(runner_bin.into(), identity);
        repo.write("README.md", "# A project\n");
        repo.commit_all("Begin");
        repo
    }

    /// A repository on `main` without a commit and without a git identity.
    pub fn empty(runner_bin: impl Into<PathBuf>) -> Self {
        // Git would else make one up from the names of user and host.
        Self::with_home(runner_bin.into(), "[user]\n\tuseConfigOnly = true\n")
    }

    fn with_home(runner_bin: PathBuf, git_config: &str) -> Self {
        let mut temp = tempfile::Builder::new()
            .prefix("runner-test-")
            .tempdir()
            .expect("a temporary folder can be made");
        crate::process::end_ignored_hangups();
        if std::env::var_os("TESTKIT_KEEP").is_some() {
            temp.disable_cleanup(true);
        }
        // Git and /proc show real paths; so tests compare with real paths.
        let root = temp.path().canonicalize().expect("the folder is there");
        let repo = root.join("repo");
        for folder in ["home", "repo", "tmp", "out"] {
            fs::create_dir(root.join(folder)).expect("a folder can be made");
        }
        fs::write(root.join("home/.gitconfig"), git_config).expect("a file can be written");
        let agent = TestAgent::install(root.join("agent"));
        let config = TestConfig::scripted(&agent.argv());
        // Relative to where the test is, not to the repository; a bare name is
        // looked up on the PATH.
        let runner_bin = match std::path::absolute(&runner_bin) {
            Ok(absolute) if runner_bin.components().count() > 1 => absolute,
            _ => runner_bin,
        };
        let mut this = Self {
            _temp: temp,
            repo,
            runner_bin,
            env: BTreeMap::new(),
            agent,
            config,
            calls: AtomicU32::new(0),
        };
        if let Some(path) = std::env::var_os("PATH") {
            this.env("PATH", path);
        }
        this.env("HOME", root.join("home"))
            .env("TMPDIR", root.join("tmp"))
            .env("LANG", "C.UTF-8")
            .env("TZ", "UTC")
            // The waits between errors that are tried again, made short.
            .env("RUNNER_RETRY_DELAYS_SECS", "0,0,0");
        this.git(&["init", "--quiet", "-b", "main"]);
        this
    }

    /// Lets children find the toolchains that live in the home of whoever runs the tests; the rest
    /// of that home is not for them.
    pub fn machine_toolchains(&mut self) -> &mut Self {
        let home = PathBuf::from(std::env::var_os("HOME").unwrap_or_default());
        for (name, folder) in [("RUSTUP_HOME", ".rustup"), ("PYENV_ROOT", ".pyenv")] {
            let there = std::env::var_os(name).map_or_else(|| home.join(folder), PathBuf::from);
            if there.is_dir() {
                self.env(name, there);
            }
        }
        self
    }

    // --- files

    /// The repository's folder, or a path in it.
    pub fn path(&self, path: impl AsRef<Path>) -> PathBuf {
        self.repo.join(path)
    }

    /// The folder around home, repository and agent. Every process of this test
    /// has it in its environment: the marker to look for survivors with.
    pub fn root(&self) -> &Path {
        self.repo.parent().expect("the repository lies in a folder")
    }

    /// The folder of the agent's scripts: outside the repository, and so a place
    /// for what they leave for the test.
    pub fn agent_dir(&self) -> &Path {
        self.agent.dir()
    }

    /// Writes a file of the repository, with the folders above it.
    #[track_caller]
    pub fn write(&self, path: impl AsRef<Path>, text: impl AsRef<[u8]>) {
        let path = self.path(path);
        let folder = path.parent().expect("a file lies in a folder");
        fs::create_dir_all(folder)
            .and_then(|()| fs::write(&path, text))
            .unwrap_or_else(|error| panic!("cannot write {}: {error}", path.display()));
    }

    /// The text of a file of the repository.
    #[track_caller]
    pub fn read(&self, path: impl AsRef<Path>) -> String {
        let path = self.path(path);
        fs::read_to_string(&path)
            .unwrap_or_else(|error| panic!("cannot read {}: {error}", path.display()))
    }

    /// Whether something lies at that path, be it a dangling link.
    pub fn exists(&self, path: impl AsRef<Path>) -> bool {
        self.path(path).symlink_metadata().is_ok()
    }

    // --- git

    /// Runs git in the repository and returns its trimmed stdout.
    #[track_caller]
    pub fn git<S: AsRef<OsStr>>(&self, args: &[S]) -> String {
        match self.git_try(args) {
            Ok(stdout) => stdout,
            Err(output) => panic!("{output}"),
        }
    }

    /// Runs git in the repository: its trimmed stdout, or all its output when it
    /// failed.
    pub fn git_try<S: AsRef<OsStr>>(&self, args: &[S]) -> Result<String, String> {
        let mut cmd = self.hermetic("git");
        cmd.args(args)
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .env("GIT_AUTHOR_DATE", COMMIT_DATE)
            .env("GIT_COMMITTER_DATE", COMMIT_DATE);
        let output = cmd.output().expect("git starts");
        let stdout = String::from_utf8_lossy(&output.stdout)
            .trim_end()
            .to_owned();
        if output.status.success() {
            return Ok(stdout);
        }
        let stderr = String::from_utf8_lossy(&output.stderr);
        let args: Vec<_> = args.iter().map(|arg| arg.as_ref().display()).collect();
        Err(format!(
            "git {args:?}: {}\n{stdout}\n{stderr}",
            output.status
        ))
    }

    /// Commits all that changed, or nothing at all, and returns the commit.
    #[track_caller]
    pub fn commit_all(&self, message: &str) -> String {
        self.git(&["add", "-A"]);
        self.git(&["commit", "--quiet", "--allow-empty", "-m", message]);
        self.head()
    }

    // --- the runner

    /// Sets a variable for everything that is started from here on.
    pub fn env(&mut self, key: impl Into<OsString>, value: impl Into<OsString>) -> &mut Self {
        self.env.insert(key.into(), value.into());
        self
    }

    /// Takes a variable away.
    pub fn env_remove(&mut self, key: impl AsRef<OsStr>) -> &mut Self {
        self.env.remove(key.as_ref());
        self
    }

    /// Runs `runner` to its end, with null stdin.
    #[track_caller]
    pub fn runner<S: AsRef<OsStr>>(&self, args: &[S]) -> TestRun {
        self.spawn_runner(args).wait()
    }

    /// The prepared command of a `runner` call.
    pub fn runner_cmd<S: AsRef<OsStr>>(&self, args: &[S]) -> Command {
        let mut cmd = self.hermetic(&self.runner_bin);
        cmd.args(args);
        cmd
    }

    /// Starts `runner`; it is killed when the result is dropped.
    pub fn spawn_runner<S: AsRef<OsStr>>(&self, args: &[S]) -> TestChild {
        self.spawn(self.runner_cmd(args))
    }

    /// Starts a command as a `runner` call is started: a changed
    /// [`runner_cmd`](Self::runner_cmd), or one that wraps it.
    pub fn spawn(&self, cmd: Command) -> TestChild {
        let call = self.calls.fetch_add(1, Ordering::Relaxed);
        let base = self.root().join("out").join(call.to_string());
        TestChild::spawn(cmd, &base.display().to_string())
    }

    /// A command in the repository with this test's environment and no other.
    pub fn hermetic(&self, program: impl AsRef<OsStr>) -> Command {
        let mut cmd = command(program);
        cmd.current_dir(&self.repo).env_clear().envs(&self.env);
        cmd
    }

    // --- the agent and the run

    /// Sets the agent's script for every iteration that has none of its own.
    pub fn agent(&self, script: &str) -> &Self {
        self.agent.set(None, script);
        self
    }

    /// Sets the agent's script for one iteration.
    pub fn agent_at(&self, iter: u64, script: &str) -> &Self {
        self.agent.set(Some(iter), script);
        self
    }

    /// The agent's sessions so far, as `ITER NODE`.
    pub fn agent_calls(&self) -> Vec<String> {
        self.agent.calls()
    }

    /// Changes the configuration that [`start_run`](Self::start_run) or
    /// [`write_config`](Self::write_config) will write.
    pub fn config(&mut self, change: impl FnOnce(&mut TestConfig)) -> &mut Self {
        change(&mut self.config);
        self
    }

    /// Writes the configuration into the repository.
    #[track_caller]
    pub fn write_config(&self) {
        self.write(".runner/state/config.toml", self.config.to_toml());
    }

    /// Initialises and starts a run with the scripted agent.
    ///
    /// `goal` is the whole GOAL.md and may begin with front matter. The guard is
    /// not tried beforehand: tests count its runs.
    #[track_caller]
    pub fn start_run(&mut self, goal: &str, guard_argv: &[&str]) -> TestRun {
        self.init_run(goal, guard_argv);
        self.runner(&["start", "--no-guard-check"]).success()
    }

    /// Everything of [`start_run`](Self::start_run) but `runner start`.
    #[track_caller]
    pub fn init_run(&mut self, goal: &str, guard_argv: &[&str]) {
        self.config.set("guard.command", json!(guard_argv));
        // The guard of the call is overwritten with the file: it only keeps init
        // from looking for one.
        let init = [
            "init",
            "--no-try",
            "--backend",
            "command",
            "--guard",
            "true",
        ];
        self.runner(&init).success();
        self.write_config();
        self.write(".runner/GOAL.md", goal);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::{assert_no_process, assert_processes_end, eventually, processes_with_env};

    #[test]
    fn two_repositories_have_the_same_first_commit() {
        let one = TestRepo::new("runner");
        let two = TestRepo::new("runner");
        assert_eq!(one.head(), two.head());
        assert_eq!(one.git(&["branch", "--show-current"]), "main");
        assert_eq!(one.subjects(), ["Begin"]);
        one.assert_clean();
    }

    #[test]
    fn an_empty_repository_has_no_commit_and_no_identity() {
        let repo = TestRepo::empty("runner");
        assert!(repo.git_try(&["rev-parse", "--verify", "HEAD"]).is_err());
        repo.write("a", "a");
        repo.git(&["add", "-A"]);
        let error = repo.git_try(&["commit", "-m", "x"]).unwrap_err();
        assert!(error.contains("no email was given"), "{error}");
    }

    #[test]
    fn the_environment_is_cleared() {
        // Any program stands in for the runner.
        let mut repo = TestRepo::new("/usr/bin/env");
        repo.env("ADDED", "1")
            .env("GONE", "1")
            .env_remove("GONE")
            .env_remove("RUNNER_RETRY_DELAYS_SECS");
        let run = repo.runner::<&str>(&[]).success();
        let mut keys: Vec<_> = run
            .stdout
            .lines()
            .filter_map(|line| line.split_once('='))
            .map(|(key, _)| key)
            .collect();
        keys.sort_unstable();
        assert_eq!(keys, ["ADDED", "HOME", "LANG", "PATH", "TMPDIR", "TZ"]);
    }

    #[test]
    fn a_dropped_call_is_killed_and_the_folder_removed() {
        let repo = TestRepo::new("/bin/sleep");
        let marker = repo.root().display().to_string();
        let running = repo.spawn_runner(&["60"]);
        eventually("the call", std::time::Duration::from_secs(10), || {
            processes_with_env(&marker).len() == 1
        });
        drop(running);
        assert_no_process(&marker);
        assert_processes_end(&marker, std::time::Duration::ZERO);
        let folder = repo.root().to_owned();
        drop(repo);
        assert!(!folder.exists());
    }

    #[test]
    fn a_run_is_initialised_with_the_scripted_agent() {
        let mut repo = TestRepo::new("/bin/true");
        repo.config(|config| {
            config.set("max_iterations", 7);
        });
        repo.start_run("Do it.\n", &["just", "ci"]);
        assert_eq!(repo.read(".runner/GOAL.md"), "Do it.\n");
        let config = repo.read(".runner/state/config.toml");
        assert!(config.contains("max_iterations = 7"), "{config}");
        assert!(config.contains("command = [\"just\",\"ci\"]"), "{config}");
        assert!(config.contains("agent/agent.sh"), "{config}");
    }
}
