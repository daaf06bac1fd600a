//! The runner's and people's own commits on a run's branch, without those that a
//! session made itself: these may say anything, also what only the runner may say.

use std::collections::VecDeque;

use runner_core::message;

use super::Git;
use crate::error::Result;

/// So many commits are read at a time.
const PAGE: &str = "--max-count=2000";

/// A commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct GitCommit {
    /// Its name.
    pub(crate) id: String,
    /// Its whole message.
    pub(crate) message: String,
    first_parent: Option<String>,
}

impl GitCommit {
    /// The first line of its message.
    pub(crate) fn subject(&self) -> &str {
        self.message.lines().next().unwrap_or_default()
    }

    /// The commit before it that is not a session's: where an iteration in which
    /// the agent committed by itself began, else the first parent.
    fn before(&self) -> Option<String> {
        let is_iteration = message::parse_subject(self.subject()).is_some();
        let began_at = message::trailer(&self.message, message::SESSION_HEAD);
        match began_at.filter(|_| is_iteration) {
            Some(commit) => Some(commit.to_owned()),
            None => self.first_parent.clone(),
        }
    }

    fn parse(record: &str) -> Option<Self> {
        let (id, rest) = record.split_once('\n')?;
        let (parents, message) = rest.split_once('\n')?;
        let first_parent = parents
            .split(' ')
            .next()
            .filter(|parent| !parent.is_empty());
        Some(GitCommit {
            id: id.to_owned(),
            message: message.to_owned(),
            first_parent: first_parent.map(str::to_owned),
        })
    }
}

/// Goes back through the history, newest commit first.
pub(crate) struct GitHistory<'g> {
    git: &'g Git,
    next: Option<String>,
    page: VecDeque<GitCommit>,
}

impl<'g> GitHistory<'g> {
    /// From this commit on.
    pub(crate) fn from(git: &'g Git, commit: &str) -> Self {
        GitHistory {
            git,
            next: Some(commit.to_owned()),
            page: VecDeque::new(),
        }
    }

    /// The commit, from the page that was read last or from the next one.
    fn find(&mut self, wanted: &str) -> Result<Option<GitCommit>> {
        while let Some(commit) = self.page.pop_front() {
            if commit.id == wanted {
                return Ok(Some(commit));
            }
        }
        let format = "--format=%H%n%P%n%B";
        let args = ["log", "-z", "--first-parent", PAGE, format, wanted, "--"];
        let log = self.git.read(&args)?;
        let log = String::from_utf8_lossy(&log);
        self.page = log.split('\0').filter_map(GitCommit::parse).collect();
        Ok(self.page.pop_front())
    }
}

impl Iterator for GitHistory<'_> {
    type Item = Result<GitCommit>;

    fn next(&mut self) -> Option<Self::Item> {
        let wanted = self.next.take()?;
        match self.find(&wanted) {
            Ok(Some(commit)) => {
                self.next = commit.before();
                Some(Ok(commit))
            }
            Ok(None) => None,
            Err(error) => Some(Err(error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_session_committed_is_passed_over() {
        let commit = |text: &str| GitCommit::parse(text).unwrap().before();
        let own = "a\nb c\nchore(loop): run r iter 2 node n status=done guard=pass\n\n";
        assert_eq!(commit(own), Some("b".to_owned()));
        assert_eq!(
            commit(&format!("{own}Runner-Head: d\n")),
            Some("d".to_owned())
        );
        // Not one that only looks so.
        assert_eq!(
            commit("a\nb\nother\n\nRunner-Head: d\n"),
            Some("b".to_owned())
        );
        assert_eq!(commit("a\n\nfirst\n"), None);
    }
}
