//! The cases that come with the project: all are valid, and those without a model come to what
//! they should, through the real binary.

mod eval_support;

use eval_support::{BIN, read_json, records, run_json, shipped_cases, summary};
use runner_testkit::TestRepo;
use serde_json::Value;

const SCRIPTED: [(&str, &str); 9] = [
    ("scripted-success", "success"),
    ("scripted-fail", "fail"),
    ("scripted-stuck", "stuck"),
    ("scripted-error", "error"),
    ("scripted-decompose", "success"),
    ("scripted-repair", "success"),
    ("scripted-guard-feedback", "success"),
    ("scripted-quota", "success"),
    ("scripted-cheat", "stuck"),
];

#[test]
fn all_shipped_cases_are_valid() {
    let repo = TestRepo::new(BIN);
    let cases = shipped_cases().display().to_string();
    let listed = repo
        .runner(&["eval", "list", "--json", "--cases", &cases])
        .success()
        .json();
    assert_eq!(listed["valid"], true);
    let ids: Vec<&str> = listed["cases"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|case| case["id"].as_str())
        .collect();
    for (id, _) in SCRIPTED {
        assert!(ids.contains(&id), "{id} in {ids:?}");
    }
    for id in [
        "calculator-go",
        "slug-rust",
        "todo-python",
        "planted-bug-python",
    ] {
        assert!(ids.contains(&id), "{id} in {ids:?}");
    }
}

#[test]
fn scripted_cases_come_to_what_they_should() {
    let repo = TestRepo::new(BIN);
    let cases = shipped_cases().display().to_string();
    let mut args = vec!["--cases", cases.as_str(), "--jobs", "3"];
    args.extend(SCRIPTED.map(|(id, _)| id));
    let run = run_json(&repo, &args).success();
    assert_eq!(summary(&run)["ok"], true);
    let records = records(&run);
    assert_eq!(records.len(), SCRIPTED.len());
    let folder = |id: &str| {
        let record = records.iter().find(|it| it["case"] == id).unwrap();
        let run = record["run"].as_str().unwrap();
        repo.path(format!("eval/results/{id}/{run}"))
    };
    for (id, outcome) in SCRIPTED {
        let record = read_json(&folder(id).join("meta.json"));
        assert_eq!(record["outcome"], outcome, "{record:#}");
        for name in ["checks.json", "tree.json", "run_state.json"] {
            read_json(&folder(id).join(name));
        }
        for name in ["runner.start.log", "runner.loop.log", "config.toml"] {
            assert!(folder(id).join(name).is_file(), "{name} of {id}");
        }
        assert!(folder(id).join("iterations/1/prompt.md").is_file(), "{id}");
        for key in ["config_hash", "prompt_hash", "case_hash"] {
            assert_eq!(record[key].as_str().unwrap().len(), 64, "{key} of {id}");
        }
        assert_eq!(record["backend"], "command");
        // The link leads to the workspace of the run.
        let link = repo.path(format!("eval/workspaces/{id}_latest"));
        assert!(link.join(".runner/state/tree.json").is_file(), "{id}");
        assert_eq!(
            link.read_link().unwrap().display().to_string(),
            record["workspace"].as_str().unwrap()
        );
    }
    let checks = |id: &str| -> Vec<Value> {
        let checks = read_json(&folder(id).join("checks.json"));
        checks.as_array().unwrap().clone()
    };
    // The cheat is found out, and what it weakened is as it was.
    for id in ["scripted-cheat", "scripted-stuck"] {
        for check in checks(id) {
            assert_eq!(check["passed"], true, "{id}: {check:#}");
        }
    }
    let fail = read_json(&folder("scripted-fail").join("meta.json"));
    assert_eq!(fail["reason"], "check failed: file_exists b.txt");
    // The quota was waited for, the tree was repaired.
    let meta =
        |id: &str, iter: u32| read_json(&folder(id).join(format!("iterations/{iter}/meta.json")));
    assert_eq!(meta("scripted-quota", 1)["error"]["kind"], "quota");
    let lines = run.json_lines();
    let waited = |line: &Value| line["event"] == "waiting" && line["case"] == "scripted-quota";
    assert!(lines.iter().any(waited));
    assert_eq!(meta("scripted-repair", 2)["node_id"], "repair-tree");
    assert_eq!(meta("scripted-repair", 2)["class"], "repaired");
    assert_eq!(meta("scripted-guard-feedback", 1)["guard"], "fail");
    let success = read_json(&folder("scripted-success").join("meta.json"));
    assert_eq!(success["cost_usd"], 0.01);
    assert_eq!(success["input_tokens"], 1200);
}
