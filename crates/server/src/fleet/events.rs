//! `/events`: every change of every task, as it happens, from wherever a client was.
//!
//! The ids of the stream are the places in the ledger's own sequence, so a client may come
//! back to another process, or after any time. One follower looks how far the sequence
//! goes while anybody listens; each client reads from where it is.

use std::sync::Arc;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::Weak;
use std::time::Duration;

use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use runner_ledger::{Ledger, NumberedEvent, StoreError};
use serde::Deserialize;
use tokio::sync::{mpsc, watch};
use utoipa::IntoParams;

use super::FleetState;
use super::input::KnownQuery;
use super::refusal::{FleetFailure, FleetResult, mask};
use super::wire::EventView;
use crate::hub::Subscription;
use crate::sse;

/// How many clients there may be.
const MAX_CLIENTS: usize = 256;
/// How many events are read at once.
const BATCH: u32 = 100;
/// How many frames may wait for one client; then its reader waits, too.
const QUEUE: usize = 16;
/// A notification may be lost: for so long nobody looks on their own.
const LOOK_EVERY: Duration = Duration::from_secs(5 * 60);
/// What is being written will be there soon.
const SOON: Duration = Duration::from_millis(50);
/// After the store failed.
const AGAIN: Duration = Duration::from_secs(1);

/// Where the events come together.
#[derive(Default)]
pub(crate) struct EventFollower {
    /// How far the sequence goes; gone when nobody listens any more.
    head: Mutex<Weak<watch::Sender<i64>>>,
    clients: Arc<()>,
}

impl EventFollower {
    /// The head of the sequence, followed from now on for as long as anybody has it.
    async fn head(&self, ledger: &Ledger) -> Result<watch::Receiver<i64>, StoreError> {
        if let Some(head) = self.lock().upgrade() {
            return Ok(head.subscribe());
        }
        // Listening begins before the first look: nothing falls in between.
        let mut notifications = ledger.listen().await?;
        let mut head = ledger.event_head().await?;
        let (sender, receiver) = watch::channel(head.seq());
        let sender = Arc::new(sender);
        *self.lock() = Arc::downgrade(&sender);
        let ledger = ledger.clone();
        tokio::spawn(async move {
            loop {
                let wait = if head.is_behind() { SOON } else { LOOK_EVERY };
                tokio::select! {
                    () = sender.closed() => return,
                    () = notifications.next() => {}
                    () = tokio::time::sleep(wait) => {}
                }
                match ledger.follow(&mut head).await {
                    Ok(true) => {
                        sender.send_replace(head.seq());
                    }
                    Ok(false) => {}
                    Err(_) => tokio::time::sleep(AGAIN).await,
                }
            }
        });
        Ok(receiver)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Weak<watch::Sender<i64>>> {
        self.head.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// From where.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct StreamQuery {
    /// Everything after that id; 0: everything there is. `Last-Event-ID` goes before it.
    #[param(minimum = 0, maximum = 9_007_199_254_740_991_u64)]
    after: Option<u64>,
}

/// Follows the changes of all tasks
#[utoipa::path(get, path = "/events", tag = "events",
    params(StreamQuery, ("Last-Event-ID" = Option<u64>, Header, minimum = 0,
        maximum = 9_007_199_254_740_991_u64,
        description = "the last id that was seen: what came after it is told first")),
    responses((status = 200, description = "server-sent events: `task`, each with the id of its \
        place in the ledger, and `reset` if the id that was seen is not of this ledger",
        body = String, content_type = "text/event-stream")))]
pub(crate) async fn events(
    State(fleet): State<FleetState>,
    headers: HeaderMap,
    KnownQuery(query): KnownQuery<StreamQuery>,
) -> FleetResult<Response> {
    let after = match headers.get("last-event-id") {
        Some(value) => Some(number(value.to_str().unwrap_or_default())?),
        None => query
            .after
            .map(|after| number(&after.to_string()))
            .transpose()?,
    };
    let follower = fleet.follower();
    if Arc::strong_count(&follower.clients) > MAX_CLIENTS {
        return Err(FleetFailure::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "BUSY",
            "too many listen already",
        ));
    }
    let head = follower.head(fleet.ledger()).await?;
    let end = *head.borrow();
    let mut first = vec![Bytes::from_static(b"retry: 1000\n\n")];
    let from = match after {
        Some(after) if after <= end => after,
        Some(_) => {
            let reset = format!("id: {end}\nevent: reset\ndata: {{\"seq\":{end}}}\n\n");
            first.push(reset.into());
            end
        }
        // Without data it is no event, but the browser remembers the id.
        None => {
            first.push(format!("id: {end}\n\n").into());
            end
        }
    };
    let (sender, next) = mpsc::channel(QUEUE);
    let reader = EventReader {
        ledger: fleet.ledger().clone(),
        head,
        at: from,
        sender,
        _client: Arc::clone(&follower.clients),
    };
    tokio::spawn(reader.run());
    Ok(sse::respond(Subscription { first, next }))
}

fn number(text: &str) -> FleetResult<i64> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let number = digits.then(|| text.parse::<i64>().ok()).flatten();
    number.ok_or_else(|| FleetFailure::input("the id of an event is a number"))
}

/// Reads for one client.
struct EventReader {
    ledger: Ledger,
    head: watch::Receiver<i64>,
    at: i64,
    sender: mpsc::Sender<Bytes>,
    _client: Arc<()>,
}

impl EventReader {
    /// Until the client is gone, or the store fails: then it comes back with its last id.
    async fn run(mut self) {
        loop {
            let end = *self.head.borrow_and_update();
            while self.at < end {
                let read = self.ledger.events_between(self.at, end, BATCH).await;
                let Ok(events) = read else {
                    return;
                };
                let Some(last) = events.last() else {
                    break;
                };
                self.at = last.seq;
                let frames: String = events.iter().map(frame).collect();
                if self.sender.send(frames.into()).await.is_err() {
                    return;
                }
            }
            self.at = self.at.max(end);
            tokio::select! {
                () = self.sender.closed() => return,
                changed = self.head.changed() => {
                    if changed.is_err() {
                        return;
                    }
                }
            }
        }
    }
}

fn frame(numbered: &NumberedEvent) -> String {
    let view = EventView::from(&numbered.event);
    let mut value = serde_json::to_value(view).unwrap_or_default();
    mask(&mut value);
    // One line: JSON escapes every line end.
    format!("id: {}\nevent: task\ndata: {value}\n\n", numbered.seq)
}
