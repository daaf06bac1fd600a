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

pub use clean::{Cleaned, clean};
pub use folders::{Begun, FolderOptions, Folders, init};
pub use from_git::{FromGitOptions, LeftOut, Mined, MinedCommit, from_git};
pub use record::{CheckResult, RECORD_VERSION, Record, Records, Setup};
pub use run::{Progress, RunOptions, RunReport, SetRecord, Watcher, World, run};
