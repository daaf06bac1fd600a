//! `runner fleet serve` alone: everything with the token, which lies outside the project, and no role
//! at work.
#![allow(clippy::unwrap_used)]

mod fleet_project;

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

use fleet_project::{issue, repo};
use runner_testkit::{TestChild, TestRepo, eventually};
use serde_json::{Value, json};

struct Api {
    address: String,
    token: String,
}

impl Api {
    /// Asks once; the status and what was said.
    fn ask(&self, method: &str, path: &str, more: &str, body: &str) -> (u16, Value) {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        let length = body.len();
        let request = format!(
            "{method} {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\
             Content-Type: application/json\r\nContent-Length: {length}\r\n{more}\r\n{body}",
            self.address
        );
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        (status, serde_json::from_str(body).unwrap_or(Value::Null))
    }

    fn get(&self, path: &str) -> (u16, Value) {
        let token = format!("Authorization: Bearer {}\r\n", self.token);
        self.ask("GET", path, &token, "")
    }

    fn get_without(&self, path: &str) -> (u16, Value) {
        self.ask("GET", path, "", "")
    }

    fn post(&self, path: &str, body: &Value) -> (u16, Value) {
        let token = format!("Authorization: Bearer {}\r\n", self.token);
        self.ask("POST", path, &token, &body.to_string())
    }
}

/// Serves, and says how to ask.
fn serve(repo: &TestRepo, more: &[&str]) -> (TestChild, Api) {
    let args = [&["fleet", "serve", "--port", "0", "--json"], more].concat();
    let running = repo.spawn_runner(&args);
    eventually("it says where it is", Duration::from_secs(60), || {
        running.stdout_so_far().contains('\n')
    });
    let said = running.stdout_so_far();
    let said: Value = serde_json::from_str(said.lines().next().unwrap()).unwrap();
    let file = std::path::PathBuf::from(said["token_file"].as_str().unwrap());
    let mode = std::fs::metadata(&file).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let url = said["api"].as_str().unwrap();
    let api = Api {
        address: url.strip_prefix("http://").unwrap().to_owned(),
        token: std::fs::read_to_string(file).unwrap().trim().to_owned(),
    };
    (running, api)
}

#[test]
fn beyond_this_machine_every_request_takes_the_token() {
    let repo = repo();
    let (_running, api) = serve(&repo, &["--bind", "0.0.0.0"]);
    assert!(api.address.starts_with("0.0.0.0:"), "{}", api.address);
    for path in ["/tasks", "/events", "/metrics", "/openapi.json"] {
        let (status, said) = api.get_without(path);
        assert_eq!(status, 401, "{path}: {said}");
    }
    assert_eq!(api.get("/tasks").0, 200);
}

#[test]
fn the_api_alone() {
    let repo = repo();
    issue(&repo, 1, "Agent: worker\nAllowed paths: issue-1/**");
    let (running, api) = serve(&repo, &[]);

    assert_eq!(api.get_without("/health").0, 200);
    assert_eq!(api.get_without("/tasks").0, 401);
    let task = json!({"id": "a", "title": "A", "goal": "G", "lock_scope": ["a"]});
    let (status, refused) = api.ask("POST", "/tasks", "", &task.to_string());
    assert_eq!(status, 401, "{refused}");
    let (status, made) = api.post("/tasks", &task);
    assert_eq!(status, 201, "{made}");
    let (status, tasks) = api.get("/tasks");
    assert_eq!(
        (status, &tasks["tasks"][0]["id"]),
        (200, &json!("a")),
        "{tasks}"
    );

    // Nobody brings the issue in here, and a planner may not start before it.
    let (status, said) = api.post("/system/preflight", &json!({"requirement": "More."}));
    assert_eq!(status, 200, "{said}");
    assert_eq!(said["inputs"]["issue_backlog"], 1);
    assert_eq!(said["recommendations"]["start_planner"], false);
    let start = json!({"requirement": "More.", "start_planner": true});
    let (status, refused) = api.post("/system/preflight", &start);
    assert_eq!(status, 409, "{refused}");
    let words = "the backlog comes first: 1 open issue, 1 open task";
    assert_eq!(refused["error"]["message"], words);

    // What another process does is seen here, and the other way round.
    repo.runner(&["task", "cancel", "a", "--reason", "no"])
        .success();
    let (_, shown) = api.get("/tasks/a");
    assert_eq!(shown["task"]["state"], "canceled", "{shown}");
    running.signal("TERM");
    running.wait_within(Duration::from_secs(60)).code(130);
    assert!(TcpStream::connect(&api.address).is_err(), "nobody listens");
}
