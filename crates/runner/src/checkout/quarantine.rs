//! What cannot be handled where it is goes out of the way, whole: a folder takes another name beside
//! the one it had, which works whoever owns what is in it and whatever is mounted there.
//!
//! A quarantine is kept until its run has ended and `runner clean` removes it. Where a session left
//! things that the runner may not move, its folder is made anew, and what can be taken back from the
//! quarantine is.

use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use runner_core::paths;

use super::{INDEX, MADE, beside};
use crate::error::{Error, ErrorCode, Result};
use crate::file_flags;
use crate::files;
use crate::mounts;
use crate::step::file_image;

/// How the endings of quarantines begin; a number follows.
pub(crate) const QUARANTINE: &str = "quarantine-";

/// How the ending of a folder begins that is being made of what can be taken back.
pub(crate) const TAKEN_BACK: &str = "taken-back-";

/// What is larger is not copied out of a quarantine. A file can be one of a terabyte that holds
/// nothing.
const MAX_COPIED: u64 = 64 << 20;

/// A folder that was made anew of what could be taken back.
#[derive(Debug)]
pub(crate) struct TakenBack {
    /// Where the rest is.
    pub(crate) quarantine: PathBuf,
    /// What stayed there, from the root.
    pub(crate) left: Vec<PathBuf>,
}

/// Moves whatever lies at a path to a quarantine beside it.
pub(crate) fn set_aside(path: &Path) -> Result<PathBuf> {
    let to = free_name(path);
    move_away(path, &to)?;
    Ok(to)
}

/// Where the next quarantine of a path is.
pub(crate) fn free_name(path: &Path) -> PathBuf {
    let mut number = 1_u64;
    loop {
        let to = beside(path, &format!("{QUARANTINE}{number}"));
        let salvaged = beside(path, &format!("{TAKEN_BACK}{number}"));
        if to.symlink_metadata().is_err() && salvaged.symlink_metadata().is_err() {
            return to;
        }
        number += 1;
    }
}

fn move_away(path: &Path, to: &Path) -> Result<()> {
    let moved = files::rename_onto(path, to).or_else(|error| match error.kind() {
        io::ErrorKind::PermissionDenied => {
            files::release(path);
            files::rename_onto(path, to)
        }
        io::ErrorKind::ResourceBusy => {
            mounts::take_away(path);
            files::rename_onto(path, to)
        }
        _ => Err(error),
    });
    moved.map_err(|error| match error.kind() {
        io::ErrorKind::PermissionDenied | io::ErrorKind::ResourceBusy => stuck(path, &error),
        _ => error.into(),
    })
}

/// What keeps even the last resort from going on, with the command of a person's that helps.
pub(crate) fn stuck(path: &Path, error: &io::Error) -> Error {
    let message = format!("cannot move {} out of the way: {error}", path.display());
    Error::new(ErrorCode::Io, message)
        .hint(format!("`{}`, then the same command again", remedy(path)))
}

/// The command that takes away what the runner cannot.
pub(crate) fn remedy(path: &Path) -> String {
    if let Some(place) = mounts::at_or_below(path).first() {
        return format!("sudo {}", mounts::command(place));
    }
    let shown = path.as_os_str().as_bytes().escape_ascii();
    if file_flags::is_held(path) || path.parent().is_some_and(file_flags::is_held) {
        return format!("sudo chattr -R -f -i -a '{shown}'");
    }
    format!("sudo rm -rf '{shown}'")
}

/// The quarantines of a checkout.
pub(crate) fn kept_of(checkout: &Path) -> Vec<PathBuf> {
    let (Some(folder), Some(name)) = (checkout.parent(), checkout.file_name()) else {
        return Vec::new();
    };
    let mut kept: Vec<PathBuf> = fs::read_dir(folder)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| is_kept(path, name.as_bytes()))
        .collect();
    kept.sort();
    kept
}

/// What a kill left of taking things back.
pub(crate) fn cut_off_of(checkout: &Path) -> Vec<PathBuf> {
    let mut found = kept_of(checkout);
    found.retain(|path| number_after(path, TAKEN_BACK).is_some());
    found
}

/// Removes the quarantines of a checkout. Those that cannot be removed are returned.
pub(crate) fn remove_kept(checkout: &Path) -> Vec<(PathBuf, io::Error)> {
    let mut stuck = Vec::new();
    for path in kept_of(checkout) {
        mounts::take_away(&path);
        if let Err(error) = file_image::remove_closed(&path) {
            stuck.push((path, error));
        }
    }
    stuck
}

/// Whether this is a quarantine of the checkout, or of something beside it.
fn is_kept(path: &Path, name: &[u8]) -> bool {
    let of = path.file_name().and_then(|it| checkout_of(it.to_str()?));
    of.is_some_and(|of| of.as_bytes() == name)
}

/// The checkout that a name of a quarantine belongs to.
pub(crate) fn checkout_of(name: &str) -> Option<&str> {
    let (of, ending) = name.rsplit_once('.')?;
    let number = [QUARANTINE, TAKEN_BACK]
        .iter()
        .find_map(|kind| ending.strip_prefix(kind))?;
    let is_number = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    let of = match of.rsplit_once('.') {
        Some((of, INDEX | MADE | super::OBJECTS | super::LOCK | super::SESSION)) => of,
        _ => of,
    };
    is_number.then_some(of)
}

/// Whether there is anything in a folder that this user may not move or remove.
pub(crate) fn holds_foreign(folder: &Path) -> bool {
    if !mounts::at_or_below(folder).is_empty() {
        return true;
    }
    let me = rustix::process::geteuid();
    let looks_at_flags = file_flags::may_release();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        let Ok(meta) = next.symlink_metadata() else {
            continue;
        };
        if !me.is_root() && meta.uid() != me.as_raw()
            || looks_at_flags && file_flags::is_held(&next)
        {
            return true;
        }
        if meta.is_dir() {
            let entries = fs::read_dir(&next).into_iter().flatten().flatten();
            folders.extend(entries.map(|entry| entry.path()));
        }
    }
    false
}

/// Removes what lies at a path; where that cannot be done, it goes out of the way.
pub(crate) fn remove_or_set_aside(path: &Path) -> Result<()> {
    if file_image::remove_closed(path).is_ok() {
        return Ok(());
    }
    mounts::take_away(path);
    match file_image::remove_closed(path) {
        Ok(()) => Ok(()),
        Err(error) if is_full(&error) => Err(error.into()),
        Err(_) => set_aside(path).map(drop),
    }
}

/// A disk that is full or read-only is nothing that a session left in a folder.
fn is_full(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::StorageFull
            | io::ErrorKind::QuotaExceeded
            | io::ErrorKind::ReadOnlyFilesystem
    )
}

/// Whether a folder and those in it with these names are folders, or not there.
pub(crate) fn are_folders(folder: &Path, names: &[&str]) -> bool {
    let inner = names.iter().map(|name| folder.join(name));
    let mut all = std::iter::once(folder.to_owned()).chain(inner);
    all.all(|path| match path.symlink_metadata() {
        Ok(meta) => meta.is_dir(),
        Err(error) => error.kind() == io::ErrorKind::NotFound,
    })
}

/// Lets a file be there or nothing: whatever else is there goes.
pub(crate) fn only_file(path: &Path) -> Result<()> {
    match path.symlink_metadata() {
        Ok(meta) if !meta.is_file() => remove_or_set_aside(path),
        _ => Ok(()),
    }
}

/// Puts an empty folder where one is that nothing can be done in. Its index goes first: over an
/// empty folder it would say that everything was removed.
pub(crate) fn make_anew(folder: &Path) -> Result<()> {
    forget_contents(folder)?;
    remove_or_set_aside(folder)?;
    Ok(files::make_folder(folder)?)
}

/// What is known about the files of a folder counts no more.
fn forget_contents(folder: &Path) -> Result<()> {
    files::remove_if_there(&beside(folder, INDEX).join("index"))?;
    Ok(files::remove_if_there(
        &beside(folder, MADE).join(super::prepare::PREPARED),
    )?)
}

/// Makes a folder anew of what can be taken back from it. At every moment all of it is somewhere,
/// and [`finish`] goes on where this was cut off.
pub(crate) fn take_back(folder: &Path) -> Result<TakenBack> {
    mounts::take_away(folder);
    let quarantine = free_name(folder);
    let number = number_of(&quarantine);
    files::make_folder(&beside(folder, &format!("{TAKEN_BACK}{number}")))?;
    move_away(folder, &quarantine)?;
    go_on(folder, &quarantine)
}

/// Finishes what a kill cut off, and lets nothing stand that speaks of a folder which is not there.
pub(super) fn finish(folder: &Path) -> Result<()> {
    let is_there = folder.symlink_metadata().is_ok();
    let made = beside(folder, MADE);
    if !are_folders(&made, &[]) {
        remove_or_set_aside(&made)?;
    }
    for taken in kept_of(folder) {
        let Some(number) = number_after(&taken, TAKEN_BACK) else {
            continue;
        };
        let quarantine = beside(folder, &format!("{QUARANTINE}{number}"));
        if is_there || quarantine.symlink_metadata().is_err() {
            // Cut off before anything was moved.
            let _ = fs::remove_dir(&taken);
        } else {
            go_on(folder, &quarantine)?;
            return Ok(());
        }
    }
    if !is_there {
        // An index over nothing would say that everything was removed.
        forget_contents(folder)?;
    }
    Ok(())
}

fn number_after(path: &Path, kind: &str) -> Option<u64> {
    let ending = path.extension()?.to_str()?;
    ending.strip_prefix(kind)?.parse().ok()
}

fn number_of(quarantine: &Path) -> u64 {
    number_after(quarantine, QUARANTINE).unwrap_or_default()
}

fn go_on(folder: &Path, quarantine: &Path) -> Result<TakenBack> {
    let number = number_of(quarantine);
    let made = beside(folder, &format!("{TAKEN_BACK}{number}"));
    // A link must never be followed: what it leads to is somebody else's.
    let mut left = if is_real_folder(quarantine) {
        if file_flags::may_release() {
            file_image::open_folders(quarantine);
        }
        move_back(quarantine, &made)
    } else {
        vec![PathBuf::new()]
    };
    files::rename_onto(&made, folder)?;
    if left.is_empty() {
        // What is still there was copied, or is made anew.
        let _ = file_image::remove_closed(quarantine);
    }
    left.sort();
    Ok(TakenBack {
        quarantine: quarantine.to_owned(),
        left,
    })
}

/// Whether a folder itself lies there, and not a link to one.
pub(crate) fn is_real_folder(path: &Path) -> bool {
    path.symlink_metadata().is_ok_and(|meta| meta.is_dir())
}

/// Moves what can be moved, copies what can be read, and returns the rest. Both are real folders.
fn move_back(from: &Path, to: &Path) -> Vec<PathBuf> {
    let mut left = Vec::new();
    let mut folders = vec![PathBuf::new()];
    while let Some(below) = folders.pop() {
        if !is_real_folder(from) || !file_image::parents_are_folders(from, &below.join("x")) {
            left.push(below);
            continue;
        }
        let Ok(entries) = fs::read_dir(from.join(&below)) else {
            left.push(below);
            continue;
        };
        for path in entries.flatten().map(|it| below.join(it.file_name())) {
            // Those are made anew for each session.
            if path == Path::new(".git") || path == Path::new(paths::ITERATIONS_DIR) {
                continue;
            }
            match move_one(&from.join(&path), &to.join(&path)) {
                MoveOutcome::Done => {}
                MoveOutcome::Enter => folders.push(path),
                MoveOutcome::Stays => left.push(path),
            }
        }
    }
    left
}

enum MoveOutcome {
    Done,
    /// Its folder is made: what is in it comes one by one.
    Enter,
    Stays,
}

fn move_one(from: &Path, to: &Path) -> MoveOutcome {
    let Ok(meta) = from.symlink_metadata() else {
        return MoveOutcome::Stays;
    };
    let there = to.symlink_metadata();
    if there.as_ref().is_ok_and(|it| !it.is_dir()) {
        // Copied before a kill.
        return MoveOutcome::Done;
    }
    let is_whole = if meta.is_dir() {
        there.is_err() && !holds_foreign(from)
    } else {
        is_mine(&meta)
    };
    if is_whole && fs::rename(from, to).is_ok() {
        return MoveOutcome::Done;
    }
    if meta.is_dir() {
        let is_mounted = mounts::at_or_below(from)
            .iter()
            .any(|it| it.ends_with(from));
        let can_enter = !is_mounted && (there.is_ok() || fs::create_dir(to).is_ok());
        return if can_enter {
            MoveOutcome::Enter
        } else {
            MoveOutcome::Stays
        };
    }
    let copied = if meta.is_symlink() {
        let link = fs::read_link(from);
        link.and_then(|link| std::os::unix::fs::symlink(link, to))
            .is_ok()
    } else {
        meta.is_file() && meta.len() <= MAX_COPIED && copy(from, to)
    };
    if copied {
        MoveOutcome::Done
    } else {
        MoveOutcome::Stays
    }
}

/// A copy, or nothing.
fn copy(from: &Path, to: &Path) -> bool {
    let copied = files::open_no_trap(from).is_ok() && fs::copy(from, to).is_ok();
    if !copied {
        let _ = files::remove_if_there(to);
    }
    copied
}

fn is_mine(meta: &fs::Metadata) -> bool {
    let me = rustix::process::geteuid();
    me.is_root() || meta.uid() == me.as_raw()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whose_a_quarantine_is() {
        for (name, expected) in [
            ("run-1.quarantine-1", Some("run-1")),
            ("run-1.git.quarantine-12", Some("run-1")),
            ("a.b.taken-back-2", Some("a.b")),
            ("run-1.quarantine-", None),
            ("run-1.quarantine-x", None),
            ("run-1", None),
        ] {
            assert_eq!(checkout_of(name), expected, "{name}");
        }
    }

    #[test]
    fn a_link_is_never_followed() {
        let temp = tempfile::tempdir().unwrap();
        let precious = temp.path().join("precious");
        fs::create_dir(&precious).unwrap();
        fs::write(precious.join("thesis"), "work of years").unwrap();
        let folder = temp.path().join("run-1");
        std::os::unix::fs::symlink(&precious, &folder).unwrap();
        let taken = take_back(&folder).unwrap();
        assert_eq!(taken.left, [PathBuf::new()]);
        assert!(is_real_folder(&folder));
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 0);
        assert_eq!(fs::read(precious.join("thesis")).unwrap(), b"work of years");
    }

    #[test]
    fn what_was_cut_off_is_finished() {
        let temp = tempfile::tempdir().unwrap();
        let folder = temp.path().join("run-1");
        fs::create_dir_all(folder.join("src")).unwrap();
        fs::write(folder.join("src/a"), "a").unwrap();
        fs::write(folder.join("b"), "b").unwrap();
        // As a kill in the middle leaves it: one file is back, the other is not.
        fs::rename(&folder, temp.path().join("run-1.quarantine-1")).unwrap();
        let half = temp.path().join("run-1.taken-back-1");
        fs::create_dir(&half).unwrap();
        fs::rename(temp.path().join("run-1.quarantine-1/b"), half.join("b")).unwrap();
        finish(&folder).unwrap();
        assert_eq!(fs::read(folder.join("src/a")).unwrap(), b"a");
        assert_eq!(fs::read(folder.join("b")).unwrap(), b"b");
        assert!(!half.exists());
        let again = take_back(&folder).unwrap();
        assert_eq!(again.left, Vec::<PathBuf>::new());
        // The first one was empty in the end, and is gone.
        assert!(again.quarantine.ends_with("run-1.quarantine-1"));
        assert_eq!(fs::read(folder.join("b")).unwrap(), b"b");
    }
}
