//! Where the private folders of a project lie: outside of it, in one folder that belongs to the
//! project's id and that nobody else can look into.

use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use runner_core::config::Config;
use runner_core::digest::sha256_hex;
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};

use super::known_roots;
use crate::checkout::project_paths::ProjectPaths;
use crate::error::{Error, ErrorCode, Result};
use crate::files;
use crate::git::Git;
use crate::step::file_image;

/// What the runner keeps in the git folder that all work trees share.
const FOLDER: &str = "runner";
/// The file in it that names the project.
const ID_FILE: &str = "project.json";
/// Hexadecimal digits of an id.
const ID_LENGTH: usize = 32;
/// The largest such file.
const MAX_ID_BYTES: u64 = 64 << 10;
/// Below the folder for the state of programs.
pub(crate) const STATE_FOLDER: &str = "runner";

/// The private folder of a project.
#[derive(Clone, Debug)]
pub(crate) struct WorkspaceRoot {
    folder: PathBuf,
}

/// Who a repository is, and where it was when that was written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct ProjectIdentity {
    id: String,
    #[serde(with = "file_image::path_bytes")]
    path: PathBuf,
}

/// What a recorded identity says about the repository that holds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum IdentityFinding {
    /// It is that one.
    Same,
    /// It is that one, somewhere else.
    Moved,
    /// It is a copy: the one that was named is still where it was.
    Copied,
}

fn compare(recorded: &Path, here: &Path, original_is_there: bool) -> IdentityFinding {
    match (recorded == here, original_is_there) {
        (true, _) => IdentityFinding::Same,
        (false, false) => IdentityFinding::Moved,
        (false, true) => IdentityFinding::Copied,
    }
}

pub(super) fn is_id(text: &str) -> bool {
    text.len() == ID_LENGTH
        && text
            .bytes()
            .all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
}

impl WorkspaceRoot {
    /// The folder of the project that a repository belongs to, made where there is none.
    pub(crate) fn of(git: &Git, config: &Config) -> Result<Self> {
        let all = Self::of_all_projects(config, git.root())?;
        refuse_inside(&all, git.root())?;
        let project = git
            .root()
            .canonicalize()
            .map_err(|error| files::at(git.root(), error))?;
        files::make_folder(&all)?;
        let all = all.canonicalize().map_err(|error| files::at(&all, error))?;
        refuse_inside(&all, &project)?;
        refuse_inside(&all, git.common_dir())?;
        let identity = project_identity(git.common_dir(), &all)?;
        let folder = all.join(&identity.id);
        make_private(&folder)?;
        known_roots::remember(&all);
        // So that `runner clean --all` can tell whose it is.
        let is_named = || read_identity(&folder.join(ID_FILE)).as_ref() == Some(&identity);
        if !is_named() {
            // Processes that start together do this together.
            let lock = super::open_lock(&folder.join(super::LOCK))?;
            flock(&lock, FlockOperation::LockExclusive).map_err(io::Error::from)?;
            if !is_named() {
                write_identity(&folder.join(ID_FILE), &identity)?;
            }
        }
        Ok(WorkspaceRoot { folder })
    }

    /// The folder that holds those of all projects.
    pub(crate) fn of_all_projects(config: &Config, project: &Path) -> Result<PathBuf> {
        if !config.workspace.root.is_empty() {
            let home = std::env::var_os("HOME").map(PathBuf::from);
            return runner_sandbox::expand_home(&config.workspace.root, home.as_deref(), project)
                .map_err(|message| {
                    Error::new(ErrorCode::Config, format!("[workspace] root: {message}"))
                });
        }
        Self::of_user()
    }

    /// The same where no config names another one: what all projects of this user share.
    pub(crate) fn of_user() -> Result<PathBuf> {
        let home = std::env::var_os("HOME").map(PathBuf::from);
        let named = std::env::var_os("XDG_STATE_HOME").map(PathBuf::from);
        let state = named
            .filter(|path| path.is_absolute())
            .or_else(|| Some(home.filter(|path| path.is_absolute())?.join(".local/state")));
        let state = state.ok_or_else(|| {
            Error::new(
                ErrorCode::Config,
                "cannot tell where private folders belong: neither XDG_STATE_HOME nor HOME is an absolute path",
            )
            .hint("set HOME, or name a folder in [workspace] root")
        })?;
        Ok(state.join(STATE_FOLDER))
    }

    /// Where it is.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }
}

fn refuse_inside(all: &Path, project: &Path) -> Result<()> {
    if !all.starts_with(project) {
        return Ok(());
    }
    let message = format!(
        "private folders must lie outside the project: {} is inside {}",
        all.display(),
        project.display()
    );
    Err(Error::new(ErrorCode::Config, message)
        .hint("name another folder in [workspace] root, or set XDG_STATE_HOME to one outside"))
}

/// The private folders of projects below the one that holds them all.
pub(super) fn project_folders(all: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(all).into_iter().flatten().flatten();
    let mut folders: Vec<PathBuf> = entries
        .filter(|entry| entry.file_name().to_str().is_some_and(is_id))
        .map(|entry| entry.path())
        .filter(|folder| is_project_folder(folder))
        .collect();
    folders.sort();
    folders
}

/// Whether this is a folder that was made for a project, by this user.
fn is_project_folder(folder: &Path) -> bool {
    let is_real = folder
        .symlink_metadata()
        .is_ok_and(|meta| super::is_own_folder(&meta));
    let named = read_identity(&folder.join(ID_FILE));
    is_real && named.is_some_and(|owner| folder.ends_with(&owner.id))
}

/// The git folders of all projects that have a folder below the one that holds them all.
pub(super) fn known_git_folders(all: &Path) -> Vec<PathBuf> {
    let folders = project_folders(all).into_iter();
    folders
        .filter_map(|folder| Some(read_identity(&folder.join(ID_FILE))?.path))
        .collect()
}

/// Where the project of a repository lies, and the one that its private folder belongs to: the
/// repository of a task run is not the user's.
pub(super) fn project_paths(git: &Git, private: &Path) -> ProjectPaths {
    let mut common_dirs = vec![git.common_dir().to_owned()];
    let owner = read_identity(&private.join(ID_FILE)).map(|owner| owner.path);
    common_dirs.extend(owner.filter(|owner| *owner != common_dirs[0]));
    ProjectPaths::of(git.root(), &common_dirs)
}

/// Whether the repository that a private folder belongs to is not there any more.
pub(super) fn project_is_gone(folder: &Path) -> bool {
    let owner = read_identity(&folder.join(ID_FILE));
    owner.is_some_and(|owner| {
        let there = read_identity(&owner.path.join(FOLDER).join(ID_FILE));
        there.is_none_or(|there| there.id != owner.id)
    })
}

/// The repository that a private folder belongs to, if it is there.
pub(super) fn project_of(folder: &Path) -> Option<Git> {
    let owner = read_identity(&folder.join(ID_FILE))?;
    let git_dir = owner.path;
    let root = if git_dir.ends_with(".git") {
        git_dir.parent()?.to_owned()
    } else {
        git_dir
    };
    Git::open(&root).ok()
}

/// Who the repository with this git folder is; written at first use.
fn project_identity(common_dir: &Path, all: &Path) -> Result<ProjectIdentity> {
    let here = common_dir
        .canonicalize()
        .map_err(|error| files::at(common_dir, error))?;
    let folder = here.join(FOLDER);
    let path = folder.join(ID_FILE);
    if let Some(known) = read_identity(&path)
        && known.path == here
        && !is_of_another(&known, &here, all)
    {
        return Ok(known);
    }
    super::make_real_folder(&folder)?;
    let lock = super::open_lock(&folder.join("lock"))?;
    flock(&lock, FlockOperation::LockExclusive).map_err(io::Error::from)?;
    let known = read_identity(&path);
    let finding = known.as_ref().map(|known| {
        let original = read_identity(&known.path.join(FOLDER).join(ID_FILE));
        let is_there = original.is_some_and(|it| it.id == known.id);
        match compare(&known.path, &here, is_there) {
            _ if is_of_another(known, &here, all) => IdentityFinding::Copied,
            finding => finding,
        }
    });
    let id = match (known, finding) {
        (Some(known), Some(IdentityFinding::Same)) => return Ok(known),
        (Some(known), Some(IdentityFinding::Moved)) => known.id,
        _ => new_id()?,
    };
    let identity = ProjectIdentity { id, path: here };
    write_identity(&path, &identity)?;
    Ok(identity)
}

/// Whether the private folder of this id belongs to another repository that is still there: two
/// copies of one that is gone would both look moved.
fn is_of_another(known: &ProjectIdentity, here: &Path, all: &Path) -> bool {
    let owner = read_identity(&all.join(&known.id).join(ID_FILE));
    owner
        .filter(|owner| owner.path != here)
        .is_some_and(|owner| {
            let there = read_identity(&owner.path.join(FOLDER).join(ID_FILE));
            there.is_some_and(|there| there.id == known.id && there.path == owner.path)
        })
}

fn write_identity(path: &Path, identity: &ProjectIdentity) -> Result<()> {
    // Text and a path as bytes: there is nothing that could fail.
    let text = serde_json::to_vec(identity).unwrap_or_default();
    Ok(files::write_shared(path, &text)?)
}

/// What lies there, if it is a name that could have been written here.
fn read_identity(path: &Path) -> Option<ProjectIdentity> {
    let bytes = files::read_regular(path, MAX_ID_BYTES).ok()?;
    let known: ProjectIdentity = serde_json::from_slice(&bytes).ok()?;
    is_id(&known.id).then_some(known)
}

fn new_id() -> Result<String> {
    let bytes: [u8; 16] = files::random_bytes()?;
    Ok(sha256_hex(&bytes)[..ID_LENGTH].to_owned())
}

/// Makes a folder that only its owner can look into.
fn make_private(folder: &Path) -> Result<()> {
    match DirBuilder::new().mode(0o700).create(folder) {
        Ok(()) => return Ok(()),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        Err(error) => return Err(files::at(folder, error).into()),
    }
    let meta = folder
        .symlink_metadata()
        .map_err(|error| files::at(folder, error))?;
    if !super::is_own_folder(&meta) {
        return Err(Error::new(
            ErrorCode::Layout,
            format!("{} is not a folder of yours", folder.display()),
        )
        .hint("remove it, or name another folder in [workspace] root"));
    }
    if meta.permissions().mode() & 0o077 != 0 {
        std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o700))
            .map_err(|error| files::at(folder, error))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn project_id(common_dir: &Path) -> Result<String> {
        project_identity(common_dir, Path::new("/nowhere")).map(|identity| identity.id)
    }

    #[test]
    fn moved_and_copied_repositories_are_told_apart() {
        let (a, b) = (Path::new("/a/.git"), Path::new("/b/.git"));
        assert_eq!(compare(a, a, true), IdentityFinding::Same);
        assert_eq!(compare(a, b, false), IdentityFinding::Moved);
        assert_eq!(compare(a, b, true), IdentityFinding::Copied);
    }

    #[test]
    fn an_id_stays_moves_along_and_is_not_copied() {
        let folder = tempfile::tempdir().unwrap();
        let first = folder.path().join("first");
        std::fs::create_dir(&first).unwrap();
        let id = project_id(&first).unwrap();
        assert!(is_id(&id), "{id}");
        assert_eq!(project_id(&first).unwrap(), id);

        let moved = folder.path().join("moved");
        std::fs::rename(&first, &moved).unwrap();
        assert_eq!(project_id(&moved).unwrap(), id);

        let copy = folder.path().join("copy");
        files::copy_files(&moved, &copy, 1 << 20).unwrap();
        let other = project_id(&copy).unwrap();
        assert_ne!(other, id);
        assert_eq!(project_id(&copy).unwrap(), other);
        assert_eq!(project_id(&moved).unwrap(), id);
    }

    #[test]
    fn what_is_no_id_is_not_used_as_a_path() {
        let folder = tempfile::tempdir().unwrap();
        let here = folder.path().canonicalize().unwrap();
        std::fs::create_dir(here.join(FOLDER)).unwrap();
        let planted = ProjectIdentity {
            id: "../../../../etc".to_owned(),
            path: here.clone(),
        };
        let text = serde_json::to_vec(&planted).unwrap();
        std::fs::write(here.join(FOLDER).join(ID_FILE), text).unwrap();
        assert!(is_id(&project_id(&here).unwrap()));
    }
}
