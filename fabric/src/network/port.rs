//! A port: the sending end of one direction of a link, with the state it needs of the other end.

use std::collections::VecDeque;

use super::credits::{CreditConfig, Credits};
use super::preempt::Preemption;
use crate::priorities::Priorities;

/// Number of a port, unique in the network.
pub type PortId = u32;

/// Bytes on the wire of a MAC control frame, PFC's (IEEE 802.1Qbb) or another: the shortest Ethernet frame.
pub const CONTROL_FRAME: u32 = 64;

/// Picoseconds of a second.
const SECOND: u128 = 1_000_000_000_000;

/// A request to pause or resume one priority.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Pause {
    /// 0 to 7.
    pub priority: u8,
    /// True for XOFF, false for XON.
    pub stop: bool,
}

/// A control frame between the two ends of a link. It goes before all packets, occupies [`Control::wire`] bytes on the
/// link, and is lost only if the link goes down.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Control {
    /// Priority flow control: exactly the priorities that the receiver is to pause (IEEE 802.1Qbb).
    Pfc(Priorities),
    /// Rate-based flow control: the receiver is to send at the rate of its link over two to this power, from its next
    /// packet on. Enforced by the network, at switches and hosts alike.
    Rate {
        /// 0 to 31; 0 is the rate of the link.
        halvings: u8,
    },
    /// Credit-based flow control (IBTA volume 1, clause 7.9.4): the bytes of a priority that the receiver may send,
    /// counted from the beginning, modulo 2^32. Enforced by the network, at switches and hosts alike.
    CreditLimit {
        /// 0 to 7.
        priority: u8,
        /// Bytes on the wire.
        limit: u32,
    },
    /// Credits for a queue of the sender, into which the receiver may send `bytes` more; for custom switches.
    Credit {
        /// The queue, as both ends number it.
        queue: u16,
        /// Bytes on the wire.
        bytes: u32,
    },
    /// Another MAC control frame (IEEE 802.3 clause 31): an opcode and its parameters, as both ends understand them.
    Mac {
        /// 0x0102 and above are not assigned.
        opcode: u16,
        /// Parameters of the opcode.
        parameters: [u32; 4],
    },
}

impl Control {
    /// Returns the bytes that the frame occupies on the link: [`CONTROL_FRAME`], except for InfiniBand's credits, which
    /// are link packets of six bytes between two delimiters (IBTA volume 1, clause 7.9.4).
    #[inline]
    pub fn wire(&self) -> u32 {
        match self {
            Control::CreditLimit { .. } => 8,
            _ => CONTROL_FRAME,
        }
    }
}

/// Counters of a port.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct PortCounters {
    /// Packets sent, without control frames.
    pub packets: u64,
    /// Bytes on the wire of packets sent.
    pub bytes: u64,
    /// Largest number of bytes queued for this port.
    pub peak: u64,
    /// Packets that arrived by this port and were dropped at its node, at once or later.
    pub dropped: u64,
    /// Packets lost on the link: by its error rate, or because it went down.
    pub lost: u64,
    /// Packets marked with congestion experienced.
    pub marked: u64,
    /// XOFF frames sent by this port.
    pub pauses: u64,
    /// Time for which the other end paused at least one priority of this port, or left it without credit, ns.
    pub paused: u64,
    /// Packets trimmed in the queues of this port.
    pub trimmed: u64,
    /// Packets that did not fit the queues of this port even when trimmed, and were returned to their sender.
    pub returned: u64,
    /// Red packets dropped at the queues of this port, because of their threshold or for lack of room, if colours
    /// matter.
    pub red_dropped: u64,
    /// Green packets with payload dropped at the queues of this port for lack of room, if colours matter.
    pub green_dropped: u64,
    /// Packets without payload dropped at the queues of this port for lack of room, if colours matter.
    pub control_dropped: u64,
    /// Largest number of bytes of red packets in one queue of this port, if colours matter.
    pub red_peak: u64,
}

/// The sending end of one direction of a link. What departures of packets need and count is in the first cache line.
/// Arrivals do without: see `End`.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct Port {
    /// The port at the other end.
    pub peer: PortId,
    /// Transmission time of a byte, ps, if that is a whole number of 32 bits; otherwise 0.
    byte_time: u32,
    /// Number of times that the link went down: what was sent in an earlier epoch does not arrive.
    pub epoch: u16,
    /// Bits: the link works, control frames wait, a packet is about to leave, departures are tapped, the other end is
    /// in another part of the network, packets are interrupted.
    flags: u16,
    /// Priorities that the other end has paused.
    paused: Priorities,
    /// Priorities that the other end is to pause, and those of the last PFC frame sent to it.
    wanted: Priorities,
    advertised: Priorities,
    /// Time of the last scheduled end of a transmission, ns.
    pub awaited: u64,
    /// End of the current transmission, ps.
    ends: u64,
    /// Propagation delay, ns.
    pub delay: u64,
    /// Counters.
    pub counters: PortCounters,
    /// Node of the port.
    pub node: u32,
    /// Number of the port at its node.
    pub local: u16,
    /// Number of times that the rate is halved.
    halvings: u8,
    /// Probability that a packet is lost, in 2⁻⁶⁴.
    pub loss: u64,
    /// Number of its link in the topology.
    pub link: u32,
    /// Rate, bit/s.
    pub rate: u64,
    paused_since: u64,
    /// Queued control frames, without PFC.
    controls: VecDeque<Control>,
    /// Start and duration of the last packet that was sent below the rate of the link, ps.
    last: (u64, u64),
    /// Credits of the link, if it has some.
    credits: Option<Box<Credits>>,
    /// Transmissions begun, if packets are interrupted.
    preemption: Option<Box<Preemption>>,
}

const UP: u16 = 1;
const CONTROL: u16 = 2;
const RESERVED: u16 = 4;
const TAPPED: u16 = 8;
const CUT: u16 = 16;
const PACED: u16 = 32;
const CREDITED: u16 = 64;
const NOTED: u16 = 128;
const PREEMPTIVE: u16 = 256;

impl Port {
    /// An idle port of a working link of `rate` bit/s.
    pub fn new(node: u32, local: u16, peer: PortId, link: u32, rate: u64, delay: u64, loss: f64) -> Port {
        let mut port = Port {
            peer,
            byte_time: 0,
            epoch: 0,
            flags: UP,
            paused: Priorities::NONE,
            wanted: Priorities::NONE,
            advertised: Priorities::NONE,
            awaited: u64::MAX,
            ends: 0,
            delay,
            node,
            local,
            loss: (loss.clamp(0.0, 1.0) * u64::MAX as f64) as u64,
            counters: PortCounters::default(),
            link,
            rate: 0,
            paused_since: 0,
            controls: VecDeque::new(),
            halvings: 0,
            last: (0, 0),
            credits: None,
            preemption: None,
        };
        port.set_rate(rate);
        port
    }

    /// Changes the rate from the next packet on, bit/s, at least 1.
    pub fn set_rate(&mut self, rate: u64) {
        self.rate = rate.max(1);
        let bits = 8 * SECOND;
        let whole = bits.is_multiple_of(u128::from(self.rate));
        self.byte_time = if whole { u32::try_from(bits / u128::from(self.rate)).unwrap_or(0) } else { 0 };
    }

    /// Transmission time of `bytes`, ps, rounded up.
    #[inline]
    pub fn serialization(&self, bytes: u32) -> u64 {
        match self.byte_time {
            0 => (u128::from(bytes) * 8 * SECOND).div_ceil(u128::from(self.rate)) as u64,
            each => u64::from(bytes) * u64::from(each),
        }
    }

    /// Sends `bytes` from `now` ns on; returns when their last bit leaves, ns rounded up. Back-to-back packets lose no
    /// time by the rounding.
    #[inline]
    pub fn send(&mut self, now: u64, bytes: u32) -> u64 {
        self.ends = self.would_end(now, bytes);
        self.free_at()
    }

    /// End of the current transmission, ns rounded up.
    #[inline]
    pub fn free_at(&self) -> u64 {
        self.ends.div_ceil(1000)
    }

    /// Whether a transmission is under way at `now`, ns.
    #[inline]
    pub fn is_busy(&self, now: u64) -> bool {
        self.ends > now * 1000
    }

    /// End of a transmission of `bytes` from `now` ns on, ps.
    #[inline]
    pub fn would_end(&self, now: u64, bytes: u32) -> u64 {
        self.would_start(now) + self.serialization(bytes)
    }

    /// Start of a transmission requested at `now` ns, ps.
    #[inline]
    fn would_start(&self, now: u64) -> u64 {
        // The event that ended the previous packet was up to 1 ns late.
        let at = now * 1000;
        if self.ends + 1000 > at { self.ends } else { at }
    }

    /// Sends the rest of a packet, which takes `ps`, from `now` ns on; returns when its last bit leaves, ns rounded up.
    pub(super) fn send_rest(&mut self, now: u64, ps: u64) -> u64 {
        self.ends = self.would_start(now) + ps;
        self.free_at()
    }

    /// Stops the transmission at `now`, ns; returns what is left of it, ps.
    pub(super) fn stop(&mut self, now: u64) -> u64 {
        let left = self.ends.saturating_sub(now * 1000);
        self.ends -= left;
        left
    }

    /// End of the last packet, ps.
    pub(crate) fn ends(&self) -> u64 {
        self.ends
    }

    /// Postpones the end of the last packet by `ps`.
    pub(crate) fn skip(&mut self, ps: u64) {
        self.ends += ps;
    }

    /// Whether the link works.
    #[inline]
    pub fn is_up(&self) -> bool {
        self.flags & UP != 0
    }

    /// Whether the other end belongs to another part of the network.
    #[inline]
    pub(crate) fn is_cut(&self) -> bool {
        self.flags & CUT != 0
    }

    pub(crate) fn set_cut(&mut self, cut: bool) {
        self.flag(CUT, cut);
    }

    pub(crate) fn set_up(&mut self, up: bool) {
        self.flag(UP, up);
    }

    /// Whether the packet to be sent next has been chosen.
    #[inline]
    pub(crate) fn is_reserved(&self) -> bool {
        self.flags & RESERVED != 0
    }

    pub(crate) fn reserve(&mut self, reserved: bool) {
        self.flag(RESERVED, reserved);
    }

    /// Whether starting a packet takes more than sending it: the port is reserved, limited or watched, or interrupts
    /// packets.
    #[inline]
    pub(crate) fn is_special(&self) -> bool {
        self.flags & (RESERVED | PACED | CREDITED | TAPPED | NOTED | PREEMPTIVE) != 0
    }

    /// Whether transmissions are interrupted for more urgent packets.
    #[inline]
    pub(crate) fn is_preemptive(&self) -> bool {
        self.flags & PREEMPTIVE != 0
    }

    /// Enables interruption of packets.
    pub(super) fn preempt(&mut self) {
        self.preemption.get_or_insert_default();
        self.flag(PREEMPTIVE, true);
    }

    /// State of interrupted transmissions.
    pub(super) fn preemption(&self) -> Option<&Preemption> {
        self.preemption.as_deref()
    }

    /// State of interrupted transmissions, mutably.
    pub(super) fn preemption_mut(&mut self) -> Option<&mut Preemption> {
        self.preemption.as_deref_mut()
    }

    /// Whether departures are tapped or recorded in the journal.
    #[inline]
    pub(crate) fn is_watched(&self) -> bool {
        self.flags & (TAPPED | NOTED) != 0
    }

    /// Whether packets are recorded in the journal.
    #[inline]
    pub(crate) fn is_noted(&self) -> bool {
        self.flags & NOTED != 0
    }

    pub(crate) fn note(&mut self) {
        self.flags |= NOTED;
    }

    /// Whether departures are tapped.
    #[inline]
    pub(crate) fn is_tapped(&self) -> bool {
        self.flags & TAPPED != 0
    }

    pub(crate) fn tap(&mut self) {
        self.flags |= TAPPED;
    }

    pub(crate) fn untap(&mut self) {
        self.flags &= !TAPPED;
    }

    /// Limits the rate to that of the link over two to the power of `halvings` from now on.
    pub(crate) fn pace(&mut self, halvings: u8) {
        if self.halvings == 0 {
            self.last = (0, 0);
        }
        self.halvings = halvings.min(31);
        self.flag(PACED, halvings > 0);
    }

    /// Whether packets are sent at less than the rate of the link.
    #[inline]
    pub(crate) fn is_paced(&self) -> bool {
        self.flags & PACED != 0
    }

    /// Whether departures must be accounted for: the port is paced, or needs credits.
    #[inline]
    pub(crate) fn is_limited(&self) -> bool {
        self.flags & (PACED | CREDITED) != 0
    }

    /// Time at which a paced port may send its next packet, ns rounded up.
    pub(crate) fn may_send_at(&self) -> u64 {
        self.last.0.saturating_add(self.last.1 << self.halvings).div_ceil(1000)
    }

    /// Accounts for the start of a packet of `bytes` on a limited port. Returns whether that exhausts the credit of its
    /// priority.
    pub(crate) fn note_packet(&mut self, now: u64, priority: u8, bytes: u32) -> bool {
        let takes = self.serialization(bytes);
        self.last = (self.would_end(now, bytes) - takes, takes);
        let spent = self.credits.as_mut().is_some_and(|credits| credits.spend(priority, bytes));
        if spent {
            self.set_paused(now, self.paused.and(Priorities::of(priority)));
        }
        spent
    }

    /// Has the other end limit this one by credits.
    pub(crate) fn set_credit(&mut self, config: CreditConfig) {
        self.credits.get_or_insert_default().limit(config);
        self.flag(CREDITED, true);
    }

    /// Has this end limit the other by credits.
    pub(crate) fn grant_credit(&mut self, config: CreditConfig) {
        self.credits.get_or_insert_default().grant_all(config);
    }

    /// Sets the limit of a priority granted by the other end. Returns whether that unblocks it.
    pub(crate) fn allow(&mut self, now: u64, priority: u8, limit: u32) -> bool {
        let enough = self.credits.as_mut().is_none_or(|credits| credits.allow(priority, limit));
        let goes_on = enough && self.paused.contains(priority);
        if goes_on {
            self.set_paused(now, self.paused.without(Priorities::of(priority)));
        }
        goes_on
    }

    /// Grants the other end `bytes` more of a priority, if it is limited: the next frame of this port carries the
    /// grant.
    pub(crate) fn return_credit(&mut self, priority: u8, bytes: u32) {
        if let Some(credits) = &mut self.credits {
            credits.grant(priority, bytes);
            self.flags |= if credits.is_owed() { CONTROL } else { 0 };
        }
    }

    /// Whether the link has credits.
    pub(crate) fn has_credits(&self) -> bool {
        self.credits.is_some()
    }

    fn flag(&mut self, flag: u16, set: bool) {
        self.flags = self.flags & !flag | if set { flag } else { 0 };
    }

    /// Priorities that the other end has paused.
    #[inline]
    pub fn paused(&self) -> Priorities {
        self.paused
    }

    /// Requests that the other end pause or resume one priority: the next frame of this port carries it.
    pub(crate) fn request_pause(&mut self, pause: Pause) {
        if pause.stop {
            self.wanted.insert(pause.priority);
        } else {
            self.wanted.remove(pause.priority);
        }
    }

    /// Queues a control frame other than PFC, ahead of packets.
    pub(crate) fn push_control(&mut self, control: Control) {
        self.controls.push_back(control);
        self.flags |= CONTROL;
    }

    /// The control frame to send next. PFC goes first, if it differs from the last frame; a frame covers all priorities
    /// (IEEE 802.1Qbb), so that a change never waits behind another.
    #[inline]
    pub(crate) fn next_control(&mut self) -> Option<Control> {
        if !self.has_control() {
            return None;
        }
        if self.wanted != self.advertised {
            self.counters.pauses += u64::from(!self.wanted.without(self.advertised).is_empty());
            self.advertised = self.wanted;
            return Some(Control::Pfc(self.advertised));
        }
        let credit = self.credits.as_mut().and_then(|credits| credits.next());
        let credit = credit.map(|(priority, limit)| Control::CreditLimit { priority, limit });
        let control = credit.or_else(|| self.controls.pop_front());
        let owed = self.credits.as_ref().is_some_and(|credits| credits.is_owed());
        self.flag(CONTROL, owed || !self.controls.is_empty());
        control
    }

    /// Whether a control frame waits.
    #[inline]
    pub(crate) fn has_control(&self) -> bool {
        self.wanted != self.advertised || self.flags & CONTROL != 0
    }

    /// Handles a PFC frame of the other end, which pauses exactly these priorities.
    pub(crate) fn set_paused(&mut self, now: u64, paused: Priorities) {
        let before = std::mem::replace(&mut self.paused, paused);
        if before.is_empty() && !self.paused.is_empty() {
            self.paused_since = now;
        } else if !before.is_empty() && self.paused.is_empty() {
            self.counters.paused += now - self.paused_since;
        }
    }

    /// Handles a link failure: both sides forget their requests, and queued control frames are lost.
    pub(crate) fn reset_controls(&mut self, now: u64) {
        self.counters = self.counters_at(now);
        self.paused = Priorities::NONE;
        (self.wanted, self.advertised) = (Priorities::NONE, Priorities::NONE);
        self.controls.clear();
        self.flag(CONTROL, false);
        self.pace(0);
        if let Some(credits) = &mut self.credits {
            // Counts continue; grants in flight may be lost.
            credits.repeat();
            let (short, owed) = (credits.short(), credits.is_owed());
            self.flag(CONTROL, owed);
            self.set_paused(now, short);
        }
    }

    /// The counters at `now`, including the current pause.
    pub fn counters_at(&self, now: u64) -> PortCounters {
        let mut counters = self.counters;
        if !self.paused.is_empty() {
            counters.paused += now.saturating_sub(self.paused_since);
        }
        counters
    }
}

/// The cache line layout that [`Port`] documents.
const _: () = assert!(std::mem::offset_of!(Port, counters) == 40 && std::mem::offset_of!(PortCounters, dropped) == 24);
/// Exactly four cache lines per port.
const _: () = assert!(size_of::<Port>() == 256);

/// What the arrival of a packet by a port needs of the port: an eighth of a cache line.
#[derive(Copy, Clone, Debug)]
pub(super) struct End {
    /// Node of the port.
    pub node: u32,
    /// Number of the port at its node.
    pub local: u16,
    /// [`Port::epoch`].
    pub epoch: u16,
}

const _: () = assert!(size_of::<End>() == 8);

impl From<&Port> for End {
    fn from(port: &Port) -> End {
        End { node: port.node, local: port.local, epoch: port.epoch }
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

    /// 100 Gbit/s: 87.2 ns a packet. One stopped after 40 ns has 47.2 left, and loses none of it.
    #[test]
    fn what_is_stopped_takes_as_long_in_two_pieces() {
        let mut port = port(100_000_000_000);
        assert_eq!(port.send(0, 1090), 88);
        let left = port.stop(40);
        assert_eq!((left, port.is_busy(40)), (47_200, false));
        assert_eq!(port.send(40, 1000), 120);
        // The next begins between two nanoseconds, and so does the rest.
        assert_eq!((port.send(120, 1090), port.send_rest(208, left)), (208, 255));
        assert_eq!(port.ends(), 254_400);
        // At the end, nothing is left.
        assert_eq!(port.stop(255), 0);
        assert_eq!(port.ends(), 254_400);
    }

    #[test]
    fn paused_time_counts_from_the_first_stop_to_the_last_release() {
        let mut port = port(1);
        for (at, paused) in [(10, 1 << 3), (20, 1 << 3 | 1 << 5), (30, 1 << 5), (40, 0), (50, 1)] {
            port.set_paused(at, Priorities::from_bits(paused));
        }
        assert_eq!((port.counters.paused, port.counters_at(57).paused), (30, 37));
    }

    #[test]
    fn a_change_of_mind_is_one_frame() {
        let mut port = port(1);
        let ask = |port: &mut Port, priority, stop| port.request_pause(Pause { priority, stop });
        ask(&mut port, 0, true);
        assert_eq!((port.next_control(), port.next_control()), (Some(Control::Pfc(Priorities::of(0))), None));
        // XON and XOFF again, before either was sent: no frame is needed.
        ask(&mut port, 0, false);
        ask(&mut port, 0, true);
        assert_eq!(port.next_control(), None);
        ask(&mut port, 0, false);
        ask(&mut port, 7, true);
        assert_eq!((port.next_control(), port.counters.pauses), (Some(Control::Pfc(Priorities::of(7))), 2));
    }

    #[test]
    fn pfc_goes_before_other_control_frames_and_they_in_their_order() {
        let mut port = port(1);
        let credits = [1, 2].map(|bytes| Control::Credit { queue: 3, bytes });
        credits.iter().for_each(|credit| port.push_control(*credit));
        port.request_pause(Pause { priority: 4, stop: true });
        let sent = [(); 4].map(|()| port.next_control());
        assert_eq!(sent, [Some(Control::Pfc(Priorities::of(4))), Some(credits[0]), Some(credits[1]), None]);
        port.push_control(credits[0]);
        port.reset_controls(0);
        assert_eq!((port.next_control(), port.is_up()), (None, true));
    }
}
