//! Two sets of runs beside each other: is B better than A, worse, or can nobody tell?

use std::collections::BTreeMap;

use serde::Serialize;

use super::{CaseReport, EvalReport, count};
use crate::record::{EvalRecord, EvalSetup};
use crate::stats;

/// A difference within this, either way, is none worth a change.
const NO_DIFFERENCE: f64 = 0.10;

/// Which test was used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum StatisticalTest {
    /// Runs of the same case, side by side: the sign test over the pairs that differ.
    PairedSign,
    /// All runs of one case: Fisher's exact test.
    FisherExact,
}

/// What can be said.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ComparisonVerdict {
    /// B passes more often.
    Better,
    /// B passes less often.
    Worse,
    /// If there is a difference it is less than ten points.
    NoDifference,
    /// The runs are too few.
    TooFew,
}

/// One side.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ComparisonSide {
    /// How it was named on the command line.
    pub name: String,
    /// Runs of the cases that both have.
    pub runs: u32,
    /// Those that came to what they should.
    pub passed: u32,
    /// Their share.
    pub rate: f64,
    /// Its Wilson interval.
    pub interval: (f64, f64),
}

/// One case on both sides.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CaseComparison {
    /// In A.
    pub a: CaseReport,
    /// In B.
    pub b: CaseReport,
}

/// The whole comparison.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct EvalComparison {
    /// The one side.
    pub a: ComparisonSide,
    /// The other side.
    pub b: ComparisonSide,
    /// Cases that both have.
    pub cases: Vec<CaseComparison>,
    /// Cases that one side alone has: they are left out.
    pub only_a: Vec<String>,
    /// The same of B.
    pub only_b: Vec<String>,
    /// Which test was used.
    pub test: StatisticalTest,
    /// Pairs that were compared; 0 without pairs.
    pub pairs: u32,
    /// Pairs of which B alone passed.
    pub b_alone: u32,
    /// Pairs of which A alone passed.
    pub a_alone: u32,
    /// How likely such a difference is if there is none.
    pub p_value: f64,
    /// The difference of the shares, B less A, with its interval.
    pub difference: (f64, f64, f64),
    /// What can be said.
    pub verdict: ComparisonVerdict,
    /// About how many runs of each side it takes, where they are too few.
    pub runs_needed: Option<u32>,
    /// What the sides were made with, where it differs: name, A, B.
    pub changed: Vec<(String, String, String)>,
    /// Sides that were made with more than one setup: their numbers mix.
    pub mixed: Vec<String>,
}

/// Compares two sets of records. `None` if they have no case in common.
pub fn compare(
    (name_a, records_a): (&str, &[EvalRecord]),
    (name_b, records_b): (&str, &[EvalRecord]),
) -> Option<EvalComparison> {
    let (report_a, report_b) = (EvalReport::of(records_a), EvalReport::of(records_b));
    let common = |case: &str, other: &EvalReport| other.cases.iter().any(|it| it.case == case);
    let only = |report: &EvalReport, other: &EvalReport| -> Vec<String> {
        let names = report.cases.iter().map(|it| it.case.clone());
        names.filter(|case| !common(case, other)).collect()
    };
    let (only_a, only_b) = (only(&report_a, &report_b), only(&report_b, &report_a));
    let cases: Vec<CaseComparison> = report_a
        .cases
        .iter()
        .filter_map(|a| {
            let b = report_b.cases.iter().find(|b| b.case == a.case)?;
            Some(CaseComparison {
                a: a.clone(),
                b: b.clone(),
            })
        })
        .collect();
    if cases.is_empty() {
        return None;
    }
    let side = |name: &str, pick: fn(&CaseComparison) -> &CaseReport| {
        let runs = cases.iter().map(|it| pick(it).runs).sum();
        let passed = cases.iter().map(|it| pick(it).passed).sum();
        ComparisonSide {
            name: name.to_owned(),
            runs,
            passed,
            rate: stats::rate(passed, runs),
            interval: stats::wilson(passed, runs),
        }
    };
    let a = side(name_a, |it| &it.a);
    let b = side(name_b, |it| &it.b);
    let counts = ((a.passed, a.runs), (b.passed, b.runs));
    let (low, high) = stats::difference(counts.0, counts.1);
    let difference = (b.rate - a.rate, low, high);
    // Runs of one case are all alike: putting them side by side would tell nothing more.
    let paired = cases.len() > 1;
    let (mut pairs, mut b_alone, mut a_alone) = (0, 0, 0);
    if paired {
        for case in &cases {
            for (a, b) in case.a.points.iter().zip(&case.b.points) {
                pairs += 1;
                b_alone += u32::from(b.as_expected && !a.as_expected);
                a_alone += u32::from(a.as_expected && !b.as_expected);
            }
        }
    }
    let (test, p_value, needed) = if paired {
        let needed = stats::pairs_needed(b_alone, a_alone, pairs);
        let needed = needed.map(|it| it.div_ceil(count(cases.len())));
        (
            StatisticalTest::PairedSign,
            stats::sign_test(b_alone, a_alone),
            needed,
        )
    } else {
        let needed = stats::runs_needed(a.rate, b.rate);
        (
            StatisticalTest::FisherExact,
            stats::fisher(counts.0, counts.1),
            needed,
        )
    };
    let b_ahead = if paired {
        b_alone > a_alone
    } else {
        b.rate > a.rate
    };
    let verdict = match () {
        () if p_value < stats::ALPHA && b_ahead => ComparisonVerdict::Better,
        () if p_value < stats::ALPHA => ComparisonVerdict::Worse,
        () if low > -NO_DIFFERENCE && high < NO_DIFFERENCE => ComparisonVerdict::NoDifference,
        () => ComparisonVerdict::TooFew,
    };
    // Equal so far: what it would take to see a difference of twenty points.
    let assumed = || {
        let (from, to) = if a.rate <= 0.8 {
            (a.rate, a.rate + 0.2)
        } else {
            (a.rate - 0.2, a.rate)
        };
        stats::runs_needed(from, to)
    };
    Some(EvalComparison {
        runs_needed: (verdict == ComparisonVerdict::TooFew)
            .then(|| needed.or_else(assumed))
            .flatten(),
        changed: changed(records_a, records_b, &cases),
        mixed: mixed(&cases, name_a, name_b),
        a,
        b,
        cases,
        only_a,
        only_b,
        test,
        pairs,
        b_alone,
        a_alone,
        p_value,
        difference,
        verdict,
    })
}

/// The parts of a setup, by name.
fn parts(setup: &EvalSetup) -> [(&'static str, String); 6] {
    let short = |hash: &str| hash.chars().take(12).collect::<String>();
    let known = |hash: &Option<String>| hash.as_deref().map_or("none".to_owned(), short);
    let model = if setup.model.is_empty() {
        "(the CLI's own)"
    } else {
        &setup.model
    };
    [
        ("runner", setup.runner_version.clone()),
        ("backend", setup.backend.clone()),
        ("model", model.to_owned()),
        ("config", short(&setup.config_hash)),
        ("prompt", known(&setup.prompt_hash)),
        ("instructions", known(&setup.instructions_hash)),
    ]
}

/// What differs between the sides, each part as the values that it has there.
fn changed(
    records_a: &[EvalRecord],
    records_b: &[EvalRecord],
    cases: &[CaseComparison],
) -> Vec<(String, String, String)> {
    let values = |records: &[EvalRecord]| {
        let mut found: BTreeMap<(&str, &str), Vec<String>> = BTreeMap::new();
        for record in records {
            for (name, value) in parts(&record.setup) {
                let list = found.entry((record.case.as_str(), name)).or_default();
                if !list.contains(&value) {
                    list.push(value);
                }
            }
        }
        found
            .into_iter()
            .map(|((case, name), list)| ((case.to_owned(), name), list.join(", ")))
            .collect::<BTreeMap<_, _>>()
    };
    let (a, b) = (values(records_a), values(records_b));
    let mut changes = Vec::new();
    for (name, _) in parts(&EvalSetup::default()) {
        // One case is enough to show it: hashes differ from case to case.
        let change = cases.iter().find_map(|it| {
            let key = (it.a.case.clone(), name);
            let (a, b) = (a.get(&key)?, b.get(&key)?);
            (a != b).then(|| (name.to_owned(), a.clone(), b.clone()))
        });
        changes.extend(change);
    }
    changes
}

fn mixed(cases: &[CaseComparison], name_a: &str, name_b: &str) -> Vec<String> {
    let is_mixed =
        |pick: fn(&CaseComparison) -> &CaseReport| cases.iter().any(|it| pick(it).setups.len() > 1);
    let mut names = Vec::new();
    if is_mixed(|it| &it.a) {
        names.push(name_a.to_owned());
    }
    if is_mixed(|it| &it.b) {
        names.push(name_b.to_owned());
    }
    names
}
