//! Globs that lead through symbolic links: what a protected path stands for is protected, too.

/// A symbolic link of a commit: its path, and the path that it leads to, both from the root.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TreeLink {
    /// Where it is.
    pub path: String,
    /// Where it leads to.
    pub target: String,
}

impl TreeLink {
    /// A link at a path with this content. `None`: it leads out of the repository.
    pub fn new(path: &str, content: &str) -> Option<Self> {
        if content.starts_with('/') {
            return None;
        }
        let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
        Self::below(path, folder, content)
    }

    /// A link at a path that leads along this way from a folder of the repository. `None`: it
    /// leads out of the repository.
    pub fn below(path: &str, folder: &str, way: &str) -> Option<Self> {
        let mut parts: Vec<&str> = folder.split('/').filter(|part| !part.is_empty()).collect();
        for part in way.split('/') {
            match part {
                "" | "." => {}
                ".." => {
                    parts.pop()?;
                }
                part => parts.push(part),
            }
        }
        Some(TreeLink {
            path: path.to_owned(),
            target: parts.join("/"),
        })
    }

    /// Whether it leads to a folder that it lies in itself.
    pub fn leads_around_itself(&self) -> bool {
        let inside = self.path.strip_prefix(self.target.as_str());
        self.target.is_empty() || inside.is_some_and(|rest| rest.starts_with('/'))
    }
}

/// The globs that mean the same as these where links lead to. `is_match`: whether a glob means a
/// path.
pub fn through_links(
    patterns: &[String],
    links: &[TreeLink],
    is_match: &dyn Fn(&str, &str) -> bool,
) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    // A link may lead to a link.
    for _ in 0..8 {
        let known: Vec<String> = patterns.iter().chain(&found).cloned().collect();
        let mut more = Vec::new();
        for pattern in &known {
            for link in links {
                let inside = format!("{}/", link.path);
                let target = escape(&link.target);
                if let Some(rest) = pattern.strip_prefix(&inside) {
                    more.push(join(&target, rest));
                } else if is_match(pattern, &link.path) {
                    more.push(target.clone());
                    more.push(join(&target, "**"));
                }
            }
        }
        more.retain(|it| !it.is_empty() && !known.contains(it));
        more.sort();
        more.dedup();
        if more.is_empty() {
            break;
        }
        found.append(&mut more);
    }
    found
}

fn join(folder: &str, rest: &str) -> String {
    if folder.is_empty() {
        rest.to_owned()
    } else {
        format!("{folder}/{rest}")
    }
}

/// A path as a glob that means nothing else.
fn escape(path: &str) -> String {
    let mut text = String::with_capacity(path.len());
    for char in path.chars() {
        if matches!(char, '*' | '?' | '[' | ']' | '{' | '}' | '\\') {
            text.push('[');
            text.push(char);
            text.push(']');
        } else {
            text.push(char);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::paths::GlobList;

    #[test]
    fn where_a_link_leads() {
        for (path, content, expected) in [
            ("Makefile", "build/Makefile", Some("build/Makefile")),
            ("a/b/c", "../x", Some("a/x")),
            ("a/b", "./c//d", Some("a/c/d")),
            ("a", "..", None),
            ("a/b", "../../x", None),
            ("a", "/etc/x", None),
            ("a/b", "..", Some("")),
        ] {
            let link = TreeLink::new(path, content);
            assert_eq!(link.map(|it| it.target).as_deref(), expected, "{path}");
        }
    }

    #[test]
    fn links_that_lead_around_themselves() {
        for (path, content, expected) in [
            ("tests/all", "..", true),
            ("a/b/c", "../../b", false),
            ("a/b/c", "..", true),
            ("tests", "src/tests", false),
            ("ab/c", "../a", false),
        ] {
            let link = TreeLink::new(path, content).unwrap();
            assert_eq!(link.leads_around_itself(), expected, "{path} {content}");
        }
    }

    #[test]
    fn globs_through_links() {
        let is_match = |pattern: &str, path: &str| {
            GlobList::new(&[pattern]).is_ok_and(|globs| globs.is_match(path))
        };
        let links = |list: &[(&str, &str)]| -> Vec<TreeLink> {
            list.iter()
                .filter_map(|(path, content)| TreeLink::new(path, content))
                .collect()
        };
        for (patterns, list, expected) in [
            (&["ci.sh"][..], &[("other", "x")][..], &[][..]),
            (
                &["Makefile"],
                &[("Makefile", "build/real.mk")],
                &["build/real.mk", "build/real.mk/**"],
            ),
            (&["ci/**"], &[("ci", "tools/ci")], &["tools/ci/**"]),
            (
                &["ci/run.sh"],
                &[("ci", "tools"), ("tools/run.sh", "../deep/run.sh")],
                &["tools/run.sh", "deep/run.sh", "deep/run.sh/**"],
            ),
            (&["a"], &[("a", "b"), ("b", "a")], &["b", "b/**", "a/**"]),
            (&["a"], &[("a", "odd[1]")], &["odd[[]1[]]", "odd[[]1[]]/**"]),
        ] {
            let patterns: Vec<String> = patterns.iter().map(|it| (*it).to_owned()).collect();
            let found = through_links(&patterns, &links(list), &is_match);
            assert_eq!(found, expected, "{patterns:?}");
            assert!(GlobList::new(&found).is_ok());
        }
    }
}
