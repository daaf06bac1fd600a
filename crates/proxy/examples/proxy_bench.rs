//! What the proxy costs beside a bare relay of the same kind, by turns in the same run:
//! `cargo xtask bench proxy`.
#![allow(clippy::unwrap_used)] // A measurement that cannot go on has failed.

use std::io::{self, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use runner_proxy::{HostList, ProxyLimits, ProxyServer};

/// What goes through in one measurement.
const BYTES: usize = 512 << 20;
const PIECE: usize = 64 * 1024;

/// How many connections the first byte is measured with, each round.
const CONNECTIONS: usize = 200;

/// At least so much of the bare relay's throughput, and at most so much until the first byte.
const MIN_SHARE: f64 = 0.8;
const MAX_ADDED: Duration = Duration::from_millis(2);

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let has = |flag: &str| args.iter().any(|arg| arg == flag);
    let runs = args.iter().find_map(|arg| arg.strip_prefix("--runs="));
    let runs: usize = runs.and_then(|runs| runs.parse().ok()).unwrap_or(7);

    let server = source();
    let bare = bare_relay(server);
    let proxy = proxy(server);
    let head = format!("CONNECT {server} HTTP/1.1\r\nHost: {server}\r\n\r\n");
    // A round that does not count.
    let ways: [(&str, SocketAddr, &str); 2] = [("bare relay", bare, ""), ("proxy", proxy, &head)];
    let mut speeds = [Vec::new(), Vec::new()];
    let mut firsts = [Vec::new(), Vec::new()];
    for run in 0..=runs {
        for (number, (_, address, head)) in ways.iter().enumerate() {
            let speed = throughput(*address, head);
            let first = first_byte(*address, head);
            if run > 0 {
                speeds[number].push(speed);
                firsts[number].push(first);
            }
        }
    }
    let speeds = speeds.map(median);
    let firsts = firsts.map(median);
    let share = speeds[1] / speeds[0];
    let added = firsts[1] - firsts[0];
    let mut out = io::stdout().lock();
    let written = if has("--json") {
        writeln!(
            out,
            "{{\"relay_mib_s\":{:.0},\"proxy_mib_s\":{:.0},\"share\":{share:.3},\"relay_first_byte_us\":{:.0},\
             \"proxy_first_byte_us\":{:.0},\"added_us\":{:.0}}}",
            speeds[0],
            speeds[1],
            firsts[0] * 1e6,
            firsts[1] * 1e6,
            added * 1e6
        )
    } else {
        writeln!(
            out,
            "                    bare relay      proxy\n\
             throughput      {:>8.0} MiB/s {:>6.0} MiB/s   {share:.2} of it (aim: at least {MIN_SHARE})\n\
             first byte      {:>8.0} us    {:>6.0} us      {:+.0} us (aim: at most +{} us)",
            speeds[0],
            speeds[1],
            firsts[0] * 1e6,
            firsts[1] * 1e6,
            added * 1e6,
            MAX_ADDED.as_micros()
        )
    };
    let missed = share < MIN_SHARE || added > MAX_ADDED.as_secs_f64();
    if written.is_err() || (has("--check") && missed) {
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// A server: for the byte `b` it sends one back, for any other as much as is measured.
fn source() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for client in listener.incoming() {
            let mut client = client.unwrap();
            client.set_nodelay(true).unwrap();
            std::thread::spawn(move || {
                let mut asked = [0];
                if client.read_exact(&mut asked).is_err() {
                    return;
                }
                if asked == *b"b" {
                    let _ = client.write_all(b"b");
                    return;
                }
                let piece = vec![7; PIECE];
                for _ in 0..BYTES / PIECE {
                    if client.write_all(&piece).is_err() {
                        return;
                    }
                }
            });
        }
    });
    address
}

/// The least that passes bytes on both ways: two threads that read and write.
fn bare_relay(server: SocketAddr) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for client in listener.incoming() {
            let client = client.unwrap();
            std::thread::spawn(move || {
                let server = TcpStream::connect(server).unwrap();
                client.set_nodelay(true).unwrap();
                server.set_nodelay(true).unwrap();
                std::thread::scope(|scope| {
                    scope.spawn(|| pass_on(&client, &server));
                    pass_on(&server, &client);
                });
            });
        }
    });
    address
}

fn pass_on(mut from: &TcpStream, mut to: &TcpStream) {
    let mut buffer = vec![0; PIECE];
    while let Ok(count @ 1..) = from.read(&mut buffer) {
        if to.write_all(&buffer[..count]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Write);
}

fn proxy(server: SocketAddr) -> SocketAddr {
    let hosts = HostList::parse(&[server.to_string()]).unwrap();
    let proxy = ProxyServer::new(hosts, ProxyLimits::default(), Box::new(io::sink()));
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || proxy.serve(&listener));
    address
}

/// A connection to the server, whichever way.
fn open(address: SocketAddr, head: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_nodelay(true).unwrap();
    stream.write_all(head.as_bytes()).unwrap();
    let mut answer = Vec::new();
    let mut byte = [0];
    while !head.is_empty() && !answer.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte).unwrap();
        answer.push(byte[0]);
    }
    stream
}

/// MiB a second.
#[allow(clippy::cast_precision_loss)]
fn throughput(address: SocketAddr, head: &str) -> f64 {
    let mut stream = open(address, head);
    let begun = Instant::now();
    stream.write_all(b"a").unwrap();
    let mut buffer = vec![0; PIECE];
    let mut read = 0;
    while read < BYTES {
        read += stream.read(&mut buffer).unwrap();
    }
    (read as f64) / f64::from(1 << 20) / begun.elapsed().as_secs_f64()
}

/// From nothing to the first byte of the server's, in seconds; the median.
fn first_byte(address: SocketAddr, head: &str) -> f64 {
    let times = (0..CONNECTIONS).map(|_| {
        let begun = Instant::now();
        let mut stream = open(address, head);
        stream.write_all(b"b").unwrap();
        stream.read_exact(&mut [0]).unwrap();
        begun.elapsed().as_secs_f64()
    });
    median(times.collect())
}
