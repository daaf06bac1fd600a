//! The end of everybody's work: what only a person can fix is no task's failure.

use std::sync::Arc;

use tokio::sync::watch;

use super::RoleContext;
use crate::workspaces::{StopSign, WorkspaceError};

/// How long somebody waits before a base that could not be read is asked for again: git
/// may have been in the middle of something.
const SECOND_LOOK_SECS: u64 = 2;

/// Says to whoever put the roles to work that nobody can go on.
#[derive(Clone, Debug)]
pub struct FleetHalt(Arc<watch::Sender<Option<String>>>);

impl Default for FleetHalt {
    fn default() -> FleetHalt {
        FleetHalt(Arc::new(watch::Sender::new(None)))
    }
}

impl FleetHalt {
    fn call(&self, error: WorkspaceError) {
        self.0.send_replace(Some(error.0));
    }

    /// Waits until somebody says so, and why.
    pub async fn called(&self) -> String {
        let mut calls = self.0.subscribe();
        match calls.wait_for(Option::is_some).await {
            Ok(words) => words.clone().unwrap_or_default(),
            // Nobody is left who could.
            Err(_) => std::future::pending().await,
        }
    }
}

impl RoleContext {
    /// Whether an error of the workspaces is every task's: there is no base to work for. Then no
    /// task is to blame, and everybody hears of it.
    pub(crate) async fn is_every_tasks_error(&self, stop: &mut StopSign) -> bool {
        if self.workspaces.base().await.is_ok() {
            return false;
        }
        self.pause(SECOND_LOOK_SECS, stop).await;
        match self.workspaces.base().await {
            Ok(_) => false,
            Err(error) => {
                self.halt.call(error);
                true
            }
        }
    }
}
