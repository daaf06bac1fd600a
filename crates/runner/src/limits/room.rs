//! Whether a disk has the room that must remain, and waiting until it has.

use std::path::{Path, PathBuf};

use runner_core::config::SandboxLimits;

use super::size;

/// What is left of a disk, and what must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DiskRoom {
    free: u64,
    wanted: u64,
}

impl DiskRoom {
    /// Of the disk of a folder, which need not be there yet. None where nothing can be told.
    pub(crate) fn of(folder: &Path, limits: &SandboxLimits) -> Option<Self> {
        let there = nearest(folder)?;
        let space = rustix::fs::statvfs(&there).ok()?;
        let unit = space.f_frsize;
        Some(DiskRoom {
            free: space.f_bavail.saturating_mul(unit),
            wanted: wanted(limits.free_space, space.f_blocks.saturating_mul(unit)),
        })
    }

    /// Less is left than must be.
    pub(crate) fn is_full(self) -> bool {
        self.free < self.wanted
    }

    /// There is room enough to begin something: a little more, so that what begins can do anything.
    pub(crate) fn has_room_again(self) -> bool {
        self.free >= self.wanted.saturating_add(self.wanted / 10)
    }

    /// In words.
    pub(crate) fn words(self) -> String {
        format!(
            "{} are left on it, and {} must be ([sandbox.limits] free_space)",
            size(self.free),
            size(self.wanted)
        )
    }
}

/// What must remain: on a disk that is hardly larger than that, a tenth of it.
fn wanted(free_space: u64, whole: u64) -> u64 {
    if whole / 2 < free_space {
        whole / 10
    } else {
        free_space
    }
}

fn nearest(folder: &Path) -> Option<PathBuf> {
    let mut folders = folder.ancestors();
    folders.find(|it| it.exists()).map(Path::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_disks_keep_a_tenth() {
        for (free_space, whole, expected) in [
            (10, 1000, 10),
            (10, 20, 10),
            (10, 19, 1),
            (1 << 30, 24 << 20, (24 << 20) / 10),
        ] {
            assert_eq!(wanted(free_space, whole), expected);
        }
    }

    #[test]
    fn room_comes_back_with_a_little_more() {
        let room = |free| DiskRoom { free, wanted: 100 };
        assert!(room(99).is_full() && !room(100).is_full());
        assert!(!room(109).has_room_again() && room(110).has_room_again());
    }
}
