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

/// Kernel keys are shared by all programs of a user, the user's own included.
const KEYS: &[i64] = &[libc::SYS_add_key, libc::SYS_request_key, libc::SYS_keyctl];

/// The same for programs of 32 bits, which run where nothing is handed on.
const KEYS_OF_I386: [u32; 3] = [286, 287, 288];
const I386: u32 = 0x4000_0003;

/// What `ioctl` is asked for to change flags or the version of a file, by either size of a number.
const CHANGES_OF_FLAGS: [u32; 5] = [
    0x4008_6602,
    0x4004_6602,
    0x401c_5820,
    0x4008_7602,
    0x4004_7602,
];

/// Kinds of sockets that reach other machines past every rule about TCP: RDS, TIPC, VSOCK, SMC.
const OTHER_FAMILIES: [u32; 4] = [21, 30, 40, 43];

/// Protocols that do, under the families of the internet: DCCP, SCTP, SMC, MPTCP.
const OTHER_PROTOCOLS: [u32; 4] = [33, 132, 256, 262];

/// Lets a message open a connection: Landlock has a rule for `connect` alone.
const FAST_OPEN: u32 = 0x2000_0000;

/// The calls with such a flag, and which argument has it.
const WITH_FLAGS: [(i64, u32); 3] = [
    (libc::SYS_sendto, 3),
    (libc::SYS_sendmsg, 2),
    (libc::SYS_sendmmsg, 3),
];

const FAMILY_UNIX: u32 = 1;
const TYPE_OF_SOCKET: u32 = 0xf;
const DATAGRAMS: u32 = 2;

#[cfg(target_arch = "x86_64")]
const MACHINE: u32 = 0xc000_003e;
#[cfg(target_arch = "aarch64")]
const MACHINE: u32 = 0xc000_00b7;
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
const MACHINE: u32 = 0;

/// Numbers from here on belong to a second table of the same machine (x32).
const SECOND_TABLE: u32 = 0x4000_0000;

/// Where the kernel shows the number of the call, the machine, and the lower half of an argument.
const NUMBER: u32 = 0;
const ARCHITECTURE: u32 = 4;
const fn argument(index: u32) -> u32 {
    let lower = if cfg!(target_endian = "little") { 0 } else { 4 };
    16 + 8 * index + lower
}

/// What a filter is for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct CallRules {
    /// Whether a broker makes the calls that Landlock has no rule for.
    pub(crate) has_broker: bool,
    /// Whether other ways to the network than TCP and datagrams are closed, and TCP's back doors.
    pub(crate) no_tcp: bool,
}

/// The filter; `None` on a machine whose calls it does not know.
pub(crate) fn steps(rules: CallRules) -> Option<Vec<sock_filter>> {
    if MACHINE == 0 {
        return None;
    }
    let unknown = refuse(libc::ENOSYS);
    let mut steps = vec![load(ARCHITECTURE)];
    let foreign = if rules.has_broker {
        // Programs for another table of calls (32 bits on 64) do not run: their numbers mean
        // other calls.
        vec![unknown]
    } else {
        keys_of_i386()
    };
    steps.push(jump(
        libc::BPF_JEQ,
        MACHINE,
        u8::try_from(foreign.len()).ok()?,
        0,
    ));
    steps.extend(foreign);
    steps.push(load(NUMBER));
    steps.extend([jump(libc::BPF_JGE, SECOND_TABLE, 0, 1), unknown]);
    let mut answer = |calls: &[i64], then| {
        for call in calls {
            let number = u32::try_from(*call).unwrap_or(u32::MAX);
            steps.extend([jump(libc::BPF_JEQ, number, 0, 1), then]);
        }
    };
    answer(KEYS, unknown);
    if rules.has_broker {
        answer(BROKERED, ret(libc::SECCOMP_RET_USER_NOTIF));
        answer(UNKNOWN, unknown);
    }
    if rules.has_broker {
        let flags = any_of(argument(1), &CHANGES_OF_FLAGS, refuse(libc::EOPNOTSUPP));
        steps.extend(within(libc::SYS_ioctl, flags)?);
        // A datagram names its receiver where no filter can look.
        for call in [libc::SYS_socket, libc::SYS_socketpair] {
            steps.extend(within(call, unix_datagrams())?);
        }
    }
    if rules.no_tcp {
        let unsupported = refuse(libc::EPROTONOSUPPORT);
        let mut other = any_of(argument(0), &OTHER_FAMILIES, unsupported);
        other.extend(any_of(argument(2), &OTHER_PROTOCOLS, unsupported));
        steps.extend(within(libc::SYS_socket, other)?);
        for (call, flags) in WITH_FLAGS {
            let set = jump(libc::BPF_JSET, FAST_OPEN, 0, 1);
            let refused = vec![load(argument(flags)), set, refuse(libc::EOPNOTSUPP)];
            steps.extend(within(call, refused)?);
        }
    }
    steps.push(allow());
    Some(steps)
}

/// Steps that are taken for one call alone.
fn within(call: i64, then: Vec<sock_filter>) -> Option<Vec<sock_filter>> {
    let number = u32::try_from(call).ok()?;
    let past = u8::try_from(then.len()).ok()?;
    let mut steps = vec![load(NUMBER), jump(libc::BPF_JEQ, number, 0, past)];
    steps.extend(then);
    Some(steps)
}

/// Answers where what is shown at a place is one of these.
fn any_of(place: u32, values: &[u32], then: sock_filter) -> Vec<sock_filter> {
    let mut steps = vec![load(place)];
    for value in values {
        steps.extend([jump(libc::BPF_JEQ, *value, 0, 1), then]);
    }
    steps
}

fn unix_datagrams() -> Vec<sock_filter> {
    vec![
        load(argument(0)),
        jump(libc::BPF_JEQ, FAMILY_UNIX, 0, 4),
        load(argument(1)),
        step(
            libc::BPF_ALU | libc::BPF_AND | libc::BPF_K,
            0,
            0,
            TYPE_OF_SOCKET,
        ),
        jump(libc::BPF_JEQ, DATAGRAMS, 0, 1),
        refuse(libc::EACCES),
    ]
}

fn keys_of_i386() -> Vec<sock_filter> {
    // Reached with the architecture loaded.
    let keys = any_of(NUMBER, &KEYS_OF_I386, refuse(libc::ENOSYS));
    let past = u8::try_from(keys.len()).unwrap_or_default();
    let mut steps = vec![jump(libc::BPF_JEQ, I386, 0, past)];
    steps.extend(keys);
    steps.push(allow());
    steps
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
    fn answer(rules: CallRules, machine: u32, number: i64, args: [u32; 4]) -> u32 {
        let steps = steps(rules).unwrap();
        let (mut at, mut value) = (0, 0);
        loop {
            let step = &steps[at];
            at += 1;
            match u32::from(step.code) & 7 {
                libc::BPF_LD => {
                    value = match step.k {
                        NUMBER => u32::try_from(number).unwrap(),
                        ARCHITECTURE => machine,
                        place => args[usize::try_from((place - 16) / 8).unwrap()],
                    }
                }
                libc::BPF_ALU => value &= step.k,
                libc::BPF_JMP => {
                    let holds = match u32::from(step.code) & 0xf0 {
                        libc::BPF_JEQ => value == step.k,
                        libc::BPF_JGE => value >= step.k,
                        libc::BPF_JSET => value & step.k != 0,
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
        const NONE: [u32; 4] = [0; 4];
        let unknown = refuse(libc::ENOSYS).k;
        let unsupported = refuse(libc::EOPNOTSUPP).k;
        let no_protocol = refuse(libc::EPROTONOSUPPORT).k;
        let (allowed, asked) = (libc::SECCOMP_RET_ALLOW, libc::SECCOMP_RET_USER_NOTIF);
        let plain = CallRules::default();
        let full = CallRules {
            has_broker: true,
            no_tcp: true,
        };
        let open = CallRules {
            has_broker: true,
            no_tcp: false,
        };
        let x32 = i64::from(SECOND_TABLE) + libc::SYS_fchmod;
        let socket = libc::SYS_socket;
        // Of the internet, streams, by a protocol.
        let stream = |protocol| [2, 1, protocol, 0];
        for (rules, machine, number, args, expected) in [
            (full, MACHINE, libc::SYS_read, NONE, allowed),
            (full, MACHINE, libc::SYS_execve, NONE, allowed),
            (full, MACHINE, libc::SYS_fchmod, NONE, asked),
            (plain, MACHINE, libc::SYS_fchmod, NONE, allowed),
            (full, MACHINE, libc::SYS_connect, NONE, asked),
            (full, MACHINE, libc::SYS_io_uring_setup, NONE, unknown),
            (plain, MACHINE, libc::SYS_io_uring_setup, NONE, allowed),
            (full, MACHINE, 466, NONE, unknown),
            (full, MACHINE, libc::SYS_ioctl, [0, 0x5401, 0, 0], allowed),
            (
                full,
                MACHINE,
                libc::SYS_ioctl,
                [0, 0x4008_6602, 0, 0],
                unsupported,
            ),
            (
                full,
                MACHINE,
                libc::SYS_ioctl,
                [0, 0x4008_7602, 0, 0],
                unsupported,
            ),
            (full, MACHINE, x32, NONE, unknown),
            (full, I386, libc::SYS_read, NONE, unknown),
            (plain, I386, libc::SYS_read, NONE, allowed),
            (plain, I386, 288, NONE, unknown),
            (plain, 0x1234, 288, NONE, allowed),
            (plain, MACHINE, libc::SYS_keyctl, NONE, unknown),
            (open, MACHINE, libc::SYS_add_key, NONE, unknown),
            (full, MACHINE, socket, stream(0), allowed),
            (full, MACHINE, socket, stream(6), allowed),
            (full, MACHINE, socket, stream(262), no_protocol),
            (open, MACHINE, socket, stream(262), allowed),
            (full, MACHINE, socket, [40, 1, 0, 0], no_protocol),
            (full, MACHINE, socket, [1, 1, 0, 0], allowed),
            (
                full,
                MACHINE,
                socket,
                [1, 2 | 0o2_000_000, 0, 0],
                refuse(libc::EACCES).k,
            ),
            (
                open,
                MACHINE,
                libc::SYS_socketpair,
                [1, 2, 0, 0],
                refuse(libc::EACCES).k,
            ),
            (open, MACHINE, socket, [2, 2, 17, 0], allowed),
            (plain, MACHINE, socket, [1, 2, 0, 0], allowed),
            (full, MACHINE, libc::SYS_sendto, [0, 0, 0, 0x4000], allowed),
            (
                full,
                MACHINE,
                libc::SYS_sendto,
                [0, 0, 0, 0x2000_4000],
                unsupported,
            ),
            (
                full,
                MACHINE,
                libc::SYS_sendmsg,
                [0, 0, FAST_OPEN, 0],
                unsupported,
            ),
            (
                open,
                MACHINE,
                libc::SYS_sendmmsg,
                [0, 0, 0, FAST_OPEN],
                allowed,
            ),
        ] {
            let found = answer(rules, machine, number, args);
            assert_eq!(found, expected, "{rules:?} {machine:x} {number} {args:x?}");
        }
    }
}
