//! Whatever a session leaves, the next command goes on, or says one command that does: things of
//! other users, flags, mounts, files that are none, and what lies beside a workspace. `runner
//! rescue` is the last resort.
#![allow(clippy::unwrap_used)] // a helper that fails is a test that fails

mod hostile_support;

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use hostile_support::{
    BIN, GOOD, all, assert_contained, case, find_content, finish, play_one, repo, repo_under,
};
use runner_testkit::{TestRepo, TestRun, eventually};
use serde_json::{Value, json};

const PATIENCE: Duration = Duration::from_secs(60);

/// The user that an ordinary one is here.
const NOBODY: &str = "65534";

fn is_root() -> bool {
    fs::metadata("/proc/self").unwrap().uid() == 0
}

/// Runs a piece of shell as the user of this test. Whether it worked.
fn sh(repo: &TestRepo, script: &str) -> bool {
    let mut command = repo.hermetic("sh");
    command.args(["-ec", script]);
    repo.spawn(command).wait().code == Some(0)
}

/// The run's private folders, by kind.
fn private(repo: &TestRepo, kind: &str) -> PathBuf {
    // It ends with a slash.
    let folder: PathBuf = repo.workspace("").components().collect();
    let home = folder.parent().unwrap().parent().unwrap();
    home.join(kind).join(repo.run_id())
}

/// Everything of ours that is mounted goes when this is dropped, so that the test's folder can.
struct Unmounted(PathBuf);

impl Drop for Unmounted {
    fn drop(&mut self) {
        let script = "grep -F \"$0\" /proc/self/mountinfo | cut -d' ' -f5 | sort -r | \
                      while read -r it; do umount -l \"$it\"; done; chattr -R -f -ia \"$0\"; true";
        #[allow(clippy::disallowed_methods)] // It ends at once.
        let _ = Command::new("sh")
            .args(["-c", script])
            .arg(&self.0)
            .output();
    }
}

/// A repository whose runner and sessions are an ordinary user's. `None` where this user cannot
/// become another one.
struct Ordinary {
    repo: TestRepo,
    binary: PathBuf,
}

impl Ordinary {
    fn new(mechanism: &str) -> Option<Self> {
        if !is_root() {
            return None;
        }
        let repo = repo_under(mechanism);
        let binary = repo.root().join("runner");
        fs::copy(BIN, &binary).unwrap();
        let owner = format!("{NOBODY}:{NOBODY}");
        let root = repo.root().display();
        sh(&repo, &format!("chown -R {owner} '{root}'")).then_some(Ordinary { repo, binary })
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = self.repo.hermetic("setpriv");
        command
            .args([&format!("--reuid={NOBODY}"), &format!("--regid={NOBODY}")])
            .arg("--clear-groups")
            .arg(&self.binary)
            .args(args);
        command
    }

    fn runner(&self, args: &[&str]) -> TestRun {
        self.repo.spawn(self.command(args)).wait_within(PATIENCE)
    }

    /// A step in whose session somebody else, with all rights, does this in the workspace, as a
    /// service with a mounted volume does.
    fn step_with(&self, script: &str) -> TestRun {
        let ready = self.repo.agent_dir().join("ready");
        let go = self.repo.agent_dir().join("go");
        let (ready, go) = (ready.display(), go.display());
        assert!(sh(
            &self.repo,
            &format!("rm -f '{ready}' '{go}'; mkfifo '{go}'; chown {NOBODY} '{go}'")
        ));
        let agent = format!("touch '{ready}'; read x < '{go}'; out retry x");
        self.repo.agent(&agent);
        let running = self.repo.spawn(self.command(&["step", "--json"]));
        let there = self.repo.agent_dir().join("ready");
        eventually("the session", PATIENCE, || there.exists());
        let folder = self.repo.workspace("");
        assert!(sh(
            &self.repo,
            &format!("cd '{}'; {script}; echo > '{go}'", folder.display())
        ));
        running.wait_within(PATIENCE)
    }

    /// A session that does what was asked of it, and then the run's end: nothing is in the way.
    fn goes_on(&self, label: &str) {
        self.repo.agent(GOOD);
        let run = self.runner(&["loop", "--json"]);
        assert_eq!(run.code, Some(0), "{label}: {}", run.describe());
        for args in [
            &["replay"][..],
            &["status"],
            &["verify", "root"],
            &["land"],
            &["clean"],
        ] {
            let run = self.runner(args);
            assert_eq!(run.code, Some(0), "{label}: {args:?}: {}", run.describe());
        }
    }
}

#[test]
fn what_other_users_left() {
    let cases: &[(&str, &str, &str, &str)] = &[
        ("a folder", "mkdir its; echo x > its/f", "ok", ""),
        (
            "a closed file",
            "mkdir closed; echo x > closed/f; chmod 600 closed/f",
            "agent_error",
            "closed/f (you may not read or move it",
        ),
        (
            "a secret",
            "mkdir secret; echo x > secret/.env",
            "agent_error",
            "secret/.env must not go into a commit",
        ),
        (
            "a pipe",
            "mkdir piped; mkfifo piped/p",
            "agent_error",
            "piped/p (",
        ),
        (
            "tracked files",
            "chown -R 0:0 src; chmod 700 src; chmod 600 src/main.txt",
            "",
            "",
        ),
        (
            "the repository",
            "chown -R 0:0 .git; chmod 700 .git",
            "ok",
            "",
        ),
        ("the runner's files", "chown -R 0:0 .runner", "", ""),
        (
            "the runner's files, closed",
            "chown -R 0:0 .runner; chmod -R go-rwx .runner",
            "",
            "",
        ),
        ("everything", "chown -R 0:0 .", "", ""),
    ];
    let Some(user) = Ordinary::new("none") else {
        eprintln!("skipped: this user cannot become another one");
        return;
    };
    // Each step shows that the one before left nothing in the way.
    for ((label, script, class, says), iter) in cases.iter().zip(1..) {
        let run = user.step_with(script);
        assert!(
            matches!(run.code, Some(0 | 1)),
            "{label}: {}",
            run.describe()
        );
        let json = run.json();
        assert_eq!(
            json["iter"],
            iter,
            "it is recorded: {label}: {}",
            run.describe()
        );
        if !class.is_empty() {
            assert_eq!(json["class"], *class, "{label}: {}", run.describe());
        }
        assert!(run.stdout.contains(says), "{label}: {}", run.describe());
    }
    let main = user
        .repo
        .git(&["-c", "safe.directory=*", "show", "HEAD:src/main.txt"]);
    assert_eq!(main, "one\ntwo");
    user.goes_on("what other users left");
}

#[test]
fn mounts_are_never_reached_through() {
    for ordinary in [true, false] {
        let label = format!("ordinary user: {ordinary}");
        let Some(user) = Ordinary::new("none") else {
            eprintln!("skipped: this user cannot mount");
            return;
        };
        let repo = &user.repo;
        let _end = Unmounted(repo.root().to_owned());
        let probe = "mkdir probe && mount -t tmpfs none probe && umount probe; rmdir probe";
        if !sh(repo, probe) {
            eprintln!("skipped: mounts cannot be made here");
            return;
        }
        let precious = repo.root().join("precious");
        fs::create_dir(&precious).unwrap();
        fs::write(precious.join("thesis"), "work of years").unwrap();
        if !ordinary {
            let own = format!("chown -R 0:0 '{}'", repo.root().display());
            assert!(sh(repo, &own));
        }
        for (place, iter) in ["m", "src", "ignored"].into_iter().zip(1..) {
            let script = format!(
                "echo /ignored > .gitignore; mkdir -p {place}; mount --bind '{}' {place}",
                precious.display()
            );
            let step = if ordinary {
                user.step_with(&script)
            } else {
                repo.agent(&format!("{script}; out retry x"));
                repo.runner(&["step", "--json"])
            };
            assert_eq!(
                step.json()["iter"],
                iter,
                "{place}, {label}: {}",
                step.describe()
            );
        }
        if ordinary {
            user.goes_on(&label);
        } else {
            repo.agent(GOOD);
            for args in [["loop"], ["land"], ["clean"]] {
                repo.runner(&args).success();
            }
        }
        let kept = fs::read_to_string(precious.join("thesis"));
        assert_eq!(kept.unwrap(), "work of years", "{label}");
    }
}

#[test]
fn flags_that_a_privileged_session_sets() {
    for mechanism in all() {
        let repo = repo_under(mechanism);
        let _end = Unmounted(repo.root().to_owned());
        let scripts = [
            "echo x > held; chattr +i held README.md || true; out retry x",
            "mkdir grows; echo x > grows/f; chattr +a grows || true; out retry x",
            "chattr +i .git .git/config || true; out retry x",
            "chattr +i .runner/state/tree.json .runner/state || true; out retry x",
            "out retry x; chattr +i \"$RUNNER_OUTPUT_PATH\" \"$(dirname \"$RUNNER_OUTPUT_PATH\")\" || true",
            "mkdir build; echo build/ > .gitignore; echo x > build/f; chattr +i build build/f || true; out retry x",
            "chattr +i . || true; out retry x",
        ];
        for (script, iter) in scripts.into_iter().zip(1..) {
            repo.agent_at(iter, script);
            let run = repo.runner(&["step", "--json"]);
            assert_eq!(run.json()["class"], "ok", "{script}: {}", run.describe());
        }
        finish(&repo);
        let workspace = repo.workspace("");
        repo.runner(&["land"]).success();
        assert!(!workspace.exists(), "{mechanism}");
        repo.runner(&["clean"]).success();
        let left = fs::read_dir(workspace.parent().unwrap()).unwrap().count();
        assert_eq!(left, 0, "{mechanism}");
    }
}

#[test]
fn files_of_the_commit_that_grow_beyond_every_limit() {
    for mechanism in all() {
        let repo = repo_under(mechanism);
        play_one(
            &repo,
            &case(
                "a terabyte of nothing",
                "agent_error",
                "README.md (1099511627776 bytes) must not go into a commit",
                "truncate -s 1T README.md; truncate -s 1T new; echo kept > kept.txt",
            ),
        );
        assert_eq!(repo.git(&["show", "HEAD:README.md"]), "# A project");
        assert_eq!(repo.git(&["show", "HEAD:kept.txt"]), "kept");
        finish(&repo);
        assert_contained(&repo, mechanism);
    }
}

#[test]
fn links_in_the_place_of_rules() {
    for mechanism in all() {
        let repo = repo_under(mechanism);
        let script = "ln -s /dev/zero .gitattributes; ln -sf /dev/zero .gitignore; \
             ln -s /dev/zero src/.gitignore; ln -s /proc/kmsg .mailmap; echo kept > kept.txt; out retry x";
        let iter = repo.run_state()["next_iter"].as_u64().unwrap();
        repo.agent_at(iter, script);
        let run = repo.runner(&["step", "--json"]);
        assert_eq!(run.json()["iter"], iter, "{}", run.describe());
        assert_eq!(repo.git(&["show", "HEAD:kept.txt"]), "kept");
        finish(&repo);
        assert_contained(&repo, mechanism);
    }
}

/// Sessions that nothing contains reach what lies beside their workspace.
#[test]
fn what_lies_beside_a_workspace() {
    let scripts = [
        "rm -f \"$W.git/index\"; mkfifo \"$W.git/index\"",
        "rm -f \"$W.git/config\"; mkfifo \"$W.git/config\"",
        "rm -f \"$W.git/HEAD\"; mkfifo \"$W.git/HEAD\"",
        "rm -rf \"$W.git\"; touch \"$W.git\"",
        "mkdir -p \"$W.git/index.lock/x\"",
        "rm -rf \"$W.objects\"; touch \"$W.objects\"",
        "for it in lock session; do rm -f \"$W.$it\"; mkfifo \"$W.$it\"; done",
        "rm -rf \"$W.made\"; mkfifo \"$W.made\"",
        "cd /; mv \"$W\" \"$W.moved\"; touch \"$W\"",
        "cd /; mkdir \"$W.other\"; echo precious > \"$W.other/file\"; mv \"$W\" \"$W.moved-2\"; ln -s \"$W.other\" \"$W\"",
        "rm -rf \"$W\"",
    ];
    for script in scripts {
        let repo = repo();
        // Never a folder of the machine's: a test that fails must harm nothing.
        let precious = repo.agent_dir().join("precious");
        fs::create_dir(&precious).unwrap();
        fs::write(precious.join("thesis"), "work of years").unwrap();
        repo.agent(&format!("W=$PWD; {script}"));
        // Whether it is recorded is not the point: nothing waits, and the next one goes on.
        let first = repo.spawn_runner(&["step"]).wait_within(PATIENCE);
        repo.agent(GOOD);
        let next = repo.spawn_runner(&["loop", "--json"]).wait_within(PATIENCE);
        let told = || format!("{script}\n{}\n{}", first.describe(), next.describe());
        assert_eq!(next.code, Some(0), "{}", told());
        assert_eq!(
            repo.git(&["show", "HEAD:src/main.txt"]),
            "one\ntwo",
            "{}",
            told()
        );
        for args in [&["replay"][..], &["land"], &["clean"]] {
            repo.runner(args).success();
        }
        let kept = fs::read_to_string(precious.join("thesis"));
        assert_eq!(kept.unwrap(), "work of years", "{}", told());
    }
}

/// All that a rescue must leave as it is.
fn records(repo: &TestRepo) -> (String, String, Vec<(PathBuf, Vec<u8>)>) {
    let refs = repo.git(&["for-each-ref", "--format=%(refname) %(objectname)"]);
    let replay = repo.runner(&["replay", "--json"]).stdout;
    let mut files = Vec::new();
    let mut folders = vec![repo.path(".runner/iterations")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap().flatten() {
            if entry.file_type().unwrap().is_dir() {
                folders.push(entry.path());
            } else if entry.file_type().unwrap().is_file() && entry.file_name() != "lock" {
                files.push((entry.path(), fs::read(entry.path()).unwrap()));
            }
        }
    }
    files.sort();
    (refs, replay, files)
}

fn moved(json: &Value) -> Vec<PathBuf> {
    let moved = json["moved"].as_array().unwrap();
    moved
        .iter()
        .map(|it| it["to"].as_str().unwrap().into())
        .collect()
}

/// A run with a passed leaf, an open one, and something in its workspace that git ignores.
fn rescuable() -> TestRepo {
    let repo = repo();
    repo.agent_at(
        1,
        "add_child root a 1 A; add_child root b 2 B; echo /cache > .gitignore; mkdir cache; \
         echo warm > cache/f; out decomposed x",
    );
    repo.agent_at(2, "echo a > a.txt; out done a");
    for _ in 0..2 {
        repo.runner(&["step"]).success();
    }
    repo.agent(GOOD);
    repo
}

#[test]
fn a_rescue_makes_the_folders_anew_and_keeps_every_record() {
    let repo = rescuable();
    let workspace = private(&repo, "workspaces");
    assert!(sh(&repo, &format!("mkfifo '{}/p'", workspace.display())));
    fs::write(workspace.join("uncommitted"), "not lost").unwrap();
    let before = records(&repo);
    let look = repo
        .runner(&["rescue", "--dry-run", "--json"])
        .success()
        .json();
    assert_eq!(look["dry_run"], true);
    assert_eq!(records(&repo), before);
    assert!(moved(&look).iter().all(|to| !to.exists()), "{look}");

    let done = repo.runner(&["rescue", "--json"]).success().json();
    assert_eq!(moved(&done), moved(&look));
    assert!(moved(&done).iter().all(|to| to.exists()), "{done}");
    assert_eq!(done["made"], json!([workspace, private(&repo, "verdicts")]));
    assert_eq!(records(&repo), before);
    assert!(!workspace.join("p").exists() && !workspace.join("cache").exists());
    assert_eq!(fs::read_to_string(workspace.join("a.txt")).unwrap(), "a\n");
    let kept = find_content(workspace.parent().unwrap(), b"not lost");
    assert_eq!(kept.len(), 1);

    // Nothing is left to be done.
    let again = repo.runner(&["rescue", "--json"]).success().json();
    assert_eq!((&again["moved"], &again["made"]), (&json!([]), &json!([])));
    repo.runner(&["rescue"]).success().says("nothing to rescue");
    repo.runner(&["verify", "a"]).success();
    repo.runner(&["loop"]).success();
    assert_eq!(repo.tree()["passes"], true);
    repo.runner(&["replay"]).success();
    repo.runner(&["clean"]).success();
    assert_eq!(
        kept.iter().filter(|it| it.exists()).count(),
        1,
        "the run goes on"
    );
    repo.runner(&["land"]).success();
    repo.runner(&["clean"]).success();
    assert!(kept.iter().all(|it| !it.exists()));
}

#[test]
fn a_rescue_may_be_killed_anywhere() {
    let whole = rescuable();
    let trace = whole.root().join("points");
    let mut command = whole.runner_cmd(&["rescue"]);
    command.env("RUNNER_FAULT", format!("trace:{}", trace.display()));
    whole.spawn(command).wait().success();
    let points = fs::read_to_string(&trace).unwrap().lines().count();
    assert!(points > 5, "{points}");
    for n in 1..=points {
        let repo = rescuable();
        fs::write(repo.workspace("uncommitted"), "not lost").unwrap();
        let place = repo.workspace("").parent().unwrap().to_owned();
        let before = records(&repo);
        let mut command = repo.runner_cmd(&["rescue"]);
        command.env("RUNNER_FAULT", format!("kill@{n}"));
        let killed = repo.spawn(command).wait();
        assert_eq!(killed.code, None, "{n}: {}", killed.describe());
        assert_eq!(records(&repo), before, "{n}");
        assert_eq!(find_content(&place, b"not lost").len(), 1, "{n}");
        if n % 2 == 0 {
            repo.runner(&["rescue"]).success();
            assert_eq!(records(&repo), before, "{n}");
            assert_eq!(find_content(&place, b"not lost").len(), 1, "{n}");
        }
        let run = repo.runner(&["loop"]);
        assert_eq!(run.code, Some(0), "{n}: {}", run.describe());
        repo.runner(&["replay"]).success();
        assert_eq!(repo.git(&["show", "HEAD:a.txt"]), "a", "{n}");
    }
}

/// The repository of a task run that a killed fleet left, with the folders of its sessions.
#[test]
fn a_rescue_of_a_fleets_task_run() {
    let repo = rescuable();
    let home = repo
        .workspace("")
        .parent()
        .unwrap()
        .parent()
        .unwrap()
        .to_owned();
    let folder = home.join("task-runs-0123456789ab/a-1-2");
    fs::create_dir_all(folder.parent().unwrap()).unwrap();
    repo.git(&["clone", "-q", ".", &folder.display().to_string()]);
    let tip = repo.head();
    let at = folder.display().to_string();
    repo.git(&["-C", &at, "update-ref", "refs/heads/runner/a-1", &tip]);
    fs::create_dir_all(folder.join(".runner/iterations/a-1/1")).unwrap();
    fs::write(folder.join(".runner/iterations/a-1/1/journal"), "record").unwrap();
    fs::write(
        home.join("task-runs-0123456789ab/a-1-2.lock"),
        r#"{"task":"a","run_id":"a-1","token":2}"#,
    )
    .unwrap();
    let workspace = home.join("workspaces/a-1-2");
    fs::create_dir_all(&workspace).unwrap();
    fs::write(workspace.join("work"), "of a session").unwrap();
    let json = repo.runner(&["rescue", "--json"]).success().json();
    assert!(
        json["made"].to_string().contains("workspaces/a-1-2"),
        "{json}"
    );
    let kept = home.join("workspaces/a-1-2.quarantine-1/work");
    assert_eq!(fs::read_to_string(kept).unwrap(), "of a session");
    assert_eq!(fs::read_to_string(workspace.join("a.txt")).unwrap(), "a\n");
    let record = folder.join(".runner/iterations/a-1/1/journal");
    assert_eq!(fs::read_to_string(record).unwrap(), "record");
    let again = repo.runner(&["rescue", "--json"]).success().json();
    assert_eq!(again["moved"], json!([]), "{again}");
}

#[test]
fn a_rescue_says_what_a_person_must_do() {
    let repo = rescuable();
    // Somebody else holds it.
    let lock = private(&repo, "workspaces").with_extension("session");
    let mut command = repo.hermetic("flock");
    let told = repo.root().join("told");
    command
        .arg("--no-fork")
        .arg(&lock)
        .args(["sh", "-c"])
        .arg(format!("touch '{}'; exec sleep 600", told.display()));
    let holder = repo.spawn(command);
    eventually("the lock", PATIENCE, || told.exists());
    let run = repo.runner(&["rescue"]).code(1);
    assert!(run.stderr.contains("fuser"), "{}", run.describe());
    holder.kill();
    repo.runner(&["rescue", "no-such-run"])
        .code(1)
        .says("no run no-such-run");
    repo.runner(&["rescue"]).success();
}

/// What is where a project has nothing of a run, or none goes on.
#[test]
fn nothing_to_rescue() {
    let repo = TestRepo::new(BIN);
    repo.runner(&["rescue"]).success().says("nothing to rescue");
    assert!(!Path::new(&repo.path(".runner/state")).exists());
}
