//! Events such as codex prints: a generator that costs little itself.

use std::io;

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike as _;

use crate::failure::{FailureContext as _, TaskFailure, TaskResult};

/// One after the other, over and over.
const EVENTS: [&str; 6] = [
    r#"{"type":"item.started","item":{"id":"item_1","type":"command_execution","command":"/bin/bash -lc 'cargo test --workspace --quiet 2>&1 | tail -40'","aggregated_output":"","exit_code":null,"status":"in_progress"}}"#,
    r#"{"type":"item.completed","item":{"id":"item_1","type":"command_execution","command":"/bin/bash -lc 'cargo test --workspace --quiet 2>&1 | tail -40'","aggregated_output":"running 31 tests\n...............................\ntest result: ok. 31 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.37s\n\nrunning 12 tests\n............\ntest result: ok. 12 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 2.01s\n","exit_code":0,"status":"completed"}}"#,
    r#"{"type":"item.completed","item":{"id":"item_2","type":"reasoning","text":"**Looking at the parser**\n\nThe header is read before the length is known, so a long one must be refused there."}}"#,
    r#"{"type":"item.completed","item":{"id":"item_3","type":"file_change","changes":[{"path":"src/parse/header.rs","kind":"update"},{"path":"src/parse/tests.rs","kind":"add"}],"status":"completed"}}"#,
    r#"{"type":"item.completed","item":{"id":"item_4","type":"agent_message","text":"The parser now refuses headers that are too long, with a clear message. I go on with the tests."}}"#,
    r#"{"type":"item.updated","item":{"id":"item_5","type":"todo_list","items":[{"text":"read the header","completed":true},{"text":"refuse what is too long","completed":false}]}}"#,
];

/// What every session ends with.
const END: &str = r#"{"type":"item.completed","item":{"id":"item_6","type":"agent_message","text":"{\"status\":\"done\",\"summary\":\"printed much\"}"}}
{"type":"turn.completed","usage":{"input_tokens":2200,"cached_input_tokens":1040,"output_tokens":100}}
"#;

/// How many times the events are written at once.
const BATCH: u64 = 64;

/// How long a line is on average, its end included.
pub(super) fn mean_bytes() -> usize {
    let all: usize = EVENTS.iter().map(|event| event.len() + 1).sum();
    all / EVENTS.len()
}

/// Mode `__events LINES USAGE`: prints so many lines, and writes to a file how many
/// microseconds of CPU that took.
pub(super) fn helper(words: &[String]) -> TaskResult<()> {
    let [lines, usage] = words else {
        return Err(TaskFailure::usage("__events LINES USAGE"));
    };
    let lines: u64 = lines
        .parse()
        .map_err(|_| TaskFailure::usage("LINES is a number"))?;
    print(lines, &mut io::stdout().lock()).context("stdout")?;
    let used = getrusage(UsageWho::RUSAGE_SELF).context("getrusage")?;
    let cpu_us = used.user_time().num_microseconds() + used.system_time().num_microseconds();
    std::fs::write(usage, cpu_us.to_string()).context(usage)
}

fn print(lines: u64, out: &mut impl io::Write) -> io::Result<()> {
    let round = EVENTS.map(|event| format!("{event}\n")).concat();
    let per_round = u64::try_from(EVENTS.len()).unwrap_or(1);
    let batch = round.repeat(usize::try_from(BATCH).unwrap_or(1));
    let mut left = lines.saturating_sub(2);
    while left >= BATCH * per_round {
        out.write_all(batch.as_bytes())?;
        left -= BATCH * per_round;
    }
    for (event, _) in EVENTS.iter().cycle().zip(0..left) {
        writeln!(out, "{event}")?;
    }
    out.write_all(END.as_bytes())?;
    out.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_lines_as_asked_for_and_all_are_json() {
        for lines in [2, 3, 500, 1_000] {
            let mut bytes = Vec::new();
            print(lines, &mut bytes).unwrap();
            let text = String::from_utf8(bytes).unwrap();
            assert_eq!(text.lines().count() as u64, lines);
            for line in text.lines() {
                let value: serde_json::Value = serde_json::from_str(line).unwrap();
                assert!(value["type"].is_string());
            }
        }
        assert!((150..400).contains(&mean_bytes()), "{}", mean_bytes());
    }
}
