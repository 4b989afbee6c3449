use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};

use super::*;
use crate::http::REQUEST;
use crate::process_stats::ProcessStats;
use crate::stats::{PortStats, Snapshot};

/// Answers for a lab while `f` queries its server, also by its socket.
fn with_server(at: &Addresses, f: impl FnOnce(&mut Server, &str)) {
    let directory = tempfile::tempdir().expect("a directory");
    let place = directory.path().join("stats").to_str().expect("UTF-8").to_owned();
    let board = Arc::new(Board::default());
    let mut server = Server::bind(board.clone(), &place, at).expect("a server");
    server.history.push_back(Point { delivered_bytes: 7, ..Point::default() });
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                if board.is_requested() {
                    let port = PortStats { from: "h0".into(), to: "s0".into(), bytes: 99, ..PortStats::default() };
                    let process = ProcessStats { pid: std::process::id(), ..ProcessStats::default() };
                    let stats = Stats { hosts: 1, ports: vec![port], processes: vec![process], ..Stats::default() };
                    board.answer(Snapshot { stats, shown: vec![None], ..Snapshot::default() });
                }
                std::thread::yield_now();
            }
        });
        // A failure must not wait for the answering thread.
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| f(&mut server, &place)));
        done.store(true, Ordering::Relaxed);
        outcome.unwrap_or_else(|why| std::panic::resume_unwind(why));
    });
}

fn loopback() -> Option<SocketAddr> {
    Some(SocketAddr::from(([127, 0, 0, 1], 0)))
}

fn connect(server: &Server, place: usize) -> TcpStream {
    let Listener::Tcp(listener, _) = &server.listeners[place].0 else { panic!("not TCP") };
    TcpStream::connect(listener.local_addr().unwrap()).expect("it listens")
}

/// Runs the server until a client has its answer.
fn answer(server: &mut Server, mut client: impl Read + Send) -> String {
    std::thread::scope(|scope| {
        let reads = scope.spawn(move || {
            let mut answer = String::new();
            client.read_to_string(&mut answer).expect("an answer");
            answer
        });
        while !reads.is_finished() {
            server.turn(Some(Instant::now() + Duration::from_millis(10)));
        }
        reads.join().expect("no panic")
    })
}

/// The answer of the listener at `place`: status, head, and body.
fn ask(server: &mut Server, place: usize, request: &[u8]) -> (String, String, String) {
    let mut client = connect(server, place);
    client.write_all(request).unwrap();
    let answer = answer(server, client);
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
    let status = head.split(' ').nth(1).unwrap_or_default().to_owned();
    (status, head.to_owned(), body.to_owned())
}

fn get(path: &str, host: &str) -> Vec<u8> {
    format!("GET {path} HTTP/1.1\r\nAccept: */*\r\nHost: {host}\r\n\r\n").into_bytes()
}

#[test]
fn a_browser_has_the_page_and_the_snapshot_and_nothing_else() {
    let at = Addresses { live: loopback(), ..Addresses::default() };
    with_server(&at, |server, _| {
        let (status, head, body) = ask(server, 1, &get("/", "localhost:80"));
        assert!(status == "200" && head.contains("text/html") && body.ends_with("</html>\n"), "{status} {head}");
        assert!(head.contains(&format!("Content-Length: {}", body.len())) && body == PAGE, "{head}");
        let (status, _, body) = ask(server, 1, &get("/stats.json?now", "127.0.0.1"));
        let stats: Stats = serde_json::from_str(&body).expect("JSON");
        assert_eq!((status.as_str(), stats.ports[0].bytes, stats.history[0].delivered_bytes), ("200", 99, 7));
        assert_eq!(stats.processes.len(), 1);
        for path in ["/metrics", "/../etc/passwd", "/favicon.ico", "//"] {
            assert_eq!(ask(server, 1, &get(path, "[::1]:80")).0, "404", "{path}");
        }
    });
}

#[test]
fn what_is_no_request_of_the_machines_own_is_refused() {
    let at = Addresses { live: loopback(), ..Addresses::default() };
    with_server(&at, |server, _| {
        for (request, status) in [
            (get("/stats.json", "rebound.example"), "403"),
            (b"POST /stats.json HTTP/1.1\r\n\r\n".to_vec(), "405"),
            (b"nonsense\r\n\r\n".to_vec(), "400"),
            (b"GET / SPDY/1\r\n\r\n".to_vec(), "400"),
            ([b"GET / HTTP/1.1\r\n".as_slice(), &vec![b'x'; REQUEST]].concat(), "431"),
        ] {
            assert_eq!(ask(server, 1, &request).0, status, "{}", String::from_utf8_lossy(&request[..9]));
        }
        // A client that sends nothing and disconnects blocks no other.
        drop(connect(server, 1));
        assert_eq!(ask(server, 1, &get("/", "localhost")).0, "200");
    });
}

#[test]
fn metrics_have_an_address_of_their_own_or_the_pages() {
    let apart = Addresses { live: loopback(), metrics: loopback(), public: false, polls: false };
    // Port 0 twice is the same address.
    with_server(&apart, |server, _| {
        assert_eq!((server.listeners.len(), server.live()), (2, server.metrics()));
        let (status, head, body) = ask(server, 1, &get("/metrics", "localhost"));
        assert!(status == "200" && head.contains("text/plain; version=0.0.4"), "{head}");
        assert!(
            body.contains("node_infiniband_port_data_transmitted_bytes_total{device=\"h0\",port=\"1\"} 99\n"),
            "{body}"
        );
    });
    let alone = Addresses { metrics: loopback(), ..Addresses::default() };
    with_server(&alone, |server, _| {
        assert_eq!(
            ["/metrics", "/stats.json", "/"].map(|path| ask(server, 1, &get(path, "")).0),
            ["200", "404", "404"]
        );
    });
}

#[test]
fn the_socket_has_the_snapshot() {
    with_server(&Addresses::default(), |server, place| {
        let mut client = socket::connect(place).unwrap();
        client.write_all(b"GET /stats.json HTTP/1.1\r\n\r\n").unwrap();
        let answer = answer(server, client);
        assert!(answer.starts_with("HTTP/1.1 200 ") && answer.contains("\"bytes\":99"), "{answer}");
    });
}

#[test]
fn silent_clients_keep_nobody_waiting() {
    let at = Addresses { live: loopback(), ..Addresses::default() };
    with_server(&at, |server, place| {
        let began = Instant::now();
        // More clients than there are places for, and one with half a request.
        let mut half = connect(server, 1);
        half.write_all(b"GET /stats").unwrap();
        let silent: Vec<TcpStream> = (0..100)
            .map(|_| {
                let silent = connect(server, 1);
                server.turn(Some(Instant::now()));
                silent
            })
            .collect();
        assert_eq!(ask(server, 1, &get("/stats.json", "localhost")).0, "200");
        let mut own = socket::connect(place).unwrap();
        own.write_all(b"GET /stats.json HTTP/1.1\r\n\r\n").unwrap();
        assert!(answer(server, own).starts_with("HTTP/1.1 200 "));
        // Silent ones were evicted first; the one that had begun may continue, unless it has timed out meanwhile.
        half.write_all(b".json HTTP/1.1\r\n\r\n").unwrap();
        let late = began.elapsed() > Duration::from_secs(2);
        let heard = answer(server, half);
        assert!(heard.starts_with("HTTP/1.1 200 ") || late, "{heard}");
        assert!(server.listeners[1].1.polled().count() <= 64);
        drop(silent);
    });
}

#[test]
fn foreign_addresses_have_to_be_meant() {
    let foreign: SocketAddr = "0.0.0.0:8080".parse().unwrap();
    for (live, metrics) in [(Some(foreign), None), (None, Some(foreign))] {
        let why = Addresses { live, metrics, public: false, polls: false }.check().unwrap_err();
        assert!(why.contains("--live-public") && why.contains("0.0.0.0:8080"), "{why}");
        assert_eq!(Addresses { live, metrics, public: true, polls: false }.check(), Ok(()));
    }
    let own = ["127.0.0.1:1", "[::1]:1", "127.77.0.1:1"].map(|text| Some(text.parse().unwrap()));
    assert!(own.iter().all(|live| Addresses { live: *live, ..Addresses::default() }.check().is_ok()));
    for (host, own) in
        [("LOCALHOST:1", true), ("[::1]", true), ("10.0.0.1:9", true), ("a.b:1", false), ("127.0.0.1.a", false)]
    {
        assert_eq!(is_own_name(host), own, "{host}");
    }
}
