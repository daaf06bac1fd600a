//! When a fleet is at rest: nobody is told so while something moves.

use std::sync::atomic::{AtomicBool, Ordering};

use super::scenarios::task;
use super::*;
use crate::backlog::{FleetBacklog, OutsideWork};
use crate::ledger_port::CallPoints;
use crate::rules::draft::TaskDefaults;
use crate::rules::issue::SourceIssue;
use crate::up::fleet_is_at_rest;
use crate::workspaces::{BoxFuture, StopHandle, WorkspaceFuture};

/// Something is written, once, in the middle of a look.
struct InBetween {
    ledger: Ledger,
    written: AtomicBool,
}

impl FleetBacklog for InBetween {
    fn requirement(&self) -> WorkspaceFuture<'_, String> {
        Box::pin(async {
            if !self.written.swap(true, Ordering::SeqCst) {
                for request in [
                    Request::Create(task(0)),
                    Request::Cancel {
                        reason: "no".to_owned(),
                    },
                ] {
                    let call = LedgerCall::new(task(0).id, "person", request);
                    self.ledger.call(&call).await.unwrap();
                }
            }
            Ok(String::new())
        })
    }

    fn sync(&self) -> WorkspaceFuture<'_, OutsideWork> {
        Box::pin(std::future::ready(Ok(OutsideWork::default())))
    }
}

#[test]
fn looks_between_which_somebody_wrote_are_no_rest() {
    let options = SimOptions::default();
    let world = SimWorld::new(1, None, false);
    let script = SimScript::calm(Vec::new());
    let simulation = Simulation::new(world, script, &options).unwrap();
    let ledger = simulation.ledger.clone();
    let context = RoleContext {
        ledger: LedgerPort::new(ledger.clone()),
        backlog: Arc::new(InBetween {
            ledger,
            written: AtomicBool::new(false),
        }),
        ..simulation.context(0, &options)
    };
    let rests = || {
        simulation
            .runtime
            .block_on(fleet_is_at_rest(&context, None, false))
            .unwrap()
    };
    assert!(!rests(), "a task was made and called off meanwhile");
    assert!(rests());
}

/// An issue that says no role when its task is made, and one right after.
struct LateRole {
    ledger: Ledger,
}

impl LateRole {
    fn issue(labels: &[&str]) -> SourceIssue {
        SourceIssue {
            number: 1,
            title: "An issue".to_owned(),
            closed: false,
            labels: labels.iter().map(|&label| label.to_owned()).collect(),
            body: String::new(),
            lines_before: 0,
        }
    }
}

impl FleetBacklog for LateRole {
    fn requirement(&self) -> WorkspaceFuture<'_, String> {
        Box::pin(std::future::ready(Ok(String::new())))
    }

    fn sync(&self) -> WorkspaceFuture<'_, OutsideWork> {
        Box::pin(async {
            let defaults = TaskDefaults::from(&FleetConfig::default());
            let new = Self::issue(&[]).task("local", &defaults).unwrap();
            let is_there = self.ledger.task(&new.id).await.unwrap().is_some();
            let facts = Self::issue(&["role:worker"]).facts("local", &defaults);
            Ok(OutsideWork {
                tasks: if is_there { Vec::new() } else { vec![new] },
                issues: [("local#1".to_owned(), facts)].into(),
                ..OutsideWork::default()
            })
        })
    }
}

/// Before the cycle manager leads a task on, somebody asks whether the fleet is at rest.
struct LooksBefore {
    context: RoleContext,
    cycles: Arc<CycleStatistics>,
    /// By the tasks alone, and with what the cycle manager is at.
    answers: Mutex<Option<(bool, bool)>>,
    done: tokio::sync::Notify,
}

impl CallPoints for LooksBefore {
    fn reach<'a>(&'a self, call: &'static str, after: bool) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            if call != "recover" || after {
                return;
            }
            let rests = async |cycles| {
                fleet_is_at_rest(&self.context, cycles, false)
                    .await
                    .unwrap()
            };
            let answers = (rests(None).await, rests(Some(&*self.cycles)).await);
            *self.answers.lock().unwrap() = Some(answers);
            self.done.notify_one();
        })
    }

    fn carry<'a>(&'a self, call: BoxFuture<'a, ()>) -> BoxFuture<'a, ()> {
        call
    }

    fn loses(&self, _call: &'static str) -> bool {
        false
    }
}

#[test]
fn a_task_that_the_cycle_manager_is_about_to_lead_on_is_no_rest() {
    let options = SimOptions::default();
    let world = SimWorld::new(1, None, false);
    let simulation = Simulation::new(world, SimScript::calm(Vec::new()), &options).unwrap();
    let ledger = simulation.ledger.clone();
    let context = RoleContext {
        ledger: LedgerPort::new(ledger.clone()),
        backlog: Arc::new(LateRole {
            ledger: ledger.clone(),
        }),
        ..simulation.context(0, &options)
    };
    let cycles = Arc::new(CycleStatistics::default());
    let looks = Arc::new(LooksBefore {
        context: context.clone(),
        cycles: Arc::clone(&cycles),
        answers: Mutex::default(),
        done: tokio::sync::Notify::new(),
    });
    let watched = RoleContext {
        ledger: LedgerPort::with_points(ledger, Arc::clone(&looks) as Arc<_>),
        ..context
    };
    let (_handle, stop) = StopHandle::new();
    simulation.runtime.block_on(async {
        tokio::select! {
            ended = cycle::run(&watched, "cycle-1", &cycles, stop) => ended.unwrap(),
            () = looks.done.notified() => {}
        }
    });
    let answers = *looks.answers.lock().unwrap();
    assert_eq!(
        answers,
        Some((true, false)),
        "by the tasks, with the look that goes on"
    );
}
