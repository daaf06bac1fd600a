//! Real programs in real containment, by each mechanism, as this user and (for root) as `nobody`.
//!
//! A mechanism that is not there makes its tests fail, with words: silently they would prove
//! nothing. On a machine that cannot have one, set `RUNNER_SANDBOX_TESTS=skip`.
#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

mod attributes;
mod nested;
mod owned;
mod paths;
mod processes;
mod reads;
mod tools;
mod writes;

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use runner_sandbox::{Mechanism, SandboxSupport};
use tempfile::TempDir;

/// The binary of this crate's tests.
const BINARY: &str = env!("CARGO_BIN_EXE_sandbox-test");

/// Longer than anything takes on a loaded machine: reaching it is a failure.
const LONG: Duration = Duration::from_secs(60);

/// The user that root becomes to be nobody in particular.
const NOBODY: u32 = 65_534;

/// A project with folders around it that are none of its business.
struct Case {
    mechanism: &'static str,
    nobody: bool,
    base: TempDir,
    project: PathBuf,
    binary: PathBuf,
    /// `--rw PATH`, `--ro PATH`.
    options: Vec<OsString>,
    env: Vec<(OsString, OsString)>,
}

impl Case {
    fn new(mechanism: &'static str, nobody: bool) -> Self {
        let base = tempfile::tempdir().unwrap();
        let root = base.path().canonicalize().unwrap();
        for dir in ["project", "tmp", "home", "outside"] {
            fs::create_dir(root.join(dir)).unwrap();
        }
        fs::write(root.join("outside/file"), "untouched").unwrap();
        fs::write(root.join("home/file"), "untouched").unwrap();
        let mut binary = PathBuf::from(BINARY);
        if nobody {
            // The build folder may be closed to others. Copied by another process: one that this
            // one forks meanwhile would hold the file open, and it could not be executed.
            binary = root.join("sandbox-test");
            let copied = Command::new("cp").arg(BINARY).arg(&binary).status();
            assert!(copied.unwrap().success());
            fs::set_permissions(&root, fs::Permissions::from_mode(0o755)).unwrap();
        }
        let mut case = Self {
            mechanism,
            nobody,
            project: root.join("project"),
            base,
            binary,
            options: Vec::new(),
            env: Vec::new(),
        };
        let tmp = root.join("tmp");
        case.option("--tmp", &tmp);
        let path = std::env::var_os("PATH").unwrap();
        for (name, value) in [
            ("PATH", path),
            ("HOME", root.join("home").into()),
            ("TMPDIR", tmp.into()),
            ("BASE", root.into()),
            ("LC_ALL", "C".into()),
        ] {
            case.env.push((name.into(), value));
        }
        case.give_away();
        case
    }

    /// The real path of something beside the project.
    fn path(&self, name: &str) -> PathBuf {
        self.base.path().canonicalize().unwrap().join(name)
    }

    fn option(&mut self, option: &str, path: &Path) {
        self.options.extend([option.into(), path.into()]);
    }

    fn set(&mut self, name: &str, value: impl Into<OsString>) {
        self.env.push((name.into(), value.into()));
    }

    /// A file below the base, and the folders above it.
    fn write(&self, name: &str, content: &str) -> PathBuf {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, content).unwrap();
        self.give_away();
        path
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap_or_else(|error| format!("{name}: {error}"))
    }

    /// All that is below the base belongs to whoever runs the case.
    fn give_away(&self) {
        fn walk(path: &Path) {
            std::os::unix::fs::lchown(path, Some(NOBODY), Some(NOBODY)).unwrap();
            if path.is_dir() && !path.is_symlink() {
                for entry in fs::read_dir(path).unwrap() {
                    walk(&entry.unwrap().path());
                }
            }
        }
        if self.nobody {
            walk(self.base.path());
            chown(self.base.path(), Some(NOBODY), Some(NOBODY)).unwrap();
        }
    }

    /// The program as this user, without containment.
    fn plain(&self, argv: &[&str]) -> Command {
        let mut cmd = Command::new(argv[0]);
        cmd.args(&argv[1..]).current_dir(&self.project);
        self.prepare(&mut cmd);
        cmd
    }

    fn contained<S: AsRef<std::ffi::OsStr>>(&self, argv: &[S]) -> Command {
        let mut cmd = Command::new(&self.binary);
        cmd.arg("run").arg(self.mechanism).arg(&self.project);
        cmd.args(&self.options).arg("--").args(argv);
        self.prepare(&mut cmd);
        cmd
    }

    fn prepare(&self, cmd: &mut Command) {
        cmd.env_clear().envs(self.env.iter().map(|(k, v)| (k, v)));
        cmd.stdin(Stdio::null());
        if self.nobody {
            cmd.uid(NOBODY).gid(NOBODY);
        }
    }

    fn run<S: AsRef<std::ffi::OsStr>>(&self, argv: &[S]) -> Ran {
        Ran::of(&self.contained(argv).output().unwrap())
    }

    fn sh(&self, script: &str) -> Ran {
        self.run(&["sh", "-c", script])
    }

    /// Runs it and expects success.
    fn works(&self, script: &str) -> String {
        let ran = self.sh(script);
        assert_eq!(ran.code, Some(0), "{self}: {script}: {ran:?}");
        ran.stdout
    }

    fn is_bubblewrap(&self) -> bool {
        self.mechanism == "bubblewrap"
    }

    /// The chosen mechanism as the library has it.
    fn chosen(&self) -> Mechanism {
        if self.is_bubblewrap() {
            Mechanism::Bubblewrap {
                program: "bwrap".into(),
            }
        } else {
            Mechanism::Landlock
        }
    }
}

impl std::fmt::Display for Case {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let user = if self.nobody { "nobody" } else { "this user" };
        write!(f, "{} as {user}", self.mechanism)
    }
}

/// How it went.
#[derive(Debug)]
struct Ran {
    code: Option<i32>,
    signal: Option<i32>,
    stdout: String,
    stderr: String,
}

impl Ran {
    fn of(output: &Output) -> Self {
        Self {
            code: output.status.code(),
            signal: output.status.signal(),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }
}

/// Once per mechanism and user.
fn each(test: impl Fn(Case)) {
    for mechanism in ["bubblewrap", "landlock"] {
        with(mechanism, &test);
    }
}

/// Once per user.
fn with(mechanism: &'static str, test: impl Fn(Case)) {
    if !is_there(mechanism, &detect()) {
        return;
    }
    test(Case::new(mechanism, false));
    if rustix::process::geteuid().is_root() {
        test(Case::new(mechanism, true));
    }
}

/// What this machine has.
fn detect() -> SandboxSupport {
    runner_sandbox::detect(&std::env::var_os("PATH").unwrap_or_default())
}

fn is_there(mechanism: &str, support: &SandboxSupport) -> bool {
    let missing = match mechanism {
        "bubblewrap" => support.bubblewrap.as_ref().err(),
        _ => support.landlock.as_ref().err(),
    };
    let Some(why) = missing else {
        return true;
    };
    let skip = std::env::var_os("RUNNER_SANDBOX_TESTS").is_some_and(|value| value == "skip");
    assert!(
        skip,
        "{mechanism} cannot be tested here: {why} ({:?}); RUNNER_SANDBOX_TESTS=skip skips it",
        why.remedy
    );
    false
}

/// Waits for something to become true.
fn wait_for(what: &str, mut condition: impl FnMut() -> bool) {
    let give_up_at = Instant::now() + LONG;
    while !condition() {
        assert!(Instant::now() < give_up_at, "waited too long for: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}
