use std::net::Ipv4Addr;
use std::time::Instant;

use irnic_transports::qp::Reader;
use irnic_transports::time::{MS, SEC};

use super::super::conformance::{self, Pair, V4_A, V4_B, check_frame, collect, frame, write_frame};
use super::*;
use crate::host::{Slot, sys as host_sys};

fn config(ip: &str) -> UdpConfig {
    let ip = ip.parse().unwrap();
    UdpConfig { local: SocketAddr::new(ip, 0), ..UdpConfig::new(ip) }
}

/// Two ports on free UDP ports of the given addresses.
fn ports(a: &str, b: &str, segmentation: Segmentation) -> io::Result<(UdpPort, UdpPort)> {
    let mut a = UdpPort::open(&UdpConfig { segmentation, ..config(a) })?;
    let mut b = UdpPort::open(&UdpConfig { segmentation, ..config(b) })?;
    a.set_remote_port(b.local_addr().port());
    b.set_remote_port(a.local_addr().port());
    Ok((a, b))
}

fn pair(a: UdpPort, b: UdpPort) -> Pair {
    let (a_ip, b_ip) = (a.local_addr().ip(), b.local_addr().ip());
    Pair::new(a, a_ip, b, b_ip)
}

fn path(src: &str, dst: &str) -> Path {
    Path { src: src.parse().unwrap(), dst: dst.parse().unwrap(), udp_src: 0, traffic_class: 0, hop_limit: 64 }
}

/// Two ports on `::1`, or a visible notice that this host has no IPv6.
fn v6_ports(test: &str) -> Option<(UdpPort, UdpPort)> {
    match ports("::1", "::1", Segmentation::On) {
        Ok(ports) => Some(ports),
        Err(e) => {
            skipped(test, &format!("no IPv6 loopback ({e})"));
            None
        }
    }
}

fn skipped(test: &str, why: &str) {
    irnic_testkit::skipped(&format!("{test}: {why}"));
}

fn udp_error(e: &io::Error) -> UdpError {
    e.get_ref().and_then(|e| e.downcast_ref::<UdpError>()).unwrap_or_else(|| panic!("not a UDP error: {e}")).clone()
}

#[test]
fn a_train_that_is_not_full_waits_until_it_is_or_must_leave() {
    let (mut a, mut b) = ports(V4_A, V4_B, Segmentation::On).unwrap();
    let path = path(V4_A, V4_B);
    let mut send = |i: u32, flush: fn(&mut UdpPort) -> io::Result<bool>| {
        let frame = TxFrame { path: &path, dest_qp: 1, len: 4000, icrc: false, irn: true };
        assert!(a.transmit(Time::ZERO, &frame, &mut |to| write_frame(i, to)));
        flush(&mut a).unwrap()
    };
    let trains = a_train();
    // As many as fit leave together; the next one begins another train.
    for i in 0..trains {
        assert_eq!(send(i, |a| a.flush_full(Time::ZERO)), i != trains - 1, "{i}");
    }
    assert!(send(trains, |a| a.flush_full(Time::ZERO)));
    assert_eq!(collect(&mut b, trains as usize).len(), trains as usize);
    assert_eq!(b.receive(Time::ZERO, 64, &mut |_| panic!("it waits")).unwrap(), 0);
    send(trains + 1, |a| a.flush(Time::ZERO).map(|()| false));
    assert_eq!(collect(&mut b, 2).len(), 2);
    assert_eq!((b.counters().rx_frames, b.counters().rx_batches), (u64::from(trains) + 2, 2));
}

/// Frames of 4000 bytes in a full train.
fn a_train() -> u32 {
    (batch::MAX_DATAGRAM / 4000) as u32
}

#[test]
fn frames_bear_the_time_at_which_the_kernel_took_them_if_it_is_asked() {
    for kernel_stamps in [false, true] {
        let (mut a, _) = ports(V4_A, V4_B, Segmentation::On).unwrap();
        let mut b = UdpPort::open(&UdpConfig { kernel_stamps, ..config(V4_B) }).unwrap();
        a.set_remote_port(b.local_addr().port());
        let start = std::time::Instant::now();
        let now = || Time(start.elapsed().as_nanos() as u64 + 1_000_000_000);
        let mut arrivals = Vec::new();
        for round in 0..10 {
            let path = path(V4_A, V4_B);
            let frame = TxFrame { path: &path, dest_qp: 1, len: 64, icrc: true, irn: false };
            assert!(a.transmit(now(), &frame, &mut |to| to.fill(round)));
            a.flush(now()).unwrap();
            let sent = now();
            // No poll for some time.
            std::thread::sleep(Duration::from_millis(20));
            let read = now();
            let n = b.receive(read, 8, &mut |frame| arrivals.push((sent, frame.arrived, read))).unwrap();
            assert_eq!(n, 1);
        }
        // The kernel begins to stamp some time after the request.
        let unstamped = arrivals.iter().take_while(|&&(_, arrived, read)| kernel_stamps && arrived == read).count();
        assert!(unstamped < arrivals.len());
        for (sent, arrived, read) in arrivals.split_off(unstamped) {
            assert!(arrived <= read);
            // On loopback a frame has arrived when the call that sent it returns, except for the uncertainty of the
            // clocks.
            let late = arrived.since(sent);
            assert!(
                if kernel_stamps { late < read.since(sent) } else { arrived == read },
                "{late} of {}",
                read.since(sent)
            );
        }
    }
}

#[test]
fn passes_the_conformance_suite() {
    conformance::suite(|| {
        let (a, b) = ports(V4_A, V4_B, Segmentation::On).unwrap();
        pair(a, b)
    });
}

#[test]
fn passes_the_conformance_suite_without_segmentation() {
    conformance::suite(|| {
        let (a, b) = ports(V4_A, V4_B, Segmentation::Off).unwrap();
        assert_eq!(a.max_segments(), 1);
        pair(a, b)
    });
}

#[test]
fn passes_the_conformance_suite_over_ipv6() {
    if v6_ports("passes_the_conformance_suite_over_ipv6").is_some() {
        conformance::suite(|| {
            let (a, b) = ports("::1", "::1", Segmentation::On).unwrap();
            pair(a, b)
        });
    }
}

#[test]
fn segments_are_cut_for_a_receiver_that_cannot_coalesce_and_the_other_way_round() {
    for (sender, receiver) in [(Segmentation::On, Segmentation::Off), (Segmentation::Off, Segmentation::On)] {
        let mut a = UdpPort::open(&UdpConfig { segmentation: sender, ..config(V4_A) }).unwrap();
        let mut b = UdpPort::open(&UdpConfig { segmentation: receiver, ..config(V4_B) }).unwrap();
        a.set_remote_port(b.local_addr().port());
        for i in 0..100 {
            let len = if i % 10 == 9 { 300 } else { 1000 };
            assert!(a.transmit(Time::ZERO, &frame(&path(V4_A, V4_B), len), &mut |b| write_frame(i, b)));
        }
        a.flush(Time::ZERO).unwrap();
        for (i, (_, bytes)) in collect(&mut b, 100).iter().enumerate() {
            assert_eq!(bytes.len(), if i % 10 == 9 { 300 } else { 1000 });
            check_frame(i as u32, bytes);
        }
    }
}

#[test]
fn segmentation_carries_many_frames_in_one_call() {
    let (mut a, mut b) = ports(V4_A, V4_B, Segmentation::On).unwrap();
    if a.max_segments() == 1 {
        return skipped("segmentation_carries_many_frames_in_one_call", "this kernel has no UDP_SEGMENT");
    }
    for i in 0..45 {
        assert!(a.transmit(Time::ZERO, &frame(&path(V4_A, V4_B), 4200), &mut |b| write_frame(i, b)));
    }
    a.flush(Time::ZERO).unwrap();
    let sent = a.counters();
    assert_eq!((sent.tx_frames, sent.tx_batches, sent.tx_syscalls), (45, 3, 1), "15 frames of 4200 bytes in 65507");
    collect(&mut b, 45);
    let received = b.counters();
    assert_eq!((received.rx_frames, received.rx_batches), (45, 3));
    assert!(received.rx_syscalls <= 4);
}

/// The kernel rejects more segments than it supports; the frames go one at a time, in order, then and later.
#[test]
fn only_frames_whose_receiver_ignores_the_identification_go_in_trains_by_default() {
    const NAME: &str = "only_frames_whose_receiver_ignores_the_identification_go_in_trains_by_default";
    let (mut v4, mut v4_end) = ports(V4_A, V4_B, Segmentation::default()).unwrap();
    if v4.max_segments() == 1 {
        return skipped(NAME, "this kernel has no UDP_SEGMENT");
    }
    let send = |port: &mut UdpPort, path: &Path, irn: bool| {
        let before = port.counters();
        for i in 0..20 {
            let frame = TxFrame { irn, ..frame(path, 1000) };
            assert!(port.transmit(Time::ZERO, &frame, &mut |b| write_frame(i, b)));
        }
        port.flush(Time::ZERO).unwrap();
        let after = port.counters();
        (after.tx_batches - before.tx_batches, after.tx_syscalls - before.tx_syscalls)
    };
    let path_v4 = path(V4_A, V4_B);
    assert_eq!(send(&mut v4, &path_v4, true), (1, 1), "IRN: one train");
    assert_eq!(send(&mut v4, &path_v4, false), (1, 1), "plain, to irnic on this host: one train");
    collect(&mut v4_end, 40);
    let another = UdpSocket::bind((V4_B, 0)).unwrap();
    v4.set_remote_port(another.local_addr().unwrap().port());
    assert_eq!(send(&mut v4, &path_v4, false), (20, 1), "plain: single datagrams, one system call");
    let Ok((mut v6, _end)) = ports("::1", "::1", Segmentation::default()) else {
        return skipped(NAME, "no IPv6 loopback");
    };
    assert_eq!(send(&mut v6, &path("::1", "::1"), false), (1, 1), "IPv6 has no identification");
}

#[test]
fn frames_without_udp_checksum_arrive_over_ipv6() {
    let Some((_, mut port)) = v6_ports("frames_without_udp_checksum_arrive_over_ipv6") else { return };
    let sender = UdpSocket::bind("[::1]:0").unwrap();
    // As the Linux rxe driver sends.
    sys::set_option(sender.as_fd(), libc::SOL_UDP, libc::UDP_NO_CHECK6_TX, 1 as libc::c_int).unwrap();
    let mut bytes = [0; 100];
    write_frame(7, &mut bytes);
    sender.send_to(&bytes, port.local_addr()).unwrap();
    check_frame(7, &collect(&mut port, 1)[0].1);
}

#[test]
fn a_kernel_that_refuses_segmentation_gets_single_datagrams() {
    let (mut a, mut b) = ports(V4_A, V4_B, Segmentation::On).unwrap();
    a.queue = TxQueue::new(1000);
    for i in 0..500 {
        assert!(a.transmit(Time::ZERO, &frame(&path(V4_A, V4_B), 20), &mut |b| write_frame(i, b)));
    }
    a.flush(Time::ZERO).unwrap();
    assert_eq!(a.max_segments(), 1);
    for (i, (_, bytes)) in collect(&mut b, 500).iter().enumerate() {
        check_frame(i as u32, bytes);
    }
    assert_eq!((a.counters().tx_frames, a.counters().tx_dropped), (500, 0));
}

#[test]
fn a_class_that_is_used_for_long_stays_right_when_others_come_between() {
    for (a, b) in
        [ports(V4_A, V4_B, Segmentation::On).ok(), v6_ports("a_class_that_is_used_for_long")].into_iter().flatten()
    {
        let (mut a, mut b) = (a, b);
        let (src, dst) = (a.local_addr().ip(), b.local_addr().ip());
        for i in 0..1_000u32 {
            let class = if i % 150 == 149 { 0 } else { 2 + (i / 400) as u8 };
            let path = Path { src, dst, udp_src: 0, traffic_class: class, hop_limit: 64 };
            assert!(a.transmit(Time::ZERO, &frame(&path, 64), &mut |b| write_frame(i, b)));
            a.flush(Time::ZERO).unwrap();
            assert_eq!(collect(&mut b, 1)[0].0.traffic_class, class, "frame {i}");
        }
    }
}

#[test]
fn a_wildcard_port_knows_and_reports_its_addresses() {
    let mut a = UdpPort::open(&config("0.0.0.0")).unwrap();
    let mut b = UdpPort::open(&config("0.0.0.0")).unwrap();
    a.set_remote_port(b.local_addr().port());
    assert_eq!(a.source_for(IpAddr::from([127, 0, 0, 9])).unwrap(), IpAddr::from([127, 0, 0, 1]));
    for (src, dst, wire_src) in [("127.0.0.3", "127.0.0.7", "127.0.0.3"), ("0.0.0.0", "127.0.0.8", "127.0.0.1")] {
        let path = path(src, dst);
        assert_eq!(a.wire_path(&path).src, wire_src.parse::<IpAddr>().unwrap());
        assert!(a.transmit(Time::ZERO, &frame(&path, 32), &mut |b| write_frame(1, b)));
        a.flush(Time::ZERO).unwrap();
        let seen = collect(&mut b, 1)[0].0;
        assert_eq!(seen, Path { hop_limit: 0, ..a.wire_path(&path) });
    }
}

#[test]
fn a_wildcard_port_knows_its_addresses_over_ipv6() {
    if v6_ports("a_wildcard_port_knows_its_addresses_over_ipv6").is_none() {
        return;
    }
    let mut a = UdpPort::open(&config("::")).unwrap();
    let mut b = UdpPort::open(&config("::")).unwrap();
    a.set_remote_port(b.local_addr().port());
    assert!(a.transmit(Time::ZERO, &frame(&path("::", "::1"), 32), &mut |b| write_frame(1, b)));
    a.flush(Time::ZERO).unwrap();
    let seen = collect(&mut b, 1)[0].0;
    assert_eq!((seen.src, seen.dst), ("::1".parse().unwrap(), "::1".parse().unwrap()));
}

#[test]
fn the_other_address_family_is_an_error_that_names_both() {
    let mut a = UdpPort::open(&config(V4_A)).unwrap();
    assert!(
        a.transmit(Time::ZERO, &frame(&path("::1", "::1"), 32), &mut |_| panic!("filled a frame that cannot be sent"))
    );
    let e = a.flush(Time::ZERO).unwrap_err();
    assert_eq!(udp_error(&e), UdpError::Family { local: V4_A.parse().unwrap(), dst: "::1".parse().unwrap() });
    a.flush(Time::ZERO).unwrap();
    assert_eq!(a.counters().tx_dropped, 1);
}

#[test]
fn a_closed_peer_port_is_counted_not_reported() {
    let mut a = UdpPort::open(&config(V4_A)).unwrap();
    let closed = UdpPort::open(&config(V4_B)).unwrap().local_addr().port();
    a.set_remote_port(closed);
    // Only then does the kernel report to an unconnected socket.
    sys::set_option(a.as_fd(), libc::IPPROTO_IP, libc::IP_RECVERR, 1 as libc::c_int).unwrap();
    for i in 0..10 {
        assert!(a.transmit(Time::ZERO, &frame(&path(V4_A, V4_B), 32), &mut |b| write_frame(i, b)));
        a.flush(Time::ZERO).unwrap();
        assert_eq!(a.receive(Time::ZERO, 10, &mut |_| ()).unwrap(), 0);
    }
    assert_eq!(a.counters().tx_frames, 10);
    assert!(a.counters().refused > 0);
}

#[test]
fn an_address_in_use_or_foreign_is_named() {
    let a = UdpPort::open(&config(V4_A)).unwrap();
    for local in [a.local_addr(), SocketAddr::from(([198, 51, 100, 1], 0))] {
        let e = UdpPort::open(&UdpConfig { local, ..config(V4_A) }).err().unwrap();
        assert!(e.to_string().starts_with(&format!("cannot bind UDP {local}: ")), "{e}");
    }
}

/// To a documentation address beyond the default route: the frames are refused before anything leaves the host.
#[test]
fn a_frame_beyond_the_mtu_is_an_error_that_names_it() {
    let test = "a_frame_beyond_the_mtu_is_an_error_that_names_it";
    let mut a = UdpPort::open(&config("0.0.0.0")).unwrap();
    let dst = IpAddr::from(Ipv4Addr::new(198, 51, 100, 1));
    let mtu = match a.route_mtu(dst) {
        Ok(mtu) if mtu < MAX_FRAME => mtu,
        Ok(mtu) => return skipped(test, &format!("the route's MTU is {mtu}, every frame fits")),
        Err(e) => return skipped(test, &format!("no route beyond this host ({e})")),
    };
    assert_eq!(a.max_frame_to(dst).unwrap(), mtu - 28);
    // One frame alone, and several in a segmented send.
    for frames in [1, 3] {
        let path = Path { src: Ipv4Addr::UNSPECIFIED.into(), dst, ..path(V4_A, V4_B) };
        for i in 0..frames {
            assert!(a.transmit(Time::ZERO, &frame(&path, mtu - 27), &mut |b| write_frame(i, b)));
        }
        let e = a.flush(Time::ZERO).unwrap_err();
        assert_eq!(udp_error(&e), UdpError::Mtu { frame: mtu - 27, dst, mtu });
        assert!(e.to_string().contains("MTU"), "{e}");
        a.flush(Time::ZERO).unwrap();
    }
    assert_eq!((a.counters().tx_frames, a.counters().tx_dropped), (0, 4));
    assert!(a.max_segments() > 1 || probe_segments() == 1, "segmentation is not to blame");
}

#[test]
fn what_overflows_the_socket_buffer_is_counted() {
    let mut port = UdpPort::open(&UdpConfig { socket_buffer: 1, ..config(V4_B) }).unwrap();
    let sender = UdpSocket::bind((V4_A, 0)).unwrap();
    let (to, mut bytes) = (port.local_addr(), [0; 4000]);
    let mut send = |i, len| {
        write_frame(i, &mut bytes[..len]);
        sender.send_to(&bytes[..len], to).unwrap();
    };
    (0..300).for_each(|i| send(i, 4000));
    let mut seen = 0;
    while port.receive(Time::ZERO, 1000, &mut |_| seen += 1).unwrap() > 0 {}
    // The count comes with the next datagram that is received.
    send(0, 32);
    collect(&mut port, 1);
    assert_eq!(seen + port.counters().rx_dropped, 300);
}

/// A sender without credit waits instead of losing frames, whatever the socket's buffer, and so do several.
#[test]
fn nothing_is_lost_between_ports_of_one_host() {
    const FRAMES: u32 = 3000;
    for (senders, len, socket_buffer) in [(1, 1082, 1), (1, 1082, 208 << 10), (4, 4200, 208 << 10), (12, 100, 64 << 10)]
    {
        let mut receiver = UdpPort::open(&UdpConfig { socket_buffer, ..config(V4_B) }).unwrap();
        let mut senders: Vec<_> = (0..senders)
            .map(|_| {
                let mut port = UdpPort::open(&UdpConfig { socket_buffer, ..config(V4_A) }).unwrap();
                port.set_remote_port(receiver.local_addr().port());
                (port, 0)
            })
            .collect();
        let start = Instant::now();
        let (mut got, mut waited) = (std::collections::BTreeMap::new(), 0);
        while got.values().sum::<u32>() < FRAMES * senders.len() as u32 {
            // By this clock no time passes while others have the core: no receiver is given up.
            let now = Time(u64::from(waited));
            for (port, sent) in &mut senders {
                while *sent < FRAMES
                    && port.transmit(now, &frame(&path(V4_A, V4_B), len), &mut |b| write_frame(*sent, b))
                {
                    *sent += 1;
                }
                waited += u32::from(*sent < FRAMES);
                port.flush(now).unwrap();
            }
            // Late, and a little at a time.
            receiver
                .receive(now, 50, &mut |frame| {
                    let next = got.entry(frame.path.udp_src).or_insert(0);
                    check_frame(*next, frame.bytes);
                    *next += 1;
                })
                .unwrap();
            assert!(start.elapsed() < Duration::from_secs(60), "{got:?}");
        }
        assert!(waited > 0);
        assert_eq!(receiver.counters().rx_dropped, 0);
        assert!(senders.iter().all(|(port, _)| port.counters().tx_dropped == 0));
    }
}

/// The query of a timer before it treats silence as loss.
#[test]
fn a_sender_knows_what_its_receiver_has_not_answered() {
    let (mut a, mut b) = ports(V4_A, V4_B, Segmentation::Auto).unwrap();
    let path = path(V4_A, V4_B);
    assert_eq!(a.peer_process(&path, 7), PeerProcess::Unknown, "nothing was sent");
    let unanswered = |a: &mut UdpPort| match a.peer_process(&path, 7) {
        PeerProcess::Buffered { handed, answered, reader: Reader::Peer } => handed - answered,
        other => panic!("{other:?}"),
    };
    let send = |a: &mut UdpPort| assert!(a.transmit(Time::ZERO, &frame(&path, 1000), &mut |b| write_frame(0, b)));
    send(&mut a);
    a.flush(Time::ZERO).unwrap();
    let first = unanswered(&mut a);
    assert!(first >= 1000);
    // What the port itself still holds counts as well.
    send(&mut a);
    assert_eq!(unanswered(&mut a), 2 * first);
    a.flush(Time::ZERO).unwrap();
    collect(&mut b, 2);
    assert_eq!(unanswered(&mut a), 2 * first);
    b.mark_answered();
    assert_eq!(unanswered(&mut a), 0);
    // A receiver that forwards answers only for its own queue pairs.
    b.set_reader(3);
    for (slot, expected) in [(3, Reader::Peer), (4, Reader::Forwarder)] {
        let PeerProcess::Buffered { reader, .. } = a.peer_process(&path, Slot::new(slot).unwrap().first_qpn()) else {
            panic!("it is known")
        };
        assert_eq!(reader, expected);
    }
}

/// As a sender does that has reached its maximum number of destinations.
#[test]
fn a_sender_that_connects_again_gets_credit_for_what_it_sends_then() {
    let (mut a, mut b) = ports(V4_A, V4_B, Segmentation::Auto).unwrap();
    let path = path(V4_A, V4_B);
    let to = a.remote_port();
    for round in 0..3 {
        let now = Time(round * 20 * MS);
        // It forgets all of them.
        a.set_remote_port(to + 1);
        a.set_remote_port(to);
        assert!(a.transmit(now, &frame(&path, 1000), &mut |bytes| write_frame(0, bytes)));
        a.flush(now).unwrap();
        let mut frames = 0;
        while frames == 0 {
            frames = b.receive(now, 8, &mut |_| ()).unwrap();
        }
        b.mark_answered();
        let PeerProcess::Buffered { handed, answered, .. } = a.peer_process(&path, 7) else { panic!("it is known") };
        assert_eq!(handed, answered, "round {round}");
    }
}

/// Sends to `receiver`, which reads nothing, until there is no credit. Then calls `meanwhile`, and returns the time by
/// the port's clock until there is room again, ns.
fn wait_for_room(receiver: UdpPort, meanwhile: impl FnOnce(UdpPort) -> Option<UdpPort>) -> u64 {
    let mut sender = UdpPort::open(&config(V4_A)).unwrap();
    sender.set_remote_port(receiver.local_addr().port());
    let since = Time(SEC);
    for _ in 0..100_000 {
        if sender.transmit(since, &frame(&path(V4_A, V4_B), 4000), &mut |b| write_frame(0, b)) {
            continue;
        }
        sender.flush(since).unwrap();
        if sender.starved {
            break;
        }
    }
    assert!(sender.starved && !sender.has_work());
    let _receiver = meanwhile(receiver);
    let mut now = since;
    while sender.starved {
        now = sender.next_deadline();
        sender.flush(now).unwrap();
    }
    assert_eq!(sender.next_deadline(), Time::NEVER);
    now.since(since)
}

#[test]
fn a_receiver_that_reads_nothing_is_waited_for_only_so_long() {
    let receiver = || UdpPort::open(&config(V4_B)).unwrap();
    let stopped = wait_for_room(receiver(), Some);
    assert!((100 * MS..101 * MS).contains(&stopped), "{stopped} ns");
    let ended = wait_for_room(receiver(), |port| {
        drop(port);
        None
    });
    assert!(ended < 2 * MS, "{ended} ns");
    let read = wait_for_room(receiver(), |mut port| {
        port.receive(Time(SEC), 1000, &mut |_| ()).unwrap();
        Some(port)
    });
    assert!(read < MS, "{read} ns");
}

#[test]
fn a_stranger_gets_no_credit_and_does_no_harm() {
    let (mut a, mut b) = ports(V4_A, V4_B, Segmentation::On).unwrap();
    let name = format!("irnic/1/credit/{V4_B}/{}", b.local_addr().port());
    // Too short, too long, without memory, with memory of another size, and nothing at all.
    let page = host_sys::memory(c"test", 4096).unwrap();
    let pages = host_sys::memory(c"test", 8192).unwrap();
    let mut greeting = *b"IRNICCR\x01................\0\0";
    greeting[8..24].copy_from_slice(&[0xff; 16]);
    let strangers: Vec<_> = (0..5)
        .map(|kind| {
            let connection = host_sys::connect(&name).unwrap();
            let said = match kind {
                0 => host_sys::send(connection.as_fd(), &greeting[..20], &[page.as_fd()]),
                1 => host_sys::send(connection.as_fd(), &[7; 64], &[page.as_fd()]),
                2 => host_sys::send(connection.as_fd(), &greeting, &[]),
                3 => host_sys::send(connection.as_fd(), &greeting, &[pages.as_fd()]),
                _ => Ok(()),
            };
            said.unwrap();
            connection
        })
        .collect();
    for i in 0..2000 {
        let now = Time(SEC + u64::from(i) * MS);
        assert!(a.transmit(now, &frame(&path(V4_A, V4_B), 100), &mut |b| write_frame(i, b)));
        a.flush(now).unwrap();
        let mut seen = 0;
        while seen == 0 {
            seen = b.receive(now, 10, &mut |frame| check_frame(i, frame.bytes)).unwrap();
        }
    }
    drop(strangers);
}
