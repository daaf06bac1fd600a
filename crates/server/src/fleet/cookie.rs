//! The cookie of a browser: given for a link that works once and for minutes, kept for hours, and
//! good for reading alone. Both are signed with the token, so that whoever may read that can make a
//! link, and a fleet that starts again knows its cookies.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use axum::http::{HeaderMap, header};
use runner::{SystemWallClock, WallClock as _};
use sha2::{Digest as _, Sha256};

/// How long a link works.
const LINK: Duration = Duration::from_secs(5 * 60);
/// How long a cookie does.
const COOKIE: Duration = Duration::from_secs(12 * 3600);

/// The word of a link that works once, for the server of that name: see
/// [`super::FleetOptions::instance`].
pub fn login_word(token: &str, instance: &str) -> std::io::Result<String> {
    let nonce = crate::serve::random_hex(8)?;
    Ok(word_until(token, instance, &nonce, now() + LINK))
}

fn word_until(token: &str, instance: &str, nonce: &str, until: Duration) -> String {
    let until = until.as_secs();
    let signed = sign(token, &["link", instance, nonce, &until.to_string()]);
    format!("{until}-{nonce}-{signed}")
}

/// Who comes with a cookie, and which links were used.
pub(crate) struct CookieBook {
    token: String,
    instance: String,
    name: String,
    /// Until when they would have worked, by their nonce.
    used: Mutex<HashMap<String, u64>>,
}

impl CookieBook {
    pub(crate) fn new(token: &str, instance: &str) -> CookieBook {
        CookieBook {
            token: token.to_owned(),
            instance: instance.to_owned(),
            // Cookies do not know ports: two fleets of one machine need two names.
            name: format!("runner_fleet_{}", &sign(token, &["name"])[..8]),
            used: Mutex::default(),
        }
    }

    /// The cookie for the word of a link, which is used up.
    pub(crate) fn exchange(&self, word: &str) -> Option<String> {
        self.exchange_at(word, now())
    }

    fn exchange_at(&self, word: &str, now: Duration) -> Option<String> {
        let mut parts = word.splitn(3, '-');
        let (until, nonce, signed) = (parts.next()?, parts.next()?, parts.next()?);
        let expected = sign(&self.token, &["link", &self.instance, nonce, until]);
        let until: u64 = until.parse().ok()?;
        if !is_same(signed, &expected) || until < now.as_secs() {
            return None;
        }
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        used.retain(|_, until| *until >= now.as_secs());
        if used.insert(nonce.to_owned(), until).is_some() {
            return None;
        }
        let until = (now + COOKIE).as_secs();
        let signed = sign(&self.token, &["cookie", &until.to_string()]);
        let (name, age) = (&self.name, COOKIE.as_secs());
        Some(format!(
            "{name}={until}-{signed}; Path=/; Max-Age={age}; HttpOnly; SameSite=Strict"
        ))
    }

    /// Whether a request brings a cookie that was given here.
    pub(crate) fn admits(&self, headers: &HeaderMap) -> bool {
        self.admits_at(headers, now())
    }

    fn admits_at(&self, headers: &HeaderMap, now: Duration) -> bool {
        let cookies = headers.get_all(header::COOKIE).iter();
        cookies
            .filter_map(|value| value.to_str().ok())
            .flat_map(|value| value.split(';'))
            .filter_map(|pair| pair.trim().split_once('='))
            .filter(|(name, _)| *name == self.name)
            .filter_map(|(_, value)| value.split_once('-'))
            .any(|(until, signed)| {
                let expected = sign(&self.token, &["cookie", until]);
                let lasts = until.parse().is_ok_and(|until: u64| until >= now.as_secs());
                lasts && is_same(signed, &expected)
            })
    }
}

/// Only who knows the token can make it. It comes last: what precedes it cannot be continued.
fn sign(token: &str, parts: &[&str]) -> String {
    use std::fmt::Write as _;
    let mut hash = Sha256::new();
    for part in parts.iter().chain([&token]) {
        hash.update(part.len().to_le_bytes());
        hash.update(part);
    }
    let bytes: [u8; 32] = hash.finalize().into();
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Compares hashes: how long that takes tells nothing about how much of a guess was right.
fn is_same(one: &str, other: &str) -> bool {
    Sha256::digest(one) == Sha256::digest(other)
}

fn now() -> Duration {
    let now = SystemWallClock.now().as_second();
    Duration::from_secs(u64::try_from(now).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAST: Duration = Duration::from_secs(1_779_999_999);
    const NOW: Duration = Duration::from_secs(1_780_000_000);

    fn with(cookie: &str) -> HeaderMap {
        let pair = cookie.split(';').next().unwrap();
        let mut headers = HeaderMap::new();
        headers.insert(header::COOKIE, format!("a=b; {pair}").parse().unwrap());
        headers
    }

    #[test]
    fn a_link_works_once_and_for_minutes() {
        let book = CookieBook::new("token", "here");
        let word = word_until("token", "here", "n1", NOW + LINK);
        for wrong in [
            word_until("other", "here", "n1", NOW + LINK),
            word_until("token", "there", "n1", NOW + LINK),
            word.replacen("n1", "n2", 1),
            word.replacen('1', "2", 1),
            word_until("token", "here", "n1", PAST),
            "token".to_owned(),
            String::new(),
        ] {
            assert_eq!(book.exchange_at(&wrong, NOW), None, "{wrong}");
        }
        let cookie = book.exchange_at(&word, NOW).unwrap();
        assert!(cookie.ends_with("; HttpOnly; SameSite=Strict"), "{cookie}");
        assert!(!cookie.contains("token"), "{cookie}");
        assert_eq!(book.exchange_at(&word, NOW), None);
    }

    #[test]
    fn a_cookie_lasts_for_hours_and_over_a_restart() {
        let book = CookieBook::new("token", "here");
        let word = word_until("token", "here", "n1", NOW + LINK);
        let cookie = book.exchange_at(&word, NOW).unwrap();
        assert!(book.admits_at(&with(&cookie), NOW));
        let again = CookieBook::new("token", "later");
        assert!(again.admits_at(&with(&cookie), NOW + COOKIE));
        assert!(!again.admits_at(&with(&cookie), NOW + COOKIE + Duration::from_secs(1)));
        assert!(!CookieBook::new("other", "here").admits_at(&with(&cookie), NOW));
        let longer = cookie.replacen("=1", "=2", 1);
        assert!(!book.admits_at(&with(&longer), NOW));
    }
}
