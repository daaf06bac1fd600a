//! What a trial of a base comes to, and what a person is told of it.

use std::fmt::Write as _;

use runner_core::config::Config;
use runner_core::text::{OUTPUT_TAIL_PERCENT, cut_middle};

use crate::checkout::missing_variable;
use crate::checkout::trial::some_of;
use crate::error::Error;

/// What a shell answers when it cannot run a command, or not find it.
const SHELL_UNABLE: [i32; 2] = [126, 127];
/// How much of what was printed is shown: lines from the beginning and from the end.
const HEAD_LINES: usize = 3;
const TAIL_LINES: usize = 8;
const SHOWN_BYTES: usize = 1600;

/// Whether a base can be worked from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BaseVerdict {
    /// The guard is green there.
    Green,
    /// It runs, and is not green; why, as a lowercase fragment.
    Red(String),
    /// The file that defines the guard is not there yet: a session can write it.
    Undefined(String),
    /// Setup or guard cannot run there, so no session could help.
    Unable(BaseProblem),
}

/// Why setup or guard cannot run, and the remedy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BaseProblem {
    /// A lowercase fragment, several lines if need be.
    pub why: String,
    /// What to do.
    pub hint: String,
}

impl BaseProblem {
    /// The problem that an error of the runner is.
    pub(super) fn of(error: Error) -> BaseProblem {
        BaseProblem {
            why: error.message,
            hint: error.hint.unwrap_or_else(|| DOCTOR.to_owned()),
        }
    }
}

/// How the reason ends why a file cannot be started that may not be executed.
const NOT_EXECUTABLE: &str = "`: permission denied";
const SETUP: &str = "let [workspace] setup work in a fresh checkout: `runner edit config`";
const PROGRAM: &str =
    "install it, or change [guard] command (`runner edit config`); `runner doctor` looks closer";
pub(super) const DOCTOR: &str = "run `runner doctor --run-guard`: it looks closer";

/// How a trial ended; words are lowercase fragments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum BaseTrialEnd {
    SetupFailed(String),
    /// The guard's program is missing or cannot be executed.
    NoProgram(String),
    /// The guard did not come to an end of its own.
    Lost(String),
    Exited(i32),
    TimedOut,
}

/// What a verdict depends on.
pub(super) struct BaseFacts<'a> {
    pub(super) end: &'a BaseTrialEnd,
    pub(super) log: &'a [u8],
    pub(super) config: &'a Config,
    /// The file that defines the guard, if it is missing everywhere.
    pub(super) guard_file: Option<String>,
    /// What the user's checkout has beside the commit.
    pub(super) lacking: &'a [String],
    /// Variables that the output names, the shell has and nothing passes on.
    pub(super) unpassed: &'a [String],
    /// Remote-tracking branches of the project that the output or the command names.
    pub(super) remote_refs: &'a [String],
    /// Paths in the home folder that the output says could not be written.
    pub(super) home_paths: &'a [String],
}

/// Judges a trial. Only what says that something could not be run is no verdict; everything
/// else, a timeout too, is red.
pub(super) fn judge(facts: &BaseFacts<'_>) -> BaseVerdict {
    let shown = shown(&facts.config.guard.command);
    let unable = |why: &str, hint: String| {
        let why = with_output(why, facts.log);
        BaseVerdict::Unable(BaseProblem { why, hint })
    };
    match (facts.end, &facts.guard_file) {
        (BaseTrialEnd::Exited(0), _) => BaseVerdict::Green,
        (BaseTrialEnd::SetupFailed(why), _) => unable(why, SETUP.to_owned()),
        (BaseTrialEnd::Lost(why), _) => unable(&format!("the guard {why}"), DOCTOR.to_owned()),
        // A program that is missing is another matter than the file that it reads.
        (BaseTrialEnd::NoProgram(_), Some(file)) if is_program(&facts.config.guard, file) => {
            BaseVerdict::Undefined(file.clone())
        }
        (BaseTrialEnd::NoProgram(why), _) if why.ends_with(NOT_EXECUTABLE) => {
            let program = facts.config.guard.command.first();
            let program = program.map_or("", String::as_str);
            let hint = format!("make it executable, and commit that: `chmod +x {program}`");
            unable(why, hint)
        }
        (BaseTrialEnd::NoProgram(why), _) => unable(why, PROGRAM.to_owned()),
        (_, Some(file)) => BaseVerdict::Undefined(file.clone()),
        (BaseTrialEnd::Exited(code), None) if SHELL_UNABLE.contains(code) => unable(
            &format!("`{shown}` gave exit {code}, as for a program that is missing"),
            format!(
                "install what the guard calls, or {}",
                hint_lacking(facts.lacking, facts.unpassed).unwrap_or_else(|| DOCTOR.to_owned())
            ),
        ),
        (BaseTrialEnd::Exited(_), None)
            if let Some(tool) = missing_tool(&facts.config.guard.command, facts.log) =>
        {
            unable(
                &format!("`{shown}` lacks a program: {tool}"),
                PROGRAM.to_owned(),
            )
        }
        (BaseTrialEnd::Exited(code), None) => {
            BaseVerdict::Red(format!("`{shown}` gave exit {code}{}", named_lacks(facts)))
        }
        (BaseTrialEnd::TimedOut, None) => BaseVerdict::Red(format!(
            "`{shown}` did not end within {} s",
            facts.config.iteration_timeout_secs
        )),
    }
}

/// What a tool says that could not start a program, in the words of that tool.
fn missing_tool(command: &[String], log: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(log);
    let module = command.iter().skip_while(|word| *word != "-m").nth(1);
    // A backtrace may follow.
    let mut lines = text.lines().rev().take(40).chain(text.lines().take(10));
    lines.find_map(|line| {
        let line = line.trim();
        // make, for a recipe whose shell did not find it.
        let by_make = line.contains("*** [")
            && (line.ends_with("] Error 127") || line.ends_with("] Error 126"));
        let by_just = line.starts_with("error: ")
            && (line.ends_with("with exit code 127") || line.ends_with("with exit code 126"));
        let by_python = module.is_some_and(|it| line.ends_with(&format!("No module named {it}")));
        let by_cargo = line.starts_with("error: no such command: ");
        let is_told = by_make || by_just || by_python || by_cargo || lacks_toolchain(line);
        is_told.then(|| line.to_owned())
    })
}

/// Whether what chooses among versions of a tool says that it has none to start: rustup, pyenv, rbenv,
/// asdf, nvm, volta.
fn lacks_toolchain(line: &str) -> bool {
    let word = |name: &str| line.starts_with(&format!("{name}: "));
    let by_rustup = line.starts_with("error: rustup could not choose a version of ")
        || (line.starts_with("error: toolchain '") && line.ends_with("' is not installed"));
    let by_env = (word("pyenv") || word("rbenv") || word("nodenv") || word("goenv"))
        && (line.contains("' is not installed") || line.contains("command not found"));
    let by_asdf = line.starts_with("No version is set for command ")
        || line.starts_with("No preset version installed for command ")
        || line.starts_with("unknown command: ") && line.contains("Perhaps you have to reshim?");
    let by_nvm = line.starts_with("N/A: version \"") || line.starts_with("nvm: command not found");
    let by_volta = line.starts_with("Volta error: ");
    by_rustup || by_env || by_asdf || by_nvm || by_volta
}

/// Variables that a guard's output names, that the shell has and that no list passes on.
pub(super) fn unpassed(log: &[u8], config: &Config) -> Vec<String> {
    let names = missing_variable::unpassed(config);
    named_in(&String::from_utf8_lossy(log), &names)
}

pub(super) fn hint_variables(names: &[String]) -> String {
    let quoted: Vec<String> = names.iter().map(|name| format!("{name:?}")).collect();
    format!(
        "pass {} on with [guard] env = [{}]",
        some_of(names),
        quoted.join(", ")
    )
}

/// Those of the names that a text has as words.
pub(super) fn named_in(text: &str, names: &[String]) -> Vec<String> {
    let is_part = |char: char| char.is_ascii_alphanumeric() || char == '_';
    let words: std::collections::BTreeSet<&str> = text.split(|char| !is_part(char)).collect();
    // Short names and names in small letters are words of any language.
    let is_telling =
        |name: &&String| name.len() > 3 && !name.bytes().any(|byte| byte.is_ascii_lowercase());
    let told = names.iter().filter(is_telling);
    told.filter(|name| words.contains(name.as_str()))
        .cloned()
        .collect()
}

fn is_program(guard: &runner_core::config::GuardConfig, file: &str) -> bool {
    guard
        .command
        .first()
        .is_some_and(|program| program.strip_prefix("./").unwrap_or(program) == file)
}

/// The remedy where something is missing; `None`: there is nothing to name.
pub(super) fn hint_lacking(lacking: &[String], unpassed: &[String]) -> Option<String> {
    let mut hints = Vec::new();
    if !lacking.is_empty() {
        hints.push(format!(
            "let [workspace] setup make what a clean checkout lacks ({}), for example \
             `setup = \"npm ci\"`",
            some_of(lacking)
        ));
    }
    if !unpassed.is_empty() {
        hints.push(hint_variables(unpassed));
    }
    (!hints.is_empty()).then(|| hints.join("; "))
}

/// What the output names that may be why it is red, although it is red with that, too.
fn named_lacks(facts: &BaseFacts<'_>) -> String {
    let mut said = String::new();
    for (names, what) in [
        (
            facts.unpassed,
            "your shell has it, [guard] env does not pass it on",
        ),
        (
            facts.remote_refs,
            "a clean checkout has no remote-tracking branches",
        ),
        (
            facts.home_paths,
            "it can be written only where [sandbox.guard] writable names it",
        ),
    ] {
        if !names.is_empty() {
            // Writing to a String cannot fail.
            let _ = write!(said, ", and its output names {}: {what}", some_of(names));
        }
    }
    said
}

/// What a person is told of a guard whose own file is missing.
pub(crate) fn not_there_yet(command: &[String], file: &str) -> String {
    format!(
        "the guard is not there yet: `{}` needs {file}, and no leaf passes until a session has written it",
        shown(command)
    )
}

pub(super) fn shown(command: &[String]) -> String {
    command.join(" ")
}

/// Both ends of what was printed, below what it is about: npm says first what is wrong.
fn with_output(words: &str, log: &[u8]) -> String {
    let text = String::from_utf8_lossy(log);
    let text = cut_middle(text.trim_end(), SHOWN_BYTES, OUTPUT_TAIL_PERCENT);
    let lines: Vec<&str> = text.lines().filter(|line| !line.is_empty()).collect();
    let left_out = lines.len().saturating_sub(HEAD_LINES + TAIL_LINES);
    let (head, tail) = if left_out > 1 {
        (&lines[..HEAD_LINES], &lines[HEAD_LINES + left_out..])
    } else {
        (&lines[..], &[][..])
    };
    let gap = (left_out > 1).then(|| format!("[... {left_out} lines left out ...]"));
    let mut said = words.to_owned();
    let shown = head.iter().copied().chain(gap.as_deref());
    for line in shown.chain(tail.iter().copied()) {
        said.push_str("\n  ");
        said.push_str(line);
    }
    said
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(command: &[&str]) -> Config {
        let mut config = Config::default();
        config.guard.command = command.iter().map(|word| (*word).to_owned()).collect();
        config.iteration_timeout_secs = 7;
        config
    }

    struct Case<'a> {
        command: &'a [&'a str],
        end: BaseTrialEnd,
        guard_file: Option<&'a str>,
        lacking: &'a [&'a str],
        unpassed: &'a [&'a str],
        remote_refs: &'a [&'a str],
        home_paths: &'a [&'a str],
    }

    const PLAIN: Case<'static> = Case {
        command: &["just", "ci"],
        end: BaseTrialEnd::Exited(1),
        guard_file: None,
        lacking: &[],
        unpassed: &[],
        remote_refs: &[],
        home_paths: &[],
    };

    fn told(case: &Case<'_>) -> String {
        let owned = |names: &[&str]| -> Vec<String> {
            names.iter().map(|name| (*name).to_owned()).collect()
        };
        let verdict = judge(&BaseFacts {
            end: &case.end,
            log: b"first\nlast\n",
            config: &config(case.command),
            guard_file: case.guard_file.map(str::to_owned),
            lacking: &owned(case.lacking),
            unpassed: &owned(case.unpassed),
            remote_refs: &owned(case.remote_refs),
            home_paths: &owned(case.home_paths),
        });
        match verdict {
            BaseVerdict::Green => "green".to_owned(),
            BaseVerdict::Red(why) => format!("red: {why}"),
            BaseVerdict::Undefined(file) => format!("undefined: {file}"),
            BaseVerdict::Unable(problem) => format!("unable: {} ({})", problem.why, problem.hint),
        }
    }

    #[test]
    fn what_cannot_run_is_not_red_and_everything_else_is() {
        let no_program = |why: &str| BaseTrialEnd::NoProgram(why.to_owned());
        let setup_failed = |why: &str| BaseTrialEnd::SetupFailed(why.to_owned());
        for (case, expected) in [
            (
                Case {
                    end: BaseTrialEnd::Exited(0),
                    ..PLAIN
                },
                "green",
            ),
            (PLAIN, "red: `just ci` gave exit 1"),
            (
                Case {
                    end: BaseTrialEnd::Exited(139),
                    ..PLAIN
                },
                "red: `just ci` gave exit 139",
            ),
            (
                Case {
                    unpassed: &["DATABASE_URL"],
                    ..PLAIN
                },
                "red: `just ci` gave exit 1, and its output names DATABASE_URL: your shell has it, \
                 [guard] env does not pass it on",
            ),
            (
                Case {
                    remote_refs: &["origin/main"],
                    home_paths: &["~/.tool/state"],
                    ..PLAIN
                },
                "red: `just ci` gave exit 1, and its output names origin/main: a clean checkout has \
                 no remote-tracking branches, and its output names ~/.tool/state: it can be written \
                 only where [sandbox.guard] writable names it",
            ),
            (
                Case {
                    end: BaseTrialEnd::TimedOut,
                    ..PLAIN
                },
                "red: `just ci` did not end within 7 s",
            ),
            (
                Case {
                    end: BaseTrialEnd::Exited(127),
                    lacking: &["node_modules/"],
                    ..PLAIN
                },
                "unable: `just ci` gave exit 127, as for a program that is missing\n  first\n  last \
                 (install what the guard calls, or let [workspace] setup make what a clean \
                 checkout lacks (node_modules/), for example `setup = \"npm ci\"`)",
            ),
            (
                Case {
                    end: BaseTrialEnd::Exited(126),
                    ..PLAIN
                },
                "unable: `just ci` gave exit 126, as for a program that is missing\n  first\n  last \
                 (install what the guard calls, or run `runner doctor --run-guard`: it looks closer)",
            ),
            (
                Case {
                    end: no_program("cannot start `just`: gone"),
                    ..PLAIN
                },
                "unable: cannot start `just`: gone\n  first\n  last (install it, or change \
                 [guard] command (`runner edit config`); `runner doctor` looks closer)",
            ),
            (
                Case {
                    end: BaseTrialEnd::Lost("was lost".to_owned()),
                    ..PLAIN
                },
                "unable: the guard was lost\n  first\n  last (run `runner doctor --run-guard`: it looks closer)",
            ),
            (
                Case {
                    end: setup_failed("setup `npm ci` gave exit 1"),
                    ..PLAIN
                },
                "unable: setup `npm ci` gave exit 1\n  first\n  last (let [workspace] \
                 setup work in a fresh checkout: `runner edit config`)",
            ),
        ] {
            assert_eq!(told(&case), expected, "{:?}", case.end);
        }
    }

    #[test]
    fn programs_that_are_missing_behind_a_tool() {
        let found = |line: &str, log: &str| {
            let command: Vec<String> = line.split(' ').map(str::to_owned).collect();
            missing_tool(&command, log.as_bytes())
        };
        for (line, log, expected) in [
            (
                "make ci",
                "make: nosuchtool: No such file\nmake: *** [Makefile:2: ci] Error 127\n",
                Some("make: *** [Makefile:2: ci] Error 127"),
            ),
            ("make ci", "make: *** [Makefile:2: ci] Error 1\n", None),
            (
                "just ci",
                "error: Recipe `ci` failed on line 2 with exit code 127\n",
                Some("error: Recipe `ci` failed on line 2 with exit code 127"),
            ),
            (
                "python3 -m pytest",
                "/usr/bin/python3: No module named pytest\n",
                Some("/usr/bin/python3: No module named pytest"),
            ),
            // A module of the project is the work.
            (
                "python3 -m pytest",
                "E   ModuleNotFoundError: No module named 'calc'\n",
                None,
            ),
            (
                "cargo nextest run",
                "error: no such command: `nextest`\n",
                Some("error: no such command: `nextest`"),
            ),
            (
                "cargo test",
                "error: rustup could not choose a version of cargo to run, because one wasn't specified explicitly, and no default is configured.\nhelp: run 'rustup default stable' to download the latest stable release of Rust and set it as your default toolchain.\n",
                Some(
                    "error: rustup could not choose a version of cargo to run, because one wasn't specified explicitly, and no default is configured.",
                ),
            ),
            (
                "make test",
                "error: toolchain '1.80.0-x86_64-unknown-linux-gnu' is not installed\nhelp: run `rustup toolchain install`\nmake: *** [Makefile:2: test] Error 1\n",
                Some("error: toolchain '1.80.0-x86_64-unknown-linux-gnu' is not installed"),
            ),
            (
                "python -m unittest",
                "pyenv: version `3.12.9' is not installed (set by /app/.python-version)\n",
                Some("pyenv: version `3.12.9' is not installed (set by /app/.python-version)"),
            ),
            (
                "npm test",
                "No version is set for command npm\nConsider adding one of the following versions\n",
                Some("No version is set for command npm"),
            ),
            (
                "sh ci.sh",
                "N/A: version \"v22.1.0\" is not yet installed.\n",
                Some("N/A: version \"v22.1.0\" is not yet installed."),
            ),
            // A test of the project that is about toolchains.
            (
                "cargo test",
                "assertion failed: left: \"error: toolchain 'x' is not installed\"\n",
                None,
            ),
        ] {
            assert_eq!(found(line, log).as_deref(), expected, "{line}");
        }
    }

    #[test]
    fn both_ends_of_what_was_printed_are_shown() {
        let lines: Vec<String> = (1..=20).map(|number| format!("line {number}")).collect();
        let told = with_output("red", lines.join("\n").as_bytes());
        let expected =
            "red\n  line 1\n  line 2\n  line 3\n  [... 9 lines left out ...]\n  line 13\n";
        assert!(told.starts_with(expected), "{told}");
        assert!(told.ends_with("\n  line 20"), "{told}");
        let told = with_output("red", lines[..11].join("\n").as_bytes());
        assert!(!told.contains("left out"), "{told}");
    }

    #[test]
    fn a_guard_whose_own_file_is_missing_is_not_defined_yet() {
        let no_program = |why: &str| BaseTrialEnd::NoProgram(why.to_owned());
        let setup_failed = |why: &str| BaseTrialEnd::SetupFailed(why.to_owned());
        for (command, guard_file, end, expected) in [
            (
                &["make", "ci"][..],
                "Makefile",
                BaseTrialEnd::Exited(2),
                "undefined: Makefile",
            ),
            (
                &["sh", "ci.sh"],
                "ci.sh",
                BaseTrialEnd::Exited(127),
                "undefined: ci.sh",
            ),
            (
                &["./ci.sh"],
                "ci.sh",
                no_program("cannot start `./ci.sh`: gone"),
                "undefined: ci.sh",
            ),
            // The program is missing too: no session can install it.
            (
                &["make", "ci"],
                "Makefile",
                no_program("cannot start `make`: gone"),
                "unable: cannot start",
            ),
            // Setup failed before the guard was asked.
            (
                &["./ci.sh"],
                "ci.sh",
                setup_failed("setup `npm ci` gave exit 1"),
                "unable: setup",
            ),
            (
                &["make", "ci"],
                "Makefile",
                BaseTrialEnd::Exited(0),
                "green",
            ),
        ] {
            let guard_file = Some(guard_file);
            let told = told(&Case {
                command,
                end,
                guard_file,
                ..PLAIN
            });
            assert!(told.starts_with(expected), "{command:?}: {told}");
        }
    }

    #[test]
    fn variables_are_words_of_the_output() {
        let names: Vec<String> = ["API_KEY", "DATABASE_URL", "PWD", "lower_case"]
            .map(str::to_owned)
            .into();
        let text = "KeyError: 'DATABASE_URL' at MY_API_KEY, PWD, lower_case";
        assert_eq!(named_in(text, &names), ["DATABASE_URL"]);
        assert_eq!(named_in("API_KEY=?", &names), ["API_KEY"]);
        assert!(named_in("", &names).is_empty());
    }
}
