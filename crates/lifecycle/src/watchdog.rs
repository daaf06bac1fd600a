//! The clocks of the ledger: when a lease ends, and when to look next.

use crate::policy::Policy;
use crate::row::{Blocker, Task};
use crate::run::Lease;
use crate::time::Timestamp;
use crate::words::BlockReason;

/// What the watchdog does about a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaseCheck {
    /// Nothing before that time.
    Later(Timestamp),
    /// The watchdog itself was asleep: a heartbeat gets one interval more.
    Grace(Timestamp),
    /// Nothing was heard in time.
    Expired,
    /// The length is used up.
    TimeboxOver,
    /// Not one heartbeat since the claim: it is taken back, and nothing is counted.
    NeverBegan,
}

/// Looks at a lease. `armed` is the time at which this look was due: a watchdog woken
/// more than one interval later, by a suspended machine, cannot tell who was silent.
pub fn look(lease: &Lease, armed: Timestamp, now: Timestamp) -> LeaseCheck {
    let interval = u64::from(lease.heartbeat_interval_seconds);
    if lease.is_expired(now) {
        let late = now.millis_since(armed) > interval.saturating_mul(1000);
        return if late {
            LeaseCheck::Grace(now.plus_secs(interval))
        } else {
            LeaseCheck::Expired
        };
    }
    if lease.never_began(now) {
        return LeaseCheck::NeverBegan;
    }
    if now >= lease.ends_at {
        return LeaseCheck::TimeboxOver;
    }
    LeaseCheck::Later(lease_deadline(lease))
}

/// When a lease wants to be looked at: at the end of the first interval while its owner
/// has not said a word, else when it ends or its length is used up.
pub fn lease_deadline(lease: &Lease) -> Timestamp {
    let end = lease.expires_at().min(lease.ends_at);
    if lease.last_heartbeat_at == lease.claimed_at {
        let interval = u64::from(lease.heartbeat_interval_seconds);
        end.min(lease.claimed_at.plus_secs(interval))
    } else {
        end
    }
}

/// Whether an owner must end its work before anything else: by its own clock it could not
/// renew for the length of the lease less one interval, so that nothing of it runs
/// beside its successor.
pub fn owner_must_stop(lease: &Lease, millis_since_renewal: u64) -> bool {
    let secs = lease
        .timeout_seconds
        .saturating_sub(lease.heartbeat_interval_seconds);
    millis_since_renewal >= u64::from(secs) * 1000
}

/// Whether an agent counts as offline: three intervals without a word. It gets nothing
/// new; what it has is decided by its leases alone.
pub fn is_offline(last_heard: Timestamp, interval_seconds: u32, now: Timestamp) -> bool {
    now >= last_heard.plus_secs(3 * u64::from(interval_seconds))
}

/// When the next thing is due: a lease that wants a look, a retry, the end of a grace.
/// None: nothing before somebody writes.
pub fn next_deadline<'l, 't>(
    policy: &Policy,
    leases: impl IntoIterator<Item = &'l Lease>,
    tasks: impl IntoIterator<Item = &'t Task>,
) -> Option<Timestamp> {
    let leases = leases.into_iter().map(lease_deadline);
    let blocks = tasks
        .into_iter()
        .filter_map(|task| task.blocker.as_ref())
        .filter_map(|blocker| block_deadline(policy, blocker));
    leases.chain(blocks).min()
}

/// When a block ends by a clock, if it does.
fn block_deadline(policy: &Policy, blocker: &Blocker) -> Option<Timestamp> {
    match blocker.code {
        BlockReason::DependencyNotMet => {
            Some(blocker.since.plus_secs(policy.dependency_grace_secs))
        }
        _ => blocker.retry_at,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::row::TaskId;
    use crate::words::{LeasePurpose, TaskState};

    fn lease(last_heartbeat_at: i64, ends_at: i64) -> Lease {
        Lease {
            task_id: TaskId::parse("t").unwrap(),
            run_id: "t-1".to_owned(),
            owner: "w".to_owned(),
            token: 1,
            purpose: LeasePurpose::Work,
            key: "k".to_owned(),
            claimed_at: Timestamp(-1),
            last_heartbeat_at: Timestamp(last_heartbeat_at),
            timeout_seconds: 90,
            heartbeat_interval_seconds: 15,
            ends_at: Timestamp(ends_at),
        }
    }

    #[test]
    fn looks() {
        let at = Timestamp;
        for (heard, ends, armed, now, expected) in [
            (0, 3_600_000, 90_000, 89_999, LeaseCheck::Later(at(90_000))),
            (0, 3_600_000, 90_000, 90_000, LeaseCheck::Expired),
            (0, 3_600_000, 90_000, 105_000, LeaseCheck::Expired),
            (
                0,
                3_600_000,
                90_000,
                105_001,
                LeaseCheck::Grace(at(120_001)),
            ),
            (
                15_000,
                3_600_000,
                90_000,
                90_000,
                LeaseCheck::Later(at(105_000)),
            ),
            (0, 60_000, 60_000, 60_000, LeaseCheck::TimeboxOver),
            (0, 60_000, 60_000, 59_999, LeaseCheck::Later(at(60_000))),
            (0, 60_000, 90_000, 90_000, LeaseCheck::Expired),
        ] {
            let got = look(&lease(heard, ends), at(armed), at(now));
            assert_eq!(got, expected, "{heard} {ends} {armed} {now}");
        }
    }

    #[test]
    fn an_owner_that_never_began() {
        let mut lease = lease(0, 3_600_000);
        lease.claimed_at = Timestamp(0);
        let boundary = Timestamp(15_000);
        assert_eq!(lease_deadline(&lease), boundary);
        assert_eq!(
            look(&lease, boundary, Timestamp(14_999)),
            LeaseCheck::Later(boundary)
        );
        assert_eq!(look(&lease, boundary, boundary), LeaseCheck::NeverBegan);
        lease.last_heartbeat_at = Timestamp(1);
        assert_eq!(lease_deadline(&lease), Timestamp(90_001));
        assert!(!lease.never_began(Timestamp(60_000)));
    }

    #[test]
    fn an_owner_stops_before_its_lease_ends() {
        let lease = lease(0, 3_600_000);
        assert!(!owner_must_stop(&lease, 74_999));
        assert!(owner_must_stop(&lease, 75_000));
    }

    #[test]
    fn offline_after_three_intervals() {
        assert!(!is_offline(Timestamp(0), 15, Timestamp(44_999)));
        assert!(is_offline(Timestamp(0), 15, Timestamp(45_000)));
    }

    #[test]
    fn the_armed_deadline_is_the_boundary() {
        let mut task = Task::blank(TaskId::parse("t").unwrap());
        let policy = Policy::default();
        assert_eq!(next_deadline(&policy, [], [&task]), None);
        task.state = TaskState::Blocked;
        let mut blocker = task.blocker_of(BlockReason::Cooldown, "wait", Timestamp(0));
        blocker.retry_at = Some(Timestamp(70_000));
        task.blocker = Some(blocker);
        assert_eq!(next_deadline(&policy, [], [&task]), Some(Timestamp(70_000)));
        let leases = [lease(0, 3_600_000), lease(0, 50_000)];
        assert_eq!(
            next_deadline(&policy, &leases[..1], []),
            Some(Timestamp(90_000))
        );
        assert_eq!(
            next_deadline(&policy, &leases, [&task]),
            Some(Timestamp(50_000))
        );
        let dead = task.blocker_of(BlockReason::DependencyNotMet, "wait", Timestamp(5));
        task.blocker = Some(dead);
        let day = Timestamp(5).plus_secs(24 * 3600);
        assert_eq!(next_deadline(&policy, [], [&task]), Some(day));
    }
}
