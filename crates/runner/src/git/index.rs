//! The index: what is in it, whether it is whole, and putting things into it.

use std::ffi::{OsStr, OsString};
use std::io::Read as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use sha1::{Digest as _, Sha1};
use sha2::Sha256;

use super::{Git, SUBMODULE, TreeEntry, split_nul, to_path};
use crate::error::Result;

/// See [`Git::index_signature`].
pub(crate) type IndexSignature = (u64, u64, i64, i64);

/// A file in the index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct IndexEntry {
    /// As in [`TreeEntry`].
    pub(crate) mode: String,
    /// Marked `assume-unchanged`.
    pub(crate) assumed: bool,
    /// Marked `skip-worktree`.
    pub(crate) skipped: bool,
    /// From the root of the repository.
    pub(crate) path: PathBuf,
}

impl Git {
    /// Puts everything that is not ignored into the index.
    pub(crate) fn add_all(&self) -> Result<()> {
        self.add_all_to(&[], &[])
    }

    /// The same with more environment (another index) and without some paths.
    pub(super) fn add_all_to(&self, env: &[(&str, &OsStr)], without: &[&Path]) -> Result<()> {
        let submodules = self.submodules()?;
        let mut args: Vec<OsString> = vec!["add".into(), "--all".into()];
        if self.is_sparse() {
            // .runner/ may lie outside the cone; what is not checked out stays.
            args.push("--sparse".into());
        }
        args.extend(["--".into(), ".".into()]);
        // `git add` would run `git status` inside submodules, under their own
        // config; `update-index` looks at their HEAD and at nothing else.
        let paths = submodules.iter().map(PathBuf::as_path);
        for path in paths.chain(without.iter().copied()) {
            let mut exclude = OsString::from(":(exclude,top,literal)");
            exclude.push(path);
            args.push(exclude);
        }
        self.write_with(&args, None, env)?;
        if submodules.is_empty() {
            return Ok(());
        }
        let mut list = Vec::new();
        for path in &submodules {
            list.extend_from_slice(path.as_os_str().as_bytes());
            list.push(0);
        }
        let args = [
            "update-index",
            "--add",
            "--remove",
            "--replace",
            "-z",
            "--stdin",
        ];
        self.write_with(&args, Some(&list), env).map(drop)
    }

    /// Whether only a part of the files is checked out.
    pub(crate) fn is_sparse(&self) -> bool {
        self.git_dir.join("info/sparse-checkout").exists()
            && self
                .ask(&["config", "--type=bool", "--get", "core.sparseCheckout"])
                .is_ok_and(|value| value.is_some_and(|text| text.trim_ascii_end() == b"true"))
    }

    /// Keeps the submodules of a commit in mind.
    pub(crate) fn remember_submodules(&self, files: &[TreeEntry]) {
        let found = files.iter().filter(|entry| entry.mode == SUBMODULE);
        let found = found.map(|entry| entry.path.clone()).collect();
        *self.submodules.borrow_mut() = Some(found);
    }

    /// The submodules in the index, or those that were kept in mind.
    pub(crate) fn submodules(&self) -> Result<Vec<PathBuf>> {
        if let Some(known) = &*self.submodules.borrow() {
            return Ok(known.clone());
        }
        let found: Vec<PathBuf> = self
            .index_entries()?
            .into_iter()
            .filter(|entry| entry.mode == SUBMODULE)
            .map(|entry| entry.path)
            .collect();
        *self.submodules.borrow_mut() = Some(found.clone());
        Ok(found)
    }

    /// Everything in the index.
    pub(crate) fn index_entries(&self) -> Result<Vec<IndexEntry>> {
        let listing = self.read(&["ls-files", "-v", "--stage", "-z"])?;
        Ok(split_nul(&listing)
            .filter_map(|record| {
                // "H 100644 0123… 0\tpath"
                let tab = record.iter().position(|byte| *byte == b'\t')?;
                let mut words = record[..tab].split(|byte| *byte == b' ');
                let tag = *words.next()?.first()?;
                let mode = String::from_utf8_lossy(words.next()?).into_owned();
                Some(IndexEntry {
                    mode,
                    assumed: tag.is_ascii_lowercase(),
                    skipped: tag.eq_ignore_ascii_case(&b'S'),
                    path: to_path(&record[tab + 1..]),
                })
            })
            .collect())
    }

    /// Something that changes whenever the index file does (the time of change
    /// of its inode cannot be forged).
    pub(crate) fn index_signature(&self) -> Option<IndexSignature> {
        let meta = self.git_dir.join("index").symlink_metadata().ok()?;
        Some((meta.ino(), meta.size(), meta.ctime(), meta.ctime_nsec()))
    }

    /// Whether the index file ends with the checksum of what is before it (or
    /// with zeros, where git is told to do without). `name_len`: how long names
    /// of objects are here.
    pub(crate) fn index_is_whole(&self, name_len: usize) -> bool {
        let whole = || -> std::io::Result<bool> {
            let mut file = std::fs::File::open(self.git_dir.join("index"))?;
            let sum_len = name_len / 2;
            let Some(mut left) = file.metadata()?.len().checked_sub(sum_len as u64) else {
                return Ok(false);
            };
            let (mut sha1, mut sha256) = (Sha1::new(), Sha256::new());
            let mut buffer = vec![0; 1 << 16];
            while left > 0 {
                let part =
                    usize::try_from(left).map_or(buffer.len(), |left| left.min(buffer.len()));
                file.read_exact(&mut buffer[..part])?;
                if name_len == 64 {
                    sha256.update(&buffer[..part]);
                } else {
                    sha1.update(&buffer[..part]);
                }
                left -= part as u64;
            }
            let mut sum = vec![0; sum_len];
            file.read_exact(&mut sum)?;
            let expected = if name_len == 64 {
                sha256.finalize().to_vec()
            } else {
                sha1.finalize().to_vec()
            };
            Ok(sum == expected || sum.iter().all(|byte| *byte == 0))
        };
        let plain = self.git_dir.join("index").symlink_metadata();
        plain.is_ok_and(|meta| meta.is_file()) && whole().unwrap_or(false)
    }
}
