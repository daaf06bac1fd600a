//! The hosts of the chosen agent, from its own config.

use std::path::Path;

use runner_agents::{AgentHostsInput, backend};
use runner_core::config::Config;

use crate::files;

/// A config of an agent is no longer than that.
const MAX_CONFIG: u64 = 1 << 20;

/// Entries for a list of hosts.
///
/// What counts is the runner's own environment and the agent's files in the user's home: what a
/// session finds as its home is its own to write, and no session may name hosts for the next one.
pub(super) fn of(config: &Config) -> Vec<String> {
    let executor = &config.executor;
    let variable = |name: &str| {
        let own = executor.env.get(name).cloned();
        own.or_else(|| std::env::var(name).ok())
            .filter(|value| !value.is_empty())
    };
    let file = |path: &Path| {
        if !path.is_absolute() {
            return None;
        }
        // Those who keep their settings in one place link them.
        let path = path.canonicalize().ok()?;
        String::from_utf8(files::read_regular(&path, MAX_CONFIG).ok()?).ok()
    };
    backend(executor.backend).hosts(&AgentHostsInput {
        model: &executor.model,
        extra_args: &executor.extra_args,
        variable: &variable,
        file: &file,
    })
}
