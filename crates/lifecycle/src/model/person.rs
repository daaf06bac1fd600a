//! What comes from outside: the wishes of people, and harm to the store itself.

use super::{Body, Client, Fleet, Message, NOW, Slot, Who, World, roles, store};
use crate::decide::decide;
use crate::lock::Resource;
use crate::request::{Dependency, Facts, NewPacket, NewTask, Request, TaskCall};
use crate::words::{RefusalCode, TaskState};

/// The task that somebody makes.
const MADE: &str = "made";

/// What a person, or an orchestrator, may want once, at any time, of any task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Wish {
    Cancel,
    Pause,
    Replan,
    Retry,
    /// Take a result that changed its own judge.
    AcceptJudge,
    /// Say again how it ended.
    Reassert,
    /// A new task that needs the first one.
    Create,
    Block(RefusalCode),
}

/// How the store may be damaged behind everybody's back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Harm {
    LeaseGone,
    LeaseOfAnother,
    LocksGone,
    LockLeft,
}

impl Harm {
    pub(super) const ALL: &'static [Harm] = &[
        Harm::LeaseGone,
        Harm::LeaseOfAnother,
        Harm::LocksGone,
        Harm::LockLeft,
    ];

    pub(super) fn done_to(self, slot: &mut Slot) {
        let working = slot.task.state == TaskState::InProgress;
        match self {
            Harm::LeaseGone => slot.lease = None,
            Harm::LeaseOfAnother => {
                if let Some(lease) = &mut slot.lease {
                    lease.owner = "nobody".to_owned();
                }
            }
            Harm::LocksGone => slot.locks.clear(),
            Harm::LockLeft if !working => slot.locks = slot.task.work_scope(),
            Harm::LockLeft => {}
        }
    }
}

impl Fleet {
    /// Asks for it. Whether it was followed: a refused wish is as good as none.
    pub(super) fn grant(&self, world: &mut World, wish: Wish, at: usize) -> bool {
        if wish == Wish::Create {
            return at == 0 && self.create(world);
        }
        let task = &world.slots[at].task;
        let request = match wish {
            Wish::Cancel => Request::Cancel {
                reason: "not wanted".to_owned(),
            },
            Wish::Pause => Request::Pause { paused: true },
            Wish::Replan => Request::Replan(NewPacket {
                lock_scope: Resource::parse("lib").into_iter().collect(),
                forbidden_scope: Vec::new(),
                context: Vec::new(),
                commands: Vec::new(),
            }),
            Wish::Retry => Request::Retry {
                successor: roles::fresh_id(world, task),
            },
            Wish::AcceptJudge => Request::AcceptJudge {
                reason: "read and right".to_owned(),
            },
            Wish::Reassert => Request::Reassert {
                state: task.state,
                reason: "to be sure".to_owned(),
            },
            Wish::Block(code) => Request::Block {
                code,
                reason: "in the way".to_owned(),
                waits_for: None,
            },
            Wish::Create => return false,
        };
        let message = Message {
            from: Who::Person,
            slot: at,
            body: Body::Call(Box::new(roles::call(Who::Person, None, request))),
        };
        matches!(self.deliver(world, &message), store::Reply::Answer(_))
    }

    fn create(&self, world: &mut World) -> bool {
        let first = world.slots[0].task.id.clone();
        let Ok(scope) = Resource::parse("src/made") else {
            return false;
        };
        let new = NewTask {
            dependencies: vec![first.clone()],
            expects_change: false,
            ..NewTask::new(super::id(MADE), scope)
        };
        let facts = Facts {
            dependencies: vec![Dependency {
                chain: store::chain(world, &first),
                id: first,
            }],
            ..Facts::default()
        };
        let call: TaskCall = roles::call(Who::Person, None, Request::Create(new));
        let made = world
            .slots
            .iter()
            .find(|slot| slot.task.id == super::id(MADE));
        let made = made.map(|slot| slot.task.clone());
        let Ok(decision) = decide(&self.policy, made.as_ref(), &call, &facts, NOW) else {
            return false;
        };
        self.note_followed(&call.request);
        store::add(world, &decision.task, &decision.events);
        true
    }

    /// Whoever paused a task lets it go in the end.
    pub(super) fn unpause(world: &World, offers: &mut Vec<Message>) {
        for (at, slot) in world.slots.iter().enumerate() {
            if slot.task.paused && !slot.task.state.is_terminal() {
                let request = Request::Pause { paused: false };
                offers.push(roles::message(Who::Person, at, None, request));
            }
        }
    }

    /// Mends what was damaged: as the cycle manager does for a task that is blocked on it.
    pub(super) fn mend(world: &World, offers: &mut Vec<Message>) {
        if !world.damaged {
            return;
        }
        let found = store::inconsistencies(world, &world.slots, true);
        for (at, slot) in world.slots.iter().enumerate() {
            if found.iter().any(|one| one.task_id == slot.task.id) {
                let version = Some(slot.task.version);
                offers.push(roles::message(
                    Who::CycleManager,
                    at,
                    version,
                    Request::Repair,
                ));
            }
        }
    }
}

/// Whether the client holds the lease of a task and has not said a word since its claim.
pub(super) fn has_not_begun(world: &World, client: &Client) -> bool {
    let Client::Busy(work) = client else {
        return false;
    };
    let lease = world.slots[work.slot].lease.as_ref();
    lease.is_some_and(|lease| {
        lease.token == work.token
            && lease.last_heartbeat_at == lease.claimed_at
            && !lease.never_began(NOW)
    })
}
