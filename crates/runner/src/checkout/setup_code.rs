//! Files of a candidate in which a package manager finds code to run while it fetches with a token:
//! where a session wrote one, it would have the token.

use std::collections::BTreeSet;
use std::path::Path;

use super::setup_parts;
use crate::error::Result;
use crate::files::{self, ReadError};
use crate::git::Git;

/// The largest file that is compared.
const MAX_FILE: u64 = 1 << 20;

/// So many branches are looked at, those with the newest commits first.
const MAX_BRANCHES: &str = "--count=200";

/// The first of these files in a checkout that is not as some branch of the person has it. What a run
/// wrote is on none of those before it lands.
pub(crate) fn of_a_session(
    user: &Git,
    folder: &Path,
    setup: &[String],
) -> Result<Option<&'static str>> {
    let mut commits: Option<BTreeSet<String>> = None;
    for path in setup_parts::code_files(setup) {
        let there = match files::read_regular(&folder.join(path), MAX_FILE) {
            Ok(bytes) => Some(bytes),
            Err(ReadError::Absent) => continue,
            // A link, a folder, or too large: no branch is compared with that.
            Err(_) => None,
        };
        if commits.is_none() {
            commits = Some(branches(user)?);
        }
        let mut is_known = false;
        for commit in commits.iter().flatten() {
            is_known = there.is_some() && user.file_at(commit, path)? == there;
            if is_known {
                break;
            }
        }
        if !is_known {
            return Ok(Some(path));
        }
    }
    Ok(None)
}

/// The last commits of the branches that no run made.
fn branches(user: &Git) -> Result<BTreeSet<String>> {
    let list = user.read(&[
        "for-each-ref",
        "--sort=-committerdate",
        MAX_BRANCHES,
        "--format=%(objectname) %(refname)",
        "refs/heads",
        "refs/remotes",
        "refs/tags",
    ])?;
    let list = String::from_utf8_lossy(&list);
    let lines = list.lines().filter_map(|line| line.split_once(' '));
    let of_people = lines.filter(|(_, name)| !name.starts_with("refs/heads/runner/"));
    Ok(of_people.map(|(commit, _)| commit.to_owned()).collect())
}
