//! The live web view of a run: a read-only HTTP API over the files of a project,
//! a stream of events, and the page that shows them.
//!
//! [`app`] is the whole server without a socket, which is how it is tested;
//! [`BoundListener::serve`] puts it on one. Nothing here opens a file of the project to write.

mod agent_stream;
mod api;
mod beneath;
pub mod fleet;
mod gate;
mod head;
mod hub;
mod logs;
mod look;
mod page;
mod plan;
mod reply;
mod rows;
mod serve;
mod source;
mod sse;
mod stall;
mod trees;
mod watch;
pub mod wire;

use std::path::PathBuf;
use std::sync::Arc;

use axum::Router;
use axum::routing::get;

pub use serve::{BoundListener, BoundSocket, ListenAddress, ServeError, bind, random_token};

/// What is shown, and to whom.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    /// The project's folder, which may be a link, and need not be there yet.
    pub project_dir: PathBuf,
    /// The version that `/api/server` tells.
    pub version: String,
    /// The token that is asked for, also to read. Without one, only requests to a
    /// name of this machine are answered.
    pub token: Option<String>,
}

/// What all answers share.
pub(crate) struct ServerContext {
    source: Arc<source::RunSource>,
    hub: Arc<hub::Hub>,
    version: String,
}

/// The whole server, to be put on a socket or asked directly. From now on it
/// follows the project, until it is dropped.
pub fn app(config: &ServerConfig) -> std::io::Result<Router> {
    let source = Arc::new(source::RunSource::new(config.project_dir.clone()));
    let hub = Arc::new(hub::Hub::new(serve::random_hex(4)?));
    watch::spawn(source.clone(), &hub)?;
    let gate = match &config.token {
        Some(word) => gate::ApiGate::Token(gate::ApiToken::new(word)),
        None => gate::ApiGate::Loopback,
    };
    let shared = Arc::new(ServerContext {
        source,
        hub,
        version: config.version.clone(),
    });
    Ok(Router::new()
        .route("/api/run", get(api::run))
        .route("/api/tree", get(api::tree))
        .route("/api/run-state", get(api::run_state))
        .route("/api/iterations", get(api::iterations))
        .route("/api/iterations/{run}/{iter}", get(api::iteration))
        .route("/api/iterations/{run}/{iter}/{file}", get(api::part))
        .route("/api/server", get(api::server))
        .route("/events", get(api::events))
        .fallback(api::rest)
        .with_state(shared)
        .layer(axum::middleware::from_fn_with_state(gate, gate::pass)))
}
