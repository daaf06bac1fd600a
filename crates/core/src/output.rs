//! What a session reports at its end: one strict little JSON document.

use std::fmt;
use std::str::FromStr;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde::{Deserialize as DeriveDeserialize, Serialize};
use serde_json::Value;

use crate::text::{cut_chars, escape_path};

/// The largest report that is read at all.
pub const MAX_OUTPUT_BYTES: usize = 1024 * 1024;

/// The longest summary, in characters.
pub const MAX_SUMMARY_CHARS: usize = 20_000;

/// What the agent says about the selected leaf.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, DeriveDeserialize)]
#[serde(rename_all = "lowercase")]
pub enum AgentStatus {
    /// Its goal is reached: the guard may judge.
    Done,
    /// Not finished: another session shall go on.
    Retry,
    /// Too large: it has been split into children.
    Decomposed,
}

impl AgentStatus {
    /// Every status, in the order in which they are documented.
    pub const ALL: [AgentStatus; 3] = [
        AgentStatus::Done,
        AgentStatus::Retry,
        AgentStatus::Decomposed,
    ];

    /// The word in files and messages.
    pub fn as_str(self) -> &'static str {
        match self {
            AgentStatus::Done => "done",
            AgentStatus::Retry => "retry",
            AgentStatus::Decomposed => "decomposed",
        }
    }
}

impl fmt::Display for AgentStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for AgentStatus {
    type Err = OutputError;

    fn from_str(word: &str) -> Result<Self, OutputError> {
        AgentStatus::ALL
            .into_iter()
            .find(|status| status.as_str() == word)
            .ok_or_else(|| OutputError::UnknownStatus(shown(word)))
    }
}

/// A valid report.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct AgentOutput {
    /// What became of the leaf.
    pub status: AgentStatus,
    /// What was done or tried, for the next session and for people.
    pub summary: String,
}

/// Why a report does not count.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OutputError {
    /// More bytes than anyone needs to say this.
    #[error("it has {0} bytes, more than the {MAX_OUTPUT_BYTES} allowed")]
    TooLarge(usize),
    /// Nothing was written.
    #[error("it is empty")]
    Empty,
    /// The parser's own words.
    #[error("it is not valid JSON: {0}")]
    Syntax(String),
    /// A JSON document of another kind.
    #[error("it must be a JSON object")]
    NotAnObject,
    /// A key that is not part of the report.
    #[error("unknown key `{0}`: only `status` and `summary` are allowed")]
    UnknownKey(String),
    /// A key that is there twice.
    #[error("the key `{0}` is there more than once")]
    DuplicateKey(&'static str),
    /// A key that is not there.
    #[error("the key `{0}` is missing")]
    MissingKey(&'static str),
    /// A value that is not a string.
    #[error("`{key}` must be a string, not {found}")]
    NotAString {
        /// The key.
        key: &'static str,
        /// What stands there instead.
        found: &'static str,
    },
    /// A word that is no status.
    #[error("`status` is `{0}`, not one of done, retry, decomposed")]
    UnknownStatus(String),
    /// A summary that says nothing.
    #[error("`summary` is empty")]
    EmptySummary,
    /// A summary that says too much.
    #[error("`summary` has {0} characters, more than the {MAX_SUMMARY_CHARS} allowed")]
    LongSummary(usize),
}

impl AgentOutput {
    /// Reads a report; anything but the two keys with valid values is an error.
    pub fn parse(bytes: &[u8]) -> Result<AgentOutput, OutputError> {
        if bytes.len() > MAX_OUTPUT_BYTES {
            return Err(OutputError::TooLarge(bytes.len()));
        }
        if bytes.trim_ascii().is_empty() {
            return Err(OutputError::Empty);
        }
        let Pairs(pairs) = serde_json::from_slice(bytes).map_err(|error| {
            if error.is_data() {
                OutputError::NotAnObject
            } else {
                OutputError::Syntax(shown(&error.to_string()))
            }
        })?;

        let mut status = None;
        let mut summary = None;
        for (key, value) in pairs {
            let (name, slot) = match &*key {
                "status" => ("status", &mut status),
                "summary" => ("summary", &mut summary),
                _ => return Err(OutputError::UnknownKey(shown(&key))),
            };
            if slot.is_some() {
                return Err(OutputError::DuplicateKey(name));
            }
            let Value::String(value) = value else {
                return Err(OutputError::NotAString {
                    key: name,
                    found: kind(&value),
                });
            };
            *slot = Some(value);
        }
        let status: String = status.ok_or(OutputError::MissingKey("status"))?;
        let summary: String = summary.ok_or(OutputError::MissingKey("summary"))?;

        let status = status.parse()?;
        match summary.chars().count() {
            0 => Err(OutputError::EmptySummary),
            1..=MAX_SUMMARY_CHARS => Ok(AgentOutput { status, summary }),
            chars => Err(OutputError::LongSummary(chars)),
        }
    }
}

/// An object as written: serde's own map and struct types hide duplicate keys or
/// take an array for a struct.
struct Pairs(Vec<(String, Value)>);

impl<'de> Deserialize<'de> for Pairs {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct PairsVisitor;

        impl<'de> Visitor<'de> for PairsVisitor {
            type Value = Pairs;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a JSON object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Pairs, A::Error> {
                let mut pairs = Vec::new();
                while let Some(pair) = map.next_entry()? {
                    pairs.push(pair);
                }
                Ok(Pairs(pairs))
            }
        }

        deserializer.deserialize_map(PairsVisitor)
    }
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}

/// Untrusted text inside a message: short and on one line.
fn shown(text: &str) -> String {
    escape_path(cut_chars(text, 80).as_bytes())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn error(json: &str) -> String {
        match AgentOutput::parse(json.as_bytes()) {
            Ok(output) => panic!("accepted: {output:?}"),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn valid_reports() {
        let longest = "ß".repeat(MAX_SUMMARY_CHARS);
        for (json, status, summary) in [
            (
                r#"{"status":"done","summary":"ok"}"#.to_owned(),
                AgentStatus::Done,
                "ok",
            ),
            (
                "\n{ \"summary\": \"a\\nb\",\r\n\"status\": \"retry\" }\n".to_owned(),
                AgentStatus::Retry,
                "a\nb",
            ),
            (
                format!(r#"{{"status":"decomposed","summary":"{longest}"}}"#),
                AgentStatus::Decomposed,
                &longest,
            ),
        ] {
            assert_eq!(
                AgentOutput::parse(json.as_bytes()),
                Ok(AgentOutput {
                    status,
                    summary: summary.to_owned()
                })
            );
        }
    }

    #[test]
    fn every_defect_is_named() {
        let long = format!(
            r#"{{"status":"done","summary":"{}"}}"#,
            "x".repeat(MAX_SUMMARY_CHARS + 1)
        );
        for (json, expected) in [
            ("", "it is empty"),
            (" \n", "it is empty"),
            (
                "not json",
                "it is not valid JSON: expected ident at line 1 column 2",
            ),
            (r#"["done","x"]"#, "it must be a JSON object"),
            ("null", "it must be a JSON object"),
            (r#""done""#, "it must be a JSON object"),
            ("{}", "the key `status` is missing"),
            (r#"{"status":"done"}"#, "the key `summary` is missing"),
            (
                r#"{"status":"done","summary":"x","note":1}"#,
                "unknown key `note`: only `status` and `summary` are allowed",
            ),
            (
                r#"{"status":"done","summary":"x","a\nb`":1}"#,
                r"unknown key `a\nb\x60`: only `status` and `summary` are allowed",
            ),
            (
                r#"{"status":"done","summary":"x","status":"retry"}"#,
                "the key `status` is there more than once",
            ),
            (
                r#"{"status":{"done":null},"summary":"x"}"#,
                "`status` must be a string, not an object",
            ),
            (
                r#"{"status":"done","summary":null}"#,
                "`summary` must be a string, not null",
            ),
            (
                r#"{"status":"Done","summary":"x"}"#,
                "`status` is `Done`, not one of done, retry, decomposed",
            ),
            (r#"{"status":"done","summary":""}"#, "`summary` is empty"),
            (
                &long,
                "`summary` has 20001 characters, more than the 20000 allowed",
            ),
        ] {
            assert_eq!(error(json), expected, "{}", cut_chars(json, 60));
        }
        assert!(error(r#"{"status":"done","summary":"x"} {}"#).contains("trailing characters"));
        assert!(error("{\"status\":\"done\",\"summary\":\"x").contains("EOF"));
    }

    #[test]
    fn size_limit() {
        let mut bytes = br#"{"status":"done","summary":"ok"}"#.to_vec();
        bytes.resize(MAX_OUTPUT_BYTES, b' ');
        assert!(AgentOutput::parse(&bytes).is_ok());
        bytes.push(b' ');
        assert_eq!(
            AgentOutput::parse(&bytes),
            Err(OutputError::TooLarge(MAX_OUTPUT_BYTES + 1))
        );
    }

    #[test]
    fn deep_nesting_is_an_error_and_no_overflow() {
        let deep = format!(r#"{{"x":{}"#, "[".repeat(500_000));
        assert!(error(&deep).contains("not valid JSON"));
    }

    #[test]
    fn words() {
        for status in AgentStatus::ALL {
            assert_eq!(status.to_string().parse(), Ok(status));
            assert_eq!(
                serde_json::to_value(status).unwrap(),
                Value::from(status.as_str())
            );
        }
        assert!("Done".parse::<AgentStatus>().is_err());
    }

    proptest! {
        #[test]
        fn never_panics(bytes: Vec<u8>) {
            let _ = AgentOutput::parse(&bytes);
        }

        #[test]
        fn what_is_written_is_read_back(index in 0usize..3, summary in "(?s).{1,200}") {
            let output = AgentOutput { status: AgentStatus::ALL[index], summary };
            let json = serde_json::to_vec(&output).unwrap();
            prop_assert_eq!(AgentOutput::parse(&json), Ok(output));
        }
    }
}
