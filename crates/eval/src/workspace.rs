//! The workspace of a run: a fresh repository, made in the order in which a person would.

use std::ffi::OsString;
use std::fs::Permissions;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use runner::{Error, ErrorCode, Git, Result, files};
use runner_core::config::Config;
use runner_core::goal::Goal;
use runner_core::paths;
use runner_exec::Ended;

use crate::case::{CaseSource, EvalCase, SETUP_TIMEOUT_SECS};
use crate::child::{ChildContext, ChildOutput};

/// How long `init` and `start` may take: they do no work of their own.
const COMMAND_LIMIT: Duration = Duration::from_secs(300);

/// What a workspace is made of.
pub(crate) struct WorkspacePlan<'a> {
    pub(crate) case: &'a EvalCase,
    /// The text of config.toml.
    pub(crate) config_text: &'a str,
    pub(crate) config: &'a Config,
    /// The text of INSTRUCTIONS.md.
    pub(crate) instructions: Option<&'a str>,
    /// How the runner is called.
    pub(crate) runner: &'a [OsString],
}

/// What was said while it was made.
#[derive(Debug, Default)]
pub(crate) struct WorkspaceLogs {
    pub(crate) start: Vec<u8>,
    pub(crate) setup: Option<Vec<u8>>,
}

impl WorkspaceLogs {
    fn add(&mut self, title: &str, ran: &ChildOutput) {
        self.start.extend(format!("$ {title}\n").into_bytes());
        self.start.extend(&ran.log);
    }
}

/// Why no run began.
#[derive(Debug)]
pub(crate) enum EvalRefusal {
    /// The case, or what it needs: recorded as the run's error.
    Run { code: &'static str, message: String },
    /// The harness itself.
    Harness(Error),
}

impl From<Error> for EvalRefusal {
    fn from(error: Error) -> Self {
        EvalRefusal::Harness(error)
    }
}

impl From<std::io::Error> for EvalRefusal {
    fn from(error: std::io::Error) -> Self {
        EvalRefusal::Harness(error.into())
    }
}

/// Fills the empty folder and begins the run in it.
pub(crate) fn make(
    plan: &WorkspacePlan<'_>,
    children: &ChildContext<'_>,
    logs: &mut WorkspaceLogs,
) -> Result<(), EvalRefusal> {
    let root = children.workspace;
    Git::init(root)?;
    if let Some(source) = &plan.case.source {
        lay_source(source, root)?;
    }
    // A guard and a backend are named so that init does not look for them: the config is written
    // right after.
    let init = [
        "init",
        "--no-try",
        "--guard",
        "true",
        "--backend",
        "command",
    ];
    command(plan, children, logs, &init)?;
    write_files(plan, root)?;
    run_setup(plan, children, logs)?;
    let git = Git::open(root)?;
    // What the case brings is the project; `.runner/` is for `start` to commit.
    git.write(&["add", "--all", "--", ".", ":(exclude).runner"])?;
    git.commit(&format!("Workspace of the case {}\n", plan.case.id))?;
    command(plan, children, logs, &["start", "--no-guard-check"])
}

fn command(
    plan: &WorkspacePlan<'_>,
    children: &ChildContext<'_>,
    logs: &mut WorkspaceLogs,
    words: &[&str],
) -> Result<(), EvalRefusal> {
    let mut argv = plan.runner.to_vec();
    argv.extend(words.iter().map(OsString::from));
    let ran = children.runner(argv, COMMAND_LIMIT, &mut |_| {})?;
    logs.add(&format!("runner {}", words.join(" ")), &ran);
    ended_well(&ran, words[0], "start", COMMAND_LIMIT.as_secs())
}

fn ended_well(
    ran: &ChildOutput,
    what: &str,
    code: &'static str,
    limit_secs: u64,
) -> Result<(), EvalRefusal> {
    if ran.ended == Ended::Interrupted {
        return Err(Error::new(ErrorCode::Interrupted, "interrupted").into());
    }
    match ran.failure(limit_secs) {
        None => Ok(()),
        Some(failure) => {
            let log = String::from_utf8_lossy(&ran.log);
            let last = log.trim_end().lines().next_back().unwrap_or_default();
            Err(EvalRefusal::Run {
                code,
                message: format!("{what}: {failure}: {last}"),
            })
        }
    }
}

fn run_setup(
    plan: &WorkspacePlan<'_>,
    children: &ChildContext<'_>,
    logs: &mut WorkspaceLogs,
) -> Result<(), EvalRefusal> {
    if plan.case.setup.is_empty() {
        return Ok(());
    }
    let limit = Duration::from_secs(SETUP_TIMEOUT_SECS);
    let ran = children.contained(&plan.case.setup, plan.config, limit)?;
    let end = ended_well(&ran, "setup", "setup", SETUP_TIMEOUT_SECS);
    logs.setup = Some(ran.log);
    end
}

fn write_files(plan: &WorkspacePlan<'_>, root: &Path) -> Result<(), EvalRefusal> {
    let case = plan.case;
    let goal = Goal::parse(&case.goal).map_err(|error| EvalRefusal::Run {
        code: "goal",
        message: error.to_string(),
    })?;
    // The same id in every run, so that all of them get the same prompts.
    let goal = goal.with_id(&case.id);
    files::write_whole(&root.join(paths::GOAL), goal.as_bytes())?;
    files::write_whole(&root.join(paths::CONFIG), plan.config_text.as_bytes())?;
    if let Some(text) = plan.instructions {
        files::write_whole(&root.join(paths::INSTRUCTIONS), text.as_bytes())?;
    }
    for (path, text) in &case.files {
        write_file(root, path, text)?;
    }
    if let Some(text) = &case.justfile {
        write_file(root, "justfile", text)?;
    }
    Ok(())
}

fn write_file(root: &Path, path: &str, text: &str) -> Result<(), EvalRefusal> {
    let target = root.join(path);
    if let Some(folder) = target.parent() {
        files::make_folder(folder)?;
    }
    let mode = if text.starts_with("#!") { 0o755 } else { 0o644 };
    files::write_whole_mode(&target, text.as_bytes(), mode)?;
    Ok(())
}

/// The repository that a source names.
pub(crate) fn source_repository(source: &CaseSource) -> Result<Git> {
    let gone = |why: String| {
        Error::new(
            ErrorCode::NotFound,
            format!("[source] repository {}: {why}", source.repository.display()),
        )
        .hint("name the repository with its path from the case file")
    };
    let place = source
        .repository
        .canonicalize()
        .map_err(|error| gone(error.to_string()))?;
    let project = runner::Project::of_work_tree(&place)?;
    Git::open(project.root())
}

fn lay_source(source: &CaseSource, root: &Path) -> Result<(), EvalRefusal> {
    let git = source_repository(source).map_err(|error| EvalRefusal::Run {
        code: "source",
        message: error.message,
    })?;
    let commits = [Some(&source.commit), source.tests_from.as_ref()];
    for commit in commits.into_iter().flatten() {
        if git.commit_of(commit)?.is_none() {
            return Err(EvalRefusal::Run {
                code: "source",
                message: format!("there is no commit {commit} in {}", git.root().display()),
            });
        }
    }
    git.export(&source.commit, root)?;
    // A run of its own begins here.
    files::remove_if_there(&root.join(paths::ROOT))?;
    lay_tests_of(&git, source, root)?;
    Ok(())
}

/// Lays the tests of a source down afresh, whatever became of them.
pub(crate) fn lay_tests(source: &CaseSource, root: &Path) -> Result<()> {
    lay_tests_of(&source_repository(source)?, source, root)
}

pub(crate) fn lay_tests_of(git: &Git, source: &CaseSource, root: &Path) -> Result<()> {
    let Some(commit) = &source.tests_from else {
        return Ok(());
    };
    let there: Vec<PathBuf> = git
        .files_of(commit)?
        .into_iter()
        .map(|entry| entry.path)
        .collect();
    let mut kept = Vec::new();
    for path in &source.tests {
        open_way(root, path)?;
        files::remove_if_there(&root.join(path))?;
        // A test that the commit removed is to be gone here too.
        if there.iter().any(|it| it == Path::new(path)) {
            kept.push(path.clone());
        }
    }
    if kept.is_empty() {
        return Ok(());
    }
    git.export_files(commit, &kept, root)
}

/// Removes what is no folder on the way to a path: a session may have put a link there, and what
/// is written through it would land elsewhere.
fn open_way(root: &Path, path: &str) -> Result<()> {
    let mut folder = root.to_owned();
    let parent = Path::new(path).parent().unwrap_or(Path::new(""));
    for part in parent.components() {
        folder.push(part);
        match std::fs::symlink_metadata(&folder) {
            Ok(meta) if meta.is_dir() => {
                if meta.mode() & 0o700 != 0o700 {
                    std::fs::set_permissions(&folder, Permissions::from_mode(0o755))?;
                }
            }
            Ok(_) => files::remove_if_there(&folder)?,
            Err(_) => break,
        }
    }
    Ok(())
}
