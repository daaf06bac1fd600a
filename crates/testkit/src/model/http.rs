//! As much HTTP/1.1 as one request per connection needs.

use std::fmt::Write as _;
use std::io::{self, ErrorKind, Read, Write};

/// A request, read whole.
#[derive(Debug)]
pub(super) struct ModelRequest {
    pub(super) method: String,
    pub(super) path: String,
    pub(super) body: Vec<u8>,
}

/// Reads one request; `None` when the client or the server ends before it is there.
///
/// The connection has a short read timeout, at which `stopping` is asked.
pub(super) fn read_request(
    connection: &mut impl Read,
    stopping: impl Fn() -> bool,
) -> io::Result<Option<ModelRequest>> {
    let mut bytes = Vec::new();
    let head_end = loop {
        if let Some(at) = find(&bytes, b"\r\n\r\n") {
            break at + 4;
        }
        if !read_more(connection, &mut bytes, &stopping)? {
            return Ok(None);
        }
    };
    let head = String::from_utf8_lossy(&bytes[..head_end]).into_owned();
    let mut lines = head.lines();
    let mut words = lines.next().unwrap_or_default().split(' ');
    let method = words.next().unwrap_or_default().to_owned();
    let path = words.next().unwrap_or_default().to_owned();
    let length = lines
        .filter_map(|line| line.split_once(':'))
        .find(|(name, _)| name.eq_ignore_ascii_case("content-length"))
        .and_then(|(_, value)| value.trim().parse::<usize>().ok())
        .unwrap_or_default();
    let mut body = bytes.split_off(head_end);
    while body.len() < length {
        if !read_more(connection, &mut body, &stopping)? {
            return Ok(None);
        }
    }
    Ok(Some(ModelRequest { method, path, body }))
}

/// Answers with a status and a body.
pub(super) fn write_status(
    connection: &mut impl Write,
    code: u16,
    body: &str,
    headers: &[(String, String)],
) -> io::Result<()> {
    let mut head = format!(
        "HTTP/1.1 {code} {}\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n",
        reason(code),
        body.len()
    );
    for (name, value) in headers {
        // Writing to a string cannot fail.
        let _ = write!(head, "{name}: {value}\r\n");
    }
    connection.write_all(format!("{head}\r\n{body}").as_bytes())?;
    connection.flush()
}

/// Answers with a whole event stream.
pub(super) fn write_stream(connection: &mut impl Write, sse: &str) -> io::Result<()> {
    begin_stream(connection, sse)?;
    connection.write_all(b"0\r\n\r\n")?;
    connection.flush()
}

/// Answers with the beginning of an event stream. It is sent in chunks, so that a
/// client can tell a cut from an end.
pub(super) fn begin_stream(connection: &mut impl Write, sse: &str) -> io::Result<()> {
    connection.write_all(
        b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\nconnection: close\r\n\r\n",
    )?;
    if !sse.is_empty() {
        connection.write_all(format!("{:x}\r\n{sse}\r\n", sse.len()).as_bytes())?;
    }
    connection.flush()
}

/// Waits until the client has gone or the server ends.
pub(super) fn wait_for_end(
    connection: &mut impl Read,
    stopping: impl Fn() -> bool,
) -> io::Result<()> {
    let mut ignored = Vec::new();
    while read_more(connection, &mut ignored, &stopping)? {
        ignored.clear();
    }
    Ok(())
}

/// Reads what there is; false at the end of the client or the server.
fn read_more(
    connection: &mut impl Read,
    bytes: &mut Vec<u8>,
    stopping: &impl Fn() -> bool,
) -> io::Result<bool> {
    let mut buffer = [0; 16 * 1024];
    loop {
        match connection.read(&mut buffer) {
            Ok(0) => return Ok(false),
            Ok(count) => {
                bytes.extend_from_slice(&buffer[..count]);
                return Ok(true);
            }
            Err(error) if is_timeout(&error) => {
                if stopping() {
                    return Ok(false);
                }
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
}

fn find(bytes: &[u8], needle: &[u8]) -> Option<usize> {
    bytes.windows(needle.len()).position(|part| part == needle)
}

/// Some clients quote the reason in their error messages.
fn reason(code: u16) -> &'static str {
    match code {
        400 => "Bad Request",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "Not Found",
        429 => "Too Many Requests",
        500 => "Internal Server Error",
        503 => "Service Unavailable",
        _ => "Status",
    }
}
