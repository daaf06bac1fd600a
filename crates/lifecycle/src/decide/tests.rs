//! Decisions, row by row, over a store of one task that writes what was decided.

mod judging;
mod managing;
mod properties;
mod working;

use super::*;
use crate::fixtures::packet;
use crate::lock::ScopeLock;
use crate::packet::{CheckStatus, ResultPacket, ResultStatus};
use crate::request::{Claim, JudgeEnding, NewTask, WorkEnding};
use crate::row::{Criterion, Intent, TaskId};
use crate::words::{CriterionCheck, LeasePurpose, ReworkCause};

const NOW: Timestamp = Timestamp(1_000_000_000);

fn id(text: &str) -> TaskId {
    TaskId::parse(text).unwrap()
}

fn resource(text: &str) -> Resource {
    Resource::parse(text).unwrap()
}

/// A task with one command criterion and one for a review.
fn new_task() -> NewTask {
    let mut new = NewTask::new(id("t"), resource("src"));
    new.acceptance.push(Criterion {
        id: "review".to_owned(),
        text: "it reads well".to_owned(),
        check: CriterionCheck::Review,
    });
    new
}

/// A decision that was written: it may be left alone.
struct Written(Decision);

impl std::ops::Deref for Written {
    type Target = Decision;

    fn deref(&self) -> &Decision {
        &self.0
    }
}

/// A store of one task.
#[derive(Clone)]
struct OneTaskStore {
    policy: Policy,
    task: Task,
    facts: Facts,
    locks: Vec<Resource>,
    events: Vec<TaskEvent>,
    receipts: Vec<Receipt>,
    created: Option<Created>,
    now: Timestamp,
}

impl OneTaskStore {
    fn new() -> OneTaskStore {
        OneTaskStore::with(new_task())
    }

    fn with(new: NewTask) -> OneTaskStore {
        let call = call("planner", Request::Create(new));
        let facts = Facts::default();
        let policy = Policy::default();
        let decision = decide(&policy, None, &call, &facts, NOW).unwrap();
        assert_eq!(decision.expected_version, None);
        let mut store = OneTaskStore {
            policy,
            task: decision.task.clone(),
            facts,
            locks: Vec::new(),
            events: Vec::new(),
            receipts: Vec::new(),
            created: None,
            now: NOW,
        };
        store.write(&decision);
        store
    }

    fn try_ask(&mut self, actor: &str, request: Request) -> Result<Decision, Refusal> {
        self.try_call(&call(actor, request))
    }

    fn try_call(&mut self, call: &TaskCall) -> Result<Decision, Refusal> {
        let token = call.request.token();
        self.facts.receipt = self
            .receipts
            .iter()
            .find(|receipt| Some(receipt.token) == token)
            .cloned();
        let decision = decide(&self.policy, Some(&self.task), call, &self.facts, self.now)?;
        assert_eq!(decision.expected_version, Some(self.task.version));
        self.write(&decision);
        Ok(decision)
    }

    fn ask(&mut self, actor: &str, request: Request) -> Written {
        Written(self.try_ask(actor, request).unwrap())
    }

    /// The code of a refusal; nothing has changed then.
    fn refused(&mut self, actor: &str, request: Request) -> RefusalCode {
        self.try_ask(actor, request).unwrap_err().code
    }

    fn write(&mut self, decision: &Decision) {
        self.task = decision.task.clone();
        self.events.extend(decision.events.iter().cloned());
        match &decision.locks {
            LockChange::Keep => {}
            LockChange::Take(scope) => self.locks.clone_from(scope),
            LockChange::Release => self.locks.clear(),
        }
        match &decision.lease {
            LeaseChange::Keep => {}
            LeaseChange::Set(lease) => self.facts.lease = Some(lease.clone()),
            LeaseChange::End => self.facts.lease = None,
        }
        if let Some(run) = decision.runs.last() {
            self.facts.run = Some(run.clone());
        }
        self.receipts.extend(decision.receipt.iter().cloned());
        if decision.created.is_some() {
            self.created.clone_from(&decision.created);
        }
        self.check();
    }

    /// What holds after every write.
    fn check(&self) {
        let rebuilt = crate::event::fold(&self.events).unwrap();
        assert_eq!(rebuilt, self.task, "the events do not add up to the row");
        let working = self.task.state == TaskState::InProgress;
        assert_eq!(self.facts.lease.is_some(), working);
        assert_eq!(!self.locks.is_empty(), working);
        assert_eq!(
            self.task.blocker.is_some(),
            self.task.state == TaskState::Blocked
        );
        let running = self
            .facts
            .run
            .as_ref()
            .is_some_and(|run| run.status == crate::words::TaskRunStatus::Running);
        assert!(working || !running, "a run outlives the work");
    }

    fn claim(&mut self, owner: &str, purpose: LeasePurpose) -> u64 {
        let key = format!("{owner}/{}", self.task.version);
        self.facts.is_merge_head = purpose == LeasePurpose::Merge;
        match self.ask(owner, claim(owner, purpose, &key)).0.answer {
            Answer::Claimed { token, .. } => token,
            other => panic!("{other:?}"),
        }
    }

    fn packet(&self) -> ResultPacket {
        packet(&self.task, &self.run_id(), "exit 0, log sha256 00")
    }

    fn run_id(&self) -> String {
        self.facts.run.as_ref().unwrap().id.clone()
    }

    fn finish(&self, token: u64, ending: WorkEnding) -> Request {
        Request::Finish {
            token,
            run_id: self.run_id(),
            ending,
        }
    }

    fn success(&self, token: u64) -> Request {
        self.finish(
            token,
            WorkEnding::Success {
                result: Some("c1".to_owned()),
                packet: self.packet(),
            },
        )
    }

    /// Works until a result waits for a judge.
    fn work(&mut self) {
        let token = self.claim("w", LeasePurpose::Work);
        let request = self.success(token);
        self.ask("w", request);
        assert_eq!(self.stands(), "blocked(awaiting_judge)");
    }

    /// Judges until a result waits for its merge.
    fn approve(&mut self) {
        self.work();
        let token = self.claim("j", LeasePurpose::Judge);
        let ending = JudgeEnding::Approve {
            packet: self.packet(),
        };
        self.ask("j", Request::Judge { token, ending });
        assert_eq!(self.stands(), "blocked(awaiting_judge)");
    }

    /// Gets as far as an open intent, and returns the token of its lease.
    fn intend(&mut self) -> u64 {
        self.approve();
        let token = self.claim("j", LeasePurpose::Merge);
        let request = self.intent(token);
        self.ask("j", request);
        assert!(self.task.intent.is_some());
        token
    }

    fn intent(&self, token: u64) -> Request {
        Request::RecordIntent {
            token,
            intent: intent(),
            packet: self.packet(),
        }
    }

    fn reject(&mut self, cause: ReworkCause) {
        self.work();
        let token = self.claim("j", LeasePurpose::Judge);
        self.ask(
            "j",
            Request::Judge {
                token,
                ending: rejection(cause),
            },
        );
        assert_eq!(self.stands(), "blocked(needs_rework)");
    }

    /// The state and what it waits for.
    fn stands(&self) -> String {
        match self.task.blocked_on() {
            Some(reason) => format!("{}({reason})", self.task.state),
            None => self.task.state.to_string(),
        }
    }

    fn later(&mut self, secs: u64) {
        self.now = self.now.plus_secs(secs);
    }

    fn recover(&mut self) -> Written {
        self.ask("cycle", recovery(&self.task))
    }
}

fn recovery(task: &Task) -> Request {
    Request::Recover {
        packet: Some(crate::request::NewPacket {
            lock_scope: task.lock_scope.clone(),
            forbidden_scope: Vec::new(),
            context: Vec::new(),
            commands: vec!["cargo test".to_owned()],
        }),
        successor: Some(id("next")),
    }
}

fn rejection(cause: ReworkCause) -> JudgeEnding {
    JudgeEnding::Reject {
        cause,
        remarks: vec![crate::row::ReviewRemark {
            id: "f1".to_owned(),
            text: "a test is missing".to_owned(),
        }],
        reason: "not yet".to_owned(),
    }
}

fn call(actor: &str, request: Request) -> TaskCall {
    TaskCall {
        actor: actor.to_owned(),
        expected_version: None,
        request,
    }
}

fn claim(owner: &str, purpose: LeasePurpose, key: &str) -> Request {
    Request::Claim(Claim {
        owner: owner.to_owned(),
        purpose,
        key: key.to_owned(),
        base: Some("main".to_owned()),
    })
}

fn intent() -> Intent {
    Intent {
        old_base: "b".to_owned(),
        merge_commit: "m".to_owned(),
    }
}

fn settle(token: u64, base: crate::words::BasePosition) -> Request {
    Request::SettleIntent {
        token,
        intent: intent(),
        base,
    }
}

fn lock(task: &str, text: &str) -> ScopeLock {
    ScopeLock {
        task_id: id(task),
        resource: resource(text),
    }
}
