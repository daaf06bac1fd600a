//! Changes of several callers in one statement.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use sqlx::postgres::Postgres;

use crate::batch::batcher::{BatchHandler, Batcher};
use crate::call::change::StoreChange;
use crate::error::StoreError;
use crate::store::engine::{StoreAccess, StoreTx as _};
use crate::store::pool::ConnectionPool;
use crate::store::postgres::tx::{PostgresTx, failed};
use crate::store::postgres::write::ChangeShape;

/// Writes changes that were decided from memory.
#[derive(Clone)]
pub(crate) struct ChangeWriter {
    connections: Arc<ConnectionPool<Postgres>>,
    statements: Arc<AtomicU64>,
    batcher: Arc<Batcher<ChangeShape, StoreChange, Written>>,
}

/// What came of a change.
enum Written {
    Told(Result<(), StoreError>),
    /// Something was wrong with one of those that were to be written together.
    Alone(Box<StoreChange>),
}

impl ChangeWriter {
    pub(crate) fn new(
        connections: Arc<ConnectionPool<Postgres>>,
        statements: Arc<AtomicU64>,
    ) -> ChangeWriter {
        ChangeWriter {
            connections,
            statements,
            batcher: Batcher::new(),
        }
    }

    /// Writes a change, alone or with others.
    pub(crate) async fn write(&self, change: StoreChange) -> Result<(), StoreError> {
        let shape = ChangeShape::of(&change);
        match self.batcher.ask(shape, change, self).await {
            Some(Written::Told(written)) => written,
            Some(Written::Alone(change)) => self.write_changes(&[*change]).await,
            None => {
                let words = "nobody is left to write it".to_owned();
                Err(StoreError::Unavailable(words))
            }
        }
    }

    async fn write_changes(&self, changes: &[StoreChange]) -> Result<(), StoreError> {
        let connection = self.connections.acquire().await;
        let connection = connection.map_err(|error| failed(&error))?;
        let statements = Arc::clone(&self.statements);
        let mut tx = PostgresTx::new(connection, StoreAccess::Once, statements);
        tx.write_at_once(changes).await
    }
}

impl BatchHandler<ChangeShape, StoreChange, Written> for ChangeWriter {
    async fn serve(self, _: ChangeShape, changes: Vec<StoreChange>) -> Vec<Written> {
        // In the order of their ids, so that two batches do not wait for each other.
        let mut places: Vec<usize> = (0..changes.len()).collect();
        places.sort_by(|one, other| changes[*one].id.cmp(&changes[*other].id));
        let mut changes: Vec<Option<StoreChange>> = changes.into_iter().map(Some).collect();
        let sorted: Vec<StoreChange> = places.iter().filter_map(|at| changes[*at].take()).collect();
        let written = self.write_changes(&sorted).await;
        let alone = |error: &StoreError| places.len() > 1 && !error.is_for_everybody();
        if !written.as_ref().is_err_and(alone) {
            return places
                .iter()
                .map(|_| Written::Told(written.clone()))
                .collect();
        }
        for (at, change) in places.into_iter().zip(sorted) {
            changes[at] = Some(change);
        }
        let each = changes.into_iter().flatten();
        each.map(|change| Written::Alone(Box::new(change)))
            .collect()
    }
}
