//! Files that no session can change, because what git should make of them is a filter's business
//! that does not run in a workspace.

use runner_core::text::escape_path;

use crate::checkout::trial::some_of;
use crate::error::Result;
use crate::git::{BorrowedRepo, Git};
use crate::run_context::{RunContext, RunProgress};

/// Tells which files these are, if there are any.
pub(super) fn tell(git: &Git, context: &mut RunContext<'_>) -> Result<()> {
    let paths = BorrowedRepo::of(git)?.filtered_files(git)?;
    if paths.is_empty() {
        return Ok(());
    }
    let names: Vec<String> = paths
        .iter()
        .map(|path| escape_path(path.as_os_str().as_encoded_bytes()))
        .collect();
    let note = format!(
        "sessions cannot change these files: {} (attributes mean them for a filter of yours, and no filter but Git LFS runs in a workspace)",
        some_of(&names)
    );
    context.observer.progress(&RunProgress::Note(&note));
    Ok(())
}
