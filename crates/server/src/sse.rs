//! `/events` as a body: what was missed, what comes, and now and then a comment.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::{StatusCode, header};
use axum::response::Response;
use tokio::time::Interval;

use crate::hub::{Hub, Subscription};
use crate::reply::{self, ApiRefusal};

/// How often a silent connection shows that it lives.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// The stream for a client that saw this id last.
pub(crate) fn answer(hub: &Hub, last_id: Option<&str>, lines: bool) -> Response {
    let Some(subscription) = hub.subscribe(last_id, lines) else {
        return ApiRefusal::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "busy",
            "too many pages listen already",
        )
        .into_response();
    };
    respond(subscription)
}

/// The stream of what a client gets.
pub(crate) fn respond(subscription: Subscription) -> Response {
    let mut interval =
        tokio::time::interval_at(tokio::time::Instant::now() + KEEP_ALIVE, KEEP_ALIVE);
    interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let stream = SseEvents {
        // In one piece.
        first: Some(subscription.first.concat().into()),
        subscription,
        interval,
    };
    let mut response = Response::new(Body::from_stream(stream));
    reply::set(&mut response, header::CONTENT_TYPE, "text/event-stream");
    reply::set(&mut response, header::CACHE_CONTROL, "no-store");
    // A proxy in between must not gather what is to be seen at once.
    reply::set(
        &mut response,
        "x-accel-buffering".parse().unwrap_or(header::VIA),
        "no",
    );
    response
}

struct SseEvents {
    first: Option<Bytes>,
    subscription: Subscription,
    interval: Interval,
}

impl futures_core::Stream for SseEvents {
    type Item = Result<Bytes, Infallible>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if let Some(first) = self.first.take() {
            return Poll::Ready(Some(Ok(first)));
        }
        // The end of the queue is the end of the stream: this client was too slow.
        if let Poll::Ready(frame) = self.subscription.next.poll_recv(cx) {
            self.interval.reset();
            return Poll::Ready(frame.map(Ok));
        }
        if self.interval.poll_tick(cx).is_ready() {
            return Poll::Ready(Some(Ok(Bytes::from_static(b": alive\n\n"))));
        }
        Poll::Pending
    }
}
