//! What can be written and what cannot.

use std::fs::{self, File};
use std::os::fd::OwnedFd;
use std::os::unix::fs::symlink;
use std::process::Stdio;

use crate::{Case, Ran, each, with};

/// Each must fail and change nothing; `$BASE/outside` is not for the child.
const ATTEMPTS: &[&str] = &[
    "echo x > $BASE/outside/file",
    "echo x >> $BASE/outside/file",
    "echo x > $BASE/outside/new",
    "echo x > $BASE/new",
    "echo x > ../new",
    "echo x > ../outside/file",
    "echo x > sub/../../outside/file",
    "echo x > $HOME/file",
    "echo x > $HOME/.profile",
    "echo x > /etc/runner-sandbox-test",
    "echo x > /usr/runner-sandbox-test",
    "echo x > /runner-sandbox-test",
    "mkdir $BASE/outside/dir",
    "mkfifo $BASE/outside/fifo",
    "ln -s x $BASE/outside/link",
    "rm $BASE/outside/file",
    "rm -rf $BASE/outside",
    "rmdir $HOME/empty",
    "mv $BASE/outside $BASE/elsewhere",
    "mv $BASE/outside/file $BASE/outside/other",
    "mv $BASE/outside/file .",
    "mv $BASE/project $BASE/moved",
    "touch mine && mv mine $BASE/outside/file",
    "touch mine && mv mine $BASE/outside/mine",
    "touch mine2 && ln mine2 $BASE/outside/mine2",
    "truncate -s 0 $BASE/outside/file",
    "ln $BASE/outside/file hard",
    "ln -s $BASE/outside soft; echo x > soft/file",
    "ln -s $BASE/outside/file soft2; echo x > soft2",
    "echo x > planted/file",
    "cd / && echo x > $BASE/outside/file",
    "cp /dev/null $BASE/outside/file",
    "dd if=/dev/zero of=$BASE/outside/file count=1 conv=notrunc",
    "python3 -c 'import os; os.truncate(os.environ[\"BASE\"] + \"/outside/file\", 0)'",
    "python3 -c 'import os; os.open(os.environ[\"BASE\"] + \"/outside/file\", os.O_RDONLY | os.O_TRUNC)'",
    "setsid -w sh -c 'echo x > $BASE/outside/file'",
    "echo x > /proc/1/root$BASE/outside/file",
    "echo x > /proc/self/root$BASE/outside/file",
    "cd /proc/self/root$BASE/outside && echo x > file",
    "unshare -Urm sh -c 'mount -o remount,rw,bind / && echo x > $BASE/outside/file'",
    "unshare -Urm sh -c 'mount -t tmpfs none /mnt && mount --bind / /mnt && echo x > /mnt$BASE/outside/file'",
    "mount -o remount,rw / && echo x > $BASE/outside/file",
    "mount -o remount,rw,bind / && echo x > $BASE/outside/file",
    "umount -l /proc",
    "mknod disk b 254 0",
    "echo x > /proc/sys/kernel/core_pattern",
    "echo x > /proc/sys/kernel/hostname",
];

#[test]
fn nothing_outside_can_be_written() {
    each(|case| {
        fs::create_dir(case.path("project/sub")).unwrap();
        fs::create_dir(case.path("home/empty")).unwrap();
        symlink(case.path("outside"), case.path("project/planted")).unwrap();
        case.give_away();
        let before = listing(&case);
        for attempt in ATTEMPTS {
            let ran = case.sh(attempt);
            assert_ne!(ran.code, Some(0), "{case}: {attempt}: {ran:?}");
            assert_ne!(ran.code, Some(99), "{case}: {attempt}: {ran:?}");
            assert_eq!(case.read("outside/file"), "untouched", "{case}: {attempt}");
            assert_eq!(case.read("home/file"), "untouched", "{case}: {attempt}");
        }
        assert_eq!(listing(&case), before, "{case}");
    });
}

/// Everything beside the project, so that whatever came or went shows.
fn listing(case: &Case) -> String {
    let ran = Ran::of(
        &case
            .plain(&[
                "sh",
                "-c",
                "find $BASE -path $BASE/project -prune -o -print | sort",
            ])
            .output()
            .unwrap(),
    );
    assert!(ran.stdout.contains("outside/file"), "{ran:?}");
    ran.stdout
}

/// Landlock confines contents and names. Modes, owners and times of others' files it leaves alone.
#[test]
fn metadata_outside_is_safe_in_bubblewrap() {
    with("bubblewrap", |case| {
        for attempt in [
            "chmod 777 $BASE/outside/file",
            "touch $BASE/outside/file",
            "touch -d 2001-01-01 $BASE/outside",
            "chown $(id -u) $BASE/outside/file",
        ] {
            let ran = case.sh(attempt);
            assert_ne!(ran.code, Some(0), "{case}: {attempt}: {ran:?}");
            assert!(
                ran.stderr.contains("Read-only"),
                "{case}: {attempt}: {ran:?}"
            );
        }
    });
}

#[test]
fn what_is_allowed_works() {
    each(|mut case| {
        let folder = case.write("caches/one/known", "old").with_file_name("");
        let file = case.write("single", "old");
        case.option("--rw", &folder);
        case.option("--rw", &file);
        case.option("--rw", &case.path("absent"));
        if !case.is_bubblewrap() {
            // Landlock cannot give a child one of its own.
            case.option("--rw", std::path::Path::new("/dev/shm"));
        }
        for script in [
            "echo x > new && echo y >> new && rm new",
            "mkdir -p a/b/c && touch a/b/c/f && mv a/b/c a/c && rm -r a",
            "mkdir d1 d2 && touch d1/f && mv d1/f d2/f && ln d2/f d1/f && ln -s f d1/g",
            "mkfifo fifo && rm fifo",
            "truncate -s 10 sized && chmod 600 sized",
            "echo x > $TMPDIR/file && mktemp && mktemp -d",
            "cp d2/f $TMPDIR/f && mv $TMPDIR/f copied",
            "echo new > $BASE/caches/one/known && mkdir $BASE/caches/one/dir",
            "echo new > $BASE/single",
            "echo x > /dev/null && echo x > /dev/zero",
            "f=/dev/shm/runner-sandbox-$$ && echo x > $f && rm $f",
            "head -c 4 /dev/urandom > random",
            "(echo out > /dev/stdout && echo err > /dev/stderr) 2>&1 | grep -q err",
            "cat /etc/passwd > copy",
            "test -r $BASE/outside/file && ls / > /dev/null",
            "cat /proc/self/status > /dev/null && ps > /dev/null",
            "test \"$(pwd)\" = $BASE/project",
            "python3 -c 'import os; a, b = os.openpty(); os.write(b, b\"x\")'",
            "python3 -c 'import multiprocessing as m; m.Semaphore(1).acquire()'",
            "python3 -c 'import socket; s = socket.socket(socket.AF_UNIX); s.bind(\"sock\"); s.listen()'",
            "python3 -c 'import socket; s = socket.socket(); s.bind((\"127.0.0.1\", 0)); s.listen()'",
        ] {
            case.works(script);
        }
        assert_eq!(case.read("caches/one/known"), "new\n");
        assert_eq!(case.read("single"), "new\n");
        let ran = case.sh("echo x > $BASE/caches/two");
        assert_ne!(ran.code, Some(0), "{case}: {ran:?}");
    });
}

/// What the supervisor hands down stays usable, whatever it leads to: a log, a pipe.
#[test]
fn an_open_file_is_not_taken_away() {
    each(|case| {
        let log = File::create(case.path("outside/log")).unwrap();
        let status = case
            .contained(&["sh", "-c", "echo said"])
            .stdout(Stdio::from(log))
            .status()
            .unwrap();
        assert!(status.success());
        assert_eq!(case.read("outside/log"), "said\n");
    });
}

/// Why nothing but the three standard streams may be handed down: through an open folder bubblewrap
/// is left again, for it is a view of the files and not a rule about them.
#[test]
fn an_open_folder_leads_out_of_bubblewrap_only() {
    each(|case| {
        let folder = OwnedFd::from(File::open(case.path("outside")).unwrap());
        let ran = Ran::of(
            &case
                .contained(&["sh", "-c", "echo x > /proc/self/fd/0/through"])
                .stdin(Stdio::from(folder))
                .output()
                .unwrap(),
        );
        assert_eq!(ran.code == Some(0), case.is_bubblewrap(), "{case}: {ran:?}");
    });
}

/// Root keeps what it needs to build and install.
#[test]
fn root_is_still_root() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    for mechanism in ["bubblewrap", "landlock"] {
        if !crate::is_there(mechanism, &crate::detect()) {
            continue;
        }
        let case = Case::new(mechanism, false);
        fs::write(case.path("project/theirs"), "").unwrap();
        std::os::unix::fs::chown(case.path("project/theirs"), Some(1234), Some(1234)).unwrap();
        case.works(
            "test $(id -u) = 0 && echo x > theirs && chmod 600 theirs && chown 77:77 theirs",
        );
        // And nothing that would let it out.
        let kept = case.works("grep CapEff /proc/self/status");
        let kept = u64::from_str_radix(kept.split_whitespace().last().unwrap(), 16).unwrap();
        let sys_admin = 1 << 21;
        let mknod = 1 << 27;
        let read_search = 1 << 2;
        assert_eq!(
            kept & (sys_admin | mknod | read_search),
            0,
            "{case}: {kept:x}"
        );
    }
}

/// What is written to such a folder goes elsewhere, also through another path, and nothing else
/// changes for the program.
#[test]
fn layered_folders_stay_as_they_are() {
    each(|mut case| {
        if !case.is_bubblewrap() {
            return;
        }
        case.write("home/cache, a:b/pkg/file", "untouched");
        case.option("--layer", &case.path("home/cache, a:b"));
        case.option("--rw", &case.path("home/cache, a:b"));
        case.option("--hide", &case.path("home/cache, a:b.changes"));
        let shown = case.works(
            "cd \"$HOME/cache, a:b\" && echo mine > pkg/new && echo mine > pkg/file && rm -rf /nowhere && cat pkg/*",
        );
        assert_eq!(shown, "mine\nmine\n", "{case}");
        assert_eq!(case.read("home/cache, a:b/pkg/file"), "untouched");
        assert!(!case.path("home/cache, a:b/pkg/new").exists());
        assert_eq!(
            case.read("home/cache, a:b.changes/changed/pkg/new"),
            "mine\n"
        );
        for attempt in [
            "rm -rf \"$HOME/cache, a:b/pkg\"",
            "umount \"$HOME/cache, a:b\"; echo mine > \"$HOME/cache, a:b/pkg/file\"",
            "unshare -Urm sh -c 'umount -l \"$HOME/cache, a:b\"; echo mine > \"$HOME/cache, a:b/pkg/file\"'",
            "mv \"$HOME/cache, a:b\" \"$HOME/moved\"",
        ] {
            case.sh(attempt);
            assert_eq!(
                case.read("home/cache, a:b/pkg/file"),
                "untouched",
                "{case}: {attempt}"
            );
        }
    });
}
