//! Why a task is where it is, in words: its dependency and the chain behind it, whoever
//! holds its lock and until when, the clock it waits for.

use runner_ledger::{DispatchView, FleetAgent, Ledger, LedgerError};
use runner_lifecycle::ready::NotReady;
use runner_lifecycle::row::Blocker;
use runner_lifecycle::run::Lease;
use runner_lifecycle::{BlockReason, LeasePurpose, Task, TaskId, TaskState, Timestamp, order};
use serde::Serialize;

use crate::roles::planner::is_parked;
use crate::rules::summary::{SummaryInput, summary};

/// How far a chain of tasks that wait for each other is followed.
const MAX_CHAIN: usize = 20;

/// The roles that work.
pub const EXECUTION_ROLES: [&str; 3] = ["worker", "tester", "docser"];

/// Why a task does not move, or that it does.
#[derive(Clone, Debug, Serialize)]
pub struct TaskExplanation {
    /// The task.
    pub task_id: TaskId,
    /// Its state.
    pub state: TaskState,
    /// The reason in a word: of the ledger's blockers, of readiness, or the state.
    pub why: String,
    /// The same for people.
    pub words: String,
    /// When that ends by itself, if a clock decides it.
    pub until: Option<Timestamp>,
    /// The task that it waits for.
    pub waits_for: Option<TaskId>,
}

/// What a whole fleet looks like at one moment; explanations are read from it.
pub struct FleetSnapshot {
    ledger: Ledger,
    /// Whether nothing new may start.
    pub paused: bool,
    /// The agents that have not left.
    pub agents: Vec<FleetAgent>,
    /// Work, judgements and merges that go on.
    pub leases: Vec<Lease>,
    dispatch_view: DispatchView,
}

impl FleetSnapshot {
    /// Looks.
    pub async fn of(ledger: &Ledger) -> Result<FleetSnapshot, LedgerError> {
        Ok(FleetSnapshot {
            ledger: ledger.clone(),
            paused: ledger.is_paused().await?,
            agents: present(ledger.agents().await?),
            leases: ledger.leases().await?,
            dispatch_view: ledger.dispatch_view(&EXECUTION_ROLES).await?,
        })
    }

    /// When this was.
    pub fn now(&self) -> Timestamp {
        self.dispatch_view.now
    }

    /// The lease of a task.
    pub fn lease(&self, id: &TaskId) -> Option<&Lease> {
        self.leases.iter().find(|lease| lease.task_id == *id)
    }

    /// Why a task does not move, then why the one that it waits for does not, and so on.
    pub async fn chain(&self, task: &Task) -> Result<Vec<TaskExplanation>, LedgerError> {
        let mut chain = vec![self.explain(task).await?];
        while chain.len() < MAX_CHAIN {
            let next = chain.last().and_then(|last| last.waits_for.clone());
            let Some(next) = next.filter(|id| !chain.iter().any(|one| one.task_id == *id)) else {
                break;
            };
            let Some(task) = self.newest(&next).await? else {
                break;
            };
            if chain.iter().any(|one| one.task_id == task.id) {
                break;
            }
            chain.push(self.explain(&task).await?);
        }
        Ok(chain)
    }

    /// The task, or the last of those that succeed it.
    async fn newest(&self, id: &TaskId) -> Result<Option<Task>, LedgerError> {
        let mut task = self.ledger.task(id).await?;
        while let Some(next) = task.as_ref().and_then(|task| task.superseded_by.clone()) {
            task = self.ledger.task(&next).await?;
        }
        Ok(task)
    }

    /// Why one task does not move.
    pub async fn explain(&self, task: &Task) -> Result<TaskExplanation, LedgerError> {
        let explained = |why: &str, words: String| TaskExplanation {
            task_id: task.id.clone(),
            state: task.state,
            why: why.to_owned(),
            words,
            until: None,
            waits_for: None,
        };
        Ok(match task.state {
            TaskState::Done | TaskState::Failed | TaskState::Canceled => TaskExplanation {
                waits_for: task.superseded_by.clone(),
                ..explained(task.state.as_str(), sentence(&self.ledger, task).await?)
            },
            TaskState::InProgress => {
                self.in_progress(task, explained("in_progress", String::new()))
            }
            TaskState::Blocked => match &task.blocker {
                Some(blocker) => self.blocked(
                    task,
                    blocker,
                    explained(blocker.code.as_str(), String::new()),
                ),
                None => explained("blocked", "nobody said why".to_owned()),
            },
            TaskState::Todo => match self.ledger.why(&task.id).await? {
                Some(not_ready) => self.not_ready(&not_ready, task, explained("", String::new())),
                None => self.ready(task, explained("ready", String::new())),
            },
        })
    }

    fn in_progress(&self, task: &Task, explained: TaskExplanation) -> TaskExplanation {
        let Some(lease) = self.lease(&task.id) else {
            return TaskExplanation {
                words: "somebody works on it, and no lease says who".to_owned(),
                ..explained
            };
        };
        let doing = match lease.purpose {
            LeasePurpose::Work => "works on it",
            LeasePurpose::Judge => "judges it",
            LeasePurpose::Merge => "merges it",
        };
        let since = ago(lease.claimed_at, self.now());
        TaskExplanation {
            words: format!("{} {doing} since {since}", lease.owner),
            until: Some(lease.ends_at),
            ..explained
        }
    }

    fn blocked(
        &self,
        task: &Task,
        blocker: &Blocker,
        explained: TaskExplanation,
    ) -> TaskExplanation {
        let words = match blocker.code {
            BlockReason::AwaitingJudge if task.intent.is_some() => {
                "its merge is under way: the next judge goes on with it".to_owned()
            }
            BlockReason::AwaitingJudge if blocker.retry_at.is_none() => {
                let judges = self.live(&["judge"]);
                match judges {
                    0 => format!("{}; no judge is there", blocker.reason),
                    _ => blocker.reason.clone(),
                }
            }
            BlockReason::QuotaWait => {
                let account = blocker.waits_for.as_deref().unwrap_or_default();
                format!("the quota of the account {account:?} is used up")
            }
            _ => blocker.reason.clone(),
        };
        let dependency =
            (blocker.code == BlockReason::DependencyNotMet).then_some(&blocker.waits_for);
        TaskExplanation {
            words,
            until: blocker.retry_at,
            waits_for: dependency
                .and_then(Option::as_deref)
                .and_then(|id| TaskId::parse(id).ok()),
            ..explained
        }
    }

    fn not_ready(
        &self,
        not_ready: &NotReady,
        task: &Task,
        explained: TaskExplanation,
    ) -> TaskExplanation {
        let words = not_ready.refusal(task).reason;
        let explained = TaskExplanation {
            why: not_ready.word().to_owned(),
            ..explained
        };
        match not_ready {
            NotReady::Lock(lock) => {
                let holder = self.lease(&lock.task_id);
                let owner = holder.map(|lease| format!(", where {} works", lease.owner));
                TaskExplanation {
                    words: format!("{words}{}", owner.unwrap_or_default()),
                    until: holder.map(|lease| lease.ends_at),
                    waits_for: Some(lock.task_id.clone()),
                    ..explained
                }
            }
            NotReady::Dependency(other)
            | NotReady::DeadDependency(other)
            | NotReady::Unmerged(other)
            | NotReady::Reserved(other) => TaskExplanation {
                words,
                waits_for: Some(other.clone()),
                ..explained
            },
            NotReady::RetryAt(at) | NotReady::Budget(at) => TaskExplanation {
                words,
                until: Some(*at),
                ..explained
            },
            NotReady::State(_) | NotReady::Paused | NotReady::FleetPaused | NotReady::LaneFull => {
                TaskExplanation { words, ..explained }
            }
        }
    }

    /// Nothing of the task's own is in the way: then it is the base, an agent, a lane or an
    /// account.
    fn ready(&self, task: &Task, explained: TaskExplanation) -> TaskExplanation {
        if let Some(red) = &self.dispatch_view.red_base
            && !task.fixes_base()
        {
            return TaskExplanation {
                why: "red_base".to_owned(),
                words: "the guard is red on the base: what fixes it begins first, unless \
                        `--on-red-base work` was said"
                    .to_owned(),
                waits_for: Some(red.task.clone()),
                ..explained
            };
        }
        let of_role = || self.agents.iter().filter(|a| a.role == task.role);
        let live = || of_role().filter(|agent| !agent.is_offline(self.now()));
        let in_lane = self.dispatch_view.busy.iter().filter(|busy| {
            busy.purpose == LeasePurpose::Work && busy.lane == task.lane && busy.task_id != task.id
        });
        let lane_is_full =
            order::lane_limit(task.lane).is_some_and(|limit| in_lane.count() >= limit);
        let narrow = live().find_map(|agent| {
            let account = self.dispatch_view.accounts.get(&agent.account)?;
            Some((agent.account.clone(), account.reset_at))
        });
        let (why, words, until) = if live().next().is_none() {
            let words = match of_role().count() {
                0 => format!(
                    "no agent of the role {} is there: `runner fleet up` starts them",
                    task.role
                ),
                _ => format!("every agent of the role {} is away", task.role),
            };
            ("no_agent", words, None)
        } else if lane_is_full {
            let words = format!("the lane {} is full", task.lane);
            ("lane_full", words, None)
        } else if let Some((account, reset_at)) = narrow {
            let words = format!(
                "tasks wait for the quota of the account {account:?}, so it gets one at a time"
            );
            ("quota", words, reset_at)
        } else if live().all(|agent| agent.works_on.is_some()) {
            let words = format!("every agent of the role {} is busy", task.role);
            ("busy", words, None)
        } else {
            ("ready", "it can start now".to_owned(), None)
        };
        TaskExplanation {
            why: why.to_owned(),
            words,
            until,
            ..explained
        }
    }

    fn live(&self, roles: &[&str]) -> usize {
        let live = self
            .agents
            .iter()
            .filter(|agent| roles.contains(&agent.role.as_str()) && !agent.is_offline(self.now()));
        live.count()
    }
}

fn present(mut agents: Vec<FleetAgent>) -> Vec<FleetAgent> {
    agents.retain(|agent| agent.left_at.is_none());
    agents
}

/// What happened to a task, in one sentence.
pub async fn sentence(ledger: &Ledger, task: &Task) -> Result<String, LedgerError> {
    let runs = ledger.runs(&task.id).await?;
    let events = ledger.events(&task.id).await?;
    let successors = successors(ledger, task).await?;
    Ok(summary(&SummaryInput {
        task,
        runs: &runs,
        events: &events,
        successors: &successors,
        parked: is_parked(task.state, task.blocked_on()),
    }))
}

/// Why a task ends that a person calls off: by itself, or with its issue or pull request.
const CALLED_OFF: [&str; 3] = ["canceled", "issue_closed", "pull_request_closed"];

/// Whether a task was canceled because nobody wants it any more, not because the fleet gave up.
pub async fn is_called_off(ledger: &Ledger, task: &Task) -> Result<bool, LedgerError> {
    if task.state != TaskState::Canceled {
        return Ok(false);
    }
    let events = ledger.events(&task.id).await?;
    let last = events.last().map(|event| event.reason.as_str());
    Ok(last.is_some_and(|reason| CALLED_OFF.contains(&reason)))
}

/// Those that came after a task, along `superseded_by`.
pub async fn successors(ledger: &Ledger, task: &Task) -> Result<Vec<Task>, LedgerError> {
    let mut chain: Vec<Task> = Vec::new();
    let mut next = task.superseded_by.clone();
    while let Some(id) = next.take() {
        if let Some(task) = ledger.task(&id).await? {
            next.clone_from(&task.superseded_by);
            chain.push(task);
        }
    }
    Ok(chain)
}

/// How long ago, for people.
fn ago(at: Timestamp, now: Timestamp) -> String {
    let secs = now.millis_since(at) / 1000;
    match secs {
        0..=119 => format!("{secs} s"),
        120..=7199 => format!("{} min", secs / 60),
        _ => format!("{} h", secs / 3600),
    }
}
