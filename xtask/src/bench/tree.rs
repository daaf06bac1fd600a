//! Generated trees, and the bare parse that reading one is compared with.

use std::fs;

use serde::{Deserialize, Serialize};

use crate::failure::{FailureContext as _, TaskFailure, TaskResult};

/// A node as tree.json spells it, with nothing but its fields.
#[derive(Debug, Deserialize, Serialize)]
pub(super) struct BenchNode {
    id: String,
    order: i64,
    title: String,
    goal: String,
    acceptance: Vec<String>,
    passes: bool,
    attempts: u32,
    max_attempts: u32,
    children: Vec<BenchNode>,
}

/// Mode `__parse FILE`: reads the file and parses it into owned structs.
pub(super) fn helper(words: &[String]) -> TaskResult<()> {
    let [path] = words else {
        return Err(TaskFailure::usage("__parse FILE"));
    };
    let bytes = fs::read(path).context(path)?;
    let root: BenchNode = serde_json::from_slice(&bytes).context(path)?;
    // Kept from being optimised away; and not freed, because a program that has
    // its answer just ends.
    std::hint::black_box(&root);
    std::mem::forget(root);
    Ok(())
}

/// The bytes of a tree of exactly `nodes` nodes on three levels, the first half
/// of its leaves passed. The same for every call.
pub(super) fn generate(nodes: usize) -> TaskResult<Vec<u8>> {
    let mut random = Random(0x5eed);
    let below_root = nodes.saturating_sub(1);
    // Groups about as many as leaves in each.
    let groups = below_root.isqrt().max(1);
    let leaves = below_root.saturating_sub(groups);
    let passed_leaves = leaves / 2;
    let mut made = 0;
    let mut root = random.node("root".to_owned(), 0);
    for group in 0..groups {
        let mut parent = random.node(format!("g{group:05}"), group);
        // Evenly spread, to the last leaf.
        let end = leaves * (group + 1) / groups;
        for leaf in made..end {
            let mut node = random.node(format!("g{group:05}.n{leaf:07}"), leaf);
            node.passes = leaf < passed_leaves;
            parent.children.push(node);
        }
        made = end;
        parent.passes = parent.children.iter().all(|leaf| leaf.passes);
        root.children.push(parent);
    }
    let mut bytes = serde_json::to_vec_pretty(&root).context("the generated tree")?;
    bytes.push(b'\n');
    Ok(bytes)
}

/// A linear congruential generator: the same words on every machine.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        // The high bits are the random ones.
        usize::try_from(self.0 >> 33).unwrap_or(0) % limit
    }

    fn words(&mut self, count: usize) -> String {
        const WORDS: [&str; 16] = [
            "parse", "the", "header", "of", "every", "request", "and", "reject", "what", "is",
            "too", "long", "with", "a", "clear", "message",
        ];
        let words: Vec<&str> = (0..count).map(|_| WORDS[self.below(WORDS.len())]).collect();
        words.join(" ")
    }

    /// An open node of 300 to 900 bytes of text and layout.
    fn node(&mut self, id: String, order: usize) -> BenchNode {
        let title_words = 4 + self.below(5);
        let goal_words = 12 + self.below(40);
        let criteria = 1 + self.below(3);
        BenchNode {
            id,
            order: i64::try_from(order).unwrap_or(i64::MAX),
            title: self.words(title_words),
            goal: self.words(goal_words),
            acceptance: (0..criteria).map(|_| self.words(10)).collect(),
            passes: false,
            attempts: 0,
            // A step that does not ask the guard uses one up each time.
            max_attempts: 1_000,
            children: Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trees_are_the_same_every_time_and_as_large_as_asked() {
        for nodes in [1_000, 1_234] {
            let bytes = generate(nodes).unwrap();
            assert_eq!(bytes, generate(nodes).unwrap());
            let per_node = bytes.len() / nodes;
            assert!((300..900).contains(&per_node), "{per_node}");

            let root: BenchNode = serde_json::from_slice(&bytes).unwrap();
            let leaves: Vec<&BenchNode> = root
                .children
                .iter()
                .flat_map(|node| &node.children)
                .collect();
            assert_eq!(1 + root.children.len() + leaves.len(), nodes);
            let passed = leaves.iter().filter(|leaf| leaf.passes).count();
            assert_eq!(passed, leaves.len() / 2);
            assert!(leaves[..passed].iter().all(|leaf| leaf.passes));
            assert!(leaves.iter().all(|leaf| leaf.children.is_empty()));
            assert!(!root.passes && root.children[0].passes);
        }
    }
}
