//! The closed vocabularies of the ledger: every word that is stored or printed.

/// Defines an enum whose variants are words: text, parsing (with aliases that are
/// read but never written), serde and, for tests, the JSON schema.
macro_rules! words {
    (
        $(#[$meta:meta])*
        $name:ident {
            $( $(#[$variant_meta:meta])* $variant:ident = $word:literal $(| $alias:literal)* ),+ $(,)?
        }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name {
            $( $(#[$variant_meta])* $variant, )+
        }

        impl $name {
            /// Every word, in the order of the definition.
            pub const ALL: &'static [$name] = &[$( $name::$variant ),+];

            /// The word as it is stored and printed.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $( $name::$variant => $word, )+
                }
            }

            /// Reads a word or one of its aliases.
            pub fn parse(word: &str) -> Option<$name> {
                match word {
                    $( $word $(| $alias)* => Some($name::$variant), )+
                    _ => None,
                }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.as_str())
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.as_str())
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<$name, D::Error> {
                let word = <std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
                $name::parse(&word).ok_or_else(|| {
                    serde::de::Error::unknown_variant(&word, &[$( $word ),+])
                })
            }
        }

        #[cfg(test)]
        impl schemars::JsonSchema for $name {
            fn inline_schema() -> bool {
                true
            }

            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                schemars::json_schema!({ "type": "string", "enum": [$( $word ),+] })
            }
        }
    };
}

words! {
    /// Where a task stands. Aliases are read, never stored or printed.
    TaskState {
        /// Waits until it is ready and somebody claims it.
        Todo = "todo" | "queued",
        /// Somebody holds its lease.
        InProgress = "in_progress" | "running",
        /// Waits for what its blocker says.
        Blocked = "blocked",
        /// Finished with evidence. Terminal.
        Done = "done",
        /// Given up, or superseded by a successor. Terminal.
        Failed = "failed",
        /// Called off. Terminal.
        Canceled = "canceled" | "cancelled",
    }
}

impl TaskState {
    /// Whether there is no way out.
    pub const fn is_terminal(self) -> bool {
        matches!(
            self,
            TaskState::Done | TaskState::Failed | TaskState::Canceled
        )
    }

    /// Whether a task may go from this state to that one. From a terminal state only
    /// to itself, as the record of a replay.
    pub const fn may_become(self, to: TaskState) -> bool {
        use TaskState::{Blocked, Canceled, Done, Failed, InProgress, Todo};
        match self {
            Todo => matches!(to, InProgress | Blocked | Failed | Canceled),
            InProgress => matches!(to, Done | Blocked | Failed | Canceled),
            Blocked => matches!(to, Todo | InProgress | Failed | Canceled),
            Done => matches!(to, Done),
            Failed => matches!(to, Failed),
            Canceled => matches!(to, Canceled),
        }
    }
}

words! {
    /// Who is next: somebody who makes a result, or somebody who judges it.
    TaskPhase {
        /// From creation, and again after a verdict that asks for more.
        Work = "work",
        /// From the first result that can be judged to the verdict.
        Judge = "judge",
    }
}

words! {
    /// Why a request was refused, or why a task is blocked.
    RefusalCode {
        /// The state does not allow it.
        InvalidTransition = "INVALID_TRANSITION",
        /// A task that must be done first is not.
        DependencyNotMet = "DEPENDENCY_NOT_MET",
        /// Somebody holds an overlapping scope.
        LockConflict = "LOCK_CONFLICT",
        /// A change lies outside the allowed scope.
        ScopeViolation = "SCOPE_VIOLATION",
        /// A packet has the wrong shape.
        SchemaInvalid = "SCHEMA_INVALID",
        /// Something that must be given is not.
        MissingRequiredInput = "MISSING_REQUIRED_INPUT",
        /// A packet of another major version.
        UnknownSchemaVersion = "UNKNOWN_SCHEMA_VERSION",
        /// A criterion is not answered with a pass and evidence.
        AcceptanceFailed = "ACCEPTANCE_FAILED",
        /// The ledger contradicts itself about this task.
        LedgerInconsistent = "LEDGER_INCONSISTENT",
        /// Somebody else was faster.
        ConcurrencyConflict = "CONCURRENCY_CONFLICT",
        /// Nothing was heard of the owner in time.
        TaskTimeout = "TASK_TIMEOUT",
        /// The rules of the packet were not followed.
        NonCompliant = "NON_COMPLIANT",
    }
}

impl RefusalCode {
    /// Whether the same packet cannot succeed: it must be corrected first.
    pub const fn is_structural(self) -> bool {
        matches!(
            self,
            RefusalCode::SchemaInvalid | RefusalCode::ScopeViolation | RefusalCode::NonCompliant
        )
    }

    /// Whether a newer packet is what resolves a block with this code.
    pub const fn needs_new_packet(self) -> bool {
        self.is_structural()
            || matches!(
                self,
                RefusalCode::MissingRequiredInput | RefusalCode::UnknownSchemaVersion
            )
    }
}

words! {
    /// What a blocked task waits for.
    BlockReason {
        /// A judge, or the merge queue.
        AwaitingJudge = "awaiting_judge" | "needs_human",
        /// The quota of a backend account.
        QuotaWait = "quota_wait",
        /// The cycle manager: another packet, a successor, or the end.
        NeedsRework = "needs_rework",
        /// An issue that does not say which role it is for.
        IssueLinking = "issue_linking",
        /// A person: the result passes only with tests or settings that it changed itself.
        ChangedJudge = "changed_judge",
        /// The time of its next attempt.
        Cooldown = "cooldown",
        /// See [`RefusalCode::InvalidTransition`].
        InvalidTransition = "INVALID_TRANSITION",
        /// See [`RefusalCode::DependencyNotMet`].
        DependencyNotMet = "DEPENDENCY_NOT_MET",
        /// See [`RefusalCode::LockConflict`].
        LockConflict = "LOCK_CONFLICT",
        /// See [`RefusalCode::ScopeViolation`].
        ScopeViolation = "SCOPE_VIOLATION",
        /// See [`RefusalCode::SchemaInvalid`].
        SchemaInvalid = "SCHEMA_INVALID",
        /// See [`RefusalCode::MissingRequiredInput`].
        MissingRequiredInput = "MISSING_REQUIRED_INPUT",
        /// See [`RefusalCode::UnknownSchemaVersion`].
        UnknownSchemaVersion = "UNKNOWN_SCHEMA_VERSION",
        /// See [`RefusalCode::AcceptanceFailed`].
        AcceptanceFailed = "ACCEPTANCE_FAILED",
        /// See [`RefusalCode::LedgerInconsistent`].
        LedgerInconsistent = "LEDGER_INCONSISTENT",
        /// See [`RefusalCode::ConcurrencyConflict`].
        ConcurrencyConflict = "CONCURRENCY_CONFLICT",
        /// See [`RefusalCode::TaskTimeout`].
        TaskTimeout = "TASK_TIMEOUT",
        /// See [`RefusalCode::NonCompliant`].
        NonCompliant = "NON_COMPLIANT",
    }
}

impl BlockReason {
    /// The code, if the reason is one.
    pub fn code(self) -> Option<RefusalCode> {
        RefusalCode::parse(self.as_str())
    }
}

impl From<RefusalCode> for BlockReason {
    fn from(code: RefusalCode) -> BlockReason {
        match code {
            RefusalCode::InvalidTransition => BlockReason::InvalidTransition,
            RefusalCode::DependencyNotMet => BlockReason::DependencyNotMet,
            RefusalCode::LockConflict => BlockReason::LockConflict,
            RefusalCode::ScopeViolation => BlockReason::ScopeViolation,
            RefusalCode::SchemaInvalid => BlockReason::SchemaInvalid,
            RefusalCode::MissingRequiredInput => BlockReason::MissingRequiredInput,
            RefusalCode::UnknownSchemaVersion => BlockReason::UnknownSchemaVersion,
            RefusalCode::AcceptanceFailed => BlockReason::AcceptanceFailed,
            RefusalCode::LedgerInconsistent => BlockReason::LedgerInconsistent,
            RefusalCode::ConcurrencyConflict => BlockReason::ConcurrencyConflict,
            RefusalCode::TaskTimeout => BlockReason::TaskTimeout,
            RefusalCode::NonCompliant => BlockReason::NonCompliant,
        }
    }
}

words! {
    /// What kind of work a task is.
    TaskKind {
        /// A change of the repo.
        Code = "code",
        /// Work without git.
        Research = "research",
        /// The judgement of a pull request that is already there: no worker gets it.
        Review = "review",
    }
}

words! {
    /// Where a task comes from. Successors carry their kind here.
    TaskOrigin {
        /// Made by a plan or a person.
        Planned = "planned",
        /// Imported from an issue.
        Issue = "issue",
        /// Made for an open pull request.
        PullRequest = "pull_request",
        /// Made because the base is red.
        FixBase = "fix_base",
        /// Mends the parent's result.
        AutoFix = "auto_fix",
        /// Brings the parent's result and the base together.
        AutoFixConflict = "auto_fix_conflict",
        /// Makes the result anew, since it cannot be brought together with the base.
        Recreate = "recreate",
        /// Begins again from the base.
        Rework = "rework",
        /// A person's retry of a task that had ended.
        Retry = "retry",
    }
}

impl TaskOrigin {
    /// What the title of a successor begins with.
    pub const fn title_prefix(self) -> Option<&'static str> {
        match self {
            TaskOrigin::AutoFix => Some("[AutoFix]"),
            TaskOrigin::AutoFixConflict => Some("[AutoFix-Conflict]"),
            TaskOrigin::Recreate => Some("[Recreate]"),
            TaskOrigin::Rework => Some("[Rework]"),
            TaskOrigin::Retry => Some("[Retry]"),
            TaskOrigin::FixBase => Some("[Fix-Base]"),
            TaskOrigin::Planned | TaskOrigin::Issue | TaskOrigin::PullRequest => None,
        }
    }
}

words! {
    /// Which slots a task competes for.
    Lane {
        /// Ordinary work.
        Feature = "feature",
        /// Conflicts with the base.
        ConflictRecovery = "conflict_recovery",
        /// Documentation.
        Docser = "docser",
    }
}

words! {
    /// Whether a task may run beside others.
    TaskType {
        /// Beside every task with another scope.
        Parallelizable = "parallelizable",
        /// Alone: it locks the whole repo.
        Serial = "serial",
    }
}

words! {
    /// How much a task matters.
    TaskPriority {
        /// Whenever there is room.
        Low = "low",
        /// The default.
        Normal = "normal",
        /// Before the ordinary.
        High = "high",
        /// Before everything.
        Critical = "critical",
    }
}

words! {
    /// How likely a task breaks something.
    TaskRisk {
        /// Preferred.
        Low = "low",
        /// The default.
        Medium = "medium",
        /// Later.
        High = "high",
    }
}

words! {
    /// What happened to a failed run, for the retry policy.
    FailureCategory {
        /// The machine, the network, the runner itself.
        Env = "env",
        /// The project does not build or install before any change.
        Setup = "setup",
        /// Something is not allowed.
        Permission = "permission",
        /// Nothing was changed though a change was asked for.
        NoChange = "no_change",
        /// Scope, protected or denied paths, size.
        Policy = "policy",
        /// The guard is red.
        Test = "test",
        /// The time ran out.
        Flaky = "flaky",
        /// The model did not get there.
        Model = "model",
        /// The model goes in circles.
        ModelLoop = "model_loop",
        /// Nothing is left to spend.
        Budget = "budget",
    }
}

words! {
    /// Why a task needs rework: it chooses the row of the recovery table and the
    /// kind of successor.
    ReworkCause {
        /// A judge asks for more.
        Verdict = "verdict",
        /// The result does not merge.
        Conflict = "conflict",
        /// The project could not be set up.
        Setup = "setup",
        /// Paths or size are against the policy.
        Policy = "policy",
        /// The attempts are used up.
        Exhausted = "exhausted",
        /// No judge came to a verdict.
        Unjudged = "unjudged",
    }
}

words! {
    /// What became of a run.
    TaskRunStatus {
        /// Its owner is at it.
        Running = "running",
        /// It has a result.
        Success = "success",
        /// It has none.
        Failed = "failed",
        /// It was called off.
        Canceled = "canceled",
    }
}

words! {
    /// What a judge said about a run.
    JudgeVerdict {
        /// It may be merged.
        Approve = "approve",
        /// It needs rework.
        Reject = "reject",
    }
}

words! {
    /// What a lease is for.
    LeasePurpose {
        /// Making a result.
        Work = "work",
        /// Judging it.
        Judge = "judge",
        /// Merging it, as the head of the queue of its base.
        Merge = "merge",
    }
}

words! {
    /// How a criterion is checked.
    CriterionCheck {
        /// By a command: its exit code, and the hash of its log.
        Command = "command",
        /// By a judge, who names the criterion.
        Review = "review",
    }
}

words! {
    /// What an item of the context is.
    ContextKind {
        /// A path to read.
        File = "file",
        /// A remark.
        Note = "note",
        /// A command to run.
        Command = "command",
        /// A limit to keep.
        Constraint = "constraint",
    }
}

words! {
    /// Where the base stands, seen from an open merge intent.
    BasePosition {
        /// The merge commit is in it.
        Merged = "merged",
        /// It did not move.
        Old = "old",
        /// It moved to something else.
        Elsewhere = "elsewhere",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_and_their_legal_transitions() {
        use TaskState::{Blocked, Canceled, Done, Failed, InProgress, Todo};
        let rows: [(TaskState, &[TaskState]); 6] = [
            (Todo, &[InProgress, Blocked, Failed, Canceled]),
            (InProgress, &[Done, Blocked, Failed, Canceled]),
            (Blocked, &[Todo, InProgress, Failed, Canceled]),
            (Done, &[Done]),
            (Failed, &[Failed]),
            (Canceled, &[Canceled]),
        ];
        for (from, allowed) in rows {
            for to in TaskState::ALL {
                assert_eq!(from.may_become(*to), allowed.contains(to), "{from} {to}");
            }
        }
    }

    #[test]
    fn aliases_are_read_and_never_written() {
        for (alias, state) in [
            ("queued", TaskState::Todo),
            ("running", TaskState::InProgress),
            ("cancelled", TaskState::Canceled),
        ] {
            assert_eq!(TaskState::parse(alias), Some(state));
            assert_ne!(state.as_str(), alias);
            let read: TaskState = serde_json::from_str(&format!("\"{alias}\"")).unwrap();
            assert_eq!(read, state);
        }
        assert_eq!(
            BlockReason::parse("needs_human"),
            Some(BlockReason::AwaitingJudge)
        );
        assert_eq!(BlockReason::AwaitingJudge.as_str(), "awaiting_judge");
        assert_eq!(TaskState::parse("doing"), None);
    }

    #[test]
    fn every_code_is_a_reason() {
        for code in RefusalCode::ALL {
            assert_eq!(BlockReason::from(*code).code(), Some(*code));
            assert_eq!(BlockReason::from(*code).as_str(), code.as_str());
        }
        let without_code = BlockReason::ALL
            .iter()
            .filter(|r| r.code().is_none())
            .count();
        assert_eq!(without_code, 6);
        assert_eq!(BlockReason::ALL.len(), RefusalCode::ALL.len() + 6);
    }

    #[test]
    fn structural_codes() {
        let structural: Vec<&str> = RefusalCode::ALL
            .iter()
            .filter(|code| code.is_structural())
            .map(|code| code.as_str())
            .collect();
        assert_eq!(
            structural,
            ["SCOPE_VIOLATION", "SCHEMA_INVALID", "NON_COMPLIANT"]
        );
    }
}
