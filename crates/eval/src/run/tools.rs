//! Which programs a case needs, and which of them are not there.

use std::path::Path;

use runner_core::config::{BackendKind, Config};

use crate::case::EvalCase;

/// The first program of the case that is not there.
pub(crate) fn missing(case: &EvalCase, config: &Config) -> Option<String> {
    let mut env = runner::inherited();
    env.extend(
        case.env
            .iter()
            .map(|(name, value)| (name.into(), value.into())),
    );
    needed(case, config).into_iter().find(|program| {
        // Only names are looked up; a path may be made by the run itself.
        runner::resolve(program.as_ref(), Path::new("/"), &env).is_err()
    })
}

/// Every program by the name under which it is looked up on PATH.
fn needed(case: &EvalCase, config: &Config) -> Vec<String> {
    let agent = match config.executor.backend {
        BackendKind::Command => config.executor.command.first().cloned(),
        other => runner_agents::backend(other).program().map(str::to_owned),
    };
    let guard = config.guard.command.first().cloned();
    let mut names: Vec<String> = case.requires.clone();
    names.extend(agent);
    names.extend(guard);
    names.extend(case.setup.first().cloned());
    let commands = case.checks.iter().filter_map(|check| check.command());
    names.extend(commands.filter_map(|words| words.first().cloned()));
    names.retain(|name| !name.contains('/'));
    let mut seen = std::collections::HashSet::new();
    names.retain(|name| seen.insert(name.clone()));
    names
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::case::{CaseCheck, CaseLibrary};

    #[test]
    fn programs_are_named_once_and_paths_are_none() {
        let temp = tempfile::tempdir().unwrap();
        std::fs::write(temp.path().join("hello.toml"), crate::case::sample_case()).unwrap();
        let library = CaseLibrary::load(temp.path()).unwrap();
        let mut case = library.cases["hello"].clone();
        case.requires = vec!["no-such-tool-here".to_owned()];
        case.checks.push(CaseCheck::CommandSucceeds {
            cmd: vec!["./built".to_owned()],
            timeout_secs: 1,
        });
        let config = Config {
            executor: runner_core::config::ExecutorConfig {
                backend: BackendKind::Command,
                command: vec!["sh".to_owned()],
                ..Config::default().executor
            },
            ..Config::default()
        };
        assert_eq!(
            needed(&case, &config),
            ["no-such-tool-here", "sh", "just", "cat"]
        );
        assert_eq!(
            missing(&case, &config).as_deref(),
            Some("no-such-tool-here")
        );
    }
}
