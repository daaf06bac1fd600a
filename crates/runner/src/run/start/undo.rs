//! The way back from a start, or from another commit of a person's, that fails.

use std::path::{Path, PathBuf};

use crate::error::Result;
use crate::files;
use crate::git::Git;
use crate::project::Project;
use crate::step::file_image::FileImage;

/// What it takes to leave HEAD, branches, index and files as they were.
pub(crate) struct StartUndo {
    head: Option<Vec<u8>>,
    pub(crate) index: Option<Vec<u8>>,
    /// Name, value now, value before (none: it was not there).
    refs: Vec<(String, String, Option<String>)>,
    files: Vec<(PathBuf, FileImage)>,
}

impl StartUndo {
    /// Takes down HEAD and the index.
    pub(crate) fn take(git: &Git) -> Result<Self> {
        Ok(StartUndo {
            head: read_optional(&git.git_dir().join("HEAD"))?,
            index: read_optional(&git.git_dir().join("index"))?,
            refs: Vec::new(),
            files: Vec::new(),
        })
    }

    /// A ref that was not there before.
    pub(crate) fn made_ref(&mut self, name: &str, now: &str) {
        self.refs.push((name.to_owned(), now.to_owned(), None));
    }

    /// A ref that pointed elsewhere before.
    pub(crate) fn moved_ref(&mut self, name: &str, now: &str, before: &str) {
        self.refs
            .push((name.to_owned(), now.to_owned(), Some(before.to_owned())));
    }

    /// Remembers a file that is about to be replaced.
    pub(crate) fn keep_file(&mut self, project: &Project, path: &str) -> Result<()> {
        let image = FileImage::of(project.root(), Path::new(path))?;
        self.files.push((PathBuf::from(path), image));
        Ok(())
    }

    /// Best effort throughout: this already is the way out of an error.
    pub(crate) fn undo(&self, project: &Project, git: &Git) {
        let _ = std::fs::remove_file(git.git_dir().join("index.lock"));
        put_back(&git.git_dir().join("HEAD"), self.head.as_deref());
        for (name, now, before) in self.refs.iter().rev() {
            let _ = match before {
                Some(before) => git.write(&["update-ref", name, before, now]),
                None => git.write(&["update-ref", "-d", name, now]),
            };
        }
        put_back(&git.git_dir().join("index"), self.index.as_deref());
        for (path, image) in self.files.iter().rev() {
            let full = project.root().join(path);
            let _ = match image {
                FileImage::File { bytes, .. } => files::write_whole(&full, bytes),
                _ => files::remove_if_there(&full),
            };
        }
    }
}

fn read_optional(path: &Path) -> Result<Option<Vec<u8>>> {
    match std::fs::read(path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if files::is_absent(&error) => Ok(None),
        Err(error) => Err(files::at(path, error).into()),
    }
}

fn put_back(path: &Path, bytes: Option<&[u8]>) {
    let now = read_optional(path).ok().flatten();
    if now.as_deref() == bytes {
        return;
    }
    let _ = match bytes {
        Some(bytes) => files::write_whole(path, bytes),
        None => files::remove_if_there(path),
    };
}
