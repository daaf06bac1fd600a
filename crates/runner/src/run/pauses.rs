//! How long a loop waits before it tries again.

use std::time::Duration;

use jiff::Timestamp;
use runner_core::meta::RunnerError;

/// Pauses before a transient error is tried again.
const RETRY_DELAYS_SECS: [u64; 3] = [10, 60, 300];

/// How long a quota is waited for when nobody said until when.
const QUOTA_PAUSE: Duration = Duration::from_secs(30 * 60);

/// Shortens the pauses: seconds, separated by commas.
const RETRY_DELAYS_VARIABLE: &str = "RUNNER_RETRY_DELAYS_SECS";

/// The pauses as they are, or as the environment has them.
pub(super) fn retry_delays() -> Vec<u64> {
    std::env::var(RETRY_DELAYS_VARIABLE)
        .ok()
        .and_then(|text| {
            text.split(',')
                .map(|part| part.trim().parse().ok())
                .collect()
        })
        .unwrap_or_else(|| RETRY_DELAYS_SECS.to_vec())
}

/// How long to wait for a quota: until the time that was named and a little more,
/// else half an hour. If the time was wrong, and it is not there yet, longer and longer.
pub(super) fn quota_pause(
    error: &RunnerError,
    quotas: u32,
    delays: &[u64],
    now: Timestamp,
) -> Duration {
    let named = named_pause(error, now).unwrap_or(QUOTA_PAUSE);
    match quotas {
        0 | 1 => named,
        more => named.max(delay(delays, more - 1)),
    }
}

/// How long to wait before the next try: as configured, or longer where the
/// service named a time that is not far away.
pub(super) fn retry_pause(
    error: &RunnerError,
    errors: u32,
    delays: &[u64],
    now: Timestamp,
) -> Duration {
    let pause = delay(delays, errors);
    match named_pause(error, now) {
        Some(named) if named <= QUOTA_PAUSE => pause.max(named),
        _ => pause,
    }
}

/// The pause before the n-th try in a row; the last one for all that follow.
fn delay(delays: &[u64], nth: u32) -> Duration {
    let index = usize::try_from(nth.saturating_sub(1))
        .unwrap_or(0)
        .min(delays.len().saturating_sub(1));
    Duration::from_secs(delays.get(index).copied().unwrap_or(0))
}

/// The time from now until the service can be used again, as it said.
fn named_pause(error: &RunnerError, now: Timestamp) -> Option<Duration> {
    let at: Timestamp = error.retry_at.as_deref()?.parse().ok()?;
    let wait = at.duration_since(now);
    let wait = Duration::try_from(wait).unwrap_or(Duration::ZERO);
    Some(wait + Duration::from_secs(1))
}

#[cfg(test)]
mod tests {
    use runner_core::meta::IterationErrorKind;

    use super::*;

    #[test]
    fn pauses() {
        let now = Timestamp::from_second(1_000_000).unwrap();
        let error = |at: Option<i64>| RunnerError {
            retry_at: at.map(|at| Timestamp::from_second(1_000_000 + at).unwrap().to_string()),
            ..RunnerError::new(IterationErrorKind::Quota, "used up")
        };
        let delays = [10, 60, 300];
        let quota = |at, quotas| quota_pause(&error(at), quotas, &delays, now).as_secs();
        assert_eq!(
            [quota(None, 1), quota(Some(5), 1), quota(Some(-5), 1)],
            [1800, 6, 1]
        );
        // A time that keeps being wrong does not use up the run's iterations.
        assert_eq!([2, 3, 4, 9].map(|n| quota(Some(-5), n)), [10, 60, 300, 300]);
        assert_eq!(quota(Some(7_200), 3), 7_201);
        let retry = |at, errors| retry_pause(&error(at), errors, &delays, now).as_secs();
        assert_eq!(
            [retry(None, 1), retry(None, 2), retry(None, 7)],
            [10, 60, 300]
        );
        assert_eq!(
            [
                retry(Some(20), 1),
                retry(Some(20), 2),
                retry(Some(7_200), 1)
            ],
            [21, 60, 10]
        );
        assert_eq!(retry_pause(&error(None), 1, &[], now), Duration::ZERO);
    }
}
