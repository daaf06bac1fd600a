//! The words of the ledger on the wire: the same ones, with their schemas.

use std::borrow::Cow;

use runner_lifecycle as law;
use serde::{Deserialize, Serialize};
use utoipa::openapi::schema::{ObjectBuilder, Type};
use utoipa::openapi::{RefOr, Schema};
use utoipa::{PartialSchema, ToSchema};

macro_rules! wire_words {
    ($($(#[$meta:meta])* $name:ident of $word:ident as $schema:literal;)+) => { $(
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(transparent)]
        pub(crate) struct $name(pub(crate) law::$word);

        impl From<law::$word> for $name {
            fn from(word: law::$word) -> Self {
                $name(word)
            }
        }

        impl ToSchema for $name {
            fn name() -> Cow<'static, str> {
                Cow::Borrowed($schema)
            }
        }

        impl PartialSchema for $name {
            fn schema() -> RefOr<Schema> {
                let words = law::$word::ALL.iter().map(|word| word.as_str());
                one_of(words)
            }
        }
    )+ };
}

fn one_of<'w>(words: impl IntoIterator<Item = &'w str>) -> RefOr<Schema> {
    let words: Vec<&str> = words.into_iter().collect();
    ObjectBuilder::new()
        .schema_type(Type::String)
        .enum_values(Some(words))
        .into()
}

wire_words! {
    /// Where a task stands.
    TaskStateView of TaskState as "State";
    /// What a blocked task waits for.
    BlockReasonView of BlockReason as "Reason";
    /// Why something is refused.
    RefusalCodeView of RefusalCode as "Code";
    /// Who is next.
    TaskPhaseView of TaskPhase as "Phase";
    /// What kind of work it is.
    TaskKindView of TaskKind as "Kind";
    /// Which slots it competes for.
    LaneView of Lane as "Lane";
    /// Where it comes from.
    TaskOriginView of TaskOrigin as "Origin";
    /// How much it matters.
    TaskPriorityView of TaskPriority as "Priority";
    /// How likely it breaks something.
    TaskRiskView of TaskRisk as "Risk";
    /// Whether it runs beside others.
    TaskTypeView of TaskType as "TaskType";
    /// What happened to a failed run.
    FailureCategoryView of FailureCategory as "Category";
    /// Why rework is needed.
    ReworkCauseView of ReworkCause as "ReworkCause";
    /// What became of a run.
    TaskRunStatusView of TaskRunStatus as "RunStatus";
    /// What a judge said.
    JudgeVerdictView of JudgeVerdict as "Verdict";
    /// How a criterion is checked.
    CriterionCheckView of CriterionCheck as "Check";
    /// What an item of the context is.
    ContextKindView of ContextKind as "ContextKind";
    /// What a lease is for.
    LeasePurposeView of LeasePurpose as "Purpose";
}

macro_rules! with_aliases {
    ($($(#[$meta:meta])* $name:ident of $word:ident $(| $alias:literal)+;)+) => { $(
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, Deserialize)]
        #[serde(transparent)]
        pub(crate) struct $name(pub(crate) law::$word);

        impl ToSchema for $name {}

        impl PartialSchema for $name {
            fn schema() -> RefOr<Schema> {
                let words = law::$word::ALL.iter().map(|word| word.as_str());
                one_of(words.chain([$($alias),+]))
            }
        }

        #[cfg(test)]
        impl $name {
            fn aliases() -> Vec<&'static str> {
                let aliases = [$($alias),+];
                assert!(aliases.iter().all(|alias| law::$word::parse(alias).is_some()));
                aliases.to_vec()
            }
        }
    )+ };
}

with_aliases! {
    /// A state as it is asked for; aliases are understood and never answered.
    AskedState of TaskState | "queued" | "running" | "cancelled";
    /// A reason as it is asked for.
    AskedReason of BlockReason | "needs_human";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn aliases_are_read_and_never_written() {
        assert_eq!(AskedState::aliases().len(), 3);
        assert_eq!(AskedReason::aliases().len(), 1);
        let asked: AskedState = serde_json::from_str("\"queued\"").unwrap();
        assert_eq!(
            serde_json::to_string(&TaskStateView(asked.0)).unwrap(),
            "\"todo\""
        );
        let schema = serde_json::to_string(&TaskStateView::schema()).unwrap();
        assert!(
            schema.contains("in_progress") && !schema.contains("queued"),
            "{schema}"
        );
        let schema = serde_json::to_string(&AskedState::schema()).unwrap();
        assert!(schema.contains("queued"), "{schema}");
    }
}
