//! The process of a proxy: `runner __proxy`.

use std::ffi::OsString;
use std::fs::{File, Permissions};
use std::io::{self, Read as _, Write as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use crate::handover::{self, MAX_PLACES};
use crate::hosts::HostList;
use crate::serve::{ProxyLimits, ProxyServer};

/// Entry point of the hidden `__proxy` command: `--socket PATH [--host ENTRY]…`.
///
/// It says `ready` when it listens, then a line for each name that it refused, and ends when its
/// stdin does.
pub fn proxy_main(args: impl Iterator<Item = OsString>) -> ExitCode {
    let message = match parse(args) {
        Ok(options) => match run(&options) {
            Ok(()) => return ExitCode::SUCCESS,
            Err(error) => format!("cannot listen at {}: {error}", options.socket.display()),
        },
        Err(message) => message,
    };
    let _ = writeln!(io::stderr(), "proxy: {message}");
    ExitCode::FAILURE
}

struct ProxyOptions {
    socket: PathBuf,
    hosts: HostList,
}

fn parse(mut args: impl Iterator<Item = OsString>) -> Result<ProxyOptions, String> {
    let mut socket = None;
    let mut entries: Vec<String> = Vec::new();
    while let Some(arg) = args.next() {
        let value = args.next();
        let value = value.ok_or_else(|| format!("{} needs a value", arg.to_string_lossy()))?;
        match arg.to_str() {
            Some("--socket") => socket = Some(PathBuf::from(value)),
            Some("--host") => entries.push(value.to_string_lossy().into_owned()),
            _ => return Err(format!("unknown option {}", arg.to_string_lossy())),
        }
    }
    let hosts = HostList::parse(&entries).map_err(|(entry, why)| format!("{entry}: {why}"))?;
    Ok(ProxyOptions {
        socket: socket.ok_or("no socket given")?,
        hosts,
    })
}

fn run(options: &ProxyOptions) -> io::Result<()> {
    let listener = bind(&options.socket)?;
    let mut places = options.hosts.own_machine();
    places.truncate(MAX_PLACES);
    let out = Box::new(io::stdout());
    let proxy = ProxyServer::new(options.hosts.clone(), ProxyLimits::default(), out);
    say_ready()?;
    let ending = proxy.clone();
    std::thread::Builder::new().spawn(move || {
        let mut piece = [0; 64];
        while matches!(io::stdin().read(&mut piece), Ok(1..)) {}
        ending.finish();
        // Connections that are open end with the process.
        std::process::exit(0);
    })?;
    let (stream, _) = listener.accept()?;
    // Nobody else comes in, and nothing is left at the place.
    drop(listener);
    let _ = std::fs::remove_file(&options.socket);
    let given = handover::take(&stream, &places)?;
    for (listener, target) in given.forwards {
        let proxy = proxy.clone();
        std::thread::Builder::new().spawn(move || proxy.forward(&listener, target))?;
    }
    proxy.serve(&given.requests);
    Ok(())
}

fn say_ready() -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(b"ready\n")?;
    out.flush()
}

/// Listens at a path of any length, for its owner alone.
fn bind(path: &Path) -> io::Result<UnixListener> {
    let folder = path.parent().unwrap_or(Path::new("."));
    let name = path.file_name().unwrap_or_default();
    let folder = File::open(folder)?;
    // The kernel takes no more than a hundred bytes of a path.
    let short = PathBuf::from(format!("/proc/self/fd/{}", folder.as_raw_fd())).join(name);
    let listener = UnixListener::bind(&short)?;
    std::fs::set_permissions(path, Permissions::from_mode(0o600))?;
    Ok(listener)
}
