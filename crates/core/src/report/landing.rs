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
    /// What it added, where nothing was.
    pub added: Vec<String>,
    /// The command by which a person accepts that; none where nothing of the base was changed.
    pub accept: Option<String>,
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
                "runner land also tries the product with the tests and settings of the base, because {}; nothing \
                 is to be done now",
                self.why
            ),
            LandExpectation::Refused => format!("runner land refuses this: {}", self.why),
        }
    }

    /// The files in a line each, with what the run did to them where that is not the same for all.
    pub fn files(&self) -> Vec<String> {
        let added = self.added.iter().map(|name| format!("added: {name}"));
        let changed = self.changed.iter().map(|name| format!("changed: {name}"));
        match self.expect {
            LandExpectation::SecondVerdict => added.chain(changed).collect(),
            LandExpectation::Refused => self.added.iter().chain(&self.changed).cloned().collect(),
        }
    }

    /// When the command that accepts it is the one to type.
    pub fn accept_if(&self) -> &'static str {
        match self.expect {
            LandExpectation::SecondVerdict => "if it refuses, and the changes are right",
            LandExpectation::Refused => "if that is right, accept it",
        }
    }
}
