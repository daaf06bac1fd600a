//! Reviewers and planners: what they are asked, and whatever they say.

use runner_testkit::assert_no_process;
use serde_json::json;

use crate::{ask, project, refused, text, without_quota, worked};

#[test]
fn a_reviewer_sees_the_result_and_the_question() {
    let repo = project();
    repo.agent("echo x > a/x; out done did");
    let result = worked(&repo, "task");
    let start = repo.head();
    repo.agent(
        "test \"$RUNNER_QUESTION\" = review && test -f a/x || exit 9\n\
         cat > \"$AGENT_DIR/prompt\"; cp \"$RUNNER_OUTPUT_SCHEMA\" \"$AGENT_DIR/schema\"\n\
         git diff --name-only HEAD^ HEAD > \"$AGENT_DIR/diff\"\n\
         echo spoiled > a/x; git update-ref refs/heads/main HEAD\n\
         echo '{\"verdict\": \"approve\"}' > \"$RUNNER_OUTPUT_PATH\"",
    );
    let order = json!({"start": start, "result": result});
    let said = ask(&repo, "review", &order);
    assert_eq!(said, json!({"said": "{\"verdict\": \"approve\"}\n"}));
    let read = |name: &str| std::fs::read_to_string(repo.agent_dir().join(name)).unwrap();
    let prompt = read("prompt");
    for words in [
        "# Do task",
        &format!("git diff {start} {result}"),
        "- reads-well: It reads well.",
        "- old-finding: It was too long.",
        "output.json",
    ] {
        assert!(prompt.contains(words), "{words}: {prompt}");
    }
    assert!(read("schema").contains("\"criteria\""));
    assert_eq!(read("diff"), "a/x\n");
    // Whatever it did there is gone.
    assert_eq!(repo.head(), start);
    assert_eq!(repo.private_checkouts(), Vec::<std::path::PathBuf>::new());
}

#[test]
fn silence_and_nonsense_are_data() {
    let repo = project();
    let order = json!({"start": repo.head(), "result": repo.head()});
    repo.agent("exit 0");
    assert_eq!(ask(&repo, "review", &order), "silent");
    repo.agent("echo boom >&2; exit 3");
    assert_eq!(ask(&repo, "review", &order), "silent");
    repo.agent("printf 'looks good to me' > \"$RUNNER_OUTPUT_PATH\"; exit 3");
    assert_eq!(
        ask(&repo, "review", &order),
        json!({"said": "looks good to me"})
    );
    repo.agent("printf ' \\n' > \"$RUNNER_OUTPUT_PATH\"");
    assert_eq!(ask(&repo, "review", &order), "silent");
    let order = json!({"result": "1234567890123456789012345678901234567890"});
    assert!(refused(&repo, "review", &order).contains("is not there"));
}

#[test]
fn a_reviewer_without_quota() {
    let mut repo = project();
    without_quota(&mut repo);
    let order = json!({"start": repo.head(), "result": repo.head()});
    let reviewed = ask(&repo, "review", &order);
    assert_eq!(reviewed["account"], "codex", "{reviewed}");
    assert!(reviewed["quota"].as_i64().unwrap() > 1_700_000_000_000);
}

#[test]
fn a_planner_is_asked_and_told_what_was_wrong() {
    let repo = project();
    repo.agent(
        "test \"$RUNNER_QUESTION\" = plan && test -f a/one.txt || exit 9\n\
         cat > \"$AGENT_DIR/prompt\"; echo '{\"tasks\": []}' > \"$RUNNER_OUTPUT_PATH\"",
    );
    let order = json!({"requirement": "A parser.", "findings": ["it is cyclic: a, b"]});
    assert_eq!(ask(&repo, "plan", &order), "{\"tasks\": []}\n");
    let prompt = std::fs::read_to_string(repo.agent_dir().join("prompt")).unwrap();
    assert!(prompt.contains("A parser."), "{prompt}");
    assert!(prompt.contains("- it is cyclic: a, b"), "{prompt}");
    repo.agent("exit 1");
    assert_eq!(ask(&repo, "plan", &order), "");
}

#[test]
fn a_question_is_ended_with_all_that_was_started() {
    let repo = project();
    let started = repo.agent_dir().join("started");
    repo.agent("setsid sleep 600 & : > \"$AGENT_DIR/started\"; sleep 600");
    let order = json!({"start": repo.head(), "result": repo.head(), "stop_when": started});
    let words = refused(&repo, "review", &order);
    assert!(words.contains("interrupted"), "{words}");
    assert_no_process(&repo.root().display().to_string());
    assert_eq!(
        text(&json!(repo.git(&["status", "--porcelain", "-uno"]))),
        ""
    );
}
