//! The base: merging, moving, and the user's own branch and checkout.

use runner_testkit::TestRepo;
use serde_json::json;

use crate::{ask, files, merge, project, refs, refused, text, worked};

#[test]
fn the_same_merge_is_the_same_commit() {
    let repo = project();
    repo.agent("echo x > a/x; out done did");
    let result = worked(&repo, "task");
    repo.write("b/mine.txt", "m\n");
    repo.git(&["add", "b"]);
    repo.git(&["commit", "-qm", "Mine"]);
    let base = repo.head();
    let order = json!({"base": base, "result": result});
    let first = ask(&repo, "merge", &order);
    let commit = text(&first["commit"]);
    // Whoever merges, and whenever.
    repo.git(&["config", "user.name", "Somebody Else"]);
    assert_eq!(ask(&repo, "merge", &order), first);
    assert_eq!(repo.git(&["rev-parse", &format!("{commit}^@")]), base);
    assert_eq!(
        files(&repo, &commit),
        ["README.md", "a/one.txt", "a/x", "b/mine.txt", "b/two.txt"]
    );
    let message = repo.git(&["log", "-1", "--format=%B", &commit]);
    assert_eq!(
        message,
        format!("Do task\n\nRunner-Task: task\nRunner-Run: task-1\nRunner-Result: {result}")
    );
    // Nothing moved.
    assert_eq!(repo.head(), base);
    assert_eq!(ask(&repo, "base", &json!({})), json!(base));
}

#[test]
fn what_cannot_be_merged() {
    let repo = project();
    repo.agent("echo theirs > a/one.txt; echo y > b/y; out done did");
    let result = worked(&repo, "task");
    let base = repo.head();
    let order = json!({"base": base, "result": base});
    assert_eq!(ask(&repo, "merge", &order), "empty");
    let nowhere = "1234567890123456789012345678901234567890";
    let order = json!({"base": base, "result": nowhere, "start": base});
    assert_eq!(ask(&repo, "merge", &order), "missing");
    assert_eq!(ask(&repo, "changes", &order), json!(null));
    assert_eq!(ask(&repo, "start_of", &order), json!(null));
    // A name is not a commit.
    let order = json!({"base": base, "result": "HEAD"});
    assert_eq!(ask(&repo, "merge", &order), "missing");

    let merged = merge(&repo, "task", &result);
    let order = json!({"base": merged, "result": result});
    assert_eq!(ask(&repo, "merge", &order), "empty");

    repo.git(&["reset", "-q", "--hard"]);
    repo.write("a/one.txt", "ours\n");
    repo.git(&["add", "a"]);
    repo.git(&["commit", "-qm", "Ours"]);
    let order = json!({"base": repo.head(), "result": result});
    assert_eq!(
        ask(&repo, "merge", &order),
        json!({"conflicts": ["a/one.txt"]})
    );
}

#[test]
fn the_base_moves_only_from_where_it_was() {
    let repo = project();
    repo.agent("echo $RUNNER_RUN_ID > a/$RUNNER_RUN_ID; out done did");
    let one = worked(&repo, "one");
    let two = worked(&repo, "two");
    let old = repo.head();
    let order = |task: &str, result: &str| json!({"base": old, "result": result, "task": task});
    let first = text(&ask(&repo, "merge", &order("one", &one))["commit"]);
    let second = text(&ask(&repo, "merge", &order("two", &two))["commit"]);
    let (to_first, to_second) = (
        json!({"old": old, "new": first}),
        json!({"old": old, "new": second}),
    );
    assert_eq!(ask(&repo, "position", &to_first), "old");
    assert_eq!(ask(&repo, "move", &to_first), true);
    assert_eq!(ask(&repo, "position", &to_first), "merged");
    // Again, as after a lost acknowledgement.
    assert_eq!(ask(&repo, "move", &to_first), true);
    assert_eq!(ask(&repo, "position", &to_second), "elsewhere");
    assert_eq!(ask(&repo, "move", &to_second), false);
    let both = merge(&repo, "two", &two);
    assert_eq!(ask(&repo, "position", &to_first), "merged");
    // Merged, but not where it is now.
    assert_eq!(ask(&repo, "move", &to_first), false);
    assert_eq!(ask(&repo, "base", &json!({})), json!(both));
}

#[test]
fn a_dirty_checkout_is_never_touched() {
    let repo = project();
    repo.agent("echo theirs > a/one.txt; echo new > b/new.txt; out done did");
    let merged = {
        let result = worked(&repo, "task");
        merge(&repo, "task", &result)
    };
    let before = repo.head();
    let behind = |words: &str| {
        let shown = ask(&repo, "present", &json!({}));
        let why = text(&shown["behind"]);
        assert!(why.contains(words), "{why}");
        assert_eq!(repo.head(), before);
    };
    // A change to a file that has nothing to do with it.
    repo.write("README.md", "mine\n");
    behind("README.md");
    assert_eq!(repo.read("README.md"), "mine\n");
    repo.git(&["checkout", "-q", "README.md"]);
    // Something untracked that is in the way.
    repo.write("b/new.txt", "precious\n");
    behind("b/new.txt");
    assert_eq!(repo.read("b/new.txt"), "precious\n");
    std::fs::remove_file(repo.path("b/new.txt")).unwrap();
    // Something ignored that is in the way.
    std::fs::write(repo.path(".git/info/exclude"), "*.txt\n").unwrap();
    repo.write("b/new.txt", "ignored\n");
    behind("b/new.txt");
    assert_eq!(repo.read("b/new.txt"), "ignored\n");
    std::fs::remove_file(repo.path("b/new.txt")).unwrap();
    // Something that is under way.
    repo.write(".git/MERGE_HEAD", format!("{before}\n"));
    behind("under way");
    std::fs::remove_file(repo.path(".git/MERGE_HEAD")).unwrap();

    // Untracked files elsewhere, and a file that was only touched, are in nobody's way.
    repo.write("b/mine.txt", "mine\n");
    repo.write("a/one.txt", "one\n");
    assert_eq!(ask(&repo, "present", &json!({})), "up to date");
    assert_eq!(repo.head(), merged);
    assert_eq!(repo.read("a/one.txt"), "theirs\n");
    assert_eq!(repo.read("b/mine.txt"), "mine\n");
    assert_eq!(repo.git(&["status", "--porcelain", "-uno"]), "");
}

#[test]
fn the_users_own_commits_come_in() {
    let repo = project();
    repo.agent("echo x > a/x; out done did");
    let result = worked(&repo, "task");
    merge(&repo, "task", &result);
    // Diverged: a commit of the user's beside the fleet's.
    repo.write("b/mine.txt", "m\n");
    repo.git(&["add", "b"]);
    repo.git(&["commit", "-qm", "Mine"]);
    let mine = repo.head();
    let base = text(&ask(&repo, "base", &json!({})));
    assert!(files(&repo, &base).contains(&"a/x".to_owned()));
    assert!(files(&repo, &base).contains(&"b/mine.txt".to_owned()));
    repo.git(&["merge-base", "--is-ancestor", &mine, &base]);
    assert_eq!(ask(&repo, "present", &json!({})), "up to date");
    assert_eq!(repo.head(), base);
    // Ahead: nothing to merge.
    repo.git(&["commit", "-q", "--allow-empty", "-m", "More"]);
    assert_eq!(ask(&repo, "base", &json!({})), json!(repo.head()));
}

/// Looking at it leaves nothing behind.
#[test]
fn no_branch_is_made_before_the_first_result() {
    let repo = project();
    assert_eq!(ask(&repo, "base", &json!({})), json!(repo.head()));
    assert_eq!(ask(&repo, "present", &json!({})), "up to date");
    repo.agent("echo x > a/x; out done did");
    let result = worked(&repo, "task");
    assert_eq!(refs(&repo, "refs/heads/"), ["main"]);
    // What the user takes back until then never was.
    repo.git(&["commit", "-q", "--allow-empty", "-m", "More"]);
    assert_eq!(ask(&repo, "base", &json!({})), json!(repo.head()));
    repo.git(&["reset", "-q", "--hard", "HEAD~1"]);
    assert_eq!(ask(&repo, "base", &json!({})), json!(repo.head()));
    merge(&repo, "task", &result);
    assert_eq!(refs(&repo, "refs/heads/"), ["fleet/main", "main"]);
}

/// Commits what lies in the checkout.
fn commit(repo: &TestRepo, path: &str) -> String {
    repo.write(path, "mine\n");
    repo.git(&["add", path]);
    repo.git(&["commit", "-qm", path]);
    repo.head()
}

#[test]
fn what_the_user_takes_off_the_branch_stays_off() {
    let repo = project();
    let begin = repo.head();
    repo.agent("echo x > a/$RUNNER_RUN_ID; out done did");
    let one = worked(&repo, "one");
    merge(&repo, "one", &one);
    // Taken in, and seen beside a result that is not presented yet.
    let mine = commit(&repo, "b/mine.txt");
    let base = text(&ask(&repo, "base", &json!({})));
    assert!(files(&repo, &base).contains(&"b/mine.txt".to_owned()));
    repo.git(&["reset", "-q", "--hard", &begin]);
    let base = text(&ask(&repo, "base", &json!({})));
    let there = files(&repo, &base);
    assert!(there.contains(&"a/one-1".to_owned()), "{there:?}");
    assert!(!there.contains(&"b/mine.txt".to_owned()), "{there:?}");
    let off = ["merge-base", "--is-ancestor", &mine, &base];
    assert!(repo.git_try(&off).is_err(), "it is history again");
    let words = repo.git(&["log", "-1", "--format=%B", &base]);
    assert!(words.contains("Runner-Task: one"), "{words}");
    assert_eq!(refs(&repo, "refs/runner/lost/fleet/").len(), 1);
    assert_eq!(ask(&repo, "present", &json!({})), "up to date");
    assert_eq!(repo.head(), base);

    // A result that the user saw and does not want, and history that is written anew.
    repo.git(&["reset", "-q", "--hard", &begin]);
    assert_eq!(ask(&repo, "base", &json!({})), json!(begin));
    assert_eq!(ask(&repo, "present", &json!({})), "up to date");
    assert_eq!(repo.head(), begin);
    repo.git(&["commit", "-q", "--amend", "-m", "Other words"]);
    let amended = repo.head();
    assert_eq!(ask(&repo, "base", &json!({})), json!(amended));
    let two = worked(&repo, "two");
    let merged = merge(&repo, "two", &two);
    assert_eq!(ask(&repo, "present", &json!({})), "up to date");
    assert_eq!(repo.head(), merged);
    assert_eq!(repo.git(&["rev-parse", "HEAD~1"]), amended);
}

#[test]
fn commits_of_the_user_that_do_not_fit_are_told() {
    let repo = project();
    repo.agent("echo theirs > a/one.txt; out done did");
    let result = worked(&repo, "task");
    let base = merge(&repo, "task", &result);
    repo.write("a/one.txt", "mine\n");
    repo.git(&["add", "a"]);
    repo.git(&["commit", "-qm", "Mine"]);
    let mine = repo.head();
    assert_eq!(ask(&repo, "base", &json!({})), json!(base));
    let why = text(&ask(&repo, "present", &json!({}))["behind"]);
    assert!(
        why.contains("a/one.txt") && why.contains("git merge fleet/main"),
        "{why}"
    );
    assert_eq!(repo.head(), mine);
    // The advice helps.
    assert!(repo.git_try(&["merge", "-q", "fleet/main"]).is_err());
    repo.write("a/one.txt", "both\n");
    repo.git(&["add", "a"]);
    repo.git(&["commit", "-qm", "Both"]);
    assert_eq!(ask(&repo, "base", &json!({})), json!(repo.head()));
    assert_eq!(ask(&repo, "present", &json!({})), "up to date");
}

#[test]
fn a_base_that_nobody_has_checked_out_is_moved_itself() {
    let mut repo = project();
    repo.git(&["branch", "develop"]);
    repo.config(|config| {
        config.set("fleet.base", "develop");
    });
    repo.write_config();
    repo.agent("echo x > a/$RUNNER_RUN_ID; out done did");
    let result = worked(&repo, "task");
    let merged = merge(&repo, "task", &result);
    assert_eq!(repo.git(&["rev-parse", "develop"]), merged);
    assert_eq!(refs(&repo, "refs/heads/"), ["develop", "main"]);
    // Once somebody has checked it out the next result has a branch beside it.
    repo.git(&["checkout", "-q", "develop"]);
    assert_eq!(ask(&repo, "base", &json!({})), json!(merged));
    assert_eq!(refs(&repo, "refs/heads/"), ["develop", "main"]);
    let result = worked(&repo, "other");
    merge(&repo, "other", &result);
    assert_eq!(
        refs(&repo, "refs/heads/"),
        ["develop", "fleet/develop", "main"]
    );
}

#[test]
fn a_branch_that_was_begun_anew_stays_where_it_is() {
    let repo = project();
    repo.agent("echo x > a/x; out done did");
    let result = worked(&repo, "task");
    let merged = merge(&repo, "task", &result);
    repo.git(&["checkout", "-q", "--orphan", "new"]);
    repo.git(&["commit", "-q", "--allow-empty", "-m", "Anew"]);
    repo.git(&["branch", "-f", "main"]);
    repo.git(&["checkout", "-q", "main"]);
    let head = repo.head();
    assert_eq!(ask(&repo, "base", &json!({})), json!(merged));
    let words = text(&ask(&repo, "present", &json!({}))["behind"]);
    assert!(words.contains("no commit in common"), "{words}");
    assert_eq!(repo.head(), head);
}

#[test]
fn what_cannot_be_a_base() {
    let repo = project();
    let order = json!({"base_branch": "nowhere"});
    assert!(refused(&repo, "base", &order).contains("no branch \"nowhere\""));
    repo.git(&["checkout", "-q", "--detach"]);
    assert!(refused(&repo, "base", &json!({})).contains("[fleet] base"));
    repo.git(&["checkout", "-q", "main"]);
    repo.git(&["branch", "fleet"]);
    assert!(refused(&repo, "base", &json!({})).contains("git branch -m fleet"));
}

#[test]
fn the_locks_of_a_git_that_was_killed_are_in_nobodys_way() {
    let repo = project();
    repo.agent("echo x > a/x; out done did");
    let result = worked(&repo, "task");
    repo.write(".git/refs/heads/fleet/main.lock", "");
    let merged = merge(&repo, "task", &result);
    assert_eq!(ask(&repo, "base", &json!({})), json!(merged));
    assert!(!repo.exists(".git/refs/heads/fleet/main.lock"));
}

#[test]
fn a_fleet_that_is_killed_while_it_presents_is_finished_by_the_next() {
    let mut repo = project();
    repo.agent("echo theirs > a/one.txt; echo n > b/new.txt; out done did");
    let result = worked(&repo, "task");
    let merged = merge(&repo, "task", &result);
    let old = repo.head();
    let mut killed = 0;
    loop {
        repo.env("RUNNER_FAULT", format!("kill@{}", killed + 1));
        let run = repo.runner(&["present"]);
        repo.env_remove("RUNNER_FAULT");
        if run.signal.is_none() {
            run.success();
            break;
        }
        killed += 1;
        assert_eq!(ask(&repo, "present", &json!({})), "up to date", "{killed}");
        assert_eq!(repo.head(), merged, "{killed}");
        assert_eq!(repo.git(&["status", "--porcelain", "-uno"]), "", "{killed}");
        assert_eq!(repo.read("b/new.txt"), "n\n");
        assert!(!repo.exists(".runner/fleet/present.json"), "{killed}");
        repo.git(&["update-ref", "refs/heads/main", &old]);
        repo.git(&["update-ref", "refs/runner/seen/main", &old]);
        repo.git(&["reset", "-q", "--hard"]);
    }
    assert!(killed > 5, "{killed}");
    assert_eq!(repo.head(), merged);
}
