//! `runner ui`: the project in the browser, until somebody ends it.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use runner::{Error, ErrorCode, Project, Result};
use runner_exec::{Cancel, HangUp};
use runner_server::{ListenAddress, ServeError, ServerConfig};
use serde_json::json;

use super::Exit;
use crate::args::UiArgs;
use crate::out::OutputGate;

/// Serves; the address is the first line on stdout.
pub(crate) fn run(dir: &Path, options: &UiArgs, out: &mut OutputGate) -> Result<Exit> {
    let address = ListenAddress {
        ip: options.bind,
        port: options.port,
    };
    let listening = runner_server::bind(address).map_err(in_words)?;
    let token = if options.bind.is_loopback() {
        None
    } else {
        Some(runner_server::random_token()?)
    };
    let url = url(listening.address(), token.as_deref());
    // Before anything is told: who reads the address may send a signal at once.
    let cancel = Cancel::on_signals(HangUp::Ends)?;
    if out.json {
        out.object(json!({
            "url": url,
            "port": listening.address().port(),
            "project_dir": dir,
            "token": token,
        }));
    } else {
        out.data(&url);
    }
    say_what_is_shown(dir, token.is_some(), out);
    if options.open {
        open_browser(&url, out);
    }
    let config = ServerConfig {
        project_dir: dir.to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        token,
    };
    let wait = move || {
        while !cancel.is_cancelled() {
            cancel.wait(Duration::from_secs(3600));
        }
    };
    listening.serve(&config, wait).map_err(in_words)?;
    Ok(Exit::Success)
}

fn say_what_is_shown(dir: &Path, has_token: bool, out: &mut OutputGate) {
    match Project::find(dir) {
        Ok(project) => out.say(&format!("shows {}", project.root().display())),
        Err(_) => out.say(&format!(
            "there is no project in {} yet: it is shown as soon as there is one",
            dir.display()
        )),
    }
    if has_token {
        out.say(
            "other machines can reach this; whoever has the address above can read the project",
        );
    }
    out.say("Ctrl-C ends it; the run goes on");
}

/// The address as a person opens it.
fn url(address: SocketAddr, token: Option<&str>) -> String {
    let host = if address.ip().is_unspecified() {
        // Not an address that can be opened; the machine's name can, from elsewhere too.
        let name = rustix::system::uname()
            .nodename()
            .to_string_lossy()
            .into_owned();
        format!("{name}:{}", address.port())
    } else {
        address.to_string()
    };
    match token {
        Some(token) => format!("http://{host}/?token={token}"),
        None => format!("http://{host}/"),
    }
}

#[allow(clippy::disallowed_methods)] // A browser shall outlive this command.
fn open_browser(url: &str, out: &mut OutputGate) {
    use std::process::{Command, Stdio};
    let started = Command::new("xdg-open")
        .arg(url)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    match started {
        Ok(mut child) => {
            std::thread::spawn(move || child.wait());
        }
        Err(error) => out.say(&format!(
            "xdg-open cannot be started ({error}): open the address above yourself"
        )),
    }
}

fn in_words(error: ServeError) -> Error {
    let words = error.to_string();
    match error {
        ServeError::InUse(port) => Error::new(ErrorCode::Io, words).hint(format!(
            "`runner ui --port 0` takes a free one; perhaps another `runner ui` has port {port}"
        )),
        ServeError::Bind(..) => Error::new(ErrorCode::Io, words)
            .hint("--bind takes an address of this machine, such as 127.0.0.1 or 0.0.0.0"),
        ServeError::Io(error) => error.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_can_be_opened() {
        let at = |address: &str, token| url(address.parse().unwrap(), token);
        assert_eq!(at("127.0.0.1:7878", None), "http://127.0.0.1:7878/");
        assert_eq!(at("[::1]:80", None), "http://[::1]:80/");
        let open = at("0.0.0.0:80", Some("t"));
        assert!(
            open.ends_with(":80/?token=t") && !open.contains("0.0.0.0"),
            "{open}"
        );
    }
}
