//! `cargo xtask setup`: the tools that tests and benchmarks need.
//!
//! What is there is left alone and costs no network call. Packages of the system
//! come from apt; the rest goes to a folder of its own ([`tools_dir`]), where nothing else sees it.

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use crate::agent_clis::{self, AgentCli};
use crate::args::XtaskArgs;
use crate::cmd::{ToolCommand, find_program, tools_dir, workspace_root};
use crate::failure::{TaskFailure, TaskResult};
use crate::managers::ProjectTool;
use crate::{managers, out, pinned, schemathesis, ui};

pub(crate) const HELP: &str = "\
usage: cargo xtask setup

Installs the tools that tests and benchmarks need and that are not there yet:
packages of the system with apt (through sudo unless you are root), the others
into a folder that all checkouts share (~/.cache/runner-xtask, /var/cache/runner-xtask for
root, or what RUNNER_TOOLS_DIR names), which every xtask has first on its PATH. The real codex, claude and
opencode for the tests come from the npm registry, each in one version, and are named to
them by RUNNER_CODEX, RUNNER_CLAUDE and RUNNER_OPENCODE; the packages that the page of `runner ui` is built with come from
there too, as locked, into ui/node_modules. Both take Node.js with npm. The tool
that checks the fleet's API comes from the Python index, in one version. The package
managers that tests set projects up with come from both (pnpm, two yarns, bun; uv, poetry,
pipenv, and pytest as files), and so do test tools (jest, vitest; pytest), each in one
version, and the tests are told their folder by RUNNER_MANAGERS; go, bundler and composer
are packages of the system. Also tells
the git of this checkout that `git blame` shall look through the commits that only
renamed things (.git-blame-ignore-revs).";

/// A tool that something in this repository calls.
struct SetupTool {
    /// The program to look for.
    command: &'static str,
    source: SetupSource,
    why: &'static str,
}

enum SetupSource {
    /// A Debian package.
    Apt(&'static str),
    /// A package of the Python index that holds a program, with the crate that
    /// builds the same program where there is no pip.
    Pip {
        package: &'static str,
        or_crate: &'static str,
    },
    /// One of [`agent_clis`]; one on the PATH does not do.
    Agent(AgentCli),
    /// The packages in ui/package-lock.json.
    UiPackages,
    /// The pinned package of [`schemathesis`]; one on the PATH does not do.
    Schemathesis,
    /// One of [`managers`]; one on the PATH does not do.
    Project(ProjectTool),
}

/// Why the agents are there.
const RUNS_FOR_REAL: &str = "tests of its backend run the real one, against a scripted model";

/// Why the package managers are there.
const SETS_UP: &str = "tests set projects up with it, as `runner init` proposes";

/// Why the test tools are there.
const JUDGES: &str = "tests try what redefines a guard with it";

const TOOLS: &[SetupTool] = &[
    SetupTool {
        command: "git",
        source: SetupSource::Apt("git"),
        why: "every test and every step works in a repository",
    },
    SetupTool {
        command: "git-lfs",
        source: SetupSource::Apt("git-lfs"),
        why: "a test checks out files with it",
    },
    SetupTool {
        command: "python3",
        source: SetupSource::Apt("python3"),
        why: "scripted agents edit trees with it",
    },
    SetupTool {
        command: "strace",
        source: SetupSource::Apt("strace"),
        why: "benchmarks count the processes of a step with it",
    },
    SetupTool {
        command: "just",
        source: SetupSource::Pip {
            package: "rust-just",
            or_crate: "just",
        },
        why: "the guard that most projects have",
    },
    SetupTool {
        command: "bwrap",
        source: SetupSource::Apt("bubblewrap"),
        why: "the better one of the two sandboxes",
    },
    SetupTool {
        command: "ip",
        source: SetupSource::Apt("iproute2"),
        why: "tests bring loopback up in a network of their own",
    },
    SetupTool {
        command: "pg_ctl",
        source: SetupSource::Apt("postgresql"),
        why: "the tests of the ledger run on a server of their own",
    },
    SetupTool {
        command: "codex",
        source: SetupSource::Agent(agent_clis::CODEX),
        why: RUNS_FOR_REAL,
    },
    SetupTool {
        command: "claude",
        source: SetupSource::Agent(agent_clis::CLAUDE),
        why: RUNS_FOR_REAL,
    },
    SetupTool {
        command: "opencode",
        source: SetupSource::Agent(agent_clis::OPENCODE),
        why: RUNS_FOR_REAL,
    },
    SetupTool {
        command: "chromium",
        source: SetupSource::Apt("chromium"),
        why: "the page of `runner ui` is tested in a real browser",
    },
    SetupTool {
        command: "ui/node_modules",
        source: SetupSource::UiPackages,
        why: "the page of `runner ui` is built and tested with them",
    },
    SetupTool {
        command: "schemathesis",
        source: SetupSource::Schemathesis,
        why: "the fleet's API is checked against its OpenAPI with it",
    },
    SetupTool {
        command: "make",
        source: SetupSource::Apt("make"),
        why: "guards of tests are recipes of it",
    },
    SetupTool {
        command: "go",
        source: SetupSource::Apt("golang-go"),
        why: "tests set projects up with it, and judge them",
    },
    SetupTool {
        command: "bundle",
        source: SetupSource::Apt("ruby-bundler"),
        why: SETS_UP,
    },
    SetupTool {
        command: "composer",
        source: SetupSource::Apt("composer"),
        why: SETS_UP,
    },
    SetupTool {
        command: "pnpm",
        source: SetupSource::Project(managers::PNPM),
        why: SETS_UP,
    },
    SetupTool {
        command: "yarn-classic",
        source: SetupSource::Project(managers::YARN_CLASSIC),
        why: SETS_UP,
    },
    SetupTool {
        command: "yarn-berry",
        source: SetupSource::Project(managers::YARN_BERRY),
        why: SETS_UP,
    },
    SetupTool {
        command: "bun",
        source: SetupSource::Project(managers::BUN),
        why: SETS_UP,
    },
    // Before those that it installs.
    SetupTool {
        command: "uv",
        source: SetupSource::Project(managers::UV),
        why: SETS_UP,
    },
    SetupTool {
        command: "poetry",
        source: SetupSource::Project(managers::POETRY),
        why: SETS_UP,
    },
    SetupTool {
        command: "pipenv",
        source: SetupSource::Project(managers::PIPENV),
        why: SETS_UP,
    },
    SetupTool {
        command: "wheels",
        source: SetupSource::Project(managers::WHEELS),
        why: "projects of tests install pytest from these, without a network",
    },
    SetupTool {
        command: "pytest",
        source: SetupSource::Project(managers::PYTEST),
        why: JUDGES,
    },
    SetupTool {
        command: "jest",
        source: SetupSource::Project(managers::JEST),
        why: JUDGES,
    },
    SetupTool {
        command: "vitest",
        source: SetupSource::Project(managers::VITEST),
        why: JUDGES,
    },
    SetupTool {
        command: "mocha",
        source: SetupSource::Project(managers::MOCHA),
        why: JUDGES,
    },
    SetupTool {
        command: "ava",
        source: SetupSource::Project(managers::AVA),
        why: JUDGES,
    },
    SetupTool {
        command: "typescript",
        source: SetupSource::Project(managers::TYPESCRIPT),
        why: JUDGES,
    },
];

/// Where administrators' programs are, which not everybody has on the PATH.
const SYSTEM_DIRS: [&str; 2] = ["/usr/sbin", "/sbin"];

impl SetupTool {
    fn is_there(&self) -> bool {
        match &self.source {
            SetupSource::Project(tool) => tool.is_there(),
            SetupSource::Agent(cli) => cli.binary().is_some(),
            SetupSource::UiPackages => ui::has_packages(),
            SetupSource::Schemathesis => schemathesis::is_there(),
            SetupSource::Apt(_) | SetupSource::Pip { .. } => {
                let in_system = |dir: &str| Path::new(dir).join(self.command).is_file();
                find_program(self.command).is_some()
                    || SYSTEM_DIRS.iter().any(|dir| in_system(dir))
                    || in_a_version_of_postgres(self.command)
            }
        }
    }
}

/// Debian keeps the programs of each version of the server in a folder of its own.
fn in_a_version_of_postgres(command: &str) -> bool {
    let versions = std::fs::read_dir("/usr/lib/postgresql");
    let mut folders = versions.into_iter().flatten().flatten();
    folders.any(|version| version.path().join("bin").join(command).is_file())
}

pub(crate) fn run(args: XtaskArgs) -> TaskResult<()> {
    args.finish()?;
    ensure()
}

/// Installs what is missing.
pub(crate) fn ensure() -> TaskResult<()> {
    ignore_renames_in_blame()?;
    let missing: Vec<&SetupTool> = TOOLS.iter().filter(|tool| !tool.is_there()).collect();
    if missing.is_empty() {
        let names: Vec<&str> = TOOLS.iter().map(|tool| tool.command).collect();
        out::note(&format!(
            "nothing to install: {} are there",
            names.join(", ")
        ));
        say_where_tools_are();
        return Ok(());
    }
    for tool in &missing {
        out::note(&format!("{} is missing: {}", tool.command, tool.why));
    }
    let packages: Vec<&str> = missing
        .iter()
        .filter_map(|tool| match tool.source {
            SetupSource::Apt(package) => Some(package),
            _ => None,
        })
        .collect();
    // First, because pip needs python.
    if !packages.is_empty() {
        install_with_apt(&packages)?;
    }
    for tool in &missing {
        match &tool.source {
            SetupSource::Project(tool) => tool.install()?,
            SetupSource::Apt(_) => {}
            SetupSource::Pip { package, or_crate } => install_program(package, or_crate)?,
            SetupSource::Agent(cli) => cli.install()?,
            SetupSource::UiPackages => ui::install_packages()?,
            SetupSource::Schemathesis => schemathesis::install()?,
        }
        if !tool.is_there() {
            return Err(TaskFailure::new(format!(
                "{} was installed but is not on the PATH",
                tool.command
            ))
            .hint("start a new shell, or look where your system put it"));
        }
    }
    say_where_tools_are();
    Ok(())
}

/// Lets `git blame` look through the commits that only renamed, in this checkout alone.
fn ignore_renames_in_blame() -> TaskResult<()> {
    // A downloaded source has no history to look through.
    if !workspace_root().join(".git").exists() {
        return Ok(());
    }
    ToolCommand::new("git")
        .words("config blame.ignoreRevsFile .git-blame-ignore-revs")
        .run()
}

/// For whoever runs a test without `ci`.
fn say_where_tools_are() {
    out::note(&format!(
        "{}={}",
        managers::VARIABLE,
        managers::all().display()
    ));
    for cli in agent_clis::ALL {
        if let Some(path) = cli.binary() {
            out::note(&format!("{}={}", cli.variable, path.display()));
        }
    }
}

fn install_with_apt(packages: &[&str]) -> TaskResult<()> {
    let by_hand = format!("install these yourself, then go on: {}", packages.join(" "));
    if find_program("apt-get").is_none() {
        let failure = TaskFailure::new("there is no apt-get to install packages with");
        return Err(failure.hint(by_hand));
    }
    let apt = |words: &str| -> TaskResult<ToolCommand> {
        let cmd = if is_root() {
            ToolCommand::new("apt-get")
        } else if find_program("sudo").is_some() {
            // Sudo drops the environment, hence `env` behind it.
            ToolCommand::new("sudo").words("env DEBIAN_FRONTEND=noninteractive apt-get")
        } else {
            let failure = TaskFailure::new("installing packages takes root or sudo");
            return Err(failure.hint(by_hand.clone()));
        };
        let cmd = cmd.env("DEBIAN_FRONTEND", "noninteractive").words(words);
        Ok(cmd.hint(by_hand.clone()))
    };
    out::step("apt-get update", || apt("update --quiet")?.run())?;
    let install = apt("install --quiet --yes --no-install-recommends")?.args(packages);
    out::step(&install.label(), || install.run())
}

/// Puts a program into the folder of tools: as a ready one from the Python index,
/// which takes seconds, else built from source.
fn install_program(package: &str, or_crate: &str) -> TaskResult<()> {
    let tools = tools_dir();
    match pinned::install_with_pip(&tools.join("python"), package) {
        Ok(()) => Ok(()),
        Err(failure) => {
            out::note(&format!("{failure}"));
            let install = ToolCommand::cargo("install --locked --quiet --root")
                .arg(&tools)
                .arg(or_crate)
                .hint(format!("install {or_crate} yourself, then go on"));
            out::step(&format!("cargo install {or_crate}"), || install.run())
        }
    }
}

pub(crate) fn is_root() -> bool {
    // The owner of our entry in /proc is our effective user.
    std::fs::metadata("/proc/self").is_ok_and(|meta| meta.uid() == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_names_each_tool_once_and_says_why() {
        for (at, tool) in TOOLS.iter().enumerate() {
            assert!(!tool.why.is_empty());
            let again = TOOLS[at + 1..]
                .iter()
                .any(|other| other.command == tool.command);
            assert!(!again, "{}", tool.command);
        }
    }
}
