//! Files below a folder, opened one step at a time without following a link: what
//! a session puts there cannot lead a reader out of the project.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

use runner::FileId;
use rustix::fs::{Mode, OFlags, openat};

/// Opens a regular file; each part of its path must be a plain name, and no part
/// may be a link.
pub(crate) fn open(root: &Path, parts: &[&str]) -> io::Result<File> {
    let Some((name, folders)) = parts.split_last() else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    let folder_flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    // The root itself may be reached through a link: that is the caller's word.
    let mut folder = File::from(rustix::fs::open(
        root,
        OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC,
        Mode::empty(),
    )?);
    for part in folders {
        plain(part)?;
        folder = File::from(openat(&folder, *part, folder_flags, Mode::empty())?);
    }
    plain(name)?;
    // Without waiting for whoever writes to a pipe.
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = File::from(openat(&folder, *name, flags, Mode::empty())?);
    if file.metadata()?.is_file() {
        Ok(file)
    } else {
        Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "not a regular file",
        ))
    }
}

/// The whole content of a file of at most `max` bytes, with its identity.
pub(crate) fn read(root: &Path, parts: &[&str], max: u64) -> io::Result<(FileId, Vec<u8>)> {
    let file = open(root, parts)?;
    let meta = file.metadata()?;
    let too_large = || {
        let message = format!("larger than {max} bytes");
        io::Error::new(io::ErrorKind::FileTooLarge, message)
    };
    if meta.len() > max {
        return Err(too_large());
    }
    let mut bytes = Vec::with_capacity(usize::try_from(meta.len()).unwrap_or(0) + 1);
    // It may grow while it is read.
    file.take(max.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > max {
        return Err(too_large());
    }
    Ok((FileId::of(&meta), bytes))
}

/// Whether an error says that there is nothing to read (a link counts as nothing).
pub(crate) fn is_absent(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory | io::ErrorKind::InvalidInput
    ) || rustix::io::Errno::from_io_error(error) == Some(rustix::io::Errno::LOOP)
}

/// The names in a folder below the root, none of them a link's.
pub(crate) fn folders(root: &Path, parts: &[&str]) -> Vec<String> {
    let mut path = root.to_owned();
    for part in parts {
        path.push(part);
        if !path.symlink_metadata().is_ok_and(|meta| meta.is_dir()) {
            return Vec::new();
        }
    }
    let entries = std::fs::read_dir(path).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect();
    names.sort();
    names
}

fn plain(name: &str) -> io::Result<()> {
    let path = Path::new(name);
    if path.file_name() == Some(OsStr::new(name)) && !name.contains('\0') {
        Ok(())
    } else {
        Err(io::ErrorKind::InvalidInput.into())
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn no_link_and_no_dots_lead_out() {
        let dir = tempfile::tempdir().unwrap();
        let outside = tempfile::tempdir().unwrap();
        fs::write(outside.path().join("secret"), "s").unwrap();
        let root = dir.path();
        fs::create_dir_all(root.join("a/b")).unwrap();
        fs::write(root.join("a/b/file"), "inside").unwrap();
        symlink(outside.path(), root.join("a/out")).unwrap();
        symlink(outside.path().join("secret"), root.join("a/b/link")).unwrap();
        rustix::fs::mkfifoat(rustix::fs::CWD, root.join("a/b/pipe"), Mode::RWXU).unwrap();
        assert_eq!(read(root, &["a", "b", "file"], 10).unwrap().1, b"inside");
        let absolute = outside.path().join("secret").display().to_string();
        for parts in [
            &["a", "out", "secret"][..],
            &["a", "b", "link"],
            &["a", "b", "pipe"],
            &["a", "b"],
            &["a", "..", "a", "b", "file"],
            &["a", "b/file"],
            &["a", "b", "../b/file"],
            &["a", "b", "."],
            &["a", "", "b", "file"],
            &[&absolute],
            &[],
        ] {
            let error = read(root, parts, 10).unwrap_err();
            assert!(is_absent(&error), "{parts:?}: {error:?}");
        }
        assert!(read(root, &["a", "b", "file"], 3).is_err());
        assert_eq!(folders(root, &["a"]), ["b"]);
        assert!(folders(root, &["a", "out"]).is_empty());
    }
}
