//! The ledger itself: one store, opened.

use std::sync::Arc;
use std::time::{Duration, Instant};

use runner_lifecycle::retry::conflict_delay_millis;
use runner_lifecycle::{Policy, Refusal, RefusalCode, Timestamp};

use crate::batch::batcher::Batcher;
use crate::batch::claims::{BatchClaimResult, ClaimKind};
use crate::call::memory::LedgerMemory;
use crate::claim::claims::ClaimRequest;
use crate::clock::{LedgerClock, SystemClock};
use crate::error::{LedgerError, StoreError};
use crate::store::Store;
use crate::store::engine;
use crate::store::engine::{Engine, SqlText, StoreAccess, StoreTx};
use crate::store::notifications::StoreNotifications;
use crate::store::postgres::PostgresEngine;
use crate::store::sqlite::SqliteEngine;

/// How a ledger is opened.
#[derive(Clone)]
pub struct LedgerOptions {
    /// The numbers of the rules.
    pub policy: Policy,
    /// The clock of this process.
    pub clock: Arc<dyn LedgerClock>,
    /// Whether decisions go by the clock of a server, where there is one: several
    /// machines then have one clock.
    pub server_clock: bool,
    /// How many connections are kept.
    pub connections: u32,
    /// Whether nothing can be written, whoever asks.
    pub read_only: bool,
}

impl Default for LedgerOptions {
    fn default() -> LedgerOptions {
        LedgerOptions {
            policy: Policy::default(),
            clock: Arc::new(SystemClock),
            server_clock: true,
            connections: 4,
            read_only: false,
        }
    }
}

/// An open ledger. Cheap to clone.
#[derive(Clone)]
pub struct Ledger {
    pub(crate) engine: Arc<dyn Engine>,
    pub(crate) policy: Arc<Policy>,
    pub(crate) clock: Arc<dyn LedgerClock>,
    /// Whether decisions go by the clock of the server.
    pub(crate) server_clock: bool,
    pub(crate) memory: Arc<LedgerMemory>,
    /// Those who want something to do at the same time.
    pub(crate) claims: Arc<Batcher<ClaimKind, ClaimRequest, BatchClaimResult>>,
}

const SERVER_NOW: SqlText = SqlText {
    sqlite: "SELECT CAST(0 AS BIGINT)",
    postgres: "SELECT CAST(extract(epoch FROM clock_timestamp()) * 1000 AS BIGINT)",
};

impl Ledger {
    /// Opens a store, and brings its schema up to date.
    pub async fn open(store: &Store, options: LedgerOptions) -> Result<Ledger, StoreError> {
        let (engine, server): (Arc<dyn Engine>, bool) = match store {
            Store::Sqlite(path) => {
                let engine =
                    SqliteEngine::open(path, options.connections, options.read_only).await?;
                (Arc::new(engine), false)
            }
            Store::Postgres(url) => {
                let engine = PostgresEngine::open(url, options.connections, options.read_only)?;
                (Arc::new(engine), true)
            }
            Store::Memory => (Arc::new(SqliteEngine::in_memory().await?), false),
        };
        Ledger::on(engine, server, options).await
    }

    /// Opens a store for reading alone: as ever where that is possible, so that its schema
    /// is brought up to date, else without being able to write anything.
    pub async fn open_to_read(store: &Store, options: LedgerOptions) -> Result<Ledger, StoreError> {
        let is_file = matches!(store, Store::Sqlite(path) if path.is_file());
        match Ledger::open(store, options.clone()).await {
            Err(StoreError::ReadOnly(_) | StoreError::Unavailable(_)) if is_file => {
                let read_only = LedgerOptions {
                    read_only: true,
                    ..options
                };
                Ledger::open(store, read_only).await
            }
            opened => opened,
        }
    }

    pub(crate) async fn on(
        engine: Arc<dyn Engine>,
        server: bool,
        options: LedgerOptions,
    ) -> Result<Ledger, StoreError> {
        engine.migrate().await?;
        Ok(Ledger {
            engine,
            policy: Arc::new(options.policy),
            clock: options.clock,
            server_clock: server && options.server_clock,
            memory: Arc::default(),
            claims: Batcher::new(),
        })
    }

    /// The time that decisions go by.
    pub async fn now(&self) -> Result<Timestamp, StoreError> {
        if !self.server_clock {
            return Ok(self.clock.now());
        }
        let mut tx = self.engine.begin(StoreAccess::Read).await?;
        self.now_in(&mut *tx).await
    }

    pub(crate) async fn now_in(&self, tx: &mut dyn StoreTx) -> Result<Timestamp, StoreError> {
        if !self.server_clock {
            return Ok(self.clock.now());
        }
        let row = engine::one(tx, SERVER_NOW, &[]).await?;
        let row = row.ok_or_else(|| StoreError::Other("the server tells no time".to_owned()))?;
        Ok(Timestamp(row.int(0)?))
    }

    /// The numbers of the rules.
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// The time that decisions go by, if that is the server's.
    pub(crate) fn time(&self, server: Timestamp) -> Timestamp {
        if !self.server_clock {
            return self.clock.now();
        }
        self.memory.heard(server, Instant::now(), self.clock.now());
        server
    }

    /// The time that decisions go by, if it need not be asked for.
    pub(crate) fn known_time(&self) -> Option<Timestamp> {
        if !self.server_clock {
            return Some(self.clock.now());
        }
        self.memory.server_time(Instant::now(), self.clock.now())
    }

    /// Begins to listen for changes.
    pub async fn listen(&self) -> Result<StoreNotifications, StoreError> {
        self.engine.listen().await
    }

    /// How many statements this process sent so far.
    pub fn statements(&self) -> u64 {
        self.engine.statements()
    }

    /// Waits until everybody who listens was told of every change made here.
    pub async fn flush(&self) -> Result<(), StoreError> {
        self.engine.flush().await
    }

    /// Ends all connections.
    pub async fn close(&self) -> Result<(), StoreError> {
        self.engine.close().await
    }
}

/// The tries of one call: after a conflict it reads again, immediately, then after 100,
/// 250 and 500 ms, and then it is refused.
#[derive(Default)]
pub(crate) struct ConflictRetry {
    tries: u32,
}

impl ConflictRetry {
    /// Whether every try was in vain.
    pub(crate) fn is_used_up(&self) -> bool {
        conflict_delay_millis(self.tries.max(1)).is_none()
    }

    /// Whether there was a conflict.
    pub(crate) fn is_again(&self) -> bool {
        self.tries > 0
    }

    /// Waits before the next try, or says why there is none.
    pub(crate) async fn again(&mut self, error: LedgerError) -> Result<(), LedgerError> {
        let LedgerError::Store(StoreError::Contention(words)) = error else {
            return Err(error);
        };
        self.tries += 1;
        let Some(millis) = conflict_delay_millis(self.tries) else {
            let refusal = Refusal::new(
                RefusalCode::ConcurrencyConflict,
                format!("somebody else was faster {} times: {words}", self.tries),
            );
            return Err(refusal.into());
        };
        if millis > 0 {
            tokio::time::sleep(Duration::from_millis(millis)).await;
        }
        Ok(())
    }
}
