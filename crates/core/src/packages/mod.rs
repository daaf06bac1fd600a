//! Which packages the manifests and lock files of a project name, and where each comes from.
//!
//! A test tool is a package like any other: a session that makes `jest` mean a folder of the project
//! has replaced the guard without touching a file of it. Adding packages is honest work.

mod base;
mod lock;
mod manifest;
mod programs;
mod source;

use std::collections::{BTreeMap, BTreeSet};

pub use base::BasePackages;
pub use source::PackageSource;

/// What manages packages: names of one say nothing about those of another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum PackageManager {
    Npm,
    Cargo,
    Python,
    Go,
    Composer,
    Bundler,
}

/// How a file that names packages is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PackageFormat {
    /// JSON or TOML in which people name packages.
    Manifest,
    /// The same as lines.
    ManifestLines,
    /// What a tool found for a manifest.
    Lock,
}

/// A file that names packages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PackageFile<'p> {
    path: &'p str,
    manager: PackageManager,
    format: PackageFormat,
}

impl<'p> PackageFile<'p> {
    /// What a path is by its name, if it is such a file.
    pub fn of(path: &'p str) -> Option<Self> {
        use PackageFormat::{Lock, Manifest, ManifestLines};
        use PackageManager::{Bundler, Cargo, Composer, Go, Npm, Python};
        let name = path.rsplit('/').next().unwrap_or(path);
        let (manager, format) = match name {
            "package.json" => (Npm, Manifest),
            "package-lock.json"
            | "npm-shrinkwrap.json"
            | "yarn.lock"
            | "pnpm-lock.yaml"
            | "bun.lock" => (Npm, Lock),
            "Cargo.toml" => (Cargo, Manifest),
            "Cargo.lock" => (Cargo, Lock),
            "pyproject.toml" | "Pipfile" => (Python, Manifest),
            "poetry.lock" | "uv.lock" | "Pipfile.lock" | "pdm.lock" => (Python, Lock),
            "go.mod" => (Go, ManifestLines),
            "go.sum" => (Go, Lock),
            "composer.json" => (Composer, Manifest),
            "composer.lock" => (Composer, Lock),
            "Gemfile" => (Bundler, ManifestLines),
            "Gemfile.lock" => (Bundler, Lock),
            _ if is_requirements(name) => (Python, ManifestLines),
            _ => return None,
        };
        Some(PackageFile {
            path,
            manager,
            format,
        })
    }

    /// Where it is.
    pub fn path(&self) -> &'p str {
        self.path
    }

    fn name(&self) -> &'p str {
        self.path.rsplit('/').next().unwrap_or(self.path)
    }

    /// The version of the file for a verdict by the branch's rules: the branch's, with the packages
    /// that the other version adds from a registry. A lock file is the other one as a whole where that
    /// keeps every record of the branch's and adds none that could judge.
    pub fn with_additions(&self, base: &BasePackages<'_>, now: Option<&[u8]>) -> Option<Vec<u8>> {
        let before = base.files.get(self.path).map(Vec::as_slice);
        let (Some(before), Some(now)) = (before, now) else {
            // A manifest in a folder that had none belongs to a new part of the project. A new lock file
            // may take the place of another one.
            let is_new_part = self.format != PackageFormat::Lock;
            let now = now.filter(|now| is_new_part && self.is_readable(now));
            return before.or(now).map(<[u8]>::to_vec);
        };
        let merged = match self.format {
            PackageFormat::Manifest => manifest::with_additions(self, before, now),
            PackageFormat::ManifestLines => manifest::with_added_lines(self, before, now),
            PackageFormat::Lock => lock::keeps(self, base, (before, now))
                .ok()
                .map(|()| now.to_vec()),
        };
        Some(merged.unwrap_or_else(|| before.to_vec()))
    }

    /// Why a verdict by the branch's rules does not take a lock file as it is.
    pub fn reason_left_out(&self, base: &BasePackages<'_>, now: &[u8]) -> Option<String> {
        let before = base.files.get(self.path)?;
        let is_lock = self.format == PackageFormat::Lock;
        is_lock
            .then(|| lock::keeps(self, base, (before, now)).err())
            .flatten()
    }

    /// Everything that it names; `None` where it cannot be read.
    fn packages(&self, bytes: &[u8]) -> Option<NamedPackages> {
        match self.format {
            PackageFormat::Manifest => manifest::read(self, bytes),
            PackageFormat::ManifestLines => manifest::read_lines(self, bytes),
            PackageFormat::Lock => lock::read(self, bytes),
        }
    }

    /// Whether its packages are understood, or need not be.
    fn is_readable(&self, bytes: &[u8]) -> bool {
        self.packages(bytes).is_some() || lock::is_opaque(self)
    }

    /// Whether a version of a project has it, or a file of the same tool beside it.
    fn belongs_to(&self, files: &PackageFiles) -> bool {
        let folder = |path: &'_ str| path.rsplit_once('/').map_or("", |(it, _)| it).to_owned();
        let own = folder(self.path);
        files_of(files).any(|(other, bytes)| {
            other.manager == self.manager
                && folder(other.path) == own
                && (other.path != self.path || other.is_readable(bytes))
        })
    }

    /// Whether a package that is added from such a source may judge: one that is installed from a
    /// folder of the project runs code when it is.
    fn may_add(&self, source: &PackageSource) -> bool {
        self.takes_parts() || source.is_registry()
    }

    /// Whether what is a folder of the project is product like its other code: nothing of it runs when
    /// packages are installed.
    fn takes_parts(&self) -> bool {
        matches!(self.manager, PackageManager::Cargo | PackageManager::Go)
    }
}

/// `requirements.txt`, `requirements-dev.txt`, `dev-requirements.txt` and the like.
fn is_requirements(name: &str) -> bool {
    let stem = name
        .strip_suffix(".txt")
        .or_else(|| name.strip_suffix(".in"));
    stem.is_some_and(|stem| {
        stem.split(['-', '_', '.'])
            .any(|part| matches!(part, "requirements" | "constraints"))
    })
}

/// What one file names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct NamedPackages {
    /// The package that the file itself describes.
    own: Option<String>,
    /// The packages that it asks for or has found, with their sources.
    asked: BTreeMap<String, BTreeSet<PackageSource>>,
    /// The programs that the package brings which the file describes.
    programs: BTreeSet<String>,
    /// Command lines that the file gives names to.
    scripts: Vec<String>,
}

impl NamedPackages {
    fn add(&mut self, name: &str, source: PackageSource) {
        self.asked
            .entry(name.to_owned())
            .or_default()
            .insert(source);
    }
}

/// The manifests and lock files of one version of a project, by path.
pub type PackageFiles = BTreeMap<String, Vec<u8>>;

/// What became of a package that the project already used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PackageChange {
    /// It comes from there now.
    Source(PackageSource),
    /// This version of it has other files or programs now.
    Record(String),
    /// It brings a program that belongs to something else.
    Program {
        /// The program's name.
        program: String,
        /// A package, or what else has it.
        owner: String,
    },
    /// Its record says what no tool writes.
    Odd(&'static str),
    /// The file that names it cannot be read any more.
    Unreadable,
}

/// A package that means another one than before, or takes the place of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplacedPackage {
    /// The file that says so now.
    pub path: String,
    /// Its name.
    pub name: String,
    /// What became of it.
    pub change: PackageChange,
}

impl ReplacedPackage {
    fn new(file: &PackageFile<'_>, name: &str, change: PackageChange) -> Self {
        ReplacedPackage {
            path: file.path.to_owned(),
            name: name.to_owned(),
            change,
        }
    }

    /// The same for people: `package.json (jest is ./tools/jest now)`.
    pub fn words(&self) -> String {
        let ReplacedPackage { path, name, change } = self;
        match change {
            PackageChange::Source(source) => format!("{path} ({name} is {source} now)"),
            PackageChange::Record(version) => format!(
                "{path} ({name} {version} has other files or programs now: the tool must write it)"
            ),
            PackageChange::Program { program, owner } => format!(
                "{path} ({name} brings the program {program} of {owner} now: add another package)"
            ),
            PackageChange::Odd(oddity) => format!("{path} ({name} {oddity} now)"),
            PackageChange::Unreadable => format!("{path} (it cannot be read now)"),
        }
    }
}

/// The names under which code of Python imports packages that the manifests and lock files name, as
/// far as those are their own.
pub fn python_imports(files: &PackageFiles) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for (file, bytes) in files_of(files) {
        if file.manager == PackageManager::Python {
            let named = file.packages(bytes).unwrap_or_default();
            names.extend(named.asked.into_keys().map(|name| name.replace('-', "_")));
        }
    }
    names
}

/// Packages of the Python index whose code has another name.
const OTHER_NAMES: [(&str, &str); 12] = [
    ("beautifulsoup4", "bs4"),
    ("opencvpython", "cv2"),
    ("opencvpythonheadless", "cv2"),
    ("pillow", "PIL"),
    ("pycryptodome", "Crypto"),
    ("scikitlearn", "sklearn"),
    ("scikitimage", "skimage"),
    ("protobuf", "google"),
    ("mysqlclient", "MySQLdb"),
    ("pymupdf", "fitz"),
    ("gitpython", "git"),
    ("setuptools", "pkg_resources"),
];

/// Those of the names that code imports which are packages that these files name, also where those
/// are called otherwise: `yaml` is in PyYAML.
pub fn python_packages_among(files: &PackageFiles, names: &BTreeSet<String>) -> BTreeSet<String> {
    let plain = |name: &str| name.to_lowercase().replace(['-', '_', '.'], "");
    let asked: BTreeSet<String> = python_imports(files).iter().map(|it| plain(it)).collect();
    let is_package = |name: &&String| {
        let name = plain(name);
        let affixes = [
            ("py", ""),
            ("python", ""),
            ("", "py"),
            ("", "python"),
            ("", "s"),
            ("", "binary"),
            ("", ""),
        ];
        let mut spelled = affixes
            .iter()
            .map(|(before, after)| format!("{before}{name}{after}"));
        spelled.any(|it| asked.contains(&it))
    };
    let other = OTHER_NAMES
        .iter()
        .filter(|(package, name)| asked.contains(*package) && names.contains(*name));
    let mut found: BTreeSet<String> = names.iter().filter(is_package).cloned().collect();
    found.extend(other.map(|(_, name)| (*name).to_owned()));
    found
}

fn files_of(files: &PackageFiles) -> impl Iterator<Item = (PackageFile<'_>, &[u8])> {
    files
        .iter()
        .filter_map(|(path, bytes)| Some((PackageFile::of(path)?, bytes.as_slice())))
}

#[cfg(test)]
mod tests;
