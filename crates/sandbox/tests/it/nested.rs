//! Containment inside containment: ours, and that of codex.

use std::path::PathBuf;

use crate::{Case, Ran, with};

fn detected_in(case: &Case, outer: &[&str]) -> Ran {
    let binary = case.binary.to_string_lossy().into_owned();
    let mut argv = outer.to_vec();
    argv.extend([binary.as_str(), "detect"]);
    Ran::of(&case.plain(&argv).output().unwrap())
}

/// A runner inside an agent. Root has given up what another pid namespace would take; there it is
/// Landlock's turn.
#[test]
fn inside_our_own() {
    with("bubblewrap", |case| {
        let binary = case.binary.to_string_lossy().into_owned();
        let ran = case.run(&[binary.as_str(), "detect"]);
        assert_eq!(ran.code, Some(0), "{case}: {ran:?}");
        let works = ran.stdout.starts_with("bubblewrap ");
        let is_root = rustix::process::geteuid().is_root() && !case.nobody;
        assert_eq!(works, !is_root, "{case}: {ran:?}");
        let landlock = crate::detect().landlock.is_ok();
        assert_eq!(
            ran.stdout.contains("\nlandlock "),
            landlock,
            "{case}: {ran:?}"
        );
    });
    with("landlock", |case| {
        let binary = case.binary.to_string_lossy().into_owned();
        let ran = case.run(&[binary.as_str(), "detect"]);
        assert!(ran.stdout.starts_with("no bubblewrap: "), "{case}: {ran:?}");
        assert!(ran.stdout.contains("\nlandlock "), "{case}: {ran:?}");
    });
}

/// As in a container that hands out no user namespaces.
#[test]
fn where_user_namespaces_are_off() {
    with("bubblewrap", |case| {
        if !case.nobody && rustix::process::geteuid().is_root() {
            return;
        }
        let outer = [
            "bwrap",
            "--unshare-user",
            "--disable-userns",
            "--dev-bind",
            "/",
            "/",
            "--",
        ];
        let ran = detected_in(&case, &outer);
        assert!(ran.stdout.starts_with("no bubblewrap: "), "{case}: {ran:?}");
        let landlock = crate::detect().landlock.is_ok();
        assert_eq!(
            ran.stdout.contains("\nlandlock "),
            landlock,
            "{case}: {ran:?}"
        );
    });
}

/// codex's own sandbox inside ours, with the real binary that `RUNNER_TEST_CODEX` names.
///
/// It works for an ordinary user and not for root. The runner switches it off on purpose: it makes
/// `.git` read-only and takes the network away, and one containment is enough.
#[test]
#[ignore = "needs the codex binary in RUNNER_TEST_CODEX, readable by all"]
fn codex_own_sandbox() {
    let codex = PathBuf::from(std::env::var_os("RUNNER_TEST_CODEX").expect("RUNNER_TEST_CODEX"));
    let codex = codex.to_string_lossy().into_owned();
    let argv = [
        codex.as_str(),
        "sandbox",
        "-c",
        "sandbox_mode=\"workspace-write\"",
        "--",
        "sh",
        "-c",
        "echo x > made && ! echo x > /etc/runner-sandbox-test",
    ];
    crate::each(|mut case| {
        // It refuses a home in the temp folder, which is where all of this happens.
        let home = tempfile::Builder::new()
            .prefix(".runner-sandbox-test")
            .tempdir_in("/var/lib")
            .expect("a folder outside the temp folder");
        if case.nobody {
            std::os::unix::fs::chown(home.path(), Some(crate::NOBODY), None).unwrap();
        }
        case.option("--rw", home.path());
        // It also insists on putting something into /tmp.
        case.option("--rw", std::path::Path::new("/tmp"));
        case.set("HOME", home.path());
        let ran = case.run(&argv);
        let works = case.is_bubblewrap() && (case.nobody || !rustix::process::geteuid().is_root());
        assert_eq!(ran.code == Some(0), works, "{case}: {ran:?}");
    });
}
