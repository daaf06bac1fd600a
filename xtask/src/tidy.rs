//! `cargo xtask tidy`: the rules of this repository that no compiler knows.
//!
//! The rules are pure functions over the text of all files, so each is tested
//! without a repository.

mod files;
mod links;
mod names;
mod rust;
mod words;

use crate::args::XtaskArgs;
use crate::failure::{TaskFailure, TaskResult};
use crate::out;
use files::TidyFiles;

pub(crate) const HELP: &str = "\
usage: cargo xtask tidy

Checks every tracked and every new file:
  sources have at most 600 lines, and Rust modules begin with //!
  unsafe code is in crates/exec/src/os.rs and os/ alone
  crates/core and crates/lifecycle reach for no file, process, environment,
  network or clock, and leave nothing to chance
  public types have names of their own, of two words but for those on a list
  no file names a folder of this machine, nor unfinished work
  paths in ARCHITECTURE.md exist, Markdown links resolve
  every page of docs/ is linked from README.md or docs/README.md
  CHANGELOG.md exists, lock files name no host";

/// A place that breaks a rule.
#[derive(Debug, PartialEq, Eq)]
struct TidyFinding {
    path: String,
    /// Counted from 1; 0 is the file as a whole.
    line: usize,
    message: String,
}

impl TidyFinding {
    fn new(path: &str, line: usize, message: impl Into<String>) -> Self {
        Self {
            path: path.to_owned(),
            line,
            message: message.into(),
        }
    }
}

/// A rule looks at all files and tells what breaks it.
type TidyRule = fn(&TidyFiles) -> Vec<TidyFinding>;

const RULES: &[TidyRule] = &[
    rust::line_limit,
    rust::module_docs,
    rust::unsafe_code,
    rust::pure_crates,
    names::public_types,
    words::machine_paths,
    words::unfinished,
    words::lock_hosts,
    links::architecture_paths,
    links::relative_links,
    links::pages_are_linked,
    links::changelog,
];

pub(crate) fn run(args: XtaskArgs) -> TaskResult<()> {
    args.finish()?;
    out::step("tidy", check_workspace)
}

/// Fails with every finding.
pub(crate) fn check_workspace() -> TaskResult<()> {
    let files = TidyFiles::of_workspace()?;
    let findings: Vec<TidyFinding> = RULES.iter().flat_map(|rule| rule(&files)).collect();
    if findings.is_empty() {
        return Ok(());
    }
    for TidyFinding {
        path,
        line,
        message,
    } in &findings
    {
        let line = if *line == 0 {
            String::new()
        } else {
            format!(":{line}")
        };
        out::note(&format!("{path}{line}: {message}"));
    }
    Err(
        TaskFailure::new(format!("findings of tidy: {}", findings.len()))
            .hint("the rules are in `cargo xtask tidy --help` and CONTRIBUTING.md"),
    )
}

/// Runs one rule over files given as path and text.
#[cfg(test)]
fn check(rule: TidyRule, files: &[(&str, &str)]) -> Vec<String> {
    rule(&TidyFiles::in_memory("/machine/checkout", files))
        .into_iter()
        .map(|finding| format!("{}:{} {}", finding.path, finding.line, finding.message))
        .collect()
}
