//! `[config]` and `[executor]` of a case: the config.toml of its workspace.
//!
//! They have the keys of config.toml and are checked by the very code that reads it; only the
//! place of a finding is looked up in the case file.

use std::collections::BTreeMap;
use std::path::Path;

use runner::{Error, ErrorCode, Result};
use runner_core::config::reader::TomlReader;
use runner_core::config::{BackendKind, Config};
use toml::de::{DeTable, DeValue};
use toml::{Table, Value};

/// What a case says about the config of its workspace.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CaseSettings {
    config: Table,
    executor: Option<Table>,
    env: BTreeMap<String, String>,
}

/// What `eval run` says about it.
#[derive(Clone, Debug, Default)]
pub struct CaseOverrides {
    /// `--executor`: in place of the case's.
    pub executor: Option<Table>,
    /// Of the project around: for cases that name no agent.
    pub project_executor: Option<Table>,
}

impl CaseSettings {
    /// Reads and checks both tables. `None` only where something was found.
    pub(super) fn read(
        reader: &mut TomlReader<'_>,
        document: &DeTable<'_>,
        env: &BTreeMap<String, String>,
    ) -> Option<Self> {
        let mut config = table(reader, document, "config")?;
        if config.contains_key("executor") {
            let at = at(document, &["config", "executor"]);
            let hint = "move it to a table [executor] of its own";
            let message = "does not belong here".to_owned();
            reader.note(
                at,
                "config.executor".to_owned(),
                message,
                Some(hint.to_owned()),
            );
            config.remove("executor");
        }
        let executor = document.get("executor");
        let executor = match executor {
            Some(_) => Some(table(reader, document, "executor")?),
            None => None,
        };
        let settings = CaseSettings {
            config,
            executor,
            env: env.clone(),
        };
        let Err(findings) = Config::parse(&settings.text(&CaseOverrides::default())) else {
            return Some(settings);
        };
        for finding in findings {
            let in_executor = finding.key.starts_with("executor");
            let key = if in_executor {
                finding.key.clone()
            } else {
                format!("config.{}", finding.key)
            };
            let words: Vec<&str> = key.split('.').collect();
            reader.note(at(document, &words), key, finding.message, finding.hint);
        }
        None
    }

    /// The config.toml of a workspace.
    pub fn text(&self, overrides: &CaseOverrides) -> String {
        let mut all = self.config.clone();
        let chosen = overrides
            .executor
            .as_ref()
            .or(self.executor.as_ref())
            .or(overrides.project_executor.as_ref());
        let mut executor = chosen.cloned().unwrap_or_default();
        if !self.env.is_empty() {
            let env = executor
                .entry("env")
                .or_insert_with(|| Value::Table(Table::new()));
            if let Value::Table(env) = env {
                for (name, value) in &self.env {
                    env.entry(name.clone())
                        .or_insert_with(|| Value::String(value.clone()));
                }
            }
        }
        if !executor.is_empty() {
            all.insert("executor".to_owned(), Value::Table(executor));
        }
        all.to_string()
    }

    /// The same with its meaning.
    pub fn resolve(&self, overrides: &CaseOverrides) -> Result<(String, Config)> {
        let text = self.text(overrides);
        let config = Config::parse(&text).map_err(|findings| {
            let words: Vec<String> = findings.iter().map(ToString::to_string).collect();
            Error::new(
                ErrorCode::Config,
                format!("the config of the workspace is wrong: {}", words.join("; ")),
            )
            .hint("check --executor, and [executor] in .runner/state/config.toml")
        })?;
        Ok((text, config))
    }

    /// Whether the case itself names its agent.
    pub fn names_agent(&self) -> bool {
        self.executor.is_some()
    }
}

/// A table of the document as plain data; absent is empty. `None`: it is none.
fn table(reader: &mut TomlReader<'_>, document: &DeTable<'_>, name: &str) -> Option<Table> {
    let Some(value) = document.get(name) else {
        return Some(Table::new());
    };
    if !matches!(value.get_ref(), DeValue::Table(_)) {
        reader.wrong_type(value, name.to_owned(), "a table");
        return None;
    }
    match plain(value.get_ref()) {
        Value::Table(table) => Some(table),
        _ => None,
    }
}

fn plain(value: &DeValue<'_>) -> Value {
    match value {
        DeValue::String(text) => Value::String(text.to_string()),
        DeValue::Integer(number) => {
            let parsed = i64::from_str_radix(number.as_str(), number.radix());
            // One that does not fit is wrong for every key: let the config say so.
            Value::Integer(parsed.unwrap_or(i64::MIN))
        }
        DeValue::Float(number) => Value::Float(number.as_str().parse().unwrap_or(f64::NAN)),
        DeValue::Boolean(flag) => Value::Boolean(*flag),
        DeValue::Datetime(time) => Value::Datetime(*time),
        DeValue::Array(items) => {
            Value::Array(items.iter().map(|item| plain(item.get_ref())).collect())
        }
        DeValue::Table(entries) => Value::Table(
            entries
                .iter()
                .map(|(key, value)| (key.get_ref().to_string(), plain(value.get_ref())))
                .collect(),
        ),
    }
}

/// Where a key stands: as deep as it can be followed.
fn at(document: &DeTable<'_>, words: &[&str]) -> Option<usize> {
    let mut table = document;
    let mut found = None;
    for word in words {
        // `command[0]` stands where `command` does.
        let name = word.split('[').next().unwrap_or(word);
        let Some((key, value)) = table.get_key_value(name) else {
            break;
        };
        found = Some(key.span().start);
        match value.get_ref() {
            DeValue::Table(inner) => table = inner,
            _ => break,
        }
    }
    found
}

/// `--executor`: a backend, with a model or a command after a colon, or a TOML file with
/// `[executor]`.
pub fn parse_executor(text: &str) -> Result<Table> {
    if Path::new(text).extension().is_some_and(|it| it == "toml") {
        let read = std::fs::read_to_string(text).map_err(|error| {
            Error::new(ErrorCode::Config, format!("--executor {text}: {error}"))
        })?;
        return executor_of_file(&read).ok_or_else(|| {
            Error::new(
                ErrorCode::Config,
                format!("--executor {text}: there is no table [executor] in it"),
            )
            .hint("write it as in .runner/state/config.toml")
        });
    }
    let (name, rest) = match text.split_once(':') {
        Some((name, rest)) => (name, Some(rest).filter(|rest| !rest.is_empty())),
        None => (text, None),
    };
    let usage = "for example: codex, claude:MODEL, 'command:sh agent.sh', or a .toml file";
    let Some(backend) = BackendKind::from_word(name) else {
        return Err(Error::new(
            ErrorCode::Config,
            format!("--executor: there is no backend {name:?}"),
        )
        .hint(usage));
    };
    let mut table = Table::new();
    table.insert("backend".to_owned(), Value::String(name.to_owned()));
    match (backend, rest) {
        (BackendKind::Command, None) => {
            return Err(Error::new(
                ErrorCode::Config,
                "--executor command: it does not say which command",
            )
            .hint(usage));
        }
        (BackendKind::Command, Some(line)) => {
            let words = runner::split_words(line)?;
            let words = words.into_iter().map(Value::String).collect();
            table.insert("command".to_owned(), Value::Array(words));
        }
        (_, Some(model)) => {
            table.insert("model".to_owned(), Value::String(model.to_owned()));
        }
        (_, None) => {}
    }
    Ok(table)
}

/// `[executor]` of a config.toml, if it has one.
pub fn executor_of_file(text: &str) -> Option<Table> {
    let table: Table = text.parse().ok()?;
    match table.get("executor")? {
        Value::Table(executor) => Some(executor.clone()),
        _ => None,
    }
}
