//! A port that is limited to a link rate.

use std::io;

use irnic_transports::time::{SEC, US};
use irnic_transports::wire::RateNotice;
use irnic_transports::{Path, Time};

use super::{Port, RxFrame, TxFrame, forward_rest, packet_len};
use crate::impair::Report;

/// Time by which a late caller's sending may catch up, in ns.
const CATCH_UP: u64 = 100 * US;

/// A port that sends no faster than a given link rate.
///
/// While the link is busy, [`Port::transmit`] has no room, as on hardware: nothing is queued here and nothing is lost.
/// A frame counts from its Ethernet header to its ICRC, as in [`crate::impair`]; preamble, Ethernet checksum and
/// inter-packet gap do not count. The long-term rate is exact: a caller that is up to 100 µs late catches up.
pub struct Paced<P> {
    port: P,
    /// Link rate in bit/s.
    rate: u64,
    /// Time when the link has sent everything passed to it.
    free: Time,
    /// A frame was refused: there is room again at `free`.
    refused: bool,
}

impl<P: Port> Paced<P> {
    /// Wraps `port` behind a link of `rate` bit/s (0 counts as 1).
    pub fn new(port: P, rate: u64) -> Paced<P> {
        Paced { port, rate: rate.max(1), free: Time::ZERO, refused: false }
    }

    /// Returns the inner port.
    pub fn inner(&self) -> &P {
        &self.port
    }

    /// Returns the inner port mutably. Frames sent there directly are not paced.
    pub fn inner_mut(&mut self) -> &mut P {
        &mut self.port
    }
}

impl<P: Port> Port for Paced<P> {
    fn needs_icrc(&self, path: &Path, dest_qp: u32) -> bool {
        self.port.needs_icrc(path, dest_qp)
    }

    fn transmit(&mut self, now: Time, frame: &TxFrame<'_>, fill: &mut dyn FnMut(&mut [u8])) -> bool {
        self.refused = self.free > now;
        if self.refused || !self.port.transmit(now, frame, fill) {
            return false;
        }
        let bits = packet_len(frame.path.dst, frame.len) as u64 * 8;
        self.free = self.free.max(Time(now.0.saturating_sub(CATCH_UP))) + bits * SEC / self.rate;
        true
    }

    fn flush(&mut self, now: Time) -> io::Result<()> {
        self.port.flush(now)
    }

    fn receive(&mut self, now: Time, budget: usize, each: &mut dyn FnMut(RxFrame<'_>)) -> io::Result<usize> {
        self.port.receive(now, budget, each)
    }

    fn next_deadline(&self) -> Time {
        let own = if self.refused { self.free } else { Time::NEVER };
        own.min(self.port.next_deadline())
    }

    fn gives_notices(&self) -> bool {
        self.port.gives_notices()
    }

    fn take_notices(&mut self, now: Time, each: &mut dyn FnMut(Time, &RateNotice)) {
        self.port.take_notices(now, each);
    }

    fn impairments(&self) -> Option<[Report; 2]> {
        self.port.impairments()
    }

    forward_rest!(self => self.port);
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::net::IpAddr;
    use std::time::Duration;

    use super::*;

    /// Accepts everything.
    #[derive(Default)]
    struct Sink(u64);

    impl Port for Sink {
        fn max_frame(&self) -> usize {
            4096
        }

        fn transmit(&mut self, _now: Time, frame: &TxFrame<'_>, fill: &mut dyn FnMut(&mut [u8])) -> bool {
            fill(&mut vec![0; frame.len]);
            self.0 += packet_len(frame.path.dst, frame.len) as u64;
            true
        }

        fn flush(&mut self, _now: Time) -> io::Result<()> {
            Ok(())
        }

        fn receive(&mut self, _: Time, _: usize, _: &mut dyn FnMut(RxFrame<'_>)) -> io::Result<usize> {
            Ok(0)
        }

        fn wait(&mut self, _timeout: Duration) -> io::Result<()> {
            Ok(())
        }
    }

    fn path() -> Path {
        let address = |last| IpAddr::from([10, 0, 0, last]);
        Path { src: address(1), dst: address(2), udp_src: 0xc000, traffic_class: 0, hop_limit: 64 }
    }

    /// Sends whenever there is room, for a second, calling `late` ns after each deadline. Returns the bits sent.
    fn second_of(rate: u64, late: u64) -> u64 {
        let mut port = Paced::new(Sink::default(), rate);
        let path = path();
        let frame = TxFrame { path: &path, dest_qp: 1, len: 1058, icrc: true, irn: false };
        let start = Time(5 * SEC);
        let mut now = start;
        while now < start + SEC {
            while port.transmit(now, &frame, &mut |_| {}) {}
            assert!(port.next_deadline() > now, "refused, and no time to come back");
            now = port.next_deadline() + late;
        }
        port.inner().0 * 8
    }

    #[test]
    fn the_link_carries_its_rate() {
        for rate in [10_000_000, 1_000_000_000] {
            for late in [0, 1_000, 50_000] {
                let bits = second_of(rate, late);
                // One frame, and the catch-up at the start.
                let slack = 1100 * 8 + rate / 10_000;
                assert!(bits.abs_diff(rate) <= slack + rate * late / SEC, "{rate} bit/s, {late} ns late: {bits}");
            }
        }
    }

    #[test]
    fn an_idle_link_saves_nothing_but_the_catch_up() {
        let mut port = Paced::new(Sink::default(), 1_000_000_000);
        let path = path();
        let frame = TxFrame { path: &path, dest_qp: 1, len: 1058, icrc: true, irn: false };
        let burst = (0..1000).take_while(|_| port.transmit(Time(SEC), &frame, &mut |_| {})).count();
        // 8.8 µs a frame.
        assert!((11..=12).contains(&burst), "{burst}");
        assert_eq!(port.next_deadline(), port.free);
    }

    #[test]
    fn frames_that_the_port_behind_refuses_cost_nothing() {
        struct Full;
        impl Port for Full {
            fn max_frame(&self) -> usize {
                4096
            }
            fn transmit(&mut self, _: Time, _: &TxFrame<'_>, _: &mut dyn FnMut(&mut [u8])) -> bool {
                false
            }
            fn flush(&mut self, _: Time) -> io::Result<()> {
                Ok(())
            }
            fn receive(&mut self, _: Time, _: usize, _: &mut dyn FnMut(RxFrame<'_>)) -> io::Result<usize> {
                Ok(0)
            }
            fn wait(&mut self, _: Duration) -> io::Result<()> {
                Ok(())
            }
        }
        let mut port = Paced::new(Full, 1_000_000);
        let path = path();
        let frame = TxFrame { path: &path, dest_qp: 1, len: 1058, icrc: true, irn: false };
        assert!(!port.transmit(Time(SEC), &frame, &mut |_| {}));
        assert_eq!((port.free, port.next_deadline()), (Time::ZERO, Time::NEVER));
    }
}
