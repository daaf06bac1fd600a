//! Which settings of a repository are passed on to one that is made of it.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fmt::Write as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use super::split_nul;

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

/// Settings of the user's, whichever file they are in, that say what files look like in commits.
const OF_THE_USER: &[&str] = &["core.autocrlf", "core.eol", "core.excludesfile"];

/// What every isolated repository says, over anything that was passed on: nothing that hides a
/// change, and nothing that runs a program of anybody's.
const FIXED: &str = "[core]
\tbare = false
\tfileMode = true
\tsymlinks = true
\tignoreCase = false
\ttrustctime = true
\tcheckStat = default
\tsplitIndex = false
\tsparseCheckout = false
\tfsmonitor = false
\tuntrackedCache = false
\tattributesFile = /dev/null
\thooksPath = /dev/null
[index]
\tversion = 4
\tskipHash = true
\tsparse = false
";

/// A setting, the kind of file that it is in, and that file.
struct ScopedSetting<'a> {
    scope: &'a [u8],
    origin: &'a [u8],
    key: &'a [u8],
    value: &'a [u8],
}

impl ScopedSetting<'_> {
    fn is_local(&self) -> bool {
        matches!(self.scope, b"local" | b"worktree")
    }
}

/// The config of an isolated repository: what `git config --list --show-scope --show-origin -z` says, as far as
/// it may count there.
pub(super) fn isolated_config(listed: &[u8], is_sha256: bool) -> Vec<u8> {
    let all = scoped(listed);
    let mut passed = Vec::new();
    for setting in all.iter().filter(|it| !it.is_local()) {
        let key = setting.key.to_ascii_lowercase();
        if OF_THE_USER.iter().any(|name| name.as_bytes() == key) || key.starts_with(b"filter.lfs.")
        {
            record(&mut passed, setting);
        }
    }
    passed.extend(local_settings(listed));
    let format = if is_sha256 {
        "[core]\n\trepositoryformatversion = 1\n[extensions]\n\tobjectFormat = sha256\n"
    } else {
        "[core]\n\trepositoryformatversion = 0\n"
    };
    let mut text = format.as_bytes().to_vec();
    text.extend(settings(&passed));
    text.extend(FIXED.as_bytes());
    text.extend(switched_off(&settings_of(listed, &["filter."])));
    text
}

/// The settings of the repository itself, as `git config --list -z` says them.
pub(super) fn local_settings(listed: &[u8]) -> Vec<u8> {
    let mut text = Vec::new();
    for setting in scoped(listed).iter().filter(|it| it.is_local()) {
        record(&mut text, setting);
    }
    text
}

/// The names of the user's filter drivers but that of Git LFS.
pub(super) fn foreign_filters(listed: &[u8]) -> Vec<Vec<u8>> {
    let filters = settings_of(listed, &["filter."]);
    let drivers = foreign_drivers(&filters);
    drivers.into_iter().map(<[u8]>::to_vec).collect()
}

/// The settings of these sections, with what `git config --list --show-scope --show-origin -z` says of them.
pub(super) fn settings_of(listed: &[u8], sections: &[&str]) -> Vec<(Vec<u8>, Vec<u8>)> {
    let is_of = |key: &[u8]| sections.iter().any(|it| key.starts_with(it.as_bytes()));
    let found = scoped(listed).into_iter().filter(|it| is_of(it.key));
    found
        .map(|it| (it.key.to_vec(), it.value.to_vec()))
        .collect()
}

/// What `git config` says, in two parts.
pub(super) struct SplitSettings {
    /// As it says it, without the other part.
    pub(super) trusted: Vec<u8>,
    /// The values that stand in a file of the work tree, where sessions may have written them.
    pub(super) planted: BTreeSet<Vec<u8>>,
}

/// Parts what stands in files of a work tree from the rest: the git folder is none of it.
pub(super) fn split_settings(listed: &[u8], root: &Path, git_dir: &Path) -> SplitSettings {
    let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let (root, git_dir) = (real(root), real(git_dir));
    let mut files: BTreeMap<&[u8], bool> = BTreeMap::new();
    let mut split = SplitSettings {
        trusted: Vec::new(),
        planted: BTreeSet::new(),
    };
    for setting in scoped(listed) {
        let is_planted = *files.entry(setting.origin).or_insert_with(|| {
            let file = setting.origin.strip_prefix(b"file:").unwrap_or_default();
            let file = real(&root.join(OsStr::from_bytes(file)));
            file != root && file.starts_with(&root) && !file.starts_with(&git_dir)
        });
        if is_planted {
            split.planted.insert(setting.value.to_vec());
            continue;
        }
        for field in [setting.scope, setting.origin] {
            split.trusted.extend_from_slice(field);
            split.trusted.push(0);
        }
        record(&mut split.trusted, &setting);
    }
    split
}

/// The one setting of this name that counts.
pub(super) fn value_of<'a>(listed: &'a [u8], name: &str) -> Option<&'a [u8]> {
    let all = scoped(listed);
    let found = all.into_iter().rev().find(|it| it.key == name.as_bytes());
    found.map(|it| it.value)
}

fn record(text: &mut Vec<u8>, setting: &ScopedSetting<'_>) {
    text.extend_from_slice(setting.key);
    text.push(b'\n');
    text.extend_from_slice(setting.value);
    text.push(0);
}

fn scoped(listed: &[u8]) -> Vec<ScopedSetting<'_>> {
    let mut fields = listed.split(|byte| *byte == 0);
    let mut found = Vec::new();
    while let (Some(scope), Some(origin), Some(record)) =
        (fields.next(), fields.next(), fields.next())
    {
        let end = record.iter().position(|byte| *byte == b'\n');
        found.push(ScopedSetting {
            scope,
            origin,
            key: &record[..end.unwrap_or(record.len())],
            // Without a value: true.
            value: end.map_or(&b"true"[..], |end| &record[end + 1..]),
        });
    }
    found
}

/// Settings of a file that follows the others: every filter driver does nothing. A driver is a
/// command of the user's that would read, and run beside, what an agent wrote. The one of Git
/// LFS, by its own words, stays: without it the files would only be names.
pub(super) fn switched_off(filters: &[(Vec<u8>, Vec<u8>)]) -> Vec<u8> {
    let mut text = Vec::new();
    for driver in foreign_drivers(filters) {
        text.extend(b"[filter \"");
        for byte in driver {
            if matches!(byte, b'\\' | b'"') {
                text.push(b'\\');
            }
            text.push(*byte);
        }
        text.extend(b"\"]\n\tclean =\n\tsmudge =\n\tprocess =\n\trequired = false\n");
    }
    text
}

/// The names of all filter drivers but the one of Git LFS, by its own words.
pub(super) fn foreign_drivers(filters: &[(Vec<u8>, Vec<u8>)]) -> Vec<&[u8]> {
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
    drivers
        .into_iter()
        .filter(|(_, known)| !known)
        .map(|(driver, _)| driver)
        .collect()
}

/// A value in quotes, as config files and lists of alternates want it.
pub(super) fn quoted(value: &[u8]) -> Vec<u8> {
    let mut text = vec![b'"'];
    for byte in value {
        match byte {
            b'\\' | b'"' => text.extend([b'\\', *byte]),
            b'\n' => text.extend(b"\\n"),
            other => text.push(*other),
        }
    }
    text.push(b'"');
    text
}

/// The settings that are passed on, as text of a config file.
pub(super) fn settings(listed: &[u8]) -> Vec<u8> {
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
        let _ = write!(head, "]\n\t{} = ", &key[last + 1..]);
        text.extend_from_slice(head.as_bytes());
        text.extend(quoted(value));
        text.push(b'\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn settings_in_files_of_the_work_tree_are_set_apart() {
        let temp = tempfile::tempdir().unwrap();
        let root = temp.path();
        std::fs::create_dir(root.join(".git")).unwrap();
        for name in [".gitconfig", ".git/config"] {
            std::fs::write(root.join(name), "").unwrap();
        }
        let record = |origin: &str, text: &str| format!("local\0{origin}\0{text}\0");
        let own = record("file:.git/config", "a.b\nc");
        let outside = record("file:/etc/gitconfig", "d.e\nf");
        let given = record("command line:", "g.h\ni");
        let planted = record("file:.git/../.gitconfig", "filter.x.clean\nsh x");
        let listed = [own.as_str(), &planted, &outside, &given].concat();
        let split = split_settings(listed.as_bytes(), root, &root.join(".git"));
        let trusted = [own, outside, given].concat();
        assert_eq!(String::from_utf8(split.trusted).unwrap(), trusted);
        assert_eq!(split.planted, BTreeSet::from([b"sh x".to_vec()]));
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
