//! What a command says when it cannot do what it was asked to.

use std::io;

use runner_core::meta::IterationErrorKind;

/// The kinds of errors that scripts can tell apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorCode {
    /// `.runner/` is missing or not as it should be.
    Layout,
    /// `config.toml` is wrong, or asks for what cannot be done.
    Config,
    /// The tree is invalid.
    Tree,
    /// Goal, state and branch do not belong to one run.
    Identity,
    /// Git failed or is not as it should be.
    Git,
    /// The work tree has uncommitted changes.
    Dirty,
    /// Another runner is at work here.
    Locked,
    /// The iteration limit is reached.
    Limit,
    /// A signal.
    Interrupted,
    /// There is no such node, run or iteration.
    NotFound,
    /// What a person asked for is against the rules.
    Refused,
    /// A recorded run does not come out the same again.
    Mismatch,
    /// Not every leaf has passed.
    Incomplete,
    /// Two changes do not fit together.
    Conflict,
    /// The guard failed.
    GuardFailed,
    /// Reading or writing failed.
    Io,
    /// An iteration was recorded as a runner error of this kind.
    Step(IterationErrorKind),
}

impl ErrorCode {
    /// The word in `--json`.
    pub fn as_str(self) -> &'static str {
        match self {
            ErrorCode::Layout => "layout",
            ErrorCode::Config => "config",
            ErrorCode::Tree => "tree",
            ErrorCode::Identity => "identity",
            ErrorCode::Git => "git",
            ErrorCode::Dirty => "dirty",
            ErrorCode::Locked => "locked",
            ErrorCode::Limit => "limit",
            ErrorCode::Interrupted => "interrupted",
            ErrorCode::NotFound => "not_found",
            ErrorCode::Refused => "refused",
            ErrorCode::Mismatch => "mismatch",
            ErrorCode::Incomplete => "incomplete",
            ErrorCode::Conflict => "conflict",
            ErrorCode::GuardFailed => "guard_failed",
            ErrorCode::Io => "io",
            ErrorCode::Step(kind) => kind.as_str(),
        }
    }
}

/// An error for people and scripts: what happened, and how to fix it.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{message}")]
pub struct Error {
    /// What kind.
    pub code: ErrorCode,
    /// What happened and where, a lowercase fragment (several lines if need be).
    pub message: String,
    /// What to do about it.
    pub hint: Option<String>,
}

impl Error {
    /// An error without a hint.
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Error {
            code,
            message: message.into(),
            hint: None,
        }
    }

    /// Adds what to do.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

impl From<io::Error> for Error {
    fn from(error: io::Error) -> Self {
        let hint = match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                "free some space, then run the same command again: nothing is lost"
            }
            io::ErrorKind::ReadOnlyFilesystem => {
                "the file system is read-only; make it writable, then run the same command again"
            }
            io::ErrorKind::PermissionDenied => {
                "check who owns the files of this project; `runner rescue` moves out of the way what a session left in its workspace"
            }
            io::ErrorKind::ResourceBusy
            | io::ErrorKind::DirectoryNotEmpty
            | io::ErrorKind::IsADirectory
            | io::ErrorKind::NotADirectory
            | io::ErrorKind::InvalidFilename => {
                "`runner rescue` moves out of the way what a session left in its workspace"
            }
            _ => return Error::new(ErrorCode::Io, error.to_string()),
        };
        Error::new(ErrorCode::Io, error.to_string()).hint(hint)
    }
}

/// The result of most operations here.
pub type Result<T, E = Error> = std::result::Result<T, E>;
