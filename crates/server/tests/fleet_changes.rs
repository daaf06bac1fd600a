//! What can be asked of the fleet's tasks, and what is refused.

#![allow(clippy::unwrap_used)] // A test that cannot go on has failed.

mod fleet_server;
mod fleet_support;
mod support;

use fleet_server::{Fleet, HOST, JSON};
use fleet_support::TOKEN;
use runner_server::fleet::{FleetState, PreflightFacts};
use serde_json::{Value, json};

#[test]
fn a_task_is_made() {
    let fleet = Fleet::empty();
    let body = json!({
        "id": "dates", "title": " Parse dates ", "lock_scope": ["src/dates/**", "docs/"],
        "priority": "high", "type": "serial", "commands": ["cargo test"],
        "acceptance": [{"id": "ok", "text": "it is", "check": "review"}],
        "context": [{"kind": "note", "value": "mind the zone"}], "actor": "a-person",
    });
    let answer = fleet.post("/tasks", &body).is(201, "");
    assert_eq!(answer.header("location"), "/tasks/dates");
    let task = &answer.json()["task"];
    assert_eq!(task["title"], "Parse dates");
    assert_eq!(task["lock_scope"], json!(["docs", "src/dates"]));
    assert_eq!(task["state"], "todo");
    assert_eq!(task["type"], "serial");
    let events = fleet.good("/tasks/dates/events");
    assert_eq!(events["events"][0]["actor"], "a-person");
    fleet.post("/tasks", &body).is(409, "INVALID_TRANSITION");

    let least = json!({"title": "x", "lock_scope": ["**"]});
    let made = fleet.post("/tasks", &least).is(201, "").json();
    assert_eq!(made["task"]["acceptance"][0]["id"], "guard");
    assert_eq!(made["task"]["lock_scope"], json!(["."]));
    // A name makes it the same request, and the same task.
    let named = [("idempotency-key", "k-1")];
    let first = fleet
        .post_named("/tasks", &least, &named)
        .is(201, "")
        .json();
    let again = fleet
        .post_named("/tasks", &least, &named)
        .is(201, "")
        .json();
    assert_eq!(first["task"]["id"], again["task"]["id"]);
    assert_eq!(
        (&first["replayed"], &again["replayed"]),
        (&json!(false), &json!(true))
    );
    let other = json!({"title": "y", "lock_scope": ["**"]});
    fleet
        .post_named("/tasks", &other, &named)
        .is(409, "CONCURRENCY_CONFLICT");
    for wrong in ["", "a b", "ä", &"x".repeat(129)] {
        fleet
            .post_named("/tasks", &least, &[("idempotency-key", wrong)])
            .is(422, "SCHEMA_INVALID");
    }
}

#[test]
fn reviews_that_are_off_are_refused_at_creation() {
    let mut fleet = Fleet::empty();
    let mut options = fleet_support::options(false);
    options.config.review = false;
    let state = FleetState::new(fleet.ledger.clone(), fleet.told.clone(), options);
    fleet.server.app = runner_server::fleet::router(state);
    let body = json!({
        "title": "x", "lock_scope": ["src"],
        "acceptance": [{"id": "ok", "text": "it is", "check": "review"}],
    });
    let refused = fleet.post("/tasks", &body).is(422, "SCHEMA_INVALID");
    assert!(refused.text().contains("reviews are off"));
}

#[test]
fn a_task_that_makes_no_sense_is_refused() {
    let fleet = Fleet::empty();
    let with = |field: &str, value: Value| {
        let mut body = json!({"id": "t", "title": "x", "lock_scope": ["src"]});
        body[field] = value;
        body
    };
    for (field, value) in [
        ("id", json!("a/b")),
        ("id", json!("..")),
        ("title", json!(" ")),
        ("title", json!("two\nlines")),
        ("title", json!("x".repeat(201))),
        ("title", json!(7)),
        ("role", json!("")),
        ("role", json!("a\u{0}b")),
        ("lock_scope", json!([""])),
        ("lock_scope", json!(["../up"])),
        ("lock_scope", json!(["@judge/t"])),
        ("lock_scope", json!("src")),
        ("forbidden_scope", json!(["/abs"])),
        ("dependencies", json!(["t"])),
        ("dependencies", json!(["a b"])),
        ("priority", json!("urgent")),
        ("timeout_seconds", json!(10)),
        ("timeout_seconds", json!(90_000)),
        ("heartbeat_interval_seconds", json!(90)),
        ("timebox_seconds", json!(0)),
        (
            "acceptance",
            json!([{"id": "", "text": "", "check": "command"}]),
        ),
        (
            "acceptance",
            json!([{"id": "a", "text": "", "check": "luck"}]),
        ),
        ("actor", json!("two words")),
        ("kind", json!("review")),
    ] {
        let answer = fleet.post("/tasks", &with(field, value.clone()));
        assert_eq!(answer.status, 422, "{field} {value}: {}", answer.text());
        assert_eq!(answer.json()["error"]["code"], "SCHEMA_INVALID", "{field}");
    }
    let unknown = with("dependencies", json!(["none"]));
    fleet
        .post("/tasks", &unknown)
        .is(422, "MISSING_REQUIRED_INPUT");
    let nothing = with("lock_scope", json!([]));
    fleet
        .post("/tasks", &nothing)
        .is(422, "MISSING_REQUIRED_INPUT");
    assert_eq!(fleet.good("/tasks")["tasks"], json!([]));
}

#[test]
fn bodies_are_json_of_a_size() {
    let fleet = Fleet::empty();
    let bearer = format!("Bearer {TOKEN}");
    let auth = ("authorization", bearer.as_str());
    let send = |kind: Option<&str>, body: String| {
        let mut headers = vec![HOST, auth];
        headers.extend(kind.map(|kind| ("content-type", kind)));
        fleet.server.send("POST", "/tasks", &headers, body)
    };
    let good = r#"{"title":"x","lock_scope":["src"]}"#.to_owned();
    send(None, good.clone()).is(415, "UNSUPPORTED_MEDIA_TYPE");
    send(Some("text/plain"), good.clone()).is(415, "UNSUPPORTED_MEDIA_TYPE");
    send(Some("application/json"), "{".to_owned()).is(400, "BAD_REQUEST");
    send(Some("application/json"), String::new()).is(400, "BAD_REQUEST");
    send(Some("application/json"), "7".to_owned()).is(422, "SCHEMA_INVALID");
    let long = format!(r#"{{"title":"{}"}}"#, "x".repeat(1024 * 1024));
    send(Some("application/json"), long).is(413, "PAYLOAD_TOO_LARGE");
    send(Some("Application/JSON; charset=utf-8"), good).is(201, "");
    // Said before it is sent.
    let headers = [HOST, auth, JSON, ("content-length", "1048577")];
    fleet
        .server
        .send("POST", "/tasks", &headers, "{}")
        .is(413, "PAYLOAD_TOO_LARGE");
}

#[test]
fn tasks_are_moved_as_the_rules_allow() {
    let fleet = Fleet::seeded();
    let moved = |task: &str, body: Value| fleet.post(&format!("/tasks/{task}/transition"), &body);
    let blocked = json!({
        "to": "blocked", "reason": "the scope is wrong", "code": "SCOPE_VIOLATION",
        "waits_for": "a person", "expected_version": 1,
    });
    let answer = moved("todo-1", blocked.clone()).is(200, "").json();
    assert_eq!(answer["task"]["state"], "blocked");
    assert_eq!(answer["blockers"][0]["code"], "SCOPE_VIOLATION");
    let conflict = moved("todo-1", blocked).is(409, "CONCURRENCY_CONFLICT");
    assert_eq!(conflict.json()["error"]["details"]["version"], 2);

    // The clock is over: the recovery table lets it go on.
    let todo = json!({"to": "queued", "reason": "again"});
    let answer = moved("cooling", todo.clone()).is(200, "").json();
    assert_eq!(answer["task"]["state"], "todo");
    // Nothing can be done for this one now.
    moved("parked", todo.clone()).is(409, "INVALID_TRANSITION");
    moved("todo-2", todo.clone()).is(409, "INVALID_TRANSITION");
    moved("canceled", todo).is(409, "INVALID_TRANSITION");

    let running = json!({"to": "running", "reason": "now"});
    moved("todo-2", running).is(409, "INVALID_TRANSITION");
    let done = json!({"to": "done", "reason": "it is"});
    moved("todo-2", done).is(409, "INVALID_TRANSITION");
    let canceled = json!({"to": "cancelled", "reason": "no"});
    let answer = moved("running", canceled.clone()).is(200, "").json();
    assert_eq!(answer["task"]["state"], "canceled");
    assert_eq!(fleet.good("/locks")["locks"], json!([]));
    // Said again, it stays.
    moved("running", canceled).is(200, "");

    for (body, code) in [
        (
            json!({"to": "blocked", "reason": "x"}),
            "MISSING_REQUIRED_INPUT",
        ),
        (json!({"to": "todo", "reason": " "}), "SCHEMA_INVALID"),
        (
            json!({"to": "todo", "reason": "x".repeat(2001)}),
            "SCHEMA_INVALID",
        ),
        (
            json!({"to": "todo", "reason": "x", "code": "NON_COMPLIANT"}),
            "SCHEMA_INVALID",
        ),
        (json!({"to": "nowhere", "reason": "x"}), "SCHEMA_INVALID"),
        (json!({"reason": "x"}), "SCHEMA_INVALID"),
    ] {
        let answer = moved("todo-2", body.clone());
        assert_eq!(answer.status, 422, "{body}");
        assert_eq!(answer.json()["error"]["code"], code, "{body}");
    }
    let any = json!({"to": "canceled", "reason": "x"});
    moved("none", any).is(404, "NOT_FOUND");
}

#[test]
fn tasks_are_called_off_tried_again_and_held_back() {
    let fleet = Fleet::seeded();
    let reason = json!({"reason": "not needed"});
    let off = fleet
        .post("/tasks/todo-1/cancel", &reason)
        .is(200, "")
        .json();
    assert_eq!(off["task"]["state"], "canceled");
    let events = fleet.good("/tasks/todo-1/events");
    assert_eq!(events["events"][1]["details"]["why"], "not needed");
    fleet
        .post("/tasks/todo-1/cancel", &json!({}))
        .is(422, "SCHEMA_INVALID");

    let again = fleet
        .post("/tasks/todo-1/retry", &json!({}))
        .is(200, "")
        .json();
    assert_eq!(again["created"]["title"], "[Retry] Task todo-1");
    assert_eq!(again["created"]["rework_of"], "todo-1");
    assert_eq!(again["task"]["superseded_by"], again["created"]["id"]);
    let twice = fleet.post("/tasks/todo-1/retry", &json!({}));
    twice.is(409, "INVALID_TRANSITION");
    let wrong = json!({"successor": "a/b"});
    fleet
        .post("/tasks/lost/retry", &wrong)
        .is(422, "SCHEMA_INVALID");
    let named = json!({"successor": "lost-2", "actor": "me"});
    let made = fleet.post("/tasks/lost/retry", &named).is(200, "").json();
    assert_eq!(made["created"]["id"], "lost-2");
    // One that has not ended goes on as the table says.
    let cooled = fleet
        .post("/tasks/cooling/retry", &json!({}))
        .is(200, "")
        .json();
    assert_eq!(cooled["task"]["state"], "todo");

    let held = fleet.post("/tasks/cooling/pause", &json!({"paused": true}));
    assert_eq!(held.is(200, "").json()["task"]["paused"], true);
    assert_eq!(fleet.good("/tasks/cooling")["not_ready"]["word"], "paused");
    fleet
        .post("/tasks/cooling/pause", &json!({"paused": false}))
        .is(200, "");
    assert_eq!(fleet.good("/tasks/cooling")["task"]["paused"], false);
    fleet
        .post("/tasks/cooling/pause", &json!({}))
        .is(422, "SCHEMA_INVALID");
    for verb in ["cancel", "retry", "pause"] {
        let body = json!({"cancel": {"reason": "x"}, "retry": {}, "pause": {"paused": true}});
        let path = format!("/tasks/none/{verb}");
        fleet.post(&path, &body[verb]).is(404, "NOT_FOUND");
    }
}

#[test]
fn preflight_counts_and_recommends() {
    let fleet = Fleet::seeded();
    let path = "/system/preflight";
    let said = fleet
        .post(path, &json!({"requirement": "a thing"}))
        .is(200, "")
        .json();
    assert_eq!(said["inputs"]["has_requirement"], true);
    // Two todo, one running, three blocked; one more is parked.
    assert_eq!(said["inputs"]["local_backlog"], 6);
    assert_eq!(said["inputs"]["blocked"], 4);
    assert_eq!(said["inputs"]["awaiting_judge"], 2);
    assert_eq!(said["recommendations"]["start_planner"], false);
    assert_eq!(said["recommendations"]["start_execution"], true);
    assert_eq!(said["recommendations"]["counts"]["planner"], 0);
    let warnings = said["warnings"].to_string();
    assert!(
        warnings.contains("Planner is skipped for this launch"),
        "{warnings}"
    );
    let planner = json!({"requirement": "a thing", "start_planner": true});
    let refused = fleet.post(path, &planner).is(409, "PLANNER_REFUSED");
    assert!(refused.text().contains("backlog comes first"));

    let empty = Fleet::empty();
    empty.post(path, &json!({})).is(409, "NOTHING_TO_DO");
    empty
        .post(path, &json!({"requirement": " \n"}))
        .is(409, "NOTHING_TO_DO");
    let said = empty.post(path, &planner).is(200, "").json();
    assert_eq!(said["recommendations"]["start_planner"], true);
    *empty.told.outside.lock().unwrap() = PreflightFacts {
        requirement: "the project's own".to_owned(),
        issue_backlog: 3,
        ..PreflightFacts::default()
    };
    let said = empty.post(path, &json!({})).is(200, "").json();
    assert_eq!(said["inputs"]["has_requirement"], true);
    assert!(
        said["warnings"]
            .to_string()
            .contains("Issue backlog detected (3)")
    );
    // The role lease of the planner is taken.
    *empty.told.outside.lock().unwrap() = PreflightFacts::default();
    let take_role = empty.ledger.take_role_lease("planner", "somebody", 60);
    empty.server.block_on(take_role).unwrap();
    empty.post(path, &planner).is(409, "PLANNER_REFUSED");
    empty
        .post(path, &json!({"start": 1}))
        .is(422, "SCHEMA_INVALID");
}

#[test]
fn secrets_stay_inside() {
    let fleet = Fleet::empty();
    let secret = format!("ghp_{}", "a1B2c3D4".repeat(4));
    let body = json!({
        "id": "t", "title": "x", "goal": format!("use {secret}"), "lock_scope": ["src"],
        "commands": [format!("curl -H 'Authorization: Bearer {secret}'")],
    });
    let made = fleet.post("/tasks", &body).is(201, "");
    assert!(!made.text().contains(&secret), "{}", made.text());
    for path in ["/tasks", "/tasks/t", "/tasks/t/events"] {
        let text = fleet.get(path).is(200, "").text();
        assert!(text.contains("***") && !text.contains(&secret), "{text}");
    }
    // What is wrong with a request is not told with what was in it either.
    let wrong = json!({"title": "x", "lock_scope": [format!("/{secret}")]});
    let refused = fleet.post("/tasks", &wrong).is(422, "SCHEMA_INVALID");
    assert!(!refused.text().contains(&secret), "{}", refused.text());
}
