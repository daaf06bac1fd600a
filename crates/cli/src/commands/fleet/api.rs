//! The API of a fleet, as long as the fleet is up.

use std::ffi::OsStr;
use std::fs::File;
use std::io::IsTerminal as _;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::FileTypeExt as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;

use runner::{Error, ErrorCode, Result};
use runner_fleet::backlog::project::ProjectBacklog;
use runner_fleet::host::HostProfile;
use runner_fleet::rules::host::HostSnapshot;
use runner_ledger::Ledger;
use runner_server::fleet::{
    FleetFacts, FleetOptions, FleetState, PreflightFacts, TOKEN_FILE, fleet_token, serve_fleet,
};
use runner_server::{BoundSocket, ListenAddress, ServeError};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::context::{CommandContext, LedgerContext};
use super::token::{self, ApiAddress};
use crate::out::OutputGate;

/// How the names of sockets begin.
const SOCKET: &str = "api-";

/// An API that is served.
pub(super) struct FleetApi {
    pub(super) url: String,
    pub(super) token_file: PathBuf,
    /// A link for a browser, which works once.
    link: String,
    /// Whether a token was removed that sessions could read.
    had_old: bool,
    address: ApiAddress,
    keys: PathBuf,
    end: oneshot::Sender<()>,
    served: JoinHandle<std::result::Result<(), ServeError>>,
}

struct Fed {
    backlog: ProjectBacklog,
    host: HostProfile,
}

impl FleetFacts for Fed {
    fn outside(&self) -> Pin<Box<dyn Future<Output = PreflightFacts> + Send + '_>> {
        Box::pin(async {
            // What cannot be read is told as a source that failed, by the ledger's own calls.
            let seen = self.backlog.look().await.unwrap_or_default();
            PreflightFacts {
                requirement: if seen.planned {
                    String::new()
                } else {
                    seen.requirement
                },
                issue_backlog: seen.new_issues,
                open_pull_requests: seen.open_pull_requests,
                failed_sources: seen.failures,
                ..PreflightFacts::default()
            }
        })
    }

    fn host(&self) -> Option<HostSnapshot> {
        self.host.snapshot()
    }
}

impl FleetApi {
    /// Serves in the runtime that this is called in.
    pub(super) fn start(
        context: &CommandContext,
        ledger: &Ledger,
        roles: &LedgerContext,
    ) -> Result<FleetApi> {
        let listening = runner_server::bind(ListenAddress {
            ip: context.bind,
            port: context.settings().port,
        })
        .map_err(in_words)?;
        let had_old = token::remove_old(&context.root);
        let token = fleet_token(&context.keys)?;
        let instance = runner_server::random_token()?;
        let socket = format!("{SOCKET}{}", &instance[..8]);
        remove_dead_sockets(&context.keys);
        let local = BoundSocket::bind(&context.keys, &socket).map_err(in_words)?;
        let address = ApiAddress {
            url: format!("http://{}", listening.address()),
            address: listening.address(),
            socket,
            instance,
        };
        address.tell(&context.keys)?;
        let link = token::link_to(&address, &token)?;
        let state = FleetState::new(
            ledger.clone(),
            Arc::new(Fed {
                backlog: roles.backlog.clone(),
                host: roles.host.clone(),
            }),
            FleetOptions {
                token,
                instance: address.instance.clone(),
                open_reads: runner::fleet_repo::children_are_apart(&context.config),
                beyond_loopback: !context.bind.is_loopback(),
                version: env!("CARGO_PKG_VERSION").to_owned(),
                config: context.settings().clone(),
            },
        );
        let (end, ended) = oneshot::channel();
        let ended = async move {
            // Who is to say stop may be gone without a word.
            let _: std::result::Result<(), _> = ended.await;
        };
        Ok(FleetApi {
            url: address.url.clone(),
            token_file: context.keys.join(TOKEN_FILE),
            keys: context.keys.clone(),
            link,
            had_old,
            address,
            end,
            served: tokio::spawn(serve_fleet(listening, local, state, ended)),
        })
    }

    /// Says where it is and what opens it.
    pub(super) fn say(&self, out: &mut OutputGate) {
        out.say(&format!(
            "API: {} (`runner fleet token` prints the token)",
            self.url
        ));
        if self.had_old {
            out.warning(
                "the token of the API is a new one: the old one lay in the project, where sessions could read it",
            );
        }
        // Into no file that somebody else might read.
        if std::io::stderr().is_terminal() {
            out.say(&format!("in a browser, once: {}", self.link));
        }
    }

    /// Stops serving.
    pub(super) async fn end(self) {
        self.address.take_back(&self.keys);
        let _ = self.end.send(());
        let _ = self.served.await;
    }
}

/// Removes sockets that nobody serves any more.
fn remove_dead_sockets(keys: &Path) {
    let entries = std::fs::read_dir(keys).into_iter().flatten().flatten();
    for entry in entries {
        let is_socket = entry.file_type().is_ok_and(|kind| kind.is_socket());
        if is_socket && connect(keys, &entry.file_name()).is_err() {
            let _ = std::fs::remove_file(entry.path());
        }
    }
}

/// Connects to a socket in a folder, however long the folder's path is.
pub(super) fn connect(folder: &Path, name: &OsStr) -> std::io::Result<UnixStream> {
    let opened = File::open(folder)?;
    let near = Path::new("/proc/self/fd").join(opened.as_raw_fd().to_string());
    UnixStream::connect(near.join(name))
}

fn in_words(error: ServeError) -> Error {
    let words = error.to_string();
    match error {
        ServeError::InUse(_) => {
            Error::new(ErrorCode::Io, words).hint("`--port 0` takes a free one for the API")
        }
        ServeError::Bind(..) => Error::new(ErrorCode::Io, words)
            .hint("--bind takes an address of this machine, such as 127.0.0.1 or 0.0.0.0"),
        ServeError::Io(error) => error.into(),
    }
}
