//! Every row of what a judge can come to.

use runner_lifecycle::packet::{ChangeAction, check_result, evidence as law};

use super::super::fixtures::{change, checked, criterion, task, worked};
use super::super::policy::{PathRules, findings};
use super::*;

fn words(ending: &JudgeEnding) -> String {
    match ending {
        JudgeEnding::Approve { .. } => "approve".to_owned(),
        JudgeEnding::Reject { cause, remarks, .. } => {
            let ids: Vec<&str> = remarks.iter().map(|remark| remark.id.as_str()).collect();
            format!("reject {cause} {}", ids.join(" "))
        }
        JudgeEnding::Unable { .. } => "unable".to_owned(),
        JudgeEnding::Quota { account, .. } => format!("quota {account}"),
        JudgeEnding::ChangedJudge { reason } => format!("changed judge: {reason}"),
        JudgeEnding::StepBack { .. } => "step back".to_owned(),
    }
}

fn reviewed_task() -> Task {
    let mut task = task();
    task.acceptance
        .push(criterion("clear", CriterionCheck::Review));
    task
}

const APPROVES: &str = r#"{"verdict": "approve", "summary": "good", "findings": [],
    "criteria": [{"id": "clear", "status": "pass", "evidence": "read it"}]}"#;
const REJECTS: &str = r#"{"verdict": "reject", "summary": "not yet",
    "findings": [{"id": "naming", "text": "x is no name"}],
    "criteria": [{"id": "clear", "status": "pass", "evidence": "read it"}]}"#;
const FAILS: &str = r#"{"verdict": "reject", "summary": "not yet", "findings": [],
    "criteria": [{"id": "clear", "status": "fail", "evidence": "two meanings"}]}"#;

fn said(text: &str) -> ReviewReply {
    ReviewReply::Said(text.to_owned())
}

#[test]
fn reviews_row_by_row() {
    for (name, said, settled, expected) in [
        ("approved", said(APPROVES), "", "approve"),
        ("rejected", said(REJECTS), "", "reject verdict naming"),
        ("settled", said(REJECTS), "naming", "approve"),
        (
            "criterion",
            said(FAILS),
            "naming",
            "reject verdict criterion:clear",
        ),
        ("silent", ReviewReply::Silent, "", "unable"),
        ("no JSON", said("looks good to me"), "", "unable"),
        ("half", said(r#"{"verdict": "approve"}"#), "", "unable"),
        (
            "quota",
            ReviewReply::Quota {
                until: None,
                account: "a".to_owned(),
            },
            "",
            "quota a",
        ),
    ] {
        let settled = [ReviewRemark {
            id: settled.to_owned(),
            text: String::new(),
        }];
        let task = reviewed_task();
        let changes = [change("src/a.rs", ChangeAction::Modified)];
        let checks = worked().checks;
        let evidence = JudgeEvidence {
            task: &task,
            run_id: "t-1",
            changes: Some(&changes),
            guard: JudgeGuard::Ran(&checks),
            findings: &[],
            review: ReviewOutcome::read(&task, said, &settled),
        };
        let end = ending(&evidence);
        assert_eq!(words(&end), expected, "{name}");
        if let JudgeEnding::Approve { packet } = end {
            check_result(&packet, &task, "t-1").unwrap();
            law(&packet, &task, |_| true).unwrap();
        }
    }
}

/// Name, changed paths, checks, what they come to.
type Row<'a> = (&'a str, Option<&'a [&'a str]>, Vec<CheckOutcome>, &'a str);

#[test]
fn guard_and_policy_come_first() {
    use CheckEnd::{Green, Red, Unable};
    let rules = PathRules::new(&[], &[], 0, 0).unwrap();
    let checks = |guard, parses| {
        vec![
            checked("guard", guard, "error: boom"),
            checked("parses", parses, "error: bang"),
        ]
    };
    let one = ["src/a.rs"];
    let out = ["docs/a.md"];
    let rows: [Row<'_>; 9] = [
        ("good", Some(&one), checks(Green, Green), "approve"),
        ("no commit", None, checks(Green, Green), "unable"),
        (
            "empty",
            Some(&[]),
            checks(Green, Green),
            "reject verdict empty-diff",
        ),
        (
            "red",
            Some(&one),
            checks(Green, Red),
            "reject verdict check:parses",
        ),
        (
            "both red",
            Some(&one),
            checks(Red, Red),
            "reject verdict check:guard check:parses",
        ),
        ("unable", Some(&one), checks(Red, Unable), "unable"),
        (
            "unchecked",
            Some(&one),
            vec![checked("guard", Green, "")],
            "unable",
        ),
        ("nothing ran", Some(&one), vec![], "unable"),
        (
            "outside",
            Some(&out),
            checks(Green, Green),
            "reject policy scope:docs/a.md",
        ),
    ];
    for (name, paths, checks, expected) in rows {
        let task = task();
        let changes: Option<Vec<ResourceChange>> = paths.map(|paths| {
            paths
                .iter()
                .map(|path| change(path, ChangeAction::Modified))
                .collect()
        });
        let found = findings(&task, &rules, changes.as_deref().unwrap_or_default(), 0);
        let evidence = JudgeEvidence {
            task: &task,
            run_id: "t-1",
            changes: changes.as_deref(),
            guard: JudgeGuard::Ran(&checks),
            findings: &found,
            review: ReviewOutcome::Off,
        };
        assert_eq!(words(&ending(&evidence)), expected, "{name}");
        assert_eq!(is_settled_before_review(&evidence), expected != "approve");
    }
}

#[test]
fn recorded_evidence_counts_and_its_absence_too() {
    let task = task();
    let changes = [change("src/a.rs", ChangeAction::Modified)];
    let answers = command_answers(&task, &worked().checks).unwrap();
    let good = done_packet(&task, "t-1", &changes, answers, Vec::new());
    let mut half = good.clone();
    half.acceptance_check.pop();
    for (packet, expected) in [
        (Some(&good), "approve"),
        (Some(&half), "unable"),
        (None, "unable"),
    ] {
        let evidence = JudgeEvidence {
            task: &task,
            run_id: "t-1",
            changes: Some(&changes),
            guard: JudgeGuard::Recorded(packet),
            findings: &[],
            review: ReviewOutcome::Off,
        };
        assert_eq!(words(&ending(&evidence)), expected);
    }
}

#[test]
fn a_review_criterion_without_reviewer_is_not_passed() {
    let task = reviewed_task();
    let changes = [change("src/a.rs", ChangeAction::Modified)];
    let checks = worked().checks;
    let evidence = JudgeEvidence {
        task: &task,
        run_id: "t-1",
        changes: Some(&changes),
        guard: JudgeGuard::Ran(&checks),
        findings: &[],
        review: ReviewOutcome::Off,
    };
    assert_eq!(words(&ending(&evidence)), "unable");
}

#[test]
fn conflicts_name_their_paths() {
    let end = conflict(&["a".to_owned(), "b".to_owned()]);
    assert_eq!(words(&end), "reject conflict conflict:a conflict:b");
}

#[test]
fn a_changed_judge_is_named_with_what_changed() {
    assert!(changed_judge(&InvertedCheck::Same, "c").is_none());
    let unable = changed_judge(&InvertedCheck::Unable("no git".to_owned()), "c");
    assert_eq!(words(&unable.unwrap()), "unable");
    let verdict = InvertedCheck::Changed {
        files: vec!["tests/a.py".to_owned(), "x.config.js".to_owned()],
        why: "the guard gave exit 1".to_owned(),
    };
    let changed = changed_judge(&verdict, "0123456789abcdef");
    assert_eq!(
        words(&changed.unwrap()),
        "changed judge: it passes only with tests or settings that it changed itself (the guard gave exit 1); \
         read `git show 0123456789ab`: tests/a.py, x.config.js"
    );
}
