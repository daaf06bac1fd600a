//! Trees that are put together of two commits, and attributes as a commit has them.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use super::{Git, TreeEntry, join_nul};
use crate::error::Result;

impl Git {
    /// The tree of `base` in which the files that are asked for are those of `other`: what that
    /// lacks is gone.
    pub(crate) fn overlay(
        &self,
        base: &str,
        other: &str,
        is_taken: &dyn Fn(&Path) -> bool,
    ) -> Result<String> {
        let taken_of = |commit: &str| -> Result<BTreeMap<PathBuf, TreeEntry>> {
            let files = self.files_of(commit)?.into_iter();
            let taken = files.filter(|entry| is_taken(&entry.path));
            Ok(taken.map(|entry| (entry.path.clone(), entry)).collect())
        };
        let (before, after) = (taken_of(base)?, taken_of(other)?);
        let nothing = "0".repeat(base.len());
        let mut orders = Vec::new();
        let mut order = |mode: &str, oid: &str, path: &Path| {
            orders.extend(format!("{mode} {oid}\t").into_bytes());
            orders.extend_from_slice(path.as_os_str().as_bytes());
            orders.push(0);
        };
        // First what goes: a file may be where a folder is to be.
        for path in before.keys().filter(|path| !after.contains_key(*path)) {
            order("0", &nothing, path);
        }
        for (path, entry) in after.iter().filter(|(path, it)| {
            let known = before.get(*path);
            known.is_none_or(|known| (&known.mode, &known.oid) != (&it.mode, &it.oid))
        }) {
            order(&entry.mode, &entry.oid, path);
        }
        let temp = tempfile::Builder::new().prefix("runner-tree-").tempdir()?;
        let index = temp.path().join("index");
        let env: [(&str, &OsStr); 1] = [("GIT_INDEX_FILE", index.as_os_str())];
        self.write_with(&["read-tree", base], None, &env)?;
        let args = ["update-index", "--replace", "-z", "--index-info"];
        self.write_with(&args, Some(&orders), &env)?;
        let tree = self.write_with(&["write-tree"], None, &env)?;
        Ok(String::from_utf8_lossy(tree.trim_ascii_end()).into_owned())
    }

    /// What attributes say about how files are written, one text for each path: by those of a commit,
    /// or by those that lie in the work tree.
    pub(crate) fn attributes_of(
        &self,
        paths: &[&PathBuf],
        commit: Option<&str>,
    ) -> Result<Vec<WritingAttributes>> {
        let temp = tempfile::Builder::new().prefix("runner-tree-").tempdir()?;
        let index = temp.path().join("index");
        let env: [(&str, &OsStr); 1] = [("GIT_INDEX_FILE", index.as_os_str())];
        let mut args = vec!["check-attr", "-z", "--stdin"];
        if let Some(commit) = commit {
            self.write_with(&["read-tree", commit], None, &env)?;
            args.push("--cached");
        }
        args.extend(WRITING);
        let input = join_nul(paths.iter().copied());
        // Not the private index, whose attributes may be those of nobody.
        let answer = self.write_with(&args, Some(&input), &env)?;
        let fields: Vec<&[u8]> = answer.split(|byte| *byte == 0).collect();
        // For each path and attribute: path, attribute, value.
        let answers = fields.chunks_exact(3 * WRITING.len());
        let of_path = |fields: &[&[u8]]| {
            let (filter, others) = fields.split_at(3);
            WritingAttributes {
                others: others.join(&b' '),
                filter: filter[2].to_vec(),
            }
        };
        Ok(answers.map(of_path).collect())
    }
}

/// What attributes say about how a file is written.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct WritingAttributes {
    /// Line ends, encoding and keywords, as one text.
    pub(crate) others: Vec<u8>,
    /// The filter driver.
    pub(crate) filter: Vec<u8>,
}

/// The attributes that change how a file is written, the filter first.
const WRITING: [&str; 6] = [
    "filter",
    "text",
    "crlf",
    "eol",
    "working-tree-encoding",
    "ident",
];
