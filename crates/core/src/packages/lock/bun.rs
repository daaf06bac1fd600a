//! bun.lock: JSON with commas at the ends of lists.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::npm::{programs_of, tarball_of};
use super::places::PackagePlaces;
use super::{LockedPackage, LockedPackages, OUTSIDE, any_leads_out, without};
use crate::packages::source::PackageSource;

pub(super) fn parse(text: &str) -> Option<LockedPackages> {
    let root: Value = serde_json::from_str(&without_last_commas(text)).ok()?;
    let mut found = LockedPackages::default();
    let mut places = PackagePlaces::default();
    for (folder, entry) in root.get("workspaces")?.as_object()? {
        places.add(folder, String::new(), entry.as_object()?);
    }
    for (key, value) in root.as_object()? {
        let is_list = ["lockfileVersion", "configVersion", "workspaces", "packages"];
        if !is_list.contains(&key.as_str()) {
            found.settings.insert(key.clone(), value.clone());
        }
    }
    let Some(packages) = root.get("packages") else {
        return Some(found);
    };
    let nothing = Map::new();
    for (key, entry) in packages.as_object()? {
        let parts = entry.as_array()?;
        let said = parts.first()?.as_str()?;
        let at = said.char_indices().skip(1).find(|(_, c)| *c == '@')?.0;
        let (name, version) = (&said[..at], &said[at + 1..]);
        let place = place_of(key)?;
        let own = place.rsplit_once("node_modules/")?.1;
        let about = parts.iter().find_map(Value::as_object).unwrap_or(&nothing);
        let asked = PackageSource::of_npm(name, version);
        let source = match parts.get(1) {
            _ if own != name => PackageSource::Other(format!("npm:{name}")),
            Some(Value::String(address)) if asked.is_registry() => {
                tarball_of(name, version, address)
            }
            _ if asked.is_registry() => return None,
            _ => asked,
        };
        let digest = parts.iter().skip(2).find_map(Value::as_str);
        let files: BTreeMap<_, _> = digest
            .map(|it| (String::new(), [it.to_owned()].into()))
            .into_iter()
            .collect();
        let odd = ["bin", "binDir"].iter().filter_map(|key| about.get(*key));
        let mut oddity = odd.into_iter().any(any_leads_out).then_some(OUTSIDE);
        if about.contains_key("binDir") && source.is_registry() {
            // Its programs are not told.
            oddity = oddity.or(Some("brings a folder of programs"));
        }
        let package = LockedPackage {
            is_local: version.starts_with("workspace:"),
            is_bundled: about.get("bundled").and_then(Value::as_bool) == Some(true),
            sources: [source].into(),
            files,
            executables: Some(programs_of(own, about)),
            rest: without(about, &["bin", "optionalPeers", "bundled"]),
            oddity,
        };
        places.add(&place, format!("{name} {version}"), about);
        found.add(own, version, package)?;
    }
    found.answers = places.answers();
    Some(found)
}

/// `a/@b/c` is the package `@b/c` for the package `a`.
fn place_of(key: &str) -> Option<String> {
    let mut place = String::new();
    let mut parts = key.split('/');
    while let Some(part) = parts.next() {
        if !place.is_empty() {
            place.push('/');
        }
        place.push_str("node_modules/");
        place.push_str(part);
        if part.starts_with('@') {
            place.push('/');
            place.push_str(parts.next()?);
        }
    }
    Some(place)
}

/// Without the commas that JSON does not know.
fn without_last_commas(text: &str) -> String {
    let mut bytes = text.as_bytes().to_vec();
    let (mut is_quoted, mut is_escaped) = (false, false);
    let mut comma = None;
    for (at, byte) in text.bytes().enumerate() {
        if is_quoted {
            is_quoted = is_escaped || byte != b'"';
            is_escaped = byte == b'\\' && !is_escaped;
            continue;
        }
        match byte {
            b',' => comma = Some(at),
            b'}' | b']' => {
                if let Some(at) = comma.take() {
                    bytes[at] = b' ';
                }
            }
            byte if byte.is_ascii_whitespace() => {}
            byte => {
                is_quoted = byte == b'"';
                comma = None;
            }
        }
    }
    // Only single bytes were changed, and none of a longer character.
    String::from_utf8(bytes).unwrap_or_default()
}
