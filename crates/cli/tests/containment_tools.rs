//! What agents and guards need although they are contained: their commits, the
//! caches of their tools, and an environment of named variables.

#![allow(clippy::unwrap_used)] // A test that cannot go on has failed.

mod agent_support;

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;

use agent_support::contained::{MECHANISMS, TRY, started, step, tried, tried_in, with_mechanism};
use agent_support::stub::{Scene, Stub};
use agent_support::{GOAL, put_first_on_path};
use serde_json::json;

#[test]
fn an_agent_may_commit_also_in_a_linked_worktree() {
    let agent = "echo work > work.txt\n\
        try commit 'git add work.txt && git commit -qm \"by the agent\"'\n\
        try stash 'echo x >> work.txt && git stash -q && git stash drop -q'\n\
        echo more > more.txt\nout done committed";
    for mechanism in MECHANISMS {
        let repo = started(mechanism, agent, &["test", "-f", "work.txt"], |_| {});
        step(&repo, mechanism);
        assert!(
            tried(&repo, "commit") && tried(&repo, "stash"),
            "{mechanism}"
        );
        // Its commits count for nothing, its files do.
        assert!(
            !repo.subjects().contains(&"by the agent".to_owned()),
            "{mechanism}"
        );
        assert_eq!(repo.git(&["show", "HEAD:more.txt"]), "more");
        assert_eq!(repo.node("root")["passes"], true);
        repo.git(&["fsck", "--no-progress"]);

        // The same in a work tree whose git folders lie outside of it.
        let mut repo = with_mechanism(mechanism);
        repo.agent(&format!("{TRY}{agent}"));
        repo.config(|config| {
            config.set("guard.command", json!(["test", "-f", "work.txt"]));
        });
        let linked = repo.root().join("linked");
        let linked = linked.to_str().unwrap();
        repo.git(&["worktree", "add", "-q", "-b", "side", linked]);
        let runner = |args: &[&str]| {
            let args: Vec<&str> = ["-C", linked].iter().chain(args).copied().collect();
            repo.runner(&args).success()
        };
        runner(&["init", "--backend", "command", "--guard", "true"]);
        repo.write_config();
        let config = repo.read(".runner/state/config.toml");
        fs::remove_dir_all(repo.path(".runner")).unwrap();
        fs::write(format!("{linked}/.runner/state/config.toml"), config).unwrap();
        fs::write(format!("{linked}/.runner/GOAL.md"), GOAL).unwrap();
        runner(&["start"]);
        let run = runner(&["step", "--json"]);
        assert_eq!(run.json()["passes"], true, "{}", run.describe());
        let iteration = Path::new(linked).join(".runner/iterations/demo/1");
        assert!(
            tried_in(&iteration, "commit") && tried_in(&iteration, "stash"),
            "{mechanism} linked"
        );
        let log = repo.git(&["log", "--format=%s", "runner/demo"]);
        assert!(!log.contains("by the agent"), "{mechanism} linked: {log}");
        repo.assert_clean();
    }
}

/// The cargo that runs this test, found by the guard without a home of its own.
fn cargo_folder() -> PathBuf {
    let cargo = std::env::var_os("CARGO").expect("cargo runs the tests and says where it is");
    Path::new(&cargo).parent().unwrap().to_owned()
}

#[test]
fn a_cargo_guard_finds_its_cache() {
    for mechanism in MECHANISMS {
        let mut repo = with_mechanism(mechanism);
        put_first_on_path(&mut repo, &cargo_folder());
        // A dependency that lies in the cache and nowhere else once it was fetched.
        let dependency = repo.root().join("dependency");
        fs::create_dir_all(dependency.join("src")).unwrap();
        let manifest = |name: &str, more: &str| {
            format!(
                "[package]\nname = \"{name}\"\nversion = \"0.1.0\"\nedition = \"2021\"\n[workspace]\n{more}"
            )
        };
        fs::write(dependency.join("Cargo.toml"), manifest("dep", "")).unwrap();
        fs::write(
            dependency.join("src/lib.rs"),
            "pub const ANSWER: u32 = 42;\n",
        )
        .unwrap();
        let place = dependency.display().to_string();
        for args in [
            &["init", "-q", &place][..],
            &["-C", &place, "add", "-A"],
            &["-C", &place, "commit", "-qm", "dep"],
        ] {
            repo.git(args);
        }
        let uses = format!("[dependencies]\ndep = {{ git = \"file://{place}\" }}\n");
        repo.write("Cargo.toml", manifest("tiny", &uses));
        repo.write("src/lib.rs", "pub fn answer() -> u32 { dep::ANSWER }\n");
        repo.write(".gitignore", "/target\n");
        let fetched = repo
            .hermetic("cargo")
            .args(["fetch", "--quiet"])
            .output()
            .unwrap();
        assert!(
            fetched.status.success(),
            "{}",
            String::from_utf8_lossy(&fetched.stderr)
        );
        fs::remove_dir_all(&dependency).unwrap();
        repo.commit_all("a tiny crate");

        repo.agent("echo 'pub fn more() {}' >> src/lib.rs; out done 'more'");
        repo.start_run(GOAL, &["cargo", "check", "--offline", "--quiet"]);
        step(&repo, mechanism);
        let log = fs::read_to_string(repo.iteration(1).join("guard.log")).unwrap();
        assert_eq!(repo.node("root")["passes"], true, "{mechanism}: {log}");
    }
}

#[test]
fn an_npm_guard_finds_its_cache() {
    for mechanism in MECHANISMS {
        let mut repo = with_mechanism(mechanism);
        fs::create_dir_all(repo.root().join("home/.npm")).unwrap();
        repo.agent("echo x > x; out done x");
        // It keeps its logs in the cache, and says so when it cannot.
        let guard =
            "npm --version && npm cache verify && ls \"$npm_config_cache/_logs\" | grep -q log";
        repo.start_run(GOAL, &["sh", "-c", guard]);
        step(&repo, mechanism);
        let log = fs::read_to_string(repo.iteration(1).join("guard.log")).unwrap();
        assert_eq!(
            repo.node("root")["passes"],
            true,
            "{mechanism}: {log}\n(npm comes with node: `cargo xtask setup`)"
        );
    }
}

/// The variables in a file that `env -0` wrote.
fn variables(path: &Path) -> BTreeMap<String, String> {
    let text = fs::read_to_string(path).unwrap();
    let pairs = text.split('\0').filter_map(|pair| pair.split_once('='));
    pairs
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
}

#[test]
fn children_get_named_variables_and_no_others() {
    let secrets = [
        "OPENAI_API_KEY",
        "AWS_SECRET_ACCESS_KEY",
        "GITHUB_TOKEN",
        "SSH_AUTH_SOCK",
        "LD_PRELOAD_NOT",
    ];
    let mut repo = with_mechanism("bubblewrap");
    for name in secrets {
        repo.env(name, "made-up-secret");
    }
    repo.env("LC_ALL", "C")
        .env("TERM", "dumb")
        .env("XDG_CACHE_HOME", "/nowhere");
    repo.config(|config| {
        config
            .set("sandbox.writable", json!(["~/../out"]))
            .set("executor.env.OWN", "of-the-config")
            .set("executor.env.RUNNER_ITER", "forged")
            .set("executor.env.LC_ALL", "C.UTF-8");
    });
    repo.agent("env -0 > \"$HOME/../out/agent.env\"; out done told");
    repo.start_run(GOAL, &["sh", "-c", "env -0 > \"$HOME/../out/guard.env\""]);
    step(&repo, "bubblewrap");
    let agent = variables(&repo.root().join("out/agent.env"));
    let guard = variables(&repo.root().join("out/guard.env"));
    for (who, env) in [("agent", &agent), ("guard", &guard)] {
        for name in secrets.iter().chain(&["RUNNER_RETRY_DELAYS_SECS"]) {
            assert_eq!(env.get(*name), None, "{who} has {name}");
        }
        assert!(
            !env.values().any(|value| value.contains("made-up-secret")),
            "{who}: {env:?}"
        );
        for name in [
            "PATH",
            "HOME",
            "LANG",
            "TERM",
            "TMPDIR",
            "TZ",
            "XDG_CACHE_HOME",
            "RUNNER_RUN_ID",
            "RUNNER_NODE_ID",
            "RUNNER_PROJECT_DIR",
        ] {
            assert!(env.contains_key(name), "{who} lacks {name}");
        }
        assert_eq!(env["RUNNER_ITER"], "1", "{who}");
    }
    // What the configuration adds is for the agent, and comes before what is set.
    assert_eq!(
        (agent["OWN"].as_str(), agent["LC_ALL"].as_str()),
        ("of-the-config", "C.UTF-8")
    );
    assert_eq!((guard.get("OWN"), guard["LC_ALL"].as_str()), (None, "C"));
    assert!(agent.contains_key("RUNNER_OUTPUT_PATH") && !guard.contains_key("RUNNER_OUTPUT_PATH"));
}

#[test]
fn a_backend_gets_its_own_keys_and_the_configuration_wins() {
    let mut stub = Stub::started("claude", |config| {
        config
            .set("executor.env.ANTHROPIC_BASE_URL", "http://of.the.config")
            .set("executor.env.DISABLE_TELEMETRY", "0");
    });
    for (name, value) in [
        ("ANTHROPIC_API_KEY", "made-up"),
        ("ANTHROPIC_BASE_URL", "http://inherited"),
        ("OPENAI_API_KEY", "made-up-too"),
    ] {
        stub.repo.env(name, value);
    }
    stub.play(&Scene::recorded("claude-401"));
    stub.repo.runner(&["step"]).code(1);
    let env = stub.env(1);
    assert_eq!(env["ANTHROPIC_API_KEY"], "made-up");
    assert_eq!(env["ANTHROPIC_BASE_URL"], "http://of.the.config");
    assert_eq!(env["DISABLE_TELEMETRY"], "0");
    assert_eq!(env.get("OPENAI_API_KEY"), None);
}

/// A package whose script writes down what it can see and reach.
fn package(folder: &Path, port: u16) -> Vec<u8> {
    let script = format!(
        "{{ cat ~/.npmrc; echo \"variable: $REGISTRY_TOKEN\"; (: > /dev/tcp/127.0.0.1/{port}) && echo reached; true; \
         }} > seen 2>&1\n"
    );
    let inside = folder.join("package");
    fs::create_dir_all(&inside).unwrap();
    fs::write(inside.join("look.sh"), script).unwrap();
    let manifest = json!({
        "name": "dep", "version": "1.0.0", "scripts": {"postinstall": "bash look.sh"},
    });
    fs::write(inside.join("package.json"), manifest.to_string()).unwrap();
    #[allow(clippy::disallowed_methods)] // Nothing of the runner's.
    let mut tar = Command::new("tar");
    let made = tar.arg("-C").arg(folder).args(["-czf", "-", "package"]);
    made.output().unwrap().stdout
}

/// Answers every request that has the token with the package.
fn serve(listener: TcpListener, token: &'static str, package: Vec<u8>) {
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let lines = BufReader::new(stream.try_clone().unwrap()).lines();
            let mut head = lines.map_while(Result::ok).take_while(|it| !it.is_empty());
            let is_known = head.any(|line| line.ends_with(token));
            let (status, body) = if is_known {
                ("200 OK", &package[..])
            } else {
                ("401 Unauthorized", &b""[..])
            };
            let length = body.len();
            let answer = format!(
                "HTTP/1.1 {status}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n"
            );
            // A client that is gone misses nothing.
            let _ = stream.write_all(&[answer.as_bytes(), body].concat());
        }
    });
}

#[test]
fn only_what_fetches_has_the_token_of_setup() {
    const TOKEN: &str = "geheim-geheim";
    for mechanism in MECHANISMS {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let mut repo = with_mechanism(mechanism);
        let scratch = tempfile::tempdir().unwrap();
        serve(listener, TOKEN, package(scratch.path(), port));
        let login =
            format!("registry=http://127.0.0.1:{port}/\n//127.0.0.1:{port}/:_authToken={TOKEN}\n");
        fs::write(repo.root().join("home/.npmrc"), login).unwrap();
        let manifest = json!({"name": "x", "version": "1.0.0", "dependencies": {"dep": "1.0.0"}});
        repo.write("package.json", manifest.to_string());
        let locked = json!({
            "name": "x", "version": "1.0.0", "lockfileVersion": 3, "requires": true,
            "packages": {
                "": manifest,
                "node_modules/dep": {
                    "version": "1.0.0", "hasInstallScript": true,
                    "resolved": format!("http://127.0.0.1:{port}/dep/-/dep-1.0.0.tgz"),
                },
            },
        });
        repo.write("package-lock.json", locked.to_string());
        repo.write(".gitignore", "node_modules\n");
        repo.commit_all("files");
        repo.env("REGISTRY_TOKEN", "another-secret");
        repo.agent("out done fine");
        repo.config(|config| {
            config
                .set("workspace.setup", json!(["npm", "ci", "--no-audit"]))
                .set("workspace.env", json!(["REGISTRY_TOKEN"]))
                .set("sandbox.setup.readable", json!(["~/.npmrc"]));
        });
        repo.start_run(GOAL, &["cat", "node_modules/dep/seen"]);
        step(&repo, mechanism);
        let seen = fs::read_to_string(repo.iteration(1).join("guard.log")).unwrap();
        assert!(seen.contains("registry="), "{mechanism}: {seen}");
        for secret in [TOKEN, "another-secret", "***", "reached"] {
            assert!(!seen.contains(secret), "{mechanism}: {seen}");
        }
        let doctor = repo.runner(&["doctor", "--json"]).json();
        let checks = doctor["checks"].as_array().unwrap();
        let check = checks.iter().find(|it| it["name"] == "setup_token");
        assert_eq!(check.unwrap()["verdict"], "ok", "{doctor}");
    }
}
