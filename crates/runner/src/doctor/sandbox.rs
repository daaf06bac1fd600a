//! Containment: what there is, and what the config would make of it.

use std::path::{Path, PathBuf};

use runner_core::config::{ChildKind, Config, SandboxConfig, SandboxMode};
use runner_sandbox::{Mechanism, SandboxSupport, UnavailableReason};

use super::{DoctorCheck, DoctorVerdict};
use crate::checkout::missing_variable::looks_secret;
use crate::checkout::setup_parts;
use crate::checkout::trial::some_of;
use crate::files;

/// The largest file of settings that is looked at.
const MAX_SETTINGS: u64 = 1 << 20;

/// Both mechanisms, and the choice.
pub(super) fn checks(config: &SandboxConfig, support: &SandboxSupport) -> Vec<DoctorCheck> {
    let wanted = config.mode != SandboxMode::Off;
    let bubblewrap = match &support.bubblewrap {
        Ok(found) => {
            let version = if found.version.is_empty() {
                "works"
            } else {
                &found.version
            };
            DoctorCheck::ok(
                "bubblewrap",
                format!("{version} ({})", found.program.display()),
            )
        }
        Err(why) => missing("bubblewrap", why, wanted),
    };
    // With bubblewrap there, nobody asks for Landlock.
    let landlock_wanted = wanted && support.bubblewrap.is_err();
    let landlock = match &support.landlock {
        Ok(abi) => DoctorCheck::ok("landlock", format!("the kernel has it (ABI {abi})")),
        Err(why) => missing("landlock", why, landlock_wanted),
    };
    vec![bubblewrap, landlock, choice(config.mode, support)]
}

fn missing(name: &'static str, why: &UnavailableReason, wanted: bool) -> DoctorCheck {
    if !wanted {
        return DoctorCheck::ok(name, format!("{why}; it is not needed here"));
    }
    DoctorCheck {
        name,
        verdict: DoctorVerdict::Warn,
        message: why.reason.clone(),
        remedy: why.remedy.clone(),
    }
}

fn choice(mode: SandboxMode, support: &SandboxSupport) -> DoctorCheck {
    const NAME: &str = "sandbox";
    let setting = format!("[sandbox] mode = \"{mode}\"");
    match runner_sandbox::choose(mode, support) {
        Err(refusal) => DoctorCheck::fail(NAME, refusal.message, refusal.hint),
        Ok(Mechanism::None) if mode == SandboxMode::Off => DoctorCheck::ok(
            NAME,
            format!("{setting}: agent, setup and guard can write wherever you can"),
        ),
        Ok(Mechanism::None) => DoctorCheck::warn(
            NAME,
            format!(
                "{setting}, but there is none: agent, setup and guard can write wherever you can"
            ),
            "install bubblewrap, or make what there is work (above)",
        ),
        Ok(Mechanism::Landlock) => DoctorCheck::ok(
            NAME,
            format!(
                "{setting}: agent, setup and guard are confined by Landlock; the runner's own files in the project are only checked afterwards"
            ),
        ),
        Ok(mechanism) => DoctorCheck::ok(
            NAME,
            format!("{setting}: agent, setup and guard run in {mechanism}"),
        ),
    }
}

/// Whether code of packages, or what files of the project name, gets a token that setup is given.
pub(super) fn setup_token(config: &Config, place: &Path) -> Option<DoctorCheck> {
    const NAME: &str = "setup_token";
    let setup = &config.workspace.setup;
    let tokens = setup_parts::tokens(config, looks_secret);
    if setup.is_empty() || tokens.is_empty() {
        return None;
    }
    let (command, tokens) = (setup.join(" "), some_of(&tokens));
    let has_code = |path: &&&str| {
        let text = files::read_regular(&place.join(path), MAX_SETTINGS);
        text.is_ok_and(|text| setup_parts::names_code(path, &String::from_utf8_lossy(&text)))
    };
    let named = setup_parts::code_files(setup).iter().find(has_code);
    Some(match setup_parts::parts(setup) {
        Some(_) if let Some(path) = named => DoctorCheck::warn(
            NAME,
            format!("code that {path} names has {tokens} while `{command}` fetches"),
            "take it out of there if it is not yours; setup fails where a session changes that file",
        ),
        Some(_) => DoctorCheck::ok(
            NAME,
            format!(
                "`{command}` has {tokens} while it fetches; scripts of packages have neither that nor a network"
            ),
        ),
        None => DoctorCheck::warn(
            NAME,
            format!("all that `{command}` runs has {tokens}, scripts of packages included"),
            "use a setup that is split into fetching and building: `npm ci`, `pnpm install --frozen-lockfile`, \
             `yarn install --immutable`, `cargo fetch` or `go mod download`; or pass on a token that can only read",
        ),
    })
}

fn place_of(text: &str, place: &Path) -> Result<PathBuf, String> {
    let home = std::env::var_os("HOME").map(PathBuf::from);
    runner_sandbox::expand_home(text, home.as_deref(), place)
}

/// What the config opens that is there, in its words.
pub(super) fn opened_here(config: &SandboxConfig, place: &Path) -> Vec<String> {
    let entries = config.opened_entries().into_iter();
    let there = entries.filter(|(path, _)| place_of(path, place).is_ok_and(|path| path.exists()));
    there
        .map(|(path, what)| format!("{path} ({what})"))
        .collect()
}

/// Entries of `[sandbox] readable`, `writable` and `hidden` that do nothing.
pub(super) fn entries(config: &SandboxConfig, place: &Path) -> Vec<DoctorCheck> {
    let kinds = ChildKind::ALL.map(|kind| config.opened(kind));
    let readable = kinds.iter().flat_map(|opened| &opened.readable);
    let writable = kinds.iter().flat_map(|opened| &opened.writable);
    let lists: [(_, _, Vec<&String>); 3] = [
        (
            "sandbox_readable",
            "readable",
            config.readable.iter().chain(readable).collect(),
        ),
        (
            "sandbox_writable",
            "writable",
            config.writable.iter().chain(writable).collect(),
        ),
        ("sandbox_hidden", "hidden", config.hidden.iter().collect()),
    ];
    lists
        .into_iter()
        .flat_map(|(name, key, texts)| {
            let found = texts.into_iter();
            found.filter_map(move |text| {
                entry((name, key), text, place_of(text, place), Path::exists)
            })
        })
        .collect()
}

fn entry(
    (name, key): (&'static str, &str),
    text: &str,
    found: Result<PathBuf, String>,
    exists: impl Fn(&Path) -> bool,
) -> Option<DoctorCheck> {
    match found {
        Ok(path) if exists(&path) => None,
        Ok(_) => Some(DoctorCheck::warn(
            name,
            format!("[sandbox] {key}: `{text}` is not there, so it is left out"),
            "make it, or take the entry away",
        )),
        Err(message) => Some(DoctorCheck::fail(
            name,
            format!("[sandbox] {key}: {message}"),
            "write an absolute path, or one that begins with ~/",
        )),
    }
}

#[cfg(test)]
mod tests {
    use runner_sandbox::Bubblewrap;

    use super::*;

    fn support(bubblewrap: bool, landlock: bool) -> SandboxSupport {
        let missing = |remedy: &str| UnavailableReason {
            reason: "not there".to_owned(),
            remedy: Some(remedy.to_owned()),
        };
        SandboxSupport {
            bubblewrap: bubblewrap
                .then(|| Bubblewrap {
                    program: "/usr/bin/bwrap".into(),
                    version: "0.8.0".to_owned(),
                    has_sizes: true,
                })
                .ok_or(missing("install it")),
            landlock: landlock.then_some(7).ok_or(missing("get a new kernel")),
            has_broker: true,
            has_ipc: true,
        }
    }

    #[test]
    fn what_there_is_and_what_is_chosen() {
        use DoctorVerdict::{Fail, Ok, Warn};
        for (mode, bubblewrap, landlock, verdicts, words) in [
            (SandboxMode::Auto, true, true, [Ok, Ok, Ok], "in bubblewrap"),
            (
                SandboxMode::Auto,
                true,
                false,
                [Ok, Ok, Ok],
                "in bubblewrap",
            ),
            (
                SandboxMode::Auto,
                false,
                true,
                [Warn, Ok, Ok],
                "by Landlock",
            ),
            (
                SandboxMode::Auto,
                false,
                false,
                [Warn, Warn, Warn],
                "there is none",
            ),
            (
                SandboxMode::Required,
                true,
                false,
                [Ok, Ok, Ok],
                "in bubblewrap",
            ),
            (
                SandboxMode::Required,
                false,
                true,
                [Warn, Ok, Ok],
                "by Landlock",
            ),
            (
                SandboxMode::Required,
                false,
                false,
                [Warn, Warn, Fail],
                "no sandbox",
            ),
            (
                SandboxMode::Off,
                true,
                true,
                [Ok, Ok, Ok],
                "wherever you can",
            ),
            (
                SandboxMode::Off,
                false,
                false,
                [Ok, Ok, Ok],
                "wherever you can",
            ),
        ] {
            let config = SandboxConfig {
                mode,
                ..SandboxConfig::default()
            };
            let found = checks(&config, &support(bubblewrap, landlock));
            let names: Vec<_> = found.iter().map(|check| check.name).collect();
            assert_eq!(names, ["bubblewrap", "landlock", "sandbox"]);
            let seen: Vec<_> = found.iter().map(|check| check.verdict).collect();
            assert_eq!(seen, verdicts, "{mode} {found:#?}");
            assert!(found[2].message.contains(words), "{mode} {found:#?}");
            for check in &found {
                assert_eq!(check.verdict == Ok, check.remedy.is_none(), "{check:?}");
            }
        }
    }

    #[test]
    fn who_gets_the_token_of_setup() {
        let token = "\n[sandbox.setup]\nreadable = [\"~/.npmrc\"]\n";
        let place = tempfile::tempdir().unwrap();
        let verdict = |setup: &str, rest: &str| {
            let text = format!("[workspace]\nsetup = {setup}\n{rest}");
            setup_token(&Config::parse(&text).unwrap(), place.path()).map(|check| check.verdict)
        };
        let npm = "[\"npm\", \"ci\"]";
        assert_eq!(verdict(npm, ""), None);
        assert_eq!(verdict("[]", token), None);
        assert_eq!(verdict(npm, token), Some(DoctorVerdict::Ok));
        assert_eq!(verdict("\"npm ci\"", token), Some(DoctorVerdict::Warn));
        std::fs::write(place.path().join(".npmrc"), "save-exact=true\n").unwrap();
        assert_eq!(verdict(npm, token), Some(DoctorVerdict::Ok));
        std::fs::write(place.path().join(".npmrc"), "script-shell=./x\n").unwrap();
        assert_eq!(verdict(npm, token), Some(DoctorVerdict::Warn));
    }

    #[test]
    fn entries_that_do_nothing() {
        let there = |path: &Path| path == Path::new("/there");
        for name in [
            ("sandbox_readable", "readable"),
            ("sandbox_writable", "writable"),
            ("sandbox_hidden", "hidden"),
        ] {
            assert_eq!(entry(name, "/there", Ok("/there".into()), there), None);
            let check = entry(name, "~/x", Ok("/h/x".into()), there).unwrap();
            assert_eq!((check.name, check.verdict), (name.0, DoctorVerdict::Warn));
            let words = format!("[sandbox] {}: `~/x` is not there", name.1);
            assert!(check.message.contains(&words), "{check:?}");
            let check = entry(name, "~bob", Err("`~bob`: no".to_owned()), there).unwrap();
            assert_eq!(check.verdict, DoctorVerdict::Fail);
        }
    }

    #[test]
    fn what_is_not_there_is_not_opened() {
        let temp = tempfile::tempdir().unwrap();
        std::fs::write(temp.path().join("there"), "").unwrap();
        let path = |name: &str| temp.path().join(name).display().to_string();
        let mut config = SandboxConfig {
            readable: vec![path("there"), path("gone")],
            ..SandboxConfig::default()
        };
        config.guard.writable = vec![path("gone"), path("there")];
        let words = [
            format!("{} (read by all)", path("there")),
            format!("{} (written by guard)", path("there")),
        ];
        assert_eq!(opened_here(&config, temp.path()), words);
        let names: Vec<&str> = entries(&config, temp.path())
            .iter()
            .map(|it| it.name)
            .collect();
        assert_eq!(names, ["sandbox_readable", "sandbox_writable"]);
    }
}
