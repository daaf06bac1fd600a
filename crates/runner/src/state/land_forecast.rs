//! What `land` makes of the tests and settings that a run changed, from what is recorded alone: no
//! guard runs for it, and nothing is written.

use runner_core::config::{Config, OriginalTests};
use runner_core::evidence::TestTool;
use runner_core::meta::{IterationMeta, IterationVerdict};
use runner_core::report::{LandExpectation, LandForecast};

use crate::base_trial::evidence::BaseEvidence;
use crate::error::Result;
use crate::git::Git;
use crate::inversion::{self, JudgeComparison, JudgeDifference, TestsTaken};
use crate::land::{RELEASE_TESTS, RefusedLanding};
use crate::project::Project;
use crate::state::runs::full_name;

/// A run that may land.
pub(super) struct LandCandidate<'a> {
    pub(super) project: &'a Project,
    pub(super) git: &'a Git,
    pub(super) run_id: &'a str,
    pub(super) config: &'a Config,
    /// Branch and commit that it began from.
    pub(super) base: (&'a str, &'a str),
    /// Its last commit.
    pub(super) tip: &'a str,
}

impl LandCandidate<'_> {
    /// What is to be expected. `metas`: the records of its iterations, rising.
    pub(super) fn forecasts(&self, metas: &[&IterationMeta]) -> Result<Vec<LandForecast>> {
        let mut found = Vec::new();
        if let Some(refused) = self.refused_before()? {
            found.push(refused);
        } else if let Some(forecast) = self.changed_judge()? {
            found.push(forecast);
        }
        found.extend(self.changed_tests(metas));
        Ok(found)
    }

    /// What `land` said of the same commits.
    fn refused_before(&self) -> Result<Option<LandForecast>> {
        let Some(refused) = RefusedLanding::read(self.project, self.run_id) else {
            return Ok(None);
        };
        let branch_tip = self.git.commit_of(&full_name(&refused.branch))?;
        let is_same = refused.tip == self.tip && branch_tip == Some(refused.branch_tip);
        Ok(is_same.then(|| LandForecast {
            expect: LandExpectation::Refused,
            why: format!("it did so before: {}", refused.why),
            changed: refused.changed,
            added: Vec::new(),
            accept: Some(refused.accept),
        }))
    }

    /// The judge by inversion.
    fn changed_judge(&self) -> Result<Option<LandForecast>> {
        let (branch, base) = self.base;
        let commits = (base, self.tip);
        let tests = TestsTaken::of(self.config);
        let compared = inversion::compare(self.git, self.config, commits, tests)?;
        let JudgeComparison::Differs(difference) = compared else {
            return Ok(None);
        };
        if !inversion::has_judge(self.git, self.config, commits)? {
            return Ok(None);
        }
        let into = match branch {
            "HEAD" => " --into BRANCH",
            _ => "",
        };
        let refused = match difference.packages_words() {
            Some(words) => Some(words),
            None => self.red_as_the_base(&difference)?,
        };
        let JudgeDifference {
            mut left_out,
            added,
            ..
        } = difference;
        left_out.retain(|name| !added.contains(name));
        let did = match (left_out.is_empty(), added.is_empty()) {
            (true, _) => "added",
            (false, true) => "changed",
            (false, false) => "added and changed",
        };
        let (expect, why) = match refused {
            Some(why) => (LandExpectation::Refused, why),
            None => (
                LandExpectation::SecondVerdict,
                format!("the run {did} tests or settings"),
            ),
        };
        // Whoever only added something has nothing to accept before it was tried.
        let is_known = expect == LandExpectation::Refused || !left_out.is_empty();
        let accept = is_known.then(|| format!("runner land{into} --accept-changed-judge"));
        Ok(Some(LandForecast {
            expect,
            why,
            changed: left_out,
            added,
            accept,
        }))
    }

    /// Without any product the second verdict is that about the base, which is known where the guard
    /// is a test tool itself that reported failures there.
    fn red_as_the_base(&self, difference: &JudgeDifference) -> Result<Option<String>> {
        let is_tool = TestTool::called_by(&self.config.guard.command).is_some();
        if difference.has_product() || !is_tool {
            return Ok(None);
        }
        let known = BaseEvidence::at(self.git, self.config, self.base.1)?.read();
        let failed: u64 = known
            .iter()
            .flat_map(|it| it.tools.values())
            .map(|it| it.failed)
            .sum();
        Ok((failed > 0)
            .then(|| "the run changed no product file, and tests failed where it began".to_owned()))
    }

    /// Original tests that were tried and failed, where no session came after that.
    fn changed_tests(&self, metas: &[&IterationMeta]) -> Option<LandForecast> {
        if self.config.guard.original_tests != OriginalTests::Require {
            return None;
        }
        let mut newest = metas.iter().rev();
        let judged = newest.find(|meta| {
            let verdict = meta.verdict();
            !matches!(
                verdict,
                IterationVerdict::RunnerError | IterationVerdict::CutOff
            )
        })?;
        let why = judged.facts.original_tests_failed.as_ref()?;
        let (command, how) = RELEASE_TESTS;
        Some(LandForecast {
            expect: LandExpectation::Refused,
            why: format!(
                "in iteration {} the guard did not pass with the tests as they were when the run began: {why}; {how}",
                judged.iter
            ),
            changed: judged.facts.test_files_changed.clone(),
            added: Vec::new(),
            accept: Some(command.to_owned()),
        })
    }
}
