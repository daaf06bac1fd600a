//! What this machine offers: asked by trying it, never by looking at versions.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::bubblewrap::SandboxView;
use crate::{bubblewrap, landlock, monitor, namespaces, privileges};

/// How long the probe may take: it needs milliseconds.
const PROBE_LIMIT: Duration = Duration::from_secs(10);

/// The size that is tried.
const PROBE_SIZE: u64 = 1 << 20;

/// What there is. Ask once and keep it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SandboxSupport {
    /// The `bwrap` that worked.
    pub bubblewrap: Result<Bubblewrap, UnavailableReason>,
    /// The kernel's Landlock ABI.
    pub landlock: Result<u32, UnavailableReason>,
    /// Whether the kernel hands the calls on that Landlock has no rule for: those that change modes,
    /// times, owners and attributes, and connections.
    pub has_broker: bool,
    /// Whether a program can have message queues, semaphores and shared memory (of System V and of
    /// POSIX queues) of its own without bubblewrap.
    pub has_ipc: bool,
}

/// A `bwrap` that works here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bubblewrap {
    /// Where it is.
    pub program: PathBuf,
    /// What it calls itself, as in `0.8.0`; empty if it does not say.
    pub version: String,
    /// Whether it limits the size of what is made of memory.
    pub has_sizes: bool,
}

/// Why something cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnavailableReason {
    /// A lowercase fragment.
    pub reason: String,
    /// What to do about it, where that is known.
    pub remedy: Option<String>,
}

impl fmt::Display for UnavailableReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)
    }
}

/// Tries both mechanisms, which takes a few milliseconds. `path`: where `bwrap` is looked for.
pub fn detect(path: &OsStr) -> SandboxSupport {
    SandboxSupport {
        bubblewrap: detect_bubblewrap(path),
        landlock: landlock::probe().map_err(|reason| UnavailableReason {
            reason,
            remedy: Some("use a kernel with Landlock switched on (Linux 5.19 or later)".to_owned()),
        }),
        has_broker: monitor::probe(),
        has_ipc: namespaces::has_ipc(),
    }
}

fn detect_bubblewrap(path_var: &OsStr) -> Result<Bubblewrap, UnavailableReason> {
    let Some(program) = find(path_var) else {
        return Err(UnavailableReason {
            reason: "bwrap is not installed".to_owned(),
            remedy: Some("install bubblewrap".to_owned()),
        });
    };
    let sized = try_with(&program, Some(PROBE_SIZE), &[]);
    let has_sizes = sized.is_ok();
    // An older one does not know that option.
    let tried = sized.or_else(|_| try_with(&program, None, &[]));
    let version = tried.map_err(|reason| UnavailableReason {
        remedy: remedy(&reason).map(str::to_owned),
        reason,
    })?;
    Ok(Bubblewrap {
        program,
        version,
        has_sizes,
    })
}

/// From absolute folders only: any other could lie in the project, where the agent writes.
fn find(path_var: &OsStr) -> Option<PathBuf> {
    std::env::split_paths(path_var)
        .filter(|dir| dir.is_absolute())
        .map(|dir| dir.join("bwrap"))
        .find(|path| {
            path.is_file() && rustix::fs::access(path, rustix::fs::Access::EXEC_OK).is_ok()
        })
}

/// Whether bubblewrap can give a child a network of its own, found out by having it do so.
pub fn network_namespace(program: &Path) -> Result<(), UnavailableReason> {
    let tried = try_with(program, None, &["--unshare-net"]);
    tried.map(|_| ()).map_err(|reason| UnavailableReason {
        remedy: remedy(&reason).map(str::to_owned),
        reason,
    })
}

/// Contains the one program that is surely there, `bwrap` itself, with further options. Its version, or
/// why it failed.
fn try_with(
    program: &Path,
    shared_memory: Option<u64>,
    options: &[&str],
) -> Result<String, String> {
    let kept = privileges::kept_by_root();
    let mut argv = bubblewrap::base(program, kept.as_deref(), shared_memory);
    argv.extend(options.iter().map(OsString::from));
    let version: [OsString; 2] = [program.into(), "--version".into()];
    let shown = SandboxView::default();
    bubblewrap::complete(&mut argv, &shown, &[], Path::new("/"), &version);
    #[allow(clippy::disallowed_methods)] // A probe that ends by itself, and with this process.
    let mut cmd = Command::new(program);
    cmd.args(&argv[1..])
        .env("LC_ALL", "C")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = cmd
        .spawn()
        .map_err(|error| format!("cannot start it: {error}"))?;
    let succeeded = wait(&mut child)?;
    let mut said = String::new();
    // A line or two: it fits the pipe, so that reading after the end cannot block anybody.
    if succeeded {
        if let Some(mut out) = child.stdout {
            let _ = out.read_to_string(&mut said);
        }
        let version = said.trim().rsplit(' ').next().unwrap_or_default();
        return Ok(version.to_owned());
    }
    if let Some(mut err) = child.stderr {
        let _ = err.read_to_string(&mut said);
    }
    let line = said
        .trim()
        .lines()
        .last()
        .unwrap_or("it failed without a word");
    Err(line.trim_start_matches("bwrap: ").to_owned())
}

fn wait(child: &mut Child) -> Result<bool, String> {
    let give_up_at = Instant::now() + PROBE_LIMIT;
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Ok(status.success()),
            Ok(None) if Instant::now() < give_up_at => {
                std::thread::sleep(Duration::from_millis(1));
            }
            other => {
                let _ = child.kill();
                let _ = child.wait();
                return Err(match other {
                    Err(error) => format!("cannot wait for it: {error}"),
                    Ok(_) => format!("it did not end within {} s", PROBE_LIMIT.as_secs()),
                });
            }
        }
    }
}

/// What is known of the common failures.
fn remedy(reason: &str) -> Option<&'static str> {
    let restricted = fs::read("/proc/sys/kernel/apparmor_restrict_unprivileged_userns")
        .is_ok_and(|value| value.starts_with(b"1"));
    remedy_for(reason, restricted)
}

fn remedy_for(reason: &str, restricted_by_apparmor: bool) -> Option<&'static str> {
    const TABLE: &[(&str, &str)] = &[
        (
            "mount proc",
            "this looks like a container: start it with --security-opt systempaths=unconfined, or leave the containment to it",
        ),
        (
            "namespace",
            "allow unprivileged user namespaces (sysctl kernel.unprivileged_userns_clone=1, user.max_user_namespaces)",
        ),
        (
            "uid map",
            "allow unprivileged user namespaces (sysctl kernel.unprivileged_userns_clone=1, user.max_user_namespaces)",
        ),
        ("nknown option", "install a newer bubblewrap (0.5 or later)"),
    ];
    let (_, remedy) = TABLE.iter().find(|(words, _)| reason.contains(words))?;
    if restricted_by_apparmor && remedy.contains("namespaces") {
        return Some(
            "give bwrap an AppArmor profile with `userns` (Ubuntu: the package apparmor-profiles has one), or sysctl kernel.apparmor_restrict_unprivileged_userns=0",
        );
    }
    Some(remedy)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_bwrap_that_does_not_work() {
        let dir = tempfile::tempdir().unwrap();
        let none = detect_bubblewrap(dir.path().as_os_str()).unwrap_err();
        assert_eq!(none.reason, "bwrap is not installed");
        assert_eq!(find(OsStr::new("relative:")), None);
        for (script, expected) in [
            (
                "echo 'bwrap: No permissions to create a new namespace' >&2; exit 1",
                "No permissions to create a new namespace",
            ),
            ("exit 1", "it failed without a word"),
            (
                "echo bwrap: Unknown option --bind-try >&2; exit 1",
                "Unknown option --bind-try",
            ),
        ] {
            let path = dir.path().join("bwrap");
            fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
            let why = detect_bubblewrap(dir.path().as_os_str()).unwrap_err();
            assert_eq!(why.reason, expected);
        }
    }

    #[test]
    fn remedies_of_known_failures() {
        for (reason, apparmor, expected) in [
            (
                "Can't mount proc on /newroot/proc: Operation not permitted",
                false,
                "container",
            ),
            (
                "No permissions to create new namespace, likely …",
                false,
                "userns_clone",
            ),
            (
                "Creating new namespace failed: Operation not permitted",
                true,
                "AppArmor",
            ),
            ("setting up uid map: Permission denied", true, "AppArmor"),
            (
                "setting up uid map: Permission denied",
                false,
                "userns_clone",
            ),
            ("Unknown option --bind-try", false, "newer"),
        ] {
            let remedy = remedy_for(reason, apparmor).unwrap();
            assert!(remedy.contains(expected), "{reason}: {remedy}");
        }
        assert_eq!(remedy_for("it failed without a word", true), None);
    }
}
