//! Where work comes from besides plans: one trait, and the folder of Markdown issues.
//!
//! Errors are data here: a source that fails is a warning at preflight and keeps the
//! planner from being asked again, never the end of a role.

use std::collections::BTreeMap;
use std::fs;
use std::io::{ErrorKind, Read as _};
use std::path::{Path, PathBuf};

use runner_core::paths::FLEET_DIR;

use crate::rules::issue::{MAX_BYTES, SourceIssue};
use crate::rules::preflight::FailedSource;
use crate::workspaces::BoxFuture;

/// The folder of issues below the fleet's folder.
pub const ISSUES: &str = "issues";

/// The most issues that one look takes.
const MAX_ISSUES: usize = 10_000;

/// A pull request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundPullRequest {
    /// Its number.
    pub number: u64,
    /// A few words.
    pub title: String,
    /// The commit to judge.
    pub head: String,
    /// Its text.
    pub body: String,
    /// Whether nothing is to be judged any more.
    pub closed: bool,
}

/// What a source holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BacklogContents {
    /// Open and closed issues, by number.
    pub issues: Vec<SourceIssue>,
    /// Open pull requests, and closed ones that may have been found before, by number.
    pub pull_requests: Vec<FoundPullRequest>,
    /// What could not be read.
    pub failures: Vec<FailedSource>,
}

/// Issues and pull requests of some place.
pub trait BacklogSource: Send + Sync {
    /// Its name: ids of tasks are made of it.
    fn name(&self) -> &str;

    /// Looks once. What fails is in the answer.
    fn look(&self) -> BoxFuture<'_, BacklogContents>;
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
            folder: root.join(FLEET_DIR).join(ISSUES),
        }
    }

    /// Reads the folder. One that is not there is empty.
    pub fn read(&self) -> BacklogContents {
        let mut backlog = BacklogContents::default();
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
        let mut by_number: BTreeMap<u64, (String, SourceIssue)> = BTreeMap::new();
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

    fn issue(&self, name: &str) -> Result<SourceIssue, Vec<String>> {
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
        SourceIssue::parse(&bytes, name)
            .map_err(|all| all.iter().map(ToString::to_string).collect())
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

    fn look(&self) -> BoxFuture<'_, BacklogContents> {
        Box::pin(async { self.read() })
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

    fn reasons(backlog: &BacklogContents) -> Vec<&str> {
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

    #[test]
    fn no_folder_is_no_backlog_and_a_file_in_its_place_is_a_failure() {
        let root = tempfile::tempdir().unwrap();
        let source = LocalIssues::of_project(root.path());
        assert_eq!(source.read(), BacklogContents::default());
        fs::create_dir_all(root.path().join(FLEET_DIR)).unwrap();
        fs::write(&source.folder, "x").unwrap();
        let backlog = source.read();
        assert_eq!(backlog.failures.len(), 1);
        assert!(backlog.issues.is_empty());
    }
}
