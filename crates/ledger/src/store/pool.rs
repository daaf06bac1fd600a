//! Connections that callers take and give back without a check.
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

pub(crate) struct ConnectionPool<DB: Database> {
    pool: Pool<DB>,
    /// Those that are free, the last one used on top; none once it is closed.
    free: Mutex<Option<Vec<Free<DB>>>>,
    /// How many are kept at most.
    room: usize,
    /// Whoever comes when all are taken waits here for one that is given back: the pool does
    /// not know of it.
    turns: Arc<Semaphore>,
}

impl<DB: Database> ConnectionPool<DB> {
    pub(crate) fn new(pool: Pool<DB>, room: usize) -> Arc<ConnectionPool<DB>> {
        Arc::new(ConnectionPool {
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

    pub(crate) async fn acquire(self: &Arc<Self>) -> Result<PooledConnection<DB>, sqlx::Error> {
        let patience = self.pool.options().get_acquire_timeout();
        let turn = Arc::clone(&self.turns).acquire_owned();
        let turn = tokio::time::timeout(patience, turn).await;
        let turn = turn.map_err(|_| sqlx::Error::PoolTimedOut)?;
        let turn = turn.map_err(|_| sqlx::Error::PoolClosed)?;
        while let Some((mut connection, since)) = self.take() {
            if since.elapsed() < STALE || connection.ping().await.is_ok() {
                return Ok(self.pooled(connection, turn));
            }
            connection.close_on_drop();
        }
        Ok(self.pooled(self.pool.acquire().await?, turn))
    }

    fn pooled(
        self: &Arc<Self>,
        connection: PoolConnection<DB>,
        turn: OwnedSemaphorePermit,
    ) -> PooledConnection<DB> {
        PooledConnection {
            connection: Some(connection),
            clean: true,
            connections: Arc::clone(self),
            _turn: turn,
        }
    }

    /// Ends all connections; those that are taken end when they are given back.
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

impl<DB: Database> Drop for ConnectionPool<DB> {
    /// Whoever wants them ended in order has said so before.
    fn drop(&mut self) {
        let free = self.free.get_mut().unwrap_or_else(PoisonError::into_inner);
        for (connection, _) in free.take().into_iter().flatten() {
            cut(connection);
        }
    }
}

/// Ends a connection here and now: the pool would need a runtime for it.
fn cut<DB: Database>(connection: PoolConnection<DB>) {
    drop(connection.detach());
}

/// A connection for one caller.
pub(crate) struct PooledConnection<DB: Database> {
    connection: Option<PoolConnection<DB>>,
    /// Whether it has answered everything it was asked.
    clean: bool,
    connections: Arc<ConnectionPool<DB>>,
    /// Given back last: then the connection is there for the next one.
    _turn: OwnedSemaphorePermit,
}

impl<DB: Database> PooledConnection<DB> {
    /// To ask something. Until [`PooledConnection::answered`] it is not given to anybody else.
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
        if let Some(connection) = self.connection.take() {
            cut(connection);
        }
    }
}

impl<DB: Database> Drop for PooledConnection<DB> {
    fn drop(&mut self) {
        let Some(connection) = self.connection.take() else {
            return;
        };
        let mut free = self.connections.free.lock();
        let free = free.as_deref_mut().ok().and_then(Option::as_mut);
        let room = self.connections.room;
        match free.filter(|free| self.clean && free.len() < room) {
            Some(free) => free.push((connection, Instant::now())),
            // The pool finds out whether it lives.
            None if tokio::runtime::Handle::try_current().is_ok() => drop(connection),
            None => cut(connection),
        }
    }
}

#[cfg(test)]
mod tests {
    use sqlx::sqlite::{Sqlite, SqliteConnectOptions, SqlitePoolOptions};

    use super::*;

    fn connections(room: usize) -> Arc<ConnectionPool<Sqlite>> {
        let pool = SqlitePoolOptions::new()
            .max_connections(2)
            .acquire_timeout(Duration::from_millis(50))
            .connect_lazy_with(SqliteConnectOptions::new().in_memory(true));
        ConnectionPool::new(pool, room)
    }

    #[test]
    fn what_is_kept_can_be_dropped_anywhere() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let (connections, pooled) = runtime.block_on(async {
            let connections = connections(2);
            let (one, mut other) = (
                connections.acquire().await.unwrap(),
                connections.acquire().await.unwrap(),
            );
            drop(one);
            // Asked, and never answered.
            assert!(other.ask().is_some());
            (connections, other)
        });
        drop(runtime);
        drop(pooled);
        drop(connections);
    }

    #[tokio::test]
    async fn whoever_comes_when_all_are_lent_waits_for_one() {
        let connections = connections(1);
        let one = connections.acquire().await.unwrap();
        assert!(matches!(
            connections.acquire().await,
            Err(sqlx::Error::PoolTimedOut)
        ));
        let (next, ()) = tokio::join!(connections.acquire(), async { drop(one) });
        drop(next.unwrap());
        assert_eq!(
            connections.free.lock().unwrap().as_ref().map(Vec::len),
            Some(1)
        );
        connections.close().await;
        assert!(connections.acquire().await.is_err());
    }
}
