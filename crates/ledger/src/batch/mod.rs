//! Several callers of one process served by one transaction.

pub(crate) mod batcher;
pub(crate) mod changes;
pub(crate) mod claims;
