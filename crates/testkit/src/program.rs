//! Programs that tests write and run.

use std::io::Write as _;
use std::path::Path;
use std::process::Stdio;

/// Writes a program that can be run at once.
///
/// Another process writes it: while this one holds a file open for writing, a
/// fork in another thread would inherit that, and nobody could run the file
/// until it has become another program ("text file busy").
pub fn write_program(path: &Path, text: &str) {
    let mut writer = crate::run::command("sh")
        .args(["-c", r#"cat >"$1" && chmod 755 "$1""#, "sh"])
        .arg(path)
        .stdin(Stdio::piped())
        .spawn()
        .expect("sh starts");
    let mut stdin = writer.stdin.take().expect("a pipe");
    stdin.write_all(text.as_bytes()).expect("sh reads");
    drop(stdin);
    let status = writer.wait().expect("sh ends");
    assert!(status.success(), "cannot write {}", path.display());
}
