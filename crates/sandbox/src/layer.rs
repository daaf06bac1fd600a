//! The launcher that lays a folder for changes over another one, and becomes the program: whatever
//! the program writes there, the folder stays as it is.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{self, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_change};
use rustix::thread::UnshareFlags;

use crate::landlock::FAILURE_PREFIX;
use crate::namespaces;
use crate::policy::LayeredFolder;

/// The hidden command's name.
const COMMAND: &str = "__layer";

/// The words in front of an argv that give it these folders; none without any.
pub(crate) fn prelude(launcher: &[OsString], layered: &[LayeredFolder]) -> Vec<OsString> {
    let mut argv = Vec::new();
    let (Some(program), false) = (launcher.first(), layered.is_empty()) else {
        return argv;
    };
    argv.extend([program.clone(), COMMAND.into()]);
    for it in layered {
        argv.extend(["--layer".into(), (&it.folder).into(), (&it.changes).into()]);
        if let Some(earlier) = &it.earlier {
            argv.extend(["--over".into(), earlier.into()]);
        }
    }
    argv.push("--".into());
    argv
}

/// Whether this user can have such folders here, found out by making one below `scratch`. `program`
/// is the one whose `__layer` is [`layer_main`].
pub fn layers_work(program: &OsStr, scratch: &Path) -> bool {
    let folder = scratch.join("layer-trial");
    let (lower, changes) = (folder.join("folder"), folder.join("changes"));
    let made = fs::create_dir_all(&lower);
    let script = "echo x > \"$0/written\"";
    let layered = [LayeredFolder {
        folder: lower.clone(),
        earlier: None,
        changes,
    }];
    let argv = prelude(&[program.to_owned()], &layered);
    #[allow(clippy::disallowed_methods)] // A probe that ends by itself.
    let ran = Command::new(program)
        .args(&argv[1..])
        .args(["/bin/sh", "-c", script])
        .arg(&lower)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    let works =
        made.is_ok() && ran.is_ok_and(|status| status.success()) && !lower.join("written").exists();
    // What stays is in a folder that is removed as a whole.
    let _ = fs::remove_dir_all(&folder);
    works
}

/// Entry point of the hidden `__layer` command: the arguments after the command's name,
/// `[--layer FOLDER CHANGES [--over EARLIER]]… -- ARGV…`. It does not return if all goes well; else
/// it is as with [`crate::landlock_main`].
pub fn layer_main(args: impl Iterator<Item = OsString>) -> ExitCode {
    let (code, message) = match parse(args) {
        Ok((layered, argv)) => launch(&layered, &argv),
        Err(message) => (126, message),
    };
    // Nobody to tell if that fails: the exit code has to do.
    let _ = writeln!(io::stderr(), "{FAILURE_PREFIX}{message}");
    ExitCode::from(code)
}

type LayerArgs = (Vec<LayeredFolder>, Vec<OsString>);

fn parse(mut args: impl Iterator<Item = OsString>) -> Result<LayerArgs, String> {
    let mut layered: Vec<LayeredFolder> = Vec::new();
    while let Some(arg) = args.next() {
        if arg == "--" {
            let argv: Vec<OsString> = args.collect();
            if argv.is_empty() {
                break;
            }
            return Ok((layered, argv));
        }
        if arg == "--over" {
            let (Some(last), Some(earlier)) = (layered.last_mut(), args.next()) else {
                return Err("--over needs a folder, after --layer".to_owned());
            };
            last.earlier = Some(earlier.into());
            continue;
        }
        if arg != "--layer" {
            return Err(format!("unknown option {}", arg.to_string_lossy()));
        }
        let (Some(folder), Some(changes)) = (args.next(), args.next()) else {
            return Err("--layer needs two folders".to_owned());
        };
        layered.push(LayeredFolder {
            folder: folder.into(),
            earlier: None,
            changes: changes.into(),
        });
    }
    Err("no program given".to_owned())
}

/// Returns only if it failed, with the exit code and the words.
fn launch(layered: &[LayeredFolder], argv: &[OsString]) -> (u8, String) {
    if let Err(message) = lay(layered) {
        return (126, message);
    }
    let (program, rest) = (&argv[0], &argv[1..]);
    #[allow(clippy::disallowed_methods)]
    // This process becomes the program, and is supervised as such.
    let error = Command::new(program).args(rest).exec();
    (
        126,
        format!("cannot start `{}`: {error}", program.to_string_lossy()),
    )
}

fn lay(layered: &[LayeredFolder]) -> Result<(), String> {
    namespaces::enter(UnshareFlags::NEWNS)?;
    let is_root = rustix::process::geteuid().is_root();
    let recursive = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    mount_change("/", recursive).map_err(|error| format!("cannot keep mounts private: {error}"))?;
    for it in layered {
        lay_over(it, is_root).map_err(|error| {
            format!("cannot lay a folder over {}: {error}", it.folder.display())
        })?;
    }
    Ok(())
}

fn lay_over(it: &LayeredFolder, is_root: bool) -> io::Result<()> {
    let (upper, work) = (changed_in(&it.changes), it.changes.join("work"));
    for folder in [&upper, &work] {
        fs::create_dir_all(folder)?;
    }
    let mut options = Vec::new();
    if !is_root {
        options.extend(b"userxattr,");
    }
    let earlier = it.earlier.as_ref().map(|earlier| changed_in(earlier));
    options.extend(b"lowerdir=");
    for folder in earlier.iter().filter(|it| it.is_dir()) {
        options.extend(escaped(folder));
        options.push(b':');
    }
    options.extend(escaped(&it.folder));
    for (name, folder) in [(",upperdir=", &upper), (",workdir=", &work)] {
        options.extend(name.as_bytes());
        options.extend(escaped(folder));
    }
    let options = std::ffi::CString::new(options)?;
    mount(
        "overlay",
        &it.folder,
        "overlay",
        MountFlags::NOSUID | MountFlags::NODEV,
        options.as_c_str(),
    )?;
    Ok(())
}

/// Where the changed files lie among changes.
fn changed_in(changes: &Path) -> PathBuf {
    changes.join("changed")
}

/// A path among the options of a mount, where commas and colons part things.
fn escaped(path: &Path) -> Vec<u8> {
    let mut text = Vec::new();
    for byte in path.as_os_str().as_bytes() {
        if matches!(byte, b',' | b':' | b'\\') {
            text.push(b'\\');
        }
        text.push(*byte);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_in_front() {
        let layered = [LayeredFolder {
            folder: "/c".into(),
            earlier: Some("/e".into()),
            changes: "/l".into(),
        }];
        let launcher: [OsString; 2] = ["/exe".into(), "__landlock".into()];
        assert!(prelude(&launcher, &[]).is_empty());
        let argv = prelude(&launcher, &layered);
        assert_eq!(
            argv,
            [
                "/exe", "__layer", "--layer", "/c", "/l", "--over", "/e", "--"
            ]
        );
        let rest = ["true".into(), "-x".into()];
        let words = argv.into_iter().skip(2).chain(rest);
        let (found, program) = parse(words).unwrap();
        assert_eq!(found, layered);
        assert_eq!(program, ["true", "-x"]);
    }

    #[test]
    fn bad_options_are_named() {
        for (line, expected) in [
            ("", "no program given"),
            ("--", "no program given"),
            ("--layer /a", "--layer needs two folders"),
            ("--over /a", "--over needs a folder, after --layer"),
            ("--rw /a -- x", "unknown option --rw"),
        ] {
            let words = line.split_whitespace().map(OsString::from);
            assert_eq!(parse(words).unwrap_err(), expected, "{line}");
        }
    }

    #[test]
    fn names_that_mean_something_in_options() {
        assert_eq!(escaped(Path::new("/a,b:c\\d")), b"/a\\,b\\:c\\\\d");
    }
}
