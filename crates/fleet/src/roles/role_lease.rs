//! Holding a role lease: one dispatcher, one cycle manager, one planner at a time.

use runner_ledger::RoleLeaseAttempt;

use super::{IDLE_INTERVAL_SECS, RoleContext, StoreBackoff};
use crate::ledger_port::LedgerResult;
use crate::workspaces::StopSign;

/// A holder that missed three renewals has lost its role lease.
const ROLE_LEASE_TIMEOUT_SECS: u32 = 3 * IDLE_INTERVAL_SECS;

/// Runs a role for as long as it holds its role lease, and stands by in between. Returns when the
/// sign is raised or the role ended by itself.
pub(crate) async fn while_role_lease_held<F, B>(
    context: &RoleContext,
    name: &str,
    holder: &str,
    mut stop: StopSign,
    role: B,
) -> LedgerResult<()>
where
    B: Fn(u64) -> F,
    F: Future<Output = LedgerResult<()>>,
{
    let mut backoff = StoreBackoff::default();
    while !stop.is_raised() {
        let token = match context
            .ledger
            .take_role_lease(name, holder, ROLE_LEASE_TIMEOUT_SECS)
            .await
        {
            Ok(RoleLeaseAttempt::Yours(token)) => token,
            Ok(RoleLeaseAttempt::Taken { until, .. }) => {
                let until = context.local(until).await?;
                tokio::select! {
                    biased;
                    () = stop.raised() => {}
                    () = context.clock.sleep_until(until) => {}
                }
                continue;
            }
            Err(error) if error.is_transient() => {
                context.pause(backoff.next_secs(), &mut stop).await;
                continue;
            }
            Err(error) => return Err(error),
        };
        backoff.over();
        let ended = tokio::select! {
            biased;
            ended = role(token) => Some(ended),
            () = renew(context, name, token) => None,
        };
        if let Some(ended) = ended {
            // Those who stand by need not wait; if this fails they wait a little.
            drop(context.ledger.release_role_lease(name, token).await);
            return ended;
        }
    }
    Ok(())
}

/// Renews a role lease once a minute. Returns when it is somebody else's.
async fn renew(context: &RoleContext, name: &str, token: u64) {
    loop {
        let next = context.clock.now().plus_secs(u64::from(IDLE_INTERVAL_SECS));
        context.clock.sleep_until(next).await;
        if let Ok(false) = context
            .ledger
            .renew_role_lease(name, token, ROLE_LEASE_TIMEOUT_SECS)
            .await
        {
            return;
        }
    }
}
