//! What can go wrong around an agent, and what follows from it.

use serde::{Deserialize, Serialize};

use crate::config::OnTimeout;

/// What went wrong around the agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum IterationErrorKind {
    /// The agent's program could not be started.
    Spawn,
    /// The agent did not end in time.
    Timeout,
    /// The agent fell silent for too long.
    Idle,
    /// There is no `output.json`.
    NoOutput,
    /// `output.json` is not what the schema asks for.
    MalformedOutput,
    /// The guard's program could not be started.
    GuardSpawn,
    /// The guard did not end in time.
    GuardTimeout,
    /// What a workspace or a clean checkout needs could not be made.
    Setup,
    /// Earlier versions: the run's branch was left, reset or rewritten.
    Branch,
    /// A git command failed.
    Git,
    /// Reading or writing failed.
    Io,
    /// No space is left.
    Disk,
    /// A signal or a crash.
    Interrupted,
    /// The account's quota is used up.
    Quota,
    /// Too many requests in too short a time.
    RateLimit,
    /// No or a wrong key.
    Auth,
    /// The session filled the model's context.
    ContextFull,
    /// The model could not be reached.
    Network,
    /// The model's service is overloaded or broken.
    Overloaded,
    /// The agent failed for another reason.
    Agent,
    /// The budget of the run is used up.
    Budget,
    /// A child used up more than `[sandbox.limits]` allows, or a disk is full.
    Resources,
}

/// What the loop does after an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AfterError {
    /// Try again after a pause.
    Retry,
    /// Wait until the quota is there again, if that is wanted.
    WaitForQuota,
    /// End with status `limit`.
    Limit,
    /// End with status `error`.
    End,
}

impl IterationErrorKind {
    /// The word that is printed and recorded.
    pub fn as_str(self) -> &'static str {
        match self {
            IterationErrorKind::Spawn => "spawn",
            IterationErrorKind::Timeout => "timeout",
            IterationErrorKind::Idle => "idle",
            IterationErrorKind::NoOutput => "no_output",
            IterationErrorKind::MalformedOutput => "malformed_output",
            IterationErrorKind::GuardSpawn => "guard_spawn",
            IterationErrorKind::GuardTimeout => "guard_timeout",
            IterationErrorKind::Setup => "setup",
            IterationErrorKind::Branch => "branch",
            IterationErrorKind::Git => "git",
            IterationErrorKind::Io => "io",
            IterationErrorKind::Disk => "disk",
            IterationErrorKind::Interrupted => "interrupted",
            IterationErrorKind::Quota => "quota",
            IterationErrorKind::RateLimit => "rate_limit",
            IterationErrorKind::Auth => "auth",
            IterationErrorKind::ContextFull => "context_full",
            IterationErrorKind::Network => "network",
            IterationErrorKind::Overloaded => "overloaded",
            IterationErrorKind::Agent => "agent",
            IterationErrorKind::Budget => "budget",
            IterationErrorKind::Resources => "resources",
        }
    }

    /// What the loop does after the error: transient ones are tried again.
    pub fn after(self, on_timeout: OnTimeout) -> AfterError {
        match self {
            IterationErrorKind::NoOutput
            | IterationErrorKind::MalformedOutput
            | IterationErrorKind::RateLimit
            | IterationErrorKind::ContextFull
            | IterationErrorKind::Network
            | IterationErrorKind::Overloaded
            | IterationErrorKind::Agent
            | IterationErrorKind::Resources => AfterError::Retry,
            IterationErrorKind::Quota => AfterError::WaitForQuota,
            IterationErrorKind::Budget => AfterError::Limit,
            IterationErrorKind::Timeout
            | IterationErrorKind::Idle
            | IterationErrorKind::GuardTimeout => match on_timeout {
                OnTimeout::Retry => AfterError::Retry,
                OnTimeout::Stop => AfterError::End,
            },
            IterationErrorKind::Spawn
            | IterationErrorKind::GuardSpawn
            | IterationErrorKind::Setup
            | IterationErrorKind::Branch
            | IterationErrorKind::Git
            | IterationErrorKind::Io
            | IterationErrorKind::Disk
            | IterationErrorKind::Auth
            | IterationErrorKind::Interrupted => AfterError::End,
        }
    }
}
