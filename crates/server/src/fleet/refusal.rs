//! Errors of the fleet's API, in one shape: `{"error": {"code", "message", "details"}}`.

use axum::body::Body;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use runner_ledger::{LedgerError, StoreError};
use runner_lifecycle::{Refusal, RefusalCode};
use serde::Serialize;
use serde_json::{Map, Value};
use utoipa::ToSchema;

use crate::reply;

/// Why there is no answer.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Problem)]
pub(crate) struct FleetProblem {
    /// The error.
    error: FleetProblemBody,
}

/// What is wrong.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ProblemBody)]
pub(crate) struct FleetProblemBody {
    /// A code of the lifecycle, such as `INVALID_TRANSITION`, or one of the API:
    /// `BAD_REQUEST`, `UNAUTHORIZED`, `FORBIDDEN`, `NOT_FOUND`, `METHOD_NOT_ALLOWED`,
    /// `PAYLOAD_TOO_LARGE`, `UNSUPPORTED_MEDIA_TYPE`, `PLANNER_REFUSED`, `NOTHING_TO_DO`,
    /// `BUSY`, `STORE_UNAVAILABLE`, `STORE_FULL`, `STORE_READ_ONLY`, `INTERNAL`.
    #[schema(pattern = "^[A-Z_]+$")]
    code: &'static str,
    /// The same for people.
    message: String,
    /// What else is known.
    details: Map<String, Value>,
}

/// A problem with the status that it is answered with.
#[derive(Debug)]
pub(crate) struct FleetFailure(Box<(StatusCode, FleetProblem)>);

/// What a handler of the API comes to.
pub(crate) type FleetResult<T> = Result<T, FleetFailure>;

impl FleetFailure {
    pub(crate) fn new(status: StatusCode, code: &'static str, message: impl Into<String>) -> Self {
        let error = FleetProblemBody {
            code,
            message: message.into(),
            details: Map::new(),
        };
        FleetFailure(Box::new((status, FleetProblem { error })))
    }

    /// Input of the right form that makes no sense.
    pub(crate) fn input(message: impl Into<String>) -> Self {
        let code = RefusalCode::SchemaInvalid.as_str();
        FleetFailure::new(StatusCode::UNPROCESSABLE_ENTITY, code, message)
    }

    pub(crate) fn not_found(message: impl Into<String>) -> Self {
        FleetFailure::new(StatusCode::NOT_FOUND, "NOT_FOUND", message)
    }

    pub(crate) fn detail(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.0.1.error.details.insert(name.to_owned(), value.into());
        self
    }
}

/// The status of a refusal: what stands against it now is a conflict, what is wrong with
/// the request itself is not.
fn status_of(code: RefusalCode) -> StatusCode {
    match code {
        RefusalCode::InvalidTransition
        | RefusalCode::ConcurrencyConflict
        | RefusalCode::LockConflict
        | RefusalCode::DependencyNotMet
        | RefusalCode::LedgerInconsistent
        | RefusalCode::TaskTimeout => StatusCode::CONFLICT,
        RefusalCode::ScopeViolation
        | RefusalCode::SchemaInvalid
        | RefusalCode::MissingRequiredInput
        | RefusalCode::UnknownSchemaVersion
        | RefusalCode::AcceptanceFailed
        | RefusalCode::NonCompliant => StatusCode::UNPROCESSABLE_ENTITY,
    }
}

impl From<Refusal> for FleetFailure {
    fn from(refusal: Refusal) -> Self {
        let mut failure = FleetFailure::new(
            status_of(refusal.code),
            refusal.code.as_str(),
            refusal.reason,
        );
        failure.0.1.error.details = refusal.details;
        failure
    }
}

impl From<StoreError> for FleetFailure {
    /// Without the store's own words: they name files, servers and accounts.
    fn from(error: StoreError) -> Self {
        let unavailable = StatusCode::SERVICE_UNAVAILABLE;
        let (status, code, words) = match error {
            StoreError::Unavailable(_) => (
                unavailable,
                "STORE_UNAVAILABLE",
                "the ledger cannot be reached",
            ),
            StoreError::Full(_) => (unavailable, "STORE_FULL", "the ledger's disk is full"),
            StoreError::ReadOnly(_) => (unavailable, "STORE_READ_ONLY", "the ledger is read-only"),
            StoreError::Contention(_) => (
                StatusCode::CONFLICT,
                RefusalCode::ConcurrencyConflict.as_str(),
                "somebody else was faster",
            ),
            StoreError::Newer { .. } | StoreError::Damaged(_) | StoreError::Other(_) => (
                StatusCode::INTERNAL_SERVER_ERROR,
                "INTERNAL",
                "the ledger could not do this; `runner ledger check` may say more",
            ),
        };
        FleetFailure::new(status, code, words)
    }
}

impl From<LedgerError> for FleetFailure {
    fn from(error: LedgerError) -> Self {
        match error {
            LedgerError::Refused(refusal) => refusal.into(),
            LedgerError::Store(error) => error.into(),
        }
    }
}

impl IntoResponse for FleetFailure {
    fn into_response(self) -> Response {
        let (status, problem) = *self.0;
        json(status, &problem)
    }
}

/// An answer in JSON, with whatever looks like a secret masked.
pub(crate) fn json<T: Serialize>(status: StatusCode, value: &T) -> Response {
    let mut value = serde_json::to_value(value).unwrap_or_default();
    mask(&mut value);
    let mut response = Response::new(Body::from(value.to_string()));
    *response.status_mut() = status;
    reply::set(&mut response, header::CONTENT_TYPE, "application/json");
    reply::set(&mut response, header::CACHE_CONTROL, "no-store");
    response
}

/// Masks every text of a value. Names of fields are ours.
pub(crate) fn mask(value: &mut Value) {
    match value {
        Value::String(text) => *text = runner_core::mask::mask_text(text, &[]),
        Value::Array(items) => items.iter_mut().for_each(mask),
        Value::Object(fields) => fields.values_mut().for_each(mask),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// A body that was made, as the answer 200.
pub(crate) struct OkReply<T>(pub(crate) T);

impl<T: Serialize> IntoResponse for OkReply<T> {
    fn into_response(self) -> Response {
        json(StatusCode::OK, &self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_has_its_status() {
        for code in RefusalCode::ALL {
            let conflict = [
                "INVALID_TRANSITION",
                "CONCURRENCY_CONFLICT",
                "LOCK_CONFLICT",
                "DEPENDENCY_NOT_MET",
                "LEDGER_INCONSISTENT",
                "TASK_TIMEOUT",
            ];
            let expected = if conflict.contains(&code.as_str()) {
                409
            } else {
                422
            };
            let failure = FleetFailure::from(Refusal::new(*code, "no").detail("a", 1));
            let (status, problem) = *failure.0;
            assert_eq!(status.as_u16(), expected, "{code}");
            assert_eq!(problem.error.code, code.as_str());
            assert_eq!(problem.error.details["a"], 1);
        }
    }

    #[test]
    fn the_words_of_a_store_stay_inside() {
        let words = || "postgres://u:pw@h/db".to_owned();
        for (error, status) in [
            (StoreError::Unavailable(words()), 503),
            (StoreError::Full(words()), 503),
            (StoreError::ReadOnly(words()), 503),
            (StoreError::Contention(words()), 409),
            (StoreError::Damaged(words()), 500),
            (StoreError::Other(words()), 500),
            (StoreError::Newer { found: 9, known: 1 }, 500),
        ] {
            let (got, problem) = *FleetFailure::from(error).0;
            assert_eq!(got.as_u16(), status);
            let text = serde_json::to_string(&problem).unwrap();
            assert!(!text.contains("pw@"), "{text}");
        }
    }

    #[test]
    fn secrets_are_masked_wherever_they_are() {
        let secret = format!("sk-{}", "a1B2".repeat(8));
        let mut value = serde_json::json!({"goal": secret, "list": [{"x": secret}], "n": 1});
        mask(&mut value);
        assert!(!value.to_string().contains(&secret), "{value}");
        assert_eq!(value["n"], 1);
    }
}
