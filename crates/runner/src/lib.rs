//! The loop over real things: files, git, processes.
//!
//! Decisions are `runner_core`'s, children are `runner_exec`'s; here they are
//! put together into the operations that the command line offers.

#[cfg(not(target_os = "linux"))]
compile_error!("runner needs Linux: it relies on /proc, subreapers and flock");

mod abilities;
mod agent_home;
mod base_trial;
mod checkout;
mod doctor;
mod edit;
mod error;
mod fault;
mod file_flags;
mod file_id;
pub mod files;
pub mod fleet_repo;
mod git;
mod grants;
mod init;
mod inversion;
mod land;
mod launchers;
mod limits;
mod lock;
mod makefile_sources;
mod mounts;
mod notes;
mod original_tests;
mod programs;
mod project;
mod proof_key;
mod rescue;
mod run;
mod run_context;
mod script_folders;
mod search_path;
mod state;
mod step;
mod tree_links;

pub use base_trial::{BaseProblem, BaseVerdict};
pub use checkout::clean::{RemovedFolder, WorkspaceCleanOptions, WorkspaceCleanReport, clean};
pub use checkout::known_roots::CLOSED_PATHS;
pub use checkout::temp_folder::TempFolder;
pub use doctor::{
    Diagnosis, DoctorCheck, DoctorGuardRun, DoctorOptions, DoctorVerdict, GuardTrials,
    PlantedBreak, doctor,
};
pub use edit::{EditReport, EditTarget, EditText, PlanEdit, RetryReport, edit, retry};
pub use error::{Error, ErrorCode, Result};
pub use file_id::{ContentId, FileId};
pub use git::{Git, TreeEntry};
pub use init::{
    InitGuess, InitOptions, InitReport, InitTrial, InitTrialEnd, OfflineTrial, detect_guard, guess,
    init, split_words, try_out,
};
pub use land::{
    AbandonOptions, AbandonReport, ChangedJudge, GreenGuard, LandOptions, LandOutcome, LandReport,
    abandon, land,
};
pub use launchers::launcher_main;
pub use programs::{agent_is_there, guard_is_there};
pub use project::Project;
pub use proof_key::ProofSigner;
pub use rescue::{RescueOptions, RescueReport, RescuedPath, StuckPath, rescue};
pub use run::detach::LoopLog;
pub use run::position::{
    CatchUpReport, CheckoutPosition, catch_up, checkout_position, position_words,
};
pub use run::reader::{RunReader, RunSnapshot};
pub use run::replay::{ReplayReport, replay};
pub use run::run_loop::{LoopOptions, LoopOutcome, LoopStatus, run_loop};
pub use run::start::{GuardAtBase, StartOptions, StartReport, go_to_run, start};
pub use run::stop::{StopRequest, ask_to_stop};
pub use run::verify::{VerifyReport, verify};
pub use run_context::{
    NoObserver, ProgressObserver, RunContext, RunProgress, SystemWallClock, WallClock,
};
pub use search_path::own_search_path;
pub use state::activity::{
    ActivityTrail, LastEnd, LoopEvent, LoopWait, RunActivity, RunPhase, activity, events_path,
    loop_log,
};
pub use state::follow::{FollowedEvent, RunFollower};
pub use state::report::report;
pub use state::runs::{LandedAt, RunStanding, RunSummary, runs};
pub use state::validate::{NodeExplanation, SelectResult, find_node, select_next, validate, why};
pub use state::view::{
    IterationPatch, IterationView, RunView, base_of, config_of, goal_of, iteration_folder,
    load_tree, meta_of, note_of, patch_of, run_state_of, run_view, running_pid,
};
pub use state::{ProjectProblem, tree_bytes};
pub use step::environment::{inherited, resolve, with_private, with_temp_folder};
pub use step::foreign_policy::foreign_policy;
pub use step::network::{ChildNetwork, NetworkInput, NetworkSupport};
pub use step::{StepLeaf, StepReport, StepResult};

/// Settles what is unfinished, then takes one step.
pub fn step_once(project: &Project, context: &mut RunContext<'_>) -> Result<StepResult> {
    let git = Git::open(project.root())?;
    let _lock = lock::ProjectLock::take(project)?;
    let mut context = step::StepContext {
        project,
        git: &git,
        run: context,
        containment: &step::containment::ContainmentChoice::default(),
        places: &checkout::workspace::RunPlaces::default(),
    };
    run::recover::recover(&mut context)?;
    let run_id = run::current::checked_out(project, &git)?;
    let result = step::step(&mut context, &run_id);
    state::recorded_files::record_run(project, &run_id, None);
    result
}
