//! `cargo xtask ci`: everything that must be green before a commit.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use crate::args::XtaskArgs;
use crate::cmd::ToolCommand;
use crate::failure::{TaskFailure, TaskResult};
use crate::{agent_clis, demo, managers, out, schemathesis, setup, simulate, sweep, tidy, ui};

pub(crate) const HELP: &str = "\
usage: cargo xtask ci [--only STAGE]

Runs the stages in order and stops at the first that fails:
setup, ui (the page: checks, unit tests, build), fmt, clippy, test, doc, tidy,
api (the fleet's API against its OpenAPI), sweep (a sample), demo, simulate (the
fleet, thousands of seeds), browser (the page in Chromium, with real runs).

  --only STAGE   that stage alone";

/// How many fault points the sample of every run has: about a minute's worth.
const SWEEP_SAMPLE: u32 = 40;
const SWEEP_SEED: u64 = 1;

/// A part of the whole that passes or fails by itself.
struct CiStage {
    name: &'static str,
    run: fn() -> TaskResult<()>,
}

const STAGES: &[CiStage] = &[
    CiStage {
        name: "setup",
        run: setup::ensure,
    },
    // Before everything that builds the binary, which then carries the page.
    CiStage {
        name: "ui",
        run: ui::check_and_build,
    },
    CiStage {
        name: "fmt",
        run: || {
            cargo("fmt --all --check")
                .hint("run `cargo fmt --all`")
                .run()
        },
    },
    CiStage {
        name: "clippy",
        run: || {
            cargo("clippy --locked --workspace --all-targets -- -D warnings")
                .hint("fix what clippy says; without clippy: `rustup component add clippy`")
                .run()
        },
    },
    CiStage {
        name: "test",
        run: || {
            let test = cargo("test --locked --workspace --no-fail-fast");
            agent_clis::named_to(managers::named_to(test))?
                .hint("run the failed test alone: `cargo test -p CRATE NAME -- --nocapture`")
                .run()
        },
    },
    CiStage {
        name: "doc",
        run: || {
            cargo("doc --locked --workspace --no-deps")
                .env("RUSTDOCFLAGS", "-D warnings")
                .hint("fix the links and examples that rustdoc names")
                .run()
        },
    },
    CiStage {
        name: "tidy",
        run: tidy::check_workspace,
    },
    CiStage {
        name: "api",
        run: schemathesis::check_api,
    },
    CiStage {
        name: "sweep",
        run: || sweep::command(Some(SWEEP_SAMPLE), SWEEP_SEED).run(),
    },
    CiStage {
        name: "demo",
        run: demo::build_and_play,
    },
    CiStage {
        name: "simulate",
        run: simulate::play_for_ci,
    },
    CiStage {
        name: "browser",
        run: ui::test_in_browser,
    },
];

/// What became of a stage.
struct CiOutcome {
    name: &'static str,
    time: Duration,
    failure: Option<TaskFailure>,
}

pub(crate) fn run(mut args: XtaskArgs) -> TaskResult<()> {
    let only: Option<String> = args.value("--only")?;
    args.finish()?;
    let stages: Vec<&CiStage> = STAGES
        .iter()
        .filter(|stage| only.as_deref().is_none_or(|only| only == stage.name))
        .collect();
    if stages.is_empty() {
        let names: Vec<&str> = STAGES.iter().map(|stage| stage.name).collect();
        return Err(TaskFailure::usage("there is no such stage")
            .hint(format!("the stages are {}", names.join(", "))));
    }
    let mut outcomes = Vec::new();
    for stage in &stages {
        let started = Instant::now();
        let failure = out::step(stage.name, stage.run).err();
        let failed = failure.is_some();
        outcomes.push(CiOutcome {
            name: stage.name,
            time: started.elapsed(),
            failure,
        });
        if failed {
            break;
        }
    }
    conclude(&stages, &outcomes)
}

/// Prints the summary; the failure comes before it, so that the counts are last.
fn conclude(stages: &[&CiStage], outcomes: &[CiOutcome]) -> TaskResult<()> {
    for failure in outcomes
        .iter()
        .filter_map(|outcome| outcome.failure.as_ref())
    {
        out::failure(failure);
    }
    out::data(&summary(stages, outcomes));
    if outcomes.iter().all(|outcome| outcome.failure.is_none()) {
        return Ok(());
    }
    // All has been said: the counts stay the last line.
    std::process::exit(1)
}

fn summary(stages: &[&CiStage], outcomes: &[CiOutcome]) -> String {
    let mut text = String::from("\n");
    for outcome in outcomes {
        let verdict = if outcome.failure.is_none() {
            "passed"
        } else {
            "failed"
        };
        let time = out::seconds(outcome.time);
        let _ = writeln!(text, "{:<8}{verdict:<8}{time:>9}", outcome.name);
    }
    for stage in &stages[outcomes.len()..] {
        let _ = writeln!(text, "{:<8}not run", stage.name);
    }
    let failed = outcomes
        .iter()
        .filter(|outcome| outcome.failure.is_some())
        .count();
    let passed = outcomes.len() - failed;
    text + &format!("{passed} passed, {failed} failed")
}

/// Cargo as ci wants it: no snapshot is accepted, every panic shows its way.
fn cargo(words: &str) -> ToolCommand {
    ToolCommand::cargo(words)
        .env("CI", "1")
        .env("INSTA_UPDATE", "no")
        .env("RUST_BACKTRACE", "1")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_summary_ends_with_the_counts() {
        let stages: Vec<&CiStage> = STAGES.iter().take(3).collect();
        let outcome = |name, failure| CiOutcome {
            name,
            time: Duration::from_millis(1_250),
            failure,
        };
        let outcomes = [
            outcome("setup", None),
            outcome("ui", Some(TaskFailure::new("no"))),
        ];
        let expected = "\nsetup   passed      1.2 s\nui      failed      1.2 s\n\
            fmt     not run\n1 passed, 1 failed";
        assert_eq!(summary(&stages, &outcomes), expected);
    }
}
