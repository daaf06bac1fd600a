//! Tests of the selection.

use proptest::prelude::*;

use super::*;
use crate::tree::tests::{any_tree, plan};

fn selected(root: &Node<'_>) -> String {
    match select(root) {
        Selection::Open(target) => format!("open {}", target.path()),
        Selection::Stuck(target) => format!("stuck {}", target.path()),
        Selection::Complete => "complete".to_owned(),
    }
}

#[test]
fn the_leftmost_open_leaf() {
    for (tree, expected) in [
        ("root", "open root"),
        ("root+", "complete"),
        ("root(a b)", "open root/a"),
        ("root(b a)", "open root/a"),
        ("root(a@1 b)", "open root/b"),
        ("root(a@-1 b@-2)", "open root/b"),
        ("root(a10 a9)", "open root/a10"),
        ("root(a B)", "open root/B"),
        ("root(a+ b)", "open root/b"),
        ("root(p(a(x y) b) z)", "open root/p/a/x"),
        ("root(p(a(x+ y) b) z)", "open root/p/a/y"),
        ("root(p(a+(x+ y+) b) z)", "open root/p/b"),
        ("root(p+(a+(x+ y+) b+) z)", "open root/z"),
        // A part of an early parent comes before a leaf that is early by itself.
        ("root(p(z@9) a@1)", "open root/p/z"),
        ("root+(p+(a+) b+)", "complete"),
        ("root(a*2 b)", "open root/a"),
        ("root(a*3 b)", "stuck root/a"),
        ("root(a*3/4 b)", "open root/a"),
        ("root(a+*3 b)", "open root/b"),
        ("root(a b*3)", "open root/a"),
        // Only a leaf's own attempts count.
        ("root*3(a*1/1)", "stuck root/a"),
        ("root*3(a)", "open root/a"),
        // Never passed over, even if a parent was not derived yet.
        ("root(a(x+) b)", "open root/b"),
        ("root(a(x+))", "complete"),
    ] {
        let mut root = plan(tree);
        root.sort();
        assert_eq!(selected(&root), expected, "{tree}");
    }
}

proptest! {
    #[test]
    fn everything_to_the_left_has_passed(root in any_tree(30)) {
        let leaves: Vec<&Node<'_>> = root.walk().filter(|node| node.is_leaf()).collect();
        let selection = select(&root);
        let (Selection::Open(target) | Selection::Stuck(target)) = &selection else {
            prop_assert!(root.passes && leaves.iter().all(|leaf| leaf.passes));
            return Ok(());
        };
        let node = target.node;
        prop_assert!(!node.passes && node.is_leaf() && !root.passes);
        let left = leaves.iter().take_while(|leaf| leaf.id != node.id);
        prop_assert!(left.into_iter().all(|leaf| leaf.passes));
        prop_assert_eq!(Some(target.path()), root.path_of(&node.id));
        let used_up = node.attempts == node.max_attempts;
        prop_assert_eq!(matches!(selection, Selection::Stuck(_)), used_up);
    }
}
