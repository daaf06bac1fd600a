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

    fn without_drivers(&self, is_off: impl Fn(&[u8]) -> bool) -> Result<Git> {
        let pairs = settings::settings_of(&self.listed_settings()?, &["filter.", "merge."]);
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
        git.drivers_off = (!off.is_empty()).then(|| Arc::new(off));
        Ok(git)
    }

    /// Every setting that git reads here, as `git config --list --show-scope -z` tells them.
    pub(super) fn listed_settings(&self) -> Result<Arc<Vec<u8>>> {
        let mut known = self.listed.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(answer) = &*known
            && answer.at.elapsed() < LISTED_FOR
        {
            return Ok(answer.listed.clone());
        }
        let listed = self.read(&["config", "--list", "--show-scope", "--includes", "-z"])?;
        let listed = Arc::new(listed);
        *known = Some(SettingsAnswer {
            at: Instant::now(),
            listed: listed.clone(),
        });
        Ok(listed)
    }

    /// Whether a file is meant for a filter driver that does not run here.
    pub(crate) fn lacks_filter(&self, path: &Path) -> Result<bool> {
        let Some(settings) = &self.drivers_off else {
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

/// Whether a command of the user's names a file of the repository, by a relative path.
fn names_file_in(root: &Path, command: &[u8]) -> bool {
    let words = command.split(|byte| byte.is_ascii_whitespace() || b"'\"=;&|".contains(byte));
    words.filter(|word| !word.is_empty()).any(|word| {
        let is_relative =
            !word.starts_with(b"/") && !word.starts_with(b"~") && !word.starts_with(b"%");
        let path = Path::new(OsStr::from_bytes(word));
        is_relative && (word.contains(&b'/') || root.join(path).is_file())
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
        ] {
            let found = names_file_in(root.path(), command.as_bytes());
            assert_eq!(found, expected, "{command}");
        }
    }
}
