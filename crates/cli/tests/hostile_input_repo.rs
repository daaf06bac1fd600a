//! Repositories and machines out of the ordinary: no commit, no name, submodules,
//! sparse checkouts, linked work trees, filters, hooks, odd gits, odd environments.
#![allow(clippy::unwrap_used)] // a helper that fails is a test that fails

mod hostile_support;

use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt as _;

use hostile_support::{
    BIN, GOOD, add_submodule, case, check, finish, play, play_one, repo, started, step,
};
use runner_testkit::{TestRepo, write_program};

fn executable(path: &std::path::Path, text: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    write_program(path, text);
}

#[test]
fn a_repository_without_a_commit_and_without_a_name() {
    let mut repo = TestRepo::empty(BIN);
    repo.write("src/a.txt", "a\n");
    repo.write(".env", "SECRET\n");
    repo.agent(GOOD);
    repo.init_run("# Fresh\n\nMake it good.\n", &["true"]);
    repo.runner(&["start"]).code(1).says(".env");
    fs::remove_file(repo.path(".env")).unwrap();
    repo.runner(&["start"])
        .success()
        .says("runner <runner@localhost>");
    let run = repo.runner(&["step"]).success();
    assert!(
        run.stderr.contains("runner <runner@localhost>"),
        "{}",
        run.describe()
    );
    assert_eq!(
        repo.git(&["log", "-1", "--format=%an <%ae> %cn"]),
        "runner <runner@localhost> runner"
    );
    repo.assert_clean();
    assert_eq!(repo.node("root")["passes"], true);
}

#[test]
fn a_name_that_only_the_repository_knows() {
    let mut repo = TestRepo::empty(BIN);
    repo.git(&["config", "user.name", "Local"]);
    repo.git(&["config", "user.email", "local@example.test"]);
    repo.write("a.txt", "a\n");
    repo.agent(GOOD);
    repo.start_run("# Fresh\n\nMake it good.\n", &["true"])
        .success();
    repo.runner(&["step"]).success();
    assert_eq!(repo.git(&["log", "-1", "--format=%an"]), "Local");
}

#[test]
fn a_sha256_repository() {
    let repo = TestRepo::new(BIN);
    fs::remove_dir_all(repo.path(".git")).unwrap();
    repo.git(&["init", "-q", "-b", "main", "--object-format=sha256"]);
    repo.commit_all("again");
    let repo = started(repo, |_| {});
    assert_eq!(repo.head().len(), 64);
    play(
        &repo,
        &[
            case("work", "ok", "", "echo a > a.txt; out retry x"),
            case(
                "protected",
                "agent_error",
                "ci.sh is protected",
                "echo mine > ci.sh",
            ),
            case(
                "left",
                "agent_error",
                "belongs to the runner",
                "git checkout -q --detach HEAD~1; echo b > b.txt",
            ),
            case(
                "secrets",
                "agent_error",
                ".env",
                "echo S > .env; git add -A; git commit -qm x",
            ),
            case(
                "the index",
                "ok",
                "",
                "truncate -s 90 .git/index; out retry x",
            ),
        ],
    );
    repo.runner(&["verify", "root"]).success();
}

#[test]
fn references_kept_in_tables() {
    let repo = TestRepo::new(BIN);
    fs::remove_dir_all(repo.path(".git")).unwrap();
    if repo
        .git_try(&["init", "-q", "-b", "main", "--ref-format=reftable"])
        .is_err()
    {
        eprintln!("skipped: this git does not know reftables");
        return;
    }
    repo.commit_all("again");
    let repo = started(repo, |_| {});
    play(
        &repo,
        &[
            case(
                "work",
                "ok",
                "",
                "echo a > a.txt; git add -A; git commit -qm a; out retry x",
            ),
            case(
                "left",
                "agent_error",
                "belongs to the runner",
                "git checkout -q --detach HEAD~1; echo b > b.txt",
            ),
            case(
                "detached",
                "ok",
                "",
                "git checkout -q --detach; out retry x",
            ),
        ],
    );
}

#[test]
fn line_endings_and_filters_of_the_user() {
    let repo = started(TestRepo::new(BIN), |repo| {
        let global = |key: &str, value: &str| repo.git(&["config", "--global", key, value]);
        global("core.autocrlf", "true");
        global("filter.rot.clean", "tr a-z b-za");
        global("filter.rot.smudge", "tr b-za a-z");
        global("filter.rot.required", "true");
        global("color.ui", "always");
        global("log.showSignature", "true");
        global("i18n.commitEncoding", "ISO-8859-1");
        global("commit.cleanup", "scissors");
        global("commit.verbose", "true");
        global("status.showUntrackedFiles", "no");
        global("diff.noprefix", "true");
        global("core.quotePath", "true");
        repo.write(".gitattributes", "*.rot filter=rot\n");
        repo.write("checks/text.txt", "one\r\ntwo\r\n");
        repo.write("checks/secret.rot", "hello\n");
        repo.write("open.rot", "open\n");
        repo.git(&["add", "-A"]);
        repo.git(&["commit", "-qm", "text"]);
    });
    assert_eq!(
        repo.git(&["cat-file", "blob", "HEAD:checks/secret.rot"]),
        "ifmmp"
    );
    assert_eq!(
        repo.git(&["cat-file", "blob", "HEAD:checks/text.txt"]),
        "one\ntwo"
    );
    play(
        &repo,
        &[
            case(
                "work",
                "ok",
                "",
                "printf 'a\\r\\n' > crlf.txt; out retry 'gr\u{f6}\u{df}er'",
            ),
            // What the user's filter would make of it, no session can know.
            case(
                "new and filtered",
                "agent_error",
                "new.rot (it is meant for a filter of yours",
                "echo new > new.rot",
            ),
            case(
                "changed and filtered",
                "agent_error",
                "open.rot (it is meant for a filter of yours",
                "echo new > open.rot",
            ),
            case(
                "protected text",
                "agent_error",
                "checks/text.txt is protected",
                "echo mine > checks/text.txt",
            ),
            case(
                "protected and filtered",
                "agent_error",
                "checks/secret.rot is protected",
                "echo mine > checks/secret.rot",
            ),
        ],
    );
    assert_eq!(repo.read("open.rot"), "open\n");
    assert!(!repo.exists("new.rot"));
    assert_eq!(repo.read("checks/text.txt"), "one\r\ntwo\r\n");
    assert_eq!(repo.read("checks/secret.rot"), "hello\n");
    assert_eq!(repo.git(&["cat-file", "blob", "HEAD:crlf.txt"]), "a");
    repo.runner(&["verify", "root"]).success();
}

#[test]
fn a_sparse_checkout_that_leaves_the_state_out() {
    let repo = started(TestRepo::new(BIN), |repo| {
        repo.write("other/big.txt", "big\n");
        repo.commit_all("other");
        repo.git(&["sparse-checkout", "set", "--cone", "src"]);
        assert!(!repo.exists("other/big.txt"));
    });
    play(
        &repo,
        &[
            case(
                "work",
                "ok",
                "",
                "echo a > src/a.txt; echo b > b.txt; out retry x",
            ),
            case(
                "outside the cone",
                "ok",
                "",
                "mkdir -p other; echo c > other/c.txt; out retry x",
            ),
            case(
                "flags",
                "ok",
                "",
                "git update-index --assume-unchanged src/a.txt; echo changed > src/a.txt; out retry x",
            ),
            case(
                "protected",
                "agent_error",
                "ci.sh is protected",
                "echo mine > ci.sh",
            ),
            case("more", "ok", "", "echo d > src/d.txt; out retry x"),
        ],
    );
    assert_eq!(
        repo.git(&["show", "HEAD:other/big.txt"]),
        "big",
        "what is not checked out stays"
    );
    assert_eq!(repo.git(&["show", "HEAD:other/c.txt"]), "c");
    assert_eq!(repo.git(&["show", "HEAD:src/a.txt"]), "changed");
    assert!(
        !repo.exists("other/big.txt"),
        "and is still not checked out"
    );
}

#[test]
fn submodules_clean_and_dirty() {
    let inner = TestRepo::new(BIN);
    let repo = started(TestRepo::new(BIN), |repo| {
        add_submodule(repo, &inner, "sub");
        repo.git(&["commit", "-qm", "submodule"]);
    });
    play_one(
        &repo,
        &case("work", "ok", "", "echo a > a.txt; out retry x"),
    );
    // Dirty inside: not the runner's business, and no reason to stop.
    repo.write("sub/dirty.txt", "dirty\n");
    repo.write("sub/README.md", "changed\n");
    repo.agent("echo b > b.txt; out retry x");
    let (run, json) = step(&repo);
    assert_eq!(json["class"], "ok", "{}", run.describe());
    assert_eq!(repo.read("sub/dirty.txt"), "dirty\n");
    repo.agent("rm -rf sub; echo gone > sub; out retry x");
    let (run, json) = step(&repo);
    assert_eq!(json["class"], "agent_error", "{}", run.describe());
    let modes = repo.git(&["ls-tree", "HEAD", "sub"]);
    assert!(modes.starts_with("160000"), "{modes}");
    assert_eq!(repo.read("sub/dirty.txt"), "dirty\n");
}

#[test]
fn hooks_of_the_user_neither_run_nor_stop_anything() {
    let repo = started(TestRepo::new(BIN), |repo| {
        for name in [
            "pre-commit",
            "commit-msg",
            "prepare-commit-msg",
            "post-commit",
            "reference-transaction",
        ] {
            executable(
                &repo.path(".git/hooks").join(name),
                "#!/bin/sh\necho \"$0\" >> ../hooks-ran\nexit 1\n",
            );
        }
        executable(
            &repo.root().join("home/hooks/pre-commit"),
            "#!/bin/sh\nexit 1\n",
        );
        let hooks = repo.root().join("home/hooks").display().to_string();
        repo.git(&["config", "--global", "core.hooksPath", &hooks]);
    });
    play_one(
        &repo,
        &case("work", "ok", "", "echo a > a.txt; out retry x"),
    );
    finish(&repo);
    assert!(!repo.root().join("hooks-ran").exists());
    assert!(
        repo.read(".git/hooks/pre-commit").contains("exit 1"),
        "they stay where they are"
    );
}

#[test]
fn no_git_an_old_git_a_strange_git() {
    let mut repo = repo();
    let path = std::env::var("PATH").unwrap();
    let tools = repo.root().join("tools");
    fs::create_dir(&tools).unwrap();
    let find = |name: &str| {
        std::env::split_paths(&path)
            .map(|folder| folder.join(name))
            .find(|path| path.is_file())
            .unwrap()
    };
    for tool in ["sh", "cat", "dirname", "sed", "awk"] {
        std::os::unix::fs::symlink(find(tool), tools.join(tool)).unwrap();
    }
    repo.env("PATH", &tools);
    for command in [&["step"][..], &["start"], &["loop"], &["validate"]] {
        let run = repo.runner(command).code(1).says("git is not installed");
        assert!(run.elapsed.as_secs() < 10);
    }
    executable(
        &tools.join("git"),
        "#!/bin/sh\ncase \"$*\" in *--version*) echo git version 2.17.1;; *) echo 'unknown option' >&2; exit 129;; esac\n",
    );
    for command in [&["step"][..], &["start"], &["loop"]] {
        repo.runner(command).code(1).says("2.17.1").says("2.34");
    }
    executable(&tools.join("git"), "#!/bin/sh\nexit 3\n");
    repo.runner(&["start"])
        .code(1)
        .says("`git --version` failed");
    repo.runner(&["step"]).code(1);
    fs::set_permissions(tools.join("git"), fs::Permissions::from_mode(0o644)).unwrap();
    repo.runner(&["step"]).code(1).says("git");
    repo.env("PATH", path);
    assert!(repo.agent_calls().is_empty());
    finish(&repo);
}

#[test]
fn the_environment_of_the_caller_leads_nowhere() {
    let mut repo = repo();
    let other = TestRepo::new(BIN);
    let before = (other.head(), other.git(&["status", "--porcelain"]));
    repo.agent_at(
        1,
        "env | grep -q '^GIT_' && exit 9; echo a > a.txt; out retry x",
    );
    repo.agent_at(2, "echo good > good.txt; out done x");
    let names = [
        ("GIT_DIR", other.path(".git").display().to_string()),
        ("GIT_WORK_TREE", other.path("").display().to_string()),
        (
            "GIT_INDEX_FILE",
            repo.root().join("index").display().to_string(),
        ),
        (
            "GIT_OBJECT_DIRECTORY",
            other.path(".git/objects").display().to_string(),
        ),
        ("GIT_NAMESPACE", "x".to_owned()),
        ("GIT_CONFIG_COUNT", "1".to_owned()),
        ("GIT_CONFIG_KEY_0", "core.fsmonitor".to_owned()),
        (
            "GIT_CONFIG_VALUE_0",
            repo.agent_dir().join("evil.sh").display().to_string(),
        ),
        (
            "GIT_EXTERNAL_DIFF",
            repo.agent_dir().join("evil.sh").display().to_string(),
        ),
        ("GIT_AUTHOR_NAME", "Mallory".to_owned()),
        ("GIT_LITERAL_PATHSPECS", "1".to_owned()),
        ("GIT_TRACE", repo.root().join("trace").display().to_string()),
        ("LC_ALL", "de_DE.UTF-8".to_owned()),
    ];
    for (name, value) in &names {
        repo.env(name, value);
    }
    let first = repo.runner(&["step", "--json"]);
    let second = repo.runner(&["step", "--json"]);
    for (name, _) in &names {
        repo.env_remove(name);
    }
    assert_eq!(first.json()["class"], "ok", "{}", first.describe());
    assert_eq!(second.json()["guard"], "pass", "{}", second.describe());
    check(&repo, "environment");
    assert_eq!(repo.git(&["log", "-1", "--format=%an"]), "Test Author");
    assert_eq!(
        (other.head(), other.git(&["status", "--porcelain"])),
        before
    );
    assert!(!repo.root().join("index").exists() && !repo.root().join("trace").exists());
}

#[test]
fn a_project_with_an_odd_path() {
    let repo = repo();
    let odd = std::ffi::OsStr::from_bytes(b"odd \xff\n'\"$(x)");
    let moved = repo.root().join(odd);
    fs::rename(repo.path(""), &moved).unwrap();
    let run = |args: &[&str]| {
        let mut command = repo.hermetic(BIN);
        command.args(args).current_dir(&moved);
        repo.spawn(command).wait()
    };
    repo.agent_at(1, "git config core.x y; out retry x");
    assert_eq!(run(&["step", "--json"]).success().json()["class"], "ok");
    assert_eq!(run(&["step", "--json"]).success().json()["guard"], "pass");
    run(&["validate"]).success();
    run(&["verify", "root"]).success();
}
