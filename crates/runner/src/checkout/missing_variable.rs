//! Variables that the user's shell has, a child says it lacks, and no list passes on.

use std::ffi::OsString;

use runner_core::config::Config;

use crate::step::environment;

/// How much of an output is looked through: what is missing is told first.
const MAX_LOOKED: usize = 64 << 10;

/// The shortest name that is more than a word by chance.
const MIN_NAME: usize = 3;

/// Words that say that something is not there.
const MISSING: &[&str] = &[
    "not set",
    "not defined",
    "not found",
    "not provided",
    "not present",
    "no such variable",
    "must be set",
    "must set",
    "is empty",
    "unset",
    "unbound",
    "undefined",
    "missing",
    "require",
    "keyerror",
    "notpresent",
    "expected env",
];

/// What every shell sets for itself, and says nothing about the project.
const OF_SHELLS: &[&str] = &["PWD", "OLDPWD", "SHLVL", "HOSTNAME", "MAIL", "CI", "_"];

/// What would lead git in a child elsewhere, or is the runner's own.
const NOT_FOR_CHILDREN: &[&str] = &["GIT_", "RUNNER_"];

/// Parts of the names of variables that hold secrets.
const SECRETS: &[&str] = &[
    "TOKEN",
    "SECRET",
    "PASS",
    "PWD",
    "KEY",
    "CREDENTIAL",
    "AUTH",
    "PRIVATE",
    "COOKIE",
    "SESSION",
    "SIGNATURE",
    "DSN",
];

/// Whether a variable of this process holds a secret, by its name, or as an address with a
/// password in it.
pub(crate) fn looks_secret(name: &str) -> bool {
    let value = std::env::var(name).unwrap_or_default();
    is_secret(name, &value)
}

fn is_secret(name: &str, value: &str) -> bool {
    let upper = name.to_uppercase();
    let by_name = SECRETS.iter().any(|part| upper.contains(part));
    let by_value = value
        .split_once("://")
        .and_then(|(_, rest)| rest.split(['/', '?']).next())
        .is_some_and(|host| host.contains('@'));
    by_name || by_value
}

/// The variables of this process that a child's output says are missing, and that neither the
/// runner nor the config passes on.
pub(crate) fn find(output: &[u8], config: &Config) -> Vec<String> {
    named_as_missing(&String::from_utf8_lossy(output), &unpassed(config))
}

/// The variables of this process that neither the runner nor the config passes on to guards,
/// sorted.
pub(crate) fn unpassed(config: &Config) -> Vec<String> {
    let passed: Vec<OsString> = environment::inherited()
        .into_iter()
        .map(|(name, _)| name)
        .collect();
    let listed = [&config.workspace.env, &config.guard.env];
    let is_passed = |name: &String| {
        OF_SHELLS.contains(&name.as_str())
            || NOT_FOR_CHILDREN
                .iter()
                .any(|prefix| name.starts_with(prefix))
            || passed.iter().any(|passed| passed == name.as_str())
            || listed.iter().any(|list| list.contains(name))
    };
    let names = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    let mut names: Vec<String> = names.filter(|name| !is_passed(name)).collect();
    names.sort();
    names
}

/// What to do about the variables that a child's output says are missing.
pub(crate) fn remedy_for(output: &[u8], config: &Config) -> Option<String> {
    remedy(&find(output, config))
}

/// What to do about variables that are missing; `None` where there are none.
pub(crate) fn remedy(names: &[String]) -> Option<String> {
    if names.is_empty() {
        return None;
    }
    let quoted: Vec<String> = names.iter().map(|name| format!("{name:?}")).collect();
    let (them, they_are) = match names {
        [_] => ("it", "it is"),
        _ => ("them", "they are"),
    };
    Some(format!(
        "pass {} on with [guard] env = [{}], or [workspace] env where setup and agent need {them} too: \
         your shell has {them}, and the output says that {they_are} missing",
        names.join(", "),
        quoted.join(", "),
    ))
}

/// Those of the names that a line of the output says are missing, in the order of the output.
fn named_as_missing(output: &str, names: &[String]) -> Vec<String> {
    let looked = output.get(..MAX_LOOKED).unwrap_or(output);
    let mut found: Vec<String> = Vec::new();
    for line in looked.lines() {
        let lower = line.to_lowercase();
        let says_missing = MISSING.iter().any(|words| lower.contains(words));
        if !says_missing {
            continue;
        }
        for name in names.iter().filter(|name| name.len() >= MIN_NAME) {
            if !found.contains(name) && has_word(line, name) {
                found.push(name.clone());
            }
        }
    }
    found
}

/// Whether a line has the name by itself, not as a part of a longer one.
fn has_word(line: &str, name: &str) -> bool {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    line.match_indices(name).any(|(start, _)| {
        let before = line[..start].chars().next_back();
        let after = line[start + name.len()..].chars().next();
        !before.is_some_and(is_part) && !after.is_some_and(is_part)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets() {
        for (name, value, expected) in [
            ("API_TOKEN", "x", true),
            ("aws_secret_access_key", "x", true),
            ("PGPASSWORD", "x", true),
            ("DATABASE_URL", "postgres://me:pw@host/db", true),
            ("DATABASE_URL", "postgres://host/db", false),
            ("SERVICE_URL", "http://localhost:8080/a@b", false),
            ("EDITOR", "vi", false),
        ] {
            assert_eq!(is_secret(name, value), expected, "{name}={value}");
        }
    }

    #[test]
    fn what_an_output_says_is_missing() {
        let names = ["DATABASE_URL", "TOKEN", "CI_X", "DB"].map(str::to_owned);
        for (output, expected) in [
            ("KeyError: 'DATABASE_URL'", "DATABASE_URL"),
            ("sh: 1: TOKEN: parameter not set", "TOKEN"),
            ("ci.sh: line 3: TOKEN: unbound variable", "TOKEN"),
            (
                "Error: Missing environment variable DATABASE_URL",
                "DATABASE_URL",
            ),
            (
                "environment variable `TOKEN` is required\nDATABASE_URL must be set",
                "TOKEN DATABASE_URL",
            ),
            ("DATABASE_URL: NotPresent", "DATABASE_URL"),
            ("MY_TOKEN is not set", ""),
            ("TOKENS are missing", ""),
            ("connected to DATABASE_URL", ""),
            ("DB is not set", ""),
            ("", ""),
        ] {
            assert_eq!(
                named_as_missing(output, &names).join(" "),
                expected,
                "{output}"
            );
        }
    }

    #[test]
    fn remedies() {
        assert_eq!(remedy(&[]), None);
        assert_eq!(
            remedy(&["TOKEN".to_owned()]).unwrap(),
            "pass TOKEN on with [guard] env = [\"TOKEN\"], or [workspace] env where setup and agent \
             need it too: your shell has it, and the output says that it is missing"
        );
        let two = ["A_B".to_owned(), "C_D".to_owned()];
        let text = remedy(&two).unwrap();
        assert!(text.contains("[guard] env = [\"A_B\", \"C_D\"]"), "{text}");
        assert!(text.ends_with("says that they are missing"), "{text}");
    }
}
