//! Objects that no reference leads to yet, in a folder of their own.
//!
//! Whoever runs `git gc --prune=now` in the project removes what nothing leads to, at any moment,
//! and with it what is about to be committed. So new objects are not written into the project. They
//! get there as one pack that git is told to keep, with the change of references that leads to
//! them; only then may git do with the pack what it likes.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::fs::{FlockOperation, flock};

use super::borrow::alternate;
use super::{Git, object_name};
use crate::error::Result;
use crate::fault;
use crate::files;

/// What `.keep` files of the runner say. They are locked for as long as they are needed: one that is
/// not was left by a runner that was killed.
const KEPT_BY: &[u8] = b"runner\n";

/// So many packs of one size become one of the next.
const MAX_PACKS: usize = 6;

/// The files in the folder that list what was brought into the project, by size: a pack in each
/// line, and its objects.
const PACKS: &str = "packs.";

/// The longest such list; a longer one is forgotten, and git's own clean-up does the rest.
const MAX_LIST: u64 = 64 << 20;

/// Where new objects are written to, if not into the project.
#[derive(Clone, Debug, Default)]
pub(super) struct NewObjectsSlot(Arc<Mutex<Option<Arc<NewObjects>>>>);

/// A folder for new objects.
#[derive(Debug)]
struct NewObjects {
    folder: PathBuf,
    /// Removed with this value.
    _temp: Option<tempfile::TempDir>,
}

/// New objects have a folder of their own until this is dropped.
#[derive(Debug)]
#[must_use = "new objects are written into the project again when this is dropped"]
pub(crate) struct NewObjectsHold(Option<NewObjectsSlot>);

impl Drop for NewObjectsHold {
    fn drop(&mut self) {
        if let Some(slot) = &self.0 {
            slot.set(None);
        }
    }
}

impl NewObjectsSlot {
    fn get(&self) -> Option<Arc<NewObjects>> {
        let held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        held.clone()
    }

    fn set(&self, objects: Option<Arc<NewObjects>>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = objects;
    }

    /// The folder, if there is one.
    pub(super) fn folder(&self) -> Option<PathBuf> {
        self.get().map(|it| it.folder.clone())
    }
}

/// A pack in the project that git may not touch yet.
#[derive(Debug)]
pub(super) struct KeptPack {
    name: String,
    objects: BTreeSet<String>,
    keep: PathBuf,
    _lock: File,
}

impl Git {
    /// From now on new objects are written to this folder, which stays when this value is dropped.
    /// Every copy of this value does so, too. Whether they were written elsewhere before.
    pub(crate) fn hold_new_objects(&self, folder: &Path) -> Result<bool> {
        if self.new_objects.folder().as_deref() == Some(folder) {
            return Ok(false);
        }
        self.prepare_folder(folder)?;
        self.remove_old_keeps();
        self.new_objects.set(Some(Arc::new(NewObjects {
            folder: folder.to_owned(),
            _temp: None,
        })));
        Ok(true)
    }

    /// The same for as long as what is returned lives, in a folder that goes with it. Where new
    /// objects have a folder already, they stay there.
    pub(crate) fn hold_new_objects_for_now(&self) -> Result<NewObjectsHold> {
        if self.new_objects.folder().is_some() {
            return Ok(NewObjectsHold(None));
        }
        let temp = tempfile::Builder::new()
            .prefix("runner-objects-")
            .tempdir()?;
        let folder = temp.path().to_owned();
        self.prepare_folder(&folder)?;
        self.remove_old_keeps();
        self.new_objects.set(Some(Arc::new(NewObjects {
            folder,
            _temp: Some(temp),
        })));
        Ok(NewObjectsHold(Some(self.new_objects.clone())))
    }

    /// Sees what another handle of the same repository has written, too.
    #[must_use]
    pub(crate) fn with_new_objects_of(mut self, other: &Git) -> Self {
        self.new_objects = other.new_objects.clone();
        self
    }

    /// New objects are written into the project again.
    pub(crate) fn forget_new_objects(&self) {
        self.new_objects.set(None);
    }

    fn prepare_folder(&self, folder: &Path) -> Result<()> {
        files::make_folder(&folder.join("info"))?;
        files::make_folder(&folder.join("pack"))?;
        let objects = self.project_objects();
        let objects = objects.canonicalize().unwrap_or(objects);
        let line = alternate(objects.as_os_str().as_bytes());
        let path = folder.join("info/alternates");
        if files::read_regular(&path, MAX_LIST).ok().as_ref() != Some(&line) {
            files::write_whole(&path, &line)?;
        }
        Ok(())
    }

    fn project_objects(&self) -> PathBuf {
        self.common_dir.join("objects")
    }

    /// Brings every new object into the project, in a pack that git keeps.
    pub(super) fn bring_new_objects(&self) -> Result<Option<KeptPack>> {
        let Some(new) = self.new_objects.get() else {
            return Ok(None);
        };
        let objects = loose_objects(&new.folder)?;
        if objects.is_empty() {
            return Ok(None);
        }
        let (name, made) = self.pack(&new.folder, &objects)?;
        let there = self.project_objects().join("pack");
        files::make_folder(&there)?;
        let keep = there.join(format!("pack-{name}.keep"));
        fault::point("pack-keep")?;
        let lock = write_keep(&keep).map_err(|error| files::at(&keep, error))?;
        place(&made, &there, &name)?;
        Ok(Some(KeptPack {
            name,
            objects,
            keep,
            _lock: lock,
        }))
    }

    /// References do not lead there after all.
    pub(super) fn give_up(pack: &KeptPack) {
        let _ = fs::remove_file(&pack.keep);
    }

    /// References lead to what a pack has: git may do with it what it likes.
    pub(super) fn release(&self, pack: KeptPack) -> Result<()> {
        fault::point("pack-release")?;
        files::remove_if_there(&pack.keep)?;
        let Some(new) = self.new_objects.get() else {
            return Ok(());
        };
        for name in &pack.objects {
            files::remove_if_there(&loose_path(&new.folder, name))?;
        }
        // A list that cannot be written costs nothing but a clean-up by git.
        let _ = self.note_pack(&new.folder, pack);
        Ok(())
    }

    /// Takes note of a pack. Some of a size become one of the next size: git looks into every pack
    /// there is.
    fn note_pack(&self, folder: &Path, pack: KeptPack) -> Result<()> {
        let there = self.project_objects().join("pack");
        let mut new = (pack.name, pack.objects);
        for size in 0.. {
            let path = folder.join(format!("{PACKS}{size}"));
            let text = files::read_regular(&path, MAX_LIST).unwrap_or_default();
            let mut packs = parse_list(&String::from_utf8_lossy(&text));
            packs.push(new);
            if packs.len() < MAX_PACKS {
                fs::write(&path, list_text(&packs))?;
                break;
            }
            // Git may have made another one of them all.
            packs.retain(|(name, _)| is_ours(&there, name));
            fs::write(&path, "")?;
            new = self.join_packs(folder, &packs)?;
        }
        Ok(())
    }

    /// One pack instead of some.
    fn join_packs(&self, folder: &Path, packs: &[ListedPack]) -> Result<ListedPack> {
        let objects: BTreeSet<String> = packs.iter().flat_map(|(_, it)| it).cloned().collect();
        let there = self.project_objects().join("pack");
        let (joined, made) = self.pack(folder, &objects)?;
        place(&made, &there, &joined)?;
        for (name, _) in packs.iter().filter(|(name, _)| *name != joined) {
            // Git finds what it had in the other one.
            for ending in ["idx", "pack"] {
                let _ = fs::remove_file(there.join(format!("pack-{name}.{ending}")));
            }
        }
        Ok((joined, objects))
    }

    /// A pack of these objects in the folder for new ones; its name, and where it is without its
    /// endings.
    fn pack(&self, folder: &Path, objects: &BTreeSet<String>) -> Result<(String, PathBuf)> {
        let mut names = String::with_capacity(objects.len() * 41);
        for name in objects {
            names.push_str(name);
            names.push('\n');
        }
        let made = folder.join("pack/new");
        let mut command = self.command(super::GitAccess::Write);
        command.args(["-c", "pack.writeReverseIndex=false", "-c", "pack.threads=1"]);
        command.args(["pack-objects", "--quiet", "--window=0"]);
        command.arg(&made);
        fault::point("git")?;
        let said = super::finish(&command, Some(names.as_bytes()))?;
        fault::point("git-done")?;
        let name = String::from_utf8_lossy(said.trim_ascii_end()).into_owned();
        let made = folder.join(format!("pack/new-{name}"));
        Ok((name, made))
    }

    /// Removes what killed runners have told git to keep.
    fn remove_old_keeps(&self) {
        let folder = self.project_objects().join("pack");
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        for entry in entries {
            let path = entry.path();
            if path.extension().is_some_and(|it| it == "keep")
                && files::read_regular(&path, 64).is_ok_and(|it| it == KEPT_BY)
                && is_nobodys(&path)
            {
                let _ = fs::remove_file(&path);
            }
        }
    }
}

/// A pack and its objects.
type ListedPack = (String, BTreeSet<String>);

fn parse_list(text: &str) -> Vec<ListedPack> {
    let lines = text.lines().filter_map(|line| {
        let mut words = line.split(' ').map(str::to_owned);
        Some((words.next()?, words.collect()))
    });
    lines.collect()
}

fn list_text(packs: &[ListedPack]) -> String {
    let mut text = String::new();
    for (name, objects) in packs {
        text.push_str(name);
        for object in objects {
            text.push(' ');
            text.push_str(object);
        }
        text.push('\n');
    }
    text
}

/// Whether a pack is as it was brought: git has not made another one of it, and nobody keeps it.
fn is_ours(there: &Path, name: &str) -> bool {
    let has = |ending: &str| there.join(format!("pack-{name}.{ending}")).exists();
    has("idx") && !has("keep")
}

/// Writes a `.keep` file. Whoever reads what it says finds it locked.
fn write_keep(path: &Path) -> io::Result<File> {
    let mut file = File::create(path)?;
    flock(&file, FlockOperation::NonBlockingLockExclusive)?;
    file.write_all(KEPT_BY)?;
    Ok(file)
}

fn is_nobodys(path: &Path) -> bool {
    let lock = |file: File| flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok();
    File::open(path).is_ok_and(lock)
}

/// Moves a finished pack into the project: git sees it as soon as its index is there.
fn place(made: &Path, there: &Path, name: &str) -> Result<()> {
    for ending in ["pack", "idx"] {
        let from = made.with_extension(ending);
        let to = there.join(format!("pack-{name}.{ending}"));
        fault::point("pack-place")?;
        if let Err(error) = fs::rename(&from, &to) {
            if error.kind() != io::ErrorKind::CrossesDevices {
                return Err(files::at(&to, error).into());
            }
            let bytes = fs::read(&from).map_err(|error| files::at(&from, error))?;
            files::write_whole_mode(&to, &bytes, 0o444)?;
            fs::remove_file(&from).map_err(|error| files::at(&from, error))?;
        }
    }
    Ok(files::sync_folder(there)?)
}

/// The names of the objects in a folder that are files of their own.
fn loose_objects(folder: &Path) -> Result<BTreeSet<String>> {
    let mut found = BTreeSet::new();
    let is_hex = |name: &str| name.bytes().all(|byte| byte.is_ascii_hexdigit());
    for entry in fs::read_dir(folder).map_err(|error| files::at(folder, error))? {
        let entry = entry?;
        let Some(start) = entry.file_name().to_str().map(str::to_owned) else {
            continue;
        };
        if start.len() != 2 || !is_hex(&start) {
            continue;
        }
        for object in fs::read_dir(entry.path())?.flatten() {
            if let Some(rest) = object.file_name().to_str()
                && let Some(name) = object_name(format!("{start}{rest}").as_bytes())
            {
                found.insert(name);
            }
        }
    }
    Ok(found)
}

fn loose_path(folder: &Path, name: &str) -> PathBuf {
    let (start, rest) = name.split_at_checked(2).unwrap_or((name, ""));
    folder.join(start).join(rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A repository with one commit, and a folder for new objects.
    fn repository() -> (tempfile::TempDir, Git, PathBuf) {
        let root = tempfile::tempdir().unwrap();
        let project = root.path().join("project");
        fs::create_dir(&project).unwrap();
        Git::init(&project).unwrap();
        let git = Git::open(&project).unwrap();
        git.commit("first\n").unwrap();
        let folder = root.path().join("new");
        (root, git, folder)
    }

    fn prune(git: &Git) {
        Git::open(git.root())
            .unwrap()
            .write(&["gc", "--prune=now", "--quiet"])
            .unwrap();
    }

    /// A commit with one new file on top of another one.
    fn commit_on(git: &Git, parent: &str, content: &str) -> String {
        let file = [("file", Some(content.as_bytes()))];
        let tree = git.tree_with_files(parent, &file).unwrap();
        git.commit_tree(&tree, &[parent], "next\n").unwrap().1
    }

    /// Enough for packs of three sizes.
    const COMMITS: usize = 75;

    #[test]
    fn what_nothing_leads_to_outlives_a_clean_up() {
        let (_root, git, folder) = repository();
        assert!(git.hold_new_objects(&folder).unwrap());
        assert!(!git.hold_new_objects(&folder).unwrap());
        let mut tip = git.commit_of("HEAD").unwrap().unwrap();
        let packs = git.project_objects().join("pack");
        for number in 0..COMMITS {
            tip = commit_on(&git, &tip, &number.to_string());
            let plain = Git::open(git.root()).unwrap();
            assert_eq!(plain.commit_of(&tip).unwrap(), None, "only in its folder");
            if number % 10 == 0 {
                prune(&git);
            }
            let orders = format!("update refs/x/tip {tip}\n");
            git.update_refs("test", &orders).unwrap();
            plain.verify_objects(&tip, None).unwrap();
            assert!(loose_objects(&folder).unwrap().is_empty());
            assert!(fs::read_dir(&packs).unwrap().count() <= 2 * 3 * MAX_PACKS);
        }
        let left = fs::read_dir(&packs).unwrap().flatten();
        assert!(
            left.into_iter()
                .all(|it| it.path().extension() != Some("keep".as_ref()))
        );
        prune(&git);
        Git::open(git.root())
            .unwrap()
            .verify_objects(&tip, None)
            .unwrap();
        let history = git.line(&["rev-list", "--count", "refs/x/tip"]).unwrap();
        assert_eq!(history, (COMMITS + 1).to_string());
    }

    #[test]
    fn a_change_that_is_refused_keeps_the_objects_and_a_killed_one_is_cleared_up() {
        let (_root, git, folder) = repository();
        git.hold_new_objects(&folder).unwrap();
        let first = git.commit_of("HEAD").unwrap().unwrap();
        let next = commit_on(&git, &first, "next");
        let wrong = format!("update refs/x/tip {next} {first}\n");
        git.update_refs("test", &wrong).unwrap_err();
        prune(&git);
        git.update_refs("test", &format!("create refs/x/tip {next}\n"))
            .unwrap();
        git.verify_objects("refs/x/tip", None).unwrap();

        let keep = git.project_objects().join("pack/pack-0.keep");
        let lock = write_keep(&keep).unwrap();
        let other = Git::open(git.root()).unwrap();
        drop(other.hold_new_objects_for_now().unwrap());
        assert!(keep.exists(), "somebody needs it");
        drop(lock);
        let held = other.hold_new_objects_for_now().unwrap();
        assert!(!keep.exists());
        let place = other.new_objects.folder().unwrap();
        assert!(place.exists());
        drop(held);
        assert!(!place.exists() && other.new_objects.folder().is_none());
    }
}
