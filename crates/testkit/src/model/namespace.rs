//! The network namespace around a CLI under test.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;

use super::{ISOLATED_BASE_URL, ModelServer};
use crate::run::command;

/// The server's socket in its folder.
pub(super) const SOCKET: &str = "model.sock";
/// The forwarder in that folder.
const FORWARDER: &str = "forward.py";

/// Brings loopback up, starts the forwarder (which comes back when it listens) and
/// becomes the program, so that the process id stays the same.
const ENTRY: &str = r#"python=$1 folder=$2 port=$3
shift 3
PATH="$PATH:/usr/sbin:/sbin" ip link set lo up || exit 97
env -i "$python" "$folder/forward.py" "$folder/model.sock" "$port" </dev/null >/dev/null || exit 98
exec "$@"
"#;

impl ModelServer {
    /// A command that runs `program` where there is no network but loopback and, on
    /// it, this server at [`ISOLATED_BASE_URL`]. Arguments are added as to any command.
    pub fn loopback_only(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = command("unshare");
        command.args(self.words()).arg(program);
        command
    }

    /// Writes an executable script that does the same, for where the name of a
    /// program is needed: `TestRepo::new` with such a script around the runner.
    pub fn write_wrapper(&self, script: &Path, program: &Path) {
        let program = program.to_str().expect("the program's path is UTF-8");
        let mut words = self.words();
        words.push(program.to_owned());
        let quoted: Vec<String> = words.iter().map(|word| quote(word)).collect();
        let text = format!("#!/bin/sh\nexec unshare {} \"$@\"\n", quoted.join(" "));
        crate::write_program(script, &text);
    }

    /// The arguments of `unshare` up to the program.
    fn words(&self) -> Vec<String> {
        let folder = self.folder();
        let folder = folder.to_str().expect("the temporary folder is UTF-8");
        // Others may make a namespace of the network only as root of one of users.
        let own_uid = fs::metadata("/proc/self").map_or(0, |own| own.uid());
        let flags = if own_uid == 0 { "-n" } else { "-rn" };
        let words = [
            flags,
            "--",
            "sh",
            "-c",
            ENTRY,
            "sh",
            python(),
            folder,
            port(),
        ];
        words.map(str::to_owned).to_vec()
    }
}

pub(super) fn install_forwarder(folder: &Path) {
    fs::write(folder.join(FORWARDER), include_str!("forward.py"))
        .expect("the forwarder can be written");
}

fn port() -> &'static str {
    let (_, rest) = ISOLATED_BASE_URL.rsplit_once(':').unwrap_or_default();
    rest.trim_end_matches("/v1")
}

/// The interpreter itself: a version manager's wrapper may need the environment that
/// tests take away.
fn python() -> &'static str {
    static PYTHON: OnceLock<String> = OnceLock::new();
    PYTHON.get_or_init(|| {
        let found = command("python3")
            .args(["-c", "import sys; print(sys.executable)"])
            .output();
        match found {
            Ok(output) if output.status.success() => {
                String::from_utf8_lossy(&output.stdout).trim().to_owned()
            }
            _ => "python3".to_owned(),
        }
    })
}

/// A word for the shell.
fn quote(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}
