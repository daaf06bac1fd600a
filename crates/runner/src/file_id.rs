//! Which content something has, told without reading it.

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

/// Which file it is and which content it has, as far as the file system tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileId {
    dev: u64,
    ino: u64,
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl FileId {
    /// Of what is open.
    pub fn of(meta: &std::fs::Metadata) -> Self {
        FileId {
            dev: meta.dev(),
            ino: meta.ino(),
            size: meta.size(),
            modified: (meta.mtime(), meta.mtime_nsec()),
            changed: (meta.ctime(), meta.ctime_nsec()),
        }
    }

    /// Of what lies at a path, be it a link.
    pub fn at(path: &Path) -> Option<Self> {
        path.symlink_metadata().ok().map(|meta| FileId::of(&meta))
    }

    /// Whether it was changed so lately that another change may bear the same times:
    /// file systems count in ticks of some milliseconds.
    #[allow(clippy::disallowed_methods)] // Files have times of the wall clock.
    pub fn is_fresh(&self) -> bool {
        let now = jiff::Timestamp::now();
        let age = now.as_second() - self.changed.0;
        age <= 1
    }
}

/// Which content a file of `.runner/` has, wherever that is read from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ContentId {
    /// It lies in the folder.
    File(FileId),
    /// It is this object of git.
    Blob(String),
}

impl ContentId {
    /// Whether the same id may mean another content, as with [`FileId::is_fresh`].
    pub fn is_fresh(&self) -> bool {
        match self {
            ContentId::File(file) => file.is_fresh(),
            ContentId::Blob(_) => false,
        }
    }
}
