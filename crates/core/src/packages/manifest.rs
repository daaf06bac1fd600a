//! Manifests: which packages people ask for, and what one version adds to another.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::source::{PackageSource, python_name};
use super::{NamedPackages, PackageFile, PackageFormat, PackageManager};

/// Where a kind of manifest names packages; `*` stands for any key.
struct ManifestShape {
    /// Tables from names to requirements.
    tables: &'static [&'static [&'static str]],
    /// Lists of requirements.
    lists: &'static [&'static [&'static str]],
    /// The manifest's own name, the first that is there.
    own: &'static [&'static [&'static str]],
}

fn shape_of(file: &PackageFile<'_>) -> ManifestShape {
    match (file.manager, file.name()) {
        (PackageManager::Npm, _) => ManifestShape {
            tables: &[
                &["dependencies"],
                &["devDependencies"],
                &["optionalDependencies"],
                &["peerDependencies"],
            ],
            lists: &[],
            own: &[&["name"]],
        },
        (PackageManager::Cargo, _) => ManifestShape {
            tables: &[
                &["dependencies"],
                &["dev-dependencies"],
                &["build-dependencies"],
                &["workspace", "dependencies"],
                &["target", "*", "dependencies"],
                &["target", "*", "dev-dependencies"],
                &["target", "*", "build-dependencies"],
            ],
            lists: &[],
            own: &[&["package", "name"]],
        },
        (PackageManager::Composer, _) => ManifestShape {
            tables: &[&["require"], &["require-dev"]],
            lists: &[],
            own: &[&["name"]],
        },
        (_, "Pipfile") => ManifestShape {
            tables: &[&["packages"], &["dev-packages"]],
            lists: &[],
            own: &[],
        },
        _ => ManifestShape {
            tables: &[
                &["tool", "poetry", "dependencies"],
                &["tool", "poetry", "dev-dependencies"],
                &["tool", "poetry", "group", "*", "dependencies"],
                &["tool", "uv", "sources"],
            ],
            lists: &[
                &["project", "dependencies"],
                &["project", "optional-dependencies", "*"],
                &["dependency-groups", "*"],
                &["tool", "uv", "dev-dependencies"],
                &["tool", "pdm", "dev-dependencies", "*"],
            ],
            own: &[&["project", "name"], &["tool", "poetry", "name"]],
        },
    }
}

fn is_toml(file: &PackageFile<'_>) -> bool {
    matches!(file.manager, PackageManager::Cargo | PackageManager::Python)
}

fn parse(file: &PackageFile<'_>, bytes: &[u8]) -> Option<Value> {
    let text = std::str::from_utf8(bytes).ok()?;
    let text = text.trim_start_matches('\u{feff}');
    if is_toml(file) {
        toml::from_str(text).ok()
    } else {
        serde_json::from_str(text).ok()
    }
}

/// Everything that a pattern of keys means.
fn find<'v>(value: &'v Value, keys: &[&str]) -> Vec<&'v Value> {
    let Some((key, rest)) = keys.split_first() else {
        return vec![value];
    };
    let Value::Object(map) = value else {
        return Vec::new();
    };
    let meant = map.iter().filter(|(it, _)| *key == "*" || it == key);
    meant.flat_map(|(_, value)| find(value, rest)).collect()
}

/// How a name is compared.
fn known_as(file: &PackageFile<'_>, name: &str) -> String {
    match file.manager {
        PackageManager::Python => python_name(name),
        PackageManager::Composer => name.to_lowercase(),
        // Cargo takes both for the same.
        PackageManager::Cargo => name.replace('_', "-"),
        _ => name.to_owned(),
    }
}

/// Where an entry of a table takes a package from. `None`: it does not say.
fn source_of(file: &PackageFile<'_>, name: &str, value: &Value) -> Option<PackageSource> {
    match (file.manager, value) {
        (PackageManager::Npm, Value::String(text)) => Some(PackageSource::of_npm(name, text)),
        // Several places for one name, each with a condition.
        (_, Value::Array(list)) => {
            let mut sources = list
                .iter()
                .filter_map(|it| PackageSource::of_table(name, it));
            let other = sources.find(|source| !source.is_registry());
            Some(other.unwrap_or(PackageSource::USUAL))
        }
        (_, value) => PackageSource::of_table(name, value),
    }
}

pub(super) fn read(file: &PackageFile<'_>, bytes: &[u8]) -> Option<NamedPackages> {
    let root = parse(file, bytes)?;
    let shape = shape_of(file);
    let mut named = NamedPackages::default();
    let own = shape.own.iter().flat_map(|keys| find(&root, keys));
    let mut own = own.filter_map(Value::as_str);
    named.own = own.next().map(|name| known_as(file, name));
    if matches!(file.manager, PackageManager::Npm | PackageManager::Composer) {
        named.programs = programs_of(&root);
        let scripts = root.get("scripts").and_then(Value::as_object);
        let scripts = scripts.into_iter().flatten();
        named.scripts = scripts.flat_map(|(_, script)| lines_of(script)).collect();
    }
    let tables = shape.tables.iter().flat_map(|keys| find(&root, keys));
    for (name, value) in tables.filter_map(Value::as_object).flatten() {
        if let Some(source) = source_of(file, name, value) {
            named.add(&known_as(file, name), source);
        }
    }
    let lists = shape.lists.iter().flat_map(|keys| find(&root, keys));
    for text in lists.filter_map(Value::as_array).flatten() {
        let requirement = text.as_str().and_then(PackageSource::of_requirement);
        if let Some((name, source)) = requirement {
            named.add(&name, source);
        }
    }
    Some(named)
}

/// The programs that a manifest of npm says it brings.
fn programs_of(root: &Value) -> BTreeSet<String> {
    let own = root.get("name").and_then(Value::as_str).unwrap_or_default();
    let own = own.rsplit('/').next().unwrap_or(own);
    match root.get("bin") {
        Some(Value::String(_)) => [own.to_owned()].into(),
        Some(Value::Object(map)) => map.keys().cloned().collect(),
        _ => BTreeSet::new(),
    }
}

/// A script, or a list of them.
fn lines_of(script: &Value) -> Vec<String> {
    match script {
        Value::String(line) => vec![line.clone()],
        Value::Array(list) => list.iter().flat_map(lines_of).collect(),
        _ => Vec::new(),
    }
}

/// The registries that a manifest tells its tool to ask.
pub(super) fn registries(file: &PackageFile<'_>, bytes: &[u8]) -> Vec<String> {
    const LISTS: [&[&str]; 5] = [
        &["source"],
        &["repositories"],
        &["tool", "uv", "index"],
        &["tool", "poetry", "source"],
        &["tool", "pdm", "source"],
    ];
    let places: Vec<String> = match file.format {
        PackageFormat::Lock => Vec::new(),
        PackageFormat::Manifest => {
            let Some(root) = parse(file, bytes) else {
                return Vec::new();
            };
            let lists = LISTS.iter().flat_map(|keys| find(&root, keys));
            let entries = lists.flat_map(|list| match list {
                Value::Array(list) => list.iter().collect(),
                Value::Object(map) => map.values().collect(),
                _ => Vec::new(),
            });
            let places = entries.filter_map(|it| it.get("url")?.as_str().map(str::to_owned));
            places.collect()
        }
        PackageFormat::ManifestLines => {
            let text = std::str::from_utf8(bytes).unwrap_or_default();
            let lines = text.lines().map(str::trim);
            let places = lines.filter_map(|line| {
                let place = line
                    .strip_prefix("source ")
                    .or_else(|| line.strip_prefix("--index-url "))
                    .or_else(|| line.strip_prefix("--extra-index-url "))?;
                Some(place.trim_matches(['"', '\'', ' ']).to_owned())
            });
            places.collect()
        }
    };
    let places = places.iter().map(|place| place.trim_end_matches('/'));
    let places =
        places.filter(|place| place.starts_with("https://") || place.starts_with("http://"));
    places.map(str::to_owned).collect()
}

/// The base's manifest with the packages that the other one adds. `None`: nothing is added, or one
/// of them cannot be read.
pub(super) fn with_additions(file: &PackageFile<'_>, base: &[u8], now: &[u8]) -> Option<Vec<u8>> {
    let (before, after) = (parse(file, base)?, parse(file, now)?);
    let shape = shape_of(file);
    let mut merged = before.clone();
    for keys in shape.tables.iter().chain(shape.lists) {
        add_new(file, &mut merged, &after, keys);
    }
    if merged == before {
        return None;
    }
    if merged == after {
        // As it was written: a guard may well check how.
        return Some(now.to_vec());
    }
    if is_toml(file) {
        return toml::to_string(&merged).ok().map(String::into_bytes);
    }
    let mut bytes = serde_json::to_vec_pretty(&merged).ok()?;
    bytes.push(b'\n');
    Some(bytes)
}

/// Takes over what a pattern of keys names in the other version and not in this one.
fn add_new(file: &PackageFile<'_>, base: &mut Value, now: &Value, keys: &[&str]) {
    if let Some((key, rest)) = keys.split_first() {
        let (Value::Object(base), Value::Object(now)) = (base, now) else {
            return;
        };
        let meant = now.iter().filter(|(it, _)| *key == "*" || it == key);
        for (name, now) in meant {
            let is_new = !base.contains_key(name);
            let empty = match now {
                Value::Array(_) => Value::Array(Vec::new()),
                _ => Value::Object(Map::new()),
            };
            let place = base.entry(name.clone()).or_insert_with(|| empty.clone());
            add_new(file, place, now, rest);
            if is_new && *place == empty && *now != empty {
                base.remove(name);
            }
        }
        return;
    }
    match (base, now) {
        (Value::Object(base), Value::Object(now)) => {
            let known: BTreeSet<String> = base.keys().map(|name| known_as(file, name)).collect();
            for (name, value) in now {
                let source = source_of(file, name, value);
                let may_add = source.is_none_or(|source| file.may_add(&source));
                if may_add && !known.contains(&known_as(file, name)) {
                    base.insert(name.clone(), value.clone());
                }
            }
        }
        (Value::Array(base), Value::Array(now)) => {
            let read = |value: &Value| PackageSource::of_requirement(value.as_str()?);
            let known: BTreeSet<String> = base.iter().filter_map(|it| Some(read(it)?.0)).collect();
            let is_added = |(name, source): (String, PackageSource)| {
                !known.contains(&name) && file.may_add(&source)
            };
            for value in now {
                if read(value).is_some_and(is_added) {
                    base.push(value.clone());
                }
            }
        }
        _ => {}
    }
}

/// A manifest of lines: requirements.txt, go.mod, Gemfile.
pub(super) fn read_lines(file: &PackageFile<'_>, bytes: &[u8]) -> Option<NamedPackages> {
    let text = std::str::from_utf8(bytes).ok()?;
    let mut named = NamedPackages::default();
    match file.manager {
        PackageManager::Go => {
            let mut required = Vec::new();
            for line in go_lines(text) {
                match line {
                    GoLine::Module(name) => named.own = Some(name.to_owned()),
                    GoLine::Require(name, _) => required.push(name),
                    GoLine::Replace(name, other) => named.add(name, PackageSource::other(other)),
                    GoLine::Else => {}
                }
            }
            // What is replaced does not come from where it is required.
            for name in required {
                if !named.asked.contains_key(name) {
                    named.add(name, PackageSource::USUAL);
                }
            }
        }
        PackageManager::Bundler => {
            for (name, source) in text.lines().filter_map(gem_line) {
                named.add(name, source);
            }
        }
        _ => {
            for (name, source) in text.lines().filter_map(PackageSource::of_requirement) {
                named.add(&name, source);
            }
        }
    }
    Some(named)
}

/// The base's lines with those of the other version that ask for packages which the base does not
/// name.
pub(super) fn with_added_lines(file: &PackageFile<'_>, base: &[u8], now: &[u8]) -> Option<Vec<u8>> {
    let known = read_lines(file, base)?.asked;
    let text = std::str::from_utf8(now).ok()?;
    let mut added: Vec<String> = Vec::new();
    match file.manager {
        PackageManager::Go => {
            for line in go_lines(text) {
                let (name, line) = match line {
                    GoLine::Require(name, version) => (name, format!("require {name} {version}")),
                    GoLine::Replace(name, other) => (name, format!("replace {name} => {other}")),
                    GoLine::Module(_) | GoLine::Else => continue,
                };
                if !known.contains_key(name) {
                    added.push(line);
                }
            }
        }
        PackageManager::Bundler => {
            let is_added = |(name, source): (&str, PackageSource)| {
                !known.contains_key(name) && file.may_add(&source)
            };
            let lines = text.lines();
            let lines = lines.filter(|line| gem_line(line).is_some_and(is_added));
            added.extend(lines.map(|line| line.trim().to_owned()));
        }
        _ => {
            let is_added = |(name, source): (String, PackageSource)| {
                !known.contains_key(&name) && file.may_add(&source)
            };
            let lines = text.lines();
            let lines =
                lines.filter(|line| PackageSource::of_requirement(line).is_some_and(is_added));
            added.extend(lines.map(str::to_owned));
        }
    }
    if added.is_empty() {
        return None;
    }
    if keeps_lines(base, text, added.len()) {
        return Some(now.to_vec());
    }
    let mut merged = base.to_vec();
    if !merged.ends_with(b"\n") {
        merged.push(b'\n');
    }
    for line in added {
        merged.extend_from_slice(line.as_bytes());
        merged.push(b'\n');
    }
    Some(merged)
}

/// Whether the text is the base with so many further lines, and nothing else.
fn keeps_lines(base: &[u8], now: &str, more: usize) -> bool {
    let Ok(base) = std::str::from_utf8(base) else {
        return false;
    };
    let lines = |text: &str| -> Vec<String> {
        let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
        lines.map(str::to_owned).collect()
    };
    let (before, after) = (lines(base), lines(now));
    let mut rest = after.iter();
    let all = before.iter().all(|line| rest.any(|it| it == line));
    // `require (` and `)` may be new around them.
    let brackets = after.len().saturating_sub(before.len() + more);
    all && brackets <= 2
}

/// What a line of go.mod says.
enum GoLine<'t> {
    Module(&'t str),
    Require(&'t str, &'t str),
    Replace(&'t str, &'t str),
    Else,
}

fn go_lines(text: &str) -> Vec<GoLine<'_>> {
    let mut block = "";
    let mut found = Vec::new();
    for line in text.lines() {
        let line = line.split("//").next().unwrap_or(line).trim();
        if line == ")" {
            block = "";
            continue;
        }
        if let Some(word) = line.strip_suffix('(') {
            block = word.trim();
            continue;
        }
        let (word, rest) = match block {
            "" => line.split_once(char::is_whitespace).unwrap_or((line, "")),
            block => (block, line),
        };
        let rest = rest.trim();
        found.push(match word {
            "module" => GoLine::Module(rest.trim_matches('"')),
            "require" => rest
                .split_once(char::is_whitespace)
                .map_or(GoLine::Else, |(name, version)| {
                    GoLine::Require(name, version.trim())
                }),
            "replace" => rest.split_once("=>").map_or(GoLine::Else, |(name, other)| {
                let name = name.split_whitespace().next().unwrap_or_default();
                GoLine::Replace(name, other.trim())
            }),
            _ => GoLine::Else,
        });
    }
    found
}

/// A line `gem "name", …`.
fn gem_line(line: &str) -> Option<(&str, PackageSource)> {
    let rest = line.trim().strip_prefix("gem")?;
    let rest = rest.trim_start_matches([' ', '(', '\t']);
    let quote = rest.chars().next().filter(|c| matches!(c, '"' | '\''))?;
    let (name, rest) = rest[1..].split_once(quote)?;
    let is_elsewhere = ["path", "git", "github", "source", "gist"]
        .iter()
        .any(|key| rest.contains(&format!("{key}:")) || rest.contains(&format!(":{key} ")));
    let source = if is_elsewhere {
        PackageSource::other(rest.trim_start_matches([',', ' ']))
    } else {
        PackageSource::USUAL
    };
    Some((name, source))
}
