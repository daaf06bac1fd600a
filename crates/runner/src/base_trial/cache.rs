//! What trials of bases came to, in the project's private folder: one small file for each commit
//! and config. What could not run is not kept, because installing something changes that.

use std::ffi::OsStr;
use std::fs::DirEntry;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::Timestamp;
use runner_core::config::Config;
use runner_core::digest::sha256_hex;
use serde::{Deserialize, Serialize};

use super::BaseVerdict;
use crate::checkout::make_real_folder;
use crate::checkout::root::WorkspaceRoot;
use crate::error::Result;
use crate::files;
use crate::git::Git;

/// Below the private folder of a project.
pub(super) const FOLDER: &str = "base-trials";
const MAX_BYTES: u64 = 64 << 10;
/// A red base is tried again after this time: what it lacks may be a service that runs by then.
const RED_AGE: Duration = Duration::from_secs(10 * 60);
/// Nobody works from a base of long ago.
const MAX_AGE: Duration = Duration::from_secs(30 * 24 * 3600);

/// The trials of a project.
pub(super) struct BaseCache {
    folder: PathBuf,
}

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct CachedVerdict {
    green: bool,
    why: String,
    /// In seconds.
    tried_at: i64,
}

impl CachedVerdict {
    fn read(path: &Path) -> Option<Self> {
        let bytes = files::read_regular(path, MAX_BYTES).ok()?;
        serde_json::from_slice(&bytes).ok()
    }

    /// Whether it still counts. One of the future is of a clock that was wrong.
    fn counts(&self, now: Timestamp) -> bool {
        let limit = if self.green { MAX_AGE } else { RED_AGE };
        let age = now.as_second().saturating_sub(self.tried_at);
        u64::try_from(age).is_ok_and(|secs| secs < limit.as_secs())
    }
}

/// The name of what a verdict depends on: a commit with the tree that is checked out, and what
/// setup and guard are given.
pub(super) fn key(history: &str, tree: &str, config: &Config) -> String {
    let (guard, workspace) = (&config.guard, &config.workspace);
    let named = guard.env.iter().chain(&workspace.env).map(String::as_str);
    key_with(history, tree, config, named.chain(["PATH"]), |name| {
        std::env::var_os(name).map(|value| value.as_bytes().to_owned())
    })
}

fn key_with<'a>(
    history: &str,
    tree: &str,
    config: &Config,
    names: impl Iterator<Item = &'a str>,
    value: impl Fn(&str) -> Option<Vec<u8>>,
) -> String {
    let (guard, workspace) = (&config.guard, &config.workspace);
    let settings = format!(
        "{history} {tree} {:?} {:?} {workspace:?} {:?} {}",
        guard.command, guard.env, config.sandbox, config.iteration_timeout_secs
    );
    let mut bytes = settings.into_bytes();
    for name in names {
        bytes.push(0);
        bytes.extend_from_slice(name.as_bytes());
        bytes.push(0);
        bytes.extend(value(name).unwrap_or_default());
    }
    sha256_hex(&bytes)
}

impl BaseCache {
    pub(super) fn of(git: &Git, config: &Config) -> Result<Self> {
        let root = WorkspaceRoot::of(git, config)?;
        Ok(BaseCache {
            folder: root.folder().join(FOLDER),
        })
    }

    /// The verdict of before, if it still counts.
    pub(super) fn get(&self, key: &str, now: Timestamp) -> Option<BaseVerdict> {
        let cached = CachedVerdict::read(&self.path(key)).filter(|cached| cached.counts(now))?;
        Some(if cached.green {
            BaseVerdict::Green
        } else {
            BaseVerdict::Red(cached.why)
        })
    }

    /// Keeps a verdict, and forgets those that count no longer.
    pub(super) fn put(&self, key: &str, verdict: &BaseVerdict, now: Timestamp) -> Result<()> {
        let (green, why) = match verdict {
            BaseVerdict::Green => (true, String::new()),
            BaseVerdict::Red(why) => (false, why.clone()),
            BaseVerdict::Undefined(_) | BaseVerdict::Unable(_) => return Ok(()),
        };
        make_real_folder(&self.folder)?;
        let cached = CachedVerdict {
            green,
            why,
            tried_at: now.as_second(),
        };
        // Plain values: there is nothing that could fail.
        let text = serde_json::to_vec(&cached).unwrap_or_default();
        files::write_shared(&self.path(key), &text)?;
        self.forget_old(now);
        Ok(())
    }

    fn forget_old(&self, now: Timestamp) {
        let entries = std::fs::read_dir(&self.folder).into_iter().flatten();
        for entry in entries.flatten() {
            let cached = CachedVerdict::read(&entry.path());
            let is_old = match &cached {
                Some(cached) => !cached.counts(now),
                // A report of tests: no run that began from there is likely to live still.
                None => age_of(&entry, now) > 4 * MAX_AGE.as_secs(),
            };
            if is_old {
                let _ = std::fs::remove_file(entry.path());
            }
        }
    }

    fn path(&self, key: &str) -> PathBuf {
        self.folder.join(key).with_extension(OsStr::new("json"))
    }
}

/// How long ago a file was written.
fn age_of(entry: &DirEntry, now: Timestamp) -> u64 {
    let written = entry.metadata().map(|meta| meta.mtime());
    let age = written.map_or(0, |written| now.as_second().saturating_sub(written));
    u64::try_from(age).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::super::BaseProblem;
    use super::*;

    fn cache(folder: &tempfile::TempDir) -> BaseCache {
        BaseCache {
            folder: folder.path().join(FOLDER),
        }
    }

    fn after(age: Duration) -> Timestamp {
        let secs = i64::try_from(age.as_secs()).unwrap();
        Timestamp::from_second(1_000_000 + secs).unwrap()
    }

    #[test]
    fn green_stays_red_is_asked_again_and_the_rest_is_not_kept() {
        let folder = tempfile::tempdir().unwrap();
        let cache = cache(&folder);
        let now = after(Duration::ZERO);
        assert_eq!(cache.get("a", now), None);
        let red = BaseVerdict::Red("`x` gave exit 1".to_owned());
        cache.put("a", &BaseVerdict::Green, now).unwrap();
        cache.put("b", &red, now).unwrap();
        assert_eq!(cache.get("a", now), Some(BaseVerdict::Green));
        assert_eq!(cache.get("b", now), Some(red));
        assert_eq!(cache.get("a", after(RED_AGE)), Some(BaseVerdict::Green));
        assert_eq!(cache.get("b", after(RED_AGE)), None);
        let before = Timestamp::from_second(1).unwrap();
        assert_eq!(cache.get("a", before), None, "the clock was wrong");
        let unable = BaseVerdict::Unable(BaseProblem {
            why: "x".to_owned(),
            hint: "y".to_owned(),
        });
        for verdict in [unable, BaseVerdict::Undefined("Makefile".to_owned())] {
            cache.put("c", &verdict, now).unwrap();
            assert_eq!(cache.get("c", now), None, "{verdict:?}");
        }
        assert_eq!(cache.get("a", after(MAX_AGE)), None);
        cache.put("d", &BaseVerdict::Green, after(MAX_AGE)).unwrap();
        assert!(!cache.path("a").exists() && cache.path("d").exists());
    }

    #[test]
    fn what_is_not_ours_is_not_believed() {
        let folder = tempfile::tempdir().unwrap();
        let cache = cache(&folder);
        let now = after(Duration::ZERO);
        cache.put("a", &BaseVerdict::Green, now).unwrap();
        std::fs::write(cache.path("a"), "{\"green\":true}").unwrap();
        assert_eq!(cache.get("a", now), None);
    }

    #[test]
    fn a_verdict_is_of_one_commit_one_config_and_the_values_that_are_passed_on() {
        let base = Config::default();
        let mut other_guard = base.clone();
        other_guard.guard.command = vec!["true".to_owned()];
        let mut other_setup = base.clone();
        other_setup.workspace.setup = vec!["npm".to_owned(), "ci".to_owned()];
        let mut unrelated = base.clone();
        unrelated.max_iterations += 1;
        let key = |history: &str, tree: &str, config: &Config, value: &str| {
            let names = ["TOKEN"].into_iter();
            key_with(history, tree, config, names, |_| {
                Some(value.as_bytes().to_owned())
            })
        };
        let first = key("c", "t", &base, "v");
        assert_eq!(first, key("c", "t", &unrelated, "v"));
        for other in [
            key("d", "t", &base, "v"),
            key("c", "u", &base, "v"),
            key("c", "t", &other_guard, "v"),
            key("c", "t", &other_setup, "v"),
            key("c", "t", &base, "w"),
        ] {
            assert_ne!(first, other);
        }
    }
}
