//! What `land` makes of the tests and settings that a run changed, as far as that is known before.

use serde::Serialize;

/// What is to be expected where a run changed what judges it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LandForecast {
    /// What comes of it.
    pub expect: LandExpectation,
    /// Why, in words.
    pub why: String,
    /// What the run changed about its judge.
    pub changed: Vec<String>,
    /// The command by which a person accepts that.
    pub accept: String,
}

/// What comes of a judge that a run changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LandExpectation {
    /// The guard runs a second time, with only the product files of the run, and decides.
    SecondVerdict,
    /// It does not land without a person.
    Refused,
}

impl LandForecast {
    /// One sentence.
    pub fn words(&self) -> String {
        match self.expect {
            LandExpectation::SecondVerdict => format!(
                "runner land runs the guard a second time with only the product files of the run, and refuses \
                 where that fails: {}",
                self.why
            ),
            LandExpectation::Refused => format!("runner land refuses this: {}", self.why),
        }
    }
}
