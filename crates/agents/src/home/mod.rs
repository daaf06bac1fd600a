//! The private folder of a session in place of a CLI's own ones: the login and what chooses model
//! and provider are in it, and of everything else a person has set up only what `[executor] inherit`
//! names.
//!
//! Nothing is read here: whoever makes the folder hands in how files are read.

pub(crate) mod claude;
pub(crate) mod codex;
pub(crate) mod login;
pub(crate) mod opencode;

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use runner_core::config::InheritPart;
use serde_json::{Map, Value};

/// What a private folder is made of.
pub struct HomeInput<'a> {
    /// The home folder of the person.
    pub user_home: &'a Path,
    /// A variable of the runner's own environment.
    pub var: &'a dyn Fn(&str) -> Option<OsString>,
    /// The text of a file, if it is there and can be read.
    pub read: &'a dyn Fn(&Path) -> Option<String>,
    /// The names in a folder; none where there is no folder.
    pub names: &'a dyn Fn(&Path) -> Vec<OsString>,
    /// What of the person's settings sessions get.
    pub inherit: &'a [InheritPart],
    /// The project's own instructions for agents.
    pub instructions: &'a str,
}

/// What is in a private folder.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HomeContent {
    /// In the order in which they are made.
    pub entries: Vec<HomeEntry>,
    /// What the person should know.
    pub notes: Vec<String>,
}

/// One thing in a private folder; paths are relative to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HomeEntry {
    /// An empty folder.
    Folder(PathBuf),
    /// A file with a text.
    File(PathBuf, String),
    /// A link to something that may not be there.
    Link(PathBuf, PathBuf),
}

impl HomeInput<'_> {
    fn has(&self, part: InheritPart) -> bool {
        self.inherit.contains(&part)
    }

    /// A folder that a variable names, or the usual one below the home folder.
    fn folder(&self, variable: &str, usual: &str) -> PathBuf {
        (self.var)(variable)
            .map(PathBuf::from)
            .filter(|path| path.is_absolute())
            .unwrap_or_else(|| self.user_home.join(usual))
    }
}

impl HomeContent {
    fn file(&mut self, path: impl Into<PathBuf>, text: String) {
        self.entries.push(HomeEntry::File(path.into(), text));
    }

    /// Links to entries of a folder, by the part that lets them in.
    fn links(
        &mut self,
        input: &HomeInput<'_>,
        (from, to): (&Path, &Path),
        links: &[(InheritPart, &[&str])],
    ) {
        let allowed = links.iter().filter(|(part, _)| input.has(*part));
        for name in allowed.flat_map(|(_, names)| *names) {
            let link = HomeEntry::Link(to.join(name), from.join(name));
            self.entries.push(link);
        }
    }

    /// A folder with a link to each entry of another one but some: where a CLI adds to it.
    fn mirror(&mut self, input: &HomeInput<'_>, (from, to): (&Path, &Path), but: &[&str]) {
        self.entries.push(HomeEntry::Folder(to.to_owned()));
        for name in (input.names)(from) {
            if !but.iter().any(|other| name == OsStr::new(other)) {
                let link = HomeEntry::Link(to.join(&name), from.join(&name));
                self.entries.push(link);
            }
        }
    }

    /// The instructions for agents in one file: the person's own, and the project's.
    fn instructions(&mut self, input: &HomeInput<'_>, own: &Path, path: impl Into<PathBuf>) {
        let own = input
            .has(InheritPart::Instructions)
            .then(|| (input.read)(own))
            .flatten();
        let both = [own.as_deref().unwrap_or_default(), input.instructions];
        let texts: Vec<&str> = both
            .into_iter()
            .filter(|it| !it.trim().is_empty())
            .collect();
        if !texts.is_empty() {
            self.file(path, texts.join("\n\n"));
        }
    }

    fn unreadable(&mut self, path: &Path) {
        self.notes.push(format!(
            "{} cannot be understood: sessions have none of it",
            path.display()
        ));
    }
}

/// A setting, and the part that lets it in; `None`: always. Others are ordinary settings.
type SettingGroup = (Option<InheritPart>, &'static [&'static str]);

/// Whether a key of a file of settings reaches sessions.
fn is_let_in(groups: &[SettingGroup], input: &HomeInput<'_>, key: &str) -> bool {
    let group = groups.iter().find(|(_, keys)| keys.contains(&key));
    match group {
        Some((None, _)) => true,
        Some((Some(part), _)) => input.has(*part),
        None => input.has(InheritPart::Settings),
    }
}

/// An object without the keys that do not reach sessions.
fn filtered(
    object: Map<String, Value>,
    groups: &[SettingGroup],
    input: &HomeInput<'_>,
) -> Map<String, Value> {
    let kept = object.into_iter();
    kept.filter(|(key, _)| is_let_in(groups, input, key))
        .collect()
}

/// The object in a text, or nothing.
fn object(text: &str) -> Option<Map<String, Value>> {
    match serde_json::from_str(text).ok()? {
        Value::Object(object) => Some(object),
        _ => None,
    }
}

fn pretty(object: Map<String, Value>) -> String {
    format!("{:#}\n", Value::Object(object))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// What is made of these files of a person's, as text: one line for each entry, files with
    /// their content in one line.
    pub(crate) fn shown(
        make: impl Fn(&HomeInput<'_>) -> HomeContent,
        files: &[(&str, &str)],
        vars: &[(&str, &str)],
        inherit: &[InheritPart],
    ) -> String {
        let find = |path: &Path| {
            let found = files.iter().find(|(name, _)| Path::new(name) == path);
            found.map(|(_, text)| (*text).to_owned())
        };
        let names = |folder: &Path| {
            let below = files.iter().filter_map(|(name, _)| {
                let rest = Path::new(name).strip_prefix(folder).ok()?;
                Some(rest.components().next()?.as_os_str().to_owned())
            });
            let mut names: Vec<OsString> = below.collect();
            names.dedup();
            names
        };
        let var = |name: &str| {
            let found = vars.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| value.into())
        };
        let content = make(&HomeInput {
            user_home: Path::new("/h"),
            var: &var,
            read: &find,
            names: &names,
            inherit,
            instructions: "of the project",
        });
        let lines = content.entries.iter().map(|entry| match entry {
            HomeEntry::Folder(path) => format!("{}/", path.display()),
            HomeEntry::File(path, text) => {
                let words: Vec<&str> = text.split_whitespace().collect();
                format!("{}: {}", path.display(), words.join(" "))
            }
            HomeEntry::Link(path, target) => {
                format!("{} -> {}", path.display(), target.display())
            }
        });
        let notes = content.notes.iter().map(|note| format!("note: {note}"));
        lines.chain(notes).collect::<Vec<_>>().join("\n")
    }
}
