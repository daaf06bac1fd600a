//! Why a request is not served, as an answer to it.

use std::borrow::Cow;

/// A request that is not served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProxyRefusal {
    /// The status of the answer.
    pub status: u16,
    /// What is wrong, as a lowercase fragment.
    pub words: Cow<'static, str>,
}

impl ProxyRefusal {
    pub(crate) fn new(status: u16, words: impl Into<Cow<'static, str>>) -> Self {
        ProxyRefusal {
            status,
            words: words.into(),
        }
    }

    /// The whole answer.
    pub(crate) fn answer(&self) -> String {
        let reason = match self.status {
            400 => "Bad Request",
            403 => "Forbidden",
            408 => "Request Timeout",
            431 => "Request Header Fields Too Large",
            501 => "Not Implemented",
            502 => "Bad Gateway",
            503 => "Service Unavailable",
            504 => "Gateway Timeout",
            505 => "HTTP Version Not Supported",
            _ => "Refused",
        };
        let body = format!("runner: {}\n", self.words);
        format!(
            "HTTP/1.1 {} {reason}\r\nContent-Type: text/plain\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
            self.status,
            body.len()
        )
    }
}
