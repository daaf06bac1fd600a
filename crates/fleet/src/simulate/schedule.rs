//! The scheduler: one role moves at a time, by chance, and anything may crash anywhere.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use super::world::{SimCrash, SimWorld};
use crate::workspaces::StopHandle;

/// The name of the one who is not a role.
pub(super) const PERSON: &str = "person";

/// A role that runs, and why it ended.
pub(super) type SimRole = Pin<Box<dyn Future<Output = Result<(), String>>>>;

/// A role, started anew after each crash; the number counts its lives.
pub(super) type SimStart = Box<dyn Fn(u64) -> (SimRole, Option<StopHandle>)>;

/// Set when a future wants to be polled.
struct SimFlag(AtomicBool);

impl Wake for SimFlag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::SeqCst);
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.0.store(true, Ordering::SeqCst);
    }
}

struct Actor {
    name: String,
    /// No crash ends a person.
    is_person: bool,
    start: SimStart,
    future: Option<SimRole>,
    flag: Arc<SimFlag>,
    /// Tells this life to stop.
    stop_handle: Option<StopHandle>,
    /// It was told to, for so long, when so many answers could still get lost.
    stopping: Option<(i64, u32)>,
    restart_at: Option<i64>,
    lives: u64,
}

/// A role that stands still for a while, as on a machine that sleeps, and then goes on as
/// if nothing had been.
#[derive(Clone, Debug)]
pub(super) struct SimSleeper {
    pub(super) name: String,
    pub(super) from: i64,
    pub(super) to: i64,
}

/// Runs roles.
pub(super) struct SimScheduler {
    world: SimWorld,
    pub(super) sleepers: Vec<SimSleeper>,
    actors: Vec<Actor>,
    /// Why a role ended that should not have.
    pub(super) ends: Vec<String>,
    /// Roles that were told to stop, and did so with every answer heard.
    pub(super) stopped: Vec<String>,
    pub(super) polls: u64,
}

/// Why the scheduler returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SimRest {
    /// Nobody moves before a timer rings.
    Quiet,
    /// Nobody will ever move again.
    Still,
}

impl SimScheduler {
    pub(super) fn new(world: SimWorld) -> SimScheduler {
        SimScheduler {
            world,
            sleepers: Vec::new(),
            actors: Vec::new(),
            ends: Vec::new(),
            stopped: Vec::new(),
            polls: 0,
        }
    }

    /// The number that the next role gets.
    pub(super) fn next_actor(&self) -> usize {
        self.actors.len()
    }

    pub(super) fn add(&mut self, name: &str, start: SimStart) {
        let now = self.world.time().0;
        self.actors.push(Actor {
            name: name.to_owned(),
            is_person: name == PERSON,
            start,
            future: None,
            flag: Arc::new(SimFlag(AtomicBool::new(false))),
            stop_handle: None,
            stopping: None,
            restart_at: Some(now),
            lives: 0,
        });
    }

    /// Lets everybody move who can, in an order by chance.
    pub(super) fn settle(&mut self) -> SimRest {
        loop {
            self.crash();
            self.restart();
            self.tell_to_stop();
            let now = self.world.time().0;
            let ready: Vec<usize> = self
                .actors
                .iter()
                .enumerate()
                .filter(|(_, actor)| {
                    actor.future.is_some()
                        && actor.flag.0.load(Ordering::SeqCst)
                        && !self.sleeps(&actor.name, now)
                })
                .map(|(at, _)| at)
                .collect();
            let chosen = self.world.draw(|chance| chance.of(&ready).copied());
            let Some(at) = chosen else {
                return if self.next_time().is_some() {
                    SimRest::Quiet
                } else {
                    SimRest::Still
                };
            };
            self.poll(at);
        }
    }

    /// When something happens by itself.
    pub(super) fn next_time(&self) -> Option<i64> {
        let now = self.world.time().0;
        let restarts = self.actors.iter().filter_map(|actor| actor.restart_at);
        let wakes = self.sleepers.iter().map(|sleeper| sleeper.to);
        let wakes = wakes.filter(|to| *to > now);
        restarts.chain(wakes).chain(self.world.next_timer()).min()
    }

    fn sleeps(&self, name: &str, now: i64) -> bool {
        let mut sleepers = self.sleepers.iter();
        sleepers.any(|one| one.name == name && (one.from..one.to).contains(&now))
    }

    /// The number of a role.
    pub(super) fn actor(&self, name: &str) -> Option<usize> {
        self.actors.iter().position(|actor| actor.name == name)
    }

    fn poll(&mut self, at: usize) {
        self.polls += 1;
        let Some(actor) = self.actors.get_mut(at) else {
            return;
        };
        actor.flag.0.store(false, Ordering::SeqCst);
        let waker = Waker::from(Arc::clone(&actor.flag));
        let mut context = Context::from_waker(&waker);
        let Some(future) = &mut actor.future else {
            return;
        };
        if let Poll::Ready(ended) = future.as_mut().poll(&mut context) {
            actor.future = None;
            actor.stop_handle = None;
            match (ended, actor.stopping.take()) {
                (Err(error), _) => self.ends.push(format!("{} ended: {error}", actor.name)),
                (Ok(()), Some((millis, losses))) => {
                    let state = self.world.state();
                    actor.restart_at = Some(state.now + millis);
                    if losses == state.losses_left {
                        self.stopped.push(actor.name.clone());
                    }
                }
                (Ok(()), None) if actor.is_person => {}
                (Ok(()), None) => self.ends.push(format!("{} ended by itself", actor.name)),
            }
        }
    }

    /// Raises the signs of those who were told to stop.
    fn tell_to_stop(&mut self) {
        let stops = std::mem::take(&mut self.world.state().stops);
        let losses = self.world.state().losses_left;
        for (name, secs) in stops {
            let actor = self.actors.iter_mut().find(|actor| actor.name == name);
            if let Some(actor) = actor
                && let Some(stop_handle) = &actor.stop_handle
            {
                stop_handle.stop();
                let millis = i64::try_from(secs.max(1) * 1000).unwrap_or(1000);
                actor.stopping = Some((millis, losses));
            }
        }
    }

    /// Drops whoever crashed; they come back later, with nothing but their names.
    fn crash(&mut self) {
        let Some(crash) = self.world.state().crash.take() else {
            return;
        };
        let whole = self.world.draw(restart_delay);
        for at in 0..self.actors.len() {
            let hit = crash == SimCrash::All || crash == SimCrash::One(at);
            if !hit || self.actors.get(at).is_some_and(|actor| actor.is_person) {
                continue;
            }
            let delay = match crash {
                SimCrash::All => whole,
                SimCrash::One(_) => self.world.draw(restart_delay),
            };
            let now = self.world.time().0;
            let Some(actor) = self.actors.get_mut(at) else {
                continue;
            };
            if actor.future.take().is_some() {
                (actor.stop_handle, actor.stopping) = (None, None);
                actor.restart_at = Some(now + delay);
                let name = actor.name.clone();
                self.world
                    .say(|| format!("{name} crashes for {} s", delay / 1000));
            }
        }
    }

    fn restart(&mut self) {
        let now = self.world.time().0;
        for actor in &mut self.actors {
            if actor.restart_at.is_some_and(|at| at <= now) {
                actor.restart_at = None;
                actor.lives += 1;
                actor.flag.0.store(true, Ordering::SeqCst);
                let (role, stop_handle) = (actor.start)(actor.lives);
                (actor.future, actor.stop_handle) = (Some(role), stop_handle);
            }
        }
    }
}

/// How long a crash lasts: at once, less than a lease, or more.
fn restart_delay(chance: &mut super::chance::SimChance) -> i64 {
    let secs = match chance.below(3) {
        0 => 0,
        1 => chance.between(1, 60),
        _ => chance.between(60, 400),
    };
    i64::try_from(secs * 1000).unwrap_or(0)
}
