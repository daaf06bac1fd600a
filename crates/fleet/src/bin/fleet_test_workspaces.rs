//! For the tests of runner-fleet only, never shipped: workspaces in a process of their own, with
//! its own environment, to be asked one thing and, if need be, to be killed.
//!
//! ```text
//! fleet-test-workspaces __supervise …    the supervisor, and the launchers of the sandbox
//! fleet-test-workspaces OP JSON          asks the workspaces of the project in this folder
//! ```

use std::io::{self, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use runner_exec::Supervisor;
use runner_fleet::local::{LocalWorkspaces, WorkspaceContext};
use runner_fleet::workspaces::{
    BaseUpdate, CheckEnd, CheckOutcome, PlanOrder, ReviewOrder, ReviewReply, StopHandle, StopSign,
    TaskMergeOutcome, WorkOrder, WorkOutcome, WorkspaceError, Workspaces,
};
use runner_lifecycle::packet::{Assignment, ResourceChange};
use runner_lifecycle::row::{Criterion, Intent, ReviewRemark};
use runner_lifecycle::{CriterionCheck, Task, TaskId};
use serde::Deserialize;
use serde_json::{Value, json};

fn main() -> ExitCode {
    let mut args = std::env::args_os().skip(1);
    let op = args.next().unwrap_or_default();
    if let Some(code) = runner::launcher_main(&op, args.by_ref()) {
        return code;
    }
    let op = op.to_string_lossy().into_owned();
    let order = args.next().unwrap_or_default();
    let order = serde_json::from_slice(order.as_encoded_bytes()).unwrap_or(Value::Null);
    match answer(&op, order) {
        Ok(answer) => {
            let _ = writeln!(io::stdout(), "{answer}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            let _ = writeln!(io::stderr(), "{error}");
            ExitCode::FAILURE
        }
    }
}

/// Everything that any of the questions needs.
#[derive(Deserialize)]
#[serde(default)]
struct TestOrder {
    base_branch: Option<String>,
    task: String,
    commands: Vec<String>,
    timebox: u32,
    run_id: String,
    token: u64,
    earlier: Option<String>,
    model: Option<String>,
    start: String,
    result: String,
    commit: String,
    base: String,
    old: String,
    new: String,
    requirement: String,
    findings: Vec<String>,
    in_use: Vec<(String, String, u64)>,
    /// The stop sign is raised once this file is there.
    stop_when: Option<PathBuf>,
    /// Orders that are worked on at the same time.
    all: Vec<TestOrder>,
}

impl Default for TestOrder {
    fn default() -> Self {
        TestOrder {
            base_branch: None,
            task: "task".to_owned(),
            commands: Vec::new(),
            timebox: 600,
            run_id: "task-1".to_owned(),
            token: 1,
            earlier: None,
            model: None,
            start: String::new(),
            result: String::new(),
            commit: String::new(),
            base: String::new(),
            old: String::new(),
            new: String::new(),
            requirement: String::new(),
            findings: Vec::new(),
            in_use: Vec::new(),
            stop_when: None,
            all: Vec::new(),
        }
    }
}

fn error(error: impl std::fmt::Display) -> WorkspaceError {
    WorkspaceError(error.to_string())
}

fn answer(op: &str, order: Value) -> Result<Value, WorkspaceError> {
    let order = match order {
        Value::Null => TestOrder::default(),
        order => serde_json::from_value(order).map_err(error)?,
    };
    let workspaces = LocalWorkspaces::open(WorkspaceContext {
        root: std::env::current_dir().map_err(error)?,
        base: order.base_branch.clone(),
        supervisor: Supervisor::this_binary(),
        watcher: None,
    })?;
    tokio::runtime::Runtime::new()
        .map_err(error)?
        .block_on(ask(&workspaces, op, order))
}

async fn ask(
    workspaces: &LocalWorkspaces,
    op: &str,
    order: TestOrder,
) -> Result<Value, WorkspaceError> {
    // It lives until the end: dropping it would raise the sign.
    let (stop_handle, stop) = StopHandle::new();
    if let Some(path) = order.stop_when.clone() {
        tokio::spawn(async move {
            while !path.exists() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            stop_handle.stop();
            std::future::pending::<()>().await;
        });
    } else {
        std::mem::forget(stop_handle);
    }
    let intent = Intent {
        old_base: order.old.clone(),
        merge_commit: order.new.clone(),
    };
    Ok(match op {
        "base" => json!(workspaces.base().await?),
        "work" => work(workspaces, &order, stop).await?,
        "works" => {
            let runs: Vec<_> = order
                .all
                .into_iter()
                .map(|order| {
                    let (workspaces, stop) = (workspaces.clone(), stop.clone());
                    tokio::spawn(async move { work(&workspaces, &order, stop).await })
                })
                .collect();
            let mut all = Vec::new();
            for run in runs {
                all.push(run.await.map_err(error)??);
            }
            json!(all)
        }
        "start_of" => json!(workspaces.start_of(order.result).await?),
        "changes" => json!(
            workspaces
                .changes(order.start, order.result)
                .await?
                .map(|it| changes(&it))
        ),
        "diff_bytes" => json!(workspaces.diff_bytes(order.start, order.result).await?),
        "check" => {
            let task = task(&order)?;
            let checks = workspaces.check(order.commit, Some(task), stop).await?;
            json!(checks.iter().map(checked).collect::<Vec<_>>())
        }
        "review" => review(workspaces, &order, stop).await?,
        "plan" => {
            let order = PlanOrder {
                requirement: order.requirement,
                findings: order.findings,
                attempt: 1,
            };
            json!(workspaces.plan(order, stop).await?)
        }
        "merge" => {
            let task = task(&order)?;
            match workspaces
                .merge(order.base, order.result, task, order.run_id)
                .await?
            {
                TaskMergeOutcome::Commit(commit) => json!({"commit": commit}),
                TaskMergeOutcome::Conflicts(paths) => json!({"conflicts": paths}),
                TaskMergeOutcome::Empty => json!("empty"),
                TaskMergeOutcome::Missing => json!("missing"),
            }
        }
        "position" => json!(workspaces.position(intent).await?.as_str()),
        "move" => json!(workspaces.move_base(intent).await?),
        "present" => match workspaces.update_user_branch().await? {
            BaseUpdate::UpToDate => json!("up to date"),
            BaseUpdate::Behind(why) => json!({"behind": why}),
        },
        "sweep" => {
            let mut gone = workspaces.leftover_runs().await?;
            gone.retain(|it| {
                let run = (it.task.to_string(), it.run_id.clone(), it.token);
                !order.in_use.contains(&run)
            });
            workspaces.sweep(gone).await?;
            json!("swept")
        }
        other => return Err(WorkspaceError(format!("there is no {other:?}"))),
    })
}

fn task(order: &TestOrder) -> Result<Task, WorkspaceError> {
    let mut task = Task::blank(TaskId::parse(&order.task).map_err(error)?);
    task.title = format!("Do {}", order.task);
    "As the script says.".clone_into(&mut task.goal);
    task.commands.clone_from(&order.commands);
    task.timebox_seconds = order.timebox;
    Ok(task)
}

async fn work(
    workspaces: &LocalWorkspaces,
    order: &TestOrder,
    stop: StopSign,
) -> Result<Value, WorkspaceError> {
    let assignment: Assignment = serde_json::from_value(json!({
        "schema_version": "1.0.0", "run_id": order.run_id, "packet_type": "assignment",
        "global_objective": "", "active_locks": [], "context_package": [],
        "required_output_schema": {},
        "task": {
            "task_id": order.task, "title": "", "type": "parallelizable", "dependencies": [],
            "lock_scope": ["."], "forbidden_scope": [], "acceptance_criteria": [],
            "worklog_path": "x", "timeout_seconds": 90, "heartbeat_interval_seconds": 15,
            "priority": "normal"
        }
    }))
    .map_err(error)?;
    let worked = workspaces
        .work(
            WorkOrder {
                task: task(order)?,
                run_id: order.run_id.clone(),
                token: order.token,
                assignment,
                context: "Be careful.".to_owned(),
                model: order.model.clone(),
                earlier: order.earlier.clone(),
            },
            stop,
        )
        .await?;
    Ok(told(&worked))
}

fn told(worked: &WorkOutcome) -> Value {
    json!({
        "ending": worked.ending.as_str(),
        "start": worked.result.as_ref().map(|it| &it.start),
        "commit": worked.result.as_ref().map(|it| &it.commit),
        "changes": worked.result.as_ref().map(|it| changes(&it.changes)),
        "checks": worked.checks.iter().map(checked).collect::<Vec<_>>(),
        "why": worked.why,
        "quota_until": worked.quota_until.map(|it| it.0),
        "account": worked.account,
        "spent": worked.spent,
    })
}

fn changes(changes: &[ResourceChange]) -> Vec<String> {
    let one = |it: &ResourceChange| format!("{} {}", it.action.as_str(), it.resource);
    changes.iter().map(one).collect()
}

fn checked(check: &CheckOutcome) -> Value {
    let end = match check.end {
        CheckEnd::Green => "green",
        CheckEnd::Red => "red",
        CheckEnd::Unable => "unable",
    };
    json!({"id": check.id, "end": end, "evidence": check.evidence, "tail": check.tail})
}

async fn review(
    workspaces: &LocalWorkspaces,
    order: &TestOrder,
    stop: StopSign,
) -> Result<Value, WorkspaceError> {
    let reviewed = workspaces
        .review(
            ReviewOrder {
                task: task(order)?,
                run_id: order.run_id.clone(),
                token: order.token,
                start: order.start.clone(),
                result: order.result.clone(),
                criteria: vec![Criterion {
                    id: "reads-well".to_owned(),
                    text: "It reads well.".to_owned(),
                    check: CriterionCheck::Review,
                }],
                settled: vec![ReviewRemark {
                    id: "old-finding".to_owned(),
                    text: "It was too long.".to_owned(),
                }],
            },
            stop,
        )
        .await?;
    Ok(match reviewed {
        ReviewReply::Said(text) => json!({"said": text}),
        ReviewReply::Silent => json!("silent"),
        ReviewReply::Quota { until, account } => {
            json!({"quota": until.map(|it| it.0), "account": account})
        }
    })
}
