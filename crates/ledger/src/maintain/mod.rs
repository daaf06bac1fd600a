//! Care of a whole ledger: check, rebuild, export and import.

pub(crate) mod check;
pub(crate) mod portable;
pub(crate) mod rebuild;
