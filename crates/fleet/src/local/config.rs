//! The config of one run's loop: the project's own, with what a fleet decides itself.

use toml::{Table, Value};

/// Derives it. What a run reports, waits for and spends is the fleet's to decide.
pub(super) fn of_run(
    project: &str,
    model: Option<&str>,
    timebox_secs: u32,
) -> Result<String, toml::de::Error> {
    let mut table: Table = project.parse()?;
    table.remove("fleet");
    table.remove("notify");
    if let Some(Value::Table(settings)) = table.get_mut("loop") {
        settings.remove("wait_quota");
    }
    if let Some(model) = model
        && let Value::Table(executor) = table
            .entry("executor")
            .or_insert_with(|| Value::Table(Table::new()))
    {
        executor.insert("model".to_owned(), model.into());
    }
    let key = "iteration_timeout_secs";
    let default = runner_core::config::Config::default().iteration_timeout_secs;
    let default = i64::try_from(default).unwrap_or(i64::MAX);
    let limit = table.get(key).and_then(Value::as_integer);
    let limit = limit.unwrap_or(default).min(timebox_secs.max(1).into());
    table.insert(key.to_owned(), limit.into());
    Ok(table.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use runner_core::config::Config;

    #[test]
    fn what_a_fleet_decides_itself() {
        let project = "max_iterations = 7\n[loop]\nwait_quota = true\non_timeout = \"retry\"\n\
             [notify]\ncommand = [\"x\"]\n[fleet]\nbase = \"main\"\n\
             [executor]\nbackend = \"claude\"\nmodel = \"a\"\n[executor.env]\nK = \"v\"\n\
             [prices.\"m.1\"]\ninput = 1.5\n";
        let text = of_run(project, Some("b \"c\""), 600).unwrap();
        let config = Config::parse(&text).unwrap();
        assert_eq!(config.max_iterations, 7);
        assert!(!config.run_loop.wait_quota);
        assert_eq!(config.run_loop.on_timeout.as_str(), "retry");
        assert_eq!(config.notify.command, Vec::<String>::new());
        assert_eq!(config.executor.model, "b \"c\"");
        assert_eq!(config.executor.env["K"], "v");
        assert_eq!(config.iteration_timeout_secs, 600);
        assert!((config.prices["m.1"].input - 1.5).abs() < 1e-9);

        let plain = Config::parse(&of_run("", None, 7200).unwrap()).unwrap();
        assert_eq!(plain, Config::default());
        let named = Config::parse(&of_run("", Some("m"), 7200).unwrap()).unwrap();
        assert_eq!(named.executor.model, "m");
        assert!(of_run("= 1", None, 1).is_err());
    }
}
