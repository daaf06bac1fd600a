//! Every message that was seen of the CLIs, and how they vary.

use proptest::prelude::*;

use super::FailureKind::{
    Auth, ContextFull, Malformed, Network, Other, Overloaded, Quota, RateLimit,
};
use super::*;

/// A Sunday afternoon.
const NOW: &str = "2026-11-15T14:30:00Z";

fn now() -> Timestamp {
    NOW.parse().unwrap()
}

fn berlin() -> TimeZone {
    TimeZone::get("Europe/Berlin").unwrap()
}

fn classified(text: &str) -> (FailureKind, Option<LimitReset>) {
    classify(text, None, now(), &LocalZone::new(|| TimeZone::UTC))
}

// As an option, which is how tables below use them.
#[allow(clippy::unnecessary_wraps)]
fn at(text: &str) -> Option<LimitReset> {
    Some(LimitReset::At(text.parse().unwrap()))
}

#[allow(clippy::unnecessary_wraps)]
fn after(seconds: u64) -> Option<LimitReset> {
    Some(LimitReset::In(Duration::from_secs(seconds)))
}

#[allow(clippy::unnecessary_wraps)]
fn words(text: &str) -> Option<LimitReset> {
    Some(LimitReset::LocalText(text.to_owned()))
}

#[test]
fn kinds_by_message() {
    for (kind, text) in [
        // codex
        (
            Auth,
            "unexpected status 401 Unauthorized: Incorrect API key provided, url: http://127.0.0.1:4141/v1/responses",
        ),
        (Auth, "Missing environment variable: `OPENAI_API_KEY`."),
        (
            Auth,
            "Your access token could not be refreshed. Please log out and sign in again.",
        ),
        (
            Auth,
            "Access blocked by Cloudflare. This usually happens when connecting from a restricted region (status 403 Forbidden)",
        ),
        (
            RateLimit,
            "exceeded retry limit, last status: 429 Too Many Requests",
        ),
        (
            RateLimit,
            "exceeded retry limit, last status: 429 Too Many Requests, request id: req_1",
        ),
        (
            RateLimit,
            "rate limit exceeded: Rate limit reached for gpt-x in organization org-1 on tokens per min (TPM). Please try again in 1.2s.",
        ),
        (
            RateLimit,
            "stream disconnected before completion: Rate limit reached for gpt-x. Please try again in 28ms.",
        ),
        (
            Quota,
            "Quota exceeded. Check your plan and billing details.",
        ),
        (Quota, "You've hit your usage limit. Try again later."),
        (
            Quota,
            "You\u{2019}ve hit your usage limit. Upgrade to Pro or try again at Nov 17th, 2026 10:00 AM.",
        ),
        (Quota, "YOU'VE HIT YOUR USAGE LIMIT"),
        (
            Quota,
            "Your workspace is out of credits. Add credits to continue.",
        ),
        (
            Quota,
            "You hit your spend cap set in your workspace. Increase your spend cap to continue.",
        ),
        (
            Quota,
            "To use Codex with your ChatGPT plan, upgrade to Plus: https://chatgpt.com/explore/plus.",
        ),
        (
            Overloaded,
            "We\u{2019}re currently experiencing high demand, which may cause temporary errors.",
        ),
        (
            Overloaded,
            "Selected model is at capacity. Please try a different model.",
        ),
        (
            Overloaded,
            "unexpected status 503 Service Unavailable: upstream",
        ),
        (
            Overloaded,
            "exceeded retry limit, last status: 502 Bad Gateway",
        ),
        (
            Network,
            "Connection failed: error sending request for url (http://127.0.0.1:4142/v1/responses)",
        ),
        (
            Network,
            "stream disconnected before completion: stream closed before response.completed",
        ),
        (
            Network,
            "Reconnecting... 2/5 (stream disconnected before completion: failed to lookup address information: Try again)",
        ),
        (
            Network,
            "Error while reading the server response: operation timed out",
        ),
        (Network, "request timed out"),
        (
            ContextFull,
            "Codex ran out of room in the model's context window. Start a new thread or clear earlier history before retrying.",
        ),
        (
            ContextFull,
            "CODEX RAN OUT OF ROOM IN THE MODEL\u{2019}S CONTEXT WINDOW",
        ),
        (Other, "Fatal error: something broke"),
        (Other, "no rows found in 500 files"),
        (Other, ""),
        // claude
        (
            Auth,
            "Failed to authenticate. API Error: 401 Invalid bearer token",
        ),
        (Auth, "Invalid API key \u{b7} Please run /login"),
        (
            Auth,
            r#"API Error: 401 {"type":"error","error":{"type":"authentication_error","message":"invalid x-api-key"}}"#,
        ),
        (Auth, "authentication_failed OAuth token has expired"),
        (
            Quota,
            "You've hit your limit \u{b7} resets 2am (Europe/Berlin)",
        ),
        (Quota, "You've hit your session limit \u{b7} resets 3:45pm"),
        (
            Quota,
            "Weekly limit reached \u{b7} resets 10am (Asia/Seoul) \u{b7} /upgrade to Max or turn on /extra-usage",
        ),
        (Quota, "5-hour limit reached \u{2219} resets 2am"),
        (Quota, "Claude AI usage limit reached|1760000400"),
        (Quota, "billing_error Credit balance is too low"),
        (
            RateLimit,
            r#"Error: 429 {"type":"error","error":{"type":"rate_limit_error","message":"This request would exceed your account's rate limit. Please try again later."}}"#,
        ),
        (
            Overloaded,
            r#"API Error: 529 {"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#,
        ),
        (
            Overloaded,
            r#"API Error: 500 {"type":"error","error":{"type":"api_error","message":"Overloaded"}}"#,
        ),
        (Overloaded, "API Error: 520"),
        (Network, "API Error: Connection error."),
        (Network, "API Error (Request timed out.)"),
        (ContextFull, "Prompt is too long"),
        (ContextFull, "blocking_limit"),
        (Malformed, "error_max_structured_output_retries"),
        // opencode and the providers behind it
        (
            Auth,
            "Incorrect API key provided: sk-x. You can find your API key at https://platform.openai.com.",
        ),
        (
            Quota,
            r#"{"error":{"message":"You exceeded your current quota, please check your plan and billing details.","type":"insufficient_quota","code":"insufficient_quota"}}"#,
        ),
        (
            Quota,
            r#"{"error":{"type":"usage_limit_reached","message":"The usage limit has been reached","resets_in_seconds":90}}"#,
        ),
        (
            Quota,
            "Free usage exceeded, add credits https://opencode.ai/zen",
        ),
        (Quota, "402 Payment Required"),
        (RateLimit, "Too Many Requests"),
        (RateLimit, "ThrottlingException: slow down please"),
        (
            ContextFull,
            "This model's maximum context length is 128000 tokens. However, your messages resulted in 130000 tokens.",
        ),
        (
            ContextFull,
            r#"{"error":{"code":"context_length_exceeded"}}"#,
        ),
        (ContextFull, "ContextOverflowError: prompt is too large"),
        (
            Network,
            "Unable to connect. Is the computer able to access the url?",
        ),
        (Network, "connect ECONNREFUSED 127.0.0.1:4142"),
        (Network, "The socket connection was closed unexpectedly"),
        (Overloaded, "Provider is overloaded"),
        (Other, "Model not found: openai/nothing."),
    ] {
        assert_eq!(classified(text).0, kind, "{text}");
        let shouted = format!("  \n{}\n", text.to_uppercase());
        assert_eq!(classified(&shouted).0, kind, "{shouted}");
    }
}

#[test]
fn kinds_by_status_alone() {
    for (status, kind) in [
        (400, Other),
        (401, Auth),
        (402, Quota),
        (403, Auth),
        (404, Other),
        (408, Network),
        (413, ContextFull),
        (429, RateLimit),
        (500, Overloaded),
        (529, Overloaded),
        (200, Other),
        (999, Other),
    ] {
        let told = classify(
            "something",
            Some(status),
            now(),
            &LocalZone::new(|| TimeZone::UTC),
        );
        assert_eq!(told, (kind, None), "{status}");
    }
    // The words know better than the status.
    let told = classify(
        "Prompt is too long",
        Some(400),
        now(),
        &LocalZone::new(|| TimeZone::UTC),
    );
    assert_eq!(told.0, ContextFull);
    let told = classify(
        "usage limit reached",
        Some(429),
        now(),
        &LocalZone::new(|| TimeZone::UTC),
    );
    assert_eq!(told.0, Quota);
}

#[test]
fn resets_at_a_moment() {
    for (text, expected) in [
        // codex: only the time on the same day, else the whole date.
        (
            "You've hit your usage limit. Try again at 3:45 PM.",
            at("2026-11-15T15:45:00Z"),
        ),
        (
            "You\u{2019}ve hit your usage limit. Upgrade to Pro (https://chatgpt.com/explore/pro), visit https://chatgpt.com/codex/settings/usage to purchase more credits or try again at Nov 17th, 2026 10:00 AM.",
            at("2026-11-17T10:00:00Z"),
        ),
        (
            "usage limit, try again at Dec 1st, 2026 12:05 AM.",
            at("2026-12-01T00:05:00Z"),
        ),
        (
            "usage limit, try again at Jan 3rd, 2027 12:00 PM.",
            at("2027-01-03T12:00:00Z"),
        ),
        // Without a year: the nearest such date.
        (
            "usage limit, try again on January 2 at 3:00am",
            at("2027-01-02T03:00:00Z"),
        ),
        (
            "usage limit, try again at Nov 14th 10:00 AM",
            at("2026-11-14T10:00:00Z"),
        ),
        (
            "usage limit, resets 20 Nov, 09:30 UTC",
            at("2026-11-20T09:30:00Z"),
        ),
        (
            "weekly limit reached - resets Nov 22 at 3am",
            at("2026-11-22T03:00:00Z"),
        ),
        ("usage limit, resets on Sep 3", at("2026-09-03T00:00:00Z")),
        // Without a date: the next such time, unless it has only just passed.
        (
            "You've hit your limit \u{b7} resets 2am (UTC)",
            at("2026-11-16T02:00:00Z"),
        ),
        (
            "You've hit your limit \u{b7} resets 2:20 p.m. (Etc/UTC)",
            at("2026-11-15T14:20:00Z"),
        ),
        (
            "You've hit your limit \u{b7} resets 2:10pm",
            at("2026-11-16T14:10:00Z"),
        ),
        (
            "5-hour limit reached \u{2219} resets 12am",
            at("2026-11-16T00:00:00Z"),
        ),
        (
            "You\u{2019}ve hit your limit for Claude messages. Limits will reset at 9:30 AM. View your usage details.",
            at("2026-11-16T09:30:00Z"),
        ),
        (
            "usage limit reached, resets at 18:00",
            at("2026-11-15T18:00:00Z"),
        ),
        (
            "usage limit reached, resets at 3 pm.",
            at("2026-11-15T15:00:00Z"),
        ),
        (
            "usage limit reached, resets tomorrow at 7am",
            at("2026-11-16T07:00:00Z"),
        ),
        (
            "usage limit reached, resets Wednesday at 7:15am",
            at("2026-11-18T07:15:00Z"),
        ),
        (
            "usage limit reached, resets Sun 9am",
            at("2026-11-22T09:00:00Z"),
        ),
        // As machines write it.
        (
            "quota exceeded, try again at 2026-11-16T08:00:00Z",
            at("2026-11-16T08:00:00Z"),
        ),
        (
            "quota exceeded, try again at 2026-11-16T08:00:00+02:00.",
            at("2026-11-16T06:00:00Z"),
        ),
        (
            "quota exceeded, resets on 2026-11-16 08:00 UTC",
            at("2026-11-16T08:00:00Z"),
        ),
        (
            "Claude AI usage limit reached|1794931200",
            at("2026-11-17T16:00:00Z"),
        ),
        (
            r#"{"type":"usage_limit_reached","resets_at":1794931200}"#,
            at("2026-11-17T16:00:00Z"),
        ),
        (
            r#"usage limit {\"resetsAt\": 1794931200000}"#,
            at("2026-11-17T16:00:00Z"),
        ),
        (
            r#"quota: {"reset_at":"2026-11-16T08:00:00Z"}"#,
            at("2026-11-16T08:00:00Z"),
        ),
        // Not understood, but worth showing.
        (
            "You've hit your limit \u{b7} resets 2am (Asia/Dhaka) \u{b7} /upgrade",
            words("2am (Asia/Dhaka)"),
        ),
        (
            "usage limit reached. Try again at 25 o'clock. Bye.",
            words("25 o'clock"),
        ),
        (
            "usage limit reached. Try again at 14:30 PM",
            words("14:30 PM"),
        ),
        // Nothing to show.
        ("You've hit your usage limit. Try again later.", None),
        ("Quota exceeded. Check your plan and billing details.", None),
        ("usage limit reached, resets_at: null", None),
    ] {
        assert_eq!(classified(text), (Quota, expected), "{text}");
    }
}

#[test]
fn resets_after_a_while() {
    for (kind, text, expected) in [
        (
            Quota,
            "usage limit reached, try again in 3 hours 20 minutes.",
            after(12_000),
        ),
        (
            Quota,
            "usage limit reached, try again in 5 days, 3 hours and 1 minute",
            after(442_860),
        ),
        (Quota, "usage limit reached; resets in 1h 20m", after(4800)),
        (Quota, "usage limit reached; resets in 2m30s.", after(150)),
        (
            Quota,
            "usage limit reached; try again in an hour",
            after(3600),
        ),
        (
            Quota,
            r#"{"type":"usage_limit_reached","resets_in_seconds": 90}"#,
            after(90),
        ),
        (RateLimit, "rate limit, please retry in 32s", after(32)),
        (
            RateLimit,
            "rate limit, Please try again in 1.5s. Visit us",
            Some(LimitReset::In(Duration::from_millis(1500))),
        ),
        (
            RateLimit,
            "rate limit, try again in 850ms",
            Some(LimitReset::In(Duration::from_millis(850))),
        ),
        (RateLimit, "too many requests, retry-after: 30", after(30)),
        (
            RateLimit,
            r#"too many requests {"retry-after-ms":"2500"}"#,
            Some(LimitReset::In(Duration::from_millis(2500))),
        ),
        (Overloaded, "Overloaded, retrying in 7 seconds", after(7)),
        (RateLimit, "rate limit, try again in a little while", None),
        (RateLimit, "rate limit, try again in 99999999999 days", None),
        (Auth, "401 unauthorized, try again in 5 minutes", None),
        (Network, "connection reset, retry in 5 seconds", None),
    ] {
        assert_eq!(classified(text), (kind, expected), "{text}");
    }
}

#[test]
fn local_times_are_of_our_zone() {
    let check = |text: &str, tz: fn() -> TimeZone, expected: &str| {
        let told = classify(text, None, now(), &LocalZone::new(tz));
        assert_eq!(told, (Quota, at(expected)), "{text}");
    };
    let text = "usage limit, resets 2am (Europe/Berlin)";
    check(text, berlin, "2026-11-16T01:00:00Z");
    check(
        "usage limit, resets 2am (UTC)",
        berlin,
        "2026-11-16T02:00:00Z",
    );
    check(
        "usage limit, try again at 3:45 PM.",
        berlin,
        "2026-11-15T14:45:00Z",
    );
    // A zone without a name is the machine's, which the CLI named.
    let nameless = || TimeZone::fixed(jiff::tz::offset(1));
    check(text, nameless, "2026-11-16T01:00:00Z");
    // The hour that does not exist, in the night when clocks go forward.
    let text = "usage limit, try again at Mar 28th, 2027 2:30 AM.";
    check(text, berlin, "2027-03-28T01:30:00Z");
}

#[test]
fn the_time_of_a_reset() {
    let ended: Timestamp = now();
    assert_eq!(LimitReset::At(ended).at(ended), Some(ended));
    let later = LimitReset::In(Duration::from_secs(60)).at(ended);
    assert_eq!(later, Some("2026-11-15T14:31:00Z".parse().unwrap()));
    assert_eq!(LimitReset::In(Duration::MAX).at(ended), None);
    assert_eq!(LimitReset::LocalText("soon".to_owned()).at(ended), None);
}

#[test]
fn words_of_kinds() {
    for kind in FailureKind::ALL {
        let json = serde_json::to_string(&kind).unwrap();
        assert_eq!(json, format!("\"{kind}\""));
    }
}

#[test]
fn messages_are_one_short_paragraph() {
    let long = format!("first\nsecond {}", "x".repeat(10_000_000));
    let failure = AgentFailure::told(
        &long,
        &["billing_error"],
        None,
        now(),
        &LocalZone::new(|| TimeZone::UTC),
    );
    assert_eq!(failure.kind, Quota);
    assert!(failure.message.starts_with("first second xxx"));
    assert_eq!(failure.message.chars().count(), 2000);
}

proptest! {
    #[test]
    fn never_panics(text: String, status: Option<u16>) {
        let _ = classify(&text, status, now(), &LocalZone::new(|| TimeZone::UTC));
    }

    #[test]
    fn never_panics_on_what_looks_like_a_time(
        mark in 0usize..8,
        words in prop::collection::vec("[0-9:.apm]{1,8}|at|Nov|sun|tomorrow|UTC|\\(A/b\\)|[+-][0-9]{2}|é|10th", 0..8),
    ) {
        let marks = ["try again at ", "resets ", "try again in ", "retry-after: ", "resets_at\":", "reset on ", "limit reached|", "retry in "];
        let text = format!("usage limit, {}{}", marks[mark], words.join(" "));
        let (kind, _) = classify(&text, None, now(), &LocalZone::new(berlin));
        prop_assert_eq!(kind, Quota);
    }
}
