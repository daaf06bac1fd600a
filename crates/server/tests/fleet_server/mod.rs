//! The fleet's API over a ledger of its own, asked without a socket.

#![allow(dead_code)] // Each test file uses its part.

use std::sync::Arc;

use runner_ledger::Ledger;
use serde_json::Value;

use crate::fleet_support::{ManualClock, TOKEN, Told, open, seed, state};
use crate::support::{Answer, Server};

pub(crate) const HOST: (&str, &str) = ("host", "localhost:7878");
pub(crate) const JSON: (&str, &str) = ("content-type", "application/json");

pub(crate) struct Fleet {
    pub(crate) server: Server,
    pub(crate) ledger: Ledger,
    pub(crate) clock: Arc<ManualClock>,
    pub(crate) told: Arc<Told>,
    _folder: tempfile::TempDir,
}

impl Fleet {
    pub(crate) fn empty() -> Fleet {
        let folder = tempfile::tempdir().unwrap();
        let clock = ManualClock::new();
        let told = Told::new();
        let mut made = None;
        let server = Server::of(async || {
            let ledger = open(folder.path(), clock.clone()).await;
            let app = runner_server::fleet::router(state(&ledger, &told, false));
            made = Some(ledger);
            app
        });
        Fleet {
            server,
            ledger: made.unwrap(),
            clock,
            told,
            _folder: folder,
        }
    }

    pub(crate) fn seeded() -> Fleet {
        let fleet = Fleet::empty();
        let advance = |secs| fleet.clock.advance_secs(secs);
        fleet.server.block_on(seed(&fleet.ledger, advance));
        fleet
    }

    pub(crate) fn get(&self, path: &str) -> Answer {
        self.server.ask("GET", path, &[HOST])
    }

    #[track_caller]
    pub(crate) fn good(&self, path: &str) -> Value {
        self.get(path).is(200, "").json()
    }

    pub(crate) fn post(&self, path: &str, body: &Value) -> Answer {
        self.post_named(path, body, &[])
    }

    pub(crate) fn post_named(&self, path: &str, body: &Value, more: &[(&str, &str)]) -> Answer {
        let bearer = format!("Bearer {TOKEN}");
        let mut headers = vec![HOST, JSON, ("authorization", bearer.as_str())];
        headers.extend(more);
        self.server.send("POST", path, &headers, body.to_string())
    }
}

pub(crate) fn names<'v>(list: &'v Value, key: &str, field: &str) -> Vec<&'v str> {
    let items = list[key].as_array().unwrap();
    items
        .iter()
        .map(|one| one[field].as_str().unwrap())
        .collect()
}
