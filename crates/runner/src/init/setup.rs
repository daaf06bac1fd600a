//! How a project makes what its checkouts lack, by its lock files.

use std::path::Path;

use crate::files;

/// A lock file, and the command that installs what it says.
struct LockFile {
    name: &'static str,
    command: &'static str,
}

const LOCK_FILES: &[LockFile] = &[
    LockFile {
        name: "package-lock.json",
        command: "npm ci",
    },
    LockFile {
        name: "npm-shrinkwrap.json",
        command: "npm ci",
    },
    LockFile {
        name: "pnpm-lock.yaml",
        command: "pnpm install --frozen-lockfile",
    },
    LockFile {
        name: "yarn.lock",
        command: "yarn install --immutable",
    },
    LockFile {
        name: "uv.lock",
        command: "uv sync --frozen",
    },
    LockFile {
        name: "Gemfile.lock",
        command: "bundle install",
    },
    LockFile {
        name: "go.sum",
        command: "go mod download",
    },
    LockFile {
        name: "composer.lock",
        command: "composer install --no-interaction",
    },
];

/// Larger ones are not looked into.
const MAX_LOCK_BYTES: u64 = 64 << 20;

/// What the first versions of yarn call the same.
const YARN_CLASSIC: &str = "yarn install --frozen-lockfile";

/// The argv and the reason; nothing where no lock file asks for it.
pub(super) fn detect(root: &Path) -> (Vec<String>, String) {
    let mut commands: Vec<&str> = Vec::new();
    let mut names = Vec::new();
    for lock in LOCK_FILES {
        let Ok(bytes) = files::read_regular(&root.join(lock.name), MAX_LOCK_BYTES) else {
            continue;
        };
        let text = String::from_utf8_lossy(&bytes);
        let command = if lock.name == "yarn.lock" && !text.contains("__metadata:") {
            YARN_CLASSIC
        } else {
            lock.command
        };
        names.push(lock.name);
        if !commands.contains(&command) {
            commands.push(command);
        }
    }
    let why = match names.as_slice() {
        [] => "no lock file asks for one".to_owned(),
        names => format!("by {}", names.join(", ")),
    };
    let argv = match commands.as_slice() {
        [] => Vec::new(),
        [one] => one.split(' ').map(str::to_owned).collect(),
        several => vec!["sh".to_owned(), "-c".to_owned(), several.join(" && ")],
    };
    (argv, why)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn setups_by_lock_files() {
        for (files, expected) in [
            (&[][..], "no lock file asks for one: "),
            (&[("Cargo.lock", "")], "no lock file asks for one: "),
            (
                &[("package-lock.json", "{}")],
                "by package-lock.json: npm ci",
            ),
            (
                &[("package-lock.json", "{}"), ("npm-shrinkwrap.json", "{}")],
                "by package-lock.json, npm-shrinkwrap.json: npm ci",
            ),
            (
                &[("yarn.lock", "# yarn lockfile v1\n")],
                "by yarn.lock: yarn install --frozen-lockfile",
            ),
            (
                &[("yarn.lock", "__metadata:\n  version: 8\n")],
                "by yarn.lock: yarn install --immutable",
            ),
            (
                &[("uv.lock", ""), ("package-lock.json", "{}")],
                "by package-lock.json, uv.lock: sh -c npm ci && uv sync --frozen",
            ),
        ] {
            let folder = tempfile::tempdir().unwrap();
            for (name, text) in files {
                std::fs::write(folder.path().join(name), text).unwrap();
            }
            let (argv, why) = detect(folder.path());
            assert_eq!(format!("{why}: {}", argv.join(" ")), expected);
        }
    }
}
