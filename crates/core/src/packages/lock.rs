//! Lock files: what a tool found for a manifest.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::source::{PackageSource, python_name};
use super::{NamedPackages, PackageFile, PackageManager};

pub(super) fn read(file: &PackageFile<'_>, bytes: &[u8]) -> Option<NamedPackages> {
    let text = std::str::from_utf8(bytes).ok()?;
    let mut named = NamedPackages::default();
    match file.name() {
        "package-lock.json" | "npm-shrinkwrap.json" => {
            let root: Value = serde_json::from_str(text).ok()?;
            for (place, entry) in root.get("packages")?.as_object()? {
                if let Some((_, name)) = place.rsplit_once("node_modules/") {
                    named.add(name, npm_source(name, entry));
                }
            }
        }
        "yarn.lock" => yarn(text, &mut named),
        "Cargo.lock" => {
            for (name, entry) in toml_packages(text)? {
                let source = match entry.get("source").and_then(Value::as_str) {
                    None => PackageSource::other("a folder of the project"),
                    Some(text) => cargo_source(text),
                };
                named.add(&name.replace('_', "-"), source);
            }
        }
        "poetry.lock" | "uv.lock" | "pdm.lock" => {
            for (name, entry) in toml_packages(text)? {
                named.add(&python_name(&name), python_source(&entry));
            }
        }
        "Pipfile.lock" => {
            let root: Value = serde_json::from_str(text).ok()?;
            for table in ["default", "develop"] {
                let packages = root.get(table).and_then(Value::as_object);
                for (name, entry) in packages.into_iter().flatten() {
                    let elsewhere = ["path", "git", "file"].iter().find_map(|key| {
                        let place = entry.get(*key)?.as_str()?;
                        Some(PackageSource::other(place))
                    });
                    let source = elsewhere.unwrap_or(PackageSource::USUAL);
                    named.add(&python_name(name), source);
                }
            }
        }
        "composer.lock" => {
            let root: Value = serde_json::from_str(text).ok()?;
            for table in ["packages", "packages-dev"] {
                let packages = root.get(table).and_then(Value::as_array);
                for entry in packages.into_iter().flatten() {
                    let Some(name) = entry.get("name").and_then(Value::as_str) else {
                        continue;
                    };
                    let kind = entry.pointer("/dist/type").and_then(Value::as_str);
                    let place = entry.pointer("/source/url").or(entry.pointer("/dist/url"));
                    let place = place.and_then(Value::as_str).unwrap_or_default();
                    let source = match kind {
                        Some("path") | None => PackageSource::other(place),
                        Some(_) => PackageSource::USUAL,
                    };
                    named.add(&name.to_lowercase(), source);
                }
            }
        }
        "Gemfile.lock" => gems(text, &mut named),
        "go.sum" => {
            for name in text.lines().filter_map(|line| line.split(' ').next()) {
                named.add(name, PackageSource::USUAL);
            }
        }
        _ => return None,
    }
    Some(named)
}

/// An entry of package-lock.json.
fn npm_source(name: &str, entry: &Value) -> PackageSource {
    let text = |key: &str| entry.get(key).and_then(Value::as_str);
    let resolved = text("resolved").unwrap_or_default();
    if entry.get("link").and_then(Value::as_bool) == Some(true) {
        return PackageSource::other(resolved);
    }
    if let Some(other) = text("name").filter(|other| *other != name) {
        return PackageSource::Other(format!("npm:{other}"));
    }
    if resolved.is_empty() {
        return PackageSource::USUAL;
    }
    // A registry has its tarballs under the name of the package.
    let Some((place, _)) = resolved.split_once("/-/") else {
        return PackageSource::other(resolved);
    };
    let encoded = name.replace('/', "%2f");
    let registry = place
        .strip_suffix(name)
        .or_else(|| place.strip_suffix(encoded.as_str()))
        .filter(|place| place.starts_with("http"));
    match registry {
        Some(registry) => PackageSource::Registry(Some(registry.trim_end_matches('/').to_owned())),
        None => PackageSource::other(resolved),
    }
}

/// The source of a package in Cargo.lock, without the commit.
fn cargo_source(text: &str) -> PackageSource {
    let place = text.split('#').next().unwrap_or(text);
    let registry = place
        .strip_prefix("registry+")
        .or_else(|| place.strip_prefix("sparse+"));
    match registry {
        Some(place) => PackageSource::Registry(Some(place.to_owned())),
        None => PackageSource::other(place),
    }
}

/// The source of a package in a lock file of Python.
fn python_source(entry: &Value) -> PackageSource {
    let Some(source) = entry.get("source") else {
        let path = entry.get("path").and_then(Value::as_str);
        return path.map_or(PackageSource::USUAL, PackageSource::other);
    };
    if let Some(place) = source.get("registry").and_then(Value::as_str) {
        return PackageSource::Registry(Some(place.to_owned()));
    }
    PackageSource::Other(source.to_string())
}

/// The list of packages that lock files in TOML have.
fn toml_packages(text: &str) -> Option<Vec<(String, Value)>> {
    let root: Value = toml::from_str(text).ok()?;
    let list = root.get("package")?.as_array()?.clone();
    let named = list.into_iter().filter_map(|entry| {
        let name = entry.get("name")?.as_str()?.to_owned();
        Some((name, entry))
    });
    Some(named.collect())
}

/// The headers of yarn.lock: `"name@range", name@other:`.
fn yarn(text: &str, named: &mut NamedPackages) {
    let headers = text
        .lines()
        .filter(|line| !line.starts_with([' ', '#']))
        .filter_map(|line| line.strip_suffix(':'));
    for one in headers.flat_map(|header| header.split(", ")) {
        let one = one.trim_matches('"');
        // The first sign may belong to the name.
        let Some(at) = one.char_indices().skip(1).find(|(_, c)| *c == '@') else {
            continue;
        };
        let (name, range) = (&one[..at.0], &one[at.0 + 1..]);
        named.add(name, PackageSource::of_npm(name, range));
    }
}

/// The sections of Gemfile.lock.
fn gems(text: &str, named: &mut NamedPackages) {
    let (mut section, mut remote) = ("", "");
    for line in text.lines() {
        if !line.starts_with(' ') {
            (section, remote) = (line, "");
        } else if let Some(place) = line.trim().strip_prefix("remote: ") {
            remote = place;
        } else if let Some(rest) = line.strip_prefix("    ").filter(|it| !it.starts_with(' ')) {
            let name = rest.split(' ').next().unwrap_or(rest);
            let source = match section {
                "GEM" => PackageSource::Registry(Some(remote.to_owned())),
                "PATH" | "GIT" => PackageSource::other(remote),
                _ => continue,
            };
            named.add(name, source);
        }
    }
}

/// Whether a lock file still has everything that the base's had.
pub(super) fn keeps(file: &PackageFile<'_>, base: &[u8], now: &[u8]) -> bool {
    let (Ok(base), Ok(now)) = (std::str::from_utf8(base), std::str::from_utf8(now)) else {
        return false;
    };
    let (before, after) = match file.name() {
        "package-lock.json" | "npm-shrinkwrap.json" => (npm_entries(base), npm_entries(now)),
        "Cargo.lock" | "poetry.lock" | "uv.lock" | "pdm.lock" => {
            (toml_entries(file, base), toml_entries(file, now))
        }
        _ => (Some(line_entries(base)), Some(line_entries(now))),
    };
    let (Some(before), Some(after)) = (before, after) else {
        return false;
    };
    before.is_subset(&after) && adds_from_registries(file, base, now)
}

/// Formats of which only the manifests are read.
pub(super) fn is_opaque(file: &PackageFile<'_>) -> bool {
    matches!(file.name(), "pnpm-lock.yaml" | "bun.lock" | "pdm.lock")
}

/// Whether all that is new comes from where packages usually do.
fn adds_from_registries(file: &PackageFile<'_>, base: &str, now: &str) -> bool {
    let (Some(before), Some(after)) = (read(file, base.as_bytes()), read(file, now.as_bytes()))
    else {
        let known = line_entries(base);
        let is_place = |line: &String| {
            ["file:", "link:", "portal:"]
                .iter()
                .any(|it| line.contains(it))
        };
        return !line_entries(now).difference(&known).any(is_place);
    };
    after.asked.iter().all(|(name, sources)| {
        let known = before.asked.get(name);
        sources
            .iter()
            .filter(|source| !known.is_some_and(|known| known.contains(source)))
            .all(|source| file.may_add(source))
    })
}

/// What npm would install, each with its place.
fn npm_entries(text: &str) -> Option<BTreeSet<String>> {
    let root: Value = serde_json::from_str(text).ok()?;
    let packages = root.get("packages")?.as_object()?;
    let installed = packages.iter().filter(|(place, _)| !place.is_empty());
    let installed = installed.map(|(place, entry)| {
        let text = |key: &str| entry.get(key).and_then(Value::as_str).unwrap_or_default();
        let (version, resolved) = (text("version"), text("resolved"));
        format!("{place} {version} {resolved} {}", text("integrity"))
    });
    Some(installed.collect())
}

/// What a lock file in TOML pins. Packages of the project itself have no checksum: what they depend
/// on may grow.
fn toml_entries(file: &PackageFile<'_>, text: &str) -> Option<BTreeSet<String>> {
    let entries = toml_packages(text)?.into_iter().map(|(name, entry)| {
        let keys: &[&str] = match file.manager {
            PackageManager::Cargo => &["version", "source", "checksum"],
            _ => &["version", "source"],
        };
        let values: BTreeMap<&str, Option<&Value>> =
            keys.iter().map(|key| (*key, entry.get(*key))).collect();
        format!("{name} {values:?}")
    });
    Some(entries.collect())
}

fn line_entries(text: &str) -> BTreeSet<String> {
    let lines = text.lines().map(str::trim);
    lines
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .map(str::to_owned)
        .collect()
}
