//! Packets that wait in the port to leave with others.

use std::io;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicU32, Ordering};

use irnic_ports::{Port, RxFrame, TxFrame};

use super::*;

/// A port whose frames wait for others as long as they may, and that counts flushes.
struct Waiting(MemPort, Arc<AtomicU32>);

impl Port for Waiting {
    fn max_frame(&self) -> usize {
        self.0.max_frame()
    }

    fn transmit(&mut self, now: Time, frame: &TxFrame<'_>, fill: &mut dyn FnMut(&mut [u8])) -> bool {
        self.0.transmit(now, frame, fill)
    }

    fn flush(&mut self, now: Time) -> io::Result<()> {
        self.1.fetch_add(1, Ordering::Relaxed);
        self.0.flush(now)
    }

    fn flush_full(&mut self, _now: Time) -> io::Result<bool> {
        Ok(true)
    }

    fn receive(&mut self, now: Time, budget: usize, each: &mut dyn FnMut(RxFrame<'_>)) -> io::Result<usize> {
        self.0.receive(now, budget, each)
    }

    fn wait(&mut self, timeout: Duration) -> io::Result<()> {
        self.0.wait(timeout)
    }

    fn wait_fd(&self) -> Option<RawFd> {
        None
    }
}

impl DevicePort for Waiting {
    fn host_counters(&self) -> HostCounters {
        HostCounters::default()
    }

    fn claim_service(&self, _service: u64) -> io::Result<Option<ServiceClaim>> {
        Ok(None)
    }
}

/// Posts an RDMA WRITE, as if the application polled.
fn post(end: &End) {
    let mut state = end.unit.lock_to_post();
    // Whatever keeps this thread from its core.
    let called = now();
    (state.model.last_call, state.model.last_progress) = (called + SEC, called + SEC);
    // Without data, WRITEs need neither keys nor the peer's permission.
    state.nic().post_send(end.qpn, &SendWr::write(0, SendData::Sges(&[]), 0, 0)).unwrap();
    end.unit.posted(state, end.qpn, false);
}

/// Makes waiting packets wait until a time.
fn wait_until(end: &End, time: Time) {
    let waits = &mut end.unit.state.lock().waits;
    *waits = waits.map(|(qpn, _)| (qpn, time));
}

fn waits(end: &End) -> bool {
    end.unit.state.lock().waits.is_some()
}

/// Returns an end that keeps its line busy, the other, which does not poll, and the count of flushes.
fn busy() -> (End, End, Arc<AtomicU32>) {
    let flushes = Arc::new(AtomicU32::new(0));
    let (a, b) = pair();
    let (a, b) = (End::with_room(Waiting(a, flushes.clone()), 128), End::new(b));
    a.connect(b.qpn);
    b.connect(a.qpn);
    // Both learn what formats their peer supports.
    a.send();
    assert_eq!(b.poll(), 1);
    b.send();
    assert_eq!(a.poll(), 2);
    while !waits(&a) {
        post(&a);
    }
    assert!(flushes.load(Ordering::Relaxed) >= 64, "until the line is busy each leaves at once");
    wait_until(&a, Time::NEVER);
    (a, b, flushes)
}

#[test]
fn packets_wait_for_others_while_the_line_is_busy_and_no_longer() {
    type Ending = fn(&End);
    let endings: [(&str, Ending); 6] = [
        ("a call that changes objects", |end| drop(end.unit.lock())),
        ("a call that ends with sending", |end| end.unit.done(end.unit.state.lock())),
        ("an application that goes to sleep", |end| end.unit.prepare_to_block(None, || true)),
        ("the next empty poll once they have waited long", |end| {
            wait_until(end, Time::ZERO);
            assert_eq!(end.poll(), 0);
        }),
        ("the next work request then", |end| {
            wait_until(end, Time::ZERO);
            post(end);
        }),
        ("the background thread then", |end| {
            wait_until(end, Time::ZERO);
            end.unit.run_once(false, &mut BusyPoll::new(Some(0)));
        }),
    ];
    for (what, end) in endings {
        let (a, _b, flushes) = busy();
        let before = flushes.load(Ordering::Relaxed);
        post(&a);
        assert_eq!(a.poll(), 0);
        a.unit.run_once(false, &mut BusyPoll::new(Some(0)));
        assert!(waits(&a) && flushes.load(Ordering::Relaxed) == before, "{what}: they wait");
        end(&a);
        assert!(!waits(&a) && flushes.load(Ordering::Relaxed) > before, "{what} sends them");
    }
}

#[test]
fn nothing_waits_any_more_when_the_application_hears_of_an_error() {
    let (a, _b, flushes) = busy();
    post(&a);
    let before = flushes.load(Ordering::Relaxed);
    // Like a fault detected by the NIC that ends a queue pair: without a call of the application.
    let error = QpAttr { state: Some(QpState::Err), ..QpAttr::default() };
    a.unit.state.lock().nic().modify_qp(a.qpn, &error).unwrap();
    assert!(waits(&a));
    assert!(a.poll() > 0);
    assert!(!waits(&a) && flushes.load(Ordering::Relaxed) > before);
}

#[test]
fn once_the_peer_has_caught_up_nothing_waits() {
    let (a, b, _) = busy();
    a.unit.state.lock().nic_port.port.flush(now()).unwrap();
    while b.unit.state.lock().progress(now()) > 0 {}
    // The empty poll after the last completion finds fewer packets in flight.
    while a.poll() > 0 {}
    assert!(!waits(&a));
}
