//! Which tools have a cache of their own, where the user's is, and how one of the runner's begins.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use runner_sandbox::{SettingsFormat, without_tokens};
use rustix::fs::{AtFlags, Mode, OFlags};

use super::{MAX_COPY_BYTES, MAX_COPY_FILES, is_small};
use crate::error::Result;
use crate::files;
use crate::step::file_image;

/// The largest file of settings that is copied.
const MAX_SETTINGS: u64 = 1 << 20;

/// A cache that a variable moves.
pub(super) struct ToolCache {
    pub(super) variable: &'static str,
    /// Its folder in a cache of ours.
    pub(super) folder: &'static str,
    /// Where the user's is: a variable that names it, or a path from the home folder.
    own: &'static str,
    /// What of the user's fills a new one.
    seeds: &'static [&'static str],
    /// Files that say that a project needs it; none: nothing is copied.
    markers: &'static [&'static str],
}

/// The first one is that of all other programs. Each in a folder of its own: the runner writes to none
/// that a session could have put a link into.
pub(super) const TOOLS: &[ToolCache] = &[
    ToolCache {
        variable: "XDG_CACHE_HOME",
        folder: "xdg",
        own: ".cache",
        seeds: &[],
        markers: &[],
    },
    ToolCache {
        variable: "CARGO_HOME",
        folder: "cargo",
        own: ".cargo",
        seeds: &["registry/index", "registry/cache", "git/db"],
        markers: &["Cargo.toml"],
    },
    ToolCache {
        variable: "npm_config_cache",
        folder: "npm",
        own: ".npm",
        seeds: &["_cacache"],
        markers: &["package.json"],
    },
    ToolCache {
        variable: "PIP_CACHE_DIR",
        folder: "pip",
        own: ".cache/pip",
        seeds: &["http-v2", "wheels"],
        markers: &["pyproject.toml", "requirements.txt", "setup.py"],
    },
    ToolCache {
        variable: "UV_CACHE_DIR",
        folder: "uv",
        own: ".cache/uv",
        seeds: &["simple-v*", "wheels-v*", "archive-v0"],
        markers: &["uv.lock"],
    },
    ToolCache {
        variable: "GOPATH",
        folder: "go",
        own: "go",
        seeds: &[],
        markers: &[],
    },
    ToolCache {
        variable: "GOMODCACHE",
        folder: "go-mod",
        own: "go/pkg/mod",
        seeds: &["cache/download"],
        markers: &["go.mod"],
    },
    ToolCache {
        variable: "GOCACHE",
        folder: "go-build",
        own: ".cache/go-build",
        seeds: &["."],
        markers: &["go.mod"],
    },
    ToolCache {
        variable: "YARN_CACHE_FOLDER",
        folder: "yarn",
        own: ".cache/yarn",
        seeds: &[],
        markers: &[],
    },
    ToolCache {
        variable: "BUN_INSTALL_CACHE_DIR",
        folder: "bun",
        own: ".bun/install/cache",
        seeds: &[],
        markers: &[],
    },
    ToolCache {
        variable: "COMPOSER_CACHE_DIR",
        folder: "composer",
        own: ".cache/composer",
        seeds: &[],
        markers: &[],
    },
    ToolCache {
        variable: "BUNDLE_USER_CACHE",
        folder: "bundle",
        own: ".bundle/cache",
        seeds: &[],
        markers: &[],
    },
];

/// Makes a cache, and fills what a project needs of it from the user's where that is cheap.
pub(super) fn make_ready(folder: &Path, checkout: &Path) -> Result<()> {
    files::make_folder(folder)?;
    let home = std::env::var_os("HOME").map(PathBuf::from);
    for tool in TOOLS {
        let own = own_folder(tool, home.as_deref()).filter(|own| own.is_dir());
        let place = folder.join(tool.folder);
        if place.symlink_metadata().is_err() {
            make_place(tool, own.as_deref(), &place, checkout)?;
        }
        if let (Some(own), "CARGO_HOME") = (&own, tool.variable) {
            copy_settings(own, &place);
        }
    }
    Ok(())
}

/// Makes the cache of a tool, whole or not at all: beside the caches, where no child writes.
fn make_place(tool: &ToolCache, own: Option<&Path>, place: &Path, checkout: &Path) -> Result<()> {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    let name = format!("new-{}-{number}", std::process::id());
    let caches = place.parent().and_then(Path::parent).unwrap_or(place);
    let partial = caches.join(name);
    file_image::remove_closed(&partial)?;
    files::make_folder(&partial)?;
    if let Some(own) = own.filter(|_| is_needed(tool, checkout)) {
        seed(tool, own, &partial)?;
    }
    // Another process may have been first.
    if fs::rename(&partial, place).is_err() {
        file_image::remove_closed(&partial)?;
    }
    Ok(())
}

/// Where the user has the cache of a tool.
fn own_folder(tool: &ToolCache, home: Option<&Path>) -> Option<PathBuf> {
    let named = std::env::var_os(tool.variable).map(PathBuf::from);
    let named = named.filter(|path| path.is_absolute());
    named.or_else(|| Some(home?.join(tool.own)))
}

/// Whether a project has a file that says so, at its root or in a folder of it.
fn is_needed(tool: &ToolCache, checkout: &Path) -> bool {
    let has = |folder: &Path| {
        let mut markers = tool.markers.iter();
        markers.any(|name| folder.join(name).is_file())
    };
    if has(checkout) {
        return true;
    }
    let entries = fs::read_dir(checkout).into_iter().flatten().flatten();
    let folders = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    tool.markers.iter().next().is_some() && folders.take(200).any(|entry| has(&entry.path()))
}

/// Copies what fills a new cache.
fn seed(tool: &ToolCache, own: &Path, place: &Path) -> Result<()> {
    let names = tool
        .seeds
        .iter()
        .flat_map(|name| match name.strip_suffix('*') {
            Some(beginning) => entries_beginning(own, beginning),
            None => vec![PathBuf::from(name)],
        });
    let names: Vec<PathBuf> = names.filter(|name| own.join(name).is_dir()).collect();
    let fits = names
        .iter()
        .all(|name| is_small(&own.join(name), MAX_COPY_BYTES, MAX_COPY_FILES));
    for name in names.iter().filter(|_| fits) {
        files::copy_files(&own.join(name), &place.join(name), u64::MAX)?;
    }
    Ok(())
}

fn entries_beginning(folder: &Path, beginning: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let names = entries.map(|entry| entry.file_name());
    let meant = names.filter(|name| name.to_string_lossy().starts_with(beginning));
    meant.map(PathBuf::from).collect()
}

/// The user's settings of cargo (mirrors, linkers) hold for its cache, too; tokens do not. Sessions
/// write to that folder: no link in it is followed.
fn copy_settings(own: &Path, place: &Path) {
    for name in ["config.toml", "config"] {
        let Ok(bytes) = files::read_regular(&own.join(name), MAX_SETTINGS) else {
            continue;
        };
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let text = without_tokens(SettingsFormat::Lines, &text).unwrap_or(text);
        let there = files::read_regular(&place.join(name), MAX_SETTINGS);
        if !there.is_ok_and(|it| it == text.as_bytes()) {
            // Whoever put something else in its place has settings of his own.
            let _ = put_file(place, name, text.as_bytes());
        }
    }
}

/// Puts a file into a folder in the place of another one. A link in the place of either is not
/// followed.
fn put_file(folder: &Path, name: &str, bytes: &[u8]) -> io::Result<()> {
    let real = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let folder = rustix::fs::open(folder, real | OFlags::RDONLY, Mode::empty())?;
    let partial = format!(".{name}.new");
    let _ = rustix::fs::unlinkat(&folder, &partial, AtFlags::empty());
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mode = Mode::RUSR | Mode::WUSR | Mode::RGRP | Mode::ROTH;
    let mut file = File::from(rustix::fs::openat(&folder, &partial, flags, mode)?);
    file.write_all(bytes)?;
    Ok(rustix::fs::renameat(&folder, &partial, &folder, name)?)
}

#[cfg(test)]
mod tests {
    use super::super::size_and_age;
    use super::*;

    #[test]
    fn links_that_sessions_left_are_not_followed() {
        let temp = tempfile::tempdir().unwrap();
        let outside = temp.path().join("outside");
        fs::create_dir(&outside).unwrap();
        let place = temp.path().join("cargo");
        std::os::unix::fs::symlink(&outside, &place).unwrap();
        assert!(put_file(&place, "config.toml", b"x").is_err());
        fs::remove_file(&place).unwrap();
        fs::create_dir(&place).unwrap();
        fs::write(outside.join("file"), "untouched").unwrap();
        for name in [".config.toml.new", "config.toml"] {
            std::os::unix::fs::symlink(outside.join("file"), place.join(name)).unwrap();
        }
        put_file(&place, "config.toml", b"x").unwrap();
        assert_eq!(fs::read_to_string(place.join("config.toml")).unwrap(), "x");
        assert_eq!(
            fs::read_to_string(outside.join("file")).unwrap(),
            "untouched"
        );
        assert_eq!(size_and_age(&place.join("none")).0, 0);
    }
}
