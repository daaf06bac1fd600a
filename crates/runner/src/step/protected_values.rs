//! Values inside files that a session must leave alone, while the rest of the file may change.

use std::path::{Path, PathBuf};

use runner_core::config::Config;
use runner_core::protected_value::ProtectedValue;

use crate::error::{Error, ErrorCode, Result};
use crate::step::file_image::FileImage;

/// The values, with the files as they were.
#[derive(Debug, Default)]
pub(super) struct ProtectedValues {
    list: Vec<(ProtectedValue, FileImage)>,
}

impl ProtectedValues {
    /// Takes down the files. `image`: what a file is before the session.
    pub(super) fn capture(
        config: &Config,
        mut image: impl FnMut(&Path) -> Result<FileImage>,
    ) -> Result<Self> {
        let mut list = Vec::new();
        for text in &config.guard.protected_values {
            let value = ProtectedValue::parse(text).map_err(|message| {
                Error::new(
                    ErrorCode::Config,
                    format!("[guard] protected_values: {message}"),
                )
            })?;
            let before = image(Path::new(&value.path))?;
            list.push((value, before));
        }
        Ok(ProtectedValues { list })
    }

    /// The values that are not what they were, each with its file.
    pub(super) fn changed(&self, root: &Path) -> Result<Vec<(PathBuf, String)>> {
        let mut found = Vec::new();
        for (value, before) in &self.list {
            let path = PathBuf::from(&value.path);
            let now = FileImage::of(root, &path)?;
            if now == *before {
                continue;
            }
            // A link or a folder in its place: who knows what a tool reads there.
            let same =
                is_plain(before) && is_plain(&now) && value.is_same(content(before), content(&now));
            if !same {
                found.push((path, value.to_string()));
            }
        }
        Ok(found)
    }

    /// What a file was before.
    pub(super) fn image(&self, path: &Path) -> Option<&FileImage> {
        let mut list = self.list.iter();
        list.find(|(value, _)| Path::new(&value.path) == path)
            .map(|(_, image)| image)
    }
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
