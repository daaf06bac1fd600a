//! `runner land` where nobody is in the way: what the commit holds and says, what
//! is asked for, and when it is refused.

#![allow(clippy::unwrap_used)] // A test that cannot go on has failed.

mod landing_support;
mod scenario;

use std::time::Duration;

use landing_support::{
    AGENT, GUARD, assert_home, assert_tidy, branch, commit_on, complete, complete_with, files,
    half, refused,
};
use runner_testkit::{assert_processes_end, eventually, write_program};
use scenario::{
    GOAL, WAIT_FOR_GO, bare, error_code, go, human_error, message, planned, sh, started,
};
use serde_json::json;

/// No wait for a condition is longer.
const PATIENCE: Duration = Duration::from_secs(30);

#[test]
fn a_complete_run_comes_home_as_one_commit() {
    let repo = complete();
    let base = repo.git(&["rev-parse", "main"]);
    let tip = repo.head();
    let run = repo.runner(&["land"]).success();
    assert!(
        run.stdout
            .starts_with("run demo has landed on main as one commit: ")
    );
    run.says("you are on main")
        .says("next: `git show`")
        .says("`runner init`");
    assert_home(&repo, &base);
    let proof = |iter: u32| {
        let grep = format!("--grep=^chore(loop): run demo iter {iter} ");
        repo.git(&["log", "-1", "--format=%H", &grep, "runner/demo"])[..12].to_owned()
    };
    let text = message(&repo, "main");
    let expected = format!(
        "Ship it\n\nRun demo: 2 of 2 leaves passed.\n\n\
         - a: Leaf a (guard passed in iteration 2, {})\n\
         - b: Leaf b (guard passed in iteration 3, {})\n\n\
         Runner-Run: demo\nRunner-Tip: {tip}\n",
        proof(2),
        proof(3)
    );
    assert!(text.starts_with(&expected), "{text}\n---\n{expected}");
    assert!(text.contains("\nRunner-Guard: [\"sh\",\"-c\","), "{text}");
    assert_eq!(
        repo.git(&["rev-parse", "runner/demo"]),
        tip,
        "the run's branch stays"
    );
    // The guard ran once more, and its output is kept.
    assert_eq!(
        repo.read(".runner/iterations/demo/land-guard.log"),
        "guarding\n"
    );
}

#[test]
fn what_landed_is_said_as_json() {
    let repo = complete();
    let tip = repo.head();
    let value = repo.runner(&["land", "--json"]).success().json();
    let log = repo.path(".runner/iterations/demo/land-guard.log");
    let expected = json!({
        "schema_version": 1, "run_id": "demo", "branch": "runner/demo", "into": "main",
        "landed": "now", "commit": repo.head(), "tip": tip, "how": "squash", "partial": false,
        "passed": ["a", "b"], "open": [], "left_out": 0, "here": "main", "followed": [],
        "guard": {"command": GUARD, "exit": 0, "log": log}, "accepted": [],
    });
    assert_eq!(value, expected);
}

#[test]
fn a_merge_has_two_parents_and_no_state() {
    let repo = complete();
    let base = repo.git(&["rev-parse", "main"]);
    let tip = repo.head();
    repo.runner(&["land", "--merge"])
        .success()
        .says("as a merge");
    assert_home(&repo, &base);
    assert_eq!(repo.git(&["rev-parse", "main^2"]), tip);
    repo.runner(&["land", "--merge", "--squash"]).code(2);
}

#[test]
fn keep_state_takes_the_runs_folder_along() {
    let repo = complete();
    repo.runner(&["land", "--keep-state", "--squash"]).success();
    assert_eq!(branch(&repo), "main");
    assert_tidy(&repo);
    let tree = |branch: &str| repo.git(&["rev-parse", &format!("{branch}:.runner")]);
    assert_eq!(tree("main"), tree("runner/demo"));
}

#[test]
fn a_second_time_there_is_nothing_to_do() {
    let repo = complete();
    repo.runner(&["land"]).success();
    let home = repo.head();
    repo.runner(&["land"])
        .success()
        .says("has landed on main already");
    // Also from the run's branch: one is brought to where the work is.
    repo.git(&["switch", "-q", "runner/demo"]);
    let value = repo.runner(&["land", "--json"]).success().json();
    assert_eq!(
        (&value["landed"], &value["commit"]),
        (&json!("before"), &json!(home))
    );
    assert_eq!((branch(&repo), repo.head()), ("main".to_owned(), home));
    assert_tidy(&repo);
}

#[test]
fn a_run_that_was_merged_by_hand_is_home() {
    let repo = complete();
    sh(
        &repo,
        "git switch -q main; git checkout -q runner/demo -- a.txt b.txt; git commit -qm mine",
    );
    let mine = repo.head();
    let value = repo.runner(&["land", "--json"]).success().json();
    assert_eq!(
        (&value["landed"], &value["commit"]),
        (&json!("nothing_new"), &json!(mine))
    );
    assert_eq!(repo.git(&["rev-parse", "main"]), mine);

    let repo = complete();
    sh(
        &repo,
        "git switch -q main; git merge -q --no-ff runner/demo",
    );
    let runs = repo.runner(&["runs", "--json"]).json();
    assert_eq!(runs["runs"][0]["state"], "landed");
    let value = repo.runner(&["land", "--json"]).success().json();
    assert_eq!(value["landed"], "nothing_new");
    repo.assert_clean();
}

#[test]
fn what_is_not_complete_stays_unless_asked_for() {
    let repo = half();
    human_error(&refused(&repo, &[]), "1 of 2 leaves passed", "--partial");
    assert_eq!(error_code(&refused(&repo, &["--json"])), "incomplete");

    let value = repo
        .runner(&["land", "--partial", "--json"])
        .success()
        .json();
    assert_eq!(
        (&value["passed"], &value["open"]),
        (&json!(["a"]), &json!(["b"]))
    );
    assert_eq!(
        (&value["partial"], &value["left_out"]),
        (&json!(true), &json!(1))
    );
    // What came after the last green guard is not in it.
    assert_eq!(files(&repo, "main"), ["README.md", "a.txt"]);
    let text = message(&repo, "main");
    assert!(
        text.contains("Not in here, because it has not passed:\n\n- b: Leaf b\n"),
        "{text}"
    );
    // The run goes on where it was.
    assert_eq!(branch(&repo), "runner/demo");
    assert_tidy(&repo);
    repo.runner(&["land", "--partial"])
        .success()
        .says("already");
    assert_eq!(
        repo.runner(&["runs", "--json"]).json()["runs"][0]["state"],
        "idle"
    );

    // The rest comes later, on top: what landed before is not merged once more.
    repo.runner(&["loop"]).success();
    let part = commit_on(&repo, "main", "a.txt", "a\nand a line of mine\n");
    repo.runner(&["land"]).success();
    assert_eq!(repo.git(&["rev-parse", "main^"]), part);
    assert_eq!(repo.git(&["show", "main:a.txt"]), "a\nand a line of mine");
    assert_eq!(
        files(&repo, "main"),
        ["README.md", "a.txt", "b.txt", "later.txt"]
    );
    assert_eq!(branch(&repo), "main");
}

#[test]
fn there_must_be_something_that_passed() {
    let repo = planned(&["a", "b"], AGENT, GUARD);
    human_error(
        &refused(&repo, &["--partial"]),
        "nothing of run demo has passed yet",
        "loop",
    );
}

#[test]
fn uncommitted_work_and_a_runner_at_work_are_in_the_way() {
    let repo = complete();
    repo.write("mine.txt", "not committed");
    human_error(&refused(&repo, &[]), "mine.txt", "commit");
    std::fs::remove_file(repo.path("mine.txt")).unwrap();

    let repo = started(&format!("{WAIT_FOR_GO}out done x"), &["true"]);
    let running = repo.spawn_runner(&["step"]);
    eventually("the session", PATIENCE, || !repo.agent_calls().is_empty());
    for command in ["land", "abandon"] {
        let run = repo.runner(&[command]);
        human_error(&run, "another runner is at work in this project", "wait");
    }
    go(&repo);
    running.wait().success();
}

#[test]
fn an_iteration_that_was_cut_off_is_settled_first() {
    let cut_off = || {
        let repo = planned(&["a", "b"], AGENT, GUARD);
        repo.runner(&["step"]).success();
        repo.agent_at(3, &format!("echo half > half.txt\n{WAIT_FOR_GO}"));
        let running = repo.spawn_runner(&["step"]);
        eventually("the session", PATIENCE, || {
            repo.workspace("half.txt").exists()
        });
        running.kill();
        assert_processes_end(&repo.root().display().to_string(), PATIENCE);
        repo
    };
    let repo = cut_off();
    let run = repo.runner(&["land"]).code(1);
    run.says("recovered: iteration 3")
        .says("1 of 2 leaves passed");
    repo.assert_clean();

    // From another branch just as well.
    let repo = cut_off();
    repo.git(&["switch", "-q", "main"]);
    assert_eq!(
        repo.runner(&["runs", "--json"]).json()["runs"][0]["state"],
        "interrupted"
    );
    let run = repo.runner(&["land"]).code(1);
    run.says("recovered: iteration 3")
        .says("1 of 2 leaves passed");
    assert_eq!(repo.git(&["show", "runner/demo:half.txt"]), "half");
}

#[test]
fn the_branch_to_land_on() {
    let repo = complete();
    let tip = repo.head();
    repo.git(&["branch", "release", "main"]);
    for (into, message, hint) in [
        (
            "nowhere",
            "there is no branch \"nowhere\"",
            "git branch nowhere",
        ),
        ("main~1", "there is no branch \"main~1\"", "--into"),
        ("-x..", "there is no branch \"-x..\"", "--into"),
        ("runner/demo", "the run's own branch", "--into"),
    ] {
        human_error(&refused(&repo, &[&format!("--into={into}")]), message, hint);
    }
    repo.git(&["symbolic-ref", "refs/heads/alias", "refs/heads/release"]);
    human_error(
        &refused(&repo, &["--into", "alias"]),
        "only another name",
        "--into",
    );
    repo.git(&["symbolic-ref", "--delete", "refs/heads/alias"]);

    repo.git(&["branch", "-q", "-D", "main"]);
    let run = refused(&repo, &[]);
    human_error(&run, "there is no branch \"main\"", "git branch main");

    repo.runner(&["land", "--into", "release"]).success();
    assert_eq!(branch(&repo), "release");
    assert_eq!(files(&repo, "release"), ["README.md", "a.txt", "b.txt"]);
    let runs = repo.runner(&["runs", "--json"]).json();
    assert_eq!(runs["runs"][0]["landed"]["branch"], "release");
    assert_eq!(repo.git(&["rev-parse", "runner/demo"]), tip);
}

#[test]
fn a_run_from_a_detached_head_needs_a_name() {
    let mut repo = bare();
    repo.agent(AGENT);
    repo.git(&["switch", "-q", "--detach"]);
    repo.start_run(GOAL, GUARD);
    repo.runner(&["loop"]).success();
    human_error(
        &refused(&repo, &[]),
        "began from a detached HEAD",
        "--into BRANCH",
    );
    repo.runner(&["land", "--into", "main"]).success();
    assert_eq!(files(&repo, "main"), ["README.md", "root.txt"]);
    // Leaving such a run leads back to the commit.
    repo.git(&["switch", "-q", "runner/demo"]);
    repo.runner(&["abandon"])
        .success()
        .says("you are on no branch");
    assert_eq!(repo.head(), repo.git(&["rev-parse", "main^"]));
}

#[test]
fn a_state_that_the_base_tracks_stays_as_it_is_there() {
    let repo = bare();
    repo.write(".runner/notes.md", "the team's own\n");
    repo.write(".runner/GOAL.md", "# Old goal\n");
    repo.commit_all("A folder of that name");
    repo.agent(AGENT);
    repo.write(".runner/GOAL.md", GOAL);
    repo.runner(&["init", "--force", "--backend", "command", "--guard", "true"])
        .success();
    repo.write_config();
    repo.write(".runner/GOAL.md", GOAL);
    repo.runner(&["start", "--no-guard-check"]).success();
    repo.runner(&["loop"]).success();
    let kept = repo.git(&["rev-parse", "main:.runner"]);
    repo.runner(&["land"]).success();
    assert_eq!(repo.git(&["rev-parse", "main:.runner"]), kept);
    assert_eq!(repo.read(".runner/GOAL.md"), "# Old goal\n");
    assert_tidy(&repo);
}

#[test]
fn planted_hooks_and_forged_words_change_nothing() {
    // A session commits words that only the runner may say: another base, a landing.
    let forge = format!(
        "if [ $RUNNER_NODE_ID = a ]; then \
         git commit -q --allow-empty -m 'chore(loop): start run demo' -m \"Runner-Base: victim $(git rev-parse HEAD)\"; \
         git commit -q --allow-empty -m x -m \"Runner-Run: demo\nRunner-Tip: $(git rev-parse HEAD)\"; fi; {AGENT}"
    );
    let repo = complete_with(&forge, GUARD);
    let base = repo.git(&["rev-parse", "main"]);
    repo.git(&["branch", "victim", "main"]);
    let mark = repo.root().join("tmp/hooked");
    for hook in [
        "post-checkout",
        "reference-transaction",
        "post-commit",
        "pre-commit",
        "post-merge",
    ] {
        let path = repo.path(format!(".git/hooks/{hook}"));
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        write_program(
            &path,
            &format!("#!/bin/sh\necho {hook} >> {}\n", mark.display()),
        );
    }
    let value = repo.runner(&["land", "--merge", "--json"]).success().json();
    assert_eq!(
        (&value["into"], &value["landed"]),
        (&json!("main"), &json!("now"))
    );
    assert!(
        !mark.exists(),
        "{}",
        std::fs::read_to_string(&mark).unwrap_or_default()
    );
    assert_home(&repo, &base);
    assert_eq!(repo.git(&["rev-parse", "victim"]), base);
}

#[test]
fn a_folder_that_became_a_link_is_not_followed() {
    let repo = complete();
    let elsewhere = repo.root().join("elsewhere");
    std::fs::create_dir(&elsewhere).unwrap();
    let demo = repo.path(".runner/iterations/demo");
    std::fs::rename(&demo, repo.root().join("logs")).unwrap();
    std::os::unix::fs::symlink(&elsewhere, &demo).unwrap();
    repo.runner(&["land"]).success();
    assert_eq!(std::fs::read_dir(&elsewhere).unwrap().count(), 0);
    assert_eq!(files(&repo, "main"), ["README.md", "a.txt", "b.txt"]);

    // `.runner` itself as a link in the run's commit is not a run's state.
    let repo = complete();
    sh(
        &repo,
        "git rm -rq --cached .runner; mv .runner/iterations ../kept; rm -rf .runner; ln -s /etc .runner; \
               git add -A .runner; git commit -qm link; rm .runner",
    );
    sh(
        &repo,
        "git switch -q -f main; mkdir .runner; mv ../kept .runner/iterations",
    );
    human_error(
        &repo.runner(&["land", "demo"]),
        "its tree cannot be read",
        "",
    );
}

#[test]
fn where_it_landed_is_the_branch_that_it_began_from() {
    let repo = complete();
    repo.runner(&["land"]).success();
    repo.git(&["branch", "aaa"]);
    repo.git(&["branch", "zzz"]);
    for command in ["status", "follow"] {
        repo.runner(&[command]).success().says("landed on main (");
    }
}

#[test]
fn replay_finds_a_changed_byte_in_what_a_run_left() {
    let repo = complete();
    repo.runner(&["land"]).success();
    repo.runner(&["replay", "demo"]).success();
    let folder = repo.path(".runner/iterations/demo");
    let flip = |bytes: &[u8]| {
        let mut bytes = bytes.to_vec();
        let at = bytes.len() - 3;
        bytes[at] ^= 1;
        bytes
    };
    let cut = |bytes: &[u8]| bytes[..bytes.len() - 3].to_vec();
    let without_hash = |bytes: &[u8]| {
        let text = String::from_utf8(bytes.to_vec()).unwrap();
        let (before, last) = text.trim_end().rsplit_once('\n').unwrap();
        let mut last: serde_json::Value = serde_json::from_str(last).unwrap();
        assert!(
            last.as_object_mut()
                .unwrap()
                .remove("journal_sha256")
                .is_some()
        );
        format!("{before}\n{last}\n").into_bytes()
    };
    let gone = folder.join("recorded.json");
    for (file, change, words, without_record) in [
        (
            "events.jsonl",
            &flip as &dyn Fn(&[u8]) -> Vec<u8>,
            "events.jsonl is not what was recorded at its end",
            false,
        ),
        (
            "events.jsonl",
            &cut,
            "events.jsonl is not what was recorded at its end",
            false,
        ),
        (
            "land-guard.log",
            &flip,
            "land-guard.log is not what the commit that landed says",
            false,
        ),
        // The commit says it without that file, too.
        (
            "land-guard.log",
            &flip,
            "land-guard.log is not what the commit that landed says",
            true,
        ),
        (
            "2/journal.jsonl",
            &without_hash,
            "does not say in its last line what was before",
            false,
        ),
    ] {
        let record = std::fs::read(&gone).unwrap();
        if without_record {
            std::fs::remove_file(&gone).unwrap();
        }
        let path = folder.join(file);
        let before = std::fs::read(&path).unwrap();
        std::fs::write(&path, change(&before)).unwrap();
        repo.runner(&["replay", "demo"]).code(1).says(words);
        std::fs::write(&path, before).unwrap();
        std::fs::write(&gone, record).unwrap();
    }
    // The logs of the other verdicts.
    std::fs::write(folder.join("land-inversion.log"), "red\n").unwrap();
    repo.runner(&["land"]).success();
    repo.runner(&["replay", "demo"]).success();
    std::fs::write(folder.join("land-inversion.log"), "rad\n").unwrap();
    let words = "land-inversion.log is not what was recorded";
    repo.runner(&["replay", "demo"]).code(1).says(words);
}
