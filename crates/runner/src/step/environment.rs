//! The environment of children: named variables, not everything the runner has.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use runner_agents::Invocation;
use runner_core::config::Config;
use runner_core::paths;
use runner_sandbox::ProgramError;

use crate::checkout::Checkout;
use crate::search_path::search_path_of_children;
use crate::step::Iteration;
use crate::step::agent::SessionPaths;

/// The variable that says where temporary files go.
pub(crate) const TEMP_FOLDER: &str = "TMPDIR";

/// Variables that are passed on when they are set.
const PASSED: &[&str] = &[
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "LANG",
    "LANGUAGE",
    "TERM",
    "COLORTERM",
    "TZ",
    TEMP_FOLDER,
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "CARGO_HOME",
    "RUSTUP_HOME",
    "RUSTUP_TOOLCHAIN",
    "GOPATH",
    "GOCACHE",
    "GOMODCACHE",
    "NVM_DIR",
    "PYENV_ROOT",
    "VIRTUAL_ENV",
    "JAVA_HOME",
    "http_proxy",
    "https_proxy",
    "no_proxy",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "NO_PROXY",
];

/// Families of variables that are passed on.
const PASSED_PREFIXES: &[&str] = &["LC_", "XDG_"];

/// The environment of an agent's session.
pub(crate) fn for_agent(
    places: &SessionPaths,
    checkout: &Checkout,
    it: &Iteration,
    config: &Config,
    invocation: &Invocation,
) -> Vec<(OsString, OsString)> {
    // Later ones win: what the person configured over what happens to be set, and
    // the protocol's own over everything.
    let mut env = inherited();
    for name in invocation.passed_env {
        if let Some(value) = std::env::var_os(name) {
            env.push((name.into(), value));
        }
    }
    env.extend(invocation.env.iter().cloned());
    env.extend(named(&config.workspace.env));
    let configured = config.executor.env.iter();
    env.extend(configured.map(|(name, value)| (name.into(), value.into())));
    env.extend(protocol(&places.project, it));
    let mut set = |name: &str, value: &OsStr| env.push((name.into(), value.to_owned()));
    set("RUNNER_OUTPUT_PATH", places.output.as_os_str());
    let schema = places.project.join(paths::AGENT_OUTPUT_SCHEMA);
    set("RUNNER_OUTPUT_SCHEMA", schema.as_os_str());
    let tools = format!("{}/{}/tools.json", paths::NODES_DIR, it.started.node_id);
    if is_object(&checkout.path().join(&tools)) {
        set("RUNNER_NODE_TOOLS", places.project.join(tools).as_os_str());
    }
    env
}

/// The environment of a guard's run.
pub(crate) fn for_guard(
    project: &Path,
    it: &Iteration,
    config: &Config,
) -> Vec<(OsString, OsString)> {
    let mut env = of_guard(config);
    env.extend(protocol(project, it));
    env
}

/// What every run of a guard has: most test tools know `CI`, and wait for nobody then.
fn of_guard(config: &Config) -> Vec<(OsString, OsString)> {
    let mut env = inherited();
    env.push(("CI".into(), "1".into()));
    // So that they name the tests that they ran.
    for (name, flags) in [("PYTEST_ADDOPTS", "-rpfEsxX"), ("GOFLAGS", "-v")] {
        env.push((name.into(), flags.into()));
    }
    env.extend(named(&config.workspace.env));
    env.extend(named(&config.guard.env));
    env
}

/// The variables of these names that the runner has.
fn named(names: &[String]) -> impl Iterator<Item = (OsString, OsString)> {
    names
        .iter()
        .filter_map(|name| Some((name.into(), std::env::var_os(name)?)))
}

/// What every child is told about its step.
fn protocol(project: &Path, it: &Iteration) -> [(OsString, OsString); 4] {
    [
        ("RUNNER_PROJECT_DIR".into(), project.into()),
        ("RUNNER_RUN_ID".into(), it.started.run_id.clone().into()),
        ("RUNNER_ITER".into(), it.started.iter.to_string().into()),
        ("RUNNER_NODE_ID".into(), it.started.node_id.clone().into()),
    ]
}

/// The environment of a guard that is tried in a checkout of its own, outside any
/// iteration.
pub(crate) fn for_checkout(folder: &Path, config: &Config) -> Vec<(OsString, OsString)> {
    let mut env = of_guard(config);
    env.push(("RUNNER_PROJECT_DIR".into(), folder.into()));
    env
}

/// The environment of the setup of a checkout.
pub(crate) fn for_setup(folder: &Path, config: &Config) -> Vec<(OsString, OsString)> {
    let mut env = inherited();
    env.extend(named(&config.workspace.env));
    env.push(("RUNNER_PROJECT_DIR".into(), folder.into()));
    env
}

/// An environment in which the temp folder is a private one, unless somebody configured another
/// than the one that the runner has.
pub fn with_temp_folder(env: &[(OsString, OsString)], folder: &Path) -> Vec<(OsString, OsString)> {
    with_private(env, vec![(TEMP_FOLDER.into(), folder.into())])
}

/// An environment in which these variables name private folders, unless somebody configured
/// others than those that the runner has.
pub fn with_private(
    env: &[(OsString, OsString)],
    mut private: Vec<(OsString, OsString)>,
) -> Vec<(OsString, OsString)> {
    let is_inherited = |(name, value): &&(OsString, OsString)| {
        private.iter().any(|(other, _)| other == name)
            && std::env::var_os(name).as_ref() == Some(value)
    };
    let kept: Vec<_> = env.iter().filter(|it| !is_inherited(it)).cloned().collect();
    private.extend(kept);
    private
}

/// The environment of an agent's CLI that is only asked something.
pub(crate) fn for_question(config: &Config, invocation: &Invocation) -> Vec<(OsString, OsString)> {
    let mut env = inherited();
    let configured = config.executor.env.iter();
    env.extend(configured.map(|(name, value)| (name.into(), value.into())));
    let passed = invocation.passed_env.iter();
    env.extend(passed.filter_map(|name| Some((name.into(), std::env::var_os(name)?))));
    env.extend(invocation.env.iter().cloned());
    env
}

/// What is passed on from the runner's own environment.
pub fn inherited() -> Vec<(OsString, OsString)> {
    std::env::vars_os()
        .filter(|(name, _)| {
            PASSED.iter().any(|passed| name == passed)
                || PASSED_PREFIXES
                    .iter()
                    .any(|prefix| name.as_bytes().starts_with(prefix.as_bytes()))
        })
        .map(|(name, value)| {
            if name == "PATH" {
                let value = search_path_of_children(&value);
                (name, value)
            } else {
                (name, value)
            }
        })
        .collect()
}

/// Why a program could not be started, found out before it is wrapped.
pub(crate) fn cannot_start(
    argv: &[OsString],
    cwd: &Path,
    env: &[(OsString, OsString)],
) -> Option<String> {
    let program = argv.first()?;
    resolve(program, cwd, env).err().map(|error| error.message)
}

/// The file that a child with this environment would be.
pub fn resolve(
    program: &OsStr,
    cwd: &Path,
    env: &[(OsString, OsString)],
) -> Result<PathBuf, ProgramError> {
    let path = env.iter().rev().find(|(name, _)| name == "PATH");
    let path = path.map_or(OsStr::new("/usr/bin:/bin"), |(_, value)| value);
    runner_sandbox::resolve_program(program, cwd, path)
}

/// Whether a file is one JSON object, as `tools.json` must be.
pub(crate) fn is_object(path: &Path) -> bool {
    crate::files::read_regular(path, 1 << 20).is_ok_and(|bytes| {
        serde_json::from_slice::<serde_json::Map<String, serde_json::Value>>(&bytes).is_ok()
    })
}
