//! Which build outputs may stay from one verdict to the next.

use std::path::Path;

use super::setup::SetupInput;

/// A file beside which a tool keeps its outputs, and these.
const OUTPUTS: &[(&str, &[&str])] = &[
    ("Cargo.toml", &["target"]),
    ("pom.xml", &["target"]),
    ("build.gradle", &["build", ".gradle"]),
    ("build.gradle.kts", &["build", ".gradle"]),
    ("CMakeLists.txt", &["build"]),
];

/// What tools keep for themselves, where they have been used.
const CACHES: &[&str] = &[
    "node_modules/.cache",
    ".next/cache",
    ".pytest_cache",
    ".mypy_cache",
    ".ruff_cache",
    ".eslintcache",
];

/// Those of them that git ignores, from the root.
pub(super) fn guess(input: &SetupInput<'_>) -> Vec<String> {
    let mut folders = vec![Path::new("")];
    if !input.folder.as_os_str().is_empty() {
        folders.push(input.folder);
    }
    let mut found: Vec<String> = Vec::new();
    for folder in folders {
        let full = input.root.join(folder);
        let made = OUTPUTS
            .iter()
            .filter(|(manifest, _)| full.join(manifest).is_file())
            .flat_map(|(_, outputs)| outputs.iter());
        let caches = CACHES.iter().filter(|cache| full.join(cache).exists());
        for name in made.chain(caches) {
            let path = folder.join(name);
            let shown = path.display().to_string();
            if !found.contains(&shown) && input.is_ignored(&path) {
                found.push(shown);
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::git::Git;

    #[test]
    fn outputs_that_git_ignores() {
        let temp = tempfile::tempdir().unwrap();
        let root = temp.path();
        Git::init(root).unwrap();
        let git = Git::open(root).unwrap();
        let keep = |folder: &str| {
            guess(&SetupInput {
                root,
                git: Some(&git),
                folder: Path::new(folder),
                guard: &[],
                may_change_guard: false,
                has_mounts: false,
            })
        };
        std::fs::write(root.join("Cargo.toml"), "").unwrap();
        assert_eq!(keep(""), [] as [&str; 0]);
        std::fs::write(root.join(".gitignore"), "target/\nbuild\n.pytest_cache/\n").unwrap();
        assert_eq!(keep(""), ["target"]);
        std::fs::create_dir_all(root.join("sub/.pytest_cache")).unwrap();
        std::fs::write(root.join("sub/CMakeLists.txt"), "").unwrap();
        assert_eq!(keep("sub"), ["target", "sub/build", "sub/.pytest_cache"]);
    }
}
