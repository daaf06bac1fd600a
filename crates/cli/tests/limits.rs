//! Sessions, setups and guards that use up more than `[sandbox.limits]` allows, under each mechanism,
//! with control groups of the kernel where the machine has some, and without.
//!
//! Every limit is small here, and nothing goes far beyond one: no test harms the machine.

#![allow(clippy::unwrap_used)] // A test that cannot go on has failed.
#![allow(clippy::print_stderr)] // What is skipped is said.

mod agent_support;

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::time::Duration;

use agent_support::contained::{ALL, MECHANISMS, with_mechanism};
use agent_support::{BIN, GOAL, assert_runner_error};
use runner_testkit::{TestRepo, TestRun, assert_no_process, eventually};
use serde_json::Value;

/// How the limits are kept: by the best that there is, and by looking alone.
const MEANS: [&str; 2] = ["auto", "off"];

/// A program that uses memory as this says, and then waits.
const PYTHON: &str = "import mmap, os, sys, time\nM = 1 << 20\n";

struct Small {
    mechanism: &'static str,
    means: &'static str,
}

impl Small {
    /// Each mechanism with each way to keep limits.
    fn all() -> impl Iterator<Item = Small> {
        let of = |mechanism| MEANS.map(|means| Small { mechanism, means });
        ALL.into_iter().flat_map(of)
    }

    /// A started run with small limits; `setup` may be empty.
    fn repo(&self, agent: &str, guard: &str) -> TestRepo {
        self.repo_with(agent, guard, &[])
    }

    fn repo_with(&self, agent: &str, guard: &str, setup: &[&str]) -> TestRepo {
        let mut repo = self.unstarted();
        repo.agent(agent);
        repo.config(|config| {
            if !setup.is_empty() {
                config.set("workspace.setup", setup.to_vec());
            }
        });
        repo.start_run(GOAL, &["sh", "-c", guard]);
        repo
    }

    fn unstarted(&self) -> TestRepo {
        let mut repo = with_mechanism(self.mechanism);
        repo.env("RUNNER_CGROUPS", self.means);
        repo.config(|config| {
            config
                .set("sandbox.limits.memory", "200MiB")
                .set("sandbox.limits.processes", 30)
                .set("sandbox.limits.workspace_growth", "20MiB")
                .set("iteration_timeout_secs", 120);
        });
        repo
    }

    fn name(&self) -> String {
        format!("{} {}", self.mechanism, self.means)
    }

    /// The session is ended, with these words, and nothing of it is left.
    #[track_caller]
    fn ends(&self, agent: &str, words: &[&str]) {
        let repo = self.repo(agent, "true");
        let run = repo.runner(&["step"]);
        let meta = assert_runner_error(&repo, &run, 1, "resources");
        says(&meta, words, &self.name());
        assert_no_process(&repo.root().display().to_string());
        // The next session is as free as the first one was.
        repo.agent("echo x > x; out done fine");
        repo.runner(&["step"]).success();
        assert_eq!(repo.node("root")["passes"], true, "{}", self.name());
    }

    /// The session is let alone.
    #[track_caller]
    fn goes_on(&self, agent: &str) {
        let repo = self.repo(&format!("{agent}\nout done fine"), "true");
        let run = repo.runner(&["step"]);
        assert_eq!(run.code, Some(0), "{}\n{}", self.name(), run.describe());
        assert_eq!(repo.node("root")["passes"], true, "{}", self.name());
    }
}

#[track_caller]
fn says(meta: &Value, words: &[&str], about: &str) {
    let message = meta["error"]["message"].as_str().unwrap();
    for word in words {
        assert!(
            message.contains(word),
            "{about}: no {word:?} in {message:?}"
        );
    }
}

/// `python3 -c` with a program as it stands.
fn python(program: &str) -> String {
    format!(
        "cat > \"$TMPDIR/use.py\" <<'END'\n{PYTHON}{program}\nEND\npython3 \"$TMPDIR/use.py\"\n"
    )
}

/// Runs until somebody ends it; far longer than any test waits.
const HANG: &str = "sleep 1000";

#[test]
fn a_bomb_of_processes_ends_its_session() {
    for small in Small::all() {
        let bomb = format!("for i in $(seq 60); do {HANG} & done; wait");
        small.ends(&bomb, &["[sandbox.limits] processes = 30"]);
    }
}

/// The user that an ordinary one is here.
const NOBODY: u32 = 65_534;

/// Makes all of a repository a user's.
fn give_to(repo: &TestRepo, user: u32) {
    let mut give = repo.hermetic("chown");
    give.args(["-R", &format!("{user}:{user}")])
        .arg(repo.root());
    repo.spawn(give).wait().success();
}

/// How many tasks that user has.
fn tasks_of_nobody() -> u64 {
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let tasks = entries.filter_map(|entry| entry.path().join("task").metadata().ok());
    let own = tasks.filter(|meta| meta.uid() == NOBODY);
    own.map(|meta| meta.nlink().saturating_sub(2)).sum()
}

#[test]
fn a_bomb_that_is_faster_than_any_look_meets_a_limit_of_the_kernel() {
    if fs::metadata("/proc/self").unwrap().uid() != 0 {
        eprintln!("skipped: only root can become an ordinary user");
        return;
    }
    for mechanism in ALL {
        let small = Small {
            mechanism,
            means: "off",
        };
        let bomb = "while True:\n  try: os.fork()\n  except OSError: pass";
        let repo = small.repo(&python(bomb), "true");
        // The build folder may be closed to others.
        let binary = repo.root().join("runner");
        fs::copy(BIN, &binary).unwrap();
        give_to(&repo, NOBODY);
        let before = tasks_of_nobody();
        // Whatever becomes of the runner's limit, this one spares the machine.
        let mut step = repo.hermetic("prlimit");
        step.args(["--nproc=5000", "setpriv", "--clear-groups"])
            .args([format!("--reuid={NOBODY}"), format!("--regid={NOBODY}")])
            .arg(&binary)
            .arg("step");
        let running = repo.spawn(step);
        let mut most = 0;
        let ended = repo.iteration(1).join("meta.json");
        eventually("the end of the bomb", Duration::from_secs(120), || {
            most = most.max(tasks_of_nobody());
            ended.exists()
        });
        let run = running.wait();
        give_to(&repo, 0);
        let meta = assert_runner_error(&repo, &run, 1, "resources");
        says(&meta, &["processes = 30"], &small.name());
        assert_no_process(&repo.root().display().to_string());
        // Two times the limit, what there is to spare, the runner itself, and others of this test.
        assert!(most < before + 60 + 1024 + 300, "{mechanism}: {most}");
    }
}

#[test]
fn threads_count_and_processes_that_fled_do_too() {
    let small = Small {
        mechanism: "none",
        means: "off",
    };
    let threads = "import threading\nfor i in range(40): threading.Thread(target=time.sleep, args=(1000,)).start()";
    small.ends(&python(threads), &["processes = 30", "`python3`"]);
    let fled = format!("for i in $(seq 40); do setsid {HANG} >/dev/null 2>&1 & done; {HANG}");
    small.ends(&fled, &["processes = 30", "of them `"]);
}

#[test]
fn a_hog_of_memory_ends_its_session() {
    for small in Small::all() {
        let hog = python("x = b'x' * (215 * M)\ntime.sleep(1000)");
        let words = ["[sandbox.limits] memory", "200 MiB", "`python3` with 2"];
        small.ends(&hog, &words);
    }
}

#[test]
fn memory_that_is_shared_counts_once_and_counts() {
    for means in MEANS {
        let small = Small {
            mechanism: "bubblewrap",
            means,
        };
        let shared = "m = mmap.mmap(-1, 215 * M)\nfor i in range(215): m[i * M:(i + 1) * M] = b'x' * M\ntime.sleep(1000)";
        small.ends(&python(shared), &["[sandbox.limits] memory"]);
        let nameless = "f = os.memfd_create('x')\nfor i in range(215): os.write(f, b'x' * M)\ntime.sleep(1000)";
        small.ends(&python(nameless), &["[sandbox.limits] memory"]);
        // Files that are memory have room for half of the limit.
        small.goes_on("head -c 215M /dev/zero > /dev/shm/x && exit 1; rm /dev/shm/x");

        // Five that have the same hundred mebibytes, for longer than a few looks.
        let forked =
            "x = b'x' * (90 * M)\nfor i in range(4):\n if os.fork() == 0: break\ntime.sleep(3)";
        small.goes_on(&python(forked));
    }
}

#[test]
fn what_the_kernel_keeps_of_files_is_not_memory() {
    for means in MEANS {
        let small = Small {
            mechanism: "none",
            means,
        };
        let mut repo = small.unstarted();
        repo.config(|config| {
            config.set("sandbox.limits.workspace_growth", "2GiB");
        });
        repo.agent(
            "head -c 230M /dev/zero > \"$TMPDIR/file\"; cat \"$TMPDIR/file\" > /dev/null; sleep 2; out done fine",
        );
        repo.start_run(GOAL, &["true"]);
        let run = repo.runner(&["step"]);
        assert_eq!(run.code, Some(0), "{means}\n{}", run.describe());
    }
}

#[test]
fn whoever_fills_the_disk_is_ended() {
    for small in Small::all() {
        let big = format!(
            "mkdir build; echo /build > .gitignore; head -c 60M /dev/zero > build/big; {HANG}"
        );
        let words = ["[sandbox.limits] workspace_growth = 20 MiB", "in `build/`"];
        small.ends(&big, &words);
    }
    let small = Small {
        mechanism: "bubblewrap",
        means: "off",
    };
    let many = python(
        "d = os.environ['TMPDIR'] + '/many/'\nos.mkdir(d)\nfor i in range(9000): open(d + str(i), 'w').write('x' * 4000)\ntime.sleep(1000)",
    );
    small.ends(&many, &["workspace_growth", "in its temp folder"]);
    let deleted = format!("exec 3> gone; rm gone; head -c 60M /dev/zero >&3; {HANG}");
    small.ends(&deleted, &["workspace_growth", "deleted and still open"]);
    // One that only looks large, and what is written again and again.
    small.goes_on("truncate -s 900G sparse; sleep 2; rm sparse");
    small.goes_on("for i in 1 2 3 4 5; do head -c 12M /dev/zero > x; sleep 0.5; done; echo x > x");
}

#[test]
fn a_guard_that_uses_up_too_much_is_red_and_says_why() {
    for small in Small::all() {
        let bomb = format!("test -e bomb || exit 0; for i in $(seq 60); do {HANG} & done; wait");
        let repo = small.repo("echo x > bomb; out done worked", &bomb);
        let run = repo.runner(&["step"]);
        let meta = repo.meta(1);
        let about = format!("{}\n{}\n{meta:#}", small.name(), run.describe());
        assert_eq!(meta["class"], "ok", "{about}");
        assert_eq!(meta["guard"], "fail", "{about}");
        assert_eq!(repo.node("root")["attempts"], 1, "{about}");
        let log = fs::read_to_string(repo.iteration(1).join("guard.log")).unwrap();
        assert!(
            log.contains("runner: the guard had more processes"),
            "{log}"
        );
    }
}

#[test]
fn a_base_or_a_setup_that_uses_up_too_much_cannot_run() {
    let small = Small {
        mechanism: "bubblewrap",
        means: "off",
    };
    let bomb = format!("for i in $(seq 60); do {HANG} & done; wait");
    let mut repo = small.unstarted();
    repo.agent("out done idle");
    repo.init_run(GOAL, &["sh", "-c", &bomb]);
    let run = repo.runner(&["start"]);
    assert_ne!(run.code, Some(0), "{}", run.describe());
    for words in ["was ended", "processes = 30"] {
        assert!(run.stderr.contains(words), "{words}: {}", run.describe());
    }

    let setup = format!("test -e .git/fine || {{ {bomb}; }}");
    let repo = small.repo_with("out done idle", "true", &["sh", "-c", &setup]);
    let run = repo.runner(&["step"]);
    let meta = assert_runner_error(&repo, &run, 1, "resources");
    says(&meta, &["setup", "was ended", "processes = 30"], "setup");
}

/// Two runs of one user: together they use too much memory.
#[test]
fn of_two_sessions_the_larger_one_ends_and_the_other_goes_on() {
    for means in MEANS {
        let small = Small {
            mechanism: "bubblewrap",
            means,
        };
        let uses = |mib: u32, file: &str| {
            let program = format!(
                "x = b'x' * ({mib} * M)\nopen('here', 'w').close()\nwhile not os.path.exists('{file}'): time.sleep(0.05)"
            );
            python(&program)
        };
        let going_on = small.repo(&format!("{}out done fine", uses(80, "go")), "true");
        let mut ending = small.repo(&uses(150, "never"), "true");
        // The same user has both: they know of each other.
        let state = going_on.root().join("shared-state");
        let mut going_on = going_on;
        for repo in [&mut going_on, &mut ending] {
            repo.env("XDG_STATE_HOME", state.clone());
        }
        let first = going_on.spawn_runner(&["step"]);
        eventually(
            "the first one has its memory",
            Duration::from_secs(60),
            || find(&state, "here"),
        );
        let run = ending.runner(&["step"]);
        let meta = assert_runner_error(&ending, &run, 1, "resources");
        says(
            &meta,
            &[
                "all that runs here uses 2",
                "the session uses the most, 1",
                "`python3`",
            ],
            means,
        );
        write_beside(&state, "here", "go");
        let run = first.wait();
        assert_eq!(run.code, Some(0), "{}", run.describe());
        assert_eq!(going_on.node("root")["passes"], true);
    }
}

/// The folders below one, which is a state folder, that have a file of this name.
fn folders_with(folder: &std::path::Path, name: &str) -> Vec<std::path::PathBuf> {
    let mut found = Vec::new();
    let mut left = vec![folder.to_owned()];
    while let Some(folder) = left.pop() {
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            if entry.file_name() == name {
                found.push(folder.clone());
            }
            if entry.file_type().is_ok_and(|it| it.is_dir()) {
                left.push(entry.path());
            }
        }
    }
    found
}

fn find(folder: &std::path::Path, name: &str) -> bool {
    !folders_with(folder, name).is_empty()
}

fn write_beside(folder: &std::path::Path, name: &str, new: &str) {
    for folder in folders_with(folder, name) {
        fs::write(folder.join(new), "").unwrap();
    }
}

/// Runs a shell script as root of a mount namespace of its own, with `$MNT` a file system of 96 MiB
/// that holds the project, all private folders and all temp folders. `None`: that cannot be had.
fn on_a_small_disk(repo: &TestRepo, script: &str) -> Option<TestRun> {
    let mount = repo.root().join("mnt");
    fs::create_dir_all(&mount).unwrap();
    let file = repo.root().join("script.sh");
    let text = format!("{SMALL_DISK}\n{script}\necho ALL GOOD\n");
    fs::write(&file, text).unwrap();
    for flags in ["-m", "-rm"] {
        let mut command = repo.hermetic("unshare");
        command.arg(flags).arg("sh").arg(&file);
        command.env("MNT", &mount).env("RUNNER", BIN);
        command.current_dir(repo.root());
        let run = repo.spawn(command).wait();
        if !matches!(run.code, Some(1 | 77)) {
            return Some(run);
        }
    }
    eprintln!("skipped: no mount namespaces here");
    None
}

const SMALL_DISK: &str = r#"set -u
mount -t tmpfs -o size=96m tmpfs "$MNT" || exit 77
export XDG_STATE_HOME="$MNT/state" TMPDIR="$MNT/tmp"
mkdir "$TMPDIR"
cp -a repo "$MNT/repo"; cd "$MNT/repo" || exit 78
log="$MNT/../log"
fail() { echo "FAILED: $*"; cat "$log" "$log".*; exit 90; }
says() { grep -q -- "$1" "$log" || fail "should say: $1"; }
until_there() { i=0; until test -s "$1"; do sleep 0.1; i=$((i + 1)); test $i -lt 900 || fail "never there: $1"; done; }
"#;

/// Fills the disk but for a few mebibytes, in a folder that git ignores.
///
/// It is told what was measured when there was no room any more, which is a part of that.
const FILLS: &str =
    "mkdir -p build; echo /build/ > .gitignore; head -c 72M /dev/zero > build/big; sleep 1000";

fn on_small_disk(mechanism: &'static str) -> TestRepo {
    let mut repo = with_mechanism(mechanism);
    repo.config(|config| {
        config
            .set("sandbox.limits.free_space", "24MiB")
            .set("iteration_timeout_secs", 120);
    });
    repo
}

#[test]
fn whoever_fills_a_small_disk_is_ended_and_swept_and_the_loop_goes_on() {
    for mechanism in ALL {
        let mut repo = on_small_disk(mechanism);
        repo.agent("echo x > x; out done fine");
        repo.agent_at(1, FILLS);
        repo.start_run(GOAL, &["true"]);
        let script = r#"
"$RUNNER" loop --json > "$log" 2>&1 || fail 'the loop'
says '"resources"'
says 'the disk is full: .*the session filled it most, by [2-9][0-9] MiB, [2-9][0-9] MiB of it in `build/`'
grep -q '"attempts": 0' .runner/state/tree.json || fail 'attempts'
test -z "$(find "$XDG_STATE_HOME" -name big)" || fail 'not swept'
"#;
        let Some(run) = on_a_small_disk(&repo, script) else {
            return;
        };
        assert!(
            run.stdout.contains("ALL GOOD"),
            "{mechanism}: {}",
            run.describe()
        );
    }
}

/// A session that fills the disk and ends before anybody looks, with half a report or none.
#[test]
fn a_report_that_found_no_room_is_told_as_a_full_disk() {
    for mechanism in ALL {
        let mut repo = on_small_disk(mechanism);
        repo.agent("echo x > x; out done fine");
        repo.agent_at(
            1,
            "mkdir -p build; echo /build/ > .gitignore; head -c 72M /dev/zero > build/big; \
             printf '{\"status\": \"done\", ' > \"$RUNNER_OUTPUT_PATH\"; exit 1",
        );
        repo.start_run(GOAL, &["true"]);
        let script = r#"
"$RUNNER" loop --json > "$log" 2>&1 || fail 'the loop'
says '"resources"'
says 'the disk is full: '
grep -q '"attempts": 0' .runner/state/tree.json || fail 'attempts'
test -z "$(find "$XDG_STATE_HOME" -name big)" || fail 'not swept'
"#;
        let Some(run) = on_a_small_disk(&repo, script) else {
            return;
        };
        assert!(
            run.stdout.contains("ALL GOOD"),
            "{mechanism}: {}",
            run.describe()
        );
    }
}

/// What sessions cache is no part of a workspace, but whoever fills a disk with it is ended all the
/// same.
#[test]
fn whoever_fills_a_small_disk_with_caches_is_ended_and_they_are_swept() {
    // Without a sandbox there are no caches of the runner's.
    for mechanism in MECHANISMS {
        let mut repo = on_small_disk(mechanism);
        repo.agent("echo x > x; out done fine");
        repo.agent_at(
            1,
            "head -c 72M /dev/zero > \"$npm_config_cache/big\"; sleep 1000",
        );
        repo.start_run(GOAL, &["true"]);
        let script = r#"
"$RUNNER" loop --json > "$log" 2>&1 || fail 'the loop'
says '"resources"'
says 'the session filled it most, by [2-9][0-9] MiB, [2-9][0-9] MiB of it in .*/caches/sessions/npm'
test -z "$(find "$XDG_STATE_HOME" -name big)" || fail 'not swept'
"#;
        let Some(run) = on_a_small_disk(&repo, script) else {
            return;
        };
        assert!(
            run.stdout.contains("ALL GOOD"),
            "{mechanism}: {}",
            run.describe()
        );
    }
}

#[test]
fn on_a_full_disk_the_loop_waits_and_tells_and_goes_on_when_there_is_room() {
    let mut repo = on_small_disk("bubblewrap");
    repo.agent("echo x > x; out done fine");
    let told = repo.root().join("told");
    repo.config(|config| {
        let command = format!("cat >> '{}'", told.display());
        config.set(
            "notify.command",
            vec!["sh".to_owned(), "-c".to_owned(), command],
        );
    });
    repo.start_run(GOAL, &["true"]);
    let script = format!(
        r#"
head -c 80M /dev/zero > "$MNT/fill"
"$RUNNER" loop > "$log" 2>&1 & loop=$!
until_there '{told}'
grep -q '"event":"disk"' '{told}' || fail "$(cat '{told}')"
"$RUNNER" status > "$log.status" 2>&1 || fail status
grep -q 'a full disk: .* free_space' "$log.status" || fail 'status says nothing'
rm "$MNT/fill"
wait $loop || fail 'the loop'
grep -q '"passes": true' .runner/state/tree.json || fail 'passed'
test "$(grep -c '"event":"disk"' '{told}')" = 1 || fail 'told more than once'
"#,
        told = told.display()
    );
    let Some(run) = on_a_small_disk(&repo, &script) else {
        return;
    };
    assert!(run.stdout.contains("ALL GOOD"), "{}", run.describe());
}

/// One task of a fleet fills the disk, the others are done meanwhile.
#[test]
fn a_task_of_a_fleet_that_fills_the_disk_is_ended_and_the_others_are_done() {
    let mut repo = on_small_disk("bubblewrap");
    repo.env("RUNNER_FLEET_COOLDOWN_SECS", "0");
    let works = "id=${RUNNER_RUN_ID%-*}; mkdir -p \"$id\"; echo hi > \"$id/file\"; out done did";
    repo.agent(&format!(
        "case $RUNNER_RUN_ID in issue-1-1) {FILLS};; esac\n{works}"
    ));
    repo.write_config();
    for number in 1..=3 {
        repo.write(
            format!(".runner/fleet/issues/{number}-x.md"),
            format!("# Issue {number}\n\nAgent: worker\nAllowed paths: issue-{number}/**\n"),
        );
    }
    let script = r#"
"$RUNNER" fleet up --until-idle > "$log" 2>&1 || fail 'the fleet'
"$RUNNER" task show issue-1 --json > "$log.task" 2>&1 || fail 'the task'
grep -q 'the disk is full' "$log.task" || fail 'the task says nothing'
grep -q '"env"' "$log.task" || fail 'of another category'
merged=$(git log --format='%(trailers:key=Runner-Task,valueonly)' main | grep -c issue)
test "$merged" = 3 || fail "merged: $merged"
test -z "$(find "$XDG_STATE_HOME" -name big)" || fail 'not swept'
"#;
    let Some(run) = on_a_small_disk(&repo, script) else {
        return;
    };
    assert!(run.stdout.contains("ALL GOOD"), "{}", run.describe());
}
