//! The figures: as a table for people, as JSON for scripts.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde_json::{Value, json};

use super::measure::BenchMedians;
use super::project::{BenchGuard, BenchSandbox};
use crate::cmd::ToolCommand;
use crate::failure::{FailureContext as _, TaskResult};

/// `select` may cost so many times the CPU of a bare parse.
const AIM_SELECT_CPU: f64 = 1.5;
/// `select` may need so many times the file's size in memory.
const AIM_SELECT_MEMORY: f64 = 2.5;
/// From this size on: below it the program itself outweighs the tree.
const AIM_SELECT_FROM_MB: f64 = 10.0;
/// A step may take so many times its floor, up to this many nodes and files.
const AIM_STEP: [(usize, f64); 2] = [(10_000, 1.3), (usize::MAX, 1.6)];
/// Bringing a warm clean checkout to the next candidate may take so many ms more than git alone.
const AIM_WARM_MS: f64 = 60.0;
/// Making the first workspace may take so many times what git takes for a work tree.
const AIM_FIRST: f64 = 1.5;

/// Medians of reading one tree.
#[derive(Debug, Default)]
pub(super) struct BenchReading {
    pub(super) nodes: usize,
    pub(super) file_mb: f64,
    pub(super) parse: BenchMedians,
    pub(super) select: BenchMedians,
    pub(super) validate: BenchMedians,
}

/// What a step is taken in.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct StepShape {
    pub(super) nodes: usize,
    pub(super) files: usize,
    pub(super) sandbox: BenchSandbox,
    pub(super) guard: BenchGuard,
}

/// Medians of one step over a tree.
#[derive(Debug, Default)]
pub(super) struct BenchStep {
    pub(super) shape: StepShape,
    pub(super) runner: BenchMedians,
    pub(super) floor: BenchMedians,
    pub(super) bare_git: BenchMedians,
    /// The programs that a step starts, in order.
    pub(super) programs: Vec<String>,
}

/// Medians of making the folders that steps work in, in milliseconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct BenchCheckouts {
    pub(super) files: usize,
    /// From the candidate's commit to the start of the guard.
    pub(super) warm_ms: f64,
    /// `git read-tree -u` alone.
    pub(super) read_tree_ms: f64,
    /// What a step takes longer that makes the workspace.
    pub(super) first_ms: f64,
    /// `git worktree add`.
    pub(super) worktree_ms: f64,
}

/// All figures of one run, and what they were measured on.
#[derive(Debug)]
pub(super) struct BenchReport {
    cores: usize,
    git: String,
    runs: usize,
    pub(super) reading: Vec<BenchReading>,
    pub(super) step: Vec<BenchStep>,
    pub(super) checkouts: Option<BenchCheckouts>,
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
            checkouts: None,
        })
    }

    /// How many aims the figures miss.
    pub(super) fn missed_aims(&self) -> usize {
        let reading = self.reading.iter().flat_map(BenchReading::aims);
        let step = self.step.iter().map(BenchStep::aim);
        let checkouts = self.checkouts.iter().flat_map(BenchCheckouts::aims);
        let all = reading.chain(step).chain(checkouts);
        all.filter(|aim| !aim.is_met()).count()
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
        text += "\none step     nodes   files  sandbox     guard   wall ms  x floor  x bare git    cpu ms  aim\n";
        for step in &self.step {
            text += &step.rows();
        }
        text.push('\n');
        if let Some(checkouts) = &self.checkouts {
            text += &checkouts.rows();
            text.push('\n');
        }
        for step in self.step.iter().filter(|step| !step.programs.is_empty()) {
            let _ = writeln!(text, "{}", step.programs_line());
        }
        text
    }

    pub(super) fn json(&self) -> TaskResult<String> {
        let value = json!({
            "schema_version": 2,
            "cores": self.cores,
            "git": self.git,
            "runs": self.runs,
            "reading": self.reading.iter().map(BenchReading::json).collect::<Vec<_>>(),
            "step": self.step.iter().map(BenchStep::json).collect::<Vec<_>>(),
            "checkouts": self.checkouts.as_ref().map(BenchCheckouts::json),
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
            .find(|(up_to, _)| self.shape.nodes.max(self.shape.files) <= *up_to)
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
                "{name:<10}{:>8}{:>8}  {:<12}{:<6}{:>9.1}{:>9.2}{:>12.2}{:>10.1}  {aim}\n",
                self.shape.nodes,
                self.shape.files,
                self.shape.sandbox.as_str(),
                self.shape.guard.as_str(),
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
            "a step over {} nodes and {} files, guard {}, starts {} processes: {}",
            self.shape.nodes,
            self.shape.files,
            self.shape.guard.as_str(),
            self.programs.len(),
            counts.join(", ")
        )
    }

    fn json(&self) -> Value {
        json!({
            "nodes": self.shape.nodes,
            "files": self.shape.files,
            "sandbox": self.shape.sandbox.as_str(),
            "guard": self.shape.guard.as_str(),
            "runner": self.runner.json(),
            "floor": self.floor.json(),
            "bare_git": self.bare_git.json(),
            "floor_ratio": ratio(self.runner.wall_ms, self.floor.wall_ms),
            "bare_git_ratio": ratio(self.runner.wall_ms, self.bare_git.wall_ms),
            "programs": self.programs,
        })
    }
}

impl BenchCheckouts {
    fn aims(&self) -> [BenchAim; 2] {
        [
            BenchAim {
                what: "ms more",
                is: self.warm_ms - self.read_tree_ms,
                at_most: AIM_WARM_MS,
            },
            BenchAim {
                what: "wall",
                is: ratio(self.first_ms, self.worktree_ms),
                at_most: AIM_FIRST,
            },
        ]
    }

    fn rows(&self) -> String {
        let [warm, first] = self.aims();
        format!(
            "checkouts of {} files            wall ms    git ms  aim\n\
             warm clean checkout to candidate {:>9.1}{:>10.1}  {:.1} {}\n\
             first workspace                  {:>9.1}{:>10.1}  {:.2} {}\n",
            self.files,
            self.warm_ms,
            self.read_tree_ms,
            warm.is,
            warm.text(),
            self.first_ms,
            self.worktree_ms,
            first.is,
            first.text()
        )
    }

    fn json(&self) -> Value {
        json!({
            "files": self.files,
            "warm_ms": self.warm_ms,
            "read_tree_ms": self.read_tree_ms,
            "first_ms": self.first_ms,
            "worktree_ms": self.worktree_ms,
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
                shape: StepShape {
                    nodes: 1_000,
                    files: 10,
                    ..StepShape::default()
                },
                runner: medians(52.0, 9.0),
                floor: medians(40.0, 9.0),
                bare_git: medians(26.0, 9.0),
                programs: ["git", "sh", "git"].map(str::to_owned).into(),
            }],
            checkouts: Some(BenchCheckouts {
                files: 20_000,
                warm_ms: 90.0,
                read_tree_ms: 40.0,
                first_ms: 150.0,
                worktree_ms: 120.0,
            }),
        }
    }

    #[test]
    fn the_table_has_ratios_and_aims() {
        let table = report().table();
        for text in [
            "select      100000     60.0     140.0     1.40     140.0     1.40    180.0    3.00",
            "cpu <= 1.5: met, memory <= 2.5: MISSED",
            "step          1000      10  off         warm       52.0     1.30        2.00      52.0  wall <= 1.3: met",
            "a step over 1000 nodes and 10 files, guard warm, starts 3 processes: 2 git, 1 sh",
            "warm clean checkout to candidate      90.0      40.0  50.0 ms more <= 60: met",
            "first workspace                      150.0     120.0  1.25 wall <= 1.5: met",
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
        report.step[0].shape.files = 20_000;
        assert_eq!(report.missed_aims(), 1);
        report.step[0].shape.files = 10;
        report.step[0].shape.nodes = 100_000;
        assert_eq!(report.missed_aims(), 1);
        report.reading[0].file_mb = 0.6;
        assert_eq!(report.missed_aims(), 0);
        report.checkouts.as_mut().unwrap().warm_ms = 101.0;
        assert_eq!(report.missed_aims(), 1);
    }

    #[test]
    fn the_json_is_one_object() {
        let json: Value = serde_json::from_str(&report().json().unwrap()).unwrap();
        assert_eq!(json["step"][0]["floor_ratio"], 1.3);
        assert_eq!(json["missed_aims"], 1);
    }
}
