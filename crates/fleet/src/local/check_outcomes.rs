//! What git and commands said, in the words of the workspaces.

use runner::BaseVerdict;
use runner::fleet_repo::{CommandEnd, CommandRun, ResultChange, ResultChangeKind};
use runner_core::text::cut_front;
use runner_lifecycle::packet::{ChangeAction, PacketExtra, ResourceChange};

use crate::rules::answers::GUARD;
use crate::workspaces::{CheckEnd, CheckOutcome};

/// How much of what a command printed is passed on.
const TAIL_BYTES: usize = 4000;

/// What a shell answers when it cannot run a command, or not find it.
const SHELL_UNABLE: [i32; 2] = [126, 127];

/// Changes as packets name them.
pub(super) fn resource_changes(changes: Vec<ResultChange>) -> Vec<ResourceChange> {
    let one = |change: ResultChange| ResourceChange {
        resource: change.path,
        action: match change.how {
            ResultChangeKind::Created => ChangeAction::Created,
            ResultChangeKind::Modified => ChangeAction::Modified,
            ResultChangeKind::Deleted => ChangeAction::Deleted,
        },
        evidence: None,
        extra: PacketExtra::new(),
    };
    changes.into_iter().map(one).collect()
}

/// The evidence of a command that ran.
pub(super) fn evidence(exit: i32, log_sha256: &str) -> String {
    format!("exit {exit}, log sha256:{log_sha256}")
}

/// A command that was run. `by_shell`: a shell's word that it cannot run it counts.
pub(super) fn checked(id: &str, run: &CommandRun, by_shell: bool) -> CheckOutcome {
    let log = String::from_utf8_lossy(&run.log);
    let tail = cut_front(log.trim_end(), TAIL_BYTES).into_owned();
    let (end, evidence) = match &run.end {
        CommandEnd::Exited(0) => (CheckEnd::Green, evidence(0, &run.log_sha256)),
        CommandEnd::Exited(code) if by_shell && SHELL_UNABLE.contains(code) => {
            (CheckEnd::Unable, evidence(*code, &run.log_sha256))
        }
        CommandEnd::Exited(code) => (CheckEnd::Red, evidence(*code, &run.log_sha256)),
        CommandEnd::TimedOut => (
            CheckEnd::Red,
            format!("its time was up, log sha256:{}", run.log_sha256),
        ),
        CommandEnd::Unable(why) => (CheckEnd::Unable, why.clone()),
    };
    CheckOutcome {
        id: id.to_owned(),
        end,
        evidence,
        tail,
    }
}

/// A base that was tried.
pub(super) fn of_base(verdict: BaseVerdict) -> CheckOutcome {
    let (end, evidence) = match verdict {
        BaseVerdict::Green => (CheckEnd::Green, "exit 0".to_owned()),
        BaseVerdict::Red(why) => (CheckEnd::Red, why),
        BaseVerdict::Undefined(file) => (CheckEnd::Red, format!("{file} is missing")),
        BaseVerdict::Unable(problem) => {
            let words = format!("{}; {}", problem.why, problem.hint);
            (CheckEnd::Unable, words)
        }
    };
    CheckOutcome {
        id: GUARD.to_owned(),
        end,
        evidence,
        tail: String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endings_of_commands() {
        for (end, by_shell, expected, words) in [
            (
                CommandEnd::Exited(0),
                false,
                CheckEnd::Green,
                "exit 0, log sha256:ab",
            ),
            (
                CommandEnd::Exited(1),
                true,
                CheckEnd::Red,
                "exit 1, log sha256:ab",
            ),
            (CommandEnd::Exited(127), true, CheckEnd::Unable, "exit 127"),
            (CommandEnd::Exited(126), true, CheckEnd::Unable, "exit 126"),
            (CommandEnd::Exited(127), false, CheckEnd::Red, "exit 127"),
            (CommandEnd::TimedOut, true, CheckEnd::Red, "its time was up"),
            (
                CommandEnd::Unable("cannot start `x`".to_owned()),
                false,
                CheckEnd::Unable,
                "cannot start `x`",
            ),
        ] {
            let run = CommandRun {
                end,
                log: b"said\n".to_vec(),
                log_sha256: "ab".to_owned(),
            };
            let checked = checked("c", &run, by_shell);
            assert_eq!(checked.end, expected, "{run:?}");
            assert!(checked.evidence.starts_with(words), "{checked:?}");
            assert_eq!((checked.id.as_str(), checked.tail.as_str()), ("c", "said"));
        }
    }

    #[test]
    fn what_a_base_says_is_a_check_of_the_guard() {
        let problem = runner::BaseProblem {
            why: "cannot start `x`".to_owned(),
            hint: "install it".to_owned(),
        };
        for (verdict, end, evidence) in [
            (BaseVerdict::Green, CheckEnd::Green, "exit 0"),
            (
                BaseVerdict::Red("`x` gave exit 1".to_owned()),
                CheckEnd::Red,
                "`x` gave exit 1",
            ),
            (
                BaseVerdict::Undefined("ci.sh".to_owned()),
                CheckEnd::Red,
                "ci.sh is missing",
            ),
            (
                BaseVerdict::Unable(problem),
                CheckEnd::Unable,
                "cannot start `x`; install it",
            ),
        ] {
            let checked = of_base(verdict);
            assert_eq!((checked.id.as_str(), checked.end), ("guard", end));
            assert_eq!(checked.evidence, evidence);
        }
    }
}
