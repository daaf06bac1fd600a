//! Reports and comparisons from records that are made up.

use super::*;

/// A run of a case in a set.
pub(crate) fn record(case: &str, set: &str, number: u32, outcome: EvalOutcome) -> EvalRecord {
    let text = format!(
        r#"{{"schema_version": 1, "case": "{case}", "case_hash": "h", "run": "{set}-{number:02}",
        "set": "{set}", "label": null, "number": {number}, "outcome": "{outcome}", "expect": "success",
        "reason": null, "detail": null, "started_at": "", "ended_at": "", "duration_ms": 1000,
        "runner_exit": 0, "runner_status": "complete", "iterations": 2, "attempts": 1, "leaves": 1,
        "passed": 1, "checks_passed": 1, "checks": 1, "agent_ms": 1, "guard_ms": 1,
        "input_tokens": null, "cached_input_tokens": null, "output_tokens": null, "tokens_unknown": 2,
        "cost_usd": null, "cost_unknown": 2, "runner_version": "1", "backend": "command", "model": "m",
        "config_hash": "c", "prompt_hash": null, "instructions_hash": null, "workspace": "w"}}"#
    );
    let mut record: EvalRecord = serde_json::from_str(&text).unwrap();
    if outcome != EvalOutcome::Success {
        record.reason = Some(format!("{outcome}: because"));
    }
    record
}

fn runs(case: &str, set: &str, outcomes: &str) -> Vec<EvalRecord> {
    outcomes
        .chars()
        .zip(1..)
        .map(|(letter, number)| {
            let outcome = match letter {
                's' => EvalOutcome::Success,
                'f' => EvalOutcome::Fail,
                't' => EvalOutcome::Stuck,
                _ => EvalOutcome::Error,
            };
            record(case, set, number, outcome)
        })
        .collect()
}

#[test]
fn the_numbers_of_a_case() {
    let mut records = runs("a", "s1", "ssfss");
    for (record, (ms, cost)) in records.iter_mut().zip([
        (100, Some(0.5)),
        (300, None),
        (200, Some(1.5)),
        (900, None),
        (400, Some(1.0)),
    ]) {
        record.duration_ms = ms;
        record.cost_usd = cost;
    }
    let report = EvalReport::of(&records);
    let case = &report.cases[0];
    assert_eq!((case.runs, case.passed, report.passed), (5, 4, 4));
    assert_eq!(case.outcomes[&EvalOutcome::Fail], 1);
    assert_eq!(case.duration_ms.median, Some(300.0));
    assert_eq!(case.duration_ms.p95, Some(900.0));
    assert_eq!((case.cost_usd.count, case.cost_usd.median), (3, Some(1.0)));
    assert_eq!(case.total_cost_usd, Some(3.0));
    assert_eq!(case.tokens, NumberSpread::default());
    let ks: Vec<u32> = case.pass_k.iter().map(|it| it.k).collect();
    assert_eq!(ks, [1, 2, 3, 5]);
    assert!((case.pass_k[1].at - 1.0).abs() < 1e-9);
    assert!((case.pass_k[1].all - 0.6).abs() < 1e-9);
    assert_eq!(
        (case.reasons[0].count, case.reasons[0].reason.as_str()),
        (1, "fail: because")
    );
}

#[test]
fn what_is_expected_counts_as_passed() {
    let mut records = runs("a", "s1", "tts");
    for record in &mut records {
        record.expect = EvalOutcome::Stuck;
    }
    assert_eq!(EvalReport::of(&records).cases[0].passed, 2);
}

#[track_caller]
fn verdict(a: &[EvalRecord], b: &[EvalRecord]) -> EvalComparison {
    compare(("A", a), ("B", b)).unwrap()
}

#[test]
fn one_case_is_judged_by_fishers_test() {
    let bad = runs("a", "s1", "ffffffffss");
    let good = runs("a", "s2", "sssssssssf");
    let better = verdict(&bad, &good);
    assert_eq!(
        (better.test, better.verdict),
        (StatisticalTest::FisherExact, ComparisonVerdict::Better)
    );
    assert!(better.p_value < 0.01 && better.runs_needed.is_none());
    assert_eq!(verdict(&good, &bad).verdict, ComparisonVerdict::Worse);
    let few = verdict(&bad[..3], &good[..3]);
    assert_eq!(few.verdict, ComparisonVerdict::TooFew);
    assert!(few.runs_needed.unwrap() >= 4, "{:?}", few.runs_needed);
    let same = verdict(&good[..5], &good[..5]);
    assert_eq!(same.verdict, ComparisonVerdict::TooFew);
    assert!(same.runs_needed.unwrap() > 5);
    let many = runs("a", "s3", &"s".repeat(200));
    assert_eq!(
        verdict(&many, &many).verdict,
        ComparisonVerdict::NoDifference
    );
}

#[test]
fn several_cases_are_judged_in_pairs() {
    let side = |set: &str, outcomes: &str| -> Vec<EvalRecord> {
        outcomes
            .chars()
            .enumerate()
            .flat_map(|(at, letter)| runs(&format!("case{at}"), set, &letter.to_string()))
            .collect()
    };
    let comparison = verdict(&side("s1", "fffffffss"), &side("s2", "sssssssss"));
    assert_eq!(comparison.test, StatisticalTest::PairedSign);
    assert_eq!(
        (comparison.pairs, comparison.b_alone, comparison.a_alone),
        (9, 7, 0)
    );
    assert_eq!(comparison.verdict, ComparisonVerdict::Better);
    assert!((comparison.p_value - 0.015_625).abs() < 1e-9);
    let few = verdict(&side("s1", "ffss"), &side("s2", "ssss"));
    assert_eq!(few.verdict, ComparisonVerdict::TooFew);
    assert!(few.runs_needed.is_some());
}

#[test]
fn what_differs_is_named() {
    let a = runs("a", "s1", "ss");
    let mut b = runs("a", "s2", "ss");
    for record in &mut b {
        record.setup.model = "other".to_owned();
        record.setup.prompt_hash = Some("0123456789abcdef".to_owned());
    }
    let comparison = verdict(&a, &b);
    assert_eq!(
        comparison.changed,
        [
            ("model".to_owned(), "m".to_owned(), "other".to_owned()),
            (
                "prompt".to_owned(),
                "none".to_owned(),
                "0123456789ab".to_owned()
            ),
        ]
    );
    assert!(comparison.mixed.is_empty());
    b[0].setup.model = "m".to_owned();
    assert_eq!(verdict(&a, &b).mixed, ["B"]);
    assert!(compare(("A", &a), ("B", &runs("b", "s2", "s"))).is_none());
}

#[test]
fn the_page_needs_nothing_else_and_trusts_nobody() {
    let mut records = runs("a", "s1", "sfte");
    records[1].reason = Some("<script>alert(1)</script>".to_owned());
    records[1].label = Some("<b>".to_owned());
    let page = page(&EvalReport::of(&records), "2026-11-15");
    assert!(!page.contains("<script"), "{page}");
    assert!(page.contains("&lt;script&gt;alert(1)"));
    for remote in ["http://", "https://", "url(", "@import", "src="] {
        assert!(!page.contains(remote), "{remote} in {page}");
    }
    assert_eq!(page.matches("<svg").count(), 4);
    assert!(page.contains("prefers-color-scheme: dark"));
    let empty = super::page(&EvalReport::of(&[]), "now");
    assert!(empty.contains("There are no runs yet"));
}

#[test]
fn words_select_sets() {
    let mut all = runs("a", "20260101-000000-aaaa", "ss");
    all.extend(runs("a", "20260102-000000-bbbb", "sf"));
    for record in &mut all[2..] {
        record.label = Some("after".to_owned());
        record.setup.config_hash = "feedfacecafe".to_owned();
    }
    let records = crate::record::EvalRecords {
        all,
        unreadable: Vec::new(),
    };
    let set = |word: &str| {
        let found = records.select(word)?;
        Ok::<_, runner::Error>((found[0].set[..8].to_owned(), found.len()))
    };
    for (word, expected) in [
        ("latest", "20260102"),
        ("previous", "20260101"),
        ("after", "20260102"),
        ("20260101", "20260101"),
        ("feedface", "20260102"),
    ] {
        assert_eq!(set(word).unwrap(), (expected.to_owned(), 2), "{word}");
    }
    let error = set("2026").unwrap_err();
    assert!(error.message.contains("more than one set"), "{error}");
    let error = set("nothing").unwrap_err();
    assert!(error.hint.unwrap().contains("after (20260102"));
}
