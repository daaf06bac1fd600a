//! The process table as /proc shows it, and who descends from whom.

use std::collections::HashMap;
use std::fs;
use std::io;

use crate::os;

/// The kernel's flag for a process that is past its last instruction.
const PF_EXITING: u64 = 4;

/// One process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) pid: i32,
    pub(crate) parent: i32,
    pub(crate) group: i32,
    pub(crate) session: i32,
    /// Dead, waiting to be reaped: not worth a signal.
    pub(crate) zombie: bool,
    /// About to be: its environment is gone, while its children still have to find a new parent.
    pub(crate) exiting: bool,
    /// With the pid, what makes it this process and no later one.
    pub(crate) start_ticks: u64,
}

impl Entry {
    pub(crate) fn key(&self) -> (i32, u64) {
        (self.pid, self.start_ticks)
    }
}

/// All processes that can be seen. Not a snapshot: it changes while it is read.
pub(crate) fn list() -> io::Result<Vec<Entry>> {
    let mut entries = Vec::new();
    for dir in fs::read_dir("/proc")? {
        let Some(pid) = dir
            .ok()
            .and_then(|dir| dir.file_name().to_str()?.parse().ok())
        else {
            continue;
        };
        entries.extend(read(pid));
    }
    Ok(entries)
}

/// One process; none if it is not there any more.
pub(crate) fn read(pid: i32) -> Option<Entry> {
    let stat = fs::read(format!("/proc/{pid}/stat")).ok()?;
    parse_stat(pid, &stat)
}

/// `pid (comm) state ppid pgrp session …`, where comm is anything that the process likes, spaces and
/// parentheses included: what counts comes after the last one.
fn parse_stat(pid: i32, stat: &[u8]) -> Option<Entry> {
    let comm_end = stat.iter().rposition(|byte| *byte == b')')?;
    let rest = std::str::from_utf8(&stat[comm_end + 1..]).ok()?;
    let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
    let zombie = matches!(*fields.first()?, "Z" | "X" | "x");
    let flags: u64 = fields.get(6)?.parse().ok()?;
    Some(Entry {
        pid,
        parent: fields.get(1)?.parse().ok()?,
        group: fields.get(2)?.parse().ok()?,
        session: fields.get(3)?.parse().ok()?,
        zombie,
        exiting: !zombie && flags & PF_EXITING != 0,
        start_ticks: fields.get(19)?.parse().ok()?,
    })
}

/// The children of this process. Empty where the kernel does not list them.
pub(crate) fn own_children() -> Vec<Entry> {
    let pids = children_of(os::own_pid());
    pids.into_iter().filter_map(read).collect()
}

/// The children of a process, by number. Empty where the kernel does not list them.
pub(crate) fn children_of(pid: i32) -> Vec<i32> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task"));
    let lists = tasks
        .into_iter()
        .flatten()
        .flatten()
        .map(|task| fs::read_to_string(task.path().join("children")).unwrap_or_default());
    lists
        .flat_map(|list| {
            let pids = list.split_whitespace().filter_map(|pid| pid.parse().ok());
            pids.collect::<Vec<_>>()
        })
        .collect()
}

/// Whether the kernel lists the children of a process.
pub(crate) fn lists_children() -> bool {
    fs::exists("/proc/thread-self/children").unwrap_or(false)
}

/// Those of `all` that `is_root` picks, and all their descendants.
pub(crate) fn trees(all: &[Entry], is_root: impl Fn(&Entry) -> bool) -> Vec<Entry> {
    let mut children: HashMap<i32, Vec<&Entry>> = HashMap::new();
    for entry in all {
        children.entry(entry.parent).or_default().push(entry);
    }
    let mut found: Vec<Entry> = all.iter().filter(|entry| is_root(entry)).copied().collect();
    let mut next = 0;
    while let Some(entry) = found.get(next) {
        next += 1;
        // Taken out, so that a loop (pids reused while the table was read) cannot go round.
        for child in children.remove(&entry.pid).unwrap_or_default() {
            if !is_root(child) {
                found.push(*child);
            }
        }
    }
    found
}

/// Whether the environment that the process was started with has `name=value`, where `value` is a
/// `:`-separated list that contains `item`. False if it may not be read.
pub(crate) fn environment_lists(pid: i32, name: &str, item: &str) -> bool {
    let Ok(environ) = fs::read(format!("/proc/{pid}/environ")) else {
        return false;
    };
    environ
        .split(|byte| *byte == 0)
        .filter_map(|pair| pair.strip_prefix(name.as_bytes())?.strip_prefix(b"="))
        .any(|list| {
            list.split(|byte| *byte == b':')
                .any(|one| one == item.as_bytes())
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(pid: i32, parent: i32) -> Entry {
        Entry {
            pid,
            parent,
            group: pid,
            session: pid,
            zombie: false,
            exiting: false,
            start_ticks: 0,
        }
    }

    #[test]
    fn stat_with_a_hostile_name() {
        let stat = b"42 (a) Z 1 (b\xff) c) S 7 8 9 0 -1 4194304 1 0 0 0 0 0 0 0 20 0 1 0 12345 1 1";
        let parsed = parse_stat(42, stat).unwrap();
        let expected = Entry {
            pid: 42,
            parent: 7,
            group: 8,
            session: 9,
            zombie: false,
            exiting: false,
            start_ticks: 12345,
        };
        assert_eq!(parsed, expected);
        let stat = b"42 (a) D 7 8 9 0 -1 4194308 1 0 0 0 0 0 0 0 20 0 1 0 12345 1 1";
        assert!(parse_stat(42, stat).unwrap().exiting);
        assert_eq!(parse_stat(42, b"42 (cut"), None);
        assert_eq!(parse_stat(42, b"42 (cut) S 1"), None);
    }

    #[test]
    fn this_process_is_listed() {
        let own = i32::try_from(std::process::id()).unwrap();
        let all = list().unwrap();
        let me = all.iter().find(|entry| entry.pid == own).unwrap();
        assert!(!me.zombie);
        assert!(all.iter().any(|entry| entry.pid == me.parent) || me.parent == 0);
    }

    #[test]
    fn trees_hold_every_descendant_once() {
        let all = [
            entry(1, 0),
            entry(5, 3),
            entry(2, 1),
            entry(3, 2),
            entry(4, 1),
            // A loop, as a table read while pids are reused may show.
            entry(8, 9),
            entry(9, 8),
        ];
        let pids = |root: i32| {
            let mut pids: Vec<i32> = trees(&all, |entry| entry.pid == root)
                .iter()
                .map(|entry| entry.pid)
                .collect();
            pids.sort_unstable();
            pids
        };
        assert_eq!(pids(2), [2, 3, 5]);
        assert_eq!(pids(1), [1, 2, 3, 4, 5]);
        assert_eq!(pids(8), [8, 9]);
        assert_eq!(pids(77), [0_i32; 0]);
    }
}
