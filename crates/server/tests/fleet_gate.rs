//! Who gets no answer from the fleet, and what every answer says about itself.

#![allow(clippy::unwrap_used)] // A test that cannot go on has failed.

mod fleet_support;
mod support;

use fleet_support::{INSTANCE, ManualClock, TOKEN, Told, open, options, seed, state};
use runner_server::fleet::{FleetState, login_word};
use support::Server;

const HOST: (&str, &str) = ("host", "localhost:7878");

const READS: [&str; 13] = [
    "/tasks",
    "/tasks/running",
    "/tasks/running/events",
    "/runs",
    "/agents",
    "/judgements",
    "/locks",
    "/system/host/neofetch",
    "/system/host/context",
    "/health",
    "/health/ready",
    "/metrics",
    "/openapi.json",
];

const WRITES: [&str; 6] = [
    "/tasks",
    "/tasks/running/transition",
    "/tasks/running/cancel",
    "/tasks/running/retry",
    "/tasks/running/pause",
    "/system/preflight",
];

fn server(folder: &tempfile::TempDir, beyond_loopback: bool) -> Server {
    Server::of(async || {
        let clock = ManualClock::new();
        let ledger = open(folder.path(), clock.clone()).await;
        seed(&ledger, |secs| clock.advance_secs(secs)).await;
        runner_server::fleet::router(state(&ledger, &Told::new(), beyond_loopback))
    })
}

/// One that sessions and guards can reach.
fn reachable(folder: &tempfile::TempDir) -> Server {
    Server::of(async || {
        let clock = ManualClock::new();
        let ledger = open(folder.path(), clock.clone()).await;
        seed(&ledger, |secs| clock.advance_secs(secs)).await;
        let mut options = options(false);
        options.open_reads = false;
        runner_server::fleet::router(FleetState::new(ledger, Told::new(), options))
    })
}

#[test]
fn reads_take_the_token_where_sessions_reach_it() {
    let folder = tempfile::tempdir().unwrap();
    let server = reachable(&folder);
    let bearer = format!("Bearer {TOKEN}");
    for path in READS {
        let expected = if path == "/health" { 200 } else { 401 };
        assert_eq!(server.ask("GET", path, &[HOST]).status, expected, "{path}");
        assert_eq!(server.ask("HEAD", path, &[HOST]).status, expected, "{path}");
        let answer = server.ask("GET", path, &[HOST, ("authorization", bearer.as_str())]);
        assert_eq!(answer.status, 200, "{path}");
    }
    for path in ["/events", "/", "/none", "/health/", "/health/../tasks"] {
        server.ask("GET", path, &[HOST]).is(401, "UNAUTHORIZED");
    }
    let query = format!("/tasks?token={TOKEN}");
    server.ask("GET", &query, &[HOST]).is(401, "UNAUTHORIZED");
    server
        .ask("POST", "/health", &[HOST])
        .is(401, "UNAUTHORIZED");
}

#[test]
fn a_link_gives_a_browser_a_cookie_once_and_that_reads() {
    let folder = tempfile::tempdir().unwrap();
    let server = reachable(&folder);
    let link = format!("/?token={}", login_word(TOKEN, INSTANCE).unwrap());
    // Only looked at, from another place, or as another place: it is not used up.
    assert_eq!(server.ask("HEAD", &link, &[HOST]).status, 401);
    let evil = ("host", "evil.test");
    server.ask("GET", &link, &[evil]).is(403, "FORBIDDEN");
    let page = server.ask("GET", &link, &[HOST]);
    assert_eq!(page.status, 200);
    let cookie = page.header("set-cookie").to_owned();
    for words in ["; HttpOnly", "; SameSite=Strict", "; Max-Age=43200"] {
        assert!(cookie.contains(words), "{cookie}");
    }
    assert!(!page.text().contains(TOKEN) && !cookie.contains(TOKEN));
    let pair = cookie.split(';').next().unwrap();
    let with = ("cookie", pair);
    for path in READS {
        assert_eq!(server.ask("GET", path, &[HOST, with]).status, 200, "{path}");
    }
    // It writes nothing.
    let json = ("content-type", "application/json");
    for path in WRITES {
        server
            .send("POST", path, &[HOST, with, json], "{}")
            .is(401, "UNAUTHORIZED");
    }
    for used in [link, format!("/?token={TOKEN}"), "/?token=".to_owned()] {
        let again = server.ask("GET", &used, &[HOST]).is(401, "UNAUTHORIZED");
        assert_eq!(again.header("set-cookie"), "");
    }
}

#[test]
fn every_write_takes_the_token() {
    let folder = tempfile::tempdir().unwrap();
    let server = server(&folder, false);
    let json = ("content-type", "application/json");
    let wrong = format!("Bearer {}x", &TOKEN[1..]);
    for path in WRITES {
        for headers in [
            vec![HOST, json],
            vec![HOST, json, ("authorization", wrong.as_str())],
            vec![HOST, json, ("authorization", TOKEN)],
            vec![HOST, json, ("authorization", "Basic eDp5")],
            vec![HOST, json, ("cookie", TOKEN)],
        ] {
            let answer = server.send("POST", path, &headers, "{}");
            let answer = answer.is(401, "UNAUTHORIZED");
            assert_eq!(answer.header("www-authenticate"), "Bearer");
            assert!(!answer.text().contains(TOKEN));
        }
        let query = format!("{path}?token={TOKEN}");
        server
            .send("POST", &query, &[HOST, json], "{}")
            .is(401, "UNAUTHORIZED");
    }
    // Other methods and other paths tell nothing either.
    for method in ["PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "FOO"] {
        server
            .ask(method, "/tasks", &[HOST])
            .is(401, "UNAUTHORIZED");
        server.ask(method, "/none", &[HOST]).is(401, "UNAUTHORIZED");
    }
    // None of it did anything.
    let text = server
        .ask("GET", "/tasks/running", &[HOST])
        .is(200, "")
        .text();
    assert!(text.contains("\"state\":\"in_progress\""), "{text}");
}

#[test]
fn other_methods_are_refused_with_those_there_are() {
    let folder = tempfile::tempdir().unwrap();
    let server = server(&folder, false);
    let bearer = format!("Bearer {TOKEN}");
    let auth = ("authorization", bearer.as_str());
    for (method, path, allow) in [
        ("PUT", "/tasks", "GET, HEAD, POST"),
        ("DELETE", "/tasks/running", "GET, HEAD"),
        ("POST", "/runs", "GET, HEAD"),
        ("GET", "/tasks/running/cancel", "POST"),
        ("OPTIONS", "/openapi.json", "GET, HEAD"),
        ("POST", "/events", "GET, HEAD"),
    ] {
        let answer = server.ask(method, path, &[HOST, auth]);
        let answer = answer.is(405, "METHOD_NOT_ALLOWED");
        assert_eq!(answer.header("allow"), allow, "{method} {path}");
    }
    for path in [
        "/",
        "/none",
        "/tasks/",
        "/tasks/a/b",
        "/system/processes",
        "/api/run",
    ] {
        server.ask("GET", path, &[HOST]).is(404, "NOT_FOUND");
    }
    let head = server.ask("HEAD", "/tasks", &[HOST]).is(200, "");
    assert!(head.body.is_empty());
}

#[test]
fn only_names_of_this_machine_and_no_other_origin() {
    let folder = tempfile::tempdir().unwrap();
    let server = server(&folder, false);
    for path in READS {
        for host in ["localhost", "127.0.0.1:7878", "[::1]:7878"] {
            let answer = server.ask("GET", path, &[("host", host)]);
            assert_eq!(answer.status, 200, "{path} {host}");
        }
        for host in ["evil.test", "localhost.evil.test:7878", "10.0.0.1", ""] {
            server
                .ask("GET", path, &[("host", host)])
                .is(403, "FORBIDDEN");
        }
        server.ask("GET", path, &[]).is(403, "FORBIDDEN");
        let same = ("origin", "http://localhost:7878");
        assert_eq!(server.ask("GET", path, &[HOST, same]).status, 200);
        for (name, value) in [
            ("origin", "http://evil.test"),
            ("origin", "http://localhost:9999"),
            ("origin", "null"),
            ("sec-fetch-site", "cross-site"),
            ("sec-fetch-site", "same-site"),
        ] {
            let answer = server.ask("GET", path, &[HOST, (name, value)]);
            answer.is(403, "FORBIDDEN");
        }
    }
    server
        .ask("GET", "/events", &[("host", "evil.test")])
        .is(403, "FORBIDDEN");
    // The token does not help a page of somebody else.
    let bearer = format!("Bearer {TOKEN}");
    let headers = [
        HOST,
        ("authorization", bearer.as_str()),
        ("origin", "http://evil.test"),
    ];
    server.ask("POST", "/tasks", &headers).is(403, "FORBIDDEN");
}

#[test]
fn beyond_loopback_every_read_takes_the_token_too() {
    let folder = tempfile::tempdir().unwrap();
    let server = server(&folder, true);
    let bearer = format!("Bearer {TOKEN}");
    let host = ("host", "machine.test:7878");
    for path in READS {
        server.ask("GET", path, &[host]).is(401, "UNAUTHORIZED");
        let answer = server.ask("GET", path, &[host, ("authorization", bearer.as_str())]);
        assert_eq!(answer.status, 200, "{path}");
    }
    server
        .ask("GET", "/events", &[host])
        .is(401, "UNAUTHORIZED");
    let query = format!("/tasks?token={TOKEN}");
    server.ask("GET", &query, &[host]).is(401, "UNAUTHORIZED");
}

#[test]
fn every_answer_is_signed_and_open_to_nobody_else() {
    let folder = tempfile::tempdir().unwrap();
    let server = server(&folder, false);
    for (method, path, host) in [
        ("GET", "/tasks", "localhost"),
        ("GET", "/none", "localhost"),
        ("GET", "/tasks", "evil.test"),
        ("POST", "/tasks", "localhost"),
        ("GET", "/metrics", "localhost"),
    ] {
        let answer = server.ask(method, path, &[("host", host)]);
        assert_eq!(answer.header("x-content-type-options"), "nosniff");
        assert_eq!(answer.header("cross-origin-resource-policy"), "same-origin");
        assert_eq!(answer.header("access-control-allow-origin"), "");
        assert_eq!(answer.header("cache-control"), "no-store", "{path}");
    }
}
