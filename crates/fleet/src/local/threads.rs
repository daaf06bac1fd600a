//! Threads of their own for what takes time, and the ways to end it: the stop sign, a
//! timebox, and that nobody waits any more.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use runner_exec::Cancel;
use tokio::sync::oneshot;

use crate::workspaces::{StopSign, WorkspaceError};

/// A call that can be ended from outside.
#[derive(Clone, Debug)]
pub(super) struct ThreadCall {
    /// Ends its children.
    pub(super) cancel: Cancel,
    time_up: Arc<AtomicBool>,
}

impl ThreadCall {
    /// Whether it is to end because its time is up.
    pub(super) fn is_time_up(&self) -> bool {
        self.time_up.load(Ordering::SeqCst)
    }
}

/// Cancels when nobody waits for the end any more.
struct Abandon(Cancel);

impl Drop for Abandon {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

/// Does something on a thread of its own.
pub(super) async fn on_thread<T: Send + 'static>(
    act: impl FnOnce() -> T + Send + 'static,
) -> Result<T, WorkspaceError> {
    let (sender, receiver) = oneshot::channel();
    std::thread::Builder::new()
        .name("yard".to_owned())
        .spawn(move || {
            // Nobody may be waiting any more.
            let _ = sender.send(act());
        })
        .map_err(|error| WorkspaceError(format!("cannot start a thread: {error}")))?;
    receiver
        .await
        .map_err(|_| WorkspaceError("a thread of the yard ended before its work".to_owned()))
}

/// Does something that has children on a thread of its own, until it ends or is ended. It is
/// always waited for: when this returns, its children are gone.
pub(super) async fn supervised<T: Send + 'static>(
    mut stop: StopSign,
    timebox: Option<Duration>,
    act: impl FnOnce(&ThreadCall) -> Result<T, WorkspaceError> + Send + 'static,
) -> Result<T, WorkspaceError> {
    let cancel = Cancel::new().map_err(|error| WorkspaceError(error.to_string()))?;
    let call = ThreadCall {
        cancel: cancel.clone(),
        time_up: Arc::default(),
    };
    let abandon = Abandon(cancel);
    let time_up = Arc::clone(&call.time_up);
    let mut work = Box::pin(on_thread(move || act(&call)));
    let over = async {
        match timebox {
            Some(limit) => tokio::time::sleep(limit).await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        ended = &mut work => return ended?,
        () = stop.raised() => {}
        () = over => time_up.store(true, Ordering::SeqCst),
    }
    abandon.0.cancel();
    work.await?
}
