//! Containment of agents and guards: where they can write and what they can read, decided before they
//! start.
//!
//! Both mechanisms are wrappers around an argv, so that whoever starts programs starts the wrapped
//! one like any other:
//!
//! ```text
//! bubblewrap   bwrap --ro-bind / / … --bind PROJECT PROJECT … --chdir PROJECT -- ARGV…
//! Landlock     runner __landlock --rw PROJECT … -- ARGV…      (a monitor, and the program below it)
//! ```
//!
//! | | bubblewrap | Landlock |
//! |---|---|---|
//! | writes outside the project and what [`WritePolicy`] names | refused (`EROFS`) | refused (`EACCES`) |
//! | modes, owners and times of files outside | refused | refused, where the monitor can be a broker |
//! | runner-owned files inside the project | read-only | writable: it cannot subtract |
//! | what is left running | ends with its pid namespace | for the supervisor to end |
//! | signals to processes outside | cannot see them | refused from ABI 6 on |
//! | hidden files and folders ([`WritePolicy::hidden`]) | not there, or empty | not to be read; sockets as above |
//! | folders for changes ([`WritePolicy::layered`]) | laid over | none |
//! | sockets without a path | refused from Landlock's ABI 6 on | refused from ABI 6 on |
//! | network ([`NetworkAccess`]) | open, off, or by way of a proxy | open, or no TCP from ABI 4 on |
//!
//! Whoever starts the wrapped argv hands down nothing but the three standard streams (through an open
//! folder bubblewrap is left again), and leaves the monitor alone when it asks for an end
//! ([`Mechanism::has_monitor`]).
//!
//! The way of the data: [`detect`] once, [`choose`] with the configured mode, [`WritePolicy::plan`] for
//! each child (it looks at the file system), [`MountPlan::wrap`] (it does not).
//!
//! What is written inside the project is run by its owner later: no mechanism helps against that.
//!
//! This crate starts nothing but the one probe in [`detect`]. It knows nothing of git, trees or
//! backends: which files belong to whom is the caller's knowledge.

mod broker;
mod bubblewrap;
mod call_filter;
mod folders;
mod landlock;
mod layer;
mod layout;
mod mechanism;
mod monitor;
mod namespaces;
mod network;
mod policy;
mod privileges;
mod program;
mod readable;
mod secrets;
mod settings;
mod sockets;
mod support;

pub use folders::expand_home;
pub use landlock::landlock_main;
pub use layer::{layer_main, layers_work};
pub use mechanism::{Mechanism, SandboxRefusal, choose};
pub use network::{NetworkAccess, PROXY_VARIABLES};
pub use policy::{LayeredFolder, LeftOutPath, MountPlan, WritePolicy, wrap};
pub use program::{ProgramError, resolve_program};
pub use secrets::SecretPlaces;
pub use settings::{SettingsFormat, included_settings, without_tokens};
pub use sockets::{SHARED_TEMP, beside_sockets, named_sockets, sockets_in, sockets_in_use};
pub use support::{Bubblewrap, SandboxSupport, UnavailableReason, detect, network_namespace};
