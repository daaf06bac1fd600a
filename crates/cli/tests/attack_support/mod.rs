//! What the attacks on containment share.

pub(crate) mod list;
