//! A program in a terminal: what it draws, the keys that are pressed, the size of
//! the window, and how the terminal is left.

use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::OFlags;
use rustix::pty::OpenptFlags;
use rustix::termios::Winsize;

use crate::run::command;

/// A program with a terminal of its own, killed when this is dropped.
#[derive(Debug)]
pub struct TestPty {
    master: File,
    /// Kept open, so that the terminal can be looked at after the program's end.
    slave: File,
    child: Child,
    seen: String,
}

impl TestPty {
    /// Starts `cmd` as the leader of a session whose terminal is this one.
    ///
    /// # Panics
    /// If there are no pseudo terminals here.
    pub fn spawn(cmd: &Command, columns: u16, rows: u16) -> Self {
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let master: OwnedFd = rustix::pty::openpt(flags).expect("a pseudo terminal");
        rustix::pty::grantpt(&master).expect("grantpt");
        rustix::pty::unlockpt(&master).expect("unlockpt");
        let name = rustix::pty::ptsname(&master, Vec::new()).expect("a name");
        let slave = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(i32::try_from(OFlags::NOCTTY.bits()).expect("a small number"))
            .open(OsString::from_vec(name.into_bytes()))
            .expect("the terminal can be opened");
        set_size(&master, columns, rows);
        let mut wrapped = command("setsid");
        wrapped
            .arg("--ctty")
            .arg(cmd.get_program())
            .args(cmd.get_args());
        wrapped.env_clear();
        for (key, value) in cmd.get_envs() {
            if let Some(value) = value {
                wrapped.env(key, value);
            }
        }
        if let Some(folder) = cmd.get_current_dir() {
            wrapped.current_dir(folder);
        }
        let end = || slave.try_clone().expect("the terminal can be shared");
        let child = wrapped
            .stdin(end())
            .stdout(end())
            .stderr(end())
            .spawn()
            .expect("setsid starts");
        Self {
            master: File::from(master),
            slave,
            child,
            seen: String::new(),
        }
    }

    /// The state of the terminal: raw or not, echo or not.
    pub fn modes(&self) -> String {
        let modes = rustix::termios::tcgetattr(&self.slave).expect("it is a terminal");
        format!(
            "{:?} {:?} {:?}",
            modes.input_modes, modes.output_modes, modes.local_modes
        )
    }

    /// Presses keys.
    pub fn press(&mut self, keys: &str) {
        self.master
            .write_all(keys.as_bytes())
            .expect("keys can be pressed");
    }

    /// Makes the window another size; the program is told by the kernel.
    pub fn resize(&self, columns: u16, rows: u16) {
        set_size(&self.master, columns, rows);
    }

    /// Sends a signal, such as `TERM`, to the program.
    pub fn signal(&self, name: &str) {
        crate::process::signal(name, i64::from(self.child.id()));
    }

    /// Forgets what was drawn so far, and returns it.
    pub fn take_seen(&mut self) -> String {
        std::mem::take(&mut self.seen)
    }

    /// Waits until `text` is drawn.
    #[track_caller]
    pub fn wait_for(&mut self, text: &str) {
        let until = Instant::now() + Duration::from_secs(60);
        while !self.seen.contains(text) {
            assert!(
                Instant::now() < until,
                "{text:?} was not drawn, but\n{:?}",
                self.start_of_seen()
            );
            self.read(Duration::from_millis(100));
        }
    }

    /// Waits for the end: the exit code, and all that was drawn since the last look.
    #[track_caller]
    pub fn wait(&mut self) -> (Option<i32>, String) {
        let until = Instant::now() + Duration::from_secs(60);
        loop {
            self.read(Duration::from_millis(20));
            if let Some(status) = self.child.try_wait().expect("it can be waited for") {
                self.read(Duration::ZERO);
                return (status.code(), self.take_seen());
            }
            assert!(
                Instant::now() < until,
                "it did not end, but drew\n{:?}",
                self.start_of_seen()
            );
        }
    }

    /// Programs that draw again and again draw a lot.
    fn start_of_seen(&self) -> String {
        self.seen.chars().take(4000).collect()
    }

    /// Takes in all that is there, after waiting for it a little.
    fn read(&mut self, wait: Duration) {
        let mut wait = Timespec::try_from(wait).ok();
        loop {
            let mut fds = [PollFd::from_borrowed_fd(self.master.as_fd(), PollFlags::IN)];
            if !matches!(rustix::event::poll(&mut fds, wait.as_ref()), Ok(ready) if ready > 0) {
                return;
            }
            let mut bytes = [0; 4096];
            match self.master.read(&mut bytes) {
                Ok(read) if read > 0 => {
                    self.seen.push_str(&String::from_utf8_lossy(&bytes[..read]));
                }
                _ => return,
            }
            wait = Some(Timespec::default());
        }
    }
}

impl Drop for TestPty {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn set_size(master: &impl std::os::fd::AsFd, columns: u16, rows: u16) {
    let size = Winsize {
        ws_row: rows,
        ws_col: columns,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    rustix::termios::tcsetwinsize(master, size).expect("a terminal has a size");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_in_a_terminal() {
        let mut cmd = command("sh");
        cmd.args([
            "-c",
            "trap 'stty size' WINCH; stty size; read line; echo got $line; while :; do sleep 0.1; done",
        ]);
        cmd.env("PATH", std::env::var_os("PATH").unwrap_or_default());
        let mut pty = TestPty::spawn(&cmd, 80, 24);
        let before = pty.modes();
        pty.wait_for("24 80");
        pty.press("key\n");
        pty.wait_for("got key");
        pty.resize(40, 12);
        pty.wait_for("12 40");
        assert_eq!(pty.modes(), before);
        pty.signal("TERM");
        let (code, _) = pty.wait();
        assert_eq!(code, None);
    }
}
