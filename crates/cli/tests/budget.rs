//! What a run may use, and what the loop does when a service refuses: budgets,
//! prices, quotas and transient errors, with stubs that report and fail as the real
//! CLIs do.

#![allow(clippy::unwrap_used)] // A test that cannot go on has failed.

mod agent_support;

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use agent_support::stub::{Scene, Stub, expected};
use agent_support::{GOAL, assert_runner_error, assert_step_says};
use runner_testkit::{TestConfig, TestRun, assert_no_process, eventually};
use serde_json::{Value, json};

/// Longer than anything takes on a loaded machine: reaching it is a failure.
const LONG: Duration = Duration::from_secs(60);
/// Work that is there before the events that end the session.
const HALF: &str = "echo half > half.txt\n";
/// A session that has printed its events and goes on working.
const WORK_ON: &str = "setsid sleep 1000 & wait\n";

/// A message of claude's with this usage.
fn message(id: &str, input: u64, output: u64) -> Value {
    json!({"type": "assistant", "message": {"id": id, "content": [{"type": "text", "text": "hm"}],
        "usage": {"input_tokens": input, "output_tokens": output}}})
}

/// The last line of a session of claude's.
fn result(report: &Value, input: u64, output: u64, cost: f64) -> Value {
    json!({"type": "result", "subtype": "success", "is_error": false, "result": "",
        "structured_output": report, "total_cost_usd": cost,
        "usage": {"input_tokens": input, "output_tokens": output}})
}

/// A session of claude's that wants another try.
fn retrying(input: u64, output: u64, cost: f64) -> Scene {
    let report = json!({"status": "retry", "summary": "not yet"});
    Scene::of(&[result(&report, input, output, cost)])
}

/// A session of claude's that does the work.
fn working() -> Scene {
    let report = json!({"status": "done", "summary": "greeted"});
    Scene::of(&[result(&report, 10, 5, 0.01)]).before("echo hi > greeting.txt\n")
}

/// The last line of `loop --json`.
#[track_caller]
fn end(run: &TestRun) -> Value {
    let last = run.json_lines().pop().unwrap();
    assert_eq!(last["event"], "finished", "{}", run.describe());
    last
}

#[test]
fn a_budget_of_tokens_ends_the_session_in_mid_stream() {
    let stub = Stub::started("claude", |config| {
        config.set("budget.max_tokens", 1000);
    });
    let repo = &stub.repo;
    // The second message goes beyond it, and much would follow.
    let events = [message("m1", 500, 20), message("m2", 700, 30)];
    stub.play(&Scene::of(&events).before(HALF).after(WORK_ON));
    let run = repo.runner(&["loop", "--json"]).code(1);
    let meta = assert_runner_error(repo, &run, 1, "budget");
    let end = end(&run);
    assert_eq!(
        (&end["status"], &end["steps"]),
        (&json!("limit"), &json!(1))
    );
    assert_eq!(end["error"]["code"], "budget");
    assert!(end["error"]["hint"].as_str().unwrap().contains("[budget]"));
    let message = meta["error"]["message"].as_str().unwrap();
    assert!(
        message.contains("1000") && message.contains("1250"),
        "{message}"
    );
    assert_eq!(meta["executor"]["input_tokens"], 1200);
    assert_eq!(meta["executor"]["output_tokens"], 50);
    assert_eq!(meta["executor"]["exit_code"], Value::Null);
    assert_eq!(repo.read("half.txt"), "half\n", "the work is kept");
    assert_no_process(&repo.root().display().to_string());

    // It is used up for the next call too, before anything begins.
    let head = repo.head();
    for command in ["step", "loop"] {
        let run = repo.runner(&[command, "--json"]).code(1);
        let last = run.json_lines().pop().unwrap();
        assert_eq!(last["error"]["code"], "limit", "{}", run.describe());
        assert_eq!(repo.head(), head);
    }
    let human = repo.runner(&["loop"]).code(1);
    assert!(
        human
            .stderr
            .contains("the budget of 1000 tokens is used up"),
        "{}",
        human.describe()
    );
}

#[test]
fn a_budget_is_checked_before_each_iteration() {
    let stub = Stub::started("claude", |config| {
        config
            .set("budget.max_tokens", 1000)
            .set("max_attempts_default", 9);
    });
    let repo = &stub.repo;
    stub.play(&retrying(300, 100, 0.5));
    let run = repo.runner(&["loop", "--json"]).code(1);
    let end = end(&run);
    // 400, 800, 1200: the third one reached it as it ended, and still counts.
    assert_eq!(
        (&end["status"], &end["steps"]),
        (&json!("limit"), &json!(3)),
        "{}",
        run.describe()
    );
    assert_eq!(end["error"]["code"], "limit");
    assert_eq!(repo.node("root")["attempts"], 3);
    for iter in 1..=3 {
        assert_eq!(repo.meta(iter)["class"], "ok");
    }
    repo.assert_clean();
    // A person raises it, and the loop goes on.
    let config = repo.read(".runner/state/config.toml");
    repo.write(
        ".runner/state/config.toml",
        config.replace("max_tokens = 1000", "max_tokens = 5000"),
    );
    repo.commit_all("more money");
    stub.play(&working());
    repo.runner(&["loop"]).success();
}

#[test]
fn a_budget_of_money_ends_the_session_in_mid_stream() {
    let step = |cost: f64| {
        json!({"type": "step_finish", "part": {"reason": "tool-calls", "cost": cost,
            "tokens": {"input": 100, "output": 10, "reasoning": 0, "cache": {"read": 0, "write": 0}}}})
    };
    let stub = Stub::started("opencode", |config| {
        config.set("budget.max_cost_usd", 0.5);
    });
    let repo = &stub.repo;
    stub.play(
        &Scene::of(&[step(0.2), step(0.2), step(0.2)])
            .before(HALF)
            .after(WORK_ON),
    );
    let run = repo.runner(&["loop", "--json"]).code(1);
    let meta = assert_runner_error(repo, &run, 1, "budget");
    assert_eq!(end(&run)["status"], "limit");
    let cost = meta["executor"]["cost_usd"].as_f64().unwrap();
    assert!((cost - 0.6).abs() < 1e-9, "{cost}");
    repo.runner(&["status"]).success().says("$0.60");
    repo.runner(&["log", "1"]).success().says("$0.6000");
}

/// Prices at which a recorded session of codex's costs 1.16 + 0.104 + 1 dollars.
fn priced(config: &mut TestConfig) {
    config
        .set("executor.model", "scripted")
        .set("prices.scripted.input", 1000.0)
        .set("prices.scripted.cached", 100.0)
        .set("prices.scripted.output", 10_000.0);
}

#[test]
fn a_price_table_tells_the_cost_where_the_cli_does_not() {
    let stub = Stub::started("codex", |config| {
        priced(config);
        config.set("budget.max_cost_usd", 3.0);
    });
    let repo = &stub.repo;
    // The guard is not content: there is no greeting.
    stub.play(&Scene::recorded("codex-success"));
    let run = repo.runner(&["loop", "--json"]).code(1);
    let end = end(&run);
    assert_eq!(
        (&end["status"], &end["steps"]),
        (&json!("limit"), &json!(2)),
        "{}",
        run.describe()
    );
    let cost = repo.meta(1)["executor"]["cost_usd"].as_f64().unwrap();
    assert!((cost - 2.264).abs() < 1e-9, "{cost}");
    assert_eq!(repo.node("root")["attempts"], 2);
    let status = repo.runner(&["status", "--json"]).success().json();
    assert!((status["cost_usd"].as_f64().unwrap() - 4.528).abs() < 1e-9);
    let message = end["error"]["message"].as_str().unwrap();
    assert!(
        message.contains("$3.00") && message.contains("$4.53"),
        "{message}"
    );
}

/// A repository whose configuration has a limit; with `model` also prices of one.
fn with_limit(cli: &str, model: &str, key: &str) -> Stub {
    Stub::installed(cli, |config| {
        if !model.is_empty() {
            priced(config);
            config.set("executor.model", model);
        }
        if cli == "command" {
            config.set("executor.command", json!(["true"]));
        }
        let value = if key.ends_with("tokens") {
            json!(1000)
        } else {
            json!(1.0)
        };
        config.set(key, value);
    })
}

#[test]
fn a_limit_that_cannot_be_kept_is_refused_at_the_start() {
    let (money, tokens) = ("budget.max_cost_usd", "budget.max_tokens");
    for (cli, model, key, message, hint) in [
        (
            "codex",
            "",
            money,
            "what codex costs is not known",
            "[prices]",
        ),
        (
            "codex",
            "another",
            money,
            "what codex costs is not known",
            "[prices]",
        ),
        (
            "command",
            "",
            money,
            "what command costs is not known",
            "max_cost_usd = 0.0",
        ),
        (
            "command",
            "",
            tokens,
            "command does not report tokens",
            "max_iterations",
        ),
    ] {
        let mut stub = with_limit(cli, model, key);
        stub.repo.init_run(GOAL, &["true"]);
        let run = stub.repo.runner(&["start", "--json"]).code(1);
        assert_eq!(run.json()["error"]["code"], "config", "{}", run.describe());
        assert!(
            run.stdout.contains(message) && run.stdout.contains(hint),
            "{}",
            run.describe()
        );
        let branch = stub.repo.git(&["branch", "--show-current"]);
        assert_eq!(branch, "main", "nothing was started");
        stub.repo.runner(&["validate"]).code(1).says(message);
    }
    // What can be known is fine.
    for (cli, model, key) in [
        ("codex", "scripted", money),
        ("codex", "", tokens),
        ("claude", "", money),
        ("opencode", "", money),
    ] {
        let mut stub = with_limit(cli, model, key);
        stub.repo.start_run(GOAL, &["true"]);
    }
}

#[test]
fn what_an_interrupted_session_used_counts() {
    let stub = Stub::started("claude", |config| {
        config.set("budget.max_tokens", 1000);
    });
    let repo = &stub.repo;
    stub.play(
        &Scene::of(&[message("m1", 900, 20)]).after("echo x > here\nsetsid sleep 1000 & wait\n"),
    );
    let running = repo.spawn_runner(&["loop"]);
    eventually("the session", LONG, || repo.workspace("here").exists());
    running.signal("TERM");
    running.wait_within(LONG).code(130);
    stub.play(&retrying(80, 10, 0.0));
    let run = repo.runner(&["loop", "--json"]).code(1);
    assert_eq!(repo.meta(1)["error"]["kind"], "interrupted");
    assert_eq!(
        repo.meta(1)["executor"]["input_tokens"],
        900,
        "{}",
        run.describe()
    );
    let end = end(&run);
    // 920, then 1010.
    assert_eq!(
        (&end["status"], &end["steps"]),
        (&json!("limit"), &json!(1)),
        "{}",
        run.describe()
    );
}

/// Seconds since the epoch.
#[allow(clippy::disallowed_methods)] // the clock that the reset is told by
fn now() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap()
        .as_secs()
}

/// A session of claude's that is refused until then.
fn limited_until(secs: u64) -> Scene {
    let limit = json!({"type": "rate_limit_event",
        "rate_limit_info": {"status": "rejected", "resetsAt": secs, "rateLimitType": "five_hour"}});
    let refused = json!({"type": "result", "subtype": "success", "is_error": true,
        "api_error_status": 429, "result": "You've hit your session limit"});
    Scene::of(&[limit, refused]).after("exit 1")
}

#[test]
fn a_quota_is_waited_for_when_asked_to() {
    for by_flag in [true, false] {
        let stub = Stub::started("claude", |config| {
            config.set("loop.wait_quota", !by_flag);
        });
        let repo = &stub.repo;
        let back_at = now() + 2;
        stub.play_at(1, &limited_until(back_at));
        stub.play(&working());
        let args: &[&str] = if by_flag {
            &["loop", "--json", "--wait-quota"]
        } else {
            &["loop", "--json"]
        };
        let run = repo.runner(args).success();
        assert!(now() >= back_at);
        let lines = run.json_lines();
        let events: Vec<&str> = lines
            .iter()
            .filter_map(|line| line["event"].as_str())
            .collect();
        assert_eq!(
            events,
            ["step", "waiting", "step", "finished"],
            "{}",
            run.describe()
        );
        assert_eq!(lines[0]["error"]["code"], "quota");
        assert!(lines[1]["secs"].as_u64().unwrap() <= 4);
        assert!(lines[1]["why"].as_str().unwrap().contains("session limit"));
        assert_eq!(repo.node("root")["attempts"], 0);
        assert_eq!(repo.node("root")["passes"], true);
    }
}

#[test]
fn a_signal_or_a_bound_ends_the_waiting() {
    let stub = Stub::started("claude", |_| {});
    let repo = &stub.repo;
    stub.play(&limited_until(now() + 10_000));
    let running = repo.spawn_runner(&["loop", "--json", "--wait-quota"]);
    eventually("the waiting", LONG, || {
        running.stdout_so_far().contains("\"waiting\"")
    });
    running.signal("INT");
    running.wait_within(LONG).code(130);
    // Nobody waits for a step that will not be taken.
    let run = repo
        .runner(&["loop", "--json", "--wait-quota", "--for", "1h"])
        .success();
    assert_eq!(end(&run)["status"], "stopped", "{}", run.describe());
}

#[test]
fn without_waiting_a_quota_ends_the_loop_with_the_time() {
    let stub = Stub::started("claude", |_| {});
    let repo = &stub.repo;
    // 2030-01-02T03:04:00Z
    stub.play(&limited_until(1_893_553_440));
    let run = repo.runner(&["loop", "--json"]).code(1);
    assert_runner_error(repo, &run, 1, "quota");
    let end = end(&run);
    assert_eq!(
        (&end["status"], &end["error"]["code"]),
        (&json!("error"), &json!("quota"))
    );
    let hint = end["error"]["hint"].as_str().unwrap();
    assert!(
        hint.contains("2030-01-02T03:04:00Z") && hint.contains("--wait-quota"),
        "{hint}"
    );
    let run = repo.runner(&["step", "--json"]);
    assert_runner_error(repo, &run, 2, "quota");
    assert_step_says(&run, "quota", "2030-01-02T03:04:00Z");
    let human = repo.runner(&["step"]).code(1);
    assert!(
        human
            .stderr
            .contains("hint: the quota is back at 2030-01-02T03:04:00Z"),
        "{}",
        human.describe()
    );
}

#[test]
fn passing_troubles_are_tried_again_and_lasting_ones_end_the_loop() {
    // The session, its kind, and after how many of them in a row the loop ends.
    let cases = [
        ("500", "overloaded", 4),
        ("refused", "network", 4),
        ("context-full", "context_full", 4),
        ("no-structured-output", "malformed_output", 4),
        ("schema-violation", "malformed_output", 4),
        ("429", "rate_limit", 4),
        ("401", "auth", 1),
        ("billing", "quota", 1),
    ];
    for (name, kind, steps) in cases {
        let recorded = Scene::recorded(&format!("claude-{name}"));
        let stub = Stub::started("claude", |_| {});
        let repo = &stub.repo;
        stub.play(&recorded);
        let run = repo.runner(&["loop", "--json"]).code(1);
        let end = end(&run);
        assert_eq!(
            (&end["status"], &end["steps"]),
            (&json!("error"), &json!(steps)),
            "{name}\n{}",
            run.describe()
        );
        assert_eq!(end["error"]["code"], kind, "{name}");
        assert_eq!(repo.node("root")["attempts"], 0, "{name}");
        if steps == 1 {
            continue;
        }
        // Three of them, and the fourth session works: the night goes on.
        for iter in 5..=7 {
            stub.play_at(iter, &recorded);
        }
        stub.play(&working());
        let run = repo.runner(&["loop", "--json"]).success();
        assert_eq!(run.json_lines().last().unwrap()["steps"], 4, "{name}");
        assert_eq!(repo.node("root")["attempts"], 0, "{name}");
        assert_eq!(repo.meta(7)["error"]["kind"], kind);
    }
}

#[test]
fn a_good_session_starts_the_count_of_errors_anew() {
    let stub = Stub::started("claude", |config| {
        config
            .set("loop.max_consecutive_errors", 1)
            .set("max_attempts_default", 9);
    });
    let repo = &stub.repo;
    let broken = Scene::recorded("claude-500");
    for iter in [1, 3, 5] {
        stub.play_at(iter, &broken);
        stub.play_at(iter + 1, &retrying(1, 1, 0.0));
    }
    stub.play(&working());
    let run = repo.runner(&["loop", "--json"]).success();
    assert_eq!(end(&run)["steps"], 7, "{}", run.describe());
    assert_eq!(expected("claude-500")["failure"]["kind"], "overloaded");
}

#[test]
fn a_timeout_ends_the_loop_or_is_tried_again_as_configured() {
    for (on_timeout, code) in [("stop", 1), ("retry", 0)] {
        let stub = Stub::started("claude", |config| {
            config
                .set("loop.on_timeout", on_timeout)
                .set("executor.idle_timeout_secs", 3);
        });
        stub.play_at(
            1,
            &Scene::of(&[message("m1", 1, 1)]).after("setsid sleep 1000 & wait\n"),
        );
        stub.play(&working());
        let run = stub.repo.runner(&["loop", "--json"]).code(code);
        assert_eq!(
            stub.repo.meta(1)["error"]["kind"],
            "idle",
            "{}",
            run.describe()
        );
        let status = if code == 0 { "complete" } else { "error" };
        assert_eq!(end(&run)["status"], status);
        assert_eq!(stub.repo.node("root")["attempts"], 0);
    }
}
