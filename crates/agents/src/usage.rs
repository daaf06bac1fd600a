//! Tokens and money.

use runner_core::config::TokenPrice;
use serde::{Deserialize, Serialize};

/// What a session has used; `None` is unknown, which is not the same as nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SessionUsage {
    /// Tokens read, cached ones included.
    pub input_tokens: Option<u64>,
    /// Tokens of those that came from the provider's cache.
    pub cached_input_tokens: Option<u64>,
    /// Tokens written, thinking included.
    pub output_tokens: Option<u64>,
    /// US dollars, as the CLI itself says.
    pub cost_usd: Option<f64>,
}

impl SessionUsage {
    /// Adds another session's or step's usage. What is unknown on one side counts as
    /// nothing there: the sum is at least that much.
    pub fn add(&mut self, other: &SessionUsage) {
        add(&mut self.input_tokens, other.input_tokens);
        add(&mut self.cached_input_tokens, other.cached_input_tokens);
        add(&mut self.output_tokens, other.output_tokens);
        if let Some(cost) = other.cost_usd {
            *self.cost_usd.get_or_insert(0.0) += cost;
        }
    }

    /// Takes over what a later count of the same session knows.
    pub fn merge(&mut self, later: &SessionUsage) {
        self.input_tokens = later.input_tokens.or(self.input_tokens);
        self.cached_input_tokens = later.cached_input_tokens.or(self.cached_input_tokens);
        self.output_tokens = later.output_tokens.or(self.output_tokens);
        self.cost_usd = later.cost_usd.or(self.cost_usd);
    }

    /// Takes over another count of the same session as far as it is larger: a tool of the session can
    /// print to the CLI's own output, and nothing that was counted once may become less by that.
    pub(crate) fn raise(&mut self, other: &SessionUsage) {
        // What came from no cache costs more: more cached tokens may not make it less.
        let fresh = |usage: &SessionUsage| {
            let (input, cached) = (usage.input_tokens?, usage.cached_input_tokens?);
            Some(input.saturating_sub(cached))
        };
        let fresh = fresh(self).max(fresh(other));
        let cached = self.cached_input_tokens.max(other.cached_input_tokens);
        self.input_tokens = self.input_tokens.max(other.input_tokens);
        self.cached_input_tokens = match (self.input_tokens, fresh) {
            (Some(input), Some(fresh)) => Some(input.saturating_sub(fresh)),
            _ => cached,
        };
        self.output_tokens = self.output_tokens.max(other.output_tokens);
        let costs = [self.cost_usd, other.cost_usd].into_iter().flatten();
        self.cost_usd = costs.reduce(f64::max);
    }

    /// Tokens read and written together, if anything is known of them.
    pub fn total_tokens(&self) -> Option<u64> {
        match (self.input_tokens, self.output_tokens) {
            (None, None) => None,
            (input, output) => Some(
                input
                    .unwrap_or_default()
                    .saturating_add(output.unwrap_or_default()),
            ),
        }
    }

    /// What the tokens cost in US dollars by a price list; unknown when a count is.
    pub fn priced(&self, price: &TokenPrice) -> Option<f64> {
        let (input, output) = (self.input_tokens?, self.output_tokens?);
        let cached = self.cached_input_tokens.unwrap_or_default().min(input);
        let usd = |tokens: u64, per_million: f64| as_f64(tokens) * per_million / 1_000_000.0;
        Some(
            usd(input - cached, price.input)
                + usd(cached, price.cached)
                + usd(output, price.output),
        )
    }

    /// A reported cost of zero for tokens that were used means that the CLI has no
    /// price for the model: it is unknown then.
    pub(crate) fn without_false_zero(mut self) -> Self {
        let used = self.total_tokens().is_some_and(|tokens| tokens > 0);
        if used && self.cost_usd == Some(0.0) {
            self.cost_usd = None;
        }
        self
    }

    pub(crate) fn is_known(&self) -> bool {
        *self != SessionUsage::default()
    }
}

fn add(sum: &mut Option<u64>, other: Option<u64>) {
    if let Some(count) = other {
        *sum = Some(sum.unwrap_or_default().saturating_add(count));
    }
}

#[allow(clippy::cast_precision_loss)] // No session has 2^53 tokens.
fn as_f64(tokens: u64) -> f64 {
    tokens as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn usage(input: u64, cached: u64, output: u64) -> SessionUsage {
        SessionUsage {
            input_tokens: Some(input),
            cached_input_tokens: Some(cached),
            output_tokens: Some(output),
            cost_usd: None,
        }
    }

    #[test]
    fn sums_and_later_counts() {
        let mut sum = SessionUsage::default();
        assert_eq!(sum.total_tokens(), None);
        sum.add(&usage(10, 4, 1));
        sum.add(&SessionUsage {
            cost_usd: Some(0.5),
            ..SessionUsage::default()
        });
        sum.add(&usage(u64::MAX, 0, 2));
        assert_eq!(sum.input_tokens, Some(u64::MAX));
        assert_eq!(sum.cached_input_tokens, Some(4));
        assert_eq!((sum.output_tokens, sum.cost_usd), (Some(3), Some(0.5)));
        sum.merge(&SessionUsage {
            output_tokens: Some(9),
            ..SessionUsage::default()
        });
        assert_eq!((sum.output_tokens, sum.cost_usd), (Some(9), Some(0.5)));
    }

    #[test]
    fn no_other_count_lowers_what_was_counted() {
        let (none, all) = (SessionUsage::default(), usage(100, 80, 10));
        let with_cost = |cost, it| SessionUsage {
            cost_usd: Some(cost),
            ..it
        };
        for (first, second, expected) in [
            (none, all, all),
            (all, none, all),
            (all, usage(1, 0, 1), all),
            (usage(1, 0, 1), all, usage(100, 80, 10)),
            // More cached tokens do not make the others fewer.
            (all, usage(100, 100, 10), all),
            (all, usage(1000, 1000, 10), usage(1000, 980, 10)),
            (all, usage(300, 250, 9), usage(300, 250, 10)),
            (
                with_cost(2.0, all),
                with_cost(0.1, none),
                with_cost(2.0, all),
            ),
            (
                with_cost(0.1, none),
                with_cost(2.0, all),
                with_cost(2.0, all),
            ),
        ] {
            let mut found = first;
            found.raise(&second);
            assert_eq!(found, expected, "{first:?} {second:?}");
        }
    }

    #[test]
    fn prices_tell_cached_tokens_apart() {
        let price = TokenPrice {
            input: 2.0,
            cached: 0.5,
            output: 10.0,
        };
        let cost = usage(1_000_000, 400_000, 100_000).priced(&price);
        assert!((cost.unwrap() - (1.2 + 0.2 + 1.0)).abs() < 1e-9);
        assert_eq!(usage(0, 9, 0).priced(&price), Some(0.0));
        assert_eq!(SessionUsage::default().priced(&price), None);
        let no_output = SessionUsage {
            output_tokens: None,
            ..usage(5, 0, 0)
        };
        assert_eq!(no_output.priced(&price), None);
    }

    #[test]
    fn a_zero_for_used_tokens_is_unknown() {
        let free = SessionUsage {
            cost_usd: Some(0.0),
            ..usage(5, 0, 1)
        };
        assert_eq!(free.without_false_zero().cost_usd, None);
        let nothing = SessionUsage {
            cost_usd: Some(0.0),
            ..usage(0, 0, 0)
        };
        assert_eq!(nothing.without_false_zero().cost_usd, Some(0.0));
    }
}
