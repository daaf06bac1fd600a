//! Credentials that come with the command line or the environment: taken away from both before
//! anything else begins, because other programs of the user can read those, and children inherit them.

use std::ffi::{OsStr, OsString};
use std::ops::Range;
use std::os::unix::ffi::OsStrExt as _;
use std::sync::OnceLock;

use runner::{Error, ErrorCode, Result};

/// Names the ledger.
const STORE_VARIABLE: &str = "RUNNER_STORE";

/// Commands that open a ledger or serve one.
const HOLDERS: &[&str] = &["fleet", "task", "ledger", "why"];

const SCHEMES: &[&str] = &["postgres://", "postgresql://"];

/// What the environment said about the ledger.
static STORE: OnceLock<Option<String>> = OnceLock::new();

/// What was found in the arguments.
pub(crate) struct TakenCredentials {
    /// Whether a password was on the command line; it is not any more.
    pub(crate) had_password: bool,
}

/// Takes credentials out of sight. Called first of all, when there is one thread.
pub(crate) fn take() -> Result<TakenCredentials> {
    let store = runner_exec::take_variable(STORE_VARIABLE);
    let store = store.and_then(|value| value.into_string().ok());
    STORE.get_or_init(|| store.filter(|text| !text.is_empty()));
    let words: Vec<OsString> = std::env::args_os().collect();
    let mut had_password = false;
    for (index, word) in words.iter().enumerate() {
        for part in passwords(word.as_bytes()) {
            had_password = true;
            runner_exec::blank_argument(index, part).map_err(|error| {
                let words =
                    format!("cannot take the password of the ledger off the command line: {error}");
                Error::new(ErrorCode::Config, words)
                    .hint("name the ledger in RUNNER_STORE, or keep the password in ~/.pgpass")
            })?;
        }
    }
    let holds = |word: &OsString| HOLDERS.iter().any(|name| word == OsStr::new(name));
    if had_password || words.iter().any(holds) {
        runner_exec::close_to_others()?;
    }
    Ok(TakenCredentials { had_password })
}

/// The ledger that the environment named.
pub(crate) fn store_variable() -> Option<&'static str> {
    STORE.get()?.as_deref()
}

/// Where passwords are in an argument that holds the URL of a store.
fn passwords(argument: &[u8]) -> Vec<Range<usize>> {
    let find = |text: &[u8], wanted: &[u8]| text.windows(wanted.len()).position(|it| it == wanted);
    let begin = SCHEMES.iter().filter_map(|scheme| {
        let at = find(argument, scheme.as_bytes())?;
        Some(at + scheme.len())
    });
    let Some(begin) = begin.min() else {
        return Vec::new();
    };
    let url = &argument[begin..];
    let query = url.iter().position(|byte| *byte == b'?');
    let (plain, query) = match query {
        Some(at) => (&url[..at], Some(at + 1)),
        None => (url, None),
    };
    let mut found = Vec::new();
    let last_at = |text: &[u8]| text.iter().rposition(|byte| *byte == b'@');
    // One that stands behind the question mark ends a password that was not written as it should.
    if let Some(at) = last_at(plain).or_else(|| last_at(url))
        && let Some(colon) = url[..at].iter().position(|byte| *byte == b':')
    {
        found.push(begin + colon + 1..begin + at);
    }
    let Some(query) = query else {
        return found;
    };
    let mut at = query;
    for pair in url[query..].split(|byte| *byte == b'&') {
        let name = pair.iter().position(|byte| *byte == b'=');
        if let Some(name) = name {
            let key = pair[..name].to_ascii_lowercase();
            // Whoever hides the name of the key hides a password.
            if find(&key, b"pass").is_some() || key.contains(&b'%') {
                found.push(begin + at + name + 1..begin + at + pair.len());
            }
        }
        at += pair.len() + 1;
    }
    found.retain(|part| !part.is_empty());
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_in_urls() {
        for (argument, expected) in [
            ("postgres://u:secret@h/db", "postgres://u:******@h/db"),
            (
                "--store=postgresql://u:se@cret@h:1/db",
                "--store=postgresql://u:*******@h:1/db",
            ),
            (
                "postgres://u@h/db?password=secret&sslmode=require",
                "postgres://u@h/db?password=******&sslmode=require",
            ),
            (
                "postgres://h/db?a=b&p%61ssword=secret",
                "postgres://h/db?a=b&p%61ssword=******",
            ),
            ("postgres://u:se?cret@h/db", "postgres://u:*******@h/db"),
            ("postgres://u@h:5432/db", "postgres://u@h:5432/db"),
            ("postgres://h:5432/db", "postgres://h:5432/db"),
            ("postgres://u:@h/db", "postgres://u:@h/db"),
            ("postgres://", "postgres://"),
            ("fix u:p@h", "fix u:p@h"),
        ] {
            let mut masked = argument.as_bytes().to_vec();
            for part in passwords(argument.as_bytes()) {
                masked[part].fill(b'*');
            }
            assert_eq!(String::from_utf8(masked).unwrap(), expected);
        }
    }
}
