//! A repository of its own that borrows the objects of another one: whoever works in it
//! moves no branch, tag or stash of the other.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use runner_core::text::cut_end;

use super::call::{finish, spawn};
use super::{Git, GitAccess, base_command, split_nul};
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

/// Settings that say what a repository is, where it lies or how others are reached.
const LEFT_OUT: &[&str] = &[
    "core.bare",
    "core.worktree",
    "core.repositoryformatversion",
    "core.hookspath",
    "core.sparsecheckout",
    "core.sparsecheckoutcone",
    "branch.",
    "credential.",
    "extensions.",
    "gc.",
    "http.",
    "include.",
    "includeif.",
    "maintenance.",
    "remote.",
    "submodule.",
    "url.",
];

/// Those of them that a partial clone cannot do without.
const PROMISE: &[&str] = &["extensions.partialclone", "remote."];

/// The largest file of settings that is copied.
const MAX_BYTES: u64 = 16 << 20;

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
        let listed = self.read(&["config", "--local", "--includes", "--list", "-z"])?;
        config.extend(settings(&listed));
        if filters == FilterUse::Off {
            config.extend(b"[core]\n\tattributesFile = /dev/null\n\tautocrlf = false\n");
        }
        std::fs::write(own.join("config"), &config)?;
        if filters == FilterUse::Off {
            // Asked here, because what git reads may depend on where the repository lies.
            config.extend(switched_off(&git.filters()?));
            std::fs::write(own.join("config"), &config)?;
        }
        // Versions are often told by tags.
        let format = "--format=%(objectname) %(refname)";
        let tags = self.read(&["for-each-ref", format, "refs/tags/"])?;
        std::fs::write(own.join("packed-refs"), tags)?;
        if filters == FilterUse::Off {
            git.verify_objects(commit)?;
        }
        git.write(&["checkout", "--quiet", "--detach", commit, "--"])?;
        Ok(git)
    }

    /// Reads every object of a commit and compares it with its name: git itself trusts what
    /// lies in a folder, and leaves out files whose content is missing.
    fn verify_objects(&self, commit: &str) -> Result<()> {
        let mut command = self.command(GitAccess::Read);
        command.args(["rev-list", "--quiet", "--no-walk", "--objects"]);
        command.args(["--verify-objects", commit]);
        let output = spawn(&command, None)?;
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

    /// The settings of all filter drivers, from whichever file git reads them.
    fn filters(&self) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
        let found = self.ask(&["config", "--includes", "-z", "--get-regexp", r"^filter\."])?;
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

/// A line of `objects/info/alternates`; git reads a name in quotes as C would.
fn alternate(folder: &[u8]) -> Vec<u8> {
    let is_plain = |byte: &u8| *byte != b'\n' && *byte != b'"';
    if folder.iter().all(is_plain) {
        return [folder, b"\n"].concat();
    }
    let mut line = vec![b'"'];
    for byte in folder {
        match byte {
            b'"' | b'\\' => line.extend([b'\\', *byte]),
            b'\n' => line.extend(b"\\n"),
            other => line.push(*other),
        }
    }
    line.extend(b"\"\n");
    line
}

/// Settings of a file that follows the others: every filter driver does nothing. A driver is a
/// command of the user's that would read, and run beside, what an agent wrote. The one of Git
/// LFS, by its own words, stays: without it the files would only be names.
fn switched_off(filters: &[(Vec<u8>, Vec<u8>)]) -> Vec<u8> {
    let mut drivers: BTreeMap<&[u8], bool> = BTreeMap::new();
    for (key, value) in filters {
        let Some((driver, setting)) = key.strip_prefix(b"filter.").and_then(|rest| {
            let dot = rest.iter().rposition(|byte| *byte == b'.')?;
            Some((&rest[..dot], &rest[dot + 1..]))
        }) else {
            continue;
        };
        let known = driver == b"lfs"
            && match setting {
                b"clean" => value == b"git-lfs clean -- %f",
                b"smudge" => value == b"git-lfs smudge -- %f",
                b"process" => value == b"git-lfs filter-process",
                _ => true,
            };
        *drivers.entry(driver).or_insert(true) &= known;
    }
    let mut text = Vec::new();
    for (driver, _) in drivers.iter().filter(|(_, known)| !**known) {
        text.extend(b"[filter \"");
        for byte in *driver {
            if matches!(byte, b'\\' | b'"') {
                text.push(b'\\');
            }
            text.push(*byte);
        }
        text.extend(b"\"]\n\tclean =\n\tsmudge =\n\tprocess =\n\trequired = false\n");
    }
    text
}

/// The settings that are passed on, as text of a config file.
fn settings(listed: &[u8]) -> Vec<u8> {
    let pairs: Vec<(&str, &[u8])> = split_nul(listed)
        .filter_map(|record| {
            let end = record.iter().position(|byte| *byte == b'\n');
            let key = std::str::from_utf8(&record[..end.unwrap_or(record.len())]).ok()?;
            // Without a value: true.
            Some((key, end.map_or(&b"true"[..], |end| &record[end + 1..])))
        })
        .collect();
    let named = |list: &[&str], key: &str| {
        let key = key.to_ascii_lowercase();
        list.iter()
            .any(|name| key == *name || (name.ends_with('.') && key.starts_with(name)))
    };
    let promises = |key: &str| key.starts_with("remote.") && key.ends_with(".promisor");
    let partial = pairs
        .iter()
        .any(|(key, _)| named(&PROMISE[..1], key) || promises(key));
    let mut text = Vec::new();
    for (key, value) in pairs {
        if named(LEFT_OUT, key) && !(partial && named(PROMISE, key)) {
            continue;
        }
        let (Some(first), Some(last)) = (key.find('.'), key.rfind('.')) else {
            continue;
        };
        let mut head = format!("[{}", &key[..first]);
        if first < last {
            let middle = key[first + 1..last].replace('\\', "\\\\");
            // Writing to a String cannot fail.
            let _ = write!(head, " \"{}\"", middle.replace('"', "\\\""));
        }
        let _ = write!(head, "]\n\t{} = \"", &key[last + 1..]);
        text.extend_from_slice(head.as_bytes());
        for byte in value {
            match byte {
                b'\\' | b'"' => text.extend([b'\\', *byte]),
                b'\n' => text.extend(b"\\n"),
                other => text.push(*other),
            }
        }
        text.extend(b"\"\n");
    }
    text
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

    #[test]
    fn drivers_are_switched_off_but_for_git_lfs() {
        let settings = |pairs: &[(&str, &str)]| -> Vec<(Vec<u8>, Vec<u8>)> {
            let owned =
                |(key, value): &(&str, &str)| (key.as_bytes().to_vec(), value.as_bytes().to_vec());
            pairs.iter().map(owned).collect()
        };
        let lfs = [
            ("filter.lfs.clean", "git-lfs clean -- %f"),
            ("filter.lfs.smudge", "git-lfs smudge -- %f"),
            ("filter.lfs.process", "git-lfs filter-process"),
            ("filter.lfs.required", "true"),
        ];
        assert_eq!(switched_off(&settings(&lfs)), b"");
        let planted = [
            ("filter.lfs.smudge", "sh tools/x.sh"),
            ("filter.a.b.clean", "x"),
        ];
        let text = String::from_utf8(switched_off(&settings(&planted))).unwrap();
        let off = "clean =\n\tsmudge =\n\tprocess =\n\trequired = false\n";
        assert_eq!(
            text,
            format!("[filter \"a.b\"]\n\t{off}[filter \"lfs\"]\n\t{off}")
        );
    }

    #[test]
    fn which_settings_are_passed_on() {
        let listed = b"core.bare\nfalse\0user.name\nA \"B\" \\ c\0filter.lfs.clean\nx\ny\0\
            remote.origin.url\nu\0http.x.extraheader\nsecret\0core.flag\0a.b \"q.c\nv\0";
        assert_eq!(
            String::from_utf8(settings(listed)).unwrap(),
            "[user]\n\tname = \"A \\\"B\\\" \\\\ c\"\n[filter \"lfs\"]\n\tclean = \"x\\ny\"\n\
             [core]\n\tflag = \"true\"\n[a \"b \\\"q\"]\n\tc = \"v\"\n"
        );
        let partial = b"extensions.partialclone\norigin\0remote.origin.url\nu\0";
        assert_eq!(
            String::from_utf8(settings(partial)).unwrap(),
            "[extensions]\n\tpartialclone = \"origin\"\n[remote \"origin\"]\n\turl = \"u\"\n"
        );
    }
}
