//! Packets that leave when the process ends.

use std::io;

use irnic_ports::{Port, RxFrame, TxFrame};
use irnic_transports::wire::mad::MAD_LEN;

use super::*;

/// A port without room for the first packets, like that of a busy link.
struct Busy {
    port: MemPort,
    refusals: u32,
}

impl Port for Busy {
    fn max_frame(&self) -> usize {
        self.port.max_frame()
    }

    fn transmit(&mut self, now: Time, frame: &TxFrame<'_>, fill: &mut dyn FnMut(&mut [u8])) -> bool {
        if self.refusals > 0 {
            self.refusals -= 1;
            return false;
        }
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
}

impl DevicePort for Busy {
    fn host_counters(&self) -> HostCounters {
        HostCounters::default()
    }

    fn claim_service(&self, _service: u64) -> io::Result<Option<ServiceClaim>> {
        Ok(None)
    }
}

/// A connection manager's last message, whose sender ends at once: without it the peer does not learn that the
/// connection has ended.
#[test]
fn what_waits_for_the_port_leaves_before_the_process_ends() {
    let (a, b) = pair();
    let (a, b) = (device(Busy { port: a, refusals: 3 }), device(b));
    {
        let mut state = a.first_unit().lock();
        assert!(state.nic().post_mad(loopback(), &[7; MAD_LEN]));
        a.first_unit().done(state);
    }
    // Its communication manager processes arrivals.
    let arrived = || {
        let mut state = b.first_unit().lock();
        state.progress(now());
        state.nic_port.received_bytes() > 0
    };
    assert!(!arrived(), "the port had no room");
    assert!(a.finish(Duration::from_secs(1)).is_some());
    assert!(arrived());
}

/// A port that never has room does not keep the process.
#[test]
fn a_process_ends_although_its_port_stays_full() {
    let (a, _b) = pair();
    let a = device(Busy { port: a, refusals: u32::MAX });
    {
        let mut state = a.first_unit().lock();
        assert!(state.nic().post_mad(loopback(), &[7; MAD_LEN]));
        a.first_unit().done(state);
    }
    let begun = std::time::Instant::now();
    assert!(a.finish(Duration::from_secs(1)).is_some());
    assert!(begun.elapsed() < Duration::from_secs(60));
}
