//! Whether the programs that a config names are there at all, before many are put to work
//! who would all fail in the same way.

use std::ffi::{OsStr, OsString};
use std::path::Path;

use runner_core::config::Config;
use runner_core::meta::MISSING_AGENT_ADVICE;

use crate::error::{Error, ErrorCode, Result};
use crate::step::environment;

/// What is wrong where the agent of a config cannot be started, and what to do.
pub(crate) fn missing_agent_in_words(config: &Config, root: &Path) -> Option<String> {
    let words = missing_agent(config, root)?;
    Some(format!("{words}; {MISSING_AGENT_ADVICE}"))
}

/// Refuses a config whose agent cannot be started.
pub fn agent_is_there(config: &Config, root: &Path) -> Result<()> {
    match missing_agent(config, root) {
        Some(words) => Err(refusal(
            &words,
            "install it, or name another one in [executor] of the config; `runner doctor` looks closer",
        )),
        None => Ok(()),
    }
}

/// What is wrong where the agent of a config cannot be started.
fn missing_agent(config: &Config, root: &Path) -> Option<String> {
    let executor = &config.executor;
    let named = executor.command.first().map(String::as_str);
    let program = runner_agents::backend(executor.backend)
        .program()
        .or(named)?;
    let mut env = environment::inherited();
    let own = executor.env.iter();
    env.extend(own.map(|(name, value)| (name.into(), value.into())));
    missing("agent", program, root, &env)
}

/// Refuses a config whose guard cannot be started.
pub fn guard_is_there(config: &Config, root: &Path) -> Result<()> {
    let Some(program) = config.guard.command.first() else {
        return Ok(());
    };
    let env = environment::inherited();
    let hint = "install it, or change [guard] command of the config; `runner doctor` looks closer";
    match missing("guard", program, root, &env) {
        Some(words) => Err(refusal(&words, hint)),
        None => Ok(()),
    }
}

fn refusal(words: &str, hint: &str) -> Error {
    let message = format!("{words}, so every task would fail");
    Error::new(ErrorCode::Config, message).hint(hint)
}

fn missing(what: &str, program: &str, root: &Path, env: &[(OsString, OsString)]) -> Option<String> {
    // A path in the repo may be there on the branch that is worked on, and not here.
    if program.contains('/') && !Path::new(program).is_absolute() {
        return None;
    }
    let error = environment::resolve(OsStr::new(program), root, env).err()?;
    Some(not_started(what, &error.message))
}

/// Says what the program is that cannot be started.
pub(crate) fn not_started(what: &str, message: &str) -> String {
    match message.strip_prefix("cannot start `") {
        Some(rest) => format!("cannot start the {what} `{rest}"),
        None => format!("the {what}: {message}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(text: &str) -> Config {
        Config::parse(text).unwrap()
    }

    #[test]
    fn programs_that_are_there_and_not() {
        let root = Path::new("/");
        for (program, there) in [
            ("sh", true),
            ("/bin/sh", true),
            ("no-such-program", false),
            ("/no/such/program", false),
            // Perhaps on another branch.
            ("./ci.sh", true),
            ("tools/ci", true),
        ] {
            let text = format!(
                "[guard]\ncommand = [\"{program}\"]\n\
                 [executor]\nbackend = \"command\"\ncommand = [\"{program}\"]\n"
            );
            let config = config(&text);
            assert_eq!(guard_is_there(&config, root).is_ok(), there, "{program}");
            assert_eq!(agent_is_there(&config, root).is_ok(), there, "{program}");
        }
    }

    #[test]
    fn the_agent_is_looked_for_where_its_environment_says() {
        let text = "[executor]\nbackend = \"codex\"\n[executor.env]\nPATH = \"/no/such/folder\"\n";
        let error = agent_is_there(&config(text), Path::new("/")).unwrap_err();
        assert!(
            error
                .message
                .starts_with("cannot start the agent `codex`: "),
            "{}",
            error.message
        );
    }

    #[test]
    fn what_cannot_be_started_is_named() {
        for (message, expected) in [
            (
                "cannot start `codex`: no such file or directory",
                "cannot start the agent `codex`: no such file or directory",
            ),
            (
                "cannot start a program without a name",
                "the agent: cannot start a program without a name",
            ),
        ] {
            assert_eq!(not_started("agent", message), expected);
        }
    }
}
