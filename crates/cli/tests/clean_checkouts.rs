//! Checkouts in which commits are judged: private, outside the project, made ready by setup,
//! without a way back, and removed whatever happens.

mod scenario;

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::PathBuf;
use std::time::Duration;

use runner_testkit::{TestRepo, eventually, write_program};
use scenario::{GOAL, bare, plan, planned};
use serde_json::{Value, json};

const AGENT: &str = "echo \"$RUNNER_NODE_ID\" > \"$RUNNER_NODE_ID.txt\"; out done 'wrote it'";
const PATIENCE: Duration = Duration::from_secs(30);

/// A run of one leaf that has passed under this guard, with a setting besides.
fn passed(guard: &[&str], sandbox: &str) -> TestRepo {
    let mut repo = planned(&["a"], AGENT, guard);
    set(&mut repo, "sandbox.mode", sandbox);
    set(&mut repo, "sandbox.writable", json!(["~/../out"]));
    repo.runner(&["loop"]).success();
    repo
}

/// Changes a setting as a person does, between two steps.
fn set(repo: &mut TestRepo, key: &str, value: impl Into<Value>) {
    repo.config(|config| {
        config.set(key, value);
    });
    repo.write_config();
    repo.commit_all("Change the config");
}

#[test]
fn nothing_that_a_guard_does_reaches_the_project() {
    // In the clean checkout, that is where there is no iteration.
    let harm = "[ -n \"$RUNNER_ITER\" ] || { git config user.name evil; git branch planted; \
                git update-ref -d refs/heads/main; rm -rf \"$(git rev-parse --git-common-dir)\"; }";
    for sandbox in ["off", "auto"] {
        let repo = passed(&["sh", "-c", &format!("{harm}; true")], sandbox);
        let config = repo.read(".git/config");
        let refs = repo.git(&["for-each-ref"]);
        repo.runner(&["verify", "a"]).success();
        assert_eq!(repo.read(".git/config"), config, "{sandbox}");
        assert_eq!(repo.git(&["for-each-ref"]), refs, "{sandbox}");
        assert!(repo.private_checkouts().is_empty());
        repo.runner(&["land"]).success();
        repo.git(&["fsck", "--strict"]);
    }
}

#[test]
fn setup_makes_what_git_ignores() {
    let guard = ["test", "-e", "deps/lib"];
    let mut repo = planned(&["a"], AGENT, &guard);
    repo.write(".git/info/exclude", "deps/\n");
    repo.write("deps/lib", "installed by hand\n");
    // What lies in the user's checkout is in no commit.
    assert_eq!(repo.runner(&["step", "--json"]).json()["guard"], "fail");
    set(
        &mut repo,
        "workspace.setup",
        "mkdir deps && cp README.md deps/lib",
    );
    repo.runner(&["loop"]).success();
    repo.runner(&["verify", "a"]).success();
    repo.runner(&["land"]).success();
    assert_eq!(repo.read("deps/lib"), "installed by hand\n");
}

#[test]
fn a_setup_that_fails_is_told_with_its_words() {
    let mut repo = passed(&["true"], "auto");
    let setup = json!(["sh", "-c", "echo no such package; exit 3"]);
    set(&mut repo, "workspace.setup", setup);
    let run = repo.runner(&["verify", "a"]);
    let words = "the guard cannot run: setup `echo no such package; exit 3` gave exit 3";
    assert!(run.stderr.contains(words), "{}", run.describe());
    let run = repo.runner(&["land"]);
    assert!(run.stderr.contains("no such package"), "{}", run.describe());
    set(&mut repo, "workspace.setup", json!(["no-such-installer"]));
    let run = repo.runner(&["verify", "a"]);
    assert!(
        run.stderr.contains("no-such-installer"),
        "{}",
        run.describe()
    );
}

#[test]
fn named_variables_reach_setup_and_guard() {
    let script = "test \"$CI\" = 1 && test \"$SERVICE\" = here && test -z \"$OTHER\" && { \
                  [ -n \"$RUNNER_ITER\" ] || test \"$(cat made)\" = ours; }";
    let mut repo = planned(&["a"], AGENT, &["true"]);
    repo.env("SERVICE", "here")
        .env("OTHER", "x")
        .env("TOKEN", "ours");
    repo.write(".git/info/exclude", "made\n");
    set(&mut repo, "guard.env", json!(["SERVICE"]));
    set(&mut repo, "workspace.env", json!(["TOKEN"]));
    set(&mut repo, "workspace.setup", "echo $TOKEN$SERVICE > made");
    set(&mut repo, "guard.command", json!(["sh", "-c", script]));
    repo.runner(&["loop"]).success();
    repo.runner(&["land"]).success();
}

#[test]
fn they_lie_outside_where_nobody_else_looks() {
    let mut repo = planned(&["a"], AGENT, &["sh", "-c", "pwd > \"$HOME/../out/where\""]);
    let state = repo.root().join("state");
    repo.env("XDG_STATE_HOME", &state);
    repo.runner(&["loop"]).success();
    repo.runner(&["verify", "a"]).success();
    let place = fs::read_to_string(repo.root().join("out/where")).unwrap();
    let home = PathBuf::from(place.trim());
    assert!(home.starts_with(state.join("runner")), "{place}");
    let entries = fs::read_dir(state.join("runner")).unwrap().flatten();
    let mut projects = entries.filter(|it| it.file_name() != "proof.key");
    let project = projects.next().expect("there is one");
    let mode = project.metadata().unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o700);
    assert!(projects.next().is_none());
    set(&mut repo, "workspace.root", "inside");
    let run = repo.runner(&["verify", "a"]);
    let words = "private folders must lie outside the project";
    assert!(run.stderr.contains(words), "{}", run.describe());
}

#[test]
fn no_filter_of_the_users_runs_on_what_an_agent_wrote() {
    let agent = "echo '*.txt filter=mine' > .gitattributes; echo text > a.txt; out done 'wrote it'";
    let mut repo = planned(&["a"], agent, &["grep", "-q", "text", "a.txt"]);
    let program = repo.root().join("filter");
    let ran = repo.root().join("out/filtered");
    write_program(
        &program,
        &format!("#!/bin/sh\necho \"$PWD\" >> {}\ncat\n", ran.display()),
    );
    repo.runner(&["loop"]).success();
    // From here on, so that only the checkout of the verdict can run it.
    let driver = format!(
        "[filter \"mine\"]\n\tsmudge = {0}\n\tclean = {0}\n\trequired = true\n",
        program.display()
    );
    let config = repo.root().join("home/.gitconfig");
    let text = fs::read_to_string(&config).unwrap();
    fs::write(&config, text + &driver).unwrap();
    repo.env("GIT_OPTIONAL_LOCKS", "0");
    repo.runner(&["verify", "a"]).success();
    let places = fs::read_to_string(&ran).unwrap_or_default();
    assert!(!places.contains("checkouts"), "{places}");
}

#[test]
fn what_a_killed_runner_left_is_cleaned() {
    let wait = "[ -n \"$RUNNER_ITER\" ] || { : > \"$HOME/../out/waits\"; sleep 600; }";
    let repo = passed(&["sh", "-c", wait], "auto");
    let waits = repo.root().join("out/waits");
    let running = repo.spawn_runner(&["verify", "a"]);
    eventually("the guard", PATIENCE, || waits.exists());
    let busy = repo.runner(&["clean", "--json"]).success().json();
    assert_eq!(busy["in_use"].as_array().unwrap().len(), 1, "{busy}");
    assert_eq!(busy["removed"], json!([]));
    drop(running);

    let look = repo
        .runner(&["clean", "--dry-run", "--json"])
        .success()
        .json();
    assert_eq!(look["removed"].as_array().unwrap().len(), 1, "{look}");
    assert!(look["freed_bytes"].as_u64().unwrap() > 0, "{look}");
    assert!(!repo.private_checkouts().is_empty());
    let run = repo.runner(&["clean"]).success();
    assert!(
        run.stderr.contains("removed 1 folder and freed"),
        "{}",
        run.describe()
    );
    assert!(repo.private_checkouts().is_empty());
    let run = repo.runner(&["clean"]).success();
    assert!(
        run.stderr.contains("nothing to remove"),
        "{}",
        run.describe()
    );

    // A project that is gone leaves nothing behind, either.
    fs::remove_dir_all(repo.path(".git")).unwrap();
    let all = repo.runner(&["clean", "--all", "--json"]).success().json();
    assert_eq!(all["removed"].as_array().unwrap().len(), 2, "{all}");
    let root = repo.root().join("home/.local/state/runner");
    let left = fs::read_dir(root).unwrap().flatten();
    // What is the user's, and no project's.
    let own = ["proof.key", "limits", "logins"];
    assert!(
        left.into_iter()
            .all(|it| own.iter().any(|own| it.file_name() == *own))
    );
}

/// The private folder of the only project of this home.
fn private_folder(repo: &TestRepo) -> PathBuf {
    let all = repo.root().join("home/.local/state/runner");
    let mut folders = fs::read_dir(all).expect("it is there").flatten();
    let folder = folders.find(|it| it.path().is_dir());
    folder.expect("there is one").path()
}

#[test]
fn nothing_that_a_link_points_to_is_removed_or_written() {
    let repo = passed(&["true"], "auto");
    repo.runner(&["verify", "a"]).success();
    let precious = repo.root().join("out/precious");
    fs::create_dir(&precious).unwrap();
    fs::write(precious.join("thesis"), "work of years").unwrap();
    let checkouts = private_folder(&repo).join("checkouts");
    fs::remove_dir_all(&checkouts).unwrap();
    symlink(&precious, &checkouts).unwrap();
    let run = repo.runner(&["verify", "a"]);
    let words = "checkouts is not a folder of yours";
    assert!(run.stderr.contains(words), "{}", run.describe());
    // A folder that looks like that of a project and was not made for one.
    let planted = private_folder(&repo).with_file_name("0123456789abcdef".repeat(2));
    fs::create_dir(&planted).unwrap();
    symlink(&precious, planted.join("checkouts")).unwrap();
    for options in [&["clean"][..], &["clean", "--all"]] {
        repo.runner(options).success();
    }
    fs::remove_file(&checkouts).unwrap();

    fs::remove_dir_all(repo.path(".git/runner")).unwrap();
    symlink(&precious, repo.path(".git/runner")).unwrap();
    repo.runner(&["verify", "a"]).code(1).says(".git/runner");
    let left: Vec<_> = fs::read_dir(&precious).unwrap().flatten().collect();
    assert_eq!(left.len(), 1, "{left:?}");
    assert_eq!(
        fs::read_to_string(precious.join("thesis")).unwrap(),
        "work of years"
    );
}

#[test]
fn a_pipe_in_the_place_of_a_lock_holds_nobody_up() {
    let repo = passed(&["true"], "auto");
    fs::create_dir_all(repo.path(".git/runner")).unwrap();
    let pipe = repo.path(".git/runner/lock");
    let _ = fs::remove_file(&pipe);
    let _ = fs::remove_file(repo.path(".git/runner/project.json"));
    let mut mkfifo = repo.hermetic("mkfifo");
    mkfifo.arg(&pipe);
    repo.spawn(mkfifo).wait().success();
    repo.runner(&["verify", "a"])
        .code(1)
        .says("lock is not a regular file");
}

#[test]
fn objects_that_are_missing_or_forged_are_no_verdict() {
    let repo = passed(&["sh", "-c", "test \"$(cat a.txt)\" = a"], "auto");
    // Each object a file of its own.
    let loose = "alias.loose=!mv .git/objects/pack packs && \
                 for it in packs/*.pack; do git unpack-objects -q < $it; done; rm -r packs";
    repo.git(&["-c", loose, "loose"]);
    let blob = repo.git(&["rev-parse", "HEAD:a.txt"]);
    let other = repo.git(&["rev-parse", "HEAD:README.md"]);
    let at = |id: &str| repo.path(".git/objects").join(&id[..2]).join(&id[2..]);
    let content = fs::read(at(&blob)).unwrap();
    fs::remove_file(at(&blob)).unwrap();
    let words = "missing or not what their names say";
    repo.runner(&["verify", "a"]).code(1).says(words);
    fs::copy(at(&other), at(&blob)).unwrap();
    repo.runner(&["verify", "a"]).code(1).says(words);
    fs::remove_file(at(&blob)).unwrap();
    fs::write(at(&blob), content).unwrap();
    repo.runner(&["verify", "a"]).success();
}

#[test]
fn setup_may_not_change_what_is_judged() {
    let mut repo = passed(&["true"], "auto");
    for (setup, words) in [
        (
            "echo forged > a.txt",
            "setup changed files of the commit: a.txt",
        ),
        (
            "git checkout -q --detach HEAD~1",
            "setup changed files of the commit: ",
        ),
    ] {
        set(&mut repo, "workspace.setup", setup);
        repo.runner(&["verify", "a"]).code(1).says(words);
    }
}

#[test]
fn ignored_files_that_the_config_names_are_copied() {
    let guard = [
        "sh",
        "-c",
        "grep -q here .env && test -L deps/link && test ! -e other.env && \
         { [ -n \"$RUNNER_ITER\" ] || echo written >> .env; }",
    ];
    let mut repo = planned(&["a"], AGENT, &guard);
    repo.write(".git/info/exclude", ".env\ndeps/\n*.env\n*.local\n");
    repo.write(".env", "SERVICE=here\n");
    repo.write("deps/lib", "installed by hand\n");
    symlink("lib", repo.path("deps/link")).unwrap();
    repo.write("other.env", "not named\n");
    assert_eq!(repo.runner(&["step", "--json"]).json()["guard"], "fail");
    set(&mut repo, "workspace.include", json!([".env", "deps/"]));
    repo.runner(&["loop"]).success();
    repo.runner(&["verify", "a"]).success();
    assert_eq!(repo.read(".env"), "SERVICE=here\n", "it is a copy");
    // The same by the file that other tools read too.
    set(&mut repo, "workspace.include", json!([]));
    repo.write(
        ".git/info/exclude",
        ".env\ndeps/\n*.env\n.worktreeinclude\n",
    );
    repo.write(".worktreeinclude", "/.env\ndeps/\nREADME.md\n");
    repo.runner(&["verify", "a"]).success();
    repo.runner(&["land"]).success();
    assert!(!repo.git(&["ls-files"]).contains(".env"));
}

#[test]
fn a_copied_environment_that_leads_back_is_refused() {
    // Where it would not be seen at the project's own path.
    let mut repo = passed(&["true"], "off");
    repo.write(".git/info/exclude", ".venv/\n");
    let config = format!(
        "command = python3 -m venv {}/.venv\n",
        repo.path("").display()
    );
    repo.write(".venv/pyvenv.cfg", config);
    set(&mut repo, "workspace.include", json!([".venv"]));
    repo.runner(&["verify", "a"])
        .code(1)
        .says("cannot copy .venv into a checkout: .venv/pyvenv.cfg names")
        .says("let [workspace] setup make .venv");
}

#[test]
fn submodules_are_filled_from_the_projects_own_clones() {
    let mut repo = bare();
    let library = repo.root().join("library");
    let commands: [&[&str]; 2] = [
        &["init", "--quiet", library.to_str().unwrap()],
        &[
            "-C",
            library.to_str().unwrap(),
            "commit",
            "--quiet",
            "--allow-empty",
            "-m",
            "x",
        ],
    ];
    for command in commands {
        repo.git(command);
    }
    fs::write(library.join("lib.txt"), "shared\n").unwrap();
    repo.git(&["-C", library.to_str().unwrap(), "add", "--all"]);
    repo.git(&[
        "-C",
        library.to_str().unwrap(),
        "commit",
        "--quiet",
        "-m",
        "Add it",
    ]);
    let url = library.to_str().unwrap();
    repo.git(&[
        "-c",
        "protocol.file.allow=always",
        "submodule",
        "add",
        "--quiet",
        url,
        "lib",
    ]);
    repo.commit_all("Add the library");
    repo.agent(AGENT);
    repo.start_run(GOAL, &["grep", "-q", "shared", "lib/lib.txt"]);
    plan(&repo, &["a"]);
    repo.runner(&["loop"]).success();
    // Nothing is fetched: the library may be gone.
    fs::remove_dir_all(&library).unwrap();
    repo.runner(&["verify", "a"]).success();
    set(&mut repo, "workspace.submodules", false);
    repo.runner(&["verify", "a"]).code(1);
    set(&mut repo, "workspace.submodules", true);
    repo.runner(&["land"]).success();
}

#[test]
fn a_variable_that_the_guard_lacks_is_named_in_the_hint() {
    let script = "[ -n \"$RUNNER_ITER\" ] || : \"${SERVICE_URL:?not set}\"";
    let mut repo = passed(&["sh", "-c", script], "auto");
    repo.env("SERVICE_URL", "here");
    let hint = "hint: pass SERVICE_URL on with [guard] env = [\"SERVICE_URL\"]";
    repo.runner(&["verify", "a"]).code(1).says(hint);
    repo.runner(&["land"]).code(1).says(hint);
    set(&mut repo, "guard.env", json!(["SERVICE_URL"]));
    repo.runner(&["land"]).success();
}
