//! yarn.lock, as the first version of yarn writes it and as later ones do.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use super::npm::{programs_of, tarball_of};
use super::{LockedPackage, LockedPackages, OUTSIDE, any_leads_out, without, yaml};
use crate::packages::source::PackageSource;

pub(super) fn parse(text: &str) -> Option<LockedPackages> {
    if text.lines().any(|line| line.starts_with("__metadata:")) {
        return later(text);
    }
    let mut found = LockedPackages::default();
    for (header, entry) in entries(text)? {
        for asked in header.split(", ") {
            let (name, range) = name_and_range(asked.trim_matches('"'))?;
            let (version, package) = first_package(name, range, &entry);
            let answer = format!("{name} {version}");
            let asked = format!("{name}@{range}");
            // Which of two would count?
            if found.answers.insert(asked, [answer].into()).is_some() {
                return None;
            }
            found.add(name, &version, package)?;
        }
    }
    Some(found)
}

/// `name@range`: the first sign may belong to the name.
fn name_and_range(asked: &str) -> Option<(&str, &str)> {
    let at = asked.char_indices().skip(1).find(|(_, c)| *c == '@')?.0;
    Some((&asked[..at], &asked[at + 1..]))
}

fn first_package(name: &str, range: &str, entry: &Map<String, Value>) -> (String, LockedPackage) {
    let text = |key: &str| entry.get(key).and_then(Value::as_str).unwrap_or_default();
    let version = text("version");
    let (address, digest) = text("resolved")
        .split_once('#')
        .unwrap_or((text("resolved"), ""));
    let asked = PackageSource::of_npm(name, range);
    let source = if asked.is_registry() {
        tarball_of(name, version, address)
    } else {
        asked
    };
    let mut digests: BTreeSet<String> = text("integrity")
        .split_whitespace()
        .map(str::to_owned)
        .collect();
    if !digest.is_empty() {
        digests.insert(format!("hex:{digest}"));
    }
    if digests.is_empty() && !address.is_empty() {
        digests.insert(format!("at:{address}"));
    }
    let package = LockedPackage {
        sources: [source].into(),
        files: [(String::new(), digests)].into(),
        rest: without(entry, &["version", "resolved", "integrity"]),
        ..LockedPackage::default()
    };
    (version.to_owned(), package)
}

/// The entries of the first format, each with its header.
fn entries(text: &str) -> Option<Vec<(&str, Map<String, Value>)>> {
    let mut found: Vec<(&str, Map<String, Value>)> = Vec::new();
    let mut table: Option<&str> = None;
    for line in text.lines().map(str::trim_end) {
        let content = line.trim_start_matches(' ');
        if content.is_empty() || content.starts_with('#') {
            continue;
        }
        match line.len() - content.len() {
            0 => {
                found.push((content.strip_suffix(':')?, Map::new()));
                table = None;
            }
            2 => {
                let entry = &mut found.last_mut()?.1;
                if let Some(name) = content.strip_suffix(':') {
                    table = Some(name);
                    entry.insert(name.to_owned(), Value::Object(Map::new()));
                    continue;
                }
                table = None;
                let (key, value) = pair(content)?;
                if entry.insert(key, value).is_some() {
                    return None;
                }
            }
            4 => {
                let entry = &mut found.last_mut()?.1;
                let (key, value) = pair(content)?;
                entry.get_mut(table?)?.as_object_mut()?.insert(key, value);
            }
            _ => return None,
        }
    }
    Some(found)
}

/// `key value`, each in quotes or not.
fn pair(line: &str) -> Option<(String, Value)> {
    let (key, value) = match line.strip_prefix('"') {
        Some(rest) => rest.split_once("\" ")?,
        None => line.split_once(' ')?,
    };
    let value = value.trim().trim_matches('"');
    let is_plain = !value.contains(['"', '\\']) && !key.contains('\\');
    is_plain.then(|| (key.to_owned(), Value::String(value.to_owned())))
}

/// The format of yarn 2 and later.
fn later(text: &str) -> Option<LockedPackages> {
    let root = yaml::parse(text)?;
    let mut found = LockedPackages::default();
    for (header, entry) in root.as_object()? {
        if header == "__metadata" {
            continue;
        }
        let entry = entry.as_object()?;
        let text = |key: &str| entry.get(key).and_then(Value::as_str);
        let (target, reference) = name_and_range(text("resolution")?)?;
        let mut package = LockedPackage {
            executables: Some(programs_of(target, entry)),
            rest: without(entry, &["version", "checksum", "bin", "resolution"]),
            oddity: entry
                .get("bin")
                .filter(|it| any_leads_out(it))
                .map(|_| OUTSIDE),
            ..LockedPackage::default()
        };
        package.is_local = reference.starts_with("workspace:");
        if package.is_local {
            package.executables = None;
        }
        let digest = text("checksum").map(str::to_owned);
        package.files = digest
            .map(|it| (String::new(), [it].into()))
            .into_iter()
            .collect::<BTreeMap<_, _>>();
        for asked in header.split(", ") {
            let (name, range) = name_and_range(asked)?;
            let mut package = package.clone();
            package.sources = [later_source(name, target, reference)].into();
            let version = text("version").unwrap_or_default();
            let answer = format!("{name} {reference}");
            if !package.is_local {
                let asked = format!("{name}@{range}");
                found.answers.insert(asked, [answer].into());
            }
            found.add(name, version, package)?;
        }
    }
    Some(found)
}

fn later_source(name: &str, target: &str, reference: &str) -> PackageSource {
    if name != target {
        return PackageSource::Other(format!("npm:{target}"));
    }
    // Yarn's own corrections of some packages.
    let own = format!("patch:{name}@npm%3A");
    if reference.starts_with(&own) && reference.contains("#optional!builtin<") {
        return PackageSource::USUAL;
    }
    match reference.strip_prefix("npm:") {
        Some(version) if !version.contains("::") => PackageSource::of_npm(name, version),
        _ => PackageSource::other(reference),
    }
}
