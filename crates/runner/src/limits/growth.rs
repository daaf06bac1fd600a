//! By how much the folders of one child grow: the file system is asked often, because that costs
//! nothing, and the folders are walked in slices, where it says that something moved.

use std::collections::{HashMap, HashSet};
use std::fs::ReadDir;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The kernel counts blocks in these, whatever the file system does.
const BLOCK: u64 = 512;

/// How much of a walk is done at once: half a hundredth of a second's time.
const SLICE: Duration = Duration::from_millis(5);

/// The same where the limit may have been passed.
const LARGE_SLICE: Duration = Duration::from_millis(100);

/// Walked again after so long even where nothing seems to have moved: what others delete hides
/// what this one writes.
const AGAIN_AFTER: Duration = Duration::from_secs(5);

/// How many times longer than a walk took nothing is walked.
const REST: u32 = 200;

/// Looked at the clock once for so many files.
const FILES_AT_ONCE: usize = 64;

/// The folders of one child, as they grow.
#[derive(Debug)]
pub(super) struct FolderGrowth {
    folders: Vec<PathBuf>,
    /// When the child began, as files have it.
    begun: (i64, i64),
    disks: Vec<DiskUse>,
    /// What the folders held at the beginning, as far as that could still be seen.
    before: Option<FolderSizes>,
    walk: Option<FolderWalk>,
    now: FolderSizes,
    ended: Instant,
    took: Duration,
    /// Bytes of files that are open and in no folder any more.
    deleted: u64,
    pub(super) is_measured: bool,
}

/// Blocks in use, by the part of a folder that a person would look into.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct FolderSizes {
    total: u64,
    parts: HashMap<PathBuf, u64>,
}

/// A file system on which something of this child lies.
#[derive(Debug)]
struct DiskUse {
    folder: PathBuf,
    device: u64,
    used: u64,
    /// How much has been written since the last walk, by whomever.
    moved: u64,
}

impl FolderGrowth {
    /// Begins now: what changes from here on is the child's.
    pub(super) fn begin(folders: &[PathBuf], clock: (i64, i64)) -> Self {
        let mut disks: Vec<DiskUse> = Vec::new();
        for folder in folders {
            let Ok(meta) = folder.metadata() else {
                continue;
            };
            if disks.iter().all(|disk| disk.device != meta.dev()) {
                disks.push(DiskUse {
                    folder: folder.clone(),
                    device: meta.dev(),
                    used: used(folder).unwrap_or(0),
                    moved: 0,
                });
            }
        }
        FolderGrowth {
            folders: folders.to_vec(),
            begun: clock,
            disks,
            before: None,
            walk: None,
            now: FolderSizes::default(),
            ended: Instant::now(),
            took: Duration::ZERO,
            deleted: 0,
            is_measured: false,
        }
    }

    /// The device of the first folder.
    pub(super) fn device(&self) -> u64 {
        self.disks.first().map_or(0, |disk| disk.device)
    }

    /// Looks a little further. `limit`: what may be grown by; `is_urgent`: the disk is full.
    /// True: a walk has ended, and [`Self::bytes`] is new.
    pub(super) fn look(&mut self, limit: u64, is_urgent: bool) -> bool {
        for disk in &mut self.disks {
            if let Some(used) = used(&disk.folder) {
                disk.moved += used.saturating_sub(disk.used);
                disk.used = used;
            }
        }
        let moved: u64 = self.disks.iter().map(|disk| disk.moved).sum();
        let headroom = limit.saturating_sub(self.bytes());
        let rested = self.ended.elapsed() >= (self.took * REST).max(AGAIN_AFTER);
        if self.walk.is_none() && (self.before.is_none() || moved > headroom / 4 || rested) {
            self.walk = Some(FolderWalk::begin(&self.folders, self.begun));
            for disk in &mut self.disks {
                disk.moved = 0;
            }
        }
        let may_be_over = moved > headroom || is_urgent;
        let slice = if may_be_over { LARGE_SLICE } else { SLICE };
        let Some(walk) = &mut self.walk else {
            return false;
        };
        if !walk.go_on(slice) {
            return false;
        }
        self.took = walk.took;
        self.ended = Instant::now();
        if self.before.is_none() {
            self.before = Some(std::mem::take(&mut walk.unchanged));
        }
        self.now = std::mem::take(&mut walk.sizes);
        self.walk = None;
        self.is_measured = true;
        true
    }

    /// What of the files that only processes know belongs to these folders' disks.
    pub(super) fn note_deleted(&mut self, deleted: &HashMap<u64, u64>) {
        let ours = self.disks.iter().filter_map(|it| deleted.get(&it.device));
        self.deleted = ours.sum();
    }

    /// By how much they grew, as last seen.
    pub(super) fn bytes(&self) -> u64 {
        let Some(before) = &self.before else {
            return self.deleted;
        };
        self.now.total.saturating_sub(before.total) + self.deleted
    }

    /// Where most of that lies.
    pub(super) fn largest_part(&self) -> Option<(PathBuf, u64)> {
        let before = self.before.as_ref()?;
        let grown = self.now.parts.iter().map(|(part, bytes)| {
            let had = before.parts.get(part).copied().unwrap_or(0);
            (part, bytes.saturating_sub(had))
        });
        let largest = grown.max_by_key(|(part, bytes)| (*bytes, std::cmp::Reverse(*part)));
        let (part, bytes) = largest.filter(|(_, bytes)| *bytes > 0)?;
        (bytes > self.deleted).then(|| (part.clone(), bytes))
    }
}

/// How much of a file system is in use.
fn used(folder: &Path) -> Option<u64> {
    let space = rustix::fs::statvfs(folder).ok()?;
    Some(space.f_blocks.saturating_sub(space.f_bfree) * space.f_frsize)
}

/// Walking over folders in slices.
#[derive(Debug)]
struct FolderWalk {
    /// Folders still to be opened, each with the part that it counts for.
    left: Vec<(PathBuf, PathBuf)>,
    open: Option<(ReadDir, PathBuf)>,
    begun: (i64, i64),
    sizes: FolderSizes,
    /// The files that are as they were when the child began.
    unchanged: FolderSizes,
    /// Files with several names, which count once.
    linked: HashSet<(u64, u64)>,
    took: Duration,
}

impl FolderWalk {
    fn begin(folders: &[PathBuf], begun: (i64, i64)) -> Self {
        let left = folders.iter().map(|it| (it.clone(), it.clone()));
        FolderWalk {
            left: left.collect(),
            open: None,
            begun,
            sizes: FolderSizes::default(),
            unchanged: FolderSizes::default(),
            linked: HashSet::new(),
            took: Duration::ZERO,
        }
    }

    /// True: it has come to its end. What cannot be looked into is passed by.
    fn go_on(&mut self, slice: Duration) -> bool {
        let since = Instant::now();
        let is_over = loop {
            if self.open.is_none() {
                let Some((folder, part)) = self.left.pop() else {
                    break true;
                };
                self.open = std::fs::read_dir(&folder).ok().map(|it| (it, part));
            }
            for _ in 0..FILES_AT_ONCE {
                if !self.take_one() {
                    self.open = None;
                    break;
                }
            }
            if since.elapsed() >= slice {
                break false;
            }
        };
        self.took += since.elapsed();
        is_over
    }

    /// False: the open folder has nothing more.
    fn take_one(&mut self) -> bool {
        let Some((entries, part)) = &mut self.open else {
            return false;
        };
        let Some(Ok(entry)) = entries.next() else {
            return false;
        };
        let Ok(meta) = entry.metadata() else {
            return true;
        };
        let is_top = entry.path().parent() == Some(part.as_path());
        let part = if is_top && meta.is_dir() {
            part.join(entry.file_name())
        } else {
            part.clone()
        };
        if meta.nlink() > 1 && !meta.is_dir() && !self.linked.insert((meta.dev(), meta.ino())) {
            return true;
        }
        let bytes = meta.blocks() * BLOCK;
        if (meta.ctime(), meta.ctime_nsec()) < self.begun {
            add(&mut self.unchanged, &part, bytes);
        }
        add(&mut self.sizes, &part, bytes);
        if meta.is_dir() {
            self.left.push((entry.path(), part));
        }
        true
    }
}

fn add(sizes: &mut FolderSizes, part: &Path, bytes: u64) {
    sizes.total += bytes;
    if let Some(sum) = sizes.parts.get_mut(part) {
        *sum += bytes;
    } else {
        sizes.parts.insert(part.to_owned(), bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::io::Write as _;

    const MIB: u64 = 1 << 20;

    fn mib(count: usize) -> Vec<u8> {
        vec![7; count << 20]
    }

    fn measure(growth: &mut FolderGrowth) -> u64 {
        while !growth.look(0, true) {}
        growth.bytes()
    }

    /// The clock of the file system, after everything that was written so far.
    fn clock(folder: &Path) -> (i64, i64) {
        let begun = folder.join("begun");
        let mut last = None;
        loop {
            fs::write(&begun, "x").unwrap();
            let meta = begun.metadata().unwrap();
            let now = (meta.ctime(), meta.ctime_nsec());
            if last.is_some_and(|last| last != now) {
                return now;
            }
            last = Some(now);
        }
    }

    #[test]
    fn what_is_added_counts_and_what_was_there_does_not() {
        let folder = tempfile::tempdir().unwrap();
        let (work, temp) = (folder.path().join("w"), folder.path().join("t"));
        for part in ["w/target", "t"] {
            fs::create_dir_all(folder.path().join(part)).unwrap();
        }
        fs::write(work.join("target/old"), mib(3)).unwrap();
        let mut growth = FolderGrowth::begin(&[work.clone(), temp.clone()], clock(folder.path()));
        assert!(measure(&mut growth) < MIB / 8);

        // One that only looks large.
        let sparse = fs::File::create(work.join("sparse")).unwrap();
        sparse.set_len(1 << 40).unwrap();
        assert!(measure(&mut growth) < MIB / 8);

        fs::write(temp.join("a"), mib(1)).unwrap();
        fs::create_dir_all(work.join("target/x/y")).unwrap();
        fs::write(work.join("target/x/y/b"), mib(2)).unwrap();
        fs::hard_link(work.join("target/x/y/b"), work.join("again")).unwrap();
        let grown = measure(&mut growth);
        assert!((3 * MIB..4 * MIB).contains(&grown), "{grown}");
        let (part, bytes) = growth.largest_part().unwrap();
        assert!(part == work.join("target") || part == work, "{part:?}");
        assert!(bytes >= 2 * MIB);

        // In the place of what was there: nothing has grown.
        fs::remove_file(work.join("target/x/y/b")).unwrap();
        fs::remove_file(work.join("again")).unwrap();
        fs::remove_file(temp.join("a")).unwrap();
        fs::write(work.join("target/new"), mib(3)).unwrap();
        fs::remove_file(work.join("target/old")).unwrap();
        assert!(measure(&mut growth) < MIB / 8);

        let mut open = tempfile::tempfile_in(&work).unwrap();
        open.write_all(&mib(2)).unwrap();
        let device = work.metadata().unwrap().dev();
        growth.note_deleted(&HashMap::from([(device, 2 * MIB), (device + 1, 9 * MIB)]));
        let grown = measure(&mut growth);
        assert!((2 * MIB..3 * MIB).contains(&grown), "{grown}");
    }

    #[test]
    fn a_walk_goes_on_where_it_was() {
        let folder = tempfile::tempdir().unwrap();
        for number in 0..1000 {
            fs::write(folder.path().join(number.to_string()), "x").unwrap();
        }
        let mut walk = FolderWalk::begin(&[folder.path().to_owned()], (i64::MAX, 0));
        let mut slices = 1;
        while !walk.go_on(Duration::ZERO) {
            slices += 1;
        }
        assert!(slices > 10, "{slices}");
        assert_eq!(walk.sizes, walk.unchanged);
        let mut whole = FolderWalk::begin(&[folder.path().to_owned()], (0, 0));
        assert!(whole.go_on(Duration::MAX));
        assert_eq!(walk.sizes, whole.sizes);
    }
}
