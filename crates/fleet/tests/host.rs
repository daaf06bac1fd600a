//! The look at the machine with a real neofetch, which is a script here: one that answers,
//! one that fails, and none.

#![allow(clippy::unwrap_used)] // A test that cannot go on has failed.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use runner_exec::Supervisor;
use runner_fleet::host::system_look;
use runner_fleet::rules::host::SnapshotSource;

fn look(folder: &Path) -> (SnapshotSource, String) {
    let supervisor = Supervisor {
        argv: vec![
            env!("CARGO_BIN_EXE_fleet-test-workspaces").into(),
            "__supervise".into(),
        ],
    };
    system_look(supervisor, Some(folder.into()))().unwrap()
}

fn neofetch(folder: &Path, script: &str) {
    let path = folder.join("neofetch");
    fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn neofetch_if_it_is_there_else_uname() {
    let folder = tempfile::tempdir().unwrap();
    let (source, text) = look(folder.path());
    assert_eq!(source, SnapshotSource::Uname);
    assert!(
        text.starts_with("Linux ") && text.ends_with(" GNU/Linux"),
        "{text}"
    );

    neofetch(
        folder.path(),
        "echo noise >&2; echo \"OS: Test $1\"; echo \"Shell: $LC_ALL\"",
    );
    let (source, text) = look(folder.path());
    assert_eq!(source, SnapshotSource::Neofetch);
    assert_eq!(text, "OS: Test --stdout\nShell: C\n");

    for broken in ["echo OS: half; exit 3", "while :; do echo endless; done"] {
        neofetch(folder.path(), broken);
        assert_eq!(look(folder.path()).0, SnapshotSource::Uname, "{broken}");
    }
}
