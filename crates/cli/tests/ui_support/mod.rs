//! A `runner ui` that runs, and a client that is as plain as can be.
#![allow(dead_code)] // Each test file uses what it needs.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use runner_testkit::{TestChild, TestRepo, eventually};
use serde_json::Value;

pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// A server, killed when this is dropped.
pub(crate) struct Ui {
    pub(crate) running: TestChild,
    /// `127.0.0.1:PORT`.
    pub(crate) host: String,
}

impl Ui {
    pub(crate) fn start(repo: &TestRepo) -> Self {
        Self::of(repo.spawn_runner(&["ui", "--port", "0"]))
    }

    /// Waits until it has told its address.
    pub(crate) fn of(mut running: TestChild) -> Self {
        let mut url = String::new();
        eventually("the address", PATIENCE, || {
            assert!(running.is_running(), "{}", running.stderr_so_far());
            let text = running.stdout_so_far();
            text.lines().next().unwrap_or_default().clone_into(&mut url);
            text.ends_with('\n')
        });
        let host = url.strip_prefix("http://").unwrap();
        let host = host.split('/').next().unwrap().to_owned();
        Ui { running, host }
    }

    /// Status and body of one request.
    pub(crate) fn get(&self, path: &str) -> (u16, String) {
        ask(&self.host, "GET", path, "")
    }

    #[track_caller]
    pub(crate) fn json(&self, path: &str) -> Value {
        let (status, body) = self.get(path);
        assert_eq!(status, 200, "{path}: {body}");
        serde_json::from_str(&body).unwrap()
    }

    /// The events from now on.
    pub(crate) fn listen(&self, path: &str) -> Events {
        let mut stream = connect(&self.host);
        write!(stream, "GET {path} HTTP/1.1\r\nHost: {}\r\n\r\n", self.host).unwrap();
        let (sender, receiver) = mpsc::channel();
        std::thread::spawn(move || {
            let (mut name, mut lines) = (String::new(), BufReader::new(stream).lines());
            while let Some(Ok(line)) = lines.next() {
                if let Some(event) = line.strip_prefix("event: ") {
                    event.clone_into(&mut name);
                }
                let Some(data) = line.strip_prefix("data: ") else {
                    continue;
                };
                let data = serde_json::from_str(data).unwrap();
                if sender.send((name.clone(), data)).is_err() {
                    return;
                }
            }
        });
        Events { receiver }
    }
}

pub(crate) struct Events {
    receiver: mpsc::Receiver<(String, Value)>,
}

impl Events {
    /// The first event that fits; the names of those before it are kept.
    #[track_caller]
    pub(crate) fn wait(
        &self,
        seen: &mut Vec<String>,
        mut fits: impl FnMut(&str, &Value) -> bool,
    ) -> Value {
        let until = Instant::now() + PATIENCE;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            match self.receiver.recv_timeout(left) {
                Ok((name, data)) => {
                    seen.push(name.clone());
                    if fits(&name, &data) {
                        return data;
                    }
                }
                Err(error) => panic!("{error} after {seen:?}"),
            }
        }
    }
}

fn connect(host: &str) -> TcpStream {
    let stream = TcpStream::connect(host).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// One request on a connection of its own; `headers` end with a line end each.
pub(crate) fn ask(host: &str, method: &str, path: &str, headers: &str) -> (u16, String) {
    let mut stream = connect(host);
    let head = format!("{method} {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n");
    write!(stream, "{head}{headers}\r\n").unwrap();
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).unwrap();
    let text = String::from_utf8_lossy(&bytes).into_owned();
    let status = text.split(' ').nth(1).unwrap().parse().unwrap();
    let body = text.split_once("\r\n\r\n").map_or("", |(_, body)| body);
    (status, body.to_owned())
}
