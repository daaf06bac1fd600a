//! Which words tell of which kind of failure.

use super::FailureKind;
use super::FailureKind::{
    Auth, ContextFull, Malformed, Network, Other, Overloaded, Quota, RateLimit,
};

/// The first row with a match decides, so the order matters: a usage limit comes as
/// HTTP 429 like a rate limit, and both may come in a broken stream.
///
/// A row matches when all its words are there; the text is in lower case.
const RULES: &[(FailureKind, &[&str])] = &[
    (ContextFull, &["context window"]),
    (ContextFull, &["context_length_exceeded"]),
    (ContextFull, &["context length"]),
    (ContextFull, &["contextoverflow"]),
    (ContextFull, &["prompt is too long"]),
    (ContextFull, &["prompt_too_long"]),
    (ContextFull, &["input is too long"]),
    (ContextFull, &["blocking_limit"]),
    // Of the file system, not of the plan.
    (Other, &["disk quota"]),
    (Quota, &["quota"]),
    (Quota, &["usage limit"]),
    (Quota, &["usage_limit"]),
    (Quota, &["usagelimit"]),
    (Quota, &["usage_not_included"]),
    (Quota, &["chatgpt plan, upgrade"]),
    (Quota, &["free usage exceeded"]),
    (Quota, &["out of extra usage"]),
    (Quota, &["hit your", "limit"]),
    (Quota, &["spend cap"]),
    (Quota, &["spending limit"]),
    (Quota, &["out of credits"]),
    (Quota, &["insufficient credits"]),
    (Quota, &["insufficient balance"]),
    (Quota, &["insufficient funds"]),
    (Quota, &["credit balance"]),
    (Quota, &["billing_error"]),
    (Quota, &["billing_hard_limit"]),
    (Quota, &["payment required"]),
    (RateLimit, &["rate limit"]),
    (RateLimit, &["rate-limit"]),
    (RateLimit, &["rate_limit"]),
    (RateLimit, &["ratelimit"]),
    (RateLimit, &["too many requests"]),
    (RateLimit, &["too_many_requests"]),
    (RateLimit, &["tokens per min"]),
    (RateLimit, &["requests per min"]),
    (RateLimit, &["throttl"]),
    // After the rows above: those limits last seconds, these hours.
    (Quota, &["limit reached", "reset"]),
    (Quota, &["limit will reset"]),
    (Quota, &["limits will reset"]),
    (Quota, &["hour limit"]),
    (Quota, &["session limit"]),
    (Quota, &["weekly limit"]),
    (Quota, &["monthly limit"]),
    (Overloaded, &["overloaded"]),
    (Overloaded, &["high demand"]),
    (Overloaded, &["at capacity"]),
    (Overloaded, &["internal server error"]),
    (Overloaded, &["internal_server_error"]),
    (Overloaded, &["server had an error"]),
    (Overloaded, &["bad gateway"]),
    (Overloaded, &["gateway time"]),
    (Overloaded, &["service unavailable"]),
    (Overloaded, &["temporarily unavailable"]),
    (Overloaded, &["slow_down"]),
    (Auth, &["unauthorized"]),
    (Auth, &["authentication"]),
    (Auth, &["failed to authenticate"]),
    (Auth, &["not authenticated"]),
    (Auth, &["not logged in"]),
    (Auth, &["please log in"]),
    (Auth, &["/login"]),
    (Auth, &["api key"]),
    (Auth, &["api_key"]),
    (Auth, &["bearer token"]),
    (Auth, &["oauth token"]),
    (Auth, &["access token"]),
    (Auth, &["refresh token"]),
    (Auth, &["token_expired"]),
    (Auth, &["missing environment variable"]),
    (Auth, &["permission_error"]),
    (Network, &["connection failed"]),
    (Network, &["connection refused"]),
    (Network, &["connection error"]),
    (Network, &["connection reset"]),
    (Network, &["connection closed"]),
    (Network, &["connection was closed"]),
    (Network, &["stream disconnected"]),
    (Network, &["stream closed"]),
    (Network, &["error sending request"]),
    (Network, &["error while reading the server response"]),
    (Network, &["error decoding response body"]),
    (Network, &["unable to connect"]),
    (Network, &["failed to connect"]),
    (Network, &["cannot connect"]),
    (Network, &["failed to lookup address"]),
    (Network, &["name resolution"]),
    (Network, &["dns error"]),
    (Network, &["econnrefused"]),
    (Network, &["econnreset"]),
    (Network, &["enotfound"]),
    (Network, &["etimedout"]),
    (Network, &["eai_again"]),
    (Network, &["fetch failed"]),
    (Network, &["network error"]),
    (Network, &["waiting for network"]),
    (Network, &["socket hang up"]),
    (Network, &["request timed out"]),
    (Network, &["operation timed out"]),
    (Network, &["idle timeout"]),
    // Claude says so of a connection that was refused, too.
    (Overloaded, &["server_error"]),
    (Malformed, &["structured_output"]),
    (Malformed, &["structured output"]),
];

/// The kind of a message in lower case.
pub(super) fn kind(lower: &str, http_status: Option<u16>) -> FailureKind {
    let told = RULES
        .iter()
        .find(|(_, words)| words.iter().all(|word| lower.contains(word)));
    match told {
        Some((kind, _)) => *kind,
        None => by_status(http_status.or_else(|| find_status(lower))),
    }
}

/// What a bare status tells.
fn by_status(status: Option<u16>) -> FailureKind {
    match status {
        Some(401 | 403) => Auth,
        Some(402) => Quota,
        Some(408) => Network,
        Some(413) => ContextFull,
        Some(429) => RateLimit,
        Some(500..=599) => Overloaded,
        _ => Other,
    }
}

/// The HTTP status that a message names, as in `unexpected status 401` and
/// `API Error: 529`.
fn find_status(lower: &str) -> Option<u16> {
    const BEFORE: [&str; 7] = [
        "status ",
        "status: ",
        "status code ",
        "error: ",
        "error ",
        "error (",
        "http ",
    ];
    BEFORE.iter().find_map(|before| {
        lower.match_indices(before).find_map(|(at, _)| {
            let rest = &lower[at + before.len()..];
            let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
            let status: u16 = (digits == 3).then(|| rest[..3].parse().ok())??;
            (400..600).contains(&status).then_some(status)
        })
    })
}
