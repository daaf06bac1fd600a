//! `PATH`, with regard to what sessions can write: programs that the runner starts itself, outside any
//! sandbox, are never taken from a project, and folders of a project in which children look for
//! programs are protected.

use std::ffi::{OsStr, OsString};
use std::path::{Component, Path, PathBuf};
use std::sync::OnceLock;

/// Where programs are looked for if nothing says so.
const USUAL: &str = "/usr/local/bin:/usr/bin:/bin";

/// What a project of the runner has, and nothing else.
const MARKS: [&str; 3] = [".runner/state", ".runner/iterations", ".runner/fleet"];

/// Where the runner finds git, bubblewrap and what these start. Found out once.
pub fn own_search_path() -> &'static OsStr {
    static FOUND: OnceLock<OsString> = OnceLock::new();
    FOUND.get_or_init(|| {
        let path = std::env::var_os("PATH").unwrap_or_else(|| USUAL.into());
        joined(std::env::split_paths(&path).filter(|folder| is_own(folder)))
    })
}

/// What children get: "here" is no place for programs, because sessions write there.
pub(crate) fn search_path_of_children(path: &OsStr) -> OsString {
    joined(std::env::split_paths(path).filter(|folder| !is_here(folder)))
}

/// Protected files, and those of every folder of the project in which programs are looked for: a
/// new file there would be the test tool.
pub(crate) fn with_search_path(protected: &[String], project: &Path) -> Vec<String> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut all = protected.to_vec();
    for folder in std::env::split_paths(&path) {
        if let Some(folder) = folder_in(&folder, project) {
            let glob = format!("{}/**", escaped(&folder));
            if !all.contains(&glob) {
                all.push(glob);
            }
        }
    }
    all
}

fn joined(folders: impl Iterator<Item = PathBuf>) -> OsString {
    // They come from such a list, so none has a colon.
    std::env::join_paths(folders).unwrap_or_else(|_| USUAL.into())
}

/// Whether no session writes in a folder.
fn is_own(folder: &Path) -> bool {
    let real = folder.canonicalize();
    let places = [Some(folder), real.as_deref().ok()];
    folder.is_absolute() && !places.into_iter().flatten().any(is_in_project)
}

fn is_in_project(folder: &Path) -> bool {
    let has_mark = |folder: &Path| MARKS.iter().any(|mark| folder.join(mark).is_dir());
    folder.ancestors().any(has_mark)
}

fn is_here(folder: &Path) -> bool {
    folder
        .components()
        .all(|part| matches!(part, Component::CurDir))
}

/// Where in a project a folder of `PATH` lies, from the project's root.
fn folder_in(folder: &Path, project: &Path) -> Option<String> {
    let below = match folder.strip_prefix(project) {
        Ok(below) => below.to_owned(),
        Err(_) if folder.is_absolute() => {
            let real = folder.canonicalize().ok()?;
            real.strip_prefix(project).ok()?.to_owned()
        }
        Err(_) => folder.to_owned(),
    };
    let mut parts = Vec::new();
    for part in below.components() {
        match part {
            Component::CurDir => {}
            Component::Normal(name) => parts.push(name.to_str()?),
            // It leads out of the project.
            _ => return None,
        }
    }
    (!parts.is_empty()).then(|| parts.join("/"))
}

/// A path as a glob that means it alone.
fn escaped(path: &str) -> String {
    let mut text = String::new();
    for letter in path.chars() {
        if "*?[]{}\\".contains(letter) {
            text.push('\\');
        }
        text.push(letter);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_of_projects_are_not_the_runners() {
        let temp = tempfile::tempdir().unwrap();
        let project = temp.path().join("p");
        for folder in ["p/.runner/state", "p/bin", "tools"] {
            std::fs::create_dir_all(temp.path().join(folder)).unwrap();
        }
        std::os::unix::fs::symlink(project.join("bin"), temp.path().join("link")).unwrap();
        for (folder, expected) in [
            ("/usr/bin".into(), true),
            (temp.path().join("tools"), true),
            (temp.path().join("none"), true),
            (project.join("bin"), false),
            (temp.path().join("link"), false),
            ("bin".into(), false),
            (".".into(), false),
            ("".into(), false),
        ] {
            assert_eq!(is_own(&folder), expected, "{}", folder.display());
        }
    }

    #[test]
    fn folders_of_the_project_on_the_path() {
        for (folder, expected) in [
            ("/p/bin", Some("bin")),
            ("/p/tools/x", Some("tools/x")),
            ("./bin", Some("bin")),
            ("node_modules/.bin", Some("node_modules/.bin")),
            ("/p", None),
            (".", None),
            ("", None),
            ("../bin", None),
            ("/usr/bin", None),
            ("/px/bin", None),
        ] {
            let found = folder_in(Path::new(folder), Path::new("/p"));
            assert_eq!(found.as_deref(), expected, "{folder}");
        }
        assert_eq!(escaped("a[b]/*"), "a\\[b\\]/\\*");
    }

    #[test]
    fn children_do_not_look_here() {
        for (path, expected) in [
            ("/a:/b", "/a:/b"),
            (".:/a::/b:./", "/a:/b"),
            ("./bin:/a", "./bin:/a"),
        ] {
            assert_eq!(search_path_of_children(OsStr::new(path)), expected);
        }
    }
}
