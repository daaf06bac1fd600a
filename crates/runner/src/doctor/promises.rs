//! What each promise of containment is worth on this machine, a line each.

use std::path::PathBuf;

use runner_sandbox::Mechanism;

use super::DoctorCheck;
use crate::step::promises::PromiseGap;

/// The promise that secrets are hidden.
const READING: &str = "reading";

/// What is known of the machine.
#[derive(Clone, Copy, Debug)]
pub(super) struct PromiseFacts<'a> {
    /// What contains children; `None`: nothing may run.
    pub(super) mechanism: Option<&'a Mechanism>,
    /// What is not kept.
    pub(super) gaps: &'a [PromiseGap],
    /// Whether bubblewrap works here, wanted or not.
    pub(super) has_bubblewrap: bool,
    /// Whether changes can be laid over the caches of verdicts.
    pub(super) has_layers: bool,
    /// Whether a promise that is not kept is in the way of a run.
    pub(super) is_required: bool,
    /// What the config opens and is there, by its words.
    pub(super) opened: &'a [String],
    /// What it hides besides.
    pub(super) hidden: &'a [String],
    /// What of that is hidden otherwise.
    pub(super) secrets: &'a [String],
}

/// The lines: what is kept, or what children can do instead.
pub(super) fn checks(facts: PromiseFacts<'_>) -> Vec<DoctorCheck> {
    let is_full = match facts.mechanism {
        None => return Vec::new(),
        Some(Mechanism::None) => {
            return vec![DoctorCheck::warn(
                "promises",
                "without a sandbox none is kept: agent, setup and guard read your keys, write your files and share your caches",
                if facts.has_bubblewrap {
                    "set [sandbox] mode = \"auto\""
                } else {
                    "set [sandbox] mode = \"auto\", and install bubblewrap"
                },
            )];
        }
        Some(Mechanism::Landlock) => false,
        Some(Mechanism::Bubblewrap { .. }) => true,
    };
    let kept = [
        (
            READING,
            if is_full {
                "your keys, logins and histories and the runner's own files are not there for them"
            } else {
                "they cannot read your keys, logins and histories nor the runner's own files, but see their names"
            },
        ),
        (
            "writing",
            "they write to folders of their own; home and temp folder are private",
        ),
        (
            "modes",
            "modes, times, owners and attributes of your files stay as they are",
        ),
        (
            "caches",
            if facts.has_layers {
                "yours are never written; no code of an agent changes what a later verdict finds in a cache"
            } else {
                "yours are never written; each verdict has a copy of a cache that no code of an agent changes"
            },
        ),
        (
            "sockets",
            if is_full {
                "terminals, agents for keys, Docker, D-Bus, X11 and what listens below /run, in temp folders and at home are \
                 out of reach; `[sandbox.guard] writable = [\"/run/postgresql\"]` opens one to the guard"
            } else {
                "what other programs listen at is out of reach; `[sandbox.guard] writable = [\"/run/postgresql\"]` opens \
                 one place to the guard"
            },
        ),
        (
            "processes",
            if is_full {
                "they neither see nor signal other processes, and end with their step"
            } else {
                "they see other processes, cannot signal them, and end with their step"
            },
        ),
    ];
    let mut found: Vec<DoctorCheck> = kept.map(|(name, message)| facts.line(name, message)).into();
    for check in found.iter_mut().filter(|it| it.name == "reading") {
        if !facts.opened.is_empty() && facts.secrets.is_empty() {
            check.message.push_str(", but for what `opened` names");
        }
        if !facts.hidden.is_empty() {
            let hidden = facts.hidden.join(", ");
            let more = format!("; the config hides {hidden}, too");
            check.message.push_str(&more);
        }
    }
    if !facts.opened.is_empty() {
        found.push(DoctorCheck::ok(
            "opened",
            format!("the config opens {}", facts.opened.join(", ")),
        ));
    }
    found
}

impl PromiseFacts<'_> {
    fn line(self, name: &'static str, kept: &str) -> DoctorCheck {
        match self.gaps.iter().find(|gap| gap.promise == name) {
            None if name == READING && !self.secrets.is_empty() => DoctorCheck::warn(
                name,
                format!(
                    "{kept}; but the config opens what is hidden otherwise: {}",
                    self.secrets.join(", ")
                ),
                "take out what nothing needs, or open it to the one child that does",
            ),
            None => DoctorCheck::ok(name, kept),
            Some(gap) if self.is_required => DoctorCheck::fail(name, gap.message, gap.remedy),
            Some(gap) => DoctorCheck::warn(name, gap.message, gap.remedy),
        }
    }
}

/// Whether changes can be laid over a folder here.
pub(super) fn has_layers(mechanism: Option<&Mechanism>) -> bool {
    let scratch: PathBuf =
        std::env::temp_dir().join(format!("runner-doctor-{}", std::process::id()));
    let is_full = matches!(mechanism, Some(Mechanism::Bubblewrap { .. }));
    let made = is_full && std::fs::create_dir(&scratch).is_ok();
    let works = made && runner_sandbox::layers_work("/proc/self/exe".as_ref(), &scratch);
    if made {
        // What is left of a trial is no finding.
        let _ = std::fs::remove_dir_all(&scratch);
    }
    works
}

#[cfg(test)]
mod tests {
    use super::super::DoctorVerdict;
    use super::*;

    #[test]
    fn a_line_for_each() {
        use DoctorVerdict::{Fail, Ok, Warn};
        let names = [
            "reading",
            "writing",
            "modes",
            "caches",
            "sockets",
            "processes",
            "opened",
        ];
        let gap = PromiseGap {
            promise: "modes",
            message: "they can",
            remedy: "do this",
        };
        let opened = ["~/.ssh (read by all)".to_owned()];
        let hidden = ["~/private".to_owned()];
        for mechanism in [
            Mechanism::Landlock,
            Mechanism::Bubblewrap {
                program: "bwrap".into(),
            },
        ] {
            for (gaps, is_required, verdict) in [
                (&[][..], true, Ok),
                (&[gap], false, Warn),
                (&[gap], true, Fail),
            ] {
                let found = checks(PromiseFacts {
                    mechanism: Some(&mechanism),
                    gaps,
                    has_bubblewrap: true,
                    has_layers: true,
                    is_required,
                    opened: &opened,
                    hidden: &hidden,
                    secrets: &[],
                });
                let reading = "but for what `opened` names; the config hides ~/private, too";
                assert!(found[0].message.ends_with(reading), "{}", found[0].message);
                let found: Vec<_> = found.iter().map(|it| (it.name, it.verdict)).collect();
                let expected = names.map(|name| (name, if name == "modes" { verdict } else { Ok }));
                assert_eq!(found, expected);
            }
        }
        let facts = |mechanism| PromiseFacts {
            mechanism,
            gaps: &[],
            has_bubblewrap: false,
            has_layers: false,
            is_required: false,
            opened: &opened,
            hidden: &hidden,
            secrets: &opened,
        };
        let open = checks(facts(Some(&Mechanism::Landlock)));
        assert_eq!((open[0].name, open[0].verdict), ("reading", Warn));
        assert!(open[0].message.contains(": ~/.ssh (read by all)"));
        let none = checks(facts(Some(&Mechanism::None)));
        assert_eq!((none[0].name, none[0].verdict), ("promises", Warn));
        for (has_bubblewrap, expected) in [(true, false), (false, true)] {
            let off = checks(PromiseFacts {
                has_bubblewrap,
                ..facts(Some(&Mechanism::None))
            });
            let remedy = off[0].remedy.as_deref().unwrap_or_default();
            assert_eq!(remedy.contains("install bubblewrap"), expected, "{remedy}");
        }
        assert!(checks(facts(None)).is_empty());
    }
}
