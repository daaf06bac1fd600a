//! Which children run on this machine for this user, what each uses, and whose turn it is to end
//! when they use too much together.
//!
//! Each running child has a file that its runner holds locked, so that a file without a lock is
//! what a crash left. The file has figures that the runner writes anew about every second. Who ends
//! is decided under one more lock, and nobody is told to end while another one is ending.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use rustix::fs::{FlockOperation, flock};

/// The folder beside those of the projects.
pub(super) const FOLDER: &str = "limits";

/// Held while it is decided who ends.
const DECIDING: &str = "deciding";

/// The length of each file: so that writing it again takes no room.
const LENGTH: usize = 160;

/// Who has not written for so long cannot be asked to end.
const SILENT: Duration = Duration::from_secs(15);

/// What a child uses, as others see it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ChildFigures {
    pub(super) memory: u64,
    /// Whether memory that several of its processes share counts once.
    pub(super) is_exact: bool,
    /// How much all children together may use where it runs.
    pub(super) limit: u64,
    /// By how much its folders grew, and on which device.
    pub(super) growth: u64,
    pub(super) device: u64,
    /// Whether that is known by now.
    pub(super) is_measured: bool,
    /// Its runner has told it to end.
    pub(super) is_ending: bool,
}

impl ChildFigures {
    fn text(&self) -> String {
        let words = format!(
            "1 {} {} {} {} {} {} {}",
            self.memory,
            u8::from(self.is_exact),
            self.limit,
            self.growth,
            self.device,
            u8::from(self.is_measured),
            u8::from(self.is_ending),
        );
        format!("{words:<width$}\n", width = LENGTH - 1)
    }

    fn parse(text: &str) -> Option<Self> {
        let mut numbers = text.split_ascii_whitespace();
        if numbers.next()? != "1" {
            return None;
        }
        let mut number = || -> Option<u64> { numbers.next()?.parse().ok() };
        Some(ChildFigures {
            memory: number()?,
            is_exact: number()? == 1,
            limit: number()?,
            growth: number()?,
            device: number()?,
            is_measured: number()? == 1,
            is_ending: number()? == 1,
        })
    }
}

/// A child as the registry has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RunningChild {
    pub(super) is_own: bool,
    /// Whether its runner has written lately.
    pub(super) is_heard: bool,
    pub(super) figures: ChildFigures,
}

/// What a decision comes to for one's own child.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SharedVerdict {
    /// It goes on.
    GoOn,
    /// Somebody must end, and who that is is not known until figures are exact.
    Unclear,
    /// It ends; so much do all use together.
    End(u64),
}

/// Who ends because all of them use too much memory: of those whose limit is passed the one that
/// uses most.
pub(super) fn decide_memory(all: &[RunningChild]) -> SharedVerdict {
    let sum = all.iter().map(|child| child.figures.memory).sum();
    let passed = |child: &&RunningChild| child.figures.limit < sum;
    let own_limit = all.iter().find(|it| it.is_own).map(|it| it.figures.limit);
    if own_limit.is_none_or(|limit| sum <= limit) || all.iter().any(|it| it.figures.is_ending) {
        return SharedVerdict::GoOn;
    }
    if all.iter().any(|it| it.is_heard && !it.figures.is_exact) {
        return SharedVerdict::Unclear;
    }
    let largest = all
        .iter()
        .filter(|it| it.is_heard)
        .filter(passed)
        .max_by_key(|it| it.figures.memory);
    end_if_own(largest, sum)
}

/// Who ends because a disk is full: the one that filled it most, if anybody did. `is_late`: it has
/// been full for a while, so that figures which are not there yet are not waited for.
pub(super) fn decide_disk(all: &[RunningChild], device: u64, is_late: bool) -> SharedVerdict {
    let mut here = all
        .iter()
        .filter(|it| it.is_heard && it.figures.device == device);
    if all.iter().any(|it| it.figures.is_ending) {
        return SharedVerdict::GoOn;
    }
    if !is_late && here.clone().any(|it| !it.figures.is_measured) {
        return SharedVerdict::Unclear;
    }
    let sum = here.clone().map(|it| it.figures.growth).sum();
    let largest = here.clone().map(|it| it.figures.growth).max().unwrap_or(0);
    // Whoever wrote next to nothing leaves no room by ending.
    if largest < super::WORTH_ENDING {
        return SharedVerdict::GoOn;
    }
    end_if_own(here.find(|it| it.figures.growth == largest), sum)
}

fn end_if_own(largest: Option<&RunningChild>, sum: u64) -> SharedVerdict {
    match largest {
        Some(child) if child.is_own => SharedVerdict::End(sum),
        _ => SharedVerdict::GoOn,
    }
}

/// One's own child in the registry, for as long as this lives.
#[derive(Debug)]
pub(super) struct RegisteredChild {
    folder: PathBuf,
    path: PathBuf,
    file: File,
}

impl RegisteredChild {
    /// None where nothing can be written: then it is alone.
    pub(super) fn enter(folder: &Path, figures: &ChildFigures) -> Option<Self> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        // When this happens depends on the clock: it is no point of a step.
        std::fs::create_dir_all(folder).ok()?;
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = folder.join(format!("{}-{number}", std::process::id()));
        // Not there before it is locked: who finds a file without a lock removes it.
        let making = open(&folder.join(DECIDING)).ok()?;
        flock(&making, FlockOperation::LockExclusive).ok()?;
        let file = open(&path).ok()?;
        flock(&file, FlockOperation::NonBlockingLockExclusive).ok()?;
        let child = RegisteredChild {
            folder: folder.to_owned(),
            path,
            file,
        };
        child.write(figures).ok()?;
        Some(child)
    }

    /// Lets the others see what it uses.
    pub(super) fn write(&self, figures: &ChildFigures) -> io::Result<()> {
        self.file.write_all_at(figures.text().as_bytes(), 0)
    }

    /// All that run now. What crashes left is removed on the way.
    pub(super) fn all(&self) -> Vec<RunningChild> {
        let entries = std::fs::read_dir(&self.folder).into_iter().flatten();
        let paths = entries.flatten().map(|entry| entry.path());
        let mut paths: Vec<PathBuf> = paths.filter(|it| !it.ends_with(DECIDING)).collect();
        // So that everybody finds the same one first.
        paths.sort();
        paths.iter().filter_map(|path| self.read(path)).collect()
    }

    fn read(&self, path: &Path) -> Option<RunningChild> {
        let is_own = path == self.path;
        let file = File::open(path).ok()?;
        if !is_own && flock(&file, FlockOperation::NonBlockingLockShared).is_ok() {
            let _ = std::fs::remove_file(path);
            return None;
        }
        let mut text = [0; LENGTH];
        file.read_exact_at(&mut text, 0).ok()?;
        let figures = ChildFigures::parse(std::str::from_utf8(&text).ok()?)?;
        let meta = file.metadata().ok()?;
        // A clock that was set back makes nobody silent.
        let written = u64::try_from(meta.mtime()).unwrap_or(0);
        #[allow(clippy::disallowed_methods)] // compared with a file's time, never recorded
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let since = now.map_or(0, |now| now.as_secs().saturating_sub(written));
        Some(RunningChild {
            is_own,
            is_heard: is_own || since <= SILENT.as_secs(),
            figures,
        })
    }

    /// Decides with nobody else deciding, and lets the others see if one's own child ends.
    pub(super) fn decide(
        &self,
        figures: &mut ChildFigures,
        rule: impl FnOnce(&[RunningChild]) -> SharedVerdict,
    ) -> SharedVerdict {
        let Ok(deciding) = open(&self.folder.join(DECIDING)) else {
            return rule(&alone(figures));
        };
        if flock(&deciding, FlockOperation::LockExclusive).is_err() {
            return rule(&alone(figures));
        }
        let _ = self.write(figures);
        let verdict = rule(&self.all());
        if matches!(verdict, SharedVerdict::End(_)) {
            figures.is_ending = true;
            let _ = self.write(figures);
        }
        verdict
    }
}

/// A child that nobody else is seen beside.
pub(super) fn alone(figures: &ChildFigures) -> Vec<RunningChild> {
    vec![RunningChild {
        is_own: true,
        is_heard: true,
        figures: figures.clone(),
    }]
}

impl Drop for RegisteredChild {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

fn open(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    options.mode(0o600).open(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn child(is_own: bool, memory: u64, limit: u64) -> RunningChild {
        RunningChild {
            is_own,
            is_heard: true,
            figures: ChildFigures {
                memory,
                is_exact: true,
                limit,
                is_measured: true,
                ..ChildFigures::default()
            },
        }
    }

    #[test]
    fn of_those_whose_limit_is_passed_the_largest_ends() {
        use SharedVerdict::{End, GoOn, Unclear};
        for (all, expected) in [
            (vec![child(true, 100, 100)], GoOn),
            (vec![child(true, 101, 100)], End(101)),
            (vec![child(true, 60, 100), child(false, 50, 100)], End(110)),
            (vec![child(true, 50, 100), child(false, 60, 100)], GoOn),
            // Another one has a limit of its own that is not passed: it is not for it to end.
            (vec![child(true, 50, 100), child(false, 60, 1000)], End(110)),
            (vec![child(true, 60, 1000), child(false, 50, 100)], GoOn),
        ] {
            assert_eq!(decide_memory(&all), expected, "{all:?}");
        }
        let mut all = vec![child(true, 60, 100), child(false, 50, 100)];
        all[1].figures.is_exact = false;
        assert_eq!(decide_memory(&all), Unclear);
        // Nobody hears of it: it counts, and is not waited for.
        all[1].is_heard = false;
        all[1].figures.memory = 90;
        assert_eq!(decide_memory(&all), End(150));
        all[1].figures.is_ending = true;
        assert_eq!(decide_memory(&all), GoOn);
    }

    #[test]
    fn of_those_on_a_full_disk_the_one_that_filled_it_ends() {
        use SharedVerdict::{End, GoOn, Unclear};
        let on = |is_own, device, growth| {
            let mut child = child(is_own, 0, 0);
            (child.figures.device, child.figures.growth) = (device, growth);
            child
        };
        let check = |all: &[RunningChild]| decide_disk(all, 1, false);
        assert_eq!(check(&[on(true, 1, MIB / 2)]), GoOn);
        assert_eq!(
            check(&[on(true, 1, 5 * MIB), on(false, 2, 9 * MIB)]),
            End(5 * MIB)
        );
        let mut two = [on(true, 1, 9 * MIB), on(false, 1, 5 * MIB)];
        assert_eq!(check(&two), End(14 * MIB));
        two[1].figures.is_measured = false;
        assert_eq!(check(&two), Unclear);
        assert_eq!(decide_disk(&two, 1, true), End(14 * MIB));
        two[1].figures.growth = 10 * MIB;
        assert_eq!(decide_disk(&two, 1, true), GoOn);
    }

    #[test]
    fn figures_survive_the_way_and_what_crashed_is_gone() {
        let folder = tempfile::tempdir().unwrap();
        let mut figures = ChildFigures {
            memory: u64::MAX,
            is_exact: true,
            limit: 1,
            growth: 2,
            device: u64::MAX,
            is_measured: false,
            is_ending: false,
        };
        assert_eq!(figures.text().len(), LENGTH);
        assert_eq!(ChildFigures::parse(&figures.text()), Some(figures.clone()));
        assert_eq!(ChildFigures::parse("2 1 1 1 1 1 1 1"), None);
        let here = RegisteredChild::enter(folder.path(), &figures).unwrap();
        let other = RegisteredChild::enter(folder.path(), &figures).unwrap();
        let crashed = folder.path().join("1-1");
        std::fs::write(&crashed, figures.text()).unwrap();
        assert_eq!(here.all().len(), 2);
        assert!(!crashed.exists());
        let verdict = other.decide(&mut figures, |all| {
            assert_eq!(all.len(), 2);
            SharedVerdict::End(3)
        });
        assert_eq!(verdict, SharedVerdict::End(3));
        assert!(
            here.all()
                .iter()
                .any(|it| it.figures.is_ending && !it.is_own)
        );
        drop(other);
        assert_eq!(here.all().len(), 1);
    }
}
