//! The hidden commands by which this program starts children: the supervisor, and the launchers of
//! the sandbox. Whoever links this crate and runs children answers to them.

use std::ffi::{OsStr, OsString};
use std::process::ExitCode;

/// Becomes the launcher of that name; `None`: it is no launcher.
pub fn launcher_main(name: &OsStr, args: impl Iterator<Item = OsString>) -> Option<ExitCode> {
    Some(match name.to_str()? {
        "__supervise" => runner_exec::supervise_main(),
        "__landlock" => runner_sandbox::landlock_main(args),
        "__layer" => runner_sandbox::layer_main(args),
        _ => return None,
    })
}
