//! A case: what a loop is asked to do, in which workspace, and how the result is judged.

mod load;
mod place;
mod read;
mod settings;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

pub use load::{CaseLibrary, sample_case};
pub use settings::{CaseOverrides, CaseSettings, executor_of_file, parse_executor};

#[cfg(test)]
use read::parse;

/// How long a check command may take unless its check says otherwise.
pub const CHECK_TIMEOUT_SECS: u64 = 60;

/// How long `setup` may take.
pub const SETUP_TIMEOUT_SECS: u64 = 600;

/// How long a whole loop may take unless the case says otherwise.
pub const LOOP_TIMEOUT_SECS: u64 = 4 * 60 * 60;

/// What a run came to.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum EvalOutcome {
    /// The loop completed its tree, and every check passed.
    Success,
    /// The loop completed its tree, but a check did not pass.
    Fail,
    /// The loop ended at a leaf that used up its attempts.
    Stuck,
    /// Anything else.
    Error,
}

impl EvalOutcome {
    /// Every outcome.
    pub const ALL: [EvalOutcome; 4] = [
        EvalOutcome::Success,
        EvalOutcome::Fail,
        EvalOutcome::Stuck,
        EvalOutcome::Error,
    ];

    /// The word in files and tables.
    pub fn as_str(self) -> &'static str {
        match self {
            EvalOutcome::Success => "success",
            EvalOutcome::Fail => "fail",
            EvalOutcome::Stuck => "stuck",
            EvalOutcome::Error => "error",
        }
    }

    /// The outcome that a word stands for.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|it| it.as_str() == word)
    }
}

impl fmt::Display for EvalOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// A case as its file says.
#[derive(Clone, Debug, PartialEq)]
pub struct EvalCase {
    /// Its name: of the file's results, of the run and of its branch.
    pub id: String,
    /// What shall be true in the end: the text of GOAL.md.
    pub goal: String,
    /// Which outcome is the right one.
    pub expect: EvalOutcome,
    /// The justfile of the workspace.
    pub justfile: Option<String>,
    /// Programs that must be there besides those that the commands name.
    pub requires: Vec<String>,
    /// A command that makes the workspace ready, before the run begins.
    pub setup: Vec<String>,
    /// How long the whole loop may take.
    pub timeout_secs: u64,
    /// Variables for the runner, the agent, `setup` and the checks.
    pub env: BTreeMap<String, String>,
    /// Files of the workspace, by path.
    pub files: BTreeMap<String, String>,
    /// The repository that the workspace is taken from.
    pub source: Option<CaseSource>,
    /// How the result is judged; not empty.
    pub checks: Vec<CaseCheck>,
    /// `[config]` and `[executor]`.
    pub settings: CaseSettings,
    /// Where it was read from.
    pub file: PathBuf,
    /// SHA-256 of the file: runs of another text are runs of another case.
    pub hash: String,
}

impl EvalCase {
    /// The first line of the goal, as a title.
    pub fn title(&self) -> &str {
        let line = self.goal.lines().find(|line| !line.trim().is_empty());
        line.unwrap_or_default()
            .trim_start_matches(['#', ' '])
            .trim()
    }
}

/// A commit of a repository as the beginning of a workspace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CaseSource {
    /// The repository, absolute.
    pub repository: PathBuf,
    /// The commit whose files the workspace begins with.
    pub commit: String,
    /// The commit that `tests` are taken from.
    pub tests_from: Option<String>,
    /// Files that are laid down when the workspace is made, and again before the checks.
    pub tests: Vec<String>,
}

/// One thing to look at in the end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CaseCheck {
    /// Something lies at this path.
    FileExists {
        /// From the workspace's root.
        path: String,
    },
    /// A file has this text in it.
    FileContains {
        /// From the workspace's root.
        path: String,
        /// What to look for.
        text: String,
    },
    /// A command ends with code 0.
    CommandSucceeds {
        /// Its argv.
        cmd: Vec<String>,
        /// How long it may take.
        timeout_secs: u64,
    },
    /// A command ends with code 0 and prints what it should on stdout.
    CommandOutput {
        /// Its argv.
        cmd: Vec<String>,
        /// What it prints.
        wants: ExpectedOutput,
        /// How long it may take.
        timeout_secs: u64,
    },
    /// The loop completed its tree.
    RunnerCompleted,
    /// The final tree is like this.
    Tree(TreeCheck),
}

/// What a command should print.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExpectedOutput {
    /// Exactly this; white space at the end does not count.
    Equals(String),
    /// This among other things.
    Contains(String),
}

/// A predicate on the final tree: all that is given must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TreeCheck {
    /// The node that `passes` and `attempts_at_most` are about; the root without it.
    pub node: Option<String>,
    /// Whether it has passed.
    pub passes: Option<bool>,
    /// It used no more attempts than this.
    pub attempts_at_most: Option<u32>,
    /// Fewest nodes.
    pub min_nodes: Option<u32>,
    /// Most nodes.
    pub max_nodes: Option<u32>,
    /// Fewest levels; the root is the first.
    pub min_depth: Option<u32>,
    /// Most levels.
    pub max_depth: Option<u32>,
}

impl CaseCheck {
    /// The word of `type`.
    pub fn kind(&self) -> &'static str {
        match self {
            CaseCheck::FileExists { .. } => "file_exists",
            CaseCheck::FileContains { .. } => "file_contains",
            CaseCheck::CommandSucceeds { .. } => "command_succeeds",
            CaseCheck::CommandOutput { .. } => "command_output",
            CaseCheck::RunnerCompleted => "runner_completed",
            CaseCheck::Tree(_) => "tree",
        }
    }

    /// What it looks at, on one line.
    pub fn about(&self) -> String {
        match self {
            CaseCheck::FileExists { path } | CaseCheck::FileContains { path, .. } => path.clone(),
            CaseCheck::CommandSucceeds { cmd, .. } | CaseCheck::CommandOutput { cmd, .. } => {
                let words: Vec<&str> = cmd.iter().flat_map(|it| it.split_whitespace()).collect();
                runner_core::text::cut_chars(&words.join(" "), 80).into_owned()
            }
            CaseCheck::RunnerCompleted => String::new(),
            CaseCheck::Tree(it) => it.node.clone().unwrap_or_else(|| "root".to_owned()),
        }
    }

    /// The command, if it is one.
    pub fn command(&self) -> Option<&[String]> {
        match self {
            CaseCheck::CommandSucceeds { cmd, .. } | CaseCheck::CommandOutput { cmd, .. } => {
                Some(cmd)
            }
            _ => None,
        }
    }
}

/// Something that is wrong with a case file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CaseProblem {
    /// The file.
    pub file: PathBuf,
    /// The line, from 1.
    pub line: Option<usize>,
    /// The key, with its table; empty when it is about the whole file.
    pub key: String,
    /// What is wrong, a lowercase fragment.
    pub message: String,
    /// What to do about it.
    pub hint: Option<String>,
}

impl fmt::Display for CaseProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.file.display())?;
        if let Some(line) = self.line {
            write!(f, ":{line}")?;
        }
        f.write_str(": ")?;
        if !self.key.is_empty() {
            write!(f, "{}: ", self.key)?;
        }
        f.write_str(&self.message)
    }
}
