//! Who broke setup: sessions, or a person whose commits the run took in.

use std::os::unix::ffi::OsStrExt as _;

use runner_core::message;
use runner_core::paths::is_state_path;

use crate::error::Result;
use crate::git::{Git, GitHistory};

/// So much of a commit's name is shown.
const SHORT: usize = 12;

/// Where to look.
pub(super) struct SetupSearch<'a> {
    pub(super) git: &'a Git,
    pub(super) run_id: &'a str,
    /// The run's last commit.
    pub(super) head: &'a str,
    /// A commit with whose files setup works.
    pub(super) working: &'a str,
    /// What a session made on top of the run's last commit, with which setup fails.
    pub(super) candidate: Option<&'a str>,
}

/// Commits that follow each other, of sessions alone or of people alone.
#[derive(Debug, PartialEq, Eq)]
struct CommitGroup {
    by_person: bool,
    newest: String,
    subject: String,
    /// The commit before the oldest of them.
    before: String,
}

impl SetupSearch<'_> {
    /// The last commit of the person who broke setup, for people; `None`: sessions broke it.
    /// `works`: whether setup works with the files of a commit.
    pub(super) fn person_commit(
        &self,
        works: &mut dyn FnMut(&str) -> Result<bool>,
    ) -> Result<Option<String>> {
        let groups = self.groups()?;
        // Where only one side changed anything there is nothing to find out.
        let has_both = groups.iter().any(|group| group.by_person)
            && groups.iter().any(|group| !group.by_person);
        for group in &groups {
            if !has_both || group.before == self.working || works(&group.before)? {
                let short: String = group.newest.chars().take(SHORT).collect();
                return Ok(group
                    .by_person
                    .then(|| format!("{short} ({})", group.subject)));
            }
        }
        Ok(None)
    }

    /// Those that changed files of the project, newest first.
    fn groups(&self) -> Result<Vec<CommitGroup>> {
        let mut groups: Vec<CommitGroup> = Vec::new();
        if let Some(candidate) = self.candidate {
            groups.push(CommitGroup {
                by_person: false,
                newest: candidate.to_owned(),
                subject: String::new(),
                before: self.head.to_owned(),
            });
        }
        let start = message::start_subject(self.run_id);
        for commit in GitHistory::from(self.git, self.head) {
            let commit = commit?;
            if let Some(last) = groups.last_mut() {
                last.before.clone_from(&commit.id);
            }
            if commit.id == self.working || commit.subject() == start {
                break;
            }
            let subject = message::parse_subject(commit.subject());
            let by_person = subject.is_none_or(|it| it.run_id != self.run_id);
            if groups.last().is_none_or(|it| it.by_person != by_person) {
                groups.push(CommitGroup {
                    by_person,
                    subject: commit.subject().to_owned(),
                    before: commit.id.clone(),
                    newest: commit.id,
                });
            }
        }
        let mut changing = Vec::new();
        for group in groups {
            let changed = self.git.changed_between(&group.before, &group.newest)?;
            let mut paths = changed.iter().map(|path| path.as_os_str().as_bytes());
            if paths.any(|path| !is_state_path(path)) {
                changing.push(group);
            }
        }
        Ok(changing)
    }
}
