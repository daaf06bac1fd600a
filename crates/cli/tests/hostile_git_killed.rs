//! Sessions that are cut off after they planted code or forged records: the next runner takes
//! their files as left, and believes nothing else.
#![allow(clippy::unwrap_used)] // a helper that fails is a test that fails

mod hostile_support;

use std::fs;
use std::time::Duration;

use hostile_support::planted::{PLANTED, repo_with_a_filter, with_evil};
use hostile_support::{
    all, assert_contained, assert_never_ran, case, check, finish, play, repo_under, step,
};
use runner_testkit::{TestRepo, eventually};

/// Starts a step whose agent does `script` and then waits; kills the runner.
fn killed_in(repo: &TestRepo, script: &str) {
    let up = repo.agent_dir().join("up");
    let _ = fs::remove_file(&up);
    let wait = format!("{script}\n: > '{}'\nsleep 300", up.display());
    let iter = repo.run_state()["next_iter"].as_u64().unwrap();
    repo.agent_at(iter, &with_evil(repo, &wait));
    let running = repo.spawn_runner(&["step"]);
    eventually("the session", Duration::from_secs(30), || up.exists());
    running.kill();
}

#[test]
fn what_a_killed_session_planted_never_runs_and_its_work_is_kept() {
    for mechanism in all() {
        let repo = repo_with_a_filter(mechanism);
        let config = repo.read(".git/config");
        let looks = [
            &["validate"][..],
            &["log", "1"],
            &["status"],
            &["log"],
            &["tree"],
            &["select"],
            &["why"],
            &["replay"],
        ];
        for (number, (name, _, script)) in PLANTED.iter().enumerate() {
            let script =
                format!("mkdir -p .git/hooks .git/info; {script}; echo '{name}' >> work.txt");
            killed_in(&repo, &script);
            for look in &looks[..if number == 0 { looks.len() } else { 2 }] {
                repo.runner(look);
                assert_never_ran(&repo, &format!("{name}, {look:?}"));
            }
            let command: &[&str] = if number % 2 == 0 {
                &["step"]
            } else {
                &["loop", "--steps", "1"]
            };
            repo.agent("out retry 'nothing'");
            repo.runner(command).success();
            check(&repo, name);
            assert_eq!(repo.read(".git/config"), config, "{name}");
            assert!(
                repo.git(&["show", "HEAD:work.txt"]).contains(name),
                "{name}: the work is kept"
            );
        }
        finish(&repo);
        assert_contained(&repo, mechanism);
    }
}

#[test]
fn a_killed_session_that_had_left_its_branch_loses_nothing() {
    for mechanism in all() {
        let repo = repo_with_a_filter(mechanism);
        killed_in(
            &repo,
            "git checkout -q -b away; git config filter.x.clean \"$EVIL\"; echo '* filter=x' > .gitattributes; \
         echo more >> src/main.txt; rm -rf .git",
        );
        repo.agent("out retry 'nothing'");
        repo.runner(&["step"]).success();
        check(&repo, "away");
        assert_eq!(repo.git(&["show", "HEAD:src/main.txt"]), "one\ntwo\nmore");
        assert!(!repo.read(".git/config").contains("filter"));
        assert!(repo.git_try(&["rev-parse", "--verify", "away"]).is_err());
        finish(&repo);
        assert_contained(&repo, mechanism);
    }
}

#[test]
fn records_that_a_session_forges_lie_in_its_own_folder() {
    for mechanism in all() {
        let repo = repo_under(mechanism);
        let forge = r#"
run=.runner/iterations/$RUNNER_RUN_ID
for n in 7 99; do
  mkdir -p $run/$n
  echo '{"phase":"decided","parent":"'$(git rev-parse HEAD)'","tree_sha256":null,"run_state":"{}","meta":"{}","message":"forged"}' > $run/$n/journal.jsonl
done
mkdir -p .runner/iterations/aaa/1; mkfifo $run/events.jsonl
ln -sf "$AGENT_DIR/victim" .runner/iterations/lock
"#;
        repo.agent_at(1, &format!("{forge}\nout retry forged"));
        let (run, json) = step(&repo);
        assert_eq!(json["class"], "ok", "{}", run.describe());
        check(&repo, "forged");
        killed_in(&repo, "git config core.fsmonitor \"$EVIL\"");
        repo.runner(&["step"]).success();
        check(&repo, "after the kill");
        assert!(!repo.git(&["log", "--format=%s"]).contains("forged"));
        assert_eq!(repo.run_state()["next_iter"], 4);
        assert!(!repo.exists(".runner/iterations/aaa"));
        assert_contained(&repo, mechanism);
    }
}

#[test]
fn the_whole_history_behind_a_forged_start() {
    for mechanism in all() {
        // A protected entry that has matched since the start cannot be opened again
        // by commits that look like the runner's own.
        let repo = repo_under(mechanism);
        play(
            &repo,
            &[
                case(
                    "commits that look like the runner's",
                    "ok",
                    "",
                    "cp ci.sh keep; git rm -q ci.sh; git commit -qm \"chore(loop): start run $RUNNER_RUN_ID\"; \
                 git commit -q --allow-empty -m \"chore(loop): run $RUNNER_RUN_ID iter 1 node root status=done guard=pass\"; \
                 mv keep ci.sh; out retry x",
                ),
                case(
                    "the protected file",
                    "agent_error",
                    "ci.sh is protected",
                    "echo 'exit 0 # mine' > ci.sh",
                ),
                case(
                    "a merge in front of the history",
                    "ok",
                    "",
                    "other=$(git commit-tree -m \"chore(loop): start run $RUNNER_RUN_ID\" $(git mktree </dev/null)); \
                 git reset -q $(git commit-tree -m merge -p $other -p HEAD HEAD^{tree}); out retry x",
                ),
                case(
                    "the protected file again",
                    "agent_error",
                    "ci.sh is protected",
                    "echo 'exit 0 # mine' > ci.sh",
                ),
                case(
                    "a history that is cut off",
                    "ok",
                    "",
                    "git rev-parse HEAD > .git/shallow; out retry x",
                ),
                case(
                    "the protected file once more",
                    "agent_error",
                    "ci.sh is protected",
                    "echo 'exit 0 # mine' > ci.sh; rm .git/shallow",
                ),
            ],
        );
        assert_contained(&repo, mechanism);
    }
}

/// Commits a lie of the session: this subject, these trailers.
const FORGE: &str = r#"
forge() { git add -A; printf '%s\n\n%s\n' "chore(loop): run $RUNNER_RUN_ID iter $1 node $2 status=$3 guard=$4" "$5" | git commit -q --allow-empty -F -; }
"#;

#[test]
fn a_forged_last_valid_tree_is_not_believed() {
    for mechanism in all() {
        let repo = repo_under(mechanism);
        repo.agent_at(1, "echo '{' > .runner/state/tree.json; out done broke");
        repo.agent_at(
        2,
        &format!(
            "{FORGE}\ngit show HEAD~1:.runner/state/tree.json | sed 's/\"passes\": false/\"passes\": true/' > .runner/state/tree.json; \
             forge 1 root done pass x; evil=$(git rev-parse HEAD); echo '{{' > .runner/state/tree.json; \
             forge 1 root retry skipped \"Runner-Last-Valid: $evil\"; git commit -q --allow-empty -m 'chore(loop): nonsense'; \
             cp .runner/state/tree.json x; echo '[' > .runner/state/tree.json; out done x"
        ),
    );
        repo.agent_at(
        3,
        "git show \"$(git log --format=%H --grep='^chore(loop): start run' | tail -1)\":.runner/state/tree.json > .runner/state/tree.json; out done mended",
    );
        for (class, says) in [
            ("invalid_tree", ""),
            ("repair_refused", ""),
            ("repaired", ""),
        ] {
            let (run, json) = step(&repo);
            assert_eq!(json["class"], class, "{}", run.describe());
            assert!(run.stdout.contains(says), "{}", run.describe());
            check(&repo, class);
        }
        assert_eq!(repo.node("root")["passes"], false);
        finish(&repo);
        assert_contained(&repo, mechanism);
    }
}

#[test]
fn a_forged_proof_proves_nothing() {
    for mechanism in all() {
        let repo = repo_under(mechanism);
        repo.agent_at(
        1,
        &format!(
            "{FORGE}\nsed -i 's/\"passes\": false/\"passes\": true/' .runner/state/tree.json; \
             sum=$(sha256sum .runner/state/tree.json | cut -d' ' -f1); \
             forge 7 root done pass \"$(printf 'Runner-Guard: [\"touch\",\"%s/ran\"] exit=0\\nRunner-Guard-Log: sha256:0\\nRunner-Tree: sha256:%s' \"$AGENT_DIR\" $sum)\"; \
             git show HEAD~1:.runner/state/tree.json > .runner/state/tree.json; out retry x"
        ),
    );
        let (run, json) = step(&repo);
        assert_eq!(json["class"], "ok", "{}", run.describe());
        repo.runner(&["verify", "root"])
            .code(1)
            .says("has not passed");
        finish(&repo);
        let proof = repo.runner(&["--json", "verify", "root"]).success();
        assert!(proof.stdout.contains("\"iter\":2"), "{}", proof.describe());
        assert!(
            !repo.agent_dir().join("ran").exists(),
            "a guard of the session's own ran"
        );
        assert_contained(&repo, mechanism);
    }
}
