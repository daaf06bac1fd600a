//! Repositories that only the runner writes, and repositories for others to play with.
//!
//! An *isolated* repository looks at a folder in which others write: its git folder lies beside
//! that folder, its config is written here and nothing else is read, objects go to where the
//! project's new ones go. A [`BorrowedRepo`] is what is put into the folder as `.git`: it borrows the project's
//! objects, and whatever is done to it counts for nothing.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::borrow::{MAX_BYTES, alternate};
use super::settings::{foreign_filters, isolated_config, quoted, split_settings, value_of};
use super::{Git, join_nul, object_name, split_nul, to_path};
use crate::error::Result;
use crate::fault;
use crate::files;

/// An empty file, to hide what borrowed objects borrow themselves.
const NO_ALTERNATES: &str = "no-alternates";

/// The folder in a borrowed repository's `.git` with one folder for each that has objects of the
/// project: these are mounted there, or found through its `info/alternates`.
const BORROWED: &str = "borrowed";

/// Over any attributes that lie in the folder: the runner's own files are committed byte for byte.
const OWN_ATTRIBUTES: &str =
    "/.runner/** -text !eol -ident !filter !working-tree-encoding -diff -merge\n";

/// Where a folder with objects names others.
const ALTERNATES: &str = "info/alternates";

/// More folders with objects than this are one too many.
const MAX_FOLDERS: usize = 16;

/// What repositories that borrow from a project are made of.
#[derive(Clone, Debug)]
pub(crate) struct BorrowedRepo {
    /// The project's new objects, its own, then those that it borrows itself.
    objects: Vec<PathBuf>,
    /// For the runner's eyes.
    isolated_config: Vec<u8>,
    /// For everybody's.
    config: Vec<u8>,
    packed_refs: Vec<u8>,
    /// The user's filter drivers, none of which runs.
    filters: Vec<Vec<u8>>,
    shallow: Option<Vec<u8>>,
    exclude: Option<Vec<u8>>,
}

impl BorrowedRepo {
    /// Looks at a project.
    pub(crate) fn of(project: &Git) -> Result<Self> {
        let whole = project.listed_settings()?;
        let split = split_settings(&whole, project.root(), project.common_dir());
        let listed = &split.trusted;
        let is_sha256 = value_of(listed, "extensions.objectformat") == Some(b"sha256");
        // Versions are often told by tags.
        let tags = if project
            .loose_names_in("refs/tags/")
            .is_some_and(|it| it.is_empty())
        {
            Vec::new()
        } else {
            let format = "--format=%(objectname) %(refname)";
            project.read(&["for-each-ref", format, "refs/tags/"])?
        };
        let copied =
            |name: &str| files::read_regular(&project.common_dir().join(name), MAX_BYTES).ok();
        let mut config = if is_sha256 {
            b"[core]\n\trepositoryformatversion = 1\n\tbare = false\n[extensions]\n\tobjectFormat = sha256\n".to_vec()
        } else {
            b"[core]\n\trepositoryformatversion = 0\n\tbare = false\n".to_vec()
        };
        config.extend(b"[gc]\n\tauto = 0\n");
        // Settings of the user's that would run programs of theirs, or keep a session from
        // committing.
        config.extend(b"[commit]\n\tgpgSign = false\n[tag]\n\tgpgSign = false\n");
        config.extend(b"[core]\n\thooksPath = .git/hooks\n\tfsmonitor = false\n");
        config.extend(identity(listed));
        Ok(BorrowedRepo {
            objects: object_folders(project),
            isolated_config: isolated_config(listed, is_sha256),
            config,
            packed_refs: tags,
            filters: foreign_filters(&whole),
            shallow: copied("shallow"),
            exclude: copied("info/exclude"),
        })
    }

    /// What is to be mounted inside a folder that has such a repository, so that its objects are
    /// found whatever the mounts hide.
    pub(crate) fn lent(&self, folder: &Path) -> Vec<(PathBuf, PathBuf)> {
        let mut lent = Vec::new();
        for (number, objects) in self.objects.iter().enumerate() {
            let place = borrowed(folder, number);
            let more = place.join(ALTERNATES);
            lent.push((objects.clone(), place));
            if objects.join(ALTERNATES).is_file() {
                // They are all here by themselves. Not /dev/null: nobody may open a device there.
                lent.push((folder.join(".git").join(NO_ALTERNATES), more));
            }
        }
        lent
    }

    /// The filter drivers of the user's that do not run here.
    pub(crate) fn filters(&self) -> &[Vec<u8>] {
        &self.filters
    }

    /// Those of the paths that are meant for a filter driver of the user's, by the attributes in
    /// the index of an isolated repository: without it their content is not what it should be.
    pub(crate) fn filtered(&self, git: &Git, paths: &BTreeSet<PathBuf>) -> Result<Vec<PathBuf>> {
        if self.filters.is_empty() || paths.is_empty() {
            return Ok(Vec::new());
        }
        let input = join_nul(paths);
        let args = ["check-attr", "--cached", "-z", "--stdin", "filter"];
        let answer = git.ask_with(&args, &input)?.unwrap_or_default();
        let fields: Vec<&[u8]> = answer.split(|byte| *byte == 0).collect();
        let meant = fields
            .chunks_exact(3)
            .filter(|record| self.filters.iter().any(|driver| driver == record[2]));
        Ok(meant.map(|record| to_path(record[0])).collect())
    }

    /// All such files that a repository tracks.
    pub(crate) fn filtered_files(&self, git: &Git) -> Result<Vec<PathBuf>> {
        if self.filters.is_empty() {
            return Ok(Vec::new());
        }
        let listed = git.read(&["ls-files", "-z"])?;
        self.filtered(git, &split_nul(&listed).map(to_path).collect())
    }

    fn own_objects(&self) -> Option<PathBuf> {
        self.objects.first().cloned()
    }

    /// The isolated repository over a folder; its git folder is made or brought up to date.
    pub(crate) fn isolate(&self, folder: &Path, git_dir: &Path) -> Result<Git> {
        fault::point("isolate")?;
        files::make_folder(&git_dir.join("refs"))?;
        files::make_folder(&git_dir.join("info"))?;
        if git_dir.join("HEAD").symlink_metadata().is_err() {
            fs::write(git_dir.join("HEAD"), "ref: refs/heads/none\n")?;
        }
        // A git that was killed may have left it; only one runner at a time is here.
        files::remove_if_there(&git_dir.join("index.lock"))?;
        fs::write(git_dir.join("config"), &self.isolated_config)?;
        put(&git_dir.join("shallow"), self.shallow.as_deref())?;
        put(&git_dir.join("info/exclude"), self.exclude.as_deref())?;
        fs::write(git_dir.join("info/attributes"), OWN_ATTRIBUTES)?;
        Ok(Git {
            root: folder.to_owned(),
            git_dir: git_dir.to_owned(),
            common_dir: git_dir.to_owned(),
            objects: self.own_objects(),
            drivers_off: None,
            submodules: RefCell::new(None),
            listed: super::drivers::ListedSettings::default(),
            ref_session: super::refs::RefSessionSlot::default(),
            new_objects: super::new_objects::NewObjectsSlot::default(),
        })
    }

    /// Writes `.git` in a folder anew: one branch (or none) at a commit, and an index that fits it.
    pub(crate) fn write_into(
        &self,
        folder: &Path,
        branch: Option<&str>,
        commit: &str,
        index: &Path,
    ) -> Result<()> {
        let own = folder.join(".git");
        fault::point("own-git")?;
        files::remove_if_there(&own)?;
        fault::point("own-git-removed")?;
        for name in [
            "objects/info",
            "objects/pack",
            "refs/heads",
            "refs/tags",
            "info",
        ] {
            fs::create_dir_all(own.join(name))?;
        }
        let mut places = String::new();
        for (number, objects) in self.objects.iter().enumerate() {
            let place = borrowed(folder, number);
            fs::create_dir_all(place.join("info"))?;
            let line = alternate(objects.as_os_str().as_encoded_bytes());
            fs::write(place.join(ALTERNATES), line)?;
            // Writing to a String cannot fail.
            let _ = writeln!(places, "../{BORROWED}/{number}");
        }
        fs::write(own.join("objects").join(ALTERNATES), places)?;
        fs::write(own.join(NO_ALTERNATES), "")?;
        let head = match branch {
            Some(branch) => {
                let path = own.join("refs/heads").join(branch);
                if let Some(above) = path.parent() {
                    fs::create_dir_all(above)?;
                }
                fs::write(path, format!("{commit}\n"))?;
                format!("ref: refs/heads/{branch}\n")
            }
            None => format!("{commit}\n"),
        };
        fs::write(own.join("HEAD"), head)?;
        fs::write(own.join("config"), &self.config)?;
        fs::write(own.join("packed-refs"), &self.packed_refs)?;
        put(&own.join("shallow"), self.shallow.as_deref())?;
        put(&own.join("info/exclude"), self.exclude.as_deref())?;
        fs::copy(index, own.join("index")).map_err(|error| files::at(index, error))?;
        fault::point("own-git-done")?;
        Ok(())
    }
}

impl Git {
    /// Says in an isolated repository what is checked out.
    pub(crate) fn set_head(&self, commit: &str) -> Result<()> {
        Ok(files::write_whole(
            &self.git_dir.join("HEAD"),
            format!("{commit}\n").as_bytes(),
        )?)
    }

    /// The same, asked.
    pub(crate) fn detached_head(&self) -> Option<String> {
        let bytes = files::read_regular(&self.git_dir.join("HEAD"), 4096).ok()?;
        object_name(&bytes)
    }
}

/// The place that stands for one of the folders with objects.
fn borrowed(folder: &Path, number: usize) -> PathBuf {
    folder.join(".git").join(BORROWED).join(number.to_string())
}

/// Where the objects of a project are: new ones, its own, and those that it borrows.
fn object_folders(project: &Git) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = Vec::new();
    let own = project.common_dir().join("objects");
    let mut waiting = vec![project.new_objects.folder().unwrap_or(own)];
    while let Some(folder) = waiting.pop() {
        let folder = folder.canonicalize().unwrap_or(folder);
        if found.contains(&folder) || found.len() >= MAX_FOLDERS {
            continue;
        }
        let listed = files::read_regular(&folder.join(ALTERNATES), MAX_BYTES).unwrap_or_default();
        let lines = listed
            .split(|byte| *byte == b'\n')
            .filter(|line| !line.is_empty() && !line.starts_with(b"#") && !line.starts_with(b"\""));
        waiting.extend(lines.map(|line| folder.join(to_path(line))));
        found.push(folder);
    }
    found
}

/// Who a commit is by, as far as the project knows.
fn identity(listed: &[u8]) -> Vec<u8> {
    let mut text = b"[user]\n".to_vec();
    for (name, nobody) in [("name", "runner"), ("email", "runner@localhost")] {
        let value = value_of(listed, &format!("user.{name}")).unwrap_or(nobody.as_bytes());
        text.push(b'\t');
        text.extend(name.as_bytes());
        text.extend(b" = ");
        text.extend(quoted(value));
        text.push(b'\n');
    }
    text
}

/// Makes a file these bytes, or nothing.
fn put(path: &Path, bytes: Option<&[u8]>) -> io::Result<()> {
    match bytes {
        Some(bytes) => fs::write(path, bytes),
        None => files::remove_if_there(path),
    }
}
