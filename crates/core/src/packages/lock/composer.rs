//! composer.lock.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::{LockedPackage, LockedPackages, OUTSIDE, any_leads_out, host_of, only};
use crate::packages::source::PackageSource;

/// What composer does with a package, from its record alone.
const DEEDS: [&str; 12] = [
    "dist",
    "source",
    "autoload",
    "include-path",
    "target-dir",
    "type",
    "extra",
    "require",
    "replace",
    "provide",
    "transport-options",
    "installation-source",
];

pub(super) fn parse(text: &str) -> Option<LockedPackages> {
    let root: Value = serde_json::from_str(text).ok()?;
    let mut found = LockedPackages {
        is_flat: true,
        ..LockedPackages::default()
    };
    if let Some(aliases) = root.get("aliases") {
        found.settings.insert("aliases".to_owned(), aliases.clone());
    }
    for table in ["packages", "packages-dev"] {
        let Some(list) = root.get(table).filter(|it| !it.is_null()) else {
            continue;
        };
        for entry in list.as_array()? {
            let entry = entry.as_object()?;
            let name = entry.get("name")?.as_str()?.to_lowercase();
            let version = entry.get("version").and_then(Value::as_str);
            found.add(&name, version.unwrap_or_default(), package_of(entry))?;
        }
    }
    Some(found)
}

fn package_of(entry: &Map<String, Value>) -> LockedPackage {
    let mut package = LockedPackage {
        rest: only(entry, &DEEDS),
        ..LockedPackage::default()
    };
    let mut places = Vec::new();
    for key in ["dist", "source"] {
        let Some(place) = entry.get(key).and_then(Value::as_object) else {
            continue;
        };
        let text = |key: &str| place.get(key).and_then(Value::as_str).unwrap_or_default();
        let address = text("url");
        // Composer asks mirrors first.
        let mirrors = place.get("mirrors").and_then(Value::as_array);
        let mirrors = mirrors.into_iter().flatten();
        let mirrors = mirrors.filter_map(|it| it.get("url")?.as_str());
        for address in std::iter::once(address).chain(mirrors) {
            package.sources.insert(match text("type") {
                "path" => PackageSource::other(address),
                _ => archive_at(address),
            });
        }
        places.push(format!("at:{address} {}", text("reference")));
        let digest = Some(text("shasum")).filter(|it| !it.is_empty());
        let digests = package.files.entry(key.to_owned()).or_default();
        digests.extend(digest.map(|it| format!("sha1:{it}")));
        digests.extend(places.pop());
    }
    if package.sources.is_empty() {
        // A name for other packages has nothing of its own.
        let is_meta = entry.get("type").and_then(Value::as_str) == Some("metapackage");
        package.sources.insert(if is_meta {
            PackageSource::USUAL
        } else {
            PackageSource::other("")
        });
    }
    let programs = entry.get("bin").and_then(Value::as_array);
    let programs = programs.into_iter().flatten().filter_map(Value::as_str);
    let programs: BTreeMap<String, String> = programs
        .map(|file| (file.rsplit('/').next().unwrap_or(file), file))
        .map(|(name, file)| (name.to_owned(), file.to_owned()))
        .collect();
    let named = ["autoload", "include-path", "target-dir", "bin"];
    let named = named.iter().filter_map(|key| entry.get(*key));
    if named.into_iter().any(any_leads_out) {
        package.oddity = Some(OUTSIDE);
    }
    package.executables = Some(programs);
    package
}

/// Archives in one folder of the machine are a repository, as those on one host are.
fn archive_at(address: &str) -> PackageSource {
    let folder = address
        .strip_prefix("file:///")
        .filter(|path| !path.contains(['?', '#', '%']))
        .filter(|path| !super::leads_out(path))
        .and_then(|path| path.rsplit_once('/'));
    match folder {
        Some((folder, _)) => PackageSource::Registry(Some(format!("file:///{folder}"))),
        None => host_of(address),
    }
}
