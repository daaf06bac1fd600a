//! Sockets of programs that would do more for a child than it may do itself: a terminal that runs
//! commands, an agent that signs, a daemon that mounts. Where they lie, and what beside them stays in
//! sight.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};

use crate::secrets::SecretPlaces;

/// Folders in which programs of the machine and of other users listen.
const FOLDERS: &[&str] = &["/run", "/var/run"];

/// What lies there and is no socket of a program: programs and their libraries, disks of users,
/// devices, and how a container is told.
const BESIDE: &[&str] = &[
    "/run/current-system",
    "/run/booted-system",
    "/run/wrappers",
    "/run/opengl-driver",
    "/run/opengl-driver-32",
    "/run/media",
    "/run/udev/data",
    "/run/.containerenv",
];

/// Who is asked for addresses of names.
const NAME_SERVICES: &[&str] = &["/run/systemd/resolve", "/run/nscd"];

/// What tells where to ask: a file, most often by a link.
const RESOLVER: &str = "/etc/resolv.conf";

/// Sockets, and folders of them, below the home folder.
const AT_HOME: &[&str] = &[
    ".docker/run",
    ".docker/desktop",
    ".colima",
    ".rd",
    ".orbstack/run",
    ".lima",
    ".1password",
    ".bitwarden-ssh-agent.sock",
    ".screen",
    ".local/share/containers/podman/machine",
];

/// The same elsewhere.
const ELSEWHERE: &[&str] = &[
    "/var/lib/incus/unix.socket",
    "/var/lib/lxd/unix.socket",
    "/var/snap/lxd/common/lxd/unix.socket",
    "/var/lib/mysql/mysql.sock",
    "/mnt/wslg",
];

/// Variables that name folders of sockets.
const NAMED_FOLDERS: &[&str] = &["XDG_RUNTIME_DIR", "SCREENDIR"];

/// The folders that all programs may leave sockets in beside that of `TMPDIR`: a child sees one of its
/// own in their place, where there are mounts.
pub const SHARED_TEMP: &[&str] = &["/tmp", "/var/tmp"];

impl SecretPlaces<'_> {
    /// Sockets of other programs, and folders of them.
    pub fn sockets(&self) -> Vec<PathBuf> {
        let listed = FOLDERS.iter().chain(ELSEWHERE).map(PathBuf::from);
        let mut paths: Vec<PathBuf> = listed.collect();
        for folder in SHARED_TEMP {
            let names = [".X11-unix", ".ICE-unix"];
            paths.extend(names.map(|name| Path::new(folder).join(name)));
        }
        paths.extend(AT_HOME.iter().map(|name| self.home.join(name)));
        paths.extend(NAMED_FOLDERS.iter().filter_map(|name| self.folder(name)));
        // tmux makes one for each user there.
        let user = rustix::process::geteuid().as_raw();
        let tmux = self.folder("TMUX_TMPDIR");
        paths.extend(tmux.map(|folder| folder.join(format!("tmux-{user}"))));
        // Any folder may be named here, and the rest of it is no business of ours.
        let database = self.folder("PGHOST");
        paths.extend(database.iter().flat_map(|folder| sockets_in(folder)));
        paths.retain(|path| !self.home.starts_with(path));
        paths
    }
}

/// What stays in sight in the folders of sockets. `resolves`: whether the child may ask for addresses
/// of names.
pub fn beside_sockets(resolves: bool) -> Vec<PathBuf> {
    let mut paths: Vec<PathBuf> = BESIDE.iter().map(PathBuf::from).collect();
    if resolves {
        paths.extend(NAME_SERVICES.iter().map(PathBuf::from));
    }
    paths.push(RESOLVER.into());
    paths
}

/// The sockets that the values of variables name: of an agent, a terminal, a daemon, in whichever of
/// the forms (`unix:///run/x`, `unix:path=/run/x,guid=1`, `/tmp/tmux-1/default,1,0`).
pub fn named_sockets<'a>(values: impl Iterator<Item = &'a OsStr>) -> Vec<PathBuf> {
    let mut sockets: Vec<PathBuf> = values
        .flat_map(paths_in)
        .filter(|path| is_socket(path))
        .collect();
    sockets.sort();
    sockets.dedup();
    sockets
}

/// Every socket with a path that somebody on this machine has right now, by its real path.
pub fn sockets_in_use() -> Vec<PathBuf> {
    let table = std::fs::read("/proc/net/unix").unwrap_or_default();
    let there = listed_in(&table).into_iter().filter_map(|path| {
        let path = path.canonicalize().ok()?;
        is_socket(&path).then_some(path)
    });
    there.collect()
}

/// The absolute paths in the kernel's table of such sockets: the eighth word and all that follows.
fn listed_in(table: &[u8]) -> BTreeSet<PathBuf> {
    let lines = table.split(|byte| *byte == b'\n');
    let paths = lines.filter_map(|line| {
        let start = line.windows(2).position(|pair| pair == b" /")? + 1;
        Some(PathBuf::from(OsStr::from_bytes(&line[start..])))
    });
    paths.collect()
}

/// Whether a socket lies there, links followed.
fn is_socket(path: &Path) -> bool {
    path.metadata().is_ok_and(|it| it.file_type().is_socket())
}

/// The sockets that lie in a folder itself.
pub fn sockets_in(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let sockets = entries.filter(|it| it.file_type().is_ok_and(|kind| kind.is_socket()));
    sockets.map(|entry| entry.path()).collect()
}

/// The absolute paths in the value of a variable, which may be part of an address or of a list; the
/// value as a whole is one, too, whatever is in its name.
fn paths_in(value: &OsStr) -> Vec<PathBuf> {
    let bytes = value.as_bytes();
    let parts = bytes.split(|byte| matches!(byte, b':' | b',' | b';' | b'=' | b' '));
    let all = std::iter::once(bytes).chain(parts);
    let named = all.filter(|part| part.starts_with(b"/"));
    named
        .map(|part| PathBuf::from(OsString::from(OsStr::from_bytes(part))))
        .collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    fn sockets(var: &dyn Fn(&str) -> Option<OsString>) -> Vec<PathBuf> {
        let home = Path::new("/h");
        SecretPlaces { home, var }.sockets()
    }

    #[test]
    fn folders_of_sockets() {
        let found = sockets(&|name| {
            let value = match name {
                "XDG_RUNTIME_DIR" => "/h",
                "TMUX_TMPDIR" => "/t",
                "PGHOST" => "localhost",
                "SCREENDIR" => "/s",
                _ => return None,
            };
            Some(value.into())
        });
        let user = rustix::process::geteuid().as_raw();
        for path in ["/run", "/h/.docker/run", "/s", "/tmp/.X11-unix"] {
            assert!(found.contains(&path.into()), "{path}");
        }
        assert!(found.contains(&format!("/t/tmux-{user}").into()));
        // Whatever somebody set, the home folder itself stays.
        assert!(!found.contains(&"/h".into()));
        assert!(found.iter().all(|path| path.is_absolute()));
    }

    #[test]
    fn names_are_asked_for_only_with_a_network() {
        for resolves in [true, false] {
            let found = beside_sockets(resolves);
            assert!(found.contains(&RESOLVER.into()));
            assert_eq!(found.contains(&"/run/nscd".into()), resolves);
        }
    }

    #[test]
    fn the_kernels_table() {
        let table = b"Num       RefCount Protocol Flags    Type St Inode Path\n\
            0000000000000000: 00000002 00000000 00010000 0001 01 29 /run/a b\n\
            0000000000000000: 00000003 00000000 00000000 0001 03 30 /run/a b\n\
            0000000000000000: 00000002 00000000 00010000 0001 01 31 @/tmp/abstract\n\
            0000000000000000: 00000002 00000000 00000000 0002 01 32 relative\n\
            0000000000000000: 00000003 00000000 00000000 0001 03 33\n";
        let found: Vec<PathBuf> = listed_in(table).into_iter().collect();
        assert_eq!(found, [Path::new("/run/a b")]);
        assert!(listed_in(b"").is_empty());
    }

    #[test]
    fn sockets_that_variables_name() {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("s");
        let _listener = UnixListener::bind(&socket).unwrap();
        std::fs::write(folder.path().join("plain"), "").unwrap();
        let path = socket.display();
        for (value, is_named) in [
            (format!("{path}"), true),
            (format!("unix://{path}"), true),
            (format!("unix:path={path},guid=01"), true),
            (format!("tcp:host=x;unix:path={path}"), true),
            (format!("{path},123,0"), true),
            (format!("{path}lain"), false),
            (format!("{}", folder.path().display()), false),
            ("s".to_owned(), false),
            (String::new(), false),
        ] {
            let found = named_sockets([OsStr::new(&value)].into_iter());
            assert_eq!(!found.is_empty(), is_named, "{value}");
        }
        let real = socket.canonicalize().unwrap();
        assert!(sockets_in_use().contains(&real));
        assert_eq!(sockets_in(folder.path()), [socket]);
    }
}
