//! A folder of files that others write to, and the index over it that only the runner writes.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use runner_core::text::escape_path;

use super::{beside, quarantine};
use crate::error::{Error, ErrorCode, Result};
use crate::fault;
use crate::git::{
    BorrowedRepo, Git, GitStatus, PendingProof, PendingWrite, join_nul, split_nul, to_path,
};
use crate::mounts;
use crate::step::file_image;

/// The ending of the git folder beside such a folder.
pub(crate) const INDEX: &str = "git";

/// What may lie in a folder beside the files of the commit.
#[derive(Clone, Copy, Debug)]
pub(crate) enum KeptFiles<'a> {
    /// What git ignores.
    Ignored,
    /// What these globs and paths mean, each from the root of the folder, and nothing else.
    Only {
        globs: &'a [String],
        paths: &'a [String],
    },
}

impl KeptFiles<'_> {
    /// Nothing but the commit.
    pub(crate) const NONE: KeptFiles<'static> = KeptFiles::Only {
        globs: &[],
        paths: &[],
    };
}

/// A folder with a private index.
#[derive(Debug)]
pub(crate) struct IndexedTree {
    /// The isolated repository over the folder.
    pub(crate) git: Git,
    /// What the folder's own `.git` is made of.
    pub(crate) source: BorrowedRepo,
}

impl IndexedTree {
    /// The folder as it is. Nothing in it is looked at.
    pub(crate) fn open(source: BorrowedRepo, folder: &Path) -> Result<Self> {
        let index = beside(folder, INDEX);
        if !is_ours(&index) {
            quarantine::remove_or_set_aside(&index)?;
        }
        let git = source.isolate(folder, &index)?;
        Ok(IndexedTree { git, source })
    }

    /// Where the files are.
    pub(crate) fn folder(&self) -> &Path {
        self.git.root()
    }

    /// The commit that was last checked out.
    pub(crate) fn head(&self) -> Option<String> {
        let index = self.index();
        index
            .symlink_metadata()
            .is_ok()
            .then(|| self.git.detached_head())
            .flatten()
    }

    fn index(&self) -> PathBuf {
        self.git.git_dir().join("index")
    }

    /// Makes every file of the folder what a commit has, and removes the others.
    pub(crate) fn bring_to(&self, commit: &str, kept: KeptFiles<'_>) -> Result<()> {
        if !quarantine::is_real_folder(self.folder()) {
            // Git would follow a link, and clean up what it leads to.
            self.start_over()?;
        }
        // First: what was checked out before may be in the repository no more.
        self.git.set_head(commit)?;
        // Then what is of no commit: attributes among it would change how files are written.
        if self.remove_others(kept).is_err() {
            self.start_over()?;
        }
        self.check_out(commit)?;
        match kept {
            // What is ignored is known now.
            KeptFiles::Ignored => self.remove_others(kept),
            KeptFiles::Only { .. } => Ok(()),
        }
    }

    /// The same where everything that is of no commit has just been removed.
    pub(crate) fn bring_cleaned_to(&self, commit: &str) -> Result<()> {
        self.git.set_head(commit)?;
        self.check_out(commit)
    }

    fn check_out(&self, commit: &str) -> Result<()> {
        let reset = ["read-tree", "--reset", "-u", commit];
        if let Err(error) = self.git.write(&reset) {
            if error.code != ErrorCode::Git {
                return Err(error);
            }
            self.start_over()?;
            self.git.write(&reset)?;
        }
        Ok(())
    }

    /// Removes everything: what git cannot remove, and an index that a crash left half written.
    fn start_over(&self) -> Result<()> {
        quarantine::make_anew(self.folder())
    }

    /// Begins to remove what is in no index; see [`IndexedTree::bring_cleaned_to`].
    pub(crate) fn begin_cleaning(&self, kept: KeptFiles<'_>) -> Result<PendingWrite> {
        self.refuse_mounts()?;
        self.git.begin_write(&clean_args(kept))
    }

    /// Git would remove what is behind a mount or a link, and that is somebody else's.
    fn refuse_mounts(&self) -> Result<()> {
        if !quarantine::is_real_folder(self.folder()) {
            let message = format!("{} is no folder", self.folder().display());
            return Err(Error::new(ErrorCode::Io, message)
                .hint("`runner rescue` moves it out of the way and makes it again"));
        }
        match mounts::take_away(self.folder()).first() {
            None => Ok(()),
            Some(place) => Err(Error::new(
                ErrorCode::Io,
                format!("{}: something is mounted there", place.display()),
            )
            .hint(format!("`sudo {}`", mounts::command(place)))),
        }
    }

    /// Removes what is not of the commit, whatever ignore rules say.
    fn remove_others(&self, kept: KeptFiles<'_>) -> Result<()> {
        self.refuse_mounts()?;
        let args = clean_args(kept);
        if self.git.write(&args).is_ok() {
            return Ok(());
        }
        file_image::open_folders(self.folder());
        self.git.write(&args).map(drop)
    }

    /// Writes the folder's own `.git` anew, as it is at a commit.
    pub(crate) fn write_git(&self, branch: Option<&str>, commit: &str) -> Result<()> {
        self.source
            .write_into(self.folder(), branch, commit, &self.index())
    }

    /// Puts exactly these paths, as they lie in the folder, into the index: those that are gone
    /// leave it.
    pub(crate) fn take(&self, paths: &BTreeSet<PathBuf>) -> Result<()> {
        let root = self.folder();
        let (mut gone, mut there) = (Vec::new(), Vec::new());
        for path in paths {
            let is_there = file_image::parents_are_folders(root, path)
                && root
                    .join(path)
                    .symlink_metadata()
                    .is_ok_and(|meta| !meta.is_dir());
            let list = if is_there { &mut there } else { &mut gone };
            list.extend_from_slice(path.as_os_str().as_bytes());
            list.push(0);
        }
        // First: a folder may have become a link.
        if !gone.is_empty() {
            let args = ["update-index", "--force-remove", "-z", "--stdin"];
            self.git.write_with(&args, Some(&gone), &[])?;
        }
        if !there.is_empty() {
            let args = ["update-index", "--add", "--replace", "-z", "--stdin"];
            self.git.write_quietly(&args, &there)?;
        }
        Ok(())
    }

    /// Makes the index that of a commit again where what is in the place of its files is none. The
    /// folder is not looked at.
    pub(crate) fn mend_index(&self, commit: &str) -> Result<()> {
        let index = self.git.git_dir();
        if is_ours(index) && self.index().is_file() {
            return Ok(());
        }
        quarantine::remove_or_set_aside(index)?;
        self.source.isolate(self.folder(), index)?;
        self.git.write(&["read-tree", commit])?;
        self.git.set_head(commit)
    }

    /// Says in the index that a submodule is at another commit.
    pub(crate) fn move_submodule(&self, path: &Path, commit: &str) -> Result<()> {
        let mut info = OsString::from(format!("160000,{commit},"));
        info.push(path);
        let args: [&OsStr; 3] = [
            "update-index".as_ref(),
            "--cacheinfo".as_ref(),
            info.as_os_str(),
        ];
        self.git.write(&args).map(drop)
    }

    /// The tree of what is in the index.
    pub(crate) fn write_tree(&self) -> Result<String> {
        let write = || self.git.write(&["write-tree"]);
        let tree = match write() {
            Err(error) if error.code == ErrorCode::Git && self.take_missing()? => write()?,
            tree => tree?,
        };
        Ok(String::from_utf8_lossy(tree.trim_ascii_end()).into_owned())
    }

    /// Takes files again that are in the index and whose content is in the repository no more: it
    /// had been there by chance, with nothing that led to it. Whether there were any.
    fn take_missing(&self) -> Result<bool> {
        let listed = self.git.read(&["ls-files", "--stage", "-z"])?;
        let mut entries: Vec<(PathBuf, String)> = Vec::new();
        for record in split_nul(&listed) {
            // "100644 0123… 0\tpath"
            let text = String::from_utf8_lossy(record);
            let name = text.split(' ').nth(1).unwrap_or_default().to_owned();
            let tab = record.iter().position(|byte| *byte == b'\t');
            if let Some(tab) = tab.filter(|_| !text.starts_with("160000 ")) {
                entries.push((to_path(&record[tab + 1..]), name));
            }
        }
        let names: Vec<&str> = entries.iter().map(|(_, name)| name.as_str()).collect();
        let asked = names.join("\n");
        let check = ["cat-file", "--batch-check"];
        let answer = self.git.ask_with(&check, asked.as_bytes())?;
        let answer = answer.unwrap_or_default();
        let missing: BTreeSet<PathBuf> = String::from_utf8_lossy(&answer)
            .lines()
            .zip(&entries)
            .filter(|(said, _)| said.ends_with(" missing"))
            .map(|(_, (path, _))| path.clone())
            .collect();
        if missing.is_empty() {
            return Ok(false);
        }
        // Git reads only files that it does not know.
        let args = ["update-index", "--force-remove", "-z", "--stdin"];
        self.git.write_with(&args, Some(&join_nul(&missing)), &[])?;
        self.take(&missing)?;
        Ok(true)
    }

    /// Makes these paths what the index has, or nothing where it has none.
    pub(crate) fn undo(&self, paths: &[PathBuf], quarantine: &Path) -> Result<()> {
        for path in paths {
            let is_there = self.folder().join(path).symlink_metadata().is_ok();
            if is_there && file_image::parents_are_folders(self.folder(), path) {
                file_image::move_to(self.folder(), path, quarantine)?;
            }
            let args = [
                "checkout-index".as_ref(),
                "--force".as_ref(),
                "--".as_ref(),
                path.as_os_str(),
            ];
            // A new file is in no index.
            let _ = self.git.write(&args);
        }
        Ok(())
    }

    /// How large a file is in the index; nothing, where it has none.
    pub(crate) fn size_in_index(&self, path: &Path) -> Result<u64> {
        let mut name = OsString::from(":");
        name.push(path);
        let args: [&OsStr; 3] = ["cat-file".as_ref(), "-s".as_ref(), name.as_os_str()];
        let answer = self.git.ask(&args)?.unwrap_or_default();
        let text = String::from_utf8_lossy(&answer);
        Ok(text.trim().parse().unwrap_or_default())
    }

    /// Writes files as the index has them.
    pub(crate) fn write_files(&self, paths: &BTreeSet<PathBuf>) -> Result<()> {
        let args = ["checkout-index", "--force", "-z", "--stdin"];
        self.git
            .write_with(&args, Some(&join_nul(paths)), &[])
            .map(drop)
    }

    /// Says that the index, as it is, is this commit's.
    pub(crate) fn note_commit(&self, commit: &str) -> Result<()> {
        fault::point("head")?;
        self.git.set_head(commit)
    }

    /// What differs from the commit.
    pub(crate) fn status(&self) -> Result<GitStatus> {
        self.git.status()
    }

    /// Takes away what git leaves where it is: pipes and the like, for which it may also wait, and
    /// folders with the name of its own. `is_kept`: folders that are not looked into.
    pub(crate) fn remove_unseen(&self, is_kept: &dyn Fn(&Path) -> bool) -> Result<()> {
        match self.remove_found(is_kept, true) {
            Ok(()) => Ok(()),
            Err(_) => self.start_over(),
        }
    }

    fn remove_found(&self, is_kept: &dyn Fn(&Path) -> bool, with_gits: bool) -> Result<()> {
        let wanted = |folder: &Path, name: &OsStr, kind: std::fs::FileType| {
            if name == ".git" {
                with_gits && !folder.as_os_str().is_empty()
            } else {
                file_image::is_special(kind)
            }
        };
        let enters = |path: &Path| path.as_os_str() != ".git" && !is_kept(path);
        for path in file_image::find(self.folder(), &wanted, &enters) {
            file_image::remove_closed(&self.folder().join(path))?;
        }
        Ok(())
    }

    /// The files of the commit that are not as it has them, as names for people. What runs there no
    /// more may have left a pipe, for which git would wait.
    pub(crate) fn changed_files(&self) -> Result<Vec<String>> {
        self.remove_found(&|_| false, false)?;
        let changed = self.git.changed_since("HEAD")?;
        Ok(changed
            .iter()
            .map(|path| escape_path(path.as_os_str().as_bytes()))
            .collect())
    }

    /// Begins to compare the objects of a commit with their names. `known`: one that was looked
    /// through before.
    pub(crate) fn ask_proof(&self, commit: &str, known: Option<&str>) -> Result<PendingProof> {
        self.git.ask_proof(commit, known)
    }
}

/// Whether a git folder beside a checkout is as the runner makes it: git would wait for a pipe that
/// lies there, and be led elsewhere by a link.
pub(crate) fn is_ours(index: &Path) -> bool {
    let files = [
        "HEAD",
        "config",
        "shallow",
        "index",
        "info/exclude",
        "info/attributes",
    ];
    let is_file = |name: &&str| {
        let meta = index.join(name).symlink_metadata();
        meta.map_or(true, |meta| meta.is_file())
    };
    quarantine::are_folders(index, &["refs", "info", "objects"]) && files.iter().all(is_file)
}

/// How git is told to remove what is in no index.
fn clean_args(kept: KeptFiles<'_>) -> Vec<String> {
    let mut args = vec!["clean".to_owned(), "-ffdq".to_owned()];
    if let KeptFiles::Only { globs, paths } = kept {
        args.push("-x".to_owned());
        let globs = globs
            .iter()
            .map(|glob| format!("/{}", glob.trim_matches('/')));
        for pattern in globs.chain(paths.iter().map(|path| pattern_of(path))) {
            args.extend(["-e".to_owned(), pattern]);
        }
    }
    args.push("--".to_owned());
    args.push(".".to_owned());
    args
}

/// A path as a pattern that means nothing else.
fn pattern_of(path: &str) -> String {
    let path = path.trim_matches('/');
    let mut pattern = String::from("/");
    for letter in path.chars() {
        if matches!(letter, '*' | '?' | '[' | ']' | '\\' | '!' | '#' | ' ') {
            pattern.push('\\');
        }
        pattern.push(letter);
    }
    pattern
}
