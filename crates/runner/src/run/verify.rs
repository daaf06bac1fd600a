//! Running a guard again where it once passed.

use runner_core::by_hand;
use runner_core::config::Config;
use runner_core::digest::sha256_hex;
use runner_core::message;
use runner_core::meta::GuardResult;
use runner_core::paths;
use runner_core::text::cut_front;
use runner_core::tree;

use crate::checkout::prepare::setup_key;
use crate::checkout::trial::TrialEnd;
use crate::checkout::{guard_changes, missing_variable, trial};
use crate::error::{Error, ErrorCode, Result};
use crate::git::{Git, GitCommit, GitHistory};
use crate::project::Project;
use crate::proof_key::{self, ProofSigner};
use crate::run::refs::RunRefs;
use crate::run_context::RunContext;
use crate::state;
use crate::state::branch_record::BranchRecord;
use crate::state::validate::unknown_node;

/// What running the guard again showed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerifyReport {
    /// The node.
    pub node_id: String,
    /// The commit that passed it.
    pub commit: String,
    /// The iteration.
    pub iter: u32,
    /// The guard's argv.
    pub command: Vec<String>,
    /// What was recorded.
    pub recorded_exit: i32,
    /// What came out now; `None` when it did not end in time.
    pub exit: Option<i32>,
    /// Whether the output is the same to the byte (times in it make it differ).
    pub same_log: bool,
    /// The tree in the commit is the one that the proof names, and the node has
    /// passed in it.
    pub tree_proven: bool,
    /// Whether setup, its inputs and the variables that it gets are those that the proof names.
    pub same_setup: bool,
    /// Files of the commit that the guard changed now, but for those that it changes where the run
    /// began.
    pub changed: Vec<String>,
    /// Who signed the proof.
    pub signer: ProofSigner,
    /// The end of the output.
    pub output_tail: String,
    /// What may help where it is not green.
    pub hint: Option<String>,
}

impl VerifyReport {
    /// Whether the proof holds.
    pub fn holds(&self) -> bool {
        self.exit == Some(self.recorded_exit)
            && self.recorded_exit == 0
            && self.tree_proven
            && self.changed.is_empty()
            && self.signer != ProofSigner::Forged
    }
}

/// A commit that proves something.
struct ProvenCommit {
    commit: String,
    iter: u32,
    command: Vec<String>,
    exit: i32,
    log_sha256: String,
    tree_proven: bool,
    setup_sha256: Option<String>,
    message: String,
}

/// Runs the guard again at the commit that passed a node, in a work tree of its
/// own.
pub fn verify(project: &Project, node: &str, context: &mut RunContext<'_>) -> Result<VerifyReport> {
    let git = Git::open(project.root())?;
    let state = state::load(project)?;
    let run_id = state.run_state.run_id.clone().ok_or_else(|| {
        Error::new(ErrorCode::Identity, "no run has been started here").hint("(run 'runner start')")
    })?;
    let proof = find_proof(&git, &run_id, node)?;
    let command = &proof.command;
    let recorded = guard_at(&git, &proof.commit)?;
    if recorded != *command {
        return Err(Error::new(
            ErrorCode::Mismatch,
            format!(
                "the proof names the guard `{}`, but the config of the same commit {} says `{}`",
                command.join(" "),
                proof.commit.get(..12).unwrap_or(&proof.commit),
                recorded.join(" ")
            ),
        )
        .hint("somebody rewrote the commit: it proves nothing"));
    }
    let trial = trial::run_at_commit(&git, &proof.commit, command, &state.config, context)?;
    let exit = match trial.end {
        TrialEnd::Exited(code) => Some(code),
        TrialEnd::TimedOut => None,
        TrialEnd::NotStarted(message) => {
            let log = String::from_utf8_lossy(&trial.log);
            let tail = cut_front(log.trim_end(), 4000);
            let mut message = format!("the guard {message}");
            if !tail.is_empty() {
                message.push('\n');
                message.push_str(&tail);
            }
            return Err(Error::new(ErrorCode::Git, message).hint(format!(
                "it runs in a clean checkout, not in {}: what git ignores must come from [workspace] setup",
                project.root().display()
            )));
        }
    };
    let log = trial.log;
    let text = String::from_utf8_lossy(&log);
    let is_green = exit == Some(0);
    let hint = || missing_variable::remedy_for(&log, &state.config);
    let setup = setup_key(&git, &proof.commit, &state.config)?;
    let base = BranchRecord::read(&git, &run_id)?.base;
    let changed = match base {
        Some((_, base)) => {
            guard_changes::beyond_base(&git, &base, &state.config, trial.changed, context)?
        }
        // A clone does not know where the run began.
        None => Vec::new(),
    };
    Ok(VerifyReport {
        changed,
        signer: signer_of(&git, &run_id, &proof)?,
        same_setup: setup == proof.setup_sha256,
        hint: (!is_green).then(hint).flatten(),
        node_id: node.to_owned(),
        same_log: sha256_hex(&log) == proof.log_sha256,
        tree_proven: proof.tree_proven,
        commit: proof.commit,
        iter: proof.iter,
        command: proof.command,
        recorded_exit: proof.exit,
        exit,
        output_tail: cut_front(&text, 4000).into_owned(),
    })
}

/// Who signed the commit of a pass.
fn signer_of(git: &Git, run_id: &str, proof: &ProvenCommit) -> Result<ProofSigner> {
    let start = BranchRecord::read(git, run_id)?.start;
    let start = match start {
        Some(start) => git.line(&["log", "-1", "--format=%B", &start, "--"])?,
        None => String::new(),
    };
    let parent = git.commit_of(&format!("{}^", proof.commit))?;
    let tree = git.tree_of(&proof.commit)?;
    let parent = parent.unwrap_or_default();
    Ok(proof_key::signer(&parent, &tree, &proof.message, &start))
}

/// The guard by the config of a commit.
fn guard_at(git: &Git, commit: &str) -> Result<Vec<String>> {
    let bytes = git.proven_file_at(commit, paths::CONFIG)?;
    let text = String::from_utf8_lossy(bytes.as_deref().unwrap_or_default()).into_owned();
    let config = Config::parse(&text).map_err(|_| {
        Error::new(
            ErrorCode::Mismatch,
            format!("commit {commit} passed the node, but its config cannot be read"),
        )
    })?;
    Ok(config.guard.command)
}

/// The first green iteration of the run in whose tree the node has passed.
fn find_proof(git: &Git, run_id: &str, node: &str) -> Result<ProvenCommit> {
    let refs = RunRefs::read(git, run_id)?;
    let tip = refs.tip().unwrap_or("HEAD");
    // Oldest first; what a session itself committed proves nothing.
    let mut commits: Vec<GitCommit> = GitHistory::from(git, tip).collect::<Result<_>>()?;
    commits.reverse();
    let mut known = false;
    for GitCommit {
        id: commit,
        message: text,
        ..
    } in &commits
    {
        let commit = commit.as_str();
        let Some(subject) = message::parse_subject(text.lines().next().unwrap_or_default()) else {
            continue;
        };
        if subject.run_id != run_id || subject.guard != GuardResult::Pass {
            continue;
        }
        let Some(bytes) = git.file_at(commit, paths::TREE)? else {
            continue;
        };
        let Ok(root) = tree::parse(&bytes) else {
            continue;
        };
        let Some(found) = root.find(node) else {
            continue;
        };
        known = true;
        if !found.passes {
            continue;
        }
        let guard = message::trailer(text, "Runner-Guard").and_then(message::parse_guard_trailer);
        let log = message::sha256_trailer(text, "Runner-Guard-Log");
        let tree = message::sha256_trailer(text, "Runner-Tree");
        let Some(((command, exit), log_sha256)) = guard.zip(log) else {
            return Err(Error::new(
                ErrorCode::Mismatch,
                format!("commit {commit} passed node {node}, but carries no proof"),
            ));
        };
        return Ok(ProvenCommit {
            commit: commit.to_owned(),
            iter: subject.iter,
            command,
            exit,
            log_sha256: log_sha256.to_owned(),
            tree_proven: tree == Some(&sha256_hex(&bytes)),
            setup_sha256: message::sha256_trailer(text, message::SETUP).map(str::to_owned),
            message: text.clone(),
        });
    }
    if !known {
        let bytes = git.file_at(tip, paths::TREE)?.unwrap_or_default();
        if let Ok(root) = tree::parse(&bytes)
            && root.find(node).is_none()
        {
            let nearest = by_hand::nearest_id(&root, node);
            return Err(unknown_node(node, nearest.as_deref()));
        }
    }
    Err(
        Error::new(ErrorCode::NotFound, format!("node {node} has not passed"))
            .hint("only a node that has passed has a proof to verify"),
    )
}
