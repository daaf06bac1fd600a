//! The API of a fleet, as long as the fleet is up.

use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;

use runner::{Error, ErrorCode, Result};
use runner_core::paths;
use runner_fleet::backlog::project::ProjectBacklog;
use runner_fleet::host::HostProfile;
use runner_fleet::rules::host::HostSnapshot;
use runner_ledger::Ledger;
use runner_server::fleet::{
    FleetFacts, FleetOptions, FleetState, PreflightFacts, TOKEN_FILE, fleet_token, serve_fleet,
};
use runner_server::{ListenAddress, ServeError};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::context::{CommandContext, LedgerContext};

/// Where the token is, for people.
pub(super) const TOKEN_SHOWN: &str = ".runner/fleet/api-token";

/// An API that is served.
pub(super) struct FleetApi {
    pub(super) url: String,
    pub(super) token_file: PathBuf,
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
        let token = fleet_token(&context.root.join(paths::FLEET_DIR))?;
        let url = format!("http://{}", listening.address());
        let state = FleetState::new(
            ledger.clone(),
            Arc::new(Fed {
                backlog: roles.backlog.clone(),
                host: roles.host.clone(),
            }),
            FleetOptions {
                token,
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
            url,
            token_file: context.fleet_dir.join(TOKEN_FILE),
            end,
            served: tokio::spawn(serve_fleet(listening, state, ended)),
        })
    }

    /// Stops serving.
    pub(super) async fn end(self) {
        let _ = self.end.send(());
        let _ = self.served.await;
    }
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
