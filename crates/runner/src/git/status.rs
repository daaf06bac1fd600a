//! `git status --porcelain=v2 --branch -z`, read.

use std::path::PathBuf;

use super::{split_nul, to_path};

/// Branch, HEAD and everything that differs from it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct GitStatus {
    /// The commit at HEAD; `None` in a repository without one.
    pub(crate) head: Option<String>,
    /// The branch that HEAD is on; `None` when it is detached.
    pub(crate) branch: Option<String>,
    /// What differs, in git's order.
    pub(crate) entries: Vec<GitStatusEntry>,
    /// What is not tracked and ignored: files, and folders as a whole.
    pub(crate) ignored: Vec<PathBuf>,
}

/// A path that differs from HEAD.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct GitStatusEntry {
    /// From the root of the repository.
    pub(crate) path: PathBuf,
    /// Not in the index.
    pub(crate) untracked: bool,
    /// An untracked folder that is a repository of its own.
    pub(crate) repository: bool,
}

impl GitStatus {
    /// Whether nothing differs.
    pub(crate) fn is_clean(&self) -> bool {
        self.entries.is_empty()
    }

    pub(super) fn parse(bytes: &[u8]) -> Self {
        let mut status = GitStatus::default();
        for record in split_nul(bytes) {
            match record.first() {
                Some(b'#') => status.header(&String::from_utf8_lossy(record)),
                // "1 XY sub mH mI mW hH hI path", "u XY sub m1 m2 m3 mW h1 h2 h3 path"
                Some(b'1') => status.tracked(record, 8),
                Some(b'u') => status.tracked(record, 10),
                Some(b'?') => {
                    let path = record.get(2..).unwrap_or_default();
                    let repository = path.ends_with(b"/");
                    let path = path.strip_suffix(b"/").unwrap_or(path);
                    status.entries.push(GitStatusEntry {
                        path: to_path(path),
                        untracked: true,
                        repository,
                    });
                }
                Some(b'!') => {
                    let path = record.get(2..).unwrap_or_default();
                    let path = path.strip_suffix(b"/").unwrap_or(path);
                    status.ignored.push(to_path(path));
                }
                _ => {}
            }
        }
        status
    }

    fn header(&mut self, line: &str) {
        if let Some(oid) = line.strip_prefix("# branch.oid ") {
            self.head = (oid != "(initial)").then(|| oid.to_owned());
        } else if let Some(name) = line.strip_prefix("# branch.head ") {
            self.branch = (name != "(detached)").then(|| name.to_owned());
        }
    }

    fn tracked(&mut self, record: &[u8], fields_before_path: usize) {
        let mut rest = record;
        for _ in 0..fields_before_path {
            let Some(space) = rest.iter().position(|byte| *byte == b' ') else {
                return;
            };
            rest = &rest[space + 1..];
        }
        self.entries.push(GitStatusEntry {
            path: to_path(rest),
            untracked: false,
            repository: false,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_every_kind_of_record() {
        let status = GitStatus::parse(
            b"# branch.oid abc\0# branch.head runner/x\0\
              1 .M N... 100644 100644 100644 aaa bbb with space\n\"q\"\0\
              u UU N... 1 2 3 4 h1 h2 h3 conflict\0? new\0? nested/\0! target/\0! a.o\0",
        );
        assert_eq!(status.head.as_deref(), Some("abc"));
        assert_eq!(status.branch.as_deref(), Some("runner/x"));
        let paths: Vec<_> = status
            .entries
            .iter()
            .map(|e| e.path.to_str().unwrap())
            .collect();
        assert_eq!(paths, ["with space\n\"q\"", "conflict", "new", "nested"]);
        assert!(status.entries[3].repository && !status.entries[2].repository);
        assert_eq!(status.ignored, ["target", "a.o"].map(PathBuf::from));
        let fresh = GitStatus::parse(b"# branch.oid (initial)\0# branch.head (detached)\0");
        assert_eq!(fresh, GitStatus::default());
        assert!(fresh.is_clean());
    }
}
