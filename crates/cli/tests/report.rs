//! `runner report`: the report of a run, for people, as Markdown and as JSON; and
//! what each node used.

#![allow(clippy::unwrap_used)] // A test that cannot go on has failed.

mod scenario;

use std::time::Duration;

use runner_testkit::{TestRepo, eventually};
use scenario::{GOAL, WAIT_FOR_GO, bare, go, plan, planned, started, step};
use serde_json::{Value, json};

const DONE: &str = "echo \"$RUNNER_NODE_ID\" >> work.txt; out done 'did it'";

/// Hashes and times differ from run to run.
fn without_hashes_and_times(text: &str) -> String {
    let mut shown = String::new();
    for word in text.split_inclusive([' ', '\n', ',', ';', '`']) {
        let (core, end) = match word.char_indices().next_back() {
            Some((at, end)) if !end.is_alphanumeric() => word.split_at(at),
            _ => (word, ""),
        };
        let hash = core.len() == 10 && core.bytes().all(|byte| byte.is_ascii_hexdigit());
        let digits = core.trim_end_matches(|c: char| c.is_ascii_alphabetic());
        let unit = &core[digits.len()..];
        let time = matches!(unit, "ms" | "s") && !digits.is_empty();
        match (hash, time) {
            (true, _) => shown.push_str("HASH"),
            (_, true) => shown.push_str("TIME"),
            _ => shown.push_str(core),
        }
        shown.push_str(end);
    }
    // The columns are as wide as the times.
    let lines = shown.lines().map(|line| {
        let indent = line.len() - line.trim_start().len();
        if line.contains("TIME  ") || line.contains("iterations  ") {
            let words: Vec<&str> = line.split_whitespace().collect();
            format!("{}{}", &line[..indent], words.join(" "))
        } else {
            line.to_owned()
        }
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// Planning, a pass with a watched file and an assumption, a question and a
/// protected file, and a leaf that is stuck.
fn eventful() -> TestRepo {
    let mut repo = bare();
    repo.write("ci.sh", "for t in tests/*; do sh \"$t\" || exit 1; done\n");
    repo.commit_all("a guard");
    repo.config(|config| {
        config
            .set("max_attempts_default", 2)
            .set("guard.protected", json!(["ci.sh"]))
            .set("guard.watched", json!(["tests/**"]));
    });
    repo.agent("out retry 'no idea'");
    repo.start_run(GOAL, &["sh", "ci.sh"]);
    plan(&repo, &["a", "b", "c"]);
    repo.agent_at(
        2,
        "mkdir tests; echo true > tests/a; echo '- tabs are spaces' >> .runner/state/assumptions.md
         out done 'a with a test'",
    );
    repo.agent_at(
        3,
        "echo 'echo expected 3, got 4; false' > tests/b; echo '- how wide?' >> .runner/state/questions.md
         out done 'b, I think'",
    );
    repo.agent_at(
        4,
        "rm tests/b; echo true > ci.sh; out done 'made the guard green'",
    );
    repo.runner(&["loop"]).code(3);
    repo
}

fn report(repo: &TestRepo) -> Value {
    let value = repo.runner(&["report", "--json"]).success().json();
    assert_eq!(value["schema_version"], 1, "{value}");
    value
}

#[test]
fn the_page_for_people() {
    let repo = eventful();
    let run = repo.runner(&["report"]).success();
    assert_eq!(run.stderr, "");
    insta::assert_snapshot!(without_hashes_and_times(&run.stdout), @r"
    stuck at root/b: all 2 of its attempts are used up; 1 of 3 leaves passed
    Ship it · run demo on runner/demo, from main

    passed
      ✓ root/a  iteration 2, commit HASH, guard exit 0, log HASH  Leaf a

    stuck
      ✗ root/b  2 attempts used up  Leaf b
          iteration 3, guard failed: b, I think
          iteration 4, not accepted: ci.sh is protected: what the session did to it has been undone
          the guard said no in iteration 3 (sh ci.sh, exit 1):
            │ expected 3, got 4

    how the plan changed
      - iteration 1 at root: decomposed; added a, b, c

    files to look at
      - iteration 2 at a: tests/a (watched, the change is committed)
      - iteration 3 at b: tests/b (watched, the change is committed)
      - iteration 4 at b: tests/b (watched, the change is committed)
      - iteration 4 at b: ci.sh (protected, put back)

    landing
      - runner land also tries the product with the tests and settings of the base, because the run added tests or settings; nothing is to be done now
          added: tests/a

    assumptions
      - tabs are spaces

    questions
      - how wide?

    what it took
      4 iterations: 1 passed, 1 guard failed, 1 decomposed, 1 not accepted
      time:   TIME from first to last; agent TIME, guard TIME
      tokens: unknown
      cost:   unknown
        node iterations time tokens cost
        root 1 TIME unknown unknown
        a 1 TIME unknown unknown
        b 2 TIME unknown unknown

    next
      runner retry b    give it more attempts
      runner edit tree  change, split or remove it
      runner log 4      its last try in full
    ");
}

#[test]
fn the_page_as_markdown() {
    let repo = eventful();
    let run = repo.runner(&["report", "--md"]).success();
    assert_eq!(run.stderr, "");
    insta::assert_snapshot!(without_hashes_and_times(&run.stdout), @r"
    # stuck at root/b: all 2 of its attempts are used up; 1 of 3 leaves passed

    `Ship it`, run demo on runner/demo, from main

    ## Passed

    - `root/a` (iteration 2, commit `HASH`, guard exit 0, log `HASH`): `Leaf a`

    ## Stuck

    ### `root/b`, 2 attempts used up

    `Leaf b`

    - iteration 3, guard failed: `b, I think`
    - iteration 4, not accepted: `ci.sh is protected: what the session did to it has been undone`

    The guard said no in iteration 3 (`sh ci.sh`, exit 1):

    ```text
    expected 3, got 4
    ```

    ## How the plan changed

    - iteration 1 at `root`: decomposed; added `a`, `b`, `c`

    ## Files to look at

    - iteration 2 at `a`: `tests/a` (watched, the change is committed)
    - iteration 3 at `b`: `tests/b` (watched, the change is committed)
    - iteration 4 at `b`: `tests/b` (watched, the change is committed)
    - iteration 4 at `b`: `ci.sh` (protected, put back)

    ## Landing

    - runner land also tries the product with the tests and settings of the base, because the run added tests or settings; nothing is to be done now (`added: tests/a`)

    ## Assumptions

    - `tabs are spaces`

    ## Questions

    - `how wide?`

    ## What it took

    - 4 iterations: 1 passed, 1 guard failed, 1 decomposed, 1 not accepted
    - time: TIME from first to last; agent TIME, guard TIME
    - tokens: unknown
    - cost: unknown

    | node | iterations | time | tokens | cost |
    |---|--:|--:|--:|--:|
    | `root` | 1 | TIME | unknown | unknown |
    | `a` | 1 | TIME | unknown | unknown |
    | `b` | 2 | TIME | unknown | unknown |

    ## Next

    - `runner retry b`: give it more attempts
    - `runner edit tree`: change, split or remove it
    - `runner log 4`: its last try in full
    ");
}

#[test]
fn the_page_as_json() {
    let repo = eventful();
    let value = report(&repo);
    assert_eq!(value["state"], "stuck");
    assert_eq!(
        (&value["run_id"], &value["branch"], &value["base"]["branch"]),
        (&json!("demo"), &json!("runner/demo"), &json!("main"))
    );
    let passed = &value["passed"][0];
    let commit = repo.git(&["log", "--format=%H", "--grep=iter 2 node a"]);
    assert_eq!(passed["commit"], commit);
    assert_eq!(
        (&passed["node_id"], &passed["iter"], &passed["guard_exit"]),
        (&json!("a"), &json!(2), &json!(0))
    );
    assert_eq!(
        passed["log_sha256"],
        repo.meta(2)["guard_run"]["log_sha256"]
    );
    let stuck = &value["stuck"][0];
    assert_eq!(
        (&stuck["path"], &stuck["is_next"]),
        (&json!("root/b"), &json!(true))
    );
    assert_eq!(stuck["guard"]["tail"], "expected 3, got 4");
    assert_eq!(stuck["tries"][1]["outcome"], "not_accepted");
    assert_eq!(value["plan_changes"][0]["added"], json!(["a", "b", "c"]));
    let kinds: Vec<_> = value["touched"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| (it["iter"].clone(), it["kind"].clone()))
        .collect();
    assert_eq!(
        kinds,
        [
            (json!(2), json!("watched")),
            (json!(3), json!("watched")),
            (json!(4), json!("watched")),
            (json!(4), json!("protected"))
        ]
    );
    assert_eq!(value["assumptions"], json!(["- tabs are spaces"]));
    assert_eq!(value["questions"], json!(["- how wide?"]));
    assert_eq!(value["next"][0]["command"], "runner retry b");
    assert_eq!(value["missing"], json!([]));
    assert_eq!(value["usage"]["cost_usd"], Value::Null);
    assert_eq!(value["usage"]["cost_unknown"], 4);
    repo.runner(&["report", "--md", "--json"]).code(2);
}

#[test]
fn the_next_command_helps_each_time() {
    let repo = eventful();
    repo.runner(&["retry", "b"]).success();
    let value = report(&repo);
    // The loop that ended stuck says nothing about a leaf that has attempts again.
    assert_eq!(value["state"], "open");
    assert_eq!(value["next"][0]["command"], "runner loop");
    assert_eq!(value["plan_changes"][1]["command"], "runner retry b");
    assert_eq!(value["plan_changes"][1]["by"], "person");

    repo.runner(&["loop", "--steps", "1"]).success();
    let value = report(&repo);
    assert_eq!(value["state"], "stopped");
    assert_eq!(
        value["verdict"],
        "stopped: 1 step was taken, as asked; 1 of 3 leaves passed"
    );
    repo.agent("exit 1");
    repo.runner(&["loop", "--json"]).code(1);
    let value = report(&repo);
    assert_eq!(value["state"], "error");
    let verdict = value["verdict"].as_str().unwrap();
    assert!(verdict.contains("without writing output.json"), "{verdict}");
}

#[test]
fn before_the_start_and_when_complete() {
    let mut repo = bare();
    repo.agent(DONE);
    repo.init_run(GOAL, &["true"]);
    let run = repo.runner(&["report"]).success();
    insta::assert_snapshot!(run.stdout, @r"
    no run has been started here
    Ship it

    next
      runner start  begin the run that GOAL.md describes
    ");
    repo.runner(&["start", "--no-guard-check"]).success();
    assert_eq!(report(&repo)["state"], "open");
    repo.runner(&["loop"]).success();
    let value = report(&repo);
    assert_eq!(value["verdict"], "complete: its one leaf has passed");
    assert_eq!(value["next"][0]["command"], "runner land");
    let command = value["next"][1]["command"].as_str().unwrap();
    let mut cmd = repo.hermetic("sh");
    cmd.args(["-c", command]);
    repo.spawn(cmd).wait().success().says("work.txt");
}

#[test]
fn while_a_step_runs() {
    let repo = planned(&["a"], &format!("{WAIT_FOR_GO}{DONE}"), &["true"]);
    let running = repo.spawn_runner(&["step"]);
    eventually("the session", Duration::from_secs(20), || {
        repo.agent_calls().len() == 2
    });
    let value = report(&repo);
    assert_eq!(value["state"], "running");
    assert_eq!(
        value["running"],
        json!({"pid": running.pid(), "iter": 2, "node_id": "a"})
    );
    let run = repo.runner(&["report"]).success();
    let first = format!(
        "running (pid {}), iteration 2 at a; 0 of 1 leaves passed\n",
        running.pid()
    );
    assert!(run.stdout.starts_with(&first), "{}", run.describe());
    go(&repo);
    running.wait().success();
    assert_eq!(report(&repo)["state"], "complete");
}

#[test]
fn with_an_invalid_tree() {
    let repo = planned(&["a", "b"], DONE, &["true"]);
    step(&repo);
    repo.agent("echo broken > \"$TREE\"; out retry x");
    step(&repo);
    let value = report(&repo);
    assert_eq!(value["state"], "repair");
    assert_eq!(value["passed"][0]["node_id"], "a");
    assert!(
        value["tree_findings"][0]
            .as_str()
            .unwrap()
            .contains("line 1")
    );
    assert_eq!(value["next"][0]["command"], "runner loop");

    repo.write(".runner/state/tree.json", "{}");
    repo.commit_all("broken by hand");
    std::fs::remove_dir_all(repo.path(".runner/iterations")).unwrap();
    repo.runner(&["report"]).success();
}

#[test]
fn in_a_clone_without_logs() {
    let repo = eventful();
    std::fs::remove_dir_all(repo.path(".runner/iterations")).unwrap();
    let value = report(&repo);
    assert_eq!(value["state"], "stuck");
    // The proofs are in the commits.
    assert_eq!(value["passed"][0]["iter"], 2);
    assert_eq!(value["passed"][0]["guard_exit"], 0);
    let missing = value["missing"][0].as_str().unwrap();
    assert!(
        missing.contains("the logs of 4 of 4 iterations"),
        "{missing}"
    );
    assert_eq!(
        value["stuck"][0]["tries"][0]["summary"]
            .as_str()
            .unwrap()
            .lines()
            .next(),
        Some("The session was not accepted:")
    );
    assert_eq!(
        (&value["wall_ms"], &value["usage"]["iterations"]),
        (&Value::Null, &json!(0))
    );
    assert_eq!(value["questions"], json!(["- how wide?"]));
    let run = repo.runner(&["report"]).success();
    assert!(run.stdout.contains("not known here"), "{}", run.describe());
}

#[test]
fn notes_of_earlier_runs_are_not_this_runs() {
    let repo = started(
        "echo \"- by $RUNNER_RUN_ID\" >> .runner/state/questions.md; out done x",
        &["true"],
    );
    step(&repo);
    repo.write(".runner/GOAL.md", GOAL.replace("demo", "second"));
    repo.runner(&["start", "--no-guard-check"]).success();
    step(&repo);
    assert!(
        repo.read(".runner/state/questions.md")
            .contains("- by demo")
    );
    assert_eq!(report(&repo)["questions"], json!(["- by second"]));
}

#[test]
fn what_agents_say_does_no_harm() {
    let repo = planned(
        &["a"],
        "",
        &[
            "sh",
            "-c",
            "printf '\\033[2J```\\n</details>@team\\n'; exit 1",
        ],
    );
    repo.agent(
        "tree_edit 'n(\"a\")[\"title\"] = \"x\\x1b[2J```</h1>\"'
         printf '%b' '- \\033[31m<script>```\\n' >> .runner/state/questions.md
         out done '``` </details> @team # [x](y)'",
    );
    for _ in 0..3 {
        step(&repo);
    }
    for args in [&["report"][..], &["report", "--md"], &["why"]] {
        let run = repo.runner(args).success();
        assert!(!run.stdout.contains('\x1b'), "{}", run.describe());
    }
    let page = repo.runner(&["report", "--md"]).success().stdout;
    assert!(
        page.contains("````text\n[2J```\n</details>@team\n````"),
        "{page}"
    );
    assert!(page.contains("````` ") || page.contains("```` "), "{page}");
}

/// Writes what a session used into its record.
fn set_usage(repo: &TestRepo, iter: u64, tokens: u64, cost: Option<f64>) {
    let mut meta = repo.meta(iter);
    meta["executor"]["input_tokens"] = json!(tokens);
    meta["executor"]["output_tokens"] = json!(tokens / 10);
    meta["executor"]["cost_usd"] = json!(cost);
    std::fs::write(repo.iteration(iter).join("meta.json"), meta.to_string()).unwrap();
}

#[test]
fn tokens_and_cost_of_each_node() {
    let repo = eventful();
    set_usage(&repo, 1, 100, Some(0.25));
    set_usage(&repo, 3, 1000, Some(1.5));
    set_usage(&repo, 4, 2000, None);

    let value = report(&repo);
    assert_eq!(value["usage"]["input_tokens"], 3100);
    assert_eq!(value["usage"]["tokens_unknown"], 1);
    assert_eq!(value["usage"]["cost_usd"], 1.75);
    assert_eq!(value["usage"]["cost_unknown"], 2);
    let status = repo.runner(&["status", "--json"]).success().json();
    assert_eq!(status["nodes"], value["nodes"]);
    assert_eq!(status["cost_unknown"], 2);
    let node = |id: &str| {
        let nodes = value["nodes"].as_array().unwrap();
        nodes.iter().find(|it| it["node_id"] == id).unwrap().clone()
    };
    assert_eq!(node("b")["input_tokens"], 3000);
    assert_eq!(node("b")["iterations"], 2);
    assert_eq!(node("a")["input_tokens"], Value::Null);

    let human = repo.runner(&["status"]).success().stdout;
    for words in [
        "tokens:     3100 in, 310 out, and 1 iteration of unknown tokens\n",
        "cost:       $1.75, and 2 iterations of unknown cost\n",
        "; tokens: 3000 in, 300 out; cost: $1.50, and 1 iteration of unknown cost\n",
    ] {
        assert!(human.contains(words), "{words:?} in\n{human}");
    }
    let table = repo.runner(&["report"]).success().stdout;
    let cells: Vec<Vec<&str>> = table
        .lines()
        .filter(|line| line.starts_with("    "))
        .map(|line| line.split_whitespace().collect())
        .collect();
    let cells = |id: &str| {
        let row = cells.iter().find(|row| row.len() == 5 && row[0] == id);
        row.map(|row| (row[3], row[4])).unwrap()
    };
    assert_eq!(cells("root"), ("110", "$0.2500"));
    assert_eq!(cells("a"), ("unknown", "unknown"));
    assert_eq!(cells("b"), ("3300", "$1.50+"));

    let run = repo.runner(&["log"]).success();
    let columns: Vec<Option<usize>> = run
        .stdout
        .lines()
        .map(|line| line.find(" tokens"))
        .collect();
    assert_eq!(columns.len(), 4);
    assert!(
        columns.iter().all(|at| at.is_some() && *at == columns[0]),
        "{}",
        run.stdout
    );

    let run = repo.runner(&["log", "--node", "b"]).success();
    assert_eq!(run.stdout.lines().count(), 2);
    assert!(run.stderr.contains("2 iterations, "), "{}", run.describe());
    let value = repo
        .runner(&["log", "--node", "b", "--json"])
        .success()
        .json();
    assert_eq!(value["iterations"][0]["iter"], 3);
    assert_eq!(value["usage"]["cost_usd"], 1.5);
    let run = repo.runner(&["log", "--node", "c"]).success();
    assert!(
        run.stderr.contains("no iterations of c"),
        "{}",
        run.describe()
    );
    scenario::human_error(
        &repo.runner(&["log", "--node", "nobody"]),
        "no node \"nobody\"",
        "runner tree",
    );
    repo.runner(&["log", "2", "--node", "b"]).code(2);
}

#[test]
fn a_thousand_iterations_fit_on_a_page() {
    let repo = eventful();
    let (mut meta, mut state) = (repo.meta(3), repo.run_state());
    for iter in 5..=1000_u64 {
        meta["iter"] = json!(iter);
        let folder = repo.iteration(iter);
        std::fs::create_dir(&folder).unwrap();
        std::fs::write(folder.join("meta.json"), meta.to_string()).unwrap();
    }
    state["next_iter"] = json!(1001);
    repo.write(".runner/state/run_state.json", state.to_string());
    let run = repo.runner(&["report"]).success();
    assert!(run.stdout.contains("1000 iterations: "), "{}", run.stdout);
    assert!(run.stdout.lines().count() < 100, "{}", run.stdout);
    // A generous bound: it takes a fraction of a second.
    assert!(run.elapsed < Duration::from_secs(20), "{:?}", run.elapsed);
    assert_eq!(report(&repo)["touched"].as_array().unwrap().len(), 1000);
}
