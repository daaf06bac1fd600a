//! Values inside files that a session must leave alone, while the rest of the file may change.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::path::{Path, PathBuf};

use runner_core::config::Config;
use runner_core::paths::{GlobError, GlobList, is_state_path};
use runner_core::protected_value::ProtectedValue;

use crate::error::{Error, ErrorCode, Result};
use crate::git::TreeEntry;
use crate::step::file_image::FileImage;

/// The values, by their files.
#[derive(Debug, Default)]
pub(super) struct ProtectedValues {
    files: BTreeMap<String, ValuesOfFile>,
}

/// What must stay in one file, and the file as it was.
#[derive(Debug)]
struct ValuesOfFile {
    before: FileImage,
    values: Vec<ProtectedValue>,
}

impl ProtectedValues {
    /// Takes down the files. `tracked`: those of HEAD, of which a glob means some. `image`: what a
    /// file is before the session.
    pub(super) fn capture(
        config: &Config,
        tracked: &[TreeEntry],
        mut image: impl FnMut(&Path) -> Result<FileImage>,
    ) -> Result<Self> {
        let refused = |message: String| {
            let message = format!("[guard] protected_values: {message}");
            Error::new(ErrorCode::Config, message)
        };
        let mut files = BTreeMap::new();
        for text in &config.guard.protected_values {
            let value = ProtectedValue::parse(text).map_err(refused)?;
            for value in in_files(value, tracked).map_err(|error| refused(error.to_string()))? {
                let file = match files.entry(value.path.clone()) {
                    Entry::Occupied(known) => known.into_mut(),
                    Entry::Vacant(place) => place.insert(ValuesOfFile {
                        before: image(Path::new(&value.path))?,
                        values: Vec::new(),
                    }),
                };
                file.values.push(value);
            }
        }
        Ok(ProtectedValues { files })
    }

    /// The values that are not what they were, each with its file.
    pub(super) fn changed(&self, root: &Path) -> Result<Vec<(PathBuf, String)>> {
        let mut found = Vec::new();
        for (path, ValuesOfFile { before, values }) in &self.files {
            let path = PathBuf::from(path);
            let now = FileImage::of(root, &path)?;
            if now == *before {
                continue;
            }
            // A link or a folder in its place: who knows what a tool reads there.
            let is_read = is_plain(before) && is_plain(&now);
            let is_same =
                |value: &&ProtectedValue| is_read && value.is_same(content(before), content(&now));
            let changed = values.iter().filter(|value| !is_same(value));
            found.extend(changed.map(|value| (path.clone(), value.to_string())));
        }
        Ok(found)
    }

    /// What a file was before.
    pub(super) fn image(&self, path: &Path) -> Option<&FileImage> {
        self.files.get(path.to_str()?).map(|file| &file.before)
    }
}

/// A value in each file that its entry means. A glob is about files that are there: a new package
/// may have scripts and tests of its own.
fn in_files(
    value: ProtectedValue,
    tracked: &[TreeEntry],
) -> Result<Vec<ProtectedValue>, GlobError> {
    if !value.is_glob() {
        return Ok(vec![value]);
    }
    let globs = GlobList::new(&[&value.path])?;
    let paths = tracked.iter().filter_map(|entry| entry.path.to_str());
    let meant = paths.filter(|path| globs.is_match(path) && !is_state_path(path));
    Ok(meant.map(|path| value.in_file(path)).collect())
}

/// Whether it is a file, or nothing at all.
fn is_plain(image: &FileImage) -> bool {
    matches!(image, FileImage::Absent | FileImage::File { .. })
}

/// The bytes of a file.
fn content(image: &FileImage) -> Option<&[u8]> {
    match image {
        FileImage::File { bytes, .. } => Some(bytes),
        _ => None,
    }
}
