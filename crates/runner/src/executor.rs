//! Agent backends behind one interface.

use std::ffi::OsString;

use runner_core::config::{Backend, Config};

/// A way to start an agent. All take the prompt on stdin, work in the project's
/// root in a fresh session and leave `output.json`.
pub(crate) trait Executor {
    /// The name in `meta.json`.
    fn name(&self) -> &'static str;

    /// What to start.
    fn argv(&self) -> Vec<OsString>;

    /// What to add to the child's environment.
    fn env(&self) -> Vec<(OsString, OsString)>;
}

/// The configured backend; the config has been checked for what is available.
pub(crate) fn backend(config: &Config) -> Box<dyn Executor> {
    match config.executor.backend {
        Backend::Command | Backend::Codex | Backend::Claude | Backend::Opencode => {
            Box::new(CommandBackend {
                argv: config.executor.command.iter().map(OsString::from).collect(),
            })
        }
    }
}

/// Any program that follows the documented protocol.
struct CommandBackend {
    argv: Vec<OsString>,
}

impl Executor for CommandBackend {
    fn name(&self) -> &'static str {
        "command"
    }

    fn argv(&self) -> Vec<OsString> {
        self.argv.clone()
    }

    fn env(&self) -> Vec<(OsString, OsString)> {
        Vec::new()
    }
}
