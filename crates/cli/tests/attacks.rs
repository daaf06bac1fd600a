//! Attacks on what containment promises, by sessions, setup and guards, under each mechanism, as
//! root and as an ordinary user. docs/containment.md has the table: no cell may get worse.
//! `cargo xtask attack` writes it.

#![allow(clippy::unwrap_used)] // A test that cannot go on has failed.

mod agent_support;
mod attack_support;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::net::TcpListener;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::os::unix::net::{SocketAddr, UnixDatagram, UnixListener};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

use agent_support::contained::{ALL, TRY, with_mechanism};
use agent_support::{BIN, GOAL};
use attack_support::list::{ATTACKS, AttackCase, AttackProof};
use runner_testkit::TestRepo;
use serde_json::json;

const SECRET: &str = "a-secret-of-the-user";

/// The user that root becomes to be an ordinary one.
const NOBODY: u32 = 65_534;

const DOCS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/containment.md");
const BEGIN: &str = "<!-- attacks: written by `cargo xtask attack` -->";
const END: &str = "<!-- end of attacks -->";

/// Which children got through, by attack and mechanism.
type AttackResults = BTreeMap<(usize, &'static str), BTreeSet<String>>;

/// What setup leaves in a clean checkout is there for the guard of that checkout, which is what it is
/// for: only where sessions work does it leave anything to a verdict.
const BESIDE_SESSIONS: &str =
    "case ${XDG_CACHE_HOME:-none} in */caches/sessions/*|none) ;; *) exit 1;; esac; ";

/// A machine with everything that an attack is after.
struct AttackGround {
    repo: TestRepo,
    decoy: Child,
    /// Both listen for as long as this lives.
    _tcp: TcpListener,
    _unix: (Vec<UnixListener>, UnixDatagram),
    /// Outside the folder of the test, which lies in a temp folder.
    _folders: [tempfile::TempDir; 2],
}

/// Removes what the machine keeps for all once a child without a sandbox has left it.
fn remove_shared(repo: &TestRepo) {
    let _ = fs::remove_file("/dev/shm/planted-5");
    for kind in ["-M", "-S", "-Q"] {
        let removed = repo.hermetic("ipcrm").args([kind, "0x52554e31"]).output();
        assert!(removed.is_ok(), "{removed:?}");
    }
    let program = "import ctypes; ctypes.CDLL('librt.so.1').mq_unlink(b'/planted-7')";
    let removed = repo.hermetic("python3").args(["-c", program]).output();
    assert!(removed.is_ok(), "{removed:?}");
}

impl Drop for AttackGround {
    fn drop(&mut self) {
        remove_shared(&self.repo);
        let _ = self.decoy.kill();
        let _ = self.decoy.wait();
    }
}

impl AttackGround {
    fn new(mechanism: &str, nobody: bool, without_network: bool) -> Self {
        let mut repo = with_mechanism(mechanism);
        let root = repo.root().to_owned();
        // What an earlier one without a sandbox left for all.
        remove_shared(&repo);
        let write = |name: &str, text: &str| {
            let path = root.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        for name in [
            ".ssh/id",
            ".netrc",
            ".aws/credentials",
            ".config/gh/hosts.yml",
            ".claude/.credentials.json",
            ".bash_history",
            ".mozilla/firefox/x/logins.json",
            ".local/state/runner/other/secret",
        ] {
            write(&format!("home/{name}"), SECRET);
        }
        write(
            "home/.npmrc",
            &format!("//r.example/:_authToken={SECRET}\n"),
        );
        for name in [
            ".profile",
            ".bashrc",
            ".zshrc",
            ".config/moved",
            ".config/removed",
            ".cargo/registry/x",
            ".npm/x",
            ".cache/x",
            "marks",
        ] {
            write(&format!("home/{name}"), "mine\n");
        }
        fs::create_dir_all(root.join("run")).unwrap();
        let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = tcp.local_addr().unwrap().port();
        let abstract_name = format!("runner-attack-{}-{port}", std::process::id());
        let address = SocketAddr::from_abstract_name(&abstract_name).unwrap();
        let folders = ["/tmp", env!("CARGO_TARGET_TMPDIR")]
            .map(|folder| tempfile::tempdir_in(folder).unwrap());
        let [elsewhere, named] = [0, 1].map(|it: usize| folders[it].path().join("sock"));
        let other = folders[1].path().join("other");
        fs::create_dir_all(root.join("home/.docker/run")).unwrap();
        let listeners = [
            root.join("run/daemon.sock"),
            root.join("home/agent.sock"),
            root.join("home/.docker/run/docker.sock"),
            elsewhere.clone(),
            named.clone(),
            other.clone(),
        ];
        let mut listeners = listeners
            .into_iter()
            .map(|path| UnixListener::bind(path).unwrap())
            .collect::<Vec<_>>();
        listeners.push(UnixListener::bind_addr(&address).unwrap());
        if nobody {
            for folder in &folders {
                give_away(folder.path());
            }
        }
        let unix = (
            listeners,
            UnixDatagram::bind(root.join("run/datagrams.sock")).unwrap(),
        );
        let mut sleep = repo.hermetic("sleep");
        sleep.arg("100000").stdout(Stdio::null());
        if nobody {
            sleep.uid(NOBODY).gid(NOBODY);
        }
        let decoy = sleep.spawn().unwrap();
        repo.env("ONLY_OUTSIDE", SECRET);
        repo.env("XDG_RUNTIME_DIR", root.join("run"));
        let address = format!("unix:path={},guid=0", named.display());
        repo.env("DBUS_SESSION_BUS_ADDRESS", address);

        let words = format!(
            "REAL='{}'; PORT={port}; ABSTRACT='{abstract_name}'; DECOY={}; ELSEWHERE='{}'; NAMED='{}'; OTHER='{}'; export REAL PORT ABSTRACT DECOY ELSEWHERE NAMED OTHER\n\
             SECRET=$(printf '%s%s' a-secret -of-the-user)\nexport SECRET\n",
            root.display(),
            decoy.id(),
            elsewhere.display(),
            named.display(),
            other.display()
        );
        let script = |who: &str| {
            let mut text = format!("{TRY}{words}");
            for (number, attack) in tried(without_network) {
                let command = match (attack.proof, who) {
                    (AttackProof::Found(found), "guard") => found.to_owned(),
                    (AttackProof::Found(_), "setup") => {
                        format!("{BESIDE_SESSIONS}{}", attack.script)
                    }
                    _ => attack.script.to_owned(),
                };
                // Quoted as one word.
                let command = command.replace('\'', "'\\''");
                writeln!(text, "try {who}-{number} '{command}'").unwrap();
            }
            text
        };
        repo.agent(&format!("{}out done tried", script("session")));
        let (setup, guard) = (script("setup"), script("guard"));
        repo.config(|config| {
            config.set("workspace.setup", json!(["sh", "-c", setup]));
            if without_network {
                for kind in ["session", "setup", "guard"] {
                    config.set(&format!("sandbox.network.{kind}"), "off");
                }
            }
        });
        repo.start_run(GOAL, &["sh", "-c", &guard]);
        write("repo/.runner/fleet/secret", SECRET);
        // What the user has beside what is committed.
        let linked = root.join("linked").display().to_string();
        repo.git(&["worktree", "add", "--quiet", "--detach", &linked]);
        repo.git(&["config", "http.extraHeader", SECRET]);
        let exclude = root.join("repo/.git/info/exclude");
        let before = fs::read_to_string(&exclude).unwrap_or_default();
        write("repo/.git/info/exclude", &format!("{before}\n.env\n"));
        for name in ["repo/.env", "linked/.env"] {
            write(name, SECRET);
        }
        AttackGround {
            repo,
            decoy,
            _tcp: tcp,
            _unix: unix,
            _folders: folders,
        }
    }

    fn step(&self, nobody: bool) {
        let mut command = self.repo.runner_cmd(&["step"]);
        if nobody {
            give_away(self.repo.root());
            // The build folder may be closed to others.
            let binary = self.repo.root().join("runner");
            // By another process: one that this one forks meanwhile would hold the file open.
            let copied = self.repo.hermetic("cp").arg(BIN).arg(&binary).status();
            assert!(copied.unwrap().success());
            let program = command.get_program().to_owned();
            assert_eq!(program, BIN);
            let mut other = self.repo.hermetic(&binary);
            other.arg("step").uid(NOBODY).gid(NOBODY);
            command = other;
        }
        self.repo.spawn(command).wait().success();
    }

    /// Which children got through with an attack.
    fn through(&mut self, number: usize, before: &AttackSnapshot) -> BTreeSet<String> {
        let attack = &ATTACKS[number];
        let logs = ["setup.log", "executor.log", "guard.log"]
            .map(|name| fs::read_to_string(self.repo.iteration(1).join(name)).unwrap_or_default());
        let says = |who: &str, word: &str| {
            let line = format!("tried {who}-{number}: {word}");
            logs.iter().any(|log| log.lines().any(|it| it == line))
        };
        let whos = ["session", "setup", "guard"];
        let all = || whos.map(str::to_owned).into_iter().collect();
        for who in whos {
            let was_tried = says(who, "yes") || says(who, "no");
            assert!(was_tried, "{who} did not try {}: {logs:?}", attack.name);
        }
        match attack.proof {
            AttackProof::Exit => {
                let through = whos.iter().filter(|who| says(who, "yes"));
                through.map(|who| (*who).to_owned()).collect()
            }
            AttackProof::Changed(path) if self.look(path) != before.paths[path] => all(),
            AttackProof::DecoyGone if self.decoy.try_wait().unwrap().is_some() => all(),
            AttackProof::Found(_) if says("guard", "yes") => all(),
            _ => BTreeSet::new(),
        }
    }

    fn look(&self, path: &str) -> String {
        let path = self.repo.root().join(path);
        let Ok(meta) = path.symlink_metadata() else {
            return "absent".to_owned();
        };
        let text = fs::read_to_string(&path).unwrap_or_default();
        format!("{:o} {} {text}", meta.permissions().mode(), meta.size())
    }

    fn snapshot(&self) -> AttackSnapshot {
        let paths = ATTACKS.iter().filter_map(|attack| match attack.proof {
            AttackProof::Changed(path) => Some((path, self.look(path))),
            _ => None,
        });
        AttackSnapshot {
            paths: paths.collect(),
        }
    }
}

/// What lay outside.
struct AttackSnapshot {
    paths: BTreeMap<&'static str, String>,
}

fn tried(without_network: bool) -> impl Iterator<Item = (usize, &'static AttackCase)> {
    let all = ATTACKS.iter().enumerate();
    all.filter(move |(_, attack)| attack.without_network == without_network)
}

fn give_away(path: &Path) {
    std::os::unix::fs::lchown(path, Some(NOBODY), Some(NOBODY)).unwrap();
    if path.is_dir() && !path.is_symlink() {
        for entry in fs::read_dir(path).unwrap() {
            give_away(&entry.unwrap().path());
        }
    }
}

fn try_all() -> AttackResults {
    let mut results = AttackResults::new();
    let is_root = rustix::process::geteuid().is_root();
    for mechanism in ALL {
        for nobody in [false, true] {
            if nobody && !is_root {
                continue;
            }
            for without_network in [false, true] {
                let mut ground = AttackGround::new(mechanism, nobody, without_network);
                let before = ground.snapshot();
                ground.step(nobody);
                for (number, _) in tried(without_network) {
                    let through = ground.through(number, &before);
                    results
                        .entry((number, mechanism))
                        .or_default()
                        .extend(through);
                }
            }
        }
    }
    results
}

/// A cell of the table.
fn cell(through: &BTreeSet<String>) -> String {
    match through.len() {
        0 => "blocked".to_owned(),
        3 => "gets through".to_owned(),
        _ => {
            let whos: Vec<&str> = through.iter().map(String::as_str).collect();
            format!("gets through: {}", whos.join(", "))
        }
    }
}

fn through_of(cell: &str) -> BTreeSet<String> {
    let all = ["session", "setup", "guard"];
    match cell.strip_prefix("gets through") {
        None => BTreeSet::new(),
        Some("") => all.map(str::to_owned).into_iter().collect(),
        Some(rest) => {
            let whos = rest.trim_start_matches(':').split(',');
            whos.map(|who| who.trim().to_owned()).collect()
        }
    }
}

fn table(results: &AttackResults) -> String {
    let mut text =
        "| promise | attack | bubblewrap | Landlock | no sandbox |\n|---|---|---|---|---|\n"
            .to_owned();
    for (number, attack) in ATTACKS.iter().enumerate() {
        let cells = ALL.map(|mechanism| cell(&results[&(number, mechanism)]));
        writeln!(
            text,
            "| {} | {} | {} |",
            attack.promise,
            attack.name,
            cells.join(" | ")
        )
        .unwrap();
    }
    text
}

/// The part of the page between the marks.
fn parts(page: &str) -> Option<(&str, &str, &str)> {
    let (before, rest) = page.split_once(BEGIN)?;
    let (table, after) = rest.split_once(END)?;
    Some((before, table, after))
}

#[test]
fn no_attack_gets_further_than_the_table_says() {
    let results = try_all();
    let page_path = PathBuf::from(DOCS);
    let page = fs::read_to_string(&page_path).unwrap();
    let (before, recorded, after) = parts(&page).expect("the page has a table of attacks");
    let mut worse = String::new();
    for (number, attack) in ATTACKS.iter().enumerate() {
        let row = recorded.lines().find(|line| {
            let mut cells = line.split('|').map(str::trim);
            cells.nth(1) == Some(attack.promise) && cells.next() == Some(attack.name)
        });
        let cells: Vec<&str> =
            row.map_or(Vec::new(), |row| row.split('|').map(str::trim).collect());
        for (column, mechanism) in ALL.iter().enumerate() {
            let found = &results[&(number, *mechanism)];
            let known = through_of(cells.get(3 + column).unwrap_or(&""));
            if !found.is_subset(&known) {
                writeln!(
                    worse,
                    "{mechanism}: {}: {} ({})",
                    attack.promise,
                    attack.name,
                    cell(found)
                )
                .unwrap();
            }
        }
    }
    if std::env::var_os("RUNNER_ATTACK_WRITE").is_some() {
        let table = table(&results);
        fs::write(
            &page_path,
            format!("{before}{BEGIN}\n\n{table}\n{END}{after}"),
        )
        .unwrap();
        return;
    }
    assert!(
        worse.is_empty(),
        "worse than docs/containment.md says:\n{worse}"
    );
}
