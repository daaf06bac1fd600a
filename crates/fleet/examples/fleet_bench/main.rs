//! `cargo xtask bench fleet`: a fleet against floors taken in the same run.
//!
//! The program starts itself once more in an environment of its own: git and sessions see
//! a home without settings.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

mod fleet;
mod floors;
mod instant;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use runner_exec::Supervisor;
use runner_fleet::local::{LocalWorkspaces, WorkspaceContext};
use runner_testkit::TestRepo;

/// How often each rate is measured; the median counts.
const ROUNDS: usize = 3;
/// How many waits are measured while nothing else goes on.
const WAITS: u32 = 20;

/// Changes one file and says when it began.
const AGENT: &str = "date +%s%N > \"$AGENT_DIR/started-$RUNNER_RUN_ID\"; id=${RUNNER_RUN_ID%-*}
mkdir -p \"$id\"; echo hi > \"$id/file\"; out done did";

fn main() -> ExitCode {
    let mut raw = std::env::args_os().skip(1);
    let first = raw.next().unwrap_or_default();
    if let Some(code) = runner::launcher_main(&first, raw) {
        return code;
    }
    let words: Vec<String> = std::env::args().skip(1).collect();
    match words.first().map(String::as_str) {
        Some("__inside") => {
            inside(&words[1..]);
            ExitCode::SUCCESS
        }
        _ => outside(&words),
    }
}

fn outside(words: &[String]) -> ExitCode {
    let this = std::env::current_exe().unwrap();
    let repo = TestRepo::new(&this);
    repo.agent(AGENT);
    repo.write_config();
    let mut measure = repo.hermetic(&this);
    measure.arg("__inside").arg(repo.agent_dir()).args(words);
    let status = measure.current_dir(repo.path("")).status().unwrap();
    if status.success() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

fn inside(words: &[String]) {
    let agent_dir = PathBuf::from(&words[0]);
    let json = words.iter().any(|word| word == "--json");
    let tasks = words
        .iter()
        .find_map(|word| word.strip_prefix("--tasks="))
        .map_or(60, |count| count.parse().unwrap());
    let project = std::env::current_dir().unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    let mut all = Vec::new();
    for round in 0..ROUNDS {
        all.push(one_round(&runtime, &project, &agent_dir, round, tasks));
    }
    let [plain, floor, git, bare] = [0, 1, 2, 3].map(|at| {
        let mut column: Vec<f64> = all.iter().map(|round| round[at]).collect();
        column.sort_by(f64::total_cmp);
        column[column.len() / 2]
    });
    tell(json, "tasks/s without git", plain, Some(("ledger", floor)));
    tell(json, "tasks/s with git", git, Some(("bare git", bare)));
    let folder = project.with_file_name("idle");
    let (plain, git) = runtime.block_on(waits(&project, &agent_dir, &folder));
    for (name, mut waits) in [("without git", plain), ("with git", git)] {
        waits.sort_by(f64::total_cmp);
        for (word, percent) in [("p50", 50), ("p95", 95)] {
            let value = waits[(waits.len() - 1) * percent / 100];
            let name = format!("todo to started {name}, idle, {word} ms");
            tell(json, &name, value, None);
        }
    }
}

fn tell(json: bool, name: &str, value: f64, floor: Option<(&str, f64)>) {
    if json {
        let floor = floor.map(|(_, floor)| floor);
        println!(
            "{}",
            serde_json::json!({"name": name, "value": value, "floor": floor})
        );
        return;
    }
    let floor = floor.map_or(String::new(), |(what, floor)| {
        format!("  {what} {floor:.1}, {:.2} of it", value / floor)
    });
    println!("{name:<44} {value:>9.1}{floor}");
}

/// All four rates, by turns.
fn one_round(
    runtime: &tokio::runtime::Runtime,
    project: &Path,
    agent_dir: &Path,
    round: usize,
    tasks: u32,
) -> [f64; 4] {
    let folder = |name: &str| {
        let folder = project.with_file_name(format!("{name}-{round}"));
        std::fs::create_dir(&folder).unwrap();
        folder
    };
    let (without, alone, with, bare) = (
        folder("without"),
        folder("ledger"),
        folder("with"),
        folder("bare"),
    );
    let (started, _all) = tokio::sync::mpsc::unbounded_channel();
    let plain = runtime.block_on(async {
        let ledger = fleet::open(&without).await;
        let workspaces = Arc::new(instant::InstantWorkspaces::new(started));
        fleet::rate(&ledger, workspaces, &without, tasks).await
    });
    let floor = runtime.block_on(async {
        let ledger = fleet::open(&alone).await;
        floors::ledger(&ledger, tasks).await
    });
    let copy = project_copy(project, &with);
    let git = runtime.block_on(async {
        let ledger = fleet::open(&with).await;
        fleet::rate(&ledger, workspaces_of(&copy), &with, tasks).await
    });
    let merged = floors::git_in(&copy, &["ls-tree", "--name-only", "main"]);
    assert!(merged.lines().count() > tasks as usize, "{merged}");
    let copy = project_copy(project, &bare);
    let bare = floors::git(&copy, &agent_dir.join("agent.sh"), tasks);
    [plain, floor, git, bare]
}

/// The project anew, so that no round begins with what another one made.
fn project_copy(project: &Path, folder: &Path) -> PathBuf {
    let copy = folder.join("repo");
    let to = copy.display().to_string();
    floors::git_in(project, &["clone", "-q", ".", &to]);
    let config = ".runner/state/config.toml";
    std::fs::create_dir_all(copy.join(".runner/state")).unwrap();
    std::fs::copy(project.join(config), copy.join(config)).unwrap();
    std::fs::write(copy.join(".git/info/exclude"), ".runner/\n").unwrap();
    copy
}

fn workspaces_of(root: &Path) -> Arc<LocalWorkspaces> {
    let workspaces = LocalWorkspaces::open(WorkspaceContext {
        root: root.to_owned(),
        base: None,
        supervisor: Supervisor::this_binary(),
        watcher: None,
    });
    Arc::new(workspaces.unwrap())
}

/// How long single tasks wait in a fleet with nothing else to do, in milliseconds: from
/// the commit of `todo` to the order to work, and to the first deed of a real session.
async fn waits(project: &Path, agent_dir: &Path, folder: &Path) -> (Vec<f64>, Vec<f64>) {
    let (without, with) = (folder.join("without"), folder.join("with"));
    std::fs::create_dir_all(&without).unwrap();
    std::fs::create_dir_all(&with).unwrap();
    let (sender, mut started) = tokio::sync::mpsc::unbounded_channel();
    let ledger = fleet::open(&without).await;
    let workspaces = Arc::new(instant::InstantWorkspaces::new(sender));
    let mut fleet = fleet::begin(&ledger, workspaces, &without);
    let mut plain = Vec::new();
    for number in 0..WAITS {
        quiet().await;
        fleet::create(&ledger, std::iter::once(format!("t{number}"))).await;
        let todo = Instant::now();
        let begun = started.recv().await.unwrap();
        // Negative: it began before the creator heard of its own commit.
        plain.push(begun.saturating_duration_since(todo).as_secs_f64() * 1e3);
        fleet::all_done(&ledger, u64::from(number) + 1).await;
    }
    fleet.end().await;
    let copy = project_copy(project, &with);
    let ledger = fleet::open(&with).await;
    let mut fleet = fleet::begin(&ledger, workspaces_of(&copy), &with);
    let mut real = Vec::new();
    for number in 0..WAITS {
        quiet().await;
        fleet::create(&ledger, std::iter::once(format!("idle{number}"))).await;
        let todo = wall_clock();
        fleet::all_done(&ledger, u64::from(number) + 1).await;
        let started = agent_dir.join(format!("started-idle{number}-1"));
        let nanos = std::fs::read_to_string(started).unwrap();
        let begun = Duration::from_nanos(nanos.trim().parse().unwrap());
        real.push(begun.saturating_sub(todo).as_secs_f64() * 1e3);
    }
    fleet.end().await;
    (plain, real)
}

/// Long enough for everybody to have gone back to waiting.
async fn quiet() {
    tokio::time::sleep(Duration::from_millis(100)).await;
}

/// The session's `date` knows no other clock.
#[allow(clippy::disallowed_methods)]
fn wall_clock() -> Duration {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    now.unwrap()
}
