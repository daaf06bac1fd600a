//! The `config.toml` of a test run, changed key by key.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde_json::{Value, json};

/// Keys and values of a `config.toml`.
///
/// Keys are written with dots (`guard.protected`); the part before the last dot
/// is the TOML table. Values are JSON scalars and arrays, which TOML spells the
/// same way.
#[derive(Clone, Debug)]
pub struct TestConfig {
    /// Table name to its keys; the empty name is the top level and sorts first,
    /// which is where TOML wants it.
    tables: BTreeMap<String, BTreeMap<String, Value>>,
    raw: String,
}

impl TestConfig {
    /// The configuration for a scripted agent: three attempts, short deadlines.
    pub fn scripted(agent_argv: &[String]) -> Self {
        let mut config = Self {
            tables: BTreeMap::new(),
            raw: String::new(),
        };
        config
            .set("max_attempts_default", 3)
            .set("max_iterations", 100)
            .set("iteration_timeout_secs", 60)
            .set("guard.command", json!(["true"]))
            .set("guard.protected", json!([]))
            .set("executor.backend", "command")
            .set("executor.command", json!(agent_argv))
            // What the runner finds out by itself must hold without one too.
            .set("sandbox.mode", "off");
        config
    }

    /// Sets one key, such as `loop.on_timeout`.
    pub fn set(&mut self, key: &str, value: impl Into<Value>) -> &mut Self {
        let (table, name) = key.rsplit_once('.').unwrap_or(("", key));
        self.tables
            .entry(table.to_owned())
            .or_default()
            .insert(name.to_owned(), value.into());
        self
    }

    /// Takes one key away, so that the runner's default applies.
    pub fn unset(&mut self, key: &str) -> &mut Self {
        let (table, name) = key.rsplit_once('.').unwrap_or(("", key));
        if let Some(keys) = self.tables.get_mut(table) {
            keys.remove(name);
        }
        self
    }

    /// Appends text as it is: for configurations that are broken on purpose.
    pub fn raw(&mut self, text: &str) -> &mut Self {
        self.raw.push_str(text);
        self
    }

    /// The file's text.
    pub fn to_toml(&self) -> String {
        let mut text = String::new();
        for (table, keys) in &self.tables {
            if !table.is_empty() {
                let _ = write!(text, "\n[{table}]\n");
            }
            for (key, value) in keys {
                let _ = writeln!(text, "{key} = {value}");
            }
        }
        text.push_str(&self.raw);
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn top_level_keys_come_before_tables() {
        let mut config = TestConfig::scripted(&["sh".to_owned(), "a b.sh".to_owned()]);
        config
            .set("loop.on_timeout", "retry")
            .set("executor.env.QUOTED", "a \"b\"\n")
            .unset("max_iterations")
            .raw("# end\n");
        assert_eq!(
            config.to_toml(),
            r#"iteration_timeout_secs = 60
max_attempts_default = 3

[executor]
backend = "command"
command = ["sh","a b.sh"]

[executor.env]
QUOTED = "a \"b\"\n"

[guard]
command = ["true"]
protected = []

[loop]
on_timeout = "retry"

[sandbox]
mode = "off"
# end
"#
        );
    }
}
