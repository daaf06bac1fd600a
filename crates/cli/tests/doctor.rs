//! `runner doctor`: what it finds on a machine made of stand-ins, and what it
//! never says.

mod doctor_support;
mod scenario;

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use doctor_support::{
    FLAGS, KEY, assert_no_key, bin, check, codex, doctor, expect, names, program, project, real,
    with_tools,
};
use runner_testkit::{TestRepo, assert_no_process};
use scenario::{BIN, GOAL, assert_same, error_code, human_error, picture};
use serde_json::json;

#[test]
fn a_machine_that_is_ready() {
    let repo = project(&["sh", "-c", "true"]);
    let before = picture(&repo);
    let value = doctor(&repo, &[], 0);
    // What listens on this machine is told, if anything does.
    let mut found = names(&value);
    found.retain(|name| *name != "loopback");
    assert_eq!(
        found,
        [
            "git",
            "git_identity",
            "project",
            "guard",
            "agent",
            "agent_version",
            "agent_flags",
            "agent_login",
            "agent_home",
            "bubblewrap",
            "landlock",
            "sandbox",
            "promises",
            "network",
            "limits",
            "disk_space",
            "clock"
        ]
    );
    expect(&value, "git", "ok", "git version");
    expect(&value, "git_identity", "ok", "");
    expect(&value, "project", "ok", "in order");
    expect(&value, "guard", "ok", "bin/sh");
    expect(&value, "agent", "ok", "bin/codex");
    expect(&value, "agent_version", "ok", "0.166.0, known to work");
    expect(&value, "agent_flags", "ok", "all 11 flags");
    expect(&value, "agent_login", "ok", "CODEX_API_KEY is set");
    assert_eq!(value.get("run_guard"), None);
    assert_same(&repo, &before, "doctor only looks");

    // From a folder below, and told so.
    repo.write("deep/er/x", "");
    let run = repo.runner(&["-C", "deep/er", "doctor", "--json"]);
    assert_eq!(names(&run.json()), names(&value));
}

#[test]
fn it_reads_well() {
    let repo = project(&["no-such-guard"]);
    let run = repo.runner(&["doctor"]).code(1);
    assert_no_key(&run);
    assert!(!run.stdout.contains('\x1b'), "{}", run.describe());
    assert!(
        run.stdout
            .contains("✓ agent version  0.166.0, known to work\n")
    );
    let guard = "✗ guard          cannot start `no-such-guard`: no such file or directory\n                 → install `no-such-guard`";
    assert!(run.stdout.contains(guard), "{}", run.describe());
    assert!(run.stderr.contains(" 1 to mend\n"), "{}", run.describe());
    let quiet = repo.runner(&["doctor", "--quiet"]).code(1);
    assert_eq!(quiet.stderr, "");
    let coloured = repo.runner(&["doctor", "--color", "always"]).code(1);
    assert!(coloured.stdout.contains("\x1b[31m✗\x1b[0m guard"));
    assert!(coloured.stdout.contains("\x1b[32m✓\x1b[0m git"));
}

#[test]
fn the_agent_is_asked_not_believed() {
    let repo = project(&["true"]);
    let no_color = FLAGS.replace("--color ", "--colour ");
    let cases = [
        ("0.100.0", FLAGS, 0, "agent_version", "warn", "is older"),
        ("0.999.0", FLAGS, 0, "agent_version", "warn", "is newer"),
        ("unknown", FLAGS, 0, "agent_version", "warn", "no version"),
        (
            "0.166.3",
            &no_color,
            1,
            "agent_flags",
            "fail",
            "does not name --color\"",
        ),
        ("0.166.3", "", 1, "agent_flags", "fail", "--output-schema"),
    ];
    for (version, flags, code, name, verdict, words) in cases {
        codex(&repo, version, flags);
        expect(&doctor(&repo, &[], code), name, verdict, words);
    }
    // What a CLI prints may hold what it was given.
    program(&repo, "codex", "echo \"bad key $CODEX_API_KEY\"; exit 3");
    let value = doctor(&repo, &[], 1);
    expect(&value, "agent_version", "fail", "gave exit 3: bad key ***");
    expect(&value, "agent_flags", "fail", "gave exit 3: bad key ***");
    assert_no_key(&repo.runner(&["-v", "doctor"]));

    program(&repo, "codex", "");
    fs::set_permissions(bin(&repo).join("codex"), fs::Permissions::from_mode(0o644)).unwrap();
    let value = doctor(&repo, &[], 1);
    expect(&value, "agent", "fail", "permission denied");
    fs::remove_file(bin(&repo).join("codex")).unwrap();
    let value = doctor(&repo, &[], 1);
    expect(&value, "agent", "fail", "npm install -g @openai/codex");
    assert!(!names(&value).contains(&"agent_version"));
}

#[test]
fn an_agent_that_hangs_is_ended() {
    let repo = project(&["true"]);
    program(&repo, "codex", "trap '' TERM; sleep 600 & sleep 600");
    let value = doctor(&repo, &[], 1);
    expect(
        &value,
        "agent_version",
        "fail",
        "`codex --version` did not end within 10 s",
    );
    expect(&value, "agent_flags", "warn", "did not tell its version");
    expect(&value, "agent_login", "ok", "CODEX_API_KEY");
    assert_no_process(&repo.root().display().to_string());
}

#[test]
fn logins_are_found_and_never_shown() {
    let mut repo = project(&["true"]);
    repo.env_remove("CODEX_API_KEY");
    expect(&doctor(&repo, &[], 1), "agent_login", "fail", "codex login");
    // Codex itself takes no notice of this one.
    repo.env("OPENAI_API_KEY", KEY);
    expect(
        &doctor(&repo, &[], 1),
        "agent_login",
        "fail",
        "not logged in",
    );

    let home = repo.root().join("home");
    fs::create_dir(home.join(".codex")).unwrap();
    fs::write(home.join(".codex/auth.json"), KEY).unwrap();
    let value = doctor(&repo, &[], 0);
    expect(&value, "agent_login", "ok", "~/.codex/auth.json is there");
    let elsewhere = repo.root().join("elsewhere");
    repo.env("CODEX_HOME", &elsewhere);
    expect(
        &doctor(&repo, &[], 1),
        "agent_login",
        "fail",
        "not logged in",
    );
    fs::create_dir(&elsewhere).unwrap();
    fs::write(elsewhere.join("auth.json"), KEY).unwrap();
    expect(
        &doctor(&repo, &[], 0),
        "agent_login",
        "ok",
        "elsewhere/auth.json",
    );

    repo.env_remove("CODEX_HOME");
    fs::remove_dir_all(home.join(".codex")).unwrap();
    repo.config(|config| {
        config.set("executor.env.CODEX_API_KEY", KEY);
    });
    repo.write_config();
    let value = doctor(&repo, &[], 0);
    expect(&value, "agent_login", "warn", "config.toml is committed");
    assert_no_key(&repo.runner(&["-v", "doctor"]));
}

#[test]
fn other_agents() {
    let mut repo = project(&["true"]);
    repo.env("ANTHROPIC_API_KEY", KEY);
    for (name, version, help, flags) in [
        (
            "claude",
            "2.1.325 (Claude Code)",
            "--help",
            "-p --output-format --verbose --no-session-persistence --json-schema --model \
             --permission-mode --allowedTools --dangerously-skip-permissions --setting-sources \
             --strict-mcp-config --mcp-config --append-system-prompt",
        ),
        (
            "opencode",
            "1.18.33",
            "run --help",
            "--format --dir -m --auto",
        ),
    ] {
        let script = format!(
            "case \"$*\" in --version) echo '{version}';; '{help}') echo '{flags}';; *) exit 9;; esac"
        );
        program(&repo, name, &script);
        repo.config(|config| {
            config.set("executor.backend", name);
        });
        repo.write_config();
        let value = doctor(&repo, &[], 0);
        expect(&value, "agent", "ok", name);
        expect(&value, "agent_version", "ok", "known to work");
        expect(&value, "agent_flags", "ok", "flags");
        expect(&value, "agent_login", "ok", "ANTHROPIC_API_KEY is set");
    }
    // Of any other agent only the program is known.
    repo.config(|config| {
        config
            .set("executor.backend", "command")
            .set("executor.command", json!(["my-agent"]));
    });
    repo.write_config();
    expect(
        &doctor(&repo, &[], 1),
        "agent",
        "fail",
        "[executor] command",
    );
    program(&repo, "my-agent", "");
    let value = doctor(&repo, &[], 0);
    expect(&value, "agent", "ok", "bin/my-agent");
    assert!(!names(&value).contains(&"agent_login"));
}

#[test]
fn the_machine_alone() {
    let mut repo = with_tools(TestRepo::empty(BIN));
    let value = doctor(&repo, &[], 0);
    expect(&value, "project", "warn", "runner init");
    expect(&value, "git_identity", "warn", "runner@localhost");
    expect(
        &value,
        "agent",
        "warn",
        "neither codex nor claude nor opencode",
    );
    assert!(!names(&value).contains(&"guard"));
    codex(&repo, "0.166.0", FLAGS);
    expect(&doctor(&repo, &[], 0), "agent", "ok", "bin/codex");

    let run = repo.runner(&["doctor", "--run-guard", "--json"]).code(1);
    assert_eq!(error_code(&run), "layout");
    human_error(&repo.runner(&["-C", "nowhere", "doctor"]), "nowhere", "");

    // Also where there is no git to ask.
    fs::remove_file(bin(&repo).join("git")).unwrap();
    let value = doctor(&repo, &[], 1);
    expect(&value, "git", "fail", "install git");
    assert!(!names(&value).contains(&"git_identity"));
    program(&repo, "git", "echo git version 2.20.1");
    expect(&doctor(&repo, &[], 1), "git", "fail", "too old");
    repo.env("PATH", "");
    doctor(&repo, &[], 1);
}

#[test]
fn a_project_that_is_not_in_order() {
    let mut repo = project(&["true"]);
    repo.write(".runner/GOAL.md", "");
    expect(
        &doctor(&repo, &[], 1),
        "project",
        "fail",
        "GOAL.md: it says nothing",
    );
    repo.write(".runner/GOAL.md", GOAL);
    repo.config(|config| {
        config.raw("\n[gurad]\n");
    });
    repo.write_config();
    let value = doctor(&repo, &[], 1);
    expect(&value, "project", "fail", "gurad");
    // What the config would say is not guessed.
    assert!(!names(&value).contains(&"agent"));

    // A guard of the project's own may be part of the goal.
    let repo = project(&["./ci.sh"]);
    expect(
        &doctor(&repo, &[], 0),
        "guard",
        "warn",
        "./ci.sh is not there",
    );
    // On a branch without the run.
    repo.git(&["switch", "--quiet", "main"]);
    let value = doctor(&repo, &[], 0);
    expect(&value, "project", "warn", "runner start demo");
}

#[test]
fn a_sandbox_that_is_required() {
    let mut repo = project(&["true"]);
    repo.config(|config| {
        config.set("sandbox.mode", "required");
    });
    repo.write_config();
    // There is no bwrap on this PATH; whether there is Landlock is the kernel's to say.
    let run = repo.runner(&["doctor", "--json"]);
    let value = run.json();
    expect(&value, "bubblewrap", "warn", "install bubblewrap");
    if check(&value, "landlock")["verdict"] == "ok" {
        run.success();
        expect(&value, "sandbox", "ok", "Landlock");
    } else {
        run.code(1);
        expect(&value, "sandbox", "fail", "there is no sandbox");
    }
    program(
        &repo,
        "bwrap",
        "echo 'bwrap: No permissions to create a new namespace' >&2; exit 1",
    );
    let value = repo.runner(&["doctor", "--json"]).json();
    expect(&value, "bubblewrap", "warn", "No permissions to create");

    repo.config(|config| {
        config
            .set("sandbox.mode", "off")
            .set("sandbox.writable", json!(["~/gone"]));
    });
    repo.write_config();
    let value = doctor(&repo, &[], 0);
    expect(&value, "bubblewrap", "ok", "not needed");
    expect(&value, "sandbox", "ok", "off");
    expect(&value, "sandbox_writable", "warn", "`~/gone` is not there");
}

#[test]
fn programs_that_see_the_checkout_instead_of_the_workspace() {
    let mut repo = project(&["sh", "ci.sh"]);
    let script = "set -e\ndocker run --rm -v \"$PWD\":/src image check\n";
    repo.write("ci.sh", script);
    repo.commit_all("A guard");
    if let Some(bubblewrap) = real("bwrap") {
        std::os::unix::fs::symlink(bubblewrap, bin(&repo).join("bwrap"))
            .expect("it can be put there");
    }
    let value = doctor(&repo, &[], 0);
    // Without bubblewrap the workspace is seen where it lies.
    if check(&value, "sandbox")["message"]
        .to_string()
        .contains("bubblewrap")
    {
        let words = "ci.sh line 2: the daemon of `docker` mounts a volume";
        expect(&value, "outside_programs", "warn", words);
    } else {
        assert!(!names(&value).contains(&"outside_programs"), "{value:#}");
    }
    repo.config(|config| {
        config.set("sandbox.mode", "off");
    });
    repo.write_config();
    let value = doctor(&repo, &[], 0);
    assert!(!names(&value).contains(&"outside_programs"), "{value:#}");
}
