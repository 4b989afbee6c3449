//! A pair of ports connected by memory within one process, for tests and for runs with impairments. Frames arrive with
//! exactly the path they were sent with. Each port may be driven by its own thread, or both by one.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use irnic_transports::{Path, Time};

use super::link::{Link, RING_BYTES, region_len};
use super::prefix::{PREFIX, read_prefix, sent_icrc, write_prefix};
use super::region::Region;
use super::stamp::RingClock;
use super::{MAX_FRAME, Port, PortCounters, RxFrame, TxFrame};

/// Ring size of [`pair`] in bytes per direction: room for all packets that a queue pair with the default window has in
/// flight.
pub const DEFAULT_RING_BYTES: usize = 1 << 20;

/// One of two ports made by [`pair`] or [`pair_with`].
pub struct MemPort {
    link: Link,
}

/// Creates two connected ports with rings of [`DEFAULT_RING_BYTES`].
pub fn pair() -> (MemPort, MemPort) {
    pair_with(DEFAULT_RING_BYTES)
}

/// Creates two connected ports. `ring_bytes`, the size per direction, is clamped to 128 KiB to 64 MiB and rounded up to
/// a power of two.
pub fn pair_with(ring_bytes: usize) -> (MemPort, MemPort) {
    let ring_bytes = ring_bytes.clamp(*RING_BYTES.start(), *RING_BYTES.end()).next_power_of_two();
    let region = Arc::new(Region::heap(region_len(ring_bytes)));
    let link = |side| Link::new(region.clone(), side, ring_bytes, PREFIX + MAX_FRAME, RingClock::common());
    let port = |side| MemPort { link: link(side) };
    (port(0), port(1))
}

impl Port for MemPort {
    fn max_frame(&self) -> usize {
        MAX_FRAME
    }

    fn needs_icrc(&self, _path: &Path, _dest_qp: u32) -> bool {
        false
    }

    fn transmit(&mut self, now: Time, frame: &TxFrame<'_>, fill: &mut dyn FnMut(&mut [u8])) -> bool {
        self.link.push(now, PREFIX + frame.len, 0, &mut |bytes| {
            let (prefix, rest) = bytes.split_at_mut(PREFIX);
            write_prefix(frame.path, sent_icrc(frame), prefix);
            fill(rest);
        })
    }

    fn flush(&mut self, _now: Time) -> io::Result<()> {
        Ok(self.link.flush()?)
    }

    fn receive(&mut self, now: Time, budget: usize, each: &mut dyn FnMut(RxFrame<'_>)) -> io::Result<usize> {
        Ok(self.link.receive(now, budget, |_, arrived, record| {
            if let Some((path, icrc, bytes)) = read_prefix(record) {
                each(RxFrame { path, bytes, arrived, icrc });
            }
        })?)
    }

    fn may_receive(&mut self) -> bool {
        self.link.must_wake()
    }

    fn wait(&mut self, timeout: Duration) -> io::Result<()> {
        Ok(self.link.wait(timeout)?)
    }

    fn counters(&self) -> PortCounters {
        self.link.counters
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::super::conformance;
    use super::*;

    #[test]
    fn passes_the_conformance_suite() {
        conformance::suite(|| {
            let (a, b) = pair_with(0);
            conformance::Pair::new(a, conformance::V4_A.parse().unwrap(), b, conformance::V4_B.parse().unwrap())
        });
    }

    #[test]
    fn path_and_time_arrive_as_they_were_sent() {
        let (mut a, mut b) = pair();
        let cases = [("10.0.0.1", "10.0.0.2"), ("2001:db8::1", "2001:db8::2"), ("10.0.0.3", "2001:db8::3")];
        for (now, (src, dst)) in (0..).step_by(10).zip(cases) {
            let path = Path {
                src: src.parse().unwrap(),
                dst: dst.parse().unwrap(),
                udp_src: 0xc123,
                traffic_class: 0x6b,
                hop_limit: 63,
            };
            assert!(a.transmit(Time(now + 3), &conformance::frame(&path, 20), &mut |b| b.fill(1)));
            a.flush(Time(now + 4)).unwrap();
            let mut seen = None;
            b.receive(Time(now + 5), 10, &mut |f| seen = Some((f.path, f.arrived, f.bytes.len()))).unwrap();
            assert_eq!(seen, Some((path, Time(now + 3), 20)));
        }
    }
}
