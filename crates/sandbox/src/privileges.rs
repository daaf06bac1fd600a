//! What root keeps inside: enough to build and install, nothing that could undo the containment.
//!
//! Without this, root inside bubblewrap needs one `mount -o remount,rw /`, and root under Landlock
//! one device node or kernel module.

use rustix::thread::{CapabilitySet, CapabilitySets};

/// The capabilities that root keeps, by bubblewrap's names for them. With one for raw sockets it would
/// listen to what other programs of the machine say to each other, tokens included.
const KEPT: &[(CapabilitySet, &str)] = &[
    (CapabilitySet::CHOWN, "CAP_CHOWN"),
    (CapabilitySet::DAC_OVERRIDE, "CAP_DAC_OVERRIDE"),
    (CapabilitySet::FOWNER, "CAP_FOWNER"),
    (CapabilitySet::FSETID, "CAP_FSETID"),
    (CapabilitySet::KILL, "CAP_KILL"),
    (CapabilitySet::SETGID, "CAP_SETGID"),
    (CapabilitySet::SETUID, "CAP_SETUID"),
    (CapabilitySet::NET_BIND_SERVICE, "CAP_NET_BIND_SERVICE"),
];

/// For root, the names of those it keeps; nothing for everybody else, who has none to lose.
///
/// Only what it has: in a container bubblewrap could not add the others.
pub(crate) fn kept_by_root() -> Option<Vec<&'static str>> {
    if !rustix::process::geteuid().is_root() {
        return None;
    }
    let own = rustix::thread::capabilities(None)
        .map_or(CapabilitySet::empty(), |own| own.effective & own.permitted);
    let kept = KEPT.iter().filter(|(flag, _)| own.contains(*flag));
    Some(kept.map(|(_, name)| *name).collect())
}

/// Gives up all others for good; an ordinary user, who has some in a namespace of its own, gives up all. `no_new_privs` must be set: it is what keeps the next exec of root
/// from getting them back.
pub(crate) fn drop_others() -> rustix::io::Result<()> {
    let own = rustix::thread::capabilities(None)?;
    let is_root = rustix::process::geteuid().is_root();
    let kept = KEPT
        .iter()
        .filter(|_| is_root)
        .fold(CapabilitySet::empty(), |all, (flag, _)| all | *flag);
    rustix::thread::set_capabilities(
        None,
        CapabilitySets {
            effective: own.effective & kept,
            permitted: own.permitted & kept,
            inheritable: own.inheritable & kept,
        },
    )
}
