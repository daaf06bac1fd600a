//! Hiding secrets in what is recorded and shown.

use std::ffi::OsString;

/// What stands for a secret.
const MASK: &str = "***";

/// Beginnings of keys and tokens that providers give out, and how long what follows
/// must at least be.
const TOKEN_PREFIXES: &[(&str, usize)] = &[
    ("sk-", 16),
    ("sk_live_", 8),
    ("sk_test_", 8),
    ("ghp_", 16),
    ("gho_", 16),
    ("ghu_", 16),
    ("ghs_", 16),
    ("ghr_", 16),
    ("github_pat_", 16),
    ("glpat-", 12),
    ("xoxb-", 8),
    ("xoxp-", 8),
    ("xoxa-", 8),
    ("xoxs-", 8),
    ("xai-", 16),
    ("gsk_", 16),
    ("hf_", 16),
    ("npm_", 16),
    ("AKIA", 16),
    ("ASIA", 16),
    ("AIza", 30),
    ("ya29.", 16),
    ("eyJ", 20),
];

/// Last words of names whose values are secrets.
const SECRET_NAMES: &[&str] = &[
    "key",
    "apikey",
    "token",
    "secret",
    "password",
    "passwd",
    "passphrase",
    "authorization",
    "credential",
    "credentials",
    "bearer",
];

/// Values shorter than this are words, not secrets.
const MIN_SECRET: usize = 6;

/// An argv as it can be recorded: the given secrets are hidden, and so is whatever
/// looks like a key, by its own shape or by the name before it.
pub fn masked(argv: &[OsString], secrets: &[&str]) -> Vec<String> {
    let mut after_secret_flag = false;
    argv.iter()
        .map(|word| {
            let word = word.to_string_lossy();
            let is_flag = word.starts_with('-');
            if after_secret_flag && !is_flag {
                after_secret_flag = false;
                return MASK.to_owned();
            }
            after_secret_flag = is_flag && !word.contains('=') && is_secret_name(&word);
            mask_text(&word, secrets)
        })
        .collect()
}

/// Any text as it can be shown, with secrets hidden in the same way.
pub fn mask_text(text: &str, secrets: &[&str]) -> String {
    let mut text = text.to_owned();
    for secret in secrets.iter().filter(|secret| secret.len() >= MIN_SECRET) {
        text = text.replace(secret, MASK);
    }
    let mut shown = String::with_capacity(text.len());
    let mut rest = text.as_str();
    while let Some(start) = rest.find(is_token_char) {
        let (before, from) = rest.split_at(start);
        shown.push_str(before);
        let end = from.find(|c| !is_token_char(c)).unwrap_or(from.len());
        let (token, after) = from.split_at(end);
        if hides(&shown, token, after) {
            shown.push_str(MASK);
        } else if let Some(at) = key_in_path(token) {
            shown.push_str(&token[..at]);
            shown.push_str(MASK);
        } else {
            shown.push_str(token);
        }
        rest = after;
    }
    shown.push_str(rest);
    shown
}

/// Whether the token is a secret, judged by itself and by what is around it.
fn hides(before: &str, token: &str, after: &str) -> bool {
    if token.contains(MASK) || is_scheme(token) {
        return false;
    }
    looks_like_a_key(token)
        || (token.len() >= MIN_SECRET
            && !token.bytes().all(|byte| byte.is_ascii_digit())
            && (named_secret(before) || after_scheme(before) || is_password(before, after)))
}

/// The word before the secret in an `Authorization` header.
fn is_scheme(token: &str) -> bool {
    token.eq_ignore_ascii_case("bearer") || token.eq_ignore_ascii_case("basic")
}

fn after_scheme(before: &str) -> bool {
    let word = before.strip_suffix(' ').unwrap_or_default();
    last_token(word).eq_ignore_ascii_case("bearer")
}

fn looks_like_a_key(token: &str) -> bool {
    TOKEN_PREFIXES.iter().any(|(prefix, least)| {
        token.strip_prefix(prefix).is_some_and(|rest| {
            rest.len() >= *least && rest.bytes().any(|byte| byte.is_ascii_digit())
        })
    })
}

/// Where a key begins that is a part of a path, as in `https://host/KEY`. It may hold
/// slashes itself, so nobody can say where it ends.
fn key_in_path(token: &str) -> Option<usize> {
    let slashes = token.match_indices('/');
    let mut parts = slashes.map(|(at, _)| at + 1);
    parts.find(|at| {
        let rest = &token[*at..];
        looks_like_a_key(rest.split('/').next().unwrap_or(rest))
    })
}

/// Whether a value follows whose name says that it is a secret, as in `api_key="`,
/// `x-api-key: ` and `"token":"`.
fn named_secret(before: &str) -> bool {
    let name = before.trim_end_matches(['"', '\'', '\\', ' ']);
    let Some(name) = name.strip_suffix(['=', ':']) else {
        return false;
    };
    let name = name.trim_end_matches(['"', '\'', '\\', ' ']);
    is_secret_name(last_token(name))
}

/// The token at the end of a text; empty where something else is there.
fn last_token(text: &str) -> &str {
    &text[text.trim_end_matches(is_token_char).len()..]
}

/// The last word of a name decides; `env_key` names a variable, which is no secret.
fn is_secret_name(name: &str) -> bool {
    let lower = name.to_ascii_lowercase();
    let mut words = lower.rsplit(['-', '_', '.']);
    let last = words.next().unwrap_or_default();
    SECRET_NAMES.contains(&last) && words.next() != Some("env")
}

/// Whether it is the password in `https://user:password@host`.
fn is_password(before: &str, after: &str) -> bool {
    let user = before.strip_suffix(':').unwrap_or_default();
    let scheme = user.trim_end_matches(|c| is_token_char(c) && c != '/');
    scheme.ends_with("://") && after.starts_with('@')
}

fn is_token_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '+' | '/' | '*')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(words: &[&str], expected: &[&str]) {
        let argv: Vec<OsString> = words.iter().map(OsString::from).collect();
        assert_eq!(masked(&argv, &["hunter22", "ab"]), expected);
    }

    #[test]
    fn ordinary_arguments_stay() {
        let words = [
            "codex",
            "exec",
            "--json",
            "-m",
            "gpt-x",
            "-c",
            "model_auto_compact_token_limit=9000000",
            "-c",
            "model_providers.x={name=\"x\",base_url=\"http://127.0.0.1:4141/v1\",env_key=\"SOME_VARIABLE\"}",
            "-o",
            "/tmp/sk-dir/output.json",
            "--output-schema",
            "a.json",
            "--allowedTools",
            "Bash,Edit",
            "{\"type\":\"object\",\"required\":[\"status\"]}",
            "-",
            "ab",
            "key",
            "tokens=12",
            "https://host:8080/path",
            "author: somebody",
            "task-sk-learn-something-without-number",
        ];
        check(&words, &words);
    }

    #[test]
    fn keys_are_hidden() {
        let jwt = [
            "eyJhbGciOiJIUzI1NiIsInR5cCI6",
            "eyJzdWIiOiIxMjM0NTY3ODkwIn0",
            "abc",
        ]
        .join(".");
        for (word, expected) in [
            ("hunter22", "***"),
            ("x=hunter22,y", "x=***,y"),
            ("sk-proj-abcdefgh12345678", "***"),
            ("a sk-ant-api03-abcdefgh12345678, b", "a ***, b"),
            ("ghp_0123456789abcdefghij", "***"),
            ("https://host/ghp_0123456789abcdefghij", "https://host/***"),
            ("/a/sk-proj-abcdefgh12345678/b1 c", "/a/*** c"),
            ("x/../AKIAIOSFODNN7EXAMPLE1", "x/../***"),
            ("AKIAIOSFODNN7EXAMPLE1", "***"),
            (jwt.as_str(), "***"),
            ("api_key=\"opaque-value\"", "api_key=\"***\""),
            ("-c", "-c"),
            (
                "model_providers.x.http_headers={Authorization=\"Bearer opaque1\"}",
                "model_providers.x.http_headers={Authorization=\"Bearer ***\"}",
            ),
            ("x-api-key: opaque1", "x-api-key: ***"),
            ("{\"token\":\"opaque1\"}", "{\"token\":\"***\"}"),
            (
                "{\\\"token\\\": \\\"opaque1\\\"}",
                "{\\\"token\\\": \\\"***\\\"}",
            ),
            ("--api-key=opaque1", "--api-key=***"),
            ("https://me:opaque1@host/x", "https://me:***@host/x"),
            ("ANTHROPIC_API_KEY=opaque1", "ANTHROPIC_API_KEY=***"),
        ] {
            check(&[word], &[expected]);
        }
        check(
            &["--api-key", "opaque1", "--token", "--json", "-p", "word"],
            &["--api-key", "***", "--token", "--json", "-p", "word"],
        );
    }

    #[test]
    fn a_short_secret_hides_nothing() {
        check(&["ab", "cab"], &["ab", "cab"]);
        assert_eq!(mask_text("", &[""]), "");
    }

    #[test]
    fn any_character_may_stand_before_a_word() {
        for text in [
            "We\u{2019}re currently at it",
            "\u{2019}key: \u{2019}",
            "ä b=cccccc",
            "é:dddddd",
        ] {
            assert_eq!(mask_text(text, &[]), text);
        }
        assert_eq!(mask_text("\u{2019}token=opaque1", &[]), "\u{2019}token=***");
    }

    #[test]
    fn bytes_that_are_no_text_are_shown_somehow() {
        use std::os::unix::ffi::OsStringExt as _;
        let word = OsString::from_vec(b"\xff/x".to_vec());
        assert_eq!(masked(&[word], &[]), ["\u{fffd}/x"]);
    }

    proptest::proptest! {
        #[test]
        fn secrets_never_remain(before: String, secret in "[A-Za-z0-9]{8,20}", after: String) {
            let text = format!("{before}{secret}{after}");
            proptest::prop_assert!(!mask_text(&text, &[&secret]).contains(&secret));
        }

        #[test]
        fn any_text_can_be_masked(words in proptest::collection::vec("[a-z]{6}|[^a-z]{1,2}|(token|bearer)[ =:]", 0..8)) {
            mask_text(&words.concat(), &[]);
        }
    }
}
