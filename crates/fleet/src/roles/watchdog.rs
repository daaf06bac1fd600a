//! The watchdog: ends what nobody renewed, and wakes what waited for a clock.

use runner_ledger::{LedgerError, Watchdog};

use super::{RoleContext, StoreBackoff};
use crate::ledger_port::LedgerResult;
use crate::workspaces::StopSign;

/// Keeps watch until the sign is raised. Several may: whoever is late finds nothing to do.
pub async fn run(crew: &RoleContext, name: &str, mut stop: StopSign) -> LedgerResult<()> {
    let mut patience = StoreBackoff::default();
    let mut keeper = loop {
        match Watchdog::new(crew.book.ledger().clone(), name).await {
            Ok(keeper) => break keeper,
            Err(error) => {
                let error = LedgerError::from(error);
                if !error.is_transient() || stop.is_raised() {
                    return Err(error);
                }
                crew.pause(patience.next_secs(), &mut stop).await;
            }
        }
    };
    while !stop.is_raised() {
        let turn = crew.book.keep(&mut keeper).await;
        if patience.bear(crew, &mut stop, turn).await?.is_some() {
            keeper.wait(stop.raised()).await?;
        }
    }
    Ok(())
}
