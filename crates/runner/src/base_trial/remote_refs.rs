//! Remote-tracking branches of the project, which a clean checkout does not have: a guard may
//! compare with them.

use std::fs;
use std::io;
use std::path::Path;

use crate::error::Result;
use crate::git::Git;

/// Where they are.
const PREFIX: &str = "refs/remotes/";

/// A remote-tracking branch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RemoteRef {
    /// Such as `origin/main`.
    pub(super) name: String,
    commit: String,
}

/// Those of the project that a text names.
pub(super) fn named_in(git: &Git, text: &str) -> Result<Vec<RemoteRef>> {
    let format = "--format=%(objectname) %(refname)";
    let listed = git.line(&["for-each-ref", format, PREFIX])?;
    let refs = listed.lines().filter_map(|line| {
        let (commit, name) = line.split_once(' ')?;
        Some(RemoteRef {
            name: name.strip_prefix(PREFIX)?.to_owned(),
            commit: commit.to_owned(),
        })
    });
    Ok(refs.filter(|it| is_named(text, &it.name)).collect())
}

/// Whether a text has a name that is no part of a longer one.
fn is_named(text: &str, name: &str) -> bool {
    let is_part = |char: char| char.is_ascii_alphanumeric() || matches!(char, '_' | '-');
    text.match_indices(name).any(|(at, _)| {
        let before = text[..at].chars().next_back();
        let after = text[at + name.len()..].chars().next();
        !before.is_some_and(is_part) && !after.is_some_and(|char| is_part(char) || char == '/')
    })
}

/// Writes them into the repository of a checkout, which borrows the project's objects.
pub(super) fn add(checkout: &Path, refs: &[RemoteRef]) -> io::Result<()> {
    for it in refs {
        let path = checkout.join(".git").join(PREFIX).join(&it.name);
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder)?;
        }
        fs::write(path, format!("{}\n", it.commit))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_in_what_git_prints() {
        for (text, expected) in [
            (
                "fatal: ambiguous argument 'origin/main': unknown revision",
                true,
            ),
            ("fatal: bad revision 'origin/main...HEAD'", true),
            ("no refs/remotes/origin/main here", true),
            ("origin/mainline", false),
            ("origin/main-2", false),
            ("my-origin/main", false),
            ("origin/main/x", false),
            ("", false),
        ] {
            assert_eq!(is_named(text, "origin/main"), expected, "{text}");
        }
    }
}
