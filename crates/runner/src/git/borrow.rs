//! A repository of its own that borrows the objects of another one: whoever works in it
//! moves no branch, tag or stash of the other.

use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use runner_core::text::cut_end;

use super::call::finish;
use super::pending::PendingCall;
use super::settings::{local_settings, quoted, settings, split_settings, switched_off};
use super::{Git, PendingProof, base_command, split_nul};
use crate::error::{Error, ErrorCode, Result};
use crate::files;

/// What becomes of filter drivers in such a repository.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FilterUse {
    /// They work as in the project.
    Kept,
    /// None of them runs, but for Git LFS.
    Off,
}

/// The largest file of settings that is copied.
pub(super) const MAX_BYTES: u64 = 16 << 20;

impl Git {
    /// Makes such a repository in an empty folder, with a commit checked out and no branch.
    pub(crate) fn borrow_into(
        &self,
        folder: &Path,
        commit: &str,
        filters: FilterUse,
    ) -> Result<Git> {
        let mut command = base_command();
        command
            .args(["init", "--quiet", "--template="])
            .env("GIT_DEFAULT_REF_FORMAT", "files")
            .current_dir(folder);
        let format = if commit.len() == 64 { "sha256" } else { "sha1" };
        command.arg(format!("--object-format={format}"));
        finish(&command, None)?;
        let git = Git::open(folder)?;
        let own = git.git_dir();
        let objects = self.common_dir().join("objects");
        let alternates = alternate(objects.as_os_str().as_bytes());
        files::make_folder(&own.join("objects/info"))?;
        files::make_folder(&own.join("info"))?;
        std::fs::write(own.join("objects/info/alternates"), alternates)?;
        // Attributes of the user's would make files of it that are not in the commit.
        let attributes = (filters == FilterUse::Kept).then_some("info/attributes");
        for name in ["shallow", "info/exclude"].into_iter().chain(attributes) {
            if let Ok(bytes) = files::read_regular(&self.common_dir().join(name), MAX_BYTES) {
                std::fs::write(own.join(name), bytes)?;
            }
        }
        let mut config = std::fs::read(own.join("config"))?;
        let listed = self.listed_settings()?;
        let listed = split_settings(&listed, self.root(), self.common_dir()).trusted;
        config.extend(settings(&local_settings(&listed)));
        if filters == FilterUse::Off {
            config.extend(b"[core]\n\tattributesFile = /dev/null\n\tautocrlf = false\n");
        }
        std::fs::write(own.join("config"), &config)?;
        if filters == FilterUse::Off {
            // Asked here, because what git reads may depend on where the repository lies.
            config.extend(switched_off(&git.settings_like(r"^filter\.")?));
            std::fs::write(own.join("config"), &config)?;
        }
        // Versions are often told by tags.
        let format = "--format=%(objectname) %(refname)";
        let tags = self.read(&["for-each-ref", format, "refs/tags/"])?;
        std::fs::write(own.join("packed-refs"), tags)?;
        if filters == FilterUse::Off {
            git.verify_objects(commit, None)?;
        }
        git.write(&["checkout", "--quiet", "--detach", commit, "--"])?;
        Ok(git)
    }

    /// Reads every object of a commit and compares it with its name: git itself trusts what
    /// lies in a folder, and leaves out files whose content is missing. Objects of `known`
    /// are passed over.
    pub(crate) fn verify_objects(&self, commit: &str, known: Option<&str>) -> Result<()> {
        self.ask_proof(commit, known)?.answer()
    }

    /// Begins to do that.
    pub(crate) fn ask_proof(&self, commit: &str, known: Option<&str>) -> Result<PendingProof> {
        let mut args = vec!["rev-list", "--quiet", "--no-walk", "--objects"];
        args.extend(["--verify-objects", commit]);
        let known = known.map(|known| format!("^{known}"));
        args.extend(known.as_deref());
        Ok(PendingProof {
            commit: commit.to_owned(),
            asked: PendingCall::begin(self, &args)?,
        })
    }

    /// The settings that a pattern means, from whichever file git reads them.
    fn settings_like(&self, pattern: &str) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
        let found = self.ask(&["config", "--includes", "-z", "--get-regexp", pattern])?;
        let found = found.unwrap_or_default();
        Ok(split_nul(&found)
            .map(
                |record| match record.iter().position(|byte| *byte == b'\n') {
                    Some(end) => (record[..end].to_vec(), record[end + 1..].to_vec()),
                    None => (record.to_vec(), b"true".to_vec()),
                },
            )
            .collect())
    }

    /// Takes what a commit of another repository has beyond one that is here too. What is
    /// not what its name says does not come along.
    pub(crate) fn take_over(&self, from: &Git, commit: &str, beyond: &str) -> Result<()> {
        let wanted = format!("{commit}\n^{beyond}\n");
        let args = ["pack-objects", "--revs", "--stdout", "--quiet"];
        let pack = from.write_with(&args, Some(wanted.as_bytes()), &[])?;
        self.write_with(&["unpack-objects", "-q", "--strict"], Some(&pack), &[])?;
        if self.commit_of(commit)?.is_some() {
            return Ok(());
        }
        Err(Error::new(
            ErrorCode::Git,
            format!("commit {commit} is not what its name says"),
        ))
    }
}

impl PendingProof {
    /// Refuses a commit of which an object is not what its name says.
    pub(crate) fn answer(self) -> Result<()> {
        let commit = &self.commit;
        let output = self.asked.output()?;
        // An object that is another one than its name says does not change the exit code.
        let words = String::from_utf8_lossy(&output.stderr);
        if output.status.success() && !words.lines().any(|line| line.starts_with("error: ")) {
            return Ok(());
        }
        let words = cut_end(words.trim(), 2000);
        let message =
            format!("objects of commit {commit} are missing or not what their names say: {words}");
        Err(Error::new(ErrorCode::Git, message).hint(
            "`git fsck` names them; fetch them again, or restore the repository from a backup",
        ))
    }
}

/// A line of `objects/info/alternates`; git reads a name in quotes as C would.
pub(super) fn alternate(folder: &[u8]) -> Vec<u8> {
    let is_plain = |byte: &u8| *byte != b'\n' && *byte != b'"';
    if folder.iter().all(is_plain) {
        return [folder, b"\n"].concat();
    }
    [&*quoted(folder), b"\n"].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_with_odd_names_can_be_borrowed_from() {
        for (folder, expected) in [
            (&b"/a/.git/objects"[..], &b"/a/.git/objects\n"[..]),
            (b"/back\\slash", b"/back\\slash\n"),
            (b"/a\n\"b\"\\c", b"\"/a\\n\\\"b\\\"\\\\c\"\n"),
        ] {
            assert_eq!(alternate(folder), expected);
        }
    }
}
