//! The person's own editor, in the foreground of the terminal.

use std::io::IsTerminal as _;
use std::os::fd::AsFd as _;
use std::path::Path;
use std::process::{Command, Stdio};

use runner::{Error, ErrorCode, Result};

/// What `VISUAL` or `EDITOR` says; `None` where neither says anything.
pub(crate) fn named() -> Option<String> {
    ["VISUAL", "EDITOR"]
        .iter()
        .filter_map(|name| std::env::var(name).ok())
        .find(|value| !value.trim().is_empty())
}

/// Opens a file and waits until the person is done.
pub(crate) fn open(editor: &str, path: &Path) -> Result<()> {
    let failed = |what: String| {
        Error::new(ErrorCode::Io, format!("the editor `{editor}` {what}"))
            .hint("set VISUAL or EDITOR to one that waits until you are done, such as `nano` or `code --wait`, or use --file")
    };
    // The variable may hold options too: the shell takes it apart, as git does it.
    // A Ctrl-C is for the editor alone: neither the shell nor the runner ends by it.
    let mut command = shell();
    command
        .arg("-c")
        .arg(format!("trap : INT QUIT; {editor} \"$@\""))
        .arg(editor)
        .arg(path);
    if !std::io::stdout().is_terminal() {
        // stdout is data, and none of the editor's.
        let stderr = std::io::stderr().as_fd().try_clone_to_owned()?;
        command.stdout(Stdio::from(stderr));
    }
    let status = command
        .status()
        .map_err(|error| failed(format!("could not be started: {error}")))?;
    match status.code() {
        Some(0) => Ok(()),
        Some(127) => Err(failed("was not found".to_owned())),
        Some(code) => Err(failed(format!("ended with exit code {code}"))),
        None => Err(failed("was ended by a signal".to_owned())),
    }
}

#[allow(clippy::disallowed_methods)] // It belongs to the person and the terminal, not to a session.
fn shell() -> Command {
    Command::new("sh")
}
