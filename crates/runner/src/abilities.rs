//! What the config may ask for and this version cannot do: refused with words
//! before anything starts.

use runner_core::config::{Backend, Config, SandboxMode};
use runner_core::paths;

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
    if config.executor.backend != Backend::Command {
        refuse(
            format!(
                "[executor] backend = \"{}\" is not available in this version",
                config.executor.backend.as_str()
            ),
            "use backend = \"command\" with your agent's argv in [executor] command",
        );
    }
    if config.budget.max_tokens > 0 || config.budget.max_cost_usd > 0.0 {
        refuse(
            "[budget] cannot be enforced: the command backend reports no tokens and no cost"
                .to_owned(),
            "set max_tokens = 0 and max_cost_usd = 0.0; max_iterations limits the run",
        );
    }
    if config.sandbox.mode == SandboxMode::Required {
        refuse(
            "[sandbox] mode = \"required\", but no sandbox is available in this version".to_owned(),
            "use mode = \"auto\" or \"off\"",
        );
    }
    if config.run_loop.wait_quota {
        refuse(
            "[loop] wait_quota needs a backend that reports quotas".to_owned(),
            "set wait_quota = false",
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

/// What a person should know about how children are contained; `None` where the
/// config already says that nothing is wanted.
pub(crate) fn containment_note(config: &Config) -> Option<&'static str> {
    (config.sandbox.mode == SandboxMode::Auto).then_some(
        "[sandbox] mode = \"auto\": no sandbox is available in this version, agent and guard run without one",
    )
}

/// How agent and guard are contained: nothing but process supervision yet.
pub(crate) const SANDBOX: &str = "none";
