//! Claims of several callers in one transaction.
//!
//! Only what is plain is claimed in a batch: a task that nothing stands in the way of. For
//! anything else its caller goes alone.

use runner_lifecycle::decide::Decision;
use runner_lifecycle::{Lane, TaskId, decide, lock};

use crate::batch::batcher::BatchHandler;
use crate::call::change::StoreChange;
use crate::claim::claims;
use crate::claim::claims::{ClaimAttempt, ClaimRequest};
use crate::claim::picks;
use crate::error::LedgerError;
use crate::ledger::Ledger;
use crate::store::engine::{StoreAccess, StoreTx};
use crate::store::postgres::write;

/// Whose tasks are claimed: a role, and a lane if not all of them.
pub(crate) type ClaimKind = (String, Option<Lane>);

/// What came of a claim; none: try it alone. With the task whose claim was lost.
pub(crate) type BatchClaimResult = Option<(Result<ClaimAttempt, LedgerError>, Option<TaskId>)>;

impl BatchHandler<ClaimKind, ClaimRequest, BatchClaimResult> for Ledger {
    async fn serve(
        self,
        kind: ClaimKind,
        claim_requests: Vec<ClaimRequest>,
    ) -> Vec<BatchClaimResult> {
        if let [claim_request] = claim_requests.as_slice() {
            let mut lost = None;
            let tried = Box::pin(self.claim_once(claim_request, false, &mut lost)).await;
            return vec![Some((tried, lost))];
        }
        let mut tried: Vec<BatchClaimResult> = claim_requests.iter().map(|_| None).collect();
        match Box::pin(self.claim_some(&kind, &claim_requests)).await {
            Ok(claimed) => {
                for (tried, claimed) in tried.iter_mut().zip(claimed) {
                    *tried = claimed.map(|claimed| (Ok(claimed), None));
                }
            }
            Err(LedgerError::Store(error)) if error.is_for_everybody() => {
                for tried in &mut tried {
                    *tried = Some((Err(error.clone().into()), None));
                }
            }
            // Somebody was faster, one of them has it already, or something is wrong with one
            // of them: each finds out alone.
            Err(_) => {}
        }
        tried
    }
}

impl Ledger {
    /// Claims the first tasks in order, one for each as far as they are plain.
    async fn claim_some(
        &self,
        kind: &ClaimKind,
        claim_requests: &[ClaimRequest],
    ) -> Result<Vec<Option<ClaimAttempt>>, LedgerError> {
        let mut tx = self.engine.begin(StoreAccess::Write).await?;
        let mut claimed: Vec<Option<ClaimAttempt>> = claim_requests.iter().map(|_| None).collect();
        let tried = self
            .decide_and_write_claims(&mut *tx, kind, claim_requests)
            .await;
        let decisions = match tried {
            Ok(decisions) if !decisions.is_empty() => decisions,
            // Before each tries it alone: what is locked here would be skipped there.
            tried => {
                tx.rollback().await.ok();
                return tried.map(|_| claimed);
            }
        };
        tx.commit().await?;
        self.engine.announce();
        for (place, decision) in decisions {
            self.memory.note(&decision);
            claimed[place] = Some(claims::claimed(decision));
        }
        Ok(claimed)
    }

    /// What is written for which of them.
    async fn decide_and_write_claims(
        &self,
        tx: &mut dyn StoreTx,
        kind: &ClaimKind,
        claim_requests: &[ClaimRequest],
    ) -> Result<Vec<(usize, Decision)>, LedgerError> {
        let picked = picks::pick_some(self, tx, kind, claim_requests.len()).await?;
        let (mut decisions, mut changes, mut scope) = (Vec::new(), Vec::new(), Vec::new());
        for (place, (claim_request, picked)) in claim_requests.iter().zip(picked).enumerate() {
            let own = picked.loaded.task.work_scope();
            let free = picked.is_plain() && !lock::overlap(&own, &scope);
            // Whoever comes later does not get what somebody before him goes for alone.
            scope.extend(own);
            if !free {
                continue;
            }
            let (task, now) = (Some(&picked.loaded.task), picked.now);
            let facts = picked.facts(claim_request);
            let Ok(decision) = decide(&self.policy, task, &claim_request.call(), &facts, now)
            else {
                continue;
            };
            let change = StoreChange::of(&self.policy, Some(&picked.loaded), &decision, None, now)?;
            if write::is_plain_claim(&change) {
                changes.push(change);
                decisions.push((place, decision));
            }
        }
        if !changes.is_empty() {
            tx.last_write();
            tx.write_at_once(&changes).await?;
        }
        Ok(decisions)
    }
}
