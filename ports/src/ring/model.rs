//! The ring under every order in which a weakly ordered machine may make the accesses of its two sides visible.

use loom::thread;

use super::*;

/// Sixteen records of one line each.
const PLACE: Place = Place { offset: 0, capacity: 1024, max_frame: 48 };

/// Returns a ring that was used all around once, and up to `records` lines from its end.
fn ring(records: u64) -> (Producer, Consumer) {
    let region = Arc::new(Region::heap(PLACE.len()));
    let (mut tx, mut rx) = (Producer::new(region.clone(), PLACE), Consumer::new(region, PLACE));
    for n in 0..2 * 16 - records {
        assert!(push(&mut tx, n, 48));
        tx.publish();
        assert!(rx.pop(Time::ZERO).unwrap().is_some());
        rx.release();
    }
    assert!(rx.pop(Time::ZERO).unwrap().is_none());
    rx.mark_answered();
    (tx, rx)
}

/// Pushes a frame with `n` in its stamp, its tag and each of its bytes.
fn push(tx: &mut Producer, n: u64, len: usize) -> bool {
    tx.push(len, n as u32, n, &mut |bytes| bytes.fill(n as u8)).unwrap()
}

/// Takes a frame, and checks that it is whole and number `n`.
fn pop(rx: &mut Consumer, n: u64) -> bool {
    let Some(record) = rx.pop(Time::ZERO).unwrap() else { return false };
    assert_eq!((record.tag, record.stamp), (n as u32, n));
    assert!(record.bytes.iter().all(|byte| *byte == n as u8), "{n}: {:?}", record.bytes);
    true
}

fn check(model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(model);
}

#[test]
fn frames_are_whole_and_in_order_around_the_end_of_the_ring() {
    check(|| {
        // The second frame, of two lines, finds one line before the end and skips it.
        let (mut tx, mut rx) = ring(2);
        let producer = thread::spawn(move || {
            for n in 100..103 {
                assert!(push(&mut tx, n, 48));
                tx.publish();
            }
        });
        let mut next = 100;
        for _ in 0..4 {
            rx.next_stamp().inspect(|stamp| assert_eq!(*stamp, next));
            next += u64::from(pop(&mut rx, next));
            rx.release();
        }
        producer.join().unwrap();
        while pop(&mut rx, next) {
            next += 1;
        }
        assert_eq!(next, 103);
    });
}

#[test]
fn nothing_is_overwritten_before_it_was_taken() {
    check(|| {
        let (mut tx, mut rx) = ring(0);
        for n in 100..116 {
            assert!(push(&mut tx, n, 48));
        }
        tx.publish();
        let producer = thread::spawn(move || {
            let pushed = (116..118).take_while(|n| push(&mut tx, *n, 48)).count();
            tx.publish();
            pushed
        });
        for n in 100..104 {
            assert!(pop(&mut rx, n));
            rx.release();
        }
        let pushed = producer.join().unwrap() as u64;
        (104..116 + pushed).for_each(|n| assert!(pop(&mut rx, n)));
        assert!(!pop(&mut rx, 0));
    });
}

#[test]
fn an_answer_is_visible_before_its_request_counts_as_answered() {
    check(|| {
        let (mut tx, mut rx) = ring(4);
        let (mut answers, mut answered) = ring(4);
        assert!(push(&mut tx, 100, 48));
        tx.publish();
        let consumer = thread::spawn(move || {
            assert!(pop(&mut rx, 100));
            assert!(push(&mut answers, 200, 48));
            answers.publish();
            rx.mark_answered();
        });
        let (handed, done) = tx.progress();
        assert!(done == handed || done == handed - 64, "{done} of {handed}");
        if done == handed {
            assert!(pop(&mut answered, 200));
        }
        consumer.join().unwrap();
        assert_eq!(tx.progress(), (handed, handed));
    });
}

/// Memory that a frame refers to changes only once its reference is recalled.
#[test]
fn what_was_read_by_a_reference_that_is_not_recalled_had_not_changed() {
    check(|| {
        let (mut tx, mut rx) = ring(4);
        let payload = Arc::new(AtomicU64::new(1));
        let recalls = tx.recalls();
        assert!(tx.push_reference(48, 0, 0, &mut |bytes| bytes.fill(recalls as u8)).unwrap());
        tx.publish();
        let producer = thread::spawn({
            let payload = payload.clone();
            move || {
                tx.recall().recall();
                payload.store(2, Ordering::Relaxed);
            }
        });
        let record = rx.pop(Time::ZERO).unwrap().unwrap();
        assert!(record.by_reference);
        let recalls = record.bytes[0];
        let read = payload.load(Ordering::Relaxed);
        if rx.recalls() as u8 == recalls {
            assert_eq!(read, 1);
        }
        producer.join().unwrap();
    });
}

/// The producer sleeps for room like ports: it requests, fences, and checks again.
#[test]
fn who_waits_for_room_sees_it_or_is_woken() {
    check(|| {
        let (mut tx, mut rx) = ring(0);
        for n in 100..116 {
            assert!(push(&mut tx, n, 48));
        }
        tx.publish();
        let consumer = thread::spawn(move || {
            let mut rung = false;
            for n in 100..104 {
                assert!(pop(&mut rx, n));
                rung |= rx.release() && rx.is_room_wanted();
            }
            rung
        });
        tx.want_room();
        fence(Ordering::SeqCst);
        let sleeps = !tx.has_room().unwrap();
        let rung = consumer.join().unwrap();
        assert!(rung || !sleeps, "the producer sleeps for ever");
        assert!(tx.has_room().unwrap());
    });
}
