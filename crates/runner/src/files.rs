//! Files: read without being fooled, written whole or not at all.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::fault;
use crate::file_flags;
use crate::mounts;

/// Ending of files that are being written; `.runner/.gitignore` names it.
pub(crate) const TEMP_SUFFIX: &str = ".runner-tmp";

/// What keeps a folder of local files out of git's sight.
pub(crate) const IGNORE_FILE: &str = ".gitignore";
const IGNORE_ALL: &[u8] = b"*\n";

/// Files that are written together: every one is on disk before any takes its
/// place, and each folder is synced once.
#[derive(Debug, Default)]
#[must_use = "nothing takes its place before commit()"]
pub(crate) struct FileBatch {
    pending: Vec<(PathBuf, PathBuf)>,
    folders: BTreeSet<PathBuf>,
}

impl FileBatch {
    /// An empty batch.
    pub(crate) fn new() -> Self {
        FileBatch::default()
    }

    /// Adds a file with this content.
    pub(crate) fn write(&mut self, target: &Path, bytes: &[u8]) -> io::Result<()> {
        self.write_mode(target, bytes, 0o644)
    }

    /// Adds a file with this content and mode.
    pub(crate) fn write_mode(&mut self, target: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
        self.write_by_way_of(temp_path(target), target, bytes, mode)
    }

    fn write_by_way_of(
        &mut self,
        temp: PathBuf,
        target: &Path,
        bytes: &[u8],
        mode: u32,
    ) -> io::Result<()> {
        fault::point("write")?;
        remove_if_there(&temp)?;
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(mode)
            .open(&temp)
            .map_err(|error| at(&temp, error))?;
        file.write_all(bytes).map_err(|error| at(&temp, error))?;
        fault::point("fsync")?;
        file.sync_all().map_err(|error| at(&temp, error))?;
        self.pending.push((temp, target.to_owned()));
        Ok(())
    }

    /// Adds a file that has the same content as one that never changes again (it
    /// may be one of this batch): a hard link where the file system has them.
    pub(crate) fn same_as(
        &mut self,
        existing: &Path,
        target: &Path,
        bytes: &[u8],
    ) -> io::Result<()> {
        let temp = temp_path(target);
        fault::point("link")?;
        remove_if_there(&temp)?;
        let pending = self.pending.iter().find(|(_, target)| target == existing);
        let existing = pending.map_or(existing, |(temp, _)| temp);
        if fs::hard_link(existing, &temp).is_err() {
            return self.write(target, bytes);
        }
        self.pending.push((temp, target.to_owned()));
        Ok(())
    }

    /// Puts every file into its place.
    pub(crate) fn commit(mut self) -> io::Result<()> {
        for (temp, target) in self.pending.drain(..) {
            fault::point("rename")?;
            fs::rename(&temp, &target).map_err(|error| at(&target, error))?;
            if let Some(folder) = target.parent() {
                self.folders.insert(folder.to_owned());
            }
        }
        for folder in &self.folders {
            sync_folder(folder)?;
        }
        Ok(())
    }
}

/// One file, whole.
pub fn write_whole(target: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut batch = FileBatch::new();
    batch.write(target, bytes)?;
    batch.commit()
}

/// One file, whole, where other processes may be writing the same one: the last one stays.
pub fn write_shared(target: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut batch = FileBatch::new();
    batch.write_by_way_of(own_temp_path(target), target, bytes, 0o644)?;
    batch.commit()
}

/// A file with this content and mode, whole.
pub fn write_whole_mode(target: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
    let mut batch = FileBatch::new();
    batch.write_mode(target, bytes, mode)?;
    batch.commit()
}

/// Lets a symbolic link lead to `to`, in one step: whoever follows it finds the old
/// place or the new one, never none.
pub fn replace_link(link: &Path, to: &Path) -> io::Result<()> {
    let temp = own_temp_path(link);
    fault::point("link")?;
    remove_if_there(&temp)?;
    std::os::unix::fs::symlink(to, &temp).map_err(|error| at(&temp, error))?;
    rename_onto(&temp, link)
}

/// Gives a finished file or folder its name, which nothing but a link or a file may
/// have so far, and makes that last.
pub fn rename_onto(from: &Path, to: &Path) -> io::Result<()> {
    fault::point("rename")?;
    fs::rename(from, to).map_err(|error| at(to, error))?;
    match to.parent() {
        Some(folder) => sync_folder(folder),
        None => Ok(()),
    }
}

/// Makes a rename or a new name in this folder last.
pub(crate) fn sync_folder(folder: &Path) -> io::Result<()> {
    fault::point("fsync-folder")?;
    File::open(folder)
        .and_then(|file| file.sync_all())
        .map_err(|error| at(folder, error))
}

/// Creates a folder and those above it.
pub fn make_folder(folder: &Path) -> io::Result<()> {
    fault::point("mkdir")?;
    fs::create_dir_all(folder).map_err(|error| at(folder, error))
}

/// Creates a folder of local files, which git ignores on every branch, also where
/// nothing else of a run is checked out.
pub(crate) fn make_local_folder(folder: &Path) -> io::Result<()> {
    make_folder(folder)?;
    ignore_itself(folder)
}

/// Lets git ignore everything in a folder, and with it the file that says so.
pub(crate) fn ignore_itself(folder: &Path) -> io::Result<()> {
    let path = folder.join(IGNORE_FILE);
    if read_regular(&path, 64).is_ok_and(|bytes| bytes == IGNORE_ALL) {
        return Ok(());
    }
    // Processes that start together do this together: each gives its own file the name.
    let temp = own_temp_path(&path);
    fault::point("write")?;
    let mut file = create_new(&temp).map_err(|error| at(&temp, error))?;
    file.write_all(IGNORE_ALL)
        .map_err(|error| at(&temp, error))?;
    fault::point("fsync")?;
    file.sync_all().map_err(|error| at(&temp, error))?;
    if fs::symlink_metadata(&path).is_ok_and(|meta| meta.is_dir()) {
        remove_if_there(&path)?;
    }
    rename_onto(&temp, &path)
}

/// Removes a file, link or folder; it is fine if there is none.
pub fn remove_if_there(path: &Path) -> io::Result<()> {
    let result = match fs::symlink_metadata(path) {
        Err(error) if is_absent(&error) => return Ok(()),
        Err(error) => Err(error),
        Ok(meta) if meta.is_dir() => {
            refuse_mounts(path)?;
            match fs::remove_dir_all(path) {
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                    // A session may have closed folders in it.
                    crate::step::file_image::open_folders(path);
                    release(path);
                    fs::remove_dir_all(path)
                }
                other => other,
            }
        }
        Ok(_) => match fs::remove_file(path) {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied && release(path) => {
                fs::remove_file(path)
            }
            other => other,
        },
    };
    match result {
        Err(error) if !is_absent(&error) => Err(at(path, error)),
        _ => Ok(()),
    }
}

/// What is mounted in a folder is somebody else's, and must not go with it.
fn refuse_mounts(folder: &Path) -> io::Result<()> {
    match mounts::at_or_below(folder).first() {
        None => Ok(()),
        Some(place) => Err(io::Error::new(
            io::ErrorKind::ResourceBusy,
            format!(
                "{}: something is mounted there (`{}` takes it away)",
                place.display(),
                mounts::command(place)
            ),
        )),
    }
}

/// Takes off flags that keep a path, or a name in its folder, from being removed. Whether there
/// were any.
pub(crate) fn release(path: &Path) -> bool {
    if !file_flags::may_release() {
        return false;
    }
    let above = path.parent().is_some_and(file_flags::release);
    file_flags::release(path) || above
}

/// How many bytes the regular files of a folder hold; what cannot be read counts as nothing.
pub(crate) fn folder_bytes(folder: &Path) -> u64 {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .map(|entry| match entry.metadata() {
            Ok(meta) if meta.is_dir() => folder_bytes(&entry.path()),
            Ok(meta) if meta.is_file() => meta.len(),
            _ => 0,
        })
        .sum()
}

/// Copies the regular files of a folder, with the folders that they are in. Links, pipes and what
/// is larger than `max_file_bytes` are left out; how many that were.
pub fn copy_files(from: &Path, to: &Path, max_file_bytes: u64) -> io::Result<u32> {
    make_folder(to)?;
    let mut left_out = 0;
    for entry in fs::read_dir(from).map_err(|error| at(from, error))? {
        let entry = entry?;
        let (source, target) = (entry.path(), to.join(entry.file_name()));
        let meta = fs::symlink_metadata(&source).map_err(|error| at(&source, error))?;
        if meta.is_dir() {
            left_out += copy_files(&source, &target, max_file_bytes)?;
        } else if meta.is_file() && meta.len() <= max_file_bytes {
            fault::point("copy")?;
            fs::copy(&source, &target).map_err(|error| at(&source, error))?;
        } else {
            left_out += 1;
        }
    }
    Ok(left_out)
}

/// Why a file could not be read as what it should be.
#[derive(Debug)]
pub enum ReadError {
    /// There is none.
    Absent,
    /// A link, a folder, a pipe…
    NotRegular(&'static str),
    /// More bytes than allowed.
    TooLarge(u64),
    /// Anything else.
    Io(io::Error),
}

impl std::fmt::Display for ReadError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ReadError::Absent => f.write_str("the file is missing"),
            ReadError::NotRegular(what) => write!(f, "it is {what}, not a regular file"),
            ReadError::TooLarge(max) => write!(f, "it is larger than {max} bytes"),
            ReadError::Io(error) => write!(f, "it cannot be read: {error}"),
        }
    }
}

/// Reads a regular file of at most `max` bytes without following a link at its
/// end and without hanging on a pipe.
pub fn read_regular(path: &Path, max: u64) -> Result<Vec<u8>, ReadError> {
    let meta = match fs::symlink_metadata(path) {
        Ok(meta) => meta,
        Err(error) if is_absent(&error) => return Err(ReadError::Absent),
        Err(error) => return Err(ReadError::Io(error)),
    };
    read_regular_at(path, &meta, max)
}

/// The same of a path that was just looked at.
pub(crate) fn read_regular_at(
    path: &Path,
    meta: &fs::Metadata,
    max: u64,
) -> Result<Vec<u8>, ReadError> {
    if !meta.is_file() {
        return Err(ReadError::NotRegular(kind_of(meta)));
    }
    let mut file = open_no_trap(path).map_err(ReadError::Io)?;
    let size = file.metadata().map_err(ReadError::Io)?.len();
    if size > max {
        return Err(ReadError::TooLarge(max));
    }
    let mut bytes = vec![0; usize::try_from(size).unwrap_or(0).saturating_add(1)];
    let mut filled = 0;
    // There is room for one byte more than there should be: that it stays free is the end of the
    // file, and saves asking for it.
    loop {
        match file.read(&mut bytes[filled..]) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(ReadError::Io(error)),
        }
        if filled as u64 == size {
            break;
        }
        if filled as u64 > max {
            return Err(ReadError::TooLarge(max));
        }
        if filled == bytes.len() {
            // It grows while it is read.
            bytes.resize(filled.saturating_mul(2), 0);
        }
    }
    bytes.truncate(filled);
    Ok(bytes)
}

/// Opens a file to read it, without following a link at its end and without
/// waiting for whoever writes to a pipe.
pub(crate) fn open_no_trap(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .read(true)
        .custom_flags(NOFOLLOW_NONBLOCK)
        .open(path)
}

#[allow(clippy::cast_possible_wrap)] // Open flags are small positive numbers.
const NOFOLLOW_NONBLOCK: i32 =
    (rustix::fs::OFlags::NOFOLLOW.bits() | rustix::fs::OFlags::NONBLOCK.bits()) as i32;

/// What a thing that is not a regular file is, with its article.
pub(crate) fn kind_of(meta: &fs::Metadata) -> &'static str {
    use rustix::fs::FileType;
    match FileType::from_raw_mode(meta.mode()) {
        FileType::RegularFile => "a regular file",
        FileType::Directory => "a folder",
        FileType::Symlink => "a symbolic link",
        FileType::Fifo => "a named pipe",
        FileType::Socket => "a socket",
        _ => "a device",
    }
}

/// Bytes that nobody can guess.
pub(crate) fn random_bytes<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    io::Read::read_exact(&mut File::open("/dev/urandom")?, &mut bytes)?;
    Ok(bytes)
}

/// Appends to a file that only ever grows.
pub(crate) fn append(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = open_to_append(path)?;
    file.write_all(bytes).map_err(|error| at(path, error))
}

/// Opens a file that only ever grows, without following a link at its end.
pub(crate) fn open_to_append(path: &Path) -> io::Result<File> {
    fault::point("append")?;
    OpenOptions::new()
        .read(true)
        .create(true)
        .append(true)
        .custom_flags(NOFOLLOW_NONBLOCK)
        .open(path)
        .map_err(|error| at(path, error))
}

/// Gives a file another name; what has that name goes.
pub(crate) fn rename(from: &Path, to: &Path) -> io::Result<()> {
    fault::point("rename")?;
    remove_if_there(to)?;
    fs::rename(from, to).map_err(|error| at(from, error))
}

/// A new file at a path, whatever lay there (a link would lead elsewhere).
pub(crate) fn create_new(path: &Path) -> io::Result<File> {
    remove_if_there(path)?;
    OpenOptions::new().write(true).create_new(true).open(path)
}

/// Whether an error says that there is nothing at a path.
pub(crate) fn is_absent(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
    )
}

/// The error with the path that it concerns.
#[allow(clippy::needless_pass_by_value)] // So that it fits `map_err`.
pub(crate) fn at(path: &Path, error: io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

/// A name beside the target that nobody else uses: several may be at it at the same time.
fn own_temp_path(target: &Path) -> PathBuf {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let mut name = target.file_name().unwrap_or_default().to_owned();
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    name.push(format!(".{}-{count}", std::process::id()));
    temp_path(&target.with_file_name(name))
}

fn temp_path(target: &Path) -> PathBuf {
    let mut name = std::ffi::OsString::from(".");
    name.push(target.file_name().unwrap_or_default());
    name.push(TEMP_SUFFIX);
    target.with_file_name(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_may_write_the_same_file() {
        let dir = tempfile::tempdir().unwrap();
        let target = dir.path().join("target");
        std::thread::scope(|scope| {
            for name in ["first", "second", "third"] {
                let target = &target;
                scope.spawn(move || {
                    for _ in 0..50 {
                        write_shared(target, name.as_bytes()).unwrap();
                    }
                });
            }
        });
        let left = fs::read_to_string(&target).unwrap();
        assert!(["first", "second", "third"].contains(&left.as_str()));
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_batch_replaces_links_and_leaves_no_temporary_files() {
        let dir = tempfile::tempdir().unwrap();
        let victim = dir.path().join("victim");
        fs::write(&victim, "untouched").unwrap();
        let target = dir.path().join("target");
        std::os::unix::fs::symlink(&victim, &target).unwrap();
        write_whole(&target, b"new").unwrap();
        assert_eq!(fs::read(&target).unwrap(), b"new");
        assert_eq!(fs::read(&victim).unwrap(), b"untouched");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2);
    }

    #[test]
    fn only_regular_files_of_the_right_size_are_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        fs::write(path("f"), "12345").unwrap();
        std::os::unix::fs::symlink(path("f"), path("l")).unwrap();
        assert_eq!(read_regular(&path("f"), 5).unwrap(), b"12345");
        assert!(matches!(
            read_regular(&path("f"), 4),
            Err(ReadError::TooLarge(4))
        ));
        assert!(matches!(
            read_regular(&path("l"), 9),
            Err(ReadError::NotRegular("a symbolic link"))
        ));
        assert!(matches!(
            read_regular(&path("f/x"), 9),
            Err(ReadError::Absent)
        ));
        assert!(matches!(
            read_regular(dir.path(), 9),
            Err(ReadError::NotRegular("a folder"))
        ));
    }
}
