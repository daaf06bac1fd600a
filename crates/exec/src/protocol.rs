//! The lines that runner and supervisor exchange over their socket.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};

use crate::os;

/// A supervisor that does not listen for so long will never do.
const ORDER_LIMIT: Duration = Duration::from_secs(10);

/// No line is longer; a peer that sends more is not ours.
const MAX_LINE: usize = 64 * 1024;

/// From the supervisor to the runner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Event {
    /// The program runs.
    Started(u32),
    /// The program could not be started. The errno is 0 where it is not about the program itself.
    Failed { errno: i32, message: String },
    /// The program ended with a code.
    Exited(i32),
    /// The program was ended by a signal.
    Signaled(i32),
    /// Nothing is left (except `survivors`, which nothing could end): the supervisor's last word.
    Ended { killed: u32, survivors: u32 },
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Started(pid) => write!(f, "started {pid}"),
            Self::Failed { errno, message } => {
                write!(f, "failed {errno} {}", message.replace('\n', " "))
            }
            Self::Exited(code) => write!(f, "exited {code}"),
            Self::Signaled(signal) => write!(f, "signaled {signal}"),
            Self::Ended { killed, survivors } => write!(f, "ended {killed} {survivors}"),
        }
    }
}

impl Event {
    pub(crate) fn parse(line: &str) -> Option<Self> {
        let (word, rest) = line.split_once(' ')?;
        Some(match word {
            "started" => Self::Started(rest.parse().ok()?),
            "failed" => {
                let (errno, message) = rest.split_once(' ')?;
                Self::Failed {
                    errno: errno.parse().ok()?,
                    message: message.to_owned(),
                }
            }
            "exited" => Self::Exited(rest.parse().ok()?),
            "signaled" => Self::Signaled(rest.parse().ok()?),
            "ended" => {
                let (killed, survivors) = rest.split_once(' ')?;
                Self::Ended {
                    killed: killed.parse().ok()?,
                    survivors: survivors.parse().ok()?,
                }
            }
            _ => return None,
        })
    }
}

/// From the runner to the supervisor. A closed socket means [`Request::Kill`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Request {
    /// SIGTERM to all, grace, SIGKILL.
    End,
    /// SIGKILL at once.
    Kill,
}

impl fmt::Display for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::End => "end",
            Self::Kill => "kill",
        })
    }
}

impl Request {
    pub(crate) fn parse(line: &str) -> Option<Self> {
        match line {
            "end" => Some(Self::End),
            "kill" => Some(Self::Kill),
            _ => None,
        }
    }
}

/// What a supervisor shall run: the runner's first word, which is not a line but a list of options,
/// each with its length, because it may be long and hold anything.
#[derive(Debug, Default)]
pub(crate) struct Order(Vec<u8>);

impl Order {
    pub(crate) fn option(&mut self, name: &str, value: &(impl AsRef<OsStr> + ?Sized)) {
        self.word(OsStr::new(name));
        self.word(value.as_ref());
    }

    /// Comes last.
    pub(crate) fn argv(&mut self, argv: &[OsString]) {
        self.word(OsStr::new("--"));
        for word in argv {
            self.word(word);
        }
    }

    fn word(&mut self, word: &OsStr) {
        let bytes = word.as_bytes();
        self.0.extend_from_slice(&bytes.len().to_ne_bytes());
        self.0.extend_from_slice(bytes);
    }

    fn parse(mut bytes: &[u8]) -> Option<Vec<OsString>> {
        let mut words = Vec::new();
        while !bytes.is_empty() {
            let (len, rest) = bytes.split_at_checked(LENGTH)?;
            let (word, rest) = rest.split_at_checked(length(len)?)?;
            words.push(OsStr::from_bytes(word).to_owned());
            bytes = rest;
        }
        Some(words)
    }
}

/// Both ends are the same binary: no need to agree about the order of bytes.
const LENGTH: usize = size_of::<usize>();

fn length(bytes: &[u8]) -> Option<usize> {
    Some(usize::from_ne_bytes(bytes.try_into().ok()?))
}

/// One end of the socket.
#[derive(Debug)]
pub(crate) struct Control {
    socket: UnixStream,
    partial: Vec<u8>,
    closed: bool,
}

impl Control {
    pub(crate) fn new(socket: UnixStream) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        Ok(Self {
            socket,
            partial: Vec::new(),
            closed: false,
        })
    }

    /// The other end is gone: nothing will come any more.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed
    }

    /// A few dozen bytes, which the socket always has room for. That the other end is gone shows when
    /// reading, so that errors need no second way of handling here.
    pub(crate) fn send(&self, message: impl fmt::Display) {
        let line = format!("{message}\n");
        let _ = rustix::net::send(&self.socket, line.as_bytes(), SendFlags::NOSIGNAL);
    }

    /// Waits until all of it is on its way.
    pub(crate) fn send_order(&self, order: &Order) -> io::Result<()> {
        let mut bytes = order.0.len().to_ne_bytes().to_vec();
        bytes.extend_from_slice(&order.0);
        let mut left = bytes.as_slice();
        let give_up_at = Instant::now() + ORDER_LIMIT;
        while !left.is_empty() {
            match rustix::net::send(&self.socket, left, SendFlags::NOSIGNAL) {
                Ok(sent) => left = &left[sent..],
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => {
                    let mut fds = [PollFd::new(&self.socket, PollFlags::OUT)];
                    let ready = os::poll_until(&mut fds, Some(give_up_at))?;
                    if !ready && Instant::now() >= give_up_at {
                        return Err(Errno::TIMEDOUT.into());
                    }
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Waits for the order; none if the other end is gone.
    pub(crate) fn receive_order(&mut self) -> Option<Vec<OsString>> {
        let len = length(&self.receive_exactly(LENGTH)?)?;
        Order::parse(&self.receive_exactly(len)?)
    }

    fn receive_exactly(&mut self, len: usize) -> Option<Vec<u8>> {
        let mut bytes = vec![0; len];
        let mut filled = 0;
        while filled < len {
            match rustix::net::recv(&self.socket, &mut bytes[filled..], RecvFlags::empty()) {
                Ok((0, _)) => return None,
                Ok((count, _)) => filled += count,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => {
                    os::poll_until(&mut [os::readable(self.socket.as_fd())], None).ok()?;
                }
                Err(_) => return None,
            }
        }
        Some(bytes)
    }

    /// The whole lines that have arrived; never blocks.
    pub(crate) fn receive(&mut self) -> Vec<String> {
        let mut buffer = [0; 1024];
        while !self.closed {
            match rustix::net::recv(&self.socket, &mut buffer[..], RecvFlags::empty()) {
                Ok((0, _)) => self.closed = true,
                Ok((len, _)) => self.partial.extend_from_slice(&buffer[..len]),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => break,
                // ECONNRESET: the other end died with something of ours unread.
                Err(_) => self.closed = true,
            }
            self.closed |= self.partial.len() > MAX_LINE;
        }
        let whole = self
            .partial
            .iter()
            .rposition(|byte| *byte == b'\n')
            .map_or(0, |at| at + 1);
        let lines: Vec<u8> = self.partial.drain(..whole).collect();
        String::from_utf8_lossy(&lines)
            .lines()
            .map(str::to_owned)
            .collect()
    }
}

impl AsFd for Control {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_survive_the_way() {
        let events = [
            Event::Started(7),
            Event::Failed {
                errno: 2,
                message: "cannot start `x y`: no".to_owned(),
            },
            Event::Exited(255),
            Event::Signaled(9),
            Event::Ended {
                killed: 3,
                survivors: 1,
            },
        ];
        for event in events {
            assert_eq!(Event::parse(&event.to_string()), Some(event));
        }
        for request in [Request::End, Request::Kill] {
            assert_eq!(Request::parse(&request.to_string()), Some(request));
        }
        for line in ["", "started", "started x", "failed 2", "ended 1", "other 1"] {
            assert_eq!(Event::parse(line), None, "{line}");
        }
    }

    #[test]
    fn lines_come_whole_and_the_end_is_seen() {
        let (here, there) = UnixStream::pair().unwrap();
        let mut here = Control::new(here).unwrap();
        assert_eq!(here.receive(), [""; 0]);
        let say = |text: &str| rustix::io::write(&there, text.as_bytes()).unwrap();
        say("started 1\nexi");
        assert_eq!(here.receive(), ["started 1"]);
        say("ted 0\n");
        assert_eq!(here.receive(), ["exited 0"]);
        assert!(!here.is_closed());
        say("ended 0 0\n");
        drop(there);
        assert_eq!(here.receive(), ["ended 0 0"]);
        assert!(here.is_closed());
        here.send(Request::End);
    }

    #[test]
    fn an_order_of_any_length_comes_whole_and_lines_after_it() {
        let (here, there) = UnixStream::pair().unwrap();
        let here = Control::new(here).unwrap();
        let mut there = Control::new(there).unwrap();
        let long = "x".repeat(3_000_000);
        let expected = ["--env", &long, "--", "a\nb", ""].map(OsString::from);
        let listener = std::thread::spawn(move || {
            let order = there.receive_order();
            while there.partial.is_empty() && !there.is_closed() {
                let lines = there.receive();
                if !lines.is_empty() {
                    return (order, lines);
                }
            }
            (order, Vec::new())
        });
        let mut order = Order::default();
        order.option("--env", &long);
        order.argv(&["a\nb".into(), "".into()]);
        here.send_order(&order).unwrap();
        here.send(Request::End);
        let (order, lines) = listener.join().unwrap();
        assert_eq!(order.unwrap(), expected);
        assert_eq!(lines, ["end"]);
    }

    #[test]
    fn no_order_comes_from_one_who_is_gone() {
        let (here, there) = UnixStream::pair().unwrap();
        let mut here = Control::new(here).unwrap();
        rustix::io::write(&there, &[1, 0]).unwrap();
        drop(there);
        assert_eq!(here.receive_order(), None);
        assert_eq!(Order::parse(&[9, 0, 0, 0, 0, 0, 0, 0, 1]), None);
    }

    #[test]
    fn a_newline_in_a_name_stays_one_message() {
        let failed = Event::Failed {
            errno: 2,
            message: "a\nb".to_owned(),
        };
        assert_eq!(failed.to_string(), "failed 2 a b");
    }
}
