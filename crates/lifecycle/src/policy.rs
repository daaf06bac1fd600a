//! The numbers of the rules, with the defaults of the contract.

use std::collections::BTreeMap;

use crate::words::FailureCategory;

/// Every limit and every length of time that the rules use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Counted runs of one task in all.
    pub max_runs: u32,
    /// Retries for each category.
    pub retries: BTreeMap<FailureCategory, u32>,
    /// The same failure that often in a row ends the retries.
    pub signature_streak: u32,
    /// Lost runs, and lost judgements, that are tried again.
    pub max_lost: u32,
    /// Judgements that an evaluator could not make and that are tried again.
    pub max_judge_attempts: u32,
    /// New packets after structural codes.
    pub max_replans: u32,
    /// New packets after setup failures, and after policy failures.
    pub max_packets: u32,
    /// Policy failures without a safe path before the task is called off.
    pub max_policy_tries: u32,
    /// Failed repairs of the ledger before a person is asked.
    pub max_repairs: u32,
    /// Runs made anew from a pull request.
    pub max_restores: u32,
    /// `[AutoFix]` in a lineage.
    pub max_auto_fixes: u32,
    /// `[AutoFix-Conflict]` in a lineage.
    pub max_conflict_fixes: u32,
    /// `[Recreate]` in a lineage.
    pub max_recreations: u32,
    /// `[Rework]` in a lineage.
    pub max_rework_depth: u32,
    /// Tasks in a lineage.
    pub max_lineage: u32,
    /// Failures of one owner before others are preferred.
    pub owner_failures: u32,
    /// The first wait for a quota.
    pub quota_base_secs: u64,
    /// The longest one.
    pub quota_max_secs: u64,
    /// The first wait after a failed run, and after a judgement that could not be made.
    pub cooldown_base_secs: u64,
    /// The longest one.
    pub cooldown_max_secs: u64,
    /// How long a task with a dead dependency waits for a person.
    pub dependency_grace_secs: u64,
    /// How long the first in order waits for locks before it reserves its scope.
    pub reserve_after_secs: u64,
    /// The rule that is left out, to see that the model checker notices.
    #[cfg(test)]
    pub(crate) without: Option<PolicyRule>,
}

impl Default for Policy {
    fn default() -> Policy {
        Policy {
            max_runs: 10,
            retries: FailureCategory::ALL
                .iter()
                .map(|category| (*category, default_retries(*category)))
                .collect(),
            signature_streak: 4,
            max_lost: 5,
            max_judge_attempts: 5,
            max_replans: 1,
            max_packets: 3,
            max_policy_tries: 3,
            max_repairs: 3,
            max_restores: 3,
            max_auto_fixes: 3,
            max_conflict_fixes: 3,
            max_recreations: 1,
            max_rework_depth: 2,
            max_lineage: 8,
            owner_failures: 2,
            quota_base_secs: 120,
            quota_max_secs: 30 * 60,
            cooldown_base_secs: 30,
            cooldown_max_secs: 15 * 60,
            dependency_grace_secs: 24 * 3600,
            reserve_after_secs: 15 * 60,
            #[cfg(test)]
            without: None,
        }
    }
}

/// How often a run that failed so is tried again.
fn default_retries(category: FailureCategory) -> u32 {
    match category {
        FailureCategory::Permission | FailureCategory::NoChange | FailureCategory::Budget => 0,
        FailureCategory::ModelLoop => 1,
        FailureCategory::Setup
        | FailureCategory::Policy
        | FailureCategory::Test
        | FailureCategory::Model => 3,
        FailureCategory::Env => 5,
        FailureCategory::Flaky => 6,
    }
}

/// Rules without which the ledger would lie or stand still. Tests leave out one at a
/// time and see the model checker find it; builds for use have no such switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PolicyRule {
    /// A write names the token of the current lease.
    Fencing,
    /// A request names the version that it was made for.
    CompareAndSet,
    /// A repeated request gets its recorded answer.
    Receipts,
    /// A claim takes no scope that overlaps a held one.
    LockConflicts,
    /// Locks end with the work they were taken for.
    LockRelease,
    /// `done` takes a pass with evidence for every criterion.
    Evidence,
    /// There is no way out of a terminal state.
    TerminalStates,
    /// An open intent stops everything but rolling it forward.
    IntentFirst,
    /// An intent is void only when the base is elsewhere.
    IntentRollForward,
    /// Settling an intent names the one that it is about.
    IntentNamed,
    /// Lost runs are counted.
    LostCount,
    /// A judgement that was cut off leaves the run unjudged.
    Unjudge,
    /// A lineage has an end.
    LineageLimit,
    /// A dead dependency is noticed.
    DeadDependency,
    /// A claim is taken back only while its owner has not said a word.
    NeverBegan,
    /// A merge that takes too long leaves its intent to the next one.
    TimeboxKeepsIntent,
    /// The packet of a task changes only while nobody works on it.
    ReplanIdle,
    /// Nothing starts while it is paused.
    Pause,
    /// A task has one successor.
    OneSuccessor,
    /// A repair times out work without a lease or a lock.
    RepairOfWork,
}

impl Policy {
    /// Whether a rule holds. Always, but for the tests of the model checker.
    #[cfg(not(test))]
    #[inline]
    #[allow(clippy::unused_self)]
    pub(crate) const fn enforces(&self, _rule: PolicyRule) -> bool {
        true
    }

    /// Whether a rule holds. Always, but for the tests of the model checker.
    #[cfg(test)]
    pub(crate) fn enforces(&self, rule: PolicyRule) -> bool {
        self.without != Some(rule)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retries_by_category() {
        for (word, retries) in [
            ("env", 5),
            ("setup", 3),
            ("permission", 0),
            ("no_change", 0),
            ("policy", 3),
            ("test", 3),
            ("flaky", 6),
            ("model", 3),
            ("model_loop", 1),
            ("budget", 0),
        ] {
            let category = FailureCategory::parse(word).unwrap();
            assert_eq!(Policy::default().retries[&category], retries, "{word}");
        }
        assert_eq!(FailureCategory::ALL.len(), 10);
    }
}
