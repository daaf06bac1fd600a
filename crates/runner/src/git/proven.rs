//! Files of commits whose content is compared with its name: git itself does not.

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::{Git, SUBMODULE, parse_tree_listing, split_nul};
use crate::error::{Error, ErrorCode, Result};
use crate::step::head_files::blob_name;

/// Larger files are read when they are needed.
const SMALL_FILE: u64 = 64 << 10;

/// A file of a commit.
#[derive(Clone, Debug)]
pub(crate) struct CommittedFile {
    /// The name of its object.
    pub(crate) oid: String,
    /// What it says; `None` of a large one.
    pub(crate) content: Option<Vec<u8>>,
}

impl Git {
    /// The bytes of a file in a commit, if it is there; refused where they are not what their name
    /// says.
    pub(crate) fn proven_file_at(&self, commit: &str, path: &str) -> Result<Option<Vec<u8>>> {
        match self.blob_at(commit, path)? {
            None => Ok(None),
            Some((oid, bytes)) if blob_name(&bytes, oid.len()) == oid => Ok(Some(bytes)),
            Some(_) => Err(not_its_name(path, commit)),
        }
    }

    /// The files of a commit below a folder; refused where one is not what its name says.
    pub(crate) fn files_below(
        &self,
        commit: &str,
        folder: &str,
    ) -> Result<BTreeMap<PathBuf, CommittedFile>> {
        let args = [
            "ls-tree",
            "-r",
            "-l",
            "-z",
            "--full-tree",
            commit,
            "--",
            folder,
        ];
        let listing = self.read(&args)?;
        let mut found = BTreeMap::new();
        let mut small = Vec::new();
        for record in split_nul(&listing) {
            // "100644 blob 0123…      42\tpath"
            let Some(entry) = parse_tree_listing(record).pop() else {
                continue;
            };
            let head = record
                .split(|byte| *byte == b'\t')
                .next()
                .unwrap_or_default();
            let size = String::from_utf8_lossy(head);
            let size: u64 = size
                .rsplit(' ')
                .next()
                .and_then(|it| it.parse().ok())
                .unwrap_or(0);
            if entry.mode == SUBMODULE {
                continue;
            }
            if size > SMALL_FILE {
                let (oid, content) = (entry.oid, None);
                found.insert(entry.path, CommittedFile { oid, content });
            } else {
                small.push(entry);
            }
        }
        let oids: Vec<&str> = small.iter().map(|entry| entry.oid.as_str()).collect();
        let blobs = self.proven_blobs(&oids)?;
        for (entry, bytes) in small.into_iter().zip(blobs) {
            let (oid, content) = (entry.oid, Some(bytes));
            found.insert(entry.path, CommittedFile { oid, content });
        }
        Ok(found)
    }

    /// The contents of several files at once; refused where one is not what its name says.
    pub(crate) fn proven_blobs(&self, oids: &[&str]) -> Result<Vec<Vec<u8>>> {
        if oids.is_empty() {
            return Ok(Vec::new());
        }
        let input: String = oids.iter().flat_map(|oid| [*oid, "\n"]).collect();
        let args = ["cat-file", "--batch"];
        let output = self.ask_with(&args, input.as_bytes())?.unwrap_or_default();
        let mut rest = output.as_slice();
        let mut found = Vec::with_capacity(oids.len());
        for oid in oids {
            let content = next_blob(&mut rest).map(|(_, bytes)| bytes);
            match content.filter(|bytes| blob_name(bytes, oid.len()) == *oid) {
                Some(bytes) => found.push(bytes.to_vec()),
                None => return Err(not_its_name("a file", oid)),
            }
        }
        Ok(found)
    }

    /// The content of such a file; refused where it is not what its name says.
    pub(crate) fn proven_blob(&self, oid: &str) -> Result<Vec<u8>> {
        let bytes = self.read(&["cat-file", "blob", oid])?;
        if blob_name(&bytes, oid.len()) == oid {
            return Ok(bytes);
        }
        Err(not_its_name("a file", oid))
    }
}

/// Name and content of the next blob in an answer of `cat-file --batch`, which is then shorter by
/// it: `0123… blob 5\nhello\n`. `None` at the end, and where something else comes.
pub(crate) fn next_blob<'a>(answer: &mut &'a [u8]) -> Option<(&'a str, &'a [u8])> {
    let all = *answer;
    let end = all.iter().position(|byte| *byte == b'\n')?;
    let head = std::str::from_utf8(&all[..end]).ok()?;
    let (name, size) = head.split_once(" blob ")?;
    let size: usize = size.parse().ok()?;
    let bytes = all.get(end + 1..end + 1 + size)?;
    *answer = all.get(end + 2 + size..)?;
    Some((name, bytes))
}

fn not_its_name(path: &str, commit: &str) -> Error {
    Error::new(
        ErrorCode::Git,
        format!("{path} in commit {commit} is not what its name says"),
    )
    .hint("`git fsck` names what is broken; restore the repository from a clone or a backup")
}
