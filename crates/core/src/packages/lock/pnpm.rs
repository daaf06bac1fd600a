//! pnpm-lock.yaml, as pnpm 9 and later write it.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use super::npm::tarball_of;
use super::{LockedPackage, LockedPackages, without, yaml};
use crate::packages::source::PackageSource;

pub(super) fn parse(text: &str) -> Option<LockedPackages> {
    let root = yaml::parse(text)?;
    let version = root.get("lockfileVersion")?.as_str()?;
    if !version.starts_with("9.") {
        return None;
    }
    let mut found = LockedPackages::default();
    let nothing = Map::new();
    for (key, value) in root.as_object()? {
        let table = value.as_object().unwrap_or(&nothing);
        match key.as_str() {
            "lockfileVersion" | "catalogs" | "time" => {}
            "importers" => {
                for (folder, asks) in table {
                    add_answers(&mut found, &format!("folder {folder}"), asks);
                }
            }
            "snapshots" => {
                for (who, asks) in table {
                    add_answers(&mut found, without_peers(who), asks);
                }
            }
            "packages" => {
                for (key, entry) in table {
                    add_package(&mut found, key, entry.as_object()?)?;
                }
            }
            _ => {
                found.settings.insert(key.clone(), value.clone());
            }
        }
    }
    Some(found)
}

fn add_package(found: &mut LockedPackages, key: &str, entry: &Map<String, Value>) -> Option<()> {
    let at = key.char_indices().skip(1).find(|(_, c)| *c == '@')?.0;
    let (name, version) = (&key[..at], &key[at + 1..]);
    let resolution = entry.get("resolution")?.as_object()?;
    let text = |key: &str| resolution.get(key).and_then(Value::as_str);
    let asked = PackageSource::of_npm(name, version);
    let is_archive = resolution
        .keys()
        .all(|key| matches!(key.as_str(), "integrity" | "tarball"));
    let source = if !asked.is_registry() {
        asked
    } else if is_archive {
        tarball_of(name, version, text("tarball").unwrap_or_default())
    } else {
        PackageSource::Other(Value::Object(resolution.clone()).to_string())
    };
    let digests: BTreeSet<String> = text("integrity")
        .into_iter()
        .flat_map(str::split_whitespace)
        .map(str::to_owned)
        .collect();
    let package = LockedPackage {
        sources: [source].into(),
        files: BTreeMap::from([(String::new(), digests)]),
        rest: without(entry, &["resolution", "engines", "deprecated"]),
        ..LockedPackage::default()
    };
    found.add(name, version, package)
}

/// What one of them asks for, and which version that is.
fn add_answers(found: &mut LockedPackages, who: &str, asks: &Value) {
    let tables = ["dependencies", "devDependencies", "optionalDependencies"];
    let tables = tables.iter().filter_map(|key| asks.get(*key)?.as_object());
    for (name, answer) in tables.flatten() {
        let version = answer.get("version").unwrap_or(answer).as_str();
        let version = without_peers(version.unwrap_or_default()).to_owned();
        let asked = format!("{name} for {who}");
        found.answers.entry(asked).or_default().insert(version);
    }
}

/// The version without those of the packages that it works with; patches count.
fn without_peers(version: &str) -> &str {
    if version.contains("patch_hash") {
        return version;
    }
    version.split('(').next().unwrap_or(version)
}
