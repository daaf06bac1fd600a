//! Claims of whatever is first in order: no table is ever scanned for them.

use runner_lifecycle::decide::{Answer, assignment};
use runner_lifecycle::lock::ScopeLock;
use runner_lifecycle::packet::Assignment;
use runner_lifecycle::ready::{self, NotReady};
use runner_lifecycle::request::Claim;
use runner_lifecycle::{
    Facts, Lane, LeasePurpose, RefusalCode, Request, Task, TaskCall, TaskId, TaskState, Timestamp,
};

use crate::call::facts;
use crate::call::facts::LoadedTask;
use crate::call::records;
use crate::claim::picks;
use crate::error::LedgerError;
use crate::ledger::{ConflictRetry, Ledger};
use crate::role::wakes;
use crate::role::wakes::WakeKey;
use crate::store::engine::{MemoryWriteMode, SqlArg, SqlText, StoreAccess, StoreTx, all, one};

/// How many tasks that cannot start are put aside before their places are written.
const MAX_PUT_ASIDE: usize = 32;

/// Who wants something to do.
#[derive(Clone, Debug)]
pub struct ClaimRequest {
    /// Who shall hold the lease.
    pub owner: String,
    /// The role whose tasks the owner gets; for work alone.
    pub role: String,
    /// The one lane to take from; none: every lane.
    pub lane: Option<Lane>,
    /// What for.
    pub purpose: LeasePurpose,
    /// The owner's own name for this claim, never used twice. A repeat gets the same
    /// lease.
    pub key: String,
    /// The base of the merge queue, for a merge.
    pub base: Option<String>,
    /// What the caller knows that is in no ledger.
    pub outside: Facts,
}

impl ClaimRequest {
    /// Work of a role.
    pub fn work(owner: &str, role: &str, key: &str) -> ClaimRequest {
        ClaimRequest {
            owner: owner.to_owned(),
            role: role.to_owned(),
            lane: None,
            purpose: LeasePurpose::Work,
            key: key.to_owned(),
            base: None,
            outside: Facts::default(),
        }
    }

    pub(crate) fn call(&self) -> TaskCall {
        TaskCall {
            actor: self.owner.clone(),
            expected_version: None,
            request: Request::Claim(Claim {
                owner: self.owner.clone(),
                purpose: self.purpose,
                key: self.key.clone(),
                base: self.base.clone(),
            }),
        }
    }
}

/// A claim that succeeded.
#[derive(Clone, Debug)]
pub struct ClaimedTask {
    /// The row.
    pub task: Task,
    /// Name it in every write.
    pub token: u64,
    /// The run that it is about.
    pub run_id: String,
    /// When the lease ends unless a heartbeat comes.
    pub expires_at: Timestamp,
    /// Whether this claim had succeeded before.
    pub replayed: bool,
}

impl ClaimedTask {
    /// What the owner is given: the task, and the locks that others hold.
    pub fn assignment(&self, objective: &str, locks: &[ScopeLock]) -> Assignment {
        assignment(&self.task, &self.run_id, objective, locks)
    }
}

/// A task that may be claimed, with what the claim must know.
pub(crate) struct ClaimCandidate {
    pub(crate) loaded: LoadedTask,
    pub(crate) facts: Facts,
    pub(crate) now: Timestamp,
}

/// What one transaction came to.
pub(crate) enum ClaimAttempt {
    Claimed(Box<ClaimedTask>),
    /// Some were put aside; there may be more.
    Again,
    Nothing,
}

macro_rules! ready_tasks {
    ($lane:literal, $lock:literal) => {
        concat!(
            "SELECT id FROM tasks WHERE awaits = 'work' AND unmet = 0 AND waits_for IS NULL \
             AND role = $1 ",
            $lane,
            " ORDER BY rank, created_at, id LIMIT 1",
            $lock
        )
    };
}

/// The index of ready tasks. `$2` is the lane.
pub(crate) const READY: SqlText = SqlText {
    sqlite: ready_tasks!("AND $2 IS NULL", ""),
    postgres: ready_tasks!("AND $2::text IS NULL", " FOR UPDATE SKIP LOCKED"),
};
pub(crate) const READY_IN_LANE: SqlText = SqlText {
    sqlite: ready_tasks!("AND lane = $2", ""),
    postgres: ready_tasks!("AND lane = $2", " FOR UPDATE SKIP LOCKED"),
};

macro_rules! awaiting {
    ($what:literal, $lock:literal) => {
        concat!(
            "SELECT id FROM tasks WHERE awaits = '",
            $what,
            "' AND (retry_at IS NULL OR retry_at <= $1) ORDER BY rank, created_at, id LIMIT 1",
            $lock
        )
    };
}

const TO_JUDGE: SqlText = SqlText {
    sqlite: awaiting!("judge", ""),
    postgres: awaiting!("judge", " FOR UPDATE SKIP LOCKED"),
};
const TO_MERGE: SqlText = SqlText {
    sqlite: awaiting!("merge", ""),
    postgres: awaiting!("merge", " FOR UPDATE SKIP LOCKED"),
};
const SAME_CLAIM: &str = "SELECT task_id FROM leases WHERE owner = $1 AND claim_key = $2";

impl Ledger {
    /// Claims the first task in order that can start now.
    pub async fn claim_next(
        &self,
        claim_request: &ClaimRequest,
    ) -> Result<Option<ClaimedTask>, LedgerError> {
        let mut retry = ConflictRetry::default();
        // The task whose claim was lost last.
        let mut lost = None;
        loop {
            let tried = match self.claim_in_batch(claim_request, &retry, &mut lost).await {
                Some(tried) => tried,
                None => Box::pin(self.claim_once(claim_request, retry.is_again(), &mut lost)).await,
            };
            match tried {
                Ok(ClaimAttempt::Claimed(claimed)) => return Ok(Some(*claimed)),
                Ok(ClaimAttempt::Nothing) => return Ok(None),
                Ok(ClaimAttempt::Again) => {}
                Err(error) => {
                    if let Err(last) = retry.again(error).await {
                        if retry.is_used_up()
                            && let Some(id) = &lost
                        {
                            self.block_lost_claim(id, &claim_request.owner).await;
                        }
                        return Err(last);
                    }
                }
            }
        }
    }

    /// The first try, together with others who want the same; none: it must be tried alone.
    async fn claim_in_batch(
        &self,
        claim_request: &ClaimRequest,
        retry: &ConflictRetry,
        lost: &mut Option<TaskId>,
    ) -> Option<Result<ClaimAttempt, LedgerError>> {
        let first = !retry.is_again() && claim_request.purpose == LeasePurpose::Work;
        if !first || self.engine.memory_writes() != MemoryWriteMode::AtOnce {
            return None;
        }
        let kind = (claim_request.role.clone(), claim_request.lane);
        let tried = self.claims.ask(kind, claim_request.clone(), self).await;
        let (tried, tried_for) = tried.flatten()?;
        *lost = tried_for;
        Some(tried)
    }

    /// `repeated`: somebody was faster, and that may have been this very claim. `tried` is
    /// the task that it is about, once that is known.
    pub(crate) async fn claim_once(
        &self,
        claim_request: &ClaimRequest,
        repeated: bool,
        tried: &mut Option<TaskId>,
    ) -> Result<ClaimAttempt, LedgerError> {
        let mut tx = self.engine.begin(StoreAccess::Write).await?;
        let call = claim_request.call();
        let found = if claim_request.purpose == LeasePurpose::Work && tx.writes_at_once() {
            picks::pick(self, &mut *tx, claim_request, repeated).await?
        } else {
            self.find(&mut *tx, claim_request, &call).await?
        };
        let Some(found) = found else {
            return Ok(ClaimAttempt::Nothing);
        };
        let ClaimCandidate { loaded, facts, now } = found;
        *tried = Some(loaded.task.id.clone());
        tx.last_write();
        let tried = self.settle(&mut *tx, Some(&loaded), &call, &facts, None, now);
        match tried.await {
            Ok(decision) => {
                tx.commit().await?;
                self.memory.note(&decision);
                if !decision.events.is_empty() {
                    self.engine.announce();
                }
                Ok(claimed(decision))
            }
            Err(LedgerError::Refused(refusal)) => {
                let waits = refusal.code == RefusalCode::LockConflict;
                if !waits || claim_request.purpose != LeasePurpose::Work {
                    tx.rollback().await?;
                    return Ok(ClaimAttempt::Nothing);
                }
                self.put_aside(tx, claim_request, loaded).await
            }
            Err(error) => {
                // Before it is tried again: what is locked here would be skipped there. If
                // that fails, too, the connection is gone, and the locks with it.
                tx.rollback().await.ok();
                Err(error)
            }
        }
    }

    /// The task that this claim got before or else the first in order, its row locked and
    /// its scope serialised.
    async fn find(
        &self,
        tx: &mut dyn StoreTx,
        claim_request: &ClaimRequest,
        call: &TaskCall,
    ) -> Result<Option<ClaimCandidate>, LedgerError> {
        if claim_request.purpose == LeasePurpose::Work && tx.is_lone_writer() {
            let Some(loaded) = facts::look_for_work(tx, claim_request).await? else {
                return Ok(None);
            };
            return self
                .gather_candidate(tx, claim_request, call, loaded, Timestamp(0))
                .await;
        }
        let same = [
            SqlArg::Text(&claim_request.owner),
            SqlArg::Text(&claim_request.key),
        ];
        let id = match one(tx, SAME_CLAIM, &same).await? {
            Some(row) => Some(records::task_id(&row.text(0)?)?),
            None => self.candidate(tx, claim_request).await?,
        };
        match id {
            Some(id) => self.look_at(tx, claim_request, call, &id).await,
            None => Ok(None),
        }
    }

    pub(crate) async fn look_at(
        &self,
        tx: &mut dyn StoreTx,
        claim_request: &ClaimRequest,
        call: &TaskCall,
        id: &TaskId,
    ) -> Result<Option<ClaimCandidate>, LedgerError> {
        facts::lock_row(tx, id).await?;
        let (Some(loaded), server_now) = facts::look(tx, id, None, false).await? else {
            return Ok(None);
        };
        self.gather_candidate(tx, claim_request, call, loaded, server_now)
            .await
    }

    async fn gather_candidate(
        &self,
        tx: &mut dyn StoreTx,
        claim_request: &ClaimRequest,
        call: &TaskCall,
        loaded: LoadedTask,
        server_now: Timestamp,
    ) -> Result<Option<ClaimCandidate>, LedgerError> {
        facts::serialise(tx, Some(&loaded), &call.request).await?;
        let (now, request) = (self.time(server_now), &call.request);
        let facts = facts::gather(
            tx,
            &self.policy,
            &loaded,
            request,
            &claim_request.outside,
            now,
        )
        .await?;
        Ok(Some(ClaimCandidate { loaded, facts, now }))
    }

    /// Takes a task that cannot start out of the way, and those that come next.
    async fn put_aside(
        &self,
        mut tx: Box<dyn StoreTx>,
        claim_request: &ClaimRequest,
        mut loaded: LoadedTask,
    ) -> Result<ClaimAttempt, LedgerError> {
        // This transaction has serialised one scope and may not serialise another:
        // whoever else cannot start is put aside, and the first who could gets a
        // transaction of its own.
        for _ in 0..MAX_PUT_ASIDE {
            let blocked = self
                .not_ready(&mut *tx, &loaded, &claim_request.outside)
                .await?;
            match blocked.as_ref().map(WakeKey::of) {
                Some(Some(key)) => wakes::put_aside(&mut *tx, &loaded, &key).await?,
                Some(None) => {
                    tx.commit().await?;
                    return Ok(ClaimAttempt::Nothing);
                }
                None => break,
            }
            let next = match self.candidate(&mut *tx, claim_request).await? {
                Some(id) => facts::load(&mut *tx, &id, None).await?,
                None => None,
            };
            let Some(next) = next else {
                tx.commit().await?;
                return Ok(ClaimAttempt::Nothing);
            };
            loaded = next;
        }
        tx.commit().await?;
        Ok(ClaimAttempt::Again)
    }

    /// The first in order, with its row locked.
    async fn candidate(
        &self,
        tx: &mut dyn StoreTx,
        claim_request: &ClaimRequest,
    ) -> Result<Option<TaskId>, LedgerError> {
        let row = match claim_request.purpose {
            LeasePurpose::Work => {
                let sql = if claim_request.lane.is_some() {
                    READY_IN_LANE
                } else {
                    READY
                };
                let lane = claim_request.lane.map(Lane::as_str);
                let args = [SqlArg::Text(&claim_request.role), SqlArg::MaybeText(lane)];
                one(tx, sql, &args).await?
            }
            LeasePurpose::Judge | LeasePurpose::Merge => {
                let now = self.now_in(tx).await?;
                let sql = if claim_request.purpose == LeasePurpose::Judge {
                    TO_JUDGE
                } else {
                    TO_MERGE
                };
                one(tx, sql, &[SqlArg::Int(now.0)]).await?
            }
        };
        row.map(|row| Ok(records::task_id(&row.text(0)?)?))
            .transpose()
    }

    /// What keeps a task from starting.
    pub(crate) async fn not_ready(
        &self,
        tx: &mut dyn StoreTx,
        loaded: &LoadedTask,
        outside: &Facts,
    ) -> Result<Option<NotReady>, LedgerError> {
        let now = self.now_in(tx).await?;
        let request = ClaimRequest::work("", &loaded.task.role, "").call().request;
        let facts = facts::gather(tx, &self.policy, loaded, &request, outside, now).await?;
        Ok(ready::ready(&self.policy, &loaded.task, &facts, now).err())
    }

    /// Why a task is not running; none: it is, has ended, or could start at once.
    pub async fn why(&self, id: &TaskId) -> Result<Option<NotReady>, LedgerError> {
        let mut tx = self.engine.begin(StoreAccess::Read).await?;
        let Some(loaded) = facts::load(&mut *tx, id, None).await? else {
            return Err(unknown(id).into());
        };
        if loaded.task.state != TaskState::Todo {
            return Ok(None);
        }
        self.not_ready(&mut *tx, &loaded, &Facts::default()).await
    }

    /// Who depends on these tasks, or on whom they succeed, and still waits.
    pub async fn dependents(&self, id: &TaskId) -> Result<Vec<TaskId>, LedgerError> {
        let mut tx = self.engine.begin(StoreAccess::Read).await?;
        let rows = all(&mut *tx, DEPENDENTS, &[SqlArg::Text(id.as_str())]).await?;
        let ids = rows.iter().map(|row| Ok(records::task_id(&row.text(0)?)?));
        ids.collect()
    }
}

const DEPENDENTS: &str = "WITH RECURSIVE chain(id, rework_of) AS ( \
     SELECT id, rework_of FROM tasks WHERE id = $1 UNION ALL \
     SELECT t.id, t.rework_of FROM chain c JOIN tasks t ON t.id = c.rework_of) \
     SELECT d.task_id FROM dependencies d \
     WHERE d.met = 0 AND d.dependency IN (SELECT id FROM chain) ORDER BY d.task_id";

pub(crate) fn claimed(decision: runner_lifecycle::Decision) -> ClaimAttempt {
    match decision.answer {
        Answer::Claimed {
            token,
            run_id,
            expires_at,
        } => ClaimAttempt::Claimed(Box::new(ClaimedTask {
            task: decision.task,
            token,
            run_id,
            expires_at,
            replayed: decision.replayed,
        })),
        _ => ClaimAttempt::Nothing,
    }
}

/// Refuses a key that another claim of the same owner has.
pub(crate) async fn check_key(
    tx: &mut dyn StoreTx,
    id: &TaskId,
    claim: &Claim,
) -> Result<(), LedgerError> {
    let same = [SqlArg::Text(&claim.owner), SqlArg::Text(&claim.key)];
    let other = match one(tx, SAME_CLAIM, &same).await? {
        Some(row) => records::task_id(&row.text(0)?)?,
        None => return Ok(()),
    };
    if other == *id {
        return Ok(());
    }
    let words = format!(
        "the key {:?} belongs to the claim of task {other}: choose a new one",
        claim.key
    );
    Err(runner_lifecycle::Refusal::new(RefusalCode::ConcurrencyConflict, words).into())
}

pub(crate) fn unknown(id: &TaskId) -> runner_lifecycle::Refusal {
    runner_lifecycle::Refusal::new(
        RefusalCode::MissingRequiredInput,
        format!("there is no task {id}"),
    )
    .detail("task_id", id.as_str())
}
