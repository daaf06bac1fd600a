//! The watchdog: ends what nobody renewed, and wakes what waited for a clock.

use runner_ledger::{LedgerError, Watchdog};

use super::{RoleContext, StoreBackoff};
use crate::ledger_port::LedgerResult;
use crate::workspaces::StopSign;

/// Keeps watch until the sign is raised. Several may: whoever is late finds nothing to do.
pub async fn run(context: &RoleContext, name: &str, mut stop: StopSign) -> LedgerResult<()> {
    let mut backoff = StoreBackoff::default();
    let mut watchdog = loop {
        match Watchdog::new(context.ledger.ledger().clone(), name).await {
            Ok(watchdog) => break watchdog,
            Err(error) => {
                let error = LedgerError::from(error);
                if !error.is_transient() || stop.is_raised() {
                    return Err(error);
                }
                context.pause(backoff.next_secs(), &mut stop).await;
            }
        }
    };
    while !stop.is_raised() {
        let turn = context.ledger.watchdog_look(&mut watchdog).await;
        if backoff
            .pause_if_transient(context, &mut stop, turn)
            .await?
            .is_some()
        {
            watchdog.wait(stop.raised()).await?;
        }
    }
    Ok(())
}
