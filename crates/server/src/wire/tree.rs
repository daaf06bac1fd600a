//! The task tree, what was changed in it, and answers that are errors.

use serde::Serialize;

/// `GET /api/tree` and `/api/iterations/{run}/{iter}/tree`: the root of the tree.
/// The bytes are those of the file, which has been checked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct TreeNode {
    /// Unique in the whole tree.
    pub id: String,
    /// First sorting key among siblings; children are sorted already.
    pub order: i64,
    /// One line for people.
    pub title: String,
    /// What shall be true in the end.
    pub goal: String,
    /// What to look at to see that it is.
    pub acceptance: Vec<String>,
    /// Proven by a green guard; of an inner node: all its children are.
    pub passes: bool,
    /// How many sessions did not get there.
    pub attempts: u32,
    /// How many may. An open leaf with `attempts >= max_attempts` is stuck.
    pub max_attempts: u32,
    /// Its parts; empty for a leaf.
    pub children: Vec<TreeNode>,
}

/// `GET /api/iterations/{run}/{iter}/plan`: what the session did to the plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
#[cfg_attr(test, ts(rename = "Plan"))]
pub struct PlanView {
    /// One entry for each node that was added, edited, moved or removed, in tree order.
    pub changes: Vec<PlanChangeView>,
}

/// What happened to one node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
#[cfg_attr(test, ts(rename = "PlanChange"))]
pub struct PlanChangeView {
    /// The node.
    pub id: String,
    /// What happened; a node can be both moved and edited.
    pub kinds: Vec<PlanChangeKind>,
    /// As it was; null if it was added.
    pub before: Option<PlanNode>,
    /// As it is; null if it was removed.
    pub after: Option<PlanNode>,
}

/// What can happen to a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
#[serde(rename_all = "lowercase")]
#[cfg_attr(test, ts(rename = "ChangeKind"))]
pub enum PlanChangeKind {
    /// It was not there before.
    Added,
    /// Its title, goal, acceptance or order changed.
    Edited,
    /// It hangs under another parent.
    Moved,
    /// It is gone.
    Removed,
}

/// What a plan says of one node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct PlanNode {
    /// The id of its parent; null for the root.
    pub parent: Option<String>,
    /// First sorting key among siblings.
    pub order: i64,
    /// One line for people.
    pub title: String,
    /// What shall be true in the end.
    pub goal: String,
    /// What to look at to see that it is.
    pub acceptance: Vec<String>,
}

/// The body of every answer that is an error (status 4xx and 5xx).
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
#[cfg_attr(test, ts(rename = "ProblemBody"))]
pub struct ApiProblemBody {
    /// What is wrong.
    pub error: ApiProblem,
    /// Of an invalid tree (422): everything that is wrong with it. Else empty.
    pub findings: Vec<TreeFindingView>,
}

/// What is wrong, and what to do about it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
#[cfg_attr(test, ts(rename = "Problem"))]
pub struct ApiProblem {
    /// A word for scripts: `no_project`, `no_tree`, `invalid_tree`, `no_state`, `not_found`,
    /// `invalid_state`, `method`, `host`, `origin`, `token`, `bad_request`, `git`, `io`.
    pub code: String,
    /// What happened and where.
    pub message: String,
    /// What to do about it.
    pub hint: Option<String>,
}

/// One thing that is wrong with a tree.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
#[cfg_attr(test, ts(rename = "Finding"))]
pub struct TreeFindingView {
    /// The node's path, or the place in the file.
    pub place: String,
    /// What is wrong there.
    pub message: String,
}
