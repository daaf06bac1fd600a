//! Lock files: what a tool found for a manifest, as one record for each version of a package.
//!
//! A verdict by the branch's rules uses the lock file of a result only where that keeps every record
//! of the branch's and adds none that could take the place of one.

mod bun;
mod cargo;
mod composer;
mod gems;
mod npm;
mod pipfile;
mod places;
mod pnpm;
mod python;
mod yaml;
mod yarn;

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use super::base::BasePackages;
use super::source::PackageSource;
use super::{NamedPackages, PackageFile, PackageManager};

/// A name and a version.
pub(super) type PackageKey = (String, String);

/// One version of a package, as a lock file has it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct LockedPackage {
    /// Where it comes from: each place that the record names.
    pub(super) sources: BTreeSet<PackageSource>,
    /// The digests of its files; where there are none, their addresses.
    pub(super) files: BTreeMap<String, BTreeSet<String>>,
    /// The programs that it brings and the file of each; `None` where the format does not tell.
    pub(super) executables: Option<BTreeMap<String, String>>,
    /// What else may not change.
    pub(super) rest: Value,
    /// Whether it is a folder of the project.
    pub(super) is_local: bool,
    /// Whether it comes in the archive of another package.
    pub(super) is_bundled: bool,
    /// What no tool writes: files outside of its own folder, scripts.
    pub(super) oddity: Option<&'static str>,
}

impl LockedPackage {
    /// Whether this is what a record of the branch meant, as far as both say so.
    pub(super) fn means_the_same(&self, before: &LockedPackage) -> bool {
        let same_files = self.files.iter().all(|(file, digests)| {
            let Some(known) = before.files.get(file) else {
                return true;
            };
            let kinds: BTreeSet<&str> = known.iter().map(|it| kind_of(it)).collect();
            let mut told = digests.iter().filter(|it| kinds.contains(kind_of(it)));
            told.all(|it| known.contains(it))
        });
        let same_executables = match (&before.executables, &self.executables) {
            (Some(known), Some(now)) if !self.is_local => {
                now.iter().all(|(name, file)| known.get(name) == Some(file))
            }
            _ => true,
        };
        same_files && same_executables
    }

    /// Whether a record of the branch is still there, with nothing changed that counts. Tools add
    /// archives for further machines to a version.
    fn keeps(&self, before: &LockedPackage) -> bool {
        let has_files = before
            .files
            .iter()
            .all(|(file, digests)| self.files.get(file) == Some(digests));
        // Whether npm writes the address of an archive is a setting of each machine; its digest counts.
        let from_registry =
            !self.files.is_empty() && self.sources.iter().all(PackageSource::is_registry);
        let has_sources = before
            .sources
            .iter()
            .all(|it| self.sources.contains(it) || (it.is_registry() && from_registry));
        let flags = |it: &LockedPackage| (it.is_local, it.is_bundled, it.oddity);
        has_files
            && has_sources
            && flags(self) == flags(before)
            && (self.is_local || self.rest == before.rest)
            && self.executables == before.executables
    }
}

/// The algorithm of a digest.
fn kind_of(digest: &str) -> &str {
    let end = digest.find(['-', ':', '/']);
    &digest[..end.unwrap_or(digest.len())]
}

/// What a lock file says.
#[derive(Clone, Debug, Default)]
pub(super) struct LockedPackages {
    /// The versions, each as often as it is told differently.
    pub(super) packages: BTreeMap<PackageKey, Vec<LockedPackage>>,
    /// Who asks for what, and which versions that is.
    pub(super) answers: BTreeMap<String, BTreeSet<String>>,
    /// What counts for all packages.
    pub(super) settings: BTreeMap<String, Value>,
    /// Whether two versions of a package cannot be installed beside each other.
    pub(super) is_flat: bool,
}

impl LockedPackages {
    /// `None`: no tool has such names.
    fn add(&mut self, name: &str, version: &str, package: LockedPackage) -> Option<()> {
        if name.is_empty() || leads_out(name) || name.contains(['\\', '\n']) {
            return None;
        }
        let key = (name.to_owned(), version.to_owned());
        let variants = self.packages.entry(key).or_default();
        if !variants.contains(&package) {
            variants.push(package);
        }
        Some(())
    }

    /// The same by names alone.
    fn named(&self) -> NamedPackages {
        let mut named = NamedPackages::default();
        for ((name, _), variants) in &self.packages {
            for source in variants.iter().flat_map(|it| &it.sources) {
                named.add(name, source.clone());
            }
        }
        named
    }
}

/// Whether a path leads out of the folder that it begins in.
fn leads_out(path: &str) -> bool {
    let mut parts = path.split(['/', '\\']);
    path.starts_with('/') || parts.any(|part| part == "..")
}

/// Whether any file of a nested value leads out of the folder of its package.
fn any_leads_out(value: &Value) -> bool {
    match value {
        Value::String(path) => leads_out(path),
        Value::Array(list) => list.iter().any(any_leads_out),
        Value::Object(map) => map.values().any(any_leads_out),
        _ => false,
    }
}

/// Everything of a record but what these keys say.
fn without(entry: &Map<String, Value>, keys: &[&str]) -> Value {
    let rest = entry
        .iter()
        .filter(|(key, _)| !keys.contains(&key.as_str()));
    Value::Object(rest.map(|(key, it)| (key.clone(), it.clone())).collect())
}

/// Those of the keys that a record has.
fn only(entry: &Map<String, Value>, keys: &[&str]) -> Value {
    let told = entry.iter().filter(|(key, _)| keys.contains(&key.as_str()));
    Value::Object(told.map(|(key, it)| (key.clone(), it.clone())).collect())
}

const OUTSIDE: &str = "names files outside of its own folder";

/// What a lock file says; `None` where it is another format or cannot be read.
pub(super) fn parse(file: &PackageFile<'_>, bytes: &[u8]) -> Option<LockedPackages> {
    let text = std::str::from_utf8(bytes).ok()?;
    match file.name() {
        "package-lock.json" | "npm-shrinkwrap.json" => npm::parse(text),
        "bun.lock" => bun::parse(text),
        "pnpm-lock.yaml" => pnpm::parse(text),
        "yarn.lock" => yarn::parse(text),
        "Cargo.lock" => cargo::parse(text),
        "poetry.lock" | "uv.lock" | "pdm.lock" => python::parse(text),
        "Pipfile.lock" => pipfile::parse(text),
        "composer.lock" => composer::parse(text),
        "Gemfile.lock" => gems::parse(text),
        "go.sum" => go_sums(text),
        _ => None,
    }
}

pub(super) fn read(file: &PackageFile<'_>, bytes: &[u8]) -> Option<NamedPackages> {
    parse(file, bytes).map(|it| it.named())
}

/// The list of packages that lock files in TOML have.
fn toml_packages(root: &Value) -> Option<Vec<(&str, &Map<String, Value>)>> {
    let list = match root.get("package") {
        Some(list) => list.as_array()?.as_slice(),
        None => &[],
    };
    let named = list.iter().map(|entry| {
        let entry = entry.as_object()?;
        Some((entry.get("name")?.as_str()?, entry))
    });
    named.collect()
}

/// The lines of go.sum: module, version, digest.
fn go_sums(text: &str) -> Option<LockedPackages> {
    let mut found = LockedPackages::default();
    for line in text.lines().filter(|line| !line.trim().is_empty()) {
        let mut words = line.split_whitespace();
        let (name, version, digest) = (words.next()?, words.next()?, words.next()?);
        if words.next().is_some() {
            return None;
        }
        let package = LockedPackage {
            sources: [PackageSource::USUAL].into(),
            files: [(String::new(), [digest.to_owned()].into())].into(),
            ..LockedPackage::default()
        };
        found.add(name, version, package)?;
    }
    Some(found)
}

/// Formats of which only the manifests are read where their lock files are written otherwise.
pub(super) fn is_opaque(file: &PackageFile<'_>) -> bool {
    matches!(file.name(), "pnpm-lock.yaml" | "bun.lock" | "pdm.lock")
}

/// The registries that a manager asks where nothing else is said, and where those keep their files.
pub(super) fn usual_registries(manager: PackageManager) -> &'static [&'static str] {
    match manager {
        PackageManager::Npm => &["https://registry.npmjs.org", "https://registry.yarnpkg.com"],
        PackageManager::Cargo => &[
            "https://github.com/rust-lang/crates.io-index",
            "https://index.crates.io",
        ],
        PackageManager::Python => &["https://pypi.org/simple", "https://files.pythonhosted.org"],
        PackageManager::Composer => &[
            "https://api.github.com",
            "https://github.com",
            "https://gitlab.com",
            "https://bitbucket.org",
        ],
        PackageManager::Bundler => &["https://rubygems.org"],
        PackageManager::Go => &[],
    }
}

/// Why a verdict by the branch's rules cannot use this lock file; `Ok` where it keeps everything that
/// the branch's had found and adds only packages that judge nothing.
pub(super) fn keeps(
    file: &PackageFile<'_>,
    base: &BasePackages<'_>,
    (before, now): (&[u8], &[u8]),
) -> Result<(), String> {
    let unread = "its format is not read".to_owned();
    let (Some(before), Some(now)) = (parse(file, before), parse(file, now)) else {
        return Err(unread);
    };
    for (key, variants) in &before.packages {
        let (name, version) = key;
        let found = now.packages.get(key).map_or(&[][..], Vec::as_slice);
        if found.is_empty() {
            return Err(format!("{name} {version} of the branch is gone"));
        }
        let may_come = |it: &LockedPackage, old: &LockedPackage| {
            let mut more = it.sources.difference(&old.sources);
            more.all(|source| base.may_add_from(file.manager, source))
        };
        let is_kept =
            |old: &LockedPackage| found.iter().any(|it| it.keeps(old) && may_come(it, old));
        if !variants.iter().all(is_kept) {
            return Err(format!("{name} {version} is told differently"));
        }
    }
    if before.settings != now.settings {
        return Err("it changes what counts for all packages".to_owned());
    }
    let changed = before.answers.iter().find(|(asked, answer)| {
        let now = now.answers.get(*asked);
        now != Some(*answer)
    });
    if let Some((asked, _)) = changed {
        return Err(format!("{asked} is another version than on the branch"));
    }
    for (key, variants) in &now.packages {
        let known = before.packages.get(key).map_or(&[][..], Vec::as_slice);
        let added = variants
            .iter()
            .filter(|it| !known.iter().any(|old| it.keeps(old)));
        for package in added {
            check_added(file, base, (&before, key), package)?;
        }
    }
    Ok(())
}

/// Whether a record that the branch's lock file does not have may be used.
fn check_added(
    file: &PackageFile<'_>,
    base: &BasePackages<'_>,
    (before, (name, version)): (&LockedPackages, &PackageKey),
    package: &LockedPackage,
) -> Result<(), String> {
    let is_known = before.packages.keys().any(|(it, _)| it == name);
    if is_known && before.is_flat {
        return Err(format!("{name} {version} comes beside that of the branch"));
    }
    let key = (name.clone(), version.clone());
    if before.packages.contains_key(&key) && !package.is_bundled {
        return Err(format!("{name} {version} is told differently"));
    }
    if let Some(oddity) = package.oddity {
        return Err(format!("{name} {oddity}"));
    }
    for source in &package.sources {
        let is_part = package.is_local && file.takes_parts();
        if !is_part && !base.may_add_from(file.manager, source) {
            return Err(format!("{name} is {source}"));
        }
    }
    let programs = package.executables.iter().flat_map(BTreeMap::keys);
    for program in programs {
        if let Some(owner) = base.owner_of(file.manager, name, program) {
            return Err(format!("{name} brings the program {program} of {owner}"));
        }
        if base.is_called(program) && program != name {
            return Err(format!(
                "{name} brings the program {program}, which the branch's scripts call"
            ));
        }
    }
    Ok(())
}

/// The place of a registry or of the archives there; what is no place in the network counts as it is.
fn registry_at(place: &str) -> PackageSource {
    let place = place.trim_end_matches('/');
    if place.starts_with("https://") || place.starts_with("http://") {
        PackageSource::Registry(Some(place.to_owned()))
    } else {
        PackageSource::other(place)
    }
}

/// The host of an address, as the place of archives.
fn host_of(address: &str) -> PackageSource {
    let host = address.split_once("://").and_then(|(scheme, rest)| {
        let host = rest.split(['/', '?', '#']).next()?;
        (!host.is_empty()).then(|| format!("{scheme}://{host}"))
    });
    match host {
        Some(host) if !leads_out(address) => match registry_at(&host) {
            PackageSource::Registry(place) => PackageSource::Registry(place),
            PackageSource::Other(_) => PackageSource::other(address),
        },
        _ => PackageSource::other(address),
    }
}

#[cfg(test)]
mod tests;
