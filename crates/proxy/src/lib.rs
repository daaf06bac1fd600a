//! The only way out of a network namespace: a proxy that lets a child reach the hosts of a list and
//! nothing else.
//!
//! ```text
//! host's network                          │ child's namespace (loopback alone)
//! proxy ◄── Unix socket, bound in ────────┼── launcher: makes the listeners, hands them over,
//!   │                                     │             becomes the program
//!   └── accepts there ────────────────────┼─► 127.0.0.1:PORT ◄── program (HTTPS_PROXY)
//! ```
//!
//! A socket belongs to the namespace in which it was made, whoever holds it. So the launcher makes
//! the listeners inside and the proxy accepts on them outside: nothing listens on the host, and no
//! process of the runner's stays inside ([`enter`], [`proxy_main`]).
//!
//! The way of a request: [`head`] reads it, [`hosts`] says whether the host is listed, the name is
//! resolved here, [`address`] says what kind each address is, and the connection goes to an address
//! that was just checked.
//!
//! It knows nothing of git, trees or agents, and has no keys.

pub mod address;
mod body;
mod handover;
pub mod head;
pub mod hosts;
mod refusal;
mod relay;
mod serve;
mod server;
mod told;

pub use address::{AddressKind, classify};
pub use handover::{ProxyEntry, enter};
pub use hosts::{HostList, HostMatch, RequestHost};
pub use refusal::ProxyRefusal;
pub use serve::{NameResolver, ProxyLimits, ProxyServer};
pub use server::proxy_main;
pub use told::MORE_NAMES;
