//! What is known of this machine, kept in a file: whoever asks gets what is there at
//! once, and a look that is due happens beside it.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use runner_exec::{Cancel, Ended, Flow, Sink, Spec, Stream, Supervisor};
use runner_ledger::LedgerClock;

use crate::rules::host::{HostSnapshot, SnapshotSource, refresh_due};

/// The file below the fleet's folder.
pub const PROFILE: &str = "context/agent-profile.json";

/// More than neofetch ever says.
const MAX_BYTES: usize = 64 * 1024;
/// How long neofetch may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// Looks at the machine; none: nothing could be seen.
pub type HostProbe = Box<dyn Fn() -> Option<(SnapshotSource, String)> + Send + Sync>;

/// The snapshot of this machine. Cheap to clone.
#[derive(Clone)]
pub struct HostProfile(Arc<HostState>);

struct HostState {
    path: PathBuf,
    clock: Arc<dyn LedgerClock>,
    look: HostProbe,
    kept: Mutex<Option<HostSnapshot>>,
    looking: AtomicBool,
    /// Whether this process has looked: the machine may be another one than the file's.
    looked: AtomicBool,
}

impl HostProfile {
    /// With what the file says so far. Nothing is looked at yet.
    pub fn new(fleet_dir: &Path, clock: Arc<dyn LedgerClock>, look: HostProbe) -> HostProfile {
        let path = fleet_dir.join(PROFILE);
        // A file that cannot be read is as good as none: it is written anew.
        let kept = runner::files::read_regular(&path, 64 * 1024)
            .ok()
            .and_then(|bytes| serde_json::from_slice(&bytes).ok());
        HostProfile(Arc::new(HostState {
            path,
            clock,
            look,
            kept: Mutex::new(kept),
            looking: AtomicBool::new(false),
            looked: AtomicBool::new(false),
        }))
    }

    /// What is known now. Where a look is due, it begins on a thread of its own, and
    /// nobody waits for it.
    pub fn snapshot(&self) -> Option<HostSnapshot> {
        let kept = self.kept();
        let due = refresh_due(kept.as_ref(), None, self.0.clock.now());
        let first = !self.0.looked.load(Ordering::SeqCst);
        if (due || first) && !self.0.looking.swap(true, Ordering::SeqCst) {
            let profile = self.clone();
            let spawned = std::thread::Builder::new()
                .name("host".to_owned())
                .spawn(move || {
                    profile.refresh();
                    profile.0.looking.store(false, Ordering::SeqCst);
                });
            if spawned.is_err() {
                self.0.looking.store(false, Ordering::SeqCst);
            }
        }
        kept
    }

    /// Looks, and keeps what was seen if what is kept is too old or of another machine.
    /// True: something new is kept.
    pub fn refresh(&self) -> bool {
        let seen = (self.0.look)();
        self.0.looked.store(true, Ordering::SeqCst);
        let now = self.0.clock.now();
        let Some(fresh) = seen.and_then(|(source, text)| HostSnapshot::parse(source, &text, now))
        else {
            return false;
        };
        let kept = self.kept();
        if !refresh_due(kept.as_ref(), Some(&fresh.fingerprint), now) {
            return false;
        }
        // A file that cannot be written costs another look at the next start.
        let _ = self.write(&fresh);
        *self.0.kept.lock().unwrap_or_else(PoisonError::into_inner) = Some(fresh);
        true
    }

    fn kept(&self) -> Option<HostSnapshot> {
        let kept = self.0.kept.lock();
        kept.unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn write(&self, fresh: &HostSnapshot) -> std::io::Result<()> {
        if let Some(folder) = self.0.path.parent() {
            runner::files::make_folder(folder)?;
        }
        let mut text = serde_json::to_string_pretty(fresh)?;
        text.push('\n');
        runner::files::write_whole(&self.0.path, text.as_bytes())
    }
}

/// The real look: neofetch if it is on that path, else what `uname -srmo` would say.
pub fn system_look(supervisor: Supervisor, path: Option<OsString>) -> HostProbe {
    Box::new(move || {
        let neofetch = path.as_ref().and_then(|path| run(&supervisor, path));
        neofetch
            .map(|text| (SnapshotSource::Neofetch, text))
            .or_else(|| Some((SnapshotSource::Uname, uname())))
    })
}

/// Asked of the kernel: what the program would print, without the program.
fn uname() -> String {
    let name = rustix::system::uname();
    let words = [name.sysname(), name.release(), name.machine()];
    let words: Vec<_> = words.iter().map(|word| word.to_string_lossy()).collect();
    format!("{} GNU/Linux", words.join(" "))
}

struct HostText(Vec<u8>);

impl Sink for HostText {
    fn output(&mut self, stream: Stream, bytes: &[u8]) -> Flow {
        if stream == Stream::Stdout {
            self.0.extend_from_slice(bytes);
        }
        if self.0.len() > MAX_BYTES {
            return Flow::Stop;
        }
        Flow::Go
    }
}

fn run(supervisor: &Supervisor, path: &OsString) -> Option<String> {
    let there = std::env::split_paths(path).any(|dir| dir.join("neofetch").is_file());
    if !there {
        return None;
    }
    let keep = |name: &str| std::env::var_os(name).map(|value| (name.into(), value));
    let spec = Spec {
        argv: vec!["neofetch".into(), "--stdout".into()],
        cwd: PathBuf::from("/"),
        env: [
            Some(("PATH".into(), path.clone())),
            Some(("LC_ALL".into(), "C".into())),
            keep("HOME"),
            keep("SHELL"),
        ]
        .into_iter()
        .flatten()
        .collect(),
        stdin: None,
        merge_stderr: false,
        deadline: Some(Instant::now() + PATIENCE),
        idle_timeout: None,
        grace: Duration::from_secs(1),
        monitor: false,
        hold_lock: None,
        task_limit: None,
        cannot_start: None,
    };
    let mut text = HostText(Vec::new());
    let report = supervisor
        .run(&spec, &Cancel::new().ok()?, &mut text)
        .ok()?;
    (report.ended == Ended::Exited(0)).then(|| String::from_utf8_lossy(&text.0).into_owned())
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU32;

    use runner_lifecycle::Timestamp;

    use super::*;

    struct At(Mutex<i64>);

    impl LedgerClock for At {
        fn now(&self) -> Timestamp {
            Timestamp(*self.0.lock().unwrap())
        }

        fn sleep_until(
            &self,
            _: Timestamp,
        ) -> std::pin::Pin<Box<dyn Future<Output = ()> + Send + '_>> {
            Box::pin(std::future::ready(()))
        }
    }

    fn fixed(text: &'static str, looks: &Arc<AtomicU32>) -> HostProbe {
        let looks = Arc::clone(looks);
        Box::new(move || {
            looks.fetch_add(1, Ordering::SeqCst);
            Some((SnapshotSource::Uname, text.to_owned()))
        })
    }

    #[test]
    fn the_file_is_used_until_it_is_old_or_of_another_machine() {
        let temp = tempfile::tempdir().unwrap();
        let clock = Arc::new(At(Mutex::new(1000)));
        let looks = Arc::new(AtomicU32::new(0));
        let profile = |text| HostProfile::new(temp.path(), clock.clone(), fixed(text, &looks));
        let first = profile("Linux 6.1 x86_64 GNU/Linux");
        assert_eq!(first.kept(), None);
        assert!(first.refresh());
        let kept = first.kept().unwrap();
        assert_eq!(kept.lines[1], "Kernel: Linux 6.1");
        assert_eq!(kept.taken_at, Timestamp(1000));

        *clock.0.lock().unwrap() = 2000;
        let second = profile("Linux 6.1 x86_64 GNU/Linux");
        assert_eq!(second.kept(), Some(kept.clone()));
        assert!(!second.refresh(), "nothing is different");
        let other = profile("Linux 6.2 x86_64 GNU/Linux");
        assert!(other.refresh());
        assert_eq!(other.kept().unwrap().lines[1], "Kernel: Linux 6.2");
        *clock.0.lock().unwrap() += 24 * 3600 * 1000;
        let old = profile("Linux 6.2 x86_64 GNU/Linux");
        assert!(old.refresh(), "a day is over");
        assert_eq!(looks.load(Ordering::SeqCst), 4);
    }

    #[test]
    fn nobody_waits_for_a_look() {
        let temp = tempfile::tempdir().unwrap();
        let (go, wait) = std::sync::mpsc::channel::<()>();
        let wait = Mutex::new(wait);
        let look: HostProbe = Box::new(move || {
            let _ = wait.lock().unwrap().recv();
            Some((
                SnapshotSource::Uname,
                "Linux 6.1 x86_64 GNU/Linux".to_owned(),
            ))
        });
        let profile = HostProfile::new(temp.path(), Arc::new(At(Mutex::new(1))), look);
        // The look hangs, and both are answered.
        assert_eq!(profile.snapshot(), None);
        assert_eq!(profile.snapshot(), None);
        go.send(()).unwrap();
        let until = Instant::now() + Duration::from_secs(20);
        while profile.snapshot().is_none() {
            assert!(Instant::now() < until, "the look never came to anything");
            std::thread::yield_now();
        }
        let file = temp.path().join(PROFILE);
        let text = std::fs::read_to_string(&file).unwrap();
        assert!(text.contains("\"source\": \"uname\""), "{text}");
    }

    #[test]
    fn a_broken_file_is_written_anew() {
        let temp = tempfile::tempdir().unwrap();
        let file = temp.path().join(PROFILE);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(&file, "{").unwrap();
        let look = system_look(Supervisor { argv: Vec::new() }, None);
        let profile = HostProfile::new(temp.path(), Arc::new(At(Mutex::new(1))), look);
        assert!(profile.refresh());
        let kept = profile.kept().unwrap();
        assert!(kept.lines[0].ends_with("GNU/Linux"), "{kept:?}");
        let text = std::fs::read(&file).unwrap();
        assert_eq!(serde_json::from_slice::<HostSnapshot>(&text).unwrap(), kept);
    }
}
