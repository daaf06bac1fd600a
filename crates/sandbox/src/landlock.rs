//! The launcher that confines itself with Landlock and becomes the program.
//!
//! Landlock grants rights to folders and what is below them, and cannot take any back further down:
//! it keeps writes inside the project, but not off a single file in it.

use std::ffi::OsString;
use std::io::{self, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

use landlock::{
    ABI, AccessFs, BitFlags, CompatLevel, Compatible as _, LandlockStatus, Ruleset,
    RulesetAttr as _, RulesetCreatedAttr as _, RulesetError, RulesetStatus, Scope,
    path_beneath_rules,
};

use crate::privileges;

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
/// `[--rw PATH]… -- ARGV…`.
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

#[derive(Debug, PartialEq, Eq)]
struct LandlockOptions {
    writable: Vec<PathBuf>,
    program: OsString,
    args: Vec<OsString>,
}

fn parse(mut args: impl Iterator<Item = OsString>) -> Result<LandlockOptions, String> {
    let mut writable = Vec::new();
    while let Some(arg) = args.next() {
        if arg == "--" {
            let program = args.next().ok_or("no program given")?;
            return Ok(LandlockOptions {
                writable,
                program,
                args: args.collect(),
            });
        }
        if arg != "--rw" {
            return Err(format!("unknown option {}", arg.to_string_lossy()));
        }
        writable.push(args.next().ok_or("--rw needs a value")?.into());
    }
    Err("no program given".to_owned())
}

/// Returns only if it failed, with the exit code and the words.
fn launch(options: &LandlockOptions) -> (u8, String) {
    if let Err(message) = restrict(&options.writable) {
        return (126, message);
    }
    if rustix::process::geteuid().is_root()
        && let Err(error) = privileges::drop_others()
    {
        return (126, format!("cannot drop capabilities: {error}"));
    }
    #[allow(clippy::disallowed_methods)]
    // This process becomes the program, and is supervised as such.
    let error = Command::new(&options.program).args(&options.args).exec();
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
        .spawn(|| restrict(&[]))
        .map_err(|error| format!("cannot try it: {error}"))?
        .join()
        .map_err(|_| "cannot try it: the attempt panicked".to_owned())?
}

/// Lets this thread, and all it starts from now on, write only to the devices that all need and
/// below `writable`. Paths that are not there are passed over. Returns the kernel's ABI.
fn restrict(writable: &[PathBuf]) -> Result<u32, String> {
    let handled = AccessFs::from_write(ABI::V3);
    // Nodes of devices are doors to what lies behind them.
    let granted = handled & !(AccessFs::MakeChar | AccessFs::MakeBlock);
    let status = enforce(handled, granted, writable).map_err(|error| explain(&error))?;
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
    handled: BitFlags<AccessFs>,
    granted: BitFlags<AccessFs>,
    writable: &[PathBuf],
) -> Result<landlock::RestrictionStatus, RulesetError> {
    let devices = DEVICES.iter().map(PathBuf::from);
    Ruleset::default()
        // Before ABI 2 every rename between two folders is refused, also inside the project:
        // nothing ordinary works under it.
        .set_compatibility(CompatLevel::HardRequirement)
        .handle_access(AccessFs::from_write(ABI::V2))?
        // Before ABI 3 files elsewhere can still be cut to nothing. Better than no confinement.
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(handled)?
        // From ABI 6 on: a careless `pkill` reaches nothing outside.
        .scope(Scope::Signal)?
        .create()?
        .add_rules(path_beneath_rules(devices, granted))?
        .add_rules(path_beneath_rules(writable, granted))?
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
            writable: vec!["/a".into(), "--".into()],
            program: "x".into(),
            args: vec!["--rw".into(), "y".into()],
        };
        assert_eq!(check("--rw /a --rw -- -- x --rw y"), Ok(expected));
    }

    #[test]
    fn bad_options_are_named() {
        for (line, expected) in [
            ("", "no program given"),
            ("--", "no program given"),
            ("--rw", "--rw needs a value"),
            ("--ro /a -- x", "unknown option --ro"),
        ] {
            assert_eq!(check(line).unwrap_err(), expected, "{line}");
        }
    }
}
