//! What there is to land of a run.

use std::collections::BTreeMap;

use runner_core::config::Config;
use runner_core::landing::LandedLeaf;
use runner_core::message;
use runner_core::meta::GuardResult;
use runner_core::paths;
use runner_core::select::{Selection, select};
use runner_core::tree::Node;

use crate::error::{Error, ErrorCode, Result};
use crate::git::{Git, GitHistory};
use crate::state;
use crate::state::runs::{KnownRun, title_of};

/// The commit of a run that is taken, and what is in it.
pub(crate) struct LandWork {
    pub(crate) commit: String,
    /// The run is not complete: this is what has passed.
    pub(crate) partial: bool,
    pub(crate) config: Config,
    pub(crate) title: String,
    pub(crate) passed: Vec<LandedLeaf>,
    pub(crate) open: Vec<LandedLeaf>,
    /// So many later commits are not in it.
    pub(crate) left_out: usize,
}

impl LandWork {
    /// Everything of a complete run; of another one what the guard has passed, if
    /// that is what is wanted.
    pub(crate) fn of(git: &Git, run: &KnownRun, partial: bool) -> Result<Self> {
        let history = GreenHistory::of(git, run)?;
        let bytes = git.file_at(&run.tip, paths::TREE)?.unwrap_or_default();
        let at_tip = state::check_tree(&bytes).ok();
        let complete = at_tip
            .as_ref()
            .is_some_and(|root| select(root) == Selection::Complete);
        if !complete && !partial {
            return Err(incomplete(run, at_tip.as_ref()));
        }
        let commit = if complete {
            run.tip.clone()
        } else {
            history.last.clone().ok_or_else(|| nothing_passed(run))?
        };
        // While the tree waits to be repaired, the one of that commit must do.
        let earlier = git.file_at(&commit, paths::TREE)?.unwrap_or_default();
        let earlier = state::check_tree(&earlier).ok();
        let root = at_tip.or(earlier);
        let leaves = |passed: bool| -> Vec<LandedLeaf> {
            let all = root.iter().flat_map(Node::walk);
            all.filter(|node| node.is_leaf() && node.passes == passed)
                .map(|node| LandedLeaf {
                    id: node.id.to_string(),
                    title: node.title.to_string(),
                    proof: history.passed.get(&*node.id).cloned(),
                })
                .collect()
        };
        let range = format!("{commit}..{}", run.tip);
        let left_out = git.line(&["rev-list", "--count", &range, "--"])?;
        Ok(LandWork {
            partial: !complete,
            config: config_of(git, run)?,
            title: title_of(git, &run.tip)?,
            passed: leaves(true),
            open: leaves(false),
            left_out: left_out.parse().unwrap_or_default(),
            commit,
        })
    }
}

/// What the guard has passed, by the runner's own commits.
struct GreenHistory {
    /// The newest commit in which it passed anything.
    last: Option<String>,
    /// Node, iteration and commit.
    passed: BTreeMap<String, (u32, String)>,
}

impl GreenHistory {
    fn of(git: &Git, run: &KnownRun) -> Result<Self> {
        let begin = message::start_subject(&run.run_id);
        let mut green = GreenHistory {
            last: None,
            passed: BTreeMap::new(),
        };
        for commit in GitHistory::from(git, &run.tip) {
            let commit = commit?;
            if commit.subject() == begin
                && message::trailer(&commit.message, "Runner-Base").is_some()
            {
                break;
            }
            let Some(subject) = message::parse_subject(commit.subject()) else {
                continue;
            };
            if subject.run_id == run.run_id && subject.guard == GuardResult::Pass {
                green.last.get_or_insert_with(|| commit.id.clone());
                let proof = (subject.iter, commit.id);
                green.passed.entry(subject.node_id).or_insert(proof);
            }
        }
        Ok(green)
    }
}

fn incomplete(run: &KnownRun, root: Option<&Node<'_>>) -> Error {
    let how_far = root.map_or_else(
        || "its tree cannot be read".to_owned(),
        |root| {
            let progress = root.progress();
            format!("{} of {} leaves passed", progress.passed, progress.leaves)
        },
    );
    Error::new(
        ErrorCode::Incomplete,
        format!("run {} is not complete: {how_far}", run.run_id),
    )
    .hint("`runner loop` goes on with it; `runner land --partial` lands what has passed so far")
}

fn nothing_passed(run: &KnownRun) -> Error {
    Error::new(
        ErrorCode::Incomplete,
        format!("nothing of run {} has passed yet", run.run_id),
    )
    .hint("`runner loop` goes on with it")
}

fn config_of(git: &Git, run: &KnownRun) -> Result<Config> {
    let bytes = git.file_at(&run.tip, paths::CONFIG)?.unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);
    Config::parse(&text).map_err(|_| {
        Error::new(
            ErrorCode::Config,
            format!("{} on {} is not valid", paths::CONFIG, run.branch()),
        )
        .hint(format!(
            "`git switch {} && runner validate` says what is wrong",
            run.branch()
        ))
    })
}
