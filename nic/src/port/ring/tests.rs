use super::*;

const MAX: usize = 500;

fn place(capacity: usize) -> Place {
    Place { offset: 0, capacity, max_frame: MAX }
}

fn ring(capacity: usize) -> (Producer, Consumer, Arc<Region>) {
    let place = place(capacity);
    let region = Arc::new(Region::heap(place.len()));
    (Producer::new(region.clone(), place), Consumer::new(region.clone(), place), region)
}

fn push(producer: &mut Producer, len: usize, byte: u8) -> bool {
    producer.push(len, byte.into(), &mut |b| b.fill(byte)).unwrap()
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
            while let Some(record) = rx.pop().unwrap() {
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
fn nothing_is_seen_before_publication_and_sixteen_frames_publish_themselves() {
    let (mut tx, mut rx, _region) = ring(8192);
    push(&mut tx, 10, 1);
    assert!(!rx.has_frames());
    assert!(rx.pop().unwrap().is_none());
    assert!(tx.publish());
    assert!(!tx.publish(), "nothing new");
    assert!(rx.has_frames());
    assert!(rx.pop().unwrap().is_some());
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
    assert!(!tx.push(100, 0, &mut |_| panic!("filled a frame that has no room")).unwrap());
    assert!(!tx.has_room().unwrap());
    tx.publish();
    for expected in 0..pushed {
        assert_eq!(rx.pop().unwrap().unwrap().bytes, [expected; 100]);
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
            while !tx.push(len, i, &mut fill).unwrap() {
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
        let Some(record) = rx.pop().unwrap() else {
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
        tx.header(0).store(header, Ordering::Relaxed);
        tx.positions().head.0.store(head, Ordering::Release);
        match rx.pop() {
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
        rx.pop().unwrap().unwrap();
    }
    rx.release();
    tx.header(127 * 64).store(100, Ordering::Relaxed);
    tx.positions().head.0.store(130 * 64, Ordering::Release);
    assert_eq!(rx.pop().err().map(|e| e.what), Some("the length of a frame"));
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
            tx.header(slot * 64).store(len, Ordering::Relaxed);
        }
        for _ in 0..4 {
            tx.positions().head.0.store(random.random_range(0..12_000), Ordering::Release);
            let mut frames = 0;
            while let Ok(Some(record)) = rx.pop() {
                assert!(record.bytes.len() <= MAX);
                frames += 1;
                assert!(frames <= 256);
            }
            rx.release();
        }
    }
}
