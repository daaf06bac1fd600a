//! The commented `config.toml` of a new project.

use super::{Backend, CommitConfig, Config};

/// The file that `runner init` writes: every key with its default, but for what was
/// found out about the project.
pub fn template(
    guard: &[String],
    protected: &[String],
    backend: Backend,
    command: &[String],
) -> String {
    let Config {
        max_attempts_default,
        max_iterations,
        iteration_timeout_secs,
        executor_output_limit_bytes,
        guard_output_limit_bytes,
        prompt_budget_bytes,
        guard: guard_defaults,
        run_loop,
        executor,
        commit: CommitConfig {
            deny,
            max_file_bytes,
        },
        budget,
        sandbox,
        ..
    } = Config::default();
    let guard = array(guard);
    let protected = array(protected);
    let watched = array(&guard_defaults.watched);
    let command = array(command);
    let deny = array(&deny);
    format!(
        r#"# Settings of the runner for this project. Every key may be left out: its default then
# holds. An unknown key is an error. Check the file with: runner validate

# How often a leaf may fail before it counts as stuck.
max_attempts_default = {max_attempts_default}
# How many iterations one run may have in all.
max_iterations = {max_iterations}
# Time for one iteration, agent and guard together.
iteration_timeout_secs = {iteration_timeout_secs}
# How much of their output is kept: the beginning and the end.
executor_output_limit_bytes = {executor_output_limit_bytes}
guard_output_limit_bytes = {guard_output_limit_bytes}
# The longest prompt; at least 4096.
prompt_budget_bytes = {prompt_budget_bytes}

[guard]
# Decides whether a leaf passes: exit code 0 is a pass.
command = {guard}
# Globs of files that agents may not change (`*` stays in a folder, `**` does not).
protected = {protected}
# Globs of files that they may change, but that are pointed out to you, such as tests.
watched = {watched}

[loop]
# Passing troubles (network, overload, a missing report) are tried again so often.
max_consecutive_errors = {max_consecutive_errors}
# After a timeout: "stop" ends the loop, "retry" goes on.
on_timeout = "{on_timeout}"
# Wait until a used-up quota is there again, instead of ending with an error.
wait_quota = {wait_quota}

[executor]
# codex, claude, opencode, or command for any other agent.
backend = "{backend}"
# The program and its arguments, for backend = "command" only.
command = {command}
# Empty: whatever the agent's CLI takes by itself.
model = "{model}"
# Passed on to the CLI as they are.
extra_args = []
# A session that shows no sign of life for so long is ended; 0 never ends one.
idle_timeout_secs = {idle_timeout_secs}

# Added to the agent's environment. This file is committed: no secrets here.
[executor.env]
# RUST_LOG = "warn"

# New files that never go into a commit.
[commit]
# Globs; without a `/` they mean the file name in any folder. Names that end in
# .example, .sample or .template are let through.
deny = {deny}
max_file_bytes = {max_file_bytes}

# USD per million tokens, for the cost in reports where the CLI tells none.
[prices]
# "some-model" = {{ input = 1.25, cached = 0.125, output = 10.0 }}

[notify]
# Started when a loop is complete, stuck, at a limit, in error or out of quota, with a JSON
# event on its stdin; it has 10 s.
command = []

# Reaching one of these ends the loop; 0 is no limit.
[budget]
max_tokens = {max_tokens}
max_cost_usd = {max_cost_usd:?}

[sandbox]
# Confines where agent and guard can write: off, auto (if the system can), or required.
mode = "{mode}"
# Folders outside the project that they may write to. Left out: the package caches
# that exist.
# writable = ["~/.cargo/registry"]
"#,
        max_consecutive_errors = run_loop.max_consecutive_errors,
        on_timeout = run_loop.on_timeout,
        wait_quota = run_loop.wait_quota,
        model = executor.model,
        idle_timeout_secs = executor.idle_timeout_secs,
        max_tokens = budget.max_tokens,
        max_cost_usd = budget.max_cost_usd,
        mode = sandbox.mode,
    )
}

fn array(words: &[String]) -> String {
    toml::Value::from(words.to_vec()).to_string()
}
