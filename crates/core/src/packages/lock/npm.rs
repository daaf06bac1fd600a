//! package-lock.json and npm-shrinkwrap.json.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use super::places::PackagePlaces;
use super::{LockedPackage, LockedPackages, OUTSIDE, any_leads_out, without};
use crate::packages::source::PackageSource;

/// What has a place of its own in a record, or says nothing of what is installed.
const TOLD: [&str; 15] = [
    "name",
    "version",
    "resolved",
    "integrity",
    "bin",
    "link",
    "inBundle",
    "dev",
    "devOptional",
    "optional",
    "peer",
    "extraneous",
    "license",
    "funding",
    "deprecated",
];

pub(super) fn parse(text: &str) -> Option<LockedPackages> {
    let root: Value = serde_json::from_str(text).ok()?;
    let mut found = LockedPackages::default();
    let mut places = PackagePlaces::default();
    for (place, entry) in root.get("packages")?.as_object()? {
        let entry = entry.as_object()?;
        let (name, package) = match place.rsplit_once("node_modules/") {
            Some((_, name)) => (name.to_owned(), package_of(name, entry)),
            // What is at the root is the manifest.
            None if place.is_empty() => {
                places.add("", String::new(), entry);
                continue;
            }
            None => (format!("./{place}"), part_of_project(place, entry)),
        };
        let version = entry.get("version").and_then(Value::as_str);
        let version = version.unwrap_or_default();
        let origin = if package.is_bundled { " (bundled)" } else { "" };
        places.add(place, format!("{name} {version}{origin}"), entry);
        found.add(&name, version, package)?;
    }
    found.answers = places.answers();
    if let Some(tree) = root.get("dependencies") {
        older_tree(tree, &mut found)?;
    }
    Some(found)
}

/// The tree for versions of npm before 7.
fn older_tree(tree: &Value, found: &mut LockedPackages) -> Option<()> {
    for (name, entry) in tree.as_object()? {
        let entry = entry.as_object()?;
        let version = entry.get("version").and_then(Value::as_str)?;
        let mut package = package_of(name, entry);
        package.executables = None;
        let asked = PackageSource::of_npm(name, version);
        if !asked.is_registry() {
            package.sources = [asked].into();
        }
        package.is_bundled = entry.get("bundled").and_then(Value::as_bool) == Some(true);
        // Without the trees below: their packages count by themselves.
        package.rest = entry.get("requires").cloned().unwrap_or_default();
        found.add(name, version, package)?;
        if let Some(below) = entry.get("dependencies") {
            older_tree(below, found)?;
        }
    }
    Some(())
}

fn part_of_project(place: &str, entry: &Map<String, Value>) -> LockedPackage {
    LockedPackage {
        sources: [PackageSource::other(place)].into(),
        executables: Some(programs_of(place, entry)),
        is_local: true,
        ..LockedPackage::default()
    }
}

fn package_of(name: &str, entry: &Map<String, Value>) -> LockedPackage {
    let text = |key: &str| entry.get(key).and_then(Value::as_str).unwrap_or_default();
    let flag = |key: &str| entry.get(key).and_then(Value::as_bool) == Some(true);
    let mut digests: BTreeSet<String> = text("integrity")
        .split_whitespace()
        .map(str::to_owned)
        .collect();
    if digests.is_empty() && !text("resolved").is_empty() {
        digests.insert(format!("at:{}", text("resolved")));
    }
    let files = if digests.is_empty() {
        BTreeMap::new()
    } else {
        [(String::new(), digests)].into()
    };
    let writes = ["scripts", "directories", "gypfile"];
    let oddity = if writes.iter().any(|key| entry.contains_key(*key)) {
        Some("has scripts in the lock file")
    } else {
        entry
            .get("bin")
            .filter(|it| any_leads_out(it))
            .map(|_| OUTSIDE)
    };
    LockedPackage {
        sources: [source_of(name, entry)].into(),
        files,
        executables: (!flag("link")).then(|| programs_of(name, entry)),
        rest: without(entry, &TOLD),
        is_local: flag("link"),
        is_bundled: flag("inBundle"),
        oddity,
    }
}

/// The programs that npm makes for a package.
pub(super) fn programs_of(name: &str, entry: &Map<String, Value>) -> BTreeMap<String, String> {
    let own = name.rsplit('/').next().unwrap_or(name);
    match entry.get("bin") {
        Some(Value::String(file)) => [(own.to_owned(), file.clone())].into(),
        Some(Value::Object(map)) => map
            .iter()
            .map(|(program, file)| {
                let program = program.rsplit('/').next().unwrap_or(program);
                let file = file
                    .as_str()
                    .map_or_else(|| file.to_string(), str::to_owned);
                (program.to_owned(), file)
            })
            .collect(),
        _ => BTreeMap::new(),
    }
}

fn source_of(name: &str, entry: &Map<String, Value>) -> PackageSource {
    let text = |key: &str| entry.get(key).and_then(Value::as_str);
    let resolved = text("resolved").unwrap_or_default();
    if entry.get("link").and_then(Value::as_bool) == Some(true) {
        return PackageSource::other(resolved);
    }
    if let Some(other) = text("name").filter(|other| *other != name) {
        return PackageSource::Other(format!("npm:{other}"));
    }
    tarball_of(name, text("version").unwrap_or_default(), resolved)
}

/// A registry has its tarballs under the name of the package.
pub(super) fn tarball_of(name: &str, version: &str, address: &str) -> PackageSource {
    if address.is_empty() {
        return PackageSource::USUAL;
    }
    let Some((place, file)) = address.split_once("/-/") else {
        return PackageSource::other(address);
    };
    let own = name.rsplit('/').next().unwrap_or(name);
    let files = [
        format!("{own}-{version}.tgz"),
        format!("{name}-{version}.tgz"),
    ];
    let encoded = name.replace('/', "%2f");
    let registry = place
        .strip_suffix(name)
        .or_else(|| place.strip_suffix(encoded.as_str()))
        .filter(|place| place.starts_with("http") && !super::leads_out(place))
        .filter(|_| files.iter().any(|it| it == file));
    match registry {
        Some(registry) => PackageSource::Registry(Some(registry.trim_end_matches('/').to_owned())),
        None => PackageSource::other(address),
    }
}
