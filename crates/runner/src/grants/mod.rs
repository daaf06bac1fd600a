//! What may be opened to a guard that was refused a path: the narrowest folder that helps, and
//! never what decides a verdict, is secret, or holds such a thing.

mod guard_files;
mod refused_paths;

use std::path::{Path, PathBuf};

use runner_core::config::{ChildKind, Config, SandboxConfig};
use runner_sandbox::expand_home;

use crate::step::hidden_paths;
pub(crate) use guard_files::{GuardFileSearch, writable_guard_file};
pub(crate) use refused_paths::{SHARED_MEMORY, denied_paths};

/// What lies at a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PathKind {
    Folder,
    File,
}

/// What to do about a path that a guard was refused.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum GrantAdvice {
    /// This may be made writable: a folder that is not too broad, or the path itself.
    Writable(PathBuf),
    /// It is hidden: opening it is for a person to decide.
    Hidden(PathBuf),
    /// What decides a verdict, or what all programs share: it stays closed.
    Closed(PathBuf),
}

/// The ground on which that is decided.
pub(crate) struct GrantContext<'a> {
    pub(crate) home: Option<PathBuf>,
    /// Folders on PATH: nothing that holds one becomes writable.
    pub(crate) on_path: Vec<PathBuf>,
    /// The guard's own files, the shared temp folder and the like: closed, and so is what holds one.
    pub(crate) closed: Vec<PathBuf>,
    /// What children do not see by default.
    pub(crate) hidden: Vec<PathBuf>,
    /// What lies at a path, if anything does.
    pub(crate) kind: &'a dyn Fn(&Path) -> Option<PathKind>,
}

impl GrantContext<'_> {
    /// By the config and the machine. `own`: further folders that stay closed, as a whole.
    pub(crate) fn of(config: &Config, root: &Path, own: &[&Path]) -> GrantContext<'static> {
        let home = std::env::var_os("HOME").map(PathBuf::from);
        let var = |name: &str| std::env::var_os(name);
        let path_var = var("PATH").unwrap_or_default();
        let search = GuardFileSearch {
            home: home.as_deref(),
            path_var: &path_var,
            root,
        };
        let mut closed = search.files(&config.guard.command);
        closed.push(std::env::temp_dir());
        closed.push(root.to_owned());
        closed.extend(own.iter().map(|path| (*path).to_owned()));
        GrantContext {
            on_path: std::env::split_paths(&path_var).collect(),
            closed,
            hidden: home
                .as_deref()
                .map_or_else(Vec::new, |home| hidden_paths::hidden_places(home, &var)),
            home,
            kind: &|path| {
                let meta = path.metadata().ok()?;
                Some(if meta.is_dir() {
                    PathKind::Folder
                } else {
                    PathKind::File
                })
            },
        }
    }

    /// What helps where this path was refused.
    pub(crate) fn advise(&self, path: &Path) -> GrantAdvice {
        if self.hidden.iter().any(|it| path.starts_with(it)) {
            return GrantAdvice::Hidden(path.to_owned());
        }
        if self.holds_closed(path) {
            return GrantAdvice::Closed(path.to_owned());
        }
        GrantAdvice::Writable(self.folder_for(path))
    }

    fn holds_closed(&self, path: &Path) -> bool {
        let mut closed = self.closed.iter().chain(&self.hidden);
        closed.any(|it| it.starts_with(path))
    }

    fn folder_for(&self, path: &Path) -> PathBuf {
        let existing = path
            .ancestors()
            .find(|above| (self.kind)(above) == Some(PathKind::Folder))
            .unwrap_or(Path::new("/"));
        // From there towards the path, until it is not too broad.
        let mut way: Vec<&Path> = path
            .ancestors()
            .take_while(|above| *above != existing)
            .collect();
        way.push(existing);
        let found = way.iter().rev().find(|folder| !self.is_too_broad(folder));
        found.map_or_else(|| path.to_owned(), |folder| (*folder).to_owned())
    }

    fn is_too_broad(&self, folder: &Path) -> bool {
        let holds = |inner: &Path| inner.starts_with(folder);
        folder.components().count() <= 2
            || self.home.as_deref().is_some_and(holds)
            || self.on_path.iter().any(|inner| holds(inner))
            || self.holds_closed(folder)
    }

    /// A path as the config can have it.
    pub(crate) fn shown(&self, path: &Path) -> String {
        let home = self.home.as_deref();
        match home.and_then(|home| path.strip_prefix(home).ok()) {
            Some(rest) if rest.as_os_str().is_empty() => "~".to_owned(),
            Some(rest) => format!("~/{}", rest.display()),
            None => path.display().to_string(),
        }
    }
}

/// A path that the config opens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OpenedEntry {
    /// Where it stands: `[sandbox.guard] readable = ["~/x"]`.
    pub(crate) words: String,
    pub(crate) path: PathBuf,
    /// Whether it may be written, not only read.
    pub(crate) is_writable: bool,
}

/// Everything that the config opens, to whichever child; what cannot be expanded is the doctor's to
/// tell.
pub(crate) fn opened_entries(
    config: &SandboxConfig,
    home: Option<&Path>,
    root: &Path,
) -> Vec<OpenedEntry> {
    let all = ("sandbox".to_owned(), &config.readable, &config.writable);
    let each = ChildKind::ALL.into_iter().map(|kind| {
        let opened = config.opened(kind);
        let table = format!("sandbox.{}", kind.as_str());
        (table, &opened.readable, &opened.writable)
    });
    let mut entries = Vec::new();
    for (table, readable, writable) in std::iter::once(all).chain(each) {
        for (key, list) in [("readable", readable), ("writable", writable)] {
            entries.extend(list.iter().filter_map(|text| {
                Some(OpenedEntry {
                    words: format!("[{table}] {key} = [{text:?}]"),
                    path: expand_home(text, home, root).ok()?,
                    is_writable: key == "writable",
                })
            }));
        }
    }
    entries
}

/// The words of the entries that open something that is hidden: a place, or a part of one.
pub(crate) fn opened_secrets(entries: &[OpenedEntry], hidden: &[PathBuf]) -> Vec<String> {
    let opens = |path: &Path| hidden.iter().any(|it| path.starts_with(it));
    let opening = entries.iter().filter(|entry| opens(&entry.path));
    opening.map(|entry| entry.words.clone()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(path: &Path) -> Option<PathKind> {
        let folders = [
            "/",
            "/h",
            "/h/u",
            "/h/u/.cache",
            "/h/u/.config",
            "/h/u/.kube",
            "/h/u/.tool",
            "/h/u/.tool/bin",
            "/h/u/.tool/db",
            "/h/u/bin",
            "/opt",
            "/opt/x",
            "/tmp",
        ];
        let files = ["/h/u/.rc", "/h/u/.cache/f", "/h/u/bin/check.sh"];
        let is = |list: &[&str]| list.iter().any(|it| Path::new(it) == path);
        match (is(&folders), is(&files)) {
            (true, _) => Some(PathKind::Folder),
            (_, true) => Some(PathKind::File),
            _ => None,
        }
    }

    #[test]
    fn what_opens_something_secret() {
        let text = "[sandbox]\nreadable = [\"~\", \"~/.ssh\"]\nwritable = [\"~/.config\"]\n\
                    [sandbox.guard]\nwritable = [\"~/.kube/config\"]\n";
        let config = Config::parse(text).unwrap();
        let entries = opened_entries(&config.sandbox, Some(Path::new("/h")), Path::new("/p"));
        let written = entries.iter().filter(|it| it.is_writable).count();
        assert_eq!((entries.len(), written), (4, 2));
        let hidden = ["/h/.ssh", "/h/.kube", "/h/.config/gh"].map(PathBuf::from);
        assert_eq!(
            opened_secrets(&entries, &hidden),
            [
                "[sandbox] readable = [\"~/.ssh\"]",
                "[sandbox.guard] writable = [\"~/.kube/config\"]"
            ]
        );
    }

    #[test]
    fn the_narrowest_folder_that_is_neither_secret_nor_a_judge() {
        let paths = |list: &[&str]| list.iter().map(PathBuf::from).collect::<Vec<_>>();
        let context = GrantContext {
            home: Some("/h/u".into()),
            on_path: paths(&["/h/u/.tool/bin"]),
            closed: paths(&["/h/u/bin/check.sh", "/tmp", "/srv/p"]),
            hidden: paths(&["/h/u/.kube", "/h/u/.config/gh", "/h/u/.docker/config.json"]),
            kind: &kind,
        };
        for (path, expected) in [
            ("/h/u/.cache/a/b", "~/.cache"),
            ("/h/u/.cache", "~/.cache"),
            ("/h/u/.cache/f", "~/.cache"),
            ("/h/u/.new/a/b", "~/.new"),
            ("/h/u/.rc", "~/.rc"),
            ("/h/u/file", "~/file"),
            ("/h/u/.tool/db/x", "~/.tool/db"),
            ("/h/u/.tool/new/x", "~/.tool/new"),
            ("/opt/x/y/z", "/opt/x"),
            ("/opt/y/z", "/opt/y"),
            ("/new/y/z", "/new/y"),
            // Beside what is secret.
            ("/h/u/.config/newtool/cache", "~/.config/newtool"),
            ("/h/u/.docker/buildx/x", "~/.docker/buildx"),
            ("/tmp/fixed/x", "/tmp/fixed"),
            // What is secret.
            ("/h/u/.kube", "hidden ~/.kube"),
            ("/h/u/.kube/config", "hidden ~/.kube/config"),
            ("/h/u/.config/gh/hosts.yml", "hidden ~/.config/gh/hosts.yml"),
            // What decides a verdict, what is shared, and what holds one of them.
            ("/h/u/bin/check.sh", "closed ~/bin/check.sh"),
            ("/h/u/bin", "closed ~/bin"),
            ("/h/u/bin/state", "~/bin/state"),
            ("/h/u/.config", "closed ~/.config"),
            ("/h/u", "closed ~"),
            ("/tmp", "closed /tmp"),
            ("/srv", "closed /srv"),
            ("/", "closed /"),
        ] {
            let found = match context.advise(Path::new(path)) {
                GrantAdvice::Writable(path) => context.shown(&path),
                GrantAdvice::Hidden(path) => format!("hidden {}", context.shown(&path)),
                GrantAdvice::Closed(path) => format!("closed {}", context.shown(&path)),
            };
            assert_eq!(found, expected, "{path}");
        }
    }
}
