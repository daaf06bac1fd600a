//! What the run that is checked out began with: the user's checkout follows it, so the patterns and
//! ignore rules that lie there may be those of a session, which must not choose what is copied.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Read as _;
use std::os::unix::ffi::OsStringExt as _;
use std::path::PathBuf;

use runner_core::paths;
use runner_core::run_state::RunState;

use crate::error::Result;
use crate::files;
use crate::git::{Git, join_nul, split_nul, to_path};
use crate::state::runs;

/// The file at the project's root whose patterns, in the syntax of `.gitignore`, name what is
/// copied.
pub(super) const PATTERN_FILE: &str = ".worktreeinclude";

/// What rules are called in every folder.
const RULE_FILE: &str = ".gitignore";

/// Larger files of patterns are cut.
const MAX_BYTES: u64 = 1 << 20;

/// The rules of the commit from which the run began that is checked out.
pub(super) struct StartRules {
    /// The commit that is checked out, and the one from which its run began. `None`: what is
    /// checked out is of no run, and so the user's own.
    run: Option<(String, String)>,
}

impl StartRules {
    pub(super) fn of(project: &Git) -> Result<Self> {
        let run = || -> Result<Option<(String, String)>> {
            let Some(head) = project.commit_of("HEAD")? else {
                return Ok(None);
            };
            let Some(bytes) = project.file_at(&head, paths::RUN_STATE)? else {
                return Ok(None);
            };
            let state = RunState::parse(&bytes).ok();
            let Some(run_id) = state.and_then(|state| state.run_id) else {
                return Ok(None);
            };
            let base = runs::base_of(project, &run_id, &head)?;
            Ok(base.map(|base| (head, base.commit)))
        };
        Ok(StartRules { run: run()? })
    }

    /// The patterns, as options of `git ls-files`. A file that is not tracked is the user's own; one
    /// that a run has came along when it began.
    pub(super) fn pattern_options(&self, project: &Git) -> Result<Vec<OsString>> {
        let started = match &self.run {
            Some((_, base)) => project.proven_file_at(base, PATTERN_FILE)?,
            None => None,
        };
        if let Some(bytes) = started {
            return Ok(options(&bytes));
        }
        if self.run.is_some() && is_tracked(project)? {
            return Ok(Vec::new());
        }
        let path = project.root().join(PATTERN_FILE);
        let mut bytes = Vec::new();
        if path.is_file() {
            File::open(&path)
                .and_then(|file| file.take(MAX_BYTES).read_to_end(&mut bytes))
                .map_err(|error| files::at(&path, error))?;
        }
        Ok(options(&bytes))
    }

    /// Those of these files that git ignores only by rules which the run has added.
    pub(super) fn ignored_since(
        &self,
        project: &Git,
        found: &BTreeSet<PathBuf>,
    ) -> Result<BTreeSet<PathBuf>> {
        let Some((head, base)) = &self.run else {
            return Ok(BTreeSet::new());
        };
        let changed = project.changed_between(base, head)?;
        let is_rules = |path: &PathBuf| path.file_name() == Some(OsStr::new(RULE_FILE));
        if found.is_empty() || !changed.iter().any(is_rules) {
            return Ok(BTreeSet::new());
        }
        let asked = ["check-ignore", "--verbose", "-z", "--stdin"];
        let answer = project.ask_with(&asked, &join_nul(found))?;
        let answer = answer.unwrap_or_default();
        // Source, line, pattern and path of each.
        let words: Vec<&[u8]> = answer.split(|byte| *byte == 0).collect();
        let mut known: BTreeMap<&[u8], Vec<u8>> = BTreeMap::new();
        let mut new = BTreeSet::new();
        for rule in words.chunks_exact(4) {
            let (source, pattern, path) = (rule[0], rule[2], to_path(rule[3]));
            if !changed.contains(&to_path(source)) {
                continue;
            }
            if !known.contains_key(source) {
                let name = String::from_utf8_lossy(source);
                let before = project.proven_file_at(base, &name)?;
                known.insert(source, before.unwrap_or_default());
            }
            let before = known.get(source).map_or(&[][..], Vec::as_slice);
            if !patterns(before).any(|it| it == pattern) {
                new.insert(path);
            }
        }
        Ok(new)
    }
}

fn is_tracked(project: &Git) -> Result<bool> {
    let listed = project.read(&["ls-files", "-z", "--", PATTERN_FILE])?;
    Ok(split_nul(&listed).next().is_some())
}

fn options(bytes: &[u8]) -> Vec<OsString> {
    let option = |pattern: &[u8]| {
        let mut option = b"--exclude=".to_vec();
        option.extend_from_slice(pattern);
        OsString::from_vec(option)
    };
    patterns(bytes).map(option).collect()
}

/// The patterns of a file, as git reads them.
fn patterns(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    bytes
        .split(|byte| *byte == b'\n')
        .filter(|line| !line.starts_with(b"#"))
        .map(|line| {
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            let line = line.split(|byte| *byte == 0).next().unwrap_or_default();
            without_spaces(line)
        })
        .filter(|line| !line.is_empty())
}

/// Without spaces at the end, but for one behind a backslash.
fn without_spaces(line: &[u8]) -> &[u8] {
    let is_space = |byte: &&u8| **byte == b' ';
    let spaces = line.iter().rev().take_while(is_space).count();
    let (rest, _) = line.split_at(line.len() - spaces);
    let slashes = rest.iter().rev().take_while(|byte| **byte == b'\\');
    let kept = usize::from(spaces > 0 && slashes.count() % 2 == 1);
    &line[..rest.len() + kept]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_as_git_reads_them() {
        let text =
            b"\xef\xbb\xbf# ours\n*.local\r\n\n!no.local  \nwith\\ \nx\\\\ \n\\#y\nz\0a\n   \n";
        let found: Vec<&[u8]> = patterns(text).collect();
        let expected: [&[u8]; 6] = [
            b"*.local",
            b"!no.local",
            b"with\\ ",
            b"x\\\\",
            b"\\#y",
            b"z",
        ];
        assert_eq!(found, expected);
    }
}
