//! The layer between a queue pair and its congestion controller: takes the controller's measurements, and enforces its
//! rate and window.

use std::collections::VecDeque;

use crate::config::TransportConfig;
use crate::congestion::{Ack, Congestion, Controller, ControllerMetrics, Line, Point};
use crate::footprint::{Setup, bits, flag, footprint, instant, left, part, sequence, times, why, width};
use crate::pacer::Pacer;
use crate::psn::Psn;
use crate::recovery::Sack;
use crate::telemetry::Int;
use crate::time::{Time, time_of};
use crate::wire::Cnp;

/// A segment whose round trip is being measured: packets that leave in one burst (TIMELY §3.3), and were sent once. The
/// measurement starts when the last of them leaves: earlier packets of the burst, and delays here, are not queueing in
/// the network.
#[derive(Copy, Clone, Debug)]
struct Segment {
    first: Psn,
    /// Last packet of the segment.
    last: Psn,
    /// Departure time and payload of that packet.
    sent: Time,
    payload: u32,
    /// Payload of all packets.
    bytes: u32,
}

impl Segment {
    const NONE: Segment = Segment { first: Psn::new(0), last: Psn::new(0), sent: Time::ZERO, payload: 0, bytes: 0 };
}

/// Maximum number of segments measured at a time.
const SEGMENTS: usize = 256;

/// Minimum bytes of a burst of packets: what a link sends between two polls of the timers, and two packets.
const BURST: u32 = 8192;

/// Pacing and measurement state; see the module.
#[derive(Clone, Debug)]
pub(crate) struct Throttle {
    controller: Congestion,
    /// Whether requests carry telemetry.
    telemetry: bool,
    line: Line,
    pacer: Pacer,
    /// Earliest time at which the rate allows a packet; never if it does now.
    blocked: Time,
    /// Bytes of a segment, if round trips are measured.
    segment: Option<u32>,
    /// Packets between requests for an acknowledgement: [`TransportConfig::ack_every`].
    ack_every: Option<u32>,
    /// Rate at which the packets of a segment leave, bit/s, 0 for the line rate.
    pacing: u64,
    /// Time at which the packets sent so far have left at the rate `pacing`.
    paced: Time,
    /// The segment being sent.
    open: Option<Segment>,
    segments: VecDeque<Segment>,
    /// Total packets acknowledged.
    acked: u64,
    /// Marks on responses are not taken as notifications before this time.
    next_notice: Time,
    /// Time at which everything sent is paid for at the rate.
    due: Time,
    /// Start of the present measurement of use, never before the first packet, and ns since in which the rate was
    /// unused.
    since: Time,
    unused: u64,
    busy: bool,
}

impl Throttle {
    /// Returns `None` without congestion control.
    pub(super) fn new(config: &TransportConfig, mtu: u32) -> Option<Box<Throttle>> {
        let line = Line { rate: config.line_rate.max(1), base_rtt: config.base_rtt.max(1), mtu };
        let controller = Congestion::new(&config.congestion, &line)?;
        let segment = controller.segment();
        let pacing = controller.pacing();
        // A segment leaves as a whole when the previous one is paid for, and makes up for a late departure; separate
        // packets leave as the bucket fills.
        let burst = segment.map_or(BURST.max(2 * mtu), |s| s / 2);
        let mut throttle = Box::new(Throttle {
            pacer: Pacer::new(Time::ZERO, 0, burst),
            controller,
            telemetry: config.congestion.uses_telemetry(),
            line,
            blocked: Time::NEVER,
            segment,
            ack_every: config.ack_every,
            pacing: if pacing < line.rate { pacing } else { 0 },
            paced: Time::ZERO,
            open: None,
            segments: VecDeque::new(),
            acked: 0,
            next_notice: Time::ZERO,
            due: Time::ZERO,
            since: Time::NEVER,
            unused: 0,
            busy: true,
        });
        throttle.set_rate(Time::ZERO);
        Some(throttle)
    }

    /// Returns whether the rate allows a packet now, as far as known without reading the time.
    #[inline]
    pub(super) fn is_open(&self) -> bool {
        self.blocked == Time::NEVER
    }

    /// Returns whether requests are to carry telemetry.
    #[inline]
    pub(super) fn wants_telemetry(&self) -> bool {
        self.telemetry
    }

    /// Returns the packets that may be in flight.
    #[inline]
    pub(super) fn window(&self) -> u32 {
        self.controller.window().max(1)
    }

    /// Returns which packets count; see [`Controller::counts_pipe`].
    pub(super) fn counts_pipe(&self) -> bool {
        self.controller.counts_pipe()
    }

    /// Returns the state of the controller.
    pub(super) fn metrics(&self) -> ControllerMetrics {
        self.controller.metrics()
    }

    /// Returns when [`Self::on_deadline`] is due.
    #[inline]
    pub(super) fn next_deadline(&self) -> Time {
        self.blocked.min(self.controller.next_deadline())
    }

    /// Runs due timers.
    pub(super) fn on_deadline(&mut self, now: Time) {
        if self.controller.next_deadline() <= now {
            self.controller.on_timer(now);
            self.set_rate(now);
        }
        self.allows(now);
    }

    /// Returns whether a packet may leave at `now`.
    #[inline]
    pub(super) fn allows(&mut self, now: Time) -> bool {
        if self.blocked <= now {
            self.update_blocked(now);
        }
        self.is_open()
    }

    #[inline]
    fn update_blocked(&mut self, now: Time) {
        let earliest = if self.open.is_some() {
            self.paced
        } else {
            let needs = if self.segment.is_some() { 0 } else { self.line.mtu };
            self.pacer.earliest(now, needs).max(self.paced)
        };
        self.blocked = if earliest > now { earliest } else { Time::NEVER };
    }

    /// Applies the controller's rate. At the line rate the link itself is the pacer. A waiting segment keeps its
    /// departure time, and the rate is examined again then (TIMELY §5, "enforces rate updates lazily").
    fn set_rate(&mut self, now: Time) {
        let rate = self.controller.rate();
        let rate = if rate >= self.line.rate { 0 } else { rate };
        if rate != self.pacer.rate() {
            // The lower the new rate, the longer the unpaid rest takes.
            let unpaid = u128::from(self.due.since(now)) * u128::from(self.used_rate());
            self.pacer.set_rate(now, rate);
            if unpaid > 0 {
                self.due = now + u64::try_from(unpaid / u128::from(self.used_rate())).unwrap_or(u64::MAX);
            }
            if self.segment.is_none() || self.is_open() {
                self.update_blocked(now);
            } else {
                // The rest of the time is not left unused by the application.
                self.due = self.due.max(self.blocked);
            }
        }
    }

    /// Returns the rate in use, bit/s.
    fn used_rate(&self) -> u64 {
        if self.pacer.rate() == 0 { self.line.rate } else { self.pacer.rate() }
    }

    /// Cancels the debt of READs that will be requested again for the missing part.
    pub(super) fn cancel_debt(&mut self, now: Time) {
        self.pacer.cancel_debt(now);
        self.due = self.due.min(now);
        self.update_blocked(now);
    }

    /// Returns when the next packet may leave, if the rate does not allow it now.
    pub(super) fn blocked_until(&self) -> Option<Time> {
        (!self.is_open()).then_some(self.blocked)
    }

    /// Updates the use of the rate, with a packet that leaves. Called at intervals of a round trip at least, and for
    /// each packet.
    fn use_rate(&mut self, now: Time, bytes: u32) {
        if self.since == Time::NEVER {
            (self.since, self.due) = (now, now);
        }
        self.unused += now.since(self.due);
        let elapsed = now.since(self.since);
        if elapsed >= self.line.base_rtt {
            self.busy = self.unused.saturating_mul(5) <= elapsed;
            (self.since, self.unused) = (now, 0);
        }
        let takes = time_of(bytes, self.used_rate());
        self.due = self.due.max(now) + takes;
    }

    /// Handles the departure of packet `psn`, with `payload` bytes, and `bytes` that it will bring there or back;
    /// `ends`: it ends a message. Returns whether its acknowledgement is needed: because it ends a measurement, later
    /// packets may depend on it, or the next packet comes so late that it would be missed.
    pub(super) fn on_send(&mut self, now: Time, psn: Psn, fresh: bool, payload: u32, bytes: u32, ends: bool) -> bool {
        self.use_rate(now, bytes);
        self.controller.on_send(now, bytes);
        self.set_rate(now);
        self.pacer.spend(now, bytes);
        self.pace(now, payload);
        let measured = self.measure(now, psn, fresh, payload, ends);
        self.update_blocked(now);
        let between = self.open.is_none() && !self.is_open();
        let unheard = |every: u32| self.blocked.since(now).saturating_mul(every.into()) > self.line.base_rtt;
        let late = between && self.ack_every.is_some_and(unheard);
        measured || late || self.controller.window() != u32::MAX
    }

    /// Paces a packet. Within a segment it makes up for a late one; the first of a segment does not.
    fn pace(&mut self, now: Time, payload: u32) {
        if self.pacing > 0 {
            let takes = time_of(payload, self.pacing);
            let began = if self.open.is_some() { self.paced } else { self.paced.max(now) };
            self.paced = began + takes;
        }
    }

    fn measure(&mut self, now: Time, psn: Psn, fresh: bool, payload: u32, ends: bool) -> bool {
        let Some(length) = self.segment else { return false };
        if !fresh {
            // It would be ambiguous which transmission an acknowledgement answers (Karn).
            self.segments.retain(|s| psn.before(s.first) || s.last.before(psn));
            // A burst ends here: retransmissions are paid for packet by packet.
            self.open = None;
            return false;
        }
        let mut open = self.open.take().unwrap_or(Segment { first: psn, last: psn, sent: now, payload, bytes: 0 });
        (open.last, open.sent, open.payload) = (psn, now, payload);
        open.bytes = open.bytes.saturating_add(payload);
        if !ends && open.bytes.saturating_add(self.line.mtu) <= length {
            self.open = Some(open);
            return false;
        }
        if self.segments.len() < SEGMENTS {
            self.segments.push_back(open);
        }
        true
    }

    /// Handles an acknowledgement or response received at `now`: everything before `acked` has arrived, `packets` of it
    /// newly, and on a NACK also `sack`; `outstanding` packets are unacknowledged.
    pub(super) fn on_ack(
        &mut self,
        now: Time,
        acked: Psn,
        packets: u32,
        outstanding: u32,
        sack: Option<Sack>,
        marked: bool,
    ) {
        self.acked += u64::from(packets);
        let mut ack = Ack {
            packets,
            rtt: None,
            marked,
            acked: self.acked,
            sent: self.acked + u64::from(outstanding),
            busy: self.busy,
        };
        let mut reported = false;
        while let Some(answered) = self.answered(acked, sack) {
            // Of several that end together the latest best reflects the present network.
            if let Some(segment) = answered {
                ack.rtt = Some(self.round_trip(now, &segment));
                self.controller.on_ack(now, &ack);
                reported = true;
                ack.packets = 0;
            }
        }
        if !reported {
            self.controller.on_ack(now, &ack);
        }
        self.set_rate(now);
    }

    /// Removes the first segment that an acknowledgement decides: returned as measured if all of it, or its last
    /// packet, has arrived; without a measurement if only later ones have.
    fn answered(&mut self, acked: Psn, sack: Option<Sack>) -> Option<Option<Segment>> {
        let last = self.segments.front()?.last;
        let reached = last.before(acked);
        if !reached && sack.is_none_or(|s| s.last.before(last)) {
            return None;
        }
        let segment = self.segments.pop_front();
        Some(segment.filter(|_| reached || sack.is_some_and(|s| s.covers(last))))
    }

    fn round_trip(&self, now: Time, segment: &Segment) -> u64 {
        let sending = time_of(segment.payload, self.line.rate);
        now.since(segment.sent).saturating_sub(sending).max(1)
    }

    /// Handles the telemetry of an acknowledgement, after [`Self::on_ack`].
    pub(super) fn on_telemetry(&mut self, now: Time, int: &Int) {
        self.controller.on_telemetry(now, int);
        self.set_rate(now);
    }

    /// Handles a congestion notification.
    pub(super) fn on_cnp(&mut self, now: Time, cnp: &Cnp) {
        self.controller.on_cnp(now, cnp);
        self.set_rate(now);
    }

    /// Handles the fair rate of a port of a switch, bit/s.
    pub(super) fn on_fair_rate(&mut self, now: Time, point: Point, rate: u64) {
        self.controller.on_fair_rate(now, point, rate);
        self.set_rate(now);
    }

    /// Handles a congestion mark on a READ response. This end is notification and reaction point at once: the
    /// notification that would have been sent, one in `interval` ns at most, if any, is handled as received.
    pub(super) fn on_marked_response(&mut self, now: Time, interval: Option<u64>) {
        if let Some(interval) = interval
            && now >= self.next_notice
        {
            self.next_notice = now + interval;
            self.on_cnp(now, &Cnp::default());
        }
    }

    /// Handles the detection of lost packets.
    pub(super) fn on_loss(&mut self, now: Time) {
        self.controller.on_loss(now);
        self.set_rate(now);
    }

    /// Handles a retransmission timeout.
    pub(super) fn on_timeout(&mut self, now: Time) {
        // None of them can be measured by retransmissions.
        self.segments.clear();
        self.open = None;
        self.controller.on_timeout(now);
        self.set_rate(now);
    }
}

footprint!(Throttle, |at| {
    controller => part(controller),
    telemetry => left(why::SHARED),
    line => left(why::SHARED),
    pacer => part(pacer),
    blocked => left(why::FOLLOWS),
    segment => left(why::SHARED),
    ack_every => left(why::SHARED),
    pacing => left(why::SHARED),
    paced => instant().when(*pacing > 0, why::OFF),
    open => times(1, Segment::NONE).when(segment.is_some(), why::OFF),
    segments => times(segment.map_or(0, |bytes| measured(at, bytes)), Segment::NONE)
    .heap(segment.map_or(0, |_| SEGMENTS * size_of::<Segment>())),
    acked => bits(32),
    next_notice => instant().when(at.cnps, why::OFF),
    due => instant(),
    since => instant(),
    unused => instant(),
    busy => flag(),
});

/// Returns the number of segments of this many bytes in the window.
fn measured(at: &Setup, bytes: u32) -> u64 {
    let packets = u64::from(bytes).div_ceil(at.mtu).max(1);
    u64::from(at.cap).div_ceil(packets).min(SEGMENTS as u64)
}

footprint!(Segment, |at| {
    first => sequence(),
    last => sequence(),
    sent => instant(),
    payload => bits(width::LENGTH),
    bytes => bits(width::LENGTH),
});

#[cfg(test)]
mod tests;
