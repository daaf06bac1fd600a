//! What a session leaves for others to stumble over: attributes that would change what is
//! committed or judged, files in the place of the user's ignored ones, scripts that the user's
//! git would run, folders that nobody can remove.

#![allow(clippy::unwrap_used)] // A test that cannot go on has failed.

mod agent_support;
mod scenario;

use agent_support::contained::{ALL, with_mechanism};
use runner_testkit::{TestRepo, write_program};
use scenario::{GOAL, plan, step};
use serde_json::json;

/// A started run whose sessions run under a mechanism.
fn started(mechanism: &str, agent: &str, guard: &[&str]) -> TestRepo {
    let mut repo = with_mechanism(mechanism);
    repo.agent(agent);
    repo.start_run(GOAL, guard);
    repo
}

/// The same with leaves below the root; planning them took iteration 1.
fn planned(mechanism: &str, leaves: &[&str], agent: &str, guard: &[&str]) -> TestRepo {
    let repo = started(mechanism, agent, guard);
    plan(&repo, leaves);
    repo
}

#[test]
fn attributes_do_not_rewrite_the_runners_own_files() {
    for mechanism in ALL {
        for hide in ["", "echo .gitattributes > .gitignore; "] {
            let script = format!(
                "{hide}echo '.runner/** working-tree-encoding=UTF-7 ident' > .gitattributes
             add_child root a 1 'B+ACI-, $Id$'; out decomposed x"
            );
            let repo = started(mechanism, &script, &["false"]);
            assert_eq!(step(&repo)["class"], "ok");
            assert_eq!(repo.tree()["children"][0]["title"], "B+ACI-, $Id$");
            repo.agent("out retry x");
            assert_eq!(step(&repo)["node_id"], "a");
            repo.runner(&["replay"]).success();
        }
    }
}

#[test]
fn what_an_earlier_guard_left_does_not_decide_how_files_are_written() {
    for mechanism in ALL {
        let guard = ["sh", "-c", "sh tests.sh; ! grep -q BUG src.txt"];
        let repo = planned(mechanism, &["a", "b", "c"], "", &guard);
        repo.agent_at(
        2,
        "echo x > src.txt; echo 'echo \"*.txt working-tree-encoding=UTF-16\" > .gitattributes' > tests.sh; out done x",
    );
        assert_eq!(step(&repo)["guard"], "pass");
        repo.agent_at(3, "echo BUG > src.txt; echo true > tests.sh; out done x");
        assert_eq!(step(&repo)["guard"], "fail");
        let log = std::fs::read_to_string(repo.iteration(3).join("guard.log")).unwrap();
        assert!(!log.contains("changed files"), "{log}");
    }
}

#[test]
fn a_folder_that_is_too_deep_to_remove_stops_nothing() {
    for mechanism in ALL {
        let deep =
            "python3 -c \"import os;[(os.mkdir('d'*50),os.chdir('d'*50)) for _ in range(200)]\"";
        let repo = planned(
            mechanism,
            &["a", "b", "c"],
            "echo x >> x.txt; out done x",
            &["sh", "-c", deep],
        );
        for leaf in ["a", "b", "c"] {
            let told = step(&repo);
            assert_eq!(
                (told["node_id"].as_str(), told["guard"].as_str()),
                (Some(leaf), Some("pass"))
            );
        }
    }
}

/// A file of the user's that git ignores on main, and that the run tracks.
fn with_an_ignored_file(mechanism: &str) -> TestRepo {
    let mut repo = with_mechanism(mechanism);
    repo.write(".gitignore", "secret.txt\n");
    repo.commit_all("Ignore it");
    repo.agent("rm -f .gitignore; echo agent > secret.txt; out done x");
    repo.init_run(GOAL, &["true"]);
    repo
}

#[test]
fn ignored_files_of_the_user_are_never_overwritten() {
    for mechanism in ALL {
        // While the checkout is behind because of it.
        let repo = with_an_ignored_file(mechanism);
        repo.runner(&["start", "--no-guard-check"]).success();
        repo.write("secret.txt", "mine");
        repo.runner(&["loop"]).success().says("stays as it is");
        repo.runner(&["land"]);
        assert_eq!(repo.read("secret.txt"), "mine", "land");
        repo.runner(&["abandon"]);
        assert_eq!(repo.read("secret.txt"), "mine", "abandon");

        // From elsewhere, back to the run.
        for back in [&["start"][..], &["start", "demo"]] {
            let repo = with_an_ignored_file(mechanism);
            repo.runner(&["start", "--stay", "--no-guard-check"])
                .success();
            repo.runner(&["loop"]).success();
            repo.write("secret.txt", "mine");
            repo.runner(back).code(1).says("secret.txt");
            assert_eq!(repo.read("secret.txt"), "mine", "{back:?}");
        }
    }
}

#[test]
fn a_change_that_flags_hide_keeps_the_checkout_where_it_is() {
    for mechanism in ALL {
        let mut repo = with_mechanism(mechanism);
        repo.write("settings.conf", "theirs\n");
        repo.commit_all("Settings");
        repo.agent("echo agent >> settings.conf; echo y > f; out done x");
        repo.start_run(GOAL, &["true"]);
        plan(&repo, &["a", "b"]);
        for flag in ["--skip-worktree", "--assume-unchanged"] {
            repo.git(&["update-index", flag, "settings.conf"]);
            repo.write("settings.conf", "MINE\n");
            let before = repo.head();
            repo.runner(&["step"]).success();
            assert_eq!(repo.read("settings.conf"), "MINE\n", "{flag}");
            assert_eq!(
                repo.head(),
                before,
                "{flag}: branch and checkout stay together"
            );
            let staged = repo.git(&["diff", "--cached", "--name-only"]);
            assert_eq!(staged, "", "{flag}");
            let back = flag.replacen("--", "--no-", 1);
            repo.git(&["update-index", &back, "settings.conf"]);
            repo.git(&["checkout", "-q", "--", "settings.conf"]);
            repo.runner(&["follow"]).success();
        }
        repo.runner(&["land"]).success();
        assert_eq!(repo.read("settings.conf"), "theirs\nagent\nagent\n");
    }
}

#[test]
fn scripts_of_the_repository_never_run_as_drivers() {
    for mechanism in ALL {
        let mut repo = with_mechanism(mechanism);
        let ran = repo.root().join("ran");
        let script = format!("#!/bin/sh\ntouch {}\ncat\n", ran.display());
        repo.write("tools/f.sh", "#!/bin/sh\ncat\n");
        repo.write("x.txt", "one\ntwo\nthree\nfour\nfive\n");
        repo.write(".gitattributes", "x.txt merge=mine\n");
        repo.commit_all("Tools");
        for (key, value) in [
            ("merge.mine.driver", "sh tools/f.sh %O %A %B"),
            ("filter.mine.clean", "sh tools/f.sh"),
            ("filter.mine.smudge", "sh tools/f.sh"),
        ] {
            repo.git(&["config", key, value]);
        }
        let evil = repo.agent_dir().join("evil");
        write_program(&evil, &script);
        repo.agent(
            "cp \"$AGENT_DIR/evil\" tools/f.sh; sed -i s/five/FIVE/ x.txt
         echo '*.md filter=mine' >> .gitattributes; echo new > new.md; out done x",
        );
        repo.start_run(GOAL, &["true"]);
        plan(&repo, &["a"]);
        repo.runner(&["loop"]).success();
        for command in [&["status"][..], &["report"], &["verify", "a"], &["follow"]] {
            repo.runner(command).success();
            assert!(!ran.exists(), "{command:?}");
        }
        // The base moves, in the same file.
        let tree = repo.root().join("other").display().to_string();
        repo.git(&["worktree", "add", "-q", &tree, "main"]);
        let file = std::path::Path::new(&tree).join("x.txt");
        std::fs::write(file, "ONE\ntwo\nthree\nfour\nfive\n").unwrap();
        repo.git(&["-C", &tree, "commit", "-qam", "One"]);
        repo.git(&["worktree", "remove", &tree]);
        repo.runner(&["land"]).success();
        assert!(!ran.exists(), "land");
        assert_eq!(
            repo.git(&["show", "main:x.txt"]),
            "ONE\ntwo\nthree\nfour\nFIVE"
        );
    }
}

/// Your checkout follows the run, and with it files that say what is copied from there.
#[test]
fn a_session_does_not_choose_which_ignored_files_are_copied() {
    for mechanism in ALL {
        let mut repo = with_mechanism(mechanism);
        repo.write(".gitignore", ".env*\n");
        repo.write(".worktreeinclude", ".env\n");
        repo.commit_all("Say what is copied");
        repo.write(".env", "A=1\n");
        repo.write(".env.production", "SECRET=1\n");
        repo.config(|config| {
            config.set("workspace.include", json!(["*.txt"]));
        });
        let guard = ["sh", "-c", "test -e .env && ! cat .env.production mine.txt"];
        repo.start_run(GOAL, &guard);
        plan(&repo, &["a", "b", "c", "d"]);
        repo.agent_at(
            2,
            "echo '.env*' > .worktreeinclude; echo mine.txt >> .gitignore; out done x",
        );
        assert_eq!(step(&repo)["guard"], "pass", "{mechanism}");
        assert_eq!(repo.read(".worktreeinclude"), ".env*\n");
        repo.write("mine.txt", "not for agents\n");
        let look = "ls -A > seen; out done x";
        repo.agent_at(3, look);
        repo.runner(&["clean", "--all"]).success();
        assert_eq!(step(&repo)["guard"], "pass", "{mechanism}");
        let seen = repo.read("seen");
        assert!(seen.contains(".env\n"), "{mechanism}: {seen}");
        assert!(!seen.contains(".env.production"), "{mechanism}: {seen}");
        assert!(!seen.contains("mine.txt"), "{mechanism}: {seen}");
        // Without the file what the run began with still counts.
        repo.agent_at(4, "rm .worktreeinclude; out done x");
        assert_eq!(step(&repo)["guard"], "pass", "{mechanism}");
        repo.runner(&["clean", "--all"]).success();
        repo.agent_at(5, look);
        assert_eq!(step(&repo)["guard"], "pass", "{mechanism}");
        assert!(repo.read("seen").contains(".env\n"), "{mechanism}");
        repo.runner(&["verify", "a"]).success();
        repo.runner(&["land"]).success();
    }
}
