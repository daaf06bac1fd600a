//! Namespaces of its own for a launcher, and so for the program that it becomes.

use std::fs;

use rustix::thread::UnshareFlags;

/// Gives this process namespaces of these kinds: as root as it is, as an ordinary user within a
/// user namespace in which it stays the same user. It must have one thread.
pub(crate) fn enter(kinds: UnshareFlags) -> Result<(), String> {
    let (uid, gid) = (rustix::process::geteuid(), rustix::process::getegid());
    let is_root = uid.is_root();
    // The launcher has one thread and no open files that matter: what makes the call unsafe in
    // general (other threads, descriptors without owners) is not there.
    #[allow(deprecated)]
    let unshared = rustix::thread::unshare(kinds | with_user(is_root));
    unshared.map_err(|error| format!("cannot have namespaces of its own: {error}"))?;
    if !is_root {
        let map = |name: &str, text: String| {
            fs::write(format!("/proc/self/{name}"), text)
                .map_err(|error| format!("cannot write {name}: {error}"))
        };
        map("setgroups", "deny".to_owned())?;
        map("uid_map", format!("{uid} {uid} 1", uid = uid.as_raw()))?;
        map("gid_map", format!("{gid} {gid} 1", gid = gid.as_raw()))?;
    }
    Ok(())
}

/// Whether a process of this user can have message queues, semaphores and shared memory of its own,
/// found out by making one that ends at once.
pub(crate) fn has_ipc() -> bool {
    let is_root = rustix::process::geteuid().is_root();
    let kinds = UnshareFlags::NEWIPC | with_user(is_root);
    runner_exec::os::can_be_born_in(kinds.bits()).is_ok()
}

fn with_user(is_root: bool) -> UnshareFlags {
    if is_root {
        UnshareFlags::empty()
    } else {
        UnshareFlags::NEWUSER
    }
}
