//! Flags of files that keep even their owner from changing or removing them: immutable, and to be
//! appended to alone. Only a privileged session can set them, and so can its runner take them off.

use std::path::Path;

use rustix::fs::{IFlags, ioctl_getflags, ioctl_setflags};

use crate::files;

const HOLDING: IFlags = IFlags::IMMUTABLE.union(IFlags::APPEND);

/// Whether a file or folder has such a flag.
pub(crate) fn is_held(path: &Path) -> bool {
    let kind = path.symlink_metadata().map(|meta| meta.file_type());
    // To open a device may do something.
    if !kind.is_ok_and(|kind| kind.is_file() || kind.is_dir()) {
        return false;
    }
    let file = files::open_no_trap(path).ok();
    let flags = file.and_then(|file| ioctl_getflags(&file).ok());
    flags.is_some_and(|flags| flags.intersects(HOLDING))
}

/// Takes such flags off a file or folder. Whether there were any, and there are none now.
pub(crate) fn release(path: &Path) -> bool {
    if !is_held(path) {
        return false;
    }
    let Ok(file) = files::open_no_trap(path) else {
        return false;
    };
    let flags = ioctl_getflags(&file);
    flags.is_ok_and(|flags| ioctl_setflags(&file, flags.difference(HOLDING)).is_ok())
}

/// Whether this process might be allowed to.
pub(crate) fn may_release() -> bool {
    rustix::process::geteuid().is_root()
}
