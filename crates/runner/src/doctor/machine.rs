//! The machine: git, disk, clock.

use std::path::Path;
use std::time::SystemTime;

use jiff::Timestamp;
use rustix::fs::{StatVfs, StatVfsMountFlags};

use super::{DoctorCheck, DoctorVerdict};
use crate::error::{Error, Result};
use crate::git::Git;
use crate::project::Project;

const MIB: u64 = 1024 * 1024;
const GIB: u64 = 1024 * MIB;

/// 2025-01-01: no clock that is right shows an earlier time.
const EARLIEST_SECS: i64 = 1_735_689_600;

/// How far the file system's time may be off.
const MAX_SKEW_SECS: u64 = 3600;

/// Git itself.
pub(super) fn git(version: Result<String>) -> DoctorCheck {
    match version {
        Ok(version) => DoctorCheck::ok("git", version),
        Err(error) => from_error("git", error),
    }
}

/// Who commits are by.
pub(super) fn identity(knows_a_name: &Result<bool>) -> DoctorCheck {
    const NAME: &str = "git_identity";
    const REMEDY: &str = "git config --global user.name 'Your Name' && git config --global user.email you@example.com";
    match knows_a_name {
        Ok(true) => DoctorCheck::ok(NAME, "git knows whom to name as author"),
        Ok(false) => DoctorCheck::warn(
            NAME,
            "git knows no name and email here: commits are made as runner <runner@localhost>",
            REMEDY,
        ),
        Err(error) => DoctorCheck::warn(NAME, error.message.clone(), REMEDY),
    }
}

/// An error of ours as a finding.
pub(super) fn from_error(name: &'static str, error: Error) -> DoctorCheck {
    DoctorCheck {
        name,
        verdict: DoctorVerdict::Fail,
        message: error.message,
        remedy: error.hint,
    }
}

/// The room that is left on a file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DiskSpace {
    free_bytes: u64,
    read_only: bool,
}

/// Looks at the file system that a folder lies on.
pub(super) fn look_at_disk(place: &Path) -> std::result::Result<DiskSpace, String> {
    let stat: StatVfs = rustix::fs::statvfs(place).map_err(|errno| errno.to_string())?;
    Ok(DiskSpace {
        free_bytes: stat.f_bavail.saturating_mul(stat.f_frsize),
        read_only: stat.f_flag.contains(StatVfsMountFlags::RDONLY),
    })
}

/// Whether a run would fill the disk.
pub(super) fn disk_space(space: std::result::Result<&DiskSpace, &String>) -> DoctorCheck {
    const NAME: &str = "disk_space";
    let space = match space {
        Ok(space) => space,
        Err(why) => {
            return DoctorCheck::warn(
                NAME,
                format!("cannot be found out: {why}"),
                "look with `df`",
            );
        }
    };
    if space.read_only {
        return DoctorCheck::fail(
            NAME,
            "the file system is read-only",
            "make it writable, or work on another one",
        );
    }
    let free = space.free_bytes;
    let shown = if free >= GIB {
        format!("{}.{} GiB free", free / GIB, free % GIB * 10 / GIB)
    } else {
        format!("{} MiB free", free / MIB)
    };
    let remedy = "free some space: builds, logs and commits of a run need it";
    match free {
        _ if free < 100 * MIB => DoctorCheck::fail(NAME, shown, remedy),
        _ if free < GIB => DoctorCheck::warn(NAME, shown, remedy),
        _ => DoctorCheck::ok(NAME, shown),
    }
}

/// The time that the project's file system gives to a new file; nothing of the
/// file remains.
pub(super) fn time_of_files(project: Option<&Project>) -> Option<Timestamp> {
    let project = project?;
    let folders = [
        Some(project.iterations()),
        Git::open(project.root())
            .ok()
            .map(|git| git.git_dir().to_owned()),
    ];
    let folder = folders.into_iter().flatten().find(|it| it.is_dir())?;
    let file = tempfile::tempfile_in(folder).ok()?;
    let modified: SystemTime = file.metadata().ok()?.modified().ok()?;
    Timestamp::try_from(modified).ok()
}

/// Whether the time can be believed: logs, quotas and `--until` go by it.
pub(super) fn clock(now: Timestamp, files: Option<Timestamp>) -> DoctorCheck {
    const NAME: &str = "clock";
    const REMEDY: &str = "set the clock (`timedatectl set-ntp true`)";
    let shown = format!("{now:.0}");
    if now.as_second() < EARLIEST_SECS {
        let message = format!("it shows {shown}, which is long past");
        return DoctorCheck::warn(NAME, message, REMEDY);
    }
    let skew = files.map_or(0, |files| now.as_second().abs_diff(files.as_second()));
    if skew > MAX_SKEW_SECS {
        let message = format!(
            "it shows {shown}, but the project's file system is {} minutes off",
            skew / 60
        );
        let remedy = format!("{REMEDY}, here or where the files are kept");
        return DoctorCheck::warn(NAME, message, remedy);
    }
    DoctorCheck::ok(NAME, shown)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorCode;

    #[test]
    fn how_much_space_is_enough() {
        for (free, read_only, verdict, words) in [
            (5 * GIB + GIB / 2, false, DoctorVerdict::Ok, "5.5 GiB free"),
            (GIB, false, DoctorVerdict::Ok, "1.0 GiB free"),
            (GIB - 1, false, DoctorVerdict::Warn, "1023 MiB free"),
            (100 * MIB, false, DoctorVerdict::Warn, "100 MiB free"),
            (100 * MIB - 1, false, DoctorVerdict::Fail, "99 MiB free"),
            (0, false, DoctorVerdict::Fail, "0 MiB free"),
            (5 * GIB, true, DoctorVerdict::Fail, "read-only"),
        ] {
            let space = DiskSpace {
                free_bytes: free,
                read_only,
            };
            let check = disk_space(Ok(&space));
            assert_eq!(check.verdict, verdict, "{check:?}");
            assert!(check.message.contains(words), "{check:?}");
            assert_eq!(
                check.remedy.is_none(),
                verdict == DoctorVerdict::Ok,
                "{check:?}"
            );
        }
        let check = disk_space(Err(&"gone".to_owned()));
        assert_eq!(check.verdict, DoctorVerdict::Warn);
    }

    #[test]
    fn which_clock_is_believed() {
        let at = |text: &str| text.parse::<Timestamp>().unwrap();
        for (now, files, verdict) in [
            ("2026-01-01T00:00:00Z", None, DoctorVerdict::Ok),
            (
                "2026-01-01T00:00:00Z",
                Some("2026-01-01T01:00:00Z"),
                DoctorVerdict::Ok,
            ),
            (
                "2026-01-01T00:00:00Z",
                Some("2026-01-01T01:00:01Z"),
                DoctorVerdict::Warn,
            ),
            (
                "2026-01-01T00:00:00Z",
                Some("2025-12-31T22:00:00Z"),
                DoctorVerdict::Warn,
            ),
            ("2024-12-31T23:59:59Z", None, DoctorVerdict::Warn),
            ("2025-01-01T00:00:00Z", None, DoctorVerdict::Ok),
            ("1970-01-01T00:00:07Z", None, DoctorVerdict::Warn),
        ] {
            let check = clock(at(now), files.map(at));
            assert_eq!(check.verdict, verdict, "{check:?}");
            assert_eq!(
                check.remedy.is_none(),
                verdict == DoctorVerdict::Ok,
                "{check:?}"
            );
        }
    }

    #[test]
    fn git_and_its_identity() {
        let old = Error::new(ErrorCode::Git, "this git is too old").hint("install a newer git");
        let check = git(Err(old));
        assert_eq!(check.verdict, DoctorVerdict::Fail);
        assert_eq!(check.remedy.as_deref(), Some("install a newer git"));
        assert_eq!(
            git(Ok("git version 2.47.3".to_owned())).verdict,
            DoctorVerdict::Ok
        );
        assert_eq!(identity(&Ok(true)).verdict, DoctorVerdict::Ok);
        assert_eq!(identity(&Ok(false)).verdict, DoctorVerdict::Warn);
        let broken = Err(Error::new(ErrorCode::Git, "bad config line 1"));
        assert!(identity(&broken).message.contains("bad config"));
    }
}
