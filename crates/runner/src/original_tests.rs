//! Tests that a run changed, and the same work judged by the tests of the run's start.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use runner_core::config::Config;
use runner_core::evidence::TestDifference;
use runner_core::inline_tests::inline_tests;
use runner_core::paths::{GlobList, is_state_path};
use runner_core::text::escape_path;

use crate::base_trial::evidence::BaseEvidence;
use crate::checkout::guard_changes;
use crate::checkout::trial::{GuardTrial, TrialEnd, some_of};
use crate::error::{Error, ErrorCode, Result};
use crate::files;
use crate::git::{Git, TreeEntry};
use crate::tree_links::{links_of, with_links};

/// Which files are tests.
pub(crate) struct TestFiles {
    tests: GlobList,
    released: GlobList,
    /// The path of the project that checkouts are seen at, where that is not the repository's own.
    project: Option<PathBuf>,
}

/// What became of test files between two commits.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct TestFileChanges {
    /// Those that were there, as they are told.
    pub(crate) told: Vec<String>,
    /// Whether any differs, a new one too, that a person has not released.
    pub(crate) counts: bool,
    /// Whether any differs that a person has released.
    pub(crate) has_released: bool,
}

impl TestFiles {
    /// As the config says.
    pub(crate) fn of(config: &Config) -> Result<Self> {
        let globs = |list: &[String], key: &str| {
            GlobList::new(list)
                .map_err(|error| Error::new(ErrorCode::Config, format!("[guard] {key}: {error}")))
        };
        Ok(TestFiles {
            tests: globs(&config.guard.tests, "tests")?,
            released: globs(&config.guard.released_tests, "released_tests")?,
            project: None,
        })
    }

    /// The same in checkouts that are seen at the path of a project.
    pub(crate) fn seen_at(self, project: &Path) -> Self {
        TestFiles {
            project: Some(project.to_owned()),
            ..self
        }
    }

    /// The same with what paths of tests lead to through the links of a commit. A link to a folder
    /// around itself leads to everything there is, which no test stands for.
    pub(crate) fn through_links_of(&self, git: &Git, commit: &str) -> Result<TestFiles> {
        let project = self.project.as_deref().unwrap_or(git.root());
        let project = project
            .canonicalize()
            .map_err(|error| files::at(project, error))?;
        let mut links = links_of(git, commit, &project)?;
        links.retain(|link| !link.leads_around_itself());
        Ok(TestFiles {
            tests: with_links(&self.tests, &links, "tests")?,
            released: with_links(&self.released, &links, "released_tests")?,
            project: Some(project),
        })
    }

    /// Whether a path is that of a test.
    pub(crate) fn is_test(&self, path: &Path) -> bool {
        let bytes = path.as_os_str().as_bytes();
        self.tests.is_match(bytes) && !is_state_path(bytes)
    }

    /// Whether a person lets sessions change the test at a path.
    pub(crate) fn is_released(&self, path: &Path) -> bool {
        self.released.is_match(path.as_os_str().as_bytes())
    }

    /// What became of them from one commit to another.
    pub(crate) fn changes(&self, git: &Git, start: &str, commit: &str) -> Result<TestFileChanges> {
        if self.tests.is_empty() {
            return Ok(TestFileChanges::default());
        }
        let linked = self.through_links_of(git, start)?;
        let changed = git.changed_between(start, commit)?;
        let is_rust = |path: &Path| path.extension().is_some_and(|ending| ending == "rs");
        let (tests, others): (Vec<&PathBuf>, Vec<&PathBuf>) =
            changed.iter().partition(|path| linked.is_test(path));
        if tests.is_empty() && !others.iter().any(|path| is_rust(path)) {
            return Ok(TestFileChanges::default());
        }
        let files = |commit: &str| -> Result<BTreeMap<PathBuf, TreeEntry>> {
            let files = git.files_of(commit)?;
            Ok(files.into_iter().map(|it| (it.path.clone(), it)).collect())
        };
        let (before, after) = (files(start)?, files(commit)?);
        let mut found = TestFileChanges::default();
        for path in others.into_iter().filter(|path| is_rust(path)) {
            let known = tests_inside(git, before.get(path))?;
            if !known.is_empty() && !known.is_subset(&tests_inside(git, after.get(path))?) {
                let name = escape_path(path.as_os_str().as_bytes());
                found.told.push(format!("{name} (tests inside it)"));
            }
        }
        for path in tests {
            if linked.is_released(path) {
                found.has_released = true;
            } else {
                found.counts = true;
            }
            let name = escape_path(path.as_os_str().as_bytes());
            match (before.contains_key(path), after.contains_key(path)) {
                (true, true) => found.told.push(name),
                (true, false) => found.told.push(format!("{name} (deleted)")),
                (false, _) => {}
            }
        }
        Ok(found)
    }

    /// A commit with the work of one and the tests of the run's start; nothing leads to it.
    pub(crate) fn restored(&self, git: &Git, start: &str, commit: &str) -> Result<String> {
        let linked = self.through_links_of(git, start)?;
        let is_taken = |path: &Path| linked.is_test(path) && !linked.is_released(path);
        let tree = git.overlay(commit, start, &is_taken)?;
        let message = "runner: with the tests of the run's start\n";
        let (_, commit) = git.commit_tree(&tree, &[commit], message)?;
        Ok(commit)
    }
}

/// The tests that lie in a file of product code.
fn tests_inside(git: &Git, entry: Option<&TreeEntry>) -> Result<BTreeSet<String>> {
    let Some(entry) = entry.filter(|it| it.mode.starts_with("100")) else {
        return Ok(BTreeSet::new());
    };
    let bytes = git.proven_blobs(&[entry.oid.as_str()])?.pop();
    Ok(inline_tests(&String::from_utf8_lossy(
        &bytes.unwrap_or_default(),
    )))
}

/// Why a verdict with the tests of the run's start is no pass. `has_released`: some of them are not
/// as they were then, with a person's leave.
pub(crate) fn failure(
    trial: &GuardTrial,
    base: Option<&BaseEvidence>,
    has_released: bool,
) -> Option<String> {
    match &trial.end {
        TrialEnd::Exited(0) => {}
        TrialEnd::Exited(code) => return Some(format!("the guard gave exit {code}")),
        TrialEnd::TimedOut => return Some("the guard did not end in time".to_owned()),
        TrialEnd::NotStarted(why) => return Some(format!("the guard {why}")),
    }
    let base = base?;
    // What is not known of the base was asked about the result itself.
    let known = base.changed().unwrap_or_else(|| trial.changed.clone());
    let changed = trial.changed.iter().filter(|name| !known.contains(name));
    let changed: Vec<String> = changed.cloned().collect();
    if !changed.is_empty() {
        return Some(guard_changes::words(&changed));
    }
    let (gaps, difference) = base.compare(&trial.tests);
    if let Some(gap) = gaps.first() {
        return Some(gap.words());
    }
    if has_released {
        return None;
    }
    shortfall(&difference)
}

/// Which tests of the base did not pass now, in words.
pub(crate) fn shortfall(difference: &TestDifference) -> Option<String> {
    let named = [
        (&difference.missing, "were not reported"),
        (&difference.skipped, "were skipped"),
    ];
    let named = named.into_iter().find(|(names, _)| !names.is_empty());
    if let Some((names, what)) = named {
        let names = some_of(names);
        return Some(format!(
            "tests that ran where the run began {what}: {names}"
        ));
    }
    fewer_tests(difference.fewer)
}

/// That so many tests fewer ran, if any.
pub(crate) fn fewer_tests(fewer: u64) -> Option<String> {
    let noun = if fewer == 1 { "test" } else { "tests" };
    (fewer > 0).then(|| format!("{fewer} fewer {noun} ran than where the run began"))
}

/// What a run of the guard printed, under a line that says what it was about.
pub(crate) fn log_with_title(trial: &GuardTrial, failure: Option<&str>) -> Vec<u8> {
    let how = failure.unwrap_or("the guard passed");
    let mut log =
        format!("\nrunner: with the tests as they were when the run began, {how}:\n").into_bytes();
    log.extend_from_slice(&trial.log);
    if !log.ends_with(b"\n") {
        log.push(b'\n');
    }
    log
}

#[cfg(test)]
mod tests {
    use runner_core::evidence::TestEvidence;

    use super::*;

    fn trial(end: TrialEnd) -> GuardTrial {
        GuardTrial {
            end,
            duration_ms: 1,
            log: b"words".to_vec(),
            tests: TestEvidence::default(),
            is_over_limit: false,
            changed: Vec::new(),
        }
    }

    #[test]
    fn plurals_follow_the_number() {
        let told = |fewer| fewer_tests(fewer).unwrap_or_default();
        assert_eq!(told(0), "");
        assert_eq!(told(1), "1 fewer test ran than where the run began");
        assert_eq!(told(2), "2 fewer tests ran than where the run began");
    }

    #[test]
    fn what_counts_as_a_failure() {
        for (end, expected) in [
            (TrialEnd::Exited(0), None),
            (TrialEnd::Exited(2), Some("the guard gave exit 2")),
            (TrialEnd::TimedOut, Some("the guard did not end in time")),
            (
                TrialEnd::NotStarted("cannot run".to_owned()),
                Some("the guard cannot run"),
            ),
        ] {
            let trial = trial(end);
            let found = failure(&trial, None, false);
            assert_eq!(found.as_deref(), expected);
            let log = String::from_utf8(log_with_title(&trial, found.as_deref())).unwrap();
            assert!(log.ends_with(":\nwords\n"), "{log}");
        }
    }
}
