//! What a person does where a run and the branch do not go together.

use std::path::PathBuf;

use runner_core::paths;

use super::{Lander, checkout};
use crate::error::{Code, Error, Result};

impl Lander<'_> {
    /// Words about files that both sides changed.
    pub(super) fn conflicts(&self, paths: &[PathBuf]) -> Result<Error> {
        let names: Vec<String> = paths.iter().map(|path| checkout::shown(path)).collect();
        let message = format!(
            "{0} has moved since the run began, and both changed these files in ways that do not \
             fit together; nothing was changed:\n{1}",
            self.target.branch,
            checkout::list(&names)
        );
        Ok(Error::new(Code::Conflict, message).hint(format!(
            "{}, mend the files, commit, then `{}` (or `runner loop` to let the run go on from there)",
            self.bring_together()?,
            self.again
        )))
    }

    /// What helps where the guard is red on the result.
    pub(super) fn how_to_mend(&self) -> Result<String> {
        let again = &self.again;
        if self.git.is_ancestor(&self.target.tip, &self.work.commit)? {
            let branch = self.run.branch();
            return Ok(format!(
                "`git switch {branch}`, mend it there, commit, then `{again}`"
            ));
        }
        let merge = self.bring_together()?;
        Ok(format!(
            "{merge} brings both together, mend it there, commit, then `{again}`"
        ))
    }

    /// The commands that merge the branch into the run's. Where both have, or had, a
    /// `.runner/`, git would merge that too: the run's own has to stay.
    fn bring_together(&self) -> Result<String> {
        let (branch, target) = (self.run.branch(), &self.target);
        let common = self
            .git
            .ask(&["merge-base", &target.tip, &self.run.tip])?
            .map(|name| String::from_utf8_lossy(name.trim_ascii_end()).into_owned());
        for commit in common.iter().chain([&target.tip]) {
            if self.git.file_at(commit, paths::GOAL)?.is_some() {
                return Ok(format!(
                    "`git switch {branch} && git merge --no-commit {}`, then \
                     `git checkout {branch} -- {}` (the run's own stays)",
                    target.branch,
                    paths::ROOT
                ));
            }
        }
        Ok(format!(
            "`git switch {branch} && git merge {}`",
            target.branch
        ))
    }
}
