//! The branch on which a run lands.

use crate::error::{Error, ErrorCode, Result};
use crate::git::Git;
use crate::state::runs::{KnownRun, RunBase, full_name};

/// Where a run lands.
pub(crate) struct LandTarget {
    pub(crate) branch: String,
    /// Before.
    pub(crate) tip: String,
}

impl LandTarget {
    pub(crate) fn find(
        git: &Git,
        run: &KnownRun,
        base: Option<&RunBase>,
        into: Option<&str>,
    ) -> Result<Self> {
        let branch = match (into, base) {
            (Some(name), _) => name.strip_prefix("refs/heads/").unwrap_or(name),
            (None, Some(base)) if base.branch == "HEAD" => {
                return Err(Error::new(
                    ErrorCode::Identity,
                    format!(
                        "run {} began from a detached HEAD, so there is no branch to land on",
                        run.run_id
                    ),
                )
                .hint("name one: `runner land --into BRANCH`"));
            }
            (None, Some(base)) => &base.branch,
            (None, None) => {
                return Err(Error::new(
                    ErrorCode::Identity,
                    format!(
                        "the first commit of run {} is not on its branch, so it is not known where it began",
                        run.run_id
                    ),
                )
                .hint("name a branch: `runner land --into BRANCH`"));
            }
        };
        if branch == run.branch() {
            return Err(Error::new(
                ErrorCode::Identity,
                format!("{branch} is the run's own branch"),
            )
            .hint("name another: `runner land --into BRANCH`"));
        }
        let full = full_name(branch);
        let valid = git.ask(&["check-ref-format", &full])?.is_some();
        let tip = if valid { git.commit_of(&full)? } else { None };
        let Some(tip) = tip else {
            let make = base.map_or_else(String::new, |base| {
                format!(", or make it: `git branch {branch} {}`", base.commit)
            });
            return Err(Error::new(
                ErrorCode::NotFound,
                format!("there is no branch {branch:?}"),
            )
            .hint(format!(
                "name one that there is: `runner land --into BRANCH`{make}"
            )));
        };
        if git.ask(&["symbolic-ref", "--quiet", &full])?.is_some() {
            return Err(Error::new(
                ErrorCode::Git,
                format!("{branch} is only another name for a branch"),
            )
            .hint("name the branch itself: `runner land --into BRANCH`"));
        }
        Ok(LandTarget {
            branch: branch.to_owned(),
            tip,
        })
    }
}
