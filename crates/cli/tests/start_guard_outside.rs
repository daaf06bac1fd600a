//! `runner start` where the guard needs what lies outside the project: folders beside it, and
//! files of the temp folder.

#![allow(clippy::unwrap_used)] // A test that cannot go on has failed.

mod agent_support;
mod scenario;

use std::fs;
use std::os::unix::fs::symlink;

use agent_support::contained::{ALL, with_mechanism};
use runner_testkit::TestRepo;
use scenario::GOAL;
use serde_json::json;

/// A start that is refused, or not, where the guard is green in the user's own checkout.
#[track_caller]
fn expect(repo: &TestRepo, refused: Option<&[&str]>) {
    let run = repo.runner(&["start", "--json"]);
    match refused {
        Some(words) => {
            let run = run.code(1);
            for words in words {
                let told = run.describe();
                assert!(told.contains(words), "{words}: {told}");
            }
            assert_eq!(repo.git(&["branch", "--format=%(refname:short)"]), "main");
        }
        None => assert_eq!(run.success().json()["guard_at_base"], "pass"),
    }
    let home = repo.root().join("home/.local/state/runner");
    assert!(!home.join("checkouts/lib").exists());
    assert!(repo.private_checkouts().is_empty(), "something is left");
}

#[test]
fn a_folder_beside_the_project() {
    for mechanism in ALL {
        let mut repo = with_mechanism(mechanism);
        let lib = repo.path("../lib");
        fs::create_dir(&lib).unwrap();
        fs::write(lib.join("x"), "x").unwrap();
        repo.write("ci.sh", "grep -q x ../lib/x 2> log.txt\n");
        repo.commit_all("A guard");
        repo.init_run(GOAL, &["sh", "ci.sh"]);
        // With bubblewrap it is seen where it is.
        let words = [
            "is red in a clean checkout and green with what lies beside your project: ../lib",
            "let the guard name ../lib by its whole path, or install bubblewrap",
        ];
        expect(&repo, (mechanism != "bubblewrap").then_some(&words));

        // Red all the same is red.
        repo.write("ci.sh", "cat ../lib/x; exit 3\n");
        repo.commit_all("Another guard");
        if mechanism != "bubblewrap" {
            let begun = repo.runner(&["start", "--json"]).success().json();
            assert_eq!(begun["guard_at_base"], "fail", "{mechanism}");
        }
    }
}

#[test]
fn an_environment_in_the_temp_folder() {
    for (mechanism, is_linked) in [
        ("bubblewrap", false),
        ("bubblewrap", true),
        ("landlock", false),
        ("none", false),
    ] {
        let mut repo = with_mechanism(mechanism);
        let temp = repo.root().join("tmp/venv-of-me");
        fs::create_dir_all(temp.join("bin")).unwrap();
        fs::write(temp.join("bin/tool"), "exit 0\n").unwrap();
        let script = if is_linked {
            symlink(&temp, repo.path("env")).unwrap();
            repo.write(".gitignore", "env\n");
            "sh env/bin/tool || exit 1\n".to_owned()
        } else {
            format!("sh {}/bin/tool || exit 1\n", temp.display())
        };
        repo.write("ci.sh", script);
        repo.commit_all("A guard");
        repo.init_run(GOAL, &["sh", "ci.sh"]);
        let shown = temp.display().to_string();
        let words = [
            format!("files of the temp folder: {shown}"),
            format!("make {shown} elsewhere, because each guard has a temp folder of its own"),
        ];
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        expect(&repo, (mechanism == "bubblewrap").then_some(&words));
        if mechanism == "bubblewrap" && !is_linked {
            // The key that the hint names helps.
            repo.config(|config| {
                config.set("sandbox.writable", json!([shown]));
            });
            repo.write_config();
            expect(&repo, None);
        }
        fs::remove_dir_all(&temp).unwrap();
    }
}
