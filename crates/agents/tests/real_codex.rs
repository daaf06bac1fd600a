//! The real codex binary against a scripted model, in a network of its own.
//!
//! `RUNNER_CODEX=/path/to/codex cargo test -p runner-agents --test real_codex -- --ignored`
//!
//! Every session must come to the same as its recording in `streams/`; with
//! `RUNNER_RECORD=1` the recordings are made anew.

// A test may fail by it, its helpers too.
#![allow(clippy::unwrap_used)]

mod support;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use runner_agents::{AgentEvent, AgentSpec, FailureKind};
use runner_core::config::BackendKind;
use runner_core::output::AgentOutput;
use runner_core::schema::AGENT_OUTPUT_FOR_MODELS;
use runner_testkit::model::{self, ModelServer, ModelTurn};
use serde_json::json;

use support::Recorded;

const DONE: &str = r#"{"status":"done","summary":"wrote greeting.txt"}"#;
/// 2030-01-02T03:04:00Z.
const LIMIT_ENDS: u64 = 1_893_553_440;

/// A session to play.
struct Scenario {
    name: &'static str,
    turns: Vec<ModelTurn>,
    base_url: &'static str,
    /// A name that codex knows gets other tools than one that it does not.
    model: &'static str,
    has_key: bool,
}

fn scenario(name: &'static str, turns: Vec<ModelTurn>) -> Scenario {
    Scenario {
        name,
        turns,
        base_url: model::ISOLATED_BASE_URL,
        model: "scripted",
        has_key: true,
    }
}

fn scenarios() -> Vec<Scenario> {
    let write =
        || ModelTurn::shell("echo hi > greeting.txt && cat greeting.txt").tokens(1000, 0, 50);
    let limit = json!({"error": {
        "type": "usage_limit_reached",
        "message": "The usage limit has been reached",
        "plan_type": "plus",
        "resets_at": LIMIT_ENDS,
    }});
    vec![
        scenario(
            "codex-success",
            vec![
                write(),
                ModelTurn::shell("test -e nothing; exit 3"),
                ModelTurn::message(DONE).tokens(1100, 1000, 30),
            ],
        ),
        Scenario {
            model: "",
            ..scenario(
                "codex-success-default-model",
                vec![write(), ModelTurn::message(DONE)],
            )
        },
        scenario(
            "codex-decomposed",
            vec![
                ModelTurn::shell("printf '{\"id\":\"root\"}\\n' > tree.json"),
                ModelTurn::message(r#"{"status":"decomposed","summary":"split in two"}"#),
            ],
        ),
        scenario(
            "codex-not-json",
            vec![ModelTurn::message("not json at all")],
        ),
        scenario(
            "codex-schema-violation",
            vec![ModelTurn::message(r#"{"status":"finished","extra":1}"#)],
        ),
        scenario(
            "codex-401",
            vec![ModelTurn::status(
                401,
                r#"{"error":{"message":"Incorrect API key provided"}}"#,
            )],
        ),
        scenario(
            "codex-429",
            vec![ModelTurn::status(
                429,
                r#"{"error":{"message":"slow down"}}"#,
            )],
        ),
        scenario(
            "codex-usage-limit",
            vec![ModelTurn::status(429, &limit.to_string())],
        ),
        scenario(
            "codex-quota",
            vec![ModelTurn::failed(
                "insufficient_quota",
                "You exceeded your current quota",
            )],
        ),
        scenario(
            "codex-stream-rate-limit",
            vec![ModelTurn::failed(
                "rate_limit_exceeded",
                "Rate limit reached for gpt-x. Please try again in 11.5s.",
            )],
        ),
        scenario("codex-500", vec![ModelTurn::status(500, "oops")]),
        Scenario {
            base_url: model::REFUSED_BASE_URL,
            ..scenario("codex-refused", Vec::new())
        },
        scenario("codex-cut", vec![write(), ModelTurn::Cut]),
        scenario(
            "codex-context-full",
            vec![ModelTurn::failed(
                "context_length_exceeded",
                "Your input exceeds the context window of this model.",
            )],
        ),
        Scenario {
            has_key: false,
            ..scenario("codex-no-key", Vec::new())
        },
    ]
}

/// Where codex is, if this test is to run at all.
fn codex() -> PathBuf {
    let path = std::env::var_os("RUNNER_CODEX").expect("RUNNER_CODEX names the binary");
    fs::canonicalize(path).expect("RUNNER_CODEX is there")
}

/// What a session left.
struct Played {
    stdout: Vec<u8>,
    recorded: Recorded,
    /// What lies at the output path.
    report: Option<Vec<u8>>,
    project: PathBuf,
    _temp: tempfile::TempDir,
}

fn play(codex: &Path, scenario: &Scenario) -> Played {
    let temp = tempfile::tempdir().unwrap();
    let folder = |name: &str| {
        let folder = temp.path().join(name);
        fs::create_dir(&folder).unwrap();
        folder
    };
    let (home, project, iteration) = (folder("home"), folder("project"), folder("iteration"));
    let schema = iteration.join("schema.json");
    fs::write(&schema, AGENT_OUTPUT_FOR_MODELS).unwrap();
    let report = iteration.join("output.json");
    let session = AgentSpec {
        project_dir: &project,
        output_path: &report,
        schema_path: &schema,
        schema_json: AGENT_OUTPUT_FOR_MODELS,
        model: scenario.model,
        extra_args: &model::codex_provider_args(scenario.base_url),
        command: &[],
        contained: true,
        is_root: true,
        agent_home: None,
        login_folder: None,
        inherit: &[],
        instructions: None,
    };
    let invocation = runner_agents::backend(BackendKind::Codex).invocation(&session);

    let server = ModelServer::start(scenario.turns.clone());
    let mut command = server.loopback_only(codex);
    command
        .args(&invocation.argv[1..])
        .current_dir(&project)
        .env_clear()
        .envs(invocation.env)
        .env("HOME", &home)
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .env("TZ", "UTC");
    if scenario.has_key {
        command.env(model::KEY_VARIABLE, "made-up");
    }
    let prompt = iteration.join("prompt.md");
    fs::write(&prompt, "Say hi.\n").unwrap();
    command.stdin(fs::File::open(&prompt).unwrap());
    let output = command.output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    let stderr: Vec<String> = stderr
        .lines()
        // It is about the temporary folder, which is another one every time.
        .filter(|line| !line.starts_with("WARNING: proceeding"))
        .map(str::to_owned)
        .collect();
    let recorded = support::read(
        BackendKind::Codex,
        &output.stdout,
        &stderr,
        output.status.code(),
    );
    assert_eq!(server.turns_left(), 0, "{}: {recorded:#?}", scenario.name);
    Played {
        stdout: output.stdout,
        recorded,
        report: fs::read(report).ok(),
        project,
        _temp: temp,
    }
}

#[test]
#[ignore = "needs the codex binary: RUNNER_CODEX"]
fn every_session_comes_to_what_was_recorded() {
    let codex = codex();
    let record = std::env::var_os("RUNNER_RECORD").is_some();
    for scenario in scenarios() {
        let name = scenario.name;
        let played = play(&codex, &scenario);
        if record {
            fs::write(support::stream_path(name), &played.stdout).unwrap();
            support::write_expected(name, &played.recorded);
        }
        let expected = support::expected(name);
        assert_eq!(played.recorded, expected, "{name}");
        // What codex writes is what it last said.
        let report = played
            .report
            .map(|report| String::from_utf8(report).unwrap());
        assert_eq!(report, expected.output, "{name}");
    }
}

#[test]
#[ignore = "needs the codex binary: RUNNER_CODEX"]
fn a_session_does_real_work_and_reports() {
    let scenarios = scenarios();
    let played = play(&codex(), &scenarios[0]);
    let greeting = fs::read_to_string(played.project.join("greeting.txt")).unwrap();
    assert_eq!(greeting, "hi\n");
    let report = AgentOutput::parse(&played.report.unwrap()).unwrap();
    assert_eq!(report.summary, "wrote greeting.txt");
    let commands = played
        .recorded
        .events
        .iter()
        .filter_map(|event| match event {
            AgentEvent::Command {
                command,
                exit_code,
                running: false,
            } => Some((command.as_str(), *exit_code)),
            _ => None,
        });
    let expected = [
        ("echo hi > greeting.txt && cat greeting.txt", Some(0)),
        ("test -e nothing; exit 3", Some(3)),
    ];
    assert_eq!(commands.collect::<Vec<_>>(), expected);
    // The counts of all three requests.
    let usage = played.recorded.usage;
    assert_eq!(usage.input_tokens, Some(1000 + 100 + 1100));
    assert_eq!(usage.cached_input_tokens, Some(40 + 1000));
    assert_eq!(usage.output_tokens, Some(50 + 20 + 30));
}

#[test]
#[ignore = "needs the codex binary: RUNNER_CODEX"]
fn the_prompt_and_the_schema_reach_the_model() {
    let codex = codex();
    let server = ModelServer::start(vec![ModelTurn::Hang]);
    let temp = tempfile::tempdir().unwrap();
    let schema = temp.path().join("schema.json");
    fs::write(&schema, AGENT_OUTPUT_FOR_MODELS).unwrap();
    let session = AgentSpec {
        project_dir: temp.path(),
        output_path: &temp.path().join("output.json"),
        schema_path: &schema,
        schema_json: AGENT_OUTPUT_FOR_MODELS,
        model: "scripted",
        extra_args: &model::codex_provider_args(model::ISOLATED_BASE_URL),
        command: &[],
        contained: false,
        is_root: true,
        agent_home: Some(temp.path()),
        login_folder: None,
        inherit: &[],
        instructions: None,
    };
    let invocation = runner_agents::backend(BackendKind::Codex).invocation(&session);
    fs::write(temp.path().join("prompt"), "the very prompt").unwrap();
    let mut child = server
        .loopback_only(&codex)
        .args(&invocation.argv[1..])
        .env_clear()
        .envs(invocation.env)
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .env(model::KEY_VARIABLE, "made-up")
        .stdin(fs::File::open(temp.path().join("prompt")).unwrap())
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    server.wait_for_requests(1, Duration::from_secs(30));
    child.kill().unwrap();
    child.wait().unwrap();
    let request = &server.requests()[0];
    let format = &request["text"]["format"];
    assert_eq!(format["type"], "json_schema");
    assert_eq!(format["strict"], true);
    let schema: serde_json::Value = serde_json::from_str(AGENT_OUTPUT_FOR_MODELS).unwrap();
    assert_eq!(format["schema"], schema);
    assert!(request["input"].to_string().contains("the very prompt"));
}

#[test]
#[ignore = "needs the codex binary: RUNNER_CODEX"]
fn the_probe_fits_the_binary() {
    let codex = codex();
    let probe = runner_agents::backend(BackendKind::Codex).probe();
    let home = tempfile::tempdir().unwrap();
    let server = ModelServer::start(Vec::new());
    let run = |command: &[&str]| {
        let output = server
            .loopback_only(&codex)
            .args(&command[1..])
            .env("HOME", home.path())
            .output()
            .unwrap();
        assert!(output.status.success(), "{command:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let version = runner_agents::CliVersion::find(&run(probe.version)).unwrap();
    assert_eq!(probe.fit(version), runner_agents::VersionFit::Known);
    for help in probe.helps {
        assert_eq!(help.missing(&run(help.command)), Vec::<&str>::new());
    }
}

#[test]
fn every_kind_that_codex_can_meet_is_recorded() {
    let kinds: Vec<String> = scenarios()
        .iter()
        .filter_map(|scenario| support::expected(scenario.name).failure)
        .map(|failure| failure.kind)
        .collect();
    for kind in FailureKind::ALL {
        let own = matches!(kind, FailureKind::Malformed | FailureKind::Other);
        assert!(own || kinds.contains(&kind.to_string()), "{kind}");
    }
}
