//! Answers: JSON or text with an ETag, compressed where the client takes it, and
//! errors in one shape.

use std::io::Write as _;

use axum::body::{Body, Bytes};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::Response;
use flate2::Compression;
use flate2::write::GzEncoder;
use serde::Serialize;
use sha2::{Digest as _, Sha256};

use crate::wire::{ApiProblem, ApiProblemBody, TreeFindingView};

/// Below this, compressing costs more than it saves.
const WORTH_COMPRESSING: usize = 1024;

const JSON: &str = "application/json";

/// Why there is no answer.
#[derive(Debug)]
pub(crate) struct ApiRefusal {
    status: StatusCode,
    body: Box<ApiProblemBody>,
}

impl ApiRefusal {
    /// A refusal without a hint.
    pub(crate) fn new(status: StatusCode, code: &str, message: impl Into<String>) -> Self {
        ApiRefusal {
            status,
            body: Box::new(ApiProblemBody {
                error: ApiProblem {
                    code: code.to_owned(),
                    message: message.into(),
                    hint: None,
                },
                findings: Vec::new(),
            }),
        }
    }

    /// Something that is not there.
    pub(crate) fn not_found(message: impl Into<String>) -> Self {
        ApiRefusal::new(StatusCode::NOT_FOUND, "not_found", message)
    }

    /// Adds what to do.
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.body.error.hint = Some(hint.into());
        self
    }

    /// Adds all that is wrong.
    pub(crate) fn findings(mut self, findings: Vec<TreeFindingView>) -> Self {
        self.body.findings = findings;
        self
    }

    /// The answer.
    pub(crate) fn into_response(self) -> Response {
        let bytes = serde_json::to_vec(&self.body).unwrap_or_default();
        let mut response = Response::new(Body::from(bytes));
        *response.status_mut() = self.status;
        set(&mut response, header::CONTENT_TYPE, JSON);
        set(&mut response, header::CACHE_CONTROL, "no-store");
        response
    }
}

/// What is to be sent, before it is known how.
pub(crate) struct ApiAnswer {
    content_type: &'static str,
    bytes: Bytes,
    etag: String,
    gzip: Option<Bytes>,
    headers: Vec<(HeaderName, String)>,
}

impl ApiAnswer {
    /// A value as JSON.
    pub(crate) fn json<T: Serialize>(value: &T) -> Self {
        // Wire types are strings, numbers and lists: there is nothing that could fail.
        let bytes = serde_json::to_vec(value).unwrap_or_default();
        ApiAnswer::new(JSON, bytes.into())
    }

    /// JSON that is known already, perhaps compressed already.
    pub(crate) fn known_json(bytes: Bytes, etag: String, gzip: Option<Bytes>) -> Self {
        ApiAnswer {
            content_type: JSON,
            bytes,
            etag,
            gzip,
            headers: Vec::new(),
        }
    }

    /// Plain text.
    pub(crate) fn text(bytes: Bytes) -> Self {
        ApiAnswer::new("text/plain; charset=utf-8", bytes)
    }

    /// A page of our own.
    pub(crate) fn html(bytes: Bytes) -> Self {
        ApiAnswer::new("text/html; charset=utf-8", bytes)
    }

    /// A file of the page.
    pub(crate) fn file(content_type: &'static str, bytes: Bytes) -> Self {
        ApiAnswer::new(content_type, bytes)
    }

    /// Adds a header. What it says counts for the ETag too.
    pub(crate) fn header(mut self, name: &'static str, value: u64) -> Self {
        let value = value.to_string();
        self.etag = etag_of(format!("{} {name} {value}", self.etag).as_bytes());
        self.headers.push((HeaderName::from_static(name), value));
        self
    }

    fn new(content_type: &'static str, bytes: Bytes) -> Self {
        ApiAnswer {
            content_type,
            etag: etag_of(&bytes),
            bytes,
            gzip: None,
            headers: Vec::new(),
        }
    }

    /// The answer to a request with these headers.
    pub(crate) fn into_response(self, request: &HeaderMap) -> Response {
        let unchanged = matches_etag(request, &self.etag);
        let body = if unchanged { Bytes::new() } else { self.bytes };
        let zipped = (!unchanged && body.len() >= WORTH_COMPRESSING && takes_gzip(request))
            .then(|| self.gzip.unwrap_or_else(|| gzip(&body)));
        let is_zipped = zipped.is_some();
        let mut response = Response::new(Body::from(zipped.unwrap_or(body)));
        if unchanged {
            *response.status_mut() = StatusCode::NOT_MODIFIED;
        } else {
            set(&mut response, header::CONTENT_TYPE, self.content_type);
        }
        if is_zipped {
            set(&mut response, header::CONTENT_ENCODING, "gzip");
        }
        set(&mut response, header::ETAG, &self.etag);
        set(&mut response, header::VARY, "Accept-Encoding");
        // May be kept, must be asked about.
        set(&mut response, header::CACHE_CONTROL, "no-cache");
        for (name, value) in self.headers {
            set(&mut response, name, &value);
        }
        response
    }
}

/// Sets a header whose value is ours.
pub(crate) fn set(response: &mut Response, name: HeaderName, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        response.headers_mut().insert(name, value);
    }
}

/// The weak ETag of some content: the same for all encodings of it.
pub(crate) fn etag_of(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    let mut etag = "W/\"".to_owned();
    for byte in &Sha256::digest(bytes)[..16] {
        let _ = write!(etag, "{byte:02x}");
    }
    etag.push('"');
    etag
}

/// Compressed; the level is chosen for speed, most of the gain is there already.
pub(crate) fn gzip(bytes: &[u8]) -> Bytes {
    let mut encoder = GzEncoder::new(
        Vec::with_capacity(bytes.len() / 4 + 64),
        Compression::new(4),
    );
    // Writing to memory does not fail.
    let _ = encoder.write_all(bytes);
    encoder.finish().unwrap_or_default().into()
}

fn matches_etag(request: &HeaderMap, etag: &str) -> bool {
    let opaque = |tag: &str| tag.trim().trim_start_matches("W/").to_owned();
    request
        .get_all(header::IF_NONE_MATCH)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .any(|tag| tag.trim() == "*" || opaque(tag) == opaque(etag))
}

fn takes_gzip(request: &HeaderMap) -> bool {
    request
        .get_all(header::ACCEPT_ENCODING)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .any(|coding| {
            let mut parts = coding.split(';').map(str::trim);
            let name = parts.next().unwrap_or_default();
            let refused = parts
                .filter_map(|part| part.strip_prefix("q="))
                .any(|quality| quality.parse().is_ok_and(|quality: f32| quality <= 0.0));
            name.eq_ignore_ascii_case("gzip") && !refused
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_takes_gzip() {
        for (value, takes) in [
            ("gzip", true),
            ("br, GZIP;q=0.5", true),
            ("gzip;q=0", false),
            ("identity", false),
            ("gzipped", false),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static(value));
            assert_eq!(takes_gzip(&headers), takes, "{value}");
        }
        assert!(!takes_gzip(&HeaderMap::new()));
    }

    #[test]
    fn etags_are_compared_weakly() {
        let etag = etag_of(b"x");
        for (value, same) in [
            (etag.clone(), true),
            (etag.trim_start_matches("W/").to_owned(), true),
            (format!("\"other\", {etag}"), true),
            ("*".to_owned(), true),
            ("\"other\"".to_owned(), false),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(
                header::IF_NONE_MATCH,
                HeaderValue::from_str(&value).unwrap(),
            );
            assert_eq!(matches_etag(&headers, &etag), same, "{value}");
        }
    }
}
