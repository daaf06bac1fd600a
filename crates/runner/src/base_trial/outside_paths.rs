//! Paths outside the project that a guard may need and that a clean checkout does not have: beside
//! the project, where checkouts lie elsewhere, and in the temp folder, of which each child has its own.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// So many are looked at.
const MAX_PATHS: usize = 8;

/// What a name is made of, in an expression.
const NAME: &str = "[A-Za-z0-9._@+-]+";

/// Expressions that find such paths in files.
pub(super) fn patterns(temp_folders: &[PathBuf]) -> Vec<String> {
    let below = temp_folders.iter().map(|temp| {
        let text = temp.display().to_string();
        let escaped = text.chars().flat_map(|char| {
            let is_plain = char.is_alphanumeric() || matches!(char, '/' | '_' | '-');
            [(!is_plain).then_some('\\'), Some(char)]
        });
        let escaped: String = escaped.flatten().collect();
        format!("{escaped}/{NAME}")
    });
    std::iter::once(format!("\\.\\./{NAME}"))
        .chain(below)
        .collect()
}

/// The names of what lies beside the project and is named from inside of it: `../lib`.
pub(super) fn beside(text: &str, root: &Path) -> Vec<String> {
    let own = root.file_name();
    let is_there = |name: &&str| {
        Some(name.as_ref()) != own && root.join("..").join(name).symlink_metadata().is_ok()
    };
    let names: BTreeSet<&str> = names_after(text, "../").filter(is_there).collect();
    let names = names.into_iter().take(MAX_PATHS);
    names.map(str::to_owned).collect()
}

/// What lies in the temp folder itself and is named, or has something in it that is.
pub(super) fn below(text: &str, temp: &Path) -> Vec<PathBuf> {
    let prefix = format!("{}/", temp.display());
    let names: BTreeSet<&str> = names_after(text, &prefix).collect();
    let paths = names.into_iter().map(|name| temp.join(name));
    let there = paths.filter(|path| path.symlink_metadata().is_ok());
    there.take(MAX_PATHS).collect()
}

/// The names that follow a beginning.
fn names_after<'t>(text: &'t str, beginning: &str) -> impl Iterator<Item = &'t str> {
    let is_part = |char: char| char.is_ascii_alphanumeric() || "._@+-".contains(char);
    text.match_indices(beginning)
        .map(move |(at, found)| {
            let rest = &text[at + found.len()..];
            let end = rest.find(|char| !is_part(char)).unwrap_or(rest.len());
            rest[..end].trim_end_matches('.')
        })
        .filter(|name| !name.is_empty())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn what_is_named_and_there() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["lib", "project", "tool.d", "other"] {
            fs::create_dir(folder.path().join(name)).unwrap();
        }
        let root = folder.path().join("project");
        for (text, expected) in [
            ("sh: cannot open ../lib/x.sh", "lib"),
            ("\"../tool.d\", ../../lib, ../gone", "lib tool.d"),
            ("see ../lib.", "lib"),
            ("../project and .. and ../", ""),
        ] {
            assert_eq!(beside(text, &root).join(" "), expected, "{text}");
        }
        let temp = folder.path();
        let text = format!(
            "#!{}/lib/bin/python {}/gone",
            temp.display(),
            temp.display()
        );
        assert_eq!(below(&text, temp), [temp.join("lib")]);
        assert_eq!(below("/lib", temp), [] as [PathBuf; 0]);
    }

    #[test]
    fn expressions() {
        let found = patterns(&["/tmp/a.b".into(), "/tmp".into()]);
        let expected =
            ["\\.\\./", "/tmp/a\\.b/", "/tmp/"].map(|it| format!("{it}[A-Za-z0-9._@+-]+"));
        assert_eq!(found, expected);
    }
}
