//! The `runner` command: arguments in, words and exit codes out.

mod args;
mod commands;
mod demo;
mod editor;
mod fleet_args;
mod ledger_args;
mod out;
mod progress;
mod style;
mod watch;

use std::process::ExitCode;

use clap::Parser as _;

use args::{Args, Command};
use commands::Exit;
use out::Out;

fn main() -> ExitCode {
    // The hidden commands come first: they are started often and need none
    // of what follows.
    let mut raw = std::env::args_os().skip(1);
    let mut detached = false;
    match raw.next().as_deref().and_then(|word| word.to_str()) {
        Some("__supervise") => return runner_exec::supervise_main(),
        Some("__landlock") => return runner_sandbox::landlock_main(raw),
        Some("__demo-agent") => return demo::agent::main(),
        Some("__fleet-demo-agent") => return commands::fleet::demo_agent(),
        Some(commands::detach::HIDDEN) => detached = true,
        _ => {}
    }
    let words = std::env::args_os()
        .enumerate()
        .filter(|(index, _)| !(detached && *index == 1))
        .map(|(_, word)| word);
    let mut args = Args::parse_from(words);
    args.detached = detached;
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
        Command::Start {
            run,
            no_guard_check,
        } => commands::start::run(dir, run.as_deref(), !no_guard_check, out),
        Command::Validate => commands::look::validate(dir, out),
        Command::Select => commands::look::select(dir, out),
        Command::Why { node } => commands::task::why_node_or_task(dir, node.as_deref(), out),
        Command::Task(options) => commands::task::run(dir, options, out),
        Command::Fleet(options) => commands::fleet::run(dir, options, out),
        Command::Ledger(options) => commands::ledger::run(dir, options, out),
        Command::Step => commands::step::step(dir, out),
        Command::Loop(options) if options.detach => {
            commands::detach::detach(&args.global, options, out)
        }
        Command::Loop(options) => commands::step::run_loop(dir, options, args.detached, out),
        Command::Stop { now, no_wait } => commands::stop::run(dir, *now, !no_wait, out),
        Command::Status => commands::status::run(dir, out),
        Command::Watch => commands::watch::run(dir, out),
        Command::Tree => commands::tree::run(dir, out),
        Command::Runs => commands::runs::run(dir, out),
        Command::Land(options) => commands::land::land(dir, options, out),
        Command::Abandon { run, delete } => {
            commands::land::abandon(dir, run.as_deref(), *delete, out)
        }
        Command::Log { follow: true, .. } => commands::follow::run(dir, out),
        Command::Log { iter, node, .. } => commands::log::run(dir, *iter, node.as_deref(), out),
        Command::Report { md } => commands::report::run(dir, *md, out),
        Command::Retry { node, attempts } => commands::by_hand::retry(dir, node, *attempts, out),
        Command::Edit { what, file } => commands::by_hand::edit(dir, *what, file.as_deref(), out),
        Command::Replay { run } => commands::proof::replay(dir, run.as_deref(), out),
        Command::Verify { node } => commands::proof::verify(dir, node, out),
        Command::Doctor { run_guard } => commands::doctor::run(dir, *run_guard, out),
        Command::Ui(options) => commands::ui::run(dir, options, out),
        Command::Eval(options) => commands::eval::run(dir, options, out),
        Command::Demo { dir } => demo::run(dir.as_deref(), out),
        Command::Schema { name } => commands::schema(name, out),
        Command::Completions { shell } => Ok(commands::completions(*shell, out)),
    }
}
