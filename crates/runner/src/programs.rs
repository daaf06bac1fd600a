//! Whether the programs that a config names are there at all, before many are put to work
//! who would all fail in the same way.

use std::ffi::{OsStr, OsString};
use std::path::Path;

use runner_core::config::Config;

use crate::error::{Error, ErrorCode, Result};
use crate::step::environment;

/// Refuses a config whose agent cannot be started.
pub fn agent_is_there(config: &Config, root: &Path) -> Result<()> {
    let executor = &config.executor;
    let named = executor.command.first().map(String::as_str);
    let program = runner_agents::backend(executor.backend).program();
    let Some(program) = program.or(named) else {
        return Ok(());
    };
    let mut env = environment::inherited();
    let own = executor.env.iter();
    env.extend(own.map(|(name, value)| (name.into(), value.into())));
    let hint =
        "install it, or name another one in [executor] of the config; `runner doctor` looks closer";
    check("agent", program, root, &env, hint)
}

/// Refuses a config whose guard cannot be started.
pub fn guard_is_there(config: &Config, root: &Path) -> Result<()> {
    let Some(program) = config.guard.command.first() else {
        return Ok(());
    };
    let env = environment::inherited();
    let hint = "install it, or change [guard] command of the config; `runner doctor` looks closer";
    check("guard", program, root, &env, hint)
}

fn check(
    what: &str,
    program: &str,
    root: &Path,
    env: &[(OsString, OsString)],
    hint: &str,
) -> Result<()> {
    // A path in the repo may be there on the branch that is worked on, and not here.
    if program.contains('/') && !Path::new(program).is_absolute() {
        return Ok(());
    }
    match environment::resolve(OsStr::new(program), root, env) {
        Ok(_) => Ok(()),
        Err(error) => Err(Error::new(
            ErrorCode::Config,
            format!("the {what} {}, so every task would fail", error.message),
        )
        .hint(hint)),
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
            error.message.starts_with("the agent cannot start `codex`"),
            "{}",
            error.message
        );
    }
}
