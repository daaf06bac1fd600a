//! Files that name the folder in which they were made: a copy of a virtual environment leads
//! whoever uses it back to the user's own checkout.

use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

/// How much of such a file is read.
pub(super) const MAX_BYTES: usize = 256 << 10;

/// How a file can name the folder that it was made in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PinnedPlace {
    /// Anywhere in its text.
    Text,
    /// In the line that names its interpreter.
    FirstLine,
}

/// Where to look in a file of this name.
pub(super) fn place_in(path: &Path, is_executable: bool) -> Option<PinnedPlace> {
    let name = path.file_name()?.to_string_lossy();
    let folder = path.parent().and_then(Path::file_name);
    let is_in = |wanted: &str| folder.is_some_and(|folder| folder == wanted);
    let ends_in = |ending: &str| path.extension().is_some_and(|found| found == ending);
    let is_text = matches!(&*name, "pyvenv.cfg" | "direct_url.json")
        || ends_in("pth")
        || ends_in("egg-link")
        || (is_in("bin") && name.to_ascii_lowercase().starts_with("activate"))
        || (name.starts_with("__editable__") && ends_in("py"));
    if is_text {
        return Some(PinnedPlace::Text);
    }
    is_executable.then_some(PinnedPlace::FirstLine)
}

/// Whether a file that begins with these bytes names one of the folders.
pub(super) fn names_folder(place: PinnedPlace, bytes: &[u8], folders: &[PathBuf]) -> bool {
    let bytes = match place {
        PinnedPlace::Text => bytes,
        PinnedPlace::FirstLine if bytes.starts_with(b"#!") => {
            bytes.split(|byte| *byte == b'\n').next().unwrap_or(bytes)
        }
        PinnedPlace::FirstLine => return false,
    };
    folders.iter().any(|folder| {
        let plain = folder.as_os_str().as_bytes();
        holds(bytes, plain) || holds(bytes, &as_in_urls(plain))
    })
}

/// Whether the text has the path, and not only a longer name that begins like it.
fn holds(text: &[u8], path: &[u8]) -> bool {
    if path.len() < 2 {
        return false;
    }
    let is_end = |byte: Option<&u8>| {
        byte.is_none_or(|byte| !byte.is_ascii_alphanumeric() && !b"-_.".contains(byte))
    };
    let mut places = text.windows(path.len()).enumerate();
    places.any(|(start, part)| part == path && is_end(text.get(start + path.len())))
}

/// The path as `direct_url.json` spells it.
fn as_in_urls(path: &[u8]) -> Vec<u8> {
    let mut spelled = Vec::new();
    for byte in path {
        if byte.is_ascii_alphanumeric() || b"-_.~/".contains(byte) {
            spelled.push(*byte);
        } else {
            spelled.extend(format!("%{byte:02X}").into_bytes());
        }
    }
    spelled
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_to_look() {
        for (path, is_executable, expected) in [
            (".venv/pyvenv.cfg", false, Some(PinnedPlace::Text)),
            (".venv/bin/activate", false, Some(PinnedPlace::Text)),
            (".venv/bin/activate.fish", false, Some(PinnedPlace::Text)),
            (".venv/bin/Activate.ps1", false, Some(PinnedPlace::Text)),
            ("lib/site-packages/a.pth", false, Some(PinnedPlace::Text)),
            ("lib/a.egg-link", false, Some(PinnedPlace::Text)),
            (
                "lib/a.dist-info/direct_url.json",
                false,
                Some(PinnedPlace::Text),
            ),
            (
                "lib/__editable___a_finder.py",
                false,
                Some(PinnedPlace::Text),
            ),
            (".venv/bin/pip", true, Some(PinnedPlace::FirstLine)),
            ("lib/a.py", false, None),
            ("src/activate", false, None),
        ] {
            assert_eq!(place_in(Path::new(path), is_executable), expected, "{path}");
        }
    }

    #[test]
    fn what_names_a_folder() {
        let folders = [PathBuf::from("/srv/me/my app")];
        for (place, text, expected) in [
            (
                PinnedPlace::Text,
                "command = python3 -m venv /srv/me/my app/.venv",
                true,
            ),
            (PinnedPlace::Text, "/srv/me/my app\n", true),
            (
                PinnedPlace::Text,
                "{\"url\": \"file:///srv/me/my%20app\"}",
                true,
            ),
            (PinnedPlace::Text, "/srv/me/my apple/.venv", false),
            (PinnedPlace::Text, "/srv/me/my app-2/.venv", false),
            (PinnedPlace::Text, "home = /usr/bin", false),
            (
                PinnedPlace::FirstLine,
                "#!/srv/me/my app/.venv/bin/python\n",
                true,
            ),
            (
                PinnedPlace::FirstLine,
                "#!/bin/sh\ncd '/srv/me/my app'\n",
                false,
            ),
            (PinnedPlace::FirstLine, "\u{7f}ELF /srv/me/my app", false),
        ] {
            assert_eq!(
                names_folder(place, text.as_bytes(), &folders),
                expected,
                "{text}"
            );
        }
        assert!(!names_folder(
            PinnedPlace::Text,
            b"/a",
            &[PathBuf::from("/")]
        ));
    }
}
