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
            rules
                .replaced
                .retain(|(place, _)| !place.starts_with(&path));
            rules.in_sight.push(path);
        }
        // What is started can be read wherever it lies, and so can the files that it is given.
        if self.kind == ChildKind::Session {
            let words = self.argv.iter().map(PathBuf::from);
            let named = words.filter(|path| path.is_absolute() && path.is_file());
            rules.in_sight.extend(named);
        }
        // Opened as a whole: what lies below it is meant, too.
        let mut opened = rules.in_sight.clone();
        for text in self.config.sandbox.writable_for(self.kind) {
            opened.extend(expand_home(text, self.home, self.project));
        }
        let is_hidden = |path: &PathBuf| !opened.iter().any(|it| path.starts_with(it));
        rules.hidden.retain(is_hidden);
        self.hide_own(&mut rules)?;
        Ok(rules)
    }

    /// Hides what the config names.
    fn hide_own(&self, rules: &mut ReadingRules) -> Result<()> {
        for text in &self.config.sandbox.hidden {
            let refuse = |message: String| {
                Error::new(ErrorCode::Config, format!("[sandbox] hidden: {message}"))
            };
            let path = expand_home(text, self.home, self.project).map_err(refuse)?;
            let holds = |place: &Path| place.starts_with(&path);
            if holds(self.project) || self.home.is_some_and(holds) {
                return Err(
                    refuse(format!("`{text}` holds the project or the home folder"))
                        .hint("name a path below it"),
                );
            }
            rules
                .replaced
                .retain(|(place, _)| !place.starts_with(&path));
            rules.hidden.push(path);
        }
        Ok(())
    }
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
    fn what_the_config_hides() {
        let temp = tempfile::tempdir().unwrap();
        let home = temp.path();
        std::fs::write(home.join(".npmrc"), "a=b\n//r/:_authToken=x\n").unwrap();
        let text = "[sandbox]\nhidden = [\"~/private\", \"~/.npmrc\", \"/srv/keys\"]\n";
        for kind in ChildKind::ALL {
            let rules = rules(text, kind, home);
            for path in [
                home.join("private"),
                home.join(".npmrc"),
                "/srv/keys".into(),
            ] {
                assert!(rules.hidden.contains(&path), "{kind:?} {}", path.display());
            }
            assert!(rules.hidden.contains(&home.join(".ssh")), "they are added");
            assert!(rules.replaced.is_empty(), "no line of it is seen");
        }
        for path in ["~", "/", "/p"] {
            let config = Config::parse(&format!("[sandbox]\nhidden = [\"{path}\"]\n")).unwrap();
            let input = ReadingInput {
                kind: ChildKind::Guard,
                config: &config,
                home: Some(home),
                var: &|_| None,
                project: Path::new("/p"),
                agent_homes: &[],
                argv: &[],
            };
            let error = input.rules().unwrap_err();
            assert!(
                error.message.contains("holds the project"),
                "{}",
                error.message
            );
        }
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
