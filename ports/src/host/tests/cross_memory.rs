//! Payloads that receivers copy out of their senders' memory.

use irnic_transports::Segment;

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
    assert_eq!(refer(&mut a, 0, &payload), None, "there is no link yet");
    send_now(&mut a, 2, 0);
    assert_eq!(refer(&mut a, 0, &payload), None, "it is offered only");
    assert_eq!(take(&mut b).len(), 1);
    // The receiver's answer to the offer.
    take(&mut a);
    (a, b)
}

/// Queues a frame with two bytes of padding whose payload stays in place, if the port prefers that.
fn refer(port: &mut HostPort, mark: u8, payload: &[u8]) -> Option<bool> {
    if !port.takes_references(&PATH, qp_of(2)) {
        return None;
    }
    let len = HEADERS + payload.len() + 2 + 4;
    let frame = TxFrame { path: &PATH, dest_qp: qp_of(2), len, icrc: false, irn: false };
    let segments = [Segment { addr: payload.as_ptr() as u64, len: payload.len() as u32 }];
    // SAFETY: the payload is readable, and the tests that unmap theirs mean it.
    let gather = unsafe { Gather::new(&segments) };
    port.transmit_by_reference(Time::ZERO, &frame, HEADERS, &gather, &mut |to| to.fill(mark))
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
        assert_eq!(refer(&mut a, i as u8, payload), Some(true));
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
    let (mut a, _b) = referring();
    let payload = vec![1; LEN];
    assert_eq!(refer(&mut a, 0, &payload[..SHORTEST as usize - 1]), None);
    let half = Segment { addr: payload.as_ptr() as u64, len: 2048 };
    let whole = Segment { len: 4096, ..half };
    for (segments, icrc) in [(&[half, half][..], false), (&[whole], true)] {
        let frame = TxFrame { path: &PATH, dest_qp: qp_of(2), len: HEADERS + LEN + 4, icrc, irn: false };
        // SAFETY: both halves are readable.
        let gather = unsafe { Gather::new(segments) };
        assert_eq!(a.transmit_by_reference(Time::ZERO, &frame, HEADERS, &gather, &mut |_| unreachable!()), None);
    }
}

#[test]
fn nothing_is_referred_to_unless_both_sides_want_it() {
    for (ours, theirs) in [(CrossMemory::Off, CrossMemory::On), (CrossMemory::On, CrossMemory::Off)] {
        let domain = fresh_domain();
        let (mut a, mut b) = (open_with(&domain, 1, ours), open_with(&domain, 2, theirs));
        send_now(&mut a, 2, 0);
        assert_eq!(refer(&mut a, 0, &[1; LEN]), None);
        assert_eq!((take(&mut b).len(), take(&mut a).len()), (1, 0));
        assert_eq!(refer(&mut a, 0, &[1; LEN]), None);
        // Nor of the process to itself, where one thread would do all the copying.
        send_now(&mut b, 2, 0);
        assert_eq!(refer(&mut b, 0, &[1; LEN]), None);
        assert_eq!(take(&mut b).len(), 1);
        assert_eq!(refer(&mut b, 0, &[1; LEN]), None);
    }
}

#[test]
fn recalled_payloads_do_not_arrive() {
    let (mut a, mut b) = referring();
    let recall = a.recall().unwrap();
    let mut payload = vec![1; LEN];
    for mark in [1, 2] {
        assert_eq!(refer(&mut a, mark, &payload), Some(true));
    }
    a.flush(Time::ZERO).unwrap();
    recall.call();
    payload.fill(2);
    assert_eq!(refer(&mut a, 3, &payload), Some(true));
    a.flush(Time::ZERO).unwrap();
    assert!(take(&mut b) == [expected(3, &payload)]);
    assert_eq!(b.host_counters().rx_unreadable, 2);
    assert_eq!(refer(&mut a, 4, &payload), Some(true), "the next ones are referred to again");
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
    let frame = TxFrame { path: &PATH, dest_qp: qp_of(2), len: HEADERS + LEN + 4, icrc: false, irn: false };
    // SAFETY: not readable, but only the kernel tries to.
    let gather = unsafe { Gather::new(&segments) };
    assert_eq!(a.transmit_by_reference(Time::ZERO, &frame, HEADERS, &gather, &mut |to| to.fill(1)), Some(true));
    a.flush(Time::ZERO).unwrap();
    assert!(take(&mut b).is_empty());
    assert_eq!(b.host_counters().rx_unreadable, 1);
    assert_eq!(refer(&mut a, 0, &[1; LEN]), None);
    send_now(&mut a, 2, 5);
    assert_eq!(take(&mut b).len(), 1, "the link works");
    // SAFETY: mapped above.
    assert_eq!(unsafe { libc::munmap(page, LEN) }, 0);
}
