use std::net::Ipv4Addr;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

use super::super::conformance::{self, Pair, check_frame, collect, write_frame};
use super::super::{RxIcrc, host_now};
use super::hello::HELLO;
use super::*;
use crate::region::PAGE;

mod cross_memory;
mod mads;
mod udp;

static DOMAINS: AtomicU32 = AtomicU32::new(0);

/// Returns a domain that no other test uses.
fn fresh_domain() -> String {
    format!("test-{}-{}", std::process::id(), DOMAINS.fetch_add(1, Ordering::Relaxed))
}

fn slot(number: u16) -> Slot {
    Slot::new(number).unwrap()
}

fn config(domain: &str, number: u16) -> HostConfig {
    HostConfig {
        slot: Some(slot(number)),
        ring_bytes: 128 << 10,
        udp: HostUdp::Off,
        ..HostConfig::new(domain, vec![Ipv4Addr::LOCALHOST.into(), Ipv4Addr::new(127, 0, 0, 2).into()])
    }
}

fn open(domain: &str, number: u16) -> HostPort {
    HostPort::open(&config(domain, number)).unwrap()
}

const PATH: Path = Path {
    src: IpAddr::V4(Ipv4Addr::LOCALHOST),
    dst: IpAddr::V4(Ipv4Addr::LOCALHOST),
    udp_src: 0xc001,
    traffic_class: 2,
    hop_limit: 64,
};

fn skipped(test: &str, why: &str) {
    irnic_testkit::skipped(&format!("{test}: {why}"));
}

/// Returns a queue pair of a slot.
fn qp_of(number: u16) -> u32 {
    slot(number).first_qpn() + 5
}

/// Queues frame `i` for a queue pair; returns whether it was accepted.
fn send(port: &mut HostPort, now: Time, dest_qp: u32, i: u32, len: usize) -> bool {
    let frame = TxFrame { path: &PATH, dest_qp, len, icrc: false, irn: false };
    port.transmit(now, &frame, &mut |to| write_frame(i, to))
}

fn send_now(port: &mut HostPort, to: u16, i: u32) {
    assert!(send(port, Time::ZERO, qp_of(to), i, 64));
    port.flush(Time::ZERO).unwrap();
}

/// Returns all received frames, after polling the kernel.
fn take(port: &mut HostPort) -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    for _ in 0..3 {
        port.cancel_sleep();
        port.receive(Time::ZERO, usize::MAX, &mut |frame| frames.push(frame.bytes.to_vec())).unwrap();
    }
    frames
}

#[test]
fn passes_the_conformance_suite() {
    conformance::suite(pair);
}

#[test]
fn frames_bear_the_time_of_their_sending() {
    conformance::frames_bear_the_time_of_their_sending(pair());
}

fn pair() -> Pair {
    let domain = fresh_domain();
    let (a, b) = (open(&domain, 1), open(&domain, 2));
    let ip = |s: &str| s.parse().unwrap();
    let (a, b) = (conformance::To(a, qp_of(2)), conformance::To(b, qp_of(1)));
    Pair::new(a, ip(conformance::V4_A), b, ip(conformance::V4_B))
}

#[test]
fn frames_to_the_own_slot_come_back() {
    let mut port = open(&fresh_domain(), 3);
    for i in 0..1000 {
        send_now(&mut port, 3, i);
        check_frame(i, &collect(&mut port, 1)[0].1);
    }
}

#[test]
fn path_and_icrc_arrive_as_they_were_sent() {
    let domain = fresh_domain();
    let (mut a, mut b) = (open(&domain, 1), open(&domain, 2));
    for (dst, icrc) in [("127.0.0.1", false), ("127.0.0.2", true)] {
        let path = Path { src: "2001:db8::7".parse().unwrap(), dst: dst.parse().unwrap(), ..PATH };
        assert!(!a.needs_icrc(&path, qp_of(2)));
        assert!(a.transmit(
            Time::ZERO,
            &TxFrame { path: &path, dest_qp: qp_of(2), len: 20, icrc, irn: false },
            &mut |b| b.fill(1)
        ));
        a.flush(Time::ZERO).unwrap();
        b.cancel_sleep();
        let mut seen = None;
        b.receive(Time::ZERO, 10, &mut |f| seen = Some((f.path, f.icrc))).unwrap();
        let expected = if icrc { RxIcrc::Exact } else { RxIcrc::Absent };
        assert_eq!(seen, Some((path, expected)));
    }
}

/// Each of several threads sends to all, itself included, and receives from all.
#[test]
fn many_ports_exchange_frames_in_order() {
    const PORTS: u16 = 5;
    const FRAMES: u32 = 3000;
    let domain = fresh_domain();
    let ports: Vec<HostPort> = (1..=PORTS).map(|number| open(&domain, number)).collect();
    let barrier = std::sync::Barrier::new(PORTS.into());
    std::thread::scope(|scope| {
        for (own, mut port) in (1..=PORTS).zip(ports) {
            let barrier = &barrier;
            scope.spawn(move || {
                let start = Instant::now();
                let mut sent = [0; PORTS as usize + 1];
                let mut got = [0; PORTS as usize + 1];
                while (1..=usize::from(PORTS)).any(|peer| sent[peer] < FRAMES || got[peer] < FRAMES) {
                    for to in 1..=PORTS {
                        let next = &mut sent[usize::from(to)];
                        let len = 16 + (*next as usize * 61 + usize::from(own)) % 2000;
                        let frame = TxFrame { path: &PATH, dest_qp: qp_of(to), len, icrc: false, irn: false };
                        let mark = u32::from(own) << 24;
                        // The clock is stopped: no ring counts as stalled.
                        if *next < FRAMES && port.transmit(Time::ZERO, &frame, &mut |b| write_frame(mark | *next, b)) {
                            *next += 1;
                        }
                    }
                    port.flush(Time::ZERO).unwrap();
                    port.receive(Time::ZERO, 64, &mut |frame| {
                        let (number, _) = frame.bytes.split_first_chunk::<4>().unwrap();
                        let number = u32::from_le_bytes(*number);
                        let next = &mut got[(number >> 24) as usize];
                        assert_eq!(number & 0xff_ffff, *next, "to {own}");
                        check_frame(number, frame.bytes);
                        *next += 1;
                    })
                    .unwrap();
                    assert!(start.elapsed() < Duration::from_secs(60), "{own}: sent {sent:?}, got {got:?}");
                    std::thread::yield_now();
                }
                barrier.wait();
                assert_eq!(port.host_counters().links_opened, u64::from(PORTS) - 1);
            });
        }
    });
}

#[test]
fn frames_to_nobody_are_dropped_until_somebody_comes() {
    let domain = fresh_domain();
    let mut a = open(&domain, 1);
    for qpn in [0, 2, 0x3fff, 0xff_fffe] {
        assert!(send(&mut a, Time::ZERO, qpn, 0, 64));
    }
    assert_eq!(a.host_counters().tx_unroutable, 4);
    for i in 0..10 {
        assert!(send(&mut a, Time(i), qp_of(2), 0, 64));
    }
    assert_eq!((a.host_counters().tx_absent, a.counters().tx_dropped), (10, 14));
    let mut b = open(&domain, 2);
    assert!(send(&mut a, Time(9_999_999), qp_of(2), 1, 64));
    assert_eq!(a.host_counters().tx_absent, 11, "a slot that was empty is not asked again for 10 ms");
    assert!(send(&mut a, Time(10_000_000), qp_of(2), 2, 64));
    a.flush(Time::ZERO).unwrap();
    assert_eq!(take(&mut b).len(), 1);
}

#[test]
fn a_process_at_the_slot_of_another_gets_none_of_its_frames() {
    let domain = fresh_domain();
    let mut a = open(&domain, 1);
    for generation in 0..20 {
        let mut b = open(&domain, 2);
        assert_eq!(take(&mut b).len(), 0);
        send_now(&mut a, 2, generation);
        assert_eq!(take(&mut b).len(), 1);
        for i in 0..30 {
            send_now(&mut a, 2, i);
        }
        drop(b);
        // Some are pushed before the end is noticed, some after.
        send_now(&mut a, 2, 99);
        let mut b = open(&domain, 2);
        assert_eq!(take(&mut b).len(), 0);
        assert_eq!(take(&mut a).len(), 0);
        assert_eq!(a.host_counters().links_lost, u64::from(2 * generation + 1));
        send_now(&mut a, 2, 7);
        check_frame(7, &take(&mut b)[0]);
        drop(b);
        take(&mut a);
    }
}

#[test]
fn what_was_sent_before_the_end_arrives_after_it() {
    let domain = fresh_domain();
    let (mut a, mut b) = (open(&domain, 1), open(&domain, 2));
    for i in 0..50 {
        send_now(&mut a, 2, i);
    }
    drop(a);
    let frames = take(&mut b);
    assert_eq!(frames.len(), 50);
    (0..).zip(&frames).for_each(|(i, frame)| check_frame(i, frame));
    assert_eq!(b.links.inbound_links(), 0);
}

#[test]
fn links_end_with_their_peer() {
    let domain = fresh_domain();
    let (mut a, mut b) = (open(&domain, 1), open(&domain, 2));
    let cycle = |a: &mut HostPort, b: &mut HostPort| {
        let mut c = open(&domain, 3);
        for (port, to) in [(&mut *a, 3), (&mut *b, 3), (&mut c, 1)] {
            send_now(port, to, 1);
        }
        assert_eq!((take(&mut c).len(), take(a).len()), (2, 1));
        drop(c);
        take(a);
        take(b);
    };
    // Descriptors of the process are counted where it has no other tests: in tests/host.
    for _ in 0..100 {
        cycle(&mut a, &mut b);
        assert_eq!((a.links.descriptors(), b.links.descriptors()), (0, 0));
    }
}

/// A receiver that never takes anything costs its senders 100 ms once, not its frames' share of their time.
#[test]
fn a_full_ring_that_does_not_move_stalls_nobody_else() {
    let domain = fresh_domain();
    let (mut a, mut b, mut c) = (open(&domain, 1), open(&domain, 2), open(&domain, 3));
    let start = Time(1_000_000);
    while send(&mut a, start, qp_of(2), 0, 4000) {}
    let tries = |a: &mut HostPort, now| send(a, now, qp_of(2), 1, 4000);
    assert_eq!(a.next_deadline(), Time(start.0 + 100_000_000));
    assert!(!tries(&mut a, Time(start.0 + 99_999_999)));
    assert_eq!(a.counters().tx_dropped, 0);
    let mut stalls = Vec::new();
    for i in 0..100 {
        assert!(tries(&mut a, Time(start.0 + 100_000_000 + i)));
        assert!(send(&mut a, Time::ZERO, qp_of(3), i as u32, 64));
        stalls.extend(a.flush(Time::ZERO).err().map(|e| *e.get_ref().unwrap().downcast_ref::<Stall>().unwrap()));
    }
    assert_eq!(a.host_counters().tx_stalled, 100);
    assert_eq!(a.next_deadline(), Time::NEVER);
    assert_eq!(take(&mut c).len(), 100);
    assert_eq!(stalls, [Stall { process: std::process::id() }]);
    // It moves again.
    a.flush(Time::ZERO).unwrap();
    assert!(take(&mut b).len() > 10);
    assert!(send(&mut a, start, qp_of(2), 5, 4000));
    a.flush(Time::ZERO).unwrap();
    check_frame(5, &take(&mut b)[0]);
    assert_eq!(a.host_counters().tx_stalled, 100);
}

#[test]
fn a_process_that_ended_stalls_nobody() {
    let domain = fresh_domain();
    let (mut a, b) = (open(&domain, 1), open(&domain, 2));
    while send(&mut a, Time::ZERO, qp_of(2), 0, 4000) {}
    drop(b);
    assert!(send(&mut a, Time(100_000_000), qp_of(2), 1, 4000), "it is dropped");
    a.flush(Time(100_000_000)).expect("no stall");
    assert_eq!((a.host_counters().tx_stalled, a.host_counters().links_lost), (0, 1));
}

#[test]
fn a_look_at_memory_shows_frames_and_now_and_then_asks_for_more() {
    let domain = fresh_domain();
    let (mut a, mut b) = (open(&domain, 1), open(&domain, 2));
    // The link is there.
    send_now(&mut a, 2, 0);
    assert_eq!(take(&mut b).len(), 1);
    assert!(!b.may_receive());
    send_now(&mut a, 2, 1);
    assert!(b.may_receive());
    assert_eq!(take(&mut b).len(), 1);
    let looks = std::iter::repeat_with(|| b.may_receive()).take_while(|may| !may).count() as u32;
    assert!((1..SERVICE_POLLS).contains(&looks), "{looks}");
    // What found no room waits for it.
    let mut i = 0;
    while send(&mut b, Time::ZERO, qp_of(1), i, 1_000) {
        i += 1;
    }
    b.receive(Time::ZERO, 1, &mut |_| ()).unwrap();
    assert!(b.may_receive(), "a frame waits for room");
}

#[test]
fn a_watched_word_shows_the_frames_of_the_only_sender() {
    let domain = fresh_domain();
    let [mut a, mut b, mut c] = [1, 2, 3].map(|slot| open(&domain, slot));
    assert!(b.watched(10).is_none(), "no word shows who connects");
    send_now(&mut a, 2, 0);
    assert_eq!(take(&mut b).len(), 1);
    let polls = b.polls;
    let watched = b.watched(10).expect("a link");
    assert_eq!(b.polls, polls + 11, "the kernel is asked no less often");
    assert!(watched.is_unchanged());
    send_now(&mut a, 2, 1);
    assert!(!watched.is_unchanged());
    assert!(b.watched(10).is_none(), "there is a frame");
    assert_eq!(take(&mut b).len(), 1);
    // It holds what it shows even if the link has ended.
    let watched = b.watched(10).expect("a link");
    drop(a);
    send_now(&mut c, 2, 2);
    assert_eq!(take(&mut b).len(), 1);
    assert!(watched.is_unchanged());
    send_now(&mut b, 2, 3);
    assert_eq!(take(&mut b).len(), 1);
    assert!(b.watched(10).is_none(), "two links");
}

#[test]
fn who_polls_costs_its_senders_no_system_call() {
    let domain = fresh_domain();
    let (mut a, mut b) = (open(&domain, 1), open(&domain, 2));
    send_now(&mut a, 2, 0);
    take(&mut b);
    send_now(&mut a, 2, 0);
    let before = a.counters().tx_syscalls;
    for i in 0..200 {
        send_now(&mut a, 2, i);
        b.receive(Time::ZERO, 64, &mut |_| ()).unwrap();
    }
    assert_eq!(a.counters().tx_syscalls, before);
    assert!(b.prepare_sleep());
    send_now(&mut a, 2, 0);
    send_now(&mut a, 2, 0);
    assert_eq!(a.counters().tx_syscalls, before + 1, "one rings, for all");
    assert!(!b.prepare_sleep(), "there are frames");
    take(&mut b);
    assert!(b.prepare_sleep());
    b.take_over();
    send_now(&mut a, 2, 0);
    assert_eq!(a.counters().tx_syscalls, before + 1, "who has taken over polls");
}

/// A thread that sleeps in `epoll_wait` or in `wait`, and senders at arbitrary times.
#[test]
fn sleepers_are_always_woken() {
    const FRAMES: u32 = 4000;
    let seed = 11;
    let domain = fresh_domain();
    let mut receiver = open(&domain, 1);
    receiver.set_spin(0);
    std::thread::scope(|scope| {
        for number in 2..4 {
            let mut port = open(&domain, number);
            scope.spawn(move || {
                let mut random = Pcg64Mcg::seed_from_u64(seed + u64::from(number));
                port.set_spin(0);
                for i in 0..FRAMES {
                    while !send(&mut port, Time::ZERO, qp_of(1), i, 3000) {
                        port.flush(Time::ZERO).unwrap();
                        port.wait(Duration::from_secs(600)).unwrap();
                        port.receive(Time::ZERO, 1, &mut |_| ()).unwrap();
                    }
                    if random.random_bool(0.4) {
                        port.flush(Time::ZERO).unwrap();
                    }
                    if random.random_bool(0.2) {
                        std::thread::sleep(Duration::from_micros(random.random_range(1..80)));
                    }
                }
                port.flush(Time::ZERO).unwrap();
                // Until the last frame is taken, so that its end does not wake.
                port.wait(Duration::from_millis(500)).unwrap();
            });
        }
        let mut frames = 0;
        while frames < 2 * FRAMES {
            let start = Instant::now();
            receiver.wait(Duration::from_secs(60)).unwrap();
            assert!(start.elapsed() < Duration::from_secs(60), "seed {seed}: nobody woke the sleeper at {frames}");
            receiver.receive(Time::ZERO, 64, &mut |_| frames += 1).unwrap();
        }
    });
}

/// One frame bounces between two ends that sleep whenever they wait for it: a single lost wake-up is a hang.
#[test]
fn no_wake_up_is_lost_between_two_sleepers() {
    const ROUNDS: u32 = 30_000;
    let seed = 5;
    let domain = fresh_domain();
    let ports = [open(&domain, 1), open(&domain, 2)];
    std::thread::scope(|scope| {
        for (own, mut port) in (1_u32..).zip(ports) {
            scope.spawn(move || {
                let mut random = Pcg64Mcg::seed_from_u64(seed + u64::from(own));
                for round in 0..ROUNDS {
                    if own == 1 {
                        send_now(&mut port, 2, round);
                    }
                    let mut got = 0;
                    while got == 0 {
                        port.set_spin(random.random_range(0..40));
                        let start = Instant::now();
                        port.wait(Duration::from_secs(60)).unwrap();
                        assert!(
                            start.elapsed() < Duration::from_secs(60),
                            "seed {seed}: {own} sleeps in round {round}"
                        );
                        got = port.receive(Time::ZERO, 2, &mut |frame| check_frame(round, frame.bytes)).unwrap();
                    }
                    if own == 2 {
                        send_now(&mut port, 1, round);
                    }
                }
            });
        }
    });
}

#[test]
fn a_multicast_frame_reaches_every_process_once() {
    let domain = fresh_domain();
    let mut ports: Vec<HostPort> = (1..=6).map(|number| open(&domain, number)).collect();
    let foreign = open(&fresh_domain(), 1);
    for (round, now) in [0, 200_000_000].into_iter().enumerate() {
        assert!(send(&mut ports[2], Time(now), MULTICAST_QPN, 3, 100));
        ports[2].flush(Time(now)).unwrap();
        for port in &mut ports {
            let frames = take(port);
            assert_eq!(frames.len(), 1);
            check_frame(3, &frames[0]);
        }
        if round == 0 {
            ports.swap_remove(5);
            ports.push(open(&domain, 9));
            take(&mut ports[2]);
        }
    }
    drop(foreign);
}

/// Errors of a process of the same user towards a listener.
#[test]
fn strangers_that_talk_nonsense_are_turned_away() {
    let domain = fresh_domain();
    let (mut a, mut b) = (open(&domain, 1), open(&domain, 2));
    let name = Domain::new(&domain).unwrap().slot_name(slot(1));
    let connect = || sys::connect(&name).unwrap();
    let sealed = |len| sys::memory(c"test", len).unwrap();
    let ring = PAGE + (128 << 10);
    let mut open_connections: Vec<OwnedFd> = Vec::new();
    let mut talk = |bytes: &[u8], fds: &[BorrowedFd<'_>]| {
        let connection = connect();
        sys::send(connection.as_fd(), bytes, fds).unwrap();
        open_connections.push(connection);
    };
    let unsealed = tempfile::tempfile().unwrap();
    unsealed.set_len(ring as u64).unwrap();
    talk(b"?", &[]);
    talk(b"IRNICHL\x01", &[sealed(ring).as_fd()]);
    talk(&[&HELLO[..], b"?"].concat(), &[sealed(ring).as_fd()]);
    talk(&HELLO, &[]);
    talk(&HELLO, &[sealed(ring).as_fd(), sealed(ring).as_fd()]);
    talk(&HELLO, &[unsealed.as_fd()]);
    talk(&HELLO, &[connect().as_fd()]);
    for len in [PAGE, 128 << 10, ring + PAGE, PAGE + (64 << 10), PAGE + (96 << 10), ring + 1] {
        talk(&HELLO, &[sealed(len).as_fd()]);
    }
    drop(connect());
    let silent = connect();
    let wrong = open_connections.len() as u64 + 2;
    send_now(&mut b, 1, 8);
    assert_eq!(take(&mut a).len(), 1);
    assert_eq!(a.host_counters().links_refused, wrong);
    drop(silent);
    assert_eq!(take(&mut a).len(), 0);
    assert_eq!(a.host_counters().links_refused, wrong + 1);
    send_now(&mut b, 1, 8);
    assert_eq!(take(&mut a).len(), 1);
}

/// Processes of two versions notify each other, and report it once each.
#[test]
fn two_versions_refuse_each_other_and_say_why() {
    let domain = fresh_domain();
    let (mut a, mut b) = (open(&domain, 1), open(&domain, 2));
    let other = *b"IRNICHL\xff";
    let report = |port: &mut HostPort| {
        port.receive(Time::ZERO, 1, &mut |_| ()).unwrap();
        port.flush(Time::ZERO).map_err(|e| e.downcast::<OtherVersion>().unwrap())
    };
    let process = std::process::id();
    // SAFETY: has no precondition.
    let here = Holder::Process { user: unsafe { libc::geteuid() }, process: Some(process) };
    // One that connects.
    for expected in [Err(OtherVersion { process: here, theirs: 0xff }), Ok(())] {
        let connection = sys::connect(&Domain::new(&domain).unwrap().slot_name(slot(1))).unwrap();
        let memory = sys::memory(c"test", PAGE + (128 << 10)).unwrap();
        sys::send(connection.as_fd(), &other, &[memory.as_fd()]).unwrap();
        a.cancel_sleep();
        assert_eq!(report(&mut a), expected);
        let mut answer = [0; 9];
        assert_eq!((sys::receive(connection.as_fd(), &mut answer).unwrap().len, &answer[..8]), (8, &HELLO[..]));
    }
    let said = OtherVersion { process: here, theirs: 0xff }.to_string();
    assert!(said.starts_with(&format!("process {process} of user ")) && !said.contains('\n'), "{said}");
    // One that accepts.
    let listener = sys::listen(&Domain::new(&domain).unwrap().slot_name(slot(3))).unwrap();
    send_now(&mut b, 3, 1);
    let connection = sys::accept(listener.as_fd()).unwrap().unwrap();
    // Unread data would be lost, and the answer with it.
    while sys::receive(connection.as_fd(), &mut [0; 9]).is_ok() {}
    sys::send(connection.as_fd(), &other, &[]).unwrap();
    drop(connection);
    assert!(send(&mut b, Time::ZERO, qp_of(3), 2, 64));
    let error = b.flush(Time::ZERO).unwrap_err();
    assert_eq!(error.downcast::<OtherVersion>().unwrap(), OtherVersion { process: here, theirs: 0xff });
    assert_eq!((b.host_counters().links_lost, report(&mut b)), (1, Ok(())));
}

/// A peer that answers with something other than a bell is dropped.
#[test]
fn a_receiver_that_answers_nonsense_is_left() {
    let domain = fresh_domain();
    let mut a = open(&domain, 1);
    let listener = sys::listen(&Domain::new(&domain).unwrap().slot_name(slot(2))).unwrap();
    let page = sys::memory(c"test", PAGE).unwrap();
    let large = sys::memory(c"test", 2 * PAGE).unwrap();
    let good = page.as_fd();
    let cases: [(&[u8], &[BorrowedFd<'_>]); 5] =
        [(b"??", &[]), (&HELLO, &[]), (&HELLO, &[large.as_fd()]), (&HELLO, &[good, good]), (b"IRNICHL\0", &[good])];
    for (lost, (bytes, fds)) in (1..).zip(cases) {
        send_now(&mut a, 2, 1);
        let connection = sys::accept(listener.as_fd()).unwrap().unwrap();
        sys::send(connection.as_fd(), bytes, fds).unwrap();
        send_now(&mut a, 2, 1);
        assert_eq!(a.host_counters().links_lost, lost, "{bytes:?}");
    }
}

#[test]
fn a_corrupt_ring_ends_its_link_only() {
    let domain = fresh_domain();
    let (mut a, mut b) = (open(&domain, 1), open(&domain, 2));
    let connection = sys::connect(&Domain::new(&domain).unwrap().slot_name(slot(1))).unwrap();
    let len = PAGE + (128 << 10);
    let memory = sys::memory(c"test", len).unwrap();
    let region = crate::region::Region::map(memory.as_fd(), len).unwrap();
    // The first word is the producer's position.
    // SAFETY: inside the mapping; only this thread runs the two ports.
    unsafe { region.bytes(0, 8).cast::<u64>().write(u64::MAX) };
    sys::send(connection.as_fd(), &HELLO, &[memory.as_fd()]).unwrap();
    send_now(&mut b, 1, 4);
    let frames = take(&mut a);
    assert_eq!(frames.len(), 1);
    check_frame(4, &frames[0]);
    assert_eq!((a.host_counters().links_corrupt, a.links.inbound_links()), (1, 1));
}

/// A receiver that claims to sleep after every frame, makes its end of the connection block, and never reads.
#[test]
fn a_receiver_that_hears_nothing_makes_no_sender_wait() {
    let domain = fresh_domain();
    let mut a = open(&domain, 1);
    let listener = sys::listen(&Domain::new(&domain).unwrap().slot_name(slot(2))).unwrap();
    send_now(&mut a, 2, 0);
    let connection = sys::accept(listener.as_fd()).unwrap().unwrap();
    // SAFETY: no memory is passed.
    assert_eq!(unsafe { libc::fcntl(connection.as_raw_fd(), libc::F_SETFL, 0) }, 0);
    let page = sys::memory(c"test", PAGE).unwrap();
    let region = crate::region::Region::map(page.as_fd(), PAGE).unwrap();
    sys::send(connection.as_fd(), &HELLO, &[page.as_fd()]).unwrap();
    // More than the capacity of a socket.
    for _ in 0..1000 {
        // SAFETY: inside the mapping; only this thread runs the port.
        unsafe { region.bytes(0, 4).cast::<u32>().write(1) };
        send_now(&mut a, 2, 1);
    }
    assert!(a.counters().tx_syscalls >= 1000);
    assert_eq!(a.host_counters().links_lost, 0);
}

/// A sender with excess messages costs the receiver one system call per poll, not an endless loop.
#[test]
fn a_sender_that_never_stops_ringing_is_heard_a_little_at_a_time() {
    let domain = fresh_domain();
    let (mut a, mut b) = (open(&domain, 1), open(&domain, 2));
    let connection = sys::connect(&Domain::new(&domain).unwrap().slot_name(slot(1))).unwrap();
    let memory = sys::memory(c"test", PAGE + (128 << 10)).unwrap();
    sys::send(connection.as_fd(), &HELLO, &[memory.as_fd()]).unwrap();
    take(&mut a);
    let mut said = 0;
    while sys::send(connection.as_fd(), b"w", &[]).is_ok() {
        said += 1;
    }
    a.cancel_sleep();
    a.receive(Time::ZERO, 1, &mut |_| ()).unwrap();
    let mut room = 0;
    while sys::send(connection.as_fd(), b"w", &[]).is_ok() {
        room += 1;
    }
    assert!(said > 10 && room < said / 2, "{said} said, {room} latest_stamp at once");
    send_now(&mut b, 1, 8);
    assert_eq!(take(&mut a).len(), 1);
}

#[test]
fn what_is_known_of_a_peers_process_is_what_it_has_answered() {
    let domain = fresh_domain();
    let (mut a, mut b) = (open(&domain, 1), open(&domain, 2));
    let other_host = Path { dst: "10.1.2.3".parse().unwrap(), ..PATH };
    assert_eq!(a.peer_process(&other_host, qp_of(2)), PeerProcess::Unknown);
    send_now(&mut a, 3, 1);
    assert_eq!(a.peer_process(&PATH, qp_of(3)), PeerProcess::Dead);
    let left = |port: &mut HostPort, to| match port.peer_process(&PATH, qp_of(to)) {
        PeerProcess::Alive { handed, answered } => handed - answered,
        other => panic!("{other:?}"),
    };
    for round in 1..100 {
        for i in 0..round {
            send_now(&mut a, 2, i);
        }
        assert!(left(&mut a, 2) > 0);
        assert_eq!(take(&mut b).len(), round as usize);
        assert!(left(&mut a, 2) > 0, "it has answered nothing after {round}");
        b.mark_answered();
        assert_eq!(left(&mut a, 2), 0, "after {round}");
    }
    // The same is known of itself.
    send_now(&mut a, 1, 1);
    assert!(left(&mut a, 1) > 0);
    take(&mut a);
    a.mark_answered();
    assert_eq!(left(&mut a, 1), 0);
    send_now(&mut a, 2, 1);
    drop(b);
    assert_eq!(a.peer_process(&PATH, qp_of(2)), PeerProcess::Dead);
}
