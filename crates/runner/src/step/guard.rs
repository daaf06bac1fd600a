//! The guard's run: on the candidate commit, in a clean checkout.

use std::ffi::{OsStr, OsString};
use std::path::{Component, Path, PathBuf};
use std::rc::Rc;
use std::time::Instant;

use runner_core::config::{CheckoutKind, ChildKind, Config};
use runner_core::digest::sha256_hex;
use runner_core::journal::JournalRecord;
use runner_core::meta::{GuardRun, IterationErrorKind, RunnerError};
use runner_exec::{Ended, Ready, SpawnFailure, Spec};
use serde_json::json;

use super::base_changes::without_those_of_base;
use super::captured_child::WholeOutput;
use super::child::{self, GRACE, interrupted, millis};
use super::evidence::EvidenceFindings;
use super::left_out::{self, LeftOutInput};
use super::original_tests::OriginalTestsFinding;
use super::{Iteration, StepContext, prepare};
use crate::base_trial::guard_file;
use crate::checkout::guard_changes::about_changes;
use crate::checkout::junit_reports::JunitReports;
use crate::checkout::made_files::changed_by_guard;
use crate::checkout::prepare::{WarmStart, setup_key};
use crate::checkout::workspace::RunWorkspace;
use crate::checkout::{Checkout, CleanCheckout, missing_variable};
use crate::error::Result;
use crate::git::{Git, PendingWrite};
use crate::limits::{LimitBreach, LimitWatch, task_limit};
use crate::run_context::RunProgress;
use crate::state::ProjectState;
use crate::step::containment::{Containment, ContainmentInput};
use crate::step::environment;
use crate::step::masked_sink::passed_values;
use crate::step::network;

/// The exit code of a guard that was killed for what it used up.
const KILLED: i32 = 128 + 9;

/// The exit codes of a shell for a program that is not there, and for one that cannot be run.
const MISSING: i32 = 127;
const CLOSED: i32 = 126;

/// What is to be judged.
pub(super) struct CandidateTree<'a> {
    /// Where it was made, and what git ignores there.
    pub(super) workspace: &'a RunWorkspace,
    pub(super) ignored: &'a [PathBuf],
    /// The tree of the workspace's files.
    pub(super) tree: String,
    /// Whether a pass would complete the run's tree.
    pub(super) completes: bool,
    /// The clean checkout that is kept is being cleaned for it.
    pub(super) cleaned: Option<PendingWrite>,
}

/// How the guard's run went.
pub(super) struct GuardRunOutcome {
    pub(super) run: GuardRun,
    pub(super) error: Option<RunnerError>,
    /// Files of the candidate that it changed.
    pub(super) changed: Vec<String>,
    /// What its report of tests lacks.
    pub(super) evidence: EvidenceFindings,
    /// What was found about tests that sessions changed.
    pub(super) original_tests: OriginalTestsFinding,
    /// It did not run, because setup fails with what the candidate changed.
    pub(super) setup_failed: bool,
    /// What it left takes room that others need.
    pub(super) fills_disk: bool,
}

/// A clean checkout for one verdict.
pub(super) enum VerdictCheckout {
    /// Kept for the run, with build outputs of earlier verdicts.
    Warm(Rc<Checkout>),
    /// Made for this verdict.
    Cold(Box<CleanCheckout>),
}

impl VerdictCheckout {
    pub(super) fn checkout(&self) -> &Checkout {
        match self {
            VerdictCheckout::Warm(checkout) => checkout,
            VerdictCheckout::Cold(clean) => &clean.checkout,
        }
    }
}

/// Asks the guard about a candidate, within what is left of the time.
pub(super) fn run_guard(
    context: &mut StepContext<'_, '_>,
    it: &mut Iteration,
    ready: Option<Ready>,
    state: &ProjectState,
    containment: &Containment,
    candidate: CandidateTree<'_>,
    deadline: Instant,
) -> Result<GuardRunOutcome> {
    let command = &state.config.guard.command;
    let commit = candidate_commit(context, it, &candidate.tree)?;
    let kind = if candidate.completes {
        CheckoutKind::Cold
    } else {
        state.config.guard.checkout
    };
    let mut run = GuardRun {
        command: command.clone(),
        exit_code: None,
        duration_ms: 0,
        log_sha256: sha256_hex(b""),
        checkout: Some(kind),
        setup_sha256: None,
    };
    let run_id = &it.started.run_id;
    let (git, places) = (context.git, context.places);
    let head = it.started.head.clone();
    let head = head.as_str();
    let (verdict, begun) = match kind {
        CheckoutKind::Warm => {
            let kept = places.verdicts(git, run_id, head)?;
            let begun = WarmStart::new(&kept, &commit, head, candidate.cleaned)?;
            (VerdictCheckout::Warm(kept), Some(begun))
        }
        CheckoutKind::Cold => {
            let clean = places.clean_checkout(git, run_id, &commit)?;
            (VerdictCheckout::Cold(Box::new(clean)), None)
        }
    };
    let checkout = verdict.checkout();
    let config = &state.config;
    let prepared = (&verdict, begun);
    let judged = (candidate.workspace, commit.as_str());
    let workspace = candidate.workspace.path();
    if let Some(log) = prepare::verdict(context, it, prepared, judged, config, containment)? {
        child::replace_log(it, "guard.log", &log)?;
        run.log_sha256 = sha256_hex(&log);
        return Ok(GuardRunOutcome {
            run,
            error: None,
            changed: Vec::new(),
            evidence: EvidenceFindings::default(),
            original_tests: OriginalTestsFinding::default(),
            setup_failed: true,
            fills_disk: false,
        });
    }
    let argv: Vec<OsString> = command.iter().map(OsString::from).collect();
    let env = environment::for_guard(containment.seen(checkout), it, &state.config);
    let mut contained = containment.wrap(
        &argv,
        &ContainmentInput {
            kind: ChildKind::Guard,
            checkout,
            config: &state.config,
            env: &env,
            report: None,
            agent_homes: &[],
        },
    )?;
    let spec = Spec {
        argv: contained.argv,
        cwd: checkout.path().to_owned(),
        env: contained.env,
        stdin: None,
        merge_stderr: true,
        deadline: Some(deadline),
        idle_timeout: None,
        grace: GRACE,
        monitor: contained.monitor,
        hold_lock: Some(checkout.session_lock.clone()),
        task_limit: task_limit(config),
        cannot_start: contained.cannot_start,
    };
    let reports = JunitReports::begin(checkout, containment.seen(checkout), config)?;
    let undefined = guard_file::undefined(command, checkout.path());
    it.log_event(
        context.run.clock,
        "guard_started",
        json!({"command": command}),
    );
    context.run.observer.progress(&RunProgress::Guard);
    let cap = state.config.guard_output_limit_bytes;
    let mut output = WholeOutput::default();
    let written = contained.held.written_in(checkout.path());
    let mut limits = LimitWatch::begin(config, ChildKind::Guard, written);
    let (report, mut log) = child::run(
        context,
        it,
        ready,
        (&spec, &mut limits),
        ("guard.log", cap),
        &passed_values(config),
        &mut output,
    )?;
    let about_closed = network::about_closed(config, &contained.network.access);
    let refused = contained.network.end();
    let breach = limits.finish();
    if let Some(breach) = &breach {
        log.extend_from_slice(format!("\nrunner: {}\n", breach.words).as_bytes());
        child::replace_log(it, "guard.log", &log)?;
    }
    let fills_disk = breach.as_ref().is_some_and(LimitBreach::fills_disk);
    let own_breach = breach.as_ref().filter(|it| !it.is_shared);
    run.exit_code = match &report.ended {
        // The code that it judges used too much: that is an answer.
        _ if own_breach.is_some() => Some(KILLED),
        Ended::Signaled(signal) => Some(128 + signal),
        Ended::Exited(code) => Some(*code),
        Ended::NotStarted(failure)
            if is_broken(git, (head, &commit), &argv, containment.seen(checkout))? =>
        {
            log.extend_from_slice(about_start(failure).as_bytes());
            child::replace_log(it, "guard.log", &log)?;
            Some(if failure.not_found { MISSING } else { CLOSED })
        }
        _ => None,
    };
    run.duration_ms = millis(report.duration);
    it.journal.note(&JournalRecord::GuardEnded {
        exit_code: run.exit_code,
    })?;
    it.log_event(
        context.run.clock,
        "guard_ended",
        json!({"exit_code": run.exit_code}),
    );
    let changed = match report.ended {
        Ended::Exited(_) | Ended::Signaled(_) => changed_by_guard(checkout, config)?,
        _ => Vec::new(),
    };
    if !refused.is_empty() {
        // Where the next session looks for what was wrong.
        log.extend_from_slice(network::about_refused(&refused).as_bytes());
        child::replace_log(it, "guard.log", &log)?;
    }
    let changed = without_those_of_base(context, it, workspace, config, containment, changed)?;
    if !changed.is_empty() {
        // Where the next session looks for what was wrong.
        log.extend_from_slice(about_changes(&changed).as_bytes());
        child::replace_log(it, "guard.log", &log)?;
    }
    if run.exit_code.is_some_and(|code| code != 0) {
        let left_out = left_out::find(&LeftOutInput {
            workspace: candidate.workspace,
            ignored: candidate.ignored,
            judged: checkout.path(),
            begun: &it.folder.join("prompt.md"),
            config,
        })?;
        if let Some(words) = left_out::about(&left_out) {
            log.extend_from_slice(words.as_bytes());
            child::replace_log(it, "guard.log", &log)?;
        }
        it.notes.extend(left_out::note(&left_out));
        // A refused host says more.
        if let Some(words) = about_closed.filter(|_| refused.is_empty()) {
            log.extend_from_slice(words.as_bytes());
            child::replace_log(it, "guard.log", &log)?;
        }
    }
    let evidence = if let (Some(0), Some(why)) = (run.exit_code, undefined) {
        EvidenceFindings::gap(why)
    } else if run.exit_code == Some(0) {
        let mut tests = output.tests();
        reports.add_to(&mut tests)?;
        EvidenceFindings::of(context, it, workspace, (config, containment), &tests)?
    } else {
        EvidenceFindings::default()
    };
    if !evidence.gaps.is_empty() && kind == CheckoutKind::Warm {
        // Build outputs that were kept may have told a tool that there is nothing to do.
        let cold = CandidateTree {
            completes: true,
            cleaned: None,
            ..candidate
        };
        return run_guard(context, it, None, state, containment, cold, deadline);
    }
    if !evidence.gaps.is_empty() {
        log.extend_from_slice(evidence.words().as_bytes());
        child::replace_log(it, "guard.log", &log)?;
    }
    let judged = (workspace, commit.as_str());
    let is_green = run.exit_code == Some(0) && changed.is_empty() && evidence.gaps.is_empty();
    let mut original_tests = OriginalTestsFinding::default();
    if is_green {
        let more = (evidence.shortfall.clone(), deadline);
        original_tests = OriginalTestsFinding::of(context, it, judged, config, containment, more)?;
        if !original_tests.log.is_empty() {
            log.append(&mut original_tests.log);
            child::replace_log(it, "guard.log", &log)?;
        }
    }
    run.log_sha256 = sha256_hex(&log);
    if is_green && original_tests.failed.is_none() {
        run.setup_sha256 = setup_key(context.git, &commit, config)?;
    }
    if run.exit_code.is_some_and(|code| code != 0)
        && let Some(remedy) = missing_variable::remedy_for(&log, &state.config)
    {
        it.notes
            .push(format!("the guard lacks a variable: {remedy}"));
    }
    let error = match &report.ended {
        Ended::Interrupted => return Err(interrupted()),
        _ if own_breach.is_some() => None,
        _ if breach.is_some() => breach.map(|breach| (IterationErrorKind::Resources, breach.words)),
        Ended::Exited(_) | Ended::Signaled(_) => {
            containment.setup_failure(run.exit_code, &log).map(|words| {
                (
                    IterationErrorKind::GuardSpawn,
                    format!("the sandbox could not be set up: {words}"),
                )
            })
        }
        Ended::NotStarted(_) if run.exit_code.is_some() => None,
        Ended::NotStarted(failure) => Some((
            IterationErrorKind::GuardSpawn,
            format!("the guard {}", failure.message),
        )),
        Ended::TimedOut => Some((
            IterationErrorKind::GuardTimeout,
            format!(
                "the guard did not end within the {} s that agent and guard have together",
                state.config.iteration_timeout_secs
            ),
        )),
        Ended::Idle | Ended::StoppedBySink | Ended::SupervisorLost => Some((
            IterationErrorKind::Io,
            "the guard's supervisor was killed; everything it had started was ended".to_owned(),
        )),
    };
    Ok(GuardRunOutcome {
        run,
        error: error.map(|(kind, message)| RunnerError::new(kind, message)),
        changed,
        evidence,
        original_tests,
        setup_failed: false,
        fills_disk,
    })
}

/// Begins to clean the clean checkout that is kept, while the session is looked at.
pub(super) fn begin_cleaning(
    context: &StepContext<'_, '_>,
    it: &Iteration,
    config: &Config,
) -> Option<PendingWrite> {
    if config.guard.checkout != CheckoutKind::Warm {
        return None;
    }
    let (run_id, head) = (&it.started.run_id, &it.started.head);
    let places = context.places;
    let kept = places.verdicts_if_made(context.git, run_id, head)?;
    crate::checkout::prepare::begin_cleaning(&kept, config)
}

/// The commit that is judged. Nothing leads to it yet.
fn candidate_commit(context: &StepContext<'_, '_>, it: &Iteration, tree: &str) -> Result<String> {
    let (run_id, iter) = (&it.started.run_id, it.started.iter);
    let message = format!("runner: candidate of run {run_id} iter {iter}\n");
    let parents = [it.started.head.as_str()];
    let (_, commit) = context.git.commit_tree(tree, &parents, &message)?;
    Ok(commit)
}

/// Whether a session broke the guard's program, or has not written it: a file of the project that is
/// as before is not its fault.
fn is_broken(
    git: &Git,
    (head, commit): (&str, &str),
    argv: &[OsString],
    seen: &Path,
) -> Result<bool> {
    let Some(path) = path_in_candidate(argv, seen) else {
        return Ok(false);
    };
    let entry = |commit: &str| -> Result<Vec<u8>> {
        let args: [&OsStr; 5] = [
            "ls-tree".as_ref(),
            "-z".as_ref(),
            commit.as_ref(),
            "--".as_ref(),
            path.as_os_str(),
        ];
        git.read(&args)
    };
    let now = entry(commit)?;
    Ok(now.is_empty() || now != entry(head)?)
}

/// Where in the folder that is judged the guard's program lies, if it does.
fn path_in_candidate(argv: &[OsString], seen: &Path) -> Option<PathBuf> {
    let program = Path::new(argv.first()?);
    let is_path = program.components().count() > 1;
    let below = if program.is_absolute() {
        program.strip_prefix(seen).ok()?
    } else {
        program
    };
    let parts = below.components().filter(|part| *part != Component::CurDir);
    is_path.then(|| parts.collect())
}

/// What is added to the log of a guard whose program a session has broken.
fn about_start(failure: &SpawnFailure) -> String {
    format!(
        "runner: the guard {}\nrunner: it is a file of the project; make it one that can be started again\n",
        failure.message
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_of_the_candidate() {
        for (program, expected) in [
            ("./ci.sh", Some("ci.sh")),
            ("bin/ci", Some("bin/ci")),
            ("/p/.venv/bin/python", Some(".venv/bin/python")),
            ("/usr/bin/make", None),
            ("/px/ci", None),
            ("make", None),
            ("", None),
        ] {
            let found = path_in_candidate(&[program.into()], Path::new("/p"));
            assert_eq!(found.as_deref(), expected.map(Path::new), "{program}");
        }
    }
}
