//! The symbolic links of a commit, and what globs mean where these lead to.

use std::cell::RefCell;
use std::collections::HashMap;
use std::path::Path;

use runner_core::linked_globs::{TreeLink, through_links};
use runner_core::paths::GlobList;

use crate::error::{Error, ErrorCode, Result};
use crate::git::{self, Git};

/// A link with this content, where it leads to something of the repository. `project`: the
/// canonical path of the project, at which a checkout is seen where it can be mounted there.
pub(crate) fn tree_link(path: &Path, content: &Path, project: &Path) -> Option<TreeLink> {
    let name = path.to_str()?;
    if let Some(link) = TreeLink::new(name, content.to_str()?) {
        return Some(link);
    }
    // It may leave the repository and come back by the project's own path, in any spelling.
    let whole = project
        .join(path.parent().unwrap_or(Path::new("")))
        .join(content);
    whole.ancestors().find_map(|folder| {
        let rest = whole.strip_prefix(folder).ok()?.to_str()?;
        let link = TreeLink::below(name, "", rest)?;
        let is_project = folder.canonicalize().is_ok_and(|it| it == project);
        is_project.then_some(link)
    })
}

/// The links of a commit that lead to something of it.
pub(crate) fn links_of(git: &Git, commit: &str, project: &Path) -> Result<Vec<TreeLink>> {
    let mut entries = git.files_of(commit)?;
    entries.retain(|entry| entry.mode == git::LINK);
    let oids: Vec<&str> = entries.iter().map(|entry| entry.oid.as_str()).collect();
    let contents = git.proven_blobs(&oids)?;
    let links = entries.iter().zip(&contents);
    Ok(links
        .filter_map(|(entry, content)| tree_link(&entry.path, &git::to_path(content), project))
        .collect())
}

/// Globs with what they mean where links lead to. `key`: what they are called in `[guard]`.
pub(crate) fn with_links(globs: &GlobList, links: &[TreeLink], key: &str) -> Result<GlobList> {
    let known: RefCell<HashMap<String, Option<GlobList>>> = RefCell::default();
    let is_match = |pattern: &str, path: &str| {
        let mut known = known.borrow_mut();
        let globs = known
            .entry(pattern.to_owned())
            .or_insert_with(|| GlobList::new(&[pattern]).ok());
        globs.as_ref().is_some_and(|globs| globs.is_match(path))
    };
    let more = through_links(globs.patterns(), links, &is_match);
    let all: Vec<&String> = globs.patterns().iter().chain(&more).collect();
    GlobList::new(&all)
        .map_err(|error| Error::new(ErrorCode::Config, format!("[guard] {key}: {error}")))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn links_that_come_back_by_the_projects_own_path() {
        let folder = tempfile::tempdir().unwrap();
        let around = folder.path().canonicalize().unwrap();
        let project = around.join("project");
        fs::create_dir_all(project.join("sub")).unwrap();
        fs::create_dir(around.join("other")).unwrap();
        symlink(&project, around.join("alias")).unwrap();
        let absolute = |rest: &str| around.join(rest).display().to_string();
        for (path, content, expected) in [
            ("Makefile", absolute("project/build.mk"), Some("build.mk")),
            ("ci/run", absolute("alias/tools/run"), Some("tools/run")),
            ("a", absolute("project/gone/../b"), Some("b")),
            ("a", absolute("project/sub/.."), Some("")),
            ("a", "../project/b".to_owned(), Some("b")),
            ("sub/a", "../../alias/b".to_owned(), Some("b")),
            ("a", absolute("other/b"), None),
            ("a", absolute("project-2/b"), None),
            ("a", "/etc/passwd".to_owned(), None),
            ("a", "../other/b".to_owned(), None),
        ] {
            let link = tree_link(Path::new(path), Path::new(&content), &project);
            let target = link.map(|it| it.target);
            assert_eq!(target.as_deref(), expected, "{path} {content}");
        }
    }
}
