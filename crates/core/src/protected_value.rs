//! Values inside JSON and TOML files, and of go.mod, that must stay as they are, while the rest may
//! change.

use std::collections::BTreeMap;
use std::fmt;

use serde_json::Value;

use crate::paths::check_glob;

/// One entry of `[guard] protected_values`, such as `package.json:/scripts`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ProtectedValue {
    /// The file, from the root of the project, or a glob of such files.
    pub path: String,
    /// The way to the value; `*` stands for any key or place in a list.
    pointer: Vec<String>,
}

/// How a file is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ValueFormat {
    Json,
    Toml,
    GoMod,
}

impl fmt::Display for ProtectedValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", self.path)?;
        for part in &self.pointer {
            write!(f, "/{}", part.replace('~', "~0").replace('/', "~1"))?;
        }
        Ok(())
    }
}

impl ProtectedValue {
    /// Reads an entry. The error is a lowercase fragment.
    pub fn parse(text: &str) -> Result<Self, String> {
        let Some((path, pointer)) = text.split_once(":/") else {
            return Err(format!(
                "`{text}` is not a file and a place in it, as in `package.json:/scripts`"
            ));
        };
        if path.is_empty() || path.starts_with('/') || path.split('/').any(|part| part == "..") {
            return Err(format!("`{text}` does not name a file of the project"));
        }
        if ValueFormat::of(path).is_none() {
            return Err(format!(
                "`{path}` is neither JSON nor TOML by its name, nor go.mod"
            ));
        }
        if is_glob(path) {
            check_glob(path).map_err(|error| format!("`{text}`: {error}"))?;
        }
        let parts = pointer.split('/');
        let pointer: Vec<String> = parts
            .map(|part| part.replace("~1", "/").replace("~0", "~"))
            .collect();
        if pointer.iter().any(String::is_empty) {
            return Err(format!("`{text}` has an empty part"));
        }
        Ok(ProtectedValue {
            path: path.to_owned(),
            pointer,
        })
    }

    /// Whether the entry is about every file that a glob means.
    pub fn is_glob(&self) -> bool {
        is_glob(&self.path)
    }

    /// The same value in one of the files that the glob means.
    #[must_use]
    pub fn in_file(&self, path: &str) -> Self {
        ProtectedValue {
            path: path.to_owned(),
            pointer: self.pointer.clone(),
        }
    }

    /// Whether the value is the same in two versions of the file; `None` stands for no file. One
    /// that cannot be read any more has lost its value.
    pub fn is_same(&self, before: Option<&[u8]>, now: Option<&[u8]>) -> bool {
        if before == now {
            return true;
        }
        match (self.values(before), self.values(now)) {
            (Some(before), Some(now)) => before == now,
            // Nobody can say what it was: then nothing about it may change.
            (None, _) | (_, None) => false,
        }
    }

    /// The values that are meant, by their places.
    fn values(&self, file: Option<&[u8]>) -> Option<BTreeMap<String, Value>> {
        let Some(file) = file else {
            return Some(BTreeMap::new());
        };
        let root: Value = match ValueFormat::of(&self.path)? {
            ValueFormat::Json => serde_json::from_slice(file).ok()?,
            ValueFormat::Toml => toml::from_str(std::str::from_utf8(file).ok()?).ok()?,
            ValueFormat::GoMod => directives(std::str::from_utf8(file).ok()?),
        };
        let mut found = BTreeMap::new();
        collect(&root, &self.pointer, String::new(), &mut found);
        Some(found)
    }
}

impl ValueFormat {
    fn of(path: &str) -> Option<Self> {
        let name = path.rsplit('/').next().unwrap_or(path);
        if name == "go.mod" {
            return Some(ValueFormat::GoMod);
        }
        match name.rsplit_once('.')?.1 {
            "json" => Some(ValueFormat::Json),
            "toml" => Some(ValueFormat::Toml),
            _ => None,
        }
    }
}

fn is_glob(path: &str) -> bool {
    path.contains(['*', '?', '[', '{'])
}

/// The directives of a go.mod, each with its lines, in one line or in brackets.
fn directives(text: &str) -> Value {
    let mut found: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    let mut open: Option<&str> = None;
    for line in text.lines() {
        let line = line.split("//").next().unwrap_or_default().trim();
        let words = line.split_whitespace().collect::<Vec<_>>();
        match (open, words.as_slice()) {
            (_, []) => {}
            (Some(_), [")"]) => open = None,
            (Some(name), words) => found.entry(name).or_default().push(words.join(" ")),
            (None, [name, "("]) => open = Some(name),
            (None, [word]) if word.ends_with('(') => open = Some(word.trim_end_matches('(')),
            (None, [name, rest @ ..]) => found.entry(name).or_default().push(rest.join(" ")),
        }
    }
    let lists = found.into_iter().map(|(name, mut lines)| {
        lines.sort();
        (name.to_owned(), Value::from(lines))
    });
    Value::Object(lists.collect())
}

fn collect(value: &Value, pointer: &[String], place: String, found: &mut BTreeMap<String, Value>) {
    let Some((part, rest)) = pointer.split_first() else {
        found.insert(place, value.clone());
        return;
    };
    let is_meant = |key: &str| part == "*" || part == key;
    match value {
        Value::Object(map) => {
            for (key, value) in map.iter().filter(|(key, _)| is_meant(key)) {
                collect(value, rest, format!("{place}/{key}"), found);
            }
        }
        Value::Array(list) => {
            for (at, value) in list.iter().enumerate() {
                let at = at.to_string();
                if is_meant(&at) {
                    collect(value, rest, format!("{place}/{at}"), found);
                }
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn same(entry: &str, before: &str, now: &str) -> bool {
        let entry = ProtectedValue::parse(entry).unwrap();
        entry.is_same(Some(before.as_bytes()), Some(now.as_bytes()))
    }

    #[test]
    fn the_rest_may_change() {
        let scripts = "package.json:/scripts";
        let before = r#"{"scripts": {"test": "jest"}, "dependencies": {}}"#;
        let other = r#"{ "dependencies": {"left": "1"}, "scripts": {"test": "jest"} }"#;
        assert!(same(scripts, before, other));
        assert!(!same(scripts, before, r#"{"scripts": {"test": "true"}}"#));
        assert!(!same(
            scripts,
            before,
            r#"{"scripts": {"test": "jest", "pretest": "x"}}"#
        ));
        assert!(!same(scripts, before, "{}"));
        assert!(!same(scripts, "{}", before));
        assert!(same(scripts, "{}", r#"{"name": "x"}"#));
        assert!(!same(scripts, before, "{broken"));
        assert!(!same(scripts, "{broken", before));
        assert!(same(scripts, "{broken", "{broken"));
    }

    #[test]
    fn toml_and_any_key() {
        let pytest = "pyproject.toml:/tool/pytest";
        let before = "[project]\nname = 'x'\n[tool.pytest.ini_options]\naddopts = '-q'\n";
        let now = "[tool.pytest.ini_options]\naddopts = '-q'\n[project]\nname = 'x'\ndependencies = ['y']\n";
        assert!(same(pytest, before, now));
        assert!(!same(
            pytest,
            before,
            "[tool.pytest.ini_options]\naddopts = '-k nothing'\n"
        ));
        let any = "Cargo.toml:/bin/*/test";
        let before = "[[bin]]\nname = 'a'\n[[bin]]\nname = 'b'\ntest = true\n";
        assert!(same(
            any,
            before,
            "[[bin]]\nname = 'c'\n[[bin]]\nname = 'b'\ntest = true\n"
        ));
        assert!(!same(
            any,
            before,
            "[[bin]]\nname = 'a'\ntest = false\n[[bin]]\nname = 'b'\ntest = true\n"
        ));
    }

    #[test]
    fn directives_of_go() {
        let replace = "go.mod:/replace";
        let before = "module example.test/sums\n\ngo 1.19\n\nrequire a.test/x v1.0.0\n";
        let more = "module example.test/sums\n\ngo 1.21\n\nrequire (\n\ta.test/x v1.0.0\n\tb.test/y v1.0.0 // indirect\n)\n";
        assert!(same(replace, before, more));
        for line in [
            "replace a.test/x => ./x\n",
            "replace (\n\ta.test/x => ./x\n)\n",
            "replace(\n\ta.test/x => ./x\n)\n",
        ] {
            assert!(!same(replace, before, &format!("{before}{line}")), "{line}");
        }
        let one = format!("{before}replace a.test/x => ./x\n");
        let same_in_brackets = format!("{before}replace (\n\ta.test/x  =>  ./x // why\n)\n");
        assert!(same(replace, &one, &same_in_brackets));
        assert!(!same(
            "go.mod:/ignore",
            before,
            &format!("{before}ignore ./sums\n")
        ));
    }

    #[test]
    fn a_file_that_comes_or_goes() {
        let entry = ProtectedValue::parse("package.json:/scripts").unwrap();
        assert!(!entry.is_same(None, Some(br#"{"scripts": {}}"#)));
        assert!(entry.is_same(None, Some(b"{}")));
        assert!(!entry.is_same(Some(br#"{"scripts": {}}"#), None));
        assert!(entry.is_same(None, None));
    }

    #[test]
    fn entries() {
        for text in [
            "package.json:/a~1b/*",
            "a/b/pyproject.toml:/tool/pytest",
            "**/Cargo.toml:/lib/test",
            "sub/go.mod:/replace",
        ] {
            assert_eq!(ProtectedValue::parse(text).unwrap().to_string(), text);
        }
        for (text, words) in [
            ("package.json", "a place in it"),
            ("package.json:/", "an empty part"),
            ("/etc/x.json:/a", "a file of the project"),
            ("../x.json:/a", "a file of the project"),
            ("setup.cfg:/tool", "neither JSON nor TOML"),
            ("[/x.json:/a", "unclosed"),
        ] {
            let error = ProtectedValue::parse(text).unwrap_err();
            assert!(error.contains(words), "{error}");
        }
    }
}
