//! Keeping a lease while work goes on.

use runner_ledger::LedgerError;
use runner_lifecycle::run::Lease;

use super::{RoleContext, RoleRule, StoreBackoff};
use crate::workspaces::StopHandle;

/// Renews a lease again and again. Returns when it is not ours any longer, or could not be
/// renewed for so long that it may not be: then the work was told to stop.
///
/// It beats a little more often than it must, so that one that comes late is none that is
/// missed.
pub(crate) async fn keep_alive(context: &RoleContext, lease: &Lease, stop_handle: &StopHandle) {
    let interval = u64::from(lease.heartbeat_interval_seconds) * 1000;
    let beat_millis = interval * 2 / 3;
    let give_up_after_millis = (u64::from(lease.timeout_seconds) * 1000).saturating_sub(interval);
    let mut renewed = context.clock.steady_millis();
    let mut failures = StoreBackoff::default();
    loop {
        let asked = context.clock.steady_millis();
        let left = (renewed + give_up_after_millis).saturating_sub(asked);
        let last = context.clock.now().plus_millis(left);
        let answer = tokio::select! {
            biased;
            answer = context.ledger.heartbeat(lease) => Some(answer),
            () = context.clock.sleep_until(last) => None,
        };
        let mut pause = beat_millis;
        match answer {
            Some(Ok(_)) => {
                renewed = asked;
                failures.over();
            }
            Some(Err(LedgerError::Refused(_))) => break,
            Some(Err(LedgerError::Store(_))) | None => {
                pause = (failures.next_secs() * 1000).min(beat_millis);
            }
        }
        let now = context.clock.steady_millis();
        let left = (renewed + give_up_after_millis).saturating_sub(now);
        if left == 0 {
            break;
        }
        let next = context.clock.now().plus_millis(pause.min(left));
        context.clock.sleep_until(next).await;
        if !context.keeps(RoleRule::Heartbeats) {
            std::future::pending::<()>().await;
        }
    }
    stop_handle.stop();
}

/// Works while the lease is kept. What was told to stop is still waited for: it ends its
/// children first.
pub(crate) async fn while_kept<T>(
    context: &RoleContext,
    lease: &Lease,
    stop_handle: &StopHandle,
    work: impl Future<Output = T>,
) -> T {
    let mut work = std::pin::pin!(work);
    tokio::select! {
        biased;
        done = &mut work => return done,
        () = keep_alive(context, lease, stop_handle) => {}
    }
    work.await
}
