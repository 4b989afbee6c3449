//! Stations on real carriers: two ports of this process, or a port and a bare socket.

use std::os::unix::net::UnixDatagram;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use irnic_transports::time::{MS, SEC};
use tempfile::TempDir;

use super::*;
use crate::conformance::{self, Pair, check_frame, collect, frame, write_frame};
use crate::host_now;

const V4: [&str; 2] = ["10.77.0.1", "10.77.0.2"];
const V6: [&str; 2] = ["fd77::1", "fd77::2"];

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn path(from: &str, to: &str) -> Path {
    Path { src: ip(from), dst: ip(to), udp_src: 0xc123, traffic_class: 0, hop_limit: 64 }
}

fn config(carrier: Carrier, addresses: &[&str]) -> FrameConfig {
    FrameConfig::new(FrameSpec::new(carrier), addresses.iter().map(|a| ip(a)).collect())
}

/// The two ends of a cable of sockets in a directory.
fn cable(folder: &TempDir) -> [Carrier; 2] {
    let [a, b] = ["a", "b"].map(|name| folder.path().join(name));
    [(&a, &b), (&b, &a)].map(|(local, remote)| Carrier::Dgram { local: local.clone(), remote: remote.clone() })
}

/// Moves packets until both know each other. Panics after ten seconds.
fn introduce(a: &mut FramePort, b: &mut FramePort, [a_ip, b_ip]: [&str; 2]) {
    let start = Instant::now();
    // A device may drop packets while it is being brought up: requests are repeated.
    let now = || Time(start.elapsed().as_nanos() as u64);
    let ready = |port: &mut FramePort, to| port.resolve(now(), ip(to)) == Resolution::Ready;
    while !(ready(a, b_ip) & ready(b, a_ip)) {
        for port in [&mut *a, &mut *b] {
            port.flush(now()).unwrap();
            port.receive(now(), 10, &mut |_| panic!("a frame that nobody sent")).unwrap();
        }
        assert!(start.elapsed() < Duration::from_secs(10), "{a:?} {b:?}");
    }
}

/// Opens two stations that know each other.
fn stations(carriers: [Carrier; 2], addresses: [&str; 2], vlan: Option<u16>) -> [FramePort; 2] {
    let [mut a, mut b] = [0, 1].map(|i| {
        let FrameConfig { spec, addresses, .. } = config(carriers[i].clone(), &[addresses[i]]);
        FramePort::open(&FrameConfig::new(spec.with_vlan(vlan), addresses)).unwrap()
    });
    introduce(&mut a, &mut b, addresses);
    [a, b]
}

fn conforms(carriers: &[Carrier; 2], addresses: [&str; 2], vlan: Option<u16>) {
    conformance::suite(|| {
        let [a, b] = stations(carriers.clone(), addresses, vlan);
        Pair::new(a, ip(addresses[0]), b, ip(addresses[1]))
    });
}

fn frame_error(e: &io::Error) -> FrameError {
    e.get_ref().and_then(|e| e.downcast_ref::<FrameError>()).unwrap_or_else(|| panic!("{e}")).clone()
}

#[test]
fn passes_the_conformance_suite_over_datagram_sockets() {
    let folder = tempfile::tempdir().unwrap();
    for (addresses, vlan) in [(V4, None), (V6, Some(4094))] {
        conforms(&cable(&folder), addresses, vlan);
    }
    assert_eq!(folder.path().read_dir().unwrap().count(), 0, "sockets are removed");
}

/// Runs `test` in a network namespace set up by `ip` with these commands; reports if that is not permitted.
fn in_a_namespace(name: &'static str, commands: &'static [&'static str], test: impl FnOnce() + Send + 'static) {
    let run = move || {
        // SAFETY: no memory is passed. It affects this thread only.
        if unsafe { libc::unshare(libc::CLONE_NEWNET) } < 0 {
            return Err(format!("a network namespace: {}", io::Error::last_os_error()));
        }
        for command in commands {
            let output = Command::new("ip").args(command.split(' ')).output().map_err(|e| format!("ip: {e}"))?;
            if !output.status.success() {
                return Err(format!("ip {command}: {}", String::from_utf8_lossy(&output.stderr).trim()));
            }
        }
        test();
        Ok(())
    };
    match thread::spawn(run).join() {
        Ok(Ok(())) => {}
        Ok(Err(why)) => {
            irnic_testkit::skipped(&format!("{name}: {why}"));
        }
        Err(panic) => std::panic::resume_unwind(panic),
    }
}

const VETH: [&str; 3] =
    ["link add veth0 mtu 9000 type veth peer name veth1 mtu 9000", "link set veth0 up", "link set veth1 up"];

fn interfaces() -> [Carrier; 2] {
    ["veth0", "veth1"].map(|name| Carrier::Packet(name.into()))
}

#[test]
fn passes_the_conformance_suite_over_packet_sockets() {
    in_a_namespace("packet sockets", &VETH, || {
        for (addresses, vlan) in [(V4, Some(5)), (V6, None)] {
            conforms(&interfaces(), addresses, vlan);
        }
    });
}

/// Two devices of one bridge: packets of one station reach the other through the kernel.
const TAPS: [&str; 6] = [
    "link add br0 type bridge",
    "tuntap add dev tap0 mode tap",
    "tuntap add dev tap1 mode tap",
    "link set tap0 mtu 9000 master br0 up",
    "link set tap1 mtu 9000 master br0 up",
    "link set br0 mtu 9000 up",
];

#[test]
fn passes_the_conformance_suite_over_tap_devices() {
    in_a_namespace("TAP devices", &TAPS, || {
        let taps = ["tap0", "tap1"].map(|name| Carrier::Tap(name.into()));
        for (addresses, vlan) in [(V4, None), (V6, Some(7))] {
            conforms(&taps, addresses, vlan);
        }
    });
}

/// The kernel's own stack is the other station: its ARP and neighbour discovery ask and answer, and its socket receives
/// the datagrams.
#[test]
fn the_kernel_takes_a_station_for_a_host() {
    const KERNEL: [&str; 5] = [
        "link add veth0 type veth peer name veth1",
        "link set veth0 up",
        "link set veth1 up",
        "addr add 10.77.0.1/24 dev veth0",
        "addr add fd77::1/64 dev veth0 nodad",
    ];
    in_a_namespace("the kernel as a station", &KERNEL, || {
        talk_to_the_kernel(Carrier::Packet("veth1".into()));
        // The kernel's own address is refused.
        let refused = FramePort::open(&config(Carrier::Packet("veth1".into()), &["10.77.0.1"])).unwrap_err();
        assert_eq!(frame_error(&refused), FrameError::KernelAddress(ip("10.77.0.1")));
    });
}

#[test]
fn the_kernel_is_the_other_station_of_a_tap_device() {
    const KERNEL: [&str; 4] = [
        "tuntap add dev tap0 mode tap",
        "link set tap0 up",
        "addr add 10.77.0.1/24 dev tap0",
        "addr add fd77::1/64 dev tap0 nodad",
    ];
    in_a_namespace("the kernel behind a TAP device", &KERNEL, || talk_to_the_kernel(Carrier::Tap("tap0".into())));
}

fn talk_to_the_kernel(carrier: Carrier) {
    let addresses = ["10.77.0.2", "fd77::2"];
    let mut port = FramePort::open(&config(carrier, &addresses)).unwrap();
    for (kernel, own) in [("10.77.0.1", "10.77.0.2"), ("fd77::1", "fd77::2")] {
        let mut peer = crate::udp::UdpPort::open(&crate::udp::UdpConfig::new(ip(kernel))).unwrap();
        assert!(port.transmit(host_now(), &frame(&path(own, kernel), 100), &mut |b| write_frame(1, b)));
        let start = Instant::now();
        let mut seen = 0;
        while seen == 0 {
            // The kernel may not be ready at the first request.
            port.flush(host_now()).unwrap();
            port.receive(host_now(), 10, &mut |_| ()).unwrap();
            seen += peer
                .receive(Time::ZERO, 10, &mut |f| {
                    check_frame(1, f.bytes);
                    assert_eq!(f.path.src, ip(own));
                })
                .unwrap();
            assert!(start.elapsed() < Duration::from_secs(30), "{port:?}");
        }
        // And back, with the header's identification.
        assert!(peer.transmit(Time::ZERO, &frame(&path(kernel, own), 200), &mut |b| write_frame(2, b)));
        peer.flush(Time::ZERO).unwrap();
        let start = Instant::now();
        let mut arrived = None;
        while arrived.is_none() {
            let mut each = |f: RxFrame<'_>| {
                check_frame(2, f.bytes);
                arrived = Some(f.icrc);
            };
            port.receive(host_now(), 10, &mut each).unwrap();
            port.flush(host_now()).unwrap();
            assert!(start.elapsed() < Duration::from_secs(30), "{port:?}");
        }
        let v4 = RxIcrc::Ipv4 { identification: 0, dont_fragment: true };
        assert_eq!(arrived, Some(if ip(own).is_ipv4() { v4 } else { RxIcrc::Exact }));
    }
}

#[test]
fn a_tap_device_that_is_not_there_is_made_for_as_long_as_the_port_is_open() {
    in_a_namespace("a TAP device of the port's own", &[], || {
        let there = || Command::new("ip").args(["link", "show", "up", "dev", "tap7"]).output().unwrap();
        let tap = || config(Carrier::Tap("tap7".into()), &[V4[0]]);
        let port = FramePort::open(&tap()).unwrap();
        assert!(!there().stdout.is_empty(), "it is up");
        let refused = FramePort::open(&tap()).unwrap_err();
        assert!(matches!(frame_error(&refused), FrameError::Taken { .. }), "{refused}");
        drop(port);
        // A child that another test has just forked keeps it until it executes its program.
        let start = Instant::now();
        while !there().stdout.is_empty() {
            assert!(start.elapsed() < Duration::from_secs(10), "it is still there");
        }
        FramePort::open(&tap()).unwrap();
    });
}

/// Like a child forked by another thread, between the closing of two descriptors when it executes its program.
#[test]
fn a_tap_device_that_a_child_keeps_for_a_moment_is_waited_for() {
    in_a_namespace("a TAP device that a child keeps", &["tuntap add dev tap0 mode tap"], || {
        let open = || FramePort::open(&config(Carrier::Tap("tap0".into()), &[V4[0]]));
        let port = open().unwrap();
        let name = port._claim.as_raw_fd();
        // SAFETY: the child makes a few system calls, and allocates nothing.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: no memory is passed, and the child no longer uses any descriptor.
            unsafe {
                libc::close(name);
                libc::usleep(50_000);
                libc::_exit(0)
            }
        }
        assert!(child > 0, "{}", io::Error::last_os_error());
        drop(port);
        let again = open();
        // SAFETY: no memory is passed; the child has not been waited for.
        assert_eq!(unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) }, child);
        again.unwrap();
    });
}

/// Requests of the connection manager pass through all wrappers of a port.
#[test]
fn wrappers_ask_the_port_for_the_way() {
    use crate::impair::Impaired;
    use crate::paced::Paced;

    let folder = tempfile::tempdir().unwrap();
    let [carrier, _] = cable(&folder);
    let port: Box<dyn Port> = Box::new(FramePort::open(&config(carrier, &[V4[0]])).unwrap());
    let impaired = Impaired::new(port, &"loss 1%".parse().unwrap(), 1, 1);
    let mut port = crate::capture::Captured::new(Paced::new(impaired, 1_000_000), Vec::new(), "test", Duration::ZERO);
    for (dst, expected) in
        [(V4[0], Resolution::Ready), (V4[1], Resolution::Pending), ("0.0.0.0", Resolution::Unreachable)]
    {
        assert_eq!(port.resolve(Time::ZERO, ip(dst)), expected);
    }
}

/// Other packets of an interface are not copied to the port.
#[test]
fn the_kernel_filters_what_is_not_for_the_station() {
    in_a_namespace("the packet filter", &VETH, || {
        let [mut a, mut b] = stations(interfaces(), V4, None);
        let mut other = FramePort::open(&config(Carrier::Packet("veth0".into()), &["10.77.0.9"])).unwrap();
        introduce(&mut other, &mut b, ["10.77.0.9", V4[1]]);
        let before = b.frame_counters();
        for i in 0..10 {
            // To other stations, and of other protocols: only the peer's own filter receives them.
            let mut packet = [0; 60];
            let at = ethernet::emit(Mac([2, 9, 9, 9, 9, i]), a.mac(), None, 0, 0x0800, &mut packet);
            a.tx.push(60, false).unwrap().copy_from_slice(&packet);
            let at = ethernet::emit(b.mac(), a.mac(), None, 0, 0x88cc, &mut packet).min(at);
            assert_eq!(at, 14);
            a.tx.push(60, false).unwrap().copy_from_slice(&packet);
        }
        assert!(a.transmit(Time::ZERO, &frame(&path(V4[0], V4[1]), 64), &mut |b| write_frame(5, b)));
        a.flush(Time::ZERO).unwrap();
        check_frame(5, &collect(&mut b, 1)[0].1);
        assert_eq!(b.frame_counters(), before);
        assert_eq!(other.frame_counters().rx_other_mac, 0);
    });
}

#[test]
fn a_process_that_comes_second_is_told_who_was_first() {
    let folder = tempfile::tempdir().unwrap();
    let [carrier, _] = cable(&folder);
    let first = FramePort::open(&config(carrier.clone(), &[V4[0]])).unwrap();
    let refused = FramePort::open(&config(carrier.clone(), &[V4[0]])).unwrap_err();
    assert_eq!(refused.kind(), io::ErrorKind::AddrInUse);
    let said = refused.to_string();
    let who = format!("is taken by process {} of user ", std::process::id());
    assert!(said.starts_with(&format!("frames:{carrier} ")) && said.contains(&who), "{said}");
    assert!(said.contains("a frame port is one process's"), "{said}");
    drop(first);
    FramePort::open(&config(carrier, &[V4[0]])).unwrap();
}

#[test]
fn what_lies_at_the_path_is_replaced_only_if_nobody_has_it() {
    let folder = tempfile::tempdir().unwrap();
    let [carrier, _] = cable(&folder);
    let local = folder.path().join("a");
    // A process that was killed.
    drop(UnixDatagram::bind(&local).unwrap());
    drop(FramePort::open(&config(carrier.clone(), &[V4[0]])).unwrap());
    // A live one.
    let other = UnixDatagram::bind(&local).unwrap();
    let refused = FramePort::open(&config(carrier.clone(), &[V4[0]])).unwrap_err();
    assert!(refused.to_string().contains("another program listens there"), "{refused}");
    other.send_to(&[1], &local).unwrap();
    std::fs::remove_file(&local).unwrap();
    std::fs::write(&local, "precious").unwrap();
    let refused = FramePort::open(&config(carrier, &[V4[0]])).unwrap_err();
    assert!(matches!(frame_error(&refused), FrameError::Open { .. }), "{refused}");
    assert_eq!(std::fs::read(&local).unwrap(), b"precious");
}

#[test]
fn carriers_that_are_not_there_are_named() {
    let missing = FramePort::open(&config(Carrier::Packet("no-such-if".into()), &[V4[0]])).unwrap_err();
    assert!(missing.to_string().starts_with("cannot open frames:packet:no-such-if: "), "{missing}");
    let none = FramePort::open(&config(Carrier::Tap("tap9".into()), &[])).unwrap_err();
    assert_eq!(frame_error(&none), FrameError::NoAddress);
}

/// Either end restarts; the other finds it.
#[test]
fn a_peer_that_begins_again_is_found() {
    let folder = tempfile::tempdir().unwrap();
    let carriers = cable(&folder);
    let [mut a, mut b] = stations(carriers.clone(), V4, None);
    for round in 0..4 {
        drop(b);
        // To an absent peer: lost and counted.
        assert!(a.transmit(Time::ZERO, &frame(&path(V4[0], V4[1]), 64), &mut |b| write_frame(1, b)));
        a.flush(Time::ZERO).unwrap();
        assert_eq!(a.counters().refused, 1);
        b = FramePort::open(&config(carriers[1].clone(), &[V4[1]])).unwrap();
        introduce(&mut a, &mut b, V4);
        assert!(b.transmit(Time::ZERO, &frame(&path(V4[1], V4[0]), 64), &mut |b| write_frame(round, b)));
        b.flush(Time::ZERO).unwrap();
        check_frame(round, &collect(&mut a, 1)[0].1);
        // The same with exchanged roles.
        std::mem::swap(&mut a, &mut b);
        a.counters = PortCounters::default();
        let own = a.link.addresses()[0];
        if own != ip(V4[0]) {
            std::mem::swap(&mut a, &mut b);
            a.counters = PortCounters::default();
        }
    }
}

/// A peer whose socket was replaced is noticed within a second even if nothing is sent to it.
#[test]
fn a_replaced_peer_is_looked_for_once_a_second() {
    let folder = tempfile::tempdir().unwrap();
    let carriers = cable(&folder);
    let [mut a, b] = stations(carriers.clone(), V4, None);
    a.receive(Time(20 * SEC), 1, &mut |_| ()).unwrap();
    assert_eq!(a.next_deadline(), Time(21 * SEC));
    drop(b);
    let peer = UnixDatagram::bind(folder.path().join("b")).unwrap();
    let packet = [0xff; 60];
    let error = peer.send_to(&packet, folder.path().join("a")).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::EPERM), "the kernel keeps what is connected to the old peer");
    a.receive(Time(21 * SEC), 1, &mut |_| ()).unwrap();
    peer.send_to(&packet, folder.path().join("a")).unwrap();
    a.receive(Time(21 * SEC), 1, &mut |_| ()).unwrap();
    assert_eq!(a.frame_counters().rx_foreign, 1);
}

/// A peer that is not connected, such as QEMU, queues ten datagrams. The rest stays here, and the port wakes when there
/// is room.
#[test]
fn a_slow_peer_loses_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let peer = UnixDatagram::bind(folder.path().join("b")).unwrap();
    peer.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let [carrier, _] = cable(&folder);
    let mut port = FramePort::open(&config(carrier, &[V4[0]])).unwrap();
    port.join(ip("239.1.2.3")).unwrap();
    port.leave(ip("239.1.2.3")).unwrap();
    let group = path(V4[0], "239.1.2.3");
    for i in 0..64 {
        assert!(port.transmit(Time::ZERO, &frame(&group, 100), &mut |b| write_frame(i, b)));
    }
    port.flush(Time::ZERO).unwrap();
    assert!(port.counters().tx_frames < 64, "the kernel's limit has gone: {:?}", port.counters());
    assert!(Port::prepare_sleep(&mut port));
    let mut packet = [0; 2048];
    for i in 0..64 {
        let len = peer.recv(&mut packet).unwrap();
        assert_eq!((&packet[..6], len), (&[1, 0, 0x5e, 1, 2, 3][..], 14 + 28 + 100));
        check_frame(i, &packet[42..len]);
        // Returns at once if there is room, and sends the rest.
        if port.counters().tx_frames < 64 {
            port.wait(Duration::from_secs(600)).unwrap();
            port.flush(Time::ZERO).unwrap();
        }
    }
}

#[test]
fn what_waits_for_room_is_sent_before_the_process_ends() {
    let folder = tempfile::tempdir().unwrap();
    let peer = UnixDatagram::bind(folder.path().join("b")).unwrap();
    peer.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let [carrier, _] = cable(&folder);
    let mut port = FramePort::open(&config(carrier, &[V4[0]])).unwrap();
    let group = path(V4[0], "239.1.2.3");
    for i in 0..64 {
        assert!(port.transmit(Time::ZERO, &frame(&group, 100), &mut |b| write_frame(i, b)));
    }
    port.flush(Time::ZERO).unwrap();
    let queued = 64 - port.counters().tx_frames;
    assert!(queued > 0, "the kernel's limit has gone: {:?}", port.counters());
    // The peer does not read: the attempt ends.
    port.clean_up();
    assert_eq!(port.counters().tx_frames, 64 - queued);
    let reader = thread::spawn(move || {
        let mut packet = [0; 2048];
        for i in 0..64 {
            let len = peer.recv(&mut packet).unwrap();
            check_frame(i, &packet[42..len]);
        }
    });
    while !reader.is_finished() {
        port.clean_up();
    }
    reader.join().unwrap();
    assert_eq!(port.counters().tx_frames, 64);
}

#[test]
fn frames_wait_for_an_answer_and_leave_in_order() {
    let folder = tempfile::tempdir().unwrap();
    let carriers = cable(&folder);
    let [mut a, mut b] = [0, 1].map(|i| FramePort::open(&config(carriers[i].clone(), &[V4[i], V6[i]])).unwrap());
    for (there, classes) in [(path(V4[0], V4[1]), 0), (path(V6[0], V6[1]), 16)] {
        assert_eq!(a.resolve(Time::ZERO, there.dst), Resolution::Pending);
        for i in 0..20 {
            assert!(a.transmit(Time::ZERO, &frame(&there, 1000), &mut |b| write_frame(i, b)));
        }
        a.flush(Time::ZERO).unwrap();
        let start = Instant::now();
        let mut next = 0;
        while next < 16 {
            b.receive(Time::ZERO, 100, &mut |f| {
                check_frame(next, f.bytes);
                next += 1;
            })
            .unwrap();
            a.receive(Time::ZERO, 100, &mut |_| ()).unwrap();
            assert!(start.elapsed() < Duration::from_secs(10));
        }
        assert_eq!(a.resolve(Time::ZERO, there.dst), Resolution::Ready);
        let dropped = if classes == 0 { 4 } else { 8 };
        assert_eq!(a.frame_counters().tx_unresolved, dropped, "16 frames wait for one neighbour");
        assert_eq!(a.counters().tx_dropped, dropped);
    }
}

#[test]
fn nobody_answers() {
    let folder = tempfile::tempdir().unwrap();
    let [carrier, _] = cable(&folder);
    let peer = UnixDatagram::bind(folder.path().join("b")).unwrap();
    let mut a = FramePort::open(&config(carrier, &[V4[0]])).unwrap();
    let there = path(V4[0], V4[1]);
    assert!(a.transmit(Time(5), &frame(&there, 64), &mut |b| write_frame(1, b)));
    let mut now = Time(5);
    for request in 1..=3 {
        a.flush(now).unwrap();
        assert_eq!(a.frame_counters().neighbour_requests, request);
        assert_eq!(a.resolve(now, there.dst), Resolution::Pending);
        let mut packet = [0; 100];
        assert_eq!(peer.recv(&mut packet).unwrap(), 60);
        assert_eq!((&packet[..6], &packet[12..14]), (&[0xff; 6][..], &[8, 6][..]));
        now += SEC;
    }
    a.receive(now, 1, &mut |_| ()).unwrap();
    assert_eq!(a.resolve(now, there.dst), Resolution::Unreachable);
    assert!(a.transmit(now, &frame(&there, 64), &mut |_| panic!("filled a frame that cannot be sent")));
    a.flush(now).unwrap();
    let counters = a.frame_counters();
    assert_eq!((counters.neighbour_failures, counters.tx_unresolved), (1, 2));
    // Later it is tried again.
    assert_eq!(a.resolve(now + SEC, there.dst), Resolution::Pending);
}

#[test]
fn no_station_can_have_some_addresses() {
    let folder = tempfile::tempdir().unwrap();
    let [carrier, _] = cable(&folder);
    let mut a = FramePort::open(&config(carrier, &[V4[0]])).unwrap();
    for dst in ["255.255.255.255", "0.0.0.0", V6[1]] {
        assert_eq!(a.resolve(Time::ZERO, ip(dst)), Resolution::Unreachable);
        let there = Path { dst: ip(dst), ..path(V4[0], V4[1]) };
        assert!(a.transmit(Time::ZERO, &frame(&there, 64), &mut |_| panic!("filled a frame that cannot be sent")));
        assert_eq!(frame_error(&a.flush(Time::ZERO).unwrap_err()), FrameError::Address(ip(dst)));
    }
    // A group is not a station, but needs a sender of its family.
    let there = Path { dst: ip("ff0e::1"), ..path(V4[0], V4[1]) };
    assert!(a.transmit(Time::ZERO, &frame(&there, 64), &mut |_| panic!("filled a frame that cannot be sent")));
    assert_eq!(frame_error(&a.flush(Time::ZERO).unwrap_err()), FrameError::Address(there.dst));
}

#[test]
fn frames_to_oneself_stay_here() {
    let folder = tempfile::tempdir().unwrap();
    let [carrier, _] = cable(&folder);
    let mut a = FramePort::open(&config(carrier, &[V4[0], V6[0]])).unwrap();
    for address in [V4[0], V6[0]] {
        let own = path(address, address);
        assert!(!a.needs_icrc(&own, 7));
        assert_eq!(a.resolve(Time::ZERO, own.dst), Resolution::Ready);
        let mut sent = 0;
        while a.transmit(Time(3), &frame(&own, 500), &mut |b| write_frame(sent, b)) {
            sent += 1;
        }
        assert!(sent >= 16);
        assert!(!Port::prepare_sleep(&mut a), "there is something to do");
        for (i, (seen, bytes)) in collect(&mut a, sent as usize).iter().enumerate() {
            assert_eq!(*seen, own);
            check_frame(i as u32, bytes);
        }
        a.wait(Duration::from_secs(600)).unwrap();
        assert!(a.transmit(Time(3), &frame(&own, 500), &mut |b| write_frame(7, b)), "there is room again");
        collect(&mut a, 1);
    }
}

#[test]
fn groups_reach_who_has_joined() {
    let folder = tempfile::tempdir().unwrap();
    check_groups(cable(&folder));
    in_a_namespace("groups over packet sockets", &VETH, || check_groups(interfaces()));
}

fn check_groups(carriers: [Carrier; 2]) {
    let [mut a, mut b] = [0, 1].map(|i| FramePort::open(&config(carriers[i].clone(), &[V4[i], V6[i]])).unwrap());
    introduce(&mut a, &mut b, V4);
    for (from, to, group) in [(V4[0], V4[1], "239.1.2.3"), (V6[0], V6[1], "ff0e::ffff:ef01:203")] {
        let there = path(from, group);
        let send = |a: &mut FramePort, i| {
            assert!(a.transmit(Time::ZERO, &frame(&there, 100), &mut |b| write_frame(i, b)));
            // A marker that arrives in any case.
            introduce_again(a, to);
            assert!(a.transmit(Time::ZERO, &frame(&path(from, to), 64), &mut |b| write_frame(99, b)));
            a.flush(Time::ZERO).unwrap();
        };
        introduce(&mut a, &mut b, [from, to]);
        send(&mut a, 1);
        check_frame(99, &collect(&mut b, 1)[0].1);
        b.join(ip(group)).unwrap();
        b.join(ip(group)).unwrap();
        a.join(ip(group)).unwrap();
        send(&mut a, 2);
        let seen = collect(&mut b, 2);
        assert_eq!(seen[0].0.dst, ip(group));
        check_frame(2, &seen[0].1);
        let own = collect(&mut a, 1);
        check_frame(2, &own[0].1);
        for port in [&mut a, &mut b] {
            port.leave(ip(group)).unwrap();
            port.leave(ip(group)).unwrap();
        }
        send(&mut a, 3);
        check_frame(99, &collect(&mut b, 1)[0].1);
        assert_eq!(a.receive(Time::ZERO, 10, &mut |_| ()).unwrap(), 0);
    }
}

fn introduce_again(a: &mut FramePort, to: &str) {
    assert_eq!(a.resolve(Time::ZERO, ip(to)), Resolution::Ready);
}

#[test]
fn a_dscp_is_that_of_frames_without_one() {
    let folder = tempfile::tempdir().unwrap();
    let carriers = cable(&folder);
    let FrameConfig { spec, addresses, .. } = config(carriers[0].clone(), &[V4[0]]);
    let mut a = FramePort::open(&FrameConfig::new(spec.with_dscp(46).with_vlan(Some(9)), addresses)).unwrap();
    let FrameConfig { spec, addresses, .. } = config(carriers[1].clone(), &[V4[1]]);
    let mut b = FramePort::open(&FrameConfig::new(spec.with_vlan(Some(9)), addresses)).unwrap();
    introduce(&mut a, &mut b, V4);
    for (class, sent) in [(0, 46 << 2), (2, 46 << 2 | 2), (8 << 2 | 1, 8 << 2 | 1)] {
        let there = Path { traffic_class: class, ..path(V4[0], V4[1]) };
        assert_eq!(a.wire_path(&there).traffic_class, sent);
        assert!(a.transmit(Time::ZERO, &frame(&there, 64), &mut |b| write_frame(1, b)));
        // The tag's priority: the upper three bits of the class.
        assert_eq!(a.tx.pending().last().unwrap()[14] >> 5, sent >> 5);
        a.flush(Time::ZERO).unwrap();
        assert_eq!(collect(&mut b, 1)[0].0.traffic_class, sent);
    }
}

#[test]
fn a_frame_beyond_the_mtu_is_an_error_that_names_it() {
    const SMALL: [&str; 3] = ["link add veth0 type veth peer name veth1", "link set veth0 up", "link set veth1 up"];
    in_a_namespace("the MTU of an interface", &SMALL, || {
        let [mut a, mut b] = stations(interfaces(), V4, None);
        assert_eq!(a.mtu(), Some(1500));
        let there = path(V4[0], V4[1]);
        assert!(a.transmit(Time::ZERO, &frame(&there, 1473), &mut |_| panic!("filled a frame that cannot be sent")));
        let error = frame_error(&a.flush(Time::ZERO).unwrap_err());
        assert_eq!(error, FrameError::Mtu { frame: 1473, dst: there.dst, mtu: 1500 });
        assert!(a.transmit(Time::ZERO, &frame(&there, 1472), &mut |b| write_frame(3, b)));
        a.flush(Time::ZERO).unwrap();
        check_frame(3, &collect(&mut b, 1)[0].1);
    });
}

#[test]
fn deadlines_are_those_of_requests() {
    let folder = tempfile::tempdir().unwrap();
    let [carrier, _] = cable(&folder);
    let mut a = FramePort::open(&config(carrier, &[V4[0]])).unwrap();
    a.receive(Time(SEC), 1, &mut |_| ()).unwrap();
    // There is no peer: searched for every 20 ms.
    assert_eq!(a.next_deadline(), Time(SEC + 20 * MS));
    a.resolve(Time(SEC), ip(V4[1]));
    assert_eq!(a.next_deadline(), Time(SEC), "a request is to be sent now");
}
