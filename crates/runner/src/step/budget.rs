//! What a run may use, and what it has used.

use runner_agents::SessionUsage;
use runner_core::config::{Config, TokenPrice};
use runner_core::meta::ExecutorRun;

use crate::error::{Error, ErrorCode, Result};
use crate::project::Project;
use crate::step::read_meta;

/// The limits of `[budget]` with what the run has used so far.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct RunBudget {
    max_tokens: u64,
    max_cost_usd: f64,
    tokens: u64,
    cost_usd: f64,
    price: Option<TokenPrice>,
}

impl RunBudget {
    /// Reads what the recorded iterations of a run used. Without limits nothing
    /// needs to be read.
    pub(crate) fn of(project: &Project, run_id: &str, config: &Config) -> Self {
        let mut budget = RunBudget {
            max_tokens: config.budget.max_tokens,
            max_cost_usd: config.budget.max_cost_usd,
            price: price(config),
            ..RunBudget::default()
        };
        if !budget.is_limited() {
            return budget;
        }
        for iter in project.iteration_numbers(run_id) {
            let run = read_meta(&project.iteration(run_id, iter)).and_then(|meta| meta.executor);
            if let Some(run) = run {
                budget.tokens += run.tokens().unwrap_or(0);
                budget.cost_usd += run.cost_usd.unwrap_or(0.0);
            }
        }
        budget
    }

    fn is_limited(&self) -> bool {
        self.max_tokens > 0 || self.max_cost_usd > 0.0
    }

    /// Refuses to begin an iteration for which nothing is left.
    pub(crate) fn check(&self) -> Result<()> {
        match self.exceeded_by(&SessionUsage::default()) {
            None => Ok(()),
            Some(message) => Err(Error::new(ErrorCode::Limit, message)
                .hint("raise [budget] with `runner edit config`")),
        }
    }

    /// Which limit is reached when a session that is under way has used this much.
    pub(crate) fn exceeded_by(&self, usage: &SessionUsage) -> Option<String> {
        if !self.is_limited() {
            return None;
        }
        let tokens = self.tokens + usage.total_tokens().unwrap_or(0);
        if self.max_tokens > 0 && tokens >= self.max_tokens {
            return Some(format!(
                "the budget of {} tokens is used up ({tokens} used)",
                self.max_tokens
            ));
        }
        let cost = self.cost_usd + self.cost(usage).unwrap_or(0.0);
        (self.max_cost_usd > 0.0 && cost >= self.max_cost_usd).then(|| {
            format!(
                "the budget of ${:.2} is used up (${cost:.2} spent)",
                self.max_cost_usd
            )
        })
    }

    /// What a session cost: as the CLI says, else by the price table, else unknown.
    pub(crate) fn cost(&self, usage: &SessionUsage) -> Option<f64> {
        usage
            .cost_usd
            .or_else(|| self.price.as_ref().and_then(|price| usage.priced(price)))
    }

    /// Writes tokens and cost into the record of a session.
    pub(crate) fn record(&self, usage: &SessionUsage, run: &mut ExecutorRun) {
        run.input_tokens = usage.input_tokens;
        run.cached_input_tokens = usage.cached_input_tokens;
        run.output_tokens = usage.output_tokens;
        run.cost_usd = self.cost(usage);
    }
}

/// The price of the configured model.
pub(crate) fn price(config: &Config) -> Option<TokenPrice> {
    config.prices.get(&config.executor.model).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn usage(input: u64, output: u64, cost: Option<f64>) -> SessionUsage {
        SessionUsage {
            input_tokens: Some(input),
            cached_input_tokens: None,
            output_tokens: Some(output),
            cost_usd: cost,
        }
    }

    #[test]
    fn limits() {
        let none = RunBudget::default();
        assert_eq!(none.exceeded_by(&usage(1 << 40, 1, Some(1e9))), None);
        let tokens = RunBudget {
            max_tokens: 100,
            tokens: 60,
            ..RunBudget::default()
        };
        assert!(tokens.check().is_ok());
        assert_eq!(tokens.exceeded_by(&usage(30, 9, None)), None);
        assert!(tokens.exceeded_by(&usage(30, 10, None)).is_some());
        let money = RunBudget {
            max_cost_usd: 2.0,
            cost_usd: 1.5,
            ..RunBudget::default()
        };
        assert_eq!(money.exceeded_by(&usage(1, 1, Some(0.4))), None);
        assert!(money.exceeded_by(&usage(1, 1, Some(0.5))).is_some());
        let spent = RunBudget {
            max_cost_usd: 2.0,
            cost_usd: 2.0,
            ..RunBudget::default()
        };
        assert!(spent.check().is_err());
    }

    #[test]
    fn cost_comes_from_the_cli_else_from_the_table_else_it_is_unknown() {
        let price = TokenPrice {
            input: 1.0,
            cached: 0.1,
            output: 10.0,
        };
        let table = RunBudget {
            price: Some(price),
            ..RunBudget::default()
        };
        assert_eq!(table.cost(&usage(1_000_000, 0, Some(7.0))), Some(7.0));
        assert_eq!(table.cost(&usage(1_000_000, 0, None)), Some(1.0));
        assert_eq!(RunBudget::default().cost(&usage(1, 1, None)), None);
    }
}
