//! Short helpers that need no supervisor (git): started cheaply, killed when this process dies.

use std::collections::BTreeMap;
use std::ffi::{CString, OsStr, OsString};
use std::fs::File;
use std::io::{self, PipeReader, PipeWriter, Read as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Command, ExitStatus, Output};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitOptions};

use crate::os;

/// Where programs are looked for when nobody says it.
const DEFAULT_PATH: &str = "/bin:/usr/bin";

/// What the standard library makes of a text that no program can be given.
const HAD_A_NUL: &str = "<string-with-nul>";

/// What a helper reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Input {
    /// Nothing: `/dev/null`.
    Nothing,
    /// What is written to [`Helper::stdin`].
    Pipe,
}

/// A running helper. It is killed by the kernel when the *thread* that spawned it ends, and when
/// this is dropped before it was waited for.
#[derive(Debug)]
pub struct Helper {
    pid: Pid,
    ended: Option<ExitStatus>,
    /// For [`Input::Pipe`]; drop it to tell the helper that there is no more.
    pub stdin: Option<PipeWriter>,
    stdout: Option<PipeReader>,
    stderr: Option<PipeReader>,
    /// What has been read so far.
    read: (Vec<u8>, Vec<u8>),
}

impl Helper {
    /// Starts a program with its output in pipes, in a process group of its own: Ctrl-C in the
    /// terminal is for this process to handle.
    ///
    /// Program, arguments, folder and changes of the environment are taken from `command`; it must
    /// not have cleared the environment, and what it says of streams, groups and hooks is not asked.
    pub fn spawn(command: &Command, input: Input) -> io::Result<Self> {
        let env = environment(command);
        let path = env.get(OsStr::new("PATH")).map(OsString::as_os_str);
        let programs = places(command.get_program(), path)?;
        let argv = std::iter::once(command.get_program()).chain(command.get_args());
        let argv: Vec<CString> = argv
            .map(|text| {
                if text == HAD_A_NUL {
                    return Err(io::ErrorKind::InvalidInput.into());
                }
                c_string(text)
            })
            .collect::<io::Result<_>>()?;
        let env: Vec<CString> = env
            .iter()
            .map(|(name, value)| {
                let mut pair = name.clone();
                pair.push("=");
                pair.push(value);
                c_string(&pair)
            })
            .collect::<io::Result<_>>()?;
        let cwd = command.get_current_dir().map(Path::as_os_str);
        let cwd = cwd.map(c_string).transpose()?;
        let (stdin, ours) = match input {
            Input::Nothing => (OwnedFd::from(File::open("/dev/null")?), None),
            Input::Pipe => {
                let (theirs, ours) = io::pipe()?;
                (theirs.into(), Some(ours))
            }
        };
        let (stdout, stdout_end) = io::pipe()?;
        let (stderr, stderr_end) = io::pipe()?;
        let ends = [stdin, stdout_end.into(), stderr_end.into()].map(above_the_standard_ones);
        let [stdin_end, stdout_end, stderr_end] = ends;
        let ends = [stdin_end?, stdout_end?, stderr_end?];
        let pid = os::spawn_sharing_memory(&os::Image {
            programs: &programs,
            argv: &argv,
            env: &env,
            cwd: cwd.as_deref(),
            streams: [ends[0].as_fd(), ends[1].as_fd(), ends[2].as_fd()],
        })?;
        Ok(Self {
            pid,
            ended: None,
            stdin: ours,
            stdout: Some(stdout),
            stderr: Some(stderr),
            read: (Vec::new(), Vec::new()),
        })
    }

    /// Its process id.
    pub fn id(&self) -> u32 {
        self.pid.as_raw_pid().unsigned_abs()
    }

    /// Reads what it prints until both its streams are closed (true), or nothing came for so long
    /// (false): then it may be asked again.
    pub fn read_for(&mut self, limit: Option<Duration>) -> io::Result<bool> {
        self.read_more(limit, usize::MAX)
    }

    /// At most `max` bytes of what it prints to its standard output, and whether there was more.
    pub fn read_up_to(&mut self, max: usize) -> io::Result<(Vec<u8>, bool)> {
        let all = self.read_more(None, max)?;
        let mut bytes = std::mem::take(&mut self.read.0);
        bytes.truncate(max);
        Ok((bytes, !all))
    }

    /// False too as soon as there is more than so much.
    fn read_more(&mut self, limit: Option<Duration>, max: usize) -> io::Result<bool> {
        let limit = limit.map(|limit| Timespec::try_from(limit).unwrap_or_default());
        let mut buffer = [0; 1 << 14];
        while self.read.0.len() <= max {
            let mut streams = [
                (&mut self.stdout, &mut self.read.0),
                (&mut self.stderr, &mut self.read.1),
            ];
            let mut open: Vec<_> = streams
                .iter_mut()
                .filter(|(pipe, _)| pipe.is_some())
                .collect();
            let mut fds: Vec<PollFd<'_>> = open
                .iter()
                .filter_map(|(pipe, _)| pipe.as_ref())
                .map(|pipe| PollFd::new(pipe, PollFlags::IN))
                .collect();
            if fds.is_empty() {
                return Ok(true);
            }
            match rustix::event::poll(&mut fds, limit.as_ref()) {
                Ok(0) => return Ok(false),
                Err(Errno::INTR) => continue,
                other => other?,
            };
            let ready: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
            for ((pipe, read), _) in open.iter_mut().zip(ready).filter(|(_, ready)| *ready) {
                match pipe.as_mut().map_or(Ok(0), |pipe| pipe.read(&mut buffer)) {
                    Ok(0) => **pipe = None,
                    Ok(count) => read.extend_from_slice(&buffer[..count]),
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(false)
    }

    /// Ends it.
    pub fn kill(&mut self) {
        if self.ended.is_none() {
            // It may have ended by itself, which is as good.
            let _ = rustix::process::kill_process(self.pid, Signal::KILL);
        }
    }

    /// Waits until it has ended.
    pub fn wait(&mut self) -> io::Result<ExitStatus> {
        self.stdin = None;
        loop {
            if let Some(status) = self.ended {
                return Ok(status);
            }
            match rustix::process::waitpid(Some(self.pid), WaitOptions::empty()) {
                Ok(Some((_, status))) => self.ended = Some(ExitStatus::from_raw(status.as_raw())),
                Ok(None) | Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Waits until it has ended; everything that it printed.
    pub fn output(mut self) -> io::Result<Output> {
        self.stdin = None;
        self.read_for(None)?;
        let status = self.wait()?;
        let (stdout, stderr) = std::mem::take(&mut self.read);
        Ok(Output {
            status,
            stdout,
            stderr,
        })
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        if self.ended.is_none() {
            self.kill();
            let _ = self.wait();
        }
    }
}

/// Ours with the changes of a command.
fn environment(command: &Command) -> BTreeMap<OsString, OsString> {
    let mut env: BTreeMap<OsString, OsString> = std::env::vars_os().collect();
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => env.insert(name.to_owned(), value.to_owned()),
            None => env.remove(name),
        };
    }
    env
}

/// Where a program may be: as `execvp` looks for it.
fn places(program: &OsStr, path: Option<&OsStr>) -> io::Result<Vec<CString>> {
    if program.as_bytes().contains(&b'/') {
        return Ok(vec![c_string(program)?]);
    }
    let path = path.unwrap_or(OsStr::new(DEFAULT_PATH));
    std::env::split_paths(path)
        .map(|folder| c_string(folder.join(program).as_os_str()))
        .collect()
}

fn c_string(text: &OsStr) -> io::Result<CString> {
    Ok(CString::new(text.to_owned().into_vec())?)
}

/// A descriptor that can be put in the place of a standard stream without being in the way of
/// another one.
fn above_the_standard_ones(fd: OwnedFd) -> io::Result<OwnedFd> {
    use std::os::fd::AsRawFd as _;
    if fd.as_raw_fd() > 2 {
        return Ok(fd);
    }
    Ok(rustix::io::fcntl_dupfd_cloexec(fd, 3)?)
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind::{InvalidInput, NotFound, PermissionDenied};
    use std::io::Write as _;

    use super::*;

    #[allow(clippy::disallowed_methods)] // only described, never spawned by itself
    fn sh(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    fn text(output: &Output) -> String {
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    #[test]
    fn environment_folder_and_streams_are_as_told() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().canonicalize().unwrap();
        let mut command = sh("pwd; echo \"$ADDED\" \"${HOME-unset}\"; cat; echo bad >&2; exit 7");
        command
            .env("ADDED", "a b")
            .env_remove("HOME")
            .current_dir(&folder);
        let mut helper = Helper::spawn(&command, Input::Pipe).unwrap();
        helper.stdin.take().unwrap().write_all(b"in\n").unwrap();
        let output = helper.output().unwrap();
        assert_eq!(
            text(&output),
            format!("{}\na b unset\nin\n", folder.display())
        );
        assert_eq!(output.stderr, b"bad\n");
        assert_eq!(output.status.code(), Some(7));
    }

    #[test]
    fn signals_are_open_and_as_they_were() {
        // Rust ignores SIGPIPE, which a child must not inherit; nor may one stay blocked.
        let helper = Helper::spawn(&sh("grep ^Sig /proc/self/status"), Input::Nothing).unwrap();
        let all = text(&helper.output().unwrap());
        let mask = |name: &str| {
            let line = all.lines().find(|line| line.starts_with(name)).unwrap();
            u64::from_str_radix(line.split_whitespace().nth(1).unwrap(), 16).unwrap()
        };
        assert_eq!(mask("SigBlk"), 0, "{all}");
        let pipe = 1 << (Signal::PIPE.as_raw() - 1);
        assert_eq!(mask("SigIgn") & pipe, 0, "{all}");
    }

    #[test]
    fn it_leads_a_group_and_dies_with_its_thread() {
        let (group, mut helper) = std::thread::spawn(|| {
            let script = "cut -d' ' -f5 /proc/$$/stat; exec sleep 600";
            let mut helper = Helper::spawn(&sh(script), Input::Nothing).unwrap();
            while !helper.read_for(Some(Duration::from_millis(5))).unwrap()
                && !helper.read.0.contains(&b'\n')
            {}
            let group = String::from_utf8_lossy(&helper.read.0).trim().to_owned();
            (group, helper)
        })
        .join()
        .unwrap();
        assert_eq!(group, helper.id().to_string());
        let status = helper.wait().unwrap();
        assert_eq!(status.signal(), Some(Signal::KILL.as_raw()));
    }

    #[test]
    fn what_cannot_be_started_says_why() {
        let dir = tempfile::tempdir().unwrap();
        let closed = dir.path().join("program");
        std::fs::write(&closed, "no").unwrap();
        #[allow(clippy::disallowed_methods)] // as above
        let why = |program: &OsStr, folder: &Path| {
            let mut command = Command::new(program);
            command.current_dir(folder).env("PATH", dir.path());
            Helper::spawn(&command, Input::Nothing).unwrap_err().kind()
        };
        assert_eq!(why(OsStr::new("not-there"), dir.path()), NotFound);
        assert_eq!(why(OsStr::new("program"), dir.path()), PermissionDenied);
        assert_eq!(why(OsStr::new("/bin/sh"), &dir.path().join("no")), NotFound);
        assert_eq!(why(OsStr::new("a\0b"), dir.path()), InvalidInput);
    }

    #[test]
    fn much_output_on_both_streams_and_a_limit() {
        let script = "head -c 300000 /dev/zero >&2; head -c 300000 /dev/zero; exit 3";
        let output = Helper::spawn(&sh(script), Input::Nothing)
            .unwrap()
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(3));
        assert_eq!(
            (output.stdout.len(), output.stderr.len()),
            (300_000, 300_000)
        );
        let endless = sh("while :; do echo much; done");
        let mut helper = Helper::spawn(&endless, Input::Nothing).unwrap();
        let (bytes, more) = helper.read_up_to(7).unwrap();
        assert_eq!((bytes.as_slice(), more), (b"much\nmu".as_slice(), true));
    }
}
