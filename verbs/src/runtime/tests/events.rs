//! Applications that poll for an event of the communication manager and wait on its descriptor.

use std::io;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use irnic_ports::{Port, RxFrame, TxFrame};

use super::*;

/// A port that counts how often peers were asked to ring.
struct Counting {
    port: MemPort,
    requests: Arc<AtomicU32>,
}

impl Port for Counting {
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
        self.requests.fetch_add(1, Ordering::Relaxed);
        true
    }
}

impl DevicePort for Counting {
    fn host_counters(&self) -> HostCounters {
        HostCounters::default()
    }

    fn claim_service(&self, _service: u64) -> io::Result<Option<ServiceClaim>> {
        Ok(None)
    }
}

#[test]
fn peers_ring_for_who_asks_for_an_event_and_not_for_who_asks_again_and_again() {
    let requests = Arc::new(AtomicU32::new(0));
    let (port, _peer) = pair();
    let device = device(Counting { port, requests: requests.clone() });
    let unit = device.first_unit();
    // The background thread runs soon: that alone is no reason to make peers ring.
    let arms = |last: Time| {
        let mut state = unit.state.lock();
        (state.model.next_run, state.manager.last_poll) = (now(), last);
        drop(state);
        let before = requests.load(Ordering::Relaxed);
        unit.poll_cm(|| true);
        requests.load(Ordering::Relaxed) > before
    };
    assert!(arms(Time::ZERO), "it may wait for the descriptor");
    assert!(!arms(Time(now().0 + SEC)), "it has just asked");
    assert!(arms(Time(now().0 - SEC)));
}
