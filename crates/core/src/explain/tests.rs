//! Tests of the reasons.

use proptest::prelude::*;

use super::*;
use crate::tree::tests::{any_tree, plan};

#[test]
fn reasons() {
    let leftmost = "it is the leftmost open leaf: siblings are taken by order, then id";
    for (tree, id, expected) in [
        (
            "root(a b)",
            None,
            Some(("root/a", "next", vec![leftmost, "attempts used: 0 of 3"])),
        ),
        (
            "root(p+ a*1/2)",
            Some("a"),
            Some(("root/a", "next", vec![leftmost, "attempts used: 1 of 2"])),
        ),
        (
            "root(a*3 b)",
            None,
            Some((
                "root/a",
                "stuck",
                vec![
                    "it is the leftmost open leaf",
                    "but all 3 of its attempts are used up: the loop stops here until a person acts",
                ],
            )),
        ),
        (
            "root+(a+)",
            None,
            Some((
                "root",
                "complete",
                vec!["every leaf has passed: there is nothing left to do"],
            )),
        ),
        (
            "root+(a+)",
            Some("a"),
            Some((
                "root/a",
                "passed",
                vec!["it has passed: an agent said done and the guard was green"],
            )),
        ),
        (
            "root+(a+)",
            Some("root"),
            Some((
                "root",
                "passed",
                vec!["it has passed: all of its children have"],
            )),
        ),
        (
            "root(p(a+ b) c)",
            Some("p"),
            Some((
                "root/p",
                "waiting",
                vec!["it has children and passes when all of them have (1 of 2 leaves passed)"],
            )),
        ),
        (
            "root(a b)",
            Some("b"),
            Some((
                "root/b",
                "waiting",
                vec!["root/a comes first: a and b have the same order 0, and ids decide"],
            )),
        ),
        (
            "root(p@-1(a) q@2(b*3))",
            Some("b"),
            Some((
                "root/q/b",
                "waiting",
                vec![
                    "root/p/a comes first: p has order -1, q has order 2",
                    "all 3 of its attempts are used up: it would be stuck",
                ],
            )),
        ),
        (
            "root(p(a*3 b))",
            Some("b"),
            Some((
                "root/p/b",
                "waiting",
                vec!["root/p/a comes first: a and b have the same order 0, and ids decide"],
            )),
        ),
        ("root(a b)", Some("x"), None),
    ] {
        let expected = expected.map(|(path, state, reasons)| NodeReasons {
            path: path.to_owned(),
            state,
            reasons: reasons.into_iter().map(str::to_owned).collect(),
        });
        assert_eq!(why(&plan(tree), id), expected, "{tree} {id:?}");
    }
}

proptest! {
    #[test]
    fn exactly_one_node_is_next_and_all_have_reasons(root in any_tree(20)) {
        let mut taken = 0;
        for node in root.walk() {
            let answer = why(&root, Some(&node.id)).unwrap();
            prop_assert_eq!(node.passes, answer.state == "passed");
            prop_assert!(!answer.reasons.is_empty());
            prop_assert_eq!(Some(answer.path.clone()), root.path_of(&node.id));
            if matches!(answer.state, "next" | "stuck") {
                taken += 1;
                prop_assert_eq!(why(&root, None), Some(answer));
            }
        }
        prop_assert_eq!(taken, u32::from(!root.passes));
    }
}
