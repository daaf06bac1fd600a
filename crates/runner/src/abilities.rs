//! What the config may ask for and this version cannot do: refused with words
//! before anything starts.

use std::path::Path;

use runner_core::config::Config;
use runner_core::paths;

use crate::error::ErrorCode;
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
    if let Some(word) = reachable_word(project, &config.notify.command) {
        // Not quoted: arguments may hold secrets.
        refuse(
            format!("[notify] command: its word {word} names a file that a session could change"),
            "name programs by their whole path or by their name on PATH, and keep scripts outside of the project",
        );
    }
    refused
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
