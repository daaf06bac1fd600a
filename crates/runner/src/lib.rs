//! The loop over real things: files, git, processes.
//!
//! Decisions are `runner_core`'s, children are `runner_exec`'s; here they are
//! put together into the operations that the command line offers.

#[cfg(not(target_os = "linux"))]
compile_error!("runner needs Linux: it relies on /proc, subreapers and flock");

mod abilities;
mod activity;
mod belongings;
mod branch_record;
mod budget;
mod by_hand;
mod capture;
mod containment;
mod detach;
mod disarm;
mod doctor;
mod environment;
mod error;
mod fault;
pub mod files;
mod follow;
mod git;
mod host;
mod image;
mod init;
mod landing;
mod lock;
mod log;
mod notes;
mod notify;
mod programs;
mod project;
mod recover;
mod repair;
mod replay;
mod report;
mod run_loop;
mod runs;
mod start;
mod state;
mod step;
mod stop;
mod tail;
mod trial;
mod trouble;
mod validate;
mod verify;
mod view;
pub mod workshop;

pub use activity::{
    ActivityTrail, LastEnd, LoopEvent, LoopWait, RunActivity, RunPhase, activity, events_path,
    loop_log,
};
pub use by_hand::{EditReport, EditTarget, EditText, PlanEdit, RetryReport, edit, retry};
pub use detach::LoopLog;
pub use doctor::{
    Diagnosis, DoctorCheck, DoctorGuardRun, DoctorOptions, DoctorVerdict, GuardTrials, doctor,
};
pub use environment::{inherited, resolve};
pub use error::{Error, ErrorCode, Result};
pub use follow::{FollowedEvent, RunFollower};
pub use git::{Git, TreeEntry};
pub use host::{NoObserver, ProgressObserver, RunContext, RunProgress, SystemWallClock, WallClock};
pub use init::{InitGuess, InitOptions, InitReport, detect_guard, guess, init, split_words};
pub use landing::{
    AbandonOptions, AbandonReport, GreenGuard, LandOptions, LandOutcome, LandReport, abandon, land,
};
pub use programs::{agent_is_there, guard_is_there};
pub use project::Project;
pub use replay::{ReplayReport, replay};
pub use report::report;
pub use run_loop::{LoopOptions, LoopOutcome, LoopStatus, run_loop};
pub use runs::{LandedAt, RunStanding, RunSummary, runs};
pub use start::{GuardAtBase, StartOptions, StartReport, go_to_run, start};
pub use state::ProjectProblem;
pub use step::{StepLeaf, StepReport, StepResult};
pub use stop::{StopRequest, ask_to_stop};
pub use validate::{NodeExplanation, SelectResult, find_node, select_next, validate, why};
pub use verify::{VerifyReport, verify};
pub use view::{
    IterationPatch, IterationView, RunView, base_of, config_of, goal_of, iteration_folder,
    load_tree, meta_of, note_of, patch_of, run_state_of, run_view, running_pid,
};

/// Settles what is unfinished, then takes one step.
pub fn step_once(project: &Project, host: &mut RunContext<'_>) -> Result<StepResult> {
    Git::open(project.root())?;
    let _lock = lock::ProjectLock::take(project)?;
    let git = disarm::open(project, host)?;
    let mut place = step::StepContext {
        project,
        git: &git,
        host,
        containment: &containment::ContainmentChoice::default(),
    };
    recover::recover(&mut place)?;
    step::step(&mut place)
}
