//! What of the machine a child cannot read: keys, logins, histories, sockets of other programs.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use runner_core::config::{ChildKind, Config, NetworkRule};
use runner_sandbox::{
    SecretPlaces, SettingsFormat, beside_sockets, expand_home, included_settings, named_sockets,
    sockets_in, sockets_in_use, without_tokens,
};

use crate::checkout::temp_folder::TempFolder;
use crate::error::{Error, ErrorCode, Result};
use crate::files;

/// The largest file of settings of which lines are left out.
const MAX_SETTINGS: u64 = 1 << 20;

/// How many such files are looked at: they may include each other.
const MAX_FILES: usize = 64;

/// What a child may read, as far as it is not everything.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct ReadingRules {
    /// Folders and files that are hidden.
    pub(crate) hidden: Vec<PathBuf>,
    /// Those among them in which other programs listen.
    pub(crate) sockets: Vec<PathBuf>,
    /// What the config opens again, what the child is started with, and what lies beside sockets.
    pub(crate) in_sight: Vec<PathBuf>,
    /// Files of settings and what of them is seen: the place, and the text.
    pub(crate) replaced: Vec<(PathBuf, String)>,
}

/// The sockets that there are right now, and those that the runner's own environment names.
pub(crate) fn sockets_of_others() -> Vec<PathBuf> {
    let values: Vec<OsString> = std::env::vars_os().map(|(_, value)| value).collect();
    let mut sockets = named_sockets(values.iter().map(OsString::as_os_str));
    sockets.extend(sockets_in_use());
    sockets
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
    /// Sockets of other programs, wherever they lie.
    pub(crate) other_sockets: &'a [PathBuf],
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
            rules.sockets = places.sockets();
            rules.sockets.extend(sockets_in(home));
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
            rules.replaced = replaced_settings(places.settings(), home);
        }
        // With another network or none, nobody answers who could be asked.
        let resolves = *self.config.sandbox.network.rule(self.kind) == NetworkRule::Open;
        let beside = beside_sockets(resolves);
        let others = self.other_sockets.iter().cloned();
        let is_beside = |path: &PathBuf| beside.iter().any(|it| path.starts_with(it));
        rules.sockets.extend(others.filter(|path| !is_beside(path)));
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
        // By a link, too, such as /var/run.
        let real: Vec<PathBuf> = opened
            .iter()
            .filter_map(|it| it.canonicalize().ok())
            .collect();
        opened.extend(real);
        rules.hidden = still_hidden(rules.hidden, &opened);
        rules.replaced.retain(|(place, _)| !opened.contains(place));
        let is_closed = |path: &PathBuf| !opened.iter().any(|it| path.starts_with(it));
        rules.sockets.retain(is_closed);
        rules.hidden.extend_from_slice(&rules.sockets);
        rules.in_sight.extend(beside);
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

/// What is seen of files of settings that hold secrets, and of those that they include.
fn replaced_settings(
    mut waiting: Vec<(PathBuf, SettingsFormat)>,
    home: &Path,
) -> Vec<(PathBuf, String)> {
    let mut replaced: Vec<(PathBuf, String)> = Vec::new();
    let mut done = 0;
    while let Some((path, format)) = waiting.get(done).cloned() {
        done += 1;
        let Ok(bytes) = files::read_regular(&path, MAX_SETTINGS) else {
            continue;
        };
        let text = String::from_utf8_lossy(&bytes);
        if format == SettingsFormat::Git {
            let around = path.parent().unwrap_or(home);
            let included = included_settings(&text);
            let included = included
                .into_iter()
                .filter_map(|it| expand_home(it, Some(home), around).ok());
            let known: Vec<PathBuf> = waiting.iter().map(|(path, _)| path.clone()).collect();
            let new = included.filter(|path| !known.contains(path));
            let room = MAX_FILES.saturating_sub(waiting.len());
            waiting.extend(new.take(room).map(|path| (path, format)));
        }
        let seen = without_tokens(format, &text);
        replaced.extend(seen.map(|seen| (path, seen)));
    }
    replaced
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
    let settings = places.settings().into_iter().map(|(path, _)| path);
    [places.hidden(), places.logins(), settings.collect()].concat()
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
            other_sockets: &["/a/agent.sock".into(), "/b/tmux".into()],
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
            assert!(rules.hidden.contains(&"/run".into()));
            assert!(rules.hidden.contains(&"/a/agent.sock".into()));
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
                other_sockets: &[],
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
        // One that includes itself and another one.
        let include = "[include]\n\tpath = .gitconfig\n\tpath = ~/work\n";
        std::fs::write(home.join(".gitconfig"), include).unwrap();
        std::fs::write(home.join("work"), "[github]\n\ttoken = x\n").unwrap();
        let closed = rules("", ChildKind::Setup, home);
        let work = (home.join("work"), "[github]\n".to_owned());
        let npm = (home.join(".npmrc"), "a=b\n".to_owned());
        assert_eq!(closed.replaced, [npm, work.clone()]);
        let text =
            "[sandbox]\nreadable = [\"~/.ssh\"]\n[sandbox.setup]\nreadable = [\"~/.npmrc\"]\n";
        let opened = rules(text, ChildKind::Setup, home);
        assert_eq!(opened.replaced, [work]);
        assert!(!opened.hidden.contains(&home.join(".ssh")));
        assert_eq!(
            opened.in_sight[..2],
            [home.join(".ssh"), home.join(".npmrc")]
        );
        let guard = rules(text, ChildKind::Guard, home);
        assert_eq!(guard.in_sight[..1], [home.join(".ssh")]);
        assert!(!guard.in_sight.contains(&home.join(".npmrc")));
        assert_eq!(guard.replaced.len(), 2);
    }

    #[test]
    fn sockets_are_opened_one_by_one() {
        let home = tempfile::tempdir().unwrap();
        let listener = std::os::unix::net::UnixListener::bind(home.path().join("s"));
        drop(listener.unwrap());
        let text = "[sandbox.guard]\nwritable = [\"/run/postgresql\", \"/b\"]\n\
                    [sandbox.network]\nguard = \"off\"\n";
        for (kind, opened) in [(ChildKind::Guard, true), (ChildKind::Session, false)] {
            let rules = rules(text, kind, home.path());
            for path in ["/run".into(), "/a/agent.sock".into(), home.path().join("s")] {
                assert!(rules.sockets.contains(&path), "{kind:?} {}", path.display());
                assert!(rules.hidden.contains(&path), "{kind:?} {}", path.display());
            }
            assert_eq!(!rules.hidden.contains(&"/b/tmux".into()), opened);
            let resolves = rules.in_sight.contains(&"/run/nscd".into());
            assert_eq!(resolves, kind == ChildKind::Session);
        }
    }
}
