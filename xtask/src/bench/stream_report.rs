//! The figures of `bench stream`.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::measure::BenchMedians;
use super::report::{BenchAim, ratio};
use super::stream::difference;
use crate::failure::{FailureContext as _, TaskResult};

/// The whole step may cost so many times the CPU of reading and parsing alone.
const AIM_CPU: f64 = 1.5;
/// Ten times the events may need so many times the memory.
const AIM_MEMORY: f64 = 1.2;

/// All figures of one run.
#[derive(Debug, Default)]
pub(super) struct StreamReport {
    pub(super) runs: usize,
    pub(super) lines: u64,
    pub(super) line_bytes: usize,
    /// A step whose session prints all lines; the generator's CPU is left out of all.
    pub(super) many: BenchMedians,
    /// One whose session prints a tenth of them.
    pub(super) few: BenchMedians,
    pub(super) floor: BenchMedians,
    pub(super) sandboxes: Vec<StreamSandbox>,
}

/// A step by one mechanism.
#[derive(Debug)]
pub(super) struct StreamSandbox {
    pub(super) name: String,
    pub(super) step: BenchMedians,
}

impl StreamReport {
    fn aims(&self) -> [BenchAim; 2] {
        [
            BenchAim {
                what: "cpu",
                is: ratio(self.many.cpu_ms, self.floor.cpu_ms),
                at_most: AIM_CPU,
            },
            BenchAim {
                what: "memory",
                is: ratio(self.many.peak_mb, self.few.peak_mb),
                at_most: AIM_MEMORY,
            },
        ]
    }

    pub(super) fn missed_aims(&self) -> usize {
        self.aims().iter().filter(|aim| !aim.is_met()).count()
    }

    pub(super) fn table(&self) -> String {
        let mut text = format!(
            "{} events of {} bytes on average, medians of {} runs, measured by turns, \
             the generator's own CPU left out\n\n",
            self.lines, self.line_bytes, self.runs
        );
        text += "                        cpu ms  x floor   wall ms  peak MB  aims\n";
        let aims: Vec<String> = self.aims().iter().map(BenchAim::text).collect();
        let rows = [
            ("read and parse (floor)", &self.floor, String::new()),
            ("step, all events", &self.many, aims.join(", ")),
            ("step, a tenth", &self.few, String::new()),
        ];
        for (name, medians, aims) in rows {
            let row = format!(
                "{name:<22}{:>8.1}{:>9.2}{:>10.1}{:>9.1}  {aims}",
                medians.cpu_ms,
                ratio(medians.cpu_ms, self.floor.cpu_ms),
                medians.wall_ms,
                medians.peak_mb,
            );
            text += row.trim_end();
            text.push('\n');
        }
        text += "\none step, by sandbox   wall ms    + ms    cpu ms    + ms\n";
        for (sandbox, more) in self.sandboxes() {
            let _ = writeln!(
                text,
                "{:<22}{:>8.1}{:>8.1}{:>10.1}{:>8.1}",
                sandbox.name, sandbox.step.wall_ms, more.wall_ms, sandbox.step.cpu_ms, more.cpu_ms,
            );
        }
        text
    }

    /// Each with what it costs more than none.
    fn sandboxes(&self) -> impl Iterator<Item = (&StreamSandbox, BenchMedians)> {
        let off = self
            .sandboxes
            .first()
            .map(|off| off.step)
            .unwrap_or_default();
        self.sandboxes
            .iter()
            .map(move |sandbox| (sandbox, difference(&sandbox.step, &off)))
    }

    pub(super) fn json(&self) -> TaskResult<String> {
        let sandboxes: Vec<Value> = self
            .sandboxes()
            .map(|(sandbox, more)| {
                json!({"name": sandbox.name, "step": sandbox.step.json(), "more": more.json()})
            })
            .collect();
        let value = json!({
            "schema_version": 1,
            "runs": self.runs,
            "lines": self.lines,
            "line_bytes": self.line_bytes,
            "floor": self.floor.json(),
            "step": self.many.json(),
            "step_with_a_tenth": self.few.json(),
            "cpu_ratio": ratio(self.many.cpu_ms, self.floor.cpu_ms),
            "memory_ratio": ratio(self.many.peak_mb, self.few.peak_mb),
            "sandboxes": sandboxes,
            "missed_aims": self.missed_aims(),
        });
        serde_json::to_string_pretty(&value).context("the report")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn aims_and_differences() {
        let medians = |ms: f64, peak_mb: f64| BenchMedians {
            wall_ms: ms,
            cpu_ms: ms,
            peak_mb,
        };
        let sandbox = |name: &str, ms: f64| StreamSandbox {
            name: name.to_owned(),
            step: medians(ms, 9.0),
        };
        let mut report = StreamReport {
            runs: 7,
            lines: 1_000_000,
            line_bytes: 260,
            many: medians(1_400.0, 12.0),
            few: medians(200.0, 11.0),
            floor: medians(1_000.0, 4.0),
            sandboxes: vec![sandbox("off", 50.0), sandbox("landlock", 55.0)],
        };
        assert_eq!(report.missed_aims(), 0);
        let table = report.table();
        for text in ["cpu <= 1.5: met, memory <= 1.2: met", "landlock", "5.0"] {
            assert!(table.contains(text), "{text}\n{table}");
        }
        report.many = medians(1_600.0, 110.0);
        assert_eq!(report.missed_aims(), 2);
        let json: Value = serde_json::from_str(&report.json().unwrap()).unwrap();
        assert_eq!(json["cpu_ratio"], 1.6);
        assert_eq!(json["sandboxes"][1]["more"]["wall_ms"], 5.0);
    }
}
