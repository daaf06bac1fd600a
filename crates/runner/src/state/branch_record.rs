//! What the branch of a run says: its iterations, what people did between them,
//! where it began. A clone without logs has this too.

use std::collections::BTreeMap;

use runner_core::message::{self, ByHand};
use runner_core::meta::IterationVerdict;
use runner_core::report::ReportCommit;

use crate::error::Result;
use crate::git::{Git, GitCommit, GitHistory};
use crate::run::refs::RunRefs;

/// The commits of a run, in the runner's own words.
#[derive(Clone, Debug, Default)]
pub(crate) struct BranchRecord {
    /// By number.
    pub(crate) iterations: BTreeMap<u32, GitCommit>,
    /// What people did through the runner, oldest first: after which iteration
    /// (0: before the first), what, and the commit.
    pub(crate) by_hand: Vec<(u32, ByHand, GitCommit)>,
    /// Branch and commit that the run began from.
    pub(crate) base: Option<(String, String)>,
    /// The commit that began the run.
    pub(crate) start: Option<String>,
}

impl BranchRecord {
    /// Reads the branch of a run back to where it began. What sessions committed
    /// by themselves is passed over.
    pub(crate) fn read(git: &Git, run_id: &str) -> Result<Self> {
        let mut record = BranchRecord::default();
        let mut waiting = Vec::new();
        let start_subject = message::start_subject(run_id);
        let refs = RunRefs::read(git, run_id)?;
        for commit in refs
            .tip()
            .into_iter()
            .flat_map(|tip| GitHistory::from(git, tip))
        {
            let commit = commit?;
            if record.base.as_ref().is_some_and(|base| base.1 == commit.id) {
                break;
            }
            if let Some(by_hand) = ByHand::parse(commit.subject()) {
                waiting.push((by_hand, commit));
            } else if commit.subject() == start_subject {
                record.start = Some(commit.id.clone());
                record.base = message::trailer(&commit.message, "Runner-Base")
                    .and_then(|value| value.rsplit_once(' '))
                    .map(|(branch, commit)| (branch.to_owned(), commit.to_owned()));
            } else if let Some(subject) = message::parse_subject(commit.subject())
                && subject.run_id == run_id
            {
                record.note(&mut waiting, subject.iter);
                record.iterations.insert(subject.iter, commit);
            }
        }
        record.note(&mut waiting, 0);
        record.by_hand.reverse();
        Ok(record)
    }

    fn note(&mut self, waiting: &mut Vec<(ByHand, GitCommit)>, iter: u32) {
        let found = waiting.drain(..).map(|(what, commit)| (iter, what, commit));
        self.by_hand.extend(found);
    }

    /// What the commit of an iteration says.
    pub(crate) fn committed(&self, iter: u32) -> Option<ReportCommit> {
        let commit = self.iterations.get(&iter)?;
        let subject = message::parse_subject(commit.subject())?;
        let trailer = |name| message::trailer(&commit.message, name);
        let repair = trailer("Runner-Mode") == Some("repair");
        let guard = trailer("Runner-Guard").and_then(message::parse_guard_trailer);
        let log = trailer("Runner-Guard-Log").and_then(|value| value.strip_prefix("sha256:"));
        Some(ReportCommit {
            id: commit.id.clone(),
            node_id: subject.node_id,
            verdict: IterationVerdict::of_commit(subject.status, subject.guard, repair),
            guard_exit: guard.map(|(_, exit)| exit),
            log_sha256: log.map(str::to_owned),
        })
    }
}
