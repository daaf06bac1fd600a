//! Ending processes that may be many, may not want to end, and may start others meanwhile.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use rustix::process::{Signal, WaitOptions};

use crate::os;
use crate::proc::{self, Entry};

/// How long SIGKILL is tried before what is left counts as a survivor.
pub(crate) const KILL_LIMIT: Duration = Duration::from_secs(10);

/// Between two rounds of SIGKILL: time for the kernel to take the dead away.
pub(crate) const ROUND: Duration = Duration::from_millis(10);

/// How often to look for newcomers while freezing.
const FREEZE_PASSES: usize = 16;

/// A series of rounds against the same family of processes.
#[derive(Debug, Default)]
pub(crate) struct Sweep {
    /// Every process that got a signal which should end it.
    hit: HashSet<(i32, u64)>,
}

impl Sweep {
    /// How many processes got a signal, `program` not counted.
    pub(crate) fn hit_besides(&self, program: Option<i32>) -> u32 {
        let others = self.hit.iter().filter(|(pid, _)| Some(*pid) != program);
        u32::try_from(others.count()).unwrap_or(u32::MAX)
    }

    /// Whether this very process got one.
    pub(crate) fn has_hit(&self, entry: &Entry) -> bool {
        self.hit.contains(&entry.key())
    }

    /// Asks them to end.
    pub(crate) fn terminate(&mut self, entries: &[Entry]) {
        for entry in entries.iter().filter(|entry| !entry.zombie) {
            self.hit.insert(entry.key());
            send(entry, Signal::TERM);
            // One that is stopped would see the SIGTERM only when it is continued.
            send(entry, Signal::CONT);
        }
    }

    /// One round of SIGKILL against all that `find` finds now.
    pub(crate) fn kill(&mut self, find: impl Fn() -> Vec<Entry>) {
        // Frozen first: what is dead makes room for a fork bomb to go on, what is stopped does not.
        let mut frozen = HashSet::new();
        let mut entries = find();
        for _ in 0..FREEZE_PASSES {
            let mut news = false;
            for entry in entries.iter().filter(|entry| !entry.zombie) {
                if frozen.insert(entry.key()) {
                    send(entry, Signal::STOP);
                    news = true;
                }
            }
            if !news {
                break;
            }
            entries = find();
        }
        let own_session = own_session();
        let mut groups = HashMap::new();
        for entry in entries.iter().filter(|entry| !entry.zombie) {
            self.hit.insert(entry.key());
            send(entry, Signal::KILL);
            groups.insert(entry.group, entry.session);
        }
        // A signal to a group is atomic: a process that forks faster than the table can be read does
        // not slip through. The program began a session of its own, so that every group outside our
        // session below it holds nothing but its descendants.
        for (group, session) in groups {
            if let Some(group) = os::pid(group)
                && own_session.is_some_and(|own| own != session)
            {
                let _ = rustix::process::kill_process_group(group, Signal::KILL);
            }
        }
    }
}

/// The session of this process as the table prints it: 0 where its leader is outside our PID
/// namespace (a container whose first process did not begin a session), for which `getsid` has no
/// answer that rustix would take.
fn own_session() -> Option<i32> {
    proc::read(os::own_pid()).map(|own| own.session)
}

/// That it has already ended is as good; that it may not be signalled shows in the end.
fn send(entry: &Entry, signal: Signal) {
    if let Some(pid) = os::pid(entry.pid) {
        let _ = rustix::process::kill_process(pid, signal);
    }
}

/// All descendants of this process. Empty where there is no /proc.
pub(crate) fn descendants() -> Vec<Entry> {
    let own = os::own_pid();
    let all = proc::list().unwrap_or_default();
    proc::trees(&all, |entry| entry.parent == own)
}

/// How many of them are more than an entry in the table.
pub(crate) fn count_alive(entries: &[Entry]) -> u32 {
    let alive = entries.iter().filter(|entry| !entry.zombie).count();
    u32::try_from(alive).unwrap_or(u32::MAX)
}

/// What a lost supervisor has left: its children are now children of this process, which also has
/// others that are none of our business here.
#[derive(Debug)]
pub(crate) struct Orphans<'a> {
    /// The mark in the environment of everything below that supervisor.
    pub(crate) mark: &'a str,
    /// The program, which leads a session of its own: finds those without an environment.
    pub(crate) program: Option<i32>,
    /// The children that this process had before.
    pub(crate) others: &'a HashSet<(i32, u64)>,
}

impl Orphans<'_> {
    /// Kills and reaps them. Returns how many besides the program, and how many are left.
    pub(crate) fn end(&self) -> (u32, u32) {
        let mut sweep = Sweep::default();
        let give_up_at = Instant::now() + KILL_LIMIT;
        // Twice nothing: those of a process that died while the table was being read come to us
        // only after we have passed.
        let mut times_clean = 0;
        loop {
            self.reap(&sweep);
            let (left, settled) = self.find();
            let clean = left.is_empty() && settled;
            times_clean = if clean { times_clean + 1 } else { 0 };
            if times_clean == 2 || Instant::now() >= give_up_at {
                return (sweep.hit_besides(self.program), count_alive(&left));
            }
            if !left.is_empty() {
                sweep.kill(|| self.find().0);
            }
            std::thread::sleep(ROUND);
        }
    }

    /// Them, and whether all of our children could be judged.
    fn find(&self) -> (Vec<Entry>, bool) {
        let own = os::own_pid();
        let all = proc::list().unwrap_or_default();
        let mut roots = HashSet::new();
        let mut settled = true;
        for child in all.iter().filter(|entry| entry.parent == own) {
            match self.is_ours(child) {
                Some(true) => {
                    roots.insert(child.pid);
                }
                Some(false) => {}
                None => settled = false,
            }
        }
        let found = proc::trees(&all, |entry| roots.contains(&entry.pid));
        (found, settled)
    }

    /// None: it is ending right now, with its environment gone and its children yet to come to us.
    fn is_ours(&self, child: &Entry) -> Option<bool> {
        if Some(child.session) == self.program || self.fled(child) {
            return Some(true);
        }
        if child.zombie {
            return Some(false);
        }
        if proc::environment_lists(child.pid, crate::SESSION_VARIABLE, self.mark) {
            return Some(true);
        }
        // Asked again afterwards: only one that still runs had no mark all along.
        let now = proc::read(child.pid)?;
        (now.key() == child.key() && !now.zombie && !now.exiting).then_some(false)
    }

    /// One that began a session of its own and may have cleared its environment. Everything that
    /// this process starts itself stays in its session; nothing below a supervisor ever does.
    fn fled(&self, child: &Entry) -> bool {
        own_session().is_some_and(|own| own != child.session) && !self.others.contains(&child.key())
    }

    /// One by one: `waitpid(-1)` would take the exit status away from whoever waits for another child.
    fn reap(&self, sweep: &Sweep) {
        let own = os::own_pid();
        for entry in proc::list().unwrap_or_default() {
            let is_ours = || {
                sweep.has_hit(&entry) || Some(entry.session) == self.program || self.fled(&entry)
            };
            if entry.zombie && entry.parent == own && is_ours() {
                let _ = rustix::process::waitpid(os::pid(entry.pid), WaitOptions::NOHANG);
            }
        }
    }
}
