//! What an iteration comes to: a table, in code, in order of precedence.
//!
//! [`assess`] looks at everything but the guard and either settles the matter
//! or says that the guard must be asked; [`conclude`] adds the guard's word.
//! Both are used by the step and by replay.

use crate::ids::REPAIR_NODE;
use crate::meta::{GuardResult, IterationMode, OutcomeClass, StepFacts};
use crate::output::{AgentOutput, AgentStatus};
use crate::select::{Selection, select};
use crate::text::cut_end;
use crate::transition;
use crate::tree::{self, Node, TreeChanges, TreeFinding, TreeOrder};

/// So many refused repairs in a row bring the last valid tree back.
pub const MAX_REFUSED_REPAIRS: u32 = 3;

/// So much of what was wrong goes into the feedback. It becomes part of
/// run_state.json, which no session may make too large to be read.
pub const MAX_FEEDBACK_BYTES: usize = 64 * 1024;

/// The tree as the agent left it.
#[derive(Clone, Copy, Debug)]
pub enum AgentTree<'a> {
    /// The very bytes it began with.
    Same,
    /// Other bytes.
    Bytes(&'a [u8]),
    /// Not there or not a readable file; the facts say why.
    Unusable,
}

/// What was to be done.
#[derive(Clone, Copy, Debug)]
pub enum StepTask<'t, 'a> {
    /// Work on a leaf of this tree.
    Work {
        /// The tree before the session.
        before: &'t Node<'a>,
        /// The selected leaf.
        node_id: &'t str,
    },
    /// Bring back a valid tree.
    Repair {
        /// The last valid tree.
        valid: &'t Node<'a>,
    },
}

/// Which bytes tree.json has afterwards.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TreeAfter<'a> {
    /// Those of the HEAD at the beginning.
    Restore,
    /// Those that the agent left (they are what gets repaired).
    AsLeft,
    /// Those of the last valid tree.
    LastValid,
    /// This tree in canonical form.
    New(Node<'a>),
}

/// Everything that was decided.
#[derive(Clone, Debug)]
pub struct Outcome<'a> {
    /// Which rule applied.
    pub class: OutcomeClass,
    /// The recorded status.
    pub status: AgentStatus,
    /// What the guard said.
    pub guard: GuardResult,
    /// What kind of iteration it was.
    pub mode: IterationMode,
    /// The tree afterwards.
    pub tree: TreeAfter<'a>,
    /// Attempts of the selected node afterwards; `None` in a repair.
    pub attempts: Option<u32>,
    /// Whether the selected node has passed; `None` in a repair.
    pub passes: Option<bool>,
    /// What the session did to the plan.
    pub changes: TreeChanges,
    /// Ids that turned to passed.
    pub passed: Vec<String>,
    /// What the next session on this node shall hear.
    pub feedback: String,
    /// What is wrong with the tree, or what the agent did wrong.
    pub findings: Vec<String>,
}

/// The result of [`assess`].
#[derive(Debug)]
pub enum Assessment<'a> {
    /// Nothing more to ask.
    Settled(Box<Outcome<'a>>),
    /// The agent says done and nothing speaks against it: ask the guard.
    AskGuard(Box<Accepted<'a>>),
}

/// A consistent `done` that waits for the guard.
#[derive(Debug)]
pub struct Accepted<'a> {
    tree: Node<'a>,
    node_id: String,
    changes: TreeChanges,
    mode: IterationMode,
    summary: String,
}

impl Accepted<'_> {
    /// Whether every leaf has passed once this one has.
    pub fn would_complete(&self) -> bool {
        let mut root = self.tree.clone();
        transition::apply(
            &mut root,
            &self.node_id,
            AgentStatus::Done,
            GuardResult::Pass,
        );
        select(&root) == Selection::Complete
    }
}

/// Decides in one go what [`assess`] and [`conclude`] decide in two.
pub fn decide<'a>(
    task: StepTask<'_, 'a>,
    agent_tree: AgentTree<'a>,
    output: Option<&AgentOutput>,
    facts: &StepFacts,
) -> Outcome<'a> {
    match assess(task, agent_tree, output, facts) {
        Assessment::Settled(outcome) => *outcome,
        Assessment::AskGuard(accepted) => conclude(*accepted, task, facts),
    }
}

/// Everything up to the guard.
pub fn assess<'a>(
    task: StepTask<'_, 'a>,
    agent_tree: AgentTree<'a>,
    output: Option<&AgentOutput>,
    facts: &StepFacts,
) -> Assessment<'a> {
    let mode = mode(task, agent_tree, facts);
    let judge = Judge {
        task,
        mode,
        facts,
        summary: output.map(|output| output.summary.as_str()),
    };
    let Some(output) = output.filter(|_| facts.runner_error.is_none()) else {
        return judge.runner_error();
    };
    let misdeeds = misdeeds(facts);
    match task {
        StepTask::Repair { valid } => judge.repair(valid, agent_tree, misdeeds),
        StepTask::Work { before, node_id } => {
            if !misdeeds.is_empty() {
                return judge.agent_error(misdeeds);
            }
            judge.work(before, node_id, agent_tree, output)
        }
    }
}

/// The guard has spoken (or could not be heard, which is a runner error).
pub fn conclude<'a>(
    accepted: Accepted<'a>,
    task: StepTask<'_, 'a>,
    facts: &StepFacts,
) -> Outcome<'a> {
    let judge = Judge {
        task,
        mode: accepted.mode,
        facts,
        summary: Some(&accepted.summary),
    };
    // What it judged is not what will be committed, or nothing shows that it judged anything.
    let counts = facts.changed_by_guard.is_empty()
        && facts.evidence_gaps.is_empty()
        && facts.original_tests_failed.is_none();
    let guard = match (facts.guard_exit, facts.setup_failed, &facts.runner_error) {
        (_, _, Some(_)) | (None, false, None) => return judge.runner_error_outcome(),
        (Some(0), false, None) if counts => GuardResult::Pass,
        _ => GuardResult::Fail,
    };
    let mut root = accepted.tree;
    let passed = transition::apply(&mut root, &accepted.node_id, AgentStatus::Done, guard);
    judge.recorded(
        root,
        &accepted.node_id,
        AgentStatus::Done,
        guard,
        accepted.changes,
        passed,
    )
}

/// `decompose` when the agent changed the tree and nothing outside `.runner/`.
fn mode(task: StepTask<'_, '_>, agent_tree: AgentTree<'_>, facts: &StepFacts) -> IterationMode {
    match (task, agent_tree) {
        (StepTask::Repair { .. }, _) => IterationMode::Repair,
        (_, AgentTree::Same) => IterationMode::Execute,
        _ if facts.changed_outside => IterationMode::Execute,
        _ => IterationMode::Decompose,
    }
}

/// What the session touched that it may not touch, one line each.
fn misdeeds(facts: &StepFacts) -> Vec<String> {
    let lists: [(&[String], &str); 6] = [
        (
            &facts.owned_changed,
            "belongs to the runner: it was changed and has been restored",
        ),
        (
            &facts.protected_changed,
            "is protected: what the session did to it has been undone",
        ),
        (
            &facts.nested_repositories,
            "is a git repository of its own now: its .git has been taken away, its files stay",
        ),
        (
            &facts.denied_files,
            "must not go into a commit ([commit] in the config): it has been taken away",
        ),
        (
            &facts.submodules_changed,
            "is a submodule: what changed in it cannot be committed here and has been undone",
        ),
        (
            &facts.not_committable,
            "cannot be committed as it is: it has been taken away",
        ),
    ];
    lists
        .into_iter()
        .flat_map(|(paths, what)| paths.iter().map(move |path| format!("{path} {what}")))
        .collect()
}

struct Judge<'t, 'a, 'f> {
    task: StepTask<'t, 'a>,
    mode: IterationMode,
    facts: &'f StepFacts,
    summary: Option<&'f str>,
}

impl<'a> Judge<'_, 'a, '_> {
    fn runner_error(&self) -> Assessment<'a> {
        Assessment::Settled(Box::new(self.runner_error_outcome()))
    }

    fn runner_error_outcome(&self) -> Outcome<'a> {
        let (attempts, passes) = match self.task {
            StepTask::Work { before, node_id } => {
                before.find(node_id).map_or((None, None), |node| {
                    (Some(node.attempts), Some(node.passes))
                })
            }
            StepTask::Repair { .. } => (None, None),
        };
        let message = match (&self.facts.runner_error, self.summary) {
            (Some(error), _) => error.message.clone(),
            (None, None) => "the session left no output".to_owned(),
            (None, Some(_)) => "the guard left no exit code".to_owned(),
        };
        Outcome {
            class: OutcomeClass::RunnerError,
            attempts,
            passes,
            findings: vec![message],
            ..self.retry(TreeAfter::Restore)
        }
    }

    fn agent_error(&self, findings: Vec<String>) -> Assessment<'a> {
        Assessment::Settled(Box::new(self.agent_error_outcome(findings)))
    }

    /// The tree is restored and one attempt is used up.
    fn agent_error_outcome(&self, findings: Vec<String>) -> Outcome<'a> {
        let StepTask::Work { before, node_id } = self.task else {
            return self.refused(findings);
        };
        let mut root = before.clone();
        let passed =
            transition::apply(&mut root, node_id, AgentStatus::Retry, GuardResult::Skipped);
        let feedback = self.feedback("The session was not accepted:", &findings);
        Outcome {
            class: OutcomeClass::AgentError,
            feedback,
            findings,
            ..self.recorded(
                root,
                node_id,
                AgentStatus::Retry,
                GuardResult::Skipped,
                TreeChanges::default(),
                passed,
            )
        }
    }

    fn invalid_tree(&self, findings: &[TreeFinding]) -> Assessment<'a> {
        let findings: Vec<String> = findings.iter().map(ToString::to_string).collect();
        let runner_error = self.runner_error_outcome();
        Assessment::Settled(Box::new(Outcome {
            class: OutcomeClass::InvalidTree,
            attempts: runner_error.attempts,
            passes: runner_error.passes,
            feedback: self.feedback("The session left an invalid tree:", &findings),
            findings,
            ..self.retry(TreeAfter::AsLeft)
        }))
    }

    fn work(
        &self,
        before: &Node<'a>,
        node_id: &str,
        agent_tree: AgentTree<'a>,
        output: &AgentOutput,
    ) -> Assessment<'a> {
        let (root, changes) = match agent_tree {
            AgentTree::Same => (before.clone(), TreeChanges::default()),
            AgentTree::Unusable => return self.invalid_tree(&[self.unusable()]),
            AgentTree::Bytes(bytes) => {
                let root = match self.accept(bytes, before) {
                    Ok(root) => root,
                    Err(findings) => return self.invalid_tree(&findings),
                };
                let (changes, violations) = tree::compare(before, &root);
                if !violations.is_empty() {
                    return self.agent_error(violations.iter().map(ToString::to_string).collect());
                }
                (root, changes)
            }
        };
        let broken = broken_status_rules(before, &root, node_id, output.status);
        if !broken.is_empty() {
            return self.agent_error(broken);
        }
        if output.status == AgentStatus::Done {
            return Assessment::AskGuard(Box::new(Accepted {
                tree: root,
                node_id: node_id.to_owned(),
                changes,
                mode: self.mode,
                summary: output.summary.clone(),
            }));
        }
        let mut root = root;
        let passed = transition::apply(&mut root, node_id, output.status, GuardResult::Skipped);
        Assessment::Settled(Box::new(self.recorded(
            root,
            node_id,
            output.status,
            GuardResult::Skipped,
            changes,
            passed,
        )))
    }

    fn repair(
        &self,
        valid: &Node<'a>,
        agent_tree: AgentTree<'a>,
        misdeeds: Vec<String>,
    ) -> Assessment<'a> {
        let settled = |outcome| Assessment::Settled(Box::new(outcome));
        if !misdeeds.is_empty() {
            return settled(self.refused(misdeeds));
        }
        let root = match agent_tree {
            AgentTree::Same => {
                return settled(self.refused(vec!["tree.json was not changed".to_owned()]));
            }
            AgentTree::Unusable => {
                return settled(self.refused(vec![self.unusable().to_string()]));
            }
            AgentTree::Bytes(bytes) => match self.accept(bytes, valid) {
                Ok(root) => root,
                Err(findings) => {
                    return settled(
                        self.refused(findings.iter().map(ToString::to_string).collect()),
                    );
                }
            },
        };
        let (changes, violations) = tree::compare(valid, &root);
        if !violations.is_empty() {
            return settled(self.refused(violations.iter().map(ToString::to_string).collect()));
        }
        settled(Outcome {
            class: OutcomeClass::Repaired,
            changes,
            ..self.retry(TreeAfter::New(root))
        })
    }

    fn refused(&self, findings: Vec<String>) -> Outcome<'a> {
        let last = self.facts.refused_repairs.saturating_add(1) >= MAX_REFUSED_REPAIRS;
        let (class, tree) = if last {
            (OutcomeClass::RepairRestored, TreeAfter::LastValid)
        } else {
            (OutcomeClass::RepairRefused, TreeAfter::Restore)
        };
        Outcome {
            class,
            feedback: self.feedback("The repair was refused:", &findings),
            findings,
            ..self.retry(tree)
        }
    }

    /// Parse, overwrite what the runner owns, sort, then check.
    fn accept(&self, bytes: &'a [u8], before: &Node<'a>) -> Result<Node<'a>, Vec<TreeFinding>> {
        let mut root = tree::parse(bytes)?;
        transition::reset_owned_fields(before, &mut root, self.facts.max_attempts_default);
        root.sort();
        let findings = tree::check(&root, TreeOrder::Any);
        if findings.is_empty() {
            Ok(root)
        } else {
            Err(findings)
        }
    }

    fn unusable(&self) -> TreeFinding {
        let why = self
            .facts
            .tree_unusable
            .as_deref()
            .unwrap_or("it cannot be read");
        TreeFinding::new("tree.json", why)
    }

    /// The common part of everything that is recorded as a retry.
    fn retry(&self, tree: TreeAfter<'a>) -> Outcome<'a> {
        Outcome {
            class: OutcomeClass::Ok,
            status: AgentStatus::Retry,
            guard: GuardResult::Skipped,
            mode: self.mode,
            tree,
            attempts: None,
            passes: None,
            changes: TreeChanges::default(),
            passed: Vec::new(),
            feedback: self.summary.unwrap_or_default().to_owned(),
            findings: Vec::new(),
        }
    }

    fn recorded(
        &self,
        root: Node<'a>,
        node_id: &str,
        status: AgentStatus,
        guard: GuardResult,
        changes: TreeChanges,
        passed: Vec<String>,
    ) -> Outcome<'a> {
        let owned = root.find(node_id).map(|node| (node.attempts, node.passes));
        Outcome {
            status,
            guard,
            attempts: owned.map(|(attempts, _)| attempts),
            passes: owned.map(|(_, passes)| passes),
            changes,
            passed,
            ..self.retry(TreeAfter::New(root))
        }
    }

    /// What the next session hears: what was wrong, then the agent's own words.
    fn feedback(&self, title: &str, findings: &[String]) -> String {
        let mut text = title.to_owned();
        for finding in findings {
            text.push_str("\n- ");
            text.push_str(finding);
        }
        let mut text = cut_end(&text, MAX_FEEDBACK_BYTES).into_owned();
        if let Some(summary) = self.summary {
            text.push_str("\n\nWhat the session said of itself:\n");
            text.push_str(summary);
        }
        text
    }
}

/// The agent's word against what it did to the selected leaf.
fn broken_status_rules(
    before: &Node<'_>,
    after: &Node<'_>,
    node_id: &str,
    status: AgentStatus,
) -> Vec<String> {
    let (Some(old), Some(new)) = (before.find(node_id), after.find(node_id)) else {
        return vec![format!("node {node_id} is gone")];
    };
    let gained = !new.children.is_empty();
    let mut broken = Vec::new();
    match status {
        AgentStatus::Decomposed if !gained => broken.push(format!(
            "status decomposed needs children under the selected node {node_id}, but it has none"
        )),
        AgentStatus::Done | AgentStatus::Retry if gained => broken.push(format!(
            "status {status} does not allow children under the selected node {node_id}; \
             with children the status is decomposed"
        )),
        _ => {}
    }
    if status == AgentStatus::Done && (old.goal != new.goal || old.acceptance != new.acceptance) {
        broken.push(format!(
            "status done does not allow another goal or acceptance for the selected node {node_id}"
        ));
    }
    broken
}

/// The node id under which a task is recorded.
pub fn recorded_node<'t>(task: &StepTask<'t, '_>) -> &'t str {
    match task {
        StepTask::Work { node_id, .. } => node_id,
        StepTask::Repair { .. } => REPAIR_NODE,
    }
}

#[cfg(test)]
mod tests;
