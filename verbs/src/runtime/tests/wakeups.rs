//! Wake-ups of the background thread, so that nothing waits for the end of its sleep.

use std::io;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering};

use irnic_ports::{Port, RxFrame, TxFrame};
use irnic_transports::time::{MS, US};

use super::super::app_model::POLL_INTERVAL;
use super::*;

/// A port with a deadline, to which packets keep arriving, or not.
struct Steady {
    port: MemPort,
    keep_coming: Arc<AtomicBool>,
    deadline: Option<u64>,
}

impl Port for Steady {
    fn max_frame(&self) -> usize {
        self.port.max_frame()
    }

    fn transmit(&mut self, now: Time, frame: &TxFrame<'_>, fill: &mut dyn FnMut(&mut [u8])) -> bool {
        self.port.transmit(now, frame, fill)
    }

    fn flush(&mut self, now: Time) -> io::Result<()> {
        self.port.flush(now)
    }

    fn receive(&mut self, now: Time, budget: usize, each: &mut dyn FnMut(RxFrame<'_>)) -> io::Result<usize> {
        self.port.receive(now, budget, each)
    }

    fn wait(&mut self, timeout: Duration) -> io::Result<()> {
        self.port.wait(timeout)
    }

    fn prepare_sleep(&mut self) -> bool {
        !self.keep_coming.load(Ordering::Relaxed)
    }

    fn next_deadline(&self) -> Time {
        self.deadline.map_or(Time::NEVER, |ns| now() + ns)
    }
}

impl DevicePort for Steady {
    fn host_counters(&self) -> HostCounters {
        HostCounters::default()
    }

    fn claim_service(&self, _service: u64) -> io::Result<Option<ServiceClaim>> {
        Ok(None)
    }
}

/// Returns whether the background thread was woken since the last call.
fn was_woken(unit: &Unit) -> bool {
    let mut count = 0u64;
    // SAFETY: eight bytes are written.
    unsafe { libc::read(unit.wake_fd.as_raw_fd(), (&raw mut count).cast(), 8) == 8 }
}

/// An application's call.
type Call = fn(&End);

const CALLS: [(&str, Call); 5] = [
    ("an empty poll", |end| assert_eq!(end.poll(), 0)),
    ("a post", |end| {
        let state = end.unit.lock_to_post();
        end.unit.posted(state, end.qpn, false);
    }),
    ("another call", |end| end.unit.done(end.unit.lock())),
    ("a wait on a completion channel", |end| end.unit.prepare_to_block(None, || true)),
    ("a wait for an event of the connection manager", |end| end.unit.poll_cm(|| true)),
];

/// Makes each call while the background thread sleeps for `sleep` ns. Returns whether it was woken, and whether it is
/// woken again by a second call before it has run.
fn calls(keep_coming: bool, deadline: Option<u64>, sleep: u64) -> Vec<(&'static str, [bool; 2])> {
    let keep_coming = Arc::new(AtomicBool::new(keep_coming));
    let (port, _peer) = pair();
    let end = End::with_room(Steady { port, keep_coming: keep_coming.clone(), deadline }, 16);
    let outcome = |(what, call): (&'static str, Call)| {
        end.unit.state.lock().model.next_run = now() + sleep;
        was_woken(&end.unit);
        let woken = || {
            call(&end);
            was_woken(&end.unit)
        };
        (what, [woken(), woken()])
    };
    CALLS.map(outcome).to_vec()
}

/// Peers do not ring: the next packets would wait until the background thread runs on its own.
#[test]
fn whoever_cannot_have_peers_ring_wakes_the_background_thread() {
    for sleep in [10 * MS, u64::MAX] {
        for (what, woken) in calls(true, None, sleep) {
            assert_eq!(woken, [true, false], "{what}");
        }
        for (what, woken) in calls(false, None, sleep) {
            assert_eq!(woken, [false; 2], "{what}: peers ring");
        }
    }
}

#[test]
fn the_background_thread_does_not_sleep_past_a_deadline() {
    for (what, woken) in calls(false, Some(320 * US), 10 * MS) {
        assert_eq!(woken, [true, false], "{what}");
    }
    // It is as late as with an application that polls.
    for (what, woken) in calls(false, Some(320 * US), POLL_INTERVAL) {
        assert_eq!(woken, [false; 2], "{what}");
    }
    for (what, woken) in calls(false, Some(20 * MS), 10 * MS) {
        assert_eq!(woken, [false; 2], "{what}");
    }
}

/// The application takes a completion and makes no further call; the last of its packets, or their acknowledgement, was
/// lost.
#[test]
fn whoever_takes_a_completion_leaves_no_deadline_behind() {
    let (a, b) = pair();
    let port = Steady { port: a, keep_coming: Arc::default(), deadline: Some(320 * US) };
    let [a, b] = [End::with_room(port, 16), End::new(b)];
    a.connect(b.qpn);
    b.connect(a.qpn);
    a.send();
    assert_eq!(b.poll(), 1);
    b.send();
    a.unit.state.lock().model.next_run = now() + 10 * MS;
    was_woken(&a.unit);
    assert_eq!(a.poll(), 2);
    assert!(was_woken(&a.unit));
}
