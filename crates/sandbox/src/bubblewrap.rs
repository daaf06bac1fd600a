//! The argv of `bwrap`.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use crate::layout::{BindMount, SandboxAccess};

/// `bwrap` and what every containment has in common, up to the mounts of this one.
///
/// `kept_by_root`: the capabilities that root keeps; nothing if it is not root who starts it.
pub(crate) fn base(program: &Path, kept_by_root: Option<&[&str]>) -> Vec<OsString> {
    let mut argv: Vec<OsString> = vec![program.into()];
    let mut add = |words: &[&str]| argv.extend(words.iter().map(OsString::from));
    // The pid namespace ends with its first process, that one with `bwrap`, `bwrap` with whoever
    // started it.
    // What System V and POSIX queues keep would outlive both.
    add(&["--die-with-parent", "--unshare-pid", "--unshare-ipc"]);
    if let Some(kept) = kept_by_root {
        add(&["--cap-drop", "ALL"]);
        for name in kept {
            add(&["--cap-add", name]);
        }
    }
    add(&["--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc"]);
    if kept_by_root.is_some() {
        // The shared memory of `--dev` is private already, but closed to the users that root may
        // become inside.
        add(&["--perms", "1777", "--tmpfs", "/dev/shm"]);
        // For these the kernel asks for root's number, not for a capability: one line to
        // `core_pattern`, and the next crash runs a program outside.
        add(&["--ro-bind-try", "/proc/sys", "/proc/sys"]);
        add(&[
            "--ro-bind-try",
            "/proc/sysrq-trigger",
            "/proc/sysrq-trigger",
        ]);
    }
    argv
}

/// What a child sees of the file system beside the read-only root.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SandboxView<'a> {
    pub(crate) mounts: &'a [BindMount],
    pub(crate) lent: &'a [(PathBuf, PathBuf)],
}

/// What a hidden file is replaced by.
pub(crate) const NOTHING: &str = "/dev/null";

/// Adds the mounts, the last ones as the options that they are, the working directory and the
/// program.
pub(crate) fn complete(
    argv: &mut Vec<OsString>,
    shown: &SandboxView<'_>,
    last: &[OsString],
    project: &Path,
    program: &[OsString],
) {
    for mount in shown.mounts {
        let BindMount {
            source,
            path,
            access,
        } = mount;
        // Only the project must be there. Anything else may have vanished since it was looked for,
        // and then there is nothing to open or to protect.
        let option = match access {
            SandboxAccess::Writable if path == project => "--bind",
            SandboxAccess::Writable if is_device(path) => "--dev-bind-try",
            SandboxAccess::Writable => "--bind-try",
            SandboxAccess::ReadOnly => "--ro-bind-try",
            SandboxAccess::Hidden if source == Path::new(NOTHING) => "--ro-bind-try",
            SandboxAccess::Hidden => {
                argv.extend(["--tmpfs".into(), path.into()]);
                continue;
            }
        };
        argv.extend([option.into(), source.into(), path.into()]);
    }
    for (folder, place) in shown.lent {
        argv.extend(["--ro-bind-try".into(), folder.into(), place.into()]);
    }
    argv.extend(last.iter().cloned());
    argv.extend(["--chdir".into(), project.into(), "--".into()]);
    argv.extend(program.iter().cloned());
}

/// What `--dev` replaces; an ordinary bind of it could not be opened.
fn is_device(path: &Path) -> bool {
    path.starts_with("/dev") && !path.starts_with("/dev/shm")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(argv: &[OsString]) -> String {
        let words: Vec<_> = argv.iter().map(|word| word.to_string_lossy()).collect();
        words.join(" ")
    }

    #[test]
    fn ordinary_users_have_nothing_to_drop() {
        assert_eq!(
            line(&base(Path::new("/bin/bwrap"), None)),
            "/bin/bwrap --die-with-parent --unshare-pid --unshare-ipc --ro-bind / / --dev /dev --proc /proc"
        );
    }

    #[test]
    fn root_keeps_what_it_is_given() {
        assert_eq!(
            line(&base(Path::new("bwrap"), Some(&["CAP_KILL", "CAP_CHOWN"]))),
            "bwrap --die-with-parent --unshare-pid --unshare-ipc --cap-drop ALL --cap-add CAP_KILL --cap-add CAP_CHOWN \
             --ro-bind / / --dev /dev --proc /proc --perms 1777 --tmpfs /dev/shm --ro-bind-try /proc/sys /proc/sys \
             --ro-bind-try /proc/sysrq-trigger /proc/sysrq-trigger"
        );
    }

    #[test]
    fn mounts_in_order_and_the_program_last() {
        let mounts: Vec<BindMount> = [
            ("/dev/kvm", SandboxAccess::Writable),
            ("/dev/shm", SandboxAccess::Writable),
            ("/p", SandboxAccess::Writable),
            ("/p/a b", SandboxAccess::ReadOnly),
            ("/t", SandboxAccess::Writable),
        ]
        .into_iter()
        .map(|(path, access)| BindMount::upon_itself(path.into(), access))
        .chain([
            BindMount::upon_itself("/h".into(), SandboxAccess::Hidden),
            BindMount {
                source: NOTHING.into(),
                path: "/k".into(),
                access: SandboxAccess::Hidden,
            },
            BindMount {
                source: "/w/s".into(),
                path: "/u".into(),
                access: SandboxAccess::Writable,
            },
        ])
        .collect();
        let mut argv = Vec::new();
        let program: Vec<OsString> = ["-x", "--", "y"].map(OsString::from).to_vec();
        let shown = SandboxView {
            mounts: &mounts,
            lent: &[("/o".into(), "/p/o".into())],
        };
        let last = ["--ro-bind", "/r", "/dev/r"].map(OsString::from);
        complete(&mut argv, &shown, &last, Path::new("/p"), &program);
        assert_eq!(
            line(&argv),
            "--dev-bind-try /dev/kvm /dev/kvm --bind-try /dev/shm /dev/shm --bind /p /p \
             --ro-bind-try /p/a b /p/a b --bind-try /t /t --tmpfs /h --ro-bind-try /dev/null /k --bind-try /w/s /u --ro-bind-try /o /p/o \
             --ro-bind /r /dev/r --chdir /p -- -x -- y"
        );
    }
}
