//! Which command helps.

use serde::Serialize;

use super::{LandExpectation, LandForecast, ReportInputs, last_error};
use crate::meta::IterationErrorKind;
use crate::select::{Selection, select};

/// A command to type.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NextCommand {
    /// The command.
    pub command: String,
    /// What it does here.
    pub why: String,
}

fn next(command: impl Into<String>, why: &str) -> NextCommand {
    NextCommand {
        command: command.into(),
        why: why.to_owned(),
    }
}

/// What helps a leaf that has used up its attempts; `iter` is its last try.
pub fn unstick(node_id: &str, iter: Option<u32>) -> Vec<NextCommand> {
    let mut list = vec![
        next(format!("runner retry {node_id}"), "give it more attempts"),
        next("runner edit tree", "change, split or remove it"),
    ];
    if let Some(iter) = iter {
        list.push(next(format!("runner log {iter}"), "its last try in full"));
    }
    list
}

/// What to type in this state of the run, the best first.
pub(super) fn commands(inputs: &ReportInputs<'_>, state: &str) -> Vec<NextCommand> {
    let go_on = || next("runner loop", "go on");
    match state {
        "not_started" => vec![next("runner start", "begin the run that GOAL.md describes")],
        "running" => vec![next("runner status", "see how far it is")],
        "complete" if let Some((_, commit)) = &inputs.landed => vec![
            next(format!("git show --stat {commit}"), "look at what landed"),
            next("runner init", "begin another goal"),
        ],
        "complete" => match (&inputs.base, &inputs.tip) {
            (Some((base, commit)), Some(tip)) => {
                // Where no branch was checked out there is none to go home to, and HEAD is
                // something else by now.
                let (land, since) = if base == "HEAD" {
                    ("runner land --into BRANCH", commit)
                } else {
                    ("runner land", base)
                };
                let look = format!("git diff --stat {since}...{tip} -- . ':(exclude).runner'");
                let is_refused = |it: &&LandForecast| it.expect == LandExpectation::Refused;
                let refused = inputs.landing.iter().find(is_refused);
                if let Some(accept) = refused.and_then(|it| it.accept.as_deref()) {
                    return vec![
                        next(look, "look at what the run changed about its judge"),
                        next(accept, "accept that, if it is right"),
                    ];
                }
                vec![
                    next(
                        land,
                        "bring the result home: the guard runs once more, then the base branch moves",
                    ),
                    next(look, "look at it first"),
                ]
            }
            _ => vec![next("runner tree", "look at the result")],
        },
        "stuck" => match inputs.tree.as_ref().map(|root| select(root)) {
            Ok(Selection::Stuck(leaf)) => {
                let history = inputs.histories.get(&*leaf.node.id);
                let last = history
                    .and_then(|it| it.tries.last())
                    .and_then(|it| it.iter);
                unstick(&leaf.node.id, last)
            }
            _ => Vec::new(),
        },
        "repair" => vec![next("runner loop", "have the tree repaired and go on")],
        "invalid" => vec![
            next("runner edit tree", "mend it"),
            next("runner validate", "see all that is wrong"),
        ],
        "limit" => vec![
            next("runner edit config", "raise the limit"),
            next("runner loop", "then go on"),
        ],
        "error" => match last_error(inputs) {
            Some(
                IterationErrorKind::Auth
                | IterationErrorKind::Spawn
                | IterationErrorKind::GuardSpawn
                | IterationErrorKind::Setup,
            ) => vec![
                next("runner doctor", "see what is missing"),
                next("runner loop", "then go on"),
            ],
            Some(IterationErrorKind::Quota) => vec![next(
                "runner loop --wait-quota",
                "go on when the quota is back",
            )],
            Some(
                IterationErrorKind::Timeout
                | IterationErrorKind::Idle
                | IterationErrorKind::GuardTimeout,
            ) => vec![
                next("runner edit config", "give it more time"),
                next("runner loop", "then go on"),
            ],
            _ => vec![go_on()],
        },
        _ => vec![go_on()],
    }
}
