//! `bench ui`: how soon a change is told, how fast a tree is sent, and what
//! listeners cost.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};

use super::project::{self, BenchProject, FILES};
use super::tree;
use super::ui_client::UiClient;
use super::ui_report::{UiLatency, UiMemory, UiReport, UiTransfer};
use crate::args::XtaskArgs;
use crate::cmd::{release_bin, target_dir};
use crate::failure::{FailureContext as _, TaskFailure, TaskResult};
use crate::{out, setup};

const NODES: usize = 10_000;
const CLIENTS: usize = 500;
const DEFAULT_RUNS: usize = 60;
const MIN_RUNS: usize = 20;
/// How long each sort of answer is asked for.
const TRANSFER: Duration = Duration::from_secs(3);
/// How many ask at once.
const ASKING: usize = 4;
/// How long the server gathers changes, on purpose.
const DEBOUNCE: Duration = Duration::from_millis(100);
/// Between two changes: long enough to be told one by one.
const PAUSE: Duration = Duration::from_millis(250);

pub(super) fn run(mut args: XtaskArgs) -> TaskResult<()> {
    let runs = args.value("--runs")?.unwrap_or(DEFAULT_RUNS);
    let json = args.flag("--json");
    args.finish()?;
    if runs < MIN_RUNS {
        return Err(TaskFailure::usage(format!("--runs is at least {MIN_RUNS}")));
    }
    out::step("setup", setup::ensure)?;
    project::build()?;
    let temp = tempfile::Builder::new()
        .prefix("bench-")
        .tempdir_in(target_dir())
        .context("a temporary folder")?;
    let large = tree::generate(NODES)?;
    let project = BenchProject::start(temp.path(), &large, FILES)?;
    let server = UiServer::start(&project)?;
    let mut report = UiReport {
        runs,
        nodes: NODES,
        ..UiReport::default()
    };
    out::step("what listeners cost", || {
        report.memory = memory(&server, &project.dir)?;
        Ok(())
    })?;
    out::step("how soon a change is told", || {
        let small = tree::generate(10)?;
        report.floor = told_by_the_kernel(&project.dir, &small, runs)?;
        report.small = told(&server, &project.dir, &small, runs)?;
        report.large = told(&server, &project.dir, &large, runs)?;
        Ok(())
    })?;
    out::step("how fast a tree is sent", || {
        report.transfers = transfers(&server.host, &large)?;
        Ok(())
    })?;
    out::data(&if json { report.json()? } else { report.table() });
    Ok(())
}

/// A `runner ui`, ended when this is dropped.
struct UiServer {
    child: Child,
    host: String,
}

impl UiServer {
    fn start(project: &BenchProject) -> TaskResult<Self> {
        use std::io::{BufRead as _, BufReader};
        let command = project.command(release_bin("runner"));
        let mut child = command.words("ui --port 0 --quiet").spawn(Stdio::piped())?;
        let stdout = child
            .stdout
            .take()
            .ok_or_else(|| TaskFailure::new("no stdout"))?;
        let mut line = String::new();
        BufReader::new(stdout)
            .read_line(&mut line)
            .context("the address")?;
        let host = line.trim().trim_start_matches("http://");
        let host = host.trim_end_matches('/').to_owned();
        Ok(UiServer { child, host })
    }

    /// Resident memory in KiB.
    fn resident_kib(&self) -> TaskResult<u64> {
        let path = format!("/proc/{}/status", self.child.id());
        let text = fs::read_to_string(&path).context(&path)?;
        let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        line.and_then(|line| line.split_whitespace().next()?.parse().ok())
            .ok_or_else(|| TaskFailure::new("/proc tells no VmRSS"))
    }
}

impl Drop for UiServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Puts a tree into its place as the runner does; when it was there.
fn put_tree(dir: &Path, bytes: &[u8]) -> TaskResult<Instant> {
    let state = dir.join(".runner/state");
    let temp = state.join(".tree.json.runner-tmp");
    fs::write(&temp, bytes).context(temp.display())?;
    let begun = Instant::now();
    fs::rename(&temp, state.join("tree.json")).context(temp.display())?;
    Ok(begun)
}

/// From the rename to the event in a client, less the gathering on purpose.
fn told(server: &UiServer, dir: &Path, bytes: &[u8], runs: usize) -> TaskResult<UiLatency> {
    let mut listener = UiClient::connect(&server.host)?.listen()?;
    let mut samples = Vec::new();
    // One that does not count.
    for run in 0..=runs {
        std::thread::sleep(PAUSE);
        listener.drain()?;
        let begun = put_tree(dir, bytes)?;
        let told = listener.wait_for("tree_changed")?;
        if run > 0 {
            samples.push((told - begun).saturating_sub(DEBOUNCE));
        }
    }
    Ok(UiLatency::of(samples))
}

/// From the rename to the kernel's own report, in this process.
fn told_by_the_kernel(dir: &Path, bytes: &[u8], runs: usize) -> TaskResult<UiLatency> {
    let inotify = Inotify::init(InitFlags::IN_CLOEXEC).context("inotify")?;
    let state = dir.join(".runner/state");
    inotify
        .add_watch(&state, AddWatchFlags::IN_MOVED_TO)
        .context(state.display())?;
    let mut samples = Vec::new();
    for run in 0..=runs {
        let begun = put_tree(dir, bytes)?;
        inotify.read_events().context("inotify")?;
        if run > 0 {
            samples.push(begun.elapsed());
        }
    }
    Ok(UiLatency::of(samples))
}

/// The server alone, with listeners, and with listeners that were told something.
fn memory(server: &UiServer, dir: &Path) -> TaskResult<UiMemory> {
    // It has read the tree, as it has in every real use.
    UiClient::connect(&server.host)?.get("/api/tree", "Accept-Encoding: gzip\r\n")?;
    let alone_kib = server.resident_kib()?;
    let mut listeners = Vec::new();
    for _ in 0..CLIENTS {
        listeners.push(UiClient::connect(&server.host)?.listen()?);
    }
    let with_kib = server.resident_kib()?;
    let small = tree::generate(10)?;
    let mut last = Vec::new();
    for _ in 0..20 {
        std::thread::sleep(PAUSE);
        let begun = put_tree(dir, &small)?;
        let mut latest = Duration::ZERO;
        for listener in &mut listeners {
            let told = listener.wait_for("tree_changed")?;
            latest = latest.max((told - begun).saturating_sub(DEBOUNCE));
        }
        last.push(latest);
    }
    Ok(UiMemory {
        clients: CLIENTS,
        alone_kib,
        with_kib,
        told_kib: server.resident_kib()?,
        all_told: UiLatency::of(last),
    })
}

/// The tree as it is, compressed, and not at all because it is known; and the same
/// bytes from a thread that does nothing but send them.
fn transfers(host: &str, large: &[u8]) -> TaskResult<Vec<UiTransfer>> {
    // The times of the file must be old enough for it to be trusted.
    std::thread::sleep(Duration::from_secs(3));
    let gzip = "Accept-Encoding: gzip\r\n";
    let plain = UiClient::connect(host)?.get("/api/tree", "")?;
    if plain.bytes != large.len() {
        return Err(TaskFailure::new(format!(
            "/api/tree has {} bytes",
            plain.bytes
        )));
    }
    let zipped = UiClient::connect(host)?.get("/api/tree", gzip)?;
    let known = format!("If-None-Match: {}\r\n", plain.etag);
    let mut transfers = Vec::new();
    for (name, headers, bytes) in [
        ("as it is", "", plain.bytes),
        ("gzip", gzip, zipped.bytes),
        ("not changed", known.as_str(), 0),
    ] {
        let floor = UiFloor::start(bytes)?;
        transfers.push(UiTransfer {
            name,
            bytes,
            per_second: asked_for(host, headers)?,
            floor_per_second: asked_for(&floor.host, headers)?,
        });
    }
    Ok(transfers)
}

/// Answers a second.
fn asked_for(host: &str, headers: &str) -> TaskResult<f64> {
    let answers = AtomicU64::new(0);
    let begun = Instant::now();
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..ASKING)
            .map(|_| {
                scope.spawn(|| -> TaskResult<()> {
                    let mut client = UiClient::connect(host)?;
                    while begun.elapsed() < TRANSFER {
                        client.get("/api/tree", headers)?;
                        answers.fetch_add(1, Ordering::Relaxed);
                    }
                    Ok(())
                })
            })
            .collect();
        for thread in threads {
            thread
                .join()
                .map_err(|_| TaskFailure::new("a client failed"))??;
        }
        Ok::<(), TaskFailure>(())
    })?;
    #[allow(clippy::cast_precision_loss)] // Far below 2^52.
    let answers = answers.load(Ordering::Relaxed) as f64;
    Ok(answers / begun.elapsed().as_secs_f64())
}

/// Sends the same bytes to whoever asks, and knows nothing of HTTP but the frame.
struct UiFloor {
    host: String,
    ended: &'static AtomicBool,
}

impl UiFloor {
    fn start(bytes: usize) -> TaskResult<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").context("a port")?;
        let host = listener.local_addr().context("a port")?.to_string();
        let ended: &'static AtomicBool = Box::leak(Box::default());
        let mut answer = format!("HTTP/1.1 200 OK\r\ncontent-length: {bytes}\r\n\r\n").into_bytes();
        answer.resize(answer.len() + bytes, b'x');
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if ended.load(Ordering::Relaxed) {
                    return;
                }
                let answer = answer.clone();
                std::thread::spawn(move || send_for_ever(stream, &answer));
            }
        });
        Ok(UiFloor { host, ended })
    }
}

impl Drop for UiFloor {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        // Wakes the thread, which then sees that it is over.
        let _ = TcpStream::connect(&self.host);
    }
}

fn send_for_ever(mut stream: TcpStream, answer: &[u8]) {
    let _ = stream.set_nodelay(true);
    let mut request = [0; 4096];
    // A request fits into one read here: both sides are ours.
    while stream.read(&mut request).is_ok_and(|read| read > 0) {
        if stream.write_all(answer).is_err() {
            return;
        }
    }
}
