//! Tests of the tree, and the builders that other tests share.

mod forms;
mod parsing;
mod properties;

use std::borrow::Cow;
use std::fmt::Write as _;
use std::sync::LazyLock;

use proptest::prelude::*;
use serde_json::{Value, json};

pub(super) use super::*;

/// A tree from a sketch such as `root(a+ b*1/5 c@2(d))`: `+` has passed, `*1`
/// attempts are used, `/5` may be (else 3), `@2` is the order (else 0).
pub(crate) fn plan(sketch: &str) -> Node<'static> {
    let mut rest = sketch;
    let root = read_node(&mut rest);
    assert_eq!(rest, "", "{sketch}");
    root
}

fn read_node(rest: &mut &str) -> Node<'static> {
    let id = read_word(rest);
    let mut node = Node::leaf(
        id.clone(),
        format!("title of {id}"),
        format!("goal of {id}"),
        3,
    );
    node.acceptance = vec![format!("{id} works").into()];
    while let Some(mark) = rest.chars().next().filter(|mark| "+*/@(".contains(*mark)) {
        *rest = &rest[1..];
        match mark {
            '+' => node.passes = true,
            '*' => node.attempts = read_word(rest).parse().unwrap(),
            '/' => node.max_attempts = read_word(rest).parse().unwrap(),
            '@' => node.order = read_word(rest).parse().unwrap(),
            _ => loop {
                node.children.push(read_node(rest));
                let end = rest.starts_with(')');
                *rest = &rest[1..];
                if end {
                    break;
                }
            },
        }
    }
    node
}

fn read_word(rest: &mut &str) -> String {
    let end = rest.find(|c| "+*/@() ".contains(c)).unwrap_or(rest.len());
    let (word, tail) = rest.split_at(end);
    *rest = tail;
    word.to_owned()
}

/// The sketch of a tree, texts left out.
pub(crate) fn sketch(node: &Node<'_>) -> String {
    let mut text = node.id.to_string();
    if node.passes {
        text.push('+');
    }
    for (mark, value, usual) in [
        ('*', i64::from(node.attempts), 0),
        ('/', i64::from(node.max_attempts), 3),
        ('@', node.order, 0),
    ] {
        if value != usual {
            let _ = write!(text, "{mark}{value}");
        }
    }
    if !node.is_leaf() {
        let children: Vec<String> = node.children.iter().map(sketch).collect();
        let _ = write!(text, "({})", children.join(" "));
    }
    text
}

/// Takes the node with this id, which is not the root, out of the tree.
pub(crate) fn take(root: &mut Node<'static>, id: &str) -> Option<Node<'static>> {
    if let Some(at) = root.children.iter().position(|child| child.id == id) {
        return Some(root.children.remove(at));
    }
    root.children.iter_mut().find_map(|child| take(child, id))
}

/// Any valid tree of at most so many nodes (and levels), inner nodes derived.
pub(crate) fn any_tree(max_nodes: usize) -> impl Strategy<Value = Node<'static>> {
    let node = (
        any::<prop::sample::Index>(),
        -2_i64..3,
        any::<bool>(),
        (0_u32..4, 0_u32..4),
        "(?s).{0,6}",
        prop::collection::vec("[ -~\n\"é]{0,6}", 0..3),
    );
    prop::collection::vec(node, 1..=max_nodes).prop_map(|nodes| {
        let mut parents = Vec::new();
        let mut built = Vec::new();
        for (i, (parent, order, passes, (attempts, more), text, acceptance)) in
            nodes.into_iter().enumerate()
        {
            parents.push(if i == 0 { 0 } else { parent.index(i) });
            built.push(Node {
                id: format!("n{i}").into(),
                order,
                title: text.clone().into(),
                goal: text.into(),
                acceptance: acceptance.into_iter().map(Cow::Owned).collect(),
                passes,
                attempts,
                max_attempts: (attempts + more).max(1),
                children: Vec::new(),
            });
        }
        while let (Some(parent), true) = (parents.pop(), built.len() > 1) {
            let mut node = built.pop().unwrap();
            derive(&mut node);
            built[parent].children.push(node);
        }
        let mut root = built.pop().unwrap();
        derive(&mut root);
        root.sort();
        root
    })
}

fn derive(node: &mut Node<'_>) {
    if !node.is_leaf() {
        node.passes = node.children.iter().all(|child| child.passes);
    }
}

/// Bytes that were a document once: each change sets, inserts, removes or cuts.
pub(crate) fn damaged(mut bytes: Vec<u8>, damages: &[(prop::sample::Index, u8, u8)]) -> Vec<u8> {
    for (place, kind, byte) in damages {
        let at = place.index(bytes.len() + 1);
        match kind % 8 {
            0 => bytes.truncate(at),
            1..=3 => bytes.insert(at, *byte),
            4 | 5 if at < bytes.len() => drop(bytes.remove(at)),
            _ if at < bytes.len() => bytes[at] = *byte,
            _ => {}
        }
    }
    bytes
}
