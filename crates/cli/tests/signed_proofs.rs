//! Whose word the proof of a pass is: what `verify` says of commits that are signed, rewritten, or
//! made elsewhere.

#![allow(clippy::unwrap_used)] // A test that cannot go on has failed.

mod agent_support;
mod scenario;

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

use agent_support::contained::with_mechanism;
use runner_testkit::TestRepo;
use scenario::{GOAL, bare, step};

fn passed() -> TestRepo {
    let mut repo = bare();
    repo.agent("echo work >> work.txt; out done 'did it'");
    repo.start_run(GOAL, &["true"]);
    assert_eq!(step(&repo)["guard"], "pass");
    repo
}

fn key_file(repo: &TestRepo) -> PathBuf {
    repo.root().join("home/.local/state/runner/proof.key")
}

fn message(repo: &TestRepo, commit: &str) -> String {
    repo.git(&["log", "-1", "--format=%B", commit])
}

/// Puts another commit in the place of the last one, as somebody would who rewrites it.
fn replace_last(repo: &TestRepo, tree: &str, message: &str) {
    let commit = repo.git(&["commit-tree", tree, "-p", "HEAD~1", "-m", message]);
    for name in ["run", "keep", "branch"] {
        let name = format!("refs/runner/{name}/demo");
        repo.git(&["update-ref", &name, &commit]);
    }
    repo.git(&["reset", "-q", "--hard", &commit]);
}

#[track_caller]
fn expect(repo: &TestRepo, code: i32, word: &str, says: &str) {
    let run = repo.runner(&["verify", "root"]).code(code);
    assert!(run.stdout.contains(says), "{}", run.describe());
    let json = repo.runner(&["verify", "root", "--json"]).code(code).json();
    assert_eq!(json["signed_by"], word, "{json:#}");
    assert_eq!(json["holds"], code == 0);
}

#[test]
fn a_pass_is_signed_and_a_key_is_private() {
    let repo = passed();
    expect(&repo, 0, "machine", "signed by this machine's key (");
    let key = fs::read_to_string(key_file(&repo)).unwrap();
    let mode = fs::metadata(key_file(&repo)).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let start = message(&repo, "HEAD~1");
    assert!(start.contains("\nRunner-Key: ed25519 "), "{start}");
    assert!(!start.contains(key.trim()), "the public half alone");
    let pass = message(&repo, "HEAD");
    assert_eq!(
        pass.matches("\nRunner-Proof: ed25519 ").count(),
        1,
        "{pass}"
    );
}

#[test]
fn neither_agent_nor_guard_can_read_the_key_in_bubblewrap() {
    let mut repo = with_mechanism("bubblewrap");
    let look = "test -z \"$(cat ~/.local/state/runner/proof.key 2>/dev/null)\"";
    repo.agent(&format!(
        "{look} && echo x > work.txt && out done 'nothing there'"
    ));
    repo.start_run(GOAL, &["sh", "-c", &format!("{look} && test -e work.txt")]);
    assert!(key_file(&repo).exists());
    assert_eq!(step(&repo)["guard"], "pass");
}

#[test]
fn another_machine_believes_the_key_that_the_run_names() {
    let repo = passed();
    let key = key_file(&repo);
    fs::remove_file(&key).unwrap();
    let says = "signed by the key that the first commit of the run names (";
    expect(&repo, 0, "start", says);
    assert!(!key.exists(), "looking makes none");
    fs::write(&key, format!("{}\n", "07".repeat(32))).unwrap();
    expect(&repo, 0, "start", says);
}

#[test]
fn what_was_rewritten_is_told() {
    let repo = passed();
    let (tree, text) = (
        repo.git(&["rev-parse", "HEAD^{tree}"]),
        message(&repo, "HEAD"),
    );
    let unsigned: Vec<&str> = text
        .lines()
        .filter(|line| !line.starts_with("Runner-Proof"))
        .collect();
    replace_last(&repo, &tree, &unsigned.join("\n"));
    expect(
        &repo,
        0,
        "none",
        "not signed: it shows only that the guard passes there now",
    );

    // The same words about other files.
    replace_last(&repo, &tree, &text);
    expect(&repo, 0, "machine", "signed by this machine's key");
    repo.write("work.txt", "other work\n");
    repo.git(&["add", "work.txt"]);
    let other = repo.git(&["write-tree"]);
    repo.git(&["reset", "-q", "--hard"]);
    replace_last(&repo, &other, &text);
    expect(&repo, 1, "forged", "its signature is about another commit");
    let replayed = repo.runner(&["replay"]).code(0);
    let says = "the commit of iteration 1 is not the one that was made then";
    assert!(replayed.stderr.contains(says), "{}", replayed.describe());

    // Other words about the same files.
    replace_last(&repo, &tree, &text.replace("iter 1", "iter 2"));
    expect(&repo, 1, "forged", "its signature is about another commit");
    replace_last(
        &repo,
        &tree,
        &text.replace("Runner-Checkout: cold", "Runner-Checkout: warm"),
    );
    expect(&repo, 1, "forged", "its signature is about another commit");
    let says = "the commit's message is not what the journal promised";
    repo.runner(&["replay"]).code(1).says(says);
}

#[test]
fn a_key_that_is_none_of_ours_signs_nothing() {
    let repo = passed();
    fs::write(key_file(&repo), "no key\n").unwrap();
    let text = message(&repo, "HEAD");
    repo.git(&["reset", "-q", "--hard", "HEAD~1"]);
    let told = step(&repo);
    assert_eq!(told["guard"], "pass", "{told:#}");
    assert!(
        told["notes"]
            .to_string()
            .contains("the proof is not signed: "),
        "{told:#}"
    );
    assert_ne!(message(&repo, "HEAD"), text);
    expect(&repo, 0, "none", "not signed");
}
