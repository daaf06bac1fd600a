//! The listeners of a namespace go to the proxy outside of it, over the Unix socket that is bound in.

use std::io::{self, IoSlice, IoSliceMut, Read as _, Write as _};
use std::mem::MaybeUninit;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};

/// Both sides are there, so that this is never reached.
const LIMIT: Duration = Duration::from_secs(10);

/// The number of the listener for requests; the others are those of [`ProxyEntry`]'s places, from 1.
const REQUESTS: u8 = 0;

/// What follows the last listener.
const NO_MORE: u8 = u8::MAX;

/// So many places are passed on at most.
pub(crate) const MAX_PLACES: usize = 32;

/// What a child is told about its way out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProxyEntry {
    /// Where requests go.
    pub address: SocketAddr,
}

/// Makes the listeners in the namespace of this process and hands them over.
pub fn enter(socket: &Path) -> io::Result<ProxyEntry> {
    let stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(LIMIT))?;
    stream.set_write_timeout(Some(LIMIT))?;
    let places = read_places(&stream)?;
    let requests = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let address = requests.local_addr()?;
    send(&stream, REQUESTS, Some(&requests))?;
    for (number, place) in (1..).zip(places) {
        // A port that only root may have, or no version 6: then it is not there.
        if let Ok(listener) = TcpListener::bind(place) {
            send(&stream, number, Some(&listener))?;
        }
    }
    send(&stream, NO_MORE, None)?;
    // Only when the proxy has them all may the program begin.
    (&stream).read_exact(&mut [0])?;
    Ok(ProxyEntry { address })
}

/// The listeners as the proxy gets them.
pub(crate) struct GivenListeners {
    pub(crate) requests: TcpListener,
    pub(crate) forwards: Vec<(TcpListener, SocketAddr)>,
}

/// The proxy's side.
pub(crate) fn take(stream: &UnixStream, places: &[SocketAddr]) -> io::Result<GivenListeners> {
    stream.set_read_timeout(Some(LIMIT))?;
    stream.set_write_timeout(Some(LIMIT))?;
    let mut line: Vec<String> = places.iter().map(SocketAddr::to_string).collect();
    line.push("\n".to_owned());
    (&*stream).write_all(line.join(" ").as_bytes())?;
    let mut requests = None;
    let mut forwards = Vec::new();
    loop {
        match receive(stream)? {
            (NO_MORE, _) => break,
            (REQUESTS, Some(listener)) => requests = Some(listener),
            (number, Some(listener)) => {
                let place = places.get(usize::from(number) - 1);
                let place = place.ok_or(io::ErrorKind::InvalidData)?;
                forwards.push((listener, *place));
            }
            (_, None) => return Err(io::ErrorKind::InvalidData.into()),
        }
    }
    (&*stream).write_all(&[1])?;
    Ok(GivenListeners {
        requests: requests.ok_or(io::ErrorKind::InvalidData)?,
        forwards,
    })
}

fn read_places(mut stream: &UnixStream) -> io::Result<Vec<SocketAddr>> {
    let mut line = Vec::new();
    let mut byte = [0];
    while line.len() < 4096 {
        stream.read_exact(&mut byte)?;
        if byte[0] == b'\n' {
            let text = String::from_utf8_lossy(&line).into_owned();
            let parse = |word: &str| word.parse().map_err(|_| io::ErrorKind::InvalidData.into());
            return text.split_whitespace().map(parse).collect();
        }
        line.push(byte[0]);
    }
    Err(io::ErrorKind::InvalidData.into())
}

fn send(stream: &UnixStream, number: u8, listener: Option<&TcpListener>) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let fds = listener.map(|listener| [listener.as_fd()]);
    if let Some(fds) = &fds {
        control.push(SendAncillaryMessage::ScmRights(fds));
    }
    let bytes = [number];
    sendmsg(
        stream,
        &[IoSlice::new(&bytes)],
        &mut control,
        SendFlags::NOSIGNAL,
    )?;
    Ok(())
}

fn receive(stream: &UnixStream) -> io::Result<(u8, Option<TcpListener>)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    let received = recvmsg(
        stream,
        &mut [IoSliceMut::new(&mut byte)],
        &mut control,
        RecvFlags::CMSG_CLOEXEC,
    )?;
    let mut fds: Vec<OwnedFd> = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            fds.extend(rights);
        }
    }
    if received.bytes == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok((byte[0], fds.pop().map(TcpListener::from)))
}
