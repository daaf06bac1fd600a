//! How to find out whether a CLI is installed and fit, as data: whoever runs the
//! commands compares.

use std::fmt;

/// What to run and to look at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CliProbe {
    /// The command that prints the version; empty when there is none to ask for.
    pub version: &'static [&'static str],
    /// The versions that were tried, from the first to the last.
    pub known_good: Option<(CliVersion, CliVersion)>,
    /// Help texts, and what must be in them.
    pub helps: &'static [CliHelp],
    /// What shows that somebody has logged in.
    pub login: CliLogin,
}

/// A help text and the flags that it must name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CliHelp {
    /// The command that prints it.
    pub command: &'static [&'static str],
    /// The flags that we pass.
    pub flags: &'static [&'static str],
}

impl CliHelp {
    /// The flags that the text does not name.
    pub fn missing(&self, text: &str) -> Vec<&'static str> {
        let names = |flag: &str| {
            text.match_indices(flag).any(|(at, _)| {
                let after = text[at + flag.len()..].chars().next();
                // `--out` is not `--output`.
                !after.is_some_and(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_')
            })
        };
        self.flags
            .iter()
            .copied()
            .filter(|flag| !names(flag))
            .collect()
    }
}

/// What shows that somebody has logged in; one of it is enough. Only whether it is
/// there is of interest, never its content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CliLogin {
    /// Variables that hold a key or choose a provider with a login of its own.
    pub env: &'static [&'static str],
    /// Files below HOME.
    pub files: &'static [&'static str],
    /// The variable that moves the CLI's folder, and the files below it.
    pub home: Option<(&'static str, &'static [&'static str])>,
}

/// A version of three numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CliVersion {
    /// The first.
    pub major: u32,
    /// The second.
    pub minor: u32,
    /// The third.
    pub patch: u32,
}

impl CliVersion {
    /// A version.
    pub const fn new(major: u32, minor: u32, patch: u32) -> Self {
        Self {
            major,
            minor,
            patch,
        }
    }

    /// The first version in what a CLI prints, such as `codex-cli 0.166.0`.
    pub fn find(text: &str) -> Option<Self> {
        text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '.'))
            .map(|word| word.trim_start_matches('v'))
            .find_map(|word| {
                let mut numbers = word.splitn(3, '.');
                let major = numbers.next()?.parse().ok()?;
                let minor = numbers.next()?.parse().ok()?;
                let rest = numbers.next()?;
                let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
                let patch = rest[..digits].parse().ok()?;
                Some(Self::new(major, minor, patch))
            })
    }
}

impl fmt::Display for CliVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.patch)
    }
}

/// How a version compares with those that were tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VersionFit {
    /// It is one of them, or there is nothing to compare with.
    Known,
    /// It is older.
    Older,
    /// It is newer.
    Newer,
}

impl CliProbe {
    /// How an installed version compares with those that were tried.
    pub fn fit(&self, version: CliVersion) -> VersionFit {
        match self.known_good {
            Some((first, _)) if version < first => VersionFit::Older,
            Some((_, last)) if version > last => VersionFit::Newer,
            _ => VersionFit::Known,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_found() {
        for (text, expected) in [
            ("codex-cli 0.166.0\n", Some((0, 166, 0))),
            ("WARNING: no aliases\ncodex-cli 0.166.0", Some((0, 166, 0))),
            ("2.1.325 (Claude Code)", Some((2, 1, 325))),
            ("v1.18.33", Some((1, 18, 33))),
            ("1.18.33-beta.2", Some((1, 18, 33))),
            ("on 127.0.0.1, 1.2", Some((127, 0, 0))),
            ("no version", None),
            ("1.2", None),
            ("99999999999.1.1", None),
            ("", None),
        ] {
            let expected = expected.map(|(a, b, c)| CliVersion::new(a, b, c));
            assert_eq!(CliVersion::find(text), expected, "{text}");
        }
        assert_eq!(CliVersion::new(1, 2, 3).to_string(), "1.2.3");
    }

    #[test]
    fn versions_are_compared() {
        let probe = crate::backend(runner_core::config::BackendKind::Codex).probe();
        let (first, last) = probe.known_good.unwrap();
        assert_eq!(probe.fit(first), VersionFit::Known);
        assert_eq!(probe.fit(last), VersionFit::Known);
        assert_eq!(probe.fit(CliVersion::new(0, 1, 0)), VersionFit::Older);
        assert_eq!(probe.fit(CliVersion::new(9, 0, 0)), VersionFit::Newer);
        let probe = crate::backend(runner_core::config::BackendKind::Command).probe();
        assert_eq!(probe.fit(first), VersionFit::Known);
    }

    #[test]
    fn missing_flags_are_named() {
        let help = CliHelp {
            command: &["x", "--help"],
            flags: &["--json", "--out", "-C"],
        };
        let text = "  --json  Print\n  -C, --cd <DIR>\n  --output <FILE>\n";
        assert_eq!(help.missing(text), ["--out"]);
        assert_eq!(help.missing(""), ["--json", "--out", "-C"]);
    }
}
