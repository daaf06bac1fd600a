//! How a lease ended, from the words of the command line to a request.
//!
//! A repeat must be the same request: what the words leave out is looked up by the token,
//! which is that of one claim for good, and never by what is newest.

use std::io::Read as _;
use std::path::Path;

use runner_ledger::Ledger;
use runner_lifecycle::packet::ResultPacket;
use runner_lifecycle::request::{JudgeEnding, WorkEnding};
use runner_lifecycle::row::{FieldChange, Intent};
use runner_lifecycle::{
    BasePosition, FailureCategory, Refusal, RefusalCode, Request, ReworkCause, TaskId, Timestamp,
};

use super::{show, usage, word};
use crate::commands::ledger::{LedgerCommandError, io};
use crate::ledger_args::FinishArgs;

type EndingResult<T> = std::result::Result<T, LedgerCommandError>;

/// The run that began with that token; empty if none did.
pub(super) async fn run_id(ledger: &Ledger, id: &TaskId, token: u64) -> EndingResult<String> {
    if ledger.task(id).await?.is_none() {
        return Err(show::unknown(id));
    }
    let runs = ledger.runs(id).await?;
    let run = runs.into_iter().find(|run| run.token == token);
    Ok(run.map(|run| run.id).unwrap_or_default())
}

/// The intent that is open, else the one that was recorded last.
async fn intent(ledger: &Ledger, id: &TaskId) -> EndingResult<Intent> {
    let recorded = |change: &FieldChange| match change {
        FieldChange::intent(intent) => intent.clone(),
        _ => None,
    };
    let events = ledger.events(id).await?;
    let last = events
        .iter()
        .rev()
        .find_map(|event| event.changes.iter().find_map(recorded));
    last.ok_or_else(|| {
        Refusal::new(
            RefusalCode::InvalidTransition,
            format!("task {id} has no open intent: record one with --intent OLD NEW"),
        )
        .into()
    })
}

fn read_packet(path: Option<&Path>) -> EndingResult<ResultPacket> {
    let path = path.unwrap_or(Path::new("-"));
    let mut bytes = Vec::new();
    let read = if path == Path::new("-") {
        std::io::stdin().read_to_end(&mut bytes)
    } else {
        std::fs::File::open(path).and_then(|mut file| file.read_to_end(&mut bytes))
    };
    read.map_err(|error| io(path, &error))?;
    Ok(ResultPacket::parse(&bytes)?)
}

/// A point in time as people and providers write it.
fn time(text: &str) -> EndingResult<Timestamp> {
    let parsed: Result<jiff::Timestamp, jiff::Error> = text.parse();
    let at = parsed.map_err(|_| {
        usage(format!(
            "{text:?} is no time: write it as 2026-01-31T18:00:00Z"
        ))
    })?;
    Ok(Timestamp(at.as_millisecond()))
}

/// The request that these words make.
pub(super) async fn request(
    ledger: &Ledger,
    id: &TaskId,
    args: &FinishArgs,
) -> EndingResult<Request> {
    let token = args.lease.token;
    let run_id = run_id(ledger, id, token).await?;
    if let Some(ending) = of_judge(args)? {
        return Ok(Request::Judge { token, ending });
    }
    if let Some([old, new]) = args.intent.as_deref() {
        return Ok(Request::RecordIntent {
            token,
            intent: Intent {
                old_base: old.clone(),
                merge_commit: new.clone(),
            },
            packet: read_packet(args.packet.as_deref())?,
        });
    }
    if let Some(base) = &args.settle {
        return Ok(Request::SettleIntent {
            token,
            intent: intent(ledger, id).await?,
            base: word!(BasePosition, "place of a base", base)?,
        });
    }
    if let Some(account) = &args.quota {
        let (account, reset_at) = (account.clone(), args.until.as_deref().map(time));
        let reset_at = reset_at.transpose()?;
        // A claim to judge begins no run.
        if run_id.is_empty() {
            let ending = JudgeEnding::Quota { reset_at, account };
            return Ok(Request::Judge { token, ending });
        }
        let ending = WorkEnding::Quota { reset_at, account };
        return Ok(Request::Finish {
            token,
            run_id,
            ending,
        });
    }
    Ok(Request::Finish {
        token,
        run_id,
        ending: of_work(args)?,
    })
}

fn of_judge(args: &FinishArgs) -> EndingResult<Option<JudgeEnding>> {
    let reason = || args.note.clone();
    Ok(if args.approve {
        let packet = read_packet(args.packet.as_deref())?;
        Some(JudgeEnding::Approve { packet })
    } else if let Some(cause) = &args.reject {
        Some(JudgeEnding::Reject {
            cause: word!(ReworkCause, "cause", cause)?,
            remarks: Vec::new(),
            reason: reason(),
        })
    } else if args.unable {
        Some(JudgeEnding::Unable { reason: reason() })
    } else {
        args.step_back
            .then(|| JudgeEnding::StepBack { reason: reason() })
    })
}

fn of_work(args: &FinishArgs) -> EndingResult<WorkEnding> {
    Ok(if args.success {
        WorkEnding::Success {
            result: args.result.clone(),
            packet: read_packet(args.packet.as_deref())?,
        }
    } else if let Some(category) = &args.failed {
        WorkEnding::Failed {
            category: word!(FailureCategory, "category", category)?,
            signature: args.signature.clone(),
            note: args.note.clone(),
        }
    } else if args.give_back {
        WorkEnding::GivenBack
    } else {
        WorkEnding::Lost
    })
}
