//! Seeds by the hundred, scenarios one by one, and rules left out on purpose.

mod mutations;
mod outside;
mod repairs;
mod rest;
mod scenarios;

use super::*;

fn from_environment(name: &str, default: u64) -> u64 {
    let text = std::env::var(name).ok();
    text.map_or(default, |text| text.parse().unwrap())
}

/// What many seeds came to.
#[derive(Default)]
struct Sums {
    points: u64,
    crashes: u64,
    statements: u64,
    bad: Vec<SimReport>,
}

impl Sums {
    fn add(&mut self, report: SimReport) {
        self.points += report.points;
        self.crashes += u64::from(report.crashes);
        self.statements += report.statements;
        if !report.is_clean() {
            self.bad.push(report);
        }
    }
}

/// `RUNNER_SEEDS` says how many, `RUNNER_FIRST_SEED` from where.
#[test]
#[allow(clippy::print_stderr)] // how many seeds there were is what one wants to know
fn seeds_converge() {
    let count = from_environment("RUNNER_SEEDS", 100);
    let first = from_environment("RUNNER_FIRST_SEED", 1);
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let next = std::sync::atomic::AtomicU64::new(first);
    let sums = Mutex::new(Sums::default());
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
                    if seed >= first + count {
                        return;
                    }
                    let report = simulate(seed, &SimOptions::default());
                    sums.lock().unwrap().add(report);
                }
            });
        }
    });
    let mut sums = sums.into_inner().unwrap();
    eprintln!(
        "{count} seeds from {first}: {} points, {} crashes, {} statements, {} bad",
        sums.points,
        sums.crashes,
        sums.statements,
        sums.bad.len()
    );
    sums.bad.sort_by_key(|report| report.seed);
    for report in sums.bad.iter().take(5) {
        eprintln!(
            "RUNNER_SEED={} shows: {:#?} {:#?}",
            report.seed, report.faults, report.tasks
        );
    }
    assert!(sums.bad.is_empty(), "{} of {count} seeds", sums.bad.len());
}

#[test]
fn the_same_seed_gives_the_same_trace() {
    for seed in 1..=5 {
        let (one, other) = (
            simulate(seed, &SimOptions::default()),
            simulate(seed, &SimOptions::default()),
        );
        assert_eq!((one.trace, one.points), (other.trace, other.points));
        assert_eq!(one.history, other.history);
    }
    let traces = [1, 2].map(|seed| simulate(seed, &SimOptions::default()).trace);
    assert_ne!(traces[0], traces[1]);
}

#[test]
#[ignore = "to look at one seed: RUNNER_SEED=n"]
#[allow(clippy::print_stderr)]
fn one_seed() {
    let seed = std::env::var("RUNNER_SEED").unwrap().parse().unwrap();
    let options = SimOptions {
        log: true,
        ..SimOptions::default()
    };
    let report = simulate(seed, &options);
    for line in &report.log {
        eprintln!("{line}");
    }
    eprintln!("{:#?} {:#?}", report.faults, report.tasks);
}
