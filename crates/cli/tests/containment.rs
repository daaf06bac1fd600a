//! Where agents and guards can write, by each mechanism, seen from outside: the whole
//! runner with a scripted agent.
//!
//! A mechanism that is not there makes its tests fail: silently they would prove
//! nothing.

#![allow(clippy::unwrap_used)] // A test that cannot go on has failed.

mod agent_support;

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use agent_support::contained::{
    ALL, MECHANISMS, TRY, started, step, tried, tried_in, with_mechanism,
};
use agent_support::{BIN, GOAL, assert_runner_error, put_first_on_path};
use runner_sandbox::{SandboxSupport, UnavailableReason};
use runner_testkit::{TestRepo, TestRun, assert_no_process, write_program};
use serde_json::json;

/// A script with attempts to write elsewhere; `who` tells agent from guard.
fn reach_out(who: &str, etc: &Path) -> String {
    let etc = etc.display();
    format!(
        "try {who}-home 'echo x > \"$HOME/planted\"'\n\
         try {who}-rc 'echo x >> \"$HOME/.gitconfig\"'\n\
         try {who}-parent 'echo x > ../planted'\n\
         try {who}-folder 'mkdir ../planted-folder'\n\
         try {who}-etc 'echo x > {etc}'\n\
         try {who}-inside 'mkdir -p sub && echo x > sub/{who}'\n\
         try {who}-temp 'echo x > \"$TMPDIR/{who}-file\"'\n"
    )
}

#[test]
fn nothing_outside_can_be_written_by_agent_or_guard() {
    for mechanism in MECHANISMS {
        let etc = PathBuf::from(format!(
            "/etc/runner-containment-{}-{mechanism}",
            std::process::id()
        ));
        let guard = format!("{TRY}{}", reach_out("guard", &etc));
        let agent = format!("{}out done tried", reach_out("agent", &etc));
        let repo = started(mechanism, &agent, &["sh", "-c", &guard], |_| {});
        let report = step(&repo, mechanism);
        let planted = etc.exists();
        let _ = fs::remove_file(&etc);
        assert!(!planted, "{mechanism}: {}", etc.display());
        assert_eq!(report["guard"], "pass");
        for who in ["agent", "guard"] {
            for place in ["rc", "parent", "folder", "etc"] {
                assert!(
                    !tried(&repo, &format!("{who}-{place}")),
                    "{mechanism} {who} {place}"
                );
            }
            // The home folder is a private one.
            for place in ["home", "inside", "temp"] {
                assert!(
                    tried(&repo, &format!("{who}-{place}")),
                    "{mechanism} {who} {place}"
                );
            }
        }
        // What a guard writes is no part of any commit.
        assert_eq!(repo.read("sub/agent"), "x\n");
        assert!(!repo.exists("sub/guard"));
        for name in ["planted", "planted-folder", "home/planted"] {
            assert!(!repo.root().join(name).exists(), "{mechanism} {name}");
        }
    }
}

#[test]
fn what_belongs_to_the_runner_is_refused_at_once_or_found_out() {
    let agent = "try config 'echo >> .runner/state/config.toml'\n\
        try goal 'rm .runner/GOAL.md'\n\
        try git 'git config core.hooksPath planted'\n\
        try hook 'echo x > .git/hooks/post-commit'\n\
        echo work > work.txt\nout done changed";
    for mechanism in ALL {
        let repo = started(mechanism, agent, &["true"], |_| {});
        let before = repo.read(".runner/state/config.toml");
        let report = step(&repo, mechanism);
        let changed = ["config", "goal", "git", "hook"].map(|name| tried(&repo, name));
        // Its repository is its own.
        let own = [changed[0], changed[1], true, false];
        assert_eq!(changed, own, "{mechanism}");
        if mechanism == "bubblewrap" {
            assert_eq!(changed[..2], [false; 2]);
            assert_eq!(
                (&report["class"], &report["passes"]),
                (&json!("ok"), &json!(true))
            );
        } else {
            assert_eq!(changed[..2], [true; 2]);
            assert_eq!(
                (&report["class"], &report["attempts"]),
                (&json!("agent_error"), &json!(1))
            );
            let found = repo.meta(1)["facts"]["owned_changed"].to_string();
            for name in ["config.toml", "GOAL.md"] {
                assert!(found.contains(name), "{name} in {found}");
            }
        }
        assert_eq!(repo.read(".runner/state/config.toml"), before);
        assert!(repo.git_try(&["config", "core.hooksPath"]).is_err());
        assert!(!repo.exists(".git/hooks/post-commit"));
        assert_eq!(repo.read("work.txt"), "work\n");
    }
}

#[test]
fn a_guard_cannot_change_what_it_is_judged_by() {
    let guard = format!("{TRY}try config 'echo >> .runner/state/config.toml'");
    for mechanism in ALL {
        let repo = started(mechanism, "out done idle", &["sh", "-c", &guard], |_| {});
        let report = step(&repo, mechanism);
        let changed = tried(&repo, "config");
        assert_eq!(changed, mechanism != "bubblewrap");
        assert_eq!(report["class"], "ok", "{mechanism}");
        let guard = if changed { "fail" } else { "pass" };
        assert_eq!(report["guard"], guard, "{mechanism}");
        assert_eq!(report["passes"], !changed);
    }
}

#[test]
fn no_process_is_left_by_agent_or_guard() {
    let leave = "(setsid sh -c 'trap \"\" TERM HUP INT; sleep 1000' >/dev/null 2>&1 &)\nnohup sleep 1000 >/dev/null 2>&1 &\n";
    for mechanism in ALL {
        let agent = format!("{leave}out done left");
        // One that does not end when it is told to is waited for: once is enough.
        let guard = "nohup sleep 1000 >/dev/null 2>&1 &";
        let repo = started(mechanism, &agent, &["sh", "-c", guard], |_| {});
        step(&repo, mechanism);
        assert_no_process(&repo.root().display().to_string());
    }
}

#[test]
fn a_guard_or_agent_that_cannot_be_started_is_a_runner_error() {
    for mechanism in ALL {
        for guard in ["no-such-guard-here", "./not-executable", "./no-interpreter"] {
            let mut repo = with_mechanism(mechanism);
            repo.write("not-executable", "#!/bin/sh\n");
            repo.write("no-interpreter", "#!/no/such/interpreter\n");
            fs::set_permissions(
                repo.path("no-interpreter"),
                fs::Permissions::from_mode(0o755),
            )
            .unwrap();
            repo.commit_all("guards");
            repo.agent("echo work > work.txt; out done worked");
            repo.config(|config| {
                config.set(
                    "sandbox.mode",
                    if mechanism == "none" { "off" } else { "auto" },
                );
            });
            repo.start_run(GOAL, &[guard]);
            let run = repo.runner(&["step", "--json"]);
            let meta = assert_runner_error(&repo, &run, 1, "guard_spawn");
            let message = meta["error"]["message"].as_str().unwrap();
            assert!(message.contains(guard), "{mechanism} {guard}: {message}");
            assert_eq!(repo.read("work.txt"), "work\n");
        }
        let repo = started(mechanism, "", &["true"], |config| {
            config
                .set("executor.command", json!(["no-such-agent-here"]))
                .set(
                    "sandbox.mode",
                    if mechanism == "none" { "off" } else { "auto" },
                );
        });
        let run = repo.runner(&["step", "--json"]);
        let meta = assert_runner_error(&repo, &run, 1, "spawn");
        assert!(
            meta["error"]["message"]
                .as_str()
                .unwrap()
                .contains("no-such-agent-here")
        );
    }
}

/// The kernel follows five scripts to their interpreter.
#[test]
fn a_guard_behind_many_scripts_is_contained() {
    for mechanism in MECHANISMS {
        let mut repo = with_mechanism(mechanism);
        let planted = repo.root().join("planted");
        for number in 1..5 {
            write_program(
                &repo.path(format!("s{number}")),
                &format!("#!./s{}\n", number + 1),
            );
        }
        let last = format!("#!/bin/sh\necho x > '{}'\nexit 0\n", planted.display());
        write_program(&repo.path("s5"), &last);
        repo.commit_all("scripts");
        repo.agent("echo work > work.txt; out done worked");
        repo.start_run(GOAL, &["./s1"]);
        let report = step(&repo, mechanism);
        assert_eq!(report["guard"], "pass", "{mechanism}");
        assert!(!planted.exists(), "{mechanism}");
    }
}

#[test]
fn what_was_used_is_recorded_and_shown() {
    for (mechanism, mode, told) in [
        ("bubblewrap", "auto", ""),
        ("bubblewrap", "required", ""),
        ("landlock", "required", "Landlock"),
        ("none", "off", ""),
    ] {
        let repo = started(mechanism, "out done idle", &["true"], |config| {
            config.set("sandbox.mode", mode);
        });
        let run = repo.runner(&["loop"]).success();
        assert_eq!(repo.meta(1)["sandbox"], mechanism);
        let events = repo.events();
        let begun = events
            .iter()
            .find(|event| event["event"] == "agent_started")
            .unwrap();
        assert_eq!(begun["sandbox"], mechanism);
        assert!(
            told.is_empty() || run.stderr.contains(told),
            "{}",
            run.describe()
        );
        let shown = repo.runner(&["log", "1"]).success();
        assert!(shown.stdout.contains(mechanism), "{}", shown.describe());
    }
}

#[test]
fn a_broken_bubblewrap_is_not_used() {
    let mut repo = with_mechanism("landlock");
    let bin = repo.root().join("broken");
    fs::create_dir(&bin).unwrap();
    write_program(
        &bin.join("bwrap"),
        "#!/bin/sh\necho 'bwrap: No permissions to create new namespace' >&2\nexit 1\n",
    );
    put_first_on_path(&mut repo, &bin);
    repo.agent("out done idle");
    repo.start_run(GOAL, &["true"]);
    step(&repo, "landlock");
}

/// Runs the runner where the kernel says that it has no Landlock, and where no
/// bubblewrap is on the PATH.
fn without_any(repo: &TestRepo, args: &[&str]) -> TestRun {
    // if (syscall == landlock_create_ruleset) return ENOSYS; return ALLOW;
    let filter: [(u16, u8, u8, u32); 4] = [
        (0x20, 0, 0, 0),
        (0x15, 0, 1, 444),
        (0x06, 0, 0, 0x0005_0000 + 38),
        (0x06, 0, 0, 0x7fff_0000),
    ];
    let mut bytes = Vec::new();
    for (code, yes, no, value) in filter {
        bytes.extend(code.to_ne_bytes());
        bytes.extend([yes, no]);
        bytes.extend(value.to_ne_bytes());
    }
    let file = repo.root().join("filter");
    fs::write(&file, bytes).unwrap();
    let mut outer = repo.hermetic("sh");
    let bwrap = std::env::split_paths(&std::env::var_os("PATH").unwrap())
        .map(|folder| folder.join("bwrap"))
        .find(|path| path.exists())
        .expect("bubblewrap is installed: `cargo xtask setup`");
    outer
        .args([
            "-c",
            "exec \"$0\" --dev-bind / / --seccomp 9 -- \"$@\" 9<\"$FILTER\"",
        ])
        .arg(bwrap)
        .arg(BIN)
        .args(args)
        .env("FILTER", file);
    repo.spawn(outer).wait()
}

#[test]
fn required_refuses_without_any_and_auto_goes_on_with_a_remark() {
    let repo = started("landlock", "out done idle", &["true"], |config| {
        config.set("sandbox.mode", "required");
    });
    let head = repo.head();
    for args in [&["step", "--json"][..], &["loop", "--json"]] {
        let run = without_any(&repo, args).code(1);
        let last = run.json_lines().pop().unwrap();
        assert_eq!(last["error"]["code"], "config", "{}", run.describe());
        let message = last["error"]["message"].as_str().unwrap();
        assert!(message.contains("no sandbox"), "{message}");
        assert!(
            last["error"]["hint"]
                .as_str()
                .unwrap()
                .contains("install bubblewrap")
        );
        assert_eq!(repo.head(), head, "nothing was recorded");
    }
    let repo = started("landlock", "out done idle", &["true"], |_| {});
    let run = without_any(&repo, &["loop"]).success();
    assert!(
        run.stderr.contains("neither bubblewrap nor Landlock"),
        "{}",
        run.describe()
    );
    assert_eq!(repo.meta(1)["sandbox"], "none");

    // And what the library says to it.
    let missing = |reason: &str| UnavailableReason {
        reason: reason.to_owned(),
        remedy: None,
    };
    let none = SandboxSupport {
        bubblewrap: Err(missing("gone")),
        landlock: Err(missing("too old")),
        has_broker: false,
        has_ipc: false,
    };
    let refusal =
        runner_sandbox::choose(runner_core::config::SandboxMode::Required, &none).unwrap_err();
    assert!(
        refusal.message.contains("gone") && refusal.message.contains("too old"),
        "{refusal}"
    );
}

#[test]
fn further_folders_become_writable_by_name_alone() {
    let agent = "try named 'echo x > ~/named/file'\n\
        try absolute 'echo x > \"$ABSOLUTE/file\"'\n\
        try cache 'echo x > ~/.cache/file'\n\
        try other 'echo x > ~/other/file'\nout done tried";
    for mechanism in MECHANISMS {
        let mut repo = with_mechanism(mechanism);
        for folder in ["home/named", "home/.cache", "home/other", "absolute"] {
            fs::create_dir(repo.root().join(folder)).unwrap();
        }
        let absolute = repo.root().join("absolute").display().to_string();
        repo.agent(&format!(
            "ABSOLUTE='{absolute}'; export ABSOLUTE\n{TRY}{agent}"
        ));
        repo.start_run(GOAL, &["true"]);
        step(&repo, mechanism);
        // Without a list: a cache that is not the user's.
        let allowed = ["named", "absolute", "cache", "other"].map(|name| tried(&repo, name));
        assert_eq!(allowed, [false, false, true, false], "{mechanism}");
        assert!(!repo.root().join("home/.cache/file").exists());

        repo.config(|config| {
            config.set(
                "sandbox.writable",
                json!(["~/named", absolute, "~/not-there"]),
            );
        });
        repo.write_config();
        let tree = repo
            .read(".runner/state/tree.json")
            .replace("\"passes\": true", "\"passes\": false");
        repo.write(".runner/state/tree.json", tree);
        repo.commit_all("once more, with a list");
        repo.runner(&["step"]).success();
        let allowed =
            ["named", "absolute", "cache", "other"].map(|name| tried_in(&repo.iteration(2), name));
        assert_eq!(allowed, [true, true, true, false], "{mechanism}");
    }
}

#[test]
fn a_folder_that_is_opened_opens_no_secret_in_it() {
    let tries = "try WHO-secret 'grep -q key ~/.config/gh/hosts.yml'\n\
        (echo x >> ~/.config/gh/hosts.yml) 2>/dev/null || true\n\
        try WHO-move 'mv ~/.config/gh ~/.config/moved'\n\
        try WHO-file 'grep -q key ~/.netrc'\n\
        try WHO-beside 'echo x > ~/.config/tool/file'\n";
    let (agent, guard) = (tries.replace("WHO", "agent"), tries.replace("WHO", "guard"));
    for mechanism in MECHANISMS {
        for entry in ["~/.config", "~"] {
            let mut repo = with_mechanism(mechanism);
            let home = repo.root().join("home");
            fs::create_dir_all(home.join(".config/gh")).unwrap();
            fs::create_dir(home.join(".config/tool")).unwrap();
            let secrets = [home.join(".config/gh/hosts.yml"), home.join(".netrc")];
            for secret in &secrets {
                fs::write(secret, "key\n").unwrap();
            }
            repo.agent(&format!("{TRY}{agent}out done tried"));
            repo.config(|config| {
                config.set("sandbox.writable", json!([entry]));
            });
            repo.start_run(GOAL, &["sh", "-c", &format!("{TRY}{guard}")]);
            step(&repo, mechanism);
            for who in ["agent", "guard"] {
                for name in ["secret", "move", "file"] {
                    let name = format!("{who}-{name}");
                    assert!(!tried(&repo, &name), "{mechanism} {entry} {name}");
                }
                let name = format!("{who}-beside");
                assert!(tried(&repo, &name), "{mechanism} {entry} {name}");
            }
            // What is written to the places that hide them goes nowhere.
            for secret in &secrets {
                assert_eq!(fs::read_to_string(secret).unwrap(), "key\n");
            }
        }
    }
}

#[test]
fn switched_off_it_leaves_everything_open() {
    let agent = "try outside 'echo x > ~/../outside'\nout done tried";
    let guard = ["sh", "-c", "test -f ~/../outside"];
    let repo = started("none", agent, &guard, |config| {
        config.set("sandbox.mode", "off");
    });
    step(&repo, "none");
    assert!(tried(&repo, "outside"));
    assert_eq!(repo.node("root")["passes"], true);
}

/// A session that leaves something for the guard where both could reach it.
#[test]
fn nothing_left_in_temp_or_shared_memory_decides_a_verdict() {
    for mechanism in ALL {
        // In a repository below the very folder that is replaced, as in /tmp.
        for around in [false, true] {
            let name = format!("runner-planted-{}-{mechanism}-{around}", std::process::id());
            let plant = format!(
                "for place in \"$TMPDIR\" \"${{TMPDIR:-/tmp}}\" /tmp /var/tmp /dev/shm; do\n\
                 echo x > \"$place/{name}\"; done 2>/dev/null\n\
                 echo work > work.txt\nout done 'planted it'"
            );
            let look = format!(
                "for place in \"$TMPDIR\" \"${{TMPDIR:-/tmp}}\" /tmp /var/tmp /dev/shm; do\n\
                 [ -e \"$place/{name}\" ] && exit 0; done; mktemp >/dev/null || exit 3; exit 1"
            );
            let mut repo = with_mechanism(mechanism);
            if around {
                let root = repo.root().to_owned();
                repo.env("TMPDIR", root);
            }
            repo.agent(&plant);
            repo.start_run(GOAL, &["sh", "-c", &look]);
            let run = repo.runner(&["step", "--json"]).success();
            let planted: Vec<PathBuf> = ["/tmp", "/var/tmp", "/dev/shm"]
                .map(|place| Path::new(place).join(&name))
                .into_iter()
                .filter(|path| path.exists())
                .collect();
            for path in &planted {
                fs::remove_file(path).unwrap();
            }
            let report = run.json();
            if mechanism == "none" {
                // Nothing keeps it from writing there: that takes a sandbox.
                assert_eq!((report["guard"].as_str(), planted.len()), (Some("pass"), 3));
                continue;
            }
            assert_eq!(report["guard"], "fail", "{mechanism} {around}: {report}");
            let run = &repo.meta(1)["guard_run"];
            assert_eq!(
                run["exit_code"],
                1,
                "{mechanism} {around}: {}",
                repo.meta(1)
            );
            assert_eq!(planted, Vec::<PathBuf>::new(), "{mechanism}");
        }
    }
}

/// What only a session has, in its workspace or in memory that outlives it, is nothing that a guard
/// can judge by.
#[test]
fn a_guard_sees_nothing_of_the_session_but_the_commit() {
    let plant = "echo answer > ignored.txt; python3 - <<'PY'\n\
        import ctypes\n\
        libc = ctypes.CDLL(None)\n\
        libc.shmget(4242, 64, 0o1666)\n\
        PY\n\
        echo work > work.txt; out done 'planted it'";
    let look = "cat \"$HOME\"/.local/state/runner/*/workspaces/*/ignored.txt 2>/dev/null && exit 0\n\
        python3 - <<'PY' && exit 0\n\
        import ctypes, sys\n\
        sys.exit(0 if ctypes.CDLL(None).shmget(4242, 64, 0) >= 0 else 1)\n\
        PY\n\
        exit 7";
    let mut repo = with_mechanism("bubblewrap");
    repo.machine_toolchains();
    repo.write(".gitignore", "ignored.txt\n");
    repo.commit_all("Ignore it");
    repo.agent(plant);
    repo.start_run(GOAL, &["sh", "-c", look]);
    let report = step(&repo, "bubblewrap");
    assert_eq!(report["guard"], "fail", "{report}");
    assert_eq!(repo.meta(1)["guard_run"]["exit_code"], 7);
}

#[test]
fn git_has_nothing_to_complain_about_in_sessions_and_verdicts() {
    for mechanism in ALL {
        let ask = "out=$(git status --porcelain 2>&1 && git log --oneline 2>&1 >/dev/null && git fsck 2>&1)";
        let guard = format!("{ask} && test -z \"$out\" || {{ echo \"$out\"; exit 1; }}");
        let agent = format!("{guard}\necho x > work.txt; out done 'looked'");
        let repo = started(mechanism, &agent, &["sh", "-c", &guard], |_| {});
        step(&repo, mechanism);
        let log = std::fs::read_to_string(repo.iteration(1).join("guard.log")).unwrap();
        assert_eq!(repo.meta(1)["guard"], "pass", "{mechanism}: {log}");
    }
}
