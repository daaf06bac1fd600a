//! Which file is a CLI's login, and whether a copy of it that sessions used may take the place of
//! the person's own.

use serde_json::{Map, Value};

/// Where a CLI keeps its login.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoginFile {
    /// The variable that moves the folder.
    pub variable: &'static str,
    /// The folder below HOME where it does not.
    pub usual: &'static str,
    /// The file in that folder.
    pub name: &'static str,
    /// How sessions find the copy that they share.
    pub place: LoginPlace,
    /// What changes when a login is renewed: `*` stands for any name.
    changing: &'static [&'static str],
}

/// How a session finds a login that is not in its private folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoginPlace {
    /// Through a link at this place in the private folder.
    Link(&'static str),
    /// Through a variable that names the folder.
    Variable(&'static str),
}

pub(crate) const CODEX: LoginFile = LoginFile {
    variable: "CODEX_HOME",
    usual: ".codex",
    name: "auth.json",
    place: LoginPlace::Link("auth.json"),
    changing: &[
        "tokens.id_token",
        "tokens.access_token",
        "tokens.refresh_token",
        "last_refresh",
    ],
};

pub(crate) const CLAUDE: LoginFile = LoginFile {
    variable: "CLAUDE_CONFIG_DIR",
    usual: ".claude",
    name: ".credentials.json",
    // It takes its lock on the folder.
    place: LoginPlace::Variable("CLAUDE_SECURESTORAGE_CONFIG_DIR"),
    changing: &[
        "claudeAiOauth.accessToken",
        "claudeAiOauth.refreshToken",
        "claudeAiOauth.expiresAt",
        "claudeAiOauth.refreshTokenExpiresAt",
    ],
};

pub(crate) const OPENCODE: LoginFile = LoginFile {
    variable: "XDG_DATA_HOME",
    usual: ".local/share",
    name: "opencode/auth.json",
    place: LoginPlace::Link("data/opencode/auth.json"),
    changing: &["*.access", "*.refresh", "*.expires"],
};

impl LoginFile {
    /// The name of the copy.
    pub fn copy_name(&self) -> &'static str {
        self.name.rsplit('/').next().unwrap_or(self.name)
    }

    /// The person's own login with what was renewed in a copy of it. `None`: the copy is not of the
    /// same account, or not of the same shape. Nothing else of the copy is taken over: a session could
    /// write anything there.
    pub fn renewed(&self, own: &[u8], copy: &[u8]) -> Option<Vec<u8>> {
        let own: Value = serde_json::from_slice(own).ok()?;
        let copy: Value = serde_json::from_slice(copy).ok()?;
        let (Value::Object(own), Value::Object(copy)) = (own, copy) else {
            return None;
        };
        let renewed = self.merged(own, copy, "")?;
        Some(pretty(renewed))
    }

    fn merged(
        &self,
        own: Map<String, Value>,
        mut copy: Map<String, Value>,
        above: &str,
    ) -> Option<Map<String, Value>> {
        let mut merged = Map::new();
        for (key, value) in own {
            let path = if above.is_empty() {
                key.clone()
            } else {
                format!("{above}.{key}")
            };
            let other = copy.remove(&key);
            let may_change = self.changing.iter().any(|it| fits(it, &path));
            let value = match (value, other) {
                (Value::Object(own), Some(Value::Object(copy))) if !may_change => {
                    Value::Object(self.merged(own, copy, &path)?)
                }
                (own, Some(new)) if may_change => is_same_kind(&own, &new).then_some(new)?,
                // What says of when an account is, or how it pays, may be left out or told anew.
                (own, other) if self.changes_by_itself(&path) => {
                    let _ = other;
                    own
                }
                (own, Some(other)) => (own == other).then_some(own)?,
                (_, None) => return None,
            };
            merged.insert(key, value);
        }
        Some(merged)
    }

    /// Remarks that a CLI writes into its login, and that say nothing about who somebody is.
    fn changes_by_itself(&self, path: &str) -> bool {
        const REMARKS: &[&str] = &[
            "claudeAiOauth.subscriptionTypeSource",
            "claudeAiOauth.subscriptionTypeVerifiedAt",
            "claudeAiOauth.rateLimitTier",
        ];
        *self == CLAUDE && (REMARKS.contains(&path) || path.starts_with("mcpOAuth"))
    }
}

fn fits(pattern: &str, path: &str) -> bool {
    match (pattern.split_once('.'), path.split_once('.')) {
        (Some(("*", rest)), Some((_, found))) => rest == found,
        _ => pattern == path,
    }
}

/// Whether one value can be a newer one of the other: for tokens that say whose they are, of the
/// same account.
fn is_same_kind(own: &Value, new: &Value) -> bool {
    match (own, new) {
        (Value::String(own), Value::String(new)) => {
            !new.is_empty()
                && match (claims(own), claims(new)) {
                    (Some(own), Some(new)) => own == new,
                    (own, new) => own.is_none() && new.is_none(),
                }
        }
        (Value::Number(own), Value::Number(new)) => own.is_f64() == new.is_f64(),
        _ => own == new,
    }
}

/// What a token says about whose it is; `None`: it is not one that says anything.
fn claims(token: &str) -> Option<Vec<Value>> {
    const NAMES: &[&str] = &["iss", "sub", "email"];
    const ACCOUNT: &str = "https://api.openai.com/auth";
    const ACCOUNT_NAMES: &[&str] = &["chatgpt_account_id", "chatgpt_user_id", "user_id"];
    let mut parts = token.split('.');
    let (_, payload, _) = (parts.next()?, parts.next()?, parts.next()?);
    let payload: Value = serde_json::from_slice(&decoded(payload)?).ok()?;
    let account = &payload[ACCOUNT];
    let outer = NAMES.iter().map(|name| payload[*name].clone());
    let inner = ACCOUNT_NAMES.iter().map(|name| account[*name].clone());
    Some(outer.chain(inner).collect())
}

/// The bytes that such a text stands for (base64 as in URLs).
fn decoded(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    let (mut bits, mut count) = (0_u32, 0);
    for byte in text.trim_end_matches('=').bytes() {
        let value = match byte {
            b'A'..=b'Z' => byte - b'A',
            b'a'..=b'z' => byte - b'a' + 26,
            b'0'..=b'9' => byte - b'0' + 52,
            b'-' | b'+' => 62,
            b'_' | b'/' => 63,
            _ => return None,
        };
        bits = (bits << 6) | u32::from(value);
        count += 6;
        if count >= 8 {
            count -= 8;
            bytes.push(u8::try_from((bits >> count) & 0xff).ok()?);
        }
    }
    Some(bytes)
}

fn pretty(object: Map<String, Value>) -> Vec<u8> {
    format!("{:#}", Value::Object(object)).into_bytes()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn renewed(file: LoginFile, own: &Value, copy: &Value) -> Option<Value> {
        let found = file.renewed(own.to_string().as_bytes(), copy.to_string().as_bytes());
        found.map(|bytes| serde_json::from_slice(&bytes).unwrap())
    }

    fn codex(account: &str, token: &str) -> Value {
        json!({
            "OPENAI_API_KEY": null,
            "tokens": {"id_token": token, "access_token": token, "refresh_token": token, "account_id": account},
            "last_refresh": token,
        })
    }

    #[test]
    fn a_renewed_login_of_the_same_account() {
        let (old, new) = (codex("a", "1"), codex("a", "2"));
        assert_eq!(renewed(CODEX, &old, &new), Some(new.clone()));
        assert_eq!(renewed(CODEX, &old, &old), Some(old.clone()));
        for other in [
            codex("b", "2"),
            codex("a", ""),
            json!({}),
            json!([]),
            json!({"OPENAI_API_KEY": "k", "tokens": new["tokens"], "last_refresh": "2"}),
            json!({"OPENAI_API_KEY": null, "tokens": null, "last_refresh": "2"}),
            json!({"OPENAI_API_KEY": null, "tokens": new["tokens"], "last_refresh": 2}),
        ] {
            assert_eq!(renewed(CODEX, &old, &other), None, "{other}");
        }
        // What is new in the copy stays out.
        let mut more = new.clone();
        more["agent_identity"] = json!("x");
        assert_eq!(renewed(CODEX, &old, &more), Some(new));
    }

    #[test]
    fn tokens_that_say_whose_they_are() {
        // {"sub":"me"}, {"sub":"me","exp":2}, {"sub":"you"}
        let [me, again, you] = [
            "eyJzdWIiOiJtZSJ9",
            "eyJzdWIiOiJtZSIsImV4cCI6Mn0",
            "eyJzdWIiOiJ5b3UifQ",
        ]
        .map(|payload| codex("a", &format!("h.{payload}.s")));
        assert_eq!(renewed(CODEX, &me, &again), Some(again));
        assert_eq!(renewed(CODEX, &me, &you), None);
        assert_eq!(renewed(CODEX, &me, &codex("a", "opaque")), None);
        assert_eq!(decoded("eyJzdWIiOiJtZSJ9").unwrap(), br#"{"sub":"me"}"#);
        assert_eq!(decoded("a b"), None);
    }

    #[test]
    fn the_others() {
        let claude = |token: &str, plan: &str| {
            json!({"claudeAiOauth": {"accessToken": token, "refreshToken": token, "expiresAt": 1,
                "scopes": ["a"], "subscriptionType": plan}})
        };
        let new = claude("2", "max");
        assert_eq!(
            renewed(CLAUDE, &claude("1", "max"), &new),
            Some(new.clone())
        );
        assert_eq!(renewed(CLAUDE, &claude("1", "pro"), &new), None);
        let opencode = |account: &str, token: &str, key: &str| {
            json!({"p": {"type": "oauth", "access": token, "refresh": token, "expires": 1, "accountId": account},
                "q": {"type": "api", "key": key}})
        };
        let old = opencode("a", "1", "k");
        let new = opencode("a", "2", "k");
        assert_eq!(renewed(OPENCODE, &old, &new), Some(new.clone()));
        assert_eq!(renewed(OPENCODE, &old, &opencode("b", "2", "k")), None);
        assert_eq!(renewed(OPENCODE, &old, &opencode("a", "2", "other")), None);
    }
}
