//! Links under every order in which a weakly ordered machine may make the accesses of their two sides visible.

use loom::thread;

use super::*;

const RING: usize = 1024;
const FRAME: usize = 32;

/// Returns two sides of a link whose rings have been used all around.
fn sides() -> (Link, Link) {
    let region = Arc::new(Region::heap(region_len(RING)));
    let side = |side| Link::new(region.clone(), side, RING, FRAME, RingClock::common());
    let (mut a, mut b) = (side(0), side(1));
    for _ in 0..16 {
        send(&mut a);
        send(&mut b);
        assert_eq!((receive(&mut a), receive(&mut b)), (1, 1));
    }
    // Calls count from here on.
    (a.counters, b.counters) = Default::default();
    (a, b)
}

fn send(link: &mut Link) -> bool {
    let pushed = link.push(Time::ZERO, FRAME, 0, &mut |bytes| bytes.fill(1));
    link.flush().unwrap();
    pushed
}

fn receive(link: &mut Link) -> usize {
    link.receive(Time::ZERO, 16, |_, _, bytes| assert_eq!(bytes, [1; FRAME])).unwrap()
}

#[test]
fn who_sleeps_when_a_frame_comes_is_woken() {
    loom::model(|| {
        let (mut a, mut b) = sides();
        let sender = thread::spawn(move || {
            assert!(send(&mut a));
            a
        });
        let sleeps = b.prepare_sleep();
        let a = sender.join().unwrap();
        assert!(!sleeps || a.counters.tx_syscalls == 1, "a frame came, and nobody rang");
        assert_eq!(receive(&mut b), 1);
    });
}

#[test]
fn who_sleeps_for_room_is_woken() {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(|| {
        let (mut a, mut b) = sides();
        while send(&mut a) {}
        let receiver = thread::spawn(move || {
            b.receive(Time::ZERO, 4, |_, _, _| {}).unwrap();
            b
        });
        let sleeps = a.prepare_sleep();
        let b = receiver.join().unwrap();
        assert!(!sleeps || b.counters.tx_syscalls > 0, "there is room, and nobody rang");
        assert!(send(&mut a));
    });
}

#[test]
fn who_sleeps_when_the_peer_closes_is_woken_and_has_its_last_frame() {
    loom::model(|| {
        let (mut a, mut b) = sides();
        let closer = thread::spawn(move || {
            assert!(a.push(Time::ZERO, FRAME, 0, &mut |bytes| bytes.fill(1)));
        });
        let sleeps = b.prepare_sleep();
        let received = b.receive(Time::ZERO, 16, |_, _, _| {});
        closer.join().unwrap();
        let rung = b.own().asleep.was_rung();
        assert!(!sleeps || rung, "the peer closed, and nobody rang");
        if received != Ok(1) {
            assert_eq!(received, Ok(0), "closed before its last frame");
            assert_eq!(receive(&mut b), 1);
        }
        assert_eq!(b.receive(Time::ZERO, 16, |_, _, _| {}), Err(LinkError::Closed));
    });
}
