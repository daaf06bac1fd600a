//! `cargo xtask`: the developer commands of this workspace.

mod agent_clis;
mod args;
mod attack;
mod bench;
mod ci;
mod cmd;
mod demo;
mod failure;
mod fleet_kill;
mod install;
mod managers;
mod model;
mod out;
mod pinned;
mod schemathesis;
mod setup;
mod simulate;
mod sweep;
mod tidy;
mod ui;

use std::fmt::Write as _;
use std::process::ExitCode;

use args::XtaskArgs;
use failure::{TaskFailure, TaskResult};

/// One developer command.
struct XtaskCommand {
    name: &'static str,
    about: &'static str,
    help: &'static str,
    run: fn(XtaskArgs) -> TaskResult<()>,
}

const TASKS: &[XtaskCommand] = &[
    XtaskCommand {
        name: "ci",
        about: "everything that must be green: page, format, lints, tests, docs, tidy, api, sweep, demo, browser",
        help: ci::HELP,
        run: ci::run,
    },
    XtaskCommand {
        name: "demo",
        about: "builds the release binary and plays a whole run with it",
        help: demo::HELP,
        run: demo::run,
    },
    XtaskCommand {
        name: "bench",
        about: "measures against floors taken in the same run",
        help: bench::HELP,
        run: bench::run,
    },
    XtaskCommand {
        name: "attack",
        about: "tries the attacks on containment and writes the table of docs/containment.md",
        help: attack::HELP,
        run: attack::run,
    },
    XtaskCommand {
        name: "sweep",
        about: "kills the runner at every write of a step and lets it recover",
        help: sweep::HELP,
        run: sweep::run,
    },
    XtaskCommand {
        name: "simulate",
        about: "lets a fleet run in memory with everything going wrong, by seeds",
        help: simulate::HELP,
        run: simulate::run,
    },
    XtaskCommand {
        name: "fleet-kill",
        about: "kills a whole fleet again and again and lets it recover",
        help: fleet_kill::HELP,
        run: fleet_kill::run,
    },
    XtaskCommand {
        name: "model",
        about: "explores every state that the rules of the lifecycle can reach",
        help: model::HELP,
        run: model::run,
    },
    XtaskCommand {
        name: "install",
        about: "installs the runner command",
        help: install::HELP,
        run: install::run,
    },
    XtaskCommand {
        name: "tidy",
        about: "checks the rules of this repository that no compiler knows",
        help: tidy::HELP,
        run: tidy::run,
    },
    XtaskCommand {
        name: "setup",
        about: "installs the tools that tests and benchmarks need",
        help: setup::HELP,
        run: setup::run,
    },
];

fn main() -> ExitCode {
    let mut words = std::env::args().skip(1);
    let name = words.next().unwrap_or_default();
    let words: Vec<String> = words.collect();
    match dispatch(&name, words) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            out::failure(&failure);
            ExitCode::from(failure.exit_code())
        }
    }
}

fn dispatch(name: &str, words: Vec<String>) -> TaskResult<()> {
    // Modes that the benchmarks start themselves with: no commands for people.
    if let Some(helper) = bench::helper(name) {
        return helper(&words);
    }
    if matches!(name, "" | "help" | "-h" | "--help") {
        out::data(&overview());
        return Ok(());
    }
    let task = TASKS.iter().find(|task| task.name == name).ok_or_else(|| {
        TaskFailure::usage(format!("there is no task `{name}`"))
            .hint("`cargo xtask --help` lists the tasks")
    })?;
    if words.iter().any(|word| word == "-h" || word == "--help") {
        out::data(task.help);
        return Ok(());
    }
    (task.run)(XtaskArgs::new(words))
}

fn overview() -> String {
    let mut text = String::from("usage: cargo xtask <task> [options]\n\n");
    for task in TASKS {
        let _ = writeln!(text, "  {:<11}{}", task.name, task.about);
    }
    text + "\n`cargo xtask <task> --help` says more."
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_task_is_listed_and_helps() {
        let overview = overview();
        for task in TASKS {
            assert!(overview.contains(task.name));
            let usage = format!("usage: cargo xtask {}", task.name);
            assert!(task.help.starts_with(&usage), "{}", task.name);
        }
    }

    #[test]
    fn an_unknown_task_or_option_is_refused() {
        assert!(dispatch("nonsense", Vec::new()).is_err());
        assert!(dispatch("tidy", vec!["--nonsense".to_owned()]).is_err());
    }
}
