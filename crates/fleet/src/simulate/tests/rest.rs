//! When a fleet is at rest: nobody is told so while something moves.

use std::sync::atomic::{AtomicBool, Ordering};

use super::scenarios::task;
use super::*;
use crate::backlog::{FleetBacklog, OutsideWork};
use crate::up::fleet_is_at_rest;
use crate::workspaces::WorkspaceFuture;

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
            .block_on(fleet_is_at_rest(&context, false))
            .unwrap()
    };
    assert!(!rests(), "a task was made and called off meanwhile");
    assert!(rests());
}
