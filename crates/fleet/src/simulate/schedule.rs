//! The scheduler: one role moves at a time, by chance, and anything may crash anywhere.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use super::world::{Crash, World};

/// A role, started anew after each crash.
pub(super) type Start = Box<dyn Fn(u64) -> Pin<Box<dyn Future<Output = Result<(), String>>>>>;

/// Set when a future wants to be polled.
struct Flag(AtomicBool);

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::SeqCst);
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.0.store(true, Ordering::SeqCst);
    }
}

struct Actor {
    name: String,
    start: Start,
    future: Option<Pin<Box<dyn Future<Output = Result<(), String>>>>>,
    flag: Arc<Flag>,
    restart_at: Option<i64>,
    lives: u64,
}

/// Runs roles.
pub(super) struct Scheduler {
    world: World,
    actors: Vec<Actor>,
    /// Why a role ended that should not have.
    pub(super) ends: Vec<String>,
    pub(super) polls: u64,
}

/// Why the scheduler returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rest {
    /// Nobody moves before a timer rings.
    Quiet,
    /// Nobody will ever move again.
    Still,
}

impl Scheduler {
    pub(super) fn new(world: World) -> Scheduler {
        Scheduler {
            world,
            actors: Vec::new(),
            ends: Vec::new(),
            polls: 0,
        }
    }

    /// The number that the next role gets.
    pub(super) fn next_actor(&self) -> usize {
        self.actors.len()
    }

    pub(super) fn add(&mut self, name: &str, start: Start) {
        let now = self.world.time().0;
        self.actors.push(Actor {
            name: name.to_owned(),
            start,
            future: None,
            flag: Arc::new(Flag(AtomicBool::new(false))),
            restart_at: Some(now),
            lives: 0,
        });
    }

    /// Lets everybody move who can, in an order by chance.
    pub(super) fn settle(&mut self) -> Rest {
        loop {
            self.crash();
            self.restart();
            let ready: Vec<usize> = self
                .actors
                .iter()
                .enumerate()
                .filter(|(_, actor)| actor.future.is_some() && actor.flag.0.load(Ordering::SeqCst))
                .map(|(at, _)| at)
                .collect();
            let chosen = self.world.draw(|chance| chance.of(&ready).copied());
            let Some(at) = chosen else {
                return if self.next_time().is_some() {
                    Rest::Quiet
                } else {
                    Rest::Still
                };
            };
            self.poll(at);
        }
    }

    /// When something happens by itself.
    pub(super) fn next_time(&self) -> Option<i64> {
        let restarts = self.actors.iter().filter_map(|actor| actor.restart_at);
        restarts.chain(self.world.next_timer()).min()
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
            if let Err(error) = ended {
                self.ends.push(format!("{} ended: {error}", actor.name));
            }
        }
    }

    /// Drops whoever crashed; they come back later, with nothing but their names.
    fn crash(&mut self) {
        let Some(crash) = self.world.state().crash.take() else {
            return;
        };
        let whole = self.world.draw(|chance| restart_delay(chance));
        for at in 0..self.actors.len() {
            if crash != Crash::All && crash != Crash::One(at) {
                continue;
            }
            let delay = match crash {
                Crash::All => whole,
                Crash::One(_) => self.world.draw(restart_delay),
            };
            let now = self.world.time().0;
            let Some(actor) = self.actors.get_mut(at) else {
                continue;
            };
            if actor.future.take().is_some() {
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
                actor.future = Some((actor.start)(actor.lives));
            }
        }
    }
}

/// How long a crash lasts: at once, less than a lease, or more.
fn restart_delay(chance: &mut super::chance::Chance) -> i64 {
    let secs = match chance.below(3) {
        0 => 0,
        1 => chance.between(1, 60),
        _ => chance.between(60, 400),
    };
    i64::try_from(secs * 1000).unwrap_or(0)
}
