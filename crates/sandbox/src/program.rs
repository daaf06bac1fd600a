//! Whether a program can be started, found out before a wrapper is put around it.
//!
//! Inside a wrapper the start is the wrapper's business: that it failed shows only as an exit code,
//! which a guard could have given as well.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::Access;

/// As much of a script as the kernel reads.
const HEAD: u64 = 256;

/// How many interpreters may themselves be scripts before the kernel gives up.
const SCRIPT_DEPTH: usize = 5;

/// Why a program cannot be started.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ProgramError {
    /// There is no such program (as opposed to one that cannot be run).
    pub not_found: bool,
    /// A lowercase fragment that names the program.
    pub message: String,
}

/// The file that an exec of `program` in `cwd` would take, with this `PATH`, if it can be run.
///
/// The same rules as execvp's: a name with a slash is a path, any other is looked for in the folders
/// of `PATH`, and a file that may not be executed is passed over.
pub fn resolve_program(
    program: &OsStr,
    cwd: &Path,
    path_var: &OsStr,
) -> Result<PathBuf, ProgramError> {
    let fail = |not_found: bool, reason: &str| ProgramError {
        not_found,
        message: format!("cannot start `{}`: {reason}", program.to_string_lossy()),
    };
    if program.is_empty() {
        return Err(fail(true, "it has no name"));
    }
    let candidates: Vec<PathBuf> = if program.as_bytes().contains(&b'/') {
        vec![cwd.join(program)]
    } else {
        // An empty folder in the list is the working directory: so `join` has it.
        std::env::split_paths(path_var)
            .map(|dir| cwd.join(dir).join(program))
            .collect()
    };
    let mut refused = None;
    for candidate in candidates {
        match check_executable(&candidate) {
            Ok(()) => {
                check_interpreter(&candidate, cwd).map_err(|reason| fail(false, &reason))?;
                return Ok(candidate);
            }
            Err(reason) => refused = refused.or(reason),
        }
    }
    Err(match refused {
        Some(reason) => fail(false, reason),
        None => fail(true, "no such file or directory"),
    })
}

/// None in the error: it is not there.
fn check_executable(path: &Path) -> Result<(), Option<&'static str>> {
    let meta = path.metadata().map_err(|error| match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => None,
        io::ErrorKind::PermissionDenied => Some("permission denied"),
        _ => Some("it cannot be looked at"),
    })?;
    if !meta.is_file() {
        return Err(Some("it is not a file"));
    }
    rustix::fs::access(path, Access::EXEC_OK).map_err(|_| Some("permission denied"))
}

fn check_interpreter(script: &Path, cwd: &Path) -> Result<(), String> {
    let mut file = script.to_owned();
    for _ in 0..SCRIPT_DEPTH {
        let Some(line) = shebang(&file) else {
            return Ok(());
        };
        let interpreter = cwd.join(OsStr::from_bytes(&line));
        if let Err(reason) = check_executable(&interpreter) {
            let shown = String::from_utf8_lossy(&line).into_owned();
            let why = reason.unwrap_or("no such file or directory");
            // The classic among scripts from another system, and invisible in most editors.
            let ending = if shown.ends_with('\r') {
                " (its first line ends with a carriage return)"
            } else {
                ""
            };
            return Err(format!(
                "its interpreter `{}`: {why}{ending}",
                shown.trim_end()
            ));
        }
        file = interpreter;
    }
    Err("its interpreters are scripts without end".to_owned())
}

/// What follows `#!`, up to the first blank. None: not a script, or one that cannot be read, which
/// is for the kernel to judge.
fn shebang(path: &Path) -> Option<Vec<u8>> {
    let mut head = Vec::new();
    let file = File::open(path).ok()?;
    file.take(HEAD).read_to_end(&mut head).ok()?;
    let line = head.strip_prefix(b"#!")?;
    let line = line.split(|byte| *byte == b'\n').next()?;
    let line = line.trim_ascii_start();
    let word = line.split(|byte| matches!(byte, b' ' | b'\t' | 0)).next()?;
    (!word.is_empty()).then(|| word.to_owned())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    struct Folder(tempfile::TempDir);

    impl Folder {
        fn new() -> Self {
            let dir = tempfile::tempdir().unwrap();
            for name in ["bin", "bin2", "folder"] {
                fs::create_dir(dir.path().join(name)).unwrap();
            }
            Self(dir)
        }

        fn file(&self, name: &str, content: &str, mode: u32) -> &Self {
            let path = self.0.path().join(name);
            fs::write(&path, content).unwrap();
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
            self
        }

        /// The path from the folder, or the message.
        fn resolve(&self, program: &str) -> String {
            let root = self.0.path();
            let path = std::env::join_paths([Path::new("bin"), &root.join("bin2")]).unwrap();
            match resolve_program(OsStr::new(program), root, &path) {
                Ok(found) => found.strip_prefix(root).unwrap().display().to_string(),
                Err(error) => format!("{} {error}", error.not_found),
            }
        }
    }

    #[test]
    fn found_as_exec_would() {
        let folder = Folder::new();
        folder
            .file("bin/a", "#!/bin/sh\n", 0o644)
            .file("bin2/a", "#!/bin/sh\n", 0o755)
            .file("bin/b", "#! /bin/sh -e\n", 0o755)
            .file("bin/plain", "echo", 0o755)
            .file("c", "", 0o755);
        for (program, expected) in [
            ("a", "bin2/a"),
            ("b", "bin/b"),
            ("plain", "bin/plain"),
            ("./c", "c"),
            ("bin/b", "bin/b"),
            ("c", "true cannot start `c`: no such file or directory"),
            ("./d", "true cannot start `./d`: no such file or directory"),
            (
                "./c/x",
                "true cannot start `./c/x`: no such file or directory",
            ),
            ("bin/a", "false cannot start `bin/a`: permission denied"),
            (
                "./folder",
                "false cannot start `./folder`: it is not a file",
            ),
            ("", "true cannot start ``: it has no name"),
        ] {
            assert_eq!(folder.resolve(program), expected, "{program}");
        }
        let found = resolve_program(OsStr::new("c"), folder.0.path(), OsStr::new("")).unwrap();
        assert_eq!(found, folder.0.path().join("c"));
    }

    #[test]
    fn interpreters_are_looked_for() {
        let folder = Folder::new();
        folder
            .file("gone", "#!/no/such/thing -x\n", 0o755)
            .file("dos", "#!/bin/sh\r\necho\r\n", 0o755)
            .file("data", "", 0o644)
            .file("via-data", "#!data\n", 0o755)
            .file("via-gone", "#!gone\n", 0o755)
            .file("loop", "#!loop\n", 0o755)
            .file("empty", "#!\n", 0o755)
            .file("env", "#!/usr/bin/env no-such-program\n", 0o755);
        for (program, expected) in [
            (
                "./gone",
                "its interpreter `/no/such/thing`: no such file or directory",
            ),
            (
                "./dos",
                "its interpreter `/bin/sh`: no such file or directory (its first line ends with a carriage return)",
            ),
            ("./via-data", "its interpreter `data`: permission denied"),
            (
                "./via-gone",
                "its interpreter `/no/such/thing`: no such file or directory",
            ),
            ("./loop", "its interpreters are scripts without end"),
        ] {
            let expected = format!("false cannot start `{program}`: {expected}");
            assert_eq!(folder.resolve(program), expected);
        }
        assert_eq!(folder.resolve("./empty"), "empty");
        // It starts; that `env` then finds nothing is an exit code like any other.
        assert_eq!(folder.resolve("./env"), "env");
    }
}
