//! The programs that agents and guards are made of: git, cargo, npm.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::{Case, Ran, each, with};

const SETTINGS: &[&str] = &[
    "config",
    "config.worktree",
    "hooks",
    "info",
    "commondir",
    "gitdir",
];

/// `mv` would copy and remove one by one where a rename is refused, and do its worst before it fails.
const RENAME: &str = "python3 -c 'import os, sys; os.rename(*sys.argv[1:])'";

/// Runs git as this user, outside.
fn git(case: &Case, dir: &Path, args: &[&str]) {
    let ran = Ran::of(
        &case
            .plain(&["git"])
            .args(args)
            .current_dir(dir)
            .output()
            .unwrap(),
    );
    assert_eq!(ran.code, Some(0), "{case}: git {args:?}: {ran:?}");
}

fn set_up_git(case: &mut Case) {
    for (name, value) in [
        ("GIT_CONFIG_NOSYSTEM", "1"),
        ("GIT_AUTHOR_NAME", "a"),
        ("GIT_AUTHOR_EMAIL", "a@example.org"),
        ("GIT_COMMITTER_NAME", "a"),
        ("GIT_COMMITTER_EMAIL", "a@example.org"),
    ] {
        case.set(name, value);
    }
    let project = case.project.clone();
    git(case, &project, &["init", "-q", "-b", "main"]);
    git(
        case,
        &project,
        &["commit", "-q", "--allow-empty", "-m", "first"],
    );
}

/// The folder is writable, its settings are not.
fn open_git_dir(case: &mut Case, dir: &Path) {
    case.option("--rw", dir);
    for name in SETTINGS {
        case.option("--ro", &dir.join(name));
    }
}

/// All that an agent may do with git.
fn use_git(case: &Case) {
    case.works(
        "echo x > file && git add file && git commit -q -m second && git status --porcelain && \
         echo y >> file && git commit -q -am third && git stash list && git log --oneline && \
         git branch -f side && git tag -f t && git rm -q --cached file && git reset -q --hard && \
         git commit -q --amend -m amended && git diff HEAD~1 --stat && git gc -q",
    );
    let ran = Ran::of(
        &case
            .plain(&["git", "log", "--format=%s", "-1"])
            .output()
            .unwrap(),
    );
    assert_eq!(ran.stdout, "amended\n", "{case}: {ran:?}");
    let ran = Ran::of(&case.plain(&["git", "fsck", "--strict"]).output().unwrap());
    assert_eq!(ran.code, Some(0), "{case}: {ran:?}");
}

fn plant(case: &Case, git_dir: &str) {
    for attempt in [
        "git config filter.x.clean evil",
        "echo x >> DIR/config",
        "echo x > DIR/hooks/pre-commit",
        "echo x > DIR/info/attributes",
        "RENAME DIR/hooks DIR/aside",
        "rm -rf DIR/info",
        "RENAME DIR DIR.aside",
    ] {
        let attempt = attempt.replace("DIR", git_dir).replace("RENAME", RENAME);
        let ran = case.sh(&attempt);
        assert_ne!(ran.code, Some(0), "{case}: {attempt}: {ran:?}");
    }
}

#[test]
fn git_in_a_plain_repository() {
    each(|mut case| {
        set_up_git(&mut case);
        let dir = case.path("project/.git");
        open_git_dir(&mut case, &dir);
        use_git(&case);
        if case.is_bubblewrap() {
            plant(&case, ".git");
            use_git(&case);
        }
    });
}

#[test]
fn git_in_a_linked_work_tree() {
    each(|mut case| {
        set_up_git(&mut case);
        let (main, linked) = (case.path("project"), case.path("linked"));
        git(
            &case,
            &main,
            &["worktree", "add", "-q", "-b", "goal", "../linked"],
        );
        case.project = linked;
        let common = case.path("project/.git");
        open_git_dir(&mut case, &common);
        open_git_dir(&mut case, &common.join("worktrees/linked"));
        case.option("--ro", &case.path("linked/.git"));
        use_git(&case);
        // The main work tree is not part of this project.
        let ran = case.sh("echo x > $BASE/project/file");
        assert_ne!(ran.code, Some(0), "{case}: {ran:?}");
        if case.is_bubblewrap() {
            plant(&case, "$BASE/project/.git");
            for attempt in [
                "echo x > .git",
                "rm .git",
                "echo x > $BASE/project/.git/worktrees/linked/commondir",
                "RENAME $BASE/project/.git/worktrees $BASE/project/.git/aside",
            ] {
                let attempt = attempt.replace("RENAME", RENAME);
                let ran = case.sh(&attempt);
                assert_ne!(ran.code, Some(0), "{case}: {attempt}: {ran:?}");
            }
            use_git(&case);
        }
    });
}

/// Caches outside the home folder, and the variables that lead there.
fn open_caches(case: &mut Case) {
    for (variable, name) in [
        ("CARGO_HOME", "caches/cargo"),
        ("npm_config_cache", "caches/npm"),
    ] {
        let folder = case.path(name);
        fs::create_dir_all(&folder).unwrap();
        case.option("--rw", &folder);
        case.set(variable, folder);
    }
    case.give_away();
}

/// As this user only: the toolchain may be closed to others.
#[test]
fn cargo_builds_with_a_read_only_home() {
    for mechanism in ["bubblewrap", "landlock"] {
        if !crate::is_there(mechanism, &crate::detect()) {
            continue;
        }
        let mut case = Case::new(mechanism, false);
        let cargo = PathBuf::from(std::env::var_os("CARGO").expect("cargo runs these tests"));
        let bin = cargo.parent().unwrap();
        let path = std::env::join_paths(
            std::iter::once(bin.to_owned())
                .chain(std::env::split_paths(&std::env::var_os("PATH").unwrap())),
        );
        case.set("PATH", path.unwrap());
        case.write(
            "project/Cargo.toml",
            "[package]\nname = \"tiny\"\nversion = \"0.1.0\"\nedition = \"2021\"\n[workspace]\n",
        );
        case.write("project/src/lib.rs", "#[test]\nfn works() {}\n");
        case.write(
            "project/build.rs",
            "fn main() { println!(\"cargo::rustc-cfg=x\"); }\n",
        );
        case.write("home/.cargo/registry/index/x", "");
        open_caches(&mut case);
        case.works("cargo build --offline && cargo test --offline -q");
        case.works("flock -n $CARGO_HOME/.package-cache true && : >> $CARGO_HOME/.package-cache");
        for attempt in [
            "echo x > $HOME/.cargo/registry/index/x",
            "echo x > $HOME/.cargo/env",
        ] {
            let ran = case.sh(attempt);
            assert_ne!(ran.code, Some(0), "{case}: {attempt}: {ran:?}");
        }
    }
}

#[test]
fn npm_finds_its_cache() {
    let there = Command::new("npm").arg("--version").output().is_ok();
    if !there {
        eprintln!("npm is not installed: skipped");
        return;
    }
    each(|mut case| {
        open_caches(&mut case);
        case.write(
            "project/package.json",
            r#"{"name":"tiny","version":"1.0.0","scripts":{"test":"node -e 'console.log(6 * 7)'"}}"#,
        );
        case.works("npm --version");
        let cache = case.works("npm config get cache");
        assert_eq!(Path::new(cache.trim_end()), case.path("caches/npm"));
        let said = case.works("npm test --silent && npm install --offline --silent --no-audit");
        assert_eq!(said.lines().next(), Some("42"), "{case}");
        assert!(case.path("caches/npm/_logs").exists(), "{case}");
        let ran = case.sh("npm config set color false");
        assert_ne!(ran.code, Some(0), "{case}: {ran:?}");
    });
}

/// As `cargo` and `npm` meet it when nobody opened anything for them.
#[test]
fn caches_are_closed_unless_opened() {
    with("bubblewrap", |case| {
        fs::create_dir(case.path("home/.npm")).unwrap();
        case.give_away();
        let ran = case.sh("echo x > $HOME/.npm/x");
        assert_ne!(ran.code, Some(0), "{case}: {ran:?}");
    });
}
