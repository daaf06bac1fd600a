//! What can be read and what cannot.

use std::os::unix::net::UnixListener;

use crate::{Case, each};

/// Each must fail or show nothing; `$HOME/.ssh` and `$HOME/.netrc` are hidden.
const ATTEMPTS: &[&str] = &[
    "cat $HOME/.ssh/id",
    "cat $HOME/.netrc",
    "cat $HOME/.ssh/../.ssh/id",
    "cat /proc/self/root$HOME/.ssh/id",
    "cd $HOME/.ssh && cat id",
    "ln -s $HOME/.ssh/id soft; cat soft",
    "ln $HOME/.netrc hard && cat hard",
    "cat $HOME/linked/id",
    "cp -r $HOME/.ssh copied; cat copied/id",
    "tar c $HOME/.ssh | grep -a secret",
    "python3 -c 'print(open(\"/proc/self/cwd/../home/.netrc\").read())'",
    "python3 -c 'import mmap,os; f = os.open(os.environ[\"HOME\"] + \"/.netrc\", os.O_RDONLY); print(mmap.mmap(f, 0, prot=mmap.PROT_READ)[:])'",
    "unshare -Urm sh -c 'umount -l $HOME/.ssh; umount -l $HOME/.netrc; cat $HOME/.ssh/id $HOME/.netrc'",
    "umount -l $HOME/.ssh; cat $HOME/.ssh/id",
    "mv $HOME/.ssh $HOME/.moved; cat $HOME/.moved/id",
    "cat $HOME/.ssh/deep/er/key",
];

fn with_secrets(case: &mut Case) {
    case.write("home/.ssh/id", "secret\n");
    case.write("home/.ssh/known", "hosts\n");
    case.write("home/.ssh/deep/er/key", "secret\n");
    case.write("home/.netrc", "secret\n");
    case.write("home/.profile", "open\n");
    case.write("home/.config/tool", "open\n");
    case.write("home/.config/gh/hosts.yml", "secret\n");
    std::os::unix::fs::symlink(".ssh", case.path("home/linked")).unwrap();
    for name in ["home/.ssh", "home/.netrc", "home/.config/gh", "home/absent"] {
        case.option("--hide", &case.path(name));
    }
    case.option("--sight", &case.path("home/.ssh/known"));
}

#[test]
fn secrets_are_hidden_and_what_lies_beside_them_is_not() {
    each(|mut case| {
        with_secrets(&mut case);
        for attempt in ATTEMPTS {
            let ran = case.sh(attempt);
            let shown = format!("{}{}", ran.stdout, ran.stderr);
            assert!(!shown.contains("secret"), "{case}: {attempt}: {ran:?}");
        }
        assert_eq!(case.read("home/.ssh/id"), "secret\n");
        for (script, expected) in [
            ("cat $HOME/.profile", "open\n"),
            ("cat $HOME/.config/tool", "open\n"),
            ("cat $HOME/.ssh/known", "hosts\n"),
            ("echo a > x && cat x", "a\n"),
            ("echo a > $TMPDIR/x && cat $TMPDIR/x", "a\n"),
            ("cat $BASE/outside/file", "untouched"),
            ("ls $HOME >/dev/null && echo a | cat /dev/stdin", "a\n"),
            ("python3 -c 'print(1)' && git --version >/dev/null", "1\n"),
        ] {
            assert_eq!(case.works(script), expected, "{case}: {script}");
        }
    });
}

/// What lies in a hidden folder and is writable or shown stays so: the caches in the runner's own
/// folder.
#[test]
fn single_paths_in_a_hidden_folder() {
    each(|mut case| {
        case.write("home/state/mine/file", "mine\n");
        case.write("home/state/other/file", "secret\n");
        case.option("--hide", &case.path("home/state"));
        case.option("--ro", &case.path("home/state"));
        case.option("--rw", &case.path("home/state/mine"));
        assert_eq!(case.works("cat $HOME/state/mine/file"), "mine\n");
        case.works("echo new > $HOME/state/mine/new");
        assert_eq!(case.read("home/state/mine/new"), "new\n");
        let ran = case.sh("cat $HOME/state/other/file");
        assert!(!ran.stdout.contains("secret"), "{case}: {ran:?}");
    });
}

/// What is made of memory in place of something else takes nothing in, and shared memory is apart
/// from the devices, so that what is in it can be counted.
#[test]
fn nothing_is_written_to_what_hides() {
    each(|mut case| {
        if case.mechanism != "bubblewrap" {
            return;
        }
        let folder = case.path("home/keys");
        std::fs::create_dir_all(&folder).unwrap();
        case.give_away();
        case.option("--hide", &folder);
        let ran = case.sh(
            "for place in $HOME/keys /dev; do echo x > $place/planted && echo wrote $place; done 2> /dev/null
             echo x > /dev/null && echo x > /dev/shm/x && echo shared
             [ $(stat -c %d /dev) != $(stat -c %d /dev/shm) ] && echo apart",
        );
        assert_eq!(ran.stdout, "shared\napart\n", "{case}: {ran:?}");
    });
}

/// Whoever listens somewhere is not to be reached unless the place was opened: nothing hides it.
#[test]
fn sockets_outside_under_landlock() {
    each(|case| {
        if case.mechanism != "landlock" {
            return;
        }
        let _listener = UnixListener::bind(case.path("outside/daemon.sock")).unwrap();
        case.give_away();
        let ran = case.sh(
            "python3 -c 'import socket,os; s = socket.socket(socket.AF_UNIX); s.connect(os.environ[\"BASE\"] + \"/outside/daemon.sock\"); print(\"in\")'",
        );
        assert!(!ran.stdout.contains("in"), "{case}: {ran:?}");
    });
}

/// Landlock has no say about sockets with a path; its monitor has.
#[test]
fn hidden_sockets() {
    each(|mut case| {
        let path = case.path("home/daemon.sock");
        let _listener = UnixListener::bind(&path).unwrap();
        case.give_away();
        case.option("--hide", &path);
        let ran = case.sh(
            "python3 -c 'import socket,os; s = socket.socket(socket.AF_UNIX); s.connect(os.environ[\"HOME\"] + \"/daemon.sock\"); print(\"in\")'",
        );
        assert!(!ran.stdout.contains("in"), "{case}: {ran:?}");
    });
}
