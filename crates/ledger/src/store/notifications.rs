//! Hearing that something has changed. Only a notification: whoever listens looks by itself, too.

use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::inotify;
use sqlx::postgres::PgListener;
use tokio::io::unix::AsyncFd;
use tokio::sync::watch;

use crate::error::StoreError;

/// How long to wait before a broken connection is tried again.
const RECONNECT: Duration = Duration::from_secs(1);

/// Listens to one store.
pub struct StoreNotifications(NotificationSource);

enum NotificationSource {
    Postgres(Box<PgListener>),
    Sidecar { fd: AsyncFd<OwnedFd>, path: PathBuf },
    Here(watch::Receiver<u64>),
}

impl StoreNotifications {
    pub(crate) fn postgres(listener: PgListener) -> StoreNotifications {
        StoreNotifications(NotificationSource::Postgres(Box::new(listener)))
    }

    pub(crate) fn here(changes: watch::Receiver<u64>) -> StoreNotifications {
        StoreNotifications(NotificationSource::Here(changes))
    }

    /// Watches the file that every writer touches after its commit.
    pub(crate) fn sidecar(path: &Path) -> Result<StoreNotifications, StoreError> {
        let flags = inotify::CreateFlags::NONBLOCK | inotify::CreateFlags::CLOEXEC;
        let fd = inotify::init(flags).map_err(|error| unheard(path, &error.into()))?;
        watch(&fd, path).map_err(|error| unheard(path, &error))?;
        // Its successor is unsafe for descriptors that may be closed elsewhere; this one
        // is owned and never leaves.
        #[allow(deprecated)]
        let fd = AsyncFd::new(fd).map_err(|error| unheard(path, &error))?;
        let path = path.to_owned();
        Ok(StoreNotifications(NotificationSource::Sidecar { fd, path }))
    }

    /// Waits for the next notification. A connection that broke is one as well: whatever was said
    /// meanwhile was not heard.
    pub async fn next(&mut self) {
        match &mut self.0 {
            NotificationSource::Postgres(listener) => {
                loop {
                    match listener.try_recv().await {
                        Ok(_) => break,
                        Err(_) => tokio::time::sleep(RECONNECT).await,
                    }
                }
                while listener.next_buffered().is_some() {}
            }
            NotificationSource::Here(changes) => {
                if changes.changed().await.is_err() {
                    // The store is gone, and nothing will ever be said again.
                    std::future::pending::<()>().await;
                }
            }
            NotificationSource::Sidecar { fd, path } => loop {
                let Ok(mut ready) = fd.readable().await else {
                    tokio::time::sleep(RECONNECT).await;
                    return;
                };
                let heard = drain(fd.get_ref(), path);
                ready.clear_ready();
                if heard {
                    return;
                }
            },
        }
    }
}

fn watch(fd: &OwnedFd, path: &Path) -> std::io::Result<()> {
    touch(path)?;
    let on = inotify::WatchFlags::ATTRIB
        | inotify::WatchFlags::MODIFY
        | inotify::WatchFlags::DELETE_SELF
        | inotify::WatchFlags::MOVE_SELF;
    inotify::add_watch(fd, path, on)?;
    Ok(())
}

/// Takes everything that was heard. A sidecar that somebody removed is made anew.
fn drain(fd: &OwnedFd, path: &Path) -> bool {
    let mut heard = false;
    let mut gone = false;
    let mut buffer = [MaybeUninit::uninit(); 1024];
    let mut reader = inotify::Reader::new(fd, &mut buffer);
    while let Ok(event) = reader.next() {
        heard = true;
        gone |= event
            .events()
            .intersects(inotify::ReadFlags::IGNORED | inotify::ReadFlags::MOVE_SELF);
    }
    if gone {
        // It cannot be watched right now: the regular looks go on.
        let _ = watch(fd, path);
    }
    heard
}

/// Touches the sidecar, and makes it if need be.
pub(crate) fn touch(path: &Path) -> std::io::Result<()> {
    let file = std::fs::OpenOptions::new()
        .create(true)
        .append(true)
        .open(path)?;
    #[allow(clippy::disallowed_methods)] // Any other time than the last one will do.
    let now = std::time::SystemTime::now();
    file.set_times(std::fs::FileTimes::new().set_modified(now))
}

fn unheard(path: &Path, error: &std::io::Error) -> StoreError {
    StoreError::Other(format!("{} cannot be watched: {error}", path.display()))
}
