//! The argv of `bwrap`.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use crate::layout::{BindMount, SandboxAccess};

/// `bwrap` and what every containment has in common, up to the mounts of this one.
///
/// `kept_by_root`: the capabilities that root keeps; nothing if it is not root who starts it.
/// `shared_memory`: the size of `/dev/shm`, where `bwrap` takes one.
pub(crate) fn base(
    program: &Path,
    kept_by_root: Option<&[&str]>,
    shared_memory: Option<u64>,
) -> Vec<OsString> {
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
    // The shared memory of `--dev` is private already, but cannot be told from the devices, so that
    // nobody could count what is in it, and is closed to the users that root may become inside.
    if let Some(bytes) = shared_memory {
        add(&["--size", &bytes.to_string()]);
    }
    if kept_by_root.is_some() {
        add(&["--perms", "1777"]);
    }
    add(&["--tmpfs", "/dev/shm"]);
    if kept_by_root.is_some() {
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
            SandboxAccess::Hidden if !is_empty_folder(mount) => "--ro-bind-try",
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
    // What is made of memory is made for names alone: what a child wrote there would count nowhere.
    let hidden = shown.mounts.iter().filter(|it| is_empty_folder(it));
    let devices = Path::new("/dev");
    for path in hidden.map(|it| it.path.as_path()).chain([devices]) {
        argv.extend(["--remount-ro".into(), path.into()]);
    }
    argv.extend(["--chdir".into(), project.into(), "--".into()]);
    argv.extend(program.iter().cloned());
}

/// Whether it is a hidden folder: a new one in its place, with what is in sight there.
fn is_empty_folder(mount: &BindMount) -> bool {
    mount.access == SandboxAccess::Hidden && mount.source != Path::new(NOTHING)
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
            line(&base(Path::new("/bin/bwrap"), None, None)),
            "/bin/bwrap --die-with-parent --unshare-pid --unshare-ipc --ro-bind / / --dev /dev --proc /proc --tmpfs /dev/shm"
        );
    }

    #[test]
    fn root_keeps_what_it_is_given() {
        assert_eq!(
            line(&base(
                Path::new("bwrap"),
                Some(&["CAP_KILL", "CAP_CHOWN"]),
                Some(4096)
            )),
            "bwrap --die-with-parent --unshare-pid --unshare-ipc --cap-drop ALL --cap-add CAP_KILL --cap-add CAP_CHOWN \
             --ro-bind / / --dev /dev --proc /proc --size 4096 --perms 1777 --tmpfs /dev/shm --ro-bind-try /proc/sys /proc/sys \
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
             --ro-bind /r /dev/r --remount-ro /h --remount-ro /dev --chdir /p -- -x -- y"
        );
    }
}
