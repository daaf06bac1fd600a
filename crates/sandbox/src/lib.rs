//! Containment of agents and guards: where they can write, decided before they start.
//!
//! Both mechanisms are wrappers around an argv, so that whoever starts programs starts the wrapped
//! one like any other:
//!
//! ```text
//! bubblewrap   bwrap --ro-bind / / … --bind PROJECT PROJECT … --chdir PROJECT -- ARGV…
//! Landlock     runner __landlock --rw PROJECT … -- ARGV…
//! ```
//!
//! | | bubblewrap | Landlock |
//! |---|---|---|
//! | writes outside the project and what [`WritePolicy`] names | refused (`EROFS`) | refused (`EACCES`) |
//! | modes, owners and times of files outside | refused | left alone |
//! | runner-owned files inside the project | read-only | writable: it cannot subtract |
//! | what is left running | ends with its pid namespace | for the supervisor to end |
//! | signals to processes outside | cannot see them | refused from ABI 6 on |
//! | network, sockets, reading | left alone | left alone |
//!
//! Whoever starts the wrapped argv hands down nothing but the three standard streams (through an open
//! folder bubblewrap is left again), and leaves the monitor alone when it asks for an end
//! ([`Mechanism::has_monitor`]).
//!
//! The way of the data: [`detect`] once, [`choose`] with the configured mode, [`WritePolicy::plan`] for
//! each child (it looks at the file system), [`MountPlan::wrap`] (it does not).
//!
//! It keeps an agent that errs from doing harm elsewhere. It is no wall against a hostile one: the
//! sockets of other programs (the session bus, a container engine) stay within reach, and what is
//! written inside the project is run by its owner later.
//!
//! This crate starts nothing but the one probe in [`detect`]. It knows nothing of git, trees or
//! backends: which files belong to whom is the caller's knowledge.

mod bubblewrap;
mod folders;
mod landlock;
mod layout;
mod mechanism;
mod policy;
mod privileges;
mod program;
mod support;

pub use folders::{default_caches, expand_home};
pub use landlock::landlock_main;
pub use mechanism::{Mechanism, SandboxRefusal, choose};
pub use policy::{LeftOutPath, MountPlan, WritePolicy, wrap};
pub use program::{ProgramError, resolve_program};
pub use support::{Bubblewrap, SandboxSupport, UnavailableReason, detect};
