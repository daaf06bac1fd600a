//! What the config may ask for and this version cannot do: refused with words
//! before anything starts.

use std::path::{Path, PathBuf};

use runner_core::config::Config;
use runner_core::paths;

use crate::error::ErrorCode;
use crate::grants::{self, GuardFileSearch};
use crate::project::Project;
use crate::run::notify;
use crate::state::ProjectProblem;
use crate::step::budget;

/// Everything that cannot be honoured.
pub(crate) fn refusals(project: &Project, config: &Config) -> Vec<ProjectProblem> {
    let mut refused = Vec::new();
    let mut refuse = |message: String, hint: &str| {
        refused.push(ProjectProblem {
            code: ErrorCode::Config,
            place: paths::CONFIG.to_owned(),
            message,
            hint: Some(hint.to_owned()),
        });
    };
    let backend = runner_agents::backend(config.executor.backend);
    let name = backend.name();
    if config.budget.max_tokens > 0 && !backend.reports_tokens() {
        refuse(
            format!("[budget] max_tokens cannot be enforced: {name} does not report tokens"),
            "set max_tokens = 0; max_iterations limits the run too",
        );
    }
    let priced = backend.reports_tokens() && budget::price(config).is_some();
    if config.budget.max_cost_usd > 0.0 && !backend.reports_cost() && !priced {
        refuse(
            format!("[budget] max_cost_usd cannot be enforced: what {name} costs is not known"),
            "name the model in [executor] model and its prices in [prices], or set max_cost_usd = 0.0",
        );
    }
    if let Some((entry, file)) = open_guard_file(project, config) {
        refuse(
            format!(
                "{entry} opens `{}`, a file of [guard] command: whoever writes it decides every verdict",
                file.display()
            ),
            "name a narrower folder that has none of the guard's files in it, or move the guard's files elsewhere",
        );
    }
    if let Some(word) = reachable_word(project, &config.notify.command) {
        // Not quoted: arguments may hold secrets.
        refuse(
            format!("[notify] command: its word {word} names a file that a session could change"),
            "name programs by their whole path or by their name on PATH, and keep scripts outside of the project",
        );
    }
    refused
}

/// What the config makes writable of the guard's own files: the entry, and the file.
fn open_guard_file(project: &Project, config: &Config) -> Option<(String, PathBuf)> {
    let home = std::env::var_os("HOME").map(PathBuf::from);
    let entries = grants::opened_entries(&config.sandbox, home.as_deref(), project.root());
    if !entries.iter().any(|entry| entry.is_writable) {
        return None;
    }
    let path_var = std::env::var_os("PATH").unwrap_or_default();
    let search = GuardFileSearch {
        home: home.as_deref(),
        path_var: &path_var,
        root: project.root(),
    };
    grants::writable_guard_file(&entries, &search.files(&config.guard.command))
}

/// Which word of the notification's command, from 1, leads into the project: a
/// session could put code there, and it would run outside of the sandbox.
fn reachable_word(project: &Project, command: &[String]) -> Option<usize> {
    let inside = |index: usize, word: &str| {
        let path = Path::new(word);
        if path.is_absolute() {
            !notify::outside_of(project.root(), path)
        } else {
            index == 0 && word.contains('/')
        }
    };
    let words = command.iter().enumerate();
    words
        .into_iter()
        .find(|(index, word)| inside(*index, word))
        .map(|(index, _)| index + 1)
}
