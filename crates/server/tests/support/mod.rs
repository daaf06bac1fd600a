//! A project made of files, and a server that is asked without a socket.

#![allow(dead_code)] // Each test file uses its part.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Body;
use axum::http::{HeaderMap, Request, StatusCode};
use http_body_util::BodyExt as _;
use runner_server::{ServerConfig, app};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::runtime::Runtime;
use tower::ServiceExt as _;

pub(crate) const RUN: &str = "run-1";

/// How long a test waits for what must come.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) struct Project {
    temp: TempDir,
}

impl Project {
    /// Nothing at all.
    pub(crate) fn absent() -> Self {
        Project {
            temp: tempfile::tempdir().unwrap(),
        }
    }

    /// A run with two leaves, one recorded iteration and one under way.
    pub(crate) fn new() -> Self {
        let project = Self::absent();
        project.make();
        project
    }

    pub(crate) fn make(&self) {
        self.write(
            ".runner/GOAL.md",
            "---\nid: run-1\n---\n# A goal\n\nIn words.\n",
        );
        self.write(".runner/state/config.toml", "max_iterations = 7\n");
        self.write(".runner/state/questions.md", "- Which one?\n");
        self.write(".runner/state/assumptions.md", "");
        self.put_tree(&tree(false));
        self.put_run_state(2);
        self.write(
            ".runner/iterations/run-1/events.jsonl",
            "{\"ts\":\"2026-01-01T00:00:00Z\",\"event\":\"run_started\"}\n",
        );
        self.iteration(1, true);
        self.write(
            ".runner/iterations/run-1/1/guard.log",
            "line one\nERROR two\nthree\n",
        );
    }

    pub(crate) fn root(&self) -> PathBuf {
        self.temp.path().join("p")
    }

    pub(crate) fn path(&self, path: &str) -> PathBuf {
        self.root().join(path)
    }

    /// As the runner writes: whole, by a rename.
    pub(crate) fn write(&self, path: &str, text: impl AsRef<[u8]>) {
        put(&self.path(path), text);
    }

    pub(crate) fn put_tree(&self, tree: &Value) {
        let text = format!("{}\n", serde_json::to_string_pretty(tree).unwrap());
        self.write(".runner/state/tree.json", text);
    }

    pub(crate) fn put_run_state(&self, next_iter: u32) {
        let state = json!({
            "run_id": RUN, "next_iter": next_iter, "last_status": "done",
            "last_summary": "did it", "last_guard": "pass", "last_node_id": "a",
        });
        self.write(".runner/state/run_state.json", state.to_string());
    }

    /// An iteration that has begun, and perhaps ended.
    pub(crate) fn iteration(&self, iter: u32, recorded: bool) {
        let folder = format!(".runner/iterations/run-1/{iter}");
        let started = json!({
            "phase": "started", "run_id": RUN, "iter": iter, "node_id": "a", "head": "abc",
            "branch": "runner/run-1", "started_at": "2026-01-01T00:00:01Z", "git_files": "x",
            "refused_repairs": 0, "last_valid": null, "max_attempts_default": 3,
        });
        self.write(&format!("{folder}/journal.jsonl"), format!("{started}\n"));
        let mut before = tree(false);
        before["children"][1]["title"] = json!("Old");
        self.write(&format!("{folder}/tree.before.json"), before.to_string());
        if recorded {
            self.record(iter);
        }
    }

    pub(crate) fn record(&self, iter: u32) {
        let folder = format!(".runner/iterations/run-1/{iter}");
        self.write(&format!("{folder}/tree.after.json"), tree(true).to_string());
        self.write(
            &format!("{folder}/output.json"),
            r#"{"status":"done","summary":"did it"}"#,
        );
        self.write(&format!("{folder}/meta.json"), meta(iter).to_string());
    }

    pub(crate) fn server(&self) -> Server {
        Server::new(&self.root(), None)
    }
}

/// Writes whole, with the folders above.
pub(crate) fn put(path: &Path, text: impl AsRef<[u8]>) {
    let folder = path.parent().unwrap();
    fs::create_dir_all(folder).unwrap();
    let name = path.file_name().unwrap().to_str().unwrap();
    let temp = folder.join(format!(".{name}.runner-tmp"));
    fs::write(&temp, text).unwrap();
    fs::rename(temp, path).unwrap();
}

pub(crate) fn node(id: &str, order: u32, passes: bool, children: &[Value]) -> Value {
    json!({
        "id": id, "order": order, "title": format!("Title of {id}"), "goal": "g",
        "acceptance": ["it works"], "passes": passes, "attempts": 0, "max_attempts": 3,
        "children": children,
    })
}

pub(crate) fn tree(a_passes: bool) -> Value {
    let leaves = [node("a", 1, a_passes, &[]), node("b", 2, false, &[])];
    node("root", 0, false, &leaves)
}

fn meta(iter: u32) -> Value {
    json!({
        "schema_version": 1, "run_id": RUN, "iter": iter, "node_id": "a", "mode": "execute",
        "status": "done", "guard": "pass", "class": "ok", "attempts": 0, "passes": true,
        "started_at": "2026-01-01T00:00:01Z", "ended_at": "2026-01-01T00:00:03Z",
        "duration_ms": 2000,
        "executor": {
            "backend": "codex", "exit_code": 0, "duration_ms": 1500, "input_tokens": 100,
            "cached_input_tokens": 40, "output_tokens": 10, "cost_usd": 0.25,
        },
        "guard_run": {"command": ["just", "ci"], "exit_code": 0, "duration_ms": 300, "log_sha256": "x"},
        "error": null, "tree_changes": {"added": ["b"], "edited": [], "moved": []},
        "passed": ["a"], "watched_changed": ["w"], "guard_untracked": [], "notes": ["a note"],
        "sandbox": "none", "head": "abc",
        "facts": {
            "max_attempts_default": 3, "refused_repairs": 0, "runner_error": null,
            "tree_unusable": null, "owned_changed": [], "protected_changed": [],
            "nested_repositories": [], "denied_files": [], "changed_outside": true,
            "guard_exit": 0, "changed_by_guard": [], "tree_before_sha256": "x",
        },
    })
}

pub(crate) struct Server {
    runtime: Runtime,
    pub(crate) app: Router,
}

pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| {
            panic!("{error}: {}", String::from_utf8_lossy(&self.body));
        })
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers
            .get(name)
            .map_or("", |value| value.to_str().unwrap())
    }

    #[track_caller]
    pub(crate) fn is(self, status: u16, code: &str) -> Self {
        assert_eq!(self.status.as_u16(), status, "{}", self.text());
        if !code.is_empty() {
            assert_eq!(self.json()["error"]["code"], code);
        }
        self
    }
}

impl Server {
    pub(crate) fn new(dir: &Path, token: Option<&str>) -> Self {
        let config = ServerConfig {
            project_dir: dir.to_owned(),
            version: "0.0.0".to_owned(),
            token: token.map(str::to_owned),
        };
        Server::of(async || app(&config).unwrap())
    }

    /// Any other one, made in the runtime that it is asked in.
    pub(crate) fn of(make: impl AsyncFnOnce() -> Router) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let app = runtime.block_on(make());
        Server { runtime, app }
    }

    /// Does something else in its runtime.
    pub(crate) fn block_on<T>(&self, work: impl Future<Output = T>) -> T {
        self.runtime.block_on(work)
    }

    /// How many tasks its runtime has.
    pub(crate) fn alive_tasks(&self) -> usize {
        self.runtime.metrics().num_alive_tasks()
    }

    pub(crate) fn get(&self, path: &str) -> Answer {
        self.ask("GET", path, &[("host", "localhost:7878")])
    }

    pub(crate) fn ask(&self, method: &str, path: &str, headers: &[(&str, &str)]) -> Answer {
        self.send(method, path, headers, Body::empty())
    }

    pub(crate) fn send(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: impl Into<Body>,
    ) -> Answer {
        let mut request = Request::builder().method(method).uri(path);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(body.into()).unwrap();
        let app = self.app.clone();
        self.runtime.block_on(async {
            let response = app.oneshot(request).await.unwrap();
            let (parts, body) = response.into_parts();
            Answer {
                status: parts.status,
                headers: parts.headers,
                body: body.collect().await.unwrap().to_bytes().to_vec(),
            }
        })
    }

    /// Listens; `last_id` as a browser that comes back sends it.
    pub(crate) fn listen(&self, path: &str, last_id: Option<&str>) -> Listener<'_> {
        let mut request = Request::builder().uri(path).header("host", "localhost");
        if let Some(id) = last_id {
            request = request.header("last-event-id", id);
        }
        let request = request.body(Body::empty()).unwrap();
        let app = self.app.clone();
        let response = self
            .runtime
            .block_on(async { app.oneshot(request).await.unwrap() });
        assert_eq!(response.status(), StatusCode::OK);
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        Listener {
            runtime: &self.runtime,
            body: response.into_body(),
            text: String::new(),
            last_id: None,
        }
    }
}

pub(crate) struct Listener<'s> {
    runtime: &'s Runtime,
    body: Body,
    text: String,
    pub(crate) last_id: Option<String>,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Event {
    pub(crate) name: String,
    pub(crate) data: Value,
}

impl Listener<'_> {
    /// The next event, if one comes in time.
    pub(crate) fn next_within(&mut self, limit: Duration) -> Option<Event> {
        let until = Instant::now() + limit;
        loop {
            while let Some((frame, rest)) = self.text.split_once("\n\n") {
                let frame = frame.to_owned();
                self.text = rest.to_owned();
                let field = |name: &str| {
                    let line = frame.lines().find_map(|line| line.strip_prefix(name));
                    line.map(str::to_owned)
                };
                if let Some(id) = field("id: ") {
                    self.last_id = Some(id);
                }
                if let Some(name) = field("event: ") {
                    let data = field("data: ").unwrap();
                    let data = serde_json::from_str(&data).unwrap();
                    return Some(Event { name, data });
                }
            }
            let left = until.saturating_duration_since(Instant::now());
            let body = &mut self.body;
            let frame = self
                .runtime
                .block_on(async { tokio::time::timeout(left, body.frame()).await });
            let bytes = frame.ok()??.unwrap().into_data().unwrap();
            self.text.push_str(std::str::from_utf8(&bytes).unwrap());
        }
    }

    /// The next event of that name; others are passed over.
    #[track_caller]
    pub(crate) fn wait_for(&mut self, name: &str) -> Value {
        let until = Instant::now() + PATIENCE;
        let mut seen = Vec::new();
        while Instant::now() < until {
            match self.next_within(until - Instant::now()) {
                Some(event) if event.name == name => return event.data,
                Some(event) => seen.push(event),
                None => break,
            }
        }
        panic!("no {name} came, but {seen:?}");
    }

    /// Everything until it is quiet for so long.
    pub(crate) fn until_quiet(&mut self, quiet: Duration) -> Vec<Event> {
        let mut events = Vec::new();
        while let Some(event) = self.next_within(quiet) {
            events.push(event);
        }
        events
    }
}
