//! Who may ask, and what every answer says about itself.
//!
//! The server only reads, but what it reads is private: so a page of another
//! origin, a name that was bent to this address (DNS rebinding) and, where other
//! machines can reach it, anybody without the token are turned away.

use axum::extract::{Request, State};
use axum::http::{HeaderMap, Method, StatusCode, Uri, header};
use axum::middleware::Next;
use axum::response::Response;
use sha2::{Digest as _, Sha256};

use crate::page;
use crate::reply::{self, ApiRefusal};

const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' \
                      data:; font-src 'self'; connect-src 'self'; manifest-src 'self'; base-uri \
                      'none'; form-action 'none'; frame-ancestors 'none'";

/// Under which conditions an answer is given.
#[derive(Clone, Debug)]
pub(crate) enum ApiGate {
    /// Bound to this machine: any name of it will do.
    Loopback,
    /// Bound beyond it: only with the token, also to read.
    Token(ApiToken),
}

/// The secret of the printed address, as hashes: comparing those tells nothing
/// about how much of a guess was right.
#[derive(Clone, Debug)]
pub(crate) struct ApiToken {
    hash: [u8; 32],
    cookie_name: String,
    cookie_value: String,
}

impl ApiToken {
    /// Of the word in the address.
    pub(crate) fn new(word: &str) -> Self {
        let hash = hash(word);
        let hex = |bytes: &[u8]| -> String {
            use std::fmt::Write as _;
            bytes.iter().fold(String::new(), |mut text, byte| {
                let _ = write!(text, "{byte:02x}");
                text
            })
        };
        ApiToken {
            hash,
            // Cookies do not know ports: two servers of one machine need two names.
            cookie_name: format!("runner_ui_{}", hex(&hash[..4])),
            // Not the token itself: the address may be seen by more people.
            cookie_value: hex(&self::hash(&format!("cookie {word}"))),
        }
    }

    fn is(&self, word: &str) -> bool {
        hash(word) == self.hash
    }

    fn is_cookie(&self, value: &str) -> bool {
        hash(value) == hash(&self.cookie_value)
    }

    fn set_cookie(&self) -> String {
        format!(
            "{}={}; Path=/; HttpOnly; SameSite=Strict",
            self.cookie_name, self.cookie_value
        )
    }

    /// Whether the request carries the token itself.
    pub(crate) fn is_borne(&self, headers: &HeaderMap) -> bool {
        text(headers, header::AUTHORIZATION)
            .and_then(|value| value.strip_prefix("Bearer "))
            .is_some_and(|word| self.is(word))
    }

    fn admits(&self, headers: &HeaderMap) -> bool {
        let cookie = headers
            .get_all(header::COOKIE)
            .iter()
            .filter_map(|value| value.to_str().ok())
            .flat_map(|value| value.split(';'))
            .filter_map(|pair| pair.trim().split_once('='))
            .any(|(name, value)| name == self.cookie_name && self.is_cookie(value));
        self.is_borne(headers) || cookie
    }
}

fn hash(word: &str) -> [u8; 32] {
    Sha256::digest(word.as_bytes()).into()
}

/// Asks the gate, then the rest, and signs the answer.
pub(crate) async fn pass(State(gate): State<ApiGate>, request: Request, next: Next) -> Response {
    let mut response = match check(&gate, request.method(), request.uri(), request.headers()) {
        Ok(None) => next.run(request).await,
        Ok(Some(response)) => response,
        Err(refusal) => refusal.into_response(),
    };
    if response.status() == StatusCode::METHOD_NOT_ALLOWED {
        reply::set(&mut response, header::ALLOW, "GET, HEAD");
    }
    sign(&mut response);
    response
}

/// Adds what every answer says about itself.
pub(crate) fn sign(response: &mut Response) {
    for (name, value) in [
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::X_FRAME_OPTIONS, "DENY"),
    ] {
        reply::set(response, name, value);
    }
    let headers = response.headers_mut();
    for name in ["cross-origin-resource-policy", "cross-origin-opener-policy"] {
        headers.insert(name, header::HeaderValue::from_static("same-origin"));
    }
}

/// `None`: go on. An answer: the token was exchanged.
fn check(
    gate: &ApiGate,
    method: &Method,
    uri: &Uri,
    headers: &HeaderMap,
) -> Result<Option<Response>, ApiRefusal> {
    if method != Method::GET && method != Method::HEAD {
        return Err(ApiRefusal::new(
            StatusCode::METHOD_NOT_ALLOWED,
            "method",
            "this server only reads: GET and HEAD",
        ));
    }
    let path = uri.path();
    let is_data = path == "/events" || path.starts_with("/api/");
    let here_alone = matches!(gate, ApiGate::Loopback);
    if let Err(origin_error) = check_place(uri, headers, here_alone, is_data) {
        let code = match origin_error {
            OriginError::NoHost | OriginError::Host => "host",
            OriginError::Origin => "origin",
        };
        let words = origin_error.words();
        return Err(ApiRefusal::new(StatusCode::FORBIDDEN, code, words));
    }
    let ApiGate::Token(token) = gate else {
        return Ok(None);
    };
    if token.admits(headers) {
        return Ok(None);
    }
    let word = uri.query().and_then(|query| {
        let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
        pairs.find_map(|(name, value)| (name == "token").then_some(value))
    });
    match word {
        Some(word) if token.is(word) && !is_data => {
            Ok(Some(page::admitted(&token.set_cookie(), "/")))
        }
        _ => Err(ApiRefusal::new(
            StatusCode::UNAUTHORIZED,
            "token",
            "this server wants the token of the address that `runner ui` printed",
        )
        .hint("open that address once; or send the header `Authorization: Bearer TOKEN`")),
    }
}

/// Why a request comes from the wrong place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OriginError {
    /// It names no host.
    NoHost,
    /// It was sent to a name that is not of this machine.
    Host,
    /// It is made by a page of another origin.
    Origin,
}

impl OriginError {
    /// The same for people.
    pub(crate) fn words(self) -> &'static str {
        match self {
            OriginError::NoHost => "the request names no host",
            OriginError::Host => "this server answers to names of this machine only",
            OriginError::Origin => "pages of other origins get no answer",
        }
    }
}

/// Looks to whom a request was sent, and from where. Data is told to no page of another
/// site, also where that sends no origin.
pub(crate) fn check_place(
    uri: &Uri,
    headers: &HeaderMap,
    here_alone: bool,
    is_data: bool,
) -> Result<(), OriginError> {
    let host = text(headers, header::HOST).or_else(|| uri.host());
    let host = host.ok_or(OriginError::NoHost)?;
    if here_alone && !is_loopback(host) {
        return Err(OriginError::Host);
    }
    if let Some(origin) = headers.get(header::ORIGIN) {
        let same = origin
            .to_str()
            .ok()
            .and_then(|origin| origin.split_once("://"))
            .is_some_and(|(scheme, authority)| {
                matches!(scheme, "http" | "https") && authority.eq_ignore_ascii_case(host)
            });
        if !same {
            return Err(OriginError::Origin);
        }
    }
    let site = text(headers, "sec-fetch-site".parse().unwrap_or(header::ORIGIN));
    if is_data && matches!(site, Some("cross-site" | "same-site")) {
        return Err(OriginError::Origin);
    }
    Ok(())
}

fn text(headers: &HeaderMap, name: header::HeaderName) -> Option<&str> {
    headers.get(name)?.to_str().ok()
}

/// Whether a Host header names this machine. The port may differ: it may have been
/// forwarded.
fn is_loopback(host: &str) -> bool {
    let name = match host.strip_prefix('[') {
        Some(rest) => match rest.split_once(']') {
            Some((name, port)) if port.is_empty() || is_port(port) => name,
            _ => return false,
        },
        None => match host.split_once(':') {
            Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
            Some(_) => return false,
            None => host,
        },
    };
    let address = name.parse::<std::net::IpAddr>();
    name.eq_ignore_ascii_case("localhost") || address.is_ok_and(|address| address.is_loopback())
}

fn is_port(text: &str) -> bool {
    text.strip_prefix(':')
        .is_some_and(|port| port.bytes().all(|byte| byte.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_this_machine() {
        for (host, ours) in [
            ("localhost", true),
            ("LOCALHOST:7878", true),
            ("127.0.0.1:1", true),
            ("127.9.9.9", true),
            ("[::1]:7878", true),
            ("[::1]", true),
            ("localhost.evil.test", false),
            ("evil.test:7878", false),
            ("127.0.0.1.evil.test", false),
            ("127.0.0.1:7878@evil.test", false),
            ("192.168.0.1", false),
            ("[::1]x", false),
            ("", false),
        ] {
            assert_eq!(is_loopback(host), ours, "{host}");
        }
    }
}
