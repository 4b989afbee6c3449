//! Beyond the host: here two devices of one host, each with its own address on the loopback interface.

use std::net::UdpSocket;

use irnic_transports::psn::Psn;
use irnic_transports::time::SEC;
use irnic_transports::wire::{Bth, Headers, IrnEth, NdpWord, Opcode, icrc_append, icrc_check, parse_trimmed};

use super::*;
use crate::impair::Impaired;

/// Returns addresses of the loopback interface that no other test uses, in this process or another.
fn fresh_addresses() -> [IpAddr; 2] {
    let number = std::process::id().wrapping_mul(64) + DOMAINS.fetch_add(1, Ordering::Relaxed) % 64;
    let [_, b, c, d] = (number << 1 & 0x00ff_fffe).to_be_bytes();
    // Neither 127.0.0.x, which others use, nor all ones.
    [0, 1].map(|i| IpAddr::from([127, b | 0x80, c, d & 0xfe | i]))
}

/// Process `number` of the device at `address`.
fn at(address: IpAddr, number: u16) -> HostPort {
    let domain = domain("udp", &[address]);
    let config = HostConfig { udp: HostUdp::On, addresses: vec![address], ..config(&domain, number) };
    HostPort::open(&config).unwrap()
}

fn path(src: IpAddr, dst: IpAddr) -> Path {
    Path { src, dst, ..PATH }
}

/// Sends a frame as on the wire: destination queue pair, number, ICRC.
fn send_to(port: &mut HostPort, now: Time, path: &Path, dest_qp: u32, i: u32) {
    let (wire, icrc) = (port.wire_path(path), port.needs_icrc(path, dest_qp));
    let frame = TxFrame { path, dest_qp, len: 80, icrc, irn: false };
    assert!(port.transmit(now, &frame, &mut |to| {
        write_frame(i, to);
        to[4..8].copy_from_slice(&dest_qp.to_be_bytes());
        icrc_append(&wire, 0, to);
    }));
    port.flush(now).unwrap();
}

/// Returns numbers and paths of `count` frames received by the last of `ports`; the others forward meanwhile.
fn numbers(ports: &mut [&mut HostPort], count: usize) -> Vec<(u32, Path)> {
    let start = Instant::now();
    let mut got = Vec::new();
    while got.len() < count {
        let last = ports.len() - 1;
        for (i, port) in ports.iter_mut().enumerate() {
            let now = Time(start.elapsed().as_nanos() as u64);
            port.receive(now, 64, &mut |frame| {
                assert_eq!(i, last, "a frame for another process");
                let icrc = frame.icrc == RxIcrc::Absent || icrc_check(&frame.path, 0, frame.bytes);
                assert!(icrc, "{frame:?}");
                got.push((u32::from_le_bytes(*frame.bytes.first_chunk().unwrap()), frame.path));
            })
            .unwrap();
        }
        assert!(start.elapsed() < Duration::from_secs(20), "{} of {count} frames came", got.len());
    }
    got
}

#[test]
fn a_look_at_memory_suffices_once_the_kernel_reports_the_socket() {
    let [a, b] = fresh_addresses();
    let (mut x, mut y) = (at(a, 1), at(b, 1));
    send_to(&mut x, Time::ZERO, &path(a, b), qp_of(1), 7);
    assert_eq!(numbers(&mut [&mut y], 1).len(), 1);
    assert!(y.may_receive(), "the socket is polled");
    y.receive(Time(100 * SEC), 64, &mut |_| ()).unwrap();
    assert!(!y.may_receive());
}

/// Inserts the BTH's destination queue pair, and removes it again, for a suite whose frames have none.
struct Addressed(HostPort);

impl Port for Addressed {
    fn max_frame(&self) -> usize {
        self.0.max_frame()
    }

    fn wire_path(&self, path: &Path) -> Path {
        self.0.wire_path(path)
    }

    fn transmit(&mut self, now: Time, frame: &TxFrame<'_>, fill: &mut dyn FnMut(&mut [u8])) -> bool {
        self.0.transmit(now, &TxFrame { dest_qp: qp_of(1), ..*frame }, &mut |to| {
            fill(to);
            to[5..8].copy_from_slice(&qp_of(1).to_be_bytes()[1..]);
        })
    }

    fn flush(&mut self, now: Time) -> io::Result<()> {
        self.0.flush(now)
    }

    fn receive(&mut self, now: Time, budget: usize, each: &mut dyn FnMut(RxFrame<'_>)) -> io::Result<usize> {
        self.0.receive(now, budget, &mut |frame| {
            let mut expected = frame.bytes.to_vec();
            write_frame(u32::from_le_bytes(*frame.bytes.first_chunk().unwrap()), &mut expected);
            let mut bytes = frame.bytes.to_vec();
            bytes[5..8].copy_from_slice(&expected[5..8]);
            each(RxFrame { bytes: &bytes, ..frame });
        })
    }

    fn wait(&mut self, timeout: Duration) -> io::Result<()> {
        self.0.wait(timeout)
    }

    fn counters(&self) -> PortCounters {
        self.0.counters()
    }
}

#[test]
fn two_devices_pass_the_conformance_suite() {
    conformance::suite(|| {
        let [a_ip, b_ip] = fresh_addresses();
        let (mut a, mut b) = (at(a_ip, 1), at(b_ip, 1));
        assert_eq!((a.take_warnings(), b.take_warnings()), (vec![], vec![]));
        Pair::new(Addressed(a), a_ip, Addressed(b), b_ip)
    });
}

#[test]
fn what_is_passed_on_bears_the_time_at_which_the_kernel_took_it() {
    let [here, there] = fresh_addresses();
    let domain = domain("udp", &[here]);
    let config = HostConfig { udp: HostUdp::On, addresses: vec![here], kernel_stamps: true, ..config(&domain, 1) };
    let mut owner = HostPort::open(&config).unwrap();
    let (mut guest, mut far) = (at(here, 2), at(there, 1));
    let start = host_now();
    let guest_now = || Time(host_now().since(start));
    // The kernel begins to stamp some time after the request.
    let stamped = (0..100).any(|i| {
        send_to(&mut far, Time::ZERO, &path(there, here), qp_of(2), i);
        // The guest polls continuously, the owner late.
        std::thread::sleep(Duration::from_millis(20));
        assert_eq!(guest.receive(guest_now(), 8, &mut |_| ()).unwrap(), 0);
        let polled = guest_now();
        let mut arrived = None;
        while arrived.is_none() {
            owner.receive(host_now(), 8, &mut |_| panic!("a frame for another process")).unwrap();
            guest.receive(guest_now(), 8, &mut |frame| arrived = Some(frame.arrived)).unwrap();
            assert!(host_now().since(start) < 20_000_000_000, "frame {i} did not come");
        }
        arrived < Some(polled)
    });
    assert!(stamped);
}

#[test]
fn the_owner_passes_on_what_is_for_others() {
    let [here, there] = fresh_addresses();
    let mut owner = at(here, 1);
    let mut guests = [at(here, 2), at(here, 3)];
    let mut far = at(there, 1);
    assert!(owner.owns_udp(here) && !guests[0].owns_udp(here) && far.owns_udp(there));
    for i in 0..200 {
        let to = 1 + (i % 3) as u16;
        send_to(&mut far, Time::ZERO, &path(there, here), qp_of(to), i);
        let [a, b] = &mut guests;
        let seen = match to {
            1 => numbers(&mut [&mut owner], 1),
            2 => numbers(&mut [&mut owner, a], 1),
            _ => numbers(&mut [&mut owner, b], 1),
        };
        assert_eq!(seen[0].0, i);
        assert_eq!((seen[0].1.src, seen[0].1.dst, seen[0].1.udp_src), (there, here, 4791));
        // The answer comes from the guest's own socket.
        let from = if to == 3 { &mut guests[1] } else { &mut guests[0] };
        send_to(from, Time::ZERO, &path(here, there), qp_of(1), !i);
        let answer = numbers(&mut [&mut far], 1)[0];
        assert_eq!((answer.0, answer.1.src, answer.1.dst), (!i, here, there));
        assert_eq!(answer.1.udp_src, from.wire_path(&path(here, there)).udp_src);
    }
    assert_eq!(owner.host_counters().forwarded, 133);
    let absent = owner.host_counters().tx_absent;
    send_to(&mut far, Time::ZERO, &path(there, here), qp_of(9), 0);
    send_to(&mut far, Time::ZERO, &path(there, here), qp_of(1), 1);
    numbers(&mut [&mut owner], 1);
    assert_eq!(owner.host_counters().tx_absent, absent + 1, "nobody has slot 9");
}

#[test]
fn returned_headers_reach_the_process_that_sent_them() {
    let [here, there] = fresh_addresses();
    let mut owner = at(here, 1);
    let mut guest = at(here, 2);
    let mut far = Impaired::new(at(there, 3), &"rx rate 10mbit trim 1 headers 1 return".parse().unwrap(), 1, 0);
    assert!(owner.owns_udp(here) && !guest.owns_udp(here));
    let psn = |psn| Psn::new(psn);
    for i in 0..2 {
        let irn = Some(IrnEth::Send { recv_wqe_sn: psn(i), psn_offset: 0 });
        let ndp = NdpWord::new(qp_of(2), false);
        let headers = Headers { irn, ndp, ..Headers::new(Bth::new(Opcode::RcSendOnly, qp_of(3), psn(i))) };
        let (path, len) = (path(here, there), headers.frame_len(800));
        let frame = TxFrame { path: &path, dest_qp: qp_of(3), len, icrc: true, irn: true };
        let wire = guest.wire_path(&path);
        assert!(guest.transmit(Time::ZERO, &frame, &mut |to| {
            to.fill(0);
            headers.emit(to);
            icrc_append(&wire, 0, to);
        }));
    }
    guest.flush(Time::ZERO).unwrap();
    let start = Instant::now();
    let (mut whole, mut returned) = (0, Vec::new());
    while whole == 0 || returned.is_empty() {
        let now = Time(start.elapsed().as_nanos() as u64);
        far.receive(now, 64, &mut |_| whole += 1).unwrap();
        owner.receive(now, 64, &mut |frame| panic!("{frame:?} is for the guest")).unwrap();
        guest.receive(now, 64, &mut |frame| returned.push((frame.path, frame.bytes.to_vec()))).unwrap();
        assert!(start.elapsed() < Duration::from_secs(20), "{whole} came, {} went back", returned.len());
    }
    let (path, bytes) = &returned[0];
    assert_eq!((whole, returned.len()), (1, 1));
    assert_eq!((path.src, path.dst, path.traffic_class >> 2), (there, here, 5));
    assert!(icrc_check(path, 0, bytes));
    assert_eq!(parse_trimmed(bytes).unwrap().bth.dest_qp, qp_of(3));
}

#[test]
fn an_owner_that_ends_passes_on_what_has_come() {
    let [here, there] = fresh_addresses();
    let (owner, mut guest, mut far) = (at(here, 1), at(here, 2), at(there, 1));
    for i in 0..100 {
        send_to(&mut far, Time::ZERO, &path(there, here), qp_of(2), i);
    }
    drop(owner);
    let seen = numbers(&mut [&mut guest], 100);
    assert!(seen.iter().map(|frame| frame.0).eq(0..100));
}

/// A process does not take its frames for some time: they wait, and their senders wait in turn.
#[test]
fn what_is_passed_on_to_a_full_ring_waits() {
    const FRAMES: u32 = 60_000;
    let [here, there] = fresh_addresses();
    let (mut owner, mut guest, mut far) = (at(here, 1), at(here, 2), at(there, 1));
    let path = path(there, here);
    let start = Instant::now();
    let (mut sent, mut got, mut waited) = (0, 0, 0u32);
    while got < FRAMES {
        // By this clock no process is slow.
        let now = Time(SEC + u64::from(waited));
        let wire = far.wire_path(&path);
        let frame = TxFrame { path: &path, dest_qp: qp_of(2), len: 1000, icrc: true, irn: true };
        while sent < FRAMES {
            let room = far.transmit(now, &frame, &mut |to| {
                write_frame(sent, to);
                to[4..8].copy_from_slice(&qp_of(2).to_be_bytes());
                icrc_append(&wire, 0, to);
            });
            if !room {
                break;
            }
            sent += 1;
        }
        waited += u32::from(sent < FRAMES);
        far.flush(now).unwrap();
        owner.receive(now, 256, &mut |_| panic!("a frame for another process")).unwrap();
        // The ring holds a hundred and more.
        guest.cancel_sleep();
        guest
            .receive(now, 20, &mut |frame| {
                assert_eq!(u32::from_le_bytes(*frame.bytes.first_chunk().unwrap()), got);
                got += 1;
            })
            .unwrap();
        assert!(start.elapsed() < Duration::from_secs(100), "{got} of {FRAMES} frames came");
    }
    assert!(waited > 0);
    assert_eq!((owner.counters().tx_dropped, owner.counters().rx_dropped, far.counters().tx_dropped), (0, 0, 0));
    assert_eq!(owner.host_counters().forwarded, u64::from(FRAMES));
}

#[test]
fn when_the_owner_ends_another_takes_its_place() {
    let [here, there] = fresh_addresses();
    let mut far = at(there, 1);
    let mut ports = vec![at(here, 1), at(here, 2), at(here, 3)];
    for round in 0..20 {
        assert!(ports[0].owns_udp(here));
        drop(ports.remove(0));
        let start = Instant::now();
        while !ports.iter().any(|port| port.owns_udp(here)) {
            for port in &mut ports {
                let now = Time(start.elapsed().as_nanos() as u64);
                port.receive(now, 64, &mut |_| ()).unwrap();
            }
            assert!(start.elapsed() < Duration::from_secs(20), "nobody took over");
        }
        ports.sort_by_key(|port| !port.owns_udp(here));
        ports.push(at(here, 10 + round));
        let to = ports[2].slot().number();
        send_to(&mut far, Time::ZERO, &path(there, here), qp_of(to), 77);
        let [owner, _, last] = &mut ports[..] else { panic!("three ports") };
        assert_eq!(numbers(&mut [owner, last], 1)[0].0, 77);
    }
    ports.iter_mut().for_each(|port| assert_eq!(port.take_warnings(), []));
}

#[test]
fn a_port_4791_that_is_taken_is_told_and_taken_when_it_is_free() {
    let [here, there] = fresh_addresses();
    let squatter = UdpSocket::bind((here, 4791)).unwrap();
    let mut port = at(here, 1);
    let mut guest = at(here, 2);
    let mut far = at(there, 1);
    // SAFETY: no memory is passed, and it cannot fail.
    let holder = Holder::Socket { user: unsafe { libc::geteuid() } };
    assert_eq!(port.take_warnings(), [HostWarning::PortTaken(here, holder)]);
    assert_eq!(port.take_warnings(), []);
    assert!(!port.owns_udp(here));
    // Within the host, and outwards, everything works.
    send_to(&mut port, Time::ZERO, &path(here, here), qp_of(2), 5);
    assert_eq!(numbers(&mut [&mut guest], 1)[0].0, 5);
    send_to(&mut port, Time::ZERO, &path(here, there), qp_of(1), 6);
    assert_eq!(numbers(&mut [&mut far], 1)[0].0, 6);
    drop(squatter);
    let mut now = Time::ZERO;
    while !port.owns_udp(here) {
        now = port.next_deadline();
        assert_ne!(now, Time::NEVER);
        port.receive(now, 1, &mut |_| ()).unwrap();
    }
    assert_eq!(port.next_deadline(), Time::NEVER);
    send_to(&mut far, now, &path(there, here), qp_of(1), 8);
    assert_eq!(numbers(&mut [&mut port], 1)[0].0, 8);
}

#[test]
fn an_address_that_is_not_this_hosts_is_told() {
    let address: IpAddr = "192.0.2.254".parse().unwrap();
    let config = HostConfig { udp: HostUdp::On, addresses: vec![address], ..config(&fresh_domain(), 1) };
    assert_eq!(
        HostPort::open(&config).unwrap().take_warnings(),
        [HostWarning::NoSocket(address, SocketFault::NotHere)]
    );
}

#[test]
fn with_udp_only_even_neighbours_are_reached_by_udp() {
    let [here, _] = fresh_addresses();
    let only = |number| {
        let domain = domain("udp-only", &[here]);
        let config = HostConfig { udp: HostUdp::Only, addresses: vec![here], ..config(&domain, number) };
        HostPort::open(&config).unwrap()
    };
    let (mut owner, mut guest) = (only(1), only(2));
    for i in 0..50 {
        send_to(&mut guest, Time::ZERO, &path(here, here), qp_of(1), i);
        assert_eq!(numbers(&mut [&mut owner], 1)[0].0, i);
        send_to(&mut owner, Time::ZERO, &path(here, here), qp_of(2), i);
        assert_eq!(numbers(&mut [&mut owner, &mut guest], 1)[0].0, i);
        send_to(&mut guest, Time::ZERO, &path(here, here), qp_of(2), i);
        assert_eq!(numbers(&mut [&mut guest], 1)[0].0, i);
    }
    assert_eq!(owner.host_counters().forwarded, 50);
    assert_eq!(guest.host_counters().links_opened, 0);
}

#[test]
fn the_icrc_of_a_frame_to_oneself_is_right() {
    // It needs none, but impairments require one, to be able to flip a bit.
    for udp in [HostUdp::Off, HostUdp::On, HostUdp::Only] {
        let [here, _] = fresh_addresses();
        let domain = domain("udp-self", &[here]);
        let mut port = HostPort::open(&HostConfig { udp, addresses: vec![here], ..config(&domain, 1) }).unwrap();
        let (path, dest_qp) = (path(here, here), qp_of(1));
        let wire = port.wire_path(&path);
        let frame = TxFrame { path: &path, dest_qp, len: 80, icrc: true, irn: false };
        assert!(port.transmit(Time::ZERO, &frame, &mut |to| {
            write_frame(7, to);
            icrc_append(&wire, 0, to);
        }));
        port.flush(Time::ZERO).unwrap();
        assert_eq!(numbers(&mut [&mut port], 1), [(7, wire)], "{udp:?}");
    }
}

#[test]
fn ipv6_addresses_work_alike() {
    let here: IpAddr = "::1".parse().unwrap();
    let number = DOMAINS.fetch_add(1, Ordering::Relaxed);
    let domain = domain(&format!("v6 {number} {}", std::process::id()), &[here]);
    let open = |number| {
        let config = HostConfig { udp: HostUdp::Only, addresses: vec![here], ..config(&domain, number) };
        HostPort::open(&config).unwrap()
    };
    let (mut a, mut b) = (open(1), open(2));
    match a.take_warnings()[..] {
        [] => {}
        ref warnings => return skipped("ipv6_addresses_work_alike", &format!("{warnings:?}")),
    }
    assert!(a.owns_udp(here) && !b.owns_udp(here));
    send_to(&mut b, Time::ZERO, &path(here, here), qp_of(1), 1);
    assert_eq!(numbers(&mut [&mut a], 1)[0].0, 1);
    send_to(&mut a, Time::ZERO, &path(here, here), qp_of(2), 2);
    assert_eq!(numbers(&mut [&mut a, &mut b], 1)[0].0, 2);
}

#[test]
fn groups_reach_who_has_joined_them() {
    let [here, there] = fresh_addresses();
    let group = IpAddr::from([239, 1, 2, here.to_string().bytes().last().unwrap()]);
    let mut ports = [at(here, 1), at(here, 2), at(there, 1), at(there, 2)];
    for (i, port) in ports.iter_mut().enumerate() {
        let own = if i < 2 { here } else { there };
        if let Err(e) = port.join(own, group) {
            return skipped(
                "groups_reach_who_has_joined_them",
                &format!("no multicast on the loopback interface: {e}"),
            );
        }
    }
    send_to(&mut ports[0], Time::ZERO, &path(here, group), MULTICAST_QPN, 9);
    for port in &mut ports {
        let seen = numbers(&mut [port], 1);
        assert_eq!((seen[0].0, seen[0].1.src, seen[0].1.dst), (9, here, group));
    }
    // Once each, even with two routes.
    for port in &mut ports {
        assert_eq!(take(port).len(), 0);
    }
    ports[2].leave(there, group);
    send_to(&mut ports[1], Time::ZERO, &path(here, group), MULTICAST_QPN, 10);
    for port in [0, 1, 3] {
        assert_eq!(numbers(&mut [&mut ports[port]], 1)[0].0, 10);
    }
    assert_eq!(take(&mut ports[2]).len(), 0);
}

/// A thread that takes over from a sleeper before a wake-up receives arrivals at once, and the set does not report
/// them.
#[test]
fn who_takes_over_polls_the_sockets() {
    let [here, there] = fresh_addresses();
    let (mut a, mut b) = (at(here, 1), at(there, 1));
    send_to(&mut b, Time::ZERO, &path(there, here), qp_of(1), 1);
    numbers(&mut [&mut a], 1);
    for number in 2..10 {
        assert!(a.prepare_sleep());
        a.take_over();
        send_to(&mut b, Time::ZERO, &path(there, here), qp_of(1), number);
        assert_eq!(a.links.epoll.ready(&mut [0; sys::EVENTS]), 0);
        let mut seen = 0;
        while seen == 0 {
            seen = a.receive(Time::ZERO, 1, &mut |_| ()).unwrap();
        }
    }
    assert!(a.prepare_sleep());
    send_to(&mut b, Time::ZERO, &path(there, here), qp_of(1), 10);
    a.wait(Duration::from_secs(600)).unwrap();
    assert_eq!(numbers(&mut [&mut a], 1)[0].0, 10);
}

/// A socket without arrivals is not polled; an arrival is noticed nevertheless, asleep or not.
#[test]
fn an_idle_socket_costs_no_system_call() {
    let [here, there] = fresh_addresses();
    let (mut a, mut b) = (at(here, 1), at(there, 1));
    send_to(&mut b, Time::ZERO, &path(there, here), qp_of(1), 1);
    numbers(&mut [&mut a], 1);
    let cold = Time(1_000_000_000_000);
    a.receive(cold, 1, &mut |_| ()).unwrap();
    let before = a.counters().rx_syscalls;
    for _ in 0..10 * SERVICE_POLLS {
        a.receive(cold, 1, &mut |_| ()).unwrap();
    }
    assert_eq!(a.counters().rx_syscalls - before, 10);
    for round in 0..200 {
        let slept = round % 2 == 0 && a.prepare_sleep();
        send_to(&mut b, cold, &path(there, here), qp_of(1), round);
        if slept {
            if round % 4 == 0 {
                // A sleeper may take the event out of the set.
                assert!(a.links.epoll.ready(&mut [0; sys::EVENTS]) > 0);
            } else {
                a.wait(Duration::from_secs(600)).unwrap();
            }
            a.cancel_sleep();
        }
        assert_eq!(numbers(&mut [&mut a], 1)[0].0, round);
    }
}

/// One frame bounces between two processes through the one that owns the socket, and all three sleep whenever they
/// wait. Every wake-up sent was taken by another process, and no wait ended by a timeout.
#[test]
fn no_wake_up_is_lost_where_a_third_process_passes_frames_on() {
    const ROUNDS: u32 = 3_000;
    const LONG: Duration = Duration::from_secs(60);
    let seed = 23;
    let [here, _] = fresh_addresses();
    let domain = domain("udp", &[here]);
    let mut ports = [1, 2, 3].map(|number| {
        let config = HostConfig { udp: HostUdp::Only, addresses: vec![here], ..config(&domain, number) };
        HostPort::open(&config).unwrap()
    });
    assert!(ports[0].owns_udp(here));
    let sleep = |port: &mut HostPort, random: &mut Pcg64Mcg, what: &str| {
        port.set_spin(random.random_range(0..40));
        let start = Instant::now();
        port.wait(LONG).unwrap();
        assert!(start.elapsed() < LONG, "seed {seed}: nobody woke {what}");
    };
    let [owner, a, b] = &mut ports;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut random = Pcg64Mcg::seed_from_u64(seed);
            let mut done = false;
            while !done {
                sleep(owner, &mut random, "the owner");
                owner.receive(host_now(), 8, &mut |_| done = true).unwrap();
            }
        });
        for (port, own, peer) in [(a, 2_u8, 3), (b, 3, 2)] {
            scope.spawn(move || {
                let mut random = Pcg64Mcg::seed_from_u64(seed + u64::from(own));
                for round in 0..ROUNDS {
                    if own == 2 {
                        send_to(port, host_now(), &path(here, here), qp_of(peer), round);
                    }
                    let mut got = 0;
                    while got == 0 {
                        sleep(port, &mut random, &format!("{own} in round {round}"));
                        let each = &mut |frame: RxFrame<'_>| {
                            assert_eq!(frame.bytes.first_chunk(), Some(&round.to_le_bytes()));
                        };
                        got = port.receive(host_now(), 8, each).unwrap();
                    }
                    if own == 3 {
                        send_to(port, host_now(), &path(here, here), qp_of(peer), round);
                    }
                }
                if own == 2 {
                    send_to(port, host_now(), &path(here, here), qp_of(1), ROUNDS);
                }
            });
        }
    });
    let [owner, a, b] = &mut ports;
    let sent = owner.host_counters().wakeups_sent;
    assert!(sent > u64::from(ROUNDS / 10), "{sent} wake-ups: nobody slept");
    assert_eq!(owner.host_counters().forwarded, 2 * u64::from(ROUNDS));
    let start = Instant::now();
    let mut taken = 0;
    while taken < sent {
        assert!(start.elapsed() < LONG, "{taken} of {sent} wake-ups were taken");
        take(a);
        take(b);
        taken = a.host_counters().wakeups_taken + b.host_counters().wakeups_taken;
    }
    assert_eq!(taken, sent);
}
