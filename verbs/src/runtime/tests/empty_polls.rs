//! Empty polls that only read memory find whatever has come since the previous poll, whichever thread received it.

use std::io;
use std::sync::atomic::{AtomicU32, Ordering};

use irnic_ports::{Port, RxFrame, TxFrame, Watched};

use super::super::state::State;
use super::*;

/// Has the next empty polls only read memory, as polls in a tight loop do.
fn only_read(state: &mut State, now: Time) {
    for _ in 0..80 {
        state.model.empty_polls.note(now);
    }
    assert!(state.model.empty_polls.looks() > 0);
}

fn poll_in_vain(end: &End) {
    assert_eq!(end.poll(), 0);
    let mut state = end.unit.state.lock();
    only_read(&mut state, now());
    assert!(state.looks_in_vain(end.cq), "nothing has come");
    assert!(state.looks_in_vain(end.cq), "nothing has come since");
}

#[test]
fn a_poll_finds_what_came_after_the_previous_one() {
    type Change = fn(&End, &End);
    let changes: [(&str, Change); 4] = [
        ("a frame that nobody has read", |a, _| a.send()),
        ("a completion that another thread has received", |a, b| {
            a.send();
            b.unit.state.lock().receive(now());
        }),
        ("an acknowledgement to be sent", |a, b| {
            a.send();
            let mut state = b.unit.state.lock();
            state.receive(now());
            state.take(b.cq, 16, &mut |_| ()).unwrap();
        }),
        ("a posted message", |_, b| {
            let mut state = b.unit.state.lock();
            state.nic().post_send(b.qpn, &message(SendData::Sges(&[]), None)).unwrap();
        }),
    ];
    for (what, change) in changes {
        let [a, b] = conversation();
        assert!(b.poll() > 0);
        poll_in_vain(&b);
        change(&a, &b);
        let mut state = b.unit.state.lock();
        only_read(&mut state, now());
        assert!(!state.looks_in_vain(b.cq), "{what}");
    }
}

#[test]
fn an_empty_queue_says_nothing_of_another() {
    let [a, b] = conversation();
    assert!(b.poll() > 0);
    let other = b.unit.lock().create_cq(4, b.owner, |_| Box::new(super::Deaf)).unwrap();
    poll_in_vain(&b);
    a.send();
    b.unit.state.lock().receive(now());
    let mut state = b.unit.state.lock();
    state.transmit(now());
    only_read(&mut state, now());
    assert!(state.looks_in_vain(other), "it is empty");
    assert!(!state.looks_in_vain(b.cq));
}

/// A port that receives nothing, and the sum of the looks passed to [`Port::watched`].
struct Silent(MemPort, Arc<AtomicU32>);

impl Port for Silent {
    fn max_frame(&self) -> usize {
        self.0.max_frame()
    }

    fn transmit(&mut self, now: Time, frame: &TxFrame<'_>, fill: &mut dyn FnMut(&mut [u8])) -> bool {
        self.0.transmit(now, frame, fill)
    }

    fn flush(&mut self, now: Time) -> io::Result<()> {
        self.0.flush(now)
    }

    fn receive(&mut self, now: Time, budget: usize, each: &mut dyn FnMut(RxFrame<'_>)) -> io::Result<usize> {
        self.0.receive(now, budget, each)
    }

    fn wait(&mut self, timeout: Duration) -> io::Result<()> {
        self.0.wait(timeout)
    }

    fn may_receive(&mut self) -> bool {
        false
    }

    fn watched(&mut self, looks: u32) -> Option<Watched> {
        self.1.fetch_add(looks, Ordering::Relaxed);
        None
    }
}

impl DevicePort for Silent {
    fn host_counters(&self) -> HostCounters {
        HostCounters::default()
    }

    fn claim_service(&self, _service: u64) -> io::Result<Option<ServiceClaim>> {
        Ok(None)
    }
}

#[test]
fn looks_count_once_however_many_queues_are_polled_in_turn() {
    let (port, _peer) = pair();
    let looks = Arc::new(AtomicU32::new(0));
    let end = End::with_room(Silent(port, looks.clone()), 16);
    let mut state = end.unit.state.lock();
    let other = state.create_cq(16, end.owner, |_| Box::new(Deaf)).unwrap();
    for round in 1..=2 {
        state.receive(now());
        only_read(&mut state, now());
        let granted = state.model.empty_polls.looks();
        for cq in [end.cq, other, end.cq, other] {
            assert!(state.looks_in_vain(cq));
        }
        assert_eq!(looks.load(Ordering::Relaxed), round * granted);
    }
}
