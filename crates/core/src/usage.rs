//! What iterations used: time, tokens, money; of a run and of each node. What is
//! unknown is counted, never guessed.

use serde::Serialize;

use crate::meta::{ExecutorRun, IterationMeta};

/// The sum over some iterations.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Usage {
    /// How many iterations.
    pub iterations: u32,
    /// Wall time of the iterations.
    pub duration_ms: u64,
    /// The agent's part of it.
    pub agent_ms: u64,
    /// The guard's part of it.
    pub guard_ms: u64,
    /// Input tokens, cached ones included; null when none are known.
    pub input_tokens: Option<u64>,
    /// Input tokens that came from a cache.
    pub cached_input_tokens: Option<u64>,
    /// Output tokens.
    pub output_tokens: Option<u64>,
    /// Iterations of which no tokens are known.
    pub tokens_unknown: u32,
    /// US dollars; null when no cost is known.
    pub cost_usd: Option<f64>,
    /// Iterations whose cost is not known.
    pub cost_unknown: u32,
}

/// What one node used.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct NodeUsage {
    /// The node, or `repair-tree`.
    pub node_id: String,
    /// What its iterations used.
    #[serde(flatten)]
    pub usage: Usage,
}

impl Usage {
    /// The sum over these iterations.
    pub fn of<'m>(metas: impl IntoIterator<Item = &'m IterationMeta>) -> Self {
        let mut usage = Usage::default();
        for meta in metas {
            usage.add(meta);
        }
        usage
    }

    /// Adds one iteration.
    pub fn add(&mut self, meta: &IterationMeta) {
        let run = meta.executor.as_ref();
        let pick = |field: fn(&ExecutorRun) -> Option<u64>| run.and_then(field);
        self.iterations += 1;
        self.duration_ms += meta.duration_ms;
        self.agent_ms += run.map_or(0, |run| run.duration_ms);
        self.guard_ms += meta.guard_run.as_ref().map_or(0, |run| run.duration_ms);
        add(&mut self.input_tokens, pick(|run| run.input_tokens));
        add(
            &mut self.cached_input_tokens,
            pick(|run| run.cached_input_tokens),
        );
        add(&mut self.output_tokens, pick(|run| run.output_tokens));
        self.tokens_unknown += u32::from(pick(ExecutorRun::tokens).is_none());
        match run.and_then(|run| run.cost_usd) {
            Some(cost) => self.cost_usd = Some(self.cost_usd.unwrap_or(0.0) + cost),
            None => self.cost_unknown += 1,
        }
    }

    /// Input and output tokens together, as far as known.
    pub fn tokens(&self) -> Option<u64> {
        match (self.input_tokens, self.output_tokens) {
            (None, None) => None,
            (input, output) => Some(input.unwrap_or(0) + output.unwrap_or(0)),
        }
    }
}

fn add(sum: &mut Option<u64>, more: Option<u64>) {
    if let Some(more) = more {
        *sum = Some(sum.unwrap_or(0) + more);
    }
}

/// What each node used, in the order in which they were first worked on.
pub fn by_node<'m>(metas: impl IntoIterator<Item = &'m IterationMeta>) -> Vec<NodeUsage> {
    let mut nodes: Vec<NodeUsage> = Vec::new();
    let mut places = std::collections::HashMap::new();
    for meta in metas {
        let place = *places.entry(meta.node_id.as_str()).or_insert_with(|| {
            nodes.push(NodeUsage {
                node_id: meta.node_id.clone(),
                usage: Usage::default(),
            });
            nodes.len() - 1
        });
        nodes[place].usage.add(meta);
    }
    nodes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::meta::tests::meta;

    fn used(iter: u32, node: &str, tokens: Option<u64>, cost: Option<f64>) -> IterationMeta {
        let mut meta = meta(iter, node);
        meta.duration_ms = 10;
        meta.executor = Some(ExecutorRun {
            duration_ms: 7,
            input_tokens: tokens,
            output_tokens: tokens.map(|tokens| tokens / 10),
            cost_usd: cost,
            ..ExecutorRun::default()
        });
        meta
    }

    #[test]
    fn what_is_unknown_is_counted_and_never_zero() {
        let metas = [
            used(1, "a", Some(100), Some(0.5)),
            used(2, "b", None, None),
            used(3, "a", Some(50), None),
        ];
        let all = Usage::of(&metas);
        assert_eq!((all.iterations, all.duration_ms, all.agent_ms), (3, 30, 21));
        assert_eq!((all.tokens(), all.tokens_unknown), (Some(165), 1));
        assert_eq!((all.cost_usd, all.cost_unknown), (Some(0.5), 2));
        let nodes = by_node(&metas);
        assert_eq!(nodes.len(), 2);
        assert_eq!((&*nodes[0].node_id, nodes[0].usage.iterations), ("a", 2));
        let b = &nodes[1].usage;
        assert_eq!((b.tokens(), b.cost_usd, b.cost_unknown), (None, None, 1));
    }
}
