//! Many records as numbers: of each case, and of two sets beside each other. Nothing here reads a
//! file.

mod chart;
mod compare;
mod html;

use std::collections::BTreeMap;

use serde::Serialize;

use crate::case::EvalOutcome;
use crate::record::{EvalRecord, EvalSetup};
use crate::stats;

pub use compare::{
    CaseComparison, ComparisonSide, ComparisonVerdict, EvalComparison, StatisticalTest, compare,
};
pub use html::page;

/// For which k pass@k and pass^k are told, as far as there are runs.
const KS: [u32; 5] = [1, 2, 3, 5, 10];

/// How many reasons are told.
const MAX_REASONS: usize = 5;

/// The numbers of some runs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct EvalReport {
    /// By case.
    pub cases: Vec<CaseReport>,
    /// Runs of all cases.
    pub runs: u32,
    /// Those that came to what they should.
    pub passed: u32,
    /// What all of it cost; null when nothing is known.
    pub cost_usd: Option<f64>,
    /// The time of all runs together.
    pub duration_ms: u64,
    /// The sets, oldest first, with their labels.
    pub sets: Vec<(String, Option<String>)>,
}

/// The numbers of one case.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CaseReport {
    /// The case.
    pub case: String,
    /// Which outcome is the right one.
    pub expect: EvalOutcome,
    /// How many runs.
    pub runs: u32,
    /// Those that came to what they should.
    pub passed: u32,
    /// Their share.
    pub rate: f64,
    /// Its Wilson interval at 95 %.
    pub interval: (f64, f64),
    /// Passing once, and always, in so many runs.
    pub pass_k: Vec<PassK>,
    /// How many runs came to what.
    pub outcomes: BTreeMap<EvalOutcome, u32>,
    /// Iterations of a run.
    pub iterations: NumberSpread,
    /// Sessions of a run that did not get there.
    pub attempts: NumberSpread,
    /// Tokens of a run, of those that tell.
    pub tokens: NumberSpread,
    /// US dollars of a run, of those that tell.
    pub cost_usd: NumberSpread,
    /// Milliseconds of a run.
    pub duration_ms: NumberSpread,
    /// What all of them cost.
    pub total_cost_usd: Option<f64>,
    /// Why runs were no success, most frequent first.
    pub reasons: Vec<FailureReason>,
    /// What they were made with, if it is more than one thing.
    pub setups: Vec<SetupCount>,
    /// Every run.
    pub points: Vec<ChartPoint>,
}

/// pass@k and pass^k.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct PassK {
    /// So many runs.
    pub k: u32,
    /// At least one of them passes.
    pub at: f64,
    /// All of them pass.
    pub all: f64,
}

/// Where some numbers lie.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct NumberSpread {
    /// How many there are.
    pub count: u32,
    /// The middle one; null when there are none.
    pub median: Option<f64>,
    /// The 95th percentile.
    pub p95: Option<f64>,
    /// The smallest.
    pub min: Option<f64>,
    /// The largest.
    pub max: Option<f64>,
}

impl NumberSpread {
    fn of(numbers: &[f64]) -> Self {
        NumberSpread {
            count: u32::try_from(numbers.len()).unwrap_or(u32::MAX),
            median: stats::median(numbers),
            p95: stats::p95(numbers),
            min: numbers.iter().copied().reduce(f64::min),
            max: numbers.iter().copied().reduce(f64::max),
        }
    }
}

/// Why runs were no success.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FailureReason {
    /// In a few words.
    pub reason: String,
    /// How many runs.
    pub count: u32,
    /// One of them.
    pub run: String,
    /// What that one says at length.
    pub detail: Option<String>,
}

/// What runs were made with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SetupCount {
    /// What.
    #[serde(flatten)]
    pub setup: EvalSetup,
    /// How many runs.
    pub runs: u32,
    /// How many of them passed.
    pub passed: u32,
}

/// One run in a chart.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ChartPoint {
    /// The run.
    pub run: String,
    /// What it came to.
    pub outcome: EvalOutcome,
    /// Whether that is right.
    pub as_expected: bool,
    /// Iterations.
    pub iterations: u32,
    /// Milliseconds.
    pub duration_ms: u64,
    /// US dollars.
    pub cost_usd: Option<f64>,
}

impl EvalReport {
    /// The numbers of these records.
    pub fn of(records: &[EvalRecord]) -> Self {
        let mut by_case: BTreeMap<&str, Vec<&EvalRecord>> = BTreeMap::new();
        let mut sets = BTreeMap::new();
        for record in records {
            by_case.entry(&record.case).or_default().push(record);
            sets.insert(record.set.clone(), record.label.clone());
        }
        let cases: Vec<CaseReport> = by_case
            .into_iter()
            .map(|(case, records)| CaseReport::of(case, &records))
            .collect();
        EvalReport {
            runs: cases.iter().map(|case| case.runs).sum(),
            passed: cases.iter().map(|case| case.passed).sum(),
            cost_usd: total(records.iter().filter_map(|it| it.cost_usd)),
            duration_ms: records.iter().map(|it| it.duration_ms).sum(),
            sets: sets.into_iter().collect(),
            cases,
        }
    }
}

impl CaseReport {
    fn of(case: &str, records: &[&EvalRecord]) -> Self {
        let runs = count(records.len());
        let passed = count(records.iter().filter(|it| it.is_expected()).count());
        let numbers = |pick: fn(&EvalRecord) -> Option<f64>| -> Vec<f64> {
            records.iter().filter_map(|it| pick(it)).collect()
        };
        let mut outcomes = BTreeMap::new();
        for record in records {
            *outcomes.entry(record.outcome).or_insert(0) += 1;
        }
        CaseReport {
            case: case.to_owned(),
            expect: records.last().map_or(EvalOutcome::Success, |it| it.expect),
            runs,
            passed,
            rate: stats::rate(passed, runs),
            interval: stats::wilson(passed, runs),
            pass_k: pass_k(passed, runs),
            outcomes,
            iterations: NumberSpread::of(&numbers(|it| Some(f64::from(it.iterations)))),
            attempts: NumberSpread::of(&numbers(|it| Some(f64::from(it.attempts)))),
            tokens: NumberSpread::of(&numbers(|it| it.tokens().map(lossy))),
            cost_usd: NumberSpread::of(&numbers(|it| it.cost_usd)),
            duration_ms: NumberSpread::of(&numbers(|it| Some(lossy(it.duration_ms)))),
            total_cost_usd: total(records.iter().filter_map(|it| it.cost_usd)),
            reasons: reasons(records),
            setups: setups(records),
            points: records.iter().map(|it| ChartPoint::of(it)).collect(),
        }
    }
}

impl ChartPoint {
    fn of(record: &EvalRecord) -> Self {
        ChartPoint {
            run: record.run.clone(),
            outcome: record.outcome,
            as_expected: record.is_expected(),
            iterations: record.iterations,
            duration_ms: record.duration_ms,
            cost_usd: record.cost_usd,
        }
    }
}

fn pass_k(passed: u32, runs: u32) -> Vec<PassK> {
    KS.into_iter()
        .filter_map(|k| {
            Some(PassK {
                k,
                at: stats::pass_at(k, passed, runs)?,
                all: stats::pass_all(k, passed, runs)?,
            })
        })
        .collect()
}

fn reasons(records: &[&EvalRecord]) -> Vec<FailureReason> {
    let mut found: Vec<FailureReason> = Vec::new();
    for record in records {
        let Some(reason) = &record.reason else {
            continue;
        };
        match found.iter_mut().find(|it| it.reason == *reason) {
            Some(it) => it.count += 1,
            None => found.push(FailureReason {
                reason: reason.clone(),
                count: 1,
                run: record.run.clone(),
                detail: record.detail.clone(),
            }),
        }
    }
    found.sort_by_key(|it| std::cmp::Reverse(it.count));
    found.truncate(MAX_REASONS);
    found
}

fn setups(records: &[&EvalRecord]) -> Vec<SetupCount> {
    let mut found: BTreeMap<&EvalSetup, (u32, u32)> = BTreeMap::new();
    for record in records {
        let entry = found.entry(&record.setup).or_default();
        entry.0 += 1;
        entry.1 += u32::from(record.is_expected());
    }
    found
        .into_iter()
        .map(|(setup, (runs, passed))| SetupCount {
            setup: setup.clone(),
            runs,
            passed,
        })
        .collect()
}

fn total(costs: impl Iterator<Item = f64>) -> Option<f64> {
    costs.reduce(|sum, cost| sum + cost)
}

fn count(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

/// Milliseconds and tokens: beyond 2^53 nobody counts the last digit.
#[allow(clippy::cast_precision_loss)]
fn lossy(number: u64) -> f64 {
    number as f64
}

#[cfg(test)]
mod tests;
