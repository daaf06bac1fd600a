//! Which folder a guard lacks in the sandbox, read out of what it printed.

use std::path::{Path, PathBuf};

/// What programs say when a write is refused: bubblewrap's `EROFS`, Landlock's
/// `EACCES`, in the words of libc, Go, Node, Python and Rust.
const WORDS: &[&str] = &[
    "read-only file system",
    "permission denied",
    "erofs",
    "eacces",
    "os error 30",
    "os error 13",
    "errno 30",
    "errno 13",
];

/// Where programs share memory: a folder that Landlock cannot give to each of them alone.
pub(super) const SHARED_MEMORY: &str = "/dev/shm";

/// What stands near such words where that folder was refused and nothing names it.
const SHARING: &[&str] = &["semlock", "sem_open", "shm_open"];

/// How far from such words a path may be: some tools tell it in lines of their own.
const LINES_BEFORE: usize = 4;
const LINES_AFTER: usize = 2;

/// The absolute paths that were refused, in the order of their first mention.
pub(super) fn denied_paths(log: &str) -> Vec<PathBuf> {
    let lines: Vec<&str> = log.lines().collect();
    let mut found: Vec<PathBuf> = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        let lower = line.to_lowercase();
        if !WORDS.iter().any(|word| lower.contains(word)) {
            continue;
        }
        let before = lines[at.saturating_sub(LINES_BEFORE)..at].iter().rev();
        let after = lines[at + 1..].iter().take(LINES_AFTER);
        let nearest = std::iter::once(line).chain(before).chain(after);
        let paths = nearest
            .map(|line| paths_in(line))
            .find(|paths| !paths.is_empty());
        let around = &lines[at.saturating_sub(LINES_BEFORE)..=at];
        let shares = around.iter().any(|line| {
            let lower = line.to_lowercase();
            SHARING.iter().any(|word| lower.contains(word))
        });
        let paths = if shares {
            vec![PathBuf::from(SHARED_MEMORY)]
        } else {
            paths.unwrap_or_default()
        };
        for path in paths {
            if !found.contains(&path) {
                found.push(path);
            }
        }
    }
    found
}

/// The absolute paths in a line, quoted or not.
fn paths_in(line: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut rest = line;
    let mut before: Option<char> = None;
    while let Some(at) = rest.find('/') {
        let opened = rest[..at].chars().next_back().or(before);
        let from = &rest[at..];
        let close = match opened {
            None | Some('(' | '[' | '=' | '<') => None,
            Some('\'' | '‘') => Some(['\'', '’']),
            Some('"' | '“') => Some(['"', '”']),
            Some('`') => Some(['`', '\'']),
            Some(c) if c.is_whitespace() => None,
            // The middle of a word: an address, a relative path.
            Some(_) => {
                let end = from.find(char::is_whitespace).unwrap_or(from.len());
                before = from[..end].chars().next_back();
                rest = &from[end..];
                continue;
            }
        };
        let end = match close {
            Some(quotes) => from.find(quotes),
            None => from.find(|c: char| c.is_whitespace() || ":,;()[]<>'\"`’”".contains(c)),
        };
        let text = &from[..end.unwrap_or(from.len())];
        let path = text.trim_end_matches(['.', '/']);
        if path.len() > 1 {
            found.push(PathBuf::from(path));
        }
        before = text.chars().next_back();
        rest = &from[text.len()..];
    }
    found
}

/// What lies at a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PathKind {
    Folder,
    File,
}

/// The ground on which a folder is chosen.
pub(super) struct FolderContext<'a> {
    pub(super) home: Option<&'a Path>,
    /// Folders on PATH: nothing that holds one should become writable.
    pub(super) on_path: &'a [PathBuf],
    /// What lies at a path, if anything does.
    pub(super) kind: &'a dyn Fn(&Path) -> Option<PathKind>,
}

impl FolderContext<'_> {
    /// What to make writable, so that a refused path can be written: a folder that
    /// is not too broad, or the file itself where there is no such folder.
    pub(super) fn folder_for(&self, path: &Path) -> PathBuf {
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
            || self.home.is_some_and(holds)
            || self.on_path.iter().any(|inner| holds(inner))
    }

    /// A path as the config can have it.
    pub(super) fn shown(&self, path: &Path) -> String {
        match self.home.and_then(|home| path.strip_prefix(home).ok()) {
            Some(rest) if rest.as_os_str().is_empty() => "~".to_owned(),
            Some(rest) => format!("~/{}", rest.display()),
            None => path.display().to_string(),
        }
    }
}

/// What to do about a guard that is refused something: `allowed` is the list that
/// holds now, `wanted` what it should have too.
pub(super) fn remedy(
    allowed: &[PathBuf],
    wanted: &[PathBuf],
    folder_context: &FolderContext<'_>,
) -> String {
    if wanted.is_empty() {
        return "its output names no folder that it could not write to: find out where it writes, and add that folder to [sandbox] writable"
            .to_owned();
    }
    let names: Vec<String> = wanted
        .iter()
        .map(|path| folder_context.shown(path))
        .collect();
    let list: Vec<String> = allowed
        .iter()
        .chain(wanted)
        .map(|path| format!("\"{}\"", folder_context.shown(path)))
        .collect();
    let mut text = format!(
        "it could not write to {}; in .runner/state/config.toml: [sandbox] writable = [{}]",
        names.join(", "),
        list.join(", ")
    );
    if wanted
        .iter()
        .any(|path| (folder_context.kind)(path).is_none())
    {
        text.push_str("; make it first, for what is not there is left out");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_in_what_programs_print() {
        for (log, expected) in [
            (
                "touch: cannot touch '/h/u/x y': Read-only file system",
                "/h/u/x y",
            ),
            (
                "mkdir: cannot create directory ‘/h/u/.foo’: Permission denied",
                "/h/u/.foo",
            ),
            (
                "sh: 1: cannot create /h/u/x: Read-only file system",
                "/h/u/x",
            ),
            ("bash: line 1: /h/u/x: Read-only file system", "/h/u/x"),
            (
                "open /h/u/go/pkg/x.lock: read-only file system",
                "/h/u/go/pkg/x.lock",
            ),
            (
                "Error: EROFS: read-only file system, mkdir '/h/u/.npm/_c'",
                "/h/u/.npm/_c",
            ),
            (
                "PermissionError: [Errno 13] Permission denied: '/opt/x'",
                "/opt/x",
            ),
            (
                "error: failed to create directory `/h/u/.cargo/registry/a`\n\nCaused by:\n  Read-only file system (os error 30)",
                "/h/u/.cargo/registry/a",
            ),
            (
                "npm error code EACCES\nnpm error path /h/u/.npm",
                "/h/u/.npm",
            ),
            ("Permission denied (publickey)", ""),
            ("GET http://x.test/a: permission denied", ""),
            ("rm a/b: Permission denied", ""),
            ("cannot touch /: Permission denied", ""),
            ("/h/u/x is fine", ""),
            (
                "a '/h/1': Permission denied\nb '/h/2': Permission denied\nc '/h/1': EACCES",
                "/h/1 /h/2",
            ),
            ("", ""),
        ] {
            let found: Vec<String> = denied_paths(log)
                .iter()
                .map(|path| path.display().to_string())
                .collect();
            assert_eq!(found.join(" "), expected, "{log}");
        }
    }

    fn kind(path: &Path) -> Option<PathKind> {
        let folders = [
            "/",
            "/h",
            "/h/u",
            "/h/u/.cache",
            "/h/u/.tool",
            "/h/u/.tool/bin",
            "/h/u/.tool/db",
            "/opt",
            "/opt/x",
        ];
        let files = ["/h/u/.rc", "/h/u/.cache/f"];
        let is = |list: &[&str]| list.iter().any(|it| Path::new(it) == path);
        match (is(&folders), is(&files)) {
            (true, _) => Some(PathKind::Folder),
            (_, true) => Some(PathKind::File),
            _ => None,
        }
    }

    #[test]
    fn folders_that_are_not_too_broad() {
        let on_path = [PathBuf::from("/h/u/.tool/bin")];
        let folder_context = FolderContext {
            home: Some(Path::new("/h/u")),
            on_path: &on_path,
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
        ] {
            let folder = folder_context.folder_for(Path::new(path));
            assert_eq!(folder_context.shown(&folder), expected, "{path}");
        }
    }

    #[test]
    fn the_line_for_the_config_is_complete() {
        let folder_context = FolderContext {
            home: Some(Path::new("/h/u")),
            on_path: &[],
            kind: &kind,
        };
        let cache = [PathBuf::from("/h/u/.cache")];
        let text = remedy(&cache, &["/h/u/.tool".into()], &folder_context);
        assert!(text.contains("could not write to ~/.tool; in"), "{text}");
        assert!(
            text.contains("writable = [\"~/.cache\", \"~/.tool\"]"),
            "{text}"
        );
        assert!(!text.contains("make it first"), "{text}");
        let text = remedy(&[], &["/h/u/.new".into()], &folder_context);
        assert!(text.contains("writable = [\"~/.new\"]"), "{text}");
        assert!(text.contains("make it first"), "{text}");
        assert!(remedy(&cache, &[], &folder_context).contains("names no folder"));
    }
}
