//! Reading what clients send: bodies, queries, paths and headers, each refused with the
//! status that says what is wrong with it.

use axum::body::Bytes;
use axum::extract::rejection::PathRejection;
use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request};
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode, header};
use runner_lifecycle::TaskId;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::error::Category;

use super::refusal::FleetFailure;

/// How large a body may be.
pub(crate) const MAX_BODY: usize = 1024 * 1024;

/// How many items a page has if nobody says.
const DEFAULT_LIMIT: u32 = 50;
/// How many it has at most.
pub(crate) const MAX_LIMIT: u32 = 200;

/// A body in JSON.
pub(crate) struct JsonBody<T>(pub(crate) T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for JsonBody<T> {
    type Rejection = FleetFailure;

    async fn from_request(request: Request, _: &S) -> Result<Self, FleetFailure> {
        let is_json = request
            .headers()
            .get(header::CONTENT_TYPE)
            .and_then(|value| value.to_str().ok())
            .and_then(|value| value.split(';').next())
            .is_some_and(|kind| kind.trim().eq_ignore_ascii_case("application/json"));
        if !is_json {
            return Err(FleetFailure::new(
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                "UNSUPPORTED_MEDIA_TYPE",
                "the body is JSON, and `Content-Type: application/json` says so",
            ));
        }
        let bytes = read(request).await?;
        serde_json::from_slice(&bytes)
            .map(JsonBody)
            .map_err(|error| match error.classify() {
                Category::Data => FleetFailure::input(format!("the body: {error}")),
                Category::Io | Category::Syntax | Category::Eof => FleetFailure::new(
                    StatusCode::BAD_REQUEST,
                    "BAD_REQUEST",
                    format!("the body is no JSON: {error}"),
                ),
            })
    }
}

async fn read(request: Request) -> Result<Bytes, FleetFailure> {
    let too_large = || {
        FleetFailure::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            "PAYLOAD_TOO_LARGE",
            format!("a body has at most {MAX_BODY} bytes"),
        )
    };
    // Said before it is sent: nothing of it is read.
    let length = request
        .headers()
        .get(header::CONTENT_LENGTH)
        .and_then(|value| value.to_str().ok())
        .and_then(|value| value.parse::<usize>().ok());
    if length.is_some_and(|length| length > MAX_BODY) {
        return Err(too_large());
    }
    let body = request.into_body();
    match axum::body::to_bytes(body, MAX_BODY + 1).await {
        Ok(bytes) if bytes.len() <= MAX_BODY => Ok(bytes),
        Ok(_) => Err(too_large()),
        Err(error) => {
            // A body that goes on and one that breaks off look alike but for the cause.
            let cause = std::error::Error::source(&error).map(ToString::to_string);
            if cause.is_some_and(|words| words.contains("length limit")) {
                return Err(too_large());
            }
            Err(FleetFailure::new(
                StatusCode::BAD_REQUEST,
                "BAD_REQUEST",
                "the body could not be read",
            ))
        }
    }
}

/// A query, each of whose names is known.
pub(crate) struct KnownQuery<T>(pub(crate) T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequestParts<S> for KnownQuery<T> {
    type Rejection = FleetFailure;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, FleetFailure> {
        Query::<T>::try_from_uri(&parts.uri)
            .map(|Query(asked)| KnownQuery(asked))
            .map_err(|error| FleetFailure::input(format!("the query: {}", error.body_text())))
    }
}

/// No query at all: a name that means nothing is a mistake.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct NoQuery {}

/// The task that a path names.
pub(crate) struct TaskPath(pub(crate) TaskId);

impl<S: Send + Sync> FromRequestParts<S> for TaskPath {
    type Rejection = FleetFailure;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, FleetFailure> {
        let path: Result<Path<String>, PathRejection> =
            Path::from_request_parts(parts, state).await;
        let id = path.ok().and_then(|Path(id)| TaskId::parse(&id).ok());
        // What cannot be an id is nobody's.
        id.map(TaskPath).ok_or_else(no_such_task)
    }
}

pub(crate) fn no_such_task() -> FleetFailure {
    FleetFailure::not_found("there is no such task")
}

/// The caller's own name for a request, from `Idempotency-Key`.
pub(crate) fn request_name(headers: &HeaderMap) -> Result<Option<String>, FleetFailure> {
    let Some(value) = headers.get("idempotency-key") else {
        return Ok(None);
    };
    let name = value.to_str().ok().filter(|name| {
        (1..=128).contains(&name.len()) && name.bytes().all(|byte| byte.is_ascii_graphic())
    });
    match name {
        // Others name their requests too, at the ledger itself.
        Some(name) => Ok(Some(format!("http:{name}"))),
        None => Err(FleetFailure::input(
            "Idempotency-Key has 1 to 128 visible ASCII characters",
        )),
    }
}

/// How many items a page shall have.
pub(crate) fn limit(asked: Option<u32>) -> Result<u32, FleetFailure> {
    match asked.unwrap_or(DEFAULT_LIMIT) {
        limit @ 1..=MAX_LIMIT => Ok(limit),
        _ => Err(FleetFailure::input(format!("limit is 1 to {MAX_LIMIT}"))),
    }
}

/// Who asks, in the words of the ledger.
pub(crate) fn actor(given: Option<String>) -> Result<String, FleetFailure> {
    let actor = given.unwrap_or_else(|| "http".to_owned());
    if (1..=64).contains(&actor.len()) && actor.bytes().all(|byte| byte.is_ascii_graphic()) {
        Ok(actor)
    } else {
        Err(FleetFailure::input(
            "actor has 1 to 64 visible ASCII characters",
        ))
    }
}
