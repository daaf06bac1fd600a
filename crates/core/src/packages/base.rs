//! What the packages of a branch are: what a result may not take the place of.

use std::collections::{BTreeMap, BTreeSet};

use super::lock::{self, LockedPackage, PackageKey};
use super::programs::is_standard_program;
use super::{
    PackageChange, PackageFile, PackageFiles, PackageFormat, PackageManager, PackageSource,
    ReplacedPackage, files_of, manifest,
};

/// The packages of one version of a project, and the programs that its checks call.
pub struct BasePackages<'f> {
    pub(super) files: &'f PackageFiles,
    /// Each name with the places that it comes from.
    known: BTreeMap<(PackageManager, String), BTreeSet<PackageSource>>,
    /// The names of the project's own parts.
    own: BTreeSet<(PackageManager, String)>,
    /// The registries that its packages come from.
    registries: BTreeSet<(PackageManager, String)>,
    /// Those that a manifest names.
    named_registries: BTreeSet<(PackageManager, String)>,
    /// The records of its lock files.
    locked: BTreeMap<(PackageManager, PackageKey), Vec<LockedPackage>>,
    /// Programs, and the packages that bring them.
    programs: BTreeMap<(PackageManager, String), BTreeSet<String>>,
    /// Programs that the guard's command names.
    guard: BTreeSet<String>,
    /// Words of the scripts of manifests.
    called: BTreeSet<String>,
}

impl<'f> BasePackages<'f> {
    /// Reads them. The guard's command is an argv.
    pub fn of(files: &'f PackageFiles, guard: &[String]) -> Self {
        let mut base = BasePackages {
            files,
            known: BTreeMap::new(),
            own: BTreeSet::new(),
            registries: BTreeSet::new(),
            named_registries: BTreeSet::new(),
            locked: BTreeMap::new(),
            programs: BTreeMap::new(),
            guard: guard.iter().flat_map(|it| words_of(it)).collect(),
            called: BTreeSet::new(),
        };
        for (file, bytes) in files_of(files) {
            base.take(&file, bytes);
        }
        let registries = base.known.iter().flat_map(|((manager, _), sources)| {
            let hosts = sources.iter().filter_map(PackageSource::registry);
            hosts.map(|host| (*manager, host.to_owned()))
        });
        base.registries = registries.collect();
        base
    }

    fn take(&mut self, file: &PackageFile<'_>, bytes: &[u8]) {
        let manager = file.manager;
        let named = file.packages(bytes).unwrap_or_default();
        for (name, sources) in named.asked {
            let entry = self.known.entry((manager, name)).or_default();
            entry.extend(sources);
        }
        self.own.extend(named.own.map(|name| (manager, name)));
        let scripts = named.scripts.iter().flat_map(|script| words_of(script));
        self.called.extend(scripts);
        let registries = manifest::registries(file, bytes).into_iter();
        let registries = registries.map(|place| (manager, place));
        self.named_registries.extend(registries);
        if file.format != PackageFormat::Lock {
            return;
        }
        let locked = lock::parse(file, bytes).unwrap_or_default();
        for (key, variants) in locked.packages {
            for program in variants.iter().filter_map(|it| it.executables.as_ref()) {
                for program in program.keys() {
                    let owners = self.programs.entry((manager, program.clone())).or_default();
                    owners.insert(key.0.clone());
                }
            }
            let entry = self.locked.entry((manager, key)).or_default();
            entry.extend(variants);
        }
    }

    /// Whether new packages may come from there.
    pub(super) fn may_add_from(&self, manager: PackageManager, source: &PackageSource) -> bool {
        let PackageSource::Registry(place) = source else {
            return false;
        };
        let Some(place) = place else {
            return true;
        };
        let key = (manager, place.clone());
        self.registries.contains(&key)
            || self.named_registries.contains(&key)
            || lock::usual_registries(manager).contains(&place.as_str())
    }

    /// Whose a program is that this package may not bring.
    pub(super) fn owner_of(
        &self,
        manager: PackageManager,
        package: &str,
        program: &str,
    ) -> Option<String> {
        let key = (manager, program.to_owned());
        let owners = self.programs.get(&key);
        if owners.is_some_and(|owners| owners.contains(package)) {
            return None;
        }
        let owner = owners.and_then(|owners| owners.first()).cloned();
        let is_package = program != package && self.known.contains_key(&key);
        let is_of_guard = program != package && self.guard.contains(program);
        owner
            .or_else(|| is_package.then(|| program.to_owned()))
            .or_else(|| is_of_guard.then(|| "the guard's command".to_owned()))
            .or_else(|| is_standard_program(program, package).then(|| "the system".to_owned()))
    }

    /// Whether a script of a manifest may call this program.
    pub(super) fn is_called(&self, program: &str) -> bool {
        self.called.contains(program)
    }

    /// The packages that come from elsewhere in another version of the project, that are told
    /// otherwise by its lock files, or whose name or program another one has taken.
    pub fn replaced_in(&self, now: &PackageFiles) -> Vec<ReplacedPackage> {
        let mut found = Vec::new();
        for (file, bytes) in files_of(now) {
            let before = self.files.get(file.path);
            if before.is_some_and(|before| before == bytes) {
                continue;
            }
            let was_readable = before.is_some_and(|it| file.packages(it).is_some());
            let is_read = file.packages(bytes).is_some();
            if !is_read && (was_readable || !lock::is_opaque(&file)) {
                // A tool may read it otherwise than we do. What no tool of the project reads is no
                // matter.
                if file.belongs_to(self.files) {
                    found.push(ReplacedPackage::new(&file, "", PackageChange::Unreadable));
                }
                continue;
            }
            self.add_replaced(&file, bytes, &mut found);
        }
        found
    }

    fn add_replaced(&self, file: &PackageFile<'_>, bytes: &[u8], found: &mut Vec<ReplacedPackage>) {
        let named = file.packages(bytes).unwrap_or_default();
        let mut add = |name: &str, change: PackageChange| {
            let replaced = ReplacedPackage::new(file, name, change);
            if !found.contains(&replaced) {
                found.push(replaced);
            }
        };
        if file.format == PackageFormat::Manifest {
            let before = self.files.get(file.path);
            let before = before.and_then(|bytes| file.packages(bytes));
            let before = before.unwrap_or_default().programs;
            let own = named.own.as_deref().unwrap_or_default();
            for program in named.programs.difference(&before) {
                if let Some(owner) = self.owner_of(file.manager, own, program) {
                    let program = program.clone();
                    add(own, PackageChange::Program { program, owner });
                }
            }
        }
        if let Some(name) = &named.own {
            let key = (file.manager, name.clone());
            if self.known.contains_key(&key) && !self.own.contains(&key) {
                let part = PackageSource::other("a part of the project");
                add(name, PackageChange::Source(part));
            }
        }
        let mut elsewhere = BTreeSet::new();
        for (name, sources) in &named.asked {
            let known = self.known.get(&(file.manager, name.clone()));
            let Some(known) = known else {
                continue;
            };
            for source in sources {
                if !self.is_known(file.manager, known, source) {
                    elsewhere.insert(name);
                    add(name, PackageChange::Source(source.clone()));
                }
            }
        }
        if file.format != PackageFormat::Lock {
            return;
        }
        let locked = lock::parse(file, bytes).unwrap_or_default();
        for (key, variants) in locked.packages {
            let (name, version) = &key;
            let full_key = (file.manager, key.clone());
            let before = self.locked.get(&full_key).map_or(&[][..], Vec::as_slice);
            for package in variants.iter().filter(|it| !before.contains(it)) {
                if let Some(oddity) = package.oddity {
                    add(name, PackageChange::Odd(oddity));
                }
                let is_same = before.iter().any(|old| package.means_the_same(old));
                let is_told = is_same || package.is_bundled || elsewhere.contains(name);
                if !before.is_empty() && !is_told {
                    add(name, PackageChange::Record(version.clone()));
                }
                let programs = package.executables.iter().flat_map(BTreeMap::keys);
                for program in programs {
                    if let Some(owner) = self.owner_of(file.manager, name, program) {
                        let program = program.clone();
                        add(name, PackageChange::Program { program, owner });
                    }
                }
            }
        }
    }

    /// Whether a package that the project knew may come from there.
    fn is_known(
        &self,
        manager: PackageManager,
        known: &BTreeSet<PackageSource>,
        source: &PackageSource,
    ) -> bool {
        if known.contains(source) {
            return true;
        }
        let PackageSource::Registry(host) = source else {
            return false;
        };
        let is_usual = host.as_ref().is_none_or(|host| {
            let is_named = self.registries.contains(&(manager, host.clone()));
            let any_host = !self.registries.iter().any(|(it, _)| *it == manager);
            is_named || (any_host && host.starts_with("http"))
        });
        known.iter().any(PackageSource::is_registry) && is_usual
    }
}

/// The words of a command line that could name a program.
fn words_of(line: &str) -> Vec<String> {
    let is_end = |c: char| c.is_whitespace() || "&|;()<>\"'`$={}".contains(c);
    let words = line.split(is_end).filter(|word| !word.is_empty());
    words.map(str::to_owned).collect()
}
