//! The agent's CLI: asked itself, not assumed.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use runner_agents::{AgentSpec, CliHelp, CliProbe, CliVersion, VersionFit, mask_text};
use runner_core::config::{BackendKind, Config};
use runner_exec::{Ended, Spec};
use runner_sandbox::ProgramError;

use super::{DoctorCheck, hermetic, login};
use crate::error::{Error, ErrorCode, Result};
use crate::run_context::{RunContext, RunProgress};
use crate::step::captured_child::{self, CaptureOptions};
use crate::step::environment;

/// How long the CLI may take to tell its version or to print a help text.
const LIMIT: Duration = Duration::from_secs(10);

/// One that hangs gets no long farewell.
const GRACE: Duration = Duration::from_secs(1);

/// Much more than any help text.
const MAX_TEXT: u64 = 1 << 20;

/// The CLIs that there are, for `doctor` outside a project.
pub(super) fn installed(place: &Path) -> DoctorCheck {
    let env = environment::inherited();
    let found: Vec<String> = [
        BackendKind::Codex,
        BackendKind::Claude,
        BackendKind::Opencode,
    ]
    .iter()
    .filter_map(|kind| {
        let path = environment::resolve(OsStr::new(kind.as_str()), place, &env).ok()?;
        Some(format!("{kind} ({})", path.display()))
    })
    .collect();
    any_installed(&found)
}

fn any_installed(found: &[String]) -> DoctorCheck {
    if found.is_empty() {
        return DoctorCheck::warn(
            "agent",
            "neither codex nor claude nor opencode is on PATH",
            "install one of them, or plug in any other with [executor] backend = \"command\"",
        );
    }
    DoctorCheck::ok("agent", found.join(", "))
}

/// Whether the configured agent is there, fit and logged in.
pub(super) fn checks(
    config: &Config,
    place: &Path,
    context: &mut RunContext<'_>,
) -> Result<Vec<DoctorCheck>> {
    let kind = config.executor.backend;
    let backend = runner_agents::backend(kind);
    let invocation = backend.invocation(&AgentSpec {
        project_dir: place,
        output_path: place,
        schema_path: place,
        schema_json: "{}",
        model: &config.executor.model,
        extra_args: &config.executor.extra_args,
        command: &config.executor.command,
        contained: true,
        is_root: rustix::process::geteuid().is_root(),
        agent_home: None,
        login_folder: None,
        inherit: &[],
        instructions: None,
    });
    let env = environment::for_question(config, &invocation);
    let program = invocation.argv.first().cloned().unwrap_or_default();
    let found = environment::resolve(&program, place, &env);
    let is_there = found.is_ok();
    let mut checks = vec![program_check(kind, found.as_ref())];
    if !is_there {
        return Ok(checks);
    }
    let probe = backend.probe();
    let secrets = secrets(config, &probe, &env);
    let secrets: Vec<&str> = secrets.iter().map(String::as_str).collect();
    let mut asker = Asker {
        place,
        env: &env,
        run: context,
    };
    if !probe.version.is_empty() {
        let answer = asker.ask(probe.version)?;
        checks.push(version_check(&probe, &answer, &secrets));
        // Whoever does not even tell the version is not worth another wait.
        let answers = match answer {
            DoctorAnswer::Silent => None,
            _ => Some(asker.ask_all(probe.helps)?),
        };
        let knows_flags = answers.is_some();
        checks.push(flags_check(answers.as_deref(), &secrets));
        let is_own = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        let seen = login::look(kind, &probe.login, config, &env, place, is_own);
        checks.push(login::check(kind, &probe.login, &seen));
        if knows_flags {
            checks.push(hermetic::check(&*backend, config, &env, context)?);
        }
    }
    Ok(checks)
}

/// Everything that must not be shown, whatever a CLI prints.
fn secrets(config: &Config, probe: &CliProbe, env: &[(OsString, OsString)]) -> Vec<String> {
    let keys = env
        .iter()
        .filter(|(name, _)| probe.login.env.iter().any(|key| name == key))
        .map(|(_, value)| value.to_string_lossy().into_owned());
    keys.chain(config.executor.env.values().cloned()).collect()
}

/// What came of a question.
#[derive(Clone, Debug, PartialEq, Eq)]
enum DoctorAnswer {
    /// It printed this and ended with this code.
    Said { text: String, exit: i32 },
    /// It did not end in time.
    Silent,
    /// It could not be asked; a lowercase fragment.
    Unasked(String),
}

struct Asker<'a, 'h> {
    place: &'a Path,
    env: &'a [(OsString, OsString)],
    run: &'a mut RunContext<'h>,
}

impl Asker<'_, '_> {
    fn ask(&mut self, words: &[&str]) -> Result<DoctorAnswer> {
        let spec = Spec {
            argv: words.iter().map(OsString::from).collect(),
            cwd: self.place.to_owned(),
            env: self.env.to_vec(),
            stdin: None,
            merge_stderr: true,
            deadline: Some(Instant::now() + LIMIT),
            idle_timeout: None,
            grace: GRACE,
            monitor: false,
            hold_lock: None,
            task_limit: None,
            cannot_start: None,
        };
        self.run.observer.progress(&RunProgress::Trying {
            what: words.first().copied().unwrap_or_default(),
            limit_secs: LIMIT.as_secs(),
        });
        let ran = captured_child::run(&spec, CaptureOptions::plain(MAX_TEXT), self.run);
        self.run.observer.progress(&RunProgress::Tried);
        let (report, output) = ran?;
        let text = output.log;
        let said = |exit: i32| DoctorAnswer::Said {
            text: String::from_utf8_lossy(&text).into_owned(),
            exit,
        };
        Ok(match report.ended {
            Ended::Exited(code) => said(code),
            Ended::Signaled(signal) => said(128 + signal),
            Ended::TimedOut => DoctorAnswer::Silent,
            Ended::NotStarted(failure) => DoctorAnswer::Unasked(failure.message),
            Ended::Interrupted => return Err(Error::new(ErrorCode::Interrupted, "interrupted")),
            Ended::Idle | Ended::StoppedBySink | Ended::SupervisorLost => {
                DoctorAnswer::Unasked("its supervisor was killed".to_owned())
            }
        })
    }

    fn ask_all(&mut self, helps: &'static [CliHelp]) -> Result<Vec<(CliHelp, DoctorAnswer)>> {
        helps
            .iter()
            .map(|help| Ok((*help, self.ask(help.command)?)))
            .collect()
    }
}

fn program_check(kind: BackendKind, found: Result<&PathBuf, &ProgramError>) -> DoctorCheck {
    const NAME: &str = "agent";
    match found {
        Ok(path) => DoctorCheck::ok(NAME, format!("{kind}: {}", path.display())),
        Err(error) => DoctorCheck::fail(NAME, format!("{kind}: {error}"), install(kind)),
    }
}

fn install(kind: BackendKind) -> String {
    let package = match kind {
        BackendKind::Codex => "@openai/codex",
        BackendKind::Claude => "@anthropic-ai/claude-code",
        BackendKind::Opencode => "opencode-ai",
        BackendKind::Command => {
            return "name the program of your agent in [executor] command, with its path if it is not on PATH"
                .to_owned();
        }
    };
    format!(
        "install it (`npm install -g {package}`), put its folder on PATH, or choose another [executor] backend"
    )
}

fn version_check(probe: &CliProbe, answer: &DoctorAnswer, secrets: &[&str]) -> DoctorCheck {
    const NAME: &str = "agent_version";
    let command = probe.version.join(" ");
    let text = match answer {
        DoctorAnswer::Silent => return silent(NAME, &command),
        DoctorAnswer::Unasked(why) => return unasked(NAME, &command, why),
        DoctorAnswer::Said { text, exit: 0 } => text,
        DoctorAnswer::Said { text, exit } => {
            return DoctorCheck::fail(
                NAME,
                format!("`{command}` gave exit {exit}{}", quoted(text, secrets)),
                "run it by hand, and install it anew if it does not work",
            );
        }
    };
    let tried = probe.known_good.map_or_else(String::new, |(first, last)| {
        format!("{first} to {}", shown(last))
    });
    let Some(version) = CliVersion::find(text) else {
        return DoctorCheck::warn(
            NAME,
            format!("`{command}` tells no version{}", quoted(text, secrets)),
            format!("known to work: {tried}"),
        );
    };
    match probe.fit(version) {
        VersionFit::Known => DoctorCheck::ok(NAME, format!("{version}, known to work")),
        VersionFit::Newer => DoctorCheck::warn(
            NAME,
            format!("{version} is newer than what was tried ({tried})"),
            "it will most likely do; if sessions fail, install one that was tried",
        ),
        VersionFit::Older => DoctorCheck::warn(
            NAME,
            format!("{version} is older than what was tried ({tried})"),
            "update it",
        ),
    }
}

/// A version that may stand for all patches of it.
fn shown(version: CliVersion) -> String {
    if version.patch == u32::MAX {
        format!("{}.{}.x", version.major, version.minor)
    } else {
        version.to_string()
    }
}

/// None: nothing was asked.
fn flags_check(answers: Option<&[(CliHelp, DoctorAnswer)]>, secrets: &[&str]) -> DoctorCheck {
    const NAME: &str = "agent_flags";
    let Some(answers) = answers else {
        return DoctorCheck::warn(
            NAME,
            "not asked for, because it did not tell its version",
            "mend that first",
        );
    };
    let mut count = 0;
    for (help, answer) in answers {
        let command = help.command.join(" ");
        let (text, exit) = match answer {
            DoctorAnswer::Silent => return silent(NAME, &command),
            DoctorAnswer::Unasked(why) => return unasked(NAME, &command, why),
            DoctorAnswer::Said { text, exit } => (text, *exit),
        };
        let missing = help.missing(text);
        if missing.len() == help.flags.len() && exit != 0 {
            return DoctorCheck::fail(
                NAME,
                format!("`{command}` gave exit {exit}{}", quoted(text, secrets)),
                "run it by hand, and install it anew if it does not work",
            );
        }
        if !missing.is_empty() {
            return DoctorCheck::fail(
                NAME,
                format!("`{command}` does not name {}", missing.join(", ")),
                "install a version that is known to work: sessions pass these flags",
            );
        }
        count += help.flags.len();
    }
    DoctorCheck::ok(NAME, format!("it knows all {count} flags that are passed"))
}

fn silent(name: &'static str, command: &str) -> DoctorCheck {
    DoctorCheck::fail(
        name,
        format!("`{command}` did not end within {} s", LIMIT.as_secs()),
        "run it by hand: it may wait for an answer, or for the network",
    )
}

fn unasked(name: &'static str, command: &str, why: &str) -> DoctorCheck {
    DoctorCheck::fail(
        name,
        format!("`{command}` could not be run: {why}"),
        "run it by hand, and install it anew if it does not work",
    )
}

/// The first words of what it printed, without secrets.
fn quoted(text: &str, secrets: &[&str]) -> String {
    let text = mask_text(text, secrets);
    let line = text.lines().map(str::trim).find(|line| !line.is_empty());
    line.map_or_else(String::new, |line| {
        format!(": {}", runner_core::text::cut_chars(line, 200))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::DoctorVerdict;

    fn said(exit: i32, text: &str) -> DoctorAnswer {
        DoctorAnswer::Said {
            text: text.to_owned(),
            exit,
        }
    }

    #[test]
    fn versions() {
        let probe = runner_agents::backend(BackendKind::Codex).probe();
        for (answer, verdict, words) in [
            (
                said(0, "codex-cli 0.166.0\n"),
                DoctorVerdict::Ok,
                "known to work",
            ),
            (
                said(0, "codex-cli 0.166.9\n"),
                DoctorVerdict::Ok,
                "known to work",
            ),
            (
                said(0, "codex-cli 0.167.0"),
                DoctorVerdict::Warn,
                "0.167.0 is newer",
            ),
            (
                said(0, "codex-cli 0.98.1"),
                DoctorVerdict::Warn,
                "older than what was tried (0.166.0 to 0.166.x)",
            ),
            (
                said(0, "hello"),
                DoctorVerdict::Warn,
                "tells no version: hello",
            ),
            (said(0, ""), DoctorVerdict::Warn, "tells no version"),
            (
                said(7, "\n boom \nmore"),
                DoctorVerdict::Fail,
                "`codex --version` gave exit 7: boom",
            ),
            (
                DoctorAnswer::Silent,
                DoctorVerdict::Fail,
                "did not end within 10 s",
            ),
            (
                DoctorAnswer::Unasked("gone".to_owned()),
                DoctorVerdict::Fail,
                "could not be run: gone",
            ),
        ] {
            let check = version_check(&probe, &answer, &[]);
            assert_eq!(check.verdict, verdict, "{check:?}");
            assert!(check.message.contains(words), "{check:?}");
            assert_eq!(
                check.remedy.is_none(),
                verdict == DoctorVerdict::Ok,
                "{check:?}"
            );
        }
    }

    #[test]
    fn what_is_quoted_has_no_secrets() {
        let probe = runner_agents::backend(BackendKind::Codex).probe();
        let check = version_check(
            &probe,
            &said(1, "bad key hunter2hunter2"),
            &["hunter2hunter2"],
        );
        assert!(check.message.ends_with(": bad key ***"), "{check:?}");
    }

    #[test]
    fn flags() {
        const HELP: CliHelp = CliHelp {
            command: &["x", "--help"],
            flags: &["--json", "--out"],
        };
        for (answer, verdict, words) in [
            (
                said(0, " --json\n --out FILE"),
                DoctorVerdict::Ok,
                "all 2 flags",
            ),
            (
                said(1, " --json\n --out FILE"),
                DoctorVerdict::Ok,
                "all 2 flags",
            ),
            (
                said(0, " --json\n --output"),
                DoctorVerdict::Fail,
                "does not name --out",
            ),
            (
                said(0, ""),
                DoctorVerdict::Fail,
                "does not name --json, --out",
            ),
            (
                said(2, "no such thing"),
                DoctorVerdict::Fail,
                "exit 2: no such thing",
            ),
            (
                DoctorAnswer::Silent,
                DoctorVerdict::Fail,
                "`x --help` did not end",
            ),
        ] {
            let check = flags_check(Some(&[(HELP, answer)]), &[]);
            assert_eq!(check.verdict, verdict, "{check:?}");
            assert!(check.message.contains(words), "{check:?}");
        }
        assert_eq!(flags_check(None, &[]).verdict, DoctorVerdict::Warn);
    }

    #[test]
    fn programs() {
        let path = PathBuf::from("/usr/bin/codex");
        assert_eq!(
            program_check(BackendKind::Codex, Ok(&path)).verdict,
            DoctorVerdict::Ok
        );
        let error = ProgramError {
            not_found: true,
            message: "cannot start `x`: no such file or directory".to_owned(),
        };
        for kind in BackendKind::ALL {
            let check = program_check(*kind, Err(&error));
            assert_eq!(check.verdict, DoctorVerdict::Fail);
            assert!(check.message.contains("no such file"), "{check:?}");
            let remedy = check.remedy.unwrap_or_default();
            let npm = *kind != BackendKind::Command;
            assert_eq!(remedy.contains("npm install"), npm, "{remedy}");
        }
        assert_eq!(any_installed(&[]).verdict, DoctorVerdict::Warn);
        assert_eq!(
            any_installed(&["codex".to_owned()]).verdict,
            DoctorVerdict::Ok
        );
    }
}
