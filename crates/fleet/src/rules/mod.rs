//! What the fleet decides, as pure functions over data: no I/O, no clock, no chance.
//!
//! Roles read, ask one of these, and write what it says into the ledger. `cargo xtask
//! tidy` holds this folder to it.

pub mod answers;
pub mod begin;
pub mod classify;
pub mod context;
pub mod draft;
pub mod goal;
pub mod host;
pub mod issue;
pub mod judge;
pub mod plan;
pub mod policy;
pub mod preflight;
pub mod role;
pub mod signature;
pub mod summary;
pub mod verdict;

#[cfg(test)]
mod fixtures;
#[cfg(test)]
mod lifecycle;
#[cfg(test)]
mod schemas;

/// The JSON in an answer of an agent: all of it, without the code fence that many put
/// around it.
fn json_of(answer: &str) -> &str {
    let text = answer.trim();
    let inner = text
        .strip_prefix("```")
        .and_then(|rest| rest.strip_suffix("```"))
        .and_then(|rest| rest.split_once('\n'));
    match inner {
        Some(("" | "json", inner)) => inner.trim(),
        _ => text,
    }
}
