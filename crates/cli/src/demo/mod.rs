//! `runner demo`: a small but real goal, from an empty folder to a complete
//! tree, through the very same code as any run. Only the agent is scripted.

pub(crate) mod agent;

use std::cell::RefCell;
use std::path::{Path, PathBuf};

use runner::{
    Error, ErrorCode, InitOptions, LoopOptions, LoopStatus, Project, Result, StartOptions,
};
use runner_core::config::{self, BackendKind, NewProject};
use runner_core::paths;
use serde_json::json;

use crate::commands::{Exit, with_context};
use crate::out::OutputGate;
use crate::style::TextTone;

const GOAL: &str = "\
# A word counter

A shell program `wordcount.sh` that counts the words of its input, can print a
little report about it, and is documented. Every part has a test in `tests/`.
";

const GUARD: &str = "\
#!/bin/sh
# Runs every test. The runner asks this before anything counts as done.
status=0
for test in tests/*.sh; do
    [ -e \"$test\" ] || continue
    if output=$(sh \"$test\" 2>&1); then
        echo \"ok      $test\"
    else
        echo \"FAILED  $test\"
        echo \"$output\"
        status=1
    fi
done
exit $status
";

/// Plays the whole run and says where to look.
pub(crate) fn run(dir: Option<&Path>, out: &mut OutputGate) -> Result<Exit> {
    let folder = make_folder(dir)?;
    let me = std::env::current_exe()?;
    if !out.json {
        out.say(&format!(
            "A whole run in {}, with a scripted agent: no model, no network.",
            folder.display()
        ));
        out.say("The agent plans, works, fails once, hears what the guard said, and mends it.");
        out.say("");
    }

    runner::Git::init(&folder)?;
    std::fs::write(folder.join("ci.sh"), GUARD)?;
    let options = InitOptions {
        guard: Some("sh ci.sh".to_owned()),
        backend: Some("command".to_owned()),
        ..InitOptions::default()
    };
    runner::init(&folder, &options)?;
    let project = Project::find(&folder)?;
    let agent = [me.display().to_string(), "__demo-agent".to_owned()];
    let guard = ["sh".to_owned(), "ci.sh".to_owned()];
    let config = config::template(NewProject {
        setup: &[],
        include: &[],
        guard: &guard,
        protected: &["ci.sh".to_owned()],
        protected_values: &[],
        watched: &[],
        tests: &[],
        keep: &[],
        backend: BackendKind::Command,
        command: &agent,
        guard_network: "open",
    });
    std::fs::write(folder.join(paths::CONFIG), config)?;
    std::fs::write(project.goal(), GOAL)?;

    let cell = RefCell::new(&mut *out);
    let end = with_context(&cell, true, |context| {
        runner::start(
            &project,
            StartOptions {
                check_guard: false,
                stay: false,
            },
            context,
        )?;
        Ok(runner::run_loop(
            &project,
            context,
            &LoopOptions::default(),
            &mut |report| {
                crate::commands::step::print_in_loop(report, &mut cell.borrow_mut());
            },
        ))
    })?;
    if let Some(error) = end.error {
        return Err(error);
    }
    if end.status != LoopStatus::Complete {
        return Err(Error::new(
            ErrorCode::Tree,
            format!("the demo ended as {}", end.status.as_str()),
        ));
    }
    let replayed = runner::replay(&project, None)?;
    if let Some(difference) = replayed.difference {
        return Err(Error::new(ErrorCode::Mismatch, difference));
    }
    if out.json {
        out.object(json!({
            "event": "finished",
            "status": end.status.as_str(),
            "steps": end.steps,
            "folder": folder,
            "replayed": replayed.iterations,
        }));
    } else {
        tell(&folder, end.steps, out);
    }
    Ok(Exit::Success)
}

fn tell(folder: &Path, steps: u32, out: &mut OutputGate) {
    let runner = format!("runner -C {}", folder.display());
    let word = out.paint_err.paint(TextTone::Good, "complete");
    out.say("");
    out.say(&format!("{word}: {steps} iterations, each a commit with its proof, and all of them derive again byte for byte."));
    out.say("");
    out.say("Look at it:");
    out.say(&format!(
        "  {runner} tree           the plan and what passed"
    ));
    out.say(&format!(
        "  {runner} log            the iterations; `log 2` shows the guard's refusal"
    ));
    out.say(&format!(
        "  {runner} report         the whole run on a page"
    ));
    out.say(&format!(
        "  {runner} verify count   run the guard again where it passed a node"
    ));
    out.say(&format!(
        "  {runner} ui             all of it in the browser"
    ));
    out.say(&format!("  git -C {} log --stat", folder.display()));
    out.say("");
    out.say("With your own project and agent:");
    out.say("  runner init --goal 'What shall be true in the end'   finds your guard, and codex, claude or opencode");
    out.say("  runner doctor                                        is everything there?");
    out.say("  runner start && runner loop --detach                 then `runner report` in the morning");
}

/// The folder to play in: a new temporary one, or one that is empty.
pub(crate) fn make_folder(dir: Option<&Path>) -> Result<PathBuf> {
    let Some(dir) = dir else {
        return Ok(tempfile::Builder::new()
            .prefix("runner-demo-")
            .tempdir()?
            .keep());
    };
    std::fs::create_dir_all(dir)?;
    if std::fs::read_dir(dir)?.next().is_some() {
        return Err(
            Error::new(ErrorCode::Layout, format!("{} is not empty", dir.display()))
                .hint("name a new folder, or leave --dir away"),
        );
    }
    Ok(dir.canonicalize()?)
}
