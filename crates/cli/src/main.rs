//! The `runner` command: arguments in, words and exit codes out.

mod args;
mod commands;
mod credentials;
mod demo;
mod editor;
mod fleet_args;
mod ledger_args;
mod out;
mod progress;
mod style;
mod watch;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::Parser as _;

use args::{Args, CliCommand};
use commands::Exit;
use out::OutputGate;

fn main() -> ExitCode {
    // The hidden commands come first: they are started often and need none
    // of what follows.
    let mut raw = std::env::args_os().skip(1);
    let mut detached = false;
    let first = raw.next().unwrap_or_default();
    if let Some(code) = runner::launcher_main(&first, raw.by_ref()) {
        return code;
    }
    match first.to_str() {
        Some("__proxy") => return runner_proxy::proxy_main(raw),
        Some("__demo-agent") => return demo::agent::main(),
        Some("__fleet-demo-agent") => return commands::fleet::demo_agent(),
        Some(commands::detach::HIDDEN) => detached = true,
        _ => {}
    }
    let words = std::env::args_os()
        .enumerate()
        .filter(|(index, _)| !(detached && *index == 1))
        .map(|(_, word)| word);
    let words: Vec<OsString> = words.collect();
    // The words are copies: what is taken off the command line is in them.
    let taken = credentials::take();
    let mut args = Args::parse_from(words);
    args.detached = detached;
    let mut out = OutputGate::new(&args.global);
    let ended = taken.and_then(|taken| {
        if taken.had_password {
            out.warning(
                "the password of the ledger was on the command line, where other programs could read it \
                 for a moment: name the ledger in RUNNER_STORE, or keep the password in ~/.pgpass",
            );
        }
        run(&args, &mut out)
    });
    let exit = match ended {
        Ok(exit) => exit,
        Err(error) => {
            out.error(&error);
            Exit::of_error(&error)
        }
    };
    ExitCode::from(exit.code())
}

fn run(args: &Args, out: &mut OutputGate) -> runner::Result<Exit> {
    let dir = &args.global.project_dir;
    match &args.command {
        CliCommand::Init(options) => commands::init::run(dir, options, out),
        CliCommand::Start {
            run,
            no_guard_check,
            stay,
        } => {
            let options = runner::StartOptions {
                check_guard: !no_guard_check,
                stay: *stay,
            };
            commands::start::run(dir, run.as_deref(), options, out)
        }
        CliCommand::Follow => commands::catch_up::run(dir, out),
        CliCommand::Validate => commands::look::validate(dir, out),
        CliCommand::Select => commands::look::select(dir, out),
        CliCommand::Why { node } => commands::task::why_node_or_task(dir, node.as_deref(), out),
        CliCommand::Task(options) => commands::task::run(dir, options, out),
        CliCommand::Fleet(options) => commands::fleet::run(dir, options, out),
        CliCommand::Ledger(options) => commands::ledger::run(dir, options, out),
        CliCommand::Step => commands::step::step(dir, out),
        CliCommand::Loop(options) if options.detach => {
            commands::detach::detach(&args.global, options, out)
        }
        CliCommand::Loop(options) => commands::step::run_loop(dir, options, args.detached, out),
        CliCommand::Stop { now, no_wait } => commands::stop::run(dir, *now, !no_wait, out),
        CliCommand::Status => commands::status::run(dir, out),
        CliCommand::Watch => commands::watch::run(dir, out),
        CliCommand::Tree => commands::tree::run(dir, out),
        CliCommand::Runs => commands::runs::run(dir, out),
        CliCommand::Land(options) => commands::land::land(dir, options, out),
        CliCommand::Abandon { run, delete } => {
            commands::land::abandon(dir, run.as_deref(), *delete, out)
        }
        CliCommand::Clean { all, dry_run } => {
            let (all, dry_run) = (*all, *dry_run);
            commands::clean::run(dir, runner::WorkspaceCleanOptions { all, dry_run }, out)
        }
        CliCommand::Rescue { run, dry_run } => {
            let (run, dry_run) = (run.clone(), *dry_run);
            commands::rescue::run(dir, &runner::RescueOptions { run, dry_run }, out)
        }
        CliCommand::Log { follow: true, .. } => commands::follow::run(dir, out),
        CliCommand::Log { iter, node, .. } => commands::log::run(dir, *iter, node.as_deref(), out),
        CliCommand::Report { md } => commands::report::run(dir, *md, out),
        CliCommand::Retry { node, attempts } => commands::by_hand::retry(dir, node, *attempts, out),
        CliCommand::Edit { what, file } => {
            commands::by_hand::edit(dir, *what, file.as_deref(), out)
        }
        CliCommand::Replay { run } => commands::proof::replay(dir, run.as_deref(), out),
        CliCommand::Verify { node } => commands::proof::verify(dir, node, out),
        CliCommand::Doctor { run_guard } => commands::doctor::run(dir, *run_guard, out),
        CliCommand::Ui(options) => commands::ui::run(dir, options, out),
        CliCommand::Eval(options) => commands::eval::run(dir, options, out),
        CliCommand::Demo { dir } => demo::run(dir.as_deref(), out),
        CliCommand::Schema { name } => commands::schema(name, out),
        CliCommand::Completions { shell } => Ok(commands::completions(*shell, out)),
    }
}
