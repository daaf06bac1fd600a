//! Tells the binary which commit it was built from.

use std::process::Command;

#[allow(clippy::disallowed_methods)] // A build script has no runner to end with.
fn git(args: &[&str]) -> Option<String> {
    let output = Command::new("git").args(args).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    (output.status.success() && !text.trim().is_empty()).then(|| text.trim().to_owned())
}

#[allow(clippy::print_stdout)] // This is how a build script speaks to cargo.
fn main() {
    let commit = git(&["rev-parse", "--short=12", "HEAD"]).unwrap_or_else(|| "unknown".to_owned());
    println!("cargo:rustc-env=RUNNER_COMMIT={commit}");
    println!("cargo:rerun-if-changed=build.rs");
    if let Some(log) = git(&["rev-parse", "--git-path", "logs/HEAD"]) {
        println!("cargo:rerun-if-changed={log}");
    }
}
