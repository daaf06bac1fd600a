//! What lies at a path: taken down, compared, put back, all by plain file I/O.
//!
//! Nothing here follows a symbolic link, not even in the middle of a path: a
//! session that replaces `.runner/state` by a link must not make the runner
//! read or write elsewhere.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Component, Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::file_flags;
use crate::files::{self, FileBatch};
use crate::mounts;

/// The largest file whose content is taken down.
const MAX_BYTES: u64 = 1 << 30;

/// From this size on it pays to look whether a file has the right length before it is read.
const WORTH_A_LOOK: usize = 16 * 1024;

/// What is at a path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum FileImage {
    /// Nothing.
    Absent,
    /// A file.
    File {
        /// Its content.
        #[serde(with = "text_or_hex")]
        bytes: Vec<u8>,
        /// Whether it can be executed.
        executable: bool,
    },
    /// A symbolic link.
    Link(#[serde(with = "path_bytes")] PathBuf),
    /// A folder, pipe, device…
    Other,
}

impl FileImage {
    /// Takes down what is at `root/path`.
    pub(crate) fn of(root: &Path, path: &Path) -> io::Result<FileImage> {
        if !parents_are_folders(root, path) {
            return Ok(FileImage::Absent);
        }
        let full = root.join(path);
        let meta = match fs::symlink_metadata(&full) {
            Ok(meta) => meta,
            Err(error) if files::is_absent(&error) => return Ok(FileImage::Absent),
            Err(error) => return Err(files::at(&full, error)),
        };
        if meta.is_symlink() {
            return Ok(FileImage::Link(fs::read_link(&full)?));
        }
        if !meta.is_file() {
            return Ok(FileImage::Other);
        }
        if meta.mode() & 0o400 == 0 {
            // The content counts; whether it can be read is nobody's business.
            let _ = make_readable(&full);
        }
        match files::read_regular_at(&full, &meta, MAX_BYTES) {
            Ok(bytes) => Ok(FileImage::File {
                bytes,
                executable: meta.mode() & 0o100 != 0,
            }),
            Err(files::ReadError::Io(error)) if error.kind() != io::ErrorKind::PermissionDenied => {
                Err(files::at(&full, error))
            }
            Err(_) => Ok(FileImage::Other),
        }
    }

    /// Whether this is what is at `root/path`; a file that cannot be it is not read.
    pub(crate) fn is_at(&self, root: &Path, path: &Path) -> io::Result<bool> {
        if let FileImage::File { bytes, .. } = self
            && bytes.len() >= WORTH_A_LOOK
            && fs::symlink_metadata(root.join(path))
                .is_ok_and(|meta| meta.is_file() && meta.len() != bytes.len() as u64)
        {
            return Ok(false);
        }
        Ok(FileImage::of(root, path)? == *self)
    }

    /// Puts this image at `root/path`, moving whatever is in the way (also in
    /// the place of a folder above it) to `quarantine`.
    pub(crate) fn restore(&self, root: &Path, path: &Path, quarantine: &Path) -> io::Result<()> {
        let mut batch = FileBatch::new();
        self.restore_with(&mut batch, root, path, quarantine)?;
        batch.commit()
    }

    /// The same for many: a file is there when the batch is committed.
    pub(crate) fn restore_with(
        &self,
        batch: &mut FileBatch,
        root: &Path,
        path: &Path,
        quarantine: &Path,
    ) -> io::Result<()> {
        make_parents(root, path, quarantine)?;
        let full = root.join(path);
        if full.symlink_metadata().is_ok() {
            move_to(root, path, quarantine)?;
        }
        match self {
            FileImage::Absent | FileImage::Other => Ok(()),
            FileImage::Link(target) => std::os::unix::fs::symlink(target, &full),
            FileImage::File { bytes, executable } => {
                batch.write_mode(&full, bytes, if *executable { 0o755 } else { 0o644 })
            }
        }
    }
}

/// Whether every folder above `root/path` is a real folder.
pub(crate) fn parents_are_folders(root: &Path, path: &Path) -> bool {
    let mut folder = root.to_owned();
    let names: Vec<_> = path.components().collect();
    names
        .iter()
        .take(names.len().saturating_sub(1))
        .all(|name| {
            folder.push(name);
            fs::symlink_metadata(&folder).is_ok_and(|meta| meta.is_dir())
        })
}

/// Makes every folder above `root/path` a real one.
pub(crate) fn make_parents(root: &Path, path: &Path, quarantine: &Path) -> io::Result<()> {
    let mut relative = PathBuf::new();
    for name in path.parent().into_iter().flat_map(Path::components) {
        let Component::Normal(name) = name else {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "path leaves the project",
            ));
        };
        relative.push(name);
        let full = root.join(&relative);
        match fs::symlink_metadata(&full) {
            Ok(meta) if meta.is_dir() => {
                if meta.mode() & 0o700 != 0o700 {
                    let _ = make_readable(&full);
                }
            }
            Ok(_) => {
                move_to(root, &relative, quarantine)?;
                fs::create_dir(&full)?;
            }
            Err(_) => fs::create_dir(&full)?,
        }
    }
    Ok(())
}

/// Makes a folder and those above it real ones, for the logs themselves: there is
/// no quarantine yet. A link in the way is removed (what it leads to is not
/// touched); anything else is kept under `set_aside` in the new folder.
pub(crate) fn make_folder_chain(root: &Path, folder: &Path) -> io::Result<()> {
    let mut set_aside = Vec::new();
    let mut full = root.to_owned();
    for name in folder.components() {
        full.push(name);
        match fs::symlink_metadata(&full) {
            Ok(meta) if meta.is_dir() => {
                if meta.mode() & 0o700 != 0o700 {
                    let _ = make_readable(&full);
                }
                continue;
            }
            Ok(meta) if meta.is_symlink() => fs::remove_file(&full)?,
            Ok(_) => {
                let aside = full.with_extension(format!("runner-aside-{}", set_aside.len()));
                fs::rename(&full, &aside)?;
                set_aside.push(aside);
            }
            Err(error) if files::is_absent(&error) => {}
            Err(error) => return Err(files::at(&full, error)),
        }
        fs::create_dir(&full).map_err(|error| files::at(&full, error))?;
    }
    for aside in set_aside {
        let name = Path::new(aside.file_name().unwrap_or_default()).to_owned();
        move_to(
            aside.parent().unwrap_or(root),
            &name,
            &full.join("quarantine"),
        )?;
    }
    Ok(())
}

/// Moves `root/path` to the same path below `quarantine`; what is there already
/// gets a number.
pub(crate) fn move_to(root: &Path, path: &Path, quarantine: &Path) -> io::Result<()> {
    let from = root.join(path);
    let to = free_place(path, quarantine)?;
    let moved = match fs::rename(&from, &to) {
        // A folder that its owner may not write to cannot be moved either.
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            let _ = make_readable(&from);
            let _ = from.parent().map(make_readable);
            files::release(&from);
            fs::rename(&from, &to)
        }
        Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {
            mounts::take_away(&from);
            fs::rename(&from, &to)
        }
        other => other,
    };
    match moved {
        // The logs may be on another file system (a mount).
        Err(error) if error.kind() == io::ErrorKind::CrossesDevices => {
            copy_all(&from, &to)?;
            files::remove_if_there(&from)
        }
        other => other.map_err(|error| files::at(&from, error)),
    }
}

/// A place below `quarantine` where nothing is.
fn free_place(path: &Path, quarantine: &Path) -> io::Result<PathBuf> {
    let mut to = quarantine.join(path);
    fs::create_dir_all(quarantine).map_err(|error| files::at(quarantine, error))?;
    if to
        .parent()
        .is_some_and(|folder| fs::create_dir_all(folder).is_err())
    {
        // Something else lies there already: the name alone must do.
        to = quarantine.join(path.file_name().unwrap_or_default());
    }
    let mut number = 1;
    while to.symlink_metadata().is_ok() {
        number += 1;
        let mut name = path.file_name().unwrap_or_default().to_owned();
        name.push(format!(".{number}"));
        to.set_file_name(name);
    }
    Ok(to)
}

/// Copies a file, a link or a folder with all that is in it; pipes and the like
/// have nothing to copy.
fn copy_all(from: &Path, to: &Path) -> io::Result<()> {
    let mut todo = vec![(from.to_owned(), to.to_owned())];
    while let Some((from, to)) = todo.pop() {
        let meta = fs::symlink_metadata(&from)?;
        if meta.is_dir() {
            fs::create_dir(&to)?;
            for entry in fs::read_dir(&from)? {
                let name = entry?.file_name();
                todo.push((from.join(&name), to.join(&name)));
            }
        } else if meta.is_symlink() {
            std::os::unix::fs::symlink(fs::read_link(&from)?, &to)?;
        } else if meta.is_file() {
            fs::copy(&from, &to)?;
        }
    }
    Ok(())
}

/// Every file and link below `root/folder`, as paths from `root`, sorted.
pub(crate) fn list(root: &Path, folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    if !parents_are_folders(root, &folder.join("x")) {
        return Ok(found);
    }
    while let Some(folder) = folders.pop() {
        let entries = match fs::read_dir(root.join(&folder)) {
            Ok(entries) => entries,
            Err(error) if files::is_absent(&error) => continue,
            Err(error) => return Err(files::at(&root.join(&folder), error)),
        };
        for entry in entries {
            let entry = entry?;
            let path = folder.join(entry.file_name());
            if entry.file_type()?.is_dir() {
                folders.push(path);
            } else {
                found.push(path);
            }
        }
    }
    found.sort();
    Ok(found)
}

/// Calls `visit` for everything below `root/start` but `.git` that is not a folder,
/// with its path from `root`. A folder that its owner may not look into or change
/// is opened on the way; what cannot be read all the same is passed over.
pub(crate) fn walk(root: &Path, start: &Path, visit: &mut dyn FnMut(PathBuf, fs::FileType)) {
    walk_all(root, start, visit, &mut |_, _| {});
}

/// Everything below a folder that is `wanted` by its folder, name and kind, and not what is in it.
/// `enters`: the other folders that are looked into.
pub(crate) fn find(
    root: &Path,
    wanted: &dyn Fn(&Path, &OsStr, fs::FileType) -> bool,
    enters: &dyn Fn(&Path) -> bool,
) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![PathBuf::new()];
    while let Some(folder) = folders.pop() {
        // Whoever cannot look here is told so by git.
        let entries = fs::read_dir(root.join(&folder)).into_iter().flatten();
        for entry in entries.flatten() {
            let Ok(kind) = entry.file_type() else {
                continue;
            };
            let name = entry.file_name();
            // Most are files that nobody wants: no path is made of them.
            if wanted(&folder, &name, kind) {
                found.push(folder.join(name));
            } else if kind.is_dir() {
                let path = folder.join(name);
                if enters(&path) {
                    folders.push(path);
                }
            }
        }
    }
    found.sort();
    found
}

/// Whether it is a pipe, a socket or a device.
pub(crate) fn is_special(kind: fs::FileType) -> bool {
    !kind.is_file() && !kind.is_dir() && !kind.is_symlink()
}

/// The folders that lie too deep for their paths to be used.
pub(crate) fn folders_too_deep(root: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    walk_all(root, Path::new(""), &mut |_, _| {}, &mut |path, error| {
        if error.kind() == io::ErrorKind::InvalidFilename {
            found.push(path);
        }
    });
    found
}

/// The same, and `unread` for each folder that cannot be read.
fn walk_all(
    root: &Path,
    start: &Path,
    visit: &mut dyn FnMut(PathBuf, fs::FileType),
    unread: &mut dyn FnMut(PathBuf, &io::Error),
) {
    let mut folders = vec![start.to_owned()];
    while let Some(folder) = folders.pop() {
        let full = root.join(&folder);
        let meta = full.symlink_metadata();
        if meta.is_ok_and(|meta| meta.mode() & 0o700 != 0o700) {
            let _ = make_readable(&full);
        }
        let entries = match fs::read_dir(&full) {
            Ok(entries) => entries,
            Err(error) => {
                unread(folder, &error);
                continue;
            }
        };
        for entry in entries.flatten() {
            let path = folder.join(entry.file_name());
            match entry.file_type() {
                Ok(kind) if kind.is_dir() => {
                    if path != Path::new(".git") {
                        folders.push(path);
                    }
                }
                Ok(kind) => visit(path, kind),
                Err(_) => {}
            }
        }
    }
}

/// Removes whatever is at a path; folders that their owner may not change are opened first.
pub(crate) fn remove_closed(path: &Path) -> io::Result<()> {
    files::remove_if_there(path).or_else(|_| {
        open_folders(path);
        files::remove_if_there(path)
    })
}

/// Opens every folder below one that its owner may not look into or change, and takes off flags
/// that keep what is there from being changed or removed.
pub(crate) fn open_folders(root: &Path) {
    let releases = file_flags::may_release();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        // What a link leads to is somebody else's.
        if !folder.symlink_metadata().is_ok_and(|meta| meta.is_dir()) {
            continue;
        }
        if releases {
            file_flags::release(&folder);
        }
        let meta = folder.symlink_metadata();
        if meta.is_ok_and(|meta| meta.mode() & 0o700 != 0o700) {
            let _ = make_readable(&folder);
        }
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            match entry.file_type() {
                Ok(kind) if kind.is_dir() => folders.push(entry.path()),
                Ok(kind) if kind.is_file() && releases => {
                    file_flags::release(&entry.path());
                }
                _ => {}
            }
        }
    }
}

/// Whether a file can be made executable again is git's business, but a file
/// that cannot be read by its owner can be neither compared nor committed.
pub(crate) fn make_readable(path: &Path) -> io::Result<()> {
    let meta = fs::symlink_metadata(path)?;
    if meta.is_symlink() {
        return Ok(());
    }
    let mode = meta.mode() | if meta.is_dir() { 0o700 } else { 0o600 };
    fs::set_permissions(path, fs::Permissions::from_mode(mode))
}

/// A path as its bytes: see [`text_or_hex`].
pub(crate) mod path_bytes {
    use std::ffi::OsString;
    use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
    use std::path::{Path, PathBuf};

    use serde::{Deserializer, Serializer};

    pub(crate) fn serialize<S: Serializer>(path: &Path, output: S) -> Result<S::Ok, S::Error> {
        super::text_or_hex::serialize(path.as_os_str().as_bytes(), output)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(input: D) -> Result<PathBuf, D::Error> {
        super::text_or_hex::deserialize(input).map(|bytes| OsString::from_vec(bytes).into())
    }
}

/// Bytes as text where they are, else as hexadecimal digits.
mod text_or_hex {
    use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};

    #[derive(Serialize, Deserialize)]
    #[serde(rename_all = "snake_case")]
    enum Form {
        Text(String),
        Hex(String),
    }

    pub(crate) fn serialize<S: Serializer>(bytes: &[u8], output: S) -> Result<S::Ok, S::Error> {
        match std::str::from_utf8(bytes) {
            Ok(text) => Form::Text(text.to_owned()),
            Err(_) => Form::Hex(runner_core::digest::hex(bytes)),
        }
        .serialize(output)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(input: D) -> Result<Vec<u8>, D::Error> {
        match Form::deserialize(input)? {
            Form::Text(text) => Ok(text.into_bytes()),
            Form::Hex(text) => text
                .as_bytes()
                .chunks(2)
                .map(|pair| {
                    let pair = std::str::from_utf8(pair).map_err(D::Error::custom)?;
                    u8::from_str_radix(pair, 16).map_err(D::Error::custom)
                })
                .collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn restores_through_a_planted_folder_link() {
        let dir = tempfile::tempdir().unwrap();
        let (root, outside) = (dir.path().join("root"), dir.path().join("outside"));
        fs::create_dir_all(root.join("a/b")).unwrap();
        fs::create_dir_all(&outside).unwrap();
        fs::write(root.join("a/b/f"), [0xff, 1]).unwrap();
        let path = Path::new("a/b/f");
        let image = FileImage::of(&root, path).unwrap();
        let stored = serde_json::to_string(&image).unwrap();
        assert_eq!(serde_json::from_str::<FileImage>(&stored).unwrap(), image);

        fs::remove_dir_all(root.join("a")).unwrap();
        std::os::unix::fs::symlink(&outside, root.join("a")).unwrap();
        fs::create_dir_all(outside.join("b")).unwrap();
        fs::write(outside.join("b/f"), "planted").unwrap();
        assert_eq!(FileImage::of(&root, path).unwrap(), FileImage::Absent);

        let quarantine = dir.path().join("quarantine");
        image.restore(&root, path, &quarantine).unwrap();
        assert_eq!(FileImage::of(&root, path).unwrap(), image);
        assert_eq!(fs::read(outside.join("b/f")).unwrap(), b"planted");
        assert!(quarantine.join("a").is_symlink());
        assert_eq!(
            list(&root, Path::new("a")).unwrap(),
            [PathBuf::from("a/b/f")]
        );
    }
}
