//! Which packages the manifests and lock files of a project name, and where each comes from.
//!
//! A test tool is a package like any other: a session that makes `jest` mean a folder of the project
//! has replaced the guard without touching a file of it. Adding packages is honest work.

mod lock;
mod manifest;
mod source;

use std::collections::{BTreeMap, BTreeSet};

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

    /// The version of the file for a verdict by the base's rules: the base's, with the packages that
    /// the other version adds from a registry. A lock file is the other one where that keeps everything
    /// which the base's had found, and adds nothing from elsewhere.
    pub fn with_additions(&self, base: Option<&[u8]>, now: Option<&[u8]>) -> Option<Vec<u8>> {
        let (Some(base), Some(now)) = (base, now) else {
            // A manifest in a folder that had none belongs to a new part of the project. A new lock file
            // may take the place of another one.
            let is_new_part = self.format != PackageFormat::Lock;
            let now = now.filter(|now| is_new_part && self.is_readable(now));
            return base.or(now).map(<[u8]>::to_vec);
        };
        let merged = match self.format {
            PackageFormat::Manifest => manifest::with_additions(self, base, now),
            PackageFormat::ManifestLines => manifest::with_added_lines(self, base, now),
            PackageFormat::Lock => lock::keeps(self, base, now).then(|| now.to_vec()),
        };
        Some(merged.unwrap_or_else(|| base.to_vec()))
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
        match self.manager {
            PackageManager::Cargo | PackageManager::Go => true,
            _ => source.is_registry(),
        }
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

/// A package that means another one than before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplacedPackage {
    /// The file that says so now.
    pub path: String,
    /// Its name.
    pub name: String,
    /// Where it comes from now.
    pub source: PackageSource,
}

impl ReplacedPackage {
    fn unreadable(path: &str) -> Self {
        ReplacedPackage {
            path: path.to_owned(),
            name: String::new(),
            source: PackageSource::other("unreadable"),
        }
    }

    /// The same for people: `package.json (jest is ./tools/jest now)`.
    pub fn words(&self) -> String {
        if self.name.is_empty() {
            return format!("{} (it cannot be read now)", self.path);
        }
        format!("{} ({} is {} now)", self.path, self.name, self.source)
    }
}

/// The packages that a project already asked for and that come from elsewhere now, or that a new
/// part of the project has taken the name of.
pub fn replaced_packages(before: &PackageFiles, now: &PackageFiles) -> Vec<ReplacedPackage> {
    let mut known: BTreeMap<(PackageManager, String), BTreeSet<PackageSource>> = BTreeMap::new();
    let mut own = BTreeSet::new();
    for (file, bytes) in files_of(before) {
        let named = file.packages(bytes).unwrap_or_default();
        for (name, sources) in named.asked {
            let entry = known.entry((file.manager, name)).or_default();
            entry.extend(sources);
        }
        own.extend(named.own.map(|name| (file.manager, name)));
    }
    let registries: BTreeSet<(PackageManager, &str)> = known
        .iter()
        .flat_map(|((manager, _), sources)| {
            let hosts = sources.iter().filter_map(PackageSource::registry);
            hosts.map(|host| (*manager, host))
        })
        .collect();
    let mut found = Vec::new();
    for (file, bytes) in files_of(now) {
        if before.get(file.path).is_some_and(|before| before == bytes) {
            continue;
        }
        if !file.is_readable(bytes) {
            // A tool may read it otherwise than we do. What no tool of the project reads is no matter.
            if file.belongs_to(before) {
                found.push(ReplacedPackage::unreadable(file.path));
            }
            continue;
        }
        let mut is_replaced = |name: &str, source: &PackageSource| {
            found.push(ReplacedPackage {
                path: file.path.to_owned(),
                name: name.to_owned(),
                source: source.clone(),
            });
        };
        let named = file.packages(bytes).unwrap_or_default();
        if let Some(name) = &named.own {
            let key = (file.manager, name.clone());
            if known.contains_key(&key) && !own.contains(&key) {
                is_replaced(
                    name,
                    &PackageSource::Other("a part of the project".to_owned()),
                );
            }
        }
        for (name, sources) in &named.asked {
            let Some(before) = known.get(&(file.manager, name.clone())) else {
                continue;
            };
            let is_known = |source: &&PackageSource| {
                before.contains(source)
                    || match source {
                        PackageSource::Registry(host) => {
                            let from_any = before.iter().any(PackageSource::is_registry);
                            let host = host.as_deref();
                            let is_usual =
                                host.is_none_or(|it| registries.contains(&(file.manager, it)));
                            let any_host = !registries.iter().any(|(it, _)| *it == file.manager);
                            from_any && (is_usual || any_host)
                        }
                        PackageSource::Other(_) => false,
                    }
            };
            for source in sources.iter().filter(|source| !is_known(source)) {
                is_replaced(name, source);
            }
        }
    }
    found
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
