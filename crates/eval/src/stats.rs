//! The arithmetic of reports and comparisons: pure, and checked against known values.

/// The normal quantile of a two-sided 95 % interval.
const Z95: f64 = 1.959_963_984_540_054;

/// The normal quantile of a power of 80 %.
const Z80: f64 = 0.841_621_233_572_914;

/// Below this a difference counts as one.
pub const ALPHA: f64 = 0.05;

/// The share of `passed` in `all`; 0 where there are none.
pub fn rate(passed: u32, all: u32) -> f64 {
    if all == 0 {
        return 0.0;
    }
    f64::from(passed) / f64::from(all)
}

/// The Wilson interval of a share, at 95 %.
pub fn wilson(passed: u32, all: u32) -> (f64, f64) {
    if all == 0 {
        return (0.0, 1.0);
    }
    let n = f64::from(all);
    let p = rate(passed, all);
    let z2 = Z95 * Z95;
    let centre = p + z2 / (2.0 * n);
    let margin = Z95 * (p * (1.0 - p) / n + z2 / (4.0 * n * n)).sqrt();
    let scale = 1.0 + z2 / n;
    let low = (centre - margin) / scale;
    let high = (centre + margin) / scale;
    // At the ends rounding would leave a trace.
    let low = if passed == 0 { 0.0 } else { low };
    let high = if passed == all { 1.0 } else { high };
    (low, high)
}

/// The interval of the difference of two shares (B less A), after Newcombe, at 95 %.
pub fn difference((pass_a, all_a): (u32, u32), (pass_b, all_b): (u32, u32)) -> (f64, f64) {
    let (a, b) = (rate(pass_a, all_a), rate(pass_b, all_b));
    let (low_a, high_a) = wilson(pass_a, all_a);
    let (low_b, high_b) = wilson(pass_b, all_b);
    let low = (b - a) - (b - low_b).hypot(high_a - a);
    let high = (b - a) + (high_b - b).hypot(a - low_a);
    (low, high)
}

/// How likely at least one of `k` runs passes, from `all` runs of which `passed` did. `None` for
/// more than there are.
pub fn pass_at(k: u32, passed: u32, all: u32) -> Option<f64> {
    (1..=all)
        .contains(&k)
        .then(|| 1.0 - choose_ratio(all - passed, all, k))
}

/// How likely all of `k` runs pass.
pub fn pass_all(k: u32, passed: u32, all: u32) -> Option<f64> {
    (1..=all).contains(&k).then(|| choose_ratio(passed, all, k))
}

/// `C(some, k) / C(all, k)`.
fn choose_ratio(some: u32, all: u32, k: u32) -> f64 {
    if k > some {
        return 0.0;
    }
    (0..k)
        .map(|i| f64::from(some - i) / f64::from(all - i))
        .product()
}

/// The middle of some numbers; the mean of the two middle ones.
pub fn median(numbers: &[f64]) -> Option<f64> {
    let sorted = sorted(numbers);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => None,
        n if n % 2 == 1 => Some(sorted[middle]),
        _ => Some(f64::midpoint(sorted[middle - 1], sorted[middle])),
    }
}

/// The 95th percentile: the smallest number that 95 % of them do not exceed.
pub fn p95(numbers: &[f64]) -> Option<f64> {
    let sorted = sorted(numbers);
    let rank = (sorted.len() * 95).div_ceil(100);
    sorted.get(rank.checked_sub(1)?).copied()
}

fn sorted(numbers: &[f64]) -> Vec<f64> {
    let mut sorted = numbers.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted
}

/// The two-sided sign test: how likely such an uneven split is if both sides are alike.
pub fn sign_test(wins: u32, losses: u32) -> f64 {
    let n = wins + losses;
    let table = LnFactorials::up_to(n);
    let tail: f64 = (0..=wins.min(losses))
        .map(|k| (table.choose(n, k) - f64::from(n) * 2.0_f64.ln()).exp())
        .sum();
    (2.0 * tail).min(1.0)
}

/// Fisher's exact test, two-sided, of `a` of `n_a` against `b` of `n_b`.
pub fn fisher((a, n_a): (u32, u32), (b, n_b): (u32, u32)) -> f64 {
    let passed = a + b;
    let n = n_a + n_b;
    let table = LnFactorials::up_to(n);
    let probability = |x: u32| {
        (table.choose(n_a, x) + table.choose(n_b, passed - x) - table.choose(n, passed)).exp()
    };
    let observed = probability(a);
    let tables = passed.saturating_sub(n_b)..=passed.min(n_a);
    let sum: f64 = tables
        .map(probability)
        // The same table computed another way may differ in the last digits.
        .filter(|p| *p <= observed * (1.0 + 1e-9))
        .sum();
    sum.min(1.0)
}

/// About how many runs of each side it takes to tell two shares apart, with a power of 80 %.
/// `None` where they are the same.
pub fn runs_needed(a: f64, b: f64) -> Option<u32> {
    let apart = (a - b).abs();
    if apart < 1e-9 {
        return None;
    }
    let mean = f64::midpoint(a, b);
    let root =
        Z95 * (2.0 * mean * (1.0 - mean)).sqrt() + Z80 * (a * (1.0 - a) + b * (1.0 - b)).sqrt();
    Some(whole((root / apart).powi(2)).max(MIN_FISHER))
}

/// Four against four is the fewest that Fisher's test can tell apart at all.
const MIN_FISHER: u32 = 4;

/// Six pairs that all differ the same way are the fewest that the sign test can tell apart.
const MIN_SIGN: u32 = 6;

/// About how many pairs it takes, if so many of so many pairs differ either way.
pub fn pairs_needed(wins: u32, losses: u32, pairs: u32) -> Option<u32> {
    let differing = wins + losses;
    if wins == losses || pairs == 0 {
        return None;
    }
    // Counted as if one more had gone either way: a few pairs that all agree prove little.
    let share = (f64::from(wins.max(losses)) + 1.0) / (f64::from(differing) + 2.0);
    let root = Z95 * 0.5 + Z80 * (share * (1.0 - share)).sqrt();
    let needed = (root / (share - 0.5)).powi(2).max(f64::from(MIN_SIGN));
    Some(whole(needed / rate(differing, pairs)))
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // clamped before
fn whole(number: f64) -> u32 {
    number.ceil().clamp(1.0, 1_000_000.0) as u32
}

/// Logarithms of factorials, so that nothing overflows.
struct LnFactorials(Vec<f64>);

impl LnFactorials {
    fn up_to(n: u32) -> Self {
        let mut table = vec![0.0];
        let mut sum = 0.0;
        for i in 1..=n {
            sum += f64::from(i).ln();
            table.push(sum);
        }
        LnFactorials(table)
    }

    fn choose(&self, n: u32, k: u32) -> f64 {
        self.0[n as usize] - self.0[k as usize] - self.0[(n - k) as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn near(left: f64, right: f64) {
        assert!((left - right).abs() < 5e-5, "{left} is not {right}");
    }

    #[test]
    fn wilson_intervals() {
        for (passed, all, low, high) in [
            (8, 10, 0.49016, 0.94331),
            (0, 10, 0.0, 0.27753),
            (10, 10, 0.72247, 1.0),
            (1, 1, 0.20654, 1.0),
            (50, 100, 0.40383, 0.59617),
            (81, 263, 0.25529, 0.36621),
            (0, 0, 0.0, 1.0),
        ] {
            let (l, h) = wilson(passed, all);
            near(l, low);
            near(h, high);
        }
    }

    #[test]
    fn differences_of_shares() {
        // Newcombe's own example: 56/70 against 48/80 is 0.2 (0.0524, 0.3339).
        let (low, high) = difference((48, 80), (56, 70));
        near(low, 0.05243);
        near(high, 0.33387);
        let (low, high) = difference((10, 10), (0, 10));
        assert!(low < -0.99 && high < -0.5, "{low} {high}");
    }

    #[test]
    fn passing_once_or_always() {
        for (k, passed, all, at, always) in [
            (1, 3, 10, Some(0.3), Some(0.3)),
            (5, 3, 10, Some(0.916_67), Some(0.0)),
            (3, 8, 10, Some(1.0), Some(0.466_67)),
            (2, 0, 5, Some(0.0), Some(0.0)),
            (5, 5, 5, Some(1.0), Some(1.0)),
            (6, 5, 5, None, None),
            (0, 5, 5, None, None),
        ] {
            let pair = (pass_at(k, passed, all), pass_all(k, passed, all));
            match (pair, at, always) {
                ((Some(a), Some(b)), Some(at), Some(always)) => {
                    near(a, at);
                    near(b, always);
                }
                (pair, at, always) => assert_eq!(pair, (at, always)),
            }
        }
    }

    #[test]
    fn middles_and_ends() {
        assert_eq!(median(&[]), None);
        assert_eq!(p95(&[]), None);
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), Some(2.5));
        let hundred: Vec<f64> = (1..=100).rev().map(f64::from).collect();
        assert_eq!(p95(&hundred), Some(95.0));
        assert_eq!(p95(&[7.0]), Some(7.0));
        assert_eq!(p95(&[1.0, 2.0, 9.0]), Some(9.0));
    }

    #[test]
    fn sign_tests() {
        for (wins, losses, p) in [
            (0, 0, 1.0),
            (5, 0, 0.0625),
            (6, 0, 0.031_25),
            (9, 1, 0.021_484),
            (1, 9, 0.021_484),
            (5, 5, 1.0),
            (15, 5, 0.041_389),
        ] {
            near(sign_test(wins, losses), p);
        }
    }

    #[test]
    fn fisher_tests() {
        for (a, b, p) in [
            ((3, 4), (1, 4), 0.485_714),
            ((1, 10), (11, 14), 0.002_759),
            ((0, 4), (4, 4), 0.028_571),
            ((0, 3), (3, 3), 0.1),
            ((8, 10), (8, 10), 1.0),
            ((0, 0), (5, 5), 1.0),
            ((2, 31), (10, 24), 0.002_583),
        ] {
            near(fisher(a, b), p);
        }
        // Large counts neither overflow nor vanish.
        assert!(fisher((4000, 5000), (4300, 5000)) < 1e-10);
    }

    #[test]
    fn how_many_it_takes() {
        assert_eq!(runs_needed(0.5, 0.7), Some(93));
        assert_eq!(runs_needed(0.8, 0.9), Some(199));
        assert_eq!(runs_needed(0.0, 1.0), Some(4));
        assert_eq!(runs_needed(0.5, 0.5), None);
        assert_eq!(pairs_needed(2, 2, 10), None);
        // Half of the pairs differ, three of four of those one way.
        let needed = pairs_needed(6, 2, 16).unwrap();
        assert!((60..130).contains(&needed), "{needed}");
        assert!(pairs_needed(3, 0, 3).unwrap() >= 6);
    }
}
