//! Hermetic repositories and scripted agents for black-box tests of the
//! `runner` binary.
//!
//! A [`TestRepo`] is a temporary folder with a home, a git repository and an
//! agent made of shell scripts. Everything runs with a cleared environment, so
//! a test gives the same result on every machine. Nothing here knows the crates
//! of the runner: what a test sees is what a user sees.
//!
//! ```no_run
//! use runner_testkit::TestRepo;
//!
//! let mut repo = TestRepo::new("target/debug/runner");
//! repo.agent("echo hi > greeting; out done 'said hi'");
//! repo.start_run("Greet the world.", &["test", "-f", "greeting"]);
//! repo.runner(&["step"]).success();
//! assert_eq!(repo.node("root")["passes"], true);
//! repo.assert_clean();
//! ```
//!
//! Failures panic with all the output there is: this crate is for tests alone.

mod agent;
mod check;
mod config;
mod json;
pub mod model;
mod postgres;
mod process;
mod program;
mod pty;
mod repo;
mod run;

pub use config::TestConfig;
pub use json::set_json;
pub use postgres::TestPostgres;
pub use process::{
    TestProcess, assert_no_process, assert_processes_end, eventually, processes_with_env, signal,
};
pub use program::write_program;
pub use pty::TestPty;
pub use repo::TestRepo;
pub use run::{TestChild, TestRun};
