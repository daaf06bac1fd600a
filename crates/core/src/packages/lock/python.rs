//! uv.lock, poetry.lock and pdm.lock.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use super::{LockedPackage, LockedPackages, host_of, only, registry_at, toml_packages};
use crate::packages::source::{PackageSource, python_name};

pub(super) fn parse(text: &str) -> Option<LockedPackages> {
    let root: Value = toml::from_str(text).ok()?;
    let mut found = LockedPackages {
        is_flat: true,
        ..LockedPackages::default()
    };
    for (name, entry) in toml_packages(&root)? {
        let name = python_name(name);
        let (source, is_local) = source_of(entry);
        let mut package = LockedPackage {
            sources: [source].into(),
            rest: only(
                entry,
                &[
                    "source", "path", "url", "git", "ref", "revision", "editable",
                ],
            ),
            is_local,
            ..LockedPackage::default()
        };
        let archives = ["sdist", "wheels", "files"].iter();
        let archives = archives.filter_map(|key| entry.get(*key));
        // Older versions of poetry have them in a table of their own.
        let beside = root.pointer("/metadata/files").and_then(Value::as_object);
        let beside = beside
            .into_iter()
            .flatten()
            .filter(|(it, _)| python_name(it) == name)
            .map(|(_, files)| files);
        for archive in archives.chain(beside).flat_map(each) {
            add_archive(&name, archive, &mut package)?;
        }
        let version = entry.get("version").and_then(Value::as_str);
        found.add(&name, version.unwrap_or_default(), package)?;
    }
    Some(found)
}

/// A table, or each of a list of them.
fn each(value: &Value) -> Vec<&Value> {
    match value {
        Value::Array(list) => list.iter().collect(),
        value => vec![value],
    }
}

fn add_archive(name: &str, archive: &Value, package: &mut LockedPackage) -> Option<()> {
    let text = |key: &str| archive.get(key).and_then(Value::as_str);
    if let Some(path) = text("path") {
        package.sources.insert(PackageSource::other(path));
    }
    if let Some(url) = text("url") {
        package.sources.insert(host_of(url));
    }
    let place = text("url")
        .or_else(|| text("file"))
        .or_else(|| text("filename"))
        .or_else(|| text("path"))?;
    let path = place.split(['#', '?']).next().unwrap_or(place);
    let file = path.rsplit('/').next().unwrap_or(path);
    // On the host of an index anybody has files: this one must be of the package.
    let is_own = python_name(file).starts_with(&format!("{name}-"));
    let is_registry = package.sources.iter().all(PackageSource::is_registry);
    if is_registry && !is_own {
        package.sources.insert(PackageSource::other(place));
    }
    let digest = text("hash").map_or_else(|| format!("at:{place}"), str::to_owned);
    let digests: &mut BTreeMap<String, BTreeSet<String>> = &mut package.files;
    digests.entry(file.to_owned()).or_default().insert(digest);
    Some(())
}

/// Where it comes from, and whether that is a folder of the project.
fn source_of(entry: &Map<String, Value>) -> (PackageSource, bool) {
    let Some(source) = entry.get("source") else {
        let place = ["path", "url", "git"].iter();
        let mut place = place.filter_map(|key| entry.get(*key).and_then(Value::as_str));
        let source = place
            .next()
            .map_or(PackageSource::USUAL, PackageSource::other);
        return (source, false);
    };
    if let Some(place) = source.get("registry").and_then(Value::as_str) {
        return (registry_at(place), false);
    }
    // An index of its own, as poetry writes it.
    if source.get("type").and_then(Value::as_str) == Some("legacy")
        && let Some(place) = source.get("url").and_then(Value::as_str)
    {
        return (registry_at(place), false);
    }
    let folders = ["virtual", "editable", "directory"];
    let is_local = folders.iter().any(|key| source.get(*key).is_some());
    (PackageSource::Other(source.to_string()), is_local)
}
