//! Compiled files of Python that a session left: Python may load them in the place of their source,
//! so no commit gets them.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::name;
use crate::checkout::trial::some_of;
use crate::error::Result;
use crate::step::Iteration;
use crate::step::file_image;
use crate::step::protected_files::ProtectedFiles;

/// Takes new ones away, unless the project commits such files.
pub(super) fn take(
    root: &Path,
    it: &mut Iteration,
    protected: &ProtectedFiles<'_>,
    changed: &mut BTreeSet<PathBuf>,
) -> Result<()> {
    let found = changed.iter().filter(|path| is_compiled(path));
    let found: Vec<PathBuf> = found.cloned().collect();
    if found.is_empty() || protected.tracked.iter().any(|it| is_compiled(&it.path)) {
        return Ok(());
    }
    for path in &found {
        if root.join(path).symlink_metadata().is_ok() {
            file_image::move_to(root, path, &it.quarantine())?;
        }
        changed.remove(path);
    }
    let names: Vec<String> = found.iter().map(|path| name(path)).collect();
    it.notes.push(format!(
        "compiled files of Python are left out of commits, because they may be loaded in the place of their source: {}",
        some_of(&names)
    ));
    Ok(())
}

/// Whether Python may load a file without reading its source.
fn is_compiled(path: &Path) -> bool {
    let ending = path.extension().and_then(|it| it.to_str());
    matches!(ending, Some("pyc" | "pyo")) || path.iter().any(|part| part == "__pycache__")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compiled_files() {
        for (path, expected) in [
            ("__pycache__/rules.cpython-311.pyc", true),
            ("pkg/__pycache__/x", true),
            ("rules.pyc", true),
            ("rules.py", false),
            ("pycache/x", false),
        ] {
            assert_eq!(is_compiled(Path::new(path)), expected, "{path}");
        }
    }
}
