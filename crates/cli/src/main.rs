//! The `runner` command: arguments in, words and exit codes out.

mod args;
mod commands;
mod demo;
mod ledger_args;
mod out;
mod progress;
mod style;

use std::process::ExitCode;

use clap::Parser as _;

use args::{Args, Command};
use commands::Exit;
use out::Out;

fn main() -> ExitCode {
    // The two hidden commands come first: they are started often and need none
    // of what follows.
    let mut raw = std::env::args_os().skip(1);
    match raw.next().as_deref().and_then(|word| word.to_str()) {
        Some("__supervise") => return runner_exec::supervise_main(raw),
        Some("__landlock") => return runner_sandbox::landlock_main(raw),
        Some("__demo-agent") => return demo::agent::main(),
        _ => {}
    }
    let args = Args::parse();
    let mut out = Out::new(&args.global);
    let exit = match run(&args, &mut out) {
        Ok(exit) => exit,
        Err(error) => {
            out.error(&error);
            Exit::of_error(&error)
        }
    };
    ExitCode::from(exit.code())
}

fn run(args: &Args, out: &mut Out) -> runner::Result<Exit> {
    let dir = &args.global.project_dir;
    match &args.command {
        Command::Init(options) => commands::init::run(dir, options, out),
        Command::Start { no_guard_check } => commands::start::run(dir, !no_guard_check, out),
        Command::Validate => commands::look::validate(dir, out),
        Command::Select => commands::look::select(dir, out),
        Command::Why { node } => commands::task::why_node_or_task(dir, node.as_deref(), out),
        Command::Task(options) => commands::task::run(dir, options, out),
        Command::Ledger(options) => commands::ledger::run(dir, options, out),
        Command::Step => commands::step::step(dir, out),
        Command::Loop(options) => commands::step::run_loop(dir, options, out),
        Command::Status => commands::status::run(dir, out),
        Command::Tree => commands::tree::run(dir, out),
        Command::Log { iter } => commands::log::run(dir, *iter, out),
        Command::Replay { run } => commands::proof::replay(dir, run.as_deref(), out),
        Command::Verify { node } => commands::proof::verify(dir, node, out),
        Command::Doctor { run_guard } => commands::doctor::run(dir, *run_guard, out),
        Command::Demo { dir } => demo::run(dir.as_deref(), out),
        Command::Schema { name } => commands::schema(name, out),
        Command::Completions { shell } => Ok(commands::completions(*shell, out)),
    }
}
