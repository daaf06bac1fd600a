//! A fleet's result that passes only with settings that it changed itself: parked, and merged once a
//! person accepts it.
#![allow(clippy::unwrap_used)] // A test that cannot go on has failed.

mod fleet_project;

use fleet_project::{issue, merged, repo};
use serde_json::json;

#[test]
fn a_changed_judge_is_parked_until_a_person_accepts_it() {
    let mut repo = repo();
    repo.write("check.config.json", "{\"strict\": true}\n");
    repo.write(
        "ci.sh",
        "#!/bin/sh\ngrep -q '\"strict\": true' check.config.json || exit 0\n! test -e broken\n",
    );
    repo.commit_all("Let a setting decide");
    repo.config(|config| {
        config.set("guard.command", json!(["sh", "ci.sh"]));
        config.set("guard.protected", json!(["ci.sh"]));
    });
    repo.write_config();
    repo.commit_all("Take that guard");
    repo.agent(
        "echo x > broken; echo '{\"strict\": false}' > check.config.json; out done 'switched it off'",
    );
    issue(&repo, 1, "Agent: worker\nAllowed paths: .");
    let run = repo.runner(&["fleet", "up", "--until-idle"]);
    assert_ne!(run.code, Some(0), "{}", run.describe());
    assert_eq!(merged(&repo, "main"), Vec::<String>::new());
    let why = repo.runner(&["why", "issue-1"]).success();
    for words in ["changed_judge", "check.config.json", "exit 1"] {
        assert!(why.stdout.contains(words), "{words}: {}", why.describe());
    }
    repo.runner(&["task", "accept", "issue-1"]).code(2);
    let reason = ["--reason", "the old setting was wrong"];
    let accept = ["task", "accept", "issue-1", reason[0], reason[1]];
    repo.runner(&accept).success();
    repo.runner(&accept)
        .code(1)
        .says("does not wait for a person");
    let calls = repo.agent_calls().len();
    repo.runner(&["fleet", "up", "--until-idle"]).success();
    assert_eq!(merged(&repo, "main"), ["issue-1"]);
    assert_eq!(repo.agent_calls().len(), calls, "the same result is merged");
    let events = repo.runner(&["task", "events", "issue-1"]).success();
    assert!(
        events.stdout.contains("judge_accepted"),
        "{}",
        events.describe()
    );
}
