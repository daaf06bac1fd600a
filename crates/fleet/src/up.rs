//! A fleet that is up: roles of one process, each a task of its own, over one crew, until
//! the stop sign or until there is nothing left to do.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use runner_ledger::{Clock, Hints, Ledger, LedgerError};
use tokio::task::JoinSet;

use crate::book::{Book, Booked};
use crate::names::Name;
use crate::roles::backlog::Backlog;
use crate::roles::cycle::{self, CycleStatistics};
use crate::roles::halt::Halt;
use crate::roles::judge::Judge;
use crate::roles::planner::{self, Planned};
use crate::roles::worker::Worker;
use crate::roles::{Crew, Notes, Settings, clear_up, dispatcher, keeper};
use crate::settled::is_settled;
use crate::yard::{Later, Presented, StopSign, Stopper, Trouble, Yard};

/// What a role does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Post {
    /// Gives ready tasks to agents.
    Dispatcher,
    /// Leads on what is blocked.
    Cycle,
    /// Makes tasks of the requirement.
    Planner,
    /// Changes code.
    Worker,
    /// Finds out.
    Tester,
    /// Writes documentation.
    Docser,
    /// Judges and merges.
    Judge,
    /// Ends what nobody renewed.
    Keeper,
}

impl Post {
    /// Its name; agents and seats are called after it.
    pub const fn word(self) -> &'static str {
        match self {
            Post::Dispatcher => "dispatcher",
            Post::Cycle => "cycle",
            Post::Planner => "planner",
            Post::Worker => "worker",
            Post::Tester => "tester",
            Post::Docser => "docser",
            Post::Judge => "judge",
            Post::Keeper => "keeper",
        }
    }
}

/// What a fleet is made of.
pub struct Gear {
    /// The ledger.
    pub ledger: Ledger,
    /// Git, guards and sessions.
    pub yard: Arc<dyn Yard>,
    /// The clock of this machine.
    pub clock: Arc<dyn Clock>,
    /// What the project says.
    pub settings: Settings,
    /// What sessions are told besides.
    pub notes: Arc<dyn Notes>,
    /// Where work comes from.
    pub backlog: Arc<dyn Backlog>,
    /// The account that sessions use.
    pub account: String,
}

/// Roles at work.
pub struct Fleet {
    crew: Crew,
    account: String,
    stopper: Stopper,
    sign: StopSign,
    roles: JoinSet<(Post, Booked<()>)>,
    /// They are given back when the fleet has ended.
    names: Vec<Name>,
    cycles: Arc<CycleStatistics>,
    planned: Arc<Mutex<Option<Planned>>>,
    begun: BTreeMap<Post, u32>,
}

/// Counts fleets of this process, so that no two lives of a role name a claim alike.
static LIVES: AtomicU64 = AtomicU64::new(0);

impl Fleet {
    /// A fleet in which nobody is at work yet.
    pub fn new(gear: Gear) -> Fleet {
        let (stopper, sign) = Stopper::new();
        let started = u64::try_from(gear.clock.now().0).unwrap_or(0);
        let life = started.wrapping_shl(8) | (LIVES.fetch_add(1, Ordering::Relaxed) & 0xff);
        Fleet {
            crew: Crew {
                book: Book::new(gear.ledger),
                yard: gear.yard,
                clock: gear.clock,
                settings: Arc::new(gear.settings),
                notes: gear.notes,
                backlog: gear.backlog,
                life,
                halt: Halt::default(),
                #[cfg(test)]
                without: None,
            },
            account: gear.account,
            stopper,
            sign,
            roles: JoinSet::new(),
            names: Vec::new(),
            cycles: Arc::default(),
            planned: Arc::default(),
            begun: BTreeMap::new(),
        }
    }

    /// Lets a role begin, in the runtime of the caller.
    pub fn begin(&mut self, post: Post, name: Name) {
        let (crew, stop) = (self.crew.clone(), self.sign.clone());
        let (account, word) = (self.account.clone(), name.as_str().to_owned());
        let (cycles, planned) = (Arc::clone(&self.cycles), Arc::clone(&self.planned));
        let role: Later<'static, Booked<()>> = match post {
            Post::Dispatcher => Box::pin(async move { dispatcher::run(&crew, &word, stop).await }),
            Post::Cycle => Box::pin(async move { cycle::run(&crew, &word, &cycles, stop).await }),
            Post::Keeper => Box::pin(async move { keeper::run(&crew, &word, stop).await }),
            Post::Planner => Box::pin(async move {
                let tell = |look: &Planned| {
                    *planned.lock().unwrap_or_else(PoisonError::into_inner) = Some(look.clone());
                };
                planner::run_telling(&crew, &word, stop, &tell).await
            }),
            Post::Judge => Box::pin(async move {
                let name = word;
                Judge {
                    crew,
                    name,
                    account,
                }
                .run(stop)
                .await
            }),
            Post::Worker | Post::Tester | Post::Docser => Box::pin(async move {
                let worker = Worker {
                    crew,
                    name: word,
                    role: post.word().to_owned(),
                    account,
                };
                worker.run(stop).await
            }),
        };
        self.roles.spawn(async move { (post, role.await) });
        self.names.push(name);
        *self.begun.entry(post).or_default() += 1;
    }

    /// The ledger.
    pub fn ledger(&self) -> &Ledger {
        self.crew.book.ledger()
    }

    /// What hears when something changes.
    pub async fn listen(&self) -> Booked<Hints> {
        self.crew.book.listen().await
    }

    /// What the planner said last, if it has looked.
    pub fn planned(&self) -> Option<Planned> {
        let planned = self.planned.lock();
        planned.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Whether everything is at an end or waits for a person, and nothing new comes: issues
    /// were brought in, and the planner has nothing to plan.
    pub async fn is_idle(&self) -> Booked<bool> {
        let brought_in = !self.begun.contains_key(&Post::Cycle)
            || self.cycles.cycles.load(Ordering::Relaxed) > 0;
        let has_planned = !self.begun.contains_key(&Post::Planner)
            || match self.planned() {
                Some(Planned::NoRequirement | Planned::Before | Planned::Refused(_)) => true,
                // What it said may be old, but for a source that cannot be read.
                Some(Planned::BacklogFirst(_)) => self.crew.backlog.requirement().await.is_err(),
                Some(Planned::Tasks(_)) | None => false,
            };
        if !brought_in || !has_planned {
            return Ok(false);
        }
        let waiting = match self.crew.backlog.sync().await {
            Ok(outside) => outside.tasks.len(),
            // What cannot be read is no work that anybody could do.
            Err(_) => 0,
        };
        Ok(waiting == 0 && is_settled(&self.crew.book).await?)
    }

    /// Waits for a role that ends though nobody said so, or says that nobody can go on, and
    /// says why.
    pub async fn role_ended(&mut self) -> String {
        let ended = tokio::select! {
            biased;
            words = self.crew.halt.called() => return format!("nobody can go on: {words}"),
            ended = self.roles.join_next() => ended,
        };
        match ended {
            None => std::future::pending().await,
            Some(Ok((post, Ok(())))) => format!("the {} has ended", post.word()),
            Some(Ok((post, Err(error)))) => format!("the {} cannot go on: {error}", post.word()),
            Some(Err(error)) => format!("a role has crashed: {error}"),
        }
    }

    /// Says stop, and waits until everybody has ended their children and given back what
    /// they held. Errors: what some could not give back is lost when its lease ends.
    pub async fn end(&mut self) -> Vec<LedgerError> {
        self.stopper.stop();
        let mut errors = Vec::new();
        while let Some(ended) = self.roles.join_next().await {
            if let Ok((_, Err(error))) = ended {
                errors.push(error);
            }
        }
        self.names.clear();
        errors
    }

    /// Removes folders and refs of runs that nobody needs any more.
    pub async fn clear_up(&self) -> Booked<()> {
        clear_up(&self.crew).await
    }

    /// Fast-forwards the user's branch where that is clean.
    pub async fn present(&self) -> Result<Presented, Trouble> {
        self.crew.yard.present().await
    }
}
