//! Packages that the project already used and that a session took from elsewhere: the test tool may be
//! one of them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use runner_core::config::Config;
use runner_core::packages::BasePackages;

use super::head_files::FileReader;
use super::protected_files::{FileSource, ProtectedFiles};
use crate::error::Result;
use crate::git::Git;
use crate::inversion::{package_file, package_files};
use crate::step::file_image::FileImage;

/// Puts back the manifests and lock files that say so; what each said, for people.
pub(super) fn restore(
    git: &Git,
    config: &Config,
    protected: &ProtectedFiles<'_>,
    changed: &BTreeSet<PathBuf>,
    quarantine: &Path,
) -> Result<Vec<String>> {
    let names = changed.iter().filter_map(|path| path.to_str());
    let names: Vec<&str> = names.filter(|path| package_file(path).is_some()).collect();
    if names.is_empty() {
        return Ok(Vec::new());
    }
    let before = package_files(git, &protected.tracked)?;
    let mut now = before.clone();
    let mut found: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for name in &names {
        match FileImage::of(git.root(), Path::new(name))? {
            FileImage::File { bytes, .. } => {
                now.insert((*name).to_owned(), bytes);
            }
            // Who knows what a tool reads there.
            FileImage::Link(_) => found
                .entry(name)
                .or_default()
                .push(format!("{name} (a link)")),
            _ => {
                now.remove(*name);
            }
        }
    }
    let known = BasePackages::of(&before, &config.guard.command);
    let replaced = known.replaced_in(&now);
    for package in &replaced {
        let words = package.words();
        let said = found.entry(package.path.as_str()).or_default();
        if !said.contains(&words) {
            said.push(words);
        }
    }
    let source = FileSource::Commit;
    let reader = FileReader { git, source };
    for path in found.keys().map(Path::new) {
        let image = reader.image(path, protected.entry(path))?;
        image.restore(git.root(), path, quarantine)?;
    }
    Ok(found.into_values().flatten().collect())
}
