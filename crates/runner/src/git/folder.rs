//! What is asked of git about a folder rather than of a repository's content.

use std::path::Path;

use super::{Git, base_command, failed, is_nameless, spawn, split_nul};
use crate::error::Result;

impl Git {
    /// Whether git knows whom to name as author in this folder, which need not be
    /// in a repository.
    pub(crate) fn knows_a_name(folder: &Path) -> Result<bool> {
        let mut command = base_command();
        command
            .args(["var", "GIT_COMMITTER_IDENT"])
            .current_dir(folder);
        let output = spawn(&command, None)?;
        if output.status.success() {
            return Ok(true);
        }
        let error = failed("git var GIT_COMMITTER_IDENT", &output);
        if is_nameless(&error) {
            Ok(false)
        } else {
            Err(error)
        }
    }

    /// Whether the rules of the work tree ignore a path, be it there or not.
    pub(crate) fn ignores(&self, path: &str) -> Result<bool> {
        let args = ["check-ignore", "--quiet", "--no-index", "--", path];
        Ok(self.ask(&args)?.is_some())
    }

    /// What git ignores in the work tree; a folder that is ignored as a whole is
    /// one entry with a `/` at its end.
    pub(crate) fn ignored(&self) -> Result<Vec<String>> {
        let list = self.read(&[
            "ls-files",
            "--others",
            "--ignored",
            "--exclude-standard",
            "--directory",
            "-z",
        ])?;
        let names = split_nul(&list).map(|name| String::from_utf8_lossy(name).into_owned());
        Ok(names.collect())
    }
}
