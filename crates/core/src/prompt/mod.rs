//! The prompt of a session: the contract, what is to be done and what is known,
//! in a fixed order and never longer than its budget.

mod pack;
mod words;

use pack::{PromptCut, PromptPack, PromptPart, PromptSection};

use crate::text::{cut_end, cut_front, cut_middle};

/// Everything that a prompt is made of. The same input makes the same bytes.
#[derive(Clone, Copy, Debug)]
pub struct PromptInput<'a> {
    /// The text of `.runner/GOAL.md`.
    pub goal_md: &'a str,
    /// The text of `.runner/INSTRUCTIONS.md`.
    pub instructions: Option<&'a str>,
    /// The guard, as configured.
    pub guard_command: &'a [String],
    /// The globs of protected files.
    pub protected: &'a [String],
    /// The values inside files that are protected.
    pub protected_values: &'a [String],
    /// Which attempt at the leaf this is, from 1.
    pub attempt: u32,
    /// How many there may be.
    pub max_attempts: u32,
    /// Wall clock for agent and guard together.
    pub timeout_secs: u64,
    /// The text of `.runner/context/goal.md`.
    pub context_goal: &'a str,
    /// The text of `.runner/context/history.md`.
    pub context_history: Option<&'a str>,
    /// The text of `.runner/context/failure.md`.
    pub context_failure: Option<&'a str>,
    /// The ids from the root to the leaf, joined by `/`.
    pub selected_path: &'a str,
    /// The leaf's subtree as canonical JSON.
    pub selected_json: &'a str,
    /// Path and text of each `context.md`: the leaf's own first, then its parent's and
    /// so on up, for the last ones go first when room is short.
    pub sidecars: &'a [(String, String)],
    /// A bounded overview of the rest of the tree.
    pub tree_summary: &'a str,
    /// The text of `.runner/state/assumptions.md`.
    pub assumptions: &'a str,
    /// The text of `.runner/state/questions.md`.
    pub questions: &'a str,
    /// Where the report must be written.
    pub output_path: &'a str,
    /// The longest prompt; the guarantees hold from
    /// [`crate::config::MIN_PROMPT_BUDGET`] on.
    pub budget_bytes: usize,
    /// What the session is for.
    pub mode: PromptMode<'a>,
}

/// What a session is for.
#[derive(Clone, Copy, Debug)]
pub enum PromptMode<'a> {
    /// The selected leaf.
    Work,
    /// A tree that the last session left invalid; no leaf is selected.
    Repair {
        /// Everything that is wrong with it.
        findings: &'a [String],
        /// The tree before that session, as canonical JSON.
        valid_tree: &'a str,
        /// Why the repair before this one was not accepted.
        refused_before: Option<&'a str>,
    },
}

/// Builds the prompt.
pub fn build(input: &PromptInput<'_>) -> String {
    match input.mode {
        PromptMode::Work => work(input),
        PromptMode::Repair {
            findings,
            valid_tree,
            refused_before,
        } => repair(input, findings, valid_tree, refused_before),
    }
}

fn work(input: &PromptInput<'_>) -> String {
    // GOAL.md, history and failure never take more than this each.
    let share = input.budget_bytes / 4;
    let mut pack = PromptPack::new(input.budget_bytes, words::output_contract(input));

    pack.push(
        PromptPart::Rules,
        PromptSection::plain("# Runner contract", &words::rules(input), PromptCut::End),
    );
    pack.push_text(
        PromptPart::GoalFile,
        "## The goal of the whole run (`.runner/GOAL.md`)",
        &cut_end(tidy(input.goal_md), share),
        PromptCut::End,
    );
    pack.push_text(
        PromptPart::Instructions,
        "## Standing instructions (`.runner/INSTRUCTIONS.md`)",
        input.instructions.unwrap_or_default(),
        PromptCut::End,
    );
    pack.push_text(
        PromptPart::Goal,
        "## Your task (`.runner/context/goal.md`)",
        input.context_goal,
        PromptCut::End,
    );
    pack.push_text(
        PromptPart::History,
        "## What the last attempt left (`.runner/context/history.md`)",
        &cut_middle(
            tidy(input.context_history.unwrap_or_default()),
            share,
            HISTORY_TAIL,
        ),
        PromptCut::Middle(HISTORY_TAIL),
    );
    pack.push_text(
        PromptPart::Failure,
        "## How the guard failed (`.runner/context/failure.md`)",
        &cut_middle(
            tidy(input.context_failure.unwrap_or_default()),
            share,
            FAILURE_TAIL,
        ),
        PromptCut::Middle(FAILURE_TAIL),
    );
    pack.push(
        PromptPart::Leaf,
        PromptSection::fenced(
            &format!(
                "## Selected leaf\n\nIts place in the tree: `{}`",
                cut_front(input.selected_path, 200)
            ),
            "json",
            tidy(input.selected_json),
            PromptCut::End,
        ),
    );
    for (path, text) in input.sidecars {
        pack.push_text(
            PromptPart::Sidecar,
            &format!("## Notes of a node (`{}`)", words::shown(path)),
            text,
            PromptCut::End,
        );
    }
    pack.push_text(
        PromptPart::Summary,
        "## The rest of the tree",
        input.tree_summary,
        PromptCut::End,
    );
    pack.push_text(
        PromptPart::Assumptions,
        "## Assumptions so far (`.runner/state/assumptions.md`)",
        input.assumptions,
        PromptCut::Front,
    );
    pack.push_text(
        PromptPart::Questions,
        "## Open questions so far (`.runner/state/questions.md`)",
        input.questions,
        PromptCut::Front,
    );

    // Without floors that leave room for each, a huge leaf would push out the rules.
    let room = pack.room();
    let contract = (room / 2).max(pack.len_of(PromptPart::Rules).min(room / 3 * 2));
    let goal = (room - contract) / 2;
    let leaf = room - contract - goal;
    pack.fit(&[
        (&[PromptPart::Summary], 0),
        (&[PromptPart::Sidecar], 0),
        (&[PromptPart::Assumptions], 0),
        (&[PromptPart::Questions], 0),
        (&[PromptPart::History], 0),
        (&[PromptPart::Failure], 0),
        // These three are the contract: its end goes first.
        (
            &[
                PromptPart::Instructions,
                PromptPart::GoalFile,
                PromptPart::Rules,
            ],
            contract,
        ),
        (&[PromptPart::Goal], goal),
        (&[PromptPart::Leaf], leaf),
    ])
}

fn repair(
    input: &PromptInput<'_>,
    findings: &[String],
    valid_tree: &str,
    refused_before: Option<&str>,
) -> String {
    let mut pack = PromptPack::new(input.budget_bytes, words::output_contract(input));
    pack.push(
        PromptPart::Rules,
        PromptSection::plain(
            "# Repair the task tree",
            &words::repair_rules(input),
            PromptCut::End,
        ),
    );
    pack.push_text(
        PromptPart::Refused,
        "## Why the last repair was not accepted",
        refused_before.unwrap_or_default(),
        PromptCut::End,
    );
    pack.push_text(
        PromptPart::Findings,
        "## What is wrong with the tree",
        &words::list(findings),
        PromptCut::End,
    );
    pack.push(
        PromptPart::ValidTree,
        PromptSection::fenced(
            "## The last valid tree",
            "json",
            tidy(valid_tree),
            PromptCut::Middle(50),
        ),
    );
    let room = pack.room();
    pack.fit(&[
        (&[PromptPart::ValidTree], room / 4),
        (&[PromptPart::Findings], room / 4),
        (&[PromptPart::Refused], room / 8),
        (&[PromptPart::Rules], room - room / 4 * 2 - room / 8),
    ])
}

/// How much of a shortened history is its end, in percent.
const HISTORY_TAIL: usize = 50;

/// The same for a guard log, whose end matters most.
const FAILURE_TAIL: usize = 75;

/// A file's text without what only surrounds it.
fn tidy(text: &str) -> &str {
    text.trim_start_matches(['\u{feff}', '\r', '\n']).trim_end()
}

#[cfg(test)]
mod tests;
