//! The report as data: what a run came to, put together from its records.
//!
//! Nothing here reads a file or a clock. What is not known stays `None`, and what
//! could not be had is named in [`RunReport::missing`].

mod errors;
mod landing;
mod next;

use std::collections::{BTreeMap, HashMap};

use serde::Serialize;

use crate::message::ByHand;
use crate::meta::{self, IterationErrorKind, IterationMeta, IterationVerdict};
use crate::select::{Selection, select};
use crate::tree::{Node, TreeProgress};
use crate::usage::{self, NodeUsage, Usage};

pub use errors::ReportedError;
pub use landing::{LandExpectation, LandForecast};
pub use next::{NextCommand, unstick};

/// Everything that the page is made of.
#[derive(Debug)]
pub struct ReportInputs<'a> {
    /// The run; `None` before the first start.
    pub run_id: Option<String>,
    /// Its branch.
    pub branch: Option<String>,
    /// The reference that leads to its last commit: the branch may be behind.
    pub tip: Option<String>,
    /// Branch and commit that it landed as.
    pub landed: Option<(String, String)>,
    /// Branch and commit that it began from.
    pub base: Option<(String, String)>,
    /// The goal's title.
    pub title: String,
    /// The tree, or what is wrong with it.
    pub tree: Result<&'a Node<'a>, InvalidTree>,
    /// Every iteration of which there is a record, rising.
    pub iterations: Vec<ReportIteration>,
    /// What people did through the runner: after which iteration, and what.
    pub by_hand: Vec<(u32, ByHand)>,
    /// The runner at work.
    pub running: Option<RunningLoop>,
    /// How the last loop ended, if nothing came after it.
    pub ended: Option<EndedLoop>,
    /// The iteration that was cut off and is not settled yet, and its node.
    pub cut_off: Option<(u32, String)>,
    /// What went before, of each leaf that has used up its attempts.
    pub histories: HashMap<String, NodeHistory>,
    /// Lines that this run added to assumptions.md.
    pub assumptions: Vec<String>,
    /// Lines that this run added to questions.md.
    pub questions: Vec<String>,
    /// What `land` makes of tests and settings that the run changed.
    pub landing: Vec<LandForecast>,
    /// From the beginning of the first iteration to the end of the last.
    pub wall_ms: Option<u64>,
    /// What could not be had, in words.
    pub missing: Vec<String>,
}

/// A tree that cannot be shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidTree {
    /// What is wrong with it.
    pub findings: Vec<String>,
    /// Whether the next step will have it repaired.
    pub repair: bool,
}

/// One iteration: its commit, its record, or both.
#[derive(Clone, Debug)]
pub struct ReportIteration {
    /// Its number.
    pub iter: u32,
    /// The record in this clone.
    pub meta: Option<IterationMeta>,
    /// What the branch says.
    pub commit: Option<ReportCommit>,
}

/// What the commit of an iteration says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReportCommit {
    /// Its name.
    pub id: String,
    /// The node.
    pub node_id: String,
    /// What the iteration came to, as far as the commit tells.
    pub verdict: IterationVerdict,
    /// The guard's exit code.
    pub guard_exit: Option<i32>,
    /// SHA-256 of the guard's log.
    pub log_sha256: Option<String>,
}

/// The runner at work.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RunningLoop {
    /// Its process.
    pub pid: u32,
    /// The iteration that has begun and not ended.
    pub iter: Option<u32>,
    /// The node of that iteration.
    pub node_id: Option<String>,
}

/// How a loop ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndedLoop {
    /// `stopped`, `limit`, `error`, `interrupted`…
    pub status: String,
    /// Why, in words.
    pub reason: Option<String>,
}

/// What went before on a node that does not get on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct NodeHistory {
    /// Its last iterations that were not runner errors, rising.
    pub tries: Vec<NodeAttempt>,
    /// The guard's last failure.
    pub guard: Option<GuardFailure>,
}

/// One try.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NodeAttempt {
    /// The iteration; null where only the bookkeeping is known.
    pub iter: Option<u32>,
    /// What it came to.
    pub outcome: IterationVerdict,
    /// What the agent said, or what was not accepted.
    pub summary: Option<String>,
}

/// How the guard failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct GuardFailure {
    /// The iteration.
    pub iter: u32,
    /// The argv.
    pub command: Vec<String>,
    /// Its exit code.
    pub exit: Option<i32>,
    /// The last lines of its log; null where the log is not in this clone.
    pub tail: Option<String>,
}

/// The page.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RunReport {
    /// The run; null before the first start.
    pub run_id: Option<String>,
    /// Its branch.
    pub branch: Option<String>,
    /// Where it began.
    pub base: Option<ReportBase>,
    /// The goal's title.
    pub title: String,
    /// One word, see [`RunReport::verdict`].
    pub state: &'static str,
    /// One line that says it all.
    pub verdict: String,
    /// Leaves passed; null when the tree is invalid.
    pub passed_leaves: Option<usize>,
    /// All leaves.
    pub leaves: Option<usize>,
    /// The runner at work.
    pub running: Option<RunningLoop>,
    /// The leaves that have passed, with their proofs.
    pub passed: Vec<PassedNode>,
    /// The leaves that have used up their attempts.
    pub stuck: Vec<StuckNode>,
    /// What went wrong around the agent last, where nothing has got past it.
    pub errors: Vec<ReportedError>,
    /// What is wrong with the tree.
    pub tree_findings: Vec<String>,
    /// How the plan changed.
    pub plan_changes: Vec<PlanChange>,
    /// Files of special interest that sessions touched.
    pub touched: Vec<TouchedFiles>,
    /// What `land` makes of tests and settings that the run changed.
    pub landing: Vec<LandForecast>,
    /// Sentences about hosts that children asked for and were refused, each once.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub network_refused: Vec<String>,
    /// What the config opened of what is hidden or closed otherwise, each path once.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub sandbox_opened: Vec<String>,
    /// What agents took for granted in this run.
    pub assumptions: Vec<String>,
    /// What they would have asked.
    pub questions: Vec<String>,
    /// From the beginning of the first iteration to the end of the last.
    pub wall_ms: Option<u64>,
    /// Iterations by what they came to, most of all first.
    pub outcomes: Vec<OutcomeCount>,
    /// What the run used.
    pub usage: Usage,
    /// What each node used.
    pub nodes: Vec<NodeUsage>,
    /// What could not be had.
    pub missing: Vec<String>,
    /// What to type next, the best first.
    pub next: Vec<NextCommand>,
}

/// Where a run began.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ReportBase {
    /// The branch.
    pub branch: String,
    /// The commit.
    pub commit: String,
}

/// A leaf that has passed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PassedNode {
    /// The leaf.
    pub node_id: String,
    /// `root/a/b`; null when the tree is invalid.
    pub path: Option<String>,
    /// Its title.
    pub title: Option<String>,
    /// The iteration that passed it; null when no proof was found.
    pub iter: Option<u32>,
    /// That iteration's commit.
    pub commit: Option<String>,
    /// The guard's exit code there.
    pub guard_exit: Option<i32>,
    /// SHA-256 of the guard's log.
    pub log_sha256: Option<String>,
}

/// A leaf that has used up its attempts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct StuckNode {
    /// The leaf.
    pub node_id: String,
    /// `root/a/b`.
    pub path: String,
    /// Its title.
    pub title: String,
    /// How many attempts it had.
    pub attempts: u32,
    /// Whether the run waits for it.
    pub is_next: bool,
    /// What went before.
    #[serde(flatten)]
    pub history: NodeHistory,
}

/// What one iteration, or a person after it, did to the plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PlanChange {
    /// The iteration; for a person's change the one before it.
    pub iter: u32,
    /// `agent` or `person`.
    pub by: &'static str,
    /// The node that was worked on; null for a person's change.
    pub node_id: Option<String>,
    /// The person's command.
    pub command: Option<String>,
    /// Whether the node was split.
    pub decomposed: bool,
    /// New nodes.
    pub added: Vec<String>,
    /// Nodes with other words.
    pub edited: Vec<String>,
    /// Nodes in another place.
    pub moved: Vec<String>,
}

/// Files of special interest that an iteration touched.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TouchedFiles {
    /// The iteration.
    pub iter: u32,
    /// The node.
    pub node_id: String,
    /// `watched`, `protected`, `guard_written`, `owned`, `denied`, `nested_repository`,
    /// `changed_by_guard`, `tests_missing`, `tests_skipped` or `test_files_changed`.
    pub kind: &'static str,
    /// The files.
    pub files: Vec<String>,
}

impl TouchedFiles {
    /// What became of them, in words.
    pub fn words(&self) -> &'static str {
        match self.kind {
            "watched" => "watched, the change is committed",
            "protected" => "protected, put back",
            "owned" => "the runner's, put back",
            "denied" => "not for commits, taken away",
            "nested_repository" => "a repository of its own, its .git taken away",
            "guard_written" => {
                "the agent wrote its own guard: read it before you trust what passed"
            }
            "tests_missing" => "tests that ran where the run began, not reported any more",
            "tests_skipped" => "tests that ran where the run began, skipped now",
            "test_files_changed" => "tests, not as they were where the run began",
            _ => "changed while the guard ran, put back",
        }
    }
}

/// So many iterations came to this.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct OutcomeCount {
    /// What they came to.
    pub outcome: IterationVerdict,
    /// How many.
    pub count: u32,
}

/// Puts the page together.
pub fn assemble(inputs: ReportInputs<'_>) -> RunReport {
    let metas = || inputs.iterations.iter().filter_map(|it| it.meta.as_ref());
    let tree = inputs.tree.as_ref().ok().copied();
    let progress = tree.map(Node::progress);
    let (state, verdict) = verdict(&inputs, progress);
    let next = next::commands(&inputs, state);
    RunReport {
        state,
        verdict,
        passed: passed(tree, &inputs.iterations),
        stuck: tree.map_or_else(Vec::new, |root| stuck(root, &inputs.histories)),
        plan_changes: plan_changes(&inputs),
        errors: errors::errors(&inputs),
        touched: metas().flat_map(touched).collect(),
        network_refused: meta::network_refused(metas()),
        sandbox_opened: meta::sandbox_opened(metas()),
        outcomes: outcomes(&inputs.iterations),
        usage: Usage::of(metas()),
        nodes: usage::by_node(metas()),
        tree_findings: match &inputs.tree {
            Ok(_) => Vec::new(),
            Err(invalid) => invalid.findings.clone(),
        },
        passed_leaves: progress.map(|it| it.passed),
        leaves: progress.map(|it| it.leaves),
        next,
        run_id: inputs.run_id,
        branch: inputs.branch,
        base: inputs
            .base
            .map(|(branch, commit)| ReportBase { branch, commit }),
        title: inputs.title,
        landing: inputs.landing,
        running: inputs.running,
        assumptions: inputs.assumptions,
        questions: inputs.questions,
        wall_ms: inputs.wall_ms,
        missing: inputs.missing,
    }
}

/// The state in one word and in one line. Who works comes first, then what the
/// tree says, then how the last loop ended.
fn verdict(inputs: &ReportInputs<'_>, progress: Option<TreeProgress>) -> (&'static str, String) {
    if inputs.run_id.is_none() {
        return ("not_started", "no run has been started here".to_owned());
    }
    let far = progress.map_or_else(String::new, |it| {
        format!("; {} of {} leaves passed", it.passed, it.leaves)
    });
    if let Some(running) = &inputs.running {
        let what = match (running.iter, &running.node_id) {
            (Some(iter), Some(node)) => format!(", iteration {iter} at {node}"),
            _ => String::new(),
        };
        return (
            "running",
            format!("running (pid {}){what}{far}", running.pid),
        );
    }
    let root = match &inputs.tree {
        Ok(root) => root,
        Err(invalid) if invalid.repair => {
            let text = "the tree is invalid: the next step will have it repaired";
            return ("repair", text.to_owned());
        }
        Err(invalid) => {
            let first = invalid.findings.first().map_or("", String::as_str);
            return ("invalid", format!("the tree is invalid: {first}"));
        }
    };
    let leaf = match select(root) {
        Selection::Complete => {
            let leaves = progress.map_or(0, |it| it.leaves);
            let all = if leaves == 1 {
                "its one leaf has".to_owned()
            } else {
                format!("all {leaves} leaves have")
            };
            let landed = inputs.landed.as_ref().map(|(branch, commit)| {
                let short = commit.get(..12).unwrap_or(commit);
                format!("; landed on {branch} ({short})")
            });
            let landed = landed.unwrap_or_default();
            return ("complete", format!("complete: {all} passed{landed}"));
        }
        Selection::Stuck(leaf) => {
            let text = format!(
                "stuck at {}: all {} of its attempts are used up{far}",
                leaf.path(),
                leaf.node.max_attempts
            );
            return ("stuck", text);
        }
        Selection::Open(leaf) => leaf.path(),
    };
    if let Some((iter, node)) = &inputs.cut_off {
        let text = format!(
            "cut off in iteration {iter} ({node}); `runner loop` settles it and goes on{far}"
        );
        return ("interrupted", text);
    }
    let ended = inputs.ended.as_ref();
    let reason = ended
        .and_then(|it| it.reason.as_deref())
        .unwrap_or("no reason is recorded");
    match ended.map(|it| it.status.as_str()) {
        Some("stopped") => ("stopped", format!("stopped: {reason}{far}")),
        Some("limit") => ("limit", format!("stopped by a limit: {reason}{far}")),
        Some("error") => ("error", format!("stopped by an error: {reason}{far}")),
        Some("interrupted") => (
            "interrupted",
            format!("stopped by a signal; nothing is lost{far}"),
        ),
        _ => ("open", format!("not running, {leaf} is next{far}")),
    }
}

/// The leaves that have passed, in the order in which they did.
fn passed(tree: Option<&Node<'_>>, iterations: &[ReportIteration]) -> Vec<PassedNode> {
    let mut proofs: BTreeMap<&str, PassedNode> = BTreeMap::new();
    for it in iterations {
        let verdict = it.meta.as_ref().map(IterationMeta::verdict);
        let verdict = verdict.or(it.commit.as_ref().map(|commit| commit.verdict));
        if verdict != Some(IterationVerdict::Passed) {
            continue;
        }
        let (meta, commit) = (it.meta.as_ref(), it.commit.as_ref());
        let node_id = meta
            .map(|meta| meta.node_id.as_str())
            .or(commit.map(|commit| commit.node_id.as_str()));
        let Some(node_id) = node_id else { continue };
        let guard = meta.and_then(|meta| meta.guard_run.as_ref());
        let proof = PassedNode {
            node_id: node_id.to_owned(),
            path: tree.and_then(|root| root.path_of(node_id)),
            title: None,
            iter: Some(it.iter),
            commit: commit.map(|commit| commit.id.clone()),
            // The commit is the proof; the record of this clone says the same.
            guard_exit: commit
                .and_then(|commit| commit.guard_exit)
                .or(guard.and_then(|run| run.exit_code)),
            log_sha256: commit
                .and_then(|commit| commit.log_sha256.clone())
                .or(guard.map(|run| run.log_sha256.clone())),
        };
        proofs.entry(node_id).or_insert(proof);
    }
    let mut passed: Vec<PassedNode> = match tree {
        None => proofs.into_values().collect(),
        Some(root) => root
            .walk()
            .filter(|node| node.is_leaf() && node.passes)
            .map(|node| PassedNode {
                title: Some(node.title.to_string()),
                ..proofs.remove(&*node.id).unwrap_or_else(|| PassedNode {
                    node_id: node.id.to_string(),
                    path: root.path_of(&node.id),
                    title: None,
                    iter: None,
                    commit: None,
                    guard_exit: None,
                    log_sha256: None,
                })
            })
            .collect(),
    };
    passed.sort_by_key(|node| node.iter);
    passed
}

fn stuck(root: &Node<'_>, histories: &HashMap<String, NodeHistory>) -> Vec<StuckNode> {
    let next = match select(root) {
        Selection::Stuck(leaf) => Some(&leaf.node.id),
        _ => None,
    };
    crate::by_hand::stuck_leaves(root)
        .map(|leaf| StuckNode {
            node_id: leaf.id.to_string(),
            path: root.path_of(&leaf.id).unwrap_or_default(),
            title: leaf.title.to_string(),
            attempts: leaf.attempts,
            is_next: next == Some(&leaf.id),
            history: histories.get(&*leaf.id).cloned().unwrap_or_default(),
        })
        .collect()
}

fn plan_changes(inputs: &ReportInputs<'_>) -> Vec<PlanChange> {
    let mut changes: Vec<PlanChange> = Vec::new();
    for meta in inputs.iterations.iter().filter_map(|it| it.meta.as_ref()) {
        let what = &meta.tree_changes;
        if what.is_empty() {
            continue;
        }
        changes.push(PlanChange {
            iter: meta.iter,
            by: "agent",
            node_id: Some(meta.node_id.clone()),
            command: None,
            decomposed: meta.verdict() == IterationVerdict::Decomposed,
            added: what.added.clone(),
            edited: what.edited.clone(),
            moved: what.moved.clone(),
        });
    }
    for (iter, by_hand) in &inputs.by_hand {
        if by_hand.settles_tree() {
            changes.push(PlanChange {
                iter: *iter,
                by: "person",
                node_id: None,
                command: Some(by_hand.command()),
                decomposed: false,
                added: Vec::new(),
                edited: Vec::new(),
                moved: Vec::new(),
            });
        }
    }
    changes.sort_by_key(|change| change.iter);
    changes
}

fn touched(meta: &IterationMeta) -> impl Iterator<Item = TouchedFiles> {
    let facts = &meta.facts;
    let kinds = [
        ("watched", &meta.watched_changed),
        ("protected", &facts.protected_changed),
        ("guard_written", &facts.guard_written),
        ("owned", &facts.owned_changed),
        ("denied", &facts.denied_files),
        ("nested_repository", &facts.nested_repositories),
        ("changed_by_guard", &facts.changed_by_guard),
        ("tests_missing", &facts.tests_missing),
        ("tests_skipped", &facts.tests_skipped),
        ("test_files_changed", &facts.test_files_changed),
    ];
    kinds
        .into_iter()
        .filter(|(_, files)| !files.is_empty())
        .map(|(kind, files)| TouchedFiles {
            iter: meta.iter,
            node_id: meta.node_id.clone(),
            kind,
            files: files.clone(),
        })
}

fn outcomes(iterations: &[ReportIteration]) -> Vec<OutcomeCount> {
    let mut counts: BTreeMap<IterationVerdict, u32> = BTreeMap::new();
    for it in iterations {
        let verdict = it.meta.as_ref().map(IterationMeta::verdict);
        let verdict = verdict.or(it.commit.as_ref().map(|commit| commit.verdict));
        if let Some(verdict) = verdict {
            *counts.entry(verdict).or_default() += 1;
        }
    }
    let mut list: Vec<OutcomeCount> = counts
        .into_iter()
        .map(|(outcome, count)| OutcomeCount { outcome, count })
        .collect();
    list.sort_by_key(|it| std::cmp::Reverse(it.count));
    list
}

/// The kind of the runner error that the last iteration was, if it was one.
fn last_error(inputs: &ReportInputs<'_>) -> Option<IterationErrorKind> {
    let meta = inputs.iterations.last()?.meta.as_ref()?;
    meta.error.as_ref().map(|error| error.kind)
}

#[cfg(test)]
mod tests;
