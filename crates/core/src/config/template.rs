//! The commented `config.toml` of a new project.

use super::{BackendKind, CommitConfig, Config, show_size};

/// What is known about a new project.
#[derive(Clone, Copy, Debug)]
pub struct NewProject<'a> {
    /// The argv that makes what a fresh checkout lacks.
    pub setup: &'a [String],
    /// Globs of ignored files that a fresh checkout gets as copies.
    pub include: &'a [String],
    /// The guard's argv.
    pub guard: &'a [String],
    /// Globs that agents may not change.
    pub protected: &'a [String],
    /// Values inside files that agents may not change.
    pub protected_values: &'a [String],
    /// Globs whose changes are pointed out.
    pub watched: &'a [String],
    /// Globs of the files that are tests.
    pub tests: &'a [String],
    /// Globs of build outputs that stay from one verdict to the next.
    pub keep: &'a [String],
    /// The agent.
    pub backend: BackendKind,
    /// Its argv, for `command`.
    pub command: &'a [String],
    /// What the guard can reach, as a word of the file.
    pub guard_network: &'a str,
}

/// The file that `runner init` writes: every key with its default, but for what was
/// found out about the project.
pub fn template(project: NewProject<'_>) -> String {
    let Config {
        max_attempts_default,
        max_iterations,
        iteration_timeout_secs,
        executor_output_limit_bytes,
        guard_output_limit_bytes,
        prompt_budget_bytes,
        workspace,
        guard: guard_default,
        run_loop,
        executor,
        commit: CommitConfig {
            deny,
            max_file_bytes,
        },
        budget,
        sandbox,
        fleet,
        ..
    } = Config::default();
    let setup = array(project.setup);
    let include = array(project.include);
    let keep = array(project.keep);
    let guard = array(project.guard);
    let protected = array(project.protected);
    let protected_values = array(project.protected_values);
    let watched = array(project.watched);
    let tests = array(project.tests);
    let command = array(project.command);
    let backend = project.backend;
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

[workspace]
# Makes what a fresh checkout lacks, such as installed packages: an argv, or one text for
# `sh -c`. It runs wherever a commit is checked out to be worked on or judged.
setup = {setup}
# Globs of the files that setup reads: it runs again where one of them changed. Empty: lock files
# and manifests, or everything where setup builds the project itself.
setup_inputs = []
setup_timeout_secs = {setup_timeout_secs}
# Globs of files and folders of your checkout that git ignores and that are copied there, such
# as ".env"; the patterns of a file .worktreeinclude count too.
include = {include}
# Fill submodules from your own clones of them.
submodules = {submodules}
# Let agents move a submodule to a commit that its remote does not have.
submodules_may_move = {submodules_may_move}
# Names of variables that setup, agent and guard get from your environment.
env = []
# Where private checkouts are kept; "" is $XDG_STATE_HOME/runner or ~/.local/state/runner.
root = ""

[guard]
# Decides whether a leaf passes: exit code 0 is a pass.
command = {guard}
# Globs of files that agents may neither change nor make (`*` stays in a folder, `**` does not).
protected = {protected}
# Values inside JSON and TOML files that must stay as they are, such as "package.json:/scripts".
protected_values = {protected_values}
# Globs of files that they may change, but that are pointed out to you, such as tests.
watched = {watched}
# Names of variables that the guard alone gets from your environment.
env = []
# Globs of build outputs that stay from one verdict to the next, so that the guard is faster.
keep = {keep}
# "warm" keeps them, "cold" begins every verdict with nothing but what setup makes.
checkout = "{checkout}"
# Globs of reports in JUnit's format that the guard writes, such as "reports/**/*.xml": they show which tests ran
# where its output does not.
junit = []
# Globs of the files that are tests. Agents may change them, and you are told which.
tests = {tests}
# What counts for tests that were changed since the run began: "off", "report" tells of them, "require" wants the
# guard green with the tests of the run's start, too (a fleet takes "report" for "require").
original_tests = "{original_tests}"
# Globs of tests that may change all the same under "require".
released_tests = []
# Globs of the files that are the product: `runner land` tries them with the tests and settings of your branch. `!` takes
# files out again, "@settings" means CI, manifests, lock files and the settings of tools.
product = {product}

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
# What of your own settings for the CLI reaches sessions: "mcp", "hooks", "settings", "instructions".
inherit = []

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
# Confines what agent, setup and guard can read, write and reach: off, auto (if the system can),
# or required.
mode = "{mode}"
# Paths that are hidden by default (keys, logins, histories) and that all three may read. What is
# hidden is opened by its own path alone, not by that of a folder around it.
readable = []
# Paths outside the project that all three may write to. Package caches are the runner's own.
writable = []
# More paths that none of the three may read, such as "~/private".
hidden = []
# How large those caches may become.
cache_limit = "{cache_limit}"

# The same lists for one of the three alone: [sandbox.session], [sandbox.setup], [sandbox.guard].
# [sandbox.guard]
# readable = ["/run/docker.sock"]

# What they can reach: "open", "off", "agent" (the hosts of the agent) or a list of hosts.
[sandbox.network]
session = "open"
setup = "open"
guard = "{guard_network}"

# A child that exceeds one of these is ended; other sessions go on.
[sandbox.limits]
# Of all children of all runners together, in hundredths of the machine or as a size.
memory = "75%"
processes = {processes}
workspace_growth = "{workspace_growth}"
# What must remain on the disk.
free_space = "{free_space}"

# Many tasks side by side, each in a repository of its own: runner fleet
[fleet]
# How many agents there are of each role.
workers = {workers}
testers = {testers}
docsers = {docsers}
judges = {judges}
# Models to go through when a task fails; empty: [executor] model alone.
models = []
# Whether an agent reviews every result before it is merged.
review = {review}
# The branch that results are merged into; empty: the one that is checked out.
base = "{base}"
# How long one attempt at a task may take.
timebox_minutes = {timebox_minutes}
# An agent of which nothing is heard for so long is taken for dead.
timeout_seconds = {timeout_seconds}
heartbeat_interval_seconds = {heartbeat_interval_seconds}
# How long a task whose dependency failed waits for you before it fails too.
dependency_grace_hours = {dependency_grace_hours}
# The largest result; 0 is no limit.
max_changed_files = {max_changed_files}
max_changed_bytes = {max_changed_bytes}
# The port of the API on this machine; 0 takes a free one.
port = {port}
"#,
        setup_timeout_secs = workspace.setup_timeout_secs,
        submodules = workspace.submodules,
        submodules_may_move = workspace.submodules_may_move,
        checkout = guard_default.checkout,
        original_tests = guard_default.original_tests,
        product = array(&guard_default.product),
        max_consecutive_errors = run_loop.max_consecutive_errors,
        on_timeout = run_loop.on_timeout,
        wait_quota = run_loop.wait_quota,
        model = executor.model,
        idle_timeout_secs = executor.idle_timeout_secs,
        max_tokens = budget.max_tokens,
        max_cost_usd = budget.max_cost_usd,
        mode = sandbox.mode,
        cache_limit = show_size(sandbox.cache_limit),
        guard_network = project.guard_network,
        processes = sandbox.limits.processes,
        workspace_growth = show_size(sandbox.limits.workspace_growth),
        free_space = show_size(sandbox.limits.free_space),
        workers = fleet.workers,
        testers = fleet.testers,
        docsers = fleet.docsers,
        judges = fleet.judges,
        review = fleet.review,
        base = fleet.base,
        timebox_minutes = fleet.timebox_minutes,
        timeout_seconds = fleet.timeout_seconds,
        heartbeat_interval_seconds = fleet.heartbeat_interval_seconds,
        dependency_grace_hours = fleet.dependency_grace_hours,
        max_changed_files = fleet.max_changed_files,
        max_changed_bytes = fleet.max_changed_bytes,
        port = fleet.port,
    )
}

fn array(words: &[String]) -> String {
    toml::Value::from(words.to_vec()).to_string()
}
