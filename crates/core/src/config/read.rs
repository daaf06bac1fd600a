//! From TOML text to a [`Config`], by hand: serde would stop at the first finding
//! and could not tell the line.

use std::collections::BTreeMap;

use toml::de::{DeTable, DeValue};

use super::fleet;
use super::reader::{TomlReader, TomlTable, is_empty_array};
use super::sandbox;
use super::{
    BackendKind, BudgetConfig, CommitConfig, Config, ConfigFinding, ExecutorConfig, GuardConfig,
    LoopConfig, MIN_PROMPT_BUDGET, NotifyConfig, TokenPrice, WorkspaceConfig,
};
use crate::text::nearest;

/// A year: beyond it clocks overflow before anyone benefits.
const MAX_SECS: u64 = 366 * 24 * 60 * 60;

/// A GiB: what is kept of an output, and a prompt, are held in memory.
const MAX_KEPT_BYTES: usize = 1024 * 1024 * 1024;

/// The largest integer that TOML must be able to hold.
const MAX_TOML: u64 = i64::MAX.unsigned_abs();

const PRICE_KEYS: [&str; 3] = ["input", "cached", "output"];

pub(super) fn read(text: &str) -> Result<Config, Vec<ConfigFinding>> {
    let mut reader = TomlReader::new(text);
    match DeTable::parse(text) {
        Ok(document) => {
            let config = config(&mut reader, document.get_ref());
            reader.finish(config)
        }
        Err(error) => {
            // Its Display would quote the line, which may hold a secret.
            let message = format!("not valid TOML: {}", error.message().replace('\n', " "));
            let offset = error.span().map(|span| span.start);
            reader.note(offset, String::new(), message, None);
            reader.finish(Config::default())
        }
    }
}

fn config(reader: &mut TomlReader<'_>, document: &DeTable<'_>) -> Config {
    let default = Config::default();
    let root = TomlTable::root(document);
    reader.unknown_keys(root);
    let kept = 1..=MAX_KEPT_BYTES as u64;
    let executor = executor(reader, root);
    Config {
        max_attempts_default: reader.integer(
            root,
            "max_attempts_default",
            1..=u32::MAX,
            default.max_attempts_default,
        ),
        max_iterations: reader.integer(
            root,
            "max_iterations",
            1..=u32::MAX,
            default.max_iterations,
        ),
        iteration_timeout_secs: reader.integer(
            root,
            "iteration_timeout_secs",
            1..=MAX_SECS,
            default.iteration_timeout_secs,
        ),
        executor_output_limit_bytes: reader.integer(
            root,
            "executor_output_limit_bytes",
            kept.clone(),
            default.executor_output_limit_bytes,
        ),
        guard_output_limit_bytes: reader.integer(
            root,
            "guard_output_limit_bytes",
            kept,
            default.guard_output_limit_bytes,
        ),
        prompt_budget_bytes: reader.integer(
            root,
            "prompt_budget_bytes",
            MIN_PROMPT_BUDGET..=MAX_KEPT_BYTES,
            default.prompt_budget_bytes,
        ),
        workspace: workspace(reader, root),
        guard: guard(reader, root),
        run_loop: run_loop(reader, root),
        sandbox: sandbox::read(reader, root, executor.backend),
        executor,
        commit: commit(reader, root),
        prices: prices(reader, root),
        notify: notify(reader, root),
        budget: budget(reader, root),
        fleet: fleet::read(reader, root),
    }
}

fn guard(reader: &mut TomlReader<'_>, root: TomlTable<'_, '_>) -> GuardConfig {
    let default = GuardConfig::default();
    let table = reader.known_table(root, "guard");
    if table.get("command").is_some_and(is_empty_array) {
        let hint = "name the command that proves the work, for example [\"just\", \"ci\"]";
        reader.find(table, "command", "must not be empty", Some(hint.to_owned()));
    }
    GuardConfig {
        command: reader.argv(table, "command", default.command),
        protected: reader.globs(table, "protected", default.protected),
        protected_values: reader.protected_values(table, "protected_values"),
        watched: reader.globs(table, "watched", default.watched),
        env: reader.variable_names(table, "env"),
        keep: reader.folder_globs(table, "keep"),
        checkout: reader.word(table, "checkout", default.checkout),
        junit: reader.globs(table, "junit", default.junit),
        tests: reader.globs(table, "tests", default.tests),
        released_tests: reader.globs(table, "released_tests", default.released_tests),
        original_tests: reader.word(table, "original_tests", default.original_tests),
        product: reader.product(table, "product", default.product),
    }
}

fn workspace(reader: &mut TomlReader<'_>, root: TomlTable<'_, '_>) -> WorkspaceConfig {
    let default = WorkspaceConfig::default();
    let table = reader.known_table(root, "workspace");
    WorkspaceConfig {
        root: reader.string(table, "root", default.root),
        setup: reader.argv_or_script(table, "setup"),
        setup_inputs: reader.globs(table, "setup_inputs", default.setup_inputs),
        setup_timeout_secs: reader.integer(
            table,
            "setup_timeout_secs",
            1..=MAX_SECS,
            default.setup_timeout_secs,
        ),
        include: reader.folder_globs(table, "include"),
        submodules: reader.boolean(table, "submodules", default.submodules),
        submodules_may_move: reader.boolean(
            table,
            "submodules_may_move",
            default.submodules_may_move,
        ),
        env: reader.variable_names(table, "env"),
    }
}

fn run_loop(reader: &mut TomlReader<'_>, root: TomlTable<'_, '_>) -> LoopConfig {
    let default = LoopConfig::default();
    let table = reader.known_table(root, "loop");
    LoopConfig {
        max_consecutive_errors: reader.integer(
            table,
            "max_consecutive_errors",
            0..=u32::MAX,
            default.max_consecutive_errors,
        ),
        on_timeout: reader.word(table, "on_timeout", default.on_timeout),
        wait_quota: reader.boolean(table, "wait_quota", default.wait_quota),
    }
}

fn executor(reader: &mut TomlReader<'_>, root: TomlTable<'_, '_>) -> ExecutorConfig {
    let default = ExecutorConfig::default();
    let table = reader.known_table(root, "executor");
    let backend = reader.word(table, "backend", default.backend);
    if backend == BackendKind::Command && table.get("command").is_none_or(is_empty_array) {
        let at = table.get("command").or(table.get("backend"));
        reader.note(
            at.map(|value| value.span().start),
            table.full_name("command"),
            "must not be empty when backend is `command`".to_owned(),
            None,
        );
    }
    ExecutorConfig {
        backend,
        command: reader.argv(table, "command", default.command),
        model: reader.string(table, "model", default.model),
        extra_args: reader.strings(table, "extra_args", default.extra_args),
        idle_timeout_secs: reader.integer(
            table,
            "idle_timeout_secs",
            0..=MAX_SECS,
            default.idle_timeout_secs,
        ),
        inherit: reader.words(table, "inherit"),
        env: {
            let env = reader.table(table, "env").named("executor.env");
            reader.variables(env)
        },
    }
}

fn commit(reader: &mut TomlReader<'_>, root: TomlTable<'_, '_>) -> CommitConfig {
    let default = CommitConfig::default();
    let table = reader.known_table(root, "commit");
    CommitConfig {
        deny: reader.globs(table, "deny", default.deny),
        max_file_bytes: reader.integer(
            table,
            "max_file_bytes",
            1..=MAX_TOML,
            default.max_file_bytes,
        ),
    }
}

fn prices(reader: &mut TomlReader<'_>, root: TomlTable<'_, '_>) -> BTreeMap<String, TokenPrice> {
    let models = reader.table(root, "prices");
    let mut prices = BTreeMap::new();
    for (model, value) in models.entries() {
        let name = models.full_name(model.get_ref());
        let DeValue::Table(entries) = value.get_ref() else {
            reader.wrong_type(value, name, "a table with input, cached and output");
            continue;
        };
        let table = TomlTable::root(entries).named(&name);
        for (key, _) in table.entries() {
            if !PRICE_KEYS.contains(&&**key.get_ref()) {
                let (_, known) = nearest(key.get_ref(), &PRICE_KEYS);
                reader.note(
                    Some(key.span().start),
                    table.full_name(key.get_ref()),
                    "unknown key".to_owned(),
                    Some(format!("did you mean `{known}`?")),
                );
            }
        }
        let input = reader.amount(table, "input", 0.0);
        let price = TokenPrice {
            input,
            // Rather too dear than free.
            cached: reader.amount(table, "cached", input),
            output: reader.amount(table, "output", 0.0),
        };
        prices.insert(model.get_ref().to_string(), price);
    }
    prices
}

fn notify(reader: &mut TomlReader<'_>, root: TomlTable<'_, '_>) -> NotifyConfig {
    let default = NotifyConfig::default();
    let table = reader.known_table(root, "notify");
    NotifyConfig {
        command: reader.argv(table, "command", default.command),
    }
}

fn budget(reader: &mut TomlReader<'_>, root: TomlTable<'_, '_>) -> BudgetConfig {
    let default = BudgetConfig::default();
    let table = reader.known_table(root, "budget");
    BudgetConfig {
        max_tokens: reader.integer(table, "max_tokens", 0..=MAX_TOML, default.max_tokens),
        max_cost_usd: reader.amount(table, "max_cost_usd", default.max_cost_usd),
    }
}
