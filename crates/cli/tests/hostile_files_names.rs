//! Sessions that leave files whose names not every machine can have: names that differ in nothing
//! but case, and paths that are too long.
#![allow(clippy::unwrap_used)] // a helper that fails is a test that fails

mod hostile_support;

use hostile_support::{
    all, assert_contained, case, check, find_content, finish, play, repo_under, started, step,
    under,
};
use runner_testkit::TestRepo;

/// The files at HEAD, as git lists them.
fn files(repo: &TestRepo) -> Vec<String> {
    let listed = repo.git(&["ls-tree", "-r", "--name-only", "HEAD"]);
    listed.lines().map(str::to_owned).collect()
}

#[track_caller]
fn assert_files(repo: &TestRepo, there: &[&str], not_there: &[&str]) {
    let files = files(repo);
    let has = |name: &&&str| files.iter().any(|it| it == **name);
    let missing: Vec<&&str> = there.iter().filter(|name| !has(name)).collect();
    let too_many: Vec<&&str> = not_there.iter().filter(has).collect();
    assert!(
        missing.is_empty() && too_many.is_empty(),
        "missing {missing:?}, too many {too_many:?} of {files:?}"
    );
}

#[test]
fn names_that_differ_in_nothing_but_case() {
    for mechanism in all() {
        let repo = repo_under(mechanism);
        let cases = [
            case(
                "beside a tracked file",
                "agent_error",
                "Readme.md (its name differs from README.md in nothing but case) cannot be committed",
                "echo colliding > Readme.md; echo kept > kept.txt",
            ),
            case(
                "two new files",
                "agent_error",
                "a.txt (its name differs from A.txt in nothing but case)",
                "echo upper > A.txt; echo lower > a.txt",
            ),
            case(
                "a folder",
                "agent_error",
                "Src/x (its name differs from src in nothing but case)",
                "mkdir Src; echo x > Src/x; echo y > src/y",
            ),
            case(
                "the runner's own folder",
                "agent_error",
                ".Runner/x (its name differs from .runner in nothing but case)",
                "mkdir .Runner; echo x > .Runner/x",
            ),
            case(
                "another spelling of the old name is no collision",
                "ok",
                "",
                "mv README.md Readme.md; mv src Source; out retry x",
            ),
        ];
        play(&repo, &cases);
        assert_files(
            &repo,
            &["kept.txt", "A.txt", "Source/y", "Readme.md"],
            &["a.txt", "Src/x", ".Runner/x", "README.md", "src/y"],
        );
        let logs = repo.path(".runner/iterations");
        assert_eq!(find_content(&logs, b"colliding\n").len(), 1, "quarantined");
        assert_contained(&repo, mechanism);
    }
}

#[test]
fn a_collision_of_the_base_is_nobodys_fault() {
    for mechanism in all() {
        let repo = started(under(mechanism), |repo| {
            repo.write("docs/Guide.md", "1\n");
            repo.write("docs/guide.md", "2\n");
            repo.write("Lib/one", "1\n");
            repo.write("lib/two", "2\n");
            repo.commit_all("both");
        });
        let cases = [case(
            "more of both",
            "ok",
            "",
            "echo more >> docs/Guide.md; echo more >> docs/guide.md; echo x > Lib/new; echo x > lib/other; out retry x",
        )];
        play(&repo, &cases);
        assert_files(&repo, &["Lib/new", "lib/other"], &[]);
        assert_contained(&repo, mechanism);
    }
}

/// Makes folders with long names in each other and a file in the last; a shell cannot go there.
fn deep_down(at: &str, depth: u32) -> String {
    format!(
        "mkdir -p {at}; \"$(cat \"$AGENT_DIR/python\")\" -c 'import os\nos.chdir(\"{at}\")\n\
         for _ in range({depth}): os.mkdir(\"n\" * 200); os.chdir(\"n\" * 200)\n\
         open(\"file\", \"w\").write(\"hidden\")'"
    )
}

#[test]
fn paths_that_are_too_long() {
    for mechanism in all() {
        let repo = repo_under(mechanism);
        // Too long for the runner alone, which has the path of the workspace before it; and too long
        // for git, too.
        for (depth, at) in [(20, "src/deep"), (30, "new")] {
            let iter = repo.run_state()["next_iter"].as_u64().unwrap();
            let deep = deep_down(at, depth);
            let script = format!("{deep}; echo {depth} > kept-{depth}; out done did");
            repo.agent_at(iter, &script);
            let (run, json) = step(&repo);
            assert_eq!(json["class"], "agent_error", "{}", run.describe());
            let words = "(it holds paths that are too long) cannot be committed as it is";
            assert!(run.stdout.contains(words), "{}", run.describe());
            check(&repo, at);
            let kept = repo.git(&["show", &format!("HEAD:kept-{depth}")]);
            assert_eq!(kept, depth.to_string());
        }
        // What git ignores is nobody's business, also where git cannot look at first.
        let iter = repo.run_state()["next_iter"].as_u64().unwrap();
        let deep = deep_down("cache", 30);
        let closed = "mkdir closed; echo x > closed/file; chmod 0 closed";
        repo.agent_at(
            iter,
            &format!("echo cache/ > .gitignore; {deep}; {closed}; out retry x"),
        );
        let (run, json) = step(&repo);
        assert_eq!(json["class"], "ok", "{}", run.describe());
        assert_eq!(repo.git(&["show", "HEAD:closed/file"]), "x");
        finish(&repo);
        assert_contained(&repo, mechanism);
    }
}
