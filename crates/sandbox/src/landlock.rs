//! The launcher that confines itself with Landlock and becomes the program, or the monitor above it.
//!
//! Landlock grants rights to folders and what is below them, and cannot take any back further down:
//! it keeps writes inside the project, but not off a single file in it. Reading is granted to
//! everything beside what is hidden.

use std::ffi::OsString;
use std::io::{self, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

use runner_exec::os::seccomp;

use landlock::{
    ABI, AccessFs, BitFlags, CompatLevel, Compatible as _, LandlockStatus, Ruleset,
    RulesetAttr as _, RulesetCreatedAttr as _, RulesetError, RulesetStatus, Scope,
    path_beneath_rules,
};

use crate::call_filter::{self, CallRules};
use crate::network::NetworkLimits;
use crate::{monitor, privileges, readable};

/// What the launcher's own words begin with.
pub(crate) const FAILURE_PREFIX: &str = "sandbox: ";

/// Devices that any program may write to. What else is in /dev can be named like a folder.
const DEVICES: &[&str] = &[
    "/dev/null",
    "/dev/zero",
    "/dev/full",
    "/dev/random",
    "/dev/urandom",
    "/dev/tty",
    "/dev/ptmx",
    "/dev/pts",
];

/// Entry point of the hidden `__landlock` command: the arguments after the command's name,
/// `[--rw PATH]… [--hide PATH]… [--show PATH]… [--files-open] [--no-abstract] [--no-tcp] [--proxy SOCKET] -- ARGV…`.
///
/// It does not return if all goes well. Else it says why on stderr: 127 if there is no such program,
/// 126 for everything else, above all if the kernel does not confine it.
pub fn landlock_main(args: impl Iterator<Item = OsString>) -> ExitCode {
    let (code, message) = match parse(args) {
        Ok(options) => launch(&options),
        Err(message) => (126, message),
    };
    // Nobody to tell if that fails: the exit code has to do.
    let _ = writeln!(io::stderr(), "{FAILURE_PREFIX}{message}");
    ExitCode::from(code)
}

/// What a program may do where. Reading is confined only where something is hidden.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct LandlockPaths {
    pub(crate) writable: Vec<PathBuf>,
    /// What cannot be read, but for what is writable or shown there.
    pub(crate) hidden: Vec<PathBuf>,
    pub(crate) shown: Vec<PathBuf>,
}

#[derive(Debug, PartialEq, Eq)]
struct LandlockOptions {
    paths: LandlockPaths,
    network: NetworkLimits,
    program: OsString,
    args: Vec<OsString>,
}

fn parse(mut args: impl Iterator<Item = OsString>) -> Result<LandlockOptions, String> {
    let mut paths = LandlockPaths::default();
    let mut network = NetworkLimits::default();
    while let Some(arg) = args.next() {
        if arg == "--" {
            let program = args.next().ok_or("no program given")?;
            return Ok(LandlockOptions {
                paths,
                network,
                program,
                args: args.collect(),
            });
        }
        let flag = match arg.to_str() {
            Some("--files-open") => Some(&mut network.files_open),
            Some("--no-abstract") => Some(&mut network.no_abstract),
            Some("--no-tcp") => Some(&mut network.no_tcp),
            _ => None,
        };
        if let Some(flag) = flag {
            *flag = true;
            continue;
        }
        if arg == "--proxy" {
            network.proxy = Some(args.next().ok_or("--proxy needs a value")?.into());
            continue;
        }
        let list = match arg.to_str() {
            Some("--rw") => &mut paths.writable,
            Some("--hide") => &mut paths.hidden,
            Some("--show") => &mut paths.shown,
            _ => return Err(format!("unknown option {}", arg.to_string_lossy())),
        };
        let value = args.next();
        let value = value.ok_or_else(|| format!("{} needs a value", arg.to_string_lossy()))?;
        list.push(value.into());
    }
    Err("no program given".to_owned())
}

/// Returns only if it failed, with the exit code and the words.
fn launch(options: &LandlockOptions) -> (u8, String) {
    // Where the listeners are made nothing may be refused yet.
    let variables = match options.network.enter() {
        Ok(variables) => variables,
        Err(message) => return (126, message),
    };
    if options.network.files_open {
        return match options.network.restrict().and_then(|()| drop_privileges()) {
            Ok(()) => {
                let steps = call_filter::steps(CallRules::default());
                // Without filters of calls the kernel shares its keys, which are few.
                let _ = steps.map(|steps| seccomp::install_own_filter(&steps));
                become_program(options, variables)
            }
            Err(message) => (126, message),
        };
    }
    monitor::watch_over(&options.paths, &options.network, || {
        become_program(options, variables)
    })
}

pub(crate) fn drop_privileges() -> Result<(), String> {
    privileges::drop_others().map_err(|error| format!("cannot drop capabilities: {error}"))
}

fn become_program(
    options: &LandlockOptions,
    variables: Vec<(&'static str, String)>,
) -> (u8, String) {
    #[allow(clippy::disallowed_methods)]
    // This process becomes the program, and is supervised as such.
    let error = Command::new(&options.program)
        .args(&options.args)
        .envs(variables)
        .exec();
    let code = if error.kind() == io::ErrorKind::NotFound {
        127
    } else {
        126
    };
    let name = options.program.to_string_lossy();
    (code, format!("cannot start `{name}`: {error}"))
}

/// Whether the kernel confines, found out by having it do so to a thread that then ends. The ABI,
/// or why not.
pub(crate) fn probe() -> Result<u32, String> {
    // Only the calling thread is restricted, and what it starts from then on.
    std::thread::Builder::new()
        .spawn(|| restrict(&LandlockPaths::default(), &NetworkLimits::default()))
        .map_err(|error| format!("cannot try it: {error}"))?
        .join()
        .map_err(|_| "cannot try it: the attempt panicked".to_owned())?
}

/// Lets this thread, and all it starts from now on, write only to the devices that all need and
/// below the writable paths, and read no file that is hidden. Paths that are not there are passed
/// over. Returns the kernel's ABI.
pub(crate) fn restrict(paths: &LandlockPaths, network: &NetworkLimits) -> Result<u32, String> {
    let status = enforce(paths, network).map_err(|error| explain(&error))?;
    let abi = match status.landlock {
        LandlockStatus::Available {
            effective_abi,
            kernel_abi,
        } => kernel_abi.map_or(effective_abi as u32, i32::unsigned_abs),
        LandlockStatus::NotEnabled => return Err("the kernel has it switched off".to_owned()),
        LandlockStatus::NotImplemented => return Err("the kernel does not have it".to_owned()),
    };
    if status.ruleset == RulesetStatus::NotEnforced || !status.no_new_privs {
        return Err("the kernel did not enforce it".to_owned());
    }
    Ok(abi)
}

fn enforce(
    paths: &LandlockPaths,
    network: &NetworkLimits,
) -> Result<landlock::RestrictionStatus, RulesetError> {
    let devices = DEVICES.iter().map(PathBuf::from);
    let writes = AccessFs::from_write(ABI::V3);
    // Nodes of devices are doors to what lies behind them.
    let granted = writes & !(AccessFs::MakeChar | AccessFs::MakeBlock);
    // Names can be listed everywhere: a folder whose files may be read only in part could not be
    // listed otherwise, and the home folder is one.
    let reads = if paths.hidden.is_empty() {
        BitFlags::EMPTY
    } else {
        AccessFs::ReadFile.into()
    };
    let readable = if paths.hidden.is_empty() {
        Vec::new()
    } else {
        // A disk that can be read as a device hides nothing.
        let hidden = [&paths.hidden[..], &[PathBuf::from("/dev")]].concat();
        readable::readable_roots(&hidden, &paths.shown, &readable::entries_of)
    };
    let ruleset = Ruleset::default()
        // Before ABI 2 every rename between two folders is refused, also inside the project:
        // nothing ordinary works under it.
        .set_compatibility(CompatLevel::HardRequirement)
        .handle_access(AccessFs::from_write(ABI::V2))?
        // Before ABI 3 files elsewhere can still be cut to nothing. Better than no confinement.
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(writes | reads)?
        // From ABI 6 on: a careless `pkill` reaches nothing outside, and sockets of other programs
        // that have no path are out of reach.
        .scope(Scope::Signal | Scope::AbstractUnixSocket)?;
    network
        .without_tcp(ruleset)?
        .create()?
        .add_rules(path_beneath_rules(devices, granted | reads))?
        .add_rules(path_beneath_rules(&paths.writable, granted | reads))?
        .add_rules(path_beneath_rules(readable, reads))?
        .restrict_self()
}

fn explain(error: &RulesetError) -> String {
    match error {
        RulesetError::HandleAccesses(_) => {
            "the kernel does not have it, has it switched off, or has only its first version"
                .to_owned()
        }
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(line: &str) -> Result<LandlockOptions, String> {
        parse(line.split_whitespace().map(OsString::from))
    }

    #[test]
    fn options_end_at_the_dashes() {
        let expected = LandlockOptions {
            paths: LandlockPaths {
                writable: vec!["/a".into(), "--".into()],
                hidden: vec!["/h".into()],
                shown: vec!["/h/x".into()],
            },
            network: NetworkLimits {
                no_tcp: true,
                proxy: Some("/s".into()),
                ..NetworkLimits::default()
            },
            program: "x".into(),
            args: vec!["--rw".into(), "y".into()],
        };
        assert_eq!(
            check("--rw /a --hide /h --rw -- --no-tcp --proxy /s --show /h/x -- x --rw y"),
            Ok(expected)
        );
    }

    #[test]
    fn bad_options_are_named() {
        for (line, expected) in [
            ("", "no program given"),
            ("--", "no program given"),
            ("--rw", "--rw needs a value"),
            ("--proxy", "--proxy needs a value"),
            ("--ro /a -- x", "unknown option --ro"),
        ] {
            assert_eq!(check(line).unwrap_err(), expected, "{line}");
        }
    }
}
