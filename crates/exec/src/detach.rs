//! A copy of this binary that outlives the one who started it.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::os;

/// Starts this very binary again in a session of its own, without a terminal: it goes on when the
/// terminal is closed. Both its outputs go to `log`, `stdin` is its standard input.
///
/// Nobody supervises it: it is a runner, not a child of one.
pub fn spawn_detached(
    args: &[OsString],
    cwd: &Path,
    stdin: OwnedFd,
    log: &File,
) -> io::Result<Child> {
    #[allow(clippy::disallowed_methods)] // Meant to outlive us: the opposite of a supervised child.
    let mut cmd = Command::new("/proc/self/exe");
    cmd.args(args)
        .current_dir(cwd)
        .stdin(stdin)
        .stdout(Stdio::from(log.try_clone()?))
        .stderr(Stdio::from(log.try_clone()?));
    os::own_session(&mut cmd);
    cmd.spawn()
}

/// Takes what was handed over as standard input and puts `/dev/null` in its place, so that no child
/// inherits it.
pub fn take_stdin() -> io::Result<File> {
    let taken = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), 3)?;
    rustix::stdio::dup2_stdin(File::open("/dev/null")?)?;
    Ok(File::from(taken))
}
