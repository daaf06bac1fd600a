//! Which modules that a check takes in are what the project is about, and which are part of the check.

use std::collections::BTreeSet;

use runner_core::paths::GlobList;
use runner_core::product::{ProductFiles, USUAL_PRODUCT, USUAL_TESTS};

use super::guard_files::GuardedFiles;
use super::script_imports::{is_python, python_names};
use crate::script_folders::is_for_scripts;

/// Folders that hold what a project is about.
const PRODUCT_FOLDERS: [&str; 17] = [
    "src", "lib", "libs", "app", "apps", "packages", "pkg", "internal", "cmd", "crates", "server",
    "client", "web", "api", "backend", "frontend", "source",
];

/// Modules at the root that most often are it.
const PRODUCT_NAMES: [&str; 12] = [
    "app", "main", "server", "client", "index", "cli", "api", "core", "manage", "wsgi", "asgi",
    "__main__",
];

/// Files that say what a project is called, and what is in it.
const MANIFESTS: [&str; 3] = ["pyproject.toml", "setup.py", "setup.cfg"];

/// How many tests are looked into.
const MAX_TESTS: usize = 200;

/// Whether a module of code is what the project is about rather than a part of its check.
pub(super) fn is_product_module(path: &str, project: &GuardedFiles<'_>) -> bool {
    if is_for_scripts(path) {
        return false;
    }
    let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
    if folder
        .split('/')
        .any(|part| PRODUCT_FOLDERS.contains(&part))
    {
        return true;
    }
    let top = path.split('/').next().unwrap_or(path);
    let without_ending =
        |name: &'_ str| name.rsplit_once('.').map_or(name.len(), |(it, _)| it.len());
    let (top, stem) = (&top[..without_ending(top)], &name[..without_ending(name)]);
    folder.is_empty() && PRODUCT_NAMES.contains(&stem)
        || is_in_manifest(top, project)
        || is_tested(top, stem, project)
}

/// Whether the manifest of the project names a module.
fn is_in_manifest(name: &str, project: &GuardedFiles<'_>) -> bool {
    let texts = MANIFESTS.iter().filter_map(|path| (project.read)(path));
    let package = (project.read)("package.json").unwrap_or_default();
    let package: serde_json::Value = serde_json::from_str(&package).unwrap_or_default();
    let entries = ["main", "module", "exports", "bin", "types"];
    let entries = entries.iter().map(|key| package[*key].to_string());
    let ends = ["\"", "'", ".", ":", "/"];
    let begins = ["\"", "'", "/"];
    texts.chain(entries).any(|text| {
        let mut pairs = begins
            .iter()
            .flat_map(|begin| ends.iter().map(move |end| format!("{begin}{name}{end}")));
        pairs.any(|it| text.contains(&it))
    })
}

/// Whether tests take a module in.
fn is_tested(top: &str, stem: &str, project: &GuardedFiles<'_>) -> bool {
    let Ok(tests) = GlobList::new(&USUAL_TESTS) else {
        return false;
    };
    let files = project.tracked.iter().filter(|path| tests.is_match(path));
    files.take(MAX_TESTS).any(|path| {
        let text = (project.read)(path).unwrap_or_default();
        if is_python(path) {
            return python_names(&text).contains(top);
        }
        ["\"", "'", "."]
            .iter()
            .any(|end| text.contains(&format!("/{stem}{end}")))
    })
}

/// Whether a project has product beside these files, documents and settings.
pub(super) fn has_other_product(known: &BTreeSet<String>, project: &GuardedFiles<'_>) -> bool {
    let (Ok(product), Ok(tests)) = (
        ProductFiles::new(&USUAL_PRODUCT),
        GlobList::new(&USUAL_TESTS),
    ) else {
        return true;
    };
    let is_document = |path: &str| {
        let name = path.rsplit('/').next().unwrap_or(path);
        let ending = name.rsplit_once('.').map(|(_, ending)| ending);
        matches!(ending, Some("md" | "rst" | "adoc"))
            || [
                "README",
                "LICENSE",
                "COPYING",
                "CHANGELOG",
                "NOTICE",
                "AUTHORS",
                ".",
            ]
            .iter()
            .any(|begin| name.starts_with(begin))
    };
    project.tracked.iter().any(|path| {
        product.is_product(path.as_bytes())
            && !tests.is_match(path)
            && !is_document(path)
            && !known.contains(path)
    })
}
