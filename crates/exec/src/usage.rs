//! What everything below one process uses: processes, threads and memory, by the kernel's tables.
//!
//! The usual question costs one small file for each process. Memory that several of them share
//! counts for each there, so that the answer is never too low; who gets a figure that is too high
//! asks for the exact one, which takes longer.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::os::unix::fs::MetadataExt as _;

use crate::proc;

/// The kernel counts blocks in these, whatever the file system does.
const BLOCK: u64 = 512;

/// One process among others.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UsingProcess {
    /// Its process id.
    pub pid: u32,
    /// Its name, as it likes to be called: any bytes, cut by the kernel.
    pub name: Vec<u8>,
    /// How much memory.
    pub memory: u64,
}

/// What some processes use together.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ProcessUsage {
    /// Processes and their threads, those included that nobody has reaped yet.
    pub tasks: u64,
    /// Bytes that no file on a disk can give back: private, shared and swapped ones.
    pub memory: u64,
    /// The process with the most memory.
    pub biggest: Option<UsingProcess>,
    /// The name that most of them have, and how many do.
    pub most_common: Option<(Vec<u8>, u64)>,
}

/// What is held open and shows in no folder, or is memory though it looks like a file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HeldFiles {
    /// Bytes of shared memory: of files without a folder and of files in `/dev/shm`.
    pub shared_memory: u64,
    /// Bytes of files that were deleted, by device.
    pub deleted: HashMap<u64, u64>,
}

/// How many tasks (processes and threads) the user of this process has, as far as that can be seen.
pub fn tasks_of_user() -> u64 {
    let user = rustix::process::geteuid().as_raw();
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let tasks = entries.filter_map(|entry| {
        // A folder has a link from each folder in it, from itself and from above: one look tells
        // both whose the threads are and how many.
        let is_process = entry.file_name().as_encoded_bytes()[0].is_ascii_digit();
        let meta = is_process.then(|| entry.path().join("task").metadata());
        let meta = meta?.ok().filter(|meta| meta.uid() == user)?;
        Some(meta.nlink().saturating_sub(2).max(1))
    });
    tasks.sum()
}

/// What all descendants of a process use, without itself. Counting ends soon after `enough` tasks:
/// who asks has its answer then, and a fork bomb costs no more.
pub fn usage_below(pid: u32, enough: u64) -> ProcessUsage {
    let mut usage = ProcessUsage::default();
    let mut names: HashMap<Vec<u8>, u64> = HashMap::new();
    each_below(pid, |pid| {
        let Some(status) = fs::read(format!("/proc/{pid}/status"))
            .ok()
            .and_then(|text| parse_status(pid, &text))
        else {
            return true;
        };
        usage.tasks += status.tasks;
        usage.memory += status.process.memory;
        *names.entry(status.process.name.clone()).or_default() += status.tasks;
        note_biggest(&mut usage.biggest, status.process);
        usage.tasks <= enough
    });
    usage.most_common = names.into_iter().max_by_key(|(_, count)| *count);
    usage
}

/// How much memory the descendants of a process use, what they share counted once, and which of
/// them uses the most. Slow: the kernel looks at every page.
pub fn exact_memory_below(pid: u32) -> (u64, Option<UsingProcess>) {
    let (mut memory, mut biggest) = (0, None);
    each_below(pid, |pid| {
        let Some(text) = fs::read(format!("/proc/{pid}/status")).ok() else {
            return true;
        };
        let Some(mut process) = parse_status(pid, &text).map(|it| it.process) else {
            return true;
        };
        // Of one that may not be looked at, the figure that is known.
        if let Ok(rollup) = fs::read(format!("/proc/{pid}/smaps_rollup")) {
            process.memory = sum_of(&rollup, &["Pss_Anon:", "Pss_Shmem:", "SwapPss:"]);
        }
        memory += process.memory;
        note_biggest(&mut biggest, process);
        true
    });
    (memory, biggest)
}

/// What the descendants of a process hold open that shows in no folder. Slow, too.
pub fn held_below(pid: u32) -> HeldFiles {
    let mut held = HeldFiles::default();
    let mut seen = HashSet::new();
    let mut private = HashMap::new();
    let own_shm = fs::metadata("/dev/shm").map(|meta| meta.dev()).ok();
    each_below(pid, |pid| {
        let fds = fs::read_dir(format!("/proc/{pid}/fd"));
        for fd in fds.into_iter().flatten().flatten() {
            let Ok(target) = fs::read_link(fd.path()) else {
                continue;
            };
            let target = target.as_os_str().as_encoded_bytes();
            let is_memory = target.starts_with(b"/memfd:") || target.starts_with(b"/dev/shm/");
            let is_deleted = target.ends_with(b" (deleted)");
            if !is_memory && !is_deleted {
                continue;
            }
            let Ok(meta) = fs::metadata(fd.path()) else {
                continue;
            };
            if !meta.is_file() || !seen.insert((meta.dev(), meta.ino())) {
                continue;
            }
            if is_memory {
                // What lies in a private one is counted with it.
                if target.starts_with(b"/memfd:") || Some(meta.dev()) == own_shm {
                    held.shared_memory += meta.blocks() * BLOCK;
                }
            } else {
                *held.deleted.entry(meta.dev()).or_default() += meta.blocks() * BLOCK;
            }
        }
        // A sandbox's own: all of it is theirs, open or not.
        let folder = format!("/proc/{pid}/root/dev/shm");
        if let (Ok(meta), Ok(space)) = (fs::metadata(&folder), rustix::fs::statvfs(&folder))
            && own_shm != Some(meta.dev())
            && fs::metadata(format!("/proc/{pid}/root/dev"))
                .is_ok_and(|above| above.dev() != meta.dev())
        {
            let used = (space.f_blocks - space.f_bfree) * space.f_frsize;
            private.insert(meta.dev(), used);
        }
        true
    });
    held.shared_memory += private.values().sum::<u64>();
    held
}

/// The process ids of all descendants of a process.
pub fn pids_below(pid: u32) -> Vec<u32> {
    let mut pids = Vec::new();
    each_below(pid, |pid| {
        pids.extend(u32::try_from(pid));
        true
    });
    pids
}

/// Calls for every descendant that can be found, until the answer is false.
fn each_below(root: u32, mut call: impl FnMut(i32) -> bool) {
    let Ok(root) = i32::try_from(root) else {
        return;
    };
    if !proc::lists_children() {
        let all = proc::list().unwrap_or_default();
        for entry in proc::trees(&all, |entry| entry.parent == root) {
            if !call(entry.pid) {
                return;
            }
        }
        return;
    }
    // A child's number may be given again while we look: nobody is counted twice.
    let mut seen = HashSet::new();
    let mut left = proc::children_of(root);
    while let Some(pid) = left.pop() {
        if !seen.insert(pid) {
            continue;
        }
        if !call(pid) {
            return;
        }
        left.extend(proc::children_of(pid));
    }
}

fn note_biggest(biggest: &mut Option<UsingProcess>, process: UsingProcess) {
    if biggest.as_ref().is_none_or(|it| it.memory < process.memory) {
        *biggest = Some(process);
    }
}

struct TaskStatus {
    tasks: u64,
    process: UsingProcess,
}

fn parse_status(pid: i32, text: &[u8]) -> Option<TaskStatus> {
    let name = text.strip_prefix(b"Name:\t")?;
    let name = name.split(|byte| *byte == b'\n').next()?.to_vec();
    Some(TaskStatus {
        // A thread ends up in the table of its process alone.
        tasks: number_after(text, "Threads:").unwrap_or(1).max(1),
        process: UsingProcess {
            pid: u32::try_from(pid).ok()?,
            name,
            memory: sum_of(text, &["RssAnon:", "RssShmem:", "VmSwap:"]),
        },
    })
}

/// What stands behind these words, in bytes.
fn sum_of(text: &[u8], words: &[&str]) -> u64 {
    let kib = words.iter().filter_map(|word| number_after(text, word));
    kib.sum::<u64>() * 1024
}

fn number_after(text: &[u8], word: &str) -> Option<u64> {
    let mut lines = text.split(|byte| *byte == b'\n');
    let rest = lines.find_map(|line| line.strip_prefix(word.as_bytes()))?;
    let rest = std::str::from_utf8(rest).ok()?;
    rest.split_ascii_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_with_a_hostile_name() {
        let text =
            b"Name:\tThreads: 7 \\n\nState:\tS\nVmSwap:\t       4 kB\nRssAnon:\t     100 kB\n\
            RssFile:\t    9000 kB\nRssShmem:\t      20 kB\nThreads:\t3\n";
        let status = parse_status(9, text).unwrap();
        assert_eq!(status.tasks, 3);
        assert_eq!(status.process.memory, 124 * 1024);
        assert_eq!(status.process.name, b"Threads: 7 \\n");
        // One that nobody has reaped has no memory any more.
        let zombie = parse_status(9, b"Name:\tx\nState:\tZ (zombie)\nThreads:\t1\n").unwrap();
        assert_eq!((zombie.tasks, zombie.process.memory), (1, 0));
        assert!(parse_status(9, b"").is_none());
    }

    #[test]
    fn files_without_a_name_are_memory_and_deleted_ones_disk() {
        use std::io::Write as _;
        use std::process::Stdio;

        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&vec![1; 1 << 20]).unwrap();
        file.sync_all().unwrap();
        let dev = file.metadata().unwrap().dev();
        #[allow(clippy::disallowed_methods)]
        let mut child = std::process::Command::new("cat")
            .stdin(Stdio::piped())
            .stdout(file)
            .spawn()
            .unwrap();
        let own = std::process::id();
        let held = held_below(own);
        let usage = usage_below(own, 1000);
        drop(child.stdin.take());
        child.wait().unwrap();
        assert!(
            held.deleted
                .get(&dev)
                .is_some_and(|bytes| *bytes >= 1 << 20)
        );
        assert!(usage.tasks >= 1, "{usage:?}");
    }

    #[test]
    fn the_tasks_of_this_user_count_threads() {
        let before = tasks_of_user();
        assert!(before >= 1);
        let (hold, held) = std::sync::mpsc::channel::<()>();
        let held = std::sync::Arc::new(std::sync::Mutex::new(held));
        let threads: Vec<_> = (0..50)
            .map(|_| {
                let held = std::sync::Arc::clone(&held);
                std::thread::spawn(move || drop(held.lock().map(|held| held.recv())))
            })
            .collect();
        // Others come and go meanwhile.
        assert!(tasks_of_user() >= before.saturating_sub(25) + 25);
        drop(hold);
        for thread in threads {
            thread.join().unwrap();
        }
    }
}
