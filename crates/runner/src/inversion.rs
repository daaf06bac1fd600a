//! The judge by inversion: the product of a result with the tests and settings of the base.
//!
//! Lists of files that redefine a guard are never complete. So the question is turned round: not
//! what a session may have changed about its judge, but whether its product passes before the judge
//! that was there.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use runner_core::config::{Config, OriginalTests};
use runner_core::packages::{
    BasePackages, PackageFile, PackageFiles, ReplacedPackage, python_imports,
};
use runner_core::paths::{GlobList, PYTHON_MODULES, is_state_path};
use runner_core::product::{ProductFiles, USUAL_TESTS};
use runner_core::text::escape_path;

use crate::base_trial::guard_file;
use crate::checkout::trial;
use crate::error::{Error, ErrorCode, Result};
use crate::files;
use crate::git::{Git, TreeEntry};
use crate::original_tests::TestFiles;
use crate::tree_links::{links_of, with_links};

/// Larger manifests and lock files are not read.
const MAX_PACKAGE_FILE: usize = 32 << 20;

/// What the base with only the product of a result is.
pub(crate) enum InvertedBase {
    /// The same as the result: the guard has judged it.
    Same,
    /// Nobody can say which files are the product.
    NoProduct,
    /// Another tree.
    Differs(InvertedResult),
}

/// The product of a result, on its base.
pub(crate) struct InvertedResult {
    /// A commit with it; nothing leads to it.
    pub(crate) commit: String,
    /// What of the result is not in it, for people.
    pub(crate) left_out: Vec<String>,
    /// Packages that the result takes from elsewhere than the base.
    pub(crate) replaced: Vec<String>,
}

impl InvertedResult {
    /// What is said of packages that come from elsewhere.
    pub(crate) fn packages_words(&self) -> String {
        packages_words(&self.replaced)
    }
}

fn packages_words(replaced: &[String]) -> String {
    let names = trial::some_of(replaced);
    format!("packages come from elsewhere now: {names}")
}

/// Whether tests of the result may judge it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TestsTaken {
    /// Those that a person has released, and no other.
    Released,
    /// All of them.
    All,
}

impl TestsTaken {
    /// As the config says.
    pub(crate) fn of(config: &Config) -> Self {
        match config.guard.original_tests {
            OriginalTests::Off => TestsTaken::All,
            OriginalTests::Report | OriginalTests::Require => TestsTaken::Released,
        }
    }
}

/// What a result has beside its product, before anything is made of it.
pub(crate) enum JudgeComparison {
    /// Nothing that is not the base's, too.
    Same,
    /// Nobody can say which files are the product.
    NoProduct,
    /// This.
    Differs(JudgeDifference),
}

/// What a result changed about its judge.
pub(crate) struct JudgeDifference {
    product: Vec<PathBuf>,
    settings: PackageChoice,
    /// What of the result does not count, for people.
    pub(crate) left_out: Vec<String>,
}

impl JudgeDifference {
    /// Whether anything of the result counts; else it is judged as the base is.
    pub(crate) fn has_product(&self) -> bool {
        !self.product.is_empty() || !self.settings.files.is_empty()
    }

    /// Packages that the result takes from elsewhere than the base.
    fn replaced(&self) -> Vec<String> {
        let replaced = self.settings.replaced.iter();
        replaced.map(ReplacedPackage::words).collect()
    }

    /// What is said of them, where there are any.
    pub(crate) fn packages_words(&self) -> Option<String> {
        let replaced = self.replaced();
        (!replaced.is_empty()).then(|| packages_words(&replaced))
    }
}

/// Tells the product of a result from what judges it. Nothing is written, and nothing runs.
pub(crate) fn compare(
    git: &Git,
    config: &Config,
    (base, result): (&str, &str),
    tests: TestsTaken,
) -> Result<JudgeComparison> {
    let judge = JudgeFiles::of(git, config, base, tests)?;
    if judge.product.is_empty() {
        return Ok(JudgeComparison::NoProduct);
    }
    let mut changed = git.changed_between(base, result)?;
    changed.retain(|path| !is_state_path(path.as_os_str().as_bytes()));
    let standing = StandingFiles::of(git, &judge, base)?;
    let (product, others): (Vec<PathBuf>, Vec<PathBuf>) = changed
        .into_iter()
        .partition(|path| judge.is_taken(path) && !standing.gives_way_to(path));
    if others.is_empty() {
        return Ok(JudgeComparison::Same);
    }
    let settings = PackageChoice::of(git, config, (base, result), &others)?;
    let left_out: Vec<String> = others
        .iter()
        .filter(|path| !settings.is_whole(path))
        .map(|path| settings.shown(path))
        .collect();
    if left_out.is_empty() && settings.replaced.is_empty() {
        return Ok(JudgeComparison::Same);
    }
    Ok(JudgeComparison::Differs(JudgeDifference {
        product,
        settings,
        left_out,
    }))
}

/// Puts the product of a result on its base.
pub(crate) fn invert(
    git: &Git,
    config: &Config,
    base: &str,
    result: &str,
    tests: TestsTaken,
) -> Result<InvertedBase> {
    let difference = match compare(git, config, (base, result), tests)? {
        JudgeComparison::Same => return Ok(InvertedBase::Same),
        JudgeComparison::NoProduct => return Ok(InvertedBase::NoProduct),
        JudgeComparison::Differs(difference) => difference,
    };
    let taken: BTreeSet<&PathBuf> = difference.product.iter().collect();
    let is_taken = |path: &Path| taken.contains(&path.to_path_buf());
    let mut tree = git.overlay(base, result, &is_taken)?;
    if !difference.settings.files.is_empty() {
        let files = difference.settings.files.iter();
        let files: Vec<(&str, Option<&[u8]>)> = files
            .map(|(path, bytes)| (path.as_str(), Some(bytes.as_slice())))
            .collect();
        tree = git.tree_with_files(&tree, &files)?;
    }
    let message = "runner: the product, with the tests and settings of the base\n";
    let (_, commit) = git.commit_tree(&tree, &[base], message)?;
    Ok(InvertedBase::Differs(InvertedResult {
        commit,
        replaced: difference.replaced(),
        left_out: difference.left_out,
    }))
}

/// What of a base may not be put aside by product files, whatever they are called.
struct StandingFiles {
    /// The files that judge, and the folders that they are in.
    judges: BTreeSet<PathBuf>,
    folders: BTreeSet<PathBuf>,
    /// Names under which its code imports packages.
    imports: BTreeSet<String>,
    /// Everything at the root.
    roots: BTreeSet<PathBuf>,
}

impl StandingFiles {
    fn of(git: &Git, judge: &JudgeFiles, base: &str) -> Result<Self> {
        let files = git.files_of(base)?;
        let paths = files.iter().map(|entry| &entry.path);
        let judges: BTreeSet<PathBuf> = paths
            .filter(|path| !judge.is_taken(path))
            .cloned()
            .collect();
        let above = judges.iter().flat_map(|path| path.ancestors().skip(1));
        let folders = above.map(Path::to_owned).collect();
        let roots = files.iter().filter_map(|entry| entry.path.iter().next());
        Ok(StandingFiles {
            folders,
            imports: python_imports(&package_files(git, &files)?),
            roots: roots.map(PathBuf::from).collect(),
            judges,
        })
    }

    /// Whether a file of a result would stand in the place of a judge: of the folder that it is in
    /// (by a link, say), of the file itself, or of a package that code imports.
    fn gives_way_to(&self, path: &Path) -> bool {
        let is_folder = self.folders.contains(path);
        let is_below = path.ancestors().any(|above| self.judges.contains(above));
        let first = path.iter().next().map(PathBuf::from).unwrap_or_default();
        let module = first.with_extension("");
        let is_python = path.extension().is_some_and(|ending| ending == "py");
        let is_import = module
            .to_str()
            .is_some_and(|name| self.imports.contains(name));
        is_folder || is_below || (is_python && is_import && !self.roots.contains(&first))
    }
}

/// Which files judge, and which are judged.
struct JudgeFiles {
    product: ProductFiles,
    protected: GlobList,
    tests: TestFiles,
    usual_tests: GlobList,
    /// Folders of protected scripts: what lies beside them is theirs.
    script_folders: Vec<Vec<u8>>,
    taken: TestsTaken,
}

impl JudgeFiles {
    /// Links of the base are followed: what a test leads to is a test.
    fn of(git: &Git, config: &Config, base: &str, taken: TestsTaken) -> Result<Self> {
        let guard = &config.guard;
        let wrong = |key: &str, error: &dyn std::fmt::Display| {
            Error::new(ErrorCode::Config, format!("[guard] {key}: {error}"))
        };
        let entries = guard.protected.iter();
        let protected: Vec<&String> = entries
            .filter(|entry| !entry.ends_with(PYTHON_MODULES))
            .collect();
        let protected = GlobList::new(&protected).map_err(|it| wrong("protected", &it))?;
        let root = git.root();
        let project = root.canonicalize().map_err(|it| files::at(root, it))?;
        let mut links = links_of(git, base, &project)?;
        links.retain(|link| !link.leads_around_itself());
        Ok(JudgeFiles {
            product: ProductFiles::new(&guard.product).map_err(|it| wrong("product", &it))?,
            protected: with_links(&protected, &links, "protected")?,
            tests: TestFiles::of(config)?.through_links_of(git, base)?,
            usual_tests: GlobList::new(&USUAL_TESTS).map_err(|it| wrong("tests", &it))?,
            script_folders: guard
                .protected
                .iter()
                .filter_map(|entry| script_folder(entry))
                .collect(),
            taken,
        })
    }

    /// Whether a file of the result counts.
    fn is_taken(&self, path: &Path) -> bool {
        let bytes = path.as_os_str().as_bytes();
        let is_beside = |folder: &Vec<u8>| bytes.starts_with(folder);
        if self.protected.is_match(bytes) || self.script_folders.iter().any(is_beside) {
            return false;
        }
        if self.tests.is_test(path) || self.usual_tests.is_match(bytes) {
            return self.taken == TestsTaken::All || self.tests.is_released(path);
        }
        self.product.is_product(bytes)
    }
}

/// The folder of a protected script, with what ends it, where its name says that scripts are what it
/// is for: the product may have a script that is protected, too.
fn script_folder(entry: &str) -> Option<Vec<u8>> {
    const SCRIPTS: [&str; 10] = [
        "sh", "bash", "py", "js", "mjs", "cjs", "ts", "rb", "pl", "php",
    ];
    const FOLDERS: [&str; 13] = [
        "scripts", "script", "tools", "tool", "ci", ".ci", "hack", "dev", "devtools", "checks",
        "check", "tasks", "build",
    ];
    let (folder, name) = entry.rsplit_once('/')?;
    let is_for_scripts = folder.split('/').any(|part| FOLDERS.contains(&part));
    let is_script = match name.rsplit_once('.') {
        Some((_, ending)) => SCRIPTS.contains(&ending),
        None => true,
    };
    let is_plain = !entry.contains(['*', '?', '[', '{']);
    (is_script && is_plain && is_for_scripts).then(|| format!("{folder}/").into_bytes())
}

/// Whether a base has anything that could judge a result: not where the result brings the file that
/// defines the guard; where no file does (a tool that is installed), any test or setting.
pub(crate) fn has_judge(git: &Git, config: &Config, (base, result): (&str, &str)) -> Result<bool> {
    // What says nothing about how a project is built or checked.
    const SILENT: [&str; 4] = [
        ".gitignore",
        ".gitattributes",
        ".editorconfig",
        ".gitmodules",
    ];
    let files = git.files_of(base)?;
    let defining = guard_file::candidates(&config.guard.command);
    let has_one = |files: &[TreeEntry]| {
        let is_there = |name: &String| files.iter().any(|it| it.path == Path::new(name));
        defining.iter().any(is_there)
    };
    if has_one(&files) {
        return Ok(true);
    }
    if has_one(&git.files_of(result)?) {
        return Ok(false);
    }
    let judge = JudgeFiles::of(git, config, base, TestsTaken::Released)?;
    let judges = |path: &Path| {
        let name = path.file_name().unwrap_or_default();
        !is_state_path(path.as_os_str().as_bytes())
            && !SILENT.iter().any(|silent| name == *silent)
            && !judge.is_taken(path)
    };
    Ok(files.iter().any(|entry| judges(&entry.path)))
}

/// What becomes of manifests and lock files: the base's, with added packages.
#[derive(Default)]
struct PackageChoice {
    /// Those that are not the base's.
    files: BTreeMap<String, Vec<u8>>,
    /// Those that are just the result's.
    whole: Vec<PathBuf>,
    /// Why lock files are not.
    reasons: BTreeMap<String, String>,
    replaced: Vec<ReplacedPackage>,
}

impl PackageChoice {
    fn of(
        git: &Git,
        config: &Config,
        (base, result): (&str, &str),
        changed: &[PathBuf],
    ) -> Result<Self> {
        let mut choice = PackageChoice::default();
        let names = changed.iter().filter_map(|path| path.to_str());
        let files: Vec<PackageFile<'_>> = names.filter_map(package_file).collect();
        if files.is_empty() {
            return Ok(choice);
        }
        let before = package_files(git, &git.files_of(base)?)?;
        let now = package_files(git, &git.files_of(result)?)?;
        let known = BasePackages::of(&before, &config.guard.command);
        choice.replaced = known.replaced_in(&now);
        for file in files {
            let path = file.path();
            let (old, new) = (before.get(path), now.get(path));
            let Some(bytes) = file.with_additions(&known, new.map(Vec::as_slice)) else {
                continue;
            };
            if let Some(reason) = new.and_then(|new| file.reason_left_out(&known, new)) {
                choice.reasons.insert(path.to_owned(), reason);
            }
            if new == Some(&bytes) {
                choice.whole.push(PathBuf::from(path));
            }
            if old != Some(&bytes) {
                choice.files.insert(path.to_owned(), bytes);
            }
        }
        Ok(choice)
    }

    /// Whether a file is as the result has it.
    fn is_whole(&self, path: &Path) -> bool {
        self.whole.iter().any(|it| it == path)
    }

    /// A path for people, with what of it was taken.
    fn shown(&self, path: &Path) -> String {
        let name = escape_path(path.as_os_str().as_bytes());
        let is_merged = path.to_str().is_some_and(|it| self.files.contains_key(it));
        let reason = path.to_str().and_then(|it| self.reasons.get(it));
        match reason {
            Some(reason) => format!("{name} ({})", escape_path(reason.as_bytes())),
            None if is_merged => format!("{name} (but for added packages)"),
            None => name,
        }
    }
}

/// A file that names packages of the project, and not one of an installed package.
pub(crate) fn package_file(path: &str) -> Option<PackageFile<'_>> {
    let is_installed = |part: &str| matches!(part, "node_modules" | "site-packages" | ".venv");
    PackageFile::of(path).filter(|_| !path.split('/').any(is_installed))
}

/// All files of a commit that name packages.
pub(crate) fn package_files(git: &Git, entries: &[TreeEntry]) -> Result<PackageFiles> {
    let entries: Vec<(&str, &TreeEntry)> = entries
        .iter()
        .filter(|entry| entry.mode.starts_with("100"))
        .filter_map(|entry| Some((entry.path.to_str()?, entry)))
        .filter(|(path, _)| package_file(path).is_some())
        .collect();
    let oids: Vec<&str> = entries
        .iter()
        .map(|(_, entry)| entry.oid.as_str())
        .collect();
    let blobs = git.proven_blobs(&oids)?;
    let named = entries.iter().zip(blobs);
    Ok(named
        .filter(|(_, bytes)| bytes.len() <= MAX_PACKAGE_FILE)
        .map(|((path, _), bytes)| ((*path).to_owned(), bytes))
        .collect())
}
