//! `cargo xtask tidy`: the rules of this repository that no compiler knows.
//!
//! The rules are pure functions over the text of all files, so each is tested
//! without a repository.

mod files;
mod links;
mod rust;
mod words;

use crate::args::Args;
use crate::failure::{Failure, Result};
use crate::out;
use files::Files;

pub(crate) const HELP: &str = "\
usage: cargo xtask tidy

Checks every tracked and every new file:
  sources have at most 600 lines, and Rust modules begin with //!
  unsafe code is in crates/exec/src/os.rs alone
  crates/core and crates/lifecycle reach for no file, process, environment,
  network or clock, and leave nothing to chance
  no file names a folder of this machine, nor unfinished work
  paths in ARCHITECTURE.md exist, Markdown links resolve
  every page of docs/ is linked from README.md or docs/README.md
  CHANGELOG.md exists, lock files name no host";

/// A place that breaks a rule.
#[derive(Debug, PartialEq, Eq)]
struct Finding {
    path: String,
    /// Counted from 1; 0 is the file as a whole.
    line: usize,
    message: String,
}

impl Finding {
    fn new(path: &str, line: usize, message: impl Into<String>) -> Self {
        Self {
            path: path.to_owned(),
            line,
            message: message.into(),
        }
    }
}

/// A rule looks at all files and tells what breaks it.
type Rule = fn(&Files) -> Vec<Finding>;

const RULES: &[Rule] = &[
    rust::line_limit,
    rust::module_docs,
    rust::unsafe_code,
    rust::pure_crates,
    words::machine_paths,
    words::unfinished,
    words::lock_hosts,
    links::architecture_paths,
    links::relative_links,
    links::pages_are_linked,
    links::changelog,
];

pub(crate) fn run(args: Args) -> Result<()> {
    args.finish()?;
    out::step("tidy", check_workspace)
}

/// Fails with every finding.
pub(crate) fn check_workspace() -> Result<()> {
    let files = Files::of_workspace()?;
    let findings: Vec<Finding> = RULES.iter().flat_map(|rule| rule(&files)).collect();
    if findings.is_empty() {
        return Ok(());
    }
    for Finding {
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
        Failure::new(format!("findings of tidy: {}", findings.len()))
            .hint("the rules are in `cargo xtask tidy --help` and CONTRIBUTING.md"),
    )
}

/// Runs one rule over files given as path and text.
#[cfg(test)]
fn check(rule: Rule, files: &[(&str, &str)]) -> Vec<String> {
    rule(&Files::in_memory("/machine/checkout", files))
        .into_iter()
        .map(|finding| format!("{}:{} {}", finding.path, finding.line, finding.message))
        .collect()
}
