//! Code planted in git's own files: by the agent, by the guard, in a linked work
//! tree, in a submodule. None of it ever runs.
#![allow(clippy::unwrap_used)] // a helper that fails is a test that fails

mod hostile_support;

use std::fs;

use hostile_support::planted::{PLANTED, repo_with_a_filter, with_evil};
use hostile_support::{
    BIN, add_submodule, assert_never_ran, case, check, finish, linked_to, plant, play_one, started,
    step, with_guard_at_home,
};
use runner_testkit::TestRepo;

#[test]
fn what_the_agent_plants_never_runs() {
    let repo = repo_with_a_filter();
    let config = repo.read(".git/config");
    for (name, named, script) in PLANTED {
        let iter = repo.run_state()["next_iter"].as_u64().unwrap();
        repo.agent_at(
            iter,
            &with_evil(&repo, &format!("{script}\nout done 'did it'")),
        );
        let (run, json) = step(&repo);
        assert_eq!(json["class"], "agent_error", "{name}: {}", run.describe());
        let finding = json["findings"][0].as_str().unwrap();
        assert!(run.stdout.contains(named), "{name} is not named: {finding}");
        check(&repo, name);
        assert_eq!(repo.read(".git/config"), config, "{name}");
        let shown = repo.runner(&["log", &iter.to_string()]).success();
        assert!(shown.stdout.contains(named), "{name}: {}", shown.describe());
        assert_never_ran(&repo, name);
    }
    assert_eq!(
        repo.git(&["show", "HEAD:new.txt"]),
        "new",
        "it is committed all the same"
    );
    finish(&repo);
    repo.runner(&["verify", "root"]).success();
    assert_never_ran(&repo, "verify");
    let names = repo.git(&["log", "-1", "--format=%s", "HEAD~1"]);
    assert!(names.contains("iter"), "{names}");
}

#[test]
fn what_the_guard_plants_never_runs() {
    let (repo, plant_file) = with_guard_at_home(|repo| {
        repo.git(&["config", "--global", "filter.user.clean", "cat"]);
    });
    for (name, named, script) in PLANTED {
        let text =
            with_evil(&repo, script).replace("$AGENT_DIR", &repo.agent_dir().display().to_string());
        fs::write(&plant_file, text).unwrap();
        let (run, json) = step(&repo);
        assert_eq!(json["class"], "agent_error", "{name}: {}", run.describe());
        assert_eq!(json["passes"], false, "{name}: {}", run.describe());
        assert!(
            run.stdout.contains(named),
            "{name} is not named: {}",
            run.describe()
        );
        assert!(
            run.stdout.contains("while the guard ran"),
            "{name}: {}",
            run.describe()
        );
        check(&repo, name);
    }
    fs::remove_file(&plant_file).unwrap();
    finish(&repo);
    // Proven once, and run again where what it plants is in a git folder of its own.
    let text = with_evil(&repo, PLANTED[0].2);
    fs::write(&plant_file, text).unwrap();
    let before = repo.read(".git/config");
    repo.runner(&["verify", "root"]).success();
    assert_never_ran(&repo, "verify");
    assert_eq!(repo.read(".git/config"), before);
}

#[test]
fn the_guard_may_not_leave_the_branch() {
    let (repo, own) = with_guard_at_home(|_| {});
    for (name, script, class, says) in [
        (
            "switched",
            "git checkout -q main",
            "runner_error",
            "was left while the guard ran",
        ),
        (
            "reset",
            "git reset -q --hard HEAD~1",
            "runner_error",
            "was reset or rewritten while the guard ran",
        ),
        (
            "a repository",
            "git init -q made-by-guard; echo x > made-by-guard/x",
            "ok",
            "made-by-guard",
        ),
        ("a secret", "echo SECRET > .env", "ok", ".env"),
        (
            "a secret in a commit",
            "echo SECRET > .env; git add -A; git commit -qm g",
            "ok",
            "folded into this one",
        ),
        (
            "a commit",
            "echo x > by-guard.txt; git add -A; git commit -qm 'by guard'",
            "ok",
            "",
        ),
    ] {
        repo.agent("echo work >> work.txt; out done x");
        fs::write(&own, format!("{script}; exit 1\n")).unwrap();
        let (run, json) = step(&repo);
        assert_eq!(json["class"], class, "{name}: {}", run.describe());
        assert!(run.stdout.contains(says), "{name}: {}", run.describe());
        check(&repo, name);
        let objects = repo.git(&["rev-list", "--objects", "HEAD"]);
        assert!(!objects.contains(".env"), "{name}");
    }
    assert_eq!(repo.git(&["show", "HEAD:by-guard.txt"]), "x");
    assert_eq!(
        repo.read("work.txt").lines().count(),
        4,
        "what the agent did stays"
    );
    fs::remove_file(&own).unwrap();
    finish(&repo);
}

#[test]
fn a_linked_work_tree_is_guarded_with_its_common_folder() {
    let main = TestRepo::new(BIN);
    main.write("src/main.txt", "one\n");
    main.commit_all("files");
    let mut repo = linked_to(&main);
    plant(&repo);
    repo.config(|config| {
        config.set("max_attempts_default", 20);
    });
    repo.start_run("# Linked\n\nMake it good.\n", &["true"])
        .success();
    let common = main.path(".git").display().to_string();
    let pointer = repo.read(".git");
    let cases = [
        ("the common config", ".git/config", format!("git config filter.x.clean \"$EVIL\"; echo '* filter=x' > .gitattributes; echo more >> src/main.txt; test -f '{common}/config'")),
        ("a config of its own", ".git/config.worktree", "git config extensions.worktreeConfig true; git config --worktree filter.x.clean \"$EVIL\"; echo '* filter=x' > .gitattributes; echo m >> src/main.txt".to_owned()),
        ("a common hook", ".git/hooks/post-index-change", format!("mkdir -p '{common}/hooks'; cp \"$EVIL\" '{common}/hooks/post-index-change'")),
        ("common attributes", ".git/info/attributes", format!("mkdir -p '{common}/info'; echo '* filter=x' > '{common}/info/attributes'")),
        ("the pointer", ".git", "git init -q \"$AGENT_DIR/evil-repo\"; git -C \"$AGENT_DIR/evil-repo\" config core.fsmonitor \"$EVIL\"; \
            echo \"gitdir: $AGENT_DIR/evil-repo/.git\" > .git; echo m >> src/main.txt".to_owned()),
        ("the pointer back", ".git/commondir", "git init -q \"$AGENT_DIR/evil2\"; git -C \"$AGENT_DIR/evil2\" config core.fsmonitor \"$EVIL\"; \
            echo \"$AGENT_DIR/evil2/.git\" > \"$(git rev-parse --git-dir)/commondir\"; echo m >> src/main.txt".to_owned()),
        ("the folder in its place", ".git", "mv .git \"$AGENT_DIR/old\"; git init -q; git config core.fsmonitor \"$EVIL\"; echo m >> src/main.txt".to_owned()),
    ];
    for (name, named, script) in cases {
        let iter = repo.run_state()["next_iter"].as_u64().unwrap();
        repo.agent_at(
            iter,
            &with_evil(&repo, &format!("{script}\nout done 'did it'")),
        );
        let (run, json) = step(&repo);
        assert_eq!(json["class"], "agent_error", "{name}: {}", run.describe());
        assert!(
            run.stdout.contains(named),
            "{name} is not named: {}",
            run.describe()
        );
        check(&repo, name);
        assert_eq!(repo.read(".git"), pointer, "{name}");
    }
    finish(&repo);
}

#[test]
fn a_submodule_is_guarded_too() {
    let inner = TestRepo::new(BIN);
    inner.write("lib.txt", "lib\n");
    inner.commit_all("lib");
    let repo = started(TestRepo::new(BIN), |repo| {
        let from = inner.path("").display().to_string();
        add_submodule(repo, &inner, "sub");
        // One with its repository inside, as old gits made them.
        repo.git(&["clone", "-q", &from, "old"]);
        repo.git(&["-c", "advice.addEmbeddedRepo=false", "add", "old"]);
        repo.git(&["commit", "-qm", "submodules"]);
    });
    let cases = [
        (
            "its config",
            ".git/modules/sub/config",
            "cd sub; git config filter.x.clean \"$EVIL\"; echo '* filter=x' > .gitattributes; echo dirty >> lib.txt; cd ..",
        ),
        (
            "its hooks",
            ".git/modules/sub/hooks/post-index-change",
            "cp \"$EVIL\" .git/modules/sub/hooks/post-index-change",
        ),
        (
            "its attributes",
            ".git/modules/sub/info/attributes",
            "mkdir -p .git/modules/sub/info; echo '* filter=x' > .git/modules/sub/info/attributes",
        ),
        (
            "its pointer",
            "sub/.git",
            "git init -q \"$AGENT_DIR/evil-sub\"; git -C \"$AGENT_DIR/evil-sub\" config core.fsmonitor \"$EVIL\"; \
            echo \"gitdir: $AGENT_DIR/evil-sub/.git\" > sub/.git; echo dirty >> sub/lib.txt",
        ),
        (
            "the config of the old one",
            "old/.git/config",
            "git -C old config core.fsmonitor \"$EVIL\"; echo dirty >> old/lib.txt",
        ),
    ];
    for (name, named, script) in cases {
        let iter = repo.run_state()["next_iter"].as_u64().unwrap();
        repo.agent_at(
            iter,
            &with_evil(&repo, &format!("{script}\nout done 'did it'")),
        );
        let (run, json) = step(&repo);
        assert_never_ran(&repo, name);
        assert_eq!(json["class"], "agent_error", "{name}: {}", run.describe());
        assert!(
            run.stdout.contains(named),
            "{name} is not named: {}",
            run.describe()
        );
        // What is uncommitted inside a submodule is not the runner's to commit.
        let status = repo.git(&["status", "--porcelain", "--ignore-submodules=dirty"]);
        assert!(status.is_empty(), "{name}: {status}");
    }
    assert_never_ran(&repo, "and a plain git status does not run it either");
    // A submodule that moves on is committed.
    repo.git(&["-C", "sub", "checkout", "-q", "-f"]);
    repo.git(&["-C", "old", "checkout", "-q", "-f"]);
    fs::remove_file(repo.path("sub/.gitattributes")).unwrap();
    play_one(
        &repo,
        &case(
            "a new commit in it",
            "ok",
            "",
            "cd sub; echo new > new.txt; git add -A; git commit -qm new; cd ..; out retry x",
        ),
    );
    let recorded = repo.git(&["rev-parse", "HEAD:sub"]);
    assert_eq!(recorded, repo.git(&["-C", "sub", "rev-parse", "HEAD"]));
    finish(&repo);
}
