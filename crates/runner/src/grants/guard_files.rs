//! The files outside the project that a guard's command names: whoever can write one of them
//! decides every verdict.

use std::collections::VecDeque;
use std::ffi::OsStr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use super::OpenedEntry;
use super::refused_paths::paths_in;
use crate::files;

/// The largest script that is read.
const MAX_SCRIPT: u64 = 1 << 20;

/// So many files are looked at.
const MAX_FILES: usize = 64;

/// What comes before a file that a shell or another program runs.
const RUNNERS: &[&str] = &[
    ".", "source", "exec", "sh", "bash", "dash", "zsh", "python", "python3", "node", "ruby", "perl",
];

/// Where to look for them.
pub(crate) struct GuardFileSearch<'a> {
    pub(crate) home: Option<&'a Path>,
    /// The value of PATH.
    pub(crate) path_var: &'a OsStr,
    /// The project: what lies in it is protected in other ways.
    pub(crate) root: &'a Path,
}

impl GuardFileSearch<'_> {
    /// The guard's program, the files among its words, and the scripts that those run: each as it
    /// is named, and as links lead to it.
    pub(crate) fn files(&self, command: &[String]) -> Vec<PathBuf> {
        let mut found: Vec<PathBuf> = Vec::new();
        let mut waiting: VecDeque<PathBuf> = VecDeque::new();
        if let Some(program) = command.first().filter(|it| !it.contains('/')) {
            let folders = std::env::split_paths(self.path_var);
            waiting.extend(folders.map(|it| it.join(program)).find(|it| it.is_file()));
        }
        for word in command {
            // A word with spaces is a script of its own, which names data, too.
            if word.contains(char::is_whitespace) {
                waiting.extend(self.run_by(word));
            } else {
                waiting.extend(self.named_in(word).into_iter().map(|(path, _)| path));
            }
        }
        while let Some(path) = waiting.pop_front() {
            let is_known = found.contains(&path) || found.len() >= MAX_FILES;
            if is_known || path.starts_with(self.root) || !path.is_file() {
                continue;
            }
            let real = path.canonicalize().ok().filter(|real| *real != path);
            waiting.extend(script(&path).iter().flat_map(|text| self.run_by(text)));
            found.push(path);
            found.extend(real);
        }
        found
    }

    /// The files that a script runs, as far as it names them by whole paths.
    fn run_by(&self, text: &str) -> Vec<PathBuf> {
        let named = self.named_in(text).into_iter();
        let is_run = |(path, is_run): &(PathBuf, bool)| *is_run || is_program(path);
        named.filter(is_run).map(|(path, _)| path).collect()
    }

    /// The absolute paths in a text, and whether something that runs files stands before each.
    fn named_in(&self, text: &str) -> Vec<(PathBuf, bool)> {
        let home = self.home.and_then(Path::to_str).unwrap_or_default();
        let mut found = Vec::new();
        for line in text.lines() {
            let mut line = line.to_owned();
            if !home.is_empty() {
                for name in ["${HOME}/", "$HOME/"] {
                    line = line.replace(name, &format!("{home}/"));
                }
                line = at_home(&line, home);
            }
            found.extend(paths_in(&line).into_iter().map(|it| {
                let before = line[..it.start].trim_end_matches(['"', '\'']);
                let word = before.split_whitespace().next_back().unwrap_or_default();
                let word = word.rsplit('/').next().unwrap_or_default();
                (it.path, RUNNERS.contains(&word))
            }));
        }
        found
    }
}

/// A line in which `~/` at the beginning of a word is the home folder.
fn at_home(line: &str, home: &str) -> String {
    let mut text = String::new();
    let mut before: Option<char> = None;
    for (at, char) in line.char_indices() {
        let begins = before.is_none_or(|it| it.is_whitespace() || "=:'\"".contains(it));
        if char == '~' && begins && line[at + 1..].starts_with('/') {
            text.push_str(home);
        } else {
            text.push(char);
        }
        before = Some(char);
    }
    text
}

/// The text of a script; a program in machine code names nothing.
fn script(path: &Path) -> Option<String> {
    let bytes = files::read_regular(&path.canonicalize().ok()?, MAX_SCRIPT).ok()?;
    String::from_utf8(bytes).ok()
}

fn is_program(path: &Path) -> bool {
    let mode = path.metadata().map(|meta| meta.permissions().mode());
    path.is_file() && mode.is_ok_and(|mode| mode & 0o111 != 0)
}

/// The first writable entry that is or holds one of the guard's files: its words, and the file.
pub(crate) fn writable_guard_file(
    entries: &[OpenedEntry],
    files: &[PathBuf],
) -> Option<(String, PathBuf)> {
    let writable = entries.iter().filter(|entry| entry.is_writable);
    writable.into_iter().find_map(|entry| {
        let path = &entry.path;
        let real = path.canonicalize().unwrap_or_else(|_| path.clone());
        let holds = |file: &&PathBuf| file.starts_with(path) || file.starts_with(&real);
        let file = files.iter().find(holds)?;
        Some((entry.words.clone(), file.clone()))
    })
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn files_that_a_guard_is_made_of() {
        let temp = tempfile::tempdir().unwrap();
        let home = temp.path().canonicalize().unwrap();
        let root = home.join("p");
        for folder in ["bin", "real", "lib", ".tool", "p"] {
            fs::create_dir(home.join(folder)).unwrap();
        }
        let program = |name: &str, text: &str| {
            let path = home.join(name);
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        };
        program(
            "real/check",
            "#!/bin/sh\n\"$HOME/lib/more\" && . ~/lib/vars\necho x > $HOME/.tool/state\n",
        );
        program("lib/more", "#!/bin/sh\n");
        fs::write(home.join("lib/vars"), "A=1\n").unwrap();
        fs::write(home.join(".tool/state"), "").unwrap();
        symlink(home.join("real/check"), home.join("bin/check")).unwrap();
        fs::write(root.join("own.sh"), "").unwrap();
        let bin = home.join("bin");
        let search = GuardFileSearch {
            home: Some(&home),
            path_var: bin.as_os_str(),
            root: &root,
        };
        let all = ["bin/check", "real/check", "lib/more", "lib/vars"];
        let shown = home.display().to_string();
        for (command, expected) in [
            (vec!["check".to_owned()], &all[..]),
            (vec!["sh".to_owned(), format!("{shown}/bin/check")], &all),
            (
                vec!["sh".into(), "-c".into(), "cd /x && ~/bin/check".into()],
                &all,
            ),
            (
                vec!["env".into(), format!("--file={shown}/lib/vars")],
                &["lib/vars"],
            ),
            (vec!["sh".into(), format!("{shown}/p/own.sh")], &[]),
            (vec!["./own.sh".into()], &[]),
            (
                vec![
                    "sh".into(),
                    "-c".into(),
                    "grep -q x ~/.tool/state && . ~/lib/vars".into(),
                ],
                &["lib/vars"],
            ),
            (vec![], &[]),
        ] {
            let expected: Vec<PathBuf> = expected.iter().map(|it| home.join(it)).collect();
            assert_eq!(search.files(&command), expected, "{command:?}");
        }
        let files = search.files(&["check".to_owned()]);
        let entry = |path: &str| OpenedEntry {
            words: path.to_owned(),
            path: home.join(path),
            is_writable: true,
        };
        for (path, refused) in [
            ("bin", true),
            ("real/check", true),
            ("lib", true),
            ("", true),
            (".tool", false),
            ("lib/more-data", false),
        ] {
            let found = writable_guard_file(&[entry(path)], &files);
            assert_eq!(found.is_some(), refused, "{path}");
        }
    }
}
