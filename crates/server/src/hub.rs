//! The events of the stream: numbered, kept for those who come back, and handed
//! to every client without waiting for any of them.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use axum::body::Bytes;
use tokio::sync::mpsc;

use crate::wire::{
    IterationAdded, IterationChanged, PhaseChanged, ProjectChanged, RunStateChanged, ServerEvent,
    TreeChanged,
};

/// How many events are kept for clients that come back.
const KEPT_EVENTS: usize = 1024;
/// How many lines of agents are kept, and how many bytes of them.
const KEPT_LINES: usize = 512;
const KEPT_LINE_BYTES: usize = 2 * 1024 * 1024;
/// How many events may wait for one client. One that is further behind is dropped.
const QUEUE: usize = 512;
/// How many clients there may be.
const MAX_CLIENTS: usize = 4096;

/// Where events come together.
#[derive(Debug)]
pub(crate) struct Hub {
    /// Different at each start, so that an id of an earlier server is not taken
    /// for one of this.
    epoch: String,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    last: u64,
    events: Kept,
    lines: Kept,
    clients: Vec<Client>,
}

/// The newest events of one sort.
#[derive(Debug, Default)]
struct Kept {
    frames: VecDeque<(u64, Bytes)>,
    bytes: usize,
    /// The newest one that is not kept any more.
    forgotten: u64,
}

impl Kept {
    fn push(&mut self, number: u64, frame: Bytes, max: usize, max_bytes: usize) {
        self.bytes += frame.len();
        self.frames.push_back((number, frame));
        while self.frames.len() > max || self.bytes > max_bytes {
            let Some((number, frame)) = self.frames.pop_front() else {
                return;
            };
            self.bytes -= frame.len();
            self.forgotten = number;
        }
    }

    fn after(&self, number: u64) -> impl Iterator<Item = &(u64, Bytes)> {
        self.frames.iter().filter(move |(at, _)| *at > number)
    }
}

#[derive(Debug)]
struct Client {
    sender: mpsc::Sender<Bytes>,
    lines: bool,
}

/// What a client gets: first what it missed, then what comes.
#[derive(Debug)]
pub(crate) struct Subscription {
    pub(crate) first: Vec<Bytes>,
    pub(crate) next: mpsc::Receiver<Bytes>,
}

impl Hub {
    /// A hub that has not told anything yet.
    pub(crate) fn new(epoch: String) -> Self {
        Hub {
            epoch,
            inner: Mutex::default(),
        }
    }

    /// Tells everybody.
    pub(crate) fn publish(&self, event: &ServerEvent) {
        let mut inner = self.lock();
        inner.last += 1;
        let number = inner.last;
        let frame = self.frame(number, event);
        let is_line = matches!(event, ServerEvent::Stream(_));
        if is_line {
            let frame = frame.clone();
            inner.lines.push(number, frame, KEPT_LINES, KEPT_LINE_BYTES);
        } else {
            inner
                .events
                .push(number, frame.clone(), KEPT_EVENTS, usize::MAX);
        }
        // Who has gone, and who does not read, is dropped: its stream ends after
        // what is queued, and it may come back with the id of the last it saw.
        inner.clients.retain(|client| {
            (is_line && !client.lines) || client.sender.try_send(frame.clone()).is_ok()
        });
    }

    /// A new client, or one that comes back with the id it saw last. `None` if
    /// there are too many.
    pub(crate) fn subscribe(&self, last_id: Option<&str>, lines: bool) -> Option<Subscription> {
        let mut inner = self.lock();
        inner.clients.retain(|client| !client.sender.is_closed());
        if inner.clients.len() >= MAX_CLIENTS {
            return None;
        }
        let mut first = vec![Bytes::from_static(b"retry: 1000\n\n")];
        match last_id.map(|id| self.number_of(id)) {
            // Without data it is no event, but the browser remembers the id.
            None => first.push(format!("id: {}\n\n", self.id(inner.last)).into()),
            Some(Some(number)) if number <= inner.last && number >= inner.events.forgotten => {
                let mut missed: Vec<&(u64, Bytes)> = inner.events.after(number).collect();
                if lines {
                    missed.extend(inner.lines.after(number));
                }
                missed.sort_by_key(|(number, _)| *number);
                first.extend(missed.into_iter().map(|(_, frame)| frame.clone()));
            }
            Some(_) => {
                let number = inner.last;
                first.extend(one_of_each().iter().map(|event| self.frame(number, event)));
            }
        }
        let (sender, next) = mpsc::channel(QUEUE);
        inner.clients.push(Client { sender, lines });
        Some(Subscription { first, next })
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn id(&self, number: u64) -> String {
        format!("{}-{number}", self.epoch)
    }

    fn number_of(&self, id: &str) -> Option<u64> {
        let (epoch, number) = id.trim().rsplit_once('-')?;
        (epoch == self.epoch).then(|| number.parse().ok())?
    }

    fn frame(&self, number: u64, event: &ServerEvent) -> Bytes {
        let value = serde_json::to_value(event).unwrap_or_default();
        let name = value["event"].as_str().unwrap_or_default();
        // One line: JSON escapes every line end.
        format!(
            "id: {}\nevent: {name}\ndata: {}\n\n",
            self.id(number),
            value["data"]
        )
        .into()
    }
}

/// What makes a client fetch everything.
fn one_of_each() -> [ServerEvent; 6] {
    let nothing = None;
    [
        ServerEvent::ProjectChanged(ProjectChanged { there: true }),
        ServerEvent::TreeChanged(TreeChanged { there: true }),
        ServerEvent::RunStateChanged(RunStateChanged { there: true }),
        ServerEvent::IterationAdded(IterationAdded {
            run_id: None,
            iter: nothing,
        }),
        ServerEvent::IterationChanged(IterationChanged {
            run_id: None,
            iter: nothing,
        }),
        ServerEvent::PhaseChanged(PhaseChanged {
            state: None,
            phase: crate::wire::RunPhaseView::Working,
            iter: nothing,
            node_id: None,
        }),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::StreamLine;

    fn tree() -> ServerEvent {
        ServerEvent::TreeChanged(TreeChanged { there: true })
    }

    fn line(offset: u64) -> ServerEvent {
        ServerEvent::Stream(StreamLine {
            run_id: "r".into(),
            iter: 1,
            offset,
            line: Some("{\n}".into()),
            next_offset: offset + 1,
        })
    }

    fn texts(frames: &[Bytes]) -> Vec<String> {
        let text = |frame: &Bytes| String::from_utf8(frame.to_vec()).unwrap();
        frames.iter().map(text).collect()
    }

    fn drain(subscription: &mut Subscription) -> Vec<String> {
        let mut frames = Vec::new();
        while let Ok(frame) = subscription.next.try_recv() {
            frames.push(frame);
        }
        texts(&frames)
    }

    #[test]
    fn everybody_hears_and_lines_go_to_those_who_want_them() {
        let hub = Hub::new("e".into());
        let mut all = hub.subscribe(None, true).unwrap();
        let mut some = hub.subscribe(None, false).unwrap();
        assert_eq!(texts(&all.first), ["retry: 1000\n\n", "id: e-0\n\n"]);
        hub.publish(&tree());
        hub.publish(&line(7));
        let heard = "id: e-1\nevent: tree_changed\ndata: {\"there\":true}\n\n";
        assert_eq!(drain(&mut some), [heard]);
        let all = drain(&mut all);
        assert_eq!(all.len(), 2);
        assert!(all[1].starts_with("id: e-2\nevent: stream\ndata: {"));
        assert_eq!(all[1].lines().count(), 4, "{}", all[1]);
    }

    #[test]
    fn who_comes_back_gets_what_it_missed() {
        let hub = Hub::new("e".into());
        for _ in 0..3 {
            hub.publish(&tree());
        }
        hub.publish(&line(0));
        let names = |id: &str, lines: bool| -> Vec<String> {
            let frames = hub.subscribe(Some(id), lines).unwrap().first;
            let id = |text: String| {
                let line = text.lines().next().unwrap_or_default().to_owned();
                line.trim_start_matches("id: ").to_owned()
            };
            texts(&frames).into_iter().skip(1).map(id).collect()
        };
        assert_eq!(names("e-1", false), ["e-2", "e-3"]);
        assert_eq!(names("e-1", true), ["e-2", "e-3", "e-4"]);
        assert!(names("e-4", true).is_empty());
        // Unknown: one of each, and the place from which it goes on.
        for unknown in ["e-5", "other-2", "", "e", "e-x", "-1"] {
            assert_eq!(names(unknown, true), ["e-4"; 6], "{unknown}");
        }
        for _ in 0..KEPT_EVENTS {
            hub.publish(&tree());
        }
        assert_eq!(names("e-2", false).len(), 6);
        assert_eq!(names("e-3", false).len(), KEPT_EVENTS);
    }

    #[test]
    fn a_client_that_does_not_read_is_dropped() {
        let hub = Hub::new("e".into());
        let mut slow = hub.subscribe(None, false).unwrap();
        let mut quick = hub.subscribe(None, false).unwrap();
        for _ in 0..=QUEUE {
            hub.publish(&tree());
            assert_eq!(drain(&mut quick).len(), 1);
        }
        assert_eq!(hub.lock().clients.len(), 1);
        assert_eq!(drain(&mut slow).len(), QUEUE);
        assert_eq!(
            slow.next.try_recv(),
            Err(mpsc::error::TryRecvError::Disconnected)
        );
        // Those who are gone are forgotten too.
        drop(quick);
        hub.publish(&tree());
        assert!(hub.lock().clients.is_empty());
    }

    #[test]
    fn lines_are_bounded_by_their_size() {
        let hub = Hub::new("e".into());
        for offset in 0..100 {
            hub.publish(&ServerEvent::Stream(StreamLine {
                run_id: "r".into(),
                iter: 1,
                offset,
                line: Some("x".repeat(64 * 1024)),
                next_offset: offset + 1,
            }));
        }
        let inner = hub.lock();
        assert!(inner.lines.bytes <= KEPT_LINE_BYTES);
        assert!(inner.lines.frames.len() > 20);
    }
}
