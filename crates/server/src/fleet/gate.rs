//! Who may ask the fleet: the same places as for the live view, and whoever writes, or
//! asks from another machine, bears the token.

use axum::extract::{Request, State};
use axum::http::{Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};

use super::FleetState;
use super::refusal::FleetFailure;
use crate::{gate, reply};

/// Asks the gate, then the rest, and signs the answer.
pub(crate) async fn pass(
    State(fleet): State<FleetState>,
    request: Request,
    next: Next,
) -> Response {
    let mut response = match check(&fleet, &request) {
        Ok(()) => next.run(request).await,
        Err(failure) => failure.into_response(),
    };
    if response.status() == StatusCode::UNAUTHORIZED {
        reply::set(&mut response, header::WWW_AUTHENTICATE, "Bearer");
    }
    gate::sign(&mut response);
    response
}

fn check(fleet: &FleetState, request: &Request) -> Result<(), FleetFailure> {
    let here_alone = !fleet.is_beyond_loopback();
    gate::check_place(request.uri(), request.headers(), here_alone, true).map_err(
        |origin_error| FleetFailure::new(StatusCode::FORBIDDEN, "FORBIDDEN", origin_error.words()),
    )?;
    let reads = matches!(*request.method(), Method::GET | Method::HEAD);
    if (reads && here_alone) || fleet.token().is_borne(request.headers()) {
        return Ok(());
    }
    Err(FleetFailure::new(
        StatusCode::UNAUTHORIZED,
        "UNAUTHORIZED",
        "this takes the header `Authorization: Bearer TOKEN`, with the token in \
         .runner/fleet/api-token",
    ))
}
