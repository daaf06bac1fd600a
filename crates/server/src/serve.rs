//! On a socket: bound first, so that the address can be told, then served until
//! somebody says stop.

use std::fs::{File, Permissions};
use std::io::{self, Read as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use axum::Router;
use axum::serve::ListenerExt as _;

use crate::ServerConfig;
use crate::stall::StallListener;

/// Where to listen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListenAddress {
    /// The address of this machine; others can reach any but a loopback one.
    pub ip: IpAddr,
    /// The port; 0 takes a free one.
    pub port: u16,
}

impl Default for ListenAddress {
    fn default() -> Self {
        ListenAddress {
            ip: Ipv4Addr::LOCALHOST.into(),
            port: 7878,
        }
    }
}

/// Why nothing can be served.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// Somebody else has the port.
    #[error("port {0} is in use")]
    InUse(u16),
    /// The address is not one of this machine, or may not be used.
    #[error("cannot listen on {0}: {1}")]
    Bind(SocketAddr, io::Error),
    /// Anything else.
    #[error("{0}")]
    Io(#[from] io::Error),
}

/// A socket that is bound and not served yet.
#[derive(Debug)]
pub struct BoundListener {
    listener: TcpListener,
    address: SocketAddr,
}

/// Binds the socket.
pub fn bind(address: ListenAddress) -> Result<BoundListener, ServeError> {
    let wanted = SocketAddr::new(address.ip, address.port);
    let listener = TcpListener::bind(wanted).map_err(|error| match error.kind() {
        io::ErrorKind::AddrInUse => ServeError::InUse(address.port),
        _ => ServeError::Bind(wanted, error),
    })?;
    listener.set_nonblocking(true)?;
    let address = listener.local_addr()?;
    Ok(BoundListener { listener, address })
}

impl BoundListener {
    /// What it is bound to, with the port that was chosen.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves until `wait_for_end` returns; it is called on a thread of its own.
    /// Streams that are open are cut: whoever listens comes back.
    pub fn serve(
        self,
        config: &ServerConfig,
        wait_for_end: impl FnOnce() + Send + 'static,
    ) -> Result<(), ServeError> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            // Each holds a stack; requests wait their turn.
            .max_blocking_threads(8)
            .enable_all()
            .build()?;
        let app = crate::app(config)?;
        let (end, ended) = tokio::sync::oneshot::channel::<()>();
        std::thread::Builder::new()
            .name("end".to_owned())
            .spawn(move || {
                wait_for_end();
                let _ = end.send(());
            })?;
        let ended = async move {
            // Who is to say stop may be gone without a word.
            let _ = ended.await;
        };
        let served = runtime.block_on(self.serve_router(app, ended));
        runtime.shutdown_background();
        served
    }

    /// Serves that in the runtime of the caller, until `ended` is there.
    pub(crate) async fn serve_router(
        self,
        app: Router,
        ended: impl Future<Output = ()>,
    ) -> Result<(), ServeError> {
        let listener = tokio::net::TcpListener::from_std(self.listener)?;
        // Events are small and wanted at once.
        let listener = listener.tap_io(|stream| drop(stream.set_nodelay(true)));
        let serving =
            std::future::IntoFuture::into_future(axum::serve(StallListener(listener), app));
        tokio::select! {
            result = serving => Ok(result?),
            () = ended => Ok(()),
        }
    }
}

/// A socket in a folder that nobody else can look into, bound and not served yet. It goes with this
/// value.
#[derive(Debug)]
pub struct BoundSocket {
    listener: UnixListener,
    path: PathBuf,
}

impl BoundSocket {
    /// Binds a socket of that name.
    pub fn bind(folder: &Path, name: &str) -> Result<BoundSocket, ServeError> {
        let opened = File::open(folder)?;
        // The address of a socket is short, the folder's path may not be.
        let near = format!("/proc/self/fd/{}/{name}", opened.as_raw_fd());
        let listener = UnixListener::bind(near)?;
        let path = folder.join(name);
        let bound = BoundSocket { listener, path };
        std::fs::set_permissions(&bound.path, Permissions::from_mode(0o600))?;
        bound.listener.set_nonblocking(true)?;
        Ok(bound)
    }

    /// Serves that in the runtime of the caller, for as long as it is waited for.
    pub(crate) async fn serve_router(self, app: Router) -> Result<(), ServeError> {
        let listener = tokio::net::UnixListener::from_std(self.listener.try_clone()?)?;
        Ok(axum::serve(StallListener(listener), app).await?)
    }
}

impl Drop for BoundSocket {
    fn drop(&mut self) {
        // One that stays answers nobody, and is removed by the next who binds one.
        let _ = std::fs::remove_file(&self.path);
    }
}

/// A word that nobody can guess, for [`ServerConfig::token`].
pub fn random_token() -> io::Result<String> {
    random_hex(24)
}

pub(crate) fn random_hex(bytes: usize) -> io::Result<String> {
    use std::fmt::Write as _;
    let mut random = vec![0; bytes];
    File::open("/dev/urandom")?.read_exact(&mut random)?;
    Ok(random.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    }))
}
