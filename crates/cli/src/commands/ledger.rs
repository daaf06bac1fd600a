//! `runner ledger`: check, rebuild, export and import; and how every command opens one.

use std::io::{BufRead, BufReader, BufWriter, Write};
use std::path::Path;

use runner::{Error, ErrorCode, Project, Result};
use runner_ledger::{CheckFindings, Ledger, LedgerError, LedgerOptions, Store, StoreError};
use serde_json::{Value, json};

use super::Exit;
use crate::credentials;
use crate::ledger_args::{LedgerArgs, LedgerCommand, StoreArgs};
use crate::out::OutputGate;
use crate::style::{self, TextTone};

/// `runner ledger …`.
pub(crate) fn run(dir: &Path, args: &LedgerArgs, out: &mut OutputGate) -> Result<Exit> {
    let store = match args.command {
        LedgerCommand::Import { .. } => store(dir, &args.store)?,
        _ => store_to_read(dir, &args.store)?,
    };
    let reads = matches!(
        args.command,
        LedgerCommand::Check
            | LedgerCommand::Rebuild { check: true }
            | LedgerCommand::Export { .. }
    );
    with_ledger(&store, reads, out, async |ledger, out| {
        match &args.command {
            LedgerCommand::Check => check(ledger, out).await,
            LedgerCommand::Rebuild { check: true } => check_rows(ledger, out).await,
            LedgerCommand::Rebuild { check: false } => rebuild(ledger, out).await,
            LedgerCommand::Export { file } => export(ledger, file.as_deref(), out).await,
            LedgerCommand::Import { file } => import(ledger, file, out).await,
        }
    })
}

/// The store that the options, the environment or the project name.
pub(crate) fn store(dir: &Path, args: &StoreArgs) -> Result<Store> {
    if let Some(text) = args.store.as_deref().or(credentials::store_variable()) {
        return Store::parse(text)
            .map_err(|error| Error::new(ErrorCode::Config, error.to_string()));
    }
    let project = Project::find(dir).or_else(|error| {
        // A fleet needs no run beside it.
        let alone = Project::of_work_tree(dir)
            .ok()
            .filter(|project| project.runner_dir().join("fleet").is_dir());
        alone.ok_or_else(|| {
            Error::new(error.code, error.message)
                .hint("name a ledger with --store, or begin a project with `runner init`")
        })
    })?;
    Ok(Store::Sqlite(
        project.runner_dir().join("fleet").join("ledger.db"),
    ))
}

/// The same, for what makes no ledger: a file that was named must be there, so that a
/// mistyped name is not an empty ledger.
pub(crate) fn store_to_read(dir: &Path, args: &StoreArgs) -> Result<Store> {
    let found = store(dir, args)?;
    let named = args.store.is_some() || credentials::store_variable().is_some();
    match &found {
        Store::Sqlite(path) if named && !path.exists() => Err(Error::new(
            ErrorCode::Config,
            format!("there is no ledger {}", path.display()),
        )
        .hint("`runner fleet up`, `runner task add` and `runner ledger import` make one")),
        _ => Ok(found),
    }
}

/// Opens the ledger, does something with it and says what went wrong. What only `reads`
/// is done with a ledger that cannot be written, too.
pub(crate) fn with_ledger(
    store: &Store,
    reads: bool,
    out: &mut OutputGate,
    act: impl AsyncFnOnce(&Ledger, &mut OutputGate) -> std::result::Result<Exit, LedgerCommandError>,
) -> Result<Exit> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Error::new(ErrorCode::Io, format!("no runtime: {error}")))?;
    let ended = runtime.block_on(async {
        let ledger = if reads {
            Ledger::open_to_read(store, LedgerOptions::default()).await?
        } else {
            Ledger::open(store, LedgerOptions::default()).await?
        };
        let ended = act(&ledger, out).await;
        ledger.close().await?;
        ended
    });
    match ended {
        Ok(exit) => Ok(exit),
        Err(LedgerCommandError::Ledger(error)) => {
            refuse(&error, store, out);
            Ok(Exit::Error)
        }
        Err(LedgerCommandError::Usage(error)) => Err(error),
    }
}

/// Why a command did not succeed.
pub(crate) enum LedgerCommandError {
    /// The ledger says no.
    Ledger(LedgerError),
    /// What was typed makes no sense.
    Usage(Error),
}

impl<E: Into<LedgerError>> From<E> for LedgerCommandError {
    fn from(error: E) -> LedgerCommandError {
        LedgerCommandError::Ledger(error.into())
    }
}

pub(crate) fn refuse(error: &LedgerError, store: &Store, out: &mut OutputGate) {
    let (code, details) = match error {
        LedgerError::Refused(refusal) => (
            refusal.code.as_str(),
            Value::Object(refusal.details.clone()),
        ),
        LedgerError::Store(error) => (store_code(error), json!({"store": store.to_string()})),
    };
    let hint = hint(error);
    if out.json {
        let message = match error {
            LedgerError::Refused(refusal) => refusal.reason.clone(),
            LedgerError::Store(error) => error.to_string(),
        };
        out.object(json!({"error": {
            "code": code, "message": message, "details": details, "hint": hint,
        }}));
        return;
    }
    let words = match error {
        LedgerError::Refused(_) => error.to_string(),
        LedgerError::Store(_) => format!("{code}: {error} ({store})"),
    };
    out.problem(&words, hint);
}

fn store_code(error: &StoreError) -> &'static str {
    match error {
        StoreError::Unavailable(_) => "STORE_UNAVAILABLE",
        StoreError::Full(_) => "STORE_FULL",
        StoreError::ReadOnly(_) => "STORE_READ_ONLY",
        StoreError::Newer { .. } => "STORE_NEWER",
        StoreError::Contention(_) => "CONCURRENCY_CONFLICT",
        StoreError::Damaged(_) => "STORE_DAMAGED",
        StoreError::Other(_) => "STORE_ERROR",
    }
}

fn hint(error: &LedgerError) -> Option<&'static str> {
    match error {
        LedgerError::Store(StoreError::Unavailable(_)) => {
            Some("is the path or the address right, and is the server up?")
        }
        LedgerError::Store(StoreError::Damaged(_)) => Some(
            "`runner ledger rebuild` makes rows anew; where nothing can be read, \
                 `runner ledger import` reads an export into a new ledger",
        ),
        LedgerError::Store(StoreError::Full(_)) => Some("make room, then ask again"),
        LedgerError::Store(StoreError::ReadOnly(_)) => Some(
            "may this user write to the file and its folder, or to the database? \
                 `task list`, `show`, `events` and `why`, `ledger check` and `export` only read",
        ),
        LedgerError::Refused(refusal)
            if refusal.code == runner_lifecycle::RefusalCode::ConcurrencyConflict =>
        {
            Some("look again with `runner task show`")
        }
        _ => None,
    }
}

fn findings(found: &CheckFindings) -> Value {
    let rows = found.rows.iter().map(
        |row| json!({"task_id": row.task_id, "words": row.words, "repairable": row.repairable}),
    );
    let contradictions = found.inconsistencies.iter().map(|one| {
        json!({
            "finding": one.kind.as_str(), "task_id": one.task_id, "words": one.words,
            "severity": one.kind.severity().as_str(), "repair": one.kind.repair().as_str(),
        })
    });
    json!({
        "clean": found.is_clean(), "tasks": found.tasks, "events": found.events,
        "rows": rows.collect::<Vec<_>>(),
        "contradictions": contradictions.collect::<Vec<_>>(),
        "index": found.index,
    })
}

type LedgerEnd = std::result::Result<Exit, LedgerCommandError>;

async fn check(ledger: &Ledger, out: &mut OutputGate) -> LedgerEnd {
    let found = ledger.check().await?;
    if out.json {
        out.object(findings(&found));
    } else {
        say_rows(&found, out);
        for one in &found.inconsistencies {
            let name = out.paint.paint(TextTone::Bad, one.kind.as_str());
            let words = style::harmless(&one.words);
            out.data(&format!("{}: {name}: {words}", one.task_id));
            out.data(&format!("  repair: {}", one.kind.repair()));
        }
        for words in &found.index {
            out.data(&format!("index: {words}"));
        }
        out.say(&format!(
            "{} tasks with {} events: {}",
            found.tasks,
            found.events,
            if found.is_clean() {
                "everything fits"
            } else {
                "see above"
            }
        ));
    }
    Ok(exit_if(found.is_clean()))
}

fn say_rows(found: &CheckFindings, out: &mut OutputGate) {
    for row in &found.rows {
        out.data(&format!("{}: {}", row.task_id, style::harmless(&row.words)));
    }
}

fn exit_if(good: bool) -> Exit {
    if good { Exit::Success } else { Exit::Error }
}

async fn check_rows(ledger: &Ledger, out: &mut OutputGate) -> LedgerEnd {
    let found = ledger.check().await?;
    let same = found.rows.is_empty() && found.index.is_empty();
    if out.json {
        out.object(findings(&found));
    } else {
        say_rows(&found, out);
        for words in &found.index {
            out.data(&format!("index: {words}"));
        }
        let words = if same {
            "every row is what its events add up to"
        } else {
            "`runner ledger rebuild` makes them anew"
        };
        out.say(&format!("{} tasks: {words}", found.tasks));
    }
    Ok(exit_if(same))
}

async fn rebuild(ledger: &Ledger, out: &mut OutputGate) -> LedgerEnd {
    let rebuilt = ledger.rebuild().await?;
    if out.json {
        let hopeless = rebuilt.hopeless.iter();
        let hopeless = hopeless.map(|row| json!({"task_id": row.task_id, "words": row.words}));
        out.object(json!({
            "tasks": rebuilt.tasks, "repaired": rebuilt.repaired,
            "released": rebuilt.released, "mended": rebuilt.repaired_tasks,
            "hopeless": hopeless.collect::<Vec<_>>(),
        }));
    } else {
        for row in &rebuilt.hopeless {
            out.data(&format!("{}: {}", row.task_id, style::harmless(&row.words)));
        }
        for id in &rebuilt.repaired_tasks {
            out.data(&format!("{id}: mended, see `runner task events {id}`"));
        }
        if rebuilt.released > 0 {
            let released = rebuilt.released;
            out.data(&format!("{released} locks and leases of no task ended"));
        }
        out.say(&format!(
            "{} of {} rows made anew, {} cannot be",
            rebuilt.repaired,
            rebuilt.tasks,
            rebuilt.hopeless.len()
        ));
    }
    Ok(exit_if(rebuilt.hopeless.is_empty()))
}

async fn export(ledger: &Ledger, file: Option<&Path>, out: &mut OutputGate) -> LedgerEnd {
    let named = file.unwrap_or(Path::new("stdout"));
    let to: Box<dyn Write + Send> = match file {
        Some(path) => Box::new(create(path)?),
        None => Box::new(std::io::stdout()),
    };
    let mut to = FileError {
        to: BufWriter::new(to),
        error: None,
    };
    let written = ledger.export(&mut to).await;
    let flushed = to.flush();
    if let (Some(path), true) = (file, written.is_err() || flushed.is_err()) {
        // Half an export is none.
        std::fs::remove_file(path).ok();
    }
    if let Some(error) = to.error.take().or(flushed.err()) {
        return Err(io(named, &error));
    }
    let exported = written?;
    // To stdout the export itself is the data.
    if out.json && file.is_some() {
        out.object(json!({"tasks": exported.tasks, "lines": exported.lines, "file": file}));
    } else {
        let (tasks, lines) = (exported.tasks, exported.lines);
        out.say(&format!(
            "{tasks} tasks, {lines} lines to {}",
            named.display()
        ));
    }
    Ok(Exit::Success)
}

fn create(path: &Path) -> std::result::Result<std::fs::File, LedgerCommandError> {
    std::fs::File::create_new(path).map_err(|error| {
        if error.kind() == std::io::ErrorKind::AlreadyExists {
            let words = format!("{} is there already", path.display());
            return LedgerCommandError::Usage(
                Error::new(ErrorCode::Io, words).hint("name a new file"),
            );
        }
        io(path, &error)
    })
}

/// Remembers what went wrong with the file, which is no error of the ledger.
struct FileError<W> {
    to: W,
    error: Option<std::io::Error>,
}

impl<W: Write> Write for FileError<W> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.to.write(bytes).map_err(|error| {
            let kind = error.kind();
            self.error = Some(error);
            kind.into()
        })
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.to.flush()
    }
}

async fn import(ledger: &Ledger, file: &Path, out: &mut OutputGate) -> LedgerEnd {
    let mut from: Box<dyn BufRead + Send> = if file == Path::new("-") {
        Box::new(BufReader::new(std::io::stdin()))
    } else {
        let opened = std::fs::File::open(file).map_err(|error| io(file, &error))?;
        Box::new(BufReader::new(opened))
    };
    let imported = ledger.import(&mut *from).await?;
    if out.json {
        out.object(json!({"tasks": imported.tasks, "events": imported.events}));
    } else {
        let (tasks, events) = (imported.tasks, imported.events);
        out.say(&format!("{tasks} tasks with {events} events"));
    }
    Ok(Exit::Success)
}

pub(crate) fn io(path: &Path, error: &std::io::Error) -> LedgerCommandError {
    LedgerCommandError::Usage(Error::new(
        ErrorCode::Io,
        format!("{}: {error}", path.display()),
    ))
}
