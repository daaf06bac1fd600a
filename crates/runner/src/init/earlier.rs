//! A second goal in the same repository: config and standing words are those of
//! the run before.

use runner_core::config::Config;
use runner_core::paths;

use crate::disarm;
use crate::error::Result;
use crate::git::Git;
use crate::project::Project;
use crate::runs::{self, Known};

/// What an earlier run leaves to the next.
pub(super) struct Earlier {
    pub(super) run_id: String,
    /// The text of its config, which is valid.
    pub(super) text: String,
    pub(super) config: Config,
    pub(super) instructions: Option<Vec<u8>>,
}

/// The newest run that was worked on here, if there is one. A branch alone is not
/// enough: a session can make one, with a config of its own in it, but not logs.
pub(super) fn find(project: &Project) -> Option<Earlier> {
    let git = disarm::open_to_look(project).ok()?;
    let places = places(project, &git);
    let mut runs = runs::known(&git).ok()?;
    runs.retain(|run| {
        let has_logs = |place: &Project| place.run_folder(&run.run_id).is_dir();
        places.iter().any(has_logs)
    });
    runs.iter().find_map(|run| read(&git, run).ok().flatten())
}

/// Where logs may lie: here, and in the work tree that holds the repository.
fn places(project: &Project, git: &Git) -> Vec<Project> {
    let main = git.common_dir().parent().map(std::path::Path::to_owned);
    let main = main.filter(|folder| folder.join(".git").is_dir());
    let mut places = vec![project.clone()];
    places.extend(main.map(Project::at));
    places
}

fn read(git: &Git, run: &Known) -> Result<Option<Earlier>> {
    let bytes = git.file_at(&run.tip, paths::CONFIG)?.unwrap_or_default();
    let Ok(text) = String::from_utf8(bytes) else {
        return Ok(None);
    };
    let Ok(config) = Config::parse(&text) else {
        return Ok(None);
    };
    Ok(Some(Earlier {
        run_id: run.run_id.clone(),
        text,
        config,
        instructions: git.file_at(&run.tip, paths::INSTRUCTIONS)?,
    }))
}
