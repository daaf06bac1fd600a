//! Changes of several callers in one statement.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use sqlx::postgres::Postgres;

use crate::change::Change;
use crate::company::{Company, Host};
use crate::engine::{Access, Session as _};
use crate::error::StoreError;
use crate::lending::Lender;
use crate::postgres_session::{PostgresSession, failed};
use crate::postgres_write::Shape;

/// Writes changes that were decided from memory.
#[derive(Clone)]
pub(crate) struct Writer {
    lender: Arc<Lender<Postgres>>,
    statements: Arc<AtomicU64>,
    company: Arc<Company<Shape, Change, Written>>,
}

/// What came of a change.
enum Written {
    Told(Result<(), StoreError>),
    /// Something was wrong with one of those that were to be written together.
    Alone(Box<Change>),
}

impl Writer {
    pub(crate) fn new(lender: Arc<Lender<Postgres>>, statements: Arc<AtomicU64>) -> Writer {
        Writer {
            lender,
            statements,
            company: Company::new(),
        }
    }

    /// Writes a change, alone or with others.
    pub(crate) async fn write(&self, change: Change) -> Result<(), StoreError> {
        let shape = Shape::of(&change);
        match self.company.ask(shape, change, self).await {
            Some(Written::Told(written)) => written,
            Some(Written::Alone(change)) => self.say(&[*change]).await,
            None => {
                let words = "nobody is left to write it".to_owned();
                Err(StoreError::Unavailable(words))
            }
        }
    }

    async fn say(&self, changes: &[Change]) -> Result<(), StoreError> {
        let lent = self.lender.lend().await;
        let lent = lent.map_err(|error| failed(&error))?;
        let statements = Arc::clone(&self.statements);
        let mut session = PostgresSession::new(lent, Access::Once, statements);
        session.write_at_once(changes).await
    }
}

impl Host<Shape, Change, Written> for Writer {
    async fn serve(self, _: Shape, changes: Vec<Change>) -> Vec<Written> {
        // In the order of their ids, so that two batches do not wait for each other.
        let mut places: Vec<usize> = (0..changes.len()).collect();
        places.sort_by(|one, other| changes[*one].id.cmp(&changes[*other].id));
        let mut changes: Vec<Option<Change>> = changes.into_iter().map(Some).collect();
        let sorted: Vec<Change> = places.iter().filter_map(|at| changes[*at].take()).collect();
        let written = self.say(&sorted).await;
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
