//! Control groups of the kernel, where this process may make some: they count exactly, and stop
//! what grows faster than anybody can look.

use std::collections::HashSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// How the name of a group begins; the process that made it and a number follow.
const PREFIX: &str = "runner-";

/// How often to look for newcomers while all are moved.
const PASSES: usize = 8;

/// Switches them off: `off`.
const VARIABLE: &str = "RUNNER_CGROUPS";

/// How groups can be had.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum GroupMeans {
    /// One hierarchy for everything.
    V2(PathBuf),
    /// One for each kind of limit.
    V1 {
        /// Where memory is counted.
        memory: PathBuf,
        /// Where processes are.
        pids: PathBuf,
    },
    /// Not at all; a lowercase fragment says why.
    None(String),
}

impl GroupMeans {
    /// What this process can have, found out once.
    pub(crate) fn of_this_process() -> &'static GroupMeans {
        static MEANS: OnceLock<GroupMeans> = OnceLock::new();
        MEANS.get_or_init(|| {
            if std::env::var_os(VARIABLE).is_some_and(|it| it == "off") {
                return GroupMeans::None(format!("{VARIABLE}=off"));
            }
            let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
            let mounts = read("/proc/self/mountinfo");
            let own = read("/proc/self/cgroup");
            let means = find(&mounts, &own);
            means.tried()
        })
    }

    /// In a few words.
    pub(crate) fn words(&self) -> String {
        match self {
            GroupMeans::V2(_) => "cgroup v2".to_owned(),
            GroupMeans::V1 { .. } => "cgroup v1".to_owned(),
            GroupMeans::None(why) => format!("no cgroup ({why})"),
        }
    }

    fn tried(self) -> Self {
        let result = match &self {
            GroupMeans::V2(folder) => prepare_v2(folder),
            GroupMeans::V1 { memory, pids } => Ok(()).and_then(|()| {
                sweep(memory);
                sweep(pids);
                can_write(memory).and_then(|()| can_write(pids))
            }),
            GroupMeans::None(_) => Ok(()),
        };
        match result {
            Ok(()) => self,
            Err(why) => GroupMeans::None(why),
        }
    }
}

/// Where the groups of this process are, by the tables of the kernel.
fn find(mounts: &str, own: &str) -> GroupMeans {
    let of_v1 = |controller: &str| {
        let line = own.lines().find_map(|line| {
            let (_, rest) = line.split_once(':')?;
            let (names, path) = rest.split_once(':')?;
            names.split(',').any(|it| it == controller).then_some(path)
        })?;
        let is_here = |options: &str| options.split(',').any(|it| it == controller);
        mounted(mounts, "cgroup", is_here, line)
    };
    if let (Some(memory), Some(pids)) = (of_v1("memory"), of_v1("pids")) {
        return GroupMeans::V1 { memory, pids };
    }
    let unified = own.lines().find_map(|line| line.strip_prefix("0::"));
    match unified.and_then(|path| mounted(mounts, "cgroup2", |_| true, path)) {
        Some(folder) => GroupMeans::V2(folder),
        None => GroupMeans::None("none is mounted here".to_owned()),
    }
}

/// The folder of a group, by the lines of `mountinfo`.
fn mounted(mounts: &str, kind: &str, fits: impl Fn(&str) -> bool, path: &str) -> Option<PathBuf> {
    mounts.lines().find_map(|line| {
        let (first, second) = line.split_once(" - ")?;
        let mut words = second.split(' ');
        if words.next()? != kind || !fits(words.nth(1).unwrap_or_default()) {
            return None;
        }
        let mut words = first.split(' ').skip(3);
        let (root, point) = (words.next()?, words.next()?);
        let below = Path::new(path).strip_prefix(root).ok()?;
        Some(Path::new(point).join(below))
    })
}

fn can_write(folder: &Path) -> Result<(), String> {
    let probe = folder.join(format!("{PREFIX}{}-probe", std::process::id()));
    fs::create_dir(&probe).map_err(|error| why("cannot make groups", &error))?;
    let _ = fs::remove_dir(&probe);
    Ok(())
}

fn why(what: &str, error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::PermissionDenied => format!("{what}: not delegated to this user"),
        io::ErrorKind::ReadOnlyFilesystem => format!("{what}: mounted read-only"),
        _ => format!("{what}: {error}"),
    }
}

/// Lets groups below this one count. The kernel wants nobody in between: where others than runners
/// are at home in it, it is left alone.
fn prepare_v2(folder: &Path) -> Result<(), String> {
    let read = |name: &str| fs::read_to_string(folder.join(name)).unwrap_or_default();
    let has_both = |names: &str| {
        let names: Vec<&str> = names.split_whitespace().collect();
        names.contains(&"memory") && names.contains(&"pids")
    };
    if !has_both(&read("cgroup.controllers")) {
        return Err("memory and pids are not delegated".to_owned());
    }
    can_write(folder)?;
    sweep(folder);
    if has_both(&read("cgroup.subtree_control")) {
        return Ok(());
    }
    let own = fs::read_link("/proc/self/exe").ok();
    let members = read("cgroup.procs");
    let is_ours = |pid: &str| fs::read_link(format!("/proc/{pid}/exe")).ok() == own;
    if !members.lines().all(is_ours) {
        return Err("other programs are in the same group".to_owned());
    }
    let home = folder.join(format!("{PREFIX}self"));
    let moved = fs::create_dir(&home)
        .or_else(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => Ok(()),
            _ => Err(error),
        })
        .and_then(|()| {
            let mut pids = members.lines();
            pids.try_for_each(|pid| fs::write(home.join("cgroup.procs"), pid))
        });
    moved
        .and_then(|()| fs::write(folder.join("cgroup.subtree_control"), "+memory +pids"))
        .map_err(|error| why("cannot use the group", &error))
}

/// Removes groups that dead processes left.
fn sweep(folder: &Path) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let pid = name
            .to_str()
            .and_then(|it| it.strip_prefix(PREFIX)?.split('-').next()?.parse().ok());
        if pid.is_some_and(|pid: u32| !Path::new(&format!("/proc/{pid}")).exists()) {
            let _ = fs::remove_dir(entry.path());
        }
    }
}

/// The group of one child, for as long as this lives.
#[derive(Debug)]
pub(super) struct ChildGroup {
    memory: PathBuf,
    pids: PathBuf,
    is_v2: bool,
}

impl ChildGroup {
    /// A group with these limits that nobody is in yet.
    pub(super) fn make(memory_limit: u64, processes: u64) -> Option<Self> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("{PREFIX}{}-{number}", std::process::id());
        let (memory, pids, is_v2) = match GroupMeans::of_this_process() {
            GroupMeans::V2(folder) => (folder.join(&name), folder.join(&name), true),
            GroupMeans::V1 { memory, pids } => (memory.join(&name), pids.join(&name), false),
            GroupMeans::None(_) => return None,
        };
        let group = ChildGroup {
            memory,
            pids,
            is_v2,
        };
        fs::create_dir(&group.memory).ok()?;
        if !is_v2 {
            fs::create_dir(&group.pids).ok()?;
        }
        let name = if is_v2 {
            "memory.max"
        } else {
            "memory.limit_in_bytes"
        };
        // A little more than the limit, so that it is seen to be passed, and told with the name of
        // who did, before the kernel ends anybody.
        let most = memory_limit.saturating_add(memory_limit / 8 + (16 << 20));
        fs::write(group.memory.join(name), most.to_string()).ok()?;
        if is_v2 {
            let _ = fs::write(group.memory.join("memory.oom.group"), "1");
        }
        fs::write(group.pids.join("pids.max"), processes.to_string()).ok()?;
        Some(group)
    }

    /// Puts everything into it that runs below a process; what that starts later is born there.
    /// Not before it is known to last: the kernel may take as long for this as a short child lives.
    pub(super) fn take_in_below(&self, pid: u32) {
        let mut seen = HashSet::new();
        // Once more for whoever was born while the first ones moved.
        for _ in 0..PASSES {
            let pids = runner_exec::pids_below(pid);
            let new: Vec<u32> = pids.into_iter().filter(|it| seen.insert(*it)).collect();
            if new.is_empty() {
                return;
            }
            for pid in new {
                // One that is gone needs no group.
                let _ = fs::write(self.pids.join("cgroup.procs"), pid.to_string());
                if !self.is_v2 {
                    let _ = fs::write(self.memory.join("cgroup.procs"), pid.to_string());
                }
            }
        }
    }

    /// Processes and threads in it.
    pub(super) fn tasks(&self) -> Option<u64> {
        let text = fs::read_to_string(self.pids.join("pids.current")).ok()?;
        text.trim().parse().ok()
    }

    /// Memory that no file on a disk can give back.
    pub(super) fn memory(&self) -> Option<u64> {
        let stat = fs::read_to_string(self.memory.join("memory.stat")).ok()?;
        let number = |name: &str| number_of(&stat, name).unwrap_or(0);
        if self.is_v2 {
            let swap = fs::read_to_string(self.memory.join("memory.swap.current"));
            let swap = swap.ok().and_then(|it| it.trim().parse().ok()).unwrap_or(0);
            return Some(number("anon") + number("shmem") + swap);
        }
        Some(number("total_rss") + number("total_shmem") + number("total_swap"))
    }

    /// Whether the kernel refused it a process.
    pub(super) fn was_refused(&self) -> bool {
        let text = fs::read_to_string(self.pids.join("pids.events")).unwrap_or_default();
        number_of(&text, "max").is_some_and(|count| count > 0)
    }

    /// Whether the kernel ended something in it for its memory.
    pub(super) fn was_killed(&self) -> bool {
        let name = if self.is_v2 {
            "memory.events"
        } else {
            "memory.oom_control"
        };
        let text = fs::read_to_string(self.memory.join(name)).unwrap_or_default();
        number_of(&text, "oom_kill").is_some_and(|count| count > 0)
    }
}

impl Drop for ChildGroup {
    fn drop(&mut self) {
        // One that is not empty is removed by a later process.
        let _ = fs::remove_dir(&self.memory);
        if !self.is_v2 {
            let _ = fs::remove_dir(&self.pids);
        }
    }
}

fn number_of(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| {
        let (word, number) = line.split_once(' ')?;
        (word == name).then(|| number.trim().parse().ok())?
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_groups_are() {
        let mounts = "30 24 0:26 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755\n\
            31 30 0:27 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n\
            32 30 0:28 /a /sys/fs/cgroup/memory rw shared:1 - cgroup cgroup rw,memory\n\
            33 30 0:29 / /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids\n";
        let own = "8:pids:/x\n4:memory:/a/b\n0::/u\n";
        let v1 = GroupMeans::V1 {
            memory: "/sys/fs/cgroup/memory/b".into(),
            pids: "/sys/fs/cgroup/pids/x".into(),
        };
        assert_eq!(find(mounts, own), v1);
        // What is mounted is elsewhere: nothing of ours can be seen.
        let elsewhere = find(mounts, "8:pids:/x\n4:memory:/c\n");
        assert!(matches!(elsewhere, GroupMeans::None(_)));
        let only = "31 30 0:27 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n";
        let v2 = GroupMeans::V2("/sys/fs/cgroup/user.slice/x.scope".into());
        assert_eq!(find(only, "0::/user.slice/x.scope\n"), v2);
        assert!(matches!(find("", "0::/\n"), GroupMeans::None(_)));
    }

    #[test]
    fn numbers_of_the_kernel() {
        let text = "oom_kill_disable 0\nunder_oom 0\noom_kill 3\n";
        assert_eq!(number_of(text, "oom_kill"), Some(3));
        assert_eq!(number_of(text, "oom"), None);
    }
}
