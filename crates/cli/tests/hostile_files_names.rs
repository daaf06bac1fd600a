//! Sessions that leave files whose names not every machine can have: names that differ in nothing
//! but case, and paths that are too long.
#![allow(clippy::unwrap_used)] // a helper that fails is a test that fails

mod hostile_support;

use hostile_support::{BIN, case, find_content, finish, play, play_one, repo, started};
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
    let repo = repo();
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
}

#[test]
fn a_collision_of_the_base_is_nobodys_fault() {
    let repo = started(TestRepo::new(BIN), |repo| {
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
}

#[test]
fn paths_that_are_too_long() {
    let repo = repo();
    let deeper = "name=$(printf 'n%.0s' $(seq 200)); down() { i=0; while [ $i -lt $1 ]; do mkdir $name; cd $name; i=$((i+1)); done; }; here=$(pwd)";
    let cases = [
        // Too long for the runner alone, which has the path of the workspace before it.
        (19, "src/deep"),
        // Too long for git, too.
        (30, "new"),
    ];
    for (depth, at) in cases {
        let iter = repo.run_state()["next_iter"].as_u64().unwrap();
        let script = format!(
            "{deeper}; mkdir -p {at}; cd {at}; down {depth}; echo hidden > file; cd \"$here\"; echo {depth} > kept-{depth}; out done did"
        );
        repo.agent_at(iter, &script);
        let (run, json) = hostile_support::step(&repo);
        assert_eq!(json["class"], "agent_error", "{}", run.describe());
        let words = "(it holds paths that are too long) cannot be committed as it is";
        assert!(run.stdout.contains(words), "{}", run.describe());
        hostile_support::check(&repo, at);
        assert_eq!(
            repo.git(&["show", &format!("HEAD:kept-{depth}")]),
            depth.to_string()
        );
    }
    // What git ignores is nobody's business.
    play_one(
        &repo,
        &case(
            "ignored",
            "ok",
            "",
            "echo cache/ > .gitignore; name=$(printf 'n%.0s' $(seq 200)); here=$(pwd); mkdir cache; cd cache; \
             for i in $(seq 30); do mkdir $name; cd $name; done; echo x > file; cd \"$here\"; mkdir closed; echo x > closed/file; chmod 0 closed; out retry x",
        ),
    );
    assert!(repo.git(&["show", "HEAD:closed/file"]).contains('x'));
    finish(&repo);
}
