//! The fleet's API against its own OpenAPI: schemathesis asks a running server everything
//! that the document allows, and much that it does not.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Child, Stdio};

use crate::cmd::{Cmd, target_dir};
use crate::failure::{Context as _, Failure, Result};
use crate::out;

/// The one version whose checks are known.
const VERSION: &str = "4.32.5";

/// The same requests each time.
const SEED: &str = "1";
const EXAMPLES: &str = "25";

/// Whether the wanted version is there.
pub(crate) fn is_there() -> bool {
    let info = format!("schemathesis-{VERSION}.dist-info");
    folder().join(info).is_dir()
}

/// Installs it into the build's folder, where no other Python sees it.
pub(crate) fn install() -> Result<()> {
    let pip = Cmd::new("python3")
        .words("-m pip install --quiet --upgrade --target")
        .arg(folder())
        .arg(format!("schemathesis=={VERSION}"))
        .hint("it takes pip, and a connection to the Python index, once");
    out::step(&format!("pip install schemathesis {VERSION}"), || {
        pip.stdout()
    })?;
    Ok(())
}

/// Starts the example server with its seeded ledger and checks it.
pub(crate) fn check_api() -> Result<()> {
    if !is_there() {
        return Err(Failure::new("schemathesis is not there").hint("run `cargo xtask setup`"));
    }
    Cmd::cargo("build --locked --quiet --package runner-server --example fleet_api").run()?;
    let program = target_dir().join("debug/examples/fleet_api");
    let mut server = Server(
        Cmd::new(program)
            .stdin(Stdio::piped())
            .spawn(Stdio::piped())?,
    );
    let (address, token) = server.address()?;
    // It leaves caches where it runs.
    let place = target_dir().join("tools/schemathesis-work");
    fs::create_dir_all(&place).context(place.display().to_string())?;
    Cmd::new("python3")
        .clear_env()
        .env("PYTHONPATH", folder())
        .env("HOME", &place)
        .env("LC_ALL", "C.UTF-8")
        .dir(&place)
        .words("-m schemathesis.cli run --no-color --generation-database none --checks all")
        // Some rules are beyond a schema, such as that a dependency exists: refusing that
        // with 422 is right.
        .words("--exclude-checks positive_data_acceptance")
        // A stream does not end; the tests of the server listen to it.
        .words("--exclude-path /events")
        .args(["--seed", SEED, "--max-examples", EXAMPLES])
        .args(["--header", &format!("Authorization: Bearer {token}")])
        .arg(format!("http://{address}/openapi.json"))
        .hint("the report names each request; `cargo run -p runner-server --example fleet_api` starts the server")
        .run()
}

fn folder() -> PathBuf {
    target_dir().join("tools/schemathesis")
}

/// Ends when its stdin does, which is when this is dropped.
struct Server(Child);

impl Server {
    fn address(&mut self) -> Result<(String, String)> {
        let unheard = || Failure::new("the example server did not say where it is");
        let stdout = self.0.stdout.take().ok_or_else(unheard)?;
        let mut line = String::new();
        BufReader::new(stdout)
            .read_line(&mut line)
            .context("cannot read from the example server".to_owned())?;
        let (address, token) = line.trim().split_once(' ').ok_or_else(unheard)?;
        Ok((address.to_owned(), token.to_owned()))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}
