//! Clients that are slow, huge, half-open or hostile, against the real proxy over real sockets.
#![allow(clippy::unwrap_used)]

use std::io::{self, Read as _, Write as _};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use runner_proxy::{HostList, ProxyLimits, ProxyServer};

/// Longer than anything takes on a loaded machine: reaching it is a failure.
const LONG: Duration = Duration::from_secs(60);

#[derive(Clone, Default)]
struct SharedText(Arc<Mutex<Vec<u8>>>);

impl io::Write for SharedText {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

struct Stage {
    address: SocketAddr,
    told: SharedText,
}

impl Stage {
    fn new(hosts: &[String], limits: ProxyLimits) -> Self {
        let told = SharedText::default();
        let hosts = HostList::parse(hosts).unwrap();
        let proxy = ProxyServer::with_resolver(hosts, limits, Box::new(told.clone()), resolve);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        // It ends with the tests.
        std::thread::spawn(move || proxy.serve(&listener));
        Stage { address, told }
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(LONG)).unwrap();
        stream.set_write_timeout(Some(LONG)).unwrap();
        stream
    }

    /// All that comes back for these bytes.
    fn answer(&self, bytes: &[u8]) -> String {
        let mut stream = self.connect();
        // What is refused early may break the pipe.
        let _ = stream.write_all(bytes);
        read_all(&mut stream)
    }

    fn told(&self) -> String {
        String::from_utf8(self.told.0.lock().unwrap().clone()).unwrap()
    }
}

fn read_all(stream: &mut TcpStream) -> String {
    let mut all = Vec::new();
    let _ = stream.read_to_end(&mut all);
    String::from_utf8_lossy(&all).into_owned()
}

/// Names whose addresses the tests choose.
fn resolve(name: &str, _: u16) -> io::Result<Vec<IpAddr>> {
    static TURN: AtomicUsize = AtomicUsize::new(0);
    let addresses: &[&str] = match name {
        "localhost" | "loop.test" => &["127.0.0.1"],
        "rebinding.example.org" => {
            // Another answer each time: nobody may ask twice.
            if TURN.fetch_add(1, Ordering::Relaxed) == 0 {
                &["10.0.0.1"]
            } else {
                &["127.0.0.1"]
            }
        }
        "private.example.org" => &["10.1.2.3"],
        "mapped.example.org" => &["::ffff:127.0.0.1"],
        "nat64.example.org" => &["64:ff9b::a9fe:a9fe"],
        "metadata.test" => &["169.254.169.254"],
        _ => return Err(io::ErrorKind::NotFound.into()),
    };
    Ok(addresses.iter().map(|it| it.parse().unwrap()).collect())
}

/// A server that sends back what it gets, and counts its clients.
fn echo() -> (u16, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let clients = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&clients);
    std::thread::spawn(move || {
        for client in listener.incoming() {
            counted.fetch_add(1, Ordering::Relaxed);
            let mut client = client.unwrap();
            std::thread::spawn(move || {
                let mut reader = client.try_clone().unwrap();
                let _ = io::copy(&mut reader, &mut client);
                let _ = client.shutdown(Shutdown::Write);
            });
        }
    });
    (port, clients)
}

fn local(port: u16) -> Vec<String> {
    vec![format!("localhost:{port}"), format!("127.0.0.1:{port}")]
}

fn connect_head(target: &str) -> Vec<u8> {
    format!("CONNECT {target} HTTP/1.1\r\nHost: x\r\n\r\n").into_bytes()
}

const OPENED: &str = "HTTP/1.1 200 Connection established\r\n\r\n";

#[test]
fn a_tunnel_passes_everything_on_both_ways_and_ends() {
    let (port, _) = echo();
    let stage = Stage::new(&local(port), ProxyLimits::default());
    // The first bytes come right behind the head.
    let mut bytes = connect_head(&format!("localhost:{port}"));
    bytes.extend_from_slice(b"early ");
    let mut stream = stage.connect();
    stream.write_all(&bytes).unwrap();
    let much: Vec<u8> = (0..3_000_000_u32).map(|n| n.to_le_bytes()[0]).collect();
    let mut writer = stream.try_clone().unwrap();
    let sent = much.clone();
    let thread = std::thread::spawn(move || {
        writer.write_all(&sent).unwrap();
        // Half of it ends, the other half still comes back.
        writer.shutdown(Shutdown::Write).unwrap();
    });
    let mut back = Vec::new();
    stream.read_to_end(&mut back).unwrap();
    thread.join().unwrap();
    let expected = [OPENED.as_bytes(), b"early ", &much].concat();
    assert_eq!(back.len(), expected.len());
    assert!(back == expected);
    assert_eq!(stage.told(), "");
}

#[test]
fn what_is_not_listed_is_never_connected_to() {
    let (port, clients) = echo();
    let (listed, _) = echo();
    let mut hosts = local(listed);
    let ported = |name: &str| format!("{name}:{port}");
    hosts.extend([
        ported("*.example.org"),
        ported("loop.test"),
        ported("metadata.test"),
    ]);
    let stage = Stage::new(&hosts, ProxyLimits::default());
    for (target, status) in [
        ("127.0.0.1", 403),
        ("localhost", 403),
        ("[::1]", 403),
        ("[::ffff:127.0.0.1]", 403),
        ("[::ffff:7f00:1]", 403),
        ("[64:ff9b::7f00:1]", 403),
        ("0.0.0.0", 403),
        ("[::]", 403),
        ("127.1", 400),
        ("2130706433", 400),
        ("0177.0.0.1", 400),
        ("0x7f000001", 400),
        ("0x7f.0.0.1", 400),
        ("127.0.0.1.", 403),
        ("127.0.0.1%00.example.org", 400),
        ("localhost#.example.org", 400),
        ("user@a.example.org", 400),
        ("a.example.org@127.0.0.1", 400),
        ("example.org", 403),
        ("unheard-of.example.org", 502),
        ("private.example.org", 403),
        ("mapped.example.org", 403),
        ("nat64.example.org", 403),
        ("metadata.test", 403),
        // Its answer would be another the second time.
        ("rebinding.example.org", 403),
        // Listed, and yet not where it leads.
        ("loop.test", 403),
    ] {
        let answer = stage.answer(&connect_head(&format!("{target}:{port}")));
        let expected = format!("HTTP/1.1 {status} ");
        assert!(answer.starts_with(&expected), "{target}: {answer}");
        let uri = format!("GET http://{target}:{port}/ HTTP/1.1\r\n\r\n");
        if target != "rebinding.example.org" {
            let answer = stage.answer(uri.as_bytes());
            assert!(answer.starts_with(&expected), "{target}: {answer}");
        }
    }
    assert_eq!(clients.load(Ordering::Relaxed), 0);
    let told = stage.told();
    let times = |text: &str| told.lines().filter(|line| *line == text).count();
    assert_eq!(
        times(&format!("127.0.0.1:{port}: not allowed")),
        1,
        "{told}"
    );
    assert_eq!(
        times(&format!(
            "private.example.org:{port} at 10.1.2.3 (private): not allowed"
        )),
        1,
        "{told}"
    );
    assert_eq!(
        times(&format!(
            "metadata.test:{port} at 169.254.169.254 (metadata): not allowed"
        )),
        1,
        "{told}"
    );
}

#[test]
fn heads_that_are_huge_slow_or_cut_off_are_refused_and_others_served() {
    let (port, _) = echo();
    let limits = ProxyLimits {
        head_time: Duration::from_millis(300),
        ..ProxyLimits::default()
    };
    let stage = Stage::new(&local(port), limits);
    let huge = format!(
        "GET http://localhost/ HTTP/1.1\r\nA: {}",
        "x".repeat(1 << 20)
    );
    assert!(stage.answer(huge.as_bytes()).starts_with("HTTP/1.1 431 "));
    let many = "A: b\r\n".repeat(100_000);
    let many = format!("GET http://localhost/ HTTP/1.1\r\n{many}");
    assert!(stage.answer(many.as_bytes()).starts_with("HTTP/1.1 431 "));
    assert!(stage.answer(&vec![0; 100_000]).starts_with("HTTP/1.1 431 "));
    // Nothing at all, and half a head: both are told that it took too long.
    assert!(stage.answer(b"").starts_with("HTTP/1.1 408 "));
    assert!(
        stage
            .answer(b"CONNECT localhost:")
            .starts_with("HTTP/1.1 408 ")
    );
    let mut cut = stage.connect();
    cut.write_all(b"CONNECT localhost:443 HT").unwrap();
    cut.shutdown(Shutdown::Write).unwrap();
    assert!(read_all(&mut cut).starts_with("HTTP/1.1 400 "));
    // Goes away at once.
    drop(stage.connect());
    let mut stream = stage.connect();
    stream
        .write_all(&connect_head(&format!("localhost:{port}")))
        .unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    assert_eq!(read_all(&mut stream), OPENED);
}

#[test]
fn an_idle_tunnel_ends() {
    let (port, _) = echo();
    let limits = ProxyLimits {
        idle_time: Duration::from_millis(200),
        ..ProxyLimits::default()
    };
    let stage = Stage::new(&local(port), limits);
    assert_eq!(
        stage.answer(&connect_head(&format!("localhost:{port}"))),
        OPENED
    );
}

#[test]
fn a_thousand_connections_leave_room_again() {
    let (port, _) = echo();
    let limits = ProxyLimits {
        connections: 32,
        ..ProxyLimits::default()
    };
    let stage = Stage::new(&local(port), limits);
    let mut refused = 0;
    let mut held = Vec::new();
    for _ in 0..1000 {
        let mut stream = stage.connect();
        if held.len() < 32 {
            held.push(stream);
            continue;
        }
        let answer = read_all(&mut stream);
        assert!(
            answer.is_empty() || answer.starts_with("HTTP/1.1 503 "),
            "{answer}"
        );
        refused += 1;
    }
    assert_eq!(refused, 1000 - 32);
    drop(held);
    // Those that went away are noticed, so that somebody gets through.
    let head = connect_head(&format!("localhost:{port}"));
    let served = || {
        let mut stream = stage.connect();
        stream.write_all(&head).unwrap();
        let _ = stream.shutdown(Shutdown::Write);
        read_all(&mut stream) == OPENED
    };
    let begun = std::time::Instant::now();
    while !served() {
        assert!(begun.elapsed() < LONG, "nobody is served any more");
        std::thread::yield_now();
    }
}

#[test]
fn nothing_behind_a_request_is_passed_on() {
    let (port, _) = echo();
    let stage = Stage::new(&local(port), ProxyLimits::default());
    let base = format!("http://localhost:{port}");
    let seen = |request: String| {
        let mut stream = stage.connect();
        stream.write_all(request.as_bytes()).unwrap();
        // The server sends back what it was sent, up to its end of patience.
        stream
            .set_read_timeout(Some(Duration::from_millis(300)))
            .unwrap();
        read_all(&mut stream)
    };
    let own = format!("Host: localhost:{port}\r\nConnection: close\r\n");
    let inner = "GET /inner HTTP/1.1\r\nHost: other\r\n\r\n";
    assert_eq!(
        seen(format!(
            "GET {base}/a HTTP/1.1\r\nHost: other\r\n\r\n{inner}"
        )),
        format!("GET /a HTTP/1.1\r\n{own}\r\n")
    );
    assert_eq!(
        seen(format!(
            "POST {base}/a HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc{inner}"
        )),
        format!("POST /a HTTP/1.1\r\n{own}content-length: 3\r\n\r\nabc")
    );
    let chunked = "2\r\nab\r\n0\r\n\r\n";
    assert_eq!(
        seen(format!(
            "POST {base}/a HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n{chunked}{inner}"
        )),
        format!("POST /a HTTP/1.1\r\n{own}transfer-encoding: chunked\r\n\r\n{chunked}")
    );
    for smuggled in [
        "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n",
        "Content-Length: 3\r\nContent-Length: 4\r\n",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n",
        "Transfer-Encoding : chunked\r\n",
        "Transfer-Encoding:\n chunked\r\n",
    ] {
        let answer = seen(format!("POST {base}/ HTTP/1.1\r\n{smuggled}\r\nabc"));
        assert!(
            answer.starts_with("HTTP/1.1 400 "),
            "{smuggled:?}: {answer}"
        );
    }
    let broken = seen(format!(
        "POST {base}/ HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"
    ));
    assert!(broken.starts_with("HTTP/1.1 400 "), "{broken}");
}

#[test]
fn a_server_that_is_gone_is_said_so() {
    let port = {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.local_addr().unwrap().port()
    };
    let stage = Stage::new(&local(port), ProxyLimits::default());
    let answer = stage.answer(&connect_head(&format!("localhost:{port}")));
    assert!(answer.starts_with("HTTP/1.1 502 "), "{answer}");
    assert_eq!(stage.told(), "");
}
