//! Telling a person: the command of `[notify]`, with an event on its stdin.
//!
//! It is the person's own command and not contained, so it must be nothing that a
//! session could change: see [`outside_of`]. Whatever becomes of it, the loop's
//! outcome is the same.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use runner_core::config::NotifyConfig;
use runner_core::meta::IterationErrorKind;
use runner_core::text::cut_chars;
use runner_exec::{Ended, Spec};
use serde_json::{Value, json};

use crate::error::{Error, ErrorCode, Result};
use crate::files;
use crate::lock;
use crate::project::Project;
use crate::run::run_loop::{LoopOutcome, LoopStatus};
use crate::run_context::{RunContext, RunProgress};
use crate::state;
use crate::state::log::EventLog;
use crate::state::validate;
use crate::state::validate::SelectResult;
use crate::state::view;
use crate::step;
use crate::step::captured_child::{self, CaptureOptions};
use crate::step::environment;

/// SIGTERM after so long, SIGKILL after [`GRACE`] more: 10 s in all.
const LIMIT: Duration = Duration::from_secs(9);

/// Between SIGTERM and SIGKILL.
const GRACE: Duration = Duration::from_secs(1);

/// What is kept of its output, for the words about a failure.
const KEPT_BYTES: u64 = 4096;

/// Where it runs: not in the project, where a session could have put a file of the
/// same name.
const FOLDER: &str = "/";

/// What there is to tell.
#[derive(Clone, Debug)]
pub(crate) struct RunNotice<'a> {
    /// `complete`, `stuck`, `limit`, `error`, `quota` or `disk`.
    pub(crate) event: &'static str,
    /// How the loop ended, or `waiting`.
    pub(crate) status: &'a str,
    /// Iterations of this loop.
    pub(crate) steps: u32,
    /// The node that it is about.
    pub(crate) node: Option<&'a str>,
    /// In words.
    pub(crate) message: &'a str,
    /// The error's code.
    pub(crate) code: Option<&'a str>,
    /// Until when the loop waits.
    pub(crate) until: Option<&'a str>,
}

/// Tells whom the config names how the loop ended.
pub(crate) fn loop_ended(
    project: &Project,
    context: &mut RunContext<'_>,
    config: &NotifyConfig,
    status: LoopStatus,
    error: Option<&Error>,
    end: &LoopOutcome,
) {
    let code = error.map(|error| error.code);
    let event = match (status, code) {
        (LoopStatus::Complete, _) => "complete",
        (LoopStatus::Stuck, _) => "stuck",
        (LoopStatus::Limit, _) => "limit",
        (LoopStatus::Error, Some(ErrorCode::Step(IterationErrorKind::Quota))) => "quota",
        (LoopStatus::Error, _) => "error",
        // Whoever stopped it knows.
        (LoopStatus::Stopped | LoopStatus::Interrupted, _) => return,
    };
    let stuck = end.stuck.as_ref();
    let message = match (error, stuck) {
        (Some(error), _) => error.message.clone(),
        (None, Some(leaf)) => format!(
            "{} has used up its {} attempts and has not passed",
            leaf.path, leaf.max_attempts
        ),
        (None, None) => "every leaf has passed".to_owned(),
    };
    let next = validate::select_next(project).ok();
    let node = stuck.or(match &next {
        Some(SelectResult::Open(leaf) | SelectResult::Stuck(leaf)) => Some(leaf),
        _ => None,
    });
    notify(
        project,
        context,
        config,
        &RunNotice {
            event,
            status: status.as_str(),
            steps: end.steps,
            node: node.map(|leaf| leaf.id.as_str()),
            message: &message,
            code: code.map(ErrorCode::as_str),
            until: None,
        },
    );
}

/// Tells it, if somebody wants to hear. Takes 10 s at most and never fails.
pub(crate) fn notify(
    project: &Project,
    context: &mut RunContext<'_>,
    config: &NotifyConfig,
    notice: &RunNotice<'_>,
) {
    let run_id = state::load_run_state(project).ok().and_then(|it| it.run_id);
    if let Some(run_id) = run_id {
        let lock = lock::session_lock(project).ok();
        notify_of_run(project, context, config, (&run_id, lock), notice);
    }
}

/// The same of a run that may not be the project's own; `lock` is held while the command runs.
pub(crate) fn notify_of_run(
    project: &Project,
    context: &mut RunContext<'_>,
    config: &NotifyConfig,
    (run_id, lock): (&str, Option<PathBuf>),
    notice: &RunNotice<'_>,
) {
    if config.command.is_empty() {
        return;
    }
    let event = event(project, run_id, notice, &context.clock.stamp());
    let begun = Instant::now();
    let failure = tell(project, context, config, (run_id, lock), &event)
        .unwrap_or_else(|error| Some(error.message))
        .map(|words| one_line(&words));
    if let Some(words) = &failure {
        context.observer.progress(&RunProgress::Note(&format!(
            "the notification ({}) failed: {words}",
            notice.event
        )));
    }
    let more = json!({
        "notice": notice.event,
        "ok": failure.is_none(),
        "message": failure,
        "duration_ms": step::millis(begun.elapsed()),
    });
    let _ = EventLog::of(&project.run_folder(run_id)).add(
        &context.clock.stamp(),
        None,
        "notified",
        more,
    );
}

/// What goes to its stdin.
fn event(project: &Project, run_id: &str, notice: &RunNotice<'_>, now: &str) -> Value {
    let progress = view::progress(project);
    let title = state::load_goal(project).map(|goal| goal.title()).ok();
    json!({
        "schema_version": 1,
        "event": notice.event,
        "ts": now,
        "status": notice.status,
        "run_id": run_id,
        "branch": step::branch_of(run_id),
        "project": project.root(),
        "title": title,
        "passed": progress.map(|it| it.passed),
        "leaves": progress.map(|it| it.leaves),
        "steps": notice.steps,
        "node": notice.node,
        "message": notice.message,
        "code": notice.code,
        "until": notice.until,
        "next": next_command(project, notice),
    })
}

/// What a person would type now.
fn next_command(project: &Project, notice: &RunNotice<'_>) -> String {
    let what = match (notice.event, notice.node) {
        ("stuck", Some(node)) => format!("why {node}"),
        ("complete" | "limit", _) => "report".to_owned(),
        ("error", _) => "log".to_owned(),
        ("quota", _) if notice.status != "waiting" => "loop --wait-quota".to_owned(),
        _ => "status".to_owned(),
    };
    let root = project.root().to_string_lossy().replace('\'', r"'\''");
    format!("runner -C '{root}' {what}")
}

/// Runs the command; why it did not work, if it did not.
fn tell(
    project: &Project,
    context: &mut RunContext<'_>,
    config: &NotifyConfig,
    (run_id, lock): (&str, Option<PathBuf>),
    event: &Value,
) -> Result<Option<String>> {
    let folder = project.run_folder(run_id);
    files::make_folder(&folder)?;
    let stdin = folder.join("notify.json");
    files::write_whole(&stdin, format!("{event}\n").as_bytes())?;
    let argv: Vec<OsString> = config.command.iter().map(OsString::from).collect();
    // The person's own command gets the person's own environment: the bus of the
    // desktop, the token of the webhook.
    let env: Vec<(OsString, OsString)> = std::env::vars_os()
        .filter(|(name, _)| !name.as_bytes().starts_with(b"GIT_"))
        .collect();
    let folder = Path::new(FOLDER);
    let program = argv.first().map_or(OsStr::new(""), OsString::as_os_str);
    match environment::resolve(program, folder, &env) {
        Err(error) => return Ok(Some(error.message)),
        Ok(program) if !outside_of(project.root(), &program) => {
            return Ok(Some(format!(
                "{} lies in the project, where a session could change it",
                program.display()
            )));
        }
        Ok(_) => {}
    }
    let spec = Spec {
        argv,
        cwd: folder.to_owned(),
        env,
        stdin: Some(stdin),
        merge_stderr: true,
        deadline: Some(Instant::now() + LIMIT),
        idle_timeout: None,
        grace: GRACE,
        monitor: false,
        hold_lock: lock,
        task_limit: None,
        cannot_start: None,
    };
    let (report, output) = captured_child::run(&spec, CaptureOptions::plain(KEPT_BYTES), context)?;
    let output = output.log;
    let how = match report.ended {
        Ended::Exited(0) => return Ok(None),
        Ended::Exited(code) => format!("exit code {code}"),
        Ended::Signaled(signal) => format!("ended by signal {signal}"),
        Ended::TimedOut => "it did not end within 10 s".to_owned(),
        Ended::NotStarted(failure) => failure.message,
        Ended::Interrupted => "interrupted".to_owned(),
        Ended::Idle | Ended::StoppedBySink | Ended::SupervisorLost => {
            "its supervisor was killed".to_owned()
        }
    };
    let output = String::from_utf8_lossy(&output);
    let last = output.lines().rev().find(|line| !line.trim().is_empty());
    Ok(Some(match last {
        Some(line) => format!("{how}: {line}"),
        None => how,
    }))
}

/// Whether a path leads to something that is not in the project, links included.
pub(crate) fn outside_of(root: &Path, path: &Path) -> bool {
    let real = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    !path.starts_with(root) && !real.starts_with(root)
}

fn one_line(text: &str) -> String {
    let clean: String = text
        .chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect();
    cut_chars(clean.trim(), 300).into_owned()
}
