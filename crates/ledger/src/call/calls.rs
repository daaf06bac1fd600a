//! Calls: a request goes in, and what the rules decide is written, or nothing is.

use runner_lifecycle::decide::{Answer, Decision};
use runner_lifecycle::event::TaskEvent;
use runner_lifecycle::{
    Facts, Refusal, RefusalCode, Request, Task, TaskCall, TaskId, Timestamp, decide,
};

use crate::call::change;
use crate::call::change::{AnswerRecord, StoreChange};
use crate::call::facts;
use crate::call::facts::LoadedTask;
use crate::call::masking;
use crate::call::records;
use crate::call::writes;
use crate::claim::claims;
use crate::error::{LedgerError, StoreError};
use crate::ledger::{ConflictRetry, Ledger};
use crate::store::engine::{MemoryWriteMode, SqlArg, StoreAccess, StoreTx, one};

/// A call of a task.
#[derive(Clone, Debug)]
pub struct LedgerCall {
    /// Which task.
    pub task: TaskId,
    /// Who asks, and what.
    pub call: TaskCall,
    /// What the caller knows that is in no ledger. The rest of these facts is read.
    pub outside: Facts,
    /// The caller's own name for this request: a repeat with the same name and content
    /// gets the recorded answer.
    pub request_id: Option<String>,
}

impl LedgerCall {
    /// A call without anything besides.
    pub fn new(task: TaskId, actor: &str, request: Request) -> LedgerCall {
        LedgerCall {
            task,
            call: TaskCall {
                actor: actor.to_owned(),
                expected_version: None,
                request,
            },
            outside: Facts::default(),
            request_id: None,
        }
    }

    /// With a name of its own.
    #[must_use]
    pub fn named(mut self, request_id: &str) -> LedgerCall {
        self.request_id = Some(request_id.to_owned());
        self
    }

    /// For a row of that version only.
    #[must_use]
    pub fn for_version(mut self, version: u64) -> LedgerCall {
        self.call.expected_version = Some(version);
        self
    }

    /// The SHA-256 of what is asked.
    fn digest(&self) -> Result<String, StoreError> {
        let text = records::text("a request", &(&self.task, &self.call))?;
        Ok(runner_core::digest::sha256_hex(text.as_bytes()))
    }
}

/// What a call came to.
#[derive(Clone, Debug)]
pub struct CallOutcome {
    /// What the caller is told.
    pub answer: Answer,
    /// The row as it is now.
    pub task: Task,
    /// The successor, if one was made.
    pub created: Option<Task>,
    /// The events that were written.
    pub events: Vec<TaskEvent>,
    /// Whether this had been answered before.
    pub replayed: bool,
}

impl From<Decision> for CallOutcome {
    fn from(decision: Decision) -> CallOutcome {
        CallOutcome {
            answer: decision.answer,
            task: decision.task,
            created: decision.created.map(|created| created.task),
            events: decision.events,
            replayed: decision.replayed,
        }
    }
}

impl Ledger {
    /// Decides and writes one request, in one transaction.
    pub async fn call(&self, ledger_call: &LedgerCall) -> Result<CallOutcome, LedgerError> {
        let ledger_call = masking::masked(ledger_call);
        if let Some(outcome) = Box::pin(self.call_from_memory(&ledger_call)).await? {
            return Ok(outcome);
        }
        let mut retry = ConflictRetry::default();
        let error = loop {
            match Box::pin(self.call_once(&ledger_call)).await {
                Ok(outcome) => return Ok(outcome),
                Err(error) => {
                    if let Err(last) = retry.again(error).await {
                        break last;
                    }
                }
            }
        };
        if retry.is_used_up() && matches!(ledger_call.call.request, Request::Claim(_)) {
            self.block_lost_claim(&ledger_call.task, &ledger_call.call.actor)
                .await;
        }
        // The same request may have been on its way twice: whoever was second is refused by
        // what the first has done, and gets its answer all the same.
        match self.answered(&ledger_call).await {
            Ok(Some(outcome)) if matches!(error, LedgerError::Refused(_)) => Ok(outcome),
            _ => Err(error),
        }
    }

    async fn answered(&self, ledger_call: &LedgerCall) -> Result<Option<CallOutcome>, LedgerError> {
        if ledger_call.request_id.is_none() {
            return Ok(None);
        }
        let mut tx = self.engine.begin(StoreAccess::Read).await?;
        read_recorded_answer(&mut *tx, ledger_call).await
    }

    /// A claim that lost every race: the task is blocked, and the recovery table lets it
    /// run alone; or has it repaired, where nobody was faster, but something stands where
    /// the claim wants to write. If that is refused, or fails too, the claim's own refusal
    /// says enough.
    pub(crate) async fn block_lost_claim(&self, id: &TaskId, actor: &str) {
        let Ok(found) = self.contradictions(id).await else {
            return;
        };
        let (code, reason) = match found.first() {
            None => (
                RefusalCode::ConcurrencyConflict,
                "others were faster at every try".to_owned(),
            ),
            Some(one) => (
                RefusalCode::LedgerInconsistent,
                format!("{}: {}", one.kind, one.words),
            ),
        };
        let block = Request::Block {
            code,
            reason,
            waits_for: None,
        };
        let block = LedgerCall::new(id.clone(), actor, block);
        Box::pin(self.call_once(&block)).await.ok();
    }

    /// Makes several tasks in one transaction: all or none. A task may depend on one
    /// that stands before it.
    pub async fn create_all(
        &self,
        ledger_calls: &[LedgerCall],
    ) -> Result<Vec<CallOutcome>, LedgerError> {
        let ledger_calls: Vec<LedgerCall> = ledger_calls.iter().map(masking::masked).collect();
        let mut retry = ConflictRetry::default();
        loop {
            match Box::pin(self.create_all_once(&ledger_calls)).await {
                Ok(outcomes) => return Ok(outcomes),
                Err(error) => retry.again(error).await?,
            }
        }
    }

    async fn create_all_once(
        &self,
        ledger_calls: &[LedgerCall],
    ) -> Result<Vec<CallOutcome>, LedgerError> {
        let mut tx = self.engine.begin(StoreAccess::Write).await?;
        let mut outcomes = Vec::new();
        for ledger_call in ledger_calls {
            let outcome = match read_recorded_answer(&mut *tx, ledger_call).await? {
                Some(answered) => answered,
                None => self.decide_and_write(&mut *tx, ledger_call).await?.into(),
            };
            outcomes.push(outcome);
        }
        tx.commit().await?;
        self.engine.announce();
        Ok(outcomes)
    }

    async fn call_once(&self, ledger_call: &LedgerCall) -> Result<CallOutcome, LedgerError> {
        let mut tx = self.engine.begin(access(&ledger_call.call.request)).await?;
        if let Some(answered) = read_recorded_answer(&mut *tx, ledger_call).await? {
            return Ok(answered);
        }
        tx.last_write();
        let decision = self.decide_and_write(&mut *tx, ledger_call).await?;
        tx.commit().await?;
        Ok(self.after_commit(decision))
    }

    /// What was decided is in the store.
    fn after_commit(&self, decision: Decision) -> CallOutcome {
        self.memory.note(&decision);
        if !decision.events.is_empty() {
            self.engine.announce();
        }
        decision.into()
    }

    /// A call about work that this process holds, or that makes something new: decided by
    /// what is remembered and written if that still is so. None: it must be read.
    async fn call_from_memory(
        &self,
        ledger_call: &LedgerCall,
    ) -> Result<Option<CallOutcome>, LedgerError> {
        let request = &ledger_call.call.request;
        if ledger_call.request_id.is_some() || self.engine.memory_writes() == MemoryWriteMode::Never
        {
            return Ok(None);
        }
        let known = match request {
            Request::Create(new) if new.dependencies.is_empty() => None,
            Request::Heartbeat { .. } | Request::Finish { .. } => {
                let Some(known) = self.memory.get(&ledger_call.task) else {
                    return Ok(None);
                };
                Some(known)
            }
            _ => return Ok(None),
        };
        let alone = match &known {
            Some(known) if facts::may_end_done(&known.task, request) => {
                let Some(scope) = known.alone() else {
                    return Ok(None);
                };
                Some(change::nobody_elses(&ledger_call.task, &scope))
            }
            _ => None,
        };
        let Some(now) = self.known_time() else {
            return Ok(None);
        };
        let loaded = known.map(LoadedTask::from);
        let loaded = loaded.as_ref();
        let facts = Facts {
            lease: loaded.and_then(|loaded| loaded.lease.clone()),
            run: loaded.and_then(|loaded| loaded.run.clone()),
            ..ledger_call.outside.clone()
        };
        let task = loaded.map(|loaded| &loaded.task);
        let Ok(decision) = decide(&self.policy, task, &ledger_call.call, &facts, now) else {
            return Ok(None);
        };
        if decision.is_empty() || !change::fits(loaded, &decision) {
            return Ok(None);
        }
        match self.compare_and_write(loaded, &decision, alone, now).await {
            Ok(()) => Ok(Some(self.after_commit(decision))),
            Err(error) => {
                self.memory.forget(&ledger_call.task);
                match error {
                    StoreError::Contention(_) => Ok(None),
                    error => Err(error.into()),
                }
            }
        }
    }

    /// Writes what was decided from memory, if the store still has what that was.
    async fn compare_and_write(
        &self,
        loaded: Option<&LoadedTask>,
        decision: &Decision,
        alone: Option<Vec<String>>,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        if self.engine.memory_writes() == MemoryWriteMode::AtOnce {
            let mut change = StoreChange::of(&self.policy, loaded, decision, None, now)?;
            change.alone = alone;
            return self.engine.write(change).await;
        }
        let mut tx = self.engine.begin(StoreAccess::Once).await?;
        if let Some(loaded) = loaded {
            writes::compare(&mut *tx, loaded, alone.as_deref()).await?;
        }
        writes::write(&mut *tx, &self.policy, loaded, &[], decision, None, now).await?;
        tx.commit().await
    }

    async fn decide_and_write(
        &self,
        tx: &mut dyn StoreTx,
        ledger_call: &LedgerCall,
    ) -> Result<Decision, LedgerError> {
        let request = &ledger_call.call.request;
        // What is to be made has no row yet that could be locked.
        if !matches!(request, Request::Create(_)) {
            facts::lock_row(tx, &ledger_call.task).await?;
        }
        let for_end = facts::is_for_end(request);
        let (loaded, server_now) =
            facts::look(tx, &ledger_call.task, request.token(), for_end).await?;
        let loaded = loaded.as_ref();
        if loaded.is_none() && !matches!(request, Request::Create(_)) {
            return Err(claims::unknown(&ledger_call.task).into());
        }
        if let Request::Claim(claim) = request {
            claims::check_key(tx, &ledger_call.task, claim).await?;
        }
        facts::serialise(tx, loaded, request).await?;
        let now = self.time(server_now);
        let facts = match (loaded, request) {
            (Some(loaded), request) => {
                facts::gather(tx, &self.policy, loaded, request, &ledger_call.outside, now).await?
            }
            (None, Request::Create(new)) => {
                facts::for_creation(tx, new, &ledger_call.outside).await?
            }
            (None, _) => ledger_call.outside.clone(),
        };
        self.settle(
            tx,
            loaded,
            &ledger_call.call,
            &facts,
            Some(ledger_call),
            now,
        )
        .await
    }

    /// Decides, and writes what was decided, with its answer for the repeats of a request
    /// that has a name.
    pub(crate) async fn settle(
        &self,
        tx: &mut dyn StoreTx,
        loaded: Option<&LoadedTask>,
        call: &TaskCall,
        facts: &Facts,
        ledger_call: Option<&LedgerCall>,
        now: Timestamp,
    ) -> Result<Decision, LedgerError> {
        let task = loaded.map(|loaded| &loaded.task);
        let decision = decide(&self.policy, task, call, facts, now)?;
        if let Some(created) = &decision.created {
            refuse_taken(tx, &created.task.id).await?;
        }
        let record = ledger_call
            .map(|ledger_call| record(ledger_call, &decision.answer))
            .transpose()?;
        let known = &facts.dependencies;
        let record = record.flatten();
        writes::write(tx, &self.policy, loaded, known, &decision, record, now).await?;
        Ok(decision)
    }
}

/// What is read for a request of a lease's owner is the row and what hangs on it: a change of
/// that is noticed when the decision is written. All others hold what they read: they depend on
/// rows of other tasks, on locks that are taken, or on the place of the task in the index of
/// ready tasks, which changes without its version. A task that is woken after it was read, and
/// canceled then, would keep to itself that its lock has ended.
fn access(request: &Request) -> StoreAccess {
    match request {
        Request::Create(new) if new.dependencies.is_empty() => StoreAccess::Once,
        request if request.token().is_some() => StoreAccess::Once,
        _ => StoreAccess::Write,
    }
}

/// The answer that a request with the same name got.
async fn read_recorded_answer(
    tx: &mut dyn StoreTx,
    ledger_call: &LedgerCall,
) -> Result<Option<CallOutcome>, LedgerError> {
    let Some(name) = &ledger_call.request_id else {
        return Ok(None);
    };
    let sql = "SELECT digest, answer FROM requests WHERE id = $1";
    let Some(row) = one(tx, sql, &[SqlArg::Text(name)]).await? else {
        return Ok(None);
    };
    if row.text(0)? != ledger_call.digest()? {
        return Err(Refusal::new(
            RefusalCode::ConcurrencyConflict,
            format!("the name {name:?} belongs to another request: choose a new one"),
        )
        .into());
    }
    let answer = records::parse("an answer", &row.text(1)?)?;
    let loaded = facts::load(tx, &ledger_call.task, None).await?;
    let loaded = loaded.ok_or_else(|| {
        StoreError::Damaged(format!(
            "task {} has an answer and no row",
            ledger_call.task
        ))
    })?;
    let successor = match &ledger_call.call.request {
        Request::Retry { successor } => Some(successor),
        Request::Recover { successor, .. } => successor.as_ref(),
        _ => None,
    };
    let created = match successor.filter(|id| loaded.task.superseded_by.as_ref() == Some(*id)) {
        Some(id) => facts::load(tx, id, None).await?,
        None => None,
    };
    Ok(Some(CallOutcome {
        answer,
        task: loaded.task,
        created: created.map(|created| created.task),
        events: Vec::new(),
        replayed: true,
    }))
}

/// A successor needs an id of its own.
async fn refuse_taken(tx: &mut dyn StoreTx, id: &TaskId) -> Result<(), LedgerError> {
    let taken = "SELECT id FROM tasks WHERE id = $1";
    match one(tx, taken, &[SqlArg::Text(id.as_str())]).await? {
        None => Ok(()),
        Some(_) => Err(Refusal::new(
            RefusalCode::InvalidTransition,
            format!("task {id} exists already: choose another id for the successor"),
        )
        .into()),
    }
}

fn record(ledger_call: &LedgerCall, answer: &Answer) -> Result<Option<AnswerRecord>, StoreError> {
    let Some(name) = &ledger_call.request_id else {
        return Ok(None);
    };
    let answer = records::text("an answer", answer)?;
    Ok(Some([name.clone(), ledger_call.digest()?, answer]))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    use runner_lifecycle::BlockReason;
    use runner_lifecycle::lock::Resource;
    use runner_lifecycle::request::NewTask;

    use super::*;
    use crate::store::engine::{Engine, SqlRow, SqlText, StoreFuture};
    use crate::{ClaimRequest, LedgerOptions, Store, StoreNotifications};

    /// A store in which somebody else is faster, so many times.
    struct Contended {
        inner: Arc<dyn Engine>,
        left: Arc<AtomicU32>,
    }

    /// A transaction that somebody was faster than: this is noticed at its end.
    struct Slow {
        inner: Box<dyn StoreTx>,
        left: Arc<AtomicU32>,
    }

    impl StoreTx for Slow {
        fn run<'a>(&'a mut self, sql: SqlText, args: &'a [SqlArg<'a>]) -> StoreFuture<'a, u64> {
            self.inner.run(sql, args)
        }

        fn rows<'a>(
            &'a mut self,
            sql: SqlText,
            args: &'a [SqlArg<'a>],
        ) -> StoreFuture<'a, Vec<SqlRow>> {
            self.inner.rows(sql, args)
        }

        fn later<'a>(&'a mut self, sql: SqlText, args: &'a [SqlArg<'a>]) -> StoreFuture<'a, ()> {
            self.inner.later(sql, args)
        }

        fn is_lone_writer(&self) -> bool {
            self.inner.is_lone_writer()
        }

        fn serialise_scope<'a>(&'a mut self, scope: &'a [Resource]) -> StoreFuture<'a, ()> {
            self.inner.serialise_scope(scope)
        }

        fn commit(self: Box<Self>) -> StoreFuture<'static, ()> {
            let lost = |left: u32| left.checked_sub(1);
            let order = Ordering::SeqCst;
            if self.left.fetch_update(order, order, lost).is_err() {
                return self.inner.commit();
            }
            Box::pin(async move {
                self.inner.rollback().await?;
                Err(StoreError::Contention("a race".to_owned()))
            })
        }

        fn rollback(self: Box<Self>) -> StoreFuture<'static, ()> {
            self.inner.rollback()
        }
    }

    impl Engine for Contended {
        fn begin(&self, access: StoreAccess) -> StoreFuture<'_, Box<dyn StoreTx>> {
            Box::pin(async move {
                let slow: Box<dyn StoreTx> = Box::new(Slow {
                    inner: self.inner.begin(access).await?,
                    left: Arc::clone(&self.left),
                });
                Ok(slow)
            })
        }

        fn migrate(&self) -> StoreFuture<'_, ()> {
            self.inner.migrate()
        }

        fn announce(&self) {
            self.inner.announce();
        }

        fn flush(&self) -> StoreFuture<'_, ()> {
            self.inner.flush()
        }

        fn listen(&self) -> StoreFuture<'_, StoreNotifications> {
            self.inner.listen()
        }

        fn statements(&self) -> u64 {
            self.inner.statements()
        }

        fn close(&self) -> StoreFuture<'_, ()> {
            self.inner.close()
        }
    }

    #[tokio::test]
    async fn a_claim_that_lost_every_race_blocks_its_task() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::Sqlite(folder.path().join("ledger.db"));
        let plain = Ledger::open(&store, LedgerOptions::default())
            .await
            .unwrap();
        let id = TaskId::parse("t").unwrap();
        let new = NewTask::new(id.clone(), Resource::parse("src").unwrap());
        let create = LedgerCall::new(id.clone(), "planner", Request::Create(new));
        plain.call(&create).await.unwrap();
        // Both ways to claim: this very task, and whatever is first.
        for (races, by_name, blocked) in [
            (5, true, Some(BlockReason::ConcurrencyConflict)),
            (5, false, Some(BlockReason::ConcurrencyConflict)),
            (4, false, None),
        ] {
            let engine = Contended {
                inner: Arc::clone(&plain.engine),
                left: Arc::new(AtomicU32::new(races)),
            };
            let ledger = Ledger::on(Arc::new(engine), false, LedgerOptions::default());
            let ledger = ledger.await.unwrap();
            let claim_request = ClaimRequest::work("w", "worker", "k");
            let error = if by_name {
                let claim = LedgerCall::new(id.clone(), "w", claim_request.call().request);
                ledger.call(&claim).await.err()
            } else {
                ledger.claim_next(&claim_request).await.err()
            };
            let code = error.and_then(|error| error.code());
            assert_eq!(
                code,
                blocked.map(|_| RefusalCode::ConcurrencyConflict),
                "{races}"
            );
            let task = plain.task(&id).await.unwrap().unwrap();
            assert_eq!(task.blocked_on(), blocked, "{races}");
            if blocked.is_some() {
                let recover = Request::Recover {
                    packet: None,
                    successor: None,
                };
                let recovered = plain
                    .call(&LedgerCall::new(id.clone(), "cycle", recover))
                    .await;
                let task = recovered.unwrap().task;
                assert_eq!(task.task_type, runner_lifecycle::TaskType::Serial);
            }
        }
    }
}
