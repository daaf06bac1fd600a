//! Typed access to the tables of a TOML document, with a finding for everything that
//! does not fit. Every getter takes the value that holds when the key is missing or
//! wrong.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::ops::RangeInclusive;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::{ConfigFinding, ConfigWord, fleet, sandbox};
use crate::paths;
use crate::product::ProductFiles;
use crate::protected_value::ProtectedValue;
use crate::text::{ALIKE, cut_chars, escape_path, nearest};

/// Tables with their keys.
pub type KnownKeys = [(&'static str, &'static [&'static str])];

/// Every table with its keys. Tables whose keys are the user's have none here.
const KNOWN: &KnownKeys = &[
    (
        "",
        &[
            "max_attempts_default",
            "max_iterations",
            "iteration_timeout_secs",
            "executor_output_limit_bytes",
            "guard_output_limit_bytes",
            "prompt_budget_bytes",
            "workspace",
            "guard",
            "loop",
            "executor",
            "commit",
            "prices",
            "notify",
            "budget",
            "sandbox",
            "fleet",
        ],
    ),
    (
        "workspace",
        &[
            "root",
            "setup",
            "setup_inputs",
            "setup_timeout_secs",
            "include",
            "submodules",
            "submodules_may_move",
            "env",
        ],
    ),
    (
        "guard",
        &[
            "command",
            "protected",
            "protected_values",
            "watched",
            "env",
            "keep",
            "checkout",
            "junit",
            "tests",
            "released_tests",
            "original_tests",
            "product",
        ],
    ),
    (
        "loop",
        &["max_consecutive_errors", "on_timeout", "wait_quota"],
    ),
    (
        "executor",
        &[
            "backend",
            "command",
            "model",
            "extra_args",
            "idle_timeout_secs",
            "inherit",
            "env",
        ],
    ),
    ("commit", &["deny", "max_file_bytes"]),
    ("notify", &["command"]),
    ("budget", &["max_tokens", "max_cost_usd"]),
    ("sandbox", sandbox::KEYS),
    ("sandbox.session", sandbox::OPENED_KEYS),
    ("sandbox.setup", sandbox::OPENED_KEYS),
    ("sandbox.guard", sandbox::OPENED_KEYS),
    ("sandbox.network", sandbox::NETWORK_KEYS),
    ("sandbox.limits", sandbox::LIMIT_KEYS),
    ("fleet", fleet::KEYS),
];

/// A value with its place.
pub type TomlValue<'i> = Spanned<DeValue<'i>>;

/// One table of the document, or its absence.
#[derive(Clone, Copy)]
pub struct TomlTable<'t, 'i> {
    name: &'t str,
    entries: Option<&'t DeTable<'i>>,
}

impl<'t, 'i> TomlTable<'t, 'i> {
    /// The document itself.
    pub fn root(entries: &'t DeTable<'i>) -> Self {
        TomlTable {
            name: "",
            entries: Some(entries),
        }
    }

    /// The same table under its full name.
    #[must_use]
    pub fn named(self, name: &'t str) -> Self {
        TomlTable { name, ..self }
    }

    /// The value of a key.
    pub fn get(&self, key: &str) -> Option<&'t TomlValue<'i>> {
        self.entries?.get(key)
    }

    /// Every key with its value.
    pub fn entries(
        &self,
    ) -> impl Iterator<Item = (&'t Spanned<toml::de::DeString<'i>>, &'t TomlValue<'i>)> + use<'t, 'i>
    {
        self.entries.into_iter().flatten()
    }

    /// A key with the name of its table.
    pub fn full_name(&self, key: &str) -> String {
        if self.name.is_empty() {
            shown(key)
        } else {
            format!("{}.{}", self.name, shown(key))
        }
    }
}

/// Collects the findings about one file.
pub struct TomlReader<'s> {
    text: &'s str,
    known: &'static KnownKeys,
    findings: Vec<ConfigFinding>,
}

impl<'s> TomlReader<'s> {
    /// For `config.toml`.
    pub(super) fn new(text: &'s str) -> Self {
        TomlReader::knowing(text, KNOWN)
    }

    /// For a file with these tables and keys.
    pub fn knowing(text: &'s str, known: &'static KnownKeys) -> Self {
        TomlReader {
            text,
            known,
            findings: Vec::new(),
        }
    }

    /// What was read, if nothing was found.
    pub fn finish<T>(mut self, read: T) -> Result<T, Vec<ConfigFinding>> {
        if self.findings.is_empty() {
            return Ok(read);
        }
        self.findings
            .sort_by_key(|finding| finding.line.unwrap_or(usize::MAX));
        Err(self.findings)
    }

    /// A finding at an offset of the text.
    pub fn note(
        &mut self,
        offset: Option<usize>,
        key: String,
        message: String,
        hint: Option<String>,
    ) {
        self.findings.push(ConfigFinding {
            line: offset.map(|offset| line_of(self.text, offset)),
            key,
            message,
            hint,
        });
    }

    /// A finding about the value of a key.
    pub fn find(
        &mut self,
        table: TomlTable<'_, '_>,
        key: &str,
        message: impl Into<String>,
        hint: Option<String>,
    ) {
        let offset = table.get(key).map(|value| value.span().start);
        self.note(offset, table.full_name(key), message.into(), hint);
    }

    /// A finding about a value that is of another type.
    pub fn wrong_type(&mut self, value: &TomlValue<'_>, key: String, wanted: &str) {
        let found = match value.get_ref() {
            DeValue::String(_) => "a string",
            DeValue::Integer(_) => "an integer",
            DeValue::Float(_) => "a float",
            DeValue::Boolean(_) => "a boolean",
            DeValue::Datetime(_) => "a date or time",
            DeValue::Array(_) => "an array",
            DeValue::Table(_) => "a table",
        };
        let message = format!("must be {wanted}, not {found}");
        self.note(Some(value.span().start), key, message, None);
    }

    /// A table in a table, or its absence.
    pub fn table<'t, 'i>(&mut self, parent: TomlTable<'t, 'i>, name: &'t str) -> TomlTable<'t, 'i> {
        let mut entries = None;
        if let Some(value) = parent.get(name) {
            match value.get_ref() {
                DeValue::Table(table) => entries = Some(table),
                _ => self.wrong_type(value, parent.full_name(name), "a table"),
            }
        }
        TomlTable { name, entries }
    }

    /// A table in which only the known keys may be.
    pub fn known_table<'t, 'i>(
        &mut self,
        parent: TomlTable<'t, 'i>,
        name: &'t str,
    ) -> TomlTable<'t, 'i> {
        let table = self.table(parent, name);
        self.unknown_keys(table);
        table
    }

    /// A finding for every key that the table may not have.
    pub fn unknown_keys(&mut self, table: TomlTable<'_, '_>) {
        let known = self
            .known
            .iter()
            .find(|(name, _)| *name == table.name)
            .map_or(&[][..], |(_, keys)| keys);
        for (key, _) in table.entries() {
            if !known.contains(&&**key.get_ref()) {
                self.note(
                    Some(key.span().start),
                    table.full_name(key.get_ref()),
                    "unknown key".to_owned(),
                    nearest_key(self.known, table.name, key.get_ref()),
                );
            }
        }
    }

    /// An integer in a range.
    pub fn integer<T>(
        &mut self,
        table: TomlTable<'_, '_>,
        key: &str,
        range: RangeInclusive<T>,
        default: T,
    ) -> T
    where
        T: Copy + PartialOrd + Display + TryFrom<i128>,
    {
        let Some(value) = table.get(key) else {
            return default;
        };
        let DeValue::Integer(number) = value.get_ref() else {
            self.wrong_type(value, table.full_name(key), "an integer");
            return default;
        };
        let number = i128::from_str_radix(number.as_str(), number.radix()).ok();
        match number.and_then(|number| T::try_from(number).ok()) {
            Some(number) if range.contains(&number) => number,
            _ => {
                let message = format!("must be between {} and {}", range.start(), range.end());
                self.find(table, key, message, None);
                default
            }
        }
    }

    /// A number that is neither negative nor one of a float's odd ones; integers are
    /// fine.
    pub fn amount(&mut self, table: TomlTable<'_, '_>, key: &str, default: f64) -> f64 {
        let Some(value) = table.get(key) else {
            return default;
        };
        let number = match value.get_ref() {
            DeValue::Float(number) => number.as_str().parse::<f64>().ok(),
            DeValue::Integer(number) => i64::from_str_radix(number.as_str(), number.radix())
                .ok()
                .map(lossy_f64),
            _ => {
                self.wrong_type(value, table.full_name(key), "a number");
                return default;
            }
        };
        match number {
            Some(number) if number.is_finite() && number >= 0.0 => number,
            _ => {
                self.find(table, key, "must be a number, 0 or more", None);
                default
            }
        }
    }

    /// True or false.
    pub fn boolean(&mut self, table: TomlTable<'_, '_>, key: &str, default: bool) -> bool {
        let Some(value) = table.get(key) else {
            return default;
        };
        if let DeValue::Boolean(flag) = value.get_ref() {
            return *flag;
        }
        self.wrong_type(value, table.full_name(key), "true or false");
        default
    }

    /// A text.
    pub fn string(&mut self, table: TomlTable<'_, '_>, key: &str, default: String) -> String {
        table
            .get(key)
            .and_then(|value| self.text_of(value, &table.full_name(key)))
            .unwrap_or(default)
    }

    /// A word of a fixed set.
    pub(super) fn word<W: ConfigWord>(
        &mut self,
        table: TomlTable<'_, '_>,
        key: &str,
        default: W,
    ) -> W {
        let text = table
            .get(key)
            .and_then(|value| self.text_of(value, &table.full_name(key)));
        let found = text.map(|text| self.word_of(table, key, &text));
        found.flatten().unwrap_or(default)
    }

    /// A list of words of the key's set.
    pub(super) fn words<W: ConfigWord>(&mut self, table: TomlTable<'_, '_>, key: &str) -> Vec<W> {
        let texts = self.strings(table, key, Vec::new());
        let words = texts.iter().map(|text| self.word_of(table, key, text));
        words.collect::<Vec<_>>().into_iter().flatten().collect()
    }

    fn word_of<W: ConfigWord>(
        &mut self,
        table: TomlTable<'_, '_>,
        key: &str,
        text: &str,
    ) -> Option<W> {
        if let Some(word) = W::ALL.iter().find(|word| word.word() == text) {
            return Some(*word);
        }
        let words: Vec<&str> = W::ALL.iter().map(|word| word.word()).collect();
        let message = format!("`{}` is not one of {}", shown(text), words.join(", "));
        let (_, meant) = nearest(text, &words);
        self.find(
            table,
            key,
            message,
            Some(format!("did you mean `{meant}`?")),
        );
        None
    }

    /// A list of texts.
    pub fn strings(
        &mut self,
        table: TomlTable<'_, '_>,
        key: &str,
        default: Vec<String>,
    ) -> Vec<String> {
        let Some(value) = table.get(key) else {
            return default;
        };
        let DeValue::Array(items) = value.get_ref() else {
            self.wrong_type(value, table.full_name(key), "an array of strings");
            return default;
        };
        let name = table.full_name(key);
        items
            .iter()
            .enumerate()
            .filter_map(|(index, item)| self.text_of(item, &format!("{name}[{index}]")))
            .collect()
    }

    /// A command line: empty, or with a program to start.
    pub fn argv(
        &mut self,
        table: TomlTable<'_, '_>,
        key: &str,
        default: Vec<String>,
    ) -> Vec<String> {
        let words = self.strings(table, key, default);
        if words
            .first()
            .is_some_and(|program| program.trim().is_empty())
        {
            let message = "its first word, the program, must not be empty";
            self.find(table, key, message, None);
        }
        words
    }

    /// A command line, or a text for `sh -c`.
    pub fn argv_or_script(&mut self, table: TomlTable<'_, '_>, key: &str) -> Vec<String> {
        match table.get(key) {
            Some(value) if matches!(value.get_ref(), DeValue::String(_)) => {
                let script = self.text_of(value, &table.full_name(key));
                let script = script.filter(|text| !text.trim().is_empty());
                script.map_or_else(Vec::new, |text| {
                    vec!["sh".to_owned(), "-c".to_owned(), text]
                })
            }
            _ => self.argv(table, key, Vec::new()),
        }
    }

    /// Names that variables of an environment can have.
    pub fn variable_names(&mut self, table: TomlTable<'_, '_>, key: &str) -> Vec<String> {
        let names = self.strings(table, key, Vec::new());
        if names
            .iter()
            .any(|name| name.is_empty() || name.contains(['=', '\0']))
        {
            let hint = "name the variable alone: its value comes from the runner's own environment";
            let message = "not a name that a variable can have";
            self.find(table, key, message, Some(hint.to_owned()));
        }
        names
    }

    /// A list of globs that can match something.
    pub fn globs(
        &mut self,
        table: TomlTable<'_, '_>,
        key: &str,
        default: Vec<String>,
    ) -> Vec<String> {
        let globs = self.strings(table, key, default);
        for glob in &globs {
            if let Err(error) = paths::check_glob(glob) {
                let message = format!("glob `{}`: {}", shown(glob), error.message);
                self.find(table, key, message, error.hint);
            }
        }
        globs
    }

    /// Which files are product.
    pub fn product(
        &mut self,
        table: TomlTable<'_, '_>,
        key: &str,
        default: Vec<String>,
    ) -> Vec<String> {
        let entries = self.strings(table, key, default);
        if let Err(error) = ProductFiles::new(&entries) {
            let message = format!("glob `{}`: {}", shown(&error.pattern), error.message);
            self.find(table, key, message, error.hint);
        }
        entries
    }

    /// A list of values inside files.
    pub fn protected_values(&mut self, table: TomlTable<'_, '_>, key: &str) -> Vec<String> {
        let values = self.strings(table, key, Vec::new());
        for value in &values {
            if let Err(message) = ProtectedValue::parse(value) {
                self.find(table, key, message, None);
            }
        }
        values
    }

    /// A list of globs that mean files or whole folders, without the `/` at the end of a folder.
    pub fn folder_globs(&mut self, table: TomlTable<'_, '_>, key: &str) -> Vec<String> {
        let named = self.strings(table, key, Vec::new());
        let mut globs = Vec::new();
        for glob in named {
            let folder = glob.strip_suffix('/').unwrap_or(&glob);
            match paths::FolderGlobs::new(&[folder]) {
                Ok(_) => globs.push(folder.to_owned()),
                Err(error) => {
                    let message = format!("glob `{}`: {}", shown(&glob), error.message);
                    self.find(table, key, message, error.hint);
                }
            }
        }
        globs
    }

    /// Variables of an environment.
    pub fn variables(&mut self, table: TomlTable<'_, '_>) -> BTreeMap<String, String> {
        let mut variables = BTreeMap::new();
        for (key, value) in table.entries() {
            let name: &str = key.get_ref();
            // What follows an `=` may be a secret in the wrong place.
            let full_name = table.full_name(name.split('=').next().unwrap_or_default());
            if name.is_empty() || name.contains(['=', '\0']) {
                let message = "not a name that a variable can have".to_owned();
                self.note(Some(key.span().start), full_name, message, None);
            } else if let Some(text) = self.text_of(value, &full_name) {
                variables.insert(name.to_owned(), text);
            }
        }
        variables
    }

    /// A string that can be handed to a process.
    pub fn text_of(&mut self, value: &TomlValue<'_>, key: &str) -> Option<String> {
        match value.get_ref() {
            DeValue::String(text) if text.contains('\0') => {
                let message = "must not contain a NUL character".to_owned();
                self.note(Some(value.span().start), key.to_owned(), message, None);
                None
            }
            DeValue::String(text) => Some(text.to_string()),
            _ => {
                self.wrong_type(value, key.to_owned(), "a string");
                None
            }
        }
    }
}

/// Whether a value is a list without items.
pub fn is_empty_array(value: &TomlValue<'_>) -> bool {
    matches!(value.get_ref(), DeValue::Array(items) if items.is_empty())
}

/// Names the known key that was most likely meant, with its table; none where no key is like it.
/// Keys of the same table are preferred.
fn nearest_key(known: &KnownKeys, table: &str, key: &str) -> Option<String> {
    let preferred = |home: &str, score: f64| score + if home == table { 0.1 } else { 0.0 };
    let ((score, meant), home) = known
        .iter()
        .map(|&(home, keys)| (nearest(key, keys), home))
        .reduce(|best, next| {
            let better = preferred(next.1, next.0.0) > preferred(best.1, best.0.0);
            if better { next } else { best }
        })
        .unwrap_or_default();
    let dot = if home.is_empty() { "" } else { "." };
    (score >= ALIKE).then(|| format!("did you mean `{home}{dot}{meant}`?"))
}

/// Amounts of money: beyond 2^53 nobody counts the last digit.
#[expect(clippy::cast_precision_loss)]
fn lossy_f64(number: i64) -> f64 {
    number as f64
}

fn line_of(text: &str, offset: usize) -> usize {
    let before = &text.as_bytes()[..offset.min(text.len())];
    before.split(|&byte| byte == b'\n').count()
}

/// A key or word of the file inside a message: short and on one line.
fn shown(text: &str) -> String {
    escape_path(cut_chars(text, 60).as_bytes())
}
