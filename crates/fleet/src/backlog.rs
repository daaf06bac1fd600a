//! Where work comes from besides plans: one trait, and the folder of Markdown issues.
//!
//! Errors are data here: a source that fails is a warning at preflight and keeps the
//! planner from being asked again, never the end of a role.

use std::collections::BTreeMap;
use std::fs;
use std::io::{ErrorKind, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use runner_core::paths::FLEET_DIR;
use runner_lifecycle::request::PullRequest;

use crate::roles::backlog::{Backlog as RolesBacklog, Outside};
use crate::rules::draft::{Defaults, pull_request_source, review_task};
use crate::rules::issue::{Issue, MAX_BYTES, import};
use crate::rules::preflight::FailedSource;
use crate::yard::{Done, Later, Trouble};

/// The most issues that one look takes.
const MAX_ISSUES: usize = 10_000;

/// A pull request that is open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenPullRequest {
    /// Its number.
    pub number: u64,
    /// A few words.
    pub title: String,
    /// The commit to judge.
    pub head: String,
    /// Its text.
    pub body: String,
}

/// What a source holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Backlog {
    /// Open and closed issues, by number.
    pub issues: Vec<Issue>,
    /// Open pull requests, by number.
    pub pull_requests: Vec<OpenPullRequest>,
    /// What could not be read.
    pub failures: Vec<FailedSource>,
}

/// Issues and pull requests of some place.
pub trait BacklogSource: Send + Sync {
    /// Its name: ids of tasks are made of it.
    fn name(&self) -> &str;

    /// Looks once. What fails is in the answer.
    fn look(&self) -> Later<'_, Backlog>;
}

/// Markdown files in a folder; the file name is the first part of every complaint.
#[derive(Clone, Debug)]
pub struct LocalIssues {
    folder: PathBuf,
}

impl LocalIssues {
    /// The issues of a project: `.runner/fleet/issues/*.md`.
    pub fn of_project(root: &Path) -> LocalIssues {
        LocalIssues {
            folder: root.join(FLEET_DIR).join("issues"),
        }
    }

    /// Reads the folder. One that is not there is empty.
    pub fn read(&self) -> Backlog {
        let mut backlog = Backlog::default();
        let names = match self.names() {
            Ok(names) => names,
            Err(reason) => {
                backlog.failures.push(failed(reason));
                return backlog;
            }
        };
        if names.len() > MAX_ISSUES {
            let count = names.len();
            let words = format!("{count} files, {MAX_ISSUES} are read at most");
            backlog.failures.push(failed(words));
        }
        let mut by_number: BTreeMap<u64, (String, Issue)> = BTreeMap::new();
        for name in names.into_iter().take(MAX_ISSUES) {
            match self.issue(&name) {
                Err(reasons) => {
                    let all = reasons
                        .into_iter()
                        .map(|why| failed(format!("{name}: {why}")));
                    backlog.failures.extend(all);
                }
                Ok(issue) => {
                    if let Some((other, _)) = by_number.get(&issue.number) {
                        let words = format!("{name}: {other} has number {} too", issue.number);
                        backlog.failures.push(failed(words));
                    } else {
                        by_number.insert(issue.number, (name, issue));
                    }
                }
            }
        }
        backlog.issues = by_number.into_values().map(|(_, issue)| issue).collect();
        backlog
    }

    /// The names of the files, sorted.
    fn names(&self) -> Result<Vec<String>, String> {
        let entries = match fs::read_dir(&self.folder) {
            Ok(entries) => entries,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(format!("the folder cannot be read: {error}")),
        };
        let mut names = Vec::new();
        for entry in entries {
            let entry = entry.map_err(|error| format!("the folder cannot be read: {error}"))?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let is_issue = Path::new(&name).extension().is_some_and(|end| end == "md")
                && !name.starts_with('.')
                && name != "README.md";
            if is_issue {
                names.push(name);
            }
        }
        names.sort();
        Ok(names)
    }

    fn issue(&self, name: &str) -> Result<Issue, Vec<String>> {
        let path = self.folder.join(name);
        let unreadable = |error: std::io::Error| vec![format!("it cannot be read: {error}")];
        // A pipe or a device would never end.
        if !fs::metadata(&path).map_err(unreadable)?.is_file() {
            return Err(vec!["it is no file".to_owned()]);
        }
        let mut bytes = Vec::new();
        let limit = u64::try_from(MAX_BYTES)
            .unwrap_or(u64::MAX)
            .saturating_add(1);
        let file = fs::File::open(&path).map_err(unreadable)?;
        file.take(limit)
            .read_to_end(&mut bytes)
            .map_err(unreadable)?;
        Issue::parse(&bytes, name).map_err(|all| all.iter().map(ToString::to_string).collect())
    }
}

fn failed(reason: String) -> FailedSource {
    FailedSource {
        source: "local".to_owned(),
        reason,
    }
}

impl BacklogSource for LocalIssues {
    fn name(&self) -> &'static str {
        "local"
    }

    fn look(&self) -> Later<'_, Backlog> {
        Box::pin(async { self.read() })
    }
}

/// The longest requirement that is read.
const MAX_REQUIREMENT_BYTES: u64 = 1024 * 1024;

/// A requirement and sources, as the roles want them.
pub struct ProjectBacklog {
    requirement: Option<PathBuf>,
    sources: Vec<Arc<dyn BacklogSource>>,
    defaults: Defaults,
}

impl ProjectBacklog {
    /// With the file of the requirement, if there shall be one.
    pub fn new(
        requirement: Option<PathBuf>,
        sources: Vec<Arc<dyn BacklogSource>>,
        defaults: Defaults,
    ) -> ProjectBacklog {
        ProjectBacklog {
            requirement,
            sources,
            defaults,
        }
    }

    /// The text of the requirement. A file that is not there says nothing.
    fn read_requirement(&self) -> Result<String, Trouble> {
        let Some(path) = &self.requirement else {
            return Ok(String::new());
        };
        let file = match fs::File::open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(String::new()),
            Err(error) => return Err(unreadable_requirement(&error)),
        };
        let mut text = String::new();
        let read = file
            .take(MAX_REQUIREMENT_BYTES + 1)
            .read_to_string(&mut text);
        let bytes = read.map_err(|error| unreadable_requirement(&error))?;
        if u64::try_from(bytes).unwrap_or(u64::MAX) > MAX_REQUIREMENT_BYTES {
            let words = format!("the requirement has more than {MAX_REQUIREMENT_BYTES} bytes");
            return Err(Trouble(words));
        }
        Ok(text)
    }

    /// What all sources hold, as tasks.
    async fn outside(&self) -> Outside {
        let mut outside = Outside::default();
        for source in &self.sources {
            let name = source.name();
            let backlog = source.look().await;
            let complaint =
                |failure: &FailedSource| format!("{}: {}", failure.source, failure.reason);
            outside
                .failures
                .extend(backlog.failures.iter().map(complaint));
            // Every task, also of those that are made already: their ids stay the same.
            let known = std::collections::BTreeSet::new();
            let made = import(name, &backlog.issues, &known, &self.defaults);
            outside.tasks.extend(made.tasks);
            for (number, finding) in made.refused {
                outside
                    .failures
                    .push(format!("{name}: issue {number}: {finding}"));
            }
            for issue in &backlog.issues {
                let key = Issue::source_of(name, issue.number);
                outside.issues.insert(key, issue.facts());
            }
            for pull in &backlog.pull_requests {
                let OpenPullRequest {
                    number,
                    title,
                    head,
                    ..
                } = pull;
                outside
                    .tasks
                    .extend(review_task(name, *number, title, head, &self.defaults));
                let known = PullRequest {
                    head: head.clone(),
                    closed: false,
                };
                let key = pull_request_source(name, *number);
                outside.pull_requests.insert(key, known);
            }
        }
        outside
    }
}

fn unreadable_requirement(error: &std::io::Error) -> Trouble {
    Trouble(format!("the requirement cannot be read: {error}"))
}

impl RolesBacklog for ProjectBacklog {
    fn requirement(&self) -> Done<'_, String> {
        Box::pin(std::future::ready(self.read_requirement()))
    }

    fn sync(&self) -> Done<'_, Outside> {
        Box::pin(async { Ok(self.outside().await) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(files: &[(&str, &[u8])]) -> (tempfile::TempDir, LocalIssues) {
        let root = tempfile::tempdir().unwrap();
        let source = LocalIssues::of_project(root.path());
        fs::create_dir_all(&source.folder).unwrap();
        for (name, bytes) in files {
            fs::write(source.folder.join(name), bytes).unwrap();
        }
        (root, source)
    }

    fn reasons(backlog: &Backlog) -> Vec<&str> {
        let failures = backlog.failures.iter();
        failures.map(|failure| failure.reason.as_str()).collect()
    }

    #[test]
    fn a_folder_of_issues() {
        let (_root, source) = folder(&[
            ("10-b.md", b"# B"),
            ("2-a.md", b"# A"),
            ("README.md", b"about"),
            ("notes.txt", b"x"),
            (".hidden.md", b"x"),
        ]);
        let backlog = source.read();
        let numbers: Vec<u64> = backlog.issues.iter().map(|issue| issue.number).collect();
        assert_eq!(numbers, [2, 10]);
        assert!(backlog.failures.is_empty());
    }

    #[test]
    fn what_is_wrong_is_data() {
        let (_root, source) = folder(&[
            ("1-a.md", b"# A"),
            ("1-b.md", b"# B"),
            ("2.md", b"\xff"),
            ("x.md", b"# X"),
        ]);
        fs::create_dir(source.folder.join("3.md")).unwrap();
        let backlog = source.read();
        assert_eq!(backlog.issues.len(), 1);
        assert_eq!(
            reasons(&backlog),
            [
                "1-b.md: 1-a.md has number 1 too",
                "2.md: line 1: it is not UTF-8",
                "3.md: it is no file",
                "x.md: it has no number: add `number: N` to its front matter, or name it \
                 N-words.md",
            ]
        );
    }

    #[tokio::test]
    async fn the_roles_get_tasks_facts_and_failures() {
        let (root, source) = folder(&[
            (
                "1-a.md",
                b"---\nlabels: role:worker\n---\n# A\nDepends on: #2\n",
            ),
            ("2-b.md", b"# B"),
            ("3-c.md", b"---\nstate: closed\n---\n# C\n"),
            ("4-d.md", b"# D\nDepends on: #9\n"),
            ("x.md", b"# X"),
        ]);
        let requirement = root.path().join("requirement.md");
        let defaults = Defaults::from(&runner_core::config::FleetConfig::default());
        let sources: Vec<Arc<dyn BacklogSource>> = vec![Arc::new(source)];
        let backlog = ProjectBacklog::new(Some(requirement.clone()), sources, defaults);
        assert_eq!(backlog.requirement().await, Ok(String::new()));
        fs::write(&requirement, "make it").unwrap();
        assert_eq!(backlog.requirement().await, Ok("make it".to_owned()));

        let outside = backlog.sync().await.unwrap();
        let ids: Vec<&str> = outside.tasks.iter().map(|task| task.id.as_str()).collect();
        assert_eq!(ids, ["issue-2", "issue-1"]);
        assert_eq!(outside.issues["local#1"].role.as_deref(), Some("worker"));
        assert_eq!(outside.issues["local#2"].role, None);
        assert!(outside.issues["local#3"].closed);
        assert_eq!(outside.failures.len(), 2, "{:?}", outside.failures);
        assert!(outside.failures[0].starts_with("local: x.md: it has no number"));
        assert!(outside.failures[1].starts_with("local: issue 4: it depends on issue-9"));
        let again = backlog.sync().await.unwrap();
        assert_eq!(again.tasks, outside.tasks);
    }

    #[test]
    fn no_folder_is_no_backlog_and_a_file_in_its_place_is_a_failure() {
        let root = tempfile::tempdir().unwrap();
        let source = LocalIssues::of_project(root.path());
        assert_eq!(source.read(), Backlog::default());
        fs::create_dir_all(root.path().join(FLEET_DIR)).unwrap();
        fs::write(&source.folder, "x").unwrap();
        let backlog = source.read();
        assert_eq!(backlog.failures.len(), 1);
        assert!(backlog.issues.is_empty());
    }
}
