//! What a waiting system call asks for: numbers in, meaning out.

use runner_exec::os::seccomp::WaitingCall;
use rustix::fs::{Timespec, Timestamps, UTIME_NOW};
use rustix::io::Errno;

/// A call that the broker makes in a program's place.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum BrokeredCall {
    Change {
        target: CallTarget,
        change: AttributeChange,
    },
    Connect {
        socket: i32,
        address: u64,
        length: u64,
    },
}

/// What a call names. Addresses are the caller's.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum CallTarget {
    Descriptor(i32),
    Path {
        folder: i32,
        address: u64,
        follows_links: bool,
        /// An empty path stands for the folder itself, whatever it is.
        may_be_empty: bool,
    },
}

/// What is to be changed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum AttributeChange {
    Mode(u32),
    Owner(u32, u32),
    Times(TimesSource),
    Set {
        name: u64,
        value: u64,
        length: u64,
        flags: u32,
    },
    Remove {
        name: u64,
    },
}

/// Where times stand, and how they are written; address 0 is "now".
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TimesSource {
    address: u64,
    unit: TimesUnit,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TimesUnit {
    /// Seconds and nanoseconds, twice.
    Nanoseconds,
    /// Seconds and microseconds, twice.
    Microseconds,
    /// Seconds, twice.
    Seconds,
}

impl BrokeredCall {
    /// What the call means; `None`: it is none of those that the filter hands on.
    pub(crate) fn of(waiting: &WaitingCall) -> Option<Self> {
        let args = &waiting.args;
        let times = |index: usize, unit| {
            AttributeChange::Times(TimesSource {
                address: args[index],
                unit,
            })
        };
        let mode = |index: usize| AttributeChange::Mode(low(args[index]) & 0o7777);
        let owner = |index: usize| AttributeChange::Owner(low(args[index]), low(args[index + 1]));
        let set = || AttributeChange::Set {
            name: args[1],
            value: args[2],
            length: args[3],
            flags: low(args[4]),
        };
        let remove = || AttributeChange::Remove { name: args[1] };
        let path = |follows_links| CallTarget::Path {
            folder: libc::AT_FDCWD,
            address: args[0],
            follows_links,
            may_be_empty: false,
        };
        let descriptor = || CallTarget::Descriptor(signed(args[0]));
        let below = |flags: u64| CallTarget::Path {
            folder: signed(args[0]),
            address: args[1],
            follows_links: signed(flags) & libc::AT_SYMLINK_NOFOLLOW == 0,
            may_be_empty: signed(flags) & libc::AT_EMPTY_PATH != 0,
        };
        // Without a path it is about the descriptor.
        let maybe_below = |flags: u64| match args[1] {
            0 => descriptor(),
            _ => below(flags),
        };
        let (target, change) = match waiting.number {
            #[cfg(target_arch = "x86_64")]
            libc::SYS_chmod => (path(true), mode(1)),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_chown => (path(true), owner(1)),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_lchown => (path(false), owner(1)),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_utime => (path(true), times(1, TimesUnit::Seconds)),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_utimes => (path(true), times(1, TimesUnit::Microseconds)),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_futimesat => (maybe_below(0), times(2, TimesUnit::Microseconds)),
            libc::SYS_fchmod => (descriptor(), mode(1)),
            libc::SYS_fchmodat => (below(0), mode(2)),
            libc::SYS_fchmodat2 => (below(args[3]), mode(2)),
            libc::SYS_fchown => (descriptor(), owner(1)),
            libc::SYS_fchownat => (below(args[4]), owner(2)),
            libc::SYS_utimensat => (maybe_below(args[3]), times(2, TimesUnit::Nanoseconds)),
            libc::SYS_setxattr => (path(true), set()),
            libc::SYS_lsetxattr => (path(false), set()),
            libc::SYS_fsetxattr => (descriptor(), set()),
            libc::SYS_removexattr => (path(true), remove()),
            libc::SYS_lremovexattr => (path(false), remove()),
            libc::SYS_fremovexattr => (descriptor(), remove()),
            libc::SYS_connect => {
                return Some(Self::Connect {
                    socket: signed(args[0]),
                    address: args[1],
                    length: args[2],
                });
            }
            _ => return None,
        };
        Some(Self::Change { target, change })
    }
}

/// The half of a register that a call looks at.
#[allow(clippy::cast_possible_truncation)] // That is what the kernel does.
fn low(register: u64) -> u32 {
    register as u32
}

fn signed(register: u64) -> i32 {
    low(register).cast_signed()
}

impl TimesSource {
    /// The times, read from the caller's memory.
    pub(crate) fn read(
        &self,
        bytes: impl Fn(u64, usize) -> Result<Vec<u8>, Errno>,
    ) -> Result<Timestamps, Errno> {
        let now = Timespec {
            tv_sec: 0,
            tv_nsec: UTIME_NOW,
        };
        if self.address == 0 {
            return Ok(Timestamps {
                last_access: now,
                last_modification: now,
            });
        }
        let numbers = |count: usize| -> Result<Vec<i64>, Errno> {
            let bytes = bytes(self.address, count * 8)?;
            let words = bytes.chunks_exact(8);
            let words = words.filter_map(|word| Some(i64::from_ne_bytes(word.try_into().ok()?)));
            Ok(words.collect())
        };
        let pairs = match self.unit {
            TimesUnit::Seconds => {
                let found = numbers(2)?;
                [(found[0], 0), (found[1], 0)]
            }
            TimesUnit::Nanoseconds | TimesUnit::Microseconds => {
                let found = numbers(4)?;
                [(found[0], found[1]), (found[2], found[3])]
            }
        };
        let [last_access, last_modification] = pairs.map(|(seconds, fraction)| Timespec {
            tv_sec: seconds,
            tv_nsec: match self.unit {
                TimesUnit::Microseconds => fraction.saturating_mul(1000),
                _ => fraction,
            },
        });
        Ok(Timestamps {
            last_access,
            last_modification,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::call_filter::BROKERED;

    fn waiting(number: i64, args: [u64; 6]) -> WaitingCall {
        WaitingCall {
            id: 1,
            thread: 1,
            number,
            args,
        }
    }

    #[test]
    fn every_call_that_is_handed_on_has_a_meaning() {
        for number in BROKERED {
            assert!(
                BrokeredCall::of(&waiting(*number, [0; 6])).is_some(),
                "{number}"
            );
        }
        assert_eq!(BrokeredCall::of(&waiting(libc::SYS_read, [0; 6])), None);
    }

    #[test]
    fn arguments_of_calls() {
        let here = u64::from(libc::AT_FDCWD.cast_unsigned());
        let nofollow = u64::from(libc::AT_SYMLINK_NOFOLLOW.cast_unsigned());
        let empty = u64::from(libc::AT_EMPTY_PATH.cast_unsigned());
        let path = |folder, follows_links, may_be_empty| CallTarget::Path {
            folder,
            address: 7,
            follows_links,
            may_be_empty,
        };
        for (number, args, target, change) in [
            (
                libc::SYS_fchmodat,
                [here, 7, 0o100_755, 0x100, 0, 0],
                path(libc::AT_FDCWD, true, false),
                AttributeChange::Mode(0o755),
            ),
            (
                libc::SYS_fchmodat2,
                [3, 7, 0o755, nofollow, 0, 0],
                path(3, false, false),
                AttributeChange::Mode(0o755),
            ),
            (
                libc::SYS_fchownat,
                [3, 7, u64::MAX, 5, empty, 0],
                path(3, true, true),
                AttributeChange::Owner(u32::MAX, 5),
            ),
            (
                libc::SYS_utimensat,
                [4, 0, 9, 0, 0, 0],
                CallTarget::Descriptor(4),
                AttributeChange::Times(TimesSource {
                    address: 9,
                    unit: TimesUnit::Nanoseconds,
                }),
            ),
            (
                libc::SYS_lremovexattr,
                [7, 8, 0, 0, 0, 0],
                path(libc::AT_FDCWD, false, false),
                AttributeChange::Remove { name: 8 },
            ),
        ] {
            let found = BrokeredCall::of(&waiting(number, args)).unwrap();
            assert_eq!(found, BrokeredCall::Change { target, change });
        }
    }

    #[test]
    fn times_in_every_unit() {
        let memory = |_: u64, length: usize| {
            let words = [1_i64, 2, 3, 4].map(i64::to_ne_bytes).concat();
            Ok(words[..length].to_vec())
        };
        for (unit, expected) in [
            (TimesUnit::Nanoseconds, [(1, 2), (3, 4)]),
            (TimesUnit::Microseconds, [(1, 2000), (3, 4000)]),
            (TimesUnit::Seconds, [(1, 0), (2, 0)]),
        ] {
            let times = TimesSource { address: 8, unit }.read(memory).unwrap();
            let found = [times.last_access, times.last_modification];
            assert_eq!(found.map(|it| (it.tv_sec, it.tv_nsec)), expected);
        }
        let now = TimesSource {
            address: 0,
            unit: TimesUnit::Seconds,
        };
        let times = now.read(|_, _| Err(Errno::FAULT)).unwrap();
        assert_eq!(times.last_access.tv_nsec, UTIME_NOW);
    }
}
