//! Files inside the project that are not for the child, and the holes in what is closed.

use std::fs;

use crate::{Case, with};

const OWNED: &[&str] = &[
    ".runner/GOAL.md",
    ".runner/.gitignore",
    ".runner/state/config.toml",
    ".runner/state/schema.json",
    ".runner/state/run_state.json",
];

/// A project as the runner has it: `.runner` is closed but for `state` and `nodes`, of which `state`
/// has closed files; the logs are closed but for the folder of this iteration's report.
fn project(mut case: Case) -> Case {
    for name in OWNED {
        case.write(&format!("project/{name}"), "owned");
    }
    case.write("project/.runner/state/tree.json", "tree");
    case.write("project/.runner/nodes/a/context.md", "note");
    case.write("project/.runner/iterations/r/1/meta.json", "log");
    case.write("project/src/deep/protected", "owned");
    fs::create_dir_all(case.path("project/.runner/iterations/r/2/out")).unwrap();
    case.give_away();
    for name in [
        ".runner/state",
        ".runner/nodes",
        ".runner/iterations/r/2/out",
    ] {
        case.option("--rw", &case.path("project").join(name));
    }
    for name in OWNED
        .iter()
        .skip(2)
        .chain(&[".runner", "src/deep/protected"])
    {
        case.option("--ro", &case.path("project").join(name));
    }
    case
}

#[test]
fn bubblewrap_protects_owned_files() {
    with("bubblewrap", |case| {
        let case = project(case);
        for attempt in [
            "echo x > FILE",
            "echo x >> FILE",
            "rm -f FILE",
            "mv FILE aside",
            "touch mine && mv -f mine FILE",
            "cp -f /dev/null FILE",
            "truncate -s 0 FILE",
            "chmod 777 FILE",
            "ln FILE hard && echo x > hard",
            "ln -s $PWD/FILE soft && echo x > soft",
            "mkdir -p sub && echo x > sub/../FILE",
            "sed -i s/owned/x/ FILE",
            "unshare -Urm sh -c 'umount FILE && echo x > FILE'",
            "unshare -Urm sh -c 'mkdir -p view && mount --bind . view && echo x > view/FILE'",
            "unshare -Urm sh -c 'mkdir -p view && mount --rbind . view && echo x > view/FILE'",
            "unshare -Urm sh -c 'mount -o remount,rw,bind FILE && echo x > FILE'",
        ] {
            for name in OWNED.iter().chain(&["src/deep/protected"]) {
                let attempt = attempt.replace("FILE", name);
                let ran = case.sh(&attempt);
                assert_ne!(ran.code, Some(0), "{case}: {attempt}: {ran:?}");
                assert_eq!(case.read(&format!("project/{name}")), "owned", "{attempt}");
                let _ = fs::remove_file(case.path("project/soft"));
            }
        }
    });
}

/// A folder that holds an owned file must stay where it is, or another could take its place.
#[test]
fn bubblewrap_keeps_folders_of_owned_files_in_place() {
    with("bubblewrap", |case| {
        let case = project(case);
        for attempt in [
            "mv .runner aside",
            "mv .runner/state .runner/aside",
            "mv .runner/state aside",
            "rm -rf .runner/state",
            "mv src aside",
            "mv src/deep src/aside",
            "mv ../project ../aside",
        ] {
            let ran = case.sh(attempt);
            assert_ne!(ran.code, Some(0), "{case}: {attempt}: {ran:?}");
        }
        for name in OWNED.iter().chain(&["src/deep/protected"]) {
            assert_eq!(case.read(&format!("project/{name}")), "owned");
        }
    });
}

/// The way to protect a file that does not exist: close its folder and open what is in it.
#[test]
fn bubblewrap_lets_nothing_new_into_a_closed_folder() {
    with("bubblewrap", |case| {
        let case = project(case);
        for name in [
            ".runner/INSTRUCTIONS.md",
            ".runner/.gitattributes",
            ".runner/iterations/r/1/new",
            ".runner/iterations/r/2/output.json",
            ".runner/iterations/r/3/out/output.json",
            ".runner/fleet",
        ] {
            let ran = case.sh(&format!("mkdir -p $(dirname {name}); echo x > {name}"));
            assert_ne!(ran.code, Some(0), "{case}: {name}: {ran:?}");
            assert!(!case.path("project").join(name).exists(), "{name}");
        }
        assert_eq!(case.read("project/.runner/iterations/r/1/meta.json"), "log");
    });
}

#[test]
fn what_an_agent_needs_is_open() {
    crate::each(|case| {
        let case = project(case);
        for script in [
            "echo new > .runner/state/tree.json",
            // As most programs save: a file beside it, renamed over it.
            "echo tree > .runner/state/.tmp && mv .runner/state/.tmp .runner/state/tree.json",
            "echo a >> .runner/state/assumptions.md",
            "mkdir -p .runner/nodes/b/artifacts && echo a > .runner/nodes/b/artifacts/x",
            "echo '{}' > .runner/iterations/r/2/out/output.json",
            "cd .runner/iterations/r/2/out && echo '{}' > t && mv t output.json",
            "cat .runner/state/config.toml .runner/GOAL.md .runner/iterations/r/1/meta.json",
            "echo x > src/deep/new && mkdir src/deeper && mv src/deep/new src/deep/newer",
        ] {
            case.works(script);
        }
        assert_eq!(
            case.read("project/.runner/iterations/r/2/out/output.json"),
            "{}\n"
        );
        assert_eq!(case.read("project/.runner/state/tree.json"), "tree\n");
    });
}

/// The reason why a look at them afterwards remains the real guarantee.
#[test]
fn landlock_cannot_subtract() {
    with("landlock", |case| {
        let case = project(case);
        case.works("echo x > .runner/state/config.toml");
    });
}
