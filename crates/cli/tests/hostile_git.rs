//! Whatever a session or a guard does to git, it does to a repository of its own: the project's
//! is not touched, the files count as they lie there, and nothing that was planted ever runs.
#![allow(clippy::unwrap_used)] // a helper that fails is a test that fails

mod hostile_support;

use std::fs;

use hostile_support::planted::{PLANTED, repo_with_a_filter, with_evil};
use hostile_support::{
    BIN, add_submodule, all, assert_contained, assert_never_ran, case, check, finish, linked_to,
    plant, play_one, repo_under, started, step, under, with_guard_at_home,
};
use runner_testkit::TestRepo;

/// What a session does to git while `kept.txt` has its number.
const DEEDS: &[(&str, &str)] = &[
    ("detaches", "git checkout -q --detach"),
    ("detaches elsewhere", "git checkout -q --detach HEAD~1"),
    ("commits", "git add -A; git commit -qm mine"),
    (
        "commits a part",
        "git add -A; git commit -qm mine; git rm -q --cached src/main.txt",
    ),
    ("amends", "git add -A; git commit -q --amend -m x"),
    ("resets", "git reset -q --hard HEAD~1"),
    (
        "rewrites everything",
        "git add -A; git commit -qm x; git reset -q $(git commit-tree -m y HEAD^{tree})",
    ),
    (
        "makes a branch",
        "git checkout -q -b fresh; git add -A; git commit -qm x; git branch other; git tag t",
    ),
    ("an orphan branch", "git checkout -q --orphan o"),
    (
        "an orphan branch, emptied",
        "git checkout -q --orphan q; git rm -rqf .",
    ),
    (
        "deletes the branch",
        "git checkout -q --detach; git branch -qD runner/$RUNNER_RUN_ID",
    ),
    ("renames the branch", "git branch -qm elsewhere"),
    ("stashes", "git stash -q -u; git stash drop -q"),
    (
        "merges",
        "git checkout -q -b side; git commit -q --allow-empty -m side; git checkout -q -; git merge -q --no-ff -m merge side",
    ),
    (
        "rebases halfway",
        "git commit -q --allow-empty -m x; GIT_SEQUENCE_EDITOR='sed -i s/^pick/edit/' git rebase -q -i --keep-empty HEAD~2 2>/dev/null",
    ),
    (
        "collects garbage",
        "git gc -q --prune=now; git reflog expire --expire=now --all",
    ),
    ("pushes", "git push -q --force --all origin"),
    (
        "adds a remote",
        "git remote add evil /nowhere; git config remote.evil.url /elsewhere",
    ),
    ("an index that is gone", "rm .git/index"),
    ("an index that is empty", ": > .git/index"),
    (
        "an index that is a pipe",
        "rm .git/index; mkfifo .git/index",
    ),
    ("an index full of lies", "git rm -rq --cached ."),
    (
        "flags that hide",
        "git update-index --assume-unchanged src/main.txt; git update-index --skip-worktree data.bin",
    ),
    (
        "locks",
        ": > .git/index.lock; : > .git/HEAD.lock; mkfifo .git/packed-refs.lock",
    ),
    ("HEAD is garbage", "echo garbage > .git/HEAD"),
    ("HEAD is a pipe", "rm .git/HEAD; mkfifo .git/HEAD"),
    (
        "the branch is garbage",
        "echo garbage > .git/refs/heads/runner/$RUNNER_RUN_ID",
    ),
    ("all references gone", "rm -rf .git/refs .git/packed-refs"),
    (
        "a link for messages",
        "ln -s \"$AGENT_DIR/victim\" .git/COMMIT_EDITMSG",
    ),
    (
        "a link for logs",
        "mkdir -p .git/logs; ln -s \"$AGENT_DIR/victim\" .git/logs/HEAD",
    ),
    (
        "a pipe for alternates",
        "rm .git/objects/info/alternates; mkfifo .git/objects/info/alternates",
    ),
    (
        "other alternates",
        "git init -q \"$AGENT_DIR/evil-objects\"; echo \"$AGENT_DIR/evil-objects/.git/objects\" > .git/objects/info/alternates",
    ),
    ("a huge config", "truncate -s 900M .git/config"),
    ("no repository", "rm -rf .git"),
    ("another repository", "rm -rf .git; git init -q"),
    (
        "a link in its place",
        "mv .git \"$AGENT_DIR/moved\"; ln -s \"$AGENT_DIR/moved\" .git",
    ),
    (
        "a file in its place",
        "rm -rf .git; echo 'gitdir: /nowhere' > .git",
    ),
    (
        "a sparse checkout",
        "git sparse-checkout set --cone docs .runner; mkdir -p \"${RUNNER_OUTPUT_PATH%/*}\"",
    ),
    (
        "logs by force",
        "git add -f .runner/iterations .runner/context; git commit -qm logs",
    ),
    ("closed folders", "chmod 000 .git/objects .git"),
];

/// The docs say how many were tried.
#[test]
fn the_docs_have_the_figures() {
    let docs = include_str!("../../../docs/guards.md");
    // A session, one that is killed, and a guard plant each of them.
    let planted = 3 * PLANTED.len();
    for (row, deeds) in [
        ("| git: branches,", DEEDS.len()),
        ("| git: planted", planted),
    ] {
        let line = docs.lines().find(|line| line.starts_with(row)).unwrap();
        let count = deeds * all().len();
        let figures = format!(" | {count} | {count} | 0 | 0 |");
        assert!(line.ends_with(&figures), "{line} is not{figures}");
    }
}

/// Everything of the project's repository that is not the run's.
fn picture(repo: &TestRepo) -> String {
    let refs = repo.git(&["for-each-ref"]);
    let others: Vec<&str> = refs
        .lines()
        .filter(|line| !line.contains("refs/runner/") && !line.contains("refs/heads/runner/"))
        .collect();
    let hooks = fs::read_dir(repo.path(".git/hooks")).unwrap().count();
    let config = repo.read(".git/config");
    let stash = repo.git(&["stash", "list"]);
    let kept = repo.path(".git/info/attributes").exists();
    format!("{others:?}\n{hooks}\n{config}\n{stash}\n{kept}")
}

#[test]
fn nothing_that_a_session_does_to_git_counts() {
    for mechanism in all() {
        let repo = repo_under(mechanism);
        play_deeds(&repo);
        assert_contained(&repo, mechanism);
    }
}

/// Plays all of them in one run, then a good session.
fn play_deeds(repo: &TestRepo) {
    let victim = repo.agent_dir().join("victim");
    fs::write(&victim, "untouched").unwrap();
    for (number, (name, deed)) in DEEDS.iter().enumerate() {
        let before = picture(repo);
        let head = repo.head();
        let iter = repo.run_state()["next_iter"].as_u64().unwrap();
        let leave = format!(
            "mkdir -p \"${{RUNNER_OUTPUT_PATH%/*}}\"; echo {number} > kept.txt; out retry x"
        );
        repo.agent_at(iter, &format!("{{ {deed}; }} >/dev/null 2>&1\n{leave}"));
        let (run, json) = step(repo);
        assert_eq!(json["iter"], iter, "{name}: {}", run.describe());
        let class = json["class"].as_str().unwrap();
        // Going to another commit takes the runner's own files away, which is found out.
        assert!(
            ["ok", "agent_error"].contains(&class),
            "{name}: {}",
            run.describe()
        );
        check(repo, name);
        assert_eq!(repo.git(&["rev-parse", "HEAD~1"]), head, "{name}");
        assert_eq!(
            repo.git(&["show", "HEAD:kept.txt"]),
            number.to_string(),
            "{name}"
        );
        assert_eq!(picture(repo), before, "{name}");
        let author = repo.git(&["log", "-1", "--format=%s"]);
        assert!(author.starts_with("chore(loop): run"), "{name}: {author}");
    }
    assert_eq!(fs::read_to_string(victim).unwrap(), "untouched");
    finish(repo);
}

#[test]
fn what_a_session_plants_never_runs() {
    for mechanism in all() {
        let repo = repo_with_a_filter(mechanism);
        plant_all(&repo);
        assert_contained(&repo, mechanism);
    }
}

fn plant_all(repo: &TestRepo) {
    for (name, _, script) in PLANTED {
        let before = picture(repo);
        let iter = repo.run_state()["next_iter"].as_u64().unwrap();
        let script = with_evil(repo, &format!("mkdir -p .git/hooks .git/info\n{script}"));
        repo.agent_at(
            iter,
            &format!("{script}\necho '{name}' > name.txt\nout retry x"),
        );
        let (run, json) = step(repo);
        assert_eq!(json["class"], "ok", "{name}: {}", run.describe());
        check(repo, name);
        assert_eq!(picture(repo), before, "{name}");
        assert_eq!(&repo.git(&["show", "HEAD:name.txt"]), name);
    }
    finish(repo);
    repo.runner(&["verify", "root"]).success();
    assert_never_ran(repo, "verify");
}

#[test]
fn what_a_guard_does_to_git_counts_for_nothing() {
    for mechanism in all() {
        let (repo, plant_file) = with_guard_at_home(mechanism, |repo| {
            repo.git(&["config", "--global", "filter.user.clean", "cat"]);
        });
        let agent_dir = repo.agent_dir().display().to_string();
        repo.agent("echo work >> work.txt; out done x");
        for (name, _, script) in PLANTED {
            let before = picture(&repo);
            let text = with_evil(&repo, script).replace("$AGENT_DIR", &agent_dir);
            fs::write(
                &plant_file,
                format!("mkdir -p .git/hooks .git/info\n{text}\nexit 1\n"),
            )
            .unwrap();
            let (run, json) = step(&repo);
            assert_eq!(json["guard"], "fail", "{name}: {}", run.describe());
            check(&repo, name);
            assert_eq!(picture(&repo), before, "{name}");
            for made in [".gitattributes", "new.txt", "new2.txt"] {
                let found = repo.git_try(&["cat-file", "-e", &format!("HEAD:{made}")]);
                assert!(
                    found.is_err(),
                    "{name}: {made} is the guard's, not the session's"
                );
            }
        }
        for deed in [
            "git checkout -q --detach; git branch -qD runner",
            "rm -rf .git",
            "echo SECRET > .env",
        ] {
            fs::write(&plant_file, format!("{deed}; exit 1\n")).unwrap();
            let (run, json) = step(&repo);
            assert_eq!(json["guard"], "fail", "{deed}: {}", run.describe());
            check(&repo, deed);
            assert!(
                repo.git_try(&["cat-file", "-e", "HEAD:.env"]).is_err(),
                "{deed}"
            );
        }
        fs::remove_file(&plant_file).unwrap();
        finish(&repo);
        assert_contained(&repo, mechanism);
    }
}

#[test]
fn a_guard_that_changes_what_it_judges_fails_with_the_list() {
    for mechanism in all() {
        let (repo, own) = with_guard_at_home(mechanism, |_| {});
        repo.agent("echo work >> work.txt; out done x");
        // Not on the base: what it changes there, too, is not counted.
        let fix = "[ ! -e work.txt ] || { echo fixed > src/main.txt; rm data.bin; }\n";
        fs::write(&own, fix).unwrap();
        let (run, json) = step(&repo);
        assert_eq!(json["guard"], "fail", "{}", run.describe());
        assert_eq!(json["attempts"], 1, "{}", run.describe());
        let log = fs::read_to_string(repo.iteration(1).join("guard.log")).unwrap();
        for word in ["src/main.txt", "data.bin", "let the check only check"] {
            assert!(log.contains(word), "{word}: {log}");
        }
        assert_eq!(repo.read("src/main.txt"), "one\ntwo\n");
        check(&repo, "fixed");
        // What is not of the commit may come and go.
        fs::write(
            &own,
            "echo x > made.txt; mkdir -p target; echo y > target/out\n",
        )
        .unwrap();
        let (run, json) = step(&repo);
        assert_eq!(json["guard"], "pass", "{}", run.describe());
        assert!(!repo.exists("made.txt"));
        assert_contained(&repo, mechanism);
    }
}

#[test]
fn a_linked_work_tree_has_sessions_of_its_own_too() {
    for mechanism in all() {
        let main = TestRepo::new(BIN);
        main.write("src/main.txt", "one\n");
        main.commit_all("files");
        let mut repo = linked_to(mechanism, &main);
        plant(&repo);
        repo.config(|config| {
            config.set("max_attempts_default", 20);
        });
        repo.start_run("# Linked\n\nMake it good.\n", &["true"])
            .success();
        let (pointer, config) = (repo.read(".git"), main.read(".git/config"));
        for (name, script) in [
            (
                "a filter",
                "git config filter.x.clean \"$EVIL\"; echo '* filter=x' > .gitattributes; echo more >> src/main.txt",
            ),
            (
                "a pointer",
                "rm -rf .git; echo \"gitdir: $AGENT_DIR/evil/.git\" > .git; echo m >> src/main.txt",
            ),
            (
                "another",
                "rm -rf .git; git init -q; git config core.fsmonitor \"$EVIL\"; echo m >> src/main.txt",
            ),
        ] {
            let iter = repo.run_state()["next_iter"].as_u64().unwrap();
            repo.agent_at(
                iter,
                &with_evil(&repo, &format!("{script}\nout retry 'did it'")),
            );
            let (run, json) = step(&repo);
            assert_eq!(json["class"], "ok", "{name}: {}", run.describe());
            check(&repo, name);
            assert_eq!(
                (repo.read(".git"), main.read(".git/config")),
                (pointer.clone(), config.clone()),
                "{name}"
            );
        }
        finish(&repo);
        assert_contained(&repo, mechanism);
    }
}

#[test]
fn what_changes_in_a_submodule_is_undone_and_said() {
    for mechanism in all() {
        let inner = TestRepo::new(BIN);
        inner.write("lib.txt", "lib\n");
        inner.commit_all("lib");
        let repo = started(under(mechanism), |repo| {
            add_submodule(repo, &inner, "sub");
            repo.git(&["commit", "-qm", "submodules"]);
        });
        let says = "sub is a submodule: what changed in it cannot be committed here";
        for (name, class, says, script) in [
            (
                "it is there",
                "ok",
                "",
                "test -f sub/lib.txt && out retry x",
            ),
            ("an edit", "agent_error", says, "echo more >> sub/lib.txt"),
            (
                "undone",
                "ok",
                "",
                "grep -q more sub/lib.txt || out retry x",
            ),
            ("a new file", "agent_error", says, "echo new > sub/new.txt"),
            (
                "a repository",
                "agent_error",
                says,
                "git init -q sub; git -C sub config core.fsmonitor \"$AGENT_DIR/evil.sh\"",
            ),
            ("all gone", "agent_error", says, "rm -rf sub"),
            (
                "a file instead",
                "agent_error",
                says,
                "rm -rf sub; echo x > sub",
            ),
        ] {
            play_one(&repo, &case(name, class, says, script));
            assert_eq!(repo.read("sub/lib.txt"), "lib\n", "{name}");
        }
        let recorded = repo.git(&["rev-parse", "HEAD:sub"]);
        assert_eq!(recorded, repo.git(&["-C", "sub", "rev-parse", "HEAD"]));
        finish(&repo);
        assert_contained(&repo, mechanism);
    }
}

#[test]
fn objects_of_the_project_are_out_of_reach_of_git_in_a_session() {
    for mechanism in all() {
        let repo = repo_under(mechanism);
        repo.git(&["branch", "unmerged", "main"]);
        let commit = repo.git(&["commit-tree", "-m", "loose", "HEAD^{tree}"]);
        repo.agent_at(
        1,
        "git branch -D unmerged 2>/dev/null; git gc -q --prune=now; git fsck >/dev/null; echo a > a.txt; out retry x",
    );
        let (run, json) = step(&repo);
        assert_eq!(json["class"], "ok", "{}", run.describe());
        assert!(repo.git_try(&["cat-file", "-e", &commit]).is_ok());
        assert!(repo.git_try(&["rev-parse", "--verify", "unmerged"]).is_ok());
        finish(&repo);
        assert_contained(&repo, mechanism);
    }
}
