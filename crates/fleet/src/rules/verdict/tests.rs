//! Verdicts: the published schema, the strict parser, and that both agree.

use runner_lifecycle::CriterionCheck;
use runner_testkit::set_json;
use serde_json::{Value, json};

use super::super::fixtures::criterion;
use super::super::schemas::{assert_fresh, generated};
use super::*;

#[test]
fn the_published_schema_is_fresh() {
    assert_fresh(
        "verdict",
        SCHEMA,
        &generated::<ReviewVerdict>("runner:verdict:1"),
    );
}

fn verdict() -> Value {
    json!({
        "verdict": "reject",
        "summary": "not yet",
        "findings": [{"id": "naming", "text": "x is no name"}],
        "criteria": [{"id": "clear", "status": "pass", "evidence": "read it"}]
    })
}

fn read(text: &str) -> Result<ReviewVerdict, MalformedVerdict> {
    ReviewVerdict::parse(text, &[criterion("clear", CriterionCheck::Review)])
}

#[test]
fn rows() {
    let schema: Value = serde_json::from_str(SCHEMA).unwrap();
    let schema = jsonschema::validator_for(&schema).unwrap();
    let long = "x".repeat(2001);
    // What is changed, whether it is read, whether the schema alone takes it.
    for (pointer, value, good, shape) in [
        ("/summary", json!("words"), true, true),
        ("/summary", json!(""), false, false),
        ("/summary", json!(long), false, false),
        ("/summary", json!(1), false, false),
        ("/summary", Value::Null, false, false),
        ("/verdict", json!("maybe"), false, false),
        ("/verdict", json!("approve"), false, true),
        ("/more", json!(1), false, false),
        ("/findings", json!([]), false, true),
        ("/findings/0/id", json!("a b"), false, false),
        ("/findings/0/id", json!(""), false, false),
        ("/findings/0/text", json!(""), false, false),
        ("/findings/0/line", json!(3), false, false),
        ("/criteria", json!([]), false, true),
        ("/criteria/0/id", json!("other"), false, true),
        ("/criteria/0/status", json!("fail"), true, true),
        ("/criteria/0/status", json!("maybe"), false, false),
        ("/criteria/0/evidence", json!(""), false, false),
    ] {
        let mut changed = verdict();
        set_json(&mut changed, pointer, value.clone());
        let read = read(&changed.to_string());
        assert_eq!(read.is_ok(), good, "{pointer} {value} {read:?}");
        assert_eq!(schema.is_valid(&changed), shape, "{pointer} {value}");
    }
}

#[test]
fn doubles_are_refused() {
    for pointer in ["/findings", "/criteria"] {
        let mut doubled = verdict();
        let list = doubled.pointer_mut(pointer).unwrap();
        let first = list[0].clone();
        list.as_array_mut().unwrap().push(first);
        assert!(read(&doubled.to_string()).is_err(), "{pointer}");
    }
    let twice = verdict()
        .to_string()
        .replacen('{', r#"{"verdict": "approve", "#, 1);
    assert!(read(&twice).is_err(), "a key that is there twice");
}

#[test]
fn a_fence_around_it_is_taken_off() {
    let text = verdict().to_string();
    for (answer, good) in [
        (format!("```json\n{text}\n```\n"), true),
        (format!("```\n{text}\n```"), true),
        (format!("Here it is:\n{text}"), false),
        (format!("{text}{text}"), false),
        (String::new(), false),
    ] {
        assert_eq!(read(&answer).is_ok(), good, "{answer}");
    }
    assert!(read(&" ".repeat(MAX_BYTES + 1)).is_err());
}

#[test]
fn settled_findings_are_dropped() {
    let settled = |id: &str| {
        vec![ReviewRemark {
            id: id.to_owned(),
            text: String::new(),
        }]
    };
    let verdict = read(&verdict().to_string()).unwrap();
    let same = verdict.clone().without_settled(&settled("other"));
    assert_eq!(
        (same.verdict, same.remarks().len()),
        (ReviewDecision::Reject, 1)
    );
    let none = verdict.without_settled(&settled("naming"));
    assert_eq!(
        (none.verdict, none.remarks().len()),
        (ReviewDecision::Approve, 0)
    );
}
