//! Export and import: the whole ledger as lines of JSON, the same bytes again.

use std::io::{BufRead, Write};

use runner_core::digest::sha256_hex;
use runner_lifecycle::event::{TaskEvent, fold};
use runner_lifecycle::lock::ScopeLock;
use runner_lifecycle::run::{Lease, Receipt, TaskRun};
use runner_lifecycle::{Policy, Refusal, RefusalCode, TaskId};
use serde::{Deserialize, Serialize};

use crate::engine::{Access, Arg, Session, all, one};
use crate::error::{LedgerError, StoreError};
use crate::ledger::Ledger;
use crate::migrate::SCHEMA;
use crate::reads::{self, all_ids, docs, events_of};
use crate::rebuild::{refresh_index, replace_row};
use crate::records;
use crate::writes;

/// One line.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
enum Line {
    /// The first one.
    Ledger {
        schema_version: u32,
        ledger_schema: i64,
    },
    Event(TaskEvent),
    Run(Box<TaskRun>),
    Receipt(Receipt),
    Lease(Lease),
    Lock(ScopeLock),
    Request {
        id: String,
        task_id: String,
        digest: String,
        answer: serde_json::Value,
    },
    Flag {
        name: String,
        value: String,
    },
    /// The last one: without it, or with another digest, something is missing.
    End {
        lines: u64,
        sha256: String,
    },
}

/// How much was written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Exported {
    /// Tasks.
    pub tasks: u64,
    /// Lines, the first included.
    pub lines: u64,
}

/// How much was read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Imported {
    /// Tasks.
    pub tasks: u64,
    /// Events.
    pub events: u64,
}

/// What the lines so far add up to.
#[derive(Default)]
struct Sum {
    lines: u64,
    sha256: String,
}

impl Sum {
    /// Adds a line, without its end.
    fn add(&mut self, line: &str) {
        self.lines += 1;
        self.sha256 = sha256_hex(format!("{}{line}\n", self.sha256).as_bytes());
    }
}

struct Sink<'w> {
    to: &'w mut (dyn Write + Send),
    sum: Sum,
}

impl Sink<'_> {
    fn put(&mut self, line: &Line) -> Result<(), LedgerError> {
        let text = records::text("a line", line)?;
        self.sum.add(&text);
        let written = writeln!(self.to, "{text}");
        written.map_err(|error| StoreError::Other(format!("the export: {error}")).into())
    }
}

impl Ledger {
    /// Writes everything, at one point in time.
    pub async fn export(&self, to: &mut (dyn Write + Send)) -> Result<Exported, LedgerError> {
        let mut session = self.engine.begin(Access::Read).await?;
        let mut sink = Sink {
            to,
            sum: Sum::default(),
        };
        let mut tasks = 0;
        sink.put(&Line::Ledger {
            schema_version: 1,
            ledger_schema: SCHEMA,
        })?;
        for id in &all_ids(&mut *session).await? {
            tasks += 1;
            export_task(&mut *session, id, &mut sink).await?;
        }
        let everything = [Arg::Int(i64::MAX), Arg::Int(i64::MAX)];
        let mut leases = reads::leases(&mut *session, &everything).await?;
        leases.sort_by(|one, other| one.task_id.cmp(&other.task_id));
        for lease in leases {
            sink.put(&Line::Lease(lease))?;
        }
        for lock in reads::locks(&mut *session).await? {
            sink.put(&Line::Lock(lock))?;
        }
        let requests = "SELECT id, task_id, digest, answer FROM requests ORDER BY id";
        for row in all(&mut *session, requests, &[]).await? {
            sink.put(&Line::Request {
                id: row.text(0)?,
                task_id: row.text(1)?,
                digest: row.text(2)?,
                answer: records::parse("an answer", &row.text(3)?)?,
            })?;
        }
        for row in all(
            &mut *session,
            "SELECT name, value FROM flags ORDER BY name",
            &[],
        )
        .await?
        {
            let (name, value) = (row.text(0)?, row.text(1)?);
            sink.put(&Line::Flag { name, value })?;
        }
        let Sum { lines, sha256 } = std::mem::take(&mut sink.sum);
        sink.put(&Line::End { lines, sha256 })?;
        Ok(Exported {
            tasks,
            lines: lines + 1,
        })
    }

    /// Reads everything into an empty ledger, all or nothing.
    pub async fn import(&self, from: &mut (dyn BufRead + Send)) -> Result<Imported, LedgerError> {
        let mut session = self.engine.begin(Access::Write).await?;
        if one(&mut *session, "SELECT id FROM tasks LIMIT 1", &[])
            .await?
            .is_some()
        {
            return Err(Refusal::new(
                RefusalCode::LedgerInconsistent,
                "the ledger is not empty: import into a new store",
            )
            .into());
        }
        let mut imported = Imported::default();
        let mut sum = Sum::default();
        let mut ended = false;
        for (number, text) in (1_u64..).zip(from.lines()) {
            let text = text.map_err(|error| bad(number, &error))?;
            let line: Line = serde_json::from_str(&text).map_err(|error| bad(number, &error))?;
            if (number == 1) != matches!(line, Line::Ledger { .. }) {
                return Err(bad(number, &"a ledger begins with one line that says so").into());
            }
            if ended {
                return Err(bad(number, &"something follows the end").into());
            }
            if let Line::End { lines, sha256 } = &line {
                if (*lines, sha256) != (sum.lines, &sum.sha256) {
                    return Err(bad(number, &"the lines before are not those of the export").into());
                }
                ended = true;
            }
            sum.add(&text);
            imported.events += u64::from(matches!(line, Line::Event(_)));
            import_line(&mut *session, line, number).await?;
        }
        if sum.lines == 0 {
            return Err(bad(1, &"the file is empty").into());
        }
        if !ended {
            return Err(bad(sum.lines, &"the end is missing: the export is cut off").into());
        }
        imported.tasks = rebuild_rows(&mut *session, &self.policy).await?;
        session.commit().await?;
        self.engine.announce();
        Ok(imported)
    }
}

async fn export_task(
    session: &mut dyn Session,
    id: &TaskId,
    sink: &mut Sink<'_>,
) -> Result<(), LedgerError> {
    let own = [Arg::Text(id.as_str())];
    for event in events_of(session, id).await? {
        sink.put(&Line::Event(event))?;
    }
    let runs = "SELECT doc FROM runs WHERE task_id = $1 ORDER BY number";
    for one in docs(session, runs, &own, records::run).await? {
        sink.put(&Line::Run(Box::new(one)))?;
    }
    let receipts = "SELECT doc FROM receipts WHERE task_id = $1 ORDER BY token";
    for receipt in docs(session, receipts, &own, records::receipt).await? {
        sink.put(&Line::Receipt(receipt))?;
    }
    Ok(())
}

async fn import_line(
    session: &mut dyn Session,
    line: Line,
    number: u64,
) -> Result<(), LedgerError> {
    match line {
        Line::Ledger {
            schema_version,
            ledger_schema,
        } => {
            if schema_version != 1 || ledger_schema > SCHEMA {
                return Err(StoreError::Newer {
                    found: ledger_schema.max(i64::from(schema_version)),
                    known: SCHEMA,
                }
                .into());
            }
        }
        Line::Event(event) => writes::append(session, &[event])
            .await
            .map_err(|error| unwritten(number, error))?,
        Line::Run(one) => writes::put_run(session, &one, None)
            .await
            .map_err(|error| unwritten(number, error))?,
        Line::Receipt(receipt) => writes::put_receipt(session, &receipt)
            .await
            .map_err(|error| unwritten(number, error))?,
        Line::Lease(lease) => writes::put_lease(session, &lease)
            .await
            .map_err(|error| unwritten(number, error))?,
        Line::Lock(lock) => {
            let resource = lock.resource.as_str();
            writes::put_lock(session, lock.task_id.as_str(), resource)
                .await
                .map_err(|error| unwritten(number, error))?;
        }
        Line::Request {
            id,
            task_id,
            digest,
            answer,
        } => {
            let answer = records::text("an answer", &answer)?;
            let task = records::task_id(&task_id)?;
            writes::record(session, &task, &id, &digest, &answer)
                .await
                .map_err(|error| unwritten(number, error))?;
        }
        Line::Flag { name, value } => reads::put_flag(session, &name, &value).await?,
        Line::End { .. } => {}
    }
    let written = session.said().await;
    written.map_err(|error| unwritten(number, error))
}

/// Makes the rows from the events that were read.
async fn rebuild_rows(session: &mut dyn Session, policy: &Policy) -> Result<u64, LedgerError> {
    let mut tasks = 0;
    for id in &all_ids(session).await? {
        let task = fold(&events_of(session, id).await?).map_err(|error| {
            Refusal::new(
                RefusalCode::LedgerInconsistent,
                format!("the events of task {id} do not add up: {error}"),
            )
        })?;
        replace_row(session, policy, &task).await?;
        tasks += 1;
    }
    refresh_index(session).await?;
    Ok(tasks)
}

/// A line that the store refuses is wrong; a store that fails is another matter.
fn unwritten(line: u64, error: StoreError) -> LedgerError {
    match error {
        StoreError::Contention(words) | StoreError::Other(words) => bad(line, &words).into(),
        other => other.into(),
    }
}

fn bad(line: u64, error: &dyn std::fmt::Display) -> Refusal {
    Refusal::new(
        RefusalCode::SchemaInvalid,
        format!("line {line} of the import: {error}"),
    )
}
