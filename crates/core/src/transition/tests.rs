//! Tests of the runner-owned fields.

use super::*;
use crate::tree::tests::{plan, sketch};
use AgentStatus::{Decomposed, Done, Retry};
use GuardResult::{Fail, Pass, Skipped};

/// The tree and the newly passed ids after one outcome.
fn applied(
    before: &str,
    selected: &str,
    status: AgentStatus,
    guard: GuardResult,
) -> (String, Vec<String>) {
    let mut root = plan(before);
    let passed = apply(&mut root, selected, status, guard);
    (sketch(&root), passed)
}

#[test]
fn every_status_with_every_guard() {
    for (status, guard, expected) in [
        (Done, Pass, "root(p+(a+) s+*1 z*2)"),
        (Done, Fail, "root(p+(a+) s*2 z*2)"),
        (Done, Skipped, "root(p+(a+) s*1 z*2)"),
        (Retry, Pass, "root(p+(a+) s*2 z*2)"),
        (Retry, Fail, "root(p+(a+) s*2 z*2)"),
        (Retry, Skipped, "root(p+(a+) s*2 z*2)"),
        (Decomposed, Pass, "root(p+(a+) s*1 z*2)"),
        (Decomposed, Fail, "root(p+(a+) s*1 z*2)"),
        (Decomposed, Skipped, "root(p+(a+) s*1 z*2)"),
    ] {
        let passed = if guard == Pass && status == Done {
            vec!["s".to_owned()]
        } else {
            vec![]
        };
        assert_eq!(
            applied("root(p+(a+) s*1 z*2)", "s", status, guard),
            (expected.to_owned(), passed),
            "{status} {guard}"
        );
    }
    // Nothing happens to a tree without the node.
    let unknown = applied("root(a b+)", "x", Done, Pass);
    assert_eq!(unknown, ("root(a b+)".to_owned(), vec![]));
}

#[test]
fn attempts_end_at_the_maximum() {
    for (status, guard) in [(Retry, Skipped), (Done, Fail)] {
        for (before, after) in [
            ("s", "s*1"),
            ("s*2", "s*3"),
            ("s*3", "s*3"),
            ("s/1", "s*1/1"),
            ("s*1/1", "s*1/1"),
            ("s*4294967294/4294967295", "s*4294967295/4294967295"),
            ("s*4294967295/4294967295", "s*4294967295/4294967295"),
        ] {
            assert_eq!(applied(before, "s", status, guard).0, after);
        }
    }
    // The last attempt may still pass, and so may one that a person granted.
    assert_eq!(applied("s*2", "s", Done, Pass).0, "s+*2");
    assert_eq!(applied("s*3", "s", Done, Pass).0, "s+*3");
}

#[test]
fn parents_pass_with_the_last_of_their_children() {
    for (before, after, passed) in [
        ("s", "s+", "s"),
        ("root(s)", "root+(s+)", "s root"),
        ("root(a s)", "root(a s+)", "s"),
        ("root(a+ s)", "root+(a+ s+)", "s root"),
        (
            "root(p(q(a+ s) b+) r+(c+))",
            "root+(p+(q+(a+ s+) b+) r+(c+))",
            "s q p root",
        ),
        ("root(p(q(s) b) r+(c+))", "root(p(q+(s+) b) r+(c+))", "s q"),
        // A parent that was left behind is derived too; what had passed is not told again.
        ("root(p(a+) s z)", "root(p+(a+) s+ z)", "s p"),
    ] {
        let (tree, ids) = applied(before, "s", Done, Pass);
        assert_eq!((&*tree, &*ids.join(" ")), (after, passed), "{before}");
    }
    let left_behind = applied("root(p(q(a+)) s)", "s", Retry, Skipped);
    assert_eq!(left_behind.0, "root(p+(q+(a+)) s*1)");
    assert_eq!(left_behind.1, ["q", "p"]);
    // A claim without cover is taken back, whatever happened.
    assert_eq!(
        applied("root+(p+(a) s)", "s", Decomposed, Skipped).0,
        "root(p(a) s)"
    );
}

#[test]
fn owned_fields_come_from_before() {
    let before = "root(p+*1(a+*2) s*1 z*3/5)";
    for (left, expected) in [
        (before, before),
        // Forged: a pass, a withdrawn pass, attempts and their maximum up and down.
        ("root+(p+*1(a+*2) s+*1 z+*3/5)", before),
        ("root(p*1(a*2) s*1 z*3/5)", before),
        ("root*9/9(p(a) s*0/99 z*0/1)", before),
        ("root(p+*7/1(a+*7/1) s*7/1 z*7/1)", before),
        // Moved and new ones, which start open with no more than the default (4).
        ("root(z(s+*9))", "root(z*3/5(s*1))"),
        ("root(new+*2(n+*1/9 z) m/4)", "root(new(n/4 z*3/5) m/4)"),
        ("root(n/1 s(k+/2(l+)))", "root(n/1 s*1(k/2(l)))"),
        ("top+*3(root)", "top(root)"),
    ] {
        let mut root = plan(left);
        reset_owned_fields(&plan(before), &mut root, 4);
        assert_eq!(sketch(&root), expected, "{left}");
    }
    // Nothing else is touched, not even the order of children.
    let mut root = plan("root(z p(a))");
    root.goal = "another".into();
    let mut expected = plan("root(z*3/5 p+*1(a+*2))");
    expected.goal = "another".into();
    reset_owned_fields(&plan(before), &mut root, 4);
    assert_eq!(root, expected);
}
