//! One run: workspace, loop, checks, and a result that appears whole or not at all.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use runner::{Error, ErrorCode, Result, WallClock, files};
use runner_core::config::Config;
use runner_core::digest::sha256_hex;
use runner_core::meta::IterationMeta;
use runner_core::paths;
use runner_core::tree::{self, Node};
use runner_core::usage::Usage;
use runner_exec::{Cancel, Ended, Supervisor};
use serde_json::Value;

use super::EvalProgress;
use crate::case::EvalCase;
use crate::checks::{self, FinalState};
use crate::child::ChildContext;
use crate::folders::EvalFolders;
use crate::outcome::{self, LoopEnd};
use crate::record::{CheckResult, EvalRecord, EvalSetup, RECORD_VERSION, json_bytes};
use crate::workspace::{self, EvalRefusal, WorkspaceLogs, WorkspacePlan};

/// Larger files of an iteration are left out of the results.
const MAX_ARTIFACT_BYTES: u64 = 64 * 1024 * 1024;

/// A run that is to be made.
#[derive(Clone, Debug)]
pub(crate) struct EvalJob {
    pub(crate) case: EvalCase,
    /// Which of the case's runs, from 1.
    pub(crate) number: u32,
    /// Its own id.
    pub(crate) run: String,
}

/// What all runs of a set share.
pub(crate) struct EvalShared<'a> {
    pub(crate) folders: &'a EvalFolders,
    pub(crate) set: &'a str,
    pub(crate) label: Option<&'a str>,
    pub(crate) instructions: Option<&'a str>,
    pub(crate) runner: &'a [OsString],
    pub(crate) runner_version: &'a str,
    pub(crate) supervisor: &'a Supervisor,
    pub(crate) cancel: &'a Cancel,
    pub(crate) clock: &'a (dyn WallClock + Sync),
}

/// The config of a run.
pub(crate) struct JobConfig {
    /// As the case and the set have it: what is hashed.
    pub(crate) text: String,
    /// As the workspace gets it: with what is left of the money.
    pub(crate) written: String,
    pub(crate) config: Config,
}

/// What came of a run, before it is judged.
#[derive(Default)]
struct Made {
    end: LoopEnd,
    logs: WorkspaceLogs,
    loop_log: Vec<u8>,
    checks: Vec<CheckResult>,
    metas: Vec<IterationMeta>,
    prompt: Option<Vec<u8>>,
    tree: Option<Vec<u8>>,
}

/// Makes one run and records it. An error means that nothing was recorded: it was interrupted, or
/// the results could not be written.
pub(crate) fn run(
    job: &EvalJob,
    config: &JobConfig,
    shared: &EvalShared<'_>,
    tell: &dyn Fn(EvalProgress),
) -> Result<EvalRecord> {
    let workspace = shared.folders.workspace_of(&job.case.id, &job.run);
    let begun = Instant::now();
    let started_at = shared.clock.stamp();
    let made = in_workspace(job, config, shared, &workspace, tell)?;
    let judged = outcome::judge(&made.end, &made.checks);
    let usage = Usage::of(&made.metas);
    let root = made
        .tree
        .as_deref()
        .and_then(|bytes| tree::parse(bytes).ok());
    let leaves = root.as_ref().map(Node::progress);
    let attempts = root.as_ref().map_or(0, |root| {
        root.walk()
            .map(|node| node.attempts)
            .fold(0, u32::saturating_add)
    });
    let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
    let record = EvalRecord {
        schema_version: RECORD_VERSION,
        case: job.case.id.clone(),
        case_hash: job.case.hash.clone(),
        run: job.run.clone(),
        set: shared.set.to_owned(),
        label: shared.label.map(str::to_owned),
        number: job.number,
        outcome: judged.outcome,
        expect: job.case.expect,
        reason: judged.reason,
        detail: judged.detail,
        started_at,
        ended_at: shared.clock.stamp(),
        duration_ms: millis(begun.elapsed()),
        runner_exit: made.end.exit,
        runner_status: made.end.status.clone(),
        iterations: usage.iterations,
        attempts,
        leaves: leaves.as_ref().map_or(0, |it| count(it.leaves)),
        passed: leaves.as_ref().map_or(0, |it| count(it.passed)),
        checks_passed: count(made.checks.iter().filter(|check| check.passed).count()),
        checks: count(made.checks.len()),
        agent_ms: usage.agent_ms,
        guard_ms: usage.guard_ms,
        input_tokens: usage.input_tokens,
        cached_input_tokens: usage.cached_input_tokens,
        output_tokens: usage.output_tokens,
        tokens_unknown: usage.tokens_unknown,
        cost_usd: usage.cost_usd,
        cost_unknown: usage.cost_unknown,
        setup: EvalSetup {
            runner_version: shared.runner_version.to_owned(),
            backend: config.config.executor.backend.as_str().to_owned(),
            model: config.config.executor.model.clone(),
            config_hash: sha256_hex(config.text.as_bytes()),
            prompt_hash: made.prompt.as_deref().map(sha256_hex),
            instructions_hash: shared.instructions.map(|text| sha256_hex(text.as_bytes())),
        },
        workspace: workspace.clone(),
    };
    save(&record, &made, config, &workspace, shared.folders)?;
    Ok(record)
}

fn in_workspace(
    job: &EvalJob,
    config: &JobConfig,
    shared: &EvalShared<'_>,
    workspace: &Path,
    tell: &dyn Fn(EvalProgress),
) -> Result<Made> {
    files::remove_if_there(workspace)?;
    files::make_folder(workspace)?;
    files::make_folder(&shared.folders.links)?;
    files::replace_link(&shared.folders.latest_of(&job.case.id), workspace)?;
    let mut closed = shared.folders.closed();
    if let Some(source) = &job.case.source
        && let Ok(git) = workspace::source_repository(source)
    {
        // What became of the commit later is in there.
        closed.push(git.common_dir().to_owned());
    }
    let children = ChildContext {
        supervisor: shared.supervisor,
        cancel: shared.cancel,
        workspace,
        env: &job.case.env,
        closed: &closed,
    };
    let plan = WorkspacePlan {
        case: &job.case,
        config_text: &config.written,
        config: &config.config,
        instructions: shared.instructions,
        runner: shared.runner,
    };
    let mut made = Made::default();
    match workspace::make(&plan, &children, &mut made.logs) {
        Ok(()) => {}
        Err(EvalRefusal::Run { code, message }) => {
            made.end = LoopEnd::failed(code, message);
            return Ok(made);
        }
        Err(EvalRefusal::Harness(error)) if error.code == ErrorCode::Interrupted => {
            return Err(error);
        }
        Err(EvalRefusal::Harness(error)) => {
            made.end = LoopEnd::failed(error.code.as_str(), error.message);
            return Ok(made);
        }
    }
    drive(job, &plan, &children, &mut made, tell)?;
    collect(job, workspace, &mut made);
    judge_work(job, config, &children, &mut made)?;
    Ok(made)
}

/// The loop, with its lines as progress.
fn drive(
    job: &EvalJob,
    plan: &WorkspacePlan<'_>,
    children: &ChildContext<'_>,
    made: &mut Made,
    tell: &dyn Fn(EvalProgress),
) -> Result<()> {
    let mut argv = plan.runner.to_vec();
    argv.extend(["loop".into(), "--json".into()]);
    let limit_secs = job.case.timeout_secs;
    let mut end = LoopEnd::default();
    let ran = children.runner(argv, Duration::from_secs(limit_secs), &mut |line| {
        let Ok(value) = serde_json::from_slice::<Value>(line) else {
            return;
        };
        if value["event"] == "finished" {
            end = read_end(&value);
        }
        if let Some(progress) = EvalProgress::of_line(&job.case.id, &job.run, &value) {
            tell(progress);
        }
    })?;
    if ran.ended == Ended::Interrupted {
        return Err(Error::new(ErrorCode::Interrupted, "interrupted"));
    }
    end.exit = ran.exit();
    if end.exit.is_none() {
        let code = match ran.ended {
            Ended::TimedOut => "timed out",
            Ended::NotStarted(_) => "spawn",
            _ => "lost",
        };
        end.code = Some(code.to_owned());
        end.message = ran.failure(limit_secs);
    }
    made.end = end;
    made.loop_log = ran.log;
    Ok(())
}

fn read_end(value: &Value) -> LoopEnd {
    let text = |value: &Value| value.as_str().map(str::to_owned);
    LoopEnd {
        exit: None,
        status: text(&value["status"]),
        code: text(&value["error"]["code"]),
        message: text(&value["error"]["message"]).or_else(|| text(&value["reason"])),
        path: text(&value["path"]),
        last_verdict: None,
    }
}

/// Reads what the loop left.
fn collect(job: &EvalJob, workspace: &Path, made: &mut Made) {
    let Some(iterations) = own_folder(workspace, &logs_of(&job.case.id)) else {
        return;
    };
    let read = |path: &Path| files::read_regular(path, MAX_ARTIFACT_BYTES).ok();
    let mut metas = BTreeMap::new();
    for entry in std::fs::read_dir(&iterations)
        .into_iter()
        .flatten()
        .flatten()
    {
        // Not those that were in the way of others (`3.stale-1`).
        let name = entry.file_name();
        let Some(iter) = name.to_str().and_then(|name| name.parse::<u32>().ok()) else {
            continue;
        };
        let meta = read(&entry.path().join("meta.json"));
        if let Some(meta) =
            meta.and_then(|bytes| serde_json::from_slice::<IterationMeta>(&bytes).ok())
        {
            metas.insert(iter, meta);
        }
    }
    made.metas = metas.into_values().collect();
    made.end.last_verdict = made
        .metas
        .last()
        .map(|meta| meta.verdict().words().to_owned());
    made.prompt = read(&iterations.join("1/prompt.md"));
    made.tree = own_folder(workspace, STATE)
        .and_then(|state| files::read_regular(&state.join("tree.json"), tree::MAX_BYTES).ok());
}

/// Where the runner keeps the state, and the logs of a run.
const STATE: &str = ".runner/state";

fn logs_of(case: &str) -> String {
    format!("{}/{case}", paths::ITERATIONS_DIR)
}

/// A folder of the workspace that is really there: a session may have put a link in its place, and
/// what it leads to is none of ours.
fn own_folder(workspace: &Path, below: &str) -> Option<PathBuf> {
    let real = workspace.join(below).canonicalize().ok()?;
    let wanted = workspace.canonicalize().ok()?.join(below);
    (real == wanted && real.is_dir()).then_some(real)
}

fn judge_work(
    job: &EvalJob,
    config: &JobConfig,
    children: &ChildContext<'_>,
    made: &mut Made,
) -> Result<()> {
    if let Some(source) = &job.case.source {
        workspace::lay_tests(source, children.workspace)?;
    }
    let parsed = match made.tree.as_deref() {
        None => Err("tree.json is missing".to_owned()),
        Some(bytes) => tree::parse(bytes).map_err(|findings| {
            let first = findings.first().map(ToString::to_string);
            first.unwrap_or_default()
        }),
    };
    let state = FinalState {
        workspace: children.workspace,
        config: &config.config,
        completed: made.end.is_complete(),
        tree: parsed,
    };
    made.checks = checks::run(&job.case.checks, &state, children)?;
    Ok(())
}

/// Writes the result beside its place and moves it there: nobody sees half of one.
fn save(
    record: &EvalRecord,
    made: &Made,
    config: &JobConfig,
    workspace: &Path,
    folders: &EvalFolders,
) -> Result<()> {
    let results = folders.results_of(&record.case);
    let partial = results.join(format!(".{}.partial", record.run));
    files::remove_if_there(&partial)?;
    files::make_folder(&partial)?;
    let run_state = own_folder(workspace, STATE).and_then(|state| {
        files::read_regular(&state.join("run_state.json"), MAX_ARTIFACT_BYTES).ok()
    });
    for (name, bytes) in [
        ("checks.json", Some(&json_bytes(&made.checks))),
        ("tree.json", made.tree.as_ref()),
        ("run_state.json", run_state.as_ref()),
        ("config.toml", Some(&config.written.clone().into_bytes())),
        ("runner.start.log", Some(&made.logs.start)),
        ("runner.loop.log", Some(&made.loop_log)),
        ("setup.log", made.logs.setup.as_ref()),
    ] {
        if let Some(bytes) = bytes {
            files::write_whole(&partial.join(name), bytes)?;
        }
    }
    if let Some(logs) = own_folder(workspace, &logs_of(&record.case)) {
        files::copy_files(&logs, &partial.join("iterations"), MAX_ARTIFACT_BYTES)?;
    }
    files::write_whole(&partial.join("meta.json"), &json_bytes(record))?;
    let target = results.join(&record.run);
    files::remove_if_there(&target)?;
    Ok(files::rename_onto(&partial, &target)?)
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_in_place_of_folders_are_not_followed() {
        let temp = tempfile::tempdir().unwrap();
        let workspace = temp.path().join("w");
        std::fs::create_dir_all(workspace.join(STATE)).unwrap();
        assert!(own_folder(&workspace, STATE).is_some());
        assert!(own_folder(&workspace, &logs_of("a")).is_none());
        let iterations = workspace.join(paths::ITERATIONS_DIR);
        std::fs::create_dir_all(temp.path().join("elsewhere/a")).unwrap();
        std::os::unix::fs::symlink(temp.path().join("elsewhere"), &iterations).unwrap();
        assert!(own_folder(&workspace, &logs_of("a")).is_none());
    }
}
