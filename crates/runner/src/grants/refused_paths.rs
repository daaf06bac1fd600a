//! Which paths a program was refused, read out of what it printed.

use std::path::PathBuf;

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
pub(crate) const SHARED_MEMORY: &str = "/dev/shm";

/// What stands near such words where that folder was refused and nothing names it.
const SHARING: &[&str] = &["semlock", "sem_open", "shm_open"];

/// How far from such words a path may be: some tools tell it in lines of their own.
const LINES_BEFORE: usize = 4;
const LINES_AFTER: usize = 2;

/// What a line says was refused.
#[derive(Debug, PartialEq, Eq)]
enum RefusedObject {
    Path(PathBuf),
    /// Something without an absolute path.
    Other,
    /// The line does not say.
    Unnamed,
}

/// An absolute path in a line.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct PathSpan {
    pub(super) start: usize,
    pub(super) end: usize,
    pub(super) path: PathBuf,
}

/// The absolute paths that were refused, in the order of their first mention.
pub(crate) fn denied_paths(log: &str) -> Vec<PathBuf> {
    let lines: Vec<&str> = log.lines().collect();
    let mut found: Vec<PathBuf> = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        let Some(words) = refusal_in(line) else {
            continue;
        };
        let around = &lines[at.saturating_sub(LINES_BEFORE)..=at];
        let shares = around.iter().any(|line| {
            let lower = line.to_lowercase();
            SHARING.iter().any(|word| lower.contains(word))
        });
        let paths = if shares {
            vec![PathBuf::from(SHARED_MEMORY)]
        } else {
            match refused_in(line, words) {
                RefusedObject::Path(path) => vec![path],
                RefusedObject::Other => Vec::new(),
                RefusedObject::Unnamed => {
                    let before = around[..around.len() - 1].iter().rev();
                    let after = lines[at + 1..].iter().take(LINES_AFTER);
                    before
                        .chain(after)
                        .map(|line| told_in(line))
                        .find(|paths| !paths.is_empty())
                        .unwrap_or_default()
                }
            }
        };
        for path in paths {
            if !found.contains(&path) {
                found.push(path);
            }
        }
    }
    found
}

/// Where the words of a refusal begin and end in a line.
fn refusal_in(line: &str) -> Option<(usize, usize)> {
    let lower = line.to_ascii_lowercase();
    let places = WORDS
        .iter()
        .filter_map(|word| lower.find(word).map(|at| (at, at + word.len())));
    places.reduce(|(start, end), (from, to)| (start.min(from), end.max(to)))
}

/// What these words of a line are about: what stands right before them, else what is named behind
/// them, else the last path before them. The program that says so, at the line's beginning, is not.
fn refused_in(line: &str, (start, end): (usize, usize)) -> RefusedObject {
    let spans = paths_in(line);
    let is_joint = |text: &str| text.chars().all(|it| " \t:'\"`’”)[".contains(it));
    let last = spans.iter().rev().find(|span| span.end <= start);
    if let Some(span) = last.filter(|span| is_joint(&line[span.end..start])) {
        return RefusedObject::Path(span.path.clone());
    }
    let behind = &line[end..];
    let quote = behind.find(['\'', '"', '`', '‘', '“']);
    let next = spans.iter().find(|span| span.start >= end);
    let is_relative = quote.is_some_and(|at| {
        let quoted = behind[at..].trim_start_matches(['\'', '"', '`', '‘', '“']);
        !quoted.starts_with('/') && next.is_none_or(|span| span.start > end + at)
    });
    if is_relative {
        return RefusedObject::Other;
    }
    if let Some(span) = next {
        return RefusedObject::Path(span.path.clone());
    }
    // `cannot create x: Permission denied`, but not `Error: EACCES`.
    let before = line[..start].trim_end();
    let word = before.strip_suffix(':').map(|it| {
        let word = it.split_whitespace().next_back().unwrap_or_default();
        word.to_ascii_lowercase()
    });
    if word.is_some_and(|it| !it.contains("error") && !it.contains("err!")) {
        return RefusedObject::Other;
    }
    let last = last.filter(|span| !is_prefix(line, span));
    last.map_or(RefusedObject::Unnamed, |span| {
        RefusedObject::Path(span.path.clone())
    })
}

/// Whether a path is the program that speaks: `/x/check.sh: line 3: …`.
fn is_prefix(line: &str, span: &PathSpan) -> bool {
    line[..span.start].trim().is_empty() && line[span.end..].starts_with(':')
}

/// The paths that a line near such words tells of.
fn told_in(line: &str) -> Vec<PathBuf> {
    let spans = paths_in(line).into_iter();
    spans
        .filter(|span| !is_prefix(line, span))
        .map(|span| span.path)
        .collect()
}

/// The absolute paths in a line, quoted or not.
pub(super) fn paths_in(line: &str) -> Vec<PathSpan> {
    let mut found = Vec::new();
    let mut rest = line;
    let mut before: Option<char> = None;
    while let Some(at) = rest.find('/') {
        let opened = rest[..at].chars().next_back().or(before);
        let from = &rest[at..];
        let close = match opened {
            None | Some('(' | '[' | '=' | '<' | '>' | ';' | '&' | '|') => None,
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
            None => from.find(|c: char| c.is_whitespace() || ":,;()[]<>'\"`’”&|".contains(c)),
        };
        let text = &from[..end.unwrap_or(from.len())];
        let path = text.trim_end_matches(['.', '/']);
        if path.len() > 1 {
            let start = line.len() - from.len();
            found.push(PathSpan {
                start,
                end: start + text.len(),
                path: PathBuf::from(path),
            });
        }
        before = text.chars().next_back();
        rest = &from[text.len()..];
    }
    found
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
            // The program that speaks is not what was refused.
            (
                "/x/check.sh: 1: cannot create /h/u/.tool/c: Read-only file system",
                "/h/u/.tool/c",
            ),
            ("/x/check.sh: line 3: /h/u/x: Permission denied", "/h/u/x"),
            ("/x/check.sh: 1: cannot create out/x: Permission denied", ""),
            (
                "/usr/bin/touch: cannot touch '/h/u/x': Permission denied",
                "/h/u/x",
            ),
            (
                "node:/x/fs.js: Error: EACCES: permission denied, open '/h/u/x'",
                "/h/u/x",
            ),
            (
                "cannot open /h/u/x for writing (Permission denied)",
                "/h/u/x",
            ),
            // Neither is what stands around something relative.
            (
                "  File \"/usr/lib/python3/pathlib.py\", line 12\nPermissionError: [Errno 13] Permission denied: 'out/x'",
                "",
            ),
            ("Checking /opt/x\ncannot create out: Permission denied", ""),
        ] {
            let found: Vec<String> = denied_paths(log)
                .iter()
                .map(|path| path.display().to_string())
                .collect();
            assert_eq!(found.join(" "), expected, "{log}");
        }
    }
}
