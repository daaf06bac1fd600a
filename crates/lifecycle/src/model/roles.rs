//! What each role would ask for now: it looks at the store and makes up its mind.

use super::{Body, Client, Fleet, Message, NOW, PAST, TIP, Who, Work, World, store};
use crate::fixtures;
use crate::packet::ResultPacket;
use crate::ready::{NotReady, ready};
use crate::recovery::{self, RecoveryAction};
use crate::request::{Claim, JudgeEnding, NewPacket, Request, TaskCall, WorkEnding};
use crate::row::{Intent, Task, TaskId};
use crate::run::Lease;
use crate::time::Timestamp;
use crate::watchdog::{LeaseCheck, look};
use crate::words::{
    BasePosition, BlockReason, FailureCategory, LeasePurpose, RefusalCode, ReworkCause, TaskState,
};

impl Fleet {
    /// The calls that a role could make now.
    pub(super) fn offers(&self, world: &World, who: Who) -> Vec<Message> {
        let mut offers = Vec::new();
        match who {
            Who::Client(at) => match &world.clients[at] {
                Client::Idle if at < self.workers => self.work_claims(world, who, &mut offers),
                Client::Idle => judge_claims(world, who, &mut offers),
                Client::Busy(work) => self.next_of(world, who, work, &mut offers),
                Client::Waiting { .. } => {}
            },
            Who::Watchdog => self.watchdog(world, &mut offers),
            Who::CycleManager => {
                self.cycle(world, &mut offers);
                Fleet::mend(world, &mut offers);
            }
            Who::Person => Fleet::unpause(world, &mut offers),
        }
        offers
    }

    fn work_claims(&self, world: &World, who: Who, offers: &mut Vec<Message>) {
        for at in 0..world.slots.len() {
            let task = &world.slots[at].task;
            if task.state == TaskState::Todo
                && ready(&self.policy, task, &store::facts(world, at, None), NOW).is_ok()
            {
                offers.push(claim(world, who, at, LeasePurpose::Work));
            }
        }
    }

    fn next_of(&self, world: &World, who: Who, work: &Work, offers: &mut Vec<Message>) {
        let slot = &world.slots[work.slot];
        let (task, token) = (&slot.task, work.token);
        let run_id = slot
            .run
            .as_ref()
            .map_or(String::new(), |run| run.id.clone());
        let mut ask = |request| offers.push(message(who, work.slot, None, request));
        let lease = slot.lease.as_ref();
        let unheard = |lease: &Lease| lease.is_expired(NOW) || lease.never_began(NOW);
        if lease.is_some_and(|lease| lease.token == token && unheard(lease)) {
            ask(Request::Heartbeat { token });
        }
        match work.purpose {
            LeasePurpose::Work => {
                let mut finish = |ending| {
                    ask(Request::Finish {
                        token,
                        run_id: run_id.clone(),
                        ending,
                    });
                };
                for good in [true, false] {
                    finish(WorkEnding::Success {
                        result: Some("c".to_owned()),
                        packet: packet(task, &run_id, good),
                    });
                }
                if world.detours_left > 0 {
                    finish(WorkEnding::Quota {
                        reset_at: None,
                        account: "one".to_owned(),
                    });
                    finish(WorkEnding::Postponed {
                        until: Timestamp(NOW.0 + 1),
                        reason: "no money".to_owned(),
                    });
                    finish(WorkEnding::Lost);
                    finish(WorkEnding::GivenBack);
                }
                if self.failures {
                    finish(WorkEnding::Failed {
                        category: FailureCategory::Test,
                        signature: None,
                        note: "red".to_owned(),
                    });
                    finish(WorkEnding::Blocked {
                        code: RefusalCode::ScopeViolation,
                        reason: "needs another path".to_owned(),
                        waits_for: None,
                    });
                }
            }
            LeasePurpose::Judge => {
                let mut end = |ending| ask(Request::Judge { token, ending });
                for good in [true, false] {
                    end(JudgeEnding::Approve {
                        packet: packet(task, &run_id, good),
                    });
                }
                end(reject(ReworkCause::Verdict));
                if world.detours_left > 0 {
                    end(JudgeEnding::Quota {
                        reset_at: None,
                        account: "one".to_owned(),
                    });
                    end(step_back());
                }
                if self.failures {
                    end(JudgeEnding::Unable {
                        reason: "no reviewer".to_owned(),
                    });
                }
            }
            LeasePurpose::Merge if world.detours_left > 0 => {
                merge(world, who, work, offers);
                let changed = JudgeEnding::ChangedJudge {
                    reason: "it wrote its own tests".to_owned(),
                };
                // Whoever has intended a merge has judged before.
                let changed = task.intent.is_none().then_some(changed);
                for ending in [Some(step_back()), changed].into_iter().flatten() {
                    let request = Request::Judge { token, ending };
                    offers.push(message(who, work.slot, None, request));
                }
            }
            LeasePurpose::Merge => merge(world, who, work, offers),
        }
    }

    /// A lease ends when nobody renews it: at once where its owner is gone, and where the
    /// heartbeats of a living one were lost for long enough. It is taken back where they
    /// never came, and ends where the work takes too long.
    fn watchdog(&self, world: &World, offers: &mut Vec<Message>) {
        for (at, slot) in world.slots.iter().enumerate() {
            let Some(lease) = &slot.lease else { continue };
            let version = Some(slot.task.version);
            let mut ask =
                |request: Request| offers.push(message(Who::Watchdog, at, version, request));
            let held = world.clients.iter().any(|client| holds(client, at, lease));
            match look(lease, NOW, NOW) {
                LeaseCheck::NeverBegan => ask(Request::TakeBack),
                LeaseCheck::TimeboxOver if held => ask(Request::EndTimebox),
                LeaseCheck::Later(_) if held => {}
                _ => {
                    ask(Request::Expire { not_before: None });
                    if self.lengths && lease.last_heartbeat_at == lease.claimed_at {
                        ask(Request::TakeBack);
                    }
                }
            }
        }
    }

    fn cycle(&self, world: &World, offers: &mut Vec<Message>) {
        for (at, slot) in world.slots.iter().enumerate() {
            let task = &slot.task;
            let facts = store::facts(world, at, None);
            let version = Some(task.version);
            if task.state == TaskState::Todo {
                let dead = ready(&self.policy, task, &facts, NOW);
                if let Err(NotReady::DeadDependency(other)) = dead {
                    let request = Request::Block {
                        code: RefusalCode::DependencyNotMet,
                        reason: "a dependency is dead".to_owned(),
                        waits_for: Some(other.to_string()),
                    };
                    offers.push(message(Who::CycleManager, at, version, request));
                }
                continue;
            }
            let Some((_, action)) = recovery::plan(&self.policy, task, &facts, NOW) else {
                continue;
            };
            if matches!(
                action,
                RecoveryAction::Stay
                    | RecoveryAction::Wait(_)
                    | RecoveryAction::Park(_)
                    | RecoveryAction::Repair
            ) {
                continue;
            }
            let request = Request::Recover {
                packet: Some(NewPacket {
                    lock_scope: task.lock_scope.clone(),
                    forbidden_scope: Vec::new(),
                    context: Vec::new(),
                    commands: Vec::new(),
                }),
                successor: Some(fresh_id(world, task)),
            };
            offers.push(message(Who::CycleManager, at, version, request));
        }
    }
}

/// What the head of the merge queue does next.
fn merge(world: &World, who: Who, work: &Work, offers: &mut Vec<Message>) {
    let slot = &world.slots[work.slot];
    let (task, token) = (&slot.task, work.token);
    let run_id = slot.run.as_ref().map_or("", |run| run.id.as_str());
    let mut ask = |request| offers.push(message(who, work.slot, None, request));
    match &task.intent {
        None => {
            for good in [true, false] {
                ask(Request::RecordIntent {
                    token,
                    intent: Intent {
                        old_base: TIP.to_owned(),
                        merge_commit: merge_commit(task.version),
                    },
                    packet: packet(task, run_id, good),
                });
            }
            let end = JudgeEnding::Reject {
                cause: ReworkCause::Conflict,
                remarks: Vec::new(),
                reason: "does not merge".to_owned(),
            };
            ask(Request::Judge { token, ending: end });
        }
        Some(intent) => {
            let base = if slot.landed {
                BasePosition::Merged
            } else if intent.old_base == TIP {
                BasePosition::Old
            } else {
                BasePosition::Elsewhere
            };
            if base == BasePosition::Old {
                offers.push(Message {
                    from: who,
                    slot: work.slot,
                    body: Body::MoveBase { from: TIP },
                });
            } else {
                let intent = intent.clone();
                ask(Request::SettleIntent {
                    token,
                    intent,
                    base,
                });
            }
        }
    }
}

fn judge_claims(world: &World, who: Who, offers: &mut Vec<Message>) {
    for (at, slot) in world.slots.iter().enumerate() {
        let due = slot.task.retry_at().is_none_or(|due| due <= NOW);
        if slot.task.blocked_on() != Some(BlockReason::AwaitingJudge) || !due {
            continue;
        }
        let Some(run) = &slot.run else { continue };
        if run.is_unjudged_success() {
            offers.push(claim(world, who, at, LeasePurpose::Judge));
        } else if run.is_approved() && store::is_merge_head(world, at) {
            offers.push(claim(world, who, at, LeasePurpose::Merge));
        }
    }
}

/// Whether the client is the owner of that lease, or will be when it hears its answer.
fn holds(client: &Client, at: usize, lease: &Lease) -> bool {
    let mine = |work: &Work| work.slot == at && work.token == lease.token;
    match client {
        Client::Idle => false,
        Client::Busy(work) => mine(work),
        Client::Waiting { message, work, .. } => {
            let claims = message.claim().is_some_and(|claim| claim.key == lease.key);
            claims || work.as_ref().is_some_and(mine)
        }
    }
}

fn claim(world: &World, who: Who, slot: usize, purpose: LeasePurpose) -> Message {
    let version = world.slots[slot].task.version;
    let request = Request::Claim(Claim {
        owner: name(who),
        purpose,
        key: key(who, version),
        base: Some("main".to_owned()),
    });
    message(who, slot, Some(version), request)
}

/// The name of a claim: nobody claims the same version of a task twice.
pub(super) fn key(who: Who, version: u64) -> String {
    format!("{}@{version}", name(who))
}

/// A merge commit: it is made for one version of a task.
pub(super) fn merge_commit(version: u64) -> String {
    format!("m@{version}")
}

pub(super) fn name(who: Who) -> String {
    match who {
        Who::Client(at) => format!("c{at}"),
        Who::Watchdog => "watchdog".to_owned(),
        Who::CycleManager => "cycle".to_owned(),
        Who::Person => "person".to_owned(),
    }
}

pub(super) fn call(who: Who, expected_version: Option<u64>, request: Request) -> TaskCall {
    TaskCall {
        actor: name(who),
        expected_version,
        request,
    }
}

pub(super) fn message(from: Who, slot: usize, version: Option<u64>, request: Request) -> Message {
    Message {
        from,
        slot,
        body: Body::Call(Box::new(call(from, version, request))),
    }
}

/// Whether nothing is counted when a lease ends so.
pub(super) fn is_detour(request: &Request) -> bool {
    match request {
        Request::Finish { ending, .. } => matches!(
            ending,
            WorkEnding::Quota { .. }
                | WorkEnding::Postponed { .. }
                | WorkEnding::Lost
                | WorkEnding::GivenBack
        ),
        Request::Judge { ending, .. } => matches!(
            ending,
            JudgeEnding::Quota { .. }
                | JudgeEnding::StepBack { .. }
                | JudgeEnding::ChangedJudge { .. }
        ),
        _ => false,
    }
}

fn step_back() -> JudgeEnding {
    JudgeEnding::StepBack {
        reason: "not now".to_owned(),
    }
}

fn reject(cause: ReworkCause) -> JudgeEnding {
    JudgeEnding::Reject {
        cause,
        remarks: Vec::new(),
        reason: "not yet".to_owned(),
    }
}

/// The next id of the lineage that is free.
pub(super) fn fresh_id(world: &World, task: &Task) -> TaskId {
    let root = &task.lineage.root;
    let taken = |id: &TaskId| world.slots.iter().any(|slot| slot.task.id == *id);
    let mut ids = (2..=world.slots.len() + 2).map(|n| super::id(&format!("{root}.{n}")));
    ids.find(|id| !taken(id)).unwrap_or_else(|| root.clone())
}

/// A packet that answers everything, or one that says so without evidence.
fn packet(task: &Task, run_id: &str, good: bool) -> ResultPacket {
    fixtures::packet(task, run_id, if good { "exit 0" } else { "" })
}

/// What a name of the base is once it has moved.
pub(super) fn moved(base: &str) -> &'static str {
    debug_assert!(base == TIP || base == PAST);
    PAST
}
