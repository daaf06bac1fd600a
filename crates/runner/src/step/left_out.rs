//! What a red verdict may have missed: files that the session, or one before it, made or changed,
//! that git ignores, and that the judged checkout does not have.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::Metadata;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use runner_core::config::Config;
use runner_core::paths::{self, FolderGlobs};
use runner_core::text::escape_path;

use crate::checkout::prepare;
use crate::checkout::workspace::RunWorkspace;
use crate::error::Result;
use crate::git::{Git, join_nul, to_path};
use crate::step::file_image;

/// So many names are told.
const SHOWN: usize = 8;

/// So many files are looked at: the first ones tell enough.
const MAX_LOOKED: usize = 50_000;

/// Folders in which tools keep what nobody commits.
const CACHES: &[&str] = &[
    "node_modules",
    "__pycache__",
    ".pytest_cache",
    ".mypy_cache",
    ".ruff_cache",
    ".cache",
];

/// What to compare.
pub(super) struct LeftOutInput<'a> {
    pub(super) workspace: &'a RunWorkspace,
    /// What git ignores in it, files and whole folders.
    pub(super) ignored: &'a [PathBuf],
    /// The checkout that was judged.
    pub(super) judged: &'a Path,
    /// A file that the runner wrote right before the session.
    pub(super) begun: &'a Path,
    pub(super) config: &'a Config,
}

/// An ignored file of a session, or several in one ignored folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LeftOutFiles {
    /// The file, or the folder.
    path: PathBuf,
    /// One of the files.
    first: PathBuf,
    count: usize,
    /// All of them lay there before the session.
    is_older: bool,
    /// The rule that ignores them, as `file:line`, if it is one of the project's.
    rule: Option<String>,
}

/// Looks for them.
pub(super) fn find(input: &LeftOutInput<'_>) -> Result<Vec<LeftOutFiles>> {
    let Ok(begun) = input.begun.symlink_metadata().map(|meta| changed_at(&meta)) else {
        return Ok(Vec::new());
    };
    let root = input.workspace.path();
    let included = prepare::included_files(&input.workspace.checkout);
    // A list that cannot be read was refused long before.
    let keep = FolderGlobs::new(&input.config.guard.keep).ok();
    let is_kept = |path: &Path| {
        let bytes = path.as_os_str().as_bytes();
        keep.as_ref().is_some_and(|globs| globs.is_match(bytes))
    };
    let mut looked = 0;
    // Nothing but sessions and setup leaves files in a workspace, and what setup makes the judged
    // checkout has, too.
    let mut is_missed = |path: &Path| {
        looked += 1;
        looked <= MAX_LOOKED
            && !is_kept(path)
            && !included.iter().any(|it| path == it)
            && input.judged.join(path).symlink_metadata().is_err()
    };
    let is_new = |path: &PathBuf| {
        let meta = root.join(path).symlink_metadata();
        meta.is_ok_and(|meta| changed_at(&meta) >= begun)
    };
    let mut found = Vec::new();
    for path in input.ignored.iter().filter(|path| is_asked(path)) {
        let mut files: Vec<PathBuf> = Vec::new();
        let is_folder = |meta: Metadata| meta.is_dir();
        if root.join(path).symlink_metadata().is_ok_and(is_folder) {
            file_image::walk(root, path, &mut |file, _| {
                if is_asked(&file) && is_missed(&file) {
                    files.push(file);
                }
            });
        } else if is_missed(path) {
            files.push(path.clone());
        }
        let Some(first) = files.iter().min().cloned() else {
            continue;
        };
        let is_one = files.len() == 1;
        let is_older = !files.iter().any(is_new);
        found.push(LeftOutFiles {
            path: if is_one { first.clone() } else { path.clone() },
            first,
            count: files.len(),
            is_older,
            rule: None,
        });
    }
    // Only the first ones are told.
    found.sort_by(|one, other| (one.is_older, &one.path).cmp(&(other.is_older, &other.path)));
    add_rules(&input.workspace.checkout.tree.git, &mut found)?;
    Ok(found)
}

fn is_asked(path: &Path) -> bool {
    let is_cache = |part: &std::ffi::OsStr| CACHES.iter().any(|name| part == *name);
    !paths::is_state_path(path.as_os_str().as_bytes()) && !path.iter().any(is_cache)
}

/// When the inode last changed, which nobody can set.
fn changed_at(meta: &Metadata) -> (i64, i64) {
    (meta.ctime(), meta.ctime_nsec())
}

/// Says which rule ignores those that are told.
fn add_rules(git: &Git, found: &mut [LeftOutFiles]) -> Result<()> {
    let shown = found.len().min(SHOWN);
    let told = &mut found[..shown];
    if told.is_empty() {
        return Ok(());
    }
    let input = join_nul(told.iter().map(|it| &it.first));
    let args = ["check-ignore", "--verbose", "-z", "--stdin"];
    let answer = git.ask_with(&args, &input)?.unwrap_or_default();
    let fields: Vec<&[u8]> = answer.split(|byte| *byte == 0).collect();
    let rules: BTreeMap<PathBuf, String> = fields
        .chunks_exact(4)
        .filter(|record| !record[0].starts_with(b"/"))
        .map(|record| {
            let line = String::from_utf8_lossy(record[1]);
            (
                to_path(record[3]),
                format!("{}:{line}", escape_path(record[0])),
            )
        })
        .collect();
    for it in told {
        it.rule = rules.get(&it.first).cloned();
    }
    Ok(())
}

impl LeftOutFiles {
    /// For people.
    fn words(&self) -> String {
        let name = escape_path(self.path.as_os_str().as_bytes());
        let by = self
            .rule
            .as_deref()
            .unwrap_or("an ignore file of the user's");
        let when = if self.is_older {
            ", left by an earlier session"
        } else {
            ""
        };
        match self.count {
            1 => format!("{name} (ignored by {by}{when})"),
            count => format!("{name}/ ({count} files, ignored by {by}{when})"),
        }
    }
}

/// What is added to the log of a red guard; `None`: nothing.
pub(super) fn about(found: &[LeftOutFiles]) -> Option<String> {
    if found.is_empty() {
        return None;
    }
    let mut text = String::from(
        "\nrunner: git ignores these files of sessions, so the commit that was judged does not have them:\n",
    );
    for it in found.iter().take(SHOWN) {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "  {}", it.words());
    }
    if let Some(more) = found.len().checked_sub(SHOWN).filter(|more| *more > 0) {
        let _ = writeln!(text, "  and {more} more");
    }
    text.push_str(
        "runner: if the guard needs them, change the ignore rule, or let the build make them\n",
    );
    Some(text)
}

/// The same in one line; `None`: nothing.
pub(super) fn note(found: &[LeftOutFiles]) -> Option<String> {
    let first = found.first()?;
    let more = match found.len() - 1 {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    Some(format!(
        "the judged commit does not have {}{more}",
        first.words()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(path: &str, count: usize, rule: Option<&str>) -> LeftOutFiles {
        LeftOutFiles {
            path: path.into(),
            first: path.into(),
            count,
            is_older: false,
            rule: rule.map(str::to_owned),
        }
    }

    #[test]
    fn what_is_told() {
        assert_eq!((about(&[]), note(&[])), (None, None));
        let one = [files("dist/schema.json", 1, Some(".gitignore:3"))];
        assert_eq!(
            about(&one).unwrap(),
            "\nrunner: git ignores these files of sessions, so the commit that was judged does not have them:\n  \
             dist/schema.json (ignored by .gitignore:3)\n\
             runner: if the guard needs them, change the ignore rule, or let the build make them\n"
        );
        assert_eq!(
            note(&one).unwrap(),
            "the judged commit does not have dist/schema.json (ignored by .gitignore:3)"
        );
        let older = [LeftOutFiles {
            is_older: true,
            ..files("dist", 2, Some(".gitignore:3"))
        }];
        assert_eq!(
            note(&older).unwrap(),
            "the judged commit does not have dist/ (2 files, ignored by .gitignore:3, left by an earlier session)"
        );
        let many: Vec<LeftOutFiles> = (0..11)
            .map(|n| files(&format!("d{n}"), n + 1, None))
            .collect();
        let text = about(&many).unwrap();
        assert!(
            text.contains(
                "  d7/ (8 files, ignored by an ignore file of the user's)\n  and 3 more\n"
            ),
            "{text}"
        );
        assert!(!text.contains("d8"), "{text}");
        assert!(
            note(&many)
                .unwrap()
                .ends_with("d0 (ignored by an ignore file of the user's) and 10 more")
        );
    }

    #[test]
    fn caches_and_the_runners_files_are_not_asked_about() {
        for (path, expected) in [
            ("dist/a", true),
            ("src/__pycache__", false),
            ("web/node_modules/x/y", false),
            (".runner/iterations", false),
        ] {
            assert_eq!(is_asked(Path::new(path)), expected, "{path}");
        }
    }
}
