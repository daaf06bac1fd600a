//! The stream of changes: as they happen, and from wherever a client was.

#![allow(clippy::unwrap_used)] // A test that cannot go on has failed.

mod fleet_support;
mod support;

use fleet_support::{ManualClock, Told, ask, make, new_task, open, state};
use runner_ledger::Ledger;
use runner_lifecycle::Request;
use support::Server;

struct Fleet {
    server: Server,
    ledger: Ledger,
    _folder: tempfile::TempDir,
}

fn fleet() -> Fleet {
    let folder = tempfile::tempdir().unwrap();
    let mut made = None;
    let server = Server::of(async || {
        let ledger = open(folder.path(), ManualClock::new()).await;
        let app = runner_server::fleet::router(state(&ledger, &Told::new(), false));
        made = Some(ledger);
        app
    });
    Fleet {
        server,
        ledger: made.unwrap(),
        _folder: folder,
    }
}

impl Fleet {
    fn make(&self, name: &str) {
        self.server.block_on(make(&self.ledger, new_task(name)));
    }
}

#[test]
fn changes_are_heard_as_they_happen() {
    let fleet = fleet();
    fleet.make("before");
    let mut listener = fleet.server.listen("/events", None);
    let mut other = fleet.server.listen("/events", None);
    fleet.make("a");
    let event = listener.wait_for("task");
    assert_eq!(event["task_id"], "a");
    assert_eq!(event["to_state"], "todo");
    assert_eq!(event["version"], 1);
    assert_eq!(listener.last_id.as_deref(), Some("2"));
    let cancel = Request::Cancel {
        reason: "no".to_owned(),
    };
    fleet
        .server
        .block_on(ask(&fleet.ledger, "a", "a person", cancel));
    assert_eq!(listener.wait_for("task")["to_state"], "canceled");
    assert_eq!(other.wait_for("task")["to_state"], "todo");
    assert_eq!(other.wait_for("task")["to_state"], "canceled");
}

#[test]
fn who_comes_back_gets_what_it_missed_once() {
    let fleet = fleet();
    for name in ["a", "b", "c"] {
        fleet.make(name);
    }
    let mut listener = fleet.server.listen("/events", Some("1"));
    assert_eq!(listener.wait_for("task")["task_id"], "b");
    drop(listener);
    fleet.make("d");
    let mut listener = fleet.server.listen("/events", Some("2"));
    for name in ["c", "d"] {
        assert_eq!(listener.wait_for("task")["task_id"], name);
    }
    fleet.make("e");
    assert_eq!(listener.wait_for("task")["task_id"], "e");
    assert_eq!(listener.last_id.as_deref(), Some("5"));
    // From the beginning, without a header.
    let mut all = fleet.server.listen("/events?after=0", None);
    for name in ["a", "b", "c", "d", "e"] {
        assert_eq!(all.wait_for("task")["task_id"], name);
    }
    // The header goes before the query: a browser comes back to the same address.
    let mut back = fleet.server.listen("/events?after=0", Some("4"));
    assert_eq!(back.wait_for("task")["task_id"], "e");
}

#[test]
fn more_than_one_batch_in_order() {
    let fleet = fleet();
    for n in 0..250 {
        fleet.make(&format!("t{n:03}"));
    }
    let mut listener = fleet.server.listen("/events?after=0", None);
    for n in 0..250 {
        assert_eq!(listener.wait_for("task")["task_id"], format!("t{n:03}"));
    }
}

#[test]
fn an_id_of_another_ledger_begins_anew() {
    let fleet = fleet();
    fleet.make("a");
    let mut listener = fleet.server.listen("/events", Some("77"));
    assert_eq!(listener.wait_for("reset")["seq"], 1);
    assert_eq!(listener.last_id.as_deref(), Some("1"));
    fleet.make("b");
    assert_eq!(listener.wait_for("task")["task_id"], "b");
}

#[test]
fn what_is_no_place_is_refused() {
    let fleet = fleet();
    let host = ("host", "localhost");
    for id in ["x", "-1", "", "1.5", "99999999999999999999"] {
        let headers = [host, ("last-event-id", id)];
        let answer = fleet.server.ask("GET", "/events", &headers);
        answer.is(422, "SCHEMA_INVALID");
    }
    for query in ["after=-1", "after=x", "before=1"] {
        let path = format!("/events?{query}");
        let answer = fleet.server.ask("GET", &path, &[host]);
        answer.is(422, "SCHEMA_INVALID");
    }
}

#[test]
fn too_many_are_turned_away_and_make_room_again() {
    let fleet = fleet();
    let mut listeners: Vec<_> = (0..256)
        .map(|_| fleet.server.listen("/events", None))
        .collect();
    let host = [("host", "localhost")];
    fleet.server.ask("GET", "/events", &host).is(503, "BUSY");
    listeners.truncate(1);
    // Their readers end as soon as they notice.
    let until = std::time::Instant::now() + support::PATIENCE;
    let freed = fleet.server.block_on(async {
        use tower::ServiceExt as _;
        loop {
            let request = axum::http::Request::builder()
                .uri("/events")
                .header("host", "localhost")
                .body(axum::body::Body::empty())
                .unwrap();
            let response = fleet.server.app.clone().oneshot(request).await.unwrap();
            if response.status() == 200 {
                return true;
            }
            if std::time::Instant::now() > until {
                return false;
            }
            tokio::task::yield_now().await;
        }
    });
    assert!(freed, "nobody made room");
    fleet.make("a");
    assert_eq!(listeners[0].wait_for("task")["task_id"], "a");
}

#[test]
fn nobody_looks_while_nobody_listens() {
    let fleet = fleet();
    let tasks = || fleet.server.alive_tasks();
    let before = tasks();
    let mut listener = fleet.server.listen("/events", None);
    let other = fleet.server.listen("/events", None);
    fleet.make("a");
    listener.wait_for("task");
    // A reader for each, and one follower for both; the store has some of its own.
    assert!(tasks() >= before + 3);
    drop(listener);
    drop(other);
    let until = std::time::Instant::now() + support::PATIENCE;
    while tasks() > before {
        assert!(std::time::Instant::now() < until, "somebody still looks");
        std::thread::yield_now();
    }
    // Somebody who comes then is followed anew.
    let mut listener = fleet.server.listen("/events", None);
    fleet.make("b");
    assert_eq!(listener.wait_for("task")["task_id"], "b");
}
