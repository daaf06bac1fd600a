//! Gemfile.lock.

use std::collections::BTreeMap;

use serde_json::Value;

use super::{LockedPackage, LockedPackages, registry_at};
use crate::packages::source::PackageSource;

pub(super) fn parse(text: &str) -> Option<LockedPackages> {
    let mut found = LockedPackages {
        is_flat: true,
        ..LockedPackages::default()
    };
    let digests = digests_of(text);
    let (mut section, mut head) = ("", Vec::new());
    for line in text.lines().filter(|line| !line.trim().is_empty()) {
        if line.starts_with(['<', '=', '>', '|']) {
            // A merge that nobody finished.
            return None;
        }
        if !line.starts_with(' ') {
            (section, head) = (line.trim_end(), Vec::new());
            continue;
        }
        if !matches!(section, "GEM" | "PATH" | "GIT" | "PLUGIN SOURCE") {
            continue;
        }
        let Some(spec) = line.strip_prefix("    ") else {
            head.push(line.trim());
            continue;
        };
        if spec.starts_with(' ') {
            continue;
        }
        let (name, version) = named(spec)?;
        let remotes = head.iter().filter_map(|it| it.strip_prefix("remote: "));
        let sources = remotes.map(|place| match section {
            "GEM" => registry_at(place),
            _ => PackageSource::other(place),
        });
        let digest = digests.get(&(name, version));
        let package = LockedPackage {
            sources: sources.collect(),
            files: digest
                .map(|it| (version.to_owned(), [(*it).to_owned()].into()))
                .into_iter()
                .collect(),
            rest: Value::String(format!("{section} {}", head.join(" "))),
            ..LockedPackage::default()
        };
        found.add(name, version, package)?;
    }
    Some(found)
}

/// `name (version)` with what follows.
fn named(line: &str) -> Option<(&str, &str)> {
    let (name, rest) = line.trim().split_once(" (")?;
    Some((name, rest.split_once(')')?.0))
}

/// The section of digests, where there is one.
fn digests_of(text: &str) -> BTreeMap<(&str, &str), &str> {
    let lines = text
        .lines()
        .skip_while(|line| line.trim_end() != "CHECKSUMS");
    let lines = lines.skip(1).take_while(|line| line.starts_with(' '));
    let digests = lines.filter_map(|line| Some((named(line)?, line.rsplit_once(") ")?.1)));
    digests.collect()
}
