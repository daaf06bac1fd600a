//! The project's own instructions for agents (`AGENTS.md`, `CLAUDE.md`), as they were at the base:
//! what a session writes into such a file steers no later one.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Component, Path, PathBuf};

use runner_core::config::BackendKind;
use runner_core::text::cut_end;

use crate::error::Result;
use crate::git::{Git, TreeEntry};

/// So much of them is told.
const MAX_BYTES: usize = 32 << 10;

/// How deep files may include each other.
const MAX_DEPTH: usize = 5;

/// So many folders with instructions of their own are named.
const MAX_FOLDERS: usize = 50;

/// How long a chain of links may be.
const MAX_LINKS: usize = 8;

/// The names that a CLI looks for, the first of each group that is there.
fn names(kind: BackendKind) -> &'static [&'static [&'static str]] {
    match kind {
        BackendKind::Codex => &[&["AGENTS.override.md", "AGENTS.md"]],
        BackendKind::Claude => &[&["CLAUDE.md", "AGENTS.md"], &[".claude/CLAUDE.md"]],
        BackendKind::Opencode => &[&["AGENTS.md", "CLAUDE.md", "CONTEXT.md"]],
        BackendKind::Command => &[],
    }
}

/// The instructions in a commit, in words for the agent; empty where there are none.
pub(crate) fn of_commit(git: &Git, commit: &str, kind: BackendKind) -> Result<String> {
    if names(kind).is_empty() {
        return Ok(String::new());
    }
    let entries = git.files_of(commit)?;
    let tree = InstructionTree {
        files: entries.iter().map(|it| (it.path.as_path(), it)).collect(),
        read: &|entry| {
            let bytes = git.read(&["cat-file", "blob", &entry.oid])?;
            Ok(String::from_utf8_lossy(&bytes).into_owned())
        },
    };
    let text = tree.words(kind, commit)?;
    Ok(cut_end(&text, MAX_BYTES).into_owned())
}

/// The files of a commit.
struct InstructionTree<'a> {
    files: BTreeMap<&'a Path, &'a TreeEntry>,
    read: &'a dyn Fn(&TreeEntry) -> Result<String>,
}

impl InstructionTree<'_> {
    fn words(&self, kind: BackendKind, commit: &str) -> Result<String> {
        let mut told: Vec<(PathBuf, String)> = Vec::new();
        for group in names(kind) {
            for name in *group {
                let path = Path::new(name);
                if let Some(text) = self.text(path)? {
                    told.push((path.to_owned(), text));
                    break;
                }
            }
        }
        if kind == BackendKind::Claude {
            self.add_included(&mut told)?;
        }
        let mut words = String::new();
        for (path, text) in &told {
            // Writing to a string cannot fail.
            let _ = write!(
                words,
                "# {} of this project\n\n(As it was when this run began. What the file says now does not count.)\n\n{}\n\n",
                path.display(),
                text.trim_end()
            );
        }
        let nested = self.nested(kind);
        if !nested.is_empty() {
            words.push_str(
                "# Folders with instructions of their own\n\nBefore you work in one of these folders, read its file:\n\n",
            );
            for path in nested.iter().take(MAX_FOLDERS) {
                let _ = writeln!(words, "- `git show {commit}:{}`", path.display());
            }
            if nested.len() > MAX_FOLDERS {
                let _ = writeln!(words, "- and {} more", nested.len() - MAX_FOLDERS);
            }
        }
        Ok(words)
    }

    /// What `@path` in a file of claude's stands for.
    fn add_included(&self, told: &mut Vec<(PathBuf, String)>) -> Result<()> {
        let mut begin = 0;
        for _ in 0..MAX_DEPTH {
            let end = told.len();
            let mut found = Vec::new();
            for (path, text) in &told[begin..end] {
                let folder = path.parent().unwrap_or(Path::new(""));
                found.extend(included(text).filter_map(|name| joined(folder, name)));
            }
            begin = end;
            for path in found {
                if !told.iter().any(|(known, _)| *known == path)
                    && let Some(text) = self.text(&path)?
                {
                    told.push((path, text));
                }
            }
        }
        Ok(())
    }

    /// The files of folders below the root.
    fn nested(&self, kind: BackendKind) -> Vec<&Path> {
        let Some(group) = names(kind).first() else {
            return Vec::new();
        };
        let mut found: BTreeMap<&Path, (usize, &Path)> = BTreeMap::new();
        for path in self.files.keys() {
            let Some(folder) = path.parent().filter(|it| !it.as_os_str().is_empty()) else {
                continue;
            };
            let rank = group.iter().position(|name| path.ends_with(name));
            let is_shown = path
                .to_str()
                .is_some_and(|it| !it.contains(char::is_control));
            let Some(rank) = rank.filter(|_| is_shown && !folder.starts_with(".claude")) else {
                continue;
            };
            let best = found.entry(folder).or_insert((rank, path));
            if rank < best.0 {
                *best = (rank, path);
            }
        }
        found.into_values().map(|(_, path)| path).collect()
    }

    /// The text of a file, links inside the project followed.
    fn text(&self, path: &Path) -> Result<Option<String>> {
        let mut path = path.to_owned();
        for _ in 0..MAX_LINKS {
            let Some(entry) = self.files.get(path.as_path()) else {
                return Ok(None);
            };
            match entry.mode.as_str() {
                "100644" | "100755" => return (self.read)(entry).map(Some),
                "120000" => {
                    let target = (self.read)(entry)?;
                    let folder = path.parent().unwrap_or(Path::new(""));
                    match joined(folder, &target) {
                        Some(target) => path = target,
                        None => return Ok(None),
                    }
                }
                _ => return Ok(None),
            }
        }
        Ok(None)
    }
}

/// What a text includes, outside of code.
fn included(text: &str) -> impl Iterator<Item = &str> {
    let mut in_block = false;
    let lines = text.lines().filter(move |line| {
        let is_fence = line.trim_start().starts_with("```");
        in_block ^= is_fence;
        !in_block && !is_fence
    });
    // Every second part lies between backticks.
    let parts = lines.flat_map(|line| line.split('`').step_by(2));
    let words = parts.flat_map(str::split_whitespace);
    words
        .filter_map(|word| word.strip_prefix('@'))
        .map(|name| name.trim_end_matches(['.', ',', ';', ':', ')']))
}

/// A path in the project; `None`: it leads out of it.
fn joined(folder: &Path, name: &str) -> Option<PathBuf> {
    let mut path = folder.to_owned();
    for component in Path::new(name).components() {
        match component {
            Component::Normal(name) => path.push(name),
            Component::CurDir => {}
            Component::ParentDir => path.pop().then_some(())?,
            Component::RootDir | Component::Prefix(_) => return None,
        }
    }
    Some(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `files`: path, mode, text.
    fn words(kind: BackendKind, files: &[(&str, &str, &str)]) -> String {
        let entries: Vec<TreeEntry> = files
            .iter()
            .enumerate()
            .map(|(at, (path, mode, _))| TreeEntry {
                mode: (*mode).to_owned(),
                oid: at.to_string(),
                path: path.into(),
            })
            .collect();
        let tree = InstructionTree {
            files: entries.iter().map(|it| (it.path.as_path(), it)).collect(),
            read: &|entry| Ok(files[entry.oid.parse::<usize>().unwrap()].2.to_owned()),
        };
        tree.words(kind, "c0ffee").unwrap()
    }

    #[test]
    fn each_cli_has_its_file() {
        use BackendKind::{Claude, Codex, Command, Opencode};
        const FILE: &str = "100644";
        let all = [
            ("AGENTS.md", FILE, "for agents"),
            ("CLAUDE.md", FILE, "for claude"),
        ];
        for (kind, has, hasnt) in [
            (Codex, "for agents", "for claude"),
            (Opencode, "for agents", "for claude"),
            (Claude, "for claude", "for agents"),
        ] {
            let words = words(kind, &all);
            assert!(words.contains(has) && !words.contains(hasnt), "{words}");
        }
        assert!(words(Claude, &all[..1]).contains("for agents"));
        assert_eq!(words(Command, &all), "");
        assert_eq!(words(Codex, &[("README.md", FILE, "x")]), "");
        let links = [
            ("AGENTS.md", "120000", "docs/../notes/a.md"),
            ("notes/a.md", FILE, "linked"),
        ];
        assert!(words(Codex, &links).contains("linked"));
        for target in ["/etc/passwd", "../../x", "AGENTS.md"] {
            assert_eq!(
                words(Codex, &[("AGENTS.md", "120000", target)]),
                "",
                "{target}"
            );
        }
    }

    #[test]
    fn files_that_include_others() {
        const FILE: &str = "100644";
        let files = [
            (
                "CLAUDE.md",
                FILE,
                "see @AGENTS.md, @docs/a.md and `@no.md`\n```\n@no.md\n```\n@~/x @gone.md",
            ),
            ("AGENTS.md", FILE, "for agents @CLAUDE.md"),
            ("docs/a.md", FILE, "first @b.md"),
            ("docs/b.md", FILE, "second"),
            ("no.md", FILE, "never"),
        ];
        let words = words(BackendKind::Claude, &files);
        for text in [
            "for agents",
            "first",
            "second",
            "# docs/b.md of this project",
        ] {
            assert_eq!(words.matches(text).count(), 1, "{text}: {words}");
        }
        assert!(!words.contains("never"), "{words}");
    }

    #[test]
    fn folders_have_their_own() {
        const FILE: &str = "100644";
        let files = [
            ("a/AGENTS.md", FILE, "x"),
            ("a/CLAUDE.md", FILE, "x"),
            ("b/CLAUDE.md", FILE, "x"),
        ];
        let words = words(BackendKind::Opencode, &files);
        assert!(
            words.contains("- `git show c0ffee:a/AGENTS.md`\n- `git show c0ffee:b/CLAUDE.md`"),
            "{words}"
        );
        assert!(!words.contains("a/CLAUDE.md"), "{words}");
    }
}
