//! A PostgreSQL server of a test's own.
//!
//! It lives in a temporary folder and ends with the process that started it, however
//! that ends: a shell waits for the end of a pipe and then cleans up.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

use crate::run::command;

/// A running server.
pub struct TestPostgres {
    bin: PathBuf,
    folder: PathBuf,
    port: u16,
    settings: String,
    /// Holds the pipe whose end ends the server.
    _watcher: Child,
}

impl TestPostgres {
    /// Starts a server. With `durable` it syncs as a real one does; without it is
    /// faster.
    pub fn start(durable: bool) -> TestPostgres {
        let bin = programs();
        let folder = tempfile::Builder::new()
            .prefix("runner-pg-")
            .tempdir()
            .expect("a temporary folder")
            .keep();
        if as_postgres() {
            run(command("chown").arg("postgres:").arg(&folder));
        }
        let watcher = watch(&bin, &folder);
        let data = folder.join("data");
        run(admin(&bin, "initdb")
            .args(["-A", "trust", "--no-sync", "-U", "postgres"])
            .args(["-E", "UTF8", "--locale=C", "-D"])
            .arg(&data));
        let sync = if durable { "on" } else { "off" };
        let port = free_port();
        let settings = format!(
            "-c listen_addresses=127.0.0.1 -c port={port} -c max_connections=400 \
             -c shared_buffers=64MB -c fsync={sync} -c full_page_writes={sync} \
             -c synchronous_commit={sync} -k {}",
            folder.display()
        );
        let server = TestPostgres {
            bin,
            folder,
            port,
            settings,
            _watcher: watcher,
        };
        server.start_again();
        server
    }

    /// Starts the server after [`TestPostgres::stop_immediately`].
    pub fn start_again(&self) {
        run(admin(&self.bin, "pg_ctl")
            .args(["-w", "-t", "60", "-s", "-D"])
            .arg(self.folder.join("data"))
            .arg("-l")
            .arg(self.folder.join("log"))
            .args(["-o", &self.settings, "start"]));
    }

    /// Stops the server as a power cut does: nothing is finished or written first.
    pub fn stop_immediately(&self) {
        run(admin(&self.bin, "pg_ctl")
            .args(["-w", "-s", "-m", "immediate", "-D"])
            .arg(self.folder.join("data"))
            .arg("stop"));
    }

    /// Makes a database, as a copy of another one if one is named.
    pub fn create_database(&self, name: &str, template: Option<&str>) {
        let mut create = command(self.bin.join("createdb"));
        create.args([
            "-h",
            "127.0.0.1",
            "-U",
            "postgres",
            "-p",
            &self.port.to_string(),
        ]);
        if let Some(template) = template {
            create.args(["-T", template, "--strategy=file_copy"]);
        }
        run(create.arg(name));
    }

    /// From now on nobody is let in without this password.
    pub fn ask_for_password(&self, password: &str) {
        let port = self.port.to_string();
        let sql = format!("ALTER USER postgres PASSWORD '{password}'");
        run(command(self.bin.join("psql"))
            .args(["-h", "127.0.0.1", "-U", "postgres", "-p", &port])
            .args(["-q", "-c", &sql, "postgres"]));
        let rules = "local all all scram-sha-256\nhost all all 127.0.0.1/32 scram-sha-256\n";
        fs::write(self.folder.join("data/pg_hba.conf"), rules).expect("the server's rules");
        run(admin(&self.bin, "pg_ctl")
            .args(["-s", "-D"])
            .arg(self.folder.join("data"))
            .arg("reload"));
    }

    /// The port of loopback that it listens on.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The address of a database.
    pub fn url(&self, database: &str) -> String {
        format!("postgres://postgres@127.0.0.1:{}/{database}", self.port)
    }
}

/// The newest version that is installed.
fn programs() -> PathBuf {
    let versions = fs::read_dir("/usr/lib/postgresql");
    let mut folders: Vec<(u32, PathBuf)> = versions
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| {
            let version = entry.file_name().to_str()?.parse().ok()?;
            Some((version, entry.path().join("bin")))
        })
        .filter(|(_, bin)| bin.join("initdb").is_file())
        .collect();
    folders.sort();
    let found = folders.pop().map(|(_, bin)| bin);
    found.expect("PostgreSQL is not installed: run `cargo xtask setup`")
}

/// The server refuses to run as root; its package makes a user for it.
fn as_postgres() -> bool {
    fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0)
}

/// A program that works on the files of the server.
fn admin(bin: &Path, program: &str) -> std::process::Command {
    let program = bin.join(program);
    let mut call = if as_postgres() {
        let mut call = command("runuser");
        call.args(["-u", "postgres", "--"]).arg(program);
        call
    } else {
        command(program)
    };
    // The folder of the test may not be readable for that user.
    call.current_dir("/").stdin(Stdio::null());
    call
}

fn watch(bin: &Path, folder: &Path) -> Child {
    let as_user = if as_postgres() {
        "runuser -u postgres --"
    } else {
        ""
    };
    let script = "cat >/dev/null; cd /; \
         $1 \"$2/pg_ctl\" -s -m immediate -D \"$3/data\" stop >/dev/null 2>&1; rm -rf \"$3\"";
    command("setsid")
        .args(["sh", "-c", script, "sh", as_user])
        .arg(bin)
        .arg(folder)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("sh starts")
}

fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port of loopback");
    listener.local_addr().expect("its address").port()
}

#[track_caller]
fn run(call: &mut std::process::Command) {
    // To files and not to pipes: the server keeps what it inherits.
    let log = tempfile::NamedTempFile::new().expect("a temporary file");
    let to = || Stdio::from(log.reopen().expect("the temporary file"));
    let status = call.stdout(to()).stderr(to()).status();
    let status = status.unwrap_or_else(|error| panic!("{call:?}: {error}"));
    let said = fs::read_to_string(log.path()).unwrap_or_default();
    assert!(status.success(), "{call:?}: {status}\n{said}");
}
