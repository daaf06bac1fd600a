//! The files that the rules look at.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use crate::cmd::{ToolCommand, workspace_root};
use crate::failure::{FailureContext as _, TaskResult};

/// Paths, relative to the root, and texts of all files that are not ignored.
pub(super) struct TidyFiles {
    root: PathBuf,
    texts: BTreeMap<String, String>,
}

impl TidyFiles {
    /// What git tracks or would track: a new file is checked before its commit.
    pub(super) fn of_workspace() -> TaskResult<Self> {
        let root = workspace_root();
        let list = ToolCommand::new("git")
            .words("ls-files -z --cached --others --exclude-standard")
            .hint("tidy works in a git checkout")
            .stdout()?;
        let mut texts = BTreeMap::new();
        for name in list
            .split(|byte| *byte == 0)
            .filter(|name| !name.is_empty())
        {
            let name = String::from_utf8_lossy(name).into_owned();
            let path = root.join(&name);
            // A deleted file is still listed; a link or nested repository has no text.
            if !path.symlink_metadata().is_ok_and(|meta| meta.is_file()) {
                continue;
            }
            let bytes = fs::read(&path).context(format!("cannot read {name}"))?;
            // Rules about text leave pictures and the like alone.
            let text = String::from_utf8(bytes).unwrap_or_default();
            texts.insert(name, text);
        }
        let root = root.canonicalize().unwrap_or_else(|_| root.to_owned());
        Ok(Self { root, texts })
    }

    #[cfg(test)]
    pub(super) fn in_memory(root: &str, files: &[(&str, &str)]) -> Self {
        let texts = files
            .iter()
            .map(|(path, text)| ((*path).to_owned(), (*text).to_owned()))
            .collect();
        Self {
            root: root.into(),
            texts,
        }
    }

    pub(super) fn root(&self) -> &Path {
        &self.root
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.texts
            .iter()
            .map(|(path, text)| (path.as_str(), text.as_str()))
    }

    /// The files whose path ends with one of these.
    pub(super) fn ending(&self, ends: &[&str]) -> impl Iterator<Item = (&str, &str)> {
        self.iter()
            .filter(move |(path, _)| ends.iter().any(|end| path.ends_with(end)))
    }

    pub(super) fn text(&self, path: &str) -> Option<&str> {
        self.texts.get(path).map(String::as_str)
    }

    /// Whether a file or a folder with files is there.
    pub(super) fn exists(&self, path: &str) -> bool {
        let path = path.trim_end_matches('/');
        let folder = format!("{path}/");
        path.is_empty()
            || self.texts.contains_key(path)
            || self
                .texts
                .range(folder.clone()..)
                .next()
                .is_some_and(|(first, _)| first.starts_with(&folder))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_exist_through_their_files() {
        let files = TidyFiles::in_memory("/x", &[("a/b/c.rs", ""), ("a-d", "")]);
        for there in ["", "a", "a/", "a/b", "a/b/c.rs", "a-d"] {
            assert!(files.exists(there), "{there}");
        }
        for not in ["a/b/c", "b", "a/b/c.rs/d", "a-"] {
            assert!(!files.exists(not), "{not}");
        }
    }
}
