//! Several callers of one process served by one statement.

pub(crate) mod batcher;
pub(crate) mod changes;
pub(crate) mod claims;
