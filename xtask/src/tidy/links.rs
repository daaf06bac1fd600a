//! Rules about what pages point to.

use super::TidyFinding;
use super::files::TidyFiles;

const MAP: &str = "ARCHITECTURE.md";
/// First parts that make a name in backticks a path of this repository, also
/// when the folder is gone.
const TOP_FOLDERS: [&str; 9] = [
    ".cargo/", ".ci/", "crates/", "docs/", "eval/", "schemas/", "scripts/", "ui/", "xtask/",
];

/// The map names only what is there.
pub(super) fn architecture_paths(files: &TidyFiles) -> Vec<TidyFinding> {
    let mut findings = Vec::new();
    for (at, line) in files.text(MAP).unwrap_or_default().lines().enumerate() {
        // Every second part lies between backticks.
        for name in line.split('`').skip(1).step_by(2) {
            let ours = TOP_FOLDERS.iter().any(|folder| name.starts_with(folder));
            let plain = !name.contains([' ', '*', '{', '<', '$', '…']);
            if ours && plain && !files.exists(name) {
                let message = format!("`{name}` is not there");
                findings.push(TidyFinding::new(MAP, at + 1, message));
            }
        }
    }
    findings
}

/// Links between our pages lead somewhere.
pub(super) fn relative_links(files: &TidyFiles) -> Vec<TidyFinding> {
    let mut findings = Vec::new();
    for (path, text) in files.ending(&[".md"]) {
        for link in links(text) {
            let target = resolve(path, &link.target);
            if !target.as_deref().is_some_and(|target| files.exists(target)) {
                let message = format!("the link to `{}` leads nowhere", link.target);
                findings.push(TidyFinding::new(path, link.line, message));
            }
        }
    }
    findings
}

/// Every page of docs/ can be found by a reader.
pub(super) fn pages_are_linked(files: &TidyFiles) -> Vec<TidyFinding> {
    let mut linked = Vec::new();
    for index in ["README.md", "docs/README.md"] {
        for link in links(files.text(index).unwrap_or_default()) {
            linked.extend(resolve(index, &link.target));
        }
    }
    files
        .ending(&[".md"])
        .map(|(path, _)| path)
        .filter(|path| {
            path.strip_prefix("docs/")
                .is_some_and(|name| !name.contains('/'))
        })
        .filter(|path| !linked.iter().any(|link| link == path))
        .map(|path| TidyFinding::new(path, 0, "no link from README.md or docs/README.md"))
        .collect()
}

/// There is a list of changes.
pub(super) fn changelog(files: &TidyFiles) -> Vec<TidyFinding> {
    match files.text("CHANGELOG.md") {
        Some(_) => Vec::new(),
        None => vec![TidyFinding::new("CHANGELOG.md", 0, "is missing")],
    }
}

/// A link to a file of ours.
struct Link {
    line: usize,
    target: String,
}

/// The relative links of a page, without code and without their anchors.
fn links(text: &str) -> Vec<Link> {
    let mut links = Vec::new();
    let mut fenced = false;
    for (at, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
            continue;
        }
        if fenced {
            continue;
        }
        let prose: String = line.split('`').step_by(2).collect();
        for (start, _) in prose.match_indices("](") {
            let rest = &prose[start + 2..];
            let target = rest.split([')', ' ']).next().unwrap_or_default();
            let target = target.split('#').next().unwrap_or_default();
            // With a scheme it is no path of ours; empty is an anchor here.
            if !target.is_empty() && !target.contains(':') {
                links.push(Link {
                    line: at + 1,
                    target: target.to_owned(),
                });
            }
        }
    }
    links
}

/// The path of a link's target from the root; none if it leaves the repository.
fn resolve(page: &str, target: &str) -> Option<String> {
    let mut parts: Vec<&str> = page.split('/').collect();
    parts.pop();
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            name => parts.push(name),
        }
    }
    Some(parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::super::check;
    use super::*;

    #[test]
    fn the_map_names_what_is_there() {
        let map =
            "`crates/a/src/` and `crates/b`\n`runner/<id>` `.runner/x` `crates/*/src` `cargo x`\n";
        let files = [(MAP, map), ("crates/a/src/lib.rs", "")];
        let expected = ["ARCHITECTURE.md:1 `crates/b` is not there"];
        assert_eq!(check(architecture_paths, &files), expected);
    }

    #[test]
    fn links_lead_somewhere() {
        let page = "[up](../README.md#top) [same](b.md \"title\") [gone](c.md)\n\
            `[code](x.md)` [web](https://example.test) [here](#x) [folder](../docs)\n\
            ```\n[fenced](y.md)\n```\n[out](../../z.md)\n";
        let files = [("docs/a.md", page), ("docs/b.md", ""), ("README.md", "")];
        assert_eq!(
            check(relative_links, &files),
            [
                "docs/a.md:1 the link to `c.md` leads nowhere",
                "docs/a.md:6 the link to `../../z.md` leads nowhere",
            ]
        );
    }

    #[test]
    fn pages_can_be_found() {
        let files = [
            ("README.md", "[docs](docs/README.md)"),
            ("docs/README.md", "[a](a.md)"),
            ("docs/a.md", ""),
            ("docs/b.md", ""),
            ("docs/decisions/0001.md", ""),
        ];
        let expected = ["docs/b.md:0 no link from README.md or docs/README.md"];
        assert_eq!(check(pages_are_linked, &files), expected);
        assert_eq!(check(changelog, &files), ["CHANGELOG.md:0 is missing"]);
    }
}
