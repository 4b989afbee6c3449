//! A port: the sending end of one direction of a link, with what it must know of the other end.

/// Which port: one number across the network.
pub type PortId = u32;

/// Bytes on the wire of a PFC frame (IEEE 802.1Qbb): the shortest Ethernet frame.
pub const PFC_FRAME: u32 = 64;

/// Picoseconds of a second.
const SECOND: u128 = 1_000_000_000_000;

/// A request to stop or go on sending one priority.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Pause {
    /// 0 to 7.
    pub priority: u8,
    /// XOFF, or XON.
    pub stop: bool,
}

/// What went through a port and how long it had to stand still.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct PortCounters {
    /// Packets sent, PFC frames apart.
    pub packets: u64,
    /// Their bytes on the wire.
    pub bytes: u64,
    /// Packets that arrived and found no room at the node that this port belongs to.
    pub dropped: u64,
    /// Packets lost on the link: by its error rate, or because it went down.
    pub lost: u64,
    /// Packets marked with congestion experienced.
    pub marked: u64,
    /// XOFF frames sent by this port.
    pub pauses: u64,
    /// ns for which the other end had at least one priority of this port stopped.
    pub paused: u64,
    /// Most bytes that waited for this port.
    pub peak: u64,
}

/// See the module. What arrivals and departures of packets need lies on the first line of the cache, what they count on the second.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct Port {
    /// The node that it belongs to.
    pub node: u32,
    /// The port at the other end.
    pub peer: PortId,
    /// Its number at its node.
    pub local: u16,
    /// Counts the times that the link went down: what was sent before does not arrive.
    pub epoch: u16,
    /// The link works.
    pub up: bool,
    /// Priorities that the other end has stopped, one bit each.
    pub stopped: u8,
    /// Priorities that the other end is to stop, one bit each, and those that it has been told.
    asked: u8,
    told: u8,
    /// When the packet that is being sent ends, ns.
    pub free_at: u64,
    /// The time of the last event for that.
    pub awaited: u64,
    /// The same end, ps.
    ends: u64,
    /// ps per byte, if that is a whole number; else 0.
    byte_time: u64,
    /// Propagation delay, ns.
    pub delay: u64,
    /// Probability that a packet is lost, in 2⁻⁶⁴.
    pub loss: u64,
    /// Statistics.
    pub counters: PortCounters,
    /// The link it belongs to, as the topology numbers them.
    pub link: u32,
    /// Bit/s.
    pub rate: u64,
    stopped_at: u64,
}

impl Port {
    /// An idle port of a working link of `rate` bit/s.
    pub fn new(node: u32, local: u16, peer: PortId, link: u32, rate: u64, delay: u64, loss: f64) -> Port {
        let mut port = Port {
            node,
            peer,
            local,
            epoch: 0,
            up: true,
            stopped: 0,
            asked: 0,
            told: 0,
            free_at: 0,
            awaited: u64::MAX,
            ends: 0,
            byte_time: 0,
            delay,
            loss: (loss.clamp(0.0, 1.0) * u64::MAX as f64) as u64,
            counters: PortCounters::default(),
            link,
            rate: 0,
            stopped_at: 0,
        };
        port.set_rate(rate);
        port
    }

    /// Changes the rate from the next packet on, bit/s, at least 1.
    pub fn set_rate(&mut self, rate: u64) {
        self.rate = rate.max(1);
        let bits = 8 * SECOND;
        let whole = bits.is_multiple_of(u128::from(self.rate));
        self.byte_time = if whole { (bits / u128::from(self.rate)) as u64 } else { 0 };
    }

    /// ps that `bytes` take, rounded up.
    #[inline]
    pub fn serialization(&self, bytes: u32) -> u64 {
        match self.byte_time {
            0 => (u128::from(bytes) * 8 * SECOND).div_ceil(u128::from(self.rate)) as u64,
            each => u64::from(bytes) * each,
        }
    }

    /// Sends `bytes` from `now` ns on; returns when their last bit leaves, ns rounded up. Packets that follow each other closely lose
    /// nothing by the rounding.
    #[inline]
    pub fn send(&mut self, now: u64, bytes: u32) -> u64 {
        self.ends = self.would_end(now, bytes);
        self.free_at = self.ends.div_ceil(1000);
        self.free_at
    }

    /// When `bytes` sent from `now` ns on would end, ps.
    #[inline]
    pub(crate) fn would_end(&self, now: u64, bytes: u32) -> u64 {
        // The event that ended the packet before came up to 1 ns late.
        let at = now * 1000;
        let start = if self.ends + 1000 > at { self.ends } else { at };
        start + self.serialization(bytes)
    }

    /// When the last packet ends, ps.
    pub(crate) fn ends(&self) -> u64 {
        self.ends
    }

    /// Has the last packet end `ps` later.
    pub(crate) fn skip(&mut self, ps: u64) {
        self.ends += ps;
    }

    /// Asks the other end to stop or go on with one priority: the next frame of this port says so.
    pub fn ask(&mut self, pause: Pause) {
        let bit = 1 << pause.priority;
        self.asked = if pause.stop { self.asked | bit } else { self.asked & !bit };
    }

    /// The PFC frame to send next, if the last said something else: the priorities to be stopped, one bit each. A frame speaks for
    /// all priorities (IEEE 802.1Qbb), so that a change of mind never waits behind another.
    #[inline]
    pub fn next_control(&mut self) -> Option<u8> {
        if !self.has_control() {
            return None;
        }
        self.counters.pauses += u64::from(self.asked & !self.told != 0);
        self.told = self.asked;
        Some(self.told)
    }

    /// Whether there is one.
    #[inline]
    pub fn has_control(&self) -> bool {
        self.asked != self.told
    }

    /// What the other end asked for has arrived: the priorities to be stopped.
    pub fn obey(&mut self, now: u64, stopped: u8) {
        let before = std::mem::replace(&mut self.stopped, stopped);
        if before == 0 && self.stopped != 0 {
            self.stopped_at = now;
        } else if before != 0 && self.stopped == 0 {
            self.counters.paused += now - self.stopped_at;
        }
    }

    /// The link went down: what was asked for is forgotten on both sides.
    pub fn reset_pauses(&mut self, now: u64) {
        self.counters = self.counters_at(now);
        self.stopped = 0;
        (self.asked, self.told) = (0, 0);
    }

    /// The counters at `now`, with the pause that is under way.
    pub fn counters_at(&self, now: u64) -> PortCounters {
        let mut counters = self.counters;
        if self.stopped != 0 {
            counters.paused += now.saturating_sub(self.stopped_at);
        }
        counters
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn port(rate: u64) -> Port {
        Port::new(0, 0, 1, 0, rate, 1000, 0.0)
    }

    #[test]
    fn packets_in_a_row_take_exactly_their_bits() {
        // 100 Gbit/s: 87.2 ns each.
        let mut port = port(100_000_000_000);
        let mut now = 5;
        for n in 1..=1000u64 {
            now = port.send(now, 1090);
            assert_eq!(now, (5000 + n * 87_200).div_ceil(1000));
        }
    }

    #[test]
    fn a_rate_that_divides_nothing_is_rounded_up_by_less_than_a_picosecond_each() {
        let mut port = port(3_000_000_007);
        let mut now = 0;
        for _ in 0..1_000 {
            now = port.send(now, 1000);
        }
        let exact = 1_000f64 * 8_000.0 / 3.000_000_007;
        assert!((now as f64 - exact).abs() < 2.0, "{now} {exact}");
    }

    #[test]
    fn an_idle_port_starts_when_it_is_asked_to() {
        let mut port = port(40_000_000_000);
        assert_eq!(port.send(100, 1000), 300);
        assert_eq!(port.send(400, 1000), 600);
        assert_eq!(port.send(600, 500), 700);
    }

    #[test]
    fn paused_time_counts_from_the_first_stop_to_the_last_release() {
        let mut port = port(1);
        port.obey(10, 1 << 3);
        port.obey(20, 1 << 3 | 1 << 5);
        port.obey(30, 1 << 5);
        port.obey(40, 0);
        port.obey(50, 1);
        assert_eq!((port.counters.paused, port.counters_at(57).paused), (30, 37));
    }
    #[test]
    fn a_change_of_mind_is_one_frame() {
        let mut port = port(1);
        let ask = |port: &mut Port, priority, stop| port.ask(Pause { priority, stop });
        ask(&mut port, 0, true);
        assert_eq!((port.next_control(), port.next_control()), (Some(1), None));
        // XON and XOFF again, before either was sent: nothing to say.
        ask(&mut port, 0, false);
        ask(&mut port, 0, true);
        assert_eq!(port.next_control(), None);
        ask(&mut port, 0, false);
        ask(&mut port, 7, true);
        assert_eq!((port.next_control(), port.counters.pauses), (Some(0x80), 2));
    }
}
