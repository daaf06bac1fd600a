//! The machine: git, disk, clock.

use std::path::Path;
use std::time::SystemTime;

use jiff::Timestamp;
use rustix::fs::{StatVfs, StatVfsMountFlags};

use super::{Check, Verdict};
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
pub(super) fn git(version: Result<String>) -> Check {
    match version {
        Ok(version) => Check::ok("git", version),
        Err(error) => from_error("git", error),
    }
}

/// Who commits are by.
pub(super) fn identity(knows_a_name: &Result<bool>) -> Check {
    const NAME: &str = "git_identity";
    const REMEDY: &str = "git config --global user.name 'Your Name' && git config --global user.email you@example.com";
    match knows_a_name {
        Ok(true) => Check::ok(NAME, "git knows whom to name as author"),
        Ok(false) => Check::warn(
            NAME,
            "git knows no name and email here: commits are made as runner <runner@localhost>",
            REMEDY,
        ),
        Err(error) => Check::warn(NAME, error.message.clone(), REMEDY),
    }
}

/// An error of ours as a finding.
pub(super) fn from_error(name: &'static str, error: Error) -> Check {
    Check {
        name,
        verdict: Verdict::Fail,
        message: error.message,
        remedy: error.hint,
    }
}

/// The room that is left on a file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Space {
    free_bytes: u64,
    read_only: bool,
}

/// Looks at the file system that a folder lies on.
pub(super) fn look_at_disk(place: &Path) -> std::result::Result<Space, String> {
    let stat: StatVfs = rustix::fs::statvfs(place).map_err(|errno| errno.to_string())?;
    Ok(Space {
        free_bytes: stat.f_bavail.saturating_mul(stat.f_frsize),
        read_only: stat.f_flag.contains(StatVfsMountFlags::RDONLY),
    })
}

/// Whether a run would fill the disk.
pub(super) fn disk_space(space: std::result::Result<&Space, &String>) -> Check {
    const NAME: &str = "disk_space";
    let space = match space {
        Ok(space) => space,
        Err(why) => {
            return Check::warn(
                NAME,
                format!("cannot be found out: {why}"),
                "look with `df`",
            );
        }
    };
    if space.read_only {
        return Check::fail(
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
        _ if free < 100 * MIB => Check::fail(NAME, shown, remedy),
        _ if free < GIB => Check::warn(NAME, shown, remedy),
        _ => Check::ok(NAME, shown),
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
pub(super) fn clock(now: Timestamp, files: Option<Timestamp>) -> Check {
    const NAME: &str = "clock";
    const REMEDY: &str = "set the clock (`timedatectl set-ntp true`)";
    let shown = format!("{now:.0}");
    if now.as_second() < EARLIEST_SECS {
        let message = format!("it shows {shown}, which is long past");
        return Check::warn(NAME, message, REMEDY);
    }
    let skew = files.map_or(0, |files| now.as_second().abs_diff(files.as_second()));
    if skew > MAX_SKEW_SECS {
        let message = format!(
            "it shows {shown}, but the project's file system is {} minutes off",
            skew / 60
        );
        let remedy = format!("{REMEDY}, here or where the files are kept");
        return Check::warn(NAME, message, remedy);
    }
    Check::ok(NAME, shown)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Code;

    #[test]
    fn how_much_space_is_enough() {
        for (free, read_only, verdict, words) in [
            (5 * GIB + GIB / 2, false, Verdict::Ok, "5.5 GiB free"),
            (GIB, false, Verdict::Ok, "1.0 GiB free"),
            (GIB - 1, false, Verdict::Warn, "1023 MiB free"),
            (100 * MIB, false, Verdict::Warn, "100 MiB free"),
            (100 * MIB - 1, false, Verdict::Fail, "99 MiB free"),
            (0, false, Verdict::Fail, "0 MiB free"),
            (5 * GIB, true, Verdict::Fail, "read-only"),
        ] {
            let space = Space {
                free_bytes: free,
                read_only,
            };
            let check = disk_space(Ok(&space));
            assert_eq!(check.verdict, verdict, "{check:?}");
            assert!(check.message.contains(words), "{check:?}");
            assert_eq!(check.remedy.is_none(), verdict == Verdict::Ok, "{check:?}");
        }
        let check = disk_space(Err(&"gone".to_owned()));
        assert_eq!(check.verdict, Verdict::Warn);
    }

    #[test]
    fn which_clock_is_believed() {
        let at = |text: &str| text.parse::<Timestamp>().unwrap();
        for (now, files, verdict) in [
            ("2026-01-01T00:00:00Z", None, Verdict::Ok),
            (
                "2026-01-01T00:00:00Z",
                Some("2026-01-01T01:00:00Z"),
                Verdict::Ok,
            ),
            (
                "2026-01-01T00:00:00Z",
                Some("2026-01-01T01:00:01Z"),
                Verdict::Warn,
            ),
            (
                "2026-01-01T00:00:00Z",
                Some("2025-12-31T22:00:00Z"),
                Verdict::Warn,
            ),
            ("2024-12-31T23:59:59Z", None, Verdict::Warn),
            ("2025-01-01T00:00:00Z", None, Verdict::Ok),
            ("1970-01-01T00:00:07Z", None, Verdict::Warn),
        ] {
            let check = clock(at(now), files.map(at));
            assert_eq!(check.verdict, verdict, "{check:?}");
            assert_eq!(check.remedy.is_none(), verdict == Verdict::Ok, "{check:?}");
        }
    }

    #[test]
    fn git_and_its_identity() {
        let old = Error::new(Code::Git, "this git is too old").hint("install a newer git");
        let check = git(Err(old));
        assert_eq!(check.verdict, Verdict::Fail);
        assert_eq!(check.remedy.as_deref(), Some("install a newer git"));
        assert_eq!(
            git(Ok("git version 2.47.3".to_owned())).verdict,
            Verdict::Ok
        );
        assert_eq!(identity(&Ok(true)).verdict, Verdict::Ok);
        assert_eq!(identity(&Ok(false)).verdict, Verdict::Warn);
        let broken = Err(Error::new(Code::Git, "bad config line 1"));
        assert!(identity(&broken).message.contains("bad config"));
    }
}
