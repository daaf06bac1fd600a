//! Export and import: the whole ledger as lines of JSON, the same bytes again.

use std::io::{BufRead, Write};

use runner_core::digest::sha256_hex;
use runner_lifecycle::event::{TaskEvent, fold};
use runner_lifecycle::lock::ScopeLock;
use runner_lifecycle::run::{Lease, Receipt, TaskRun};
use runner_lifecycle::{Policy, Refusal, RefusalCode, TaskId};
use serde::{Deserialize, Serialize};

use crate::call::records;
use crate::call::writes;
use crate::error::{LedgerError, StoreError};
use crate::ledger::Ledger;
use crate::maintain::rebuild::{refresh_index, replace_row};
use crate::read::reads;
use crate::read::reads::{all_ids, docs, events_of};
use crate::store::engine::{SqlArg, StoreAccess, StoreTx, all, one};
use crate::store::migrate::SCHEMA;

/// One line.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
enum ExportLine {
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
pub struct ExportReport {
    /// Tasks.
    pub tasks: u64,
    /// Lines, the first included.
    pub lines: u64,
}

/// How much was read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ImportReport {
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

struct ExportSink<'w> {
    to: &'w mut (dyn Write + Send),
    sum: Sum,
}

impl ExportSink<'_> {
    fn put(&mut self, line: &ExportLine) -> Result<(), LedgerError> {
        let text = records::text("a line", line)?;
        self.sum.add(&text);
        let written = writeln!(self.to, "{text}");
        written.map_err(|error| StoreError::Other(format!("the export: {error}")).into())
    }
}

impl Ledger {
    /// Writes everything, at one point in time.
    pub async fn export(&self, to: &mut (dyn Write + Send)) -> Result<ExportReport, LedgerError> {
        let mut tx = self.engine.begin(StoreAccess::Read).await?;
        let mut sink = ExportSink {
            to,
            sum: Sum::default(),
        };
        let mut tasks = 0;
        sink.put(&ExportLine::Ledger {
            schema_version: 1,
            ledger_schema: SCHEMA,
        })?;
        for id in &all_ids(&mut *tx).await? {
            tasks += 1;
            export_task(&mut *tx, id, &mut sink).await?;
        }
        let everything = [SqlArg::Int(i64::MAX), SqlArg::Int(i64::MAX)];
        let mut leases = reads::leases(&mut *tx, &everything).await?;
        leases.sort_by(|one, other| one.task_id.cmp(&other.task_id));
        for lease in leases {
            sink.put(&ExportLine::Lease(lease))?;
        }
        for lock in reads::locks(&mut *tx).await? {
            sink.put(&ExportLine::Lock(lock))?;
        }
        let requests = "SELECT id, task_id, digest, answer FROM requests ORDER BY id";
        for row in all(&mut *tx, requests, &[]).await? {
            sink.put(&ExportLine::Request {
                id: row.text(0)?,
                task_id: row.text(1)?,
                digest: row.text(2)?,
                answer: records::parse("an answer", &row.text(3)?)?,
            })?;
        }
        for row in all(&mut *tx, "SELECT name, value FROM flags ORDER BY name", &[]).await? {
            let (name, value) = (row.text(0)?, row.text(1)?);
            sink.put(&ExportLine::Flag { name, value })?;
        }
        let Sum { lines, sha256 } = std::mem::take(&mut sink.sum);
        sink.put(&ExportLine::End { lines, sha256 })?;
        Ok(ExportReport {
            tasks,
            lines: lines + 1,
        })
    }

    /// Reads everything into an empty ledger, all or nothing.
    pub async fn import(
        &self,
        from: &mut (dyn BufRead + Send),
    ) -> Result<ImportReport, LedgerError> {
        let mut tx = self.engine.begin(StoreAccess::Write).await?;
        if one(&mut *tx, "SELECT id FROM tasks LIMIT 1", &[])
            .await?
            .is_some()
        {
            return Err(Refusal::new(
                RefusalCode::LedgerInconsistent,
                "the ledger is not empty: import into a new store",
            )
            .into());
        }
        let mut imported = ImportReport::default();
        let mut sum = Sum::default();
        let mut ended = false;
        for (number, text) in (1_u64..).zip(from.lines()) {
            let text = text.map_err(|error| bad(number, &error))?;
            let line: ExportLine =
                serde_json::from_str(&text).map_err(|error| bad(number, &error))?;
            if (number == 1) != matches!(line, ExportLine::Ledger { .. }) {
                return Err(bad(number, &"a ledger begins with one line that says so").into());
            }
            if ended {
                return Err(bad(number, &"something follows the end").into());
            }
            if let ExportLine::End { lines, sha256 } = &line {
                if (*lines, sha256) != (sum.lines, &sum.sha256) {
                    return Err(bad(number, &"the lines before are not those of the export").into());
                }
                ended = true;
            }
            sum.add(&text);
            imported.events += u64::from(matches!(line, ExportLine::Event(_)));
            import_line(&mut *tx, line, number).await?;
        }
        if sum.lines == 0 {
            return Err(bad(1, &"the file is empty").into());
        }
        if !ended {
            return Err(bad(sum.lines, &"the end is missing: the export is cut off").into());
        }
        imported.tasks = rebuild_rows(&mut *tx, &self.policy).await?;
        tx.commit().await?;
        self.engine.announce();
        Ok(imported)
    }
}

async fn export_task(
    tx: &mut dyn StoreTx,
    id: &TaskId,
    sink: &mut ExportSink<'_>,
) -> Result<(), LedgerError> {
    let own = [SqlArg::Text(id.as_str())];
    for event in events_of(tx, id).await? {
        sink.put(&ExportLine::Event(event))?;
    }
    let runs = "SELECT doc FROM runs WHERE task_id = $1 ORDER BY number";
    for one in docs(tx, runs, &own, records::run).await? {
        sink.put(&ExportLine::Run(Box::new(one)))?;
    }
    let receipts = "SELECT doc FROM receipts WHERE task_id = $1 ORDER BY token";
    for receipt in docs(tx, receipts, &own, records::receipt).await? {
        sink.put(&ExportLine::Receipt(receipt))?;
    }
    Ok(())
}

async fn import_line(
    tx: &mut dyn StoreTx,
    line: ExportLine,
    number: u64,
) -> Result<(), LedgerError> {
    match line {
        ExportLine::Ledger {
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
        ExportLine::Event(event) => writes::append(tx, &[event])
            .await
            .map_err(|error| unwritten(number, error))?,
        ExportLine::Run(one) => writes::put_run(tx, &one, None)
            .await
            .map_err(|error| unwritten(number, error))?,
        ExportLine::Receipt(receipt) => writes::put_receipt(tx, &receipt)
            .await
            .map_err(|error| unwritten(number, error))?,
        ExportLine::Lease(lease) => writes::put_lease(tx, &lease)
            .await
            .map_err(|error| unwritten(number, error))?,
        ExportLine::Lock(lock) => {
            let resource = lock.resource.as_str();
            writes::put_lock(tx, lock.task_id.as_str(), resource)
                .await
                .map_err(|error| unwritten(number, error))?;
        }
        ExportLine::Request {
            id,
            task_id,
            digest,
            answer,
        } => {
            let answer = records::text("an answer", &answer)?;
            let task = records::task_id(&task_id)?;
            writes::record(tx, &task, &id, &digest, &answer)
                .await
                .map_err(|error| unwritten(number, error))?;
        }
        ExportLine::Flag { name, value } => reads::put_flag(tx, &name, &value).await?,
        ExportLine::End { .. } => {}
    }
    let written = tx.finish_deferred().await;
    written.map_err(|error| unwritten(number, error))
}

/// Makes the rows from the events that were read.
async fn rebuild_rows(tx: &mut dyn StoreTx, policy: &Policy) -> Result<u64, LedgerError> {
    let mut tasks = 0;
    for id in &all_ids(tx).await? {
        let task = fold(&events_of(tx, id).await?).map_err(|error| {
            Refusal::new(
                RefusalCode::LedgerInconsistent,
                format!("the events of task {id} do not add up: {error}"),
            )
        })?;
        replace_row(tx, policy, &task).await?;
        tasks += 1;
    }
    refresh_index(tx).await?;
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
