//! The one place that prints: data to stdout, everything else to stderr.
#![allow(clippy::print_stdout, clippy::print_stderr)]

use std::sync::OnceLock;
use std::time::{Duration, Instant};

use crate::failure::{TaskFailure, TaskResult};

/// Runs a step between two lines: what it does, at which second, and how long
/// it took.
pub(crate) fn step<T>(what: &str, work: impl FnOnce() -> TaskResult<T>) -> TaskResult<T> {
    let started = Instant::now();
    eprintln!("==> {what}  [at {}]", seconds(since_start()));
    let result = work();
    let verdict = if result.is_ok() { "done" } else { "failed" };
    eprintln!("    {verdict} in {}", seconds(started.elapsed()));
    result
}

/// A line about what goes on.
pub(crate) fn note(text: &str) {
    eprintln!("    {text}");
}

/// What the task was asked for.
pub(crate) fn data(text: &str) {
    println!("{}", text.trim_end());
}

pub(crate) fn failure(failure: &TaskFailure) {
    eprintln!("error: {failure}");
    if let Some(hint) = failure.remedy() {
        eprintln!("hint: {hint}");
    }
}

/// `1.2 s`.
pub(crate) fn seconds(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f64())
}

/// The time since the first step.
fn since_start() -> Duration {
    static START: OnceLock<Instant> = OnceLock::new();
    START.get_or_init(Instant::now).elapsed()
}
