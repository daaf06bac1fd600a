//! What setup made in a checkout that outlives one verdict: kept as a copy, so that nothing that
//! an earlier guard ran can have changed it for a later one.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::include::copy_file;
use crate::fault;
use crate::files;
use crate::step::file_image;

/// The copies, below the folder that keeps them.
const COPIES: &str = "files";

/// What was last seen of the made files.
const SEEN: &str = "seen.json";

/// The largest such record.
const MAX_BYTES: u64 = 256 << 20;

/// What tells whether anybody wrote to a file: the time of change of its inode cannot be set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct FileMark(u64, u64, u32, i64, i64, i64, i64);

impl FileMark {
    fn of(meta: &Metadata) -> Self {
        let changed = if meta.is_dir() {
            // Written to whenever something in it comes or goes, which is seen by itself.
            (0, 0, 0, 0)
        } else {
            (
                meta.mtime(),
                meta.mtime_nsec(),
                meta.ctime(),
                meta.ctime_nsec(),
            )
        };
        let size = if meta.is_dir() { 0 } else { meta.size() };
        FileMark(
            meta.ino(),
            size,
            meta.mode(),
            changed.0,
            changed.1,
            changed.2,
            changed.3,
        )
    }
}

/// The files and folders that setup made, from the root of the checkout.
#[derive(Debug, Default, Serialize, Deserialize)]
struct SeenFiles {
    marks: Vec<SeenFile>,
}

#[derive(Debug, Serialize, Deserialize)]
struct SeenFile {
    #[serde(with = "file_image::path_bytes")]
    path: PathBuf,
    mark: FileMark,
}

impl SeenFiles {
    fn of(found: Vec<(PathBuf, Metadata)>) -> Self {
        let marks = found.into_iter().map(|(path, meta)| SeenFile {
            path,
            mark: FileMark::of(&meta),
        });
        SeenFiles {
            marks: marks.collect(),
        }
    }

    fn by_path(self) -> BTreeMap<PathBuf, FileMark> {
        let marks = self.marks.into_iter();
        marks.map(|it| (it.path, it.mark)).collect()
    }
}

/// The made files of one checkout.
#[derive(Debug)]
pub(super) struct MadeFiles<'a> {
    folder: &'a Path,
    kept: &'a Path,
}

impl<'a> MadeFiles<'a> {
    /// Those in `folder`, kept in another one.
    pub(super) fn new(folder: &'a Path, kept: &'a Path) -> Self {
        MadeFiles { folder, kept }
    }

    /// Forgets all copies.
    pub(super) fn forget(&self) -> io::Result<()> {
        for name in [SEEN, COPIES] {
            file_image::remove_closed(&self.kept.join(name))?;
        }
        Ok(())
    }

    /// Keeps what lies at these paths, and below them.
    pub(super) fn keep(&self, paths: &[String]) -> io::Result<()> {
        self.forget()?;
        fault::point("keep-made")?;
        let found = self.listed(paths)?;
        for (path, meta) in &found {
            Self::copy(self.folder, &self.kept.join(COPIES), path, meta)?;
        }
        self.save(&SeenFiles::of(found))
    }

    /// Whether anything at these paths is not what it was.
    pub(super) fn differs(&self, paths: &[String]) -> io::Result<bool> {
        let is_below = |path: &PathBuf| paths.iter().any(|it| path.starts_with(it));
        let mut seen = self.load()?.by_path();
        seen.retain(|path, _| is_below(path));
        let now = self.listed(paths)?;
        let same = |(path, meta): &(PathBuf, Metadata)| seen.get(path) == Some(&FileMark::of(meta));
        Ok(now.len() != seen.len() || !now.iter().all(same))
    }

    /// Makes everything at these paths what it was.
    pub(super) fn restore(&self, paths: &[String]) -> io::Result<()> {
        let seen = self.load()?.by_path();
        let mut left: BTreeSet<&PathBuf> = seen.keys().collect();
        let mut gone: Vec<PathBuf> = Vec::new();
        let mut is_changed = false;
        for (path, meta) in self.listed(paths)? {
            let same = seen.get(&path) == Some(&FileMark::of(&meta));
            if same {
                left.remove(&path);
            } else {
                is_changed = true;
                gone.push(path);
            }
        }
        if !is_changed && left.is_empty() {
            return Ok(());
        }
        // Deepest first; folders that stay are not empty.
        for path in gone.iter().rev() {
            let full = self.folder.join(path);
            let meta = full.symlink_metadata();
            if meta.is_ok_and(|meta| meta.is_dir()) && seen.contains_key(path) {
                continue;
            }
            files::remove_if_there(&full)?;
        }
        fault::point("restore-made")?;
        let copies = self.kept.join(COPIES);
        for path in left {
            // A commit may have a link, or a file, where there was a folder: nothing is brought
            // through it, for who knows where it leads.
            if is_blocked(self.folder, path) {
                continue;
            }
            let meta = copies.join(path).symlink_metadata()?;
            Self::copy(&copies, self.folder, path, &meta)?;
        }
        self.save(&SeenFiles::of(self.listed(paths)?))
    }

    /// Makes every folder above these paths a real one: what is there instead goes.
    pub(super) fn make_way(&self, paths: &[String]) -> io::Result<()> {
        for path in paths {
            let mut folder = self.folder.to_owned();
            for part in Path::new(path)
                .parent()
                .into_iter()
                .flat_map(Path::components)
            {
                folder.push(part);
                let meta = folder.symlink_metadata();
                if meta.is_ok_and(|meta| !meta.is_dir()) {
                    files::remove_if_there(&folder)?;
                }
            }
        }
        Ok(())
    }

    /// Everything at and below these paths, parents first.
    fn listed(&self, paths: &[String]) -> io::Result<Vec<(PathBuf, Metadata)>> {
        let mut found = Vec::new();
        let mut waiting: Vec<PathBuf> = paths.iter().rev().map(PathBuf::from).collect();
        while let Some(path) = waiting.pop() {
            let full = self.folder.join(&path);
            if !file_image::parents_are_folders(self.folder, &path) {
                continue;
            }
            let Ok(mut meta) = full.symlink_metadata() else {
                continue;
            };
            if meta.is_dir() {
                if meta.mode() & 0o500 != 0o500 {
                    let _ = file_image::make_readable(&full);
                    meta = full.symlink_metadata()?;
                }
                for entry in fs::read_dir(&full).map_err(|error| files::at(&full, error))? {
                    waiting.push(path.join(entry?.file_name()));
                }
            }
            found.push((path, meta));
        }
        Ok(found)
    }

    fn copy(from: &Path, to: &Path, path: &Path, meta: &Metadata) -> io::Result<()> {
        let (source, target) = (from.join(path), to.join(path));
        if let Some(folder) = target.parent() {
            fs::create_dir_all(folder)?;
        }
        if meta.is_dir() {
            if !target.is_dir() {
                fs::create_dir_all(&target)?;
            }
            let mode = meta.permissions().mode() & 0o777 | 0o700;
            return fs::set_permissions(&target, fs::Permissions::from_mode(mode));
        }
        files::remove_if_there(&target)?;
        if meta.is_symlink() {
            return symlink(fs::read_link(&source)?, &target);
        }
        if meta.is_file() {
            copy_file(&source, meta, &target).map_err(|error| files::at(&source, error))?;
        }
        Ok(())
    }

    fn load(&self) -> io::Result<SeenFiles> {
        match files::read_regular(&self.kept.join(SEEN), MAX_BYTES) {
            Ok(bytes) => Ok(serde_json::from_slice(&bytes)?),
            Err(files::ReadError::Absent) => Ok(SeenFiles::default()),
            Err(error) => Err(io::Error::other(error.to_string())),
        }
    }

    fn save(&self, seen: &SeenFiles) -> io::Result<()> {
        files::write_whole(&self.kept.join(SEEN), &serde_json::to_vec(seen)?)
    }
}

/// Whether anything but a folder lies above a path.
fn is_blocked(root: &Path, path: &Path) -> bool {
    let mut folder = root.to_owned();
    let above = path.parent().into_iter().flat_map(Path::components);
    above.into_iter().any(|part| {
        folder.push(part);
        let meta = folder.symlink_metadata();
        meta.is_ok_and(|meta| !meta.is_dir())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_a_guard_did_to_it_is_undone() {
        let temp = tempfile::tempdir().unwrap();
        let (folder, kept) = (temp.path().join("checkout"), temp.path().join("kept"));
        let module = folder.join("node_modules/tool");
        fs::create_dir_all(&module).unwrap();
        fs::create_dir_all(&kept).unwrap();
        fs::write(module.join("index.js"), "real").unwrap();
        symlink("tool", folder.join("node_modules/alias")).unwrap();
        let paths = ["node_modules".to_owned()];
        let made = MadeFiles::new(&folder, &kept);
        made.keep(&paths).unwrap();
        made.restore(&paths).unwrap();

        // The same size and the same time.
        let time = fs::metadata(module.join("index.js"))
            .unwrap()
            .modified()
            .unwrap();
        fs::write(module.join("index.js"), "fake").unwrap();
        let file = fs::File::options()
            .write(true)
            .open(module.join("index.js"))
            .unwrap();
        file.set_modified(time).unwrap();
        fs::write(module.join("planted.js"), "x").unwrap();
        fs::remove_file(folder.join("node_modules/alias")).unwrap();
        fs::create_dir_all(folder.join("node_modules/more/deep")).unwrap();
        made.restore(&paths).unwrap();
        assert_eq!(fs::read_to_string(module.join("index.js")).unwrap(), "real");
        assert!(!module.join("planted.js").exists());
        assert!(!folder.join("node_modules/more").exists());
        assert_eq!(
            fs::read_link(folder.join("node_modules/alias")).unwrap(),
            Path::new("tool")
        );

        fs::remove_dir_all(folder.join("node_modules")).unwrap();
        made.restore(&paths).unwrap();
        assert_eq!(fs::read_to_string(module.join("index.js")).unwrap(), "real");
    }

    #[test]
    fn nothing_is_looked_at_or_written_through_a_link() {
        let temp = tempfile::tempdir().unwrap();
        let place = |name: &str| temp.path().join(name);
        let (folder, kept) = (place("checkout"), place("kept"));
        fs::create_dir_all(folder.join("app/made")).unwrap();
        fs::create_dir_all(&kept).unwrap();
        fs::create_dir_all(place("other/made/deep")).unwrap();
        fs::write(folder.join("app/made/f"), "ours").unwrap();
        fs::write(place("other/made/deep/mine"), "mine").unwrap();
        let paths = ["app/made".to_owned()];
        let made = MadeFiles::new(&folder, &kept);
        made.keep(&paths).unwrap();
        fs::remove_dir_all(folder.join("app")).unwrap();
        symlink(place("other"), folder.join("app")).unwrap();
        assert!(made.differs(&paths).unwrap());
        made.restore(&paths).unwrap();
        let mine = fs::read_to_string(place("other/made/deep/mine")).unwrap();
        assert_eq!(mine, "mine");
        assert!(!place("other/made/f").exists());

        made.make_way(&paths).unwrap();
        assert!(!folder.join("app").is_symlink());
        let seen = SeenFiles::of(Vec::new());
        made.save(&seen).unwrap();
        assert!(place("other/made/deep/mine").exists());
    }

    #[test]
    fn names_that_are_no_text() {
        use std::os::unix::ffi::OsStrExt as _;
        let temp = tempfile::tempdir().unwrap();
        let (folder, kept) = (temp.path().join("checkout"), temp.path().join("kept"));
        let odd = folder
            .join("made")
            .join(std::ffi::OsStr::from_bytes(b"caf\xe9"));
        fs::create_dir_all(folder.join("made")).unwrap();
        fs::create_dir_all(&kept).unwrap();
        fs::write(&odd, "x").unwrap();
        let made = MadeFiles::new(&folder, &kept);
        let paths = ["made".to_owned()];
        made.keep(&paths).unwrap();
        made.restore(&paths).unwrap();
        assert!(odd.exists());
        fs::remove_file(&odd).unwrap();
        made.restore(&paths).unwrap();
        assert!(odd.exists());
    }
}
