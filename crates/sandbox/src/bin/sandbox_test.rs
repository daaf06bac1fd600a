//! For the tests of runner-sandbox only, never shipped: contains a program as the runner would.
//!
//! ```text
//! sandbox-test __landlock …                                   the launcher
//! sandbox-test __layer …                                      the other one
//! sandbox-test detect                                         what this user has here
//! sandbox-test run MECHANISM PROJECT [--rw|--ro|--tmp|--layer PATH]… -- ARGV…
//!                                                             becomes ARGV in containment
//! sandbox-test time COUNT PROJECT                             what a contained `true` costs
//! ```

use std::ffi::OsString;
use std::io::{self, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use runner_core::config::SandboxMode;
use runner_sandbox::{
    LayeredFolder, Mechanism, MountPlan, SandboxSupport, WritePolicy, choose, detect,
    landlock_main, layer_main,
};

fn main() -> ExitCode {
    let mut args = std::env::args_os().skip(1);
    let mode = args.next().unwrap_or_default();
    if mode == "__landlock" {
        return landlock_main(args);
    }
    if mode == "__layer" {
        return layer_main(args);
    }
    let result = match mode.to_str() {
        Some("detect") => show_support(),
        Some("run") => run(args),
        Some("time") => time(args),
        _ => Err(io::Error::other("unknown mode")),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(io::stderr(), "sandbox-test: {error}");
            ExitCode::from(99)
        }
    }
}

fn launcher() -> Vec<OsString> {
    vec!["/proc/self/exe".into(), "__landlock".into()]
}

fn show_support() -> io::Result<()> {
    let mut out = io::stdout().lock();
    let support = detect(&path());
    match support.bubblewrap {
        Ok(found) => writeln!(
            out,
            "bubblewrap {} {}",
            found.version,
            found.program.display()
        )?,
        Err(why) => writeln!(out, "no bubblewrap: {why}")?,
    }
    match support.landlock {
        Ok(abi) => writeln!(out, "landlock {abi}"),
        Err(why) => writeln!(out, "no landlock: {why}"),
    }
}

/// Only the named one counts as there, so that the choice is the runner's own.
fn mechanism(name: &str, mut support: SandboxSupport) -> io::Result<Mechanism> {
    if name == "none" {
        return Ok(Mechanism::None);
    }
    let hidden = runner_sandbox::UnavailableReason {
        reason: "hidden".to_owned(),
        remedy: None,
    };
    match name {
        "bubblewrap" => support.landlock = Err(hidden),
        "landlock" => support.bubblewrap = Err(hidden),
        _ => return Err(io::Error::other("unknown mechanism")),
    }
    choose(SandboxMode::Required, &support).map_err(io::Error::other)
}

fn plan(policy: &WritePolicy) -> io::Result<MountPlan> {
    policy.plan().map_err(io::Error::other)
}

fn run(mut args: impl Iterator<Item = OsString>) -> io::Result<()> {
    let name = args.next().unwrap_or_default();
    let mut policy = WritePolicy {
        project: args.next().unwrap_or_default().into(),
        mounted_at: None,
        lent: Vec::new(),
        writable: Vec::new(),
        read_only: Vec::new(),
        tmp: std::env::temp_dir(),
        tmp_seen_at: None,
        private: Vec::new(),
        layered: Vec::new(),
        in_sight: Vec::new(),
        hidden: Vec::new(),
        replaced: Vec::new(),
        shared_memory: None,
        network: runner_sandbox::NetworkAccess::Open,
    };
    while let Some(arg) = args.next().filter(|arg| arg != "--") {
        let value = PathBuf::from(args.next().unwrap_or_default());
        match arg.to_str() {
            Some("--rw") => policy.writable.push(value),
            Some("--ro") => policy.read_only.push(value),
            Some("--tmp") => policy.tmp = value,
            Some("--tmp-at") => policy.tmp_seen_at = Some(value),
            Some("--sight") => policy.in_sight.push(value),
            Some("--hide") => policy.hidden.push(value),
            Some("--layer") => policy.layered.push(LayeredFolder {
                earlier: None,
                changes: value.with_extension("changes"),
                folder: value,
            }),
            _ => return Err(io::Error::other("unknown option")),
        }
    }
    let program: Vec<OsString> = args.collect();
    let mechanism = mechanism(&name.to_string_lossy(), detect(&path()))?;
    let wrapped = plan(&policy)?.wrap(&mechanism, &launcher(), &program);
    Err(command(&wrapped)?.current_dir(&policy.project).exec())
}

#[allow(clippy::disallowed_methods)] // Supervision is another crate's; the tests wait for all of it.
fn command(argv: &[OsString]) -> io::Result<Command> {
    let (program, rest) = argv.split_first().ok_or(io::ErrorKind::InvalidInput)?;
    let mut cmd = Command::new(program);
    cmd.args(rest);
    Ok(cmd)
}

/// The mechanisms take turns, so that whatever else the machine does hits all alike.
fn time(mut args: impl Iterator<Item = OsString>) -> io::Result<()> {
    let count: usize = args
        .next()
        .and_then(|count| count.to_str()?.parse().ok())
        .ok_or_else(|| io::Error::other("a number is missing"))?;
    let project = PathBuf::from(args.next().unwrap_or_default());
    let begun = Instant::now();
    let support = detect(&path());
    let detecting = begun.elapsed();
    let policy = WritePolicy {
        read_only: ["config", "hooks", "info"]
            .map(|name| project.join(".git").join(name))
            .to_vec(),
        writable: vec![project.join(".git")],
        project,
        mounted_at: None,
        lent: Vec::new(),
        tmp: std::env::temp_dir(),
        tmp_seen_at: None,
        private: Vec::new(),
        layered: Vec::new(),
        in_sight: Vec::new(),
        hidden: Vec::new(),
        replaced: Vec::new(),
        shared_memory: None,
        network: runner_sandbox::NetworkAccess::Open,
    };
    let begun = Instant::now();
    let plan = plan(&policy)?;
    let planning = begun.elapsed();
    let program: Vec<OsString> = vec!["true".into()];
    let mut rows: Vec<(&str, Vec<OsString>, Vec<Duration>)> = Vec::new();
    for name in ["none", "landlock", "bubblewrap"] {
        let mechanism = mechanism(name, support.clone())?;
        rows.push((
            name,
            plan.wrap(&mechanism, &launcher(), &program),
            Vec::new(),
        ));
    }
    for _ in 0..count {
        for (_, argv, times) in &mut rows {
            let begun = Instant::now();
            let status = command(argv)?.status()?;
            times.push(begun.elapsed());
            if !status.success() {
                return Err(io::Error::other(format!("{argv:?} failed: {status}")));
            }
        }
    }
    let mut out = io::stdout().lock();
    writeln!(
        out,
        "detect {detecting:?}, plan {planning:?}; `true`, {count} times:"
    )?;
    for (name, _, times) in &mut rows {
        times.sort_unstable();
        let median = times.get(times.len() / 2).copied().unwrap_or_default();
        let best = times.first().copied().unwrap_or_default();
        writeln!(out, "{name:12} median {median:?}, best {best:?}")?;
    }
    Ok(())
}

fn path() -> OsString {
    std::env::var_os("PATH").unwrap_or_default()
}
