//! How a task fails: what went wrong, and what to do about it.

use std::fmt;

/// The result of a task or of a part of one.
pub(crate) type TaskResult<T> = std::result::Result<T, TaskFailure>;

/// What went wrong, with the remedy where one is known.
#[derive(Debug)]
pub(crate) struct TaskFailure {
    message: String,
    hint: Option<String>,
    usage: bool,
}

impl TaskFailure {
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            hint: None,
            usage: false,
        }
    }

    /// A command line that was not understood.
    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self {
            usage: true,
            ..Self::new(message)
        }
    }

    /// Says what to do about it.
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// The remedy, if one is known.
    pub(crate) fn remedy(&self) -> Option<&str> {
        self.hint.as_deref()
    }

    pub(crate) fn exit_code(&self) -> u8 {
        if self.usage { 2 } else { 1 }
    }
}

impl fmt::Display for TaskFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

/// Names the thing that an I/O error happened to.
pub(crate) trait FailureContext<T> {
    /// Turns the error into a failure that begins with `what`.
    fn context(self, what: impl fmt::Display) -> TaskResult<T>;
}

impl<T, E: fmt::Display> FailureContext<T> for std::result::Result<T, E> {
    fn context(self, what: impl fmt::Display) -> TaskResult<T> {
        self.map_err(|error| TaskFailure::new(format!("{what}: {error}")))
    }
}
