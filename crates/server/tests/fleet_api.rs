//! What the fleet's API tells: each endpoint that reads, with its answers and its errors.

#![allow(clippy::unwrap_used)] // A test that cannot go on has failed.

mod fleet_server;
mod fleet_support;
mod support;

use fleet_server::{Fleet, names};
use fleet_support::{START, id, make, new_task};
use runner_lifecycle::Request;
use serde_json::{Value, json};

#[test]
fn tasks_are_listed_with_what_they_wait_for() {
    let fleet = Fleet::seeded();
    let list = fleet.good("/tasks");
    let all = [
        "approved", "canceled", "cooling", "judged", "lost", "parked", "running", "todo-1",
        "todo-2",
    ];
    assert_eq!(names(&list, "tasks", "id"), all);
    assert_eq!(list["next_cursor"], Value::Null);
    let blocked = ["approved", "cooling", "judged", "parked"];
    assert_eq!(names(&list, "blockers", "task_id"), blocked);
    let cooling = &list["tasks"][2];
    let retry_at = cooling["retry"]["retry_at"].as_i64().unwrap();
    assert_eq!(
        cooling["retry"],
        json!({
            "reason": "cooldown", "category": "test", "attempts": 1, "limit": 3,
            "retry_at": retry_at, "retry_in_seconds": 0,
        })
    );
    assert_eq!(cooling["blocker"]["retry_at"], retry_at);
    assert!(retry_at > START);
    assert_eq!(list["tasks"][7]["retry"], Value::Null);
}

#[test]
fn tasks_are_filtered_and_aliases_are_understood() {
    let fleet = Fleet::seeded();
    for (query, expected) in [
        ("state=todo", &["todo-1", "todo-2"][..]),
        ("state=queued", &["todo-1", "todo-2"]),
        ("state=in_progress", &["running"]),
        ("state=running", &["running"]),
        ("state=cancelled", &["canceled", "lost"]),
        ("state=canceled&role=tester", &[]),
        ("reason=needs_human", &["approved", "judged"]),
        ("reason=issue_linking", &["parked"]),
        ("state=todo&reason=cooldown", &[]),
    ] {
        let list = fleet.good(&format!("/tasks?{query}"));
        assert_eq!(names(&list, "tasks", "id"), expected, "{query}");
        // What is read as an alias is never said.
        let text = list.to_string();
        assert!(!text.contains("queued") && !text.contains("cancelled"));
    }
    for wrong in [
        "state=doing",
        "reason=x",
        "role=UPPER",
        "role=%00",
        "cursor=a/b",
        "limit=0",
        "limit=201",
        "limit=x",
        "stat=todo",
        "state=todo&state=done",
    ] {
        fleet
            .get(&format!("/tasks?{wrong}"))
            .is(422, "SCHEMA_INVALID");
    }
}

#[test]
fn pages_go_on_while_others_write() {
    let fleet = Fleet::empty();
    let make = |name: &str| fleet.server.block_on(make(&fleet.ledger, new_task(name)));
    for name in ["b", "d", "f", "h", "j"] {
        make(name);
    }
    let mut late = [&["a", "e"][..], &["c", "i"], &[]].into_iter();
    let mut seen = Vec::new();
    let mut path = "/tasks?limit=2".to_owned();
    loop {
        let page = fleet.good(&path);
        seen.extend(names(&page, "tasks", "id").into_iter().map(str::to_owned));
        let Some(cursor) = page["next_cursor"].as_str() else {
            break;
        };
        path = format!("/tasks?limit=2&cursor={cursor}");
        late.next().unwrap().iter().for_each(|name| make(name));
    }
    // Everything that was there from the beginning, once; what came behind the place, too.
    assert_eq!(seen, ["b", "d", "e", "f", "h", "i", "j"]);
}

#[test]
fn a_task_is_shown_with_why_nobody_works_on_it() {
    let fleet = Fleet::seeded();
    let waits = fleet.good("/tasks/todo-2");
    assert_eq!(waits["not_ready"]["word"], "dependency");
    let words = waits["not_ready"]["message"].as_str().unwrap();
    assert!(words.contains("todo-1"), "{words}");
    assert_eq!(waits["lease"], Value::Null);
    assert_eq!(fleet.good("/tasks/todo-1")["not_ready"], Value::Null);
    let running = fleet.good("/tasks/running");
    assert_eq!(running["lease"]["owner"], "w2");
    assert_eq!(running["lease"]["purpose"], "work");
    for path in [
        "/tasks/none",
        "/tasks/a%20b",
        "/tasks/%FF",
        "/tasks/none/events",
    ] {
        fleet.get(path).is(404, "NOT_FOUND");
    }
    fleet.get("/tasks/running?x=1").is(422, "SCHEMA_INVALID");
}

#[test]
fn events_of_a_task_by_pages() {
    let fleet = Fleet::seeded();
    let first = fleet.good("/tasks/approved/events?limit=2");
    assert_eq!(names(&first, "events", "reason")[0], "created");
    assert_eq!(first["events"][0]["from_state"], Value::Null);
    assert_eq!(first["events"][0]["changes"]["title"], "Task approved");
    assert_eq!(first["next_cursor"], 2);
    let rest = fleet.good("/tasks/approved/events?cursor=2");
    assert_eq!(rest["events"][0]["version"], 3);
    assert_eq!(rest["next_cursor"], Value::Null);
    let over = fleet.good("/tasks/approved/events?cursor=99");
    assert_eq!(over["events"], json!([]));
    for wrong in [
        "cursor=-1",
        "cursor=18446744073709551615",
        "limit=0",
        "after=1",
    ] {
        fleet
            .get(&format!("/tasks/approved/events?{wrong}"))
            .is(422, "SCHEMA_INVALID");
    }
}

#[test]
fn runs_and_judgements_come_newest_first() {
    let fleet = Fleet::seeded();
    let all = fleet.good("/runs");
    let expected = ["running-1", "lost-1", "judged-1", "cooling-1", "approved-1"];
    assert_eq!(names(&all, "runs", "id"), expected);
    let mut seen = Vec::new();
    let mut path = "/runs?limit=2".to_owned();
    loop {
        let page = fleet.good(&path);
        seen.extend(names(&page, "runs", "id").into_iter().map(str::to_owned));
        match page["next_cursor"].as_str() {
            Some(cursor) => path = format!("/runs?limit=2&cursor={cursor}"),
            None => break,
        }
    }
    assert_eq!(seen, expected);
    assert_eq!(
        names(&fleet.good("/runs?status=running"), "runs", "id"),
        ["running-1"]
    );
    assert_eq!(
        names(&fleet.good("/runs?task=lost"), "runs", "id"),
        ["lost-1"]
    );

    let judged = fleet.good("/judgements");
    assert_eq!(
        names(&judged, "judgements", "run_id"),
        ["judged-1", "approved-1"]
    );
    assert_eq!(judged["judgements"][0]["verdict"], Value::Null);
    assert_eq!(judged["judgements"][1]["verdict"], "approve");
    assert_eq!(judged["judgements"][1]["checks"][0]["criterion"], "guard");
    let one = fleet.good("/judgements?task=approved&limit=1");
    assert_eq!(names(&one, "judgements", "run_id"), ["approved-1"]);
    for wrong in [
        "/runs?status=done",
        "/runs?cursor=x",
        "/runs?task=a%20b",
        "/runs?limit=1000",
        "/judgements?cursor=1",
        "/judgements?status=success",
        "/judgements?limit=0",
    ] {
        fleet.get(wrong).is(422, "SCHEMA_INVALID");
    }
}

#[test]
fn agents_and_locks() {
    let fleet = Fleet::seeded();
    let agents = fleet.good("/agents");
    assert_eq!(names(&agents, "agents", "name"), ["j1", "w1", "w2"]);
    assert_eq!(agents["agents"][2]["works_on"], "running");
    assert_eq!(agents["agents"][2]["offline"], false);
    fleet.clock.advance_secs(181);
    assert_eq!(fleet.good("/agents")["agents"][0]["offline"], true);
    let locks = fleet.good("/locks");
    assert_eq!(names(&locks, "locks", "resource"), ["src/running"]);
    assert_eq!(locks["locks"][0]["owner"], "w2");
    assert!(locks["locks"][0]["until"].as_i64() > locks["locks"][0]["since"].as_i64());
}

#[test]
fn the_machine_and_health() {
    let fleet = Fleet::empty();
    let host = fleet.good("/system/host/neofetch");
    assert_eq!(host["snapshot"]["source"], "uname");
    assert_eq!(host["snapshot"]["lines"][0], "OS: GNU/Linux");
    let context = fleet.good("/system/host/context");
    assert!(
        context["context"]
            .as_str()
            .unwrap()
            .contains("Kernel: Linux 6.1.0")
    );
    *fleet.told.host.lock().unwrap() = None;
    assert_eq!(fleet.good("/system/host/neofetch")["snapshot"], Value::Null);
    assert_eq!(fleet.good("/system/host/context")["context"], "");
    let health = fleet.good("/health");
    assert_eq!(health, json!({"status": "ok", "version": "0.0.0"}));
    let ready = json!({"ready": true, "paused": false});
    assert_eq!(fleet.good("/health/ready"), ready);
    fleet
        .server
        .block_on(fleet.ledger.set_paused(true))
        .unwrap();
    assert_eq!(fleet.good("/health/ready")["paused"], true);
    // The store is gone: alive, not ready, and nothing of its words.
    fleet.server.block_on(fleet.ledger.close()).unwrap();
    fleet.get("/health").is(200, "");
    let gone = fleet.get("/health/ready").is(503, "STORE_UNAVAILABLE");
    assert!(!gone.text().contains("pool"), "{}", gone.text());
    fleet.get("/tasks").is(503, "STORE_UNAVAILABLE");
}

#[test]
fn everything_that_is_served_is_described() {
    let fleet = Fleet::empty();
    let api = fleet.good("/openapi.json");
    let paths = api["paths"].as_object().unwrap();
    let expected = [
        "/agents",
        "/events",
        "/health",
        "/health/ready",
        "/judgements",
        "/locks",
        "/metrics",
        "/runs",
        "/system/host/context",
        "/system/host/neofetch",
        "/system/preflight",
        "/tasks",
        "/tasks/{id}",
        "/tasks/{id}/accept",
        "/tasks/{id}/cancel",
        "/tasks/{id}/events",
        "/tasks/{id}/pause",
        "/tasks/{id}/retry",
        "/tasks/{id}/transition",
    ];
    let mut found: Vec<&str> = paths.keys().map(String::as_str).collect();
    found.sort_unstable();
    assert_eq!(found, expected);
    for (path, item) in paths {
        for (method, operation) in item.as_object().unwrap() {
            let statuses = operation["responses"].as_object().unwrap();
            let mut wanted = vec!["401", "403", "405", "422", "500", "503"];
            if method == "post" {
                wanted.extend(["400", "409", "413", "415"]);
            }
            if path.contains("{id}") {
                wanted.push("404");
            }
            for status in wanted {
                let schema = &statuses[status]["content"]["application/json"]["schema"];
                assert_eq!(
                    schema["$ref"], "#/components/schemas/Problem",
                    "{path} {status}"
                );
            }
            let described = operation["summary"].as_str().unwrap_or_default();
            assert!(!described.is_empty(), "{path}");
            // What reads may be asked without the token, on loopback.
            let open = operation["security"].as_array().unwrap().len() == 2;
            assert_eq!(open, method == "get", "{path}");
        }
    }
}

#[test]
fn metrics_can_be_parsed() {
    let fleet = Fleet::seeded();
    let answer = fleet.get("/metrics").is(200, "");
    assert!(
        answer
            .header("content-type")
            .starts_with("text/plain; version=0.0.4")
    );
    let figures = parse(&answer.text());
    let is = |name: &str, value: f64| {
        let found = figures.iter().find(|(known, _)| known == name);
        let (_, found) = found.unwrap_or_else(|| panic!("no {name} in {figures:#?}"));
        assert!((found - value).abs() < 1e-9, "{name} is {found}");
    };
    is("runner_tasks{state=\"todo\",reason=\"\"}", 2.0);
    is("runner_tasks{state=\"blocked\",reason=\"cooldown\"}", 1.0);
    is(
        "runner_tasks{state=\"blocked\",reason=\"awaiting_judge\"}",
        2.0,
    );
    is("runner_runs{status=\"running\"}", 1.0);
    is("runner_runs{status=\"failed\"}", 2.0);
    is("runner_tokens_total{kind=\"input\"}", 1200.0);
    is("runner_tokens_total{kind=\"output\"}", 34.0);
    is("runner_cost_usd_total", 1.25);
    is("runner_lease_expiries_total", 2.0);
    is("runner_agents{status=\"online\"}", 3.0);
    // todo-1 was made 3 s ago; todo-2 cannot start.
    is("runner_queue_age_seconds", 3.0);
    // 4, 3, 2 and 1 s for the first four, 1 s for the last.
    is("runner_dispatch_latency_seconds_count", 5.0);
    is("runner_dispatch_latency_seconds_sum", 11.0);
    is("runner_dispatch_latency_seconds_bucket{le=\"1\"}", 2.0);
    is("runner_dispatch_latency_seconds_bucket{le=\"2.5\"}", 3.0);
    is("runner_dispatch_latency_seconds_bucket{le=\"+Inf\"}", 5.0);

    // Counted on from where it was, not anew.
    fleet.clock.advance_secs(100);
    let expire = Request::Expire { not_before: None };
    let call = runner_ledger::LedgerCall::new(id("running"), "keeper", expire);
    fleet.server.block_on(fleet.ledger.call(&call)).unwrap();
    let later = parse(&fleet.get("/metrics").text());
    let expiries = later
        .iter()
        .find(|(name, _)| name == "runner_lease_expiries_total");
    assert!((expiries.unwrap().1 - 3.0).abs() < 1e-9);
}

/// Reads the text as Prometheus does: every sample belongs to a family that was declared.
fn parse(text: &str) -> Vec<(String, f64)> {
    let mut family = String::new();
    let mut figures = Vec::new();
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').unwrap();
            assert!(["gauge", "counter", "histogram"].contains(&kind), "{line}");
            name.clone_into(&mut family);
        } else if let Some(rest) = line.strip_prefix("# HELP ") {
            assert!(
                rest.split_once(' ')
                    .is_some_and(|(_, help)| !help.is_empty())
            );
        } else {
            let (name, value) = line.rsplit_once(' ').unwrap();
            assert!(name.starts_with(&family), "{line} is not of {family}");
            figures.push((name.to_owned(), value.parse().unwrap()));
        }
    }
    figures
}
