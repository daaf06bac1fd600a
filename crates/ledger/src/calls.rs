//! Calls: a request goes in, and what the rules decide is written, or nothing is.

use runner_lifecycle::decide::{Answer, Decision};
use runner_lifecycle::event::Event;
use runner_lifecycle::{Call, Code, Facts, Refusal, Request, Task, TaskId, Timestamp, decide};

use crate::change::Record;
use crate::engine::{Access, Arg, Session, one};
use crate::error::{LedgerError, StoreError};
use crate::facts::{self, Loaded};
use crate::ledger::{Ladder, Ledger};
use crate::masking;
use crate::records;
use crate::writes;

/// A call of a task.
#[derive(Clone, Debug)]
pub struct Ask {
    /// Which task.
    pub task: TaskId,
    /// Who asks, and what.
    pub call: Call,
    /// What the caller knows that is in no ledger. The rest of these facts is read.
    pub outside: Facts,
    /// The caller's own name for this request: a repeat with the same name and content
    /// gets the recorded answer.
    pub request_id: Option<String>,
}

impl Ask {
    /// A call without anything besides.
    pub fn new(task: TaskId, actor: &str, request: Request) -> Ask {
        Ask {
            task,
            call: Call {
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
    pub fn named(mut self, request_id: &str) -> Ask {
        self.request_id = Some(request_id.to_owned());
        self
    }

    /// For a row of that version only.
    #[must_use]
    pub fn for_version(mut self, version: u64) -> Ask {
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
pub struct Outcome {
    /// What the caller is told.
    pub answer: Answer,
    /// The row as it is now.
    pub task: Task,
    /// The successor, if one was made.
    pub created: Option<Task>,
    /// The events that were written.
    pub events: Vec<Event>,
    /// Whether this had been answered before.
    pub replayed: bool,
}

impl From<Decision> for Outcome {
    fn from(decision: Decision) -> Outcome {
        Outcome {
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
    pub async fn call(&self, ask: &Ask) -> Result<Outcome, LedgerError> {
        let ask = masking::masked(ask);
        let mut ladder = Ladder::default();
        loop {
            match Box::pin(self.call_once(&ask)).await {
                Ok(outcome) => return Ok(outcome),
                Err(error) => ladder.again(error).await?,
            }
        }
    }

    /// Makes several tasks in one transaction: all or none. A task may depend on one
    /// that stands before it.
    pub async fn create_all(&self, asks: &[Ask]) -> Result<Vec<Outcome>, LedgerError> {
        let asks: Vec<Ask> = asks.iter().map(masking::masked).collect();
        let mut ladder = Ladder::default();
        loop {
            match Box::pin(self.create_all_once(&asks)).await {
                Ok(outcomes) => return Ok(outcomes),
                Err(error) => ladder.again(error).await?,
            }
        }
    }

    async fn create_all_once(&self, asks: &[Ask]) -> Result<Vec<Outcome>, LedgerError> {
        let mut session = self.engine.begin(Access::Write).await?;
        let mut outcomes = Vec::new();
        for ask in asks {
            outcomes.push(self.call_in(&mut *session, ask).await?);
        }
        session.commit().await?;
        self.engine.announce();
        Ok(outcomes)
    }

    async fn call_once(&self, ask: &Ask) -> Result<Outcome, LedgerError> {
        let mut session = self.engine.begin(access(&ask.call.request)).await?;
        let outcome = self.call_in(&mut *session, ask).await?;
        session.commit().await?;
        if !outcome.events.is_empty() {
            self.engine.announce();
        }
        Ok(outcome)
    }

    async fn call_in(&self, session: &mut dyn Session, ask: &Ask) -> Result<Outcome, LedgerError> {
        if let Some(answered) = recorded(session, ask).await? {
            return Ok(answered);
        }
        let request = &ask.call.request;
        // What is to be made has no row yet that could be locked.
        if !matches!(request, Request::Create(_)) {
            facts::lock_row(session, &ask.task).await?;
        }
        let for_end = facts::is_for_end(request);
        let (loaded, server_now) =
            facts::look(session, &ask.task, request.token(), for_end).await?;
        let loaded = loaded.as_ref();
        facts::serialise(session, loaded, request).await?;
        let now = self.time(server_now);
        let facts = match (loaded, request) {
            (Some(loaded), request) => {
                facts::gather(session, &self.policy, loaded, request, &ask.outside, now).await?
            }
            (None, Request::Create(new)) => facts::for_creation(session, new, &ask.outside).await?,
            (None, _) => ask.outside.clone(),
        };
        let decision = self
            .settle(session, loaded, &ask.call, &facts, Some(ask), now)
            .await?;
        Ok(decision.into())
    }

    /// Decides, and writes what was decided, with its answer for the repeats of a request
    /// that has a name.
    pub(crate) async fn settle(
        &self,
        session: &mut dyn Session,
        loaded: Option<&Loaded>,
        call: &Call,
        facts: &Facts,
        ask: Option<&Ask>,
        now: Timestamp,
    ) -> Result<Decision, LedgerError> {
        let task = loaded.map(|loaded| &loaded.task);
        let decision = decide(&self.policy, task, call, facts, now)?;
        let record = ask.map(|ask| record(ask, &decision.answer)).transpose()?;
        let known = &facts.dependencies;
        let record = record.flatten();
        writes::write(session, &self.policy, loaded, known, &decision, record, now).await?;
        Ok(decision)
    }
}

/// What is read for most requests is the row and what hangs on it: a change of that is
/// noticed when the decision is written. Others also depend on rows of other tasks, or on
/// locks that are taken, and hold what they read.
fn access(request: &Request) -> Access {
    match request {
        Request::Create(new) if !new.dependencies.is_empty() => Access::Write,
        Request::Claim(_)
        | Request::Block { .. }
        | Request::Recover { .. }
        | Request::Retry { .. } => Access::Write,
        _ => Access::Once,
    }
}

/// The answer that a request with the same name got.
async fn recorded(session: &mut dyn Session, ask: &Ask) -> Result<Option<Outcome>, LedgerError> {
    let Some(name) = &ask.request_id else {
        return Ok(None);
    };
    let sql = "SELECT digest, answer FROM requests WHERE id = $1";
    let Some(row) = one(session, sql, &[Arg::Text(name)]).await? else {
        return Ok(None);
    };
    if row.text(0)? != ask.digest()? {
        return Err(Refusal::new(
            Code::ConcurrencyConflict,
            format!("the name {name:?} belongs to another request: choose a new one"),
        )
        .into());
    }
    let answer = records::parse("an answer", &row.text(1)?)?;
    let loaded = facts::load(session, &ask.task, None).await?;
    let loaded = loaded.ok_or_else(|| {
        StoreError::Damaged(format!("task {} has an answer and no row", ask.task))
    })?;
    Ok(Some(Outcome {
        answer,
        task: loaded.task,
        created: None,
        events: Vec::new(),
        replayed: true,
    }))
}

fn record(ask: &Ask, answer: &Answer) -> Result<Option<Record>, StoreError> {
    let Some(name) = &ask.request_id else {
        return Ok(None);
    };
    let answer = records::text("an answer", answer)?;
    Ok(Some([name.clone(), ask.digest()?, answer]))
}
