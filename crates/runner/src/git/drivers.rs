//! Programs of the user's that git would run on files which an agent may have written: filter
//! drivers and merge drivers. They run outside any sandbox, and some of them are scripts of the
//! very repository.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::{Git, settings};
use crate::error::Result;

/// The calls that may run filter drivers: whatever compares, reads or writes files of a work tree.
pub(super) const USED_BY: &[&str] = &[
    "add",
    "apply",
    "archive",
    "checkout",
    "checkout-index",
    "commit",
    "diff",
    "hash-object",
    "merge",
    "read-tree",
    "reset",
    "restore",
    "rm",
    "stash",
    "status",
    "update-index",
    "worktree",
];

/// Programs that by nature do what files of the folder say.
const READ_RECIPES: &[&str] = &[
    "bun", "bundle", "cargo", "composer", "gmake", "gradle", "just", "make", "mvn", "npm", "npx",
    "pnpm", "rake", "task", "tox", "uv", "yarn",
];

/// Endings of scripts.
const SCRIPTS: &[&str] = &[
    "awk", "bash", "cjs", "js", "lua", "mjs", "php", "pl", "py", "rb", "sed", "sh", "ts", "zsh",
];

/// What git itself does where there is no merge driver.
const PLAIN_MERGE: &str = "git merge-file -q %A %O %B";

/// What was asked for a moment ago is still so: the beginning of a step wants it three times.
/// Longer than that, a person may have changed it.
const LISTED_FOR: Duration = Duration::from_secs(1);

/// The settings of a repository as they were a moment ago.
#[derive(Clone, Debug, Default)]
pub(super) struct ListedSettings(Arc<Mutex<Option<SettingsAnswer>>>);

/// What git said, and when.
#[derive(Debug)]
struct SettingsAnswer {
    at: Instant,
    listed: Arc<Vec<u8>>,
}

impl Git {
    /// The same repository for calls that look at or move files of a run in the user's checkout:
    /// no filter driver runs but that of Git LFS, and no merge driver.
    pub(crate) fn without_filters(&self) -> Result<Git> {
        self.without_drivers(|_| true)
    }

    /// The same for going from one branch to another: only drivers that are scripts of the
    /// repository do not run. Others, such as one that decrypts, are needed there.
    pub(crate) fn without_scripts(&self) -> Result<Git> {
        self.without_drivers(|command| names_file_in(&self.root, command))
    }

    fn without_drivers(&self, is_meant: impl Fn(&[u8]) -> bool) -> Result<Git> {
        let listed = self.listed_settings()?;
        let pairs = settings::settings_of(&listed, &["filter.", "merge."]);
        // What a file of the work tree says may be a session's word as a whole.
        let planted = settings::split_settings(&listed, &self.root, &self.common_dir).planted;
        let is_off = |command: &[u8]| is_meant(command) || planted.contains(command);
        let mut off = Vec::new();
        for driver in settings::foreign_drivers(&pairs) {
            let prefix = [b"filter.", driver, b"."].concat();
            let commands = pairs.iter().filter(|(key, _)| key.starts_with(&prefix));
            if commands.into_iter().any(|(_, command)| is_off(command)) {
                for setting in ["clean", "smudge", "process", "required"] {
                    let key = [prefix.as_slice(), setting.as_bytes()].concat();
                    off.push((OsStr::from_bytes(&key).to_owned(), OsString::new()));
                }
            }
        }
        for (key, command) in &pairs {
            let is_driver = key.starts_with(b"merge.") && key.ends_with(b".driver");
            if is_driver && is_off(command) {
                off.push((OsStr::from_bytes(key).to_owned(), PLAIN_MERGE.into()));
            }
        }
        let mut git = self.clone();
        // Also where there is none: then nobody asks for them again.
        git.drivers_off = Some(Arc::new(off));
        Ok(git)
    }

    /// Every setting that git reads here, as `git config --list --show-scope --show-origin -z` tells
    /// them.
    pub(super) fn listed_settings(&self) -> Result<Arc<Vec<u8>>> {
        let mut known = self.listed.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(answer) = &*known
            && answer.at.elapsed() < LISTED_FOR
        {
            return Ok(answer.listed.clone());
        }
        let args = [
            "config",
            "--list",
            "--show-scope",
            "--show-origin",
            "--includes",
            "-z",
        ];
        let listed = Arc::new(self.read(&args)?);
        *known = Some(SettingsAnswer {
            at: Instant::now(),
            listed: listed.clone(),
        });
        Ok(listed)
    }

    /// Whether a file is meant for a filter driver that does not run here.
    pub(crate) fn lacks_filter(&self, path: &Path) -> Result<bool> {
        let Some(settings) = self.drivers_off.as_ref().filter(|it| !it.is_empty()) else {
            return Ok(false);
        };
        let args: [&OsStr; 5] = [
            "check-attr".as_ref(),
            "-z".as_ref(),
            "filter".as_ref(),
            "--".as_ref(),
            path.as_os_str(),
        ];
        let answer = self.read(&args)?;
        let Some(driver) = answer.split(|byte| *byte == 0).nth(2) else {
            return Ok(false);
        };
        let key = [b"filter.", driver, b".clean"].concat();
        Ok(settings.iter().any(|(it, _)| it.as_bytes() == key))
    }

    /// Goes to a branch or a commit; a file that git ignores is never overwritten.
    pub(crate) fn check_out(&self, args: &[&str]) -> Result<()> {
        let mut all = vec!["checkout", "--quiet", "--no-overwrite-ignore"];
        all.extend(args);
        all.push("--");
        self.without_scripts()?.write(&all).map(drop)
    }
}

/// Whether a command of the user's names a file of the repository by a relative path, or runs what
/// files there say. A file that only another commit has is known by its ending.
fn names_file_in(root: &Path, command: &[u8]) -> bool {
    let words = command.split(|byte| byte.is_ascii_whitespace() || b"'\"=;&|()`".contains(byte));
    words.filter(|word| !word.is_empty()).any(|word| {
        let path = Path::new(OsStr::from_bytes(word));
        if path.starts_with(root) {
            return true;
        }
        let is_relative = !b"/~%-$".contains(&word[0]);
        let ending = path.extension().and_then(OsStr::to_str);
        let name = path.file_name().and_then(OsStr::to_str);
        name.is_some_and(|name| READ_RECIPES.contains(&name))
            || is_relative
                && (word.contains(&b'/')
                    || ending.is_some_and(|it| SCRIPTS.contains(&it))
                    || root.join(path).exists())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scripts_of_the_repository_are_told_from_other_programs() {
        let root = tempfile::tempdir().unwrap();
        std::fs::write(root.path().join("clean.sh"), "").unwrap();
        for (command, expected) in [
            ("git-crypt smudge", false),
            ("/usr/bin/nbstripout", false),
            ("~/bin/mine %f", false),
            ("sh tools/clean.sh", true),
            ("./tools/f.sh %f", true),
            ("sh clean.sh", true),
            ("sh -c 'tools/x %f'", true),
            ("sh elsewhere.sh", true),
            ("make -s clean-filter", true),
            ("git-lfs clean -- %f", false),
            ("/usr/bin/tr a b", false),
            ("$HOME/bin/mine", false),
        ] {
            let found = names_file_in(root.path(), command.as_bytes());
            assert_eq!(found, expected, "{command}");
        }
    }
}
