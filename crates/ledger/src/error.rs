//! What can go wrong with a store, in words for people.

use runner_lifecycle::{Refusal, RefusalCode};

/// Why a store did not do what it was asked. Nothing was written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// The store cannot be reached, or the connection broke. Where it broke while a
    /// change was being written, the change may be there: ask again with the same name.
    #[error("the ledger cannot be reached: {0}")]
    Unavailable(String),
    /// The disk is full.
    #[error("the ledger's disk is full, nothing was written: {0}")]
    Full(String),
    /// Nothing can be written there.
    #[error("the ledger is read-only, nothing was written: {0}")]
    ReadOnly(String),
    /// A newer program wrote it.
    #[error(
        "the ledger has schema {found}, this program knows {known}: a newer runner has \
         written it; use that one, or another store"
    )]
    Newer {
        /// The schema of the store.
        found: i64,
        /// The newest schema that this program knows.
        known: i64,
    },
    /// Somebody else was writing the same.
    #[error("somebody else was faster: {0}")]
    Contention(String),
    /// What is stored cannot be read.
    #[error("the ledger is damaged: {0}")]
    Damaged(String),
    /// Anything else that the store says.
    #[error("the ledger's store says: {0}")]
    Other(String),
}

impl StoreError {
    /// Whether it says something about the store, and nothing about what was asked: whoever
    /// asked something else at the same time would be told the same.
    pub(crate) fn is_for_everybody(&self) -> bool {
        matches!(
            self,
            StoreError::Unavailable(_) | StoreError::Full(_) | StoreError::ReadOnly(_)
        )
    }
}

/// Why a call did not succeed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LedgerError {
    /// The rules do not allow it.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl LedgerError {
    /// The code of the refusal, if it is one.
    pub fn code(&self) -> Option<RefusalCode> {
        match self {
            LedgerError::Refused(refusal) => Some(refusal.code),
            LedgerError::Store(_) => None,
        }
    }

    /// Whether the same call may succeed later without anybody doing anything here.
    pub fn is_transient(&self) -> bool {
        matches!(
            self,
            LedgerError::Store(StoreError::Unavailable(_) | StoreError::Contention(_))
        )
    }
}

/// A stored text that cannot be read as what it should be.
pub(crate) fn damaged(what: &str, error: &serde_json::Error) -> StoreError {
    StoreError::Damaged(format!("{what}: {error}"))
}
