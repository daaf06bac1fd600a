//! A whole fleet killed with SIGKILL at random moments and started again until everything
//! has come to an end: nothing is lost, nothing is there twice, nothing is left behind.
//!
//! `RUNNER_FLEET_SEED` chooses other moments, `RUNNER_FLEET_TASKS` how many tasks the long
//! test has: `cargo xtask fleet-kill --tasks 40 --seed 7`.
// A seed that nobody is told cannot be repeated.
#![allow(clippy::unwrap_used, clippy::print_stderr)]

#[path = "fleet_kill/cast.rs"]
mod cast;
#[path = "fleet_kill/check.rs"]
mod check;

use std::time::{Duration, Instant};

use runner_testkit::{TestRepo, TestRun, assert_processes_end};

/// How long one life may last that nobody kills.
const LIFE: Duration = Duration::from_secs(600);
/// When a life is killed in which little happens.
const DULL: Duration = Duration::from_secs(20);

fn number(name: &str, default: u64) -> u64 {
    let text = std::env::var(name).ok();
    text.and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// The same seed gives the same moments, counted in what the fleet has told.
struct Chance(u64);

impl Chance {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % limit.max(1)
    }
}

#[test]
fn twelve_tasks_and_four_kills() {
    converges(12, 4);
}

#[test]
#[ignore = "takes minutes; `cargo xtask fleet-kill` runs it"]
fn many_tasks_and_many_kills() {
    let tasks = u32::try_from(number("RUNNER_FLEET_TASKS", 40)).unwrap();
    converges(tasks, tasks / 3);
}

fn converges(tasks: u32, kills: u32) {
    let seed = number("RUNNER_FLEET_SEED", 1);
    eprintln!("seed {seed}: {tasks} tasks, {kills} kills; RUNNER_FLEET_SEED={seed} repeats it");
    let repo = cast::repo(tasks);
    let marker = repo.root().display().to_string();
    let mut chance = Chance(seed);
    let begun = Instant::now();
    let mut faults = Vec::new();
    let mut killed = 0;
    while killed < kills {
        // About ten lines are told of each task, more of those that are lost.
        let lines = chance.below(u64::from(tasks) * 14 / u64::from(kills));
        let moment = Duration::from_millis(chance.below(600));
        let at_once = chance.below(2) == 0;
        let Life::Killed(told) = life(&repo, lines, moment) else {
            break;
        };
        killed += 1;
        eprintln!("  {told} (the next life begins {})", {
            if at_once { "at once" } else { "later" }
        });
        if !at_once {
            assert_processes_end(&marker, Duration::from_secs(10));
        }
        check::never_twice(&repo, &mut faults);
        assert!(faults.is_empty(), "after {killed} kills: {faults:#?}");
    }
    assert!(killed * 2 >= kills, "only {killed} kills before the end");
    let last = to_the_end(&repo);
    eprintln!("  {}", check::story(&repo));
    eprintln!(
        "  {killed} kills, {:.1} s in all, the last life {:.1} s",
        begun.elapsed().as_secs_f64(),
        last.elapsed.as_secs_f64()
    );
    faults.extend(check::faults(&repo, tasks));
    assert!(
        faults.is_empty(),
        "seed {seed}: {faults:#?}\n{}",
        last.describe()
    );
}

enum Life {
    /// What it came to before.
    Killed(String),
    /// It ended by itself.
    Ended,
}

/// One life of the fleet: killed a moment after it has told so many lines.
fn life(repo: &TestRepo, lines: u64, moment: Duration) -> Life {
    let mut running = repo.spawn_runner(&["fleet", "up", "--until-idle", "--json"]);
    let begun = Instant::now();
    let mut due: Option<Instant> = None;
    while running.is_running() {
        cast::user_answers(repo);
        let told = running.stdout_so_far().lines().count() as u64;
        if due.is_none() && (told >= lines || begun.elapsed() > DULL) {
            due = Some(Instant::now() + moment);
        }
        if due.is_some_and(|due| Instant::now() >= due) {
            let words = format!(
                "killed after {:.1} s and {told} of {lines} lines",
                begun.elapsed().as_secs_f64()
            );
            running.kill();
            return Life::Killed(words);
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let ended = running.wait();
    assert!(ended.code == Some(3), "{}", ended.describe());
    Life::Ended
}

/// A life that nobody kills.
fn to_the_end(repo: &TestRepo) -> TestRun {
    let mut running = repo.spawn_runner(&["fleet", "up", "--until-idle", "--json"]);
    let begun = Instant::now();
    while running.is_running() && begun.elapsed() < LIFE {
        cast::user_answers(repo);
        std::thread::sleep(Duration::from_millis(5));
    }
    let ended = running.wait_within(LIFE);
    // 3: not everything is done, as the cast has it; 2: a kill came after the last deed.
    assert!(matches!(ended.code, Some(2 | 3)), "{}", ended.describe());
    ended
}
