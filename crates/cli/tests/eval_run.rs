//! `runner eval run`: many at a time, what is missing, what is cut off, what it costs.

#![allow(clippy::unwrap_used)] // A test that cannot go on has failed.

mod agent_support;
mod eval_support;

use std::fs;
use std::time::Duration;

use agent_support::contained::{MECHANISMS, with_mechanism};
use eval_support::{
    DOES_IT, read_json, records, results, run_json, summary, with_eval, write_case,
};
use runner_testkit::{TestPty, assert_processes_end, eventually, processes_with_env};

const LONG: Duration = Duration::from_secs(60);

#[test]
fn the_sample_runs_in_parallel_each_in_its_own_workspace() {
    let repo = with_eval();
    let run = run_json(&repo, &["hello", "--runs", "4", "--jobs", "3"]).success();
    let records = records(&run);
    assert_eq!(records.len(), 4);
    let mut workspaces: Vec<&str> = records
        .iter()
        .filter_map(|it| it["workspace"].as_str())
        .collect();
    workspaces.sort_unstable();
    workspaces.dedup();
    assert_eq!(workspaces.len(), 4);
    // Outside of the project, so that its own files are not above them.
    let project = repo.path("").display().to_string();
    assert!(workspaces.iter().all(|it| !it.starts_with(&project)));
    let same = |key: &str| records.iter().all(|it| it[key] == records[0][key]);
    assert!(same("prompt_hash") && same("config_hash") && same("set"));
    assert_eq!(results(&repo, "hello").len(), 4);
    // In words: a line for each, and what it came to.
    repo.runner(&["eval", "run", "hello"])
        .success()
        .says("✓ success  hello #01")
        .says("1 of 1 runs as expected");
    repo.git(&["status", "--porcelain"]);
    assert_eq!(
        repo.git(&["status", "--porcelain", "--", "eval/results"]),
        ""
    );
}

/// What the checks ask for, what came of other runs and what they made is nobody's business in a run:
/// neither the session's nor the guard's, and not that of the code that a check runs.
#[test]
fn no_child_of_a_run_sees_checks_results_or_other_runs() {
    for mechanism in MECHANISMS {
        let mut repo = with_mechanism(mechanism);
        repo.config(|config| {
            config.set("sandbox.mode", "auto");
        });
        repo.runner(&["eval", "init"]).success();
        // Found by their paths, and by looking for them.
        let places = repo.root().display().to_string();
        let look = |who: &str| {
            format!(
                "if cat {places}/repo/eval/cases/*.toml {places}/repo/eval/results/*/*/meta.json \
                 {places}/repo/eval/workspaces/first_latest/made {places}/home/.cache/runner/eval/*/first_*/made \
                 \"$EVALS\"/*/first_*/made 2>/dev/null | grep -q .; then echo {who}-saw >>\"$PWD/seen\"; fi"
            )
        };
        let agent = format!("{}\n{DOES_IT}", look("session"));
        let guard = format!("{}; ! test -e seen", look("guard"));
        let evals = repo.root().join("home/.cache/runner/eval");
        let checks = format!(
            "[env]\nEVALS = \"{}\"\nRUNNER_CLOSED_PATHS = \"\"\n\
             [[checks]]\ntype = \"runner_completed\"\n\
             [[checks]]\ntype = \"command_succeeds\"\ncmd = [\"sh\", \"-c\", \'\'\'{}; ! test -e seen\'\'\']\n",
            evals.display(),
            look("check")
        );
        write_case(&repo, "first", DOES_IT, "true", "");
        run_json(&repo, &["first"]).success();
        assert!(repo.exists("eval/workspaces/first_latest/made"));
        write_case(&repo, "looks", &agent, &guard, &checks);
        let run = run_json(&repo, &["looks"]);
        assert_eq!(
            records(&run)[0]["outcome"],
            "success",
            "{mechanism}: {}",
            run.describe()
        );
        let seen = repo.path("eval/workspaces/looks_latest/seen");
        assert!(
            !seen.exists(),
            "{mechanism}: {:?}",
            fs::read_to_string(&seen)
        );
        run.success();
    }
}

#[test]
fn a_terminal_shows_a_bar_for_each_run_and_one_for_all() {
    let repo = with_eval();
    let gate = repo.root().join("gate");
    let agent = format!(
        "until [ -e '{}' ]; do sleep 0.05; done\n{DOES_IT}",
        gate.display()
    );
    write_case(&repo, "gated", &agent, "true", "");
    let mut cmd = repo.runner_cmd(&["eval", "run", "gated", "--runs", "2", "--jobs", "2"]);
    cmd.env("TERM", "xterm");
    let mut pty = TestPty::spawn(&cmd, 100, 24);
    pty.wait_for("············ gated #01  iteration 1 of at most 5");
    pty.wait_for("············ 0 of 2 runs");
    fs::write(&gate, "").unwrap();
    let (code, seen) = pty.wait();
    assert_eq!(code, Some(0), "{seen}");
    assert!(seen.contains("success"), "{seen}");
    assert!(seen.contains("2 of 2 runs as expected"), "{seen}");
}

#[test]
fn the_exit_code_tells_whether_all_is_as_expected() {
    let repo = with_eval();
    write_case(&repo, "red", DOES_IT, "false", "");
    write_case(
        &repo,
        "red-as-expected",
        DOES_IT,
        "false",
        "expect = \"stuck\"",
    );
    run_json(&repo, &["red-as-expected"]).success();
    let run = run_json(&repo, &["red"]).code(1);
    assert_eq!(summary(&run)["ok"], false);
    assert_eq!(records(&run)[0]["outcome"], "stuck");
    repo.runner(&["eval", "run", "redd"])
        .code(1)
        .says("there is no case \"redd\"")
        .says("did you mean `red`?");
}

#[test]
fn a_case_whose_tool_is_missing_is_skipped_by_its_name() {
    let repo = with_eval();
    write_case(
        &repo,
        "needy",
        DOES_IT,
        "true",
        "requires = [\"no-such-tool-here\"]",
    );
    let run = run_json(&repo, &["needy", "hello"]).success();
    let summary = summary(&run);
    assert_eq!(summary["skipped"][0]["tool"], "no-such-tool-here");
    assert_eq!(records(&run).len(), 1);
    repo.runner(&["eval", "run", "needy"])
        .success()
        .says("– skipped  needy  `no-such-tool-here` is not installed");
}

#[test]
fn broken_case_files_are_told_with_line_and_remedy() {
    let repo = with_eval();
    repo.write("eval/cases/a.toml", "[case]\nid = \"hello\"\ngoal = \"g\"\n[[checks]]\ntype = \"file_exists\"\npath = \"../x\"\nmode = 1\n");
    repo.write(
        "eval/cases/b.toml",
        "[case]\nid = \"hello\"\ngoal = \"g\"\n[[checks]]\ntype = \"runner_completed\"\n",
    );
    let run = repo.runner(&["eval", "list"]).code(1);
    for words in [
        "eval/cases/a.toml:6: checks[0].path: `../x` leads out of the workspace",
        "eval/cases/a.toml:7: checks[0].mode: unknown key for `file_exists`",
        "hint: it takes path",
        "eval/cases/hello.toml:7: case.id: the id `hello` is used by b.toml too",
        "hint: give one of them another id",
    ] {
        assert!(run.stderr.contains(words), "{words}\n{}", run.describe());
    }
    let listed = repo.runner(&["eval", "list", "--json"]).code(1).json();
    assert_eq!(listed["problems"][0]["line"], 6);
    // Nothing runs while anything is wrong, unless what is fine is named.
    repo.runner(&["eval", "run"]).code(1).says("a.toml:6");
    assert!(results(&repo, "hello").is_empty());
}

#[test]
fn a_check_ends_with_all_its_children_and_in_its_time() {
    let repo = with_eval();
    let more = "expect = \"fail\"\n[[checks]]\ntype = \"command_succeeds\"\ntimeout_secs = 1\n\
        cmd = [\"sh\", \"-c\", \"(setsid sleep 987 &) ; yes | head -c 5000000; sleep 987\"]\n";
    write_case(&repo, "slow", DOES_IT, "true", more);
    let run = run_json(&repo, &["slow"]).success();
    assert_eq!(records(&run)[0]["detail"], "did not end within 1 s");
    let checks = read_json(&results(&repo, "slow")[0].join("checks.json"));
    let output = checks[0]["output"].as_str().unwrap();
    assert!(output.len() < 20_000, "{}", output.len());
    assert_processes_end(&repo.root().display().to_string(), LONG);
}

#[test]
fn checks_write_nowhere_but_in_their_workspace() {
    let repo = with_eval();
    let more = "expect = \"fail\"\n[[checks]]\ntype = \"command_succeeds\"\n\
        cmd = [\"sh\", \"-c\", \"echo x > inside && echo x > \\\"$HOME/outside\\\"\"]\n";
    write_case(&repo, "nosy", DOES_IT, "true", more);
    let doctor = repo.runner(&["doctor", "--json"]).json();
    let sandboxed = doctor["checks"]
        .as_array()
        .into_iter()
        .flatten()
        .any(|it| it["name"] == "sandbox" && it["verdict"] == "ok");
    let run = run_json(&repo, &["nosy"]);
    if sandboxed {
        run.success();
        assert!(!repo.root().join("home/outside").exists());
    }
    let workspace = repo.path("eval/workspaces/nosy_latest");
    assert!(workspace.join("inside").is_file());
}

#[test]
fn after_a_kill_everything_recorded_stays_and_resume_makes_the_rest() {
    let repo = with_eval();
    let gate = repo.root().join("gate");
    // The first run goes through, the second waits for a file that comes later.
    let agent = format!(
        "case $(pwd) in *-02) until [ -e '{}' ]; do sleep 0.05; done;; esac\n{DOES_IT}",
        gate.display()
    );
    write_case(&repo, "gated", &agent, "true", "");
    let running = repo.spawn_runner(&["eval", "run", "gated", "--runs", "3", "--label", "mine"]);
    eventually("the second run", LONG, || {
        let loops = processes_with_env(&repo.root().display().to_string());
        results(&repo, "gated").len() == 1 && loops.iter().any(|it| it.cmdline.contains("agent.sh"))
    });
    running.kill();
    assert_processes_end(&repo.root().display().to_string(), LONG);
    assert_eq!(results(&repo, "gated").len(), 1);
    let first = read_json(&results(&repo, "gated")[0].join("meta.json"));

    fs::write(&gate, "").unwrap();
    let run = run_json(&repo, &["--resume", "--jobs", "2"]).success();
    assert_eq!(run.json_lines()[0]["done_before"], 1);
    assert_eq!(records(&run).len(), 2);
    let all = results(&repo, "gated");
    assert_eq!(all.len(), 3);
    for folder in &all {
        let record = read_json(&folder.join("meta.json"));
        assert_eq!(record["set"], first["set"]);
        assert_eq!(record["label"], "mine");
        assert_eq!(
            (&record["outcome"], &record["iterations"]),
            (&"success".into(), &1.into())
        );
    }
    assert_eq!(read_json(&all[0].join("meta.json")), first);
    // No halves are left, and there is nothing more to take up.
    let names = fs::read_dir(repo.path("eval/results/gated")).unwrap();
    assert!(
        names
            .flatten()
            .all(|it| !it.file_name().to_string_lossy().starts_with('.'))
    );
    repo.runner(&["eval", "run", "--resume"])
        .code(1)
        .says("there is no set of runs to take up again");
}

#[test]
fn an_interrupt_records_no_half_run_and_a_changed_case_is_not_taken_up() {
    let repo = with_eval();
    write_case(&repo, "endless", "sleep 987", "true", "");
    let running = repo.spawn_runner(&["eval", "run", "endless", "hello"]);
    eventually("the agent", LONG, || {
        processes_with_env(&repo.root().display().to_string())
            .iter()
            .any(|it| it.cmdline == "sleep 987")
    });
    running.signal("INT");
    running
        .wait_within(LONG)
        .code(130)
        .says("`runner eval run --resume` makes the rest");
    assert_processes_end(&repo.root().display().to_string(), LONG);
    assert!(results(&repo, "endless").is_empty());
    let before = repo.read("eval/cases/endless.toml");
    repo.write(
        "eval/cases/endless.toml",
        before.replace("sleep 987", DOES_IT),
    );
    repo.runner(&["eval", "run", "--resume"])
        .code(1)
        .says("the case endless has changed since the set");
}

#[test]
fn a_run_that_is_killed_is_an_error_and_the_others_go_on() {
    let repo = with_eval();
    // The agent kills the runner above it, which is the parent of its supervisor.
    let agent = "runner=$(awk '{print $4}' /proc/$PPID/stat)\nkill -9 $runner\nsleep 987";
    write_case(&repo, "crash", agent, "true", "expect = \"error\"\n");
    let text = repo.read("eval/cases/crash.toml");
    repo.write(
        "eval/cases/crash.toml",
        text.replace("[executor]", "[config.sandbox]\nmode = \"off\"\n[executor]"),
    );
    let run = run_json(&repo, &["crash", "hello"]).success();
    let records = records(&run);
    assert_eq!(records.len(), 2, "{}", run.describe());
    assert_eq!(records[0]["reason"], "exit 137", "{}", run.describe());
    assert_eq!(records[1]["outcome"], "success");
    assert_processes_end(&repo.root().display().to_string(), LONG);
}

#[test]
fn no_run_begins_once_the_money_is_used_up() {
    let repo = with_eval();
    let agent = format!("echo '{{\"event\":\"usage\",\"cost_usd\":0.6}}'\n{DOES_IT}");
    write_case(&repo, "dear", &agent, "true", "");
    let run = run_json(&repo, &["dear", "--runs", "3", "--max-cost", "1"]).code(1);
    assert_eq!(records(&run).len(), 2);
    assert_eq!(summary(&run)["unaffordable"], 1);
    let run = run_json(&repo, &["--resume", "--max-cost", "2"]).success();
    assert_eq!(records(&run).len(), 1);
    // Where nobody tells the cost it cannot be kept.
    let text = repo.read("eval/cases/dear.toml");
    repo.write(
        "eval/cases/dear.toml",
        text.replace("\"dear\"", "\"dear2\""),
    );
    let text = repo.read("eval/cases/dear.toml");
    let unpriced = "backend = \"codex\"\n";
    let text = text.replace(
        "backend = \"command\"\ncommand = [\"sh\", \"agent.sh\"]\n",
        unpriced,
    );
    repo.write("eval/cases/dear.toml", text);
    let program = repo.root().join("bin/codex");
    fs::create_dir_all(program.parent().unwrap()).unwrap();
    runner_testkit::write_program(&program, "#!/bin/sh\nexit 1\n");
    let mut cmd = repo.runner_cmd(&["eval", "run", "dear2", "--max-cost", "1"]);
    let path = std::env::var("PATH").unwrap();
    cmd.env(
        "PATH",
        format!("{}:{path}", repo.root().join("bin").display()),
    );
    repo.spawn(cmd)
        .wait()
        .code(1)
        .says("--max-cost cannot be kept for the case dear2: what codex costs is not known");
}

#[test]
fn agent_instructions_and_environment_reach_the_workspace() {
    let repo = with_eval();
    let agent =
        "cp .runner/INSTRUCTIONS.md seen.md\necho \"$GREETING\" >env\n".to_owned() + DOES_IT;
    write_case(
        &repo,
        "plain",
        "exit 1",
        "true",
        "[env]\nGREETING = \"hi there\"",
    );
    repo.write(".runner/INSTRUCTIONS.md", "Be brief.\n");
    repo.write("elsewhere.md", "Be wordy.\n");
    let script = repo.root().join("solve.sh");
    fs::write(&script, agent).unwrap();
    let executor = format!("command:sh {}", script.display());
    let run = run_json(&repo, &["plain", "--executor", &executor]).success();
    let workspace = repo.path("eval/workspaces/plain_latest");
    assert_eq!(
        fs::read_to_string(workspace.join("seen.md")).unwrap(),
        "Be brief.\n"
    );
    assert_eq!(
        fs::read_to_string(workspace.join("env")).unwrap(),
        "hi there\n"
    );
    let brief = records(&run)[0].clone();
    let args = [
        "plain",
        "--executor",
        &executor,
        "--instructions",
        "elsewhere.md",
    ];
    let wordy = records(&run_json(&repo, &args).success())[0].clone();
    assert_ne!(brief["prompt_hash"], wordy["prompt_hash"]);
    assert_ne!(brief["instructions_hash"], wordy["instructions_hash"]);
    assert_eq!(brief["config_hash"], wordy["config_hash"]);
    repo.runner(&["eval", "run", "plain", "--executor", "gpt"])
        .code(1)
        .says("there is no backend \"gpt\"");
    repo.runner(&["eval", "run", "plain", "--runner", "nowhere"])
        .code(1)
        .says("nowhere: there is no such file");
}
