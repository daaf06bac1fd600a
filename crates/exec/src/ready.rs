//! A supervisor that has been started and waits to be told what to run.
//!
//! To load and start a program takes a while, which grows with its binary. Whoever knows that it
//! will soon need a supervisor can let that happen while it does something else.

use std::io::{self, PipeReader};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::path::absolute;
use std::process::{Child, Command};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::io::Errno;

use crate::protocol::{Control, Order};
use crate::run::Supervisor;
use crate::spec::Spec;
use crate::{SESSION_VARIABLE, os};

/// A waiting supervisor and our ends of its pipes. It ends when this is dropped.
#[derive(Debug)]
pub struct Ready(Option<Parts>);

#[derive(Debug)]
pub(crate) struct Parts {
    pub(crate) child: Child,
    pub(crate) control: Control,
    pub(crate) stdout: PipeReader,
    pub(crate) stderr: PipeReader,
    /// What everything below it has in its environment.
    pub(crate) mark: String,
}

impl Supervisor {
    /// Starts a supervisor for [`Supervisor::run_in`].
    pub fn prepare(&self) -> io::Result<Ready> {
        // If the supervisor is killed, its children come back to us instead of init.
        os::become_subreaper()?;
        let (binary, prefix) = self.argv.split_first().ok_or(Errno::INVAL)?;
        let mark = new_mark();
        let (ours, theirs) = UnixStream::pair()?;
        let (stdout, stdout_end) = io::pipe()?;
        let (stderr, stderr_end) = io::pipe()?;
        let control = Control::new(ours)?;
        #[allow(clippy::disallowed_methods)] // This is the place that the ban points to.
        let mut cmd = Command::new(binary);
        cmd.args(prefix)
            .env_clear()
            .env(SESSION_VARIABLE, &mark)
            // Out of the terminal's foreground group: Ctrl-C is for the runner, who then asks for an
            // end.
            .process_group(0)
            .stdin(OwnedFd::from(theirs))
            .stdout(stdout_end)
            .stderr(stderr_end);
        let child = cmd.spawn()?;
        // `cmd` still holds the other ends of the pipes; it is dropped here.
        Ok(Ready(Some(Parts {
            child,
            control,
            stdout,
            stderr,
            mark,
        })))
    }
}

impl Ready {
    /// Its process id, for whoever wants to see that it ends.
    pub fn id(&self) -> Option<u32> {
        self.0.as_ref().map(|parts| parts.child.id())
    }

    /// Tells it what to run. From here on the caller answers for it.
    pub(crate) fn order(self, spec: &Spec) -> io::Result<Parts> {
        self.tell(spec, |_| false)
    }

    /// The same; that it is gone already shows when it is listened to.
    pub(crate) fn order_or_lose(self, spec: &Spec) -> io::Result<Parts> {
        use io::ErrorKind::{BrokenPipe, ConnectionReset};
        self.tell(spec, |error| {
            matches!(error.kind(), BrokenPipe | ConnectionReset)
        })
    }

    fn tell(mut self, spec: &Spec, is_fine: fn(&io::Error) -> bool) -> io::Result<Parts> {
        let mut parts = self.0.take().ok_or(Errno::SRCH)?;
        match order_of(spec, &parts.mark).and_then(|order| parts.control.send_order(&order)) {
            Ok(()) => Ok(parts),
            Err(error) if is_fine(&error) => Ok(parts),
            Err(error) => {
                end(&mut parts);
                Err(error)
            }
        }
    }
}

impl Drop for Ready {
    fn drop(&mut self) {
        if let Some(parts) = &mut self.0 {
            end(parts);
        }
    }
}

/// It has started nothing: there is nothing below it to end.
fn end(parts: &mut Parts) {
    let _ = parts.child.kill();
    let _ = parts.child.wait();
}

fn order_of(spec: &Spec, mark: &str) -> io::Result<Order> {
    let mut order = Order::default();
    order.option("--cwd", &spec.cwd);
    if let Some(path) = &spec.stdin {
        order.option("--stdin", &absolute(path)?);
    }
    if let Some(path) = &spec.hold_lock {
        order.option("--hold-lock", &absolute(path)?);
    }
    let grace_ms = u64::try_from(spec.grace.as_millis()).unwrap_or(u64::MAX);
    order.option("--grace-ms", &grace_ms.to_string());
    for (name, is_so) in [
        ("--monitor", spec.monitor),
        ("--merge-stderr", spec.merge_stderr),
    ] {
        if is_so {
            order.option(name, "1");
        }
    }
    if let Some(limit) = spec.task_limit {
        order.option("--task-limit", &limit.to_string());
    }
    let others = spec.env.iter().filter(|(name, _)| name != SESSION_VARIABLE);
    for (name, value) in others {
        let mut pair = name.clone();
        pair.push("=");
        pair.push(value);
        order.option("--env", &pair);
    }
    order.option("--env", &format!("{SESSION_VARIABLE}={mark}"));
    order.argv(&spec.argv);
    Ok(order)
}

/// Unique among all sessions whose processes may be alive; the first items are the sessions that this
/// runner is itself inside of, so that the outermost one recognises everything below.
fn new_mark() -> String {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    #[allow(clippy::disallowed_methods)] // for its digits, not for the time
    let nanos = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_nanos());
    let own = format!("{}-{count}-{nanos:x}", std::process::id());
    match std::env::var(SESSION_VARIABLE) {
        Ok(outer) if !outer.is_empty() => format!("{outer}:{own}"),
        _ => own,
    }
}
