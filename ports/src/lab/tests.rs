mod sleep;

use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use irnic_transports::telemetry::{Hop, Int};
use irnic_transports::{Path, Psn, Time};

use super::hello::{Request, Wish, hello, read_hello};
use super::member::{Kind, Tag, place};
use super::*;
use crate::host::{Slot, sys};
use crate::sheet::Sheet;
use crate::{Application, Port, RxIcrc, Timed, Turn, TxFrame};

/// Source host of a frame, its destination host, the time when it begins to leave, and its bytes.
type Collected = (u32, Option<u32>, u64, Vec<u8>);

struct Bench {
    server: LabServer,
    socket: PathBuf,
    _directory: tempfile::TempDir,
}

/// Returns a lab whose time waits for applications, at 5,000 ns.
fn patient(rates: &[u64]) -> Bench {
    bench_of(ServerConfig { waits: true, ..ServerConfig::new(rates.to_vec()) })
}

fn bench(rates: &[u64]) -> Bench {
    bench_of(ServerConfig::new(rates.to_vec()))
}

fn bench_of(config: ServerConfig) -> Bench {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("socket");
    let server = LabServer::open(&socket, &config).unwrap();
    // Time is stopped.
    server.set_limit(5_000);
    Bench { server, socket, _directory: directory }
}

impl Bench {
    /// Makes a call that needs the server's answer.
    fn attended<T: Send>(&mut self, call: impl FnOnce() -> T + Send) -> T {
        std::thread::scope(|scope| {
            let thread = scope.spawn(call);
            while !thread.is_finished() {
                self.server.attend();
                std::thread::yield_now();
            }
            thread.join().unwrap()
        })
    }

    fn spec(&self, host: Option<u32>) -> LabSpec {
        LabSpec { socket: self.socket.clone(), host }
    }

    fn enter(&mut self, host: u32) -> LabPort {
        let spec = self.spec(Some(host));
        self.attended(|| LabPort::open(&spec)).unwrap()
    }

    fn collected(&mut self) -> (u64, Vec<Collected>) {
        let mut frames = Vec::new();
        let need = self.server.collect(|l| frames.push((l.host, l.dst, l.start, l.frame.to_vec())));
        (need, frames)
    }

    /// Attends until a condition holds.
    fn until(&mut self, mut holds: impl FnMut(&mut LabServer) -> bool) {
        let begun = Instant::now();
        while !holds(&mut self.server) {
            assert!(begun.elapsed() < Duration::from_secs(10), "it does not come to that");
            self.server.attend();
        }
    }
}

fn address(host: u32) -> IpAddr {
    Addressing::Loopback.address(host)
}

/// Returns a frame to a queue pair, its number at its place in a BTH.
fn frame_to(qpn: u32, len: usize) -> Vec<u8> {
    let mut frame = vec![7; len];
    frame[4..8].copy_from_slice(&qpn.to_be_bytes());
    frame
}

fn arriving(src: u32, frame: &[u8]) -> Arriving<'_> {
    Arriving { src, udp_src: 0, traffic_class: 0, frame, telemetry: None, corrupted: false }
}

fn send(port: &mut LabPort, at: u64, dst: IpAddr, bytes: &[u8]) -> bool {
    let path = Path { src: address(0), dst, udp_src: 0xc0de, traffic_class: 0x62, hop_limit: 64 };
    let frame = TxFrame { path: &path, dest_qp: 1, len: bytes.len(), icrc: false, irn: true };
    port.transmit(Time(at), &frame, &mut |to| to.copy_from_slice(bytes))
}

fn received(port: &mut LabPort, now: u64) -> Vec<(u64, Path, Vec<u8>)> {
    let mut frames = Vec::new();
    let each = &mut |frame: crate::RxFrame<'_>| {
        assert_eq!(frame.icrc, RxIcrc::Absent);
        frames.push((frame.arrived.0, frame.path, frame.bytes.to_vec()));
    };
    port.receive(Time(now), 10, each).unwrap();
    frames
}

#[test]
fn labs_are_named_by_socket_and_host() {
    let spec = |socket: &str, host| LabSpec { socket: socket.into(), host };
    for (text, is) in [("/run/x", spec("/run/x", None)), ("/run/x,host=3", spec("/run/x", Some(3)))] {
        assert_eq!((text.parse(), is.to_string()), (Ok(is.clone()), text.to_owned()));
    }
    for text in ["", ",host=3", "/run/x,host=", "/run/x,host=-1"] {
        assert_eq!(text.parse::<LabSpec>(), Err(ParseLabSpecError), "{text}");
    }
    for (addressing, net) in [(Addressing::Loopback, 127), (Addressing::Detached, 10), (Addressing::Namespaces, 10)] {
        let address = |host| addressing.address(host);
        assert_eq!((address(0), address(300)), ([net, 77, 0, 1].into(), [net, 77, 1, 45].into()));
        let hosts = [address(299), address(300), [net, 77, 0, 0].into(), "::1".parse().unwrap()];
        assert_eq!(hosts.map(|a| addressing.host_of(a, 300)), [Some(299), None, None, None]);
    }
}

#[test]
fn greetings_are_of_this_version_or_none() {
    for (request, wish) in
        [(Request::Entry, Wish::Host(7)), (Request::Assignment, Wish::Any), (Request::Entry, Wish::Rank(3))]
    {
        assert_eq!(read_hello(&hello(request, wish)), Some((request, wish)));
    }
    let good = hello(Request::Entry, Wish::Any);
    assert_eq!(read_hello(&good[..15]), None);
    for (at, byte) in [(0, b'J'), (7, 99), (9, 3)] {
        let mut bad = good;
        bad[at] = byte;
        assert_eq!(read_hello(&bad), None, "{at}");
    }
}

#[test]
fn what_a_process_shows_is_read_and_outlives_it() {
    let mut bench = bench(&[10]);
    let (one, two) = (bench.enter(0), bench.enter(0));
    let name = format!("irnic-test-{}-shown", std::process::id());
    let address = <SocketAddr as std::os::linux::net::SocketAddrExt>::from_abstract_name(&name).unwrap();
    let page_socket = UnixDatagram::bind_addr(&address).unwrap();
    let mut sheet = Sheet::create(4).unwrap();
    sheet.write([1, 2, 3]);
    one.show(&sheet, &name).unwrap();
    // Anything but a sheet is ignored, and a second one is not accepted.
    let nothing = sys::memory(c"irnic-test", 4096).unwrap();
    sys::send(two.socket().as_fd(), b"nobody", &[nothing.as_fd()]).unwrap();
    let other = Sheet::create(4).unwrap();
    one.show(&other, "other").unwrap();
    bench.until(|server| server.members().any(|(_, member)| member.shown().is_some()));
    let shown: Vec<_> = bench.server.members().map(|(_, member)| member.shown().cloned()).collect();
    assert_eq!(shown.iter().flatten().count(), 1);
    let shown = shown[0].clone().unwrap();
    assert_eq!(shown.sheet.read(), Some(vec![1, 2, 3]));
    shown.request_update();
    assert_eq!(page_socket.recv(&mut [0; 8]).unwrap(), 0);
    sheet.write([4]);
    let slot = one.slot().number();
    drop((one, sheet, page_socket));
    // The process no longer responds.
    shown.request_update();
    bench.until(|server| server.departed().len() == 1);
    bench.server.close();
    let left: Vec<_> = bench.server.departed().map(|d| (d.number, d.slot == slot, d.numbers.as_deref())).collect();
    assert_eq!(left, [(0, true, Some(&[4][..])), (1, false, None)]);
}

#[test]
fn a_process_is_the_same_host_each_time() {
    let mut bench = bench(&[10, 20]);
    let any = bench.spec(None);
    let first = bench.attended(|| any.assign()).unwrap();
    assert_eq!(bench.attended(|| any.assign()).unwrap(), first);
    assert_eq!(first, Assignment { host: 0, hosts: 2, rate: 10, addressing: Addressing::Loopback });
    let port = bench.attended(|| LabPort::open(&any)).unwrap();
    assert_eq!(port.assignment(), first);
    let chosen = bench.spec(Some(1));
    assert_eq!(bench.attended(|| chosen.assign()).unwrap().rate, 20);
    let missing = bench.spec(Some(2));
    let why = bench.attended(|| missing.assign()).unwrap_err().to_string();
    assert!(why.ends_with("there is no host 2; expected 0 to 1"), "{why}");
    let nowhere = LabSpec { socket: "/nonexistent/socket".into(), host: None };
    let why = nowhere.assign().unwrap_err().to_string();
    assert!(why.starts_with("the lab at /nonexistent/socket: "), "{why}");
}

#[test]
fn frames_go_and_come_with_their_times() {
    let mut bench = bench(&[8_000_000_000; 3]);
    let (mut a, mut b) = (bench.enter(0), bench.enter(2));
    let bytes = frame_to(b.slot().first_qpn(), 954);
    assert!(send(&mut a, 700, address(2), &bytes));
    // 1000 bytes with what is around them, at 1 ns each.
    assert_eq!(a.free_at(), Time(1_700));
    assert!(send(&mut a, 1_700, "239.1.1.1".parse().unwrap(), &bytes[..54]));
    assert_eq!(a.free_at(), Time(1_800));
    assert!(send(&mut a, 1_800, "10.0.0.1".parse().unwrap(), &bytes), "taken, and gone");
    a.flush(Time(1_800)).unwrap();
    let expected = vec![(0, Some(2), 700, bytes.clone()), (0, None, 1_700, bytes[..54].to_vec())];
    assert_eq!(bench.collected(), (u64::MAX, expected));
    assert_eq!((a.counters().tx_frames, a.counters().tx_dropped), (2, 1));
    bench.server.set_rate(0, 4_000_000_000);
    assert!(send(&mut a, 10_000, address(2), &bytes));
    assert_eq!(a.free_at(), Time(12_000), "at half the rate");

    assert!(bench.server.deliver(2, 6_000, &Arriving { udp_src: 0xc0de, traffic_class: 0x63, ..arriving(0, &bytes) }));
    bench.server.pause(2, 6_500, 0x81);
    assert!(bench.server.deliver(2, 8_000, &Arriving { udp_src: 1, ..arriving(1, &bytes[..60]) }));
    assert_eq!(b.next_arrival(), Time::NEVER, "not published");
    bench.server.publish();
    assert_eq!(b.next_arrival(), Time(6_000));
    assert!(received(&mut b, 5_999).is_empty());
    let path = Path { src: address(0), dst: address(2), udp_src: 0xc0de, traffic_class: 0x63, hop_limit: 64 };
    assert_eq!(received(&mut b, 6_000), [(6_000, path, bytes.clone())]);
    assert_eq!((b.next_arrival(), b.paused()), (Time(6_500), 0));
    assert!(received(&mut b, 7_000).is_empty());
    assert_eq!((b.next_arrival(), b.paused()), (Time(8_000), 0x81));
    assert_eq!(bench.server.lateness(), Lateness { frames: 1, worst: 500, overrun: 0 }, "the notice was read late");
}

#[test]
fn telemetry_goes_with_one_frame_and_makes_it_longer() {
    let mut bench = bench(&[8_000_000_000; 2]);
    let (mut a, mut b) = (bench.enter(0), bench.enter(1));
    let bytes = frame_to(b.slot().first_qpn(), 954);
    a.attach(&Int::EMPTY);
    assert!(send(&mut a, 1_000, address(1), &bytes));
    assert_eq!(a.free_at(), Time(2_042), "1000 bytes and 42");
    assert!(send(&mut a, 2_042, address(1), &bytes));
    a.flush(Time(2_042)).unwrap();
    let mut seen = Vec::new();
    bench.server.collect(|leaving| seen.push((leaving.start, leaving.telemetry, leaving.frame == bytes)));
    assert_eq!(seen, [(1_000, Some(Int::EMPTY), true), (2_042, None, true)]);

    let mut int = Int::EMPTY;
    int.push(3, Hop { rate: 8_000_000_000, at: 1_500, sent: 7, queued: 8 });
    for telemetry in [Some(&int), None] {
        assert!(bench.server.deliver(1, 5_000, &Arriving { telemetry, ..arriving(0, &bytes) }));
    }
    bench.server.publish();
    for telemetry in [Some(int), None] {
        assert_eq!((b.next_arrival(), b.telemetry()), (Time(5_000), telemetry));
        let mut frames = 0;
        let each = &mut |frame: crate::RxFrame<'_>| frames += u32::from(frame.bytes == bytes);
        b.receive(Time(5_000), 1, each).unwrap();
        assert_eq!(frames, 1);
    }
}

#[test]
fn a_port_says_when_it_may_send() {
    let mut bench = bench(&[1_000_000_000; 2]);
    let (mut a, b) = (bench.enter(0), bench.enter(1));
    assert_eq!(bench.collected().0, u64::MAX, "nothing is posted");
    let Turn { from, now, .. } = a.begin();
    assert_eq!((from, now), (Time(5_000), Time(5_000)), "the limit");
    assert_eq!(bench.collected().0, 5_000, "it may send at once");
    a.end(Time(5_000), Time(9_000));
    assert_eq!(bench.collected().0, 9_000);
    // A frame that reaches it may be answered, until it has been.
    let bytes = frame_to(b.slot().first_qpn(), 54);
    bench.server.deliver(1, 4_000, &arriving(0, &bytes));
    bench.server.deliver(1, 4_800, &arriving(0, &bytes));
    bench.server.publish();
    assert_eq!(bench.collected().0, 4_000);
    let mut b = b;
    b.begin();
    assert_eq!(received(&mut b, 4_000).len(), 1);
    b.end(Time(4_000), Time::NEVER);
    assert_eq!(bench.collected().0, 4_800);
    b.begin();
    assert_eq!(received(&mut b, 4_800).len(), 1);
    b.end(Time(4_800), Time::NEVER);
    assert_eq!(bench.collected().0, 9_000);
    // A port whose own time has come continues from there, however late it is.
    bench.server.set_limit(50_000);
    while bench.server.now() < 50_000 {}
    let turn = a.begin();
    assert_eq!(turn, Turn { done: Time(5_000), from: Time(9_000), now: Time(50_000) });
}

#[test]
fn who_sleeps_is_woken_when_its_time_has_come() {
    let mut bench = bench(&[1_000_000_000]);
    let mut port = bench.enter(0);
    let readable = |port: &LabPort| {
        let mut poll = libc::pollfd { fd: port.wait_fd().unwrap(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one valid pollfd; returns at once.
        unsafe { libc::poll(&raw mut poll, 1, 0) == 1 }
    };
    port.begin();
    port.end(Time(5_000), Time(7_000));
    assert!(port.prepare_sleep(), "nothing to do at 5,000");
    assert_eq!((bench.server.wake(6_999), readable(&port)), (7_000, false));
    assert_eq!((bench.server.wake(7_000), readable(&port)), (7_000, true));
    port.cancel_sleep();
    assert!(!readable(&port));
    bench.server.set_limit(8_000);
    while bench.server.now() < 8_000 {}
    assert!(!port.prepare_sleep(), "it is due");
    // A frame also wakes it.
    port.begin();
    port.end(Time(8_000), Time::NEVER);
    assert!(port.prepare_sleep());
    bench.server.deliver(0, 8_000, &arriving(0, &frame_to(port.slot().first_qpn(), 54)));
    bench.server.publish();
    assert_eq!((bench.server.wake(8_000), readable(&port)), (8_000, true));
}

#[test]
fn processes_of_a_host_are_told_apart_by_queue_pair_numbers() {
    let mut bench = bench(&[1_000_000_000; 2]);
    let mut ports = [bench.enter(1), bench.enter(1), bench.enter(0)];
    let [a, b, other] = ports.each_ref().map(LabPort::slot);
    assert_ne!(a, b);
    assert_eq!(other, a, "another host");
    let missing = Slot::new(900).unwrap();
    let cases = [
        (a.first_qpn() + 5, true, [1, 0, 0]),
        (b.first_qpn(), true, [0, 1, 0]),
        (missing.first_qpn(), false, [0, 0, 0]),
        // Of no service, and of no communication id.
        (1, false, [0, 0, 0]),
        (0xff_ffff, true, [1, 1, 0]),
    ];
    for (at, (qpn, found, counts)) in (5_000..).zip(cases) {
        assert_eq!(bench.server.deliver(1, at, &arriving(0, &frame_to(qpn, 300))), found, "{qpn:#x}");
        bench.server.publish();
        assert_eq!(ports.each_mut().map(|port| received(port, at).len()), counts, "{qpn:#x}");
    }
    assert!(!bench.server.deliver(1, 6_000, &arriving(0, &[1; 7])), "too short");
    // The number of an ended process is not reused soon.
    drop(ports);
    bench.until(|server| server.members().count() == 0);
    assert!(![a, b].contains(&bench.enter(1).slot()));
}

#[test]
fn without_a_server_frames_are_lost_and_time_goes_on() {
    let mut bench = bench(&[1_000_000_000; 2]);
    let mut port = bench.enter(0);
    drop(bench);
    let mut poll = libc::pollfd { fd: port.wait_fd().unwrap(), events: libc::POLLIN, revents: 0 };
    // SAFETY: one valid pollfd; returns at once.
    assert_eq!(unsafe { libc::poll(&raw mut poll, 1, 0) }, 1);
    port.cancel_sleep();
    assert!(send(&mut port, 5_000, address(1), &[7; 54]));
    assert_eq!(port.counters().tx_dropped, 1);
    let turn = port.begin();
    port.end(turn.now, turn.now + 1_000_000);
    assert!(turn.now > Time(5_000), "past the limit");
    assert!(port.next_deadline() < Time::NEVER, "nobody wakes it");
    assert!(port.prepare_sleep());
}

#[test]
fn who_garbles_a_ring_leaves_the_lab() {
    let mut bench = bench(&[1_000_000_000; 2]);
    let (mut bad, mut good) = (bench.enter(0), bench.enter(1));
    send(&mut bad, 5_000, address(1), &[7; 54]);
    bad.flush(Time(5_000)).unwrap();
    bench.collected();
    bad.garble();
    bench.collected();
    assert_eq!(bench.server.members().map(|(_, member)| member.host).collect::<Vec<_>>(), [1]);
    // The other continues.
    send(&mut good, 5_000, address(0), &[7; 54]);
    good.flush(Time(5_000)).unwrap();
    assert_eq!(bench.collected().1.len(), 1);
}

#[test]
fn processes_hear_of_their_hosts_link_also_those_that_come_later() {
    let mut bench = bench(&[8_000_000_000; 2]);
    let mut early = bench.enter(0);
    bench.server.set_link(1, 500, false);
    bench.server.set_link(0, 1_000, false);
    bench.server.publish();
    assert!(received(&mut early, 999).is_empty() && early.link_is_up());
    assert!(received(&mut early, 1_000).is_empty() && !early.link_is_up());
    let mut late = bench.enter(0);
    assert!(!late.link_is_up());
    bench.server.set_link(0, 2_000, true);
    bench.server.set_link(0, 3_000, true);
    bench.server.publish();
    for port in [&mut early, &mut late] {
        assert!(received(port, 2_000).is_empty() && port.link_is_up());
        assert_eq!(port.next_arrival(), Time::NEVER, "it was up already");
    }
}

#[test]
fn tags_hold_what_they_are_given() {
    for (udp_src, traffic_class, kind, corrupted) in [
        (0xc0de, 0xff, Kind::Frame, false),
        (0, 1, Kind::Pause, false),
        (0, 1, Kind::Link, false),
        (7, 0x80, Kind::Frame, true),
    ] {
        for telemetry in [false, true] {
            let tag = Tag { udp_src, traffic_class, kind, corrupted, telemetry };
            assert_eq!(Tag::of(tag.word()), tag);
        }
    }
}

#[test]
fn a_frame_that_was_corrupted_has_an_icrc_that_does_not_hold() {
    let mut bench = bench(&[1_000_000_000; 2]);
    let mut port = bench.enter(1);
    let bytes = frame_to(port.slot().first_qpn(), 300);
    assert!(bench.server.deliver(1, 5_000, &Arriving { corrupted: true, ..arriving(0, &bytes) }));
    assert!(bench.server.deliver(1, 5_000, &arriving(0, &bytes)));
    bench.server.publish();
    let mut right = Vec::new();
    port.receive(Time(5_000), 10, &mut |frame| right.push(frame.icrc.is_right(&frame.path, frame.bytes))).unwrap();
    assert_eq!(right, [false, true]);
}

#[test]
fn a_frame_for_a_kernel_waits_until_its_time_has_come() {
    let mut bench = patient(&[10, 10]);
    let (device, kernel) = UnixDatagram::pair().unwrap();
    kernel.set_nonblocking(true).unwrap();
    bench.server.add_kernel(1, device.into()).unwrap();
    let mut packet = [0; 20];
    packet[0] = 0x45;
    let mut frame = Vec::new();
    super::tun::write_frame(&packet, Psn::new(0), &mut frame);
    for at in [7_000, 6_000] {
        assert!(bench.server.deliver(1, at, &arriving(0, &frame)));
    }
    for (now, next, received) in [(5_000, 6_000, 0), (5_999, 6_000, 0), (6_000, 7_000, 1), (8_000, u64::MAX, 1)] {
        bench.server.set_limit(now);
        bench.collected();
        let got = std::iter::from_fn(|| kernel.recv(&mut [0; 64]).ok()).count();
        assert_eq!((got, bench.server.wake(now)), (received, next), "{now}");
    }
    assert_eq!(bench.server.ip().unwrap().received, 2);
    assert!(bench.server.add_kernel(2, kernel.into()).is_err());
}

#[test]
fn the_clock_is_read_without_entering_and_does_not_go_back() {
    let mut bench = bench(&[10, 10]);
    let lab = bench.socket.clone();
    let clock = bench.attended(|| LabClock::open(&lab)).unwrap();
    let first = clock.now();
    assert!(first >= 5_000 && clock.now() >= first, "{first}");
    bench.server.restart_at(5);
    assert!(clock.now() >= first);
    bench.server.set_limit(first + 1_000_000_000);
    bench.server.restart_at(first + 2_000_000_000);
    assert_eq!(clock.now(), first + 1_000_000_000);
    assert_eq!(bench.server.members().count(), 0);
    assert!(LabClock::open("@no such lab".as_ref()).is_err());
}

#[test]
fn a_server_is_woken_by_another_thread() {
    let mut bench = bench(&[1_000_000_000]);
    let waker = bench.server.waker();
    assert!(!bench.server.is_woken());
    std::thread::spawn(move || waker.wake()).join().unwrap();
    assert!(bench.server.is_woken());
    bench.server.sleep(Duration::from_secs(60), |_| false, |_, _| ());
    bench.server.attend();
    assert!(!bench.server.is_woken(), "it was woken once");
}

#[test]
fn a_server_does_not_kill_its_own_process() {
    let mut bench = bench(&[1_000_000_000; 2]);
    let _port = bench.enter(1);
    assert_eq!((bench.server.kill(0), bench.server.kill(1)), ((Vec::new(), 0), (Vec::new(), 1)));
    assert_eq!(bench.server.kill(7), (Vec::new(), 0), "there is no such host");
    assert_eq!(bench.server.members().count(), 1);
}

#[test]
fn a_lab_has_hosts() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("socket");
    for rates in [vec![], vec![1; MAX_HOSTS as usize + 1]] {
        let error = LabServer::open(&socket, &ServerConfig::new(rates)).err().unwrap();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
    }
    let server = LabServer::open(&socket, &ServerConfig::new(vec![1])).unwrap();
    assert!(LabServer::open(&socket, &ServerConfig::new(vec![1])).is_err(), "somebody is there");
    drop(server);
    assert!(!socket.exists());
    let name = PathBuf::from(format!("@irnic-test-{}", std::process::id()));
    let server = LabServer::open(&name, &ServerConfig::new(vec![1])).unwrap();
    assert!(LabServer::open(&name, &ServerConfig::new(vec![1])).is_err());
    drop(server);
    LabServer::open(&name, &ServerConfig::new(vec![1])).unwrap();
}

impl LabPort {
    /// Writes an impossible position into the ring.
    fn garble(&mut self) {
        let at = self.region().bytes(place(true).offset, 8);
        // SAFETY: the first word of a ring is an atomic one, the position of what was written.
        unsafe { AtomicU64::from_ptr(at.as_ptr().cast()) }.store(1 << 40, Ordering::Release);
    }
}

/// Wait for an application that never has to be waited for.
const LONG: Duration = Duration::from_secs(3_600);

fn turn(port: &mut LabPort, next: u64) {
    let now = port.begin().now;
    port.end(now, Time(next));
}

#[test]
fn time_waits_for_who_acts_and_for_turns() {
    let mut bench = patient(&[10, 10]);
    let (mut a, mut b) = (bench.enter(0), bench.enter(1));
    let standing = |bench: &mut Bench| bench.server.standing(5_000, LONG);
    assert!(matches!(standing(&mut bench), Standing::Acting(_)), "nothing is known of either");
    a.note(Application::Polls);
    assert!(matches!(standing(&mut bench), Standing::Acting(_)), "the other acts");
    b.note(Application::Sleeps);
    assert_eq!(standing(&mut bench), Standing::Ready);
    turn(&mut b, u64::MAX);
    assert_eq!(standing(&mut bench), Standing::Working, "what the turn came to is not known");
    assert!(!bench.server.try_hold(5_000, false));
    b.settle(false, true);
    assert_eq!(standing(&mut bench), Standing::Ready, "it sleeps on: it did not hear of it");
    turn(&mut b, u64::MAX);
    b.settle(true, true);
    assert!(matches!(standing(&mut bench), Standing::Acting(_)), "it has heard");
    turn(&mut a, 5_000);
    a.settle(false, false);
    assert_eq!(standing(&mut bench), Standing::Working, "it has something to do at this time");
    assert_eq!(bench.server.unasked(), Unasked::default());
}

#[test]
fn who_polls_is_waited_for_after_completions() {
    let mut bench = patient(&[10]);
    let mut port = bench.enter(0);
    port.note(Application::Polls);
    assert!(port.stands_still());
    for (completions, standing) in [(false, Standing::Ready), (true, Standing::Acting(LONG))] {
        turn(&mut port, u64::MAX);
        port.settle(false, completions);
        let found = bench.server.standing(5_000, LONG);
        assert_eq!(std::mem::discriminant(&found), std::mem::discriminant(&standing), "{found:?}");
        assert_eq!(port.stands_still(), !completions);
    }
    port.note(Application::Polls);
    turn(&mut port, 5_000);
    port.settle(false, false);
    assert!(!port.stands_still(), "it has something to do");
}

#[test]
fn nobody_begins_a_turn_while_time_goes_on() {
    let mut bench = patient(&[10, 10]);
    let (mut a, mut b) = (bench.enter(0), bench.enter(1));
    a.note(Application::Polls);
    b.note(Application::Sleeps);
    assert!(bench.server.try_hold(5_000, false));
    let begun = std::thread::scope(|scope| {
        let turn = scope.spawn(|| a.begin());
        while !turn.is_finished() && bench.server.now() < 7_000 {
            std::thread::yield_now();
            bench.server.set_now(7_000);
        }
        assert!(!turn.is_finished());
        bench.server.release();
        turn.join().unwrap()
    });
    assert_eq!(begun.now, Time(7_000));
    a.end(begun.now, Time::NEVER);
    a.settle(false, false);
    assert_eq!(bench.server.standing(7_000, LONG), Standing::Ready, "both do what they did");
}

#[test]
fn who_calls_nothing_is_waited_for_less_each_time() {
    let mut bench = patient(&[10]);
    let mut port = bench.enter(0);
    let acting = |bench: &mut Bench, patience| match bench.server.standing(5_000, patience) {
        Standing::Acting(left) => left,
        other => panic!("{other:?}"),
    };
    let mut longest = LONG;
    for times in 0..3 {
        let left = acting(&mut bench, LONG);
        assert!(left <= longest && left > longest / 2, "{times}: {left:?}");
        longest /= 2;
        assert!(bench.server.try_hold(5_000, true));
        bench.server.release();
        assert_eq!(bench.server.standing(5_000, LONG), Standing::Ready, "it is away");
        assert_eq!(bench.server.unasked(), Unasked { jumps: times + 1, first: Some(5_000) });
        port.note(Application::Acts);
    }
    assert!(acting(&mut bench, Duration::ZERO) <= Duration::from_micros(100));
}

#[test]
fn time_stands_still_for_who_acts_after_it_was_looked_at() {
    let mut bench = patient(&[10, 10]);
    let (mut a, mut b) = (bench.enter(0), bench.enter(1));
    a.note(Application::Polls);
    b.note(Application::Sleeps);
    for timed_out in [false, true] {
        assert_eq!(bench.server.standing(5_000, LONG), Standing::Ready);
        a.note(Application::Acts);
        assert!(!bench.server.try_hold(5_000, timed_out), "it acts");
        assert!(matches!(bench.server.standing(5_000, LONG), Standing::Acting(_)), "it is not away");
        a.note(Application::Polls);
    }
    // The wait for the other has timed out, and a turn has completions for it.
    b.note(Application::Acts);
    assert!(matches!(bench.server.standing(5_000, LONG), Standing::Acting(_)));
    turn(&mut a, u64::MAX);
    a.settle(false, true);
    assert!(!bench.server.try_hold(5_000, true), "it acts");
    b.note(Application::Sleeps);
    assert!(matches!(bench.server.standing(5_000, LONG), Standing::Acting(_)), "it is not away");
}

#[test]
fn what_a_process_has_sent_is_collected_after_its_end_and_by_hosts() {
    let mut bench = patient(&[8_000_000_000; 3]);
    let (mut late, mut early) = (bench.enter(1), bench.enter(0));
    for port in [&mut late, &mut early] {
        assert!(send(port, 5_000, address(2), &frame_to(7, 100)));
        port.flush(Time(5_000)).unwrap();
    }
    drop(late);
    bench.until(|server| server.members().count() == 1);
    let hosts: Vec<u32> = bench.collected().1.iter().map(|(host, ..)| *host).collect();
    assert_eq!(hosts, [0, 1]);
    assert!(bench.collected().1.is_empty());
}

#[test]
fn chance_is_the_same_for_a_process_if_time_waits() {
    let (mut waits, mut goes) = (patient(&[10, 10]), bench(&[10]));
    let seeds = [waits.enter(0), waits.enter(1), waits.enter(0)].map(|port| port.seed().unwrap());
    assert!(seeds[0] != seeds[1] && seeds[0] != seeds[2] && seeds[1] != seeds[2]);
    assert_eq!(patient(&[10, 10]).enter(1).seed(), Some(seeds[1]));
    assert_eq!(goes.enter(0).seed(), None);
}
