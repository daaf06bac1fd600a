//! One client: it does whatever a worker, a judge, a planner, a manager or a person
//! does, in random order, and remembers what it was told.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use runner_ledger::{
    CallOutcome, ClaimRequest, ClaimedTask, Ledger, LedgerCall, LedgerClock, LedgerError,
    StoreError, TaskFilter, Watchdog,
};
use runner_lifecycle::request::{JudgeEnding, NewTask, WorkEnding};
use runner_lifecycle::row::Intent;
use runner_lifecycle::{
    BasePosition, FailureCategory, LeasePurpose, RefusalCode, Request, ReworkCause, TaskId,
    TaskState, Timestamp,
};

use crate::support::{self, id, packet, resource};

/// SplitMix64.
pub(crate) struct Rng(u64);

impl Rng {
    pub(crate) fn new(seed: u64) -> Rng {
        Rng(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}

/// Two hundred seconds in one, so that leases end during a test. It jumps and stops when
/// told to.
pub(crate) struct FastClock {
    base: i64,
    jumps: Arc<AtomicI64>,
    /// How much had passed when it was stopped; less than 0: it was not.
    stopped: Arc<AtomicI64>,
}

const SPEED: i64 = 200;

fn machine_millis() -> i64 {
    #[allow(clippy::disallowed_methods)] // A clock that is made to jump.
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    i64::try_from(since.as_millis()).unwrap()
}

impl FastClock {
    pub(crate) fn new() -> FastClock {
        FastClock::at(machine_millis())
    }

    pub(crate) fn at(base: i64) -> FastClock {
        FastClock {
            base,
            jumps: Arc::new(AtomicI64::new(0)),
            stopped: Arc::new(AtomicI64::new(-1)),
        }
    }

    pub(crate) fn base(&self) -> i64 {
        self.base
    }

    pub(crate) fn jump(&self, millis: i64) {
        self.jumps.fetch_add(millis, Ordering::SeqCst);
    }

    pub(crate) fn freeze(&self) {
        let passed = (machine_millis() - self.base) * SPEED;
        self.stopped.store(passed, Ordering::SeqCst);
    }

    /// The clock of a machine that goes a little wrong.
    pub(crate) fn skewed(&self, skew: i64) -> Arc<dyn LedgerClock> {
        Arc::new(Skewed {
            base: self.base,
            skew,
            jumps: Arc::clone(&self.jumps),
            stopped: Arc::clone(&self.stopped),
        })
    }
}

struct Skewed {
    base: i64,
    skew: i64,
    jumps: Arc<AtomicI64>,
    stopped: Arc<AtomicI64>,
}

impl LedgerClock for Skewed {
    fn now(&self) -> Timestamp {
        let passed = match self.stopped.load(Ordering::SeqCst) {
            ..0 => (machine_millis() - self.base) * SPEED,
            stopped => stopped,
        };
        let jumps = self.jumps.load(Ordering::SeqCst);
        Timestamp(support::START + passed + self.skew + jumps)
    }

    fn sleep_until(&self, at: Timestamp) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        let millis = at.millis_since(self.now()) / SPEED.unsigned_abs();
        Box::pin(tokio::time::sleep(Duration::from_millis(millis)))
    }
}

/// An event that a client was told of: it must be there for good.
#[derive(Clone, Debug)]
pub(crate) struct Ack {
    pub(crate) task: String,
    pub(crate) version: u64,
    pub(crate) reason: String,
}

/// Acknowledgements that processes left in files, one for each.
pub(crate) struct Acks;

impl Acks {
    pub(crate) fn read(folder: &Path) -> Vec<Ack> {
        let mut acks = Vec::new();
        for entry in std::fs::read_dir(folder).unwrap().flatten() {
            if !entry.file_name().to_string_lossy().starts_with("acks-") {
                continue;
            }
            for line in std::fs::read_to_string(entry.path()).unwrap().lines() {
                let words: Vec<&str> = line.split(' ').collect();
                // The last line of one that was killed may be cut off.
                if let [task, version, reason, "."] = words[..] {
                    acks.push(Ack {
                        task: task.to_owned(),
                        version: version.parse().unwrap(),
                        reason: reason.to_owned(),
                    });
                }
            }
        }
        acks
    }
}

/// What clients leave behind.
#[derive(Clone, Default)]
pub(crate) struct Shared {
    acks: Arc<Mutex<Vec<Ack>>>,
    failures: Arc<Mutex<Vec<String>>>,
    file: Option<PathBuf>,
}

impl Shared {
    pub(crate) fn to_file(path: PathBuf) -> Shared {
        Shared {
            file: Some(path),
            ..Shared::default()
        }
    }

    pub(crate) fn take(&self) -> (Vec<Ack>, Vec<String>) {
        let acks = std::mem::take(&mut *self.acks.lock().unwrap());
        (acks, std::mem::take(&mut *self.failures.lock().unwrap()))
    }

    fn acknowledge(&self, outcome: &CallOutcome) {
        let acks = outcome.events.iter().map(|event| Ack {
            task: event.task_id.to_string(),
            version: event.version,
            reason: event.reason.clone(),
        });
        let Some(path) = &self.file else {
            self.acks.lock().unwrap().extend(acks);
            return;
        };
        let line = |ack: Ack| format!("{} {} {} .\n", ack.task, ack.version, ack.reason);
        let lines = acks.map(line).collect::<Vec<_>>().concat();
        let mut file = std::fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(path)
            .unwrap();
        file.write_all(lines.as_bytes()).unwrap();
    }

    fn fail(&self, words: String) {
        self.failures.lock().unwrap().push(words);
    }
}

const SCOPES: [&str; 10] = [
    "src",
    "src/a",
    "src/a/x",
    "src/b",
    "docs",
    "docs/guide",
    "tests",
    "tests/a",
    "tools",
    "srcs",
];
const TASKS_EACH: u64 = 3;

pub(crate) struct Client {
    ledger: Ledger,
    name: String,
    rng: Rng,
    shared: Shared,
    held: Option<ClaimedTask>,
    /// Claims that it gave up: their tokens must be worth nothing, or still be its own.
    given_up: Vec<ClaimedTask>,
    made: u64,
    keys: u64,
    /// Whether it is one of the few that watch; each has a connection of its own.
    watches: bool,
    watchdog: Option<Watchdog>,
}

impl Client {
    pub(crate) fn new(ledger: Ledger, name: &str, seed: u64, shared: Shared) -> Client {
        Client {
            ledger,
            name: name.to_owned(),
            rng: Rng::new(seed),
            watches: seed.is_multiple_of(10),
            watchdog: None,
            shared,
            held: None,
            given_up: Vec::new(),
            made: 0,
            keys: 0,
        }
    }

    pub(crate) async fn run(mut self, stop: Arc<AtomicBool>) {
        while !stop.load(Ordering::SeqCst) {
            if let Some(claimed) = self.held.take() {
                self.hold(claimed).await;
                continue;
            }
            match self.rng.below(100) {
                0..40 => self.claim().await,
                40..52 => self.judge().await,
                52..64 => self.merge().await,
                64..76 => self.create().await,
                76..84 if self.watches => self.look().await,
                76..94 => self.manage().await,
                94..97 => self.meddle().await,
                _ => self.write_stale().await,
            }
        }
    }

    /// Asks, and asks again while the store cannot be reached: the first one may have
    /// been written.
    async fn ask(&mut self, ask: &LedgerCall) -> Option<CallOutcome> {
        for _ in 0..200 {
            match self.ledger.call(ask).await {
                Ok(outcome) => {
                    self.shared.acknowledge(&outcome);
                    return Some(outcome);
                }
                Err(error) if error.is_transient() => {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
                Err(error) => {
                    self.note(&error);
                    return None;
                }
            }
        }
        None
    }

    /// Most refusals are what clients in each other's way get. Some can only be a fault.
    fn note(&self, error: &LedgerError) {
        let wrong = match error {
            LedgerError::Refused(refusal) => matches!(
                refusal.code,
                RefusalCode::LedgerInconsistent
                    | RefusalCode::SchemaInvalid
                    | RefusalCode::AcceptanceFailed
            ),
            LedgerError::Store(StoreError::Unavailable(_) | StoreError::Contention(_)) => false,
            LedgerError::Store(_) => true,
        };
        if wrong {
            self.shared.fail(format!("{}: {error}", self.name));
        }
    }

    async fn next(&mut self, purpose: LeasePurpose) -> Option<ClaimedTask> {
        // Sometimes the same claim again, as after a lost acknowledgement.
        if !self.rng.chance(15) {
            self.keys += 1;
        }
        let claim_request = ClaimRequest {
            purpose,
            base: (purpose == LeasePurpose::Merge).then(|| "main".to_owned()),
            ..ClaimRequest::work(
                &self.name,
                "worker",
                &format!("{}-{}", self.name, self.keys),
            )
        };
        match self.ledger.claim_next(&claim_request).await {
            Ok(claimed) => claimed,
            Err(error) => {
                self.note(&error);
                None
            }
        }
    }

    async fn claim(&mut self) {
        self.held = self.next(LeasePurpose::Work).await;
    }

    async fn hold(&mut self, claimed: ClaimedTask) {
        match self.rng.below(100) {
            0..45 => {
                let ask = support::heartbeat(&claimed, &self.name);
                if self.ask(&ask).await.is_some() {
                    self.held = Some(claimed);
                }
            }
            45..90 => self.finish(&claimed).await,
            _ => self.given_up.push(claimed),
        }
    }

    async fn finish(&mut self, claimed: &ClaimedTask) {
        let ending = match self.rng.below(20) {
            0..13 => support::success(claimed.task.id.as_str(), &claimed.run_id),
            13..15 => WorkEnding::Failed {
                category: FailureCategory::Env,
                signature: None,
                note: "no network".to_owned(),
            },
            15 => WorkEnding::Failed {
                category: FailureCategory::Test,
                signature: Some("assert".to_owned()),
                note: "red".to_owned(),
            },
            16 => WorkEnding::Blocked {
                code: RefusalCode::ConcurrencyConflict,
                reason: "somebody else".to_owned(),
                waits_for: None,
            },
            17 => WorkEnding::Quota {
                reset_at: None,
                account: "main".to_owned(),
            },
            18 => WorkEnding::GivenBack,
            _ => WorkEnding::Lost,
        };
        let ask = support::finish(claimed, &self.name, ending);
        let Some(first) = self.ask(&ask).await else {
            return;
        };
        if self.rng.chance(30)
            && let Some(again) = self.ask(&ask).await
            && (!again.replayed || again.answer != first.answer)
        {
            let words = format!("{} said {first:?}, then {again:?}", claimed.task.id);
            self.shared.fail(words);
        }
    }

    async fn judge(&mut self) {
        let Some(claimed) = self.next(LeasePurpose::Judge).await else {
            return;
        };
        let reason = "so it is".to_owned();
        let ending = match self.rng.below(10) {
            0..7 => JudgeEnding::Approve {
                packet: packet(claimed.task.id.as_str(), &claimed.run_id),
            },
            7 => JudgeEnding::Reject {
                cause: ReworkCause::Verdict,
                remarks: Vec::new(),
                reason,
            },
            8 => JudgeEnding::Unable { reason },
            _ => JudgeEnding::StepBack { reason },
        };
        if self.rng.chance(90) {
            let token = claimed.token;
            let request = Request::Judge { token, ending };
            self.ask(&LedgerCall::new(
                claimed.task.id.clone(),
                &self.name,
                request,
            ))
            .await;
        }
    }

    async fn merge(&mut self) {
        let Some(claimed) = self.next(LeasePurpose::Merge).await else {
            return;
        };
        let (task, token) = (claimed.task.id.clone(), claimed.token);
        let intent = if let Some(open) = &claimed.task.intent {
            open.clone()
        } else {
            let intent = Intent {
                old_base: "old".to_owned(),
                merge_commit: format!("m-{task}"),
            };
            let request = Request::RecordIntent {
                token,
                intent: intent.clone(),
                packet: packet(task.as_str(), &claimed.run_id),
            };
            if self
                .ask(&LedgerCall::new(task.clone(), &self.name, request))
                .await
                .is_none()
            {
                return;
            }
            intent
        };
        if self.rng.chance(15) {
            return; // cut off between the intent and its end
        }
        let base = if self.rng.chance(80) {
            BasePosition::Merged
        } else {
            BasePosition::Elsewhere
        };
        let request = Request::SettleIntent {
            token,
            intent,
            base,
        };
        self.ask(&LedgerCall::new(task, &self.name, request)).await;
    }

    async fn create(&mut self) {
        if self.made >= TASKS_EACH {
            return;
        }
        self.made += 1;
        let name = format!("{}-t{}", self.name, self.made);
        let scope = SCOPES[usize::try_from(self.rng.below(SCOPES.len() as u64)).unwrap()];
        let mut new = NewTask::new(id(&name), resource(scope));
        new.expects_change = self.rng.chance(60);
        new.timeout_seconds = 60;
        new.heartbeat_interval_seconds = 20;
        if self.rng.chance(30) {
            new.dependencies = self.some_task().await.into_iter().map(|t| t.0).collect();
        }
        let ask = support::create(new).named(&format!("make-{name}"));
        self.ask(&ask).await;
    }

    async fn some_task(&mut self) -> Option<(TaskId, TaskState)> {
        let start = ["0", "c1", "c2", "c5", "c9", "p1", "p2", "p5"];
        let after = start[usize::try_from(self.rng.below(start.len() as u64)).unwrap()];
        let filter = TaskFilter {
            after: Some(id(after)),
            limit: 20,
            ..TaskFilter::default()
        };
        let tasks = self.ledger.tasks(&filter).await.ok()?;
        let at = self.rng.below((tasks.len() as u64).max(1));
        let task = tasks.get(usize::try_from(at).unwrap())?;
        Some((task.id.clone(), task.state))
    }

    async fn look(&mut self) {
        if self.watchdog.is_none() {
            self.watchdog = Watchdog::new(self.ledger.clone(), &self.name).await.ok();
        }
        if let Some(watchdog) = &mut self.watchdog
            && let Err(error) = watchdog.look().await
        {
            self.note(&error);
        }
    }

    /// What a cycle manager does with one blocked task.
    async fn manage(&mut self) {
        let filter = TaskFilter {
            state: Some(TaskState::Blocked),
            limit: 50,
            ..TaskFilter::default()
        };
        let Ok(tasks) = self.ledger.tasks(&filter).await else {
            return;
        };
        if tasks.is_empty() {
            return;
        }
        let task = &tasks[usize::try_from(self.rng.below(tasks.len() as u64)).unwrap()];
        self.keys += 1;
        let successor = Some(id(&format!("{}-s{}", self.name, self.keys)));
        let packet = None;
        let request = Request::Recover { packet, successor };
        self.ask(&LedgerCall::new(task.id.clone(), &self.name, request))
            .await;
    }

    /// What a person may do at any time.
    async fn meddle(&mut self) {
        let Some((task, state)) = self.some_task().await else {
            return;
        };
        self.keys += 1;
        let request = match self.rng.below(4) {
            0 => Request::Cancel {
                reason: "no longer".to_owned(),
            },
            1 if state.is_terminal() => Request::Retry {
                successor: id(&format!("{}-r{}", self.name, self.keys)),
            },
            2 => Request::Pause { paused: true },
            _ => Request::Pause { paused: false },
        };
        let name = format!("meddle-{}-{}", self.name, self.keys);
        self.ask(&LedgerCall::new(task, &self.name, request).named(&name))
            .await;
    }

    /// Writes with a token that it gave up: if the lease is still its own this is fine,
    /// and if not it must be refused.
    async fn write_stale(&mut self) {
        let Some(claimed) = self.given_up.pop() else {
            return;
        };
        let current = self.ledger.lease(&claimed.task.id).await;
        let beat = support::heartbeat(&claimed, &self.name);
        let Ok(outcome) = self.ledger.call(&beat).await else {
            return;
        };
        // It was accepted, so the lease was its own all the time.
        if let Ok(Some(lease)) = current
            && lease.token > claimed.token
        {
            self.shared
                .fail(format!("a stale token was accepted: {outcome:?}"));
        }
    }
}
