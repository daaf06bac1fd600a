//! The guard tried out at a commit, in a temporary work tree: nothing of the
//! user's is touched and nothing is recorded.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use runner_core::config::Config;
use runner_exec::{Ended, Spec};
use rustix::fs::{FlockOperation, flock};
use tempfile::TempDir;

use crate::error::{Error, ErrorCode, Result};
use crate::git::{Git, OwnFiles, RunBranch};
use crate::project::Project;
use crate::run_context::{RunContext, RunProgress};
use crate::state::runs::full_name;
use crate::step::captured_child;
use crate::step::containment::{Containment, ContainmentInput};
use crate::step::environment;
use crate::step::millis;

/// Between SIGTERM and SIGKILL.
const GRACE: Duration = Duration::from_secs(5);

/// How the temporary folders are called.
const PREFIX: &str = "runner-trial-";

/// A commit in a work tree of its own, which goes away with this value.
#[derive(Debug)]
pub(crate) struct TrialCheckout {
    git: Git,
    place: PathBuf,
    /// Removed last.
    _folder: TempDir,
    /// Held while this lives: what it is not held of was left by a runner that was
    /// killed.
    _lock: File,
}

impl TrialCheckout {
    /// Checks a commit out below the temp folder.
    pub(crate) fn of(git: &Git, commit: &str) -> Result<Self> {
        remove_abandoned(git);
        let folder = tempfile::Builder::new().prefix(PREFIX).tempdir()?;
        let lock = File::create(folder.path().join("lock"))?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive).map_err(io::Error::from)?;
        // The real path, as the guard itself will see it.
        let place = folder.path().canonicalize()?.join("work");
        let checkout = TrialCheckout {
            git: git.clone(),
            place,
            _folder: folder,
            _lock: lock,
        };
        let mut args = words(["worktree", "add", "--quiet", "--detach", "--force"]);
        args.push(checkout.place.clone().into());
        args.push(commit.into());
        git.write(&args)?;
        Ok(checkout)
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        &self.place
    }
}

impl Drop for TrialCheckout {
    fn drop(&mut self) {
        remove(&self.git, &self.place);
    }
}

fn remove(git: &Git, place: &Path) {
    let mut args = words(["worktree", "remove", "--force", "--force"]);
    args.push(place.into());
    // It may not have come into being; and what stays is for the next one.
    let _ = git.write(&args);
}

/// Removes the checkouts of runners that were killed. What git knows of work trees
/// may be a session's invention, so nothing outside the temp folder is touched.
pub(crate) fn remove_abandoned(git: &Git) {
    let Ok(temp) = std::env::temp_dir().canonicalize() else {
        return;
    };
    let known = std::fs::read_dir(git.common_dir().join("worktrees"));
    for entry in known.into_iter().flatten().flatten() {
        let Ok(text) = std::fs::read(entry.path().join("gitdir")) else {
            continue;
        };
        // PREFIX…, the work tree in it, and .git in that
        let link = Path::new(OsStr::from_bytes(text.trim_ascii_end()));
        let Some((place, folder)) = link.parent().zip(link.ancestors().nth(2)) else {
            continue;
        };
        let name = folder.file_name().unwrap_or_default();
        let is_ours =
            folder.parent() == Some(&temp) && name.as_bytes().starts_with(PREFIX.as_bytes());
        if is_ours && !is_in_use(folder) {
            remove(git, place);
            let _ = std::fs::remove_dir_all(folder);
        }
    }
}

fn is_in_use(folder: &Path) -> bool {
    File::open(folder.join("lock"))
        .is_ok_and(|lock| flock(&lock, FlockOperation::NonBlockingLockShared).is_err())
}

fn words<const N: usize>(words: [&str; N]) -> Vec<OsString> {
    words.into_iter().map(OsString::from).collect()
}

/// How a guard's run ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum TrialEnd {
    /// With this code (128 and more: by a signal).
    Exited(i32),
    /// It was ended, because its time was up.
    TimedOut,
    /// It did not run; a lowercase fragment says why.
    NotStarted(String),
}

/// What trying the guard showed.
#[derive(Clone, Debug)]
pub(crate) struct GuardTrial {
    pub(crate) end: TrialEnd,
    pub(crate) duration_ms: u64,
    /// What it printed, capped.
    pub(crate) log: Vec<u8>,
}

/// Runs a guard in a checkout, contained or not.
pub(crate) fn run(
    checkout: &TrialCheckout,
    command: &[String],
    config: &Config,
    containment: Option<&Containment>,
    limit: Duration,
    context: &mut RunContext<'_>,
) -> Result<GuardTrial> {
    run_at(
        checkout.path(),
        command,
        config,
        containment,
        limit,
        None,
        context,
    )
}

/// The same in any folder that has a commit checked out; a lock says for how long
/// anything of it is alive.
pub(crate) fn run_at(
    place: &Path,
    command: &[String],
    config: &Config,
    containment: Option<&Containment>,
    limit: Duration,
    hold_lock: Option<PathBuf>,
    context: &mut RunContext<'_>,
) -> Result<GuardTrial> {
    let argv: Vec<OsString> = command.iter().map(OsString::from).collect();
    let env = environment::for_checkout(place);
    if let Some(error) = environment::cannot_start(&argv, place, &env) {
        return Ok(not_started(error));
    }
    let (argv, monitor) = match containment {
        None => (argv, false),
        Some(containment) => {
            let roots = ContainmentInput {
                project: &Project::at(place.to_owned()),
                git: &Git::open(place)?,
                config,
                env: &env,
                iteration: None,
                agent_homes: &[],
            };
            let contained = containment.wrap(&argv, &roots)?;
            (contained.argv, contained.monitor)
        }
    };
    let spec = Spec {
        argv,
        cwd: place.to_owned(),
        env,
        stdin: None,
        merge_stderr: true,
        deadline: Some(Instant::now() + limit),
        idle_timeout: None,
        grace: GRACE,
        monitor,
        hold_lock,
    };
    context.observer.progress(&RunProgress::Trying {
        what: "guard",
        limit_secs: limit.as_secs(),
    });
    let ran = captured_child::run(&spec, config.guard_output_limit_bytes, context);
    context.observer.progress(&RunProgress::Tried);
    let (report, log) = ran?;
    let end = match report.ended {
        Ended::Exited(code) => TrialEnd::Exited(code),
        Ended::Signaled(signal) => TrialEnd::Exited(128 + signal),
        Ended::TimedOut => TrialEnd::TimedOut,
        Ended::NotStarted(failure) => TrialEnd::NotStarted(failure.message),
        Ended::Interrupted => return Err(Error::new(ErrorCode::Interrupted, "interrupted")),
        Ended::Idle | Ended::StoppedBySink | Ended::SupervisorLost => {
            TrialEnd::NotStarted("was lost: its supervisor was killed".to_owned())
        }
    };
    let wrapper = match (&end, containment) {
        (TrialEnd::Exited(code), Some(it)) => it.setup_failure(Some(*code), &log),
        _ => None,
    };
    if let Some(words) = wrapper {
        return Ok(not_started(format!(
            "cannot be contained: the sandbox could not be set up: {words}"
        )));
    }
    Ok(GuardTrial {
        end,
        duration_ms: millis(report.duration),
        log,
    })
}

/// Runs a guard at a commit of a run, contained as the config says. It runs the
/// agent's code, and that may plant something in `.git`: what it did there is put
/// back and an error.
pub(crate) fn run_watched(
    git: &Git,
    commit: &str,
    command: &[String],
    config: &Config,
    branch: &str,
    context: &mut RunContext<'_>,
) -> Result<GuardTrial> {
    let containment = Containment::choose(config)?;
    let checkout = TrialCheckout::of(git, commit)?;
    let own_files = OwnFiles::capture(git)?;
    let tip = git.commit_of(&full_name(branch))?;
    let limit = Duration::from_secs(config.iteration_timeout_secs);
    let contained = containment.is_on().then_some(&containment);
    let trial = run(&checkout, command, config, contained, limit, context);
    let planted = tempfile::Builder::new()
        .prefix("runner-planted-")
        .tempdir()?;
    let run = RunBranch {
        branch,
        head: tip.as_deref().unwrap_or(commit),
    };
    let put_back = own_files.restore(git.root(), run, planted.path())?;
    drop(checkout);
    if !put_back.changed.is_empty() {
        return Err(Error::new(
            ErrorCode::Mismatch,
            format!(
                "the guard changed files of git itself, they have been put back: {}",
                put_back.changed.join(", ")
            ),
        ));
    }
    trial
}

fn not_started(message: String) -> GuardTrial {
    GuardTrial {
        end: TrialEnd::NotStarted(message),
        duration_ms: 0,
        log: Vec::new(),
    }
}

/// What a fresh checkout lacks of the work tree, as names for people: files that
/// git ignores, and the content of submodules.
pub(crate) fn lacking(git: &Git) -> Vec<String> {
    let mut names = git.ignored().unwrap_or_default();
    let submodules = git.submodules().unwrap_or_default();
    names.extend(submodules.iter().map(|path| path.display().to_string()));
    names.retain(|name| !name.starts_with(".runner/"));
    names
}

/// Names for a sentence: the first few, and how many more there are.
pub(crate) fn some_of(names: &[String]) -> String {
    const SHOWN: usize = 5;
    match names.split_at_checked(SHOWN) {
        Some((first, rest)) if !rest.is_empty() => {
            format!("{} and {} more", first.join(", "), rest.len())
        }
        _ => names.join(", "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_few_names() {
        let names: Vec<String> = ('a'..='g').map(String::from).collect();
        for (count, expected) in [
            (0, ""),
            (1, "a"),
            (5, "a, b, c, d, e"),
            (6, "a, b, c, d, e and 1 more"),
            (7, "a, b, c, d, e and 2 more"),
        ] {
            assert_eq!(some_of(&names[..count]), expected);
        }
    }
}
