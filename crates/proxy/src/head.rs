//! The head of a request to the proxy: CONNECT, or a plain HTTP request with a whole URI.
//!
//! Read strictly: what two programs could read in two ways is refused.

use crate::body::{ChunkScanner, RequestBody};
use crate::hosts::RequestHost;
use crate::refusal::ProxyRefusal;

/// So many fields are read.
const MAX_FIELDS: usize = 200;

/// Fields that are for the proxy and no further.
const HOP_BY_HOP: &[&str] = &[
    "connection",
    "host",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "upgrade",
];

/// What is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProxyRequest {
    /// Where.
    pub host: RequestHost,
    /// At which port.
    pub port: u16,
    /// What to do there.
    pub(crate) kind: RequestKind,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RequestKind {
    /// To pass on bytes both ways.
    Tunnel,
    /// One request: its head as the server gets it, and how far its body goes.
    Plain { head: Vec<u8>, body: RequestBody },
}

/// Where the head ends in what was read so far, behind its empty line.
pub fn end_of_head(bytes: &[u8]) -> Option<usize> {
    let end = bytes.windows(4).position(|four| four == b"\r\n\r\n")?;
    Some(end + 4)
}

/// Reads a whole head.
pub fn parse_head(bytes: &[u8]) -> Result<ProxyRequest, ProxyRefusal> {
    let text = std::str::from_utf8(bytes).map_err(|_| bad("the head is not text"))?;
    let text = text
        .strip_suffix("\r\n\r\n")
        .ok_or_else(|| bad("the head has no end"))?;
    let is_control = |c: char| c.is_ascii_control() && !matches!(c, '\r' | '\n' | '\t');
    if text.contains(is_control) || !text.is_ascii() {
        return Err(bad("the head has characters that do not belong there"));
    }
    let mut lines = text.split("\r\n");
    let first = lines.next().unwrap_or_default();
    let fields: Vec<&str> = lines.collect();
    if first.contains(['\r', '\n', '\t']) || fields.iter().any(|it| it.contains(['\r', '\n'])) {
        return Err(bad("a line of the head ends without CR and LF"));
    }
    if fields.len() > MAX_FIELDS {
        return Err(ProxyRefusal::new(431, "the head has too many fields"));
    }
    let fields: Vec<(String, &str)> = fields
        .into_iter()
        .map(field)
        .collect::<Result<_, ProxyRefusal>>()?;
    let [method, target, version] = first.split(' ').collect::<Vec<_>>()[..] else {
        return Err(bad("the first line is not a request"));
    };
    if !matches!(version, "HTTP/1.1" | "HTTP/1.0") {
        return Err(ProxyRefusal::new(505, "this proxy speaks HTTP/1.1"));
    }
    let fits = |byte: u8| byte.is_ascii_uppercase() || matches!(byte, b'-' | b'_');
    if method.is_empty() || method.len() > 32 || !method.bytes().all(fits) {
        return Err(bad("not a method"));
    }
    let body = body(&fields)?;
    if method == "CONNECT" {
        if !body.is_over() {
            return Err(bad("CONNECT has no body"));
        }
        let (host, port) = authority(target, None)?;
        return Ok(ProxyRequest {
            host,
            port,
            kind: RequestKind::Tunnel,
        });
    }
    plain(method, target, &fields, body)
}

fn plain(
    method: &str,
    target: &str,
    fields: &[(String, &str)],
    body: RequestBody,
) -> Result<ProxyRequest, ProxyRefusal> {
    let scheme = target.get(..7).unwrap_or_default();
    if !scheme.eq_ignore_ascii_case("http://") {
        return Err(bad(
            if target.to_ascii_lowercase().starts_with("https://") {
                "https goes through CONNECT"
            } else {
                "this is a proxy: it takes CONNECT, and http:// with a host"
            },
        ));
    }
    if target.contains('#') {
        return Err(bad("a fragment is for the client alone"));
    }
    let rest = &target[7..];
    let end = rest.find(['/', '?']).unwrap_or(rest.len());
    let (authority_text, path) = rest.split_at(end);
    let (host, port) = authority(authority_text, Some(80))?;
    let slash = if path.starts_with('/') { "" } else { "/" };
    let named = if port == 80 {
        host.to_string()
    } else {
        format!("{host}:{port}")
    };
    // The server is told the host that was checked, whatever the client says, and that there is
    // nothing behind this request.
    let mut head =
        format!("{method} {slash}{path} HTTP/1.1\r\nHost: {named}\r\nConnection: close\r\n");
    let for_proxy: Vec<String> = fields
        .iter()
        .filter(|(name, _)| name == "connection")
        .flat_map(|(_, value)| value.split(','))
        .map(|name| name.trim().to_ascii_lowercase())
        .filter(|name| name != "content-length" && name != "transfer-encoding")
        .collect();
    for (name, value) in fields {
        if !HOP_BY_HOP.contains(&name.as_str()) && !for_proxy.contains(name) {
            head.push_str(name);
            head.push_str(": ");
            head.push_str(value);
            head.push_str("\r\n");
        }
    }
    head.push_str("\r\n");
    Ok(ProxyRequest {
        host,
        port,
        kind: RequestKind::Plain {
            head: head.into_bytes(),
            body,
        },
    })
}

/// A field: its name in lowercase, and its value.
fn field(line: &str) -> Result<(String, &str), ProxyRefusal> {
    let (name, value) = line
        .split_once(':')
        .ok_or_else(|| bad("a line of the head is no field"))?;
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    // A blank at the beginning would go on with the field before it.
    if name.is_empty() || !name.bytes().all(fits) {
        return Err(bad("a field of the head has no proper name"));
    }
    Ok((name.to_ascii_lowercase(), value.trim_matches([' ', '\t'])))
}

fn body(fields: &[(String, &str)]) -> Result<RequestBody, ProxyRefusal> {
    let values = |wanted: &str| -> Vec<&str> {
        let found = fields.iter().filter(|(name, _)| name == wanted);
        found.map(|(_, value)| *value).collect()
    };
    let lengths = values("content-length");
    let encodings = values("transfer-encoding");
    match (lengths.as_slice(), encodings.as_slice()) {
        ([], []) => Ok(RequestBody::NONE),
        ([length], []) => {
            let is_number = !length.is_empty()
                && length.len() <= 18
                && length.bytes().all(|byte| byte.is_ascii_digit());
            let length = length.parse().ok().filter(|_| is_number);
            let length = length.ok_or_else(|| bad("Content-Length is not a number"))?;
            Ok(RequestBody::Bytes(length))
        }
        ([], [encoding]) if encoding.eq_ignore_ascii_case("chunked") => {
            Ok(RequestBody::Chunks(ChunkScanner::default()))
        }
        ([], [_]) => Err(ProxyRefusal::new(501, "a body is sent whole or chunked")),
        _ => Err(bad("the head says more than once how long the body is")),
    }
}

/// `host:port`; the port may be missing where there is a usual one.
fn authority(text: &str, usual: Option<u16>) -> Result<(RequestHost, u16), ProxyRefusal> {
    if text.contains('@') {
        return Err(bad("a host with a user before it"));
    }
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) if !port.contains(']') => (host, Some(port)),
        _ => (text, None),
    };
    let port = match (port, usual) {
        (Some(port), _) => {
            let is_number = port.len() <= 5 && port.bytes().all(|byte| byte.is_ascii_digit());
            let port = port.parse().ok().filter(|port| is_number && *port > 0);
            port.ok_or_else(|| bad("not a port"))?
        }
        (None, Some(usual)) => usual,
        (None, None) => return Err(bad("CONNECT names a host and a port")),
    };
    let host = RequestHost::parse(host).map_err(bad)?;
    Ok((host, port))
}

fn bad(words: &'static str) -> ProxyRefusal {
    ProxyRefusal::new(400, words)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A head, with `|` for the ends of lines.
    fn parse(text: &str) -> Result<ProxyRequest, ProxyRefusal> {
        let text = text.replace('|', "\r\n");
        let end = end_of_head(text.as_bytes()).unwrap_or(text.len());
        parse_head(&text.as_bytes()[..end])
    }

    #[test]
    fn tunnels() {
        for (text, expected) in [
            ("CONNECT a.example:443 HTTP/1.1||", "a.example 443"),
            (
                "CONNECT A.Example.:8443 HTTP/1.0|Host: other|X: y||",
                "a.example 8443",
            ),
            ("CONNECT [::1]:443 HTTP/1.1||", "[::1] 443"),
            (
                "CONNECT 127.0.0.1:80 HTTP/1.1|Content-Length: 0||",
                "127.0.0.1 80",
            ),
        ] {
            let request = parse(text).unwrap();
            assert_eq!(request.kind, RequestKind::Tunnel);
            let found = format!("{} {}", request.host, request.port);
            assert_eq!(found, expected, "{text}");
        }
    }

    #[test]
    fn plain_requests() {
        for (text, head, body) in [
            (
                "GET http://a.example/x?y HTTP/1.1|Host: b.example|Accept: */*||",
                "GET /x?y HTTP/1.1|Host: a.example|Connection: close|accept: */*||",
                RequestBody::NONE,
            ),
            (
                "GET HTTP://a.example?q HTTP/1.0||",
                "GET /?q HTTP/1.1|Host: a.example|Connection: close||",
                RequestBody::NONE,
            ),
            (
                "POST http://[::1]:81 HTTP/1.1|Connection: keep-alive, X-A|x-a: 1|Proxy-Authorization: k|Content-Length: 3||",
                "POST / HTTP/1.1|Host: [::1]:81|Connection: close|content-length: 3||",
                RequestBody::Bytes(3),
            ),
            (
                "POST http://a.example/ HTTP/1.1|Connection: Content-Length|Transfer-Encoding: Chunked||",
                "POST / HTTP/1.1|Host: a.example|Connection: close|transfer-encoding: Chunked||",
                RequestBody::Chunks(ChunkScanner::default()),
            ),
        ] {
            let request = parse(text).unwrap();
            let RequestKind::Plain {
                head: found,
                body: left,
            } = request.kind
            else {
                panic!("{text}");
            };
            let found = String::from_utf8(found).unwrap().replace("\r\n", "|");
            assert_eq!((found.as_str(), left), (head, body), "{text}");
        }
    }

    #[test]
    fn everything_else_is_refused() {
        for (text, status, words) in [
            ("GET / HTTP/1.1|Host: a.example||", 400, "this is a proxy"),
            ("OPTIONS * HTTP/1.1||", 400, "this is a proxy"),
            ("GET a.example:443 HTTP/1.1||", 400, "this is a proxy"),
            ("GET https://a.example/ HTTP/1.1||", 400, "CONNECT"),
            ("GET ftp://a.example/ HTTP/1.1||", 400, "this is a proxy"),
            ("GET http:///x HTTP/1.1||", 400, "not a name"),
            ("GET http://a.example/x#y HTTP/1.1||", 400, "fragment"),
            ("GET http://u:p@a.example/ HTTP/1.1||", 400, "user"),
            ("GET http://a.example:0/ HTTP/1.1||", 400, "port"),
            ("GET http://a.example:/ HTTP/1.1||", 400, "port"),
            ("GET http://a.example:99999/ HTTP/1.1||", 400, "port"),
            ("GET http://a.example:+80/ HTTP/1.1||", 400, "port"),
            ("GET http://2130706433/ HTTP/1.1||", 400, "four numbers"),
            ("GET http://0177.0.0.1/ HTTP/1.1||", 400, "four numbers"),
            ("CONNECT a.example HTTP/1.1||", 400, "a host and a port"),
            ("CONNECT http://a.example:443 HTTP/1.1||", 400, "not a name"),
            ("CONNECT a.example:443/x HTTP/1.1||", 400, "port"),
            ("CONNECT 0x7f.1:443 HTTP/1.1||", 400, "four numbers"),
            (
                "CONNECT a.example:443 HTTP/1.1|Content-Length: 1||",
                400,
                "no body",
            ),
            ("CONNECT a.example:443 HTTP/2.0||", 505, "HTTP/1.1"),
            ("CONNECT  a.example:443 HTTP/1.1||", 400, "not a request"),
            ("CONNECT a.example:443||", 400, "not a request"),
            (" CONNECT a.example:443 HTTP/1.1||", 400, "not a request"),
            ("connect a.example:443 HTTP/1.1||", 400, "not a method"),
            ("||", 400, "not a request"),
            ("\x16\x03\x01||", 400, "characters"),
            ("GET http://a.example/\0 HTTP/1.1||", 400, "characters"),
            ("GET http://b\u{fc}cher/ HTTP/1.1||", 400, "characters"),
            (
                "GET http://a.example/ HTTP/1.1|A: b\nHost: c||",
                400,
                "CR and LF",
            ),
            (
                "GET http://a.example/ HTTP/1.1|A: b\rHost: c||",
                400,
                "CR and LF",
            ),
            ("GET http://a.example/\t HTTP/1.1||", 400, "CR and LF"),
            (
                "GET http://a.example/ HTTP/1.1| folded: x||",
                400,
                "proper name",
            ),
            (
                "GET http://a.example/ HTTP/1.1|Host : x||",
                400,
                "proper name",
            ),
            ("GET http://a.example/ HTTP/1.1|: x||", 400, "proper name"),
            ("GET http://a.example/ HTTP/1.1|nothing||", 400, "no field"),
            (
                "POST http://a.example/ HTTP/1.1|Content-Length: 1|Content-Length: 1||",
                400,
                "more than once",
            ),
            (
                "POST http://a.example/ HTTP/1.1|Content-Length: 1|Transfer-Encoding: chunked||",
                400,
                "more than once",
            ),
            (
                "POST http://a.example/ HTTP/1.1|Transfer-Encoding: chunked|Transfer-Encoding: x||",
                400,
                "more than once",
            ),
            (
                "POST http://a.example/ HTTP/1.1|Transfer-Encoding: gzip, chunked||",
                501,
                "whole or chunked",
            ),
            (
                "POST http://a.example/ HTTP/1.1|Content-Length: +1||",
                400,
                "Content-Length",
            ),
            (
                "POST http://a.example/ HTTP/1.1|Content-Length: -1||",
                400,
                "Content-Length",
            ),
            (
                "POST http://a.example/ HTTP/1.1|Content-Length: 1, 1||",
                400,
                "Content-Length",
            ),
            (
                "POST http://a.example/ HTTP/1.1|Content-Length:||",
                400,
                "Content-Length",
            ),
            (
                "POST http://a.example/ HTTP/1.1|Content-Length: 99999999999999999999||",
                400,
                "Content-Length",
            ),
        ] {
            let refusal = parse(text).unwrap_err();
            assert_eq!(refusal.status, status, "{text:?}: {refusal:?}");
            assert!(refusal.words.contains(words), "{text:?}: {refusal:?}");
        }
        let many = format!("GET http://a.example/ HTTP/1.1|{}|", "a: b|".repeat(201));
        assert_eq!(parse(&many).unwrap_err().status, 431);
        assert!(parse("CONNECT a.example:443 HTTP/1.1").is_err());
    }
}
