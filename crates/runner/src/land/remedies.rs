//! What a person must know, or do, where the branch is not what it was.

use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;

use runner_core::config::OriginalTests;
use runner_core::evidence::{TestEvidence, compare, silence};
use runner_core::paths::{self, GlobList};

use super::{Lander, note, work_tree};
use crate::base_trial::evidence::BaseEvidence;
use crate::base_trial::guard_file;
use crate::checkout::guard_changes;
use crate::checkout::trial;
use crate::error::{Error, ErrorCode, Result};
use crate::original_tests::{self, fewer_tests};
use crate::run_context::RunContext;
use crate::state::branch_record::BranchRecord;
use crate::state::runs::RunBase;

impl Lander<'_> {
    /// The guard judges by files that a run may not change. A session can still move
    /// the branch itself, so a person is told what of theirs is different there.
    pub(crate) fn tell_of_protected(
        &self,
        base: Option<&RunBase>,
        context: &mut RunContext<'_>,
    ) -> Result<()> {
        let Some(base) = base.filter(|base| base.branch == self.target.branch) else {
            return Ok(());
        };
        let Ok(globs) = GlobList::new(&self.work.config.guard.protected) else {
            return Ok(());
        };
        if self.git.commit_of(&base.commit)?.is_none() {
            return Ok(());
        }
        let changed = self.git.changed_between(&base.commit, &self.target.tip)?;
        let names: Vec<String> = changed
            .iter()
            .filter(|path| globs.is_match(path.as_os_str().as_bytes()))
            .map(|path| work_tree::shown(path))
            .collect();
        if names.is_empty() {
            return Ok(());
        }
        let (branch, since) = (&base.branch, &base.commit);
        note(
            context,
            &format!(
                "protected files are different on {branch} since the run began: {}; if that was not \
                 you, look: `git log -p {}..{} -- FILE`",
                trial::some_of(&names),
                since.get(..12).unwrap_or(since),
                self.target.tip.get(..12).unwrap_or(&self.target.tip),
            ),
        );
        Ok(())
    }

    /// A run that began without the file that defines the guard was judged by what an agent wrote.
    pub(crate) fn tell_of_own_guard(
        &self,
        base: Option<&RunBase>,
        context: &mut RunContext<'_>,
    ) -> Result<()> {
        let Some(base) = base else {
            return Ok(());
        };
        if self.git.commit_of(&base.commit)?.is_none() {
            return Ok(());
        }
        let files = guard_file::candidates(&self.work.config.guard.command);
        let there = |commit: &str| -> Result<Option<&String>> {
            for file in &files {
                if self.git.file_at(commit, file)?.is_some() {
                    return Ok(Some(file));
                }
            }
            Ok(None)
        };
        if let (None, Some(file)) = (there(&base.commit)?, there(&self.work.commit)?) {
            let text = format!(
                "the agent wrote its own guard: {file} was not there when the run began; read it before you \
                 trust what passed"
            );
            note(context, &text);
        }
        Ok(())
    }

    /// Refuses a green result whose guard judged something else than what was committed.
    pub(crate) fn check_changed(
        &self,
        changed: Vec<String>,
        context: &mut RunContext<'_>,
    ) -> Result<()> {
        let base = BranchRecord::read(self.git, &self.run.run_id)?.base;
        let changed = match base {
            Some((_, base)) => {
                guard_changes::beyond_base(self.git, &base, &self.work.config, changed, context)?
            }
            None => changed,
        };
        if changed.is_empty() {
            return Ok(());
        }
        Err(Error::new(
            ErrorCode::GuardFailed,
            format!(
                "the guard is green on the result, but {}; nothing was changed",
                guard_changes::words(&changed)
            ),
        )
        .hint("commit these files as the guard leaves them, and let the check only check"))
    }

    /// A green exit code counts only where the tests of the beginning were reported.
    pub(crate) fn check_evidence(
        &self,
        tests: &TestEvidence,
        context: &mut RunContext<'_>,
    ) -> Result<()> {
        let base = BranchRecord::read(self.git, &self.run.run_id)?.base;
        let known = match base {
            Some((_, base)) => BaseEvidence::at(self.git, &self.work.config, &base)?.read(),
            None => None,
        };
        let known = known.unwrap_or_default();
        let (mut gaps, difference) = compare(&known, tests);
        if gaps.is_empty() {
            gaps.extend(silence(&self.work.config.guard.command, tests));
        }
        if let Some(gap) = gaps.first() {
            return Err(Error::new(
                ErrorCode::GuardFailed,
                format!(
                    "the guard is green on the result, but {}; nothing was changed",
                    gap.words()
                ),
            )
            .hint(self.how_to_fix()?));
        }
        let guard = &self.work.config.guard;
        if guard.original_tests == OriginalTests::Require
            && guard.released_tests.is_empty()
            && let Some(why) = original_tests::shortfall(&difference)
        {
            return Err(Error::new(
                ErrorCode::GuardFailed,
                format!("the guard is green on the result, but {why}; nothing was changed"),
            )
            .hint(self.how_to_fix()?));
        }
        for (names, what) in [
            (&difference.missing, "are not reported any more"),
            (&difference.skipped, "are skipped now"),
        ] {
            if !names.is_empty() {
                let names = trial::some_of(names);
                note(
                    context,
                    &format!("tests that ran where the run began {what}: {names}"),
                );
            }
        }
        if let Some(text) = fewer_tests(difference.fewer) {
            note(context, &text);
        }
        if known.is_empty() && tests.is_empty() {
            note(
                context,
                "the guard's report of tests is not understood: its exit code alone says that they ran",
            );
        }
        Ok(())
    }

    /// Words about files that both sides changed.
    pub(crate) fn conflicts(&self, paths: &[PathBuf]) -> Result<Error> {
        let names: Vec<String> = paths.iter().map(|path| work_tree::shown(path)).collect();
        let message = format!(
            "{0} has moved since the run began, and both changed these files in ways that do not \
             fit together; nothing was changed:\n{1}",
            self.target.branch,
            work_tree::list(&names)
        );
        Ok(Error::new(ErrorCode::Conflict, message).hint(format!(
            "{}, mend the files, commit, then `{}` (or `runner loop` to let the run go on from there)",
            self.bring_together()?,
            self.again
        )))
    }

    /// What helps where the guard is red on the result.
    pub(crate) fn how_to_fix(&self) -> Result<String> {
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
