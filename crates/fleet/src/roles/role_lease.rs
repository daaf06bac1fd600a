//! Sitting on a seat: one dispatcher, one cycle manager, one planner at a time.

use runner_ledger::RoleLeaseAttempt;

use super::{IDLE_INTERVAL_SECS, RoleContext, StoreBackoff};
use crate::ledger_port::LedgerResult;
use crate::workspaces::StopSign;

/// A holder that missed three renewals has lost its seat.
const SEAT_TIMEOUT_SECS: u32 = 3 * IDLE_INTERVAL_SECS;

/// Runs a role for as long as it holds its seat, and stands by in between. Returns when the
/// sign is raised or the role ended by itself.
pub(crate) async fn seated<F, B>(
    crew: &RoleContext,
    seat: &str,
    holder: &str,
    mut stop: StopSign,
    role: B,
) -> LedgerResult<()>
where
    B: Fn(u64) -> F,
    F: Future<Output = LedgerResult<()>>,
{
    let mut patience = StoreBackoff::default();
    while !stop.is_raised() {
        let token = match crew.book.sit(seat, holder, SEAT_TIMEOUT_SECS).await {
            Ok(RoleLeaseAttempt::Yours(token)) => token,
            Ok(RoleLeaseAttempt::Taken { until, .. }) => {
                let until = crew.local(until).await?;
                tokio::select! {
                    biased;
                    () = stop.raised() => {}
                    () = crew.clock.sleep_until(until) => {}
                }
                continue;
            }
            Err(error) if error.is_transient() => {
                crew.pause(patience.next_secs(), &mut stop).await;
                continue;
            }
            Err(error) => return Err(error),
        };
        patience.over();
        let ended = tokio::select! {
            biased;
            ended = role(token) => Some(ended),
            () = renew(crew, seat, token) => None,
        };
        if let Some(ended) = ended {
            // Those who stand by need not wait; if this fails they wait a little.
            drop(crew.book.stand_up(seat, token).await);
            return ended;
        }
    }
    Ok(())
}

/// Renews a seat once a minute. Returns when it is somebody else's.
async fn renew(crew: &RoleContext, seat: &str, token: u64) {
    loop {
        let next = crew.clock.now().plus_secs(u64::from(IDLE_INTERVAL_SECS));
        crew.clock.sleep_until(next).await;
        if let Ok(false) = crew.book.stay(seat, token, SEAT_TIMEOUT_SECS).await {
            return;
        }
    }
}
