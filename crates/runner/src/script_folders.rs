//! Folders whose name says that scripts are what they are for.

/// Their names.
const FOLDERS: [&str; 20] = [
    "scripts", "script", "tools", "tool", "ci", ".ci", "hack", "dev", "devtools", "checks",
    "check", "tasks", "build", "rules", "lint", "linters", "gate", "guard", "verify", "qa",
];

/// Whether a path lies in such a folder.
pub(crate) fn is_for_scripts(path: &str) -> bool {
    let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
    folder.split('/').any(|part| FOLDERS.contains(&part))
}
