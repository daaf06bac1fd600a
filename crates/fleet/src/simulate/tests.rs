//! Seeds by the hundred, scenarios one by one, and rules left out on purpose.

use super::*;

fn seeds() -> u64 {
    std::env::var("RUNNER_SEEDS")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(300)
}

#[test]
#[allow(clippy::print_stderr)]
fn seeds_converge() {
    let count = seeds();
    let first: u64 = std::env::var("RUNNER_FIRST_SEED")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(1);
    let threads = std::thread::available_parallelism().map_or(1, |n| n.get() as u64);
    let handles: Vec<_> = (0..threads)
        .map(|at| {
            std::thread::spawn(move || {
                let mut bad = Vec::new();
                let (mut points, mut crashes, mut statements) = (0, 0, 0);
                let mut seed = first + at;
                while seed < first + count {
                    let report = simulate(seed, &Options::default());
                    points += report.points;
                    crashes += u64::from(report.crashes);
                    statements += report.statements;
                    if !report.is_clean() {
                        bad.push(report);
                    }
                    seed += threads;
                }
                (bad, points, crashes, statements)
            })
        })
        .collect();
    let mut bad = Vec::new();
    let mut sums = [0; 3];
    for handle in handles {
        let (found, points, crashes, statements) = handle.join().unwrap();
        bad.extend(found);
        sums[0] += points;
        sums[1] += crashes;
        sums[2] += statements;
    }
    eprintln!(
        "{count} seeds, {} points, {} crashes, {} statements, {} bad",
        sums[0],
        sums[1],
        sums[2],
        bad.len()
    );
    bad.sort_by_key(|report| report.seed);
    for report in bad.iter().take(8) {
        eprintln!(
            "seed {}: {:#?} {:#?}",
            report.seed, report.faults, report.tasks
        );
    }
    assert!(bad.is_empty(), "{} of {count} seeds", bad.len());
}

#[test]
#[ignore = "to look at one seed: RUNNER_SEED=n"]
#[allow(clippy::print_stderr)]
fn one_seed() {
    let seed = std::env::var("RUNNER_SEED").unwrap().parse().unwrap();
    let options = Options {
        log: true,
        ..Options::default()
    };
    let report = simulate(seed, &options);
    for line in &report.log {
        eprintln!("{line}");
    }
    eprintln!("{:#?} {:#?}", report.faults, report.tasks);
}
