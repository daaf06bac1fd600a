//! Passes bytes between two connections, both ways, within fixed limits.

use std::io::{self, Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;

use crate::body::RequestBody;

/// How much is held of one direction.
pub(crate) const BUFFER: usize = 64 * 1024;

/// So many buffers go one way before the other way has its turn.
const TURNS: usize = 16;

/// One direction.
struct ByteFlow<'a> {
    from: &'a TcpStream,
    to: &'a TcpStream,
    buffer: Vec<u8>,
    /// What of the buffer has been read and not written yet.
    held: std::ops::Range<usize>,
    /// How far it goes, where that is known.
    body: Option<RequestBody>,
    /// Nothing more is read.
    ended: bool,
    /// The other end was told so.
    closed: bool,
}

impl<'a> ByteFlow<'a> {
    fn new(from: &'a TcpStream, to: &'a TcpStream, first: Vec<u8>) -> Self {
        let held = 0..first.len();
        let mut buffer = first;
        if buffer.len() < BUFFER {
            buffer.resize(BUFFER, 0);
        }
        ByteFlow {
            from,
            to,
            buffer,
            held,
            body: None,
            ended: false,
            closed: false,
        }
    }

    fn wants_to_read(&self) -> bool {
        !self.ended && self.held.is_empty()
    }

    /// Its end came, and is not passed on yet.
    fn has_to_close(&self) -> bool {
        self.ended && self.held.is_empty() && !self.closed
    }

    /// Moves what can be moved without waiting. Whether anything was.
    fn go_on(&mut self) -> io::Result<bool> {
        let mut moved = false;
        for _ in 0..TURNS {
            while !self.held.is_empty() {
                match self.to.write(&self.buffer[self.held.clone()]) {
                    Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                    Ok(count) => {
                        self.held.start += count;
                        moved = true;
                    }
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(moved),
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(error) => return Err(error),
                }
            }
            if self.ended {
                // A request that is over leaves the way open: some servers take its end for a
                // client that went away.
                if !self.closed && self.body.is_none() {
                    let _ = self.to.shutdown(Shutdown::Write);
                }
                self.closed = true;
                return Ok(moved);
            }
            match self.from.read(&mut self.buffer) {
                Ok(0) => self.ended = true,
                Ok(count) => {
                    moved = true;
                    self.held = 0..count;
                    if let Some(body) = &mut self.body {
                        let taken = body
                            .take(&self.buffer[..count])
                            .map_err(|refusal| io::Error::other(refusal.words))?;
                        self.held = 0..taken;
                        self.ended = body.is_over();
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(moved),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(moved)
    }
}

/// What is passed on.
pub(crate) struct RelayInput<'a> {
    pub(crate) client: &'a TcpStream,
    pub(crate) server: &'a TcpStream,
    /// What the server gets first.
    pub(crate) first: Vec<u8>,
    /// How far the request goes; without it everything is passed on until both sides have ended.
    pub(crate) body: Option<RequestBody>,
    /// After so long without a byte it is over.
    pub(crate) idle: Duration,
}

/// Passes on until both sides have ended, one is broken, or nothing comes any more.
pub(crate) fn relay(input: RelayInput<'_>) -> io::Result<()> {
    let RelayInput { client, server, .. } = input;
    client.set_nonblocking(true)?;
    server.set_nonblocking(true)?;
    let is_request = input.body.is_some();
    let mut up = ByteFlow::new(client, server, input.first);
    up.ended = input.body.as_ref().is_some_and(RequestBody::is_over);
    up.body = input.body;
    let mut down = ByteFlow::new(server, client, Vec::new());
    let mut last = Instant::now();
    loop {
        let moved_up = up.go_on()?;
        let moved_down = down.go_on()?;
        if moved_up || moved_down {
            last = Instant::now();
        }
        // An answer that is over ends it, whatever is still coming.
        if down.closed && (up.closed || is_request) {
            return Ok(());
        }
        if up.has_to_close() || down.has_to_close() {
            continue;
        }
        let left = input.idle.saturating_sub(last.elapsed());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        wait(&up, &down, left)?;
    }
}

/// Waits until one of them can go on.
fn wait(up: &ByteFlow<'_>, down: &ByteFlow<'_>, left: Duration) -> io::Result<()> {
    let wanted = |reader: &ByteFlow<'_>, writer: &ByteFlow<'_>| {
        let mut flags = PollFlags::empty();
        flags.set(PollFlags::IN, reader.wants_to_read());
        flags.set(PollFlags::OUT, !writer.held.is_empty());
        flags
    };
    let (client, server) = (wanted(up, down), wanted(down, up));
    // Poll reports hang-ups that nobody asked for: a side that is not wanted is left out.
    let sides = [(up.from, client), (up.to, server)];
    let mut fds: Vec<PollFd<'_>> = sides
        .iter()
        .filter(|(_, flags)| !flags.is_empty())
        .map(|(stream, flags)| PollFd::new(*stream, *flags))
        .collect();
    let timeout = Timespec::try_from(left).ok();
    match rustix::event::poll(&mut fds, timeout.as_ref()) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
