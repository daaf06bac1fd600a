//! A fleet in one process: the chosen roles, started together, ended together.

use std::sync::Arc;

use runner_ledger::LedgerError;
use runner_lifecycle::{Reason, State};
use tokio::task::JoinSet;

use crate::book::{Book, Booked};
use crate::roles::cycle::{self, CycleStatistics};
use crate::roles::dispatcher::WORKING_ROLES;
use crate::roles::judge::Judge;
use crate::roles::planner::is_parked;
use crate::roles::worker::Worker;
use crate::roles::{Crew, LOOK_EVERY_SECS, Watch, dispatcher, keeper, planner};
use crate::yard::{StopSign, Stopper};

/// Which roles run here, and how many of each.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Team {
    /// What the names of this process's agents begin with: different on every machine, the
    /// same in every life.
    pub prefix: String,
    /// The account that sessions use.
    pub account: String,
    /// Workers.
    pub workers: u32,
    /// Testers.
    pub testers: u32,
    /// Docsers.
    pub docsers: u32,
    /// Judges.
    pub judges: u32,
    /// Whether there is a dispatcher; where several machines have one, one is at work.
    pub dispatcher: bool,
    /// Whether there is a cycle manager, likewise.
    pub cycle: bool,
    /// Whether there is a planner, likewise.
    pub planner: bool,
}

/// Why a fleet ended that was not told to.
#[derive(Debug, thiserror::Error)]
pub enum FleetError {
    /// A role could not go on.
    #[error("{role}: {error}")]
    Role {
        /// Which.
        role: String,
        /// Why.
        error: LedgerError,
    },
    /// A role has a fault of its own.
    #[error("{0} has ended by a fault of its own")]
    Fault(String),
}

/// Roles that run together.
#[derive(Clone)]
pub struct Fleet {
    /// What they work with.
    pub crew: Crew,
    /// Who they are.
    pub team: Team,
    /// What the cycle manager did.
    pub statistics: Arc<CycleStatistics>,
}

type Ended = (String, Booked<()>);

impl Fleet {
    /// A fleet that has not begun.
    pub fn new(crew: Crew, team: Team) -> Fleet {
        Fleet {
            crew,
            team,
            statistics: Arc::new(CycleStatistics::default()),
        }
    }

    /// Runs until the sign is raised or, if asked so, until nothing is left that anybody
    /// here could do. What goes on then is told to stop and waited for.
    pub async fn run(&self, mut stop: StopSign, until_settled: bool) -> Result<(), FleetError> {
        let (stopper, sign) = Stopper::new();
        let mut roles: JoinSet<Ended> = JoinSet::new();
        self.start(&mut roles, &sign);
        let settled = async {
            if until_settled {
                settled(&self.crew, sign.clone()).await
            } else {
                std::future::pending().await
            }
        };
        let mut failed = tokio::select! {
            biased;
            () = stop.raised() => None,
            ended = roles.join_next() => failure(ended),
            over = settled => over.err().map(|error| FleetError::Role {
                role: "fleet".to_owned(),
                error,
            }),
        };
        stopper.stop();
        while let Some(ended) = roles.join_next().await {
            failed = failed.or(failure(Some(ended)));
        }
        failed.map_or(Ok(()), Err)
    }

    fn start(&self, roles: &mut JoinSet<Ended>, sign: &StopSign) {
        let name = |role: &str| format!("{}{role}", self.team.prefix);
        let crew = || self.crew.clone();
        let stop = || sign.clone();
        {
            let (name, crew, stop) = (name("keeper"), crew(), stop());
            roles.spawn(async move { (name.clone(), keeper::run(&crew, &name, stop).await) });
        }
        let working = [self.team.workers, self.team.testers, self.team.docsers];
        for (role, count) in WORKING_ROLES.into_iter().zip(working) {
            for at in 1..=count {
                let worker = Worker {
                    crew: crew(),
                    name: name(&format!("{role}-{at}")),
                    role: role.to_owned(),
                    account: self.team.account.clone(),
                };
                let stop = stop();
                roles.spawn(async move { (worker.name.clone(), worker.run(stop).await) });
            }
        }
        for at in 1..=self.team.judges {
            let judge = Judge {
                crew: crew(),
                name: name(&format!("judge-{at}")),
                account: self.team.account.clone(),
            };
            let stop = stop();
            roles.spawn(async move { (judge.name.clone(), judge.run(stop).await) });
        }
        if self.team.dispatcher {
            let (name, crew, stop) = (name("dispatcher"), crew(), stop());
            roles.spawn(async move { (name.clone(), dispatcher::run(&crew, &name, stop).await) });
        }
        if self.team.cycle {
            let (name, crew, stop) = (name("cycle"), crew(), stop());
            let statistics = Arc::clone(&self.statistics);
            roles.spawn(async move {
                let ended = cycle::run(&crew, &name, &statistics, stop).await;
                (name, ended)
            });
        }
        if self.team.planner {
            let (name, crew, stop) = (name("planner"), crew(), stop());
            roles.spawn(async move { (name.clone(), planner::run(&crew, &name, stop).await) });
        }
    }
}

fn failure(ended: Option<Result<Ended, tokio::task::JoinError>>) -> Option<FleetError> {
    match ended? {
        Ok((_, Ok(()))) => None,
        Ok((role, Err(error))) => Some(FleetError::Role { role, error }),
        Err(error) => Some(FleetError::Fault(error.to_string())),
    }
}

/// Returns when nothing is left to do, or the sign is raised.
async fn settled(crew: &Crew, stop: StopSign) -> Booked<()> {
    let mut watch = Watch::new(crew, stop).await?;
    while !watch.stop.is_raised() && !is_settled(crew).await? {
        let next = crew.clock.now().plus_secs(LOOK_EVERY_SECS);
        watch.until(next).await;
    }
    Ok(())
}

/// Whether nothing is left that a fleet could do: no work goes on, none could begin, and
/// everything else has ended or waits for a person or the outside.
async fn is_settled(crew: &Crew) -> Booked<bool> {
    let book: &Book = &crew.book;
    let counts = book.counts().await?;
    let led_on = |reason: Option<Reason>| {
        !matches!(reason, Some(Reason::AwaitingJudge)) && !is_parked(State::Blocked, reason)
    };
    let moving = counts.iter().any(|count| match count.state {
        State::InProgress => true,
        State::Blocked => led_on(count.blocked_on),
        _ => false,
    });
    if moving || counts.is_empty() {
        return Ok(false);
    }
    let floor = book.floor(&WORKING_ROLES).await?;
    if !floor.ready.is_empty() && !floor.paused {
        return Ok(false);
    }
    let bench = book.bench().await?;
    let merges = bench.to_merge && bench.red_base.is_none();
    if bench.to_judge || merges || bench.next_at.is_some() {
        return Ok(false);
    }
    if let Some(red) = &bench.red_base
        && let Some(mending) = book.end_of_chain(&red.task).await?
        && !mending.state.is_terminal()
    {
        return Ok(false);
    }
    // A grace that ends by itself is something to wait for.
    let now = book.now().await?;
    let due = crew.book.ledger().next_deadline(now).await;
    Ok(due.map_err(LedgerError::from)?.is_none()
        && book
            .waits_for_dead(runner_lifecycle::Timestamp(0), 1)
            .await?
            .is_empty())
}
