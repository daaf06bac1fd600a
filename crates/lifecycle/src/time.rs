//! Points in time, handed in by the caller: this crate reads no clock.

use serde::{Deserialize, Serialize};

/// Milliseconds since the Unix epoch.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Timestamp(pub i64);

impl Timestamp {
    /// That many seconds later.
    #[must_use]
    pub fn plus_secs(self, secs: u64) -> Timestamp {
        self.plus_millis(secs.saturating_mul(1000))
    }

    /// That many milliseconds later.
    #[must_use]
    pub fn plus_millis(self, millis: u64) -> Timestamp {
        let millis = i64::try_from(millis).unwrap_or(i64::MAX);
        Timestamp(self.0.saturating_add(millis))
    }

    /// Milliseconds since an earlier point; 0 if it is not earlier.
    pub fn millis_since(self, earlier: Timestamp) -> u64 {
        u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arithmetic_saturates() {
        assert_eq!(Timestamp(5).plus_secs(2), Timestamp(2005));
        assert_eq!(Timestamp(5).plus_millis(u64::MAX), Timestamp(i64::MAX));
        assert_eq!(Timestamp(5).millis_since(Timestamp(7)), 0);
        assert_eq!(Timestamp(7).millis_since(Timestamp(5)), 2);
    }
}
