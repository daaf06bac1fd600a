//! What a guard did to the files that decide what it means: to those of the commit, and to protected
//! ones that were not there.

use runner_core::config::Config;
use runner_core::paths::{FolderGlobs, is_literal, is_state_path};
use runner_core::text::escape_path;

use super::Checkout;
use crate::error::Result;
use crate::git::{split_nul, to_path};

/// The files of the commit that are not as it has them, and the protected files that are in no commit
/// and there all the same: setup has made them, or a rule that only a tool knows. As names for people.
pub(crate) fn changed_by_guard(checkout: &Checkout, config: &Config) -> Result<Vec<String>> {
    let mut found = checkout.tree.changed_files()?;
    let copied = FolderGlobs::new(&config.workspace.include).ok();
    let is_copied = |path: &str| copied.as_ref().is_some_and(|globs| globs.is_match(path));
    let protected = config.guard.protected.iter().map(String::as_str);
    let there: Vec<&str> = protected
        .filter(|path| is_literal(path) && !path.starts_with('@') && !path.contains("/@"))
        .filter(|path| !is_state_path(path) && !is_copied(path))
        .filter(|path| {
            let path = checkout.path().join(path);
            path.symlink_metadata().is_ok_and(|meta| !meta.is_dir())
        })
        .collect();
    if there.is_empty() {
        return Ok(found);
    }
    let mut args = vec![
        "ls-tree",
        "-r",
        "-z",
        "--name-only",
        "--full-tree",
        "HEAD",
        "--",
    ];
    args.extend(&there);
    let committed = checkout.tree.git.read(&args)?;
    let committed: Vec<_> = split_nul(&committed).map(to_path).collect();
    let made = there.iter().filter(|path| {
        // A folder of the commit may be a link or a submodule.
        let mut known = committed.iter();
        !known.any(|known| std::path::Path::new(path).starts_with(known))
    });
    found.extend(made.map(|path| {
        let name = escape_path(path.as_bytes());
        format!("{name} (made by setup or by the guard, and protected)")
    }));
    Ok(found)
}
