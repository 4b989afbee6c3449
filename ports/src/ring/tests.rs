use super::*;

const MAX: usize = 496;
const STAMP: u64 = 1 << 40;

fn place(capacity: usize) -> Place {
    Place { offset: 0, capacity, max_frame: MAX }
}

fn ring(capacity: usize) -> (Producer, Consumer, Arc<Region>) {
    let place = place(capacity);
    let region = Arc::new(Region::heap(place.len()));
    (Producer::new(region.clone(), place), Consumer::new(region.clone(), place), region)
}

fn push(producer: &mut Producer, len: usize, byte: u8) -> bool {
    producer.push(len, byte.into(), STAMP, &mut |b| b.fill(byte)).unwrap()
}

#[test]
fn frames_of_every_size_come_out_intact_through_many_wraps() {
    let (mut tx, mut rx, _region) = ring(8192);
    let mut seen = 0u32;
    for i in 0..5_000u32 {
        let len = (i as usize * 7) % (MAX + 1);
        assert!(push(&mut tx, len, i as u8), "frame {i}");
        if i % 5 == 4 {
            tx.publish();
            while let Some(record) = rx.pop(Time::ZERO).unwrap() {
                assert_eq!(record.tag, u32::from(seen as u8));
                assert_eq!(record.bytes.len(), (seen as usize * 7) % (MAX + 1));
                assert!(record.bytes.iter().all(|b| *b == seen as u8));
                seen += 1;
            }
            rx.release();
        }
    }
    assert_eq!(seen, 5_000);
}

#[test]
fn a_record_bears_its_stamp_and_the_time_when_it_was_not_there() {
    let (mut tx, mut rx, _region) = ring(8192);
    let mut pop = |now| rx.pop(Time(now)).unwrap().map(|r| (r.bytes[0], r.stamp, r.unseen_at));
    let mut push = |byte: u8, publish: bool| {
        assert!(tx.push(100, 0, u64::from(byte) << 56, &mut |b| b.fill(byte)).unwrap());
        assert!(!publish || tx.publish());
    };
    push(1, true);
    assert_eq!(pop(10), Some((1, 1 << 56, Time::NEVER)));
    assert_eq!(pop(20), None);
    // Pushed before a read and published after it.
    push(2, false);
    assert_eq!(pop(30), None);
    push(3, true);
    assert_eq!(pop(40), Some((2, 2 << 56, Time(30))));
    // Pushed while the earlier ones were read: the read that found those did not find it.
    push(4, true);
    assert_eq!(pop(50), Some((3, 3 << 56, Time(30))));
    assert_eq!(pop(60), Some((4, 4 << 56, Time(40))));
}

#[test]
fn common_frames_take_one_line() {
    // BTH and ICRC, with: RETH and 16 bytes of a WRITE; the fields of a SEND in IRN and 24 bytes; AETH and run; RETH
    // and number of a READ; AtomicETH and number.
    for len in [16 + 16 + 16, 16 + 8 + 24, 16 + 8, 16 + 20, 16 + 32] {
        assert_eq!(record(HEADER, len), LINE, "{len}");
    }
    // 8 bytes more where it is sent with others.
    assert_eq!(record(WORD, 16 + 8 + 32), LINE);
}

#[test]
fn the_stamp_of_the_next_frame_is_seen_before_it_is_taken() {
    let (mut tx, mut rx, _region) = ring(8192);
    assert_eq!(rx.next_stamp(), None);
    for n in 0..200 {
        // Two of the same stamp, one of another, through some turns of the ring.
        for stamp in [n, n, n + 7] {
            assert!(tx.push(MAX, 0, stamp, &mut |b| b.fill(1)).unwrap());
        }
        tx.publish();
        for stamp in [n, n, n + 7] {
            assert_eq!(rx.next_stamp(), Some(stamp));
            assert_eq!(rx.pop(Time::ZERO).unwrap().unwrap().stamp, stamp);
            rx.release();
        }
        assert_eq!(rx.next_stamp(), None);
    }
}

#[test]
fn frames_sent_together_share_a_stamp() {
    let (mut tx, mut rx, _region) = ring(8192);
    // With a length for which the stamp makes the difference between one line and two.
    let mut send = |stamp: u64| {
        let before = tx.next;
        assert!(tx.push(56, 0, stamp, &mut |b| b.fill(stamp as u8)).unwrap());
        tx.publish();
        (tx.next - before) / LINE
    };
    let sent = [(0, 1), (7, 2), (7, 1), (7, 1), (9, 2), (7, 2), (7, 1), (0, 2)];
    for (stamp, lines) in sent {
        assert_eq!(send(stamp), lines, "{stamp}");
    }
    for (stamp, _) in sent {
        let record = rx.pop(Time::ZERO).unwrap().unwrap();
        assert_eq!((record.stamp, record.bytes), (stamp, &[stamp as u8; 56][..]));
    }
}

#[test]
fn nothing_is_seen_before_publication_and_sixteen_frames_publish_themselves() {
    let (mut tx, mut rx, _region) = ring(8192);
    push(&mut tx, 10, 1);
    assert!(!rx.has_frames());
    assert!(rx.pop(Time::ZERO).unwrap().is_none());
    assert!(tx.publish());
    assert!(!tx.publish(), "nothing new");
    assert!(rx.has_frames());
    assert!(rx.pop(Time::ZERO).unwrap().is_some());
    for i in 0..16 {
        assert!(!rx.has_frames());
        push(&mut tx, 10, i);
    }
    assert!(rx.has_frames());
}

#[test]
fn a_full_ring_refuses_without_calling_fill_and_accepts_after_release() {
    let (mut tx, mut rx, _region) = ring(16384);
    let mut pushed = 0;
    while push(&mut tx, 100, pushed) {
        pushed += 1;
    }
    assert_eq!(usize::from(pushed), 16384 / 128);
    assert!(!tx.push(100, 0, STAMP, &mut |_| panic!("filled a frame that has no room")).unwrap());
    assert!(!tx.has_room().unwrap());
    tx.publish();
    for expected in 0..pushed {
        assert_eq!(rx.pop(Time::ZERO).unwrap().unwrap().bytes, [expected; 100]);
    }
    assert!(rx.release());
    assert!(tx.has_room().unwrap());
    assert!(push(&mut tx, 100, 0));
}

#[test]
fn two_threads_keep_order_and_content() {
    let (mut tx, mut rx, _region) = ring(8192);
    const FRAMES: u32 = if cfg!(miri) { 500 } else { 200_000 };
    let producer = std::thread::spawn(move || {
        for i in 0..FRAMES {
            let len = 4 + (i as usize * 13) % (MAX - 3);
            let mut fill = |b: &mut [u8]| {
                b.fill(i as u8);
                b[..4].copy_from_slice(&i.to_le_bytes());
            };
            while !tx.push(len, i, STAMP, &mut fill).unwrap() {
                tx.publish();
                std::thread::yield_now();
            }
            if i % 7 == 0 {
                tx.publish();
            }
        }
        tx.publish();
    });
    let mut next = 0u32;
    while next < FRAMES {
        let Some(record) = rx.pop(Time::ZERO).unwrap() else {
            rx.release();
            std::thread::yield_now();
            continue;
        };
        assert_eq!((record.tag, &record.bytes[..4]), (next, &next.to_le_bytes()[..]));
        assert!(record.bytes[4..].iter().all(|b| *b == next as u8));
        next += 1;
        rx.release();
    }
    producer.join().unwrap();
}

#[test]
fn a_lying_producer_is_reported() {
    let capacity = 8192u64;
    let cases = [
        ("head beyond the ring", capacity + 64, 10, "the producer's position"),
        ("head before the tail", u64::MAX - 63, 10, "the producer's position"),
        ("frame longer than any", capacity, MAX as u64 + 1, "the length of a frame"),
        ("frame longer than what was published", 64, 100, "the length of a frame"),
        ("published less than a header", 4, 0, "the length of a frame"),
        ("length near the largest", capacity, u64::from(SKIP) - 1, "the length of a frame"),
        ("skip over the whole ring", capacity, u64::from(SKIP), "the length of a skip record"),
    ];
    for (name, head, header, what) in cases {
        let (tx, mut rx, _region) = ring(capacity as usize);
        tx.word(0).store(header, Ordering::Relaxed);
        tx.positions().head.0.store(head, Ordering::Release);
        match rx.pop(Time::ZERO) {
            Err(e) => assert_eq!(e.what, what, "{name}"),
            Ok(_) => panic!("{name}: accepted"),
        }
    }
}

#[test]
fn a_record_across_the_end_of_the_ring_is_reported() {
    let (mut tx, mut rx, _region) = ring(8192);
    for _ in 0..127 {
        push(&mut tx, 10, 1);
    }
    tx.publish();
    for _ in 0..127 {
        rx.pop(Time::ZERO).unwrap().unwrap();
    }
    rx.release();
    tx.word(127 * 64).store(100, Ordering::Relaxed);
    tx.positions().head.0.store(130 * 64, Ordering::Release);
    assert_eq!(rx.pop(Time::ZERO).err().map(|e| e.what), Some("the length of a frame"));
}

#[test]
fn a_lying_consumer_is_reported() {
    let (mut tx, _rx, region) = ring(8192);
    region.object::<Positions>(0).tail.0.store(64, Ordering::Release);
    assert_eq!(tx.room_for(8193).err().map(|e| e.what), Some("the consumer's position"));
}

#[test]
fn arbitrary_shared_bytes_never_lead_outside() {
    use rand::{RngExt, SeedableRng};
    let mut random = rand_pcg::Pcg64Mcg::seed_from_u64(7);
    for _ in 0..if cfg!(miri) { 20 } else { 2_000 } {
        let (tx, mut rx, _region) = ring(8192);
        for slot in 0..128 {
            let len: u64 = if random.random_bool(0.1) { u64::MAX } else { random.random_range(0..MAX as u64 + 20) };
            let same = if random.random_bool(0.5) { SAME_STAMP } else { 0 };
            tx.word(slot * 64).store(len | u64::from(same), Ordering::Relaxed);
        }
        for _ in 0..4 {
            tx.positions().head.0.store(random.random_range(0..12_000), Ordering::Release);
            let mut frames = 0;
            while let Ok(Some(record)) = rx.pop(Time::ZERO) {
                assert!(record.bytes.len() <= MAX);
                frames += 1;
                assert!(frames <= 256);
            }
            rx.release();
        }
    }
}
