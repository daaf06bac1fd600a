//! Code planted in git's own files that is still there when the runner is killed,
//! and forged records: the next runner cleans up before it calls git.
#![allow(clippy::unwrap_used)] // a helper that fails is a test that fails

mod hostile_support;

use std::fs;
use std::time::Duration;

use hostile_support::planted::{PLANTED, repo_with_a_filter, with_evil};
use hostile_support::{
    BIN, assert_never_ran, case, check, finish, linked_to, mark, plant, play, repo, step,
};
use runner_testkit::{TestRepo, eventually};

/// Starts a step whose agent does `script` and then waits; kills the runner.
fn killed_in(repo: &TestRepo, script: &str) {
    let up = repo.root().join("up");
    let _ = fs::remove_file(&up);
    let wait = format!("{script}\n: > '{}'\nsleep 300", up.display());
    let iter = repo.run_state()["next_iter"].as_u64().unwrap();
    repo.agent_at(iter, &with_evil(repo, &wait));
    let running = repo.spawn_runner(&["step"]);
    eventually("the session", Duration::from_secs(30), || up.exists());
    running.kill();
}

#[test]
fn a_killed_runner_s_successor_cleans_up_before_it_calls_git() {
    let repo = repo_with_a_filter();
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
    for (number, (name, named, script)) in PLANTED.iter().enumerate() {
        killed_in(&repo, &format!("{script}; echo '{name}' >> work.txt"));
        // All of them with the first, which every git call would run.
        let count = if number == 0 { looks.len() } else { 2 };
        for look in &looks[..count] {
            repo.runner(look);
            assert_never_ran(&repo, &format!("{name}, {look:?}"));
        }
        let command: &[&str] = if number % 2 == 0 {
            &["step"]
        } else {
            &["loop", "--steps", "1"]
        };
        repo.agent("out retry 'nothing'");
        let run = repo.runner(command).success();
        assert!(
            run.stderr.contains(named),
            "{name} is not named: {}",
            run.describe()
        );
        check(&repo, name);
        assert_eq!(repo.read(".git/config"), config, "{name}");
        assert!(
            repo.git(&["show", "HEAD:work.txt"]).contains(name),
            "{name}: the work is kept"
        );
    }
    finish(&repo);
}

#[test]
fn a_killed_runner_in_a_linked_work_tree_whose_pointer_was_replaced() {
    let main = TestRepo::new(BIN);
    let mut repo = linked_to(&main);
    plant(&repo);
    repo.agent(hostile_support::GOOD);
    repo.start_run("# Linked\n\nMake it good.\n", &["true"])
        .success();
    killed_in(
        &repo,
        "cp -r \"$(git rev-parse --git-common-dir)\" \"$AGENT_DIR/evil-git\"; \
         git --git-dir=\"$AGENT_DIR/evil-git\" config core.fsmonitor \"$EVIL\"; \
         git --git-dir=\"$AGENT_DIR/evil-git\" symbolic-ref HEAD refs/heads/runner/$RUNNER_RUN_ID; \
         echo \"gitdir: $AGENT_DIR/evil-git\" > .git",
    );
    // Making the copy ready may itself have run it.
    let _ = fs::remove_file(mark(&repo));
    repo.runner(&["validate"]).code(1);
    assert_never_ran(&repo, "validate");
    repo.runner(&["step"]).success().says(".git");
    check(&repo, "linked");
    assert_eq!(repo.node("root")["passes"], true);
}

#[test]
fn a_killed_runner_whose_session_had_switched_the_branch() {
    let repo = repo_with_a_filter();
    killed_in(
        &repo,
        "git checkout -q -b away; git config filter.x.clean \"$EVIL\"; echo '* filter=x' > .gitattributes; echo more >> src/main.txt",
    );
    for command in [&["step"][..], &["start"], &["loop"], &["validate"]] {
        repo.runner(command);
        assert_never_ran(&repo, &format!("{command:?}"));
    }
    assert!(!repo.read(".git/config").contains("filter"));
    // What a person sets afterwards is theirs, although the iteration still waits.
    repo.git(&["config", "user.nickname", "mine"]);
    repo.runner(&["step"]);
    assert_eq!(repo.git(&["config", "user.nickname"]), "mine");
}

#[test]
fn a_forged_saved_copy_or_journal_gains_nothing() {
    let repo = repo();
    // The copies that earlier steps saved are not trusted, nor are iterations
    // that have never been.
    let forge = r#"
for f in .runner/iterations/*/git-files-*.json; do sed -i 's/bare = false/bare = true/' "$f"; done
run=.runner/iterations/$RUNNER_RUN_ID
for n in 7 99; do
  mkdir -p $run/$n; cp $run/$RUNNER_ITER/journal.jsonl $run/$n/
  sed -i "s/\"iter\":$RUNNER_ITER/\"iter\":$n/" $run/$n/journal.jsonl
  echo '{"phase":"decided","parent":"'$(git rev-parse HEAD)'","tree_sha256":null,"run_state":"{}","meta":"{}","message":"forged"}' >> $run/$n/journal.jsonl
done
mkdir -p .runner/iterations/aaa/1; sed "s/$RUNNER_RUN_ID\",\"iter\":[0-9]*/aaa\",\"iter\":1/" $run/$RUNNER_ITER/journal.jsonl > .runner/iterations/aaa/1/journal.jsonl
rm -f $run/events.jsonl; mkfifo $run/events.jsonl
ln -sf "$AGENT_DIR/victim" .runner/iterations/lock2
"#;
    let cases = [case("forged", "ok", "", "")];
    let iter = 1;
    repo.agent_at(iter, &format!("{forge}\nout retry forged"));
    let (run, json) = step(&repo);
    assert_eq!(json["class"], cases[0].class, "{}", run.describe());
    check(&repo, "forged");
    killed_in(&repo, "git config core.fsmonitor \"$EVIL\"");
    repo.runner(&["step"]).success();
    check(&repo, "after the kill");
    assert!(!repo.git(&["log", "--format=%s"]).contains("forged"));
    assert_eq!(repo.run_state()["next_iter"], 4);
}

#[test]
fn the_whole_history_behind_a_forged_start() {
    // A protected entry that has matched since the start cannot be opened again
    // by commits that look like the runner's own.
    let repo = repo();
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
}

/// Commits a lie of the session: this subject, these trailers.
const FORGE: &str = r#"
forge() { git add -A; printf '%s\n\n%s\n' "chore(loop): run $RUNNER_RUN_ID iter $1 node $2 status=$3 guard=$4" "$5" | git commit -q --allow-empty -F -; }
"#;

#[test]
fn a_forged_last_valid_tree_is_not_believed() {
    let repo = repo();
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
}

#[test]
fn a_forged_proof_proves_nothing() {
    let repo = repo();
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
}
