//! The figures of `bench ui`.

use std::fmt::Write as _;
use std::time::Duration;

use serde_json::{Value, json};

use crate::failure::{FailureContext as _, TaskResult};

/// All figures of one run.
#[derive(Debug, Default)]
pub(super) struct UiReport {
    pub(super) runs: usize,
    pub(super) nodes: usize,
    pub(super) floor: UiLatency,
    pub(super) small: UiLatency,
    pub(super) large: UiLatency,
    pub(super) transfers: Vec<UiTransfer>,
    pub(super) memory: UiMemory,
}

/// How long something took.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct UiLatency {
    pub(super) p50_ms: f64,
    pub(super) p95_ms: f64,
}

impl UiLatency {
    pub(super) fn of(mut samples: Vec<Duration>) -> Self {
        samples.sort_unstable();
        let at = |percent: usize| {
            let index = (samples.len() * percent / 100).min(samples.len().saturating_sub(1));
            samples
                .get(index)
                .map_or(0.0, |time| time.as_secs_f64() * 1e3)
        };
        UiLatency {
            p50_ms: at(50),
            p95_ms: at(95),
        }
    }

    fn json(self) -> Value {
        json!({"p50_ms": self.p50_ms, "p95_ms": self.p95_ms})
    }
}

/// One sort of answer.
#[derive(Debug)]
pub(super) struct UiTransfer {
    pub(super) name: &'static str,
    pub(super) bytes: usize,
    pub(super) per_second: f64,
    pub(super) floor_per_second: f64,
}

impl UiTransfer {
    /// How much of what is possible.
    fn ratio(&self) -> f64 {
        self.per_second / self.floor_per_second.max(f64::MIN_POSITIVE)
    }
}

/// What listeners cost.
#[derive(Debug, Default)]
pub(super) struct UiMemory {
    pub(super) clients: usize,
    pub(super) alone_kib: u64,
    pub(super) with_kib: u64,
    pub(super) told_kib: u64,
    /// Until the last of them was told.
    pub(super) all_told: UiLatency,
}

impl UiMemory {
    #[allow(clippy::cast_precision_loss)] // Far below 2^52.
    fn each_kib(&self) -> f64 {
        let most = self.told_kib.max(self.with_kib);
        let more = most.saturating_sub(self.alone_kib);
        more as f64 / self.clients.max(1) as f64
    }
}

impl UiReport {
    pub(super) fn table(&self) -> String {
        let mut text = format!(
            "from a rename to its event, {} changes, less the 100 ms of gathering\n\n\
             {:<28}{:>10}{:>10}\n",
            self.runs, "", "p50 ms", "p95 ms"
        );
        let all = format!("{} listeners, the last one", self.memory.clients);
        let large = format!("tree of {} nodes", self.nodes);
        for (name, latency) in [
            ("the kernel's report (floor)", self.floor),
            ("tree of 10 nodes", self.small),
            (large.as_str(), self.large),
            (all.as_str(), self.memory.all_told),
        ] {
            let _ = writeln!(
                text,
                "{name:<28}{:>10.2}{:>10.2}",
                latency.p50_ms, latency.p95_ms
            );
        }
        let _ = writeln!(
            text,
            "\nGET /api/tree, {} nodes, 4 clients\n\n{:<16}{:>12}{:>12}{:>12}{:>9}",
            self.nodes, "", "bytes", "answers/s", "floor/s", "x floor"
        );
        for it in &self.transfers {
            let _ = writeln!(
                text,
                "{:<16}{:>12}{:>12.0}{:>12.0}{:>9.2}",
                it.name,
                it.bytes,
                it.per_second,
                it.floor_per_second,
                it.ratio()
            );
        }
        let memory = &self.memory;
        let _ = writeln!(
            text,
            "\nresident memory, with that tree read: {} KiB alone, {} KiB with {} listeners, \
             {} KiB after 20 events: at most {:.1} KiB each",
            memory.alone_kib,
            memory.with_kib,
            memory.clients,
            memory.told_kib,
            memory.each_kib()
        );
        text
    }

    pub(super) fn json(&self) -> TaskResult<String> {
        let transfers: Vec<Value> = self
            .transfers
            .iter()
            .map(|it| {
                json!({
                    "name": it.name,
                    "bytes": it.bytes,
                    "per_second": it.per_second,
                    "floor_per_second": it.floor_per_second,
                    "ratio": it.ratio(),
                })
            })
            .collect();
        let value = json!({
            "schema_version": 1,
            "runs": self.runs,
            "nodes": self.nodes,
            "event": {
                "floor": self.floor.json(),
                "small_tree": self.small.json(),
                "large_tree": self.large.json(),
                "all_listeners": self.memory.all_told.json(),
            },
            "tree": transfers,
            "memory": {
                "clients": self.memory.clients,
                "alone_kib": self.memory.alone_kib,
                "with_clients_kib": self.memory.with_kib,
                "after_events_kib": self.memory.told_kib,
                "each_kib": self.memory.each_kib(),
            },
        });
        serde_json::to_string_pretty(&value).context("the figures")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles() {
        let samples: Vec<_> = (1..=100).rev().map(Duration::from_millis).collect();
        let latency = UiLatency::of(samples);
        assert!((latency.p50_ms - 51.0).abs() < 0.01, "{latency:?}");
        assert!((latency.p95_ms - 96.0).abs() < 0.01, "{latency:?}");
        assert!(UiLatency::of(Vec::new()).p95_ms.abs() < 0.01);
    }
}
