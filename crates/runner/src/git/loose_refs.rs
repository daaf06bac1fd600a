//! References read without git, where they are files: a step asks for a few of them again and
//! again, and git takes longer to start than to look.
//!
//! Whatever is not plain to see (packed, symbolic, kept in another way) is git's to answer.

use std::io;

use super::Git;
use crate::files::{self, ReadError};

/// The longest reference that is read; one that names a commit is far shorter.
const MAX_REF_BYTES: u64 = 4096;

/// The largest list of packed references that is looked through.
const MAX_PACKED_BYTES: u64 = 4 << 20;

impl Git {
    /// What a reference that lies in a file of its own names; `None`: git must be asked.
    pub(super) fn loose_ref(&self, name: &str) -> Option<String> {
        if !self.has_ref_files() {
            return None;
        }
        let bytes = files::read_regular(&self.common_dir.join(name), MAX_REF_BYTES).ok()?;
        object_name(&bytes)
    }

    /// What these references name, all of them or, where one is not plain to see, nothing.
    pub(crate) fn loose_refs<const N: usize>(&self, names: [&str; N]) -> Option<[String; N]> {
        let found: Vec<String> = names
            .iter()
            .map(|name| self.loose_ref(name))
            .collect::<Option<_>>()?;
        found.try_into().ok()
    }

    /// The last parts of the names of all references in a folder such as `refs/tags/`; `None`:
    /// git must be asked.
    pub(crate) fn loose_names_in(&self, folder: &str) -> Option<Vec<String>> {
        if !self.has_ref_files() {
            return None;
        }
        let entries = match std::fs::read_dir(self.common_dir.join(folder)) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let is_packed = self.may_be_packed(folder.as_bytes());
                return (!is_packed).then(Vec::new);
            }
            Err(_) => return None,
        };
        let mut names = Vec::new();
        for entry in entries {
            let name = entry.ok()?.file_name().into_string().ok()?;
            // A lock is no reference, and no reference ends so.
            if name.strip_suffix(".lock").is_none() {
                self.loose_ref(&format!("{folder}{name}"))?;
                names.push(name);
            }
        }
        // Looked at last: git packs references first, and removes their files then.
        if self.may_be_packed(folder.as_bytes()) {
            return None;
        }
        names.sort();
        Some(names)
    }

    /// Whether references are files at all.
    fn has_ref_files(&self) -> bool {
        let other = self.common_dir.join("reftable");
        other.symlink_metadata().is_err()
    }

    fn may_be_packed(&self, folder: &[u8]) -> bool {
        let path = self.common_dir.join("packed-refs");
        match files::read_regular(&path, MAX_PACKED_BYTES) {
            Ok(bytes) => bytes.windows(folder.len()).any(|part| part == folder),
            Err(ReadError::Absent) => false,
            Err(_) => true,
        }
    }
}

/// The name of an object and the end of the line, nothing else.
fn object_name(bytes: &[u8]) -> Option<String> {
    let name = bytes.strip_suffix(b"\n")?;
    let is_one = matches!(name.len(), 40 | 64)
        && name
            .iter()
            .all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    is_one.then(|| String::from_utf8_lossy(name).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_are_read_where_they_are_files() {
        let root = tempfile::tempdir().unwrap();
        Git::init(root.path()).unwrap();
        let git = Git::open(root.path()).unwrap();
        std::fs::write(root.path().join("a"), "a\n").unwrap();
        git.write(&["add", "--all"]).unwrap();
        git.commit("one").unwrap();
        let main = git.commit_of("main").unwrap();
        assert_eq!(git.loose_ref("refs/heads/main"), main);
        assert_eq!(git.loose_ref("refs/heads/none"), None);
        assert_eq!(git.loose_names_in("refs/tags/"), Some(Vec::new()));
        git.write(&["tag", "b"]).unwrap();
        git.write(&["tag", "a"]).unwrap();
        let names = ["a", "b"].map(str::to_owned);
        assert_eq!(git.loose_names_in("refs/tags/"), Some(names.to_vec()));
        // A tag with a slash is in a folder, and a symbolic one leads elsewhere.
        git.write(&["tag", "v/1"]).unwrap();
        assert_eq!(git.loose_names_in("refs/tags/"), None);
        git.write(&["tag", "--delete", "v/1"]).unwrap();
        git.write(&["symbolic-ref", "refs/tags/s", "refs/tags/a"])
            .unwrap();
        assert_eq!(git.loose_names_in("refs/tags/"), None);
        git.write(&["pack-refs", "--all"]).unwrap();
        assert_eq!(git.loose_ref("refs/heads/main"), None);
        assert_eq!(git.loose_names_in("refs/heads/"), None);
        let none = git.loose_refs(["refs/heads/main", "refs/tags/s"]);
        assert_eq!(none, None);
    }
}
