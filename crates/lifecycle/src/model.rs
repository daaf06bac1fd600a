//! The model: a small fleet over the real rules, with everything that can go wrong.
//!
//! Workers, judges, a watchdog and a cycle manager make calls of one store. A call may
//! come late, twice or after others, its answer may be lost after the commit, every
//! client may die between two steps, the base may be moved by somebody else, and a
//! person may cancel. What the store does is [`crate::decide`] itself; readiness and
//! recovery are the real ones too. The checker visits every state that is reachable
//! with a given number of faults.
//!
//! To keep the states finite, versions and tokens are replaced by their rank among those
//! that are still in use, points in time by due and not due, and commits of the base by
//! whether they are its tip.

mod checks;
mod kinds;
mod liveness;
mod normal;
mod person;
mod roles;
mod spaces;
mod store;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Mutex;

use stateright::{Model, Property};

use crate::decide::Answer;
use crate::lock::Resource;
use crate::policy::Policy;
use crate::request::{Claim, Request, TaskCall};
use crate::row::{Task, TaskId};
use crate::run::{Lease, TaskRun};
use crate::time::Timestamp;
use crate::words::{LeasePurpose, TaskState};
use person::{Harm, Wish};

/// The present; everything else is before it or after it.
const NOW: Timestamp = Timestamp(1_000_000_000);
/// The base, as intents name it: where it is, and where it was.
const TIP: &str = "tip";
const PAST: &str = "past";

/// What is explored.
#[allow(clippy::struct_excessive_bools)] // each is a switch of its own
struct Fleet {
    policy: Policy,
    tasks: Vec<Task>,
    workers: usize,
    judges: usize,
    faults: u8,
    /// What a worker's run may come to, beside a success.
    failures: bool,
    /// What people want, each once.
    wishes: Vec<Wish>,
    /// How often a run or a judgement may end in a way that is not counted.
    detours: u8,
    /// Whether owners may fail to begin, and runs may take too long.
    lengths: bool,
    /// How often the store may be damaged.
    harms: u8,
    /// Whether dying is what workers and judges do here: no fault, but the rule.
    deadly: bool,
    /// Whether two calls may read before either of them writes.
    races: bool,
    /// Steps to the end for each state, by its hash: none while it is being computed.
    depths: Mutex<HashMap<u64, Option<u32>>>,
    /// The requests that were followed, by name.
    followed: Mutex<BTreeSet<&'static str>>,
}

/// A state of the whole.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct World {
    slots: Vec<Slot>,
    clients: Vec<Client>,
    /// Calls that are under way for longer than anybody expects.
    network: Vec<Message>,
    /// How often each lineage was merged, by its first task.
    merged: BTreeMap<TaskId, u8>,
    faults_left: u8,
    wishes_left: Vec<Wish>,
    detours_left: u8,
    harms_left: u8,
    /// Whether the store was damaged and is not repaired yet.
    damaged: bool,
    /// The rule that a step has broken.
    broken: Option<&'static str>,
}

/// A task and all that belongs to it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Slot {
    task: Task,
    lease: Option<Lease>,
    locks: Vec<Resource>,
    run: Option<TaskRun>,
    receipts: Vec<Kept>,
    /// Whether the merge commit of the open intent is in the base.
    landed: bool,
}

impl Slot {
    /// A task that nobody has touched yet.
    fn of(task: &Task) -> Slot {
        Slot {
            task: task.clone(),
            lease: None,
            locks: Vec::new(),
            run: None,
            receipts: Vec::new(),
            landed: false,
        }
    }
}

/// A receipt, with the request itself instead of its digest: tokens are renamed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Kept {
    request: Request,
    answer: Answer,
}

/// A worker or a judge, as it knows itself.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Client {
    Idle,
    Busy(Work),
    /// It has called and heard nothing yet.
    Waiting {
        message: Message,
        /// What it was at.
        work: Option<Work>,
        /// Whether the call is still under way; else it was answered, and the answer lost.
        under_way: bool,
        /// Whether the lost answer was that the lease has ended as asked.
        ended: bool,
    },
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Work {
    slot: usize,
    token: u64,
    purpose: LeasePurpose,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Message {
    from: Who,
    slot: usize,
    body: Body,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Body {
    /// A call of the store.
    Call(Box<TaskCall>),
    /// Move the base from there to the merge commit, by compare-and-set.
    MoveBase { from: &'static str },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Who {
    Client(usize),
    Watchdog,
    CycleManager,
    Person,
}

/// How a call and its answer travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Delivery {
    Prompt,
    /// Others come first.
    Late,
    /// A copy comes again later.
    Twice,
    /// It is committed, and the caller never hears of it.
    AnswerLost,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Step {
    /// Somebody makes one of the calls that it could make now.
    Act(Who, usize, Delivery),
    /// Two calls are decided on what both read; the second one is written first.
    Race((Who, usize), (Who, usize)),
    /// A late call arrives.
    Arrive(usize),
    /// A caller without an answer asks again.
    AskAgain(usize),
    /// A clock that a task waits for is due.
    Due(usize),
    /// A client dies; it comes back without a memory.
    Die(usize),
    /// The heartbeats of a client that lives do not get through.
    Silence(usize),
    /// The first heartbeats of a client do not get through.
    Mute(usize),
    /// What a client is at takes too long.
    Overrun(usize),
    /// Somebody else moves the base.
    Push,
    /// A person wants something of a task.
    Wish(Wish, usize),
    /// The store is damaged.
    Harm(Harm, usize),
}

impl Step {
    /// Whether it is something that goes wrong, or comes from outside.
    fn is_fault(self) -> bool {
        match self {
            Step::Act(_, _, delivery) => delivery != Delivery::Prompt,
            Step::Arrive(_) | Step::AskAgain(_) | Step::Due(_) => false,
            _ => true,
        }
    }
}

impl Fleet {
    fn world(&self) -> World {
        World {
            slots: self.tasks.iter().map(Slot::of).collect(),
            clients: vec![Client::Idle; self.workers + self.judges],
            network: Vec::new(),
            merged: BTreeMap::new(),
            faults_left: self.faults,
            wishes_left: self.wishes.clone(),
            detours_left: self.detours,
            harms_left: self.harms,
            damaged: false,
            broken: None,
        }
    }

    /// Every step that is possible without a fault.
    fn plain_steps(&self, world: &World, steps: &mut Vec<Step>) {
        let clients = (0..world.clients.len()).map(Who::Client);
        for who in clients.chain([Who::Watchdog, Who::CycleManager, Who::Person]) {
            let offers = self.offers(world, who).len();
            steps.extend((0..offers).map(|n| Step::Act(who, n, Delivery::Prompt)));
        }
        steps.extend((0..world.network.len()).map(Step::Arrive));
        for (at, client) in world.clients.iter().enumerate() {
            if matches!(
                client,
                Client::Waiting {
                    under_way: false,
                    ..
                }
            ) {
                steps.push(Step::AskAgain(at));
            }
        }
        for (at, client) in world.clients.iter().enumerate() {
            // A place in the merge queue costs no attempt, so dying there has no end.
            let dies = matches!(client, Client::Busy(work) if work.purpose != LeasePurpose::Merge);
            if self.deadly && dies {
                steps.push(Step::Die(at));
            }
        }
        for (at, slot) in world.slots.iter().enumerate() {
            if slot.task.retry_at().is_some_and(|due| due > NOW) {
                steps.push(Step::Due(at));
            }
        }
    }

    fn faulty_steps(&self, world: &World, steps: &mut Vec<Step>) {
        for (n, wish) in world.wishes_left.iter().enumerate() {
            if !world.wishes_left[..n].contains(wish) {
                steps.extend((0..world.slots.len()).map(|at| Step::Wish(*wish, at)));
            }
        }
        if world.harms_left > 0 {
            for harm in Harm::ALL {
                steps.extend((0..world.slots.len()).map(|at| Step::Harm(*harm, at)));
            }
        }
        if world.faults_left == 0 {
            return;
        }
        let clients = (0..world.clients.len()).map(Who::Client);
        for who in clients.chain([Who::Watchdog, Who::CycleManager]) {
            for n in 0..self.offers(world, who).len() {
                steps.push(Step::Act(who, n, Delivery::Late));
                steps.push(Step::Act(who, n, Delivery::Twice));
                if matches!(who, Who::Client(_)) {
                    steps.push(Step::Act(who, n, Delivery::AnswerLost));
                }
            }
        }
        if self.races {
            self.races_of(world, steps);
        }
        for (at, client) in world.clients.iter().enumerate() {
            if *client != Client::Idle && !self.deadly {
                steps.push(Step::Die(at));
            }
            if let Client::Busy(work) = client {
                let lease = world.slots[work.slot].lease.as_ref();
                if lease.is_some_and(|l| l.token == work.token && !l.is_expired(NOW)) {
                    steps.push(Step::Silence(at));
                }
                if self.lengths && lease.is_some_and(|l| l.token == work.token && l.ends_at > NOW) {
                    steps.push(Step::Overrun(at));
                }
            }
            if self.lengths && person::has_not_begun(world, client) {
                steps.push(Step::Mute(at));
            }
        }
        if world.slots.iter().any(|slot| slot.task.intent.is_some()) {
            steps.push(Step::Push);
        }
    }

    /// Pairs of calls that could get in each other's way: of one task, or two claims.
    fn races_of(&self, world: &World, steps: &mut Vec<Step>) {
        let clients = (0..world.clients.len()).map(Who::Client);
        let all: Vec<(Who, usize, Message)> = clients
            .chain([Who::Watchdog, Who::CycleManager])
            .flat_map(|who| {
                let offers = self.offers(world, who).into_iter().enumerate();
                offers.map(move |(n, message)| (who, n, message))
            })
            .collect();
        for (who, n, one) in &all {
            for (other, m, message) in &all {
                let near =
                    one.slot == message.slot || one.claim().is_some() && message.claim().is_some();
                if who != other && near && one.is_call() && message.is_call() {
                    steps.push(Step::Race((*who, *n), (*other, *m)));
                }
            }
        }
    }

    /// The state after a step; none if nothing changes.
    fn after(&self, before: &World, step: Step) -> Option<World> {
        let mut world = before.clone();
        let free = matches!(step, Step::Wish(..) | Step::Harm(..) | Step::Race(..))
            || self.deadly && matches!(step, Step::Die(_));
        if step.is_fault() && !free {
            world.faults_left -= 1;
        }
        match step {
            Step::Act(who, n, delivery) => {
                let message = self.offers(before, who).swap_remove(n);
                self.send(&mut world, &message, delivery);
            }
            Step::Race((who, n), (other, m)) => {
                let first = self.offers(before, who).swap_remove(n);
                let second = self.offers(before, other).swap_remove(m);
                let read = self.decided(before, &first);
                self.send(&mut world, &second, Delivery::Prompt);
                // Whoever loses the race reads again: that is a step of its own.
                let lease = &before.slots[first.slot].lease;
                if let Ok(decision) = read
                    && self.commit(&mut world, &first, &decision, lease.as_ref())
                    && let Who::Client(at) = who
                {
                    let reply = store::Reply::Answer(decision.answer);
                    reply.told_to(&mut world.clients[at], &first);
                }
            }
            Step::Arrive(at) => {
                let message = world.network.remove(at);
                let waits = |client: &Client| {
                    matches!(client, Client::Waiting { message: own, under_way: true, .. }
                        if *own == message)
                };
                let caller = match message.from {
                    Who::Client(who) if waits(&world.clients[who]) => Some(who),
                    _ => None,
                };
                let answer = self.deliver(&mut world, &message);
                if let Some(who) = caller {
                    answer.told_to(&mut world.clients[who], &message);
                }
            }
            Step::AskAgain(who) => {
                if let Client::Waiting { message, ended, .. } = world.clients[who].clone() {
                    let answer = self.deliver(&mut world, &message);
                    if ended && !answer.ends_lease(&message) {
                        world.broken = world.broken.or(Some(STEP_RULES[4]));
                    }
                    answer.told_to(&mut world.clients[who], &message);
                }
            }
            Step::Due(at) => {
                if let Some(blocker) = &mut world.slots[at].task.blocker {
                    blocker.retry_at = Some(NOW);
                }
            }
            Step::Die(at) => world.clients[at] = Client::Idle,
            Step::Silence(at) => {
                if let Some(lease) = store::lease_of(&mut world, at) {
                    lease.last_heartbeat_at = Timestamp(0);
                }
            }
            Step::Mute(at) => {
                if let Some(lease) = store::lease_of(&mut world, at) {
                    store::let_interval_pass(lease);
                }
            }
            Step::Overrun(at) => {
                if let Some(lease) = store::lease_of(&mut world, at) {
                    lease.ends_at = NOW;
                }
            }
            Step::Push => store::base_moves(&mut world),
            Step::Wish(wish, at) => {
                if let Some(n) = world.wishes_left.iter().position(|left| *left == wish) {
                    world.wishes_left.remove(n);
                }
                if !self.grant(&mut world, wish, at) {
                    return None;
                }
            }
            Step::Harm(harm, at) => {
                harm.done_to(&mut world.slots[at]);
                if store::inconsistencies(&world, &world.slots, true).is_empty() {
                    return None;
                }
                world.harms_left -= 1;
                world.damaged = true;
            }
        }
        world.damaged =
            world.damaged && !store::inconsistencies(&world, &world.slots, true).is_empty();
        normal::normalise(&mut world, self.workers);
        (world != *before).then_some(world)
    }

    fn send(&self, world: &mut World, message: &Message, delivery: Delivery) {
        let who = message.from;
        let work = match who {
            Who::Client(at) => match &world.clients[at] {
                Client::Busy(work) => Some(work.clone()),
                _ => None,
            },
            _ => None,
        };
        // Copies are made before the delivery: what it changes, it changes in them too.
        if matches!(delivery, Delivery::Late | Delivery::Twice) {
            world.network.push(message.clone());
        }
        if let Who::Client(at) = who
            && matches!(delivery, Delivery::Late | Delivery::AnswerLost)
        {
            world.clients[at] = Client::Waiting {
                message: message.clone(),
                work,
                under_way: delivery == Delivery::Late,
                ended: false,
            };
        }
        if delivery == Delivery::Late {
            return;
        }
        let answer = self.deliver(world, message);
        if let Who::Client(at) = who {
            match &mut world.clients[at] {
                Client::Waiting { ended, .. } if delivery == Delivery::AnswerLost => {
                    *ended = answer.ends_lease(message);
                }
                client => answer.told_to(client, message),
            }
        }
    }
}

impl Fleet {
    fn note_followed(&self, request: &Request) {
        let mut followed = self
            .followed
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        followed.insert(kinds::kind(request));
    }
}

impl Message {
    fn is_call(&self) -> bool {
        matches!(self.body, Body::Call(_))
    }

    fn claim(&self) -> Option<&Claim> {
        match &self.body {
            Body::Call(call) => match &call.request {
                Request::Claim(claim) => Some(claim),
                _ => None,
            },
            Body::MoveBase { .. } => None,
        }
    }
}

/// The properties, by the words that a broken one is reported with.
const STEP_RULES: &[&str] = &[
    "only the owner writes",
    "no event is lost or doubled",
    "a closed run stays as it is",
    "no way out of a terminal state",
    "a repeat gets its answer",
    "who has begun is not taken back",
    "nothing starts while it is paused",
];

impl Model for Fleet {
    type State = World;
    type Action = Step;

    fn init_states(&self) -> Vec<World> {
        vec![self.world()]
    }

    fn actions(&self, world: &World, steps: &mut Vec<Step>) {
        if world.broken.is_none() {
            self.plain_steps(world, steps);
            self.faulty_steps(world, steps);
        }
    }

    fn next_state(&self, world: &World, step: Step) -> Option<World> {
        self.after(world, step)
    }

    fn properties(&self) -> Vec<Property<Fleet>> {
        vec![
            Property::always(STEP_RULES[0], |_, world: &World| {
                world.broken != Some(STEP_RULES[0])
            }),
            Property::always(STEP_RULES[1], |_, world: &World| {
                world.broken != Some(STEP_RULES[1])
            }),
            Property::always(STEP_RULES[2], |_, world: &World| {
                world.broken != Some(STEP_RULES[2])
            }),
            Property::always(STEP_RULES[3], |_, world: &World| {
                world.broken != Some(STEP_RULES[3])
            }),
            Property::always(STEP_RULES[4], |_, world: &World| {
                world.broken != Some(STEP_RULES[4])
            }),
            Property::always(STEP_RULES[5], |_, world: &World| {
                world.broken != Some(STEP_RULES[5])
            }),
            Property::always(STEP_RULES[6], |_, world: &World| {
                world.broken != Some(STEP_RULES[6])
            }),
            Property::always("work holds its scope", |_, world: &World| {
                world.damaged || checks::work_holds_its_scope(world)
            }),
            Property::always("one successor", |_, world: &World| {
                checks::one_successor(world)
            }),
            Property::always("no overlapping locks", |_, world: &World| {
                world.damaged || checks::no_overlapping_locks(world)
            }),
            Property::always("one owner", |_, world: &World| {
                world.damaged || checks::one_owner(world)
            }),
            Property::always("done has evidence", |_, world: &World| {
                checks::done_has_evidence(world)
            }),
            Property::always("no lineage is merged twice", |_, world: &World| {
                world.merged.values().all(|times| *times <= 1)
            }),
            Property::always("merged is done", |_, world: &World| {
                checks::merged_is_done(world)
            }),
            Property::always("rows, locks, leases and runs agree", |_, world: &World| {
                world.damaged || checks::agree(world)
            }),
            Property::always(
                "everything ends or is parked",
                |fleet: &Fleet, world: &World| {
                    world.broken.is_some() || fleet.depth(world).is_some()
                },
            ),
            Property::sometimes("everything is done", |_, world: &World| {
                world
                    .slots
                    .iter()
                    .all(|slot| slot.task.state == TaskState::Done)
            }),
        ]
    }
}

fn id(text: &str) -> TaskId {
    TaskId::parse(text).unwrap_or_else(|error| panic!("{error}"))
}
