//! Processes of a host that pass frames to each other and wake each other, under every order in which a weakly ordered
//! machine may make shared memory visible. Rings and bells are loom's; sockets and epoll sets are the kernel's.

use std::net::Ipv4Addr;
use std::sync::Arc;

use loom::sync::Mutex;
use loom::thread;

use super::*;
use crate::RxIcrc;
use crate::sync::{Ordering, fence};

const PATH: Path = Path {
    src: IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)),
    dst: IpAddr::V4(Ipv4Addr::LOCALHOST),
    udp_src: 0xc001,
    traffic_class: 2,
    hop_limit: 64,
};

/// Slot of the process that receives the frames.
const GUEST: u16 = 1;

fn slot(number: u16) -> Slot {
    Slot::new(number).unwrap()
}

/// Opens `N` processes of a device that no other model uses, the first at slot [`GUEST`].
fn open<const N: usize>(model: &str) -> [HostPort; N] {
    let domain = format!("model-{}-{model}", std::process::id());
    std::array::from_fn(|at| {
        let config = HostConfig::new(&*domain, vec![PATH.dst]).with_slot(Some(slot(GUEST + at as u16)));
        HostPort::open(&config.with_udp(HostUdp::Off).with_ring_bytes(*RING_BYTES.start())).unwrap()
    })
}

/// Opens `N` processes of which all but the first have a link to it, with an empty ring, and its bell.
fn linked<const N: usize>(model: &str) -> [HostPort; N] {
    let mut ports = open(model);
    let [guest, others @ ..] = &mut ports[..] else { unreachable!() };
    for owner in others {
        pass_on(owner);
        assert_eq!(take(guest), 1);
        owner.cancel_sleep();
        take(owner);
        pass_on(owner);
        assert_eq!(take(guest), 1);
    }
    assert!(guest.wakeups() > 0);
    ports
}

/// Forwards a frame from another host to the guest, as the owner of UDP port 4791 does.
fn pass_on(owner: &mut HostPort) {
    let frame = RxFrame { path: PATH, bytes: &[7; 32], arrived: Time::ZERO, icrc: RxIcrc::Exact };
    owner.links.forward(Time::ZERO, slot(GUEST), &frame);
    owner.links.flush();
}

/// Takes all frames after polling the kernel, as a woken process does. Returns their number.
fn take(port: &mut HostPort) -> usize {
    let mut frames = 0;
    for _ in 0..3 {
        port.cancel_sleep();
        frames += port.receive(Time::ZERO, usize::MAX, &mut |frame| assert_eq!(frame.bytes, [7; 32])).unwrap();
    }
    frames
}

/// Returns whether a sleeping process wakes. A woken process sees everything that the kernel has seen.
fn wakes(port: &HostPort) -> bool {
    let mut poll = libc::pollfd { fd: port.wait_fd().as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: one valid pollfd; returns at once.
    let wakes = unsafe { libc::poll(&raw mut poll, 1, 0) } == 1;
    fence(Ordering::SeqCst);
    wakes
}

impl HostPort {
    fn wakeups(&self) -> u64 {
        self.host_counters().wakeups_sent + self.host_counters().wakeups_taken
    }
}

fn check(preemptions: usize, model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(model);
}

#[test]
fn who_sleeps_when_a_frame_is_passed_on_is_woken() {
    check(3, || {
        let [mut guest, mut owner] = linked("passed-on");
        let before = (owner.host_counters().wakeups_sent, guest.host_counters().wakeups_taken);
        let passing = thread::spawn(move || {
            pass_on(&mut owner);
            owner
        });
        let sleeps = guest.prepare_sleep();
        let owner = passing.join().unwrap();
        let rung = owner.host_counters().wakeups_sent - before.0;
        assert!(!sleeps || rung == 1 && wakes(&guest), "a frame was passed on, and nobody rang");
        assert_eq!(take(&mut guest), 1);
        assert_eq!(guest.host_counters().wakeups_taken - before.1, rung);
    });
}

/// The owner does not know the guest's bell yet.
#[test]
fn who_sleeps_when_a_link_begins_is_woken() {
    check(3, || {
        let [mut guest, mut owner] = open("begins");
        let passing = thread::spawn(move || {
            pass_on(&mut owner);
            owner
        });
        let sleeps = guest.prepare_sleep();
        let mut owner = passing.join().unwrap();
        assert!(!sleeps || wakes(&guest), "a link has begun, and nobody rang");
        assert_eq!(take(&mut guest), 1);
        // Now it has the bell, or receives it.
        pass_on(&mut owner);
        assert_eq!(take(&mut guest), 1);
    });
}

/// All senders share one bell, and exactly one of them rings it.
#[test]
fn who_sleeps_again_after_one_frame_is_woken_for_the_next() {
    check(2, || {
        let [mut guest, owner, neighbour] = linked("two");
        let passing = [owner, neighbour].map(|mut port| {
            thread::spawn(move || {
                pass_on(&mut port);
                port
            })
        });
        let mut sleeps = guest.prepare_sleep();
        let mut taken = 0;
        if !sleeps || wakes(&guest) {
            taken = take(&mut guest);
            sleeps = guest.prepare_sleep();
        }
        let ports = passing.map(|thread| thread.join().unwrap());
        assert!(taken == 2 || !sleeps || wakes(&guest), "{taken} of two frames, and nobody rang for the next");
        assert_eq!(taken + take(&mut guest), 2);
        let sent: u64 = ports.iter().map(|port| port.host_counters().wakeups_sent).sum();
        assert_eq!(guest.host_counters().wakeups_taken, sent);
    });
}

/// One thread of the guest sleeps; another polls, which takes the wake-up from it and makes senders ring again.
#[test]
fn who_takes_a_wake_up_from_a_sleeper_has_others_ring_again() {
    check(3, || {
        let [mut guest, mut owner] = linked("threads");
        assert!(guest.prepare_sleep());
        let guest = Arc::new(Mutex::new(guest));
        let polling = {
            let guest = guest.clone();
            thread::spawn(move || {
                let mut guest = guest.lock().unwrap();
                let taken = guest.receive(Time::ZERO, usize::MAX, &mut |_| ()).unwrap();
                (taken, guest.prepare_sleep())
            })
        };
        let passing = thread::spawn(move || {
            pass_on(&mut owner);
            owner
        });
        let (taken, sleeps) = polling.join().unwrap();
        let owner = passing.join().unwrap();
        let mut guest = guest.lock().unwrap();
        assert!(taken == 1 || !sleeps || wakes(&guest), "a frame was passed on, and nobody rang");
        assert_eq!(taken + take(&mut guest), 1);
        assert_eq!(guest.host_counters().wakeups_taken, owner.host_counters().wakeups_sent);
    });
}
