//! What of the machine a child cannot read: keys, logins, histories, sockets of other programs.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use runner_core::config::{ChildKind, Config};
use runner_sandbox::{SecretPlaces, expand_home, without_tokens};

use crate::checkout::temp_folder::TempFolder;
use crate::error::{Error, ErrorCode, Result};
use crate::files;

/// The largest file of settings of which lines are left out.
const MAX_SETTINGS: u64 = 1 << 20;

/// What a child may read, as far as it is not everything.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct ReadingRules {
    /// Folders and files that are hidden.
    pub(crate) hidden: Vec<PathBuf>,
    /// What the config opens again, and what the child is started with.
    pub(crate) in_sight: Vec<PathBuf>,
    /// Files of settings and what of them is seen: the place, and the text.
    pub(crate) replaced: Vec<(PathBuf, String)>,
}

impl ReadingRules {
    /// Writes what is seen of files of settings beside a child's temp folder: the content, and the
    /// place.
    pub(crate) fn replaced_in(&self, temp: &TempFolder) -> Result<Vec<(PathBuf, PathBuf)>> {
        let mut replaced = Vec::new();
        for (number, (place, text)) in self.replaced.iter().enumerate() {
            let content = temp.beside(&format!("settings-{number}"));
            files::write_whole(&content, text.as_bytes())?;
            replaced.push((content, place.clone()));
        }
        Ok(replaced)
    }
}

/// What is known of a child.
#[derive(Clone, Copy)]
pub(crate) struct ReadingInput<'a> {
    pub(crate) kind: ChildKind,
    pub(crate) config: &'a Config,
    /// The user's home folder.
    pub(crate) home: Option<&'a Path>,
    /// The runner's own environment.
    pub(crate) var: &'a dyn Fn(&str) -> Option<OsString>,
    /// The folder that relative paths of the config are from.
    pub(crate) project: &'a Path,
    /// Where an agent's CLI keeps its own files: its login is there.
    pub(crate) agent_homes: &'a [PathBuf],
    /// The command line.
    pub(crate) argv: &'a [OsString],
}

impl ReadingInput<'_> {
    /// The rules for it.
    pub(crate) fn rules(&self) -> Result<ReadingRules> {
        let mut rules = ReadingRules::default();
        if let Some(home) = self.home {
            let places = SecretPlaces {
                home,
                var: self.var,
            };
            rules.hidden = places.hidden();
            rules.hidden.extend(places.sockets());
            let named = self.config.executor.env.values().map(Path::new);
            let named = named.filter(|path| path.is_absolute());
            let homes: Vec<&Path> = named
                .chain(self.agent_homes.iter().map(PathBuf::as_path))
                .collect();
            let is_own = |path: &PathBuf| {
                self.kind == ChildKind::Session && homes.iter().any(|home| path.starts_with(home))
            };
            rules
                .hidden
                .extend(places.logins().into_iter().filter(|path| !is_own(path)));
            for path in places.settings() {
                let text = files::read_regular(&path, MAX_SETTINGS).ok();
                let text = text.and_then(|bytes| without_tokens(&String::from_utf8_lossy(&bytes)));
                rules.replaced.extend(text.map(|text| (path, text)));
            }
        }
        for text in self.config.sandbox.readable_for(self.kind) {
            let path = expand_home(text, self.home, self.project).map_err(|message| {
                Error::new(ErrorCode::Config, format!("[sandbox] readable: {message}"))
            })?;
            rules.in_sight.push(path);
        }
        // What is started can be read wherever it lies, and so can the files that it is given.
        if self.kind == ChildKind::Session {
            let words = self.argv.iter().map(PathBuf::from);
            let named = words.filter(|path| path.is_absolute() && path.is_file());
            rules.in_sight.extend(named);
        }
        let mut opened = rules.in_sight.clone();
        for text in self.config.sandbox.writable_for(self.kind) {
            opened.extend(expand_home(text, self.home, self.project));
        }
        rules.hidden = still_hidden(rules.hidden, &opened);
        rules.replaced.retain(|(place, _)| !opened.contains(place));
        Ok(rules)
    }
}

/// What stays hidden of these places where a config opens paths. A place is opened as a whole by an
/// entry for itself alone: whoever opens a folder around it did not mean what is secret in it.
fn still_hidden(hidden: Vec<PathBuf>, opened: &[PathBuf]) -> Vec<PathBuf> {
    let is_open = |path: &PathBuf| opened.contains(path);
    let named: Vec<PathBuf> = hidden.iter().filter(|it| is_open(it)).cloned().collect();
    // Such as the key in a folder of keys: it is a part of the place that was named.
    let is_part = |path: &PathBuf| named.iter().any(|place| path.starts_with(place));
    hidden.into_iter().filter(|it| !is_part(it)).collect()
}

/// Every place that is hidden from some child, or seen without its tokens, if it is there.
pub(crate) fn hidden_places(home: &Path, var: &dyn Fn(&str) -> Option<OsString>) -> Vec<PathBuf> {
    let places = SecretPlaces { home, var };
    let all = [
        places.hidden(),
        places.sockets(),
        places.logins(),
        places.settings(),
    ];
    all.concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(config: &str, kind: ChildKind, home: &Path) -> ReadingRules {
        let config = Config::parse(config).unwrap();
        let input = ReadingInput {
            kind,
            config: &config,
            home: Some(home),
            var: &|_| None,
            project: Path::new("/p"),
            agent_homes: &[home.join(".codex")],
            argv: &[],
        };
        input.rules().unwrap()
    }

    #[test]
    fn an_agent_sees_its_own_login_and_nobody_else_does() {
        let home = Path::new("/h");
        for (kind, sees_codex) in [
            (ChildKind::Session, true),
            (ChildKind::Setup, false),
            (ChildKind::Guard, false),
        ] {
            let rules = rules("", kind, home);
            let is_hidden = |path: &str| rules.hidden.contains(&home.join(path));
            assert_eq!(!is_hidden(".codex/auth.json"), sees_codex, "{kind:?}");
            assert!(is_hidden(".claude/.credentials.json"), "{kind:?}");
            assert!(is_hidden(".ssh"), "{kind:?}");
            assert!(rules.hidden.contains(&"/run/docker.sock".into()));
        }
    }

    #[test]
    fn what_is_secret_in_a_folder_that_is_opened_stays_hidden() {
        let temp = tempfile::tempdir().unwrap();
        let home = temp.path();
        std::fs::write(home.join(".npmrc"), "a=b\n//r/:_authToken=x\n").unwrap();
        for (entry, hidden, open, has_token) in [
            ("~", &[".ssh", ".config/gh", ".kube"][..], &[][..], false),
            ("~/.config", &[".ssh", ".config/gh"], &[], false),
            (
                "~/.config/gh",
                &[".ssh", ".config/op"],
                &[".config/gh"],
                false,
            ),
            // A part of it: the rest is still hidden.
            ("~/.kube/config", &[".kube"], &[], false),
            ("~/.npmrc", &[".ssh"], &[], true),
        ] {
            for key in ["readable", "writable"] {
                let text = format!("[sandbox.guard]\n{key} = [\"{entry}\"]\n");
                let rules = rules(&text, ChildKind::Guard, home);
                let is_hidden = |path: &&&str| rules.hidden.contains(&home.join(path));
                assert!(hidden.iter().all(|it| is_hidden(&it)), "{key} {entry}");
                assert!(!open.iter().any(|it| is_hidden(&it)), "{key} {entry}");
                assert_eq!(rules.replaced.is_empty(), has_token, "{key} {entry}");
            }
        }
        let keys = [
            home.join(".aws"),
            home.join(".aws/credentials"),
            home.join(".ssh"),
        ];
        let left = still_hidden(keys.to_vec(), &[home.join(".aws")]);
        assert_eq!(left, [home.join(".ssh")]);
    }

    #[test]
    fn what_the_config_opens() {
        let temp = tempfile::tempdir().unwrap();
        let home = temp.path();
        std::fs::write(home.join(".npmrc"), "a=b\n//r/:_authToken=x\n").unwrap();
        let closed = rules("", ChildKind::Setup, home);
        assert_eq!(closed.replaced, [(home.join(".npmrc"), "a=b\n".to_owned())]);
        let text =
            "[sandbox]\nreadable = [\"~/.ssh\"]\n[sandbox.setup]\nreadable = [\"~/.npmrc\"]\n";
        let opened = rules(text, ChildKind::Setup, home);
        assert!(opened.replaced.is_empty());
        assert!(!opened.hidden.contains(&home.join(".ssh")));
        assert_eq!(opened.in_sight, [home.join(".ssh"), home.join(".npmrc")]);
        let guard = rules(text, ChildKind::Guard, home);
        assert_eq!(guard.in_sight, [home.join(".ssh")]);
        assert_eq!(guard.replaced.len(), 1);
    }
}
