//! How each CLI is called.

// A test may fail by it, its helpers too.
#![allow(clippy::unwrap_used)]

use std::ffi::OsString;
use std::path::Path;

use runner_agents::{AgentSpec, Invocation, backend};
use runner_core::config::BackendKind;
use runner_core::schema::AGENT_OUTPUT_FOR_MODELS;

fn session() -> AgentSpec<'static> {
    AgentSpec {
        project_dir: Path::new("/project"),
        output_path: Path::new("/project/out/output.json"),
        schema_path: Path::new("/project/out/schema.json"),
        schema_json: AGENT_OUTPUT_FOR_MODELS,
        model: "",
        extra_args: &[],
        command: &[],
        contained: true,
        is_root: false,
        agent_home: None,
        login_folder: None,
        inherit: &[],
        instructions: None,
    }
}

fn invocation(kind: BackendKind, session: &AgentSpec<'_>) -> Invocation {
    backend(kind).invocation(session)
}

fn argv(kind: BackendKind, session: &AgentSpec<'_>) -> Vec<String> {
    invocation(kind, session)
        .argv
        .into_iter()
        .map(|word| word.into_string().unwrap())
        .collect()
}

/// Whether the words stand next to each other somewhere.
fn has(argv: &[String], words: &[&str]) -> bool {
    argv.windows(words.len()).any(|window| window == words)
}

#[test]
fn codex() {
    let words = argv(BackendKind::Codex, &session());
    assert_eq!(
        words[..5],
        [
            "codex",
            "exec",
            "--json",
            "--ephemeral",
            "--skip-git-repo-check"
        ]
    );
    assert_eq!(words.last().unwrap(), "-");
    for part in [
        ["-C", "/project"],
        ["--output-schema", "/project/out/schema.json"],
        ["-o", "/project/out/output.json"],
        ["-c", "analytics.enabled=false"],
        ["-c", "check_for_update_on_startup=false"],
        ["-c", "features.unbounded_connection_retries=false"],
        ["-c", "model_auto_compact_token_limit=9000000"],
        ["-c", "model_context_window=100000000"],
    ] {
        assert!(has(&words, &part), "{part:?} in {words:?}");
    }
    assert!(has(&words, &["--dangerously-bypass-approvals-and-sandbox"]));
    assert!(!has(&words, &["-s"]) && !has(&words, &["-m"]));

    let extra = ["-c".to_owned(), "features.plugins=true".to_owned()];
    let bare = AgentSpec {
        contained: false,
        model: "some-model",
        extra_args: &extra,
        agent_home: Some(Path::new("/agent")),
        ..session()
    };
    let words = argv(BackendKind::Codex, &bare);
    assert!(has(&words, &["-s", "workspace-write"]) && has(&words, &["-m", "some-model"]));
    assert!(!has(
        &words,
        &["--dangerously-bypass-approvals-and-sandbox"]
    ));
    // After ours, where it wins, and before the mark of the prompt.
    assert!(words.ends_with(&[extra[0].clone(), extra[1].clone(), "-".to_owned()]));
    let invocation = invocation(BackendKind::Codex, &bare);
    let env = [
        ("CODEX_HOME", "/agent"),
        ("CODEX_SQLITE_HOME", "/agent/sqlite"),
    ];
    assert_eq!(
        invocation.env,
        env.map(|(name, value)| (name.into(), value.into()))
    );
    assert!(invocation.writable_home.is_empty());
}

#[test]
fn claude() {
    let words = argv(BackendKind::Claude, &session());
    assert_eq!(words[..2], ["claude", "-p"]);
    for part in [
        &["--output-format", "stream-json"][..],
        &["--verbose"],
        &["--no-session-persistence"],
        &["--json-schema", AGENT_OUTPUT_FOR_MODELS],
        &["--dangerously-skip-permissions"],
    ] {
        assert!(has(&words, part), "{part:?} in {words:?}");
    }
    let root = AgentSpec {
        is_root: true,
        model: "some-model",
        ..session()
    };
    let words = argv(BackendKind::Claude, &root);
    assert!(!has(&words, &["--dangerously-skip-permissions"]));
    assert!(has(&words, &["--permission-mode", "dontAsk"]));
    assert!(has(&words, &["--allowedTools", "Bash,Edit,Write,Read"]));
    assert!(has(&words, &["--model", "some-model"]));
    let env = invocation(BackendKind::Claude, &root).env;
    let set = |name: &str| env.contains(&(OsString::from(name), OsString::from("1")));
    assert!(set("DISABLE_AUTO_COMPACT") && set("DISABLE_TELEMETRY") && set("DISABLE_AUTOUPDATER"));
}

#[test]
fn opencode() {
    let with_model = AgentSpec {
        model: "provider/some-model",
        agent_home: Some(Path::new("/agent")),
        ..session()
    };
    let words = argv(BackendKind::Opencode, &with_model);
    let expected = [
        "opencode",
        "run",
        "--format",
        "json",
        "--dir",
        "/project",
        "-m",
        "provider/some-model",
        "--auto",
    ];
    assert_eq!(words, expected);
    let env = invocation(BackendKind::Opencode, &with_model).env;
    assert!(env.contains(&("OPENCODE_DISABLE_AUTOCOMPACT".into(), "1".into())));
    assert!(env.contains(&("XDG_DATA_HOME".into(), "/agent/data".into())));
}

#[test]
fn command() {
    let command = ["my-agent".to_owned(), "--go".to_owned()];
    let extra = ["more".to_owned()];
    let session = AgentSpec {
        command: &command,
        extra_args: &extra,
        ..session()
    };
    let invocation = invocation(BackendKind::Command, &session);
    assert_eq!(invocation.argv, ["my-agent", "--go", "more"]);
    assert!(invocation.env.is_empty() && invocation.passed_env.is_empty());
    assert_eq!(backend(BackendKind::Command).program(), None);
}

#[test]
fn every_backend_has_its_word_and_probes_what_it_passes() {
    for kind in BackendKind::ALL {
        let backend = backend(*kind);
        assert_eq!(backend.name(), kind.as_str());
        let Some(program) = backend.program() else {
            continue;
        };
        let probe = backend.probe();
        assert_eq!(probe.version[0], program);
        let probed: Vec<&str> = probe
            .helps
            .iter()
            .flat_map(|help| help.flags)
            .copied()
            .collect();
        for is_root in [false, true] {
            for contained in [false, true] {
                let session = AgentSpec {
                    is_root,
                    contained,
                    model: "some-model",
                    ..session()
                };
                let flags = argv(*kind, &session);
                for flag in flags
                    .iter()
                    .filter(|word| word.len() > 1 && word.starts_with('-'))
                {
                    assert!(probed.contains(&flag.as_str()), "{flag} of {program}");
                }
            }
        }
        // Whoever reports a cost can say it only with tokens.
        assert!(backend.reports_tokens());
        assert!(!probe.login.env.is_empty() && !probe.login.files.is_empty());
        let invocation = backend.invocation(&session());
        assert!(!invocation.writable_home.is_empty());
        for variable in probe.login.env {
            assert!(invocation.passed_env.contains(variable), "{variable}");
        }
        for folder in invocation.writable_home {
            assert!(
                folder.starts_with('.') && !folder.contains(".."),
                "{folder}"
            );
        }
    }
}
