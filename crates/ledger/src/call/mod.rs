//! One call: the facts it reads, the decision, and what is written.

pub(crate) mod calls;
pub(crate) mod change;
pub(crate) mod facts;
pub(crate) mod lineage;
pub(crate) mod masking;
pub(crate) mod memory;
pub(crate) mod records;
pub(crate) mod writes;
