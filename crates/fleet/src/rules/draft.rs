//! What plans and issues have in common when they become tasks: defaults, scopes, texts.

use runner_core::config::FleetConfig;
use runner_core::paths::{check_glob, is_state_path};
use runner_core::text::{cut_chars, escape_path};
use runner_lifecycle::lock::{Resource, normalise};
use runner_lifecycle::request::NewTask;
use runner_lifecycle::row::{Criterion, TaskId};
use runner_lifecycle::{CriterionCheck, TaskKind, TaskOrigin};

use super::answers::GUARD;
use super::role::RoleProfile;

/// What the config says about every new task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TaskDefaults {
    /// How long nothing may be heard of the owner.
    pub timeout_seconds: u32,
    /// How often it says that it lives.
    pub heartbeat_interval_seconds: u32,
    /// How long a run may take.
    pub timebox_seconds: u32,
    /// Whether a criterion may ask for a review.
    pub review: bool,
}

impl From<&FleetConfig> for TaskDefaults {
    fn from(config: &FleetConfig) -> TaskDefaults {
        TaskDefaults {
            timeout_seconds: config.timeout_seconds,
            heartbeat_interval_seconds: config.heartbeat_interval_seconds,
            timebox_seconds: config.timebox_minutes.saturating_mul(60),
            review: config.review,
        }
    }
}

impl TaskDefaults {
    /// A task of the role with nothing else said.
    pub fn task(&self, id: TaskId, role: Option<&RoleProfile>) -> NewTask {
        let mut new = NewTask {
            role: String::new(),
            acceptance: vec![guard_criterion()],
            timeout_seconds: self.timeout_seconds,
            heartbeat_interval_seconds: self.heartbeat_interval_seconds,
            timebox_seconds: self.timebox_seconds,
            ..NewTask::new(id, Resource::whole_repo())
        };
        if let Some(role) = role {
            role.name.clone_into(&mut new.role);
            new.lane = role.lane;
            new.expects_change = role.expects_change;
            let scope = role.default_scope.iter();
            new.lock_scope = scope
                .filter_map(|path| Resource::parse(path).ok())
                .collect();
        }
        new
    }
}

/// The task that judges an open pull request: no worker gets it, its successors do.
pub fn review_task(
    source: &str,
    number: u64,
    title: &str,
    head: &str,
    defaults: &TaskDefaults,
) -> Option<NewTask> {
    let id = TaskId::parse(&format!("{source}-pr-{number}")).ok()?;
    Some(NewTask {
        title: cut_chars(title.trim(), 200).into_owned(),
        goal: format!("pull request {number} of {source} is judged, and merged if it is good"),
        kind: TaskKind::Review,
        origin: TaskOrigin::PullRequest,
        source: Some(pull_request_source(source, number)),
        head: Some(head.to_owned()),
        ..defaults.task(id, None)
    })
}

/// What tasks made for a pull request name as their source.
pub fn pull_request_source(source: &str, number: u64) -> String {
    format!("{source}!{number}")
}

/// The criterion that every task can have.
pub fn guard_criterion() -> Criterion {
    Criterion {
        id: GUARD.to_owned(),
        text: "the guard is green".to_owned(),
        check: CriterionCheck::Command,
    }
}

/// What allowed paths lock: `x/**` locks `x`, `**` the whole repo, any other glob its
/// longest plain prefix. Otherwise what is wrong with one of them.
pub fn scope_of<S: AsRef<str>>(paths: &[S]) -> Result<Vec<Resource>, String> {
    let mut scope = Vec::new();
    for path in paths {
        let path = path.as_ref();
        scope.push(resource(path).map_err(|why| format!("path {}: {why}", shown(path)))?);
    }
    Ok(normalise(scope))
}

fn resource(path: &str) -> Result<Resource, String> {
    let resource = Resource::from_allowed_path(path).map_err(|error| error.why.to_owned())?;
    if !resource.is_path() {
        return Err("a name that begins with `@` is no path".to_owned());
    }
    let is_git = resource.as_str() == ".git" || resource.as_str().starts_with(".git/");
    if is_git || is_state_path(resource.as_str()) {
        return Err("it belongs to git or the runner".to_owned());
    }
    if path.contains(['*', '?', '[', '{']) {
        check_glob(path).map_err(|error| error.message)?;
    }
    Ok(resource)
}

/// A word of somebody else inside a message.
pub(super) fn shown(text: &str) -> String {
    format!("`{}`", escape_path(cut_chars(text, 60).as_bytes()))
}

/// Whether a text can be stored everywhere: something, not too long, no control
/// characters but line ends and tabs.
pub(super) fn check_text(text: &str, max_chars: usize) -> Result<(), String> {
    if text.trim().is_empty() {
        return Err("is empty".to_owned());
    }
    if text.chars().count() > max_chars {
        return Err(format!("has more than {max_chars} characters"));
    }
    if text
        .chars()
        .any(|c| c.is_control() && c != '\n' && c != '\t')
    {
        return Err("contains a control character".to_owned());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::role::{DOCSER, TESTER, WORKER};
    use super::*;

    #[test]
    fn scopes_of_allowed_paths() {
        for (paths, expected) in [
            (vec!["src/**"], Ok(vec!["src"])),
            (vec!["**"], Ok(vec!["."])),
            (vec!["src/*.rs", "docs/"], Ok(vec!["docs", "src"])),
            (vec!["a/b/c*", "a/b"], Ok(vec!["a/b"])),
            (vec!["README.md"], Ok(vec!["README.md"])),
            (vec!["*.md"], Ok(vec!["."])),
            (
                vec!["../x"],
                Err("path `../x`: `.` and `..` are no parts of a path"),
            ),
            (
                vec!["/etc"],
                Err("path `/etc`: paths begin at the repo root, without a slash"),
            ),
            (vec![""], Err("path ``: it is empty")),
            (
                vec!["@judge/t"],
                Err("path `@judge/t`: a name that begins with `@` is no path"),
            ),
            (
                vec![".runner/**"],
                Err("path `.runner/**`: it belongs to git or the runner"),
            ),
            (
                vec![".git/hooks"],
                Err("path `.git/hooks`: it belongs to git or the runner"),
            ),
            (vec![".github"], Ok(vec![".github"])),
            (
                vec!["src/["],
                Err("path `src/[`: unclosed character class; missing ']'"),
            ),
        ] {
            let scope = scope_of(&paths);
            let words = scope.map(|all| all.iter().map(ToString::to_string).collect::<Vec<_>>());
            let expected = expected
                .map(|all| all.iter().map(ToString::to_string).collect::<Vec<_>>())
                .map_err(str::to_owned);
            assert_eq!(words, expected, "{paths:?}");
        }
    }

    #[test]
    fn roles_make_different_tasks() {
        let defaults = TaskDefaults::from(&FleetConfig::default());
        for (role, scope, change, lane) in [
            (Some(&WORKER), vec!["."], true, "feature"),
            (Some(&TESTER), vec!["tests"], false, "feature"),
            (Some(&DOCSER), vec!["docs", "README.md"], true, "docser"),
            (None, vec!["."], true, "feature"),
        ] {
            let id = TaskId::parse("t").unwrap();
            let new = defaults.task(id, role);
            let paths: Vec<&str> = new.lock_scope.iter().map(Resource::as_str).collect();
            assert_eq!(paths, scope);
            assert_eq!((new.expects_change, new.lane.as_str()), (change, lane));
            assert_eq!(new.role, role.map_or("", |role| role.name));
            assert_eq!(new.timebox_seconds, 3600);
        }
    }
}
