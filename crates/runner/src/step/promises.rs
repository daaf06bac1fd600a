//! Which promises of containment this machine cannot keep, and why: what `doctor` shows, and what
//! `[sandbox] mode = "required"` refuses to begin with.

use runner_core::config::{ChildKind, Config, NetworkRule, SandboxMode};
use runner_sandbox::{Mechanism, SandboxSupport};

use crate::error::{Error, ErrorCode, Result};

/// From these versions on Landlock keeps files elsewhere from being cut to nothing, and signals and
/// sockets without a path from reaching other programs.
const TRUNCATE_ABI: u32 = 3;
const SCOPE_ABI: u32 = 6;

/// A promise that is not kept, or not wholly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PromiseGap {
    /// Its name in `doctor`.
    pub(crate) promise: &'static str,
    /// What children can do.
    pub(crate) message: &'static str,
    /// What would keep it.
    pub(crate) remedy: &'static str,
}

/// What is not kept, by the mechanism that was chosen. Rules for the network are judged with the
/// network.
pub(crate) fn gaps(
    config: &Config,
    mechanism: &Mechanism,
    support: &SandboxSupport,
) -> Vec<PromiseGap> {
    let abi = *support.landlock.as_ref().unwrap_or(&0);
    let network = &config.sandbox.network;
    let mut gaps = Vec::new();
    let mut add = |is_gap: bool, promise, message, remedy| {
        if is_gap {
            gaps.push(PromiseGap {
                promise,
                message,
                remedy,
            });
        }
    };
    match mechanism {
        Mechanism::None => {}
        Mechanism::Bubblewrap { .. } => {
            let is_open = |kind| *network.rule(kind) == NetworkRule::Open;
            add(
                abi < SCOPE_ABI && ChildKind::ALL.into_iter().any(is_open),
                "sockets",
                "sockets without a path, such as those of D-Bus and X11, are in reach where the network is open",
                "set [sandbox.network] session = \"agent\", setup = \"off\" and guard = \"off\" or lists of hosts, \
                 or use Linux 6.12 or newer",
            );
        }
        Mechanism::Landlock => {
            add(
                abi < TRUNCATE_ABI,
                "writing",
                "they can cut your files to nothing: this kernel's Landlock has no rule for that",
                "install bubblewrap, or use Linux 6.2 or newer",
            );
            add(
                !support.has_broker,
                "modes",
                "they can change modes, times, owners and attributes of your files: Landlock has no rule for \
                 that, and this kernel does not hand such calls to the runner",
                "install bubblewrap",
            );
            add(
                !support.has_broker,
                "sockets",
                "they reach sockets of other programs, such as Docker, D-Bus and X11",
                "install bubblewrap",
            );
            add(
                !support.has_ipc,
                "caches",
                "what a session leaves in System V shared memory, semaphores and message queues, and in POSIX \
                 message queues, is there for the guard and for later verdicts: this user can have no namespace for them",
                "install bubblewrap, or allow unprivileged user namespaces",
            );
            add(
                support.has_broker && abi < SCOPE_ABI,
                "sockets",
                "they reach sockets without a path, such as those of D-Bus and X11",
                "install bubblewrap, or use Linux 6.12 or newer",
            );
            add(
                abi < SCOPE_ABI,
                "processes",
                "they see and can signal your other processes",
                "install bubblewrap, or use Linux 6.12 or newer",
            );
        }
    }
    gaps
}

/// Refuses a config that requires what is not kept.
pub(crate) fn check(
    config: &Config,
    mechanism: &Mechanism,
    support: &SandboxSupport,
) -> Result<()> {
    if config.sandbox.mode != SandboxMode::Required {
        return Ok(());
    }
    match gaps(config, mechanism, support).first() {
        None => Ok(()),
        Some(gap) => {
            let message = format!(
                "[sandbox] mode = \"required\", but {mechanism} does not keep all promises here: {}",
                gap.message
            );
            let hint = format!("{}; or set mode = \"auto\" to go on without", gap.remedy);
            Err(Error::new(ErrorCode::Config, message).hint(hint))
        }
    }
}

#[cfg(test)]
mod tests {
    use runner_sandbox::UnavailableReason;

    use super::*;

    fn support(abi: u32, has_broker: bool) -> SandboxSupport {
        SandboxSupport {
            bubblewrap: Err(UnavailableReason {
                reason: "not asked".to_owned(),
                remedy: None,
            }),
            landlock: Ok(abi),
            has_broker,
            has_ipc: has_broker,
        }
    }

    #[test]
    fn what_is_not_kept() {
        let bubblewrap = Mechanism::Bubblewrap {
            program: "bwrap".into(),
        };
        let open = "";
        let closed = "[sandbox.network]\nsession = \"agent\"\nsetup = [\"a.b\"]\nguard = \"off\"\n";
        for (mechanism, abi, has_broker, network, expected) in [
            (&bubblewrap, 7, true, open, &[][..]),
            (&bubblewrap, 2, false, closed, &[]),
            (&bubblewrap, 2, true, open, &["sockets"]),
            (&Mechanism::Landlock, 6, true, open, &[]),
            (
                &Mechanism::Landlock,
                5,
                true,
                open,
                &["sockets", "processes"],
            ),
            (
                &Mechanism::Landlock,
                7,
                false,
                open,
                &["modes", "sockets", "caches"],
            ),
            (
                &Mechanism::Landlock,
                2,
                false,
                closed,
                &["writing", "modes", "sockets", "caches", "processes"],
            ),
            (&Mechanism::None, 0, false, open, &[]),
        ] {
            let text = format!("[sandbox]\nmode = \"required\"\n{network}");
            let config = Config::parse(&text).unwrap();
            let support = support(abi, has_broker);
            let found = gaps(&config, mechanism, &support);
            let names: Vec<_> = found.iter().map(|gap| gap.promise).collect();
            assert_eq!(names, expected, "{mechanism} {abi} {has_broker}");
            let refused = check(&config, mechanism, &support);
            assert_eq!(refused.is_err(), !expected.is_empty());
            let auto = Config::parse(network).unwrap();
            assert!(check(&auto, mechanism, &support).is_ok());
        }
    }
}
