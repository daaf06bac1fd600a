//! What trials of bases came to, in the project's private folder: one small file for each commit
//! and config. What could not run is not kept, because installing something changes that.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;
use std::time::Duration;

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
const FOLDER: &str = "base-trials";
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
    pub(super) fn get(&self, key: &str) -> Option<BaseVerdict> {
        let path = self.path(key);
        let age = path.metadata().ok()?.modified().ok()?.elapsed().ok()?;
        let bytes = files::read_regular(&path, MAX_BYTES).ok()?;
        let cached: CachedVerdict = serde_json::from_slice(&bytes).ok()?;
        match cached.green {
            true if age < MAX_AGE => Some(BaseVerdict::Green),
            false if age < RED_AGE => Some(BaseVerdict::Red(cached.why)),
            _ => None,
        }
    }

    /// Keeps a verdict, and forgets those of long ago.
    pub(super) fn put(&self, key: &str, verdict: &BaseVerdict) -> Result<()> {
        let (green, why) = match verdict {
            BaseVerdict::Green => (true, String::new()),
            BaseVerdict::Red(why) => (false, why.clone()),
            BaseVerdict::Undefined(_) | BaseVerdict::Unable(_) => return Ok(()),
        };
        make_real_folder(&self.folder)?;
        // A bool and a text: there is nothing that could fail.
        let text = serde_json::to_vec(&CachedVerdict { green, why }).unwrap_or_default();
        files::write_whole(&self.path(key), &text)?;
        self.forget_old();
        Ok(())
    }

    fn forget_old(&self) {
        let entries = std::fs::read_dir(&self.folder).into_iter().flatten();
        for entry in entries.flatten() {
            let modified = entry.metadata().and_then(|meta| meta.modified());
            let age = modified.ok().and_then(|at| at.elapsed().ok());
            if age.is_some_and(|age| age >= MAX_AGE) {
                let _ = std::fs::remove_file(entry.path());
            }
        }
    }

    fn path(&self, key: &str) -> PathBuf {
        self.folder.join(key).with_extension(OsStr::new("json"))
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::time::SystemTime;

    use super::super::BaseProblem;
    use super::*;

    fn cache(folder: &tempfile::TempDir) -> BaseCache {
        BaseCache {
            folder: folder.path().join(FOLDER),
        }
    }

    fn age(cache: &BaseCache, key: &str, age: Duration) {
        let file = File::options().write(true).open(cache.path(key)).unwrap();
        file.set_modified(SystemTime::now() - age).unwrap();
    }

    #[test]
    fn green_stays_red_is_asked_again_and_the_rest_is_not_kept() {
        let folder = tempfile::tempdir().unwrap();
        let cache = cache(&folder);
        assert_eq!(cache.get("a"), None);
        let red = BaseVerdict::Red("`x` gave exit 1".to_owned());
        cache.put("a", &BaseVerdict::Green).unwrap();
        cache.put("b", &red).unwrap();
        assert_eq!(cache.get("a"), Some(BaseVerdict::Green));
        assert_eq!(cache.get("b"), Some(red));
        age(&cache, "a", RED_AGE);
        age(&cache, "b", RED_AGE);
        assert_eq!(cache.get("a"), Some(BaseVerdict::Green));
        assert_eq!(cache.get("b"), None);
        let unable = BaseVerdict::Unable(BaseProblem {
            why: "x".to_owned(),
            hint: "y".to_owned(),
        });
        for verdict in [unable, BaseVerdict::Undefined("Makefile".to_owned())] {
            cache.put("c", &verdict).unwrap();
            assert_eq!(cache.get("c"), None, "{verdict:?}");
        }
        age(&cache, "a", MAX_AGE);
        assert_eq!(cache.get("a"), None);
        cache.put("d", &BaseVerdict::Green).unwrap();
        assert!(!cache.path("a").exists() && cache.path("d").exists());
    }

    #[test]
    fn what_is_not_ours_is_not_believed() {
        let folder = tempfile::tempdir().unwrap();
        let cache = cache(&folder);
        cache.put("a", &BaseVerdict::Green).unwrap();
        std::fs::write(cache.path("a"), "{\"green\":true}").unwrap();
        assert_eq!(cache.get("a"), None);
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
