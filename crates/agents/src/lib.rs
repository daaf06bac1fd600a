//! How each agent CLI is called, and what its output means.
//!
//! A [`Backend`] turns a [`AgentSpec`] into an [`Invocation`] (data: argv, environment,
//! what it must be able to write) and gives a [`AgentReader`] that understands the lines
//! which the CLI prints. The reader knows one small vocabulary of [`AgentEvent`]s for all
//! CLIs, counts tokens, and says at the end what the session came to.
//!
//! Nothing here does anything: no file, process, environment or clock is touched.
//! Whoever runs the CLI passes its lines in, and the time when it is needed. Nothing
//! here judges the report either: a session counts only with a valid one, which is
//! [`runner_core::output`]'s matter.

mod claude;
mod codex;
mod command;
mod event;
mod failure;
mod home;
mod hosts;
mod jsonc;
mod lax;
mod opencode;
mod probe;
mod reader;
mod shell;
mod usage;

use std::ffi::OsString;
use std::path::Path;

use runner_core::config::{self, InheritPart};

pub use event::{AgentEvent, FileChangeKind};
pub use failure::{AgentFailure, FailureKind, LimitReset, LocalZone, classify};
pub use home::login::{LoginFile, LoginPlace};
pub use home::{HomeContent, HomeEntry, HomeInput};
pub use hosts::AgentHostsInput;
pub use probe::{CliHelp, CliLogin, CliProbe, CliVersion, VersionFit};
pub use reader::{AgentReader, EventLine, SessionEnding};
pub use runner_core::mask::{mask_text, masked};
pub use usage::SessionUsage;

/// What a session is to be like.
#[derive(Clone, Copy, Debug)]
pub struct AgentSpec<'a> {
    /// Where the agent works.
    pub project_dir: &'a Path,
    /// Where the report must end up. CLIs that can write it there themselves are told
    /// to; else it comes in [`SessionEnding::output`], or the prompt asks the agent for it.
    pub output_path: &'a Path,
    /// A file with [`runner_core::schema::AGENT_OUTPUT_FOR_MODELS`].
    pub schema_path: &'a Path,
    /// The same as text.
    pub schema_json: &'a str,
    /// The model; empty leaves it to the CLI.
    pub model: &'a str,
    /// Arguments of the user's; they come after ours, so that they win.
    pub extra_args: &'a [String],
    /// The whole command of the backend `command`; others ignore it.
    pub command: &'a [String],
    /// Whether the runner's own sandbox is around the session. The CLI's own one is
    /// then switched off on purpose: they do not nest everywhere.
    pub contained: bool,
    /// Whether the session runs as root, where claude refuses some flags.
    pub is_root: bool,
    /// A folder that the CLI is to use instead of its own folders in HOME.
    pub agent_home: Option<&'a Path>,
    /// A folder with the login that sessions share, if there is one.
    pub login_folder: Option<&'a Path>,
    /// What of the person's settings was let into that home.
    pub inherit: &'a [InheritPart],
    /// The project's own instructions for agents, where they are not in that home: a file with
    /// them, and its text.
    pub instructions: Option<(&'a Path, &'a str)>,
}

impl AgentSpec<'_> {
    /// Whether a part of the person's settings is in the home.
    fn has(&self, part: InheritPart) -> bool {
        self.agent_home.is_some() && self.inherit.contains(&part)
    }
}

/// How to start a CLI. The prompt goes to its stdin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Invocation {
    /// The program and its arguments.
    pub argv: Vec<OsString>,
    /// Variables to set: no telemetry, no updates, no compaction.
    pub env: Vec<(OsString, OsString)>,
    /// Variables of the runner's environment that this CLI understands, beyond those
    /// that every child gets: its keys, homes and the like.
    pub passed_env: &'static [&'static str],
    /// What the CLI writes below HOME: folders, and files where the name says so.
    /// Empty when the session has a home of its own.
    pub writable_home: Vec<&'static str>,
    /// Variables of the session's environment that move those folders elsewhere.
    pub moved_homes: &'static [MovedHome],
}

/// A variable that names a folder which the CLI writes to instead of one below HOME.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MovedHome {
    /// The variable.
    pub variable: &'static str,
    /// What comes after its value.
    pub below: &'static str,
    /// Which of [`Invocation::writable_home`] are not used then.
    pub instead_of: &'static [&'static str],
}

/// One agent CLI.
pub trait Backend: Send + Sync {
    /// The word in the configuration.
    fn name(&self) -> &'static str;

    /// The program, unless the user's command names it.
    fn program(&self) -> Option<&'static str>;

    /// How to start it.
    fn invocation(&self, session: &AgentSpec<'_>) -> Invocation;

    /// Who reads what it prints; one per session.
    fn reader(&self) -> Box<dyn AgentReader>;

    /// Whether its events say how many tokens were used.
    fn reports_tokens(&self) -> bool;

    /// Whether its events say what that cost.
    fn reports_cost(&self) -> bool;

    /// How to find out whether it is there and fit.
    fn probe(&self) -> CliProbe;

    /// The hosts that it cannot do without, as entries of a list of hosts: those of the service that
    /// its own config names, else its vendor's.
    fn hosts(&self, input: &AgentHostsInput<'_>) -> Vec<String>;

    /// What is in the private home of a session; `None`: it uses the person's own folders.
    fn home(&self, _input: &HomeInput<'_>) -> Option<HomeContent> {
        None
    }

    /// Variables that name folders which take the place of a private home.
    fn home_variables(&self) -> &'static [&'static str] {
        &[]
    }

    /// Where its login is kept.
    fn login_file(&self) -> Option<LoginFile> {
        None
    }
}

/// The backend for a word of the configuration.
pub fn backend(kind: config::BackendKind) -> Box<dyn Backend> {
    match kind {
        config::BackendKind::Codex => Box::new(codex::Codex),
        config::BackendKind::Claude => Box::new(claude::Claude),
        config::BackendKind::Opencode => Box::new(opencode::Opencode),
        config::BackendKind::Command => Box::new(command::AnyCommand),
    }
}

/// Words of a command line, one `OsString` each.
fn words<const N: usize>(words: [&str; N]) -> impl Iterator<Item = OsString> {
    words.into_iter().map(OsString::from)
}

/// Variables, one pair each.
fn variables<const N: usize>(pairs: [(&str, &str); N]) -> Vec<(OsString, OsString)> {
    pairs
        .into_iter()
        .map(|(name, value)| (name.into(), value.into()))
        .collect()
}
