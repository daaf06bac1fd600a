//! One measured process, and the medians of many.
//!
//! The kernel tells the peak memory of children only as the largest of all that
//! one process has had. So each measurement starts this program anew, which then
//! has exactly one child. Its own few pages are the least it can report.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike as _;
use serde::{Deserialize, Serialize};

use crate::cmd::{ToolCommand, release_bin};
use crate::failure::{FailureContext as _, TaskFailure, TaskResult};

/// What one process cost, its descendants' CPU time included.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
pub(super) struct BenchSample {
    wall_us: u64,
    /// User and system time.
    cpu_us: u64,
    /// Of the one process that needed most at a time.
    peak_kib: u64,
}

impl BenchSample {
    pub(super) fn wall_ms(&self) -> f64 {
        as_f64(self.wall_us) / 1e3
    }

    /// The same less so much CPU time, which was somebody else's.
    pub(super) fn without_cpu(mut self, cpu_us: u64) -> Self {
        self.cpu_us = self.cpu_us.saturating_sub(cpu_us);
        self
    }
}

/// Medians over the samples of one thing.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct BenchMedians {
    pub(super) wall_ms: f64,
    pub(super) cpu_ms: f64,
    pub(super) peak_mb: f64,
}

/// The samples of one thing.
#[derive(Clone, Debug, Default)]
pub(super) struct BenchSamples(Vec<BenchSample>);

impl BenchSamples {
    pub(super) fn push(&mut self, sample: BenchSample) {
        self.0.push(sample);
    }

    pub(super) fn medians(&self) -> BenchMedians {
        let of = |value: fn(&BenchSample) -> u64| {
            let values: Vec<f64> = self.0.iter().map(|it| as_f64(value(it))).collect();
            median(&values)
        };
        BenchMedians {
            wall_ms: of(|sample| sample.wall_us) / 1e3,
            cpu_ms: of(|sample| sample.cpu_us) / 1e3,
            peak_mb: of(|sample| sample.peak_kib) * 1024.0 / 1e6,
        }
    }
}

/// A command to measure: arguments, folder and environment.
#[derive(Clone, Debug)]
pub(super) struct BenchProbe {
    pub(super) argv: Vec<OsString>,
    pub(super) dir: PathBuf,
    pub(super) home: PathBuf,
    /// Instead of our own.
    pub(super) path: Option<OsString>,
}

impl BenchProbe {
    /// Runs it once; anything but success is a failure of the benchmark.
    pub(super) fn measure(&self) -> TaskResult<BenchSample> {
        let mut cmd = ToolCommand::new(release_bin("xtask"))
            .clear_env()
            .env("HOME", &self.home)
            .env("LANG", "C.UTF-8")
            .arg("__measure")
            .args(&self.argv)
            .dir(&self.dir);
        if let Some(path) = &self.path {
            cmd = cmd.env("PATH", path);
        }
        let stdout = cmd.stdout()?;
        serde_json::from_slice(&stdout).context("the measurement")
    }
}

/// Measures each in every round, after a round that warms caches and does not
/// count. The first of a round changes, so that none is always first.
pub(super) fn by_turns<F: FnMut() -> TaskResult<BenchSample>>(
    runs: usize,
    turns: &mut [F; 3],
) -> TaskResult<[BenchSamples; 3]> {
    let mut samples: [BenchSamples; 3] = Default::default();
    for round in 0..=runs {
        for place in 0..3 {
            let which = (round + place) % 3;
            let sample = turns[which]()?;
            if round > 0 {
                samples[which].push(sample);
            }
        }
    }
    Ok(samples)
}

/// Mode `__measure ARGV...`: runs the command and prints its sample.
pub(super) fn helper(words: &[String]) -> TaskResult<()> {
    let [program, args @ ..] = words else {
        return Err(TaskFailure::usage("__measure PROGRAM ARGS..."));
    };
    let here = std::env::current_dir().context("the current folder")?;
    let cmd = ToolCommand::new(program).args(args).dir(here);
    let started = Instant::now();
    cmd.stdout()?;
    let wall = started.elapsed();
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN).context("getrusage")?;
    let cpu_us = usage.user_time().num_microseconds() + usage.system_time().num_microseconds();
    let sample = BenchSample {
        wall_us: micros(wall),
        cpu_us: u64::try_from(cpu_us).unwrap_or(0),
        peak_kib: u64::try_from(usage.max_rss()).unwrap_or(0),
    };
    let json = serde_json::to_string(&sample).context("the sample")?;
    crate::out::data(&json);
    Ok(())
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

/// The value in the middle; nothing is 0.
pub(super) fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(0.0)
}

/// Measured values are far below the 2^53 from which on this would round.
#[allow(clippy::cast_precision_loss)]
pub(super) fn as_f64(value: u64) -> f64 {
    value as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_alternate_and_the_first_round_does_not_count() {
        let calls = std::cell::RefCell::new(String::new());
        let sample = |wall: u64| -> TaskResult<BenchSample> {
            let json = format!("{{\"wall_us\":{wall},\"cpu_us\":0,\"peak_kib\":0}}");
            serde_json::from_str(&json).context("a sample")
        };
        let calls = &calls;
        let mut turns = [('a', 1_000), ('b', 2_000), ('c', 3_000)].map(|(name, wall)| {
            move || {
                calls.borrow_mut().push(name);
                sample(wall)
            }
        });
        let samples = by_turns(2, &mut turns).unwrap();
        assert_eq!(*calls.borrow(), "abcbcacab");
        let walls = samples.map(|samples| samples.medians().wall_ms);
        assert!((walls[2] - 3.0).abs() < 1e-9);
    }

    #[test]
    fn medians_are_not_moved_by_one_slow_run() {
        let mut samples = BenchSamples::default();
        for wall_us in [3_000, 900_000, 1_000, 2_000, 4_000] {
            samples.push(BenchSample {
                wall_us,
                cpu_us: 500,
                peak_kib: 1_000,
            });
        }
        let medians = samples.medians();
        assert!((medians.wall_ms - 3.0).abs() < 1e-9);
        assert!((medians.cpu_ms - 0.5).abs() < 1e-9);
        assert!((medians.peak_mb - 1.024).abs() < 1e-9);
    }
}
