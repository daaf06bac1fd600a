//! Who may ask the fleet: the same places as for the live view, and whoever writes bears the token.
//! Whoever reads bears it, too, or has the cookie for which a link was exchanged, but where no session
//! and no guard can reach this.

use axum::extract::{Request, State};
use axum::http::{Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};

use super::FleetState;
use super::refusal::FleetFailure;
use crate::{gate, page, reply};

/// The place that links lead to.
const LINK: &str = "/";
/// Where a browser goes from there.
const FIRST_PAGE: &str = "/tasks";
/// That the process lives is told to everybody here.
pub(crate) const OPEN: &str = "/health";

/// Asks the gate, then the rest, and signs the answer.
pub(crate) async fn pass(
    State(fleet): State<FleetState>,
    request: Request,
    next: Next,
) -> Response {
    let mut response = match check(&fleet, &request) {
        Ok(None) => next.run(request).await,
        Ok(Some(response)) => response,
        Err(failure) => failure.into_response(),
    };
    if response.status() == StatusCode::UNAUTHORIZED {
        reply::set(&mut response, header::WWW_AUTHENTICATE, "Bearer");
    }
    gate::sign(&mut response);
    response
}

/// `None`: go on. An answer: a link was exchanged.
fn check(fleet: &FleetState, request: &Request) -> Result<Option<Response>, FleetFailure> {
    let here_alone = !fleet.is_beyond_loopback();
    let (path, headers) = (request.uri().path(), request.headers());
    let is_link = path == LINK && *request.method() == Method::GET;
    gate::check_place(request.uri(), headers, here_alone, !is_link).map_err(|origin_error| {
        FleetFailure::new(StatusCode::FORBIDDEN, "FORBIDDEN", origin_error.words())
    })?;
    let word = request.uri().query().filter(|_| is_link);
    if let Some(word) = word.and_then(|query| query.strip_prefix("token=")) {
        let cookie = fleet.cookies().exchange(word).ok_or_else(|| {
            refuse(
                "this link does not work any more: `runner fleet token --link` prints another one",
            )
        })?;
        return Ok(Some(page::admitted(&cookie, FIRST_PAGE)));
    }
    let reads = matches!(*request.method(), Method::GET | Method::HEAD);
    let is_open = (path == OPEN && here_alone) || fleet.has_open_reads();
    if fleet.token().is_borne(headers) || (reads && (is_open || fleet.cookies().admits(headers))) {
        return Ok(None);
    }
    Err(refuse(
        "this takes the header `Authorization: Bearer TOKEN`; `runner fleet token` prints the token",
    ))
}

fn refuse(words: &str) -> FleetFailure {
    FleetFailure::new(StatusCode::UNAUTHORIZED, "UNAUTHORIZED", words)
}
