//! Sessions that make repositories inside the repository: they are taken apart, and
//! their files stay.
#![allow(clippy::unwrap_used)] // a helper that fails is a test that fails

mod hostile_support;

use hostile_support::{
    BIN, all, assert_contained, find_content, finish, repo_under, started, step, under,
};
use runner_testkit::TestRepo;

const COMMIT: &str = "git -c user.name=n -c user.email=e commit -q --allow-empty -m x";

#[test]
fn nested_repositories_are_taken_apart() {
    for mechanism in all() {
        let repo = repo_under(mechanism);
        let script = |text: &str| text.replace("COMMIT", COMMIT);
        let cases: &[(&str, &str, &str)] = &[
            ("n1", "n1", "git init -q n1; echo a > n1/a.txt"),
            (
                "n2",
                "n2",
                "git init -q n2; echo a > n2/a.txt; cd n2; git add -A; COMMIT; cd ..",
            ),
            (
                "src",
                "src",
                "git init -q src; echo a > src/a.txt; cd src; git add -A; COMMIT; cd ..",
            ),
            (
                "n4/deep/er",
                "n4/deep/er",
                "mkdir -p n4/deep; git init -q n4/deep/er; echo a > n4/deep/er/a.txt",
            ),
            (
                "n5",
                "n5/inner",
                "git init -q n5; git init -q n5/inner; echo a > n5/inner/a.txt; cd n5/inner; git add -A; COMMIT; cd ../..",
            ),
            (
                "n6",
                "n6",
                "git init -q n6; echo a > n6/a.txt; cd n6; git add -A; COMMIT; cd ..; git add n6 2>/dev/null; git commit -qm link",
            ),
            (
                "n7",
                "n7",
                "git init -q n7; echo a > n7/a.txt; cd n7; git add -A; COMMIT; cd ..; git add n7 2>/dev/null",
            ),
            (
                "n8",
                "n8",
                "mkdir n8; echo 'gitdir: /nowhere' > n8/.git; echo a > n8/a.txt",
            ),
            (
                "n9",
                "n9",
                "git init -q \"$AGENT_DIR/far\"; mkdir n9; ln -s \"$AGENT_DIR/far/.git\" n9/.git; echo a > n9/a.txt",
            ),
            (
                ".runner/nodes/x",
                ".runner/nodes/x",
                "mkdir -p .runner/nodes; git init -q .runner/nodes/x; echo a > .runner/nodes/x/a.txt",
            ),
            (
                ".runner",
                ".runner",
                "git init -q .runner; echo a > .runner/a.txt; out retry x",
            ),
        ];
        for (named, folder, text) in cases {
            let iter = repo.run_state()["next_iter"].as_u64().unwrap();
            let last = if text.contains("out ") {
                ""
            } else {
                "; out done x"
            };
            repo.agent_at(iter, &script(&format!("{text}{last}")));
            let (run, json) = step(&repo);
            if mechanism == "bubblewrap" && *folder == ".runner" {
                // Nothing can be made there.
                assert_eq!(json["class"], "ok", "{named}: {}", run.describe());
                assert!(!repo.exists(".runner/.git"), "{named}");
                continue;
            }
            assert_eq!(json["class"], "agent_error", "{named}: {}", run.describe());
            let wanted = format!("{named} is a git repository of its own now");
            assert!(run.stdout.contains(&wanted), "{named}: {}", run.describe());
            hostile_support::check(&repo, named);
            assert_eq!(
                repo.git(&["show", &format!("HEAD:{folder}/a.txt")]),
                "a",
                "{named}: its files stay"
            );
            assert!(!repo.exists(format!("{folder}/.git")), "{named}");
            let kept = repo
                .iteration(iter)
                .join("quarantine")
                .join(folder)
                .join(".git");
            assert!(kept.symlink_metadata().is_ok(), "{named}: its .git is kept");
        }
        finish(&repo);
        let modes = repo.git(&["ls-tree", "-r", "HEAD"]);
        assert!(!modes.contains("160000"), "{modes}");
        assert_contained(&repo, mechanism);
    }
}

#[test]
fn a_secret_in_a_nested_repository_is_found() {
    for mechanism in all() {
        let repo = repo_under(mechanism);
        let script = format!(
            "git init -q n; echo SECRET > n/.env; echo a > n/a.txt; cd n; git add -A; {COMMIT}; cd ..; out done x"
        );
        repo.agent_at(1, &script);
        let (run, json) = step(&repo);
        assert_eq!(json["class"], "agent_error", "{}", run.describe());
        assert!(
            run.stdout.contains("n/.env must not go into a commit"),
            "{}",
            run.describe()
        );
        let files = repo.git(&["ls-files"]);
        assert!(
            files.contains("n/a.txt") && !files.contains(".env"),
            "{files}"
        );
        assert_eq!(
            find_content(&repo.iteration(1).join("quarantine"), b"SECRET\n").len(),
            1
        );
        finish(&repo);
        assert_contained(&repo, mechanism);
    }
}

#[test]
fn an_added_submodule_is_taken_apart() {
    for mechanism in all() {
        let other = TestRepo::new(BIN);
        other.write("lib.txt", "lib\n");
        other.commit_all("lib");
        // Temp folders of others are not there for a session.
        let readable = serde_json::json!([other.path("")]);
        let outer = started(under(mechanism), |repo| {
            repo.config(|config| {
                config.set("sandbox.readable", readable);
            });
        });
        for (iter, then) in [(1, ""), (2, "git commit -qm sub;")] {
            outer.agent_at(
            iter,
            &format!(
                "git -c protocol.file.allow=always submodule --quiet add '{}' sub{iter}; {then} out done x",
                other.path("").display()
            ),
        );
            let (run, json) = step(&outer);
            assert_eq!(json["class"], "agent_error", "{}", run.describe());
            let says = format!("sub{iter} is a git repository of its own now");
            assert!(run.stdout.contains(&says), "{says}: {}", run.describe());
            hostile_support::check(&outer, then);
            assert_eq!(
                outer.git(&["show", &format!("HEAD:sub{iter}/lib.txt")]),
                "lib"
            );
        }
        finish(&outer);
        assert_contained(&outer, mechanism);
    }
}
