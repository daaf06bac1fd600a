//! Readers hold against whatever comes, in bounded memory and time.

// A test may fail by it, its helpers too.
#![allow(clippy::unwrap_used)]

mod support;

use std::fs;
use std::time::Instant;

use jiff::tz::TimeZone;
use proptest::prelude::*;
use runner_agents::{
    AgentEvent, AgentReader, FailureKind, LocalZone, SessionEnding, SessionUsage, backend,
};
use runner_core::config::BackendKind;
use runner_core::output::{AgentOutput, MAX_OUTPUT_BYTES, OutputError};

const AGENTS: [BackendKind; 4] = [
    BackendKind::Codex,
    BackendKind::Claude,
    BackendKind::Opencode,
    BackendKind::Command,
];

fn finish(reader: Box<dyn AgentReader>, exit: Option<i32>) -> SessionEnding {
    reader.finish(exit, support::now(), &LocalZone::new(|| TimeZone::UTC))
}

fn sizes(events: &[AgentEvent]) -> usize {
    serde_json::to_string(events).unwrap().len()
}

#[test]
fn a_huge_line_is_fine_and_cut() {
    let text = "x".repeat(10_000_000);
    for (kind, line) in [
        (
            BackendKind::Codex,
            format!(
                r#"{{"type":"item.completed","item":{{"type":"agent_message","text":"{text}"}}}}"#
            ),
        ),
        (
            BackendKind::Codex,
            format!(
                r#"{{"type":"item.completed","item":{{"type":"command_execution","command":"{text}","aggregated_output":"{text}","exit_code":0}}}}"#
            ),
        ),
        (
            BackendKind::Codex,
            format!(r#"{{"type":"turn.failed","error":{{"message":"{text}"}}}}"#),
        ),
        (
            BackendKind::Claude,
            format!(
                r#"{{"type":"assistant","message":{{"id":"{text}","content":[{{"type":"text","text":"{text}"}}],"usage":{{"input_tokens":1}}}}}}"#
            ),
        ),
        (
            BackendKind::Claude,
            format!(
                r#"{{"type":"assistant","message":{{"content":[{{"type":"tool_use","id":"{text}","name":"Bash","input":{{"command":"{text}"}}}}]}}}}"#
            ),
        ),
        (
            BackendKind::Claude,
            format!(r#"{{"type":"result","is_error":true,"result":"{text}"}}"#),
        ),
        (
            BackendKind::Opencode,
            format!(r#"{{"type":"text","part":{{"text":"{text}"}}}}"#),
        ),
        (
            BackendKind::Opencode,
            format!(
                r#"{{"type":"error","error":{{"name":"{text}","data":{{"message":"{text}","responseBody":"{text}"}}}}}}"#
            ),
        ),
        (
            BackendKind::Command,
            format!(r#"{{"event":"message","text":"{text}"}}"#),
        ),
        (BackendKind::Command, format!(r#"{{"event":"{text}"}}"#)),
        (BackendKind::Command, text.clone()),
    ] {
        let mut reader = backend(kind).reader();
        let events = reader.line(line.as_bytes());
        assert!(sizes(&events) < 10_000, "{kind}");
        reader.stderr(text.as_bytes());
        let ending = finish(reader, Some(1));
        assert!(ending.failure.unwrap().message.chars().count() <= 2000);
        assert!(
            ending
                .output
                .is_none_or(|output| output.len() <= MAX_OUTPUT_BYTES + 1)
        );
    }
}

#[test]
fn too_long_a_report_is_seen_to_be_too_long() {
    let long = format!(
        r#"{{\"status\":\"done\",\"summary\":\"{}\"}}"#,
        "x".repeat(2_000_000)
    );
    let line =
        format!(r#"{{"type":"item.completed","item":{{"type":"agent_message","text":"{long}"}}}}"#);
    let mut reader = backend(BackendKind::Codex).reader();
    reader.line(line.as_bytes());
    let output = finish(reader, Some(0)).output.unwrap();
    let parsed = AgentOutput::parse(&output);
    assert!(
        matches!(parsed, Err(OutputError::TooLarge(_))),
        "{parsed:?}"
    );
}

#[test]
fn many_commands_under_way_are_forgotten_one_by_one() {
    let mut reader = backend(BackendKind::Claude).reader();
    for id in 0..100_000 {
        let line = format!(
            r#"{{"type":"assistant","message":{{"content":[{{"type":"tool_use","id":"t{id}","name":"Bash","input":{{"command":"c{id}"}}}}]}}}}"#
        );
        assert_eq!(reader.line(line.as_bytes()).len(), 1);
    }
    let end = |id: u32| {
        format!(
            r#"{{"type":"user","message":{{"content":[{{"type":"tool_result","tool_use_id":"t{id}"}}]}}}}"#
        )
    };
    assert!(reader.line(end(5).as_bytes()).is_empty());
    let ended = reader.line(end(99_999).as_bytes());
    let expected = AgentEvent::Command {
        command: "c99999".to_owned(),
        exit_code: Some(0),
        running: false,
    };
    assert_eq!(ended, [expected]);
}

#[test]
fn odd_lines_are_ignored() {
    for kind in AGENTS {
        let mut reader = backend(kind).reader();
        for line in [
            &b""[..],
            b"{",
            b"{}",
            b"[]",
            b"null",
            b"plain words",
            b"\xff\xfe{\"type\":\"error\"}\xff",
            b"{\"type\":{\"a\":1},\"event\":[2]}",
            b"{\"type\":\"unheard of\",\"event\":\"unheard of\"}",
            b"{\"type\":\"item.completed\",\"item\":\"text\"}",
            b"{\"type\":\"assistant\",\"message\":{\"content\":\"text\"}}",
            b"{\"type\":\"user\",\"message\":{\"content\":[1,null,\"x\",{\"type\":\"tool_result\"}]}}",
            b"{\"type\":\"step_finish\"}",
            b"{\"type\":\"tool_use\",\"part\":{\"tool\":\"bash\",\"state\":\"done\"}}",
        ] {
            assert_eq!(reader.line(line), [], "{kind} {:?}", String::from_utf8_lossy(line));
        }
        let deep = format!("{{\"type\":{}", "[".repeat(1_000_000));
        assert_eq!(reader.line(deep.as_bytes()), []);
        assert_eq!(reader.usage(), SessionUsage::default());
    }
}

#[test]
fn an_error_in_an_unknown_shape_still_fails_the_session() {
    for (kind, line) in [
        (
            BackendKind::Codex,
            r#"{"type":"turn.failed","error":"usage limit reached"}"#,
        ),
        (BackendKind::Codex, r#"{"type":"turn.failed"}"#),
        (
            BackendKind::Claude,
            r#"{"type":"result","is_error":true,"result":{"new":"shape"}}"#,
        ),
        (BackendKind::Opencode, r#"{"type":"error","error":"boom"}"#),
    ] {
        let mut reader = backend(kind).reader();
        reader.line(line.as_bytes());
        assert!(finish(reader, Some(0)).failure.is_some(), "{line}");
    }
}

#[test]
fn a_later_turn_of_codex_counts_the_whole_session() {
    let mut reader = backend(BackendKind::Codex).reader();
    for tokens in [100, 250] {
        let line = format!(
            r#"{{"type":"turn.completed","usage":{{"input_tokens":{tokens},"output_tokens":1}}}}"#
        );
        reader.line(line.as_bytes());
    }
    assert_eq!(reader.usage().input_tokens, Some(250));
}

/// A session whose tools print to the output of the CLI: the lines, and what the largest count of
/// tokens is.
#[test]
fn a_tool_that_prints_events_lowers_no_count() {
    let claude = [
        r#"{"type":"assistant","message":{"id":"a","usage":{"input_tokens":1000,"output_tokens":100}}}"#,
        r#"{"type":"assistant","message":{"id":"a","usage":{"input_tokens":1,"output_tokens":1}}}"#,
        r#"{"type":"result","usage":{"input_tokens":1,"output_tokens":1},"total_cost_usd":0.01}"#,
    ];
    let real = r#"{"type":"result","usage":{"input_tokens":2000,"output_tokens":300},"total_cost_usd":1.5}"#;
    let codex = [
        r#"{"type":"turn.completed","usage":{"input_tokens":1,"output_tokens":1}}"#,
        r#"{"type":"turn.completed","usage":{"input_tokens":1}}{"type":"turn.completed","usage":{"input_tokens":1}}"#,
    ];
    let turn = r#"{"type":"turn.completed","usage":{"input_tokens":2000,"output_tokens":300}}"#;
    let opencode =
        [r#"{"type":"step_finish","part":{"tokens":{"input":-5000,"output":-5000},"cost":-9}}"#];
    let step = r#"{"type":"step_finish","part":{"tokens":{"input":2000,"output":300},"cost":1.5}}"#;
    for (kind, forged, real, cost) in [
        (BackendKind::Claude, &claude[..], real, Some(1.5)),
        (BackendKind::Codex, &codex, turn, None),
        (BackendKind::Opencode, &opencode, step, Some(1.5)),
    ] {
        let glued = format!("{{\"type\":\"result\",\"usage\":{{{real}");
        // Before and after, with the real line glued to a fragment.
        let before: Vec<&str> = forged.iter().copied().chain([glued.as_str()]).collect();
        let after: Vec<&str> = [real].into_iter().chain(forged.iter().copied()).collect();
        for lines in [before, after] {
            let mut reader = backend(kind).reader();
            let mut most = 0;
            for line in &lines {
                reader.line(line.as_bytes());
                let tokens = reader.usage().total_tokens().unwrap_or_default();
                assert!(tokens >= most, "{kind:?}: {line}");
                most = tokens;
            }
            let usage = finish(reader, Some(0)).usage;
            assert!(most >= 2300, "{kind:?}: {lines:?}");
            assert_eq!(usage.total_tokens(), Some(most));
            assert_eq!(usage.cost_usd, cost, "{kind:?}");
        }
    }
}

#[test]
fn a_session_that_goes_on_is_not_over() {
    for (kind, end, more) in [
        (
            BackendKind::Claude,
            r#"{"type":"result","result":"x"}"#,
            r#"{"type":"assistant","message":{"id":"a"}}"#,
        ),
        (
            BackendKind::Codex,
            r#"{"type":"turn.completed"}"#,
            r#"{"type":"item.started","item":{"type":"command_execution"}}"#,
        ),
    ] {
        let mut reader = backend(kind).reader();
        reader.line(end.as_bytes());
        assert!(reader.is_over(), "{kind:?}");
        reader.line(more.as_bytes());
        assert!(!reader.is_over(), "{kind:?}");
    }
}

#[test]
fn remarks_of_a_session_that_went_through_are_no_failure() {
    let mut reader = backend(BackendKind::Codex).reader();
    reader.line(br#"{"type":"error","message":"Reconnecting... 1/5"}"#);
    reader.line(br#"{"type":"item.completed","item":{"type":"agent_message","text":"{}"}}"#);
    reader.line(br#"{"type":"turn.completed","usage":{}}"#);
    assert_eq!(finish(reader, Some(0)).failure, None);
    // One that ended with nothing but the remark failed by it.
    let mut reader = backend(BackendKind::Codex).reader();
    reader.line(br#"{"type":"error","message":"Connection failed: refused"}"#);
    let failure = finish(reader, Some(1)).failure.unwrap();
    assert_eq!(failure.kind, FailureKind::Network);
}

#[test]
fn codex_changes_files() {
    let line = br#"{"type":"item.completed","item":{"id":"i","type":"file_change","changes":[{"path":"a","kind":"add"},{"path":"b","kind":"delete"},{"path":"c","kind":"update"}],"status":"completed"}}"#;
    let events = backend(BackendKind::Codex).reader().line(line);
    let json = serde_json::to_string(&events).unwrap();
    assert_eq!(
        json,
        r#"[{"event":"file_change","path":"a","kind":"add"},{"event":"file_change","path":"b","kind":"delete"},{"event":"file_change","path":"c","kind":"update"}]"#
    );
    let failed = String::from_utf8_lossy(line).replace("completed\"}}", "failed\"}}");
    assert_eq!(
        backend(BackendKind::Codex).reader().line(failed.as_bytes()),
        []
    );
}

#[test]
fn any_command_may_speak_our_vocabulary() {
    let mut reader = backend(BackendKind::Command).reader();
    for event in [
        r#"{"event":"turn_started"}"#,
        r#"{"event":"command","command":"ls","exit_code":2,"running":false}"#,
        r#"{"event":"message","text":"hi"}"#,
        r#"{"event":"file_change","path":"a","kind":"delete"}"#,
        r#"{"event":"usage","input_tokens":5,"cached_input_tokens":1,"output_tokens":2,"cost_usd":0.5}"#,
        r#"{"event":"error","message":"429 Too Many Requests","fatal":true}"#,
    ] {
        let events = reader.line(event.as_bytes());
        assert_eq!(serde_json::to_string(&events[0]).unwrap(), event);
    }
    let ending = finish(reader, Some(0));
    assert_eq!(ending.usage.cost_usd, Some(0.5));
    assert_eq!(ending.failure.unwrap().kind, FailureKind::RateLimit);
    let silent = finish(backend(BackendKind::Command).reader(), Some(0));
    assert_eq!((silent.output, silent.failure), (None, None));
}

/// Lines of all recordings, to be mangled.
fn recorded_lines() -> Vec<Vec<u8>> {
    let mut lines = Vec::new();
    for entry in fs::read_dir(support::streams()).unwrap() {
        let path = entry.unwrap().path();
        if path
            .extension()
            .is_some_and(|extension| extension == "jsonl")
        {
            let bytes = fs::read(path).unwrap();
            lines.extend(bytes.split(|byte| *byte == b'\n').map(<[u8]>::to_vec));
        }
    }
    lines
}

proptest! {
    #[test]
    fn never_panics(lines: Vec<Vec<u8>>, stderr: Vec<u8>, exit: Option<i32>) {
        for kind in AGENTS {
            let mut reader = backend(kind).reader();
            for line in &lines {
                reader.line(line);
            }
            reader.stderr(&stderr);
            finish(reader, exit);
        }
    }

    #[test]
    fn never_panics_on_mangled_events(
        picks in prop::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>(), any::<u8>()), 1..20),
        exit: Option<i32>,
    ) {
        let recorded = recorded_lines();
        for kind in AGENTS {
            let mut reader = backend(kind).reader();
            for (line, at, byte) in &picks {
                let mut line = line.get(&recorded).clone();
                if !line.is_empty() {
                    let at = at.index(line.len());
                    line[at] = *byte;
                }
                reader.line(&line);
            }
            let ending = finish(reader, exit);
            prop_assert!(ending.output.is_none() || ending.failure.is_none());
        }
    }
}

/// `cargo test --release -p runner-agents --test readers -- --ignored --nocapture`
#[test]
#[ignore = "a measurement, not a check"]
fn reading_costs_little_more_than_a_typed_parse() {
    #[derive(serde::Deserialize)]
    #[allow(dead_code)]
    struct Typed<'a> {
        #[serde(rename = "type")]
        kind: &'a str,
        #[serde(borrow)]
        item: Item<'a>,
    }
    #[derive(serde::Deserialize)]
    #[allow(dead_code)]
    struct Item<'a> {
        #[serde(rename = "type")]
        kind: &'a str,
        #[serde(borrow)]
        command: std::borrow::Cow<'a, str>,
        exit_code: Option<i32>,
    }
    const LINES: u32 = 1_000_000;
    let line = br#"{"type":"item.completed","item":{"id":"item_1","type":"command_execution","command":"/bin/bash -lc 'cargo test -p runner-core'","aggregated_output":"ok\n","exit_code":0,"status":"completed"}}"#;
    let start = Instant::now();
    for _ in 0..LINES {
        let typed: Typed<'_> = serde_json::from_slice(std::hint::black_box(line)).unwrap();
        std::hint::black_box(typed);
    }
    let typed = start.elapsed();
    let mut reader = backend(BackendKind::Codex).reader();
    let start = Instant::now();
    for _ in 0..LINES {
        std::hint::black_box(reader.line(std::hint::black_box(line)));
    }
    let read = start.elapsed();
    println!(
        "typed {typed:?}, read {read:?}: {:.2}",
        read.as_secs_f64() / typed.as_secs_f64()
    );
}
