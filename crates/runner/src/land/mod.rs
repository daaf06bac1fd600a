//! Bringing the result of a run home: one commit on the branch that it began from,
//! without `.runner/`, proven by the guard once more. The branch moves last, by
//! compare-and-set: until then nothing that anybody sees has changed.

mod abandon;
mod inversion;
mod judge;
mod pending;
mod refusal;
mod remedies;
mod target;
mod work;
mod work_tree;

use std::path::{Path, PathBuf};

use runner_core::landing::{LandMessage, LandedLeaf};
use runner_core::message::GuardProof;
use runner_core::paths;

use crate::checkout::trial;
use crate::checkout::workspace::RunPlaces;
use crate::error::{Error, ErrorCode, Result};
use crate::git::{Git, GitIdentity, GitMergeOutcome, GitStatus, WorkTree};
use crate::lock::ProjectLock;
use crate::project::Project;
use crate::run::follow_branch;
use crate::run::recover;
use crate::run::refs;
use crate::run_context::{RunContext, RunProgress};
use crate::state::log::{EventLog, RUN_LANDED};
use crate::state::recorded_files;
use crate::state::runs;
use crate::state::runs::{KnownRun, LandingCommit, RunBase, full_name};
use crate::step::containment::ContainmentChoice;
use crate::step::{self, StepContext};

pub use abandon::{AbandonOptions, AbandonReport, abandon};
use inversion::AcceptedJudge;
pub(crate) use judge::RELEASE_TESTS;
pub(crate) use pending::{PendingLanding, finish, finish_at};
pub(crate) use refusal::RefusedLanding;
use target::LandTarget;
use work::LandWork;
pub(crate) use work_tree::WorkTreeMove;

/// How much of a red guard's output is shown.
const SHOWN_BYTES: usize = 4000;

/// What is asked for.
#[derive(Clone, Debug, Default)]
pub struct LandOptions {
    /// The run; without it the one that is checked out, or the only one.
    pub run: Option<String>,
    /// The branch; without it the one that the run began from.
    pub into: Option<String>,
    /// A commit with two parents instead of one.
    pub merge: bool,
    /// Take `.runner/` along.
    pub keep_state: bool,
    /// Take what has passed so far.
    pub partial: bool,
    /// What to do where the result passes only with tests or settings that the run changed.
    pub changed_judge: ChangedJudge,
}

/// What a person says of a judge that a run changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ChangedJudge {
    /// Nothing yet: it is told, and nothing lands.
    #[default]
    Refuse,
    /// It is right: the result lands, and that is recorded.
    Accept,
}

impl LandOptions {
    /// The words that ask for the same once more.
    fn command(&self) -> String {
        let mut words = vec!["runner land".to_owned()];
        words.extend(self.run.clone());
        words.extend(self.into.as_ref().map(|into| format!("--into {into}")));
        for (is_set, word) in [
            (self.merge, "--merge"),
            (self.keep_state, "--keep-state"),
            (self.partial, "--partial"),
            (
                self.changed_judge == ChangedJudge::Accept,
                "--accept-changed-judge",
            ),
        ] {
            words.extend(is_set.then(|| word.to_owned()));
        }
        words.join(" ")
    }
}

/// How it came out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LandOutcome {
    /// There is a new commit on the branch.
    Now,
    /// A commit on the branch says that it has been done.
    Before,
    /// The branch has all of it already, in whatever way.
    NothingNew,
}

/// What `land` did.
#[derive(Clone, Debug)]
pub struct LandReport {
    /// The run.
    pub run_id: String,
    /// Its branch.
    pub branch: String,
    /// The branch on which it landed.
    pub into: String,
    /// How it came out.
    pub landed: LandOutcome,
    /// The commit on that branch (its tip where there is nothing new).
    pub commit: String,
    /// The commit of the run that was taken.
    pub tip: String,
    /// Only what has passed was taken.
    pub partial: bool,
    /// The leaves that are in it.
    pub passed: Vec<LandedLeaf>,
    /// Those that are not.
    pub open: Vec<LandedLeaf>,
    /// So many later commits of the run were left out.
    pub left_out: usize,
    /// The guard, if it ran.
    pub guard: Option<GreenGuard>,
    /// The result passes only with these files of the run, and a person took it all the same.
    pub accepted: Vec<String>,
    /// The branch that is checked out here now.
    pub here: Option<String>,
    /// Work trees elsewhere that were brought along.
    pub followed: Vec<PathBuf>,
}

/// The guard that passed on the result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GreenGuard {
    /// Its argv.
    pub command: Vec<String>,
    /// Where its output is kept.
    pub log: PathBuf,
    /// SHA-256 of that.
    log_sha256: String,
}

/// Brings a run home.
pub fn land(
    start: &Path,
    options: &LandOptions,
    context: &mut RunContext<'_>,
) -> Result<LandReport> {
    let project = Project::of_work_tree(start)?;
    let (_lock, git) = enter(&project, context)?;
    let status = git.status()?;
    let run = runs::choose(
        &git,
        options.run.as_deref(),
        status.branch.as_deref(),
        "land",
    )?;
    let trees = git.work_trees()?;
    check_free(&project, &trees, &run, &status)?;
    let base = runs::base_of(&git, &run.run_id, &run.tip)?;
    let work = LandWork::of(&git, &run, options.partial)?;
    let target = LandTarget::find(&git, &run, base.as_ref(), options.into.as_deref())?;
    let landing = Lander {
        project: &project,
        git: &git,
        run: &run,
        work,
        target,
        on_run_branch: status.branch.as_deref() == Some(&run.branch()),
        again: options.command(),
    };
    let landed = landing.land(base.as_ref(), &trees, options, context);
    if let Ok(report) = &landed {
        let events = EventLog::of(&project.run_folder(&run.run_id));
        events.note_commit(&context.clock.stamp(), RUN_LANDED, &report.tip);
    }
    let made = landed.as_ref().ok();
    let made = made.filter(|report| report.landed == LandOutcome::Now);
    let made = made.map(|report| report.commit.as_str());
    recorded_files::record_run(&project, &run.run_id, made);
    let report = landed?;
    if !report.partial {
        follow_branch::end_run(&project, &git, &run.run_id)?;
        refs::return_to(&git, &run.run_id)?;
    }
    Ok(report)
}

/// Takes the lock, and settles what an earlier runner left.
fn enter(project: &Project, context: &mut RunContext<'_>) -> Result<(ProjectLock, Git)> {
    Git::check_version()?;
    Git::open(project.root())?;
    let lock = ProjectLock::take(project)?;
    let git = Git::open(project.root())?.without_scripts()?;
    let mut context = StepContext {
        project,
        git: &git,
        run: context,
        containment: &ContainmentChoice::default(),
        places: &RunPlaces::default(),
    };
    recover::recover(&mut context)?;
    Ok((lock, git))
}

/// Nobody works on the run, nothing of it is unsettled or uncommitted.
fn check_free(
    project: &Project,
    trees: &[WorkTree],
    run: &KnownRun,
    status: &GitStatus,
) -> Result<()> {
    let branch = run.branch();
    if run.abandoned {
        return Err(Error::new(
            ErrorCode::Identity,
            format!("run {} was abandoned and its branch deleted", run.run_id),
        )
        .hint(abandon::way_back(run)));
    }
    if status.branch.as_deref() == Some(&branch) {
        return step::check_clean(status);
    }
    let elsewhere = trees
        .iter()
        .find(|tree| tree.branch.as_deref() == Some(&branch));
    if let Some(tree) = elsewhere {
        let place = tree.git.root().display();
        return Err(Error::new(
            ErrorCode::Identity,
            format!("run {} is checked out in {place}", run.run_id),
        )
        .hint(format!("do it there: the same command with `-C {place}`")));
    }
    if recover::is_unfinished(project, &run.run_id) {
        return Err(Error::new(
            ErrorCode::Identity,
            format!(
                "an iteration of run {} was cut off and is not settled yet",
                run.run_id
            ),
        )
        .hint(format!(
            "`runner start {}` settles it; then try again",
            run.run_id
        )));
    }
    Ok(())
}

/// A landing on its way.
struct Lander<'a> {
    project: &'a Project,
    git: &'a Git,
    run: &'a KnownRun,
    work: LandWork,
    target: LandTarget,
    /// The run's branch is what is checked out here.
    on_run_branch: bool,
    /// The command that does it, for hints.
    again: String,
}

impl Lander<'_> {
    fn land(
        self,
        base: Option<&RunBase>,
        trees: &[WorkTree],
        options: &LandOptions,
        context: &mut RunContext<'_>,
    ) -> Result<LandReport> {
        let run_id = &self.run.run_id;
        let earlier = runs::landings(self.git, run_id, base, Some(&self.target.branch))?;
        if let Some(before) = earlier.iter().find(|it| it.tip == self.work.commit) {
            let commit = before.commit.clone();
            return self.already(trees, LandOutcome::Before, commit, context);
        }
        let _held = self.git.hold_new_objects_for_now()?;
        let tree = self.merged(&earlier, options.keep_state)?;
        if tree == self.git.tree_of(&self.target.tip)? {
            let commit = self.target.tip.clone();
            return self.already(trees, LandOutcome::NothingNew, commit, context);
        }
        let mut parents = vec![self.target.tip.as_str()];
        if options.merge {
            parents.push(&self.work.commit);
        }
        let (_, trial) = self
            .git
            .commit_tree(&tree, &parents, "runner: to be tried\n")?;
        let _locks = self.lock_others(trees)?;
        self.follow(trees, &trial)?;

        self.tell_of_protected(base, context)?;
        self.tell_of_own_guard(base, context)?;
        let guard = self.guard(&trial, context)?;
        let inverted = self.judge_by_inversion(&trial, context)?;
        self.judge_by_original_tests(&trial, &inverted, context)?;
        let accepted = self.accepted(inverted, options, context)?;
        RefusedLanding::remove(self.project, run_id)?;
        let message = self.message(&guard, accepted.as_ref());
        let (identity, commit) = self.git.commit_tree(&tree, &parents, &message)?;
        // Time has passed: somebody may have begun to edit.
        let mut moves = self.follow(trees, &commit)?;
        moves.extend(self.switch(trees, &commit, context)?);
        self.pending(&commit, &moves).save(self.project, run_id)?;
        self.advance(&commit)?;
        if identity == GitIdentity::Runner {
            note(
                context,
                "git knows no name and email here: committed as runner <runner@localhost>",
            );
        }
        self.go_all(&moves, context)?;
        let followed = moves
            .iter()
            .map(|step| step.root().to_owned())
            .filter(|root| root != self.project.root())
            .collect();
        let accepted = accepted.map(|it| it.left_out).unwrap_or_default();
        let report = self.report(LandOutcome::Now, commit, Some(guard), followed)?;
        Ok(LandReport { accepted, ..report })
    }

    /// The branch has it: only the checkout here may have to follow.
    fn already(
        self,
        trees: &[WorkTree],
        landed: LandOutcome,
        commit: String,
        context: &mut RunContext<'_>,
    ) -> Result<LandReport> {
        let to = self.target.tip.clone();
        let switch: Vec<WorkTreeMove> = self.switch(trees, &to, context)?.into_iter().collect();
        if !switch.is_empty() {
            let pending = self.pending(&to, &switch);
            pending.save(self.project, &self.run.run_id)?;
            self.go_all(&switch, context)?;
        }
        self.report(landed, commit, None, Vec::new())
    }

    fn pending(&self, commit: &str, moves: &[WorkTreeMove]) -> PendingLanding {
        PendingLanding {
            target: self.target.branch.clone(),
            commit: commit.to_owned(),
            moves: moves.to_vec(),
        }
    }

    /// Brings the work trees along. The landing itself is done: what does not work
    /// out here is told, and tried again by the next command.
    fn go_all(&self, moves: &[WorkTreeMove], context: &mut RunContext<'_>) -> Result<()> {
        let mut all = true;
        for step in moves {
            if let Err(error) = step.go() {
                all = false;
                note(
                    context,
                    &format!(
                        "{} could not be brought along: {}; `{}` tries it again",
                        step.root().display(),
                        error.message,
                        self.again
                    ),
                );
            }
        }
        if all {
            PendingLanding::remove(self.project, &self.run.run_id)?;
        }
        Ok(())
    }

    /// The tree of the result.
    fn merged(&self, earlier: &[LandingCommit], keep_state: bool) -> Result<String> {
        let Lander { git, target, .. } = self;
        let work = self.work.commit.as_str();
        let found = git.ask(&["merge-base", &target.tip, work])?;
        let found = found.map(|bytes| String::from_utf8_lossy(bytes.trim_ascii_end()).into_owned());
        let Some(mut base) = found else {
            return Err(Error::new(
                ErrorCode::Conflict,
                format!(
                    "{} and {} have no commit in common",
                    target.branch,
                    self.run.branch()
                ),
            )
            .hint("name the branch that it shall land on: `runner land --into BRANCH`"));
        };
        // What landed before is not to be merged once more.
        for landing in earlier {
            let newer = git.commit_of(&landing.tip)?.is_some()
                && git.is_ancestor(&base, &landing.tip)?
                && git.is_ancestor(&landing.tip, work)?;
            if newer {
                base.clone_from(&landing.tip);
                break;
            }
        }
        let bare = |commit: &str| git.tree_with(commit, paths::ROOT, Some(&target.tip));
        let theirs = bare(work)?;
        let merged = if base == target.tip {
            theirs
        } else {
            let ours = git.tree_of(&target.tip)?;
            match git.merge_trees(&bare(&base)?, &ours, &theirs)? {
                GitMergeOutcome::Clean(tree) => tree,
                GitMergeOutcome::Conflicts(paths) => return Err(self.conflicts(&paths)?),
            }
        };
        if keep_state {
            return git.tree_with(&merged, paths::ROOT, Some(work));
        }
        Ok(merged)
    }

    /// Where the target is checked out elsewhere a runner may be at work too.
    fn lock_others(&self, trees: &[WorkTree]) -> Result<Vec<ProjectLock>> {
        self.on_target(trees)
            .filter(|tree| tree.git.root() != self.project.root())
            .map(|tree| Project::at(tree.git.root().to_owned()))
            .filter(|project| project.runner_dir().is_dir())
            .map(|project| ProjectLock::take(&project))
            .collect()
    }

    fn on_target<'t>(&self, trees: &'t [WorkTree]) -> impl Iterator<Item = &'t WorkTree> {
        let target = self.target.branch.clone();
        trees
            .iter()
            .filter(move |tree| tree.branch.as_deref() == Some(&target))
    }

    /// The work trees that must go along, or words about the one that cannot.
    fn follow(&self, trees: &[WorkTree], to: &str) -> Result<Vec<WorkTreeMove>> {
        let mut moves = Vec::new();
        for tree in self.on_target(trees) {
            let step = WorkTreeMove::follow(&tree.git, &self.target.branch, &self.target.tip, to);
            let blockers = step.blockers(self.git)?;
            if !blockers.is_empty() {
                return Err(Error::new(
                    ErrorCode::Dirty,
                    format!(
                        "{} is checked out in {}, and these files there would be in the way; nothing \
                         was changed:\n{}",
                        self.target.branch,
                        step.root().display(),
                        work_tree::list(&blockers)
                    ),
                )
                .hint(format!(
                    "commit, stash or move them away there, then `{}`",
                    self.again
                )));
            }
            moves.push(step);
        }
        Ok(moves)
    }

    /// From the run's branch to the target, where that is possible. A run that goes
    /// on stays where it is.
    fn switch(
        &self,
        trees: &[WorkTree],
        to: &str,
        context: &mut RunContext<'_>,
    ) -> Result<Option<WorkTreeMove>> {
        let taken = self.on_target(trees).next().is_some();
        if !self.on_run_branch || self.work.partial || taken {
            return Ok(None);
        }
        let branch = self.run.branch();
        // What is checked out, which may be behind the run.
        let here = self.git.commit_of("HEAD")?;
        let here = here.unwrap_or_else(|| self.run.tip.clone());
        let from = (branch.as_str(), here.as_str());
        let step = WorkTreeMove::switch(self.git, from, (&self.target.branch, to));
        let blockers = step.blockers(self.git)?;
        if blockers.is_empty() {
            return Ok(Some(step));
        }
        note(
            context,
            &format!(
                "this work tree stays on {branch}: on {} these ignored files would be overwritten: {}",
                self.target.branch,
                trial::some_of(&blockers)
            ),
        );
        Ok(None)
    }

    fn message(&self, guard: &GreenGuard, accepted: Option<&AcceptedJudge>) -> String {
        LandMessage {
            title: &self.work.title,
            run_id: &self.run.run_id,
            tip: &self.work.commit,
            passed: &self.work.passed,
            open: &self.work.open,
            guard: GuardProof {
                command: &guard.command,
                exit: 0,
                log_sha256: &guard.log_sha256,
                checkout: None,
                setup_sha256: None,
            },
            accepted: accepted.map(|it| (it.why.as_str(), it.left_out.as_slice())),
        }
        .text()
    }

    /// The one moment at which it happens.
    fn advance(&self, commit: &str) -> Result<()> {
        let full = full_name(&self.target.branch);
        let reason = format!("runner: land {}", self.run.run_id);
        let old = &self.target.tip;
        let orders = format!("update {full} {commit} {old}\n");
        let moved = self.git.update_refs(&reason, &orders);
        let Err(error) = moved else {
            return Ok(());
        };
        PendingLanding::remove(self.project, &self.run.run_id)?;
        if self.git.commit_of(&full)?.as_ref() == Some(old) {
            return Err(error);
        }
        Err(Error::new(
            ErrorCode::Git,
            format!(
                "{} moved while the guard ran; nothing was changed",
                self.target.branch
            ),
        )
        .hint(format!(
            "run `{}` again: it starts from the new state",
            self.again
        )))
    }

    fn report(
        self,
        landed: LandOutcome,
        commit: String,
        guard: Option<GreenGuard>,
        followed: Vec<PathBuf>,
    ) -> Result<LandReport> {
        let here = self.git.head_ref()?;
        let here = here.and_then(|name| name.strip_prefix("refs/heads/").map(str::to_owned));
        Ok(LandReport {
            run_id: self.run.run_id.clone(),
            branch: self.run.branch(),
            into: self.target.branch,
            landed,
            commit,
            tip: self.work.commit,
            partial: self.work.partial,
            passed: self.work.passed,
            open: self.work.open,
            left_out: self.work.left_out,
            guard,
            accepted: Vec::new(),
            here,
            followed,
        })
    }
}

fn note(context: &mut RunContext<'_>, text: &str) {
    context.observer.progress(&RunProgress::Note(text));
}
