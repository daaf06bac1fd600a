//! Which system calls of a program are handed to its broker, as steps of a seccomp filter.
//!
//! Landlock governs what is opened, not `chmod` and its kind, nor the sockets that have a path.

use libc::sock_filter;

/// Calls that the broker makes in the program's place, or refuses.
pub(crate) const BROKERED: &[i64] = &[
    #[cfg(target_arch = "x86_64")]
    libc::SYS_chmod,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_chown,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_lchown,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_utime,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_utimes,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_futimesat,
    libc::SYS_fchmod,
    libc::SYS_fchmodat,
    libc::SYS_fchmodat2,
    libc::SYS_fchown,
    libc::SYS_fchownat,
    libc::SYS_utimensat,
    libc::SYS_setxattr,
    libc::SYS_lsetxattr,
    libc::SYS_fsetxattr,
    libc::SYS_removexattr,
    libc::SYS_lremovexattr,
    libc::SYS_fremovexattr,
    libc::SYS_connect,
];

/// Calls that do the same in other ways: programs take them for calls of a newer kernel, and do
/// without. The numbers of the newest are the same on every machine.
const UNKNOWN: &[i64] = &[
    libc::SYS_io_uring_setup,
    463, // setxattrat
    466, // removexattrat
    469, // file_setattr
];

/// What `ioctl` is asked for to change flags of a file, by either size of a number.
const CHANGES_OF_FLAGS: [u32; 3] = [0x4008_6602, 0x4004_6602, 0x401c_5820];

#[cfg(target_arch = "x86_64")]
const MACHINE: u32 = 0xc000_003e;
#[cfg(target_arch = "aarch64")]
const MACHINE: u32 = 0xc000_00b7;
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
const MACHINE: u32 = 0;

/// Numbers from here on belong to a second table of the same machine (x32).
const SECOND_TABLE: u32 = 0x4000_0000;

/// Where the kernel shows the number of the call, the machine, and the second argument's lower half.
const NUMBER: u32 = 0;
const ARCHITECTURE: u32 = 4;
const SECOND_ARGUMENT: u32 = if cfg!(target_endian = "little") {
    24
} else {
    28
};

/// The filter; `None` on a machine whose calls it does not know.
pub(crate) fn steps() -> Option<Vec<sock_filter>> {
    if MACHINE == 0 {
        return None;
    }
    let hand_on = ret(libc::SECCOMP_RET_USER_NOTIF);
    let unknown = refuse(libc::ENOSYS);
    let mut steps = vec![load(ARCHITECTURE)];
    // Programs for another table of calls (32 bits on 64) do not run: their numbers mean other calls.
    steps.extend([jump(libc::BPF_JEQ, MACHINE, 1, 0), unknown]);
    steps.push(load(NUMBER));
    steps.extend([jump(libc::BPF_JGE, SECOND_TABLE, 0, 1), unknown]);
    for (calls, then) in [(BROKERED, hand_on), (UNKNOWN, unknown)] {
        for call in calls {
            let number = u32::try_from(*call).ok()?;
            steps.extend([jump(libc::BPF_JEQ, number, 0, 1), then]);
        }
    }
    let ioctl = u32::try_from(libc::SYS_ioctl).ok()?;
    steps.extend([jump(libc::BPF_JEQ, ioctl, 1, 0), allow()]);
    steps.push(load(SECOND_ARGUMENT));
    for request in CHANGES_OF_FLAGS {
        let unsupported = refuse(libc::EOPNOTSUPP);
        steps.extend([jump(libc::BPF_JEQ, request, 0, 1), unsupported]);
    }
    steps.push(allow());
    Some(steps)
}

fn step(code: u32, jt: u8, jf: u8, k: u32) -> sock_filter {
    let code = u16::try_from(code).unwrap_or_default();
    sock_filter { code, jt, jf, k }
}

fn load(offset: u32) -> sock_filter {
    step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, offset)
}

fn jump(kind: u32, value: u32, when_true: u8, when_false: u8) -> sock_filter {
    step(
        libc::BPF_JMP | kind | libc::BPF_K,
        when_true,
        when_false,
        value,
    )
}

fn ret(value: u32) -> sock_filter {
    step(libc::BPF_RET | libc::BPF_K, 0, 0, value)
}

fn allow() -> sock_filter {
    ret(libc::SECCOMP_RET_ALLOW)
}

fn refuse(errno: i32) -> sock_filter {
    let errno = u32::try_from(errno).unwrap_or_default();
    ret(libc::SECCOMP_RET_ERRNO | (errno & libc::SECCOMP_RET_DATA))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the filter says about a call, as the kernel would find out.
    fn answer(machine: u32, number: i64, second: u32) -> u32 {
        let steps = steps().unwrap();
        let (mut at, mut value) = (0, 0);
        loop {
            let step = &steps[at];
            at += 1;
            match u32::from(step.code) & 7 {
                libc::BPF_LD => {
                    value = match step.k {
                        NUMBER => u32::try_from(number).unwrap(),
                        ARCHITECTURE => machine,
                        SECOND_ARGUMENT => second,
                        other => panic!("{other}"),
                    }
                }
                libc::BPF_JMP => {
                    let holds = match u32::from(step.code) & 0xf0 {
                        libc::BPF_JEQ => value == step.k,
                        libc::BPF_JGE => value >= step.k,
                        other => panic!("{other}"),
                    };
                    at += usize::from(if holds { step.jt } else { step.jf });
                }
                libc::BPF_RET => return step.k,
                other => panic!("{other}"),
            }
        }
    }

    #[test]
    fn what_becomes_of_a_call() {
        let unknown = refuse(libc::ENOSYS).k;
        let unsupported = refuse(libc::EOPNOTSUPP).k;
        let x32 = i64::from(SECOND_TABLE) + libc::SYS_fchmod;
        for (machine, number, second, expected) in [
            (MACHINE, libc::SYS_read, 0, libc::SECCOMP_RET_ALLOW),
            (MACHINE, libc::SYS_execve, 0, libc::SECCOMP_RET_ALLOW),
            (MACHINE, libc::SYS_fchmod, 0, libc::SECCOMP_RET_USER_NOTIF),
            (MACHINE, libc::SYS_connect, 0, libc::SECCOMP_RET_USER_NOTIF),
            (MACHINE, libc::SYS_io_uring_setup, 0, unknown),
            (MACHINE, 466, 0, unknown),
            (MACHINE, libc::SYS_ioctl, 0x5401, libc::SECCOMP_RET_ALLOW),
            (MACHINE, libc::SYS_ioctl, 0x4008_6602, unsupported),
            (MACHINE, x32, 0, unknown),
            (0x4000_0003, libc::SYS_read, 0, unknown),
        ] {
            let found = answer(machine, number, second);
            assert_eq!(found, expected, "{machine:x} {number} {second:x}");
        }
    }
}
