//! What a statement that writes decisions wants to know: lists of texts and of numbers, in
//! which every change has its places.

use sqlx::postgres::{PgArguments, Postgres};
use sqlx::query::Query;

use crate::call::change::StoreChange;
use crate::error::StoreError;

type TextList<'a> = Vec<Option<&'a str>>;
type NumberList = Vec<Option<i64>>;

/// One list, by the name that it has in a statement, and what a change adds to it.
pub(crate) enum ListArgument {
    Texts(&'static str, for<'a> fn(&'a StoreChange, &mut TextList<'a>)),
    Numbers(&'static str, fn(&StoreChange, &mut NumberList)),
}

impl ListArgument {
    pub(crate) fn name(&self) -> &'static str {
        match self {
            ListArgument::Texts(name, _) | ListArgument::Numbers(name, _) => name,
        }
    }

    pub(crate) fn kind(&self) -> &'static str {
        match self {
            ListArgument::Texts(..) => "text",
            ListArgument::Numbers(..) => "bigint",
        }
    }

    pub(crate) fn bind<'q>(
        &self,
        query: Query<'q, Postgres, PgArguments>,
        changes: &[StoreChange],
    ) -> Query<'q, Postgres, PgArguments> {
        match self {
            ListArgument::Texts(_, add) => query.bind(gathered(changes, *add)),
            ListArgument::Numbers(_, add) => query.bind(gathered(changes, add)),
        }
    }

    pub(crate) fn write(
        &self,
        to: &mut SqlLiterals,
        changes: &[StoreChange],
    ) -> Result<(), StoreError> {
        match self {
            ListArgument::Texts(_, add) => to.texts(&gathered(changes, *add)),
            ListArgument::Numbers(_, add) => to.numbers(&gathered(changes, add)),
        }
    }
}

fn gathered<'a, T>(
    changes: &'a [StoreChange],
    add: impl Fn(&'a StoreChange, &mut Vec<T>),
) -> Vec<T> {
    let mut all = Vec::new();
    for change in changes {
        add(change, &mut all);
    }
    all
}

use ListArgument::{Numbers as N, Texts as T};

/// Every list there is.
pub(crate) static ARGUMENTS: &[ListArgument] = &[
    T("ids", |change, to| to.push(Some(&change.id))),
    N("expected", |change, to| to.push(change.expected)),
    // Of a row: state, role, lane, queue, blocked_on, lineage, rework_of, superseded_by,
    // awaits, doc, scope.
    T("texts", |change, to| {
        to.extend(change.texts.iter().flatten().map(Option::as_deref));
    }),
    // Of a row: version, rank, created_at, updated_at, retry_at, due_at.
    N("numbers", |change, to| {
        to.extend(change.numbers.iter().flatten());
    }),
    // Of an event: its task, state and doc.
    T("event_texts", |change, to| {
        for (state, doc) in change.event_states.iter().zip(&change.event_docs) {
            to.extend([Some(change.id.as_str()), Some(state), Some(doc)]);
        }
    }),
    // Of an event: version and time.
    N("event_numbers", |change, to| {
        for (version, time) in change.event_versions.iter().zip(&change.event_times) {
            to.extend([Some(*version), Some(*time)]);
        }
    }),
    // Of a run: its id, task, status and doc.
    T("run_texts", |change, to| {
        for run in change.runs.as_chunks::<3>().0 {
            let [id, status, doc] = run;
            to.extend([Some(id.as_str()), Some(&change.id), Some(status), Some(doc)]);
        }
    }),
    N("run_numbers", |change, to| to.extend(&change.run_numbers)),
    // Of a lease: run, owner, purpose and key.
    T("lease_texts", |change, to| {
        to.extend(
            change
                .lease_texts
                .iter()
                .flatten()
                .map(|text| Some(text.as_str())),
        );
    }),
    N("lease_numbers", |change, to| {
        to.extend(
            change
                .lease_numbers
                .iter()
                .flatten()
                .map(|number| Some(*number)),
        );
    }),
    N("was_tokens", |change, to| to.push(change.was_token)),
    N("was_beats", |change, to| to.push(change.was_beat)),
    T("was_owners", |change, to| {
        to.push(change.was_owner.as_deref());
    }),
    // Of a lock: resource and task.
    T("taken", |change, to| {
        for resource in change.take.iter().flatten() {
            to.extend([Some(resource.as_str()), Some(&change.id)]);
        }
    }),
    // Of a result that waits for its merge: task, resource and lineage.
    T("results", |change, to| {
        let lineage = change
            .texts
            .as_ref()
            .and_then(|texts| texts[LINEAGE].as_deref());
        for resource in change.result_scope.iter().flatten() {
            to.extend([Some(change.id.as_str()), Some(resource), lineage]);
        }
    }),
    N("receipt_tokens", |change, to| to.push(change.receipt_token)),
    T("receipts", |change, to| to.push(change.receipt.as_deref())),
    // Of a request with a name: that, its digest and its answer.
    T("requests", |change, to| {
        to.extend(
            change
                .request
                .iter()
                .flatten()
                .map(|text| Some(text.as_str())),
        );
    }),
    // Those that are done, whom they succeed, and since when.
    T("done", |change, to| {
        to.extend(change.done_at.map(|_| Some(change.id.as_str())));
    }),
    T("reworked", |change, to| {
        let texts = change.texts.as_ref().filter(|_| change.done_at.is_some());
        to.extend(
            texts
                .and_then(|texts| texts[REWORK_OF].as_deref())
                .map(Some),
        );
    }),
    N("done_at", |change, to| to.extend(change.done_at.map(Some))),
    T("passed", |change, to| {
        to.extend(change.passed.as_deref().map(Some));
    }),
    T("wake", |change, to| {
        to.extend(change.wake.iter().map(|key| Some(key.as_str())));
    }),
    // The one resource that is locked; and its name with those above it, each with the task.
    T("alone", |change, to| {
        let names = change.alone.as_ref();
        to.push(names.and_then(|names| names.last()).map(String::as_str));
    }),
    T("alone_names", |change, to| {
        to.extend(
            change
                .alone
                .iter()
                .flatten()
                .map(|name| Some(name.as_str())),
        );
    }),
    T("alone_ids", |change, to| {
        let names = change.alone.iter().flatten();
        to.extend(names.map(|_| Some(change.id.as_str())));
    }),
];

/// Where they are among the texts of a row.
const LINEAGE: usize = 5;
const REWORK_OF: usize = 6;

/// Values inside a statement, with commas between them.
#[derive(Default)]
pub(crate) struct SqlLiterals(String);

impl SqlLiterals {
    /// All of them.
    pub(crate) fn text(&self) -> &str {
        &self.0
    }

    fn texts(&mut self, texts: &[Option<&str>]) -> Result<(), StoreError> {
        let mut list = String::from("{");
        for (at, text) in texts.iter().enumerate() {
            list.push_str(if at > 0 { "," } else { "" });
            match text {
                Some(text) => push_quoted(&mut list, text),
                None => list.push_str("NULL"),
            }
        }
        list.push('}');
        self.push(&list)
    }

    fn numbers(&mut self, numbers: &[Option<i64>]) -> Result<(), StoreError> {
        let number = |number: &Option<i64>| number.map_or("NULL".to_owned(), |n| n.to_string());
        let numbers: Vec<String> = numbers.iter().map(number).collect();
        self.push(&format!("{{{}}}", numbers.join(",")))
    }

    fn push(&mut self, list: &str) -> Result<(), StoreError> {
        if !self.0.is_empty() {
            self.0.push(',');
        }
        push_literal(&mut self.0, list)
    }
}

/// A text inside a list.
fn push_quoted(to: &mut String, text: &str) {
    to.push('"');
    for one in text.chars() {
        if matches!(one, '"' | '\\') {
            to.push('\\');
        }
        to.push(one);
    }
    to.push('"');
}

/// A text inside a statement. Escaped in the one way that no setting of the server changes.
pub(crate) fn literal(text: &str) -> Result<String, StoreError> {
    let mut literal = String::new();
    push_literal(&mut literal, text)?;
    Ok(literal)
}

fn push_literal(to: &mut String, text: &str) -> Result<(), StoreError> {
    to.push_str("E'");
    for one in text.chars() {
        match one {
            '\0' => return Err(StoreError::Other("a text has a zero in it".to_owned())),
            '\'' => to.push_str("''"),
            '\\' => to.push_str("\\\\"),
            one => to.push(one),
        }
    }
    to.push('\'');
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_has_what_is_put_into_it() {
        let mut values = SqlLiterals::default();
        let texts = [
            Some("it's"),
            None,
            Some(r#"a"b\c,{"#),
            Some("NULL"),
            Some(""),
        ];
        values.texts(&texts).unwrap();
        values.numbers(&[Some(-1), None]).unwrap();
        values.texts(&[]).unwrap();
        let list = r#"{"it''s",NULL,"a\\"b\\\\c,{","NULL",""}"#;
        assert_eq!(values.text(), format!("E'{list}',E'{{-1,NULL}}',E'{{}}'"));
    }

    #[test]
    fn a_literal_ends_where_its_text_does() {
        assert_eq!(literal("w1").unwrap(), "E'w1'");
        assert_eq!(literal("it's").unwrap(), "E'it''s'");
        assert_eq!(literal(r"\'; DROP").unwrap(), r"E'\\''; DROP'");
        assert!(literal("a\0b").is_err());
    }
}
