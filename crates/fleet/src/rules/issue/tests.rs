//! Issues: files, bodies, tasks, imports.

use std::collections::BTreeSet;

use proptest::prelude::*;
use runner_core::config::FleetConfig;
use runner_lifecycle::lock::Resource;

use super::*;

const FULL: &str = "\
---
number: 12
title: \"Add a parser\"
state: open
labels: [role:worker, area:core]
---
There shall be a parser.

**Agent:** tester
Priority: high
Risk: low
Depends on: #3, #4
Allowed paths: src/**, `tests/parser.rs`

Forbidden paths:
- src/gen

```text
Agent: not a key in here
```

## Acceptance
- [ ] it parses numbers
- [x] names are clear

## Commands
```sh
cargo test parser

cargo clippy
```

## Background
Nothing more.
";

#[test]
fn stars_of_bold_keys_and_stars_of_globs() {
    let scope = |paths: &[&str]| -> Vec<Resource> {
        let one = |path: &&str| Resource::parse(path).unwrap();
        paths.iter().map(one).collect()
    };
    for (line, allowed, forbidden) in [
        ("Forbidden paths: **", &["."][..], &["."][..]),
        ("**Forbidden paths:** **", &["."], &["."]),
        ("**Forbidden paths**: gen/**", &["."], &["gen"]),
        ("Allowed paths: **/*.md", &["."], &[]),
        ("**Allowed paths:** docs/*.md", &["docs"], &[]),
        ("*Allowed paths:* src", &["src"], &[]),
    ] {
        let text = format!("---\nnumber: 1\ntitle: T\n---\nAgent: worker\n{line}\n");
        let task = task(&text).unwrap();
        assert_eq!(task.lock_scope, scope(allowed), "{line}");
        assert_eq!(task.forbidden_scope, scope(forbidden), "{line}");
    }
}

fn defaults() -> TaskDefaults {
    TaskDefaults::from(&FleetConfig::default())
}

fn words(findings: &[IssueFinding]) -> Vec<String> {
    findings.iter().map(ToString::to_string).collect()
}

fn parse(text: &str) -> Result<SourceIssue, Vec<String>> {
    SourceIssue::parse(text.as_bytes(), "x.md").map_err(|all| words(&all))
}

fn task(text: &str) -> Result<NewTask, Vec<String>> {
    parse(text)?
        .task("local", &defaults())
        .map_err(|all| words(&all))
}

#[test]
fn a_whole_issue() {
    let issue = parse(FULL).unwrap();
    assert_eq!((issue.number, issue.closed), (12, false));
    let task = issue.task("local", &defaults()).unwrap();
    assert_eq!(task.id.as_str(), "issue-12");
    assert_eq!(task.title, "Add a parser");
    assert_eq!(task.source.as_deref(), Some("local#12"));
    assert_eq!(task.origin, TaskOrigin::Issue);
    // The label wins over the line.
    assert_eq!(task.role, "worker");
    assert_eq!(
        (task.priority.as_str(), task.risk.as_str()),
        ("high", "low")
    );
    let paths = |scope: &[Resource]| scope.iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(paths(&task.lock_scope), ["src", "tests/parser.rs"]);
    assert_eq!(paths(&task.forbidden_scope), ["src/gen"]);
    let needs: Vec<&str> = task.dependencies.iter().map(TaskId::as_str).collect();
    assert_eq!(needs, ["issue-3", "issue-4"]);
    assert_eq!(task.commands, ["cargo test parser", "cargo clippy"]);
    let criteria: Vec<(&str, &str, &str)> = task
        .acceptance
        .iter()
        .map(|one| (one.id.as_str(), one.text.as_str(), one.check.as_str()))
        .collect();
    assert_eq!(
        criteria,
        [
            ("guard", "the guard is green", "command"),
            ("a1", "it parses numbers", "command"),
            ("a2", "names are clear", "command"),
        ]
    );
    assert_eq!(
        task.goal,
        "There shall be a parser.\n\n```text\nAgent: not a key in here\n```\n\n\
         ## Background\nNothing more."
    );
}

#[test]
fn files_row_by_row() {
    for (name, text, expected) in [
        ("7-x.md", "# A title\ntext", Ok((7, "A title", false))),
        (
            "7.md",
            "---\ntitle: T\nstate: closed\n---\n",
            Ok((7, "T", true)),
        ),
        (
            "x.md",
            "---\nnumber: '8'\ntitle: T\nlabels:\n- a\n- b\n---\n",
            Ok((8, "T", false)),
        ),
        (
            "x.md",
            "# T",
            Err("it has no number: add `number: N` to its front matter, or name it N-words.md"),
        ),
        (
            "1.md",
            "text",
            Err("it has no title: add `title: words` to its front matter, or a heading"),
        ),
        (
            "1.md",
            "---\ntitle: T\n",
            Err("line 1: the front matter that begins here has no closing `---` line"),
        ),
        (
            "1.md",
            "---\ntitle: T\nstate: done\n---\n",
            Err("line 3: state `done` is not one of open, closed"),
        ),
        (
            "1.md",
            "---\ntitle: T\nlabel: a\n---\n",
            Err("line 3: unknown key `label` (did you mean `labels`?)"),
        ),
        (
            "1.md",
            "---\ntitle: T\nnumber: one\n---\n",
            Err("line 3: number `one` is none"),
        ),
        (
            "1.md",
            "---\ntitle: T\ntitle: U\n---\n",
            Err("line 3: `title` is there twice"),
        ),
        (
            "1.md",
            "---\ntitle: T\nwords\n---\n",
            Err("line 3: the front matter has lines `key: value` only"),
        ),
    ] {
        let read = SourceIssue::parse(text.as_bytes(), name).map_err(|all| words(&all));
        match (read, expected) {
            (Ok(issue), Ok((number, title, closed))) => {
                assert_eq!(
                    (issue.number, issue.title.as_str(), issue.closed),
                    (number, title, closed)
                );
            }
            (Err(findings), Err(expected)) => assert_eq!(findings, [expected], "{text}"),
            (read, _) => panic!("{text}: {read:?}"),
        }
    }
    assert_eq!(
        words(&SourceIssue::parse(b"# T\n\xff", "1.md").unwrap_err()),
        ["line 2: it is not UTF-8"]
    );
    assert!(SourceIssue::parse(&vec![b'x'; MAX_BYTES + 1], "1.md").is_err());
}

#[test]
fn bodies_row_by_row() {
    for (body, expected) in [
        (
            "Agent: judge",
            "line 5: role `judge` is unknown: worker, tester, docser",
        ),
        ("Agent: worker\nAgent: tester", "line 6: a second agent"),
        (
            "Priority: urgent",
            "line 5: priority `urgent` is not one of low, normal, high, critical",
        ),
        (
            "Risk: none",
            "line 5: risk `none` is not one of low, medium, high",
        ),
        ("x\nDepends on: 3", "line 6: `3` is no issue such as #3"),
        ("Depends on: #1", "line 5: it depends on itself"),
        (
            "Allowed paths: /etc",
            "line 5: path `/etc`: paths begin at the repo root, without a slash",
        ),
        (
            "Allowed paths:\n- ok\n\n- ../x",
            "line 6: path `../x`: `.` and `..` are no parts of a path",
        ),
        (
            "## Acceptance\n- clear (review)",
            "line 6: it asks for a review, and reviews are off ([fleet] review)",
        ),
        ("a\u{0}b", "its text contains a control character"),
    ] {
        let text = format!("---\nnumber: 1\ntitle: T\n---\n{body}");
        assert_eq!(task(&text).unwrap_err(), [expected], "{body}");
    }
}

#[test]
fn roles_and_their_defaults() {
    for (labels, body, role, scope, change) in [
        ("role:tester", "", "tester", vec!["tests"], false),
        ("role:docser", "", "docser", vec!["README.md", "docs"], true),
        (
            "x",
            "Agent: docser",
            "docser",
            vec!["README.md", "docs"],
            true,
        ),
        ("x", "agent: `Worker`", "worker", vec!["."], true),
        ("x", "", "", vec!["."], true),
    ] {
        let text = format!("---\nnumber: 1\ntitle: T\nlabels: {labels}\n---\n{body}\n");
        let task = task(&text).unwrap();
        let mut paths: Vec<&str> = task.lock_scope.iter().map(Resource::as_str).collect();
        paths.sort_unstable();
        assert_eq!(
            (task.role.as_str(), paths),
            (role, scope),
            "{labels} {body}"
        );
        assert_eq!(task.expects_change, change);
        let facts = parse(&text).unwrap().facts("local", &defaults());
        assert_eq!(facts.role.unwrap_or_default(), role);
        let now = facts.work.map(|work| work.lock_scope);
        assert_eq!(now, (!role.is_empty()).then_some(task.lock_scope));
    }
    let two = "---\nnumber: 1\ntitle: T\nlabels: role:worker, role:tester\n---\n";
    assert_eq!(task(two).unwrap_err(), ["it has labels of several roles"]);
}

#[test]
fn what_no_command_checks_is_for_a_reviewer() {
    let on = TaskDefaults {
        review: true,
        ..defaults()
    };
    let text = "---\nnumber: 1\ntitle: T\n---\n## Acceptance\n- first (review)\n- second\n- third\n\
                Commands: make test\n";
    let task = parse(text).unwrap().task("local", &on).unwrap();
    let checks: Vec<&str> = task
        .acceptance
        .iter()
        .map(|one| one.check.as_str())
        .collect();
    assert_eq!(checks, ["command", "review", "command", "review"]);
    assert_eq!(task.acceptance[1].text, "first");
}

fn issue(number: u64, closed: bool, needs: &str) -> SourceIssue {
    SourceIssue {
        number,
        title: format!("issue {number}"),
        closed,
        labels: vec!["role:worker".to_owned()],
        body: format!("Depends on: {needs}"),
        lines_before: 0,
    }
}

#[test]
fn imports_are_ordered_and_idempotent() {
    let issues = [
        issue(1, false, "#2"),
        issue(2, false, "#3, #9"),
        issue(3, true, "none"),
        issue(4, false, "#5"),
        issue(5, false, "#4"),
        issue(6, false, "#77"),
        issue(9, false, "none"),
    ];
    let mut known = BTreeSet::new();
    let first = import("local", &issues, &known, &defaults());
    let ids: Vec<&str> = first.tasks.iter().map(|task| task.id.as_str()).collect();
    assert_eq!(ids, ["issue-9", "issue-2", "issue-1"]);
    // The closed one is met.
    assert_eq!(
        first.tasks[1].dependencies,
        [TaskId::parse("issue-9").unwrap()]
    );
    let refused: Vec<u64> = first.refused.iter().map(|(number, _)| *number).collect();
    assert_eq!(refused, [4, 5, 6]);
    assert!(first.refused[2].1.message.contains("issue-77"));
    known.extend(first.tasks.iter().map(|task| task.id.clone()));
    let again = import("local", &issues, &known, &defaults());
    assert_eq!((again.tasks.len(), again.refused.len()), (0, 3));
}

#[test]
fn other_sources_have_ids_of_their_own() {
    let id = |source| SourceIssue::task_id(source, 3).unwrap().to_string();
    assert_eq!(
        (id("local"), id("gh")),
        ("issue-3".to_owned(), "gh-3".to_owned())
    );
    assert_eq!(SourceIssue::source_of("gh", 3), "gh#3");
}

proptest! {
    #[test]
    fn no_bytes_panic(bytes: Vec<u8>) {
        if let Ok(issue) = SourceIssue::parse(&bytes, "1.md") {
            let _ = issue.task("local", &defaults());
            let _ = issue.facts("local", &defaults());
        }
    }

    #[test]
    fn no_lines_panic(lines in prop::collection::vec(
        "(---|number: [0-9]{0,25}|title: .{0,5}|state: .{0,5}|labels: .{0,9}|# .{0,4}|```|~~~|\
         - .{0,6}|Agent:.{0,6}|Depends on: .{0,6}|Allowed paths:.{0,9}|## Commands|\
         ## Acceptance|Priority: .{0,5}|.{0,6})",
        0..14,
    )) {
        let text = lines.join("\n");
        let task = SourceIssue::parse(text.as_bytes(), "1.md")
            .and_then(|issue| issue.task("local", &defaults()));
        if let Ok(task) = task {
            prop_assert!(!task.lock_scope.is_empty());
            prop_assert!(!task.acceptance.is_empty());
        }
    }
}
