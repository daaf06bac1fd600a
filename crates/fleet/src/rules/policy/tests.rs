//! Findings, safe paths and the packets that follow.

use runner_lifecycle::BlockReason;
use runner_lifecycle::Timestamp;

use super::super::fixtures::{change, scope, task};
use super::*;

fn rules() -> PathRules {
    PathRules::new(
        &["Makefile".to_owned(), "ci/**".to_owned()],
        &[".env*".to_owned(), "*.pem".to_owned()],
        3,
        100,
    )
    .unwrap()
}

fn ids(task: &Task, changes: &[(&str, ChangeAction)], bytes: u64) -> Vec<String> {
    let changes: Vec<ResourceChange> = changes
        .iter()
        .map(|(path, action)| change(path, *action))
        .collect();
    findings(task, &rules(), &changes, bytes)
        .iter()
        .map(PolicyFinding::id)
        .collect()
}

/// Changes, bytes, the ids of what is found.
type Row<'a> = (&'a [(&'a str, ChangeAction)], u64, &'a [&'a str]);

#[test]
fn findings_row_by_row() {
    use ChangeAction::{Created, Deleted, Modified, Renamed};
    let mut task = task();
    task.lock_scope = scope(&["src", "ci", "Makefile", ".runner", ".env.local"]);
    task.forbidden_scope = scope(&["src/gen"]);
    let rows: [Row<'_>; 14] = [
        (&[("src/a.rs", Modified)], 100, &[]),
        (&[("srcs/a.rs", Modified)], 0, &["scope:srcs/a.rs"]),
        (&[("docs/a.md", Deleted)], 0, &["scope:docs/a.md"]),
        (
            &[("src/gen/a.rs", Modified)],
            0,
            &["forbidden:src/gen/a.rs"],
        ),
        (&[("Makefile", Modified)], 0, &["protected:Makefile"]),
        (&[("ci/run.sh", Deleted)], 0, &["protected:ci/run.sh"]),
        (
            &[(".runner/GOAL.md", Modified)],
            0,
            &["protected:.runner/GOAL.md"],
        ),
        (&[(".env.local", Created)], 0, &["denied:.env.local"]),
        (&[(".env.local", Modified)], 0, &[]),
        (&[("src/k.pem", Renamed)], 0, &["denied:src/k.pem"]),
        (&[("src/.env.example", Created)], 0, &[]),
        (&[("src/a.rs", Modified)], 101, &["size:bytes"]),
        (
            &[
                ("src/d", Created),
                ("src/c", Created),
                ("src/b", Created),
                ("src/a", Created),
            ],
            0,
            &["size:files"],
        ),
        (
            &[("x/k.pem", Created), ("b", Created), ("b", Created)],
            0,
            &["scope:b", "scope:x/k.pem", "denied:x/k.pem"],
        ),
    ];
    for (changes, bytes, expected) in rows {
        assert_eq!(ids(&task, changes, bytes), expected, "{changes:?}");
    }
}

#[test]
fn odd_names_count_as_their_folder() {
    for (path, resource) in [
        ("src/a.rs", "src/a.rs"),
        ("app/[id]/page.tsx", "app"),
        ("app/x{1}", "app"),
        ("[id].tsx", "."),
        ("a\nb/c", "."),
        ("src/a\nb", "src"),
        ("@types/x.d.ts", "."),
        ("src/@types/x.d.ts", "src/@types/x.d.ts"),
    ] {
        assert_eq!(resource_of(path).as_str(), resource, "{path}");
    }
    let mut task = task();
    task.lock_scope = scope(&["app"]);
    let created = ChangeAction::Created;
    assert!(ids(&task, &[("app/[id]/p.tsx", created)], 0).is_empty());
    assert_eq!(ids(&task, &[("@types/x", created)], 0), ["scope:@types/x"]);
}

#[test]
fn safe_paths() {
    let many: Vec<String> = (0..9).map(|n| format!("scope:d{n}/a")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    for (remarks, expected) in [
        (vec!["scope:docs/a.md"], Some(vec!["docs/a.md", "src"])),
        (
            vec!["scope:docs/a.md", "scope:docs/a.md", "scope:lib/[x]/b"],
            Some(vec!["docs/a.md", "lib", "src"]),
        ),
        // What was widened already is settled.
        (vec!["scope:src/a.rs"], None),
        (
            vec!["scope:src/a.rs", "scope:docs/a.md"],
            Some(vec!["docs/a.md", "src"]),
        ),
        (vec!["scope:docs/a.md", "protected:Makefile"], None),
        (vec!["scope:docs/a.md", "denied:x.pem"], None),
        (vec!["scope:docs/a.md", "forbidden:src/gen/a"], None),
        (vec!["scope:docs/a.md", "size:files"], None),
        (vec!["scope:gen/a"], None),
        (vec!["scope:.github/workflows/ci.yml"], None),
        (vec!["scope:[id].tsx"], None),
        (vec!["style", "review:x"], None),
        (vec![], None),
        (many, None),
    ] {
        let mut task = task();
        task.forbidden_scope = scope(&["gen"]);
        task.remarks = remarks
            .iter()
            .map(|id| ReviewRemark {
                id: (*id).to_owned(),
                text: "words".to_owned(),
            })
            .collect();
        let packet = policy_packet(&task);
        assert_eq!(has_safe_path(&task), packet.is_some(), "{remarks:?}");
        let widened = packet.map(|packet| packet.lock_scope);
        let expected = expected.map(|paths| scope(&paths));
        assert_eq!(widened, expected, "{remarks:?}");
    }
}

#[test]
fn a_finding_survives_as_a_remark() {
    let mut task = task();
    let changes = [
        change("docs/a: b.md", ChangeAction::Created),
        change("Makefile", ChangeAction::Modified),
    ];
    let found = findings(&task, &rules(), &changes, 0);
    assert_eq!(found.len(), 3);
    task.remarks = found.iter().map(ReviewRemark::from).collect();
    assert_eq!(open_findings(&task), found);
}

fn blocked(code: BlockReason, waits_for: Option<&str>) -> Task {
    let mut task = task();
    let mut blocker = task.blocker_of(code, "docs/a.md is outside", Timestamp(1));
    blocker.waits_for = waits_for.map(str::to_owned);
    task.blocker = Some(blocker);
    task
}

#[test]
fn packets_after_structural_codes() {
    for (code, paths, expected) in [
        (
            BlockReason::ScopeViolation,
            Some("docs/a.md, docs/b.md"),
            vec!["docs/a.md", "docs/b.md", "src"],
        ),
        (BlockReason::ScopeViolation, Some(".github/x"), vec!["src"]),
        (BlockReason::ScopeViolation, None, vec!["src"]),
        (BlockReason::NonCompliant, Some("docs/a.md"), vec!["src"]),
    ] {
        let mut task = blocked(code, paths);
        let packet = replan_packet(&task);
        assert_eq!(packet.lock_scope, scope(&expected), "{code} {paths:?}");
        assert_eq!(packet.context.len(), 1);
        assert_eq!(packet.commands, task.commands);
        // The next packet tells the newest story only.
        task.context = packet.context;
        assert_eq!(replan_packet(&task).context.len(), 1);
    }
}

#[test]
fn names_that_cannot_be_told_apart_are_not_passed_on() {
    let of = |path: &str| {
        let finding = PolicyFinding::new(PolicyBreach::OutsideScope, path, "");
        paths_of(&[finding])
    };
    assert_eq!(of("a/b"), Some("a/b".to_owned()));
    assert_eq!(of("a, b"), None);
    assert_eq!(of("a\nb"), None);
    assert_eq!(
        paths_of(&[PolicyFinding::new(PolicyBreach::Size, "files", "")]),
        None
    );
}

#[test]
fn commands_are_replaced_and_never_dropped() {
    let mut task = task();
    task.commands = vec!["npm run lint".to_owned(), "npm test".to_owned()];
    let guard = ["just".to_owned(), "ci all".to_owned()];
    for (note, guard, expected) in [
        (
            could_not_run("npm run lint", "missing script"),
            &guard[..],
            ["just 'ci all'", "npm test"],
        ),
        (
            "network".to_owned(),
            &guard[..],
            ["npm run lint", "npm test"],
        ),
        (
            could_not_run("npm test", "x"),
            &[][..],
            ["npm run lint", "npm test"],
        ),
    ] {
        let packet = setup_packet(&task, &note, guard);
        assert_eq!(packet.commands, expected, "{note}");
        assert!(packet.context[0].value.contains(&note));
    }
}
