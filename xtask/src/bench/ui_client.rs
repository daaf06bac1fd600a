//! A client as plain as can be, for `bench ui`: what is measured is the server.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use crate::failure::{FailureContext as _, TaskFailure, TaskResult};

const PATIENCE: Duration = Duration::from_secs(30);

/// A connection that is used again and again.
pub(super) struct UiClient {
    host: String,
    stream: BufReader<TcpStream>,
}

/// What one request brought.
#[derive(Debug, Default)]
pub(super) struct UiReply {
    pub(super) status: u16,
    pub(super) etag: String,
    /// Of the body, as it was sent.
    pub(super) bytes: usize,
}

impl UiClient {
    pub(super) fn connect(host: &str) -> TaskResult<Self> {
        let stream = TcpStream::connect(host).context(host)?;
        stream.set_nodelay(true).context(host)?;
        stream.set_read_timeout(Some(PATIENCE)).context(host)?;
        Ok(UiClient {
            host: host.to_owned(),
            stream: BufReader::with_capacity(256 * 1024, stream),
        })
    }

    /// One request; `headers` end with a line end each.
    pub(super) fn get(&mut self, path: &str, headers: &str) -> TaskResult<UiReply> {
        self.send(path, headers)?;
        let (mut got, length) = self.head()?;
        let mut left = length;
        while left > 0 {
            let part = self.stream.fill_buf().context(path)?;
            if part.is_empty() {
                return Err(TaskFailure::new(format!(
                    "{path}: the answer ended too early"
                )));
            }
            let taken = part.len().min(left);
            self.stream.consume(taken);
            left -= taken;
        }
        got.bytes = length;
        Ok(got)
    }

    /// Asks for the stream of events.
    pub(super) fn listen(mut self) -> TaskResult<UiListener> {
        self.send("/events", "")?;
        let (got, _) = self.head()?;
        if got.status != 200 {
            return Err(TaskFailure::new(format!("/events answers {}", got.status)));
        }
        Ok(UiListener {
            stream: self.stream,
        })
    }

    fn send(&mut self, path: &str, headers: &str) -> TaskResult<()> {
        let request = format!(
            "GET {path} HTTP/1.1\r\nHost: {}\r\n{headers}\r\n",
            self.host
        );
        let stream = self.stream.get_mut();
        stream.write_all(request.as_bytes()).context(path)
    }

    fn head(&mut self) -> TaskResult<(UiReply, usize)> {
        let mut got = UiReply::default();
        let mut length = 0;
        let mut line = String::new();
        loop {
            line.clear();
            self.stream.read_line(&mut line).context("an answer")?;
            let text = line.trim_end();
            if let Some(rest) = text.strip_prefix("HTTP/1.1 ") {
                got.status = rest
                    .get(..3)
                    .and_then(|code| code.parse().ok())
                    .unwrap_or(0);
            } else if let Some(value) = text.strip_prefix("content-length: ") {
                length = value.parse().unwrap_or(0);
            } else if let Some(value) = text.strip_prefix("etag: ") {
                value.clone_into(&mut got.etag);
            } else if text.is_empty() {
                return Ok((got, length));
            }
        }
    }
}

/// A stream of events.
pub(super) struct UiListener {
    stream: BufReader<TcpStream>,
}

impl UiListener {
    /// When the next event of that name is there.
    pub(super) fn wait_for(&mut self, name: &str) -> TaskResult<Instant> {
        let wanted = format!("event: {name}");
        let mut line = String::new();
        loop {
            line.clear();
            if self.stream.read_line(&mut line).context(name)? == 0 {
                return Err(TaskFailure::new("the stream of events ended"));
            }
            if line.trim_end() == wanted {
                return Ok(Instant::now());
            }
        }
    }

    /// Takes what is there without waiting for more.
    pub(super) fn drain(&mut self) -> TaskResult<()> {
        let stream = self.stream.get_mut();
        stream.set_nonblocking(true).context("a stream")?;
        let mut rest = [0; 4096];
        while self.stream.read(&mut rest).is_ok_and(|read| read > 0) {}
        let stream = self.stream.get_mut();
        stream.set_nonblocking(false).context("a stream")
    }
}
