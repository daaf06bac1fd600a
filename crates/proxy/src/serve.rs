//! Serving connections: the head is read, judged and answered, and then bytes are passed on.

use std::io::{self, Read as _, Write as _};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream, ToSocketAddrs as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::head::{ProxyRequest, RequestKind, end_of_head, parse_head};
use crate::hosts::{HostList, HostMatch, RequestHost};
use crate::refusal::ProxyRefusal;
use crate::relay::{RelayInput, relay};
use crate::told::RefusedNames;

/// What a thread that serves a connection needs at most, the name service of the C library included.
const STACK: usize = 512 * 1024;

/// How much of what a refused client still sends is read, so that it gets to read the answer.
const DRAINED: usize = 1 << 20;

/// What a client cannot exceed.
#[derive(Clone, Copy, Debug)]
pub struct ProxyLimits {
    /// Connections at a time; each holds two buffers of 64 KiB.
    pub connections: usize,
    /// Bytes of a head.
    pub head_bytes: usize,
    /// Until the head is there.
    pub head_time: Duration,
    /// Until the server has answered the call, each of its addresses.
    pub connect_time: Duration,
    /// Without a byte in either direction.
    pub idle_time: Duration,
}

impl Default for ProxyLimits {
    fn default() -> Self {
        ProxyLimits {
            connections: 256,
            head_bytes: 32 * 1024,
            head_time: Duration::from_secs(10),
            connect_time: Duration::from_secs(10),
            // Models think for long without a word.
            idle_time: Duration::from_secs(15 * 60),
        }
    }
}

/// How names become addresses.
pub type NameResolver = fn(&str, u16) -> io::Result<Vec<IpAddr>>;

/// As the machine does it.
fn resolve(name: &str, port: u16) -> io::Result<Vec<IpAddr>> {
    Ok((name, port).to_socket_addrs()?.map(|it| it.ip()).collect())
}

/// A proxy, shared by the threads that serve.
#[derive(Clone)]
pub struct ProxyServer(Arc<ProxyState>);

struct ProxyState {
    hosts: HostList,
    limits: ProxyLimits,
    resolver: NameResolver,
    refused: RefusedNames,
    /// Connections that are being served.
    open: AtomicUsize,
}

impl ProxyServer {
    /// One for these hosts, which tells refused names to `out`, a line each.
    pub fn new(hosts: HostList, limits: ProxyLimits, out: Box<dyn io::Write + Send>) -> Self {
        Self::with_resolver(hosts, limits, out, resolve)
    }

    /// The same with another way from names to addresses.
    pub fn with_resolver(
        hosts: HostList,
        limits: ProxyLimits,
        out: Box<dyn io::Write + Send>,
        resolver: NameResolver,
    ) -> Self {
        ProxyServer(Arc::new(ProxyState {
            hosts,
            limits,
            resolver,
            refused: RefusedNames::new(out),
            open: AtomicUsize::new(0),
        }))
    }

    /// Tells what has not been told of refused names.
    pub fn finish(&self) {
        self.0.refused.finish();
    }

    /// Serves requests, for as long as connections come.
    pub fn serve(&self, listener: &TcpListener) {
        self.accept(listener, ProxyState::serve);
    }

    /// Passes every connection on to one address, which is listed as it is.
    pub fn forward(&self, listener: &TcpListener, target: SocketAddr) {
        self.accept(listener, move |state, client| state.forward(client, target));
    }

    fn accept(
        &self,
        listener: &TcpListener,
        serve: impl Fn(&ProxyState, &TcpStream) -> io::Result<()> + Clone + Send + 'static,
    ) {
        loop {
            let client = match listener.accept() {
                Ok((client, _)) => client,
                Err(error) if is_passing(&error) => continue,
                Err(_) => {
                    // No descriptor or no memory is free: connections that end make room.
                    std::thread::sleep(Duration::from_millis(20));
                    continue;
                }
            };
            let slot = OpenSlot::take(&self.0);
            let Some(slot) = slot else {
                refuse_at_once(&client);
                continue;
            };
            let serve = serve.clone();
            let thread = std::thread::Builder::new().stack_size(STACK);
            // Where no thread can be had, the connection is closed.
            let _ = thread.spawn(move || {
                // What goes wrong with one connection ends that one alone.
                let _ = serve(&slot.0, &client);
            });
        }
    }
}

fn is_passing(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted | io::ErrorKind::Interrupted
    )
}

/// One of the connections that may be open.
struct OpenSlot(Arc<ProxyState>);

impl OpenSlot {
    fn take(state: &Arc<ProxyState>) -> Option<Self> {
        let limit = state.limits.connections;
        let slot = OpenSlot(Arc::clone(state));
        // Given back by its drop where it is one too many.
        (state.open.fetch_add(1, Ordering::Relaxed) < limit).then_some(slot)
    }
}

impl Drop for OpenSlot {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::Relaxed);
    }
}

fn refuse_at_once(client: &TcpStream) {
    let refusal = ProxyRefusal::new(503, "too many connections at a time");
    // An answer fits into the empty buffer of a new connection; nobody waits for a client.
    if client.set_nonblocking(true).is_ok() {
        let _ = (&*client).write(refusal.answer().as_bytes());
    }
}

impl ProxyState {
    fn serve(&self, client: &TcpStream) -> io::Result<()> {
        client.set_nodelay(true)?;
        client.set_write_timeout(Some(self.limits.head_time))?;
        let (request, rest) = match self.read_request(client) {
            Ok(Some(read)) => read,
            Ok(None) => return Ok(()),
            Err(refusal) => return refuse(client, &refusal),
        };
        let server = match self.connect(&request) {
            Ok(server) => server,
            Err(refusal) => return refuse(client, &refusal),
        };
        let (first, body) = match request.kind {
            RequestKind::Tunnel => {
                (&*client).write_all(b"HTTP/1.1 200 Connection established\r\n\r\n")?;
                (rest, None)
            }
            RequestKind::Plain {
                head: mut first,
                mut body,
            } => {
                let taken = match body.take(&rest) {
                    Ok(taken) => taken,
                    Err(refusal) => return refuse(client, &refusal),
                };
                first.extend_from_slice(&rest[..taken]);
                (first, Some(body))
            }
        };
        relay(RelayInput {
            client,
            server: &server,
            first,
            body,
            idle: self.limits.idle_time,
        })
    }

    fn forward(&self, client: &TcpStream, target: SocketAddr) -> io::Result<()> {
        client.set_nodelay(true)?;
        let server = TcpStream::connect_timeout(&target, self.limits.connect_time)?;
        server.set_nodelay(true)?;
        relay(RelayInput {
            client,
            server: &server,
            first: Vec::new(),
            body: None,
            idle: self.limits.idle_time,
        })
    }

    /// The request, and what came behind its head; `None`: the client went away without one.
    fn read_request(
        &self,
        mut client: &TcpStream,
    ) -> Result<Option<(ProxyRequest, Vec<u8>)>, ProxyRefusal> {
        let late = || ProxyRefusal::new(408, "the head did not come in time");
        let deadline = Instant::now() + self.limits.head_time;
        let mut read = Vec::new();
        let mut piece = [0; 4096];
        loop {
            if let Some(end) = end_of_head(&read) {
                let rest = read.split_off(end);
                return Ok(Some((parse_head(&read)?, rest)));
            }
            if read.len() >= self.limits.head_bytes {
                return Err(ProxyRefusal::new(431, "the head is too long"));
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(late());
            }
            let _ = client.set_read_timeout(Some(left));
            let room = piece.len().min(self.limits.head_bytes - read.len());
            match client.read(&mut piece[..room]) {
                Ok(0) if read.is_empty() => return Ok(None),
                Ok(0) => return Err(ProxyRefusal::new(400, "the head has no end")),
                Ok(count) => read.extend_from_slice(&piece[..count]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if is_timeout(&error) => return Err(late()),
                Err(_) => return Ok(None),
            }
        }
    }

    /// A connection to the host, at an address that was checked.
    fn connect(&self, request: &ProxyRequest) -> Result<TcpStream, ProxyRefusal> {
        let ProxyRequest { host, port, .. } = request;
        let port = *port;
        let Some(found) = self.hosts.find(host, port) else {
            self.refused
                .tell(&self.hosts.shown(host, port), ": not allowed");
            let words =
                format!("{host}:{port} is not among the hosts of [sandbox.network]: not allowed");
            return Err(ProxyRefusal::new(403, words));
        };
        let addresses = self.addresses(host, port, found)?;
        let mut last = None;
        for address in addresses {
            let target = SocketAddr::new(address, port);
            match TcpStream::connect_timeout(&target, self.limits.connect_time) {
                Ok(server) => {
                    let _ = server.set_nodelay(true);
                    return Ok(server);
                }
                Err(error) => last = Some(error),
            }
        }
        let status = last.as_ref().is_some_and(is_timeout);
        let why = last.map_or_else(String::new, |error| format!(": {}", error.kind()));
        let status = if status { 504 } else { 502 };
        Err(ProxyRefusal::new(
            status,
            format!("cannot reach {host}:{port}{why}"),
        ))
    }

    /// The addresses of a listed host that may be connected to, at least one.
    fn addresses(
        &self,
        host: &RequestHost,
        port: u16,
        found: HostMatch,
    ) -> Result<Vec<IpAddr>, ProxyRefusal> {
        let addresses = match host {
            RequestHost::Address(address) => vec![*address],
            RequestHost::Name(name) => (self.resolver)(name, port).map_err(|_| {
                ProxyRefusal::new(502, format!("cannot find the address of {name}"))
            })?,
        };
        let mut refused = None;
        let mut allowed = Vec::new();
        for address in addresses {
            match self.hosts.check_address(host, port, found, address) {
                Ok(()) => allowed.push(address),
                Err(kind) => {
                    refused.get_or_insert((address, kind));
                }
            }
        }
        match (allowed.is_empty(), refused) {
            (false, _) => Ok(allowed),
            (true, Some((address, kind))) => {
                let why = format!(" at {address} ({kind}): not allowed");
                self.refused.tell(&self.hosts.shown(host, port), &why);
                let words = format!("{host}:{port} is at {address}, a {kind} address: not allowed");
                Err(ProxyRefusal::new(403, words))
            }
            (true, None) => {
                let words = format!("cannot find the address of {host}");
                Err(ProxyRefusal::new(502, words))
            }
        }
    }
}

fn is_timeout(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut
    )
}

/// Answers, and reads on for a moment: a connection that is closed with bytes unread is reset, and
/// the answer lost.
fn refuse(mut client: &TcpStream, refusal: &ProxyRefusal) -> io::Result<()> {
    client.write_all(refusal.answer().as_bytes())?;
    client.shutdown(Shutdown::Write)?;
    let deadline = Instant::now() + Duration::from_secs(1);
    let mut piece = [0; 16 * 1024];
    let mut left = DRAINED;
    while left > 0 {
        let time = deadline.saturating_duration_since(Instant::now());
        if time.is_zero() {
            break;
        }
        client.set_read_timeout(Some(time))?;
        match client.read(&mut piece)? {
            0 => break,
            count => left = left.saturating_sub(count),
        }
    }
    Ok(())
}
