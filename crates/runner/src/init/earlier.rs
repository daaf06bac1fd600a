//! A second goal in the same repository: config and standing words are those of
//! the run before.

use runner_core::config::Config;
use runner_core::journal::JournalRecord;
use runner_core::paths;

use crate::error::Result;
use crate::files;
use crate::git::Git;
use crate::project::Project;
use crate::state::activity::LoopEvent;
use crate::state::log::{EventLog, Journal, RUN_EDITED, RUN_LANDED};
use crate::state::runs;
use crate::state::runs::KnownRun;

/// The largest log of events that is read.
const MAX_EVENTS: u64 = 64 * 1024 * 1024;

/// The events that name the run's last commit at their time.
const NAMES_COMMIT: [&str; 3] = ["run_started", RUN_EDITED, RUN_LANDED];

/// What an earlier run leaves to the next.
pub(super) struct EarlierRun {
    pub(super) run_id: String,
    /// The text of its config, which is valid.
    pub(super) text: String,
    pub(super) config: Config,
    pub(super) instructions: Option<Vec<u8>>,
}

/// The newest run that was worked on here, if there is one. A branch alone says
/// nothing: a session can make and move any, with a config of its own in it. So the
/// commit is one that the logs name, which a session cannot write.
pub(super) fn find(project: &Project) -> Option<EarlierRun> {
    let git = Git::open(project.root()).ok()?;
    let places = places(project, &git);
    let runs = runs::known(&git).ok()?;
    let commit = |run: &KnownRun| {
        let mut logged = places.iter();
        logged.find_map(|at| logged_commit(&git, at, &run.run_id))
    };
    runs.iter()
        .find_map(|run| read(&git, run, &commit(run)?).ok().flatten())
}

/// The run's last commit that a log names: the one on which the last iteration began, or a later
/// one that a person made or landed, or the one that began the run.
fn logged_commit(git: &Git, place: &Project, run_id: &str) -> Option<String> {
    let last = place.iteration_numbers(run_id).pop();
    let records = last.map(|iter| Journal::read(&place.iteration(run_id, iter)));
    let head = records.iter().flatten().find_map(|record| match record {
        JournalRecord::Started(started) => Some(started.head.clone()),
        _ => None,
    });
    let head = head.filter(|name| is_commit_name(name));
    let noted = noted_commits(place, run_id);
    match head {
        // What was noted before the last iteration is in that.
        Some(head) => {
            let later = |commit: &&String| git.is_ancestor(&head, commit).unwrap_or(false);
            Some(noted.iter().rev().find(later).unwrap_or(&head).clone())
        }
        None => noted.last().cloned(),
    }
}

/// The commits that began the run, that a person's edits made and that were landed, in their
/// order.
fn noted_commits(place: &Project, run_id: &str) -> Vec<String> {
    let path = EventLog::path(&place.run_folder(run_id));
    let bytes = files::read_regular(&path, MAX_EVENTS).unwrap_or_default();
    let events = bytes
        .split(|byte| *byte == b'\n')
        .filter_map(LoopEvent::parse)
        .filter(|event| NAMES_COMMIT.contains(&event.event.as_str()));
    let commits = events.filter_map(|event| event.text("commit").map(str::to_owned));
    commits.filter(|name| is_commit_name(name)).collect()
}

fn is_commit_name(name: &str) -> bool {
    name.len() >= 40 && name.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Where logs may lie: here, and in the work tree that holds the repository.
fn places(project: &Project, git: &Git) -> Vec<Project> {
    let main = git.common_dir().parent().map(std::path::Path::to_owned);
    let main = main.filter(|folder| folder.join(".git").is_dir());
    let mut places = vec![project.clone()];
    places.extend(main.map(Project::at));
    places
}

fn read(git: &Git, run: &KnownRun, commit: &str) -> Result<Option<EarlierRun>> {
    let bytes = git.file_at(commit, paths::CONFIG)?.unwrap_or_default();
    let Ok(text) = String::from_utf8(bytes) else {
        return Ok(None);
    };
    let Ok(config) = Config::parse(&text) else {
        return Ok(None);
    };
    Ok(Some(EarlierRun {
        run_id: run.run_id.clone(),
        text,
        config,
        instructions: git.file_at(commit, paths::INSTRUCTIONS)?,
    }))
}
