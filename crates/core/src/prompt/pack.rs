//! Sections of a prompt and how they are made to fit into its budget.

use std::borrow::Cow;

use super::tidy;
use crate::text::{cut_end, cut_front, cut_middle, fence};

/// Less than this of a text is not worth its heading.
const MIN_BODY_BYTES: usize = 120;

/// Which part of the prompt a section is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PromptPart {
    Rules,
    GoalFile,
    Instructions,
    Goal,
    History,
    Failure,
    Leaf,
    Sidecar,
    Summary,
    Assumptions,
    Questions,
    Refused,
    Findings,
    ValidTree,
}

/// Where a section may be shortened.
#[derive(Clone, Copy, Debug)]
pub(super) enum PromptCut {
    Front,
    End,
    /// The number is the end's share in percent.
    Middle(usize),
}

/// A heading with a text that can be shortened.
#[derive(Clone, Debug)]
pub(super) struct PromptSection {
    before: String,
    body: String,
    after: String,
    cut: PromptCut,
}

impl PromptSection {
    /// Text of our own.
    pub(super) fn plain(head: &str, body: &str, cut: PromptCut) -> Self {
        PromptSection {
            before: format!("{head}\n\n"),
            body: body.to_owned(),
            after: "\n\n".to_owned(),
            cut,
        }
    }

    /// Text of others: in a fence that it cannot close, so that nothing in it reads as
    /// a part of the prompt.
    pub(super) fn fenced(head: &str, language: &str, body: &str, cut: PromptCut) -> Self {
        let fence = fence(body);
        PromptSection {
            before: format!("{head}\n\n{fence}{language}\n"),
            body: body.to_owned(),
            after: format!("\n{fence}\n\n"),
            cut,
        }
    }

    fn len(&self) -> usize {
        self.before.len() + self.body.len() + self.after.len()
    }

    /// The section in at most `max_bytes`, if something of it can be kept.
    fn shortened(mut self, max_bytes: usize) -> Option<Self> {
        let room = max_bytes.checked_sub(self.before.len() + self.after.len())?;
        if room < MIN_BODY_BYTES {
            return None;
        }
        let short = match self.cut {
            PromptCut::Front => cut_front(&self.body, room),
            PromptCut::End => cut_end(&self.body, room),
            PromptCut::Middle(tail) => cut_middle(&self.body, room, tail),
        };
        if let Cow::Owned(short) = short {
            self.body = short;
        }
        Some(self)
    }
}

/// The sections in their order, and the end that is never cut.
pub(super) struct PromptPack {
    budget: usize,
    sections: Vec<(PromptPart, PromptSection)>,
    end: String,
}

impl PromptPack {
    pub(super) fn new(budget: usize, end: String) -> Self {
        PromptPack {
            budget,
            sections: Vec::new(),
            end,
        }
    }

    pub(super) fn push(&mut self, part: PromptPart, section: PromptSection) {
        self.sections.push((part, section));
    }

    /// Adds a Markdown text, unless it is blank.
    pub(super) fn push_text(&mut self, part: PromptPart, head: &str, text: &str, cut: PromptCut) {
        let text = tidy(text);
        if !text.is_empty() {
            self.push(part, PromptSection::fenced(head, "markdown", text, cut));
        }
    }

    /// The budget of all sections together.
    pub(super) fn room(&self) -> usize {
        self.budget.saturating_sub(self.end.len())
    }

    pub(super) fn len_of(&self, part: PromptPart) -> usize {
        self.len_of_all(&[part])
    }

    fn len_of_all(&self, parts: &[PromptPart]) -> usize {
        let of_parts = self
            .sections
            .iter()
            .filter(|(part, _)| parts.contains(part));
        of_parts.map(|(_, section)| section.len()).sum()
    }

    /// Shortens or drops, step by step, until everything fits. A step names parts that
    /// give way in this order, the last section of a part first, but together not below
    /// a floor as long as a later step can give way instead.
    ///
    /// Everything fits in the end if the floors together do.
    pub(super) fn fit(mut self, steps: &[(&[PromptPart], usize)]) -> String {
        for (parts, floor) in steps {
            for part in *parts {
                for index in (0..self.sections.len()).rev() {
                    if self.sections[index].0 == *part {
                        self.give_way(index, parts, *floor);
                    }
                }
            }
        }
        let mut prompt = String::with_capacity(self.budget.min(1 << 20));
        for (_, section) in &self.sections {
            prompt.push_str(&section.before);
            prompt.push_str(&section.body);
            prompt.push_str(&section.after);
        }
        prompt.push_str(&self.end);
        prompt
    }

    fn give_way(&mut self, index: usize, group: &[PromptPart], floor: usize) {
        let total: usize = self.sections.iter().map(|(_, s)| s.len()).sum();
        let excess = total.saturating_sub(self.room());
        let spare = self.len_of_all(group).saturating_sub(floor);
        let less = excess.min(spare);
        if less == 0 {
            return;
        }
        let (part, section) = self.sections.remove(index);
        let max_bytes = section.len().saturating_sub(less);
        if let Some(section) = section.shortened(max_bytes) {
            self.sections.insert(index, (part, section));
        }
    }
}
