//! Under which names loaders find files of code, to see which ones they would load in the place of
//! others: `rules/__init__.py` comes before `rules.py`, `rules.js` before `rules/index.js`.

use std::collections::BTreeSet;

/// The names of some files of code.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ModuleNames {
    python: BTreeSet<String>,
    javascript: BTreeSet<String>,
}

/// Endings of what Node.js and bundlers load where none is named.
const JAVASCRIPT: [&str; 8] = ["js", "mjs", "cjs", "ts", "mts", "cts", "jsx", "tsx"];

/// Files of data and compiled code that they load in the same way.
const LOADED: [&str; 2] = ["json", "node"];

impl ModuleNames {
    /// Takes in a file; what is not code has no name.
    pub fn insert(&mut self, path: &str) {
        let (folder, file) = path.rsplit_once('/').unwrap_or(("", path));
        match file.rsplit_once('.') {
            Some((stem, "py")) => self.python.extend(name(folder, stem, "__init__")),
            Some((stem, ending)) if JAVASCRIPT.contains(&ending) => {
                self.javascript.extend(name(folder, stem, "index"));
            }
            _ => {}
        }
    }

    /// Whether a file that is new might be loaded where one of these was: by its place or its ending,
    /// or because it is a link to a folder.
    pub fn gives_way_to(&self, path: &str) -> bool {
        let (folder, file) = path.rsplit_once('/').unwrap_or(("", path));
        let is_one = |names: &BTreeSet<String>, stem: &str, whole: &str| {
            name(folder, stem, whole).is_some_and(|name| names.contains(&name))
        };
        match file.rsplit_once('.') {
            Some((stem, "py" | "pyc")) => is_one(&self.python, stem, "__init__"),
            // `rules.cpython-311-x86_64-linux-gnu.so`
            Some((_, "so")) => {
                let stem = file.split('.').next().unwrap_or(file);
                is_one(&self.python, stem, "__init__")
            }
            Some((stem, ending)) if JAVASCRIPT.contains(&ending) || LOADED.contains(&ending) => {
                is_one(&self.javascript, stem, "index")
            }
            Some(_) if !file.starts_with('.') && self.javascript.contains(path) => true,
            Some(_) => false,
            None => self.python.contains(path) || self.javascript.contains(path),
        }
    }
}

/// The name of a module: that of its folder, where its file says so. The root has none.
fn name(folder: &str, stem: &str, whole: &str) -> Option<String> {
    match (folder, stem == whole) {
        ("", true) => None,
        (folder, true) => Some(folder.to_owned()),
        ("", false) => Some(stem.to_owned()),
        (folder, false) => Some(format!("{folder}/{stem}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_loaded_in_the_place_of_others() {
        let mut names = ModuleNames::default();
        for path in [
            "rules.py",
            "tools/checks/__init__.py",
            "lib/rules/index.js",
            "lib/one.ts",
            "setup.cfg",
            "index.js",
        ] {
            names.insert(path);
        }
        for (path, expected) in [
            ("rules/__init__.py", true),
            ("rules/__init__.pyc", true),
            ("rules.cpython-311-x86_64-linux-gnu.so", true),
            ("rules", true),
            ("rules/other.py", false),
            ("rules.md", false),
            ("rules.js", false),
            ("tools/checks.so", true),
            ("tools/rules.py", false),
            ("lib/rules.js", true),
            ("lib/rules.json", true),
            ("lib/rules", true),
            ("lib/rules/index.mjs", true),
            ("lib/rules/more.js", false),
            ("lib/one.js", true),
            ("lib/one/index.js", true),
            ("setup/__init__.py", false),
            ("README", false),
            (".js", false),
        ] {
            assert_eq!(names.gives_way_to(path), expected, "{path}");
        }
    }
}
