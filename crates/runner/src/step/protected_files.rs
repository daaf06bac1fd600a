//! What a session must leave alone: runner-owned files, sidecars of passed
//! nodes, protected files.
//!
//! Taken down before the session and proven to be what HEAD has; compared and
//! put back afterwards. Contents are compared, never the index or ignore rules.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use runner_core::config::Config;
use runner_core::module_names::ModuleNames;
use runner_core::paths::{self, GlobList};
use runner_core::text::escape_path;
use runner_core::tree::Node;

use crate::error::{Error, ErrorCode, Result};
use crate::files::{self, FileBatch};
use crate::git::{self, Git, PendingFiles, TreeEntry};
use crate::init::guard_words::named_files;
use crate::makefile_sources::with_makefile_sources;
use crate::original_tests::TestFiles;
use crate::search_path::with_search_path;
use crate::step::file_image;
use crate::step::file_image::FileImage;
use crate::step::head_files::FileReader;
use crate::step::own_guard;
use crate::step::protected_values::ProtectedValues;
use crate::tree_links::{tree_link, with_links};

/// What must stay as it is.
#[derive(Debug)]
pub(crate) struct ProtectedFiles<'t> {
    head: String,
    owned: BTreeMap<PathBuf, FileImage>,
    protected: BTreeMap<PathBuf, FileImage>,
    values: ProtectedValues,
    globs: GlobList,
    /// Folders in which no new module may have the name of one of Python's own.
    module_folders: Vec<String>,
    /// Names of protected code: a new file that is loaded in its place is meant as well.
    modules: ModuleNames,
    /// The tree before: whose sidecars are finished.
    tree: Option<&'t Node<'t>>,
    /// Ignored files that a protected entry means and that were there before, by a
    /// rule that is not in HEAD; `None` after a crash.
    hidden: Option<BTreeSet<PathBuf>>,
    /// assumptions.md and questions.md: they may grow, and nothing else.
    notes: Vec<(PathBuf, FileImage)>,
    /// Every file of HEAD, sorted by the bytes of its path.
    pub(crate) tracked: Vec<TreeEntry>,
    /// The folders that they are in, the root included: sorted, so that a folder comes before what
    /// is in it.
    pub(crate) folders: BTreeSet<PathBuf>,
}

/// The folders of sorted files: those in one folder mostly follow each other.
fn folders_of(tracked: &[TreeEntry]) -> BTreeSet<PathBuf> {
    let mut folders = BTreeSet::from([PathBuf::new()]);
    let mut last: Option<&Path> = None;
    for entry in tracked {
        let folder = entry.path.parent();
        if folder.map(Path::as_os_str) == last.map(Path::as_os_str) {
            continue;
        }
        last = folder;
        for above in entry.path.ancestors().skip(1) {
            if !folders.insert(above.to_owned()) {
                break;
            }
        }
    }
    folders
}

/// Where the content is taken from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FileSource {
    /// The work tree, which must agree with HEAD (before a session).
    WorkTree,
    /// The commit (after a crash, when the work tree proves nothing).
    Commit,
}

/// A path that is not as it was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FileChange {
    /// From the root of the project.
    pub(crate) path: PathBuf,
    /// Protected rather than owned.
    pub(crate) protected: bool,
    /// The value in it that is protected, where the file itself is not.
    pub(crate) value: Option<String>,
}

impl FileChange {
    fn of(path: PathBuf, protected: bool) -> Self {
        FileChange {
            path,
            protected,
            value: None,
        }
    }

    /// The path for people, with the value that it is about.
    pub(crate) fn name(&self) -> String {
        let name = self.value.as_ref().map(String::as_bytes);
        escape_path(name.unwrap_or(self.path.as_os_str().as_bytes()))
    }
}

impl<'t> ProtectedFiles<'t> {
    /// Takes everything down. `project`: the path of the project that the work tree is seen at;
    /// `asked`: the files of `head`, if git was asked before.
    pub(crate) fn capture(
        (git, project): (&Git, &Path),
        head: &str,
        config: &Config,
        tree: Option<&'t Node<'t>>,
        source: FileSource,
        asked: Option<PendingFiles>,
    ) -> Result<Self> {
        let listed = with_search_path(&config.guard.protected, project);
        let listed = with_makefile_sources(listed);
        let (module_folders, files): (Vec<&String>, Vec<&String>) = listed
            .iter()
            .partition(|entry| entry.ends_with(paths::PYTHON_MODULES));
        let module_folders = module_folders.iter().map(|entry| {
            let folder = entry.strip_suffix(paths::PYTHON_MODULES);
            folder.unwrap_or_default().trim_end_matches('/').to_owned()
        });
        let globs = GlobList::new(&files).map_err(|error| {
            Error::new(ErrorCode::Config, format!("[guard] protected: {error}"))
        })?;
        let answer = asked.map(|asked| asked.answer(head)).transpose()?;
        let mut tracked = match answer.flatten() {
            Some(tracked) => tracked,
            None => git.files_of(head)?,
        };
        // Git lists them so, which takes next to nothing to make sure of.
        tracked.sort_by(|one, other| one.path.as_os_str().cmp(other.path.as_os_str()));
        let mut protected = ProtectedFiles {
            head: head.to_owned(),
            owned: BTreeMap::new(),
            protected: BTreeMap::new(),
            values: ProtectedValues::default(),
            globs,
            module_folders: module_folders.collect(),
            modules: ModuleNames::default(),
            tree,
            hidden: None,
            notes: Vec::new(),
            folders: folders_of(&tracked),
            tracked,
        };
        git.remember_submodules(&protected.tracked);
        let reader = FileReader { git, source };
        protected.follow_links(&reader, project)?;
        for name in paths::OWNED {
            let path = PathBuf::from(name);
            let entry = protected.entry(&path);
            let image = reader.image(&path, entry)?;
            protected.owned.insert(path, image);
        }
        for name in [paths::ASSUMPTIONS, paths::QUESTIONS] {
            let path = PathBuf::from(name);
            let entry = protected.entry(&path);
            let image = reader.image(&path, entry)?;
            protected.notes.push((path, image));
        }
        protected.values = ProtectedValues::capture(config, &protected.tracked, |path| {
            reader.image(path, protected.entry(path))
        })?;
        for entry in &protected.tracked {
            let bytes = entry.path.as_os_str().as_bytes();
            if protected.is_passed_sidecar(&entry.path) {
                let image = reader.image(&entry.path, Some(entry))?;
                protected.owned.insert(entry.path.clone(), image);
            } else if protected.globs.is_match(bytes) && !paths::is_state_path(bytes) {
                let image = reader.image(&entry.path, Some(entry))?;
                protected.protected.insert(entry.path.clone(), image);
            }
        }
        protected.protect_setup(&reader, config)?;
        for path in protected.protected.keys().filter_map(|path| path.to_str()) {
            protected.modules.insert(path);
        }
        Ok(protected)
    }

    /// The scripts that setup runs make the checkout that the guard judges.
    fn protect_setup(&mut self, reader: &FileReader<'_>, config: &Config) -> Result<()> {
        let is_file = |path: &str| self.entry(Path::new(path)).is_some();
        for path in named_files(&config.workspace.setup, &is_file) {
            let path = PathBuf::from(path);
            let image = reader.image(&path, self.entry(&path))?;
            self.protected.insert(path, image);
        }
        Ok(())
    }

    /// What protected paths lead to through links of HEAD is protected as well.
    fn follow_links(&mut self, reader: &FileReader<'_>, project: &Path) -> Result<()> {
        if self.globs.is_empty() {
            return Ok(());
        }
        let mut links = Vec::new();
        for entry in self.tracked.iter().filter(|entry| entry.mode == git::LINK) {
            if let FileImage::Link(content) = reader.image(&entry.path, Some(entry))? {
                links.extend(tree_link(&entry.path, &content, project));
            }
        }
        if !links.is_empty() {
            self.globs = with_links(&self.globs, &links, "protected")?;
        }
        Ok(())
    }

    /// Takes down what is hidden before the session. `ignored`: what git ignores.
    pub(crate) fn note_hidden(&mut self, git: &Git, ignored: &[PathBuf]) -> Result<()> {
        self.hidden = Some(self.hidden_now(git, &BTreeSet::new(), ignored)?);
        Ok(())
    }

    /// The commit that everything was taken down from.
    pub(crate) fn head(&self) -> &str {
        &self.head
    }

    /// What HEAD has at a path. As bytes: paths are compared part by part, which is slow in a large
    /// project.
    pub(crate) fn entry(&self, path: &Path) -> Option<&TreeEntry> {
        let order = |entry: &TreeEntry| entry.path.as_os_str().cmp(path.as_os_str());
        let at = self.tracked.binary_search_by(order).ok()?;
        self.tracked.get(at)
    }

    fn is_passed_sidecar(&self, path: &Path) -> bool {
        paths::sidecar_node(path.as_os_str().as_bytes())
            .and_then(|id| self.tree?.find(id))
            .is_some_and(|node| node.passes)
    }

    /// Everything that is not as it was taken down. `changed` and `ignored`: what
    /// git says of the work tree and of commits made since.
    pub(crate) fn changes(
        &self,
        git: &Git,
        changed: &BTreeSet<PathBuf>,
        ignored: &[PathBuf],
    ) -> Result<Vec<FileChange>> {
        let root = git.root();
        let mut found = Vec::new();
        for (list, protected) in [(&self.owned, false), (&self.protected, true)] {
            for (path, image) in list {
                if !image.is_at(root, path)? {
                    found.push(FileChange::of(path.clone(), protected));
                }
            }
        }
        for path in self.new_sidecars(root)? {
            found.push(FileChange::of(path, false));
        }
        for path in self.new_protected(git, changed, ignored)? {
            found.push(FileChange::of(path, true));
        }
        for (path, value) in self.values.changed(root)? {
            found.push(FileChange {
                value: Some(value),
                ..FileChange::of(path, true)
            });
        }
        Ok(found)
    }

    fn new_sidecars(&self, root: &Path) -> Result<Vec<PathBuf>> {
        let found = file_image::list(root, Path::new(paths::NODES_DIR))?;
        Ok(found
            .into_iter()
            .filter(|path| self.is_passed_sidecar(path) && !self.owned.contains_key(path))
            .collect())
    }

    /// New files that a protected entry means. Those that git ignores do not
    /// count (what tests leave behind), unless a rule of this session hides them.
    fn new_protected(
        &self,
        git: &Git,
        changed: &BTreeSet<PathBuf>,
        ignored: &[PathBuf],
    ) -> Result<Vec<PathBuf>> {
        let mut found: BTreeSet<PathBuf> = BTreeSet::new();
        let is_meant = |path: &&PathBuf| {
            self.is_unknown(path)
                || git.root().join(path).is_symlink() && self.may_lead_to_protected(path)
        };
        for path in changed.iter().filter(is_meant) {
            if !matches!(
                FileImage::of(git.root(), path)?,
                FileImage::Absent | FileImage::Other
            ) {
                found.insert(path.clone());
            }
        }
        if let Some(before) = &self.hidden {
            let now = self.hidden_now(git, changed, ignored)?;
            found.extend(now.difference(before).cloned());
        }
        Ok(found.into_iter().collect())
    }

    /// Whether a link at this path would bring files to where protected ones are looked for: it
    /// stands for a folder that an entry names, or for a module without an ending.
    fn may_lead_to_protected(&self, path: &Path) -> bool {
        // A link of HEAD is compared by itself, and so are protected files of a folder in whose
        // place there is one now.
        let holds_protected = || self.protected.keys().any(|known| known.starts_with(path));
        let is_new = self.entry(path).is_none() && !holds_protected();
        let Some(name) = path.to_str().filter(|_| is_new) else {
            return false;
        };
        let mut patterns = self.globs.patterns().iter();
        let below = patterns.any(|pattern| paths::names_folder(pattern, name));
        let as_folder = format!("{name}/__init__.py");
        let is_known = self.entry(Path::new(&as_folder)).is_some();
        let mut folders = self.module_folders.iter();
        below
            || !is_known
                && folders.any(|folder| paths::is_python_module(as_folder.as_bytes(), folder))
    }

    /// Whether a protected entry means this path, and HEAD does not have it.
    fn is_unknown(&self, path: &Path) -> bool {
        let bytes = path.as_os_str().as_bytes();
        let is_module = || {
            let mut folders = self.module_folders.iter();
            let takes_a_name = folders.any(|folder| paths::is_python_module(bytes, folder));
            takes_a_name && self.entry(path).is_none()
        };
        let comes_first = || {
            let name = path.to_str();
            let stands_before = name.is_some_and(|name| self.modules.gives_way_to(name));
            stands_before && self.entry(path).is_none()
        };
        let is_meant = self.globs.is_match(bytes) || is_module() || comes_first();
        is_meant && !paths::is_state_path(bytes) && !self.protected.contains_key(path)
    }

    /// Files that a protected entry means, hidden by a rule that is not in HEAD.
    fn hidden_now(
        &self,
        git: &Git,
        changed: &BTreeSet<PathBuf>,
        ignored: &[PathBuf],
    ) -> Result<BTreeSet<PathBuf>> {
        let mut found = BTreeSet::new();
        if self.globs.is_empty() && self.module_folders.is_empty() {
            return Ok(found);
        }
        let root = git.root();
        for path in self.hidden_by_others(git, changed, ignored)? {
            let is_folder = |meta: std::fs::Metadata| meta.is_dir();
            if root.join(&path).symlink_metadata().is_ok_and(is_folder) {
                file_image::walk(root, &path, &mut |path, kind| {
                    if (kind.is_file() || kind.is_symlink()) && self.is_unknown(&path) {
                        found.insert(path);
                    }
                });
            } else if self.is_unknown(&path) {
                found.insert(path);
            }
        }
        Ok(found)
    }

    /// Those of the ignored paths that are not ignored by the rules of HEAD.
    fn hidden_by_others(
        &self,
        git: &Git,
        changed: &BTreeSet<PathBuf>,
        ignored: &[PathBuf],
    ) -> Result<Vec<PathBuf>> {
        // A rules file may well ignore itself.
        let rules: Vec<&PathBuf> = changed
            .iter()
            .chain(ignored)
            .filter(|path| path.file_name().is_some_and(|name| name == ".gitignore"))
            .collect();
        let state = |path: &&PathBuf| paths::is_state_path(path.as_os_str().as_bytes());
        let hidden: Vec<PathBuf> = ignored
            .iter()
            .filter(|path| !state(path))
            .cloned()
            .collect();
        if rules.is_empty() || hidden.is_empty() {
            return Ok(Vec::new());
        }
        let mut old_rules: BTreeMap<&Path, Vec<Vec<u8>>> = BTreeMap::new();
        for path in rules {
            let before = match path.to_str() {
                Some(name) => git.file_at(&self.head, name)?.unwrap_or_default(),
                None => Vec::new(),
            };
            let now = files::read_regular(&git.root().join(path), 8 << 20).unwrap_or_default();
            let before: Vec<Vec<u8>> = lines(&before).map(<[u8]>::to_vec).collect();
            let mut kept = lines(&now);
            // A rule that is gone may have been the one that showed them.
            if !before.iter().all(|line| kept.any(|other| other == line)) {
                return Ok(hidden);
            }
            old_rules.insert(path.as_path(), before);
        }
        let input = git::join_nul(&hidden);
        let args = ["check-ignore", "--verbose", "-z", "--stdin"];
        let output = git.ask_with(&args, &input)?.unwrap_or_default();
        let fields: Vec<&[u8]> = output.split(|byte| *byte == 0).collect();
        let by_old_rule: HashSet<PathBuf> = fields
            .chunks_exact(4)
            .filter(|record| {
                let source = git::to_path(record[0]);
                old_rules
                    .get(source.as_path())
                    .is_none_or(|lines| lines.iter().any(|line| line == record[2]))
            })
            .map(|record| git::to_path(record[3]))
            .collect();
        Ok(hidden
            .into_iter()
            .filter(|path| !by_old_rule.contains(path))
            .collect())
    }

    /// Files that attributes which changed would write in another way: protected ones, tests, and
    /// those that one of these filter drivers was meant for.
    pub(crate) fn recoded(
        &self,
        git: &Git,
        tests: &TestFiles,
        filters: &[Vec<u8>],
    ) -> Result<Vec<String>> {
        let is_meant = |path: &Path| self.protected.contains_key(path) || tests.is_test(path);
        let tracked = self.tracked.iter().map(|entry| &entry.path);
        let paths: Vec<&PathBuf> = tracked
            .filter(|path| !filters.is_empty() || is_meant(path))
            .collect();
        let before = git.attributes_of(&paths, Some(&self.head))?;
        let now = git.attributes_of(&paths, None)?;
        let differ = paths.iter().zip(before.iter().zip(&now));
        let differ = differ.filter(|(path, (before, now))| {
            filters.contains(&before.filter) && before.filter != now.filter
                || is_meant(path) && before.others != now.others
        });
        Ok(differ
            .map(|(path, _)| escape_path(path.as_os_str().as_bytes()))
            .collect())
    }

    /// Puts back the rules that keep git out of the logs, where anything may lie;
    /// those that were not as they were.
    pub(crate) fn restore_rules(&self, root: &Path, quarantine: &Path) -> Result<Vec<FileChange>> {
        let mut changed = Vec::new();
        for name in [paths::GITIGNORE, paths::GITATTRIBUTES] {
            let path = PathBuf::from(name);
            let image = self.owned.get(&path).unwrap_or(&FileImage::Absent);
            if !image.is_at(root, &path)? {
                image.restore(root, &path, quarantine)?;
                changed.push(FileChange::of(path, false));
            }
        }
        Ok(changed)
    }

    /// The submodules of HEAD.
    pub(crate) fn submodules(&self) -> impl Iterator<Item = &Path> {
        self.links().map(|entry| entry.path.as_path())
    }

    /// The same with their commits.
    pub(crate) fn links(&self) -> impl Iterator<Item = &TreeEntry> {
        let tracked = self.tracked.iter();
        tracked.filter(|entry| entry.mode == git::SUBMODULE)
    }

    /// The files that only grow, with what they contained; `None`: there was none.
    pub(crate) fn notes(&self) -> impl Iterator<Item = (&Path, Option<&[u8]>)> {
        self.notes.iter().map(|(path, image)| match image {
            FileImage::File { bytes, .. } => (path.as_path(), Some(bytes.as_slice())),
            _ => (path.as_path(), None),
        })
    }

    /// Puts back what has changed; what is there now goes to the quarantine.
    pub(crate) fn restore(
        &self,
        root: &Path,
        changes: &[FileChange],
        quarantine: &Path,
    ) -> Result<()> {
        let mut batch = FileBatch::new();
        let mut restored = BTreeSet::new();
        // What stands in the place of a folder goes before files are put back into that.
        let mut changes: Vec<&FileChange> = changes.iter().collect();
        changes.sort_by(|one, other| one.path.cmp(&other.path));
        // Several values of one file may have changed.
        for change in changes.into_iter().filter(|it| restored.insert(&it.path)) {
            let list = if change.protected {
                &self.protected
            } else {
                &self.owned
            };
            let image = match &change.value {
                Some(_) => self.values.image(&change.path),
                None => list.get(&change.path),
            };
            let image = image.unwrap_or(&FileImage::Absent);
            image.restore_with(&mut batch, root, &change.path, quarantine)?;
        }
        Ok(batch.commit()?)
    }

    /// The changes that are not allowed, and those that are: the file that defines the guard may be
    /// made where there is none.
    pub(crate) fn forbidden(
        &self,
        git: &Git,
        run_id: &str,
        command: &[String],
        changes: Vec<FileChange>,
    ) -> Result<(Vec<FileChange>, Vec<FileChange>)> {
        let protected = changes.iter().filter(|change| change.protected);
        let files = protected.filter(|change| change.value.is_none());
        let changed = files.map(|change| change.path.as_path());
        let open = own_guard::open_files(git, (&self.head, run_id), command, changed)?;
        let open: BTreeSet<PathBuf> = open.into_iter().map(Path::to_owned).collect();
        Ok(changes
            .into_iter()
            .partition(|change| change.value.is_some() || !open.contains(&change.path)))
    }
}

/// The lines of a rules file as git reads them.
fn lines(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    bytes
        .split(|byte| *byte == b'\n')
        .map(<[u8]>::trim_ascii_end)
        .filter(|line| !line.is_empty())
}
