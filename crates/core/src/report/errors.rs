//! What went wrong around the agent last.

use serde::Serialize;

use super::ReportInputs;
use crate::meta;

/// An error that the run has not got past.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ReportedError {
    /// The iteration.
    pub iter: u32,
    /// In words.
    pub message: String,
    /// What a person can do about it.
    pub hint: Option<String>,
}

/// The one of the newest iteration.
pub(super) fn errors(inputs: &ReportInputs<'_>) -> Vec<ReportedError> {
    let metas = inputs.iterations.iter().filter_map(|it| it.meta.as_ref());
    let last = meta::last_error(metas);
    let found = last.and_then(|meta| Some((meta.iter, meta.error.as_ref()?)));
    let found = found.map(|(iter, error)| ReportedError {
        iter,
        message: error.message.clone(),
        hint: error.advice(),
    });
    found.into_iter().collect()
}
