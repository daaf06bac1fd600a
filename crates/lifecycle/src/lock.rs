//! Lock scopes: what a resource is, and when two of them conflict.
//!
//! A resource is a path of the repo, or a name that begins with `@` for something
//! that is no path. `.` is the whole repo; it covers no `@` name.

use serde::{Deserialize, Serialize};

use crate::row::TaskId;

/// The whole repo.
pub const WHOLE_REPO: &str = ".";

/// Characters of globs; they are no part of a resource.
const WILDCARDS: [char; 7] = ['*', '?', '[', ']', '{', '}', '\\'];

/// Something that can be locked, in its one normal form.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Resource(String);

/// Why a text names no resource.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("resource {text:?}: {why}")]
pub struct ResourceError {
    /// The text as given.
    pub text: String,
    /// What is wrong with it.
    pub why: &'static str,
}

impl Resource {
    /// Normalises a resource: `dir/` is `dir`. Everything that could name the same
    /// place in two ways is refused.
    pub fn parse(text: &str) -> Result<Resource, ResourceError> {
        let refuse = |why| {
            Err(ResourceError {
                text: text.to_owned(),
                why,
            })
        };
        if text == WHOLE_REPO || text == "./" {
            return Ok(Resource::whole_repo());
        }
        if text.contains(WILDCARDS) {
            return refuse("a glob is no resource; name the folder instead");
        }
        let plain = plain_path(text).map_err(|why| ResourceError {
            text: text.to_owned(),
            why,
        })?;
        Ok(Resource(plain.to_owned()))
    }

    /// What an allowed path locks: `x/**` locks `x`, `**` locks the whole repo, any
    /// other glob its longest prefix of plain folders.
    pub fn from_allowed_path(glob: &str) -> Result<Resource, ResourceError> {
        if glob.starts_with('@') || !glob.contains(WILDCARDS) {
            return Resource::parse(glob);
        }
        let parts: Vec<&str> = glob
            .split('/')
            .take_while(|part| !part.contains(WILDCARDS))
            .collect();
        if parts.is_empty() {
            return Ok(Resource::whole_repo());
        }
        Resource::parse(&parts.join("/")).map_err(|error| ResourceError {
            text: glob.to_owned(),
            why: error.why,
        })
    }

    /// The whole repo.
    pub fn whole_repo() -> Resource {
        Resource(WHOLE_REPO.to_owned())
    }

    /// What a judge locks while it judges a task.
    pub fn judge(task: &TaskId) -> Resource {
        Resource(format!("@judge/{task}"))
    }

    /// What the head of the merge queue of a base locks.
    pub fn merge(base: &str) -> Result<Resource, ResourceError> {
        Resource::parse(&format!("@merge/{base}"))
    }

    /// The text of its normal form.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether it is a path of the repo, and not an `@` name.
    pub fn is_path(&self) -> bool {
        !self.0.starts_with('@')
    }

    /// Whether the other resource is this one or lies inside it.
    pub fn covers(&self, other: &Resource) -> bool {
        if self.0 == WHOLE_REPO {
            return other.is_path();
        }
        let rest = other.0.strip_prefix(self.0.as_str());
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    }

    /// Whether a file of the repo is this resource or lies inside it. Its name is taken
    /// as it is: in that of a file, `[id]` is no glob, and `@types` an ordinary folder.
    pub fn covers_file(&self, path: &str) -> Result<bool, ResourceError> {
        if path == WHOLE_REPO {
            return Ok(self.0 == WHOLE_REPO);
        }
        let plain = plain_path(path).map_err(|why| ResourceError {
            text: path.to_owned(),
            why,
        })?;
        let inside = |rest: &str| rest.is_empty() || rest.starts_with('/');
        let rest = plain.strip_prefix(self.0.as_str());
        Ok(self.0 == WHOLE_REPO || rest.is_some_and(inside))
    }

    /// Whether judges and the merge queue lock it: work that held it would stop them.
    pub fn is_of_judges(&self) -> bool {
        let first = self.0.split('/').next();
        first == Some("@judge") || first == Some("@merge")
    }

    /// Whether both may not be held at once: they are equal, or one lies inside the
    /// other.
    pub fn conflicts_with(&self, other: &Resource) -> bool {
        self.covers(other) || other.covers(self)
    }

    /// The resources that contain this path, outermost first, without itself: what an
    /// engine that locks whole paths takes shared.
    pub fn ancestors(&self) -> Vec<Resource> {
        if self.0 == WHOLE_REPO {
            return Vec::new();
        }
        let root = self.is_path().then(Resource::whole_repo);
        let folders = self.0.match_indices('/').map(|(at, _)| &self.0[..at]);
        root.into_iter()
            .chain(folders.map(|folder| Resource(folder.to_owned())))
            .collect()
    }
}

/// The path without a slash at its end, if it can name one place only.
fn plain_path(text: &str) -> Result<&str, &'static str> {
    if text.is_empty() {
        return Err("it is empty");
    }
    if text.chars().any(char::is_control) {
        return Err("it contains a control character");
    }
    if text.starts_with('/') {
        return Err("paths begin at the repo root, without a slash");
    }
    let plain = text.strip_suffix('/').unwrap_or(text);
    for part in plain.strip_prefix('@').unwrap_or(plain).split('/') {
        match part {
            "" => return Err("it has an empty part"),
            "." | ".." => return Err("`.` and `..` are no parts of a path"),
            _ => {}
        }
    }
    Ok(plain)
}

impl std::fmt::Display for Resource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(&self.0)
    }
}

impl TryFrom<String> for Resource {
    type Error = ResourceError;

    fn try_from(text: String) -> Result<Resource, ResourceError> {
        Resource::parse(&text)
    }
}

impl From<Resource> for String {
    fn from(resource: Resource) -> String {
        resource.0
    }
}

#[cfg(test)]
impl schemars::JsonSchema for Resource {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Resource".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "type": "string", "minLength": 1 })
    }
}

/// A lock that is held.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ScopeLock {
    /// Whose it is.
    pub task_id: TaskId,
    /// What it covers.
    pub resource: Resource,
}

/// The first lock of another task that conflicts with the scope.
pub fn first_conflict<'l>(
    task: &TaskId,
    scope: &[Resource],
    locks: &'l [ScopeLock],
) -> Option<&'l ScopeLock> {
    locks
        .iter()
        .filter(|lock| lock.task_id != *task)
        .find(|lock| overlap(scope, std::slice::from_ref(&lock.resource)))
}

/// Whether any resource of one scope conflicts with any of the other.
pub fn overlap(one: &[Resource], other: &[Resource]) -> bool {
    one.iter()
        .any(|mine| other.iter().any(|theirs| mine.conflicts_with(theirs)))
}

/// Sorts a scope and drops what another entry of it covers.
#[must_use]
pub fn normalise(mut scope: Vec<Resource>) -> Vec<Resource> {
    scope.sort();
    scope.dedup();
    let all = scope.clone();
    scope.retain(|one| !all.iter().any(|other| other != one && other.covers(one)));
    scope
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn resource(text: &str) -> Resource {
        Resource::parse(text).unwrap()
    }

    #[test]
    fn normal_forms() {
        for (text, expected) in [
            ("src", Some("src")),
            ("src/", Some("src")),
            ("src/a.rs", Some("src/a.rs")),
            (".", Some(".")),
            ("./", Some(".")),
            (".github", Some(".github")),
            ("a..b", Some("a..b")),
            ("größe/ä", Some("größe/ä")),
            ("@judge/t1", Some("@judge/t1")),
            ("@research/j/c/", Some("@research/j/c")),
            ("", None),
            ("/", None),
            ("/src", None),
            ("./src", None),
            ("src/./a", None),
            ("src/../a", None),
            ("..", None),
            ("src//a", None),
            ("src/a//", None),
            ("src/*", None),
            ("src/a?.rs", None),
            ("a\\b", None),
            ("a\nb", None),
            ("a\0", None),
            ("@", None),
            ("@/x", None),
            ("@a/../b", None),
        ] {
            let got = Resource::parse(text).ok();
            assert_eq!(got.as_ref().map(Resource::as_str), expected, "{text:?}");
        }
    }

    #[test]
    fn allowed_paths_lock() {
        for (glob, expected) in [
            ("x/**", Some("x")),
            ("**", Some(".")),
            ("*", Some(".")),
            ("**/*.rs", Some(".")),
            ("src/*/a.rs", Some("src")),
            ("src/a*.rs", Some("src")),
            ("src/{a,b}/c", Some("src")),
            ("docs/guide.md", Some("docs/guide.md")),
            ("a/b/c/*.md", Some("a/b/c")),
            ("/x/**", None),
            ("../x/*", None),
        ] {
            let got = Resource::from_allowed_path(glob).ok();
            assert_eq!(got.as_ref().map(Resource::as_str), expected, "{glob:?}");
        }
    }

    #[test]
    fn conflicts() {
        for (one, other, expected) in [
            ("src", "src", true),
            ("src", "src/x", true),
            ("src/x", "src/x/y/z", true),
            ("src", "srcs", false),
            ("src/x", "src/xy", false),
            ("src/x", "src/y", false),
            (".", "anything/at/all", true),
            (".", ".", true),
            (".", "@judge/t", false),
            ("@judge/t", "@judge/t", true),
            ("@judge/t", "@judge/t2", false),
            ("@research/j", "@research/j/c", true),
            ("judge/t", "@judge/t", false),
            (".git", ".", true),
        ] {
            let (one, other) = (resource(one), resource(other));
            assert_eq!(one.conflicts_with(&other), expected, "{one} {other}");
            assert_eq!(other.conflicts_with(&one), expected, "{other} {one}");
        }
    }

    #[test]
    fn a_file_is_inside_whatever_its_name_looks_like() {
        for (scope, file, expected) in [
            (".", "@types/a.d.ts", Some(true)),
            ("@types", "@types/a.d.ts", Some(true)),
            ("src", "src/[id].ts", Some(true)),
            ("src", "srcs/a", Some(false)),
            ("src", "src/", Some(true)),
            ("src", "src/a\\b", Some(true)),
            (".", ".", Some(true)),
            ("src", ".", Some(false)),
            (".", "", None),
            (".", "/etc/passwd", None),
            (".", "a/../b", None),
            (".", "a//b", None),
            (".", "a\nb", None),
        ] {
            let got = resource(scope).covers_file(file).ok();
            assert_eq!(got, expected, "{scope} {file:?}");
        }
    }

    #[test]
    fn ancestors_are_outermost_first() {
        let names = |text: &str| -> Vec<String> {
            let all = resource(text).ancestors();
            all.into_iter().map(String::from).collect()
        };
        assert_eq!(names("a/b/c"), [".", "a", "a/b"]);
        assert_eq!(names("@a/b"), ["@a"]);
        assert!(names(".").is_empty());
    }

    fn any_resource() -> impl Strategy<Value = Resource> {
        let path = prop::collection::vec("[ab]{1,2}", 1..4).prop_map(|parts| parts.join("/"));
        let name = path.clone().prop_map(|path| format!("@{path}"));
        prop_oneof![path, name, Just(WHOLE_REPO.to_owned())].prop_map(|text| resource(&text))
    }

    proptest! {
        #[test]
        fn a_normal_form_stays(text in "[a./@*]{0,8}") {
            if let Ok(resource) = Resource::parse(&text) {
                prop_assert_eq!(Resource::parse(resource.as_str()).unwrap(), resource);
            }
        }

        #[test]
        fn conflict_is_symmetric_and_reflexive(one in any_resource(), other in any_resource()) {
            prop_assert!(one.conflicts_with(&one));
            prop_assert_eq!(one.conflicts_with(&other), other.conflicts_with(&one));
        }

        // What an engine does with shared and exclusive locks is the same relation.
        #[test]
        fn conflict_means_equal_or_ancestor(one in any_resource(), other in any_resource()) {
            let above = one.ancestors().contains(&other) || other.ancestors().contains(&one);
            prop_assert_eq!(one.conflicts_with(&other), one == other || above);
        }

        #[test]
        fn a_normalised_scope_covers_the_same(
            scope in prop::collection::vec(any_resource(), 0..6), probe in any_resource()
        ) {
            let normal = normalise(scope.clone());
            prop_assert_eq!(overlap(&scope, std::slice::from_ref(&probe)),
                overlap(&normal, std::slice::from_ref(&probe)));
            prop_assert_eq!(normalise(normal.clone()), normal);
        }

        #[test]
        fn parsing_never_panics(text in "(?s).{0,12}") {
            let _ = Resource::parse(&text);
            let _ = Resource::from_allowed_path(&text);
        }
    }
}
