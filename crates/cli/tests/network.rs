//! What sessions and guards can reach, by each mechanism, seen from outside: the whole runner with
//! a scripted agent, and with the real codex binary (`RUNNER_CODEX`; `cargo xtask ci` sets it).

#![allow(clippy::unwrap_used)] // A test that cannot go on has failed.

mod agent_support;

use std::fs;
use std::io::Write as _;
use std::net::TcpListener;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::PathBuf;

use agent_support::contained::{MECHANISMS, TRY, step, tried, with_mechanism};
use agent_support::{GOAL, put_first_on_path};
use runner_testkit::model::{self, ModelServer, ModelTurn};
use runner_testkit::{TestConfig, TestRepo, assert_no_process};
use serde_json::json;

/// `./ask HOST:PORT`: whether the proxy opens a tunnel there.
const ASK: &str = r#"#!/bin/bash
exec 3<>"/dev/tcp/127.0.0.1/${HTTPS_PROXY##*:}" || exit 9
printf 'CONNECT %s HTTP/1.1\r\n\r\n' "$1" >&3
read -r line <&3
case $line in *' 200 '*) exit 0 ;; esac
exit 1
"#;

/// `./get HOST PORT`: whether something there says a word.
const GET: &str = r#"#!/bin/bash
exec 3<>"/dev/tcp/$1/$2" || exit 9
read -r line <&3
test "$line" = hello
"#;

/// Connects to a server of its own.
const OWN: &str = "python3 -c \"import socket\ns = socket.create_server(('127.0.0.1', 0))\nsocket.create_connection(s.getsockname())\"";

/// A server on the host's loopback that says a word to everybody: its port.
fn server() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    // It ends with the tests.
    std::thread::spawn(move || {
        for client in listener.incoming() {
            let _ = client.unwrap().write_all(b"hello\n");
        }
    });
    port
}

/// A started run with the scripts, and this agent and guard.
fn started(
    mechanism: &str,
    agent: &str,
    guard: &str,
    change: impl FnOnce(&mut TestConfig),
) -> TestRepo {
    let mut repo = with_mechanism(mechanism);
    repo.machine_toolchains();
    for (name, text) in [("ask", ASK), ("get", GET)] {
        repo.write(name, text);
        fs::set_permissions(repo.path(name), fs::Permissions::from_mode(0o755)).unwrap();
    }
    repo.commit_all("scripts");
    repo.agent(&format!("{TRY}{agent}"));
    repo.config(change);
    repo.start_run(GOAL, &["sh", "-c", &format!("{TRY}{guard}")]);
    repo
}

#[test]
fn off_keeps_the_hosts_loopback_from_a_guard() {
    for mechanism in MECHANISMS {
        let port = server();
        let reach = |who: &str| format!("try {who} './get 127.0.0.1 {port}'\n");
        let guard = format!(
            "{}try own {OWN:?}\ntry proxied 'test -n \"$HTTPS_PROXY\"'",
            reach("guard")
        );
        let guard = guard.replace("\\n", "\n");
        let agent = format!("{}out done tried", reach("agent"));
        let repo = started(mechanism, &agent, &guard, |config| {
            config.set("sandbox.network.guard", "off");
        });
        step(&repo, mechanism);
        assert!(tried(&repo, "agent"), "{mechanism}: it is open to sessions");
        assert!(!tried(&repo, "guard"), "{mechanism}");
        assert!(!tried(&repo, "proxied"), "{mechanism}");
        // Landlock knows ports and not addresses.
        assert_eq!(tried(&repo, "own"), mechanism == "bubblewrap");
    }
}

#[test]
fn a_list_lets_its_hosts_through_and_tells_of_others_once() {
    let (listed, other) = (server(), server());
    let agent = format!(
        "try direct './get 127.0.0.1 {listed}'\n\
         try asked './ask 127.0.0.1:{listed}'\n\
         try by_name './ask localhost:{listed}'\n\
         try other_direct './get 127.0.0.1 {other}'\n\
         try other './ask 127.0.0.1:{other}'\n\
         try mapped './ask [::ffff:127.0.0.1]:{other}'\n\
         try decimal './ask 2130706433:{other}'\n\
         try metadata './ask 169.254.169.254:80'\n\
         try name './ask api.example:443'\n\
         try again './ask API.example.:443'\n\
         try socket 'test -S /dev/.runner/proxy && bash -c \"exec 3<>/dev/.runner/proxy\"'\n\
         out done tried"
    );
    let repo = started("bubblewrap", &agent, "exit 7", |config| {
        let list = json!([format!("127.0.0.1:{listed}"), "*.example.org"]);
        config
            .set("sandbox.network.session", list.clone())
            .set("sandbox.network.guard", list);
    });
    step(&repo, "bubblewrap");
    let names = [
        "direct",
        "asked",
        "by_name",
        "other_direct",
        "other",
        "mapped",
        "decimal",
        "metadata",
        "name",
        "again",
        "socket",
    ];
    let reached: Vec<&str> = names.into_iter().filter(|it| tried(&repo, it)).collect();
    assert_eq!(reached, ["direct", "asked"]);
    // The launcher before the guard changes nothing of how it ends.
    assert_eq!(repo.meta(1)["guard_run"]["exit_code"], 7);

    let sentence = "the session asked for api.example: not allowed";
    let refused = repo.meta(1)["network_refused"].clone();
    let expected = json!([
        format!("the session asked for localhost:{listed}: not allowed"),
        format!("the session asked for 127.0.0.1:{other}: not allowed"),
        "the session asked for 169.254.169.254: not allowed",
        sentence,
    ]);
    assert_eq!(refused, expected);
    for args in [
        &["log", "1"][..],
        &["status"],
        &["report"],
        &["report", "--md"],
    ] {
        let run = repo.runner(args).success();
        let times = run.stdout.matches(sentence).count();
        assert_eq!(times, 1, "{}", run.describe());
    }
    let status = repo.runner(&["status", "--json"]).success().json();
    assert_eq!(status["network_refused"], expected);
    let report = repo.runner(&["report", "--json"]).success().json();
    assert_eq!(report["network_refused"], expected);
    let events = repo.events();
    assert!(events.iter().any(|it| it["event"] == "network_refused"));
    assert_no_process(&repo.root().display().to_string());
    assert_no_process("__proxy");
}

#[test]
fn a_guard_that_was_refused_a_host_says_so_in_its_log() {
    let guard = "./ask registry.example:443";
    let repo = started("bubblewrap", "out done tried", guard, |config| {
        config.set("sandbox.network.guard", json!([]));
    });
    step(&repo, "bubblewrap");
    assert_eq!(repo.meta(1)["guard"], "fail");
    let log = fs::read_to_string(repo.iteration(1).join("guard.log")).unwrap();
    let sentence = "runner: the guard asked for registry.example: not allowed\n";
    assert!(log.ends_with(sentence), "{log}");
}

#[test]
fn a_red_guard_without_a_network_says_so_and_doctor_tries_it_with_one() {
    let sentence = "runner: this guard ran without a network ([sandbox.network] guard = \"off\")\n";
    let port = server();
    let guard = format!("./get 127.0.0.1 {port}");
    for (rule, guard, is_told) in [("off", guard.as_str(), true), ("open", "exit 1", false)] {
        let repo = started("bubblewrap", "out done tried", guard, |config| {
            config.set("sandbox.network.guard", rule);
        });
        step(&repo, "bubblewrap");
        assert_eq!(repo.meta(1)["guard"], "fail");
        let log = fs::read_to_string(repo.iteration(1).join("guard.log")).unwrap();
        assert_eq!(log.ends_with(sentence), is_told, "{log}");
        let told = repo.runner(&["doctor", "--run-guard", "--json"]).json();
        let checks = told["checks"].as_array().unwrap();
        let inside = checks.iter().find(|it| it["name"] == "guard_inside");
        let remedy = inside
            .and_then(|it| it["remedy"].as_str())
            .unwrap_or_default();
        let words = "the guard passes with a network: set [sandbox.network] guard = \"open\"";
        assert_eq!(remedy.starts_with(words), is_told, "{told:#}");
    }
}

#[test]
fn setup_has_a_rule_of_its_own() {
    let port = server();
    let agent = "test -f made && cp made seen; out done tried";
    let repo = started("bubblewrap", agent, "true", |config| {
        let setup =
            format!("./get 127.0.0.1 {port} && echo yes > made; ./ask tarballs.example:443; true");
        config
            .set("workspace.setup", setup)
            .set(
                "sandbox.network.setup",
                json!([format!("localhost:{port}")]),
            )
            .set("sandbox.network.guard", "off");
    });
    fs::write(repo.path(".git/info/exclude"), "made\n").unwrap();
    repo.runner(&["step"]);
    let notes = repo.meta(1)["notes"].to_string();
    let sentence = "setup asked for tarballs.example: not allowed";
    assert_eq!(notes.matches(sentence).count(), 1, "{:#}", repo.meta(1));
}

#[test]
fn where_a_list_cannot_be_kept_required_refuses_and_auto_says_so() {
    for (rule, mode, refused, said) in [
        (json!(["a.example"]), "required", true, "cannot be kept"),
        (json!(["a.example"]), "auto", false, "cannot be kept"),
        (json!("off"), "required", false, "for TCP alone"),
        (json!("off"), "off", false, "cannot be kept"),
    ] {
        let mut repo = with_mechanism("landlock");
        repo.agent("out done tried");
        repo.config(|config| {
            config.set("sandbox.mode", "auto");
        });
        repo.start_run(GOAL, &["true"]);
        repo.config(|config| {
            config
                .set("sandbox.mode", mode)
                .set("sandbox.network.session", rule.clone());
        });
        repo.write_config();
        repo.commit_all("a rule");
        let run = repo.runner(&["loop"]);
        assert_eq!(run.code, Some(i32::from(refused)), "{}", run.describe());
        assert!(
            run.stderr.contains(said),
            "{rule} {mode}: {}",
            run.describe()
        );
        let doctor = repo.runner(&["doctor", "--json"]).json();
        let checks = doctor["checks"].as_array().unwrap();
        let check = checks.iter().find(|it| it["name"] == "network").unwrap();
        let verdict = if refused { "fail" } else { "warn" };
        assert_eq!(check["verdict"], verdict, "{check}");
    }
}

#[test]
fn an_unknown_agent_has_no_hosts() {
    let mut repo = with_mechanism("bubblewrap");
    repo.agent("out done tried");
    repo.config(|config| {
        config.set("sandbox.network.session", "agent");
    });
    repo.write_config();
    let run = repo.runner(&["validate"]).code(1);
    let all = format!("{}{}", run.stdout, run.stderr);
    assert!(all.contains("may go anywhere"), "{}", run.describe());
}

/// Sockets of other programs that have no path: the session bus of old, containerd, debuggers.
#[test]
fn abstract_sockets_of_others_are_out_of_reach() {
    for mechanism in MECHANISMS {
        for rule in ["open", "off"] {
            let name = format!("runner-network-{}-{mechanism}-{rule}", std::process::id());
            let address = SocketAddr::from_abstract_name(&name).unwrap();
            let _listener = UnixListener::bind_addr(&address).unwrap();
            let connect = |name: &str| {
                format!(
                    "python3 -c 'import socket; s = socket.socket(socket.AF_UNIX); \
                     s.connect(chr(0) + \"{name}\")'"
                )
            };
            let own = "python3 -c 'import socket; a = socket.socket(socket.AF_UNIX); \
                a.bind(chr(0) + \"own\"); a.listen(); socket.socket(socket.AF_UNIX).connect(chr(0) + \"own\")'";
            let agent = format!(
                "cat > other <<'END'\n{}\nEND\ncat > own <<'END'\n{own}\nEND\n\
                 try other 'sh other'\ntry own 'sh own'\nout done tried",
                connect(&name)
            );
            let repo = started(mechanism, &agent, "true", |config| {
                config.set("sandbox.network.session", rule);
            });
            step(&repo, mechanism);
            assert!(!tried(&repo, "other"), "{mechanism} {rule}");
            assert!(tried(&repo, "own"), "{mechanism} {rule}");
        }
    }
}

/// A model on this machine, and a database beside it.
#[test]
fn codex_reaches_its_model_and_nothing_else() {
    let codex = std::env::var_os("RUNNER_CODEX")
        .expect("RUNNER_CODEX names the codex binary: `cargo xtask setup` installs it");
    let codex: PathBuf = fs::canonicalize(codex).unwrap();
    let other = server();
    let reach = format!(
        "bash -c 'exec 3<>/dev/tcp/127.0.0.1/{other}' && echo yes > reached.txt; echo hi > greeting.txt"
    );
    let model = ModelServer::start(vec![
        ModelTurn::shell(&reach),
        ModelTurn::message(r#"{"status":"done","summary":"wrote greeting.txt"}"#),
    ]);
    let mut repo = with_mechanism("bubblewrap");
    repo.config(|config| {
        let args = model::codex_provider_args(&model.base_url());
        config
            .set("executor.backend", "codex")
            .set("executor.command", json!([]))
            .set("executor.model", "scripted")
            .set("executor.extra_args", json!(args))
            .set(&format!("executor.env.{}", model::KEY_VARIABLE), "made-up")
            .set("sandbox.network.session", "agent")
            .set("sandbox.network.guard", "off");
    });
    let bin = repo.root().join("bin");
    fs::create_dir(&bin).unwrap();
    symlink(codex, bin.join("codex")).unwrap();
    put_first_on_path(&mut repo, &bin);
    repo.start_run(GOAL, &["test", "-f", "greeting.txt"]);
    let report = step(&repo, "bubblewrap");
    assert_eq!(
        (&report["status"], &report["guard"]),
        (&json!("done"), &json!("pass")),
        "{:#}",
        repo.meta(1)
    );
    assert_eq!(model.turns_left(), 0);
    assert!(!repo.exists("reached.txt"));
    assert_eq!(repo.read("greeting.txt"), "hi\n");
}
