//! Connections that are lent and given back without a word.
//!
//! The pool asks every connection whether it lives whenever it is given back: a message and
//! an answer for every call. Whoever gives one back here has just had its answer.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use sqlx::pool::PoolConnection;
use sqlx::{Connection as _, Database, Pool};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// A connection that was idle for longer is tested before it is used.
const STALE: Duration = Duration::from_secs(1);

/// One that is free, and since when.
type Free<DB> = (PoolConnection<DB>, Instant);

pub(crate) struct Lender<DB: Database> {
    pool: Pool<DB>,
    /// Those that are free, the last one used on top; none once it is closed.
    free: Mutex<Option<Vec<Free<DB>>>>,
    /// How many are kept at most.
    room: usize,
    /// Whoever comes when all are lent waits here for one that is given back: the pool does
    /// not know of it.
    turns: Arc<Semaphore>,
}

impl<DB: Database> Lender<DB> {
    pub(crate) fn new(pool: Pool<DB>, room: usize) -> Arc<Lender<DB>> {
        Arc::new(Lender {
            pool,
            free: Mutex::new(Some(Vec::new())),
            room,
            turns: Arc::new(Semaphore::new(room.max(1))),
        })
    }

    fn take(&self) -> Option<Free<DB>> {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        free.as_mut()?.pop()
    }

    pub(crate) async fn lend(self: &Arc<Self>) -> Result<Lent<DB>, sqlx::Error> {
        let patience = self.pool.options().get_acquire_timeout();
        let turn = Arc::clone(&self.turns).acquire_owned();
        let turn = tokio::time::timeout(patience, turn).await;
        let turn = turn.map_err(|_| sqlx::Error::PoolTimedOut)?;
        let turn = turn.map_err(|_| sqlx::Error::PoolClosed)?;
        while let Some((mut connection, since)) = self.take() {
            if since.elapsed() < STALE || connection.ping().await.is_ok() {
                return Ok(self.lent(connection, turn));
            }
            connection.close_on_drop();
        }
        Ok(self.lent(self.pool.acquire().await?, turn))
    }

    fn lent(
        self: &Arc<Self>,
        connection: PoolConnection<DB>,
        turn: OwnedSemaphorePermit,
    ) -> Lent<DB> {
        Lent {
            connection: Some(connection),
            clean: true,
            lender: Arc::clone(self),
            _turn: turn,
        }
    }

    /// Ends all connections; those that are lent end when they are given back.
    pub(crate) async fn close(&self) {
        let free = self
            .free
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        drop(free);
        self.pool.close().await;
    }
}

/// A connection for one caller.
pub(crate) struct Lent<DB: Database> {
    connection: Option<PoolConnection<DB>>,
    /// Whether it has answered everything it was asked.
    clean: bool,
    lender: Arc<Lender<DB>>,
    /// Given back last: then the connection is there for the next one.
    _turn: OwnedSemaphorePermit,
}

impl<DB: Database> Lent<DB> {
    /// To ask something. Until [`Lent::answered`] it is not given to anybody else.
    pub(crate) fn ask(&mut self) -> Option<&mut DB::Connection> {
        self.clean = false;
        self.connection.as_deref_mut()
    }

    /// The answer is there. One that is no error of the database leaves the connection to
    /// the pool, which finds out whether it lives.
    pub(crate) fn answered<T>(&mut self, answer: &Result<T, sqlx::Error>) {
        self.clean = match answer {
            Ok(_) => true,
            Err(error) => error.as_database_error().is_some(),
        };
    }

    /// It shall not be used again.
    pub(crate) fn close(mut self) {
        if let Some(mut connection) = self.connection.take() {
            connection.close_on_drop();
        }
    }

    /// Ended here and now, for those who cannot wait for it.
    pub(crate) fn cut(mut self) {
        drop(self.connection.take().map(PoolConnection::detach));
    }
}

impl<DB: Database> Drop for Lent<DB> {
    fn drop(&mut self) {
        let Some(connection) = self.connection.take().filter(|_| self.clean) else {
            return;
        };
        let free = &self.lender.free;
        let mut free = free.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(free) = free.as_mut().filter(|free| free.len() < self.lender.room) {
            free.push((connection, Instant::now()));
        }
    }
}
