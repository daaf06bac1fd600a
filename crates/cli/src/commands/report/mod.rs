//! `runner report`: the report of a run, for a terminal, as Markdown, as JSON.

pub(crate) mod markdown;
pub(crate) mod terminal;

use std::path::Path;

use runner::{Error, ErrorCode, Project, Result};
use runner_core::report::{PassedNode, PlanChange, RunReport};

use super::Exit;
use crate::out::OutputGate;
use crate::style;

/// Prints the page.
pub(crate) fn run(dir: &Path, md: bool, out: &mut OutputGate) -> Result<Exit> {
    let project = Project::of_run(dir)?;
    let report = runner::report(&project)?;
    if out.json {
        let value = serde_json::to_value(&report)
            .map_err(|error| Error::new(ErrorCode::Io, error.to_string()))?;
        out.object(value);
    } else if md {
        out.data(markdown::page(&report).trim_end());
    } else {
        for line in terminal::page(&report, out.paint) {
            out.data(&line);
        }
    }
    Ok(Exit::Success)
}

/// The first digits of a hash: enough to tell, short enough to read.
fn short(hash: &str) -> &str {
    hash.get(..10).unwrap_or(hash)
}

/// The words that prove a passed leaf, each with whether it is a hash.
fn proof(node: &PassedNode) -> Vec<(String, Option<String>)> {
    let Some(iter) = node.iter else {
        return vec![("no proof of it was found".to_owned(), None)];
    };
    let exit = node
        .guard_exit
        .map_or_else(|| "unknown".to_owned(), |exit| exit.to_string());
    let hash = |hash: &Option<String>| hash.as_deref().map(|hash| short(hash).to_owned());
    let unknown = |name: &str, hash: &Option<String>| match hash {
        Some(_) => name.to_owned(),
        None => format!("{name} unknown"),
    };
    vec![
        (format!("iteration {iter}"), None),
        (unknown("commit", &node.commit), hash(&node.commit)),
        (format!("guard exit {exit}"), None),
        (unknown("log", &node.log_sha256), hash(&node.log_sha256)),
    ]
}

/// A line of assumptions.md or questions.md without the mark of a list.
fn item(line: &str) -> &str {
    let line = line.trim();
    ["- ", "* "]
        .iter()
        .find_map(|mark| line.strip_prefix(mark))
        .unwrap_or(line)
}

/// Who changed the plan, and how; `name` shows ids and commands.
fn plan_change(change: &PlanChange, name: &dyn Fn(&str) -> String) -> String {
    if let Some(command) = &change.command {
        let after = match change.iter {
            0 => "before iteration 1".to_owned(),
            iter => format!("after iteration {iter}"),
        };
        return format!("{after}: a person ran {}", name(command));
    }
    let mut what = Vec::new();
    if change.decomposed {
        what.push("decomposed".to_owned());
    }
    for (word, ids) in [
        ("added", &change.added),
        ("edited", &change.edited),
        ("moved", &change.moved),
    ] {
        if !ids.is_empty() {
            let ids: Vec<String> = ids.iter().map(|id| name(id)).collect();
            what.push(format!("{word} {}", ids.join(", ")));
        }
    }
    format!(
        "iteration {} at {}: {}",
        change.iter,
        name(change.node_id.as_deref().unwrap_or("?")),
        what.join("; ")
    )
}

/// `12 iterations: 5 passed, 4 guard failed, …`.
fn outcomes(report: &RunReport) -> String {
    let total: u32 = report.outcomes.iter().map(|it| it.count).sum();
    let parts: Vec<String> = report
        .outcomes
        .iter()
        .map(|it| format!("{} {}", it.count, it.outcome.words()))
        .collect();
    let total = style::counted(total, "iteration");
    if parts.is_empty() {
        total
    } else {
        format!("{total}: {}", parts.join(", "))
    }
}

/// `8h02m from first to last; agent 7h, guard 40m`.
fn time(report: &RunReport) -> String {
    let usage = &report.usage;
    let wall = report.wall_ms.map_or_else(
        || "unknown".to_owned(),
        |wall| format!("{} from first to last", style::duration(wall)),
    );
    if usage.iterations == 0 {
        return wall;
    }
    format!(
        "{wall}; agent {}, guard {}",
        style::duration(usage.agent_ms),
        style::duration(usage.guard_ms)
    )
}

/// The columns of the table of nodes.
const NODE_COLUMNS: [&str; 5] = ["node", "iterations", "time", "tokens", "cost"];

fn node_rows(report: &RunReport) -> Vec<[String; 5]> {
    report
        .nodes
        .iter()
        .map(|node| {
            let usage = &node.usage;
            let tokens = usage.tokens().map_or_else(
                || "unknown".to_owned(),
                |tokens| match usage.tokens_unknown {
                    0 => tokens.to_string(),
                    _ => format!("{tokens}+"),
                },
            );
            let cost = usage.cost_usd.map_or_else(
                || "unknown".to_owned(),
                |usd| match usage.cost_unknown {
                    0 => style::dollars(usd),
                    _ => format!("{}+", style::dollars(usd)),
                },
            );
            [
                node.node_id.clone(),
                usage.iterations.to_string(),
                style::duration(usage.duration_ms),
                tokens,
                cost,
            ]
        })
        .collect()
}

/// Where the run lives: `run demo on runner/demo, from main`.
fn place(report: &RunReport) -> Option<String> {
    let run_id = report.run_id.as_deref()?;
    let branch = report.branch.as_deref().unwrap_or("?");
    let from = report
        .base
        .as_ref()
        .map_or_else(String::new, |base| format!(", from {}", base.branch));
    Some(format!("run {run_id} on {branch}{from}"))
}

/// A document for tests of the renderers.
#[cfg(test)]
pub(super) fn hostile(text: &str) -> RunReport {
    use runner_core::meta::IterationVerdict;
    use runner_core::report::{
        GuardFailure, LandExpectation, LandForecast, NodeAttempt, NodeHistory, ReportedError,
        StuckNode, TouchedFiles,
    };
    RunReport {
        run_id: Some("demo".to_owned()),
        branch: Some("runner/demo".to_owned()),
        base: None,
        title: text.to_owned(),
        state: "error",
        verdict: format!("stopped by an error: {text}"),
        passed_leaves: Some(1),
        leaves: Some(2),
        running: None,
        passed: vec![PassedNode {
            node_id: "a".to_owned(),
            path: Some("root/a".to_owned()),
            title: Some(text.to_owned()),
            iter: None,
            commit: None,
            guard_exit: None,
            log_sha256: None,
        }],
        stuck: vec![StuckNode {
            node_id: "b".to_owned(),
            path: "root/b".to_owned(),
            title: text.to_owned(),
            attempts: 3,
            is_next: true,
            history: NodeHistory {
                tries: vec![NodeAttempt {
                    iter: Some(3),
                    outcome: IterationVerdict::GuardFailed,
                    summary: Some(text.to_owned()),
                }],
                guard: Some(GuardFailure {
                    iter: 3,
                    command: vec!["sh".to_owned(), text.to_owned()],
                    exit: Some(1),
                    tail: Some(text.to_owned()),
                }),
            },
        }],
        errors: vec![ReportedError {
            iter: 3,
            message: text.to_owned(),
            hint: Some(text.to_owned()),
        }],
        tree_findings: vec![text.to_owned()],
        plan_changes: Vec::new(),
        network_refused: vec![text.to_owned()],
        sandbox_opened: vec![text.to_owned()],
        touched: vec![TouchedFiles {
            iter: 3,
            node_id: "b".to_owned(),
            kind: "watched",
            files: vec![text.to_owned()],
        }],
        landing: vec![LandForecast {
            expect: LandExpectation::Refused,
            why: text.to_owned(),
            changed: vec![text.to_owned()],
            added: vec![text.to_owned()],
            accept: Some("runner land --accept-changed-judge".to_owned()),
        }],
        assumptions: vec![text.to_owned()],
        questions: vec![text.to_owned()],
        wall_ms: None,
        outcomes: Vec::new(),
        usage: runner_core::usage::Usage::default(),
        nodes: Vec::new(),
        missing: vec![text.to_owned()],
        next: Vec::new(),
    }
}
