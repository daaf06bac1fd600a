//! In which folders of a repository its packages lie.

use std::path::{Path, PathBuf};

use crate::git::{Git, split_nul, to_path};

/// Files at the top of a package.
const MANIFESTS: &[&str] = &[
    "package.json",
    "pyproject.toml",
    "setup.py",
    "requirements.txt",
    "Pipfile",
    "Cargo.toml",
    "go.mod",
    "Gemfile",
    "composer.json",
    "pom.xml",
    "build.gradle",
    "build.gradle.kts",
];

/// Folders whose packages are not what a project is about.
const BESIDE: &[&str] = &[
    "bench",
    "benches",
    "doc",
    "docs",
    "example",
    "examples",
    "fixtures",
    "node_modules",
    "template",
    "templates",
    "test",
    "testdata",
    "tests",
    "third_party",
    "vendor",
];

/// How many folders down a package is looked for.
const MAX_DEPTH: usize = 3;

/// Whether a folder is the top of a package.
pub(super) fn is_package(folder: &Path) -> bool {
    MANIFESTS.iter().any(|name| folder.join(name).is_file())
}

/// The package that a folder below the root is in, from the root; `None` where the root's own
/// is the first above it.
pub(super) fn around(root: &Path, start: &Path) -> Option<PathBuf> {
    let start = start.canonicalize().ok()?;
    let root = root.canonicalize().ok()?;
    let below = start.ancestors().take_while(|folder| **folder != root);
    let below: Vec<&Path> = below.collect();
    if !start.starts_with(&root) {
        return None;
    }
    let found = below.into_iter().find(|folder| is_package(folder))?;
    found.strip_prefix(&root).ok().map(Path::to_owned)
}

/// The folders of the packages that git tracks below the root, sorted.
pub(super) fn tracked(git: &Git) -> Vec<PathBuf> {
    // Where git cannot be asked, there are none.
    let listed = git.read(&["ls-files", "-z"]).unwrap_or_default();
    let mut folders: Vec<PathBuf> = split_nul(&listed).filter_map(folder_of_package).collect();
    folders.sort();
    folders.dedup();
    folders
}

fn folder_of_package(path: &[u8]) -> Option<PathBuf> {
    let path = to_path(path);
    let name = path.file_name()?.to_str()?;
    let folder = path.parent()?;
    let depth = folder.components().count();
    let is_beside = |part: &std::ffi::OsStr| {
        let part = part.to_string_lossy();
        part.starts_with('.') || BESIDE.contains(&&*part)
    };
    let is_package = MANIFESTS.contains(&name)
        && (1..=MAX_DEPTH).contains(&depth)
        && !folder.iter().any(is_beside);
    is_package.then(|| folder.to_owned())
}

/// A command as it is started from the root, for a package in this folder.
pub(super) fn in_folder(folder: &Path, argv: &[String]) -> Vec<String> {
    if folder.as_os_str().is_empty() {
        return argv.to_vec();
    }
    let folder = quoted(&folder.to_string_lossy());
    let line = match argv {
        [shell, option, script] if shell == "sh" && option == "-c" => script.clone(),
        words => {
            let words: Vec<String> = words.iter().map(|word| quoted(word)).collect();
            words.join(" ")
        }
    };
    let script = format!("cd {folder} && {line}");
    vec!["sh".to_owned(), "-c".to_owned(), script]
}

/// A word as a shell reads it back.
fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,@+".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_of_a_package() {
        let words = |line: &str| line.split(' ').map(str::to_owned).collect::<Vec<_>>();
        for (folder, line, expected) in [
            ("", "npm ci", "npm ci"),
            ("web", "npm ci", "sh -c cd web && npm ci"),
            (
                "my web",
                "go test ./...",
                "sh -c cd 'my web' && go test ./...",
            ),
            ("a/b", "echo $X", "sh -c cd a/b && echo '$X'"),
        ] {
            let argv = in_folder(Path::new(folder), &words(line));
            assert_eq!(argv.join(" "), expected);
        }
        let script = ["sh", "-c", "a && b"].map(str::to_owned);
        let argv = in_folder(Path::new("web"), &script);
        assert_eq!(argv[2], "cd web && a && b");
    }

    #[test]
    fn which_files_make_a_package() {
        for (path, expected) in [
            ("package.json", None),
            ("web/package.json", Some("web")),
            ("packages/a/package.json", Some("packages/a")),
            ("a/b/c/go.mod", Some("a/b/c")),
            ("a/b/c/d/go.mod", None),
            ("examples/a/package.json", None),
            (".github/x/package.json", None),
            ("web/index.js", None),
        ] {
            let found = folder_of_package(path.as_bytes());
            assert_eq!(found, expected.map(PathBuf::from), "{path}");
        }
    }

    #[test]
    fn the_package_around_a_folder() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        std::fs::create_dir_all(root.join("web/src")).unwrap();
        std::fs::create_dir_all(root.join("docs")).unwrap();
        std::fs::write(root.join("package.json"), "{}").unwrap();
        std::fs::write(root.join("web/package.json"), "{}").unwrap();
        for (start, expected) in [
            ("", None),
            ("docs", None),
            ("web", Some("web")),
            ("web/src", Some("web")),
        ] {
            let found = around(root, &root.join(start));
            assert_eq!(found, expected.map(PathBuf::from), "{start}");
        }
    }
}
