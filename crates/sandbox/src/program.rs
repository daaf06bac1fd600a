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
const HEAD: usize = 256;

/// How often the kernel puts an interpreter in the place of a script before it gives up.
const REWRITES: usize = 5;

/// Why a program cannot be started.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ProgramError {
    /// There is no such program (as opposed to one that cannot be run).
    pub not_found: bool,
    /// A lowercase fragment that names the program.
    pub message: String,
}

/// Why one file cannot be started, by what is done about it.
#[derive(Debug, Clone, PartialEq, Eq)]
enum FileRefusal {
    /// It is not there: the next folder may have it.
    Absent,
    /// It, or its interpreter, cannot be run: the next folder may have a better one.
    PassedOver(String),
    /// No other folder is looked at.
    Final(String),
}

/// The file that an exec of `program` in `cwd` would take, with this `PATH`, if it can be run.
///
/// The same rules as execvp's: a name with a slash is a path, any other is looked for in the folders
/// of `PATH`, and a file that may not be executed, or whose interpreter is not there, is passed over.
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
    let mut passed_over = None;
    for candidate in candidates {
        match check_start(&candidate, cwd) {
            Ok(()) => return Ok(candidate),
            Err(FileRefusal::Absent) => {}
            Err(FileRefusal::PassedOver(reason)) => passed_over = passed_over.or(Some(reason)),
            Err(FileRefusal::Final(reason)) => return Err(fail(false, &reason)),
        }
    }
    Err(match passed_over {
        Some(reason) => fail(false, &reason),
        None => fail(true, "no such file or directory"),
    })
}

/// Whether the kernel would start this file, with the interpreters that it asks for.
fn check_start(file: &Path, cwd: &Path) -> Result<(), FileRefusal> {
    check_executable(file)?;
    let mut file = file.to_owned();
    // The one that is no script comes after the last of them, and counts as none.
    for _ in 0..=REWRITES {
        let Some(name) = interpreter(&file) else {
            return Ok(());
        };
        let path = cwd.join(OsStr::from_bytes(&name));
        let found = if name.is_empty() {
            Err(FileRefusal::Absent)
        } else {
            check_executable(&path)
        };
        found.map_err(|refusal| of_interpreter(&name, refusal))?;
        file = path;
    }
    let reason = "its interpreters are scripts without end";
    Err(FileRefusal::Final(reason.to_owned()))
}

fn check_executable(path: &Path) -> Result<(), FileRefusal> {
    let passed_over = |reason: &str| FileRefusal::PassedOver(reason.to_owned());
    let meta = path.metadata().map_err(|error| match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => FileRefusal::Absent,
        io::ErrorKind::PermissionDenied => passed_over("permission denied"),
        _ => FileRefusal::Final("it cannot be looked at".to_owned()),
    })?;
    if !meta.is_file() {
        return Err(passed_over("it is not a file"));
    }
    rustix::fs::access(path, Access::EXEC_OK).map_err(|_| passed_over("permission denied"))
}

/// The same as the reason of the script that names it.
fn of_interpreter(name: &[u8], refusal: FileRefusal) -> FileRefusal {
    let shown = String::from_utf8_lossy(name).into_owned();
    // The classic among scripts from another system, and invisible in most editors.
    let ending = if shown.ends_with('\r') {
        " (its first line ends with a carriage return)"
    } else {
        ""
    };
    let shown = shown.trim_end();
    let say = |why: &str| format!("its interpreter `{shown}`: {why}{ending}");
    match refusal {
        FileRefusal::Absent => FileRefusal::PassedOver(say("no such file or directory")),
        FileRefusal::PassedOver(why) => FileRefusal::PassedOver(say(&why)),
        FileRefusal::Final(why) => FileRefusal::Final(say(&why)),
    }
}

/// The interpreter that a file names. `None`: it is no script, or one that cannot be read or that the
/// kernel makes nothing of, which execvp then hands to the shell.
fn interpreter(path: &Path) -> Option<Vec<u8>> {
    let mut head = Vec::new();
    let file = File::open(path).ok()?;
    file.take(HEAD as u64).read_to_end(&mut head).ok()?;
    head.resize(HEAD, 0);
    interpreter_in(&head)
}

/// The same by the first bytes of a file, with zeros behind its end. As `load_script` of the kernel
/// reads them: blanks are the space and the tab, and a name that is cut off is none.
fn interpreter_in(head: &[u8]) -> Option<Vec<u8>> {
    let is_blank = |byte: &u8| matches!(byte, b' ' | b'\t');
    let line = head.strip_prefix(b"#!")?;
    let end = line.iter().position(|byte| matches!(byte, b'\n' | 0));
    let ends = end.is_some_and(|end| line[end] == b'\n');
    let line = if ends { &line[..end?] } else { line };
    let name = &line[line.iter().position(|byte| !is_blank(byte))?..];
    let end = name.iter().position(|byte| is_blank(byte) || *byte == 0);
    match end {
        Some(end) => Some(name[..end].to_owned()),
        None => ends.then(|| name.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;
    use std::os::unix::process::CommandExt as _;

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
            .file("bin/d", "#!/no/such/thing\n", 0o755)
            .file("bin2/d", "#!/bin/sh\n", 0o755)
            .file("bin/e", "#!e\n", 0o755)
            .file("e", "#!e\n", 0o755)
            .file("bin2/e", "#!/bin/sh\n", 0o755)
            .file("c", "", 0o755);
        for (program, expected) in [
            ("a", "bin2/a"),
            ("b", "bin/b"),
            ("plain", "bin/plain"),
            // What has no interpreter is passed over, and what has too many is not.
            ("d", "bin2/d"),
            (
                "e",
                "false cannot start `e`: its interpreters are scripts without end",
            ),
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

    /// Whether the kernel starts it, with the rules of execvp.
    #[allow(clippy::disallowed_methods)] // It ends at once, and the test waits for it.
    fn is_started(folder: &Folder, program: &str) -> bool {
        loop {
            let tried = std::process::Command::new(program)
                .current_dir(&folder.0)
                .env("PATH", "bin:bin2")
                // Without it the library would not call execvp, as it does for the supervisor.
                .gid(rustix::process::getgid().as_raw())
                .stdin(std::process::Stdio::null())
                .stdout(std::process::Stdio::null())
                .stderr(std::process::Stdio::null())
                .status();
            match tried {
                // A process that another test starts has a file of ours open, for a moment.
                Err(error) if error.kind() == io::ErrorKind::ExecutableFileBusy => {}
                other => return other.is_ok(),
            }
        }
    }

    #[test]
    fn the_same_answer_as_the_kernels() {
        let folder = Folder::new();
        let cut_off = format!("#!/bin/{}sh", "./".repeat(200));
        let just_fits = format!("#!/bin/{}sh \n", "./".repeat(122));
        let too_long = format!("#!/bin/{}sh \n", "./".repeat(124));
        let blanks = format!("#!{}/bin/sh\n", " ".repeat(300));
        // Chains of scripts: as many as the kernel follows, and one more.
        for count in 1..=7 {
            for number in 1..count {
                let next = format!("#!./chain{count}-{}\n", number + 1);
                folder.file(&format!("chain{count}-{number}"), &next, 0o755);
            }
            folder.file(&format!("chain{count}-{count}"), "#!/bin/sh\n", 0o755);
        }
        for (name, content, mode) in [
            ("shell", "#!/bin/sh\n", 0o755),
            ("closed", "#!/bin/sh\n", 0o644),
            ("blanks", "#! \t /bin/sh \t \n", 0o755),
            ("no-end", "#!/bin/sh", 0o755),
            ("zero", "#!/bin/sh\0x\n", 0o755),
            ("only-zero", "#!\0\n", 0o755),
            ("return", "#!/bin/sh\r\n", 0o755),
            ("return-first", "#!\r/bin/sh\n", 0o755),
            ("form-feed", "#!\x0c/bin/sh\n", 0o755),
            ("form-feed-last", "#!/bin/sh\x0c\n", 0o755),
            ("no-name", "#!\n", 0o755),
            ("only-blanks", "#! \t\n", 0o755),
            ("folder-script", "#!/bin\n", 0o755),
            ("below-file", "#!/bin/sh/x\n", 0o755),
            ("gone", "#!/no/such/thing\n", 0o755),
            ("via-closed", "#!closed\n", 0o755),
            ("via-plain", "#!plain\n", 0o755),
            ("plain", "true\n", 0o755),
            ("loop", "#!loop\n", 0o755),
            ("cut-off", &cut_off, 0o755),
            ("just-fits", &just_fits, 0o755),
            ("too-long", &too_long, 0o755),
            ("many-blanks", &blanks, 0o755),
            ("bin/x", "#!/no/such/thing\n", 0o755),
            ("bin2/x", "#!/bin/sh\n", 0o755),
            ("bin/y", "#!/bin/sh\n", 0o644),
            ("bin2/y", "#!/bin/sh\n", 0o755),
            ("bin/z", "#!loop\n", 0o755),
            ("bin2/z", "#!/bin/sh\n", 0o755),
        ] {
            folder.file(name, content, mode);
        }
        std::os::unix::fs::symlink("itself", folder.0.path().join("itself")).unwrap();
        let named = [
            "shell",
            "closed",
            "blanks",
            "no-end",
            "zero",
            "only-zero",
            "return",
            "return-first",
            "form-feed",
            "form-feed-last",
            "no-name",
            "only-blanks",
            "folder-script",
            "below-file",
            "gone",
            "via-closed",
            "via-plain",
            "plain",
            "loop",
            "cut-off",
            "just-fits",
            "too-long",
            "many-blanks",
            "itself",
            "folder",
            "absent",
        ];
        let chains = (1..=7).map(|count| format!("./chain{count}-1"));
        let programs = named.map(|name| format!("./{name}")).into_iter();
        let looked_for = ["x", "y", "z", "absent"].map(str::to_owned);
        for program in programs.chain(chains).chain(looked_for) {
            let found = resolve_program(
                OsStr::new(&program),
                folder.0.path(),
                OsStr::new("bin:bin2"),
            );
            let started = is_started(&folder, &program);
            assert_eq!(found.is_ok(), started, "{program}: {found:?}");
        }
    }
}
