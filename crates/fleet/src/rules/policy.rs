//! What a diff may touch: scope, protected and denied paths, size; and what a new packet
//! can do about it.
//!
//! Findings have ids that stay the same from run to run and name their path, so that
//! whoever recovers the task can tell from its remarks alone whether a wider scope helps.

use runner_core::paths::{DenyList, GlobError, GlobList, is_state_path};
use runner_core::text::escape_path;
use runner_lifecycle::lock::{Resource, normalise};
use runner_lifecycle::packet::{ChangeAction, ResourceChange};
use runner_lifecycle::request::NewPacket;
use runner_lifecycle::row::{Blocker, ContextItem, ReviewRemark};
use runner_lifecycle::{ContextKind, Task};

/// The most paths that a scope is widened by: beyond that the task is another one.
const MAX_WIDENED: usize = 8;

/// How the context items begin that new packets add; the next packet replaces them.
const EARLIER: &str = "An earlier attempt";

/// What stands between the paths of a blocker.
const BETWEEN: &str = ", ";

/// What no result may touch, whatever its scope, and how large it may be.
#[derive(Clone, Debug)]
pub struct PathRules {
    protected: GlobList,
    denied: DenyList,
    max_changed_files: u64,
    max_changed_bytes: u64,
}

impl PathRules {
    /// From the globs of the config and the limits of `[fleet]`; 0 is no limit.
    pub fn new(
        protected: &[String],
        denied: &[String],
        max_changed_files: u64,
        max_changed_bytes: u64,
    ) -> Result<PathRules, GlobError> {
        Ok(PathRules {
            protected: GlobList::new(protected)?,
            denied: DenyList::new(denied)?,
            max_changed_files,
            max_changed_bytes,
        })
    }
}

/// What a diff does that it may not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PolicyBreach {
    /// A path that the task may not change.
    OutsideScope,
    /// A path that it may not, though it lies inside.
    Forbidden,
    /// A path that decides over the work, or belongs to the runner.
    Protected,
    /// A new file that must not be committed.
    Denied,
    /// Too many files, or too much.
    Size,
}

impl PolicyBreach {
    /// What ids begin with.
    pub const fn word(self) -> &'static str {
        match self {
            PolicyBreach::OutsideScope => "scope",
            PolicyBreach::Forbidden => "forbidden",
            PolicyBreach::Protected => "protected",
            PolicyBreach::Denied => "denied",
            PolicyBreach::Size => "size",
        }
    }

    const ALL: [PolicyBreach; 5] = [
        PolicyBreach::OutsideScope,
        PolicyBreach::Forbidden,
        PolicyBreach::Protected,
        PolicyBreach::Denied,
        PolicyBreach::Size,
    ];

    /// Whether it is about the scope of the task: then the packet may be wrong.
    pub const fn is_scope(self) -> bool {
        matches!(self, PolicyBreach::OutsideScope | PolicyBreach::Forbidden)
    }
}

/// One breach.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PolicyFinding {
    /// What kind it is.
    pub breach: PolicyBreach,
    /// The path; for a size, `files` or `bytes`.
    pub about: String,
    /// The same for people.
    pub text: String,
}

impl PolicyFinding {
    fn new(breach: PolicyBreach, about: &str, why: &str) -> PolicyFinding {
        PolicyFinding {
            breach,
            about: about.to_owned(),
            text: format!("{} {why}", escape_path(about.as_bytes())),
        }
    }

    /// Its name: the same breach of the same path has the same one in every run.
    pub fn id(&self) -> String {
        format!("{}:{}", self.breach.word(), self.about)
    }
}

impl From<&PolicyFinding> for ReviewRemark {
    fn from(finding: &PolicyFinding) -> ReviewRemark {
        ReviewRemark {
            id: finding.id(),
            text: finding.text.clone(),
        }
    }
}

/// Every breach of a diff, each once, sorted.
pub fn findings(
    task: &Task,
    rules: &PathRules,
    changes: &[ResourceChange],
    diff_bytes: u64,
) -> Vec<PolicyFinding> {
    let mut found = Vec::new();
    for change in changes {
        let path = change.resource.as_str();
        if !covers(&task.lock_scope, path) {
            let why = "is outside the scope of the task";
            found.push(PolicyFinding::new(PolicyBreach::OutsideScope, path, why));
        }
        if covers(&task.forbidden_scope, path) {
            found.push(PolicyFinding::new(
                PolicyBreach::Forbidden,
                path,
                "is forbidden to the task",
            ));
        }
        if is_state_path(path) {
            found.push(PolicyFinding::new(
                PolicyBreach::Protected,
                path,
                "belongs to the runner",
            ));
        } else if rules.protected.is_match(path) {
            let why = "is protected: it decides over the work";
            found.push(PolicyFinding::new(PolicyBreach::Protected, path, why));
        }
        let is_new = matches!(change.action, ChangeAction::Created | ChangeAction::Renamed);
        if is_new && rules.denied.denied_by(path).is_some() {
            let why = "must not be committed ([commit] deny)";
            found.push(PolicyFinding::new(PolicyBreach::Denied, path, why));
        }
    }
    let files = u64::try_from(changes.len()).unwrap_or(u64::MAX);
    for (about, value, limit) in [
        ("files", files, rules.max_changed_files),
        ("bytes", diff_bytes, rules.max_changed_bytes),
    ] {
        if limit > 0 && value > limit {
            found.push(PolicyFinding {
                breach: PolicyBreach::Size,
                about: about.to_owned(),
                text: format!("the diff has {value} {about}, more than the {limit} allowed"),
            });
        }
    }
    found.sort();
    found.dedup();
    found
}

/// Whether a file lies in a scope. One whose name no packet can carry lies where its folder
/// does.
fn covers(scope: &[Resource], path: &str) -> bool {
    scope.iter().any(|one| {
        one.covers_file(path)
            .unwrap_or_else(|_| one.covers(&resource_of(path)))
    })
}

/// What must be locked for a file: its path, or the folder above the first part that
/// no resource can have (brackets, odd characters). No scope ends inside such a part, so
/// whether a scope covers the file stays the same.
pub fn resource_of(path: &str) -> Resource {
    let mut plain = Resource::whole_repo();
    // A folder that begins with `@` would read as a name that is no path.
    if path.starts_with('@') {
        return plain;
    }
    for (at, _) in path.match_indices('/').chain([(path.len(), "")]) {
        match Resource::parse(&path[..at]) {
            Ok(resource) => plain = resource,
            Err(_) => break,
        }
    }
    plain
}

/// The paths of a blocked run for its blocker's `waits_for`; none where a name cannot be
/// told from two.
pub fn paths_of(findings: &[PolicyFinding]) -> Option<String> {
    let scope = findings.iter().filter(|finding| finding.breach.is_scope());
    let paths: Vec<&str> = scope.map(|finding| finding.about.as_str()).collect();
    let odd = |path: &&str| path.contains(BETWEEN) || path.chars().any(char::is_control);
    (!paths.is_empty() && !paths.iter().any(odd)).then(|| paths.join(BETWEEN))
}

/// The findings that remarks of earlier judgements name and that still hold for the row
/// as it is now.
pub fn open_findings(task: &Task) -> Vec<PolicyFinding> {
    let mut open: Vec<PolicyFinding> = task
        .remarks
        .iter()
        .filter_map(finding_in)
        .filter(|finding| {
            let widened = finding.breach == PolicyBreach::OutsideScope
                && covers(&task.lock_scope, &finding.about);
            !widened
        })
        .collect();
    open.sort();
    open.dedup();
    open
}

fn finding_in(remark: &ReviewRemark) -> Option<PolicyFinding> {
    let (word, about) = remark.id.split_once(':')?;
    let breach = PolicyBreach::ALL
        .into_iter()
        .find(|one| one.word() == word)?;
    Some(PolicyFinding {
        breach,
        about: about.to_owned(),
        text: remark.text.clone(),
    })
}

/// The scope in which nothing of these findings would be a breach: the task's own and
/// the paths that lay outside. None: there is no such scope, or it would be too much. A
/// hidden file or folder is not added by itself, since it may decide over the work.
pub fn safe_path(task: &Task, findings: &[PolicyFinding]) -> Option<Vec<Resource>> {
    let mut added: Vec<Resource> = Vec::new();
    for finding in findings {
        let hidden = finding.about.split('/').any(|part| part.starts_with('.'));
        let resource = resource_of(&finding.about);
        let whole = resource == Resource::whole_repo();
        let forbidden = task
            .forbidden_scope
            .iter()
            .any(|f| f.conflicts_with(&resource));
        if finding.breach != PolicyBreach::OutsideScope || hidden || whole || forbidden {
            return None;
        }
        added.push(resource);
    }
    let added = normalise(added);
    if added.is_empty() || added.len() > MAX_WIDENED {
        return None;
    }
    Some(normalise(
        task.lock_scope.iter().cloned().chain(added).collect(),
    ))
}

/// Whether the recovery table may give the task a new packet after policy failures.
pub fn has_safe_path(task: &Task) -> bool {
    safe_path(task, &open_findings(task)).is_some()
}

/// The packet for "policy with a safe path".
pub fn policy_packet(task: &Task) -> Option<NewPacket> {
    let findings = open_findings(task);
    let lock_scope = safe_path(task, &findings)?;
    Some(NewPacket {
        lock_scope,
        ..same_packet(
            task,
            "changed paths outside its scope; they are allowed now",
        )
    })
}

/// The packet after a structural code. After a scope violation the scope is widened where
/// that is safe; else the session is told where to stay.
pub fn replan_packet(task: &Task) -> NewPacket {
    let Some(blocker) = &task.blocker else {
        return same_packet(task, "was refused");
    };
    let outside = outside_of(blocker);
    match safe_path(task, &outside) {
        Some(lock_scope) => NewPacket {
            lock_scope,
            ..same_packet(
                task,
                "changed paths outside its scope; they are allowed now",
            )
        },
        None => same_packet(task, &format!("was refused: {}", blocker.reason)),
    }
}

/// The paths that a scope violation was about.
fn outside_of(blocker: &Blocker) -> Vec<PolicyFinding> {
    if blocker.code != runner_lifecycle::BlockReason::ScopeViolation {
        return Vec::new();
    }
    let paths = blocker.waits_for.as_deref().unwrap_or_default();
    paths
        .split(BETWEEN)
        .filter(|path| !path.is_empty())
        .map(|path| {
            PolicyFinding::new(
                PolicyBreach::OutsideScope,
                path,
                "is outside the scope of the task",
            )
        })
        .collect()
}

/// The packet after setup failures: a command that could not run gives way to the guard,
/// which is known to run; none is ever left out. `note` names such commands in backticks,
/// as [`could_not_run`] does.
pub fn setup_packet(task: &Task, note: &str, guard: &[String]) -> NewPacket {
    let guard = shell_line(guard);
    let commands = task
        .commands
        .iter()
        .map(|command| {
            if note.contains(&format!("`{command}`")) && !guard.is_empty() {
                guard.clone()
            } else {
                command.clone()
            }
        })
        .collect();
    NewPacket {
        commands,
        ..same_packet(task, &format!("could not be set up: {note}"))
    }
}

/// The words for a command that could not run.
pub fn could_not_run(command: &str, why: &str) -> String {
    format!("`{command}` could not run: {why}")
}

/// An argv as a line that a shell splits into the same words.
fn shell_line(argv: &[String]) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,+@%".contains(c);
    let word = |word: &String| {
        if !word.is_empty() && word.chars().all(plain) {
            word.clone()
        } else {
            format!("'{}'", word.replace('\'', r"'\''"))
        }
    };
    argv.iter().map(word).collect::<Vec<String>>().join(" ")
}

/// The packet as it is, with what happened told to the session.
fn same_packet(task: &Task, what: &str) -> NewPacket {
    let mut context: Vec<ContextItem> = task
        .context
        .iter()
        .filter(|item| !item.value.starts_with(EARLIER))
        .cloned()
        .collect();
    context.push(ContextItem {
        kind: ContextKind::Constraint,
        value: format!("{EARLIER} {what}."),
    });
    NewPacket {
        lock_scope: task.lock_scope.clone(),
        forbidden_scope: task.forbidden_scope.clone(),
        context,
        commands: task.commands.clone(),
    }
}

#[cfg(test)]
mod tests;
