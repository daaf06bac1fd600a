//! Modes, times, owners and attributes: changed inside, refused outside, by every way that leads there.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::os::unix::net::UnixListener;
use std::path::Path;

use super::{Case, each};

/// What nobody may change of a file.
fn marks_of(path: &Path) -> (u32, i64, u32, u32) {
    let meta = fs::symlink_metadata(path).unwrap();
    (meta.mode(), meta.mtime(), meta.uid(), meta.gid())
}

#[test]
fn inside_they_can_be_changed() {
    each(|case| {
        case.works(
            "touch f && chmod 640 f && touch -d @1000 f && chown $(id -u):$(id -g) f && \
             ln -s f l && chmod 600 l && chown -h $(id -u) l && touch -h -d @2000 l && \
             mkdir -p d/e && cd d/e && chmod 644 ../../f && cd ../.. && \
             python3 -c 'import os; f = os.open(\"f\", os.O_RDONLY); os.fchmod(f, 0o641); os.utime(f, (5, 6)); os.chmod(\"/proc/self/fd/%d\" % f, 0o642)'",
        );
        let meta = fs::metadata(case.project.join("f")).unwrap();
        assert_eq!(meta.permissions().mode() & 0o777, 0o642, "{case}");
        assert_eq!(meta.mtime(), 6, "{case}");
        let link = fs::symlink_metadata(case.project.join("l")).unwrap();
        assert_eq!(link.mtime(), 2000, "{case}");
    });
}

#[test]
fn outside_they_cannot() {
    each(|case| {
        let victim = case.path("outside/file");
        let before = marks_of(&victim);
        for script in [
            "chmod 777 $BASE/outside/file",
            "touch -d @5 $BASE/outside/file",
            "chown $(id -u):$(id -g) $BASE/outside/file; chmod u+s $BASE/outside/file",
            "cd $BASE/outside && chmod 777 file",
            "ln -s $BASE/outside/file l && chmod 777 l",
            "ln -s $BASE/outside d && chmod 777 d/file",
            "chmod 777 /proc/self/root$BASE/outside/file",
            "chmod 777 < $BASE/outside/file /proc/self/fd/0",
            "python3 -c 'import os; f = os.open(os.environ[\"BASE\"] + \"/outside/file\", os.O_RDONLY); os.fchmod(f, 0o777)'",
            "python3 -c 'import os; f = os.open(os.environ[\"BASE\"] + \"/outside\", os.O_RDONLY); os.chmod(\"file\", 0o777, dir_fd=f)'",
            "python3 -c 'import os; f = os.open(os.environ[\"BASE\"] + \"/outside/file\", os.O_RDONLY); os.utime(f, (5, 6))'",
            "python3 -c 'import os; os.setxattr(os.environ[\"BASE\"] + \"/outside/file\", \"user.x\", b\"1\")'",
            "(sleep 0.01; chmod 777 $BASE/outside/file) & wait",
            "setsid sh -c 'chmod 777 $BASE/outside/file'",
        ] {
            let ran = case.sh(script);
            assert_eq!(marks_of(&victim), before, "{case}: {script}: {ran:?}");
        }
        let attribute = rustix::fs::getxattr(&victim, "user.x", &mut [0; 8]);
        assert!(attribute.is_err(), "{case}");
    });
}

/// What the path of a call names while it is looked at is what is changed, or nothing.
#[test]
fn links_that_move_about_lead_nowhere() {
    each(|case| {
        let victim = case.path("outside/file");
        let before = marks_of(&victim);
        case.works(
            "touch mine && python3 -c '
import os, threading
target = os.environ[\"BASE\"] + \"/outside/file\"
done = False
def swap():
    while not done:
        for to in (\"mine\", target):
            try: os.unlink(\"l2\")
            except OSError: pass
            os.symlink(to, \"l2\"); os.replace(\"l2\", \"l\")
os.symlink(\"mine\", \"l\")
threads = [threading.Thread(target=swap)]
for t in threads: t.start()
for _ in range(3000):
    try: os.chmod(\"l\", 0o777)
    except OSError: pass
done = True
for t in threads: t.join()'",
        );
        assert_eq!(marks_of(&victim), before, "{case}");
    });
}

/// Sockets in sight stay within reach, with and without a path, and TCP.
#[test]
fn connections_that_are_allowed() {
    each(|mut case| {
        let path = case.path("outside/daemon.sock");
        let outside = case.path("outside");
        case.option("--sight", &outside);
        let listener = UnixListener::bind(&path).unwrap();
        case.give_away();
        let ran = case.works(
            "python3 -c '
import socket, os, threading
s = socket.socket(socket.AF_UNIX); s.connect(os.environ[\"BASE\"] + \"/outside/daemon.sock\"); print(\"path\")
os.chdir(os.environ[\"BASE\"] + \"/outside\")
s = socket.socket(socket.AF_UNIX); s.connect(\"daemon.sock\"); print(\"relative\")
for family, address in ((socket.AF_UNIX, \"\\0mine\"), (socket.AF_INET, (\"127.0.0.1\", 0))):
    l = socket.socket(family); l.bind(address); l.listen()
    s = socket.socket(family); s.connect(l.getsockname()); l.accept(); print(\"own\")
s = socket.socket(family); s.setblocking(False)
print(s.connect_ex(l.getsockname()) in (0, 115))
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.connect((\"127.0.0.1\", 9)); print(\"datagram\")
try: socket.socket(socket.AF_UNIX).connect(\"nowhere\")
except FileNotFoundError: print(\"nowhere\")
'",
        );
        drop(listener);
        let expected = "path\nrelative\nown\nown\nTrue\ndatagram\nnowhere\n";
        assert_eq!(ran, expected, "{case}");
    });
}

/// A socket belongs to whoever connects, also where root has become another user inside.
#[test]
fn users_inside_stay_apart() {
    each(|case: Case| {
        if case.nobody || !rustix::process::geteuid().is_root() {
            return;
        }
        let ran = case.sh(
            "touch f && chmod 755 . && setpriv --reuid 12345 --regid 12345 --clear-groups chmod 777 f; stat -c %a f",
        );
        assert!(!ran.stdout.contains("777"), "{case}: {ran:?}");
    });
}
