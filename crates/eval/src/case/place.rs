//! Which paths a case may name.

use std::path::{Component, Path};

use runner_core::text::escape_path;

/// Why a path cannot be one of a workspace's files, if so.
pub(crate) fn check_workspace_path(path: &str) -> Result<(), (String, &'static str)> {
    let shown = escape_path(path.as_bytes());
    let remedy = "name a file below the workspace, such as `src/main.rs`";
    if path.trim().is_empty() || path.contains('\0') {
        return Err(("the path is empty".to_owned(), remedy));
    }
    for component in Path::new(path).components() {
        match component {
            Component::Normal(name) if name == ".git" => {
                let message = format!("`{shown}` is inside git's own folder");
                return Err((message, "leave .git to git"));
            }
            Component::Normal(_) => {}
            Component::CurDir => {
                return Err((format!("`{shown}` begins with `.`"), "leave the `./` out"));
            }
            Component::ParentDir | Component::RootDir | Component::Prefix(_) => {
                let message = format!("`{shown}` leads out of the workspace");
                return Err((message, remedy));
            }
        }
    }
    if path.ends_with('/') {
        return Err((format!("`{shown}` is a folder"), remedy));
    }
    Ok(())
}
