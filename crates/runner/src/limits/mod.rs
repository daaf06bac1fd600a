//! What children may use up (`[sandbox.limits]`): watched while they run, and ended with words when
//! it is too much.
//!
//! By control groups of the kernel where some can be had, else by looking at what runs below the
//! supervisor. Either way about every second, and never for more than a hundredth of the time.

mod groups;
mod growth;
mod registry;
pub(crate) mod room;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use runner_core::config::{ChildKind, Config, SandboxLimits};
use runner_core::text::escape_path;
use runner_exec::{Flow, ProcessUsage, UsingProcess};

use crate::checkout::root::WorkspaceRoot;
use groups::ChildGroup;
pub(crate) use groups::GroupMeans;
use growth::FolderGrowth;
use registry::{ChildFigures, RegisteredChild, SharedVerdict, alone, decide_disk, decide_memory};
use room::DiskRoom;

/// The first look comes after so long, the next one after twice that, and so on.
const FIRST_PAUSE: Duration = Duration::from_millis(50);

/// Between two looks.
const PAUSE: Duration = Duration::from_secs(1);

/// The same where looking takes long.
const LONG_PAUSE: Duration = Duration::from_secs(5);

/// The same while a limit is near.
const SHORT_PAUSE: Duration = Duration::from_millis(200);

/// How many times longer than a look took nothing is looked at.
const REST: u32 = 100;

/// A disk that is full for so long is full whatever is still being measured.
const LATE: Duration = Duration::from_secs(10);

/// Who wrote less is not ended for a full disk.
const WORTH_ENDING: u64 = 1 << 20;

/// Which limit was passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LimitKind {
    Memory,
    Processes,
    WorkspaceGrowth,
    FreeSpace,
}

/// A child that was ended because it used too much.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LimitBreach {
    pub(crate) kind: LimitKind,
    /// Others have their part in it: it is not for this child alone to answer for.
    pub(crate) is_shared: bool,
    /// Which limit, how much, and who most of all; a lowercase fragment.
    pub(crate) words: String,
}

impl LimitBreach {
    fn new(kind: LimitKind, words: String) -> Self {
        LimitBreach {
            kind,
            is_shared: false,
            words,
        }
    }

    /// Whether what it left takes room that others need.
    pub(crate) fn fills_disk(&self) -> bool {
        matches!(self.kind, LimitKind::WorkspaceGrowth | LimitKind::FreeSpace)
    }
}

/// Where a child writes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct WrittenFolders {
    /// The folder in which it works, its temp folder, and what else it has alone.
    pub(crate) own: Vec<PathBuf>,
    /// What others write to as well: caches. What is in them counts only where the disk is full.
    pub(crate) shared: Vec<PathBuf>,
}

/// What a child's user may have in tasks beyond those that it has and those that the limit allows.
const SPARE_TASKS: u64 = 1024;

/// How many tasks the user of a child may have before the kernel lets the child make no more: a
/// backstop for what grows faster than anybody looks, where there is no group. So far above the limit
/// that the look comes first wherever it can, and that the user's other programs, which count, too,
/// have room. Nothing for root, whom the kernel does not count.
pub(crate) fn task_limit(config: &Config) -> Option<u64> {
    if rustix::process::geteuid().is_root() {
        return None;
    }
    let own = config.sandbox.limits.processes.saturating_mul(2);
    let limit = runner_exec::tasks_of_user().saturating_add(own);
    Some(limit.saturating_add(SPARE_TASKS))
}

/// How much memory all children together may use.
pub(crate) fn memory_limit(config: &Config) -> u64 {
    config.sandbox.limits.memory.bytes(machine_memory())
}

/// Watches over one child, from before it starts until it has ended.
#[derive(Debug)]
pub(crate) struct LimitWatch {
    limits: SandboxLimits,
    /// How much all children together may use.
    memory_limit: u64,
    name: &'static str,
    supervisor: Option<u32>,
    group: Option<ChildGroup>,
    growth: FolderGrowth,
    /// Of the folders that others write to as well.
    shared_growth: FolderGrowth,
    folders: Vec<PathBuf>,
    entry: Option<RegisteredChild>,
    figures: ChildFigures,
    /// Shared memory of the machine when it began.
    shared_memory: u64,
    held_next: Instant,
    full_since: Option<Instant>,
    next: Instant,
    pause: Duration,
    looks: u32,
    breach: Option<LimitBreach>,
}

impl LimitWatch {
    /// For a child that is about to begin and writes to these folders.
    pub(crate) fn begin(config: &Config, kind: ChildKind, written: WrittenFolders) -> Self {
        let limits = config.sandbox.limits.clone();
        let memory_limit = memory_limit(config);
        let clock = file_clock();
        let growth = FolderGrowth::begin(&written.own, clock);
        let shared_growth = FolderGrowth::begin(&written.shared, clock);
        let now = Instant::now();
        LimitWatch {
            memory_limit,
            name: match kind {
                ChildKind::Session => "the session",
                ChildKind::Setup => "setup",
                ChildKind::Guard => "the guard",
            },
            supervisor: None,
            group: None,
            figures: ChildFigures {
                limit: memory_limit,
                device: growth.device(),
                is_exact: true,
                ..ChildFigures::default()
            },
            growth,
            shared_growth,
            folders: written.own,
            entry: None,
            shared_memory: meminfo("Shmem:").unwrap_or(0),
            held_next: now,
            full_since: None,
            next: now + FIRST_PAUSE,
            pause: FIRST_PAUSE,
            looks: 0,
            breach: None,
            limits,
        }
    }

    /// Everything that is to be watched will run below this process.
    pub(crate) fn supervised(&mut self, pid: u32) {
        self.supervisor = Some(pid);
    }

    /// How long until the next look.
    pub(crate) fn tick_every(&self) -> Duration {
        self.pause
    }

    /// Looks, if it is time to.
    pub(crate) fn tick(&mut self) -> Flow {
        let now = Instant::now();
        if self.breach.is_some() || now < self.next {
            return Flow::Go;
        }
        let Some(pid) = self.supervisor else {
            return Flow::Go;
        };
        let before = own_time();
        self.breach = self.look(pid);
        self.looks += 1;
        let took = own_time().saturating_sub(before);
        let usual = (FIRST_PAUSE * (1 << self.looks.min(5))).min(PAUSE);
        let rest = (took * REST).min(LONG_PAUSE);
        self.pause = if self.is_near() {
            SHORT_PAUSE.max(rest / 10)
        } else {
            usual.max(rest)
        };
        self.next = Instant::now() + self.pause;
        if self.breach.is_some() {
            Flow::Kill
        } else {
            Flow::Go
        }
    }

    /// What was too much, if anything was, now that the child has ended.
    pub(crate) fn finish(mut self) -> Option<LimitBreach> {
        if self.breach.is_none() {
            self.breach = self.stopped_by_kernel(&ProcessUsage::default());
        }
        self.breach
    }

    fn look(&mut self, pid: u32) -> Option<LimitBreach> {
        if self.looks == 0 {
            self.group = ChildGroup::make(self.memory_limit, self.limits.processes);
            if let Some(group) = &self.group {
                group.take_in_below(pid);
            }
        }
        let most = self.limits.processes;
        let usage = runner_exec::usage_below(pid, most.saturating_add(1));
        let tasks = self.group.as_ref().and_then(ChildGroup::tasks);
        let tasks = tasks.unwrap_or(0).max(usage.tasks);
        if tasks > most {
            return Some(self.too_many(tasks, &usage));
        }
        let stopped = self.stopped_by_kernel(&usage);
        if stopped.is_some() {
            return stopped;
        }
        self.look_at_memory(pid, &usage)
            .or_else(|| self.look_at_disk(pid))
    }

    fn too_many(&self, tasks: u64, usage: &ProcessUsage) -> LimitBreach {
        let words = format!(
            "{} had more processes and threads than [sandbox.limits] processes = {} allows ({tasks}){}",
            self.name,
            self.limits.processes,
            usage
                .most_common
                .as_ref()
                .map_or(String::new(), |(name, count)| format!(
                    ", {count} of them `{}`",
                    shown(name)
                )),
        );
        LimitBreach::new(LimitKind::Processes, words)
    }

    /// What the kernel did before anybody looked.
    fn stopped_by_kernel(&self, usage: &ProcessUsage) -> Option<LimitBreach> {
        let group = self.group.as_ref()?;
        if group.was_refused() {
            return Some(self.too_many(self.limits.processes, usage));
        }
        group.was_killed().then(|| {
            let words = format!(
                "{} used more memory than [sandbox.limits] memory allows ({}): the kernel ended one of its processes",
                self.name,
                size(self.memory_limit),
            );
            LimitBreach::new(LimitKind::Memory, words)
        })
    }

    fn look_at_memory(&mut self, pid: u32, usage: &ProcessUsage) -> Option<LimitBreach> {
        let counted = self.group.as_ref().and_then(ChildGroup::memory);
        // Where it seems to be more than the group has, something may have left the group.
        let is_known =
            |bytes: &u64| *bytes > self.memory_limit || usage.memory <= self.memory_limit;
        let trusted = counted.filter(is_known);
        self.figures.is_exact = trusted.is_some();
        self.figures.memory = trusted.unwrap_or(usage.memory);
        let shared = meminfo("Shmem:").unwrap_or(0);
        let more_shared = shared.saturating_sub(self.shared_memory);
        if more_shared > self.memory_limit / 8 {
            // Somebody filled files that are memory: perhaps this one, before it was in its group.
            let held = runner_exec::held_below(pid).shared_memory;
            self.figures.memory = self.figures.memory.max(held);
        }
        self.enter();
        let mut biggest = usage.biggest.clone();
        let mut verdict = self.settle(decide_memory);
        if verdict == SharedVerdict::Unclear {
            if !self.figures.is_exact {
                let (exact, by) = runner_exec::exact_memory_below(pid);
                let held = runner_exec::held_below(pid).shared_memory;
                self.figures.memory = exact.max(held).max(counted.unwrap_or(0));
                self.figures.is_exact = true;
                biggest = by;
            }
            verdict = self.settle(decide_memory);
        }
        let SharedVerdict::End(sum) = verdict else {
            return None;
        };
        let is_shared = self.figures.memory <= self.memory_limit;
        let limit = size(self.memory_limit);
        let own = size(self.figures.memory);
        let words = if is_shared {
            format!(
                "all that runs here uses {}, more than [sandbox.limits] memory allows together ({limit}), and {} uses the most, {own}{}",
                size(sum),
                self.name,
                most_of_it(biggest.as_ref()),
            )
        } else {
            format!(
                "{} used {own}, more than [sandbox.limits] memory allows ({limit}){}",
                self.name,
                most_of_it(biggest.as_ref()),
            )
        };
        Some(LimitBreach {
            is_shared,
            ..LimitBreach::new(LimitKind::Memory, words)
        })
    }

    fn look_at_disk(&mut self, pid: u32) -> Option<LimitBreach> {
        let workspace = self.folders.first()?.clone();
        let room = DiskRoom::of(&workspace, &self.limits);
        let is_full = room.is_some_and(DiskRoom::is_full);
        let limit = self.limits.workspace_growth;
        let has_news = self.growth.look(limit, is_full);
        let now = Instant::now();
        if has_news || (is_full && now >= self.held_next) {
            let since = own_time();
            self.growth
                .note_deleted(&runner_exec::held_below(pid).deleted);
            self.held_next = now + (own_time().saturating_sub(since) * REST).max(PAUSE);
        }
        let grown = self.growth.bytes();
        self.figures.growth = grown;
        self.figures.is_measured = self.growth.is_measured;
        if grown > limit {
            let words = format!(
                "{} let its folders grow by {}, more than [sandbox.limits] workspace_growth = {} allows{}",
                self.name,
                size(grown),
                size(limit),
                self.largest_part(),
            );
            return Some(LimitBreach::new(LimitKind::WorkspaceGrowth, words));
        }
        let Some(room) = room.filter(|_| is_full) else {
            self.full_since = None;
            return None;
        };
        self.shared_growth.look(limit, is_full);
        let grown = grown + self.shared_growth.bytes();
        self.figures.growth = grown;
        self.figures.is_measured &= self.shared_growth.is_measured;
        let since = *self.full_since.get_or_insert(now);
        let is_late = now.duration_since(since) >= LATE;
        let device = self.figures.device;
        let verdict = self.settle(|all| decide_disk(all, device, is_late));
        if !matches!(verdict, SharedVerdict::End(_)) {
            return None;
        }
        let words = format!(
            "the disk is full: {}, and {} filled it most, by {}{}",
            room.words(),
            self.name,
            size(grown),
            self.largest_part(),
        );
        Some(LimitBreach {
            is_shared: true,
            ..LimitBreach::new(LimitKind::FreeSpace, words)
        })
    }

    /// Asks who ends; alone, where there is no registry.
    fn settle(
        &mut self,
        rule: impl Fn(&[registry::RunningChild]) -> SharedVerdict,
    ) -> SharedVerdict {
        let Some(entry) = &self.entry else {
            return rule(&alone(&self.figures));
        };
        let _ = entry.write(&self.figures);
        // Most of the time nothing is to be decided, and no lock is needed for that.
        match rule(&entry.all()) {
            SharedVerdict::GoOn => SharedVerdict::GoOn,
            _ => entry.decide(&mut self.figures, rule),
        }
    }

    /// Lets others see this child, from the first look on: short ones never are.
    fn enter(&mut self) {
        if self.entry.is_none()
            && let Ok(state) = WorkspaceRoot::of_user()
        {
            self.entry = RegisteredChild::enter(&state.join(registry::FOLDER), &self.figures);
        }
    }

    /// Whether a limit may be passed soon.
    fn is_near(&self) -> bool {
        self.full_since.is_some()
            || self.figures.memory > self.memory_limit / 2
            || self.figures.growth > self.limits.workspace_growth / 2
    }

    fn largest_part(&self) -> String {
        let shared = self.shared_growth.largest_part();
        let parts = self.growth.largest_part().into_iter().chain(shared);
        let Some((part, bytes)) = parts.max_by_key(|(_, bytes)| *bytes) else {
            return ", in files that are deleted and still open".to_owned();
        };
        let name = match self.folders.iter().position(|it| part.starts_with(it)) {
            Some(0) if Some(&part) == self.folders.first() => "the workspace itself".to_owned(),
            Some(0) => {
                let below = part.strip_prefix(&self.folders[0]).unwrap_or(&part);
                format!("`{}/`", shown(below.as_os_str().as_encoded_bytes()))
            }
            Some(1) => "its temp folder".to_owned(),
            _ => format!(
                "`{}`",
                end_of(&escape_path(part.as_os_str().as_encoded_bytes()))
            ),
        };
        format!(", {} of it in {name}", size(bytes))
    }
}

fn most_of_it(process: Option<&UsingProcess>) -> String {
    process.map_or(String::new(), |it| {
        format!(
            "; the biggest process is {} `{}` with {}",
            it.pid,
            shown(&it.name),
            size(it.memory)
        )
    })
}

fn shown(name: &[u8]) -> String {
    let text = escape_path(name);
    runner_core::text::cut_chars(&text, 60).into_owned()
}

/// The end of a path: its beginning says nothing new.
fn end_of(path: &str) -> String {
    const SHOWN: usize = 60;
    let count = path.chars().count();
    if count <= SHOWN {
        return path.to_owned();
    }
    let end: String = path.chars().skip(count - SHOWN).collect();
    format!("…{end}")
}

/// For people: three digits or so.
pub(crate) fn size(bytes: u64) -> String {
    let units = [(40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")];
    for (shift, name) in units {
        let whole = bytes >> shift;
        if whole == 0 {
            continue;
        }
        let tenth = ((bytes & ((1 << shift) - 1)) * 10) >> shift;
        return if whole >= 10 || tenth == 0 {
            format!("{whole} {name}")
        } else {
            format!("{whole}.{tenth} {name}")
        };
    }
    format!("{bytes} bytes")
}

/// How much memory the machine has; the group that this process is in may have less.
pub(crate) fn machine_memory() -> u64 {
    meminfo("MemTotal:").unwrap_or(u64::MAX)
}

fn meminfo(name: &str) -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    let kib: u64 = line.split_ascii_whitespace().next()?.parse().ok()?;
    Some(kib * 1024)
}

/// The time that this thread has worked.
fn own_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::try_from(time).unwrap_or(Duration::ZERO)
}

/// Now, by the coarse clock that files are marked with.
fn file_clock() -> (i64, i64) {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::RealtimeCoarse);
    (now.tv_sec, now.tv_nsec)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_for_people() {
        for (bytes, expected) in [
            (0, "0 bytes"),
            (1023, "1023 bytes"),
            (1 << 20, "1 MiB"),
            ((1 << 20) + (1 << 19), "1.5 MiB"),
            (200 << 20, "200 MiB"),
            (u64::MAX, "16777215 TiB"),
        ] {
            assert_eq!(size(bytes), expected);
        }
    }

    #[test]
    fn the_machine_has_memory() {
        assert!((1 << 20..u64::MAX).contains(&machine_memory()));
    }
}
