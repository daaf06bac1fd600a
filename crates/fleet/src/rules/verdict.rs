//! What a reviewer says: read strictly, for half a verdict is none.

use std::collections::BTreeSet;

use runner_lifecycle::row::{Criterion, ReviewRemark};
use serde::Deserialize;

/// The published schema of a verdict; the reviewer is given it.
pub const SCHEMA: &str = include_str!("../../../../schemas/verdict.schema.json");

/// The longest verdict that is read.
const MAX_BYTES: usize = 200_000;

/// The most findings of one verdict.
pub const MAX_FINDINGS: usize = 50;

/// A verdict.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(rename = "Verdict"))]
pub struct ReviewVerdict {
    /// Whether the result may be merged.
    pub verdict: ReviewDecision,
    /// Why, in a sentence or two.
    #[cfg_attr(test, schemars(length(min = 1, max = 2000)))]
    pub summary: String,
    /// What is wrong; a rejection names at least one finding or a criterion that fails.
    #[cfg_attr(test, schemars(length(max = 50)))]
    pub findings: Vec<ReviewFinding>,
    /// One answer for each criterion that was asked.
    pub criteria: Vec<CriterionAnswer>,
}

/// Approved or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(inline))]
pub enum ReviewDecision {
    /// It may be merged.
    Approve,
    /// It needs rework.
    Reject,
}

/// Something that is wrong.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(inline))]
pub struct ReviewFinding {
    /// A name that the same finding keeps in the next review.
    #[cfg_attr(test, schemars(regex(pattern = "^[A-Za-z0-9._-]{1,64}$")))]
    pub id: String,
    /// What is wrong, and where.
    #[cfg_attr(test, schemars(length(min = 1, max = 2000)))]
    pub text: String,
}

/// The answer to one criterion.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(inline))]
pub struct CriterionAnswer {
    /// Its id.
    #[cfg_attr(test, schemars(length(min = 1)))]
    pub id: String,
    /// Whether it holds.
    pub status: CriterionState,
    /// How one can see that.
    #[cfg_attr(test, schemars(length(min = 1, max = 2000)))]
    pub evidence: String,
}

/// Whether a criterion holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(inline))]
pub enum CriterionState {
    /// It does.
    Pass,
    /// It does not.
    Fail,
}

/// Why a text is no verdict, as a lowercase fragment.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct MalformedVerdict(pub String);

impl ReviewVerdict {
    /// Reads what a reviewer said about these criteria.
    pub fn parse(text: &str, criteria: &[Criterion]) -> Result<ReviewVerdict, MalformedVerdict> {
        let refuse = |words: String| Err(MalformedVerdict(words));
        if text.len() > MAX_BYTES {
            return refuse(format!(
                "the verdict has {} bytes, {MAX_BYTES} at most",
                text.len()
            ));
        }
        let verdict: ReviewVerdict =
            serde_json::from_str(super::json_of(text)).map_err(|error| {
                MalformedVerdict(format!("the verdict is not as the schema says: {error}"))
            })?;
        verdict.check()?;
        let asked: BTreeSet<&str> = criteria.iter().map(|one| one.id.as_str()).collect();
        let answered: BTreeSet<&str> = verdict.criteria.iter().map(|one| one.id.as_str()).collect();
        if let Some(id) = asked.difference(&answered).next() {
            return refuse(format!("criterion {id} is not answered"));
        }
        if let Some(id) = answered.difference(&asked).next() {
            return refuse(format!("criterion {id:?} was not asked"));
        }
        Ok(verdict)
    }

    /// What the types do not hold by themselves.
    fn check(&self) -> Result<(), MalformedVerdict> {
        let refuse = |words: String| Err(MalformedVerdict(words));
        let too_long = |text: &str| text.trim().is_empty() || text.chars().count() > 2000;
        if too_long(&self.summary) {
            return refuse("the summary is empty or too long".to_owned());
        }
        if self.findings.len() > MAX_FINDINGS {
            return refuse(format!(
                "{} findings, {MAX_FINDINGS} at most",
                self.findings.len()
            ));
        }
        let mut ids = BTreeSet::new();
        for finding in &self.findings {
            if !is_id(&finding.id) || !ids.insert(&finding.id) {
                return refuse(format!("finding {:?} needs an id of its own", finding.id));
            }
            if too_long(&finding.text) {
                return refuse(format!("finding {} says nothing, or too much", finding.id));
            }
        }
        let mut answered = BTreeSet::new();
        for answer in &self.criteria {
            if !answered.insert(&answer.id) {
                return refuse(format!("criterion {} is answered twice", answer.id));
            }
            if too_long(&answer.evidence) {
                return refuse(format!(
                    "criterion {} has no evidence, or too much",
                    answer.id
                ));
            }
        }
        let failing = self
            .criteria
            .iter()
            .find(|one| one.status == CriterionState::Fail);
        match (self.verdict, failing) {
            (ReviewDecision::Approve, Some(answer)) => refuse(format!(
                "it approves although criterion {} fails",
                answer.id
            )),
            (ReviewDecision::Approve, None) if !self.findings.is_empty() => {
                refuse("it approves and raises findings".to_owned())
            }
            (ReviewDecision::Reject, None) if self.findings.is_empty() => {
                refuse("it rejects and says not why".to_owned())
            }
            _ => Ok(()),
        }
    }

    /// What is left of it once settled findings are dropped. A rejection for nothing but
    /// settled findings is none.
    #[must_use]
    pub fn without_settled(mut self, settled: &[ReviewRemark]) -> ReviewVerdict {
        self.findings
            .retain(|finding| !settled.iter().any(|one| one.id == finding.id));
        let failing = self
            .criteria
            .iter()
            .any(|one| one.status == CriterionState::Fail);
        if self.findings.is_empty() && !failing {
            self.verdict = ReviewDecision::Approve;
        }
        self
    }

    /// What it raises, failing criteria included, as remarks of the task.
    pub fn remarks(&self) -> Vec<ReviewRemark> {
        let findings = self.findings.iter().map(|finding| ReviewRemark {
            id: finding.id.clone(),
            text: finding.text.clone(),
        });
        let failing = self
            .criteria
            .iter()
            .filter(|one| one.status == CriterionState::Fail);
        findings
            .chain(failing.map(|answer| ReviewRemark {
                id: format!("criterion:{}", answer.id),
                text: answer.evidence.clone(),
            }))
            .collect()
    }
}

fn is_id(text: &str) -> bool {
    (1..=64).contains(&text.len())
        && text
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-'))
}

#[cfg(test)]
mod tests;
