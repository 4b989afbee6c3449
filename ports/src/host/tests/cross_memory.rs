//! Payloads that receivers copy out of their senders' memory.

use irnic_transports::Segment;

use super::super::reference::SHORTEST;
use super::*;

const LEN: usize = 4096;

/// Headers of frames with a payload, which the port does not look at.
const HEADERS: usize = 28;

fn open_with(domain: &str, number: u16, cross_memory: CrossMemory) -> HostPort {
    HostPort::open(&config(domain, number).with_cross_memory(cross_memory)).unwrap()
}

/// Returns two ports, of which the first refers to payloads in its memory.
fn referring() -> (HostPort, HostPort) {
    let domain = fresh_domain();
    let (mut a, mut b) = (open_with(&domain, 1, CrossMemory::On), open_with(&domain, 2, CrossMemory::On));
    let payload = vec![7; LEN];
    assert!(!refer(&mut a, 0, &payload), "there is no link yet");
    assert!(!refer(&mut a, 1, &payload), "it is offered only");
    a.flush(Time::ZERO).unwrap();
    assert!(take(&mut b) == [expected(0, &payload), expected(1, &payload)]);
    // The receiver's answer to the offer.
    take(&mut a);
    (a, b)
}

/// Queues a frame with two bytes of padding. Returns whether its payload stays in place.
fn refer(port: &mut HostPort, mark: u8, payload: &[u8]) -> bool {
    refer_to(port, mark, &[Segment { addr: payload.as_ptr() as u64, len: payload.len() as u32 }])
}

fn refer_to(port: &mut HostPort, mark: u8, payload: &[Segment]) -> bool {
    let bytes = payload.iter().map(|segment| segment.len as usize).sum::<usize>();
    let len = HEADERS + bytes + 2 + 4;
    let frame = TxFrame { path: &PATH, dest_qp: qp_of(2), len, icrc: false, irn: false };
    // SAFETY: the payload is readable, or only the kernel reads it.
    let gather = unsafe { Gather::new(payload) };
    let mut referred = true;
    let sent = port.transmit_in_place(Time::ZERO, &frame, HEADERS, &gather, &mut |to| {
        referred = to.len() == HEADERS;
        to[..HEADERS].fill(mark);
        to[if referred { HEADERS } else { HEADERS + bytes }..].fill(0);
    });
    assert_eq!(sent, Some(true), "there is room");
    referred
}

fn expected(mark: u8, payload: &[u8]) -> Vec<u8> {
    [&[mark; HEADERS], payload, &[0; 6]].concat()
}

#[test]
fn payloads_arrive_as_if_they_had_been_copied() {
    let (mut a, mut b) = referring();
    let memory: Vec<u8> = (0..100 * LEN).map(|i| ((i * 7919) >> 5) as u8).collect();
    let mut sent = Vec::new();
    for (i, payload) in memory.chunks(LEN).enumerate() {
        // Sometimes with gaps, as between messages, and with frames that are copied in between.
        let payload = &payload[..LEN - if i % 7 == 0 { 100 } else { 0 }];
        assert!(refer(&mut a, i as u8, payload));
        sent.push(expected(i as u8, payload));
        if i % 11 == 0 {
            assert!(send(&mut a, Time::ZERO, qp_of(2), i as u32, 64));
            let mut copied = vec![0; 64];
            write_frame(i as u32, &mut copied);
            sent.push(copied);
        }
    }
    a.flush(Time::ZERO).unwrap();
    assert!(take(&mut b) == sent);
    assert_eq!((a.host_counters().tx_by_reference, b.host_counters().rx_unreadable), (100, 0));
}

#[test]
fn short_and_scattered_payloads_and_frames_with_an_icrc_are_copied() {
    let (mut a, mut b) = referring();
    let payload = vec![1; LEN];
    assert!(!refer(&mut a, 0, &payload[..SHORTEST as usize - 1]));
    let half = Segment { addr: payload.as_ptr() as u64, len: 2048 };
    assert!(!refer_to(&mut a, 1, &[half, half]));
    a.flush(Time::ZERO).unwrap();
    assert!(take(&mut b) == [expected(0, &payload[..SHORTEST as usize - 1]), expected(1, &payload)]);
    let whole = [Segment { len: 4096, ..half }];
    let frame = TxFrame { path: &PATH, dest_qp: qp_of(2), len: HEADERS + LEN + 4, icrc: true, irn: false };
    // SAFETY: the payload is readable.
    let gather = unsafe { Gather::new(&whole) };
    assert_eq!(a.transmit_in_place(Time::ZERO, &frame, HEADERS, &gather, &mut |_| unreachable!()), None);
}

#[test]
fn nothing_is_referred_to_unless_both_sides_want_it() {
    for (ours, theirs) in [(CrossMemory::Off, CrossMemory::On), (CrossMemory::On, CrossMemory::Off)] {
        let domain = fresh_domain();
        let (mut a, mut b) = (open_with(&domain, 1, ours), open_with(&domain, 2, theirs));
        send_now(&mut a, 2, 0);
        assert!(!refer(&mut a, 0, &[1; LEN]));
        assert_eq!((take(&mut b).len(), take(&mut a).len()), (1, 0));
        assert!(!refer(&mut a, 0, &[1; LEN]));
        // Nor of the process to itself, where one thread would do all the copying.
        send_now(&mut b, 2, 0);
        assert!(!refer(&mut b, 0, &[1; LEN]));
        assert_eq!(take(&mut b).len(), 1);
        assert!(!refer(&mut b, 0, &[1; LEN]));
    }
}

#[test]
fn recalled_payloads_do_not_arrive() {
    let (mut a, mut b) = referring();
    let recall = a.recall().unwrap();
    let mut payload = vec![1; LEN];
    for mark in [1, 2] {
        assert!(refer(&mut a, mark, &payload));
    }
    a.flush(Time::ZERO).unwrap();
    recall.call();
    payload.fill(2);
    assert!(refer(&mut a, 3, &payload));
    a.flush(Time::ZERO).unwrap();
    assert!(take(&mut b) == [expected(3, &payload)]);
    assert_eq!(b.host_counters().rx_unreadable, 2);
    assert!(refer(&mut a, 4, &payload), "the next ones are referred to again");
}

#[test]
fn what_cannot_be_read_is_dropped_and_then_copied() {
    let (mut a, mut b) = referring();
    // SAFETY: a new mapping, which nothing else uses.
    let page = unsafe {
        libc::mmap(std::ptr::null_mut(), LEN, libc::PROT_NONE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0)
    };
    assert_ne!(page, libc::MAP_FAILED);
    let segments = [Segment { addr: page as u64, len: LEN as u32 }];
    assert!(refer_to(&mut a, 1, &segments));
    a.flush(Time::ZERO).unwrap();
    assert!(take(&mut b).is_empty());
    assert_eq!(b.host_counters().rx_unreadable, 1);
    assert!(!refer(&mut a, 0, &[1; LEN]));
    send_now(&mut a, 2, 5);
    assert_eq!(take(&mut b).len(), 2, "the link works");
    // SAFETY: mapped above.
    assert_eq!(unsafe { libc::munmap(page, LEN) }, 0);
}
