//! The eval harness: whole loops of the real binary on declared cases, and numbers about them.
//!
//! ```text
//! case files ── Library ──► run: workspace, init, start, loop, checks ──► results/CASE/RUN/
//!                                                                              │
//!                             report, compare ◄── Records ◄────────────────────┘
//! ```
//!
//! The runner is driven as a user drives it, by its command line, in a workspace of its own. This
//! crate decides nothing that a loop decides: it looks at exit codes, at files and at what checks
//! say. It prints nothing.

pub mod case;
mod checks;
mod child;
mod clean;
mod folders;
mod from_git;
mod outcome;
mod record;
pub mod report;
mod run;
pub mod stats;
mod workspace;

pub use clean::{CleanReport, clean};
pub use folders::{EvalFolders, EvalInitReport, FolderOptions, init};
pub use from_git::{FromGitOptions, LeftOut, MinedCases, MinedCommit, from_git};
pub use record::{CheckResult, EvalRecord, EvalRecords, EvalSetup, RECORD_VERSION};
pub use run::{EvalContext, EvalProgress, EvalRunReport, EvalWatcher, RunOptions, SetRecord, run};
