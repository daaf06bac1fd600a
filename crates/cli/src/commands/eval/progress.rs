//! The runs while they go on: bars on a terminal, and a line for each that has ended.

use std::cell::RefCell;
use std::time::Instant;

use runner_eval::{EvalProgress, EvalRecord, EvalWatcher};
use serde_json::json;

use crate::out::OutputGate;
use crate::style::{self, TextTone};

const BAR: usize = 12;

/// A run that goes on.
struct CurrentEvalRun {
    case: String,
    run: String,
    max_iterations: u32,
    iter: u32,
    doing: String,
    since: Instant,
}

/// Shows progress through the gate.
pub(super) struct EvalScreen<'o> {
    out: &'o RefCell<&'o mut OutputGate>,
    running: Vec<CurrentEvalRun>,
    ended: u32,
    jobs: u32,
    unexpected: u32,
}

impl<'o> EvalScreen<'o> {
    pub(super) fn new(out: &'o RefCell<&'o mut OutputGate>) -> Self {
        EvalScreen {
            out,
            running: Vec::new(),
            ended: 0,
            jobs: 0,
            unexpected: 0,
        }
    }

    fn find(&mut self, case: &str, run: &str) -> Option<&mut CurrentEvalRun> {
        self.running
            .iter_mut()
            .find(|it| it.case == case && it.run == run)
    }

    fn forget(&mut self, case: &str, run: &str) {
        self.running.retain(|it| it.case != case || it.run != run);
        self.ended += 1;
    }

    fn draw(&self) {
        let mut out = self.out.borrow_mut();
        if !out.live {
            return;
        }
        let width = crossterm::terminal::size().map_or(80, |(columns, _)| usize::from(columns));
        let mut lines: Vec<String> = self
            .running
            .iter()
            .map(|it| {
                let elapsed = style::duration(
                    u64::try_from(it.since.elapsed().as_millis()).unwrap_or(u64::MAX),
                );
                let bar = bar(it.iter, it.max_iterations);
                format!(
                    "{bar} {} #{}  iteration {} of at most {}  {elapsed}  {}",
                    it.case,
                    number_of(&it.run),
                    it.iter + 1,
                    it.max_iterations,
                    it.doing
                )
            })
            .collect();
        let failed = match self.unexpected {
            0 => String::new(),
            count => format!(", {count} not as expected"),
        };
        lines.push(format!(
            "{} {} of {} runs{failed}",
            bar(self.ended, self.jobs),
            self.ended,
            self.jobs
        ));
        let lines: Vec<String> = lines
            .iter()
            .map(|line| style::one_line(line, width.saturating_sub(1)))
            .collect();
        out.live_lines(&lines);
    }

    fn finished(&mut self, record: &EvalRecord) {
        self.forget(&record.case, &record.run);
        self.unexpected += u32::from(!record.is_expected());
        let mut out = self.out.borrow_mut();
        if out.json {
            let mut value = serde_json::to_value(record).unwrap_or_default();
            value["event"] = json!("run");
            value["as_expected"] = json!(record.is_expected());
            out.object(value);
            return;
        }
        let line = line(record, &out);
        out.data(&line);
    }
}

impl EvalWatcher for EvalScreen<'_> {
    fn progress(&mut self, progress: EvalProgress) {
        match progress {
            EvalProgress::Begun { set, jobs, done } => {
                self.jobs = jobs;
                let mut out = self.out.borrow_mut();
                if out.json {
                    out.object(json!({"event": "begun", "set": set.set, "label": set.label, "runs": jobs, "done_before": done}));
                } else {
                    let before = match done {
                        0 => String::new(),
                        count => format!(", {count} made before"),
                    };
                    let runs = style::counted(jobs, "run");
                    out.say(&format!("set {}: {runs}{before}", set.set));
                }
            }
            EvalProgress::Skipped { case, tool } => {
                let mut out = self.out.borrow_mut();
                if out.json {
                    out.object(json!({"event": "skipped", "case": case, "tool": tool}));
                } else {
                    let word = out.paint.paint(TextTone::Dim, "– skipped");
                    out.data(&format!("{word}  {case}  `{tool}` is not installed"));
                }
            }
            EvalProgress::Started {
                case,
                run,
                max_iterations,
            } => {
                let mut out = self.out.borrow_mut();
                if out.json {
                    out.object(json!({"event": "started", "case": case, "run": run}));
                } else {
                    out.detail(&format!("started {case} #{}", number_of(&run)));
                }
                drop(out);
                self.running.push(CurrentEvalRun {
                    case,
                    run,
                    max_iterations,
                    iter: 0,
                    doing: String::new(),
                    since: Instant::now(),
                });
            }
            EvalProgress::Step {
                case,
                run,
                iter,
                node,
                class,
            } => {
                let mut out = self.out.borrow_mut();
                if out.json {
                    out.object(json!({"event": "step", "case": case, "run": run, "iter": iter, "node_id": node, "class": class}));
                }
                drop(out);
                if let Some(current) = self.find(&case, &run) {
                    current.iter = iter;
                    current.doing = format!("{node}: {class}");
                }
            }
            EvalProgress::Waiting {
                case,
                run,
                secs,
                why,
            } => {
                let mut out = self.out.borrow_mut();
                if out.json {
                    out.object(json!({"event": "waiting", "case": case, "run": run, "secs": secs, "why": why}));
                }
                drop(out);
                if let Some(current) = self.find(&case, &run) {
                    current.doing = format!("waits {}: {why}", style::duration(secs * 1000));
                }
            }
            EvalProgress::Finished(record) => self.finished(&record),
            EvalProgress::Lost { case, run, why } => {
                self.forget(&case, &run);
                let mut out = self.out.borrow_mut();
                if out.json {
                    out.object(json!({"event": "lost", "case": case, "run": run, "why": why}));
                } else {
                    out.problem(&format!("{case} #{}: {why}", number_of(&run)), None);
                }
            }
        }
        self.draw();
    }

    fn tick(&mut self) {
        self.draw();
    }
}

/// The last part of a run's id.
fn number_of(run: &str) -> &str {
    run.rsplit('-').next().unwrap_or(run)
}

fn line(record: &EvalRecord, out: &OutputGate) -> String {
    let (mark, tone) = if record.is_expected() {
        ("✓", TextTone::Good)
    } else {
        ("✗", TextTone::Bad)
    };
    let word = out
        .paint
        .paint(tone, format!("{mark} {:7}", record.outcome));
    let expects =
        if record.is_expected() || record.expect == runner_eval::case::EvalOutcome::Success {
            String::new()
        } else {
            format!(", expected {}", record.expect)
        };
    let reason = match &record.reason {
        Some(reason) => format!("  {}", style::one_line(reason, 80)),
        None => String::new(),
    };
    let cost = record
        .cost_usd
        .map_or_else(String::new, |usd| format!("  {}", style::dollars(usd)));
    let rest = format!(
        "{}  {}{cost}",
        style::counted(record.iterations, "iteration"),
        style::duration(record.duration_ms)
    );
    let rest = out.paint.paint(TextTone::Dim, rest);
    format!(
        "{word}  {} #{}  {rest}{reason}{expects}",
        record.case,
        number_of(&record.run)
    )
}

/// `████······`.
fn bar(done: u32, all: u32) -> String {
    let share = u64::from(done.min(all)) * BAR as u64;
    let full = usize::try_from(share / u64::from(all.max(1))).unwrap_or(BAR);
    format!("{}{}", "█".repeat(full), "·".repeat(BAR - full))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars() {
        assert_eq!(bar(0, 0), "············");
        assert_eq!(bar(1, 4), "███·········");
        assert_eq!(bar(9, 4), "████████████");
        assert_eq!(number_of("20261115-061201-3f2a-07"), "07");
    }
}
