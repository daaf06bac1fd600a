//! Which containment there is to choose from, and the choice.

use std::fmt;
use std::path::PathBuf;

use runner_core::config::SandboxMode;

use crate::landlock::FAILURE_PREFIX;
use crate::support::SandboxSupport;

/// How a program is contained.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Mechanism {
    /// A read-only root with holes and a pid namespace.
    Bubblewrap {
        /// The `bwrap` that was tried.
        program: PathBuf,
    },
    /// Writes are confined by the kernel, nothing else.
    Landlock,
    /// Not at all.
    None,
}

impl Mechanism {
    /// The word that is recorded and shown.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Bubblewrap { .. } => "bubblewrap",
            Self::Landlock => "landlock",
            Self::None => "none",
        }
    }

    /// Whether the process that gets started only watches over the program.
    ///
    /// Then SIGTERM must go to its descendants alone: the monitor dies of it at once and takes the
    /// others along, and no program inside would have its time to end in good order.
    pub fn has_monitor(&self) -> bool {
        *self != Self::None
    }

    /// Whether the files in [`crate::WritePolicy::read_only`] really are.
    pub fn protects_files(&self) -> bool {
        matches!(self, Self::Bubblewrap { .. })
    }

    /// The wrapper's own words if it was the wrapper that failed, and not the program in it.
    ///
    /// `exit_code` and the beginning of the `output` (stderr, or both streams) are all there is to
    /// tell them apart: the words must be the whole output. A program can fake them, and gains
    /// nothing but to have not been started.
    pub fn setup_failure(&self, exit_code: i32, output: &[u8]) -> Option<String> {
        // The launcher that both have in front of the program.
        let launcher: (&str, &[i32]) = (FAILURE_PREFIX, &[126, 127]);
        let wrappers: &[(&str, &[i32])] = match self {
            Self::Bubblewrap { .. } => &[("bwrap: ", &[1]), launcher],
            Self::Landlock => &[launcher],
            Self::None => return None,
        };
        let text = std::str::from_utf8(output).ok()?.trim_end_matches('\n');
        let words = wrappers.iter().find_map(|(prefix, codes)| {
            let words = text.strip_prefix(prefix)?;
            codes.contains(&exit_code).then_some(words)
        })?;
        (!words.contains('\n')).then(|| words.to_owned())
    }
}

impl fmt::Display for Mechanism {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// Why nothing may run.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct SandboxRefusal {
    /// What is wrong, as a lowercase fragment.
    pub message: String,
    /// What to do about it.
    pub hint: String,
}

/// The mechanism that the mode asks for: the best there is, and with
/// [`SandboxMode::Required`] never none.
pub fn choose(mode: SandboxMode, support: &SandboxSupport) -> Result<Mechanism, SandboxRefusal> {
    if mode == SandboxMode::Off {
        return Ok(Mechanism::None);
    }
    let bubblewrap = match &support.bubblewrap {
        Ok(found) => {
            return Ok(Mechanism::Bubblewrap {
                program: found.program.clone(),
            });
        }
        Err(why) => why,
    };
    let Err(landlock) = &support.landlock else {
        return Ok(Mechanism::Landlock);
    };
    if mode == SandboxMode::Auto {
        return Ok(Mechanism::None);
    }
    let remedies: Vec<&str> = [bubblewrap, landlock]
        .into_iter()
        .filter_map(|why| why.remedy.as_deref())
        .collect();
    Err(SandboxRefusal {
        message: format!(
            "[sandbox] mode = \"required\", but there is no sandbox (bubblewrap: {bubblewrap}; Landlock: {landlock})"
        ),
        hint: if remedies.is_empty() {
            "set [sandbox] mode = \"auto\" to run without one".to_owned()
        } else {
            remedies.join(", or ")
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::support::{Bubblewrap, UnavailableReason};

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
            has_broker: landlock,
            has_ipc: landlock,
        }
    }

    #[test]
    fn the_best_there_is() {
        for (mode, bubblewrap, landlock, expected) in [
            (SandboxMode::Off, true, true, "none"),
            (SandboxMode::Off, false, false, "none"),
            (SandboxMode::Auto, true, true, "bubblewrap"),
            (SandboxMode::Auto, true, false, "bubblewrap"),
            (SandboxMode::Auto, false, true, "landlock"),
            (SandboxMode::Auto, false, false, "none"),
            (SandboxMode::Required, true, true, "bubblewrap"),
            (SandboxMode::Required, false, true, "landlock"),
        ] {
            let chosen = choose(mode, &support(bubblewrap, landlock)).unwrap();
            assert_eq!(chosen.as_str(), expected, "{mode} {bubblewrap} {landlock}");
        }
        let refusal = choose(SandboxMode::Required, &support(false, false)).unwrap_err();
        assert_eq!(
            refusal.message,
            "[sandbox] mode = \"required\", but there is no sandbox (bubblewrap: not there; Landlock: not there)"
        );
        assert_eq!(refusal.hint, "install it, or get a new kernel");
    }

    #[test]
    fn the_wrappers_own_words() {
        let bubblewrap = Mechanism::Bubblewrap {
            program: "bwrap".into(),
        };
        for (mechanism, code, output, expected) in [
            (
                &bubblewrap,
                1,
                "bwrap: execvp x: gone\n",
                Some("execvp x: gone"),
            ),
            (&bubblewrap, 1, "bwrap: a", Some("a")),
            (&bubblewrap, 2, "bwrap: a\n", None),
            (&bubblewrap, 126, "sandbox: a\n", Some("a")),
            (&bubblewrap, 1, "bwrap: a\nmore\n", None),
            (&bubblewrap, 1, "1 test failed\n", None),
            (&bubblewrap, 1, "", None),
            (&Mechanism::Landlock, 126, "sandbox: no\n", Some("no")),
            (&Mechanism::Landlock, 127, "sandbox: no\n", Some("no")),
            (&Mechanism::Landlock, 1, "sandbox: no\n", None),
            (&Mechanism::None, 1, "bwrap: a\n", None),
        ] {
            let words = mechanism.setup_failure(code, output.as_bytes());
            assert_eq!(words.as_deref(), expected, "{mechanism} {code} {output:?}");
        }
        assert_eq!(bubblewrap.setup_failure(1, b"bwrap: \xff"), None);
    }
}
