//! The judge by inversion: the product of a result with the tests and settings of the base.
//!
//! Lists of files that redefine a guard are never complete. So the question is turned round: not
//! what a session may have changed about its judge, but whether its product passes before the judge
//! that was there.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use runner_core::config::{Config, OriginalTests};
use runner_core::module_names::ModuleNames;
use runner_core::packages::{
    BasePackages, PackageFile, PackageFiles, ReplacedPackage, python_imports, python_packages_among,
};
use runner_core::paths::{GlobList, PYTHON_MODULES, is_python_module, is_state_path};
use runner_core::product::{ProductFiles, USUAL_TESTS};
use runner_core::text::escape_path;

use crate::base_trial::guard_file;
use crate::checkout::trial;
use crate::error::{Error, ErrorCode, Result};
use crate::files;
use crate::git::{Git, TreeEntry};
use crate::init::guard_words::named_files;
use crate::init::python_names;
use crate::makefile_sources::with_makefile_sources;
use crate::original_tests::TestFiles;
use crate::script_folders::is_for_scripts;
use crate::search_path::with_search_path;
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
    /// Those of them that the base does not have.
    pub(crate) added: Vec<String>,
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
    let known: BTreeSet<PathBuf> = git
        .files_of(base)?
        .into_iter()
        .map(|entry| entry.path)
        .collect();
    let added = others
        .iter()
        .filter(|path| !known.contains(*path) && !settings.is_whole(path))
        .map(|path| settings.shown(path))
        .collect();
    Ok(JudgeComparison::Differs(JudgeDifference {
        product,
        settings,
        left_out,
        added,
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
    /// Everything at the root, and in the folders in which Python looks for modules.
    roots: BTreeSet<PathBuf>,
    /// Folders in which Python looks for modules before its own.
    module_folders: Vec<String>,
    /// The names of code that judges.
    modules: ModuleNames,
    paths: BTreeSet<PathBuf>,
}

/// More files are not read for what they import.
const MAX_IMPORTING: usize = 500;

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
        let module_folders = judge.module_folders.clone();
        let folders_with_root = module_folders.iter().map(String::as_str).chain([NO_FOLDER]);
        let roots = folders_with_root.flat_map(|folder| {
            let inner = files.iter().filter_map(move |entry| {
                let rest = entry.path.strip_prefix(folder).ok()?;
                Some(Path::new(folder).join(rest.iter().next()?))
            });
            inner.collect::<Vec<_>>()
        });
        let roots = roots.collect();
        let mut modules = ModuleNames::default();
        for path in judges.iter().filter_map(|path| path.to_str()) {
            modules.insert(path);
        }
        let packages = package_files(git, &files)?;
        let mut imports = python_imports(&packages);
        let names = names_imported(git, &files, &judges)?;
        imports.append(&mut python_packages_among(&packages, &names));
        Ok(StandingFiles {
            folders,
            imports,
            roots,
            module_folders,
            modules,
            paths: files.into_iter().map(|entry| entry.path).collect(),
            judges,
        })
    }

    /// Whether a file of a result would stand in the place of a judge: of the folder that it is in
    /// (by a link, say), of the file itself, of a module that would be found later, or of a package
    /// that code imports.
    fn gives_way_to(&self, path: &Path) -> bool {
        let is_folder = self.folders.contains(path);
        let is_below = path.ancestors().any(|above| self.judges.contains(above));
        is_folder || is_below || !self.paths.contains(path) && self.is_found_first(path)
    }

    /// Whether a new file would be found in the place of a module or a package.
    fn is_found_first(&self, path: &Path) -> bool {
        if path
            .to_str()
            .is_some_and(|path| self.modules.gives_way_to(path))
        {
            return true;
        }
        let ending = path.extension().and_then(|ending| ending.to_str());
        let mut folders = self
            .module_folders
            .iter()
            .map(String::as_str)
            .chain([NO_FOLDER]);
        folders.any(|folder| {
            let Some(first) = path
                .strip_prefix(folder)
                .ok()
                .and_then(|it| it.iter().next())
            else {
                return false;
            };
            let whole = Path::new(folder).join(first);
            let name = first.to_str().unwrap_or_default();
            let module = name.split('.').next().unwrap_or(name);
            // A link to a folder has no ending.
            let is_code = matches!(ending, Some("py" | "pyc" | "so")) || path == whole;
            is_code && self.imports.contains(module) && !self.roots.contains(&whole)
        }) || {
            let bytes = path.as_os_str().as_bytes();
            let as_folder = path.join("__init__.py");
            let as_folder = as_folder.as_os_str().as_bytes();
            self.module_folders.iter().any(|folder| {
                is_python_module(bytes, folder)
                    || ending.is_none() && is_python_module(as_folder, folder)
            })
        }
    }
}

/// The root.
const NO_FOLDER: &str = "";

/// The modules that judges written in Python import.
fn names_imported(
    git: &Git,
    files: &[TreeEntry],
    judges: &BTreeSet<PathBuf>,
) -> Result<BTreeSet<String>> {
    let is_code = |path: &Path| path.extension().is_some_and(|ending| ending == "py");
    let oids: Vec<&str> = files
        .iter()
        .filter(|it| it.mode.starts_with("100") && is_code(&it.path) && judges.contains(&it.path))
        .map(|entry| entry.oid.as_str())
        .take(MAX_IMPORTING)
        .collect();
    let texts = git.proven_blobs(&oids)?;
    let names = texts
        .iter()
        .flat_map(|text| python_names(&String::from_utf8_lossy(text)));
    Ok(names.collect())
}

/// Which files judge, and which are judged.
struct JudgeFiles {
    product: ProductFiles,
    protected: GlobList,
    tests: TestFiles,
    usual_tests: GlobList,
    /// Folders of protected scripts: what lies beside them is theirs.
    script_folders: Vec<Vec<u8>>,
    /// What the commands of guard and setup name of the base.
    named: BTreeSet<PathBuf>,
    /// Folders in which Python looks for modules before its own, as the protected entries say.
    module_folders: Vec<String>,
    taken: TestsTaken,
}

impl JudgeFiles {
    /// Links of the base are followed: what a test leads to is a test.
    fn of(git: &Git, config: &Config, base: &str, taken: TestsTaken) -> Result<Self> {
        let guard = &config.guard;
        let wrong = |key: &str, error: &dyn std::fmt::Display| {
            Error::new(ErrorCode::Config, format!("[guard] {key}: {error}"))
        };
        let root = git.root();
        let project = root.canonicalize().map_err(|it| files::at(root, it))?;
        let entries = with_makefile_sources(with_search_path(&guard.protected, &project));
        let protected: Vec<&String> = entries
            .iter()
            .filter(|entry| !entry.ends_with(PYTHON_MODULES))
            .collect();
        let protected = GlobList::new(&protected).map_err(|it| wrong("protected", &it))?;
        let mut links = links_of(git, base, &project)?;
        links.retain(|link| !link.leads_around_itself());
        let files = git.files_of(base)?;
        let is_file = |path: &str| files.iter().any(|entry| entry.path == Path::new(path));
        let commands = [&guard.command, &config.workspace.setup];
        let named = commands
            .into_iter()
            .flat_map(|argv| named_files(argv, &is_file));
        let module_folders = guard.protected.iter().filter_map(|entry| {
            let folder = entry.strip_suffix(PYTHON_MODULES)?;
            Some(folder.trim_end_matches('/').to_owned())
        });
        Ok(JudgeFiles {
            named: named.map(PathBuf::from).collect(),
            module_folders: module_folders.collect(),
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
        if self.protected.is_match(bytes)
            || self.script_folders.iter().any(is_beside)
            || self.named.contains(path)
        {
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
    let (folder, name) = entry.rsplit_once('/')?;
    let is_script = match name.rsplit_once('.') {
        Some((_, ending)) => SCRIPTS.contains(&ending),
        None => true,
    };
    let is_plain = !entry.contains(['*', '?', '[', '{']);
    (is_script && is_plain && is_for_scripts(entry)).then(|| format!("{folder}/").into_bytes())
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
