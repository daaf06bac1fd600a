//! What each promise of containment is worth on this machine, a line each.

use std::path::PathBuf;

use runner_core::config::SandboxConfig;
use runner_sandbox::Mechanism;

use super::DoctorCheck;

/// What is known of the machine.
#[derive(Clone, Copy, Debug)]
pub(super) struct PromiseFacts<'a> {
    /// What contains children; `None`: nothing may run.
    pub(super) mechanism: Option<&'a Mechanism>,
    /// Whether changes can be laid over the caches of verdicts.
    pub(super) has_layers: bool,
    /// What the config opens, by its words.
    pub(super) opened: &'a [String],
}

/// What the config opens beside the usual, as a person would say it.
pub(super) fn opened(config: &SandboxConfig) -> Vec<String> {
    use runner_core::config::ChildKind;
    let mut words = Vec::new();
    let mut add = |path: &String, what: &str| words.push(format!("{path} ({what})"));
    for path in &config.readable {
        add(path, "read by all");
    }
    for path in &config.writable {
        add(path, "written by all");
    }
    for kind in ChildKind::ALL {
        let opened = config.opened(kind);
        for path in &opened.readable {
            add(path, &format!("read by {}", kind.as_str()));
        }
        for path in &opened.writable {
            add(path, &format!("written by {}", kind.as_str()));
        }
    }
    words
}

/// The lines.
pub(super) fn checks(facts: PromiseFacts<'_>) -> Vec<DoctorCheck> {
    let Some(mechanism) = facts.mechanism else {
        return Vec::new();
    };
    let better = "install bubblewrap, and make it work (above)";
    let (full, landlock) = match mechanism {
        Mechanism::Bubblewrap { .. } => (true, false),
        Mechanism::Landlock => (false, true),
        Mechanism::None => (false, false),
    };
    if !full && !landlock {
        return vec![DoctorCheck::warn(
            "promises",
            "without a sandbox none is kept: agent, setup and guard read your keys, write your files and share your caches",
            "set [sandbox] mode = \"auto\", and install bubblewrap",
        )];
    }
    let some = |name, message: &str| DoctorCheck::warn(name, message, better);
    let mut found = vec![
        DoctorCheck::ok(
            "reading",
            if full {
                "keys, logins, histories and the runner's own files are not there for them"
            } else {
                "keys, logins, histories and the runner's own files cannot be read, but their names can be seen"
            },
        ),
        DoctorCheck::ok(
            "writing",
            "they write in folders of their own, with a home and a temp folder of their own",
        ),
        if full {
            DoctorCheck::ok(
                "modes",
                "modes, times and owners of your files stay as they are",
            )
        } else {
            some(
                "modes",
                "Landlock does not keep them from changing modes, times, owners and attributes of your files",
            )
        },
        match (full, facts.has_layers) {
            (true, true) => DoctorCheck::ok(
                "caches",
                "yours are never written; verdicts have one that no code of an agent can change",
            ),
            _ => DoctorCheck::ok(
                "caches",
                "yours are never written; each verdict has a copy of one that no code of an agent can change",
            ),
        },
        if full {
            DoctorCheck::ok(
                "sockets",
                "docker, podman, D-Bus, X11 and what is in the runtime folder are out of reach",
            )
        } else {
            some(
                "sockets",
                "Landlock does not keep them from sockets of other programs: Docker, D-Bus, X11",
            )
        },
        DoctorCheck::ok(
            "processes",
            "they neither see nor outlive what is not theirs",
        )
        .for_landlock(landlock),
    ];
    if !facts.opened.is_empty() {
        found.push(DoctorCheck::ok(
            "opened",
            format!("the config opens {}", facts.opened.join(", ")),
        ));
    }
    found
}

impl DoctorCheck {
    /// Landlock shows other processes, and keeps signals from them.
    fn for_landlock(mut self, is_landlock: bool) -> Self {
        if is_landlock {
            "they see other processes, cannot signal them, and end with the step"
                .clone_into(&mut self.message);
        }
        self
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

    fn verdicts(mechanism: Option<&Mechanism>) -> Vec<(&'static str, DoctorVerdict)> {
        let facts = PromiseFacts {
            mechanism,
            has_layers: true,
            opened: &["~/.ssh (read by all)".to_owned()],
        };
        let found = checks(facts).into_iter();
        found.map(|check| (check.name, check.verdict)).collect()
    }

    #[test]
    fn a_line_for_each() {
        use DoctorVerdict::{Ok, Warn};
        let full = Mechanism::Bubblewrap {
            program: "bwrap".into(),
        };
        let all = [
            "reading",
            "writing",
            "modes",
            "caches",
            "sockets",
            "processes",
            "opened",
        ];
        assert_eq!(verdicts(Some(&full)), all.map(|name| (name, Ok)));
        let weak = verdicts(Some(&Mechanism::Landlock)).into_iter();
        let weak: Vec<_> = weak
            .filter(|(_, verdict)| *verdict == Warn)
            .map(|it| it.0)
            .collect();
        assert_eq!(weak, ["modes", "sockets"]);
        assert_eq!(verdicts(Some(&Mechanism::None)), [("promises", Warn)]);
        assert!(verdicts(None).is_empty());
    }

    #[test]
    fn what_is_opened() {
        let text = "[sandbox]\nreadable = [\"~/a\"]\n[sandbox.guard]\nwritable = [\"/b\"]\n";
        let config = runner_core::config::Config::parse(text).unwrap();
        assert_eq!(
            opened(&config.sandbox),
            ["~/a (read by all)", "/b (written by guard)"]
        );
    }
}
