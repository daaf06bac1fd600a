//! Broken input: a config, a goal, a state that nobody could work with. Each is
//! said in words, nothing is changed, and mending it is enough.
#![allow(clippy::unwrap_used)] // a helper that fails is a test that fails

mod hostile_support;

use std::fs;
use std::os::unix::fs::symlink;

use hostile_support::{BIN, finish, repo};
use runner_testkit::TestRepo;

/// Puts something in the place of a committed file; every command that needs it
/// must refuse with these words and leave everything as it is.
fn refused(repo: &TestRepo, file: &str, says: &str, broken: impl FnOnce(&std::path::Path)) {
    let path = repo.path(file);
    let before = fs::read(&path).unwrap();
    let head = repo.head();
    fs::remove_file(&path).unwrap();
    broken(&path);
    for command in [&["step"][..], &["loop"], &["validate"], &["start"]] {
        let run = repo.runner(command).code(1);
        assert!(
            run.stderr.contains(says) || run.stdout.contains(says),
            "{file}: should say {says:?}\n{}",
            run.describe()
        );
        assert!(
            run.stderr.contains(file) || run.stdout.contains(file),
            "{file} is not named\n{}",
            run.describe()
        );
    }
    let run = repo.runner(&["--json", "step"]).code(1);
    assert!(
        run.json()["error"].is_object() && run.stdout.contains(says),
        "{}",
        run.describe()
    );
    assert_eq!(repo.head(), head, "{file}: nothing is committed");
    assert!(
        repo.agent_calls().is_empty(),
        "{file}: no session is started"
    );
    if path.is_dir() {
        fs::remove_dir_all(&path).unwrap();
    } else {
        let _ = fs::remove_file(&path);
    }
    fs::write(&path, before).unwrap();
}

#[test]
fn configs() {
    let repo = repo();
    let file = ".runner/state/config.toml";
    let text = repo.read(file);
    let with = |more: &str| format!("{more}\n{text}");
    for (content, says) in [
        (with("max_iteration = 3").into_bytes(), "max_iterations"),
        (with("max_iterations = ").into_bytes(), "line"),
        (
            text.replace("max_attempts_default = 90", "max_attempts_default = 0")
                .into_bytes(),
            "max_attempts_default",
        ),
        (format!("{text}\n[gaurd]\n").into_bytes(), "guard"),
        (
            text.replace("[guard]", "[guard]\nprotectd = []")
                .into_bytes(),
            "protected",
        ),
        (
            text.replace("command = [\"sh\",\"-c\",\"true\"]", "command = []")
                .into_bytes(),
            "command",
        ),
        (
            text.replace("command = [\"sh\",\"-c\",\"true\"]", "command = \"true\"")
                .into_bytes(),
            "command",
        ),
        (
            text.replace("\"checks/**\"", "\"checks/[\"").into_bytes(),
            "checks/[",
        ),
        (
            text.replace("\"off\"", "\"sometimes\"").into_bytes(),
            "sometimes",
        ),
        (
            text.replace("\"command\"", "\"clod\"").into_bytes(),
            "claude",
        ),
        (
            format!("{text}\n[budget]\nmax_tokens = 5\n").into_bytes(),
            "budget",
        ),
        ([b"# \xff\n", text.as_bytes()].concat(), "UTF-8"),
        (b"\0\0\0".to_vec(), "line"),
        (b"[".repeat(100_000), "line"),
    ] {
        refused(&repo, file, says, |path| fs::write(path, content).unwrap());
    }
    shapes(&repo, file);
    finish(&repo);
}

/// What no file of the state may be.
fn shapes(repo: &TestRepo, file: &str) {
    refused(repo, file, "missing", |_| {});
    refused(repo, file, "a folder", |path| fs::create_dir(path).unwrap());
    refused(repo, file, "a symbolic link", |path| {
        symlink("/etc/passwd", path).unwrap();
    });
    refused(repo, file, "a named pipe", |path| {
        assert!(
            repo.hermetic("mkfifo")
                .arg(path)
                .status()
                .unwrap()
                .success()
        );
    });
    refused(repo, file, "larger than", |path| {
        fs::File::create(path).unwrap().set_len(1 << 40).unwrap();
    });
}

#[test]
fn goals() {
    let repo = repo();
    let file = ".runner/GOAL.md";
    let id = repo.run_id();
    for (content, says) in [
        (Vec::new(), "it says nothing"),
        (b"   \n\n".to_vec(), "it says nothing"),
        (b"---\nid: x\n".to_vec(), "line"),
        (b"---\nid: [1]\n---\nDo it.\n".to_vec(), "id"),
        (b"---\nid: ../../etc\n---\nDo it.\n".to_vec(), "id"),
        (
            format!("---\nid: {id}\nid: {id}\n---\nDo it.\n").into_bytes(),
            "line",
        ),
        (b"Do it \xff.\n".to_vec(), "UTF-8"),
    ] {
        refused(&repo, file, says, |path| fs::write(path, content).unwrap());
    }
    shapes(&repo, file);
    finish(&repo);
}

#[test]
fn a_goal_without_an_id_is_no_run() {
    let repo = repo();
    repo.write(".runner/GOAL.md", "# Another goal\n\nDo something else.\n");
    repo.git(&["commit", "-qam", "edited"]);
    repo.runner(&["step"]).code(1).says("(run 'runner start')");
    repo.write(
        ".runner/GOAL.md",
        "---\nid: other\n---\nDo something else.\n",
    );
    repo.git(&["commit", "-qam", "edited"]);
    repo.runner(&["step"]).code(1).says("(run 'runner start')");
    assert!(repo.agent_calls().is_empty());
    repo.runner(&["start"]).success();
    assert_eq!(repo.git(&["branch", "--show-current"]), "runner/other");
    finish(&repo);
}

#[test]
fn run_states_and_schemas() {
    let repo = repo();
    let file = ".runner/state/run_state.json";
    let text = repo.read(file);
    for (content, says) in [
        (Vec::new(), ""),
        (b"{".to_vec(), ""),
        (b"null".to_vec(), ""),
        (
            text.replace("next_iter", "next_itre").into_bytes(),
            "next_itre",
        ),
        (
            text.replace("\"next_iter\": 1", "\"next_iter\": 0")
                .into_bytes(),
            "next_iter",
        ),
        (
            text.replace("\"next_iter\": 1", "\"next_iter\": -1")
                .into_bytes(),
            "",
        ),
        (b"[".repeat(200_000), ""),
        (b"{\"run_id\": \"\xff\"}".to_vec(), ""),
    ] {
        refused(&repo, file, says, |path| fs::write(path, content).unwrap());
    }
    shapes(&repo, file);
    for file in [
        ".runner/state/schema.json",
        ".runner/state/agent_output.schema.json",
    ] {
        refused(&repo, file, "init --upgrade", |path| {
            fs::write(path, "{}").unwrap();
        });
        refused(&repo, file, "missing", |_| {});
    }
    finish(&repo);
}

#[test]
fn trees_made_by_hand() {
    let repo = repo();
    let file = ".runner/state/tree.json";
    let text = repo.read(file);
    let head = repo.head();
    let deep = format!("{}{}", "[".repeat(50_000), "]".repeat(50_000));
    for (content, says) in [
        (Vec::new(), "tree.json"),
        (text.as_bytes()[..40].to_vec(), "tree.json"),
        (deep.into_bytes(), "tree.json"),
        (b"{\"id\":\"\xff\"}".to_vec(), "tree.json"),
        (
            text.replace("\"root\"", "\"repair-tree\"").into_bytes(),
            "repair-tree",
        ),
        (
            text.replace("\"max_attempts\": 90", "\"max_attempts\": 0")
                .into_bytes(),
            "max_attempts",
        ),
        (
            text.replace("\"attempts\": 0", "\"attempts\": 91")
                .into_bytes(),
            "attempts",
        ),
    ] {
        repo.write(file, &content);
        repo.runner(&["validate"]).code(1).says(says);
        // Not committed: it does not count, and that is said; committed: a broken tree, and nobody
        // to blame.
        repo.runner(&["step"]).code(1).says("uncommitted");
        repo.git(&["commit", "-qam", "by hand"]);
        for command in ["select", "why", "tree"] {
            repo.runner(&[command]).code(1).says(says);
        }
        repo.runner(&["step"]).code(1).says(says);
        repo.git(&["reset", "-q", "--hard", &head]);
    }
    assert!(repo.agent_calls().is_empty());
    finish(&repo);
}

#[test]
fn foreign_things_in_the_folder() {
    let repo = repo();
    // What is not known is not looked at, and committed like anything else.
    repo.write(".runner/notes.txt", "mine\n");
    repo.write(".runner/state/extra.json", "{");
    repo.write(".runner/iterations/not a run/x", "");
    repo.write(".runner/iterations/99", "a file");
    repo.write(".runner/nodes/root/tools.json", "[1]");
    repo.write(".runner/nodes/not!an!id/context.md", "");
    fs::create_dir_all(repo.path(format!(".runner/iterations/{}/7.stale-1", repo.run_id())))
        .unwrap();
    repo.git(&["add", "-A"]);
    repo.git(&["commit", "-qm", "foreign"]);
    repo.runner(&["validate"]).code(1).says("tools.json");
    repo.git(&["rm", "-qf", ".runner/nodes/root/tools.json"]);
    repo.git(&["commit", "-qm", "mended"]);
    for command in [&["log"][..], &["status"], &["tree"]] {
        repo.runner(command).success();
    }
    finish(&repo);
}

#[test]
fn no_folder_no_repository() {
    let repo = TestRepo::new(BIN);
    repo.runner(&["step"])
        .code(1)
        .says("no .runner/")
        .says("runner init");
    fs::remove_dir_all(repo.path(".git")).unwrap();
    repo.runner(&["init"]).code(1).says("git init");
    fs::create_dir_all(repo.path(".runner/state")).unwrap();
    repo.runner(&["step"]).code(1).says("git init");
    repo.write(".git", "nonsense");
    repo.runner(&["step"]).code(1).says("not a git link");
    repo.write(".git", "gitdir: /nowhere\n");
    repo.runner(&["step"]).code(1);
}
