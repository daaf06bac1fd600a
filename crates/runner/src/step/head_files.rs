//! Files as HEAD has them, read from the work tree or from the commit.

use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use runner_core::digest::hex;
use runner_core::text::escape_path;
use sha1::{Digest as _, Sha1};
use sha2::Sha256;

use super::protected_files::FileSource;
use crate::error::{Error, ErrorCode, Result};
use crate::git::{Git, TreeEntry};
use crate::step::file_image::FileImage;

/// Reads files as HEAD has them.
pub(super) struct FileReader<'g> {
    pub(super) git: &'g Git,
    pub(super) source: FileSource,
}

impl FileReader<'_> {
    /// What lies at a path, if it is what HEAD has there.
    pub(super) fn image(&self, path: &Path, entry: Option<&TreeEntry>) -> Result<FileImage> {
        match (self.source, entry) {
            (FileSource::WorkTree, _) => {
                let image = FileImage::of(self.git.root(), path)?;
                if let Some(entry) = entry {
                    self.prove(&image, entry)?;
                }
                Ok(image)
            }
            (FileSource::Commit, None) => Ok(FileImage::Absent),
            (FileSource::Commit, Some(entry)) => self.committed(entry),
        }
    }

    /// Refuses content that is not HEAD's although git calls it clean.
    fn prove(&self, image: &FileImage, entry: &TreeEntry) -> Result<()> {
        let same = match image {
            // Not checked out (sparse), or a submodule.
            FileImage::Absent | FileImage::Other => true,
            FileImage::Link(target) => {
                blob_name(target.as_os_str().as_bytes(), entry.oid.len()) == entry.oid
            }
            FileImage::File { bytes, .. } => {
                blob_name(bytes, entry.oid.len()) == entry.oid
                    || self.filtered_name(&entry.path)? == entry.oid
            }
        };
        if same {
            return Ok(());
        }
        let name = escape_path(entry.path.as_os_str().as_bytes());
        Err(Error::new(
            ErrorCode::Dirty,
            format!("{name} differs from HEAD, although git does not show it"),
        )
        .hint(format!(
            "git update-index --no-assume-unchanged --no-skip-worktree {name}, then look at `git diff`"
        )))
    }

    /// The object name after line-ending conversion and the user's filters.
    fn filtered_name(&self, path: &Path) -> Result<String> {
        self.git.line(&[
            Path::new("hash-object").as_os_str(),
            Path::new("--").as_os_str(),
            path.as_os_str(),
        ])
    }

    fn committed(&self, entry: &TreeEntry) -> Result<FileImage> {
        let mode = entry.mode.as_str();
        if mode == "160000" {
            return Ok(FileImage::Other);
        }
        if mode == "120000" {
            let target = self.git.read(&["cat-file", "blob", &entry.oid])?;
            return Ok(FileImage::Link(crate::git::to_path(&target)));
        }
        let mut path = std::ffi::OsString::from("--path=");
        path.push(&entry.path);
        let bytes = self.git.read(&[
            "cat-file".as_ref(),
            "--filters".as_ref(),
            path.as_os_str(),
            entry.oid.as_ref(),
        ])?;
        Ok(FileImage::File {
            bytes,
            executable: mode == "100755",
        })
    }
}

/// The name git gives to a blob, in the hash that names of this length use.
pub(crate) fn blob_name(bytes: &[u8], name_len: usize) -> String {
    let header = format!("blob {}\0", bytes.len());
    if name_len == 64 {
        hex(&Sha256::new_with_prefix(header)
            .chain_update(bytes)
            .finalize())
    } else {
        hex(&Sha1::new_with_prefix(header).chain_update(bytes).finalize())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blob_names_are_gits() {
        assert_eq!(
            blob_name(b"hello\n", 40),
            "ce013625030ba8dba906f756967f9e9ca394464a"
        );
        assert_eq!(blob_name(b"", 64).len(), 64);
    }
}
