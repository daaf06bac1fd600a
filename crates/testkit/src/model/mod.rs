//! A scripted model on loopback for real agent CLIs.
//!
//! A [`ModelServer`] speaks as much of the streaming Responses, Messages and Chat
//! Completions APIs as codex, claude and opencode need, and answers each request with the
//! next [`ModelTurn`] of its script. The agent's binary is the real one; only the model
//! behind it is made up.
//!
//! A CLI under test must never reach a real host, so it runs in a network namespace
//! that has nothing but loopback. The server itself stays in the test's process,
//! where the test can look at [`ModelServer::requests`] while the CLI runs: a small
//! forwarder inside the namespace carries the connections out over a Unix socket,
//! which namespaces of the network do not separate. It ends with the server.
//!
//! ```no_run
//! use runner_testkit::model::{self, ModelServer, ModelTurn};
//!
//! let server = ModelServer::start(vec![
//!     ModelTurn::shell("echo hi > greeting"),
//!     ModelTurn::message(r#"{"status":"done","summary":"said hi"}"#).tokens(100, 40, 20),
//! ]);
//! let mut codex = server.loopback_only("codex");
//! codex.args(["exec", "--json"]);
//! codex.args(model::codex_provider_args(model::ISOLATED_BASE_URL));
//! codex.env(model::KEY_VARIABLE, "made-up");
//! ```
//!
//! Needs `unshare`, `ip` and python3, and either root or user namespaces.

mod completions;
mod http;
mod messages;
mod namespace;
mod responses;

use std::fs;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;

/// Where the model is for a client that [`ModelServer::loopback_only`] starts.
///
/// A namespace of one's own has every port free, so the address can be known before
/// the server is there: it can go into a configuration file.
pub const ISOLATED_BASE_URL: &str = "http://127.0.0.1:4141/v1";

/// The same for CLIs that add the version to the path by themselves, as claude does.
pub const ISOLATED_ROOT_URL: &str = "http://127.0.0.1:4141";

/// An address at which nothing ever listens inside such a namespace.
pub const REFUSED_BASE_URL: &str = "http://127.0.0.1:4142/v1";

/// The variable from which codex takes the key of [`codex_provider_args`]; any
/// value will do.
pub const KEY_VARIABLE: &str = "RUNNER_TEST_MODEL_KEY";

/// How often a waiting connection looks whether the server is to end.
const POLL: Duration = Duration::from_millis(50);

/// What the model does with one request.
#[derive(Clone, Debug)]
pub enum ModelTurn {
    /// It calls the CLI's shell tool, whichever of them the request offers.
    Shell {
        /// The command line.
        command: String,
        /// What it says the request cost.
        tokens: TurnTokens,
    },
    /// It says something, which ends the CLI's turn.
    Message {
        /// The text.
        text: String,
        /// What it says the request cost.
        tokens: TurnTokens,
    },
    /// It answers with an HTTP status instead of a stream.
    Status {
        /// The status.
        code: u16,
        /// The body, commonly JSON.
        body: String,
        /// Further headers.
        headers: Vec<(String, String)>,
    },
    /// It begins to stream and closes the connection in the middle.
    Cut,
    /// It begins to stream and then says nothing until the client goes away.
    Hang,
    /// It streams this text as it is.
    Raw(String),
}

impl ModelTurn {
    /// A call of the shell tool.
    pub fn shell(command: &str) -> Self {
        ModelTurn::Shell {
            command: command.to_owned(),
            tokens: TurnTokens::default(),
        }
    }

    /// A final message.
    pub fn message(text: &str) -> Self {
        ModelTurn::Message {
            text: text.to_owned(),
            tokens: TurnTokens::default(),
        }
    }

    /// An HTTP status with a body.
    pub fn status(code: u16, body: &str) -> Self {
        ModelTurn::Status {
            code,
            body: body.to_owned(),
            headers: Vec::new(),
        }
    }

    /// A stream that ends with `response.failed`: an error after the status said
    /// that all is well.
    pub fn failed(code: &str, message: &str) -> Self {
        ModelTurn::Raw(responses::failed(code, message))
    }

    /// The same turn with other token counts: `input` includes `cached`.
    #[must_use]
    pub fn tokens(mut self, input: u64, cached: u64, output: u64) -> Self {
        if let ModelTurn::Shell { tokens, .. } | ModelTurn::Message { tokens, .. } = &mut self {
            *tokens = TurnTokens {
                input,
                cached,
                output,
            };
        }
        self
    }
}

/// What a turn says it cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TurnTokens {
    /// Tokens read, cached ones included.
    pub input: u64,
    /// Tokens of those that came from a cache.
    pub cached: u64,
    /// Tokens written.
    pub output: u64,
}

impl Default for TurnTokens {
    fn default() -> Self {
        Self {
            input: 100,
            cached: 40,
            output: 20,
        }
    }
}

/// The server; it ends when this is dropped.
#[derive(Debug)]
pub struct ModelServer {
    shared: Arc<ModelShared>,
    address: SocketAddr,
    /// Holds the Unix socket and the forwarder.
    dir: TempDir,
    acceptors: Vec<JoinHandle<()>>,
}

/// What the connections share.
#[derive(Debug, Default)]
struct ModelShared {
    state: Mutex<ModelState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct ModelState {
    turns: std::collections::VecDeque<ModelTurn>,
    requests: Vec<Value>,
    stopping: bool,
}

impl ModelShared {
    fn lock(&self) -> MutexGuard<'_, ModelState> {
        // A connection that panicked has not left the script in between.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_stopping(&self) -> bool {
        self.lock().stopping
    }

    /// Notes the request and takes the next turn of the script.
    fn next_turn(&self, body: Value) -> ModelTurn {
        let mut state = self.lock();
        state.requests.push(body);
        self.changed.notify_all();
        state.turns.pop_front().unwrap_or_else(|| {
            ModelTurn::status(500, r#"{"error":{"message":"the script is used up"}}"#)
        })
    }
}

impl ModelServer {
    /// Starts a server that plays `turns`, one per request; then it answers 500.
    pub fn start(turns: Vec<ModelTurn>) -> Self {
        let dir = tempfile::Builder::new()
            .prefix("runner-model-")
            .tempdir()
            .expect("a temporary folder can be made");
        let shared = Arc::new(ModelShared::default());
        shared.lock().turns = turns.into();

        let tcp = TcpListener::bind("127.0.0.1:0").expect("loopback has a free port");
        let address = tcp.local_addr().expect("a bound socket has an address");
        let unix = UnixListener::bind(dir.path().join(namespace::SOCKET))
            .expect("a socket can be made in the folder");
        namespace::install_forwarder(dir.path());

        let acceptors = vec![
            accept(Arc::clone(&shared), move || Ok(tcp.accept()?.0)),
            accept(Arc::clone(&shared), move || Ok(unix.accept()?.0)),
        ];
        Self {
            shared,
            address,
            dir,
            acceptors,
        }
    }

    /// Where the model is for a client in the network of the test itself. One that
    /// [`Self::loopback_only`] starts needs [`ISOLATED_BASE_URL`].
    pub fn base_url(&self) -> String {
        format!("http://{}/v1", self.address)
    }

    /// Adds a turn to the end of the script.
    pub fn push(&self, turn: ModelTurn) {
        self.shared.lock().turns.push_back(turn);
    }

    /// The bodies of the requests so far; what is not JSON is a string.
    pub fn requests(&self) -> Vec<Value> {
        self.shared.lock().requests.clone()
    }

    /// How many turns of the script are left.
    pub fn turns_left(&self) -> usize {
        self.shared.lock().turns.len()
    }

    /// Waits until there were `count` requests, and fails after `limit`.
    #[track_caller]
    pub fn wait_for_requests(&self, count: usize, limit: Duration) {
        let (state, _) = self
            .shared
            .changed
            .wait_timeout_while(self.shared.lock(), limit, |state| {
                state.requests.len() < count
            })
            .unwrap_or_else(PoisonError::into_inner);
        let seen = state.requests.len();
        assert!(seen >= count, "{seen} of {count} requests after {limit:?}");
    }
}

impl Drop for ModelServer {
    fn drop(&mut self) {
        self.shared.lock().stopping = true;
        // Nothing else wakes a thread that waits for a connection.
        let _ = TcpStream::connect(self.address);
        let _ = UnixStream::connect(self.dir.path().join(namespace::SOCKET));
        for acceptor in self.acceptors.drain(..) {
            let _ = acceptor.join();
        }
    }
}

/// The flags that make codex use this model, for `[executor] extra_args`: no retries,
/// because a script has one turn per request, and no websocket.
pub fn codex_provider_args(base_url: &str) -> Vec<String> {
    let provider = format!(
        "model_providers.scripted={{name=\"scripted\",base_url=\"{base_url}\",\
         env_key=\"{KEY_VARIABLE}\",wire_api=\"responses\",request_max_retries=0,\
         stream_max_retries=0,supports_websockets=false}}"
    );
    ["-c", "model_provider=scripted", "-c", &provider]
        .map(str::to_owned)
        .to_vec()
}

/// Which language a request speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ModelApi {
    Responses,
    Messages,
    Completions,
}

impl ModelApi {
    fn of(path: &str) -> Option<Self> {
        let known = [
            ("/responses", ModelApi::Responses),
            ("/messages", ModelApi::Messages),
            ("/chat/completions", ModelApi::Completions),
        ];
        let found = known.into_iter().find(|(end, _)| path.ends_with(end));
        found.map(|(_, api)| api)
    }

    /// A stream with a call of the shell tool, if the request offers one.
    fn shell_call(self, request: &Value, command: &str, tokens: TurnTokens) -> Option<String> {
        Some(match self {
            ModelApi::Responses => {
                responses::complete(&responses::shell_call(request, command)?, tokens)
            }
            ModelApi::Messages => {
                messages::complete(request, &messages::shell_call(request, command)?, tokens)
            }
            ModelApi::Completions => {
                completions::complete(&completions::shell_call(request, command)?, tokens)
            }
        })
    }

    /// A stream with a message.
    fn message(self, request: &Value, text: &str, tokens: TurnTokens) -> String {
        match self {
            ModelApi::Responses => responses::complete(&responses::message(text), tokens),
            ModelApi::Messages => {
                messages::complete(request, &messages::message(request, text), tokens)
            }
            ModelApi::Completions => completions::complete(&completions::message(text), tokens),
        }
    }
}

/// A connection, whichever way it came.
trait ModelConnection: Read + Write + Send + 'static {
    fn set_read_timeout(&self, limit: Duration) -> io::Result<()>;
}

impl ModelConnection for TcpStream {
    fn set_read_timeout(&self, limit: Duration) -> io::Result<()> {
        TcpStream::set_read_timeout(self, Some(limit))
    }
}

impl ModelConnection for UnixStream {
    fn set_read_timeout(&self, limit: Duration) -> io::Result<()> {
        UnixStream::set_read_timeout(self, Some(limit))
    }
}

/// Serves every connection in a thread of its own until the server ends.
fn accept<C: ModelConnection>(
    shared: Arc<ModelShared>,
    next: impl Fn() -> io::Result<C> + Send + 'static,
) -> JoinHandle<()> {
    thread::spawn(move || {
        let mut connections = Vec::new();
        while let Ok(mut connection) = next() {
            if shared.is_stopping() {
                break;
            }
            let shared = Arc::clone(&shared);
            connections.push(thread::spawn(move || {
                // A client that goes away in the middle is part of the tests.
                let _ = serve(&mut connection, &shared);
            }));
        }
        for connection in connections {
            let _ = connection.join();
        }
    })
}

fn serve(connection: &mut impl ModelConnection, shared: &ModelShared) -> io::Result<()> {
    connection.set_read_timeout(POLL)?;
    let Some(request) = http::read_request(connection, || shared.is_stopping())? else {
        return Ok(());
    };
    // Clients also ask for the list of models and the like.
    let path = request.path.split('?').next().unwrap_or_default();
    let api = ModelApi::of(path).filter(|_| request.method == "POST");
    let Some(api) = api else {
        return http::write_status(connection, 404, "", &[]);
    };
    let body: Value = serde_json::from_slice(&request.body)
        .unwrap_or_else(|_| String::from_utf8_lossy(&request.body).into());
    if api == ModelApi::Completions && !completions::is_of_session(&body) {
        let title = completions::message("a title");
        let stream = completions::complete(&title, TurnTokens::default());
        return http::write_stream(connection, &stream);
    }
    let turn = shared.next_turn(body.clone());
    match turn {
        ModelTurn::Status {
            code,
            body,
            headers,
        } => http::write_status(connection, code, &body, &headers),
        ModelTurn::Shell { command, tokens } => match api.shell_call(&body, &command, tokens) {
            Some(stream) => http::write_stream(connection, &stream),
            None => http::write_status(connection, 500, "no shell tool is offered", &[]),
        },
        ModelTurn::Message { text, tokens } => {
            http::write_stream(connection, &api.message(&body, &text, tokens))
        }
        ModelTurn::Raw(sse) => http::write_stream(connection, &sse),
        ModelTurn::Cut => http::begin_stream(connection, &responses::created()),
        ModelTurn::Hang => {
            http::begin_stream(connection, &responses::created())?;
            http::wait_for_end(connection, || shared.is_stopping())
        }
    }
}

impl ModelServer {
    /// The folder with the socket and the forwarder.
    fn folder(&self) -> PathBuf {
        fs::canonicalize(self.dir.path()).expect("the folder is there")
    }
}

#[cfg(test)]
mod tests;
