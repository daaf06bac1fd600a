//! Paths that are not what they seem: links, odd names, folders inside each other.

use std::fs;
use std::os::unix::fs::symlink;

use runner_sandbox::{Mechanism, WritePolicy};

use crate::{Case, each};

/// Inside is writable, `outside` is not.
fn check(case: &Case) {
    case.works("echo x > made && test \"$(cat made)\" = x && test -e made && rm made");
    case.works("echo x > $TMPDIR/made && rm $TMPDIR/made");
    let ran = case.sh("echo x > $BASE/outside/file");
    assert_ne!(ran.code, Some(0), "{case}: {ran:?}");
    assert_eq!(case.read("outside/file"), "untouched", "{case}");
}

#[test]
fn a_project_behind_a_link() {
    each(|mut case| {
        symlink("project", case.path("link")).unwrap();
        case.write("project/owned", "owned");
        symlink(case.path("link"), case.path("link2")).unwrap();
        case.project = case.path("link2");
        case.option("--ro", &case.path("link/owned"));
        check(&case);
        case.works("cd $BASE/link && echo x > a && cd $BASE/link2 && echo x > b");
        if case.is_bubblewrap() {
            let ran = case.sh("echo x > $BASE/project/owned");
            assert_ne!(ran.code, Some(0), "{case}: {ran:?}");
        }
    });
}

#[test]
fn a_temp_folder_and_a_home_behind_links() {
    each(|mut case| {
        fs::create_dir_all(case.path("real/tmp")).unwrap();
        fs::create_dir_all(case.path("real/home/.cache")).unwrap();
        symlink("real/tmp", case.path("tmp-link")).unwrap();
        symlink("real/home", case.path("home-link")).unwrap();
        case.give_away();
        case.option("--tmp", &case.path("tmp-link"));
        case.option("--rw", &case.path("home-link/.cache"));
        case.set("TMPDIR", case.path("tmp-link"));
        case.set("HOME", case.path("home-link"));
        check(&case);
        case.works("echo x > $HOME/.cache/x && mktemp");
        let ran = case.sh("echo x > $HOME/x");
        assert_ne!(ran.code, Some(0), "{case}: {ran:?}");
    });
}

#[test]
fn names_with_anything_in_them() {
    each(|mut case| {
        for name in [
            "with space",
            "with\nnewline",
            "--bind",
            "quo\"te'",
            "größe $HOME *",
        ] {
            let dir = case.path("project").join(name);
            fs::create_dir_all(dir.join("inner --ro-bind")).unwrap();
            fs::write(dir.join("owned file"), "owned").unwrap();
            case.give_away();
            case.project = dir.clone();
            case.option("--ro", &dir.join("owned file"));
            check(&case);
            case.works("echo x > 'inner --ro-bind/file'");
            if case.is_bubblewrap() {
                let ran = case.sh("echo x > 'owned file'");
                assert_ne!(ran.code, Some(0), "{case}: {name:?}: {ran:?}");
            }
        }
    });
}

/// The temp folder around the project must not be mounted over it.
#[test]
fn a_project_inside_the_temp_folder() {
    each(|mut case| {
        case.write("tmp/a/b/project/owned", "owned");
        case.project = case.path("tmp/a/b/project");
        case.option("--ro", &case.path("tmp/a/b/project/owned"));
        check(&case);
        case.works("echo x > $TMPDIR/a/b/beside");
        if case.is_bubblewrap() {
            for attempt in [
                "echo x > owned",
                "mv $TMPDIR/a $TMPDIR/aside",
                "mv $TMPDIR/a/b $TMPDIR/b",
            ] {
                let ran = case.sh(attempt);
                assert_ne!(ran.code, Some(0), "{case}: {attempt}: {ran:?}");
            }
        }
        assert_eq!(case.read("tmp/a/b/project/owned"), "owned".to_owned());
    });
}

#[test]
fn a_temp_folder_inside_the_project() {
    each(|mut case| {
        fs::create_dir(case.path("project/tmp")).unwrap();
        case.give_away();
        case.option("--tmp", &case.path("project/tmp"));
        case.set("TMPDIR", case.path("project/tmp"));
        check(&case);
    });
}

#[test]
fn a_home_around_the_project() {
    each(|mut case| {
        fs::create_dir_all(case.path("home/.cache")).unwrap();
        fs::create_dir(case.path("home/project")).unwrap();
        case.give_away();
        case.project = case.path("home/project");
        case.option("--rw", &case.path("home/.cache"));
        check(&case);
        case.works("echo x > $HOME/.cache/x");
        let ran = case.sh("echo x > $HOME/file");
        assert_ne!(ran.code, Some(0), "{case}: {ran:?}");
    });
}

/// Shared memory as a place to work in: bubblewrap's own /dev must not hide it.
#[test]
fn a_project_in_shared_memory() {
    each(|mut case| {
        let dir = tempfile::tempdir_in("/dev/shm").unwrap();
        if case.nobody {
            std::os::unix::fs::chown(dir.path(), Some(crate::NOBODY), None).unwrap();
        }
        case.project = dir.path().to_owned();
        check(&case);
        case.works("echo x > kept");
        assert_eq!(fs::read_to_string(dir.path().join("kept")).unwrap(), "x\n");
    });
}

/// What one child leaves in its temp folder or in shared memory, the next one does not find.
#[test]
fn a_temp_folder_of_its_own() {
    each(|mut case| {
        let shared = case.path("tmp");
        case.write("tmp/secret", "x");
        case.write("tmp/tools/tool", "tool");
        case.write("tmp/home/.cache/known", "known");
        for name in ["first", "second"] {
            fs::create_dir(case.path(name)).unwrap();
        }
        case.give_away();
        let shm = format!("/dev/shm/runner-test-{}", std::process::id());
        let leave =
            format!("echo x > $TMPDIR/marker; echo x > $BASE/tmp/marker; echo x > {shm}; true");
        let look =
            format!("test ! -e $TMPDIR/marker && test ! -e $BASE/tmp/marker && test ! -e {shm}");
        case.options.clear();
        case.option("--rw", &case.path("tmp/home/.cache"));
        case.option("--sight", &case.path("tmp/home"));
        case.option("--sight", &case.path("tmp/tools"));
        if case.is_bubblewrap() {
            case.option("--tmp-at", &shared);
        }
        let plain = case.options.clone();
        case.option("--tmp", &case.path("first"));
        if !case.is_bubblewrap() {
            case.set("TMPDIR", case.path("first"));
        }
        case.works(&leave);
        case.works("cat $BASE/tmp/tools/tool && echo x > $BASE/tmp/home/.cache/known && mktemp");
        if case.is_bubblewrap() {
            case.works("test ! -e $BASE/tmp/secret");
        }
        for path in ["tmp/home/x", "tmp/tools/tool"] {
            let ran = case.sh(&format!("echo x > $BASE/{path}"));
            assert_ne!(ran.code, Some(0), "{case}: {path}: {ran:?}");
        }
        case.options = plain;
        case.option("--tmp", &case.path("second"));
        if !case.is_bubblewrap() {
            case.set("TMPDIR", case.path("second"));
        }
        case.works(&look);
        assert!(!shared.join("marker").exists(), "{case}");
        assert!(!std::path::Path::new(&shm).exists(), "{case}");
        assert_eq!(case.read("first/marker"), "x\n", "{case}");
    });
}

/// Folders that others work in are empty for a child.
#[test]
fn hidden_folders() {
    each(|mut case| {
        if !case.is_bubblewrap() {
            // Under Landlock names can be seen: tests of reading say what cannot.
            return;
        }
        case.write("home/state/other/secret", "x");
        case.option("--hide", &case.path("home/state"));
        case.option("--hide", &case.path("home/state/other"));
        case.option("--hide", &case.path("absent"));
        check(&case);
        case.works("test -d $HOME/state && test ! -e $HOME/state/other && test -e $HOME/file");
        case.works("echo x > $HOME/state/mine; true");
        assert!(!case.path("home/state/mine").exists(), "{case}");
    });
}

/// A folder that is seen at another path, which it hides, with a folder lent to it.
#[test]
fn a_project_that_is_seen_elsewhere() {
    let case = Case::new("none", false);
    fs::create_dir_all(case.path("project/lent")).unwrap();
    let policy = WritePolicy {
        project: case.path("project"),
        mounted_at: Some(case.path("outside")),
        lent: vec![(case.path("home"), case.path("project/lent"))],
        writable: vec![case.path("project/cache"), case.path("outside")],
        read_only: vec![case.path("outside")],
        tmp: case.path("tmp"),
        tmp_seen_at: None,
        private: Vec::new(),
        layered: Vec::new(),
        in_sight: Vec::new(),
        hidden: Vec::new(),
        replaced: Vec::new(),
        shared_memory: None,
        network: runner_sandbox::NetworkAccess::Open,
    };
    let plan = policy.plan().unwrap();
    let words = |mechanism: &Mechanism| {
        let wrapped = plan.wrap(mechanism, &["x".into()], &["y".into()]);
        let base = case.path("").display().to_string();
        let words = wrapped
            .iter()
            .map(|word| word.to_string_lossy().replace(&base, ""));
        words.collect::<Vec<_>>().join(" ")
    };
    let line = words(&Mechanism::Bubblewrap {
        program: "bwrap".into(),
    });
    let mounts = "--bind project outside --bind-try tmp tmp --ro-bind-try home outside/lent --remount-ro /dev --chdir outside -- y";
    assert!(line.ends_with(mounts), "{line}");
    // Landlock knows no mounts: the folder itself, and not what the other path has.
    assert_eq!(
        words(&Mechanism::Landlock),
        "x --rw project --rw tmp --show home -- y"
    );
}

/// A session leaves a link where a later one is given a folder.
#[test]
fn planted_links_open_nothing() {
    let case = Case::new("none", false);
    symlink(case.path("outside"), case.path("project/cache")).unwrap();
    symlink(case.path("outside"), case.path("tmp/cache")).unwrap();
    symlink("/", case.path("root")).unwrap();
    let policy = WritePolicy {
        project: case.path("project"),
        mounted_at: None,
        lent: Vec::new(),
        writable: [
            "project/cache",
            "project/../outside",
            "tmp/cache",
            "root",
            "absent",
            "home",
        ]
        .map(|name| case.base.path().canonicalize().unwrap().join(name))
        .to_vec(),
        read_only: vec![case.path("project/absent"), case.path("project/cache")],
        tmp: case.path("tmp"),
        tmp_seen_at: None,
        private: Vec::new(),
        layered: Vec::new(),
        in_sight: Vec::new(),
        hidden: Vec::new(),
        replaced: Vec::new(),
        shared_memory: None,
        network: runner_sandbox::NetworkAccess::Open,
    };
    let plan = policy.plan().unwrap();
    let base = case.path("");
    let left_out: Vec<String> = plan
        .left_out
        .iter()
        .map(|left| {
            format!(
                "{}{}",
                left.path.strip_prefix(&base).unwrap().display(),
                left.absent
            )
        })
        .collect();
    assert_eq!(
        left_out,
        [
            "rootfalse",
            "absenttrue",
            "project/cachefalse",
            "project/../outsidefalse",
            "tmp/cachefalse"
        ]
    );
    assert_eq!(
        plan.unprotected,
        [case.path("project/absent"), case.path("project/cache")]
    );
    let wrapped = plan.wrap(&Mechanism::Landlock, &["x".into()], &["y".into()]);
    let shown: Vec<String> = wrapped
        .iter()
        .map(|word| {
            word.to_string_lossy()
                .replace(&*base.to_string_lossy(), "BASE/")
        })
        .collect();
    assert_eq!(
        shown.join(" "),
        "x --rw BASE/home --rw BASE/project --rw BASE/tmp -- y"
    );
}

#[test]
fn policies_that_cannot_be() {
    let case = Case::new("none", false);
    let policy = |project: &str, tmp: &str| WritePolicy {
        project: project.into(),
        mounted_at: None,
        lent: Vec::new(),
        writable: vec!["relative".into(), "/proc/sys".into()],
        read_only: Vec::new(),
        tmp: tmp.into(),
        tmp_seen_at: None,
        private: Vec::new(),
        layered: Vec::new(),
        in_sight: Vec::new(),
        hidden: Vec::new(),
        replaced: Vec::new(),
        shared_memory: None,
        network: runner_sandbox::NetworkAccess::Open,
    };
    let refusal = policy("/", "/").plan().unwrap_err();
    assert_eq!(
        refusal.message,
        "the project is `/`: everything would be writable"
    );
    let gone = case.path("gone");
    let refusal = policy(&gone.to_string_lossy(), "/").plan().unwrap_err();
    assert!(
        refusal.message.starts_with("cannot contain anything in `"),
        "{refusal}"
    );
    let plan = policy(&case.path("project").to_string_lossy(), "/")
        .plan()
        .unwrap();
    let reasons: Vec<&str> = plan
        .left_out
        .iter()
        .map(|left| left.reason.as_str())
        .collect();
    assert_eq!(
        reasons,
        [
            "it is not an absolute path",
            "the child has a /proc of its own",
            "it is `/`: everything would be writable",
        ]
    );
    assert!(plan.left_out.iter().all(|left| !left.absent));
}
