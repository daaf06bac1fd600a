//! Rules about words that do not belong into any file.
//!
//! The words are put together from halves: this file is checked too.

use super::TidyFinding;
use super::files::TidyFiles;
use super::rust::code_lines;

/// Folders that lie above many checkouts and that texts may well name.
const COMMON_PARENTS: [&str; 9] = [
    "/", "/tmp", "/var/tmp", "/usr", "/usr/src", "/opt", "/srv", "/mnt", "/var",
];
/// Where the files of people lie.
const PERSONAL: [&str; 2] = [concat!("/ro", "ot/"), concat!("/ho", "me/")];

/// Left in code, these stop a run or say that something is missing.
const UNFINISHED_CODE: [&str; 2] = [concat!("to", "do!("), concat!("unimpl", "emented!(")];
const UNFINISHED_TEXT: [&str; 1] = [concat!("FIX", "ME")];

/// No file names a folder that only this machine, or one person, has.
pub(super) fn machine_paths(files: &TidyFiles) -> Vec<TidyFinding> {
    let root = files.root().to_string_lossy().into_owned();
    let parent = files.root().parent().map(|parent| parent.to_string_lossy());
    let mut banned: Vec<String> = PERSONAL.iter().map(|path| (*path).to_owned()).collect();
    banned.push(root);
    if let Some(parent) = parent.filter(|parent| !COMMON_PARENTS.contains(&parent.as_ref())) {
        banned.push(format!("{parent}/"));
    }
    let mut findings = Vec::new();
    for (path, text) in files.iter() {
        for (at, line) in text.lines().enumerate() {
            if let Some(found) = banned.iter().find(|banned| names_path(line, banned)) {
                let message = format!("names `{found}`, which only one machine has");
                findings.push(TidyFinding::new(path, at + 1, message));
            }
        }
    }
    findings
}

/// Whether an absolute path begins with `path`, and not the middle of a longer one.
fn names_path(line: &str, path: &str) -> bool {
    line.match_indices(path).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        !before.is_some_and(|letter| letter.is_alphanumeric() || "._-~}>*/)".contains(letter))
    })
}

/// Nothing is left unfinished.
pub(super) fn unfinished(files: &TidyFiles) -> Vec<TidyFinding> {
    let mut findings = Vec::new();
    for (path, text) in files.iter() {
        let texts = text.lines().enumerate().map(|(at, line)| (at + 1, line));
        for (line, text) in texts {
            if let Some(word) = UNFINISHED_TEXT.iter().find(|word| text.contains(**word)) {
                findings.push(TidyFinding::new(path, line, format!("`{word}`: finish it")));
            }
        }
    }
    for (path, text) in files.ending(&[".rs"]) {
        for (line, code) in code_lines(text) {
            if let Some(word) = UNFINISHED_CODE.iter().find(|word| code.contains(**word)) {
                findings.push(TidyFinding::new(path, line, format!("`{word}`: finish it")));
            }
        }
    }
    findings
}

/// Lock files name packages, not the hosts that they came from.
pub(super) fn lock_hosts(files: &TidyFiles) -> Vec<TidyFinding> {
    // Cargo's name of the public registry, which every Cargo.lock carries.
    let crates_io = "registry+https://github.com/rust-lang/crates.io-index";
    let mut findings = Vec::new();
    for (path, text) in files.ending(&["package-lock.json", "Cargo.lock"]) {
        for (at, line) in text.lines().map(str::trim).enumerate() {
            let npm_host = line.starts_with("\"resolved\": \"http");
            let cargo_host = line
                .strip_prefix("source = \"")
                .is_some_and(|source| !source.starts_with(crates_io));
            if npm_host || cargo_host {
                findings.push(TidyFinding::new(path, at + 1, "a lock file names no host"));
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::super::check;
    use super::*;

    #[test]
    fn paths_of_one_machine_are_found() {
        let personal = format!("see {}me/x", PERSONAL[1]);
        let files = [
            ("a.md", "in /machine/checkout here\nor /machine/other/x\n"),
            ("b.sh", personal.as_str()),
            (
                "c.md",
                "a/machine/x ~/machine/ <id>/machine/ /machinery /tmp/x",
            ),
        ];
        let found = check(machine_paths, &files);
        assert_eq!(found.len(), 3, "{found:?}");
        assert!(found[0].starts_with("a.md:1 names `/machine/checkout`"));
        assert!(found[1].starts_with("a.md:2 names `/machine/`"));
        assert!(found[2].starts_with("b.sh:1 "));
    }

    #[test]
    fn unfinished_work_is_found() {
        let code = format!("//! Fine.\n{}\"later\")\n", UNFINISHED_CODE[0]);
        let comment = format!("// {}: later\n", UNFINISHED_TEXT[0]);
        let in_string = format!("let a = \"{}\";\n", UNFINISHED_CODE[0]);
        let files = [
            ("a.rs", code.as_str()),
            ("b.ts", comment.as_str()),
            ("c.rs", in_string.as_str()),
        ];
        let found = check(unfinished, &files);
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].starts_with("b.ts:1 "));
        assert!(found[1].starts_with("a.rs:2 "));
    }

    #[test]
    fn hosts_in_lock_files_are_found() {
        let npm = "{\n  \"resolved\": \"https://mirror.example/x.tgz\"\n}\n";
        let cargo = "source = \"registry+https://github.com/rust-lang/crates.io-index\"\n\
            source = \"registry+https://mirror.example/index\"\n";
        let files = [("ui/package-lock.json", npm), ("Cargo.lock", cargo)];
        assert_eq!(
            check(lock_hosts, &files),
            [
                "Cargo.lock:2 a lock file names no host",
                "ui/package-lock.json:2 a lock file names no host",
            ]
        );
    }
}
