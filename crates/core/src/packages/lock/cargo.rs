//! Cargo.lock.

use serde_json::Value;

use super::{LockedPackage, LockedPackages, only, toml_packages};
use crate::packages::source::PackageSource;

pub(super) fn parse(text: &str) -> Option<LockedPackages> {
    let root: Value = toml::from_str(text).ok()?;
    let mut found = LockedPackages::default();
    for (name, entry) in toml_packages(&root)? {
        let text = |key: &str| entry.get(key).and_then(Value::as_str);
        let source = text("source");
        let digest = text("checksum").map(|it| format!("sha256:{it}"));
        let package = LockedPackage {
            sources: [source_of(source)].into(),
            files: digest
                .map(|it| (String::new(), [it].into()))
                .into_iter()
                .collect(),
            // With the commit, where there is one.
            rest: only(entry, &["source", "replace"]),
            is_local: source.is_none(),
            ..LockedPackage::default()
        };
        let version = text("version").unwrap_or_default();
        found.add(&name.replace('_', "-"), version, package)?;
    }
    Some(found)
}

/// The source of a package, without the commit.
fn source_of(text: Option<&str>) -> PackageSource {
    let Some(text) = text else {
        return PackageSource::other("a folder of the project");
    };
    let place = text.split('#').next().unwrap_or(text);
    let registry = place
        .strip_prefix("registry+")
        .or_else(|| place.strip_prefix("sparse+"));
    match registry {
        Some(place) => PackageSource::Registry(Some(place.trim_end_matches('/').to_owned())),
        None => PackageSource::other(place),
    }
}
