//! The attacks: what a child is not to do, and a command that tries it.

/// How it shows that an attack got through.
#[derive(Clone, Copy, Debug)]
pub(crate) enum AttackProof {
    /// The command succeeds.
    Exit,
    /// A file or folder outside, from the folder around home and project, is not what it was.
    Changed(&'static str),
    /// The decoy, a process outside, is gone.
    DecoyGone,
    /// What the session left is there for the guard: the guard's command succeeds.
    Found(&'static str),
}

/// One attack.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AttackCase {
    pub(crate) promise: &'static str,
    pub(crate) name: &'static str,
    pub(crate) script: &'static str,
    pub(crate) proof: AttackProof,
    /// Only where the config closes the network.
    pub(crate) without_network: bool,
}

const fn reads(name: &'static str, script: &'static str) -> AttackCase {
    AttackCase {
        promise: "keys and logins",
        name,
        script,
        proof: AttackProof::Exit,
        without_network: false,
    }
}

const fn runner(name: &'static str, script: &'static str) -> AttackCase {
    AttackCase {
        promise: "the runner's own",
        ..reads(name, script)
    }
}

const fn writes(name: &'static str, changed: &'static str, script: &'static str) -> AttackCase {
    AttackCase {
        promise: "files outside",
        name,
        script,
        proof: AttackProof::Changed(changed),
        without_network: false,
    }
}

const fn marks(name: &'static str, script: &'static str) -> AttackCase {
    AttackCase {
        promise: "modes, times, owners outside",
        ..reads(name, script)
    }
}

const fn leaves(name: &'static str, script: &'static str, found: &'static str) -> AttackCase {
    AttackCase {
        promise: "what decides a verdict",
        name,
        script,
        proof: AttackProof::Found(found),
        without_network: false,
    }
}

const fn reaches(name: &'static str, script: &'static str) -> AttackCase {
    AttackCase {
        promise: "sockets of other programs",
        ..reads(name, script)
    }
}

const fn calls(name: &'static str, script: &'static str) -> AttackCase {
    AttackCase {
        promise: "network, with `off`",
        name,
        script,
        proof: AttackProof::Exit,
        without_network: true,
    }
}

/// `$REAL` is the folder around home, project and temp folder, by its real path; `$SECRET` is in
/// every file that is to be hidden; `$DECOY` is a process outside; `$PORT`, `$ABSTRACT`,
/// `$ELSEWHERE` (below `/tmp`), `$NAMED` and `$OTHER` (nowhere special) are where somebody listens.
pub(crate) const ATTACKS: &[AttackCase] = &[
    reads(
        "a key by its path",
        "grep -q \"$SECRET\" \"$REAL/home/.ssh/id\"",
    ),
    reads(
        "a key through /proc/self/root",
        "grep -q \"$SECRET\" \"/proc/self/root$REAL/home/.ssh/id\"",
    ),
    reads(
        "a key through the root of any process",
        "cat /proc/[0-9]*/root\"$REAL/home/.ssh/id\" | grep -q \"$SECRET\"",
    ),
    reads(
        "a key through a link in the workspace",
        "ln -s \"$REAL/home/.ssh\" soft; grep -q \"$SECRET\" soft/id; found=$?; rm soft; exit $found",
    ),
    reads(
        "a key through a hard link",
        "ln \"$REAL/home/.netrc\" hard || exit 1; grep -q \"$SECRET\" hard; found=$?; rm hard; exit $found",
    ),
    reads(
        "a key in mounts of its own",
        "unshare -Urm sh -c 'umount -l \"$REAL/home/.ssh\" \"$REAL/home\"; grep -q \"$SECRET\" \"$REAL/home/.ssh/id\"'",
    ),
    reads(
        "a key from a moved folder",
        "mv \"$REAL/home/.ssh\" \"$REAL/home/.moved\" || exit 1; grep -q \"$SECRET\" \"$REAL/home/.moved/id\"; found=$?; mv \"$REAL/home/.moved\" \"$REAL/home/.ssh\"; exit $found",
    ),
    reads(
        "any key, by searching the home folder",
        "grep -rqs \"$SECRET\" \"$REAL/home\" --exclude-dir=state",
    ),
    reads(
        "the login of a cloud",
        "grep -q \"$SECRET\" \"$REAL/home/.aws/credentials\"",
    ),
    reads(
        "the token of a forge",
        "grep -q \"$SECRET\" \"$REAL/home/.config/gh/hosts.yml\"",
    ),
    reads(
        "the token in .npmrc",
        "grep -q \"$SECRET\" \"$REAL/home/.npmrc\"",
    ),
    reads(
        "the login of another agent",
        "grep -q \"$SECRET\" \"$REAL/home/.claude/.credentials.json\"",
    ),
    reads(
        "what was typed into shells",
        "grep -q \"$SECRET\" \"$REAL/home/.bash_history\"",
    ),
    reads(
        "a browser profile",
        "grep -rq \"$SECRET\" \"$REAL/home/.mozilla\"",
    ),
    reads(
        "a login in the project's git config",
        "grep -q \"$SECRET\" \"$REAL/repo/.git/config\"",
    ),
    reads(
        "a file of the user's checkout that git ignores",
        "grep -q \"$SECRET\" \"$REAL/repo/.env\"",
    ),
    reads(
        "a file of another work tree that git ignores",
        "grep -q \"$SECRET\" \"$REAL/linked/.env\"",
    ),
    runner(
        "variables of the runner",
        "cat /proc/[0-9]*/environ | tr '\\0' '\\n' | grep -q \"^ONLY_OUTSIDE=$SECRET\"",
    ),
    runner(
        "the runner's memory",
        "python3 -c 'import os\nfor p in filter(str.isdigit, os.listdir(\"/proc\")):\n  try:\n    if open(f\"/proc/{p}/comm\").read().strip() == \"runner\" and open(f\"/proc/{p}/mem\", \"rb\"): raise SystemExit(0)\n  except OSError: pass\nraise SystemExit(1)'",
    ),
    runner(
        "tracing the runner",
        "python3 -c 'import ctypes, os\nlibc = ctypes.CDLL(None)\nfor p in filter(str.isdigit, os.listdir(\"/proc\")):\n  try: name = open(f\"/proc/{p}/comm\").read().strip()\n  except OSError: continue\n  if name == \"runner\" and libc.ptrace(16, int(p), 0, 0) == 0:\n    os.waitpid(int(p), 0x40000000); libc.ptrace(17, int(p), 0, 0); raise SystemExit(0)\nraise SystemExit(1)'",
    ),
    runner(
        "folders of other projects",
        "grep -rq \"$SECRET\" \"$REAL/home/.local/state/runner/other\"",
    ),
    runner(
        "files of a fleet",
        "grep -rq \"$SECRET\" \"$REAL/repo/.runner/fleet\"",
    ),
    runner(
        "the key that signs passes",
        "find \"$REAL/home/.local/state/runner\" -name '*key*' -type f -exec cat {} + | grep -q .",
    ),
    writes(
        "a new file at home",
        "home/planted",
        "echo x > \"$REAL/home/planted\"",
    ),
    writes(
        "a shell's start file",
        "home/.profile",
        "echo x >> \"$REAL/home/.profile\"",
    ),
    writes(
        "a file cut to nothing",
        "home/.zshrc",
        ": > \"$REAL/home/.zshrc\"",
    ),
    writes(
        "a file moved away",
        "home/.config/moved",
        "mv \"$REAL/home/.config/moved\" \"$REAL/home/.config/gone\"",
    ),
    writes(
        "a file removed",
        "home/.config/removed",
        "rm -f \"$REAL/home/.config/removed\"",
    ),
    writes(
        "a folder beside the project",
        "planted",
        "mkdir \"$REAL/planted\"",
    ),
    writes(
        "the project's hooks",
        "repo/.git/hooks/post-commit",
        "echo x > \"$REAL/repo/.git/hooks/post-commit\"",
    ),
    writes(
        "the project's git config",
        "repo/.git/config",
        "git config --file \"$REAL/repo/.git/config\" core.pager planted",
    ),
    writes(
        "the project's branches",
        "repo/.git/refs/heads/planted",
        "git --git-dir \"$REAL/repo/.git\" branch planted",
    ),
    writes(
        "packages of cargo",
        "home/.cargo/registry/planted",
        "echo x > \"$REAL/home/.cargo/registry/planted\"",
    ),
    writes(
        "packages of npm",
        "home/.npm/planted",
        "echo x > \"$REAL/home/.npm/planted\"",
    ),
    writes(
        "the user's cache",
        "home/.cache/planted",
        "echo x > \"$REAL/home/.cache/planted\"",
    ),
    writes(
        "the shared temp folder",
        "tmp/planted",
        "echo x > \"$REAL/tmp/planted\"",
    ),
    writes(
        "a file through a link in the workspace",
        "home/.bashrc",
        "ln -s \"$REAL/home\" soft; echo x >> soft/.bashrc; rm soft",
    ),
    AttackCase {
        proof: AttackProof::DecoyGone,
        ..writes("a signal to a process outside", "", "kill -9 \"$DECOY\"")
    },
    marks("the mode of a file", "chmod 777 \"$REAL/home/marks\""),
    marks(
        "the time of a file",
        "touch -d 2001-01-01 \"$REAL/home/marks\"",
    ),
    marks(
        "an extended attribute",
        "python3 -c 'import os; os.setxattr(os.path.join(os.environ[\"REAL\"], \"home/marks\"), \"user.planted\", b\"x\")'",
    ),
    marks(
        "the group of a file",
        "chgrp \"$(id -g | sed 's/^0$/1/')\" \"$REAL/home/marks\"",
    ),
    leaves(
        "an entry in the cache of a package manager",
        "cd \"${XDG_CACHE_HOME:-$HOME/.cache}\" && echo x > planted-1",
        "test -e \"${XDG_CACHE_HOME:-$HOME/.cache}/planted-1\"",
    ),
    leaves(
        "an entry in the cache of a compiler",
        "cd \"${GOCACHE:-$HOME/.cache}\" && echo x > planted-2",
        "test -e \"${GOCACHE:-$HOME/.cache}/planted-2\"",
    ),
    leaves(
        "an entry in the cache of verdicts, by its path",
        "for folder in $REAL/home/.local/state/runner/*/caches/verdicts/xdg; do echo x > \"$folder/planted-3\"; done",
        "test -e \"${XDG_CACHE_HOME:-$HOME/.cache}/planted-3\"",
    ),
    leaves(
        "a file in the temp folder",
        "echo x > \"${TMPDIR:-/tmp}/planted-4\"",
        "test -e \"${TMPDIR:-/tmp}/planted-4\"",
    ),
    leaves(
        "a file in shared memory",
        "echo x > /dev/shm/planted-5",
        "test -e /dev/shm/planted-5",
    ),
    leaves(
        "shared memory of System V",
        "python3 -c 'import ctypes; exit(ctypes.CDLL(None).shmget(0x52554e31, 64, 0o1666) < 0)'",
        "python3 -c 'import ctypes; exit(ctypes.CDLL(None).shmget(0x52554e31, 64, 0o666) < 0)'",
    ),
    leaves(
        "a semaphore of System V",
        "python3 -c 'import ctypes; exit(ctypes.CDLL(None).semget(0x52554e31, 1, 0o1666) < 0)'",
        "python3 -c 'import ctypes; exit(ctypes.CDLL(None).semget(0x52554e31, 1, 0o666) < 0)'",
    ),
    leaves(
        "a message queue of System V",
        "python3 -c 'import ctypes; exit(ctypes.CDLL(None).msgget(0x52554e31, 0o1666) < 0)'",
        "python3 -c 'import ctypes; exit(ctypes.CDLL(None).msgget(0x52554e31, 0o666) < 0)'",
    ),
    leaves(
        "a message queue of POSIX",
        "python3 -c 'import ctypes; exit(ctypes.CDLL(\"librt.so.1\").mq_open(b\"/planted-7\", 0o102, 0o666, None) < 0)'",
        "python3 -c 'import ctypes; exit(ctypes.CDLL(\"librt.so.1\").mq_open(b\"/planted-7\", 2) < 0)'",
    ),
    leaves(
        "a file in the home folder",
        "echo x > \"$HOME/.planted-6\"",
        "test -e \"$HOME/.planted-6\"",
    ),
    leaves(
        "a process that goes on",
        "setsid sleep 98765 > /dev/null 2>&1 &",
        "for p in /proc/[0-9]*; do tr '\\0' ' ' < $p/cmdline | grep -q '^sleep 98765' && exit 0; done; exit 1",
    ),
    reaches(
        "a socket in the runtime folder",
        "python3 -c 'import os, socket; socket.socket(socket.AF_UNIX).connect(os.environ[\"REAL\"] + \"/run/daemon.sock\")'",
    ),
    reaches(
        "an abstract socket",
        "python3 -c 'import os, socket; socket.socket(socket.AF_UNIX).connect(\"\\0\" + os.environ[\"ABSTRACT\"])'",
    ),
    reaches(
        "a datagram to a socket in the runtime folder",
        "python3 -c 'import os, socket; socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).sendto(b\"x\", os.environ[\"REAL\"] + \"/run/datagrams.sock\")'",
    ),
    reaches(
        "a terminal's socket in another temp folder",
        "python3 -c 'import os, socket; socket.socket(socket.AF_UNIX).connect(os.environ[\"ELSEWHERE\"])'",
    ),
    reaches(
        "a socket in the home folder",
        "python3 -c 'import os, socket; socket.socket(socket.AF_UNIX).connect(os.path.join(os.environ[\"REAL\"], \"home\", \"agent.sock\"))'",
    ),
    reaches(
        "a socket in a known folder at home",
        "python3 -c 'import os, socket; socket.socket(socket.AF_UNIX).connect(os.path.join(os.environ[\"REAL\"], \"home\", \".docker/run/docker.sock\"))'",
    ),
    reaches(
        "a socket that a variable of the runner names",
        "python3 -c 'import os, socket; socket.socket(socket.AF_UNIX).connect(os.environ[\"NAMED\"])'",
    ),
    reaches(
        "a socket in any other place",
        "python3 -c 'import os, socket; socket.socket(socket.AF_UNIX).connect(os.environ[\"OTHER\"])'",
    ),
    reaches(
        "what other programs say to each other on the loopback",
        "python3 -c 'import socket; socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 768)'",
    ),
    reads(
        "keys that the kernel keeps for the user",
        "python3 -c 'import ctypes, platform; number = {\"x86_64\": 250, \"aarch64\": 219}[platform.machine()]; exit(ctypes.CDLL(None).syscall(number, 0, -4, 1) < 0)'",
    ),
    calls(
        "a server on the loopback of the host",
        "python3 -c 'import os, socket; socket.create_connection((\"127.0.0.1\", int(os.environ[\"PORT\"])), 5)'",
    ),
    calls(
        "the same through IPv6",
        "python3 -c 'import os, socket; socket.create_connection((\"::ffff:127.0.0.1\", int(os.environ[\"PORT\"])), 5)'",
    ),
    calls(
        "the same by a message that connects",
        "python3 -c 'import os, socket; socket.socket().sendto(b\"x\", 0x20000000, (\"127.0.0.1\", int(os.environ[\"PORT\"])))'",
    ),
    calls(
        "the same through another protocol (MPTCP)",
        "python3 -c 'import os, socket; socket.socket(socket.AF_INET, socket.SOCK_STREAM, 262).connect((\"127.0.0.1\", int(os.environ[\"PORT\"])))'",
    ),
    calls(
        "an abstract socket",
        "python3 -c 'import os, socket; socket.socket(socket.AF_UNIX).connect(\"\\0\" + os.environ[\"ABSTRACT\"])'",
    ),
];
