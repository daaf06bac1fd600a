//! Where a package comes from, read from what manifests and lock files write about it.

use std::fmt;

use serde_json::Value;

/// Where a package comes from.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PackageSource {
    /// A registry, under its own name; with the place of the registry where the file says so.
    Registry(Option<String>),
    /// A folder, a repository, an address, or another package under this name.
    Other(String),
}

/// What says in a table that a package does not come from the usual registry.
const PLACE_KEYS: [&str; 9] = [
    "path",
    "git",
    "url",
    "file",
    "registry",
    "registry-index",
    "index",
    "source",
    "workspace",
];

impl fmt::Display for PackageSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PackageSource::Registry(None) => f.write_str("from the registry"),
            PackageSource::Registry(Some(place)) => write!(f, "from {place}"),
            PackageSource::Other(text) => f.write_str(text),
        }
    }
}

impl PackageSource {
    /// The usual registry.
    pub(super) const USUAL: PackageSource = PackageSource::Registry(None);

    pub(super) fn other(text: &str) -> Self {
        PackageSource::Other(text.to_owned())
    }

    pub(super) fn is_registry(&self) -> bool {
        matches!(self, PackageSource::Registry(_))
    }

    /// The place of the registry, where it is named.
    pub(super) fn registry(&self) -> Option<&str> {
        match self {
            PackageSource::Registry(place) => place.as_deref(),
            PackageSource::Other(_) => None,
        }
    }

    /// What npm and its like write behind a name. `None`: nothing about a source.
    pub(super) fn of_npm(name: &str, text: &str) -> Self {
        let text = text.trim();
        if let Some(alias) = text.strip_prefix("npm:") {
            // yarn writes `npm:^1` for what is no alias.
            let target = alias.rsplit_once('@').map_or(alias, |(target, _)| target);
            let is_range =
                target.is_empty() || target.starts_with(|c: char| !c.is_alphabetic() && c != '@');
            return if is_range || target == name {
                PackageSource::USUAL
            } else {
                PackageSource::other(text)
            };
        }
        let is_place = text.starts_with(['.', '/', '~'])
            && !text.starts_with("~0")
            && !text[1..].starts_with(|c: char| c.is_ascii_digit())
            || text.contains(':')
            || text.contains('/');
        if is_place {
            PackageSource::other(text)
        } else {
            PackageSource::USUAL
        }
    }

    /// What Cargo.toml, Pipfile or poetry write behind a name. `None`: it says nothing of a source.
    pub(super) fn of_table(name: &str, value: &Value) -> Option<Self> {
        let Value::Object(table) = value else {
            return Some(PackageSource::USUAL);
        };
        if table.get("workspace").and_then(Value::as_bool) == Some(true) {
            return None;
        }
        let named = PLACE_KEYS.iter().find_map(|key| {
            let text = table.get(*key)?;
            let text = text
                .as_str()
                .map_or_else(|| text.to_string(), str::to_owned);
            Some(PackageSource::Other(format!("{key} {text}")))
        });
        let renamed = || {
            let package = table.get("package")?.as_str()?;
            (package != name).then(|| PackageSource::Other(format!("package {package}")))
        };
        Some(named.or_else(renamed).unwrap_or(PackageSource::USUAL))
    }

    /// A requirement of Python: its name and its source.
    pub(super) fn of_requirement(text: &str) -> Option<(String, Self)> {
        let text = text.split(" #").next().unwrap_or(text).trim();
        if text.is_empty() || text.starts_with('#') {
            return None;
        }
        for option in ["-e", "--editable"] {
            if let Some(place) = text.strip_prefix(option) {
                let place = place.trim_start_matches('=').trim();
                return Some((name_in_place(place), PackageSource::other(place)));
            }
        }
        if text.starts_with('-') {
            return None;
        }
        let end = text.find(|c: char| !(c.is_alphanumeric() || "-_.".contains(c)));
        let (name, rest) = text.split_at(end.unwrap_or(text.len()));
        let rest = rest.trim_start();
        // A path or an address, without a name.
        if name.is_empty() || name.starts_with('.') || rest.starts_with(['/', ':', '+']) {
            return Some((name_in_place(text), PackageSource::other(text)));
        }
        let extras = rest.find(']').filter(|_| rest.starts_with('['));
        let rest = extras.map_or(rest, |at| &rest[at + 1..]).trim_start();
        let source = match rest.strip_prefix('@') {
            Some(place) => PackageSource::other(place.trim()),
            None => PackageSource::USUAL,
        };
        Some((python_name(name), source))
    }
}

/// The name that a folder or an address most likely has: its last part.
fn name_in_place(place: &str) -> String {
    if let Some((_, egg)) = place.split_once("#egg=") {
        return python_name(egg);
    }
    let path = place.split(['#', '?']).next().unwrap_or(place);
    let last = path.trim_end_matches('/').rsplit('/').next();
    let last = last.unwrap_or_default().trim_end_matches(".git");
    python_name(last)
}

/// Names of Python's packages mean the same with other letters and other dashes.
pub(super) fn python_name(name: &str) -> String {
    let mut text = String::with_capacity(name.len());
    for part in name.split(['-', '_', '.']).filter(|part| !part.is_empty()) {
        if !text.is_empty() {
            text.push('-');
        }
        text.push_str(&part.to_lowercase());
    }
    text
}
