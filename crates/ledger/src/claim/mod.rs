//! Claims: which task is taken next, and what stands in its way.

pub(crate) mod claims;
pub(crate) mod context;
pub(crate) mod picks;
