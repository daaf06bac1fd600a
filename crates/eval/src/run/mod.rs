//! `eval run`: many runs, some at a time, each in a workspace of its own.

mod one;
mod set;
mod tools;

use std::collections::VecDeque;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use runner::{Error, ErrorCode, Result, WallClock};
use runner_core::config::Config;
use runner_exec::{Cancel, Supervisor};
use serde_json::Value;

use crate::case::{CaseLibrary, CaseOverrides, EvalCase, executor_of_file};
use crate::child::ChildContext;
use crate::folders::EvalFolders;
use crate::record::EvalRecord;
use one::{EvalJob, EvalShared, JobConfig};
pub use set::SetRecord;

/// How often progress is asked for while nothing happens.
const TICK: Duration = Duration::from_millis(200);

/// What the caller asks for.
#[derive(Clone, Debug, Default)]
pub struct RunOptions {
    /// Names of cases; none means all.
    pub cases: Vec<String>,
    /// Runs of each case.
    pub runs: u32,
    /// How many at a time.
    pub jobs: u32,
    /// `[executor]` in place of those of the cases.
    pub executor: Option<toml::Table>,
    /// The runner to drive; this binary without it.
    pub runner: Option<PathBuf>,
    /// What all runs together may cost.
    pub max_cost_usd: Option<f64>,
    /// INSTRUCTIONS.md of every workspace; the project's own without it.
    pub instructions: Option<PathBuf>,
    /// A name for the set.
    pub label: Option<String>,
    /// Take up the newest set that was not finished.
    pub resume: bool,
}

/// What happens, as it happens.
#[derive(Clone, Debug)]
pub enum EvalProgress {
    /// The runs are about to begin.
    Begun {
        /// The set.
        set: Box<SetRecord>,
        /// Runs to be made now.
        jobs: u32,
        /// Runs that were made before, in a set that is taken up again.
        done: u32,
    },
    /// A case is left out: this program is missing.
    Skipped {
        /// The case.
        case: String,
        /// The program.
        tool: String,
    },
    /// A run begins.
    Started {
        /// The case.
        case: String,
        /// The run.
        run: String,
        /// The most iterations that it may have.
        max_iterations: u32,
    },
    /// An iteration of a run is recorded.
    Step {
        /// The case.
        case: String,
        /// The run.
        run: String,
        /// The iteration.
        iter: u32,
        /// Its node.
        node: String,
        /// `ok`, `agent_error`, …
        class: String,
    },
    /// A run waits before it tries again.
    Waiting {
        /// The case.
        case: String,
        /// The run.
        run: String,
        /// How long.
        secs: u64,
        /// Why.
        why: String,
    },
    /// A run is recorded.
    Finished(Box<EvalRecord>),
    /// A run could not be recorded.
    Lost {
        /// The case.
        case: String,
        /// The run.
        run: String,
        /// Why.
        why: String,
    },
}

impl EvalProgress {
    /// What a line of `loop --json` tells.
    fn of_line(case: &str, run: &str, line: &Value) -> Option<Self> {
        let (case, run) = (case.to_owned(), run.to_owned());
        let text = |key: &str| line[key].as_str().unwrap_or_default().to_owned();
        match line["event"].as_str()? {
            "step" => Some(EvalProgress::Step {
                case,
                run,
                iter: u32::try_from(line["iter"].as_u64()?).ok()?,
                node: text("node_id"),
                class: text("class"),
            }),
            "waiting" => Some(EvalProgress::Waiting {
                case,
                run,
                secs: line["secs"].as_u64()?,
                why: text("why"),
            }),
            _ => None,
        }
    }
}

/// Who watches.
pub trait EvalWatcher {
    /// Something happened.
    fn progress(&mut self, progress: EvalProgress);

    /// Called a few times a second.
    fn tick(&mut self) {}
}

/// What all of it came to.
#[derive(Clone, Debug)]
pub struct EvalRunReport {
    /// The set.
    pub set: SetRecord,
    /// What was recorded by this call.
    pub records: Vec<EvalRecord>,
    /// Cases that were left out, with the missing program.
    pub skipped: Vec<(String, String)>,
    /// Runs that could not be recorded.
    pub lost: u32,
    /// Runs that were not begun, because the money was used up.
    pub unaffordable: u32,
    /// Whether a signal ended it.
    pub interrupted: bool,
}

impl EvalRunReport {
    /// Whether everything came to what it should.
    pub fn is_expected(&self) -> bool {
        self.lost == 0
            && self.unaffordable == 0
            && !self.interrupted
            && self.records.iter().all(EvalRecord::is_expected)
    }
}

/// What a call needs from the world around it.
pub struct EvalContext<'w> {
    /// The clock.
    pub clock: &'w (dyn WallClock + Sync),
    /// Ends what is going on.
    pub cancel: &'w Cancel,
    /// Starts children.
    pub supervisor: &'w Supervisor,
}

/// Makes the runs.
pub fn run(
    folders: &EvalFolders,
    options: &RunOptions,
    context: &EvalContext<'_>,
    watcher: &mut dyn EvalWatcher,
) -> Result<EvalRunReport> {
    let library = CaseLibrary::load(&folders.cases)?;
    let (mut set, cases) = if options.resume {
        resume(folders, options, &library)?
    } else {
        begin(folders, options, &library, context)?
    };
    let overrides = CaseOverrides {
        executor: set
            .record
            .executor
            .as_deref()
            .and_then(|it| it.parse().ok()),
        project_executor: set
            .record
            .project_executor
            .as_deref()
            .and_then(|it| it.parse().ok()),
    };
    let mut report = EvalRunReport {
        set: set.record.clone(),
        records: Vec::new(),
        skipped: Vec::new(),
        lost: 0,
        unaffordable: 0,
        interrupted: false,
    };
    let mut queue = VecDeque::new();
    let mut done = 0;
    for case in cases {
        let (_, config) = case.settings.resolve(&overrides)?;
        if let Some(tool) = tools::missing(&case, &config) {
            report.skipped.push((case.id.clone(), tool));
            continue;
        }
        if set.record.max_cost_usd.is_some() {
            refuse_unknown_cost(&case, &config)?;
        }
        for number in 1..=set.record.runs {
            let run = format!("{}-{number:02}", set.record.set);
            let meta = folders.results_of(&case.id).join(&run).join("meta.json");
            if meta.is_file() {
                done += 1;
            } else {
                queue.push_back(EvalJob {
                    case: case.clone(),
                    number,
                    run,
                });
            }
        }
    }
    let argv = runner_argv(set.record.runner.as_deref())?;
    let version = runner_version(&argv, folders, context)?;
    watcher.progress(EvalProgress::Begun {
        set: Box::new(set.record.clone()),
        jobs: u32::try_from(queue.len()).unwrap_or(u32::MAX),
        done,
    });
    for (case, tool) in &report.skipped {
        watcher.progress(EvalProgress::Skipped {
            case: case.clone(),
            tool: tool.clone(),
        });
    }
    let record = set.record.clone();
    let shared = EvalShared {
        folders,
        set: &record.set,
        label: record.label.as_deref(),
        instructions: record.instructions.as_deref(),
        runner: &argv,
        runner_version: &version,
        supervisor: context.supervisor,
        cancel: context.cancel,
        clock: context.clock,
    };
    let money = Money {
        limit: record.max_cost_usd,
        spent: Mutex::new(spent_before(folders, &record)),
    };
    let jobs = options.jobs.max(1);
    work(
        queue,
        jobs,
        &shared,
        &overrides,
        &money,
        watcher,
        &mut report,
    );
    report.interrupted = context.cancel.is_cancelled();
    if report.lost == 0 && report.unaffordable == 0 && !report.interrupted {
        set.finish()?;
    }
    report.set = set.record.clone();
    Ok(report)
}

fn begin(
    folders: &EvalFolders,
    options: &RunOptions,
    library: &CaseLibrary,
    context: &EvalContext<'_>,
) -> Result<(set::OpenSet, Vec<EvalCase>)> {
    let cases = library.named(&options.cases)?;
    let read = |path: &Path| std::fs::read_to_string(path);
    let instructions = match &options.instructions {
        Some(path) => Some(read(path).map_err(|error| {
            Error::new(
                ErrorCode::Config,
                format!("--instructions {}: {error}", path.display()),
            )
        })?),
        None => read(&folders.project.join(runner_core::paths::INSTRUCTIONS)).ok(),
    };
    let instructions = instructions.filter(|text| !text.trim().is_empty());
    let project = read(&folders.project.join(runner_core::paths::CONFIG)).ok();
    let record = SetRecord {
        schema_version: 0,
        set: String::new(),
        label: options.label.clone(),
        started_at: String::new(),
        cases: cases
            .iter()
            .map(|case| (case.id.clone(), case.hash.clone()))
            .collect(),
        runs: options.runs.max(1),
        executor: options.executor.as_ref().map(ToString::to_string),
        project_executor: project
            .as_deref()
            .and_then(executor_of_file)
            .map(|table| table.to_string()),
        instructions,
        runner: options
            .runner
            .as_ref()
            .map(std::path::absolute)
            .transpose()?,
        max_cost_usd: options.max_cost_usd,
        finished: false,
    };
    // What cannot be resolved shall not become a set that waits for being taken up again.
    let overrides = CaseOverrides {
        executor: options.executor.clone(),
        project_executor: project.as_deref().and_then(executor_of_file),
    };
    for case in &cases {
        case.settings.resolve(&overrides)?;
    }
    runner_argv(record.runner.as_deref())?;
    Ok((set::OpenSet::begin(folders, record, context.clock)?, cases))
}

fn resume(
    folders: &EvalFolders,
    options: &RunOptions,
    library: &CaseLibrary,
) -> Result<(set::OpenSet, Vec<EvalCase>)> {
    let mut set = set::OpenSet::unfinished(folders)?;
    let names: Vec<String> = set.record.cases.iter().map(|(id, _)| id.clone()).collect();
    let cases = library.named(&names)?;
    for (case, (id, hash)) in cases.iter().zip(&set.record.cases) {
        if case.hash != *hash {
            return Err(Error::new(
                ErrorCode::Mismatch,
                format!(
                    "the case {id} has changed since the set {} began: its runs would not be alike",
                    set.record.set
                ),
            )
            .hint(
                "bring the case file back as it was, or begin a new set with `runner eval run`",
            ));
        }
    }
    if options.max_cost_usd.is_some() {
        set.record.max_cost_usd = options.max_cost_usd;
        set.write()?;
    }
    Ok((set, cases))
}

/// What may still be spent.
struct Money {
    limit: Option<f64>,
    spent: Mutex<f64>,
}

impl Money {
    fn left(&self) -> Option<f64> {
        let spent = *self.spent.lock().unwrap_or_else(PoisonError::into_inner);
        self.limit.map(|limit| limit - spent)
    }

    fn spend(&self, record: &EvalRecord) {
        let mut spent = self.spent.lock().unwrap_or_else(PoisonError::into_inner);
        *spent += record.cost_usd.unwrap_or(0.0);
    }
}

fn spent_before(folders: &EvalFolders, set: &SetRecord) -> f64 {
    let records = crate::record::EvalRecords::read(&folders.results, None).unwrap_or_default();
    let of_set = records.all.iter().filter(|it| it.set == set.set);
    of_set.filter_map(|it| it.cost_usd).sum()
}

/// Whether an agent tells its cost, by itself or by a table of prices.
fn tells_cost(config: &Config) -> bool {
    let backend = runner_agents::backend(config.executor.backend);
    let priced = config.prices.contains_key(&config.executor.model);
    backend.reports_cost() || backend.reports_tokens() && priced
}

fn refuse_unknown_cost(case: &EvalCase, config: &Config) -> Result<()> {
    // A command tells what it costs, if it costs anything, while it runs.
    if tells_cost(config) || config.executor.backend == runner_core::config::BackendKind::Command {
        return Ok(());
    }
    Err(Error::new(
        ErrorCode::Config,
        format!(
            "--max-cost cannot be kept for the case {}: what {} costs is not known",
            case.id, config.executor.backend
        ),
    )
    .hint("name a model, and its prices in [config.prices] of the case"))
}

fn job_config(job: &EvalJob, overrides: &CaseOverrides, left: Option<f64>) -> Result<JobConfig> {
    let (text, mut config) = job.case.settings.resolve(overrides)?;
    let mut written = text.clone();
    if let Some(left) = left.filter(|_| tells_cost(&config)) {
        let own = config.budget.max_cost_usd;
        let budget = if own > 0.0 { own.min(left) } else { left };
        config.budget.max_cost_usd = budget;
        let mut table: toml::Table = text.parse().unwrap_or_default();
        let entry = table
            .entry("budget")
            .or_insert_with(|| toml::Value::Table(toml::Table::new()));
        if let toml::Value::Table(entry) = entry {
            entry.insert("max_cost_usd".to_owned(), toml::Value::Float(budget));
        }
        written = table.to_string();
    }
    Ok(JobConfig {
        text,
        written,
        config,
    })
}

/// What a worker says to the one who watches.
enum Said {
    Progress(EvalProgress),
    Unaffordable,
}

fn work(
    queue: VecDeque<EvalJob>,
    jobs: u32,
    shared: &EvalShared<'_>,
    overrides: &CaseOverrides,
    money: &Money,
    watcher: &mut dyn EvalWatcher,
    report: &mut EvalRunReport,
) {
    let queue = Mutex::new(queue);
    let (sender, receiver) = mpsc::channel();
    std::thread::scope(|scope| {
        for _ in 0..jobs {
            let sender = sender.clone();
            let queue = &queue;
            scope.spawn(move || worker(queue, shared, overrides, money, &sender));
        }
        drop(sender);
        loop {
            match receiver.recv_timeout(TICK) {
                Ok(Said::Unaffordable) => report.unaffordable += 1,
                Ok(Said::Progress(progress)) => {
                    match &progress {
                        EvalProgress::Finished(record) => report.records.push((**record).clone()),
                        EvalProgress::Lost { .. } => report.lost += 1,
                        _ => {}
                    }
                    watcher.progress(progress);
                }
                Err(RecvTimeoutError::Timeout) => watcher.tick(),
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
    });
}

fn worker(
    queue: &Mutex<VecDeque<EvalJob>>,
    shared: &EvalShared<'_>,
    overrides: &CaseOverrides,
    money: &Money,
    sender: &mpsc::Sender<Said>,
) {
    // Nobody listens any more only when the whole call is over.
    let tell = |progress: EvalProgress| drop(sender.send(Said::Progress(progress)));
    while !shared.cancel.is_cancelled() {
        let next = queue
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .pop_front();
        let Some(job) = next else {
            return;
        };
        let left = money.left();
        if left.is_some_and(|left| left <= 0.0) {
            let _ = sender.send(Said::Unaffordable);
            continue;
        }
        let result = job_config(&job, overrides, left).and_then(|config| {
            tell(EvalProgress::Started {
                case: job.case.id.clone(),
                run: job.run.clone(),
                max_iterations: config.config.max_iterations,
            });
            one::run(&job, &config, shared, &tell)
        });
        match result {
            Ok(record) => {
                money.spend(&record);
                tell(EvalProgress::Finished(Box::new(record)));
            }
            Err(error) if error.code == ErrorCode::Interrupted => return,
            Err(error) => tell(EvalProgress::Lost {
                case: job.case.id.clone(),
                run: job.run.clone(),
                why: error.message,
            }),
        }
    }
}

/// How the runner is called. This very binary stays the same one even if its file is replaced
/// while the runs go on.
fn runner_argv(given: Option<&Path>) -> Result<Vec<OsString>> {
    match given {
        None => Ok(vec!["/proc/self/exe".into()]),
        Some(path) if path.is_file() => Ok(vec![path.into()]),
        Some(path) => Err(Error::new(
            ErrorCode::NotFound,
            format!("--runner {}: there is no such file", path.display()),
        )
        .hint("name the binary, such as target/release/runner")),
    }
}

fn runner_version(
    argv: &[OsString],
    folders: &EvalFolders,
    context: &EvalContext<'_>,
) -> Result<String> {
    let mut argv = argv.to_vec();
    argv.push("--version".into());
    let shown = argv[0].to_string_lossy().into_owned();
    let children = ChildContext {
        supervisor: context.supervisor,
        cancel: context.cancel,
        workspace: &folders.project,
        env: &std::collections::BTreeMap::new(),
        closed: &[],
    };
    let limit = Duration::from_secs(60);
    let ran = children.runner(argv, limit, &mut |_| {})?;
    if let Some(failure) = ran.failure(limit.as_secs()) {
        let code = match failure.as_str() {
            "interrupted" => ErrorCode::Interrupted,
            _ => ErrorCode::Config,
        };
        return Err(Error::new(code, format!("`{shown} --version`: {failure}")));
    }
    let text = String::from_utf8_lossy(&ran.stdout);
    let words = text.trim().strip_prefix("runner ").unwrap_or(text.trim());
    Ok(words.lines().next().unwrap_or_default().to_owned())
}
