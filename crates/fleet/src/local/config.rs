//! The config of one run's loop: the project's own, with what a fleet decides itself.

use runner_core::config::{Config, OriginalTests};
use toml::{Table, Value};

/// What says which ignored files of the user's are copied into workspaces. The user's checkout
/// follows the base, and with it this file: no session of a fleet may change it.
const PATTERN_FILE: &str = ".worktreeinclude";

/// Derives it. What a run reports, waits for and spends is the fleet's to decide; and nobody looks
/// at each change of a test, so the tests of the base count, unless the task says otherwise.
pub(super) fn of_run(
    project: &str,
    model: Option<&str>,
    timebox_secs: u32,
    tests_may_change: bool,
) -> Result<String, toml::de::Error> {
    let mut table: Table = project.parse()?;
    if let Value::Table(guard) = table
        .entry("guard")
        .or_insert_with(|| Value::Table(Table::new()))
    {
        let off = OriginalTests::Off.as_str();
        let asked = guard.get("original_tests").and_then(Value::as_str);
        let mode = match tests_may_change {
            _ if asked == Some(off) => OriginalTests::Off,
            true => OriginalTests::Report,
            false => OriginalTests::Require,
        };
        guard.insert("original_tests".to_owned(), mode.as_str().into());
        let usual = || {
            let usual = Config::default().guard.protected;
            usual.into_iter().map(Value::from).collect()
        };
        if let Value::Array(protected) = guard
            .entry("protected")
            .or_insert_with(|| Value::Array(usual()))
        {
            protected.push(PATTERN_FILE.into());
        }
    }
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
    let default = Config::default().iteration_timeout_secs;
    let default = i64::try_from(default).unwrap_or(i64::MAX);
    let limit = table.get(key).and_then(Value::as_integer);
    let limit = limit.unwrap_or(default).min(timebox_secs.max(1).into());
    table.insert(key.to_owned(), limit.into());
    Ok(table.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_fleet_decides_itself() {
        let project = "max_iterations = 7\n[loop]\nwait_quota = true\non_timeout = \"retry\"\n\
             [notify]\ncommand = [\"x\"]\n[fleet]\nbase = \"main\"\n\
             [executor]\nbackend = \"claude\"\nmodel = \"a\"\n[executor.env]\nK = \"v\"\n\
             [prices.\"m.1\"]\ninput = 1.5\n";
        let text = of_run(project, Some("b \"c\""), 600, false).unwrap();
        let config = Config::parse(&text).unwrap();
        assert_eq!(config.max_iterations, 7);
        assert!(!config.run_loop.wait_quota);
        assert_eq!(config.run_loop.on_timeout.as_str(), "retry");
        assert_eq!(config.notify.command, Vec::<String>::new());
        assert_eq!(config.executor.model, "b \"c\"");
        assert_eq!(config.executor.env["K"], "v");
        assert_eq!(config.iteration_timeout_secs, 600);
        assert!((config.prices["m.1"].input - 1.5).abs() < 1e-9);

        let plain = Config::parse(&of_run("", None, 7200, true).unwrap()).unwrap();
        let mut expected = Config::default();
        expected.guard.protected.push(PATTERN_FILE.to_owned());
        assert_eq!(plain, expected);
        let named = Config::parse(&of_run("", Some("m"), 7200, true).unwrap()).unwrap();
        assert_eq!(named.executor.model, "m");
        assert!(of_run("= 1", None, 1, true).is_err());
    }

    #[test]
    fn which_tests_count() {
        let asked = |mode: &str, may_change| {
            let project = format!("[guard]\noriginal_tests = \"{mode}\"\n");
            let text = of_run(&project, None, 1, may_change).unwrap();
            Config::parse(&text).unwrap().guard.original_tests.as_str()
        };
        for (mode, may_change, expected) in [
            ("report", false, "require"),
            ("require", false, "require"),
            ("off", false, "off"),
            ("report", true, "report"),
            ("require", true, "report"),
            ("off", true, "off"),
        ] {
            assert_eq!(asked(mode, may_change), expected, "{mode} {may_change}");
        }
    }
}
