//! Mounts in private folders: nothing of the runner's makes any, and what is behind one belongs to
//! somebody else. Removing a folder must never reach through one.

use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

use rustix::mount::{UnmountFlags, unmount};

/// What the kernel says of this process's mounts.
const TABLE: &str = "/proc/self/mountinfo";

/// The field of a line that has the place.
const PLACE: usize = 4;

/// The places at or below a path on which something is mounted, innermost first.
pub(crate) fn at_or_below(path: &Path) -> Vec<PathBuf> {
    let Ok(table) = fs::read(TABLE) else {
        return Vec::new();
    };
    let Ok(real) = real_path(path) else {
        return Vec::new();
    };
    found_in(&table, &real)
}

/// Takes away what is mounted at or below a path, where this user may. What is mounted stays as it
/// is, and whoever uses it may go on. What is left is returned.
pub(crate) fn take_away(path: &Path) -> Vec<PathBuf> {
    let found = at_or_below(path);
    if found.is_empty() {
        return found;
    }
    for place in &found {
        // Whether it worked shows below.
        let _ = unmount(place, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW);
    }
    at_or_below(path)
}

/// The path with its folder's links followed, but not the last name: a link to somewhere else has
/// nothing below it.
fn real_path(path: &Path) -> std::io::Result<PathBuf> {
    match (path.parent(), path.file_name()) {
        (Some(folder), Some(name)) if !folder.as_os_str().is_empty() => {
            Ok(folder.canonicalize()?.join(name))
        }
        _ => path.canonicalize(),
    }
}

fn found_in(table: &[u8], path: &Path) -> Vec<PathBuf> {
    let lines = table.split(|byte| *byte == b'\n');
    let mut found: Vec<PathBuf> = lines
        .filter_map(|line| line.split(|byte| *byte == b' ').nth(PLACE))
        .map(unescape)
        .filter(|place| place.starts_with(path))
        .collect();
    // Several may lie over each other: the last one is on top.
    found.reverse();
    found.sort_by_key(|place| std::cmp::Reverse(place.components().count()));
    found
}

/// `\040` is a space: four letters of octal digits stand for odd bytes.
fn unescape(field: &[u8]) -> PathBuf {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&first, after)) = rest.split_first() {
        let octal = after.get(..3).filter(|_| first == b'\\');
        let value = octal
            .and_then(|digits| std::str::from_utf8(digits).ok())
            .and_then(|digits| u8::from_str_radix(digits, 8).ok());
        if let Some(value) = value {
            bytes.push(value);
            rest = &after[3..];
        } else {
            bytes.push(first);
            rest = after;
        }
    }
    PathBuf::from(OsString::from_vec(bytes))
}

/// How a person takes one away.
pub(crate) fn command(place: &Path) -> String {
    format!("umount '{}'", place.as_os_str().as_bytes().escape_ascii())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn which_mounts_lie_below() {
        let table = b"22 1 8:1 / / rw shared:1 - ext4 /dev/a rw\n\
            30 22 0:5 / /w/a rw - tmpfs none rw\n\
            31 30 0:6 / /w/a/b\\040c rw - tmpfs none rw\n\
            32 22 0:7 / /w/ab rw - tmpfs none rw\n";
        for (path, expected) in [
            ("/w/a", vec!["/w/a/b c", "/w/a"]),
            ("/w/a/b c", vec!["/w/a/b c"]),
            ("/w", vec!["/w/a/b c", "/w/ab", "/w/a"]),
            ("/x", vec![]),
        ] {
            let expected: Vec<PathBuf> = expected.into_iter().map(PathBuf::from).collect();
            assert_eq!(found_in(table, Path::new(path)), expected, "{path}");
        }
    }
}
