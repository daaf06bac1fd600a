//! What the runner starts by itself, outside any sandbox, is nothing of a session's: programs of the
//! project, filters that are scripts of it, servers that a commit names, guards that only look as if they could not be
//! started.
#![allow(clippy::unwrap_used)] // a helper that fails is a test that fails

mod hostile_support;

use std::fs;
use std::path::PathBuf;

use hostile_support::{GOOD, started, step, under};
use runner_testkit::{TestRepo, write_program};
use serde_json::json;

/// Those that keep a session from the rest of the machine.
const CLOSED: [&str; 2] = ["bubblewrap", "landlock"];

/// A file outside the project that nothing contained can write.
fn canary(repo: &TestRepo) -> PathBuf {
    repo.root().join("canary")
}

/// Takes back what a session may write to: the folder of the canary lies around the agent's own.
fn closed(mechanism: &str) -> TestRepo {
    let mut repo = under(mechanism);
    repo.config(|config| {
        config
            .set("sandbox.writable", json!([]))
            .set("sandbox.mode", "required");
    });
    repo
}

/// A chain of scripts that the kernel follows to its end, and that is longer than others do.
fn chain(repo: &TestRepo, length: usize) -> String {
    let links = (1..length).map(|number| {
        let next = number + 1;
        format!("printf '#!./x/{next}\\n' > x/{number}\n")
    });
    let canary = canary(repo).display().to_string();
    let links: String = links.collect();
    format!(
        "mkdir -p x\n{links}printf '#!/bin/sh\\necho out > {canary}\\n' > x/{length}\n\
         chmod +x x/*; cp x/1 ci.sh\n"
    )
}

#[test]
fn a_guard_that_cannot_be_followed_is_never_started_without_its_sandbox() {
    for mechanism in CLOSED {
        for length in [3, 4, 5, 6, 7] {
            let mut repo = closed(mechanism);
            repo.agent("out done x");
            repo.start_run("# Goal\n\nA guard.\n", &["./ci.sh"]);
            repo.agent(&format!("{}out done x", chain(&repo, length)));
            let (run, _) = step(&repo);
            let about = format!("{mechanism} {length}: {}", run.describe());
            assert!(!canary(&repo).exists(), "{about}");
        }
    }
}

#[test]
fn a_guard_that_a_session_breaks_is_red_and_not_the_runners_error() {
    for mechanism in CLOSED {
        let mut repo = closed(mechanism);
        fs::create_dir_all(repo.path("bin")).unwrap();
        write_program(&repo.path("bin/ci"), "#!/bin/sh\nexit 0\n");
        repo.commit_all("A guard");
        repo.agent("chmod -x bin/ci; out done x");
        repo.config(|config| {
            config.set("guard.protected", json!([]));
        });
        repo.start_run("# Goal\n\nWork.\n", &["bin/ci"]);
        let (run, json) = step(&repo);
        let about = format!("{mechanism}: {}", run.describe());
        assert_eq!(json["class"], "ok", "{about}");
        assert_eq!(json["guard"], "fail", "{about}");
        assert_eq!(repo.node("root")["attempts"], 1, "{about}");
        let log = fs::read_to_string(repo.iteration(1).join("guard.log")).unwrap();
        assert!(
            log.contains("cannot start `bin/ci`: permission denied"),
            "{log}"
        );
        // The next session hears it, and may mend it.
        repo.agent("chmod +x bin/ci; out done x");
        let (run, json) = step(&repo);
        assert_eq!(json["guard"], "pass", "{}", run.describe());
    }
}

#[test]
fn programs_of_the_project_are_not_the_runners() {
    let repo = started(closed("bubblewrap"), |repo| {
        fs::create_dir_all(repo.path("bin")).unwrap();
        repo.write("bin/tool", "#!/bin/sh\n");
        repo.commit_all("A folder of programs");
    });
    let canary = canary(&repo);
    let git = format!(
        "#!/bin/sh\necho out >> {}\nexec /usr/bin/env -i PATH=/usr/local/bin:/usr/bin:/bin git \"$@\"\n",
        canary.display()
    );
    for name in ["git", "bwrap"] {
        write_program(&repo.path(format!("bin/{name}")), &git);
    }
    repo.commit_all("As a session would have it");
    let path = std::env::var("PATH").unwrap();
    let project = repo.path("").display().to_string();
    let project = project.trim_end_matches('/');
    for first in [format!("{project}/bin"), "./bin".to_owned(), ".".to_owned()] {
        repo.agent(GOOD);
        for args in [
            &["step", "--json"][..],
            &["status"],
            &["validate"],
            &["doctor"],
            &["log"],
        ] {
            let mut command = repo.runner_cmd(args);
            command.env("PATH", format!("{first}:{path}"));
            let run = repo.spawn(command).wait();
            assert!(!canary.exists(), "{first} {args:?}: {}", run.describe());
        }
    }
}

#[test]
fn what_is_made_in_a_folder_on_the_path_is_undone() {
    let repo = started(closed("bubblewrap"), |repo| {
        repo.write("bin/tool", "#!/bin/sh\n");
        repo.commit_all("A folder of programs");
    });
    let path = std::env::var("PATH").unwrap();
    let path = format!("{}:{path}", repo.path("bin").display());
    let play = |script: &str| {
        repo.agent(script);
        let mut command = repo.runner_cmd(&["step", "--json"]);
        command.env("PATH", &path);
        repo.spawn(command).wait().json()
    };
    let json = play("printf '#!/bin/sh\\n' > bin/python3; chmod +x bin/python3; out done x");
    assert_eq!(json["class"], "agent_error", "{json:#}");
    assert!(!repo.workspace("bin/python3").exists());
    let json = play("echo fine > other.txt; out done x");
    assert_eq!(json["class"], "ok", "{json:#}");
}

#[test]
fn filters_that_are_scripts_of_the_project_run_for_no_command() {
    for (name, settings) in [
        ("a script", "filter.x.clean=sh clean.sh"),
        ("a recipe", "filter.x.clean=make -s clean-filter"),
        ("settings of the project", "include.path=../.gitconfig"),
    ] {
        let repo = started(closed("bubblewrap"), |repo| {
            repo.write(".gitattributes", "*.dat filter=x\n");
            repo.write("a.dat", "data\n");
            repo.write("clean.sh", "cat\n");
            repo.write("Makefile", "clean-filter:\n\t@cat\n");
            repo.write(".gitconfig", "[filter \"x\"]\n\tclean = cat\n");
            repo.commit_all("With a filter");
            let (key, value) = settings.split_once('=').unwrap();
            repo.git(&["config", key, value]);
        });
        let canary = canary(&repo).display().to_string();
        repo.agent(&format!(
            "echo 'echo out >> {canary}; cat' > clean.sh\n\
             printf 'clean-filter:\\n\\t@echo out >> {canary}; cat\\n' > Makefile\n\
             printf '[filter \"x\"]\\n\\tclean = \"echo out >> {canary}; cat\"\\n' > .gitconfig\n\
             out retry x"
        ));
        let (run, _) = step(&repo);
        run.success();
        // Git would look into a file with another time again.
        let other = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000_000);
        let file = fs::File::options().write(true).open(repo.path("a.dat"));
        file.unwrap().set_modified(other).unwrap();
        repo.agent(GOOD);
        for args in [
            &["validate"][..],
            &["status"],
            &["doctor"],
            &["follow"],
            &["loop"],
            &["report"],
            &["land"],
        ] {
            let run = repo.runner(args);
            let about = format!("{name} {args:?}: {}", run.describe());
            assert!(!std::path::Path::new(&canary).exists(), "{about}");
        }
    }
}

/// A commit's `.lfsconfig` may name any server; nobody asks it.
#[test]
fn git_lfs_takes_only_what_is_here() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let port = listener.local_addr().unwrap().port();
    let repo = started(closed("bubblewrap"), |repo| {
        repo.git(&["lfs", "install"]);
        repo.write(
            ".gitattributes",
            "*.bin filter=lfs diff=lfs merge=lfs -text\n",
        );
        repo.write("a.bin", "large\n");
        repo.write("ci.sh", "grep -q large a.bin\n");
        repo.commit_all("With Git LFS");
    });
    let pointer = format!(
        "version https://git-lfs.github.com/spec/v1\\noid sha256:{:064x}\\nsize 5\\n",
        7
    );
    repo.agent(&format!(
        "printf '[lfs]\\n\\turl = http://127.0.0.1:{port}/x\\n' > .lfsconfig\n\
         printf '{pointer}' > b.bin\nout done x"
    ));
    let (run, json) = step(&repo);
    let about = run.describe();
    assert_eq!(json["guard"], "pass", "{about}");
    assert!(listener.accept().is_err(), "somebody asked: {about}");
    let run = repo.runner(&["land"]).success();
    assert!(
        listener.accept().is_err(),
        "somebody asked: {}",
        run.describe()
    );
    assert_eq!(repo.read("a.bin"), "large\n");
}

/// A guard that brings its own files up to date judges something else than the commit: also where
/// what lands is a merge that no session made, and where a proof is checked again.
#[test]
fn a_guard_that_changes_what_it_judges_lands_nothing() {
    let mut repo = closed("bubblewrap");
    repo.write("words.txt", "one\n");
    repo.write("UPPER.txt", "ONE\n");
    repo.write(
        "ci.sh",
        "tr a-z A-Z < words.txt > UPPER.txt\ngrep -q \"$(tr a-z A-Z < words.txt)\" UPPER.txt\n",
    );
    repo.commit_all("Words");
    repo.agent("echo n > new.txt; out done x");
    repo.start_run("# Goal\n\nA file.\n", &["sh", "ci.sh"])
        .success();
    repo.runner(&["loop"]).success();
    repo.runner(&["verify", "root"]).success();
    repo.git(&["switch", "--quiet", "main"]);
    repo.write("words.txt", "three\n");
    repo.commit_all("A person forgets the other file");
    let run = repo.runner(&["land"]).code(1);
    let about = run.describe();
    let says = "the guard changed files of the commit that it judges: UPPER.txt";
    assert!(run.stderr.contains(says), "{about}");
    assert_eq!(repo.read("UPPER.txt"), "ONE\n");
    repo.write("UPPER.txt", "THREE\n");
    repo.commit_all("As the guard leaves it");
    repo.runner(&["land"]).success();
}
