//! `runner eval`: cases, runs, reports.

mod args;
mod compare;
mod from_git;
mod list;
mod progress;
mod report;
mod run;

use std::path::Path;

use runner::Result;
use runner_eval::{EvalFolders, FolderOptions};

pub(crate) use args::EvalArgs;
use args::EvalCommand;

use super::Exit;
use crate::out::OutputGate;

/// Does what the arguments say.
pub(crate) fn run(dir: &Path, args: &EvalArgs, out: &mut OutputGate) -> Result<Exit> {
    let options = FolderOptions {
        cases: args.folders.cases.clone(),
        results: args.folders.results.clone(),
        workspaces: args.folders.workspaces.clone(),
    };
    let folders = EvalFolders::of(dir, &options)?;
    match &args.command {
        EvalCommand::Init => list::init(&folders, out),
        EvalCommand::List => list::list(&folders, out),
        EvalCommand::Run(options) => run::run(&folders, options, out),
        EvalCommand::Report { case, set, html } => report::report(
            &folders,
            case.as_deref(),
            set.as_deref(),
            html.as_deref(),
            out,
        ),
        EvalCommand::Compare { a, b, case } => {
            compare::compare(&folders, (a, b), case.as_deref(), out)
        }
        EvalCommand::FromGit(options) => from_git::run(dir, &folders, options, out),
        EvalCommand::Clean {
            names,
            all,
            keep_results,
        } => report::clean(&folders, names, *all, *keep_results, out),
    }
}
