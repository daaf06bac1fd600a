//! The figures: as a table for people, as JSON for scripts.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde_json::{Value, json};

use super::measure::BenchMedians;
use crate::cmd::ToolCommand;
use crate::failure::{FailureContext as _, TaskResult};

/// `select` may cost so many times the CPU of a bare parse.
const AIM_SELECT_CPU: f64 = 1.5;
/// `select` may need so many times the file's size in memory.
const AIM_SELECT_MEMORY: f64 = 2.5;
/// From this size on: below it the program itself outweighs the tree.
const AIM_SELECT_FROM_MB: f64 = 10.0;
/// A step may take so many times its floor, up to this many nodes.
const AIM_STEP: [(usize, f64); 2] = [(10_000, 1.3), (usize::MAX, 1.6)];

/// Medians of reading one tree.
#[derive(Debug, Default)]
pub(super) struct BenchReading {
    pub(super) nodes: usize,
    pub(super) file_mb: f64,
    pub(super) parse: BenchMedians,
    pub(super) select: BenchMedians,
    pub(super) validate: BenchMedians,
}

/// Medians of one step over a tree.
#[derive(Debug, Default)]
pub(super) struct BenchStep {
    pub(super) nodes: usize,
    pub(super) runner: BenchMedians,
    pub(super) floor: BenchMedians,
    pub(super) bare_git: BenchMedians,
    /// The programs that a step starts, in order.
    pub(super) programs: Vec<String>,
}

/// All figures of one run, and what they were measured on.
#[derive(Debug)]
pub(super) struct BenchReport {
    cores: usize,
    git: String,
    runs: usize,
    pub(super) reading: Vec<BenchReading>,
    pub(super) step: Vec<BenchStep>,
}

impl BenchReport {
    pub(super) fn new(runs: usize) -> TaskResult<Self> {
        let git = ToolCommand::new("git").arg("--version").stdout()?;
        Ok(Self {
            cores: std::thread::available_parallelism()
                .context("the cores")?
                .get(),
            git: String::from_utf8_lossy(&git).trim().to_owned(),
            runs,
            reading: Vec::new(),
            step: Vec::new(),
        })
    }

    /// How many aims the figures miss.
    pub(super) fn missed_aims(&self) -> usize {
        let reading = self.reading.iter().flat_map(BenchReading::aims);
        let step = self.step.iter().map(BenchStep::aim);
        reading.chain(step).filter(|aim| !aim.is_met()).count()
    }

    pub(super) fn table(&self) -> String {
        let mut text = format!(
            "{} cores, {}, medians of {} runs, measured by turns\n\n",
            self.cores, self.git, self.runs
        );
        // Headings as wide as the columns of `rows`.
        text += "reading      nodes  file MB    cpu ms  x parse   wall ms  x parse  peak MB  x file  aims\n";
        for reading in &self.reading {
            text += &reading.rows();
        }
        text += "\none step     nodes   wall ms  x floor  x bare git    cpu ms  aim\n";
        for step in &self.step {
            text += &step.rows();
        }
        text.push('\n');
        for step in &self.step {
            let _ = writeln!(text, "{}", step.programs_line());
        }
        text
    }

    pub(super) fn json(&self) -> TaskResult<String> {
        let value = json!({
            "schema_version": 1,
            "cores": self.cores,
            "git": self.git,
            "runs": self.runs,
            "reading": self.reading.iter().map(BenchReading::json).collect::<Vec<_>>(),
            "step": self.step.iter().map(BenchStep::json).collect::<Vec<_>>(),
            "missed_aims": self.missed_aims(),
        });
        serde_json::to_string_pretty(&value).context("the report")
    }
}

impl BenchReading {
    fn aims(&self) -> Vec<BenchAim> {
        let mut aims = vec![BenchAim {
            what: "cpu",
            is: ratio(self.select.cpu_ms, self.parse.cpu_ms),
            at_most: AIM_SELECT_CPU,
        }];
        if self.file_mb >= AIM_SELECT_FROM_MB {
            aims.push(BenchAim {
                what: "memory",
                is: ratio(self.select.peak_mb, self.file_mb),
                at_most: AIM_SELECT_MEMORY,
            });
        }
        aims
    }

    fn rows(&self) -> String {
        let row = |name: &str, medians: &BenchMedians, aims: &[BenchAim]| {
            let aims: Vec<String> = aims.iter().map(BenchAim::text).collect();
            format!(
                "{name:<10}{:>8}{:>9.1}{:>10.1}{:>9.2}{:>10.1}{:>9.2}{:>9.1}{:>8.2}  {}\n",
                self.nodes,
                self.file_mb,
                medians.cpu_ms,
                ratio(medians.cpu_ms, self.parse.cpu_ms),
                medians.wall_ms,
                ratio(medians.wall_ms, self.parse.wall_ms),
                medians.peak_mb,
                ratio(medians.peak_mb, self.file_mb),
                aims.join(", ")
            )
        };
        row("parse", &self.parse, &[])
            + &row("select", &self.select, &self.aims())
            + &row("validate", &self.validate, &[])
    }

    fn json(&self) -> Value {
        json!({
            "nodes": self.nodes,
            "file_mb": self.file_mb,
            "parse": self.parse.json(),
            "select": self.select.json(),
            "validate": self.validate.json(),
            "select_cpu_ratio": ratio(self.select.cpu_ms, self.parse.cpu_ms),
            "select_memory_ratio": ratio(self.select.peak_mb, self.file_mb),
            "validate_cpu_ratio": ratio(self.validate.cpu_ms, self.parse.cpu_ms),
        })
    }
}

impl BenchStep {
    fn aim(&self) -> BenchAim {
        let (_, at_most) = AIM_STEP
            .into_iter()
            .find(|(up_to, _)| self.nodes <= *up_to)
            .unwrap_or(AIM_STEP[1]);
        BenchAim {
            what: "wall",
            is: ratio(self.runner.wall_ms, self.floor.wall_ms),
            at_most,
        }
    }

    fn rows(&self) -> String {
        let row = |name: &str, medians: &BenchMedians, aim: &str| {
            format!(
                "{name:<10}{:>8}{:>10.1}{:>9.2}{:>12.2}{:>10.1}  {aim}\n",
                self.nodes,
                medians.wall_ms,
                ratio(medians.wall_ms, self.floor.wall_ms),
                ratio(medians.wall_ms, self.bare_git.wall_ms),
                medians.cpu_ms,
            )
        };
        row("step", &self.runner, &self.aim().text())
            + &row("floor", &self.floor, "")
            + &row("bare git", &self.bare_git, "")
    }

    fn programs_line(&self) -> String {
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        for program in &self.programs {
            *counts.entry(program).or_default() += 1;
        }
        let counts: Vec<String> = counts
            .iter()
            .map(|(program, count)| format!("{count} {program}"))
            .collect();
        format!(
            "a step over {} nodes starts {} processes: {}",
            self.nodes,
            self.programs.len(),
            counts.join(", ")
        )
    }

    fn json(&self) -> Value {
        json!({
            "nodes": self.nodes,
            "runner": self.runner.json(),
            "floor": self.floor.json(),
            "bare_git": self.bare_git.json(),
            "floor_ratio": ratio(self.runner.wall_ms, self.floor.wall_ms),
            "bare_git_ratio": ratio(self.runner.wall_ms, self.bare_git.wall_ms),
            "programs": self.programs,
        })
    }
}

impl BenchMedians {
    pub(super) fn json(&self) -> Value {
        json!({"wall_ms": self.wall_ms, "cpu_ms": self.cpu_ms, "peak_mb": self.peak_mb})
    }
}

/// A ratio and the most that it should be.
pub(super) struct BenchAim {
    pub(super) what: &'static str,
    pub(super) is: f64,
    pub(super) at_most: f64,
}

impl BenchAim {
    pub(super) fn is_met(&self) -> bool {
        self.is <= self.at_most
    }

    pub(super) fn text(&self) -> String {
        let verdict = if self.is_met() { "met" } else { "MISSED" };
        format!("{} <= {}: {verdict}", self.what, self.at_most)
    }
}

pub(super) fn ratio(of: f64, to: f64) -> f64 {
    if to > 0.0 { of / to } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn medians(ms: f64, peak_mb: f64) -> BenchMedians {
        BenchMedians {
            wall_ms: ms,
            cpu_ms: ms,
            peak_mb,
        }
    }

    fn report() -> BenchReport {
        BenchReport {
            cores: 2,
            git: "git version 2".to_owned(),
            runs: 9,
            reading: vec![BenchReading {
                nodes: 100_000,
                file_mb: 60.0,
                parse: medians(100.0, 120.0),
                select: medians(140.0, 180.0),
                validate: medians(150.0, 180.0),
            }],
            step: vec![BenchStep {
                nodes: 1_000,
                runner: medians(52.0, 9.0),
                floor: medians(40.0, 9.0),
                bare_git: medians(26.0, 9.0),
                programs: ["git", "sh", "git"].map(str::to_owned).into(),
            }],
        }
    }

    #[test]
    fn the_table_has_ratios_and_aims() {
        let table = report().table();
        for text in [
            "select      100000     60.0     140.0     1.40     140.0     1.40    180.0    3.00",
            "cpu <= 1.5: met, memory <= 2.5: MISSED",
            "step          1000      52.0     1.30        2.00      52.0  wall <= 1.3: met",
            "a step over 1000 nodes starts 3 processes: 2 git, 1 sh",
        ] {
            assert!(table.contains(text), "{text}\n{table}");
        }
    }

    #[test]
    fn aims_depend_on_the_size() {
        let mut report = report();
        assert_eq!(report.missed_aims(), 1);
        report.step[0].runner = medians(60.0, 9.0);
        assert_eq!(report.missed_aims(), 2);
        report.step[0].nodes = 100_000;
        assert_eq!(report.missed_aims(), 1);
        report.reading[0].file_mb = 0.6;
        assert_eq!(report.missed_aims(), 0);
    }

    #[test]
    fn the_json_is_one_object() {
        let json: Value = serde_json::from_str(&report().json().unwrap()).unwrap();
        assert_eq!(json["step"][0]["floor_ratio"], 1.3);
        assert_eq!(json["missed_aims"], 1);
    }
}
