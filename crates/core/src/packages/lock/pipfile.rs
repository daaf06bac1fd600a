//! Pipfile.lock.

use std::collections::BTreeMap;

use serde_json::Value;

use super::{LockedPackage, LockedPackages, only, registry_at};
use crate::packages::source::{PackageSource, python_name};

pub(super) fn parse(text: &str) -> Option<LockedPackages> {
    let root: Value = serde_json::from_str(text).ok()?;
    let sources = sources_of(&root)?;
    let mut found = LockedPackages {
        is_flat: true,
        ..LockedPackages::default()
    };
    let tables = root.as_object()?.iter().filter(|(key, _)| *key != "_meta");
    for (name, entry) in tables.filter_map(|(_, table)| table.as_object()).flatten() {
        let entry = entry.as_object()?;
        let text = |key: &str| entry.get(key).and_then(Value::as_str);
        let elsewhere = ["path", "git", "file"].iter().find_map(|key| text(key));
        let index = text("index");
        let place = match index {
            Some(index) => sources.iter().find(|(name, _)| name == index),
            None => sources.first(),
        };
        let source = match (elsewhere, place) {
            (Some(place), _) => PackageSource::other(place),
            (None, Some((_, place))) => registry_at(place),
            (None, None) => index.map_or(PackageSource::USUAL, PackageSource::other),
        };
        // The list says which of a version's archives may be taken, without their names.
        let hashes = entry.get("hashes").and_then(Value::as_array);
        let hashes = hashes.into_iter().flatten().filter_map(Value::as_str);
        let files: BTreeMap<_, _> = hashes
            .map(|it| (it.to_owned(), [it.to_owned()].into()))
            .collect();
        let package = LockedPackage {
            sources: [source].into(),
            files,
            rest: only(entry, &["editable", "ref", "subdirectory"]),
            ..LockedPackage::default()
        };
        let version = text("version").unwrap_or_default();
        found.add(&python_name(name), version, package)?;
    }
    Some(found)
}

/// The indices by name, the one that is asked first in front.
fn sources_of(root: &Value) -> Option<Vec<(String, String)>> {
    let Some(list) = root.pointer("/_meta/sources") else {
        return Some(Vec::new());
    };
    let sources = list.as_array()?.iter().map(|source| {
        let text = |key: &str| source.get(key).and_then(Value::as_str);
        Some((text("name")?.to_owned(), text("url")?.to_owned()))
    });
    sources.collect()
}
