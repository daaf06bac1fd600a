//! Chance that is the same for the same seed, everywhere.

/// SplitMix64: small, and good enough to choose schedules.
#[derive(Clone, Debug)]
pub(super) struct SimChance(u64);

impl SimChance {
    pub(super) fn new(seed: u64) -> SimChance {
        SimChance(seed ^ 0x9e37_79b9_7f4a_7c15)
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below that; 0 for 0.
    pub(super) fn below(&mut self, limit: u64) -> u64 {
        if limit == 0 { 0 } else { self.next() % limit }
    }

    /// A number from one to the other, both included.
    pub(super) fn between(&mut self, least: u64, most: u64) -> u64 {
        least + self.below(most - least + 1)
    }

    /// True once in so many times; never for 0.
    pub(super) fn one_in(&mut self, times: u64) -> bool {
        times > 0 && self.below(times) == 0
    }

    /// One of these.
    pub(super) fn of<'t, T>(&mut self, list: &'t [T]) -> Option<&'t T> {
        let at = self.below(u64::try_from(list.len()).unwrap_or(0));
        list.get(usize::try_from(at).unwrap_or(0))
    }
}
