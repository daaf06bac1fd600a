//! Links of the commit that protected files and tests lead through: what they lead to counts like
//! what they are.

#![allow(clippy::unwrap_used)] // A test that cannot go on has failed.

mod agent_support;
mod scenario;

use std::os::unix::fs::symlink;

use agent_support::contained::{ALL, with_mechanism};
use runner_testkit::TestRepo;
use scenario::GOAL;
use serde_json::{Value, json};

#[track_caller]
fn step(repo: &TestRepo, script: &str) -> Value {
    repo.agent(&format!("{script}\nout done 'did it'"));
    repo.runner(&["step", "--json"]).success().json()
}

#[test]
fn what_a_protected_link_leads_to_by_the_projects_own_path_is_protected() {
    for mechanism in ALL {
        let mut repo = with_mechanism(mechanism);
        repo.write("tools/check.sh", "test -e good.txt\n");
        repo.write("tools/lib/helper.sh", "true\n");
        // By its own path, by another spelling of it, and out of the project and back.
        let alias = repo.root().join("alias");
        symlink(repo.path(""), &alias).unwrap();
        symlink(repo.path("tools/check.sh"), repo.path("ci.sh")).unwrap();
        symlink(alias.join("tools/lib"), repo.path("lib")).unwrap();
        repo.write("other/deep.sh", "true\n");
        symlink("../repo/other/deep.sh", repo.path("deep.sh")).unwrap();
        repo.commit_all("files");
        repo.config(|config| {
            config
                .set("max_attempts_default", 9)
                .set("guard.protected", json!(["ci.sh", "lib/**", "deep.sh"]));
        });
        repo.start_run(GOAL, &["sh", "-c", "test -e good.txt"]);
        for (file, script) in [
            ("tools/check.sh", "echo true > tools/check.sh"),
            ("tools/lib/helper.sh", "echo exit > tools/lib/helper.sh"),
            ("tools/lib/new.sh", "echo new > tools/lib/new.sh"),
            ("other/deep.sh", "rm other/deep.sh"),
        ] {
            let told = step(&repo, script);
            assert_eq!(told["class"], "agent_error", "{mechanism} {file}: {told:#}");
            let words = format!("{file} is protected");
            let findings = told["findings"].to_string();
            assert!(findings.contains(&words), "{mechanism} {file}: {told:#}");
        }
        let told = step(&repo, "echo x > tools/other.sh; echo good > good.txt");
        assert_eq!(told["guard"], "pass", "{mechanism}: {told:#}");
    }
}

/// A project whose test is a link, or lies behind one. The guard is green where the sum is right, or
/// the test is another.
fn with_linked_tests(link: &str, target: &str, released: &[&str]) -> TestRepo {
    // An absolute link leads to the checkout itself only where that is mounted at the project's path.
    let mut repo = with_mechanism("bubblewrap");
    repo.write("sum.sh", "echo 4\n");
    repo.write("elsewhere/cases/sum_test.sh", "test \"$(sh sum.sh)\" = 3\n");
    let link = repo.path(link);
    std::fs::create_dir_all(link.parent().unwrap()).unwrap();
    let target = target.replace("PROJECT", &repo.path("").display().to_string());
    symlink(target, link).unwrap();
    repo.commit_all("files");
    repo.config(|config| {
        config
            .set("max_attempts_default", 9)
            .set("guard.protected", json!([]))
            .set("guard.tests", json!(["tests/**"]))
            .set("guard.original_tests", "require")
            .set("guard.released_tests", json!(released));
    });
    let guard = "for test in $(find -L tests -name '*_test.sh'); do sh $test || exit 1; done";
    repo.start_run(GOAL, &["sh", "-c", guard]);
    repo
}

const WEAKENED: &str = "echo true > elsewhere/cases/sum_test.sh";

#[test]
fn what_a_test_leads_to_through_links_is_a_test() {
    for (link, target) in [
        ("tests/sum_test.sh", "../elsewhere/cases/sum_test.sh"),
        ("tests", "elsewhere/cases"),
        ("tests", "elsewhere"),
        ("tests/cases", "../elsewhere/cases"),
        ("tests/cases", "PROJECT/elsewhere/cases"),
    ] {
        let repo = with_linked_tests(link, target, &[]);
        let told = step(&repo, WEAKENED);
        assert_eq!(told["guard"], "fail", "{link} {target}: {told:#}");
        let meta = repo.meta(1);
        assert_eq!(
            meta["facts"]["test_files_changed"],
            json!(["elsewhere/cases/sum_test.sh"]),
            "{link} {target}: {meta:#}"
        );
        // The work itself is judged by the test as it was.
        let told = step(&repo, "echo 'echo 3' > sum.sh");
        assert_eq!(told["guard"], "pass", "{link} {target}: {told:#}");
    }
}

#[test]
fn a_released_link_releases_what_it_leads_to_and_one_around_itself_leads_nowhere() {
    let file = "../elsewhere/cases/sum_test.sh";
    let repo = with_linked_tests("tests/sum_test.sh", file, &["tests/sum_test.sh"]);
    assert_eq!(step(&repo, WEAKENED)["guard"], "pass");

    let repo = with_linked_tests("tests/all", "..", &[]);
    let told = step(&repo, "echo 'echo 3' > sum.sh");
    assert_eq!(told["guard"], "pass", "the work is no test: {told:#}");
}
