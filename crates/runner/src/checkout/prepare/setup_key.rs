//! The name of what setup makes: it stays the same while nothing that setup reads changes.

use std::os::unix::ffi::OsStrExt as _;

use runner_core::config::Config;
use runner_core::digest::sha256_hex;
use runner_core::paths::{GlobList, is_state_path};

use super::setup_scope::{InputScope, is_manifest, runs_project, scope_of};
use crate::error::{Error, ErrorCode, Result};
use crate::git::{Git, TreeEntry, next_blob};

/// A hash over setup's command, the names of its variables and its inputs as they are in a
/// commit. `None`: there is no setup.
pub(crate) fn setup_key(git: &Git, commit: &str, config: &Config) -> Result<Option<String>> {
    let workspace = &config.workspace;
    if workspace.setup.is_empty() {
        return Ok(None);
    }
    let mut entries = git.files_of(commit)?;
    entries.retain(|entry| !is_state_path(entry.path.as_os_str().as_bytes()));
    if !workspace.setup_inputs.is_empty() {
        let globs = GlobList::new(&workspace.setup_inputs).map_err(|error| {
            Error::new(
                ErrorCode::Config,
                format!("[workspace] setup_inputs: {error}"),
            )
        })?;
        entries.retain(|entry| globs.is_match(entry.path.as_os_str().as_bytes()));
    } else if scope_of(&workspace.setup) == InputScope::Manifests {
        let is_read = |entry: &TreeEntry| is_manifest(&entry.path.to_string_lossy());
        let manifests: Vec<TreeEntry> = entries.iter().filter(|it| is_read(it)).cloned().collect();
        if !any_runs_project(git, &manifests)? {
            entries = manifests;
        }
    }
    Ok(Some(hash(&workspace.setup, &workspace.env, &entries)))
}

/// Whether an install of packages would run code of the project.
fn any_runs_project(git: &Git, manifests: &[TreeEntry]) -> Result<bool> {
    let is_asked = |path: &str| {
        let names = ["package.json", "composer.json", "Pipfile"];
        names.iter().any(|name| path.ends_with(name)) || path.strip_suffix(".txt").is_some()
    };
    let asked: Vec<(String, &str)> = manifests
        .iter()
        .filter(|entry| !entry.path.iter().any(|part| part == "node_modules"))
        .map(|entry| {
            (
                entry.path.to_string_lossy().into_owned(),
                entry.oid.as_str(),
            )
        })
        .filter(|(path, _)| is_asked(path))
        .collect();
    if asked.is_empty() {
        return Ok(false);
    }
    let wanted: Vec<&str> = asked.iter().map(|(_, oid)| *oid).collect();
    let wanted = wanted.join("\n") + "\n";
    let answer = git.ask_with(&["cat-file", "--batch"], wanted.as_bytes())?;
    let mut texts = blobs(answer.as_deref().unwrap_or_default());
    // One that is missing cannot be looked into.
    Ok(asked
        .iter()
        .any(|(path, _)| texts.next().is_none_or(|text| runs_project(path, text))))
}

/// The contents in an answer of `cat-file --batch`, up to the first that is missing.
fn blobs(mut answer: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || next_blob(&mut answer).map(|(_, text)| text))
}

fn hash(setup: &[String], env: &[String], entries: &[TreeEntry]) -> String {
    let mut bytes = Vec::new();
    // Every part with its length: no two lists read the same.
    let mut add = |part: &[u8]| {
        bytes.extend((part.len() as u64).to_le_bytes());
        bytes.extend(part);
    };
    for list in [setup, env] {
        add(&(list.len() as u64).to_le_bytes());
        for word in list {
            add(word.as_bytes());
        }
    }
    for entry in entries {
        add(entry.mode.as_bytes());
        add(entry.oid.as_bytes());
        add(entry.path.as_os_str().as_bytes());
    }
    sha256_hex(&bytes)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;

    fn commit(root: &Path, files: &[(&str, &str)]) -> (Git, String) {
        let git = Git::open(root).unwrap_or_else(|_| {
            Git::init(root).unwrap();
            Git::open(root).unwrap()
        });
        for (name, text) in files {
            let path = root.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        git.write(&["add", "--all"]).unwrap();
        git.commit("x").unwrap();
        let head = git.commit_of("HEAD").unwrap().unwrap();
        (git, head)
    }

    #[test]
    fn the_key_changes_with_what_setup_reads() {
        let manifest = r#"{"scripts": {"test": "node --test"}}"#;
        let changes: &[(&str, &str, [bool; 4])] = &[
            // Which of `npm ci`, `make`, `npm ci` with inputs and none notices.
            ("src/a.js", "2", [false, true, false, false]),
            (
                "packages/b/package.json",
                "{\"a\": 1}",
                [true, true, false, false],
            ),
            ("tools/list", "x", [false, true, true, false]),
            (".runner/state/x", "x", [false; 4]),
        ];
        let configs = [
            "setup = \"npm ci\"",
            "setup = \"make\"",
            "setup = \"npm ci\"\nsetup_inputs = [\"tools/**\"]",
            "",
        ]
        .map(|text| Config::parse(&format!("[workspace]\n{text}\n")).unwrap());
        let folder = tempfile::tempdir().unwrap();
        let keys = |(git, head): (Git, String)| {
            configs
                .each_ref()
                .map(|config| setup_key(&git, &head, config).unwrap())
        };
        let mut before = keys(commit(
            folder.path(),
            &[("package.json", manifest), ("src/a.js", "1")],
        ));
        assert_eq!(before[3], None);
        for (path, text, expected) in changes {
            let after = keys(commit(folder.path(), &[(path, text)]));
            for (index, changed) in expected.iter().enumerate() {
                assert_eq!(before[index] != after[index], *changed, "{path} {index}");
            }
            before = after;
        }
        // A manifest that makes the install run the project.
        let hook = r#"{"scripts": {"prepare": "tsc"}}"#;
        let hooked = keys(commit(folder.path(), &[("package.json", hook)]));
        let after = keys(commit(folder.path(), &[("src/a.js", "3")]));
        assert_ne!(hooked[0], after[0]);
    }

    #[test]
    fn answers_of_cat_file() {
        let all = |text: &[u8]| blobs(text).map(<[u8]>::to_vec).collect::<Vec<_>>();
        let two: Vec<Vec<u8>> = vec![b"a\nb".to_vec(), b"".to_vec()];
        assert_eq!(all(b"abc blob 3\na\nb\ndef blob 0\n\n"), two);
        assert_eq!(all(b"abc missing\ndef blob 0\n\n"), [] as [Vec<u8>; 0]);
        assert_eq!(all(b""), [] as [Vec<u8>; 0]);
    }

    #[test]
    fn no_two_lists_read_the_same() {
        let words = |list: &[&str]| list.iter().map(|&it| it.to_owned()).collect::<Vec<_>>();
        let keys = [
            hash(&words(&["a", "b"]), &[], &[]),
            hash(&words(&["ab"]), &[], &[]),
            hash(&words(&["a"]), &words(&["b"]), &[]),
        ];
        assert!(keys[0] != keys[1] && keys[0] != keys[2] && keys[1] != keys[2]);
    }
}
