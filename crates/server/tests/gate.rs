//! Who gets no answer: other methods, other names, other origins, no token, and
//! paths that lead out.

#![allow(clippy::unwrap_used)] // A test that cannot go on has failed.

mod support;

use std::fs;
use std::os::unix::fs::symlink;

use support::{Project, Server};

const HOST: (&str, &str) = ("host", "localhost:7878");

const PATHS: [&str; 9] = [
    "/",
    "/events",
    "/api/run",
    "/api/tree",
    "/api/run-state",
    "/api/iterations",
    "/api/iterations/run-1/1",
    "/api/iterations/run-1/1/guard.log",
    "/api/server",
];

#[test]
fn no_write_method_answers_anything_but_405() {
    let project = Project::new();
    let server = project.server();
    for path in PATHS {
        for method in [
            "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT", "FOO",
        ] {
            let answer = server.ask(method, path, &[HOST]).is(405, "method");
            assert_eq!(answer.header("allow"), "GET, HEAD");
        }
    }
}

#[test]
fn every_answer_is_signed() {
    let project = Project::new();
    let server = project.server();
    for (method, path, host) in [
        ("GET", "/", "localhost"),
        ("GET", "/api/run", "localhost"),
        ("GET", "/api/none", "localhost"),
        ("GET", "/api/run", "evil.test"),
        ("POST", "/", "localhost"),
    ] {
        let answer = server.ask(method, path, &[("host", host)]);
        let policy = answer.header("content-security-policy");
        assert!(policy.contains("default-src 'none'"), "{policy}");
        assert!(
            policy.contains("script-src 'self'") && !policy.contains("unsafe"),
            "{policy}"
        );
        assert_eq!(answer.header("x-content-type-options"), "nosniff");
        assert_eq!(answer.header("referrer-policy"), "no-referrer");
        assert_eq!(answer.header("cross-origin-resource-policy"), "same-origin");
        // Nobody else's script may read it.
        assert_eq!(answer.header("access-control-allow-origin"), "");
    }
}

#[test]
fn only_names_of_this_machine() {
    let project = Project::new();
    let server = project.server();
    for path in PATHS.iter().filter(|path| **path != "/events") {
        for host in ["localhost", "127.0.0.1:7878", "[::1]:7878", "LOCALHOST:1"] {
            assert_eq!(
                server.ask("GET", path, &[("host", host)]).status,
                200,
                "{path} {host}"
            );
        }
        for host in [
            "evil.test",
            "localhost.evil.test:7878",
            "10.0.0.1",
            "127.0.0.1.evil.test",
            "",
        ] {
            server.ask("GET", path, &[("host", host)]).is(403, "host");
        }
        server.ask("GET", path, &[]).is(403, "host");
    }
    server
        .ask("GET", "/events", &[("host", "evil.test")])
        .is(403, "host");
}

#[test]
fn no_page_of_another_origin() {
    let project = Project::new();
    let server = project.server();
    let ask = |path: &str, name: &str, value: &str| server.ask("GET", path, &[HOST, (name, value)]);
    for path in PATHS.iter().filter(|path| **path != "/events") {
        assert_eq!(
            ask(path, "origin", "http://localhost:7878").status,
            200,
            "{path}"
        );
        for origin in [
            "http://evil.test",
            "http://localhost:9999",
            "http://localhost",
            "null",
            "http://localhost:7878.evil.test",
            "file://localhost:7878",
            "localhost:7878",
        ] {
            ask(path, "origin", origin).is(403, "origin");
        }
    }
    ask("/events", "origin", "http://evil.test").is(403, "origin");
    for site in ["cross-site", "same-site"] {
        ask("/api/run", "sec-fetch-site", site).is(403, "origin");
        ask("/events", "sec-fetch-site", site).is(403, "origin");
        // Somebody followed a link to the page.
        assert_eq!(ask("/", "sec-fetch-site", site).status, 200);
    }
    for site in ["same-origin", "none"] {
        assert_eq!(ask("/api/run", "sec-fetch-site", site).status, 200);
    }
}

#[test]
fn beyond_this_machine_only_with_the_token() {
    let project = Project::new();
    let server = Server::new(&project.root(), Some("secret"));
    let host = ("host", "build.example.test:7878");
    for path in PATHS {
        server.ask("GET", path, &[host]).is(401, "token");
        server.ask("GET", path, &[HOST]).is(401, "token");
        server
            .ask("GET", &format!("{path}?token=wrong"), &[host])
            .is(401, "token");
        server
            .ask("GET", path, &[host, ("authorization", "Bearer wrong")])
            .is(401, "token");
        server.ask("POST", path, &[host]).is(405, "method");
    }
    // Data is not for addresses with a token in them.
    server
        .ask("GET", "/api/run?token=secret", &[host])
        .is(401, "token");
    let admitted = server.ask("GET", "/?token=secret", &[host]).is(200, "");
    let cookie = admitted.header("set-cookie").to_owned();
    assert!(
        cookie.contains("; HttpOnly") && cookie.contains("; SameSite=Strict"),
        "{cookie}"
    );
    assert!(!cookie.contains("secret"), "{cookie}");
    assert!(admitted.text().contains("http-equiv=\"refresh\""));
    let cookie = cookie.split(';').next().unwrap();
    for path in PATHS.iter().filter(|path| **path != "/events") {
        let other = format!("theme=dark; {cookie}");
        assert_eq!(
            server.ask("GET", path, &[host, ("cookie", &other)]).status,
            200,
            "{path}"
        );
    }
    let bearer = ("authorization", "Bearer secret");
    assert_eq!(server.ask("GET", "/api/run", &[host, bearer]).status, 200);
    let forged = cookie.split_once('=').unwrap().0.to_owned() + "=secret";
    server
        .ask("GET", "/api/run", &[host, ("cookie", &forged)])
        .is(401, "token");
    // The token opens no door for other origins.
    let foreign = [host, ("cookie", cookie), ("origin", "http://evil.test")];
    server.ask("GET", "/api/run", &foreign).is(403, "origin");
}

#[test]
fn no_path_leads_out() {
    let project = Project::new();
    let outside = project.root().parent().unwrap().join("outside");
    fs::create_dir_all(outside.join("1")).unwrap();
    for name in ["guard.log", "meta.json", "secret"] {
        fs::write(outside.join("1").join(name), "SECRET").unwrap();
        fs::write(outside.join(name), "SECRET").unwrap();
    }
    fs::write(project.path("secret"), "SECRET").unwrap();
    let iterations = project.path(".runner/iterations");
    symlink(&outside, iterations.join("run-link")).unwrap();
    symlink(outside.join("1"), iterations.join("run-1/5")).unwrap();
    project.iteration(6, false);
    symlink(outside.join("secret"), iterations.join("run-1/6/guard.log")).unwrap();
    symlink(outside.join("1"), iterations.join("run-1/6/stream.jsonl")).unwrap();
    let server = project.server();
    let secret = outside.join("secret").display().to_string();
    let tricks = [
        "..",
        "%2e%2e",
        "%252e%252e",
        "..%2f..",
        "..%2f..%2fsecret",
        "%2e%2e%2fsecret",
        "..%5c..",
        ".",
        "%2e",
        "run-link",
        "5",
        "%00",
        "run-1%00",
        "1%2f..",
        "run-1%2f1",
        "%ff",
        "",
        "%2fetc%2fpasswd",
        "....//",
        &secret.replace('/', "%2f"),
        &secret.replace('/', "%252f"),
    ];
    for trick in tricks {
        for path in [
            format!("/api/iterations/{trick}/1"),
            format!("/api/iterations/{trick}/1/guard.log"),
            format!("/api/iterations/{trick}/1/tree"),
            format!("/api/iterations/{trick}/1/diff"),
            format!("/api/iterations/run-1/{trick}"),
            format!("/api/iterations/run-1/{trick}/guard.log"),
            format!("/api/iterations/run-1/{trick}/plan"),
            format!("/api/iterations/run-1/1/{trick}"),
            format!("/api/iterations/run-1/1/..%2f1%2f{trick}"),
            format!("/api/{trick}"),
        ] {
            let Ok(_) = path.parse::<axum::http::Uri>() else {
                continue;
            };
            let answer = server.get(&path);
            assert_eq!(answer.status, 404, "{path}: {}", answer.text());
            assert!(!answer.text().contains("SECRET"), "{path}");
        }
        // The page has no files but its own.
        let page = server.get(&format!("/{trick}"));
        assert!(!page.text().contains("SECRET"), "{trick}");
    }
    server
        .get("/api/iterations/run-1/6/guard.log")
        .is(404, "not_found");
    server
        .get("/api/iterations/run-1/6/stream.jsonl")
        .is(404, "not_found");
    let timeline = server.get("/api/iterations").text();
    assert!(
        !timeline.contains("run-link") && !timeline.contains("SECRET"),
        "{timeline}"
    );
    // Files that are there but not for everybody.
    server
        .get("/api/iterations/run-1/1/journal.jsonl")
        .is(404, "not_found");
    // Not even where the folders of the runner itself are links.
    let state = project.root().parent().unwrap().join("state");
    fs::rename(project.path(".runner/state"), &state).unwrap();
    symlink(&state, project.path(".runner/state")).unwrap();
    server.get("/api/run").is(404, "no_project");
    fs::remove_file(project.path(".runner/state")).unwrap();
    fs::rename(&state, project.path(".runner/state")).unwrap();
    server.get("/api/run").is(200, "");
    let moved = project.root().parent().unwrap().join("moved");
    fs::rename(project.path(".runner"), &moved).unwrap();
    symlink(&moved, project.path(".runner")).unwrap();
    server.get("/api/run").is(404, "no_project");
}
