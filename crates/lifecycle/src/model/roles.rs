//! What each role would ask for now: it looks at the store and makes up its mind.

use super::{Body, Client, Fleet, Message, NOW, PAST, TIP, Who, Work, World, store};
use crate::fixtures;
use crate::packet::ResultPacket;
use crate::ready::{NotReady, ready};
use crate::recovery::{self, Action};
use crate::request::{Call, Claim, Ending, JudgeEnding, NewPacket, Request};
use crate::row::{Intent, Task, TaskId};
use crate::words::{BasePosition, Category, Code, Purpose, Reason, ReworkCause, State};

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
            Who::Watchdog => watchdog(world, &mut offers),
            Who::CycleManager => self.cycle(world, &mut offers),
            Who::Person => {}
        }
        offers
    }

    fn work_claims(&self, world: &World, who: Who, offers: &mut Vec<Message>) {
        for at in 0..world.slots.len() {
            let task = &world.slots[at].task;
            if task.state == State::Todo
                && ready(&self.policy, task, &store::facts(world, at, None), NOW).is_ok()
            {
                offers.push(claim(world, who, at, Purpose::Work));
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
        if lease.is_some_and(|lease| lease.token == token && lease.is_expired(NOW)) {
            ask(Request::Heartbeat { token });
        }
        match work.purpose {
            Purpose::Work => {
                let mut finish = |ending| {
                    ask(Request::Finish {
                        token,
                        run_id: run_id.clone(),
                        ending,
                    });
                };
                for good in [true, false] {
                    finish(Ending::Success {
                        result: Some("c".to_owned()),
                        packet: packet(task, &run_id, good),
                    });
                }
                if self.failures {
                    finish(Ending::Failed {
                        category: Category::Test,
                        signature: None,
                        note: "red".to_owned(),
                    });
                    finish(Ending::Blocked {
                        code: Code::ScopeViolation,
                        reason: "needs another path".to_owned(),
                        waits_for: None,
                    });
                }
            }
            Purpose::Judge => {
                let mut end = |ending| ask(Request::Judge { token, ending });
                for good in [true, false] {
                    end(JudgeEnding::Approve {
                        packet: packet(task, &run_id, good),
                    });
                }
                end(reject(ReworkCause::Verdict));
                if self.failures {
                    end(JudgeEnding::Unable {
                        reason: "no reviewer".to_owned(),
                    });
                }
            }
            Purpose::Merge => match &task.intent {
                None => {
                    for good in [true, false] {
                        ask(Request::RecordIntent {
                            token,
                            intent: Intent {
                                old_base: TIP.to_owned(),
                                merge_commit: merge_commit(task.version),
                            },
                            packet: packet(task, &run_id, good),
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
            },
        }
    }

    fn cycle(&self, world: &World, offers: &mut Vec<Message>) {
        for (at, slot) in world.slots.iter().enumerate() {
            let task = &slot.task;
            let facts = store::facts(world, at, None);
            let version = Some(task.version);
            if task.state == State::Todo {
                let dead = ready(&self.policy, task, &facts, NOW);
                if let Err(NotReady::DeadDependency(other)) = dead {
                    let request = Request::Block {
                        code: Code::DependencyNotMet,
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
                Action::Stay | Action::Wait(_) | Action::Park(_) | Action::Repair
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

fn judge_claims(world: &World, who: Who, offers: &mut Vec<Message>) {
    for (at, slot) in world.slots.iter().enumerate() {
        let due = slot.task.retry_at().is_none_or(|due| due <= NOW);
        if slot.task.blocked_on() != Some(Reason::AwaitingJudge) || !due {
            continue;
        }
        let Some(run) = &slot.run else { continue };
        if run.is_unjudged_success() {
            offers.push(claim(world, who, at, Purpose::Judge));
        } else if run.is_approved() && store::is_merge_head(world, at) {
            offers.push(claim(world, who, at, Purpose::Merge));
        }
    }
}

/// A lease ends when nobody renews it: at once where its owner is gone, and where the
/// heartbeats of a living one were lost for long enough.
fn watchdog(world: &World, offers: &mut Vec<Message>) {
    for (at, slot) in world.slots.iter().enumerate() {
        let Some(lease) = &slot.lease else { continue };
        let holds = |client: &Client| match client {
            Client::Idle => false,
            Client::Busy(work) => work.slot == at && work.token == lease.token,
            Client::Waiting { message, work, .. } => {
                let claims = message.claim().is_some_and(|claim| claim.key == lease.key);
                claims
                    || work
                        .as_ref()
                        .is_some_and(|w| w.slot == at && w.token == lease.token)
            }
        };
        let version = Some(slot.task.version);
        if lease.is_expired(NOW) || !world.clients.iter().any(holds) {
            let request = Request::Expire { not_before: None };
            offers.push(message(Who::Watchdog, at, version, request));
        }
    }
}

fn claim(world: &World, who: Who, slot: usize, purpose: Purpose) -> Message {
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

pub(super) fn call(who: Who, expected_version: Option<u64>, request: Request) -> Call {
    Call {
        actor: name(who),
        expected_version,
        request,
    }
}

fn message(from: Who, slot: usize, version: Option<u64>, request: Request) -> Message {
    Message {
        from,
        slot,
        body: Body::Call(Box::new(call(from, version, request))),
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
fn fresh_id(world: &World, task: &Task) -> TaskId {
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
