//! What the config may ask for and this version cannot do: refused with words
//! before anything starts.

use runner_core::config::Config;
use runner_core::paths;

use crate::budget;
use crate::error::Code;
use crate::state::Problem;

/// Everything that cannot be honoured.
pub(crate) fn refusals(config: &Config) -> Vec<Problem> {
    let mut refused = Vec::new();
    let mut refuse = |message: String, hint: &str| {
        refused.push(Problem {
            code: Code::Config,
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
    if !config.notify.command.is_empty() {
        refuse(
            "[notify] command is not available in this version".to_owned(),
            "set command = []",
        );
    }
    refused
}
