//! Code planted in git's own files: by the agent, by the guard, in a linked work
//! tree, in a submodule, and still in place when the runner is killed. None of it
//! ever runs.

#![allow(clippy::unwrap_used)] // A test that cannot go on has failed.

mod hostile_support;

use std::fs;
use std::time::Duration;

use hostile_support::{
    BIN, assert_never_ran, case, check, finish, mark, plant, play, play_one, repo, started, step,
};
use runner_testkit::{TestRepo, eventually};

/// What a session does, and which file the runner must name. `$EVIL` is a program
/// that leaves a mark.
const PLANTED: &[(&str, &str, &str)] = &[
    (
        "a clean filter",
        ".git/config",
        "git config filter.x.clean \"$EVIL\"; git config filter.x.smudge \"$EVIL\"; \
         echo '* filter=x' > .gitattributes; echo more >> src/main.txt",
    ),
    (
        "a process filter",
        ".git/config",
        "git config filter.x.process \"$EVIL\"; echo '* filter=x' > .gitattributes; echo more >> src/main.txt",
    ),
    (
        "textconv and an external diff",
        ".git/config",
        "git config diff.x.textconv \"$EVIL\"; git config diff.x.command \"$EVIL\"; git config diff.external \"$EVIL\"; \
         echo '* diff=x' > .gitattributes; echo more >> src/main.txt",
    ),
    (
        "core.fsmonitor",
        ".git/config",
        "git config core.fsmonitor \"$EVIL\"; echo more >> src/main.txt",
    ),
    (
        "core.worktree",
        ".git/config",
        "mkdir -p \"$AGENT_DIR/elsewhere\"; git config core.worktree \"$AGENT_DIR/elsewhere\"",
    ),
    (
        "core.hooksPath",
        ".git/config",
        "git config core.hooksPath \"$AGENT_DIR\"; echo more >> src/main.txt",
    ),
    (
        "core.sshCommand",
        ".git/config",
        "git config core.sshCommand \"$EVIL\"; git config core.askPass \"$EVIL\"",
    ),
    (
        "include.path",
        ".git/config",
        "git config -f \"$AGENT_DIR/more\" filter.x.clean \"$EVIL\"; git config include.path \"$AGENT_DIR/more\"; \
         echo '* filter=x' > .gitattributes; echo more >> src/main.txt",
    ),
    (
        "aliases",
        ".git/config",
        "for word in status add commit log; do git config alias.$word \"!$EVIL\"; done",
    ),
    (
        "signing, paging, editing",
        ".git/config",
        "git config commit.gpgSign true; git config gpg.program \"$EVIL\"; git config log.showSignature true; \
         git config core.pager \"$EVIL\"; git config core.editor \"$EVIL\"; git config sequence.editor \"$EVIL\"",
    ),
    ("core.bare", ".git/config", "git config core.bare true"),
    (
        "a config of the work tree",
        ".git/config.worktree",
        "git config extensions.worktreeConfig true; git config --worktree filter.x.clean \"$EVIL\"; \
         echo '* filter=x' > .gitattributes; echo more >> src/main.txt",
    ),
    (
        "pre-commit",
        ".git/hooks/pre-commit",
        "cp \"$EVIL\" .git/hooks/pre-commit",
    ),
    (
        "post-index-change",
        ".git/hooks/post-index-change",
        "cp \"$EVIL\" .git/hooks/post-index-change",
    ),
    (
        "reference-transaction",
        ".git/hooks/reference-transaction",
        "cp \"$EVIL\" .git/hooks/reference-transaction",
    ),
    (
        "hooks is a link",
        ".git/hooks",
        "rm -rf .git/hooks; ln -s \"$AGENT_DIR\" .git/hooks",
    ),
    (
        "info/attributes",
        ".git/info/attributes",
        "mkdir -p .git/info; echo '* filter=user' > .git/info/attributes; echo more >> src/main.txt",
    ),
    (
        "info/exclude",
        ".git/info/exclude",
        "mkdir -p .git/info; echo '*' >> .git/info/exclude; echo new > new.txt",
    ),
    (
        "info/grafts",
        ".git/info/grafts",
        "mkdir -p .git/info; git rev-parse HEAD > .git/info/grafts",
    ),
    (
        "a replaced commit",
        ".git/refs/replace/",
        "git replace HEAD $(git commit-tree -m 'chore(loop): start run x' HEAD^{tree}); echo new > new2.txt",
    ),
];

fn with_evil(repo: &TestRepo, script: &str) -> String {
    format!(
        "EVIL='{}'\n{script}\n",
        repo.agent_dir().join("evil.sh").display()
    )
}

/// A repository whose user has a filter of their own, called `user`; it works.
fn repo_with_a_filter() -> TestRepo {
    started(TestRepo::new(BIN), |repo| {
        repo.git(&[
            "config",
            "--global",
            "filter.user.clean",
            "sed s/secret/public/",
        ]);
        repo.git(&["config", "--global", "filter.user.smudge", "cat"]);
    })
}

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
    let repo = started(TestRepo::new(BIN), |repo| {
        repo.git(&["config", "--global", "filter.user.clean", "cat"]);
        repo.write(
            "guard.sh",
            "[ -f \"$HOME/plant.sh\" ] || exit 0\n. \"$HOME/plant.sh\"\nexit 0\n",
        );
        repo.commit_all("guard");
    });
    let config = repo
        .read(".runner/state/config.toml")
        .replace("\"true\"", "\". ./guard.sh\"");
    repo.write(".runner/state/config.toml", config);
    repo.commit_all("use it");
    let plant_file = repo.root().join("home/plant.sh");
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
    // Proven once, and run again where it can plant as well.
    let text = with_evil(&repo, PLANTED[0].2);
    fs::write(&plant_file, text).unwrap();
    let before = repo.read(".git/config");
    repo.runner(&["verify", "root"]).code(1).says(".git/config");
    assert_never_ran(&repo, "verify");
    assert_eq!(repo.read(".git/config"), before);
}

#[test]
fn the_guard_may_not_leave_the_branch() {
    let repo = started(TestRepo::new(BIN), |repo| {
        repo.write(
            "guard.sh",
            "[ -f \"$HOME/guard.sh\" ] || exit 0\n. \"$HOME/guard.sh\"\nexit 0\n",
        );
        repo.commit_all("guard");
    });
    let config = repo
        .read(".runner/state/config.toml")
        .replace("\"true\"", "\". ./guard.sh\"");
    repo.write(".runner/state/config.toml", config);
    repo.commit_all("use it");
    let own = repo.root().join("home/guard.sh");
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
    let mut repo = TestRepo::new(BIN);
    // The work tree takes the place of the repository that the test made.
    fs::remove_dir_all(repo.path("")).unwrap();
    main.git(&[
        "worktree",
        "add",
        "-q",
        "-b",
        "work",
        &repo.path("").display().to_string(),
    ]);
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
        repo.git(&[
            "-c",
            "protocol.file.allow=always",
            "submodule",
            "--quiet",
            "add",
            &from,
            "sub",
        ]);
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
    for (name, named, script) in PLANTED {
        killed_in(&repo, &format!("{script}; echo '{name}' >> work.txt"));
        for look in [
            &["status"][..],
            &["validate"],
            &["log"],
            &["log", "1"],
            &["tree"],
            &["select"],
            &["why"],
            &["replay"],
        ] {
            repo.runner(look);
            assert_never_ran(&repo, &format!("{name}, {look:?}"));
        }
        let command: &[&str] = if name.len() % 2 == 0 {
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
    let mut repo = TestRepo::new(BIN);
    fs::remove_dir_all(repo.path("")).unwrap();
    main.git(&[
        "worktree",
        "add",
        "-q",
        "-b",
        "work",
        &repo.path("").display().to_string(),
    ]);
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
