//! Paths relative to the repo root: which belong to the runner, and which a list of
//! globs means. Paths are bytes, for a file name need not be UTF-8.

use globset::{Candidate, GlobBuilder, GlobSet, GlobSetBuilder};

use crate::ids;
pub use crate::python_modules::{PYTHON_MODULES, is_python_module};

/// The folder that holds everything of the runner.
pub const ROOT: &str = ".runner";
/// The largest file of the folder that is read at all.
pub const MAX_STATE_BYTES: u64 = 1 << 30;
/// The task tree.
pub const TREE: &str = ".runner/state/tree.json";
/// The project's copy of the tree's schema.
pub const TREE_SCHEMA: &str = ".runner/state/schema.json";
/// The project's copy of the report's schema.
pub const AGENT_OUTPUT_SCHEMA: &str = ".runner/state/agent_output.schema.json";
/// The configuration.
pub const CONFIG: &str = ".runner/state/config.toml";
/// Where the run stands.
pub const RUN_STATE: &str = ".runner/state/run_state.json";
/// What the agents assumed instead of asking.
pub const ASSUMPTIONS: &str = ".runner/state/assumptions.md";
/// What the agents would like to know.
pub const QUESTIONS: &str = ".runner/state/questions.md";
/// What the run is for.
pub const GOAL: &str = ".runner/GOAL.md";
/// The user's standing words to every session.
pub const INSTRUCTIONS: &str = ".runner/INSTRUCTIONS.md";
/// Keeps logs and context out of the commits.
pub const GITIGNORE: &str = ".runner/.gitignore";
/// Keeps filters and line-ending rules away from the state.
pub const GITATTRIBUTES: &str = ".runner/.gitattributes";
/// This session's goal and what earlier attempts left.
pub const CONTEXT_DIR: &str = ".runner/context";
/// The logs.
pub const ITERATIONS_DIR: &str = ".runner/iterations";
/// The sidecars of single nodes.
pub const NODES_DIR: &str = ".runner/nodes";
/// What the fleet keeps for itself.
pub const FLEET_DIR: &str = ".runner/fleet";
/// The config of a fleet in a project that has none of its own.
pub const FLEET_CONFIG: &str = ".runner/fleet/config.toml";

/// Files that no session may change, sorted. (Those of git itself lie outside the
/// work tree, and `tree.json` has rules of its own.)
pub const OWNED: &[&str] = &[
    GITATTRIBUTES,
    GITIGNORE,
    GOAL,
    INSTRUCTIONS,
    AGENT_OUTPUT_SCHEMA,
    CONFIG,
    RUN_STATE,
    TREE_SCHEMA,
];

/// Whether this is one of the files in [`OWNED`].
pub fn is_owned<P: AsRef<[u8]> + ?Sized>(path: &P) -> bool {
    OWNED.iter().any(|owned| owned.as_bytes() == path.as_ref())
}

/// Whether the path is the runner's folder or lies in it.
pub fn is_state_path<P: AsRef<[u8]> + ?Sized>(path: &P) -> bool {
    path.as_ref() == ROOT.as_bytes() || below(path.as_ref(), ROOT).is_some()
}

/// Whether the path is never committed.
pub fn is_local_only<P: AsRef<[u8]> + ?Sized>(path: &P) -> bool {
    [ITERATIONS_DIR, CONTEXT_DIR, FLEET_DIR]
        .iter()
        .any(|dir| below(path.as_ref(), dir).is_some())
}

/// The id of the node to which a file in `.runner/nodes/{id}/` belongs.
pub fn sidecar_node<P: AsRef<[u8]> + ?Sized>(path: &P) -> Option<&str> {
    let rest = below(path.as_ref(), NODES_DIR)?;
    let end = rest.iter().position(|&byte| byte == b'/')?;
    let id = std::str::from_utf8(&rest[..end]).ok()?;
    (ids::is_well_formed(id) && rest.len() > end + 1).then_some(id)
}

/// What follows `dir/` in the path, if that is anything.
pub(crate) fn below<'p>(path: &'p [u8], dir: &str) -> Option<&'p [u8]> {
    let rest = path.strip_prefix(dir.as_bytes())?.strip_prefix(b"/")?;
    (!rest.is_empty()).then_some(rest)
}

/// A glob that cannot work.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("glob {pattern:?}: {message}")]
pub struct GlobError {
    /// The glob as written.
    pub pattern: String,
    /// What is wrong with it.
    pub message: String,
    /// What to write instead.
    pub hint: Option<String>,
}

/// Globs over whole paths: `*` and `?` stay within one folder, `**` spans several.
#[derive(Clone, Debug)]
pub struct GlobList {
    patterns: Vec<String>,
    set: GlobSet,
}

impl GlobList {
    /// Compiles the globs, or names the first that cannot work.
    pub fn new<S: AsRef<str>>(patterns: &[S]) -> Result<GlobList, GlobError> {
        let patterns: Vec<String> = patterns.iter().map(|p| p.as_ref().to_owned()).collect();
        let set = compile(&patterns, str::to_owned)?;
        Ok(GlobList { patterns, set })
    }

    /// The globs as given.
    pub fn patterns(&self) -> &[String] {
        &self.patterns
    }

    /// Whether there is no glob at all.
    pub fn is_empty(&self) -> bool {
        self.patterns.is_empty()
    }

    /// Whether any glob names the folder, or something below it, before its first wildcard.
    pub fn leads_into(&self, folder: &str) -> bool {
        let inside = format!("{folder}/");
        self.patterns.iter().any(|pattern| {
            let prefix = plain_prefix(pattern);
            prefix == folder || prefix.starts_with(&inside)
        })
    }

    /// Whether any glob matches the path.
    pub fn is_match<P: AsRef<[u8]> + ?Sized>(&self, path: &P) -> bool {
        self.set.is_match_candidate(&Candidate::from_bytes(path))
    }

    /// The indices of the globs that match the path, ascending.
    pub fn matches<P: AsRef<[u8]> + ?Sized>(&self, path: &P) -> Vec<usize> {
        self.set.matches_candidate(&Candidate::from_bytes(path))
    }

    /// The first glob that matches the path.
    pub fn first_match<P: AsRef<[u8]> + ?Sized>(&self, path: &P) -> Option<&str> {
        let index = *self.matches(path).first()?;
        Some(&self.patterns[index])
    }
}

/// Globs that mean files and whole folders: one that matches a folder means everything in it.
/// Nothing of git and of the runner is ever meant.
#[derive(Clone, Debug)]
pub struct FolderGlobs(GlobList);

impl FolderGlobs {
    /// Compiles the globs, or names the first that cannot work.
    pub fn new<S: AsRef<str>>(patterns: &[S]) -> Result<FolderGlobs, GlobError> {
        let list = GlobList::new(patterns)?;
        let own = [".git", ROOT];
        for pattern in &list.patterns {
            let first = pattern.split('/').next().unwrap_or_default();
            if own.contains(&first) || pattern == "**" {
                return Err(GlobError {
                    pattern: pattern.clone(),
                    message: "it means files of git or of the runner".to_owned(),
                    hint: None,
                });
            }
        }
        Ok(FolderGlobs(list))
    }

    /// Whether there is no glob at all.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether any glob matches the path, or a folder that it lies in.
    pub fn is_match<P: AsRef<[u8]> + ?Sized>(&self, path: &P) -> bool {
        let path = path.as_ref();
        if is_state_path(path) || path.split(|byte| *byte == b'/').any(|part| part == b".git") {
            return false;
        }
        let ends = path.iter().enumerate().filter(|(_, byte)| **byte == b'/');
        let folders = ends.map(|(end, _)| &path[..end]);
        folders.chain([path]).any(|part| self.0.is_match(part))
    }
}

/// Globs over file names, for files that must not be committed: one without `/` is
/// matched against the file name in any folder, one with `/` against the whole path.
#[derive(Clone, Debug)]
pub struct DenyList(GlobList);

/// Endings of files that only show what a secret file would look like.
const HARMLESS_ENDINGS: [&str; 3] = [".example", ".sample", ".template"];

impl DenyList {
    /// Compiles the globs, or names the first that cannot work.
    pub fn new<S: AsRef<str>>(patterns: &[S]) -> Result<DenyList, GlobError> {
        let patterns: Vec<String> = patterns.iter().map(|p| p.as_ref().to_owned()).collect();
        // Small and capital letters are the same: a `.ENV` is as secret as a `.env`.
        let set = compile(&patterns, |pattern| {
            let pattern = pattern.to_lowercase();
            if pattern.contains('/') {
                pattern
            } else {
                format!("**/{pattern}")
            }
        })?;
        Ok(DenyList(GlobList { patterns, set }))
    }

    /// The first glob that forbids the path, unless its name says that it is only an
    /// example.
    pub fn denied_by<P: AsRef<[u8]> + ?Sized>(&self, path: &P) -> Option<&str> {
        let path = path.as_ref().to_ascii_lowercase();
        let harmless = HARMLESS_ENDINGS
            .iter()
            .any(|ending| path.ends_with(ending.as_bytes()));
        if harmless {
            return None;
        }
        self.0.first_match(&path)
    }
}

/// Whether one glob can work.
pub fn check_glob(pattern: &str) -> Result<(), GlobError> {
    compile(std::slice::from_ref(&pattern), str::to_owned).map(|_| ())
}

fn compile<S: AsRef<str>>(
    patterns: &[S],
    as_matched: impl Fn(&str) -> String,
) -> Result<GlobSet, GlobError> {
    let mut builder = GlobSetBuilder::new();
    for pattern in patterns {
        let pattern = pattern.as_ref();
        let failed = |message: String, hint: Option<String>| GlobError {
            pattern: pattern.to_owned(),
            message,
            hint,
        };
        check_form(pattern).map_err(|(message, hint)| failed(message.to_owned(), hint))?;
        let glob = GlobBuilder::new(&as_matched(pattern))
            .literal_separator(true)
            .build()
            .map_err(|error| failed(error.kind().to_string(), None))?;
        builder.add(glob);
    }
    builder.build().map_err(|error| GlobError {
        pattern: error.glob().unwrap_or_default().to_owned(),
        message: error.kind().to_string(),
        hint: None,
    })
}

/// Refuses what could never match a path of a repo: silently it would protect nothing.
fn check_form(pattern: &str) -> Result<(), (&'static str, Option<String>)> {
    if pattern.is_empty() {
        return Err(("it is empty", None));
    }
    if pattern.contains('\0') {
        return Err(("it contains a NUL character", None));
    }
    let relative = pattern.trim_start_matches("./").trim_start_matches('/');
    if relative.len() < pattern.len() {
        return Err((
            "it never matches: paths start at the repo root, without `/` or `./`",
            (!relative.is_empty()).then(|| format!("write {relative:?}")),
        ));
    }
    if let Some(folder) = pattern.strip_suffix('/') {
        return Err((
            "it never matches: only files are compared, not folders",
            Some(format!("write {:?}", format!("{folder}/**"))),
        ));
    }
    if pattern.split('/').any(|part| part == ".." || part == ".") {
        return Err((
            "it never matches: paths contain neither `.` nor `..` folders",
            None,
        ));
    }
    Ok(())
}

/// Characters that make a glob more than a plain path.
const WILDCARDS: [char; 7] = ['*', '?', '[', ']', '{', '}', '\\'];

/// Whether the glob matches exactly the path that it spells.
pub fn is_literal(pattern: &str) -> bool {
    !pattern.contains(WILDCARDS)
}

/// Whether the glob begins with a `**` folder: it may match anywhere.
pub fn starts_with_double_star(pattern: &str) -> bool {
    pattern == "**" || pattern.starts_with("**/")
}

/// Whether a pattern names a folder on its way: a link there would bring other files to where it
/// looks for some.
pub fn names_folder(pattern: &str, folder: &str) -> bool {
    let parts: Vec<&str> = pattern.split('/').collect();
    (1..parts.len()).any(|end| {
        // Wildcards alone mean every folder, and what is in it is seen by its own path.
        let has_name = parts[end - 1].contains(|letter| !matches!(letter, '*' | '?'));
        let above = || GlobList::new(&[parts[..end].join("/")]);
        has_name && above().is_ok_and(|globs| globs.is_match(folder))
    })
}

/// The folder in which everything lies that the glob can match: its leading parts
/// without wildcards, the file name excluded. Empty for the repo root.
pub fn plain_prefix(pattern: &str) -> &str {
    let plain = &pattern[..pattern.find(WILDCARDS).unwrap_or(pattern.len())];
    plain.rfind('/').map_or("", |end| &plain[..end])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn folders_on_the_way_of_a_pattern() {
        for (pattern, folder, expected) in [
            (".cargo/config.toml", ".cargo", true),
            ("tests/golden/**", "tests", true),
            ("tests/golden/**", "tests/golden", true),
            ("tests/golden/**", "tests/other", false),
            ("**/node_modules/**", "node_modules", true),
            ("**/node_modules/**", "src/node_modules", true),
            ("**/*.egg-info/entry_points.txt", "x.egg-info", true),
            ("**/pytest.ini", "src", false),
            ("*/**/go.mod", "src", false),
            ("Makefile", "Makefile", false),
        ] {
            assert_eq!(
                names_folder(pattern, folder),
                expected,
                "{pattern} {folder}"
            );
        }
    }

    #[test]
    fn folder_globs() {
        for (pattern, path, expected) in [
            ("target", "target", true),
            ("target", "target/debug/a", true),
            ("target", "a/target/b", false),
            ("**/node_modules", "node_modules/x/y.js", true),
            ("**/node_modules", "packages/a/node_modules/x", true),
            (".env*", ".env.local", true),
            (".env*", "a/.env", false),
            ("*", "a/b", true),
            ("*", ".runner/state/tree.json", false),
            ("*", ".runner", false),
            ("*", ".git/config", false),
            ("vendor", "vendor/lib/.git/config", false),
            ("a/**", "a", false),
            ("a/**", "a/b/c", true),
        ] {
            let list = FolderGlobs::new(&[pattern]).unwrap();
            assert_eq!(list.is_match(path), expected, "{pattern} {path}");
        }
        for refused in [".git/config", ".runner", "**", "/a", ""] {
            assert!(FolderGlobs::new(&[refused]).is_err(), "{refused}");
        }
    }

    #[test]
    fn path_globs() {
        for (pattern, path, expected) in [
            ("justfile", "justfile", true),
            ("justfile", "sub/justfile", false),
            ("*.rs", "a.rs", true),
            ("*.rs", "src/a.rs", false),
            ("*", ".hidden", true),
            ("**/*.rs", "a.rs", true),
            ("**/*.rs", "src/deep/a.rs", true),
            ("tests/**", "tests/a/b.txt", true),
            ("tests/**", "tests", false),
            ("src/*/a.rs", "src/x/a.rs", true),
            ("src/*/a.rs", "src/x/y/a.rs", false),
            ("src/?/a", "src///a", false),
            ("{Makefile,justfile}", "Makefile", true),
            ("a[0-9].txt", "a7.txt", true),
            (r"a\*.txt", "a*.txt", true),
            (r"a\*.txt", "ab.txt", false),
            ("größe*", "größe.txt", true),
        ] {
            let list = GlobList::new(&[pattern]).unwrap();
            assert_eq!(list.is_match(path), expected, "{pattern} {path}");
            assert_eq!(list.first_match(path), expected.then_some(pattern));
        }
    }

    #[test]
    fn path_globs_on_raw_bytes() {
        let list = GlobList::new(&["tests/**", "*.bin"]).unwrap();
        assert!(list.is_match(b"tests/\xff\xfe"));
        assert!(list.is_match(b"\xff.bin".as_slice()));
        assert!(!list.is_match(b"\xff/x.bin".as_slice()));
        assert_eq!(list.matches("tests/x"), [0]);
        assert!(GlobList::new::<String>(&[]).unwrap().is_empty());
        assert!(!GlobList::new::<String>(&[]).unwrap().is_match("a"));
    }

    #[test]
    fn name_globs() {
        let list = DenyList::new(&[".env*", "*.pem", "id_rsa*", "deploy/*.key"]).unwrap();
        for (path, expected) in [
            (".env", Some(".env*")),
            ("a/b/.env.local", Some(".env*")),
            (".env/inside", None),
            (".env.example", None),
            ("x/.env.sample", None),
            (".env.template", None),
            ("server.pem.example", None),
            ("certs/server.pem", Some("*.pem")),
            ("id_rsa", Some("id_rsa*")),
            (".ENV", Some(".env*")),
            ("x/Server.PEM", Some("*.pem")),
            (".Env.Example", None),
            ("deploy/a.key", Some("deploy/*.key")),
            ("x/deploy/a.key", None),
            ("src/main.rs", None),
        ] {
            assert_eq!(list.denied_by(path), expected, "{path}");
        }
        assert_eq!(list.denied_by(b"\xff/\xfe.pem"), Some("*.pem"));
    }

    #[test]
    fn globs_that_cannot_work() {
        for (pattern, hint) in [
            ("", None),
            ("[", None),
            ("{a", None),
            ("a}", None),
            ("/etc", Some("write \"etc\"")),
            ("./a", Some("write \"a\"")),
            ("/", None),
            ("tests/", Some("write \"tests/**\"")),
            ("a/../b", None),
            ("a\0", None),
        ] {
            let error = GlobList::new(&["ok", pattern]).unwrap_err();
            assert_eq!(error.pattern, pattern);
            assert_eq!(error.hint.as_deref(), hint, "{error}");
            assert!(DenyList::new(&[pattern]).is_err());
            assert!(check_glob(pattern).is_err());
        }
    }

    #[test]
    fn pattern_facts() {
        for (pattern, prefix, literal, anywhere) in [
            ("justfile", "", true, false),
            ("a/b/c.txt", "a/b", true, false),
            ("tests/**", "tests", false, false),
            ("tests/fix*/x", "tests", false, false),
            ("**/x", "", false, true),
            ("**", "", false, true),
            ("**x", "", false, false),
            ("a/{b,c}/d", "a", false, false),
            (r"a/\*/b", "a", false, false),
        ] {
            assert_eq!(plain_prefix(pattern), prefix, "{pattern}");
            assert_eq!(is_literal(pattern), literal, "{pattern}");
            assert_eq!(starts_with_double_star(pattern), anywhere, "{pattern}");
        }
    }

    #[test]
    fn the_runners_own_places() {
        assert!(OWNED.is_sorted());
        for path in OWNED {
            assert!(is_owned(path) && is_state_path(path) && !is_local_only(path));
        }
        assert!(!is_owned(TREE) && !is_owned("GOAL.md") && !is_owned("x/.runner/GOAL.md"));
        for (path, state, local) in [
            (".runner", true, false),
            (".runner/x", true, false),
            (".runnerx/y", false, false),
            ("a/.runner/x", false, false),
            (".runner/iterations/r/1/meta.json", true, true),
            (".runner/context/goal.md", true, true),
            (".runner/fleet/x", true, true),
            (".runner/contexts/x", true, false),
        ] {
            assert_eq!(is_state_path(path), state, "{path}");
            assert_eq!(is_local_only(path), local, "{path}");
        }
    }

    #[test]
    fn sidecars() {
        for (path, expected) in [
            (".runner/nodes/a-1/context.md", Some("a-1")),
            (".runner/nodes/a/artifacts/x/y", Some("a")),
            (".runner/nodes/a/", None),
            (".runner/nodes/a", None),
            (".runner/nodes/../x", None),
            (".runner/nodes/a b/x", None),
            (".runner/nodes//x", None),
            ("nodes/a/x", None),
        ] {
            assert_eq!(sidecar_node(path), expected, "{path}");
        }
        assert_eq!(sidecar_node(b".runner/nodes/\xff/x"), None);
        assert_eq!(sidecar_node(b".runner/nodes/a/\xff"), Some("a"));
    }

    proptest! {
        #[test]
        fn never_panics(pattern in "(?s).{0,12}", path: Vec<u8>) {
            if let Ok(list) = GlobList::new(&[&pattern]) {
                list.is_match(&path);
            }
            if let Ok(list) = DenyList::new(&[&pattern]) {
                list.denied_by(&path);
            }
            sidecar_node(&path);
            is_local_only(&path);
            is_literal(&pattern);
        }

        #[test]
        fn matches_lie_below_the_plain_prefix(
            pattern in "[ab*?{},/]{1,10}", path in "[ab/]{1,10}"
        ) {
            let list = GlobList::new(&[&pattern]);
            if list.is_ok_and(|list| list.is_match(&path)) {
                prop_assert!(path.starts_with(plain_prefix(&pattern)));
                prop_assert!(!is_literal(&pattern) || path == pattern);
            }
        }
    }
}
