//! Whether somebody has logged in. Only names are looked at and shown: values are
//! asked for nothing but whether they are empty.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use runner_agents::CliLogin;
use runner_core::config::{BackendKind, Config};

use super::DoctorCheck;
use crate::files;

const NAME: &str = "agent_login";

/// The most of a settings file that is searched for a word.
const MAX_SETTINGS: u64 = 1 << 20;

/// What was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum LoginState {
    /// This variable is set.
    Variable(&'static str),
    /// This variable is set by `[executor.env]`.
    Configured(&'static str),
    /// This file is there.
    File(String),
    /// None of it, but this may hold a login or make one needless.
    Perhaps(String),
    /// Nothing.
    Nothing,
}

/// Looks for a login as the CLI itself will, with the environment that it gets.
/// `is_own` tells which variables the runner itself was started with: they do not
/// get into any commit.
pub(super) fn look(
    kind: BackendKind,
    login: &CliLogin,
    config: &Config,
    env: &[(OsString, OsString)],
    place: &Path,
    is_own: impl Fn(&str) -> bool,
) -> LoginState {
    let value = |wanted: &str| -> Option<&OsStr> {
        let found = env.iter().rev().find(|(name, _)| name == wanted)?;
        Some(found.1.as_os_str()).filter(|value| !value.is_empty())
    };
    if let Some(&name) = login.env.iter().find(|name| value(name).is_some()) {
        return if config.executor.env.contains_key(name) && !is_own(name) {
            LoginState::Configured(name)
        } else {
            LoginState::Variable(name)
        };
    }
    let home = value("HOME").map(PathBuf::from);
    let moved = login
        .home
        .and_then(|(name, files)| Some((PathBuf::from(value(name)?), files)));
    let (base, names) = match (moved, home.clone()) {
        (Some((base, names)), _) => (base, names),
        (None, Some(home)) => (home, login.files),
        (None, None) => return LoginState::Nothing,
    };
    let mut files = names.iter().map(|name| base.join(name));
    if let Some(file) = files.find(|path| is_filled(path)) {
        return LoginState::File(below_home(&file, home.as_deref()));
    }
    perhaps(kind, config, &value, home.as_deref(), place)
        .map_or(LoginState::Nothing, LoginState::Perhaps)
}

fn is_filled(path: &Path) -> bool {
    path.metadata()
        .is_ok_and(|meta| meta.is_file() && meta.len() > 0)
}

fn below_home(path: &Path, home: Option<&Path>) -> String {
    match home.and_then(|home| path.strip_prefix(home).ok()) {
        Some(rest) => format!("~/{}", rest.display()),
        None => path.display().to_string(),
    }
}

/// What makes a login of the usual kind needless: a provider of the user's own.
fn perhaps<'v>(
    kind: BackendKind,
    config: &Config,
    value: &impl Fn(&str) -> Option<&'v OsStr>,
    home: Option<&Path>,
    place: &Path,
) -> Option<String> {
    let folder = |variable: &str, usual: &str| {
        let moved = value(variable).map(PathBuf::from);
        moved.or_else(|| Some(home?.join(usual)))
    };
    let (folder, names, word): (_, &[&str], &str) = match kind {
        BackendKind::Codex => (
            folder("CODEX_HOME", ".codex"),
            &["config.toml"],
            "model_provider",
        ),
        BackendKind::Claude => (
            folder("CLAUDE_CONFIG_DIR", ".claude"),
            &["settings.json"],
            "apiKeyHelper",
        ),
        BackendKind::Opencode => (
            folder("XDG_CONFIG_HOME", ".config").map(|it| it.join("opencode")),
            &["opencode.json", "opencode.jsonc"],
            "\"provider\"",
        ),
        BackendKind::Command => return None,
    };
    let mut settings: Vec<PathBuf> = folder
        .iter()
        .flat_map(|folder| names.iter().map(|name| folder.join(name)))
        .collect();
    if kind == BackendKind::Opencode {
        settings.extend(names.iter().map(|name| place.join(name)));
    }
    let names_one = |path: &PathBuf| {
        let text = files::read_regular(path, MAX_SETTINGS).unwrap_or_default();
        String::from_utf8_lossy(&text).contains(word)
    };
    if let Some(file) = settings.iter().find(|path| names_one(path)) {
        return Some(format!("{} names a provider", below_home(file, home)));
    }
    if !config.executor.extra_args.is_empty() {
        return Some("[executor] extra_args may name a provider".to_owned());
    }
    let others = &config.executor.env;
    (!others.is_empty()).then(|| "[executor.env] may hold what it needs".to_owned())
}

/// What that means.
pub(super) fn check(kind: BackendKind, login: &CliLogin, seen: &LoginState) -> DoctorCheck {
    let remedy = || {
        match kind {
        BackendKind::Codex => "log in with `codex login`, or set CODEX_API_KEY".to_owned(),
        BackendKind::Claude => {
            "start `claude` once and log in, or set ANTHROPIC_API_KEY or CLAUDE_CODE_OAUTH_TOKEN (`claude setup-token`)"
                .to_owned()
        }
        _ => format!(
            "log in with `opencode auth login`, or set the variable of your provider ({}, …)",
            login.env.iter().take(4).copied().collect::<Vec<_>>().join(", ")
        ),
    }
    };
    match seen {
        LoginState::Variable(name) => DoctorCheck::ok(NAME, format!("{name} is set")),
        LoginState::File(path) => DoctorCheck::ok(NAME, format!("{path} is there")),
        LoginState::Configured(name) => DoctorCheck::warn(
            NAME,
            format!("{name} is set by [executor.env], and config.toml is committed"),
            format!("take it out of the config and out of git, and set {name} in your environment"),
        ),
        LoginState::Perhaps(why) => DoctorCheck::warn(
            NAME,
            format!("no login was found, but {why}"),
            format!("if sessions end with an auth error: {}", remedy()),
        ),
        LoginState::Nothing => {
            DoctorCheck::fail(NAME, format!("{kind} is not logged in"), remedy())
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::doctor::DoctorVerdict;

    const KEY: &str = "value-that-must-not-be-seen";

    /// `vars` are the child's environment besides HOME, `files` lie below HOME.
    fn seen(
        kind: BackendKind,
        vars: &[(&str, &str)],
        files: &[(&str, &str)],
        toml: &str,
    ) -> DoctorCheck {
        let home = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = home.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let config = Config::parse(toml).unwrap();
        let mut env: Vec<(OsString, OsString)> =
            vec![("HOME".into(), home.path().as_os_str().to_owned())];
        let configured = config.executor.env.iter();
        env.extend(configured.map(|(name, value)| (name.into(), value.into())));
        for (name, value) in vars {
            let value = value.replace('~', &home.path().display().to_string());
            env.push(((*name).into(), value.into()));
        }
        let login = runner_agents::backend(kind).probe().login;
        let seen = look(kind, &login, &config, &env, home.path(), |_| false);
        let check = check(kind, &login, &seen);
        assert!(!format!("{check:?}").contains(KEY), "{check:?}");
        check
    }

    #[test]
    fn what_shows_a_login() {
        use BackendKind::{Claude, Codex, Opencode};
        type Pairs<'a> = &'a [(&'a str, &'a str)];
        let cases: &[(BackendKind, Pairs<'_>, Pairs<'_>, &str, DoctorVerdict, &str)] = &[
            (
                Codex,
                &[],
                &[],
                "",
                DoctorVerdict::Fail,
                "codex is not logged in",
            ),
            (
                Codex,
                &[("CODEX_API_KEY", KEY)],
                &[],
                "",
                DoctorVerdict::Ok,
                "CODEX_API_KEY is set",
            ),
            (
                Codex,
                &[("CODEX_API_KEY", "")],
                &[],
                "",
                DoctorVerdict::Fail,
                "not logged in",
            ),
            (
                Codex,
                &[("OPENAI_API_KEY", KEY)],
                &[],
                "",
                DoctorVerdict::Fail,
                "not logged in",
            ),
            (
                Codex,
                &[],
                &[(".codex/auth.json", KEY)],
                "",
                DoctorVerdict::Ok,
                "~/.codex/auth.json is there",
            ),
            (
                Codex,
                &[],
                &[(".codex/auth.json", "")],
                "",
                DoctorVerdict::Fail,
                "not logged in",
            ),
            (
                Codex,
                &[("CODEX_HOME", "~/c")],
                &[("c/auth.json", KEY)],
                "",
                DoctorVerdict::Ok,
                "~/c/auth.json is there",
            ),
            (
                Codex,
                &[("CODEX_HOME", "~/c")],
                &[(".codex/auth.json", KEY)],
                "",
                DoctorVerdict::Fail,
                "not logged in",
            ),
            (
                Codex,
                &[],
                &[(".codex/config.toml", "model_provider = \"x\"")],
                "",
                DoctorVerdict::Warn,
                "~/.codex/config.toml names a provider",
            ),
            (
                Codex,
                &[],
                &[],
                "[executor]\nextra_args = [\"-c\", \"model_provider=x\"]\n",
                DoctorVerdict::Warn,
                "extra_args may name",
            ),
            (
                Codex,
                &[],
                &[],
                "[executor.env]\nOTHER_KEY = \"value-that-must-not-be-seen\"\n",
                DoctorVerdict::Warn,
                "[executor.env] may hold",
            ),
            (
                Codex,
                &[],
                &[],
                "[executor.env]\nCODEX_API_KEY = \"value-that-must-not-be-seen\"\n",
                DoctorVerdict::Warn,
                "config.toml is committed",
            ),
            (
                Claude,
                &[],
                &[(".claude/.credentials.json", KEY)],
                "",
                DoctorVerdict::Ok,
                "is there",
            ),
            (Claude, &[], &[], "", DoctorVerdict::Fail, "not logged in"),
            (
                Claude,
                &[("ANTHROPIC_API_KEY", KEY)],
                &[],
                "",
                DoctorVerdict::Ok,
                "ANTHROPIC_API_KEY is set",
            ),
            (
                Opencode,
                &[],
                &[(".local/share/opencode/auth.json", KEY)],
                "",
                DoctorVerdict::Ok,
                "is there",
            ),
            (
                Opencode,
                &[("XDG_DATA_HOME", "~/d")],
                &[("d/opencode/auth.json", KEY)],
                "",
                DoctorVerdict::Ok,
                "is there",
            ),
            (
                Opencode,
                &[],
                &[("opencode.json", "{\"provider\": {}}")],
                "",
                DoctorVerdict::Warn,
                "names a provider",
            ),
            (Opencode, &[], &[], "", DoctorVerdict::Fail, "not logged in"),
        ];
        for (kind, vars, files, toml, verdict, words) in cases {
            let check = seen(*kind, vars, files, toml);
            assert_eq!(check.verdict, *verdict, "{vars:?} {files:?} {check:?}");
            assert!(check.message.contains(words), "{check:?}");
            assert_eq!(
                check.remedy.is_none(),
                *verdict == DoctorVerdict::Ok,
                "{check:?}"
            );
        }
    }
}
