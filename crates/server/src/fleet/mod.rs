//! The HTTP API of a fleet: tasks, runs, agents, judgements and locks of one ledger, what
//! the fleet stands on, metrics, and every change as it happens.
//!
//! [`router`] is the whole API without a socket; [`serve_fleet`] puts it on one, in the
//! runtime of the caller. What only a running fleet knows is handed in as [`FleetFacts`].

mod changes;
mod cookie;
mod events;
mod gate;
mod input;
mod lists;
mod metrics;
mod new_task;
mod openapi;
mod refusal;
mod retry;
mod system;
mod tasks;
mod token;
mod wire;
mod words;

use std::pin::Pin;
use std::sync::Arc;

use axum::Router;
use runner_core::config::FleetConfig;
use runner_fleet::rules::host::HostSnapshot;
use runner_fleet::rules::preflight::FailedSource;
use runner_ledger::{Ledger, StoreError};
use tokio::sync::Mutex;

pub use cookie::login_word;
pub use token::{TOKEN_FILE, fleet_token};

use crate::gate::ApiToken;
use crate::{BoundListener, BoundSocket, ServeError};

/// What preflight needs besides the ledger.
#[derive(Clone, Debug, Default)]
pub struct PreflightFacts {
    /// The requirement text of the project; blank: none.
    pub requirement: String,
    /// Open issues that are no tasks yet.
    pub issue_backlog: u64,
    /// Open pull requests without a task.
    pub open_pull_requests: u64,
    /// Whether the guard fails on the base alone.
    pub red_base: bool,
    /// Backlog sources that could not be read.
    pub failed_sources: Vec<FailedSource>,
}

/// What only the fleet knows.
pub trait FleetFacts: Send + Sync {
    /// What preflight needs besides the ledger.
    fn outside(&self) -> Pin<Box<dyn Future<Output = PreflightFacts> + Send + '_>>;

    /// What is known of the machine. It never waits: see
    /// [`runner_fleet::host::HostProfile::snapshot`].
    fn host(&self) -> Option<HostSnapshot>;
}

/// How the API is served.
#[derive(Clone, Debug)]
pub struct FleetOptions {
    /// The token that is asked for. See [`fleet_token`].
    pub token: String,
    /// A name of this server, another one at each start: links that work once are made for it.
    pub instance: String,
    /// Whether reads on loopback need neither token nor cookie, because no child of the runner can
    /// reach it.
    pub open_reads: bool,
    /// Whether other machines can reach it: see [`std::net::IpAddr::is_loopback`].
    pub beyond_loopback: bool,
    /// The version that `/health` tells.
    pub version: String,
    /// `[fleet]` of the config.
    pub config: FleetConfig,
}

/// What all answers share. Cheap to clone.
#[derive(Clone)]
pub struct FleetState(Arc<FleetApiContext>);

struct FleetApiContext {
    ledger: Ledger,
    known: Arc<dyn FleetFacts>,
    token: ApiToken,
    cookies: cookie::CookieBook,
    options: FleetOptions,
    follower: events::EventFollower,
    expiries: Mutex<metrics::ExpiryCounts>,
}

impl FleetState {
    /// Over that ledger.
    pub fn new(ledger: Ledger, known: Arc<dyn FleetFacts>, options: FleetOptions) -> FleetState {
        FleetState(Arc::new(FleetApiContext {
            ledger,
            known,
            token: ApiToken::new(&options.token),
            cookies: cookie::CookieBook::new(&options.token, &options.instance),
            options,
            follower: events::EventFollower::default(),
            expiries: Mutex::default(),
        }))
    }

    fn ledger(&self) -> &Ledger {
        &self.0.ledger
    }

    fn known(&self) -> &dyn FleetFacts {
        &*self.0.known
    }

    fn token(&self) -> &ApiToken {
        &self.0.token
    }

    fn cookies(&self) -> &cookie::CookieBook {
        &self.0.cookies
    }

    /// Whether anybody may read here who reaches it.
    fn has_open_reads(&self) -> bool {
        self.0.options.open_reads && !self.is_beyond_loopback()
    }

    fn config(&self) -> &FleetConfig {
        &self.0.options.config
    }

    fn version(&self) -> &str {
        &self.0.options.version
    }

    fn is_beyond_loopback(&self) -> bool {
        self.0.options.beyond_loopback
    }

    fn review_off(&self) -> bool {
        !self.0.options.config.review
    }

    fn follower(&self) -> &events::EventFollower {
        &self.0.follower
    }

    fn expiries(&self) -> &Mutex<metrics::ExpiryCounts> {
        &self.0.expiries
    }

    /// How many planners are at work: their role lease is held.
    async fn planners(&self) -> Result<u32, StoreError> {
        let now = self.ledger().now().await?;
        let role_leases = self.ledger().role_leases().await?;
        let held = role_leases
            .iter()
            .any(|lease| lease.name == "planner" && lease.expires_at > now);
        Ok(u32::from(held))
    }
}

/// The whole API, to be put on a socket, mounted or asked directly.
pub fn router(state: FleetState) -> Router {
    openapi::router(&state)
        .layer(axum::middleware::from_fn_with_state(
            state.clone(),
            gate::pass,
        ))
        .with_state(state)
}

/// Serves the API in the runtime of the caller, on a port and on a socket, until `ended` is there. Streams that are
/// open are cut: whoever listens comes back.
pub async fn serve_fleet(
    listening: BoundListener,
    socket: BoundSocket,
    state: FleetState,
    ended: impl Future<Output = ()>,
) -> Result<(), ServeError> {
    let app = router(state);
    tokio::select! {
        result = socket.serve_router(app.clone()) => result,
        result = listening.serve_router(app, ended) => result,
    }
}
